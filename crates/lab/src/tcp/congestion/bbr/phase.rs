//! BBR's phases, and the gains that go with them.

use freshline_core::unit::{Packets, Time};
use rand::RngExt;
use rand_pcg::Pcg64;

use super::BbrParams;
use super::model::{Model, Rate};
use crate::tcp::congestion::Ack;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Startup,
    Drain,
    ProbeBandwidth,
    ProbeRtt,
}

#[derive(Debug, Clone)]
pub(super) struct Phases {
    phase: Phase,
    rng: Pcg64,
    /// The position in the cycle of gains, and when it was entered.
    step: usize,
    step_since: Time,
    /// The rate that Startup has to exceed, and the number of rounds in which it has not.
    full_rate: Option<Rate>,
    full_rounds: u32,
    rate_found: bool,
    /// When ProbeRtt may end; set once few enough segments are in flight.
    probe_rtt_until: Option<Time>,
    probe_rtt_round_over: bool,
    /// Sending has resumed after a pause, which has drained the queue as ProbeRtt would.
    after_idle: bool,
}

impl Phases {
    pub(super) fn new(rng: Pcg64) -> Self {
        Self {
            phase: Phase::Startup,
            rng,
            step: 0,
            step_since: Time::ZERO,
            full_rate: None,
            full_rounds: 0,
            rate_found: false,
            probe_rtt_until: None,
            probe_rtt_round_over: false,
            after_idle: false,
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether Startup has found the path's full rate.
    pub(super) fn rate_found(&self) -> bool {
        self.rate_found
    }

    pub(super) fn probes_upwards(&self) -> bool {
        self.phase == Phase::ProbeBandwidth && self.step == 0
    }

    pub(super) fn pacing_gain(&self, params: &BbrParams) -> f64 {
        match self.phase {
            Phase::Startup => params.startup_gain,
            Phase::Drain => 1.0 / params.startup_gain,
            // After a pause the queue is empty, so there is no need to probe.
            Phase::ProbeBandwidth if self.after_idle => 1.0,
            Phase::ProbeBandwidth => params.cycle[self.step],
            Phase::ProbeRtt => 1.0,
        }
    }

    pub(super) fn window_gain(&self, params: &BbrParams) -> f64 {
        match self.phase {
            Phase::Startup | Phase::Drain => params.startup_gain,
            Phase::ProbeBandwidth => params.window_gain,
            Phase::ProbeRtt => 1.0,
        }
    }

    /// Moves on to the next gain: after a round trip; for the probe, also not before it has filled
    /// the path or lost something; for the drain, as soon as the queue is gone.
    pub(super) fn advance_cycle(
        &mut self,
        now: Time,
        ack: &Ack,
        model: &Model,
        pipe: f64,
        probe_goal: f64,
    ) {
        if self.phase != Phase::ProbeBandwidth {
            return;
        }
        let over = model.min_rtt().is_some_and(|rtt| now.since(self.step_since) > rtt);
        let in_flight = ack.prior_in_flight.get() as f64;
        let advances = match self.step {
            0 => over && (ack.lost > Packets::ZERO || in_flight >= probe_goal),
            1 => over || in_flight <= pipe,
            _ => over,
        };
        if advances {
            self.step = (self.step + 1) % 8;
            self.step_since = now;
        }
    }

    pub(super) fn look_for_full_rate(&mut self, params: &BbrParams, model: &Model, limited: bool) {
        if self.rate_found || !model.round_started() || limited {
            return;
        }
        let Some(rate) = model.rate() else { return };
        let goal = |full: Rate| full.segments_per_second() * params.full_growth;
        if self.full_rate.is_none_or(|full| rate.segments_per_second() >= goal(full)) {
            (self.full_rate, self.full_rounds) = (Some(rate), 0);
        } else {
            self.full_rounds += 1;
            self.rate_found = self.full_rounds >= params.full_rounds;
        }
    }

    /// After a timeout, the rate's growth so far is meaningless.
    pub(super) fn forget_growth(&mut self) {
        self.full_rate = None;
    }

    pub(super) fn drain(&mut self, now: Time, ack: &Ack, pipe: f64) {
        if self.phase == Phase::Startup && self.rate_found {
            self.phase = Phase::Drain;
        }
        if self.phase == Phase::Drain && ack.in_flight.get() as f64 <= pipe {
            self.enter_probe_bandwidth(now);
        }
    }

    /// Starts anywhere in the cycle but at the drain, which only follows a probe.
    fn enter_probe_bandwidth(&mut self, now: Time) {
        self.phase = Phase::ProbeBandwidth;
        self.step = match self.rng.random_range(0..7) {
            0 => 0,
            step => step + 1,
        };
        self.step_since = now;
    }

    pub(super) fn may_probe_rtt(&self) -> bool {
        self.phase != Phase::ProbeRtt && !self.after_idle
    }

    pub(super) fn enter_probe_rtt(&mut self) {
        self.phase = Phase::ProbeRtt;
        self.probe_rtt_until = None;
    }

    /// Few enough segments are in flight: ProbeRtt lasts until `end`. Returns whether the clock was
    /// not running yet.
    pub(super) fn start_probe_rtt_clock(&mut self, end: Time) -> bool {
        let starts = self.probe_rtt_until.is_none();
        if starts {
            (self.probe_rtt_until, self.probe_rtt_round_over) = (Some(end), false);
        }
        starts
    }

    pub(super) fn probe_rtt_is_over(&mut self, now: Time, round_started: bool) -> bool {
        let Some(until) = self.probe_rtt_until else { return false };
        self.probe_rtt_round_over |= round_started;
        self.probe_rtt_round_over && now > until
    }

    pub(super) fn leave_probe_rtt(&mut self, now: Time) {
        if self.rate_found {
            self.enter_probe_bandwidth(now);
        } else {
            self.phase = Phase::Startup;
        }
    }

    pub(super) fn restarts_from_idle(&mut self) {
        self.after_idle = true;
    }

    pub(super) fn is_sending(&mut self) {
        self.after_idle = false;
    }
}
