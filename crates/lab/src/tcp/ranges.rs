//! A set of stream offsets, as sorted ranges that neither overlap nor touch.

use super::segment::Block;

/// Ranges that have arrived out of order. A range costs 16 bytes, and there is one per hole in the
/// stream. So a lookup takes O(log holes), and an insertion moves at most the ranges behind it.
#[derive(Debug, Clone, Default)]
pub(super) struct Ranges {
    sorted: Vec<Block>,
}

impl Ranges {
    pub(super) fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Adds `block`. Returns the whole range that now contains it.
    pub(super) fn insert(&mut self, block: Block) -> Block {
        if block.start >= block.end {
            return block;
        }
        let from = self.sorted.partition_point(|range| range.end < block.start);
        let to = from + self.sorted[from..].partition_point(|range| range.start <= block.end);
        let Some(joined) = self.sorted[from..to].first().copied() else {
            self.sorted.insert(from, block);
            return block;
        };
        let whole = Block {
            start: joined.start.min(block.start),
            end: self.sorted[to - 1].end.max(block.end),
        };
        self.sorted[from] = whole;
        self.sorted.drain(from + 1..to);
        whole
    }

    /// The first part of `block` that is not in the set.
    pub(super) fn first_gap(&self, block: Block) -> Option<Block> {
        let mut start = block.start;
        let mut next = self.sorted.partition_point(|range| range.end <= start);
        if let Some(range) = self.sorted.get(next)
            && range.start <= start
        {
            start = range.end;
            next += 1;
        }
        let end = self.sorted.get(next).map_or(block.end, |range| range.start.min(block.end));
        (start < end).then_some(Block { start, end })
    }

    /// Removes everything below `offset`.
    pub(super) fn remove_below(&mut self, offset: u64) {
        let gone = self.sorted.partition_point(|range| range.end <= offset);
        self.sorted.drain(..gone);
        if let Some(first) = self.sorted.first_mut() {
            first.start = first.start.max(offset);
        }
    }

    /// The range that contains `offset`.
    pub(super) fn around(&self, offset: u64) -> Option<Block> {
        let at = self.sorted.partition_point(|range| range.end <= offset);
        self.sorted.get(at).copied().filter(|range| range.start <= offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block(start: u64, end: u64) -> Block {
        Block { start, end }
    }

    #[test]
    fn what_touches_becomes_one() {
        let mut ranges = Ranges::default();
        ranges.insert(block(10, 20));
        ranges.insert(block(30, 40));
        assert_eq!(ranges.first_gap(block(15, 50)), Some(block(20, 30)));
        assert_eq!(ranges.insert(block(20, 30)), block(10, 40));
        assert_eq!(ranges.first_gap(block(15, 50)), Some(block(40, 50)));
        ranges.remove_below(25);
        assert_eq!(ranges.around(39), Some(block(25, 40)));
        assert_eq!(ranges.around(24), None);
    }

    proptest! {
        #[test]
        fn it_is_the_set_of_what_was_inserted(
            blocks in prop::collection::vec((0u64..200, 0u64..30), 0..40),
            below in 0u64..200,
        ) {
            let mut ranges = Ranges::default();
            let mut model = [false; 240];
            for (start, len) in blocks {
                let whole = ranges.insert(block(start, start + len));
                prop_assert!(whole.start <= start && whole.end >= start + len);
                model[start as usize..(start + len) as usize].fill(true);
            }
            ranges.remove_below(below);
            model[..below as usize].fill(false);
            for (offset, held) in model.into_iter().enumerate() {
                let offset = offset as u64;
                prop_assert_eq!(ranges.first_gap(block(offset, offset + 1)).is_none(), held);
                prop_assert_eq!(ranges.around(offset).is_some(), held);
            }
            let sorted = &ranges.sorted;
            prop_assert!(sorted.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }
}
