//! Tenth: holds the number of its own updates that wait at about a tenth.
//!
//! As many updates in transit as possible, while none waits behind another: by Little's law the
//! number that waits is rate × wait, and a law can hold it at a small constant κ. All sources that
//! share a queue see the same wait, and settle at the same rate κ / wait.
//!
//! ```text
//!            1 probe                               a queue is seen,
//!   restart ────────► climbing: 1.5 under way, ────────────────────────► steering ─┐ what waits does
//!                     then ×2 a round               or pairs say it is near   ▲    │ not drain
//!                        ▲                                                    └────┤
//!                        └────────── it does not: another route ────── draining ◄──┘
//!
//! waiting   = rate · wait · share       of a round: 8 updates that were sent at its rate
//! under way ← under way · (κ / waiting)^½       within a step of the last
//! rate      = under way / srtt
//! ```
//!
//! κ → `waiting`. What is steered is the number under way, so that a queue that grows slows all of its
//! sources within a round trip, before any of them has decided anything. `docs/fresher.md` has the
//! theory, what was tried instead, and what it comes to.
//!
//! - **Jitter, queues of others**: not each wait is worth a lower rate. An update that waits behind
//!   none of its own would have waited all the same; and where a round trip is long beside the time
//!   that an update keeps the narrowest hop, a queue of some updates adds little to the age, but a rate
//!   that is too low does. So only a `share` of what waits counts: all of it on short paths, where
//!   crowds meet; our own part of the load, and a tenth at least, on long ones.
//! - **A queue that is deep beside one update** is somebody else's, who does not yield. Then the rate
//!   is never below Lazy's, one update a smoothed round trip.
//! - **What does not drain** is no queue of ours, but another route or a competitor: it is found by a
//!   round with one update under way, and from then on it is a part of the way.
//! - **The way back**: what acks wait for counts too, the more the nearer it comes to a least round
//!   trip, as there are paths whose both ways share one medium. Fewer acks are asked for, then: see
//!   `sparse`.
//! - **Losses** say nothing, as only updates that arrived have a wait; but where less than half
//!   arrives, more than arrives is of no use.
//! - **Sources with little to say**: the rate that was used counts, and is not raised.

use super::pacer::Pacer;
use super::service::Service;
use super::sparse::{Acks, Sparse};
use super::startup::{self, Startup};
use super::waits::{DelaySource, Wait, Waits};
use super::{Ack, Phase, RateBounds, RateLaw};
use crate::unit::{Span, Time, UpdateRate};

/// Settings of [`Tenth`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Params {
    /// κ: so many of its own updates wait, on average. More is more throughput and more age. 0.14:
    /// at an M/D/1 queue it is within 6 % of the best for 1 to 48 sources (`docs/fresher.md`).
    pub waiting: f64,
    /// Where a queue is deep, the rate is at least so many updates a smoothed round trip. 1: Lazy's.
    pub under_way: f64,
    /// Which delay tells that updates wait.
    pub delay: DelaySource,
    /// Which updates ask for an ack.
    pub acks: Acks,
    /// After so long without an update that hardly waited, what waits is made to drain.
    pub patience: Span,
    /// Updates that a round counts, 1 or more. 8: their mean has a third of the spread of one.
    pub round: u32,
    /// The smallest factor on the number under way in a round.
    pub smallest_factor: f64,
    /// The largest factor on the number under way in a round.
    pub largest_factor: f64,
    /// How acks give a first round trip.
    pub startup: startup::Params,
    /// Floor and ceiling of the rate.
    pub bounds: RateBounds,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            waiting: 0.14,
            under_way: 1.0,
            delay: DelaySource::default(),
            acks: Acks::default(),
            patience: Span::from_millis(2_500),
            round: 8,
            smallest_factor: 0.8,
            largest_factor: 1.25,
            startup: startup::Params { probes: 1, ..startup::Params::default() },
            bounds: RateBounds::default(),
        }
    }
}

/// Weight of the newest round trip in srtt: Lazy's.
const SMOOTHING: f64 = 0.2;

/// The climb begins with so many updates under way.
const FIRST: f64 = 1.5;

/// Updates that a round of the climb counts, or one that drains.
const FEW: u32 = 3;

/// The climb ends at this part of the rate at which pairs arrived.
const BELOW_PAIRS: f64 = 0.8;

/// All that waits counts on paths that hold no more updates than this; on longer ones the share falls
/// as the square of their length.
const SHORT: f64 = 10.0;

