//! Observations of a world from outside: the only input of checkers and of the trace.

use std::fmt;

use freshline_core::session::{SessionLabel, SourceEvent, StateAge};
use freshline_core::unit::{Span, Time, UpdateRate};
use freshline_core::wire::SessionId;

use super::plan::What;
use super::source_host::Given;

/// One event that has just happened.
#[derive(Debug, Clone)]
pub(super) enum Observation {
    /// An incident of the plan.
    Happened(What),
    /// A source sent update `seq`.
    Sent {
        source: usize,
        session: SessionId,
        seq: u64,
        /// The rate of its law.
        rate: UpdateRate,
    },
    /// A state of a session is the newest one at the monitor.
    Fresh {
        session: SessionId,
        /// The newest update.
        seq: u64,
        /// When the state was sampled, by its source's label.
        label: Time,
        /// Whether the monitor created a record for it.
        opened: bool,
        /// Whether the monitor held it already.
        is_repeat: bool,
        /// The bytes that the monitor delivered as the new state.
        given: Vec<u8>,
        /// The bytes that it holds as the state from now on.
        held: Vec<u8>,
    },
    /// The same for a state that the monitor does not deliver because it may be too old.
    Withheld { session: SessionId, seq: u64, label: Time, opened: bool },
    /// The monitor delivers a state for the first time.
    HandedOut {
        /// Its source: the name, and the label of the session.
        name: String,
        by: SessionLabel,
        session: SessionId,
        label: Time,
        /// Its age, if the monitor knows it.
        age: Option<StateAge>,
    },
    /// A source has become stale, or has recovered.
    Alarm { name: String, by: SessionLabel, is_stale: bool, age: Option<StateAge> },
    /// The monitor accepted an update as the freshest of its session, but it does not complete a
    /// state.
    Part {
        session: SessionId,
        seq: u64,
        /// Whether the monitor created a record for it.
        opened: bool,
    },
    /// The monitor classified an update as old.
    Stale {
        session: SessionId,
        seq: u64,
        /// The complete state in it, with its label.
        state: Option<(Time, Vec<u8>)>,
    },
    /// The monitor or a source answered; lengths in bytes.
    Answered { question: usize, answer: usize },
    /// The application at the monitor has received a record of a source.
    Record { name: String, record: Vec<u8> },
    /// A state of a key is the newest one at the monitor.
    Key {
        session: SessionId,
        key: Vec<u8>,
        /// When it was put, by its source's label.
        label: Time,
        state: Vec<u8>,
    },
    /// A key is removed at the monitor.
    KeyRemoved { session: SessionId, key: Vec<u8> },
    /// An urgent state is the newest one at the monitor.
    Urgent { session: SessionId, state: Vec<u8> },
    /// A source was given a command.
    Commanded { source: usize, given: Given },
    /// The source with this session has answered a command.
    CommandAnswered {
        session: SessionId,
        /// The age at the source, as known to the monitor.
        age: Option<Span>,
        /// The rate of its law.
        rate: UpdateRate,
    },
    /// A source received a command that it was not given because it may be too old.
    CommandWithheld { source: usize },
    /// A source learned something.
    Learned {
        source: usize,
        session: SessionId,
        event: SourceEvent,
        /// The age at the monitor, as known to the source.
        age: Option<Span>,
    },
}

impl Observation {
    /// The session for which the monitor has created a record, if it has.
    pub(super) fn opened_session(&self) -> Option<SessionId> {
        match self {
            Self::Fresh { session, opened: true, .. }
            | Self::Withheld { session, opened: true, .. }
            | Self::Part { session, opened: true, .. } => Some(*session),
            _ => None,
        }
    }

    /// Whether it reports to a source that an update was fresh at the monitor.
    pub(super) fn is_ack(&self) -> bool {
        let Self::Learned { event, .. } = self else { return false };
        matches!(event, SourceEvent::Opened | SourceEvent::Acked { .. })
    }
}

impl fmt::Display for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Happened(what) => write!(f, "{what}"),
            Self::Sent { source, session, seq, rate } => {
                write!(f, "source {source}, {session:?}: sends {seq} at {rate}")
            }
            Self::Fresh { session, seq, opened, .. } => {
                let opens = if *opened { ", opens the session" } else { "" };
                write!(f, "monitor: {seq} of {session:?} is fresh{opens}")
            }
            Self::Withheld { session, seq, opened, .. } => {
                let opens = if *opened { ", opens the session" } else { "" };
                write!(f, "monitor: the state in {seq} of {session:?} is withheld{opens}")
            }
            Self::HandedOut { session, age, .. } => {
                write!(f, "monitor: a state of {session:?} is handed out, {age:?}")
            }
            Self::Alarm { name, by, is_stale, age } => {
                let now = if *is_stale { "stale" } else { "fresh again" };
                write!(f, "monitor: {name:?} ({by}) is {now}, {age:?}")
            }
            Self::Part { session, seq, opened } => {
                let opens = if *opened { ", opens the session" } else { "" };
                write!(f, "monitor: {seq} of {session:?} completes no state{opens}")
            }
            Self::Stale { session, seq, state } => {
                let len = state.as_ref().map_or(0, |(_, state)| state.len());
                write!(f, "monitor: {seq} of {session:?} is stale, with a state of {len} bytes")
            }
            Self::Answered { question, answer } => {
                write!(f, "{question} bytes are answered by {answer}")
            }
            Self::Record { name, record } => {
                let text = String::from_utf8_lossy(&record[..record.len().min(40)]);
                write!(f, "monitor: has a record of {name:?}: {text:?}")
            }
            Self::Key { session, key, state, .. } => {
                let (key, len) = (String::from_utf8_lossy(key), state.len());
                write!(f, "monitor: key {key:?} of {session:?} has a state of {len} bytes")
            }
            Self::KeyRemoved { session, key } => {
                let key = String::from_utf8_lossy(key);
                write!(f, "monitor: key {key:?} of {session:?} is removed")
            }
            Self::Urgent { session, state } => {
                let state = String::from_utf8_lossy(state);
                write!(f, "monitor: {session:?} has the urgent state {state:?}")
            }
            Self::Commanded { source, given } => {
                write!(f, "source {source}: is given {:?}", String::from_utf8_lossy(&given.state))
            }
            Self::CommandAnswered { session, age, .. } => {
                write!(f, "monitor: the source of {session:?} answers a command, {age:?}")
            }
            Self::CommandWithheld { source } => {
                write!(f, "source {source}: a command is withheld")
            }
            Self::Learned { source, session, event, age } => {
                write!(f, "source {source}, {session:?}: {event:?}")?;
                age.map_or(Ok(()), |age| write!(f, ", age {age}"))
            }
        }
    }
}
