//! A network in virtual time: hops and cells, and flows whose packets travel over them.
//!
//! ```text
//!            wake (earliest first, see `engine::Agenda`)
//!   agenda ─────────────► hop, cell: poll ─► parcel ─► its next leg: enqueue
//!      ▲                  flow: on_wake ─► parcel ─► its first leg
//!      │                                    └──► past its last leg: the flow takes it
//!      └── poll_timeout of whatever was touched
//! ```
//!
//! Hops are those of `freshline_core::link`, laws those of `freshline_core::source`: what runs
//! here is what runs on the road.

mod change;
mod client;
mod cross;
mod downlink;
mod exchange;
mod host;
mod located;
mod measured;
mod memory;
mod mesh;
mod multipath;
mod parcel;
mod period;
mod shared;
mod stream;
mod updates;

use std::ops::Range;

use freshline_core::host::Band;
use freshline_core::link::Hop;
use freshline_core::path::PathId;
use freshline_core::router::{Discipline, Drop};
use freshline_core::unit::Time;
use rand_pcg::Pcg64;

pub use change::{Change, Changed};
pub use client::{Client, PacketSeen};
pub use cross::{Cross, Pattern};
pub use downlink::{Downlink, DownlinkOutcome, DownlinkSettings, Server};
pub use exchange::{Exchange, ExchangeOutcome};
pub use host::HostOutcome;
pub use located::{FrameRecord, LocatedOutcome, SETTLED, SettledOutcome};
pub use multipath::{Multipath, MultipathOutcome, MultipathSource, SubflowOutcome};
pub use parcel::{Ack, Body, Direction, Load, Paced, Parcel, Passed, Update};
pub use period::Period;
pub use stream::{Application, Completion, RoundTrips, Stream, StreamOutcome};
pub use updates::{SizeDistribution, Sizes, UpdateFlow, UpdateOutcome};

use crate::engine::Agenda;
use crate::mesh::Mesh;
use freshline_core::wlan::mac::{Category, Cell, Delivered, Received, Transmission};
use mesh::{Listeners, MeshObserver};
use shared::SharedStations;

/// A wired hop of the lab.
pub type Wire = Hop<Discipline<Parcel>, Parcel, Pcg64>;

/// What a flow is.
#[expect(clippy::large_enum_variant, reason = "flows are few and stay where they are")]
pub enum Flow {
    /// A source that keeps a monitor fresh.
    Updates(UpdateFlow),
    /// A TCP stream.
    Stream(Stream),
    /// A stream over several paths.
    Multipath(Multipath),
    /// Requests and responses over TCP.
    Exchange(Exchange),
    /// A paced downlink over Wi-Fi.
    Downlink(Box<Downlink>),
    /// Cross traffic.
    Cross(Cross),
}

/// A leg of a way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leg {
    /// Over a wired hop, by its number.
    Hop(u32),
    /// Over the air.
    Air {
        /// The cell, by its number.
        cell: u32,
        /// The station that sends.
        from: u32,
        /// The station that receives.
        to: u32,
        /// How it contends.
        category: Category,
    },
    /// Through a mesh, over all of its hops: between a node and the border router.
    Mesh {
        /// The mesh, by its number.
        mesh: u32,
        /// The node.
        node: u32,
        /// Whether to the border router.
        is_up: bool,
    },
}

/// A flow with its way.
pub struct Routed {
    /// What it is.
    pub flow: Flow,
    /// Its legs there, then those back; of several paths, one path's after the other's.
    pub legs: Vec<Leg>,
    /// How many of the legs lead there, on its first path.
    pub there: u32,
    /// Where further paths begin, and where they turn round.
    pub further: Vec<[u32; 2]>,
    /// The flow whose source address it has, if not one of its own.
    pub host: Option<u32>,
    /// The DSCP of its packets there, and of those back.
    pub dscp: [u8; 2],
    /// What its packets did on each leg.
    pub passed: Vec<Passed>,
    /// Its packets that were dropped.
    pub dropped: u64,
}

impl Routed {
    /// A flow over `legs`, of which the first `forward` lead there.
    pub fn new(flow: Flow, legs: Vec<Leg>, there: u32) -> Self {
        let passed = vec![Passed::default(); legs.len()];
        let further = Vec::new();
        Self { flow, legs, there, further, host: None, dscp: [0; 2], passed, dropped: 0 }
    }

