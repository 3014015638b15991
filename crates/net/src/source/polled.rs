//! A source in a loop of the caller's own.

use std::os::fd::{AsFd, BorrowedFd};

use freshline_core::session;

use super::{Source, SourceError, SourceReport, Watch, Watched};
use crate::run::{Driven, Turns};

/// A source that a caller's own loop drives: wait until its descriptor is readable, beside those of the application,
/// then call [`Polled::turn`].
pub struct Polled {
    source: Source,
    turns: Turns,
    is_over: bool,
}

impl Polled {
    /// Its first turn is due at once.
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

    /// Takes in what has come, does what is due, and sends what may leave, without waiting. `false`: it is over, as
    /// its states have ended.
    ///
    /// # Errors
    /// As [`Source::run`].
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

    /// Closes the session, and tells how it was.
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
