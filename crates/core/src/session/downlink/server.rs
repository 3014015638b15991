//! The server's end of a downlink.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hash};

use hashbrown::HashTable;
use slab::Slab;

use super::pace::Pace;
use crate::session::clock_offset::ClockOffset;
use crate::session::cookie::{Secret, TableHasher};
use crate::session::{Admission, Clocked};
use crate::unit::{BitRate, Bytes, Span, Time};
use crate::wire::{
    Challenge, Close, CloseReason, Join, Message, Packet, ParseError, Report, SessionId,
};
use crate::wlan::{self, DownlinkLaw, StationId};

/// How many packets of a client are remembered: the last second at 200 Mbit/s. 128 kB a client.
pub const REMEMBERED: usize = 16_384;

/// Settings of [`Server`].
#[derive(Debug, Clone)]
pub struct ServerParams {
    /// How a client shows where it is.
    pub admission: Admission,
    /// Tokens of which a join must show one; empty: none is asked for.
    pub tokens: Vec<Vec<u8>>,
    /// Δ: how often clients shall report; the law's own.
    pub interval: Span,
    /// Headers around a datagram, that of IP with them: the law's rates are of IP packets. 28 bytes:
    /// UDP over IPv4.
    pub headers: Bytes,
    /// How late a driver may be and make it up by packets that follow closely. 500 µs: timers are
    /// late by a tenth of that, and six packets at 100 Mbit/s are a queue of half a ms.
    pub catch_up: Span,
    /// A client that has not been heard for this long is forgotten; at least two intervals. 5 s: by
    /// then a law has halved its rate several times.
    pub idle: Span,
}

impl Default for ServerParams {
    fn default() -> Self {
        Self {
            admission: Admission::Cookie,
            tokens: Vec::new(),
            interval: Span::from_millis(500),
            headers: Bytes::new(28),
            catch_up: Span::from_micros(500),
            idle: Span::from_secs(5),
        }
    }
}

/// Finds a client in its server as long as it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientKey(u32);

impl ClientKey {
    /// A small number, given anew when a client has gone: an index for tables beside the server's.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The client as the law knows it.
    pub fn station(self) -> StationId {
        StationId(self.0)
    }
}

/// What became of a datagram, and how many bytes of answer were written.
#[derive(Debug)]
pub struct ServerReceipt<P> {
    /// What became of it.
    pub verdict: ServerVerdict<P>,
    /// The length of the answer in the reply buffer; 0 for none. Never more than the datagram's.
    pub reply: usize,
}

/// What became of a datagram.
#[derive(Debug)]
pub enum ServerVerdict<P> {
    /// A client has come, or has come to another address.
    Joined(ClientKey),
    /// A client has told what it saw.
    Reported(ClientKey),
    /// A client has taken its leave; this is what was known of it.
    Left {
        /// Whose; the key is free again.
        client: ClientKey,
        /// Its last record.
        record: Box<ClientRecord<P>>,
    },
    /// It was answered by a challenge.
    Challenged,
    /// A join was refused, and the client told.
    Refused(CloseReason),
    /// Left aside.
    Ignored(ServerIgnored),
}

/// Why a datagram was left aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ServerIgnored {
    /// Not a message of ours.
    #[error("not a message: {0}")]
    Unreadable(#[from] ParseError),
    /// A message that a server has no use for.
    #[error("not meant for a server of packets")]
    Misplaced,
    /// A report that is not newer than one before, or comes too soon after it.
    #[error("a report that is old, or too many")]
    Untimely,
    /// A report that does not show when a packet was sent that was sent.
    #[error("a report of a packet that was never sent")]
    NeverSent,
}

