//! Repair: chooses the symbol that leaves in the next slot for a state that is longer than a
//! datagram.
//!
//! The rate law grants slots of length τ, one symbol each. A state of n symbols is complete at the
//! receiver when any n of its symbols have arrived, data or repair (a maximum distance separable
//! code). This law decides which symbol a slot is for, so that the mean age of states at the
//! receiver is low. It does not change the rate. `docs/large-states.md` has the derivations and
//! measurements.
//!
//! **Model.** Forward delay d, round trip R, loss probability p, q = 1 − p. Times below are in
//! slots. A state is sampled when its first symbol leaves (pull), or is put at its own times
//! (push). J is the number of losses before n symbols have arrived, P_k = P(J ≤ k).
//!
//! ```text
//! one attempt, n + k symbols:   age = d + n − 1 + E[J | J ≤ k] + G·(1/P_k − 1/2)         G = n + k
//! k, then retransmission:       age = d + n − 1 + E[J | J ≤ k] + G/2 + (1 − P_k)·(R + 3 + 2.5·s)
//!                               s = E[J − k | J > k], the shortage;   only if R + 3 + 2.5·s < n
//! ```
//!
//! **States of a transmission**
//!
//! ```text
//!   known losses
//!     ┌─────┐                                                       round has left
//!     ▼     │  all data have left         k symbols have left        ┌─────────┐
//!   sending ┴─────────────────────► tail ─────────────────────► former ──► round
//!                                                                  │  worth it
//!                                                                  ▼
//!                                          dropped when the next state becomes the former one
//! ```
//!
//! - *Sending*: known losses are sent again first, as each of them is needed; then unsent data.
//!   When all have left, [`Repair::repair_symbols`] gives k for the symbols whose fate is unknown:
//!   with R < n these are the last R, otherwise all n. It takes the k with the lower one of both
//!   ages above.
//! - *Former*: the next state is being sent. If fewer symbols are in flight than are needed, a
//!   round of s + k′ symbols would complete the former state, with the probability P of k′. It
//!   leaves ([`Repair::repair_round`]) if the mean age falls:
//!
//! ```text
//! m = s + k′,  r: symbols that the current state has yet to send
//! P·(g_F − g_L)·(r − m)  >  m·((g_C − g_F) + n/2 + m/2)
//! ```
//!
//!   g: generation times of the newest delivered state L, the former F and the current C. Left: the
//!   age is lower by g_F − g_L from the former's delivery to that of the current one. Right: m
//!   slots more at the peak age, minus the mean age; and the current state is older by m when it
//!   arrives.
//! - *A newer state was put* (push) while the current one is being sent:
//!   [`Repair::should_replace`].
//!
//! ```text
//! replace if  n·(g_N − g_C)  >  (n − r)·(A + r/2 − (g_N − g_C)/2)         A = now − g_L
//!        and  spent + n ≤ c·n
//! ```
//!
//!   Left: the newer state is fresher for the time that a state is the newest at the receiver.
//!   Right: the n − r slots that are lost if the current state is abandoned. `spent` are the slots
//!   since the last state was sent to its end, so that a state is sent to its end at least every
//!   c·n slots.
//! - *Pull*: the next state begins in the slot after the last repair symbol, without waiting
//!   (below).
//!
//! **Sources**
//! - Yates, Najm, Soljanin, Zhong, "Timely Updates over an Erasure Channel" (ISIT 2017): fixed
//!   redundancy compared with infinite incremental redundancy.
//! - Najm, Yates, Soljanin, "Status Updates through M/G/1/1 Queues with HARQ" (ISIT 2017):
//!   preemption over an erasure channel.
//! - Sun, Uysal-Biyikoglu, Yates, Koksal, Shroff, "Update or Wait: How to Keep Your Data Fresh"
//!   (IEEE Trans. IT, 2017): when an update should wait.
//! - Kam, Kompella, Nguyen, Wieselthier, Ephremides, "On the Age of Information with Packet
//!   Deadlines" (IEEE Trans. IT, 2018).
//! - Yates, Sun, Brown, Kaul, Modiano, Ulukus, "Age of Information: An Introduction and Survey"
//!   (IEEE JSAC, 2021).
//! - Reordering threshold 3: RFC 9002, section 6.1.1.
//!
//! **Where the papers are silent**
//! - *Feedback after R.* Yates et al. have either no feedback (fixed redundancy) or feedback at
//!   once (incremental). In between, incremental redundancy stops for a round trip, in which the
//!   next state is sent; the second age above is that.
//! - *Bursts.* Losses are not taken as independent: J has a beta negative binomial distribution
//!   whose dispersion is measured per length of window (`losses`).
//! - *Waiting.* Sun et al.'s threshold is `β = E[Y²]/(2·E[Y])` for service times Y, and no update
//!   waits if Y ≥ β. With Y = n + J that holds for independent losses up to p = 1/3 whatever n is;
//!   so this law never waits.
//! - *Unequal sizes*: n of the cost of a slot is that of the current state.

