//! Freshline on real clocks and sockets.

pub mod alarm;
pub mod ask;
mod batch;
pub mod bond;
mod carrier;
pub mod clock;
pub mod downlink;
pub mod emulate;
pub mod endpoint;
mod link;
pub mod metrics;
pub mod monitor;
pub mod quic;
pub mod router;
mod sleeper;
pub mod source;
pub mod stop;
pub mod system;
mod tun;
pub mod via;
pub mod wlan;
