//! Bonding: carries the TCP connections and UDP datagrams of any program over all paths of a host
//! at once.
//!
//! ```text
//!  program ─► TCP ─► client ─► QUIC stream ─► scheduler ─► wlan0 ─►┐
//!                                                └───────► wwan0 ─►┴─► server ─► TCP ─► anywhere
//! ```
//!
//! The transport is multipath QUIC (draft-ietf-quic-multipath) by noq-proto, unmodified. A
//! scheduler of [`freshline_core::path`] chooses the path of each datagram, through gates
//! (`gate.rs`). Each end is one thread with one poll.

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

/// Why an end of a bond cannot start, or has to stop.
#[derive(Debug, thiserror::Error)]
pub enum BondError {
    /// The end cannot listen at the address.
    #[error("cannot listen at {address}: {error}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// The operating system refused something else.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The given certificates or keys are unusable.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The scheduler's settings are outside their ranges.
    #[error(transparent)]
    Scheduler(#[from] freshline_core::path::SchedulerError),
    /// The server's name or address is invalid.
    #[error("cannot dial {server}: {error}")]
    Dial {
        /// The server.
        server: std::net::SocketAddr,
        /// QUIC's error.
        error: noq_proto::ConnectError,
    },
    /// More paths were given than one connection can have.
    #[error("{given} times --via; a connection has at most {max} paths")]
    TooManyVias {
        /// The number given.
        given: usize,
        /// The maximum.
        max: u32,
    },
    /// The first connection was refused; another attempt would be, too.
    #[error("no connection to {server}: {reason}")]
    Refused {
        /// The server.
        server: std::net::SocketAddr,
        /// Why.
        reason: LostReason,
    },
}
