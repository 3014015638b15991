//! UDP datagrams of clients' programs: one socket per flow and address family. The rules limit the
//! destinations.
//!
//! A flow has one port for all its destinations (RFC 4787, REQ-1), and accepts datagrams only from
//! addresses to which it has sent (REQ-8). It ends after [`IDLE`] without a datagram.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::Bytes;
use freshline_core::unit::{Span, Time};
use mio::net::UdpSocket;
use noq_proto::ConnectionHandle;
use slab::Slab;

use super::super::Target;
use super::super::driver::Watched;
use super::super::head::{self, Parsed, parse_target};
use super::super::udp::{self, Numbers, Partials};
use super::Server;

/// A flow without a datagram in either direction for this long ends (RFC 4787, REQ-5: at least 2
/// minutes).
const IDLE: Span = Span::from_secs(2 * 60);

/// Maximum number of flows per client; beyond it the flow that has been idle longest ends.
const FLOWS: usize = 256;

/// Destinations of a flow that are remembered as allowed, and names that it has looked up.
const PEERS: usize = 64;
const NAMES: usize = 16;

/// How long the address of a name is used.
const NAME_LIFE: Span = Span::from_secs(60);

/// Names of one client that are being looked up at a time, and datagrams of a flow that are queued
/// for each name. The clients share the threads that look names up.
const QUESTIONS: usize = 8;
const UNRESOLVED: usize = 4;

/// A client's flow.
#[derive(Debug)]
struct UdpFlow {
    link: ConnectionHandle,
    number: u32,
    /// For IPv4, and for IPv6.
    sockets: [Option<UdpSocket>; 2],
    /// The socket is in the list of ready ones.
    is_ready: [bool; 2],
    numbers: Numbers,
    used_at: Time,
    /// Destinations that the rules allow.
    allowed: VecDeque<SocketAddr>,
    names: VecDeque<(Target, SocketAddr, Time)>,
}

/// The address of a name that is being looked up, for a flow.
#[derive(Debug)]
struct Question {
    link: ConnectionHandle,
    flow: u32,
    target: Target,
    /// Payloads for that address.
    payloads: Vec<Bytes>,
}

/// The server's state of a client, apart from the flows themselves.
#[derive(Debug, Default)]
struct Peer {
    /// The keys of its flows.
    flows: HashSet<usize>,
    questions: usize,
    partials: Partials,
}

/// The flows of all clients.
#[derive(Debug, Default)]
pub(super) struct Flows {
    all: Slab<UdpFlow>,
    by_number: HashMap<(ConnectionHandle, u32), usize>,
    peers: HashMap<ConnectionHandle, Peer>,
    /// By their numbers.
    questions: HashMap<u64, Question>,
    /// Sockets that may have something to read, each once: twice the flow, and the family.
    ready: Vec<usize>,
    buffer: Vec<u8>,
}

impl Flows {
    /// The number of flows.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The poll reports that this socket can be read.
    pub(super) fn on_ready(&mut self, socket: usize) {
        if let Some(flow) = self.all.get_mut(socket / 2)
            && !std::mem::replace(&mut flow.is_ready[socket % 2], true)
        {
            self.ready.push(socket);
        }
    }

    /// Ends the flows of a client, whose handle may soon be another client's. Returns how many
    /// datagrams are dropped with them.
    pub(super) fn drop_client(&mut self, link: ConnectionHandle) -> usize {
        if self.peers.remove(&link).is_none() {
            return 0;
        }
        self.end(|flow| flow.link == link);
        let mut dropped = 0;
        self.questions.retain(|_, question| {
            let is_his = question.link == link;
            dropped += if is_his { question.payloads.len() } else { 0 };
            !is_his
        });
        dropped
    }

    /// Ends idle flows.
    pub(super) fn sweep(&mut self, now: Time) {
        self.end(|flow| now.since(flow.used_at) > IDLE);
        self.peers.values_mut().for_each(|peer| peer.partials.expire(now));
    }