/// The least share of what waits that counts: 1.4 updates may wait then. A crowd on a long path would
/// else wait for each source to see its own part of the queue.
const LEAST_SHARE: f64 = 0.1;

/// A queue of so many updates is deep. A crowd that holds κ makes one only with 25 sources and more,
/// where Lazy's rate is near the best, too.
const DEEP: f64 = 4.0;

/// With so many waiting, the rate at which updates arrive is what the path can carry.
const FULL: f64 = 1.0;

/// Rounds after which a wait that does not change is looked into.
const STANDING: u32 = 2;

/// Waits within this factor are the same.
const SAME: f64 = 1.1;

/// What was waited for has drained if less than this part of it is left.
const DRAINED: f64 = 0.5;

/// What so many rounds in a row have not drained is as good as a part of the way, however it changes. At
/// the default patience that is longer than BBR keeps a queue, 10 s (Cardwell et al., ACM Queue 2016).
const UNDRAINED: u32 = 5;

/// The part of what the path can carry that is used while a queue drains.
const DRAIN: f64 = 0.75;

/// No more than this part of what the narrowest hop carries is sent: where nothing is random no
/// update waits until it is full, and then all do.
const EDGE: f64 = 0.96;

/// The smallest step up: the first one after a step down.
const STEP: f64 = 0.02;

/// Holds the number of its own updates that wait.
#[derive(Debug, Clone)]
pub struct Tenth {
    params: Params,
    pacer: Pacer,
    /// Until a round trip is known.
    startup: Option<Startup>,
    /// So many updates are to be under way; the floor and the bounds come on top.
    under_way: f64,
    /// Smoothed round trip, s.
    srtt: f64,
    waits: Waits,
    service: Service,
    sparse: Sparse,
    stage: Stage,
    /// The mean wait of the last round that was steered by, s.
    wait: f64,
    /// And whether all of its updates waited as long.
    was_steady: bool,
    /// So many times in a row what waited did not drain.
    undrained: u32,
    /// How far apart pairs of the climb arrived at most, s.
    pair_gap: f64,
    /// The largest step up, as a part of the rate.
    stride: f64,
    /// The least wait of the last round, and for how many rounds it has not changed.
    standing: (f64, u32),
    newest_acked: Option<u64>,
    /// When what waited was made to drain last.
    drained_at: Time,
    round: Option<Round>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Climbing,
    Steering,
    Draining,
}

