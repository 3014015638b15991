//! An index of the streams of sources without a name, so that the work per stream does not grow
//! with the number of sources.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::cursors::Cursor;
use crate::state::Party;
use crate::wire::StreamId;

/// A stream of a party, and the record that has it.
type Entry = (Party, StreamId, u32);

/// The memory of a stream in this index, as a tree's nodes may be half empty.
pub(super) const COST: usize = 2 * size_of::<Entry>();

/// Streams by their parties.
#[derive(Debug, Default)]
pub(super) struct Nameless {
    /// The present record, and its party.
    party: Party,
    key: u32,
    records: BTreeSet<Entry>,
}

impl Nameless {
    pub(super) fn enter(&mut self, party: Party, key: u32) {
        (self.party, self.key) = (party, key);
    }

    /// The present record has this stream.
    pub(super) fn insert(&mut self, stream: StreamId) {
        self.records.insert((self.party, stream, self.key));
    }

    /// The present record no longer has this stream.
    pub(super) fn remove(&mut self, stream: StreamId) {
        self.records.remove(&(self.party, stream, self.key));
    }

    /// The records that have the stream of this cursor.
    pub(super) fn of(&self, cursor: &Cursor) -> Vec<u32> {
        let Some(party) = cursor.party else { return Vec::new() };
        let ends = [0, u32::MAX].map(|key| (party, cursor.stream, key));
        self.records.range(ends[0]..=ends[1]).map(|(_, _, key)| *key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_records_those_with_the_stream_of_the_party_are_found() {
        let (mut nameless, mine, theirs) = (Nameless::default(), Party(1, 0), Party(2, 0));
        for key in 0..1_000 {
            nameless.enter(if key % 2 == 0 { mine } else { theirs }, key);
            nameless.insert(StreamId(u64::from(key) / 100));
        }
        let cursor = |party| Cursor {
            source: "".into(),
            party,
            topic: "log".into(),
            stream: StreamId(3),
            next: 0,
        };
        let expected: Vec<u32> = (300..400).filter(|key| key % 2 == 0).collect();
        assert_eq!(nameless.of(&cursor(Some(mine))), expected);
        assert!(nameless.of(&cursor(None)).is_empty());
        for key in expected {
            nameless.enter(mine, key);
            nameless.remove(StreamId(3));
        }
        assert!(nameless.of(&cursor(Some(mine))).is_empty());
        assert_eq!(nameless.records.len(), 950);
    }
}
