//! A TCP stream of this host, and what it has sent.

use std::net::SocketAddr;

use freshline_core::unit::{BitRate, Bytes, Packets, Span};

use super::Band;

/// Packets; each segment of a super-packet counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Account {
    /// How many.
    pub packets: Packets,
    /// With all headers, those of a super-packet once.
    pub bytes: Bytes,
}

/// A TCP stream of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamReport {
    /// Its other end.
    pub remote: SocketAddr,
    /// Its port here.
    pub local_port: u16,
    /// What was in its send buffer with its last packet, and what that held, in bytes of memory.
    pub queued: Bytes,
    /// See [`StreamReport::queued`].
    pub size: Bytes,
    /// The band of its last packet.
    pub band: Band,
    /// The packets that it has sent, in all bands.
    pub sent: Account,
    /// How long ago it sent the last one.
    pub idle: Span,
    /// Its round trips, once known.
    pub round_trips: Option<RoundTrips>,
    /// Its delivery rate.
    pub rate: BitRate,
}

/// Round trips of a stream, as TCP has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundTrips {
    /// Smoothed (`srtt`).
    pub smoothed: Span,
    /// The minimum of the last five minutes.
    pub min: Span,
}
