//! Datagrams over QUIC: encrypted, authenticated, and never late on purpose.
//!
//! The layer above speaks in datagrams of bytes: updates one way, acknowledgements the
//! other. Here they travel as QUIC DATAGRAM frames (RFC 9221) over TLS 1.3. A source
//! drives a [`Client`], a monitor drives a [`Server`]; both are state machines without
//! socket or clock, in one contract:
//!
//! - **in**: `handle` takes a received UDP datagram, `on_timeout` the passage of time,
//!   `send` a datagram of the layer above;
//! - **out**: after any input, drain `poll_event`, `recv` and `poll_transmit` until each
//!   returns `None`, then sleep until `next_timeout` or the socket wakes the caller.
//!
//! `now` never goes backwards from one call to the next.
//!
//! # Freshness first
//!
//! QUIC was made to deliver everything; we want the newest. Four choices follow:
//!
//! - **No window, no pacing** (`unlimited`). The source law decides when an update
//!   leaves; a second controller below it would only make updates wait.
//! - **One datagram waits, the newest** (`outbox`). If the socket is full or the path is
//!   not validated yet, a newer datagram takes the place of the waiting one, and
//!   [`SendOutcome::Replaced`] says so.
//! - **One packet size.** A datagram of [`MAX_DATAGRAM`] bytes fits the 1200-byte packet
//!   that every QUIC path carries, so the limit does not move with the path, and no MTU
//!   probe takes the place of an update.
//! - **No ECN mark.** A sender that marks its packets promises to slow down when they
//!   come back marked. The law above does not hear of marks, so we do not promise.
//!
//! # What a stranger can cost
//!
//! No streams; small buffers; capped numbers of connections and of handshakes; a Retry
//! (RFC 9000 §8.1.2) before the first state once handshakes pile up ([`Limits`]). The
//! acknowledgement frequency extension is left off: with it, noq-proto 1.4.0 panics on a
//! peer's transport parameters (a `min_ack_delay` above the path's RTT).

mod client;
mod identity;
mod outbox;
mod reason;
mod server;
mod unlimited;
mod verify;

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use noq_proto::{Connection, TransportConfig, VarInt};

pub use client::{Client, ClientConfig, ClientEvent, DialError};
pub use identity::{BadFingerprint, Fingerprint, Identity, IdentityError};
pub use outbox::SendOutcome;
pub use reason::LostReason;
pub use server::{ConnKey, Limits, Server, ServerConfig, ServerEvent};
pub use verify::{Authorities, Trust, TrustError};

use unlimited::Unlimited;

/// Largest datagram that [`Client::send`] and [`Server::send`] take, in bytes: a QUIC
/// packet of 1200 bytes (RFC 9000 §14), less the longest short header (25), the AEAD tag
/// (16) and the header of a DATAGRAM frame (at most 9).
pub const MAX_DATAGRAM: usize = 1150;

/// A connection without a sign of the peer for this long is lost, unless configured.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Assumed RTT until one is measured. A lost handshake packet is sent again after three
/// of these: at RFC 9002's 333 ms a source on a lossy path would wait a second each time.
const INITIAL_RTT: Duration = Duration::from_millis(100);

/// Received datagrams held for [`Client::recv`] or [`Server::recv`], per connection, in
/// bytes; the oldest go first. Room for one batch of receives, after which they are read.
const RECEIVE_BUFFER: usize = 64 * 1024;

/// One UDP datagram for a transmit, always: a batch would hold updates back.
const ONE: NonZeroUsize = NonZeroUsize::MIN;

/// An outgoing UDP datagram; its bytes are in the buffer given to `poll_transmit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to send it.
    pub to: SocketAddr,
    /// The local address to send it from, where the socket has several (`IP_PKTINFO`):
    /// the one that the peer's packets came to. `None` leaves it to the system.
    pub local_ip: Option<IpAddr>,
}

impl From<noq_proto::Transmit> for Transmit {
    fn from(transmit: noq_proto::Transmit) -> Self {
        Self { to: transmit.destination, local_ip: transmit.src_ip }
    }
}

/// The QUIC settings that both sides share. `in_flight` bounds the bytes that the peer
/// has yet to acknowledge.
fn transport(idle_timeout: Duration, in_flight: u64) -> Arc<TransportConfig> {
    let idle_ms = u32::try_from(idle_timeout.as_millis()).unwrap_or(u32::MAX);
    let none = VarInt::from_u32(0);
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(none)
        .max_concurrent_uni_streams(none)
        .stream_receive_window(none)
        .receive_window(none)
        .send_window(0)
        .max_idle_timeout(Some(VarInt::from_u32(idle_ms).into()))
        .initial_rtt(INITIAL_RTT)
        .mtu_discovery_config(None)
        .enable_segmentation_offload(false)
        .datagram_receive_buffer_size(Some(RECEIVE_BUFFER))
        .datagram_send_buffer_size(outbox::BUFFER)
        .congestion_controller_factory(Arc::new(Unlimited { in_flight }));
    Arc::new(config)
}

/// Why a connection to a peer with smaller datagrams is closed.
const TOO_SMALL: &str = "the peer does not take datagrams of 1150 bytes";

/// Whether the peer of an established connection takes datagrams of [`MAX_DATAGRAM`]
/// bytes, as every peer of our protocol does.
fn takes_our_datagrams(connection: &mut Connection) -> bool {
    connection.datagrams().max_size().is_some_and(|max| max >= MAX_DATAGRAM)
}
