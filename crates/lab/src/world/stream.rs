//! A TCP stream with its application.
//!
//! ```text
//!   application ─► sender ─► segments ─► … ─► receiver ─► what it delivers, and how old that is
//!                     ▲                          │
//!                     └──────── … ◄─── acks ◄────┘
//! ```

use std::collections::VecDeque;

use freshline_core::age::{AgeMeter, AgeProcess, AgeSummary, Freshness, Integral};
use freshline_core::host::{Band, BandLaw};
use freshline_core::link::{Direction, SpanHistogram};
use freshline_core::mesh::Heard;
use freshline_core::router::{Ecn, Packet};
use freshline_core::unit::{Bytes, Span, Time};
use slab::Slab;

use super::deliveries::Deliveries;
use super::host::{Host, HostOutcome};
use super::measured::Measured;
use super::parcel::{Body, Load};
use super::{Delivery, Period};
use crate::tcp::apps::{Cbr, UpdateSource};
use crate::tcp::{Receiver, Segment, Sender, SenderStats, SmallQueue};

/// Who writes into a stream.
#[derive(Debug)]
pub enum Application {
    /// Always has more. Each new segment counts as fresh state, sampled when it first left
    /// (001 section I).
    Bulk,
    /// Writes at a constant rate. Each new segment counts as fresh state, as with `Bulk`.
    Cbr(Cbr),
    /// Writes an update at each of the schedule's moments; state is as old as its update.
    Updates {
        /// Knows where in the stream each update ends.
        source: UpdateSource,
        /// Payload of each update.
        size: Bytes,
        /// Between two updates.
        period: Span,
        /// When the next is due.
        next_at: Time,
    },
    /// Writes an update as soon as all of the one before has been sent: the newest one alone.
    Newest {
        /// Knows where in the stream each update ends.
        source: UpdateSource,
        /// Payload of each update.
        size: Bytes,
        /// What the send buffer has not taken yet of the newest one.
        left: Bytes,
    },
    /// Writes this much and closes: what is left of it.
    File(Bytes),
    /// Nobody of its own: an [`Exchange`](super::Exchange) writes.
    Exchange,
}

/// A stream under way.
#[derive(Debug)]
pub struct Stream {
    sender: Sender,
    receiver: Receiver,
    /// The sender's.
    host: Host,
    application: Application,
    starts_at: Time,
    ends_at: Time,
    has_begun: bool,
    /// Segments that travel.
    segments: Slab<Travelling>,
    /// Segments at the receiver that are not yet delivered: where they end, when they first left.
    waiting: VecDeque<(u64, Time)>,
    /// Whether it has a file to transfer.
    is_transfer: bool,
    finished_at: Option<Time>,
    newest_ack: u64,
    tally: Tally,
}

/// A segment that travels.
#[derive(Debug)]
struct Travelling {
    segment: Segment,
    /// What it holds of the memory of the sender's host.
    memory: Bytes,
}

/// The measurement. Ages run from the flow's start on, so that one from the warm-up goes on.
#[derive(Debug, Clone)]
struct Tally {
    measured: Measured,
    /// The true age, at the receiver.
    age: AgeMeter,
    /// What reset it.
    deliveries: Deliveries,
    /// The age as the sender knows it from acks and their echoed timestamps (001 section I).
    source_age: AgeProcess,
    source_age_from: Integral,
    round_trips: SpanHistogram,
    /// Periods of a law that has one, as acks came, and how many.
    periods: (Span, u64),
    before: SenderStats,
    delivered_before: Bytes,
    /// By the end of the measured time.
    delivered: Bytes,
}

/// What a stream was like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StreamOutcome {
    /// The age at the receiver, from the flow's start on. `None`, as the goodput, if the flow has
    /// no measured time.
    pub age: Option<AgeSummary>,
    /// The sender's own estimate of the mean age, from round trips and gaps between acks.
    pub source_age_mean: Option<Span>,
    /// Round trips; `None` if none was measured.
    pub rtt: Option<RoundTrips>,
    /// Payload delivered, in bit/s.
    pub goodput_bps: Option<f64>,
    /// The measured time: from when until when; `None` if the flow has none.
    pub measured: Option<Period>,
    /// Whether it had begun and no payload had arrived by the end.
    pub never_delivered: bool,
    /// Segments sent again, of all segments; 0 to 1.
    pub retransmitted: f64,
    /// Timeouts and fast recoveries, of all segments: p of Reno's throughput; 0 to 1.
    pub loss_events: f64,
    /// The mean of a period that its law waits for (DTPA's TXP); `None` if it has none.
    pub period: Option<Span>,
    /// For a file, how long it took until everything was acknowledged.
    pub completion: Option<Completion>,
    /// What data met as it left its host.
    pub host: HostOutcome,
}

