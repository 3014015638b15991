//! The newest state of each topic and key of a relayed source.
//!
//! ```text
//!   monitor ─► put, remove ─► states, by topic and key ─► changes since a number ─► a session each
//! ```
//!
//! Each state gets the next number of its source; a session at a destination uses it to find the
//! states that are new to it. A removal leaves no trace but a count: a session removes its keys
//! that no longer exist here.
//!
//! **An older state never replaces a newer one of the same name, topic and key.** When a session
//! takes a name over from another one, its states count only once they are newer than the states
//! already forwarded. Otherwise a copy of a state that returns by a loop of relays would travel
//! around the loop forever. State that the new session does not bring is dropped after [`FORMER`].

mod held;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freshline_core::session::{Cursor, MAX_STREAMS, NextRecord, SourceKey, TakenRecord};
use freshline_core::state::{Budget, Party};
use freshline_core::unit::{Span, Time};

use self::held::{Entry, Held, Kind, Owner};
use super::parting::Parting;
use super::records::Records;
use crate::monitor::RecordRoom;

/// Topics and keys that a new session under a name does not bring are dropped after this time: long
/// enough for all states of a source at a low rate.
pub(super) const FORMER: Span = Span::from_secs(60);

/// Identifies a state of a source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Which {
    /// The name of its topic; empty for a source without topics.
    pub(super) topic: Arc<str>,
    /// The key, in a topic with keys.
    pub(super) key: Option<Box<[u8]>>,
}

impl Which {
    pub(super) fn new(topic: &str, key: Option<&[u8]>) -> Self {
        Self { topic: topic.into(), key: key.map(Into::into) }
    }
}

/// A state of a source.
#[derive(Debug, Clone)]
pub(super) struct State {
    /// Counts the states of a source.
    pub(super) number: u64,
    /// When it was generated, on this host's clock.
    pub(super) generated_at: Time,
    /// By how much that time can be too late.
    pub(super) label_error: Span,
    pub(super) bytes: Arc<[u8]>,
}

/// The result of putting a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    New,
    /// It is not newer than the state already forwarded under its name.
    Old,
    /// There is no room for it, or the source has other topics than it announced.
    LeftOut,
    /// The former session of the name had other topics, so this state cannot share a session with
    /// it at the destinations.
    Clash,
}

/// A relayed source, shared by its sessions at the destinations.
#[derive(Debug)]
pub(super) struct Relayed {
    /// Empty for a source without a name.
    pub(super) name: Box<str>,
    /// The name, or the label of the session at this monitor.
    pub(super) label: Box<str>,
    held: Mutex<Held>,
    pub(super) records: Records,
}

/// The changes that are new to a session at a destination.
#[derive(Debug)]
pub(super) struct Changes {
    /// In the order of their numbers.
    pub(super) states: Vec<(Arc<Which>, State)>,
    /// The topics from which keys were removed.
    pub(super) removed: Vec<Arc<str>>,
    /// By how much the generation time of any state can be too late.
    pub(super) label_error: Span,
    /// The end of these changes: the number of the newest state, and the count of removals.
    pub(super) until: Until,
}

/// A session's position at a destination: the number of the newest state taken, and the count of
/// removals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Until {
    pub(super) number: u64,
    pub(super) removals: u64,
}

