//! The dialing end: a source, and the receiver of the return direction.

use alloc::vec::Vec;

use super::{Ignored, Receiver};
use crate::path::PathId;
use crate::session::cookie::Secret;
use crate::session::datagram::Datagram;
use crate::session::monitor::{Monitor, MonitorEvent, MonitorParams};
use crate::session::source::{Source, SourceEvent, Transmit};
use crate::unit::Time;

/// An event of a [`Dialer`], or a request to its driver.
#[derive(Debug)]
pub enum DialerEvent {
    /// An event of the forward direction.
    Source(SourceEvent),
    /// An event of the return direction.
    Monitor(MonitorEvent<PathId>),
}

/// A source that also receives the states of the other end. It follows the contract of the
/// endpoints of [`session`](crate::session).
pub struct Dialer {
    source: Source,
    receiver: Receiver<PathId>,
}

impl Dialer {
    /// A source that receives; to be called before anything is sent.
    pub fn new(mut source: Source, params: MonitorParams, secret: Secret) -> Self {
        source.want_return();
        Self { source, receiver: Receiver::new(params, secret) }
    }

    // ---- the contract ----

    /// A datagram has arrived from the peer on a path.
    ///
    /// # Errors
    /// [`Ignored`] if it had no effect.
    pub fn handle_datagram<'a>(
        &mut self,
        now: Time,
        by: PathId,
        datagram: impl Into<Datagram<'a>>,
    ) -> Result<(), Ignored> {
        let datagram = datagram.into();
        match self.receiver.handle_datagram(now, self.source.session(), by, datagram) {
            Some(result) => {
                if let Some(ack) = datagram.rider() {
                    // An ack without effect does not affect the update.
                    let _ = self.source.handle_datagram(now, by, ack);
                }
                Ok(result?)
            }
            None => Ok(self.source.handle_datagram(now, by, datagram)?),
        }
    }

    /// Time has passed. Calls before [`Dialer::poll_timeout`] have no effect.
    pub fn handle_timeout(&mut self, now: Time) {
        self.source.handle_timeout(now);
        self.receiver.handle_timeout(now);
    }

    /// The next event, or request to the driver.
    pub fn poll_event(&mut self) -> Option<DialerEvent> {
        let event = self.source.poll_event().map(DialerEvent::Source);
        event.or_else(|| self.receiver.poll_event().map(DialerEvent::Monitor))
    }

    /// Writes the next datagram that may be sent now to the front of `out`, which grows to its
    /// length; call until it returns `None`. Answers to the return direction come first.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Transmit> {
        if let Some(answer) = self.receiver.poll_transmit(now, out) {
            let (path, len, dscp) = (answer.peer, answer.len, answer.dscp);
            return Some(Transmit { path, len, dscp, seq: None, is_copy: false });
        }
        let update = self.source.poll_transmit(now, out)?;
        let max_len = self.source.max_datagram();
        let len = self.receiver.board(now, update.path, (&update, max_len), out);
        Some(Transmit { len, ..update })
    }

    /// When to call [`Dialer::handle_timeout`] next, which may lie in the past; `None` if never.
    pub fn poll_timeout(&self) -> Option<Time> {
        Time::earliest([self.source.poll_timeout(), self.receiver.poll_timeout()])
    }

    // ---- its two ends ----

    /// The sender of the forward direction.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The same, to hand in states and the state of transports.
    pub fn source_mut(&mut self) -> &mut Source {
        &mut self.source
    }

    /// The receiver of the return direction.
    pub fn receiver(&self) -> &Monitor<PathId> {
        self.receiver.monitor()
    }

    /// The same, to take records.
    pub fn receiver_mut(&mut self) -> &mut Monitor<PathId> {
        self.receiver.monitor_mut()
    }
}
