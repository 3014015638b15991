//! Freshline on real clocks and sockets.
#![cfg_attr(
    not(all(
        feature = "bond",
        feature = "downlink",
        feature = "emulate",
        feature = "monitor",
        feature = "router",
        feature = "source"
    )),
    // Several features share private helpers; that each has a user is checked with all of them.
    allow(dead_code, unreachable_pub, unused_imports)
)]

pub mod alarm;
pub mod ask;
#[cfg(feature = "listen")]
mod batch;
#[cfg(feature = "bond")]
pub mod bond;
#[cfg(feature = "metrics")]
mod bounded_listener;
#[cfg(feature = "listen")]
mod carrier;
pub mod clock;
#[cfg(feature = "listen")]
pub mod credentials;
pub mod dial;
#[cfg(feature = "downlink")]
pub mod downlink;
#[cfg(feature = "emulate")]
pub mod emulate;
#[cfg(feature = "listen")]
pub mod endpoint;
pub mod framing;
mod handshakes;
mod link;
mod marked;
pub mod marks;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(feature = "monitor")]
pub mod monitor;
mod network;
mod nl80211;
#[cfg(feature = "router")]
mod notify;
#[cfg(feature = "listen")]
mod outbox;
#[cfg(test)]
#[path = "../../cli/tests/common/promtool.rs"]
mod promtool;
#[cfg(feature = "listen")]
mod queues;
pub mod quic;
mod received;
mod refusal;
#[cfg(feature = "monitor")]
pub mod relay;
#[cfg(feature = "source")]
mod rewrite;
#[cfg(feature = "router")]
pub mod router;
mod run;
mod sha256;
mod sieve;
mod sleeper;
#[cfg(feature = "source")]
pub mod source;
pub mod stop;
pub mod system;
#[cfg(feature = "tun")]
mod tun;
pub mod via;
mod waker;
#[cfg(feature = "downlink")]
pub mod wlan;

pub use handshakes::{Rate, Rates};
pub use refusal::{Refusal, Refusals};
pub use waker::Waker;
