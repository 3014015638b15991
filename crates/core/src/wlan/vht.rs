//! What 802.11ac takes to carry packets: the c and the w of a [round](super::Round), from the
//! settings of its physical layer.
//!
//! ```text
//! R    = N_SD · N_BPSCS · r · N_SS / T_SYM              the rate of the data symbols
//! T_oh = AIFS + CWmin/2 · slot + preamble + (16 + 6·N_ES)/R + T_SYM/2 + SIFS + BlockAck
//! l_oh = delimiter 4 + MAC header 26 + LLC/SNAP 8 + FCS 4, filled up to whole words
//! ```
//!
//! N_SD data subcarriers carry N_BPSCS coded bits each at the code rate r, in N_SS streams; N_ES
//! encoders add 6 tail bits each to 16 service bits. Data ends on a whole symbol, which costs half
//! of one in the mean. IEEE 802.11-2016: 21.3.8 (preamble), 21.4.3 (durations), 21.5 (rates),
//! 10.3.2.3 and 10.22.2 (interframe spaces, backoff), 9.7.1 (A-MPDU), 10.7.6.5 (responses).

use crate::unit::{BitRate, Bytes, Span};

/// The width of the channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// 20 MHz.
    Mhz20,
    /// 40 MHz.
    Mhz40,
    /// 80 MHz.
    Mhz80,
    /// 160 MHz, in one piece or in two.
    Mhz160,
}

impl Width {
    /// N_SD.
    const fn subcarriers(self) -> u32 {
        match self {
            Self::Mhz20 => 52,
            Self::Mhz40 => 108,
            Self::Mhz80 => 234,
            Self::Mhz160 => 468,
        }
    }
}

/// The pause between symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// 800 ns, in symbols of 4 µs.
    Long,
    /// 400 ns, in symbols of 3.6 µs.
    Short,
}

/// Settings of the physical layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VhtParams {
    /// Modulation and coding scheme, 0 to 9.
    pub mcs: u8,
    /// N_SS, spatial streams, 1 to 4.
    pub streams: u8,
    /// The width of the channel.
    pub width: Width,
    /// The pause between symbols.
    pub guard: Guard,
}

/// Settings that 802.11ac does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VhtError {
    /// No such scheme.
    #[error("802.11ac has no MCS {0}; give one from 0 to 9")]
    Mcs(u8),
    /// Too few streams, or too many.
    #[error("{0} spatial streams are not supported; give 1 to 4")]
    Streams(u8),
    /// Coded bits that do not divide among the encoders (21.5).
    #[error(
        "802.11ac leaves out MCS {mcs} with {streams} streams at this width; take the MCS below"
    )]
    LeftOut {
        /// The scheme.
        mcs: u8,
        /// The streams.
        streams: u8,
    },
}

/// How a sender gets the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// How many slots behind SIFS the medium must be idle.
    pub aifsn: u8,
    /// The backoff is drawn from 0 to this many slots, all equally likely.
    pub cw_min: u32,
}

impl Access {
    /// Best effort, as stations and most access points have it (Table 9-137).
    pub const BEST_EFFORT: Self = Self { aifsn: 3, cw_min: 15 };

    /// The mean of the backoff: CWmin/2 slots.
    fn mean_backoff(self) -> Span {
        SLOT * u64::from(self.cw_min) / 2
    }

    /// The standard deviation of one backoff: that of CWmin + 1 equally likely slots.
    pub fn backoff_deviation(self) -> Span {
        let window = f64::from(self.cw_min) + 1.0;
        SLOT.mul_f64(libm::sqrt((window * window - 1.0) / 12.0))
    }
}

/// aSlotTime at 5 GHz.
const SLOT: Span = Span::from_micros(9);
/// aSIFSTime at 5 GHz.
const SIFS: Span = Span::from_micros(16);
/// aPPDUMaxTime: no frame is longer.
pub const LONGEST_FRAME: Span = Span::from_micros(5_484);

/// One way to send data frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vht {
    mcs: u8,
    streams: u8,
    bits_per_symbol: u32,
    encoders: u32,
    symbol: Span,
}

