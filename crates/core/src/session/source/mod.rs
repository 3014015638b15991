//! The source's end of a session.

mod door;
mod getters;
mod marks;
mod memory;
mod opening;
mod savings;
mod types;

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::backoff::Backoff;
use super::clock_offset::ClockOffset;
use super::cookie::Secret;
use super::paths::{PathAck, Paths, Route};
use crate::age::{AgeMeter, BacklogProcess, Freshness};
use crate::dscp::Dscp;
use crate::path::{DeviceQueue, PathId, PathSet};
use crate::source::{self, Limited, Phase, RateLaw};
use crate::unit::{Span, Time};
use crate::wire::{self, CloseReason, Message, OpeningTooLong, SessionId, Update};
use door::{Door, MOST_OPENINGS};
use marks::Marks;
use memory::{Sent, SentUpdates};
pub use types::{Ignored, Reach, Sample, SourceCounters, SourceEvent, SourceParams, Wake};

/// Updates in a row that a monitor calls stale, though none was fresh in between, before their
/// session is given up: more than reordering and lost acks bring about.
const OVERTAKEN: u32 = 8;

/// A source of updates: drives a [`RateLaw`] within limits and speaks the protocol, over one path or several.
///
/// The driver's loop: hand in what came ([`Source::on_datagram`]) and the time
/// ([`Source::handle_timeout`]); when [`Source::next_update_at`] has come, ask for the
/// [`Source::route`], take a sample, and send what [`Source::write_update`] writes for its first
/// path and [`Source::write_copy`] for the others; sleep until the earlier of it and
/// [`Source::poll_timeout`]. Who has one path leaves out route and copies, and says [`PathId::FIRST`].
pub struct Source {
    params: SourceParams,
    secret: Secret,
    session: SessionId,
    /// Sessions so far; the number of the next id.
    sessions: u64,
    law: Limited,
    reach: Reach,
    backoff: Backoff,
    /// When the session was last opened.
    opened_at: Time,
    /// How many times in a row it had to be opened again soon after.
    short_lives: u32,
    /// While opening: when to try next.
    next_attempt_at: Time,
    /// And by which paths alone, if challenges by them are the reason.
    attempt_by: PathSet,
    paths: Paths,
    /// By the numbers of the paths.
    doors: Vec<Door>,
    marks: Marks,
    newest_acked: Option<u64>,
    /// Updates before this number were sent before the machine slept.
    asleep_before: u64,
    sent: SentUpdates,
    /// The first update that carries the clocks' offset, which openings cannot, until one of those
    /// that carry it is acknowledged.
    offset_untold: Option<u64>,
    /// The last sign of life, or the first update after it that waits for an answer.
    unanswered_since: Option<Time>,
    /// Updates newer than all acknowledged ones that the monitor has called stale, since the last
    /// fresh ack.
    overtaken: u32,
    /// Since when nothing has been fresh, at the first of these.
    overtaken_since: Option<Time>,
    srtt: Option<Span>,
    clock_offset: ClockOffset,
    monitor_counts: Option<wire::Ack>,
    age: AgeMeter,
    backlog: BacklogProcess,
    counters: SourceCounters,
}

impl Source {
    /// A source that opens its session at once. The ids of its sessions come from `secret`.
    ///
    /// # Errors
    /// [`OpeningTooLong`] if name or token cannot be carried.
    pub fn new(
        params: SourceParams,
        secret: Secret,
        law: Box<dyn RateLaw>,
        now: Time,
    ) -> Result<Self, OpeningTooLong> {
        let session = secret.session(0);
        let backoff = Backoff::new(params.first_wait, params.longest_wait, session.0);
        let source = Self {
            secret,
            session,
            sessions: 1,
            law: Limited::new(law, params.limits),
            reach: Reach::Opening { attempts: 0 },
            backoff,
            opened_at: now,
            short_lives: 0,
            next_attempt_at: now,
            attempt_by: PathSet::EMPTY,
            paths: Paths::default(),
            doors: alloc::vec![Door::default()],
            marks: Marks::new(1),
            newest_acked: None,
            asleep_before: 0,
            sent: SentUpdates::new(),
            offset_untold: None,
            unanswered_since: None,
            overtaken: 0,
            overtaken_since: None,
            srtt: None,
            clock_offset: ClockOffset::default(),
            monitor_counts: None,
            age: AgeMeter::new(),
            backlog: BacklogProcess::new(now),
            counters: SourceCounters::default(),
            params,
        };
        source.opening(PathId::FIRST).check()?;
        Ok(source)
    }

