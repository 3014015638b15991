//! Faults of endpoints, planted on purpose: each breaks one property, so that its checker is seen
//! to fail. For tests only; not part of an ordinary build.

use freshline_core::link::Direction;
use freshline_core::unit::{Time, UpdateRate};
use freshline_core::wire::{Frame, Message};

use super::observation::Observation;
use super::plan::MonitorPlan;
use super::sabotage::Sabotage;
use super::source_host::MAX_WHOLE;

/// A fault of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// The monitor takes an older update for fresh.
    OlderTakenForFresh,
    /// A source believes the monitor fresher than it is.
    AgeFlattered,
    /// The monitor damages what it holds.
    StateDamaged,
    /// The monitor puts a symbol of another state into a large one.
    SymbolsMixed,
    /// The monitor keeps the records of silent sources.
    RecordsKept,
    /// The monitor's answers have a byte too many.
    AnswerTooLong,
    /// A law goes beyond its ceiling.
    RateRunsAway,
    /// A timer is due again at once, for ever.
    TimerSpins,
    /// A source never takes up a challenge.
    NeverReopens,
    /// The monitor misses most updates.
    UpdatesMissed,
    /// The monitor hands out states of four times their maximum age.
    TooOldHandedOut,
    /// The monitor does not report that a topic has become stale.
    AlarmsLost,
    /// No update of a return session reaches its source.
    CommandsLost,
    /// A source misses most updates of a return session.
    CommandsMissed,
    /// The monitor believes commands fresher than they are.
    CommandsFlattered,
    /// A source is given half of a command.
    CommandsHalved,
    /// The monitor does not write down how far its application is with records.
    JournalLost,
    /// No update with records reaches the monitor.
    RecordsLost,
}

impl Planted {
    /// All faults with the property that each breaks.
    pub const ALL: [(Self, &'static str); 18] = [
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
    ];
}

/// The length of a symbol, bytes.
const SYMBOL: usize = 1_000;

/// One update with a whole state of so many passes [`Planted::UpdatesMissed`].
const PASSES: u64 = 10;

impl Sabotage for Planted {
    fn intercepts(&mut self, direction: Direction, datagram: &[u8]) -> bool {
        match (self, direction, Message::parse(datagram)) {
            (Self::NeverReopens, Direction::Reverse, Ok(Message::Challenge(_))) => true,
            (Self::CommandsLost, Direction::Reverse, Ok(Message::Update(_))) => true,
            (Self::RecordsLost, Direction::Forward, Ok(Message::Update(update))) => {
                update.opening.is_none()
                    && update.frames.iter().any(|frame| matches!(frame, Frame::Record(_)))
            }
            (Self::UpdatesMissed, Direction::Forward, Ok(Message::Update(update)))
            | (Self::CommandsMissed, Direction::Reverse, Ok(Message::Update(update))) => {
                let is_whole = update.opening.is_none() && !update.is_of_parts();
                is_whole && update.seq % PASSES != 0
            }
            _ => false,
        }
    }

    fn monitor(&self, plan: MonitorPlan) -> MonitorPlan {
        match self {
            Self::JournalLost => MonitorPlan { journal: false, ..plan },
            Self::RecordsKept => MonitorPlan { idle: plan.idle * 10, ..plan },
            Self::TooOldHandedOut => {
                MonitorPlan { max_age: plan.max_age.map(|limit| limit * 4), ..plan }
            }
            _ => plan,
        }
    }

    fn next_step_at(&self, now: Time, next: Time) -> Time {
        if *self == Self::TimerSpins { now } else { next }
    }

    fn rewrite(&mut self, seen: &mut Observation) {
        match (self, &mut *seen) {
            (Self::OlderTakenForFresh, Observation::Stale { session, seq, state: Some(state) }) => {
                let (session, seq, (label, given)) = (*session, *seq, state.clone());
                let (held, opened, is_repeat) = (given.clone(), false, false);
                let fresh =
                    Observation::Fresh { session, seq, label, opened, is_repeat, given, held };
                *seen = fresh;
            }
            (Self::AgeFlattered, Observation::Learned { age: Some(age), .. })
            | (Self::CommandsFlattered, Observation::CommandAnswered { age: Some(age), .. }) => {
                *age = *age / 4;
            }
            (Self::StateDamaged, Observation::Fresh { held, .. }) => held.push(0),
            (Self::SymbolsMixed, Observation::Fresh { given, held, .. })
                if held.len() > MAX_WHOLE =>
            {
                held[..SYMBOL].fill(b'x');
                given.clone_from(held);
            }
            (Self::AnswerTooLong, Observation::Answered { question, answer }) => {
                *answer = *question + 1;
            }
            (Self::AlarmsLost, Observation::Alarm { is_stale, .. }) => *is_stale = false,
            (Self::CommandsHalved, Observation::Commanded { given, .. }) => {
                given.state.truncate(given.state.len() / 2);
            }
            (Self::RateRunsAway, Observation::Sent { rate, .. }) => {
                *rate = UpdateRate::saturating(rate.per_second() * 1e6);
            }
            _ => {}
        }
    }
}
