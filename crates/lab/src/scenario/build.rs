//! From a scenario to a world.

use std::collections::{BTreeMap, BTreeSet};

use freshline_core::unit::{BitRate, Bytes, Span, Time};
use rand::RngExt;

use super::{FlowConfig, LoadConfig, PatternName, Scenario, ScenarioError};
use crate::engine::Streams;
use crate::world::{Flow, Load, Pattern, Routed, Sizes, UpdateFlow, Wire, World};

/// What [`Scenario::build`] made, with the places of what the scenario names.
pub struct Built {
    /// The network.
    pub world: World,
    /// For each of the scenario's flows, its flows in the world.
    pub flows: Vec<std::ops::Range<usize>>,
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
        let counts = self.links.iter().map(|link| ("link", &link.name, link.count));
        let counts = counts.chain(self.flows.iter().map(|flow| ("flow", &flow.name, flow.count)));
        if self.runs == 0 {
            return Err(ScenarioError::Zero("`runs`".to_owned()));
        }
        if let Some((kind, name, _)) = counts.clone().find(|(_, _, count)| *count == 0) {
            return Err(ScenarioError::Zero(format!("`count` of {kind} `{name}`")));
        }
        let mut names = BTreeSet::new();
        if let Some((kind, name, _)) = counts.clone().find(|(kind, name, _)| {
            let new = names.insert((*kind, *name));
            !new
        }) {
            let kind = if kind == "link" { "links" } else { "flows" };
            return Err(ScenarioError::SameName(kind, name.clone()));
        }
        self.build(0).map(drop)
    }

    /// The world of a run, at time zero.
    pub fn build(&self, run: u32) -> Result<Built, ScenarioError> {
        let streams = Streams::new(self.seed, run);
        let mut hops = Vec::new();
        let links = self.build_links(streams, &mut hops)?;
        let by_name: BTreeMap<&str, &LinkHops> =
            self.links.iter().map(|link| link.name.as_str()).zip(&links).collect();
        let mut flows = Vec::new();
        let mut ranges = Vec::new();
        for config in &self.flows {
            let first = flows.len();
            let (legs, there) = config.legs(&by_name)?;
            for _ in 0..config.count {
                let flow = config.build(self.duration, streams, flows.len())?;
                flows.push(Routed::new(flow, legs.clone(), there));
            }
            ranges.push(first..flows.len());
        }
        Ok(Built { world: World::new(hops, flows), flows: ranges, links })
    }

    fn build_links(
        &self,
        streams: Streams,
        hops: &mut Vec<Wire>,
    ) -> Result<Vec<LinkHops>, ScenarioError> {
        let mut links = Vec::new();
        for link in &self.links {
            let mut built = LinkHops::default();
            let directions = [
                ("there", link.there, &mut built.there),
                ("back", link.back.unwrap_or(link.there), &mut built.back),
            ];
            for (direction, config, places) in directions {
                for _ in 0..link.count {
                    let hop = config.build(streams.stream("hop", hops.len())).map_err(|error| {
                        ScenarioError::Link { link: link.name.clone(), direction, error }
                    })?;
                    places.push(hops.len());
                    hops.push(hop);
                }
            }
            links.push(built);
        }
        Ok(links)
    }
}

impl FlowConfig {
    /// The legs there, those back, and how many lead there.
    fn legs(&self, links: &BTreeMap<&str, &LinkHops>) -> Result<(Vec<u32>, u32), ScenarioError> {
        let mut crossed = Vec::new();
        for name in &self.path {
            let link = links.get(name.as_str()).ok_or_else(|| ScenarioError::UnknownLink {
                flow: self.name.clone(),
                link: name.clone(),
                known: match links.keys().copied().collect::<Vec<_>>() {
                    known if known.is_empty() => "none".to_owned(),
                    known => known.join(", "),
                },
            })?;
            crossed.push(*link);
        }
        let there = crossed.iter().flat_map(|link| &link.there);
        let back = crossed.iter().rev().flat_map(|link| &link.back);
        let (first, second): (Vec<_>, Vec<_>) = if self.backwards {
            (back.collect(), there.collect())
        } else {
            (there.collect(), back.collect())
        };
        let there = first.len() as u32;
        Ok((first.into_iter().chain(second).map(|hop| *hop as u32).collect(), there))
    }

    fn build(&self, duration: Span, streams: Streams, index: usize) -> Result<Flow, ScenarioError> {
        let mut rng = streams.stream("flow", index);
        let spread = rng.random_range(0..=self.start_spread.as_nanos());
        let starts_at = Time::ZERO + self.start + Span::from_nanos(spread);
        let ends_at = Time::ZERO + self.stop.unwrap_or(duration).min(duration);
        let between = (starts_at, ends_at);
        match (&self.updates, &self.load) {
            (Some(updates), None) => {
                let law = updates
                    .build_law(streams.stream("law", index))
                    .map_err(|error| ScenarioError::Law { flow: self.name.clone(), error })?;
                let ours = Sizes::of_our_protocol(updates.payload);
                let sizes = Sizes {
                    overhead: updates.overhead.unwrap_or(ours.overhead),
                    ack: updates.ack.unwrap_or(ours.ack),
                    distribution: updates.sizes,
                    ..ours
                };
                if sizes.payload + sizes.overhead == Bytes::ZERO || sizes.ack == Bytes::ZERO {
                    let what = "packets of no bytes; raise `payload`, `overhead` or `ack`";
                    return Err(ScenarioError::Flow { flow: self.name.clone(), what });
                }
                Ok(Flow::Updates(UpdateFlow::new(law, sizes, between, rng)))
            }
            (None, Some(load)) => {
                let pattern = load
                    .pattern()
                    .map_err(|what| ScenarioError::Flow { flow: self.name.clone(), what })?;
                Ok(Flow::Load(Load::new(pattern, load.size, load.rate, between, rng)))
            }
            _ => Err(ScenarioError::NotOneKind(self.name.clone())),
        }
    }
}

impl LoadConfig {
    fn pattern(&self) -> Result<Pattern, &'static str> {
        if self.rate == BitRate::from_bps(0) || self.size == Bytes::ZERO {
            return Err("`rate` and `size` must be above zero");
        }
        match (self.pattern, self.on, self.off) {
            (PatternName::Constant, None, None) => Ok(Pattern::Constant),
            (PatternName::Poisson, None, None) => Ok(Pattern::Poisson),
            (PatternName::OnOff, Some(on), Some(off)) => Ok(Pattern::OnOff { on, off }),
            _ => Err("`on` and `off` belong to the pattern `on-off`, which needs both"),
        }
    }
}
