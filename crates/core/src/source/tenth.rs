//! Tenth: holds the number of its own updates that wait at a tenth.
//!
//! As many updates in transit as possible, while none waits behind another: by Little's law the
//! number that waits is rate × wait, and a law can hold it at a small constant κ. All sources that
//! share a queue see the same wait, and settle at the same rate κ / wait.
//!
//! ```text
//!            1 probe               ×2 a round           a queue is seen
//!   restart ────────► at rest ────────────────► climbing ──────────────► steering
//!
//! excess  = mean wait of the round − allowance          allowance ≤ the wait at rest
//! waiting = rate · excess
//! rate   ← rate · (κ / waiting)^½   within a step of the last, at least 1 / srtt
//! ```
//!
//! κ → `waiting`. A round counts the updates that were sent at its rate, so that a cause is never
//! held against the effect of another one: it takes a round trip and some updates. `docs/fresher.md`
//! has the theory, what was tried instead, and what it comes to.
//!
//! - **Jitter is no queue.** An update that is alone under way waits for none of its own. What it
//!   waits for is the path's: the *allowance*, learnt at rest (about one update a round trip), and
//!   only as large as the spread of waits bears out, so that a queue that stands is not allowed for.
//! - **Queues of others** are the path's as well. Nor does the rate ever fall below Lazy's, one
//!   update a smoothed round trip: with one under way none of our own can wait.
//! - **Losses** say nothing here: only updates that arrived have a wait.
//! - **Routes, clocks**: see `waits`. A base that no update met for half a window is looked for, by
//!   a round at a lower rate.
//! - **Sources with little to say**: the rate that was used counts, and is not raised.

use super::pacer::Pacer;
use super::startup::{self, Startup};
use super::waits::{DelaySource, Waits};
use super::{Ack, Phase, RateBounds, RateLaw};
use crate::unit::{Span, Time, UpdateRate};

/// Settings of [`Tenth`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Params {
    /// κ: so many of its own updates wait, on average. More is more throughput and more age.
    pub waiting: f64,
    /// Which delay tells that updates wait.
    pub delay: DelaySource,
    /// How long the least delay is remembered. 5 s: a longer route is known after that.
    pub window: Span,
    /// Updates that a round counts at least, 1 or more. 8: their mean has a third of the spread of
    /// one.
    pub least_round: u32,
    /// Updates that a round counts at most, where waits spread widely.
    pub longest_round: u32,
    /// The smallest factor on the rate in a round.
    pub smallest_factor: f64,
    /// The largest factor on the rate in a round.
    pub largest_factor: f64,
    /// The allowance is at most so many standard deviations of waits. 2: the mean of what jitters
    /// evenly is 1.7 of them above its least, that of an exponential wait 1.
    pub allowed_spread: f64,
    /// How acks give a first round trip.
    pub startup: startup::Params,
    /// Floor and ceiling of the rate.
    pub bounds: RateBounds,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            waiting: 0.1,
            delay: DelaySource::default(),
            window: Span::from_secs(5),
            least_round: 8,
            longest_round: 64,
            smallest_factor: 0.8,
            largest_factor: 1.25,
            allowed_spread: 2.0,
            startup: startup::Params { probes: 1, ..startup::Params::default() },
            bounds: RateBounds::default(),
        }
    }
}

/// Weight of the newest round trip in srtt: Lazy's.
const SMOOTHING: f64 = 0.2;

/// At rest, so many updates are under way at most.
const AT_REST: f64 = 1.5;

/// Updates that a round of the climb counts.
const CLIMB: u32 = 2;

/// Updates over which the wait at rest is averaged.
const REMEMBERED_AT_REST: f64 = 64.0;

/// Holds the number of its own updates that wait.
#[derive(Debug, Clone)]
pub struct Tenth {
    params: Params,
    pacer: Pacer,
    /// Until a round trip is known.
    startup: Option<Startup>,
    /// What the waits ask for; Lazy's rate and the bounds come on top.
    rate: f64,
    /// Smoothed round trip, s.
    srtt: f64,
    waits: Waits,
    at_rest: AtRest,
    climbing: bool,
    /// The largest step up, as a part of the rate.
    stride: f64,
    newest_acked: Option<u64>,
    /// When a round last looked for the base.
    looked_at: Time,
    round: Option<Round>,
}

