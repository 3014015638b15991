//! Freshline on real clocks and sockets.

pub mod alarm;
pub mod clock;
pub mod emulate;
pub mod quic;
pub mod source;
pub mod stop;
