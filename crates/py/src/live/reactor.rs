//! Lets tasks of an event loop wait.
//!
//! ```text
//!   network's thread ─ wakes ─► ready: numbers of waiters ─► descriptor readable ─► event loop: poll each
//! ```
//!
//! There is one reactor for each event loop. Waking a task needs neither the interpreter's lock nor a thread, so an
//! application that computes does not hold up the network.

use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use nix::sys::eventfd::{EfdFlags, EventFd};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use super::events::{Endpoint, Events};
use super::state::State;
use super::subscription::Subscription;

/// Gives an event loop the numbers of the waiters to poll.
#[pyclass(frozen, module = "freshline._native")]
pub(crate) struct Reactor(Arc<Ready>);

struct Ready {
    numbers: Mutex<Vec<u64>>,
    descriptor: EventFd,
}

impl Ready {
    fn add(&self, number: u64) {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.push(number);
        if numbers.len() == 1 {
            // It fails only when it is readable anyway.
            let _ = self.descriptor.write(1);
        }
    }
}

#[pymethods]
impl Reactor {
    #[new]
    fn new() -> PyResult<Self> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let made = EventFd::from_value_and_flags(0, flags);
        let descriptor = made.map_err(|error| PyOSError::new_err((error as i32, error.desc())))?;
        Ok(Self(Arc::new(Ready { numbers: Mutex::default(), descriptor })))
    }

    /// The descriptor that is readable while waiters are to be polled.
    fn fileno(&self) -> i32 {
        self.0.descriptor.as_raw_fd()
    }

    /// Takes the numbers of the waiters to poll.
    fn take(&self) -> Vec<u64> {
        let mut numbers = self.0.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        // It was readable, or nothing is lost.
        let _ = self.0.descriptor.read();
        std::mem::take(&mut numbers)
    }
}

/// Wakes one waiter.
struct Signal {
    number: u64,
    ready: Arc<Ready>,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.ready.add(self.number);
    }
}

/// The object that a waiter waits for.
#[derive(FromPyObject)]
pub(crate) enum Awaited<'py> {
    /// The next state.
    Subscription(Bound<'py, Subscription>),
    /// The next event.
    Events(Bound<'py, Events>),
    /// The end.
    End(Endpoint<'py>),
}

/// The result of waiting.
#[derive(IntoPyObject)]
enum Item {
    State(State),
    Event(super::event::Event),
}

type Waiting = Pin<Box<dyn Future<Output = Option<Item>> + Send>>;

/// A task that waits for the next state or event, or for the end of a source or monitor.
#[pyclass(frozen, module = "freshline._native")]
pub(crate) struct Waiter {
    /// `None` once it is done.
    waiting: Mutex<Option<Waiting>>,
    waker: Waker,
}

#[pymethods]
impl Waiter {
    /// A waiter with this number at the reactor.
    #[new]
    fn new(awaited: Awaited<'_>, reactor: &Reactor, number: u64) -> Self {
        let waiting: Waiting = match awaited {
            Awaited::Subscription(subscription) => {
                let subscription = Arc::clone(&subscription.get().0);
                Box::pin(async move { subscription.recv().await.map(|it| Item::State(State(it))) })
            }
            Awaited::Events(events) => {
                let events = events.get().0.clone();
                Box::pin(async move { events.recv().await.map(Item::Event) })
            }
            Awaited::End(endpoint) => {
                let events = match endpoint {
                    Endpoint::Source(source) => source.get().events(),
                    Endpoint::Monitor(monitor) => monitor.get().events(),
                };
                Box::pin(async move {
                    events.ended().await;
                    None
                })
            }
        };
        let waker = Waker::from(Arc::new(Signal { number, ready: Arc::clone(&reactor.0) }));
        Self { waiting: Mutex::new(Some(waiting)), waker }
    }

    /// Whether it is done, and the result, with `None` at the end. Not done, it will wake its
    /// reactor.
    fn poll(&self) -> (bool, Option<Item>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(future) = &mut *waiting else { return (true, None) };
        match future.as_mut().poll(&mut Context::from_waker(&self.waker)) {
            Poll::Ready(item) => {
                *waiting = None;
                (true, item)
            }
            Poll::Pending => (false, None),
        }
    }

    /// Waits no more. If it was woken, another waiter is.
    fn close(&self) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(waiting);
    }
}
