//! Counts packets per frame by kernel timestamps.
//!
//! An estimator finds where frames begin, and each frame gets its own stamp; [`Aggregation`] then
//! keeps track of holes and late packets as it does for the network card's stamps. With support
//! vectors, its reports are taken per slot and corrected.
//!
//! Stamps and sequence numbers come from untrusted peers: for any input, memory is bounded to a few
//! frames, and the level is at least 1.

use alloc::boxed::Box;
use core::num::NonZeroU16;

use super::super::{Aggregation, AggregationParams, Arrival, FrameSeen, LevelCounter, Report};
use super::{FrameEstimator, FrameWeights, LevelWeights, SLOT, SlotSeen, Svm, WeightsError};
use crate::unit::{BitRate, Time};

/// How frames are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelCounterParams {
    /// Nmax: the maximum number of packets per frame, at least 1. 64, the number of MPDUs that one
    /// block acknowledgement covers; access points that put two packets into an MPDU have 128.
    pub most: u32,
    /// How many frames and holes are remembered.
    pub aggregation: AggregationParams,
}

impl Default for KernelCounterParams {
    fn default() -> Self {
        Self { most: 64, aggregation: AggregationParams::default() }
    }
}

/// Why a counter cannot be built.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CounterError {
    /// Invalid weights.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// Frames without packets.
    #[error("`most` is 0; a frame can have at least 1 packet")]
    Most,
    /// Support vectors for shorter frames.
    #[error(
        "the support vectors are of frames of up to {trained} packets, and would report fewer than \
         there are in frames of up to {most}, so that the server sends too fast; count by `logistic`, \
         or train support vectors on such frames"
    )]
    Longer {
        /// Nmax of the channel.
        most: u32,
        /// Nmax of the training.
        trained: u32,
    },
}

/// Counts packets per frame by the kernel's stamps. It allocates memory only at construction.
#[derive(Debug)]
pub struct KernelCounter {
    kernel: KernelFrames,
    frames: Aggregation,
    slots: Option<Slots>,
}

/// Numbers the frames of one station by the kernel's stamps. Flows to the same station share its
/// frames, so all of their packets must go through the same instance.
#[derive(Debug)]
pub struct KernelFrames {
    most: u32,
    estimator: Box<dyn FrameEstimator + Send>,
    /// Packets in the frame that has begun; zero before the first one.
    run: u32,
    /// The number of that frame, which is its stamp.
    frame: Time,
    is_first: Option<bool>,
}

impl KernelFrames {
    /// The number of the frame of the packet with this stamp, as a time: equal for all packets of a
    /// frame. `None` until the estimator has seen enough packets.
    pub fn on_packet(&mut self, stamp: Time) -> Option<Time> {
        self.is_first = self.begins_frame(stamp);
        if self.is_first? {
            self.run = 0;
            // It wraps after 584 years of one frame per nanosecond.
            self.frame = Time::from_nanos(self.frame.as_nanos().wrapping_add(1));
        }
        self.run += 1;
        Some(self.frame)
    }

    fn begins_frame(&mut self, stamp: Time) -> Option<bool> {
        let is_labelled = self.estimator.on_packet(stamp)?;
        // A run before the first label is the rest of a frame.
        (is_labelled || self.run > 0).then_some(is_labelled || self.run == self.most)
    }
}

/// The correction of reports per slot.
#[derive(Debug)]
struct Slots {
    svm: Svm,
    most: f64,
    ends_at: Option<Time>,
    sums: Sums,
}

/// Sums over the slots since the last report.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    frames: f64,
    packets: f64,
    /// The sum of the squares of packets per frame.
    squares: f64,
    /// The sum of seconds per bit.
    slowness: f64,
    lost: f64,
}

impl KernelCounterParams {
    /// A counter that compares only the gap before each packet with a threshold.
    ///
    /// # Errors
    /// Weights or a `most` that make no sense.
    pub fn threshold(self, weights: &FrameWeights) -> Result<KernelCounter, CounterError> {
        self.build(Box::new(weights.threshold()?))
    }

