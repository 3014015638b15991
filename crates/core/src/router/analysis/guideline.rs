//! The guideline: which share γ of updates gives what is wanted.

use core::ops::Range;

use super::bottleneck::Model;
use super::{Bottleneck, ModelError, Prediction, Scheduler};
use crate::unit::{BitRate, Span};

/// What is wanted of a bottleneck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// At most this mean age, and with it the most drop-averse throughput.
    AgeAtMost(Span),
    /// At least this drop-averse throughput, with all headers, and with it the least age.
    ThroughputAtLeast(BitRate),
}

/// A share that gives what was wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Suggestion {
    /// γ: the share of updates, above 0 and at most 1.
    pub share: f64,
    /// What it leads to.
    pub prediction: Prediction,
}

/// A wish that no share fulfils.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SuggestError {
    /// The model has no answer.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The age is below the least.
    #[error(
        "no share brings the mean age down to {wanted}: at a share of 1 it is {least}; wish for \
         {least} or more"
    )]
    TooFresh {
        /// The age wished for.
        wanted: Span,
        /// The least age.
        least: Span,
    },
    /// The throughput is above the most.
    #[error(
        "no share leaves drop-averse traffic {wanted} and updates anything: wish for {most} or less"
    )]
    TooMuch {
        /// The throughput wished for.
        wanted: BitRate,
        /// The most throughput.
        most: BitRate,
    },
}

impl Bottleneck {
    /// The share γ that fulfils `wish`, to a millionth.
    ///
    /// Under SDM all shares above the transition point are alike. Of these it is one that stays
    /// clear of that point: there the updates may come a drop-averse packet, and at least 1 %,
    /// sooner.
    pub fn suggest(&self, scheduler: Scheduler, wish: Wish) -> Result<Suggestion, SuggestError> {
        let strict = self.predict(scheduler, 1.0)?;
        let model = Model::new(self)?;
        let predicted = |millionths: u32| model.prediction(scheduler, share(millionths));
        let least = libm::ceil(model.least_share(scheduler)? * MILLION) as u32;
        let least = least.clamp(1, MILLIONTHS);
        let found = match wish {
            Wish::AgeAtMost(wanted) if wanted < strict.age => {
                return Err(SuggestError::TooFresh { wanted, least: strict.age });
            }
            Wish::AgeAtMost(wanted) => {
                first_that(least..MILLIONTHS, |share| predicted(share).age <= wanted)
            }
            Wish::ThroughputAtLeast(wanted) => {
                let most = predicted(least).drop_averse;
                if wanted > most {
                    return Err(SuggestError::TooMuch { wanted, most });
                }
                let too_large = |share| predicted(share + 1).drop_averse < wanted;
                first_that(least..MILLIONTHS, too_large)
            }
        };
        let chosen = match scheduler {
            Scheduler::Sdm => model.clear_of_the_transition(share(found)),
            Scheduler::Tdm { .. } => share(found),
        };
        Ok(Suggestion { share: chosen, prediction: self.predict(scheduler, chosen)? })
    }
}

const MILLIONTHS: u32 = 1_000_000;
const MILLION: f64 = MILLIONTHS as f64;

fn share(millionths: u32) -> f64 {
    f64::from(millionths) / MILLION
}

