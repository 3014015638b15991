//! The queueing delay of an interface: in its queueing discipline, and in the ring of the device.

use crate::advise::observation::{Interface, InterfaceSample, median};

/// The minimum fraction of samples in which a standing queue has bytes.
const OCCUPIED: f64 = 0.4;

/// Bytes in the discipline and in the ring.
pub(super) fn queued(sample: &InterfaceSample) -> u64 {
    sample.queued_bytes + sample.ring_bytes
}

/// The rate at which the queue drains while it has bytes, in bytes per second.
pub(super) fn drain_rate(interface: &Interface) -> Option<f64> {
    let backlogged = interface.samples.windows(2).filter(|pair| pair.iter().all(|s| queued(s) > 0));
    let (bytes, seconds) = backlogged.fold((0, 0.0), |(bytes, seconds), pair| {
        let left = pair[1].left_bytes.saturating_sub(pair[0].left_bytes);
        (bytes + left, seconds + pair[1].at - pair[0].at)
    });
    (bytes > 0 && seconds > 0.0).then(|| bytes as f64 / seconds)
}

/// The queueing delay in seconds: the median while the queue has any bytes. `None` if it is empty
/// for most of the time.
pub(in crate::advise) fn delay(interface: &Interface) -> Option<f64> {
    let rate = drain_rate(interface)?;
    let occupied = interface.samples.iter().map(queued).filter(|bytes| *bytes > 0);
    let delays: Vec<f64> = occupied.map(|bytes| bytes as f64 / rate).collect();
    let share = delays.len() as f64 / interface.samples.len().max(1) as f64;
    (share >= OCCUPIED).then(|| median(delays))?
}