    /// The same over these paths, before anything was sent.
    pub fn over(mut self, paths: Paths) -> Self {
        self.doors = alloc::vec![Door::default(); paths.count()];
        self.marks = Marks::new(paths.count());
        self.paths = paths;
        self
    }

    // ---- inputs ----

    /// A datagram came from the monitor's address by a path.
    ///
    /// # Errors
    /// [`Ignored`] says why it changed nothing, but for what an ack tells of its path.
    pub fn on_datagram(
        &mut self,
        now: Time,
        by: PathId,
        datagram: &[u8],
    ) -> Result<SourceEvent, Ignored> {
        self.on_marked_datagram(now, by, None, datagram)
    }

    /// Time has passed. Calls before [`Source::poll_timeout`] change nothing.
    pub fn handle_timeout(&mut self, now: Time) -> Option<SourceEvent> {
        if self.reach != Reach::Open {
            return None;
        }
        if self.silent_at().is_some_and(|at| at <= now) {
            self.open_again(now);
            return Some(SourceEvent::Silent);
        }
        self.law.on_tick(now);
        None
    }

    /// A path can carry nothing any more: its connection or its interface is gone. If it was the
    /// last one, the session must be opened again over the next.
    pub fn on_transport_lost(&mut self, now: Time, by: PathId) {
        self.paths.set_up(by, false);
        if self.reach == Reach::Open && self.paths.up().next().is_none() {
            self.open_again(now);
        }
    }

    /// A path can carry datagrams (again): an opening that waits goes out by it now.
    pub fn on_transport_ready(&mut self, now: Time, by: PathId) {
        self.paths.set_up(by, true);
        if self.reach != Reach::Open {
            self.attempt(now, by);
        } else if let Some(door) = self.doors.get_mut(usize::from(by.0)) {
            door.is_unproven = true;
        }
    }

    /// The machine has slept: what was sent before says nothing of paths, and the monitor may be another.
    /// The session is opened again, and acks of what was sent before change nothing.
    pub fn on_wake(&mut self, now: Time) {
        self.asleep_before = self.sent.next_seq();
        if self.reach == Reach::Open {
            self.open_again(now);
        }
    }

    /// What waits in the device through which a path leaves; `None` where nobody can tell.
    pub fn on_queue(&mut self, by: PathId, queue: Option<DeviceQueue>) {
        self.paths.set_queue(by, queue);
    }

    /// Update `seq` left the device of a path this time after [`Source::write_update`], by the kernel's
    /// stamp: its wait counts instead of the one that the queue let expect.
    pub fn on_left(&mut self, by: PathId, seq: u64, wait: Span) {
        self.paths.on_left(by, seq, wait);
    }

    /// There is no connection below and a new one is being made: counts as an opening.
    pub fn on_attempt(&mut self, now: Time) {
        if self.reach != Reach::Open {
            self.next_attempt_at = now + self.backoff.next();
            self.attempt_by = PathSet::EMPTY;
            self.reach = Reach::Opening { attempts: self.backoff.attempts() };
        }
    }

    /// The transport replaced an update that had not left yet by the one written last.
    pub fn on_replaced(&mut self) {
        self.counters.replaced += 1;
    }

    /// Which paths the update takes that is due now; `None` where none is up. An opening takes all
    /// of them: the first answer counts.
    pub fn route(&mut self, now: Time) -> Option<Route> {
        if self.reach == Reach::Open {
            let interval = self.law.rate().period();
            return self.paths.route(now, interval, self.clock_offset.nanos());
        }
        let by = self.attempt_by;
        let challenged = self.paths.up().filter(|path| by.contains(*path));
        Route::over(challenged).or_else(|| Route::over(self.paths.up()))
    }

