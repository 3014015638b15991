//! Passes items from the monitor's thread to a consumer's, which may be slower.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Items that are pending for a consumer. They are bounded: a new item may replace a pending one.
pub(super) trait Pending: Default {
    /// The item that the consumer takes at a time.
    type Item;
    /// The next item, if one is pending.
    fn take(&mut self) -> Option<Self::Item>;
}

/// The result of a wait with a limit.
pub(super) enum Next<T> {
    Item(T),
    /// No item within that time.
    Late,
    /// All items are taken, and no more will come.
    Finished,
}

/// Passes items from one thread to another.
#[derive(Default)]
pub(super) struct Handover<Q> {
    state: Mutex<State<Q>>,
    changed: Condvar,
}

#[derive(Default)]
struct State<Q> {
    pending: Q,
    finished: bool,
}

impl<Q: Pending> Handover<Q> {
    /// Adds an item; never waits for the consumer.
    pub(super) fn put<T>(&self, put: impl FnOnce(&mut Q) -> T) -> T {
        let put = put(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner).pending);
        self.changed.notify_one();
        put
    }

    /// No more items will be added.
    pub(super) fn finish(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).finished = true;
        self.changed.notify_all();
    }

    /// The next item, if it comes within this time from now.
    pub(super) fn next_within(&self, time: Duration) -> Next<Q::Item> {
        let mut item = None;
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (state, _) = self
            .changed
            .wait_timeout_while(state, time, |state| {
                item = state.pending.take();
                item.is_none() && !state.finished
            })
            .unwrap_or_else(PoisonError::into_inner);
        match item {
            Some(item) => Next::Item(item),
            None if state.finished => Next::Finished,
            None => Next::Late,
        }
    }

    /// Waits for the next item; `None` if all are taken and no more will come.
    pub(super) fn next(&self) -> Option<Q::Item> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match state.pending.take() {
                Some(item) => return Some(item),
                None if state.finished => return None,
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}
