//! The return direction of a source, for its application.

use std::time::Duration;

use freshline_core::session::{MaxAge, MonitorParams};
use freshline_net::monitor::Incoming;
use freshline_net::source::Receive;

use crate::clock::Clock;
use crate::error::Error;
use crate::max_ages::MaxAges;
use crate::store::Board;
use crate::subscription::Subscription;

/// What a source receives.
#[derive(Debug, Clone)]
pub(crate) struct Receiving {
    board: Board,
    max_ages: MaxAges,
}

impl Default for Receiving {
    fn default() -> Self {
        Self { board: Board::new(Clock::real()), max_ages: MaxAges::default() }
    }
}

impl Receiving {
    pub(crate) fn board(&self) -> &Board {
        &self.board
    }

    pub(crate) fn limit(&mut self, pattern: &str, limit: Duration) {
        self.max_ages.add(MaxAge::new(pattern, limit.into()));
    }

    /// What hands received states to the board.
    pub(crate) fn incoming(&self) -> Result<Box<dyn Receive + Send>, Error> {
        let max_age = self.max_ages.get()?;
        let params = MonitorParams { max_age: max_age.clone(), ..MonitorParams::default() };
        Ok(Box::new(Incoming::new(params, self.board.store(max_age))?))
    }

    /// A reader; of a source that receives nothing, one that is over.
    pub(crate) fn subscribe(receiving: Option<&Self>, pattern: &str) -> Subscription {
        match receiving {
            Some(receiving) => receiving.board.subscribe(pattern),
            None => {
                let board = Board::new(Clock::real());
                board.close();
                board.subscribe(pattern)
            }
        }
    }
}
