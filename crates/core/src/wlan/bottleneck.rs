//! Locates a flow's bottleneck: the Wi-Fi, or a link before it.
//!
//! A bottleneck at the access point shows as high levels, without loss until frames are full; a
//! bottleneck on a link before it shows as loss at low levels. Hassani, MSc thesis: Achieving Low
//! Delay & High Rate in 802.11ac Edge Networks, section 4.5.
//!
//! ```text
//! P(backhaul) = 1/(1 + e^−(θ₀ + Σ θⱼ·Nⱼ + θ_S·S))       the last n levels Nⱼ, the oldest first (4.6)
//! S ← S + min(lost, burst) − drain·packets − retry·retried     for each frame, 0 ≤ S ≤ cap
//! lost = 0 before a full frame
//! ```
//!
//! S is a sequential test (Page's CUSUM, bounded on both sides). It replaces the loss L over the
//! last p packets of the thesis. S rises while more than the fraction `drain` of the packets is
//! lost and falls while fewer are, so it detects a small persistent loss and forgets a burst. Let h
//! be the S at which P is one half, in losses:
//!
//! ```text
//! a loss of p is detected after  h/(p − drain) packets            from S = 0, in the mean
//! the Wi-Fi again after          (cap − h)/drain packets, at most without loss
//! ```
//!
//! This holds while at most `burst` packets are lost before a frame: of longer runs S counts
//! `burst` packets only. With N packets per frame, losses before fewer than a fraction
//! drain·N/`burst` of the frames are not detected.
//!
//! Weights come from a file, made by training (`make train`): [`Weights::SHIPPED`] is one,
//!
//! ```toml
#![doc = include_str!("weights/bottleneck.toml")]
//! ```
//!
//! # Where the paper is silent, or this differs
//!
//! - **A sum instead of a window.** In a window of p = 100 packets a loss of 2 % is 2 packets, the
//!   same as one burst loss of a radio: the threshold of such windows must be 5 %.
//! - **Retries explain losses.** A radio that gives up packets sends many more again. Retries are
//!   visible in frames as they were on the air: they arrive after later packets. With loss
//!   probability q per attempt and t attempts, a radio gives up q^(t−1) packets for each packet
//!   saved by a retry; `retry` covers these losses.
//! - **Unknown.** Before n frames and `packets` packets there is no result. Nor can there be one
//!   for a flow whose losses are unknown: at a low rate, levels are low in any case. The caller
//!   must not hand in frames of such a flow. A probability of exactly one half counts as the
//!   backhaul.
//! - **Levels have one weight**, θⱼ = θ, which is negative: only their mean counts. With separate
//!   weights, training on nearly equal levels produces weights of both signs, so that differences
//!   between frames decide. With one weight, P falls with every level, and a flow without loss is
//!   never located behind a slow backhaul as long as θ₀ + n·θ < 0.
//! - **Levels are of the frame**, with the packets of other flows to the same station; the loss is the
//!   flow's own.
//! - **Losses of full frames do not count.** An access point drops packets when its queue is full,
//!   and then its frames are full. A linear classifier of levels and losses cannot distinguish a
//!   loss of a third there from a loss of a tenth on a busy link; in the thesis hardly any setting
//!   has losses at the access point. A frame is full from [`Weights::full`] packets on, below Nmax:
//!   packets sent again take places in frames. If Nmax differs from the training's,
//!   [`Weights::for_frames_of`] scales it in proportion.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

/// The place of the smallest rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bottleneck {
    /// The hop over Wi-Fi.
    Wireless,
    /// A link before it.
    Backhaul,
}

/// A trained classifier.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Weights {
    /// The version of this form: 2.
    pub version: u32,
    /// θ of the last n levels, per packet per frame, the oldest first; n is 1 to 64.
    pub levels: Vec<f64>,
    /// θ_S.
    pub loss: f64,
    /// θ₀.
    pub intercept: f64,
    /// The number of packets before the first result, 1 to 65536.
    pub packets: u32,
    /// The maximum number of packets lost before one frame that S counts, at least 1.
    #[cfg_attr(feature = "serde", serde(default))]
    pub burst: u32,
    /// The fraction of lost packets at which S does not change, 0 to 1, both excluded.
    #[cfg_attr(feature = "serde", serde(default))]
    pub drain: f64,
    /// The decrease of S per packet that was sent again, 0 or more.
    #[cfg_attr(feature = "serde", serde(default))]
    pub retry: f64,
    /// The largest S, above 0.
    #[cfg_attr(feature = "serde", serde(default))]
    pub cap: f64,
    /// The number of packets from which on a frame is full, at least 1; losses before a full frame
    /// do not count.
    pub full: u32,
    /// Nmax of the training: the maximum number of packets per frame, at least `full`. 64 if unset.
    #[cfg_attr(feature = "serde", serde(default = "usual_most"))]
    pub most: u32,
    /// How the numbers were trained.
    pub training: Training,
}

