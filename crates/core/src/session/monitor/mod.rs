//! The monitor's end of all sessions.

mod places;
mod tables;
mod types;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::Hash;

use slab::Slab;

use super::access::Access;
use super::cookie::Secret;
use super::index::Index;
use super::record::{Arrival, Binding, Record, SourceKey};
use super::shares::Origin;
use crate::dscp::Dscp;
use crate::unit::{Span, Time};
use crate::wire::{
    self, Ack, AckMark, Challenge, Close, CloseReason, Message, Opening, ParseError, SessionId,
    Update,
};
use places::{Place, Places};
pub use types::{
    Admission, Clocked, Ignored, MonitorCounters, MonitorParams, Names, Receipt, Relation, Verdict,
};

/// Receives the updates of many sources and answers each. `P` is where a datagram came from: an
/// address, or a connection.
#[derive(Debug)]
pub struct Monitor<P> {
    params: MonitorParams,
    secret: Secret,
    /// Digests of the accepted tokens.
    tokens: Vec<u128>,
    records: Slab<Record<P>>,
    by_session: Index,
    /// Those with a name.
    by_name: Index,
    /// What the second sender is to the first.
    relation: fn(&P, &P) -> Relation,
    /// Where a sender is from.
    origin: fn(&P) -> Origin,
    places: Places,
    /// Where the next look for idle records begins, and when.
    sweep: (usize, Time),
    counters: MonitorCounters,
}

/// The shortest [`MonitorParams::idle`].
const MIN_IDLE: Span = Span::from_millis(100);

/// A full look for idle records takes this many calls.
const SWEEP_PARTS: u64 = 64;

impl<P: Copy + Hash> Monitor<P> {
    /// The longest answer.
    pub const MAX_REPLY: usize = Ack::LEN;

