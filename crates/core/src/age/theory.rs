//! The mean age that theory predicts: closed forms for simple queues and a bound for real paths.
//!
//! They are oracles for tests and baselines for reports. Notation: λ → `rate` of the source, μ →
//! service rate of a queue, ρ = λ/μ → load. All queues serve first come, first served, hold any
//! number of updates, and drop none.
//!
//! All closed forms follow from one equation (Kaul, Yates, Gruteser, "Real-time status: How often
//! should one update?", INFOCOM 2012): with X the time between the generation of an update and
//! that of the one before, and T the time the update spends in the system,
//!
//! ```text
//! mean age = λ · (E[X·T] + E[X²]/2)
//! ```

use crate::unit::{Span, UpdateRate};

/// A system of queues between a source and its monitor, in its steady state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Queues {
    /// M/M/1: updates generated at random moments (Poisson), exponential service times.
    ///
    /// mean age = 1/μ · (1 + 1/ρ + ρ²/(1−ρ)); Kaul, Yates, Gruteser, 2012.
    Mm1 {
        /// Service rate μ.
        service: UpdateRate,
    },
    /// M/D/1: updates generated at random moments (Poisson), constant service time.
    ///
    /// mean age = 1/μ · (1/2 + 1/(2(1−ρ)) + (1−ρ)·exp(ρ)/ρ); Kaul, Yates, Gruteser, 2012.
    Md1 {
        /// Service rate μ.
        service: UpdateRate,
    },
    /// D/M/1: periodic updates, exponential service times.
    ///
    /// mean age = 1/μ · (1/(2ρ) + 1/(1−β)), β the root below 1 of β = exp(−(1−β)/ρ); Kaul, Yates,
    /// Gruteser, 2012.
    Dm1 {
        /// Service rate μ.
        service: UpdateRate,
    },
    /// Two M/M/1 queues one behind the other, with service times independent of each other
    /// (Shreedhar, PhD thesis, IIIT-Delhi, section 3.6.1, which gives no formula).
    ///
    /// mean age = 1/λ + 1/μ₁ + 1/μ₂
    ///   + λ²·(1/(μ₁²(μ₁−λ)) + 1/(μ₂²(μ₂−λ)) + 1/(μ₁μ₂(μ₁+μ₂−λ)))
    ///
    /// Derivation: let U and V be the times that the previous update spent in the two queues. In
    /// the steady state they are exponential with rates μ₁−λ and μ₂−λ, independent of each other
    /// (Reich, 1963) and of X, S₁, S₂. This update then takes T₁ = (U−X)⁺ + S₁ in the first queue,
    /// leaves it Y = S₁ + (X−U)⁺ after the previous one, and takes T₂ = (V−Y)⁺ + S₂ in the second.
    /// So E\[X(U−X)⁺\] = λ/(μ₁²(μ₁−λ)) and E\[X(V−Y)⁺\] = E\[X·exp(−(μ₂−λ)Y)\]/(μ₂−λ), whose
    /// integrals over X, U and S₁ are elementary; their sum is the symmetric form above.
    TandemMm1 {
        /// Service rate μ₁ of the queue next to the source.
        first: UpdateRate,
        /// Service rate μ₂ of the queue next to the monitor.
        second: UpdateRate,
    },
}

impl Queues {
    /// The mean age at the monitor if updates are generated at `rate`; `None` at or above
    /// [`Queues::capacity`], where the age grows without bound.
    pub fn mean_age(self, rate: UpdateRate) -> Option<Span> {
        (rate < self.capacity()).then(|| Span::from_secs_f64(self.mean_age_secs(rate.per_second())))
    }

    /// The rate up to which the queues stay finite: that of the slowest.
    pub fn capacity(self) -> UpdateRate {
        match self {
            Self::Mm1 { service } | Self::Md1 { service } | Self::Dm1 { service } => service,
            Self::TandemMm1 { first, second } if first < second => first,
            Self::TandemMm1 { second, .. } => second,
        }
    }

