//! The model: the duration and the packets of a round, in which the access point sends one frame to
//! each station.
//!
//! ```text
//! Ω   = c + wᵀN                        the duration of a round                (5.4)
//! N   = x·Ω                            the arrivals of a round fill the frames (5.7)
//! F   : N = c·x/(1 − wᵀx)              so that Ω = c/(1 − wᵀx)                (5.7, 5.12)
//! F⁻¹ : x = N/(c + wᵀN)                                                       (5.11)
//! μN  = Π∘F(x),  Π onto [1, Nmax]      the mean level                         (5.8)
//! μT  = μN/x                           bounds the mean delay                  (5.9, 5.10)
//! ```
//!
//! c, the sum of the overheads of the stations' frames, and w, the airtime of one packet, are in
//! seconds; levels N are in packets per frame, rates x in packets/s, both in the order of the
//! stations. Hassani, MSc thesis: Achieving Low Delay & High Rate in 802.11ac Edge Networks,
//! section 5.2. The model assumes that packets are paced, that frames carry all queued packets, and
//! that each round has one frame to every station.
//!
//! # Fluctuations
//!
//! Let ξ be the deviation of the backoffs from their mean. A round deviates by u ← ρ·u + ξ, ρ =
//! wᵀx, and levels by x·u (5.13, 5.14). This is an AR(1) process, so
//!
//! ```text
//! sd(N) = x·sd(ξ)/√(1 − ρ²)            sd(ξ)² = n·slot²·(CW² − 1)/12
//! τ     = −Ω/ln ρ                      time constant                          (5.2.7.2)
//! ```
//!
//! # Where the paper is silent
//!
//! - **Some stations full, others not.** (5.8) projects after F, whose round is unbounded, and F is
//!   undefined for wᵀx ≥ 1. Here the projection is inside the fixed point: N = Π(x·Ω), with Ω = c +
//!   wᵀN. Its solution always exists and is unique, as (c + wᵀΠ(x·Ω))/Ω falls with Ω. If no level
//!   reaches a bound, it equals F.
//! - **The delay of a station with full frames** is unbounded: its queue grows until it overflows.
//!   (5.10) gives Nmax/x in this case.

use alloc::vec::Vec;

use super::link::Link;
use crate::unit::{BitRate, Bytes, Span};

/// Why there is no round.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// No stations.
    #[error("a round needs a station; give at least one")]
    NoStation,
    /// A frame without overhead.
    #[error("frames to station {0} (from 0) have no overhead; give an overhead above 0")]
    NoOverhead(usize),
    /// An invalid airtime.
    #[error("a packet to station {station} (from 0) takes {airtime} s; give a number above 0")]
    Airtime {
        /// The station.
        station: usize,
        /// The airtime given, in s.
        airtime: f64,
    },
}

/// A round of frames, one to each station.
#[derive(Debug, Clone, PartialEq)]
pub struct Round {
    /// c in seconds.
    overhead: f64,
    /// w in seconds.
    airtimes: Vec<f64>,
}

/// How levels fluctuate around their means.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fluctuation {
    /// The standard deviation of a round, in seconds: times xᵢ, that of station i's level.
    pub round: f64,
    /// How long deviations last; zero if no rate is above zero.
    pub time_constant: Span,
}

impl Round {
    /// Frames to these stations.
    pub fn new(links: &[Link]) -> Result<Self, ModelError> {
        if links.is_empty() {
            return Err(ModelError::NoStation);
        }
        for (station, link) in links.iter().enumerate() {
            if link.overhead.is_zero() {
                return Err(ModelError::NoOverhead(station));
            }
            if !(link.airtime.is_finite() && link.airtime > 0.0) {
                return Err(ModelError::Airtime { station, airtime: link.airtime });
            }
        }
        Ok(Self {
            overhead: links.iter().map(|link| link.overhead.as_secs_f64()).sum(),
            airtimes: links.iter().map(|link| link.airtime).collect(),
        })
    }

    /// c in seconds.
    pub fn overhead(&self) -> f64 {
        self.overhead
    }

    /// w in seconds.
    pub fn airtimes(&self) -> &[f64] {
        &self.airtimes
    }