/// What updates wait when one is under way.
#[derive(Debug, Clone, Copy, Default)]
struct AtRest {
    wait: f64,
    /// Updates that tell so.
    weight: f64,
}

/// Updates sent at one rate.
#[derive(Debug, Clone, Copy)]
struct Round {
    began_at: Time,
    ends_at: Time,
    /// Of which it looks for the base.
    is_drain: bool,
    sent: u32,
    count: u32,
    wait_sum: f64,
}

impl Tenth {
    /// A source that will begin with a probe.
    pub fn new(params: Params) -> Self {
        Self {
            params,
            pacer: Pacer::new(),
            startup: Some(Startup::new(params.startup)),
            rate: params.bounds.floor.per_second(),
            srtt: 0.0,
            waits: Waits::new(params.delay, params.window),
            at_rest: AtRest::default(),
            climbing: true,
            stride: 0.0,
            newest_acked: None,
            looked_at: Time::ZERO,
            round: None,
        }
    }

    /// Ends the initial phase once a round trip is known.
    fn measured(&mut self, now: Time) {
        let Some(rtt) = self.startup.as_ref().and_then(Startup::result) else { return };
        self.startup = None;
        self.srtt = rtt.as_secs_f64();
        self.set_rate(AT_REST / self.srtt);
        self.begin_round(now, false);
    }

    fn begin_round(&mut self, now: Time, is_drain: bool) {
        let updates = f64::from(2 * self.updates_wanted());
        let length = Span::from_secs_f64(3.0 * self.srtt + updates / self.rate().per_second());
        let length = length.max(self.params.bounds.ceiling.period());
        let ends_at = now + length;
        self.round =
            Some(Round { began_at: now, ends_at, is_drain, sent: 0, count: 0, wait_sum: 0.0 });
    }

    /// Updates that the round under way counts: as many as make the noise of their mean wait half
    /// of the wait that is aimed at.
    fn updates_wanted(&self) -> u32 {
        if self.climbing {
            return CLIMB;
        }
        let Params { waiting, least_round, longest_round, .. } = self.params;
        let aim = waiting / self.rate().per_second();
        let wanted = 2.0 * self.waits.spread() / aim;
        // `as` saturates.
        ((wanted * wanted) as u32).clamp(least_round.max(1), longest_round.max(least_round).max(1))
    }

    /// The part of waits that is the path's.
    fn allowance(&self) -> f64 {
        self.at_rest.wait.min(self.params.allowed_spread * self.waits.spread())
    }

    fn count(&mut self, now: Time, ack: &Ack, wait: f64) {
        let Some(round) = &mut self.round else { return };
        if ack.sent_at < round.began_at {
            return;
        }
        round.count += 1;
        round.wait_sum += wait;
        let (count, mean) = (round.count, round.wait_sum / f64::from(round.count));
        if self.climbing && self.is_queue(wait, mean, count) {
            self.stop_climbing(now);
        } else if count >= self.updates_wanted() {
            self.end_round(now);
        }
    }

    /// Whether waits on the climb are more than what the path has of itself.
    fn is_queue(&self, wait: f64, mean: f64, count: u32) -> bool {
        let gap = 1.0 / self.rate().per_second();
        let noise = 3.0 * self.waits.spread() / libm::sqrt(f64::from(count));
        wait - self.allowance() > gap && mean - self.allowance() > (0.5 * gap).max(noise)
    }

    /// The step before was the last one without a queue.
    fn stop_climbing(&mut self, now: Time) {
        self.climbing = false;
        self.set_rate(self.rate / 2.0);
        self.begin_round(now, false);
    }

    fn end_round(&mut self, now: Time) {
        let Some(round) = self.round else { return };
        let length = now.since(round.began_at).as_secs_f64();
        let used = f64::from(round.sent) / length;
        if round.count == 0 {
            // Silence is no wait that could be known, but no reason to go on either.
            self.climbing = false;
            self.set_rate(self.rate * self.params.smallest_factor);
        } else if length > 0.0 {
            let wait = round.wait_sum / f64::from(round.count);
            self.learn(wait, f64::from(round.count));
            let has_little_to_say = used < 0.7 * self.rate;
            if !round.is_drain {
                self.steer(wait, used.min(self.rate), length, has_little_to_say);
            }
        }
        let known_at = self.waits.at_base().max(self.looked_at);
        let is_drain = !self.climbing && now.since(known_at) > self.params.window / 2;
        if is_drain {
            self.looked_at = now;
        }
        self.begin_round(now, is_drain);
    }

