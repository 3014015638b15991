//! The configuration of a mesh in a scenario.

use freshline_core::router::Packet;
use freshline_core::unit::{Bytes, Packets};
use rand_pcg::Pcg64;
use serde::Deserialize;

use super::adaptation::HEADER;
use super::csma::{Backoff, Csma};
use super::network::{Limit, Mesh};
use super::radio::{Radio, Reach};
use super::tree::{Tree, TreeError};

/// A mesh of IEEE 802.15.4 at 250 kbit/s, with 6LoWPAN over it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeshConfig {
    /// Its name, for paths and reports.
    pub name: String,
    /// The positions of nodes, in m: the border router first, then nodes 1, 2, ….
    pub at: Vec<[f64; 2]>,
    /// The distance up to which nodes receive each other, in m.
    pub range: f64,
    /// The distance up to which they interfere with reception, in m; default: `range`.
    pub interference_range: Option<f64>,
    /// The distance up to which a node senses a busy channel, in m; default: `range`.
    pub carrier_sense_range: Option<f64>,
    /// The capture ratio, above 1: a frame survives another one whose sender is this many times as
    /// far from the receiver. Default: no capture.
    pub capture: Option<f64>,
    /// The fraction of frames and of acks that a link loses to noise, 0 to below 1.
    #[serde(default)]
    pub loss: f64,
    /// Links with a different loss.
    #[serde(default)]
    pub losses: Vec<LinkLoss>,
    /// The parents of nodes 1, 2, …; default: those with the minimum ETX.
    pub parents: Option<Vec<u32>>,
    /// The maximum number of packets at a node, including the one that it sends.
    #[serde(default = "fifteen")]
    pub queue: Packets,
    /// The maximum number of frames at a node, of packets not yet sent, as counted by BLIP's pool;
    /// default: no limit except `queue`.
    pub queue_frames: Option<u32>,
    /// The size of the IPv6 header after compression.
    #[serde(default = "header")]
    pub header: Bytes,
    /// Parameters of CSMA/CA.
    #[serde(default)]
    pub csma: Csma,
}

/// A link with its loss, in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkLoss {
    /// Its ends.
    pub between: [u32; 2],
    /// The fraction of frames and of acks that it loses, 0 to 1; with 1 the nodes do not receive
    /// each other.
    pub loss: f64,
}

/// An invalid mesh.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MeshError {
    /// No node, or too many nodes.
    #[error("`at` has {0} places; give from 2, the border router first, to {most}", most = MeshConfig::MAX_NODES)]
    Nodes(usize),
    /// A range or place that is not a length.
    #[error("`{0}` is not a length; give one in m")]
    Length(&'static str),
    /// A node senses every frame that it can receive.
    #[error(
        "`carrier_sense_range` is below `range`; a node senses every frame that it can receive"
    )]
    Senses,
    /// An invalid capture ratio.
    #[error("`capture` is {0}; give a ratio of distances above 1")]
    Capture(f64),
    /// A pool without frames.
    #[error("`queue_frames` is 0; give at least 1")]
    Frames,
    /// A frame that a node can receive also interferes.
    #[error(
        "`interference_range` is below `range`; each frame that a node can receive can interfere"
    )]
    Disturbs,
    /// An invalid fraction.
    #[error("`{key}` is {value}; give a fraction of 1")]
    Part {
        /// `loss` or `losses`.
        key: &'static str,
        /// The value given.
        value: f64,
    },
    /// An unknown node.
    #[error("`{key}` names node {node}, and the last is {last}")]
    NoNode {
        /// `losses` or `parents`.
        key: &'static str,
        /// The node in question.
        node: u32,
        /// The last existing node.
        last: usize,
    },
    /// The number of parents differs from the number of nodes.
    #[error(
        "`parents` has {given}; give one for each of the {nodes} nodes, the border router left out"
    )]
    Parents {
        /// The number of parents given.
        given: usize,
        /// The number of nodes with a parent.
        nodes: usize,
    },
    /// The parents do not form a tree.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A queue without room.
    #[error("`queue` is 0p; give at least 1p")]
    Queue,
    /// An impossible size of a compressed header.
    #[error("`header` is {0}; give from 2B to 41B, an IPv6 header and its dispatch byte")]
    Header(Bytes),
    /// Exponents beyond the limit of the standard.
    #[error("`csma`: exponents are {min_be} and {max_be}; give min_be up to max_be, up to 8")]
    Exponents {
        /// The smaller exponent.
        min_be: u8,
        /// The larger exponent.
        max_be: u8,
    },
}

impl MeshConfig {
    /// The maximum number of nodes: each may reach all others.
    pub const MAX_NODES: usize = 2_000;

