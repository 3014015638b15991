//! A window that never changes.

use freshline_core::unit::{Packets, Time};

use super::{Ack, CongestionControl, Signal};

/// A constant number of segments in flight, whatever happens.
#[derive(Debug, Clone, Copy)]
pub struct FixedWindow(Packets);

impl FixedWindow {
    /// A window of `packets` segments; zero counts as one.
    pub fn new(packets: Packets) -> Self {
        Self(packets.max(Packets::new(1)))
    }
}

impl CongestionControl for FixedWindow {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn window(&self) -> Packets {
        self.0
    }

    fn on_ack(&mut self, _now: Time, _ack: &Ack) {}

    fn on_congestion(&mut self, _now: Time, _signal: Signal) {}

    fn on_rto(&mut self, _now: Time) {}
}
