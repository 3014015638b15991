//! The backlog at the departure of each update, kept until its ack gives its age.
//!
//! ```text
//!   on_sent ──► [ seq, backlog ] [ … ] [ … ] ──► on_ack: all up to the acknowledged one are due
//! ```
//!
//! Bounded: with more than [`MARKS`] updates in flight every second one is marked, then every
//! third, and so on.

use alloc::collections::VecDeque;

use crate::unit::Time;

/// Marks that are kept. 256, at 24 bytes, are marked one by one up to 10 000 updates/s over 25 ms,
/// or 500 updates/s over half a second.
const MARKS: usize = 256;

#[derive(Debug, Clone)]
pub(super) struct Departures {
    marks: VecDeque<Mark>,
    next_seq: u64,
    next_mark: u64,
    /// All before this are acknowledged or skipped.
    unacked_from: u64,
    last_ack_at: Time,
    due: Due,
}

#[derive(Debug, Clone, Copy)]
struct Mark {
    seq: u64,
    at: Time,
    backlog: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Due {
    sum: f64,
    count: u32,
}

impl Departures {
    pub(super) fn new() -> Self {
        Self {
            marks: VecDeque::new(),
            next_seq: 0,
            next_mark: 0,
            unacked_from: 0,
            last_ack_at: Time::ZERO,
            due: Due::default(),
        }
    }

    pub(super) fn on_sent(&mut self, now: Time, seq: u64) {
        if seq < self.next_seq {
            return;
        }
        self.next_seq = seq.saturating_add(1);
        if seq < self.next_mark {
            return;
        }
        let backlog = self.next_seq - self.unacked_from;
        self.next_mark = self.next_seq.saturating_add(backlog / MARKS as u64);
        if self.marks.len() == MARKS {
            self.marks.pop_front();
        }
        self.marks.push_back(Mark { seq, at: now, backlog: backlog as f64 });
    }

    /// A fresh ack. Of the updates before it, `bridged` count as if they had been acknowledged
    /// evenly since the last one.
    pub(super) fn on_ack(&mut self, now: Time, seq: u64, bridged: u64) {
        let seq = seq.min(self.next_seq.saturating_sub(1));
        if bridged > 0 {
            self.bridge(now, bridged as f64);
        }
        self.last_ack_at = now;
        self.unacked_from = self.unacked_from.max(seq + 1);
        let due = self.marks.iter().take_while(|mark| mark.seq <= seq).count();
        for mark in self.marks.drain(..due) {
            self.due.sum += mark.backlog;
            self.due.count = self.due.count.saturating_add(1);
        }
    }

    fn bridge(&mut self, now: Time, bridged: f64) {
        let began_at = self.last_ack_at;
        let between = now.since(began_at).as_secs_f64() / (bridged + 1.0);
        for mark in self.marks.iter_mut().rev().take_while(|mark| mark.at >= began_at) {
            let acked = libm::floor(mark.at.since(began_at).as_secs_f64() / between).min(bridged);
            mark.backlog = (mark.backlog - acked).max(1.0);
        }
    }

    /// The mean over all that became due since the last call; `None` if none did.
    pub(super) fn mean(&mut self) -> Option<f64> {
        let due = core::mem::take(&mut self.due);
        (due.count > 0).then(|| due.sum / f64::from(due.count))
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
    fn a_backlog_is_told_when_the_update_that_met_it_is_acknowledged() {
        let mut departures = Departures::new();
        for seq in 0..4 {
            departures.on_sent(ms(seq), seq);
        }
        assert_eq!(departures.mean(), None);
        departures.on_ack(ms(4), 1, 0);
        assert_eq!(departures.mean(), Some(1.5), "1 and 2");
        departures.on_sent(ms(5), 4);
        departures.on_ack(ms(6), 4, 0);
        assert_eq!(
            departures.mean(),
            Some((3.0 + 4.0 + 3.0) / 3.0),
            "the last met 2, 3 and itself"
        );
        assert_eq!(departures.mean(), None);
    }

    #[test]
    fn skipped_updates_count_as_acknowledged_evenly_in_between() {
        // An update every 10 ms, acknowledged after 25 ms; but some are lost.
        for lost in [&[][..], &[3], &[3, 4], &[3, 6, 7, 8]] {
            let mut departures = Departures::new();
            let mut acked = None;
            for now in 0..200 {
                if now % 10 == 0 {
                    departures.on_sent(ms(now), now / 10);
                }
                let Some(seq) = (now % 10 == 5).then_some(now / 10).and_then(|n| n.checked_sub(2))
                else {
                    continue;
                };
                if !lost.contains(&seq) {
                    let skipped = acked.replace(seq).map_or(seq, |last| seq - last - 1);
                    departures.on_ack(ms(now), seq, skipped);
                }
            }
            let mean = departures.mean().unwrap();
            assert_eq!(mean, (1.0 + 2.0 + 16.0 * 3.0) / 18.0, "lost {lost:?}");
        }
    }

    #[test]
    fn memory_is_bounded_and_a_large_backlog_is_still_told() {
        let mut departures = Departures::new();
        for seq in 0..1_000_000 {
            departures.on_sent(ms(seq), seq);
        }
        assert!(departures.marks.len() <= MARKS);
        departures.on_ack(ms(1_000_000), u64::MAX, 0);
        assert!(departures.mean().is_some_and(|mean| mean > 500_000.0));
        departures.on_sent(ms(1_000_000), u64::MAX);
        departures.on_ack(ms(1_000_000), u64::MAX, u64::MAX);
    }
}
