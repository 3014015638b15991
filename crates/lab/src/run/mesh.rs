//! The metrics of flows and nodes of a mesh, by distance in hops and by node.

use std::ops::Range;

use freshline_core::unit::{Bytes, Span};

use super::{Group, Number};
use crate::mesh::{DropReason, Mesh, NodeStats, RadioStats};
use crate::scenario::{Built, FlowConfig, TcpConfig};
use crate::world::{Parcel, StreamOutcome};

/// The numbers of streams that begin in a mesh: for all together, numbers that exist for meshes
/// only, and numbers of the streams at each distance, named by the flow and the hops to the border
/// router, from 1.
pub(super) fn by_hops(
    config: &FlowConfig,
    built: &Built,
    flows: Range<usize>,
    outcomes: &[StreamOutcome],
    all: &mut Vec<Number>,
) {
    let flows = &built.world.flows()[flows];
    let depth = |routed: &crate::world::Routed| {
        let (mesh, node) = routed.mesh_node()?;
        Some(built.world.meshes()[mesh as usize].tree().depth(node))
    };
    let depths: Vec<Option<u32>> = flows.iter().map(depth).collect();
    let Some(most) = depths.iter().flatten().max().copied() else { return };
    let model = config.tcp.as_ref().and_then(Model::of);
    let whole: Vec<&StreamOutcome> = outcomes.iter().collect();
    Group { of: &config.name, measured: all }.mesh_streams(&whole, model);
    for hops in 1..=most {
        let there = outcomes.iter().zip(&depths).filter(|(_, depth)| **depth == Some(hops));
        let there: Vec<&StreamOutcome> = there.map(|(outcome, _)| outcome).collect();
        let mut group = Group { of: &format!("{}/{hops}", config.name), measured: all };
        let goodputs = there.iter().map(|stream| stream.goodput_bps);
        group.mean("goodput", "bit/s", goodputs);
        group.mean("retransmitted", "1", there.iter().map(|stream| Some(stream.retransmitted)));
        group.mean_time("rtt_mean", &there, |stream| Some(stream.rtt?.mean));
        group.mesh_streams(&there, model);
    }
}

impl Group<'_> {
    fn mesh_streams(&mut self, streams: &[&StreamOutcome], model: Option<Model>) {
        self.mean("loss_events", "1", streams.iter().map(|stream| Some(stream.loss_events)));
        self.mean_time("period_mean", streams, |stream| stream.period);
        self.mean("throughput", "bit/s", streams.iter().map(|stream| throughput_bps(stream)));
        let predicted = |stream: &&StreamOutcome| {
            let rtt = stream.rtt?.mean;
            model?.throughput_bps(stream.loss_events, stream.period.unwrap_or(Span::ZERO) + rtt)
        };
        self.mean("throughput_model", "bit/s", streams.iter().map(predicted));
    }
}

/// Payload sent, in bit/s, retransmissions included.
fn throughput_bps(stream: &StreamOutcome) -> Option<f64> {
    let is_first = 1.0 - stream.retransmitted;
    stream.goodput_bps.filter(|_| is_first > 0.0).map(|goodput| goodput / is_first)
}

/// Im's model of DTPA's throughput (4.3).
#[derive(Clone, Copy)]
struct Model {
    segment: Bytes,
    /// The size of the receive window in segments, which the model does not include.
    max_window: f64,
}

impl Model {
    fn of(tcp: &TcpConfig) -> Option<Self> {
        let segment = tcp.segment?;
        // Half of the buffer is window, as in Linux.
        let window = tcp.receive_buffer.map(|[_, max]| max.get() as f64 / 2.0);
        let max_window = window.map_or(f64::INFINITY, |window| window / segment.get() as f64);
        Some(Self { segment, max_window })
    }

    /// MSS·a/((TXP + RTT)·√p), a² = 3/2, in bit/s, with a window a/√p of at most the receiver's;
    /// unknown without losses.
    fn throughput_bps(self, loss_events: f64, round: Span) -> Option<f64> {
        let window = (1.5 / loss_events).sqrt().min(self.max_window);
        let bits = 8.0 * self.segment.get() as f64;
        (loss_events > 0.0).then(|| bits * window / round.as_secs_f64())
    }
}

type Count = fn(&NodeStats, &RadioStats) -> u64;

/// The counters of a node.
const COUNTS: [(&str, Count); 8] = [
    ("packets", |node, _| node.taken),
    ("overflows", |node, _| node.drops(DropReason::QueueFull)),
    ("no_ack", |node, _| node.drops(DropReason::NoAck)),
    ("channel_access_failures", |node, _| node.drops(DropReason::NoChannel)),
    ("too_big", |node, _| node.drops(DropReason::TooBig)),
    ("frames", |_, radio| radio.sent),
    ("frame_retries", |_, radio| radio.retries),
    ("frame_collisions", |_, radio| radio.collisions),
];

/// The numbers of a mesh, and of each node, named by the mesh and the node, 0 being the border
/// router. Counted since time zero, warm-up included.
pub(super) fn nodes(name: &str, mesh: &Mesh<Parcel>, all: &mut Vec<Number>) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_has_no_more_than_the_receive_window_in_a_round() {
        let model = |max_window| Model { segment: Bytes::new(100), max_window };
        let round = Span::from_secs(2);
        // a/√p = √(1.5/0.015) = 10 segments.
        let of = |max_window| model(max_window).throughput_bps(0.015, round).unwrap();
        assert!((of(f64::INFINITY) - 4000.0).abs() < 1e-6, "{}", of(f64::INFINITY));
        assert!((of(8.0) - 3200.0).abs() < 1e-6, "{}", of(8.0));
        assert_eq!(model(8.0).throughput_bps(0.0, round), None);
    }
}
