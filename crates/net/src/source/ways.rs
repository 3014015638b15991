//! The ways of a source to its monitor: a link each, by an interface or an address of this host.
//!
//! One that was named is there as long as its interface is up with an address, and its link is made
//! anew when that is another one. The one way of a source for which none is named leaves as the
//! routes are, and is always there.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use freshline_core::path::{DeviceQueue, PathId, SchedulerConfig};
use freshline_core::session::{self, Paths, PathsError};
use freshline_core::unit::{Span, Time};
use mio::{Registry, Token};
use noq_proto::FourTuple;

use super::SourceError;
use crate::clock::Clock;
use crate::link::{Link, LinkError, LinkEvent, Plain, Sent, Transport};
use crate::via::{DeviceQueues, Interfaces, Via};

/// How often it is looked which interfaces there are, and connections that were lost are dialled
/// again.
const LOOK_AROUND: Span = Span::from_millis(250);

/// The longest wait before a lost connection is dialled again, doubled from [`LOOK_AROUND`]: as long
/// as between openings of a session without an answer.
const LONGEST_REDIAL: Span = Span::from_secs(2);

/// The first token of the links' sockets.
const FIRST_TOKEN: usize = 8;

/// By which interfaces or addresses of this host a source sends, and how it chooses among them.
#[derive(Debug, Clone, PartialEq)]
pub struct Ways {
    /// Each with the monitor's address on this way, if it is another one; none: as the routes are.
    pub vias: Vec<(Via, Option<SocketAddr>)>,
    /// Chooses where there are several.
    pub scheduler: SchedulerConfig,
}

impl Default for Ways {
    /// As the routes are.
    fn default() -> Self {
        let scheduler = SchedulerConfig::Freshest(Default::default());
        Self { vias: Vec::new(), scheduler }
    }
}

impl Ways {
    /// What keeps the books of them.
    pub(super) fn paths(&self) -> Result<Paths, PathsError> {
        Paths::new(self.vias.len().max(1), &self.scheduler)
    }
}

struct Way {
    via: Via,
    remote: SocketAddr,
    token: Token,
    /// Stands for its interface where queues are asked for.
    label: IpAddr,
    /// Its own address when the link was made, and the number of the interface that the socket is
    /// bound to: one that comes anew under the same name is another one.
    place: (Option<IpAddr>, Option<u32>),
    link: Option<Link<Plain>>,
    /// When a lost connection may be dialled again, and how long the next one waits.
    redial: (Time, Span),
}

/// What has become of a way.
pub(super) enum Change {
    /// Its link is there, or there anew; ready, or with a connection still to be made.
    Opened { is_ready: bool },
    /// Its interface is gone.
    Gone,
}

pub(super) struct Links {
    clock: Clock,
    transport: Transport,
    ways: Vec<Way>,
    /// Whether interfaces were named, which come and go.
    are_named: bool,
    queues: DeviceQueues,
    look_at: Time,
}

impl Links {
    /// Opens the links; those of interfaces that are not there (yet) come later.
    pub(super) fn open(
        ways: &Ways,
        transport: Transport,
        monitor: SocketAddr,
        registry: &Registry,
        clock: Clock,
    ) -> Result<Self, SourceError> {
        let any = [(Via::Any, None)];
        let vias = if ways.vias.is_empty() { &any[..] } else { &ways.vias };
        let way = |(index, (via, remote)): (usize, &(Via, Option<SocketAddr>))| Way {
            via: via.clone(),
            remote: remote.unwrap_or(monitor),
            token: Token(FIRST_TOKEN + index),
            // Of a block that nobody has (RFC 1112 section 4).
            label: Ipv4Addr::from(0xf000_0001 + index as u32).into(),
            place: (None, None),
            link: None,
            redial: (Time::ZERO, LOOK_AROUND),
        };
        let mut links = Self {
            clock,
            transport,
            ways: vias.iter().enumerate().map(way).collect(),
            are_named: !ways.vias.is_empty(),
            queues: DeviceQueues::new(),
            look_at: clock.now(),
        };
        if !links.are_named {
            let first = &mut links.ways[0];
            first.link = Some(first.open(links.transport.clone(), registry, clock)?);
        }
        Ok(links)
    }

