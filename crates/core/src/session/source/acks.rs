//! Processing of acks: the update that they answer, its round trip, the age at the monitor, and the
//! offset of the monitor's clock.

use super::memory::{SentUpdate, SentUpdates};
use super::types::{Ignored, SourceCounters};
use crate::age::{AgeMeter, BacklogProcess, Freshness};
use crate::session::clock_offset::ClockOffset;
use crate::unit::{Span, Time};
use crate::wire;

/// An update that was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckedUpdate {
    /// Its number.
    pub seq: u64,
    /// The sampling time, on the source's clock, of the newest state that the monitor has by then;
    /// before the first state, when the update was sent.
    pub generated_at: Time,
}

#[derive(Debug)]
pub(super) struct Acks {
    sent: SentUpdates,
    newest: Option<AckedUpdate>,
    /// Acks of updates before this number are ignored.
    ignored_before: u64,
    /// The first update that carries the clock offset, which openings cannot, until one that
    /// carries it is acknowledged.
    offset_unknown: Option<u64>,
    /// The first update after the last opening.
    first_of_session: u64,
    /// The first update after the monitor was found to be gone; it may be another one since.
    first_of_monitor: u64,
    srtt: Option<Span>,
    clock_offset: ClockOffset,
    /// The newest ack, with the monitor's counts.
    last: Option<wire::Ack>,
    age: AgeMeter,
    measures_age: bool,
    backlog: BacklogProcess,
}

impl Acks {
    pub(super) fn new(now: Time, measures_age: bool) -> Self {
        Self {
            sent: SentUpdates::new(),
            newest: None,
            ignored_before: 0,
            offset_unknown: None,
            first_of_session: 0,
            first_of_monitor: 0,
            srtt: None,
            clock_offset: ClockOffset::default(),
            last: None,
            age: AgeMeter::new(),
            measures_age,
            backlog: BacklogProcess::new(now),
        }
    }

    // ---- inputs ----

    /// The next update has left.
    #[inline]
    pub(super) fn on_sent(&mut self, sent: SentUpdate) {
        self.backlog.on_sent(sent.sent_at, self.next_seq());
        self.sent.push(sent, self.newest.map(|newest| newest.seq));
    }

    /// Finds the update that an ack answers.
    ///
    /// # Errors
    /// [`Ignored`] if the update was never sent, or was sent before [`Acks::ignore_sent`].
    #[inline]
    pub(super) fn find(&self, now: Time, ack: &wire::Ack) -> Result<SentUpdate, Ignored> {
        if ack.seq >= self.next_seq() {
            return Err(Ignored::NeverSent);
        }
        let sent = match self.sent.get(ack.seq) {
            Some(sent) => (sent.sent_at == ack.sent_at).then_some(*sent),
            None => {
                let sent_at = Some(ack.sent_at).filter(|at| *at <= now);
                let forgotten = |at| SentUpdate {
                    generated_at: Some(at),
                    sent_at: at,
                    ..SentUpdate::default()
                };
                sent_at.map(forgotten)
            }
        };
        let sent = sent.ok_or(Ignored::NeverSent)?;
        if ack.seq < self.ignored_before { Err(Ignored::Late) } else { Ok(sent) }
    }

    /// Processes an ack for which [`Acks::is_newest`] is true; returns the round trip.
    pub(super) fn on_ack(
        &mut self,
        now: Time,
        sent: &SentUpdate,
        ack: &wire::Ack,
        is_open: bool,
        counters: &mut SourceCounters,
    ) -> Span {
        let before = self.newest.map_or(sent.sent_at, |newest| newest.generated_at);
        let generated_at = sent.generated_at.unwrap_or(before);
        self.newest = Some(AckedUpdate { seq: ack.seq, generated_at });
        let before = self.last.replace(*ack).filter(|_| is_open);
        self.offset_unknown = self.offset_unknown.filter(|first| ack.seq < *first);
        let rtt = now.since(sent.sent_at) - ack.hold;
        // RFC 6298 section 2.3.
        self.srtt = Some(self.srtt.map_or(rtt, |srtt| srtt - srtt / 8 + rtt / 8));
        // A late ack of the previous monitor belongs to that one's clock.
        if ack.seq >= self.first_of_monitor {
            let was_known = self.clock_offset.is_known();
            self.clock_offset.on_ack(now, sent.sent_at, ack.received_at, rtt);
            if !was_known {
                // Updates sent since the opening could not carry it.
                self.offset_unknown = Some(self.next_seq());
            }
        }
        sent.generated_at.into_iter().for_each(|at| self.on_delivered(now, at));
        self.backlog.on_ack(now, ack.seq);
        counters.acked += 1;
        // Updates whose acks were lost, or not requested, may have been fresh too.
        let fresh = before.map_or(1, |before| {
            let fresh = u64::from(ack.fresh.wrapping_sub(before.fresh));
            fresh.clamp(1, ack.seq - before.seq)
        });
        counters.delivered_bytes += fresh * u64::from(sent.payload_len);
        counters.rtt_sum += rtt;
        counters.rtt_min = Some(counters.rtt_min.map_or(rtt, |min| min.min(rtt)));
        rtt
    }

