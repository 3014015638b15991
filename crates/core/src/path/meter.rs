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

/// The time under load over which the rate of a device is measured.
const SAMPLING: Span = Span::from_millis(10);

/// Converts a device's counters into the queue that a scheduler uses.
///
/// The rate is the device's service rate over the last 10 ms under load, that is, between reads
/// with packets in the queue. Idle time would show the sender's rate instead, and is left out as
/// far as the reads reveal it.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeviceMeter {
    packets: u64,
    rate: f64,
    /// The time of the last read, and the number of departures by then.
    last: Option<(Time, u64)>,
    /// Time under load that is not in `rate` yet, and the departures in it.
    busy: (Span, u64),
}

impl DeviceMeter {
    /// Reads the counters: packets in the device now, and departures since its start.
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

    /// The device has reset its count of departures; its rate stays until it is measured again.
    pub fn forget_departures(&mut self) {
        (self.last, self.busy) = (None, (Span::ZERO, 0));
    }

    /// The queue as schedulers see it.
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
