//! A TCP stream of this host, and its sent packets.

use std::net::SocketAddr;

use freshline_core::unit::{BitRate, Bytes, Packets, Span};

use super::Band;

/// A count of packets; each segment of a super-packet counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Account {
    /// The number of packets.
    pub packets: Packets,
    /// Their bytes with all headers; those of a super-packet count once.
    pub bytes: Bytes,
}

/// A TCP stream of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamReport {
    /// The remote end.
    pub remote: SocketAddr,
    /// The local port.
    pub local_port: u16,
    /// The filled part of its send buffer at its last packet, and the size of the buffer, in bytes
    /// of memory.
    pub queued: Bytes,
    /// See [`StreamReport::queued`].
    pub size: Bytes,
    /// The band of its last packet.
    pub band: Band,
    /// The packets that it has sent, in all bands.
    pub sent: Account,
    /// The time since its last packet.
    pub idle: Span,
    /// Its round trips, once known.
    pub round_trips: Option<RoundTrips>,
    /// Its delivery rate.
    pub rate: BitRate,
}

/// Round trips of a stream, as measured by TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundTrips {
    /// Smoothed (`srtt`).
    pub smoothed: Span,
    /// The minimum of the last five minutes.
    pub min: Span,
}