    /// A monitor without sources. Takes memory as sources come, up to the cap.
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
            counters: MonitorCounters::default(),
            // Below it the looks for idle records would never end.
            params: MonitorParams { idle: params.idle.max(MIN_IDLE), ..params },
            secret,
        }
    }

    /// The same for a transport that knows more of its peers than their addresses, such as connections
    /// or certificates. `relation` says what the second sender is to the first. A session goes on only
    /// from senders that are the same as one that has opened it; its name passes on to any sender that
    /// is not [`Relation::Other`] and shows the same token.
    pub fn with_relation(mut self, relation: fn(&P, &P) -> Relation) -> Self {
        self.relation = relation;
        self
    }

    /// The same for a transport that knows where its peers are from, so that places are shared between
    /// parties; [`Origin::owner`] is that of a certificate, to which the monitor adds the token. A record
    /// counts for the sender that has opened it.
    pub fn with_origin(mut self, origin: fn(&P) -> Origin) -> Self {
        self.origin = origin;
        self
    }

    // ---- inputs ----

    /// A datagram came from `peer`; an answer to it is written to `reply`.
    pub fn on_datagram<'a>(
        &mut self,
        at: Clocked,
        peer: P,
        datagram: &'a [u8],
        reply: &mut [u8; Ack::LEN],
    ) -> Receipt<'a, P> {
        self.on_marked_datagram(at, peer, None, datagram, reply)
    }

    /// The same, of a datagram that came with this code point, if the transport can tell.
    pub fn on_marked_datagram<'a>(
        &mut self,
        at: Clocked,
        peer: P,
        dscp: Option<Dscp>,
        datagram: &'a [u8],
        reply: &mut [u8; Ack::LEN],
    ) -> Receipt<'a, P> {
        self.on_checked_datagram(at, (peer, None), dscp, datagram, reply)
    }

    /// The same, from a peer whose openings these rules check, in place of [`MonitorParams::tokens`].
    pub fn on_checked_datagram<'a>(
        &mut self,
        at: Clocked,
        from: (P, Option<&dyn Access>),
        dscp: Option<Dscp>,
        datagram: &'a [u8],
        reply: &mut [u8; Ack::LEN],
    ) -> Receipt<'a, P> {
        self.counters.datagrams += 1;
        match Message::parse(datagram) {
            Ok(Message::Update(update)) => self.on_update(at, from, dscp, &update, reply),
            Ok(Message::Close(close)) => self.on_close(at.now, &from.0, close.session),
            Ok(_) => self.ignore(Ignored::Misplaced),
            Err(error @ ParseError::Version(_)) => match wire::session_of_update(datagram) {
                Some(session) if datagram.len() >= Close::LEN => {
                    self.refuse(session, CloseReason::Version, reply)
                }
                _ => self.ignore(error.into()),
            },
            Err(error) => self.ignore(error.into()),
        }
    }

    /// Time has passed: forgets some of the records that have been idle for too long. Each is
    /// handed to `expired` first. Calls before [`Monitor::poll_timeout`] change nothing.
    pub fn handle_timeout(&mut self, now: Time, mut expired: impl FnMut(SourceKey, &Record<P>)) {
        let (mut at, due) = self.sweep;
        if now < due {
            return;
        }
        let slots = self.records.capacity();
        let end = at + slots / SWEEP_PARTS as usize + 1;
        while at < end.min(slots) {
            let idle = |record: &&Record<P>| now.since(record.heard_at) >= self.params.idle;
            if let Some(record) = self.records.get(at).filter(idle) {
                expired(SourceKey(at as u32), record);
                self.remove(at as u32, now);
                self.counters.expired += 1;
            }
            at += 1;
        }
        self.sweep = (if at >= slots { 0 } else { at }, now + self.params.idle / SWEEP_PARTS);
    }

    /// The rules have changed: ends the sessions that they do not permit any more, each handed to
    /// `ended` first. Returns their number.
    pub fn revoke(
        &mut self,
        now: Time,
        is_permitted: impl Fn(&Record<P>) -> bool,
        mut ended: impl FnMut(SourceKey, &Record<P>),
    ) -> usize {
        let refused = self.records.iter().filter(|(_, record)| !is_permitted(record));
        let refused: Vec<u32> = refused.map(|(key, _)| key as u32).collect();
        for key in &refused {
            ended(SourceKey(*key), &self.records[*key as usize]);
            self.remove(*key, now);
        }
        self.counters.revoked += refused.len() as u64;
        refused.len()
    }

    // ---- what it wants next ----

    /// When to call [`Monitor::handle_timeout`] next; `None` while there is no source.
    pub fn poll_timeout(&self) -> Option<Time> {
        (!self.records.is_empty()).then_some(self.sweep.1)
    }

    // ---- getters ----

    /// A source's record, while it lives.
    pub fn record(&self, source: SourceKey) -> Option<&Record<P>> {
        self.records.get(source.index())
    }

    /// All records.
    pub fn records(&self) -> impl Iterator<Item = (SourceKey, &Record<P>)> {
        self.records.iter().map(|(index, record)| (SourceKey(index as u32), record))
    }

    /// How many sources there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is no source.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// What was counted.
    pub fn counters(&self) -> &MonitorCounters {
        &self.counters
    }

    // ---- steps ----

    fn on_update<'a>(
        &mut self,
        at: Clocked,
        (peer, access): (P, Option<&dyn Access>),
        dscp: Option<Dscp>,
        update: &Update<'a>,
        reply: &mut [u8; Ack::LEN],
    ) -> Receipt<'a, P> {
        if update.payload.len() > self.params.max_payload {
            return self.refuse(update.session, CloseReason::TooLarge, reply);
        }
        let Some(key) = self.find(update.session) else {
            return self.on_stranger(at, (peer, access), dscp, update, reply);
        };
        match self.relation_to(key, &peer) {
            Relation::Same => {
                let relation = self.relation;
                let record = &mut self.records[key as usize];
                record.hear(peer, |bound| relation(bound, &peer) == Relation::Same);
            }
            Relation::Other => return self.ignore(Ignored::Misplaced),
            Relation::Unproven => match &update.opening {
                None => return self.challenge(at, update.session, &peer, reply),
                Some(opening) => match self.credential(opening, access) {
                    Err(reason) => return self.refuse(update.session, reason, reply),
                    Ok(shown) if shown != self.records[key as usize].credential() => {
                        return self.ignore(Ignored::Misplaced);
                    }
                    Ok(_) => self.records[key as usize].bind(peer),
                },
            },
        }
        let record = &mut self.records[key as usize];
        record.set_dscp(dscp);
        let arrival = record.on_update(update, at.received_at);
        let source = SourceKey(key);
        let verdict = match arrival {
            Arrival::Fresh | Arrival::Repeat { .. } => {
                self.counters.fresh += 1;
                Verdict::Fresh {
                    source,
                    payload: update.payload,
                    opened: false,
                    is_repeat: arrival != Arrival::Fresh,
                    brings_age: arrival == Arrival::Repeat { brings_age: true },
                }
            }
            Arrival::Late => {
                self.counters.late += 1;
                Verdict::Stale { source }
            }
            Arrival::Copy => {
                self.counters.copies += 1;
                Verdict::Stale { source }
            }
        };
        if !update.wants_ack {
            return Receipt { verdict, reply: 0, dscp: Dscp::DEFAULT, displaced: None };
        }
        let dscp = self.answer(at, key, update, arrival, reply);
        Receipt { verdict, reply: Ack::LEN, dscp, displaced: None }
    }

    fn on_stranger<'a>(
        &mut self,
        at: Clocked,
        (peer, access): (P, Option<&dyn Access>),
        dscp: Option<Dscp>,
        update: &Update<'a>,
        reply: &mut [u8; Ack::LEN],
    ) -> Receipt<'a, P> {
        let session = update.session;
        let proven = |opening: &Opening<'_>| match self.params.admission {
            Admission::Proven => true,
            Admission::Cookie => self.secret.accepts(opening.cookie, at.now, session, &peer),
        };
        let Some(opening) = update.opening.filter(proven) else {
            return self.challenge(at, session, &peer, reply);
        };
        let credential = match self.credential(&opening, access) {
            Ok(credential) => credential,
            Err(reason) => return self.refuse(session, reason, reply),
        };
        if self.params.names == Names::Plain && !Opening::is_plain_name(opening.name) {
            return self.refuse(session, CloseReason::BadName, reply);
        }
        let mut displaced = None;
        if let Some(former) = self.find_named(opening.name) {
            let is_anothers = self.relation_to(former, &peer) == Relation::Other
                || self.records[former as usize].credential() != credential;
            if is_anothers {
                return self.refuse(session, CloseReason::NameTaken, reply);
            }
            let origin = self.origin_of(&peer, credential);
            if self.places.origin(former) != origin && self.places.is_capped(&origin) {
                return self.refuse_capped(session, reply);
            }
            self.remove(former, at.now);
            self.counters.superseded += 1;
        } else {
            let origin = self.origin_of(&peer, credential);
            let name = self.name_of(&origin, opening.name);
            let Self { places, records, .. } = self;
            match places.find(&origin, name, |key| records[key as usize].heard_at) {
                Place::Free => {}
                Place::Of(key) => {
                    displaced = Some(Box::new((SourceKey(key), self.remove(key, at.now))));
                    self.counters.displaced += 1;
                }
                Place::Full => return self.refuse(session, CloseReason::Full, reply),
                Place::Capped => return self.refuse_capped(session, reply),
            }
        }
        let binding = Binding { credential, label: self.secret.label(session) };
        // What the source knows of clocks may be of a monitor that was here before.
        let update = &Update { clock_offset: None, ..*update };
        let mut record = Record::new(update, peer, opening.name.into(), binding, at.received_at);
        record.set_dscp(dscp);
        let key = self.insert(record, at.now);
        self.counters.opened += 1;
        self.counters.fresh += 1;
        let source = SourceKey(key);
        Receipt {
            dscp: self.answer(at, key, update, Arrival::Fresh, reply),
            reply: Ack::LEN,
            displaced,
            verdict: Verdict::Fresh {
                source,
                payload: update.payload,
                opened: true,
                is_repeat: false,
                brings_age: false,
            },
        }
    }

    /// Writes the ack of an update, and gives its code point.
    fn answer(
        &self,
        at: Clocked,
        key: u32,
        update: &Update<'_>,
        arrival: Arrival,
        reply: &mut [u8; Ack::LEN],
    ) -> Dscp {
        let hold = at.now.since(at.received_at);
        let record = &self.records[key as usize];
        let is_fresh = matches!(arrival, Arrival::Fresh | Arrival::Repeat { .. });
        let dscp = AckMark::chosen(self.params.ack_mark, update.ack_mark, record.dscp());
        *reply = record.ack(update, at.received_at, hold, is_fresh, dscp).bytes();
        dscp
    }

    fn on_close<'a>(&mut self, now: Time, peer: &P, session: SessionId) -> Receipt<'a, P> {
        let is_theirs = |key: &u32| self.relation_to(*key, peer) == Relation::Same;
        match self.find(session).filter(is_theirs) {
            Some(key) => {
                let record = Box::new(self.remove(key, now));
                self.counters.closed += 1;
                unmarked(Verdict::Closed { source: SourceKey(key), record }, 0)
            }
            None => self.ignore(Ignored::Misplaced),
        }
    }

    /// What a sender is to those that have opened a session.
    fn relation_to(&self, key: u32, peer: &P) -> Relation {
        let record = &self.records[key as usize];
        let relation = (self.relation)(&record.peer, peer);
        let is_bound = |bound| (self.relation)(bound, peer) == Relation::Same;
        match relation {
            Relation::Unproven if record.bound().iter().any(is_bound) => Relation::Same,
            relation => relation,
        }
    }

    /// The credential that an opening shows: a digest of its token, the same for each opening where
    /// none is asked for.
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
        self.tokens.contains(&digest).then_some(digest as u64).ok_or(CloseReason::BadToken)
    }

    fn challenge<'a>(
        &mut self,
        at: Clocked,
        session: SessionId,
        peer: &P,
        reply: &mut [u8; Ack::LEN],
    ) -> Receipt<'a, P> {
        self.counters.challenged += 1;
        let cookie = self.secret.cookie(at.now, session, peer);
        unmarked(Verdict::Challenged, put(reply, &Challenge { session, cookie }.bytes()))
    }

    fn refuse<'a>(
        &mut self,
        session: SessionId,
        reason: CloseReason,
        reply: &mut [u8; Ack::LEN],
    ) -> Receipt<'a, P> {
        self.counters.refused += 1;
        let reply = put(reply, &Close { session, reason }.bytes());
        unmarked(Verdict::Refused(reason), reply)
    }

    fn refuse_capped<'a>(
        &mut self,
        session: SessionId,
        reply: &mut [u8; Ack::LEN],
    ) -> Receipt<'a, P> {
        self.counters.capped += 1;
        self.refuse(session, CloseReason::Full, reply)
    }

    fn ignore<'a>(&mut self, why: Ignored) -> Receipt<'a, P> {
        self.counters.ignored += 1;
        unmarked(Verdict::Ignored(why), 0)
    }
}

