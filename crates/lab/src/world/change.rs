//! What changes in a world while it runs.

use freshline_core::link::Loss;
use freshline_core::unit::{BitRate, Span, Time};
use freshline_core::wlan::mac::Mode;

use super::Faults;

/// A moment from which on a cell, a hop or a leg with faults is another one.
#[derive(Debug, Clone, Copy)]
pub struct Change {
    /// When.
    pub at: Time,
    /// What.
    pub what: Changed,
}

/// What changes.
#[derive(Debug, Clone, Copy)]
pub enum Changed {
    /// Frames of a cell have another mode.
    Mode {
        /// The cell, by its number.
        cell: usize,
        /// The station whose frames they are, both ways; all unless given.
        station: Option<u32>,
        /// The mode.
        mode: Mode,
    },
    /// A hop transmits at another rate.
    Rate {
        /// The hop, by its number.
        hop: usize,
        /// The rate, above zero.
        rate: BitRate,
    },
    /// What a hop transmits is under way for another time.
    Delay {
        /// The hop, by its number.
        hop: usize,
        /// The delay.
        delay: Span,
    },
    /// The delay of a hop varies by another time, and is at least as long.
    Jitter {
        /// The hop, by its number.
        hop: usize,
        /// The jitter.
        jitter: Span,
    },
    /// A hop loses packets in another way.
    Loss {
        /// The hop, by its number.
        hop: usize,
        /// What it loses.
        loss: Loss,
    },
    /// A leg has other faults.
    Faults {
        /// The leg, by its number among those with faults.
        fault: usize,
        /// Its faults.
        faults: Faults,
    },
}