    /// The wait at rest is that of rounds at rest, and never more than what others have.
    fn learn(&mut self, wait: f64, count: f64) {
        let AtRest { wait: known, weight } = self.at_rest;
        let is_at_rest = self.rate().per_second() * self.srtt <= AT_REST * 1.01;
        if is_at_rest {
            let weight = (weight + count).min(REMEMBERED_AT_REST);
            self.at_rest = AtRest { wait: known + (wait - known) * (count / weight).min(1.0), weight };
        } else if wait < known {
            self.at_rest.wait += (wait - known) * (count / REMEMBERED_AT_REST).min(1.0);
        }
    }

    fn steer(&mut self, wait: f64, used: f64, length: f64, has_little_to_say: bool) {
        let Params { waiting: aim, smallest_factor, largest_factor, .. } = self.params;
        let excess = (wait - self.allowance()).max(0.0);
        let waiting = used * excess;
        if self.climbing {
            if !has_little_to_say {
                self.set_rate(self.rate * 2.0);
            }
            return;
        }
        let wish = libm::sqrt(aim / waiting.max(1e-3 * aim));
        let factor = if wish < 1.0 {
            self.stride = 0.0;
            // What waits should be gone after half a round, and no more.
            wish.max(1.0 - (2.0 * excess / length).clamp(0.02, 1.0 - smallest_factor))
        } else if has_little_to_say {
            1.0
        } else {
            // One more update under way; twice as many again while there is nothing to be seen of it.
            let one_more = (1.0 / (self.rate * self.srtt)).max(0.01);
            self.stride = if wish > 2.0 { (2.0 * self.stride).max(one_more) } else { one_more };
            self.stride = self.stride.min(largest_factor - 1.0);
            wish.min(1.0 + self.stride)
        };
        self.set_rate(self.rate * factor);
    }

    fn set_rate(&mut self, rate: f64) {
        let rate = self.params.bounds.clamp(UpdateRate::saturating(rate.max(1.0 / self.srtt)));
        self.rate = rate.per_second();
    }
}

impl RateLaw for Tenth {
    fn name(&self) -> &'static str {
        "tenth"
    }

    fn restart(&mut self, _now: Time) {
        *self = Self::new(self.params);
    }

    fn on_sent(&mut self, now: Time, seq: u64) {
        self.pacer.on_sent(now, self.rate());
        if let Some(startup) = &mut self.startup {
            startup.on_sent(now, seq);
        }
        if let Some(round) = &mut self.round {
            round.sent = round.sent.saturating_add(1);
        }
    }

    fn on_ack(&mut self, now: Time, ack: &Ack) {
        if self.newest_acked.is_some_and(|newest| ack.seq <= newest) {
            return;
        }
        self.newest_acked = Some(ack.seq);
        let rtt = now.since(ack.sent_at) - ack.hold;
        let wait = self.waits.on_ack(now, ack, rtt);
        if let Some(startup) = &mut self.startup {
            startup.on_ack(ack.seq, rtt);
            return self.measured(now);
        }
        self.srtt += SMOOTHING * (rtt.as_secs_f64() - self.srtt);
        self.count(now, ack, wait);
    }

    fn on_tick(&mut self, now: Time) {
        if let Some(startup) = &mut self.startup {
            startup.on_tick(now);
            return self.measured(now);
        }
        if self.round.is_some_and(|round| round.ends_at <= now) {
            self.end_round(now);
        }
    }

    fn next_event(&self) -> Option<Time> {
        let startup = self.startup.as_ref().and_then(Startup::next_event);
        self.round.map(|round| round.ends_at).or(startup)
    }

    fn next_update_at(&self) -> Option<Time> {
        match &self.startup {
            Some(startup) => startup.wants_probe().then_some(Time::ZERO),
            None => Some(self.pacer.next_at(self.rate())),
        }
    }

    fn rate(&self) -> UpdateRate {
        let is_drain = self.round.is_some_and(|round| round.is_drain);
        let rate = if is_drain { self.rate * self.params.smallest_factor } else { self.rate };
        let rate = if self.srtt > 0.0 { rate.max(1.0 / self.srtt) } else { rate };
        self.params.bounds.clamp(UpdateRate::saturating(rate))
    }

    fn phase(&self) -> Phase {
        if self.startup.is_some() { Phase::Probing } else { Phase::Steering }
    }
}
