//! What packets become on the air: MPDUs, A-MPDUs and the responses to them.
//!
//! IEEE 802.11-2016: 9.2.3 (MAC frame), 9.3.1.5 (Ack), 9.3.1.9 (BlockAck), 9.7.1 (A-MPDU), and
//! RFC 1042 for the LLC/SNAP header.

use super::category::Access;
use super::mode::Mode;
use super::timing::Standard;
use crate::unit::{BitRate, Bytes, Span, Time};

/// The size of an acknowledgement.
pub const ACK: Bytes = Bytes::new(14);
/// The size of a compressed block acknowledgement.
pub const BLOCK_ACK: Bytes = Bytes::new(32);

/// LLC/SNAP 8, MAC header 24 and frame check 4 bytes.
const OVERHEAD: u64 = 8 + 24 + 4;
/// The field that tells a frame's category.
const QOS_CONTROL: u64 = 2;
/// What stands before each MPDU of an A-MPDU.
const DELIMITER: u64 = 4;

/// The rates at which responses may be sent: those that 802.11a makes mandatory.
const BASIC_RATES: [u64; 3] = [24, 12, 6];

/// The longest time that a frame may be on the air (aPPDUMaxTime).
pub const MAX_ON_AIR: Span = Span::from_micros(5_484);

/// The frames of a standard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Framing {
    standard: Standard,
    /// Whether frames tell their category.
    qos: bool,
    /// How many MPDUs an A-MPDU may have, from 1 (no aggregation) to 64.
    pub max_mpdus: usize,
}

/// A frame as the MAC of its receiver knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// When it ended: what a network card stamps all packets of a frame with.
    pub at: Time,
    /// The rate of its data.
    pub rate: BitRate,
}

impl Framing {
    /// How many MPDUs a block acknowledgement covers.
    pub const BLOCK: usize = 64;
    /// Those of 802.11ac, with as many MPDUs in an A-MPDU as there may be.
    pub const VHT: Self = Self { standard: Standard::Ac, qos: true, max_mpdus: Self::BLOCK };

    /// The frames of `standard` among stations that contend by `access`, with up to `max_mpdus`
    /// in one A-MPDU where the standard has A-MPDUs.
    pub fn new(standard: Standard, access: &Access, max_mpdus: usize) -> Self {
        let most = if standard.aggregates() { Self::BLOCK } else { 1 };
        let qos = matches!(access, Access::Edca(_));
        Self { standard, qos, max_mpdus: max_mpdus.clamp(1, most) }
    }

    /// The largest packet that one MPDU carries (9.2.4.7.1, Table 9-19): an MSDU of 2304 bytes,
    /// or what HT and VHT receivers may take as an MPDU.
    pub fn max_packet(&self) -> Bytes {
        let snap = Bytes::new(8);
        match self.standard {
            Standard::A | Standard::G => Bytes::new(2_304) - snap,
            // The length field of a delimiter has 12 bits in HT.
            Standard::N => Bytes::new(4_095 - OVERHEAD - QOS_CONTROL),
            Standard::Ac => Bytes::new(11_454 - OVERHEAD - QOS_CONTROL),
        }
    }

    /// The size of the MPDU that carries `packet`.
    pub fn mpdu(&self, packet: Bytes) -> Bytes {
        let qos = if self.qos { QOS_CONTROL } else { 0 };
        packet + Bytes::new(OVERHEAD + qos)
    }

    /// The PSDU of one MPDU alone: bare, but in VHT, where everything is an A-MPDU.
    pub fn single(&self, mpdu: Bytes) -> Bytes {
        match self.standard {
            Standard::Ac => mpdu + Bytes::new(DELIMITER),
            _ => mpdu,
        }
    }

    /// The PSDU `ampdu` with `mpdu` added behind it: padded to 4 bytes, after a delimiter.
    pub fn appended(&self, ampdu: Bytes, mpdu: Bytes) -> Bytes {
        Bytes::new(ampdu.get().next_multiple_of(4) + DELIMITER) + mpdu
    }

    /// What a packet takes of an A-MPDU in which another one follows.
    pub fn subframe(&self, packet: Bytes) -> Bytes {
        let whole = self.mpdu(packet) + Bytes::new(DELIMITER);
        Bytes::new(whole.get().div_ceil(4).saturating_mul(4))
    }

    /// The largest A-MPDU.
    pub fn max_ampdu(&self) -> Bytes {
        Bytes::new(if self.standard == Standard::Ac { 1_048_575 } else { 65_535 })
    }

    /// How long the response to a frame sent in `mode` is on the air: an acknowledgement to one
    /// MPDU, a block acknowledgement to more, at the fastest basic rate not above that of `mode`
    /// (10.7.6.5).
    pub fn response(&self, mode: &Mode, mpdus: usize) -> Span {
        let size = if mpdus > 1 { BLOCK_ACK } else { ACK };
        let highest = mode.reference_rate();
        let basic = BASIC_RATES.map(BitRate::from_mbps).into_iter().find(|rate| *rate <= highest);
        Mode::control(self.standard, basic.unwrap_or(highest)).duration(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wlan::mac::mode::{Guard, Width};

    #[test]
    fn a_kilobyte_of_udp_makes_an_mpdu_of_1088_bytes() {
        let packet = Bytes::new(1024 + 8 + 20);
        assert_eq!(Framing::new(Standard::A, &Access::DCF, 64).mpdu(packet), Bytes::new(1088));
        assert_eq!(Framing::new(Standard::N, &Access::EDCA, 64).mpdu(packet), Bytes::new(1090));
    }

    #[test]
    fn mpdus_of_an_aggregate_start_on_words_behind_delimiters() {
        let framing = Framing::new(Standard::N, &Access::EDCA, 64);
        let first = framing.appended(Bytes::ZERO, Bytes::new(1090));
        assert_eq!(first, Bytes::new(1094));
        assert_eq!(framing.appended(first, Bytes::new(1090)), Bytes::new(1096 + 1094));
        assert_eq!(framing.subframe(Bytes::new(1052)), Bytes::new(1096));
        assert_eq!(framing.subframe(Bytes::MAX), Bytes::MAX);
        assert_eq!(
            Framing::new(Standard::Ac, &Access::EDCA, 64).single(Bytes::new(1090)),
            Bytes::new(1094)
        );
    }

    #[test]
    fn responses_come_at_basic_rates() {
        let a = Framing::new(Standard::A, &Access::DCF, 1);
        let micros = |mbit| {
            let mode = Mode::legacy(Standard::A, BitRate::from_mbps(mbit)).unwrap();
            a.response(&mode, 1).as_micros()
        };
        assert_eq!([6, 9, 12, 18, 24, 54].map(micros), [44, 44, 32, 32, 28, 28]);
        // 278 bits in 3 symbols of 96 bits.
        let ac = Mode::vht(9, 1, Width::Mhz80, Guard::Long).unwrap();
        assert_eq!(Framing::new(Standard::Ac, &Access::EDCA, 64).response(&ac, 2).as_micros(), 32);
    }

    #[test]
    fn old_standards_do_not_aggregate() {
        assert_eq!(Framing::new(Standard::G, &Access::DCF, 64).max_mpdus, 1);
        assert_eq!(Framing::new(Standard::N, &Access::EDCA, 100).max_mpdus, 64);
    }
}
