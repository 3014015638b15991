//! The return sessions of a listener: one source for each peer that has asked.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::hash::Hash;

use super::ride::{Leaving, Ride};
use crate::path::PathId;
use crate::session::cookie::Secret;
use crate::session::datagram::Datagram;
use crate::session::monitor::Monitor;
use crate::session::record::SourceKey;
use crate::session::source::{
    Ignored as SourceIgnored, Source, SourceEvent, SourceParams, TopicError, TopicParams, Transmit,
};
use crate::source::RateLaw;
use crate::unit::{Span, Time};
use crate::wire::{Heading, OpeningTooLong, SessionId, heading};

/// What a return session needs.
pub struct ReturnParams {
    /// Its settings. The token is set by the listener.
    pub source: SourceParams,
    /// Of this session alone: ids come from it.
    pub secret: Secret,
    /// When to send.
    pub law: Box<dyn RateLaw>,
    /// What to send; empty: one state without a name.
    pub topics: Vec<TopicParams>,
}

/// Why there is no return session.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ReturnError {
    /// The source's session has ended, or it has not asked.
    #[error("the source does not ask for states of the return direction")]
    NotWanted,
    /// The name does not fit.
    #[error(transparent)]
    Opening(#[from] OpeningTooLong),
    /// There are no such topics.
    #[error(transparent)]
    Topics(#[from] TopicError),
}

/// Neither an update nor an answer comes from where the return session goes for this long, although something
/// that left asks for one: then it goes to where the source is heard. A source with several paths is heard from
/// several addresses all the time, and a slow one from each of them rarely.
const MOVES_AFTER: Span = Span::from_secs(1);
/// An answer may take this many round trips.
const ROUND_TRIPS: u64 = 2;

/// An address is proven for this long after an answer from there: afterwards it may be of somebody else.
const PROVEN_FOR: Span = Span::from_secs(60);
/// Addresses of a source that are remembered with the time of their last answer.
const MAX_PROVEN: usize = 8;

/// The bytes sent to an address over those received from it are at most this, until somebody there has answered
/// (RFC 9000, section 8.1).
const AMPLIFICATION: usize = 3;

/// The return session of one source.
struct Return<P> {
    /// Of the forward direction.
    forward: SessionId,
    /// The number of its newest update.
    newest: u64,
    /// Where the return session goes to, and when the source was last heard from there.
    peer: P,
    heard_at: Time,
    asked: Asked,
    /// From where the newest update came, if from elsewhere.
    candidate: Option<Candidate<P>>,
    /// Where the source has answered, or opened its forward session, and when it did so last.
    proven: Vec<(P, Time)>,
    /// Bytes that may still go to `peer`; `None` once somebody there has answered.
    credit: Option<usize>,
    /// Acks of the forward direction.
    ride: Ride<P>,
    /// `None` until the driver has opened it.
    open: Option<Open>,
}

/// Whether something asks for an answer, since one came from where the return session goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    No,
    /// The newest state is to be repeated.
    Wanted,
    /// Something left at this time first.
    At(Time),
}

/// Where a source may be.
struct Candidate<P> {
    peer: P,
    /// Since when something came from elsewhere.
    since: Time,
    /// Bytes that have come from there.
    bytes: usize,
}

impl<P: Copy + PartialEq> Return<P> {
    fn new(now: Time, forward: SessionId, newest: u64, peer: P) -> Self {
        Self {
            forward,
            newest,
            peer,
            heard_at: now,
            asked: Asked::No,
            candidate: None,
            // The forward session is open.
            proven: alloc::vec![(peer, now)],
            credit: None,
            ride: Ride::new(),
            open: None,
        }
    }

    /// The source is where the return session goes.
    fn on_heard(&mut self, now: Time) {
        (self.heard_at, self.asked, self.candidate) = (now, Asked::No, None);
    }

    /// An update has come.
    fn on_update(&mut self, now: Time, seq: u64, peer: P, len: usize) {
        // A late one, or a copy, says where the source was.
        let is_newest = seq > self.newest;
        self.newest = self.newest.max(seq);
        if self.peer == peer {
            // A connection may have another address by now.
            self.peer = peer;
            if is_newest {
                self.on_heard(now);
            }
            if let Some(credit) = &mut self.credit {
                *credit = credit.saturating_add(len * AMPLIFICATION);
            }
            return;
        }
        match &mut self.candidate {
            Some(candidate) if candidate.peer == peer => {
                candidate.bytes = candidate.bytes.saturating_add(len);
            }
            before if is_newest => {
                // Two that take turns are no reason to wait for ever.
                let since = before.as_ref().map_or(now, |before| before.since);
                self.candidate = Some(Candidate { peer, since, bytes: len });
            }
            _ => {}
        }
    }

