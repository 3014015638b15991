//! The monitor's end: many connections behind one socket.
//!
//! Every connection has a slot, numbered as in noq-proto's endpoint. Three indices keep the work of
//! a turn proportional to the number of events, independent of the number of connections: timers in
//! order of time, slots with something to send, slots with something to read.

mod certified;
mod crowd;

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use freshline_core::dscp::Dscp;
use freshline_core::session::{Origin, Shares};
use noq_proto::{
    Connection, ConnectionHandle, DatagramEvent, Endpoint, EndpointEvent, Event, FourTuple,
    Incoming, PathId, VarInt,
};

pub(crate) use self::certified::identity;
use self::certified::{first_shown, identity_of, timed};
use super::datagram::Datagram;
use super::event::{ConnKey, ServerEvent};
use super::names;
use super::peer::{Peer, Phase};
use super::strangers::Strangers;
use super::token_clock::TokenClock;
use super::transmit::{Transmit, Written, write_next};
use super::{Limits, SendOutcome, ServerConfig, TOO_SMALL, outbox, takes_our_datagrams};
use crate::handshakes::{Entry, Handshakes};
use crate::network::{Network, origin};
use crate::refusal::{Refusal, Refusals};

/// The maximum number of queued replies outside of any connection (Retry, refusal, reset); more are
/// dropped, and an honest peer asks again.
const MAX_REPLIES: usize = 256;

/// The reason given to a peer whose connection ends without a session.
const NO_SESSION: &str = "no session came by this connection; dial again once there is a state";
/// The reason given to a peer beyond [`Limits::max_connections`].
const FULL: &str = "it has as many connections as it takes";
/// The reason given to a peer whose connection is displaced by one of a party with fewer.
const DISPLACED: &str = "it has as many connections as it takes, and most of them are yours";

/// The monitor's connections. See the [module](super) for how to drive it.
///
/// - input: [`handle`](Self::handle), [`handle_timeout`](Self::handle_timeout)
/// - commands: [`send`](Self::send), [`keep`](Self::keep), [`close`](Self::close)
/// - output: [`poll_event`](Self::poll_event), [`recv`](Self::recv),
///   [`poll_transmit`](Self::poll_transmit), [`poll_timeout`](Self::poll_timeout)
/// - getters: [`remote_addr`](Self::remote_addr), [`connections`](Self::connections)
#[derive(Debug)]
pub struct Server {
    endpoint: Endpoint,
    limits: Limits,
    clock: Arc<TokenClock>,
    peers: Vec<Option<Box<Peer>>>,
    open: usize,
    handshakes: usize,
    /// Addresses of unfinished handshakes. An address with several handshakes loses its entry with
    /// the first that ends.
    shaking: HashSet<SocketAddr>,
    /// Connections without a session, including closing ones.
    strangers: Strangers,
    /// Connections with a session, by slot.
    kept: Shares,
    rates: Handshakes,
    refusals: Refusals,
    next_serial: u64,
    timers: BTreeSet<(Instant, usize)>,
    sendable: VecDeque<usize>,
    readable: VecDeque<usize>,
    written: Written,
    events: VecDeque<ServerEvent>,
    /// Until then, addresses are limited before their first packets are processed.
    crowded_until: Instant,
}

impl Server {
    /// A monitor without connections.
    pub fn new(config: &ServerConfig, now: Instant) -> Self {
        let clock = Arc::new(TokenClock::new(now));
        let quic = timed(config, &clock);
        Self {
            endpoint: Endpoint::new(config.endpoint.clone(), Some(quic), false),
            limits: config.limits,
            clock,
            peers: Vec::new(),
            open: 0,
            handshakes: 0,
            shaking: HashSet::new(),
            strangers: Strangers::default(),
            kept: Shares::default(),
            rates: Handshakes::new(config.limits.handshakes, now),
            refusals: Refusals::default(),
            next_serial: 0,
            timers: BTreeSet::new(),
            sendable: VecDeque::new(),
            readable: VecDeque::new(),
            written: Written::new(),
            events: VecDeque::new(),
            crowded_until: now,
        }
    }