    /// Its legs on a path in a direction.
    pub fn stretch(&self, path: u8, direction: Direction) -> Range<u32> {
        let path = usize::from(path);
        let [begins, turns] = match path.checked_sub(1) {
            None => [0, self.there],
            Some(further) => self.further[further],
        };
        match direction {
            Direction::There => begins..turns,
            Direction::Back => {
                let next = self.further.get(path).map(|[begins, _]| *begins);
                turns..next.unwrap_or(self.legs.len() as u32)
            }
        }
    }
}

/// What carries packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// A wired hop, as in [`World::hops`].
    Hop(usize),
    /// A cell, as in [`World::cells`].
    Cell(usize),
}

/// A packet that leaves what carried it, for those who watch.
#[derive(Clone, Copy)]
pub struct Left<'a> {
    /// When it comes out at the far end of the hop, or when its frame ends.
    pub at: Time,
    /// What it leaves.
    pub carrier: Carrier,
    /// The packet.
    pub parcel: &'a Parcel,
    /// Whose it is.
    pub flow: &'a Flow,
}

/// How a packet came over the air.
#[derive(Debug, Clone, Copy)]
pub struct Landing {
    /// Its frame.
    pub frame: Received,
    /// When it came to the station that sent it.
    pub since: Time,
}

/// A network while it runs.
pub struct World {
    hops: Vec<Wire>,
    cells: Vec<Cell<Parcel>>,
    meshes: Vec<Mesh<Parcel>>,
    /// By mesh.
    listeners: Vec<Listeners>,
    flows: Vec<Routed>,
    shared: SharedStations,
    /// What is still to come, the last first.
    changes: Vec<Change>,
    agenda: Agenda,
    now: Time,
    events: u64,
}

impl World {
    /// A network at time zero. Where several are due, hops come before cells, and those before
    /// flows.
    pub fn new(hops: Vec<Wire>, cells: Vec<Cell<Parcel>>, flows: Vec<Routed>) -> Self {
        let agenda = Agenda::new(hops.len() + cells.len() + flows.len() + 1);
        let (changes, meshes, listeners) = (Vec::new(), Vec::new(), Vec::new());
        let (now, events, shared) = (Time::ZERO, 0, SharedStations::new(&flows));
        let mut world =
            Self { hops, cells, meshes, listeners, flows, shared, changes, agenda, now, events };
        for flow in 0..world.flows.len() {
            world.reschedule_flow(flow);
        }
        world
    }

    /// The same, with what changes in it: at time zero at once, later after all else that is due.
    pub fn with_changes(mut self, mut changes: Vec<Change>) -> Self {
        changes.sort_by_key(|change| change.at);
        changes.reverse();
        self.changes = changes;
        self.make_changes();
        self
    }

    /// Runs until `end`, what is due then included.
    pub fn run_until(&mut self, end: Time) {
        self.run_watched(end, |_| {});
    }

