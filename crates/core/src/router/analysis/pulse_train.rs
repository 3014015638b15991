//! The age of one flow of periodic updates that has a server alone.
//!
//! ```text
//! updates are generated at n·T; services start at least P apart; one that starts at s delivers
//! the newest update, of the age φ = s mod T, at s + d + p
//!
//! P ≤ T   every update is served when it comes            mean age = p + d + T/2
//! P > T   IFIL serves every P, and φ steps through
//!         the multiples of g = gcd(P, T)                  mean age = p + d + P/2 + (T − g)/2
//!         any policy                                      mean age ≥ p + d + P/2
//! ```
//!
//! T is the paper's T_i, P its T_o, d its d_t, and p its d_p. "In-Network Freshness Control",
//! section V.

use crate::unit::Span;

/// A flow of periodic updates that has a server alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PulseTrain {
    /// T: from one update to the next, above zero.
    pub update_period: Span,
    /// P: the minimum time from the start of one service to the start of the next. At least
    /// `transmission`, which is used if this is shorter, since nothing interrupts a transmission.
    pub output_period: Span,
    /// d: the transmission time of an update.
    pub transmission: Span,
    /// p: the propagation delay.
    pub propagation: Span,
}

/// The cycle of services with the minimum mean age.
struct Cycle {
    /// T, ns.
    period: f64,
    /// a: the minimum number of updates that arrive in P, less one that arrives at its end.
    missed: f64,
    /// ε = P − aT, ns.
    slip: f64,
    /// r.
    runs: f64,
}

/// The order of an arrival and a departure at the same time.
///
/// It matters only if P/T is a ratio of small whole numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tie {
    /// The update is in time, as in the paper.
    ArrivalFirst,
    /// The update is too late, as in [`crate::link`].
    DepartureFirst,
}

impl PulseTrain {
    /// The mean age under IFIL, which never idles with an update queued; from the start, with an
    /// update at an idle server. Exact, and rounded down to a ns.
    pub fn ifil_age(self, tie: Tie) -> Span {
        let (period, output) = (self.update_period, self.spacing());
        if output <= period {
            return self.min_age_at_delivery() + period / 2;
        }
        let step = greatest_common_divisor(output, period);
        let twice_wait = match tie {
            Tie::ArrivalFirst => period - step,
            Tie::DepartureFirst => period + step,
        };
        self.min_age_at_delivery() + (output + twice_wait) / 2
    }

    /// The mean age under IFIL if P and T have no common measure, from any start: the queueing time
    /// of an update is uniform between 0 and T. This is the limit of [`PulseTrain::ifil_age`] as
    /// the step g gets small, and the result of any jitter.
    pub fn generic_ifil_age(self) -> Span {
        let (period, output) = (self.update_period, self.spacing());
        let cycle = if output <= period { period } else { output + period };
        self.min_age_at_delivery() + cycle / 2
    }

    /// The minimum mean age of any policy that knows the future and may leave the server idle, but
    /// does not interrupt a transmission; to a ns or 1 in 10¹⁵.
    ///
    /// The policy serves `r` times back to back and then waits for the next update (the paper's
    /// waiting policy has `r` = 0), with the best `r`.
    pub fn optimal_age(self) -> Span {
        let Cycle { period, missed, slip, runs } = self.best_cycle();
        let updates = missed + 1.0 + runs * missed;
        let twice_delays = missed
            * (period * (missed + 1.0)
                + slip * runs * (runs + 1.0)
                + runs * period * (missed - 1.0));
        let wait = twice_delays / (2.0 * updates);
        self.min_age_at_delivery() + Span::from_nanos(libm::round(period / 2.0 + wait) as u64)
    }

    /// The `r` of [`PulseTrain::optimal_age`]: how many services follow one another without a pause
    /// before one waits for the next update. `None` if each update is served on arrival.
    pub fn services_before_a_wait(self) -> Option<u64> {
        let Cycle { missed, runs, .. } = self.best_cycle();
        (missed > 0.0).then_some(runs as u64)
    }

