//! Freshline on real clocks and sockets.

pub mod quic;
