//! A constant window: the simplest law.

use super::{Arrival, WindowLaw};
use crate::unit::{Bytes, Span, Time};

/// Always the same window, as for a program that sets `SO_RCVBUF`.
#[derive(Debug, Clone, Copy)]
pub struct Fixed {
    window: Bytes,
}

impl Fixed {
    /// A window of this size.
    pub fn new(window: Bytes) -> Self {
        Self { window }
    }
}

impl WindowLaw for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn on_round_trip(&mut self, _now: Time, _sample: Span) {}

    fn on_arrival(&mut self, _now: Time, _arrival: Arrival) {}

    fn on_read(&mut self, _now: Time, _bytes: Bytes) {}

    fn window(&self) -> Bytes {
        self.window
    }
}
