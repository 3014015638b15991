//! What can be seen of a world from outside: the checkers' and the trace's only news.

use std::fmt;

use freshline_core::session::SourceEvent;
use freshline_core::unit::{Span, UpdateRate};
use freshline_core::wire::SessionId;

use super::plan::What;

/// One thing that has just happened.
#[derive(Debug, Clone)]
pub(super) enum Observation {
    /// From the plan.
    Happened(What),
    /// A source sent update `seq`.
    Sent {
        source: usize,
        session: SessionId,
        seq: u64,
        /// Its law's.
        rate: UpdateRate,
    },
    /// The monitor took an update for the freshest of its session.
    Fresh {
        session: SessionId,
        seq: u64,
        /// Whether it made a record of it.
        opened: bool,
        /// What the monitor gave out as the new state.
        given: Vec<u8>,
        /// What it holds as the state from now on.
        held: Vec<u8>,
    },
    /// The monitor took an update for an old one.
    Stale { session: SessionId, seq: u64 },
    /// The monitor answered; lengths in bytes.
    Answered { question: usize, answer: usize },
    /// A source learned something.
    Learned {
        source: usize,
        session: SessionId,
        event: SourceEvent,
        /// The age at the monitor, as far as the source knows.
        age: Option<Span>,
    },
}

impl Observation {
    /// Whether a source learned that an update was fresh at the monitor.
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
            Self::Stale { session, seq } => {
                write!(f, "monitor: {seq} of {session:?} is stale")
            }
            Self::Answered { question, answer } => {
                write!(f, "monitor: answers {question} bytes by {answer}")
            }
            Self::Learned { source, session, event, age } => {
                write!(f, "source {source}, {session:?}: {event:?}")?;
                age.map_or(Ok(()), |age| write!(f, ", age {age}"))
            }
        }
    }
}