mod losses;
mod shortfall;

use self::losses::{Losses, Prior};
use self::shortfall::Shortfall;
use crate::unit::{Span, UpdateRate};

/// The maximum number of symbols of one state, including repair symbols.
pub const MAX_SYMBOLS: u32 = 65_536;

/// A loss is known when three later symbols are acknowledged: RFC 9002, section 6.1.1.
const THRESHOLD: f64 = 3.0;

/// A slot of repair while the next state is sent costs as much as this number of slots of lateness:
/// the one that it takes, and the gap of states and half of the cycle per gap of states.
const LATE_SLOT: f64 = 2.5;

/// Settings of [`Repair`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Params {
    /// The expected loss before symbols have been seen, above 0 and below 1. 0.01: a wireless path.
    pub prior_loss: f64,
    /// The expected loss counts as this number of symbols. 20: after `memory` symbols without a
    /// loss the estimate is 1 in 20,000, too few for a repair symbol on states of fewer than 100
    /// symbols.
    pub prior_weight: f64,
    /// Outcomes over which losses are averaged, symbols, at least 16. 4096: the standard deviation
    /// of a loss of 5 % is then below a tenth of it, with bursts of 2.
    pub memory: f64,
    /// The maximum number of repair symbols per data symbol. 1: a bound on work and load; more was
    /// not measured.
    pub max_redundancy: f64,
    /// c: a state is sent to its end at least every c·n slots, although newer ones are put. 2.
    pub max_gap: f64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            prior_loss: 0.01,
            prior_weight: 20.0,
            memory: 4_096.0,
            max_redundancy: 1.0,
            max_gap: 2.0,
        }
    }
}

/// The state before the current one, incomplete at the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormerState {
    /// Symbols that the receiver still needs: n minus the acknowledged ones.
    pub needed: u32,
    /// Symbols with an unknown outcome.
    pub in_flight: u32,
    /// Its generation time minus that of the newest delivered state; [`Span::MAX`] without one.
    pub gain: Span,
}

/// The state in transmission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CurrentState {
    /// Its data symbols, n.
    pub symbols: u32,
    /// Data symbols that have yet to leave, including known losses.
    pub remaining: u32,
    /// Its generation time minus that of the former one.
    pub gain: Span,
    /// The age, at the source, of the newest delivered state; [`Span::MAX`] without one.
    pub delivered_age: Span,
    /// Slots since the last state was sent to its end, or since the first one began.
    pub spent: u32,
}

/// A state that was put while another is in transmission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewerState {
    /// Its data symbols.
    pub symbols: u32,
    /// Its generation time minus that of the current one.
    pub gain: Span,
}

/// Decides which symbol leaves.
#[derive(Debug, Clone)]
pub struct Repair {
    params: Params,
    losses: Losses,
    /// s.
    round_trip: f64,
    slot: f64,
}

