//! States over QUIC, one stream each, through the lab's world.
//!
//! ```text
//!   application ─► streams ─► connection ── World::send ──► … ─► connection ─► streams ─► age
//! ```
//!
//! The application begins a state as soon as all of the one before has left for the first time and the
//! window has room, and samples it when its first packet leaves.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use freshline_core::age::AgeMeter;
use freshline_core::unit::{Span, Time};
use freshline_lab::engine::Streams;
use freshline_lab::scenario::Scenario;
use freshline_lab::world::{External, Flow, Leg, Routed, World};
use noq_proto::congestion::{Bbr3Config, CubicConfig};
use noq_proto::{Dir, PathId, StreamEvent, StreamId, VarInt};

use crate::age::Age;
use crate::ends::{End, MTU, connected};
use crate::grid::Path;
use crate::lab::SCENARIO;
use crate::watched::{Factory, Seen};

/// Which streams of older states are reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resets {
    /// All, when a newer state begins: what is lost of a state is never sent again after its end.
    AtOnce,
    /// Those older than one that has been acknowledged whole, and those older than the former one when a
    /// newer state begins.
    BehindTwo,
}

/// The congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    Cubic,
    Bbr,
}

impl Control {
    fn factory(self) -> Factory {
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
    run.reader.meter.measure_from(from);
    run.run_until(until);
    Age::of(run.reader.meter.summary(until))
}

struct Run {
    world: World,
    /// What time zero is to the connection.
    base: Instant,
    sender: End,
    seen: Arc<Seen>,
    writer: Writer,
    receiver: End,
    reader: Reader,
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
        let (sender, seen, receiver) = connected(control.factory(), base);
        let reader = Reader { meter: AgeMeter::starting_at(Time::ZERO) };
        Self { world, base, sender, seen, writer, receiver, reader }
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
            self.reader.read(&mut self.receiver, self.world.now(), &self.writer.sampled_at);
            self.send();
        }
        self.world.run_until(end);
    }

    fn send(&mut self) {
        let (now, at) = (self.instant(), self.world.now());
        self.writer.on_events(&mut self.sender);
        loop {
            self.seen.begin_attempt();
            if self.sender.poll_transmit(now) {
                self.writer.on_sent(at);
                send_one(&mut self.world, &self.sender);
            } else if !self.writer.begin_if_idle(&mut self.sender, &self.seen) {
                break;
            }
        }
        while self.receiver.poll_transmit(now) {
            send_one(&mut self.world, &self.receiver);
        }
    }
}

fn send_one(world: &mut World, end: &End) {
    const PORT: u16 = 4433;
    world.send(0, 0, end.direction, PORT, &end.datagram);
}

/// The application that sends.
struct Writer {
    resets: Resets,
    state: Vec<u8>,
    /// Streams that are neither reset nor acknowledged whole, from the oldest on.
    open: VecDeque<StreamId>,
    /// When each state was sampled, by the number of its stream.
    sampled_at: Vec<Time>,
    /// The newest state has not begun to leave.
    is_unsampled: bool,
}

impl Writer {
    fn new(resets: Resets, state: Vec<u8>) -> Self {
        let (open, sampled_at) = (VecDeque::new(), Vec::new());
        Self { resets, state, open, sampled_at, is_unsampled: false }
    }

    /// Begins a state if all before has left and the next packet may leave; whether it has.
    fn begin_if_idle(&mut self, end: &mut End, seen: &Seen) -> bool {
        let Some(connection) = end.connection() else { return false };
        let window =
            connection.congestion_state(PathId::ZERO).map_or(0, |control| control.window());
        let has_room = seen.in_flight() + u64::from(MTU) <= window;
        if self.is_unsampled || !has_room || seen.was_held_back() {
            return false;
        }
        let Some(id) = connection.streams().open(Dir::Uni) else { return false };
        let kept = match self.resets {
            Resets::AtOnce => 0,
            Resets::BehindTwo => 1,
        };
        let surplus = self.open.len().saturating_sub(kept);
        self.reset(end, surplus);
        let Some(connection) = end.connection() else { return false };
        let mut stream = connection.send_stream(id);
        // Lost parts of an older state go first; the priority falls with the number.
        let priority = i32::try_from(id.index()).map_or(i32::MIN, |index| -index);
        stream.set_priority(priority).expect("the stream is open");
        let written = stream.write(&self.state).expect("flow control limits nothing");
        assert_eq!(written, self.state.len(), "flow control limits nothing");
        stream.finish().expect("the stream is open");
        self.open.push_back(id);
        self.sampled_at.push(Time::ZERO);
        self.is_unsampled = true;
        true
    }

    /// A packet has left.
    fn on_sent(&mut self, now: Time) {
        if let Some(sampled_at) = self.sampled_at.last_mut().filter(|_| self.is_unsampled) {
            *sampled_at = now;
            self.is_unsampled = false;
        }
    }

    fn on_events(&mut self, end: &mut End) {
        while let Some(event) = end.events.pop_front() {
            let StreamEvent::Finished { id } = event else { continue };
            let older = self.open.partition_point(|open| open.index() < id.index());
            self.reset(end, older);
            self.open.retain(|open| *open != id);
        }
    }

    /// Resets the oldest `count` streams.
    fn reset(&mut self, end: &mut End, count: usize) {
        let Some(connection) = end.connection() else { return };
        for id in self.open.drain(..count) {
            // A stream that has been acknowledged since is closed.
            let _ = connection.send_stream(id).reset(VarInt::from_u32(0));
        }
    }
}

/// The application that receives: a state counts when its stream is complete.
struct Reader {
    meter: AgeMeter,
}

impl Reader {
    fn read(&mut self, end: &mut End, now: Time, sampled_at: &[Time]) {
        while let Some(event) = end.events.pop_front() {
            match event {
                StreamEvent::Opened { dir: Dir::Uni } => {
                    while let Some(id) =
                        end.connection().and_then(|it| it.streams().accept(Dir::Uni))
                    {
                        self.read_stream(end, id, now, sampled_at);
                    }
                }
                StreamEvent::Readable { id } => self.read_stream(end, id, now, sampled_at),
                _ => {}
            }
        }
    }

    fn read_stream(&mut self, end: &mut End, id: StreamId, now: Time, sampled_at: &[Time]) {
        let Some(connection) = end.connection() else { return };
        let mut stream = connection.recv_stream(id);
        // It may have been read to its end, or reset.
        let Ok(mut chunks) = stream.read(false) else { return };
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(_)) => {}
                Ok(None) => {
                    self.meter.on_update(now, sampled_at[id.index() as usize]);
                    break;
                }
                Err(_) => break,
            }
        }
        let _ = chunks.finalize();
    }
}
