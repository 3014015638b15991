//! CoDel's decision to drop: the state machine of RFC 8289 section 5.5, without a queue.
//!
//! ```text
//!          sojourn ≥ target for an interval: drop, n ← 1 or near the last n
//! ┌──────┐ ─────────────────────────────────────────────────────────────────► ┌──────────┐
//! │ calm │                                                                    │ dropping │
//! └──────┘ ◄───────────────────────────────────────────────────────────────── └──────────┘
//!          sojourn < target, or at most a packet is queued               at drop_next:
//!                                                                        drop, n ← n + 1
//! with each drop: drop_next ← drop_next + interval / √n
//! ```
//!
//! The RFC's pseudocode drops and dequeues in one loop; here the queue asks for each packet in turn
//! whether it is dropped, which gives the same drops: a packet behind a dropped one is judged like
//! any other. One difference is left: where a drop ends the episode, the pseudocode leaves
//! `drop_next` at that drop's time, we are one spacing further. It only counts against the 16
//! intervals in which an episode is remembered.

use crate::unit::{Bytes, Span, Time};

/// The settings of the law.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Control {
    /// The sojourn time that is acceptable in the long run.
    pub(crate) target: Span,
    /// How long it may be exceeded.
    pub(crate) interval: Span,
    /// With at most this many bytes queued, nothing is dropped.
    pub(crate) max_packet: Bytes,
}

/// The state of one queue.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Law {
    /// When the sojourn time will have been above the target for an interval; `None` while it is
    /// below.
    due: Option<Time>,
    dropping: bool,
    /// The time of the next drop, while dropping; afterwards, about that of the last one.
    drop_next: Time,
    /// Drops in this episode, plus the remembered ones.
    count: u32,
    /// `count` as the episode began.
    first_count: u32,
}

impl Law {
    /// An episode that ended less than this number of intervals ago is resumed near its last rate
    /// (RFC 8289 section 5.5).
    const MEMORY: u64 = 16;

    /// Whether the head of the queue is dropped (or marked), after `sojourn` in it and with
    /// `waiting` bytes behind it. Call it once for each packet that leaves the queue.
    pub(crate) fn strikes(
        &mut self,
        control: &Control,
        now: Time,
        sojourn: Span,
        waiting: Bytes,
    ) -> bool {
        if !self.standing(control, now, sojourn, waiting) {
            self.dropping = false;
            return false;
        }
        if !self.dropping {
            self.begin(control, now);
            return true;
        }
        if now < self.drop_next {
            return false;
        }
        self.count = self.count.saturating_add(1);
        self.drop_next += self.spacing(control);
        true
    }

    /// Resets the law, as when the queue ran empty.
    pub(crate) fn on_empty(&mut self) {
        self.due = None;
        self.dropping = false;
    }

    /// Whether the queue has been above the target for an interval.
    fn standing(&mut self, control: &Control, now: Time, sojourn: Span, waiting: Bytes) -> bool {
        if sojourn < control.target || waiting <= control.max_packet {
            self.due = None;
            return false;
        }
        now >= *self.due.get_or_insert(now + control.interval)
    }

    fn begin(&mut self, control: &Control, now: Time) {
        let last = self.count - self.first_count;
        let recent = now.since(self.drop_next) < control.interval * Self::MEMORY;
        self.count = if recent && last > 1 { last } else { 1 };
        self.first_count = self.count;
        self.dropping = true;
        self.drop_next = now + self.spacing(control);
    }

    /// interval / √n: drops at this spacing make TCP's rate fall linearly (RFC 8289 section 3.3).
    fn spacing(&self, control: &Control) -> Span {
        control.interval.mul_f64(1.0 / libm::sqrt(f64::from(self.count)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const CONTROL: Control = Control {
        target: Span::from_millis(5),
        interval: Span::from_millis(100),
        max_packet: Bytes::new(1514),
    };
    const PLENTY: Bytes = Bytes::new(100_000);
    const STANDING: Span = Span::from_millis(20);

    fn at_ms(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    /// When the law drops if a packet leaves every ms from `from` until `to`.
    fn strikes(law: &mut Law, from: u64, to: u64, sojourn: Span) -> Vec<u64> {
        let struck = |ms: &u64| law.strikes(&CONTROL, at_ms(*ms), sojourn, PLENTY);
        (from..to).filter(struck).collect()
    }

    #[test]
    fn nothing_is_dropped_below_the_target() {
        let below = CONTROL.target - Span::from_nanos(1);
        assert_eq!(strikes(&mut Law::default(), 0, 10_000, below), []);
    }

    #[test]
    fn nothing_is_dropped_while_no_more_than_a_packet_waits() {
        let mut law = Law::default();
        let struck = |ms: u64| law.strikes(&CONTROL, at_ms(ms), STANDING, Bytes::new(1514));
        assert!(!(0..10_000).any(struck));
    }

    #[test]
    fn the_first_drop_comes_after_an_interval_above_the_target() {
        assert_eq!(strikes(&mut Law::default(), 7, 200, STANDING), [107]);
        // One packet below the target restarts the interval.
        let mut law = Law::default();
        assert_eq!(strikes(&mut law, 0, 90, STANDING), []);
        assert!(!law.strikes(&CONTROL, at_ms(90), Span::ZERO, PLENTY));
        assert_eq!(strikes(&mut law, 91, 291, STANDING), [191]);
    }

    #[test]
    fn drops_come_interval_over_root_n_apart() {
        let mut expected = Vec::new();
        let mut next = 100.0;
        for n in 1..=20 {
            expected.push(libm::ceil(next) as u64);
            next += 100.0 / libm::sqrt(f64::from(n));
        }
        let end = expected[19] + 1;
        assert_eq!(strikes(&mut Law::default(), 0, end, STANDING), expected);
    }

    #[test]
    fn a_driver_that_is_late_gets_the_drops_that_are_due() {
        let mut law = Law::default();
        assert_eq!(strikes(&mut law, 0, 101, STANDING), [100]);
        // Due by then: at 200, 270.7, 328.4 and 378.4 ms.
        let at_once = (0..9).filter(|_| law.strikes(&CONTROL, at_ms(400), STANDING, PLENTY));
        assert_eq!(at_once.count(), 4);
    }

    #[test]
    fn an_episode_soon_after_another_starts_near_its_rate() {
        let dropping = |law: &mut Law| assert!(strikes(law, 0, 1_000, STANDING).len() > 20);
        let gap_after_first_drop = |law: &mut Law, from: u64| {
            let struck = strikes(law, from, from + 300, STANDING);
            assert_eq!(struck[0], from + 100, "again an interval above the target is needed");
            struck[1] - struck[0]
        };
        let mut law = Law::default();
        dropping(&mut law);
        assert!(!law.strikes(&CONTROL, at_ms(1_000), Span::ZERO, PLENTY));
        assert!(gap_after_first_drop(&mut law, 1_500) < 25);

        let mut law = Law::default();
        dropping(&mut law);
        assert!(!law.strikes(&CONTROL, at_ms(1_000), Span::ZERO, PLENTY));
        assert_eq!(gap_after_first_drop(&mut law, 1_000 + 1_700), 100, "and later it is forgotten");
    }
}
