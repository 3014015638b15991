//! States of any size: how one that is longer than a datagram is sent.

pub mod repair;
