//! Tenth controls the rate of a source: it keeps the mean number of the source's own queued updates
//! at about a tenth, which is close to the minimum of the mean age.
//!
//! The optimum has as many updates in transit as possible without a queue: by Little's law the
//! number of queued updates is rate × queueing delay, and a law can hold it at a small constant κ.
//! All sources that share a queue see the same queueing delay, and settle at the same rate κ /
//! delay.
//!
//! ```text
//!            1 probe                              the price is above 3 κ, 10 are in transit,
//!   restart ────────► start-up: 1 in transit, ──────────────────────────────────────► steering
//!                     then ×2 per round           or pairs show that capacity is near     │
//!                        ▲                                                                │
//!                        └────────── the delay rises at once, and stays high ◄────────────┘
//!
//! price      = rate · delay + λ · loss     updates, over a round: 8 updates sent at its rate
//! in transit ← in transit · (κ / price)^½  updates, within the bounds of a step
//! rate       = in transit / srtt           updates/s, at most 0.96 of the bottleneck rate
//! ```
//!
//! κ → `target_queue`, λ → `loss_price`. The law controls the number in transit, so that a growing
//! queue slows down all of its sources within a round trip, before any of them has decided
//! anything. `price` has the delay and the loss that count, `climb` the steps of start-up.
//! `docs/fresher.md` has the theory, alternatives that were tried, and results.
//!
//! # States
//!
//! - **Probe**: one update in transit, until its ack arrives.
//! - **Start-up** (`Climbing`): the number in transit doubles each round. It ends at a price of 3
//!   κ, at 10 updates in transit, when pairs show that the capacity is near, with three losses in a
//!   round, or after 4 rounds without a pair.
//! - **Steering**: the equations above, once per round. A step multiplies the number in transit by
//!   at least 0.8 · (1 − loss), or 0.5 · (1 − loss) at a price above 16 κ, and by at most 1 +
//!   min(s, max(10·s, 1) / in transit). s is 0.02 after a step down and doubles each round, up to
//!   0.25. It ends when the delay rises from one update to the next and stays high (`jump`): the
//!   base delay is raised, and start-up begins again.
//!
//! # Protection against overload
//!
//! Some cases are still overloaded: crowds with less than one update per second each, and more than
//! a hundred sources at a queue of a few packets (`docs/fresher.md`, "Safety").
//!
//! - With at least 1½ times the target and two more in transit, the next update leaves a round trip
//!   later at the earliest. Two round trips without an ack are an outage. In an outage at most half
//!   as many updates leave as before, each after another eighth of the time without an ack, or 8
//!   round trips (¼ s to 2 s). After losses to a full queue the gap is the whole time without an
//!   ack, at most 2 s.
//! - Updates that are lost to a full queue have a price (`losses`). It is above κ as long as more
//!   than a twentieth is lost, or a sixth for sources that use a small share of the capacity. So
//!   the load falls until the loss is lower.
//! - The base delay is raised only by a change that the source's own queue cannot cause (`jump`).
//!   When it falls by more than a fifth, a queue drains: start-up ends, and the queueing delay of
//!   the round is computed again.
//! - Common pauses (`pauses`) show the base delay to sources that joined while other updates were
//!   queued.
//! - Start-up ends with three losses in a round, and if no pair arrives.
//! - A price of 16 κ after two updates cuts the number in transit by up to a half at once.
//! - Lazy's rate as a floor, below, yields to each loss (`floors`); the configured floor yields to
//!   persistent losses (`stretch`) and to round trips above 1 / floor. A source whose first probes
//!   were lost starts at a lower rate.
//!
//! # Delays and losses that do not lower the rate, or only in part
//!
//! - **Jitter, competing queues**: the delay of an update without own updates in front of it does
//!   not depend on the rate. Where a round trip is long compared with the service time of an update
//!   at the bottleneck, a queue of some updates adds little to the age, but a rate that is too low
//!   does. So only a `share` of the variation counts: all of it on short paths, where crowds meet;
//!   the source's share of the capacity, and at least a tenth, on long ones; and more if delays
//!   last (`variation`). The delay common to all updates of a round counts in full.
//! - **A queue that is deep compared with one update** may belong to a competing flow that does not
//!   yield. Then the rate is at least Lazy's, one update per smoothed round trip; half of it if the
//!   queue drains in pauses.
//! - **Lengths**: a long update takes longer at the bottleneck, and its base delay is longer
//!   (`base_delay`).
//! - **The reverse path**: the queueing delay of acks counts too, the more the nearer it comes to a
//!   base RTT, as there are paths whose both directions share one medium. Then fewer acks are
//!   requested: see `sparse`.
//! - **Random losses**, in bursts or not, have no price once a test has shown that they are random
//!   (`losses`). Until then the test holds the rate for 5 s or 40 round trips at most, and not if
//!   more than half is lost.
//! - **More than ten in transit** lower the age by less than a twentieth of the round trip, and are
//!   added slowly.
//! - **An outdated round trip**: after an outage with a queue the smoothed one is seconds long, and
//!   one update per round trip would be rare. With a newest round trip of less than a quarter of
//!   it, nothing in transit and no priced losses, the next update leaves a newest round trip after
//!   the newest ack.
//! - **An own queue that drains**: 9 or more updates in a row that arrive within twice the usual
//!   distance of a pair of each other, with a queueing delay of more than 4 base RTTs, were alone
//!   in the queue. Updates sent after them may be lost, so the source does not wait for their acks:
//!   it sends one a base RTT after the previous one.
//! - **A path that is free again**: see `free`.
//! - **Sources with few states**: the rate in use counts, and is not raised. Updates that left
//!   apart for want of a state are no pair: an outage between them is not the capacity of the path
//!   (`service`).

