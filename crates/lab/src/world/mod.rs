//! A network in virtual time: hops, and flows whose packets travel over them.
//!
//! ```text
//!            wake (earliest first, see `engine::Agenda`)
//!   agenda ─────────────► hop: poll ─► parcel ─► its next leg: enqueue
//!      ▲                  flow: on_wake ─► parcel ─► its first leg
//!      │                                    └──► past its last leg: the flow takes it
//!      └── next_event of whatever was touched
//! ```
//!
//! Hops are those of `freshline_core::link`, laws those of `freshline_core::source`: what runs
//! here is what runs on the road.

mod flow;
mod load;
mod parcel;

use freshline_core::link::{Hop, HopStats};
use freshline_core::router::Fifo;
use freshline_core::unit::{Bytes, Span, Time};
use rand_pcg::Pcg64;

pub use flow::{SizeDistribution, Sizes, UpdateFlow, UpdateOutcome};
pub use load::{Load, Pattern};
pub use parcel::{Ack, Body, Parcel, Update};

use crate::engine::Agenda;

/// A wired hop of the lab.
pub type Wire = Hop<Fifo<Parcel>, Parcel, Pcg64>;

/// What a flow is.
#[expect(clippy::large_enum_variant, reason = "flows are few and stay where they are")]
pub enum Flow {
    /// A source that keeps a monitor fresh.
    Updates(UpdateFlow),
    /// Cross traffic.
    Load(Load),
}

/// A flow with its way.
pub struct Routed {
    /// What it is.
    pub flow: Flow,
    /// Its legs there, then those back, as indices of hops.
    pub legs: Vec<u32>,
    /// How many of the legs lead there.
    pub there: u32,
    /// What its packets did on each leg.
    pub passed: Vec<Passed>,
}

/// What a flow's packets did on a leg.
#[derive(Debug, Clone, Copy, Default)]
pub struct Passed {
    /// How many came to its end.
    pub packets: u64,
    /// How long they were on it, all together.
    pub time: Span,
}

impl Routed {
    /// A flow over `legs`, of which the first `there` lead there.
    pub fn new(flow: Flow, legs: Vec<u32>, there: u32) -> Self {
        let passed = vec![Passed::default(); legs.len()];
        Self { flow, legs, there, passed }
    }
}

/// A network while it runs.
pub struct World {
    hops: Vec<Wire>,
    flows: Vec<Routed>,
    agenda: Agenda,
    now: Time,
    events: u64,
}

impl World {
    /// A network at time zero. Hops come before flows where both are due.
    pub fn new(hops: Vec<Wire>, flows: Vec<Routed>) -> Self {
        let agenda = Agenda::new(hops.len() + flows.len());
        let mut world = Self { hops, flows, agenda, now: Time::ZERO, events: 0 };
        for flow in 0..world.flows.len() {
            world.reschedule_flow(flow);
        }
        world
    }

    /// Runs until `end`, what is due then included.
    pub fn run_until(&mut self, end: Time) {
        while let Some((at, component)) = self.agenda.next().filter(|(at, _)| *at <= end) {
            self.now = self.now.max(at);
            self.events += 1;
            match component.checked_sub(self.hops.len()) {
                None => self.wake_hop(component),
                Some(flow) => self.wake_flow(flow),
            }
        }
        self.now = self.now.max(end);
    }

    /// What was before counts no more.
    pub fn begin_measuring(&mut self) {
        for Routed { flow, passed, .. } in &mut self.flows {
            passed.fill(Passed::default());
            match flow {
                Flow::Updates(updates) => updates.begin_measuring(self.now),
                Flow::Load(load) => load.begin_measuring(self.now),
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

    /// What a hop has counted since time zero, and how long it has sent.
    pub fn hop(&self, hop: usize) -> (&HopStats, Span) {
        (self.hops[hop].stats(), self.hops[hop].busy(self.now))
    }

    fn wake_hop(&mut self, hop: usize) {
        while let Some(delivered) = self.hops[hop].poll(self.now, &mut |_| {}) {
            let mut parcel = delivered.packet;
            let passed = &mut self.flows[parcel.flow as usize].passed[parcel.leg as usize];
            passed.packets += 1;
            passed.time += self.now.since(parcel.since);
            parcel.leg += 1;
            self.carry(parcel);
        }
        self.agenda.set(hop, self.hops[hop].next_event());
    }

    fn wake_flow(&mut self, flow: usize) {
        let sent = match &mut self.flows[flow].flow {
            Flow::Updates(updates) => updates.on_wake(self.now),
            Flow::Load(load) => load.on_wake(self.now).map(|size| (size, Body::Load)),
        };
        if let Some((size, body)) = sent {
            self.carry(Parcel { flow: flow as u32, leg: 0, since: self.now, size, body });
        }
        self.reschedule_flow(flow);
    }

    /// Puts a parcel on its leg, or hands it to its flow when it has no more.
    fn carry(&mut self, mut parcel: Parcel) {
        let Routed { flow, legs, there, .. } = &mut self.flows[parcel.flow as usize];
        let at_monitor = parcel.leg == *there && !matches!(parcel.body, Body::Ack(_));
        if !at_monitor && let Some(&hop) = legs.get(parcel.leg as usize) {
            if let (Flow::Updates(updates), Body::Update(_)) = (flow, parcel.body)
                && let Some(size) = updates.size_on_hop()
            {
                parcel.size = size;
            }
            parcel.since = self.now;
            let hop = hop as usize;
            self.hops[hop].enqueue(self.now, parcel, &mut |_| {});
            self.agenda.set(hop, self.hops[hop].next_event());
            return;
        }
        match (flow, parcel.body) {
            (Flow::Updates(updates), Body::Update(update)) => {
                let (size, body) = updates.on_update(self.now, update);
                self.carry(Parcel { size, body, ..parcel });
            }
            (Flow::Updates(updates), Body::Ack(ack)) => {
                updates.on_ack(self.now, ack);
                self.reschedule_flow(parcel.flow as usize);
            }
            (Flow::Load(load), _) => load.on_delivered(parcel.size),
            (Flow::Updates(_), Body::Load) => {}
        }
    }

    fn reschedule_flow(&mut self, flow: usize) {
        let next = match &self.flows[flow].flow {
            Flow::Updates(updates) => updates.next_event(),
            Flow::Load(load) => load.next_event(),
        };
        self.agenda.set(self.hops.len() + flow, next);
    }
}

/// The sizes of our own protocol over UDP and IPv4 (`docs/protocol.md`).
impl Sizes {
    /// Updates with `payload`.
    pub fn of_our_protocol(payload: Bytes) -> Self {
        use freshline_core::wire;
        const UNDERLAY: u64 = 28;
        let length = (wire::Update::HEADER_LEN as u64 + payload.get()).max(wire::Ack::LEN as u64);
        Self {
            payload,
            overhead: Bytes::new(length - payload.get() + UNDERLAY),
            ack: Bytes::new(wire::Ack::LEN as u64 + UNDERLAY),
            distribution: SizeDistribution::Constant,
        }
    }
}
