//! Measures RTTm, the round trip without this flow's own queue, and finds out which flow causes a
//! queue.
//!
//! ```text
//!           the queue stands for `patience` rounds              it stays
//!  ┌───────┐ ───────────────────────────────────► ┌─────────┐ ──────────────────► ┌────────┐
//!  │ alone │                                      │ halving │                     │ shared │
//!  └───────┘ ◄─────────────────────────────────── └─────────┘ ◄────────────────── └────────┘
//!      ▲             the round trip falls              │          from time to time   ▲
//!      │                                    it falls,  ▼                              │
//!      │                              but was shared ┌──────────┐                     │
//!      └──────────────────────────────────────────── │ draining │ ────────────────────┘
//!         it falls: RTTm ← minimum of the drain      └──────────┘  it stays
//! ```
//!
//! A smaller window shortens only this flow's own queue. So if the law does not bring the queue
//! down, half a window for some round trips shows which flow causes it.
//!
//! - **alone**: the law controls the window. It ends when the queue stands for `patience` rounds.
//! - **halving**: half of the window. If the round trip falls, the queue was this flow's own. If it
//!   stays, a competing flow causes it, and a smaller window would only lose throughput.
//! - **shared**: the law does not limit the window. It ends with another test, at long intervals.
//! - **draining**: the minimum window, after a test in a shared queue that made the round trip
//!   fall. It confirms the result, and measures RTTm again, in case the path has become longer.
//!
//! A window too small to be halved is raised instead, to see whether the queue grows with it (not
//! drawn).
//!
//! A test leaves capacity to competing flows, which CUBIC wins back only in seconds. So a flow's
//! first queue is tested at once if it is longer than jitter, and a shared one at most once in 60
//! round trips.
//!
//! If Δ is learnt, short increases of the window measure the path's delay without a queue: see
//! `variation.rs`.

use alloc::rc::Rc;
use core::cell::RefCell;

use super::variation::{Growth, Variation};
use crate::unit::{Bytes, Span, Time};

/// The measurements and the test that all flows from one remote host share. Otherwise a flow that
/// begins behind a competing queue would take it for the path, and half a window of one flow in
/// four would show nothing. Clones share one state.
#[derive(Debug, Clone, Default)]
pub struct Remote(Rc<RefCell<Knowledge>>);

#[derive(Debug, Default)]
struct Knowledge {
    /// RTTm.
    base: Option<Span>,
    variation: Variation,
    state: State,
    /// The number of flows so far.
    flows: u32,
}

/// Which flow causes the queue of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueOwner {
    /// There is no queue.
    None,
    /// The flow itself.
    Own,
    /// Competing flows: the queue does not follow the flow's window.
    Competing,
    /// A test is running.
    Testing,
    /// Not tested: K is set by hand.
    Unknown,
}

impl QueueOwner {
    /// All variants.
    pub const ALL: [Self; 5] =
        [Self::None, Self::Own, Self::Competing, Self::Testing, Self::Unknown];

    /// Its name in tables, JSON and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Own => "own",
            Self::Competing => "competing",
            Self::Testing => "testing",
            Self::Unknown => "unknown",
        }
    }
}

impl Remote {
    /// Which flow causes the queue, if there is one.
    pub(super) fn queue_owner(&self) -> QueueOwner {
        match self.0.borrow().state {
            State::Alone => QueueOwner::Own,
            State::Shared { .. } => QueueOwner::Competing,
            State::Halving(_) | State::Raising(_) | State::Draining(..) | State::Growing(..) => {
                QueueOwner::Testing
            }
        }
    }

    /// RTTm without Δ; `None` before the first sample.
    pub fn base(&self) -> Option<Span> {
        self.0.borrow().base
    }

    /// Δ by measurements; zero before the first, and if it is not learnt.
    pub fn delta(&self) -> Span {
        let knowledge = self.0.borrow();
        knowledge.variation.delta(knowledge.base.unwrap_or(Span::ZERO))
    }

    /// Takes in a round trip: RTTm is at most `known`.
    pub fn learn(&self, known: Span) {
        let mut knowledge = self.0.borrow_mut();
        knowledge.base = Some(knowledge.base.map_or(known, |base| base.min(known)));
    }

