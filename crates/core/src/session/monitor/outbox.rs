//! Answers, queued until the driver polls them.

use alloc::vec::Vec;

use crate::dscp::Dscp;
use crate::session::fifo::Fifo;
use crate::unit::Time;
use crate::wire::{Ack, Challenge, Close, CloseReason, SessionId};

/// The maximum number of queued answers; beyond it, the oldest is dropped, like a lost datagram.
const MOST: usize = 1024;

/// An answer that a monitor has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MonitorTransmit<P> {
    /// The destination: the sender of the datagram that it answers.
    pub peer: P,
    /// Its length: it is at the front of the buffer. Never more than the datagram's.
    pub len: usize,
    /// Its code point.
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

/// An ack taken out of the queue of answers, to be sent in another datagram.
#[derive(Debug)]
pub(in crate::session) struct TakenAck<P> {
    /// When its update arrived, from which peer, and the ack's code point.
    pub(in crate::session) received_at: Time,
    pub(in crate::session) peer: P,
    pub(in crate::session) dscp: Dscp,
    pub(in crate::session) ack: Ack,
}

impl<P> From<TakenAck<P>> for Answer<P> {
    fn from(taken: TakenAck<P>) -> Self {
        let TakenAck { received_at, peer, dscp, ack } = taken;
        Self { received_at, peer, dscp, reply: Reply::Ack(ack) }
    }
}

impl<P> Answer<P> {
    /// An answer other than an ack.
    pub(super) fn unmarked(received_at: Time, peer: P, reply: Reply) -> Self {
        Self { received_at, peer, dscp: Dscp::DEFAULT, reply }
    }
}

#[derive(Debug)]
pub(super) struct Outbox<P> {
    answers: Fifo<Answer<P>>,
    /// Acks sent after all other answers, so that a driver that answers each datagram at once finds
    /// its answer first.
    aside: Fifo<Answer<P>>,
    /// Whether the newest answer is for the present datagram, and was not taken out before.
    has_news: bool,
}

impl<P: Copy> Outbox<P> {
    pub(super) fn new() -> Self {
        Self { answers: Fifo::new(), aside: Fifo::new(), has_news: false }
    }

    /// A datagram has arrived, which may be answered.
    pub(super) fn begin(&mut self) {
        self.has_news = false;
    }

    pub(super) fn push(&mut self, answer: Answer<P>) {
        self.answers.push_within(MOST, answer);
        self.has_news = true;
    }

    /// Adds an answer even beyond the maximum.
    pub(super) fn push_always(&mut self, answer: Answer<P>) {
        self.answers.push(answer);
    }

    /// The destination of the next answer.
    pub(super) fn next_peer(&self) -> Option<&P> {
        let next = self.answers.first().or_else(|| self.aside.first());
        next.map(|answer| &answer.peer)
    }

    /// Takes the answer to the present datagram, once, if it is an ack of this session.
    pub(super) fn take_ack(&mut self, of: SessionId) -> Option<TakenAck<P>> {
        let newest = self.answers.last().filter(|_| self.has_news)?;
        let Answer { received_at, peer, dscp, reply: Reply::Ack(ack) } = newest else {
            return None;
        };
        let taken = TakenAck { received_at: *received_at, peer: *peer, dscp: *dscp, ack: *ack };
        (ack.session == of).then(|| {
            self.answers.pop_last();
            self.has_news = false;
            taken
        })
    }

    /// Returns a taken ack, to be sent as a separate datagram.
    pub(super) fn put_back(&mut self, taken: TakenAck<P>) {
        self.push(taken.into());
        self.has_news = false;
    }

    /// The same, after all other answers. There is at most one per session, so none is dropped: no
    /// further ack waits before updates have been sent.
    pub(super) fn put_aside(&mut self, taken: TakenAck<P>) {
        self.aside.push(taken.into());
    }

    /// Writes the oldest answer to the front of `out`.
    pub(super) fn write(&mut self, now: Time, out: &mut Vec<u8>) -> Option<MonitorTransmit<P>> {
        // Not moved out of the queue: an answer is twice as long as its bytes.
        let queue =
            if self.answers.first().is_some() { &mut self.answers } else { &mut self.aside };
        let Answer { received_at, peer, dscp, reply } = queue.first_mut()?;
        let (peer, dscp) = (*peer, *dscp);
        let len = match reply {
            Reply::Ack(ack) => {
                ack.hold = now.since(*received_at);
                grow(out, ack.len());
                // Written in place: a copy would stall on bytes just written in units of other
                // sizes (store forwarding).
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
        queue.pop();
        Some(MonitorTransmit { peer, len, dscp })
    }
}

/// Writes `bytes` to the front of `out`; returns their number.
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
