//! The faults of a path during a period.

use std::fmt;

use freshline_core::link::{Direction, GilbertElliott, Loss};
use freshline_core::unit::Span;
use serde::Serialize;

use crate::world::Faults;

/// The faults of a path during a period; probabilities from 0 to 1. The default is a healthy path.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Weather {
    /// The maximum of a datagram's random delay beyond the path's delay, so that datagrams overtake
    /// each other.
    pub jitter: Span,
    /// The probability of independent losses.
    pub loss: f64,
    /// The probability, per datagram, that a burst of losses begins. Gilbert, "Capacity of a
    /// Burst-Noise Channel", 1960: two states, in the bad one of which everything is lost.
    pub bursts: f64,
    /// The probability that a datagram arrives twice.
    pub duplication: f64,
    /// The probability that up to three bits of a datagram flip.
    pub corruption: f64,
    /// The probability that a datagram is truncated.
    pub truncation: f64,
    /// The ratio of strangers' datagrams to Freshline's, to either end.
    pub foreign: f64,
    /// The directions that are blocked.
    pub partition: Partition,
}

impl fmt::Display for Weather {
    /// The differences from a healthy path.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::default() {
            return f.write_str("healthy");
        }
        write!(f, "jitter {}", self.jitter)?;
        for (name, probability) in [
            ("loss", self.loss),
            ("bursts", self.bursts),
            ("duplication", self.duplication),
            ("corruption", self.corruption),
            ("truncation", self.truncation),
            ("foreign", self.foreign),
        ] {
            if probability > 0.0 {
                write!(f, ", {name} {probability:.3}")?;
            }
        }
        match self.partition {
            Partition::Neither => Ok(()),
            Partition::ToMonitor => f.write_str(", nothing reaches the monitor"),
            Partition::ToSource => f.write_str(", nothing reaches the source"),
            Partition::Both => f.write_str(", nothing passes"),
        }
    }
}

/// The directions that are blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Partition {
    /// No direction.
    #[default]
    Neither,
    /// Updates.
    ToMonitor,
    /// Answers.
    ToSource,
    /// Both directions.
    Both,
}

/// The mean length of a burst of losses, in datagrams.
const BURST: f64 = 8.0;

impl Weather {
    /// Its loss in a direction.
    pub(super) fn loss(&self, direction: Direction) -> Loss {
        let is_cut = match self.partition {
            Partition::Neither => false,
            Partition::ToMonitor => direction == Direction::Forward,
            Partition::ToSource => direction == Direction::Reverse,
            Partition::Both => true,
        };
        if is_cut {
            return Loss::Bernoulli(1.0);
        }
        Loss::GilbertElliott(GilbertElliott {
            good_loss: self.loss,
            bad_loss: 1.0,
            to_bad: self.bursts,
            to_good: 1.0 / BURST,
        })
    }

    /// Its other faults; datagrams with flipped bits arrive if they are `unchecked`.
    pub(super) fn faults(&self, unchecked: bool) -> Faults {
        let Self { duplication, truncation, corruption, .. } = *self;
        Faults { duplication, truncation, corruption, unchecked }
    }
}