/// How long a transfer took from its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Until its end; of one that is unfinished, until now, which is a lower bound.
    pub took: Span,
    /// Whether it was finished.
    pub is_finished: bool,
}

impl Completion {
    /// Of a transfer that began at `starts_at`; `None` if it has not begun.
    pub(super) fn of(starts_at: Time, finished_at: Option<Time>, now: Time) -> Option<Self> {
        let took = finished_at.unwrap_or(now).since(starts_at);
        (now > starts_at).then_some(Self { took, is_finished: finished_at.is_some() })
    }
}

/// How the round trips of a stream were spread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoundTrips {
    /// Their mean.
    pub mean: Span,
    /// What half of them did not exceed.
    pub p50: Span,
    /// What 95 % of them did not exceed.
    pub p95: Span,
    /// The longest.
    pub max: Span,
}

impl RoundTrips {
    pub(super) fn of(all: &SpanHistogram) -> Option<Self> {
        (all.count() > 0).then(|| Self {
            mean: all.mean(),
            p50: all.quantile(0.5),
            p95: all.quantile(0.95),
            max: all.max(),
        })
    }
}

impl Tally {
    fn new(Period { from: starts_at, until: ends_at }: Period) -> Self {
        let source_age = AgeProcess::starting_at(starts_at);
        Self {
            measured: Measured::between(Period { from: starts_at, until: ends_at }),
            age: AgeMeter::starting_at(starts_at),
            deliveries: Deliveries::default(),
            source_age_from: source_age.mark(starts_at),
            source_age,
            round_trips: SpanHistogram::new(),
            periods: (Span::ZERO, 0),
            before: SenderStats::default(),
            delivered_before: Bytes::ZERO,
            delivered: Bytes::ZERO,
        }
    }

    fn begin(&mut self, now: Time, before: SenderStats) {
        self.measured.begin(now);
        self.age.measure_from(now);
        self.source_age_from = self.source_age.mark(now);
        (self.round_trips, self.periods) = (SpanHistogram::new(), (Span::ZERO, 0));
        (self.before, self.delivered_before) = (before, self.delivered);
    }

    /// Data of this generation time has been delivered.
    fn on_fresh(&mut self, now: Time, generated_at: Time) {
        if self.measured.has(now) {
            let freshness = self.age.on_update(now, generated_at);
            self.deliveries.on_update(now, generated_at, freshness);
        }
    }
}

impl Stream {
    /// A stream that opens at `starts_at`, and whose application writes no more at `ends_at`.
    /// `host` is the law of the host that it leaves; the acks of the other one are urgent.
    pub fn new(
        sender: Sender,
        receiver: Receiver,
        host: BandLaw,
        application: Application,
        Period { from: starts_at, until: ends_at }: Period,
    ) -> Self {
        Self {
            sender,
            receiver,
            host: Host::new(host),
            is_transfer: matches!(application, Application::File(_)),
            application,
            starts_at,
            ends_at,
            has_begun: false,
            segments: Slab::new(),
            waiting: VecDeque::new(),
            finished_at: None,
            newest_ack: 0,
            tally: Tally::new(Period { from: starts_at, until: ends_at }),
        }
    }

    /// The warm-up has ended: counts and means are from now on, while the age goes on.
    pub fn begin_measuring(&mut self, now: Time) {
        self.tally.begin(now, *self.sender.stats());
        self.host.begin_measuring();
    }

    /// Something to do has come due; then [`Stream::poll_transmit`].
    pub fn on_wake(&mut self, now: Time) {
        if !self.has_begun {
            if now < self.starts_at {
                return;
            }
            self.has_begun = true;
            self.sender.connect(now);
            if let Application::Bulk = self.application {
                self.sender.set_unlimited();
            }
        }
        if now < self.ends_at {
            self.write(now);
        } else if let Application::Bulk = self.application {
            self.sender.close();
            self.application = Application::File(Bytes::ZERO);
        }
        if self.sender.poll_timeout().is_some_and(|at| at <= now) {
            self.sender.handle_timeout(now);
        }
        if self.receiver.poll_timeout().is_some_and(|at| at <= now) {
            self.receiver.handle_timeout(now);
        }
    }

