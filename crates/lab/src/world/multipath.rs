//! A stream over several paths, with its application.
//!
//! ```text
//!   application ─► sender ─► segments ─► each its path ─► receiver ─► delivered data
//!                   ▲  ▲                                     │
//!                   │  └──────── … ◄─── acks, each its path ─┘
//!          queue lengths of the first hops' devices
//! ```

use freshline_core::link::{Direction, SpanHistogram};
use freshline_core::router::Ecn;
use freshline_core::unit::{Bytes, Span, Time};
use slab::Slab;

use super::Period;
use super::measured::Measured;
use super::parcel::{Body, Load};
use super::stream::{Completion, RoundTrips};
use crate::tcp::SenderStats;
use crate::tcp::apps::{Cbr, Outlet, Pages, Video, VideoOutcome};
use crate::tcp::multipath::{Carried, MultipathReceiver, MultipathSender, MultipathStats};

/// The application of a stream over several paths.
#[derive(Debug)]
pub enum MultipathSource {
    /// Always has more data.
    Bulk,
    /// Writes at a constant rate.
    Cbr(Cbr),
    /// Writes a file of the remaining size, and closes.
    File(Bytes),
    /// Loads pages one after the other, and closes.
    Pages(Pages),
    /// Fetches a video, and closes.
    Video(Video),
}

/// A running stream over several paths.
#[derive(Debug)]
pub struct Multipath {
    sender: MultipathSender,
    receiver: MultipathReceiver,
    source: MultipathSource,
    starts_at: Time,
    ends_at: Time,
    has_begun: bool,
    /// Segments in flight.
    carried: Slab<Carried>,
    /// Whether it has a file, pages or a video to transfer.
    is_transfer: bool,
    finished_at: Option<Time>,
    measured: Measured,
    tally: Tally,
}

/// The measurements, from the end of the warm-up on.
#[derive(Debug)]
struct Tally {
    delivered_before: Bytes,
    /// The bytes delivered by the end of the measured time.
    delivered: Bytes,
    before: MultipathStats,
    subflows: Vec<SubflowTally>,
    /// The subflow that sent last, and its number of consecutive segments.
    run: (usize, u64),
}

/// The measurements of a subflow.
#[derive(Debug)]
struct SubflowTally {
    round_trips: SpanHistogram,
    before: SenderStats,
    delivered_before: Bytes,
    /// The bytes delivered by the end of the measured time.
    delivered: Bytes,
    /// The sum over its segments of the number of packets in its device.
    held: u64,
    /// The maximum number of consecutive segments with data that it sent, without another subflow
    /// in between.
    max_run: u64,
}

/// The result of a stream over several paths.
#[derive(Debug, Clone, PartialEq)]
pub struct MultipathOutcome {
    /// Payload delivered in order, in bit/s; `None` if the flow has no measured time.
    pub goodput_bps: Option<f64>,
    /// The measured period; `None` if the flow has none.
    pub measured: Option<Period>,
    /// Whether it had begun and no payload had arrived by the end.
    pub never_delivered: bool,
    /// For a file, pages or a video, the time until everything was delivered.
    pub completion: Option<Completion>,
    /// The mean load time of a page; `None` without pages.
    pub page_mean: Option<Span>,
    /// The quality of playback; `None` without a video.
    pub video: Option<VideoOutcome>,
    /// The mean reordering delay of a segment; `None` if there was no segment.
    pub reorder_mean: Option<Span>,
    /// The 95th percentile of the reordering delay.
    pub reorder_p95: Option<Span>,
    /// Retransmissions on other subflows, and how often the window blocked a subflow.
    pub stats: MultipathStats,
    /// Each subflow.
    pub subflows: Vec<SubflowOutcome>,
}

/// The result of a subflow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SubflowOutcome {
    /// Payload delivered over it, copies included, in bit/s; `None` if the flow has no measured
    /// time.
    pub goodput_bps: Option<f64>,
    /// Round trips; `None` if none was measured.
    pub rtt: Option<RoundTrips>,
    /// The fraction of segments that were retransmissions, 0 to 1.
    pub retransmitted: f64,
    /// The mean number of packets in its device when it sent a segment; `None` if it sent none.
    pub device_queue_mean: Option<f64>,
    /// The maximum number of consecutive segments with data that it sent, without another subflow
    /// in between; `None` if it sent none.
    pub max_run: Option<f64>,
}