/// What a server has counted over all clients, those of the past included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ServerCounters {
    /// Datagrams handed in.
    pub datagrams: u64,
    /// Clients that have come.
    pub joined: u64,
    /// Joins of clients that were there, from another address.
    pub moved: u64,
    /// Clients that said that they leave.
    pub left: u64,
    /// Clients forgotten because they were silent.
    pub expired: u64,
    /// Reports taken.
    pub reports: u64,
    /// Challenges sent.
    pub challenged: u64,
    /// Joins refused.
    pub refused: u64,
    /// Datagrams left aside.
    pub ignored: u64,
    /// Packets written.
    pub packets: u64,
    /// Payload bytes of these.
    pub payload_bytes: u64,
}

/// One client as its server sees it.
#[derive(Debug)]
pub struct ClientRecord<P> {
    /// Its session.
    pub session: SessionId,
    /// Where its packets go.
    pub peer: P,
    /// The name that it gave itself; may be empty.
    pub name: Box<str>,
    /// When it came.
    pub joined_at: Time,
    /// When it was last heard.
    pub heard_at: Time,
    /// Packets written so far.
    pub packets: u64,
    /// Payload bytes of these.
    pub payload_bytes: u64,
    /// Reports taken so far.
    pub reports: u64,
    /// What the last one said.
    pub seen: Option<wlan::Report>,
    /// Packets that have come, as the last one said, modulo 2³².
    pub received: u32,
    /// The round trip of the last one, without the time that the client held it.
    pub rtt: Option<Span>,
    /// How long the packet took of which the last one told; at most half the shortest round trip
    /// wrong.
    pub delay: Option<Span>,
    /// How far the client's clock is ahead.
    pub clock_offset: ClockOffset,
    pace: Pace,
    /// When the last packets were sent, the oldest first.
    sent_at: VecDeque<Time>,
    /// When the last report was taken, and its number.
    reported: Option<(Time, u32)>,
}

impl<P> ClientRecord<P> {
    fn new(join: &Join<'_>, peer: P, now: Time) -> Self {
        Self {
            session: join.session,
            peer,
            name: join.opening.name.into(),
            joined_at: now,
            heard_at: now,
            packets: 0,
            payload_bytes: 0,
            reports: 0,
            seen: None,
            received: 0,
            rtt: None,
            delay: None,
            clock_offset: ClockOffset::default(),
            pace: Pace::new(now),
            sent_at: VecDeque::new(),
            reported: None,
        }
    }

    /// Whether there is nothing to send to it.
    pub fn is_idle(&self) -> bool {
        self.pace.is_idle()
    }

    fn has_sent(&self, report: &Report) -> bool {
        let back = self.packets.checked_sub(report.newest_seq).filter(|back| *back > 0);
        let at = back.and_then(|back| (self.sent_at.len() as u64).checked_sub(back));
        at.is_some_and(|at| self.sent_at[at as usize] == report.newest_sent_at)
    }

    /// When an empty packet tells the client that the server is there.
    fn keep_alive_at(&self, interval: Span) -> Time {
        self.sent_at.back().map_or(self.joined_at, |last| *last + interval)
    }

    /// When its next packet is due, or the next sign of life.
    fn due(&self, interval: Span) -> Time {
        self.pace.due().unwrap_or_else(|| self.keep_alive_at(interval))
    }
}

/// Sends packets to many clients, each at the rate of one law. `P` is where a datagram came from.
#[derive(Debug)]
pub struct Server<P> {
    params: ServerParams,
    law: Box<dyn DownlinkLaw>,
    secret: Secret,
    /// Digests of the accepted tokens.
    tokens: Vec<u128>,
    records: Slab<ClientRecord<P>>,
    by_session: HashTable<u32>,
    hasher: TableHasher,
    counters: ServerCounters,
}

impl<P: Copy + Eq + Hash> Server<P> {
    /// The longest answer.
    pub const MAX_REPLY: usize = Challenge::LEN;

    /// A server without clients.
    pub fn new(params: ServerParams, law: Box<dyn DownlinkLaw>, secret: Secret) -> Self {
        let idle = params.idle.max(params.interval * 2);
        Self {
            law,
            tokens: params.tokens.iter().map(|token| secret.digest(token)).collect(),
            records: Slab::new(),
            by_session: HashTable::new(),
            hasher: secret.table_hasher(),
            counters: ServerCounters::default(),
            params: ServerParams { idle, ..params },
            secret,
        }
    }

