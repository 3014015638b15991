//! A network in virtual time: hops, cells and meshes, and flows whose packets travel over them.
//!
//! ```text
//!            wake (earliest first, see `engine::Agenda`)
//!   agenda ─────────────► hop, cell: poll ─► parcel ─► its next leg: enqueue
//!      ▲                  flow: on_wake ─► parcel ─► its first leg
//!      │                                    └──► past its last leg: the flow takes it
//!      └── poll_timeout of each component that changed
//! ```
//!
//! Hops are those of `freshline_core::link` and laws those of `freshline_core::source`: the same
//! code runs in the lab and in live programs.

mod ages;
mod change;
mod client;
mod components;
mod cross;
mod datagrams;
mod deliveries;
mod devices;
mod downlink;
mod exchange;
mod external;
mod fault;
mod flow;
mod host;
mod inside;
mod located;
mod measured;
mod memory;
mod mesh;
mod multipath;
mod parcel;
mod period;
mod shared;
mod stream;
mod topics;
mod updates;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use freshline_core::host::Band;
use freshline_core::link::{Direction, Hop};
use freshline_core::path::PathId;
use freshline_core::router::{Discipline, Drop};
use freshline_core::unit::Time;
use rand_pcg::Pcg64;

pub use change::{Change, Changed};
pub use client::{Client, PacketSeen};
pub use cross::{Cross, Pattern};
pub use deliveries::{AgeRecord, Delivery};
pub use downlink::{Downlink, DownlinkOutcome, DownlinkSettings, Server};
pub use exchange::{Exchange, ExchangeOutcome};
pub use external::{Arrival, External};
pub use fault::{Fault, Faults};
pub use flow::Flow;
pub(crate) use flow::each;
pub use host::HostOutcome;
pub use inside::Place;
pub use located::{FrameRecord, LocatedOutcome, SETTLED, SettledOutcome};
pub use multipath::{Multipath, MultipathOutcome, MultipathSource, SubflowOutcome};
pub use parcel::{Body, Load, Paced, Parcel, Passed};
pub use period::Period;
pub use stream::{Application, Completion, RoundTrips, Stream, StreamOutcome};
pub use topics::{
    BadTopics, DeadlineOutcome, Generation, StateSizes, Topic, TopicOutcome, TopicsFlow,
    TopicsOutcome, TopicsSettings,
};
pub use updates::{SizeDistribution, Sizes, UpdateFlow, UpdateOutcome};

use crate::mesh::Mesh;
use components::{Component, Counts, Timetable};
use flow::{FollowUp, Looks, Traffic};
use freshline_core::wlan::mac::{Category, Cell, Delivered, Received, Transmission};
use mesh::{Listeners, MeshObserver};
use shared::SharedStations;

/// A wired hop of the lab.
pub type Wire = Hop<Discipline<Parcel>, Parcel, Pcg64>;

/// A leg of a path.
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
    /// Through faults, by their number. If a flow has several paths, a path must not begin with
    /// faults, as its first leg is its device.
    Fault(u32),
}

/// A flow and its paths.
pub struct Routed {
    /// The flow.
    pub flow: Flow,
    /// Its forward legs, then its reverse legs; for several paths, one path after the other.
    pub legs: Vec<Leg>,
    /// The number of forward legs on its first path.
    pub forward_legs: u32,
    /// For each further path, the index of its first forward leg and of its first reverse leg.
    pub further: Vec<[u32; 2]>,
    /// The flow with which it shares its source address, if it does not have its own.
    pub host: Option<u32>,
    /// The DSCPs of its packets in the forward and in the reverse direction.
    pub dscp: [u8; 2],
    /// Counters of its packets per leg.
    pub passed: Vec<Passed>,
    /// The number of its packets that were dropped.
    pub dropped: u64,
    /// The constant results of [`Traffic::looks`] and [`Traffic::redraws_sizes`].
    looks: Looks,
    redraws_sizes: bool,
}

