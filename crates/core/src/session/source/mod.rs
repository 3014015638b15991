//! The source's end of a session.
//!
//! ```text
//!   handle_datagram ─► acks ─► liveness ─► opener     law ─► states ─► poll_transmit
//!                        └───► paths                           └─ poll_event: StateWanted
//! ```

mod acked_parts;
mod acks;
mod ahead;
mod by_record;
mod by_topic;
mod events;
mod getters;
mod inbound;
mod liveness;
mod marks;
mod memory;
mod opener;
mod states;
mod topics;
mod transfers;
mod transmit;
mod types;

use alloc::boxed::Box;

use super::cookie::Secret;
use super::datagram::Datagram;
use super::paths::Paths;
use crate::path::{DeviceQueue, PathId, PathSet};
use crate::source::{Limited, Phase, RateBounds, RateLaw};
use crate::unit::{Bytes, Span, Time};
use crate::wire::{OpeningTooLong, SessionId};
pub use acks::AckedUpdate;
use acks::Acks;
use ahead::Ahead;
use by_record::Lent;
use events::Events;
use liveness::Liveness;
use marks::Marks;
use opener::Opener;
use states::{Asking, States};
pub use states::{Need, StateTooLarge};
use topics::Topics;
pub use topics::{
    KeyError, KeyView, MAX_STREAMS, MAX_TOPICS, RecordError, RecordsView, TopicCounters,
    TopicError, TopicId, TopicKind, TopicParams,
};
use transfers::Transfers;
use transmit::Outgoing;
pub use types::{
    Ignored, Reach, SourceCounters, SourceEvent, SourceParams, Transmit, TransportState,
};

/// Parts sent within this time do not count as lost without acks: a busy host may run neither end
/// for some ms. If the round trip is shorter, the ack of the state's number names missing parts sooner.
const STALL: Span = Span::from_millis(20);

/// A source of updates: drives a [`RateLaw`] within limits and speaks the protocol, over one path
/// or several.
///
/// The driver's loop, the same for every endpoint of [`session`](crate::session):
///
/// 1. Hand in received datagrams ([`Source::handle_datagram`]) and the time
///    ([`Source::handle_timeout`]).
/// 2. Drain [`Source::poll_event`]. The answer to [`SourceEvent::StateWanted`] is [`Source::put`];
///    a state may also be put at any other time, and the newest one is sent when the law allows it.
/// 3. Drain [`Source::poll_transmit`], and send the datagrams that it writes.
/// 4. Sleep until [`Source::poll_timeout`], or until a datagram arrives.
///
/// Other orders of calls are allowed; they only cause delays.
pub struct Source {
    params: SourceParams,
    secret: Secret,
    session: SessionId,
    /// Sessions so far; the number of the next id.
    sessions: u64,
    law: Limited,
    opener: Opener,
    liveness: Liveness,
    acks: Acks,
    paths: Paths,
    /// Paths whose connection is being established.
    connecting: PathSet,
    marks: Marks,
    states: States,
    transfers: Transfers,
    topics: Topics,
    ahead: Ahead,
    /// How records share the law's pace with states.
    lent: Lent,
    events: Events,
    outgoing: Outgoing,
    counters: SourceCounters,
    /// The maximum error by which generation times of the last states put can be too late, and the
    /// previous value.
    label_errors: [Span; 2],
}

impl Source {
    /// A source that opens its session at once. The ids of its sessions are derived from `secret`.
    ///
    /// # Errors
    /// [`OpeningTooLong`] if the name or the token is too long.
    pub fn new(
        params: SourceParams,
        secret: Secret,
        law: Box<dyn RateLaw>,
        now: Time,
    ) -> Result<Self, OpeningTooLong> {
        let session = secret.session(0);
        let source = Self {
            secret,
            session,
            sessions: 1,
            law: Limited::new(law, params.limits),
            opener: Opener::new(&params, session.0, now),
            liveness: Liveness::default(),
            acks: Acks::new(now, params.measure_age),
            paths: Paths::default(),
            connecting: PathSet::EMPTY,
            marks: Marks::new(1),
            states: States::new(params.on_change),
            transfers: Transfers::new(0),
            topics: Topics::default(),
            ahead: Ahead::default(),
            lent: Lent::default(),
            events: Events::new(),
            outgoing: Outgoing::default(),
            counters: SourceCounters::default(),
            label_errors: [Span::ZERO; 2],
            params,
        };
        source.opening(PathId::FIRST).check()?;
        Ok(source)
    }

