//! Who counts packets a frame.

use freshline_core::unit::{Span, Time};
use freshline_core::wlan::{Aggregation, AggregationParams, Arrival, LevelCounter, Report};

/// By the kernel's times: packets that follow each other within this time are a frame's. The next
/// frame's come when it has been on the air, which takes longer.
pub(super) const WITHIN: Span = Span::from_micros(100);

/// The counter for kernel timestamps.
pub(super) fn counter() -> Box<dyn LevelCounter> {
    Box::new(Bursts::new(WITHIN))
}

/// Gives packets that closely follow each other one timestamp, that of the first.
#[derive(Debug)]
struct Bursts {
    within: Span,
    /// When the burst began, and its newest packet came.
    burst: Option<[Time; 2]>,
    frames: Aggregation,
}

impl Bursts {
    fn new(within: Span) -> Self {
        Self { within, burst: None, frames: Aggregation::new(AggregationParams::default()) }
    }
}

impl LevelCounter for Bursts {
    fn on_packet(&mut self, now: Time, packet: Arrival) {
        let came = packet.stamp;
        let same = self.burst.filter(|[_, last]| came.since(*last) <= self.within);
        let stamp = same.map_or(came, |[began, _]| began);
        self.burst = Some([stamp, came]);
        self.frames.on_packet(now, Arrival { stamp, ..packet });
    }

    fn report(&mut self, now: Time) -> Option<Report> {
        self.frames.report(now)
    }

    fn restart(&mut self) {
        self.burst = None;
        self.frames.restart();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freshline_core::unit::BitRate;

    #[test]
    fn packets_that_follow_closely_are_a_frame() {
        let mut counter = Bursts::new(WITHIN);
        let micros = [0, 5, 90, 400, 405, 900].map(Span::from_micros);
        for (seq, after) in (0..).zip(micros) {
            let stamp = Time::ZERO + after;
            let rate = BitRate::from_mbps(100);
            counter.on_packet(stamp, Arrival { seq, stamp, rate });
        }
        let report = counter.report(Time::ZERO + Span::from_secs(1)).unwrap();
        assert_eq!((report.frames, report.level), (3, 2.0));
    }
}
