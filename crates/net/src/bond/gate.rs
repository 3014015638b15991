//! A gate in front of each path: a congestion controller that reports a full window while it is
//! closed.
//!
//! ```text
//!   poll_transmit ─► window()? ─► closed: 1 byte ─► noq-proto passes this path over
//!                               └► open: the real controller's window
//! ```
//!
//! noq-proto asks a path's controller for its window before each datagram, and takes the first path
//! that has room. Opening one gate and closing the others therefore chooses the path, without a
//! change in noq-proto. Loss probes and path MTU probes do not ask for the window, nor do acks
//! while no data is queued: they leave through closed gates, too.
//!
//! The real controller must not see the gate. A closed gate would look like a full window
//! ([`Controller::on_cwnd_limited`], `app_limited` false), and the window of a rarely used path
//! would grow without bound. So the gate itself decides, from the bytes in flight, whether the
//! window limits the path: by the rule of Linux (`tcp_is_cwnd_limited`) in slow start, and later if
//! more than seven eighths of the window are in use, as pacing keeps some of it free.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use freshline_core::path::Acked;
use freshline_core::unit::Span;
use noq_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};
use noq_proto::{Connection, PathId, RttEstimator};

use super::queueing_delays::{Expected, QueueingDelays};

/// The window that a closed gate reports; zero would trip an assertion of the pacer.
const CLOSED: u64 = 1;

/// Makes a gate, and the real controller behind it, for each path.
pub(super) struct Gates {
    pub(super) real: Arc<dyn ControllerFactory + Send + Sync>,
    /// Whether queueing delays of packets are kept, which costs a lock per packet.
    pub(super) keeps_delays: bool,
}

impl fmt::Debug for Gates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gates").finish_non_exhaustive()
    }
}

impl ControllerFactory for Gates {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let real = Arc::clone(&self.real).build(now, current_mtu);
        let reading = Reading {
            is_open: true,
            is_probing: false,
            was_asked: false,
            window: real.window(),
            mtu: current_mtu.into(),
            inflight: 0,
            max_inflight: 0,
            is_in_slow_start: true,
            ssthresh: None,
            pacing_rate: None,
            srtt: None,
            rttvar: Duration::ZERO,
            min_rtt: None,
            waiting_since: None,
            heard_at: None,
            sent_at: None,
            acked_bytes: 0,
            lost_bytes: 0,
        };
        let delays = self.keeps_delays.then(Arc::default);
        Box::new(Gate { real, handle: Handle(Arc::new(Mutex::new(reading)), delays) })
    }
}

/// The state of a path behind its gate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    is_open: bool,
    /// One datagram may leave regardless of the bytes in flight.
    is_probing: bool,
    /// Whether noq-proto has asked for the window, which it does when data is queued.
    was_asked: bool,
    /// The window of the real controller, in bytes.
    pub(super) window: u64,
    /// The largest UDP payload of this path.
    pub(super) mtu: u64,
    /// In bytes.
    pub(super) inflight: u64,
    /// The maximum in flight since the last batch of acks.
    max_inflight: u64,
    is_in_slow_start: bool,
    /// The slow-start threshold, in bytes; `None` before the first loss and for a law without one.
    pub(super) ssthresh: Option<u64>,
    /// The law's own pacing rate, in bytes per second.
    pub(super) pacing_rate: Option<u64>,
    pub(super) srtt: Option<Duration>,
    pub(super) rttvar: Duration,
    pub(super) min_rtt: Option<Duration>,
    /// Since when packets have been in flight without an ack.
    pub(super) waiting_since: Option<Instant>,
    /// The time of the last ack.
    pub(super) heard_at: Option<Instant>,
    /// When the last packet that asks for an ack was sent.
    pub(super) sent_at: Option<Instant>,
    pub(super) acked_bytes: u64,
    pub(super) lost_bytes: u64,
}

impl Reading {
    /// Whether the bytes in flight show that the window, and nothing else, limits this path.
    fn is_limited(&self) -> bool {
        if self.is_in_slow_start {
            return self.window < 2 * self.max_inflight;
        }
        self.max_inflight + self.mtu > self.window - self.window / 8
    }

    /// The probe timeout of RFC 9002, section 6.2.1, without the peer's ack delay.
    pub(super) fn probe_timeout(&self) -> Duration {
        self.srtt.map_or(Duration::from_millis(300), |srtt| srtt + 4 * self.rttvar)
    }
}

/// Opens and closes a gate, and reads the state behind it.
#[derive(Debug, Clone)]
pub(super) struct Handle(Arc<Mutex<Reading>>, Option<Arc<Mutex<QueueingDelays>>>);

impl Handle {
    /// The gate of a path; `None` if the path is gone.
    pub(super) fn of(connection: &Connection, path: PathId) -> Option<Self> {
        let gate = connection.congestion_state(path)?.clone_box().into_any();
        gate.downcast::<Gate>().ok().map(|gate| gate.handle)
    }

    fn lock(&self) -> MutexGuard<'_, Reading> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens or closes it, and resets [`Handle::was_asked`].
    pub(super) fn set(&self, is_open: bool) {
        let mut reading = self.lock();
        (reading.is_open, reading.is_probing, reading.was_asked) = (is_open, false, false);
    }

