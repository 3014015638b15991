//! A TCP stream with its application.
//!
//! ```text
//!   application ─► sender ─► segments ─► … ─► receiver ─► delivered data and its age
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

/// The application of a stream.
#[derive(Debug)]
pub enum Application {
    /// Always has more data. Each new segment counts as fresh state, sampled when it was first sent
    /// (Shreedhar et al., An Empirical Study of Ageing in the Cloud, section I).
    Bulk,
    /// Writes at a constant rate. Each new segment counts as fresh state, as with `Bulk`.
    Cbr(Cbr),
    /// Writes an update at each time of the schedule; the age of the state is that of its update.
    Updates {
        /// Keeps the end offset of each update in the stream.
        source: UpdateSource,
        /// Payload of each update.
        size: Bytes,
        /// Between two updates.
        period: Span,
        /// When the next is due.
        next_at: Time,
    },
    /// Writes an update as soon as the previous one has been sent completely, so that only the
    /// newest one is queued.
    Newest {
        /// Keeps the end offset of each update in the stream.
        source: UpdateSource,
        /// Payload of each update.
        size: Bytes,
        /// The bytes of the newest update that the send buffer has not accepted yet.
        left: Bytes,
    },
    /// Writes a file of the remaining size, and closes.
    File(Bytes),
    /// No application of its own: an [`Exchange`](super::Exchange) writes.
    Exchange,
}

/// A running stream.
#[derive(Debug)]
pub struct Stream {
    sender: Sender,
    receiver: Receiver,
    /// The sending host.
    host: Host,
    application: Application,
    starts_at: Time,
    ends_at: Time,
    has_begun: bool,
    /// Segments in flight.
    segments: Slab<Travelling>,
    /// Segments at the receiver that are not yet delivered: their end offsets, and when they were
    /// first sent.
    waiting: VecDeque<(u64, Time)>,
    /// Whether it has a file to transfer.
    is_transfer: bool,
    finished_at: Option<Time>,
    newest_ack: u64,
    tally: Tally,
}

/// A segment in flight.
#[derive(Debug)]
struct Travelling {
    segment: Segment,
    /// The memory that it occupies in the sender's host.
    memory: Bytes,
}

/// The measurement. Ages run from the flow's start, so that an age from the warm-up continues.
#[derive(Debug, Clone)]
struct Tally {
    measured: Measured,
    /// The true age, at the receiver.
    age: AgeMeter,
    /// The deliveries that reset it.
    deliveries: Deliveries,
    /// The age that the sender infers from acks and their echoed timestamps (Shreedhar et al., An
    /// Empirical Study of Ageing in the Cloud, section I).
    source_age: AgeProcess,
    source_age_from: Integral,
    round_trips: SpanHistogram,
    /// The sum and the number of a law's periods, one per ack.
    periods: (Span, u64),
    before: SenderStats,
    delivered_before: Bytes,
    /// The bytes delivered by the end of the measured time.
    delivered: Bytes,
}

/// The result of a stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StreamOutcome {
    /// The age at the receiver, from the flow's start on. `None`, like the goodput, if the flow has
    /// no measured time.
    pub age: Option<AgeSummary>,
    /// The sender's own estimate of the mean age, from round trips and gaps between acks.
    pub source_age_mean: Option<Span>,
    /// Round trips; `None` if none was measured.
    pub rtt: Option<RoundTrips>,
    /// Payload delivered, in bit/s.
    pub goodput_bps: Option<f64>,
    /// The measured period; `None` if the flow has none.
    pub measured: Option<Period>,
    /// Whether it had begun and no payload had arrived by the end.
    pub never_delivered: bool,
    /// The fraction of segments that were retransmissions, 0 to 1.
    pub retransmitted: f64,
    /// The number of timeouts and fast recoveries divided by the number of segments: p of Reno's
    /// throughput formula, 0 to 1.
    pub loss_events: f64,
    /// The mean of the period by which its law paces (DTPA's TXP); `None` if it has none.
    pub period: Option<Span>,
    /// For a file, the time until everything was acknowledged.
    pub completion: Option<Completion>,
    /// The host-queue measurements of its data.
    pub host: HostOutcome,
}

