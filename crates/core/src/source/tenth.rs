//! Tenth: holds the number of its own updates that wait at a tenth.
//!
//! As many updates in transit as possible, while none waits behind another: by Little's law the
//! number that waits is rate × wait, and a law can hold it at a small constant κ. All sources that
//! share a queue see the same wait, and settle at the same rate κ / wait.
//!
//! ```text
//!            1 probe                  what waits at rest is known        a queue is seen
//!   restart ────────► resting: 1.5 / srtt ─────► climbing: ×2 a round ─────► steering
//!                                                  or pairs say that it is near
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
//!   waits for is the path's: the *allowance*. It is learnt at the beginning, with about one update
//!   a round trip, and later falls but never rises: sources that learnt it anew beside each other
//!   would allow for each other's queues. It is only as large as the spread of waits bears out, so
//!   that a queue that stands is not allowed for, and at most half of the least round trip; and
//!   there is none where the path is narrow, as in a Wi-Fi cell that many share.
//! - **Queues of others**: the rate never falls below Lazy's, one update a smoothed round trip:
//!   with one under way none of our own can wait.
//! - **The edge**: where nothing is random no update waits until the path is full. So the rate at
//!   which a queue was seen last is approached in small steps, and passed in growing ones.
//! - **Losses** say nothing, as only updates that arrived have a wait; but where less than half
//!   arrives, more than arrives is of no use.
//! - **Routes, clocks**: see `waits`. A base that no update met for half a window is looked for, by
//!   a round at a lower rate.
//! - **Sources with little to say**: the rate that was used counts, and is not raised.
//! - **A narrow way back**: see `sparse`. Pairs ask for both acks all the same.

use super::pacer::Pacer;
use super::sparse::{Acks, Sparse};
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
    /// Never fewer updates under way: the rate is at least so many a smoothed round trip. 1: Lazy's.
    pub under_way: f64,
    /// Which delay tells that updates wait.
    pub delay: DelaySource,
    /// Which updates ask for an ack.
    pub acks: Acks,
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
            under_way: 1.0,
            delay: DelaySource::default(),
            acks: Acks::default(),
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
const CLIMB: u32 = 3;

/// The climb ends at this part of the rate at which pairs arrived.
const BELOW_PAIRS: f64 = 0.8;

/// Updates that are sent at rest where waits are worth knowing.
const REST: u32 = 16;

/// There is an allowance on wide paths only, where an update keeps the narrowest hop for no more than
/// this part of a round trip. On others waits as long as a few updates may well be a queue.
const WIDE: f64 = 0.04;

/// Waits that spread over more than this part of a round trip are worth knowing.
const NOISY: f64 = 0.02;

/// With so many waiting, the rate at which updates arrive is what the path can carry.
const FULL: f64 = 1.0;

/// Rounds after which a wait that does not drain is the route's.
const STANDING: u32 = 2;

/// The part of what the path can carry that is used while a queue drains.
const DRAIN: f64 = 0.75;

/// The smallest step up.
const STEP: f64 = 0.02;

