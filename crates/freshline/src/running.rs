//! Runs a source or a monitor: on a thread of its own, or in a simulation.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use freshline_net::stop::Stop;

use crate::clock::Clock;
use crate::error::Error;

/// How often it is checked whether a thread has ended.
const LOOK: Duration = Duration::from_millis(1);

/// The number of a network thread. The standard library's own would be allocated for each thread
/// that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadNumber(u64);

thread_local! {
    /// That of this thread, if it is a network thread.
    static CURRENT: Cell<Option<ThreadNumber>> = const { Cell::new(None) };
}

impl ThreadNumber {
    fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed))
    }

    /// This thread has the number from now on.
    fn enter(self) {
        CURRENT.set(Some(self));
    }

    fn is_current(self) -> bool {
        CURRENT.get() == Some(self)
    }
}

/// A source or a monitor that runs, with the report `R` at its end. It ends when this is dropped.
pub(crate) enum Running<R> {
    /// On a thread.
    Thread {
        stop: Stop,
        number: ThreadNumber,
        /// `None` once it was joined.
        thread: Option<JoinHandle<Result<R, Error>>>,
    },
    /// In virtual time.
    #[cfg(feature = "sim")]
    Simulated(Box<dyn Simulated<R>>),
}

/// A source or a monitor that a simulation runs.
#[cfg(feature = "sim")]
pub(crate) trait Simulated<R>: Send + Sync {
    /// Whether it has ended.
    fn has_ended(&self) -> bool;
    /// Ends it.
    fn end(&mut self) -> Result<R, Error>;
}

impl<R> Running<R> {
    /// Runs on a new thread of this name until it is stopped, or ends by itself.
    pub(crate) fn spawn(
        name: &str,
        stop: Stop,
        run: impl FnOnce() -> Result<R, Error> + Send + 'static,
    ) -> Result<Self, Error>
    where
        R: Send + 'static,
    {
        let number = ThreadNumber::next();
        let named = thread::Builder::new().name(name.into());
        let numbered = move || {
            number.enter();
            run()
        };
        let thread = Some(named.spawn(numbered).map_err(Error::Thread)?);
        Ok(Self::Thread { stop, number, thread })
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Self::Thread { thread, .. } => thread.as_ref().is_none_or(JoinHandle::is_finished),
            #[cfg(feature = "sim")]
            Self::Simulated(simulated) => simulated.has_ended(),
        }
    }

    /// Whether a call from this thread would wait for itself.
    ///
    /// # Errors
    /// [`Error::OwnThread`].
    #[cfg(feature = "monitor")]
    pub(crate) fn check_thread(&self) -> Result<(), Error> {
        match self {
            Self::Thread { number, .. } if number.is_current() => Err(Error::OwnThread),
            _ => Ok(()),
        }
    }

    /// Waits until it ends by itself, for `patience` at most; whether it did. A simulation does not
    /// wait.
    pub(crate) fn wait(&self, patience: Duration) -> bool {
        let clock = Clock::real();
        let until = clock.now() + patience.into();
        let can_wait = matches!(self, Self::Thread { .. });
        while !self.has_ended() && can_wait && clock.now() < until {
            thread::sleep(LOOK);
        }
        self.has_ended()
    }

    /// Makes it end, without waiting for that. A simulation ends by [`Running::end`] alone.
    pub(crate) fn stop(&self) {
        match self {
            Self::Thread { stop, .. } => stop.stop(),
            #[cfg(feature = "sim")]
            Self::Simulated(_) => {}
        }
    }

    /// Ends it, and gives its report.
    pub(crate) fn end(&mut self) -> Result<R, Error> {
        match self {
            Self::Thread { stop, number, thread } => {
                stop.stop();
                let Some(thread) = thread.take() else { return Err(Error::Ended) };
                if number.is_current() {
                    // It ends after this call.
                    return Err(Error::OwnThread);
                }
                thread.join().unwrap_or(Err(Error::Panicked))
            }
            #[cfg(feature = "sim")]
            Self::Simulated(simulated) => simulated.end(),
        }
    }

    /// Whether [`Running::end`] was not called.
    fn is_open(&self) -> bool {
        match self {
            Self::Thread { thread, .. } => thread.is_some(),
            #[cfg(feature = "sim")]
            Self::Simulated(simulated) => !simulated.has_ended(),
        }
    }
}

impl<R> Drop for Running<R> {
    fn drop(&mut self) {
        if self.is_open() {
            // A caller that wants to know the result calls `close`.
            let _ = self.end();
        }
    }
}

impl<R> fmt::Debug for Running<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("has_ended", &self.has_ended()).finish()
    }
}
