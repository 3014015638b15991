//! The server's end of a downlink.

mod join;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::Hash;

use slab::Slab;

use super::record::{ClientKey, ClientRecord};
use super::types::{ServerCounters, ServerIgnored, ServerParams, ServerReceipt, ServerVerdict};
use crate::dscp::Dscp;
use crate::session::clock_offset::ClockOffset;
use crate::session::cookie::Secret;
use crate::session::index::Index;
use crate::session::shares::{Origin, Shares};
use crate::session::{Access, Clocked};
use crate::unit::{BitRate, Bytes, Time};
use crate::wire::{Challenge, Close, CloseReason, Message, Packet, Report, SessionId};
use crate::wlan::{Delivery, DownlinkLaw, Guarded, StationId, urgent_gap};

/// Sends packets to many clients, each at the rate of one law. `P` is where a datagram came from.
#[derive(Debug)]
pub struct Server<P> {
    params: ServerParams,
    law: Guarded,
    secret: Secret,
    /// Digests of the accepted tokens.
    tokens: Vec<u128>,
    records: Slab<ClientRecord<P>>,
    by_session: Index,
    /// Where a sender is from.
    origin: fn(&P) -> Origin,
    shares: Shares,
    counters: ServerCounters,
}

impl<P: Copy + Eq + Hash> Server<P> {
    /// The longest answer.
    pub const MAX_REPLY: usize = Challenge::LEN;

    /// A server without clients.
    pub fn new(params: ServerParams, law: Box<dyn DownlinkLaw>, secret: Secret) -> Self {
        let idle = params.idle.max(params.interval * 2);
        Self {
            law: if params.guard {
                Guarded::new(law, params.interval)
            } else {
                Guarded::without_limits(law)
            },
            tokens: params.tokens.iter().map(|token| secret.digest(token)).collect(),
            records: Slab::new(),
            by_session: Index::new(secret.table_hasher()),
            origin: |_| Origin::default(),
            shares: Shares::default(),
            counters: ServerCounters::default(),
            params: ServerParams { idle, ..params },
            secret,
        }
    }

    /// The same for a transport that knows where its peers are from: where there is no place for a
    /// client, one of the party that has most gives way to it ([`Shares`]).
    pub fn with_origin(mut self, origin: fn(&P) -> Origin) -> Self {
        self.origin = origin;
        self
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
        self.on_marked_datagram(at, peer, None, datagram, reply)
    }

    /// The same, of a datagram that came with this code point, if the transport can tell.
    pub fn on_marked_datagram(
        &mut self,
        at: Clocked,
        peer: P,
        dscp: Option<Dscp>,
        datagram: &[u8],
        reply: &mut [u8; Challenge::LEN],
    ) -> ServerReceipt<P> {
        self.on_checked_datagram(at, (peer, None), dscp, datagram, reply)
    }

    /// The same, from a peer whose joins these rules check, in place of [`ServerParams::tokens`].
    pub fn on_checked_datagram(
        &mut self,
        at: Clocked,
        (peer, access): (P, Option<&dyn Access>),
        dscp: Option<Dscp>,
        datagram: &[u8],
        reply: &mut [u8; Challenge::LEN],
    ) -> ServerReceipt<P> {
        self.counters.datagrams += 1;
        match Message::parse(datagram) {
            Ok(Message::Join(join)) => self.on_join(at.now, (peer, access), &join, reply),
            Ok(Message::Report(report)) => self.on_report(at, peer, dscp, &report, reply),
            Ok(Message::Close(close)) => self.on_close(at.now, peer, close.session),
            Ok(_) => self.ignore(ServerIgnored::Misplaced),
            Err(error) => self.ignore(error.into()),
        }
    }

