//! Faults planted into endpoints: each violates one property, to test that its checker fails. For
//! tests only; not part of an ordinary build.

use std::collections::HashMap;

use freshline_core::link::Direction;
use freshline_core::unit::{Time, UpdateRate};
use freshline_core::wire::{Frame, Message, SessionId, Update};

use super::keys::KEYS;
use super::observation::Observation;
use super::plan::{MonitorPlan, SourcePlan};
use super::sabotage::Sabotage;
use super::source_host::MAX_WHOLE;

/// A fault of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// The monitor accepts an older update as fresh.
    OlderTakenForFresh,
    /// A source believes that the monitor is fresher than it is.
    AgeFlattered,
    /// The monitor damages the states that it holds.
    StateDamaged,
    /// The monitor puts a symbol of another state into a large one.
    SymbolsMixed,
    /// The monitor keeps the records of silent sources.
    RecordsKept,
    /// The monitor's answers are one byte too long.
    AnswerTooLong,
    /// A law exceeds its ceiling.
    RateRunsAway,
    /// A timer is always due again at once.
    TimerSpins,
    /// A source never answers a challenge.
    NeverReopens,
    /// The monitor misses most updates.
    UpdatesMissed,
    /// The monitor delivers states up to four times their maximum age.
    TooOldHandedOut,
    /// The monitor does not report that a topic has become stale.
    AlarmsLost,
    /// No update of a return session reaches its source.
    CommandsLost,
    /// A source misses most updates of a return session.
    CommandsMissed,
    /// The monitor believes that commands are fresher than they are.
    CommandsFlattered,
    /// A source is given half of a command.
    CommandsHalved,
    /// The monitor does not journal its application's position in records.
    JournalLost,
    /// The monitor skips chunks of records.
    RecordsLost,
    /// The monitor skips states of keys.
    KeysLost,
    /// The monitor skips removals of keys.
    RemovalsLost,
    /// The monitor confuses the states of two keys.
    KeysMixed,
    /// The monitor goes back to the first state of a key.
    KeysGoBack,
    /// The monitor skips urgent states.
    UrgentLost,
    /// A source does not send urgent states at once.
    UrgentDelayed,
    /// The monitor holds half of an urgent state.
    UrgentHalved,
}

impl Planted {
    /// All faults, with the property that each violates.
    pub const ALL: [(Self, &'static str); 25] = [
        (Self::OlderTakenForFresh, "freshest never goes back"),
        (Self::AgeFlattered, "age is never negative"),
        (Self::StateDamaged, "states arrive whole"),
        (Self::SymbolsMixed, "states arrive whole"),
        (Self::RecordsKept, "memory is bounded"),
        (Self::AnswerTooLong, "no answer is longer than its question"),
        (Self::RateRunsAway, "rates stay within their bounds"),
        (Self::TimerSpins, "time goes on"),
        (Self::NeverReopens, "service resumes"),
        (Self::UpdatesMissed, "age returns to normal"),
        (Self::TooOldHandedOut, "no state is older than its maximum age"),
        (Self::AlarmsLost, "no state is older than its maximum age"),
        (Self::CommandsLost, "service resumes"),
        (Self::CommandsMissed, "age returns to normal"),
        (Self::CommandsFlattered, "age is never negative"),
        (Self::CommandsHalved, "commands arrive whole, in order and in time"),
        (Self::JournalLost, "records arrive once and in order"),
        (Self::RecordsLost, "records arrive once and in order"),
        (Self::KeysLost, "keys have their newest states"),
        (Self::RemovalsLost, "keys have their newest states"),
        (Self::KeysMixed, "keys have their newest states"),
        (Self::KeysGoBack, "keys have their newest states"),
        (Self::UrgentLost, "urgent states arrive whole, in order and at once"),
        (Self::UrgentDelayed, "urgent states arrive whole, in order and at once"),
        (Self::UrgentHalved, "urgent states arrive whole, in order and at once"),
    ];
}

/// The length of a symbol, bytes.
const SYMBOL: usize = 1_000;

/// Kinds of frames: a state, a removal, a chunk of a record, and a kind unknown to every monitor.
const KINDS: [u8; 3] = [1, 5, 6];
const UNKNOWN: u8 = 99;

/// One in this number of updates with a complete state passes [`Planted::UpdatesMissed`].
const PASSES: u64 = 10;

/// Plants a fault.
pub(super) struct Saboteur {
    fault: Planted,
    /// The first state of each key.
    first: HashMap<(SessionId, Vec<u8>), Observation>,
}

impl Saboteur {
    pub(super) fn new(fault: Planted) -> Self {
        Self { fault, first: HashMap::new() }
    }

    /// Whether an update does not reach its endpoint.
    fn intercepts_update(&self, direction: Direction, update: &Update<'_>) -> bool {
        let is_missed = || {
            let is_whole = update.opening.is_none() && !update.is_of_parts();
            is_whole && !update.seq.is_multiple_of(PASSES)
        };
        match (self.fault, direction) {
            (Planted::CommandsLost, Direction::Reverse) => true,
            (Planted::UpdatesMissed, Direction::Forward)
            | (Planted::CommandsMissed, Direction::Reverse) => is_missed(),
            _ => false,
        }
    }

