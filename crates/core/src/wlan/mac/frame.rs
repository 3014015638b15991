//! Packets on the air: A-MSDUs, MPDUs, A-MPDUs and the responses to them.
//!
//! ```text
//! MPDU     header 26 │ LLC/SNAP 8, packet │ FCS 4                         one packet
//! A-MSDU   header 26 │ subframe │ subframe │ … │ FCS 4                    more
//! subframe header 14 │ LLC/SNAP 8, packet │ 0 to 3 to the next word, except in the last
//! A-MPDU   delimiter 4, MPDU, 0 to 3 to the next word │ delimiter 4, MPDU │ …
//! ```
//!
//! IEEE 802.11-2016: 9.2.3 (MAC frame), 9.3.1.5 (Ack), 9.3.1.9 (BlockAck), 9.3.2.2 (A-MSDU), 9.7.1
//! (A-MPDU), and RFC 1042 for the LLC/SNAP header.
//!
//! # Where the standard leaves a choice
//!
//! A single packet is sent as an MSDU, not as an A-MSDU of one. HT receivers take A-MSDUs of 3839
//! bytes, the longest that fits into an A-MPDU there; VHT receivers take MPDUs of 11454.

use super::category::Access;
use super::mode::Mode;
use super::standard::Standard;
use crate::unit::{BitRate, Bytes, Span, Time};

/// The size of an acknowledgement.
pub const ACK: Bytes = Bytes::new(14);
/// The size of a compressed block acknowledgement.
pub const BLOCK_ACK: Bytes = Bytes::new(32);

/// The LLC/SNAP header before an IP packet in an MSDU.
const SNAP: u64 = 8;
/// MAC header 24 and frame check 4 bytes.
const HEADER: u64 = 24 + 4;
/// The addresses and the length before each MSDU of an A-MSDU.
const SUBFRAME: u64 = 14;
/// The QoS control field, which contains a frame's category.
const QOS_CONTROL: u64 = 2;
/// The delimiter before each MPDU of an A-MPDU.
const DELIMITER: u64 = 4;

/// The rates at which responses may be sent: the mandatory rates of 802.11a, in Mbit/s.
const BASIC_RATES: [u64; 3] = [24, 12, 6];

/// The longest time that a frame may be on the air (aPPDUMaxTime).
pub const MAX_ON_AIR: Span = Span::from_micros(5_484);

/// The frames of a standard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Framing {
    standard: Standard,
    /// Whether frames have a QoS control field.
    qos: bool,
    /// The maximum number of MPDUs per A-MPDU, from 1 (no aggregation) to 64.
    pub max_mpdus: usize,
    /// The maximum number of packets per MPDU, from 1 (no A-MSDUs) to 32.
    pub max_msdus: u8,
}

/// When the packets of an A-MPDU arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Delivery {
    /// At the end of the frame, as hosts see it: a network card has one interrupt per frame.
    #[default]
    Frame,
    /// Each packet at the end of its MPDU, if no earlier one is missing: as the MAC (10.24.7.6.2)
    /// and other simulators deliver them.
    Mpdu,
}

impl Delivery {
    #[cfg(feature = "serde")]
    pub(super) fn is_frame(&self) -> bool {
        *self == Self::Frame
    }
}

/// A frame as the MAC of its receiver knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// When it ended: the time with which a network card stamps all packets of the frame.
    pub at: Time,
    /// The rate of its data.
    pub rate: BitRate,
}

impl Framing {
    /// The number of MPDUs that a block acknowledgement covers.
    pub const BLOCK: usize = 64;
    /// The maximum number of packets per A-MSDU: the largest limit that a receiver can announce
    /// (Table 9-134, bits 63 and 64); apart from it, only the size is limited.
    pub const MAX_MSDUS: u8 = 32;
    /// The frames of 802.11ac, with the maximum number of MPDUs per A-MPDU, and no A-MSDUs.
    pub const VHT: Self =
        Self { standard: Standard::Ac, qos: true, max_mpdus: Self::BLOCK, max_msdus: 1 };

    /// The frames of `standard` among stations that contend by `access`, with up to `max_mpdus`
    /// in one A-MPDU where the standard has A-MPDUs, and no A-MSDUs.
    pub fn new(standard: Standard, access: &Access, max_mpdus: usize) -> Self {
        let most = if standard.aggregates() { Self::BLOCK } else { 1 };
        let qos = matches!(access, Access::Edca(_));
        Self { standard, qos, max_mpdus: max_mpdus.clamp(1, most), max_msdus: 1 }
    }

    /// The same with up to `max_msdus` packets per MPDU, if the standard has aggregation.
    pub fn with_msdus(self, max_msdus: u8) -> Self {
        let most = if self.standard.aggregates() { Self::MAX_MSDUS } else { 1 };
        Self { max_msdus: max_msdus.clamp(1, most), ..self }
    }

    /// The largest packet that one MPDU carries (9.2.4.7.1, Table 9-19): an MSDU of 2304 bytes, or
    /// the largest MPDU of HT and VHT receivers.
    pub fn max_packet(&self) -> Bytes {
        let around = SNAP + HEADER + QOS_CONTROL;
        match self.standard {
            Standard::A | Standard::G => Bytes::new(2_304 - SNAP),
            // The length field of a delimiter has 12 bits in HT.
            Standard::N => Bytes::new(4_095 - around),
            Standard::Ac => Bytes::new(11_454 - around),
        }
    }

