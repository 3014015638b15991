//! The decisions of ACP and ACP+ in each control epoch: one record per epoch, for logs and figures.

use super::epoch::Averages;
use super::steering::Step;
use crate::unit::{Span, Time, UpdateRate};

/// A control epoch that has ended, and the law's decision at its end.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct EpochRecord {
    /// The number of the epoch, from 1; a restart of the law resets it.
    pub number: u64,
    /// When it began, in s on the source's clock.
    pub began_s: f64,
    /// When it ended.
    pub ended_s: f64,
    /// Δ: mean age in s, as the law estimates it.
    pub age_s: f64,
    /// B: mean backlog in updates, as the law estimates it.
    pub backlog: f64,
    /// Z: smoothed time between deliveries, in s.
    pub inter_delivery_s: f64,
    /// Smoothed round-trip time, in s.
    pub srtt_s: f64,
    /// The action: `inc`, `dec`, `mdec`, `hold` or `repeat`.
    pub action: &'static str,
    /// γ of a multiplicative decrease; 0 for other actions.
    pub gamma: u32,
    /// b*: the wanted change of the backlog in the next epoch, in updates.
    pub wanted_change: f64,
    /// Whether age or backlog had not changed, so that the action is that of
    /// [`Tie`](super::Tie).
    pub tie: bool,
    /// λ: the rate of the next epoch, in updates/s.
    pub rate_per_s: f64,
}

/// Keeps the last record.
#[derive(Debug, Clone, Default)]
pub(super) struct Log {
    began_at: Time,
    last: Option<EpochRecord>,
}

impl Log {
    /// The first epoch begins.
    pub(super) fn begin(&mut self, now: Time) {
        *self = Self { began_at: now, last: None };
    }

    /// An epoch ends, and the next one begins with `rate`.
    pub(super) fn add(
        &mut self,
        now: Time,
        averages: Averages,
        (srtt, inter_delivery): (Span, Span),
        ((step, tie), wanted_change): ((Step, bool), f64),
        rate: UpdateRate,
    ) {
        let seconds = |time: Time| time.since(Time::ZERO).as_secs_f64();
        let (action, gamma) = step.action();
        self.last = Some(EpochRecord {
            number: self.last.map_or(1, |last| last.number + 1),
            began_s: seconds(self.began_at),
            ended_s: seconds(now),
            age_s: averages.age,
            backlog: averages.backlog,
            inter_delivery_s: inter_delivery.as_secs_f64(),
            srtt_s: srtt.as_secs_f64(),
            action,
            gamma,
            wanted_change,
            tie,
            rate_per_s: rate.per_second(),
        });
        self.began_at = now;
    }

    pub(super) fn last(&self) -> Option<&EpochRecord> {
        self.last.as_ref()
    }
}
