//! Counts of updates that were sent and lost.

/// The dispersion of losses is an average over about this number of runs.
const RUNS: f64 = 32.0;

/// At most this number of updates counts of one run of losses, as the run is one event: a full
/// queue that drops more packets in a row drops other packets, too.
const MAX_RUN: f64 = 4.0;

/// Sent and lost updates, for example those after one acknowledged update up to another.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Counted {
    pub(super) sent: f64,
    /// Below 0 if updates arrived late that had been counted as lost.
    pub(super) lost: f64,
}

impl Counted {
    pub(super) fn add(&mut self, more: Self) {
        self.sent += more.sent;
        self.lost += more.lost;
    }

    pub(super) fn halve(&mut self) {
        self.sent /= 2.0;
        self.lost /= 2.0;
    }

    /// The fraction that was lost, 0 to 1.
    pub(super) fn part(&self) -> f64 {
        if self.sent > 0.0 { (self.lost / self.sent).clamp(0.0, 1.0) } else { 0.0 }
    }

    pub(super) fn arrived(&self) -> f64 {
        self.sent * (1.0 - self.part())
    }

    /// The log-likelihood of these counts if each update arrives with this probability.
    pub(super) fn log_likelihood(&self, arrives: f64) -> f64 {
        let times = |count: f64, of: f64| if count > 0.0 { count * libm::log(of) } else { 0.0 };
        times(self.arrived(), arrives) + times(self.sent * self.part(), 1.0 - arrives)
    }

    /// Whether all but the acknowledged one were lost.
    pub(super) fn is_run(&self) -> bool {
        self.lost > 0.0 && self.sent - self.lost == 1.0
    }

    /// The same, with at most [`MAX_RUN`] losses in a row.
    pub(super) fn shortened(self) -> Self {
        if !self.is_run() || self.lost <= MAX_RUN {
            return self;
        }
        Self { sent: MAX_RUN + 1.0, lost: MAX_RUN }
    }
}

/// The lengths of the last runs of lost updates, about 32 of them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Runs {
    sum: f64,
    squares: f64,
}

impl Runs {
    pub(super) fn add(&mut self, lost: f64) {
        let rest = 1.0 - 1.0 / RUNS;
        self.sum = rest * self.sum + lost;
        self.squares = rest * self.squares + lost * lost;
    }

    /// The variance of losses over that of independent losses, 1 or more.
    pub(super) fn dispersion(&self) -> f64 {
        if self.sum > 0.0 { (self.squares / self.sum).max(1.0) } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_in_a_row_are_one_event() {
        let since = |sent, lost| Counted { sent, lost };
        assert_eq!(since(21.0, 20.0).shortened(), since(5.0, 4.0));
        assert_eq!(since(4.0, 3.0).shortened(), since(4.0, 3.0));
        assert_eq!(since(40.0, 20.0).shortened(), since(40.0, 20.0), "they may lie apart");
    }

    #[test]
    fn single_losses_have_their_own_variance_and_those_in_a_row_more() {
        let of = |lost: f64| {
            let mut runs = Runs::default();
            (0..50).for_each(|_| runs.add(lost));
            runs.dispersion()
        };
        assert!((of(1.0) - 1.0).abs() < 1e-9 && (of(4.0) - 4.0).abs() < 1e-9);
        assert_eq!(Runs::default().dispersion(), 1.0);
    }

    #[test]
    fn what_is_likeliest_is_what_was_seen() {
        let counted = Counted { sent: 10.0, lost: 3.0 };
        let likely = |arrives| counted.log_likelihood(arrives);
        assert!(likely(0.7) > likely(0.6) && likely(0.7) > likely(0.8));
        assert_eq!(Counted { sent: 5.0, lost: 0.0 }.log_likelihood(1.0), 0.0);
    }
}
