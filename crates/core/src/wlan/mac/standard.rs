//! The standards whose physical layers a cell may use.

use core::fmt;

/// The standard whose physical layer a cell uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Standard {
    /// 802.11a: OFDM at 5 GHz, 20 MHz.
    #[default]
    #[cfg_attr(feature = "serde", serde(rename = "802.11a"))]
    A,
    /// 802.11g: OFDM at 2.4 GHz, 20 MHz, without 802.11b stations; its slot length is chosen by
    /// [`Slot`](super::Slot).
    #[cfg_attr(feature = "serde", serde(rename = "802.11g"))]
    G,
    /// 802.11n: HT in mixed format at 5 GHz, 20 or 40 MHz.
    #[cfg_attr(feature = "serde", serde(rename = "802.11n"))]
    N,
    /// 802.11ac: VHT at 5 GHz, 20, 40 or 80 MHz.
    #[cfg_attr(feature = "serde", serde(rename = "802.11ac"))]
    Ac,
}

/// As in a file: `802.11ac`.
impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::A => "802.11a",
            Self::G => "802.11g",
            Self::N => "802.11n",
            Self::Ac => "802.11ac",
        })
    }
}

impl Standard {
    /// Whether it has A-MPDUs, and with them modulation and coding schemes and, always, EDCA.
    pub fn aggregates(self) -> bool {
        matches!(self, Self::N | Self::Ac)
    }
}
