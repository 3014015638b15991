//! Spaces updates evenly at the rate in force.

use crate::unit::{Time, UpdateRate};

/// Says when the next update is due. A driver that is late by less than a period is back on the
/// grid with the next update; one that is later starts a new grid, so that it never sends a burst
/// of updates of which only the last would count.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pacer {
    last_due: Option<Time>,
}

impl Pacer {
    /// The first update is due at once.
    pub(super) fn new() -> Self {
        Self { last_due: None }
    }

    /// An update that was due by [`Pacer::next_at`] has just left.
    pub(super) fn on_sent(&mut self, now: Time, rate: UpdateRate) {
        let due = self.next_at(rate);
        let on_grid = due <= now && now.since(due) < rate.period();
        self.last_due = Some(if on_grid && self.last_due.is_some() { due } else { now });
    }

    /// When the next update is due; a change of rate takes effect on the current period.
    pub(super) fn next_at(&self, rate: UpdateRate) -> Time {
        self.last_due.map_or(Time::ZERO, |last| last + rate.period())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::Span;

    fn ms(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn a_late_driver_returns_to_the_grid_but_never_bursts() {
        let rate = UpdateRate::saturating(100.0);
        let mut pacer = Pacer::new();
        pacer.on_sent(ms(5), rate);
        assert_eq!(pacer.next_at(rate), ms(15));
        pacer.on_sent(ms(18), rate);
        assert_eq!(pacer.next_at(rate), ms(25), "3 ms late: back on the grid");
        pacer.on_sent(ms(60), rate);
        assert_eq!(pacer.next_at(rate), ms(70), "35 ms late: a new grid");
    }
}
