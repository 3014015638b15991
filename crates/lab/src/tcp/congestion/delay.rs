//! The measurement shared by the delay-based laws: the minimum round trip of a round, and of all
//! rounds.

use freshline_core::unit::Span;

use super::Ack;
use super::round::Round;

/// Rounds with fewer samples are ignored: all of them may be of delayed acks.
const MIN_SAMPLES: u32 = 3;

/// Collects round trips.
#[derive(Debug, Clone, Copy)]
pub(super) struct DelayMeter {
    round: Round,
    base: Span,
    least: Span,
    samples: u32,
}

/// One round's delay.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delay {
    /// The minimum of all round trips: the path without a queue.
    pub(super) base: Span,
    /// The minimum of the round.
    pub(super) rtt: Span,
}

impl Delay {
    /// The queueing delay.
    pub(super) fn queueing(&self) -> Span {
        self.rtt - self.base
    }
}

/// The position of an ack in the measurement.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stage {
    /// The round continues.
    Within,
    /// A round is over; its delay, if there were enough samples.
    Over(Option<Delay>),
}

impl DelayMeter {
    pub(super) fn new() -> Self {
        Self { round: Round::default(), base: Span::MAX, least: Span::MAX, samples: 0 }
    }

    /// Restarts the round: samples taken during a recovery are discarded.
    pub(super) fn restart(&mut self) {
        (self.least, self.samples) = (Span::MAX, 0);
    }

    pub(super) fn on_ack(&mut self, ack: &Ack) -> Stage {
        if let Some(rtt) = ack.rtt {
            self.base = self.base.min(rtt);
            self.least = self.least.min(rtt);
            self.samples += 1;
        }
        if !self.round.starts_with(ack) {
            return Stage::Within;
        }
        let enough = self.samples >= MIN_SAMPLES;
        let delay = enough.then_some(Delay { base: self.base, rtt: self.least });
        self.restart();
        Stage::Over(delay)
    }
}
