//! The state of one path, from the updates sent on it and the acks received on it.

use alloc::collections::VecDeque;

use crate::path::{Acked, DeviceQueue, LastStamp, PathId, PathState};
use crate::session::ClockOffset;
use crate::unit::{Bytes, Span, Time};

/// The maximum number of updates in flight that a path remembers: 32,768 (768 KiB) are 10,000
/// updates per second over a round trip of 3 s. Beyond it, a live path keeps the oldest, which
/// determine when it falls silent, and a silent path the newest, which are its probes. An answer to
/// a forgotten update does not count.
pub(super) const REMEMBERED: usize = 1 << 15;

/// An update counts as lost when this many later ones were acknowledged (RFC 9002 section 6.1.1).
const REORDERED: usize = 3;

/// A path is silent with this many unanswered updates, the first of them overdue. 3: at 10 % loss
/// in both directions together, one false alarm in a thousand updates, which costs little.
const MISSED: usize = 3;

/// The minimum tolerance for the variation of round trips before an update is overdue: hosts may
/// answer late.
const MIN_VARIATION: Span = Span::from_millis(10);

/// The time after which an update is overdue on a path without a measured round trip, and half of
/// the first interval between probes of such a path.
const FIRST_WAIT: Span = Span::from_millis(200);

/// The maximum interval between probes of a silent path.
const MAX_PROBE_WAIT: Span = Span::from_secs(2);

/// The memory of the estimators: samples count for about this long, and for at least eight samples.
/// Older samples of a wireless path have little value. So a probe measures the present state of a
/// path, not the state when it was last used.
const MEMORY: Span = Span::from_millis(500);

/// The interval between probes of a live path that the scheduler does not use.
const LEFT_ASIDE: Span = Span::from_secs(1);

/// The weight of one update in the loss estimate. 1/32: a loss of 5 % is known within 3 %.
const LOSS_GAIN: f64 = 1.0 / 32.0;

/// The phase of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathPhase {
    /// It is down: its interface is down, or its connection is being established.
    Down,
    /// No ack has arrived on it yet.
    Untried,
    /// It answers.
    Live,
    /// It has stopped answering.
    Silent,
}

impl PathPhase {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Untried => "untried",
            Self::Live => "live",
            Self::Silent => "silent",
        }
    }
}

/// The counters of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathCounters {
    /// Updates sent, copies included.
    pub sent: u64,
    /// Updates sent on it as a copy: another path was their first.
    pub copies: u64,
    /// Updates that were answered.
    pub acked: u64,
    /// Updates that count as lost: they or their acks.
    pub lost: u64,
    /// How many times it fell silent.
    pub silences: u64,
}

/// An update in flight.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    seq: u64,
    at: Time,
    /// Its expected delay in the device queue, or the one measured by a timestamp; `None` if the
    /// device was blocked.
    wait: Option<Span>,
    is_stamped: bool,
}

/// The information of an ack on the path on which it arrived.
#[derive(Debug, Clone, Copy)]
pub struct PathAck {
    /// The update that it answers.
    pub seq: u64,
    /// How long the monitor held it.
    pub hold: Span,
    /// When the update arrived, on the monitor's clock.
    pub received_at: Time,
}

#[derive(Debug)]
pub(super) struct Path {
    pub(super) phase: PathPhase,
    pub(super) counters: PathCounters,
    pub(super) queue: Option<DeviceQueue>,
    /// When the last update was sent on it.
    pub(super) used_at: Option<Time>,
    pub(super) heard_at: Option<Time>,
    /// The last queueing delay measured by an update's departure timestamp.
    pub(super) stamped: LastStamp,
    in_flight: VecDeque<InFlight>,
    srtt: Option<Span>,
    rttvar: Span,
    /// The mean forward delay without the device queue, in ns, as the difference of two clocks.
    forward_delay: Option<i64>,
    /// For its recent minimum round trip.
    clocks: ClockOffset,
    loss: f64,
    /// While it is not live: the interval from the last probe to the next, which doubles with each.
    probe_wait: Span,
}

impl Path {
    pub(super) fn new() -> Self {
        Self {
            phase: PathPhase::Untried,
            counters: PathCounters::default(),
            queue: None,
            used_at: None,
            heard_at: None,
            stamped: LastStamp::default(),
            in_flight: VecDeque::new(),
            srtt: None,
            rttvar: Span::ZERO,
            forward_delay: None,
            clocks: ClockOffset::default(),
            loss: 0.0,
            probe_wait: FIRST_WAIT,
        }
    }

