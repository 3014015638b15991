//! RTAC controls the receive window of a TCP connection, so that the data in flight settles at θ
//! times the path's BDP and the queue at the bottleneck stays short. The window is the one that
//! Reno would have behind a RED queue.
//!
//! ```text
//! Q    = (RTT − RTTm) · w/RTT                        queued packets               (2.10)
//! q    = K · (Q + 1)                                 RED's loss probability       (2.6)
//! rwnd = √a · RTT/RTTm · 1/√q,   a = 3/2 packets²    Reno's window at that loss   (2.8, 2.14)
//! K    = a/(θ − 1) · BDP⁻³       1/packets           so that w settles at θ·BDP   (2.11)
//! ```
//!
//! Im, PhD thesis, Seoul National University, 2015: TCP Performance Enhancement in Wireless
//! Networks, chapter 2, Algorithm 1. The sender keeps min(cwnd, rwnd) in flight: where losses
//! control the network, cwnd is smaller and RTAC has no effect; where a large buffer hides
//! congestion, rwnd limits the flow.
//!
//! # Derivation
//!
//! Reno maximises U(x) = −a/(RTTm²·x), so that at the price q it sends x = √a/(RTTm·√q); times RTT,
//! that is (2.8). Windows and Q are in packets and q is a probability, so K is in 1/packets and a
//! in packets². At the target w = θ·BDP, RTT = θ·RTTm, Q = (θ − 1)·BDP ≫ 1, and θ·BDP =
//! θ·√(a/(K·Q)) gives (2.11). With it a cancels:
//!
//! ```text
//! rwnd = RTT/RTTm · BDP · √( (θ − 1)·BDP / (Q + 1) )
//! ```
//!
//! Alone on a link, w is rwnd one round trip ago, RTT/RTTm = w/BDP and Q = w − BDP. The slope of
//! that map at its fixed point is 1 − θ/(2·(θ − 1)), above −1 for θ > 4/3 only: with a smaller θ
//! the window oscillates. The thesis finds the best performance with θ from 1.3 to 1.4.
//!
//! # States
//!
//! With [`Slope::Auto`], decided once per round trip:
//!
//! - **start-up**, from the first arrival to the first queue: the window is at least four times the
//!   data that arrives in a round trip.
//! - **law**, after start-up, and when a test finds this flow's own queue: rwnd as above. Ends with
//!   a standing queue.
//! - **test**, with a standing queue: half of the flight, or the minimum window. Ends when the
//!   round trip has shown the owner of the queue.
//! - **shared**, when a test finds a competing flow's queue: the law does not limit the window.
//!   Ends with a later test that finds the queue gone.
//!
//! `remote.rs` has the diagram and the conditions of the tests.
//!
//! # Integer arithmetic
//!
//! [`Flight::window`] is all of the arithmetic, for implementations without floating point. In
//! bytes, with S the segment: rwnd² = RTT²/RTTm² · BDP³ · (θ − 1)/(Q + S); the automatic BDP has S
//! added to it (`headroom`). A test computes it in 64 bits, within 1 % of this.
//!
//! # Where the paper is silent
//!
//! - **K.** The paper sets it by hand for each network. [`Slope::Auto`] sets it each round from BDP
//!   = rate·(RTTm + Δ), where the rate is the larger of the rate over two short buckets of time and
//!   ŵ/R̂TT, which is known before a bucket is full.
//! - **Competing flows.** With a K from its own rate a flow would shrink without end alongside a
//!   flow that fills the queue, as DRWA does. At its first queue, and when a queue does not drain,
//!   the flow halves its window to find out whether it causes the queue. In a competing flow's
//!   queue the window is not limited, and a test repeats at long intervals. With [`Slope::Fixed`]
//!   there are no tests, as in the paper; with [`RtacParams::pure`] the law is
//!   [`super::Algorithm1`], without all of these extensions.
//! - **RTTm** is the minimum of R̂TT, so that a single lucky packet does not count; with
//!   [`Slope::Fixed`] the minimum sample, from which the paper measured Δ.
//! - **ŵ** counts arrived bytes, not bytes copied to the application: data queued at the receiver
//!   for the application is not in the network.
//! - **A flow without a queue** (R̂TT nearer to RTTm than to the target) never gets a smaller
//!   window: such a flow is limited by its application.
//! - **A drop of the capacity** makes RTT/RTTm large before the lower rate is known. If there is a
//!   queue and data arrives at less than half of the known rate, the window does not grow: such a
//!   drop delays at most the data in flight at that moment.
//! - **Pauses** of the sender are not round trips: a sample that is longer than R̂TT after more
//!   than R̂TT without data is left out.

