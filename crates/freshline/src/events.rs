//! Events of sources and monitors.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use freshline_core::wire::CloseReason;

use crate::queue::{Pending, Queue};

/// Maximum number of pending events. When it is exceeded, the oldest one is dropped and counted.
const MAX: usize = 1024;

/// A queue of events, the oldest first. If the application does not read them, the oldest ones are dropped. Clones share
/// the queue: each event goes to one of them.
#[derive(Debug)]
pub struct Events<E>(Arc<Queue<Recent<E>>>);

impl<E> Clone for Events<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Recent<E> {
    events: VecDeque<E>,
    dropped: u64,
}

impl<E> Default for Recent<E> {
    fn default() -> Self {
        Self { events: VecDeque::new(), dropped: 0 }
    }
}

impl<E> Pending for Recent<E> {
    type Item = E;

    fn take(&mut self) -> Option<E> {
        self.events.pop_front()
    }

    fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    fn take_all(&mut self) -> Self {
        Self { events: std::mem::take(&mut self.events), dropped: self.dropped }
    }
}

impl<E> Events<E> {
    pub(crate) fn new(can_wait: bool) -> Self {
        Self(Arc::new(Queue::new(can_wait)))
    }

    pub(crate) fn put(&self, event: E) {
        self.0.put(|recent| {
            if recent.events.len() == MAX {
                recent.events.pop_front();
                recent.dropped += 1;
            }
            recent.events.push_back(event);
        });
    }

    pub(crate) fn close(&self) {
        self.0.close();
    }

    /// Returns the next pending event, if there is one.
    pub fn try_next(&self) -> Option<E> {
        self.0.try_next()
    }

    /// Blocks until an event occurs. Returns `None` after the end. In a simulation it does not block.
    pub fn next_event(&self) -> Option<E> {
        self.0.next()
    }

    /// Blocks until an event occurs, for `patience` at most.
    pub fn next_within(&self, patience: Duration) -> Option<E> {
        self.0.next_within(patience)
    }

    /// Waits for the next event without blocking the thread, on any executor.
    pub async fn recv(&self) -> Option<E> {
        self.0.recv().await
    }

    /// Waits until the source or monitor has ended, without blocking the thread. Takes no event.
    pub async fn ended(&self) {
        self.0.closed().await;
    }

    /// Whether the source or monitor has ended and all pending events were read.
    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }

    /// The number of events that were dropped.
    pub fn dropped(&self) -> u64 {
        self.0.look(|recent| recent.dropped)
    }

    /// A file descriptor that is readable while an event is pending, and after the end.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        self.0.descriptor()
    }
}

/// An event of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceEvent {
    /// The session is open.
    Opened,
    /// The monitor stopped acknowledging; the source keeps trying to re-open the session.
    Silent,
    /// The monitor closed or refused the session; the source retries at a low rate.
    Closed(CloseReason),
    /// The monitor is unreachable, for this reason; the source retries.
    Unreachable(String),
    /// A sample failed, or a state or record cannot be sent.
    Trouble(String),
}