    /// Opens it for a probe, regardless of the window.
    pub(super) fn set_probing(&self) {
        let mut reading = self.lock();
        (reading.is_open, reading.is_probing, reading.was_asked) = (true, true, false);
    }

    /// Whether noq-proto has asked for the window since [`Handle::set`].
    pub(super) fn was_asked(&self) -> bool {
        self.lock().was_asked
    }

    /// The queueing delays of packets, if the scheduler uses them.
    fn delays(&self) -> Option<MutexGuard<'_, QueueingDelays>> {
        Some(self.1.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the expected time in the device queue of packets that are sent from now on.
    pub(super) fn expect_wait(&self, expected: Expected) {
        if let Some(mut delays) = self.delays() {
            delays.expect(expected);
        }
    }

    /// The packet sent since the last call, if its departure from the device is to be recorded.
    pub(super) fn take_pending(&self) -> Option<Pending> {
        let (number, sent_at) = self.delays()?.take_sent()?;
        Some(Pending::new(Arc::clone(self.1.as_ref()?), number, sent_at))
    }

    /// The queueing delay, by the stamp of its departure, of the packet that was acknowledged last;
    /// `None` if such stamps are unavailable.
    pub(super) fn stamped_wait(&self) -> Option<Span> {
        self.delays()?.stamped()
    }

    /// Packets acknowledged since the last call. `smoothed` is the path's smoothed round-trip time,
    /// which the controller learns one ACK frame late.
    pub(super) fn take_acked(&self, smoothed: Option<Duration>) -> Vec<Acked> {
        let Some(mut delays) = self.delays() else { return Vec::new() };
        if let Some(smoothed) = smoothed {
            delays.settle(smoothed);
        }
        let acked = delays.take();
        if !acked.is_empty() {
            let mut reading = self.lock();
            reading.srtt = smoothed.or(reading.srtt);
        }
        acked
    }

    pub(super) fn read(&self) -> Reading {
        *self.lock()
    }
}

/// A packet whose departure from the device is to be recorded.
#[derive(Debug)]
pub(super) struct Pending {
    delays: Arc<Mutex<QueueingDelays>>,
    number: u64,
    sent_at: Instant,
}

impl Pending {
    pub(super) fn new(delays: Arc<Mutex<QueueingDelays>>, number: u64, sent_at: Instant) -> Self {
        Self { delays, number, sent_at }
    }

    /// When QUIC sent it.
    pub(super) fn sent_at(&self) -> Instant {
        self.sent_at
    }

    /// Records that it left the device this long after it was sent.
    pub(super) fn on_left(&self, wait: Span) {
        self.delays.lock().unwrap_or_else(PoisonError::into_inner).on_left(self.number, wait);
    }
}

#[derive(Debug)]
struct Gate {
    real: Box<dyn Controller>,
    handle: Handle,
}

impl Gate {
    /// Publishes the state of the real controller.
    fn publish(&self) {
        let metrics = self.real.metrics();
        let mut reading = self.handle.lock();
        reading.window = self.real.window();
        reading.is_in_slow_start =
            metrics.ssthresh.is_some_and(|ssthresh| reading.window < ssthresh);
        reading.ssthresh = metrics.ssthresh.filter(|ssthresh| *ssthresh < u64::MAX);
        reading.pacing_rate = metrics.pacing_rate;
    }
}

impl Controller for Gate {
    fn on_sent(&mut self, now: Instant, bytes: u64, largest_pn: u64) {
        self.real.on_sent(now, bytes, largest_pn);
    }

    fn on_packet_sent(&mut self, now: Instant, bytes: u16, pn: u64) {
        self.real.on_packet_sent(now, bytes, pn);
        if let Some(mut delays) = self.handle.delays() {
            delays.on_sent(pn, now);
        }
        let mut reading = self.handle.lock();
        reading.inflight += u64::from(bytes);
        reading.max_inflight = reading.max_inflight.max(reading.inflight);
        reading.waiting_since.get_or_insert(now);
        reading.sent_at = Some(now);
    }

    fn on_cwnd_limited(&mut self) {
        if self.handle.read().is_limited() {
            self.real.on_cwnd_limited();
        }
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        pn: u64,
        _app_limited: bool,
        rtt: &RttEstimator,
    ) {
        let is_limited = self.handle.read().is_limited();
        self.real.on_ack(now, sent, bytes, pn, !is_limited, rtt);
        if let Some(mut delays) = self.handle.delays() {
            delays.on_acked(pn, rtt.get());
        }
        let mut reading = self.handle.lock();
        let sample = now.saturating_duration_since(sent);
        reading.rttvar = match reading.srtt {
            None => sample / 2,
            Some(srtt) => (3 * reading.rttvar + srtt.abs_diff(sample)) / 4,
        };
        (reading.srtt, reading.min_rtt) = (Some(rtt.get()), Some(rtt.min()));
        reading.inflight = reading.inflight.saturating_sub(bytes);
        reading.acked_bytes += bytes;
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        _app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        let is_limited = self.handle.read().is_limited();
        self.real.on_end_acks(now, in_flight, !is_limited, largest_packet_num_acked);
        self.publish();
        if let Some(mut delays) = self.handle.delays() {
            delays.on_frame_over();
        }
        let mut reading = self.handle.lock();
        (reading.inflight, reading.max_inflight) = (in_flight, in_flight);
        reading.heard_at = Some(now);
        reading.waiting_since = (in_flight > 0).then_some(now);
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
        self.real.on_congestion_event(
            now,
            sent,
            is_persistent_congestion,
            is_ecn,
            lost_bytes,
            largest_lost_pn,
        );
        self.publish();
    }