    /// Writes the update that is due to the front of `out`, as it goes by its first path; gives its
    /// length.
    ///
    /// `None` where the payload does not fit the buffer or [`Update::MAX_PAYLOAD`]; then nothing
    /// has changed.
    pub fn write_update(
        &mut self,
        now: Time,
        by: PathId,
        sample: Sample<'_>,
        out: &mut [u8],
    ) -> Option<usize> {
        let seq = self.sent.next_seq();
        let wants_ack = self.wants_ack(now, by);
        let len = Update { wants_ack, ..self.update(seq, by, sample) }.write(out)?;
        match wants_ack {
            true => self.on_sent_by(now, by, seq, false),
            false => self.paths.on_sent_unasking(now, by),
        }
        self.counters.asked += u64::from(wants_ack);
        self.on_sent(now, sample);
        Some(len)
    }

    /// Writes the last update once more, with the sample that it had, as it goes by another path,
    /// right after [`Source::write_update`].
    pub fn write_copy(
        &mut self,
        now: Time,
        by: PathId,
        sample: Sample<'_>,
        out: &mut [u8],
    ) -> Option<usize> {
        let seq = self.last_seq()?;
        let len = self.update(seq, by, sample).write(out)?;
        self.on_sent_by(now, by, seq, true);
        Some(len)
    }

    /// The number of the update that was written last.
    pub fn last_seq(&self) -> Option<u64> {
        self.sent.next_seq().checked_sub(1)
    }

    /// The message with which a source takes its leave.
    pub fn close(&self) -> [u8; wire::Close::LEN] {
        wire::Close { session: self.session, reason: CloseReason::Done }.bytes()
    }

    // ---- what it wants next ----

    /// When the next update should be sent, which may lie in the past: by the law, or earlier if the
    /// monitor cannot know its age yet. `None` while the law waits for an ack.
    pub fn next_update_at(&self) -> Option<Time> {
        match self.reach {
            Reach::Open => {
                let offset = self.offset_at().map(|at| at.max(self.law.not_before()));
                self.law.next_update_at().into_iter().chain(offset).min()
            }
            Reach::Opening { .. } => Some(self.next_attempt_at.max(self.law.affordable_at())),
        }
    }

    /// When to call [`Source::handle_timeout`] next, and why.
    pub fn poll_timeout(&self) -> Option<(Time, Wake)> {
        if self.reach != Reach::Open {
            return None;
        }
        let law = self.law.next_event().map(|at| (at, Wake::Law));
        let silence = self.silent_at().map(|at| (at, Wake::Silence));
        law.into_iter().chain(silence).min_by_key(|(at, _)| *at)
    }

    /// From when on the freshest state should go out (again) even if nothing newer has been
    /// sampled: the monitor does not have it, or cannot know its age yet, or two round trips have
    /// passed without an ack.
    pub fn repeat_at(&self) -> Option<Time> {
        match self.reach {
            Reach::Opening { .. } => Some(self.next_attempt_at),
            Reach::Open => {
                let rtt = self.srtt.unwrap_or(self.params.first_wait);
                let unanswered = self.unanswered_since.map(|since| since + rtt * 2);
                unanswered.into_iter().chain(self.offset_at()).min()
            }
        }
    }

    /// When an update should tell the clocks' offset: at once after the opening, and again while
    /// none that told it is acknowledged, after waits that double.
    fn offset_at(&self) -> Option<Time> {
        let first = self.offset_untold.filter(|_| self.reach == Reach::Open)?;
        let told = self.sent.last().filter(|_| self.sent.next_seq() > first);
        let again = |last: &Sent| {
            let rtt = self.srtt.unwrap_or(self.params.first_wait);
            let since_opening = last.sent_at.since(self.opened_at);
            last.sent_at + since_opening.max(rtt * 2).max(self.params.first_wait)
        };
        Some(told.map_or(self.opened_at, again))
    }

    /// When an update should go out whatever the law says, within its limits:
    /// [`SourceParams::keep_alive`] after the last.
    pub fn keep_alive_at(&self) -> Option<Time> {
        let last = self.sent.last().filter(|_| self.reach == Reach::Open)?;
        Some((last.sent_at + self.params.keep_alive).max(self.law.not_before()))
    }

    // ---- steps ----

