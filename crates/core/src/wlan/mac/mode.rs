//! How bits become symbols: modulation, code, width and streams, and how long a frame takes.
//!
//! ```text
//! duration = preamble + ⌈(16 + 8 · bytes + 6 · encoders) / data bits per symbol⌉ · symbol
//! ```
//!
//! with 16 bits of service field and 6 tail bits per encoder. IEEE 802.11-2016: 17.4.3 (OFDM,
//! TXTIME), 18.5.3 (ERP), 19.4.3 (HT) and 21.4.3 (VHT).

use core::fmt;

use super::standard::Standard;
use crate::unit::{BitRate, Bytes, Span};

/// The modulation of one subcarrier: how many bits one symbol carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Modulation {
    /// One bit.
    Bpsk,
    /// Two bits.
    Qpsk,
    /// Four bits.
    Qam16,
    /// Six bits.
    Qam64,
    /// Eight bits.
    Qam256,
}

impl Modulation {
    /// Coded bits per subcarrier and symbol.
    pub const fn bits(self) -> u32 {
        match self {
            Self::Bpsk => 1,
            Self::Qpsk => 2,
            Self::Qam16 => 4,
            Self::Qam64 => 6,
            Self::Qam256 => 8,
        }
    }
}

/// The rate of the convolutional code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CodeRate {
    /// 1/2.
    Half,
    /// 2/3.
    TwoThirds,
    /// 3/4.
    ThreeQuarters,
    /// 5/6.
    FiveSixths,
}

impl CodeRate {
    /// Data bits and coded bits: the numerator and the denominator of the rate.
    pub const fn ratio(self) -> (u32, u32) {
        match self {
            Self::Half => (1, 2),
            Self::TwoThirds => (2, 3),
            Self::ThreeQuarters => (3, 4),
            Self::FiveSixths => (5, 6),
        }
    }
}

/// The width of the channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Width {
    /// 20 MHz.
    #[default]
    #[cfg_attr(feature = "serde", serde(rename = "20MHz"))]
    Mhz20,
    /// 40 MHz.
    #[cfg_attr(feature = "serde", serde(rename = "40MHz"))]
    Mhz40,
    /// 80 MHz.
    #[cfg_attr(feature = "serde", serde(rename = "80MHz"))]
    Mhz80,
}

impl Width {
    /// In Hz.
    pub const fn hertz(self) -> f64 {
        match self {
            Self::Mhz20 => 20e6,
            Self::Mhz40 => 40e6,
            Self::Mhz80 => 80e6,
        }
    }

    /// Data subcarriers of HT and VHT.
    const fn subcarriers(self) -> u32 {
        match self {
            Self::Mhz20 => 52,
            Self::Mhz40 => 108,
            Self::Mhz80 => 234,
        }
    }
}

/// As in a file: `20MHz`.
impl fmt::Display for Width {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Mhz20 => "20MHz",
            Self::Mhz40 => "40MHz",
            Self::Mhz80 => "80MHz",
        })
    }
}

/// The pause between symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Guard {
    /// 800 ns, in symbols of 4 µs.
    #[default]
    Long,
    /// 400 ns, in symbols of 3.6 µs.
    Short,
}

/// A transmission mode: modulation, code rate, width and spatial streams.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mode {
    /// The modulation of each subcarrier.
    pub modulation: Modulation,
    /// The code rate.
    pub code: CodeRate,
    /// The width of the channel.
    pub width: Width,
    /// The number of spatial streams.
    pub streams: u32,
    bits_per_symbol: u32,
    encoders: u32,
    /// The duration of the preamble and of all headers of the PHY before the data.
    preamble: Span,
    symbol: Span,
    /// The signal extension: silence after a frame that gives 2.4 GHz receivers time to finish.
    extension: Span,
}

/// Modulation and code of the OFDM rates, from 6 to 54 Mbit/s (Table 17-4).
const LEGACY: [(u64, Modulation, CodeRate); 8] = [
    (6, Modulation::Bpsk, CodeRate::Half),
    (9, Modulation::Bpsk, CodeRate::ThreeQuarters),
    (12, Modulation::Qpsk, CodeRate::Half),
    (18, Modulation::Qpsk, CodeRate::ThreeQuarters),
    (24, Modulation::Qam16, CodeRate::Half),
    (36, Modulation::Qam16, CodeRate::ThreeQuarters),
    (48, Modulation::Qam64, CodeRate::TwoThirds),
    (54, Modulation::Qam64, CodeRate::ThreeQuarters),
];