    /// The source has answered from where the return session goes.
    fn on_answer(&mut self, now: Time) {
        self.on_heard(now);
        self.credit = None;
        let peer = self.peer;
        if let Some((_, at)) = self.proven.iter_mut().find(|(proven, _)| *proven == peer) {
            *at = now;
            return;
        }
        self.proven.retain(|(_, at)| now.since(*at) < PROVEN_FOR);
        if self.proven.len() == MAX_PROVEN {
            self.proven.remove(0);
        }
        self.proven.push((peer, now));
    }

    /// When to call [`Return::follow`].
    fn follows_at(&self) -> Option<Time> {
        let candidate = self.candidate.as_ref()?;
        let silent_at = self.heard_at + MOVES_AFTER;
        // Where nothing has left yet, nothing can be lost.
        let Some(open) = self.open.as_ref().filter(|open| open.source.counters().sent > 0) else {
            return Some(silent_at);
        };
        match self.asked {
            Asked::No => Some(silent_at),
            Asked::Wanted => None,
            // Before something came from elsewhere, both may have been silent.
            Asked::At(at) => {
                let patience = MOVES_AFTER.max(open.source.round_trip() * ROUND_TRIPS);
                Some(at.max(candidate.since) + patience)
            }
        }
    }

    /// The source seems to be elsewhere: asks where the return session goes, or moves it if there was no answer.
    fn follow(&mut self, now: Time) {
        if self.follows_at().is_none_or(|at| at > now) {
            return;
        }
        if let Some(open) = &mut self.open
            && self.asked == Asked::No
            && open.source.counters().sent > 0
        {
            self.asked = Asked::Wanted;
            open.source.repeat();
            return;
        }
        let Some(Candidate { peer, bytes, .. }) = self.candidate.take() else { return };
        // An address is not proven by an update from it. Until somebody there answers, nothing but openings
        // leaves, and few of them, so that nobody can lead states of the return direction to others.
        let is_proven = |it: &(P, Time)| it.0 == peer && now.since(it.1) < PROVEN_FOR;
        let is_proven = self.proven.iter().any(is_proven);
        self.credit = (!is_proven).then(|| bytes.saturating_mul(AMPLIFICATION));
        (self.peer, self.heard_at, self.asked) = (peer, now, Asked::No);
        match &mut self.open {
            Some(open) if is_proven => open.source.handle_move_back(now),
            Some(open) => open.source.handle_move(now),
            None => {}
        }
    }
}

struct Open {
    source: Source,
    /// Its id in [`Returns::by_session`].
    session: SessionId,
    /// Its place in [`Returns::timers`].
    timer: Option<Time>,
}

/// All of them. Work is done for those alone for which something has come, or whose time has come.
pub(super) struct Returns<P> {
    returns: BTreeMap<SourceKey, Return<P>>,
    by_session: BTreeMap<SessionId, SourceKey>,
    timers: BTreeSet<(Time, SourceKey)>,
    /// Those that have asked, and those that have ended, of which the driver does not know yet.
    wanted: BTreeSet<SourceKey>,
    ended: BTreeSet<SourceKey>,
    /// Those that may have events, and those that may have something to send.
    eventful: BTreeSet<SourceKey>,
    sending: BTreeSet<SourceKey>,
}

impl<P: Copy + Hash + PartialEq> Returns<P> {
    pub(super) fn new() -> Self {
        Self {
            returns: BTreeMap::new(),
            by_session: BTreeMap::new(),
            timers: BTreeSet::new(),
            wanted: BTreeSet::new(),
            ended: BTreeSet::new(),
            eventful: BTreeSet::new(),
            sending: BTreeSet::new(),
        }
    }

    /// An update of this forward session has come: the return session of one before it has ended.
    pub(super) fn end_former(&mut self, key: SourceKey, forward: SessionId) {
        if self.returns.get(&key).is_some_and(|it| it.forward != forward) {
            self.end(key);
        }
    }

