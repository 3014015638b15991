//! Protection of frames: short frames at a legacy rate that reserve the medium for a longer one.
//!
//! ```text
//! RTS/CTS       RTS 20 bytes │ SIFS │ CTS 14 bytes │ SIFS │ data …
//! CTS-to-self                         CTS 14 bytes │ SIFS │ data …
//! ```
//!
//! IEEE 802.11-2016: 9.3.1.2 (RTS), 9.3.1.3 (CTS), 10.3.2.6 (RTS/CTS), 10.3.2.11 (CTS-to-self).
//! At 6 Mbit/s RTS/CTS takes 128 µs and CTS-to-self 60 µs; at 24 Mbit/s 88 and 44 µs.
//!
//! An RTS that collides gets no CTS, so its data is not sent: the collision is as short as the RTS.
//! A CTS-to-self expects no answer, so the data follows it into the collision.
//!
//! # Where the standard leaves a choice
//!
//! Only the first frame of a TXOP is protected, as the reservation covers the TXOP. A collision of
//! RTS frames counts as an attempt of the data frame: the only retry limit modelled here is the one
//! for short frames.

use super::mode::Mode;
use super::standard::Standard;
use super::timing::Timing;
use crate::unit::{BitRate, Bytes, Span};

/// The size of a request to send.
const RTS: Bytes = Bytes::new(20);
/// The size of a clear to send.
const CTS: Bytes = Bytes::new(14);

/// The frames before a protected frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Exchange {
    /// A request, and the receiver's answer.
    #[default]
    RtsCts,
    /// The sender's own CTS.
    CtsToSelf,
}

/// Which frames of a cell are protected, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Protection {
    /// The frames sent before the protected frame.
    pub exchange: Exchange,
    /// The rate of RTS and CTS, one of 802.11a's.
    pub rate: BitRate,
    /// Frames (PSDUs) that are longer than this are protected (dot11RTSThreshold).
    pub above: Bytes,
}

impl Default for Protection {
    /// RTS/CTS at the lowest rate, which all stations in range can read, before every frame.
    fn default() -> Self {
        Self { exchange: Exchange::RtsCts, rate: BitRate::from_mbps(6), above: Bytes::ZERO }
    }
}

/// [`Protection`] by the times of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// Frames that are longer than this are protected.
    pub above: Bytes,
    /// How long before the data the exchange begins.
    pub lead: Span,
    /// For how long the sender of a colliding exchange transmits before it stops; `None` if it
    /// sends the data in any case.
    pub silent_after: Option<Span>,
}

impl Protection {
    /// The times of this protection; `None` if its rate is not one of 802.11a's.
    pub fn reservation(&self, standard: Standard, timing: &Timing) -> Option<Reservation> {
        let mode = Mode::legacy(standard, self.rate)?;
        let cts = mode.duration(CTS) + timing.sifs;
        let rts = mode.duration(RTS);
        let (lead, silent_after) = match self.exchange {
            Exchange::RtsCts => (rts + timing.sifs + cts, Some(rts)),
            Exchange::CtsToSelf => (cts, None),
        };
        Some(Reservation { above: self.above, lead, silent_after })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_takes_what_its_frames_take() {
        let lead = |exchange, mbit| {
            let rate = BitRate::from_mbps(mbit);
            let protection = Protection { exchange, rate, ..Protection::default() };
            let made = protection.reservation(Standard::Ac, &Timing::of(Standard::Ac));
            made.map(|made| made.lead.as_micros())
        };
        // RTS: 20 + 8 symbols of 4 µs at 6 Mbit/s, 20 + 2 at 24; CTS: 20 + 6, 20 + 2; SIFS 16.
        assert_eq!(lead(Exchange::RtsCts, 6), Some(52 + 16 + 44 + 16));
        assert_eq!(lead(Exchange::RtsCts, 24), Some(28 + 16 + 28 + 16));
        assert_eq!(lead(Exchange::CtsToSelf, 6), Some(44 + 16));
        assert_eq!(lead(Exchange::CtsToSelf, 24), Some(28 + 16));
        assert_eq!(lead(Exchange::RtsCts, 7), None);
    }
}
