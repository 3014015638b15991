//! ACP+: seeks the rate at which the mean age is smallest.
//!
//! The optimum has as many updates in transit as possible without a queue. After every epoch of ten
//! updates, the law compares mean age and mean backlog with those of the epoch before, and chooses
//! more or less backlog (in updates) for the next one:
//!
//! ```text
//!             10 probes                        epoch of 10 / rate
//!   restart ───────────► rate = 1 / mean rtt ──► ┌──────────────────────────────────────┐
//!                                                │ wish b*: +1, −1 or −(1 − 2^−γ)·B     │
//!                                                │ rate ← 1/Z + b*/srtt,                │
//!                                                │        within ×0.75 … ×1.25          │
//!                                                └──────────────────────────────────────┘
//! ```
//!
//! λ → `rate`, B → `backlog`, Z → `inter_delivery`, γ → `gamma`, b* → `change`. 1/Z is the rate at
//! which updates come out of the path, so that one round trip adds (rate − 1/Z)·srtt to the
//! backlog. Shreedhar, Kaul, Yates: An Empirical Study of Ageing in the Cloud, section II,
//! Algorithm 1; how the wish is chosen is in `steering`.
//!
//! Two laws share this code:
//!
//! | name | parameters | age and backlog of an epoch | Z |
//! |---|---|---|---|
//! | `acp+` | [`Params::default`] | time averages, losses as seen | gaps between acks |
//! | `acp+d` | [`Params::departure`] | backlog at departure, losses bridged | gaps at the monitor |
//!
//! `acp+` is the published algorithm. `acp+d` is ours, and the default law of the programs: random
//! loss does not slow it down, and timing noise does not leave a standing queue (`docs/source.md`
//! has the figures).
//!
//! Where the paper is silent:
//! - The first rate, the probes and their timeouts: see `startup`. Ties: see [`Tie`].
//! - The smoothing of srtt and Z is 0.2, as in the authors' prototype.
//! - An epoch without any ack is an epoch: age and backlog have grown, so that the rate falls by a
//!   quarter each epoch until the floor.
//! - γ is not capped; 1 − 2^−γ is at most 1, and the step in rate at most ×0.75.
//! - Floor and ceiling of the rate: see [`RateBounds`].
//!
//! The prototype computes 1/Z in whole numbers, which makes every multiplicative decrease the
//! largest step. [`MultiplicativeDecrease::LargestStep`] keeps that behaviour for comparison; its
//! measured effect is in `docs/source.md`.

use super::epoch::Backlog;
use super::estimator;
#[cfg(feature = "serde")]
use super::estimator::Estimates;
use super::feedback::{Feedback, Heard};
use super::log::{EpochRecord, Log};
use super::startup;
use super::steering::{Steering, Step, Tie};
use super::{Ack, Phase, RateBounds, RateLaw};
use crate::unit::{Span, Time, UpdateRate};

/// Settings of [`AcpPlus`]; the defaults are the paper's where it gives a value.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "Table"))]
pub struct Params {
    /// Updates in an epoch. 10: section II of the paper.
    pub epoch_updates: u32,
    /// The smallest factor on the rate in an epoch. 0.75: Algorithm 1 line 27.
    pub min_factor: f64,
    /// The largest factor on the rate in an epoch. 1.25: Algorithm 1 line 29.
    pub max_factor: f64,
    /// What to do when an epoch gives no direction.
    pub tie: Tie,
    /// How a multiplicative decrease reaches the rate.
    pub multiplicative_decrease: MultiplicativeDecrease,
    /// How acks become age, backlog, srtt and Z.
    pub estimator: estimator::Params,
    /// The initial phase.
    pub startup: startup::Params,
    /// Floor and ceiling of the rate.
    pub bounds: RateBounds,
}

/// How a multiplicative decrease reaches the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum MultiplicativeDecrease {
    /// As in the paper: the rate that should bring the backlog to 2^−γ of itself.
    #[default]
    Targeted,
    /// As in the authors' prototype: always the largest step down.
    LargestStep,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            epoch_updates: 10,
            min_factor: 0.75,
            max_factor: 1.25,
            tie: Tie::default(),
            multiplicative_decrease: MultiplicativeDecrease::default(),
            estimator: estimator::Params::default(),
            startup: startup::Params::default(),
            bounds: RateBounds::default(),
        }
    }
}

impl Params {
    /// The settings of `acp+d`.
    pub fn departure() -> Self {
        Self { estimator: estimator::Params::departure(), ..Self::default() }
    }

    /// The settings of `acp+d` in a file: missing members of `estimator` are those of
    /// [`Estimates::Departure`].
    #[cfg(feature = "serde")]
    pub(super) fn deserialize_departure<'de, D>(deserializer: D) -> Result<Self, D::Error>
    where
        D: serde::Deserializer<'de>,
    {
        let table: Table = serde::Deserialize::deserialize(deserializer)?;
        Ok(table.params(Estimates::Departure))
    }
}

/// [`Params`] in a file.
#[cfg(feature = "serde")]
#[derive(serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Table {
    epoch_updates: u32,
    min_factor: f64,
    max_factor: f64,
    tie: Tie,
    multiplicative_decrease: MultiplicativeDecrease,
    estimator: estimator::Choice,
    startup: startup::Params,
    bounds: RateBounds,
}