mod climb;
mod constants;
mod counts;
mod floors;
mod free;
mod gate;
mod jump;
mod losses;
mod params;
mod pauses;
mod price;
mod round;
mod silence;
mod stretch;
mod variation;

use self::constants::{
    AMPLE, CLEAR, CLEARLY, CUT, DEEP, DRAINED, EDGE, FELL, FEW, FIRST, FULL, HELD, HOLD, LONG,
    MIN_HOLD, OURS, ROUND_TRIPS, SLOW, SMOOTHING, STEP, TESTING,
};
use self::counts::Counted;
use self::floors::Floors;
use self::free::Free;
use self::jump::{Jumps, Known, Waited};
use self::losses::{Losses, TRAIN};
pub use self::params::Params;
use self::pauses::Pauses;
use self::price::FREE;
use self::round::Round;
use self::stretch::Stretch;
use self::variation::Variation;
use super::pacer::Pacer;
use super::queueing_delay::{QueueingDelay, QueueingDelays};
use super::service::Service;
use super::sparse::Sparse;
use super::startup::Startup;
use super::{Ack, Phase, RateBounds, RateLaw};
use crate::unit::{Span, Time, UpdateRate};

/// Controls the number of the source's own queued updates.
#[derive(Debug, Clone)]
pub struct Tenth {
    params: Params,
    pacer: Pacer,
    /// The initial phase, until a round trip is known.
    startup: Option<Startup>,
    /// When the initial phase ended.
    began_at: Time,
    /// The target number of updates in transit, without the floor and the bounds.
    in_transit: f64,
    /// Smoothed round trip, s.
    srtt: f64,
    delays: QueueingDelays,
    variation: Variation,
    jumps: Jumps,
    losses: Losses,
    service: Service,
    sparse: Sparse,
    pauses: Pauses,
    stage: Stage,
    /// The mean queueing delay of the last round of steering, s.
    wait: f64,
    floors: Floors,
    /// Floors and rate at the beginning of silence, if no priced losses came before it.
    before_silence: Option<(Floors, UpdateRate)>,
    free: Free,
    stretch: Stretch,
    /// The end of the time in which a test of losses may hold the rate.
    holds_until: Time,
    /// The last round with an ack has no priced losses.
    was_clean: bool,
    /// The last round has no ack.
    was_silent: bool,
    /// The maximum distance of pairs at arrival in start-up, s.
    pair_gap: f64,
    /// Rounds of start-up without a pair.
    unpaired: u32,
    /// Start-up has used the capacity that its first pair showed.
    has_begun: bool,
    /// The largest step up, as a fraction of the rate.
    stride: f64,
    newest_sent: (u64, Time),
    newest_acked: Option<u64>,
    /// The round trip of the newest ack, and the queueing delay of its update, s.
    rtt: Span,
    ahead: f64,
    heard_at: Time,
    /// When the last update arrived that had little queueing delay after a pause.
    drained_at: Time,
    /// No update leaves before this time, as a train has left in advance.
    resumes_at: Time,
    round: Option<Round>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Climbing,
    Steering,
}

