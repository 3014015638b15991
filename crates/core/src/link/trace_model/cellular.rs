//! The capacity of a cellular link: Poisson deliveries whose rate is a Brownian motion, with
//! outages.
//!
//! Source: Winstein, Sivaraman, Balakrishnan, "Stochastic Forecasts Achieve High Throughput and Low
//! Delay over Cellular Networks" (Sprout), NSDI 2013, section 3. There it is the model by which a
//! receiver infers the rate of its link; here it generates one.
//!
//! ```text
//!   each tick of τ s, with the rate λ in packets/s:
//!
//!   λ > 0   λ ← min(λ + N(0, σ²τ), λ_max), and 0 if that is not above 0: an outage begins
//!   λ = 0   with probability 1 − exp(−λ_z·τ) the outage ends: λ ← min(|N(0, σ²τ)|, λ_max)
//!
//!   within a tick   deliveries are a Poisson process of rate λ, each of an opportunity (1500 bytes)
//! ```
//!
//! An outage lasts τ/(1 − exp(−λ_z·τ)) in the mean, 1/λ_z for τ → 0.
//!
//! # Where the paper is silent
//!
//! - The paper spreads probabilities over 256 discrete rates; a generator draws one path, and its
//!   rate is continuous.
//! - A Brownian motion that leaves 0 returns at once. Here an outage ends with the absolute value
//!   of one step, so that λ_z alone decides how long outages last.
//! - The paper's receiver begins with all rates equally probable. Here the first rate has the
//!   distribution of the long run: an outage with its share of the time, or uniform up to λ_max.
//! - `mean_rate`: the paper has no mean. λ_max and σ are scaled by one factor, which scales all
//!   rates by it and leaves outages as they are; the mean for factor 1 is
//!   [`CellularModel::long_run`].

use rand::{Rng, RngExt};
use rand_distr::{Distribution, Exp1, StandardNormal};

use super::{Draft, TraceModelError, checked, checked_duration, generator, per_second};
use crate::link::Trace;
use crate::unit::{BitRate, Span, UpdateRate};

/// The model's parameters. Defaults are the paper's constants.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct CellularModel {
    /// The seed of all draws.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub seed: Option<u64>,
    /// Which of several independent traces of the seed, such as one per direction.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub stream: Option<u64>,
    /// The period after which the trace repeats: 1 ms to 24 h. Default: 300 s.
    pub duration: Span,
    /// The mean rate over a long time, above zero: `max_rate` and `noise` are scaled by the factor
    /// that it needs. Default: no scaling.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub mean_rate: Option<BitRate>,
    /// λ_max: the maximum rate, above zero. Default: 12 Mbit/s, the paper's 1000 packets/s of 1500
    /// bytes.
    pub max_rate: BitRate,
    /// σ, the noise power: the standard deviation of the change of the rate over 1 s, which grows
    /// with the square root of time; above zero, and σ·√τ at most λ_max/2. Default: 2.4 Mbit/s per
    /// √s, the paper's 200 packets/s per √s.
    pub noise: BitRate,
    /// λ_z, the rate at which an outage ends. Default: 1/s, the paper's.
    pub escape_rate: UpdateRate,
    /// τ: the interval between changes of the rate, at least 1 ms. Default: 20 ms, the paper's.
    pub tick: Span,
}

impl Default for CellularModel {
    fn default() -> Self {
        Self {
            seed: None,
            stream: None,
            duration: Span::from_secs(300),
            mean_rate: None,
            max_rate: BitRate::from_mbps(12),
            noise: BitRate::from_bps(2_400_000),
            escape_rate: UpdateRate::saturating(1.0),
            tick: Span::from_millis(20),
        }
    }
}

/// The long-run averages of a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LongRun {
    /// The fraction of time in outages.
    pub outage: f64,
    /// The mean rate, outages included, in bit/s.
    pub rate_bps: f64,
}

impl CellularModel {
    /// The trace.
    pub(super) fn generate(&self) -> Result<Trace, TraceModelError> {
        let walk = self.walk()?;
        let duration = checked_duration(self.duration, walk.max, 0.0)?;
        let mut rng = generator(self.seed.unwrap_or(0), self.stream.unwrap_or(0));
        let mut draft = Draft::new(duration);
        let mut rate = walk.first(&mut rng);
        // Deliveries that are due until the next one: exponential with mean 1.
        let mut due: f64 = Exp1.sample(&mut rng);
        let mut number = 0;
        while self.tick * number < duration {
            let start = (self.tick * number).as_secs_f64();
            let mut passed = 0.0;
            while due < rate * (walk.tick - passed) {
                passed += due / rate;
                draft.deliver(start + passed);
                due = Exp1.sample(&mut rng);
            }
            due -= rate * (walk.tick - passed);
            rate = walk.step(rate, &mut rng);
            number += 1;
        }
        Ok(draft.finish())
    }