/// Modulation and code of the MCS 0 to 9 (sections 19.5 and 21.5; HT ends at 7).
const MCS: [(Modulation, CodeRate); 10] = [
    (Modulation::Bpsk, CodeRate::Half),
    (Modulation::Qpsk, CodeRate::Half),
    (Modulation::Qpsk, CodeRate::ThreeQuarters),
    (Modulation::Qam16, CodeRate::Half),
    (Modulation::Qam16, CodeRate::ThreeQuarters),
    (Modulation::Qam64, CodeRate::TwoThirds),
    (Modulation::Qam64, CodeRate::ThreeQuarters),
    (Modulation::Qam64, CodeRate::FiveSixths),
    (Modulation::Qam256, CodeRate::ThreeQuarters),
    (Modulation::Qam256, CodeRate::FiveSixths),
];

impl Mode {
    /// The OFDM mode of 802.11a or 802.11g at 6, 9, 12, 18, 24, 36, 48 or 54 Mbit/s; `None` at
    /// other rates.
    pub fn legacy(standard: Standard, rate: BitRate) -> Option<Self> {
        let (_, modulation, code) =
            LEGACY.into_iter().find(|(mbit, ..)| BitRate::from_mbps(*mbit) == rate)?;
        let (data, coded) = code.ratio();
        Some(Self {
            modulation,
            code,
            width: Width::Mhz20,
            streams: 1,
            bits_per_symbol: 48 * modulation.bits() * data / coded,
            encoders: 1,
            preamble: Span::from_micros(20),
            symbol: Span::from_micros(4),
            extension: Span::from_micros(if standard == Standard::G { 6 } else { 0 }),
        })
    }

    /// The mode for control frames, which every station must be able to read: the fastest OFDM rate
    /// not above `rate`, at least 6 Mbit/s.
    pub fn control(standard: Standard, rate: BitRate) -> Self {
        let rates = LEGACY.into_iter().rev().map(|(mbit, ..)| BitRate::from_mbps(mbit));
        let fitting = rates.filter(|legacy| *legacy <= rate);
        fitting
            .chain([BitRate::from_mbps(6)])
            .find_map(|legacy| Self::legacy(standard, legacy))
            .expect("6 Mbit/s is a rate of OFDM")
    }

    /// The HT mode of 802.11n with an MCS from 0 to 31 (one more stream per eight), over 20 or 40
    /// MHz; `None` for others.
    pub fn ht(mcs: u8, width: Width, guard: Guard) -> Option<Self> {
        if mcs > 31 || width == Width::Mhz80 {
            return None;
        }
        let streams = u32::from(mcs / 8) + 1;
        // Legacy preamble and signal 20 µs, HT signal 8 µs, short and long training.
        let preamble = 32 + 4 * [1, 2, 4, 4][streams as usize - 1];
        // One encoder is enough for 300 Mbit/s.
        Self::wide(MCS[usize::from(mcs % 8)], streams, width, guard, preamble, 1200)
    }

    /// The VHT mode of 802.11ac with an MCS from 0 to 9 and 1 to 4 streams; `None` for others,
    /// and for the combinations that the standard leaves out (such as MCS 9 over 20 MHz).
    pub fn vht(mcs: u8, streams: u8, width: Width, guard: Guard) -> Option<Self> {
        if !(1..=4).contains(&streams) {
            return None;
        }
        let scheme = *MCS.get(usize::from(mcs))?;
        // As HT, with signal A of 8 µs and signal B of 4 µs.
        let preamble = 36 + 4 * [1, 2, 4, 4][usize::from(streams) - 1];
        let mode = Self::wide(scheme, u32::from(streams), width, guard, preamble, 2160)?;
        // The coded bits must divide among the encoders in whole puncturing blocks (21.5).
        let (data, coded) = mode.code.ratio();
        let coded_bits = mode.bits_per_symbol / data * coded;
        let shared = coded_bits.is_multiple_of(mode.encoders);
        (shared && (coded_bits / mode.encoders).is_multiple_of(coded)).then_some(mode)
    }