/// Coded bits a subcarrier, and data bits for so many coded bits (Table 21-29).
const SCHEMES: [(u32, (u32, u32)); 10] = [
    (1, (1, 2)),
    (2, (1, 2)),
    (2, (3, 4)),
    (4, (1, 2)),
    (4, (3, 4)),
    (6, (2, 3)),
    (6, (3, 4)),
    (6, (5, 6)),
    (8, (3, 4)),
    (8, (5, 6)),
];

impl VhtParams {
    /// The way to send, where 802.11ac has it.
    pub fn build(self) -> Result<Vht, VhtError> {
        /// What one encoder takes in a symbol: 600 Mbit/s with the short pause.
        const BITS_PER_ENCODER: u32 = 2_160;
        let Self { mcs, streams, width, guard } = self;
        let (bits, (data, coded)) = *SCHEMES.get(usize::from(mcs)).ok_or(VhtError::Mcs(mcs))?;
        if !(1..=4).contains(&streams) {
            return Err(VhtError::Streams(streams));
        }
        let coded_bits = width.subcarriers() * bits * u32::from(streams);
        let bits_per_symbol = coded_bits * data / coded;
        let encoders = bits_per_symbol.div_ceil(BITS_PER_ENCODER);
        // Each encoder gets whole blocks of its puncturing pattern.
        if !coded_bits.is_multiple_of(encoders * coded) {
            return Err(VhtError::LeftOut { mcs, streams });
        }
        let symbol = Span::from_nanos(if guard == Guard::Short { 3_600 } else { 4_000 });
        Ok(Vht { mcs, streams, bits_per_symbol, encoders, symbol })
    }
}

impl Vht {
    /// R: the rate of the data symbols.
    pub fn rate(&self) -> BitRate {
        BitRate::from_bps(u64::from(self.bits_per_symbol) * 1_000_000_000 / self.symbol.as_nanos())
    }

    /// T_oh: what a frame takes in the mean beside its packets, from the moment at which the
    /// medium is free to the end of the block acknowledgement, where nobody else contends.
    pub fn overhead(&self, access: Access) -> Span {
        let aifs = SIFS + SLOT * u64::from(access.aifsn);
        let before = aifs + access.mean_backoff() + self.preamble();
        let bits = 16 + 6 * u64::from(self.encoders);
        let ends = self.symbol * bits / u64::from(self.bits_per_symbol) + self.symbol / 2;
        before + ends + SIFS + self.block_ack()
    }

    /// How many packets a frame carries at most: by 64 places in the block acknowledgement, and
    /// by [`LONGEST_FRAME`].
    pub fn most_packets(&self, packet: Bytes) -> u64 {
        let data = LONGEST_FRAME - self.preamble();
        let bits = data.as_nanos() / self.symbol.as_nanos() * u64::from(self.bits_per_symbol);
        let fit = bits / (8 * subframe(packet).get());
        fit.clamp(1, 64)
    }

    /// Legacy preamble and signal 20 µs, signal A 8, training 4 and 4 a stream (8 for the third),
    /// signal B 4.
    fn preamble(&self) -> Span {
        const LONG_TRAINING: [u64; 4] = [1, 2, 4, 4];
        Span::from_micros(36 + 4 * LONG_TRAINING[usize::from(self.streams) - 1])
    }

    /// 32 bytes at the fastest of 6, 12 and 24 Mbit/s that is not above the rate of the same
    /// modulation and code in OFDM.
    fn block_ack(&self) -> Span {
        let bits_per_symbol = match self.mcs {
            0 => 24,
            1 | 2 => 48,
            _ => 96,
        };
        let symbols = (16u64 + 8 * 32 + 6).div_ceil(bits_per_symbol);
        Span::from_micros(20 + 4 * symbols)
    }
}

