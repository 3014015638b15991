//! When an update may leave that is due: not with too many in transit, and not in a common pause.

use super::{AMPLE, Tenth};
use crate::source::RateLaw;
use crate::unit::{Span, Time};

/// So many times of what is to be in transit may be, and two more.
const BEYOND: f64 = 1.5;

/// Bounds of the longest time between updates without an ack, which is 8 round trips: an outage is over when an
/// update comes through.
const OUTAGE: [Span; 2] = [Span::from_millis(250), Span::from_secs(2)];

/// After losses updates leave after another time without an ack, at most so long.
const CROWDED: Span = Span::from_secs(2);

/// A source pauses with the others in its first s.
const NEW: Span = Span::from_secs(10);

/// Later only with waits of so many services, or losses: alone on a path it need not.
const PAUSING: f64 = 2.0;

impl Tenth {
    /// When the next update may leave with too many in transit; otherwise at once.
    pub(super) fn reopens_at(&self) -> Time {
        let (newest, left_at) = self.newest_sent;
        let in_transit = newest.saturating_sub(self.newest_acked.unwrap_or(newest)) as f64;
        if in_transit < BEYOND * self.in_transit + 2.0 {
            return Time::ZERO;
        }
        let srtt = Span::from_secs_f64(self.srtt);
        let is_clean = self.was_clean || self.is_testing();
        let silence = left_at.since(self.heard_at.min(left_at));
        let wait = if is_clean {
            let [least, most] = OUTAGE;
            (silence / 2).min((srtt * 8).clamp(least, most))
        } else {
            silence.min(CROWDED)
        };
        left_at + wait.max(srtt)
    }

    /// `at`, or the first time of the pacer's grid behind the pause into which that falls.
    pub(super) fn behind_pause(&self, at: Time) -> Time {
        let is_new = at.since(self.began_at.min(at)) < NEW;
        let deep = PAUSING * self.service.least().unwrap_or(0.0);
        let pauses = self.in_transit < AMPLE && (is_new || !self.was_clean || self.wait > deep);
        let Some(end) = self.pauses.end(at, self.srtt).filter(|_| pauses) else { return at };
        let period = self.rate().period();
        let skipped = end.since(at).as_nanos() / period.as_nanos().max(1) + 1;
        at + period * skipped
    }
}
