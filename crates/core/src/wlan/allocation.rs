//! The proportional-fair rates under bounds on delay and levels.
//!
//! ```text
//! max Σ log xᵢ   with  c/(1 − wᵀx) ≤ T̄,   1 ≤ c·xᵢ/(1 − wᵀx) ≤ N̄            (5.15 to 5.20)
//! ```
//!
//! Hassani, MSc thesis: Achieving Low Delay & High Rate in 802.11ac Edge Networks, section 5.3; c
//! and w as in the [model](super::Round).
//!
//! # One scalar
//!
//! Written as constraints on wᵀx and cxᵢ + N̄wᵀx, all are linear, so the KKT conditions determine
//! the optimum. With multipliers θ for T̄, λ for N̄ and κ for 1: 1/xᵢ = c·(λᵢ − κᵢ) + D·wᵢ, with
//! the same D for all stations (5.22). For a free station (λᵢ = κᵢ = 0), wᵢ·xᵢ = 1/D, so the
//! solution depends on one scalar, the airtime a (5.23, 5.24):
//!
//! ```text
//! Nᵢ = a/wᵢ, clamped to [1, N̄]        Ω(a) = c + Σ wᵢ·Nᵢ       xᵢ = Nᵢ/Ω        (5.25 to 5.27)
//! ```
//!
//! Along a, Σ log Nᵢ − n·log Ω has the slope m·(1/a − n/Ω), with m free stations: it rises as long
//! as n·a < Ω. All conditions are monotone, so the optimum is the smallest a at which one of them
//! binds:
//!
//! ```text
//! Delay   Ω(a) = T̄          Share   n·a = Ω(a)          Level   a = N̄·max w
//! ```
//!
//! The longest frame bounds a itself, and counts as Level.
//!
//! # Where the paper differs
//!
//! Lemma 1 of the thesis has Delay and Level only: a station below N̄ could send more as long as Ω
//! < T̄. But a longer round lowers the rates xⱼ = N̄/Ω of stations that are at N̄ already: once
//! packets to one station take an n-th of the round, a higher rate to it no longer raises Σ log x.
//! Example 2 (no bound on T̄) has levels in proportion to MCS rates, which contradicts the lemma as
//! well; the optimum is between both. At c = 400 µs, w = 100 and 1 µs, N̄ = 32 without T̄, the
//! lemma, the example and the optimum give levels (32, 32), (0.32, 32) and (4.32, 32), of which the
//! last has the largest Σ log x. Share never binds for stations with equal w.
//!
//! The bound Nᵢ ≥ 1 is the paper's footnote 5: without it, the model of rounds is invalid.

use alloc::vec::Vec;

use super::model::{Round, crossing};
use crate::unit::Span;

/// The limits for every station.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// T̄: the bound of the mean delay; [`Span::MAX`] for none.
    pub delay: Span,
    /// N̄: the highest level, at least 1 and below Nmax, the maximum number of packets per frame.
    pub level: f64,
    /// The maximum airtime of the packets of one frame: [`MAX_ON_AIR`](super::mac::MAX_ON_AIR) less
    /// a preamble, or [`Span::MAX`] for no bound.
    pub airtime: Span,
}

/// The constraint that limits the rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// T̄: a round takes the maximum time.
    Delay,
    /// N̄, or the longest frame, for every station.
    Level,
    /// Fairness: the fast stations are at N̄, and a higher rate to the slow ones would cost the
    /// fast ones as much as the slow ones gain.
    Share,
}

/// The proportional-fair optimum.
#[derive(Debug, Clone, PartialEq)]
pub struct Allocation {
    /// x* in packets/s, in the order of the stations.
    pub rates: Vec<f64>,
    /// The levels N at x*, in the order of the stations.
    pub levels: Vec<f64>,
    /// Ω: a round, the bound of the mean delay of all.
    pub round: Span,
    /// The binding constraint.
    pub binding: Binding,
}

