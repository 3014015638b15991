//! Advances virtual time: the world with its packets, the hosts, and due events.
//!
//! ```text
//!   next ─► advance: clock ─► world ─► arrivals ─► hosts that are due ─► their datagrams ─► world
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use freshline_core::link::Direction;
use freshline_core::path::PathId;
use freshline_core::unit::{Span, Time};
use freshline_lab::scenario::Built;
use freshline_lab::world::World;
use freshline_net::monitor::UnboundPeer;

use super::hosts::{HEADERS, MonitorHost, SourceHost};
use super::tally::Tally;
use crate::clock::Clock;

/// The clocks of hosts at the start, a year: a time of 0 means unknown.
const START: Span = Span::from_secs(365 * 86_400);

/// All datagrams of one source in one direction.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Count {
    pub(super) datagrams: u64,
    /// With all headers.
    pub(super) bytes: u64,
}

impl Count {
    fn add(&mut self, datagram: &[u8]) {
        self.datagrams += 1;
        self.bytes += datagram.len() as u64 + HEADERS.get();
    }
}

/// A source, and its place in the world.
pub(super) struct Attached {
    pub(super) host: SourceHost,
    pub(super) name: String,
    /// The number of its flow in the world.
    pub(super) flow: usize,
    timeout: Option<Time>,
    is_due: bool,
    /// Sent and received.
    pub(super) sent: Count,
    pub(super) received: Count,
}

pub(super) struct Driver {
    pub(super) built: Built,
    nanos: Arc<AtomicU64>,
    /// In the world.
    now: Time,
    monitor: Option<(MonitorHost, Option<Time>)>,
    pub(super) sources: Vec<Attached>,
    pub(super) tally: Tally,
    datagram: Vec<u8>,
    out: Vec<u8>,
}

/// The time of hosts at a time of the world.
fn local(now: Time) -> Time {
    now + START
}

impl Driver {
    pub(super) fn new(built: Built) -> Self {
        let nanos = Arc::new(AtomicU64::new(local(Time::ZERO).as_nanos()));
        let tally = Tally::default();
        tally.measure_from(local(Time::ZERO));
        Self {
            built,
            nanos,
            now: Time::ZERO,
            monitor: None,
            sources: Vec::new(),
            tally,
            datagram: Vec::new(),
            out: Vec::new(),
        }
    }

    /// The clock of all hosts.
    pub(super) fn clock(&self) -> Clock {
        Clock::Virtual(Arc::clone(&self.nanos))
    }

    /// The time in the world.
    pub(super) fn now(&self) -> Time {
        self.now
    }

    pub(super) fn has_monitor(&self) -> bool {
        self.monitor.is_some()
    }

    pub(super) fn set_monitor(&mut self, host: MonitorHost) {
        host.woken().set();
        self.monitor = Some((host, None));
    }

    pub(super) fn add_source(&mut self, host: SourceHost, name: String, flow: usize) {
        let (sent, received) = (Count::default(), Count::default());
        let attached = Attached { host, name, flow, timeout: None, is_due: true, sent, received };
        self.sources.push(attached);
    }

    /// Discards earlier counts.
    pub(super) fn begin_measuring(&mut self) {
        self.built.world.begin_measuring();
        self.tally.measure_from(local(self.now));
        for source in &mut self.sources {
            (source.sent, source.received) = Default::default();
        }
    }

    /// The time of the next event.
    pub(super) fn next(&self) -> Option<Time> {
        let is_due = |source: &Attached| source.is_due || source.host.woken().is_set();
        let is_monitor_due = self.monitor.as_ref().is_some_and(|(host, _)| host.woken().is_set());
        if is_monitor_due || self.sources.iter().any(is_due) {
            return Some(self.now);
        }
        let sources = self.sources.iter().filter_map(|source| source.timeout).min();
        let monitor = self.monitor.as_ref().and_then(|(_, timeout)| *timeout);
        let hosts = Time::earliest([sources, monitor]).map(|local| local - START);
        Time::earliest([hosts, self.built.world.poll_timeout()])
    }

    /// Moves time on to `at`, unless it is past, and handles due events.
    pub(super) fn advance(&mut self, at: Time) {
        self.now = self.now.max(at);
        self.nanos.store(local(self.now).as_nanos(), Ordering::Relaxed);
        self.tally.notice_states(local(self.now));
        self.built.world.run_until(self.now);
        let has_arrivals = self.take_arrivals();
        self.turn_sources();
        self.turn_monitor(has_arrivals);
    }

    /// Passes arrived datagrams to hosts; returns whether some were for the monitor.
    fn take_arrivals(&mut self) -> bool {
        let Self { built, monitor, sources, datagram, out: reply, .. } = self;
        let (world, now) = (&mut built.world, local(self.now));
        let mut is_for_monitor = false;
        for (number, source) in (0..).zip(sources) {
            while let Some(arrival) = world.poll_arrival(source.flow, datagram) {
                let path = PathId(arrival.path);
                if arrival.direction == Direction::Reverse {
                    source.is_due = true;
                    source.received.add(datagram);
                    source.host.step(|host| host.handle_datagram(now, path, datagram));
                    continue;
                }
                let Some((host, _)) = monitor else { continue };
                is_for_monitor = true;
                let from = UnboundPeer { host: number, path };
                host.step(|host| host.handle_datagram(now, from, datagram, reply));
                if !reply.is_empty() {
                    world.send(source.flow, arrival.path, Direction::Reverse, 0, reply);
                }
            }
        }
        is_for_monitor
    }

    fn turn_sources(&mut self) {
        let Self { built, sources, out, .. } = self;
        let now = local(self.now);
        for source in sources {
            let is_woken = source.host.woken().take();
            let is_due = source.timeout.is_some_and(|at| at <= now);
            if !std::mem::take(&mut source.is_due) && !is_woken && !is_due {
                continue;
            }
            let (flow, sent) = (source.flow, &mut source.sent);
            source.timeout = source.host.step(|host| {
                if is_woken {
                    host.on_woken(now);
                }
                host.turn(now, out, |path, datagram| {
                    sent.add(datagram);
                    send(&mut built.world, (flow, path), Direction::Forward, datagram);
                })
            });
        }
    }

    fn turn_monitor(&mut self, has_arrivals: bool) {
        let Self { built, monitor, sources, out, .. } = self;
        let Some((host, timeout)) = monitor else { return };
        let now = local(self.now);
        let is_woken = host.woken().take();
        if !has_arrivals && !is_woken && timeout.is_none_or(|at| at > now) {
            return;
        }
        let send_back = |to: UnboundPeer, datagram: &[u8]| {
            if let Some(source) = sources.get(to.host as usize) {
                let place = (source.flow, to.path);
                send(&mut built.world, place, Direction::Reverse, datagram);
            }
        };
        *timeout = host.step(|host| host.turn(now, out, send_back));
    }
}

/// Sends a datagram by a path of a flow, if the flow has it.
fn send(world: &mut World, (flow, path): (usize, PathId), direction: Direction, datagram: &[u8]) {
    let paths = world.flows().get(flow).map_or(0, |routed| 1 + routed.further.len());
    if usize::from(path.0) < paths {
        world.send(flow, path.0, direction, 0, datagram);
    }
}

impl Drop for Driver {
    /// Notifies the handles of the end.
    fn drop(&mut self) {
        self.sources.iter().for_each(|source| source.host.abandon());
        if let Some((host, _)) = &self.monitor {
            host.abandon();
        }
    }
}
