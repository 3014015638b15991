//! The return sessions of a listener: one source for each peer that wants states.

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

/// The parameters of a return session.
pub struct ReturnParams {
    /// Its settings. The token is set by the listener.
    pub source: SourceParams,
    /// A secret for this session only, from which its ids are derived.
    pub secret: Secret,
    /// The rate law.
    pub law: Box<dyn RateLaw>,
    /// The topics to send; empty: one state without a name.
    pub topics: Vec<TopicParams>,
}

/// Why there is no return session.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ReturnError {
    /// The source's session has ended, or the source does not want states.
    #[error("the source does not ask for states of the return direction")]
    NotWanted,
    /// The name is too long.
    #[error(transparent)]
    Opening(#[from] OpeningTooLong),
    /// The topics are invalid.
    #[error(transparent)]
    Topics(#[from] TopicError),
}

/// If neither an update nor an answer arrives from the return session's address for this long,
/// although a datagram sent there requests one, the return session moves to the address from which
/// the source was last received. Updates of a source with several paths arrive from several
/// addresses all the time, and those of a slow one from each address rarely.
const MOVES_AFTER: Span = Span::from_secs(1);
/// The maximum time of an answer, in round trips.
const ROUND_TRIPS: u64 = 2;

/// An address stays proven for this long after an answer from it: later it may belong to another
/// host.
const PROVEN_FOR: Span = Span::from_secs(60);
/// The maximum number of addresses of a source that are remembered with the time of their last
/// answer.
const MAX_PROVEN: usize = 8;

/// The maximum ratio of bytes sent to an address to bytes received from it, until it has answered
/// (RFC 9000, section 8.1).
const AMPLIFICATION: usize = 3;

/// The return session of one source.
struct Return<P> {
    /// The session of the forward direction.
    forward: SessionId,
    /// The number of its newest update.
    newest: u64,
    /// The address of the return session, and when the source was last received from it.
    peer: P,
    heard_at: Time,
    asked: Asked,
    /// The address of the newest update, if it is another one.
    candidate: Option<Candidate<P>>,
    /// Addresses from which the source has answered, or opened its forward session, and when it
    /// last did.
    proven: Vec<(P, Time)>,
    /// The number of bytes that may still be sent to `peer`; `None` once it has answered.
    credit: Option<usize>,
    /// The acks of the forward direction.
    ride: Ride<P>,
    /// `None` until the driver has opened it.
    open: Option<Open>,
}

/// Whether an answer is requested, since the last one from the return session's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    No,
    /// The newest state is to be repeated.
    Wanted,
    /// The first datagram was sent at this time.
    At(Time),
}

/// Another address at which a source may be.
struct Candidate<P> {
    peer: P,
    /// When the first datagram from another address arrived.
    since: Time,
    /// Bytes received from it.
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

    /// The source was received from the return session's address.
    fn on_heard(&mut self, now: Time) {
        (self.heard_at, self.asked, self.candidate) = (now, Asked::No, None);
    }

    /// An update has arrived.
    fn on_update(&mut self, now: Time, seq: u64, peer: P, len: usize) {
        // A late update, or a copy, shows only where the source was.
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
                // Two alternating addresses must not extend the wait indefinitely.
                let since = before.as_ref().map_or(now, |before| before.since);
                self.candidate = Some(Candidate { peer, since, bytes: len });
            }
            _ => {}
        }
    }

    /// The source has answered from the return session's address.
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
        // If no datagram was sent yet, none can be lost.
        let Some(open) = self.open.as_ref().filter(|open| open.source.counters().sent > 0) else {
            return Some(silent_at);
        };
        match self.asked {
            Asked::No => Some(silent_at),
            Asked::Wanted => None,
            // Before a datagram came from another address, both may have been silent.
            Asked::At(at) => {
                let patience = MOVES_AFTER.max(open.source.round_trip() * ROUND_TRIPS);
                Some(at.max(candidate.since) + patience)
            }
        }
    }

    /// The source seems to be at another address: requests an answer from the present one, or moves
    /// the session if there was no answer.
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
        // An update does not prove its address. Until the address answers, only openings are sent,
        // and few of them, so that an attacker cannot redirect states of the return direction to
        // other hosts.
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
    /// Its entry in [`Returns::timers`].
    timer: Option<Time>,
}

/// All return sessions. Work is done only for sessions with new input or an expired timer.
pub(super) struct Returns<P> {
    returns: BTreeMap<SourceKey, Return<P>>,
    by_session: BTreeMap<SessionId, SourceKey>,
    timers: BTreeSet<(Time, SourceKey)>,
    /// Sources that want states, and sources whose return session has ended, not reported to the
    /// driver yet.
    wanted: BTreeSet<SourceKey>,
    ended: BTreeSet<SourceKey>,
    /// Sessions that may have events, and sessions that may have something to send.
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

    /// An update of this forward session has arrived: the return session of an earlier one has
    /// ended.
    pub(super) fn end_former(&mut self, key: SourceKey, forward: SessionId) {
        if self.returns.get(&key).is_some_and(|it| it.forward != forward) {
            self.end(key);
        }
    }

    /// Update `seq` of an open forward session, with its length, has arrived and requests the
    /// return direction.
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
        // If the source was restarted after the event, this already answers its new session.
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

    /// The source, to which the caller may hand in something.
    pub(super) fn source_mut(&mut self, key: SourceKey) -> Option<&mut Source> {
        self.touch(key);
        self.returns.get_mut(&key)?.open.as_mut().map(|open| &mut open.source)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = SourceKey> {
        self.by_session.values().copied()
    }

    /// A datagram for the return session has arrived, from a sender of the forward one.
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

    /// An ack that was appended to an update of this source.
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

    /// An update of the forward direction may have been answered: its ack waits for a state of the
    /// return direction if that is useful.
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
                // The driver expects at most one answer per datagram.
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
        // A session with pending output has its next timer in the past until the output is polled.
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

    /// The machine has slept: the times of the last datagrams in both directions are unknown.
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
                // The dialer manages the transport.
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
                    // Beyond the credit, the datagram counts as lost. No ack rides to an unproven
                    // address.
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

    /// The session has new input.
    fn touch(&mut self, key: SourceKey) {
        self.eventful.insert(key);
        self.sending.insert(key);
        self.set_timer(key);
    }

    /// Updates the timer and the session's id from the source.
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
