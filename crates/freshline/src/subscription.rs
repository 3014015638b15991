//! Delivery of states to one reader.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use freshline_core::pattern;

use crate::queue::{Pending, Queue};
use crate::state::{State, Ticket};

/// Maximum number of pending states per subscription. When it is exceeded, the oldest one is
/// dropped.
const MAX_STATES: usize = 1 << 16;

/// The same in bytes.
const MAX_BYTES: usize = 256 << 20;

/// Maximum number of pending records per subscription. Further records stay at their sources.
pub(crate) const MAX_RECORDS: usize = 1024;

/// Delivers the states of all topics that match a pattern.
///
/// A slow reader receives the newest state of each topic and key, in turn. It slows down neither
/// the network nor other readers, and [`Subscription::replaced`] counts the states that it missed.
/// Records are never replaced: a record stays at its source until all subscriptions to its topic
/// have room for it.
///
/// The iterator blocks, and ends when the monitor or source ends. With the feature `tokio` a
/// subscription is a `Stream`, and [`Subscription::descriptor`] is readable while a state is
/// pending.
pub struct Subscription(pub(crate) Arc<Reader>);

/// A reader of states.
pub(crate) struct Reader {
    pattern: Box<str>,
    /// Whether it only observes: it gets records as states, and a removal for each state of a
    /// session that ends.
    is_observer: bool,
    queue: Queue<Newest>,
    /// Called when there is room for a record again.
    on_room: Box<dyn Fn() + Send + Sync>,
}

type Key = (Box<str>, Box<str>, Option<Box<[u8]>>);

#[derive(Default)]
struct Newest {
    turns: VecDeque<Turn>,
    states: HashMap<Key, State>,
    /// Of the states.
    bytes: usize,
    /// Records in `turns`.
    records: usize,
    replaced: u64,
}

/// The next item in turn.
enum Turn {
    State(Key),
    Record(State),
}

impl Newest {
    fn put(&mut self, state: State) {
        if state.is_record() {
            self.records += 1;
            self.turns.push_back(Turn::Record(state));
            return;
        }
        let inner = state.inner();
        let key = (inner.source.clone(), inner.topic.clone(), inner.key.clone());
        self.bytes += state.payload().len();
        match self.states.insert(key.clone(), state) {
            Some(before) => {
                self.bytes -= before.payload().len();
                self.replaced += 1;
            }
            None => self.turns.push_back(Turn::State(key)),
        }
        // The newest one stays, however long it is.
        while self.states.len() > MAX_STATES || (self.bytes > MAX_BYTES && self.states.len() > 1) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let oldest = self.turns.iter().position(|turn| matches!(turn, Turn::State(_)));
        if let Some(Turn::State(key)) = oldest.and_then(|at| self.turns.remove(at)) {
            self.remove(&key);
            self.replaced += 1;
        }
    }

    fn remove(&mut self, key: &Key) -> Option<State> {
        let state = self.states.remove(key)?;
        self.bytes -= state.payload().len();
        Some(state)
    }
}

impl Pending for Newest {
    type Item = State;

    /// The next state that may still be used.
    fn take(&mut self) -> Option<State> {
        loop {
            match self.turns.pop_front()? {
                Turn::Record(record) => {
                    self.records -= 1;
                    record.inner().ticket.iter().for_each(Ticket::read);
                    return Some(record);
                }
                Turn::State(key) => {
                    if let Some(state) = self.remove(&key).filter(State::is_usable) {
                        return Some(state);
                    }
                }
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    fn take_all(&mut self) -> Self {
        let empty = Self { replaced: self.replaced, ..Self::default() };
        std::mem::replace(self, empty)
    }
}

impl Reader {
    pub(crate) fn new(pattern: &str, can_wait: bool, on_room: Box<dyn Fn() + Send + Sync>) -> Self {
        Self { pattern: pattern.into(), is_observer: false, queue: Queue::new(can_wait), on_room }
    }

    /// The same, as an observer.
    pub(crate) fn observing(self) -> Self {
        Self { is_observer: true, ..self }
    }

    pub(crate) fn is_observer(&self) -> bool {
        self.is_observer
    }

    /// A state was taken from the queue.
    fn taken(&self, state: Option<State>) -> Option<State> {
        let is_record = state.as_ref().is_some_and(State::is_record);
        if is_record && self.queue.look(|newest| newest.records) == MAX_RECORDS - 1 {
            (self.on_room)();
        }
        state
    }

    /// Whether it wants the states of a topic, by [`State::name`]; `false` once it is closed.
    pub(crate) fn wants(&self, name: &str) -> bool {
        !self.queue.is_closed() && pattern::matches(&self.pattern, name)
    }

    pub(crate) fn put(&self, state: State) {
        self.queue.put(|newest| newest.put(state));
    }

    pub(crate) fn has_room_for_record(&self) -> bool {
        self.queue.look(|newest| newest.records) < MAX_RECORDS
    }

    pub(crate) fn close(&self) {
        self.queue.close();
    }
}

impl Subscription {
    /// Returns the next pending state, if there is one.
    pub fn try_next(&self) -> Option<State> {
        self.0.taken(self.0.queue.try_next())
    }

    /// Blocks until a state arrives. Returns `None` after the monitor or source has ended. In a
    /// simulation it does not block.
    pub fn next_state(&self) -> Option<State> {
        self.0.taken(self.0.queue.next())
    }

    /// Blocks until a state arrives, for `patience` at most.
    pub fn next_within(&self, patience: Duration) -> Option<State> {
        self.0.taken(self.0.queue.next_within(patience))
    }

    /// Polls for the next state, on behalf of one task at a time.
    pub fn poll_next(&self, context: &mut Context<'_>) -> Poll<Option<State>> {
        self.0.queue.poll_next(context).map(|state| self.0.taken(state))
    }

    /// Waits for the next state without blocking the thread, on any executor and in any number of
    /// tasks. It is safe to cancel: no state is lost.
    pub async fn recv(&self) -> Option<State> {
        self.0.taken(self.0.queue.recv().await)
    }

    /// The number of states that were replaced by a newer one before they were read.
    pub fn replaced(&self) -> u64 {
        self.0.queue.look(|newest| newest.replaced)
    }

    /// Whether the subscription has ended and all pending states were read.
    pub fn is_over(&self) -> bool {
        self.0.queue.is_over()
    }

    /// Ends the subscription: drops pending states, and other threads that wait get `None`. Unread
    /// records are delivered again, to the next subscription.
    pub fn close(&self) {
        self.0.close();
        self.0.queue.clear();
    }

    /// A file descriptor that is readable while a state is pending, and after the end. Call
    /// [`Subscription::try_next`] until it returns `None`.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        self.0.queue.descriptor()
    }
}

impl Iterator for Subscription {
    type Item = State;

    fn next(&mut self) -> Option<State> {
        self.next_state()
    }
}

impl Drop for Subscription {
    /// As [`Subscription::close`].
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(feature = "tokio")]
impl futures_core::Stream for Subscription {
    type Item = State;

    fn poll_next(self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<State>> {
        Subscription::poll_next(&self, context)
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Subscription").field(&self.0.pattern).finish()
    }
}
