//! Buckets of spans of time for histograms: each octave of ns is cut into 64 equal buckets, so a bucket's width is at
//! most 1/64 of the spans in it, and its middle is within 1/128 of each of them. All of 64 bits is covered.
//!
//! Only blocks of buckets that were written to take memory: the spans of one source are spread over a few octaves out of
//! 59.

use alloc::vec::Vec;

use crate::unit::Span;

/// Buckets in an octave, as a power of two.
const PRECISION: u32 = 6;
const PER_OCTAVE: usize = 1 << PRECISION;
/// The first octave of buckets holds the spans below 64 ns, each of the other 58 holds one octave of spans.
pub(crate) const BUCKETS: usize = (u64::BITS - PRECISION + 1) as usize * PER_OCTAVE;
/// Buckets that are stored together.
const PER_BLOCK: usize = 16;
const BLOCKS: usize = BUCKETS / PER_BLOCK;
const WORDS: usize = BLOCKS.div_ceil(u64::BITS as usize);

/// The number of a bucket, below [`BUCKETS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bucket(pub(crate) usize);

impl Bucket {
    /// The bucket that holds `span`: its octave, then the leading bits below the highest.
    pub(crate) fn of(span: Span) -> Self {
        let nanos = span.as_nanos();
        let shift = nanos.max(1 << PRECISION).ilog2() - PRECISION;
        Self(shift as usize * PER_OCTAVE + (nanos >> shift) as usize)
    }

    /// The base-2 logarithm of the width in ns.
    fn shift(self) -> usize {
        (self.0 / PER_OCTAVE).saturating_sub(1)
    }

    /// The smallest span of the bucket, in ns.
    pub(crate) fn lower_edge(self) -> u64 {
        ((self.0 - self.shift() * PER_OCTAVE) as u64) << self.shift()
    }

    /// The width in ns.
    pub(crate) fn width(self) -> u64 {
        1 << self.shift()
    }

    pub(crate) fn middle(self) -> Span {
        Span::from_nanos(self.lower_edge() + self.width() / 2)
    }
}

/// A value for each bucket, at first the default.
#[derive(Debug, Clone)]
pub(crate) struct Buckets<T> {
    /// A bit for each block that has memory.
    stored: [u64; WORDS],
    /// The stored blocks, in order.
    blocks: Vec<[T; PER_BLOCK]>,
}

impl<T: Copy + Default> Buckets<T> {
    pub(crate) const fn new() -> Self {
        Self { stored: [0; WORDS], blocks: Vec::new() }
    }

    /// The value of a bucket, to be changed.
    pub(crate) fn at(&mut self, bucket: Bucket) -> &mut T {
        let block = bucket.0 / PER_BLOCK;
        let place = self.place(block);
        if !self.is_stored(block) {
            self.stored[block / 64] |= 1 << (block % 64);
            // Few blocks are ever stored: room for more would be as large as they are.
            self.blocks.reserve_exact(1);
            self.blocks.insert(place, [T::default(); PER_BLOCK]);
        }
        &mut self.blocks[place][bucket.0 % PER_BLOCK]
    }

    /// The values of the buckets from `first` on, in order.
    pub(crate) fn from(&self, first: usize) -> impl Iterator<Item = (Bucket, T)> {
        let mut place = self.place(first / PER_BLOCK);
        let blocks = (first / PER_BLOCK..BLOCKS).map(move |block| {
            let stored = self.is_stored(block);
            let values = if stored { self.blocks[place] } else { [T::default(); PER_BLOCK] };
            place += usize::from(stored);
            (block, values)
        });
        let numbered = |(block, values): (usize, [T; PER_BLOCK])| {
            values
                .into_iter()
                .enumerate()
                .map(move |(at, value)| (Bucket(block * PER_BLOCK + at), value))
        };
        blocks.flat_map(numbered).skip(first % PER_BLOCK)
    }

    fn is_stored(&self, block: usize) -> bool {
        self.stored[block / 64] >> (block % 64) & 1 == 1
    }

    /// How many blocks before this one are stored.
    fn place(&self, block: usize) -> usize {
        let (word, bit) = (block / 64, block % 64);
        let before: u32 = self.stored[..word].iter().map(|word| word.count_ones()).sum();
        (before + (self.stored[word] & ((1 << bit) - 1)).count_ones()) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_cover_every_span_without_gap_or_overlap() {
        assert_eq!(Bucket::of(Span::ZERO).0, 0);
        assert_eq!(Bucket::of(Span::MAX).0, BUCKETS - 1);
        for number in 1..BUCKETS {
            let (below, bucket) = (Bucket(number - 1), Bucket(number));
            assert_eq!(below.lower_edge() + below.width(), bucket.lower_edge());
            assert_eq!(Bucket::of(Span::from_nanos(bucket.lower_edge())).0, number);
            assert_eq!(Bucket::of(Span::from_nanos(bucket.lower_edge() - 1)).0, number - 1);
        }
    }

    #[test]
    fn one_octave_of_spans_takes_a_quarter_of_a_kilobyte_for_each_quarter() {
        let mut buckets = Buckets::<[u64; 2]>::new();
        (1 << 20..1 << 21)
            .step_by(1 << 10)
            .for_each(|nanos| buckets.at(Bucket::of(Span::from_nanos(nanos)))[0] += 1);
        assert_eq!((buckets.blocks.len(), size_of_val(&buckets.blocks[..])), (4, 1024));
    }

    proptest! {
        #[test]
        fn they_hold_the_same_as_an_array(
            numbers in prop::collection::vec(0..BUCKETS, 0..200),
            first in 0..BUCKETS,
        ) {
            let (mut buckets, mut array) = (Buckets::<u64>::new(), [0; BUCKETS]);
            for number in numbers {
                *buckets.at(Bucket(number)) += 1;
                array[number] += 1;
            }
            let held: Vec<_> = buckets.from(first).map(|(bucket, count)| (bucket.0, count)).collect();
            let expected: Vec<_> = array.into_iter().enumerate().skip(first).collect();
            prop_assert_eq!(held, expected);
        }
    }
}