impl Tenth {
    /// A source that begins with a probe.
    pub fn new(params: Params) -> Self {
        Self {
            params,
            pacer: Pacer::new(),
            startup: Some(Startup::new(params.startup)),
            began_at: Time::ZERO,
            in_transit: FIRST,
            srtt: 0.0,
            delays: QueueingDelays::new(params.delay),
            variation: Variation::default(),
            jumps: Jumps::default(),
            losses: Losses::default(),
            service: Service::new(),
            sparse: Sparse::new(params.acks),
            pauses: Pauses::default(),
            stage: Stage::Climbing,
            wait: 0.0,
            floors: Floors::default(),
            free: Free::default(),
            stretch: Stretch::default(),
            before_silence: None,
            holds_until: Time::ZERO,
            was_clean: true,
            was_silent: false,
            pair_gap: 0.0,
            unpaired: 0,
            has_begun: false,
            stride: STEP,
            newest_sent: (0, Time::ZERO),
            newest_acked: None,
            rtt: Span::ZERO,
            ahead: 0.0,
            heard_at: Time::ZERO,
            drained_at: Time::ZERO,
            resumes_at: Time::ZERO,
            round: None,
        }
    }

    /// Ends the initial phase once a round trip is known.
    fn measured(&mut self, now: Time) {
        let Some(rtt) = self.startup.as_ref().and_then(Startup::result) else { return };
        let lost = self.startup.take().map_or(0, |startup| startup.lost());
        self.began_at = now;
        self.srtt = rtt.as_secs_f64();
        self.floors.begin(lost);
        self.was_clean = lost == 0;
        self.in_transit = FIRST * self.floors.left();
        self.set_rate(self.aim());
        self.begin_round(now);
    }

    fn begin_round(&mut self, now: Time) {
        let updates = f64::from(self.updates_wanted().saturating_add(2));
        let length = Span::from_secs_f64(3.0 * self.srtt + updates / self.rate().per_second());
        let ends_at = now + length.max(self.params.bounds.ceiling.period());
        self.round = Some(Round::new(now, ends_at));
    }

    fn updates_wanted(&self) -> u32 {
        match self.stage {
            Stage::Climbing => FEW,
            Stage::Steering => self.params.round_updates.max(1),
        }
    }

    fn count(&mut self, now: Time, ack: &Ack, since: Counted, wait: f64) {
        let wanted = self.updates_wanted();
        let full =
            FULL.max(2.0 * self.params.target_queue) / (self.rate().per_second() * self.share());
        let long = Span::from_secs_f64((3.0 * self.srtt).max(LONG));
        let Some(round) = self.round.as_mut().filter(|round| ack.sent_at >= round.began_at) else {
            return;
        };
        round.count_in(since, wait);
        // Losses are not counted to the end of the round, and no round may last forever.
        let is_enough = round.since.lost >= f64::from(FEW) || now.since(round.began_at) > long;
        let is_over = round.count >= wanted || is_enough && round.count >= FEW;
        let round = *round;
        let is_over = is_over || self.is_clear(&round, now);
        if self.stage == Stage::Climbing && wait > full && round.mean_wait() > full / 2.0 {
            // The step before was the last one without a queue.
            self.stage = Stage::Steering;
            self.set_rate(self.aim() / 2.0);
            self.begin_round(now);
        } else if is_over {
            self.end_round(now);
        }
    }

    /// Whether the price is so high that no more updates are needed.
    fn is_clear(&self, round: &Round, now: Time) -> bool {
        let length = now.since(round.began_at).as_secs_f64();
        self.stage == Stage::Steering
            && round.count >= CLEARLY
            && length > self.srtt
            && self.price(round, length) > CLEAR * self.params.target_queue
    }

    fn end_round(&mut self, now: Time) {
        let Some(round) = self.round else { return };
        let length = now.since(round.began_at).as_secs_f64();
        // A source without updates to send is not silent.
        let is_idle = round.sent == 0 && self.newest_acked == Some(self.newest_sent.0);
        if round.count == 0 && !is_idle {
            self.hear_nothing();
        } else if round.count > 0 && length > 0.0 {
            let is_queueing = self.queueing_price(&round, length) > self.params.target_queue;
            if core::mem::take(&mut self.was_silent) {
                self.end_silence(is_queueing);
            }
            match self.stage {
                Stage::Climbing => self.climb(&round, length),
                Stage::Steering => self.steer(&round, length),
            }
        }
        self.begin_round(now);
    }

    /// Whether losses have no price, or are being tested.
    fn is_clean(&self) -> bool {
        self.was_clean || self.is_testing()
    }

