//! A link to a peer that may have several addresses, or none yet.
//!
//! ```text
//!             addresses                 the first attempt that hears from the peer
//!   no link ─────────────► attempts ──────────────────────────────────────────────► one link
//!      ▲  │ look up again,    │  ▲                  renew: look up, try the others     │
//!      │  ▼ 0.25 … 2 s        │  └─────────────────────────────────────────────────────┘
//!      └──────────────────────┘ none could begin
//! ```
//!
//! - **An attempt** is a separate link: a UDP socket, or a QUIC handshake. Datagrams are sent by
//!   all attempts; the first attempt that receives a datagram, or finishes its handshake, stays,
//!   and the others are closed. A refused UDP attempt stays open, as the peer may start later.
//! - **Temporary errors are retried**: a name that cannot be resolved, a missing route, an
//!   interface without a fitting address. Each is reported by [`LinkEvent::Waiting`].

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use freshline_core::dscp::Dscp;
use freshline_core::unit::{Span, Time};
use mio::{Registry, Token};

use super::{Lookup, Race, Remote};
use crate::clock::Clock;
use crate::link::{
    Fetched, Inlet, Link, LinkError, LinkEvent, Received, SendStatus, Transport, WireBytes,
};
use crate::quic::DialError;
use crate::via::Via;
use crate::waker::Waker;

/// The pause before the first retry, doubled with each retry up to [`MAX_WAIT`].
const FIRST_WAIT: Span = Span::from_millis(250);

/// The maximum pause between retries: the load of one small query per pause is negligible.
const MAX_WAIT: Span = Span::from_secs(2);

/// The settings of a dialler.
pub(crate) struct Settings<I> {
    /// How datagrams are carried.
    pub(crate) transport: Transport,
    /// The local interface or address.
    pub(crate) via: Via,
    /// The peer.
    pub(crate) remote: Remote,
    /// The token by which its sockets wake the poll.
    pub(crate) token: Token,
    /// Creates the inlet that reads datagrams from a new socket.
    pub(crate) inlet: fn(Clock) -> I,
    /// The clock.
    pub(crate) clock: Clock,
    /// Whether lost QUIC connections are redialled without [`Dialler::renew`].
    pub(crate) redials: bool,
    /// Whether [`Dialler::receive`] reports when tagged datagrams left their device.
    pub(crate) stamps_departures: bool,
    /// Counts the bytes sent.
    pub(crate) wire_bytes: WireBytes,
    /// Woken with the resolver's answers.
    pub(crate) waker: Arc<Waker>,
}

struct Attempt<I: Inlet> {
    address: SocketAddr,
    link: Link<I>,
    /// The peer's host has reported that the port is unreachable.
    refused: bool,
}

pub(crate) struct Dialler<I: Inlet> {
    settings: Settings<I>,
    lookup: Lookup,
    /// The resolver's last answer.
    addresses: Vec<SocketAddr>,
    /// Present while no attempt has succeeded.
    race: Option<Race>,
    /// One, unless there is a race.
    attempts: Vec<Attempt<I>>,
    winner: Option<SocketAddr>,
    events: VecDeque<LinkEvent>,
    /// Without an attempt: when to look the name up again, and the length of the next pause.
    retry: (Time, Span),
    /// Why the last attempt could not start.
    trouble: Option<String>,
}

impl<I: Inlet> Dialler<I> {
    /// Starts to dial; for a literal address, the first attempt has started when this returns.
    ///
    /// # Errors
    /// [`LinkError::Dial`] if the name or the address cannot belong to a peer.
    pub(crate) fn new(settings: Settings<I>, registry: &Registry) -> Result<Self, LinkError> {
        let now = settings.clock.now();
        let mut dialler = Self {
            settings,
            lookup: Lookup::default(),
            addresses: Vec::new(),
            race: None,
            attempts: Vec::new(),
            winner: None,
            events: VecDeque::new(),
            retry: (now, FIRST_WAIT),
            trouble: None,
        };
        dialler.turn(now, registry)?;
        Ok(dialler)
    }

