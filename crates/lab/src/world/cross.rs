//! Cross traffic: packets without congestion control.

use freshline_core::unit::{BitRate, Bytes, Span, Time};
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64;

use super::Period;
use super::measured::Measured;

/// The arrival process of cross traffic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pattern {
    /// At constant intervals.
    Constant,
    /// As a Poisson process.
    Poisson,
    /// At constant intervals during on states. The lengths of both states are exponentially
    /// distributed, with these means.
    OnOff {
        /// Mean length of the on state.
        on: Span,
        /// Mean length of the off state.
        off: Span,
    },
}

/// A running flow of cross traffic.
#[derive(Debug)]
pub struct Cross {
    pattern: Pattern,
    size: Bytes,
    /// The interval between packets, or its mean.
    period: Span,
    next_at: Option<Time>,
    ends_at: Time,
    /// The on state ends.
    off_at: Time,
    rng: Pcg64,
    delivered: Bytes,
    /// The same in the measured time.
    counted: Bytes,
    measured: Measured,
}

impl Cross {
    /// Packets of `size` on the wire, with `rate` while the flow sends, during a period.
    pub fn new(
        pattern: Pattern,
        size: Bytes,
        rate: BitRate,
        Period { from: starts_at, until: ends_at }: Period,
        rng: Pcg64,
    ) -> Self {
        let mut cross = Self {
            pattern,
            size,
            period: rate.time_to_send(size),
            next_at: Some(starts_at),
            ends_at,
            off_at: Time::MAX,
            rng,
            delivered: Bytes::ZERO,
            counted: Bytes::ZERO,
            measured: Measured::between(Period { from: starts_at, until: ends_at }),
        };
        if let Pattern::OnOff { on, .. } = pattern {
            cross.off_at = starts_at + cross.drawn(on);
        }
        cross
    }

    /// The warm-up has ended.
    pub fn begin_measuring(&mut self, now: Time) {
        self.counted = Bytes::ZERO;
        self.measured.begin(now);
    }

    /// The size of the next packet that is due. Call it until it returns `None`.
    pub fn poll_packet(&mut self, now: Time) -> Option<Bytes> {
        let at = self.poll_timeout().filter(|at| *at <= now)?;
        self.next_at = Some(match self.pattern {
            Pattern::Constant => at + self.period,
            Pattern::Poisson => at + self.drawn(self.period),
            Pattern::OnOff { on, off } => {
                let mut next = at + self.period;
                if next > self.off_at {
                    let on_at = self.off_at + self.drawn(off);
                    self.off_at = on_at + self.drawn(on);
                    // The first packet is sent half a period in, so that the number of packets
                    // matches the length of the on state.
                    next = on_at + self.period / 2;
                }
                next
            }
        });
        Some(self.size)
    }

    /// A packet has arrived at the end of its path.
    pub fn on_delivered(&mut self, now: Time, size: Bytes) {
        self.delivered += size;
        if self.measured.has(now) {
            self.counted += size;
        }
    }

    /// When the next packet is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.next_at.filter(|at| *at < self.ends_at)
    }

    /// The bytes that have arrived, with headers.
    pub const fn delivered(&self) -> Bytes {
        self.delivered
    }

    /// The throughput at the receiver, in bit/s with headers; `None` if no time was measured.
    pub fn throughput_bps(&self, now: Time) -> Option<f64> {
        self.measured.rate(now, self.counted.get() as f64 * 8.0)
    }

    fn drawn(&mut self, mean: Span) -> Span {
        let factor: f64 = Exp1.sample(&mut self.rng);
        mean.mul_f64(factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Streams;

    fn packets(pattern: Pattern, seconds: u64) -> u64 {
        let (start, end) = (Time::ZERO, Time::ZERO + Span::from_secs(seconds));
        let rng = Streams::new(1, 0).stream("cross", 0);
        // 1 ms per packet.
        let mut cross = Cross::new(
            pattern,
            Bytes::new(1250),
            BitRate::from_mbps(10),
            Period { from: start, until: end },
            rng,
        );
        let mut sent = 0;
        while let Some(at) = cross.poll_timeout() {
            assert!(cross.poll_packet(at).is_some() && at < end);
            sent += 1;
        }
        sent
    }

    #[test]
    fn each_pattern_sends_at_its_rate() {
        assert_eq!(packets(Pattern::Constant, 10), 10_000);
        // The standard deviation is 1 % of the count.
        let poisson = packets(Pattern::Poisson, 10);
        assert!((9_600..10_400).contains(&poisson), "{poisson}");
        let (on, off) = (Span::from_millis(30), Span::from_millis(70));
        let on_off = packets(Pattern::OnOff { on, off }, 100);
        // A thousand on states of 30 packets each: the standard deviation is 4 %.
        assert!((26_000..34_000).contains(&on_off), "{on_off}");
    }
}