/// l + l_oh: what an IP packet of this size takes of an A-MPDU. All but the last subframe are
/// filled up to whole words.
pub fn subframe(packet: Bytes) -> Bytes {
    const OVERHEAD: Bytes = Bytes::new(4 + 26 + 8 + 4);
    Bytes::new((packet + OVERHEAD).get().div_ceil(4).saturating_mul(4))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn vht(mcs: u8, streams: u8, width: Width, guard: Guard) -> Result<Vht, VhtError> {
        VhtParams { mcs, streams, width, guard }.build()
    }

    #[test]
    fn rates_are_those_of_the_standards_tables() {
        use Guard::{Long, Short};
        use Width::{Mhz20, Mhz40, Mhz80, Mhz160};
        for (mcs, streams, width, guard, bps) in [
            (0, 1, Mhz20, Long, 6_500_000),
            (8, 1, Mhz20, Long, 78_000_000),
            (9, 3, Mhz20, Short, 288_888_888),
            (9, 1, Mhz40, Short, 200_000_000),
            (2, 1, Mhz80, Long, 87_750_000),
            (4, 1, Mhz80, Long, 175_500_000),
            (9, 1, Mhz80, Long, 390_000_000),
            (9, 2, Mhz80, Short, 866_666_666),
            (0, 3, Mhz80, Long, 87_750_000),
            (9, 3, Mhz80, Long, 1_170_000_000),
            (9, 2, Mhz160, Short, 1_733_333_333),
            (8, 3, Mhz160, Long, 2_106_000_000),
        ] {
            let rate = vht(mcs, streams, width, guard).unwrap().rate();
            assert_eq!(rate.as_bps(), bps, "MCS {mcs}, {streams} streams, {width:?}, {guard:?}");
        }
    }

    #[test]
    fn the_combinations_that_the_standard_leaves_out_are_refused() {
        let mut left_out = alloc::vec::Vec::new();
        for width in [Width::Mhz20, Width::Mhz40, Width::Mhz80, Width::Mhz160] {
            for (mcs, streams) in (0..10).flat_map(|mcs| (1..4).map(move |nss| (mcs, nss))) {
                if vht(mcs, streams, width, Guard::Long).is_err() {
                    left_out.push((width, mcs, streams));
                }
            }
        }
        use Width::{Mhz20, Mhz80, Mhz160};
        assert_eq!(left_out, [(Mhz20, 9, 1), (Mhz20, 9, 2), (Mhz80, 6, 3), (Mhz160, 9, 3)]);
        assert_eq!(vht(10, 1, Mhz80, Guard::Long), Err(VhtError::Mcs(10)));
        assert_eq!(vht(0, 5, Mhz80, Guard::Long), Err(VhtError::Streams(5)));
    }

    #[test]
    fn a_frame_at_390_mbit_s_costs_200_us_beside_its_packets() {
        // 43 + 67.5 + 40 + 22 bits + 2 + 16 + 32 µs; the thesis starts with 200 µs (Figure 5.11).
        let one = vht(9, 1, Width::Mhz80, Guard::Long).unwrap();
        assert_eq!(one.overhead(Access::BEST_EFFORT).as_nanos(), 200_556);
        // The block acknowledgement comes at 6 Mbit/s: 68 µs.
        let slow = vht(0, 1, Width::Mhz80, Guard::Long).unwrap();
        assert_eq!(slow.overhead(Access::BEST_EFFORT).as_micros(), 237);
        // 16 slots: √(255/12) · 9 µs.
        assert_eq!(Access::BEST_EFFORT.backoff_deviation().as_nanos(), 41_488);
    }

    #[test]
    fn a_subframe_of_1500_bytes_has_1544() {
        assert_eq!(subframe(Bytes::new(1500)), Bytes::new(1544));
        assert_eq!(subframe(Bytes::MAX), Bytes::MAX);
    }

    #[test]
    fn slow_frames_carry_what_their_time_allows() {
        let most = |mcs, width| vht(mcs, 1, width, Guard::Long).unwrap();
        let packet = Bytes::new(1500);
        // 5.444 ms at 6.5 Mbit/s are 4423 bytes, at 87.75 Mbit/s 59 kB.
        assert_eq!(most(0, Width::Mhz20).most_packets(packet), 2);
        assert_eq!(most(2, Width::Mhz80).most_packets(packet), 38);
        assert_eq!(most(9, Width::Mhz80).most_packets(packet), 64);
    }

    proptest! {
        #[test]
        fn more_streams_and_shorter_pauses_are_faster(mcs in 0u8..10, streams in 1u8..4) {
            let rate = |streams, guard| vht(mcs, streams, Width::Mhz40, guard).unwrap().rate();
            prop_assert!(rate(streams + 1, Guard::Long) > rate(streams, Guard::Long));
            prop_assert!(rate(streams, Guard::Short) > rate(streams, Guard::Long));
        }
    }
}
