//! A network of a scenario: its hops, and the pairs of nodes that have flows.

use freshline_core::link::{FieldError, HopConfig};
use freshline_core::router::QdiscConfig;
use rand::RngExt;
use serde::Deserialize;

use crate::engine::Streams;
use crate::topology::{Crossing, Link, Topology, TopologyError};
use crate::world::{Leg, Wire};

/// The hops of a link.
#[derive(Debug, Clone, Default)]
pub struct LinkHops {
    /// From the source towards the monitor, in order.
    pub forward: Vec<usize>,
    /// From the monitor towards the source, in order.
    pub reverse: Vec<usize>,
}

/// A network, and the settings of its links.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopologyConfig {
    /// The file of the graph, as [`Topology::parse`] reads it.
    pub file: String,
    /// The hop of each link in each direction. Its delay is added to the link's own.
    #[serde(default)]
    pub hop: HopConfig,
    /// The probability, 0 to 1, of flows from one node to another, for each ordered pair of nodes.
    /// Each run draws its pairs.
    pub pairs: f64,
    /// The queue of links that have not adopted the one of `hop`.
    pub legacy: Option<QdiscConfig>,
    /// The probability, 0 to 1, that a link, in both directions, has adopted the queue of `hop`;
    /// default: 1. Below 1 it needs `legacy`. Each run draws its links.
    #[serde(default = "all")]
    pub adoption: f64,
    /// The content of the file.
    #[serde(skip)]
    graph: Option<Topology>,
}

/// A network that cannot be built.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BadTopology {
    /// Its file cannot be read.
    #[error("cannot read `{file}`: {error}")]
    Unreadable {
        /// The file.
        file: String,
        /// The reason.
        error: String,
    },
    /// Its file does not describe a network.
    #[error("`{file}`: {error}")]
    Graph {
        /// The file.
        file: String,
        /// The error.
        error: TopologyError,
    },
    /// A probability outside of its range.
    #[error("`{key}` is {value}; give a probability from 0 to 1")]
    NotAProbability {
        /// `pairs` or `adoption`.
        key: &'static str,
        /// The value given.
        value: f64,
    },
    /// Links without a queue.
    #[error("`adoption` is below 1; say with `legacy` which queue the other links have")]
    NoLegacy,
    /// An invalid hop.
    #[error("`hop`: {0}")]
    Hop(#[from] FieldError),
}

/// A network in a world.
pub(super) struct Network<'a> {
    graph: &'a Topology,
    /// The number of its first hop. The forward and the reverse hop of link n are 2n and 2n + 1
    /// from there on.
    first_hop: usize,
    /// The pairs of nodes that have flows.
    pairs: Vec<[usize; 2]>,
}

impl TopologyConfig {
    /// Reads the graph with `read` from the file's name.
    pub(super) fn read(
        &mut self,
        read: impl FnOnce(&str) -> std::io::Result<String>,
    ) -> Result<(), BadTopology> {
        let file = || self.file.clone();
        let unreadable = |error: std::io::Error| BadTopology::Unreadable {
            file: file(),
            error: error.to_string(),
        };
        let text = read(&self.file).map_err(unreadable)?;
        let graph = Topology::parse(&text);
        self.graph = Some(graph.map_err(|error| BadTopology::Graph { file: file(), error })?);
        Ok(())
    }

    /// Adds its hops to those of a world, and draws the pairs of a run.
    pub(super) fn build(
        &self,
        streams: Streams,
        hops: &mut Vec<Wire>,
    ) -> Result<Option<Network<'_>>, BadTopology> {
        let Some(graph) = &self.graph else { return Ok(None) };
        for (key, value) in [("pairs", self.pairs), ("adoption", self.adoption)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(BadTopology::NotAProbability { key, value });
            }
        }
        let first_hop = hops.len();
        let mut adoption = streams.stream("adoption", 0);
        for link in graph.links() {
            let hop = self.hop_of(link, adoption.random())?;
            for _ in 0..2 {
                hops.push(hop.build(streams.stream("hop", hops.len()))?);
            }
        }
        let pairs = self.pairs_of(graph, streams);
        Ok(Some(Network { graph, first_hop, pairs }))
    }

    /// The names of its hops, in their order: `FROM/TO`, with the names of two nodes.
    pub(crate) fn hop_names(&self) -> impl Iterator<Item = String> {
        self.graph.iter().flat_map(|graph| {
            graph.links().iter().flat_map(|Link { ends: [first, second], .. }| {
                let [first, second] = [first, second].map(|end| &graph.nodes()[*end]);
                [[first, second], [second, first]].map(|[from, to]| format!("{from}/{to}"))
            })
        })
    }

    /// The hops of a link. It adopts the queue if `chance`, from 0 to 1, is below the probability.
    fn hop_of(&self, link: &Link, chance: f64) -> Result<HopConfig, BadTopology> {
        let mut hop = self.hop.clone();
        hop.delay += link.delay;
        match &self.legacy {
            Some(legacy) if chance >= self.adoption => hop.queue = legacy.clone(),
            None if self.adoption < 1.0 => return Err(BadTopology::NoLegacy),
            _ => {}
        }
        Ok(hop)
    }

    fn pairs_of(&self, graph: &Topology, streams: Streams) -> Vec<[usize; 2]> {
        let mut rng = streams.stream("pairs", 0);
        let nodes = 0..graph.nodes().len();
        let ordered = nodes.clone().flat_map(|from| nodes.clone().map(move |to| [from, to]));
        let different = ordered.filter(|[from, to]| from != to);
        different.filter(|_| rng.random::<f64>() < self.pairs).collect()
    }
}

impl Network<'_> {
    /// The forward and reverse legs of each pair.
    pub(super) fn routes(&self) -> impl Iterator<Item = [Vec<Leg>; 2]> {
        self.pairs.iter().map(|&[from, to]| [self.legs(from, to), self.legs(to, from)])
    }

    /// Its hops.
    pub(super) fn hops(&self) -> LinkHops {
        let count = 2 * self.graph.links().len();
        LinkHops {
            forward: (self.first_hop..self.first_hop + count).collect(),
            reverse: Vec::new(),
        }
    }

    fn legs(&self, from: usize, to: usize) -> Vec<Leg> {
        let hop = |Crossing { link, forward }: Crossing| {
            Leg::Hop((self.first_hop + 2 * link + usize::from(!forward)) as u32)
        };
        self.graph.route(from, to).into_iter().map(hop).collect()
    }
}

fn all() -> f64 {
    1.0
}