    /// Handles a UDP datagram from `from`; `local_ip` is its destination address, if known.
    pub fn handle(
        &mut self,
        now: Instant,
        from: SocketAddr,
        local_ip: Option<IpAddr>,
        bytes: &[u8],
    ) {
        self.clock.set(now);
        if self.is_one_too_many(now, from, bytes) {
            return;
        }
        let path = FourTuple::new(from, local_ip);
        let mut reply = Vec::new();
        match self.endpoint.handle(now, path, None, bytes.into(), &mut reply) {
            Some(DatagramEvent::ConnectionEvent(ConnectionHandle(slot), event)) => {
                if let Some(peer) = self.peers.get_mut(slot).and_then(Option::as_mut) {
                    peer.connection.handle_event(event);
                    self.settle(slot, now);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.welcome(incoming, now),
            Some(DatagramEvent::Response(transmit)) => self.reply(transmit, reply),
            None => {}
        }
    }

    /// Handles due timers; to be called at [`poll_timeout`](Self::poll_timeout), harmless before.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(wake_at, slot)) = self.timers.first()
            && wake_at <= now
        {
            self.timers.pop_first();
            let Some(peer) = self.peers[slot].as_mut() else { continue };
            peer.wake_at = None;
            match peer.phase {
                // Without a reply: the address may well be spoofed.
                Phase::Handshake { give_up_at } if give_up_at <= now => {
                    self.refusals.count(Refusal::NoSession);
                    self.forget(slot);
                }
                Phase::Stranger { close_at: Some(close_at) } if close_at <= now => {
                    let key = peer.key;
                    self.refusals.count(Refusal::NoSession);
                    self.close(key, now, NO_SESSION);
                }
                Phase::Kept { until } if until <= now => {
                    peer.phase = Phase::Stranger { close_at: None };
                    self.end_keeping(slot);
                    self.settle(slot, now);
                }
                _ => {
                    peer.connection.handle_timeout(now);
                    self.settle(slot, now);
                }
            }
        }
    }

    /// Makes `datagram` the next to leave on this connection, replacing one that is still pending.
    pub fn send(&mut self, key: ConnKey, datagram: &[u8]) -> SendOutcome {
        self.send_marked(key, datagram, Dscp::DEFAULT)
    }

    /// Like [`send`](Self::send), in a packet with this code point.
    pub fn send_marked(&mut self, key: ConnKey, datagram: &[u8], dscp: Dscp) -> SendOutcome {
        match self.peer_mut(key) {
            Some(peer) if peer.phase.is_established() => {
                peer.mark = dscp;
                let outcome = outbox::put(&mut peer.connection, datagram);
                self.mark_sendable(key.slot);
                outcome
            }
            _ => SendOutcome::NotConnected,
        }
    }

    /// Notes session data on this connection: for [`Limits::opening_timeout`], or
    /// [`Limits::idle_timeout`] if that is longer, it is not displaced by newcomers without a
    /// session. Beyond [`Limits::max_connections`], a connection of the party that has most is
    /// closed, or this one.
    pub fn keep(&mut self, key: ConnKey, now: Instant) {
        let until = now + self.limits.opening_timeout.max(self.limits.idle_timeout);
        let Some(peer) = self.peer_mut(key) else { return };
        let origin = peer.origin;
        match &mut peer.phase {
            // Its timer checks this when it is due.
            Phase::Kept { until: before } => return *before = until,
            Phase::Stranger { .. } => {}
            Phase::Handshake { .. } | Phase::Lost => return,
        }
        if self.kept.len() >= self.limits.max_connections {
            let Some(slot) = self.kept_to_displace(&origin) else {
                self.refusals.count(Refusal::Connections);
                return self.close(key, now, FULL);
            };
            if let Some(other) = self.peers[slot].as_ref().map(|peer| peer.key) {
                self.refusals.count(Refusal::ConnectionDisplaced);
                self.close(other, now, DISPLACED);
            }
        }
        let Some(peer) = self.peer_mut(key) else { return };
        peer.phase = Phase::Kept { until };
        let network = peer.network;
        self.strangers.remove(network, key.serial);
        self.kept.insert(key.slot as u32, &origin);
        self.settle(key.slot, now);
    }

    /// A connection that was silent for long, of the party that has most connections.
    fn kept_to_displace(&mut self, newcomer: &Origin) -> Option<usize> {
        let until = |slot: u32| match self.peers[slot as usize].as_ref().map(|peer| peer.phase) {
            Some(Phase::Kept { until }) => Some(until),
            _ => None,
        };
        self.kept.gives_way(newcomer, until).map(|slot| slot as usize)
    }

    /// This connection has no session any more: newcomers displace it, even while it closes. So all
    /// connections are either kept ones or strangers, and each kind has a bound.
    fn end_keeping(&mut self, slot: usize) {
        self.kept.remove(slot as u32);
        if let Some(peer) = &self.peers[slot] {
            self.strangers.insert(peer.network, peer.key.serial, slot);
        }
    }

    /// Ends a connection and sends the reason to the source, in words for its user. No event
    /// follows.
    pub fn close(&mut self, key: ConnKey, now: Instant, reason: &str) {
        if let Some(peer) = self.peer_mut(key)
            && peer.phase.is_established()
        {
            let reason = Bytes::copy_from_slice(reason.as_bytes());
            peer.connection.close(now, VarInt::from_u32(0), reason);
            peer.phase = Phase::Lost;
            self.end_keeping(key.slot);
            self.settle(key.slot, now);
        }
    }

    /// Ends all connections, like [`close`](Self::close).
    pub fn close_all(&mut self, now: Instant, reason: &str) {
        self.close_those(now, reason, |_| true);
    }

    /// Ends the connections with these numbers, like [`close`](Self::close).
    pub(crate) fn close_those(
        &mut self,
        now: Instant,
        reason: &str,
        is_one: impl Fn(NonZeroU64) -> bool,
    ) {
        let keys = self.peers.iter().flatten().map(|peer| peer.key);
        let keys: Vec<_> = keys.filter(|key| is_one(key.serial())).collect();
        for key in keys {
            self.close(key, now, reason);
        }
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    /// The next datagram from any source. Drain these after each batch of [`handle`](Self::handle):
    /// each connection holds 64 KiB, then drops its oldest.
    pub fn recv(&mut self) -> Option<(ConnKey, Datagram)> {
        while let Some(&slot) = self.readable.front() {
            if let Some(peer) = self.peers[slot].as_mut() {
                if let Some(datagram) = peer.connection.datagrams().recv() {
                    return Some((peer.key, Datagram(datagram)));
                }
                peer.readable = false;
            }
            self.readable.pop_front();
        }
        None
    }

    /// Writes the next outgoing UDP datagram into `buf`, replacing its content.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        buf.clear();
        if let Some((transmit, bytes)) = self.written.pop_front() {
            buf.extend_from_slice(&bytes);
            return Some(transmit);
        }
        while let Some(slot) = self.sendable.pop_front() {
            let Some(peer) = self.peers[slot].as_mut() else { continue };
            let Peer { connection, mark, .. } = &mut **peer;
            if let Some(transmit) = write_next(connection, now, *mark, buf, &mut self.written) {
                // It may have more; the others go first.
                self.sendable.push_back(slot);
                return Some(transmit);
            }
            peer.sendable = false;
            self.carry_events(slot, now);
        }
        None
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due. Query it again after any other call.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|&(wake_at, _)| wake_at)
    }