use super::peak::PeakRate;
use super::remote::{Ownership, QueueOwner, Remote, Rules, Verdict, View};
use super::round::RoundMeter;
use super::variation::Delta;
use super::{Arrival, Limits, WindowLaw};
use crate::unit::{BitRate, Bytes, Packets, Span, Time};

/// Settings of [`Rtac`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct RtacParams {
    /// θ, from 1.01 to 10: the target for the data in flight, in multiples of the BDP. 1.38 (Table
    /// 2.1).
    pub theta: f64,
    /// How K is set. From the path.
    pub slope: Slope,
    /// Whether the law is [`super::Algorithm1`], exactly as printed. Needs [`Slope::Fixed`]; only
    /// Δ, α and β count then. No.
    pub pure: bool,
    /// Δ: the mean minus the minimum of a round trip without a queue. Zero for a path with a
    /// constant delay; the thesis (section 2.4.1) measured 18 ms in LTE, 8 ms in Wi-Fi. It must be
    /// given, or learnt, if it is above (θ − 1)·RTTm, and it counts as path, not as queue.
    pub delta: Delta,
    /// α, from 0 to below 1: the weight of the past in ŵ. 1/8 (Table 2.1).
    pub keep: f64,
    /// β, above 0 and at most 1: the weight of a sample in R̂TT. 1/8 (Table 2.1).
    pub gain: f64,
    /// The minimum window in segments, above zero: 4, with which losses are found by duplicate acks
    /// and not by timeouts.
    pub least: Packets,
    /// The settings of the automatic K.
    pub auto: AutoParams,
}

impl Default for RtacParams {
    fn default() -> Self {
        Self {
            theta: 1.38,
            slope: Slope::Auto,
            pure: false,
            delta: Delta::default(),
            keep: 0.125,
            gain: 0.125,
            least: Packets::new(4),
            auto: AutoParams::default(),
        }
    }
}

/// How K is set.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Slope {
    /// From the BDP as the receiver estimates it.
    Auto,
    /// Set by hand, per packet, from 10⁻¹³ to 1: 3·10⁻⁷ for the LTE of the thesis, 15·10⁻⁵ for its
    /// Wi-Fi.
    Fixed(f64),
}

/// Settings of [`Slope::Auto`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct AutoParams {
    /// The length of a bucket of the rate, above zero. 200 ms: several round trips, so that bursts
    /// do not count as the rate (w grows with the square of an error), and short compared with 2 s,
    /// within which a lower rate should be known.
    pub bucket: Span,
    /// The packets that K adds to the BDP, from 0 to 100. 1: (2.11) neglects the 1 of Q + 1, so
    /// flows of few packets would lose against those of many.
    pub headroom: f64,
    /// The number of rounds in a row, at most 1000, in which the queue may be a quarter longer than
    /// the target before half a window tests which flow causes it. 3: an own queue drains within
    /// two. A flow's first queue is tested at once.
    pub patience: u32,
    /// The minimum time between tests in a shared queue; above zero. 10 s, as long as BBR waits; 60
    /// round trips if these are longer.
    pub test_every: Span,
}

impl Default for AutoParams {
    fn default() -> Self {
        Self {
            bucket: Span::from_millis(200),
            headroom: 1.0,
            patience: 3,
            test_every: Span::from_secs(10),
        }
    }
}

/// K for a path that holds `bdp` packets, per packet (2.11).
pub fn slope(bdp: f64, theta: f64) -> f64 {
    A / ((theta - 1.0) * bdp * bdp * bdp)
}

/// a in packets²: Reno's window is √(a/q) at the loss q.
pub const A: f64 = 1.5;

/// The measurements of a round trip from which the window follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flight {
    /// R̂TT, above zero.
    pub rtt: Span,
    /// RTTm with its compensation, above zero.
    pub base: Span,
    /// ŵ.
    pub bytes: Bytes,
    /// A full segment, above zero.
    pub segment: Bytes,
}

impl Flight {
    /// RTT/RTTm, at least 1.
    pub fn stretch(&self) -> f64 {
        self.ratio().max(1.0)
    }

