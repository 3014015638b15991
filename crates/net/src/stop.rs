//! Ends endpoints that run on other threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::waker::Waker;

/// Shared by a running endpoint and the code that may end it: a signal handler, a test, another
/// thread.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    stopped: AtomicBool,
    sleepers: Mutex<Vec<Arc<Waker>>>,
}

impl Stop {
    /// Not stopped yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends all endpoints that run with this; it cannot be undone.
    pub fn stop(&self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        for sleeper in &*self.shared.sleepers.lock().unwrap_or_else(PoisonError::into_inner) {
            // A waker fails only if its poll is gone, and then no thread sleeps there.
            let _ = sleeper.wake();
        }
    }

    /// Whether it is time to end.
    pub fn is_stopped(&self) -> bool {
        self.shared.stopped.load(Ordering::SeqCst)
    }

    /// Registers `sleeper`, to be woken by [`Stop::stop`].
    pub(crate) fn wakes(&self, sleeper: Arc<Waker>) {
        self.shared.sleepers.lock().unwrap_or_else(PoisonError::into_inner).push(sleeper);
        if self.is_stopped() {
            self.stop(); // it may have come just before the sleeper was known
        }
    }
}