    // ---- inputs ----

    /// Sets whether it can carry updates; returns whether this has changed. Then all estimates are
    /// discarded, as they may belong to another network.
    pub(super) fn set_up(&mut self, is_up: bool) -> bool {
        if is_up != (self.phase == PathPhase::Down) {
            return false;
        }
        let counters = self.counters;
        *self = Self { counters, ..Self::new() };
        if !is_up {
            self.phase = PathPhase::Down;
        }
        true
    }

    /// The session has opened: a path without answers counts as never tried.
    pub(super) fn on_opened(&mut self) {
        if let PathPhase::Untried | PathPhase::Silent = self.phase {
            (self.used_at, self.probe_wait) = (None, FIRST_WAIT);
        }
    }

    pub(super) fn on_sent(&mut self, now: Time, seq: u64, is_copy: bool) {
        self.counters.sent += 1;
        self.counters.copies += u64::from(is_copy);
        self.used_at = Some(now);
        if self.phase != PathPhase::Live {
            self.probe_wait = (self.probe_wait * 2).min(MAX_PROBE_WAIT);
        }
        // Binary search needs ascending numbers.
        if self.in_flight.back().is_some_and(|last| last.seq >= seq) {
            return;
        }
        if self.in_flight.len() == REMEMBERED {
            if self.phase == PathPhase::Live {
                return;
            }
            self.in_flight.pop_front();
        }
        let wait = self.queue.map_or(Some(Span::ZERO), |queue| queue.wait());
        self.in_flight.push_back(InFlight { seq, at: now, wait, is_stamped: false });
    }

    /// An update left the device `wait` after it was sent.
    pub(super) fn on_left(&mut self, seq: u64, wait: Span) {
        if let Ok(at) = self.in_flight.binary_search_by_key(&seq, |sent| sent.seq) {
            let sent = &mut self.in_flight[at];
            (sent.wait, sent.is_stamped) = (Some(wait), true);
        }
    }

    /// An update without an ack request was sent on it: no answer is expected.
    pub(super) fn on_sent_without_ack_request(&mut self, now: Time) {
        self.counters.sent += 1;
        self.used_at = Some(now);
    }

    /// An ack has arrived on it. An ack of an update that was not sent on this path, or was
    /// answered before, is ignored. Returns the update's round trip and queueing delay.
    pub(super) fn on_ack(&mut self, now: Time, ack: &PathAck) -> Option<Acked> {
        let at = self.in_flight.binary_search_by_key(&ack.seq, |sent| sent.seq).ok()?;
        let sent = self.in_flight[at];
        self.in_flight.remove(at);
        self.drop_lost(now, at);
        self.counters.acked += 1;
        self.loss -= self.loss * LOSS_GAIN;
        let span = self.heard_at.map_or(MEMORY, |heard| now.since(heard));
        self.stamped.on_acked(sent.wait.filter(|_| sent.is_stamped));
        self.measure(now, sent, ack, span);
        self.heard_at = Some(now);
        (self.phase, self.probe_wait) = (PathPhase::Live, FIRST_WAIT);
        Some(Acked { round_trip: now.since(sent.at) - ack.hold, wait: sent.wait? })
    }

