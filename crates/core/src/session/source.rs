//! The source's end of a session.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::backoff::{Backoff, mix};
use super::clock_offset::ClockOffset;
use crate::age::{AgeMeter, BacklogProcess, Freshness};
use crate::source::{self, Phase, RateLaw};
use crate::unit::{Span, Time};
use crate::wire::{self, CloseReason, Cookie, Message, Opening, OpeningTooLong, SessionId, Update};

/// Sending times are kept for this many updates; an ack of an older one is timed from the
/// generation of its update, which it carries itself.
const REMEMBERED: u64 = 1024;

/// Updates in a row that a monitor calls stale, though none was fresh in between, before their
/// session is given up: more than reordering and lost acks bring about.
const OVERTAKEN: u32 = 8;

/// Settings of [`Source`].
#[derive(Debug, Clone)]
pub struct SourceParams {
    /// A name for people and metrics, at most [`Opening::MAX_NAME`] bytes.
    pub name: String,
    /// Shown to the monitor at the opening, at most [`Opening::MAX_TOKEN`] bytes.
    pub token: Vec<u8>,
    /// The wait after the first opening without an answer. 200 ms: longer than nearly all round
    /// trips, short to a person.
    pub first_wait: Span,
    /// The longest wait between openings; a monitor that comes back is found after at most this
    /// and a quarter. 2 s: one small packet then costs the path nothing.
    pub longest_wait: Span,
    /// No ack for this long, and for [`SourceParams::silence_rounds`] round trips and periods of
    /// the rate, and the session is opened anew.
    pub silence: Span,
    /// See [`SourceParams::silence`]. 8: at 10 % loss in each direction, a false alarm in half a
    /// million updates.
    pub silence_rounds: u32,
}

impl Default for SourceParams {
    fn default() -> Self {
        Self {
            name: String::new(),
            token: Vec::new(),
            first_wait: Span::from_millis(200),
            longest_wait: Span::from_secs(2),
            silence: Span::from_secs(1),
            silence_rounds: 8,
        }
    }
}

/// A state and the moment at which it was sampled.
#[derive(Debug, Clone, Copy)]
pub struct Sample<'a> {
    /// When it was sampled, on the source's clock; not later than now.
    pub generated_at: Time,
    /// The state, at most [`Update::MAX_PAYLOAD`] bytes.
    pub payload: &'a [u8],
}

/// Whether the monitor is known to hear us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Not yet, or no more: openings are sent, `attempts` so far.
    Opening {
        /// Openings sent since the monitor was last heard.
        attempts: u32,
    },
    /// It answers.
    Open,
}

/// Why a source wants to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// The law wants to look at the time.
    Law,
    /// The monitor may have fallen silent.
    Silence,
}

/// What a datagram or the passing of time has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceEvent {
    /// The first ack: the session is open.
    Opened,
    /// A fresh ack with its round trip, without the time that the monitor held the update.
    Acked {
        /// Round trip of the update and its ack.
        rtt: Span,
    },
    /// The monitor does not know us and wants a cookie shown.
    Challenged,
    /// The monitor ended or refused the session; openings go on, rarely.
    Closed(CloseReason),
    /// No ack for too long; openings go on.
    Silent,
}

/// Why a datagram was left aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Ignored {
    /// Not a message of ours.
    #[error("not a message: {0}")]
    Unreadable(#[from] wire::ParseError),
    /// Of another session, or a message that only sources send.
    #[error("not meant for this session")]
    Misplaced,
    /// An ack of an update that was never sent, or not with that generation time.
    #[error("an ack of an update that was never sent")]
    NeverSent,
    /// An ack that is not fresher than one before it, or of an update that came after a fresher one.
    #[error("an ack that came after a fresher one")]
    Late,
}

/// What a source has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SourceCounters {
    /// Updates handed to the transport.
    pub sent: u64,
    /// Payload bytes of these.
    pub payload_bytes: u64,
    /// Fresh acks.
    pub acked: u64,
    /// Acks that came after a fresher one, or twice.
    pub late_acks: u64,
    /// Datagrams left aside for other reasons.
    pub ignored: u64,
    /// Updates that a newer one replaced before they left the host.
    pub replaced: u64,
    /// Times the session was opened.
    pub opened: u64,
    /// Payload bytes of updates known to have arrived fresh at the monitor.
    pub delivered_bytes: u64,
    /// Sum of the round trips of fresh acks.
    pub rtt_sum: Span,
    /// The shortest of these.
    pub rtt_min: Option<Span>,
}