/// With an answer that is no ack, or with none.
fn unmarked<P>(verdict: Verdict<'_, P>, reply: usize) -> Receipt<'_, P> {
    Receipt { verdict, reply, dscp: Dscp::DEFAULT, displaced: None }
}

/// Puts `answer` to the front of the buffer; gives its length.
fn put(reply: &mut [u8; Ack::LEN], answer: &[u8]) -> usize {
    reply[..answer.len()].copy_from_slice(answer);
    answer.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Clocked = Clocked { received_at: Time::ZERO, now: Time::ZERO };

    fn monitor(max_sources: usize) -> Monitor<u32> {
        let params =
            MonitorParams { admission: Admission::Proven, max_sources, ..MonitorParams::default() };
        Monitor::new(params, Secret::new([7; 16]))
    }

    fn one_of_ten(a: &u32, b: &u32) -> Relation {
        if a % 10 == b % 10 { Relation::Same } else { Relation::Other }
    }

    fn open(monitor: &mut Monitor<u32>, session: u64, name: &str) -> bool {
        open_from(0, monitor, session, name)
    }

    fn open_from(peer: u32, monitor: &mut Monitor<u32>, session: u64, name: &str) -> bool {
        let update = Update {
            session: SessionId(session),
            seq: 0,
            generated_at: Time::ZERO,
            clock_offset: None,
            wants_ack: true,
            ack_mark: None,
            opening: Some(Opening { cookie: Default::default(), name, token: b"" }),
            payload: b"state",
        };
        let (mut datagram, mut reply) = ([0; 200], [0; Ack::LEN]);
        let len = update.write(&mut datagram).unwrap();
        let receipt = monitor.on_datagram(AT, peer, &datagram[..len], &mut reply);
        matches!(receipt.verdict, Verdict::Fresh { opened: true, .. })
    }

    #[test]
    fn a_source_that_comes_back_under_its_name_replaces_itself_alone() {
        let mut monitor = monitor(3);
        for (session, name) in [(1, "robot"), (2, ""), (3, "meter"), (4, "robot")] {
            assert!(open(&mut monitor, session, name));
        }
        let mut sessions: Vec<u64> = monitor.records().map(|(_, r)| r.session.0).collect();
        sessions.sort_unstable();
        assert_eq!(sessions, [2, 3, 4]);
        assert_eq!(monitor.counters().superseded, 1);
        assert!(!open(&mut monitor, 5, ""), "nameless ones replace nobody");
        assert_eq!((monitor.by_session.len(), monitor.by_name.len()), (3, 2));
    }

    #[test]
    fn a_session_goes_on_from_elsewhere_but_not_from_somebody_else() {
        let mut monitor = monitor(3).with_relation(one_of_ten);
        assert!(open(&mut monitor, 1, "robot"));
        let update = Update {
            session: SessionId(1),
            seq: 1,
            generated_at: Time::ZERO,
            clock_offset: None,
            wants_ack: true,
            ack_mark: None,
            opening: None,
            payload: b"state",
        };
        let (mut datagram, mut reply) = ([0; 200], [0; Ack::LEN]);
        let len = update.write(&mut datagram).unwrap();
        let close = Close { session: SessionId(1), reason: CloseReason::Done }.bytes();
        for theirs in [&datagram[..len], &close] {
            let receipt = monitor.on_datagram(AT, 11, theirs, &mut reply);
            assert!(matches!(receipt.verdict, Verdict::Ignored(Ignored::Misplaced)));
            assert_eq!(receipt.reply, 0);
        }
        let receipt = monitor.on_datagram(AT, 20, &datagram[..len], &mut reply);
        assert!(matches!(receipt.verdict, Verdict::Fresh { opened: false, .. }));
        monitor.on_datagram(AT, 10, &close, &mut reply);
        assert!(monitor.is_empty());
    }

    #[test]
    fn a_name_goes_to_its_owners_next_session_but_not_to_somebody_elses() {
        let mut monitor = monitor(3).with_relation(one_of_ten);
        assert!(open_from(1, &mut monitor, 1, "robot"));
        assert!(!open_from(2, &mut monitor, 2, "robot"));
        assert_eq!((monitor.counters().refused, monitor.counters().superseded), (1, 0));
        assert!(open_from(2, &mut monitor, 3, "meter"));
        assert!(open_from(11, &mut monitor, 4, "robot"));
        assert_eq!((monitor.len(), monitor.counters().superseded), (2, 1));
    }

    #[test]
    fn hardly_more_records_are_allotted_than_used() {
        let mut monitor = monitor(1_000);
        for session in 0..1_000 {
            assert!(open(&mut monitor, session, ""));
            assert!(monitor.records.capacity() <= (session as usize * 17 / 16 + 16).min(1_000));
        }
        assert!(!open(&mut monitor, 1_000, ""));
    }
}