impl Routed {
    /// A flow over `legs`, of which the first `forward_legs` lead to the far end.
    pub fn new(flow: Flow, legs: Vec<Leg>, forward_legs: u32) -> Self {
        let passed = vec![Passed::default(); legs.len()];
        let (looks, redraws_sizes) = (flow.looks(), flow.redraws_sizes());
        Self {
            flow,
            legs,
            forward_legs,
            further: Vec::new(),
            host: None,
            dscp: [0; 2],
            passed,
            dropped: 0,
            looks,
            redraws_sizes,
        }
    }

    /// Its legs on a path in a direction.
    pub fn stretch(&self, path: u8, direction: Direction) -> Range<u32> {
        let path = usize::from(path);
        let [begins, turns] = match path.checked_sub(1) {
            None => [0, self.forward_legs],
            Some(further) => self.further[further],
        };
        match direction {
            Direction::Forward => begins..turns,
            Direction::Reverse => {
                let next = self.further.get(path).map(|[begins, _]| *begins);
                turns..next.unwrap_or(self.legs.len() as u32)
            }
        }
    }
}

/// A component that carries packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// A wired hop, as in [`World::hops`].
    Hop(usize),
    /// A cell, as in [`World::cells`].
    Cell(usize),
}

/// A packet that leaves its carrier, for observers.
#[derive(Clone, Copy)]
pub struct Left<'a> {
    /// When it leaves the far end of the hop, or when its frame ends.
    pub at: Time,
    /// The carrier.
    pub carrier: Carrier,
    /// The packet.
    pub parcel: &'a Parcel,
    /// Its flow.
    pub flow: &'a Flow,
}

/// How a packet arrived over the air.
#[derive(Debug, Clone, Copy)]
pub struct Landing {
    /// Its frame.
    pub frame: Received,
    /// When it arrived at the station that sent it.
    pub since: Time,
}

/// A running network.
pub struct World {
    hops: Vec<Wire>,
    cells: Vec<Cell<Parcel>>,
    meshes: Vec<Mesh<Parcel>>,
    /// By mesh.
    listeners: Vec<Listeners>,
    flows: Vec<Routed>,
    shared: SharedStations,
    faults: Vec<Fault>,
    /// Pending changes, the last first.
    changes: Vec<Change>,
    timetable: Timetable,
    now: Time,
    events: u64,
    /// Stops runs early.
    stop: Option<Arc<AtomicBool>>,
}

impl World {
    /// A network at time zero. If several components are due, hops come before cells, and cells
    /// before flows.
    pub fn new(hops: Vec<Wire>, cells: Vec<Cell<Parcel>>, flows: Vec<Routed>) -> Self {
        let counts = Counts { hops: hops.len(), cells: cells.len(), meshes: 0, flows: flows.len() };
        let timetable = Timetable::new(counts);
        let shared = SharedStations::new(&flows);
        let mut world = Self {
            hops,
            cells,
            meshes: Vec::new(),
            listeners: Vec::new(),
            flows,
            shared,
            faults: Vec::new(),
            changes: Vec::new(),
            timetable,
            now: Time::ZERO,
            events: 0,
            stop: None,
        };
        for flow in 0..world.flows.len() {
            world.reschedule_flow(flow);
        }
        world
    }

    /// Adds a flag: once `stop` is true, runs end.
    pub fn with_stop(mut self, stop: Option<Arc<AtomicBool>>) -> Self {
        self.stop = stop;
        self
    }

