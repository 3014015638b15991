//! One of the two schedulers, by configuration.

use super::{AoiShare, Class, Scheduler, Sdm, SdmParams, Tdm, TdmParams};
use crate::unit::{Bytes, Time};

/// A scheduler and its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchedulerParams {
    /// Size-driven multiplexing.
    Sdm(SdmParams),
    /// Time-division multiplexing.
    Tdm(TdmParams),
}

impl Default for SchedulerParams {
    fn default() -> Self {
        Self::Sdm(SdmParams::default())
    }
}

impl SchedulerParams {
    /// The scheduler.
    pub fn build(self, aoi_share: AoiShare) -> AnyScheduler {
        match self {
            Self::Sdm(params) => AnyScheduler::Sdm(Sdm::new(params, aoi_share)),
            Self::Tdm(params) => AnyScheduler::Tdm(Tdm::new(params, aoi_share)),
        }
    }
}

/// A scheduler that was chosen while the program runs.
#[derive(Debug)]
pub enum AnyScheduler {
    /// Size-driven multiplexing.
    Sdm(Sdm),
    /// Time-division multiplexing.
    Tdm(Tdm),
}

impl Scheduler for AnyScheduler {
    #[inline]
    fn prefer(&mut self, now: Time) -> Class {
        match self {
            Self::Sdm(scheduler) => scheduler.prefer(now),
            Self::Tdm(scheduler) => scheduler.prefer(now),
        }
    }

    #[inline]
    fn on_sent(&mut self, class: Class, size: Bytes) {
        match self {
            Self::Sdm(scheduler) => scheduler.on_sent(class, size),
            Self::Tdm(scheduler) => scheduler.on_sent(class, size),
        }
    }

    fn aoi_share(&self) -> AoiShare {
        match self {
            Self::Sdm(scheduler) => scheduler.aoi_share(),
            Self::Tdm(scheduler) => scheduler.aoi_share(),
        }
    }

    fn set_aoi_share(&mut self, aoi_share: AoiShare) {
        match self {
            Self::Sdm(scheduler) => scheduler.set_aoi_share(aoi_share),
            Self::Tdm(scheduler) => scheduler.set_aoi_share(aoi_share),
        }
    }
}
