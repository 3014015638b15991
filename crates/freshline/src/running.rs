//! What runs a source or a monitor: a thread of its own, or a simulation.

use std::fmt;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use freshline_net::stop::Stop;

use crate::clock::Clock;
use crate::error::Error;

/// How often it is looked whether a thread has ended.
const LOOK: Duration = Duration::from_millis(1);

/// A source or a monitor that runs, with the report `R` at its end. It ends when this is dropped.
pub(crate) enum Running<R> {
    /// On a thread.
    Thread {
        stop: Stop,
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
    pub(crate) fn thread(stop: Stop, thread: JoinHandle<Result<R, Error>>) -> Self {
        Self::Thread { stop, thread: Some(thread) }
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
            Self::Thread { thread: Some(thread), .. }
                if thread.thread().id() == thread::current().id() =>
            {
                Err(Error::OwnThread)
            }
            _ => Ok(()),
        }
    }

    /// Waits until it ends by itself, for `patience` at most; whether it did. A simulation does not wait.
    pub(crate) fn wait(&self, patience: Duration) -> bool {
        let clock = Clock::real();
        let until = clock.now() + patience.into();
        let can_wait = matches!(self, Self::Thread { .. });
        while !self.has_ended() && can_wait && clock.now() < until {
            thread::sleep(LOOK);
        }
        self.has_ended()
    }

    /// Ends it, and gives its report.
    pub(crate) fn end(&mut self) -> Result<R, Error> {
        match self {
            Self::Thread { stop, thread } => {
                stop.stop();
                let Some(thread) = thread.take() else { return Err(Error::Ended) };
                if thread.thread().id() == thread::current().id() {
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
