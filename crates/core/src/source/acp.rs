//! ACP, the Age Control Protocol: seeks the rate with the minimum mean age by steps of the backlog.
//! [`AcpPlus`](super::AcpPlus) is its successor.
//!
//! ```text
//! every 10·T:  wish b*: +κ, −κ or −(1 − 2^−γ)·B
//!              rate ← 1/Z + b*/T,  T = min(srtt, Z);  1/srtt where that is not above 0
//! ```
//!
//! Names as in `acp_plus`; κ → `step`. Shreedhar, PhD thesis, IIIT-Delhi, section 3.7, Algorithm 2,
//! equation 3.1, and section 3.10 ("Evaluation Takeaways") for a rate that is not above 0: "When
//! λ_k became negative, we reset λ_k to be at least one packet per round-trip time."
//! [`Reset::Below`] takes 1/srtt for each rate below it.
//!
//! An epoch that starts at t_k ends at t_k + 10·T, with the T of t_k: "At time t_k we set t_{k+1} =
//! t_k + T" (section 3.7). [`EpochEnd::Moving`] moves the end with each fresh ack.
//!
//! Where the paper is silent, beyond the list in `acp_plus`: the check whether the backlog fell
//! short of the last wish is in Algorithm 2 under (b > 0, δ < 0), while the text and its line
//! numbers explain it for (b < 0, δ > 0), where it makes sense: a backlog that hardly falls while
//! age rises is congestion. [`ShortfallCheck`] selects; the default follows the text.

use super::estimator;
use super::feedback::{Feedback, Heard};
use super::log::{EpochRecord, Log};
use super::startup;
use super::steering::{Shortfall, Steering, Tie};
use super::{Ack, Phase, RateBounds, RateLaw};
use crate::unit::{Span, Time, UpdateRate};

/// Settings of [`Acp`]; the defaults are the thesis's where it gives a value.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Params {
    /// The step κ in updates. 1: the value for real paths in the thesis (section 3.10); its
    /// simulations of short paths needed 0.25.
    pub step: f64,
    /// Where the check for a backlog that fell short applies.
    pub shortfall_check: ShortfallCheck,
    /// The length of an epoch in units of T = min(srtt, Z). 10: section 3.7 of the thesis.
    pub epoch_factor: u32,
    /// Whether the end of an epoch moves while the epoch runs.
    pub epoch_end: EpochEnd,
    /// Which rates become one update per round trip.
    pub reset: Reset,
    /// What to do when an epoch gives no direction.
    pub tie: Tie,
    /// How acks become age, backlog, srtt and Z.
    pub estimator: estimator::Params,
    /// The initial phase.
    pub startup: startup::Params,
    /// Floor and ceiling of the rate.
    pub bounds: RateBounds,
}

/// Where the check for a backlog that fell short of the wish applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum ShortfallCheck {
    /// Where the text explains it: backlog falls, age rises.
    #[default]
    AsExplained,
    /// Where Algorithm 2 prints it: backlog rises, age falls.
    AsPrinted,
}

/// When an epoch of ACP ends. `k` is the epoch's number and t_k the time of its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum EpochEnd {
    /// At t_k + 10·T, with T = min(srtt, Z) as of t_k (section 3.7 of the thesis).
    #[default]
    Fixed,
    /// At t_k + 10·T, with T as of the newest fresh ack.
    Moving,
}

/// Which rates of ACP become one update per round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Reset {
    /// Rates that are not above 0 (section 3.10 of the thesis).
    #[default]
    Negative,
    /// All rates below it.
    Below,
}

impl Reset {
    /// The rate for a `wanted` one in updates/s, which may be negative.
    fn rate(self, wanted: f64, one_a_round_trip: UpdateRate) -> UpdateRate {
        match self {
            Self::Negative if wanted > 0.0 => UpdateRate::saturating(wanted),
            Self::Negative => one_a_round_trip,
            Self::Below => UpdateRate::saturating(wanted).clamp(one_a_round_trip, UpdateRate::MAX),
        }
    }
}

