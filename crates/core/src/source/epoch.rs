//! Measures the mean age and the mean backlog of a control epoch from acks (Shreedhar, PhD thesis,
//! IIIT-Delhi, section 3.7).
//!
//! ```text
//! age at the monitor ≈ now − generated_at when a fresh ack comes, growing until the next: an
//!                      upper bound, by the ack's delay             s
//! backlog            = updates sent after the freshest acknowledged one
//! ```
//!
//! Where we differ from the papers:
//!
//! *Which backlog.* The papers take the time average of the backlog over the epoch
//! ([`Backlog::OverTime`]). The age that acks show in an epoch is that of updates which left a
//! round trip ago, while the backlog of the same epoch has grown or shrunk since. With a standing
//! queue, both go up and down a quarter of a period apart, every second comparison has the wrong
//! sign, and a little timing noise keeps the queue standing for seconds. [`Backlog::AtDeparture`]
//! compares age with the backlog that the acknowledged updates met when they left.
//!
//! *Losses.* A lost update, or a lost ack, makes age and backlog rise together and fall together
//! when the next ack comes, as a queue does, and both laws answer either by sending less. On a path
//! that loses 5 % each way ACP+ sinks to a rate far below Lazy's, though no packet is queued. So a
//! gap in the acks is bridged ([`Losses::Bridged`]): the means are computed as if the k skipped
//! updates had been acknowledged evenly in between.
//!
//! ```text
//! age ▲    seen ╱│               over a gap of length L with k skipped updates, which begins at
//!     │       ╱  │               age a₀ and ends by a reset to a₁, bridging takes away
//!     │     ╱ ╱│ │╱              from the age's area       L·k/(k+1) · (L + a₀ − a₁)/2
//!     │   ╱ ╱  │╱ ╱ bridged      from the backlog's area   L·k/2
//!     └──────────────▶ t
//! ```
//!
//! On a path with recent losses, an epoch's means end with its last ack, since the rest may be half
//! a gap; elsewhere they end with the epoch, which detects a queue sooner. Losses from a full queue
//! are bridged too; such a queue shows itself by its delay. A gap in which an epoch's means end is
//! silence, and is not bridged.

use super::Ack;
use super::departures::Departures;
use crate::age::{AgeProcess, BacklogProcess, Freshness, Integral};
use crate::unit::Time;

/// How the means of age and backlog treat a gap in the acks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Losses {
    /// The skipped updates count as if they had been acknowledged evenly in between.
    Bridged,
    /// Age and backlog are taken as they were, as in the papers.
    #[default]
    AsSeen,
}

/// Which backlog is compared with an epoch's age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Backlog {
    /// The backlog at the departure of the updates that the epoch acknowledges, including
    /// themselves.
    AtDeparture,
    /// The time average over the epoch, as the papers have it.
    #[default]
    OverTime,
}

/// Means over one control epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Averages {
    /// Mean age in s.
    pub age: f64,
    /// Mean number of updates sent and not acknowledged, as [`Backlog`] has it.
    pub backlog: f64,
}

#[derive(Debug, Clone)]
pub(super) struct Epoch {
    losses: Losses,
    held_against_age: Backlog,
    age: AgeProcess,
    backlog: BacklogProcess,
    departures: Departures,
    start: Cut,
    /// Both integrals at the last ack, if there was one in this epoch.
    last_ack: Option<Cut>,
    /// When the current gap began: with the last ack, unless an epoch has ended in it.
    gap_began: Option<Time>,
    /// The area that bridging took away in this epoch: age in s², backlog in updates · s.
    bridged: (f64, f64),
    /// Epochs for which a loss is remembered.
    lossy_for: u32,
}

/// After a loss, means end with the last ack for this number of epochs. 8 epochs of ten updates: a
/// path that loses 3 % is then taken for lossy nine times in ten.
const REMEMBERED: u32 = 8;

/// Both integrals at one moment.
#[derive(Debug, Clone, Copy, Default)]
struct Cut {
    age: Integral,
    backlog: Integral,
}

impl Epoch {
    pub(super) fn new(losses: Losses, held_against_age: Backlog) -> Self {
        Self {
            losses,
            held_against_age,
            age: AgeProcess::new(),
            backlog: BacklogProcess::new(Time::ZERO),
            departures: Departures::new(),
            start: Cut::default(),
            last_ack: None,
            gap_began: None,
            bridged: (0.0, 0.0),
            lossy_for: 0,
        }
    }

    pub(super) fn on_sent(&mut self, now: Time, seq: u64) {
        self.backlog.on_sent(now, seq);
        self.departures.on_sent(now, seq);
    }