/// Infeasible limits.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum AllocationError {
    /// Even with one packet per frame, a round takes longer.
    #[error("a round with one packet to each station takes {least}; give a delay above that")]
    DelayTooShort {
        /// The shortest round.
        least: Span,
    },
    /// Less than one packet per frame.
    #[error("the highest level is {0}; give 1 or more")]
    Level(f64),
}

impl Round {
    /// The rates with the largest Σ log x within `limits`.
    pub fn allocate(&self, limits: Limits) -> Result<Allocation, AllocationError> {
        if !(limits.level >= 1.0 && limits.level.is_finite()) {
            return Err(AllocationError::Level(limits.level));
        }
        let least = Span::from_secs_f64(self.overhead() + self.airtimes().iter().sum::<f64>());
        if least > limits.delay {
            return Err(AllocationError::DelayTooShort { least });
        }
        let (airtime, binding) = self.fair_airtime(limits);
        let levels: Vec<f64> = self.levels_of(airtime, limits.level).collect();
        let rates = self.rates(&levels);
        let round = Span::from_secs_f64(self.span(&levels));
        Ok(Allocation { rates, levels, round, binding })
    }

    /// The airtime a, and the constraint that binds there.
    fn fair_airtime(&self, limits: Limits) -> (f64, Binding) {
        let delay = limits.delay.as_secs_f64();
        let stations = self.airtimes().len() as f64;
        let round = |airtime: f64| {
            let levels = self.levels_of(airtime, limits.level);
            self.overhead() + self.airtimes().iter().zip(levels).map(|(w, n)| w * n).sum::<f64>()
        };
        let fold = |start: f64, pick: fn(f64, f64) -> f64| {
            self.airtimes().iter().copied().fold(start, pick)
        };
        let shortest = fold(f64::INFINITY, f64::min);
        let frame = limits.airtime.as_secs_f64().max(shortest);
        let longest = frame.min(limits.level * fold(0.0, f64::max));
        let exceeds_delay = |airtime| round(airtime) >= delay;
        let exceeds_share = |airtime| stations * airtime >= round(airtime);
        let bounds = (shortest, longest);
        let airtime = crossing(bounds, |airtime| exceeds_delay(airtime) || exceeds_share(airtime));
        let binding = match () {
            () if airtime >= longest => Binding::Level,
            () if exceeds_delay(airtime) => Binding::Delay,
            () => Binding::Share,
        };
        (airtime, binding)
    }