/// Nmax of the first trainings, whose files lack it.
#[cfg(feature = "serde")]
const fn usual_most() -> u32 {
    64
}

/// How weights were trained, so that the training can be repeated.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Training {
    /// A description of the data.
    pub data: String,
    /// The seed of the random numbers.
    pub seed: u64,
    /// The number of samples.
    pub samples: u64,
    /// The F1 score in cross-validation, 0 to 1.
    pub f1: f64,
}

/// Invalid weights.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LocatorError {
    /// Another version.
    #[error("these weights are of version {0}, but only version 2 is known; train them again")]
    Version(u32),
    /// A count out of its range.
    #[error("{count} {what}: give 1 to {most}")]
    Count {
        /// The kind of number.
        what: &'static str,
        /// The number given.
        count: usize,
        /// The maximum number.
        most: usize,
    },
    /// Infinity, or not a number.
    #[error("`{0}` has a weight that is not finite; train them again")]
    NotFinite(&'static str),
    /// A setting of the sum out of its range.
    #[error("`{what}` is {value}: give {range}")]
    Range {
        /// The setting.
        what: &'static str,
        /// Its value.
        value: f64,
        /// Its range.
        range: &'static str,
    },
}

/// One frame, and the packets known to be lost before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameSeen {
    /// Packets in it, as [`Aggregation`](super::Aggregation) counts them, of all flows.
    pub level: u32,
    /// Those of other flows among them.
    pub others: u32,
    /// Packets that were lost since the frame before it.
    pub lost: u32,
    /// Packets of the flow in it that the radio had to send again, as far as visible: they arrived
    /// after later ones.
    pub retried: u32,
}

/// Follows one flow. Nothing is allocated once it is made.
#[derive(Debug, Clone)]
pub struct Locator {
    weights: Weights,
    /// The last n levels, the oldest first.
    levels: VecDeque<f64>,
    /// S.
    losses: f64,
    /// Packets that came or were lost, up to [`Weights::packets`].
    packets: u32,
}

impl Weights {
    /// The shipped weights, as TOML.
    pub const SHIPPED: &str = include_str!("weights/bottleneck.toml");

    /// The same for frames of up to `most` packets: [`Weights::full`] is scaled in proportion.
    #[must_use]
    pub fn for_frames_of(self, most: u32) -> Self {
        let full = u64::from(self.full) * u64::from(most) / u64::from(self.most.max(1));
        Self {
            full: u32::try_from(full).unwrap_or(u32::MAX).clamp(1, most.max(2)).max(2),
            most,
            ..self
        }
    }

    /// The same if retries are not visible, as in the order and at the times at which a kernel
    /// receives packets. It assumes that a fifth of the packets were sent again, so that a radio's
    /// losses are not a false alarm; smaller losses of a backhaul are then not detected.
    #[must_use]
    pub fn without_retries(self) -> Self {
        Self { drain: (self.drain + 0.2 * self.retry).min(0.5), retry: 0.0, ..self }
    }

    /// A locator in its initial state.
    pub fn build(self) -> Result<Locator, LocatorError> {
        if self.version != 2 {
            return Err(LocatorError::Version(self.version));
        }
        let packets = self.packets as usize;
        for (what, count, most) in [
            ("weights of `levels`", self.levels.len(), 64),
            ("`packets`", packets, 65_536),
            ("`burst`", self.burst as usize, 65_536),
            ("`full`", self.full as usize, self.most as usize),
        ] {
            if !(1..=most).contains(&count) {
                return Err(LocatorError::Count { what, count, most });
            }
        }
        let finite = |field, is_finite: bool| {
            if is_finite { Ok(()) } else { Err(LocatorError::NotFinite(field)) }
        };
        finite("levels", self.levels.iter().all(|weight| weight.is_finite()))?;
        finite("loss", self.loss.is_finite())?;
        finite("intercept", self.intercept.is_finite())?;
        let within = |what, value: f64, is_within: bool, range| {
            if is_within { Ok(()) } else { Err(LocatorError::Range { what, value, range }) }
        };
        let Self { drain, retry, cap, .. } = self;
        within("drain", drain, drain > 0.0 && drain < 1.0, "a fraction above 0 and below 1")?;
        within("retry", retry, retry >= 0.0 && retry.is_finite(), "0 or more")?;
        within("cap", cap, cap > 0.0 && cap.is_finite(), "more than 0")?;
        let levels = VecDeque::with_capacity(self.levels.len());
        Ok(Locator { levels, losses: 0.0, packets: 0, weights: self })
    }
}