    /// RTT/RTTm, which Δ may bring below 1.
    fn ratio(&self) -> f64 {
        self.rtt.as_secs_f64() / self.base.as_secs_f64()
    }

    /// Q: queued packets (2.10).
    pub fn queue(&self) -> f64 {
        (1.0 - 1.0 / self.stretch()) * self.packets(self.bytes)
    }

    /// rwnd in bytes for a given K (2.14), without bounds.
    pub fn window(&self, slope: f64) -> f64 {
        self.stretch() * self.renos_window(slope)
    }

    /// rwnd in bytes as printed in Algorithm 1: RTT/RTTm may be below 1.
    pub fn printed_window(&self, slope: f64) -> f64 {
        self.ratio() * self.renos_window(slope)
    }

    /// √(a/q) in bytes.
    fn renos_window(&self, slope: f64) -> f64 {
        let loss = slope * (self.queue() + 1.0);
        libm::sqrt(A / loss) * self.segment.get() as f64
    }

    /// The BDP of the path at `rate`, in packets.
    pub fn bdp(&self, rate: BitRate) -> f64 {
        rate.as_bps() as f64 / 8.0 * self.base.as_secs_f64() / self.segment.get() as f64
    }

    fn packets(&self, bytes: Bytes) -> f64 {
        bytes.get() as f64 / self.segment.get() as f64
    }
}

/// The law.
#[derive(Debug, Clone)]
pub struct Rtac {
    params: RtacParams,
    limits: Limits,
    round: RoundMeter,
    peak: PeakRate,
    remote: Remote,
    ownership: Ownership,
    window: Bytes,
    /// Whether no queue has been seen yet.
    is_starting: bool,
    /// The window before a test.
    untested: Bytes,
    is_tested: bool,
    /// Whether the last round trip was long enough to have a queue in it.
    has_queued: bool,
    /// The last K from which a window followed.
    last_slope: Option<f64>,
}

impl Rtac {
    pub(super) fn new(params: RtacParams, limits: Limits, remote: Remote) -> Self {
        let AutoParams { bucket, patience, test_every, .. } = params.auto;
        let learns = params.delta == Delta::Learn;
        Self {
            params,
            limits,
            round: RoundMeter::new(params.keep, params.gain),
            peak: PeakRate::new(bucket),
            ownership: Ownership::new(Rules { patience, test_every, learns }, remote.clone()),
            remote,
            window: limits.initial,
            is_starting: true,
            untested: limits.initial,
            is_tested: false,
            has_queued: false,
            last_slope: None,
        }
    }

    /// The last K from which a window followed, per packet; `None` before the first, and unchanged
    /// while the window is that of a test or of a competing flow's queue.
    pub fn slope(&self) -> Option<f64> {
        self.last_slope
    }

    /// Which flow causes the queue that the last round trip showed.
    pub fn queue_owner(&self) -> QueueOwner {
        match self.params.slope {
            _ if !self.has_queued => QueueOwner::None,
            Slope::Fixed(_) => QueueOwner::Unknown,
            Slope::Auto => self.remote.queue_owner(),
        }
    }

    /// Δ: the configured one, or the one learnt so far.
    pub fn delta(&self) -> Span {
        match self.params.delta {
            Delta::Fixed(delta) => delta,
            Delta::Learn => self.remote.delta(),
        }
    }

    /// R̂TT, once there was a sample.
    pub fn rtt(&self) -> Option<Span> {
        self.round.rtt()
    }

    fn on_round(&mut self, now: Time, flight: Flight) {
        self.has_queued = self.has_queue(&flight);
        match self.params.slope {
            Slope::Fixed(slope) => self.follow(flight, slope),
            Slope::Auto => self.on_auto_round(now, flight),
        }
    }

