//! HyStart: leaves slow start before the queue overflows (Ha, Rhee: "Taming the Elephants",
//! Computer Networks 2011), with the constants of Linux.
//!
//! Within each round trip, one of two signs is enough:
//!
//! - ack train: acks that follow each other within 2 ms have gone on for half the least round
//!   trip, so what is in flight fills the path one way;
//! - delay: the least round trip of the first eight acks is above the least ever by an eighth of
//!   it, and by no less than 4 and no more than 16 ms.
//!
//! Linux prolongs the train's limit by what a burst of segmentation offload takes, 0.5 ms at most;
//! here it is not.

use freshline_core::unit::{Span, Time};

use super::Ack;
use super::round::Round;

/// Settings of HyStart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HyStartParams {
    /// The window in segments below which it does not look: 16.
    pub low_window: f64,
    /// Acks that follow each other within this belong to a train: 2 ms.
    pub ack_spacing: Span,
    /// The round trips of so many acks are looked at in each round: 8.
    pub samples: u32,
    /// The delay's threshold is a fraction of the least round trip, but not less than this: 4 ms.
    pub min_threshold: Span,
    /// Nor more than this: 16 ms.
    pub max_threshold: Span,
}

impl Default for HyStartParams {
    fn default() -> Self {
        Self {
            low_window: 16.0,
            ack_spacing: Span::from_millis(2),
            samples: 8,
            min_threshold: Span::from_millis(4),
            max_threshold: Span::from_millis(16),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct HyStart {
    params: HyStartParams,
    round: Round,
    started_at: Time,
    train_at: Time,
    round_min: Span,
    samples: u32,
}

impl HyStart {
    pub(super) fn new(params: HyStartParams) -> Self {
        Self {
            params,
            round: Round::default(),
            started_at: Time::ZERO,
            train_at: Time::ZERO,
            round_min: Span::MAX,
            samples: 0,
        }
    }

    /// Whether slow start with a window of `cwnd` segments should end with this ack, whose round
    /// trip was `rtt`; the least ever is `least`.
    pub(super) fn is_enough(
        &mut self,
        now: Time,
        ack: &Ack,
        cwnd: f64,
        rtt: Span,
        least: Span,
    ) -> bool {
        if self.round.starts_with(ack) {
            (self.started_at, self.train_at) = (now, now);
            (self.round_min, self.samples) = (Span::MAX, 0);
        }
        if cwnd < self.params.low_window {
            return false;
        }
        self.is_train(now, least) || self.is_delayed(rtt, least)
    }

    fn is_train(&mut self, now: Time, least: Span) -> bool {
        if now.since(self.train_at) > self.params.ack_spacing {
            return false;
        }
        self.train_at = now;
        now.since(self.started_at) > least / 2
    }

    fn is_delayed(&mut self, rtt: Span, least: Span) -> bool {
        self.round_min = self.round_min.min(rtt);
        if self.samples < self.params.samples {
            self.samples += 1;
            return false;
        }
        let threshold = (least / 8).clamp(self.params.min_threshold, self.params.max_threshold);
        self.round_min > least + threshold
    }
}
