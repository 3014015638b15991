//! How a path treats datagrams for a while.

use std::fmt;

use freshline_core::link::{Direction, GilbertElliott, Loss};
use freshline_core::unit::Span;
use serde::Serialize;

use crate::world::Faults;

/// How the path treats datagrams for a while; probabilities from 0 to 1. The default is a healthy
/// path.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Weather {
    /// Each datagram takes up to this much longer than the delay, so that they overtake.
    pub jitter: Span,
    /// Datagrams lost one by one.
    pub loss: f64,
    /// The chance, at each datagram, that a burst of losses begins. Gilbert, "Capacity of a
    /// Burst-Noise Channel", 1960: two states, everything is lost in the bad one.
    pub bursts: f64,
    /// Datagrams that arrive twice.
    pub duplication: f64,
    /// Datagrams in which up to three bits flip.
    pub corruption: f64,
    /// Datagrams that lose their end.
    pub truncation: f64,
    /// Datagrams of strangers, for each of ours, to either side.
    pub foreign: f64,
    /// What does not pass at all.
    pub partition: Partition,
}

impl fmt::Display for Weather {
    /// What differs from a healthy path.
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

/// The directions in which nothing passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Partition {
    /// Everything passes.
    #[default]
    Neither,
    /// Updates do not.
    ToMonitor,
    /// Answers do not.
    ToSource,
    /// Nothing does.
    Both,
}

/// The mean length of a burst of losses, in datagrams.
const BURST: f64 = 8.0;

impl Weather {
    /// What it loses in a direction.
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
