//! The decision of ACP and ACP+ at the end of an epoch: more or less backlog.
//!
//! ```text
//!                 age rises (δ > 0)                    age falls (δ < 0)
//! backlog rises   long queue: decrease,                more is better: increase
//!  (b > 0)        and if so again: multiplicatively
//! backlog falls   too little is in transit: increase   less is better: decrease, or go on
//!  (b < 0)        (ACP: or congestion, see below)      decreasing multiplicatively
//! ```
//!
//! The γ-th multiplicative decrease in a row takes away 1 − 2^−γ of the backlog. ACP+ paper,
//! Algorithm 1; Shreedhar, PhD thesis, Algorithms 2 and 3.
//!
//! Where the papers are silent: the first epoch has nothing to compare with. It asks for an
//! increase, as nothing speaks against it. A difference of zero matches no branch of the listings;
//! [`Tie`] decides.

use super::epoch::Averages;

/// What to do when mean age or mean backlog did not change: b_k = 0 or δ_k = 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Tie {
    /// Ask for one more update in transit: nothing speaks against it, and a path without any
    /// noise would otherwise freeze a law at its first rate.
    #[default]
    Increase,
    /// Keep the backlog as it is: b* = 0.
    Hold,
    /// Keep the previous b*, the flag and γ, as the listings do: no branch is taken, and
    /// UPDATELAMBDA is called all the same.
    Repeat,
}

/// A wish for the backlog of the next epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Increase,
    Hold,
    /// The previous wish again.
    Repeat,
    Decrease,
    /// Take away 1 − 2^−γ of the backlog.
    Multiplicative {
        gamma: u32,
    },
}

/// When a smaller backlog than before, with a higher age, is a sign of congestion.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shortfall {
    /// The change of backlog that the last step aimed at.
    pub wanted: f64,
    /// Whether the check applies to (b > 0, δ < 0) instead.
    pub as_printed: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Steering {
    tie: Tie,
    previous: Option<Averages>,
    /// The algorithm's `flag`: backlog and age have risen together.
    congested: bool,
    gamma: u32,
    was_tie: bool,
}

impl Steering {
    pub(super) fn new(tie: Tie) -> Self {
        Self { tie, previous: None, congested: false, gamma: 0, was_tie: false }
    }

    /// Compares the epoch that ends with the one before it.
    pub(super) fn decide(&mut self, epoch: Averages, shortfall: Option<Shortfall>) -> Step {
        self.was_tie = false;
        let Some(previous) = self.previous.replace(epoch) else { return self.on_first() };
        let backlog_rises = rises(previous.backlog, epoch.backlog);
        let age_rises = rises(previous.age, epoch.age);
        let (Some(backlog_rises), Some(age_rises)) = (backlog_rises, age_rises) else {
            self.was_tie = true;
            return self.on_tie();
        };
        let fell_short = self.congested
            && shortfall.is_some_and(|check| {
                check.as_printed == backlog_rises
                    && libm::fabs(epoch.backlog - previous.backlog) < 0.5 * libm::fabs(check.wanted)
            });
        match (backlog_rises, age_rises) {
            (true, true) if self.congested => self.decrease_more(),
            (true, true) => {
                self.congested = true;
                Step::Decrease
            }
            (true, false) | (false, true) if fell_short => self.decrease_more(),
            (true, false) | (false, true) => self.calm(Step::Increase),
            (false, false) if self.congested && self.gamma > 0 => {
                Step::Multiplicative { gamma: self.gamma }
            }
            (false, false) => self.calm(Step::Decrease),
        }
    }

    /// Whether mean age or mean backlog had not changed in the last epoch; the first epoch is no
    /// tie.
    pub(super) fn was_tie(&self) -> bool {
        self.was_tie
    }

    fn decrease_more(&mut self) -> Step {
        self.gamma = self.gamma.saturating_add(1);
        Step::Multiplicative { gamma: self.gamma }
    }

    fn calm(&mut self, step: Step) -> Step {
        (self.congested, self.gamma) = (false, 0);
        step
    }

    fn on_first(&mut self) -> Step {
        match self.tie {
            Tie::Increase | Tie::Repeat => self.calm(Step::Increase),
            Tie::Hold => Step::Hold,
        }
    }

