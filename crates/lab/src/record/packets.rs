//! The packets of a run, hop by hop.

use std::ops::Range;

use freshline_core::unit::{Bytes, Time};

use crate::scenario::{Built, Scenario, TOPOLOGY};
use crate::tcp::Segment;
use crate::world::{Body, Carrier, Left};

/// The packets that left wired hops or arrived over the air, in the order of these events. Dropped packets and those
/// inside of a mesh are not recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PacketLog {
    /// The names of the wired hops and cells: `LINK` for the forward direction, `LINK/reverse`, and
    /// `CELL`. For links in series, the second hop in a direction is `LINK#2` or `LINK/reverse#2`,
    /// and so on. The hop of a topology from one node to another is `topology/FROM/TO`.
    pub carriers: Vec<String>,
    /// The names of the flows.
    pub flows: Vec<String>,
    /// The packets.
    pub packets: Vec<PacketRecord>,
    /// For each flow of the world, its index in `flows` and its number.
    of_flow: Vec<FlowPlace>,
    /// The number of wired hops, which precede the cells in `carriers`.
    hops: usize,
}

/// A packet that left a wired hop or arrived over the air.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketRecord {
    /// When it left the hop, or when its frame ended.
    pub at: Time,
    /// When it entered the queue of the hop or station.
    pub entered_at: Time,
    /// Its size on the wire, headers included.
    pub size: Bytes,
    /// The hop or cell that it left: the index in [`PacketLog::carriers`].
    pub carrier: u32,
    /// Its flow: the index in [`PacketLog::flows`].
    pub flow: u32,
    /// Which of the flows of one `[[flow]]`, from 0.
    pub number: u32,
    /// The kind of its content.
    pub kind: PacketKind,
}

/// The kind of a packet's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketKind {
    /// Updates, from a source to its monitor.
    Update,
    /// An acknowledgement: the answer of a monitor, or a TCP segment without payload, SYN or FIN.
    Ack,
    /// A TCP segment with payload, SYN or FIN.
    Segment,
    /// A packet of a paced downlink.
    Downlink,
    /// The report of a downlink's client.
    Report,
    /// Cross traffic.
    Cross,
}

impl PacketKind {
    /// Its name in lower case, such as `update`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Update => "update",
            Self::Ack => "ack",
            Self::Segment => "segment",
            Self::Downlink => "downlink",
            Self::Report => "report",
            Self::Cross => "cross",
        }
    }

    fn of(left: &Left<'_>) -> Self {
        match left.parcel.load.body {
            Body::Update(_) | Body::Topics(_) => Self::Update,
            Body::Answer(_) => Self::Ack,
            Body::Segment(number) => match segment(left, number) {
                Some(Segment { len: 0, flags, .. }) if !flags.syn && !flags.fin => Self::Ack,
                _ => Self::Segment,
            },
            Body::Paced(_) => Self::Downlink,
            Body::Report(_) => Self::Report,
            Body::Filler => Self::Cross,
        }
    }
}

/// The segment with this number of a TCP flow.
fn segment<'a>(left: &Left<'a>, number: u32) -> Option<&'a Segment> {
    let stream = left.flow.stream().and_then(|stream| stream.segment(number));
    let subflow = || Some(&left.flow.multipath()?.carried(number)?.segment);
    let exchange = || Some(left.flow.exchange()?.segment(left.parcel.direction, number)?.1);
    stream.or_else(subflow).or_else(exchange)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FlowPlace {
    flow: u32,
    number: u32,
}

impl PacketLog {
    pub(super) fn new(scenario: &Scenario, built: &Built) -> Self {
        let place = |(flow, range): (u32, &Range<usize>)| {
            (0..range.len() as u32).map(move |number| FlowPlace { flow, number })
        };
        let mut carriers = hops(scenario, built);
        let hops = carriers.len();
        carriers.extend(scenario.cells.iter().map(|cell| cell.name.clone()));
        Self {
            carriers,
            flows: scenario.flows.iter().map(|flow| flow.name.clone()).collect(),
            packets: Vec::new(),
            of_flow: (0..).zip(&built.flows).flat_map(place).collect(),
            hops,
        }
    }

    pub(super) fn add(&mut self, left: Left<'_>) {
        let FlowPlace { flow, number } = self.of_flow[left.parcel.flow as usize];
        let carrier = match left.carrier {
            Carrier::Hop(hop) => hop,
            Carrier::Cell(cell) => self.hops + cell,
        };
        self.packets.push(PacketRecord {
            at: left.at,
            entered_at: left.parcel.since,
            size: left.parcel.load.size,
            carrier: carrier as u32,
            flow,
            number,
            kind: PacketKind::of(&left),
        });
    }
}

/// The names of the wired hops of a world.
fn hops(scenario: &Scenario, built: &Built) -> Vec<String> {
    let mut names = vec![String::new(); built.world.hops().len()];
    for (link, hops) in scenario.links.iter().zip(&built.links) {
        for (direction, hops) in [("", &hops.forward), ("/reverse", &hops.reverse)] {
            for (place, hop) in (1..).zip(hops) {
                let series = if place > 1 { format!("#{place}") } else { String::new() };
                names[*hop] = format!("{}{direction}{series}", link.name);
            }
        }
    }
    let topology = scenario.topology.iter().flat_map(|topology| topology.hop_names());
    for (hop, name) in built.topology.forward.iter().zip(topology) {
        names[*hop] = format!("{TOPOLOGY}/{name}");
    }
    names
}