/// The duration of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Until its end; for an unfinished one, until now, which is a lower bound.
    pub took: Span,
    /// Whether it was finished.
    pub is_finished: bool,
}

impl Completion {
    /// The completion of a transfer that began at `starts_at`; `None` if it has not begun.
    pub(super) fn of(starts_at: Time, finished_at: Option<Time>, now: Time) -> Option<Self> {
        let took = finished_at.unwrap_or(now).since(starts_at);
        (now > starts_at).then_some(Self { took, is_finished: finished_at.is_some() })
    }
}

/// The distribution of the round trips of a stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoundTrips {
    /// Their mean.
    pub mean: Span,
    /// The median.
    pub p50: Span,
    /// The 95th percentile.
    pub p95: Span,
    /// The maximum.
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
    /// A stream that opens at `starts_at`, and whose application stops writing at `ends_at`. `host`
    /// is the law of the sending host; the acks of the receiving host are urgent.
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

    /// The warm-up has ended: counts and means begin now, while the age continues.
    pub fn begin_measuring(&mut self, now: Time) {
        self.tally.begin(now, *self.sender.stats());
        self.host.begin_measuring();
    }

    /// Handles an event that is due. Then call [`Stream::poll_transmit`].
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

    /// The next segment to send, from either end. Call it until it returns `None`.
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

    /// A segment has arrived at an end of the stream, in a packet with or without a congestion
    /// mark.
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

    /// A segment was dropped. A sender held back by its host's queue checks that again at the next
    /// event of its stream.
    pub fn on_dropped(&mut self, number: u32) {
        self.on_left_host(number);
        self.segments.try_remove(number as usize);
    }

    /// A segment has left the queue of its host. Returns whether the sender was held back for that.
    pub fn on_left_host(&mut self, number: u32) -> bool {
        let Some(travelling) = self.segments.get_mut(number as usize) else { return false };
        let memory = std::mem::take(&mut travelling.memory);
        self.sender.on_left_host(memory);
        memory > Bytes::ZERO
    }

    /// The node of a mesh at which it begins has overheard a transmission of its parent.
    pub(super) fn on_heard(&mut self, now: Time, heard: Heard) {
        self.sender.on_heard(now, heard);
    }

    /// The sender.
    pub const fn sender(&self) -> &Sender {
        &self.sender
    }

    /// The sender, to write into.
    pub(super) const fn sender_mut(&mut self) -> &mut Sender {
        &mut self.sender
    }

    /// The period from its start until `now`, or until the end of the age's measurement if that was
    /// earlier.
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

    /// `now`, or the end of the flow or of its file if that was earlier: the end of the age's
    /// measurement.
    pub fn measured_until(&self, now: Time) -> Time {
        let until = self.tally.measured.clip(now);
        self.finished_at.filter(|_| self.is_transfer).map_or(until, |at| at.min(until))
    }

    /// Payload delivered in order since the stream began.
    pub fn delivered(&self) -> Bytes {
        self.receiver.delivered()
    }

    /// A segment in flight, by number.
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
            // The stream is closed then.
            Application::Bulk => Some(self.ends_at),
            Application::Newest { .. } | Application::File(_) | Application::Exchange => None,
        };
        Time::earliest([application, self.sender.poll_timeout(), self.receiver.poll_timeout()])
    }

    /// The measurements until `now`.
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

    /// Writes as much of the file as the send buffer accepts, and closes after the last byte.
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

    /// Determines the age of the data that `segment` let the receiver deliver.
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
        // The newest of the segments that are complete now.
        let whole = self.waiting.iter().filter(|(end, _)| *end <= delivered.get());
        if let Some(sent_at) = whole.map(|(_, sent_at)| *sent_at).max() {
            self.waiting.retain(|(end, _)| *end > delivered.get());
            self.tally.on_fresh(now, sent_at);
        }
    }
}