    fn on_tie(&mut self) -> Step {
        match self.tie {
            Tie::Increase => self.calm(Step::Increase),
            Tie::Hold => Step::Hold,
            Tie::Repeat => Step::Repeat,
        }
    }
}

impl Step {
    /// Its name, and γ of a multiplicative decrease or 0.
    pub(super) fn action(self) -> (&'static str, u32) {
        match self {
            Self::Increase => ("inc", 0),
            Self::Hold => ("hold", 0),
            Self::Repeat => ("repeat", 0),
            Self::Decrease => ("dec", 0),
            Self::Multiplicative { gamma } => ("mdec", gamma),
        }
    }

    /// The wanted change of a backlog of `backlog`, where additive steps have size `step` and the
    /// previous wanted change was `previous`.
    pub(super) fn change(self, backlog: f64, step: f64, previous: f64) -> f64 {
        match self {
            Self::Increase => step,
            Self::Hold => 0.0,
            Self::Repeat => previous,
            Self::Decrease => -step,
            Self::Multiplicative { gamma } => -(1.0 - libm::exp2(-f64::from(gamma))) * backlog,
        }
    }
}

/// Whether a mean went up; `None` within a millionth, which is below the precision of clocks and
/// their arithmetic.
fn rises(before: f64, after: f64) -> Option<bool> {
    let change = after - before;
    (libm::fabs(change) > 1e-6 * libm::fabs(before)).then_some(change > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Walks through epochs given as (backlog, age) and collects the steps.
    fn steps<const N: usize>(epochs: [(f64, f64); N], shortfall: Option<Shortfall>) -> [Step; N] {
        let mut steering = Steering::new(Tie::Increase);
        epochs.map(|(backlog, age)| steering.decide(Averages { age, backlog }, shortfall))
    }

    #[test]
    fn the_table_of_the_algorithm() {
        use Step::{Decrease, Increase, Multiplicative};
        let epochs = [
            (1.0, 9.0), // the first: a tie
            (2.0, 8.0), // + −
            (3.0, 9.0), // + +
            (4.0, 9.5), // + + again
            (5.0, 9.9), // + + and again
            (4.0, 9.0), // − − while congested: go on
            (3.0, 9.5), // − +
            (2.0, 9.0), // − −
            (2.0, 8.0), // 0 −: a tie
        ];
        let expected = [
            Increase,
            Increase,
            Decrease,
            Multiplicative { gamma: 1 },
            Multiplicative { gamma: 2 },
            Multiplicative { gamma: 2 },
            Increase,
            Decrease,
            Increase,
        ];
        assert_eq!(steps(epochs, None), expected);
    }

    #[test]
    fn a_tie_repeats_the_wish_and_keeps_gamma_as_the_listing_does() {
        let mut steering = Steering::new(Tie::Repeat);
        let epochs = [(1.0, 9.0), (3.0, 9.5), (4.0, 9.9), (4.0, 9.9), (5.0, 9.95)];
        let steps = epochs.map(|(backlog, age)| steering.decide(Averages { age, backlog }, None));
        let expected = [
            Step::Increase,
            Step::Decrease,
            Step::Multiplicative { gamma: 1 },
            Step::Repeat,
            Step::Multiplicative { gamma: 2 },
        ];
        assert_eq!(steps, expected);
        assert_eq!(Step::Repeat.change(8.0, 1.0, -3.5), -3.5);
    }

    #[test]
    fn a_backlog_that_hardly_falls_is_congestion_to_acp() {
        let epochs = [(1.0, 9.0), (4.0, 9.5), (3.9, 9.6)];
        let explained = Some(Shortfall { wanted: -1.0, as_printed: false });
        let printed = Some(Shortfall { wanted: -1.0, as_printed: true });
        assert_eq!(steps(epochs, explained)[2], Step::Multiplicative { gamma: 1 });
        assert_eq!(steps(epochs, printed)[2], Step::Increase);
        assert_eq!(steps(epochs, None)[2], Step::Increase);
    }

    #[test]
    fn gamma_has_no_end_and_takes_at_most_the_whole_backlog() {
        assert_eq!(Step::Multiplicative { gamma: 1 }.change(8.0, 1.0, 0.0), -4.0);
        assert_eq!(Step::Multiplicative { gamma: u32::MAX }.change(8.0, 1.0, 0.0), -8.0);
    }
}