    /// The present address of a connection's source; it may change, and may be forged.
    pub fn remote_addr(&self, key: ConnKey) -> Option<SocketAddr> {
        let peer = self.peers.get(key.slot)?.as_ref().filter(|peer| peer.key == key)?;
        peer.connection.network_path(PathId::ZERO).ok().map(|path| path.remote())
    }

    /// The party that is charged for the places of a connection's source: its certificate, and the
    /// address proven by the handshake. Packets from elsewhere, which can be forged, do not change
    /// it.
    pub fn origin(&self, key: ConnKey) -> Option<Origin> {
        let peer = self.peers.get(key.slot)?.as_ref().filter(|peer| peer.key == key)?;
        Some(peer.origin)
    }

    /// Identifies the certificate that the source of a connection has presented: the same number
    /// for the same certificate, as long as this monitor runs. `None` if no certificate was
    /// requested.
    pub fn identity(&self, key: ConnKey) -> Option<NonZeroU64> {
        let peer = self.peers.get(key.slot)?.as_ref().filter(|peer| peer.key == key)?;
        peer.identity
    }

    /// The names in that certificate, DNS names and URIs.
    pub fn names(&self, key: ConnKey) -> &[Box<str>] {
        let peer = self.peers.get(key.slot).and_then(Option::as_ref);
        peer.filter(|peer| peer.key == key).map_or(&[], |peer| &peer.names)
    }