    /// A fresh ack, the first after `skipped` updates that were not acknowledged.
    pub(super) fn on_ack(&mut self, now: Time, ack: &Ack, skipped: u64) {
        let bridged = if self.losses == Losses::Bridged { skipped } else { 0 };
        if bridged > 0 {
            self.lossy_for = REMEMBERED;
            self.bridge(now, ack, bridged as f64);
        }
        self.backlog.on_ack(now, ack.seq);
        self.departures.on_ack(now, ack.seq, bridged);
        let _: Freshness = self.age.on_update(now, ack.generated_at);
        self.last_ack = Some(self.cut(now));
        self.gap_began = Some(now);
    }

    /// Ends the epoch and begins the next; `None` while nothing has been measured in it.
    pub(super) fn next(&mut self, now: Time) -> Option<Averages> {
        let start = self.start;
        let lossy = self.lossy_for > 0;
        self.lossy_for = self.lossy_for.saturating_sub(1);
        self.start = match self.last_ack.take() {
            Some(last_ack) if lossy => last_ack,
            _ => {
                self.gap_began = None;
                self.cut(now)
            }
        };
        let (age_bridged, backlog_bridged) = core::mem::take(&mut self.bridged);
        let departures = self.departures.mean();
        let length = self.start.age.at().since(start.age.at()).as_secs_f64();
        let age = self.age.mean_between(start.age, self.start.age)?.as_secs_f64();
        let over_time = BacklogProcess::mean_between(start.backlog, self.start.backlog)?;
        let backlog = match (self.held_against_age, departures) {
            (Backlog::AtDeparture, Some(mean)) => mean,
            _ => (over_time - backlog_bridged / length).max(0.0),
        };
        Some(Averages { age: (age - age_bridged / length).max(0.0), backlog })
    }

    fn bridge(&mut self, now: Time, ack: &Ack, skipped: f64) {
        let Some(gap_began) = self.gap_began else { return };
        let Some(age_then) = self.age.age(gap_began) else { return };
        let length = now.since(gap_began).as_secs_f64();
        let falls = age_then.as_secs_f64() - now.since(ack.generated_at).as_secs_f64();
        self.bridged.0 += length * skipped / (skipped + 1.0) * (length + falls).max(0.0) / 2.0;
        self.bridged.1 += length * skipped / 2.0;
    }

    fn cut(&self, now: Time) -> Cut {
        Cut { age: self.age.mark(now), backlog: self.backlog.mark(now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::Span;

    fn ms(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    /// Updates every 10 ms, each acknowledged 30 ms later but for `lost` ones; the means of the
    /// epoch that ends at 200 ms.
    fn epoch(losses: Losses, backlog: Backlog, lost: &[u64]) -> Averages {
        let mut epoch = Epoch::new(losses, backlog);
        let mut last_acked = None;
        for tick in 0..=20 {
            // At one time the ack comes before the next update leaves.
            if let Some(seq) = u64::checked_sub(tick, 3).filter(|seq| !lost.contains(seq)) {
                let ack = Ack::of(seq, ms(seq * 10), ms(0));
                epoch.on_ack(ms(tick * 10), &ack, last_acked.map_or(0, |last| seq - last - 1));
                last_acked = Some(seq);
            }
            if tick == 10 {
                epoch.next(ms(100));
            }
            epoch.on_sent(ms(tick * 10), tick);
        }
        epoch.next(ms(200)).expect("an epoch of 100 ms")
    }

    #[test]
    fn bridged_losses_leave_the_means_of_a_path_without_loss() {
        // At departure, the updates that leave in a gap are spread evenly over it: to a half.
        for (backlog, tolerance) in [(Backlog::OverTime, 1e-9), (Backlog::AtDeparture, 0.5)] {
            let whole = epoch(Losses::AsSeen, backlog, &[]);
            assert!((whole.age - 0.035).abs() < 1e-9 && (whole.backlog - 3.0).abs() < 1e-9);
            for lost in [&[9][..], &[10, 11], &[9, 12, 13, 15]] {
                let bridged = epoch(Losses::Bridged, backlog, lost);
                assert!((bridged.age - whole.age).abs() < 1e-9, "{lost:?}: {bridged:?}");
                let off = (bridged.backlog - whole.backlog).abs();
                assert!(off < tolerance, "{lost:?}: {bridged:?}");
                let seen = epoch(Losses::AsSeen, backlog, lost);
                assert!(seen.age > whole.age + 5e-4 && seen.backlog > whole.backlog + 0.05);
            }
        }
    }

    #[test]
    fn silence_is_not_bridged_and_counts_in_the_epoch_in_which_it_is() {
        let silent: alloc::vec::Vec<u64> = (5..100).collect();
        for backlog in [Backlog::OverTime, Backlog::AtDeparture] {
            let averages = epoch(Losses::Bridged, backlog, &silent);
            assert!(averages.age > 0.08 && averages.backlog > 7.0, "{averages:?}");
        }
    }
}
