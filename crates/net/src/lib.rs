//! Freshline on real clocks and sockets.
