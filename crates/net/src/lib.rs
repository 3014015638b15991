//! Freshline on real clocks and sockets.

pub mod alarm;
pub mod clock;
pub mod emulate;