    /// The monitor has the state that was sampled at this time.
    pub(super) fn on_delivered(&mut self, now: Time, generated_at: Time) {
        if let Some(newest) = &mut self.newest {
            newest.generated_at = generated_at;
        }
        if self.measures_age {
            let _: Freshness = self.age.on_update(now, generated_at);
        }
    }

    /// The session is open: the next update is the first that can carry the clock offset.
    pub(super) fn on_opened(&mut self) {
        self.first_of_session = self.next_seq();
        self.offset_unknown = Some(self.first_of_session);
    }

    /// The monitor may be another process, with another clock.
    pub(super) fn on_reopening(&mut self) {
        self.clock_offset.on_reopening();
        self.first_of_monitor = self.next_seq();
    }

    /// Whether an ack for which [`Acks::is_newest`] is true belongs to another record at the
    /// monitor than the last one: a record counts each fresh update.
    pub(super) fn is_of_other_record(&self, ack: &wire::Ack) -> bool {
        // A stale one can be of an update that arrived before others that are acknowledged later.
        self.last.filter(|last| last.was_fresh && ack.was_fresh).is_some_and(|last| {
            let more = ack.fresh.wrapping_sub(last.fresh).cast_signed();
            more < 1
        })
    }

    /// Ignores acks of all updates sent so far: the machine has slept, or these acks do not concern
    /// the present monitor.
    pub(super) fn ignore_sent(&mut self) {
        self.ignored_before = self.next_seq();
    }

    // ---- timers and requests ----

    /// When an update should carry the clock offset: at once after the opening, and again after
    /// doubling waits until an update with it is acknowledged.
    pub(super) fn offset_at(&self, opened_at: Time, first_wait: Span) -> Option<Time> {
        let first = self.offset_unknown?;
        let carried = self.sent.last().filter(|_| self.next_seq() > first);
        let again = |last: &SentUpdate| {
            let rtt = self.srtt.unwrap_or(first_wait);
            let since_opening = last.sent_at.since(opened_at);
            last.sent_at + since_opening.max(rtt * 2).max(first_wait)
        };
        Some(carried.map_or(opened_at, again))
    }

    // ---- getters ----

    /// The number of the next update.
    pub(super) fn next_seq(&self) -> u64 {
        self.sent.next_seq()
    }

    /// When the last update left.
    pub(super) fn last_sent_at(&self) -> Option<Time> {
        self.sent.last().map(|last| last.sent_at)
    }

    /// Whether an ack is of a newer update than all before.
    pub(super) fn is_newest(&self, seq: u64) -> bool {
        self.newest.is_none_or(|newest| seq > newest.seq)
    }

    /// Whether an update left after the last opening.
    pub(super) fn is_since_opening(&self, seq: u64) -> bool {
        seq >= self.first_of_session
    }

    /// The newest update that is acknowledged.
    pub(super) fn newest(&self) -> Option<AckedUpdate> {
        self.newest
    }

    pub(super) fn srtt(&self) -> Option<Span> {
        self.srtt
    }

    pub(super) fn clock_offset(&self) -> &ClockOffset {
        &self.clock_offset
    }

    pub(super) fn last(&self) -> Option<&wire::Ack> {
        self.last.as_ref()
    }

    pub(super) fn age(&self) -> &AgeMeter {
        &self.age
    }

    pub(super) fn backlog(&self) -> &BacklogProcess {
        &self.backlog
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Ack, Marks, SessionId};

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    /// An update of 10 bytes that leaves at this time.
    fn sent(millis: u64) -> SentUpdate {
        let at = at(millis);
        SentUpdate { generated_at: Some(at), sent_at: at, payload_len: 10, len: 10 }
    }

    /// Of update `seq`, sampled and sent at `seq` ms.
    fn ack(seq: u64) -> Ack {
        Ack {
            session: SessionId(1),
            seq,
            sent_at: at(seq),
            received_at: at(seq),
            hold: Span::from_millis(1),
            was_fresh: true,
            fresh: seq as u32 + 1,
            stale: 0,
            missing: 0,
            marks: Marks::default(),
            parts: None,
        }
    }

