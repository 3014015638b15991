//! The paths of a source to its monitor: one link per path, each through an interface or an address
//! of this host.
//!
//! A named path exists while its interface is up and has an address (for a monitor that is given as
//! an address: one of the same family). Its link is re-created when that address changes. If the
//! addresses of a monitor's name do not fit those of the interface, the path stays, and its dialler
//! reports this and retries with growing pauses. Without `--via` there is one path, which follows
//! the routes and always exists.

use std::net::IpAddr;
use std::sync::Arc;

use freshline_core::dscp::Dscp;
use freshline_core::path::{DeviceQueue, PathId, SchedulerConfig};
use freshline_core::session::{self, Paths, PathsError};
use freshline_core::unit::{Bytes, Span, Time};
use mio::{Registry, Token};

use crate::clock::Clock;
use crate::dial::{Dialler, Remote, Settings};
use crate::link::{
    Fetched, LinkError, LinkEvent, Plain, Received, SendStatus, Transport, WireBytes,
};
use crate::sleeper::Sleeper;
use crate::via::{DeviceQueues, Interfaces, PathKey, SeenBy, Via, ViaPath};
use crate::waker::Waker;

/// How often to update the list of interfaces.
const LOOK_AROUND: Span = Span::from_millis(250);

/// The first token of a source's sockets, if the source has the poll for itself.
const FIRST_TOKEN: usize = 8;

/// The poll that watches the sockets of a source.
pub(crate) struct Place<'a> {
    pub(crate) registry: &'a Registry,
    /// Woken for states and for the resolver's answers: [`Engine::on_woken`] and [`Engine::turn`]
    /// are due.
    pub(crate) waker: Arc<Waker>,
    /// The token of the first path's socket; the tokens of further paths follow it.
    pub(crate) first_token: usize,
}

impl<'a> Place<'a> {
    /// For the only source of a thread.
    pub(super) fn alone(sleeper: &'a Sleeper) -> Self {
        let (registry, waker) = (sleeper.registry(), sleeper.waker());
        Self { registry, waker, first_token: FIRST_TOKEN }
    }
}

/// The interfaces or addresses of this host by which a source sends, and the choice among them.
#[derive(Debug, Clone, PartialEq)]
pub struct SourcePaths {
    /// The paths to the monitor; if empty, packets follow the routes.
    pub vias: Vec<ViaPath>,
    /// Chooses among several paths.
    pub scheduler: SchedulerConfig,
}

impl Default for SourcePaths {
    /// One path, which follows the routes.
    fn default() -> Self {
        let scheduler = SchedulerConfig::Freshest(Default::default());
        Self { vias: Vec::new(), scheduler }
    }
}

impl SourcePaths {
    /// The scheduler's state for these paths.
    pub(crate) fn paths(&self) -> Result<Paths, PathsError> {
        Paths::new(self.vias.len().max(1), &self.scheduler)
    }
}

struct SourcePath {
    via: Via,
    remote: Remote,
    token: Token,
    /// The device by which it leaves, if one is given.
    device: Option<u32>,
    /// The number of the interface that its sockets are bound to: an interface that re-appears
    /// under the same name has another number.
    index: Option<u32>,
    /// `None` while its interface is gone.
    dial: Option<Dialler<Plain>>,
    /// The means by which the queue of its device was last read.
    seen_by: Option<SeenBy>,
}

/// A change of a path.
pub(super) enum Change {
    /// Its interface exists, or was re-created; the events of its link report whether it can send.
    There,
    /// Its interface is gone.
    Gone,
}

pub(super) struct Links {
    clock: Clock,
    transport: Transport,
    waker: Arc<Waker>,
    paths: Vec<SourcePath>,
    /// Whether interfaces were named, which can appear and disappear.
    are_named: bool,
    /// Only for several paths: a single path's queue is not read, because each reader takes a
    /// descriptor.
    queues: Option<DeviceQueues>,
    /// Whether packets are stamped when they leave their device.
    stamps_departures: bool,
    wire_bytes: WireBytes,
    look_at: Time,
}

