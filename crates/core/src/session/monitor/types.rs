//! What a monitor is told, what it says of a datagram, and its settings.

use alloc::vec::Vec;

use crate::session::max_age::MaxAge;
use crate::unit::{Span, Time};
use crate::wire::{AckMark, ParseError};

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
    /// The longest state taken, in bytes. 8 MiB: an uncompressed image of 1920 by 1080 pixels.
    pub max_payload: usize,
    /// The most bytes that states in parts and records of all sources may take together, half received or held.
    /// States of the first topics that one update carries do not count: `max_sources` bounds those. Once they
    /// are used, there is a quarter more for parties that hold little, networks of an owner
    /// ([`Origin`](crate::session::Origin)): each of them may hold a quarter of what is left of it. 256 MiB.
    pub max_large: usize,
    /// A source that has not been heard for this long is forgotten, at most as long again later:
    /// each look at all the records is spread over this time.
    pub idle: Span,
    /// The maximum ages of states; of several rules that match a topic, the first counts. A state that is
    /// older as it comes, or may be, is withheld, and so is one until its age is known
    /// ([`MonitorEvent::Withheld`](super::MonitorEvent::Withheld)). When the newest one becomes older, there
    /// is a [`MonitorEvent::Freshness`](super::MonitorEvent::Freshness).
    pub max_age: Vec<MaxAge>,
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
            max_payload: 8 << 20,
            max_large: 256 << 20,
            idle: Span::from_secs(60),
            max_age: Vec::new(),
            ack_mark: None,
        }
    }
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
    pub stale: u64,
    /// Updates that came more than once.
    pub duplicates: u64,
    /// Challenges sent.
    pub challenged: u64,
    /// States that were older than their maximum age as they came.
    pub too_old: u64,
    /// Records that the application has got.
    pub records: u64,
    /// Chunks of records that came again.
    pub repeated_records: u64,
    /// Chunks of records that a source did not have any more when this monitor, restarted with an old cursor,
    /// needed them.
    pub lost_records: u64,
    /// Chunks of records that no source writes, and that are refused: those that are longer than
    /// [`RecordChunk::MAX_LEN`](crate::wire::RecordChunk::MAX_LEN), or shorter before the end of their record, or
    /// with which a record is longer than [`RecordChunk::MAX_RECORD`](crate::wire::RecordChunk::MAX_RECORD).
    pub bad_chunks: u64,
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

impl From<Time> for Clocked {
    /// A datagram that is answered as it comes.
    fn from(now: Time) -> Self {
        Self { received_at: now, now }
    }
}

/// When a datagram came and when it is answered.
#[derive(Debug, Clone, Copy)]
pub struct Clocked {
    /// When it came in.
    pub received_at: Time,
    /// Now, when the answer is written.
    pub now: Time,
}
