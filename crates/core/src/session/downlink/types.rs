//! What the server of a downlink is told, what it says of a datagram, and its settings.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::record::{ClientKey, ClientRecord};
use crate::dscp::Dscp;
use crate::session::Admission;
use crate::unit::{Bytes, Span};
use crate::wire::{AckMark, CloseReason, ParseError};

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
            idle: Span::from_secs(5),
            dscp: Dscp::DEFAULT,
            ack_mark: None,
            guard: true,
        }
    }
}

/// What became of a datagram, and how many bytes of answer were written.
#[derive(Debug)]
pub struct ServerReceipt<P> {
    /// What became of it.
    pub verdict: ServerVerdict<P>,
    /// The length of the answer in the reply buffer; 0 for none. Never more than the datagram's.
    pub reply: usize,
    /// A client that lost its place to the one that has just joined, with its last record.
    pub displaced: Option<Box<(ClientKey, ClientRecord<P>)>>,
}

/// What became of a datagram.
#[derive(Debug)]
pub enum ServerVerdict<P> {
    /// A client has come, or has come to another address.
    Joined(ClientKey),
    /// A client has told what it saw.
    Reported(ClientKey),
    /// A client has taken its leave; this is what was known of it.
    Left {
        /// Whose; the key is free again.
        client: ClientKey,
        /// Its last record.
        record: Box<ClientRecord<P>>,
    },
    /// It was answered by a challenge.
    Challenged,
    /// A join was refused, and the client told.
    Refused(CloseReason),
    /// Left aside.
    Ignored(ServerIgnored),
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