/// Updates over which an allowance falls that is too large.
const FORGOTTEN_OVER: f64 = 256.0;

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
    sparse: Sparse,
    /// What updates wait when one is under way, s.
    at_rest: f64,
    stage: Stage,
    /// How far apart two updates arrived at most that were sent at once on the climb, s.
    pair_gap: f64,
    /// And at least; infinite before any.
    least_pair_gap: f64,
    /// The rate at which a queue was seen last; zero for none.
    edge: f64,
    /// The largest step up beyond the edge, as a part of the rate.
    stride: f64,
    /// The least wait of the last round, and for how many rounds it has not fallen.
    standing: (f64, u32),
    newest_acked: Option<u64>,
    /// When a round last looked for the base.
    looked_at: Time,
    round: Option<Round>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Resting,
    Climbing,
    Steering,
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
    least_wait: f64,
    most_wait: f64,
    /// The first of a pair.
    pair: Option<Ack>,
    /// The first and the last ack that count: when their updates arrived, and how many had.
    arrived: Option<[(Time, u32); 2]>,
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
            sparse: Sparse::new(params.acks),
            at_rest: 0.0,
            stage: Stage::Resting,
            pair_gap: 0.0,
            least_pair_gap: f64::INFINITY,
            edge: 0.0,
            stride: STEP,
            standing: (0.0, 0),
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
        self.round = Some(Round {
            began_at: now,
            ends_at,
            is_drain,
            sent: 0,
            count: 0,
            wait_sum: 0.0,
            least_wait: f64::INFINITY,
            most_wait: 0.0,
            pair: None,
            arrived: None,
        });
    }

    /// Updates that the round under way counts: as many as make the noise of their mean wait half
    /// of the wait that is aimed at.
    fn updates_wanted(&self) -> u32 {
        let Params { waiting, least_round, longest_round, .. } = self.params;
        let aim = waiting / self.rate().per_second();
        match self.stage {
            Stage::Resting if self.waits.spread() > NOISY * self.srtt => return REST,
            Stage::Resting | Stage::Climbing => return CLIMB,
            Stage::Steering => {}
        }
        let wanted = 2.0 * self.waits.spread() / aim;
        // `as` saturates.
        ((wanted * wanted) as u32).clamp(least_round.max(1), longest_round.max(least_round).max(1))
    }

    /// The part of waits that is the path's.
    fn allowance(&self) -> f64 {
        let least_rtt = self.waits.least_rtt();
        if self.least_pair_gap > WIDE * least_rtt {
            return 0.0;
        }
        self.at_rest.min(self.params.allowed_spread * self.waits.spread()).min(least_rtt / 2.0)
    }

    fn count(&mut self, now: Time, ack: &Ack, wait: f64) {
        let wanted = self.updates_wanted();
        let full = FULL / self.rate().per_second();
        let allowance = self.allowance();
        let spread = self.waits.spread();
        let Some(round) = &mut self.round else { return };
        if ack.sent_at < round.began_at {
            return;
        }
        match round.pair {
            None => round.pair = Some(*ack),
            Some(first) if round.count == 1 => {
                // No longer apart than the second was under way.
                let apart = ack.received_at.since(first.received_at).min(now.since(ack.sent_at));
                if ack.sent_at.since(first.sent_at) < apart / 4 {
                    self.pair_gap = apart.as_secs_f64().max(self.pair_gap);
                    self.least_pair_gap = apart.as_secs_f64().min(self.least_pair_gap);
                }
            }
            Some(_) => {}
        }
        round.count += 1;
        round.wait_sum += wait;
        round.least_wait = round.least_wait.min(wait);
        round.most_wait = round.most_wait.max(wait);
        let arrival = (ack.received_at, ack.fresh);
        round.arrived = Some([round.arrived.map_or(arrival, |[first, _]| first), arrival]);
        let mean = round.wait_sum / f64::from(round.count);
        let noise = 3.0 * spread / libm::sqrt(f64::from(round.count));
        // A queue that grows is not watched to the end of the round.
        let is_growing = wait - allowance > 2.0 * full && mean - allowance > full.max(noise);
        let is_over = round.count >= wanted || (is_growing && round.count > 2);
        if self.stage == Stage::Climbing && wait - allowance > full && mean - allowance > full / 2.0
        {
            self.stop_climbing(now);
        } else if is_over {
            self.end_round(now);
        }
    }

    /// The step before was the last one without a queue.
    fn stop_climbing(&mut self, now: Time) {
        self.stage = Stage::Steering;
        self.edge = self.rate;
        self.set_rate(self.rate / 2.0);
        self.begin_round(now, false);
    }

    fn end_round(&mut self, now: Time) {
        let Some(round) = self.round else { return };
        let length = now.since(round.began_at).as_secs_f64();
        if round.count == 0 {
            // Silence is no wait that could be known, but no reason to go on either.
            self.stage = Stage::Steering;
            self.set_rate(self.rate * self.params.smallest_factor);
        } else if length > 0.0 {
            let wait = round.wait_sum / f64::from(round.count);
            let count = f64::from(round.count);
            match self.stage {
                Stage::Resting => {
                    self.at_rest = wait;
                    self.stage = Stage::Climbing;
                }
                Stage::Climbing if !self.has_little_to_say(&round, length) => {
                    let carried = 1.0 / self.pair_gap;
                    let ceiling = self.params.bounds.ceiling.per_second();
                    if 2.0 * self.rate >= BELOW_PAIRS * carried.min(ceiling) {
                        self.edge = carried;
                        self.stage = Stage::Steering;
                    }
                    self.set_rate((2.0 * self.rate).min(BELOW_PAIRS * carried));
                }
                Stage::Climbing => {}
                Stage::Steering => {
                    let noise = 2.0 * self.waits.spread() / libm::sqrt(count);
                    if wait < self.at_rest - noise {
                        self.at_rest += (wait - self.at_rest) * (count / FORGOTTEN_OVER).min(1.0);
                    }
                    self.look_for_another_route(&round);
                    if !round.is_drain {
                        self.steer(&round, wait, length);
                    }
                }
            }
        }
        let known_at = self.waits.at_base().max(self.looked_at);
        let is_lost = now.since(known_at) > self.params.window / 2;
        let is_drain = self.stage == Stage::Steering && is_lost;
        if is_drain {
            self.looked_at = now;
        }
        self.begin_round(now, is_drain);
    }

    /// A queue of our own would drain below the edge. What stands there, and hardly moves, is a
    /// longer route.
    fn look_for_another_route(&mut self, round: &Round) {
        let (before, times) = self.standing;
        let Round { least_wait: least, most_wait: most, .. } = *round;
        let stands = least > 0.97 * before && most < 1.1 * least;
        let is_ours = self.rate > 0.85 * self.edge || self.rate * least < FULL;
        let times = if stands && !is_ours { times + 1 } else { 0 };
        self.standing = (least, times);
        if times >= STANDING {
            self.waits.forget();
            self.standing = (0.0, 0);
        }
    }

    fn wants_pair(&self) -> bool {
        self.stage == Stage::Climbing && self.round.is_some_and(|round| round.sent == 1)
    }

    /// Whether the source sent less than it might have.
    fn has_little_to_say(&self, round: &Round, length: f64) -> bool {
        f64::from(round.sent) < 0.7 * self.rate * length - 1.0
    }

    fn steer(&mut self, round: &Round, wait: f64, length: f64) {
        let Params { waiting: aim, smallest_factor, largest_factor, .. } = self.params;
        let used = (f64::from(round.sent) / length).min(self.rate().per_second());
        let excess = (wait - self.allowance()).max(0.0);
        let waiting = used * excess;
        let arrived = round.arrival_rate().filter(|_| round.count > 2);
        let wish = libm::sqrt(aim / waiting.max(1e-3 * aim));
        let mut rate = if wish < 1.0 {
            self.edge = self.rate;
            self.stride = STEP;
            // What waits should be gone after half a round, and no more.
            let least = 1.0 - (2.0 * excess / length).clamp(STEP, 1.0 - smallest_factor);
            self.rate * wish.max(least)
        } else if self.has_little_to_say(round, length) {
            self.rate
        } else if self.rate < 0.9 * self.edge {
            (self.rate * wish.min(largest_factor)).min(0.95 * self.edge)
        } else {
            let step = wish.min(1.0 + self.stride);
            self.stride = (2.0 * self.stride).min(largest_factor - 1.0);
            self.rate * step
        };
        if let Some(arrived) = arrived {
            if waiting > FULL {
                rate = rate.min(DRAIN * arrived.min(self.rate));
            } else if arrived < 0.5 * used {
                rate = rate.min(1.25 * arrived);
            }
        }
        self.set_rate(rate);
    }

    /// What the waits ask for may be less than what is sent, but not by so much that it would be a
    /// long way back.
    fn set_rate(&mut self, rate: f64) {
        let least = 0.7 * self.params.under_way / self.srtt;
        self.rate = self.params.bounds.clamp(UpdateRate::saturating(rate.max(least))).per_second();
    }
}