impl Locator {
    /// A frame was received.
    pub fn on_frame(&mut self, frame: FrameSeen) {
        if self.levels.len() == self.weights.levels.len() {
            self.levels.pop_front();
        }
        self.levels.push_back(f64::from(frame.level));
        let Weights { full, burst, drain, retry, cap, packets, .. } = self.weights;
        let own = frame.level.saturating_sub(frame.others);
        let lost = if frame.level < full { frame.lost } else { 0 };
        let rises = f64::from(lost.min(burst));
        let falls = drain * f64::from(own) + retry * f64::from(frame.retried);
        self.losses = (self.losses + rises - falls).clamp(0.0, cap);
        self.packets = self.packets.saturating_add(own).saturating_add(lost).min(packets);
    }

    /// The probability that the bottleneck is the backhaul, 0 to 1; `None` before n levels and
    /// [`Weights::packets`] packets.
    pub fn backhaul_probability(&self) -> Option<f64> {
        if self.levels.len() < self.weights.levels.len() || self.packets < self.weights.packets {
            return None;
        }
        let weighed = self.weights.levels.iter().zip(&self.levels).map(|(w, n)| w * n);
        let sum = self.weights.intercept + weighed.sum::<f64>() + self.weights.loss * self.losses;
        Some(1.0 / (1.0 + libm::exp(-sum)))
    }

