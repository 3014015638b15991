//! Computes the overhead of a frame to a station and the airtime of a packet (the station's
//! contribution to c and w of a [round](super::Round)) from the timing of the [cell](super::mac).
//!
//! ```text
//! T_oh = AIFS + CWmin/2 · slot + preamble + (16 + 6·N_ES)/R + T_SYM/2 + SIFS + BlockAck     (s)
//! wᵢ   = (l + l_oh)/R                                                                       (s)
//! l_oh = delimiter 4 + MAC header 26 + LLC/SNAP 8 + FCS 4, filled up to whole words         (bytes)
//! ```
//!
//! With A-MSDUs of k packets, wᵢ is the airtime of their MPDU divided by k: header, delimiter and
//! FCS are shared, and each packet has a subframe header of 14 bytes.
//!
//! R is the rate of the data symbols, each T_SYM long; N_ES encoders add 6 tail bits each to 16
//! service bits.

use super::mac::{CategoryParams, Framing, Mode, Timing};
use crate::unit::{BitRate, Bytes, Span};

/// The airtime of frames to one station.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// T_oh: the mean airtime of a frame in addition to its packets, from the time at which the
    /// medium becomes free to the end of the block acknowledgement, without other contending
    /// stations.
    pub overhead: Span,
    /// wᵢ: the airtime of a packet, (l + l_oh)/R, in seconds; finite and above zero.
    pub airtime: f64,
}

impl Link {
    /// Frames of IP packets of this size, sent in `mode` with these contention parameters.
    pub fn new(
        mode: &Mode,
        timing: &Timing,
        framing: &Framing,
        contention: &CategoryParams,
        packet: Bytes,
    ) -> Self {
        let before = timing.aifs(contention.aifsn) + contention.mean_backoff(timing.slot);
        let response = timing.sifs + framing.response(mode, framing.max_mpdus);
        let overhead = before + mode.overhead() + response;
        Self { overhead, airtime: airtime_in(framing, packet, mode.rate()) }
    }
}

/// wᵢ: the airtime in seconds of an IP packet of this size, in its own MPDU, at the rate R of a
/// station's data symbols. Two packets of 1500 bytes in an A-MSDU take 0.3 % less.
pub fn airtime(packet: Bytes, rate: BitRate) -> f64 {
    airtime_in(&Framing::VHT, packet, rate)
}

fn airtime_in(framing: &Framing, packet: Bytes, rate: BitRate) -> f64 {
    let (mpdu, packets) = framing.subframe(packet);
    8.0 * mpdu.get() as f64 / f64::from(packets) / rate.as_bps().max(1) as f64
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::wlan::mac::{Access, Category, Guard, Standard, Width};

    /// 1500-byte packets in best effort's frames, over 80 MHz with long pauses between symbols.
    pub(in crate::wlan) fn link(mcs: u8, streams: u8) -> Link {
        let mode = Mode::vht(mcs, streams, Width::Mhz80, Guard::Long).unwrap();
        let best_effort = Access::EDCA.params(Category::BestEffort);
        let timing = Timing::of(Standard::Ac);
        Link::new(&mode, &timing, &Framing::VHT, best_effort, Bytes::new(1500))
    }

    pub(in crate::wlan) fn backoff_deviation() -> Span {
        let best_effort = Access::EDCA.params(Category::BestEffort);
        best_effort.backoff_deviation(Timing::of(Standard::Ac).slot)
    }

    #[test]
    fn a_frame_at_390_mbit_s_costs_200_us_beside_its_packets() {
        // 43 + 67.5 + 40 + 22 bits + 2 + 16 + 32 µs; the thesis starts with 200 µs (Figure 5.11).
        assert_eq!(link(9, 1).overhead.as_nanos(), 200_556);
        // The block acknowledgement comes at 6 Mbit/s: 68 µs.
        assert_eq!(link(0, 1).overhead.as_micros(), 237);
        // 1544 bytes.
        assert!((link(9, 1).airtime * 1e6 - 31.672).abs() < 0.001);
    }

    #[test]
    fn two_packets_in_an_a_msdu_share_a_header() {
        let mode = Mode::vht(9, 1, Width::Mhz80, Guard::Long).unwrap();
        let best_effort = Access::EDCA.params(Category::BestEffort);
        let timing = Timing::of(Standard::Ac);
        let framing = Framing::VHT.with_msdus(2);
        let paired = Link::new(&mode, &timing, &framing, best_effort, Bytes::new(1500));
        // 3080 bytes for two.
        assert!((paired.airtime * 1e6 - 31.590).abs() < 0.001);
        assert_eq!(paired.overhead, link(9, 1).overhead);
    }
}