    fn wide(
        (modulation, code): (Modulation, CodeRate),
        streams: u32,
        width: Width,
        guard: Guard,
        preamble_us: u64,
        bits_per_encoder: u32,
    ) -> Option<Self> {
        let (data, coded) = code.ratio();
        let coded_bits = width.subcarriers() * modulation.bits() * streams;
        if !(coded_bits * data).is_multiple_of(coded) {
            return None;
        }
        let bits_per_symbol = coded_bits * data / coded;
        Some(Self {
            modulation,
            code,
            width,
            streams,
            bits_per_symbol,
            encoders: bits_per_symbol.div_ceil(bits_per_encoder),
            preamble: Span::from_micros(preamble_us),
            symbol: Span::from_nanos(if guard == Guard::Short { 3_600 } else { 4_000 }),
            extension: Span::ZERO,
        })
    }

    /// The rate during the data symbols.
    pub fn rate(&self) -> BitRate {
        BitRate::from_bps(u64::from(self.bits_per_symbol) * 1_000_000_000 / self.symbol.as_nanos())
    }

    /// The OFDM rate that determines the rate of responses to this mode: the one with the same
    /// modulation and code, or the next lower one (Table 10-9, non-HT reference rate).
    pub fn reference_rate(&self) -> BitRate {
        let scheme = (self.modulation, self.code);
        let fitting = LEGACY.into_iter().rev().find(|(_, m, c)| (*m, *c) <= scheme);
        BitRate::from_mbps(fitting.map_or(6, |(mbit, ..)| mbit))
    }

    /// The mean airtime of a frame in addition to the bits of its PSDU: preamble, service and tail
    /// bits, and half a symbol of padding.
    pub fn overhead(&self) -> Span {
        let bits = 16 + 6 * u64::from(self.encoders);
        let around = self.symbol * bits / u64::from(self.bits_per_symbol);
        self.preamble + around + self.symbol / 2 + self.extension
    }

    /// The airtime of a frame whose PSDU (everything after the preamble) has this size.
    pub fn duration(&self, psdu: Bytes) -> Span {
        let bits = 16 + 8 * psdu.get() + 6 * u64::from(self.encoders);
        let symbols = bits.div_ceil(u64::from(self.bits_per_symbol));
        // Frames with the short guard interval end on a whole long symbol.
        let data = (symbols * self.symbol.as_nanos()).div_ceil(4_000) * 4_000;
        self.preamble + Span::from_nanos(data) + self.extension
    }

