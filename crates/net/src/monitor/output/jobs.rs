//! Jobs that are pending for a command: the newest state of each topic of each source, records, and alarms.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included};

use freshline_core::unit::{Span, Time};

use super::handover::Pending;
use super::job_key::Key;
use super::records::Ticket;
use crate::clock::Clock;
use crate::monitor::which::Which;

/// Maximum number of pending states, and of alarms: beyond it one of the same source, or the alarm, is dropped.
const PENDING: usize = 1 << 16;

#[derive(Default)]
pub(super) struct Jobs {
    pub(super) newest: BTreeMap<Key, Job>,
    /// The sum of the lengths of their states.
    pub(super) bytes: usize,
    /// States that became too old before their turn.
    pub(super) too_old: usize,
    /// Sources whose commands run.
    pub(super) running: BTreeSet<usize>,
    /// The source that was served last; the source after it is next.
    pub(super) last: Option<usize>,
    /// The topic that was served last, per source.
    pub(super) last_topics: BTreeMap<usize, Which>,
    /// Set when the monitor ends: all commands must be over by then.
    pub(super) until: Option<Time>,
    /// Jobs that were dropped since the monitor ended before their turn.
    pub(super) dropped: usize,
}

pub(super) struct Job {
    pub(super) source: String,
    /// The topic's name, of a source with topics.
    pub(super) topic: Option<String>,
    /// Further variables of the environment.
    pub(super) environment: Vec<(&'static str, String)>,
    /// When the state was sampled, on the source's clock.
    pub(super) generated_at: Time,
    /// The age of the state when it came, or when its age became known, and when that was.
    pub(super) age: Option<Span>,
    pub(super) received_at: Time,
    /// Until when it is fresh enough; `None` if there is no limit.
    pub(super) fresh_until: Option<Time>,
    pub(super) payload: Vec<u8>,
    /// Set for a record, which is never replaced.
    pub(super) ticket: Option<Ticket>,
}

/// How a command has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Itself,
    /// It took too long.
    ByLimit,
    /// With the monitor.
    ByEnd,
}

/// A command to run.
pub(super) struct Task {
    pub(super) key: Key,
    pub(super) job: Job,
    /// When it must be over, if the monitor ends.
    pub(super) until: Option<Time>,
}

impl Jobs {
    /// Returns the indices of the sources whose states were replaced, or dropped as there are more
    /// than `room` bytes.
    pub(super) fn insert(&mut self, key: Key, job: Job, room: usize) -> Vec<usize> {
        let mut replaced = Vec::new();
        self.bytes += job.payload.len();
        let generated_at = job.generated_at;
        if let Some(before) = self.newest.insert(key.clone(), job) {
            self.bytes -= before.payload.len();
            replaced.extend((before.generated_at != generated_at).then_some(key.source));
        }
        while self.newest.len() > PENDING {
            let first = Key::first(key.source);
            let mut others = self.newest.range(first..).chain(&self.newest);
            let may_go = |(other, job): &(&Key, &Job)| **other != key && job.ticket.is_none();
            let Some(other) = others.find(may_go).map(|(other, _)| other.clone()) else { break };
            let Some(job) = self.newest.remove(&other) else { break };
            self.bytes -= job.payload.len();
            replaced.push(other.source);
        }
        while self.bytes > room {
            let may_go = |(other, job): &(&Key, &Job)| **other != key && job.ticket.is_none();
            let others = self.newest.iter().filter(may_go);
            let longest = others.max_by_key(|(_, job)| job.payload.len());
            let longest = longest.map(|(other, _)| other.clone());
            let job = longest.as_ref().and_then(|longest| self.newest.remove(longest));
            let Some(job) = job else { break };
            self.bytes -= job.payload.len();
            replaced.extend(longest.map(|longest| longest.source));
        }
        replaced
    }

    /// At most one alarm of each kind is pending per topic. A repeated alarm cancels the opposite
    /// one, which lies between.
    pub(super) fn insert_alarm(&mut self, key: Key, job: Job) {
        let other = Key::of_alarm(key.source, key != Key::of_alarm(key.source, true));
        if self.newest.contains_key(&key) {
            self.newest.remove(&other);
        } else if self.newest.len() >= PENDING {
            self.dropped += 1;
            return;
        }
        self.newest.insert(key, job);
    }