impl SourceCounters {
    /// Mean round trip, once there was an ack.
    pub fn rtt_mean(&self) -> Option<Span> {
        (self.acked > 0).then(|| self.rtt_sum / self.acked)
    }
}

/// One update as it was sent.
#[derive(Debug, Clone, Copy, Default)]
struct Sent {
    generated_at: Time,
    sent_at: Time,
    payload_len: usize,
}

/// A source of updates: drives a [`RateLaw`] and speaks the protocol.
///
/// The driver's loop: hand in what came ([`Source::on_datagram`]) and the time
/// ([`Source::on_tick`]); when [`Source::next_update_at`] has come, take a sample and send what
/// [`Source::write_update`] writes; sleep until the earlier of it and [`Source::next_timer`].
pub struct Source {
    params: SourceParams,
    session: SessionId,
    law: Box<dyn RateLaw>,
    reach: Reach,
    backoff: Backoff,
    /// When the session was last opened.
    opened_at: Time,
    /// How many times in a row it had to be opened again soon after.
    short_lives: u32,
    /// While opening: when to try next.
    next_attempt_at: Time,
    cookie: Cookie,
    next_seq: u64,
    newest_acked: Option<u64>,
    remembered: Vec<Sent>,
    /// The last sign of life, or the first update after it that waits for an answer.
    unanswered_since: Option<Time>,
    /// Updates newer than all acknowledged ones that the monitor has called stale, since the last
    /// fresh ack.
    overtaken: u32,
    srtt: Option<Span>,
    clock_offset: ClockOffset,
    monitor_counts: Option<wire::Ack>,
    age: AgeMeter,
    backlog: BacklogProcess,
    counters: SourceCounters,
}

impl Source {
    /// A source that opens its session at once. `session` must be random.
    ///
    /// # Errors
    /// [`OpeningTooLong`] if name or token cannot be carried.
    pub fn new(
        params: SourceParams,
        session: SessionId,
        law: Box<dyn RateLaw>,
        now: Time,
    ) -> Result<Self, OpeningTooLong> {
        let backoff = Backoff::new(params.first_wait, params.longest_wait, session.0);
        let source = Self {
            session,
            law,
            reach: Reach::Opening { attempts: 0 },
            backoff,
            opened_at: now,
            short_lives: 0,
            next_attempt_at: now,
            cookie: Cookie::default(),
            next_seq: 0,
            newest_acked: None,
            remembered: alloc::vec![Sent::default(); REMEMBERED as usize],
            unanswered_since: None,
            overtaken: 0,
            srtt: None,
            clock_offset: ClockOffset::default(),
            monitor_counts: None,
            age: AgeMeter::new(),
            backlog: BacklogProcess::new(now),
            counters: SourceCounters::default(),
            params,
        };
        source.opening().check()?;
        Ok(source)
    }

    // ---- inputs ----

    /// A datagram came from the monitor's address.
    ///
    /// # Errors
    /// [`Ignored`] says why it changed nothing.
    pub fn on_datagram(&mut self, now: Time, datagram: &[u8]) -> Result<SourceEvent, Ignored> {
        let result = self.take_in(now, datagram);
        match result {
            Err(Ignored::Late) => self.counters.late_acks += 1,
            Err(_) => self.counters.ignored += 1,
            Ok(_) => {}
        }
        result
    }