    fn join(&self) -> u32 {
        let mut knowledge = self.0.borrow_mut();
        knowledge.flows += 1;
        knowledge.flows
    }
}

/// When to test which flow causes the queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) patience: u32,
    pub(super) test_every: Span,
    /// Whether Δ is learnt.
    pub(super) learns: bool,
}

/// The window to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// By the law.
    Law,
    /// By the law; the path is slower than before.
    LawRestarted,
    /// Half of the data in flight.
    Half,
    /// The minimum window.
    Least,
    /// A multiple of the minimum window.
    More,
    /// As much as the sender wants.
    Free,
    /// Larger than the data in flight, to measure Δ.
    Grow,
    /// The window before that measurement.
    Back,
}

/// The minimum number of round trips between tests of a shared queue; [`Rules::test_every`] is a
/// minimum time as well, as this number of very short round trips passes quickly. A test halves the
/// window for about four round trips, until the effect shows and [`Test::ROUNDS`] more: at 60 it
/// costs 3 %. In a deep queue the interval is longer than CUBIC's cycle, so that the capacity which
/// a test leaves to competing flows is won back before the next.
const PAUSE: u64 = 60;

/// A flow's first queue is tested at once if the round trip exceeds RTTm by this: it is longer than
/// jitter, which half a window cannot shorten (the thesis has 18 ms on LTE). If RTTm is less than
/// this, the limit is twice RTTm.
const JITTER: Span = Span::from_millis(20);

/// A flow whose window cannot be halved waits for this multiple of `patience` before it tests with
/// a larger one: if that causes a queue, it should be rare.
const STUCK: u32 = 4;

/// A flow's part in the tests. The flow that begins a test also ends it; the others of the host
/// follow.
#[derive(Debug, Clone)]
pub(super) struct Ownership {
    rules: Rules,
    remote: Remote,
    /// This flow's number at its host.
    flow: u32,
    /// The number of rounds with a standing queue.
    standing_rounds: u32,
    /// The allowed number of rounds with a long queue: zero, the first time.
    patience: u32,
    /// The number of rounds with a standing queue and a window too small to be halved.
    stuck: u32,
    /// Rounds with a queue, less those without.
    queued: u32,
}

#[derive(Debug, Clone, Copy, Default)]
enum State {
    #[default]
    Alone,
    /// Windows are halved.
    Halving(Test),
    /// The leader's window is larger, as it is too small to be halved.
    Raising(Test),
    /// A competing flow's queue, since this time.
    Shared { since: Time },
    /// Windows are at the minimum; the round trips since.
    Draining(Test, Drained),
    /// Windows are larger, to measure Δ.
    Growing(Test, Growth),
}

/// Two samples in a row count, not a single lucky one.
#[derive(Debug, Clone, Copy, Default)]
struct Drained {
    last: Option<Span>,
    /// The minimum mean of two.
    least: Option<Span>,
}

impl Drained {
    fn on_sample(&mut self, sample: Span) {
        let mean = self.last.replace(sample).map(|last| (last + sample) / 2);
        self.least = self.least.into_iter().chain(mean).min();
    }
}

#[derive(Debug, Clone, Copy)]
struct Test {
    /// The flow that counts its rounds.
    leader: u32,
    since: Time,
    rounds: u32,
    /// R̂TT before it takes effect.
    before: Span,
    /// Whether the queue was taken for a competing flow's.
    was_shared: bool,
}

impl Test {
    /// Rounds after the one in which no more arrives than the window allows.
    const ROUNDS: u32 = 2;

    /// Whether its leader has gone.
    fn is_stale(&self, now: Time) -> bool {
        now.since(self.since) > self.before * 8 * u64::from(Self::ROUNDS)
    }

    /// The test after a round; rounds before the window has its effect do not count.
    fn next(self, view: &View) -> Self {
        if view.is_settled {
            Self { rounds: self.rounds + 1, ..self }
        } else {
            Self { before: self.before.max(view.rtt), ..self }
        }
    }

    /// The test after a round of a flow other than the leader: it shows nothing until all have
    /// settled.
    fn followed(self, view: &View) -> Self {
        if view.is_settled { self } else { Self { rounds: self.rounds.min(1), ..self } }
    }

