//! Rate control: a fixed mode, or the one with the highest expected throughput (Minstrel).
//!
//! Minstrel (Fietkau and Smithies, in Linux mac80211) chooses by trial: for each mode, it estimates
//! the probability that a frame is received, and from it the expected throughput. Most frames are
//! sent in the best mode; one in ten samples another mode, so that the estimates stay current. A
//! failed frame is sent again in ever safer modes:
//!
//! ```text
//! best throughput ×2 ─► second best ×2 ─► most probable ×2 ─► slowest
//! ```
//!
//! # Where Linux does more
//!
//! Linux groups the modes of HT and VHT and samples within groups, with a budget of airtime; here
//! all modes of a cell are one group, sampled with equal probability.

use alloc::boxed::Box;

use rand::{Rng, RngExt};

use super::mode::Mode;
use crate::unit::{Bytes, Span, Time};

/// How stations choose among the modes of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum RateChoice {
    /// Always the fastest.
    #[default]
    Fixed,
    /// By trial.
    Minstrel,
}

/// The choice of modes for one receiver.
#[derive(Debug)]
pub(super) enum RateControl {
    /// The mode with this index.
    Fixed(usize),
    /// By trial.
    Minstrel(Minstrel),
}

impl RateControl {
    /// The choice among `modes`, which go from slow to fast and are never empty.
    pub(super) fn new(choice: RateChoice, modes: &[Mode]) -> Self {
        match choice {
            RateChoice::Fixed => Self::Fixed(modes.len() - 1),
            RateChoice::Minstrel => Self::Minstrel(Minstrel::new(modes)),
        }
    }

    /// The mode for a transmission at `now` whose first MPDU was sent `tries` times before.
    pub(super) fn choose(&mut self, now: Time, tries: u8, rng: &mut impl Rng) -> usize {
        match self {
            Self::Fixed(mode) => *mode,
            Self::Minstrel(minstrel) => minstrel.choose(now, tries, rng),
        }
    }

    /// Of `sent` MPDUs in `mode`, `received` were received.
    pub(super) fn report(&mut self, mode: usize, sent: usize, received: usize) {
        if let Self::Minstrel(minstrel) = self {
            minstrel.report(mode, sent, received);
        }
    }
}

/// The interval between updates of the estimates.
const INTERVAL: Span = Span::from_millis(100);
/// The weight of the old estimate against the last interval.
const MEMORY: f64 = 0.75;
/// The share of frames that sample another mode.
const LOOKAROUND: f64 = 0.1;
/// The number of attempts in each mode of the retry chain.
const TRIES: u8 = 2;
/// A mode with a lower probability of success counts as useless, however fast.
const MIN_PROBABILITY: f64 = 0.1;
/// A higher probability of success is not rewarded.
const SAFE_PROBABILITY: f64 = 0.9;
/// The size of the reference frame with which modes are compared.
const REFERENCE: Bytes = Bytes::new(1200);

/// The state of the choice by trial.
#[derive(Debug)]
pub(super) struct Minstrel {
    trials: Box<[Trial]>,
    best: usize,
    second: usize,
    max_probability: usize,
    /// The modes for the frame that is being sent, from its first to its last attempts.
    chain: [usize; 4],
    renewal: Time,
}

/// The statistics of one mode.
#[derive(Debug)]
struct Trial {
    /// The airtime of the reference frame.
    airtime: Span,
    /// The probability that a frame is received, once the mode was sampled.
    probability: Option<f64>,
    sent: u64,
    received: u64,
}

impl Trial {
    fn promise(&self) -> f64 {
        match self.probability {
            Some(p) if p >= MIN_PROBABILITY => p.min(SAFE_PROBABILITY) / self.airtime.as_secs_f64(),
            _ => 0.0,
        }
    }

    fn renew(&mut self) {
        if self.sent > 0 {
            let new = self.received as f64 / self.sent as f64;
            let mixed = |old| MEMORY * old + (1.0 - MEMORY) * new;
            self.probability = Some(self.probability.map_or(new, mixed));
            (self.sent, self.received) = (0, 0);
        }
    }
}

