//! A client's settings, events, datagrams and counters.

use alloc::string::String;
use alloc::vec::Vec;

use crate::dscp::Dscp;
use crate::unit::{BitRate, Span, Time};
use crate::wire::{self, AckMark, CloseReason};
use crate::wlan::Report;

/// Settings of [`Client`](super::Client).
#[derive(Debug, Clone)]
pub struct ClientParams {
    /// A name for people and metrics, at most [`Opening::MAX_NAME`](wire::Opening::MAX_NAME) bytes.
    pub name: String,
    /// Shown to the server, at most [`Opening::MAX_TOKEN`](wire::Opening::MAX_TOKEN) bytes.
    pub token: Vec<u8>,
    /// The wait after the first join without an answer. 200 ms, as a source's.
    pub first_wait: Span,
    /// The longest wait between joins. 2 s.
    pub longest_wait: Span,
    /// No packet for this long, and for four intervals, and the client joins again. 2 s.
    pub silence: Span,
    /// The code point of reports, whatever the server asks for; without, as it asks, and 0 where it does
    /// not. Joins and closes are never marked.
    pub ack_mark: Option<AckMark>,
}

impl Default for ClientParams {
    fn default() -> Self {
        Self {
            name: String::new(),
            token: Vec::new(),
            first_wait: Span::from_millis(200),
            longest_wait: Span::from_secs(2),
            silence: Span::from_secs(2),
            ack_mark: None,
        }
    }
}

/// What the receiver knows about the frame that carried a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Identifies the frame: the time by the network card's clock, or the kernel's.
    pub at: Time,
    /// The rate of the frame's data symbols.
    pub rate: BitRate,
}

/// A packet that a client has received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedPacket<'a> {
    /// The server's number of it.
    pub seq: u64,
    /// When it was sent, on the server's clock.
    pub sent_at: Time,
    /// When it was received, on the client's clock.
    pub received_at: Time,
    /// Its one-way delay, once the offset of the clocks is known; the error is at most half the minimum
    /// round-trip time.
    pub delay: Option<Span>,
    /// Its payload; empty where the packet only shows that the server is there.
    pub payload: &'a [u8],
}

/// An event at a client, or a request to its driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientEvent<'a> {
    /// A join is due, and the transport is down or may be to blame for missing answers: the driver makes
    /// the transport again first, and reports what became of it
    /// ([`Client::handle_transport`](super::Client::handle_transport)).
    RenewTransport {
        /// Attempts to join since the server was last heard.
        unanswered: u64,
    },
    /// The first packet since the client joined; the packet is the next event.
    Joined,
    /// A packet has arrived.
    Packet(ReceivedPacket<'a>),
    /// The server wants a cookie shown.
    Challenged,
    /// The server ended or refused the downlink; joins go on, rarely.
    Closed(CloseReason),
    /// No packet for too long; joins go on.
    Silent,
}

/// A datagram that a client has written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClientTransmit {
    /// Its length: it is at the front of the buffer.
    pub len: usize,
    /// The code point with which it leaves.
    pub dscp: Dscp,
    /// What it is.
    pub message: ClientMessage,
}

/// What a client sends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ClientMessage {
    /// It asks for packets.
    Join,
    /// It reports what it has received.
    Report {
        /// The packets per frame of a whole interval, if they were counted.
        seen: Option<Report>,
    },
    /// It leaves.
    Close,
}

/// Why a datagram was ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClientIgnored {
    /// Not a message of ours.
    #[error("not a message: {0}")]
    Unreadable(#[from] wire::ParseError),
    /// Of another session, a message that only clients send, or while the transport cannot carry an
    /// answer.
    #[error("not meant for this client")]
    Misplaced,
    /// A packet that came before, or more than 64 after it did.
    #[error("a packet that has come, or is too late")]
    Copy,
}

/// What a client has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ClientCounters {
    /// Packets that have come.
    pub packets: u64,
    /// Payload bytes of these.
    pub payload_bytes: u64,
    /// Packets that came again, or too late to tell.
    pub copies: u64,
    /// Packets numbered between the first and the newest that have not come.
    pub missing: u64,
    /// Reports written.
    pub reports: u64,
    /// Joins written.
    pub joins: u64,
    /// Datagrams left aside.
    pub ignored: u64,
}