    fn end(&mut self, is_over: impl Fn(&UdpFlow) -> bool) {
        let over = self.all.iter().filter(|(_, flow)| is_over(flow)).map(|(key, _)| key);
        for key in over.collect::<Vec<_>>() {
            self.remove(key);
        }
    }

    fn remove(&mut self, key: usize) {
        let flow = self.all.remove(key);
        self.by_number.remove(&(flow.link, flow.number));
        if let Some(peer) = self.peers.get_mut(&flow.link) {
            peer.flows.remove(&key);
        }
        if flow.is_ready != [false; 2] {
            self.ready.retain(|socket| socket / 2 != key);
        }
    }

    /// The flow with this number; creates it if it is missing.
    fn of(&mut self, link: ConnectionHandle, number: u32, now: Time) -> usize {
        if let Some(key) = self.by_number.get(&(link, number)) {
            return *key;
        }
        let flows = &self.peers.entry(link).or_default().flows;
        if flows.len() >= FLOWS
            && let Some(idle) = flows.iter().copied().min_by_key(|key| self.all[*key].used_at)
        {
            self.remove(idle);
        }
        let key = self.all.insert(UdpFlow {
            link,
            number,
            sockets: [None, None],
            is_ready: [false; 2],
            numbers: Numbers::default(),
            used_at: now,
            allowed: VecDeque::new(),
            names: VecDeque::new(),
        });
        self.by_number.insert((link, number), key);
        self.peers.entry(link).or_default().flows.insert(key);
        key
    }

    /// The message that a frame completes.
    fn join(&mut self, link: ConnectionHandle, frame: udp::Frame, now: Time) -> Option<Bytes> {
        self.peers.entry(link).or_default().partials.join(frame, now)
    }

    /// Queues a datagram until the address of a name is known, and calls `ask` if that name was not
    /// asked for yet; `ask` returns whether it could ask. Returns whether the datagram is queued.
    fn wait(
        &mut self,
        (link, flow): (ConnectionHandle, u32),
        target: &Target,
        payload: Bytes,
        number: u64,
        ask: impl FnOnce() -> bool,
    ) -> bool {
        let is_it = |question: &&mut Question| {
            (question.link, question.flow) == (link, flow) && question.target == *target
        };
        if let Some(asked) = self.questions.values_mut().find(is_it) {
            let has_room = asked.payloads.len() < UNRESOLVED;
            if has_room {
                asked.payloads.push(payload);
            }
            return has_room;
        }
        let peer = self.peers.entry(link).or_default();
        if peer.questions >= QUESTIONS || !ask() {
            return false;
        }
        peer.questions += 1;
        let (target, payloads) = (target.clone(), vec![payload]);
        self.questions.insert(number, Question { link, flow, target, payloads });
        true
    }

    /// The question of this number, which has been answered.
    fn answered(&mut self, number: u64) -> Option<Question> {
        let question = self.questions.remove(&number)?;
        if let Some(peer) = self.peers.get_mut(&question.link) {
            peer.questions -= 1;
        }
        Some(question)
    }
}

/// Appends a value, and keeps the newest `most`.
fn remember<T>(all: &mut VecDeque<T>, one: T, most: usize) {
    if all.len() >= most {
        all.pop_front();
    }
    all.push_back(one);
}

