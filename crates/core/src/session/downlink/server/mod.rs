//! The server's end of a downlink.

mod events;
mod join;
mod outbox;
mod report;
#[cfg(test)]
mod tests;
mod transmit;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::Hash;

use slab::Slab;

use super::datagram::ReceivedDatagram;
use super::record::{ClientKey, ClientRecord};
use super::types::{ServerCounters, ServerIgnored, ServerParams};
use crate::dscp::Dscp;
use crate::session::cookie::Secret;
use crate::session::index::Index;
use crate::session::shares::{Origin, Shares};
use crate::session::{Access, End};
use crate::unit::{BitRate, Time};
use crate::wire::{Challenge, Close, CloseReason, Message, SessionId};
use crate::wlan::{DownlinkLaw, Guarded, StationId};
use events::Events;
pub use events::ServerEvent;
use outbox::Outbox;

/// Sends packets to many clients, with the rates of one law. `P` identifies the sender of a
/// datagram.
///
/// The driver's loop is that of every endpoint of [`session`](crate::session):
///
/// 1. Hand in received datagrams ([`Server::handle_datagram`]) and the time
///    ([`Server::handle_timeout`]).
/// 2. Drain [`Server::poll_event`]. The answer to [`ServerEvent::PacketWanted`] is [`Server::put`],
///    [`Server::pause`] or [`Server::finish`].
/// 3. Drain [`Server::poll_transmit`], and send the datagrams that it writes.
/// 4. Sleep until [`Server::poll_timeout`], or until a datagram arrives.
///
/// Other orders of calls are allowed; they only cause delays. Memory for output is bounded: one
/// payload per client of at most [`ServerParams::max_payload`] bytes, and 1024 answers; so are
/// events: 1024, and one per client.
#[derive(Debug)]
pub struct Server<P> {
    params: ServerParams,
    law: Guarded,
    secret: Secret,
    /// Digests of the accepted tokens.
    tokens: Vec<u128>,
    records: Slab<ClientRecord<P>>,
    by_session: Index,
    /// The origin of a sender.
    origin: fn(&P) -> Origin,
    shares: Shares,
    events: Events<P>,
    outbox: Outbox<P>,
    /// Clients with a pending packet.
    sending: Vec<u32>,
    /// The client for whose packet the driver is to be asked.
    wanted: Option<u32>,
    is_closing: bool,
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
            events: Events::new(),
            outbox: Outbox::new(),
            sending: Vec::new(),
            wanted: None,
            is_closing: false,
            counters: ServerCounters::default(),
            params: ServerParams { idle, ..params },
            secret,
        }
    }

    /// The same for a transport that knows the origin of its peers: if the server is full, a client
    /// of the largest party is displaced for a newcomer ([`Shares`]).
    pub fn with_origin(mut self, origin: fn(&P) -> Origin) -> Self {
        self.origin = origin;
        self
    }

    // ---- the contract ----

    /// A datagram has arrived from `peer`.
    ///
    /// # Errors
    /// [`ServerIgnored`] if it had no effect.
    pub fn handle_datagram<'a>(
        &mut self,
        now: Time,
        peer: P,
        datagram: impl Into<ReceivedDatagram<'a>>,
    ) -> Result<(), ServerIgnored> {
        self.handle_checked_datagram(now, peer, None, datagram)
    }

    /// The same, from a peer whose joins these rules check, instead of [`ServerParams::tokens`].
    ///
    /// # Errors
    /// As [`Server::handle_datagram`].
    pub fn handle_checked_datagram<'a>(
        &mut self,
        now: Time,
        peer: P,
        access: Option<&dyn Access>,
        datagram: impl Into<ReceivedDatagram<'a>>,
    ) -> Result<(), ServerIgnored> {
        self.counters.datagrams += 1;
        let datagram = datagram.into();
        let result = match Message::parse(datagram.bytes) {
            Ok(_) if self.is_closing => Err(ServerIgnored::Misplaced),
            Ok(Message::Join(join)) => self.on_join(now, (peer, access), &join),
            Ok(Message::Report(report)) => self.on_report(now, peer, &datagram, &report),
            Ok(Message::Close(close)) => self.on_close(now, peer, close.session),
            Ok(_) => Err(ServerIgnored::Misplaced),
            Err(error) => Err(error.into()),
        };
        self.counters.ignored += u64::from(result.is_err());
        result
    }

    /// Time has passed: the law processes its slot, silent clients are forgotten ([`End::Idle`]),
    /// and the packet that has been due for the longest time is requested. Calls before
    /// [`Server::poll_timeout`] have no effect.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.is_closing {
            return;
        }
        while let Some((key, _)) = self.next_silent().filter(|(_, at)| *at <= now) {
            self.end(now, key, End::Idle);
            self.counters.expired += 1;
        }
        if self.law.poll_timeout().is_some_and(|at| at <= now) {
            self.law.handle_timeout(now);
            // A client that still has nothing to send is application-limited in the new slot too.
            for (key, record) in &self.records {
                if record.is_idle() {
                    self.law.on_app_limited(now, StationId(key as u32));
                }
            }
        }
        self.look_for_due(now);
    }

    /// The next event, or request to the driver.
    pub fn poll_event(&mut self) -> Option<ServerEvent<P>> {
        if let Some(event) = self.events.pop() {
            return Some(event);
        }
        self.poll_wanted().map(ServerEvent::PacketWanted)
    }

    /// When to call [`Server::handle_timeout`] next, which may lie in the past; `None` while there
    /// is no client, and after [`Server::close`].
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.is_closing {
            return None;
        }
        let silent = self.next_silent().map(|(_, at)| at);
        Time::earliest([self.law.poll_timeout(), silent, self.packet_at()])
    }

    /// The rules have changed: ends the sessions that they no longer permit ([`End::Revoked`]).
    /// Returns their number.
    pub fn revoke(&mut self, now: Time, is_permitted: impl Fn(&ClientRecord<P>) -> bool) -> usize {
        let refused = self.records.iter().filter(|(_, record)| !is_permitted(record));
        let refused: Vec<u32> = refused.map(|(key, _)| key as u32).collect();
        for key in &refused {
            self.end(now, *key, End::Revoked);
        }
        self.counters.revoked += refused.len() as u64;
        refused.len()
    }

    /// Ends all sessions: [`Server::poll_transmit`] writes a close for each, and nothing after
    /// them.
    pub fn close(&mut self) {
        if self.is_closing {
            return;
        }
        self.is_closing = true;
        let reason = CloseReason::ShuttingDown;
        for (_, record) in &self.records {
            self.outbox.close(record.peer, Close { session: record.session, reason });
        }
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

    /// The code point of packets.
    pub fn dscp(&self) -> Dscp {
        self.params.dscp
    }

    /// The downlink law.
    pub fn law(&self) -> &dyn DownlinkLaw {
        self.law.law()
    }

    /// The guard's limit of the rate of IP packets to a client, and whether the law would exceed
    /// it; `None` without a guard.
    pub fn limit(&self, client: ClientKey) -> Option<(BitRate, bool)> {
        let station = client.station();
        Some((self.law.limit(station)?, self.law.is_limited(station)))
    }

    /// Its counters.
    pub fn counters(&self) -> &ServerCounters {
        &self.counters
    }

    // ---- steps ----

    fn on_close(&mut self, now: Time, peer: P, session: SessionId) -> Result<(), ServerIgnored> {
        let found = self.find(session).filter(|key| self.records[*key as usize].peer == peer);
        let key = found.ok_or(ServerIgnored::Misplaced)?;
        self.end(now, key, End::Closed);
        self.counters.left += 1;
        Ok(())
    }

    /// The digest of a token, if the token is accepted.
    fn accepted(&self, token: &[u8]) -> Result<u64, CloseReason> {
        let digest = self.secret.digest(token);
        let is_accepted = self.tokens.is_empty() || self.tokens.contains(&digest);
        is_accepted.then_some(digest as u64).ok_or(CloseReason::BadToken)
    }

    fn challenge(&mut self, now: Time, peer: P, session: SessionId) -> Result<(), ServerIgnored> {
        self.counters.challenged += 1;
        let cookie = self.secret.cookie(now, session, &peer);
        self.outbox.challenge(peer, Challenge { session, cookie });
        self.report(ServerEvent::Challenged);
        Ok(())
    }

    fn refuse(
        &mut self,
        peer: P,
        session: SessionId,
        reason: CloseReason,
    ) -> Result<(), ServerIgnored> {
        self.counters.refused += 1;
        self.outbox.refuse(peer, Close { session, reason });
        self.report(ServerEvent::Refused(reason));
        Ok(())
    }

    fn report(&mut self, event: ServerEvent<P>) {
        self.events.push(self.records.capacity(), event);
    }

    /// Removes a client; the driver gets its last record.
    fn end(&mut self, now: Time, key: u32, why: End) {
        let mut record = Box::new(self.remove(now, key));
        record.forget_packets();
        self.report(ServerEvent::Gone { client: ClientKey(key), record, why });
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
        self.sending.retain(|sending| *sending != key);
        self.wanted = self.wanted.filter(|wanted| *wanted != key);
        record
    }
}