    // ---- inputs ----

    /// A datagram came from `peer`; an answer to it is written to `reply`.
    pub fn on_datagram(
        &mut self,
        at: Clocked,
        peer: P,
        datagram: &[u8],
        reply: &mut [u8; Challenge::LEN],
    ) -> ServerReceipt<P> {
        self.counters.datagrams += 1;
        match Message::parse(datagram) {
            Ok(Message::Join(join)) => self.on_join(at.now, peer, &join, reply),
            Ok(Message::Report(report)) => self.on_report(at, peer, &report, reply),
            Ok(Message::Close(close)) => self.on_close(at.now, peer, close.session),
            Ok(_) => self.ignore(ServerIgnored::Misplaced),
            Err(error) => self.ignore(error.into()),
        }
    }

    /// Time has passed: the law looks at its slot, and who has been silent for too long is handed
    /// to `gone`. Calls before [`Server::next_event`] change nothing.
    pub fn on_tick(&mut self, now: Time, mut gone: impl FnMut(ClientKey, &ClientRecord<P>)) {
        while let Some((key, _)) = self.next_silent().filter(|(_, at)| *at <= now) {
            let record = self.remove(now, key);
            self.counters.expired += 1;
            gone(ClientKey(key), &record);
        }
        if self.law.next_event().is_some_and(|at| at <= now) {
            self.law.on_tick(now);
            // Who still has nothing to send tells nothing in the new slot either.
            for (key, record) in &self.records {
                if record.is_idle() {
                    self.law.on_app_limited(now, StationId(key as u32));
                }
            }
        }
    }

    /// There is nothing to send to a client whose packet is due. If it has not heard of the server
    /// for an interval, an empty packet is written to `out`; gives its length, or 0.
    pub fn on_nothing_to_send(&mut self, now: Time, client: ClientKey, out: &mut [u8]) -> usize {
        let Some(record) = self.records.get_mut(client.index()) else { return 0 };
        record.pace.on_nothing_to_send();
        let is_due = record.keep_alive_at(self.params.interval) <= now;
        self.law.on_app_limited(now, client.station());
        let written = is_due.then(|| self.write(now, client, &[], out)).flatten();
        if let Some(record) = self.records.get_mut(client.index()) {
            record.pace.on_nothing_to_send();
        }
        written.unwrap_or(0)
    }

    /// There is something to send to a client again.
    pub fn on_something_to_send(&mut self, now: Time, client: ClientKey) {
        if let Some(record) = self.records.get_mut(client.index()) {
            record.pace.on_something_to_send(now);
        }
    }

    /// Writes the next packet to a client to the front of `out`; gives its length. `None` where it
    /// does not fit, or the client is gone; then nothing has changed.
    pub fn write_packet(
        &mut self,
        now: Time,
        client: ClientKey,
        payload: &[u8],
        out: &mut [u8],
    ) -> Option<usize> {
        self.write(now, client, payload, out)
    }

    /// The message with which the server takes its leave of a client.
    pub fn close(&self, client: ClientKey) -> Option<[u8; Close::LEN]> {
        let session = self.client(client)?.session;
        Some(Close { session, reason: CloseReason::ShuttingDown }.bytes())
    }

    // ---- what it wants next ----

    /// When to call [`Server::on_tick`] next; `None` while there is no client.
    pub fn next_event(&self) -> Option<Time> {
        let silent = self.next_silent().map(|(_, at)| at);
        self.law.next_event().into_iter().chain(silent).min()
    }

    /// When the next packet is due to any client.
    pub fn next_packet_at(&self) -> Option<Time> {
        self.next_due().map(|(_, at)| at)
    }

    /// The client whose packet has been due for longest: give it one by [`Server::write_packet`],
    /// or call [`Server::on_nothing_to_send`].
    pub fn due(&self, now: Time) -> Option<ClientKey> {
        self.next_due().filter(|(_, at)| *at <= now).map(|(client, _)| client)
    }

