//! The newest state of each source, from the monitor's thread to those of the destinations.
//!
//! ```text
//!   monitor::Watch ─► Board ─► Relayed: the newest state, shared by all destinations
//!                        └───► Inbox of each destination: which sources have changed
//! ```
//!
//! All of it is bounded by the number of the monitor's sources: a newer state replaces an older one, and an
//! inbox has one entry per place of the monitor.
//!
//! **A state whose age is unknown is held back.** A destination counts the age from the generation, so an
//! update must say how old its state is when it leaves. The state of an opening has no known age yet; the
//! source's next update brings it, one round trip later.
//!
//! **An older state never replaces a newer one of the same name.** Where a session takes a name over from
//! another one, its states count only once they are newer than what was handed on before. Otherwise a copy
//! of a state that returns by a loop of relays would travel around the loop for ever.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freshline_core::session::{End, RemovedTopic, SourceKey, TopicRecord};
use freshline_core::unit::{Span, Time};

use crate::monitor::{Record, Watch};
use crate::waker::Waker;

/// The same bytes under the same name, generated so little later, are the same state: times of generation
/// that went through two estimates of clock offsets differ by at most half of both round trips.
const SAME: Span = Span::from_secs(1);

/// A state of a source.
#[derive(Debug, Clone)]
pub(super) struct State {
    /// Counts the states of a source.
    pub(super) number: u64,
    /// When it was generated, on this host's clock.
    pub(super) generated_at: Time,
    /// By how much that can be too late.
    pub(super) label_error: Span,
    pub(super) bytes: Arc<[u8]>,
}

/// How a session at a destination ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parting {
    /// Its source has closed its session, or lost the right to it: the session is closed.
    Close,
    /// Its source has fallen silent: so does the session, and the destination keeps the name with a growing
    /// age, as this monitor does.
    Leave,
}

impl Parting {
    /// That of a source which is gone for this reason. Without a name nothing is kept of it anywhere.
    pub(super) fn of(why: End, name: &str) -> Self {
        match why {
            End::Displaced | End::Idle if !name.is_empty() => Self::Leave,
            _ => Self::Close,
        }
    }
}

/// A source that is relayed: what its sessions at the destinations share.
#[derive(Debug)]
pub(super) struct Relayed {
    /// Empty for a source without a name.
    pub(super) name: Box<str>,
    /// The name, or the label of the session at this monitor.
    pub(super) label: Box<str>,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    newest: Option<State>,
    /// What the name's former session has brought, until something newer comes.
    former: Option<State>,
    parting: Option<Parting>,
}

