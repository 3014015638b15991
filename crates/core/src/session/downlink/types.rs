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
    /// How a client shows where it is.
    pub admission: Admission,
    /// Tokens of which a join must show one; empty: none is asked for.
    pub tokens: Vec<Vec<u8>>,
    /// How many clients there may be; at most as many as the law takes stations
    /// ([`DownlinkParams::stations`](crate::wlan::DownlinkParams)), where it has a limit. 1024.
    pub max_clients: usize,
    /// Δ: how often clients shall report; the law's own.
    pub interval: Span,
    /// Headers around a datagram, that of IP with them: the law's rates are of IP packets. 28 bytes:
    /// UDP over IPv4.
    pub headers: Bytes,
    /// How late a driver may be and make it up by packets that follow closely; at low rates, six
    /// packets. 500 µs: timers are late by a tenth of that, and six packets at 100 Mbit/s are a queue
    /// of half a ms.
    pub catch_up: Span,
    /// The longest payload of a packet, in bytes; a client's next one is held until it leaves. 65,467:
    /// UDP over IPv4.
    pub max_payload: usize,
    /// A client that has not been heard for this long is forgotten; at least two intervals. 5 s: by
    /// then a law has halved its rate several times.
    pub idle: Span,
    /// The code point of packets. Challenges and closes are never marked.
    pub dscp: Dscp,
    /// The code point that reports shall have; without, the client decides.
    pub ack_mark: Option<AckMark>,
    /// Whether rates are limited to what clients confirm ([`Guarded`](crate::wlan::Guarded)). By default they are.
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
    /// Where it goes. An answer goes to where the datagram came from that it answers, and is not longer
    /// than that.
    pub peer: P,
    /// Its length: it is at the front of the buffer.
    pub len: usize,
    /// The code point with which it leaves.
    pub dscp: Dscp,
    /// The client that it is for; `None` for an answer or a close of [`Server::close`](super::Server::close).
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
    /// The payload before it has not left yet.
    #[error("the payload before it has not left yet")]
    Occupied,
    /// The client is gone.
    #[error("the client is gone")]
    Gone,
}

/// Why a datagram was left aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ServerIgnored {
    /// Not a message of ours.
    #[error("not a message: {0}")]
    Unreadable(#[from] ParseError),
    /// A message that a server has no use for.
    #[error("not meant for a server of packets")]
    Misplaced,
    /// A report that is not newer than one before, or comes too soon after it.
    #[error("a report that is old, or too many")]
    Untimely,
    /// A report that does not show when a packet was sent that was sent.
    #[error("a report of a packet that was never sent")]
    NeverSent,
}

/// What a server has counted over all clients, those of the past included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ServerCounters {
    /// Datagrams handed in.
    pub datagrams: u64,
    /// Clients that have come.
    pub joined: u64,
    /// Joins of clients that were there, from another address.
    pub moved: u64,
    /// Clients that said that they leave.
    pub left: u64,
    /// Clients forgotten because they were silent.
    pub expired: u64,
    /// Sessions ended because their credential was revoked, or does not permit their name any more.
    pub revoked: u64,
    /// Reports taken.
    pub reports: u64,
    /// Challenges sent.
    pub challenged: u64,
    /// Joins refused.
    pub refused: u64,
    /// Clients that lost their place to a newcomer of a party with fewer.
    pub displaced: u64,
    /// Datagrams left aside.
    pub ignored: u64,
    /// Packets written.
    pub packets: u64,
    /// Payload bytes of these.
    pub payload_bytes: u64,
}
