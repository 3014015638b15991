//! The path between one source and the monitor, both ways, and what it does to datagrams.

use std::fmt;

use freshline_core::link::Direction;
use freshline_core::unit::{Span, Time};
use rand::RngExt;
use rand_pcg::Pcg64;
use serde::Serialize;

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

/// What becomes of a damaged datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Damaged {
    /// The checksum of the layer below finds it and it is lost: the rule.
    Dropped,
    /// It arrives as it is, as over UDP without a checksum.
    Delivered,
}

/// The mean length of a burst of losses, in datagrams.
const BURST: f64 = 8.0;

pub(super) struct Path {
    pub(super) weather: Weather,
    delay: Span,
    damaged: Damaged,
    /// Whether a burst of losses is on, in either direction.
    in_burst: bool,
    rng: Pcg64,
}

impl Path {
    /// A healthy path.
    pub(super) fn new(delay: Span, damaged: Damaged, rng: Pcg64) -> Self {
        Self { weather: Weather::default(), delay, damaged, in_burst: false, rng }
    }

    /// Takes a datagram; what arrives of it, and when, goes to `arrives`.
    pub(super) fn carry(
        &mut self,
        now: Time,
        direction: Direction,
        datagram: &[u8],
        mut arrives: impl FnMut(Time, Vec<u8>),
    ) {
        if self.is_lost(direction) {
            return;
        }
        let copies = 1 + usize::from(self.rng.random_bool(self.weather.duplication));
        for _ in 0..copies {
            let mut copy = datagram.to_vec();
            if self.rng.random_bool(self.weather.truncation) {
                copy.truncate(self.rng.random_range(0..datagram.len()));
            }
            if self.rng.random_bool(self.weather.corruption) {
                if self.damaged == Damaged::Dropped {
                    continue;
                }
                self.flip_bits(&mut copy);
            }
            let jitter = self.rng.random_range(0..=self.weather.jitter.as_nanos());
            arrives(now + self.delay + Span::from_nanos(jitter), copy);
        }
    }

    fn is_lost(&mut self, direction: Direction) -> bool {
        let leave_or_enter = if self.in_burst { 1.0 / BURST } else { self.weather.bursts };
        self.in_burst ^= self.rng.random_bool(leave_or_enter);
        let cut = match self.weather.partition {
            Partition::Neither => false,
            Partition::ToMonitor => direction == Direction::Forward,
            Partition::ToSource => direction == Direction::Reverse,
            Partition::Both => true,
        };
        let burst = self.in_burst && self.weather.bursts > 0.0;
        cut || burst || self.rng.random_bool(self.weather.loss)
    }

    fn flip_bits(&mut self, datagram: &mut [u8]) {
        let Some(last) = (datagram.len() * 8).checked_sub(1) else { return };
        for _ in 0..self.rng.random_range(1..4) {
            let bit = self.rng.random_range(0..=last);
            datagram[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried(weather: Weather, damaged: Damaged) -> Vec<(Time, Vec<u8>)> {
        let mut path = Path::new(Span::from_millis(5), damaged, Pcg64::new(1, 0));
        path.weather = weather;
        let mut arrived = Vec::new();
        for _ in 0..1_000 {
            path.carry(Time::ZERO, Direction::Forward, &[0; 40], |at, datagram| {
                arrived.push((at, datagram));
            });
        }
        arrived
    }

    #[test]
    fn a_healthy_path_only_takes_time() {
        let arrived = carried(Weather::default(), Damaged::Delivered);
        assert_eq!(arrived.len(), 1_000);
        let on_time = (Time::ZERO + Span::from_millis(5), vec![0; 40]);
        assert!(arrived.iter().all(|arrival| *arrival == on_time));
    }

    #[test]
    fn every_fault_happens_about_as_often_as_told() {
        let healthy = Weather::default();
        let count = |weather| carried(weather, Damaged::Dropped).len();
        assert!((650..750).contains(&count(Weather { loss: 0.3, ..healthy })));
        assert!((1_250..1_350).contains(&count(Weather { duplication: 0.3, ..healthy })));
        assert!((650..750).contains(&count(Weather { corruption: 0.3, ..healthy })));
        // Bursts of 8 begin every 8 datagrams: half of everything is lost.
        assert!((400..600).contains(&count(Weather { bursts: 0.125, ..healthy })));
        assert_eq!(count(Weather { partition: Partition::ToMonitor, ..healthy }), 0);
        assert_eq!(count(Weather { partition: Partition::ToSource, ..healthy }), 1_000);
        let cut = carried(Weather { truncation: 1.0, ..healthy }, Damaged::Dropped);
        assert!(cut.iter().all(|(_, datagram)| datagram.len() < 40));
        let damaged = carried(Weather { corruption: 1.0, ..healthy }, Damaged::Delivered);
        assert!(damaged.iter().filter(|(_, datagram)| datagram.contains(&1)).count() > 100);
    }
}
