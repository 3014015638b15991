//! A monitor's settings, inputs, errors and counters.

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

/// Which names of sources a monitor accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Names {
    /// Those of [`Opening::is_plain_name`](crate::wire::Opening::is_plain_name), so that programs
    /// can use them as file names and arguments.
    #[default]
    Plain,
    /// All without control characters.
    Any,
}

/// Settings of [`Monitor`](super::Monitor).
#[derive(Debug, Clone)]
pub struct MonitorParams {
    /// How a source proves its address.
    pub admission: Admission,
    /// Accepted tokens, of which an opening must contain one; empty: no token is required.
    pub tokens: Vec<Vec<u8>>,
    /// Which names are accepted.
    pub names: Names,
    /// The maximum number of records.
    pub max_sources: usize,
    /// The maximum number of records per address and token or certificate; see
    /// [`Origin`](crate::session::Origin).
    pub max_sources_per_peer: usize,
    /// The number of places of `max_sources` that are reserved for sources that return under a name
    /// that they held for at least a minute.
    pub reserved: usize,
    /// The longest accepted state, in bytes. 8 MiB: an uncompressed image of 1920 by 1080 pixels.
    pub max_payload: usize,
    /// The maximum memory of states in parts and records of all sources together, in bytes,
    /// complete or not. States of first topics that fit into one update do not count: `max_sources`
    /// bounds those. Once this is used, there is another quarter for parties that hold little (a
    /// party is a network of an owner, see [`Origin`](crate::session::Origin)): each may hold a
    /// quarter of the rest of it. 256 MiB.
    pub max_large: usize,
    /// A source without an update for this long is forgotten, at most twice this time after its
    /// last update: each scan of all records is spread over this time.
    pub idle: Span,
    /// The maximum ages of states; if several rules match a topic, the first counts. A state that
    /// is, or may be, older on arrival is withheld, and so is one until its age is known
    /// ([`MonitorEvent::Withheld`](super::MonitorEvent::Withheld)). When the newest one becomes
    /// older, there is a [`MonitorEvent::Freshness`](super::MonitorEvent::Freshness).
    pub max_age: Vec<MaxAge>,
    /// The code point of acks, which overrides the source's request; if unset, as requested by the
    /// source, or 0 without a request. Challenges and closes are never marked.
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

/// Why a datagram was ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Ignored {
    /// Not a message of this protocol.
    #[error("not a message: {0}")]
    Unreadable(#[from] ParseError),
    /// A message that only monitors send, or of a session that is unknown or belongs to another
    /// sender.
    #[error("not meant for a monitor")]
    Misplaced,
}

/// The counters of a monitor over all sources, past ones included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct MonitorCounters {
    /// Datagrams handed in.
    pub datagrams: u64,
    /// Updates that were the freshest of their source.
    pub fresh: u64,
    /// Updates that arrived after a fresher one.
    pub stale: u64,
    /// Updates that arrived more than once.
    pub duplicates: u64,
    /// Challenges sent.
    pub challenged: u64,
    /// States that were older than their maximum age on arrival.
    pub too_old: u64,
    /// Records that the application has received.
    pub records: u64,
    /// Chunks of records that arrived again.
    pub repeated_records: u64,
    /// Chunks of records that a source no longer had when this monitor, restarted with an old
    /// cursor, needed them.
    pub lost_records: u64,
    /// Refused invalid chunks of records: longer than
    /// [`RecordChunk::MAX_LEN`](crate::wire::RecordChunk::MAX_LEN), or shorter before the end of
    /// their record, or making a record longer than
    /// [`RecordChunk::MAX_RECORD`](crate::wire::RecordChunk::MAX_RECORD).
    pub bad_chunks: u64,
    /// Updates refused (full, token, payload, version).
    pub refused: u64,
    /// Updates refused because the address holds its maximum number of sources.
    pub capped: u64,
    /// Sessions displaced by a newcomer of a party with fewer places.
    pub displaced: u64,
    /// Ignored datagrams.
    pub ignored: u64,
    /// Sessions opened.
    pub opened: u64,
    /// Sessions that their source closed.
    pub closed: u64,
    /// Sessions forgotten because they were idle.
    pub expired: u64,
    /// Sessions replaced by another of the same name: restarted sources.
    pub superseded: u64,
    /// Sessions ended because their credential was revoked, or no longer permits their name.
    pub revoked: u64,
}

/// The relation of a datagram's sender to a sender that opened a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// The same sender: it may continue the session, and end it.
    Same,
    /// Possibly the same: it may continue after an opening with the session's token.
    Unproven,
    /// Another sender, regardless of its token.
    Other,
}

impl From<Time> for Clocked {
    /// A datagram that is answered on arrival.
    fn from(now: Time) -> Self {
        Self { received_at: now, now }
    }
}

/// When a datagram arrived, and when it is answered.
#[derive(Debug, Clone, Copy)]
pub struct Clocked {
    /// Its arrival time.
    pub received_at: Time,
    /// Now, when the answer is written.
    pub now: Time,
}
