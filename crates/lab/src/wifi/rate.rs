//! Which mode to send in: a fixed one, or the one that promises most.

use freshline_core::unit::Time;
use rand::Rng;
use serde::{Deserialize, Serialize};

use super::mode::Mode;

/// How stations choose among the modes of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateChoice {
    /// Always the fastest.
    #[default]
    Fixed,
}

/// The choice of modes for one receiver.
#[derive(Debug)]
pub(super) enum RateControl {
    /// This one.
    Fixed(usize),
}

impl RateControl {
    pub(super) fn new(choice: RateChoice, modes: &[Mode]) -> Self {
        match choice {
            RateChoice::Fixed => Self::Fixed(modes.len() - 1),
        }
    }

    /// The mode for a transmission at `now` whose first MPDU was sent `tries` times before.
    pub(super) fn choose(&mut self, _now: Time, _tries: u8, _rng: &mut impl Rng) -> usize {
        match self {
            Self::Fixed(mode) => *mode,
        }
    }

    /// So many of the MPDUs sent in `mode` were received.
    pub(super) fn report(&mut self, _mode: usize, _sent: usize, _received: usize) {}
}