    /// Time has passed: the law looks at its slot, and who has been silent for too long is handed
    /// to `gone`. Calls before [`Server::poll_timeout`] change nothing.
    pub fn handle_timeout(&mut self, now: Time, mut gone: impl FnMut(ClientKey, &ClientRecord<P>)) {
        while let Some((key, _)) = self.next_silent().filter(|(_, at)| *at <= now) {
            let record = self.remove(now, key);
            self.counters.expired += 1;
            gone(ClientKey(key), &record);
        }
        if self.law.poll_timeout().is_some_and(|at| at <= now) {
            self.law.handle_timeout(now);
            // Who still has nothing to send tells nothing in the new slot either.
            for (key, record) in &self.records {
                if record.is_idle() {
                    self.law.on_app_limited(now, StationId(key as u32));
                }
            }
        }
    }

    /// The rules have changed: ends the sessions that they do not permit any more, each handed to
    /// `ended`. Returns their number.
    pub fn revoke(
        &mut self,
        now: Time,
        is_permitted: impl Fn(&ClientRecord<P>) -> bool,
        mut ended: impl FnMut(ClientKey, &ClientRecord<P>),
    ) -> usize {
        let refused = self.records.iter().filter(|(_, record)| !is_permitted(record));
        let refused: Vec<u32> = refused.map(|(key, _)| key as u32).collect();
        for key in &refused {
            let record = self.remove(now, *key);
            ended(ClientKey(*key), &record);
        }
        self.counters.revoked += refused.len() as u64;
        refused.len()
    }

    /// There is nothing to send to a client whose packet is due. If it has not heard of the server
    /// for an interval, an empty packet is written to `out`; gives its length, or 0.
    pub fn on_nothing_to_send(&mut self, now: Time, client: ClientKey, out: &mut [u8]) -> usize {
        let Some(record) = self.client(client) else { return 0 };
        let is_due = record.keep_alive_at(self.params.interval) <= now;
        self.law.on_app_limited(now, client.station());
        let written = is_due.then(|| self.write_packet(now, client, &[], out)).flatten();
        // Not before: a packet written says that there was something.
        self.records[client.index()].pace.on_nothing_to_send();
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
        let record = self.records.get_mut(client.index())?;
        let packet = Packet {
            session: record.session,
            seq: record.packets,
            sent_at: now,
            clock_offset: record.clock_offset.nanos(),
            interval: self.params.interval,
            ack_mark: self.params.ack_mark,
            payload,
        };
        let len = packet.write(out)?;
        let size = Bytes::new(len as u64) + self.params.headers;
        let takes = self.law.rate(client.station()).time_to_send(size);
        record.on_sent(now, payload.len(), takes, self.params.catch_up);
        self.counters.packets += 1;
        self.counters.payload_bytes += payload.len() as u64;
        Some(len)
    }

    /// The message with which the server takes its leave of a client.
    pub fn close(&self, client: ClientKey) -> Option<[u8; Close::LEN]> {
        let session = self.client(client)?.session;
        Some(Close { session, reason: CloseReason::ShuttingDown }.bytes())
    }

    // ---- what it wants next ----

