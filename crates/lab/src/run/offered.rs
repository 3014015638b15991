//! The load that is offered to links and cells, in windows of 5 s.
//!
//! Every second the packets that have arrived are counted, those dropped included. A window begins
//! at each second of the measured time, and only whole ones count.

use freshline_core::unit::{Span, Time};

use super::{Group, Number};
use crate::scenario::{ACCESS_POINT, Built, LinkConfig, Scenario};
use crate::world::World;
use freshline_core::wlan::mac::StationStats;

/// Time between two counts.
const STEP: Span = Span::from_secs(1);
/// Steps of a window.
const WINDOW: usize = 5;

/// The counts from the end of the warm-up on.
pub(super) struct Offered {
    /// When the next step ends.
    next: Time,
    hops: Vec<Hop>,
    cells: Vec<Cell>,
}

#[derive(Default)]
struct Hop {
    offered: Steps,
    capacity: Steps,
}

/// Of its stations, and of its access point.
type Cell = [Air; 2];

#[derive(Default)]
struct Air {
    offered: Steps,
    carried: Steps,
}

/// Bits counted until the end of each step.
#[derive(Default)]
struct Steps(Vec<f64>);

impl Steps {
    /// Bits in each window.
    fn windows(&self) -> impl Iterator<Item = f64> {
        self.0.iter().zip(self.0.iter().skip(WINDOW)).map(|(from, until)| until - from)
    }

    /// The maximum of all windows, in bit/s.
    fn max(&self) -> Option<f64> {
        let seconds = STEP.as_secs_f64() * WINDOW as f64;
        self.windows().reduce(f64::max).map(|bits| bits / seconds)
    }

    /// Bits in all steps.
    fn sum(&self) -> f64 {
        self.last() - self.0.first().copied().unwrap_or(0.0)
    }

    fn last(&self) -> f64 {
        self.0.last().copied().unwrap_or(0.0)
    }
}

impl Offered {
    /// Runs a world until `end` and counts its packets.
    pub(super) fn run(scenario: &Scenario, built: &mut Built, end: Time) -> Self {
        let now = built.world.now();
        let hops = built.world.hops().iter().map(|_| Hop::default()).collect();
        let cells = built.world.cells().iter().map(|_| Cell::default()).collect();
        let mut offered = Self { next: now + STEP, hops, cells };
        // A step in which a rate changes is counted in parts, as each has one capacity.
        let mut changes: Vec<Time> = scenario.links.iter().flat_map(changes).collect();
        changes.sort_unstable();
        let mut capacity = vec![0.0; offered.hops.len()];
        offered.count(&built.world, &capacity);
        let mut from = now;
        while from < end {
            let change = changes.iter().copied().find(|at| *at > from);
            let until = change.map_or(offered.next, |at| at.min(offered.next)).min(end);
            for (sum, hop) in capacity.iter_mut().zip(built.world.hops()) {
                *sum += hop.capacity_bits(from, until).unwrap_or(f64::INFINITY);
            }
            built.world.run_until(until);
            if until == offered.next {
                offered.count(&built.world, &capacity);
                offered.next = until + STEP;
            }
            from = until;
        }
        offered
    }

    fn count(&mut self, world: &World, capacity: &[f64]) {
        let bits = |bytes: u64| 8.0 * bytes as f64;
        for ((steps, hop), capacity) in self.hops.iter_mut().zip(world.hops()).zip(capacity) {
            steps.offered.0.push(bits(hop.stats().arrived.bytes.get()));
            steps.capacity.0.push(*capacity);
        }
        for (steps, cell) in self.cells.iter_mut().zip(world.cells()) {
            let access_point = &cell.stats().stations[ACCESS_POINT as usize];
            let mut count = |of: fn(&StationStats) -> u64, place: fn(&mut Air) -> &mut Steps| {
                let [all, own] = [cell.stats().sum(of), of(access_point)];
                for (air, bytes) in steps.iter_mut().zip([all - own, own]) {
                    place(air).0.push(bits(bytes));
                }
            };
            count(|station| station.arrived.bytes.get(), |air| &mut air.offered);
            count(|station| station.delivered.bytes.get(), |air| &mut air.carried);
        }
    }

    /// Adds the maximum ratio of offered load to capacity of some hops; nothing if none of them has
    /// a rate, or if the measured time is shorter than a window.
    pub(super) fn overload(&self, name: &'static str, hops: &[usize], group: &mut Group<'_>) {
        add_max(name, hops.iter().flat_map(|&hop| self.hops[hop].ratios()), group);
    }

    /// Adds the maximum of some hops of the ratio of offered load to capacity over the measured time;
    /// nothing if none of them has a rate.
    pub(super) fn load(&self, name: &'static str, hops: &[usize], group: &mut Group<'_>) {
        add_max(name, hops.iter().filter_map(|&hop| self.hops[hop].load()), group);
    }

    /// Adds the maximum load of each cell's stations and of its access point, offered and
    /// delivered.
    pub(super) fn cells(&self, scenario: &Scenario, all: &mut Vec<Number>) {
        for (config, cell) in scenario.cells.iter().zip(&self.cells) {
            let access_point = format!("{}/ap", config.name);
            for (of, air) in [&config.name, &access_point].into_iter().zip(cell) {
                let both = [("offered_max", &air.offered), ("carried_max", &air.carried)];
                for (name, steps) in both {
                    if let Some(max) = steps.max() {
                        Group { of, measured: all }.add(name, "bit/s", max);
                    }
                }
            }
        }
    }
}

fn add_max(name: &'static str, ratios: impl Iterator<Item = f64>, group: &mut Group<'_>) {
    if let Some(max) = ratios.reduce(f64::max) {
        group.add(name, "1", max);
    }
}

impl Hop {
    /// Offered load over capacity of all whole seconds; `None` without a capacity.
    fn load(&self) -> Option<f64> {
        let capacity = self.capacity.sum();
        (capacity > 0.0 && capacity.is_finite()).then(|| self.offered.sum() / capacity)
    }

    /// Offered load over capacity of each window with a capacity.
    fn ratios(&self) -> impl Iterator<Item = f64> {
        let is_limited = self.capacity.last().is_finite();
        let windows = self.offered.windows().zip(self.capacity.windows());
        let windows = windows.filter(move |(_, capacity)| is_limited && *capacity > 0.0);
        windows.map(|(offered, capacity)| offered / capacity)
    }
}

/// When a link's rate changes.
fn changes(link: &LinkConfig) -> impl Iterator<Item = Time> {
    link.changes.iter().filter(|change| change.rate.is_some()).map(|change| Time::ZERO + change.at)
}
