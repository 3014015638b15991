//! The measured time of a flow.

use super::Period;
use freshline_core::unit::{Span, Time};

/// From the end of the warm-up or the flow's start, whichever is later, to the flow's stop or the
/// end of the run, whichever is earlier. Ages, backlogs and rates are means over this time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Measured {
    from: Time,
    until: Time,
}

impl Measured {
    /// The whole time from a flow's start to its stop.
    pub(super) const fn between(Period { from, until }: Period) -> Self {
        Self { from, until }
    }

    /// The warm-up has ended.
    pub(super) fn begin(&mut self, now: Time) {
        self.from = self.from.max(now);
    }

    /// Whether an event at `now` is not after it. Events before it are discarded at its beginning.
    pub(super) fn has(&self, now: Time) -> bool {
        now <= self.until
    }

    /// `now`, or its end if that was earlier.
    pub(super) fn clip(&self, now: Time) -> Time {
        now.min(self.until)
    }

    /// The part of it that has passed; `None` if no time has.
    pub(super) fn period(&self, now: Time) -> Option<Period> {
        self.passed(now).map(|_| Period { from: self.from, until: self.clip(now) })
    }

    /// The length of the part that has passed; `None` if no time has.
    pub(super) fn passed(&self, now: Time) -> Option<Span> {
        Some(self.clip(now).since(self.from)).filter(|passed| !passed.is_zero())
    }

    /// A count in it as a rate; `None` if no time has passed.
    pub(super) fn rate(&self, now: Time, count: f64) -> Option<f64> {
        Some(count / self.passed(now)?.as_secs_f64())
    }
}
