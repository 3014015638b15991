//! How a frame was sent, and the rate of its data.
//!
//! Rates of OFDM, HT and VHT are those of [`Mode`]: 1 to 4 streams, and 160 MHz as twice 80. HE is
//! by its formula, IEEE 802.11ax-2021, 27.3.9 and 27.5:
//!
//! ```text
//! rate = N_SD · N_BPSCS · R · N_SS / (12.8 µs + GI), half of it with DCM
//! ```
//!
//! # Where the standard leaves a choice
//!
//! A rate is `None` if a mode does not exist (such as MCS 9 over 20 MHz with one stream), and for 5
//! to 8 streams of VHT and the widths of EHT, which are not supported.

use crate::unit::BitRate;
use crate::wlan::mac::{self, Guard, Mode, Standard};

/// The width of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// 20 MHz.
    Mhz20,
    /// 40 MHz.
    Mhz40,
    /// 80 MHz.
    Mhz80,
    /// 160 MHz, or twice 80.
    Mhz160,
}

impl Width {
    /// The width that a cell has too, and how many of it.
    const fn of_cell(self) -> (mac::Width, u64) {
        match self {
            Self::Mhz20 => (mac::Width::Mhz20, 1),
            Self::Mhz40 => (mac::Width::Mhz40, 1),
            Self::Mhz80 => (mac::Width::Mhz80, 1),
            Self::Mhz160 => (mac::Width::Mhz80, 2),
        }
    }
}

impl From<mac::Width> for Width {
    fn from(width: mac::Width) -> Self {
        match width {
            mac::Width::Mhz20 => Self::Mhz20,
            mac::Width::Mhz40 => Self::Mhz40,
            mac::Width::Mhz80 => Self::Mhz80,
        }
    }
}

/// The mode in which a frame was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phy {
    /// A single rate, from 802.11 to 802.11g.
    Legacy(BitRate),
    /// 802.11n.
    Ht {
        /// 0 to 31; one more stream per eight.
        mcs: u8,
        /// 20 or 40 MHz.
        width: Width,
        /// Between symbols.
        guard: Guard,
    },
    /// 802.11ac.
    Vht {
        /// 0 to 9.
        mcs: u8,
        /// Spatial streams, 1 to 8.
        streams: u8,
        /// Of the channel.
        width: Width,
        /// Between symbols.
        guard: Guard,
    },
    /// 802.11ax.
    He {
        /// 0 to 11.
        mcs: u8,
        /// Spatial streams, 1 to 8.
        streams: u8,
        /// Data subcarriers: 234, 468, 980 and 1960 of 20 to 160 MHz; 24, 48 and 102 of smaller
        /// resource units.
        subcarriers: u16,
        /// The pause between symbols in ns: 800, 1600 or 3200.
        guard_ns: u16,
        /// Whether each bit is sent on two subcarriers (DCM).
        is_dual: bool,
    },
}

impl Phy {
    /// The rate of the data symbols; `None` if there is no such mode, or it is not supported.
    pub fn rate(&self) -> Option<BitRate> {
        match *self {
            Self::Legacy(rate) => Some(rate),
            Self::Ht { mcs, width, guard } => match width.of_cell() {
                (width, 1) => Mode::ht(mcs, width, guard).map(|mode| mode.rate()),
                _ => None,
            },
            Self::Vht { mcs, streams, width, guard } => {
                let (width, times) = width.of_cell();
                let mode = Mode::vht(mcs, streams, width, guard)?;
                if (mcs, streams, times) == (9, 3, 2) {
                    // 160 MHz alone lack this (IEEE 802.11-2016, section 21.5).
                    return None;
                }
                // Not twice the rate, whose last digits are rounded.
                let symbol = if guard == Guard::Short { 3_600 } else { 4_000 };
                let bits = (mode.rate().as_bps() * symbol).div_ceil(1_000_000_000);
                Some(BitRate::from_bps(times * bits * 1_000_000_000 / symbol))
            }
            Self::He { mcs, streams, subcarriers, guard_ns, is_dual } => {
                let (bits, (data, coded)) = he_scheme(mcs)?;
                if !(1..=8).contains(&streams) {
                    return None;
                }
                let coded_bits = u64::from(subcarriers) * u64::from(bits) * u64::from(streams);
                let in_halves = if is_dual { 1 } else { 2 };
                let bits = coded_bits * u64::from(data) * in_halves * 1_000_000_000;
                let symbol = 12_800 + u64::from(guard_ns);
                Some(BitRate::from_bps(bits / (2 * u64::from(coded) * symbol)))
            }
        }
    }