/// The first number of `range` that holds, or the end of it; all after one that holds do.
fn first_that(range: Range<u32>, holds: impl Fn(u32) -> bool) -> u32 {
    let Range { mut start, mut end } = range;
    while start < end {
        let middle = start + (end - start) / 2;
        if holds(middle) {
            end = middle;
        } else {
            start = middle + 1;
        }
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::Bytes;
    use alloc::string::ToString;
    use proptest::prelude::*;

    /// The single link of the paper's Figure 6.
    const PAPER: Bottleneck = Bottleneck {
        rate: BitRate::from_mbps(10),
        propagation: Span::from_millis(10),
        flows: 1,
        update_period: Span::from_millis(5),
        update_size: Bytes::new(1052),
        drop_averse_size: Bytes::new(1500),
    };
    const TDM: Scheduler = Scheduler::Tdm { frame: Span::from_millis(100) };

    #[test]
    fn a_wish_for_the_least_age_stays_clear_of_the_transition_point() {
        let wish = Wish::AgeAtMost(Span::from_millis(14));
        let suggestion = PAPER.suggest(Scheduler::Sdm, wish).unwrap();
        // 0.8416 ms of updates in 5 − 1.2 ms.
        assert!((suggestion.share - 0.8416 / 3.8).abs() < 1e-6, "{suggestion:?}");
        let wish = Wish::ThroughputAtLeast(BitRate::from_mbps(8));
        assert_eq!(PAPER.suggest(Scheduler::Sdm, wish), Ok(suggestion));
    }

    #[test]
    fn a_wish_for_throughput_is_fulfilled_to_a_millionth() {
        let wish = Wish::ThroughputAtLeast(BitRate::from_mbps(9));
        let suggestion = PAPER.suggest(Scheduler::Sdm, wish).unwrap();
        assert_eq!(suggestion.share, 0.1);
        assert_eq!(suggestion.prediction.drop_averse, BitRate::from_mbps(9));
        assert_eq!(suggestion.prediction.age, Span::from_nanos(17_549_600));
    }

    #[test]
    fn wishes_out_of_reach_say_what_is_in_reach() {
        for scheduler in [Scheduler::Sdm, TDM] {
            let wish = Wish::AgeAtMost(Span::from_millis(13));
            let error = PAPER.suggest(scheduler, wish).unwrap_err();
            assert!(error.to_string().contains("13.9416ms or more"), "{error}");
        }
        let wish = Wish::ThroughputAtLeast(BitRate::from_mbps(10));
        let error = PAPER.suggest(Scheduler::Sdm, wish).unwrap_err();
        assert!(error.to_string().contains("9.99999mbit or less"), "{error}");
        let short = Scheduler::Tdm { frame: Span::from_micros(800) };
        let error = PAPER.suggest(short, wish).unwrap_err();
        assert!(matches!(error, SuggestError::Model(ModelError::FrameTooShort { .. })), "{error}");
    }

    proptest! {
        #[test]
        fn what_is_suggested_fulfils_the_wish_and_the_next_share_does_worse(
            rate in 1_000_000u64..1_000_000_000,
            flows in 1u32..50,
            period in 1u64..100_000,
            size in 100u64..1500,
            frame in prop::option::of(1u64..1_000),
            age in 1u64..2_000,
            throughput in 0.0f64..1.0,
        ) {
            let link = Bottleneck {
                rate: BitRate::from_bps(rate),
                flows,
                update_period: Span::from_micros(period),
                update_size: Bytes::new(size),
                ..PAPER
            };
            let scheduler = match frame {
                None => Scheduler::Sdm,
                Some(millis) => Scheduler::Tdm { frame: Span::from_millis(millis) },
            };
            let least = Model::new(&link).unwrap().least_share(scheduler).unwrap();
            let beside = |share: f64| {
                let inside = share > least && share > 0.0 && share <= 1.0;
                inside.then(|| link.predict(scheduler, share).unwrap())
            };
            let wanted = Span::from_millis(age);
            if let Ok(Suggestion { share, prediction }) = link.suggest(scheduler, Wish::AgeAtMost(wanted)) {
                prop_assert!(prediction.age <= wanted);
                if let Some(less) = beside(share - 1e-6) {
                    let same_throughput = less.drop_averse == prediction.drop_averse;
                    prop_assert!(less.age > wanted || same_throughput);
                }
            }
            let wanted = BitRate::from_bps((rate as f64 * throughput) as u64);
            let wish = Wish::ThroughputAtLeast(wanted);
            if let Ok(Suggestion { share, prediction }) = link.suggest(scheduler, wish) {
                prop_assert!(prediction.drop_averse >= wanted);
                if let Some(more) = beside(share + 1e-6) {
                    prop_assert!(more.drop_averse < wanted || more.age == prediction.age);
                }
            }
        }
    }
}
