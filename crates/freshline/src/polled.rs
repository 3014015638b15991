//! A source in the application's own event loop.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use freshline_net::source::{Polled, SourceReport};

use crate::error::{Error, UnknownTopic};
use crate::events::{Events, SourceEvent};
use crate::put_error::PutError;
use crate::source::{Ended, SourceBuilder, Watch, find};
use crate::topic::Topic;
#[cfg(feature = "monitor")]
use crate::{Subscription, receiving::Receiving};

/// A source without a thread, for the application's own event loop: whenever its file descriptor ([`AsFd`]) is readable,
/// call [`PolledSource::turn`]. Any thread can put states into its topics.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::os::fd::AsFd;
/// let mut source = freshline::Source::builder("udp://127.0.0.1:3774").topic("pose").polled()?;
/// source.topic("pose")?.put(b"x=1")?;
/// for _ in 0..3 {
///     let readable = source.as_fd(); // wait for it by `poll` or `epoll`
///     # let _ = readable;
///     source.turn()?;
/// }
/// source.close();
/// # Ok(())
/// # }
/// ```
pub struct PolledSource {
    driver: Polled,
    watch: Watch,
    /// Closes the topics at the end.
    ended: Ended,
}

impl SourceBuilder {
    /// Opens the sockets. The application's own event loop runs the source.
    ///
    /// # Errors
    /// As [`SourceBuilder::spawn`].
    pub fn polled(self) -> Result<PolledSource, Error> {
        let (driver, ended) = self.prepare()?;
        let watch = Watch(Arc::clone(&ended.shared));
        Ok(PolledSource { driver: Polled::new(driver)?, watch, ended })
    }
}

impl PolledSource {
    /// Receives datagrams, handles timers and sends due updates, without blocking.
    ///
    /// # Errors
    /// [`Error::Source`] if it cannot go on.
    pub fn turn(&mut self) -> Result<(), Error> {
        self.driver.turn(&mut self.watch)?;
        Ok(())
    }

    /// As [`Source::topic`](crate::Source::topic).
    ///
    /// # Errors
    /// [`UnknownTopic`].
    pub fn topic(&self, name: &str) -> Result<Topic, UnknownTopic> {
        find(&self.ended.topics, name)
    }

    /// As [`Source::put`](crate::Source::put).
    ///
    /// # Errors
    /// [`PutError`].
    pub fn put(&self, state: impl Into<Vec<u8>>) -> Result<Option<Vec<u8>>, PutError> {
        self.ended.topics[0].put(state)
    }

    /// As [`Source::subscribe`](crate::Source::subscribe).
    #[cfg(feature = "monitor")]
    pub fn subscribe(&self, pattern: &str) -> Subscription {
        Receiving::subscribe(self.ended.receiving.as_ref(), pattern)
    }

    /// Its events.
    pub fn events(&self) -> &Events<SourceEvent> {
        &self.ended.shared.events
    }

    /// Closes the session, and returns a report of the run.
    pub fn close(self) -> SourceReport {
        self.driver.close()
    }
}

impl AsFd for PolledSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.driver.as_fd()
    }
}

impl fmt::Debug for PolledSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PolledSource").field(&self.ended.topics).finish()
    }
}