impl Round {
    /// The rate at which its updates arrived, or fresher ones.
    fn arrival_rate(&self) -> Option<f64> {
        let [(first_at, first), (last_at, last)] = self.arrived?;
        let seconds = last_at.checked_since(first_at)?.as_secs_f64();
        let count = last.wrapping_sub(first);
        // No more can have arrived than were sent.
        (seconds > 0.0 && count <= self.sent).then(|| f64::from(count) / seconds)
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
        self.sparse.on_sent(now);
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
        // What was above the least is above it still.
        self.at_rest += self.waits.fallen().min(self.waits.spread());
        if let Some(startup) = &mut self.startup {
            startup.on_ack(ack.seq, rtt);
            return self.measured(now);
        }
        self.srtt += SMOOTHING * (rtt.as_secs_f64() - self.srtt);
        self.sparse.on_ack(now, self.waits.back(), self.srtt);
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
            // The first two of a step of the climb leave at once: how far apart they arrive tells
            // what the path can carry.
            None if self.wants_pair() => Some(Time::ZERO),
            None => Some(self.pacer.next_at(self.rate())),
        }
    }

    fn wants_ack(&self, now: Time) -> bool {
        let is_of_pair =
            self.stage == Stage::Climbing && self.round.is_some_and(|round| round.sent < 2);
        is_of_pair || self.sparse.wants_ack(now)
    }

    fn rate(&self) -> UpdateRate {
        let is_drain = self.round.is_some_and(|round| round.is_drain);
        let rate = if is_drain { self.rate * self.params.smallest_factor } else { self.rate };
        let least = self.params.under_way / self.srtt;
        let rate = if least.is_finite() { rate.max(least) } else { rate };
        self.params.bounds.clamp(UpdateRate::saturating(rate))
    }

    fn phase(&self) -> Phase {
        if self.startup.is_some() { Phase::Probing } else { Phase::Steering }
    }
}