impl Server {
    /// Sends the payloads of a client's frames to their destinations.
    pub(super) fn on_frames(&mut self, handle: ConnectionHandle, now: Time) {
        while let Some((link, _)) = self.links.get_mut(&handle)
            && let Some(bytes) = link.connection.datagrams().recv()
        {
            let Some(frame) = udp::parse(&bytes) else {
                self.driver.datagrams.count_down(false);
                continue;
            };
            let number = frame.flow;
            let key = self.udp.of(handle, number, now);
            self.udp.all[key].used_at = now;
            let Some(message) = self.udp.join(handle, frame, now) else { continue };
            let flow = &self.udp.all[key];
            let Parsed::Whole(target, len) = parse_target(&message) else {
                self.driver.datagrams.count_down(false);
                continue;
            };
            let payload = message.slice(len..);
            let known = |(name, _, at): &&(Target, SocketAddr, Time)| {
                *name == target && now.since(*at) < NAME_LIFE
            };
            let address = match &target {
                Target::Address(address) => Some(*address),
                Target::Name(..) => flow.names.iter().find(known).map(|(_, address, _)| *address),
            };
            match (address, &target) {
                (Some(address), _) => {
                    let is_sent = self.send_datagram(key, &target, address, &payload);
                    self.driver.datagrams.count_down(is_sent);
                }
                (None, Target::Name(name, port)) => {
                    self.questions += 1;
                    let asker = (usize::MAX, self.questions);
                    let ask = || self.resolver.ask(asker, name, *port);
                    if !self.udp.wait((handle, number), &target, payload, self.questions, ask) {
                        self.driver.datagrams.count_down(false);
                    }
                }
                (None, Target::Address(_)) => {}
            }
        }
    }

    /// Sends the datagrams queued for the address of a name; returns whether there were any.
    pub(super) fn on_datagram_resolved(&mut self, question: u64, addresses: &[SocketAddr]) -> bool {
        let Some(question) = self.udp.answered(question) else { return false };
        let Question { link, flow, target, payloads } = question;
        let key = self.udp.by_number.get(&(link, flow)).copied();
        let mut found = None;
        for payload in payloads {
            let sent_to = key.and_then(|key| {
                let mut addresses = found.into_iter().chain(addresses.iter().copied());
                addresses.find(|address| self.send_datagram(key, &target, *address, &payload))
            });
            self.driver.datagrams.count_down(sent_to.is_some());
            found = found.or(sent_to);
        }
        if let (Some(address), Some(key)) = (found, key) {
            let now = self.driver.clock.now();
            remember(&mut self.udp.all[key].names, (target, address, now), NAMES);
        }
        true
    }

