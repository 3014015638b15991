//! Times and frames of IEEE 802.15.4 at 2.4 GHz: O-QPSK, 250 kbit/s.
//!
//! ```text
//! backoff · 320 µs ─► CCA 128 ─► turnaround 192 ─► frame ─► 192 ─► ack 352 ─► LIFS 640
//! ```
//!
//! IEEE 802.15.4-2015: 6.2.4 (interframe spaces), 6.2.5 (CSMA/CA), 10.2 (CCA), 12.1 and 12.2 (PHY).

use freshline_core::unit::Span;

/// The maximum size of a frame's PHY payload, in octets (`aMaxPhyPacketSize`).
pub const MAX_OCTETS: u64 = 127;
/// The MAC header and checksum: frame control, number, PAN, two short addresses and checksum,
/// within one PAN.
pub const MAC_OCTETS: u64 = 2 + 1 + 2 + 2 + 2 + 2;
/// The size of an acknowledgement: frame control, number and checksum.
pub const ACK_OCTETS: u64 = 5;
/// `aUnitBackoffPeriod`.
pub const BACKOFF: Span = symbols(20);
/// The duration of a clear channel assessment (CCA).
pub const CCA: Span = symbols(8);
/// `aTurnaroundTime`, from receiving to sending or vice versa: also between a frame and its ack.
pub const TURNAROUND: Span = symbols(12);
/// `macAckWaitDuration`: a backoff period, a turnaround, the header before an ack and six octets.
pub const ACK_WAIT: Span = symbols(20 + 12 + 10 + 12);

/// Preamble, start of frame and length.
const PHY_OCTETS: u64 = 4 + 1 + 1;
const MAX_SHORT_FRAME: u64 = 18;

const fn symbols(count: u64) -> Span {
    Span::from_micros(16 * count)
}

/// The airtime of a frame of `octets` octets.
pub const fn airtime(octets: u64) -> Span {
    symbols(2 * (PHY_OCTETS + octets))
}

/// The pause of a sender after an acknowledged frame of `octets` octets: SIFS or LIFS.
pub const fn pause(octets: u64) -> Span {
    if octets <= MAX_SHORT_FRAME { symbols(12) } else { symbols(40) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_standard() {
        assert_eq!(airtime(MAX_OCTETS), Span::from_micros(4256));
        assert_eq!(airtime(ACK_OCTETS), Span::from_micros(352));
        assert_eq!(ACK_WAIT, Span::from_micros(864));
        assert_eq!([pause(18), pause(19)].map(|span| span.as_micros()), [192, 640]);
    }
}