    /// When to call [`Server::handle_timeout`] next; `None` while there is no client.
    pub fn poll_timeout(&self) -> Option<Time> {
        let silent = self.next_silent().map(|(_, at)| at);
        self.law.poll_timeout().into_iter().chain(silent).min()
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

    /// The code point with which packets leave.
    pub fn dscp(&self) -> Dscp {
        self.params.dscp
    }

    /// The law at work.
    pub fn law(&self) -> &dyn DownlinkLaw {
        self.law.law()
    }

    /// The guard's limit of the rate of IP packets to a client, and whether the law would exceed it;
    /// `None` without a guard.
    pub fn limit(&self, client: ClientKey) -> Option<(BitRate, bool)> {
        let station = client.station();
        Some((self.law.limit(station)?, self.law.is_limited(station)))
    }

    /// What was counted.
    pub fn counters(&self) -> &ServerCounters {
        &self.counters
    }

    // ---- steps ----

    fn on_report(
        &mut self,
        at: Clocked,
        peer: P,
        dscp: Option<Dscp>,
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
        // Urgent reports tell no level: they do not keep out the next that does.
        let interval = self.params.interval;
        let (last, too_soon) = match report.seen {
            Some(_) => (record.levelled_at, interval / 4),
            None => (record.reported.map(|(last, ..)| last), urgent_gap(interval) / 2),
        };
        let is_too_soon = last.is_some_and(|last| now.since(last) < too_soon);
        if is_too_soon || !record.is_news(report) {
            return self.ignore(ServerIgnored::Untimely);
        }
        // Reports may tell of one packet several times.
        let is_newer = record.reported.is_none_or(|(_, seq, _)| report.newest_seq > seq);
        record.reported = Some((now, report.newest_seq, report.number));
        record.heard_at = now;
        record.reports += 1;
        record.received = report.received;
        record.max_packets = report.max_packets;
        if let Some(seen) = report.marks.seen.filter(|_| is_newer) {
            record.marks.forward.record(self.params.dscp, seen);
        }
        if let (Some(sent), Some(seen)) = (report.marks.sent, dscp) {
            record.marks.reverse.record(sent, seen);
        }
        let given_up = record.given_up_before(report.newest_seq);
        let rtt = now.since(report.newest_sent_at) - report.hold;
        record.rtt = Some(rtt);
        let [sent_at, received_at] = [report.newest_sent_at, report.newest_received_at];
        record.clock_offset.on_ack(now, sent_at, received_at, rtt);
        record.delay = record
            .clock_offset
            .nanos()
            .map(|offset| received_at.since(ClockOffset::translate(sent_at, offset)));
        let delivery = Delivery {
            newest_seq: report.newest_seq,
            newest_sent_at: sent_at,
            newest_received_at: received_at,
            packets: report.received,
            delivered: report.delivered,
            given_up,
        };
        self.law.on_delivery(now, StationId(key), &delivery, self.params.headers);
        self.law.on_max_packets(StationId(key), report.max_packets);
        if let Some(seen) = report.seen {
            record.seen = Some(seen);
            record.levelled_at = Some(now);
            self.law.on_report(now, StationId(key), seen);
        }
        self.counters.reports += 1;
        answered(ServerVerdict::Reported(ClientKey(key)), 0, None)
    }

    fn on_close(&mut self, now: Time, peer: P, session: SessionId) -> ServerReceipt<P> {
        let found = self.find(session).filter(|key| self.records[*key as usize].peer == peer);
        let Some(key) = found else { return self.ignore(ServerIgnored::Misplaced) };
        let record = Box::new(self.remove(now, key));
        self.counters.left += 1;
        let client = ClientKey(key);
        answered(ServerVerdict::Left { client, record }, 0, None)
    }

    /// A digest of a token, if it is one of those that are accepted.
    fn accepted(&self, token: &[u8]) -> Result<u64, CloseReason> {
        let digest = self.secret.digest(token);
        let is_accepted = self.tokens.is_empty() || self.tokens.contains(&digest);
        is_accepted.then_some(digest as u64).ok_or(CloseReason::BadToken)
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
        answered(ServerVerdict::Challenged, Challenge::LEN, None)
    }

    fn refuse(
        &mut self,
        session: SessionId,
        reason: CloseReason,
        reply: &mut [u8; Challenge::LEN],
    ) -> ServerReceipt<P> {
        self.counters.refused += 1;
        reply[..Close::LEN].copy_from_slice(&Close { session, reason }.bytes());
        answered(ServerVerdict::Refused(reason), Close::LEN, None)
    }

    fn ignore(&mut self, why: ServerIgnored) -> ServerReceipt<P> {
        self.counters.ignored += 1;
        answered(ServerVerdict::Ignored(why), 0, None)
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
        self.by_session.find(&session, |key| &self.records[key as usize].session)
    }

    fn insert(&mut self, record: ClientRecord<P>) {
        let key = self.records.insert(record) as u32;
        self.by_session.insert(key, |key| &self.records[key as usize].session);
    }

    fn remove(&mut self, now: Time, key: u32) -> ClientRecord<P> {
        self.law.on_leave(now, StationId(key));
        let record = self.records.remove(key as usize);
        self.by_session.remove(key, &record.session);
        self.shares.remove(key);
        record
    }
}

fn answered<P>(
    verdict: ServerVerdict<P>,
    reply: usize,
    displaced: Option<Box<(ClientKey, ClientRecord<P>)>>,
) -> ServerReceipt<P> {
    ServerReceipt { verdict, reply, displaced }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Admission;
    use crate::unit::Span;
    use crate::wire::{Cookie, Join, Opening};
    use crate::wlan::Fixed;

    #[test]
    fn a_session_is_led_elsewhere_by_its_own_token_alone() {
        // As over QUIC, where connections are what peers are.
        let params = ServerParams {
            admission: Admission::Proven,
            tokens: [b"one".to_vec(), b"two".to_vec()].into(),
            ..ServerParams::default()
        };
        let law = Box::new(Fixed::new(BitRate::from_mbps(1)));
        let mut server = Server::new(params, law, Secret::new([7; 16]));
        let mut join = |connection: u32, token: &[u8]| {
            let opening = Opening { cookie: Cookie::default(), name: "", token };
            let (mut datagram, mut reply) = ([0; 400], [0; Challenge::LEN]);
            let len = Join { session: SessionId(9), opening }.write(&mut datagram).unwrap();
            let at = Clocked { received_at: Time::ZERO, now: Time::ZERO };
            let receipt = server.on_datagram(at, connection, &datagram[..len], &mut reply);
            let led_to = server.clients().next().map(|(_, record)| record.peer);
            (matches!(receipt.verdict, ServerVerdict::Joined(_)), led_to)
        };
        assert_eq!(join(1, b"one"), (true, Some(1)));
        assert_eq!(join(2, b"two"), (false, Some(1)), "it knows the session, but is another");
        assert_eq!(join(3, b"one"), (true, Some(3)));
    }

    #[test]
    fn a_report_whose_number_was_damaged_does_not_outdate_those_that_follow() {
        let params = ServerParams { admission: Admission::Proven, ..ServerParams::default() };
        let law = Box::new(Fixed::new(BitRate::from_mbps(1)));
        let mut server = Server::new(params, law, Secret::new([7; 16]));
        let (session, mut bytes) = (SessionId(9), [0; 400]);
        let mut reply = [0; Challenge::LEN];
        let opening = Opening { cookie: Cookie::default(), name: "", token: b"" };
        let len = Join { session, opening }.write(&mut bytes).unwrap();
        let clocked = |now| Clocked { received_at: now, now };
        server.on_datagram(clocked(Time::ZERO), 1, &bytes[..len], &mut reply);
        let client = server.clients().next().unwrap().0;
        let mut reported = |second: u64, seq: u64, number: u32| {
            let sent_at = |seq: u64| Time::ZERO + Span::from_secs(seq);
            while server.client(client).unwrap().packets <= seq {
                let now = sent_at(server.client(client).unwrap().packets);
                server.write_packet(now, client, b"", &mut bytes).unwrap();
            }
            let report = Report {
                session,
                number,
                newest_seq: seq,
                newest_sent_at: sent_at(seq),
                newest_received_at: sent_at(seq),
                hold: Span::ZERO,
                received: 1,
                seen: None,
                marks: Default::default(),
                delivered: None,
                max_packets: None,
            };
            let at = clocked(Time::ZERO + Span::from_secs(second));
            let verdict = server.on_datagram(at, 1, &report.bytes(), &mut reply).verdict;
            matches!(verdict, ServerVerdict::Reported(_))
        };
        assert!(reported(1, 0, 1 << 30), "this one was damaged");
        assert!(!reported(2, 0, 1), "it tells of the same packet");
        assert!(reported(3, 2, 2) && reported(4, 2, 3));
        assert!(!reported(5, 2, 3) && !reported(6, 0, 4), "copies and stragglers");
    }
}
