//! RTTm, the round trip without a queue of one's own; and whether a queue is one's own.
//!
//! ```text
//!            the window has halved, and for `patience` rounds the queue stood:
//!            RTTm ← the least round trip of these rounds
//!  ┌───────┐ ──────────────────────────────────────────► ┌────────┐  each `drain_every` ┌──────────┐
//!  │ alone │                                             │ shared │ ──────────────────► │ draining │
//!  └───────┘ ◄────────────────────────────────────────── └────────┘ ◄────────────────── └──────────┘
//!            a round trip below 3/4 of RTTm              after `drain_rounds` round trips
//! ```
//!
//! As the least sample ever seen, RTTm is wrong where the path became longer, and useless where
//! others fill the queue: to empty it then only means to starve. Both are known by the same sign:
//! our window becomes small, and the round trip does not.

use crate::unit::{Span, Time};

/// How RTTm is learnt anew.
#[derive(Debug, Clone, Copy)]
pub(super) struct BaseRules {
    pub(super) patience: u32,
    pub(super) drain_every: Span,
    pub(super) drain_rounds: u32,
}

/// What a round showed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outcome {
    /// R̂TT.
    pub(super) rtt: Span,
    /// ŵ in bytes.
    pub(super) flight: u64,
    /// Whether the window is as small as it gets, and a queue stands nevertheless.
    pub(super) is_least: bool,
    /// Whether the queue is much longer than wanted.
    pub(super) is_long: bool,
}

/// Keeps RTTm.
#[derive(Debug, Clone, Copy)]
pub(super) struct Base {
    rules: BaseRules,
    /// RTTm; `None` before the first sample.
    least: Option<Span>,
    state: State,
    /// The queue stands since then.
    stands: Option<Standing>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Alone,
    Shared { drain_at: Time },
    Draining { until: Time },
}

#[derive(Debug, Clone, Copy)]
struct Standing {
    /// ŵ at first.
    flight: u64,
    /// For how many rounds it has stood though the window was small.
    rounds: u32,
    /// The least sample of these.
    least: Span,
}

impl Base {
    pub(super) fn new(rules: BaseRules) -> Self {
        Self { rules, least: None, state: State::Alone, stands: None }
    }

    pub(super) fn get(&self) -> Option<Span> {
        self.least
    }

    /// Somebody else knows the path to be as short as `known`.
    pub(super) fn learn(&mut self, known: Span) {
        self.least = Some(self.least.map_or(known, |least| least.min(known)));
    }

    /// Whether `sample` shows that the queue was our own.
    pub(super) fn on_sample(&mut self, sample: Span) -> bool {
        let ours = !matches!(self.state, State::Alone)
            && self.least.is_some_and(|least| sample < least / 4 * 3);
        if ours {
            self.state = State::Alone;
            self.stands = None;
        }
        if let Some(stands) = &mut self.stands {
            stands.least = stands.least.min(sample);
        }
        self.learn(sample);
        ours
    }

    /// Whether the window is to be as small as it gets, to see what remains of the queue.
    pub(super) fn is_draining(&mut self, now: Time) -> bool {
        if let State::Draining { until } = self.state
            && now >= until
        {
            self.state = State::Shared { drain_at: now + self.rules.drain_every };
        }
        matches!(self.state, State::Draining { .. })
    }

    /// A round is over.
    pub(super) fn on_round(&mut self, now: Time, outcome: &Outcome) {
        if let State::Shared { drain_at } = self.state
            && now >= drain_at
        {
            let length = outcome.rtt * u64::from(self.rules.drain_rounds);
            self.state = State::Draining { until: now + length };
        }
        if !outcome.is_long && !outcome.is_least {
            self.stands = None;
            return;
        }
        let Outcome { rtt, flight, .. } = *outcome;
        let stands = self.stands.get_or_insert(Standing { flight, rounds: 0, least: rtt });
        if !outcome.is_least && flight > stands.flight / 2 {
            stands.rounds = 0;
            stands.least = rtt;
            return;
        }
        stands.rounds += 1;
        if stands.rounds > self.rules.patience {
            self.least = Some(stands.least);
            self.stands = None;
            self.state = State::Shared { drain_at: now + self.rules.drain_every };
        }
    }
}