    /// A counter by the last gaps.
    ///
    /// # Errors
    /// Weights or a `most` that make no sense.
    pub fn logistic(self, weights: &FrameWeights) -> Result<KernelCounter, CounterError> {
        self.build(Box::new(weights.logistic()?))
    }

    /// A counter by the last gaps, whose levels are corrected under high load.
    ///
    /// # Errors
    /// Weights or a `most` that make no sense, or frames that are longer than those of the support
    /// vectors' training.
    pub fn svm(
        self,
        weights: &FrameWeights,
        levels: &LevelWeights,
    ) -> Result<KernelCounter, CounterError> {
        if self.most > levels.most {
            return Err(CounterError::Longer { most: self.most, trained: levels.most });
        }
        let (svm, most) = (levels.build()?, f64::from(self.most));
        let slots = Slots { svm, most, ends_at: None, sums: Sums::default() };
        Ok(KernelCounter { slots: Some(slots), ..self.logistic(weights)? })
    }

    /// A counter with a custom estimator.
    ///
    /// # Errors
    /// A `most` of zero.
    pub fn build(
        self,
        estimator: Box<dyn FrameEstimator + Send>,
    ) -> Result<KernelCounter, CounterError> {
        let kernel = self.frames_of(estimator)?;
        Ok(KernelCounter { kernel, frames: Aggregation::new(self.aggregation), slots: None })
    }

    /// Numbers frames by the last gaps, without counting packets.
    ///
    /// # Errors
    /// Weights or a `most` that make no sense.
    pub fn frames(self, weights: &FrameWeights) -> Result<KernelFrames, CounterError> {
        self.frames_of(Box::new(weights.logistic()?))
    }

    fn frames_of(
        self,
        estimator: Box<dyn FrameEstimator + Send>,
    ) -> Result<KernelFrames, CounterError> {
        let Self { most, .. } = self;
        if most == 0 {
            return Err(CounterError::Most);
        }
        Ok(KernelFrames { most, estimator, run: 0, frame: Time::ZERO, is_first: None })
    }
}

impl KernelCounter {
    /// The same, and keeps up to 1024 closed frames, as found by the estimator, for
    /// [`KernelCounter::next_frame`].
    pub fn with_frames(mut self) -> Self {
        self.frames.keep_frames();
        self
    }

    /// The next frame that has closed by `now`; call until it returns `None`. Always `None` except
    /// after [`KernelCounter::with_frames`].
    pub fn next_frame(&mut self, now: Time) -> Option<FrameSeen> {
        self.frames.next_frame(now).map(|(_, frame)| frame)
    }

    /// Whether the last packet was taken for the first of its frame; `None` until the estimator has
    /// seen enough packets.
    pub const fn is_first(&self) -> Option<bool> {
        self.kernel.is_first
    }
}

impl LevelCounter for KernelCounter {
    fn on_packet(&mut self, now: Time, packet: Arrival) {
        if let Some(slots) = &mut self.slots {
            slots.on_time(now, &mut self.frames);
        }
        let Some(stamp) = self.kernel.on_packet(packet.stamp) else { return };
        self.frames.on_packet(now, Arrival { stamp, ..packet });
    }

    fn max_packets(&self) -> Option<NonZeroU16> {
        u16::try_from(self.kernel.most).ok().and_then(NonZeroU16::new)
    }

    fn report(&mut self, now: Time) -> Option<Report> {
        let Some(slots) = &mut self.slots else { return self.frames.report(now) };
        slots.on_time(now, &mut self.frames);
        core::mem::take(&mut slots.sums).report()
    }

    fn restart(&mut self) {
        self.kernel.run = 0;
        self.frames.restart();
        if let Some(slots) = &mut self.slots {
            slots.svm.forget();
            (slots.ends_at, slots.sums) = (None, Sums::default());
        }
    }
}