impl Links {
    /// Starts to dial; interfaces that do not exist (yet) are dialled later.
    pub(super) fn open(
        paths: &SourcePaths,
        transport: Transport,
        monitor: &Remote,
        place: &Place<'_>,
        clock: Clock,
    ) -> Result<Self, LinkError> {
        let any = [ViaPath::from(Via::Any)];
        let vias = if paths.vias.is_empty() { &any[..] } else { &paths.vias };
        let path = |(index, ViaPath { via, peer }): (usize, &ViaPath)| SourcePath {
            via: via.clone(),
            remote: peer.map_or_else(|| monitor.clone(), Remote::from),
            token: Token(place.first_token + index),
            device: None,
            index: None,
            dial: None,
            seen_by: None,
        };
        let mut links = Self {
            clock,
            transport,
            waker: Arc::clone(&place.waker),
            paths: vias.iter().enumerate().map(path).collect(),
            are_named: !paths.vias.is_empty(),
            queues: (vias.len() > 1).then(DeviceQueues::new),
            stamps_departures: paths.vias.len() > 1 && paths.scheduler.wants_queueing_delays(),
            wire_bytes: WireBytes::default(),
            look_at: clock.now(),
        };
        if !links.are_named {
            let settings = links.settings(&links.paths[0]);
            links.paths[0].dial = Some(Dialler::new(settings, place.registry)?);
        }
        Ok(links)
    }

    fn settings(&self, path: &SourcePath) -> Settings<Plain> {
        Settings {
            transport: self.transport.clone(),
            via: path.via.clone(),
            remote: path.remote.clone(),
            token: path.token,
            inlet: |_| Plain,
            clock: self.clock,
            redials: self.are_named,
            stamps_departures: self.stamps_departures,
            wire_bytes: self.wire_bytes.clone(),
            waker: Arc::clone(&self.waker),
        }
    }

    /// Updates the list of interfaces and their addresses; reports the paths that changed.
    pub(super) fn look_around(
        &mut self,
        now: Time,
        registry: &Registry,
        mut report: impl FnMut(PathId, Change),
    ) -> Result<(), LinkError> {
        if self.are_named && now >= self.look_at {
            self.look_at = now + LOOK_AROUND;
            match Interfaces::read() {
                Ok(interfaces) => self.look_at_interfaces(&interfaces, registry, &mut report)?,
                // The last known list remains in force.
                Err(error) => tracing::debug!("interfaces cannot be listed: {error}"),
            }
        }
        let mut dials = self.paths.iter_mut().filter_map(|path| path.dial.as_mut());
        dials.try_for_each(|dial| dial.turn(now, registry))
    }

    fn look_at_interfaces(
        &mut self,
        interfaces: &Interfaces,
        registry: &Registry,
        report: &mut impl FnMut(PathId, Change),
    ) -> Result<(), LinkError> {
        for at in 0..self.paths.len() {
            let id = PathId(at as u8);
            let path = &mut self.paths[at];
            path.device = interfaces.device(&path.via);
            let index = interfaces.index(&path.via);
            let is_there = interfaces.carries(&path.via, path.remote.literal());
            // Other addresses may appear and disappear: only the link's own matters.
            let is_same = path.index == index
                && path.local_ip().is_none_or(|ip| interfaces.holds(&path.via, ip));
            if path.dial.is_some() && is_there && is_same {
                continue;
            }
            if path.dial.take().is_some() {
                report(id, Change::Gone);
            }
            if !is_there {
                continue;
            }
            path.index = index;
            let settings = self.settings(&self.paths[at]);
            self.paths[at].dial = Some(Dialler::new(settings, registry)?);
            report(id, Change::There);
        }
        Ok(())
    }