    /// Update `seq` of an open forward session has come that wants the return direction, with its length.
    pub(super) fn on_wanted(
        &mut self,
        now: Time,
        key: SourceKey,
        (forward, seq): (SessionId, u64),
        (peer, len): (P, usize),
    ) {
        let Some(it) = self.returns.get_mut(&key) else {
            self.returns.insert(key, Return::new(now, forward, seq, peer));
            self.wanted.insert(key);
            return;
        };
        it.on_update(now, seq, peer, len);
        it.follow(now);
        self.touch(key);
    }

    pub(super) fn open(
        &mut self,
        now: Time,
        key: SourceKey,
        params: ReturnParams,
    ) -> Result<(), ReturnError> {
        let it = self.returns.get_mut(&key).filter(|it| it.open.is_none());
        let it = it.ok_or(ReturnError::NotWanted)?;
        let token = it.forward.0.to_be_bytes().to_vec();
        let settings = SourceParams { token, wants_return: false, ..params.source };
        let source = Source::new(settings, params.secret, params.law, now)?;
        let source = source.with_topics(params.topics)?;
        let session = source.session();
        it.open = Some(Open { source, session, timer: None });
        // If the source was restarted since the driver asked, this is the answer to its new session already.
        self.wanted.remove(&key);
        self.ended.remove(&key);
        self.by_session.insert(session, key);
        self.touch(key);
        Ok(())
    }

    /// The forward session has ended.
    pub(super) fn end(&mut self, key: SourceKey) {
        let Some(it) = self.returns.remove(&key) else { return };
        if let Some(Open { session, timer, .. }) = it.open {
            self.by_session.remove(&session);
            timer.map(|at| self.timers.remove(&(at, key)));
        }
        self.ended.insert(key);
        self.wanted.remove(&key);
        self.eventful.remove(&key);
        self.sending.remove(&key);
    }

    pub(super) fn find(&self, session: SessionId) -> Option<SourceKey> {
        self.by_session.get(&session).copied()
    }

    pub(super) fn forward_of(&self, key: SourceKey) -> Option<SessionId> {
        self.returns.get(&key).map(|it| it.forward)
    }

    pub(super) fn source(&self, key: SourceKey) -> Option<&Source> {
        self.returns.get(&key)?.open.as_ref().map(|open| &open.source)
    }

