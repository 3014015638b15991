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

/// What all flows from one remote host know together. A flow that begins while others have a queue
/// would take that for the path, and half a window of one flow in four shows nothing. Clones are
/// the same one.
#[derive(Debug, Clone, Default)]
pub struct Remote(Rc<RefCell<Knowledge>>);

#[derive(Debug, Default)]
struct Knowledge {
    /// RTTm.
    base: Option<Span>,
    variation: Variation,
    state: State,
    /// How many flows there have been.
    flows: u32,
}

/// Which flow keeps the queue of a path.
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
    /// All of them.
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
    /// Which flow keeps the queue, if there is one.
    pub(super) fn queue_owner(&self) -> QueueOwner {
        match self.0.borrow().state {
            State::Alone => QueueOwner::Own,
            State::Shared { .. } => QueueOwner::Competing,
            State::Halving(_) | State::Raising(_) | State::Draining(..) | State::Growing(..) => {
                QueueOwner::Testing
            }
        }
    }

    /// RTTm, once there was a sample, without compensation.
    pub fn base(&self) -> Option<Span> {
        self.0.borrow().base
    }

    /// Δ as it is known from measurements; zero before the first, and where it is not learnt.
    pub fn delta(&self) -> Span {
        let knowledge = self.0.borrow();
        knowledge.variation.delta(knowledge.base.unwrap_or(Span::ZERO))
    }

    /// The path is known to be as short as `known`.
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

/// When to ask whose the queue is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) patience: u32,
    pub(super) test_every: Span,
    /// Whether Δ is learnt.
    pub(super) learns: bool,
}

/// What the window is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// As the law says.
    Law,
    /// As the law says, and the path is slower than it was.
    LawRestarted,
    /// Half of what is in flight.
    Half,
    /// As small as it gets.
    Least,
    /// A few times as large as it is at least.
    More,
    /// As much as the sender wants.
    Free,
    /// Larger than what is in flight, to measure Δ.
    Grow,
    /// The window before that measurement.
    Back,
}

/// How many round trips there are at least between tests of a shared queue; [`Rules::test_every`] is
/// a least time beside it, for paths so short that these pass in no time. A test is half a window for
/// some four, until it shows and [`Test::ROUNDS`] more: at 60 it costs 3 %. In a deep queue that is rarer than CUBIC's cycle, so that the
/// room which a test leaves to others is won back before the next.
const PAUSE: u64 = 60;

/// What is longer by this is not for jitter, which cannot be halved: the thesis has 18 ms on LTE.
/// On a path shorter than this, twice its length.
const JITTER: Span = Span::from_millis(20);

/// How many times `patience` a flow waits with a window that cannot be halved, before it asks
/// with a larger one: where that makes a queue of its own, it shall be rare.
const STUCK: u32 = 4;

/// A flow's part in finding out whose the queue is. The flow that begins a test also ends it; the
/// others of the host follow.
#[derive(Debug, Clone)]
pub(super) struct Ownership {
    rules: Rules,
    remote: Remote,
    /// This flow's number at its host.
    flow: u32,
    /// For how many rounds the queue has stood.
    standing_rounds: u32,
    /// For how many a long one may: none, the first time.
    patience: u32,
    /// For how many it has though the window is too small to be halved.
    stuck: u32,
    /// Rounds with a queue, less those without.
    queued: u32,
}

#[derive(Debug, Clone, Copy, Default)]
enum State {
    #[default]
    Alone,
    /// Half windows.
    Halving(Test),
    /// One window too small to be halved is larger.
    Raising(Test),
    /// Since when.
    Shared { since: Time },
    /// Least windows, and the round trips since.
    Draining(Test, Drained),
    /// Larger windows, to measure Δ.
    Growing(Test, Growth),
}

/// Two samples in a row count: a single lucky one is no path.
#[derive(Debug, Clone, Copy, Default)]
struct Drained {
    last: Option<Span>,
    /// The least mean of two.
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
    /// Whether the queue was thought to be others'.
    was_shared: bool,
}

impl Test {
    /// Once no more arrives in a round than the window allows, one more shows the queue.
    const ROUNDS: u32 = 2;

    /// Whether its leader has gone.
    fn is_stale(&self, now: Time) -> bool {
        now.since(self.since) > self.before * 8 * u64::from(Self::ROUNDS)
    }

    /// One round later; those before the window has its effect do not count.
    fn next(self, view: &View) -> Self {
        if view.is_settled {
            Self { rounds: self.rounds + 1, ..self }
        } else {
            Self { before: self.before.max(view.rtt), ..self }
        }
    }

    /// One round later of another flow than the leader: nothing shows until all are settled.
    fn followed(self, view: &View) -> Self {
        if view.is_settled { self } else { Self { rounds: self.rounds.min(1), ..self } }
    }

    fn is_over(&self) -> bool {
        self.rounds >= Self::ROUNDS
    }
}

/// What a flow sees at the end of a round.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    /// R̂TT.
    pub(super) rtt: Span,
    /// Whether the queue is longer than the law wants it.
    pub(super) is_standing: bool,
    /// Whether half of the window is a window.
    pub(super) may_halve: bool,
    /// Whether all that an earlier, larger window allowed has arrived.
    pub(super) is_settled: bool,
    /// ŵ.
    pub(super) flight: Bytes,
    /// Whether the round trip is nearer to the wanted one than to that of the empty path.
    pub(super) has_queue: bool,
}

impl Ownership {
    pub(super) fn new(rules: Rules, remote: Remote) -> Self {
        let flow = remote.join();
        Self { rules, flow, remote, standing_rounds: 0, patience: 0, stuck: 0, queued: 0 }
    }

    /// Whether windows are smaller than they would be, for a test.
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

    /// A test that this flow leads.
    fn begin(&self, now: Time, view: &View, was_shared: bool) -> Test {
        Test { leader: self.flow, since: now, rounds: 0, before: view.rtt, was_shared }
    }

    /// The least time between tests.
    fn pause(&self, view: &View) -> Span {
        self.rules.test_every.max(view.rtt * PAUSE)
    }

    /// No competing flow is known.
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
        // Δ is measured again, so that it can fall.
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

    /// Half windows.
    fn halving(
        &self,
        test: Test,
        now: Time,
        view: &View,
        knowledge: &mut Knowledge,
    ) -> (State, Verdict) {
        // A flow that cannot take part would keep the queue from leaving.
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

    /// Larger windows, to measure Δ.
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

    /// A larger window where half of it is none.
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

    /// Least windows.
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

/// Whether R̂TT is nearer to what half a window leaves of an own queue than to what it was.
fn has_halved(base: Span, before: Span, after: Span) -> bool {
    let own = base.max(before / 2);
    after < own.mul_f64(0.6) + before.mul_f64(0.4)
}

/// Whether less is left than of a queue of which half was others'.
fn has_drained(before: Span, least: Span) -> bool {
    least < before.mul_f64(0.35)
}
