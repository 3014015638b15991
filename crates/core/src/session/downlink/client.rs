//! A client's end of a downlink.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::dscp::Dscp;
use crate::session::Clocked;
use crate::session::backoff::{Backoff, mix};
use crate::session::clock_offset::ClockOffset;
use crate::unit::{BitRate, Bytes, Span, Time};
use crate::wire::{
    self, AckMark, Close, CloseReason, Cookie, Join, Marks, Message, Opening, OpeningTooLong,
    Packet, SessionId,
};
use crate::wlan::{Account, Arrival, LevelCounter};

/// How far a capture may be in front of the socket, or behind it, in packets.
const CAPTURE_AHEAD: u64 = 4096;

/// Settings of [`Client`].
#[derive(Debug, Clone)]
pub struct ClientParams {
    /// A name for people and metrics, at most [`Opening::MAX_NAME`] bytes.
    pub name: String,
    /// Shown to the server, at most [`Opening::MAX_TOKEN`] bytes.
    pub token: Vec<u8>,
    /// The wait after the first join without an answer. 200 ms, as a source's.
    pub first_wait: Span,
    /// The longest wait between joins. 2 s.
    pub longest_wait: Span,
    /// No packet for this long, and for four intervals, and the client joins anew.
    pub silence: Span,
    /// The code point of reports, whatever the server asks for; without, as it asks, and 0 where it does
    /// not. Joins and closes are never marked.
    pub ack_mark: Option<AckMark>,
}

impl Default for ClientParams {
    fn default() -> Self {
        Self {
            name: String::new(),
            token: Vec::new(),
            first_wait: Span::from_millis(200),
            longest_wait: Span::from_secs(2),
            silence: Span::from_secs(2),
            ack_mark: None,
        }
    }
}

/// What the receiver knows of how a datagram came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// What tells its frame: the time by the network card's clock, or the kernel's.
    pub at: Time,
    /// The rate of its frame's data symbols.
    pub rate: BitRate,
}

/// What a datagram or the passing of time has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientEvent<'a> {
    /// A packet has come.
    Packet {
        /// The server's number of it.
        seq: u64,
        /// Empty, where the server only shows that it is there.
        payload: &'a [u8],
        /// How long it took, once the clocks' offset is known; at most half the shortest round
        /// trip wrong.
        delay: Option<Span>,
        /// Whether it is the first since the client joined.
        joined: bool,
    },
    /// The server wants a cookie shown.
    Challenged,
    /// The server ended or refused the downlink; joins go on, rarely.
    Closed(CloseReason),
    /// No packet for too long; joins go on.
    Silent,
}

/// Why a datagram was left aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClientIgnored {
    /// Not a message of ours.
    #[error("not a message: {0}")]
    Unreadable(#[from] wire::ParseError),
    /// Of another session, or a message that only clients send.
    #[error("not meant for this client")]
    Misplaced,
    /// A packet that came before, or more than 64 after it did.
    #[error("a packet that has come, or is too late")]
    Copy,
}

/// What a client has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ClientCounters {
    /// Packets that have come.
    pub packets: u64,
    /// Payload bytes of these.
    pub payload_bytes: u64,
    /// Packets that came again, or too late to tell.
    pub copies: u64,
    /// Packets numbered between the first and the newest that have not come.
    pub missing: u64,
    /// Reports written.
    pub reports: u64,
    /// Joins written.
    pub joins: u64,
    /// Datagrams left aside.
    pub ignored: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    Joining { next_at: Time },
    Joined,
}

/// The newest packet, and which of those before it have come.
#[derive(Debug, Clone, Copy)]
struct Newest {
    seq: u64,
    sent_at: Time,
    received_at: Time,
    interval: Span,
    /// Bit i: whether packet `seq − i` has come.
    recent: u64,
}

/// Joins a server, counts packets a frame, and reports.
///
/// The driver's loop: hand in what came ([`Client::on_datagram`]) and the time
/// ([`Client::handle_timeout`]); when [`Client::poll_timeout`] has come, send what [`Client::write`] writes.
#[derive(Debug)]
pub struct Client {
    params: ClientParams,
    session: SessionId,
    counter: Box<dyn LevelCounter>,
    /// Arrivals, for the server's guard.
    account: Account,
    reach: Reach,
    backoff: Backoff,
    cookie: Cookie,
    newest: Option<Newest>,
    /// With which code point the newest packet came.
    dscp: Option<Dscp>,
    /// The code point that reports shall have, as it said.
    asked: Option<AckMark>,
    /// When the next report is due, once packets have come.
    report_at: Option<Time>,
    /// The multiple of the interval, on the server's clock, of which was told last.
    told: Option<u64>,
    number: u32,
    /// Since when nothing was heard.
    heard_at: Time,
    counters: ClientCounters,
}

