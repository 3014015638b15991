//! What happens to sources and monitors, for applications that want to know.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use freshline_core::wire::CloseReason;

use crate::queue::{Pending, Queue};

/// Events that wait for a reader; beyond them the oldest are dropped, and counted.
const MAX: usize = 1024;

/// What has happened, the oldest first. An application that does not read loses the oldest events alone.
#[derive(Debug)]
pub struct Events<E>(Queue<Recent<E>>);

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
        Self(Queue::new(can_wait))
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

    /// The next event, if there is one.
    pub fn try_next(&self) -> Option<E> {
        self.0.try_next()
    }

    /// The next event, when it comes; `None` once there are no more. In virtual time it does not wait.
    pub fn next_event(&self) -> Option<E> {
        self.0.next()
    }

    /// The next event, if one comes within `patience`.
    pub fn next_within(&self, patience: Duration) -> Option<E> {
        self.0.next_within(patience)
    }

    /// Waits for the next event without blocking the thread, on any executor.
    pub async fn recv(&self) -> Option<E> {
        self.0.recv().await
    }

    /// Events that nobody has read in time.
    pub fn dropped(&self) -> u64 {
        self.0.look(|recent| recent.dropped)
    }

    /// A descriptor that is readable while an event is pending, and at the end.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        self.0.descriptor()
    }
}

/// What has happened to a source.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceEvent {
    /// The monitor holds its session.
    Opened,
    /// The monitor has not answered for too long; the source goes on trying.
    Silent,
    /// The monitor has ended or refused the session; the source tries again, rarely.
    Closed(CloseReason),
    /// The transport says why the monitor cannot be reached; the source tries again.
    Unreachable(String),
    /// No sample could be taken, or something that was given cannot be sent.
    Trouble(String),
}