    /// The rate with the minimum mean age, within 1e-6 of [`Queues::capacity`], by golden-section
    /// search: the age has a single minimum over the rate.
    pub fn optimal_rate(self) -> UpdateRate {
        const GOLDEN: f64 = 0.618_033_988_749_894_8;
        let age = |rate: f64| self.mean_age_secs(rate);
        let (mut low, mut high) = (0.0, self.capacity().per_second());
        // Each step keeps 0.618 of the interval: 40 steps leave 4e-9 of it.
        for _ in 0..40 {
            let (left, right) = (high - GOLDEN * (high - low), low + GOLDEN * (high - low));
            if age(left) < age(right) {
                high = right;
            } else {
                low = left;
            }
        }
        UpdateRate::saturating(low + (high - low) / 2.0)
    }

    /// The mean number of queued updates (Little's law: rate × time in queue), without the one in
    /// service; `None` at or above [`Queues::capacity`].
    pub fn mean_waiting(self, rate: UpdateRate) -> Option<f64> {
        let stable = rate < self.capacity();
        let load = |service: UpdateRate| rate.per_second() / service.per_second();
        let mm1 = |service| load(service) * load(service) / (1.0 - load(service));
        stable.then(|| match self {
            Self::Mm1 { service } => mm1(service),
            Self::Md1 { service } => mm1(service) / 2.0,
            Self::Dm1 { service } => {
                // An arriving update is queued for 1/μ · β/(1−β).
                let idle = dm1_idle_probability(load(service));
                load(service) * (1.0 - idle) / idle
            }
            Self::TandemMm1 { first, second } => mm1(first) + mm1(second),
        })
    }

    /// The rate at which `waiting` updates are queued on average, within 1e-9 of the capacity.
    pub fn rate_with_waiting(self, waiting: f64) -> UpdateRate {
        let (mut low, mut high) = (0.0, self.capacity().per_second());
        // One bit per step.
        for _ in 0..30 {
            let middle = low + (high - low) / 2.0;
            match self.mean_waiting(UpdateRate::saturating(middle)) {
                Some(found) if found < waiting => low = middle,
                _ => high = middle,
            }
        }
        UpdateRate::saturating(low + (high - low) / 2.0)
    }

    /// Mean age in s at `rate` updates/s, which lies between zero and the capacity.
    fn mean_age_secs(self, rate: f64) -> f64 {
        match self {
            Self::Mm1 { service } => {
                let service = service.per_second();
                let load = rate / service;
                (1.0 + 1.0 / load + load * load / (1.0 - load)) / service
            }
            Self::Md1 { service } => {
                let service = service.per_second();
                let (load, spare) = (rate / service, 1.0 - rate / service);
                (0.5 + 0.5 / spare + spare * libm::exp(load) / load) / service
            }
            Self::Dm1 { service } => {
                let service = service.per_second();
                let load = rate / service;
                (0.5 / load + 1.0 / dm1_idle_probability(load)) / service
            }
            Self::TandemMm1 { first, second } => {
                let (first, second) = (first.per_second(), second.per_second());
                let queueing = 1.0 / (first * first * (first - rate))
                    + 1.0 / (second * second * (second - rate))
                    + 1.0 / (first * second * (first + second - rate));
                1.0 / rate + 1.0 / first + 1.0 / second + rate * rate * queueing
            }
        }
    }
}

