//! A client's end of a downlink.

mod events;
mod inbound;
mod joiner;
mod transmit;
mod types;
mod window;

use alloc::boxed::Box;

use super::datagram::ReceivedDatagram;
use crate::dscp::Dscp;
use crate::session::TransportState;
use crate::unit::{Span, Time};
use crate::wire::{AckMark, Cookie, Message, Opening, OpeningTooLong, SessionId};
use crate::wlan::{Account, Arrival, LevelCounter};
use events::{Events, Queued};
use joiner::Joiner;
use transmit::Closing;
pub use types::{
    ClientCounters, ClientEvent, ClientIgnored, ClientMessage, ClientParams, ClientTransmit,
    ReceivedPacket, Stamp,
};
use window::Window;

/// The maximum distance of a capture ahead of or behind the socket, in packets.
const CAPTURE_AHEAD: u64 = 4096;

/// Joins a server, counts packets per frame, and reports.
///
/// The driver's loop is that of every endpoint of [`session`](crate::session):
///
/// 1. Hand in received datagrams ([`Client::handle_datagram`]) and the time
///    ([`Client::handle_timeout`]).
/// 2. Drain [`Client::poll_event`], which also has the payloads.
/// 3. Drain [`Client::poll_transmit`], and send the datagrams that it writes to the server.
/// 4. Sleep until [`Client::poll_timeout`], or until a datagram arrives.
///
/// Other orders of calls are allowed; they only cause delays, and the loss of payloads if more than
/// 64 events are not polled. There is one path, to the server, so no call names it.
#[derive(Debug)]
pub struct Client {
    params: ClientParams,
    session: SessionId,
    counter: Box<dyn LevelCounter>,
    /// Arrivals, for the server's guard.
    account: Account,
    joiner: Joiner,
    cookie: Cookie,
    window: Window,
    /// When the last packet arrived, and in which frame, while its number is in doubt.
    held: Option<(Time, Arrival)>,
    /// The code point of the newest packet.
    dscp: Option<Dscp>,
    /// The code point for reports that the newest packet requests.
    asked: Option<AckMark>,
    /// When the next report is due, once packets have arrived.
    report_at: Option<Time>,
    /// The multiple of the interval, on the server's clock, of the last report.
    reported: Option<u64>,
    number: u32,
    /// When the last packet arrived.
    heard_at: Time,
    events: Events,
    closing: Closing,
    counters: ClientCounters,
}

impl Client {
    /// A client that joins at once. `session` must be random. The transport counts as ready until
    /// [`Client::handle_transport`] changes that.
    ///
    /// # Errors
    /// [`OpeningTooLong`] if the name or the token is too long.
    pub fn new(
        params: ClientParams,
        session: SessionId,
        counter: Box<dyn LevelCounter>,
        now: Time,
    ) -> Result<Self, OpeningTooLong> {
        let client = Self {
            joiner: Joiner::new(&params, session.0, now),
            params,
            session,
            counter,
            account: Account::default(),
            cookie: Cookie::default(),
            window: Window::default(),
            held: None,
            dscp: None,
            asked: None,
            report_at: None,
            reported: None,
            number: 0,
            heard_at: now,
            events: Events::new(),
            closing: Closing::No,
            counters: ClientCounters::default(),
        };
        client.opening().check()?;
        Ok(client)
    }

    // ---- the contract ----

