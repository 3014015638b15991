//! Bonding: TCP connections and UDP datagrams of any program, carried over all paths of a host at
//! once.
//!
//! ```text
//!  program ─► TCP ─► client ─► QUIC stream ─► scheduler ─► wlan0 ─►┐
//!                                                └───────► wwan0 ─►┴─► server ─► TCP ─► anywhere
//! ```
//!
//! Multipath QUIC (draft-ietf-quic-multipath) by noq-proto, unmodified; which path a datagram takes
//! is decided by a scheduler of [`freshline_core::path`] through gates (`gate.rs`). Each end is one
//! thread with one poll.

mod client;
mod config;
mod coupled;
mod credit;
mod driver;
#[cfg(test)]
mod each_scheduler;
#[cfg(test)]
mod fairness;
#[cfg(test)]
mod flooded;
mod flow;
mod gate;
pub mod greeting;
pub mod head;
mod http;
mod incoming;
mod link;
mod paths;
mod queueing_delays;
mod queues;
mod resolve;
mod rules;
mod server;
mod socket;
mod socks;
mod status;
#[cfg(test)]
mod tests;
mod udp;

use std::io;

pub use client::{Client, ClientConfig, ListenConfig};
pub use config::{Congestion, Sending};
pub use head::{BadTarget, Target};
pub use rules::{Allow, BadAllow};
pub use server::{Server, ServerConfig};
pub use status::{BondReport, PathReport, ViaReport, ViaState, Watcher};

use crate::quic::{LostReason, TrustError};
use crate::system::{SystemError, system};
pub use crate::via::{Via, ViaPath};

/// Why an end of a bond cannot run, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum BondError {
    /// The address cannot be listened at.
    #[error("cannot listen at {address}: {error}")]
    Listen {
        /// Where.
        address: std::net::SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// The operating system refused something else.
    #[error(transparent)]
    System(#[from] SystemError),
    /// TLS cannot use what it was given.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The scheduler's settings are outside their ranges.
    #[error(transparent)]
    Scheduler(#[from] freshline_core::path::SchedulerError),
    /// The server's name or address can be none.
    #[error("cannot dial {server}: {error}")]
    Dial {
        /// The server.
        server: std::net::SocketAddr,
        /// What QUIC says.
        error: noq_proto::ConnectError,
    },
    /// There are more paths than one connection has.
    #[error("{given} times --via; a connection has at most {max} paths")]
    TooManyVias {
        /// How many were given.
        given: usize,
        /// How many there may be.
        max: u32,
    },
    /// The first connection was turned down; another one would be, too.
    #[error("no connection to {server}: {reason}")]
    Refused {
        /// The server.
        server: std::net::SocketAddr,
        /// Why.
        reason: LostReason,
    },
}
