//! Reduces Lazy's rate, the floor of the law behind a deep queue, after losses.
//!
//! ```text
//!   left ← left · (1 − ⅕)            for each update that is lost, and not at random
//!          left + left^⅘ / 100       for each that arrives; at most 1
//! ```
//!
//! In balance one update of 20 is lost, and of a source with a small `left` at most one of 8: the
//! sources of a crowd that a full queue has treated unequally converge. Losses are not forgotten in
//! between, so that a loss counts at the lowest rates, too.

use super::counts::Counted;

/// The fraction that each lost update takes.
const YIELDS: f64 = 0.2;

/// Each update that arrives adds this,
const RECOVERS: f64 = 0.01;

/// times this power of the fraction left.
const POWER: f64 = 0.8;

/// The fraction that each lost probe takes.
const PROBE: f64 = 0.5;

/// The minimum of the fraction left.
const LEAST: f64 = 0.01;

#[derive(Debug, Clone, Copy)]
pub(super) struct Floors(f64);

impl Default for Floors {
    fn default() -> Self {
        Self(1.0)
    }
}

impl Floors {
    /// The fraction of the floor that is left, 0.01 to 1.
    pub(super) fn left(self) -> f64 {
        self.0
    }

    /// Begins with this number of probes lost before the first acknowledged one.
    pub(super) fn begin(&mut self, lost: u32) {
        self.set(libm::pow(1.0 - PROBE, f64::from(lost)));
    }

    /// Takes in the updates sent and lost by an ack, and the number of them that counts as lost:
    /// below 0 if updates arrived late.
    pub(super) fn on_ack(&mut self, since: Counted, lost: f64) {
        let arrived = (since.sent - since.lost).max(0.0);
        let more = RECOVERS * libm::pow(self.0, POWER) * arrived;
        self.set(self.0 * libm::pow(1.0 - YIELDS, lost) + more);
    }

    /// Halves the fraction when acks stop after losses.
    pub(super) fn halve(&mut self) {
        self.set(self.0 / 2.0);
    }

    fn set(&mut self, left: f64) {
        self.0 = left.clamp(LEAST, 1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fraction left after this number of updates, of which each `one_in`th is lost.
    fn after(updates: u32, one_in: u32) -> f64 {
        let mut floors = Floors::default();
        for n in 0..updates {
            let lost = f64::from(u8::from(n % one_in == 0));
            floors.on_ack(Counted { sent: 1.0, lost }, lost);
        }
        floors.left()
    }

    #[test]
    fn one_loss_in_forty_takes_little_and_one_in_three_takes_all() {
        assert!(after(2_000, 40) > 0.8);
        assert!(after(100, 3) < 0.05);
    }

    #[test]
    fn one_in_ten_leaves_more_than_one_in_six() {
        let [ten, six] = [10, 6].map(|one_in| after(5_000, one_in));
        assert!(six < ten && ten < 0.5, "{six} {ten}");
    }

    #[test]
    fn what_comes_late_is_given_back() {
        let mut floors = Floors::default();
        floors.on_ack(Counted { sent: 5.0, lost: 5.0 }, 5.0);
        assert!(floors.left() < 0.4);
        floors.on_ack(Counted { sent: 0.0, lost: -5.0 }, -5.0);
        assert!(floors.left() > 0.99);
    }

    #[test]
    fn lost_probes_lower_the_beginning() {
        let mut floors = Floors::default();
        floors.begin(0);
        assert_eq!(floors.left(), 1.0);
        floors.begin(3);
        assert_eq!(floors.left(), 0.125);
        floors.begin(u32::MAX);
        assert_eq!(floors.left(), LEAST);
    }
}