    fn is_over(&self) -> bool {
        self.rounds >= Self::ROUNDS
    }
}

/// The measurements of a flow at the end of a round.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    /// R̂TT.
    pub(super) rtt: Span,
    /// Whether the queue is longer than the law's target.
    pub(super) is_standing: bool,
    /// Whether half of the window is above the minimum.
    pub(super) may_halve: bool,
    /// Whether all data that an earlier, larger window allowed has arrived.
    pub(super) is_settled: bool,
    /// ŵ.
    pub(super) flight: Bytes,
    /// Whether the round trip is nearer to the target than to RTTm.
    pub(super) has_queue: bool,
}

impl Ownership {
    pub(super) fn new(rules: Rules, remote: Remote) -> Self {
        let flow = remote.join();
        Self { rules, flow, remote, standing_rounds: 0, patience: 0, stuck: 0, queued: 0 }
    }

    /// Whether a test makes windows smaller.
    pub(super) fn is_testing(&self) -> bool {
        matches!(self.remote.0.borrow().state, State::Halving(_) | State::Draining(..))
    }

    pub(super) fn on_sample(&self, sample: Span) {
        if let State::Draining(_, drained) = &mut self.remote.0.borrow_mut().state {
            drained.on_sample(sample);
        }
    }

    /// A round is over.
    pub(super) fn on_round(&mut self, now: Time, view: View) -> Verdict {
        let standing_rounds =
            if view.is_standing && view.may_halve { self.standing_rounds + 1 } else { 0 };
        let stuck = if view.is_standing && !view.may_halve { self.stuck + 1 } else { 0 };
        (self.standing_rounds, self.stuck) = (standing_rounds, stuck);
        self.queued = if view.has_queue { self.queued + 1 } else { self.queued.saturating_sub(1) };
        let remote = self.remote.clone();
        let knowledge = &mut *remote.0.borrow_mut();
        let (state, verdict) = match knowledge.state {
            State::Alone => self.alone(now, &view, knowledge),
            State::Shared { since } if now < since + self.pause(&view) => {
                (knowledge.state, Verdict::Free)
            }
            State::Shared { .. } => (State::Halving(self.begin(now, &view, true)), Verdict::Half),
            State::Halving(test)
            | State::Raising(test)
            | State::Draining(test, _)
            | State::Growing(test, _)
                if test.is_stale(now) =>
            {
                (State::Alone, Verdict::LawRestarted)
            }
            State::Halving(test) => self.halving(test, now, &view, knowledge),
            State::Growing(test, growth) => self.growing(test, growth, &view, knowledge),
            State::Raising(test) => self.raising(test, now, &view),
            State::Draining(test, drained) => self.draining(test, drained, now, &view, knowledge),
        };
        if !matches!(state, State::Alone) {
            (self.standing_rounds, self.stuck) = (0, 0);
            self.patience = self.rules.patience;
        }
        knowledge.state = state;
        verdict
    }

    /// A test led by this flow.
    fn begin(&self, now: Time, view: &View, was_shared: bool) -> Test {
        Test { leader: self.flow, since: now, rounds: 0, before: view.rtt, was_shared }
    }

    /// The minimum time between tests.
    fn pause(&self, view: &View) -> Span {
        self.rules.test_every.max(view.rtt * PAUSE)
    }

    /// The state without a known competing flow.
    fn alone(&mut self, now: Time, view: &View, knowledge: &mut Knowledge) -> (State, Verdict) {
        let base = knowledge.base.unwrap_or(Span::ZERO);
        let is_long = view.rtt >= base + base.min(JITTER);
        let patience = if is_long { self.patience } else { self.rules.patience };
        let has_stayed = self.queued > STUCK * self.rules.patience;
        let variation = knowledge.variation;
        let is_due = self.rules.learns && variation.is_due(now, self.pause(view));
        let test = self.begin(now, view, false);
        if is_due && has_stayed && variation.may_grow(base, view.rtt) {
            knowledge.variation.begin(now);
            self.queued = 0;
            return (State::Growing(test, Growth::from(view.flight)), Verdict::Grow);
        }
        // Measures Δ again, so that it can fall.
        if is_due && !variation.delta(base).is_zero() && view.may_halve {
            knowledge.variation.begin(now);
            return (State::Halving(test), Verdict::Half);
        }
        if self.standing_rounds > patience {
            return (State::Halving(test), Verdict::Half);
        }
        if self.stuck > STUCK * self.rules.patience {
            return (State::Raising(test), Verdict::More);
        }
        (State::Alone, Verdict::Law)
    }

