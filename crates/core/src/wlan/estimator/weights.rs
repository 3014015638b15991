//! Weights of the estimators, as files.
//!
//! `frames.toml` has the threshold and the logistic, `levels.toml` the support vectors. `make
//! train` writes both, with all digits, so that they read back as they were.

use alloc::vec::Vec;

use super::super::Training;

/// The weights that ship, to be read into [`FrameWeights`].
pub const FRAMES: &str = include_str!("../weights/frames.toml");

/// The support vectors that ship, to be read into [`LevelWeights`].
pub const LEVELS: &str = include_str!("../weights/levels.toml");

/// Weights of the classifiers that find the first packet of each frame.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct FrameWeights {
    /// The version of this form: 1.
    pub version: u32,
    /// The baseline.
    pub threshold: ThresholdWeights,
    /// The recommended one.
    pub logistic: LogisticWeights,
}

/// One threshold.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct ThresholdWeights {
    /// The minimum gap before the first packet of a frame, in µs.
    pub gap: f64,
    /// How it was trained.
    pub training: Training,
}

/// A logistic model.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct LogisticWeights {
    /// θ of the last m gaps, per µs, the oldest first; m is 1 to 64.
    pub gaps: Vec<f64>,
    /// θ of their deviation, per µs.
    pub deviation: f64,
    /// θ₀.
    pub intercept: f64,
    /// How the numbers were trained.
    pub training: Training,
}

/// A support vector machine for levels.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct LevelWeights {
    /// The version of this form: 1.
    pub version: u32,
    /// Nmax of the training: the maximum number of packets in its frames, 1 to 1024. Longer frames
    /// are beyond the vectors, and would be reported as shorter than they are. 64 if unset.
    #[cfg_attr(feature = "serde", serde(default = "usual_most"))]
    pub most: u32,
    /// From how many packets per slot on its level replaces the estimator's.
    pub packets: f64,
    /// b, in packets per frame.
    pub intercept: f64,
    /// s, of d levels, the variance and the number of frames; d is 1 to 64.
    pub scale: Vec<f64>,
    /// How the numbers were trained.
    pub training: Training,
    /// 1 to 1000 support vectors.
    pub vector: Vec<SupportVector>,
}

/// Nmax of the first trainings, whose files lack it.
#[cfg(feature = "serde")]
const fn usual_most() -> u32 {
    64
}

/// One support vector.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct SupportVector {
    /// a, in packets per frame.
    pub weight: f64,
    /// v, with its scale; as long as `scale`.
    pub at: Vec<f64>,
}

/// Invalid weights.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WeightsError {
    /// Another version.
    #[error("these weights are of version {0}, but only version 1 is known; train them again")]
    Version(u32),
    /// A count out of its range.
    #[error("{count} numbers of `{what}`: give 1 to {most}")]
    Count {
        /// The kind of number.
        what: &'static str,
        /// The number given.
        count: usize,
        /// The maximum number.
        most: usize,
    },
    /// A support vector of the wrong length.
    #[error("a `vector` of {count} numbers with a `scale` of {expected}; train them again")]
    Length {
        /// How many it has.
        count: usize,
        /// How many it should have.
        expected: usize,
    },
    /// Infinity, or not a number.
    #[error("`{0}` has a number that is not finite; train them again")]
    NotFinite(&'static str),
}

impl WeightsError {
    pub(super) fn check_version(version: u32) -> Result<(), Self> {
        if version == 1 { Ok(()) } else { Err(Self::Version(version)) }
    }

    pub(super) fn check_count(what: &'static str, count: usize, most: usize) -> Result<(), Self> {
        if (1..=most).contains(&count) { Ok(()) } else { Err(Self::Count { what, count, most }) }
    }

    pub(super) fn check_finite(
        what: &'static str,
        numbers: impl IntoIterator<Item = f64>,
    ) -> Result<(), Self> {
        if numbers.into_iter().all(f64::is_finite) { Ok(()) } else { Err(Self::NotFinite(what)) }
    }
}

/// For tests.
#[cfg(test)]
pub(super) fn no_training() -> Training {
    Training { data: alloc::string::String::new(), seed: 0, samples: 0, f1: 0.0 }
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn frames() -> FrameWeights {
        toml::from_str(FRAMES).unwrap()
    }

    fn levels() -> LevelWeights {
        toml::from_str(LEVELS).unwrap()
    }

    #[test]
    fn what_ships_can_be_built_and_reads_back_as_it_was_written() {
        let (frames, levels) = (frames(), levels());
        assert_eq!(frames.logistic.gaps.len(), 20);
        assert_eq!(levels.scale.len(), 5 + 2);
        frames.threshold().unwrap();
        frames.logistic().unwrap();
        levels.build().unwrap();
        let text = toml::to_string(&frames).unwrap();
        assert_eq!(toml::from_str::<FrameWeights>(&text).unwrap(), frames);
        let text = toml::to_string(&levels).unwrap();
        assert_eq!(toml::from_str::<LevelWeights>(&text).unwrap(), levels);
    }

    #[test]
    fn weights_that_are_no_estimator_are_refused() {
        let wrong = FrameWeights { version: 2, ..frames() };
        assert_eq!(wrong.logistic().unwrap_err(), WeightsError::Version(2));
        let mut wrong = frames().logistic;
        wrong.gaps.clear();
        let error = wrong.build().unwrap_err();
        assert_eq!(error.to_string(), "0 numbers of `logistic.gaps`: give 1 to 64");
        wrong.gaps = alloc::vec![1.0, f64::NAN];
        assert_eq!(wrong.build().unwrap_err(), WeightsError::NotFinite("logistic.gaps"));
        let wrong = LevelWeights { version: 2, ..levels() };
        assert_eq!(wrong.build().unwrap_err(), WeightsError::Version(2));
        let mut wrong = levels();
        wrong.vector[0].at.pop();
        let error = wrong.build().unwrap_err();
        assert_eq!(error, WeightsError::Length { count: 6, expected: 7 });
        let wrong = LevelWeights { scale: alloc::vec![1.0; 2], ..levels() };
        let error = wrong.build().unwrap_err();
        assert_eq!(error.to_string(), "0 numbers of `scale, less 2`: give 1 to 64");
        let wrong = ThresholdWeights { gap: f64::INFINITY, ..frames().threshold };
        assert_eq!(wrong.build().unwrap_err(), WeightsError::NotFinite("threshold.gap"));
    }
}
