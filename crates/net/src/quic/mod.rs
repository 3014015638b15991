//! Datagrams over QUIC: encrypted, authenticated, and never delayed on purpose.
//!
//! The layer above exchanges datagrams of bytes: updates in one direction, acknowledgements in the
//! other. Here they travel as QUIC DATAGRAM frames (RFC 9221) over TLS 1.3. A source drives a
//! [`Client`], a monitor drives a [`Server`]; both are state machines without socket or clock, with
//! one contract:
//!
//! - **in**: `handle` takes a received UDP datagram, `handle_timeout` the passage of time,
//!   `send` a datagram of the layer above;
//! - **out**: after any input, drain `poll_event`, `recv` and `poll_transmit` until each
//!   returns `None`, then sleep until `poll_timeout` or the socket wakes the caller.
//!
//! `now` never goes backwards from one call to the next.
//!
//! ```no_run
//! # use std::{net::UdpSocket, time::{Duration, Instant}};
//! # use freshline_net::quic::{Server, ServerConfig};
//! # fn serve(config: &ServerConfig, socket: UdpSocket) -> std::io::Result<()> {
//! let mut server = Server::new(config, Instant::now());
//! let (mut packet, mut out) = ([0; 1500], Vec::new());
//! loop {
//!     while let Some((key, update)) = server.recv() {
//!         let _outcome = server.send(key, &update);
//!     }
//!     while let Some(event) = server.poll_event() {
//!         eprintln!("{event:?}");
//!     }
//!     while let Some(transmit) = server.poll_transmit(Instant::now(), &mut out) {
//!         socket.send_to(&out, transmit.to)?;
//!     }
//!     let rest = server.poll_timeout().map(|at| at.saturating_duration_since(Instant::now()));
//!     socket.set_read_timeout(rest.map(|rest| rest.max(Duration::from_millis(1))))?;
//!     if let Ok((length, from)) = socket.recv_from(&mut packet) {
//!         server.handle(Instant::now(), from, None, &packet[..length]);
//!     }
//!     server.handle_timeout(Instant::now());
//! }
//! # }
//! ```
//!
//! # Freshness first
//!
//! QUIC was designed to deliver everything; Freshline needs the newest data. Four decisions follow:
//!
//! - **No window, no pacing** (`unlimited`). The source law decides when an update leaves; a second
//!   controller below it would only delay updates.
//! - **One pending datagram, the newest** (`outbox`). If the socket is full or the path is not
//!   validated yet, a newer datagram replaces the pending one, and [`SendOutcome::Replaced`]
//!   reports it.
//! - **One packet size.** A datagram of [`MAX_DATAGRAM`] bytes fits the 1200-byte packet
//!   that every QUIC path carries, so the limit does not move with the path, and no MTU
//!   probe takes the place of an update.
//! - **No ECN mark.** A sender that marks its packets promises to slow down when congestion marks
//!   come back. The law above does not receive marks, so the packets are not ECN-capable.
//!
//! # What it costs
//!
//! A packet has some 29 bytes around its datagram. QUIC sends its own acknowledgements, in addition
//! to the layer above: at most one more packet of some 33 bytes for every update, and 40 per second
//! at 40 updates/s and more: each side asks the other to acknowledge 64 packets together, or after
//! 25 ms (draft-ietf-quic-ack-frequency). A connection costs the monitor about 40 kB.
//!
//! # What a stranger can cost
//!
//! No streams; small buffers; limited numbers of connections and of handshakes; a Retry (RFC 9000
//! §8.1.2) before the first state when handshakes accumulate ([`Limits`]). The endpoint makes the
//! kernel separate packets of strangers from packets of connections. Peers whose
//! transport parameters noq-proto would not survive are refused (`guarded`).

mod client;
mod config;
mod datagram;
mod event;
mod guarded;
mod identity;
mod names;
mod outbox;
mod peer;
mod reason;
mod server;
mod strangers;
mod token_clock;
mod transmit;
mod unlimited;
mod verify;

use noq_proto::Connection;

pub use client::{Client, ClientEvent, DialError};
#[cfg(feature = "bond")]
pub(crate) use config::no_tokens;
pub use config::{ClientConfig, Limits, ServerConfig};
pub use datagram::Datagram;
pub use event::{ConnKey, ServerEvent};
pub use identity::{BadFingerprint, Fingerprint, Identity, IdentityError};
pub use outbox::SendOutcome;
pub use reason::LostReason;
pub use server::Server;
pub(crate) use server::identity;
pub use transmit::Transmit;
pub use unlimited::Unlimited;
pub use verify::{Authorities, Clients, Trust, TrustError};
pub(crate) use verify::{client_verifier, monitor_tls, source_tls};

/// Largest datagram that [`Client::send`] and [`Server::send`] take, in bytes: a QUIC
/// packet of 1200 bytes (RFC 9000 §14), less the longest short header (25), the AEAD tag
/// (16) and the header of a DATAGRAM frame (at most 9).
pub const MAX_DATAGRAM: usize = 1150;

/// Why a connection to a peer with smaller datagrams is closed.
const TOO_SMALL: &str = "the peer does not take datagrams of 1150 bytes";

/// Whether the peer of an established connection takes datagrams of [`MAX_DATAGRAM`]
/// bytes, as every peer of our protocol does.
fn takes_our_datagrams(connection: &mut Connection) -> bool {
    connection.datagrams().max_size().is_some_and(|max| max >= MAX_DATAGRAM)
}
