//! Time-division multiplexing (TDM) controls the class of the next packet so that the classes share
//! the link's time: in every frame the AoI class goes first for γ of it.
//!
//! ```text
//! T_AoI = γ T_f    T_LDA = (1 − γ) T_f        (section IV-A of the paper; T_f: the frame)
//! ```
//!
//! Intervals in which the AoI class goes first alternate with those of the other class. Within
//! each, the other class is served while the first has nothing to send.
//!
//! A packet that is being sent when its interval ends is sent to the end, and delays the next
//! interval by as much: an interval begins with the first request for a packet after the end of the
//! one before, and has its full length from then on. So each class has its time in every frame and
//! at most one packet more. While nothing is sent there are no requests, and the frame stops: after
//! any idle time the next packet starts an interval.
//!
//! The only clock is the `now` of the calls.

use super::share::Weights;
use super::{AoiShare, Class, Scheduler};
use crate::unit::{Bytes, Span, Time};

/// Parameters of [`Tdm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TdmParams {
    /// The frame T_f, at least [`TdmParams::MIN_FRAME`]. A short one makes updates fresher, down to
    /// where an interval is shorter than a packet; a long one follows the share more smoothly.
    pub frame: Span,
}

impl TdmParams {
    /// In a shorter frame the smallest share would be zero time.
    pub const MIN_FRAME: Span = Span::from_millis(1);
}

impl Default for TdmParams {
    /// The paper's choice, the smoothest of its Figure 7.
    fn default() -> Self {
        Self { frame: Span::from_millis(100) }
    }
}

/// The scheduler that shares time.
#[derive(Debug)]
pub struct Tdm {
    params: TdmParams,
    aoi_share: AoiShare,
    aoi_interval: Span,
    /// The class of the current interval.
    turn: Class,
    ends_at: Time,
}

impl Tdm {
    /// A scheduler whose first frame begins, with the AoI class, at the first request.
    pub fn new(params: TdmParams, aoi_share: AoiShare) -> Self {
        let aoi_interval = aoi_interval(params.frame, aoi_share);
        Self { params, aoi_share, aoi_interval, turn: Class::DropAverse, ends_at: Time::ZERO }
    }

    fn interval(&self, class: Class) -> Span {
        match class {
            Class::Aoi => self.aoi_interval,
            Class::DropAverse => self.params.frame - self.aoi_interval,
        }
    }
}

fn aoi_interval(frame: Span, aoi_share: AoiShare) -> Span {
    let parts = u128::from(frame.as_nanos()) * u128::from(aoi_share.weights().aoi);
    // Not above the frame, since no share is above one.
    Span::from_nanos((parts / u128::from(Weights::WHOLE)) as u64)
}

impl Scheduler for Tdm {
    #[inline]
    fn prefer(&mut self, now: Time) -> Class {
        if now >= self.ends_at {
            let next = self.turn.other();
            // A class without a share has no interval.
            if !self.interval(next).is_zero() {
                self.turn = next;
            }
            self.ends_at = now + self.interval(self.turn);
        }
        self.turn
    }

    #[inline]
    fn on_sent(&mut self, _: Class, _: Bytes) {}

    fn aoi_share(&self) -> AoiShare {
        self.aoi_share
    }

    /// The current interval keeps its end.
    fn set_aoi_share(&mut self, aoi_share: AoiShare) {
        self.aoi_share = aoi_share;
        self.aoi_interval = aoi_interval(self.params.frame, aoi_share);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tdm(share: f64) -> Tdm {
        Tdm::new(TdmParams::default(), AoiShare::new(share).unwrap())
    }

    fn at_ms(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn intervals_alternate_within_the_frame() {
        let mut tdm = tdm(0.3);
        for (ms, class) in [
            (0, Class::Aoi),
            (29, Class::Aoi),
            (30, Class::DropAverse),
            (99, Class::DropAverse),
            (100, Class::Aoi),
            (130, Class::DropAverse),
        ] {
            assert_eq!(tdm.prefer(at_ms(ms)), class, "{ms} ms");
        }
    }

    #[test]
    fn a_packet_that_overruns_prolongs_the_next_interval() {
        let mut tdm = tdm(0.3);
        assert_eq!(tdm.prefer(at_ms(29)), Class::Aoi);
        assert_eq!(tdm.prefer(at_ms(65)), Class::DropAverse);
        assert_eq!(tdm.prefer(at_ms(134)), Class::DropAverse);
        assert_eq!(tdm.prefer(at_ms(135)), Class::Aoi);
    }

    #[test]
    fn after_a_year_without_traffic_one_interval_begins() {
        let mut tdm = tdm(0.5);
        assert_eq!(tdm.prefer(at_ms(0)), Class::Aoi);
        let year = 365 * 24 * 3600 * 1000;
        assert_eq!(tdm.prefer(at_ms(year)), Class::DropAverse);
        assert_eq!(tdm.prefer(at_ms(year + 49)), Class::DropAverse);
        assert_eq!(tdm.prefer(at_ms(year + 50)), Class::Aoi);
        assert_eq!(tdm.prefer(Time::MAX), Class::DropAverse);
    }

    #[test]
    fn the_extremes_are_strict_priorities() {
        for (share, class) in [(0.0, Class::DropAverse), (1.0, Class::Aoi)] {
            let mut tdm = tdm(share);
            assert!((0..1000).all(|ms| tdm.prefer(at_ms(ms)) == class));
        }
    }

    #[test]
    fn a_new_share_counts_from_the_next_interval_on() {
        let mut tdm = tdm(0.5);
        assert_eq!(tdm.prefer(at_ms(0)), Class::Aoi);
        tdm.set_aoi_share(AoiShare::ZERO);
        assert_eq!(tdm.prefer(at_ms(49)), Class::Aoi);
        assert!((50..500).all(|ms| tdm.prefer(at_ms(ms)) == Class::DropAverse));
    }
}
