//! States over QUIC through the lab's world.
//!
//! ```text
//!   application ─► streams ─► connection ── World::send ──► … ─► connection ─► streams ─► age
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use freshline_core::age::AgeMeter;
use freshline_core::unit::{Span, Time};
use freshline_lab::engine::Streams;
use freshline_lab::scenario::Scenario;
use freshline_lab::world::{External, Flow, Leg, Routed, World};
use noq_proto::congestion::{Bbr3Config, CubicConfig};

use crate::age::Age;
use crate::ends::{self, Certified, End};
use crate::grid::Path;
use crate::lab::SCENARIO;
use crate::streams::{Resets, Writer, read};
use crate::watched::{Factory, Seen};

/// The congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    Cubic,
    Bbr,
}

impl Control {
    pub(crate) fn factory(self) -> Factory {
        match self {
            Self::Cubic => Arc::new(CubicConfig::default()),
            Self::Bbr => Arc::new(Bbr3Config::default()),
        }
    }
}

/// The ages of a run over `path`.
pub(crate) fn run(path: &Path, control: Control, resets: Resets) -> Age {
    let scenario = Scenario::parse_with(SCENARIO, &path.changes()).expect("the scenario is legal");
    let state = vec![0; path.size as usize];
    let mut run = Run::new(&scenario, control, Writer::new(resets, state));
    let (from, until) = (Time::ZERO + scenario.warm_up, Time::ZERO + scenario.duration);
    run.run_until(from);
    run.meter.measure_from(from);
    run.run_until(until);
    Age::of(run.meter.summary(until))
}

struct Run {
    world: World,
    /// The connection's time at the world's time zero.
    base: Instant,
    sender: End,
    seen: Arc<Seen>,
    writer: Writer,
    receiver: End,
    meter: AgeMeter,
}

impl Run {
    fn new(scenario: &Scenario, control: Control, writer: Writer) -> Self {
        let link = &scenario.links[0];
        let streams = Streams::new(scenario.seed, 0);
        let hops = [&link.forward, link.reverse.as_ref().unwrap_or(&link.forward)];
        let hops = hops.into_iter().enumerate().map(|(index, hop)| {
            hop.build(streams.stream("hop", index)).expect("the scenario has been checked")
        });
        let legs = vec![Leg::Hop(0), Leg::Hop(1)];
        let flow = Routed::new(Flow::External(External::new()), legs, 1);
        let world = World::new(hops.collect(), Vec::new(), vec![flow]);
        let base = Instant::now();
        let certified = Certified::new();
        let (sender, seen) = ends::sender(control.factory(), &certified.certificate, base);
        let receiver = ends::receiver(&certified);
        let meter = AgeMeter::starting_at(Time::ZERO);
        Self { world, base, sender, seen, writer, receiver, meter }
    }

    fn instant(&self) -> Instant {
        self.base + Duration::from_nanos(self.world.now().as_nanos())
    }

    fn run_until(&mut self, end: Time) {
        let mut datagram = Vec::new();
        self.send();
        loop {
            let time = |at: Instant| Time::ZERO + Span::from(at - self.base);
            let [sender, receiver] = [&self.sender, &self.receiver].map(End::poll_timeout);
            let next = [self.world.poll_timeout(), sender.map(time), receiver.map(time)];
            let Some(next) = Time::earliest(next).filter(|at| *at <= end) else { break };
            self.world.run_until(next.max(self.world.now()));
            let now = self.instant();
            while let Some(arrival) = self.world.poll_arrival(0, &mut datagram) {
                let is_forward = arrival.direction == self.sender.direction;
                let end = if is_forward { &mut self.receiver } else { &mut self.sender };
                end.handle(now, &datagram);
            }
            self.sender.handle_timeout(now);
            self.receiver.handle_timeout(now);
            let at = self.world.now();
            let sampled_at = self.writer.sampled_at();
            read(&mut self.receiver, |state| {
                self.meter.on_update(at, sampled_at[state as usize]);
            });
            self.send();
        }
        self.world.run_until(end);
    }

    fn send(&mut self) {
        let (now, at) = (self.instant(), self.world.now());
        let (world, sender) = (&mut self.world, &mut self.sender);
        self.writer.fill(sender, &self.seen, now, || at, |sender| send_one(world, sender));
        while self.receiver.poll_transmit(now) {
            send_one(&mut self.world, &self.receiver);
        }
    }
}

fn send_one(world: &mut World, end: &End) {
    const PORT: u16 = 4433;
    world.send(0, 0, end.direction, PORT, &end.datagram);
}