    // ---- getters ----

    /// A client's record, while it is there.
    pub fn client(&self, client: ClientKey) -> Option<&ClientRecord<P>> {
        self.records.get(client.index())
    }

    /// All clients.
    pub fn clients(&self) -> impl Iterator<Item = (ClientKey, &ClientRecord<P>)> {
        self.records.iter().map(|(index, record)| (ClientKey(index as u32), record))
    }

    /// The rate of IP packets to a client.
    pub fn rate(&self, client: ClientKey) -> BitRate {
        self.law.rate(client.station())
    }

    /// The law at work.
    pub fn law(&self) -> &dyn DownlinkLaw {
        &*self.law
    }

    /// What was counted.
    pub fn counters(&self) -> &ServerCounters {
        &self.counters
    }

    // ---- steps ----

    fn on_join(
        &mut self,
        now: Time,
        peer: P,
        join: &Join<'_>,
        reply: &mut [u8; Challenge::LEN],
    ) -> ServerReceipt<P> {
        let session = join.session;
        let is_there = match self.params.admission {
            Admission::Proven => true,
            Admission::Cookie => self.secret.accepts(join.opening.cookie, now, session, &peer),
        };
        if !is_there {
            return self.challenge(now, peer, session, reply);
        }
        let digest = self.secret.digest(join.opening.token);
        if !self.tokens.is_empty() && !self.tokens.contains(&digest) {
            return self.refuse(session, CloseReason::BadToken, reply);
        }
        let key = match self.find(session) {
            Some(key) => {
                let record = &mut self.records[key as usize];
                self.counters.moved += u64::from(record.peer != peer);
                (record.peer, record.heard_at) = (peer, now);
                key
            }
            None => {
                let key = self.records.vacant_key() as u32;
                if self.law.on_join(now, StationId(key)).is_err() {
                    return self.refuse(session, CloseReason::Full, reply);
                }
                self.insert(ClientRecord::new(join, peer, now));
                self.counters.joined += 1;
                key
            }
        };
        ServerReceipt { verdict: ServerVerdict::Joined(ClientKey(key)), reply: 0 }
    }

    fn on_report(
        &mut self,
        at: Clocked,
        peer: P,
        report: &Report,
        reply: &mut [u8; Challenge::LEN],
    ) -> ServerReceipt<P> {
        let Some(key) = self.find(report.session) else {
            // A server that was started anew finds its clients again.
            return self.challenge(at.now, peer, report.session, reply);
        };
        let record = &mut self.records[key as usize];
        if record.peer != peer {
            return self.challenge(at.now, peer, report.session, reply);
        }
        if !record.has_sent(report) {
            return self.ignore(ServerIgnored::NeverSent);
        }
        let now = at.received_at;
        let too_soon = self.params.interval / 4;
        if record.reported.is_some_and(|(last, number)| {
            now.since(last) < too_soon || report.number.wrapping_sub(number).cast_signed() <= 0
        }) {
            return self.ignore(ServerIgnored::Untimely);
        }
        record.reported = Some((now, report.number));
        record.heard_at = now;
        record.reports += 1;
        record.received = report.received;
        let rtt = now.since(report.newest_sent_at) - report.hold;
        record.rtt = Some(rtt);
        let [sent_at, received_at] = [report.newest_sent_at, report.newest_received_at];
        record.clock_offset.on_ack(now, sent_at, received_at, rtt);
        record.delay = record
            .clock_offset
            .nanos()
            .map(|offset| received_at.since(ClockOffset::translate(sent_at, offset)));
        if let Some(seen) = report.seen {
            record.seen = Some(seen);
            self.law.on_report(now, StationId(key), seen);
        }
        self.counters.reports += 1;
        ServerReceipt { verdict: ServerVerdict::Reported(ClientKey(key)), reply: 0 }
    }