/// 1−β of the D/M/1 queue, the probability that an arriving update finds it empty: the positive
/// root y of y = 1 − exp(−y/ρ).
fn dm1_idle_probability(load: f64) -> f64 {
    // y − (1 − exp(−y/ρ)) falls until y = −ρ·ln ρ and then rises through its root, at most 1.
    let excess = |y: f64| y + libm::expm1(-y / load);
    let (mut low, mut high) = (-load * libm::log(load), 1.0);
    // One bit per step, for the 52 bits of an f64 and the small roots near load 1.
    for _ in 0..80 {
        let middle = low + (high - low) / 2.0;
        if excess(middle) < 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// One hop of a path for updates of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// The time to put the update on the link: size / rate.
    pub serialisation: Span,
    /// The propagation delay.
    pub propagation: Span,
}

/// The minimum mean age that any source can reach over a path of store-and-forward hops with
/// constant delays: Σ(sᵢ + dᵢ) + max(sᵢ)/2, with s serialisation and d propagation.
///
/// No update arrives younger than Σ(sᵢ + dᵢ), and two arrivals are at least max(sᵢ) apart, during
/// which the age grows by as much; between resets to A that are Z apart the mean age is A +
/// E\[Z²\]/(2·E\[Z\]) ≥ A + min(Z)/2. A periodic source with the period max(sᵢ) reaches the bound,
/// since its updates never queue (Shreedhar, PhD thesis, IIIT-Delhi, section 3.6, has this argument
/// for equal hops). It holds for means over whole teeth of the sawtooth. No hops give zero.
pub fn path_lower_bound(hops: impl IntoIterator<Item = Hop>) -> Span {
    let (mut in_flight, mut slowest) = (Span::ZERO, Span::ZERO);
    for hop in hops {
        in_flight += hop.serialisation + hop.propagation;
        slowest = slowest.max(hop.serialisation);
    }
    in_flight + slowest / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::age::AgeProcess;
    use crate::unit::Time;
    use rand_distr::{Distribution, Exp};
    use rand_pcg::Pcg64;
    use rand_pcg::rand_core::SeedableRng;

    const SERVICE: f64 = 1000.0;

    fn per_second(rate: f64) -> UpdateRate {
        UpdateRate::new(rate).unwrap()
    }

    fn single_queues() -> [Queues; 3] {
        let service = per_second(SERVICE);
        [Queues::Mm1 { service }, Queues::Md1 { service }, Queues::Dm1 { service }]
    }

    fn tandem(first: f64, second: f64) -> Queues {
        Queues::TandemMm1 { first: per_second(first), second: per_second(second) }
    }

    /// Lindley's recursion: an update leaves a queue one service time after both its arrival and
    /// the departure of the one before. Returns the measured mean age, and the mean number of
    /// queued updates.
    fn simulated(queues: Queues, rate: f64) -> (f64, f64) {
        enum Law {
            Constant(f64),
            Exponential(Exp<f64>),
        }
        let constant = |rate: f64| Law::Constant(1.0 / rate);
        let exponential = |rate: f64| Law::Exponential(Exp::new(rate).unwrap());
        let (gap, services) = match queues {
            Queues::Mm1 { service } => {
                (exponential(rate), alloc::vec![exponential(service.per_second())])
            }
            Queues::Md1 { service } => {
                (exponential(rate), alloc::vec![constant(service.per_second())])
            }
            Queues::Dm1 { service } => {
                (constant(rate), alloc::vec![exponential(service.per_second())])
            }
            Queues::TandemMm1 { first, second } => (
                exponential(rate),
                alloc::vec![exponential(first.per_second()), exponential(second.per_second())],
            ),
        };

        let mut rng = Pcg64::seed_from_u64(2012);
        let mut draw = |law: &Law| match law {
            Law::Constant(value) => *value,
            Law::Exponential(law) => law.sample(&mut rng),
        };
        let time = |secs: f64| Time::ZERO + Span::from_secs_f64(secs);
        let mut age = AgeProcess::new();
        let mut left = alloc::vec![0.0; services.len()];
        let (mut generated_at, mut waited) = (0.0, 0.0);
        for _ in 0..400_000 {
            generated_at += draw(&gap);
            let mut came = generated_at;
            for (left, service) in left.iter_mut().zip(&services) {
                waited += f64::max(*left - came, 0.0);
                *left = f64::max(*left, came) + draw(service);
                came = *left;
            }
            age.on_update(time(came), time(generated_at));
        }
        let end = left[left.len() - 1];
        (age.mean(time(end)).unwrap().as_secs_f64(), waited / end)
    }

    #[test]
    fn every_closed_form_agrees_with_a_simulation() {
        let tandems = [tandem(SERVICE, SERVICE), tandem(SERVICE, 2000.0), tandem(3000.0, SERVICE)];
        for queues in single_queues().into_iter().chain(tandems) {
            for load in [0.2, 0.5, 0.75] {
                let rate = load * SERVICE;
                let theory = queues.mean_age(per_second(rate)).unwrap().as_secs_f64();
                let (simulated, waited) = simulated(queues, rate);
                let error = simulated / theory - 1.0;
                assert!(error.abs() < 0.015, "{queues:?} at {load}: off by {:.2} %", error * 100.0);
                let waiting = queues.mean_waiting(per_second(rate)).unwrap();
                let off = (waited - waiting).abs();
                assert!(
                    off < 0.04 * waiting + 0.002,
                    "{queues:?} at {load}: {waited}, not {waiting}"
                );
                let back = queues.rate_with_waiting(waiting).per_second();
                assert!((back / rate - 1.0).abs() < 1e-6, "{back}, not {rate}");
            }
        }
    }

    #[test]
    fn the_best_loads_are_those_of_the_literature() {
        for (queues, load) in single_queues().into_iter().zip([0.53, 0.625, 0.515]) {
            let found = queues.optimal_rate().per_second() / SERVICE;
            assert!((found - load).abs() < 0.005, "{queues:?}: {found}");
        }
    }

    /// Mean number of updates in an M/M/1 queue.
    fn in_queue(rate: f64, service: f64) -> f64 {
        rate / (service - rate)
    }

    #[test]
    fn at_the_best_rate_a_little_more_than_one_update_waits_in_a_queue() {
        let [mm1, ..] = single_queues();
        let waiting = in_queue(mm1.optimal_rate().per_second(), SERVICE);
        assert!((waiting - 1.13).abs() < 0.01, "{waiting}");
    }

    #[test]
    fn in_a_tandem_the_best_rate_puts_1_6_updates_under_way() {
        let rate = tandem(SERVICE, SERVICE).optimal_rate().per_second();
        let waiting = 2.0 * in_queue(rate, SERVICE);
        assert!((waiting - 1.6).abs() < 0.03, "{waiting}");
    }

    #[test]
    fn a_tandem_may_be_turned_round_and_loses_a_queue_that_is_infinitely_fast() {
        let rate = per_second(600.0);
        let (one, other) = (tandem(SERVICE, 2500.0), tandem(2500.0, SERVICE));
        assert_eq!(one.mean_age(rate), other.mean_age(rate));
        let [mm1, ..] = single_queues();
        let fast = tandem(SERVICE, 1e9).mean_age(rate).unwrap().as_secs_f64();
        let single = mm1.mean_age(rate).unwrap().as_secs_f64();
        assert!((fast / single - 1.0).abs() < 1e-5);
    }

    #[test]
    fn no_queue_has_a_mean_age_at_or_above_its_capacity() {
        for queues in single_queues().into_iter().chain([tandem(SERVICE, 2000.0)]) {
            assert_eq!(queues.mean_age(per_second(SERVICE)), None);
            assert_eq!(queues.mean_age(UpdateRate::MAX), None);
            let nearly = queues.mean_age(per_second(SERVICE * 0.999_999)).unwrap();
            assert!(nearly > Span::from_secs(100), "{queues:?}: {nearly}");
            assert!(queues.mean_age(UpdateRate::MIN).is_some());
        }
    }

    #[test]
    fn only_the_period_of_the_slowest_hop_reaches_the_lower_bound_of_a_path() {
        let ms = Span::from_millis;
        let hops = [(2, 5), (10, 7), (4, 3)]
            .map(|(s, d)| Hop { serialisation: ms(s), propagation: ms(d) });
        let bound = path_lower_bound(hops);
        assert_eq!(bound, ms(31 + 5));
        let mean_age = |period: Span| {
            let mut age = AgeProcess::new();
            let mut free_at = [Time::ZERO; 3];
            let mut came = Time::ZERO;
            for number in 0..1000 {
                let generated_at = Time::ZERO + period * number;
                came = generated_at;
                for (hop, free_at) in hops.iter().zip(&mut free_at) {
                    *free_at = came.max(*free_at) + hop.serialisation;
                    came = *free_at + hop.propagation;
                }
                age.on_update(came, generated_at);
            }
            age.mean(came).unwrap()
        };
        assert_eq!(mean_age(ms(10)), bound);
        for period in [5, 9, 11, 20] {
            assert!(mean_age(ms(period)) > bound, "period {period} ms");
        }
        assert_eq!(path_lower_bound([]), Span::ZERO);
    }
}