    /// The next datagram received by a path, and its code point; `on_left` gets the numbers of
    /// updates that left the path's device, and how long after they were sent.
    pub(super) fn receive(
        &mut self,
        id: PathId,
        mut on_left: impl FnMut(u64, Span),
    ) -> Result<Fetched<Received<'_, Plain>>, LinkError> {
        let Some(dial) = self.dial(id) else { return Ok(Fetched::Nothing) };
        dial.receive(&mut on_left)
    }

    /// Sends update `seq` by a path; an update that cannot leave counts as replaced.
    pub(super) fn send(
        &mut self,
        id: PathId,
        now: Time,
        dscp: Dscp,
        datagram: &[u8],
        seq: Option<u64>,
    ) -> Result<SendStatus, LinkError> {
        let Some(path) = self.paths.get_mut(usize::from(id.0)) else {
            return Ok(SendStatus::Replaced);
        };
        // The queues of stations are behind the driver's entry, where a departure is stamped.
        let tag = seq.filter(|_| path.seen_by != Some(SeenBy::Stations));
        path.dial
            .as_mut()
            .map_or(Ok(SendStatus::Replaced), |dial| dial.send(now, dscp, datagram, tag))
    }

    /// Bytes sent by all paths since the last call, with all headers.
    pub(super) fn take_wire_bytes(&self) -> Bytes {
        self.wire_bytes.take()
    }

    /// Handles a link's timers.
    pub(super) fn handle_timeout(&mut self, id: PathId, now: Time) -> Result<(), LinkError> {
        self.dial(id).map_or(Ok(()), |dial| dial.handle_timeout(now))
    }

    pub(super) fn poll_event(&mut self, id: PathId) -> Option<LinkEvent> {
        self.dial(id)?.poll_event()
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let dials = self.paths.iter().filter_map(|path| path.dial.as_ref());
        let look_at = self.are_named.then_some(self.look_at);
        dials.filter_map(Dialler::poll_timeout).chain(look_at).min()
    }

    /// Re-creates sockets and connections, of the links that are down or of all links.
    pub(super) fn renew(
        &mut self,
        now: Time,
        registry: &Registry,
        all: bool,
    ) -> Result<(), LinkError> {
        let mut dials = self.paths.iter_mut().filter_map(|path| path.dial.as_mut());
        dials.try_for_each(
            |dial| {
                if all || dial.is_down() { dial.renew(now, registry) } else { Ok(()) }
            },
        )
    }

    /// Whether a path that cannot carry packets is being dialled.
    pub(super) fn is_dialling(&self, id: PathId) -> bool {
        let path = self.paths.get(usize::from(id.0));
        path.and_then(|path| path.dial.as_ref()).is_some_and(Dialler::is_dialling)
    }

    /// Whether a path can carry packets.
    pub(super) fn is_ready(&self, id: PathId) -> bool {
        let path = self.paths.get(usize::from(id.0));
        path.and_then(|path| path.dial.as_ref()).is_some_and(Dialler::is_ready)
    }

    /// The numbers of the paths.
    pub(super) fn ids(&self) -> impl Iterator<Item = PathId> + use<> {
        (0..self.paths.len() as u8).map(PathId)
    }

    /// The exit of each path, and its destination: the address that has answered, or the configured
    /// name.
    pub(super) fn names(&self) -> impl Iterator<Item = (&Via, String)> {
        self.paths.iter().map(|path| {
            let address = path.dial.as_ref().and_then(Dialler::address);
            (
                &path.via,
                address.map_or_else(|| path.remote.to_string(), |address| address.to_string()),
            )
        })
    }

    /// The queue of a path on this host; `None` if it cannot be read.
    pub(super) fn queue(&mut self, id: PathId, now: Time) -> Option<DeviceQueue> {
        let path = self.paths.get_mut(usize::from(id.0))?;
        path.seen_by = None;
        let key = PathKey::new(path.device, path.dial.as_ref()?.address()?);
        let seen = self.queues.as_mut()?.queue(self.clock.instant_of(now), key)?;
        path.seen_by = Some(seen.by);
        Some(seen.queue)
    }

    /// The means by which the queue of each path's device was last read.
    pub(super) fn seen_by(&self) -> impl Iterator<Item = Option<SeenBy>> {
        self.paths.iter().map(|path| path.seen_by)
    }

    /// Whether there is more than one path.
    pub(super) fn are_several(&self) -> bool {
        self.paths.len() > 1
    }

    /// Passes the queues to the session, if it has a choice.
    pub(super) fn show_queues(&mut self, now: Time, session: &mut session::Source) {
        if self.are_several() {
            for id in self.ids() {
                session.handle_queue(id, self.queue(id, now));
            }
        }
    }

    /// Sends the final datagram by a path, and closes the link.
    pub(super) fn close(&mut self, id: PathId, now: Time, farewell: &[u8]) {
        if let Some(dial) = self.dial(id) {
            dial.close(now, farewell);
        }
    }

    /// Closes all links without a final datagram of the session.
    pub(super) fn hang_up(&mut self, now: Time) {
        self.paths
            .iter_mut()
            .filter_map(|path| path.dial.as_mut())
            .for_each(|dial| dial.hang_up(now));
    }

    fn dial(&mut self, id: PathId) -> Option<&mut Dialler<Plain>> {
        self.paths.get_mut(usize::from(id.0))?.dial.as_mut()
    }
}

