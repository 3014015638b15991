//! The capacity of the path: the maximum rate of the last two short buckets of time.
//!
//! Bytes are counted over at least `bucket`; a bucket ends with the first arrival after that, and
//! its rate is over its actual length. The larger rate of two counts, so that a pause of the sender
//! does not lower it.

use crate::unit::{BitRate, Bytes, Span, Time};

/// Meters the rate at which data arrives.
#[derive(Debug, Clone, Copy)]
pub(super) struct PeakRate {
    bucket: Span,
    since: Option<Time>,
    bytes: Bytes,
    latest: BitRate,
    before: BitRate,
}

impl PeakRate {
    pub(super) fn new(bucket: Span) -> Self {
        let none = BitRate::default();
        Self { bucket, since: None, bytes: Bytes::ZERO, latest: none, before: none }
    }

    /// A bucket is at least `rtt` long: a window that arrives as one burst is not a rate.
    pub(super) fn on_arrival(&mut self, now: Time, bytes: Bytes, rtt: Span) {
        let since = *self.since.get_or_insert(now);
        let length = now.since(since);
        if length >= self.bucket.max(rtt) {
            self.before = self.latest;
            self.latest = BitRate::of(self.bytes, length).unwrap_or(self.latest);
            self.since = Some(now);
            self.bytes = Bytes::ZERO;
        }
        self.bytes += bytes;
    }

    /// Drops the measurements: the path has changed.
    pub(super) fn forget(&mut self) {
        *self = Self::new(self.bucket);
    }

    /// Zero before the first bucket is full.
    pub(super) fn get(&self) -> BitRate {
        self.latest.max(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUCKET: Span = Span::from_millis(200);

    #[test]
    fn a_rate_is_exact_though_buckets_do_not_end_with_a_packet() {
        let mut peak = PeakRate::new(BUCKET);
        for packet in 0..500 {
            peak.on_arrival(
                Time::ZERO + Span::from_micros(1500) * packet,
                Bytes::new(1500),
                Span::ZERO,
            );
        }
        assert_eq!(peak.get(), BitRate::from_mbps(8));
    }

    #[test]
    fn a_slower_path_is_known_after_two_buckets() {
        let mut peak = PeakRate::new(BUCKET);
        let mut now = Time::ZERO;
        while now < Time::ZERO + BUCKET * 2 {
            peak.on_arrival(now, Bytes::new(1000), Span::ZERO);
            now += Span::from_millis(1);
        }
        let slower_at = now;
        while peak.get() == BitRate::from_mbps(8) {
            peak.on_arrival(now, Bytes::new(1000), Span::ZERO);
            now += Span::from_millis(4);
        }
        let after = now.since(slower_at);
        assert!(after > BUCKET && after <= BUCKET * 3, "{after}");
        assert_eq!(peak.get(), BitRate::from_mbps(2));
    }
}