    /// A command has ended, or `None`: it could not be started, or was killed. Then a record is run
    /// again.
    pub(super) fn end(&mut self, key: Key, mut job: Job, ended: Option<Ended>) {
        self.running.remove(&key.source);
        match (ended, job.ticket.take()) {
            (Some(Ended::Itself | Ended::ByLimit), Some(ticket)) => ticket.done(),
            (None, Some(ticket)) if self.until.is_none() => {
                self.bytes += job.payload.len();
                // The earliest record is next, which is this one.
                self.last_topics.remove(&key.source);
                self.newest.insert(key, Job { ticket: Some(ticket), ..job });
                return;
            }
            // A record stays with its source.
            (_, _) => {}
        }
        let all = Key::first(key.source)..Key::first(key.source + 1);
        // The first topic is next without an entry, too.
        if key.which != Which::Topic(0) && self.newest.range(all).next().is_none() {
            self.last_topics.remove(&key.source);
        }
    }

    pub(super) fn drop_pending(&mut self) {
        // Records stay with their sources.
        self.dropped += self.newest.values().filter(|job| job.ticket.is_none()).count();
        self.newest.clear();
        self.bytes = 0;
    }
}

impl Pending for Jobs {
    type Item = Task;

    /// The newest state of one source after the other, so that a fast source does not delay others,
    /// and of one of its topics after the other.
    fn take(&mut self) -> Option<Task> {
        let now = Clock::new().now();
        if self.until.is_some_and(|until| now >= until) {
            self.drop_pending();
        }
        let (pending, bytes) = (self.newest.len(), &mut self.bytes);
        self.newest.retain(|_, job| {
            let is_fresh = job.fresh_until.is_none_or(|until| now <= until);
            *bytes -= if is_fresh { 0 } else { job.payload.len() };
            is_fresh
        });
        self.too_old += pending - self.newest.len();
        let mut idle = self.newest.keys().filter(|key| !self.running.contains(&key.source));
        let is_after = |key: &&&Key| self.last.is_some_and(|before| before < key.source);
        let source = idle.clone().find(|key| is_after(&key)).or_else(|| idle.next())?.source;
        let next = |from| {
            let end = Excluded(Key::first(source + 1));
            self.newest.range((from, end)).next().map(|(key, _)| key.clone())
        };
        let key = |which| Key { source, which };
        let last = self.last_topics.get(&source).cloned();
        let after = last.and_then(|last| next(Excluded(key(last))));
        let next = after.or_else(|| next(Included(key(Which::Topic(0)))))?;
        self.last = Some(source);
        self.last_topics.insert(source, next.which.clone());
        self.running.insert(source);
        let job = self.newest.remove(&next)?;
        self.bytes -= job.payload.len();
        Some(Task { key: next, job, until: self.until })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::records::Records;
    use super::super::records::tests::{cursor, source};
    use super::*;

    pub(in super::super) fn job(seq: u64) -> Job {
        let age = Some(Span::from_millis(5));
        let received_at = Clock::new().now();
        let generated_at = Time::from_nanos(seq);
        Job {
            source: "it".into(),
            topic: None,
            environment: vec![("FRESHLINE_SEQ", seq.to_string())],
            generated_at,
            age,
            received_at,
            fresh_until: None,
            payload: Vec::new(),
            ticket: None,
        }
    }

    fn seq(job: &Job) -> u64 {
        job.generated_at.as_nanos()
    }

    pub(in super::super) fn key(source: usize) -> Key {
        Key::first(source)
    }

    #[test]
    fn a_fast_source_does_not_hold_up_the_others() {
        let mut jobs = Jobs::default();
        let mut taken = Vec::new();
        for index in [1, 2, 3] {
            jobs.newest.insert(key(index), job(index as u64));
        }
        for _ in 0..6 {
            taken.extend(jobs.take().map(|Task { key, job, .. }| {
                jobs.running.remove(&key.source);
                seq(&job)
            }));
            jobs.newest.insert(key(1), job(1));
        }
        assert_eq!(taken, [1, 2, 3, 1, 1, 1]);
    }

    #[test]
    fn a_source_with_many_topics_has_one_turn_as_others_and_its_topics_take_turns() {
        let mut jobs = Jobs::default();
        let mut taken = Vec::new();
        for _ in 0..6 {
            for topic in 0..3 {
                jobs.newest.insert(Key { source: 1, which: Which::Topic(topic) }, job(1));
            }
            jobs.newest.insert(key(2), job(2));
            let task = jobs.take().expect("one is pending");
            jobs.running.remove(&task.key.source);
            taken.push((task.key.source, task.key.which));
        }
        let expected = [(1, 0), (2, 0), (1, 1), (2, 0), (1, 2), (2, 0)];
        assert_eq!(taken, expected.map(|(source, topic)| (source, Which::Topic(topic))));
    }

    #[test]
    fn pending_states_take_bounded_memory_and_the_longest_other_one_gives_way() {
        let mut jobs = Jobs::default();
        let of = |len| Job { payload: vec![0; len], ..job(len as u64) };
        for (index, len) in [(1, 10), (2, 500), (3, 400)] {
            assert!(jobs.insert(key(index), of(len), 1000).is_empty());
        }
        assert_eq!(jobs.insert(key(4), of(600), 1000), [2, 3], "as many as make room");
        assert_eq!(jobs.insert(key(4), of(990), 1000), [4], "the newest of its source");
        assert_eq!((jobs.bytes, jobs.newest.len()), (1000, 2));
        while let Some(Task { key, .. }) = jobs.take() {
            jobs.running.remove(&key.source);
        }
        assert_eq!(jobs.bytes, 0);
    }

    #[test]
    fn records_run_one_after_the_other_and_give_way_to_nothing() {
        let (mut jobs, mut records) = (Jobs::default(), Records::new(None, None));
        for number in 1..=200 {
            let ticket = Some(records.ticket(source(), &cursor(number), 9, 1));
            let job = Job { ticket, payload: vec![0; 9], ..job(number) };
            jobs.insert(Key { source: 1, which: Which::Record(number) }, job, 100);
        }
        let mut taken = Vec::new();
        while let Some(Task { key, job, .. }) = jobs.take() {
            assert!(jobs.take().is_none(), "one of a source at a time");
            // Each third record cannot be started at first.
            let is_first = taken.last() != Some(&seq(&job));
            let ended = (!(seq(&job).is_multiple_of(3) && is_first)).then_some(Ended::Itself);
            taken.push(seq(&job));
            jobs.end(key, job, ended);
        }
        taken.dedup();
        assert!(taken.into_iter().eq(1..=200));
        let next: Vec<u64> =
            std::iter::from_fn(|| records.poll_done()).map(|(_, cursor)| cursor.next).collect();
        assert!(next.into_iter().eq(1..=200));
    }

    #[test]
    fn a_pending_state_that_becomes_too_old_is_left_out() {
        let mut jobs = Jobs::default();
        let of = |index, fresh_until| {
            (key(index), Job { fresh_until, payload: vec![0; 5], ..job(index as u64) })
        };
        let now = Clock::new().now();
        for (key, job) in [of(1, Some(now)), of(2, Some(now + Span::from_secs(600)))] {
            jobs.insert(key, job, 1000);
        }
        while Clock::new().now() <= now {}
        assert_eq!(jobs.take().map(|task| task.key), Some(key(2)));
        assert_eq!((jobs.too_old, jobs.bytes), (1, 0));
    }

    #[test]
    fn alarms_of_a_topic_run_in_their_order_and_a_pair_too_much_cancels_out() {
        let mut jobs = Jobs::default();
        let alarm = |is_stale| Key::of_alarm(1, is_stale);
        let (stale, fresh) = (Some(alarm(true)), Some(alarm(false)));
        let next = |jobs: &mut Jobs| {
            let key = jobs.take().map(|task| task.key);
            key.clone().into_iter().for_each(|key| jobs.end(key, job(0), None));
            key
        };
        jobs.insert_alarm(alarm(true), job(1));
        assert_eq!(next(&mut jobs), stale);
        for (number, is_stale) in [(2, false), (3, true)] {
            jobs.insert_alarm(alarm(is_stale), job(number));
        }
        assert_eq!([next(&mut jobs), next(&mut jobs)], [fresh.clone(), stale]);
        for (number, is_stale) in [(4, false), (5, true), (6, false)] {
            jobs.insert_alarm(alarm(is_stale), job(number));
        }
        assert_eq!([next(&mut jobs), next(&mut jobs)], [fresh, None]);
        assert!(jobs.last_topics.is_empty(), "no memory for topics of which nothing is to come");
    }

    #[test]
    fn a_slow_command_holds_up_its_own_source_alone() {
        let mut jobs = Jobs::default();
        for index in [1, 2] {
            jobs.newest.insert(key(index), job(index as u64));
        }
        assert_eq!(jobs.take().map(|task| task.key), Some(key(1)));
        jobs.newest.insert(key(1), job(10));
        assert_eq!(jobs.take().map(|task| task.key), Some(key(2)));
        assert!(jobs.take().is_none(), "both run");
        jobs.running.remove(&1);
        assert_eq!(jobs.take().map(|task| seq(&task.job)), Some(10));
    }
}