impl Tally {
    fn new(sender: &MultipathSender, receiver: &MultipathReceiver) -> Self {
        let subflows = sender.subflows().iter().enumerate();
        let subflows = subflows.map(|(at, subflow)| SubflowTally {
            round_trips: SpanHistogram::new(),
            before: *subflow.sender().stats(),
            delivered_before: receiver.delivered_by(at),
            delivered: receiver.delivered_by(at),
            held: 0,
            max_run: 0,
        });
        Self {
            delivered_before: receiver.delivered(),
            delivered: receiver.delivered(),
            before: *sender.stats(),
            subflows: subflows.collect(),
            run: (0, 0),
        }
    }

    /// A subflow sends a segment with data while its device holds `held` packets.
    fn on_data(&mut self, path: usize, held: u64) {
        let before = if self.run.0 == path { self.run.1 } else { 0 };
        self.run = (path, before + 1);
        let subflow = &mut self.subflows[path];
        subflow.held += held;
        subflow.max_run = subflow.max_run.max(self.run.1);
    }
}

impl Multipath {
    /// A stream that opens at `starts_at`, and whose application stops writing at `ends_at`.
    pub fn new(
        sender: MultipathSender,
        receiver: MultipathReceiver,
        source: MultipathSource,
        Period { from: starts_at, until: ends_at }: Period,
    ) -> Self {
        let tally = Tally::new(&sender, &receiver);
        let is_transfer = !matches!(source, MultipathSource::Bulk | MultipathSource::Cbr(_));
        Self {
            sender,
            receiver,
            source,
            starts_at,
            ends_at,
            has_begun: false,
            carried: Slab::new(),
            is_transfer,
            finished_at: None,
            measured: Measured::between(Period { from: starts_at, until: ends_at }),
            tally,
        }
    }

    /// The warm-up has ended.
    pub fn begin_measuring(&mut self, now: Time) {
        self.receiver.begin_measuring();
        self.measured.begin(now);
        // If the stream has ended before, nothing is left to measure.
        self.tally = Tally::new(&self.sender, &self.receiver);
    }

    /// The device of a path holds `packets` packets now, and `left` have left it since its start.
    pub fn look(&mut self, now: Time, path: usize, packets: u64, left: u64) {
        self.sender.look(now, path, packets, left);
    }

    /// Handles an event that is due. Then call [`Multipath::poll_transmit`].
    pub fn on_wake(&mut self, now: Time) {
        if !self.has_begun {
            if now < self.starts_at {
                return;
            }
            self.has_begun = true;
            self.sender.connect(now);
            if let MultipathSource::Bulk = self.source {
                self.sender.set_unlimited();
            }
        }
        if !self.sender.is_independent() {
            self.write(now);
        }
        self.sender.handle_timeout(now);
        self.receiver.handle_timeout(now);
    }