    /// Processes the resolver's answer and starts the attempts that are due.
    ///
    /// # Errors
    /// [`LinkError::Dial`] if the name or an address cannot belong to a peer.
    pub(crate) fn turn(&mut self, now: Time, registry: &Registry) -> Result<(), LinkError> {
        if self.attempts.is_empty() && self.race.is_none() && now >= self.retry.0 {
            self.wait(now);
            self.lookup.ask(&self.settings.remote, &self.settings.waker);
        }
        match self.lookup.poll() {
            Some(Ok(addresses)) => {
                match &mut self.race {
                    Some(race) => race.add(&addresses),
                    None if self.attempts.is_empty() => {
                        self.race = Some(Race::new(&addresses, self.winner, now));
                    }
                    None => {}
                }
                self.addresses = addresses;
            }
            Some(Err(why)) if self.attempts.is_empty() => {
                self.events.push_back(LinkEvent::Waiting(why));
            }
            Some(Err(_)) | None => {}
        }
        if self.settings.redials && self.is_down() && now >= self.retry.0 {
            self.wait(now);
            self.renew(now, registry)?;
        }
        self.begin_attempts(now, registry)
    }

    fn begin_attempts(&mut self, now: Time, registry: &Registry) -> Result<(), LinkError> {
        while let Some(address) = self.race.as_mut().and_then(|race| race.begin(now)) {
            let Settings { transport, via, token, inlet, clock, wire_bytes, .. } = &self.settings;
            let ends = (via.clone(), address);
            let place = (registry, *token);
            match Link::open(
                transport.clone(),
                ends,
                place,
                inlet(*clock),
                *clock,
                wire_bytes.clone(),
            ) {
                Ok(mut link) => {
                    if self.settings.stamps_departures {
                        link.stamp_departures();
                    }
                    if !link.is_dialling() {
                        self.events.push_back(LinkEvent::Ready);
                    }
                    self.attempts.push(Attempt { address, link, refused: false });
                }
                Err(error) if self.is_passing(&error) => {
                    tracing::debug!(%address, "no attempt: {error}");
                    self.trouble = Some(error.to_string());
                    self.race_on(now);
                }
                Err(error) => return Err(error),
            }
        }
        let is_over = self.race.as_ref().is_some_and(|race| race.next_at().is_none());
        if is_over && self.attempts.is_empty() && !self.lookup.is_asking() {
            self.race = None;
            let why = self.trouble.take().unwrap_or_else(|| "no address answers".into());
            self.events.push_back(LinkEvent::Waiting(why));
        }
        Ok(())
    }

