//! What a monitor is told, what it says of a datagram, and its settings.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::dscp::Dscp;
use crate::session::record::{Record, SourceKey};
use crate::unit::{Span, Time};
use crate::wire::{AckMark, CloseReason, ParseError};

/// How a source shows that it can be reached at its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// By the cookie of a challenge: for transports on which an address can be forged.
    Cookie,
    /// The transport has proven it already (QUIC's handshake).
    Proven,
}

/// Which names of sources a monitor takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Names {
    /// Those of [`Opening::is_plain_name`](crate::wire::Opening::is_plain_name), so that programs can
    /// use them as file names and arguments.
    #[default]
    Plain,
    /// All without control characters.
    Any,
}

/// Settings of [`Monitor`](super::Monitor).
#[derive(Debug, Clone)]
pub struct MonitorParams {
    /// How a source shows where it is.
    pub admission: Admission,
    /// Tokens of which an opening must show one; empty: none is asked for.
    pub tokens: Vec<Vec<u8>>,
    /// Which names are taken.
    pub names: Names,
    /// The most records held at once.
    pub max_sources: usize,
    /// The most records of one address with one token or certificate; see [`Origin`](crate::session::Origin).
    pub max_sources_per_peer: usize,
    /// How many places of `max_sources` are for sources that return under a name that they held for a
    /// minute at least.
    pub reserved: usize,
    /// The longest payload taken, in bytes; with `max_sources` it bounds the memory.
    pub max_payload: usize,
    /// A source that has not been heard for this long is forgotten, at most as long again later:
    /// each look at all the records is spread over this time.
    pub idle: Span,
    /// The code point of acks, whatever the source asks for; without, as it asks, and 0 where it does
    /// not. Challenges and closes are never marked.
    pub ack_mark: Option<AckMark>,
}

impl Default for MonitorParams {
    fn default() -> Self {
        Self {
            admission: Admission::Cookie,
            tokens: Vec::new(),
            names: Names::default(),
            max_sources: 10_000,
            max_sources_per_peer: usize::MAX,
            reserved: 0,
            max_payload: 1_400,
            idle: Span::from_secs(60),
            ack_mark: None,
        }
    }
}

/// What became of a datagram, and how many bytes of answer were written.
#[derive(Debug)]
pub struct Receipt<'a, P> {
    /// What became of it.
    pub verdict: Verdict<'a, P>,
    /// The length of the answer in the reply buffer; 0 for none. Never more than the datagram's.
    pub reply: usize,
    /// The code point with which the answer shall leave.
    pub dscp: Dscp,
    /// A source that lost its place to the one that has just opened a session, with its last record.
    pub displaced: Option<Box<(SourceKey, Record<P>)>>,
}

/// What became of a datagram.
#[derive(Debug)]
pub enum Verdict<'a, P> {
    /// The freshest state of a source.
    Fresh {
        /// Whose.
        source: SourceKey,
        /// The state.
        payload: &'a [u8],
        /// Whether this update opened the session.
        opened: bool,
        /// Whether it is the state that was held already, sent again: to tell its age, or to keep
        /// the session alive.
        is_repeat: bool,
        /// Whether it is such a repeat and the first to carry the state's age: the state came with
        /// an opening.
        brings_age: bool,
    },
    /// An update that came after a fresher one, or a copy.
    Stale {
        /// Whose.
        source: SourceKey,
    },
    /// An opening without a good cookie was answered by a challenge.
    Challenged,
    /// An update was refused, and the source told.
    Refused(CloseReason),
    /// A source has ended its session; this is what was held of it.
    Closed {
        /// Whose; the key is free again.
        source: SourceKey,
        /// Its last record.
        record: Box<Record<P>>,
    },
    /// Left aside.
    Ignored(Ignored),
}

/// Why a datagram was left aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Ignored {
    /// Not a message of ours.
    #[error("not a message: {0}")]
    Unreadable(#[from] ParseError),
    /// A message that only monitors send, or of a session that is not known or somebody else's.
    #[error("not meant for a monitor")]
    Misplaced,
}

/// What a monitor has counted over all sources, those of the past included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct MonitorCounters {
    /// Datagrams handed in.
    pub datagrams: u64,
    /// Updates that were the freshest of their source.
    pub fresh: u64,
    /// Updates that came after a fresher one.
    pub late: u64,
    /// Updates that came more than once.
    pub copies: u64,
    /// Challenges sent.
    pub challenged: u64,
    /// Updates refused (full, token, payload, version).
    pub refused: u64,
    /// Of these, because the address holds as many sources as one may.
    pub capped: u64,
    /// Sessions that lost their place to a newcomer of a party with fewer.
    pub displaced: u64,
    /// Datagrams left aside.
    pub ignored: u64,
    /// Sessions opened.
    pub opened: u64,
    /// Sessions that their source closed.
    pub closed: u64,
    /// Sessions forgotten because they were idle.
    pub expired: u64,
    /// Sessions that another of the same name replaced: sources that were restarted.
    pub superseded: u64,
    /// Sessions ended because their credential was revoked, or does not permit their name any more.
    pub revoked: u64,
}

/// What the sender of a datagram is to a sender that opened a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// The same: it may go on with the session, and end it.
    Same,
    /// Perhaps the same: it may go on after an opening with the session's token.
    Unproven,
    /// Another one, whatever it shows.
    Other,
}

/// When a datagram came and when it is answered.
#[derive(Debug, Clone, Copy)]
pub struct Clocked {
    /// When it came in.
    pub received_at: Time,
    /// Now, when the answer is written.
    pub now: Time,
}
