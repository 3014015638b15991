//! Learns Δ: the part of the round trip that varies although this flow has no queue.
//!
//! ```text
//! path = RTTm + Δ,    0 ≤ Δ ≤ min(9/20·RTTm, 20 ms)
//! ```
//!
//! Where the delay of a path varies, RTTm is a lucky sample: θ·RTTm may be less than a round trip
//! without a queue, and the window is too small for the rate (section 2.4.1 of the thesis adds Δ by
//! hand). The round trip alone does not distinguish variation from a queue. Its response to the
//! window does:
//!
//! | measurement | own queue | competing queue | variation |
//! |---|---|---|---|
//! | window and flight grow by g = 1.4 | round trip grows by g | grows by less, the smaller this flow's share is | stays |
//! | window is halved | halves | stays | stays |
//!
//! **Growing.** After 12 rounds with a queue, while R̂TT is below RTTm + 2·(maximum Δ), all flows
//! of the host are allowed 1.55 times their data in flight, for at most five rounds. If the flight
//! grows to 1.4 times and R̂TT to less than 1.18 times, the path had room: the round trip before
//! contained no queue of this flow, and Δ is R̂TT − RTTm. As soon as R̂TT is 1.18 times as long,
//! the window returns to its former size. A larger window costs this flow nothing, so that it loses
//! no share to a plain receiver, as it would with a smaller one.
//!
//! **Halving.** A Δ above zero is measured again with half a window, and only lowered: Δ is at most
//! the excess of R̂TT over RTTm then. Alone on a link, half of a window of θ·(1 + Δ/RTTm) BDPs
//! leaves no queue, since θ/2·(1 + 9/20) is 1 with the thesis's θ of 1.38: a wrong Δ falls to zero
//! at once.
//!
//! Measurements are at least 60 round trips and 10 s apart, and up to 16 times as far while they
//! agree.
//!
//! # Limits
//!
//! Flows of several hosts that all hold short queues yield to each other: the round trip then stays
//! although the link is full, and Δ rises up to its bound. The same happens where the flows of this
//! host have less than about 45 % of a link: 1.4 times of a third lengthens the round trip 1.13
//! times.

use core::fmt;
use core::str::FromStr;

use crate::unit::{Bytes, Span, Time};

/// How Δ is set; as text a span, such as `18ms`, or `learn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delta {
    /// Set by hand; zero for a path whose delay does not vary.
    Fixed(Span),
    /// From measurements; needs the K of the path.
    Learn,
}

impl Default for Delta {
    fn default() -> Self {
        Self::Fixed(Span::ZERO)
    }
}

impl Delta {
    /// Δ as it is set by hand; zero if it is learnt.
    pub fn fixed(self) -> Span {
        match self {
            Self::Fixed(delta) => delta,
            Self::Learn => Span::ZERO,
        }
    }
}

impl fmt::Display for Delta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(delta) => delta.fmt(f),
            Self::Learn => f.write_str("learn"),
        }
    }
}

/// Text that is neither a span nor `learn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("give a span of time, such as `18ms`, or `learn`")]
pub struct DeltaError;

impl FromStr for Delta {
    type Err = DeltaError;

