//! Why a capture could not be read, or not to its end.

use std::io;

/// Why a capture could not be read, or not to its end.
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
        /// What unpacks it to standard output.
        unpack: &'static str,
    },
    /// No frame in it has a time.
    #[error(
        "none of the {0} packets has a time (simple packet blocks of pcapng); capture with times"
    )]
    Timeless(u64),
    /// It ends within a packet, as when the disk was full or the writer was killed.
    #[error("the file ends within packet {packet}, at byte {at}; all packets before it were read")]
    Truncated {
        /// The packet that is not whole, counted from 1.
        packet: u64,
        /// Bytes in the file.
        at: u64,
    },
    /// It holds what the format does not allow.
    #[error(
        "the file is damaged in packet {packet} or before it, at byte {at}: {what}; all packets \
         before that were read"
    )]
    Damaged {
        /// The packet that would come next, counted from 1.
        packet: u64,
        /// Where the block begins that cannot be read.
        at: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// All of its frames are of kinds that are not read here.
    #[error(
        "frames of link type {0} cannot be read; capture on an interface with IP or Ethernet, or \
         convert the file"
    )]
    LinkType(u32),
    /// The file could not be read.
    #[error("reading failed in packet {packet}, at byte {at}")]
    Read {
        /// The packet that would come next, counted from 1.
        packet: u64,
        /// How far it went.
        at: u64,
        /// What the system said.
        source: io::Error,
    },
}

impl CaptureError {
    /// Whether nothing of the file could be read, as it is of another kind.
    pub fn is_foreign(&self) -> bool {
        match self {
            Self::Foreign | Self::Compressed { .. } | Self::Timeless(_) | Self::LinkType(_) => true,
            Self::Truncated { .. } | Self::Damaged { .. } | Self::Read { .. } => false,
        }
    }

    /// The same, while packet `number` was read.
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

/// How many packets were left out because they have no time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timeless(pub u64);
