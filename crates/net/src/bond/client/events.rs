//! Events of a client's connection.

use freshline_core::unit::Time;

use super::{BondError, Client, RETRY};
use crate::bond::driver::End;
use crate::bond::link::LinkEvent;
use crate::quic::LostReason;

impl Client {
    /// Handles the events of the connection.
    pub(super) fn settle(&mut self) -> Result<(), BondError> {
        let now = self.driver.clock.now();
        loop {
            let Some(link) = &mut self.link else { return Ok(()) };
            let is_drained = link.settle(&mut self.driver.endpoint);
            let Some(event) = link.poll_event() else {
                if is_drained {
                    self.lose();
                }
                return Ok(());
            };
            match event {
                LinkEvent::Ready => self.on_ready(now),
                LinkEvent::Full => {
                    if self.refusals == 0 {
                        tracing::warn!(server = %self.server, "the server is full; retrying");
                    }
                    self.back_off(now);
                    self.lose();
                }
                LinkEvent::Lost(reason) => self.on_lost(reason, now)?,
                LinkEvent::Opened => {}
                LinkEvent::Limit(id, limit) => {
                    if let Some(&key) = self.by_stream.get(&id)
                        && let Some(pipe) = self.pipe(key)
                    {
                        pipe.on_limit(limit);
                        self.driver.ready.push_back(key);
                    }
                }
                LinkEvent::Datagrams => self.associations.on_frames(link, &mut self.driver, now),
                LinkEvent::Stream(id) => self.driver.ready.extend(self.by_stream.get(&id)),
                LinkEvent::Room => self.wake_all(),
                LinkEvent::PathUp(id) => {
                    if let Some(client_path) = self
                        .client_paths
                        .iter_mut()
                        .find(|client_path| client_path.path == Some(id))
                    {
                        client_path.on_up();
                    }
                    self.open_paths(now);
                }
                LinkEvent::PathGone(id) => {
                    if let Some(client_path) = self
                        .client_paths
                        .iter_mut()
                        .find(|client_path| client_path.path == Some(id))
                    {
                        client_path.on_gone();
                        client_path.retry_at = now + RETRY;
                    }
                }
            }
        }
    }

    fn on_ready(&mut self, now: Time) {
        (self.was_ready, self.is_without_answer) = (true, false);
        (self.unanswered, self.ready_at) = (0, Some(now));
        // The server may have another address when it must be dialled again.
        self.lookup_at = Some(now);
        self.client_paths[self.dialled].on_up();
        tracing::info!(server = %self.server, "connected");
        self.open_paths(now);
        self.wake_all();
    }

    fn on_lost(&mut self, reason: LostReason, now: Time) -> Result<(), BondError> {
        // If this end has closed the connection, the server does not know yet.
        self.transmit();
        let is_final = matches!(
            reason,
            LostReason::Distrusted(_) | LostReason::Refused(_) | LostReason::Protocol(_)
        );
        if is_final && !self.was_ready {
            return Err(BondError::Refused {
                server: self.client_paths[self.dialled].peer,
                reason,
            });
        }
        self.back_off(now);
        // A lasting refusal is reported once.
        if self.refusals <= 1 {
            tracing::warn!(server = %self.server, "connection lost: {reason}");
        }
        self.lose();
        Ok(())
    }
}