    /// Levels at which packets to each station take this airtime, within the bounds of levels.
    fn levels_of(&self, airtime: f64, most: f64) -> impl Iterator<Item = f64> {
        self.airtimes().iter().map(move |w| (airtime / w).clamp(1.0, most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wlan::link::Link;
    use alloc::vec;
    use proptest::prelude::*;

    fn round(overhead_us: u64, airtimes_us: &[f64]) -> Round {
        let share = Span::from_nanos(overhead_us * 1_000 / airtimes_us.len() as u64);
        let link = |us: &f64| Link { overhead: share, airtime: us * 1e-6 };
        Round::new(&airtimes_us.iter().map(link).collect::<Vec<_>>()).unwrap()
    }

    fn limits(delay: Span, level: f64) -> Limits {
        Limits { delay, level, airtime: Span::MAX }
    }

    /// The maximum of Σ yᵢ/xᵢ over the corners y of the feasible region. As Σ log x is concave and
    /// the limits are linear, x is the optimum if and only if this is at most n.
    fn steepest_corner(round: &Round, limits: Limits, rates: &[f64]) -> f64 {
        let stations = rates.len();
        let mut steepest = 0.0;
        let mut ascend = |levels: &[f64]| {
            if round.span(levels) <= limits.delay.as_secs_f64() * (1.0 + 1e-12) {
                let corner = round.rates(levels);
                let rise: f64 = corner.iter().zip(rates).map(|(y, x)| y / x).sum();
                steepest = f64::max(steepest, rise);
            }
        };
        for at_most in 0..1u32 << stations {
            let level = |i: usize| if at_most >> i & 1 == 1 { limits.level } else { 1.0 };
            let mut levels: Vec<f64> = (0..stations).map(level).collect();
            ascend(&levels);
            // One level is free where the delay binds.
            for i in 0..stations {
                let airtime = round.airtimes()[i];
                let bound = core::mem::replace(&mut levels[i], 0.0);
                let left = (limits.delay.as_secs_f64() - round.span(&levels)) / airtime;
                if (1.0..=limits.level).contains(&left) {
                    levels[i] = left;
                    ascend(&levels);
                }
                levels[i] = bound;
            }
        }
        steepest
    }

    #[test]
    fn equal_airtime_is_what_a_bound_on_the_delay_alone_gives() {
        // (5.28): N = (T − c)/(n·w).
        let optimum =
            round(390, &[100.0, 50.0, 10.0]).allocate(limits(Span::from_millis(5), 1e6)).unwrap();
        for (level, airtime) in optimum.levels.iter().zip([100.0, 50.0, 10.0]) {
            assert!((level - 4_610.0 / 3.0 / airtime).abs() < 1e-6, "{optimum:?}");
        }
        assert_eq!(optimum.binding, Binding::Delay);
        assert_eq!(optimum.round, Span::from_millis(5));
    }

    #[test]
    fn equal_stations_fill_their_frames_where_the_delay_allows() {
        let optimum = round(400, &[20.0; 2]).allocate(limits(Span::MAX, 32.0)).unwrap();
        assert_eq!((optimum.levels, optimum.binding), (vec![32.0; 2], Binding::Level));
    }

    #[test]
    fn a_slow_station_takes_no_more_than_its_share_of_the_round() {
        let round = round(400, &[100.0, 1.0]);
        let optimum = round.allocate(limits(Span::MAX, 32.0)).unwrap();
        assert_eq!(optimum.binding, Binding::Share);
        // 2·a = 400 + a + 32 µs.
        assert!((optimum.levels[0] - 4.32).abs() < 1e-9, "{optimum:?}");
        assert_eq!(optimum.levels[1], 32.0);
        // The utilities of the thesis's lemma and of its second example are lower.
        let utility =
            |levels: &[f64]| round.rates(levels).iter().map(|x| libm::log(*x)).sum::<f64>();
        let best = utility(&optimum.levels);
        assert!(best > utility(&[32.0, 32.0]) && best > utility(&[0.32, 32.0]));
    }

    #[test]
    fn no_frame_is_longer_than_it_may_be() {
        let airtime = Span::from_micros(5_440);
        let limits = Limits { airtime, ..limits(Span::MAX, 32.0) };
        let optimum = round(400, &[1_900.0, 1_900.0]).allocate(limits).unwrap();
        assert!((optimum.levels[0] - 5_440.0 / 1_900.0).abs() < 1e-9, "{optimum:?}");
        assert_eq!(optimum.binding, Binding::Level);
    }

    #[test]
    fn limits_below_one_packet_a_frame_are_refused() {
        let round = round(400, &[100.0, 50.0]);
        let error = round.allocate(limits(Span::from_micros(500), 32.0)).unwrap_err();
        assert_eq!(error, AllocationError::DelayTooShort { least: Span::from_micros(550) });
        let error = round.allocate(limits(Span::MAX, 0.9)).unwrap_err();
        assert_eq!(error, AllocationError::Level(0.9));
    }

    proptest! {
        #[test]
        fn no_corner_of_what_is_allowed_lies_uphill(
            overhead in 50u64..5_000,
            airtimes in prop::collection::vec(1.0..500.0f64, 1..6),
            delay_us in 200u64..50_000,
            level in 1.0..64.0f64,
        ) {
            let round = round(overhead, &airtimes);
            let limits = limits(Span::from_micros(delay_us), level);
            let Ok(optimum) = round.allocate(limits) else {
                return Ok(());
            };
            prop_assert!(optimum.round <= limits.delay + Span::from_nanos(1));
            prop_assert!(optimum.levels.iter().all(|n| (1.0..=level).contains(n)));
            let steepest = steepest_corner(&round, limits, &optimum.rates);
            prop_assert!(steepest <= airtimes.len() as f64 * (1.0 + 1e-9), "{steepest}");
        }
    }
}