    /// Whether the monitor skips a frame.
    fn skips(&self, frame: Frame<'_>) -> bool {
        match self.fault {
            Planted::RecordsLost => matches!(frame, Frame::Record(_)),
            Planted::KeysLost => is_state(frame, b"key "),
            Planted::RemovalsLost => matches!(frame, Frame::Removed(_)),
            Planted::UrgentLost => is_state(frame, b"stop "),
            _ => false,
        }
    }

    /// The numbers of frames of an update that the monitor skips and that it reads; `None` if this
    /// is not an update.
    fn frames(&self, datagram: &[u8]) -> Option<(usize, usize)> {
        let Ok(Message::Update(update)) = Message::parse(datagram) else { return None };
        let skipped = update.frames.iter().filter(|frame| self.skips(*frame)).count();
        Some((skipped, update.frames.iter().count() - skipped))
    }
}

/// Whether a frame has a complete state with this beginning.
fn is_state(frame: Frame<'_>, beginning: &[u8]) -> bool {
    matches!(frame, Frame::State { bytes, .. } if bytes.starts_with(beginning))
}

impl Sabotage for Saboteur {
    fn intercepts(&mut self, direction: Direction, datagram: &[u8]) -> bool {
        match Message::parse(datagram) {
            Ok(Message::Challenge(_)) => {
                self.fault == Planted::NeverReopens && direction == Direction::Reverse
            }
            Ok(Message::Update(update)) => self.intercepts_update(direction, &update),
            _ => false,
        }
    }

    fn misread(&self, datagram: &[u8]) -> Option<Vec<u8>> {
        let (mut skipped, others) = self.frames(datagram).filter(|(skipped, _)| *skipped > 0)?;
        let mut misread = datagram.to_vec();
        for at in (0..datagram.len()).filter(|at| KINDS.contains(&datagram[*at])) {
            misread[at] = UNKNOWN;
            if self.frames(&misread) == Some((skipped - 1, others)) {
                skipped -= 1;
                if skipped == 0 {
                    break;
                }
            } else {
                misread[at] = datagram[at];
            }
        }
        Some(misread)
    }

    fn source(&self, plan: SourcePlan) -> SourcePlan {
        let hurries = plan.hurries && self.fault != Planted::UrgentDelayed;
        SourcePlan { hurries, ..plan }
    }

    fn monitor(&self, plan: MonitorPlan) -> MonitorPlan {
        match self.fault {
            Planted::JournalLost => MonitorPlan { journal: false, ..plan },
            Planted::RecordsKept => MonitorPlan { idle: plan.idle * 10, ..plan },
            Planted::TooOldHandedOut => {
                MonitorPlan { max_age: plan.max_age.map(|limit| limit * 4), ..plan }
            }
            _ => plan,
        }
    }

    fn next_step_at(&self, now: Time, next: Time) -> Time {
        if self.fault == Planted::TimerSpins { now } else { next }
    }

    fn rewrite(&mut self, seen: &mut Observation) {
        match (self.fault, &mut *seen) {
            (
                Planted::OlderTakenForFresh,
                Observation::Stale { session, seq, state: Some(state) },
            ) => {
                let (session, seq, (label, given)) = (*session, *seq, state.clone());
                let (held, opened, is_repeat) = (given.clone(), false, false);
                let fresh =
                    Observation::Fresh { session, seq, label, opened, is_repeat, given, held };
                *seen = fresh;
            }
            (Planted::AgeFlattered, Observation::Learned { age: Some(age), .. })
            | (Planted::CommandsFlattered, Observation::CommandAnswered { age: Some(age), .. }) => {
                *age = *age / 4;
            }
            (Planted::StateDamaged, Observation::Fresh { held, .. }) => held.push(0),
            (Planted::SymbolsMixed, Observation::Fresh { given, held, .. })
                if held.len() > MAX_WHOLE =>
            {
                held[..SYMBOL].fill(b'x');
                given.clone_from(held);
            }
            (Planted::AnswerTooLong, Observation::Answered { question, answer }) => {
                *answer = *question + 1;
            }
            (Planted::AlarmsLost, Observation::Alarm { is_stale, .. }) => *is_stale = false,
            (Planted::CommandsHalved, Observation::Commanded { given, .. }) => {
                given.state.truncate(given.state.len() / 2);
            }
            (Planted::KeysMixed, Observation::Key { key, .. }) => {
                *key = KEYS[usize::from(key.as_slice() == KEYS[0])].to_vec();
            }
            (Planted::KeysGoBack, Observation::Key { session, key, .. }) => {
                let (key, observation) = ((*session, key.clone()), seen.clone());
                *seen = self.first.entry(key).or_insert(observation).clone();
            }
            (Planted::UrgentHalved, Observation::Urgent { state, .. }) => {
                state.truncate(state.len() / 2);
            }
            (Planted::RateRunsAway, Observation::Sent { rate, .. }) => {
                *rate = UpdateRate::saturating(rate.per_second() * 1e6);
            }
            _ => {}
        }
    }
}
