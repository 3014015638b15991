//! Bytes that a server's flows send, and bytes that arrive at their clients, in sliding windows of
//! five seconds.

use freshline_core::unit::{Bytes, Span, Time};

/// Windows begin at multiples of this.
const BIN: Span = Span::from_millis(100);
/// Bins per window.
const BINS: usize = 50;

/// Bytes sent and arrived, in bins.
#[derive(Debug, Default)]
pub(super) struct Offered {
    since: Time,
    sent: Vec<u64>,
    arrived: Vec<u64>,
}

impl Offered {
    /// Discards everything before `since`.
    pub(super) fn since(since: Time) -> Self {
        Self { since, ..Self::default() }
    }

    pub(super) fn on_sent(&mut self, now: Time, size: Bytes) {
        let at = self.bin(now);
        add(&mut self.sent, at, size);
    }

    pub(super) fn on_arrived(&mut self, now: Time, size: Bytes) {
        let at = self.bin(now);
        add(&mut self.arrived, at, size);
    }

    /// The maximum rate sent in a complete window, in bit/s; `None` before the first window is
    /// complete.
    pub(super) fn worst(&self, now: Time) -> Option<f64> {
        let bits = |sent: u64| sent as f64 * 8.0 / (BIN.as_secs_f64() * BINS as f64);
        self.windows(now).map(|(sent, _)| bits(sent)).reduce(f64::max)
    }

    /// The maximum ratio of sent to delivered bytes in a window.
    pub(super) fn worst_ratio(&self, now: Time) -> Option<f64> {
        let ratio =
            |(sent, arrived): (u64, u64)| (arrived > 0).then(|| sent as f64 / arrived as f64);
        self.windows(now).filter_map(ratio).reduce(f64::max)
    }

    fn windows(&self, now: Time) -> impl Iterator<Item = (u64, u64)> {
        let passed = self.bin(now);
        let sum = |bins: &[u64], at: usize| {
            let bins = bins.get(at..).unwrap_or_default();
            bins.iter().take(BINS).sum()
        };
        (0..(passed + 1).saturating_sub(BINS))
            .map(move |at| (sum(&self.sent, at), sum(&self.arrived, at)))
    }

    fn bin(&self, now: Time) -> usize {
        (now.since(self.since).as_nanos() / BIN.as_nanos()) as usize
    }
}

fn add(bins: &mut Vec<u64>, at: usize, size: Bytes) {
    if bins.len() <= at {
        bins.resize(at + 1, 0);
    }
    bins[at] += size.get();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_five_seconds_are_found_wherever_they_lie() {
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let mut offered = Offered::since(at(10_000));
        for ms in 10_000..30_000 {
            let is_burst = (17_300..22_300).contains(&ms);
            offered.on_sent(at(ms), Bytes::new(if is_burst { 300 } else { 100 }));
            offered.on_arrived(at(ms), Bytes::new(100));
        }
        assert_eq!(offered.worst(at(14_999)), None, "none has passed");
        assert_eq!(offered.worst(at(15_000)), Some(800_000.0));
        assert_eq!(offered.worst(at(30_000)), Some(2_400_000.0));
        assert_eq!(offered.worst_ratio(at(30_000)), Some(3.0));
    }
}
