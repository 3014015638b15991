//! States of a monitor in web browsers.
//!
//! ```text
//!   monitor ─ Hub ─┬─► Session of a browser ─► datagrams ─► WebTransport, or WebSocket ─► page
//!                  │     a source with a law    ◄─ acks ◄─
//!                  └─► statuses of sources, every 2 s
//! ```
//!
//! Each browser is a receiver of the [Freshline protocol](../../../docs/protocol.md), and the gateway is its source: a law
//! of `freshline-core` decides when an update leaves, the acks come from the page, and a state that did not leave yet
//! is replaced by a newer one. WebTransport carries each message in a datagram; without
//! WebTransport a WebSocket carries it in a binary message. Everything else is the same.
//!
//! Clients must present a token to receive states. The page itself contains no state, and is served to every client.

mod certificate;
mod error;
mod files;
mod gateway;
mod hub;
mod listener;
mod pump;
mod routes;
mod series;
mod session;
mod shared;
mod statuses;
mod token;
mod webtransport;

pub use error::GatewayError;
pub use gateway::{Config, Gateway, Identity};
pub use hub::{Hub, HubError};
pub use token::Token;