/// The number of repair symbols with the lowest mean age.
#[derive(Debug, Clone, Copy)]
struct Plan {
    repair: f64,
    /// The state is complete without a further round.
    success: f64,
    /// Mean age without the forward delay, slots.
    age: f64,
}

impl Repair {
    /// A law without outcomes, with a round trip of zero.
    pub fn new(params: Params) -> Self {
        let Params { prior_loss, prior_weight, memory, .. } = params;
        let prior = Prior {
            loss: prior_loss.clamp(1e-6, 0.9),
            weight: prior_weight.max(1.0),
            memory: memory.max(16.0),
        };
        Self { params, losses: Losses::new(prior), round_trip: 0.0, slot: 0.0 }
    }

    // ---- inputs ----

    /// The next symbol, in the order of sending, was acknowledged.
    pub fn on_arrived(&mut self) {
        self.losses.on_outcome(false);
    }

    /// The next symbol, in the order of sending, was lost.
    pub fn on_lost(&mut self) {
        self.losses.on_outcome(true);
    }

    /// The smoothed round trip.
    pub fn on_round_trip(&mut self, round_trip: Span) {
        self.round_trip = round_trip.as_secs_f64();
    }

    /// The length of a slot τ: the period of the rate law.
    pub fn on_slot(&mut self, slot: Span) {
        self.slot = slot.as_secs_f64();
    }

    // ---- getters ----

    /// k: repair symbols that leave after all data of a state of `symbols` symbols, of which
    /// `needed` are not acknowledged. With independent losses it is largest for `needed` =
    /// `symbols`; a caller whose code has fewer repair symbols takes all of them.
    pub fn repair_symbols(&self, symbols: u32, needed: u32) -> u32 {
        self.plan(symbols, needed).repair as u32
    }

    /// The number of symbols that leave at once to complete the former state; 0: the current one
    /// goes on. The caller sends all of them before it asks again.
    pub fn repair_round(&self, former: &FormerState, current: &CurrentState) -> u32 {
        let shortage = former.needed.saturating_sub(former.in_flight);
        if shortage == 0 || shortage >= current.remaining {
            return 0;
        }
        let plan = self.plan(current.symbols, former.needed);
        let round = f64::from(shortage) + plan.repair;
        let half = f64::from(current.symbols) / 2.0;
        let cost = round * (self.slots(current.gain) + half + round / 2.0);
        let time = f64::from(current.remaining) - round;
        let is_worth = plan.success * self.slots(former.gain) * time > cost;
        if is_worth { round as u32 } else { 0 }
    }

    /// Whether the newer state begins at once, and the current one is abandoned.
    pub fn should_replace(&self, current: &CurrentState, newer: &NewerState) -> bool {
        let (n, r) = (f64::from(newer.symbols), f64::from(current.remaining));
        let longer = n.max(f64::from(current.symbols));
        if f64::from(current.spent) + n > self.params.max_gap * longer {
            return false;
        }
        let (gain, age) = (self.slots(newer.gain), self.slots(current.delivered_age));
        n * gain > (n - r) * (age + r / 2.0 - gain / 2.0)
    }

    /// The mean age of states of `symbols` symbols beyond the forward delay, in slots: 1.5·n − 1
    /// without losses. A change of the slot by Δτ changes the mean age by this number of Δτ.
    pub fn age_slots(&self, symbols: u32) -> f64 {
        self.plan(symbols, self.unknown(symbols)).age
    }

    /// The rate of symbols above which no rate lowers the mean age of states of `symbols` symbols
    /// by `gain` or more; `None` if `gain` is zero.
    pub fn max_rate(&self, symbols: u32, gain: Span) -> Option<UpdateRate> {
        let period = gain.mul_f64(1.0 / self.age_slots(symbols));
        (!gain.is_zero()).then(|| UpdateRate::from_period(period))
    }

