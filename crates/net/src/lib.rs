//! Freshline on real clocks and sockets.

pub mod alarm;
mod batch;
pub mod bond;
pub mod clock;
pub mod emulate;
pub mod metrics;
pub mod monitor;
pub mod quic;
pub mod router;
pub mod source;
pub mod stop;
mod tun;