    /// The largest PSDU whose airtime is at most `span`.
    pub fn capacity(&self, span: Span) -> Bytes {
        let data = (span - self.preamble - self.extension).as_nanos() / 4_000 * 4_000;
        let bits = data / self.symbol.as_nanos() * u64::from(self.bits_per_symbol);
        Bytes::new(bits.saturating_sub(16 + 6 * u64::from(self.encoders)) / 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn micros(mode: Mode, psdu: u64) -> u64 {
        mode.duration(Bytes::new(psdu)).as_micros()
    }

    #[test]
    fn ofdm_frames_take_as_long_as_calculated_by_hand() {
        let a = |mbit| Mode::legacy(Standard::A, BitRate::from_mbps(mbit)).unwrap();
        // 16 + 8704 + 6 bits in 182 symbols of 48 bits.
        assert_eq!(micros(a(12), 1088), 20 + 182 * 4);
        // 134 bits in 6, 3 and 2 symbols.
        assert_eq!([6, 12, 24].map(|mbit| micros(a(mbit), 14)), [44, 32, 28]);
        // 12310 bits in 57 symbols of 216 bits.
        assert_eq!(micros(a(54), 1536), 20 + 57 * 4);
        let g = Mode::legacy(Standard::G, BitRate::from_mbps(54)).unwrap();
        assert_eq!(micros(g, 1536), 20 + 57 * 4 + 6);
    }

    #[test]
    fn ht_frames_take_as_long_as_calculated_by_hand() {
        // 12022 bits in 47 symbols of 260 bits behind 36 µs.
        assert_eq!(micros(Mode::ht(7, Width::Mhz20, Guard::Long).unwrap(), 1500), 36 + 47 * 4);
        // The same 47 symbols of 3.6 µs are 169.2 µs, which end on the next whole 4 µs.
        assert_eq!(micros(Mode::ht(7, Width::Mhz20, Guard::Short).unwrap(), 1500), 36 + 172);
        // 12022 bits in 12 symbols of 1080 bits behind 40 µs (two streams, 40 MHz).
        assert_eq!(micros(Mode::ht(15, Width::Mhz40, Guard::Long).unwrap(), 1500), 40 + 12 * 4);
        // Two encoders above 300 Mbit/s: 12028 bits in 8 symbols of 1620 bits behind 48 µs.
        assert_eq!(micros(Mode::ht(23, Width::Mhz40, Guard::Long).unwrap(), 1500), 48 + 8 * 4);
    }

    #[test]
    fn vht_frames_take_as_long_as_calculated_by_hand() {
        // 12022 bits in 8 symbols of 1560 bits behind 40 µs.
        assert_eq!(micros(Mode::vht(9, 1, Width::Mhz80, Guard::Long).unwrap(), 1500), 40 + 8 * 4);
        // Two encoders: 12028 bits in 4 symbols of 3120 bits behind 44 µs.
        assert_eq!(micros(Mode::vht(9, 2, Width::Mhz80, Guard::Long).unwrap(), 1500), 44 + 4 * 4);
    }

    #[test]
    fn rates_are_those_of_the_tables() {
        let ht = |mcs, width, guard| Mode::ht(mcs, width, guard).unwrap().rate().as_bps();
        assert_eq!(ht(0, Width::Mhz20, Guard::Long), 6_500_000);
        assert_eq!(ht(15, Width::Mhz40, Guard::Short), 300_000_000);
        use Guard::{Long, Short};
        use Width::{Mhz20, Mhz40, Mhz80};
        for (mcs, streams, width, guard, bps) in [
            (0, 1, Mhz20, Long, 6_500_000),
            (8, 1, Mhz20, Long, 78_000_000),
            (9, 3, Mhz20, Short, 288_888_888),
            (9, 1, Mhz40, Short, 200_000_000),
            (2, 1, Mhz80, Long, 87_750_000),
            (4, 1, Mhz80, Long, 175_500_000),
            (9, 1, Mhz80, Long, 390_000_000),
            (9, 1, Mhz80, Short, 433_333_333),
            (9, 2, Mhz80, Short, 866_666_666),
            (0, 3, Mhz80, Long, 87_750_000),
            (9, 3, Mhz80, Long, 1_170_000_000),
        ] {
            let rate = Mode::vht(mcs, streams, width, guard).unwrap().rate();
            assert_eq!(rate.as_bps(), bps, "MCS {mcs}, {streams} streams, {width:?}, {guard:?}");
        }
    }

    #[test]
    fn combinations_that_the_standard_leaves_out_do_not_exist() {
        let vht = |mcs, streams, width| Mode::vht(mcs, streams, width, Guard::Long);
        assert_eq!(vht(9, 1, Width::Mhz20), None);
        assert!(vht(9, 3, Width::Mhz20).is_some());
        assert_eq!(vht(6, 3, Width::Mhz80), None);
        assert_eq!(vht(10, 1, Width::Mhz80), None);
        assert_eq!(vht(0, 5, Width::Mhz80), None);
        assert_eq!(Mode::ht(32, Width::Mhz20, Guard::Long), None);
        assert_eq!(Mode::ht(0, Width::Mhz80, Guard::Long), None);
        assert_eq!(Mode::legacy(Standard::A, BitRate::from_mbps(11)), None);
    }

    #[test]
    fn responses_go_by_the_rate_of_the_same_modulation_and_code() {
        let reference = |mcs| {
            let mode = Mode::vht(mcs, 2, Width::Mhz80, Guard::Long).unwrap();
            mode.reference_rate().as_bps() / 1_000_000
        };
        assert_eq!([0, 1, 4, 7, 8].map(reference), [6, 12, 36, 54, 54]);
    }

    proptest! {
        #[test]
        fn capacity_is_the_largest_psdu_that_fits(
            mcs in 0u8..10, streams in 1u8..=4, micros in 60u64..5_484,
        ) {
            for guard in [Guard::Long, Guard::Short] {
                let Some(mode) = Mode::vht(mcs, streams, Width::Mhz80, guard) else { continue };
                let span = Span::from_micros(micros);
                let most = mode.capacity(span);
                if most > Bytes::ZERO {
                    prop_assert!(mode.duration(most) <= span);
                    prop_assert!(mode.duration(most + Bytes::new(1)) > span);
                }
            }
        }
    }
}