    /// The estimate of p.
    pub fn loss(&self) -> f64 {
        self.losses.probability()
    }

    /// The estimate of D: the variance of the number of losses of `window` symbols in a row,
    /// relative to that of independent losses.
    pub fn dispersion(&self, window: u32) -> f64 {
        self.losses.dispersion(f64::from(window))
    }

    // ---- steps ----

    /// A length of time in slots.
    fn slots(&self, span: Span) -> f64 {
        if self.slot > 0.0 { span.as_secs_f64() / self.slot } else { 0.0 }
    }

    fn round_trip_slots(&self) -> f64 {
        if self.slot > 0.0 { self.round_trip / self.slot } else { 0.0 }
    }

    /// Symbols with an unknown outcome when all data have left.
    fn unknown(&self, symbols: u32) -> u32 {
        (libm::ceil(self.round_trip_slots()).max(1.0) as u32).min(symbols)
    }

    /// The best k for a state of `symbols` symbols of which `needed` are in flight and must arrive.
    fn plan(&self, symbols: u32, needed: u32) -> Plan {
        let symbols = symbols.clamp(1, MAX_SYMBOLS);
        let needed = needed.clamp(1, symbols);
        let (n, tail) = (f64::from(symbols), f64::from(needed));
        let p = self.losses.probability();
        let odds = p / (1.0 - p);
        let rho = self.losses.correlation(tail);
        let room = f64::from(MAX_SYMBOLS - symbols);
        let max = libm::floor(n * self.params.max_redundancy).clamp(0.0, room);
        let cycle = Cycle {
            length: n + (n - tail) * odds,
            detection: self.round_trip_slots() + THRESHOLD,
            symbols: n,
            tail,
            mean: mean_losses(tail, p, rho),
        };
        let mut best = Plan { repair: 0.0, success: 0.0, age: f64::INFINITY };
        let (mut success, mut losses) = (0.0, 0.0);
        for block in Shortfall::new(tail, p, rho) {
            let k = block.last.min(max);
            let mass =
                block.mass * ((k + 1.0 - block.first) / (block.last + 1.0 - block.first)).max(0.0);
            success = f64::min(success + mass, 1.0);
            losses += mass * block.middle.min(k);
            let age = cycle.age(k, success, losses);
            if age < best.age {
                best = Plan { repair: k, success, age };
            }
            // No larger k is better if its symbols alone cost more.
            if k >= max || cycle.length * 1.5 - 1.0 + k / 2.0 > best.age {
                break;
            }
        }
        best
    }
}

/// The inputs of the header's ages, except k.
struct Cycle {
    /// Slots until all data have left.
    length: f64,
    /// Slots from a loss until it is known.
    detection: f64,
    symbols: f64,
    tail: f64,
    /// E[J].
    mean: f64,
}

impl Cycle {
    /// The lower one of both ages, without d. `losses` is Σ j·P(J = j) up to k.
    fn age(&self, k: f64, success: f64, losses: f64) -> f64 {
        if success <= 0.0 {
            return f64::INFINITY;
        }
        let failure = 1.0 - success;
        let delivery = self.length - 1.0 + losses / success;
        let cycle = self.length + k;
        let once = delivery + cycle * (1.0 / success - 0.5);
        let shortage = (self.mean - losses - k * failure) / failure.max(1e-12);
        let late = self.detection + LATE_SLOT * shortage.clamp(1.0, self.tail);
        if late < self.symbols { once.min(delivery + cycle / 2.0 + failure * late) } else { once }
    }
}

