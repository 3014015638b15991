//! The return direction of a source, for its application.

use freshline_core::session::MonitorParams;
use freshline_net::monitor::Incoming;
use freshline_net::source::Receive;

use crate::clock::Clock;
use crate::error::Error;
use crate::max_ages::MaxAges;
use crate::store::{Board, Store};
use crate::subscription::Subscription;

/// The received states of a source.
#[derive(Debug, Clone)]
pub(crate) struct Receiving {
    board: Board,
    max_ages: MaxAges,
}

impl Receiving {
    /// With these maximum ages of delivered states.
    pub(crate) fn new(clock: Clock, max_ages: MaxAges) -> Self {
        Self { board: Board::new(clock), max_ages }
    }

    pub(crate) fn board(&self) -> &Board {
        &self.board
    }

    /// The receiver that passes states on to the board.
    pub(crate) fn incoming(&self) -> Result<Box<dyn Receive + Send>, Error> {
        let (params, store) = self.store()?;
        Ok(Box::new(Incoming::new(params, store)?))
    }

    /// The settings of its session, and the store for its states.
    pub(crate) fn store(&self) -> Result<(MonitorParams, Store), Error> {
        let max_age = self.max_ages.get()?;
        let params = MonitorParams { max_age: max_age.clone(), ..MonitorParams::default() };
        Ok((params, self.board.store(max_age)))
    }

    /// A reader; for a source that receives nothing, one that is over.
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