    fn on_auto_round(&mut self, now: Time, flight: Flight) {
        let is_standing = flight.queue() > self.long_queue(&flight);
        let half = flight.bytes.get() / 2;
        let may_halve = half > self.bound(0.0, &flight).get();
        // The advertised edge never moves back, so a smaller window takes effect only as data
        // arrives.
        let is_settled = flight.bytes <= Bytes::new(self.window.get() / 2 * 3);
        let Flight { rtt, bytes, .. } = flight;
        let has_queue = self.has_queued;
        let view = View { rtt, is_standing, may_halve, is_settled, flight: bytes, has_queue };
        let verdict = self.ownership.on_round(now, view);
        let was_tested = self.is_tested;
        self.is_tested = matches!(verdict, Verdict::Half | Verdict::Least | Verdict::Grow);
        if self.is_tested && !was_tested {
            self.untested = self.window;
        }
        match verdict {
            Verdict::Law => self.follow_path(flight),
            Verdict::LawRestarted => {
                self.peak.forget();
                self.follow_path(flight);
            }
            Verdict::Half if was_tested => {}
            Verdict::Half => self.window = self.window.min(self.bound(half as f64, &flight)),
            Verdict::Least => self.window = self.bound(0.0, &flight),
            Verdict::Grow if was_tested => {}
            Verdict::Grow => self.window = self.bound(GROWING * bytes.get() as f64, &flight),
            Verdict::Back => self.window = self.untested,
            Verdict::More => {
                let least = self.bound(0.0, &flight).get() as f64;
                self.window = self.bound(RAISED * least, &flight);
            }
            Verdict::Free => {
                let before = if was_tested { self.untested } else { self.window };
                self.window = before.max(self.ahead(SHARING, &flight));
            }
        }
    }

    /// Sets the window by the K of the path. If data arrives at less than half of the rate in that
    /// K although there is a queue, the capacity has dropped: the window then does not grow.
    fn follow_path(&mut self, flight: Flight) {
        let before = self.window.max(flight.bytes);
        let current = BitRate::of(flight.bytes, flight.rtt).unwrap_or_default();
        self.follow(flight, self.slope_of(&flight));
        if self.has_queue(&flight) && current.as_bps() < self.peak.get().as_bps() / 2 {
            self.window = self.window.min(before);
        }
    }

    /// Sets the window by the slope K; it does not shrink without a queue.
    fn follow(&mut self, flight: Flight, slope: f64) {
        self.last_slope = Some(slope);
        let window = self.bound(flight.window(slope), &flight);
        let has_queue = self.has_queue(&flight);
        self.is_starting &= !has_queue;
        self.window = if has_queue { window } else { window.max(self.window) };
        if self.is_starting {
            self.window = self.window.max(self.ahead(STARTING, &flight));
        }
    }

    /// Whether the round trip is nearer to the target than to RTTm.
    fn has_queue(&self, flight: &Flight) -> bool {
        flight.stretch() > 1.0 + (self.params.theta - 1.0) / 2.0
    }

    /// A multiple of the bytes that arrive in a round, plus 16 segments.
    fn ahead(&self, times: f64, flight: &Flight) -> Bytes {
        let little = HEADROOM.get() as f64 * flight.segment.get() as f64;
        self.bound(times * flight.bytes.get() as f64 + little, flight)
    }

    /// A queue longer than those of the law, in packets: a quarter longer than the target, plus two
    /// packets, since on a short path one packet is much.
    fn long_queue(&self, flight: &Flight) -> f64 {
        let bdp = flight.packets(flight.bytes) / flight.stretch();
        1.25 * (self.params.theta - 1.0) * bdp + 2.0
    }

    /// K from the BDP.
    fn slope_of(&self, flight: &Flight) -> f64 {
        let current = BitRate::of(flight.bytes, flight.rtt).unwrap_or_default();
        let bdp = flight.bdp(self.peak.get().max(current));
        slope(bdp + self.params.auto.headroom, self.params.theta)
    }

    fn bound(&self, wanted: f64, flight: &Flight) -> Bytes {
        self.limits.bound(wanted, self.params.least, flight.segment)
    }
}

/// The window before the first queue, as a multiple of the bytes that arrive in a round. 4: the
/// sender doubles each round, and the window is for the round after the next.
const STARTING: f64 = 4.0;
/// The factor on the minimum window in a test of a flow that has no more.
const RAISED: f64 = 4.0;
/// The window that measures Δ, as a multiple of the data in flight.
const GROWING: f64 = 1.55;
/// The window in a competing flow's queue, as a multiple of the bytes that arrive in a round, as
/// auto-tuning's.
const SHARING: f64 = 2.0;
/// Added to both, as in auto-tuning.
const HEADROOM: Packets = Packets::new(16);

