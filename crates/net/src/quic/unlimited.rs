//! A congestion controller that leaves the rate to the source law.
//!
//! QUIC asks its congestion controller how many bytes may be in flight. Freshline answers that
//! question one layer up: the source law chooses when to generate an update, and an update that
//! waits for a window ages. So this controller never reacts to loss, never paces, and its window is
//! wider than any working path needs.
//!
//! The window is not infinite, because every packet in flight is remembered until it is
//! acknowledged: a peer that accepts our datagrams and never acknowledges one would grow that
//! memory without bound. [`Unlimited::in_flight`] bounds it.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use noq_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};

/// Sends all data, up to `in_flight` unacknowledged bytes.
#[derive(Clone, Debug)]
pub struct Unlimited {
    /// The maximum number of bytes in flight. A bound on memory, not on the rate: choose it well
    /// above the largest bandwidth-delay product of a useful path.
    pub in_flight: u64,
}

impl ControllerFactory for Unlimited {
    fn build(self: Arc<Self>, _now: Instant, _current_mtu: u16) -> Box<dyn Controller> {
        self.clone_box()
    }
}

impl Controller for Unlimited {
    fn on_congestion_event(
        &mut self,
        _now: Instant,
        _sent: Instant,
        _is_persistent_congestion: bool,
        _is_ecn: bool,
        _lost_bytes: u64,
        _largest_lost_pn: u64,
    ) {
    }

    fn on_mtu_update(&mut self, _new_mtu: u16) {}

    fn window(&self) -> u64 {
        self.in_flight
    }

    /// The pacer derives its rate from this window, and is inactive above `u32::MAX`.
    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = u64::MAX;
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.in_flight
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