impl SourcePath {
    fn local_ip(&self) -> Option<IpAddr> {
        self.dial.as_ref()?.local_ip()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn without_a_name_there_is_one_way_and_with_names_as_many() {
        assert_eq!(SourcePaths::default().paths().unwrap().count(), 1);
        let via = |name: &str| ViaPath::from(Via::from(name));
        let paths =
            SourcePaths { vias: vec![via("lo"), via("no-such-one")], ..SourcePaths::default() };
        assert_eq!(paths.paths().unwrap().count(), 2);
        let sleeper = Sleeper::new([Token(1), Token(2)]).unwrap();
        let clock = Clock::new();
        let monitor = "127.0.0.1:9".parse::<SocketAddr>().unwrap().into();
        let mut links =
            Links::open(&paths, Transport::Udp, &monitor, &Place::alone(&sleeper), clock).unwrap();
        let mut opened = Vec::new();
        links
            .look_around(clock.now(), sleeper.registry(), |id, change| {
                assert!(matches!(change, Change::There));
                opened.push(id);
            })
            .unwrap();
        assert_eq!(opened, [PathId(0)]);
        assert!(links.is_ready(PathId(0)) && !links.is_ready(PathId(1)));
        assert_eq!(
            links.send(PathId(1), clock.now(), Dscp::DEFAULT, b"x", None).unwrap(),
            SendStatus::Replaced
        );
    }

    #[test]
    fn a_name_without_an_address_of_the_interfaces_family_does_not_make_its_path_flap() {
        // The resolver accepts `127.1` as an IPv4 address, although it is not in the standard form.
        let monitor = Remote::new("127.1", 9);
        assert_eq!(monitor.literal(), None);
        let paths = SourcePaths { vias: vec![Via::from("::1").into()], ..SourcePaths::default() };
        let mut sleeper = Sleeper::new([Token(1), Token(2)]).unwrap();
        let clock = Clock::new();
        let mut links =
            Links::open(&paths, Transport::Udp, &monitor, &Place::alone(&sleeper), clock).unwrap();
        let interfaces = Interfaces::listed(&[("lo", "::1")]);
        let (mut changes, mut reasons) = (Vec::new(), Vec::new());
        let mut events = mio::Events::with_capacity(4);
        while reasons.len() < 3 {
            let mut report = |_, change| changes.push(matches!(change, Change::There));
            links.look_at_interfaces(&interfaces, sleeper.registry(), &mut report).unwrap();
            let dial = links.dial(PathId(0)).expect("its interface is there");
            dial.turn(clock.now(), sleeper.registry()).unwrap();
            reasons.extend(dial.poll_event());
            let wake_at = dial.poll_timeout();
            sleeper.sleep(clock.now(), wake_at, &mut events).unwrap();
        }
        assert_eq!(changes, [true], "it comes once and stays: {reasons:?}");
        assert!(
            reasons.iter().all(|reason| matches!(reason, LinkEvent::Waiting(_))),
            "{reasons:?}"
        );
    }
}
