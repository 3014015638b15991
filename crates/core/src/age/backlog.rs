//! The backlog process of a source: the number of updates sent and not yet acknowledged.
//!
//! ```text
//! B(t) = updates sent until t − updates acknowledged until t
//! ```
//!
//! An acknowledgement clears its update and all older ones: an older update that is still in flight
//! behind a fresher one no longer matters (Shreedhar, PhD thesis, IIIT-Delhi, section 3.7 and
//! Figure 3.9). Updates are numbered in the order of sending, so two numbers are all the state.

use super::Integral;
use crate::unit::Time;

/// The number of updates sent and not yet acknowledged, and its exact time average.
///
/// Sequence numbers are consecutive, from any start, below `u64::MAX`.
#[derive(Debug, Clone)]
pub struct BacklogProcess {
    started_at: Time,
    changed_at: Time,
    /// The area under the backlog up to `changed_at`, in updates · ns.
    area: u128,
    /// One more than the last number sent.
    sent: u64,
    /// One more than the highest number acknowledged.
    acked: u64,
}

impl BacklogProcess {
    /// A source that has sent nothing; measurement begins at `now`.
    pub const fn new(now: Time) -> Self {
        Self { started_at: now, changed_at: now, area: 0, sent: 0, acked: 0 }
    }

    /// Update number `sequence` was sent. A number not above the last one changes nothing.
    pub fn on_sent(&mut self, now: Time, sequence: u64) {
        let Some(sent) = sequence.checked_add(1).filter(|sent| *sent > self.sent) else { return };
        self.advance(now);
        if self.backlog() == 0 {
            // No update is in flight, so any next number is valid, as for the very first one.
            self.acked = sequence;
        }
        self.sent = sent;
    }

    /// Update number `sequence` was acknowledged. Returns how many updates this cleared: zero for
    /// an ack that was overtaken or repeated, and for a number that was never sent.
    pub fn on_ack(&mut self, now: Time, sequence: u64) -> u64 {
        if !(self.acked..self.sent).contains(&sequence) {
            return 0;
        }
        self.advance(now);
        let cleared = sequence - self.acked + 1;
        self.acked += cleared;
        cleared
    }

    /// Updates sent and not yet acknowledged.
    pub const fn backlog(&self) -> u64 {
        self.sent - self.acked
    }

    /// The integral of the backlog up to `now`, for [`BacklogProcess::mean_since`].
    pub fn mark(&self, now: Time) -> Integral {
        let open = u128::from(self.backlog()) * u128::from(now.since(self.changed_at).as_nanos());
        Integral::new(now.max(self.changed_at), self.area + open)
    }

    /// The time average of the backlog, in updates, from `mark` until `now`; `None` as long as no
    /// time has passed.
    pub fn mean_since(&self, mark: Integral, now: Time) -> Option<f64> {
        Self::mean_between(mark, self.mark(now))
    }

    /// The time average of the backlog from one mark to a later one of the same process.
    pub fn mean_between(from: Integral, to: Integral) -> Option<f64> {
        let (area, time) = to.gained_since(from)?;
        Some(area as f64 / time.as_nanos() as f64)
    }

    /// The time average of the backlog, in updates, since the start, as
    /// [`BacklogProcess::mean_since`].
    pub fn mean(&self, now: Time) -> Option<f64> {
        self.mean_since(Integral::new(self.started_at, 0), now)
    }

    fn advance(&mut self, now: Time) {
        self.area = self.mark(now).area();
        self.changed_at = now.max(self.changed_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::Span;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn an_ack_clears_its_update_and_all_older_ones() {
        let mut backlog = BacklogProcess::new(at(0));
        for sequence in 7..12 {
            backlog.on_sent(at(0), sequence);
        }
        assert_eq!(backlog.on_ack(at(1), 9), 3);
        assert_eq!(backlog.backlog(), 2);
        assert_eq!(backlog.on_ack(at(2), 8), 0, "overtaken");
        assert_eq!(backlog.on_ack(at(2), 12), 0, "never sent");
        assert_eq!(backlog.on_ack(at(2), 11), 2);
        assert_eq!(backlog.on_ack(at(3), 11), 0, "repeated");
        assert_eq!(backlog.mean(at(4)), Some((5.0 + 2.0) / 4.0));
    }

    #[test]
    fn an_epoch_has_its_own_mean() {
        let mut backlog = BacklogProcess::new(at(0));
        backlog.on_sent(at(0), 0);
        let epoch = backlog.mark(at(10));
        assert_eq!(backlog.mean_since(epoch, at(10)), None);
        backlog.on_sent(at(15), 1);
        assert_eq!(backlog.mean_since(epoch, at(20)), Some(1.5));
        assert_eq!(backlog.mean(at(20)), Some(1.25));
    }

    /// Sends (`None`) and acks of any update sent so far, or of one never sent (`Some`).
    fn steps() -> impl Strategy<Value = Vec<(u64, Option<u64>)>> {
        let ack = prop::option::of(0u64..25);
        prop::collection::vec((0u64..30, ack), 1..40)
    }

    proptest! {
        #[test]
        fn the_mean_equals_a_sum_over_every_nanosecond(steps in steps(), rest in 1u64..50) {
            let mut backlog = BacklogProcess::new(Time::ZERO);
            // The reference: the set of all updates in flight.
            let mut under_way: Vec<u64> = Vec::new();
            let (mut now, mut next, mut area) = (0, 0, 0);
            let mut mark = (backlog.mark(Time::ZERO), now, area);
            for (index, (step, ack)) in steps.iter().enumerate() {
                area += step * under_way.len() as u64;
                now += step;
                match ack {
                    None => {
                        backlog.on_sent(Time::from_nanos(now), next);
                        under_way.push(next);
                        next += 1;
                    }
                    Some(sequence) => {
                        let before = under_way.len();
                        if *sequence < next {
                            under_way.retain(|waiting| waiting > sequence);
                        }
                        let cleared = backlog.on_ack(Time::from_nanos(now), *sequence);
                        prop_assert_eq!(cleared, (before - under_way.len()) as u64);
                    }
                }
                prop_assert_eq!(backlog.backlog(), under_way.len() as u64);
                if index == steps.len() / 2 {
                    mark = (backlog.mark(Time::from_nanos(now)), now, area);
                }
            }
            area += rest * under_way.len() as u64;
            let end = now + rest;
            let mean = |area: u64, time: u64| Some(area as f64 / time as f64);
            prop_assert_eq!(backlog.mean(Time::from_nanos(end)), mean(area, end));
            let (mark, marked_at, before) = mark;
            prop_assert_eq!(
                backlog.mean_since(mark, Time::from_nanos(end)),
                mean(area - before, end - marked_at)
            );
        }

        #[test]
        fn no_sequence_of_numbers_and_times_breaks_it(
            events in prop::collection::vec(any::<(u64, bool, u64)>(), 0..40),
        ) {
            let mut backlog = BacklogProcess::new(Time::ZERO);
            for (now, sent, sequence) in events {
                let now = Time::from_nanos(now);
                if sent {
                    backlog.on_sent(now, sequence);
                } else {
                    backlog.on_ack(now, sequence);
                }
                prop_assert!(backlog.mean(now).is_none_or(f64::is_finite));
            }
        }
    }
}