impl Slots {
    /// Closes slots that are over.
    fn on_time(&mut self, now: Time, frames: &mut Aggregation) {
        let ends_at = *self.ends_at.get_or_insert(now + SLOT);
        if now < ends_at {
            return;
        }
        let late = now.since(ends_at);
        match frames.report(ends_at) {
            Some(report) => self.on_slot(report),
            None => self.svm.forget(),
        }
        // Packets not in a slot by then did not arrive in any slot that has passed meanwhile.
        let passed = late.as_nanos() / SLOT.as_nanos();
        if passed > 0 {
            self.svm.forget();
        }
        self.ends_at = Some(ends_at + SLOT * (passed + 1));
    }

    fn on_slot(&mut self, report: Report) {
        let variance = report.deviation * report.deviation;
        let seen = SlotSeen { level: report.level, variance, frames: report.frames as f64 };
        let corrected = self.svm.on_slot(seen).map(|level| level.clamp(1.0, self.most));
        self.sums.add(&report, corrected.unwrap_or(report.level));
    }
}

impl Sums {
    /// Adds a slot whose frames had `level` packets each; the deviation is scaled with the level.
    fn add(&mut self, report: &Report, level: f64) {
        let packets = report.level * report.frames as f64;
        let frames = packets / level;
        let deviation = report.deviation * level / report.level;
        self.frames += frames;
        self.packets += packets;
        self.squares += frames * (level * level + deviation * deviation);
        self.slowness += frames / report.rate.as_bps().max(1) as f64;
        self.lost += packets * report.loss / (1.0 - report.loss).max(f64::EPSILON);
    }

