//! Estimates of a source from acks alone (Shreedhar, PhD thesis, section 3.7, Figure 3.10).
//!
//! ```text
//! srtt               ← (1 − α)·srtt + α·rtt          rtt = now − sent_at − hold
//! inter_delivery Z   ← (1 − α)·Z + α·gap             gap between fresh arrivals at the monitor
//! ```
//!
//! and the means of age and backlog over an epoch, which are in `epoch`.
//!
//! Where the papers are silent: an ack that is not fresher than all before changes nothing here.
//!
//! Where we differ from the papers, with [`Params::departure`]:
//! - An epoch's backlog is the one that its acknowledged updates met when they left, and losses are
//!   bridged: see `epoch`.
//! - The gap is taken from the monitor's own clock, which the ack carries, and shared among the
//!   fresh updates in between. The ACP+ paper (section II) approximates it by the gap between acks,
//!   to which the reverse path adds its jitter and each lost ack a doubling. [`GapSource`] selects.
//! - Z is never less than the time since the last fresh ack: when acks stop, Z grows. The papers
//!   have the moving average alone. [`Silence`] selects.

use super::Ack;
use super::epoch::{Averages, Backlog, Epoch, Losses};
use crate::unit::{Span, Time};

/// Which gaps give the inter-delivery time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum GapSource {
    /// Between arrivals of fresh updates, on the monitor's clock.
    Monitor,
    /// Between arrivals of fresh acks, on the source's clock, as in the papers.
    #[default]
    Acks,
}

/// Whether the time since the last fresh ack counts as a gap while it lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Silence {
    /// Z is at least the time since the last fresh ack.
    Counts,
    /// Z is the moving average of complete gaps alone, as in the papers.
    #[default]
    Ignored,
}

/// A named set of estimates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Estimates {
    /// Those of the papers: age and backlog are time averages over the epoch, gaps are those
    /// between acks, and losses count as they are seen.
    #[default]
    Printed,
    /// Those of `acp+d`: the backlog is the one at departure, losses are bridged, and gaps are
    /// those of the monitor's clock.
    Departure,
}

/// How acks become age, backlog, srtt and inter-delivery time. The default is as in the papers; in
/// a file the key `estimates` chooses a set, and the other keys change single members of it.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "Choice"))]
pub struct Params {
    /// Weight α of the newest sample in srtt and Z, 0 to 1. 0.2: the authors' prototype.
    pub smoothing: f64,
    /// Which gaps give the inter-delivery time.
    pub gap_source: GapSource,
    /// Whether the time since the last fresh ack counts as a gap while it lasts.
    pub silence: Silence,
    /// How the means of age and backlog treat lost updates and acks.
    pub losses: Losses,
    /// Which backlog is compared with an epoch's age.
    pub backlog: Backlog,
}

impl Params {
    /// All members as `estimates` has them, with α = 0.2.
    pub fn of(estimates: Estimates) -> Self {
        let smoothing = 0.2;
        match estimates {
            Estimates::Printed => Self {
                smoothing,
                gap_source: GapSource::Acks,
                silence: Silence::Ignored,
                losses: Losses::AsSeen,
                backlog: Backlog::OverTime,
            },
            Estimates::Departure => Self {
                smoothing,
                gap_source: GapSource::Monitor,
                silence: Silence::Counts,
                losses: Losses::Bridged,
                backlog: Backlog::AtDeparture,
            },
        }
    }

    /// The estimates of `acp+d`: [`Estimates::Departure`].
    pub fn departure() -> Self {
        Self::of(Estimates::Departure)
    }
}

impl Default for Params {
    fn default() -> Self {
        Self::of(Estimates::default())
    }
}

/// [`Params`] as a file gives them.
#[cfg(feature = "serde")]
#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Choice {
    estimates: Option<Estimates>,
    smoothing: Option<f64>,
    gap_source: Option<GapSource>,
    silence: Option<Silence>,
    losses: Option<Losses>,
    backlog: Option<Backlog>,
}

#[cfg(feature = "serde")]
impl Choice {
    /// With the members of the set that it names, or of `default`.
    pub(super) fn or(self, default: Estimates) -> Params {
        let base = Params::of(self.estimates.unwrap_or(default));
        Params {
            smoothing: self.smoothing.unwrap_or(base.smoothing),
            gap_source: self.gap_source.unwrap_or(base.gap_source),
            silence: self.silence.unwrap_or(base.silence),
            losses: self.losses.unwrap_or(base.losses),
            backlog: self.backlog.unwrap_or(base.backlog),
        }
    }
}

#[cfg(feature = "serde")]
impl From<Choice> for Params {
    fn from(choice: Choice) -> Self {
        choice.or(Estimates::default())
    }
}

#[derive(Debug, Clone)]
pub(super) struct Estimator {
    gap_source: GapSource,
    silence: Silence,
    epoch: Epoch,
    srtt: Smoothed,
    inter_delivery: Smoothed,
    /// The freshest ack and its arrival.
    last: Option<(Time, Ack)>,
}

impl Estimator {
    pub(super) fn new(params: Params) -> Self {
        let smoothed = Smoothed { weight: params.smoothing.clamp(0.0, 1.0), value: None };
        Self {
            gap_source: params.gap_source,
            silence: params.silence,
            epoch: Epoch::new(params.losses, params.backlog),
            srtt: smoothed,
            inter_delivery: smoothed,
            last: None,
        }
    }

    pub(super) fn on_sent(&mut self, now: Time, seq: u64) {
        self.epoch.on_sent(now, seq);
    }