    /// Whether it was stopped. The flag is read now and then only, as that costs time.
    fn is_stopped(&self) -> bool {
        self.events.is_multiple_of(1024)
            && self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// Adds changes: those at time zero apply at once, later ones after all other events that are
    /// due.
    pub fn with_changes(mut self, mut changes: Vec<Change>) -> Self {
        changes.sort_by_key(|change| change.at);
        changes.reverse();
        self.changes = changes;
        self.make_changes();
        self
    }

    /// Runs until `end`, including events at `end`.
    pub fn run_until(&mut self, end: Time) {
        self.run_watched(end, |_| {});
    }

    /// As [`World::run_until`], and calls `watch` with each packet that leaves a wired hop or
    /// arrives over the air.
    pub fn run_watched(&mut self, end: Time, mut watch: impl FnMut(Left<'_>)) {
        while let Some((at, component)) = self.timetable.next().filter(|(at, _)| *at <= end) {
            if self.is_stopped() {
                break;
            }
            self.now = self.now.max(at);
            self.events += 1;
            match component {
                Component::Hop(hop) => self.wake_hop(hop, &mut watch),
                Component::Cell(cell) => self.wake_cell(cell, &mut watch),
                Component::Mesh(mesh) => self.wake_mesh(mesh),
                Component::Flow(flow) => self.wake_flow(flow),
                Component::Changes => self.make_changes(),
            }
        }
        self.now = self.now.max(end);
    }

    /// Discards the measurements so far.
    pub fn begin_measuring(&mut self) {
        for Routed { flow, passed, dropped, .. } in &mut self.flows {
            passed.fill(Passed::default());
            *dropped = 0;
            flow.begin_measuring(self.now);
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
        self.flows.iter_mut().filter_map(|routed| routed.flow.downlink_mut())
    }

    /// From now on the control epochs of all laws that have epochs are recorded.
    pub fn record_epochs(&mut self) {
        let sources = self.flows.iter_mut().filter_map(|routed| routed.flow.updates_mut());
        sources.for_each(UpdateFlow::record_epochs);
    }

    /// The wired hops.
    pub fn hops(&self) -> &[Wire] {
        &self.hops
    }

    /// The cells.
    pub fn cells(&self) -> &[Cell<Parcel>] {
        &self.cells
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
            // Must come first: an arrival frees its number for the next packet.
            self.left_host(&delivered.packet);
            self.next_leg(delivered.packet, None);
        }
        self.timetable.set(Component::Hop(hop), self.hops[hop].poll_timeout());
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
            // Must come first: an arrival frees its number for the next packet.
            self.left_host(&parcel);
            self.next_leg(parcel, Some(Landing { frame, since: parcel.since }));
        }
        self.timetable.set(Component::Cell(cell), self.cells[cell].poll_timeout());
    }

    fn wake_flow(&mut self, flow: usize) {
        if self.flows[flow].looks == Looks::BeforeTimeouts {
            self.look_at_devices(flow);
        }
        self.flows[flow].flow.handle_timeout(self.now);
        self.transmit(flow);
        self.reschedule_flow(flow);
    }

    fn make_changes(&mut self) {
        while let Some(change) = self.changes.pop_if(|change| change.at <= self.now) {
            self.change(change.what);
        }
        self.reschedule_changes();
    }

    /// Applies a change now.
    pub fn change(&mut self, what: Changed) {
        match what {
            Changed::Mode { cell, station, mode } => self.cells[cell].set_mode(station, mode),
            Changed::Rate { hop, rate } => {
                self.hops[hop].set_rate(self.now, rate);
                self.timetable.set(Component::Hop(hop), self.hops[hop].poll_timeout());
            }
            Changed::Delay { hop, delay } => self.hops[hop].set_delay(delay),
            Changed::Jitter { hop, jitter } => self.hops[hop].set_jitter(jitter),
            Changed::Loss { hop, loss } => self.hops[hop].set_loss(loss),
            Changed::Faults { fault, faults } => self.faults[fault].faults = faults,
        }
    }

    /// Sends all packets that a flow has to send.
    fn transmit(&mut self, flow: usize) {
        let looks = self.flows[flow].looks == Looks::BeforePackets;
        loop {
            if looks {
                self.look_at_devices(flow);
            }
            let due = self.flows[flow].flow.poll_transmit(self.now);
            let Some((path, direction, load)) = due else { return };
            self.send_over(flow, path, direction, load);
        }
    }

    /// Reports to a flow the queue lengths of the devices at the first hops of its paths.
    fn look_at_devices(&mut self, flow: usize) {
        let Self { hops, cells, flows, now, .. } = self;
        let routed = &mut flows[flow];
        for path in 0..=routed.further.len() {
            let first = routed.stretch(path as u8, Direction::Forward).start;
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
                // With several paths, a path neither leads through a mesh nor begins with faults.
                Leg::Mesh { .. } | Leg::Fault(_) => continue,
            };
            routed.flow.look(*now, PathId(path as u8), held, left);
        }
    }

