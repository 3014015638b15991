//! From a scenario to a world.

use std::collections::BTreeSet;
use std::ops::Range;

use freshline_core::link::HopConfig;
use freshline_core::unit::Time;
use rand::RngExt;

use super::flow::Stations;
use super::{CellsConfig, FlowConfig, LinkConfig, Scenario, ScenarioError};
use crate::engine::Streams;
use crate::wifi::{Cell, CellConfig};
use crate::world::{Leg, Parcel, Routed, Wire, World};

/// What [`Scenario::build`] made, with the places of what the scenario names.
pub struct Built {
    /// The network.
    pub world: World,
    /// For each of the scenario's flows, its flows in the world.
    pub flows: Vec<Range<usize>>,
    /// For each of the scenario's links, its hops there and back.
    pub links: Vec<LinkHops>,
}

/// The hops of a link.
#[derive(Debug, Clone, Default)]
pub struct LinkHops {
    /// From the source towards the monitor, in order.
    pub there: Vec<usize>,
    /// From the monitor towards the source, in order.
    pub back: Vec<usize>,
}

impl Scenario {
    /// Whether a world can be built from it.
    pub(super) fn check(&self) -> Result<(), ScenarioError> {
        let (warm_up, duration) = (self.warm_up, self.duration);
        if warm_up >= duration {
            return Err(ScenarioError::NothingMeasured { warm_up, duration });
        }
        if self.flows.is_empty() {
            return Err(ScenarioError::NoFlow);
        }
        if self.runs == 0 {
            return Err(ScenarioError::Zero("`runs`".to_owned()));
        }
        let links = self.links.iter().map(|link| (&link.name, link.count));
        let cells = self.cells.iter().map(|cell| (&cell.name, 1));
        check_names("links or cells", links.chain(cells))?;
        check_names("flows", self.flows.iter().map(|flow| (&flow.name, flow.count)))?;
        self.build(0).map(drop)
    }

    /// The world of a run, at time zero.
    pub fn build(&self, run: u32) -> Result<Built, ScenarioError> {
        let streams = Streams::new(self.seed, run);
        let mut hops = Vec::new();
        let links: Result<Vec<_>, _> =
            self.links.iter().map(|link| link.build(streams, &mut hops)).collect();
        let links = links?;
        let mut stations = Stations::new(&self.cells);
        let mut flows = Vec::new();
        let mut ranges = Vec::new();
        for config in &self.flows {
            let first = flows.len();
            for _ in 0..config.count {
                let (legs, there) = config.legs(self, &links, &mut stations)?;
                let mut rng = streams.stream("flow", flows.len());
                let late = config.start_spread.mul_f64(rng.random());
                let starts_at = Time::ZERO + config.start + late;
                let stop = config.stop.unwrap_or(self.duration).min(self.duration);
                let between = (starts_at, Time::ZERO + stop);
                let flow = config.build(between, streams, flows.len(), rng)?;
                flows.push(Routed::new(flow, legs, there));
            }
            ranges.push(first..flows.len());
        }
        let cells = self.cells.iter().zip(stations.counts()).enumerate();
        let cells: Result<Vec<_>, _> =
            cells.map(|(index, (cell, stations))| cell.build(streams, index, stations)).collect();
        Ok(Built { world: World::new(hops, cells?, flows), flows: ranges, links })
    }
}

/// No two have one name, and none is there zero times.
fn check_names<'a>(
    kind: &'static str,
    all: impl Iterator<Item = (&'a String, u32)>,
) -> Result<(), ScenarioError> {
    let mut names = BTreeSet::new();
    for (name, count) in all {
        if count == 0 {
            return Err(ScenarioError::Zero(format!("`count` of `{name}`")));
        }
        if !names.insert(name) {
            return Err(ScenarioError::SameName(kind, name.clone()));
        }
    }
    Ok(())
}

impl LinkConfig {
    fn build(&self, streams: Streams, hops: &mut Vec<Wire>) -> Result<LinkHops, ScenarioError> {
        let mut built = LinkHops::default();
        let back = self.back.as_ref().unwrap_or(&self.there);
        for (direction, config, places) in
            [("there", &self.there, &mut built.there), ("back", back, &mut built.back)]
        {
            for _ in 0..self.count {
                places.push(hops.len());
                hops.push(self.hop(direction, config, streams, hops.len())?);
            }
        }
        Ok(built)
    }

    fn hop(
        &self,
        direction: &'static str,
        config: &HopConfig,
        streams: Streams,
        index: usize,
    ) -> Result<Wire, ScenarioError> {
        config.build(streams.stream("hop", index)).map_err(|error| ScenarioError::Link {
            link: self.name.clone(),
            direction,
            error,
        })
    }
}

impl CellsConfig {
    fn build(
        &self,
        streams: Streams,
        index: usize,
        stations: u32,
    ) -> Result<Cell<Parcel>, ScenarioError> {
        let stations = stations.max(self.radio.stations);
        let radio = CellConfig { stations, ..self.radio.clone() };
        radio
            .build(streams.stream("cell", index))
            .map_err(|error| ScenarioError::Cell { cell: self.name.clone(), error })
    }
}

impl FlowConfig {
    /// The legs there and those back, and how many lead there.
    fn legs(
        &self,
        scenario: &Scenario,
        links: &[LinkHops],
        stations: &mut Stations,
    ) -> Result<(Vec<Leg>, u32), ScenarioError> {
        let (mut there, mut back) = (Vec::new(), Vec::new());
        for (position, name) in self.path.iter().enumerate() {
            if let Some(link) = scenario.links.iter().position(|link| link.name == *name) {
                let leg = |hop: &usize| Leg::Hop(*hop as u32);
                there.extend(links[link].there.iter().map(leg));
                // Back is turned round as a whole below.
                back.extend(links[link].back.iter().rev().map(leg));
            } else if let Some(cell) = scenario.cells.iter().position(|cell| cell.name == *name) {
                let (begins, ends) = (position == 0, position + 1 == self.path.len());
                if !begins && !ends {
                    let what = "a cell can only be the first or the last of a path";
                    return Err(ScenarioError::Flow { flow: self.name.clone(), what });
                }
                let (up, down) = stations.join(cell, self.dscp);
                let (first, second) = if begins { (up, down) } else { (down, up) };
                there.push(first);
                back.push(second);
            } else {
                return Err(self.unknown_link(name, scenario));
            }
        }
        back.reverse();
        if self.backwards {
            (there, back) = (back, there);
        }
        let ahead = there.len() as u32;
        there.append(&mut back);
        Ok((there, ahead))
    }

    fn unknown_link(&self, name: &str, scenario: &Scenario) -> ScenarioError {
        let links = scenario.links.iter().map(|link| link.name.as_str());
        let cells = scenario.cells.iter().map(|cell| cell.name.as_str());
        let known: Vec<_> = links.chain(cells).collect();
        ScenarioError::UnknownLink {
            flow: self.name.clone(),
            link: name.to_owned(),
            known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
        }
    }
}