    /// The form of a cell's `mode` of `standard`; `None` if the standard has no such mode.
    pub fn of_mode(standard: Standard, mode: &Mode, guard: Guard) -> Option<Self> {
        let streams = u8::try_from(mode.streams).ok()?;
        let same = |candidate: Option<Mode>| candidate.as_ref() == Some(mode);
        let width = Width::from(mode.width);
        match standard {
            Standard::A | Standard::G => Some(Self::Legacy(mode.rate())),
            Standard::N => (0..32)
                .find(|mcs| same(Mode::ht(*mcs, mode.width, guard)))
                .map(|mcs| Self::Ht { mcs, width, guard }),
            Standard::Ac => (0..10)
                .find(|mcs| same(Mode::vht(*mcs, streams, mode.width, guard)))
                .map(|mcs| Self::Vht { mcs, streams, width, guard }),
        }
    }
}

/// Coded bits per subcarrier, and the code rate: data bits and coded bits. Up to MCS 9 as in VHT.
fn he_scheme(mcs: u8) -> Option<(u32, (u32, u32))> {
    const QAM_1024: u32 = 10;
    match mcs {
        10 => Some((QAM_1024, mac::CodeRate::ThreeQuarters.ratio())),
        11 => Some((QAM_1024, mac::CodeRate::FiveSixths.ratio())),
        mcs => {
            let mode = Mode::vht(mcs, 1, mac::Width::Mhz40, Guard::Long)?;
            Some((mode.modulation.bits(), mode.code.ratio()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_tables() {
        let vht = |mcs, streams, width, guard| {
            Phy::Vht { mcs, streams, width, guard }.rate().map(BitRate::as_bps)
        };
        use Guard::{Long, Short};
        assert_eq!(vht(9, 2, Width::Mhz80, Short), Some(866_666_666));
        assert_eq!(vht(9, 2, Width::Mhz160, Short), Some(1_733_333_333));
        assert_eq!(vht(0, 1, Width::Mhz160, Long), Some(58_500_000));
        assert_eq!(vht(9, 3, Width::Mhz160, Long), None);
        assert_eq!(vht(9, 1, Width::Mhz20, Long), None);
        assert_eq!(vht(9, 5, Width::Mhz20, Long), None);
        let ht = |mcs, width, guard| Phy::Ht { mcs, width, guard }.rate().map(BitRate::as_bps);
        assert_eq!(ht(15, Width::Mhz40, Short), Some(300_000_000));
        assert_eq!(ht(15, Width::Mhz80, Short), None);
        // Tables 27-111 and following of 802.11ax.
        let he = |mcs, streams, subcarriers, guard_ns, is_dual| {
            let phy = Phy::He { mcs, streams, subcarriers, guard_ns, is_dual };
            phy.rate().map(BitRate::as_bps)
        };
        assert_eq!(he(11, 2, 980, 800, false), Some(1_200_980_392));
        assert_eq!(he(0, 1, 234, 3_200, false), Some(7_312_500));
        assert_eq!(he(0, 1, 24, 3_200, true), Some(375_000));
        assert_eq!(he(9, 1, 1960, 1_600, false), Some(907_407_407));
        assert_eq!(he(12, 1, 980, 800, false), None);
        assert_eq!(he(11, 0, 980, 800, false), None);
    }

    #[test]
    fn the_modes_of_a_cell_have_names() {
        for streams in 1..=4 {
            for mcs in 0..10 {
                for guard in [Guard::Long, Guard::Short] {
                    let width = mac::Width::Mhz80;
                    let Some(mode) = Mode::vht(mcs, streams, width, guard) else { continue };
                    let phy = Phy::of_mode(Standard::Ac, &mode, guard).unwrap();
                    assert_eq!(phy, Phy::Vht { mcs, streams, width: Width::Mhz80, guard });
                    assert_eq!(phy.rate(), Some(mode.rate()));
                }
            }
        }
        let mode = Mode::ht(11, mac::Width::Mhz40, Guard::Long).unwrap();
        let phy = Phy::of_mode(Standard::N, &mode, Guard::Long).unwrap();
        assert_eq!(phy, Phy::Ht { mcs: 11, width: Width::Mhz40, guard: Guard::Long });
        let mode = Mode::legacy(Standard::G, BitRate::from_mbps(54)).unwrap();
        let phy = Phy::of_mode(Standard::G, &mode, Guard::Long);
        assert_eq!(phy, Some(Phy::Legacy(BitRate::from_mbps(54))));
    }
}
