//! Probes of `--target`: they show in which direction the queue is.

use crate::advise::finding::Direction;
use crate::advise::observation::{Probe, quantile};

/// The minimum number of probes for a result.
const MIN_PROBES: usize = 8;
/// The minimum significant variation of one-way delays in seconds: the target's clock counts ms.
const MIN_VARIATION: f64 = 0.008;
/// The minimum ratio of the variations of the two directions.
const CLEARLY: f64 = 2.0;

/// The direction whose one-way delays vary more; `None` if the target does not report its clock, or
/// if neither direction clearly varies more.
///
/// Clocks differ by an unknown constant, so a delay is known up to a constant, too. A queue that a transfer
/// fills varies with the transfer's window.
pub(super) fn direction(probes: &[Probe]) -> Option<Direction> {
    let [up, down] = variations(probes)?;
    match () {
        () if up.max(down) < MIN_VARIATION => None,
        () if up >= CLEARLY * down => Some(Direction::Up),
        () if down >= CLEARLY * up => Some(Direction::Down),
        () => None,
    }
}

/// The variation of the one-way delays up and down in seconds: from the 10 % to the 90 % quantile.
pub(super) fn variations(probes: &[Probe]) -> Option<[f64; 2]> {
    let variation = |of: fn(&Probe) -> Option<f64>| {
        let delays: Vec<f64> = probes.iter().filter_map(of).collect();
        if delays.len() < MIN_PROBES {
            return None;
        }
        Some(quantile(delays.clone(), 0.9)? - quantile(delays, 0.1)?)
    };
    Some([variation(|probe| probe.up)?, variation(|probe| probe.down)?])
}
