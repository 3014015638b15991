//! What changes in a world while it runs.

use freshline_core::unit::{BitRate, Span, Time};
use freshline_core::wlan::mac::Mode;

/// A moment from which on a cell or a hop is another one.
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
}