    /// Checks whether it has fallen silent.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        let Some(silence) = self.unanswered(now).filter(|_| self.phase == PathPhase::Live) else {
            return;
        };
        let timeout = self.timeout();
        let missed = self.in_flight.len() >= MISSED;
        if silence >= timeout * 2 || (missed && silence >= timeout) {
            self.phase = PathPhase::Silent;
            self.counters.silences += 1;
            // A path that has lost only a few updates is found again at once.
            self.probe_wait = timeout.min(MAX_PROBE_WAIT);
        }
    }

    /// The monitor may have another clock now.
    pub(super) fn forget_clock(&mut self) {
        self.forward_delay = None;
    }

    // ---- estimates ----

    /// The scheduler's view of it. Windows are counted in updates, of one byte each: schedulers of
    /// updates ignore their size, and the law determines their number.
    pub(super) fn state(&self, now: Time, id: PathId, clock_offset: Option<i64>) -> PathState {
        let inflight = Bytes::new(self.in_flight.len() as u64);
        PathState {
            srtt: self.srtt,
            rttvar: self.rttvar,
            min_rtt: self.clocks.min_rtt(),
            one_way: self.one_way(clock_offset),
            unanswered: self.unanswered(now),
            cwnd: inflight + Bytes::new(10),
            inflight,
            queue: self.queue,
            loss: self.loss,
            ..PathState::new(id, Bytes::new(1))
        }
    }

    /// When it should be probed if no update is sent on it before: at once if it was never used.
    pub(super) fn probe_at(&self) -> Option<Time> {
        let wait = match self.phase {
            PathPhase::Down => return None,
            PathPhase::Live => LEFT_ASIDE,
            PathPhase::Untried | PathPhase::Silent => self.probe_wait,
        };
        Some(self.used_at.map_or(Time::ZERO, |used| used + wait))
    }

    pub(super) fn is_live(&self) -> bool {
        self.phase == PathPhase::Live
    }

    // ---- steps ----

    /// Drops updates sent before the one at `at` that should have been answered by now: they are
    /// lost.
    fn drop_lost(&mut self, now: Time, at: usize) {
        let timeout = self.timeout();
        for before in (1..=at).rev() {
            let Some(first) = self.in_flight.front() else { return };
            if before < REORDERED && now.since(first.at) < timeout {
                return;
            }
            self.in_flight.pop_front();
            self.counters.lost += 1;
            // Losses in an outage are no measure of the losses after it.
            if self.phase == PathPhase::Live {
                self.loss += (1.0 - self.loss) * LOSS_GAIN;
            }
        }
    }

    /// RFC 6298 section 2.3, with a higher weight for rare samples.
    fn measure(&mut self, now: Time, sent: InFlight, ack: &PathAck, span: Span) {
        let rtt = now.since(sent.at) - ack.hold;
        let gain = (span.as_secs_f64() / MEMORY.as_secs_f64()).clamp(0.125, 1.0);
        let toward = |old: Span, new: Span, gain: f64| {
            let [old, new] = [old, new].map(Span::as_secs_f64);
            Span::from_secs_f64(old + (new - old) * gain)
        };
        match self.srtt {
            None => (self.srtt, self.rttvar) = (Some(rtt), rtt / 2),
            Some(srtt) => {
                let deviation = if rtt > srtt { rtt - srtt } else { srtt - rtt };
                self.rttvar = toward(self.rttvar, deviation, (2.0 * gain).min(1.0));
                self.srtt = Some(toward(srtt, rtt, gain));
            }
        }
        self.clocks.on_ack(now, sent.at, ack.received_at, rtt);
        // Two clocks may have any origin; their difference is computed modulo 2⁶⁴ ns. The queueing
        // delay is at most the round trip, even if more was expected.
        let left_at = sent.at + sent.wait.unwrap_or_default().min(rtt);
        let delay = ack.received_at.as_nanos().wrapping_sub(left_at.as_nanos()) as i64;
        self.forward_delay =
            Some(self.forward_delay.map_or(delay, |old| {
                old.wrapping_add((delay.wrapping_sub(old) as f64 * gain) as i64)
            }));
    }

    fn one_way(&self, clock_offset: Option<i64>) -> Option<Span> {
        let delay = self.forward_delay?.wrapping_sub(clock_offset?);
        Some(Span::from_nanos(delay.max(0).unsigned_abs()))
    }

    /// For how long the oldest update in flight has been unanswered.
    fn unanswered(&self, now: Time) -> Option<Span> {
        self.in_flight.front().map(|sent| now.since(sent.at))
    }

    /// The time after which an update is overdue.
    fn timeout(&self) -> Span {
        self.srtt
            .map_or(FIRST_WAIT, |srtt| srtt + (self.rttvar * 4).max(srtt / 2).max(MIN_VARIATION))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn ack(seq: u64, received_at: Time) -> PathAck {
        PathAck { seq, hold: Span::ZERO, received_at }
    }

    /// `count` updates from `first` on, one every 20 ms, each answered after `rtt`.
    fn run(path: &mut Path, first: u64, count: u64, rtt: u64) {
        for seq in first..first + count {
            path.on_sent(at(20 * seq), seq, false);
            path.on_ack(at(20 * seq + rtt), &ack(seq, at(20 * seq + rtt / 2)));
            assert_eq!(path.heard_at, Some(at(20 * seq + rtt)), "it answers update {seq}");
        }
    }

    #[test]
    fn round_trips_and_ways_are_measured_whatever_the_clocks_are() {
        let mut path = Path::new();
        path.queue = Some(DeviceQueue { packets: 4, rate: 1_000.0 });
        for seq in 0..20 {
            path.on_sent(at(20 * seq), seq, false);
            // A clock that is behind by the whole range; 7 of the 10 ms are before the arrival, 4
            // of them in the local device queue.
            let received_at = Time::from_nanos(at(20 * seq + 7).as_nanos().wrapping_add(1 << 63));
            path.on_ack(at(20 * seq + 10), &ack(seq, received_at));
        }
        let state = path.state(at(400), PathId(0), Some(i64::MIN));
        assert_eq!(state.srtt, Some(Span::from_millis(10)));
        assert_eq!(state.min_rtt, Some(Span::from_millis(10)));
        assert_eq!(state.one_way, Some(Span::from_millis(3)));
        assert_eq!((state.unanswered, state.loss), (None, 0.0));
    }

    #[test]
    fn a_path_is_silent_after_a_few_round_trips_and_live_with_the_next_answer() {
        let mut path = Path::new();
        run(&mut path, 0, 50, 20);
        for seq in 50..60 {
            path.on_sent(at(20 * seq), seq, false);
        }
        // A single lost update means little: it is overdue after 30 ms, 1.5 srtt, and long overdue
        // after twice that.
        path.handle_timeout(at(20 * 50 + 29));
        assert!(path.is_live());
        path.handle_timeout(at(20 * 50 + 31));
        assert_eq!(path.phase, PathPhase::Silent, "ten are on their way");
        // Updates that were only late are not lost.
        path.on_ack(at(1_300), &ack(59, at(1_300)));
        assert!(path.is_live());
        let PathCounters { sent, acked, lost, silences, .. } = path.counters;
        assert_eq!((sent, acked, lost, silences), (60, 51, 9, 1));
        assert_eq!(path.loss, 0.0);
    }

    #[test]
    fn one_update_without_an_answer_makes_silent_after_twice_the_time() {
        let mut path = Path::new();
        run(&mut path, 0, 50, 20);
        path.on_sent(at(2_000), 100, false);
        path.handle_timeout(at(2_059));
        assert!(path.is_live());
        path.handle_timeout(at(2_060));
        assert!(!path.is_live());
        // An answered probe ends the silence, and earlier updates are not expected any more.
        path.on_sent(at(3_000), 150, true);
        path.on_ack(at(3_020), &ack(150, at(3_010)));
        path.handle_timeout(at(9_000));
        assert!(path.is_live());
    }

    #[test]
    fn losses_are_counted_by_what_overtook_them() {
        let mut path = Path::new();
        for seq in 0..2_000 {
            path.on_sent(at(5 * seq), seq, false);
            if seq >= 4 && seq % 10 != 0 {
                path.on_ack(at(5 * seq + 1), &ack(seq - 4, at(5 * seq)));
            }
        }
        assert!((0.05..0.15).contains(&path.loss), "{}", path.loss);
        assert!(path.in_flight.len() < 10);
    }

    #[test]
    fn a_stamp_replaces_the_expected_wait_also_of_a_blocked_queue() {
        let mut path = Path::new();
        path.queue = Some(DeviceQueue { packets: 4, rate: 0.0 });
        for (seq, left) in [(0, None), (1, Some(6)), (2, None)] {
            path.on_sent(at(20 * seq), seq, false);
            if let Some(left) = left {
                path.on_left(seq, Span::from_millis(left));
            }
            let acked = path.on_ack(at(20 * seq + 10), &ack(seq, at(20 * seq + 8)));
            assert_eq!(acked.map(|acked| acked.wait), left.map(Span::from_millis));
        }
        assert_eq!(path.stamped.wait(), Some(Span::from_millis(6)));
        path.on_left(2, Span::from_millis(1));
        path.set_up(false);
        assert_eq!(path.stamped.wait(), None);
    }

    #[test]
    fn a_probe_tells_of_a_recovery() {
        let mut path = Path::new();
        run(&mut path, 0, 100, 15);
        run(&mut path, 100, 10, 300);
        let slow = path.srtt.unwrap();
        assert!(slow > Span::from_millis(150), "{slow}");
        run(&mut path, 150, 1, 15);
        assert!(path.srtt.unwrap() < Span::from_millis(20), "{:?}", path.srtt);
    }
}
