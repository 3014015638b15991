//! The common part of both ends of a bond: one thread, one poll, one loop.
//!
//! ```text
//!   wait ─► events ─► datagrams in, timeouts, flows ─► datagrams out ─► publish ─► wait
//! ```

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::time::Instant;

use freshline_core::unit::{Span, Time};
use mio::event::Event;
use mio::{Interest, Token, event};
use noq_proto::{Connection, ConnectionHandle, DatagramEvent, Endpoint, FourTuple};

use super::flow::{Moved, PIECE, Pipe, Pumped};
use super::link::Link;
use super::paths::Paths;
use super::queues::PathQueues;
use super::socket::Outlet;
use super::status::{BondReport, ViaReport, Watcher, paths_of};
use super::{BondError, Sending};
use crate::batch::{Address, Inbox};
use crate::clock::Clock;
use crate::refusal::Refusals;
use crate::run::{self, Driven, Turn};
use crate::sleeper::Sleeper;
use crate::stop::Stop;

/// How often an end publishes its report.
const PUBLISH_EVERY: Span = Span::from_millis(200);

/// Batches received from one socket before other sources are served.
const BATCHES_A_TURN: usize = 8;

/// A source of events that the poll watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watched {
    /// The alarm or the waker, which only end the poll.
    Sleep,
    /// A listening TCP socket, by its number.
    Listener(usize),
    /// A UDP socket, by its number.
    Socket(usize),
    /// A flow's TCP socket, by its key.
    Flow(usize),
    /// A UDP socket for a program or a destination, by its number.
    Relay(usize),
}

/// The number of kinds, with room for more.
const KINDS: usize = 8;

impl From<Watched> for Token {
    fn from(watched: Watched) -> Self {
        let (kind, index) = match watched {
            Watched::Sleep => (0, 0),
            Watched::Listener(index) => (1, index),
            Watched::Socket(index) => (2, index),
            Watched::Flow(key) => (3, key),
            Watched::Relay(index) => (4, index),
        };
        Self(index * KINDS + kind)
    }
}

impl From<Token> for Watched {
    fn from(token: Token) -> Self {
        let index = token.0 / KINDS;
        match token.0 % KINDS {
            0 => Self::Sleep,
            1 => Self::Listener(index),
            2 => Self::Socket(index),
            3 => Self::Flow(index),
            _ => Self::Relay(index),
        }
    }
}

/// The part of an end that differs between client and server.
pub(super) trait End {
    /// The reason that it sends to the peer when it closes.
    const FAREWELL: &'static str;

    /// The common part, and the connections.
    fn parts(&mut self) -> (&mut Driver, impl Iterator<Item = &mut Link>);

    /// A UDP socket, by its number.
    fn outlet(&mut self, socket: usize) -> Option<&mut Outlet>;

    /// An open flow.
    fn pipe(&mut self, flow: usize) -> Option<&mut Pipe>;

    /// The number of flows.
    fn flows(&self) -> usize;

    /// The `--via` paths of a client.
    fn vias(&self) -> Vec<ViaReport> {
        Vec::new()
    }

    /// Handles a readable UDP socket of a program or for a destination.
    fn on_relay(&mut self, socket: usize);

    /// The number of flows of UDP datagrams.
    fn udp_flows(&self) -> usize;

    /// Accepts the connections of a listening TCP socket.
    fn accept(&mut self, listener: usize);

    /// Receives datagrams, handles due timers and moves bytes of flows. Returns whether more can be
    /// done at once.
    fn turn(&mut self, now: Time) -> Result<bool, BondError>;

    /// Sends all datagrams that the connections may send.
    fn transmit(&mut self);

    /// When its next turn is due without an event, apart from the timers of its connections.
    fn poll_timeout(&self) -> Option<Time>;
}

/// Counts of UDP datagrams.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Datagrams {
    taken: u64,
    given: u64,
    dropped: u64,
}

impl Datagrams {
    /// Counts one from a program or a destination, and whether QUIC accepted it.
    pub(super) fn count_up(&mut self, is_taken: bool) {
        *(if is_taken { &mut self.taken } else { &mut self.dropped }) += 1;
    }

    /// Counts one from QUIC, and whether the program or the destination got it.
    pub(super) fn count_down(&mut self, is_given: bool) {
        *(if is_given { &mut self.given } else { &mut self.dropped }) += 1;
    }
}