    /// Whether packets at these rates x leave time for overheads: x ≥ 0 and wᵀx < 1.
    pub fn is_feasible(&self, rates: &[f64]) -> bool {
        rates.iter().all(|rate| *rate >= 0.0) && self.utilisation(rates) < 1.0
    }

    /// ρ = wᵀx: the share of the time that packets take.
    pub fn utilisation(&self, rates: &[f64]) -> f64 {
        dot(&self.airtimes, rates)
    }

    /// Ω = c + wᵀN in seconds.
    pub fn span(&self, levels: &[f64]) -> f64 {
        self.overhead + dot(&self.airtimes, levels)
    }

    /// F⁻¹: the rates x at which levels are N.
    pub fn rates(&self, levels: &[f64]) -> Vec<f64> {
        let span = self.span(levels);
        levels.iter().map(|level| level / span).collect()
    }

    /// F: the levels N at rates x; `None` if the rates are not feasible.
    pub fn free_levels(&self, rates: &[f64]) -> Option<Vec<f64>> {
        let span = self.overhead / (1.0 - self.utilisation(rates));
        self.is_feasible(rates).then(|| rates.iter().map(|rate| rate * span).collect())
    }

    /// The largest K0 at which [`Linear`](super::Linear) with equal airtime is stable at these
    /// levels, in bits per second and packet: 2·n·c/Ω². All rates change in proportion, and the
    /// fastest station's level by dN/dx = Ω²/c.
    pub fn gain_limit(&self, levels: &[f64], packet: Bytes) -> BitRate {
        let (span, stations) = (self.span(levels), self.airtimes.len() as f64);
        let limit = 2.0 * stations * self.overhead / (span * span);
        // `as` saturates, and turns NaN into zero.
        BitRate::from_bps((limit * 8.0 * packet.get() as f64) as u64)
    }

    /// μN: the mean levels at rates x ≥ 0, of at least one packet and at most `most`.
    pub fn levels(&self, rates: &[f64], most: f64) -> Vec<f64> {
        let span = self.bounded_span(rates, most);
        rates.iter().map(|rate| (rate * span).clamp(1.0, most)).collect()
    }

    /// μT: the upper bound of the mean delay of packets to station `station` (from 0) at rates x ≥
    /// 0; `None` if its queue grows without bound.
    pub fn delay_bound(&self, rates: &[f64], most: f64, station: usize) -> Option<Span> {
        let rate = *rates.get(station)?;
        let span = self.bounded_span(rates, most);
        // A single packet in a frame has waited no longer than the gap to the next packet.
        let bound = f64::max(span, 1.0 / rate);
        (rate * span <= most).then(|| Span::from_secs_f64(bound))
    }

    /// Fluctuations at feasible rates x, where each frame's backoff has the standard deviation
    /// `backoff`
    /// ([`CategoryParams::backoff_deviation`](super::mac::CategoryParams::backoff_deviation));
    /// `None` if the rates are not feasible.
    pub fn fluctuation(&self, rates: &[f64], backoff: Span) -> Option<Fluctuation> {
        if !self.is_feasible(rates) {
            return None;
        }
        let utilisation = self.utilisation(rates);
        let frames = self.airtimes.len() as f64;
        let drawn = backoff.as_secs_f64() * libm::sqrt(frames);
        let span = self.overhead / (1.0 - utilisation);
        Some(Fluctuation {
            round: drawn / libm::sqrt(1.0 - utilisation * utilisation),
            time_constant: Span::from_secs_f64(-span / libm::log(utilisation)),
        })
    }

    /// Ω with levels within [1, `most`], in seconds.
    fn bounded_span(&self, rates: &[f64], most: f64) -> f64 {
        let carried = |span: f64| {
            let levels = rates.iter().map(|rate| (rate * span).clamp(1.0, most));
            self.overhead + self.airtimes.iter().zip(levels).map(|(w, n)| w * n).sum::<f64>()
        };
        let packets: f64 = self.airtimes.iter().sum();
        let bounds = (self.overhead + packets, self.overhead + packets * most);
        crossing(bounds, |span| carried(span) <= span)
    }
}