    /// The long-run averages of the rate. An approximation in closed form: within 1 % of the exact
    /// Markov chain if σ·√τ is at most a tenth of λ_max, and within 4 % for larger steps.
    ///
    /// # Errors
    /// A parameter outside its range.
    pub fn long_run(&self) -> Result<LongRun, TraceModelError> {
        let walk = self.walk()?;
        let (outage, rate) = walk.long_run();
        Ok(LongRun { outage, rate_bps: rate * (8 * Trace::OPPORTUNITY.get()) as f64 })
    }

    /// The checked parameters, in packets and seconds.
    fn walk(&self) -> Result<Walk, TraceModelError> {
        let above_zero = |rate: &BitRate| rate.as_bps() > 0;
        let remedy = "give a rate above zero, such as `12mbit`";
        let max = per_second(checked("max_rate", self.max_rate, above_zero, remedy)?);
        let noise = per_second(checked("noise", self.noise, above_zero, remedy)?);
        if let Some(mean) = self.mean_rate {
            checked("mean_rate", mean, above_zero, remedy)?;
        }
        let remedy = "give at least 1ms, such as `20ms`";
        let tick = checked("tick", self.tick, |tick| *tick >= Span::from_millis(1), remedy)?;
        let tick = tick.as_secs_f64();
        let step = noise * libm::sqrt(tick);
        let remedy = "in one `tick` the rate would change by more than half of `max_rate`; lower \
                      `noise` or `tick`, or raise `max_rate`";
        checked("noise", self.noise, |_| step <= max / 2.0, remedy)?;
        let escape = -libm::expm1(-self.escape_rate.per_second() * tick);
        let walk = Walk { max, step, escape, tick };
        let factor = self.mean_rate.map_or(1.0, |mean| per_second(mean) / walk.long_run().1);
        Ok(Walk { max: max * factor, step: step * factor, ..walk })
    }
}

/// How the rate changes from tick to tick.
#[derive(Debug, Clone, Copy)]
struct Walk {
    /// λ_max, in packets/s.
    max: f64,
    /// σ·√τ, in packets/s.
    step: f64,
    /// The probability that an outage ends with a tick.
    escape: f64,
    /// τ, in s.
    tick: f64,
}

impl Walk {
    /// By how many standard deviations of a step a Gaussian random walk overshoots a distant
    /// barrier in the mean: −ζ(1/2)/√(2π) (Chernoff, "Sequential tests for the mean of a normal
    /// distribution IV", Annals of Mathematical Statistics 36, 1965).
    const OVERSHOOT: f64 = 0.5826;

    fn first(&self, rng: &mut impl Rng) -> f64 {
        match rng.random::<f64>() < self.long_run().0 {
            true => 0.0,
            false => self.max * (1.0 - rng.random::<f64>()),
        }
    }

    fn step(&self, rate: f64, rng: &mut impl Rng) -> f64 {
        if rate <= 0.0 && rng.random::<f64>() >= self.escape {
            return 0.0;
        }
        let normal: f64 = StandardNormal.sample(rng);
        let step = if rate <= 0.0 { libm::fabs(normal) } else { normal };
        (rate + self.step * step).clamp(0.0, self.max)
    }