    fn best_cycle(self) -> Cycle {
        let (period, output) = (self.update_period.as_nanos(), self.spacing().as_nanos());
        let missed = output.saturating_sub(1).checked_div(period).unwrap_or(0);
        let slip = (output - missed * period) as f64;
        let (period, missed) = (period as f64, missed as f64);
        // Another service without a wait lowers the age as long as r·(a·(r+1) + 2)·ε < (a+1)·T.
        let runs = if missed > 0.0 {
            let linear = missed + 2.0;
            let constant = (missed + 1.0) * period / slip;
            let root = libm::sqrt(linear * linear + 4.0 * missed * constant) - linear;
            (libm::ceil(root / (2.0 * missed)) - 1.0).max(0.0)
        } else {
            0.0
        };
        Cycle { period, missed, slip, runs }
    }

    /// The minimum time from the start of one service to the start of the next.
    fn spacing(self) -> Span {
        self.output_period.max(self.transmission)
    }

    /// The age at its delivery of an update without queueing.
    fn min_age_at_delivery(self) -> Span {
        self.transmission + self.propagation
    }
}

fn greatest_common_divisor(one: Span, other: Span) -> Span {
    let (mut one, mut other) = (one.as_nanos(), other.as_nanos());
    while other > 0 {
        (one, other) = (other, one % other);
    }
    Span::from_nanos(one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::age::AgeProcess;
    use crate::unit::Time;
    use proptest::prelude::*;

    /// The train of a server that sends an update in `transmission`, in ns.
    fn alone(update_period: u64, transmission: u64) -> PulseTrain {
        PulseTrain {
            update_period: Span::from_nanos(update_period),
            output_period: Span::ZERO,
            transmission: Span::from_nanos(transmission),
            propagation: Span::ZERO,
        }
    }

    /// The mean age over whole cycles of a server that takes the newest update whenever it can.
    fn simulated_age(train: PulseTrain, tie: Tie) -> Span {
        let period = train.update_period.as_nanos();
        let output = train.spacing().max(train.update_period).as_nanos();
        let mut age = AgeProcess::new();
        let (mut start, mut mark) = (0, None);
        let deliver = |age: &mut AgeProcess, start: u64, newest: u64| {
            let delivered = Time::from_nanos(start) + train.transmission + train.propagation;
            age.on_update(delivered, Time::from_nanos(newest * period));
            delivered
        };
        for round in 0..=2 * period {
            let late = tie == Tie::DepartureFirst && output > period && start > 0;
            let newest = (start - u64::from(late)) / period;
            let delivered = deliver(&mut age, start, newest);
            if round == period {
                mark = Some(age.mark(delivered));
            }
            start += output;
        }
        age.mean_since(
            mark.unwrap(),
            Time::from_nanos(start - output) + train.min_age_at_delivery(),
        )
        .unwrap()
    }

    /// The minimum ratio of Σ waits to updates over all cycles of services, by brute force: the
    /// phases are nodes, services edges, and Bellman-Ford looks for a cycle below `per_update`.
    fn some_policy_beats(train: PulseTrain, twice_wait_per_update: f64) -> bool {
        let (period, output) = (train.update_period.as_nanos(), train.spacing().as_nanos());
        let most = output / period + 2;
        let nodes = period as usize;
        let mut cost = alloc::vec![0.0; nodes];
        for _ in 0..=nodes {
            let mut changed = false;
            for from in 0..period {
                for updates in 1..=most {
                    for to in 0..period {
                        if updates * period + to < output + from {
                            continue;
                        }
                        let twice_delays = 2 * updates * to + period * updates * (updates - 1);
                        let reduced = twice_delays as f64 - twice_wait_per_update * updates as f64;
                        let candidate = cost[from as usize] + reduced;
                        if candidate < cost[to as usize] - 1e-9 {
                            cost[to as usize] = candidate;
                            changed = true;
                        }
                    }
                }
            }
            if !changed {
                return false;
            }
        }
        true
    }

    #[test]
    fn in_the_papers_example_waiting_gives_2_9_and_ifil_3_3() {
        let train = alone(1_000, 1_900);
        assert_eq!(train.optimal_age(), Span::from_nanos(2_900));
        assert_eq!(train.ifil_age(Tie::ArrivalFirst), Span::from_nanos(3_300));
        assert_eq!(train.generic_ifil_age(), Span::from_nanos(3_350));
        assert_eq!(train.ifil_age(Tie::DepartureFirst), Span::from_nanos(3_400));
    }

    #[test]
    fn a_little_slower_than_the_updates_and_the_age_jumps_by_half_a_period() {
        let ages = [999_999, 1_000_000, 1_000_001]
            .map(|nanos| alone(1_000_000, nanos).ifil_age(Tie::ArrivalFirst));
        assert_eq!(ages, [1_499_999, 1_500_000, 2_000_001].map(Span::from_nanos));
    }

    #[test]
    fn where_a_service_barely_misses_an_update_it_pays_to_wait_now_and_then_only() {
        // Every second time: 1.4 and 1.6 ms apart, the waits 0.4, 1 and 0 ms for three updates.
        assert_eq!(alone(1_000, 1_400).optimal_age(), Span::from_nanos(1_400 + 500 + 467));
        assert!(alone(1_000, 1_400).optimal_age() < Span::from_nanos(1_400 + 1_000));
    }

    #[test]
    fn extremes_neither_panic_nor_leave_the_range() {
        for period in [0, 1, u64::MAX] {
            for transmission in [0, 1, u64::MAX] {
                let train = alone(period, transmission);
                let _ = train.ifil_age(Tie::ArrivalFirst).max(train.ifil_age(Tie::DepartureFirst));
                let _ = train.generic_ifil_age().max(train.optimal_age());
            }
        }
    }

    proptest! {
        #[test]
        fn ifil_is_at_most_half_a_period_above_the_optimum(
            update_period in 1u64..1_000_000_000,
            output in 0u64..5_000_000_000,
            transmission in 0u64..5_000_000_000,
        ) {
            let train = PulseTrain {
                update_period: Span::from_nanos(update_period),
                output_period: Span::from_nanos(output),
                transmission: Span::from_nanos(transmission),
                propagation: Span::from_millis(10),
            };
            let optimum = train.optimal_age();
            let ifil = train.ifil_age(Tie::ArrivalFirst);
            // Both are rounded to a ns.
            let rounding = Span::from_nanos(1);
            prop_assert!(optimum <= ifil + rounding);
            prop_assert!(ifil <= optimum + train.update_period / 2 + rounding);
            prop_assert!(ifil <= train.generic_ifil_age());
            // Departures first: at most a whole one.
            let late = train.ifil_age(Tie::DepartureFirst);
            prop_assert!(late <= optimum + train.update_period + rounding);
        }

        #[test]
        fn the_closed_form_is_the_age_of_a_simulated_server(
            update_period in 1u64..60,
            transmission in 1u64..300,
            extra in 0u64..50,
        ) {
            let mut train = alone(2 * update_period, 2 * transmission);
            train.output_period = Span::from_nanos(2 * (transmission + extra));
            for tie in [Tie::ArrivalFirst, Tie::DepartureFirst] {
                prop_assert_eq!(train.ifil_age(tie), simulated_age(train, tie));
            }
        }

        #[test]
        fn no_policy_beats_the_optimum_and_one_reaches_it(
            update_period in 1u64..14,
            transmission in 1u64..60,
        ) {
            // In units of 1 µs, so that rounding to a ns is far below the step between policies.
            let fine = alone(1_000 * update_period, 1_000 * transmission);
            let coarse = alone(update_period, transmission);
            let age = fine.optimal_age().as_nanos() as f64 / 1e3;
            let twice_wait = 2.0 * (age - transmission as f64) - update_period as f64;
            prop_assert!(!some_policy_beats(coarse, twice_wait - 0.01));
            prop_assert!(some_policy_beats(coarse, twice_wait + 0.01));
        }
    }
}
