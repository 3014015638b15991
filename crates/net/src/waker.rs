//! Wakes a loop from another thread.

use std::{fmt, io};

use mio::{Registry, Token};

/// Wakes an event loop from another thread, independent of its poller.
pub struct Waker(Box<dyn Fn() -> io::Result<()> + Send + Sync>);

impl Waker {
    /// `wake` must end the loop's sleep, or its next one if it is awake, without blocking.
    pub fn new(wake: impl Fn() -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self(Box::new(wake))
    }

    /// Wakes the owner of a poll by an event with this token.
    pub(crate) fn of_poll(registry: &Registry, token: Token) -> io::Result<Self> {
        let waker = mio::Waker::new(registry, token)?;
        Ok(Self::new(move || waker.wake()))
    }

    /// Wakes the loop.
    ///
    /// # Errors
    /// The system refused, for example because the loop has ended.
    pub fn wake(&self) -> io::Result<()> {
        (self.0)()
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waker")
    }
}