    fn report(self) -> Option<Report> {
        if self.frames <= 0.0 {
            return None;
        }
        let level = (self.packets / self.frames).max(1.0);
        let variance = (self.squares / self.frames - level * level).max(0.0);
        Some(Report {
            level,
            deviation: libm::sqrt(variance),
            frames: libm::ceil(self.frames) as u64,
            rate: BitRate::from_bps(libm::round(self.frames / self.slowness) as u64),
            loss: self.lost / (self.lost + self.packets),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::svm::SLOT;
    use super::super::weights::no_training;
    use super::super::{LogisticWeights, SupportVector, ThresholdWeights};
    use super::*;
    use crate::unit::Span;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const RATE: BitRate = BitRate::from_mbps(390);

    /// For both estimators, a frame begins after a gap of 100 µs.
    fn weights() -> FrameWeights {
        let training = no_training();
        FrameWeights {
            version: 1,
            threshold: ThresholdWeights { gap: 100.0, training: training.clone() },
            logistic: LogisticWeights {
                gaps: alloc::vec![0.0, 1.0],
                deviation: 0.0,
                intercept: -100.0,
                training,
            },
        }
    }

    /// Always 30, from 1000 packets a slot on.
    fn thirty() -> LevelWeights {
        LevelWeights {
            version: 1,
            most: 64,
            packets: 1000.0,
            intercept: 30.0,
            scale: alloc::vec![1.0; 4],
            training: no_training(),
            vector: alloc::vec![SupportVector { weight: 0.0, at: alloc::vec![0.0; 4] }],
        }
    }

    fn us(micros: u64) -> Time {
        Time::ZERO + Span::from_micros(micros)
    }

    /// Frames of these numbers of packets, every 500 µs, packets 5 µs apart in a frame; reported at
    /// the end.
    fn counted(mut counter: KernelCounter, frames: &[u64]) -> Option<Report> {
        let (mut seq, mut now) = (0, Time::ZERO);
        for (number, packets) in frames.iter().enumerate() {
            for packet in 0..*packets {
                now = us(500 * number as u64 + 5 * packet);
                counter.on_packet(now, Arrival { seq, stamp: now, rate: RATE });
                seq += 1;
            }
        }
        counter.report(now + SLOT)
    }

    #[test]
    fn jumps_make_frames_from_the_first_one_on() {
        let params = KernelCounterParams::default();
        for counter in [params.threshold(&weights()), params.logistic(&weights())] {
            let report = counted(counter.unwrap(), &[3, 4, 6, 2]).unwrap();
            assert_eq!((report.frames, report.level, report.loss), (3, 4.0, 0.0));
        }
    }

    #[test]
    fn frames_are_told_one_by_one_where_they_are_kept() {
        let counter = KernelCounterParams::default().logistic(&weights()).unwrap();
        let mut counter = counter.with_frames();
        let mut seq = 0;
        for (frame, packets) in [3, 3, 4, 2].into_iter().enumerate() {
            for packet in 0..packets {
                let now = us(500 * frame as u64 + 5 * packet);
                counter.on_packet(now, Arrival { seq, stamp: now, rate: RATE });
                // Two are lost before the last frame.
                seq += if (frame, packet) == (2, 3) { 3 } else { 1 };
            }
        }
        let end = us(1_000_000);
        let seen: Vec<_> = core::iter::from_fn(|| counter.next_frame(end)).collect();
        let frame = |level, lost| FrameSeen { level, others: 0, lost, retried: 0 };
        assert_eq!(seen, [frame(3, 0), frame(4, 0), frame(2, 2)]);
    }

    #[test]
    fn runs_end_at_the_most_that_a_frame_can_have() {
        let params = KernelCounterParams { most: 8, ..KernelCounterParams::default() };
        let report = counted(params.threshold(&weights()).unwrap(), &[1, 8, 20]).unwrap();
        assert_eq!((report.frames, report.level), (4, 7.0), "8, 8, 8 and 4");
    }

    #[test]
    fn high_load_is_corrected_and_low_load_is_not() {
        let counter = || KernelCounterParams::default().svm(&weights(), &thirty()).unwrap();
        // 200 frames a slot: 2000 packets, and 600. The first of five slots is as it is, as d is 2.
        let high = counted(counter(), &[10; 1000]).unwrap();
        assert!((20.0..25.0).contains(&high.level), "{high:?}");
        let low = counted(counter(), &[3; 1000]).unwrap();
        assert!((low.level - 3.0).abs() < 1e-9, "{low:?}");
        assert_eq!(low.rate, RATE);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let none = KernelCounterParams { most: 0, ..KernelCounterParams::default() };
        assert_eq!(none.threshold(&weights()).unwrap_err(), CounterError::Most);
        let other = FrameWeights { version: 3, ..weights() };
        let error = KernelCounterParams::default().logistic(&other).unwrap_err();
        assert_eq!(error, CounterError::Weights(WeightsError::Version(3)));
        let long = KernelCounterParams { most: 128, ..KernelCounterParams::default() };
        let error = long.svm(&weights(), &thirty()).unwrap_err();
        assert_eq!(error, CounterError::Longer { most: 128, trained: 64 });
        assert!(long.svm(&weights(), &LevelWeights { most: 128, ..thirty() }).is_ok());
        assert!(long.logistic(&weights()).is_ok(), "frames of the logistic may be of any length");
    }

    fn wild() -> impl Strategy<Value = Vec<(u64, u64, u64, u64)>> {
        let any_or_small = || prop_oneof![0..200u64, any::<u64>()];
        let gap = prop_oneof![0..200_000u64, 0..1_000_000_000u64];
        prop::collection::vec((any_or_small(), any_or_small(), any::<u64>(), gap), 0..300)
    }

    proptest! {
        #[test]
        fn whatever_comes_reports_are_finite_and_levels_at_least_1(packets in wild()) {
            let params = KernelCounterParams::default();
            let counters = [
                params.threshold(&weights()).unwrap(),
                params.logistic(&weights()).unwrap(),
                params.svm(&weights(), &LevelWeights { packets: 0.0, ..thirty() }).unwrap(),
            ];
            for mut counter in counters {
                let mut now = Time::ZERO;
                for (seq, stamp, bps, gap) in &packets {
                    now += Span::from_nanos(*gap);
                    let (stamp, rate) = (Time::from_nanos(*stamp), BitRate::from_bps(*bps));
                    counter.on_packet(now, Arrival { seq: *seq, stamp, rate });
                    if *bps % 7 == 0 && let Some(report) = counter.report(now) {
                        prop_assert!(report.level >= 1.0 && report.level.is_finite());
                        prop_assert!(report.deviation.is_finite() && report.frames > 0);
                        prop_assert!((0.0..=1.0).contains(&report.loss));
                    }
                }
            }
        }
    }
}