    /// Time has passed. Calls before [`Source::next_timer`] change nothing.
    pub fn on_tick(&mut self, now: Time) -> Option<SourceEvent> {
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

    /// The transport below has lost its connection: the session must be opened again over the
    /// next one.
    pub fn on_transport_lost(&mut self, now: Time) {
        if self.reach == Reach::Open {
            self.open_again(now);
        }
    }

    /// The transport below can carry datagrams (again): an opening that waits goes out now.
    pub fn on_transport_ready(&mut self, now: Time) {
        if self.reach != Reach::Open {
            self.next_attempt_at = now;
        }
    }

    /// There is no connection below and a new one is being made: counts as an opening.
    pub fn on_attempt(&mut self, now: Time) {
        if self.reach != Reach::Open {
            self.next_attempt_at = now + self.backoff.next();
            self.reach = Reach::Opening { attempts: self.backoff.attempts() };
        }
    }

    /// The transport replaced an update that had not left yet by the one written last.
    pub fn on_replaced(&mut self) {
        self.counters.replaced += 1;
    }

    /// Writes the update that is due to the front of `out`; gives its length.
    ///
    /// `None` where the payload does not fit the buffer or [`Update::MAX_PAYLOAD`]; then nothing
    /// has changed.
    pub fn write_update(&mut self, now: Time, sample: Sample<'_>, out: &mut [u8]) -> Option<usize> {
        let update = Update {
            session: self.session,
            seq: self.next_seq,
            generated_at: sample.generated_at,
            clock_offset: self.clock_offset.nanos(),
            opening: (self.reach != Reach::Open).then(|| self.opening()),
            payload: sample.payload,
        };
        let len = update.write(out)?;
        self.on_sent(now, sample);
        Some(len)
    }

    /// The message with which a source takes its leave.
    pub fn close(&self) -> [u8; wire::Close::LEN] {
        wire::Close { session: self.session, reason: CloseReason::Done }.bytes()
    }

    // ---- what it wants next ----

    /// When the next update should be sampled and sent, which may lie in the past. `None` while
    /// the law waits for an ack.
    pub fn next_update_at(&self) -> Option<Time> {
        match self.reach {
            Reach::Open => self.law.next_update_at(),
            Reach::Opening { .. } => Some(self.next_attempt_at),
        }
    }

    /// When to call [`Source::on_tick`] next, and why.
    pub fn next_timer(&self) -> Option<(Time, Wake)> {
        if self.reach != Reach::Open {
            return None;
        }
        let law = self.law.next_event().map(|at| (at, Wake::Law));
        let silence = self.silent_at().map(|at| (at, Wake::Silence));
        law.into_iter().chain(silence).min_by_key(|(at, _)| *at)
    }

    /// From when on the freshest state should go out (again) even if nothing newer has been
    /// sampled: the monitor does not have it, or two round trips have passed without a word of it.
    pub fn repeat_at(&self) -> Option<Time> {
        match self.reach {
            Reach::Opening { .. } => Some(self.next_attempt_at),
            Reach::Open => {
                let rtt = self.srtt.unwrap_or(self.params.first_wait);
                self.unanswered_since.map(|since| since + rtt * 2)
            }
        }
    }

    // ---- getters ----

    /// The session's name on the wire.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Whether the monitor is known to hear us.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// The law at work.
    pub fn law(&self) -> &dyn RateLaw {
        &*self.law
    }

    /// The age at the monitor as acks tell it: an upper bound, by the way of the ack.
    pub fn age(&self) -> &AgeMeter {
        &self.age
    }

    /// Updates sent and not yet acknowledged.
    pub fn backlog(&self) -> &BacklogProcess {
        &self.backlog
    }

    /// How far the monitor's clock is ahead.
    pub fn clock_offset(&self) -> &ClockOffset {
        &self.clock_offset
    }

    /// What was counted here.
    pub fn counters(&self) -> &SourceCounters {
        &self.counters
    }

    /// The freshest ack, with the monitor's counts.
    pub fn newest_ack(&self) -> Option<&wire::Ack> {
        self.monitor_counts.as_ref()
    }

    // ---- steps ----

    fn take_in(&mut self, now: Time, datagram: &[u8]) -> Result<SourceEvent, Ignored> {
        let message = Message::parse(datagram)?;
        if message.session() != self.session {
            return Err(Ignored::Misplaced);
        }
        match message {
            Message::Ack(ack) => self.on_ack(now, &ack),
            Message::Challenge(challenge) => Ok(self.on_challenge(now, challenge.cookie)),
            Message::Close(close) => Ok(self.on_close(now, close.reason)),
            _ => Err(Ignored::Misplaced),
        }
    }

    fn on_ack(&mut self, now: Time, ack: &wire::Ack) -> Result<SourceEvent, Ignored> {
        let sent = self.sent(now, ack).ok_or(Ignored::NeverSent)?;
        if self.newest_acked.is_some_and(|newest| ack.seq <= newest) {
            return Err(Ignored::Late);
        }
        if !ack.was_fresh {
            self.on_overtaken(now);
            return Err(Ignored::Late);
        }
        self.overtaken = 0;
        self.newest_acked = Some(ack.seq);
        self.monitor_counts = Some(*ack);
        let answers_all = ack.seq + 1 == self.next_seq;
        self.unanswered_since = (!answers_all).then_some(now);

        let rtt = now.since(sent.sent_at) - ack.hold;
        // RFC 6298 section 2.3.
        self.srtt = Some(self.srtt.map_or(rtt, |srtt| srtt - srtt / 8 + rtt / 8));
        self.clock_offset.on_ack(now, sent.sent_at, ack.received_at, rtt);
        let _: Freshness = self.age.on_update(now, sent.generated_at);
        self.backlog.on_ack(now, ack.seq);
        self.counters.acked += 1;
        self.counters.delivered_bytes += sent.payload_len as u64;
        self.counters.rtt_sum += rtt;
        self.counters.rtt_min = Some(self.counters.rtt_min.map_or(rtt, |min| min.min(rtt)));

        if self.reach != Reach::Open {
            self.reach = Reach::Open;
            self.opened_at = now;
            self.counters.opened += 1;
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
            },
        );
        Ok(SourceEvent::Acked { rtt })
    }