    /// A datagram has arrived from the server's address, without information on its frame: that is
    /// handed in by [`Client::handle_captured`].
    ///
    /// # Errors
    /// [`ClientIgnored`] if it had no effect.
    pub fn handle_datagram<'a>(
        &mut self,
        now: Time,
        datagram: impl Into<ReceivedDatagram<'a>>,
    ) -> Result<(), ClientIgnored> {
        self.handle_stamped_datagram(now, None, datagram)
    }

    /// The same, with the frame of the datagram, if known.
    ///
    /// # Errors
    /// As [`Client::handle_datagram`].
    pub fn handle_stamped_datagram<'a>(
        &mut self,
        now: Time,
        stamp: impl Into<Option<Stamp>>,
        datagram: impl Into<ReceivedDatagram<'a>>,
    ) -> Result<(), ClientIgnored> {
        let result = self.take_in(now, stamp.into(), datagram.into());
        match result {
            Err(ClientIgnored::Copy) => self.counters.copies += 1,
            Err(_) => self.counters.ignored += 1,
            Ok(()) => {}
        }
        result
    }

    /// Time has passed. Calls before [`Client::poll_timeout`] have no effect.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.closing != Closing::No {
            return;
        }
        if self.joiner.is_joined() && self.silent_at() <= now {
            self.join_again(now);
            self.events.push(Queued::Silent);
        }
        self.joiner.handle_timeout(now);
    }

    /// The next event, or request to the driver. The payload of a packet can be used until the next
    /// call.
    pub fn poll_event(&mut self) -> Option<ClientEvent<'_>> {
        if self.events.is_empty() {
            let unanswered = self.joiner.unanswered();
            let is_wanted = self.joiner.poll_renewal();
            return is_wanted.then_some(ClientEvent::RenewTransport { unanswered });
        }
        self.events.pop()
    }

    /// When to call [`Client::handle_timeout`] next, which may lie in the past; `None` while the
    /// transport is connecting, and after [`Client::close`].
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.closing != Closing::No {
            return None;
        }
        if self.joiner.is_joined() {
            return Time::earliest([self.report_at, self.urgent_at(), Some(self.silent_at())]);
        }
        self.joiner.poll_timeout()
    }

    /// Leaves the server: [`Client::poll_transmit`] writes a close, and nothing after it.
    pub fn close(&mut self) {
        if self.closing == Closing::No {
            self.closing = Closing::Due;
        }
    }

    // ---- inputs from the driver ----

    /// The state of the transport has changed. If it goes down, the client must join again; if it
    /// becomes ready, the join is sent now.
    pub fn handle_transport(&mut self, now: Time, state: TransportState) {
        if state != TransportState::Ready && self.joiner.is_joined() {
            self.join_again(now);
        }
        self.joiner.handle_transport(now, state);
    }

    /// A datagram of the server was seen on the air, in a frame with this stamp. It counts only in
    /// that frame: it also arrives, earlier or later, by [`Client::handle_datagram`]. It is ignored
    /// until the first packet has arrived by that call, and if it is further than 4096 from the
    /// newest, as its number may be that of an earlier downlink.
    ///
    /// # Errors
    /// [`ClientIgnored`] if it had no effect; it is not counted in [`ClientCounters`].
    pub fn handle_captured(
        &mut self,
        now: Time,
        stamp: Stamp,
        datagram: &[u8],
    ) -> Result<(), ClientIgnored> {
        let seq = self.captured_seq(datagram)?;
        let Stamp { at: stamp, rate } = stamp;
        self.counter.on_packet(now, Arrival { seq, stamp, rate });
        Ok(())
    }

    /// This number of packets of other sessions were seen on the air in the station's frame with
    /// this stamp. They take places in it, and the level counts all packets.
    pub fn handle_captured_others(&mut self, stamp: Time, packets: u64) {
        self.counter.on_others(stamp, packets);
    }

    /// The number of a datagram that [`Client::handle_captured`] would accept.
    ///
    /// # Errors
    /// [`ClientIgnored`] if it would not.
    pub fn captured_seq(&self, datagram: &[u8]) -> Result<u64, ClientIgnored> {
        let Message::Packet(packet) = Message::parse(datagram)? else {
            return Err(ClientIgnored::Misplaced);
        };
        let seq = packet.seq;
        let newest = self.window.newest();
        newest
            .filter(|_| packet.session == self.session)
            .filter(|newest| seq.abs_diff(newest.seq) <= CAPTURE_AHEAD)
            .map(|_| seq)
            .ok_or(ClientIgnored::Misplaced)
    }

    // ---- getters ----

    /// The session's id on the wire.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Whether the client has joined: packets arrive.
    pub fn has_joined(&self) -> bool {
        self.joiner.is_joined()
    }

    /// The code point of the newest packet, if the transport reports it.
    pub fn dscp(&self) -> Option<Dscp> {
        self.dscp
    }

    /// Its counters.
    pub fn counters(&self) -> &ClientCounters {
        &self.counters
    }

    // ---- steps ----

    /// The server may be another process, with new sequence numbers and another clock.
    fn join_again(&mut self, now: Time) {
        self.joiner.again(now);
        self.counter.restart();
        self.account.restart();
        (self.window, self.held) = (Window::default(), None);
        self.report_at = None;
        self.reported = None;
    }

    fn opening(&self) -> Opening<'_> {
        Opening { cookie: self.cookie, name: &self.params.name, token: &self.params.token }
    }

    /// When an urgent report of losses or of a queue is due.
    fn urgent_at(&self) -> Option<Time> {
        self.account.urgent_at(self.counters.missing, self.window.newest()?.interval)
    }

    fn silent_at(&self) -> Time {
        let interval = self.window.newest().map_or(Span::ZERO, |newest| newest.interval);
        self.heard_at + self.params.silence.max(interval * 4)
    }
}

/// The number of the interval of the server's clock that contains `sent_at`.
fn boundary(sent_at: Time, interval: Span) -> u64 {
    sent_at.as_nanos() / interval.as_nanos().max(1)
}
