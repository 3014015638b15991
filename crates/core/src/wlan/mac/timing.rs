//! The times between frames: slots and interframe spaces.
//!
//! ```text
//! DIFS    = SIFS + 2 slots
//! AIFS(n) = SIFS + n slots
//! EIFS    = SIFS + acknowledgement at the lowest mandatory rate + DIFS
//! ```
//!
//! IEEE 802.11-2016: 10.3.2.3 (interframe spaces), 17.4.4 (OFDM), 18.5.4 (ERP), 19.4.4 (HT) and
//! 21.4.4 (VHT).

use super::frame::ACK;
use super::mode::Mode;
use super::standard::Standard;
use crate::unit::{BitRate, Span};

/// The slot of an 802.11g cell (18.5.4, Table 18-5); the other standards have only 9 µs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Slot {
    /// 9 µs: all stations of the cell support short slots and the access point announces them.
    #[default]
    Short,
    /// 20 µs: without that announcement.
    Long,
}

/// The times of a standard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// The slot, the unit of backoff: 9 µs, or 20 µs in 802.11g cells with long slots.
    pub slot: Span,
    /// Between a frame and its acknowledgement.
    pub sifs: Span,
    /// How long after its start other stations detect a transmission (aCCATime, at most 4 µs): a
    /// station that starts within this time collides.
    pub cca: Span,
    /// From the start of a frame to its detection by the receiver (aRxPHYStartDelay of non-HT
    /// frames, the format of acknowledgements).
    pub rx_start_delay: Span,
    /// The airtime of an acknowledgement at the lowest mandatory rate, for EIFS.
    pub slowest_ack: Span,
}

impl Timing {
    /// The times of `standard`.
    pub fn of(standard: Standard) -> Self {
        let sifs = if standard == Standard::G { 10 } else { 16 };
        Self {
            slot: Span::from_micros(9),
            sifs: Span::from_micros(sifs),
            cca: Span::from_micros(4),
            rx_start_delay: Span::from_micros(20),
            slowest_ack: Mode::control(standard, BitRate::from_mbps(6)).duration(ACK),
        }
    }

    /// The same times with long slots.
    pub fn with_long_slot(self) -> Self {
        Self { slot: Span::from_micros(20), ..self }
    }

    /// How long a legacy station finds the medium idle before it transmits or counts down.
    pub fn difs(&self) -> Span {
        self.aifs(2)
    }

    /// How long a category with this AIFSN finds the medium idle before it transmits or counts.
    pub fn aifs(&self, aifsn: u8) -> Span {
        self.sifs + self.slot * u64::from(aifsn)
    }

    /// The time that EIFS adds to DIFS, or to AIFS, after an unreadable frame.
    pub fn error_extension(&self) -> Span {
        self.sifs + self.slowest_ack
    }

    /// EIFS of a legacy station.
    pub fn eifs(&self) -> Span {
        self.error_extension() + self.difs()
    }

    /// When, after the end of its frame, a sender knows that no acknowledgement comes (10.3.2.9).
    pub fn ack_timeout(&self) -> Span {
        self.sifs + self.slot + self.rx_start_delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interframe_spaces_are_those_of_the_standard() {
        let micros = |standard| {
            let timing = Timing::of(standard);
            [timing.difs(), timing.aifs(3), timing.eifs(), timing.ack_timeout()]
                .map(Span::as_micros)
        };
        // EIFS: 16 + 44 + 34; the acknowledgement takes 20 + 6 symbols of 4 µs at 6 Mbit/s.
        assert_eq!(micros(Standard::A), [34, 43, 94, 45]);
        assert_eq!(micros(Standard::N), [34, 43, 94, 45]);
        // With 6 µs of signal extension behind each frame: 10 + 50 + 28.
        assert_eq!(micros(Standard::G), [28, 37, 88, 39]);
        let long = Timing::of(Standard::G).with_long_slot();
        let micros = [long.difs(), long.aifs(3), long.eifs(), long.ack_timeout()];
        assert_eq!(micros.map(Span::as_micros), [50, 70, 110, 50]);
    }
}
