//! A paced downlink over Wi-Fi: a server whose law sets rates, and a client that counts packets per
//! frame.
//!
//! ```text
//!   law ─► paced packets ─► … ─► access point ─► client: packets / frame
//!    ▲                                              │ every Δ
//!    └───────────────── … ◄─── report ◄─────────────┘
//! ```
//!
//! Flows of one server share its law, each as one station. Reports are ordinary packets: they
//! contend for the air, and may be lost.

mod edge;
mod offered;

use std::collections::VecDeque;

use freshline_core::link::{Direction, SpanHistogram};
use freshline_core::unit::{BitRate, Bytes, Span, Time};
use freshline_core::wlan::{Arrival, Belief, Bottleneck, Locator, Report, StationId};
use rand::RngExt;
use rand_pcg::Pcg64;
use slab::Slab;

use self::edge::{Arrivals, ReportContent};
use super::Landing;
use super::Period;
use super::client::{Client, PacketSeen};
use super::located::{FrameRecord, Located, LocatedOutcome};
use super::measured::Measured;
use super::memory::Memory;
use super::parcel::{Body, Load, Paced, UDP_OVER_IPV4};

pub use self::edge::Server;

/// The settings that both ends share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DownlinkSettings {
    /// The size of a packet, headers included.
    pub packet: Bytes,
    /// Δ: the reporting interval of the client.
    pub interval: Span,
    /// The size of a report, headers included.
    pub report: Bytes,
    /// The maximum of the random delay of each packet after its turn, uniformly distributed.
    pub jitter: Span,
}

/// A running downlink.
#[derive(Debug)]
pub struct Downlink {
    server: Server,
    station: StationId,
    settings: DownlinkSettings,
    starts_at: Time,
    ends_at: Time,
    phase: Phase,
    next_seq: u64,
    /// Packets in flight.
    packets: Slab<Paced>,
    /// The turn of the next packet, and when it is sent.
    turn: Time,
    leaves_at: Time,
    client: Client,
    located: Option<Located>,
    /// The law's belief when the flow ended.
    believed: Option<Belief>,
    next_report_at: Time,
    /// `None` where the server has no guard.
    arrivals: Option<Arrivals>,
    /// The content of reports in flight, and the number of the first of them.
    in_flight: VecDeque<ReportContent>,
    first_in_flight: u32,
    /// The newest level that the client has reported.
    level: Option<f64>,
    rng: Pcg64,
    tally: Tally,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Before,
    Sending,
    Over,
}

/// The measurements, from the end of the warm-up on.
#[derive(Debug, Clone)]
struct Tally {
    since: Time,
    sent: u64,
    dropped: u64,
    delays: SpanHistogram,
    delay_sum: Span,
    /// Levels of frames.
    frames: Moments,
    /// Levels of reports.
    reports: Moments,
    /// The arrivals of the first and the last frame, and the number of frames after the first.
    first_frame_at: Option<Time>,
    last_frame_at: Time,
    rounds: u64,
    /// Packets of the last frame so far, and the autocovariance of the levels of earlier frames.
    in_last_frame: u64,
    memory: Memory,
    /// When a report last had a level off its target.
    off_target_at: Option<Time>,
    /// Whether the newest report had a level on its target; `None` while there is no report.
    is_on_target: Option<bool>,
    /// How often the guard's limit was below the law's rate, sampled at each report.
    limited: Moments,
}

/// Sums for mean and standard deviation.
#[derive(Debug, Clone, Copy, Default)]
struct Moments {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Moments {
    fn add(&mut self, count: f64, mean: f64, deviation: f64) {
        self.count += count;
        self.sum += count * mean;
        self.squares += count * (deviation * deviation + mean * mean);
    }

    fn mean(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }

    fn deviation(&self) -> Option<f64> {
        let mean = self.mean()?;
        Some((self.squares / self.count - mean * mean).max(0.0).sqrt())
    }
}

impl Tally {
    fn new(since: Time) -> Self {
        Self {
            since,
            sent: 0,
            dropped: 0,
            delays: SpanHistogram::new(),
            delay_sum: Span::ZERO,
            frames: Moments::default(),
            reports: Moments::default(),
            first_frame_at: None,
            last_frame_at: Time::ZERO,
            rounds: 0,
            in_last_frame: 0,
            memory: Memory::default(),
            off_target_at: None,
            is_on_target: None,
            limited: Moments::default(),
        }
    }
}

/// The result of a downlink. Unknown values are `None`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DownlinkOutcome {
    /// The mean delay of packets from the server to the client.
    pub delay_mean: Option<Span>,
    /// The median delay of packets.
    pub delay_p50: Option<Span>,
    /// The 95th percentile of the delay of packets.
    pub delay_p95: Option<Span>,
    /// The mean interval between frames.
    pub round_mean: Option<Span>,
    /// The mean number of packets per frame, as counted by the client.
    pub level_mean: Option<f64>,
    /// The standard deviation of packets per frame.
    pub level_deviation: Option<f64>,
    /// The time in which a deviation of the level falls to 1/e; `None` if that takes more than 64
    /// frames, or if it cannot be distinguished from noise.
    pub level_time_constant: Option<Span>,
    /// The standard deviation of the levels of reports, which are means over Δ.
    pub report_deviation: Option<f64>,
    /// Payload that arrived, in bit/s; `None` if the flow has no measured time.
    pub goodput_bps: Option<f64>,
    /// The measured period; `None` if the flow has none.
    pub measured: Option<Period>,
    /// The fraction of packets that were dropped, 0 to 1.
    pub loss: Option<f64>,
    /// The accuracy with which a client that counts by the kernel's timestamps detects first
    /// packets of frames: F1, 0 to 1.
    pub frames_f1: Option<f64>,
    /// The mean over reports of 1 − |N̂ − N|/N, not below 0, with N by the network card's
    /// timestamps.
    pub level_accuracy: Option<f64>,
    /// The root of the mean of (N̂ − N)² over reports.
    pub level_rmse: Option<f64>,
    /// The time until reports had levels within a tenth of their target and stayed there; `None` if
    /// the newest did not, or if the law has no target.
    pub settled: Option<Span>,
    /// The client's verdicts on the bottleneck, if it has a locator.
    pub located: Option<LocatedOutcome>,
    /// The law's belief at the end.
    pub belief: Belief,
    /// The maximum rate that all flows of the server sent in any 5 s, headers included, in bit/s.
    pub offered_max: Option<f64>,
    /// The maximum ratio of sent to delivered bytes in any 5 s.
    pub offered_ratio: Option<f64>,
    /// The fraction of reports, 0 to 1, after which the guard's limit was below the law's rate.
    pub limited: Option<f64>,
}

/// The maximum distance of a level from its target, as a fraction of the target.
const NEAR: f64 = 0.1;

impl Downlink {
    /// Packets to `station` of `server` during a period, counted by `client`.
    pub fn new(
        server: Server,
        station: StationId,
        settings: DownlinkSettings,
        client: Client,
        Period { from: starts_at, until: ends_at }: Period,
        rng: Pcg64,
    ) -> Self {
        Self {
            arrivals: server.is_guarded().then(Arrivals::default),
            server,
            station,
            settings,
            starts_at,
            ends_at,
            phase: Phase::Before,
            next_seq: 0,
            packets: Slab::new(),
            turn: starts_at,
            leaves_at: starts_at,
            client,
            located: None,
            believed: None,
            next_report_at: starts_at + settings.interval,
            in_flight: VecDeque::new(),
            first_in_flight: 0,
            level: None,
            rng,
            tally: Tally::new(Time::ZERO),
        }
    }

    /// Adds a locator of the bottleneck to the client.
    pub fn with_locator(mut self, locator: Locator) -> Self {
        self.located = Some(Located::new(locator));
        self
    }

    /// Sets the true bottleneck by the scenario's settings, with the times of its changes: a second
    /// reference for its locator, if it has one.
    pub fn set_bottlenecks(&mut self, bottlenecks: Vec<(Time, Bottleneck)>) {
        if let Some(located) = &mut self.located {
            located.set_bottlenecks(bottlenecks);
        }
    }

    /// Discards the measurements so far.
    pub fn begin_measuring(&mut self, now: Time) {
        self.tally = Tally::new(now);
        self.server.begin_measuring(now);
        self.client.begin_measuring();
        if let Some(located) = &mut self.located {
            located.begin_measuring();
        }
    }

    /// From now on arriving packets are recorded, for [`Downlink::packets`].
    pub fn keep_packets(&mut self) {
        self.client.keep_packets();
    }

    /// The packets that arrived since [`Downlink::keep_packets`].
    pub fn packets(&self) -> &[PacketSeen] {
        self.client.packets()
    }

    /// From now on frames are recorded, for [`Downlink::records`], if the client has a locator.
    pub fn keep_records(&mut self) {
        if let Some(located) = &mut self.located {
            located.keep_records();
        }
    }

    /// The frames since [`Downlink::keep_records`].
    pub fn records(&self) -> &[FrameRecord] {
        self.located.as_ref().map_or(&[], Located::records)
    }