    fn steer(&mut self, round: &Round, length: f64) {
        let Params { min_factor, max_factor, .. } = self.params;
        let aim = self.params.target_queue;
        self.wait = round.mean_wait();
        let loss = self.loss(round);
        let has_short_queue = self.wait < DEEP * self.service.least().unwrap_or(0.0);
        if !self.sends_trains() {
            self.losses.give_up();
        }
        let seems_random = loss > 0.0 && has_short_queue && self.sends_trains();
        if seems_random && self.losses.test(self.heard_at, loss) {
            let hold = (HOLD * self.srtt).max(MIN_HOLD);
            self.holds_until = self.heard_at + Span::from_secs_f64(hold);
        }
        let of_losses = self.price_of_all() * loss;
        let price = self.queueing_price(round, length) + of_losses;
        let wish = libm::sqrt(aim / price.max(1e-3 * aim));
        let survive = 1.0 - loss;
        self.was_clean = of_losses < aim;
        let mut rate = self.aim();
        if wish < 1.0 {
            self.stride = STEP;
            let least = if price > CLEAR * aim { CUT } else { min_factor };
            rate *= wish.max(least * survive);
            if of_losses > aim / 2.0 {
                self.losses.forget();
            }
        } else if !self.has_little_to_say(round, length) {
            // One more update per round, or the stride if 10 or more are in transit.
            let more = (self.stride * AMPLE).max(1.0) / self.in_transit;
            rate *= wish.min(1.0 + self.stride.min(more));
            self.stride = (2.0 * self.stride).min(max_factor - 1.0);
        }
        self.set_rate(rate.max(self.testing_rate()));
    }

    /// The minimum rate of a test of losses, 1/s: a test needs some 40 updates of trains, and would
    /// not end at a lower rate.
    fn testing_rate(&self) -> f64 {
        let least = (TESTING / self.srtt).max(SLOW);
        if self.is_testing() { self.aim().min(least) } else { 0.0 }
    }

    /// Whether a test is finding out if losses are random.
    fn is_testing(&self) -> bool {
        self.losses.is_open()
            && self.sends_trains()
            && self.heard_at.max(self.newest_sent.1) < self.holds_until
            && self.losses.steady() < HELD
    }

    /// Whether the gap behind a train is short enough.
    fn sends_trains(&self) -> bool {
        self.rate().per_second() >= SLOW
    }

    /// Whether the source sent less than the rate allowed.
    fn has_little_to_say(&self, round: &Round, length: f64) -> bool {
        let aim = self.aim().min(self.params.bounds.ceiling.per_second());
        f64::from(round.sent) < 0.7 * aim * length - 1.0
    }

    /// Whether the next update leaves at once, behind the last one.
    fn follows(&self) -> bool {
        self.losses.is_in_train() || self.round_of_pair().is_some_and(|round| round.sent == 1)
    }

    /// The rate by the number in transit, without the floor, 1/s.
    fn aim(&self) -> f64 {
        if self.srtt > 0.0 { self.in_transit / self.srtt } else { 0.0 }
    }

    /// Sets the number in transit by a rate, 1/s. It may be less than the floor, but not by so much
    /// that the way up from it would take long.
    fn set_rate(&mut self, rate: f64) {
        let edge = self.service.min_pair().map_or(f64::INFINITY, |service| EDGE / service);
        let rate = UpdateRate::saturating(rate.min(edge).max(0.7 * self.min_rate()));
        self.in_transit = self.yielding_bounds().clamp(rate).per_second() * self.srtt;
    }

    /// Floor of the rate behind a deep queue, 1/s: Lazy's rate, or half of it if the queue is the
    /// source's own.
    fn min_rate(&self) -> f64 {
        let depth = self.service.least().map_or(1.0, |service| self.wait / (DEEP * service));
        let recently = Span::from_secs_f64(3.0 * pauses::period(self.srtt));
        let is_ours = self.heard_at.since(self.drained_at) < recently;
        let part = if is_ours { OURS } else { 1.0 };
        part * self.floors.left() * self.params.min_in_flight * depth.min(1.0) / self.srtt
    }

    /// The bounds, with the floor lowered by long round trips and by persistent losses.
    fn yielding_bounds(&self) -> RateBounds {
        let RateBounds { floor, ceiling } = self.params.bounds;
        let is_raised = floor > RateBounds::default().floor;
        let stretch = if is_raised { 1.0 } else { self.stretch.factor() };
        let one = 1.0 / self.srtt.max(f64::MIN_POSITIVE);
        let floor = (floor.per_second() / stretch).min(one).min(ceiling.per_second());
        RateBounds { floor: UpdateRate::saturating(floor), ceiling }
    }
}