    /// Interfaces may have come, gone, or changed their addresses: tells which ways did.
    pub(super) fn look_around(
        &mut self,
        now: Time,
        registry: &Registry,
        mut tell: impl FnMut(PathId, Change),
    ) -> Result<(), SourceError> {
        if !self.are_named || now < self.look_at {
            return Ok(());
        }
        self.look_at = now + LOOK_AROUND;
        let interfaces = match Interfaces::read() {
            Ok(interfaces) => interfaces,
            // What was known still holds.
            Err(error) => {
                tracing::debug!("interfaces cannot be listed: {error}");
                return Ok(());
            }
        };
        for (id, way) in (0..).map(PathId).zip(&mut self.ways) {
            let place = (interfaces.address(&way.via, way.remote), interfaces.index(&way.via));
            if place.0.is_none() {
                if way.link.take().is_some() {
                    tell(id, Change::Gone);
                }
                continue;
            }
            let is_lost = way.link.as_ref().is_some_and(Link::is_down);
            let is_same = way.link.is_some() && way.place == place;
            if is_same && !is_lost {
                if now >= way.redial.0 {
                    way.redial.1 = LOOK_AROUND;
                }
                continue;
            }
            if is_same && now < way.redial.0 {
                continue;
            }
            way.redial = (now + way.redial.1, (way.redial.1 * 2).min(LONGEST_REDIAL));
            if way.link.take().is_some() && !is_lost {
                tell(id, Change::Gone);
            }
            // Without a route yet, perhaps: it is tried again.
            match way.open(self.transport.clone(), registry, self.clock) {
                Ok(link) => {
                    let is_ready = !link.is_dialling();
                    (way.link, way.place) = (Some(link), place);
                    if let Some(name) = interfaces.name(&way.via) {
                        self.queues.label(way.label, name);
                    }
                    tell(id, Change::Opened { is_ready });
                }
                Err(LinkError::System(error)) => {
                    tracing::debug!(via = %way.via, "no link: {error}");
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The next datagram that has come by a way.
    pub(super) fn receive(&mut self, id: PathId) -> Result<Option<&[u8]>, LinkError> {
        let Some(link) = self.link(id) else { return Ok(None) };
        Ok(link.receive()?.map(|(datagram, ())| datagram))
    }

    /// Sends by a way; what cannot leave is as good as replaced.
    pub(super) fn send(
        &mut self,
        id: PathId,
        now: Time,
        datagram: &[u8],
    ) -> Result<Sent, LinkError> {
        self.link(id).map_or(Ok(Sent::Replaced), |link| link.send(now, datagram))
    }

    /// Lets a link look at the time.
    pub(super) fn on_timer(&mut self, id: PathId, now: Time) -> Result<(), LinkError> {
        self.link(id).map_or(Ok(()), |link| link.on_timer(now))
    }

    pub(super) fn poll_event(&mut self, id: PathId) -> Option<LinkEvent> {
        self.link(id)?.poll_event()
    }

    pub(super) fn next_timer(&self) -> Option<Time> {
        let links = self.ways.iter().filter_map(|way| way.link.as_ref());
        let look_at = self.are_named.then_some(self.look_at);
        links.filter_map(Link::next_timer).chain(look_at).min()
    }

    /// Makes sockets and connections anew, of those that are down or of all.
    pub(super) fn renew(
        &mut self,
        now: Time,
        registry: &Registry,
        all: bool,
    ) -> Result<(), LinkError> {
        let mut links = self.ways.iter_mut().filter_map(|way| way.link.as_mut());
        links.try_for_each(
            |link| {
                if all || link.is_down() { link.renew(now, registry) } else { Ok(()) }
            },
        )
    }

    /// Whether nothing can leave until a connection that is being made is there.
    pub(super) fn is_dialling(&self) -> bool {
        let mut links = self.ways.iter().filter_map(|way| way.link.as_ref()).peekable();
        links.peek().is_some() && links.all(Link::is_dialling)
    }

    /// Whether something can leave by a way.
    pub(super) fn is_ready(&self, id: PathId) -> bool {
        let link = self.ways.get(usize::from(id.0)).and_then(|way| way.link.as_ref());
        link.is_some_and(|link| !link.is_dialling() && !link.is_down())
    }

    /// Their numbers.
    pub(super) fn ids(&self) -> impl Iterator<Item = PathId> + use<> {
        (0..self.ways.len() as u8).map(PathId)
    }

    /// By what each leaves, and for where.
    pub(super) fn names(&self) -> impl Iterator<Item = (&Via, SocketAddr)> {
        self.ways.iter().map(|way| (&way.via, way.remote))
    }

    /// What waits in front of a way on this host; `None` where nobody can tell.
    pub(super) fn queue(&mut self, id: PathId, now: Time) -> Option<DeviceQueue> {
        let way = self.ways.get(usize::from(id.0)).filter(|way| way.link.is_some())?;
        let path = FourTuple::new(way.remote, Some(way.label));
        self.queues.queue(self.clock.instant_of(now), path).map(|seen| seen.queue)
    }

    /// Shows the session the queues, where it has a choice.
    pub(super) fn show_queues(&mut self, now: Time, session: &mut session::Source) {
        if self.ways.len() > 1 {
            for id in self.ids() {
                session.on_queue(id, self.queue(id, now));
            }
        }
    }

    /// Sends the last words by all.
    pub(super) fn close(&mut self, now: Time, farewell: &[u8]) {
        let links = self.ways.iter_mut().filter_map(|way| way.link.as_mut());
        links.for_each(|link| link.close(now, farewell));
    }

    fn link(&mut self, id: PathId) -> Option<&mut Link<Plain>> {
        self.ways.get_mut(usize::from(id.0))?.link.as_mut()
    }
}

impl Way {
    fn open(
        &self,
        transport: Transport,
        registry: &Registry,
        clock: Clock,
    ) -> Result<Link<Plain>, LinkError> {
        let ends = (self.via.clone(), self.remote);
        Link::open(transport, ends, (registry, self.token), Plain, clock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_name_there_is_one_way_and_with_names_as_many() {
        assert_eq!(Ways::default().paths().unwrap().count(), 1);
        let via = |name: &str| (Via::from(name), None);
        let ways = Ways { vias: vec![via("lo"), via("no-such-one")], ..Ways::default() };
        assert_eq!(ways.paths().unwrap().count(), 2);
        let poll = mio::Poll::new().unwrap();
        let clock = Clock::new();
        let monitor = "127.0.0.1:9".parse().unwrap();
        let mut links =
            Links::open(&ways, Transport::Udp, monitor, poll.registry(), clock).unwrap();
        let mut opened = Vec::new();
        links
            .look_around(clock.now(), poll.registry(), |id, change| {
                assert!(matches!(change, Change::Opened { is_ready: true }));
                opened.push(id);
            })
            .unwrap();
        assert_eq!(opened, [PathId(0)]);
        assert!(links.is_ready(PathId(0)) && !links.is_ready(PathId(1)));
        assert_eq!(links.send(PathId(1), clock.now(), b"x").unwrap(), Sent::Replaced);
    }
}
