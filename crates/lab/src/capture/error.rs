//! Errors that end the reading of a capture.

use std::io;

/// An error that ends the reading of a capture, at its beginning or later.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// It does not begin like a capture.
    #[error("this is not a pcap or pcapng file; make one with `tcpdump -i IFACE -w FILE`")]
    Foreign,
    /// It is compressed.
    #[error(
        "this file is compressed with {format}; unpack it first: `{unpack} FILE | freshline age -`"
    )]
    Compressed {
        /// The name of the format.
        format: &'static str,
        /// The command that decompresses it to standard output.
        unpack: &'static str,
    },
    /// None of its frames has a timestamp.
    #[error(
        "none of the {0} packets has a time (simple packet blocks of pcapng); capture with times"
    )]
    Timeless(u64),
    /// It ends within a packet, for example because the disk was full or the writer was killed.
    #[error("the file ends within packet {packet}, at byte {at}; all packets before it were read")]
    Truncated {
        /// The number of the incomplete packet, counted from 1.
        packet: u64,
        /// The length of the file in bytes.
        at: u64,
    },
    /// Its content violates the format.
    #[error(
        "the file is damaged in packet {packet} or before it, at byte {at}: {what}; all packets \
         before that were read"
    )]
    Damaged {
        /// The number of the next packet, counted from 1.
        packet: u64,
        /// The offset of the unreadable block.
        at: u64,
        /// The violation.
        what: &'static str,
    },
    /// All of its frames have an unsupported link type.
    #[error(
        "frames of link type {0} cannot be read; capture on an interface with IP or Ethernet, or \
         convert the file"
    )]
    LinkType(u32),
    /// The file could not be read.
    #[error("reading failed in packet {packet}, at byte {at}")]
    Read {
        /// The number of the next packet, counted from 1.
        packet: u64,
        /// The offset up to which it was read.
        at: u64,
        /// The system's error.
        source: io::Error,
    },
}

impl CaptureError {
    /// Whether nothing could be read, as the file is of another kind.
    pub fn is_foreign(&self) -> bool {
        match self {
            Self::Foreign | Self::Compressed { .. } | Self::Timeless(_) | Self::LinkType(_) => true,
            Self::Truncated { .. } | Self::Damaged { .. } | Self::Read { .. } => false,
        }
    }

    /// Adds the number of the packet in which it happened.
    pub(super) fn in_packet(mut self, number: u64) -> Self {
        match &mut self {
            Self::Truncated { packet, .. }
            | Self::Damaged { packet, .. }
            | Self::Read { packet, .. } => *packet = number,
            Self::Foreign | Self::Compressed { .. } | Self::Timeless(_) | Self::LinkType(_) => {}
        }
        self
    }
}

/// The number of packets left out because they have no timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timeless(pub u64);
