//! The events of a monitor, queued until its driver polls them.

use alloc::boxed::Box;

use super::deadlines::Alarm;
use crate::session::change::RemovedTopic;
use crate::session::fifo::Fifo;
use crate::session::record::{Record, SourceKey};
use crate::wire::CloseReason;

/// The maximum number of queued events; beyond it, the oldest is dropped, unless it is
/// [`MonitorEvent::Gone`].
const MOST: usize = 1 << 16;

/// The maximum number of unpolled ends of sessions, in addition to the number of records. A driver
/// may hand in a batch of datagrams before it polls.
const MAX_UNPOLLED: usize = 64;

/// An event at a monitor. Records are in their present state: a driver that polls late finds them
/// newer, or gone.
#[derive(Debug)]
pub enum MonitorEvent<P> {
    /// The newest state of a source has arrived, or is complete, and is in its record.
    Fresh {
        /// Whose.
        source: SourceKey,
        /// Whether this update opened the session.
        opened: bool,
        /// Whether it is a repeat of the held state: to carry its age, or to keep the session
        /// alive.
        is_repeat: bool,
        /// Whether it is such a repeat and the first one that carries the state's age: the state
        /// arrived with an opening.
        brings_age: bool,
    },
    /// The newest state of a source has arrived, or is complete, but is withheld: it is, or may be,
    /// older than [`MonitorParams::max_age`](super::MonitorParams::max_age) allows.
    Withheld {
        /// Whose.
        source: SourceKey,
    },
    /// A topic with a maximum age has become stale, or fresh again.
    Freshness(Box<Alarm>),
    /// A session was opened by an update without a state, as its source's states take several
    /// updates; or by an update whose state is withheld.
    Opened {
        /// Whose.
        source: SourceKey,
    },
    /// The newest state of a topic other than the first, or of a key, has arrived, or is complete.
    /// The event follows the one of its update.
    Topic {
        /// Whose.
        source: SourceKey,
        /// Which of its topics or keys: [`Record::topic`].
        topic: u16,
    },
    /// The age of the held state of such a topic or key is known now; it was unknown on arrival.
    TopicAged {
        /// Whose.
        source: SourceKey,
        /// Which of its topics or keys: [`Record::topic`].
        topic: u16,
    },
    /// A key that had a state was removed from the record.
    Removed {
        /// Whose.
        source: SourceKey,
        /// Which key of which topic.
        topic: Box<RemovedTopic>,
    },
    /// One or more records of a topic are complete and in order: call
    /// [`Monitor::take_record`](super::Monitor::take_record) until it returns `None`. The event
    /// follows the one of their update. It is repeated if there are still records when one is done,
    /// and when their age becomes known, for a driver that could not take them before.
    Record {
        /// Whose.
        source: SourceKey,
        /// Which of its topics: [`Record::topic`] has its name.
        topic: u16,
    },
    /// An update newer than all before that does not complete a state of the first topic.
    Part {
        /// Whose.
        source: SourceKey,
    },
    /// An update that arrived after a fresher one, or a copy.
    Stale {
        /// Whose.
        source: SourceKey,
    },
    /// An opening without a valid cookie was answered by a challenge.
    Challenged,
    /// An update was refused, and its source was informed.
    Refused {
        /// Why.
        reason: CloseReason,
        /// Whether it was refused because the address holds its maximum number of sources.
        at_peer_limit: bool,
    },
    /// A session has ended; the key is free again.
    Gone {
        /// Whose.
        source: SourceKey,
        /// Its last record.
        record: Box<Record<P>>,
        /// Why.
        why: End,
    },
}

/// Why a session has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Its source has closed it.
    Closed,
    /// Its place went to a newcomer, whose opening is the next event.
    Displaced,
    /// No update has arrived for too long.
    Idle,
    /// The rules no longer permit it.
    Revoked,
}

/// A queue from which no [`MonitorEvent::Gone`] is dropped. It is still bounded, as the monitor
/// does not open sessions while there are too many of these ([`Events::has_too_many_ends`]).
#[derive(Debug)]
pub(super) struct Events<P> {
    /// Events saved from being dropped from `queue`: all are [`MonitorEvent::Gone`], and older.
    saved: Fifo<MonitorEvent<P>>,
    queue: Fifo<MonitorEvent<P>>,
    /// How many [`MonitorEvent::Gone`] are in both.
    gone: usize,
}

impl<P> Events<P> {
    pub(super) fn new() -> Self {
        Self { saved: Fifo::new(), queue: Fifo::new(), gone: 0 }
    }

    #[inline]
    pub(super) fn push(&mut self, event: MonitorEvent<P>) {
        self.gone += usize::from(is_gone(&event));
        if let Some(oldest) = self.queue.push_within(MOST, event).filter(is_gone) {
            self.saved.push(oldest);
        }
    }

    /// Whether the number of unpolled ends of sessions is at the maximum, so that no session may be
    /// opened.
    pub(super) fn has_too_many_ends(&self, max_sources: usize) -> bool {
        self.gone >= max_sources.saturating_add(MAX_UNPOLLED)
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<MonitorEvent<P>> {
        let event = self.saved.pop().or_else(|| self.queue.pop())?;
        self.gone -= usize::from(is_gone(&event));
        Some(event)
    }
}

fn is_gone<P>(event: &MonitorEvent<P>) -> bool {
    matches!(event, MonitorEvent::Gone { .. })
}
