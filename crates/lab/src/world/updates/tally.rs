//! The result of a flow of updates, measured from outside of the session.

use freshline_core::age::{AgeMeter, AgeProcess, AgeSummary, BacklogProcess, Freshness, Integral};
use freshline_core::link::SpanHistogram;
use freshline_core::session::PathCounters;
use freshline_core::unit::{Span, Time};

use crate::world::Period;
use crate::world::deliveries::Deliveries;
use crate::world::measured::Measured;

/// The measurement. The processes run from the flow's start, so that an age or a backlog from the
/// warm-up continues; marks record the start of their means.
#[derive(Debug, Clone)]
pub(super) struct Tally {
    pub(super) measured: Measured,
    /// The true age, at the monitor.
    pub(super) age: AgeMeter,
    /// The deliveries that reset it.
    pub(super) deliveries: Deliveries,
    /// The age that the source infers from acks.
    source_age: AgeProcess,
    source_age_from: Integral,
    pub(super) backlog: BacklogProcess,
    backlog_from: Integral,
    pub(super) sent: u64,
    /// The counters of each path at the beginning of the measurement.
    pub(super) before: Vec<PathCounters>,
    pub(super) delivered_fresh: u64,
    pub(super) round_trips: SpanHistogram,
    pub(super) rtt_sum: Span,
}

/// The result of a flow of updates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UpdateOutcome {
    /// The true age at the monitor, from the flow's start on: without a delivery, the age is the
    /// time since then. `None`, like all means and rates here, if the flow has no measured time.
    pub age: Option<AgeSummary>,
    /// The source's own estimate of the mean age, from acks: an upper bound. `None` in a scenario
    /// without acks.
    pub source_age_mean: Option<Span>,
    /// The time average of updates sent and not acknowledged; `None` in a scenario without acks.
    pub backlog: Option<f64>,
    /// The mean round trip of fresh acks, without those of openings; `None` if there was no fresh
    /// ack.
    pub rtt_mean: Option<Span>,
    /// The 99th percentile of these round trips, within 0.8 %.
    pub rtt_p99: Option<Span>,
    /// Updates sent per second.
    pub updates_per_s: Option<f64>,
    /// Updates sent per second, copies on other paths included.
    pub packets_per_s: Option<f64>,
    /// Fresh updates that arrived, per second.
    pub fresh_per_s: Option<f64>,
    /// Payload of fresh updates, in bit/s.
    pub goodput_bps: Option<f64>,
    /// The measured period; `None` if the flow has none.
    pub measured: Option<Period>,
    /// Whether it had begun and no update had arrived by the end.
    pub never_delivered: bool,
}

impl Tally {
    pub(super) fn new(Period { from: starts_at, until: ends_at }: Period) -> Self {
        let (source_age, backlog) =
            (AgeProcess::starting_at(starts_at), BacklogProcess::new(starts_at));
        Self {
            measured: Measured::between(Period { from: starts_at, until: ends_at }),
            age: AgeMeter::starting_at(starts_at),
            deliveries: Deliveries::default(),
            source_age_from: source_age.mark(starts_at),
            source_age,
            backlog_from: backlog.mark(starts_at),
            backlog,
            sent: 0,
            before: Vec::new(),
            delivered_fresh: 0,
            round_trips: SpanHistogram::new(),
            rtt_sum: Span::ZERO,
        }
    }

    /// The warm-up has ended; the counters of paths are `before`.
    pub(super) fn begin(&mut self, now: Time, before: impl Iterator<Item = PathCounters>) {
        self.measured.begin(now);
        self.age.measure_from(now);
        self.source_age_from = self.source_age.mark(now);
        self.backlog_from = self.backlog.mark(now);
        self.before = before.collect();
        (self.sent, self.delivered_fresh) = (0, 0);
        (self.round_trips, self.rtt_sum) = (SpanHistogram::new(), Span::ZERO);
    }

    /// A fresh state, sampled at `generated_at`, has arrived at the monitor.
    pub(super) fn on_fresh(&mut self, now: Time, generated_at: Time) {
        if self.measured.has(now) {
            self.delivered_fresh += 1;
            let freshness = self.age.on_update(now, generated_at);
            self.deliveries.on_update(now, generated_at, freshness);
        }
    }

    /// A fresh ack has arrived at the source, for update `seq` with a state sampled at
    /// `generated_at`.
    pub(super) fn on_ack(&mut self, now: Time, seq: u64, generated_at: Time) {
        if self.measured.has(now) {
            self.backlog.on_ack(now, seq);
            let _: Freshness = self.source_age.on_update(now, generated_at);
        }
    }

    /// The source's estimate of the mean age until `now`.
    pub(super) fn source_age_mean(&self, now: Time) -> Option<Span> {
        self.source_age.mean_since(self.source_age_from, now)
    }

    /// The mean backlog until `now`.
    pub(super) fn backlog_mean(&self, now: Time) -> Option<f64> {
        self.backlog.mean_since(self.backlog_from, now)
    }
}
