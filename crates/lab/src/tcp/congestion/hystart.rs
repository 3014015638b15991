//! HyStart: leaves slow start before the queue overflows (Ha, Rhee: "Taming the Elephants",
//! Computer Networks 2011), with the constants of Linux.
//!
//! Slow start ends with either of two signs within a round trip:
//!
//! - ack train: acks at most 2 ms apart have gone on for half of the minimum round trip, so the
//!   segments in flight fill the path in one direction;
//! - delay: the minimum round trip of the first eight acks exceeds the minimum of all rounds by an
//!   eighth of it, with a threshold of at least 4 ms and at most 16 ms.
//!
//! Linux extends the train's limit by the duration of a burst of segmentation offload, at most 0.5
//! ms; this implementation does not.

use freshline_core::unit::{Span, Time};

use super::Ack;
use super::round::Round;

/// Settings of HyStart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HyStartParams {
    /// HyStart is inactive while the window is below this, in segments: 16.
    pub low_window: f64,
    /// The maximum interval between acks of a train: 2 ms.
    pub ack_spacing: Span,
    /// The number of acks per round whose round trips are examined: 8.
    pub samples: u32,
    /// The minimum of the delay threshold, which is a fraction of the minimum round trip: 4 ms.
    pub min_threshold: Span,
    /// The maximum of the delay threshold: 16 ms.
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
    /// trip was `rtt`; `least` is the minimum of all round trips.
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
