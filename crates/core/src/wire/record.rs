//! Records of topics of records: chunks of them, and the stream that numbers the chunks.
//!
//! A topic's **stream** is its chunks, numbered from 0 without gaps. A record of up to
//! [`RecordChunk::MAX_LEN`] bytes is one chunk; a longer one is cut into chunks of that length, of
//! which the last one may be shorter and has a flag for the end of the record. The length does not
//! depend on the path, so that a source that is restarted and puts its records again gives them the
//! same numbers. The monitor answers with its **cursor**: the number of chunks delivered to the
//! application, in order.

use super::StreamId;
use super::cursor::varint_len;
use crate::unit::{Span, Time};

/// One chunk of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordChunk<'a> {
    /// The topic: at most [`MAX_TOPIC`](super::MAX_TOPIC).
    pub topic: u16,
    /// Its number in the topic's stream, at most 2⁶² − 1.
    pub number: u64,
    /// Whether the record ends with it.
    pub is_last: bool,
    /// Time from the generation of the record to the sending of the update; at most 2⁶² − 1 ns.
    pub age: Span,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl RecordChunk<'_> {
    /// The length of each chunk but the last of a record, which may be shorter, in bytes. A frame
    /// with one fits into the updates of all paths that carry packets of 1,200 bytes, the opening
    /// included.
    pub const MAX_LEN: usize = 512;
    /// The maximum length of a record in bytes.
    pub const MAX_RECORD: usize = 64 << 10;
    /// The cost of a chunk for [`RecordChunk::WINDOW`] in addition to its bytes.
    pub const COST: usize = 64;
    /// The chunks from the cursor on that a source may have sent, in bytes, each with
    /// [`RecordChunk::COST`]. 256 KiB: 3.5 Mbit/s over a round trip of 600 ms.
    pub const WINDOW: usize = 256 << 10;
    /// The maximum number that a source gives to a chunk. The maximum on the wire is never reached.
    pub const MAX_NUMBER: u64 = 1 << 61;

    /// When the record was generated, on the source's clock, in an update that left at `sent_at`.
    pub fn generated_at(&self, sent_at: Time) -> Time {
        sent_at - self.age
    }

    /// The number of chunks of a record of `len` bytes.
    pub fn count(len: usize) -> u64 {
        len.div_ceil(Self::MAX_LEN).max(1) as u64
    }

    /// The cost of a record of `len` bytes in the buffer of its topic: its bytes, and
    /// [`RecordChunk::COST`] for each chunk.
    pub fn cost_of_record(len: usize) -> usize {
        len + Self::count(len) as usize * Self::COST
    }

    /// The maximum length of a record that costs at most `bytes`; 0 also if not even an empty one
    /// fits.
    pub fn max_record_within(bytes: usize) -> usize {
        let whole = Self::cost_of_record(Self::MAX_LEN);
        let rest = (bytes % whole).saturating_sub(Self::COST);
        (bytes / whole * Self::MAX_LEN + rest).min(Self::MAX_RECORD)
    }

    /// Its cost in bytes of the window.
    pub(crate) fn cost(len: usize) -> usize {
        len + Self::COST
    }

    pub(super) fn len(&self) -> usize {
        let numbers = [self.topic.into(), self.number, self.age.as_nanos()];
        numbers.into_iter().map(varint_len).sum::<usize>() + 1 + self.bytes.len()
    }
}

/// The stream of a topic, as its name announces it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicStream {
    /// Its identity.
    pub id: StreamId,
    /// The lowest number that the source still has, at most 2⁶² − 1. All chunks below were
    /// delivered to the application, or are lost.
    pub first: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_record_fits_and_a_longer_one_does_not() {
        assert_eq!([0, 1, 512, 513, 1_024].map(RecordChunk::count), [1, 1, 1, 2, 2]);
        for bytes in (64..3_000).chain([70_000, 1 << 20]) {
            let max = RecordChunk::max_record_within(bytes);
            assert!(RecordChunk::cost_of_record(max) <= bytes, "{bytes}");
            let is_more = RecordChunk::cost_of_record(max + 1) > bytes;
            assert!(is_more || max == RecordChunk::MAX_RECORD, "{bytes}");
        }
        assert_eq!(RecordChunk::max_record_within(63), 0);
    }
}