    /// The mesh in its initial state, with its random stream.
    ///
    /// # Errors
    /// [`MeshError`] names the invalid key.
    pub fn build<P: Packet>(&self, rng: Pcg64) -> Result<Mesh<P>, MeshError> {
        self.check()?;
        let reach = self.reach();
        let hears: Vec<Vec<_>> = reach.iter().map(|reach| links(reach)).collect();
        let tree = match &self.parents {
            Some(parents) => Tree::given(parents, &hears)?,
            None => Tree::by_etx(&hears)?,
        };
        let radio = Radio::new(self.csma, reach, rng);
        let radio = match self.capture {
            Some(ratio) => radio.with_capture(ratio),
            None => radio,
        };
        let limit = Limit { packets: self.queue, frames: self.queue_frames };
        Ok(Mesh::new(radio, tree, limit, self.header))
    }

    fn check(&self) -> Result<(), MeshError> {
        let places = self.at.len();
        if !(2..=Self::MAX_NODES).contains(&places) {
            return Err(MeshError::Nodes(places));
        }
        let is_length = |length: f64| length.is_finite() && length > 0.0;
        if !self.at.iter().flatten().all(|place| place.is_finite()) {
            return Err(MeshError::Length("at"));
        }
        if !is_length(self.range) {
            return Err(MeshError::Length("range"));
        }
        match self.interference_range {
            Some(disturbs) if !is_length(disturbs) => {
                return Err(MeshError::Length("interference_range"));
            }
            Some(disturbs) if disturbs < self.range => return Err(MeshError::Disturbs),
            _ => {}
        }
        match self.carrier_sense_range {
            Some(senses) if !is_length(senses) => {
                return Err(MeshError::Length("carrier_sense_range"));
            }
            Some(senses) if senses < self.range => return Err(MeshError::Senses),
            _ => {}
        }
        if let Some(ratio) = self.capture.filter(|ratio| !(ratio.is_finite() && *ratio > 1.0)) {
            return Err(MeshError::Capture(ratio));
        }
        if self.queue_frames == Some(0) {
            return Err(MeshError::Frames);
        }
        if !(0.0..1.0).contains(&self.loss) {
            return Err(MeshError::Part { key: "loss", value: self.loss });
        }
        if let Some(bad) = self.losses.iter().find(|link| !(0.0..=1.0).contains(&link.loss)) {
            return Err(MeshError::Part { key: "losses", value: bad.loss });
        }
        let last = places - 1;
        let ends = self.losses.iter().flat_map(|link| link.between).map(|node| ("losses", node));
        let parents = self.parents.iter().flatten().map(|node| ("parents", *node));
        if let Some((key, node)) = ends.chain(parents).find(|(_, node)| *node as usize > last) {
            return Err(MeshError::NoNode { key, node, last });
        }
        if let Some(parents) = self.parents.as_ref().filter(|parents| parents.len() != last) {
            return Err(MeshError::Parents { given: parents.len(), nodes: last });
        }
        if self.queue == Packets::ZERO {
            return Err(MeshError::Queue);
        }
        if !(Bytes::new(2)..=Bytes::new(41)).contains(&self.header) {
            return Err(MeshError::Header(self.header));
        }
        let Csma { backoff, min_be, max_be, .. } = self.csma;
        if backoff == Backoff::Standard && (min_be > max_be || max_be > 8) {
            return Err(MeshError::Exponents { min_be, max_be });
        }
        Ok(())
    }

    /// The nodes that the frames of each node reach.
    fn reach(&self) -> Vec<Vec<Reach>> {
        let disturbs = self.interference_range.unwrap_or(self.range);
        let senses = self.carrier_sense_range.unwrap_or(self.range);
        let nodes = || (0u32..).zip(&self.at);
        let reach = |from: u32, [x, y]: [f64; 2]| {
            let others = nodes().filter(move |(to, _)| *to != from);
            let reached = others.filter_map(move |(node, [other_x, other_y])| {
                let distance = (other_x - x).hypot(other_y - y);
                let loss = self.loss_between(from, node);
                let hears = distance <= self.range && loss < 1.0;
                let senses = distance <= senses && loss < 1.0;
                let disturbs = distance <= disturbs;
                let reach = Reach { node, distance, hears, senses, disturbs, loss };
                (senses || disturbs).then_some(reach)
            });
            reached.collect()
        };
        nodes().map(|(node, place)| reach(node, *place)).collect()
    }

    fn loss_between(&self, one: u32, other: u32) -> f64 {
        let is_it = |link: &&LinkLoss| [[one, other], [other, one]].contains(&link.between);
        self.losses.iter().find(is_it).map_or(self.loss, |link| link.loss)
    }
}

fn links(reach: &[Reach]) -> Vec<(u32, f64)> {
    reach.iter().filter(|reach| reach.hears).map(|reach| (reach.node, reach.loss)).collect()
}

fn fifteen() -> Packets {
    Packets::new(15)
}

fn header() -> Bytes {
    HEADER
}