    /// Sends a datagram if the rules allow it; returns whether it has left.
    fn send_datagram(
        &mut self,
        key: usize,
        target: &Target,
        to: SocketAddr,
        payload: &[u8],
    ) -> bool {
        let flow = &mut self.udp.all[key];
        if !flow.allowed.contains(&to) {
            let is_allowed = to.port() != 0
                && to.port() == target.port()
                && self.rules.allow(target, to.ip()).unwrap_or(false);
            if !is_allowed {
                tracing::debug!("no datagram to {target} at {to}: forbidden");
                return false;
            }
            remember(&mut flow.allowed, to, PEERS);
        }
        let family = usize::from(to.is_ipv6());
        if flow.sockets[family].is_none() {
            let any: IpAddr = match to {
                SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            let opened = UdpSocket::bind(SocketAddr::new(any, 0)).and_then(|mut socket| {
                self.driver.watch(&mut socket, Watched::Relay(2 * key + family))?;
                Ok(socket)
            });
            match opened {
                Ok(socket) => flow.sockets[family] = Some(socket),
                Err(error) => {
                    tracing::warn!("no socket for a client's datagrams: {error}");
                    return false;
                }
            }
        }
        let socket = flow.sockets[family].as_ref();
        socket.is_some_and(|socket| socket.send_to(payload, to).is_ok())
    }

    /// Passes datagrams received by flows to their clients; returns whether there may be more.
    pub(super) fn pump_datagrams(&mut self, now: Time) -> bool {
        let Self { udp: flows, links, driver, .. } = self;
        flows.buffer.resize(udp::LONGEST, 0);
        for number in std::mem::take(&mut flows.ready) {
            let Some(flow) = flows.all.get_mut(number / 2) else { continue };
            flow.is_ready[number % 2] = false;
            let Some((link, _)) = links.get_mut(&flow.link) else { continue };
            let Some(socket) = &flow.sockets[number % 2] else { continue };
            for turn in 0.. {
                if turn == udp::A_TURN {
                    flow.is_ready[number % 2] = true;
                    flows.ready.push(number);
                    break;
                }
                let (len, from) = match socket.recv_from(&mut flows.buffer) {
                    Ok(received) => received,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(_) => continue,
                };
                // A datagram from an address to which the flow has not sent.
                if !flow.allowed.iter().any(|peer| peer.ip() == from.ip()) {
                    driver.datagrams.count_up(false);
                    continue;
                }
                flow.used_at = now;
                let head = head::write(&Target::Address(from));
                // Without the version byte of a stream's head.
                let message = [&head[1..], &flows.buffer[..len]].concat();
                let is_sent = flow.numbers.send(&mut link.connection, flow.number, &message);
                driver.datagrams.count_up(is_sent);
            }
        }
        !flows.ready.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::ZERO;

    fn name(name: &str) -> Target {
        Target::Name(name.into(), 53)
    }

    /// Queues datagrams of a client's flow for this name; how many were queued, and how many
    /// questions were asked.
    fn wait(flows: &mut Flows, link: usize, flow: u32, to: &str, datagrams: u64) -> (usize, usize) {
        let link = ConnectionHandle(link);
        flows.of(link, flow, NOW);
        let first = flows.questions.keys().max().map_or(0, |last| last + 1);
        let mut asked = 0;
        let delays = (first..first + datagrams).filter(|number| {
            let ask = || {
                asked += 1;
                true
            };
            flows.wait((link, flow), &name(to), Bytes::from_static(b"x"), *number, ask)
        });
        (delays.count(), asked)
    }

    #[test]
    fn a_flood_to_a_name_asks_one_question_and_a_client_has_few() {
        let mut flows = Flows::default();
        assert_eq!(wait(&mut flows, 1, 1, "slow.test", 100), (UNRESOLVED, 1));
        for index in 1..100 {
            let delays = usize::from(index < QUESTIONS);
            let name = format!("{index}.test");
            assert_eq!(wait(&mut flows, 1, 1, &name, 1), (delays, delays), "{index}");
        }
        // Others are not held up, and an answer makes room.
        assert_eq!(wait(&mut flows, 2, 1, "slow.test", 1), (1, 1));
        let number = *flows.questions.iter().find(|(_, it)| it.payloads.len() > 1).unwrap().0;
        assert_eq!(flows.answered(number).unwrap().payloads.len(), UNRESOLVED);
        assert!(flows.answered(number).is_none());
        assert_eq!(wait(&mut flows, 1, 1, "next.test", 1), (1, 1));
    }

    #[test]
    fn nothing_of_a_client_is_left_for_the_next_of_its_handle() {
        let mut flows = Flows::default();
        wait(&mut flows, 1, 1, "slow.test", 3);
        wait(&mut flows, 2, 1, "slow.test", 3);
        let key = flows.of(ConnectionHandle(1), 1, NOW);
        flows.on_ready(2 * key);
        assert_eq!(flows.drop_client(ConnectionHandle(1)), 3);
        assert_eq!(flows.drop_client(ConnectionHandle(1)), 0);
        assert!(flows.ready.is_empty());
        assert_eq!((flows.len(), flows.peers.len(), flows.questions.len()), (1, 1, 1));
    }

    #[test]
    fn a_client_has_a_bounded_number_of_flows_and_a_socket_one_turn() {
        let mut flows = Flows::default();
        let link = ConnectionHandle(1);
        let at = |number: u32| NOW + Span::from_millis(number.into());
        let first = flows.of(link, 0, at(0));
        for number in 1..2 * FLOWS as u32 {
            flows.of(link, number, at(number));
        }
        assert_eq!((flows.len(), flows.peers[&link].flows.len()), (FLOWS, FLOWS));
        assert!(!flows.by_number.contains_key(&(link, 0)), "the one idle for longest");
        (0..100).for_each(|_| flows.on_ready(2 * first + 1));
        assert_eq!(flows.ready, [2 * first + 1]);
        flows.sweep(at(2 * FLOWS as u32) + IDLE);
        assert_eq!((flows.len(), flows.peers[&link].flows.len(), flows.ready.len()), (0, 0, 0));
    }
}
