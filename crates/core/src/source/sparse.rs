//! Sparse acks: which updates ask for one where the way back is narrow.
//!
//! Acks that queue on their way back tell of the past, and the next one would tell the same. So they
//! are asked for at half the pace at which the way back was seen to carry them, and from then on a
//! little faster each round:
//!
//! ```text
//! back   = (rtt − least rtt) − wait      what an ack waited for: `waits`
//! stands : back > spacing, for each ack of a round of 8
//!
//! gap ← 2 · spacing    if it stands          spacing: mean time between the acks of the round
//!       0.95 · gap     otherwise             gap ≤ srtt/4, 100 ms
//! ```
//!
//! An update asks if the last one that did left a gap ago. Jitter is no queue: one of 8 acks hardly
//! waits (CoDel's least of an interval, RFC 8289 section 3.2). Where the queue is somebody else's the
//! bounds are reached, and there is enough to steer by.

use crate::unit::{Span, Time};

/// Which updates ask for an ack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Acks {
    /// Each.
    Every,
    /// Some, while acks queue on their way back.
    #[default]
    Sparse,
}

/// Acks that a round counts.
const ROUND: u32 = 8;

/// While a queue drains, acks are asked for at this part of the pace at which they came.
const DRAIN: u64 = 2;

/// By this factor the gap shrinks in a round without a queue: half of it in 14.
const SHRINK: f64 = 0.95;

/// Acks that a round trip has at least: a law that counts 8 then decides every other one.
const ROUND_TRIP: f64 = 4.0;

/// The longest gap: ten of them are a second, after which a session is in doubt.
const LONGEST: Span = Span::from_millis(100);

#[derive(Debug, Clone)]
pub(super) struct Sparse {
    acks: Acks,
    /// Zero: each update asks.
    gap: Span,
    asked_at: Option<Time>,
    /// When the last round ended.
    began_at: Option<Time>,
    count: u32,
    /// The least that an ack of the round waited on its way back, s.
    least: f64,
}

impl Sparse {
    pub(super) fn new(acks: Acks) -> Self {
        Self {
            acks,
            gap: Span::ZERO,
            asked_at: None,
            began_at: None,
            count: 0,
            least: f64::INFINITY,
        }
    }

    /// Whether the update that leaves now asks.
    pub(super) fn wants_ack(&self, now: Time) -> bool {
        self.asked_at.is_none_or(|at| now.since(at) >= self.gap)
    }

    pub(super) fn on_sent(&mut self, now: Time) {
        if self.wants_ack(now) {
            self.asked_at = Some(now);
        }
    }

    /// A fresh ack that waited for `back` on its way; both times in s.
    pub(super) fn on_ack(&mut self, now: Time, back: f64, srtt: f64) {
        if self.acks == Acks::Every {
            return;
        }
        self.count += 1;
        self.least = self.least.min(back);
        let began_at = *self.began_at.get_or_insert(now);
        if self.count < ROUND {
            return;
        }
        let spacing = now.since(began_at) / u64::from(self.count);
        let stands = self.least > spacing.as_secs_f64();
        let wish = if stands { self.gap.max(spacing * DRAIN) } else { self.gap.mul_f64(SHRINK) };
        self.gap = wish.min(Span::from_secs_f64(srtt / ROUND_TRIP)).min(LONGEST);
        (self.began_at, self.count, self.least) = (Some(now), 0, f64::INFINITY);
    }
}
