//! What a subflow's device lets be seen: the packets in its queue, and how fast they leave.

use freshline_core::path::DeviceQueue;
use freshline_core::unit::{Span, Time};

/// Over how long the rate of a device is taken.
pub const SAMPLING: Span = Span::from_millis(10);

/// Turns counts of a device into what a scheduler sees.
///
/// The rate is that of the last whole window. A window in which nobody looked for more than twice
/// its length tells of a pause and not of the device, and is left out, unless who looks is
/// [patient](DeviceMeter::patient).
#[derive(Debug, Clone, Copy, Default)]
pub struct DeviceMeter {
    packets: u64,
    rate: f64,
    window: Option<(Time, u64)>,
    takes_pauses: bool,
}

impl DeviceMeter {
    /// For who looks rarely, as a source of updates does: all windows count.
    pub fn patient() -> Self {
        Self { takes_pauses: true, ..Self::default() }
    }

    /// So many packets are in the device now, and so many have left it since its start.
    pub fn look(&mut self, now: Time, packets: u64, left: u64) {
        self.packets = packets;
        let Some((since, before)) = self.window else {
            self.window = Some((now, left));
            return;
        };
        let span = now.since(since);
        if span < SAMPLING {
            return;
        }
        if self.takes_pauses || span <= SAMPLING * 2 {
            self.rate = left.saturating_sub(before) as f64 / span.as_secs_f64();
        }
        self.window = Some((now, left));
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
    fn the_rate_is_that_of_the_last_whole_window_in_which_somebody_looked() {
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        let mut meter = DeviceMeter::default();
        for ms in 0..=25 {
            meter.look(at(ms), 3, 2 * ms);
        }
        assert_eq!(meter.queue(), DeviceQueue { packets: 3, rate: 2_000.0 });
        // A pause of a second, in which 10 more packets left.
        meter.look(at(1025), 0, 60);
        assert_eq!(meter.queue(), DeviceQueue { packets: 0, rate: 2_000.0 });
        meter.look(at(1037), 1, 66);
        assert_eq!(meter.queue(), DeviceQueue { packets: 1, rate: 500.0 });
    }
}
