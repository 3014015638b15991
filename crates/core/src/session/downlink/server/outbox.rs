//! Answers and closes, queued until the driver polls them.

use alloc::vec::Vec;

use crate::dscp::Dscp;
use crate::session::downlink::types::ServerTransmit;
use crate::session::fifo::Fifo;
use crate::wire::{Challenge, Close};

/// The maximum number of queued answers; beyond it, the oldest is dropped, like a lost datagram. 48
/// kB and the peers.
pub(super) const MAX_ANSWERS: usize = 1024;

#[derive(Debug)]
enum Reply {
    Challenge(Challenge),
    Close(Close),
}

#[derive(Debug)]
pub(super) struct Outbox<P>(Fifo<(P, Reply)>);

impl<P> Outbox<P> {
    pub(super) fn new() -> Self {
        Self(Fifo::new())
    }

    pub(super) fn challenge(&mut self, peer: P, challenge: Challenge) {
        self.0.push_within(MAX_ANSWERS, (peer, Reply::Challenge(challenge)));
    }

    pub(super) fn refuse(&mut self, peer: P, close: Close) {
        self.0.push_within(MAX_ANSWERS, (peer, Reply::Close(close)));
    }

    /// Adds a close, which is not dropped; there is at most one per client.
    pub(super) fn close(&mut self, peer: P, close: Close) {
        self.0.push((peer, Reply::Close(close)));
    }

    /// Writes the oldest answer to the front of `out`.
    pub(super) fn write(&mut self, out: &mut Vec<u8>) -> Option<ServerTransmit<P>> {
        let (peer, reply) = self.0.pop()?;
        let len = match reply {
            Reply::Challenge(challenge) => put(out, &challenge.bytes()),
            Reply::Close(close) => put(out, &close.bytes()),
        };
        Some(ServerTransmit { peer, len, dscp: Dscp::DEFAULT, client: None })
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Writes `bytes` to the front of `out`; returns their number.
pub(super) fn put(out: &mut Vec<u8>, bytes: &[u8]) -> usize {
    if out.len() < bytes.len() {
        out.resize(bytes.len(), 0);
    }
    out[..bytes.len()].copy_from_slice(bytes);
    bytes.len()
}
