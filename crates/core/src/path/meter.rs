//! Measures the dequeue rate of a device from the packets in its queue.
//!
//! ```text
//! μ = packets that left / time under load           packets/s (2.1): n queued packets take n/μ
//! ```
//!
//! Shreedhar, PhD thesis, IIIT-Delhi, section 2.4. Algorithm 1 there counts departures in a
//! sampling time, and only while packets are queued: idle time would turn the dequeue rate into the
//! sender's rate.

use super::DeviceQueue;
use crate::unit::{Span, Time};

/// Over how much time under load the rate of a device is taken.
const SAMPLING: Span = Span::from_millis(10);

/// Turns counts of a device into what a scheduler sees.
///
/// The rate is that at which the device serves: of the last 10 ms in which something waited whenever
/// somebody looked. Time in which it ran empty tells of who sends, and is left out, as far as looks
/// show it.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeviceMeter {
    packets: u64,
    rate: f64,
    /// When somebody looked last, and what had left by then.
    last: Option<(Time, u64)>,
    /// Time under load that is not in `rate` yet, and what left in it.
    busy: (Span, u64),
}

impl DeviceMeter {
    /// So many packets are in the device now, and so many have left it since its start.
    pub fn look(&mut self, now: Time, packets: u64, left: u64) {
        let before = self.packets;
        self.packets = packets;
        let Some((at, left_before)) = self.last.replace((now, left)) else { return };
        let gone = left.saturating_sub(left_before);
        if before == 0 || packets == 0 && gone >= before {
            return;
        }
        self.busy.0 += now.since(at);
        self.busy.1 += gone;
        if self.busy.0 >= SAMPLING || self.rate == 0.0 && self.busy.1 > 0 {
            let (span, gone) = core::mem::take(&mut self.busy);
            self.rate = gone as f64 / span.as_secs_f64();
        }
    }

    /// The device counts departures anew; its rate stays until it is measured again.
    pub fn forget_departures(&mut self) {
        (self.last, self.busy) = (None, (Span::ZERO, 0));
    }

    /// What a scheduler sees.
    pub const fn queue(&self) -> DeviceQueue {
        DeviceQueue { packets: self.packets, rate: self.rate }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_time_under_load() {
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        let mut meter = DeviceMeter::default();
        for ms in 0..=21 {
            meter.look(at(ms), 3, 2 * ms);
        }
        assert_eq!(meter.queue(), DeviceQueue { packets: 3, rate: 2_000.0 });
        // It runs empty, and for a second next to nothing is sent.
        meter.look(at(1_021), 0, 60);
        meter.look(at(1_033), 1, 66);
        assert_eq!(meter.queue(), DeviceQueue { packets: 1, rate: 2_000.0 });
        // Under load again, at a quarter of the rate.
        meter.look(at(1_045), 4, 72);
        assert_eq!(meter.queue(), DeviceQueue { packets: 4, rate: 500.0 });
    }

    #[test]
    fn the_first_packets_tell_at_once() {
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        let mut meter = DeviceMeter::default();
        meter.look(at(0), 8, 0);
        assert_eq!(meter.queue(), DeviceQueue { packets: 8, rate: 0.0 });
        meter.look(at(2), 7, 1);
        assert_eq!(meter.queue(), DeviceQueue { packets: 7, rate: 500.0 });
    }
}
