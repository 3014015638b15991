//! The transmitter of a link: it sends packets at a rate, or at the opportunities of a trace.

use alloc::sync::Arc;

use super::serialiser::Serialiser;
use super::trace::{Replay, Trace};
use super::{Framing, LinkParams};
use crate::unit::{BitRate, Bytes, Span, Time};

/// The transmitter of a link.
#[derive(Debug)]
pub(super) struct Transmitter {
    framing: Framing,
    pub(super) pace: Pace,
}

/// The pacing of a transmitter.
#[derive(Debug)]
pub(super) enum Pace {
    Rate(Serialiser),
    Trace(Replay<Arc<Trace>>),
}

impl Transmitter {
    pub(super) fn new(link: &LinkParams) -> Self {
        let pace = match &link.trace {
            // A trace with delays only does not change the rate.
            Some(trace) if trace.opportunities() > 0 => Pace::Trace(Replay::new(Arc::clone(trace))),
            _ => Pace::Rate(Serialiser::new(link.rate)),
        };
        Self { framing: link.framing, pace }
    }

    /// Continues at `rate`, from the next transmission on.
    pub(super) fn set_rate(&mut self, rate: BitRate) {
        self.pace = Pace::Rate(Serialiser::new(Some(rate)));
    }

    /// Whether a queued packet may start at `now`, if nothing is in transmission.
    pub(super) fn may_start(&mut self, now: Time) -> bool {
        match &mut self.pace {
            Pace::Rate(_) => true,
            Pace::Trace(replay) => replay.may_start(now),
        }
    }

    /// When a packet may start for which [`Transmitter::may_start`] returned false.
    pub(super) fn next_start(&self) -> Option<Time> {
        match &self.pace {
            Pace::Rate(_) => None,
            Pace::Trace(replay) => replay.next_start(),
        }
    }

    /// Sends an IP packet of `size` from `start`, in its frame; returns the duration.
    pub(super) fn send(&mut self, start: Time, size: Bytes) -> Span {
        let size = self.framing.on_wire(size);
        match &mut self.pace {
            Pace::Rate(serialiser) => serialiser.send(start, size),
            Pace::Trace(replay) => replay.send(start, size),
        }
    }

    /// The queue is empty, or may not be sent now.
    pub(super) fn rest(&mut self) {
        if let Pace::Trace(replay) = &mut self.pace {
            replay.rest();
        }
    }
}