    /// The next segment to send, from either end, with its path. Call it until it returns `None`,
    /// and [`Multipath::look`] before each call.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(u8, Direction, Load)> {
        // Each block is assigned by the present queue lengths of devices.
        if self.sender.is_independent() {
            self.write(now);
        }
        let (direction, (path, carried)) = match self.sender.poll_transmit(now) {
            Some((path, carried)) => {
                if carried.segment.len > 0 {
                    let held = self.sender.subflows()[path].device().queue().packets;
                    self.tally.on_data(path, held);
                }
                (Direction::Forward, (path, carried))
            }
            None => (Direction::Reverse, self.receiver.poll_transmit(now)?),
        };
        let ecn = if carried.segment.flags.ect { Ecn::Capable } else { Ecn::NotCapable };
        let size = carried.wire_size();
        let body = Body::Segment(self.carried.insert(carried) as u32);
        Some((path as u8, direction, Load { ecn, ..Load::plain(size, body) }))
    }

    /// A segment has arrived over a path, in a packet with or without a congestion mark.
    pub fn on_segment(&mut self, now: Time, path: u8, direction: Direction, number: u32, ecn: Ecn) {
        let Some(mut carried) = self.carried.try_remove(number as usize) else { return };
        carried.segment.flags.ce = ecn == Ecn::Marked;
        let path = usize::from(path);
        match direction {
            Direction::Forward => {
                let has_more = self.receiver.on_segment(now, path, &carried);
                if self.measured.has(now) {
                    self.tally.subflows[path].delivered = self.receiver.delivered_by(path);
                }
                if !has_more {
                    return;
                }
                let delivered = self.receiver.delivered();
                if self.measured.has(now) {
                    self.tally.delivered = delivered;
                }
                let is_last = match &mut self.source {
                    MultipathSource::Pages(pages) => {
                        pages.on_delivered(now, delivered);
                        pages.is_over()
                    }
                    MultipathSource::Video(video) => {
                        video.on_delivered(now, delivered);
                        video.is_over()
                    }
                    _ => self.sender.is_closed() && delivered == self.sender.written(),
                };
                if is_last {
                    self.finished_at.get_or_insert(now);
                }
            }
            Direction::Reverse => {
                let before = *self.sender.subflows()[path].sender().stats();
                self.sender.on_segment(now, path, &carried);
                let after = self.sender.subflows()[path].sender().stats();
                if after.rtt_samples > before.rtt_samples {
                    let round_trip = after.rtt_sum - before.rtt_sum;
                    self.tally.subflows[path].round_trips.record(round_trip);
                }
                if !self.sender.is_independent() {
                    self.write(now);
                }
            }
        }
    }

    /// A segment was dropped.
    pub fn on_dropped(&mut self, number: u32) {
        self.carried.try_remove(number as usize);
    }

    /// The sender.
    pub const fn sender(&self) -> &MultipathSender {
        &self.sender
    }

    /// The receiver.
    pub const fn receiver(&self) -> &MultipathReceiver {
        &self.receiver
    }

    /// A segment in flight, by number.
    pub fn carried(&self, number: u32) -> Option<&Carried> {
        self.carried.get(number as usize)
    }

    /// When to call [`Multipath::on_wake`] next.
    pub fn poll_timeout(&self) -> Option<Time> {
        if !self.has_begun {
            return Some(self.starts_at);
        }
        let source = match &self.source {
            MultipathSource::Cbr(cbr) => cbr.poll_timeout().filter(|at| *at < self.ends_at),
            // The stream is closed then.
            MultipathSource::Bulk => Some(self.ends_at),
            MultipathSource::Pages(pages) => pages.poll_timeout(),
            MultipathSource::Video(video) => video.poll_timeout(),
            MultipathSource::File(_) => None,
        };
        Time::earliest([source, self.sender.poll_timeout(), self.receiver.poll_timeout()])
    }

    /// The measurements until `now`.
    pub fn outcome(&self, now: Time) -> MultipathOutcome {
        let bps = |bytes: Bytes| self.measured.rate(now, bytes.get() as f64 * 8.0);
        let delays = &self.receiver.reordering().delays;
        let has_delays = delays.count() > 0;
        let subflows = self.tally.subflows.iter().enumerate().map(|(at, tally)| {
            let stats = self.sender.subflows()[at].sender().stats();
            let sent = stats.segments.get() - tally.before.segments.get();
            let again = stats.retransmissions.get() - tally.before.retransmissions.get();
            SubflowOutcome {
                max_run: (sent > 0).then_some(tally.max_run as f64),
                goodput_bps: bps(tally.delivered - tally.delivered_before),
                rtt: RoundTrips::of(&tally.round_trips),
                retransmitted: if sent > 0 { again as f64 / sent as f64 } else { 0.0 },
                device_queue_mean: (sent > 0).then(|| tally.held as f64 / sent as f64),
            }
        });
        let (page_mean, video) = match &self.source {
            MultipathSource::Pages(pages) => (pages.mean(), None),
            MultipathSource::Video(video) => (None, Some(video.outcome())),
            _ => (None, None),
        };
        MultipathOutcome {
            goodput_bps: bps(self.tally.delivered - self.tally.delivered_before),
            measured: self.measured.period(now),
            never_delivered: self.receiver.delivered() == Bytes::ZERO && now > self.starts_at,
            completion: Completion::of(self.starts_at, self.finished_at, now)
                .filter(|_| self.is_transfer),
            page_mean,
            video,
            reorder_mean: has_delays.then(|| delays.mean()),
            reorder_p95: has_delays.then(|| delays.quantile(0.95)),
            stats: self.sender.stats().since(&self.tally.before),
            subflows: subflows.collect(),
        }
    }

    /// The application writes the data that is due, as far as it fits into the buffer.
    fn write(&mut self, now: Time) {
        let may_write = now < self.ends_at;
        match &mut self.source {
            MultipathSource::Cbr(cbr) if may_write => cbr.handle_timeout(now, &mut self.sender),
            MultipathSource::Bulk if !may_write => {
                self.sender.close();
                self.source = MultipathSource::File(Bytes::ZERO);
            }
            MultipathSource::File(left) if *left > Bytes::ZERO => {
                *left = *left - self.sender.write(*left);
                if *left == Bytes::ZERO {
                    self.sender.close();
                }
            }
            MultipathSource::Pages(pages) => {
                pages.handle_timeout(now, &mut self.sender);
                if pages.is_over() {
                    self.sender.close();
                }
            }
            MultipathSource::Video(video) => {
                video.handle_timeout(now, &mut self.sender);
                if video.is_over() {
                    self.sender.close();
                }
            }
            MultipathSource::Bulk | MultipathSource::Cbr(_) | MultipathSource::File(_) => {}
        }
    }
}
