//! Auto-tuning controls the receive window as Linux does (`tcp_rmem`): the window grows with the
//! bytes that the application reads, so that it never limits the sender.
//!
//! It follows dynamic right-sizing (Fisk, Feng 2001). Once per round trip, as the receiver measures
//! it, the bytes read in that time are compared with the maximum of all former round trips. If they
//! are more, the window becomes twice that, and more if reading accelerates, so that it does not
//! slow down slow start, which doubles:
//!
//! ```text
//! read > max:   window ← max(window, w + 2·w·(read − max)/max),   w = 2·read + 16 segments     (bytes)
//! ```
//!
//! It never shrinks. This is equation 2.12 of Im, PhD thesis, Seoul National University, 2015, "2·ŵ
//! at most `tcp_rmem` max", in the form of today's kernels.

use super::{Arrival, Limits, WindowLaw};
use crate::unit::{Bytes, Span, Time};

/// The window beyond twice the bytes read, in bytes: 16 segments of Ethernet.
const HEADROOM: u64 = 16 * 1448;
/// The initial value of the maximum read in a round trip: an initial window.
const FIRST_READ: u64 = 10 * 1448;

/// Linux's law. Its only settings are its [`Limits`].
#[derive(Debug, Clone, Copy)]
pub struct Autotune {
    size: u64,
    most: u64,
    rtt: Option<Span>,
    /// The start of the current round trip.
    since: Option<Time>,
    /// The bytes read in it.
    read: u64,
    /// The maximum read in a round trip.
    max_read: u64,
}

impl Autotune {
    /// A window within `limits`; it does not shrink below the initial one.
    pub fn new(limits: Limits) -> Self {
        let size = limits.initial.get();
        Self {
            size,
            most: limits.most.get().max(size),
            rtt: None,
            since: None,
            read: 0,
            max_read: FIRST_READ,
        }
    }

    fn grow(&mut self) {
        let growth = (self.read - self.max_read) as f64 / self.max_read as f64;
        let wanted = self.read.saturating_mul(2).saturating_add(HEADROOM) as f64;
        self.size = self.size.max((wanted * (1.0 + 2.0 * growth)) as u64).min(self.most);
        self.max_read = self.read;
    }
}

impl WindowLaw for Autotune {
    fn name(&self) -> &'static str {
        "autotune"
    }

    fn on_round_trip(&mut self, _now: Time, sample: Span) {
        self.rtt = Some(self.rtt.map_or(sample, |rtt| (rtt * 7 + sample) / 8));
    }

    fn on_arrival(&mut self, _now: Time, _arrival: Arrival) {}

    fn on_read(&mut self, now: Time, bytes: Bytes) {
        let Some(since) = self.since else {
            // The first read only begins the first round trip.
            self.since = Some(now);
            return;
        };
        self.read = self.read.saturating_add(bytes.get());
        if self.rtt.is_none_or(|rtt| now.since(since) < rtt) {
            return;
        }
        if self.read > self.max_read {
            self.grow();
        }
        self.since = Some(now);
        self.read = 0;
    }

    fn window(&self) -> Bytes {
        Bytes::new(self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `tcp_rmem` of Linux 6.16.
    const LINUX: Limits = Limits { initial: Bytes::new(65_536), most: Bytes::new(16 << 20) };
    const RTT: Span = Span::from_millis(40);

    #[test]
    fn the_window_stays_ahead_of_a_sender_that_doubles() {
        let mut law = Autotune::new(LINUX);
        for round in 0..12 {
            let now = Time::ZERO + RTT * round;
            law.on_round_trip(now, RTT);
            law.on_read(now, Bytes::new(14_480 << round));
            let next = (14_480 << (round + 1)).min(16 << 20);
            assert!(law.window().get() >= next, "{} in round {round}", law.window());
        }
        assert_eq!(law.window(), LINUX.most);
    }

    #[test]
    fn a_slow_stream_leaves_the_window_alone() {
        let mut law = Autotune::new(LINUX);
        for round in 0..100 {
            let now = Time::ZERO + RTT * round;
            law.on_round_trip(now, RTT);
            law.on_read(now, Bytes::new(10_000));
        }
        assert_eq!(law.window(), LINUX.initial);
    }

    #[test]
    fn the_window_never_passes_its_limit() {
        let mut law = Autotune::new(LINUX);
        for round in 0..4 {
            let now = Time::ZERO + RTT * round;
            law.on_round_trip(now, RTT);
            law.on_read(now, Bytes::MAX);
        }
        assert_eq!(law.window(), LINUX.most);
    }
}