impl Default for Params {
    fn default() -> Self {
        Self {
            step: 1.0,
            shortfall_check: ShortfallCheck::default(),
            epoch_factor: 10,
            epoch_end: EpochEnd::default(),
            reset: Reset::default(),
            tie: Tie::default(),
            estimator: estimator::Params::default(),
            startup: startup::Params::default(),
            bounds: RateBounds::default(),
        }
    }
}

/// The Age Control Protocol with step size κ.
#[derive(Debug, Clone)]
pub struct Acp {
    params: Params,
    feedback: Feedback,
    steering: Steering,
    /// b* of the current epoch.
    wanted_change: f64,
    epoch: Option<Epoch>,
    log: Log,
}

#[derive(Debug, Clone, Copy)]
struct Epoch {
    began_at: Time,
    ends_at: Time,
}

impl Acp {
    /// A source that begins with probes.
    pub fn new(params: Params) -> Self {
        Self {
            params,
            feedback: Feedback::new(params.estimator, params.startup, params.bounds),
            steering: Steering::new(params.tie),
            wanted_change: 0.0,
            epoch: None,
            log: Log::default(),
        }
    }

    fn heard(&mut self, now: Time, heard: Heard) {
        match heard {
            Heard::Nothing => {}
            Heard::Fresh => {
                if let (EpochEnd::Moving, Some(epoch)) = (self.params.epoch_end, self.epoch) {
                    self.set_epoch(epoch.began_at, now);
                }
            }
            Heard::Measured(mean_rtt) => {
                self.feedback.set_rate(UpdateRate::from_period(mean_rtt));
                self.feedback.estimator.next_epoch(now);
                self.log.begin(now);
                self.set_epoch(now, now);
            }
        }
    }

    fn set_epoch(&mut self, began_at: Time, now: Time) {
        // At least the shortest period of updates: a round trip that measures as next to nothing
        // (a monitor that claims to have held the update for as long) must not make the law spin.
        let length = self.time_scale(now) * self.params.epoch_factor.into();
        let length = length.max(self.params.bounds.ceiling.period());
        self.epoch = Some(Epoch { began_at, ends_at: began_at + length });
    }

    /// T = min(srtt, Z).
    fn time_scale(&self, now: Time) -> Span {
        let estimator = &self.feedback.estimator;
        let srtt = estimator.srtt().unwrap_or(Span::ZERO);
        estimator.inter_delivery(now).map_or(srtt, |inter_delivery| inter_delivery.min(srtt))
    }

    /// Algorithm 2 at the end of an epoch.
    fn end_epoch(&mut self, now: Time) {
        let estimator = &mut self.feedback.estimator;
        if let (Some(epoch), Some(srtt), Some(inter_delivery)) =
            (estimator.next_epoch(now), estimator.srtt(), estimator.inter_delivery(now))
        {
            let shortfall = Shortfall {
                wanted: self.wanted_change,
                as_printed: self.params.shortfall_check == ShortfallCheck::AsPrinted,
            };
            let step = self.steering.decide(epoch, Some(shortfall));
            self.wanted_change = step.change(epoch.backlog, self.params.step, self.wanted_change);
            let wanted = 1.0 / inter_delivery.as_secs_f64()
                + self.wanted_change / self.time_scale(now).as_secs_f64();
            let one_a_round_trip = UpdateRate::from_period(srtt);
            self.feedback.steer(self.params.reset.rate(wanted, one_a_round_trip), srtt);
            let decision = ((step, self.steering.was_tie()), self.wanted_change);
            self.log.add(now, epoch, (srtt, inter_delivery), decision, self.rate());
        }
        self.set_epoch(now, now);
    }
}

impl RateLaw for Acp {
    fn name(&self) -> &'static str {
        "acp"
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
        if self.epoch.is_some_and(|epoch| epoch.ends_at <= now) {
            self.end_epoch(now);
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.epoch.map(|epoch| epoch.ends_at).or_else(|| self.feedback.poll_timeout())
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