    fn from_str(text: &str) -> Result<Self, DeltaError> {
        match text {
            "learn" => Ok(Self::Learn),
            _ => text.parse().map(Self::Fixed).map_err(|_| DeltaError),
        }
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Delta {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Delta {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = alloc::string::String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The maximum of Δ. 9/20: see the header on halving. 20 ms: the thesis has 18 ms on LTE.
fn most(base: Span) -> Span {
    (base * 9 / 20).min(Span::from_millis(20))
}

/// The Δ of a remote host's path, and when it was measured.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Variation {
    delta: Span,
    measured_at: Option<Time>,
    /// The number of measurements in a row that agreed.
    agreed: u32,
}

impl Variation {
    /// How often the pause between measurements doubles.
    const DOUBLINGS: u32 = 4;

    pub(super) fn delta(&self, base: Span) -> Span {
        // The path may have become shorter since it was measured.
        self.delta.min(most(base))
    }

    /// Whether the last measurement was long enough ago.
    pub(super) fn is_due(&self, now: Time, pause: Span) -> bool {
        self.measured_at.is_none_or(|at| now >= at + pause * (1 << self.agreed))
    }

    /// Whether a larger Δ could explain this round trip.
    pub(super) fn may_grow(&self, base: Span, rtt: Span) -> bool {
        self.delta < most(base) && rtt < base + most(base) * 2
    }

    /// Begins a measurement.
    pub(super) fn begin(&mut self, now: Time) {
        self.measured_at = Some(now);
    }

    /// The path had room at a round trip of `rtt`.
    pub(super) fn learn(&mut self, base: Span, rtt: Span) {
        self.delta = (rtt.max(base) - base).min(most(base));
        self.agreed = 0;
    }

    /// Whether Δ explains the round trip of half a window: it is no queue then.
    pub(super) fn explains(&self, base: Span, rtt: Span) -> bool {
        !self.delta.is_zero() && rtt * 5 < (base + self.delta) * 6
    }

    /// Takes in the round trip of half a window.
    pub(super) fn lower(&mut self, base: Span, rtt: Span) {
        let seen = rtt.max(base) - base;
        if seen * 5 >= self.delta * 4 {
            self.agree();
            return;
        }
        self.delta = if seen < base / 16 { Span::ZERO } else { seen };
        self.agreed = 0;
    }

    /// Counts a measurement that changed nothing.
    pub(super) fn agree(&mut self) {
        self.agreed = (self.agreed + 1).min(Self::DOUBLINGS);
    }
}

/// A measurement with larger windows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Growth {
    /// ŵ of the leader before.
    flight: Bytes,
}

impl From<Bytes> for Growth {
    fn from(flight: Bytes) -> Self {
        Self { flight }
    }
}

impl Growth {
    /// The number of rounds that the flight has to grow, after the first.
    pub(super) const ROUNDS: u32 = 4;

    /// Whether the flight has grown and the round trip has not.
    pub(super) fn is_free(&self, before: Span, flight: Bytes, rtt: Span) -> bool {
        flight.get() * 5 >= self.flight.get() * 7 && !Self::is_queue(before, rtt)
    }

    /// Whether the round trip has grown.
    pub(super) fn is_queue(before: Span, rtt: Span) -> bool {
        rtt * 50 >= before * 59
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Span = Span::from_millis(20);
    const PAUSE: Span = Span::from_secs(10);

    #[test]
    fn a_flight_that_grows_without_the_round_trip_is_no_queue() {
        let growth = Growth::from(Bytes::new(100_000));
        let (before, grown) = (Span::from_millis(30), Bytes::new(140_000));
        assert!(growth.is_free(before, grown, Span::from_millis(35)));
        assert!(!growth.is_free(before, Bytes::new(139_000), Span::from_millis(30)));
        // A full link of two flows: 1.4 times the flight of one is 1.2 times the round trip.
        assert!(!growth.is_free(before, grown, Span::from_millis(36)));
    }

    #[test]
    fn a_delta_has_a_bound_and_falls_to_what_half_a_window_shows() {
        let mut variation = Variation::default();
        variation.learn(BASE, Span::from_millis(45));
        assert_eq!(variation.delta(BASE), Span::from_millis(9));
        assert!(variation.explains(BASE, Span::from_millis(34)));
        assert!(!variation.explains(BASE, Span::from_millis(35)));
        variation.lower(BASE, Span::from_millis(28));
        assert_eq!(variation.delta(BASE), Span::from_millis(9), "within a fifth of it");
        variation.lower(BASE, Span::from_millis(25));
        assert_eq!(variation.delta(BASE), Span::from_millis(5));
        variation.lower(BASE, Span::from_millis(21));
        assert_eq!(variation.delta(BASE), Span::ZERO);
        assert_eq!(most(Span::from_millis(100)), Span::from_millis(20));
    }

    #[test]
    fn measurements_that_agree_become_rare() {
        let mut variation = Variation::default();
        let now = Time::ZERO + Span::from_secs(100);
        assert!(variation.is_due(now, PAUSE));
        variation.begin(now);
        assert!(!variation.is_due(now + Span::from_secs(9), PAUSE));
        assert!(variation.is_due(now + PAUSE, PAUSE));
        for _ in 0..100 {
            variation.agree();
        }
        assert!(!variation.is_due(now + Span::from_secs(159), PAUSE));
        assert!(variation.is_due(now + Span::from_secs(160), PAUSE));
    }
}
