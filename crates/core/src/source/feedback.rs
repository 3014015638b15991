//! The common part of all laws that use acks: probes first, then a paced rate and its estimates.

use super::estimator::{self, Estimator};
use super::pacer::Pacer;
use super::startup::{self, Startup};
use super::{Ack, Phase, RateBounds};
use crate::unit::{Span, Time, UpdateRate};

#[derive(Debug, Clone)]
pub(super) struct Feedback {
    bounds: RateBounds,
    rate: UpdateRate,
    pacer: Pacer,
    /// The initial phase, until the mean round trip is known.
    startup: Option<Startup>,
    pub estimator: Estimator,
    /// Whether updates were left out since the last [`Feedback::steer`].
    is_idle: bool,
}

/// The result of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// Nothing new.
    Nothing,
    /// A fresh ack.
    Fresh,
    /// The initial phase has just ended, with this mean round trip.
    Measured(Span),
}

impl Feedback {
    pub(super) fn new(
        estimator: estimator::Params,
        startup: startup::Params,
        bounds: RateBounds,
    ) -> Self {
        Self {
            bounds,
            rate: bounds.floor,
            pacer: Pacer::new(),
            startup: Some(Startup::new(startup)),
            estimator: Estimator::new(estimator),
            is_idle: false,
        }
    }

    pub(super) fn on_sent(&mut self, now: Time, seq: u64) {
        self.estimator.on_sent(now, seq);
        self.pacer.on_sent(now, self.rate);
        if let Some(startup) = &mut self.startup {
            startup.on_sent(now, seq);
        }
    }

    pub(super) fn on_ack(&mut self, now: Time, ack: &Ack) -> Heard {
        let Some(rtt) = self.estimator.on_ack(now, ack) else { return Heard::Nothing };
        if let Some(startup) = &mut self.startup {
            startup.on_ack(ack.seq, rtt);
        }
        self.measured().unwrap_or(Heard::Fresh)
    }

    pub(super) fn handle_timeout(&mut self, now: Time) -> Heard {
        if let Some(startup) = &mut self.startup {
            startup.handle_timeout(now);
        }
        self.measured().unwrap_or(Heard::Nothing)
    }

    fn measured(&mut self) -> Option<Heard> {
        let mean_rtt = self.startup.as_ref()?.result()?;
        self.startup = None;
        Some(Heard::Measured(mean_rtt))
    }

    /// The timeout of the probe in flight.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.startup.as_ref()?.poll_timeout()
    }

    pub(super) fn next_update_at(&self) -> Option<Time> {
        match &self.startup {
            Some(startup) => startup.wants_probe().then_some(Time::ZERO),
            None => Some(self.pacer.next_at(self.rate)),
        }
    }

    pub(super) fn rate(&self) -> UpdateRate {
        self.rate
    }

    /// Takes the rate, within the bounds.
    pub(super) fn set_rate(&mut self, rate: UpdateRate) {
        self.rate = self.bounds.clamp(rate);
    }

    /// Takes the rate that an epoch asks for. In an epoch with updates that were left out, fewer
    /// acks do not show congestion and a low age does not show capacity: the rate does not grow,
    /// and does not fall below one update per round trip, the law's first rate.
    pub(super) fn steer(&mut self, rate: UpdateRate, srtt: Span) {
        let is_idle = core::mem::take(&mut self.is_idle);
        let first = UpdateRate::from_period(srtt);
        let highest = self.rate.clamp(first, UpdateRate::MAX);
        self.set_rate(if is_idle { rate.clamp(first, highest) } else { rate });
    }

    /// An update was left out.
    pub(super) fn on_unchanged(&mut self) {
        self.is_idle = true;
    }

    /// Takes other bounds.
    pub(super) fn set_bounds(&mut self, bounds: RateBounds) {
        self.bounds = bounds;
        self.set_rate(self.rate);
    }

    pub(super) fn phase(&self) -> Phase {
        if self.startup.is_some() { Phase::Probing } else { Phase::Steering }
    }
}
