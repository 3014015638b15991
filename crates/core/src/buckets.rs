//! Buckets of spans of time for histograms: each octave of ns is cut into 64 equal buckets, so a bucket's width is at
//! most 1/64 of the spans in it, and its middle is within 1/128 of each of them. All of 64 bits is covered.
//!
//! Only octaves with a bucket that was written to take memory: the spans of one source are spread over a few of 59.

use alloc::vec::Vec;

use crate::unit::Span;

/// Buckets in an octave, as a power of two.
const PRECISION: u32 = 6;
const PER_OCTAVE: usize = 1 << PRECISION;
/// The first octave of buckets holds the spans below 64 ns, each of the other 58 holds one octave of spans.
const BUCKETS: usize = (u64::BITS - PRECISION + 1) as usize * PER_OCTAVE;
const OCTAVES: usize = BUCKETS / PER_OCTAVE;

/// The number of a bucket, below [`BUCKETS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bucket(usize);

impl Bucket {
    /// The bucket that holds `span`: its octave, then the leading bits below the highest.
    pub(crate) fn of(span: Span) -> Self {
        let nanos = span.as_nanos();
        let shift = nanos.max(1 << PRECISION).ilog2() - PRECISION;
        Self(shift as usize * PER_OCTAVE + (nanos >> shift) as usize)
    }

    fn octave(self) -> usize {
        self.0 / PER_OCTAVE
    }

    /// The base-2 logarithm of the width in ns.
    fn shift(self) -> usize {
        self.octave().saturating_sub(1)
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
    /// A bit for each octave that has memory.
    stored: u64,
    /// The stored octaves, in order.
    octaves: Vec<[T; PER_OCTAVE]>,
}

impl<T: Copy + Default> Buckets<T> {
    pub(crate) const fn new() -> Self {
        Self { stored: 0, octaves: Vec::new() }
    }

    /// The value of a bucket, to be changed.
    pub(crate) fn at(&mut self, bucket: Bucket) -> &mut T {
        let place = self.place(bucket.octave());
        if !self.is_stored(bucket.octave()) {
            self.stored |= 1 << bucket.octave();
            // Few octaves are ever stored: room for more would be as large as they are.
            self.octaves.reserve_exact(1);
            self.octaves.insert(place, [T::default(); PER_OCTAVE]);
        }
        &mut self.octaves[place][bucket.0 % PER_OCTAVE]
    }

    /// All buckets from the first one with memory on, or from `open` on if that is lower, in order, with their values.
    /// They begin with a whole octave.
    pub(crate) fn iter(&self, open: Option<Bucket>) -> impl Iterator<Item = (Bucket, T)> {
        let stored = (self.stored.trailing_zeros() as usize).min(OCTAVES);
        let first = open.map_or(stored, |open| open.octave().min(stored));
        (first..OCTAVES).flat_map(move |octave| {
            let values = self.is_stored(octave).then(|| &self.octaves[self.place(octave)]);
            (0..PER_OCTAVE).map(move |at| {
                let value = values.map_or_else(T::default, |values| values[at]);
                (Bucket(octave * PER_OCTAVE + at), value)
            })
        })
    }

    fn is_stored(&self, octave: usize) -> bool {
        self.stored >> octave & 1 == 1
    }

    /// The number of stored octaves before this one.
    fn place(&self, octave: usize) -> usize {
        (self.stored & ((1 << octave) - 1)).count_ones() as usize
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
    fn one_octave_of_spans_takes_a_kilobyte_for_two_numbers_a_bucket() {
        let mut buckets = Buckets::<[u64; 2]>::new();
        (1 << 20..1 << 21)
            .step_by(1 << 10)
            .for_each(|nanos| buckets.at(Bucket::of(Span::from_nanos(nanos)))[0] += 1);
        assert_eq!((buckets.octaves.len(), size_of_val(&buckets.octaves[..])), (1, 1024));
    }

    proptest! {
        #[test]
        fn they_hold_the_same_as_an_array(
            numbers in prop::collection::vec(0..BUCKETS, 0..200),
            open in prop::option::of(0..BUCKETS),
        ) {
            let (mut buckets, mut array) = (Buckets::<u64>::new(), [0; BUCKETS]);
            for number in &numbers {
                *buckets.at(Bucket(*number)) += 1;
                array[*number] += 1;
            }
            let held: Vec<_> =
                buckets.iter(open.map(Bucket)).map(|(bucket, count)| (bucket.0, count)).collect();
            let lowest = numbers.into_iter().chain(open).min();
            let first = lowest.map_or(BUCKETS, |lowest| lowest / PER_OCTAVE * PER_OCTAVE);
            let expected: Vec<_> = array.into_iter().enumerate().skip(first).collect();
            prop_assert_eq!(held, expected);
        }
    }
}
