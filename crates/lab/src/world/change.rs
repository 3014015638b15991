//! Changes of a network's parameters during a run.

use freshline_core::link::Loss;
use freshline_core::unit::{BitRate, Span, Time};
use freshline_core::wlan::mac::Mode;

use super::Faults;

/// A change of a cell, a hop or a leg with faults at a point in time.
#[derive(Debug, Clone, Copy)]
pub struct Change {
    /// The time of the change.
    pub at: Time,
    /// The new parameter.
    pub what: Changed,
}

/// The parameter that changes, and its new value.
#[derive(Debug, Clone, Copy)]
pub enum Changed {
    /// The mode of a cell's frames.
    Mode {
        /// The cell, by its number.
        cell: usize,
        /// The station whose frames change, in both directions; `None` for all stations.
        station: Option<u32>,
        /// The mode.
        mode: Mode,
    },
    /// The transmission rate of a hop.
    Rate {
        /// The hop, by its number.
        hop: usize,
        /// The rate, above zero.
        rate: BitRate,
    },
    /// The propagation delay of a hop.
    Delay {
        /// The hop, by its number.
        hop: usize,
        /// The delay.
        delay: Span,
    },
    /// The jitter of a hop; raises its delay to at least this.
    Jitter {
        /// The hop, by its number.
        hop: usize,
        /// The jitter.
        jitter: Span,
    },
    /// The packet loss of a hop.
    Loss {
        /// The hop, by its number.
        hop: usize,
        /// The new loss model.
        loss: Loss,
    },
    /// The faults of a leg.
    Faults {
        /// The leg, by its number among those with faults.
        fault: usize,
        /// The new faults.
        faults: Faults,
    },
}