    /// Whoever gets it may hand something in.
    pub(super) fn source_mut(&mut self, key: SourceKey) -> Option<&mut Source> {
        self.touch(key);
        self.returns.get_mut(&key)?.open.as_mut().map(|open| &mut open.source)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = SourceKey> {
        self.by_session.values().copied()
    }

    /// A datagram has come for the return session, from a sender of the forward one.
    pub(super) fn handle_answer(
        &mut self,
        now: Time,
        key: SourceKey,
        peer: P,
        datagram: Datagram<'_>,
    ) -> Result<(), SourceIgnored> {
        self.touch(key);
        let it = self.returns.get_mut(&key).ok_or(SourceIgnored::Misplaced)?;
        let open = it.open.as_mut().ok_or(SourceIgnored::Misplaced)?;
        let result = open.source.handle_datagram(now, PathId::FIRST, datagram);
        if result.is_ok() && it.peer == peer {
            it.on_answer(now);
        }
        result
    }

    /// An ack that has come behind an update of this source.
    pub(super) fn handle_rider(
        &mut self,
        now: Time,
        key: SourceKey,
        peer: P,
        ack: Datagram<'_>,
    ) -> Result<(), SourceIgnored> {
        match heading(ack.bytes) {
            Some(Heading::Answer(session)) if self.find(session) == Some(key) => {
                self.handle_answer(now, key, peer, ack)
            }
            _ => Err(SourceIgnored::Misplaced),
        }
    }

    /// An update of the forward direction may have been answered: its ack waits for a state of the return
    /// direction where that pays.
    pub(super) fn pass_ack(
        &mut self,
        now: Time,
        key: SourceKey,
        forward: SessionId,
        monitor: &mut Monitor<P>,
    ) {
        if let Some(it) = self.returns.get_mut(&key).filter(|it| it.open.is_some())
            && let Some(ack) = monitor.take_ack(forward)
        {
            let peer = ack.peer;
            let mut is_answered = false;
            for ack in it.ride.pass(now, ack) {
                // The driver expects one answer to a datagram at most.
                if ack.peer == peer && !is_answered {
                    is_answered = true;
                    monitor.put_back(ack);
                } else {
                    monitor.put_aside(ack);
                }
            }
            self.set_timer(key);
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Time, monitor: &mut Monitor<P>) {
        // One that still has something to do has its next timer in the past until that is polled.
        let due: Vec<_> = self.timers.iter().take_while(|(at, _)| *at <= now).copied().collect();
        for (at, key) in due {
            self.timers.remove(&(at, key));
            if let Some(it) = self.returns.get_mut(&key)
                && let Some(open) = &mut it.open
            {
                open.timer = None;
                open.source.handle_timeout(now);
                it.follow(now);
                if let Some(ack) = it.ride.pass_overdue(now) {
                    monitor.put_aside(ack);
                }
                self.touch(key);
            }
        }
    }

    /// The machine has slept: when the sources were heard, and when datagrams left, is unknown.
    pub(super) fn handle_resume(&mut self, now: Time) {
        let keys: Vec<_> = self.keys().collect();
        for key in keys {
            if let Some(it) = self.returns.get_mut(&key)
                && let Some(open) = &mut it.open
            {
                open.source.handle_resume(now);
                it.on_heard(now);
            }
            self.touch(key);
        }
    }

    pub(super) fn close(&mut self) {
        let open = self.returns.iter_mut().filter_map(|(key, it)| Some((key, it.open.as_mut()?)));
        for (key, open) in open {
            open.source.close();
            self.sending.insert(*key);
        }
    }

    pub(super) fn poll_ended(&mut self) -> Option<SourceKey> {
        self.ended.pop_first()
    }

    pub(super) fn poll_wanted(&mut self) -> Option<SourceKey> {
        self.wanted.pop_first()
    }

    pub(super) fn poll_event(&mut self) -> Option<(SourceKey, SourceEvent)> {
        while let Some(key) = self.eventful.first().copied() {
            let source = self.returns.get_mut(&key).and_then(|it| it.open.as_mut());
            match source.and_then(|open| open.source.poll_event()) {
                // The dialer has made the transport.
                Some(SourceEvent::RenewTransports { .. }) => {}
                Some(event) => return Some((key, event)),
                None => {
                    self.eventful.remove(&key);
                    self.set_timer(key);
                }
            }
        }
        None
    }

    pub(super) fn poll_transmit(
        &mut self,
        now: Time,
        out: &mut Vec<u8>,
    ) -> Option<(SourceKey, P, Transmit)> {
        while let Some(key) = self.sending.first().copied() {
            if let Some(it) = self.returns.get_mut(&key)
                && let Some(open) = &mut it.open
                && let Some(update) = open.source.poll_transmit(now, out)
            {
                if update.seq.is_some() && !matches!(it.asked, Asked::At(_)) {
                    it.asked = Asked::At(now);
                }
                if let Some(credit) = &mut it.credit {
                    // Beyond it the datagram counts as lost. No ack rides where the address is not proven.
                    let Some(left) = credit.checked_sub(update.len) else { continue };
                    *credit = left;
                    return Some((key, it.peer, update));
                }
                let max_len = open.source.max_datagram();
                let leaving = Leaving { peer: &it.peer, transmit: &update, max_len };
                let len = it.ride.board(now, &leaving, out);
                return Some((key, it.peer, Transmit { len, ..update }));
            }
            self.sending.remove(&key);
            self.set_timer(key);
        }
        None
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Something has been handed in.
    fn touch(&mut self, key: SourceKey) {
        self.eventful.insert(key);
        self.sending.insert(key);
        self.set_timer(key);
    }

    /// Puts the timer, and the session's id, to what the source says.
    fn set_timer(&mut self, key: SourceKey) {
        let Some(it) = self.returns.get_mut(&key) else { return };
        let follows_at = it.follows_at();
        let Some(open) = &mut it.open else { return };
        let timer =
            Time::earliest([open.source.poll_timeout(), it.ride.poll_timeout(), follows_at]);
        let session = open.source.session();
        if open.timer != timer {
            open.timer.map(|at| self.timers.remove(&(at, key)));
            timer.map(|at| self.timers.insert((at, key)));
            open.timer = timer;
        }
        if open.session != session {
            self.by_session.remove(&open.session);
            self.by_session.insert(session, key);
            open.session = session;
        }
    }
}