    /// The largest MPDU with an A-MSDU in it (9.2.4.7.1, Table 9-19).
    pub fn max_amsdu_mpdu(&self) -> Bytes {
        match self.standard {
            Standard::Ac => Bytes::new(11_454),
            _ => Bytes::new(3_839 + HEADER + QOS_CONTROL),
        }
    }

    /// The size of the MPDU that carries `packet` alone.
    pub fn mpdu(&self, packet: Bytes) -> Bytes {
        packet + Bytes::new(SNAP) + self.header()
    }

    /// The size of the MPDU `mpdu` of `packets` packets after `packet` is appended to its A-MSDU.
    /// With the second packet, the first one gets a subframe header too.
    pub fn joined(&self, mpdu: Bytes, packets: u8, packet: Bytes) -> Bytes {
        let first = if packets == 1 { SUBFRAME } else { 0 };
        let before = mpdu - self.header() + Bytes::new(first);
        let words = Bytes::new(before.get().div_ceil(4).saturating_mul(4));
        words + Bytes::new(SUBFRAME + SNAP) + packet + self.header()
    }

    /// The number of packets of this size that fit into an MPDU.
    fn packets_an_mpdu(&self, packet: Bytes) -> (u8, Bytes) {
        let mut mpdu = (1, self.mpdu(packet));
        while mpdu.0 < self.max_msdus {
            let joined = self.joined(mpdu.1, mpdu.0, packet);
            if joined > self.max_amsdu_mpdu() {
                break;
            }
            mpdu = (mpdu.0 + 1, joined);
        }
        mpdu
    }

    /// Nmax: the maximum number of packets of this size per frame, as far as its length allows.
    pub fn max_packets(&self, packet: Bytes) -> usize {
        self.max_mpdus * usize::from(self.packets_an_mpdu(packet).0)
    }

    /// MAC header and frame check.
    fn header(&self) -> Bytes {
        Bytes::new(HEADER + if self.qos { QOS_CONTROL } else { 0 })
    }

    /// The PSDU of a single MPDU: the MPDU itself, except in VHT, where every frame is an A-MPDU.
    pub fn single(&self, mpdu: Bytes) -> Bytes {
        match self.standard {
            Standard::Ac => mpdu + Bytes::new(DELIMITER),
            _ => mpdu,
        }
    }

    /// The size of the PSDU `ampdu` after `mpdu` is appended: padding to 4 bytes, a delimiter, the
    /// MPDU.
    pub fn appended(&self, ampdu: Bytes, mpdu: Bytes) -> Bytes {
        Bytes::new(ampdu.get().next_multiple_of(4) + DELIMITER) + mpdu
    }

    /// The room in an A-MPDU for a full MPDU of packets of this size that another MPDU follows, and
    /// the number of its packets.
    pub fn subframe(&self, packet: Bytes) -> (Bytes, u8) {
        let (packets, mpdu) = self.packets_an_mpdu(packet);
        let whole = mpdu + Bytes::new(DELIMITER);
        (Bytes::new(whole.get().div_ceil(4).saturating_mul(4)), packets)
    }

    /// The room in an A-MPDU in `mode` of at most `on_air`; zero where nothing is aggregated.
    pub fn room(&self, mode: &Mode, on_air: Span) -> Bytes {
        match (self.max_mpdus, self.max_msdus) {
            (1, 1) => Bytes::ZERO,
            _ => mode.capacity(on_air).min(self.max_ampdu()),
        }
    }

    /// The largest A-MPDU.
    pub fn max_ampdu(&self) -> Bytes {
        Bytes::new(if self.standard == Standard::Ac { 1_048_575 } else { 65_535 })
    }

    /// The airtime of the response to a frame sent in `mode`: an acknowledgement for one MPDU, a
    /// block acknowledgement for more, at the fastest basic rate not above that of `mode`
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
        assert_eq!(framing.subframe(Bytes::new(1052)), (Bytes::new(1096), 1));
        assert_eq!(framing.subframe(Bytes::MAX), (Bytes::MAX, 1));
        assert_eq!(
            Framing::new(Standard::Ac, &Access::EDCA, 64).single(Bytes::new(1090)),
            Bytes::new(1094)
        );
    }

    #[test]
    fn packets_share_an_mpdu_as_subframes_of_an_a_msdu() {
        let packet = Bytes::new(1500);
        let ac = Framing::VHT.with_msdus(2);
        // 26 + (14 + 8 + 1500, filled up by 2) + (14 + 8 + 1500) + 4.
        assert_eq!(ac.joined(ac.mpdu(packet), 1, packet), Bytes::new(3_076));
        assert_eq!(ac.subframe(packet), (Bytes::new(3_080), 2));
        assert_eq!(ac.max_packets(packet), 128);
        // A third one: 26 + 2 · 1524 + 1522 + 4.
        assert_eq!(ac.joined(Bytes::new(3_076), 2, packet), Bytes::new(4_600));
        // Of 802.11n's 3839 bytes: 1524 + 1522 is all that fits. Of 11454: 26 + 7 · 1524 + 4.
        let n = Framing::new(Standard::N, &Access::EDCA, 64).with_msdus(5);
        assert_eq!((n.subframe(packet).1, ac.with_msdus(32).subframe(packet).1), (2, 7));
        assert_eq!(n.max_amsdu_mpdu(), Bytes::new(3_869));
        let a = Framing::new(Standard::A, &Access::EDCA, 64).with_msdus(2);
        assert_eq!(a.max_msdus, 1);
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