    /// The next segment to send, from either end; call it until there is none.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(Direction, Load)> {
        if let Application::Newest { source, size, left } = &mut self.application
            && now < self.ends_at
        {
            source.keep_newest(now, *size, left, &mut self.sender);
        }
        let (direction, band, segment) = match self.sender.poll_transmit(now) {
            Some(segment) => {
                (Direction::Forward, self.host.band(now, &segment, &self.sender), segment)
            }
            None => (Direction::Reverse, Band::Urgent, self.receiver.poll_transmit(now)?),
        };
        let size = segment.size();
        let ecn = if segment.flags.ect { Ecn::Capable } else { Ecn::NotCapable };
        let memory = match (direction, self.sender.small_queue()) {
            (Direction::Forward, Some(_)) => SmallQueue::memory(Bytes::new(segment.len.into())),
            _ => Bytes::ZERO,
        };
        self.sender.on_entered_host(memory);
        let body = Body::Segment(self.segments.insert(Travelling { segment, memory }) as u32);
        Some((direction, Load { size, ecn, band, body }))
    }

    /// A segment has come to an end of the stream, in a packet that tells of congestion or not.
    pub fn on_segment(&mut self, now: Time, direction: Direction, number: u32, ecn: Ecn) {
        self.on_left_host(number);
        let Some(travelling) = self.segments.try_remove(number as usize) else { return };
        let mut segment = travelling.segment;
        segment.flags.ce = ecn == Ecn::Marked;
        match direction {
            Direction::Forward => {
                self.receiver.on_segment(now, &segment);
                if self.tally.measured.has(now) {
                    self.tally.delivered = self.receiver.delivered();
                }
                self.on_delivered(now, &segment);
            }
            Direction::Reverse => {
                let before = *self.sender.stats();
                self.sender.on_segment(now, &segment);
                if let Some(period) = self.sender.law().period() {
                    let (sum, count) = &mut self.tally.periods;
                    (*sum, *count) = (*sum + period, *count + 1);
                }
                if self.sender.stats().rtt_samples > before.rtt_samples {
                    let round_trip = self.sender.stats().rtt_sum - before.rtt_sum;
                    self.tally.round_trips.record(round_trip);
                }
                if let Some(sent_at) = segment.echo.filter(|_| segment.ack > self.newest_ack) {
                    self.newest_ack = segment.ack;
                    if self.tally.measured.has(now) {
                        let _: Freshness = self.tally.source_age.on_update(now, sent_at);
                    }
                }
                self.write_file();
                if self.finished_at.is_none() && self.sender.is_finished() {
                    self.finished_at = Some(now);
                }
            }
        }
    }

    /// A segment was dropped. A sender that its host's queue held back looks again with the next
    /// event of its stream.
    pub fn on_dropped(&mut self, number: u32) {
        self.on_left_host(number);
        self.segments.try_remove(number as usize);
    }

    /// A segment is no longer in the queue of its host. Whether the sender was waiting for that.
    pub fn on_left_host(&mut self, number: u32) -> bool {
        let Some(travelling) = self.segments.get_mut(number as usize) else { return false };
        let memory = std::mem::take(&mut travelling.memory);
        self.sender.on_left_host(memory);
        memory > Bytes::ZERO
    }

    /// What the node of a mesh at which it begins has heard its parent send.
    pub(super) fn on_heard(&mut self, now: Time, heard: Heard) {
        self.sender.on_heard(now, heard);
    }

    /// The sending end.
    pub const fn sender(&self) -> &Sender {
        &self.sender
    }

    /// The sending end, to write into.
    pub(super) const fn sender_mut(&mut self) -> &mut Sender {
        &mut self.sender
    }

    /// From its start until `now`, or until the age is no longer measured if that was earlier.
    pub fn age_period(&self, now: Time) -> Period {
        Period { from: self.starts_at, until: self.measured_until(now).max(self.starts_at) }
    }

    /// From now on the deliveries that reset the age are recorded.
    pub fn record_ages(&mut self) {
        self.tally.deliveries.record();
    }

    /// The deliveries that have been recorded, in the order of their arrival.
    pub fn deliveries(&self) -> &[Delivery] {
        self.tally.deliveries.all()
    }

    /// The age at the receiver.
    pub const fn age(&self) -> &AgeProcess {
        self.tally.age.process()
    }

    /// `now`, or the end of the flow or of its file if that was earlier: the age is measured until
    /// then.
    pub fn measured_until(&self, now: Time) -> Time {
        let until = self.tally.measured.clip(now);
        self.finished_at.filter(|_| self.is_transfer).map_or(until, |at| at.min(until))
    }

    /// Payload delivered in order since the stream began.
    pub fn delivered(&self) -> Bytes {
        self.receiver.delivered()
    }

    /// A segment that travels, by its number.
    pub fn segment(&self, number: u32) -> Option<&Segment> {
        self.segments.get(number as usize).map(|travelling| &travelling.segment)
    }

    /// When to call [`Stream::on_wake`] next.
    pub fn poll_timeout(&self) -> Option<Time> {
        if !self.has_begun {
            return Some(self.starts_at);
        }
        let application = match &self.application {
            Application::Cbr(cbr) => cbr.poll_timeout().filter(|at| *at < self.ends_at),
            Application::Updates { next_at, .. } => Some(*next_at).filter(|at| *at < self.ends_at),
            // It is closed then.
            Application::Bulk => Some(self.ends_at),
            Application::Newest { .. } | Application::File(_) | Application::Exchange => None,
        };
        Time::earliest([application, self.sender.poll_timeout(), self.receiver.poll_timeout()])
    }

    /// What was measured until `now`.
    pub fn outcome(&self, now: Time) -> StreamOutcome {
        let Tally { measured, age, source_age, round_trips, before, periods, .. } = &self.tally;
        let until = self.measured_until(now);
        let stats = self.sender.stats();
        let sent = stats.segments.get() - before.segments.get();
        let again = stats.retransmissions.get() - before.retransmissions.get();
        let losses =
            stats.timeouts - before.timeouts + stats.fast_recoveries - before.fast_recoveries;
        let delivered = (self.tally.delivered - self.tally.delivered_before).get() as f64;
        StreamOutcome {
            age: age.summary(until),
            source_age_mean: source_age.mean_since(self.tally.source_age_from, until),
            rtt: RoundTrips::of(round_trips),
            goodput_bps: measured.rate(now, delivered * 8.0),
            measured: measured.period(now),
            never_delivered: self.delivered() == Bytes::ZERO && now > self.starts_at,
            retransmitted: if sent > 0 { again as f64 / sent as f64 } else { 0.0 },
            loss_events: if sent > 0 { losses as f64 / sent as f64 } else { 0.0 },
            period: (periods.1 > 0).then(|| periods.0 / periods.1),
            completion: Completion::of(self.starts_at, self.finished_at, now)
                .filter(|_| self.is_transfer),
            host: self.host.outcome(self.starts_at),
        }
    }

    fn write(&mut self, now: Time) {
        match &mut self.application {
            Application::Cbr(cbr) => cbr.handle_timeout(now, &mut self.sender),
            Application::Updates { source, size, period, next_at } => {
                while *next_at <= now {
                    source.generate(*next_at, *size, &mut self.sender);
                    *next_at += (*period).max(Span::from_nanos(1));
                }
            }
            Application::Bulk | Application::Newest { .. } | Application::Exchange => {}
            Application::File(_) => self.write_file(),
        }
    }

    /// Writes what the send buffer takes, and closes behind the last byte.
    fn write_file(&mut self) {
        if let Application::File(left) = &mut self.application
            && *left > Bytes::ZERO
        {
            *left = *left - self.sender.write(*left);
            if *left == Bytes::ZERO {
                self.sender.close();
            }
        }
    }

    /// How old is what `segment` let the receiver deliver?
    fn on_delivered(&mut self, now: Time, segment: &Segment) {
        let delivered = self.receiver.delivered();
        if let Application::Updates { source, .. } | Application::Newest { source, .. } =
            &mut self.application
        {
            while let Some(update) = source.poll_delivered(delivered) {
                self.tally.on_fresh(now, update.generated_at);
            }
            return;
        }
        if segment.len > 0 && !segment.retransmission {
            self.waiting.push_back((segment.seq + u64::from(segment.len), segment.sent_at));
        }
        // The newest of those that are now whole.
        let whole = self.waiting.iter().filter(|(end, _)| *end <= delivered.get());
        if let Some(sent_at) = whole.map(|(_, sent_at)| *sent_at).max() {
            self.waiting.retain(|(end, _)| *end > delivered.get());
            self.tally.on_fresh(now, sent_at);
        }
    }
}