    /// The monitor calls an update stale that is newer than all that were fresh.
    fn on_overtaken(&mut self, now: Time) {
        self.overtaken = self.overtaken.saturating_add(1);
        let since = self.unanswered_since.unwrap_or(now);
        if self.overtaken >= OVERTAKEN && now.since(since) >= self.params.silence {
            // It holds a number that we never sent, of a damaged update: nothing of this session
            // would ever be fresh again.
            self.overtaken = 0;
            self.session = SessionId(mix(self.session.0));
            self.open_again(now);
        }
    }

    /// What is known of the acknowledged update; `None` if it never was.
    fn sent(&self, now: Time, ack: &wire::Ack) -> Option<Sent> {
        let age_in_updates = self.next_seq.checked_sub(ack.seq)?;
        if age_in_updates > REMEMBERED {
            let generated_at = Some(ack.generated_at).filter(|at| *at <= now)?;
            return Some(Sent { generated_at, sent_at: generated_at, payload_len: 0 });
        }
        let sent = self.remembered[(ack.seq % REMEMBERED) as usize];
        (age_in_updates > 0 && sent.generated_at == ack.generated_at).then_some(sent)
    }

    fn on_challenge(&mut self, now: Time, cookie: Cookie) -> SourceEvent {
        let first = self.cookie != cookie;
        self.cookie = cookie;
        if self.reach == Reach::Open {
            self.open_again(now);
        } else if first {
            // The same cookie twice means that it was not accepted: then the backoff holds.
            self.next_attempt_at = now;
        }
        SourceEvent::Challenged
    }

    fn on_close(&mut self, now: Time, reason: CloseReason) -> SourceEvent {
        if self.reach == Reach::Open {
            self.open_again(now);
        }
        self.next_attempt_at = match reason {
            CloseReason::Done | CloseReason::ShuttingDown => now + self.backoff.next(),
            _ => now + self.params.longest_wait,
        };
        SourceEvent::Closed(reason)
    }

    fn open_again(&mut self, now: Time) {
        if now.since(self.opened_at) >= self.params.longest_wait {
            self.short_lives = 0;
            self.backoff.reset(0);
            self.next_attempt_at = now;
        } else {
            // Somebody else may be at the monitor with our name: two that displace each other at
            // once would never come to rest. What was tried before the opening does not count:
            // an outage says nothing of that.
            self.backoff.reset(self.short_lives);
            self.short_lives = self.short_lives.saturating_add(1);
            self.next_attempt_at = now + self.backoff.next();
        }
        self.reach = Reach::Opening { attempts: self.backoff.attempts() };
        self.unanswered_since = None;
        // The monitor may be another process, with another clock.
        self.clock_offset = ClockOffset::default();
    }

    fn on_sent(&mut self, now: Time, sample: Sample<'_>) {
        let seq = self.next_seq;
        self.next_seq += 1;
        let payload_len = sample.payload.len();
        self.remembered[(seq % REMEMBERED) as usize] =
            Sent { generated_at: sample.generated_at, sent_at: now, payload_len };
        self.unanswered_since = self.unanswered_since.or(Some(now));
        self.backlog.on_sent(now, seq);
        self.counters.sent += 1;
        self.counters.payload_bytes += payload_len as u64;
        match self.reach {
            Reach::Open => self.law.on_sent(now, seq),
            Reach::Opening { .. } => self.on_attempt(now),
        }
    }

    fn silent_at(&self) -> Option<Time> {
        // While a law probes, its rate says nothing of when an ack is due: two timeouts of a first
        // probe are waited for.
        let period = match self.law.phase() {
            Phase::Probing => self.params.silence * 2 / u64::from(self.params.silence_rounds),
            Phase::Steering => self.law.rate().period(),
        };
        let round = period.max(self.srtt.unwrap_or(Span::ZERO));
        let patience = (round * self.params.silence_rounds.into()).max(self.params.silence);
        self.unanswered_since.map(|since| since + patience)
    }

    fn opening(&self) -> Opening<'_> {
        Opening { cookie: self.cookie, name: &self.params.name, token: &self.params.token }
    }
}