    /// Takes in an ack; returns its round trip, or `None` if it is not fresher than all before.
    pub(super) fn on_ack(&mut self, now: Time, ack: &Ack) -> Option<Span> {
        if self.last.is_some_and(|(_, last)| ack.seq <= last.seq) {
            return None;
        }
        let rtt = now.since(ack.sent_at) - ack.hold;
        let skipped = self.last.map_or(0, |(_, last)| ack.seq - last.seq - 1);
        self.epoch.on_ack(now, ack, skipped);
        self.srtt.add(rtt.as_secs_f64());
        if let Some((arrived_at, last)) = self.last.replace((now, *ack)) {
            let gap = match self.gap_source {
                GapSource::Monitor => {
                    // Both arrivals lie between the older one's departure and now, and no more
                    // updates can be new than were sent: one bad ack must not stop a source.
                    let gap = ack.received_at.since(last.received_at);
                    let fresh = u64::from(ack.fresh.wrapping_sub(last.fresh));
                    gap.min(now.since(last.sent_at)) / fresh.clamp(1, ack.seq - last.seq)
                }
                GapSource::Acks => now.since(arrived_at),
            };
            self.inter_delivery.add(gap.as_secs_f64());
        }
        Some(rtt)
    }

    /// Smoothed round trip.
    pub(super) fn srtt(&self) -> Option<Span> {
        self.srtt.value.map(Span::from_secs_f64)
    }

    /// Smoothed time between deliveries; where silence counts, at least the time since the last.
    pub(super) fn inter_delivery(&self, now: Time) -> Option<Span> {
        let (last_at, _) = self.last?;
        let mean = Span::from_secs_f64(self.inter_delivery.value?);
        Some(match self.silence {
            Silence::Counts => mean.max(now.since(last_at)),
            Silence::Ignored => mean,
        })
    }

    /// Ends the epoch and begins the next; `None` while nothing has been measured in it.
    pub(super) fn next_epoch(&mut self, now: Time) -> Option<Averages> {
        self.epoch.next(now)
    }
}

/// An exponentially weighted moving average that starts with its first sample.
#[derive(Debug, Clone, Copy)]
struct Smoothed {
    weight: f64,
    value: Option<f64>,
}

impl Smoothed {
    fn add(&mut self, sample: f64) {
        let old = self.value.unwrap_or(sample);
        self.value = Some(old + self.weight * (sample - old));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn ack(seq: u64, sent: u64, received: u64, fresh: u32) -> Ack {
        Ack { fresh, ..Ack::of(seq, ms(sent), ms(received)) }
    }

    #[test]
    fn a_lost_ack_does_not_look_like_a_slow_path() {
        for (gap_source, expected) in [(GapSource::Monitor, 10), (GapSource::Acks, 20)] {
            let params = Params { smoothing: 1.0, gap_source, ..Params::default() };
            let mut estimator = Estimator::new(params);
            for seq in 0..3 {
                estimator.on_sent(ms(seq * 10), seq);
            }
            // The monitor's clock runs 5 s ahead, and the ack of update 1 is lost.
            assert!(estimator.on_ack(ms(20), &ack(0, 0, 5_010, 1)).is_some());
            assert!(estimator.on_ack(ms(40), &ack(2, 20, 5_030, 3)).is_some());
            assert_eq!(estimator.inter_delivery(ms(40)), Some(Span::from_millis(expected)));
        }
    }

    #[test]
    fn a_monitor_cannot_report_a_gap_that_never_was() {
        let mut estimator = Estimator::new(Params { smoothing: 1.0, ..Params::departure() });
        estimator.on_ack(ms(20), &ack(0, 0, 10, 1));
        estimator.on_ack(ms(40), &ack(2, 20, 1_000_000, 1));
        assert_eq!(estimator.inter_delivery(ms(40)), Some(Span::from_millis(40)));
        estimator.on_ack(ms(60), &ack(4, 40, 1_000_020, 0));
        assert_eq!(estimator.inter_delivery(ms(60)), Some(Span::from_millis(10)));
    }

    #[test]
    fn silence_grows_the_inter_delivery_time_and_late_acks_change_nothing() {
        let mut estimator = Estimator::new(Params::departure());
        for seq in 0..3 {
            estimator.on_sent(ms(seq * 10), seq);
        }
        estimator.on_ack(ms(20), &ack(0, 0, 10, 1));
        estimator.on_ack(ms(40), &ack(2, 20, 30, 2));
        let before = estimator.clone();
        assert_eq!(estimator.on_ack(ms(41), &ack(1, 10, 31, 2)), None);
        assert_eq!(estimator.on_ack(ms(42), &ack(2, 20, 30, 2)), None);
        assert_eq!(estimator.inter_delivery(ms(45)), before.inter_delivery(ms(45)));
        assert_eq!(estimator.inter_delivery(ms(540)), Some(Span::from_millis(500)));
    }

    #[test]
    fn as_printed_z_is_the_average_of_gaps_between_acks_alone() {
        let mut estimator = Estimator::new(Params { smoothing: 0.5, ..Params::default() });
        estimator.on_ack(ms(20), &ack(0, 0, 10, 1));
        estimator.on_ack(ms(30), &ack(1, 10, 11, 2));
        estimator.on_ack(ms(50), &ack(2, 20, 12, 3));
        assert_eq!(estimator.inter_delivery(ms(50)), Some(Span::from_millis(15)));
        assert_eq!(estimator.inter_delivery(ms(540)), Some(Span::from_millis(15)));
    }
}