/// The state that both ends have.
pub(super) struct Driver {
    pub(super) clock: Clock,
    pub(super) sleeper: Sleeper,
    pub(super) endpoint: Endpoint,
    pub(super) sending: Sending,
    pub(super) queues: PathQueues,
    inbox: Inbox,
    /// The flows that may be able to make progress.
    pub(super) ready: VecDeque<usize>,
    /// The buffer for reads from TCP, and the one for datagrams to send.
    pub(super) scratch: Vec<u8>,
    pub(super) packet: Vec<u8>,
    pub(super) moved: Moved,
    /// The number of flows so far, and of those refused.
    pub(super) streams: u64,
    pub(super) refused: u64,
    /// The refusals of a server, by reason.
    pub(super) refusals: Refusals,
    pub(super) datagrams: Datagrams,
    began_at: Time,
    publish_at: Time,
    pub(super) watcher: Watcher,
}

impl Driver {
    pub(super) fn new(endpoint: Endpoint, sending: Sending) -> Result<Self, BondError> {
        let clock = Clock::new();
        // Fail now if the scheduler cannot be built, not at the first connection.
        sending.scheduler.build()?;
        Ok(Self {
            clock,
            sleeper: Sleeper::new([Watched::Sleep.into(); 2])?,
            endpoint,
            sending,
            queues: PathQueues::new(),
            inbox: Inbox::new(),
            ready: VecDeque::new(),
            scratch: vec![0; PIECE],
            packet: Vec::new(),
            moved: Moved::default(),
            streams: 0,
            refused: 0,
            refusals: Refusals::default(),
            datagrams: Datagrams::default(),
            began_at: clock.now(),
            publish_at: Time::ZERO,
            watcher: Watcher::default(),
        })
    }

    /// Makes the poll watch a source, for reading and writing.
    pub(super) fn watch(&self, source: &mut impl event::Source, how: Watched) -> io::Result<()> {
        let both = Interest::READABLE | Interest::WRITABLE;
        self.sleeper.registry().register(source, how.into(), both)
    }

    /// Watches a UDP socket, and makes it report departures of packets if the scheduler uses them.
    pub(super) fn watch_outlet(&self, outlet: &mut Outlet, index: usize) -> io::Result<()> {
        if self.sending.wants_queueing_delays() {
            outlet.stamp_departures(self.clock);
        }
        self.watch(&mut outlet.socket.udp, Watched::Socket(index))
    }

    pub(super) fn instant(&self) -> Instant {
        self.clock.instant_of(self.clock.now())
    }

    /// Makes a link for a new connection.
    pub(super) fn link(
        &self,
        handle: ConnectionHandle,
        connection: Connection,
        now: Instant,
    ) -> Result<Link, BondError> {
        let scheduler = self.sending.scheduler.build()?;
        let paths = Paths::new(scheduler, &self.sending, now);
        Ok(Link::new(handle, connection, paths, &self.sending))
    }

    /// Moves the bytes of an open flow as far as possible.
    pub(super) fn pump(&mut self, pipe: &mut Pipe, link: &mut Link) -> Pumped {
        let before = self.moved.up;
        let (scratch, now) = (&mut self.scratch, self.clock.now());
        let pumped = pipe.pump(link, scratch, &mut self.moved, now);
        link.paths.on_written(self.moved.up - before);
        pumped
    }

    /// Receives from a socket, whose packets are for the local address `label` if that is given.
    /// Returns whether there may be more. `on` gets each event, with QUIC's reply to a packet of no
    /// connection.
    pub(super) fn receive(
        &mut self,
        outlet: &mut Outlet,
        label: Option<IpAddr>,
        mut on: impl FnMut(&mut Outlet, Address, DatagramEvent, &[u8]),
    ) -> io::Result<bool> {
        for _ in 0..BATCHES_A_TURN {
            let is_filled = self.inbox.fill(&outlet.socket)?;
            // A packet's departure is earlier than its ack.
            outlet.read_departures();
            if !is_filled {
                return Ok(false);
            }
            // Read the clock only now: an ack that arrives while this process waits for a processor
            // would otherwise give a round-trip time that is too short, and the minimum is kept.
            let now = self.instant();
            for train in self.inbox.trains() {
                let path = FourTuple::new(train.from.remote, label.or(train.from.local));
                for datagram in train.datagrams() {
                    let mut reply = Vec::new();
                    let event = self.endpoint.handle(now, path, None, datagram.into(), &mut reply);
                    if let Some(event) = event {
                        on(outlet, train.from, event, &reply);
                    }
                }
            }
        }
        Ok(true)
    }
}

