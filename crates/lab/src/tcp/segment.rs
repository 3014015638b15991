//! A TCP segment without the content of its payload.

use freshline_core::router::Packet;
use freshline_core::unit::{Bytes, Time};

/// IPv4 and TCP headers without options.
const HEADERS: u64 = 40;
/// The timestamps option with its padding (RFC 7323 appendix A); on every segment but a SYN.
const TIMESTAMPS: u64 = 12;
/// MSS, SACK permitted, timestamps and window scale, as a SYN carries them.
const SYN_OPTIONS: u64 = 20;

/// The control bits of the TCP header, and the ECN field of the IP header (RFC 9293, RFC 3168).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// Opens the connection.
    pub syn: bool,
    /// The stream ends behind this segment's payload.
    pub fin: bool,
    /// [`Segment::ack`] is valid.
    pub ack: bool,
    /// ECN echo: the receiver has seen a mark.
    pub ece: bool,
    /// Congestion window reduced: the sender has seen the echo.
    pub cwr: bool,
    /// The packet's sender supports ECN (IP).
    pub ect: bool,
    /// Congestion experienced: a queue on the path has marked the packet (IP).
    pub ce: bool,
}

/// A range of stream offsets, `start` to before `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Block {
    /// The first offset of the range.
    pub start: u64,
    /// The first offset after it.
    pub end: u64,
}

/// Up to three SACK blocks, the maximum alongside timestamps (RFC 2018 section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SackBlocks {
    blocks: [Block; Self::MOST],
    len: u8,
}

impl SackBlocks {
    /// The maximum number of blocks of a segment.
    pub const MOST: usize = 3;

    /// Adds a block after the others; a block beyond the maximum is left out.
    pub fn push(&mut self, block: Block) {
        if let Some(free) = self.blocks.get_mut(usize::from(self.len)) {
            *free = block;
            self.len += 1;
        }
    }

    /// The blocks, the most recent first.
    pub fn as_slice(&self) -> &[Block] {
        &self.blocks[..usize::from(self.len)]
    }

    /// Whether the first block reports data that has arrived twice: it lies below `ack` or in the
    /// second block (RFC 2883 section 4).
    pub fn reports_duplicate(&self, ack: u64) -> bool {
        match self.as_slice() {
            [first, ..] if first.end <= ack => true,
            [first, second, ..] => second.start <= first.start && first.end <= second.end,
            _ => false,
        }
    }

    /// The same blocks, from the lowest offset to the highest.
    pub(super) fn ascending(mut self) -> Self {
        self.blocks[..usize::from(self.len)].sort_unstable_by_key(|block| block.start);
        self
    }
}

/// One TCP segment, its payload reduced to a range of the stream.
///
/// Offsets count the bytes of the stream from 0 and never wrap; they stand for the 32-bit
/// numbers on the wire, which are initial sequence number + 1 + offset. A SYN has offset 0 and
/// takes up no number of its own; a FIN takes up the one behind the last byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Segment {
    /// Offset of the first byte of the payload.
    pub seq: u64,
    /// Payload in bytes.
    pub len: u32,
    /// In a packet of several segments (segmentation offload), the payload of each but the last;
    /// 0 in one of a single segment. Queues see one packet, acks and windows its segments.
    pub gso_size: u32,
    /// The offset that the receiver expects next; valid with [`Flags::ack`].
    pub ack: u64,
    /// The receive window in bytes from `ack` on, as scaled up by the window scale option.
    pub window: u64,
    /// Control bits.
    pub flags: Flags,
    /// Ranges that have arrived beyond `ack`.
    pub sack: SackBlocks,
    /// When the segment was sent, by its sender's clock: also the timestamp on the wire, where a
    /// real one has a resolution of 1 ms or 1 µs.
    pub sent_at: Time,
    /// The timestamp echoed (RFC 7323 section 4), by the clock of the other end.
    pub echo: Option<Time>,
    /// Whether the payload was sent before. Not on the wire; for captures and statistics.
    pub retransmission: bool,
}

impl Segment {
    /// The first offset after the segment, its FIN included.
    pub fn end(&self) -> u64 {
        self.seq.saturating_add(u64::from(self.len) + u64::from(self.flags.fin))
    }

    /// The number of segments in the packet, at least 1.
    pub fn segments(&self) -> u64 {
        match self.gso_size {
            0 => 1,
            size => u64::from(self.len.div_ceil(size)).max(1),
        }
    }

    /// The payload of its first segment.
    pub(super) fn full_size(&self) -> u32 {
        if self.gso_size > 0 { self.gso_size } else { self.len }
    }

    /// The IPv4 packet: headers, TCP options and payload. One of several segments has the headers
    /// of each, which is how Linux counts it in a queue (`qdisc_pkt_len_init`) and how it leaves a
    /// link.
    pub fn wire_size(&self) -> Bytes {
        let options = match (self.flags.syn, self.sack.len) {
            (true, _) => SYN_OPTIONS,
            (false, 0) => TIMESTAMPS,
            (false, blocks) => TIMESTAMPS + 4 + 8 * u64::from(blocks),
        };
        Bytes::new((HEADERS + options) * self.segments() + u64::from(self.len))
    }
}

impl Packet for Segment {
    fn size(&self) -> Bytes {
        self.wire_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_linux() {
        let data = Segment { len: 1448, ..Segment::default() };
        assert_eq!(data.wire_size(), Bytes::new(1500));
        let ten = Segment { len: 10 * 1448, gso_size: 1448, ..Segment::default() };
        assert_eq!(ten.wire_size(), Bytes::new(15_000), "a packet of ten segments has ten headers");
        let syn = Flags { syn: true, ..Flags::default() };
        assert_eq!(Segment { flags: syn, ..Segment::default() }.wire_size(), Bytes::new(60));
        let mut ack = Segment::default();
        assert_eq!(ack.wire_size(), Bytes::new(52));
        for _ in 0..4 {
            ack.sack.push(Block { start: 5, end: 9 });
        }
        assert_eq!(ack.wire_size(), Bytes::new(80), "three blocks, and no fourth");
    }

    #[test]
    fn a_fin_takes_up_one_offset() {
        let flags = Flags { fin: true, ..Flags::default() };
        assert_eq!(Segment { seq: 10, len: 5, flags, ..Segment::default() }.end(), 16);
    }
}