    /// Handles an event that is due. Then call [`Downlink::poll_transmit`].
    pub fn on_wake(&mut self, now: Time) {
        if self.phase == Phase::Before && now >= self.starts_at {
            self.phase = Phase::Sending;
            let joined = self.server.on_join(now, self.station);
            debug_assert!(joined.is_ok(), "a scenario has no more stations than its law takes");
        }
        if self.phase == Phase::Sending && now >= self.ends_at {
            self.phase = Phase::Over;
            self.believed = Some(self.belief());
            self.server.on_leave(now, self.station);
        }
        self.server.handle_timeout(now);
    }

    /// The next packet or report to send. Call it until it returns `None`.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(Direction, Load)> {
        if self.phase != Phase::Sending {
            return None;
        }
        if self.next_report_at <= now {
            self.next_report_at += self.settings.interval;
            let report = self.client.report(now);
            if let Some(report) = report {
                self.tally_report(now, report);
            }
            let delivery = self.arrivals.as_mut().and_then(|arrivals| arrivals.report(now));
            if report.is_some() || delivery.is_some() {
                return Some((
                    Direction::Reverse,
                    self.send_report(ReportContent { report, delivery }),
                ));
            }
        }
        if self.urgent_at().is_some_and(|at| at <= now) {
            let delivery = self.arrivals.as_mut().and_then(|arrivals| arrivals.report(now));
            return Some((
                Direction::Reverse,
                self.send_report(ReportContent { report: None, delivery }),
            ));
        }
        (self.leaves_at <= now).then(|| (Direction::Forward, self.send(now)))
    }

    /// A packet has arrived at the client.
    pub fn on_packet(&mut self, now: Time, number: u32, Landing { frame, since }: Landing) {
        let Some(packet) = self.packets.try_remove(number as usize) else { return };
        let delay = now.since(packet.sent_at);
        let tally = &mut self.tally;
        tally.delays.record(delay);
        tally.delay_sum += delay;
        if tally.first_frame_at.is_none() {
            // The first frame may have begun before the warm-up ended, so its level is unknown.
            tally.first_frame_at = Some(frame.at);
            tally.last_frame_at = frame.at;
        } else if frame.at > tally.last_frame_at {
            tally.last_frame_at = frame.at;
            tally.rounds += 1;
            if tally.in_last_frame > 0 {
                tally.memory.push(tally.in_last_frame as f64);
            }
            tally.in_last_frame = 1;
        } else if frame.at == tally.last_frame_at && tally.in_last_frame > 0 {
            tally.in_last_frame += 1;
        }
        self.server.on_arrived(now, self.settings.packet);
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.on_packet(now, packet, self.settings);
        }
        let (stamp, rate) = (frame.at, frame.rate);
        let arrival = Arrival { seq: packet.seq, stamp, rate };
        self.client.on_packet(now, arrival);
        if let Some(located) = &mut self.located {
            located.on_packet(now, arrival, since.since(packet.sent_at), now.since(since));
        }
    }

    /// A packet of another flow has arrived at the client, in the frame with this timestamp.
    pub fn on_other(&mut self, stamp: Time) {
        self.client.on_other(stamp);
        if let Some(located) = &mut self.located {
            located.on_other(stamp);
        }
    }

    /// A report has arrived at the server.
    pub fn on_report(&mut self, now: Time, number: u32) {
        let before = number.wrapping_sub(self.first_in_flight) as usize;
        if before >= self.in_flight.len() {
            return;
        }
        // The reports before it were lost.
        self.first_in_flight = number.wrapping_add(1);
        if let Some(content) = self.in_flight.drain(..=before).next_back() {
            self.server.on_client_report(now, self.station, &content);
            if let Some((_, is_limited)) = self.server.limit(self.station) {
                self.tally.limited.add(1.0, f64::from(u8::from(is_limited)), 0.0);
            }
        }
    }

    /// A packet was dropped.
    pub fn on_dropped(&mut self, number: u32) {
        self.packets.try_remove(number as usize);
        self.tally.dropped += 1;
    }

    /// When to call [`Downlink::on_wake`] next.
    pub fn poll_timeout(&self) -> Option<Time> {
        match self.phase {
            Phase::Before => Some(self.starts_at).filter(|at| *at < self.ends_at),
            Phase::Sending => {
                let tick = self.server.poll_timeout();
                let ends = Some(self.ends_at);
                let reports = [Some(self.next_report_at), self.urgent_at()];
                Time::earliest([Some(self.leaves_at), Time::earliest(reports), tick, ends])
            }
            Phase::Over => None,
        }
    }

    /// The present rate, of packets with their headers.
    pub fn rate(&self) -> BitRate {
        self.server.rate(self.station)
    }

    /// The guard's limit; `None` without a guard.
    pub fn limit(&self) -> Option<BitRate> {
        self.server.limit(self.station).map(|(limit, _)| limit)
    }

    /// When the client has an urgent report.
    fn urgent_at(&self) -> Option<Time> {
        self.arrivals.as_ref()?.urgent_at(self.settings.interval)
    }

    /// The law's target level.
    pub fn target(&self) -> Option<f64> {
        self.server.target(self.station)
    }

    /// The law's belief about the channel, at present or when the flow ended.
    pub fn belief(&self) -> Belief {
        self.believed.unwrap_or_else(|| self.server.belief(self.station))
    }

    /// The bottleneck according to the client's locator; `None` without a locator, or while it is
    /// undecided.
    pub fn bottleneck(&self) -> Option<Bottleneck> {
        self.located.as_ref()?.bottleneck()
    }

    /// The newest level that the client has reported.
    pub const fn level(&self) -> Option<f64> {
        self.level
    }

    /// The number of packets that arrived, and the sum of their delays.
    pub fn delays(&self) -> (u64, Span) {
        (self.tally.delays.count(), self.tally.delay_sum)
    }

    /// The payload that arrived.
    pub fn delivered(&self) -> Bytes {
        let payload = (self.settings.packet - UDP_OVER_IPV4).get();
        Bytes::new(payload * self.tally.delays.count())
    }

    /// The measurements until `now`.
    pub fn outcome(&self, now: Time) -> DownlinkOutcome {
        let tally = &self.tally;
        let has_delivered = tally.delays.count() > 0;
        let since = tally.since.max(self.starts_at);
        let measured = Measured::between(Period { from: since, until: self.ends_at });
        let rounds = tally.first_frame_at.filter(|_| tally.rounds > 0);
        let round_mean = rounds.map(|first| tally.last_frame_at.since(first) / tally.rounds);
        let frames = tally.memory.frames_to_1_e();
        let off_target_at = tally.off_target_at.unwrap_or(since);
        let is_settled = tally.is_on_target == Some(true);
        DownlinkOutcome {
            delay_mean: has_delivered.then(|| tally.delays.mean()),
            delay_p50: has_delivered.then(|| tally.delays.quantile(0.5)),
            delay_p95: has_delivered.then(|| tally.delays.quantile(0.95)),
            round_mean,
            level_mean: tally.frames.mean(),
            level_deviation: tally.frames.deviation(),
            level_time_constant: round_mean.zip(frames).map(|(round, n)| round.mul_f64(n)),
            report_deviation: tally.reports.deviation(),
            goodput_bps: measured.rate(now, self.delivered().get() as f64 * 8.0),
            measured: measured.period(now),
            loss: (tally.sent > 0).then(|| tally.dropped as f64 / tally.sent as f64),
            frames_f1: self.client.score().and_then(|score| score.f1()),
            level_accuracy: self.client.score().and_then(|score| score.level_accuracy()),
            level_rmse: self.client.score().and_then(|score| score.level_rmse()),
            settled: is_settled.then(|| off_target_at.since(since)),
            located: self.located.as_ref().map(Located::outcome),
            belief: self.belief(),
            offered_max: self.server.offered(now).0,
            offered_ratio: self.server.offered(now).1,
            limited: tally.limited.mean(),
        }
    }

    fn send(&mut self, now: Time) -> Load {
        let seq = self.next_seq;
        self.next_seq += 1;
        self.tally.sent += 1;
        self.server.on_sent(now, self.settings.packet);
        self.turn += self.rate().time_to_send(self.settings.packet);
        self.leaves_at = self.turn + self.settings.jitter.mul_f64(self.rng.random());
        let number = self.packets.insert(Paced { seq, sent_at: now }) as u32;
        Load::plain(self.settings.packet, Body::Paced(number))
    }

    fn send_report(&mut self, content: ReportContent) -> Load {
        let number = self.first_in_flight.wrapping_add(self.in_flight.len() as u32);
        self.in_flight.push_back(content);
        Load::plain(self.settings.report, Body::Report(number))
    }

    fn tally_report(&mut self, now: Time, report: Report) {
        self.level = Some(report.level);
        self.tally.frames.add(report.frames as f64, report.level, report.deviation);
        self.tally.reports.add(1.0, report.level, 0.0);
        let is_near = |target: f64| (report.level - target).abs() <= NEAR * target;
        self.tally.is_on_target = self.target().map(is_near);
        if self.tally.is_on_target != Some(true) {
            self.tally.off_target_at = Some(now);
        }
    }
}
