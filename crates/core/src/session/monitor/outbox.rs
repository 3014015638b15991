//! Answers, until their driver polls them.

use alloc::vec::Vec;

use crate::dscp::Dscp;
use crate::session::fifo::Fifo;
use crate::unit::Time;
use crate::wire::{Ack, Challenge, Close, CloseReason, SessionId};

/// Answers that are kept for a driver that does not poll; then the oldest is lost like any datagram.
const MOST: usize = 1024;

/// An answer that a monitor has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MonitorTransmit<P> {
    /// Where it goes: to where the datagram came from that it answers.
    pub peer: P,
    /// Its length: it is at the front of the buffer. Never more than the datagram's.
    pub len: usize,
    /// The code point with which it leaves.
    pub dscp: Dscp,
}

#[derive(Debug)]
pub(super) enum Reply {
    /// Held since it was received.
    Ack(Ack),
    Challenge(Challenge),
    Close {
        session: SessionId,
        reason: CloseReason,
    },
    /// To a peer of this version of the protocol.
    OtherVersion {
        session: SessionId,
        version: u8,
    },
}

#[derive(Debug)]
pub(super) struct Answer<P> {
    pub(super) received_at: Time,
    pub(super) peer: P,
    pub(super) dscp: Dscp,
    pub(super) reply: Reply,
}

impl<P> Answer<P> {
    /// One that is no ack.
    pub(super) fn unmarked(received_at: Time, peer: P, reply: Reply) -> Self {
        Self { received_at, peer, dscp: Dscp::DEFAULT, reply }
    }
}

#[derive(Debug)]
pub(super) struct Outbox<P>(Fifo<Answer<P>>);

impl<P: Copy> Outbox<P> {
    pub(super) fn new() -> Self {
        Self(Fifo::new())
    }

    pub(super) fn push(&mut self, answer: Answer<P>) {
        self.0.push_within(MOST, answer);
    }

    /// However many there are.
    pub(super) fn push_always(&mut self, answer: Answer<P>) {
        self.0.push(answer);
    }

    /// Writes the oldest answer to the front of `out`.
    pub(super) fn write(&mut self, now: Time, out: &mut Vec<u8>) -> Option<MonitorTransmit<P>> {
        // Not moved out of the queue: an answer is twice as long as its bytes.
        let Answer { received_at, peer, dscp, reply } = self.0.first_mut()?;
        let (peer, dscp) = (*peer, *dscp);
        let len = match reply {
            Reply::Ack(ack) => {
                ack.hold = now.since(*received_at);
                grow(out, ack.len());
                // Straight into its place: a processor waits for bytes that were written in other units.
                ack.write(out)
            }
            Reply::Challenge(challenge) => put(out, &challenge.bytes()),
            Reply::Close { session, reason } => {
                put(out, &Close { session: *session, reason: *reason }.bytes())
            }
            Reply::OtherVersion { session, version } => {
                put(out, &Close::of_version(*version, *session))
            }
        };
        self.0.pop();
        Some(MonitorTransmit { peer, len, dscp })
    }
}

/// Puts `bytes` to the front of `out`; gives their number.
fn put(out: &mut Vec<u8>, bytes: &[u8]) -> usize {
    grow(out, bytes.len());
    out[..bytes.len()].copy_from_slice(bytes);
    bytes.len()
}

#[inline]
fn grow(out: &mut Vec<u8>, len: usize) {
    if out.len() < len {
        out.resize(len, 0);
    }
}
