//! The session protocol: how a source and a monitor establish, lose and re-establish a session.
//!
//! State machines without a clock or socket, two for updates and two for a [`downlink`] of packets.
//! `net` drives them over UDP and QUIC; other carriers of datagrams (the lab's virtual network, a
//! test with faults) drive the same ones.
//!
//! ```text
//!               ┌────────────── ack ─────────────────┐
//!               │                                    ▼
//!   start ──► Opening ◄── silence, challenge, ──── Open ──► updates as the law allows
//!               │  ▲         close, transport lost
//!               │  │
//!               └──┘ update with opening: at once, then after 0.2, 0.4 … 2 s
//! ```
//!
//! The monitor keeps no state of a source until the source has returned a cookie from its address
//! (or the transport has proven the address), never answers with more bytes than it received, and
//! holds at most `max_sources` records. Byte formats are in [`crate::wire`].

mod access;
mod backoff;
mod change;
mod clock_offset;
mod cookie;
mod cursors;
mod datagram;
#[cfg(feature = "wlan")]
pub mod downlink;
mod duplex;
mod fifo;
mod held;
mod index;
mod known;
mod latest;
mod marks;
mod max_age;
mod monitor;
mod nameless;
mod paths;
mod recent;
mod record;
mod shares;
mod source;
mod streams;
mod topic_record;

pub use access::Access;
pub use change::RemovedTopic;
pub use clock_offset::ClockOffset;
pub use cookie::{Secret, SessionLabel};
pub use cursors::Cursor;
pub use datagram::Datagram;
pub use duplex::{
    Dialer, DialerEvent, Ignored as DuplexIgnored, Listener, ListenerEvent, ListenerTransmit,
    Receiver, ReturnError, ReturnParams,
};
pub use latest::{Latest, StateAge};
pub use marks::{MarkCheck, MarkVerdict, PathMarks};
pub use max_age::{BadMaxAge, MaxAge};
pub use monitor::{
    Admission, Alarm, Clocked, End, Freshness, Ignored as MonitorIgnored, Monitor, MonitorCounters,
    MonitorEvent, MonitorParams, MonitorTransmit, Names, Relation,
};
pub use paths::{
    PROBE_SHARE, PathAck, PathCounters, PathPhase, PathStatus, Paths, PathsError, Route,
};
pub use record::{Record, SourceKey};
pub use shares::{Origin, Shares};
pub use source::{
    AckedUpdate, Ignored as SourceIgnored, KeyError, KeyView, MAX_STREAMS, MAX_TOPICS, Need, Reach,
    RecordError, RecordsView, Source, SourceCounters, SourceEvent, SourceParams, StateTooLarge,
    TopicCounters, TopicError, TopicId, TopicKind, TopicParams, Transmit, TransportState,
};
pub use streams::{NextRecord, TakenRecord};
pub use topic_record::TopicRecord;

pub use crate::wire::{RecordChunk, StreamId};
