//! Estimates the base delay of a path (its delay without queues), by the length of a datagram.
//!
//! Each hop forwards a datagram when it has received all of it, so that without a queue n bytes
//! take a + b·n. With the minimum over all lengths as the base, a long datagram would seem to be
//! queued for b times its further bytes. The base is the lower convex hull of the samples (n,
//! delay):
//!
//! ```text
//!  delay │        ·      ·   queued
//!        │   ·  ·      ____o      base of a length: on the line between its neighbours,
//!        │   o────────              of a longer one than all: that of the longest
//!        └──────────────────── n
//! ```
//!
//! A longer datagram takes no less time, so a sample bounds the base of all shorter lengths. The
//! first sample of a length that is longer than all before may have been queued: it is its base
//! only up to the time that [`HOPS`] bottlenecks in series would take for its further bytes. For
//! updates of one length the base is the minimum sample.

/// The number of hops on a path that may be as slow as the bottleneck.
const HOPS: f64 = 4.0;

/// The maximum number of corners of the hull.
const CORNERS: usize = 6;

/// A corner of the hull: a length in bytes, and the minimum delay of that length in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Corner {
    len: u32,
    delay: i64,
}

/// The minimum delay, by length. Delays are in ns, with any offset.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BaseDelay {
    /// Ordered by length; both lengths and delays grow.
    corners: [Corner; CORNERS + 1],
    count: usize,
}

/// The result of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    /// By how much it is above the base, ns.
    pub(super) excess: u64,
    /// The former minimum of all lengths, ns, if the sample lowers it: the path has become shorter,
    /// or a queue has drained that existed from the beginning. `None` if the datagram is shorter
    /// than all before, as its length explains the lower delay.
    pub(super) lowered: Option<i64>,
}

impl BaseDelay {
    /// Takes in the delay of a datagram, with the time of a byte at the bottleneck in ns, if known.
    pub(super) fn on_sample(&mut self, len: u32, delay: i64, byte_time: Option<f64>) -> Sample {
        let base = self.of(len);
        if let Some(base) = base.filter(|base| delay >= *base && len <= self.longest()) {
            return Sample { excess: delay.abs_diff(base), lowered: None };
        }
        let excess = base.filter(|base| delay > *base).map_or(0, |base| delay.abs_diff(base));
        let is_shortest = len < self.corners[0].len;
        let lowered = self.least().filter(|least| delay < *least && !is_shortest);
        let further = f64::from(len.saturating_sub(self.longest()));
        let most = base.zip(byte_time).filter(|_| further > 0.0).map(|(base, byte_time)| {
            // `as` saturates.
            base.saturating_add((HOPS * byte_time * further) as i64)
        });
        self.insert(Corner { len, delay: most.map_or(delay, |most| most.min(delay)) });
        Sample { excess, lowered }
    }

    /// The base of a length; `None` before any sample.
    fn of(&self, len: u32) -> Option<i64> {
        let corners = self.corners();
        let behind = corners.partition_point(|corner| corner.len < len);
        let (before, at) = (behind.checked_sub(1).map(|at| corners[at]), corners.get(behind));
        match (before, at) {
            (Some(before), Some(at)) => Some(between(before, *at, len)),
            (one, other) => one.or(other.copied()).map(|corner| corner.delay),
        }
    }

    /// The minimum of all lengths.
    pub(super) fn least(&self) -> Option<i64> {
        self.corners().first().map(|corner| corner.delay)
    }

    /// Raises all delays, as the path has become longer.
    pub(super) fn raise(&mut self, by: i64) {
        for corner in &mut self.corners[..self.count] {
            corner.delay = corner.delay.saturating_add(by);
        }
    }

    fn corners(&self) -> &[Corner] {
        &self.corners[..self.count]
    }

    fn longest(&self) -> u32 {
        self.corners().last().map_or(0, |corner| corner.len)
    }

    fn insert(&mut self, new: Corner) {
        self.retain(|corner| {
            let is_bounded = corner.len <= new.len && corner.delay >= new.delay;
            !is_bounded && corner.len != new.len
        });
        let place = self.corners().partition_point(|corner| corner.len < new.len);
        self.corners.copy_within(place..self.count, place + 1);
        self.corners[place] = new;
        self.count += 1;
        self.make_convex();
        if self.count > CORNERS {
            self.remove_flattest();
        }
    }

    fn retain(&mut self, keep: impl Fn(&Corner) -> bool) {
        let mut kept = 0;
        for at in 0..self.count {
            if keep(&self.corners[at]) {
                self.corners[kept] = self.corners[at];
                kept += 1;
            }
        }
        self.count = kept;
    }

    fn remove(&mut self, at: usize) {
        self.corners.copy_within(at + 1..self.count, at);
        self.count -= 1;
    }

    /// Removes corners on or above the line between their neighbours.
    fn make_convex(&mut self) {
        let mut at = 1;
        while at + 1 < self.count {
            if self.depth(at) <= 0 {
                self.remove(at);
                at = at.saturating_sub(1).max(1);
            } else {
                at += 1;
            }
        }
    }

