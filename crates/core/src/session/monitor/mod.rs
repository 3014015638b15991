//! The monitor's end of all sessions.

mod deadlines;
mod events;
mod outbox;
mod places;
mod records;
mod report;
mod tables;
#[cfg(test)]
mod tests;
mod types;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::Hash;

use slab::Slab;

use super::access::Access;
use super::cookie::{Secret, number_of};
use super::datagram::Datagram;
use super::held::LargeStates;
use super::index::Index;
use super::latest::Latest;
use super::record::{Binding, Record, SourceKey};
use super::shares::Origin;
use crate::dscp::Dscp;
use crate::state::{Budget, Limits};
use crate::unit::{Span, Time};
use crate::wire::{
    self, Ack, AckMark, Challenge, Close, CloseReason, MAX_TOPIC, Message, Opening, ParseError,
    SessionId, Update,
};
use deadlines::Deadlines;
pub use deadlines::{Alarm, Freshness};
use events::Events;
pub use events::{End, MonitorEvent};
pub use outbox::MonitorTransmit;
pub(in crate::session) use outbox::TakenAck;
use outbox::{Answer, Outbox, Reply};
use places::{Place, Places};
pub use types::{Admission, Clocked, Ignored, MonitorCounters, MonitorParams, Names, Relation};

/// Receives the updates of many sources and answers each. `P` identifies the sender of a datagram:
/// an address, or a connection.
#[derive(Debug)]
pub struct Monitor<P> {
    params: MonitorParams,
    secret: Secret,
    /// Digests of the accepted tokens.
    tokens: Vec<u128>,
    records: Slab<Record<P>>,
    by_session: Index,
    /// Records with a name.
    by_name: Index,
    /// The relation of the second sender to the first.
    relation: fn(&P, &P) -> Relation,
    /// The origin of a sender.
    origin: fn(&P) -> Origin,
    places: Places,
    /// Where the next scan for idle records begins, and when.
    sweep: (usize, Time),
    large: LargeStates,
    outbox: Outbox<P>,
    events: Events<P>,
    deadlines: Deadlines,
    counters: MonitorCounters,
}

/// The minimum of [`MonitorParams::idle`].
const MIN_IDLE: Span = Span::from_millis(100);

/// The minimum capacity for topics and keys of ended sessions whose deadlines are kept: all of four
/// sources.
const MIN_LEFT: usize = 4 * (MAX_TOPIC as usize + 1);

/// The minimum capacity for cursors of topics of records.
const MIN_CURSORS: usize = 1024;

/// A full scan for idle records takes this many calls.
const SWEEP_PARTS: u64 = 64;

impl<P: Copy + Hash> Monitor<P> {
    /// The longest answer.
    pub const MAX_REPLY: usize = Ack::LEN_OF_PARTS;

    /// A monitor without sources. It allocates memory as sources join, up to the limits.
    pub fn new(params: MonitorParams, secret: Secret) -> Self {
        Self {
            tokens: params.tokens.iter().map(|token| secret.digest(token)).collect(),
            records: Slab::new(),
            by_session: Index::new(secret.table_hasher()),
            by_name: Index::new(secret.table_hasher()),
            relation: |_, _| Relation::Same,
            origin: |_| Origin::default(),
            places: Places::new(&params, &secret),
            sweep: (0, Time::ZERO),
            large: LargeStates::new(
                Limits { max_len: params.max_payload },
                Budget::of_parties(params.max_large),
                params.max_sources.max(MIN_CURSORS),
            ),
            outbox: Outbox::new(),
            events: Events::new(),
            deadlines: Deadlines::new(params.max_age.clone(), params.max_sources.max(MIN_LEFT)),
            counters: MonitorCounters::default(),
            // Below it, the scans for idle records would never end.
            params: MonitorParams { idle: params.idle.max(MIN_IDLE), ..params },
            secret,
        }
    }

    /// The same for a transport that knows more of its peers than their addresses, such as
    /// connections or certificates. `relation` returns the relation of the second sender to the
    /// first. A session continues only from senders that are the same as one that has opened it;
    /// its name passes to any sender that is not [`Relation::Other`] and has the same token.
    pub fn with_relation(mut self, relation: fn(&P, &P) -> Relation) -> Self {
        self.relation = relation;
        self
    }