impl Client {
    /// A client that joins at once. `session` must be random.
    ///
    /// # Errors
    /// [`OpeningTooLong`] if name or token cannot be carried.
    pub fn new(
        params: ClientParams,
        session: SessionId,
        counter: Box<dyn LevelCounter>,
        now: Time,
    ) -> Result<Self, OpeningTooLong> {
        let client = Self {
            backoff: Backoff::new(params.first_wait, params.longest_wait, session.0),
            params,
            session,
            counter,
            account: Account::default(),
            reach: Reach::Joining { next_at: now },
            cookie: Cookie::default(),
            newest: None,
            dscp: None,
            asked: None,
            report_at: None,
            told: None,
            number: 0,
            heard_at: now,
            counters: ClientCounters::default(),
        };
        client.opening().check()?;
        Ok(client)
    }

    // ---- inputs ----

    /// A datagram came from the server's address. Without a stamp it is in no frame: that is for
    /// [`Client::on_captured`] to tell.
    ///
    /// # Errors
    /// [`ClientIgnored`] says why it changed nothing.
    pub fn on_datagram<'a>(
        &mut self,
        at: Clocked,
        stamp: impl Into<Option<Stamp>>,
        datagram: &'a [u8],
    ) -> Result<ClientEvent<'a>, ClientIgnored> {
        self.on_marked_datagram(at, stamp, None, datagram)
    }

    /// The same, of a datagram that came with this code point, if the transport can tell.
    ///
    /// # Errors
    /// As [`Client::on_datagram`].
    pub fn on_marked_datagram<'a>(
        &mut self,
        at: Clocked,
        stamp: impl Into<Option<Stamp>>,
        dscp: Option<Dscp>,
        datagram: &'a [u8],
    ) -> Result<ClientEvent<'a>, ClientIgnored> {
        let result = self.take_in(at, stamp.into(), dscp, datagram);
        match result {
            Err(ClientIgnored::Copy) => self.counters.copies += 1,
            Err(_) => self.counters.ignored += 1,
            Ok(_) => {}
        }
        result
    }

    /// A datagram of the server's was seen on the air, in a frame of this stamp. It counts in that
    /// frame, and nowhere else: it comes a second time, sooner or later, by
    /// [`Client::on_datagram`]. Until the first packet has come so, and if it is further than 4096
    /// from the newest, it is left aside, as its number may be that of an earlier downlink.
    ///
    /// # Errors
    /// [`ClientIgnored`] says why it changed nothing; [`ClientCounters`] do not have it.
    pub fn on_captured(
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

    /// So many packets that are not of this session were seen on the air in the station's frame of
    /// this stamp. They take places there, and the level is of all packets.
    pub fn on_captured_others(&mut self, stamp: Time, packets: u64) {
        self.counter.on_others(stamp, packets);
    }

    /// The number of a datagram that [`Client::on_captured`] would take.
    ///
    /// # Errors
    /// [`ClientIgnored`] says why it would not.
    pub fn captured_seq(&self, datagram: &[u8]) -> Result<u64, ClientIgnored> {
        let Message::Packet(packet) = Message::parse(datagram)? else {
            return Err(ClientIgnored::Misplaced);
        };
        let seq = packet.seq;
        self.newest
            .filter(|_| packet.session == self.session)
            .filter(|newest| seq.abs_diff(newest.seq) <= CAPTURE_AHEAD)
            .map(|_| seq)
            .ok_or(ClientIgnored::Misplaced)
    }

    /// Time has passed. Calls before [`Client::poll_timeout`] change nothing.
    pub fn handle_timeout(&mut self, now: Time) -> Option<ClientEvent<'static>> {
        if self.reach == Reach::Joined && self.silent_at() <= now {
            self.join_again(now);
            return Some(ClientEvent::Silent);
        }
        None
    }

    /// The transport below has lost its connection.
    pub fn on_transport_lost(&mut self, now: Time) {
        self.join_again(now);
    }

    /// The transport below can carry datagrams (again): a join that waits goes out now.
    pub fn on_transport_ready(&mut self, now: Time) {
        if let Reach::Joining { next_at } = &mut self.reach {
            *next_at = now;
        }
    }

    /// Writes the join or the report that is due to the front of `out`; gives its length. `None`
    /// where nothing is due, or it does not fit.
    pub fn write(&mut self, now: Time, out: &mut [u8]) -> Option<usize> {
        match self.reach {
            Reach::Joining { next_at } if next_at <= now => {
                let join = Join { session: self.session, opening: self.opening() };
                let len = join.write(out)?;
                self.reach = Reach::Joining { next_at: now + self.backoff.next() };
                self.counters.joins += 1;
                Some(len)
            }
            Reach::Joining { .. } => None,
            Reach::Joined => {
                let is_due = self.report_at.is_some_and(|at| at <= now);
                let is_urgent = self.urgent_at().is_some_and(|at| at <= now);
                let newest = self.newest.filter(|_| is_due || is_urgent)?;
                // Levels are of whole intervals.
                let seen = if is_due { self.counter.report(now) } else { None };
                let missing = self.counters.missing;
                let report = wire::Report {
                    session: self.session,
                    number: self.number,
                    newest_seq: newest.seq,
                    newest_sent_at: newest.sent_at,
                    newest_received_at: newest.received_at,
                    hold: now.since(newest.received_at),
                    received: self.counters.packets as u32,
                    seen,
                    marks: Marks { seen: self.dscp, sent: Some(self.mark()) },
                    delivered: Some(self.account.report(now, missing)),
                    max_packets: self.counter.max_packets(),
                };
                let bytes = report.bytes();
                out.get_mut(..bytes.len())?.copy_from_slice(&bytes);
                self.number = self.number.wrapping_add(1);
                if is_due {
                    self.told = Some(boundary(newest.sent_at, newest.interval));
                    // Packets say when; this is for when they stay away.
                    self.report_at = Some(now + newest.interval * 5 / 4);
                }
                self.counters.reports += 1;
                Some(bytes.len())
            }
        }
    }

    /// The message with which a client takes its leave.
    pub fn close(&self) -> [u8; Close::LEN] {
        Close { session: self.session, reason: CloseReason::Done }.bytes()
    }

    // ---- what it wants next ----

    /// When to call [`Client::handle_timeout`] and [`Client::write`] next.
    pub fn poll_timeout(&self) -> Option<Time> {
        match self.reach {
            Reach::Joining { next_at } => Some(next_at),
            Reach::Joined => {
                Time::earliest([self.report_at, self.urgent_at(), Some(self.silent_at())])
            }
        }
    }

    // ---- getters ----

    /// The session's name on the wire.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Whether packets come.
    pub fn has_joined(&self) -> bool {
        self.reach == Reach::Joined
    }

    /// The code point of the report that is written now; joins are not marked.
    pub fn mark(&self) -> Dscp {
        if !self.has_joined() {
            return Dscp::DEFAULT;
        }
        AckMark::chosen(self.params.ack_mark, self.asked, self.dscp)
    }

    /// With which code point the newest packet came, if the transport can tell.
    pub fn dscp(&self) -> Option<Dscp> {
        self.dscp
    }

    /// What was counted.
    pub fn counters(&self) -> &ClientCounters {
        &self.counters
    }

    // ---- steps ----

    fn take_in<'a>(
        &mut self,
        at: Clocked,
        stamp: Option<Stamp>,
        dscp: Option<Dscp>,
        datagram: &'a [u8],
    ) -> Result<ClientEvent<'a>, ClientIgnored> {
        let message = Message::parse(datagram)?;
        if message.session() != self.session {
            return Err(ClientIgnored::Misplaced);
        }
        match message {
            Message::Packet(packet) => self.on_packet(at, stamp, dscp, &packet),
            Message::Challenge(challenge) => Ok(self.on_challenge(at.now, challenge.cookie)),
            Message::Close(close) => Ok(self.on_close(at.now, close.reason)),
            _ => Err(ClientIgnored::Misplaced),
        }
    }

    fn on_packet<'a>(
        &mut self,
        at: Clocked,
        stamp: Option<Stamp>,
        dscp: Option<Dscp>,
        packet: &Packet<'a>,
    ) -> Result<ClientEvent<'a>, ClientIgnored> {
        let received_at = at.received_at;
        self.remember(packet, received_at)?;
        if self.newest.is_some_and(|newest| newest.seq == packet.seq) {
            (self.dscp, self.asked) = (dscp, packet.ack_mark);
        }
        self.heard_at = at.now;
        self.counters.packets += 1;
        self.counters.payload_bytes += packet.payload.len() as u64;
        let size = Bytes::new((Packet::HEADER_LEN + packet.payload.len()) as u64);
        self.account.on_packet(received_at, packet.sent_at, size, packet.interval);
        if let Some(Stamp { at: stamp, rate }) = stamp {
            self.counter.on_packet(at.now, Arrival { seq: packet.seq, stamp, rate });
        }
        if self.told.is_some_and(|told| boundary(packet.sent_at, packet.interval) > told) {
            let due = at.now + self.spread(packet.interval);
            self.report_at = Some(self.report_at.map_or(due, |at| at.min(due)));
        }
        let joined = self.reach != Reach::Joined;
        if joined {
            self.reach = Reach::Joined;
            self.backoff.reset(0);
            self.told = Some(boundary(packet.sent_at, packet.interval));
            self.report_at = Some(at.now + packet.interval);
        }
        let delay = packet.clock_offset.map(|offset| {
            // Before it was sent, by an estimate that is off: that is no time at all.
            received_at.since(ClockOffset::translate(packet.sent_at, offset))
        });
        Ok(ClientEvent::Packet { seq: packet.seq, payload: packet.payload, delay, joined })
    }

    /// Notes that a packet has come.
    fn remember(&mut self, packet: &Packet<'_>, received_at: Time) -> Result<(), ClientIgnored> {
        let (seq, sent_at, interval) = (packet.seq, packet.sent_at, packet.interval);
        let first = Newest { seq, sent_at, received_at, interval, recent: 1 };
        let Some(newest) = &mut self.newest else {
            self.newest = Some(first);
            return Ok(());
        };
        if let Some(ahead) = seq.checked_sub(newest.seq).filter(|ahead| *ahead > 0) {
            let recent = newest.recent.checked_shl(u32::try_from(ahead).unwrap_or(u32::MAX));
            *newest = Newest { recent: recent.unwrap_or(0) | 1, ..first };
            self.counters.missing = self.counters.missing.saturating_add(ahead - 1);
            return Ok(());
        }
        let bit = u32::try_from(newest.seq - seq).ok().and_then(|behind| 1u64.checked_shl(behind));
        match bit {
            Some(bit) if newest.recent & bit == 0 => {
                newest.recent |= bit;
                self.counters.missing = self.counters.missing.saturating_sub(1);
                Ok(())
            }
            _ => Err(ClientIgnored::Copy),
        }
    }

    fn on_challenge(&mut self, now: Time, cookie: Cookie) -> ClientEvent<'static> {
        let is_new = self.cookie != cookie;
        self.cookie = cookie;
        if self.reach == Reach::Joined {
            self.join_again(now);
        } else if is_new {
            // The same cookie twice means that it was not accepted: then the backoff holds.
            self.reach = Reach::Joining { next_at: now };
        }
        ClientEvent::Challenged
    }

    fn on_close(&mut self, now: Time, reason: CloseReason) -> ClientEvent<'static> {
        self.join_again(now);
        let wait = match reason {
            CloseReason::Done | CloseReason::ShuttingDown => self.backoff.next(),
            _ => self.params.longest_wait,
        };
        self.reach = Reach::Joining { next_at: now + wait };
        ClientEvent::Closed(reason)
    }

    /// The server may be another process: it counts anew, by another clock.
    fn join_again(&mut self, now: Time) {
        if self.reach == Reach::Joined {
            self.backoff.reset(0);
            self.reach = Reach::Joining { next_at: now };
        }
        self.counter.restart();
        self.account.restart();
        self.newest = None;
        self.report_at = None;
        self.told = None;
    }

    fn opening(&self) -> Opening<'_> {
        Opening { cookie: self.cookie, name: &self.params.name, token: &self.params.token }
    }

    /// When the server must hear of losses or of a queue before its turn.
    fn urgent_at(&self) -> Option<Time> {
        self.account.urgent_at(self.counters.missing, self.newest?.interval)
    }

    fn silent_at(&self) -> Time {
        let interval = self.newest.map_or(Span::ZERO, |newest| newest.interval);
        self.heard_at + self.params.silence.max(interval * 4)
    }

    /// Up to a sixteenth of the interval, so that clients do not all speak in the same moment.
    fn spread(&self, interval: Span) -> Span {
        (interval / 16).mul_f64((mix(self.session.0) >> 11) as f64 / (1u64 << 53) as f64)
    }
}

/// In which interval of the server's clock `sent_at` lies.
fn boundary(sent_at: Time, interval: Span) -> u64 {
    sent_at.as_nanos() / interval.as_nanos().max(1)
}