/// Updates sent at one rate.
#[derive(Debug, Clone, Copy)]
struct Round {
    began_at: Time,
    ends_at: Time,
    sent: u32,
    count: u32,
    wait_sum: f64,
    least_wait: f64,
    most_wait: f64,
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
            under_way: FIRST,
            srtt: 0.0,
            waits: Waits::new(params.delay),
            service: Service::new(),
            sparse: Sparse::new(params.acks),
            stage: Stage::Climbing,
            wait: 0.0,
            was_steady: false,
            undrained: 0,
            pair_gap: 0.0,
            stride: STEP,
            standing: (0.0, 0),
            newest_acked: None,
            drained_at: Time::ZERO,
            round: None,
        }
    }

    /// Ends the initial phase once a round trip is known.
    fn measured(&mut self, now: Time) {
        let Some(rtt) = self.startup.as_ref().and_then(Startup::result) else { return };
        self.startup = None;
        self.srtt = rtt.as_secs_f64();
        self.begin_round(now);
    }

    fn begin_round(&mut self, now: Time) {
        let updates = f64::from(self.updates_wanted().saturating_mul(2));
        let length = Span::from_secs_f64(3.0 * self.srtt + updates / self.rate().per_second());
        let ends_at = now + length.max(self.params.bounds.ceiling.period());
        self.round = Some(Round::new(now, ends_at));
    }

    fn updates_wanted(&self) -> u32 {
        match self.stage {
            Stage::Climbing | Stage::Draining => FEW,
            Stage::Steering => self.params.round.max(1),
        }
    }

    /// The part of what waits that counts: 0.1 to 1.
    fn share(&self) -> f64 {
        let Some(service) = self.service.least() else { return 1.0 };
        let short = SHORT * service / self.waits.least_rtt().max(service);
        let own = self.rate().per_second() * service;
        own.max(short * short).clamp(LEAST_SHARE, 1.0)
    }

    fn count(&mut self, now: Time, ack: &Ack, wait: f64) {
        let wanted = self.updates_wanted();
        let full = self.full() / (self.rate().per_second() * self.share());
        let Some(round) = &mut self.round else { return };
        if ack.sent_at < round.began_at {
            return;
        }
        let mean = round.count_in(ack, wait);
        // A queue that grows is not watched to the end of the round.
        let is_growing = wait > 2.0 * full && mean > full;
        let is_over = round.count >= wanted || (is_growing && round.count >= FEW);
        if self.stage == Stage::Climbing && wait > full && mean > full / 2.0 {
            self.stop_climbing(now);
        } else if is_over {
            self.end_round(now);
        }
    }

    /// The step before was the last one without a queue.
    fn stop_climbing(&mut self, now: Time) {
        self.stage = Stage::Steering;
        self.set_rate(self.aim() / 2.0);
        self.begin_round(now);
    }

    fn end_round(&mut self, now: Time) {
        let Some(round) = self.round else { return };
        let length = now.since(round.began_at).as_secs_f64();
        if round.count == 0 {
            // Silence is no wait that could be known, but no reason to go on either: down to Lazy's.
            self.stage = Stage::Steering;
            let least = self.aim().min(self.params.under_way / self.srtt);
            self.set_rate((self.aim() * self.params.smallest_factor).max(least));
        } else if length > 0.0 {
            match self.stage {
                Stage::Climbing => self.climb(&round, length),
                Stage::Steering => self.steer(now, &round, length),
                Stage::Draining => self.see_what_is_left(&round),
            }
        }
        self.begin_round(now);
    }

    fn climb(&mut self, round: &Round, length: f64) {
        if self.has_little_to_say(round, length) {
            return;
        }
        let carried = 1.0 / self.pair_gap;
        let ceiling = self.params.bounds.ceiling.per_second();
        let wish = 2.0 * self.aim();
        if wish >= BELOW_PAIRS * carried.min(ceiling) {
            self.stage = Stage::Steering;
        }
        self.set_rate(wish.min(BELOW_PAIRS * carried));
    }

    fn steer(&mut self, now: Time, round: &Round, length: f64) {
        let Params { waiting: aim, smallest_factor, largest_factor, .. } = self.params;
        self.wait = round.mean_wait();
        self.was_steady = round.is_steady();
        let used = (f64::from(round.sent) / length).min(self.rate().per_second());
        let waiting = used * self.wait * self.share();
        let wish = libm::sqrt(aim / waiting.max(1e-3 * aim));
        let mut rate = self.aim();
        if wish < 1.0 {
            self.stride = STEP;
            rate *= wish.max(smallest_factor);
        } else if !self.has_little_to_say(round, length) {
            rate *= wish.min(1.0 + self.stride);
            self.stride = (2.0 * self.stride).min(largest_factor - 1.0);
        }
        if let Some(arrived) = round.arrival_rate().filter(|_| round.count >= FEW) {
            if waiting > self.full() {
                rate = rate.min(DRAIN * arrived.min(self.aim()));
            } else if arrived < 0.5 * used {
                rate = rate.min(1.25 * arrived);
            }
        }
        self.set_rate(rate);
        if self.has_to_drain(now, round) {
            self.stage = Stage::Draining;
            self.drained_at = now;
        }
    }

    /// Whether it is time to see if what waits is a queue; not where it is to wait.
    fn has_to_drain(&mut self, now: Time, round: &Round) -> bool {
        let at_base = self.waits.at_base();
        if at_base > self.drained_at {
            self.undrained = 0;
        }
        let stands = self.stands(round);
        let is_lost = now.since(at_base.max(self.drained_at)) > self.params.patience;
        self.params.waiting < FULL && (stands || is_lost)
    }

    /// With so many waiting a queue grows that was not asked for.
    fn full(&self) -> f64 {
        FULL.max(2.0 * self.params.waiting)
    }

    /// Whether updates wait, and the wait does not change.
    fn stands(&mut self, round: &Round) -> bool {
        let (before, times) = self.standing;
        let is_same = round.is_steady() && round.least_wait > before / SAME;
        let times = if is_same && self.aim() * round.least_wait >= FULL { times + 1 } else { 0 };
        self.standing = (round.least_wait, times % STANDING);
        times >= STANDING
    }

    /// A queue of ours has drained now. What stands there all the same is the route's, or as good as
    /// that.
    fn see_what_is_left(&mut self, round: &Round) {
        self.stage = Stage::Steering;
        if round.least_wait < DRAINED * self.wait {
            self.undrained = 0;
            return;
        }
        self.undrained += 1;
        if (self.was_steady && round.is_steady()) || self.undrained >= UNDRAINED {
            self.waits.raise(round.least_wait);
            self.undrained = 0;
            self.stage = Stage::Climbing;
            self.pair_gap = 0.0;
        }
    }

    /// Whether the source sent less than it might have.
    fn has_little_to_say(&self, round: &Round, length: f64) -> bool {
        f64::from(round.sent) < 0.7 * self.aim() * length - 1.0
    }

    /// The round whose first two updates leave at once, as it is worth knowing what the path can carry.
    fn round_of_pair(&self) -> Option<&Round> {
        let is_worth_it = |round: &&Round| {
            self.stage == Stage::Climbing || self.service.wants_pair(round.began_at)
        };
        self.round.as_ref().filter(is_worth_it)
    }

    /// What the waits ask for, 1/s.
    fn aim(&self) -> f64 {
        if self.srtt > 0.0 { self.under_way / self.srtt } else { 0.0 }
    }

    /// What the waits ask for may be less than what is sent, but not by so much that it would be a
    /// long way back.
    fn set_rate(&mut self, rate: f64) {
        let edge = self.service.least_pair().map_or(f64::INFINITY, |service| EDGE / service);
        let rate = UpdateRate::saturating(rate.min(edge).max(0.7 * self.least_rate()));
        self.under_way = self.params.bounds.clamp(rate).per_second() * self.srtt;
    }

    /// What is sent whatever waits, 1/s: Lazy's rate where a queue is deep.
    fn least_rate(&self) -> f64 {
        let depth = self.service.least().map_or(1.0, |service| self.wait / (DEEP * service));
        self.params.under_way * depth.min(1.0) / self.srtt
    }
}