    /// The state of halved windows.
    fn halving(
        &self,
        test: Test,
        now: Time,
        view: &View,
        knowledge: &mut Knowledge,
    ) -> (State, Verdict) {
        // A flow that cannot take part would keep the queue from draining.
        if test.rounds == 0 && !view.may_halve {
            return (State::Alone, Verdict::Law);
        }
        if test.leader != self.flow {
            return (State::Halving(test.followed(view)), Verdict::Half);
        }
        if !test.next(view).is_over() {
            return (State::Halving(test.next(view)), Verdict::Half);
        }
        let base = knowledge.base.unwrap_or(Span::ZERO);
        let variation = knowledge.variation;
        if has_halved(base + variation.delta(base), test.before, view.rtt) {
            knowledge.variation.lower(base, view.rtt);
            return if test.was_shared {
                let test = self.begin(now, view, true);
                (State::Draining(test, Drained::default()), Verdict::Least)
            } else {
                (State::Alone, Verdict::LawRestarted)
            };
        }
        if !test.was_shared && variation.explains(base, view.rtt) {
            knowledge.variation.lower(base, view.rtt);
            return (State::Alone, Verdict::LawRestarted);
        }
        (State::Shared { since: now }, Verdict::Free)
    }

    /// The state of larger windows, to measure Δ.
    fn growing(
        &self,
        test: Test,
        growth: Growth,
        view: &View,
        knowledge: &mut Knowledge,
    ) -> (State, Verdict) {
        if test.leader != self.flow {
            return (knowledge.state, Verdict::Grow);
        }
        if growth.is_free(test.before, view.flight, view.rtt) {
            knowledge.variation.learn(knowledge.base.unwrap_or(Span::ZERO), test.before);
            return (State::Alone, Verdict::Law);
        }
        if Growth::is_queue(test.before, view.rtt) || test.rounds >= Growth::ROUNDS {
            knowledge.variation.agree();
            return (State::Alone, Verdict::Back);
        }
        let next = Test { rounds: test.rounds + 1, ..test };
        (State::Growing(next, growth), Verdict::Grow)
    }

    /// The state of a larger window, where half of it is below the minimum.
    fn raising(&self, test: Test, now: Time, view: &View) -> (State, Verdict) {
        if test.leader != self.flow {
            return (State::Raising(test), Verdict::Law);
        }
        if test.rounds <= Test::ROUNDS {
            let next = Test { rounds: test.rounds + 1, ..test };
            return (State::Raising(next), Verdict::More);
        }
        if view.rtt > test.before.mul_f64(1.5) {
            return (State::Alone, Verdict::LawRestarted);
        }
        (State::Shared { since: now }, Verdict::Free)
    }

    /// The state of minimum windows.
    fn draining(
        &self,
        test: Test,
        drained: Drained,
        now: Time,
        view: &View,
        knowledge: &mut Knowledge,
    ) -> (State, Verdict) {
        if test.leader != self.flow {
            return (knowledge.state, Verdict::Least);
        }
        if !test.next(view).is_over() {
            return (State::Draining(test.next(view), drained), Verdict::Least);
        }
        if let Some(least) = drained.least.filter(|least| has_drained(test.before, *least)) {
            knowledge.base = Some(least);
            return (State::Alone, Verdict::LawRestarted);
        }
        (State::Shared { since: now }, Verdict::Free)
    }
}

/// Whether R̂TT is nearer to the value that half a window gives for an own queue than to its former
/// value.
fn has_halved(base: Span, before: Span, after: Span) -> bool {
    let own = base.max(before / 2);
    after < own.mul_f64(0.6) + before.mul_f64(0.4)
}

/// Whether the queue has drained more than one of which half belonged to competing flows.
fn has_drained(before: Span, least: Span) -> bool {
    least < before.mul_f64(0.35)
}
