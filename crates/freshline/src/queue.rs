//! Queues from one thread to another, to a task, or to a loop that polls a descriptor.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::clock::Clock;

/// The number of a task that polls without a future of its own.
const ONE_TASK: u64 = 0;

/// Pending items.
pub(crate) trait Pending: Default {
    type Item;

    /// The next item, if there is one.
    fn take(&mut self) -> Option<Self::Item>;

    /// Whether no item is pending.
    fn is_empty(&self) -> bool;

    /// Takes all items.
    #[must_use]
    fn take_all(&mut self) -> Self;
}

/// Items queued for a reader. Putting one never waits for the reader.
#[derive(Debug)]
pub(crate) struct Queue<P> {
    inner: Mutex<Inner<P>>,
    changed: Condvar,
    /// Readable while an item is pending, for loops that poll; created on first use.
    descriptor: OnceLock<EventFd>,
    /// Whether a reader can wait: not in virtual time.
    can_wait: bool,
}

#[derive(Debug, Default)]
struct Inner<P> {
    pending: P,
    is_closed: bool,
    /// Wakers of waiting tasks, by their numbers.
    wakers: BTreeMap<u64, Waker>,
    last_task: u64,
}

impl<P: Pending> Queue<P> {
    pub(crate) fn new(can_wait: bool) -> Self {
        let (inner, changed) = (Mutex::default(), Condvar::new());
        Self { inner, changed, descriptor: OnceLock::new(), can_wait }
    }

    /// Changes the pending items, and wakes readers if there are some then. Does nothing after
    /// [`Queue::close`].
    pub(crate) fn put(&self, change: impl FnOnce(&mut P)) {
        let mut inner = self.lock();
        if inner.is_closed {
            return;
        }
        let was_empty = inner.pending.is_empty();
        change(&mut inner.pending);
        if was_empty && !inner.pending.is_empty() {
            self.wake(inner);
        }
    }

    /// Looks at the pending items.
    pub(crate) fn look<T>(&self, at: impl FnOnce(&P) -> T) -> T {
        at(&self.lock().pending)
    }

    /// Drops the pending items.
    pub(crate) fn clear(&self) {
        let pending = self.lock().pending.take_all();
        // Not under the lock: records notify the monitor of their end, which looks at the queue.
        drop(pending);
    }

    /// Ends the queue: no more items follow.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.is_closed = true;
        self.wake(inner);
    }

    fn wake(&self, mut inner: MutexGuard<'_, Inner<P>>) {
        // Under the lock, as a reader that takes the item makes it unreadable again.
        if let Some(descriptor) = self.descriptor.get() {
            // It fails only when it is readable anyway.
            let _ = descriptor.write(1);
        }
        let wakers = std::mem::take(&mut inner.wakers);
        drop(inner);
        self.changed.notify_all();
        wakers.into_values().for_each(Waker::wake);
    }

    /// The next item, if there is one.
    pub(crate) fn try_next(&self) -> Option<P::Item> {
        self.take(&mut self.lock())
    }

    /// Waits for the next item; `None` after the end, and in virtual time also if none is pending.
    pub(crate) fn next(&self) -> Option<P::Item> {
        let mut inner = self.lock();
        loop {
            match self.take(&mut inner) {
                Some(item) => return Some(item),
                None if inner.is_closed || !self.can_wait => return None,
                None => inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// The same, with `None` after `patience` as well.
    pub(crate) fn next_within(&self, patience: Duration) -> Option<P::Item> {
        let clock = Clock::real();
        let until = clock.now() + patience.into();
        let mut inner = self.lock();
        loop {
            let left = Duration::from(until.since(clock.now()));
            match self.take(&mut inner) {
                Some(item) => return Some(item),
                None if inner.is_closed || !self.can_wait || left.is_zero() => return None,
                None => {
                    let waited = self.changed.wait_timeout(inner, left);
                    inner = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }

    /// The same for a task, which is woken when it may try again; for one task at a time.
    pub(crate) fn poll_next(&self, context: &mut Context<'_>) -> Poll<Option<P::Item>> {
        self.poll_as(ONE_TASK, context)
    }

    /// Waits for the next item without blocking the thread; any number of tasks at a time.
    pub(crate) fn recv(&self) -> Recv<'_, P> {
        let mut inner = self.lock();
        inner.last_task += 1;
        Recv { queue: self, task: inner.last_task }
    }

    /// Waits for the end without taking an item; any number of tasks at a time.
    pub(crate) fn closed(&self) -> Closed<'_, P> {
        Closed(self.recv())
    }

    fn poll_as(&self, task: u64, context: &mut Context<'_>) -> Poll<Option<P::Item>> {
        let mut inner = self.lock();
        match self.take(&mut inner) {
            Some(item) => Poll::Ready(Some(item)),
            None if inner.is_closed => Poll::Ready(None),
            None => {
                inner.wakers.insert(task, context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Whether it has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Whether it has ended and no item is pending.
    pub(crate) fn is_over(&self) -> bool {
        let inner = self.lock();
        inner.is_closed && inner.pending.is_empty()
    }

    /// A descriptor that is readable while an item is pending, and after the end.
    pub(crate) fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        if self.descriptor.get().is_none() {
            let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
            let made = EventFd::from_value_and_flags(0, flags)?;
            // Another thread may have been faster.
            let _ = self.descriptor.set(made);
        }
        let descriptor = self.descriptor.get().ok_or(io::ErrorKind::NotFound)?;
        let inner = self.lock();
        if inner.is_closed || !inner.pending.is_empty() {
            let _ = descriptor.write(1);
        }
        Ok(descriptor.as_fd())
    }

    fn take(&self, inner: &mut MutexGuard<'_, Inner<P>>) -> Option<P::Item> {
        let item = inner.pending.take();
        if inner.pending.is_empty()
            && !inner.is_closed
            && let Some(descriptor) = self.descriptor.get()
        {
            // It is not readable any more; it may not have been.
            let _ = descriptor.read();
        }
        item
    }

    fn lock(&self) -> MutexGuard<'_, Inner<P>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task that waits for the next item. Dropping it loses no item.
pub(crate) struct Recv<'a, P: Pending> {
    queue: &'a Queue<P>,
    task: u64,
}

impl<P: Pending> Future for Recv<'_, P> {
    type Output = Option<P::Item>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.queue.poll_as(self.task, context)
    }
}

/// A task that waits for the end.
pub(crate) struct Closed<'a, P: Pending>(Recv<'a, P>);

impl<P: Pending> Future for Closed<'_, P> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Recv { queue, task } = self.0;
        let mut inner = queue.lock();
        if inner.is_closed {
            return Poll::Ready(());
        }
        inner.wakers.insert(task, context.waker().clone());
        Poll::Pending
    }
}

impl<P: Pending> Drop for Recv<'_, P> {
    fn drop(&mut self) {
        // A task that was woken and then cancelled leaves the item to another one.
        let mut inner = self.queue.lock();
        let is_waiting = inner.wakers.remove(&self.task).is_some();
        if !is_waiting && !inner.pending.is_empty() {
            self.queue.wake(inner);
        }
    }
}
