//! The network of the world: hops that lose, copy, delay and reorder datagrams, and the clocks of its hosts.

use std::collections::BTreeMap;

use freshline_core::unit::{Span, Time};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// The clock of a host.
#[derive(Debug, Clone, Copy, Default)]
pub(in super::super) struct Clock {
    /// Offset from the world's time at time zero.
    pub(in super::super) ahead: Span,
    /// Frequency offset, in parts per million.
    pub(in super::super) ppm: i64,
}

impl Clock {
    pub(super) fn read(self, now: Time) -> Time {
        let counted = i128::from(now.as_nanos()) * i128::from(1_000_000 + self.ppm) / 1_000_000;
        Time::from_nanos(counted as u64) + self.ahead
    }
}

/// Faults that a hop applies to its datagrams.
#[derive(Debug, Clone, Copy, Default)]
pub(in super::super) struct Faults {
    /// The loss and duplication rates, in percent.
    pub(in super::super) loss: u64,
    pub(in super::super) copies: u64,
    /// The minimum delay of each direction, and the maximum random extra delay per datagram, which
    /// reorders datagrams.
    pub(in super::super) delays: [Span; 2],
    pub(in super::super) jitter: Span,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Direction {
    /// To the monitor.
    There,
    Back,
}

/// Datagrams in flight, each with its sender number.
type Flight = BTreeMap<(Time, u64), (u16, Vec<u8>)>;

/// Between the sessions of sources, or of a relay, and a monitor.
pub(in super::super) struct Hop {
    pub(in super::super) faults: Faults,
    /// Drops every datagram that is sent.
    pub(in super::super) is_cut: bool,
    rng: Pcg64,
    sent: u64,
    flights: [Flight; 2],
}

impl Hop {
    pub(super) fn new(seed: u64) -> Self {
        let rng = Pcg64::seed_from_u64(seed);
        let flights = Default::default();
        Self { faults: Faults::default(), is_cut: false, rng, sent: 0, flights }
    }

    pub(super) fn send(&mut self, now: Time, direction: Direction, sender: u16, datagram: &[u8]) {
        let Faults { loss, copies, delays, jitter } = self.faults;
        if self.is_cut || self.draw(100) < loss {
            return;
        }
        for _ in 0..1 + usize::from(self.draw(100) < copies) {
            let late = Span::from_nanos(self.draw(jitter.as_nanos() + 1));
            self.sent += 1;
            let at = (now + delays[direction as usize] + late, self.sent);
            self.flights[direction as usize].insert(at, (sender, datagram.to_vec()));
        }
    }

    /// Takes a datagram that has arrived by now.
    pub(super) fn receive(&mut self, now: Time, direction: Direction) -> Option<(u16, Vec<u8>)> {
        let first = self.flights[direction as usize].first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// Draws a number below `end`.
    fn draw(&mut self, end: u64) -> u64 {
        self.rng.next_u64() % end
    }
}