    /// The same for a transport that knows the origin of its peers, so that places are shared
    /// between parties; [`Origin::owner`] is that of a certificate, to which the monitor adds the
    /// token. A record is charged to the sender that has opened it.
    pub fn with_origin(mut self, origin: fn(&P) -> Origin) -> Self {
        self.origin = origin;
        self
    }

    // ---- inputs ----

    /// A datagram has arrived from `peer` at `now`; or, as [`Clocked`], it arrived earlier and is
    /// handed in now. A state counts with its age at its arrival.
    ///
    /// # Errors
    /// [`Ignored`] if it had no effect.
    pub fn handle_datagram<'a>(
        &mut self,
        now: impl Into<Clocked>,
        peer: P,
        datagram: impl Into<Datagram<'a>>,
    ) -> Result<(), Ignored> {
        self.handle_checked_datagram(now, peer, None, datagram)
    }

    /// The same, from a peer whose openings these rules check, instead of
    /// [`MonitorParams::tokens`].
    ///
    /// # Errors
    /// As [`Monitor::handle_datagram`].
    pub fn handle_checked_datagram<'a>(
        &mut self,
        now: impl Into<Clocked>,
        peer: P,
        access: Option<&dyn Access>,
        datagram: impl Into<Datagram<'a>>,
    ) -> Result<(), Ignored> {
        let at = now.into();
        // Topics may have become stale while the process did not run.
        self.deadlines.handle_timeout(at.now);
        self.counters.datagrams += 1;
        self.outbox.begin();
        let Datagram { bytes, dscp } = datagram.into();
        // Matched in place: an update is expensive to move.
        let result = match &Message::parse(bytes) {
            Ok(Message::Update(update)) => self.on_update(at, (peer, access), dscp, update),
            Ok(Message::Close(close)) => self.on_close(at.now, &peer, close.session),
            Ok(_) => Err(Ignored::Misplaced),
            Err(error @ ParseError::Version(version)) => match wire::session_of_update(bytes) {
                Some(session) if bytes.len() >= Close::LEN => {
                    let reply = Reply::OtherVersion { session, version: *version };
                    self.refuse_by(peer, CloseReason::Version, reply)
                }
                _ => Err((*error).into()),
            },
            Err(error) => Err((*error).into()),
        };
        self.counters.ignored += u64::from(result.is_err());
        result
    }

    /// Time has passed: finds topics that have become stale ([`MonitorEvent::Freshness`]), and
    /// forgets some of the records that have been idle for too long ([`End::Idle`]). Calls before
    /// [`Monitor::poll_timeout`] have no effect.
    pub fn handle_timeout(&mut self, now: Time) {
        self.deadlines.handle_timeout(now);
        let (mut at, due) = self.sweep;
        if now < due {
            return;
        }
        let slots = self.records.capacity();
        let end = at + slots / SWEEP_PARTS as usize + 1;
        while at < end.min(slots) {
            let idle = |record: &&Record<P>| now.since(record.heard_at) >= self.params.idle;
            if self.records.get(at).is_some_and(|record| idle(&record)) {
                self.end(now, at as u32, End::Idle);
                self.counters.expired += 1;
            }
            at += 1;
        }
        self.sweep = (if at >= slots { 0 } else { at }, now + self.params.idle / SWEEP_PARTS);
    }

    /// The rules have changed: ends the sessions that they no longer permit ([`End::Revoked`]).
    /// Returns their number.
    pub fn revoke(&mut self, now: Time, is_permitted: impl Fn(&Record<P>) -> bool) -> usize {
        let refused = self.records.iter().filter(|(_, record)| !is_permitted(record));
        let refused: Vec<u32> = refused.map(|(key, _)| key as u32).collect();
        for key in &refused {
            self.end(now, *key, End::Revoked);
        }
        self.counters.revoked += refused.len() as u64;
        refused.len()
    }

    /// Ends all sessions: [`Monitor::poll_transmit`] writes a close for each, to the sender of its
    /// last update.
    pub fn close(&mut self, now: Time) {
        let reason = CloseReason::ShuttingDown;
        for (_, record) in &self.records {
            let (peer, session) = (record.peer, record.session);
            self.outbox.push_always(Answer::unmarked(now, peer, Reply::Close { session, reason }));
        }
    }

    // ---- outputs ----

    /// Writes the next answer to the front of `out`, which grows to its length; call until it
    /// returns `None`. The hold time of each ack is measured until `now`.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<MonitorTransmit<P>> {
        self.outbox.write(now, out)
    }

    /// The destination of the next answer.
    pub fn next_peer(&self) -> Option<&P> {
        self.outbox.next_peer()
    }

    /// Takes the ack of the update that has just arrived, if there is one.
    pub(in crate::session) fn take_ack(&mut self, of: SessionId) -> Option<TakenAck<P>> {
        self.outbox.take_ack(of)
    }

    /// Returns a taken ack, to be sent with the next answers.
    pub(in crate::session) fn put_back(&mut self, ack: TakenAck<P>) {
        self.outbox.put_back(ack);
    }

    /// The same, after the answers to the newest datagrams.
    pub(in crate::session) fn put_aside(&mut self, ack: TakenAck<P>) {
        self.outbox.put_aside(ack);
    }

    /// The next event. Topics that have become stale, or fresh again, come first.
    pub fn poll_event(&mut self) -> Option<MonitorEvent<P>> {
        let records = &self.records;
        if let Some(alarm) = self.deadlines.poll(|key| records.get(key as usize)) {
            return Some(MonitorEvent::Freshness(Box::new(alarm)));
        }
        self.events.pop()
    }

    /// When to call [`Monitor::handle_timeout`] next; `None` while there is no source, and no topic
    /// that can become stale.
    pub fn poll_timeout(&self) -> Option<Time> {
        let sweep = (!self.records.is_empty()).then_some(self.sweep.1);
        Time::earliest([sweep, self.deadlines.poll_timeout()])
    }

    // ---- getters ----

    /// A source's record, while it exists.
    pub fn record(&self, source: SourceKey) -> Option<&Record<P>> {
        self.records.get(source.index())
    }

    /// All records.
    pub fn records(&self) -> impl Iterator<Item = (SourceKey, &Record<P>)> {
        self.records.iter().map(|(index, record)| (SourceKey(index as u32), record))
    }

    /// The number of sources.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is no source.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The memory of states in parts in bytes, complete or not; at most a quarter more than
    /// [`MonitorParams::max_large`].
    pub fn large_memory(&self) -> usize {
        self.large.budget.used()
    }

    /// The newest state of a topic, with its age at `now`. `None` without a state, or if it is, or
    /// may be, older than [`MonitorParams::max_age`] allows.
    pub fn latest(&self, now: Time, source: SourceKey, topic: u16) -> Option<Latest<'_>> {
        self.latest_of(now, self.record(source)?, topic)
    }

    /// The same of a record whose session may have ended.
    pub fn latest_of<'a>(
        &self,
        now: Time,
        record: &'a Record<P>,
        topic: u16,
    ) -> Option<Latest<'a>> {
        let latest = match topic {
            0 => record.latest(now),
            topic => record.topic(topic)?.latest(now),
        };
        let limit = self.max_age(record, topic);
        latest.filter(|latest| {
            limit.is_none_or(|limit| latest.age.is_some_and(|age| age.max() <= limit))
        })
    }

    /// The maximum age of a topic, if it has one. The session may have ended.
    pub fn max_age(&self, record: &Record<P>, topic: u16) -> Option<Span> {
        let name = record.topic(topic).map_or("", |topic| topic.name());
        self.deadlines.limit(&record.name, name)
    }

    /// Whether a topic with a maximum age is stale; `None` if it has no maximum age, or no state
    /// has arrived.
    pub fn freshness(&self, source: SourceKey, topic: u16) -> Option<Freshness> {
        self.deadlines.freshness(source.0, topic)
    }

    /// The same of a source whose session has ended, by the names of source and topic, and the key
    /// if the topic has keys.
    pub fn freshness_after(&self, source: &str, topic: &str, key: &[u8]) -> Option<Freshness> {
        self.deadlines.freshness_after(source, topic, key)
    }

    /// The number of stale topics, including those of sources with a name whose session has ended.
    pub fn stale_topics(&self) -> usize {
        self.deadlines.stale()
    }

    /// Its counters.
    pub fn counters(&self) -> &MonitorCounters {
        &self.counters
    }

    // ---- steps ----

    fn on_update(
        &mut self,
        at: Clocked,
        (peer, access): (P, Option<&dyn Access>),
        dscp: Option<Dscp>,
        update: &Update<'_>,
    ) -> Result<(), Ignored> {
        if update.frames.any(|frame| frame.state_len() > self.params.max_payload) {
            return self.refuse(peer, update.session, CloseReason::TooLarge);
        }
        let Some(key) = self.find(update.session) else {
            return self.on_stranger(at, (peer, access), dscp, update);
        };
        let now = at.received_at;
        match self.relation_to(key, &peer) {
            Relation::Same => {
                let relation = self.relation;
                let record = &mut self.records[key as usize];
                record.hear(peer, |bound| relation(bound, &peer) == Relation::Same);
            }
            Relation::Other => return Err(Ignored::Misplaced),
            Relation::Unproven => match &update.opening {
                None => return self.ask_for_cookie(now, peer, update.session),
                Some(opening) => match self.credential(opening, access) {
                    Err(reason) => return self.refuse(peer, update.session, reason),
                    Ok(shown) if shown != self.records[key as usize].credential() => {
                        return Err(Ignored::Misplaced);
                    }
                    Ok(_) => self.records[key as usize].bind(peer),
                },
            },
        }
        self.large.enter(&self.places.origin(key), key);
        let record = &mut self.records[key as usize];
        record.set_dscp(dscp);
        let received = record.on_update(update, now, &mut self.large);
        self.judge(at.now, key);
        self.report_first(SourceKey(key), received.arrival);
        self.report_topics(SourceKey(key));
        if update.wants_ack {
            self.answer(now, peer, key, update, received.was_fresh);
        }
        Ok(())
    }

    fn on_stranger(
        &mut self,
        at: Clocked,
        (peer, access): (P, Option<&dyn Access>),
        dscp: Option<Dscp>,
        update: &Update<'_>,
    ) -> Result<(), Ignored> {
        let (session, now) = (update.session, at.received_at);
        let proven = |opening: &Opening<'_>| match self.params.admission {
            Admission::Proven => true,
            Admission::Cookie => self.secret.accepts(opening.cookie, now, session, &peer),
        };
        let Some(opening) = update.opening.filter(proven) else {
            return self.ask_for_cookie(now, peer, session);
        };
        let credential = match self.credential(&opening, access) {
            Ok(credential) => credential,
            Err(reason) => return self.refuse(peer, session, reason),
        };
        if self.events.has_too_many_ends(self.params.max_sources) {
            return self.refuse(peer, session, CloseReason::Full);
        }
        if self.params.names == Names::Plain && !Opening::is_plain_name(opening.name) {
            return self.refuse(peer, session, CloseReason::BadName);
        }
        if let Some(former) = self.find_named(opening.name) {
            let is_anothers = self.relation_to(former, &peer) == Relation::Other
                || self.records[former as usize].credential() != credential;
            if is_anothers {
                return self.refuse(peer, session, CloseReason::NameTaken);
            }
            let origin = self.origin_of(&peer, credential);
            if self.places.origin(former) != origin && self.places.is_capped(&origin) {
                return self.refuse_capped(peer, session);
            }
            self.remove(former, now);
            self.counters.superseded += 1;
        } else {
            let origin = self.origin_of(&peer, credential);
            let name = self.name_of(&origin, opening.name);
            let Self { places, records, .. } = self;
            match places.find(&origin, name, |key| records[key as usize].heard_at) {
                Place::Free => {}
                Place::Of(key) => {
                    self.end(now, key, End::Displaced);
                    self.counters.displaced += 1;
                }
                Place::Full => return self.refuse(peer, session, CloseReason::Full),
                Place::Capped => return self.refuse_capped(peer, session),
            }
        }
        self.open(at, (peer, credential), dscp, update, opening.name);
        Ok(())
    }

    /// Opens a session that has a place.
    fn open(
        &mut self,
        at: Clocked,
        (peer, credential): (P, u64),
        dscp: Option<Dscp>,
        update: &Update<'_>,
        name: &str,
    ) {
        let now = at.received_at;
        let binding = Binding { credential, label: self.secret.label(update.session) };
        // The source's clock offset may be that of a previous monitor.
        let update = &Update { clock_offset: None, ..*update };
        // The key that the record will get.
        let key = self.records.vacant_key() as u32;
        self.large.enter(&self.origin_of(&peer, credential), key);
        let mut record = Record::new(update, peer, name.into(), binding, now, &mut self.large);
        record.set_dscp(dscp);
        let key = self.insert(record, now);
        self.judge(at.now, key);
        self.counters.opened += 1;
        self.counters.fresh += 1;
        let (source, opened) = (SourceKey(key), true);
        self.events.push(match self.records[key as usize].payload().is_some() {
            true => MonitorEvent::Fresh { source, opened, is_repeat: false, brings_age: false },
            false => MonitorEvent::Opened { source },
        });
        self.report_topics(source);
        self.answer(now, peer, key, update, true);
    }

    /// Answers an update by an ack.
    fn answer(&mut self, now: Time, peer: P, key: u32, update: &Update<'_>, was_fresh: bool) {
        let record = &self.records[key as usize];
        let dscp = AckMark::chosen(self.params.ack_mark, update.ack_mark, record.dscp());
        let ack = record.ack(update, now, Span::ZERO, was_fresh, dscp);
        self.outbox.push(Answer { received_at: now, peer, dscp, reply: Reply::Ack(ack) });
    }

    fn on_close(&mut self, now: Time, peer: &P, session: SessionId) -> Result<(), Ignored> {
        let is_theirs = |key: &u32| self.relation_to(*key, peer) == Relation::Same;
        let key = self.find(session).filter(is_theirs).ok_or(Ignored::Misplaced)?;
        self.end(now, key, End::Closed);
        self.counters.closed += 1;
        Ok(())
    }

    /// Ends a session; the driver gets its last record.
    fn end(&mut self, now: Time, key: u32, why: End) {
        let record = Box::new(self.remove(key, now));
        self.events.push(MonitorEvent::Gone { source: SourceKey(key), record, why });
    }

    /// The relation of a sender to the senders that have opened a session.
    fn relation_to(&self, key: u32, peer: &P) -> Relation {
        let record = &self.records[key as usize];
        let relation = (self.relation)(&record.peer, peer);
        let is_bound = |bound| (self.relation)(bound, peer) == Relation::Same;
        match relation {
            Relation::Unproven if record.bound().iter().any(is_bound) => Relation::Same,
            relation => relation,
        }
    }

    /// The credential of an opening: a digest of its token, the same for each opening if no token
    /// is required.
    fn credential(
        &self,
        opening: &Opening<'_>,
        access: Option<&dyn Access>,
    ) -> Result<u64, CloseReason> {
        if let Some(access) = access {
            return access.check(opening);
        }
        if self.tokens.is_empty() {
            return Ok(0);
        }
        let digest = self.secret.digest(opening.token);
        let is_known = self.tokens.contains(&digest);
        is_known.then(|| number_of(opening.token)).ok_or(CloseReason::BadToken)
    }

    fn ask_for_cookie(&mut self, now: Time, peer: P, session: SessionId) -> Result<(), Ignored> {
        let cookie = self.secret.cookie(now, session, &peer);
        self.challenge(now, peer, Challenge { session, cookie });
        Ok(())
    }

    pub(in crate::session) fn challenge(&mut self, now: Time, peer: P, challenge: Challenge) {
        self.counters.challenged += 1;
        self.outbox.push(Answer::unmarked(now, peer, Reply::Challenge(challenge)));
        self.events.push(MonitorEvent::Challenged);
    }

    fn refuse(&mut self, peer: P, session: SessionId, reason: CloseReason) -> Result<(), Ignored> {
        self.refuse_by(peer, reason, Reply::Close { session, reason })
    }

    fn refuse_by(&mut self, peer: P, reason: CloseReason, reply: Reply) -> Result<(), Ignored> {
        self.counters.refused += 1;
        self.outbox.push(Answer::unmarked(Time::ZERO, peer, reply));
        self.events.push(MonitorEvent::Refused { reason, at_peer_limit: false });
        Ok(())
    }

    fn refuse_capped(&mut self, peer: P, session: SessionId) -> Result<(), Ignored> {
        self.counters.capped += 1;
        self.counters.refused += 1;
        let reason = CloseReason::Full;
        let reply = Reply::Close { session, reason };
        self.outbox.push(Answer::unmarked(Time::ZERO, peer, reply));
        self.events.push(MonitorEvent::Refused { reason, at_peer_limit: true });
        Ok(())
    }
}
