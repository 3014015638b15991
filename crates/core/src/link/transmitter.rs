//! What puts packets on a link: at a rate, or when a trace allows it.

use alloc::sync::Arc;

use super::LinkParams;
use super::serialiser::Serialiser;
use super::trace::{Replay, Trace};
use crate::unit::{BitRate, Bytes, Span, Time};

/// The transmitter of a link.
#[derive(Debug)]
pub(super) enum Transmitter {
    Rate(Serialiser),
    Trace(Replay<Arc<Trace>>),
}

impl Transmitter {
    pub(super) fn new(link: &LinkParams) -> Self {
        match &link.trace {
            Some(trace) => Self::Trace(Replay::new(Arc::clone(trace))),
            None => Self::Rate(Serialiser::new(link.rate)),
        }
    }

    /// Goes on at `rate`, exactly from the next transmission on.
    pub(super) fn set_rate(&mut self, rate: BitRate) {
        *self = Self::Rate(Serialiser::new(Some(rate)));
    }

    /// Whether a packet that waits may start at `now`, where nothing is in transmission.
    pub(super) fn may_start(&mut self, now: Time) -> bool {
        match self {
            Self::Rate(_) => true,
            Self::Trace(replay) => replay.may_start(now),
        }
    }

    /// When a packet may start for which [`Transmitter::may_start`] did not hold.
    pub(super) fn next_start(&self) -> Option<Time> {
        match self {
            Self::Rate(_) => None,
            Self::Trace(replay) => replay.next_start(),
        }
    }

    /// Sends `size` from `start`: how long it takes.
    pub(super) fn send(&mut self, start: Time, size: Bytes) -> Span {
        match self {
            Self::Rate(serialiser) => serialiser.send(start, size),
            Self::Trace(replay) => replay.send(start, size),
        }
    }

    /// Nothing may be sent now.
    pub(super) fn rest(&mut self) {
        if let Self::Trace(replay) = self {
            replay.rest();
        }
    }
}
