//! A server's settings, datagrams, errors and counters.

use alloc::vec::Vec;

use super::record::ClientKey;
use crate::dscp::Dscp;
use crate::session::Admission;
use crate::unit::{Bytes, Span};
use crate::wire::{AckMark, Packet, ParseError};

/// Settings of [`Server`](super::Server).
#[derive(Debug, Clone)]
pub struct ServerParams {
    /// How a client proves its address.
    pub admission: Admission,
    /// Accepted tokens, of which a join must contain one; empty: no token is required.
    pub tokens: Vec<Vec<u8>>,
    /// The maximum number of clients; at most the law's maximum number of stations
    /// ([`DownlinkParams::max_stations`](crate::wlan::DownlinkParams)), if it has one. 1024.
    pub max_clients: usize,
    /// Δ: the interval of clients' reports; that of the law.
    pub interval: Span,
    /// The size of the headers around a datagram, the IP header included: the law's rates are those
    /// of IP packets. 28 bytes: UDP over IPv4.
    pub headers: Bytes,
    /// The maximum delay of a late driver that it may make up by closely spaced packets; at low
    /// rates, six packets. 500 µs: timers are late by a tenth of that, and six packets at 100
    /// Mbit/s are a queue of half a ms.
    pub catch_up: Span,
    /// The longest payload of a packet, in bytes; a client's next payload is held until it is sent.
    /// 65,467: UDP over IPv4.
    pub max_payload: usize,
    /// A client without a message for this long is forgotten; at least two intervals. 5 s: by then
    /// a law has halved its rate several times.
    pub idle: Span,
    /// The code point of packets. Challenges and closes are never marked.
    pub dscp: Dscp,
    /// The code point requested for reports; if unset, the client decides.
    pub ack_mark: Option<AckMark>,
    /// Whether rates are limited to the rates that clients confirm
    /// ([`Guarded`](crate::wlan::Guarded)). Default: true.
    pub guard: bool,
}

impl Default for ServerParams {
    fn default() -> Self {
        Self {
            admission: Admission::Cookie,
            tokens: Vec::new(),
            max_clients: 1024,
            interval: Span::from_millis(500),
            headers: Bytes::new(28),
            catch_up: Span::from_micros(500),
            max_payload: 65_507 - Packet::HEADER_LEN,
            idle: Span::from_secs(5),
            dscp: Dscp::DEFAULT,
            ack_mark: None,
            guard: true,
        }
    }
}

/// A datagram that a server has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerTransmit<P> {
    /// The destination. An answer goes to the sender of the datagram that it answers, and is not
    /// longer than that datagram.
    pub peer: P,
    /// Its length: it is at the front of the buffer.
    pub len: usize,
    /// Its code point.
    pub dscp: Dscp,
    /// The client for which it is; `None` for an answer or a close of
    /// [`Server::close`](super::Server::close).
    pub client: Option<ClientKey>,
}

/// Why a payload was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// It is longer than [`ServerParams::max_payload`].
    #[error("a payload of {given} bytes does not fit: at most {max} bytes do")]
    TooLarge {
        /// Its length in bytes.
        given: usize,
        /// The longest that fits.
        max: usize,
    },
    /// The previous payload was not sent yet.
    #[error("the payload before it has not left yet")]
    Occupied,
    /// The client is gone.
    #[error("the client is gone")]
    Gone,
}

/// Why a datagram was ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ServerIgnored {
    /// Not a message of this protocol.
    #[error("not a message: {0}")]
    Unreadable(#[from] ParseError),
    /// A message that a server does not process.
    #[error("not meant for a server of packets")]
    Misplaced,
    /// A report that is not newer than an earlier one, or arrives too soon after it.
    #[error("a report that is old, or too many")]
    Untimely,
    /// A report without the right sending time of a sent packet.
    #[error("a report of a packet that was never sent")]
    NeverSent,
}

/// The counters of a server over all clients, past ones included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ServerCounters {
    /// Datagrams handed in.
    pub datagrams: u64,
    /// Clients that have joined.
    pub joined: u64,
    /// Joins of present clients from another address.
    pub moved: u64,
    /// Clients that have left with a close.
    pub left: u64,
    /// Clients forgotten because they were silent.
    pub expired: u64,
    /// Sessions ended because their credential was revoked, or no longer permits their name.
    pub revoked: u64,
    /// Reports accepted.
    pub reports: u64,
    /// Challenges sent.
    pub challenged: u64,
    /// Joins refused.
    pub refused: u64,
    /// Clients displaced by a newcomer of a party with fewer places.
    pub displaced: u64,
    /// Ignored datagrams.
    pub ignored: u64,
    /// Packets written.
    pub packets: u64,
    /// Payload bytes of these.
    pub payload_bytes: u64,
}
