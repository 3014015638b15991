//! What flows and nodes of a mesh did, by hops and by node.

use std::ops::Range;

use freshline_core::unit::{Bytes, Span};

use super::{Group, Measured};
use crate::mesh::{DropReason, Mesh, NodeStats, RadioStats};
use crate::scenario::{Built, FlowConfig};
use crate::world::{Parcel, StreamOutcome};

/// The numbers of streams that begin in a mesh: of all together what other streams do not have, and
/// of those at each distance, called by the flow and the hops to the border router from 1 on.
pub(super) fn by_hops(
    config: &FlowConfig,
    built: &Built,
    flows: Range<usize>,
    outcomes: &[StreamOutcome],
    all: &mut Vec<Measured>,
) {
    let flows = &built.world.flows()[flows];
    let depth = |routed: &crate::world::Routed| {
        let (mesh, node) = routed.mesh_node()?;
        Some(built.world.meshes()[mesh as usize].tree().depth(node))
    };
    let depths: Vec<Option<u32>> = flows.iter().map(depth).collect();
    let Some(most) = depths.iter().flatten().max().copied() else { return };
    let segment = config.tcp.as_ref().and_then(|tcp| tcp.segment);
    let whole: Vec<&StreamOutcome> = outcomes.iter().collect();
    Group { of: &config.name, measured: all }.mesh_streams(&whole, segment);
    for hops in 1..=most {
        let there = outcomes.iter().zip(&depths).filter(|(_, depth)| **depth == Some(hops));
        let there: Vec<&StreamOutcome> = there.map(|(outcome, _)| outcome).collect();
        let mut group = Group { of: &format!("{}/{hops}", config.name), measured: all };
        let goodputs = there.iter().map(|stream| stream.goodput_bps);
        group.mean("goodput", "bit/s", goodputs);
        group.mean("retransmitted", "1", there.iter().map(|stream| Some(stream.retransmitted)));
        group.mean_time("rtt_mean", &there, |stream| Some(stream.rtt?.mean));
        group.mesh_streams(&there, segment);
    }
}

impl Group<'_> {
    fn mesh_streams(&mut self, streams: &[&StreamOutcome], segment: Option<Bytes>) {
        self.mean("loss_events", "1", streams.iter().map(|stream| Some(stream.loss_events)));
        self.mean_time("period_mean", streams, |stream| stream.period);
        let model = |stream: &&StreamOutcome| model_bps(stream, segment?);
        self.mean("goodput_model", "bit/s", streams.iter().map(model));
    }
}

/// The goodput that 003's (4.3) promises with the losses, round trips and periods that were met:
/// MSS·a/((TXP + RTT)·√p), a² = 3/2, in bit/s; unknown without losses.
fn model_bps(stream: &StreamOutcome, segment: Bytes) -> Option<f64> {
    let period = stream.period.unwrap_or(Span::ZERO);
    let round = (period + stream.rtt?.mean).as_secs_f64();
    let window = (1.5 / stream.loss_events).sqrt();
    let bits = 8.0 * segment.get() as f64;
    (stream.loss_events > 0.0).then(|| bits * window / round)
}

type Count = fn(&NodeStats, &RadioStats) -> u64;

/// What is counted of a node.
const COUNTS: [(&str, Count); 8] = [
    ("packets", |node, _| node.taken),
    ("overflows", |node, _| node.drops(DropReason::QueueFull)),
    ("no_ack", |node, _| node.drops(DropReason::NoAck)),
    ("no_channel", |node, _| node.drops(DropReason::NoChannel)),
    ("too_big", |node, _| node.drops(DropReason::TooBig)),
    ("frames", |_, radio| radio.sent),
    ("frame_retries", |_, radio| radio.retries),
    ("frame_collisions", |_, radio| radio.collisions),
];

/// The numbers of a mesh, and of each node, called by the mesh and the node, 0 the border router.
/// Since time zero, warm-up included.
pub(super) fn nodes(name: &str, mesh: &Mesh<Parcel>, all: &mut Vec<Measured>) {
    for (metric, of) in COUNTS {
        let sum: u64 = mesh.stats().map(|(node, radio)| of(node, radio)).sum();
        Group { of: name, measured: all }.add(metric, "packets", sum as f64);
    }
    for (number, (node, radio)) in mesh.stats().enumerate() {
        let mut group = Group { of: &format!("{name}/{number}"), measured: all };
        for (metric, of) in COUNTS {
            group.add(metric, "packets", of(node, radio) as f64);
        }
    }
}