    /// Removes the corner that is nearest to the line between its neighbours.
    fn remove_flattest(&mut self) {
        let flattest = (1..self.count - 1).min_by_key(|at| self.depth(*at));
        flattest.into_iter().for_each(|at| self.remove(at));
    }

    /// By how much a corner is below the line between its neighbours, ns.
    fn depth(&self, at: usize) -> i64 {
        let [before, corner, after] = [at - 1, at, at + 1].map(|at| self.corners[at]);
        between(before, after, corner.len).saturating_sub(corner.delay)
    }
}

/// The delay of this length on the line between two corners.
fn between(before: Corner, after: Corner, len: u32) -> i64 {
    let rise = i128::from(after.delay) - i128::from(before.delay);
    let [part, whole] = [len, after.len].map(|len| i128::from(len - before.len));
    let delay = i128::from(before.delay) + rise * part / whole.max(1);
    i64::try_from(delay).unwrap_or(after.delay)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The excess of each sample.
    fn excess(samples: &[(u32, i64)]) -> alloc::vec::Vec<u64> {
        let mut base = BaseDelay::default();
        samples.iter().map(|(len, delay)| base.on_sample(*len, *delay, None).excess).collect()
    }

    #[test]
    fn of_one_length_the_base_is_the_least() {
        assert_eq!(excess(&[(100, 20), (100, 50), (100, 10), (100, 50)]), [0, 30, 0, 40]);
    }

    #[test]
    fn the_transmission_of_further_bytes_is_no_queue() {
        let mut base = BaseDelay::default();
        // 1 ns per byte and 50 ns.
        base.on_sample(100, 150, None);
        assert_eq!(base.on_sample(1_100, 1_150, None).excess, 1_000, "that may have been a queue");
        assert_eq!(
            base.on_sample(1_100, 1_150, None).excess,
            0,
            "but not twice without a shorter one"
        );
        assert_eq!(base.on_sample(600, 650, None).excess, 0);
        assert_eq!(base.on_sample(600, 700, None).excess, 50);
    }

    #[test]
    fn a_long_one_bounds_all_shorter_ones() {
        let mut base = BaseDelay::default();
        base.on_sample(100, 500, None);
        assert_eq!(base.on_sample(1_000, 300, None), Sample { excess: 0, lowered: Some(500) });
        assert_eq!(base.on_sample(100, 500, None).excess, 200);
        assert_eq!(base.on_sample(100, 250, None), Sample { excess: 0, lowered: None });
        assert_eq!(base.least(), Some(250));
    }

    #[test]
    fn a_queue_is_no_base_of_a_length_that_is_new() {
        let mut base = BaseDelay::default();
        base.on_sample(100, 1_000, None);
        // 4 hops of 1 ns for each of 1000 bytes.
        base.on_sample(1_100, 90_000, Some(1.0));
        assert_eq!(base.on_sample(1_100, 90_000, Some(1.0)).excess, 85_000);
        assert_eq!(base.on_sample(1_100, 2_000, Some(1.0)).excess, 0);
    }

    #[test]
    fn a_longer_path_has_longer_delays_of_all_lengths() {
        let mut base = BaseDelay::default();
        base.on_sample(100, 100, None);
        assert_eq!(base.on_sample(1_000, 2_000, None).lowered, None);
        assert_eq!(base.on_sample(1_000, 1_000, None).lowered, None, "the path is not shorter");
        base.raise(50);
        assert_eq!([100, 1_000].map(|len| base.on_sample(len, 2_000, None).excess), [1_850, 950]);
    }

    proptest! {
        /// With an affine path and queues on top, no base is above the path's delay once its
        /// shortest and its longest datagrams have arrived without a queue, and none is ever below.
        #[test]
        fn the_base_is_that_of_the_path(
            samples in prop::collection::vec((40..1_500u32, 0..1_000_000i64), 0..60),
            per_byte in 0..10_000i64,
            probe in 40..1_500u32,
        ) {
            let path = |len: u32| 1_000_000 + per_byte * i64::from(len);
            let mut base = BaseDelay::default();
            base.on_sample(40, path(40), None);
            base.on_sample(1_500, path(1_500), None);
            for (len, queued) in samples {
                let sample = base.on_sample(len, path(len) + queued, None);
                prop_assert!(sample.excess.abs_diff(queued.cast_unsigned()) <= 1);
            }
            prop_assert!(base.of(probe).is_some_and(|of| of.abs_diff(path(probe)) <= 1));
        }

        #[test]
        fn no_samples_break_the_hull(
            samples in prop::collection::vec((any::<u32>(), any::<i64>()), 1..100),
        ) {
            let mut base = BaseDelay::default();
            for (len, delay) in samples {
                base.on_sample(len, delay, None);
                let corners = base.corners();
                prop_assert!((1..=CORNERS).contains(&corners.len()));
                let grow = |two: &[Corner]| two[0].len < two[1].len && two[0].delay < two[1].delay;
                prop_assert!(corners.windows(2).all(grow));
                // Of many corners the flattest is dropped, which can be the newest.
                let is_bound = base.of(len).is_some_and(|of| of <= delay);
                prop_assert!(is_bound || corners.len() == CORNERS);
            }
        }
    }
}
