//! What the laws that look at delay share: the round trips of one round, and the least ever.

use freshline_core::unit::Span;

use super::Ack;
use super::round::Round;

/// Fewer samples in a round say nothing: they may all be of delayed acks.
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
    /// The least round trip ever: the path without a queue.
    pub(super) base: Span,
    /// The least of the round.
    pub(super) rtt: Span,
}

impl Delay {
    /// How long packets waited in queues.
    pub(super) fn queueing(&self) -> Span {
        self.rtt - self.base
    }
}

/// What an ack is to the measurement.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stage {
    /// The round goes on.
    Within,
    /// A round is over; where there were enough samples, this was its delay.
    Over(Option<Delay>),
}

impl DelayMeter {
    pub(super) fn new() -> Self {
        Self { round: Round::default(), base: Span::MAX, least: Span::MAX, samples: 0 }
    }

    /// Starts the round anew: what was measured during a recovery does not count.
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