    fn on_packet_lost(&mut self, lost_bytes: u16, pn: u64, now: Instant) {
        self.real.on_packet_lost(lost_bytes, pn, now);
        let mut reading = self.handle.lock();
        reading.inflight = reading.inflight.saturating_sub(lost_bytes.into());
        reading.lost_bytes += u64::from(lost_bytes);
        if reading.inflight == 0 {
            // No ack is outstanding any more.
            reading.waiting_since = None;
        }
    }

    fn on_spurious_congestion_event(&mut self) {
        self.real.on_spurious_congestion_event();
        self.publish();
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.real.on_mtu_update(new_mtu);
        self.handle.lock().mtu = new_mtu.into();
        self.publish();
    }

    fn on_ack_frequency_update(&mut self, threshold: u64, max_ack_delay: Duration) {
        self.real.on_ack_frequency_update(threshold, max_ack_delay);
    }

    fn window(&self) -> u64 {
        let mut reading = self.handle.lock();
        reading.was_asked = true;
        match (reading.is_probing, reading.is_open) {
            (true, _) => u64::MAX,
            (false, true) => self.real.window(),
            (false, false) => CLOSED,
        }
    }

    /// The pacer uses these, also while the gate is closed.
    fn metrics(&self) -> ControllerMetrics {
        self.real.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self { real: self.real.clone_box(), handle: self.handle.clone() })
    }

    fn initial_window(&self) -> u64 {
        self.real.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use noq_proto::congestion::CubicConfig;

    use super::*;
    use crate::clock::Clock;

    fn now() -> Instant {
        let clock = Clock::new();
        clock.instant_of(clock.now())
    }

    fn gate() -> (Box<dyn Controller>, Handle) {
        gate_that(true)
    }

    fn gate_that(keeps_delays: bool) -> (Box<dyn Controller>, Handle) {
        let gates = Arc::new(Gates { real: Arc::new(CubicConfig::default()), keeps_delays });
        let gate = gates.build(now(), 1200);
        let handle = gate.clone_box().into_any().downcast::<Gate>().unwrap().handle;
        (gate, handle)
    }

    #[test]
    fn a_closed_gate_has_no_window_and_its_pacer_the_real_one() {
        let (gate, handle) = gate();
        let window = gate.window();
        assert!(window > 10_000 && handle.was_asked());
        handle.set(false);
        assert!(!handle.was_asked());
        assert_eq!((gate.window(), gate.metrics().congestion_window), (CLOSED, window));
        assert!(handle.was_asked());
        handle.set(true);
        assert_eq!(gate.window(), window);
    }

    #[test]
    fn what_is_in_flight_is_counted() {
        let (mut gate, handle) = gate();
        let at = now();
        for pn in 0..3 {
            gate.on_packet_sent(at, 1000, pn);
        }
        assert_eq!(handle.read().inflight, 3000);
        assert_eq!(handle.read().waiting_since, Some(at));
        gate.on_packet_lost(1000, 0, at);
        assert_eq!((handle.read().inflight, handle.read().lost_bytes), (2000, 1000));
        gate.on_end_acks(at, 0, false, Some(2));
        let reading = handle.read();
        assert_eq!((reading.inflight, reading.waiting_since), (0, None));
        gate.on_packet_sent(at, 1000, 3);
        assert_eq!(handle.read().waiting_since, Some(at));
        gate.on_packet_lost(1000, 3, at);
        assert_eq!(handle.read().waiting_since, None);
    }

    #[test]
    fn waits_are_kept_for_schedulers_that_want_them() {
        for keeps_delays in [true, false] {
            let (mut gate, handle) = gate_that(keeps_delays);
            handle.expect_wait(Expected { wait: Some(Span::from_millis(5)), is_final: false });
            gate.on_packet_sent(now(), 1000, 0);
            assert_eq!(handle.delays().is_some(), keeps_delays);
            assert_eq!(handle.take_pending().is_some(), keeps_delays);
            assert_eq!(handle.take_acked(None), [], "nothing was acknowledged");
        }
    }

    #[test]
    fn only_a_window_in_use_limits_a_path() {
        let (mut gate, handle) = gate();
        let at = now();
        let window = handle.read().window;
        gate.on_packet_sent(at, 1000, 0);
        assert!(!handle.read().is_limited());
        for pn in 1..=window / 1000 {
            gate.on_packet_sent(at, 1000, pn);
        }
        assert!(handle.read().is_limited());
    }
}
