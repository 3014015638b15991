//! BBR, version 1, controls the pacing rate and the window of a stream. Its goal is to send at the
//! bottleneck rate without a standing queue: it follows a model of the path instead of losses
//! (Cardwell et al.: "BBR: Congestion-Based Congestion Control", ACM Queue 2016;
//! draft-cardwell-iccrg-bbr-congestion-control-00), with the choices of Linux.
//!
//! ```text
//! rate    = maximum delivery rate of a round trip, of the last 10 rounds
//! min_rtt = minimum round trip of the last 10 s
//! pacing  = 0.99 · pacing gain · rate
//! window  = window gain · rate · min_rtt + 3 bursts + ack aggregation
//!
//!   Startup ──── rate has not grown by 25 % in three rounds ────► Drain
//!      ▲                                                            │ in flight ≤ rate·min_rtt
//!      │ (rate not yet found)                                       ▼
//!   ProbeRtt ◄──── min_rtt is 10 s old, from any of them ──── ProbeBandwidth
//!      └────────── 200 ms and a round trip with 4 in flight ────────┘
//! ```
//!
//! | state | pacing gain | window gain | ends when |
//! |---|---|---|---|
//! | Startup | 2/ln 2 | 2/ln 2 | the rate has not grown by 25 % in three rounds |
//! | Drain | ln 2 / 2 | 2/ln 2 | at most rate·min_rtt is in flight |
//! | ProbeBandwidth | 1.25, 0.75, six times 1 | 2 | min_rtt has expired |
//! | ProbeRtt | 1 | 4 segments | 200 ms and a round trip have passed with at most 4 in flight |
//!
//! - Startup finds the rate, and Drain removes the queue that it has built.
//! - ProbeBandwidth holds each gain for one min_rtt, and begins with a random gain other than 0.75.
//!   The gain of 1.25 also lasts until 1.25·rate·min_rtt is in flight or a segment is lost. The
//!   gain of 0.75 ends early when at most rate·min_rtt is in flight.
//! - ProbeRtt lets the queue empty to measure min_rtt, and then restores the window. The next state
//!   is ProbeBandwidth, or Startup if the rate was not found before. After a pause of the
//!   application the queue is empty, so an expired min_rtt is replaced without ProbeRtt.
//!
//! Losses do not change the model. A recovery begins with one round in which the window is the data
//! in flight (packet conservation), after which the window grows again. After a timeout it grows
//! from one segment. At the end of the recovery the window before it is restored.
//!
//! Left out: the long-term sampling that looks for token-bucket policers.

mod aggregation;
mod model;
mod phase;

use freshline_core::unit::{BitRate, Bytes, Packets, Span, Time};
use rand_pcg::Pcg64;

use super::{Ack, CongestionControl, Idle, Signal};
use aggregation::Aggregation;
use model::{Model, Rate};
use phase::{Phase, Phases};

/// Settings of [`Bbr`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BbrParams {
    /// Gain of Startup: 2/ln 2, the smallest gain that lets the rate double each round.
    pub startup_gain: f64,
    /// Gains of ProbeBandwidth, one round trip each: probe, drain the queue that probing built,
    /// cruise.
    pub cycle: [f64; 8],
    /// The window in units of rate·min_rtt while cruising: 2, for delayed and lumped acks.
    pub window_gain: f64,
    /// The window of the rate's maximum filter, in rounds: 10.
    pub rate_rounds: u64,
    /// The window of the round trip's minimum filter: 10 s.
    pub min_rtt_window: Span,
    /// The minimum duration of ProbeRtt: 200 ms.
    pub probe_rtt_time: Span,
    /// Startup ends when the rate grows by less than this factor: 1.25.
    pub full_growth: f64,
    /// The number of rounds without that growth that end Startup: 3.
    pub full_rounds: u32,
    /// The fraction of the rate at which it paces, so as not to build a queue: 0.99.
    pub pacing_margin: f64,
    /// The payload of a full segment: 1448 bytes.
    pub segment: Bytes,
}