impl Relayed {
    /// `session` is the label of its session.
    pub(super) fn new(name: &str, session: &str, records: Records) -> Self {
        let label = if name.is_empty() { session } else { name };
        Self { name: name.into(), label: label.into(), held: Mutex::default(), records }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- the monitor's side ----

    /// Puts a state that has arrived, with its age.
    pub(super) fn put(
        &self,
        which: &Which,
        (generated_at, label_error): (Time, Span),
        bytes: &[u8],
        budget: &mut Budget,
    ) -> Put {
        let mut held = self.held();
        let kind = if which.key.is_some() { Kind::Keyed } else { Kind::Latest };
        if let Some(refused) = held.refuse(&which.topic, kind) {
            return refused;
        }
        if !held.states.contains_key(which) && held.states.len() == MAX_STREAMS {
            held.drop_former(budget);
            if held.states.len() == MAX_STREAMS {
                return Put::LeftOut;
            }
        }
        held.put(which, (generated_at, label_error), bytes, budget)
    }

    /// Puts a record that has arrived, with its age.
    pub(super) fn put_record(
        &self,
        source: SourceKey,
        taken: &TakenRecord,
        generated: (Time, Span),
        budget: &mut Budget,
    ) -> Put {
        let (topic, stream) = (taken.cursor.topic.as_ref().into(), taken.cursor.stream);
        if let Some(refused) = self.held().refuse(&topic, Kind::Every(stream)) {
            return refused;
        }
        if !self.records.continues(taken) {
            return Put::Clash;
        }
        match self.records.put(source, taken, generated, budget) {
            true => Put::New,
            false => Put::LeftOut,
        }
    }

    /// Prepares restarted sessions for the topic of this record, which will be handed out again.
    pub(super) fn expect_records(&self, taken: &TakenRecord) {
        let topic = taken.cursor.topic.as_ref().into();
        // The source is new: only states that were handed over to it could cause a refusal.
        let _ = self.held().refuse(&topic, Kind::Every(taken.cursor.stream));
    }

    /// Whether the party's budget has room for the next record of a topic, and the topic accepts
    /// it.
    pub(super) fn room_for_record(
        &self,
        topic: &str,
        next: &NextRecord,
        budget: (&Budget, Party),
    ) -> RecordRoom {
        if !self.records.has_former(topic, next) {
            return RecordRoom::Full;
        }
        let refused = self.held().check(topic, Kind::Every(next.stream));
        match refused {
            // Its sessions restart for the record, with the states that its source has brought.
            Some(Put::Clash) => self.records.room_for_first(topic, next, self.former(), budget),
            Some(_) => RecordRoom::Never,
            None => self.records.room_for(topic, next, budget),
        }
    }

    /// Its share of the budget.
    pub(super) fn share(&self) -> usize {
        self.share_of(|_| true)
    }

    /// The part of its share that is freed when its sessions restart.
    fn former(&self) -> usize {
        self.share_of(|entry| entry.owner == Owner::Former)
    }

    /// The share of the budget of these states and of all records.
    fn share_of(&self, is_counted: impl Fn(&Entry) -> bool) -> usize {
        let held = self.held();
        let entries = held.states.values().filter(|entry| is_counted(entry));
        entries.map(|entry| entry.share).sum::<usize>() + self.records.share()
    }

    /// Removes a key; returns whether it existed.
    pub(super) fn remove(&self, which: &Which, budget: &mut Budget) -> bool {
        self.held().remove(which, budget)
    }

    /// Marks all states as a former session's: another session has the name now.
    pub(super) fn on_taken_over(&self) {
        let mut held = self.held();
        held.states.values_mut().for_each(|entry| entry.owner = Owner::Former);
        held.topics.values_mut().for_each(|topic| topic.is_former = true);
    }

    /// Drops the states that the name's present session has not brought; returns whether a key is
    /// among them.
    pub(super) fn drop_former(&self, budget: &mut Budget) -> bool {
        self.held().drop_former(budget)
    }

    /// Moves all states that the name's present session has brought to another source, which is
    /// empty.
    pub(super) fn hand_over(&self, to: &Self, budget: &mut Budget) {
        let (mut held, mut theirs) = (self.held(), to.held());
        let is_kept = |which: &Which| !which.topic.is_empty();
        let own = held.states.iter().filter(|(_, entry)| entry.owner != Owner::Former);
        let own: Vec<_> = own.map(|(which, _)| Arc::clone(which)).collect();
        for which in own.into_iter().filter(|which| is_kept(which)) {
            let Some(Entry { state, mut share, .. }) = held.states.remove(&which) else { continue };
            held.forget(&state);
            let kind = held.topics.get(&which.topic).map_or(Kind::Latest, |topic| topic.kind);
            if theirs.refuse(&which.topic, kind).is_none() {
                // Moved with its share: once released, the share might not be available to this
                // party again.
                theirs.insert(which, state, share);
            } else {
                budget.release(&mut share);
            }
        }
    }

    /// Ends the source; returns the cursors of the topics with unfinished records.
    pub(super) fn end(&self, parting: Parting, budget: &mut Budget) -> Vec<Cursor> {
        let mut held = self.held();
        held.parting = Some(parting);
        for entry in std::mem::take(&mut held.states).values_mut() {
            budget.release(&mut entry.share);
        }
        held.by_number.clear();
        self.records.clear(budget)
    }

    // ---- the destinations' side ----

    /// How its sessions end, once its source is gone.
    pub(super) fn parting(&self) -> Option<Parting> {
        self.held().parting
    }

    /// The changes since this position.
    pub(super) fn changes(&self, since: Until) -> Changes {
        let held = self.held();
        let new = held.by_number.range(since.number + 1..);
        let new = new.filter_map(|(_, which)| {
            Some((Arc::clone(which), held.states.get(which)?.state.clone()))
        });
        let topics = held.topics.iter().filter(|(_, topic)| topic.removed_at > since.removals);
        Changes {
            states: new.collect(),
            removed: topics.map(|(name, _)| Arc::clone(name)).collect(),
            label_error: held.errors.last_key_value().map_or(Span::ZERO, |(error, _)| *error),
            until: Until { number: held.newest, removals: held.removals },
        }
    }

    /// The states of these that still exist.
    pub(super) fn states(&self, of: &BTreeSet<Arc<Which>>) -> Vec<(Arc<Which>, State)> {
        let held = self.held();
        let states = of
            .iter()
            .filter_map(|which| Some((Arc::clone(which), held.states.get(which)?.state.clone())));
        states.collect()
    }

    /// The keys of these that no longer exist in a topic.
    pub(super) fn missing<'a>(
        &self,
        topic: &Arc<str>,
        keys: impl Iterator<Item = &'a [u8]>,
    ) -> Vec<Box<[u8]>> {
        let held = self.held();
        let keys = keys.filter(|key| {
            let which = Which { topic: Arc::clone(topic), key: Some((*key).into()) };
            !held.states.contains_key(&which)
        });
        keys.map(Into::into).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::records::Outlet;
    use super::held::COST;
    use super::*;
    use crate::waker::Waker;

    pub(in super::super) fn relayed() -> Relayed {
        let outlet = Outlet::new(Arc::new(Waker::new(|| Ok(()))));
        Relayed::new("robot", "1", Records::new(1, outlet))
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn put(source: &Relayed, which: &Which, millis: u64, bytes: &[u8], budget: &mut Budget) -> Put {
        source.put(which, (at(millis), Span::ZERO), bytes, budget)
    }

    fn numbers(source: &Relayed, since: Until) -> Vec<(u64, Time)> {
        let states = source.changes(since).states;
        states.iter().map(|(_, state)| (state.number, state.generated_at)).collect()
    }

    #[test]
    fn the_newest_state_is_held_and_each_has_its_number() {
        let (source, only) = (relayed(), Which::new("", None));
        let budget = &mut Budget::new(0);
        assert!(numbers(&source, Until::default()).is_empty());
        // Within a session the monitor has sorted them: times of generation are estimates.
        for (number, millis) in [(1, 100), (2, 99), (3, 200)] {
            assert_eq!(put(&source, &only, millis, b"state", budget), Put::New);
            assert_eq!(numbers(&source, Until::default()), [(number, at(millis))]);
        }
        assert!(numbers(&source, source.changes(Until::default()).until).is_empty());
    }

    #[test]
    fn under_a_name_that_was_taken_over_only_newer_states_count() {
        let (source, only) = (relayed(), Which::new("", None));
        let budget = &mut Budget::new(0);
        put(&source, &only, 1_000, b"new", budget);
        source.on_taken_over();
        for (millis, bytes) in [(900, &b"old"[..]), (1_000, b"same"), (1_020, b"new")] {
            let result = put(&source, &only, millis, bytes, budget);
            assert_eq!(result, Put::Old, "{bytes:?} of {millis} ms");
        }
        assert_eq!(numbers(&source, Until::default()), [(1, at(1_000))]);
        assert_eq!(put(&source, &only, 1_001, b"newer", budget), Put::New);
        let late = put(&source, &only, 900, b"late", budget);
        assert_eq!(late, Put::New, "the session's states count from now on");
        source.on_taken_over();
        let unchanged = put(&source, &only, 2_001, b"late", budget);
        assert_eq!(unchanged, Put::New, "unchanged for longer than two estimates differ");
    }

    #[test]
    fn keys_that_a_new_session_does_not_bring_are_dropped_and_others_stay() {
        let source = relayed();
        let budget = &mut Budget::new(1 << 20);
        let [kept, gone, new] = [b"kept", b"gone", b"newk"].map(|key| Which::new("tf", Some(key)));
        for which in [&kept, &gone] {
            put(&source, which, 100, b"state", budget);
        }
        let since = source.changes(Until::default()).until;
        source.on_taken_over();
        assert_eq!(put(&source, &kept, 100, b"state", budget), Put::Old);
        assert_eq!(put(&source, &new, 200, b"state", budget), Put::New);
        assert!(source.changes(since).removed.is_empty());
        assert!(source.drop_former(budget) && !source.drop_former(budget));
        let changes = source.changes(since);
        assert_eq!(changes.states.len(), 1);
        assert_eq!(changes.removed, ["tf".into()]);
        let keys = [&b"kept"[..], b"gone", b"newk"];
        assert_eq!(source.missing(&"tf".into(), keys.into_iter()), [(*b"gone").into()]);
        assert!(source.remove(&new, budget) && !source.remove(&new, budget));
        source.end(Parting::Leave, budget);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn what_has_no_room_is_left_out_and_other_kinds_of_topics_clash_after_a_restart_alone() {
        let source = relayed();
        let budget = &mut Budget::new(COST + 9);
        let (pose, keyed) = (Which::new("pose", None), Which::new("pose", Some(b"a")));
        assert_eq!(put(&source, &pose, 100, b"nine char", budget), Put::New);
        assert_eq!(put(&source, &pose, 101, b"ten chars!", budget), Put::LeftOut);
        assert_eq!(put(&source, &keyed, 102, b"", budget), Put::LeftOut);
        assert_eq!(put(&source, &Which::new("", None), 102, b"", budget), Put::LeftOut);
        assert_eq!(numbers(&source, Until::default()), [(1, at(100))]);
        source.on_taken_over();
        assert_eq!(put(&source, &keyed, 103, b"", budget), Put::Clash);
        assert_eq!(put(&source, &pose, 104, b"nine", budget), Put::New);
        assert_eq!(put(&source, &keyed, 105, b"", budget), Put::LeftOut);
        let plain = relayed();
        assert_eq!(put(&plain, &Which::new("", None), 100, b"state", budget), Put::New);
        assert_eq!(put(&plain, &pose, 101, b"", budget), Put::Clash, "it has topics after all");
    }

    #[test]
    fn sessions_that_begin_anew_keep_their_states_where_there_is_no_room_for_others() {
        let (source, renewed, other) = (relayed(), relayed(), relayed());
        let budget = &mut Budget::new(4 * COST).with_reserve(5 * COST);
        let keys: Vec<_> = (0..3).map(|key| Which::new("tf", Some(&[key]))).collect();
        budget.enter(Party(1, 1));
        for which in &keys {
            assert_eq!(put(&source, which, 100, b"state", budget), Put::New);
        }
        budget.enter(Party(2, 2));
        assert_eq!(put(&other, &keys[0], 100, b"state", budget), Put::New);
        budget.enter(Party(1, 1));
        let used = budget.used();
        source.hand_over(&renewed, budget);
        assert_eq!(numbers(&renewed, Until::default()).len(), 3);
        assert_eq!((budget.used(), source.share()), (used, 0));
        renewed.end(Parting::Leave, budget);
        assert_eq!(budget.used(), other.share());
    }

    #[test]
    fn the_greatest_error_of_the_states_that_are_held_counts() {
        let source = relayed();
        let budget = &mut Budget::new(1 << 20);
        let [a, b] = [b"a", b"b"].map(|key| Which::new("tf", Some(key)));
        let error = |source: &Relayed| source.changes(Until::default()).label_error.as_nanos();
        for (which, nanos, greatest) in [(&a, 5, 5), (&b, 9, 9), (&a, 7, 9), (&b, 1, 7)] {
            source.put(which, (at(1), Span::from_nanos(nanos)), b"", budget);
            assert_eq!(error(&source), greatest);
        }
        source.remove(&a, budget);
        assert_eq!(error(&source), 1);
    }
}