impl Relayed {
    /// `session` is the label of its session.
    fn new(name: &str, session: &str) -> Self {
        let label = if name.is_empty() { session } else { name };
        Self { name: name.into(), label: label.into(), held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest state.
    pub(super) fn newest(&self) -> Option<State> {
        self.held().newest.clone()
    }

    /// How its sessions end, once its source is gone.
    pub(super) fn parting(&self) -> Option<Parting> {
        self.held().parting
    }

    /// Another session has its name now.
    fn on_taken_over(&self) {
        let mut held = self.held();
        held.former = held.newest.clone();
    }

    /// A state has come; whether it is newer than what was handed on.
    fn put(&self, generated_at: Time, label_error: Span, bytes: &[u8]) -> bool {
        let mut held = self.held();
        if held.former.as_ref().is_some_and(|former| is_old(former, generated_at, bytes)) {
            return false;
        }
        held.former = None;
        let number = held.newest.as_ref().map_or(1, |newest| newest.number + 1);
        held.newest = Some(State { number, generated_at, label_error, bytes: bytes.into() });
        true
    }
}

/// Whether a state is that of a name's former session again, or an older one.
fn is_old(former: &State, generated_at: Time, bytes: &[u8]) -> bool {
    generated_at <= former.generated_at
        || (generated_at <= former.generated_at + SAME && *former.bytes == *bytes)
}

/// The places of the monitor in which something has changed, with the sources that are there now.
pub(super) type Changes = HashMap<usize, Option<Arc<Relayed>>>;

/// What a destination's thread has yet to look at.
#[derive(Debug)]
pub(super) struct Inbox {
    changes: Mutex<Changes>,
    waker: Arc<Waker>,
}

impl Inbox {
    /// `waker` wakes the destination's thread.
    pub(super) fn new(waker: Arc<Waker>) -> Self {
        Self { changes: Mutex::default(), waker }
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, place: usize, source: Option<Arc<Relayed>>) {
        let mut changes = self.changes();
        let is_awake = !changes.is_empty();
        changes.insert(place, source);
        drop(changes);
        if !is_awake {
            // It fails only when the thread has ended.
            let _ = self.waker.wake();
        }
    }

    /// What has changed since this was last asked.
    pub(super) fn take(&self) -> Changes {
        std::mem::take(&mut self.changes())
    }
}

/// The monitor's side.
pub(super) struct Board {
    /// By the places of the monitor.
    sources: Vec<Option<Arc<Relayed>>>,
    inboxes: Vec<Arc<Inbox>>,
    old_states: OldStates,
}

/// Counts states that were not newer than what was handed on under their name.
#[derive(Debug, Clone, Default)]
pub(super) struct OldStates(Arc<AtomicU64>);

impl OldStates {
    pub(super) fn number(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Board {
    pub(super) fn new(inboxes: Vec<Arc<Inbox>>) -> Self {
        Self { sources: Vec::new(), inboxes, old_states: OldStates::default() }
    }

    pub(super) fn old_states(&self) -> OldStates {
        self.old_states.clone()
    }

    /// The sources of the monitor have changed in a place.
    fn publish(&self, place: usize) {
        let source = self.sources.get(place).and_then(Option::as_ref);
        self.inboxes.iter().for_each(|inbox| inbox.put(place, source.cloned()));
    }

    /// A state has come, or its age.
    fn put(&mut self, now: Time, source: SourceKey, record: &Record) {
        let place = source.index();
        let relayed = self.sources.get(place).and_then(Option::as_ref);
        let (Some(relayed), Some(age)) = (relayed, record.state_age(now)) else { return };
        let bounded = record.bounded_age(now);
        let error = bounded.map_or(Span::MAX, |bounded| bounded.max() - age);
        if relayed.put(now - age, error, record.payload().unwrap_or_default()) {
            self.publish(place);
        } else {
            self.old_states.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Watch for Board {
    fn opened(&mut self, _now: Time, source: SourceKey, record: &Record) {
        let place = source.index();
        if self.sources.len() <= place {
            self.sources.resize(place + 1, None);
        }
        if let Some(former) = &self.sources[place] {
            if !record.name.is_empty() && former.name == record.name {
                return former.on_taken_over();
            }
            former.held().parting = Some(Parting::Close);
        }
        self.sources[place] =
            Some(Arc::new(Relayed::new(&record.name, &record.label().to_string())));
        self.publish(place);
    }

    fn fresh(&mut self, now: Time, source: SourceKey, record: &Record) {
        self.put(now, source, record);
    }

    fn aged(&mut self, now: Time, source: SourceKey, record: &Record) {
        self.put(now, source, record);
    }

    fn gone(&mut self, _now: Time, source: SourceKey, why: End) {
        let place = source.index();
        let Some(relayed) = self.sources.get_mut(place).and_then(Option::take) else { return };
        relayed.held().parting = Some(Parting::of(why, &relayed.name));
        self.publish(place);
    }
}

/// What the monitor reports, to a board and to another watcher.
pub(super) struct Both<'a> {
    pub(super) board: &'a mut Board,
    pub(super) other: &'a mut dyn Watch,
}

impl Watch for Both<'_> {
    fn fresh(&mut self, now: Time, source: SourceKey, record: &Record) {
        self.board.fresh(now, source, record);
        self.other.fresh(now, source, record);
    }

    fn fresh_topic(&mut self, now: Time, source: SourceKey, record: &Record, topic: &TopicRecord) {
        self.other.fresh_topic(now, source, record, topic);
    }

    fn removed(&mut self, now: Time, source: SourceKey, record: &Record, removed: &RemovedTopic) {
        self.other.removed(now, source, record, removed);
    }

    fn aged(&mut self, now: Time, source: SourceKey, record: &Record) {
        self.board.aged(now, source, record);
        self.other.aged(now, source, record);
    }

    fn opened(&mut self, now: Time, source: SourceKey, record: &Record) {
        self.board.opened(now, source, record);
        self.other.opened(now, source, record);
    }

    fn gone(&mut self, now: Time, source: SourceKey, why: End) {
        self.board.gone(now, source, why);
        self.other.gone(now, source, why);
    }

    fn turn(&mut self, now: Time) {
        self.other.turn(now);
    }

    fn replaced(&self, source: SourceKey) -> u64 {
        self.other.replaced(source)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn the_newest_state_is_held_and_each_has_its_number() {
        let source = Relayed::new("robot", "1");
        assert!(source.newest().is_none());
        // Within a session the monitor has sorted them: times of generation are estimates.
        for (number, millis) in [(1, 100), (2, 99), (3, 200)] {
            assert!(source.put(at(millis), Span::ZERO, b"state"));
            let newest = source.newest().unwrap();
            assert_eq!((newest.number, newest.generated_at), (number, at(millis)));
        }
    }

    #[test]
    fn under_a_name_that_was_taken_over_only_newer_states_count() {
        let source = Relayed::new("robot", "1");
        source.put(at(1_000), Span::ZERO, b"new");
        source.on_taken_over();
        for (millis, bytes) in [(900, &b"old"[..]), (1_000, b"same"), (1_020, b"new")] {
            assert!(!source.put(at(millis), Span::ZERO, bytes), "{bytes:?} of {millis} ms");
        }
        assert_eq!(source.newest().unwrap().number, 1);
        assert!(source.put(at(1_001), Span::ZERO, b"newer"));
        assert!(source.put(at(900), Span::ZERO, b"late"), "the session counts from now on");
        source.on_taken_over();
        assert!(
            source.put(at(2_001), Span::ZERO, b"late"),
            "unchanged for longer than two estimates differ"
        );
    }

    #[test]
    fn a_session_is_closed_with_its_source_and_silent_with_it_if_it_has_a_name() {
        use Parting::{Close, Leave};
        for (why, named) in [
            (End::Closed, Close),
            (End::Revoked, Close),
            (End::Idle, Leave),
            (End::Displaced, Leave),
        ] {
            assert_eq!((Parting::of(why, "robot"), Parting::of(why, "")), (named, Close));
        }
    }

    #[test]
    fn an_inbox_has_one_entry_per_place_and_wakes_its_thread_once() {
        let woken = Arc::new(AtomicUsize::new(0));
        let theirs = Arc::clone(&woken);
        let waker = Waker::new(move || {
            theirs.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        let inbox = Inbox::new(Arc::new(waker));
        let [first, second] = ["first", "second"].map(|name| Arc::new(Relayed::new(name, "1")));
        for source in [Some(&first), None, Some(&second), Some(&second)] {
            inbox.put(7, source.cloned());
        }
        let changes = inbox.take();
        let now_there = changes.get(&7).and_then(Option::as_ref).expect("a source");
        assert!(Arc::ptr_eq(now_there, &second) && changes.len() == 1);
        inbox.put(3, None);
        assert_eq!((inbox.take().len(), woken.load(Ordering::Relaxed)), (1, 2));
    }
}