#[cfg(feature = "serde")]
impl Default for Table {
    fn default() -> Self {
        let Params {
            epoch_updates,
            min_factor,
            max_factor,
            tie,
            multiplicative_decrease,
            estimator: _,
            startup,
            bounds,
        } = Params::default();
        Self {
            epoch_updates,
            min_factor,
            max_factor,
            tie,
            multiplicative_decrease,
            estimator: estimator::Choice::default(),
            startup,
            bounds,
        }
    }
}

#[cfg(feature = "serde")]
impl Table {
    fn params(self, estimates: Estimates) -> Params {
        Params {
            epoch_updates: self.epoch_updates,
            min_factor: self.min_factor,
            max_factor: self.max_factor,
            tie: self.tie,
            multiplicative_decrease: self.multiplicative_decrease,
            estimator: self.estimator.or(estimates),
            startup: self.startup,
            bounds: self.bounds,
        }
    }
}

#[cfg(feature = "serde")]
impl From<Table> for Params {
    fn from(table: Table) -> Self {
        table.params(Estimates::default())
    }
}

/// The improved Age Control Protocol.
#[derive(Debug, Clone)]
pub struct AcpPlus {
    params: Params,
    feedback: Feedback,
    steering: Steering,
    /// b* of the current epoch.
    wanted_change: f64,
    epoch_ends_at: Option<Time>,
    log: Log,
}

impl AcpPlus {
    /// A source that begins with probes.
    pub fn new(params: Params) -> Self {
        Self {
            params,
            feedback: Feedback::new(params.estimator, params.startup, params.bounds),
            steering: Steering::new(params.tie),
            wanted_change: 0.0,
            epoch_ends_at: None,
            log: Log::default(),
        }
    }

    fn heard(&mut self, now: Time, heard: Heard) {
        if let Heard::Measured(mean_rtt) = heard {
            self.feedback.set_rate(UpdateRate::from_period(mean_rtt));
            self.feedback.estimator.next_epoch(now);
            self.log.begin(now);
            self.begin_epoch(now);
        }
    }

    fn begin_epoch(&mut self, now: Time) {
        let length = self.feedback.rate().period() * self.params.epoch_updates.into();
        self.epoch_ends_at = Some(now + length);
    }

    /// Algorithm 1 at the end of an epoch.
    fn end_epoch(&mut self, now: Time) {
        let estimator = &mut self.feedback.estimator;
        if let (Some(epoch), Some(srtt), Some(inter_delivery)) =
            (estimator.next_epoch(now), estimator.srtt(), estimator.inter_delivery(now))
        {
            let step = self.steering.decide(epoch, None);
            self.wanted_change = step.change(epoch.backlog, 1.0, self.wanted_change);
            let rate = self.next_rate(step, srtt, inter_delivery);
            self.feedback.steer(rate, srtt);
            let decision = ((step, self.steering.was_tie()), self.wanted_change);
            self.log.add(now, epoch, (srtt, inter_delivery), decision, self.rate());
        }
        self.begin_epoch(now);
    }

    /// UPDATELAMBDA.
    fn next_rate(&self, step: Step, srtt: Span, inter_delivery: Span) -> UpdateRate {
        let rate = self.feedback.rate();
        let least = rate.scaled(self.params.min_factor);
        let most = rate.scaled(self.params.max_factor);
        match (step, self.params.multiplicative_decrease) {
            (Step::Multiplicative { .. }, MultiplicativeDecrease::LargestStep) => least,
            _ => {
                let delivered = 1.0 / inter_delivery.as_secs_f64();
                let change = self.wanted_change / srtt.as_secs_f64();
                UpdateRate::saturating(delivered + change).clamp(least, most)
            }
        }
    }
}

impl RateLaw for AcpPlus {
    fn name(&self) -> &'static str {
        match self.params.estimator.backlog {
            Backlog::OverTime => "acp+",
            Backlog::AtDeparture => "acp+d",
        }
    }

    fn restart(&mut self, _now: Time) {
        *self = Self::new(self.params);
    }

    fn on_sent(&mut self, now: Time, seq: u64) {
        self.feedback.on_sent(now, seq);
    }

    fn on_ack(&mut self, now: Time, ack: &Ack) {
        let heard = self.feedback.on_ack(now, ack);
        self.heard(now, heard);
    }

    fn handle_timeout(&mut self, now: Time) {
        let heard = self.feedback.handle_timeout(now);
        self.heard(now, heard);
        if self.epoch_ends_at.is_some_and(|end| end <= now) {
            self.end_epoch(now);
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.epoch_ends_at.or_else(|| self.feedback.poll_timeout())
    }

    fn next_update_at(&self) -> Option<Time> {
        self.feedback.next_update_at()
    }

    fn rate(&self) -> UpdateRate {
        self.feedback.rate()
    }

    fn phase(&self) -> Phase {
        self.feedback.phase()
    }

    fn bounds(&self) -> Option<RateBounds> {
        Some(self.params.bounds)
    }

    fn set_bounds(&mut self, bounds: RateBounds) {
        self.params.bounds = bounds;
        self.feedback.set_bounds(bounds);
    }

    fn on_unchanged(&mut self, _now: Time) {
        self.feedback.on_unchanged();
    }

    fn last_epoch(&self) -> Option<&EpochRecord> {
        self.log.last()
    }
}