impl Default for BbrParams {
    fn default() -> Self {
        Self {
            startup_gain: 2.0 / core::f64::consts::LN_2,
            cycle: [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
            window_gain: 2.0,
            rate_rounds: 10,
            min_rtt_window: Span::from_secs(10),
            probe_rtt_time: Span::from_millis(200),
            full_growth: 1.25,
            full_rounds: 3,
            pacing_margin: 0.99,
            segment: Bytes::new(1448),
        }
    }
}

/// The minimum window, with which acks still flow.
const MIN_WINDOW: f64 = 4.0;

/// BBR version 1.
#[derive(Debug, Clone)]
pub struct Bbr {
    params: BbrParams,
    initial: f64,
    model: Model,
    phases: Phases,
    aggregation: Aggregation,
    cwnd: f64,
    pacing: Option<BitRate>,
    recovery: Recovery,
    /// The window before a recovery or ProbeRtt, to be restored afterwards.
    prior_cwnd: f64,
}

/// How the window follows a loss: one round of packet conservation, and then back to the old
/// window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recovery {
    None,
    Entering,
    /// One segment is sent per segment delivered.
    Conserving,
    Growing,
    /// After a timeout: from one segment upwards.
    Timeout,
}

impl Bbr {
    /// In Startup, with a window of `initial` segments; `rng` chooses the initial position in the
    /// cycle of gains, so that streams do not probe in step.
    pub fn new(params: BbrParams, initial: Packets, rng: Pcg64) -> Self {
        let initial = initial.get().max(1) as f64;
        Self {
            params,
            initial,
            model: Model::new(params.rate_rounds),
            phases: Phases::new(rng),
            aggregation: Aggregation::default(),
            cwnd: initial,
            pacing: None,
            recovery: Recovery::None,
            prior_cwnd: 0.0,
        }
    }

    /// The window for `gain` times the bandwidth-delay product, with headroom for the bursts of
    /// sender and receiver.
    fn inflight(&self, gain: f64) -> f64 {
        let Some(pipe) = self.model.pipe() else {
            return self.initial;
        };
        let quanta = 3.0 * self.send_quantum();
        let even = 2.0 * ((gain * pipe + quanta).ceil() / 2.0).ceil();
        let probing = self.phases.probes_upwards();
        if probing { even + 2.0 } else { even }
    }

    /// The burst that Linux sends at once: one millisecond at the pacing rate, and at least 2
    /// segments, or 1 below 1.2 Mbit/s.
    fn send_quantum(&self) -> f64 {
        let bps = self.pacing.map_or(0, BitRate::as_bps);
        let least = if bps < 1_200_000 { 1 } else { 2 };
        (bps / 8 / 1024 / self.params.segment.get().max(1)).clamp(least, 127) as f64
    }

    fn set_pacing(&mut self, gain: f64, ack: &Ack) {
        let rate = match self.model.rate() {
            Some(rate) => rate,
            // Before there is a rate sample: the initial window per round trip.
            None => match ack.rtt {
                Some(rtt) if self.pacing.is_none() => {
                    Rate::per_second(self.initial / rtt.as_secs_f64())
                }
                _ => return,
            },
        };
        let bits = rate.segments_per_second() * self.params.segment.get() as f64 * 8.0;
        let bps = BitRate::from_bps((bits * gain * self.params.pacing_margin) as u64);
        // While the rate is not yet found, ignore a lower one.
        if self.phases.rate_found() || self.pacing.is_none_or(|old| bps > old) {
            self.pacing = Some(bps.max(BitRate::from_bps(8)));
        }
    }

    fn set_window(&mut self, ack: &Ack) {
        let delivered = ack.delivered.get() as f64;
        if delivered > 0.0 && !self.conserves(ack) {
            let gain = self.phases.window_gain(&self.params);
            let mut target = self.inflight(gain);
            if self.phases.rate_found() {
                target += self.aggregation.extra(self.model.rate());
                self.cwnd = (self.cwnd + delivered).min(target);
            } else if self.cwnd < target || ack.total_delivered.get() as f64 <= self.initial {
                self.cwnd += delivered;
            }
            self.cwnd = self.cwnd.max(MIN_WINDOW);
        }
        if self.phases.phase() == Phase::ProbeRtt {
            self.cwnd = self.cwnd.min(MIN_WINDOW);
        }
    }