    /// The next received datagram; its attempt has succeeded. `on_left` gets the tags of datagrams
    /// that left their device, and how long after they were sent.
    pub(crate) fn receive(
        &mut self,
        on_left: &mut dyn FnMut(u64, Span),
    ) -> Result<Fetched<Received<'_, I>>, LinkError> {
        let mut is_busy = false;
        for at in 0..self.attempts.len() {
            match self.attempts[at].link.fetch(on_left)? {
                Fetched::Datagram((len, mark)) => {
                    self.on_success(at);
                    let datagram = &self.attempts[0].link.buffer()[..len];
                    return Ok(Fetched::Datagram((datagram, mark)));
                }
                Fetched::Busy => is_busy = true,
                Fetched::Nothing => {}
            }
        }
        Ok(if is_busy { Fetched::Busy } else { Fetched::Nothing })
    }

    /// Sends by all attempts; a datagram that cannot leave counts as replaced. The tag is that of
    /// [`Dialler::receive`].
    pub(crate) fn send(
        &mut self,
        now: Time,
        dscp: Dscp,
        datagram: &[u8],
        tag: Option<u64>,
    ) -> Result<SendStatus, LinkError> {
        let mut all = SendStatus::Replaced;
        for attempt in &mut self.attempts {
            if attempt.link.send(now, dscp, datagram, tag)? == SendStatus::Gone {
                all = SendStatus::Gone;
            }
        }
        Ok(all)
    }

    /// Handles the timers of the attempts.
    pub(crate) fn handle_timeout(&mut self, now: Time) -> Result<(), LinkError> {
        self.attempts.iter_mut().try_for_each(|attempt| attempt.link.handle_timeout(now))
    }

    /// When [`Dialler::turn`] or [`Dialler::handle_timeout`] is due.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let links = self.attempts.iter().filter_map(|attempt| attempt.link.poll_timeout());
        let race = self.race.as_ref().and_then(Race::next_at);
        let is_waiting = self.attempts.is_empty() && race.is_none() && !self.lookup.is_asking();
        let redials = self.settings.redials && self.is_down();
        links.chain(race).chain((is_waiting || redials).then_some(self.retry.0)).min()
    }

    /// The next event. Failed attempts are not reported while another one may succeed.
    pub(crate) fn poll_event(&mut self) -> Option<LinkEvent> {
        let now = self.settings.clock.now();
        let mut at = 0;
        while at < self.attempts.len() {
            match self.attempts[at].link.poll_event() {
                None => at += 1,
                Some(LinkEvent::Ready) => {
                    self.on_success(at);
                    self.retry.1 = FIRST_WAIT;
                    return Some(LinkEvent::Ready);
                }
                Some(LinkEvent::Lost(reason)) => {
                    let may_others = self.may_others(at);
                    self.race_on(now);
                    if !may_others {
                        return Some(LinkEvent::Lost(reason));
                    }
                    self.attempts.remove(at);
                }
                Some(LinkEvent::Unreachable) => {
                    let is_new = !std::mem::replace(&mut self.attempts[at].refused, true);
                    if is_new {
                        self.race_on(now);
                    }
                    if !self.may_others(at) {
                        return Some(LinkEvent::Unreachable);
                    }
                }
                Some(waiting @ LinkEvent::Waiting(_)) => return Some(waiting),
            }
        }
        self.events.pop_front()
    }

    /// Re-creates the socket and the connection, as the host may have moved to another network, and
    /// the peer to another address: looks its name up again, and tries its other addresses, too.
    ///
    /// # Errors
    /// [`LinkError`], as returned by the link.
    pub(crate) fn renew(&mut self, now: Time, registry: &Registry) -> Result<(), LinkError> {
        let is_racing = self.race.as_ref().is_some_and(|race| race.next_at().is_some());
        let Some(first) = self.attempts.first_mut().filter(|_| !is_racing) else { return Ok(()) };
        first.link.renew(now, registry)?;
        first.refused = false;
        self.race = Some(Race::begun(first.address, &self.addresses, now));
        for mut loser in self.attempts.drain(1..) {
            loser.link.hang_up(now);
        }
        if self.settings.remote.literal().is_none() {
            self.lookup.ask(&self.settings.remote, &self.settings.waker);
        }
        Ok(())
    }

    /// Sends the final datagram, without a guarantee that it arrives.
    pub(crate) fn close(&mut self, now: Time, farewell: &[u8]) {
        self.attempts.iter_mut().for_each(|attempt| attempt.link.close(now, farewell));
    }

    /// Ends the QUIC connections without a final datagram.
    pub(crate) fn hang_up(&mut self, now: Time) {
        self.attempts.iter_mut().for_each(|attempt| attempt.link.hang_up(now));
    }

    /// Whether no datagram can be sent before one of the pending handshakes is complete.
    pub(crate) fn is_dialling(&self) -> bool {
        !self.attempts.is_empty() && self.attempts.iter().all(|one| one.link.is_dialling())
    }

    /// Whether the QUIC connection is lost.
    pub(crate) fn is_down(&self) -> bool {
        !self.attempts.is_empty() && self.attempts.iter().all(|one| one.link.is_down())
    }

    /// Whether datagrams can be sent.
    pub(crate) fn is_ready(&self) -> bool {
        self.attempts.iter().any(|one| !one.link.is_dialling() && !one.link.is_down())
    }

    /// The address that has answered, or else the first address tried.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.attempts.first().map(|attempt| attempt.address).or(self.winner)
    }

    /// This host's address in the first attempt.
    pub(crate) fn local_ip(&self) -> Option<IpAddr> {
        self.attempts.first()?.link.local_ip()
    }

    // ---- steps ----

    fn on_success(&mut self, at: usize) {
        if self.race.take().is_none() && self.attempts.len() == 1 {
            return;
        }
        let now = self.settings.clock.now();
        self.attempts.swap(0, at);
        for mut loser in self.attempts.drain(1..) {
            loser.link.hang_up(now);
        }
        self.winner = self.attempts.first().map(|attempt| attempt.address);
    }

    /// Whether another attempt than this one may succeed.
    fn may_others(&self, at: usize) -> bool {
        let race = self.race.as_ref().is_some_and(|race| race.next_at().is_some());
        let mut others = self.attempts.iter().enumerate().filter(|(other, _)| *other != at);
        race || others.any(|(_, other)| !other.refused && !other.link.is_down())
    }

    /// Whether the next attempt may succeed despite this error. An address that no host can have is
    /// the resolver's fault and not the user's, unless it was given as an address.
    fn is_passing(&self, error: &LinkError) -> bool {
        match error {
            LinkError::System(_) => true,
            LinkError::Dial(DialError::BadAddress { addr }) => {
                self.settings.remote.literal().is_none() && addr.port() != 0
            }
            LinkError::Dial(_) => false,
        }
    }

    fn race_on(&mut self, now: Time) {
        if let Some(race) = &mut self.race {
            race.on_failed(now);
        }
    }

    fn wait(&mut self, now: Time) {
        self.retry = (now + self.retry.1, (self.retry.1 * 2).min(MAX_WAIT));
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use mio::{Events, Poll};

    use super::*;
    use crate::link::Plain;
    use crate::quic::{ClientConfig, Trust};

    /// The only waker that a poll may have.
    fn waker(poll: &Poll) -> Arc<Waker> {
        Arc::new(Waker::of_poll(poll.registry(), Token(0)).unwrap())
    }

    /// The settings of a UDP dialler that does not redial.
    fn settings(waker: Arc<Waker>, remote: SocketAddr) -> Settings<Plain> {
        Settings {
            transport: Transport::Udp,
            via: Via::Any,
            remote: remote.into(),
            token: Token(1),
            inlet: |_| Plain,
            clock: Clock::new(),
            redials: false,
            stamps_departures: false,
            wire_bytes: WireBytes::default(),
            waker,
        }
    }

    /// A dialler whose resolver has returned these addresses.
    fn dialler(poll: &Poll, addresses: &[SocketAddr]) -> Dialler<Plain> {
        let mut dialler =
            Dialler::new(settings(waker(poll), addresses[0]), poll.registry()).unwrap();
        dialler.addresses = addresses.to_vec();
        dialler.race.as_mut().unwrap().add(addresses);
        dialler
    }

    #[test]
    fn a_dead_address_does_not_keep_a_live_one_from_being_found() {
        // No process answers at the first address: it is bound, so that no ICMP error reports it as
        // dead.
        let dead = UdpSocket::bind("127.0.0.1:0").unwrap();
        let alive = UdpSocket::bind("127.0.0.1:0").unwrap();
        let addresses = [dead.local_addr().unwrap(), alive.local_addr().unwrap()];
        let mut poll = Poll::new().unwrap();
        let before = Clock::new().now();
        let mut dialler = dialler(&poll, &addresses);
        assert_eq!(dialler.poll_event(), Some(LinkEvent::Ready));
        dialler.turn(before, poll.registry()).unwrap();
        assert_eq!(dialler.attempts.len(), 1, "the second attempt is not due");
        let now = Clock::new().now();
        dialler.turn(now + Span::from_millis(250), poll.registry()).unwrap();
        assert_eq!(dialler.attempts.len(), 2);
        assert_eq!(dialler.send(now, Dscp::DEFAULT, b"anyone?", None).unwrap(), SendStatus::Gone);

        let mut buffer = [0; 10];
        let (len, from) = alive.recv_from(&mut buffer).unwrap();
        alive.send_to(&buffer[..len], from).unwrap();
        poll.poll(&mut Events::with_capacity(4), None).unwrap();
        let came = dialler.receive(&mut |_, _| {}).unwrap();
        assert!(matches!(came, Fetched::Datagram((b"anyone?", _))));
        assert_eq!((dialler.attempts.len(), dialler.address()), (1, Some(addresses[1])));

        // It is remembered: after an outage it is tried first, and the other one a little later.
        let later = Clock::new().now();
        dialler.renew(later, poll.registry()).unwrap();
        assert_eq!(dialler.address(), Some(addresses[1]));
        dialler.turn(later + Span::from_millis(250), poll.registry()).unwrap();
        assert_eq!(dialler.attempts.len(), 2);
    }

    #[test]
    fn forged_packets_do_not_keep_a_dialler_from_its_timers() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut poll = Poll::new().unwrap();
        let pin = format!("sha256:{}", "00".repeat(32)).parse().unwrap();
        let config = ClientConfig::new(&Trust::Pinned(pin), None).unwrap();
        let transport = Transport::Quic { config, server_name: "localhost".into() };
        let remote = server.local_addr().unwrap();
        let settings = Settings { transport, ..settings(waker(&poll), remote) };
        let mut dialler = Dialler::new(settings, poll.registry()).unwrap();
        dialler.turn(Clock::new().now(), poll.registry()).unwrap();
        let (_, from) = server.recv_from(&mut [0; 2_000]).unwrap();
        // The kernel keeps some hundred of them.
        (0..300).for_each(|_| _ = server.send_to(b"forged", from).unwrap());
        poll.poll(&mut Events::with_capacity(4), None).unwrap();
        assert!(matches!(dialler.receive(&mut |_, _| {}).unwrap(), Fetched::Busy));
        assert!(matches!(dialler.receive(&mut |_, _| {}).unwrap(), Fetched::Nothing));
    }

    #[test]
    fn an_address_that_no_host_can_have_is_a_failed_attempt_of_a_name_and_an_error_if_given() {
        let poll = Poll::new().unwrap();
        let waker = waker(&poll);
        let pin = format!("sha256:{}", "00".repeat(32)).parse().unwrap();
        let config = ClientConfig::new(&Trust::Pinned(pin), None).unwrap();
        let unspecified: SocketAddr = "0.0.0.0:9".parse().unwrap();
        let by_quic = |remote| Settings {
            transport: Transport::Quic { config: config.clone(), server_name: "localhost".into() },
            ..settings(Arc::clone(&waker), remote)
        };
        let given = Dialler::new(by_quic(unspecified), poll.registry());
        assert!(matches!(given, Err(LinkError::Dial(DialError::BadAddress { .. }))));

        let good: SocketAddr = "127.0.0.1:9".parse().unwrap();
        let mut dialler = Dialler::new(by_quic(good), poll.registry()).unwrap();
        dialler.settings.remote = Remote::new("localhost", 9);
        dialler.attempts.clear();
        let now = Clock::new().now();
        dialler.race = Some(Race::new(&[unspecified, good], None, now));
        dialler.begin_attempts(now, poll.registry()).unwrap();
        assert_eq!(dialler.address(), Some(good), "the next address is tried at once");
    }

    #[test]
    fn a_host_without_a_route_is_told_and_tried_again() {
        let poll = Poll::new().unwrap();
        // An address of another host: nothing can be bound to it.
        let via = Via::from("192.0.2.77");
        let settings = Settings { via, ..settings(waker(&poll), "127.0.0.1:9".parse().unwrap()) };
        let mut dialler = Dialler::new(settings, poll.registry()).unwrap();
        assert!(matches!(dialler.poll_event(), Some(LinkEvent::Waiting(why)) if !why.is_empty()));
        assert!(!dialler.is_ready() && !dialler.is_dialling());
        let at = dialler.poll_timeout().expect("a retry");
        dialler.settings.via = Via::Any;
        dialler.turn(at, poll.registry()).unwrap();
        assert!(dialler.is_ready());
        assert_eq!(dialler.poll_event(), Some(LinkEvent::Ready));
    }
}