    /// The refusals, by reason.
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Connections held, including unfinished handshakes and closing ones.
    pub fn connections(&self) -> usize {
        self.open
    }

    /// Decides on a newcomer: accept it, require proof of its address, or drop it.
    fn welcome(&mut self, incoming: Incoming, now: Instant) {
        let mut reply = Vec::new();
        let from = incoming.remote_address();
        if self.is_full_for(&origin(from, 0)) {
            self.refusals.count(Refusal::Connections);
            let transmit = self.endpoint.refuse(incoming, &mut reply);
            return self.reply(transmit, reply);
        }
        let is_proven = incoming.remote_address_validated();
        let is_crowded = self.strangers.len() >= self.limits.max_strangers;
        let is_doubted = is_crowded || self.handshakes >= self.limits.retry_above;
        let entry = if is_doubted && !is_proven {
            Entry::Prove
        } else {
            self.rates.decide(now, from.ip(), is_proven.then(|| incoming.orig_dst_cid()))
        };
        match entry {
            Entry::In => {}
            Entry::Prove => {
                return match self.endpoint.retry(incoming, &mut reply) {
                    Ok(transmit) => self.reply(transmit, reply),
                    Err(error) => self.endpoint.ignore(error.into_incoming()),
                };
            }
            Entry::Out(reason) => {
                self.refusals.count(reason);
                return self.endpoint.ignore(incoming);
            }
        }
        match self.endpoint.accept(incoming, now, &mut reply, None) {
            Ok((ConnectionHandle(slot), connection)) => {
                self.admit(slot, from, connection, now);
                while self.strangers.len() > self.limits.max_strangers.max(1)
                    && let Some(slot) = self.strangers.first_to_go()
                {
                    // Without a packet: a flood is not worth one, and an honest peer redials.
                    self.refusals.count(Refusal::ConnectionDisplaced);
                    self.forget(slot);
                }
            }
            Err(error) => {
                self.refusals.count(Refusal::Handshake);
                let reason = error.cause.into();
                self.events.push_back(ServerEvent::Refused { from, reason });
                if let Some(transmit) = error.response {
                    self.reply(transmit, reply);
                }
            }
        }
    }

    fn admit(&mut self, slot: usize, from: SocketAddr, connection: Connection, now: Instant) {
        let key = ConnKey { serial: self.next_serial, slot };
        let network = Network::of(from.ip());
        self.strangers.insert(network, key.serial, slot);
        self.next_serial += 1;
        if self.peers.len() <= slot {
            self.peers.resize_with(slot + 1, || None);
        }
        self.peers[slot] = Some(Box::new(Peer {
            key,
            connection,
            phase: Phase::Handshake { give_up_at: now + self.limits.handshake_timeout },
            from,
            network,
            origin: origin(from, 0),
            identity: None,
            names: Box::default(),
            mark: Dscp::DEFAULT,
            wake_at: None,
            sendable: false,
            readable: false,
        }));
        self.open += 1;
        self.handshakes += 1;
        self.shaking.insert(from);
        self.settle(slot, now);
    }

    /// Whether a newcomer would be refused as soon as it opens a session.
    fn is_full_for(&mut self, newcomer: &Origin) -> bool {
        self.kept.len() >= self.limits.max_connections && self.kept_to_displace(newcomer).is_none()
    }