    fn send_over(&mut self, flow: usize, path: u8, direction: Direction, load: Load) {
        let routed = &self.flows[flow];
        let leg = routed.stretch(path, direction).start;
        let dscp = routed.dscp[usize::from(direction == Direction::Reverse)];
        let flow = flow as u32;
        let host = routed.host.unwrap_or(flow);
        let parcel = Parcel { flow, host, path, leg, direction, since: self.now, dscp, load };
        self.carry(parcel, None);
    }

    /// A parcel has reached the end of its leg; `landing` is set if that was over the air.
    fn next_leg(&mut self, mut parcel: Parcel, landing: Option<Landing>) {
        let passed = &mut self.flows[parcel.flow as usize].passed[parcel.leg as usize];
        passed.packets += 1;
        passed.time += self.now.since(parcel.since);
        parcel.leg += 1;
        // The band matters only to the queue of its own host.
        parcel.load.band = Band::default();
        parcel.since = self.now;
        self.carry(parcel, landing);
    }

    /// Puts a parcel on its leg, or hands it to its flow after its last leg.
    fn carry(&mut self, mut parcel: Parcel, landing: Option<Landing>) {
        let routed = &mut self.flows[parcel.flow as usize];
        if parcel.leg == routed.stretch(parcel.path, parcel.direction).end {
            return self.arrive(parcel, landing);
        }
        let Routed { flow, legs, redraws_sizes, .. } = routed;
        if *redraws_sizes
            && let Body::Update(_) = parcel.load.body
            && let Some(size) = flow.size_on_hop()
        {
            parcel.load.size = size;
        }
        let leg = legs[parcel.leg as usize];
        let Self { hops, cells, meshes, listeners, flows, timetable, now, .. } = self;
        if let Leg::Mesh { mesh, node, is_up } = leg {
            let mesh = mesh as usize;
            let ends = mesh::ends(node, is_up);
            let observer = &mut MeshObserver { flows, listeners: &listeners[mesh], now: *now };
            meshes[mesh].enqueue(*now, ends, parcel, observer);
            timetable.set(Component::Mesh(mesh), meshes[mesh].poll_timeout());
            return;
        }
        let drops = &mut |drop: Drop<Parcel>| dropped(flows, &drop.packet);
        match leg {
            Leg::Hop(hop) => {
                let hop = hop as usize;
                hops[hop].enqueue(*now, parcel, drops);
                timetable.set(Component::Hop(hop), hops[hop].poll_timeout());
            }
            Leg::Air { cell, from, to, category } => {
                let cell = cell as usize;
                let sent = Transmission { from, to, category, packet: parcel };
                cells[cell].enqueue(*now, sent, drops);
                timetable.set(Component::Cell(cell), cells[cell].poll_timeout());
            }
            Leg::Fault(fault) => self.cross_fault(fault as usize, parcel),
            Leg::Mesh { .. } => {}
        }
    }

    /// A parcel has reached its end; `landing` is set if that was over the air.
    fn arrive(&mut self, parcel: Parcel, landing: Option<Landing>) {
        let flow = parcel.flow as usize;
        let follow_up = self.flows[flow].flow.handle_arrival(self.now, &parcel, landing);
        if let FollowUp::Transmit | FollowUp::TransmitAndReschedule = follow_up {
            self.transmit(flow);
        }
        if let FollowUp::Reschedule | FollowUp::TransmitAndReschedule = follow_up {
            self.reschedule_flow(flow);
        }
    }

    fn reschedule_flow(&mut self, flow: usize) {
        let next = self.flows[flow].flow.poll_timeout();
        self.timetable.set(Component::Flow(flow), next);
    }

    fn reschedule_changes(&mut self) {
        let next = self.changes.last().map(|change| change.at);
        self.timetable.set(Component::Changes, next);
    }
}

/// Reports a dropped packet to its flow.
fn dropped(flows: &mut [Routed], parcel: &Parcel) {
    let Routed { flow, dropped, .. } = &mut flows[parcel.flow as usize];
    *dropped += 1;
    flow.handle_drop(parcel.load.body);
}
