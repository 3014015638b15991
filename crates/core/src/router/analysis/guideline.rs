//! The guideline: computes the share γ of updates for a wanted age or throughput.

use core::ops::Range;

use super::bottleneck::Model;
use super::{Bottleneck, ModelError, Prediction};
use crate::router::{AoiShare, SchedulerParams};
use crate::unit::{BitRate, Span};

/// The target for a bottleneck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// At most this mean age, with maximum drop-averse throughput.
    AgeAtMost(Span),
    /// At least this drop-averse throughput, with all headers, and with minimum age.
    ThroughputAtLeast(BitRate),
}

/// A share that meets the target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Suggestion {
    /// γ: the share of updates, above 0.
    pub share: AoiShare,
    /// Its result.
    pub prediction: Prediction,
}

/// A target that no share meets.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SuggestError {
    /// The model does not apply.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The age is below the minimum.
    #[error(
        "no share brings the mean age down to {wanted}: with the largest share it is {least}; wish \
         for {least} or more"
    )]
    TooFresh {
        /// The age asked for.
        wanted: Span,
        /// The minimum age.
        least: Span,
    },
    /// The throughput is above the maximum.
    #[error(
        "no share leaves drop-averse traffic {wanted} and updates anything: wish for {most} or less"
    )]
    TooMuch {
        /// The throughput asked for.
        wanted: BitRate,
        /// The maximum throughput.
        most: BitRate,
    },
}

impl Bottleneck {
    /// The share γ that meets `wish`, to a millionth.
    ///
    /// Under SDM all shares above the transition point have the same result. The one returned keeps
    /// some distance from that point: it still suffices if the update period is shorter by the
    /// transmission time of a drop-averse packet, and by at least 1 %.
    pub fn suggest(
        &self,
        scheduler: SchedulerParams,
        wish: Wish,
    ) -> Result<Suggestion, SuggestError> {
        let model = Model::new(self, scheduler)?;
        let (least, most) = model.shares();
        let (least, most) = (at_least(least).max(1), at_most(most));
        // If there is no share, this one gives the reason.
        let strict = self.predict(scheduler, share(most.max(1)))?;
        let predicted = |millionths: u32| model.prediction(share(millionths));
        let found = match wish {
            Wish::AgeAtMost(wanted) if wanted < strict.age => {
                return Err(SuggestError::TooFresh { wanted, least: strict.age });
            }
            Wish::AgeAtMost(wanted) => {
                first_that(least..most, |share| predicted(share).age <= wanted)
            }
            Wish::ThroughputAtLeast(wanted) => {
                let available = predicted(least).drop_averse;
                if wanted > available {
                    return Err(SuggestError::TooMuch { wanted, most: available });
                }
                first_that(least..most, |share| predicted(share + 1).drop_averse < wanted)
            }
        };
        let clear = model.clear_of_the_transition(share(found));
        let share = share(clear.map_or(found, at_least));
        Ok(Suggestion { share, prediction: model.prediction(share) })
    }
}

const MILLIONTHS: u32 = 1_000_000;

fn share(millionths: u32) -> AoiShare {
    let share = f64::from(millionths) / f64::from(MILLIONTHS);
    AoiShare::new(share).unwrap_or(AoiShare::ONE)
}

/// The minimum number of millionths that make `share`.
fn at_least(share: f64) -> u32 {
    libm::ceil(share * f64::from(MILLIONTHS)) as u32
}

/// The maximum number of millionths within `share`.
fn at_most(share: f64) -> u32 {
    libm::floor(share * f64::from(MILLIONTHS)) as u32
}

/// The first number of `range` that holds, or its end; all numbers after one that holds do, too.
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
    use crate::router::analysis::PAPER;
    use crate::router::{Credit, SdmParams, TdmParams};
    use crate::unit::Bytes;
    use alloc::string::ToString;
    use proptest::prelude::*;

    const SDM: SchedulerParams = SchedulerParams::Sdm(SdmParams { credit: Credit::Unlimited });
    const TDM: SchedulerParams = tdm(Span::from_millis(100));

    const fn tdm(frame: Span) -> SchedulerParams {
        SchedulerParams::Tdm(TdmParams { frame })
    }

    #[test]
    fn a_wish_for_the_least_age_stays_clear_of_the_transition_point() {
        let wish = Wish::AgeAtMost(Span::from_millis(14));
        let suggestion = PAPER.suggest(SDM, wish).unwrap();
        // 0.8416 ms of updates in 5 − 1.2 ms.
        assert_eq!(suggestion.share, AoiShare::new(0.221_474).unwrap());
        let wish = Wish::ThroughputAtLeast(BitRate::from_mbps(8));
        assert_eq!(PAPER.suggest(SDM, wish), Ok(suggestion));
    }

    #[test]
    fn a_wish_for_throughput_is_fulfilled_to_a_millionth() {
        let wish = Wish::ThroughputAtLeast(BitRate::from_mbps(9));
        let suggestion = PAPER.suggest(SDM, wish).unwrap();
        assert_eq!(suggestion.share, AoiShare::new(0.1).unwrap());
        assert_eq!(suggestion.prediction.drop_averse, BitRate::from_mbps(9));
        assert_eq!(suggestion.prediction.age, Span::from_nanos(17_549_600));
    }

    #[test]
    fn wishes_out_of_reach_say_what_is_in_reach() {
        for scheduler in [SDM, TDM] {
            let wish = Wish::AgeAtMost(Span::from_millis(13));
            let error = PAPER.suggest(scheduler, wish).unwrap_err();
            assert!(error.to_string().contains("13.9416ms or more"), "{error}");
        }
        let wish = Wish::ThroughputAtLeast(BitRate::from_mbps(10));
        let error = PAPER.suggest(SDM, wish).unwrap_err();
        assert!(error.to_string().contains("9.99999mbit or less"), "{error}");
        let short = tdm(Span::from_micros(800));
        let error = PAPER.suggest(short, wish).unwrap_err();
        assert!(matches!(error, SuggestError::Model(ModelError::FrameTooShort { .. })), "{error}");
    }

    proptest! {
        #[test]
        fn what_is_suggested_fulfils_the_wish_and_the_next_share_does_worse(
            rate in (6.0f64..9.0).prop_map(|exponent| libm::exp10(exponent) as u64),
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
                None => SDM,
                Some(millis) => tdm(Span::from_millis(millis)),
            };
            let beside = |share: AoiShare, step: f64| {
                let beside = AoiShare::new(share.get() + step).ok()?;
                link.predict(scheduler, beside).ok()
            };
            let wanted = Span::from_millis(age);
            let wish = Wish::AgeAtMost(wanted);
            if let Ok(Suggestion { share, prediction }) = link.suggest(scheduler, wish) {
                prop_assert!(prediction.age <= wanted);
                if let Some(less) = beside(share, -1e-6) {
                    let same_throughput = less.drop_averse == prediction.drop_averse;
                    prop_assert!(less.age > wanted || same_throughput);
                }
            }
            let wanted = BitRate::from_bps((rate as f64 * throughput) as u64);
            let wish = Wish::ThroughputAtLeast(wanted);
            if let Ok(Suggestion { share, prediction }) = link.suggest(scheduler, wish) {
                prop_assert!(prediction.drop_averse >= wanted);
                if let Some(more) = beside(share, 1e-6) {
                    prop_assert!(more.drop_averse < wanted || more.age == prediction.age);
                }
            }
        }
    }
}