    fn take_in(
        &mut self,
        now: Time,
        by: PathId,
        dscp: Option<Dscp>,
        datagram: &[u8],
    ) -> Result<SourceEvent, Ignored> {
        let message = Message::parse(datagram)?;
        // What comes late by a path that is gone must not open a session that nothing can carry.
        if message.session() != self.session || !self.paths.is_up(by) {
            return Err(Ignored::Misplaced);
        }
        match message {
            Message::Ack(ack) => self.on_ack(now, by, dscp, &ack),
            Message::Challenge(challenge) => Ok(self.on_challenge(now, by, challenge.cookie)),
            Message::Close(close) => Ok(self.on_close(now, close.reason)),
            _ => Err(Ignored::Misplaced),
        }
    }

    fn on_ack(
        &mut self,
        now: Time,
        by: PathId,
        dscp: Option<Dscp>,
        ack: &wire::Ack,
    ) -> Result<SourceEvent, Ignored> {
        let sent = self.sent(now, ack).ok_or(Ignored::NeverSent)?;
        if ack.seq < self.asleep_before {
            return Err(Ignored::Late);
        }
        self.marks.on_ack(by, self.params.dscp, dscp, ack);
        let wire::Ack { seq, hold, received_at, .. } = *ack;
        self.paths.on_ack(now, by, &PathAck { seq, hold, received_at });
        if let Some(door) = self.doors.get_mut(usize::from(by.0)) {
            (door.openings, door.is_unproven) = (0, false);
        }
        if self.newest_acked.is_some_and(|newest| ack.seq <= newest) {
            return Err(Ignored::Late);
        }
        // While opening, a copy's ack says as much: the record is there, the first one's ack is not.
        let opens = self.reach != Reach::Open && self.paths.count() > 1;
        if !ack.was_fresh && !opens {
            self.on_overtaken(now);
            return Err(Ignored::Late);
        }
        if ack.was_fresh {
            (self.overtaken, self.overtaken_since) = (0, None);
        } else {
            // It opens, but a session in which nothing is fresh must still come to an end.
            self.overtaken = self.overtaken.saturating_add(1);
            self.overtaken_since.get_or_insert(now);
        }
        self.newest_acked = Some(ack.seq);
        let before = self.monitor_counts.replace(*ack).filter(|_| self.reach == Reach::Open);
        let answers_all = ack.seq + 1 == self.sent.next_seq();
        self.unanswered_since = (!answers_all).then_some(now);
        self.offset_untold = self.offset_untold.filter(|first| ack.seq < *first);

        let rtt = now.since(sent.sent_at) - ack.hold;
        // RFC 6298 section 2.3.
        self.srtt = Some(self.srtt.map_or(rtt, |srtt| srtt - srtt / 8 + rtt / 8));
        self.clock_offset.on_ack(now, sent.sent_at, ack.received_at, rtt);
        let _: Freshness = self.age.on_update(now, sent.generated_at);
        self.backlog.on_ack(now, ack.seq);
        self.counters.acked += 1;
        // Acks that were lost, or not asked for, are of updates that may have been fresh all the same.
        let fresh = before.map_or(1, |before| {
            let fresh = u64::from(ack.fresh.wrapping_sub(before.fresh));
            fresh.clamp(1, ack.seq - before.seq)
        });
        self.counters.delivered_bytes += fresh * sent.payload_len as u64;
        self.counters.rtt_sum += rtt;
        self.counters.rtt_min = Some(self.counters.rtt_min.map_or(rtt, |min| min.min(rtt)));

        if self.reach != Reach::Open {
            self.reach = Reach::Open;
            self.opened_at = now;
            self.offset_untold = Some(self.sent.next_seq());
            self.counters.opened += 1;
            for (path, door) in self.doors.iter_mut().enumerate() {
                door.is_unproven = path != usize::from(by.0);
            }
            self.paths.on_opened();
            self.law.restart(now);
            return Ok(SourceEvent::Opened);
        }
        self.law.on_ack(
            now,
            &source::Ack {
                seq: ack.seq,
                generated_at: sent.generated_at,
                sent_at: sent.sent_at,
                hold: ack.hold,
                received_at: ack.received_at,
                fresh: ack.fresh,
                stale: ack.stale,
            },
        );
        Ok(SourceEvent::Acked { rtt })
    }