    /// The same over these paths; call it before anything is sent.
    pub fn over(mut self, paths: Paths) -> Self {
        self.opener.set_paths(paths.count());
        self.marks = Marks::new(paths.count());
        self.paths = paths;
        self
    }

    // ---- the contract ----

    /// A datagram has arrived from the monitor's address on a path.
    ///
    /// # Errors
    /// [`Ignored`] if it had no effect, except for an ack's information on its path.
    pub fn handle_datagram<'a>(
        &mut self,
        now: Time,
        by: PathId,
        datagram: impl Into<Datagram<'a>>,
    ) -> Result<(), Ignored> {
        let result = self.take_in(now, by, datagram.into());
        match result {
            Err(Ignored::Late) => self.counters.late_acks += 1,
            Err(_) => self.counters.ignored += 1,
            Ok(event) => self.events.push(event),
        }
        result.map(drop)
    }

    /// Time has passed. Calls before [`Source::poll_timeout`] have no effect.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.outgoing.is_closing() {
            return;
        }
        if self.opener.is_open() {
            self.transfers.handle_timeout(now);
            self.topics.handle_timeout(now);
            let may_be_silent = self.silent_from().is_some_and(|from| from <= now);
            if may_be_silent && self.silent_at().is_some_and(|at| at <= now) {
                self.open_again(now);
                self.events.push(SourceEvent::Silent);
            } else {
                self.law.handle_timeout(now);
            }
        }
        if self.states.is_resting(now) && !self.has_symbol() && !self.is_topic_ready(now) {
            if self.keep_alive_at().is_some_and(|at| at <= now) {
                self.repeat();
            }
            return;
        }
        if !self.is_due(now) {
            return;
        }
        if !self.opener.is_open() {
            let up = self.paths.up().count();
            if up == 0 {
                self.opener.on_due_without_path(now);
                return;
            }
            self.opener.on_due(up < self.paths.count());
            if !self.opener.is_ready() {
                return;
            }
        }
        let repeats = self.repeats(now);
        if repeats {
            let srtt = self.acks.srtt().unwrap_or(self.params.first_wait);
            let before = now - (srtt * 2).max(STALL);
            self.transfers.on_silence(before);
            self.topics.on_silence(now, before);
        }
        if (!self.has_symbol() || self.topics.has_any()) && !self.is_ahead(now) {
            self.states.on_due(now, if repeats { Need::Newest } else { Need::Newer });
        }
    }

    /// The next event, or request to the driver.
    #[inline]
    pub fn poll_event(&mut self) -> Option<SourceEvent> {
        if let Some(event) = self.events.pop() {
            return Some(event);
        }
        if let Some(topic) = self.topics.poll_done() {
            return Some(SourceEvent::RecordsDone { topic });
        }
        if let Some(all) = self.opener.poll_renewal() {
            return Some(SourceEvent::RenewTransports { all });
        }
        self.states.poll_wanted().map(SourceEvent::StateWanted)
    }

    /// When to call [`Source::handle_timeout`] next, which may lie in the past; `None` if never.
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.outgoing.is_closing() {
            return None;
        }
        let update_at = self.update_at();
        if !self.opener.is_open() {
            return update_at;
        }
        let lost_at = Time::earliest([self.transfers.poll_timeout(), self.topics.poll_timeout()]);
        let next = Time::earliest([self.law.poll_timeout(), update_at, lost_at]);
        // The fast path: usually the timeout of silence is far ahead.
        let is_later = next.is_some_and(|at| self.silent_from().is_none_or(|from| at <= from));
        if is_later { next } else { Time::earliest([next, self.silent_at()]) }
    }

    // ---- states ----

    /// The newest state, sampled at `generated_at` on the source's clock. A later time than now
    /// counts as now; a time from before the source began is allowed, and [`Time::ZERO`] is the
    /// earliest. States replace each other in the order of the calls, regardless of their times.
    /// With [`SourceParams::on_change`] a state is left out if it has not changed and the monitor
    /// has it.
    ///
    /// In a source with topics it is the newest state of the first topic.
    ///
    /// # Errors
    /// [`StateTooLarge`] if it is longer than [`Source::max_state`]; it is left out, and another
    /// one is asked for later.
    pub fn put(
        &mut self,
        now: Time,
        generated_at: Time,
        state: &[u8],
    ) -> Result<(), StateTooLarge> {
        if self.topics.has_any() {
            return self.put_topic(now, TopicId::FIRST, generated_at, state);
        }
        let is_asked = self.states.is_asked();
        self.check_len(now, generated_at, state)?;
        // A time in the future would be a different one in each update, as updates carry the
        // state's age.
        let generated_at = generated_at.min(now);
        let first = self.states.unchanged_since(state);
        if !first.is_some_and(|first| self.may_leave_out(now, first)) {
            self.states.put(generated_at, state);
            return Ok(());
        }
        self.states.drop_next();
        if is_asked {
            self.counters.unchanged += 1;
            self.law.on_unchanged(now);
            let at = now + self.polling_period();
            self.ask_again_at(self.any_repeat_at().map_or(at, |repeat_at| repeat_at.min(at)));
        }
        Ok(())
    }

    /// There will be no state before this time: until then the driver is not asked, and the last
    /// state is repeated only as a keep-alive.
    pub fn ask_again_at(&mut self, time: Time) {
        self.states.ask_at(time);
    }

    /// There may be a state now: [`SourceEvent::StateWanted`] follows again if an update is due.
    pub fn ask_again(&mut self) {
        self.states.on_news();
    }

    /// Sends the last state again with the update that is due.
    pub fn repeat(&mut self) {
        self.states.repeat();
        self.topics.want_empty();
    }

    /// There will be no more states. The last one is repeated until the monitor has it
    /// ([`Source::has_finished`]).
    pub fn finish(&mut self) {
        self.states.on_end();
    }

    /// Ends the session: [`Source::poll_transmit`] writes a close for each path, and nothing after
    /// it.
    pub fn close(&mut self) {
        self.outgoing.close();
    }

    // ---- inputs on transports ----

    /// The state of a path's transport has changed. If the last path goes down, the session must be
    /// reopened over the next one; if a path becomes ready, a pending opening is sent on it now.
    pub fn handle_transport(&mut self, now: Time, by: PathId, state: TransportState) {
        self.connecting = match state {
            TransportState::Connecting => self.connecting.with(by),
            _ => self.connecting.without(by),
        };
        let is_ready = state == TransportState::Ready;
        self.paths.set_up(by, is_ready);
        if is_ready {
            let earliest = self.earliest_opening();
            self.opener.on_path_ready(now, earliest, by);
        } else if self.opener.is_open() && self.paths.up().next().is_none() {
            self.open_again(now);
        }
    }

    /// The generation times of states that are put from now on can be too late by `error`, as those
    /// of a relay that knows the ages of its states with an error. The monitor adds it to its own
    /// uncertainty.
    pub fn handle_label_error(&mut self, error: Span) {
        // The previous error is that of a state that is still being sent in parts.
        self.label_errors = [error, self.label_errors[0]];
    }

    /// The machine has slept: updates sent before are no measure of the paths, and the monitor may
    /// be another one. The session is reopened, and acks of earlier updates have no effect.
    pub fn handle_resume(&mut self, now: Time) {
        self.acks.ignore_sent();
        if self.opener.is_open() {
            self.open_again(now);
        }
    }

    /// The peer may be at another address: opens another session there. Its id is new, so only the
    /// receiver of the opening can answer it.
    pub(in crate::session) fn handle_move(&mut self, now: Time) {
        self.begin_session();
        self.handle_move_back(now);
    }

    /// The peer is at another address from which it has answered before: reopens the session there.
    pub(in crate::session) fn handle_move_back(&mut self, now: Time) {
        self.acks.ignore_sent();
        self.open_again(now);
    }

    /// The queue in the network device of a path; `None` if unknown. The next update is routed by
    /// it.
    pub fn handle_queue(&mut self, by: PathId, queue: Option<DeviceQueue>) {
        self.paths.set_queue(by, queue);
    }

    /// Update `seq` left the device of a path `wait` after [`Source::poll_transmit`], by the
    /// kernel's timestamp. This measured delay replaces the one predicted from the queue.
    pub fn handle_departure(&mut self, by: PathId, seq: u64, wait: Span) {
        self.paths.on_left(by, seq, wait);
    }

    /// The transport replaced an update that had not left yet by this one, or dropped this one.
    pub fn handle_replaced(&mut self, transmit: &Transmit) {
        self.counters.replaced += u64::from(transmit.seq.is_some() && !transmit.is_copy);
    }

    /// These bytes have been sent to the monitor, with all headers: datagrams written by the
    /// source, and the transport's own packets. Limits on the bandwidth count them.
    pub fn handle_wire_bytes(&mut self, now: Time, bytes: Bytes) {
        self.counters.wire_bytes = self.counters.wire_bytes.saturating_add(bytes.get());
        self.law.on_bytes(now, bytes);
    }

    // ---- timers and requests ----

    /// From when on the freshest state should be sent (again) even if no newer one was sampled: the
    /// monitor does not have it, or cannot know its age yet, or two round trips have passed without
    /// an ack.
    pub fn repeat_at(&self) -> Option<Time> {
        if !self.opener.is_open() {
            return Some(self.opener.next_at());
        }
        let rtt = self.acks.srtt().unwrap_or(self.params.first_wait);
        let unanswered = self.liveness.unanswered_since().map(|since| since + rtt * 2);
        Time::earliest([unanswered, self.offset_at()])
    }

    /// When an update should be sent regardless of the law, within its limits:
    /// [`SourceParams::keep_alive`] after the last.
    pub fn keep_alive_at(&self) -> Option<Time> {
        Some(self.keep_alive_from()?.max(self.not_before()))
    }

    /// The same without the limits.
    fn keep_alive_from(&self) -> Option<Time> {
        let last = self.acks.last_sent_at().filter(|_| self.opener.is_open())?;
        Some(last + self.params.keep_alive)
    }

    /// The earlier of both.
    fn any_repeat_at(&self) -> Option<Time> {
        Time::earliest([self.repeat_at(), self.keep_alive_at()])
    }

    /// Whether one of these times has come.
    fn repeats(&self, now: Time) -> bool {
        let is_due = |at: Time| at <= now;
        self.repeat_at().is_some_and(is_due)
            || (self.keep_alive_from().is_some_and(is_due) && self.not_before() <= now)
    }

    /// Whether [`Source::due_at`] has come.
    fn is_due(&self, now: Time) -> bool {
        // The fast path: usually it is due by the law.
        let is_by_law = self.opener.is_open() && !self.topics.has_any();
        let by_law = is_by_law.then(|| self.next_by_law()).flatten();
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        is_due(by_law) || is_due(self.due_at()) || is_due(self.records_at())
    }

    /// When the next update is due, which may lie in the past: by the law, or earlier if the
    /// monitor cannot know its age yet, the session is to be kept alive, or a state is urgent.
    /// `None` while the law waits for an ack, or an opening for a connection.
    fn due_at(&self) -> Option<Time> {
        Time::earliest([self.due_for_all_at(), self.hurried_at()])
    }

    /// The same, without urgent states.
    #[inline]
    fn due_for_all_at(&self) -> Option<Time> {
        if self.opener.is_open() {
            let by_law = self.next_by_law().map(|at| self.not_lent(at + self.late_by()));
            let unasked = Time::earliest([self.offset_at(), self.keep_alive_from()]);
            // The law's time is within the limits, and usually the earlier one.
            let unasked = unasked.filter(|at| by_law.is_none_or(|by_law| *at < by_law));
            return Time::earliest([by_law, unasked.map(|at| at.max(self.not_before()))]);
        }
        let is_connecting = self.connecting != PathSet::EMPTY && self.paths.up().next().is_none();
        (!is_connecting).then(|| self.opener.next_at().max(self.law.affordable_at()))
    }

    /// When the law, and its limits, allow the next update.
    #[inline]
    fn next_by_law(&self) -> Option<Time> {
        if self.has_symbol() { self.law.next_part_at() } else { self.law.next_update_at() }
    }

    /// The earliest time at which the limits allow the next update.
    fn not_before(&self) -> Time {
        if self.has_symbol() { self.law.part_not_before() } else { self.law.not_before() }
    }

    /// When to call for the update that is due, or for a state that it needs.
    fn update_at(&self) -> Option<Time> {
        let Some(due) = self.due_at() else { return self.records_at() };
        let topic_at = self.topic_ready_at().map(|at| due.max(at));
        let without_topics = self.update_without_topics_at(due);
        if self.topics.has_any() {
            Time::earliest([topic_at, without_topics, self.records_at()])
        } else {
            without_topics
        }
    }

    /// The same, without topics that have a state to send.
    fn update_without_topics_at(&self, due: Time) -> Option<Time> {
        match self.states.asking() {
            _ if self.states.is_ready() || self.has_symbol() => Some(due),
            Asking::ByLaw | Asking::Wanted(_) => Some(due),
            Asking::NotBefore(time) => Time::earliest([Some(due.max(time)), self.keep_alive_at()]),
            Asking::Asked(Need::Newer) => Some(due.max(self.any_repeat_at()?)),
            // No state yet; transports are renewed in any case.
            Asking::Asked(Need::Newest) => {
                (!self.opener.is_open() && !self.opener.is_ready()).then_some(due)
            }
        }
    }

    /// Whether there is something to send when an update is due.
    fn is_ready(&self, now: Time) -> bool {
        self.states.is_ready() || self.has_symbol() || self.is_topic_ready(now)
    }

    /// Whether a symbol of a state in several updates is to be sent.
    fn has_symbol(&self) -> bool {
        self.opener.is_open() && (self.transfers.has_next() || self.topics.has_symbol())
    }

    /// Whether the ready state takes several updates.
    fn is_ready_large(&self) -> bool {
        self.states.ready_state().len() > self.max_whole()
    }

    fn offset_at(&self) -> Option<Time> {
        let is_open = self.opener.is_open();
        let at = || self.acks.offset_at(self.opener.opened_at(), self.params.first_wait);
        is_open.then(at).flatten()
    }

    /// The session does not count as silent before this time, independent of the law.
    fn silent_from(&self) -> Option<Time> {
        self.liveness.unanswered_since().map(|since| since + self.params.silence)
    }

    fn silent_at(&self) -> Option<Time> {
        // While a law probes, its rate does not determine when an ack is due: wait for two timeouts
        // of a first probe.
        let period = match self.law.phase() {
            Phase::Probing => self.params.silence * 2 / u64::from(self.params.silence_rounds),
            // Updates leave at least as often as the session is kept alive.
            Phase::Steering => self.law.rate().period().min(self.params.keep_alive),
        };
        let round = period.max(self.acks.srtt().unwrap_or(Span::ZERO));
        let patience = (round * self.params.silence_rounds.into()).max(self.params.silence);
        self.liveness.unanswered_since().map(|since| since + patience)
    }

    /// The earliest time of the next opening by the maximum rate. Cookies are valid for at least 30
    /// s, so a rate below one per [`SourceParams::max_wait`] does not delay openings.
    fn earliest_opening(&self) -> Time {
        let rate = self.law.max_rate().unwrap_or(RateBounds::default().ceiling);
        let gap = rate.period().min(self.params.max_wait);
        self.acks.last_sent_at().map_or(Time::ZERO, |last| last + gap)
    }

    /// Whether a state may be left out now if it has not changed since update `first`: the monitor
    /// has acknowledged it, and no repeat is needed. Otherwise it is sent at the law's rate.
    fn may_leave_out(&self, now: Time, first: u64) -> bool {
        let is_acked = match self.states.last().len() <= self.max_whole() {
            true => self.acks.newest().is_some_and(|newest| newest.seq >= first),
            false => self.transfers.is_complete(),
        };
        self.params.on_change && self.opener.is_open() && is_acked && !self.repeats(now)
    }

    /// # Errors
    /// If the state is too long; another one is asked for later.
    fn check_len(
        &mut self,
        now: Time,
        generated_at: Time,
        state: &[u8],
    ) -> Result<(), StateTooLarge> {
        let (given, max) = (state.len(), self.max_state());
        if given <= max {
            return Ok(());
        }
        self.counters.too_large += u64::from(self.states.on_too_large(generated_at));
        if self.states.is_asked() {
            self.ask_again_at(now + self.polling_period());
            if self.keep_alive_at().is_some_and(|at| at <= now) {
                self.repeat();
            }
        }
        Err(StateTooLarge { given, max })
    }

    /// The time after a state was left out until the driver is asked for another one.
    fn polling_period(&self) -> Span {
        self.law.rate().period().clamp(Span::from_millis(1), Span::from_secs(1))
    }

    /// Begins a session with a new id.
    fn begin_session(&mut self) {
        self.session = self.secret.session(self.sessions);
        self.sessions += 1;
    }

    fn open_again(&mut self, now: Time) {
        let earliest = self.earliest_opening();
        self.opener.again(now, earliest);
        self.liveness.on_reopening();
        self.states.on_session_changed();
        self.forget_monitor();
    }

    /// The monitor may be another process, with another clock.
    fn forget_monitor(&mut self) {
        self.acks.on_reopening();
        self.paths.forget_clock();
        self.outgoing.forget_copies();
    }
}