    /// Follows losses. Returns whether the window is kept at the number of segments in flight.
    fn conserves(&mut self, ack: &Ack) -> bool {
        let in_flight = ack.in_flight.get() as f64;
        let delivered = ack.delivered.get() as f64;
        if ack.lost > Packets::ZERO {
            self.cwnd = (self.cwnd - ack.lost.get() as f64).max(1.0);
        }
        if self.recovery == Recovery::Entering {
            self.recovery = Recovery::Conserving;
            self.model.restart_round(ack);
            self.cwnd = in_flight + delivered;
        } else if self.recovery == Recovery::Conserving && self.model.round_started() {
            self.recovery = Recovery::Growing;
        }
        let conserves = self.recovery == Recovery::Conserving;
        if conserves {
            self.cwnd = self.cwnd.max(in_flight + delivered);
        }
        conserves
    }

    fn remember_window(&mut self) {
        let undisturbed = self.recovery == Recovery::None && self.phases.phase() != Phase::ProbeRtt;
        self.prior_cwnd = if undisturbed { self.cwnd } else { self.prior_cwnd.max(self.cwnd) };
    }

    /// Enters and leaves ProbeRtt.
    fn probe_rtt(&mut self, now: Time, ack: &Ack, expired: bool) {
        if expired && self.phases.may_probe_rtt() {
            self.remember_window();
            self.phases.enter_probe_rtt();
        }
        if self.phases.phase() != Phase::ProbeRtt {
            return;
        }
        self.model.limited_by_application(ack);
        let low = ack.in_flight.get() as f64 <= MIN_WINDOW;
        if low && self.phases.start_probe_rtt_clock(now + self.params.probe_rtt_time) {
            self.model.restart_round(ack);
        } else if self.phases.probe_rtt_is_over(now, self.model.round_started()) {
            self.model.min_rtt_holds(now);
            self.cwnd = self.cwnd.max(self.prior_cwnd);
            self.phases.leave_probe_rtt(now);
        }
    }
}

impl CongestionControl for Bbr {
    fn name(&self) -> &'static str {
        "bbr"
    }

    fn window(&self) -> Packets {
        Packets::new((self.cwnd as u64).max(1))
    }

    fn pacing_rate(&self) -> Option<BitRate> {
        self.pacing
    }

    fn governs_recovery(&self) -> bool {
        true
    }

    fn on_ack(&mut self, now: Time, ack: &Ack) {
        // Model.
        let limited = self.model.on_ack(ack);
        self.aggregation.on_ack(now, ack, &self.model, self.cwnd);
        let pipe = self.inflight(1.0);
        let probe_goal = self.inflight(self.phases.pacing_gain(&self.params));
        self.phases.advance_cycle(now, ack, &self.model, pipe, probe_goal);
        self.phases.look_for_full_rate(&self.params, &self.model, limited);
        self.phases.drain(now, ack, pipe);
        let expired = self.model.update_min_rtt(now, ack, self.params.min_rtt_window);
        self.probe_rtt(now, ack, expired);
        if ack.delivered > Packets::ZERO {
            self.phases.is_sending();
        }
        // Rate and window.
        self.set_pacing(self.phases.pacing_gain(&self.params), ack);
        self.set_window(ack);
    }

    fn on_congestion(&mut self, _now: Time, signal: Signal) {
        if signal != Signal::Mark {
            self.remember_window();
            self.recovery = Recovery::Entering;
        }
    }

    fn on_rto(&mut self, _now: Time) {
        self.remember_window();
        self.recovery = Recovery::Timeout;
        self.phases.forget_growth();
        self.cwnd = 1.0;
    }

    fn on_recovered(&mut self, _now: Time) {
        if self.recovery != Recovery::None {
            self.cwnd = self.cwnd.max(self.prior_cwnd);
            self.recovery = Recovery::None;
        }
    }

    fn on_needless(&mut self, now: Time) {
        self.phases.forget_growth();
        self.on_recovered(now);
    }

    fn on_idle(&mut self, now: Time, _idle: Idle) {
        self.phases.restarts_from_idle();
        self.aggregation.restart(now);
    }
}
