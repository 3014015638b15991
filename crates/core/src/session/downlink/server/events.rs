//! The events of a server, queued until its driver polls them.

use alloc::boxed::Box;

use crate::session::End;
use crate::session::downlink::record::{ClientKey, ClientRecord};
use crate::session::fifo::Fifo;
use crate::wire::CloseReason;

/// The maximum number of queued events, in addition to one per place that clients have held at the
/// same time; beyond it, the oldest is dropped.
const MAX_EVENTS: usize = 1024;

/// An event at a server, or a request to its driver. Records are in their present state: a driver
/// that polls late finds them newer, or gone.
#[derive(Debug)]
pub enum ServerEvent<P> {
    /// The next packet of a client is due. The driver answers with
    /// [`Server::put`](super::Server::put), [`Server::pause`](super::Server::pause) or
    /// [`Server::finish`](super::Server::finish), now or later; without an answer the client gets
    /// an empty packet once per interval, and the driver is asked again.
    PacketWanted(ClientKey),
    /// A client has joined, or has joined again, perhaps from another address.
    Joined {
        /// Its key.
        client: ClientKey,
        /// Whether its session is new here.
        is_new: bool,
    },
    /// A report of a client has arrived.
    Reported(ClientKey),
    /// A datagram was answered by a challenge.
    Challenged,
    /// A join was refused, and its client was informed.
    Refused(CloseReason),
    /// A client is gone; its key is free again.
    Gone {
        /// Its key.
        client: ClientKey,
        /// Its last record.
        record: Box<ClientRecord<P>>,
        /// Why.
        why: End,
    },
}

#[derive(Debug)]
pub(super) struct Events<P>(Fifo<ServerEvent<P>>);

impl<P> Events<P> {
    pub(super) fn new() -> Self {
        Self(Fifo::new())
    }

    /// `places`: the maximum number of simultaneous clients so far.
    pub(super) fn push(&mut self, places: usize, event: ServerEvent<P>) {
        self.0.push_within(MAX_EVENTS + places, event);
    }

    pub(super) fn pop(&mut self) -> Option<ServerEvent<P>> {
        self.0.pop()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