/// The smallest number within `bounds` from which on `holds` is true, to the last bit; the upper
/// bound if it holds nowhere below.
pub(super) fn crossing(bounds: (f64, f64), holds: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = bounds;
    if holds(low) {
        return low;
    }
    loop {
        let middle = low + (high - low) / 2.0;
        // There is no number between neighbours; this also ends on NaN.
        if !(low < middle && middle < high) {
            return high;
        }
        if holds(middle) { high = middle } else { low = middle }
    }
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(l, r)| l * r).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wlan::link::tests::{backoff_deviation, link};
    use alloc::vec;
    use proptest::prelude::*;

    fn round(links: &[Link]) -> Round {
        Round::new(links).unwrap()
    }

    /// Mbit/s of 1500-byte packets that a round of these levels carries.
    fn goodput(round: &Round, levels: &[f64]) -> f64 {
        round.rates(levels).iter().sum::<f64>() * 12_000.0 / 1e6
    }

    #[test]
    fn the_theses_goodputs_follow_from_the_settings() {
        // 12000 · 32/(200.6 + 32 · 31.67) µs. UDP payload is 1472 of 1500 bytes: 310.3, of which
        // beacons and reports of eight stations take a per cent; section 4.3.4.2 has 307.
        let one_stream = goodput(&round(&[link(9, 1)]), &[32.0]);
        assert!((one_stream - 316.3).abs() < 0.1, "{one_stream}");
        // Figure 4.10: about 515 of 530 at level 32, 615 of 619 at 64, with two streams.
        let ten = round(&[link(9, 2); 10]);
        let two_streams = [32.0, 64.0].map(|level| goodput(&ten, &[level; 10]) * 1472.0 / 1500.0);
        assert!((two_streams[0] - 530.0).abs() < 1.0, "{two_streams:?}");
        assert!((two_streams[1] - 618.8).abs() < 1.0, "{two_streams:?}");
    }

    #[test]
    fn each_station_more_adds_half_its_frame_to_the_mean_delay() {
        // Figure 4.8: 350 µs a station, with two streams at level 32. Packets come evenly over the
        // round: the mean is half of the bound.
        let span = |stations| round(&vec![link(9, 2); stations]).span(&vec![32.0; stations]);
        let added = (span(20) - span(10)) / 10.0 / 2.0 * 1e6;
        assert!((added - 355.7).abs() < 0.1, "{added}");
    }

    #[test]
    fn levels_at_a_delay_of_2_5_ms_are_those_of_figure_5_9_but_one() {
        let level = |mcs| {
            let link = link(mcs, 1);
            (2.5e-3 - link.overhead.as_secs_f64()) / link.airtime
        };
        // The thesis: 16, 23 and beyond 48. Its own check gives 2.3 ms · 175.5 Mbit/s / 12384 bit
        // = 32.6 for MCS 4, and 1.6 ms for 23.
        assert!((level(2) - 16.2).abs() < 0.1 && (level(4) - 32.7).abs() < 0.1, "{}", level(4));
        assert!(level(9) > 48.0);
    }

    #[test]
    fn fluctuations_are_those_of_the_recursion() {
        let round = round(&[link(9, 1)]);
        let rates = round.rates(&[32.0]);
        let backoff = backoff_deviation();
        let fluctuation = round.fluctuation(&rates, backoff).unwrap();
        // ρ = 1013.6/1214.2 = 0.835; 41.49/√(1 − ρ²) = 75.4 µs; 2 packets; −1.214 ms/ln ρ.
        assert!((fluctuation.round * 1e6 - 75.4).abs() < 0.1, "{fluctuation:?}");
        assert!((fluctuation.round * rates[0] - 1.99).abs() < 0.01, "{fluctuation:?}");
        assert!((fluctuation.time_constant.as_millis_f64() - 6.72).abs() < 0.01, "{fluctuation:?}");
        assert_eq!(round.fluctuation(&[0.0], backoff).unwrap().time_constant, Span::ZERO);
        assert_eq!(round.fluctuation(&[1e9], backoff), None);
    }

    #[test]
    fn over_all_settings_time_constants_are_at_most_about_120_ms() {
        // Figure 5.4 (b), "never more than about 0.12 s": level 64, or a delay of 5 ms, whichever
        // is less; at least one packet.
        let mut largest = Span::ZERO;
        for (stations, streams) in (1..=20).flat_map(|n| (1..=3).map(move |nss| (n, nss))) {
            for mcs in (0..10).filter(|mcs| (*mcs, streams) != (6, 3)) {
                let link = link(mcs, streams);
                let share = 5e-3 / stations as f64 - link.overhead.as_secs_f64();
                let level = (share / link.airtime).clamp(1.0, 64.0);
                let round = round(&vec![link; stations]);
                let rates = round.rates(&vec![level; stations]);
                let constant = round.fluctuation(&rates, Span::ZERO).unwrap().time_constant;
                largest = largest.max(constant);
            }
        }
        assert_eq!(largest.as_micros(), 122_054);
    }

    #[test]
    fn a_full_station_does_not_fill_the_others() {
        let round = round(&[link(9, 1); 2]);
        let levels = round.levels(&[1e6, 5_000.0], 64.0);
        // Ω = c + w·(64 + N), N = 5000·Ω.
        let span =
            (round.overhead() + round.airtimes()[0] * 64.0) / (1.0 - 5_000.0 * round.airtimes()[0]);
        assert_eq!(levels[0], 64.0);
        assert!((levels[1] - 5_000.0 * span).abs() < 1e-9, "{levels:?}");
        assert_eq!(round.delay_bound(&[1e6, 5_000.0], 64.0, 0), None);
        let bound = round.delay_bound(&[1e6, 5_000.0], 64.0, 1).unwrap();
        assert!((bound.as_secs_f64() - span).abs() < 1e-9, "{bound}");
    }

    #[test]
    fn what_makes_no_round_is_refused() {
        let fine = link(0, 1);
        assert_eq!(Round::new(&[]), Err(ModelError::NoStation));
        let free = Link { overhead: Span::ZERO, ..fine };
        assert_eq!(Round::new(&[fine, free]), Err(ModelError::NoOverhead(1)));
        for airtime in [0.0, -1.0, f64::INFINITY] {
            let error = Round::new(&[Link { airtime, ..fine }]).unwrap_err();
            assert_eq!(error, ModelError::Airtime { station: 0, airtime });
        }
    }

    fn rounds() -> impl Strategy<Value = Round> {
        let link = (20u64..5_000, 1e-6..3e-3f64)
            .prop_map(|(us, airtime)| Link { overhead: Span::from_micros(us), airtime });
        prop::collection::vec(link, 1..20).prop_map(|links| round(&links))
    }

    fn rounds_with_levels() -> impl Strategy<Value = (Round, Vec<f64>)> {
        rounds().prop_flat_map(|round| {
            let stations = round.airtimes().len();
            (Just(round), prop::collection::vec(1.0..64.0f64, stations))
        })
    }

    proptest! {
        #[test]
        fn rates_and_levels_are_each_others_inverse((round, levels) in rounds_with_levels()) {
            let rates = round.rates(&levels);
            prop_assert!(round.is_feasible(&rates));
            let free = round.free_levels(&rates).unwrap();
            let bounded = round.levels(&rates, 64.0);
            for (level, back) in levels.iter().zip(free).chain(levels.iter().zip(bounded)) {
                prop_assert!((level - back).abs() <= 1e-6 * level, "{level} {back}");
            }
        }

        #[test]
        fn levels_rise_with_every_rate_and_the_delay_with_them(
            (round, levels) in rounds_with_levels(), station in 0usize..20, factor in 1.0..100.0f64,
        ) {
            let station = station % levels.len();
            let before = round.rates(&levels);
            let mut after = before.clone();
            after[station] *= factor;
            let (less, more) = (round.levels(&before, 64.0), round.levels(&after, 64.0));
            for (less, more) in less.iter().zip(&more) {
                prop_assert!((1.0..=64.0).contains(more) && *more >= less - 1e-6, "{less} {more}");
            }
            let span = |rates: &[f64]| round.span(&round.levels(rates, 64.0));
            prop_assert!(span(&after) >= span(&before) * (1.0 - 1e-9));
        }

        #[test]
        fn any_rates_have_a_round(round in rounds(), rate in prop::num::f64::ANY) {
            let rates = vec![rate.abs(); round.airtimes().len()];
            let _ = round.delay_bound(&rates, 64.0, 0);
            let _ = round.fluctuation(&rates, Span::from_micros(41));
            if !rate.is_nan() {
                let levels = round.levels(&rates, 64.0);
                prop_assert!(levels.iter().all(|level| (1.0..=64.0).contains(level)));
            }
        }
    }
}
