//! Freshline on real clocks and sockets.

pub mod alarm;
pub mod ask;
mod batch;
pub mod bond;
mod bounded_listener;
mod carrier;
pub mod clock;
pub mod credentials;
pub mod dial;
pub mod downlink;
pub mod emulate;
pub mod endpoint;
mod handshakes;
mod link;
mod marked;
pub mod marks;
pub mod metrics;
pub mod monitor;
mod network;
mod nl80211;
mod notify;
#[cfg(test)]
#[path = "../../cli/tests/common/promtool.rs"]
mod promtool;
mod queues;
pub mod quic;
mod received;
mod refusal;
pub mod router;
mod run;
mod sha256;
mod sieve;
mod sleeper;
pub mod source;
pub mod stop;
pub mod system;
mod tun;
pub mod via;
mod waker;
pub mod wlan;

pub use handshakes::{Rate, Rates};
pub use refusal::{Refusal, Refusals};
pub use waker::Waker;
