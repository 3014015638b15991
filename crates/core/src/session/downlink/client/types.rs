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
    /// A token sent to the server, at most [`Opening::MAX_TOKEN`](wire::Opening::MAX_TOKEN) bytes.
    pub token: Vec<u8>,
    /// The wait after the first join without an answer. 200 ms, as a source's.
    pub first_wait: Span,
    /// The maximum wait between joins. 2 s.
    pub longest_wait: Span,
    /// Without a packet for this long, and for four intervals, the client joins again. 2 s.
    pub silence: Span,
    /// The code point of reports, which overrides the server's request; if unset, as requested by
    /// the server, or 0 without a request. Joins and closes are never marked.
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

/// The receiver's information on the frame that carried a datagram.
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
    /// The server's sequence number.
    pub seq: u64,
    /// When it was sent, on the server's clock.
    pub sent_at: Time,
    /// When it was received, on the client's clock.
    pub received_at: Time,
    /// Its one-way delay, once the offset of the clocks is known; the error is at most half the
    /// minimum round-trip time.
    pub delay: Option<Span>,
    /// Its payload; empty in a keep-alive.
    pub payload: &'a [u8],
}

/// An event at a client, or a request to its driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientEvent<'a> {
    /// A join is due, and the transport is down or may be the cause of missing answers: the driver
    /// renews the transport first, and reports its state
    /// ([`Client::handle_transport`](super::Client::handle_transport)).
    RenewTransport {
        /// Attempts to join since the server's last message.
        unanswered: u64,
    },
    /// The first packet since the client joined; the packet is the next event.
    Joined,
    /// A packet has arrived.
    Packet(ReceivedPacket<'a>),
    /// The server requires a cookie.
    Challenged,
    /// The server ended or refused the downlink; joins continue at a low rate.
    Closed(CloseReason),
    /// No packet for too long; joins are sent.
    Silent,
}

/// A datagram that a client has written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClientTransmit {
    /// Its length: it is at the front of the buffer.
    pub len: usize,
    /// Its code point.
    pub dscp: Dscp,
    /// Its message.
    pub message: ClientMessage,
}

/// A message of a client.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ClientMessage {
    /// A request for packets.
    Join,
    /// A report on received packets.
    Report {
        /// The packets per frame of a whole interval, if they were counted.
        seen: Option<Report>,
    },
    /// The close.
    Close,
}

/// Why a datagram was ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClientIgnored {
    /// Not a message of this protocol.
    #[error("not a message: {0}")]
    Unreadable(#[from] wire::ParseError),
    /// A message of another session, of a kind that only clients send, or received while the
    /// transport cannot carry an answer.
    #[error("not meant for this client")]
    Misplaced,
    /// A packet that arrived before, or more than 64 packets too late.
    #[error("a packet that has come, or is too late")]
    Copy,
}

/// The counters of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ClientCounters {
    /// Received packets.
    pub packets: u64,
    /// Payload bytes of these.
    pub payload_bytes: u64,
    /// Packets that arrived again, or outside the window.
    pub copies: u64,
    /// Packets numbered between the first and the newest that have not arrived.
    pub missing: u64,
    /// Reports written.
    pub reports: u64,
    /// Joins written.
    pub joins: u64,
    /// Ignored datagrams.
    pub ignored: u64,
}