impl RateLaw for Tenth {
    fn name(&self) -> &'static str {
        "tenth"
    }

    fn restart(&mut self, _now: Time) {
        *self = Self { stretch: self.stretch, ..Self::new(self.params) };
    }

    fn on_sent(&mut self, now: Time, seq: u64) {
        self.pacer.on_sent(now, self.pace());
        // A limit or a sampler may have delayed an update that was to leave at once.
        let follows = self.follows() && now.since(self.newest_sent.1) < self.rate().period() / 4;
        if self.losses.on_sent(now, seq, follows, self.sends_trains()) {
            self.resumes_at = now + self.rate().period() * u64::from(TRAIN);
        }
        self.newest_sent = (seq, now);
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
        self.heard_at = now;
        let rtt = now.since(ack.sent_at) - ack.hold;
        self.rtt = rtt;
        let QueueingDelay { ahead, back, least: [before, least] } =
            self.delays.on_ack(ack, rtt, self.service.byte_time());
        self.ahead = ahead;
        if let Some(round) = self.round.as_mut() {
            round.rebase(before - least);
        }
        if before > (1.0 + FELL) * least && self.startup.is_none() {
            // The base delay contained a queue, which drains.
            (self.stage, self.stride) = (Stage::Steering, STEP);
        }
        let pair_gap = self.service.on_ack(now, ack);
        if let Some(startup) = &mut self.startup {
            startup.on_ack(ack.seq, rtt);
            return self.measured(now);
        }
        let has_followed = self.losses.has_followed(ack.seq);
        if self.stage == Stage::Climbing && has_followed {
            self.pair_gap = pair_gap.map_or(self.pair_gap, |gap| gap.max(self.pair_gap));
        }
        self.srtt += SMOOTHING * (rtt.as_secs_f64() - self.srtt);
        self.sparse.on_ack(now, back, self.srtt);
        self.pauses.on_ack(ack);
        let since = self.losses.on_ack(now, ack, ROUND_TRIPS * self.in_transit);
        let lost = self.losses.excess(since);
        self.stretch.on_ack(now, Counted { lost, ..since });
        if !self.is_testing() {
            self.floors.on_ack(since, lost);
        }
        if has_followed {
            if since.lost > 0.0 {
                self.free.reset();
            }
            return; // It queued behind its predecessor.
        }
        if ahead <= DRAINED * self.wait && Pauses::is_after(ack.received_at, self.srtt) {
            self.drained_at = now;
        }
        self.variation.on_wait(ahead);
        let known = Known {
            service: self.service.least().unwrap_or(0.0),
            min_rtt: self.delays.min_rtt(),
            srtt: self.srtt,
            period: pauses::period(self.srtt),
        };
        let (waited, loses) = (Waited { ahead, both: ahead + back }, self.losses.part() > FREE);
        if let Some(longer) = self.jumps.on_ack(now, ack, waited, known, loses) {
            self.delays.raise(longer.ahead, longer.both);
            self.pair_gap = 0.0;
            self.climb_again();
            return self.begin_round(now);
        }
        // In a crowd acks queue for the air time that updates take; a little of that delay is
        // always present.
        let round_trip = self.delays.min_rtt().max(back).max(f64::MIN_POSITIVE);
        let wait = ahead + back * (back / round_trip);
        if !self.see_free(now, since, wait) {
            self.count(now, ack, since, wait);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if let Some(startup) = &mut self.startup {
            startup.handle_timeout(now);
            return self.measured(now);
        }
        if self.round.is_some_and(|round| round.ends_at <= now) {
            self.end_round(now);
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        let startup = self.startup.as_ref().and_then(Startup::poll_timeout);
        self.round.map(|round| round.ends_at).or(startup)
    }

    fn next_update_at(&self) -> Option<Time> {
        match &self.startup {
            Some(startup) => startup.wants_probe().then_some(Time::ZERO),
            None if self.follows() => Some(Time::ZERO),
            None => Some(self.leaves_at()),
        }
    }

    fn wants_ack(&self, now: Time) -> bool {
        self.losses.is_in_train()
            || (self.sends_trains() && self.losses.begins_train())
            || self.round_of_pair().is_some_and(|round| round.sent < 2)
            || self.is_outdated()
            || self.is_confirming()
            || self.is_draining()
            || self.sparse.wants_ack(now)
    }

    fn rate(&self) -> UpdateRate {
        let rate = if self.srtt > 0.0 { self.aim().max(self.min_rate()) } else { 0.0 };
        self.yielding_bounds().clamp(UpdateRate::saturating(rate))
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
