//! What really happened: when each state was sampled, in the world's time.

use std::collections::HashMap;

use freshline_core::unit::Time;
use freshline_core::wire::SessionId;

/// The times of all updates of all sessions.
#[derive(Debug, Default)]
pub(super) struct Ledger(HashMap<(SessionId, u64), Time>);

impl Ledger {
    pub(super) fn sampled(&mut self, session: SessionId, seq: u64, at: Time) {
        self.0.insert((session, seq), at);
    }

    /// When the state of update `seq` was sampled; `None` if there never was such an update.
    pub(super) fn sampled_at(&self, session: SessionId, seq: u64) -> Option<Time> {
        self.0.get(&(session, seq)).copied()
    }
}
