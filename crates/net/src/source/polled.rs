//! A source in the caller's own event loop.

use std::os::fd::{AsFd, BorrowedFd};

use freshline_core::session;

use super::{Source, SourceError, SourceReport, Watch, Watched};
use crate::run::{Driven, Turns};

/// A source that the caller's own event loop drives: wait until its descriptor is readable,
/// together with the application's descriptors, and then call [`Polled::turn`].
pub struct Polled {
    source: Source,
    turns: Turns,
    is_over: bool,
}

impl Polled {
    /// Makes the source pollable; its first turn is due at once.
    ///
    /// # Errors
    /// [`SourceError::System`] if the system refuses a timer.
    pub fn new(mut source: Source) -> Result<Self, SourceError> {
        if source.has_ended {
            return Err(SourceError::Ended);
        }
        source.engine.forget_sleep();
        let turns = Turns::new(&mut Watched { source: &mut source, watch: &mut () })?;
        Ok(Self { source, turns, is_over: false })
    }

    /// Processes received datagrams and due timers, and sends due updates, without blocking.
    /// Returns `false` when the source has ended, because its states have ended.
    ///
    /// # Errors
    /// The same as for [`Source::run`].
    pub fn turn(&mut self, watch: &mut dyn Watch) -> Result<bool, SourceError> {
        if !self.is_over {
            let goes_on = self.turns.turn(&mut Watched { source: &mut self.source, watch })?;
            self.is_over = !goes_on;
        }
        Ok(!self.is_over)
    }

    /// The session, for reports.
    pub fn session(&self) -> &session::Source {
        self.source.session()
    }

    /// Closes the session, and returns the report.
    pub fn close(mut self) -> SourceReport {
        if !self.is_over {
            let mut watched = Watched { source: &mut self.source, watch: &mut () };
            let now = watched.sleeper().0.now();
            watched.close(now);
        }
        self.source.report()
    }
}

impl AsFd for Polled {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.sleeper.descriptor()
    }
}
