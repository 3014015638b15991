//! A wrapper of a congestion controller that records values that the connection does not expose: the bytes
//! in flight, and whether the window or the pacer blocked the last attempt to send.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use noq_proto::RttEstimator;
use noq_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};

/// Makes congestion controllers.
pub(crate) type Factory = Arc<dyn ControllerFactory + Send + Sync>;

/// The values that a [`Watched`] controller records.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    in_flight: AtomicU64,
    is_window_full: AtomicBool,
    /// A connection reads the metrics once in each attempt to send, and once more for the pacer if it has
    /// something to send and the window has room for it.
    readings: AtomicU32,
}

impl Seen {
    /// Bytes in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Begins an attempt to send.
    pub(crate) fn begin_attempt(&self) {
        self.is_window_full.store(false, Ordering::Relaxed);
        self.readings.store(0, Ordering::Relaxed);
    }

    /// Whether the attempt, which sent nothing, had something to send.
    pub(crate) fn was_held_back(&self) -> bool {
        self.is_window_full.load(Ordering::Relaxed) || self.readings.load(Ordering::Relaxed) > 1
    }
}

/// Makes controllers of `inner` that record their inputs.
pub(crate) struct WatchedFactory {
    pub(crate) inner: Factory,
    pub(crate) seen: Arc<Seen>,
}

impl ControllerFactory for WatchedFactory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let inner = self.inner.clone().build(now, current_mtu);
        Box::new(Watched { inner, seen: self.seen.clone() })
    }
}

struct Watched {
    inner: Box<dyn Controller>,
    seen: Arc<Seen>,
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Controller for Watched {
    fn on_sent(&mut self, now: Instant, bytes: u64, largest_pn: u64) {
        self.inner.on_sent(now, bytes, largest_pn);
    }

    fn on_packet_sent(&mut self, now: Instant, bytes: u16, pn: u64) {
        self.seen.in_flight.fetch_add(bytes.into(), Ordering::Relaxed);
        self.inner.on_packet_sent(now, bytes, pn);
    }

    fn on_cwnd_limited(&mut self) {
        self.seen.is_window_full.store(true, Ordering::Relaxed);
        self.inner.on_cwnd_limited();
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        pn: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.inner.on_ack(now, sent, bytes, pn, app_limited, rtt);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.seen.in_flight.store(in_flight, Ordering::Relaxed);
        self.inner.on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        is_ecn: bool,
        lost_bytes: u64,
        largest_lost_pn: u64,
    ) {
        self.inner.on_congestion_event(
            now,
            sent,
            is_persistent_congestion,
            is_ecn,
            lost_bytes,
            largest_lost_pn,
        );
    }

    fn on_packet_lost(&mut self, lost_bytes: u16, pn: u64, now: Instant) {
        let left = self.seen.in_flight().saturating_sub(lost_bytes.into());
        self.seen.in_flight.store(left, Ordering::Relaxed);
        self.inner.on_packet_lost(lost_bytes, pn, now);
    }

    fn on_spurious_congestion_event(&mut self) {
        self.inner.on_spurious_congestion_event();
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.inner.on_mtu_update(new_mtu);
    }

    fn on_ack_frequency_update(&mut self, threshold: u64, max_ack_delay: Duration) {
        self.inner.on_ack_frequency_update(threshold, max_ack_delay);
    }

    fn window(&self) -> u64 {
        self.inner.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        self.seen.readings.fetch_add(1, Ordering::Relaxed);
        self.inner.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self { inner: self.inner.clone_box(), seen: self.seen.clone() })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