/// E[J] of the beta negative binomial distribution; infinite if it has no mean.
fn mean_losses(n: f64, p: f64, rho: f64) -> f64 {
    let c = 1.0 / rho - 1.0;
    let b = (1.0 - p) * c;
    if b > 1.0 { n * p * c / (b - 1.0) } else { f64::INFINITY }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SLOT: Span = Span::from_millis(1);

    /// A law that has seen `lossless` − 1 arrivals per loss, with a round trip in slots.
    fn law(lossless: u32, round_trip: u64) -> Repair {
        let mut law = Repair::new(Params::default());
        law.on_slot(SLOT);
        law.on_round_trip(SLOT * round_trip);
        let mut random = 1u32;
        for _ in 0..20_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if (random >> 8).is_multiple_of(lossless) { law.on_lost() } else { law.on_arrived() }
        }
        law
    }

    fn without_losses(round_trip: u64) -> Repair {
        let mut law = Repair::new(Params::default());
        law.on_slot(SLOT);
        law.on_round_trip(SLOT * round_trip);
        (0..20_000).for_each(|_| law.on_arrived());
        law
    }

    /// The mean age of one attempt with k repair symbols, from the exact sum of independent losses.
    fn exact_age(n: u32, k: u32, p: f64) -> f64 {
        let (mut mass, mut success, mut losses) = (libm::pow(1.0 - p, f64::from(n)), 0.0, 0.0);
        for j in 0..=k {
            success += mass;
            losses += f64::from(j) * mass;
            mass *= p * f64::from(n + j) / f64::from(j + 1);
        }
        f64::from(n) - 1.0 + losses / success + f64::from(n + k) * (1.0 / success - 0.5)
    }

    #[test]
    fn without_losses_nothing_is_repaired_and_the_age_is_one_and_a_half_states() {
        for round_trip in [0, 10, 10_000] {
            let law = without_losses(round_trip);
            for n in [1, 2, 87, 1_000] {
                let k = law.repair_symbols(n, n);
                assert!(k <= n / 200, "{n}: {k}");
                let expected = 1.5 * f64::from(n) - 1.0;
                assert!((law.age_slots(n) / expected - 1.0).abs() < 0.01, "{n}");
            }
        }
    }

    #[test]
    fn without_feedback_the_number_of_repair_symbols_is_the_best_one() {
        for lossless in [5, 20, 100] {
            let law = law(lossless, 1_000_000);
            for n in [1, 3, 10, 87, 400] {
                let k = law.repair_symbols(n, n);
                let age = exact_age(n, k, law.loss());
                let best =
                    (0..=n).map(|k| exact_age(n, k, law.loss())).fold(f64::INFINITY, f64::min);
                assert!(age < 1.02 * best, "{n} of 1/{lossless}: k {k}, {age} over {best}");
            }
        }
    }

    #[test]
    fn with_fast_feedback_few_repair_symbols_are_enough() {
        let [slow, fast] = [100_000, 10].map(|round_trip| law(20, round_trip));
        assert!(slow.repair_symbols(1_000, 1_000) > 55);
        assert!(fast.repair_symbols(1_000, 10) < 6);
        assert!(fast.age_slots(1_000) < slow.age_slots(1_000));
    }

    #[test]
    fn bursts_change_the_number_of_repair_symbols() {
        let mut bursts = Repair::new(Params::default());
        bursts.on_slot(SLOT);
        bursts.on_round_trip(SLOT * 100_000);
        for symbol in 0..20_000 {
            if symbol % 400 < 20 { bursts.on_lost() } else { bursts.on_arrived() }
        }
        let single = law(20, 100_000);
        assert!((bursts.loss() / single.loss() - 1.0).abs() < 0.25);
        // A state of 20 symbols mostly falls between bursts, one of 1000 has varying losses.
        assert!(bursts.repair_symbols(20, 20) < single.repair_symbols(20, 20));
        assert!(bursts.dispersion(20) > 10.0 && single.dispersion(20) < 1.5);
    }

    #[test]
    fn the_former_state_is_repaired_while_much_of_the_current_one_remains() {
        let law = law(20, 20);
        let former = FormerState { needed: 3, in_flight: 0, gain: SLOT * 100 };
        let current = |remaining| CurrentState {
            symbols: 100,
            remaining,
            gain: SLOT * 100,
            delivered_age: SLOT * 250,
            spent: 100 - remaining,
        };
        let round = law.repair_round(&former, &current(90));
        assert!((4..8).contains(&round), "3 and some for their losses: {round}");
        assert_eq!(law.repair_round(&former, &current(10)), 0);
        // The symbols in flight may be enough.
        assert_eq!(law.repair_round(&FormerState { in_flight: 3, ..former }, &current(90)), 0);
        // It would hardly be newer than the receiver's state.
        assert_eq!(law.repair_round(&FormerState { gain: SLOT * 5, ..former }, &current(90)), 0);
        // Nothing is delivered yet.
        assert!(law.repair_round(&FormerState { gain: Span::MAX, ..former }, &current(20)) > 0);
    }

    #[test]
    fn a_newer_state_replaces_the_current_one_at_its_beginning_only() {
        let law = without_losses(20);
        let current = |sent: u32| CurrentState {
            symbols: 100,
            remaining: 100 - sent,
            gain: SLOT * 100,
            delivered_age: SLOT * (100 + u64::from(sent)),
            spent: sent,
        };
        let newer = NewerState { symbols: 100, gain: SLOT * 50 };
        assert!(law.should_replace(&current(10), &newer));
        assert!(!law.should_replace(&current(60), &newer));
        // Too much was spent on states that were abandoned.
        assert!(!law.should_replace(&CurrentState { spent: 101, ..current(10) }, &newer));
    }

    #[test]
    fn the_rate_that_is_worth_it_grows_with_the_state() {
        let law = without_losses(20);
        let rate = |n| law.max_rate(n, Span::from_micros(500)).expect("a gain").per_second();
        // 1/(2w) for one symbol, as min_age_gain has it; then (1.5·n − 1)/w.
        assert!((rate(1) / 1_000.0 - 1.0).abs() < 0.01, "{}", rate(1));
        assert!((rate(100) / 298_000.0 - 1.0).abs() < 0.01, "{}", rate(100));
        assert_eq!(law.max_rate(10, Span::ZERO), None);
    }

    proptest! {
        #[test]
        fn no_input_brings_a_panic_or_more_symbols_than_a_code_has(
            slot: u64, round_trip: u64, symbols: u32, needed: u32, in_flight: u32, remaining: u32,
            gains: [u64; 4], spent: u32, outcomes in prop::collection::vec(any::<bool>(), 0..600),
        ) {
            let mut law = Repair::new(Params::default());
            law.on_slot(Span::from_nanos(slot));
            law.on_round_trip(Span::from_nanos(round_trip));
            for is_lost in outcomes {
                if is_lost { law.on_lost() } else { law.on_arrived() }
            }
            let k = law.repair_symbols(symbols, needed);
            let n = symbols.clamp(1, MAX_SYMBOLS);
            prop_assert!(n + k <= MAX_SYMBOLS && k <= n);
            let [first, second, third, fourth] = gains.map(Span::from_nanos);
            let former = FormerState { needed, in_flight, gain: first };
            let current = CurrentState {
                symbols, remaining, gain: second, delivered_age: third, spent,
            };
            let shortage = needed.saturating_sub(in_flight);
            let round = law.repair_round(&former, &current);
            prop_assert!(round == 0 || (shortage..remaining).contains(&round));
            law.should_replace(&current, &NewerState { symbols, gain: fourth });
            prop_assert!(law.age_slots(symbols) >= 0.0);
        }

        #[test]
        fn the_symbols_of_the_end_need_no_more_repair_than_the_whole_state(
            lossless in 3u32..200, round_trip in 0u64..3_000, n in 1u32..2_000, part in 0.0f64..1.0,
        ) {
            let mut law = law(lossless, round_trip);
            law.on_round_trip(SLOT * round_trip);
            let needed = (part * f64::from(n)) as u32;
            prop_assert!(law.repair_symbols(n, needed) <= law.repair_symbols(n, n));
        }
    }
}
