//! Readers of the states of a monitor that the application runs itself.

use freshline_core::session::MaxAge;
use freshline_net::monitor::Watch;

use crate::clock::Clock;
use crate::store::Board;
use crate::subscription::Subscription;

/// Subscriptions to a monitor that the application runs itself ([`driver`](crate::driver)), for readers on other
/// threads. A [`Monitor`](crate::Monitor) has its own.
#[derive(Debug, Clone)]
pub struct Readers {
    board: Board,
}

impl Default for Readers {
    fn default() -> Self {
        Self { board: Board::new(Clock::real()) }
    }
}

impl Readers {
    /// No readers.
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`Monitor::observe`](crate::Monitor::observe).
    pub fn observe(&self, pattern: &str) -> Subscription {
        self.board.observe(pattern)
    }

    /// The watcher that serves the readers, to run the monitor with alongside one that takes its records
    /// ([`driver::monitor::Both`](crate::driver::monitor::Both)). The readers receive no state that is older than the
    /// first of `max_ages` that matches. When it is dropped, the subscriptions end.
    pub fn watch(&self, max_ages: Vec<MaxAge>) -> impl Watch + use<> {
        self.board.store(max_ages).closing()
    }
}