    /// The monitor calls an update stale that is newer than all that were fresh.
    fn on_overtaken(&mut self, now: Time) {
        self.overtaken = self.overtaken.saturating_add(1);
        let since = *self.overtaken_since.get_or_insert(self.unanswered_since.unwrap_or(now));
        if self.paths.count() > 1 {
            // The ack of the fresher one may be lost on another path: somebody is there all the same.
            // But what they hold is not known, so the newest state is still to be repeated.
            self.unanswered_since = Some(now);
        }
        if self.overtaken >= OVERTAKEN && now.since(since) >= self.params.silence {
            // It holds a number that we never sent, of a damaged update: nothing of this session
            // would ever be fresh again.
            (self.overtaken, self.overtaken_since) = (0, None);
            self.session = self.secret.session(self.sessions);
            self.sessions += 1;
            self.open_again(now);
        }
    }

    /// What is known of the acknowledged update; `None` if it never was.
    fn sent(&self, now: Time, ack: &wire::Ack) -> Option<Sent> {
        if ack.seq >= self.sent.next_seq() {
            return None;
        }
        let Some(sent) = self.sent.get(ack.seq) else {
            let generated_at = Some(ack.generated_at).filter(|at| *at <= now)?;
            return Some(Sent { generated_at, sent_at: generated_at, payload_len: 0 });
        };
        (sent.generated_at == ack.generated_at).then_some(*sent)
    }

    fn update<'a>(&'a self, seq: u64, by: PathId, sample: Sample<'a>) -> Update<'a> {
        Update {
            session: self.session,
            seq,
            generated_at: sample.generated_at,
            clock_offset: self.clock_offset.nanos(),
            wants_ack: true,
            ack_mark: self.params.ack_mark,
            opening: self.must_open(by).then(|| self.opening(by)),
            payload: sample.payload,
        }
    }

    /// Whether the update that leaves now asks for an ack. All openings do, and what leaves when a word
    /// of the monitor is overdue, as a state that is repeated.
    fn wants_ack(&self, now: Time, by: PathId) -> bool {
        self.must_open(by)
            || self.paths.want_every_ack()
            || self.repeat_at().is_some_and(|at| at <= now)
            || self.law.wants_ack(now)
    }

    fn on_sent_by(&mut self, now: Time, by: PathId, seq: u64, is_copy: bool) {
        self.paths.on_sent(now, by, seq, is_copy);
        let is_opening = self.must_open(by);
        if let Some(door) = self.doors.get_mut(usize::from(by.0)) {
            door.openings = (door.openings + u8::from(is_opening)).min(MOST_OPENINGS);
        }
    }

    fn on_sent(&mut self, now: Time, sample: Sample<'_>) {
        let seq = self.sent.next_seq();
        let payload_len = sample.payload.len();
        let sent = Sent { generated_at: sample.generated_at, sent_at: now, payload_len };
        self.sent.push(sent, self.newest_acked);
        self.unanswered_since = self.unanswered_since.or(Some(now));
        self.backlog.on_sent(now, seq);
        self.counters.sent += 1;
        self.counters.payload_bytes += payload_len as u64;
        match self.reach {
            Reach::Open => self.law.on_sent(now, seq),
            Reach::Opening { .. } => {
                self.law.on_opening(now);
                if self.attempt_by == PathSet::EMPTY {
                    self.doors.iter_mut().for_each(|door| door.is_prompted = false);
                }
                self.marks.on_opening(seq);
                self.on_attempt(now);
                self.next_attempt_at = self.paced(self.next_attempt_at);
            }
        }
    }

    fn silent_at(&self) -> Option<Time> {
        // While a law probes, its rate says nothing of when an ack is due: two timeouts of a first
        // probe are waited for.
        let period = match self.law.phase() {
            Phase::Probing => self.params.silence * 2 / u64::from(self.params.silence_rounds),
            // Updates leave at least as often as the session is kept alive.
            Phase::Steering => self.law.rate().period().min(self.params.keep_alive),
        };
        let round = period.max(self.srtt.unwrap_or(Span::ZERO));
        let patience = (round * self.params.silence_rounds.into()).max(self.params.silence);
        self.unanswered_since.map(|since| since + patience)
    }
}