impl WindowLaw for Rtac {
    fn name(&self) -> &'static str {
        "rtac"
    }

    fn on_round_trip(&mut self, now: Time, sample: Span) {
        if !self.round.on_round_trip(now, sample) {
            return;
        }
        self.ownership.on_sample(sample);
        match self.params.slope {
            Slope::Fixed(_) => self.remote.learn(sample),
            Slope::Auto => self.remote.learn(self.round.rtt().unwrap_or(sample)),
        }
    }

    fn on_arrival(&mut self, now: Time, arrival: Arrival) {
        if !self.ownership.is_testing() {
            let rtt = self.round.rtt().unwrap_or(Span::ZERO);
            self.peak.on_arrival(now, arrival.bytes, rtt);
        }
        let Some((rtt, bytes)) = self.round.on_bytes(now, arrival.bytes) else { return };
        let Some(base) = self.remote.base() else { return };
        let base = (base + self.delta()).max(Span::from_nanos(1));
        self.on_round(now, Flight { rtt, base, bytes, segment: arrival.segment });
    }

    fn on_read(&mut self, _now: Time, _bytes: Bytes) {}

    fn window(&self) -> Bytes {
        self.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 packets in flight on a path that holds `bdp` of them.
    fn flight(bdp: u64) -> Flight {
        let base = Span::from_millis(20);
        let rtt = base * 100 / bdp.min(100);
        Flight { rtt, base, bytes: Bytes::new(144_800), segment: Bytes::new(1448) }
    }

    #[test]
    fn the_queue_is_what_is_in_flight_beyond_the_path() {
        assert!((flight(60).queue() - 40.0).abs() < 1e-4);
        assert_eq!(flight(100).queue(), 0.0);
        // Δ may be more than the queue.
        let short = Flight { rtt: Span::from_millis(10), ..flight(60) };
        assert_eq!((short.queue(), short.stretch()), (0.0, 1.0));
    }

    #[test]
    fn at_the_wanted_point_the_window_is_what_is_in_flight() {
        let theta = 1.38;
        let bdp = 1000.0;
        let base = Span::from_millis(20);
        let bytes = Bytes::new((theta * bdp * 1448.0) as u64);
        let segment = Bytes::new(1448);
        let flight = Flight { rtt: base.mul_f64(theta), base, bytes, segment };
        let window = flight.window(slope(bdp, theta));
        assert!((window / bytes.get() as f64 - 1.0).abs() < 0.002, "{window}");
    }

    #[test]
    fn slopes_are_those_of_the_paper() {
        // 2.4.1: 55 Mbit/s and 47.7 ms on LTE, 18.9 Mbit/s and 18.2 ms on Wi-Fi.
        let bdp = |mbit: f64, ms: f64| mbit * ms * 1000.0 / 8.0 / 1448.0;
        assert!((slope(bdp(55.0, 47.7), 1.38) / 3e-7 - 1.0).abs() < 0.15);
        assert!((slope(bdp(18.9, 18.2), 1.38) / 15e-5 - 1.0).abs() < 0.05);
    }

    #[test]
    fn whole_numbers_give_the_same_window() {
        for bdp in [1_u64, 10, 60, 99] {
            let flight = flight(bdp);
            // As a twin without floating point computes it, in µs and bytes; θ − 1 in 1/1024.
            let (rtt, base) = (flight.rtt.as_micros(), flight.base.as_micros());
            let (bytes, path) = (flight.bytes.get(), bdp * 1448);
            let queue = (rtt - base) * bytes / rtt;
            let root = (((389 * path) << 22) / (queue + 1448)).isqrt();
            let window = ((root * path) >> 16) * rtt / base;
            let exact = flight.window(slope(bdp as f64, 1.38));
            assert!((window as f64 / exact - 1.0).abs() < 0.01, "{window} for {exact}");
        }
    }

    #[test]
    fn settings_that_make_no_sense_say_so() {
        let limits = Limits { initial: Bytes::new(65_536), most: Bytes::new(1 << 20) };
        let bad = RtacParams { theta: 1.0, ..RtacParams::default() };
        let error = bad.build(limits, Remote::default()).unwrap_err();
        let text = "`theta` is 1, which is not from 1.01 to 10; give for example 1.38";
        assert_eq!(alloc::format!("{error}"), text);
        let bad = RtacParams { slope: Slope::Fixed(f64::NAN), ..RtacParams::default() };
        assert!(bad.build(limits, Remote::default()).is_err());
    }
}