    #[test]
    fn acks_of_what_was_never_sent_or_is_ignored_change_nothing() {
        let mut acks = Acks::new(at(0), true);
        (0..3).for_each(|seq| acks.on_sent(sent(seq)));
        assert!(acks.find(at(9), &ack(2)).is_ok());
        assert_eq!(acks.find(at(9), &ack(3)).unwrap_err(), Ignored::NeverSent);
        let damaged = Ack { sent_at: at(8), ..ack(2) };
        assert_eq!(acks.find(at(9), &damaged).unwrap_err(), Ignored::NeverSent);
        acks.ignore_sent();
        assert_eq!(acks.find(at(9), &ack(2)).unwrap_err(), Ignored::Late);
    }

    #[test]
    fn an_ack_measures_the_round_trip_without_the_hold_and_counts_fresh_updates_before_it() {
        let (mut acks, mut counters) = (Acks::new(at(0), true), SourceCounters::default());
        (0..4).for_each(|seq| acks.on_sent(sent(seq)));
        for (seq, bytes) in [(0, 10), (3, 40)] {
            assert!(acks.is_newest(seq));
            let sent = acks.find(at(seq + 11), &ack(seq)).unwrap();
            let rtt = acks.on_ack(at(seq + 11), &sent, &ack(seq), true, &mut counters);
            assert_eq!((rtt, counters.delivered_bytes), (Span::from_millis(10), bytes));
            assert!(!acks.is_newest(seq));
        }
        assert_eq!(acks.srtt(), Some(Span::from_millis(10)));
    }

    #[test]
    fn an_update_that_left_before_the_offset_was_known_has_not_carried_it() {
        let (mut acks, mut counters) = (Acks::new(at(0), true), SourceCounters::default());
        let wait = Span::from_millis(100);
        acks.on_sent(sent(0));
        acks.on_reopening();
        // The late ack of an opening may be of a monitor that was here before.
        let opening = acks.find(at(9), &ack(0)).unwrap();
        acks.on_ack(at(9), &opening, &ack(0), false, &mut counters);
        acks.on_opened();
        acks.on_sent(sent(1));
        let first = acks.find(at(11), &ack(1)).unwrap();
        acks.on_ack(at(11), &first, &ack(1), true, &mut counters);
        assert_eq!(acks.offset_at(at(9), wait), Some(at(9)), "the next update has it");
        acks.on_sent(sent(12));
        let second = Ack { sent_at: at(12), ..ack(2) };
        let carried = acks.find(at(20), &second).unwrap();
        acks.on_ack(at(20), &carried, &second, true, &mut counters);
        assert_eq!(acks.offset_at(at(9), wait), None);
    }

    #[test]
    fn a_count_of_fresh_updates_that_does_not_grow_is_of_another_record() {
        let (mut acks, mut counters) = (Acks::new(at(0), true), SourceCounters::default());
        (0..4).for_each(|seq| acks.on_sent(sent(seq)));
        let of = |seq, fresh, was_fresh| Ack { fresh, was_fresh, ..ack(seq) };
        assert!(!acks.is_of_other_record(&of(0, 1, true)), "it is the first ack");
        let sent = acks.find(at(9), &ack(0)).unwrap();
        acks.on_ack(at(9), &sent, &of(0, u32::MAX, true), true, &mut counters);
        assert!(!acks.is_of_other_record(&of(1, 0, true)), "the count wraps");
        assert!(acks.is_of_other_record(&of(1, u32::MAX, true)));
        assert!(acks.is_of_other_record(&of(1, u32::MAX - 9, true)));
        assert!(!acks.is_of_other_record(&of(1, 7, false)), "a stale update counts nothing");
        acks.on_ack(at(9), &sent, &of(1, 9, false), true, &mut counters);
        assert!(!acks.is_of_other_record(&of(2, 8, true)), "it can be of an earlier update");
    }

    #[test]
    fn the_clocks_offset_is_carried_at_once_and_after_waits_that_double() {
        let (mut acks, wait) = (Acks::new(at(0), true), Span::from_millis(100));
        assert_eq!(acks.offset_at(at(0), wait), None, "nothing to say before the opening");
        acks.on_opened();
        for (left, next) in [(0, 200), (200, 400), (400, 800)] {
            acks.on_sent(sent(left));
            assert_eq!(acks.offset_at(at(0), wait), Some(at(next)));
        }
    }
}
