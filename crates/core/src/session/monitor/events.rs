//! What a monitor has to report, until its driver polls it.

use alloc::boxed::Box;

use super::deadlines::Alarm;
use crate::session::change::RemovedTopic;
use crate::session::fifo::Fifo;
use crate::session::record::{Record, SourceKey};
use crate::wire::CloseReason;

/// Events that are kept for a driver that does not poll; then the oldest is dropped, if it is not
/// [`MonitorEvent::Gone`].
const MOST: usize = 1 << 16;

/// Ended sessions beyond the number of records of which a driver may not know yet. It may hand in a batch
/// of datagrams before it polls.
const MAX_UNPOLLED: usize = 64;

/// What has happened at a monitor. Records are as of now: a driver that polls late finds them newer, or
/// gone.
#[derive(Debug)]
pub enum MonitorEvent<P> {
    /// The newest state of a source has come, or is complete; its record has it.
    Fresh {
        /// Whose.
        source: SourceKey,
        /// Whether this update opened the session.
        opened: bool,
        /// Whether it is the state that was held already, sent again: to carry its age, or to keep
        /// the session alive.
        is_repeat: bool,
        /// Whether it is such a repeat and the first to carry the state's age: the state came with
        /// an opening.
        brings_age: bool,
    },
    /// The newest state of a source has come, or is complete, and is not handed out: it is, or may be,
    /// older than [`MonitorParams::max_age`](super::MonitorParams::max_age) allows.
    Withheld {
        /// Whose.
        source: SourceKey,
    },
    /// A topic with a maximum age has become stale, or fresh again.
    Freshness(Box<Alarm>),
    /// A session was opened by an update without a state, as its source's states take several updates; or
    /// by one with a state that is withheld.
    Opened {
        /// Whose.
        source: SourceKey,
    },
    /// The newest state of a topic other than the first, or of a key, has come, or is complete; it follows
    /// the event of the update that brings it.
    Topic {
        /// Whose.
        source: SourceKey,
        /// Which of its topics or keys: [`Record::topic`].
        topic: u16,
    },
    /// The age of the state that is held of such a topic or key is known now; it was unknown when the state came.
    TopicAged {
        /// Whose.
        source: SourceKey,
        /// Which of its topics or keys: [`Record::topic`].
        topic: u16,
    },
    /// A key that had a state is removed; the record has it no more.
    Removed {
        /// Whose.
        source: SourceKey,
        /// Which key of which topic.
        topic: Box<RemovedTopic>,
    },
    /// One or more records of a topic are complete and in order:
    /// [`Monitor::take_record`](super::Monitor::take_record) gives them, until there is none. It follows the
    /// event of the update that brings them. It comes again if there are still some when one is done, and when
    /// their age becomes known: a driver that could not take them then may be able to.
    Record {
        /// Whose.
        source: SourceKey,
        /// Which of its topics: [`Record::topic`] has its name.
        topic: u16,
    },
    /// An update that is newer than all before and completes no state of the first topic.
    Part {
        /// Whose.
        source: SourceKey,
    },
    /// An update that came after a fresher one, or a copy.
    Stale {
        /// Whose.
        source: SourceKey,
    },
    /// An opening without a good cookie was answered by a challenge.
    Challenged,
    /// An update was refused, and its source was answered so.
    Refused {
        /// Why.
        reason: CloseReason,
        /// Whether it is full because the address holds as many sources as one may.
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
    /// It was not heard for too long.
    Idle,
    /// The rules do not permit it any more.
    Revoked,
}

/// A queue from which no [`MonitorEvent::Gone`] is dropped. The monitor opens no sessions while there are
/// too many of these ([`Events::has_too_many_ends`]), so it is bounded all the same.
#[derive(Debug)]
pub(super) struct Events<P> {
    /// Those that would have been dropped from `queue`: all are [`MonitorEvent::Gone`], and older.
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

    /// Whether the driver has yet to poll so many ends of sessions that no further session may be opened.
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