    /// The place of the bottleneck; `None` as long as its probability is.
    pub fn bottleneck(&self) -> Option<Bottleneck> {
        let probability = self.backhaul_probability()?;
        Some(if probability >= 0.5 { Bottleneck::Backhaul } else { Bottleneck::Wireless })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    /// Numbers that follow (4.6) as its text does: high levels say Wi-Fi, loss says backhaul.
    fn weights() -> Weights {
        let training = Training { data: "none".to_string(), seed: 0, samples: 0, f1: 0.0 };
        Weights {
            version: 2,
            levels: alloc::vec![-0.1; 5],
            loss: 5.0,
            intercept: 2.0,
            packets: 100,
            burst: 4,
            drain: 0.02,
            retry: 0.25,
            cap: 8.0,
            full: 48,
            most: 64,
            training,
        }
    }

    #[test]
    fn nothing_is_said_before_enough_was_seen() {
        let mut locator = weights().build().unwrap();
        for _ in 0..4 {
            locator.on_frame(FrameSeen { level: 25, others: 0, lost: 0, retried: 0 });
            assert_eq!(locator.bottleneck(), None);
        }
        locator.on_frame(FrameSeen { level: 25, others: 0, lost: 0, retried: 0 });
        // 2 − 12.5.
        let probability = locator.backhaul_probability().unwrap();
        assert!((probability - 1.0 / (1.0 + libm::exp(10.5))).abs() < 1e-15, "{probability}");
        assert_eq!(locator.bottleneck(), Some(Bottleneck::Wireless));
    }

    #[test]
    fn it_follows_the_bottleneck_as_that_moves() {
        let mut locator = weights().build().unwrap();
        for _ in 0..10 {
            locator.on_frame(FrameSeen { level: 40, others: 0, lost: 0, retried: 0 });
        }
        assert_eq!(locator.bottleneck(), Some(Bottleneck::Wireless));
        for _ in 0..5 {
            locator.on_frame(FrameSeen { level: 2, others: 0, lost: 2, retried: 0 });
        }
        // 2 − 1 + 5 · 8.
        assert_eq!(locator.bottleneck(), Some(Bottleneck::Backhaul));
    }

    #[test]
    fn what_a_full_access_point_drops_is_not_taken_for_a_busy_link() {
        let mut locator = weights().build().unwrap();
        for _ in 0..10 {
            locator.on_frame(FrameSeen { level: 48, others: 0, lost: 40, retried: 0 });
        }
        let probability = locator.backhaul_probability().unwrap();
        // 2 − 24, whatever was lost.
        assert!((probability - 1.0 / (1.0 + libm::exp(22.0))).abs() < 1e-15, "{probability}");
        for _ in 0..5 {
            locator.on_frame(FrameSeen { level: 10, others: 0, lost: 10, retried: 0 });
        }
        assert_eq!(locator.bottleneck(), Some(Bottleneck::Backhaul));
    }

    #[test]
    fn full_frames_follow_nmax_and_losses_are_of_the_flows_own_packets() {
        let long = weights().for_frames_of(128);
        assert_eq!((long.full, long.most), (96, 128));
        // Two flows in frames of 60 packets, of which one loses 2 of its 32: 1.4 more a frame.
        let mut locator = long.build().unwrap();
        for _ in 0..5 {
            locator.on_frame(FrameSeen { level: 60, others: 30, lost: 2, retried: 0 });
        }
        assert!((locator.losses - 7.0).abs() < 1e-9, "{}", locator.losses);
        // With frames of up to 64, these are full, and the access point drops.
        let mut locator = weights().build().unwrap();
        for _ in 0..10 {
            locator.on_frame(FrameSeen { level: 60, others: 30, lost: 2, retried: 0 });
        }
        assert_eq!(locator.bottleneck(), Some(Bottleneck::Wireless));
    }

    /// Frames of 10 packets until the answer is `sought`, with `lost` packets before every
    /// `each`th.
    fn frames_until(locator: &mut Locator, sought: Bottleneck, lost: u32, each: u32) -> u32 {
        (0..10_000)
            .find(|at| {
                let lost = if at % each == each - 1 { lost } else { 0 };
                locator.on_frame(FrameSeen { level: 10, others: 0, lost, retried: 0 });
                locator.bottleneck() == Some(sought)
            })
            .expect("an answer")
    }

    #[test]
    fn delays_of_detection_are_those_of_the_header() {
        // At level 10, P is one half at 2 − 5 + 5·S = 0.
        let half = 0.6;
        let mut locator = weights().build().unwrap();
        for _ in 0..10 {
            locator.on_frame(FrameSeen { level: 10, others: 0, lost: 0, retried: 0 });
        }
        // A packet in 25 is lost: 4 %.
        let frames = frames_until(&mut locator, Bottleneck::Backhaul, 2, 5);
        let expected = half / (0.04 - 0.02) / 10.0;
        assert!(f64::from(frames) <= expected + 5.0, "{frames} {expected}");
        for _ in 0..1000 {
            locator.on_frame(FrameSeen { level: 10, others: 0, lost: 4, retried: 0 });
        }
        let frames = frames_until(&mut locator, Bottleneck::Wireless, 0, 1);
        let expected = (8.0 - half) / 0.02 / 10.0;
        assert!((f64::from(frames) - expected).abs() < 3.0, "{frames} {expected}");
    }

    #[test]
    fn bursts_are_forgotten_and_retries_explain_losses() {
        let mut locator = Weights { intercept: -10.0, ..weights() }.build().unwrap();
        let frame = |lost, retried| FrameSeen { level: 10, others: 0, lost, retried };
        for _ in 0..20 {
            locator.on_frame(frame(0, 0));
        }
        // 20 packets in one go, and 1 % now and then.
        locator.on_frame(frame(20, 0));
        for at in 0..1000 {
            locator.on_frame(frame(u32::from(at % 10 == 0), 0));
        }
        assert_eq!(locator.bottleneck(), Some(Bottleneck::Wireless));
        assert!(locator.losses < 2.0, "{}", locator.losses);
        // 5 % of losses, of a radio that sends a fifth of its packets again.
        for at in 0..1000 {
            locator.on_frame(frame(u32::from(at % 2 == 0), 2));
        }
        assert_eq!(locator.bottleneck(), Some(Bottleneck::Wireless));
        for at in 0..1000 {
            locator.on_frame(frame(u32::from(at % 2 == 0), 0));
        }
        assert_eq!(locator.bottleneck(), Some(Bottleneck::Backhaul));
        // Where retries do not show, 5 % may be the radio's: 0.02 + 0.2 · 0.25 are drained.
        let weights = Weights { intercept: -10.0, ..weights() }.without_retries();
        let mut locator = weights.build().unwrap();
        for at in 0..1000 {
            locator.on_frame(frame(u32::from(at % 2 == 0), 0));
        }
        assert_eq!(locator.bottleneck(), Some(Bottleneck::Wireless));
    }

    #[cfg(feature = "serde")]
    #[test]
    fn the_weights_that_ship_fall_with_levels_and_need_loss_for_a_backhaul() {
        let weights: Weights = toml::from_str(Weights::SHIPPED).unwrap();
        assert!(weights.levels.iter().all(|weight| *weight < 0.0), "{weights:?}");
        assert!(weights.loss > 0.0, "{weights:?}");
        // The lowest levels that there are, without loss.
        let most = weights.intercept + weights.levels.iter().sum::<f64>();
        assert!(most < 0.0, "{most}");
        // The last five frames after the same losses: the higher their level, the less the
        // backhaul.
        let probability = |level: u32| {
            let mut locator = weights.clone().build().unwrap();
            for _ in 0..100 {
                locator.on_frame(FrameSeen { level: 20, others: 0, lost: 1, retried: 0 });
            }
            locator.levels.iter_mut().for_each(|last| *last = f64::from(level));
            locator.backhaul_probability().unwrap()
        };
        assert!((1..128).all(|level| probability(level) >= probability(level + 1)));
        assert!(probability(1) > probability(64));
    }

    #[cfg(feature = "serde")]
    #[test]
    fn the_weights_that_come_along_say_what_their_training_says() {
        let weights: Weights = toml::from_str(Weights::SHIPPED).unwrap();
        assert_eq!((weights.levels.len(), weights.packets), (5, 100));
        let mut locator = weights.build().unwrap();
        // Written by tools/wlan/locator.py, which calculates with numpy.
        let example = include_str!("weights/bottleneck.example.csv");
        let mut compared = 0;
        for line in example.lines().skip(1) {
            let fields: Vec<&str> = line.split(',').collect();
            let [level, others, lost, retried] = [0, 1, 2, 3].map(|at| fields[at].parse().unwrap());
            locator.on_frame(FrameSeen { level, others, lost, retried });
            let ours = locator.backhaul_probability();
            match (ours, fields[4]) {
                (None, "") => {}
                (Some(ours), theirs) => {
                    let theirs: f64 = theirs.parse().unwrap();
                    assert!((ours - theirs).abs() < 1e-9, "{line}: {ours}");
                    compared += 1;
                }
                (None, _) => panic!("{line}: nothing is said"),
            }
        }
        assert!(compared > 150, "{compared}");
    }

    #[test]
    fn weights_that_are_no_classifier_are_refused() {
        let error = |weights: Weights| weights.build().unwrap_err();
        assert_eq!(error(Weights { version: 1, ..weights() }), LocatorError::Version(1));
        let none = error(Weights { levels: Vec::new(), ..weights() });
        assert_eq!(none.to_string(), "0 weights of `levels`: give 1 to 64");
        let none = error(Weights { packets: 0, ..weights() });
        assert_eq!(none.to_string(), "0 `packets`: give 1 to 65536");
        let none = error(Weights { full: 0, ..weights() });
        assert_eq!(none.to_string(), "0 `full`: give 1 to 64");
        let wild = error(Weights { loss: f64::NAN, ..weights() });
        assert_eq!(wild, LocatorError::NotFinite("loss"));
        let still = error(Weights { drain: 0.0, ..weights() });
        assert_eq!(still.to_string(), "`drain` is 0: give a fraction above 0 and below 1");
        for broken in [
            Weights { drain: f64::NAN, ..weights() },
            Weights { retry: -1.0, ..weights() },
            Weights { cap: f64::INFINITY, ..weights() },
        ] {
            assert!(matches!(error(broken), LocatorError::Range { .. }));
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn weights_in_a_file_read_back_as_they_were_written() {
        let text = toml::to_string(&weights()).unwrap();
        assert_eq!(toml::from_str::<Weights>(&text).unwrap(), weights());
        assert!(toml::from_str::<Weights>(&text.replace("version = 2\n", "")).is_err());
    }

    proptest! {
        #[test]
        fn higher_levels_and_more_retries_never_make_a_backhaul_more_likely(
            frames in prop::collection::vec((1..64_u32, 0..6_u32, 0..4_u32, 0..20_u32, 0..4_u32), 20..80),
        ) {
            let [mut lower, mut higher] = [weights().build().unwrap(), weights().build().unwrap()];
            for (level, lost, retried, more, again) in frames {
                lower.on_frame(FrameSeen { level, others: 0, lost, retried });
                let (level, retried) = (level + more, retried + again);
                higher.on_frame(FrameSeen { level, others: 0, lost, retried });
                if let (Some(low), Some(high)) =
                    (lower.backhaul_probability(), higher.backhaul_probability())
                {
                    prop_assert!(high <= low, "{high} {low}");
                }
            }
        }

        #[test]
        fn whatever_is_seen_it_is_a_probability(
            frames in prop::collection::vec((any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>()), 0..50),
        ) {
            let mut locator = weights().build().unwrap();
            for (level, others, lost, retried) in frames {
                locator.on_frame(FrameSeen { level, others, lost, retried });
                if let Some(probability) = locator.backhaul_probability() {
                    prop_assert!((0.0..=1.0).contains(&probability));
                }
            }
        }
    }
}
