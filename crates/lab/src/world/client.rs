//! A client of a downlink. It counts packets per frame, by the network card's timestamps or by
//! those of its kernel.
//!
//! The lab knows both, so that a client that counts by its kernel's timestamps can be compared with
//! the truth.

use freshline_core::unit::Time;
use freshline_core::wlan::estimator::KernelCounter;
use freshline_core::wlan::{Aggregation, AggregationParams, Arrival, LevelCounter, Napi, Report};

/// Counts packets per frame.
#[derive(Debug)]
pub struct Client {
    by_card: Aggregation,
    /// When the card last passed a frame to the kernel.
    ring_at: Time,
    napi: Napi,
    by_kernel: Option<ByKernel>,
    /// `None` unless packets are recorded.
    kept: Option<Vec<PacketSeen>>,
}

/// Counts by the kernel's timestamps, and is compared with the truth.
#[derive(Debug)]
struct ByKernel {
    counter: KernelCounter,
    /// The frame of the last packet.
    frame: Option<Time>,
    score: Score,
}

/// A received packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketSeen {
    /// The sender's sequence number.
    pub seq: u64,
    /// When the kernel received it.
    pub kernel: Time,
    /// When its frame arrived, by the network card's timestamp.
    pub frame: Time,
}

/// The accuracy of detected frames and levels.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Score {
    /// True positives: first packets that were detected as such.
    found: f64,
    /// False positives: other packets that were taken for first ones.
    wrong: f64,
    /// False negatives: first packets that were not detected.
    missed: f64,
    reports: f64,
    accuracy: f64,
    /// The sum of the squared errors of levels.
    squares: f64,
}

impl Score {
    /// The F1 score of first packets; `None` without any.
    pub(super) fn f1(&self) -> Option<f64> {
        let all = 2.0 * self.found + self.wrong + self.missed;
        (all > 0.0).then(|| 2.0 * self.found / all)
    }

    /// The mean over reports of 1 − |N̂ − N|/N, not below 0; `None` without reports.
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
    /// Counts by the card's timestamps. The kernel's timestamps exist as well, for recorded
    /// packets.
    pub fn by_card(napi: Napi) -> Self {
        let by_card = Aggregation::new(AggregationParams::default());
        Self { by_card, ring_at: Time::ZERO, napi, by_kernel: None, kept: None }
    }

    /// Counts by the kernel's timestamps.
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

    /// The accuracy of detected frames; `None` for a client with the card's timestamps, which are
    /// exact.
    pub(super) fn score(&self) -> Option<&Score> {
        self.by_kernel.as_ref().map(|by_kernel| &by_kernel.score)
    }

    /// A packet has arrived, with the card's timestamp.
    pub(super) fn on_packet(&mut self, now: Time, packet: Arrival) {
        self.by_card.on_packet(now, packet);
        if self.by_kernel.is_none() && self.kept.is_none() {
            return;
        }
        // A card raises one interrupt per frame, at its end.
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

    /// A packet of another flow has arrived, in the frame with this timestamp. The kernel's
    /// timestamps do not identify its frame.
    pub(super) fn on_other(&mut self, stamp: Time) {
        self.by_card.on_others(stamp, 1);
    }

    /// The measurements since the last report.
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