impl Round {
    fn new(began_at: Time, ends_at: Time) -> Self {
        Self {
            began_at,
            ends_at,
            sent: 0,
            count: 0,
            wait_sum: 0.0,
            least_wait: f64::INFINITY,
            most_wait: 0.0,
            arrived: None,
        }
    }

    /// Counts in an update that waited for so many s; gives the mean.
    fn count_in(&mut self, ack: &Ack, wait: f64) -> f64 {
        self.count += 1;
        self.wait_sum += wait;
        self.least_wait = self.least_wait.min(wait);
        self.most_wait = self.most_wait.max(wait);
        let arrival = (ack.received_at, ack.fresh);
        self.arrived = Some([self.arrived.map_or(arrival, |[first, _]| first), arrival]);
        self.mean_wait()
    }

    /// Mean wait, s; of a round that has counted something.
    fn mean_wait(&self) -> f64 {
        self.wait_sum / f64::from(self.count)
    }

    /// Whether all waited for as long.
    fn is_steady(&self) -> bool {
        self.most_wait < SAME * self.least_wait
    }

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
        let Wait { ahead, back } = self.waits.on_ack(now, ack, rtt);
        let pair_gap = self.service.on_ack(now, ack);
        if let Some(startup) = &mut self.startup {
            startup.on_ack(ack.seq, rtt);
            return self.measured(now);
        }
        if self.stage == Stage::Climbing {
            self.pair_gap = pair_gap.map_or(self.pair_gap, |gap| gap.max(self.pair_gap));
        }
        self.srtt += SMOOTHING * (rtt.as_secs_f64() - self.srtt);
        self.sparse.on_ack(now, back, self.srtt);
        // In a crowd acks wait in line for the air that updates take; a little of that is always there.
        let round_trip = self.waits.least_rtt().max(back).max(f64::MIN_POSITIVE);
        self.count(now, ack, ahead + back * (back / round_trip));
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
            None if self.round_of_pair().is_some_and(|round| round.sent == 1) => Some(Time::ZERO),
            None => Some(self.pacer.next_at(self.rate())),
        }
    }

    fn wants_ack(&self, now: Time) -> bool {
        self.round_of_pair().is_some_and(|round| round.sent < 2) || self.sparse.wants_ack(now)
    }

    fn rate(&self) -> UpdateRate {
        let rate = match self.stage {
            // One under way at most.
            Stage::Draining => self.aim().min(1.0 / self.srtt),
            Stage::Climbing | Stage::Steering => self.aim(),
        };
        let rate = if self.srtt > 0.0 { rate.max(self.least_rate()) } else { 0.0 };
        self.params.bounds.clamp(UpdateRate::saturating(rate))
    }

    fn phase(&self) -> Phase {
        if self.startup.is_some() { Phase::Probing } else { Phase::Steering }
    }

    fn bounds(&self) -> Option<RateBounds> {
        Some(self.params.bounds)
    }

    fn set_bounds(&mut self, bounds: RateBounds) {
        self.params.bounds = bounds;
    }
}
