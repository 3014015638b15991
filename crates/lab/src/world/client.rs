//! A client of a downlink, which counts packets a frame: by the network card's stamps, or by those
//! of its kernel.
//!
//! In the lab both are known, so that a client that counts by its kernel's stamps can be held against
//! the truth.

use freshline_core::unit::Time;
use freshline_core::wlan::estimator::KernelCounter;
use freshline_core::wlan::{Aggregation, AggregationParams, Arrival, LevelCounter, Napi, Report};

/// Counts packets a frame.
#[derive(Debug)]
pub struct Client {
    by_card: Aggregation,
    /// When the card last had a frame for the kernel.
    ring_at: Time,
    napi: Napi,
    by_kernel: Option<ByKernel>,
    /// `None` unless packets are kept.
    kept: Option<Vec<PacketSeen>>,
}

/// Counts by the kernel's stamps, and is held against the truth.
#[derive(Debug)]
struct ByKernel {
    counter: KernelCounter,
    /// The frame of the last packet.
    frame: Option<Time>,
    score: Score,
}

/// A packet as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketSeen {
    /// The sender's number of it.
    pub seq: u64,
    /// When the kernel stamped it.
    pub kernel: Time,
    /// When its frame came, by the network card.
    pub frame: Time,
}

/// How well frames and levels are told.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Score {
    /// First packets that were told.
    found: f64,
    /// Packets that were taken for first ones.
    wrong: f64,
    /// First packets that were not told.
    missed: f64,
    reports: f64,
    accuracy: f64,
    /// Of the squares of what levels were off.
    squares: f64,
}

impl Score {
    /// The F1 score of first packets; `None` without any.
    pub(super) fn f1(&self) -> Option<f64> {
        let all = 2.0 * self.found + self.wrong + self.missed;
        (all > 0.0).then(|| 2.0 * self.found / all)
    }

    /// The mean of 1 − |N̂ − N|/N over reports, none below 0; `None` without reports.
    pub(super) fn level_accuracy(&self) -> Option<f64> {
        (self.reports > 0.0).then(|| self.accuracy / self.reports)
    }

    /// The root of the mean square of N̂ − N over reports; `None` without reports.
    pub(super) fn level_rmse(&self) -> Option<f64> {
        (self.reports > 0.0).then(|| (self.squares / self.reports).sqrt())
    }

    fn on_packet(&mut self, is_first: bool, estimated: Option<bool>) {
        match (is_first, estimated) {
            (true, Some(true)) => self.found += 1.0,
            (true, Some(false)) => self.missed += 1.0,
            (false, Some(true)) => self.wrong += 1.0,
            _ => {}
        }
    }

    fn on_report(&mut self, estimated: f64, truth: f64) {
        let off = estimated - truth;
        self.reports += 1.0;
        self.accuracy += (1.0 - off.abs() / truth).max(0.0);
        self.squares += off * off;
    }
}

impl Client {
    /// Counts by the card's stamps. Its kernel has stamps all the same, for packets that are kept.
    pub fn by_card(napi: Napi) -> Self {
        let by_card = Aggregation::new(AggregationParams::default());
        Self { by_card, ring_at: Time::ZERO, napi, by_kernel: None, kept: None }
    }

    /// Counts by the kernel's stamps.
    pub fn by_kernel(napi: Napi, counter: KernelCounter) -> Self {
        let by_kernel = ByKernel { counter, frame: None, score: Score::default() };
        Self { by_kernel: Some(by_kernel), ..Self::by_card(napi) }
    }

    pub(super) fn begin_measuring(&mut self) {
        if let Some(by_kernel) = &mut self.by_kernel {
            by_kernel.score = Score::default();
        }
    }

    pub(super) fn keep_packets(&mut self) {
        self.kept = Some(Vec::new());
    }

    pub(super) fn packets(&self) -> &[PacketSeen] {
        self.kept.as_deref().unwrap_or_default()
    }

    /// How well frames are told; `None` by the card's stamps, which tell them.
    pub(super) fn score(&self) -> Option<&Score> {
        self.by_kernel.as_ref().map(|by_kernel| &by_kernel.score)
    }

    /// A packet has come, with the card's stamp.
    pub(super) fn on_packet(&mut self, now: Time, packet: Arrival) {
        self.by_card.on_packet(now, packet);
        if self.by_kernel.is_none() && self.kept.is_none() {
            return;
        }
        // A card has one interrupt for a frame, at its end.
        self.ring_at = self.ring_at.max(now).max(packet.stamp);
        let kernel = self.napi.stamp(self.ring_at);
        if let Some(kept) = &mut self.kept {
            kept.push(PacketSeen { seq: packet.seq, kernel, frame: packet.stamp });
        }
        if let Some(by_kernel) = &mut self.by_kernel {
            by_kernel.counter.on_packet(now, Arrival { stamp: kernel, ..packet });
            let is_first = by_kernel.frame.replace(packet.stamp) != Some(packet.stamp);
            by_kernel.score.on_packet(is_first, by_kernel.counter.is_first());
        }
    }

    /// A packet of another flow has come, in the frame of this stamp. A kernel does not tell its frame.
    pub(super) fn on_other(&mut self, stamp: Time) {
        self.by_card.on_others(stamp, 1);
    }

    /// What has been seen since the last report.
    pub(super) fn report(&mut self, now: Time) -> Option<Report> {
        let truth = self.by_card.report(now);
        let Some(by_kernel) = &mut self.by_kernel else { return truth };
        let estimated = by_kernel.counter.report(now);
        if let (Some(estimated), Some(truth)) = (estimated, truth) {
            by_kernel.score.on_report(estimated.level, truth.level);
        }
        estimated
    }
}