impl Minstrel {
    fn new(modes: &[Mode]) -> Self {
        let trial = |mode: &Mode| Trial {
            airtime: mode.duration(REFERENCE),
            probability: None,
            sent: 0,
            received: 0,
        };
        Self {
            trials: modes.iter().map(trial).collect(),
            best: 0,
            second: 0,
            max_probability: 0,
            chain: [0; 4],
            renewal: Time::ZERO + INTERVAL,
        }
    }

    fn choose(&mut self, now: Time, tries: u8, rng: &mut impl Rng) -> usize {
        if now >= self.renewal {
            self.renewal = now + INTERVAL;
            self.renew();
        }
        if tries == 0 {
            self.chain = [self.best, self.second, self.max_probability, 0];
            if rng.random::<f64>() < LOOKAROUND {
                let sample = rng.random_range(0..self.trials.len());
                // A slower mode is sampled only after the best one has failed.
                let place = usize::from(sample < self.best);
                self.chain[1] = self.best;
                self.chain[place] = sample;
            }
        }
        self.chain[usize::from(tries / TRIES).min(self.chain.len() - 1)]
    }

    fn report(&mut self, mode: usize, sent: usize, received: usize) {
        self.trials[mode].sent += sent as u64;
        self.trials[mode].received += received as u64;
    }

    fn renew(&mut self) {
        self.trials.iter_mut().for_each(Trial::renew);
        let promise = |mode: &usize| self.trials[*mode].promise();
        let probability = |mode: &usize| self.trials[*mode].probability.unwrap_or(0.0);
        let modes = || 0..self.trials.len();
        let by =
            |value: &dyn Fn(&usize) -> f64, a: &usize, b: &usize| value(a).total_cmp(&value(b));
        self.best = modes().max_by(|a, b| by(&promise, a, b).then(b.cmp(a))).unwrap_or(0);
        let others = modes().filter(|mode| *mode != self.best);
        self.second = others.max_by(|a, b| by(&promise, a, b).then(b.cmp(a))).unwrap_or(0);
        self.max_probability = modes().max_by(|a, b| by(&probability, a, b)).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::BitRate;
    use crate::wlan::mac::Standard;
    use alloc::vec::Vec;
    use rand_pcg::Pcg64;

    const RATES: [u64; 8] = [6, 9, 12, 18, 24, 36, 48, 54];

    fn minstrel() -> Minstrel {
        let mode = |mbit| Mode::legacy(Standard::A, BitRate::from_mbps(mbit)).unwrap();
        Minstrel::new(&RATES.map(mode))
    }

    /// Ten seconds of frames every ms over a channel that carries modes up to `limit`: the choice
    /// of the last second, by mode.
    fn learn(minstrel: &mut Minstrel, limit: usize) -> [u32; 8] {
        let (rng, mut chosen) = (&mut Pcg64::new(3, 3), [0; 8]);
        for millis in 0..10_000 {
            for tries in 0..7 {
                let now = Time::ZERO + Span::from_millis(millis);
                let mode = minstrel.choose(now, tries, rng);
                chosen[mode] += u32::from(millis >= 9_000 && tries == 0);
                minstrel.report(mode, 1, usize::from(mode <= limit));
                if mode <= limit {
                    break;
                }
            }
        }
        chosen
    }

    #[test]
    fn the_fastest_mode_that_gets_through_is_found() {
        for limit in [0, 3, 7] {
            let chosen = learn(&mut minstrel(), limit);
            assert!(chosen[limit] > 850, "{} Mbit/s: {chosen:?}", RATES[limit]);
        }
    }

    #[test]
    fn a_frame_that_fails_is_sent_again_in_safer_modes() {
        let mut minstrel = minstrel();
        learn(&mut minstrel, 4);
        minstrel.chain = [minstrel.best, minstrel.second, minstrel.max_probability, 0];
        let rng = &mut Pcg64::new(1, 1);
        let modes: Vec<_> = (1..8).map(|tries| minstrel.choose(Time::ZERO, tries, rng)).collect();
        assert_eq!((modes[0], modes[1], modes[2]), (4, 3, 3));
        assert_eq!((modes[5], modes[6]), (0, 0));
    }

    #[test]
    fn a_channel_that_worsens_is_noticed() {
        let mut minstrel = minstrel();
        learn(&mut minstrel, 7);
        minstrel.renewal = Time::ZERO;
        assert!(learn(&mut minstrel, 2)[2] > 850);
    }
}