/// Runs an end until `stop`, or until the time `until`.
pub(super) fn run(end: &mut impl End, stop: &Stop, until: Option<Time>) -> Result<(), BondError> {
    run::run(&mut Running(end), stop, until)
}

/// A running end.
struct Running<'a, E>(&'a mut E);

impl<E: End> Driven for Running<'_, E> {
    type Error = BondError;

    fn sleeper(&mut self) -> (Clock, &mut Sleeper) {
        let (driver, _) = self.0.parts();
        (driver.clock, &mut driver.sleeper)
    }

    fn on_ready(&mut self, event: &Event) {
        on_event(self.0, event);
    }

    fn turn(&mut self) -> Result<Turn, BondError> {
        let now = self.0.parts().0.clock.now();
        let busy = self.0.turn(now)?;
        self.0.transmit();
        publish(self.0, now, false);
        Ok(Turn::busy_if(busy))
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        let own = self.0.poll_timeout();
        let (driver, links) = self.0.parts();
        let now = driver.clock.now();
        let instant = driver.clock.instant_of(now);
        let link = links.filter_map(|link| link.poll_timeout(instant)).min();
        let link = link.map(|at| now + at.saturating_duration_since(instant).into());
        Time::earliest([own, link, Some(driver.publish_at)])
    }

    fn close(&mut self, now: Time) {
        publish(self.0, now, true);
        close(self.0);
    }
}

fn on_event(end: &mut impl End, event: &Event) {
    match event.token().into() {
        Watched::Sleep => {}
        Watched::Listener(index) => end.accept(index),
        Watched::Relay(index) => end.on_relay(index),
        Watched::Socket(index) => {
            if let Some(outlet) = end.outlet(index)
                && event.is_writable()
            {
                outlet.is_full = false;
            }
        }
        Watched::Flow(key) => {
            if let Some(pipe) = end.pipe(key) {
                pipe.is_readable |= event.is_readable();
                pipe.is_writable |= event.is_writable();
            }
            end.parts().0.ready.push_back(key);
        }
    }
}

/// Publishes the report of an end, at intervals and when it ends.
fn publish(end: &mut impl End, now: Time, is_over: bool) {
    let (flows, vias, udp_flows) = (end.flows(), end.vias(), end.udp_flows());
    let (driver, links) = end.parts();
    if now < driver.publish_at && !is_over {
        return;
    }
    driver.publish_at = now + PUBLISH_EVERY;
    let instant = driver.clock.instant_of(now);
    let (mut ready, mut paths) = (0, Vec::new());
    for link in links {
        ready += usize::from(link.is_ready);
        paths.extend(paths_of(link, &mut driver.queues, instant));
    }
    paths.sort_by(|a, b| (a.link, &a.path).cmp(&(b.link, &b.path)));
    driver.watcher.publish(BondReport {
        duration_s: now.since(driver.began_at).as_secs_f64(),
        scheduler: driver.sending.scheduler.name(),
        links: ready,
        streams_open: flows,
        streams: driver.streams,
        streams_refused: driver.refused,
        refusals: driver.refusals,
        streams_sent_bytes: driver.moved.up,
        streams_received_bytes: driver.moved.down,
        udp_flows_open: udp_flows,
        datagrams_sent: driver.datagrams.taken,
        datagrams_received: driver.datagrams.given,
        datagrams_dropped: driver.datagrams.dropped,
        vias,
        paths,
    });
}

fn close<E: End>(end: &mut E) {
    let (driver, links) = end.parts();
    let now = driver.instant();
    links.for_each(|link| link.close(now, E::FAREWELL));
    end.transmit();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_watched_is_known_by_its_token() {
        for index in [0, 1, 63, 64, 1024, 65_536] {
            for watched in [
                Watched::Listener(index),
                Watched::Socket(index),
                Watched::Flow(index),
                Watched::Relay(index),
            ] {
                assert_eq!(Watched::from(Token::from(watched)), watched);
            }
        }
        assert_eq!(Watched::from(Token::from(Watched::Sleep)), Watched::Sleep);
    }
}