    /// The fraction of time in outages, and the mean rate, in packets/s.
    ///
    /// From the end of an outage to the next one the rate is a Brownian motion that starts at u,
    /// ends at 0 and is reflected at L; both barriers are an overshoot outside of 0 and λ_max. It
    /// lasts (2·L·u − u²)/σ², of which 2·min(u, y)/σ² at each level y (Karlin, Taylor, "A Second
    /// Course in Stochastic Processes", 1981, section 15.3). The mean of u is that of |N(0, σ²τ)|
    /// and of the overshoot from there, near the barrier: √2·σ√τ, twice the mean of the first
    /// ladder height (Spitzer, "A Tauberian theorem and its probability interpretation",
    /// Transactions of the AMS 94, 1960).
    fn long_run(&self) -> (f64, f64) {
        let Self { max, step, escape, tick } = *self;
        let past = Self::OVERSHOOT * step;
        // Moments of |N(0, step²)|.
        let first = step * libm::sqrt(2.0 / core::f64::consts::PI);
        let (second, third) = (step * step, 2.0 * first * step * step);
        let start = core::f64::consts::SQRT_2 * step;
        let start_squared = second + 2.0 * first * past + past * past;
        let variance = step * step / tick;
        let up = (2.0 * (max + 2.0 * past) * start - start_squared) / variance;
        let carried = (start * max * (max + 2.0 * past) - third / 3.0) / variance;
        let down = tick / escape;
        (down / (up + down), carried / (up + down))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;
    use alloc::vec::Vec;

    /// The fraction of time in outages and the mean rate by another way: a Markov chain over 0 and
    /// the middles of equal parts of the range, iterated until nothing changes. Also the
    /// distribution over the parts.
    fn chain(walk: &Walk, parts: usize) -> (f64, f64, Vec<f64>) {
        let width = walk.max / parts as f64;
        let below = |x: f64| 0.5 * libm::erfc(-x / (walk.step * core::f64::consts::SQRT_2));
        let middle = |part: usize| (part as f64 + 0.5) * width;
        // The transition from a rate to a part; rates above the range belong to the last part.
        let into = |rate: f64, part: usize| {
            let above =
                if part + 1 == parts { 1.0 } else { below(middle(part) + width / 2.0 - rate) };
            above - below(middle(part) - width / 2.0 - rate)
        };
        let rows: Vec<Vec<f64>> = (0..parts)
            .map(|from| (0..parts).map(|part| into(middle(from), part)).collect())
            .collect();
        let fresh: Vec<f64> = (0..parts).map(|part| 2.0 * into(0.0, part)).collect();
        let (mut zero, mut all) = (0.0, vec![1.0 / parts as f64; parts]);
        for _ in 0..4_000 {
            let mut next = vec![0.0; parts];
            for (from, share) in all.iter().enumerate() {
                next.iter_mut().zip(&rows[from]).for_each(|(to, p)| *to += share * p);
            }
            next.iter_mut().zip(&fresh).for_each(|(to, p)| *to += zero * walk.escape * p);
            zero = 1.0 - next.iter().sum::<f64>();
            all = next;
        }
        let mean = all.iter().enumerate().map(|(part, share)| share * middle(part)).sum();
        (zero, mean, all)
    }

    fn model(change: impl FnOnce(&mut CellularModel)) -> CellularModel {
        let mut model = CellularModel::default();
        change(&mut model);
        model
    }

    #[test]
    fn the_long_run_agrees_with_a_chain_of_discrete_rates() {
        for (noise, escape, tick, tolerance) in [
            (2_400, 1.0, 20, 0.01),
            (2_400, 10.0, 20, 0.01),
            (2_000, 0.3, 40, 0.01),
            (2_400, 1.0, 6_250, 0.04),
        ] {
            let model = model(|model| {
                model.noise = BitRate::from_bps(noise * 1_000);
                model.escape_rate = UpdateRate::saturating(escape);
                model.tick = Span::from_millis(tick);
            });
            let walk = model.walk().unwrap();
            let (outage, mean, _) = chain(&walk, 192);
            let found = walk.long_run();
            let differ = f64::max((found.0 / outage - 1.0).abs(), (found.1 / mean - 1.0).abs());
            assert!(differ < tolerance, "{found:?}, chain {outage} {mean}");
        }
    }

    #[test]
    fn rates_have_the_distribution_of_the_chain() {
        let walk = CellularModel::default().walk().unwrap();
        let (outage, mean, parts) = chain(&walk, 128);
        let (mut rng, mut rate) = (generator(1, 0), 500.0);
        let ticks = 2_000_000;
        let (mut zeros, mut sum, mut eighths) = (0.0, 0.0, [0.0; 8]);
        for _ in 0..ticks {
            rate = walk.step(rate, &mut rng);
            sum += rate;
            match rate > 0.0 {
                true => eighths[((rate * 8.0 / walk.max) as usize).min(7)] += 1.0,
                false => zeros += 1.0,
            }
        }
        // 40,000 s with correlations of some seconds: a standard error of about 1 %.
        let close = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.06;
        assert!(
            close(zeros / f64::from(ticks), outage),
            "{} for {outage}",
            zeros / f64::from(ticks)
        );
        assert!(close(sum / f64::from(ticks), mean), "{} for {mean}", sum / f64::from(ticks));
        for (eighth, expected) in eighths.iter().zip(parts.chunks(16)) {
            let (found, expected) = (eighth / f64::from(ticks), expected.iter().sum::<f64>());
            assert!(close(found, expected), "{found} for {expected}");
        }
    }

    #[test]
    fn outages_last_as_long_as_the_escape_rate_says() {
        let walk = CellularModel::default().walk().unwrap();
        let (mut rng, mut rate) = (generator(2, 0), 0.0);
        let (mut ticks, mut outages) = (0.0, 0.0);
        for _ in 0..2_000_000 {
            let next = walk.step(rate, &mut rng);
            ticks += f64::from(u8::from(rate == 0.0));
            outages += f64::from(u8::from(rate == 0.0 && next > 0.0));
            rate = next;
        }
        let mean = ticks * walk.tick / outages;
        // Geometric: 0.02/(1 − exp(−0.02)) = 1.01 s, with some 13,000 outages.
        assert!((mean / 1.01 - 1.0).abs() < 0.03, "{mean} s over {outages} outages");
    }

    #[test]
    fn the_variance_of_a_change_grows_with_the_noise_squared_and_time() {
        let walk = CellularModel::default().walk().unwrap();
        let mut rng = generator(3, 0);
        // From 500/s, 0 and 1000/s are 5.6 standard deviations of 0.2 s away.
        for ticks in [1, 10] {
            let changes: Vec<f64> = (0..20_000)
                .map(|_| (0..ticks).fold(500.0, |rate, _| walk.step(rate, &mut rng)) - 500.0)
                .collect();
            let variance = changes.iter().map(|it| it * it).sum::<f64>() / changes.len() as f64;
            let expected = 200.0 * 200.0 * 0.02 * f64::from(ticks);
            assert!((variance / expected - 1.0).abs() < 0.05, "{variance} for {expected}");
            let mean = changes.iter().sum::<f64>() / changes.len() as f64;
            assert!(mean.abs() < 4.0 * libm::sqrt(expected / 20_000.0), "a drift of {mean}");
        }
    }

    /// Numbers of deliveries in windows of 100 ms of a trace whose rate hardly changes.
    #[test]
    fn deliveries_at_a_constant_rate_are_poisson() {
        let trace = model(|model| {
            model.duration = Span::from_secs(400);
            model.noise = BitRate::from_bps(1_200);
            model.seed = Some(4);
        })
        .generate()
        .unwrap();
        let mut windows = vec![0.0; 4_000];
        for line in trace.to_string().lines() {
            let millis: usize = line.parse().unwrap();
            // Times are rounded up.
            windows[millis.saturating_sub(1) / 100] += 1.0;
        }
        let count = windows.len() as f64;
        let mean = windows.iter().sum::<f64>() / count;
        let variance = windows.iter().map(|it| (it - mean) * (it - mean)).sum::<f64>() / count;
        // The index of dispersion of a Poisson process is 1; its standard error here 0.022.
        assert!((variance / mean - 1.0).abs() < 0.1, "variance {variance}, mean {mean}");
        let product = |pair: &[f64]| (pair[0] - mean) * (pair[1] - mean);
        let covariance = windows.windows(2).map(product).sum::<f64>() / count;
        assert!((covariance / variance).abs() < 0.08, "neighbours: {covariance} of {variance}");
    }

    #[test]
    fn a_trace_has_the_mean_rate_that_was_asked_for() {
        for (mean, seed) in [(500_000, 5), (2_000_000, 6)] {
            let model = model(|model| {
                model.duration = Span::from_secs(4_000);
                model.mean_rate = Some(BitRate::from_bps(mean));
                model.seed = Some(seed);
            });
            let trace = model.generate().unwrap();
            let found = trace.opportunities() as f64 * 12_000.0 / 4_000.0;
            // Some 1,300 cycles of outage and delivery: a standard error of about 4 %.
            assert!((found / mean as f64 - 1.0).abs() < 0.12, "{found} bit/s for {mean}");
            assert!((model.long_run().unwrap().rate_bps / mean as f64 - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn a_parameter_outside_its_range_is_refused_with_the_remedy() {
        let zero = BitRate::from_bps(0);
        for (model, message) in [
            (model(|it| it.max_rate = zero), "`max_rate` is 0bit; give a rate above zero"),
            (model(|it| it.noise = zero), "`noise` is 0bit; give a rate above zero"),
            (model(|it| it.mean_rate = Some(zero)), "`mean_rate` is 0bit; give"),
            (model(|it| it.tick = Span::ZERO), "`tick` is 0ns; give at least 1ms"),
            (
                model(|it| it.tick = Span::from_secs(9)),
                "`noise` is 2.4mbit; in one `tick` the rate",
            ),
            (model(|it| it.duration = Span::ZERO), "`duration` is 0ns; give from 1ms"),
        ] {
            let error = model.generate().unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