    fn reply(&mut self, transmit: noq_proto::Transmit, bytes: Vec<u8>) {
        if self.written.len() < MAX_REPLIES {
            self.written.push_back(((&transmit).into(), bytes));
        }
    }

    fn peer_mut(&mut self, key: ConnKey) -> Option<&mut Peer> {
        let peer = self.peers.get_mut(key.slot)?.as_mut()?;
        (peer.key == key).then_some(peer)
    }

    /// Handles the output of a connection after any input: it may have something to send, and
    /// events.
    fn settle(&mut self, slot: usize, now: Instant) {
        self.mark_sendable(slot);
        self.carry_events(slot, now);
    }

    fn mark_sendable(&mut self, slot: usize) {
        if let Some(peer) = self.peers[slot].as_mut()
            && !peer.sendable
        {
            peer.sendable = true;
            self.sendable.push_back(slot);
        }
    }

    /// Passes a connection's events to the endpoint and to the caller, and its next timeout to the
    /// timers.
    fn carry_events(&mut self, slot: usize, now: Instant) {
        let Some(peer) = self.peers[slot].as_mut() else { return };
        let mut answered = false;
        let mut drained = false;
        while let Some(event) = peer.connection.poll_endpoint_events() {
            drained |= event.is_drained();
            if let Some(answer) = self.endpoint.handle_event(ConnectionHandle(slot), event) {
                peer.connection.handle_event(answer);
                answered = true;
            }
        }
        let before = peer.phase;
        while let Some(event) = peer.connection.poll() {
            match event {
                Event::Connected if takes_our_datagrams(&mut peer.connection) => {
                    let close_at = Some(now + self.limits.opening_timeout);
                    peer.phase = Phase::Stranger { close_at };
                    if let Some(shown) = first_shown(&peer.connection) {
                        peer.identity = Some(identity_of(&shown));
                        peer.names = names::of(&shown);
                    }
                    peer.origin.owner = peer.identity.map_or(0, NonZeroU64::get);
                }
                Event::Connected => {
                    self.refusals.count(Refusal::Handshake);
                    peer.connection.close(now, VarInt::from_u32(0), TOO_SMALL.into());
                    peer.phase = Phase::Lost;
                    answered = true;
                }
                Event::DatagramReceived if !peer.readable => {
                    peer.readable = true;
                    self.readable.push_back(slot);
                }
                Event::ConnectionLost { reason } => {
                    if peer.phase.is_handshake() {
                        self.refusals.count(Refusal::Handshake);
                    }
                    // Like `end_keeping`.
                    self.kept.remove(slot as u32);
                    self.strangers.insert(peer.network, peer.key.serial, slot);
                    self.events.extend(peer.lose(reason.into()));
                }
                _ => {}
            }
        }
        if before.is_handshake() && !peer.phase.is_handshake() {
            self.handshakes -= 1;
            self.shaking.remove(&peer.from);
        }
        if drained {
            self.remove(slot);
            return;
        }
        let wake_at = peer.poll_timeout();
        if wake_at != peer.wake_at {
            if let Some(old) = peer.wake_at {
                self.timers.remove(&(old, slot));
            }
            self.timers.extend(wake_at.map(|new| (new, slot)));
            peer.wake_at = wake_at;
        }
        if answered {
            self.mark_sendable(slot);
        }
    }

    /// Drops a connection without notifying the peer.
    fn forget(&mut self, slot: usize) {
        self.endpoint.handle_event(ConnectionHandle(slot), EndpointEvent::drained());
        self.remove(slot);
    }

    /// Frees a slot that the endpoint has freed.
    fn remove(&mut self, slot: usize) {
        if let Some(peer) = self.peers[slot].take() {
            self.open -= 1;
            if peer.phase.is_handshake() {
                self.handshakes -= 1;
                self.shaking.remove(&peer.from);
            }
            self.strangers.remove(peer.network, peer.key.serial);
            self.kept.remove(slot as u32);
            if let Some(wake_at) = peer.wake_at {
                self.timers.remove(&(wake_at, slot));
            }
        }
    }
}