    /// Runs as [`World::run_until`] does, and shows each packet that leaves a wired hop
    /// or arrives over the air.
    pub fn run_watched(&mut self, end: Time, mut watch: impl FnMut(Left<'_>)) {
        let cells = self.hops.len() + self.cells.len();
        let (hops, meshes, flows) = (self.hops.len(), cells + self.meshes.len(), self.last());
        while let Some((at, component)) = self.agenda.next().filter(|(at, _)| *at <= end) {
            self.now = self.now.max(at);
            self.events += 1;
            if component < hops {
                self.wake_hop(component, &mut watch);
            } else if component < cells {
                self.wake_cell(component - hops, &mut watch);
            } else if component < meshes {
                self.wake_mesh(component - cells);
            } else if component < flows {
                self.wake_flow(component - meshes);
            } else {
                self.make_changes();
            }
        }
        self.now = self.now.max(end);
    }

    /// What was before counts no more.
    pub fn begin_measuring(&mut self) {
        for Routed { flow, passed, dropped, .. } in &mut self.flows {
            passed.fill(Passed::default());
            *dropped = 0;
            match flow {
                Flow::Updates(updates) => updates.begin_measuring(self.now),
                Flow::Stream(stream) => stream.begin_measuring(self.now),
                Flow::Multipath(multipath) => multipath.begin_measuring(self.now),
                Flow::Exchange(exchange) => exchange.begin_measuring(self.now),
                Flow::Downlink(downlink) => downlink.begin_measuring(self.now),
                Flow::Cross(cross) => cross.begin_measuring(self.now),
            }
        }
    }

    /// Virtual time.
    pub const fn now(&self) -> Time {
        self.now
    }

    /// Wake-ups until now.
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// The flows, in the order in which they were given.
    pub fn flows(&self) -> &[Routed] {
        &self.flows
    }

    /// The downlinks among them.
    pub fn downlinks_mut(&mut self) -> impl Iterator<Item = &mut Downlink> {
        self.flows.iter_mut().filter_map(|routed| match &mut routed.flow {
            Flow::Downlink(downlink) => Some(&mut **downlink),
            _ => None,
        })
    }

    /// From now on the control epochs of all laws that have some are recorded.
    pub fn record_epochs(&mut self) {
        self.flows.iter_mut().for_each(|routed| routed.flow.record_epochs());
    }

    /// The wired hops.
    pub fn hops(&self) -> &[Wire] {
        &self.hops
    }

    /// The cells.
    pub fn cells(&self) -> &[Cell<Parcel>] {
        &self.cells
    }

    /// The component behind the last flow: changes.
    fn last(&self) -> usize {
        self.hops.len() + self.cells.len() + self.meshes.len() + self.flows.len()
    }

    fn wake_hop(&mut self, hop: usize, watch: &mut impl FnMut(Left<'_>)) {
        loop {
            let Self { hops, flows, now, .. } = self;
            let Some(delivered) = hops[hop].poll(*now, &mut |drop| dropped(flows, &drop.packet))
            else {
                break;
            };
            let flow = &flows[delivered.packet.flow as usize].flow;
            let (at, carrier) = (delivered.at, Carrier::Hop(hop));
            watch(Left { at, carrier, parcel: &delivered.packet, flow });
            self.next_leg(delivered.packet, None);
        }
        self.agenda.set(hop, self.hops[hop].poll_timeout());
    }

    fn wake_cell(&mut self, cell: usize, watch: &mut impl FnMut(Left<'_>)) {
        loop {
            let Self { cells, flows, shared, now, .. } = self;
            let Some(delivered) = cells[cell].poll(*now, &mut |drop| dropped(flows, &drop.packet))
            else {
                break;
            };
            let flow = &flows[delivered.packet.flow as usize].flow;
            let Delivered { at, to, frame, packet: parcel, .. } = delivered;
            watch(Left { at, carrier: Carrier::Cell(cell), parcel: &parcel, flow });
            shared.on_delivered((cell as u32, to), parcel.flow, frame.at, flows);
            // First: what arrives frees its number for the next packet.
            self.left_host(&parcel);
            self.next_leg(parcel, Some(Landing { frame, since: parcel.since }));
        }
        self.agenda.set(self.hops.len() + cell, self.cells[cell].poll_timeout());
    }

    fn wake_flow(&mut self, flow: usize) {
        if let Flow::Updates(_) = self.flows[flow].flow {
            self.look_at_devices(flow);
        }
        match &mut self.flows[flow].flow {
            Flow::Updates(updates) => {
                if let Some((route, load)) = updates.on_wake(self.now) {
                    for path in route.all() {
                        self.send_over(flow, path.0, Direction::There, load);
                    }
                }
            }
            Flow::Cross(cross) => {
                if let Some(size) = cross.on_wake(self.now) {
                    self.send(flow, Direction::There, Load::plain(size, Body::Filler));
                }
            }
            Flow::Stream(stream) => {
                stream.on_wake(self.now);
                self.transmit(flow);
            }
            Flow::Multipath(multipath) => {
                multipath.on_wake(self.now);
                self.transmit(flow);
            }
            Flow::Exchange(exchange) => {
                exchange.on_wake(self.now);
                self.transmit(flow);
            }
            Flow::Downlink(downlink) => {
                downlink.on_wake(self.now);
                self.transmit(flow);
            }
        }
        self.reschedule_flow(flow);
    }

    fn make_changes(&mut self) {
        while let Some(change) = self.changes.pop_if(|change| change.at <= self.now) {
            match change.what {
                Changed::Mode { cell, station, mode } => self.cells[cell].set_mode(station, mode),
                Changed::Rate { hop, rate } => {
                    self.hops[hop].set_rate(self.now, rate);
                    self.agenda.set(hop, self.hops[hop].poll_timeout());
                }
                Changed::Delay { hop, delay } => self.hops[hop].set_delay(delay),
            }
        }
        self.reschedule_changes();
    }

    /// Sends all that a stream, an exchange or a downlink has to send.
    fn transmit(&mut self, flow: usize) {
        loop {
            self.look_at_devices(flow);
            let due = match &mut self.flows[flow].flow {
                Flow::Stream(stream) => stream.poll_transmit(self.now),
                Flow::Multipath(multipath) => {
                    let Some((path, direction, load)) = multipath.poll_transmit(self.now) else {
                        return;
                    };
                    self.send_over(flow, path, direction, load);
                    continue;
                }
                Flow::Exchange(exchange) => exchange.poll_transmit(self.now),
                Flow::Downlink(downlink) => downlink.poll_transmit(self.now),
                Flow::Updates(_) | Flow::Cross(_) => None,
            };
            let Some((direction, load)) = due else { return };
            self.send(flow, direction, load);
        }
    }

    /// Shows a flow of several paths what the devices hold through which these leave.
    fn look_at_devices(&mut self, flow: usize) {
        let Self { hops, cells, flows, now, .. } = self;
        let routed = &mut flows[flow];
        let looks = match routed.flow {
            Flow::Multipath(_) => true,
            Flow::Updates(_) => !routed.further.is_empty(),
            _ => false,
        };
        if !looks {
            return;
        }
        for path in 0..=routed.further.len() {
            let first = routed.stretch(path as u8, Direction::There).start;
            let (held, left) = match routed.legs[first as usize] {
                Leg::Hop(hop) => {
                    let hop = &hops[hop as usize];
                    (hop.held().get(), hop.stats().sojourn.count())
                }
                Leg::Air { cell, from, .. } => {
                    let cell = &cells[cell as usize];
                    let own = cell.queues().filter(|(station, _)| *station == from);
                    let stats = &cell.stats().stations[from as usize];
                    let left = stats.delivered.packets + stats.drops.total();
                    (own.map(|(_, packets)| packets.get()).sum(), left.get())
                }
                // No path of several leads through a mesh.
                Leg::Mesh { .. } => continue,
            };
            match &mut routed.flow {
                Flow::Multipath(multipath) => multipath.look(*now, path, held, left),
                Flow::Updates(updates) => updates.look(*now, PathId(path as u8), held, left),
                _ => {}
            }
        }
    }

    fn send(&mut self, flow: usize, direction: Direction, load: Load) {
        self.send_over(flow, 0, direction, load);
    }

    fn send_over(&mut self, flow: usize, path: u8, direction: Direction, load: Load) {
        let routed = &self.flows[flow];
        let leg = routed.stretch(path, direction).start;
        let dscp = routed.dscp[usize::from(direction == Direction::Back)];
        let flow = flow as u32;
        let host = routed.host.unwrap_or(flow);
        let parcel = Parcel { flow, host, path, leg, direction, since: self.now, dscp, load };
        self.carry(parcel, None);
    }

    /// A parcel has come to the end of its leg; `landing` where that was over the air.
    fn next_leg(&mut self, mut parcel: Parcel, landing: Option<Landing>) {
        let passed = &mut self.flows[parcel.flow as usize].passed[parcel.leg as usize];
        passed.packets += 1;
        passed.time += self.now.since(parcel.since);
        parcel.leg += 1;
        // It says something to the queue of its own host alone.
        parcel.load.band = Band::default();
        parcel.since = self.now;
        self.carry(parcel, landing);
    }

    /// Puts a parcel on its leg, or hands it to its flow when it has no more.
    fn carry(&mut self, mut parcel: Parcel, landing: Option<Landing>) {
        let routed = &mut self.flows[parcel.flow as usize];
        if parcel.leg == routed.stretch(parcel.path, parcel.direction).end {
            return self.arrive(parcel, landing);
        }
        let Routed { flow, legs, .. } = routed;
        if let (Flow::Updates(updates), Body::Update(_)) = (flow, parcel.load.body)
            && let Some(size) = updates.size_on_hop()
        {
            parcel.load.size = size;
        }
        let leg = legs[parcel.leg as usize];
        let Self { hops, cells, meshes, listeners, flows, agenda, now, .. } = self;
        if let Leg::Mesh { mesh, node, is_up } = leg {
            let mesh = mesh as usize;
            let ends = mesh::ends(node, is_up);
            let observer = &mut MeshObserver { flows, listeners: &listeners[mesh], now: *now };
            meshes[mesh].enqueue(*now, ends, parcel, observer);
            agenda.set(hops.len() + cells.len() + mesh, meshes[mesh].poll_timeout());
            return;
        }
        let drops = &mut |drop: Drop<Parcel>| dropped(flows, &drop.packet);
        match leg {
            Leg::Hop(hop) => {
                let hop = hop as usize;
                hops[hop].enqueue(*now, parcel, drops);
                agenda.set(hop, hops[hop].poll_timeout());
            }
            Leg::Air { cell, from, to, category } => {
                let cell = cell as usize;
                let sent = Transmission { from, to, category, packet: parcel };
                cells[cell].enqueue(*now, sent, drops);
                agenda.set(hops.len() + cell, cells[cell].poll_timeout());
            }
            Leg::Mesh { .. } => {}
        }
    }

    /// A parcel has come to its end; `landing` where that was over the air.
    fn arrive(&mut self, parcel: Parcel, landing: Option<Landing>) {
        let flow = parcel.flow as usize;
        match (&mut self.flows[flow].flow, parcel.load.body) {
            (Flow::Updates(updates), Body::Update(update)) => {
                if let Some(ack) = updates.on_update(self.now, update) {
                    self.send_over(flow, parcel.path, Direction::Back, ack);
                }
            }
            (Flow::Updates(updates), Body::Ack(ack)) => {
                updates.on_ack(self.now, PathId(parcel.path), ack);
                self.reschedule_flow(flow);
            }
            (Flow::Stream(stream), Body::Segment(number)) => {
                stream.on_segment(self.now, parcel.direction, number, parcel.load.ecn);
                self.transmit(flow);
                self.reschedule_flow(flow);
            }
            (Flow::Multipath(multipath), Body::Segment(number)) => {
                let Parcel { path, direction, .. } = parcel;
                multipath.on_segment(self.now, path, direction, number, parcel.load.ecn);
                self.transmit(flow);
                self.reschedule_flow(flow);
            }
            (Flow::Exchange(exchange), Body::Segment(number)) => {
                exchange.on_segment(self.now, parcel.direction, number, parcel.load.ecn);
                self.transmit(flow);
                self.reschedule_flow(flow);
            }
            (Flow::Downlink(downlink), Body::Paced(packet)) => {
                // The way of a downlink ends with a cell.
                if let Some(landing) = landing {
                    downlink.on_packet(self.now, packet, landing);
                }
            }
            (Flow::Downlink(downlink), Body::Report(number)) => {
                downlink.on_report(self.now, number);
                self.reschedule_flow(flow);
            }
            (Flow::Cross(cross), _) => cross.on_delivered(self.now, parcel.load.size),
            // A flow carries its own bodies only.
            (
                Flow::Updates(_)
                | Flow::Stream(_)
                | Flow::Multipath(_)
                | Flow::Exchange(_)
                | Flow::Downlink(_),
                _,
            ) => {}
        }
    }

    fn reschedule_flow(&mut self, flow: usize) {
        let next = match &self.flows[flow].flow {
            Flow::Updates(updates) => updates.poll_timeout(),
            Flow::Stream(stream) => stream.poll_timeout(),
            Flow::Multipath(multipath) => multipath.poll_timeout(),
            Flow::Exchange(exchange) => exchange.poll_timeout(),
            Flow::Downlink(downlink) => downlink.poll_timeout(),
            Flow::Cross(cross) => cross.poll_timeout(),
        };
        let first = self.hops.len() + self.cells.len() + self.meshes.len();
        self.agenda.set(first + flow, next);
    }

    fn reschedule_changes(&mut self) {
        let next = self.changes.last().map(|change| change.at);
        self.agenda.set(self.last(), next);
    }
}

/// A flow hears of its packet that was dropped.
fn dropped(flows: &mut [Routed], parcel: &Parcel) {
    let Routed { flow, dropped, .. } = &mut flows[parcel.flow as usize];
    *dropped += 1;
    match (flow, parcel.load.body) {
        (Flow::Stream(stream), Body::Segment(number)) => stream.on_dropped(number),
        (Flow::Multipath(multipath), Body::Segment(number)) => multipath.on_dropped(number),
        (Flow::Exchange(exchange), Body::Segment(number)) => exchange.on_dropped(number),
        (Flow::Downlink(downlink), Body::Paced(_)) => downlink.on_dropped(),
        _ => {}
    }
}