    fn on_close(&mut self, now: Time, peer: P, session: SessionId) -> ServerReceipt<P> {
        let found = self.find(session).filter(|key| self.records[*key as usize].peer == peer);
        let Some(key) = found else { return self.ignore(ServerIgnored::Misplaced) };
        let record = Box::new(self.remove(now, key));
        self.counters.left += 1;
        let client = ClientKey(key);
        ServerReceipt { verdict: ServerVerdict::Left { client, record }, reply: 0 }
    }

    fn challenge(
        &mut self,
        now: Time,
        peer: P,
        session: SessionId,
        reply: &mut [u8; Challenge::LEN],
    ) -> ServerReceipt<P> {
        self.counters.challenged += 1;
        let cookie = self.secret.cookie(now, session, &peer);
        *reply = Challenge { session, cookie }.bytes();
        ServerReceipt { verdict: ServerVerdict::Challenged, reply: Challenge::LEN }
    }

    fn refuse(
        &mut self,
        session: SessionId,
        reason: CloseReason,
        reply: &mut [u8; Challenge::LEN],
    ) -> ServerReceipt<P> {
        self.counters.refused += 1;
        reply[..Close::LEN].copy_from_slice(&Close { session, reason }.bytes());
        ServerReceipt { verdict: ServerVerdict::Refused(reason), reply: Close::LEN }
    }

    fn ignore(&mut self, why: ServerIgnored) -> ServerReceipt<P> {
        self.counters.ignored += 1;
        ServerReceipt { verdict: ServerVerdict::Ignored(why), reply: 0 }
    }

    fn write(
        &mut self,
        now: Time,
        client: ClientKey,
        payload: &[u8],
        out: &mut [u8],
    ) -> Option<usize> {
        let record = self.records.get_mut(client.index())?;
        let packet = Packet {
            session: record.session,
            seq: record.packets,
            sent_at: now,
            clock_offset: record.clock_offset.nanos(),
            interval: self.params.interval,
            payload,
        };
        let len = packet.write(out)?;
        if record.sent_at.len() == REMEMBERED {
            record.sent_at.pop_front();
        }
        record.sent_at.push_back(now);
        record.packets += 1;
        record.payload_bytes += payload.len() as u64;
        self.counters.packets += 1;
        self.counters.payload_bytes += payload.len() as u64;
        let size = Bytes::new(len as u64) + self.params.headers;
        let takes = self.law.rate(client.station()).time_to_send(size);
        record.pace.on_sent(now, takes, self.params.catch_up);
        Some(len)
    }

    fn next_due(&self) -> Option<(ClientKey, Time)> {
        let interval = self.params.interval;
        let due = self.clients().map(|(key, record)| (key, record.due(interval)));
        due.min_by_key(|(_, at)| *at)
    }

    fn next_silent(&self) -> Option<(u32, Time)> {
        let heard = self.records.iter().map(|(key, record)| (key as u32, record.heard_at));
        heard.min_by_key(|(_, at)| *at).map(|(key, at)| (key, at + self.params.idle))
    }

    // ---- the tables ----

    fn find(&self, session: SessionId) -> Option<u32> {
        let same = |key: &u32| self.records[*key as usize].session == session;
        self.by_session.find(self.hasher.hash_one(session), same).copied()
    }

    fn insert(&mut self, record: ClientRecord<P>) {
        let key = self.records.insert(record) as u32;
        let (records, hasher) = (&self.records, &self.hasher);
        let session_hash = |key: &u32| hasher.hash_one(records[*key as usize].session);
        self.by_session.insert_unique(session_hash(&key), key, session_hash);
    }

    fn remove(&mut self, now: Time, key: u32) -> ClientRecord<P> {
        self.law.on_leave(now, StationId(key));
        let record = self.records.remove(key as usize);
        let session_hash = self.hasher.hash_one(record.session);
        if let Ok(entry) = self.by_session.find_entry(session_hash, |found| *found == key) {
            entry.remove();
        }
        record
    }
}
