//! Measures aggregation levels at a client: packets with equal MAC timestamps arrived in one frame.
//!
//! ```text
//! seq   1  2  3  4  6 │ 5 │ 7  8 10 │ 9 │ 11 12 ...
//! frame └─── A ────┘    └ A's  B ─┘   └ B's
//! level     6 − 1 + 1 = 6       3 + 1 = 4
//! ```
//!
//! A network card stamps each packet with the arrival time of its frame. Hassani, MSc thesis:
//! Achieving Low Delay & High Rate in 802.11ac Edge Networks, section 4.2.1. The level is the
//! number of packets sent between two frames, so each packet counts once, in the frame in which it
//! was first on the air: a hole in the sequence numbers belongs to the frame that revealed it, a
//! late packet fills its hole there, and a frame with late packets only does not count (4.2.1.1).
//! Holes that stay open are packets dropped at the access point or before: they count as loss, not
//! for the level.
//!
//! Timestamps are only compared for equality, so a clock may jump or go back.
//!
//! # Where the paper is silent
//!
//! - **How long a hole may be filled.** Until its frame closes: when [`AggregationParams::open`]
//!   newer frames have begun, or [`AggregationParams::settle`] after its last packet. A report
//!   covers closed frames only; open frames are in a later report.
//! - **A lost end of a frame** leaves no hole in that frame. Sent again alone, it looks like a
//!   separate frame, and the mean level is lower than that of the sent frames. If newer packets
//!   arrive first, it fills a hole of the next frame.
//! - **MCS**: a frame's rate is that of its first packet, and the mean is 1/E[1/R] over frames
//!   (5.2.2).
//! - **Other packets to the station** take places in its frames, and a frame's duration depends on
//!   all packets. They count in the frame in which they arrived ([`LevelCounter::on_others`]), each
//!   time they arrive. A frame with other packets only is not a frame of this flow.
//! - **Duplicates**, and packets that arrive after their hole was given up, are ignored. A sender
//!   that restarts its numbers is a new flow: [`LevelCounter::restart`].

use alloc::collections::VecDeque;

use super::{FrameSeen, LevelCounter, Report};
use crate::unit::{BitRate, Span, Time};

/// The limits of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AggregationParams {
    /// How many frames stay open for late packets, 1 to 64. 16: the link sends lost packets again
    /// in one of the next frames, and rarely more than four times.
    pub open: usize,
    /// How many holes are remembered, 1 to 1024. 64, the maximum of one frame. Beyond it, the
    /// oldest holes are counted as lost.
    pub holes: usize,
    /// How long after its last packet a frame stays open. 20 ms: four of the longest frames.
    pub settle: Span,
}

impl Default for AggregationParams {
    fn default() -> Self {
        Self { open: 16, holes: 64, settle: Span::from_millis(20) }
    }
}

impl AggregationParams {
    /// For a [`Locator`](super::Locator), which needs early results: 8 frames. Later packets are
    /// rare, and count as lost.
    pub fn for_locator() -> Self {
        Self { open: 8, ..Self::default() }
    }
}

/// A received packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The sender's sequence number, which counts up by one.
    pub seq: u64,
    /// Its timestamp: when its frame arrived by the network card's clock, or, for an estimator,
    /// when the kernel received it.
    pub stamp: Time,
    /// The rate of its frame's data symbols.
    pub rate: BitRate,
}

/// Counts packets per frame. Memory and the work per packet are bounded.
#[derive(Debug, Clone)]
pub struct Aggregation {
    params: AggregationParams,
    /// The next number that would leave no hole; `None` before the first packet.
    next: Option<u64>,
    /// Frames that may still get packets, the oldest first.
    open: VecDeque<Frame>,
    /// How many frames have begun.
    begun: u64,
    /// Missing numbers, in the order in which they were missed.
    holes: VecDeque<Hole>,
    closed: Closed,
    /// Closed frames one by one, if kept.
    seen: Option<VecDeque<(Time, FrameSeen)>>,
    /// Packets that were lost since the last frame closed.
    lost_since: u64,
    /// The frame of the last packet, and how many of its packets arrived in a row.
    last: (u64, u64),
    /// Other packets to the station, by the stamps of frames without a packet of the flow so far;
    /// the oldest first.
    others: VecDeque<(Time, u64)>,
}

/// The maximum number of closed frames kept; beyond it, the oldest are dropped.
const MAX_SEEN: usize = 1024;

#[derive(Debug, Clone, Copy)]
struct Frame {
    number: u64,
    time: Time,
    /// When its last packet came, by the driver's clock.
    last_at: Time,
    /// Of this flow.
    packets: u64,
    /// Retried packets, of this frame or held back behind it.
    retried: u64,
    /// Packets of other flows to the same station.
    others: u64,
    rate: BitRate,
}

impl Frame {
    fn level(&self) -> u64 {
        self.packets.saturating_add(self.others)
    }
}

/// Numbers from `first` to `last` that a frame skipped.
#[derive(Debug, Clone, Copy)]
struct Hole {
    frame: u64,
    first: u64,
    last: u64,
}

impl Hole {
    fn size(&self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }
}

/// Sums over closed frames.
#[derive(Debug, Clone, Copy, Default)]
struct Closed {
    frames: u64,
    /// Of this flow.
    packets: u64,
    /// The sums of the levels, and of their squares.
    levels: f64,
    squares: f64,
    /// The sum of seconds per bit.
    slowness: f64,
    lost: u64,
}

impl Closed {
    fn add(&mut self, frame: &Frame) {
        let level = frame.level() as f64;
        self.frames = self.frames.saturating_add(1);
        self.packets = self.packets.saturating_add(frame.packets);
        self.levels += level;
        self.squares += level * level;
        self.slowness += 1.0 / frame.rate.as_bps().max(1) as f64;
    }

    fn report(&self) -> Option<Report> {
        if self.frames == 0 {
            return None;
        }
        let frames = self.frames as f64;
        let level = self.levels / frames;
        let spread = (self.squares / frames - level * level).max(0.0);
        // `as` saturates.
        let rate = BitRate::from_bps((frames / self.slowness) as u64);
        let sent = self.packets as f64 + self.lost as f64;
        let loss = self.lost as f64 / sent;
        Some(Report { level, deviation: libm::sqrt(spread), frames: self.frames, rate, loss })
    }
}

impl Aggregation {
    /// Counts from the next packet on. Settings are clamped to their ranges.
    pub fn new(params: AggregationParams) -> Self {
        let AggregationParams { open, holes, settle } = params;
        let params =
            AggregationParams { open: open.clamp(1, 64), holes: holes.clamp(1, 1024), settle };
        Self {
            params,
            next: None,
            open: VecDeque::with_capacity(params.open),
            begun: 0,
            holes: VecDeque::with_capacity(params.holes),
            closed: Closed::default(),
            seen: None,
            lost_since: 0,
            last: (0, 0),
            others: VecDeque::with_capacity(params.open),
        }
    }

    /// The same, and keeps closed frames for [`Aggregation::next_frame`]: up to 1024.
    pub fn with_frames(params: AggregationParams) -> Self {
        let mut aggregation = Self::new(params);
        aggregation.keep_frames();
        aggregation
    }

    /// Keeps closed frames from now on.
    pub(super) fn keep_frames(&mut self) {
        self.seen.get_or_insert_with(|| VecDeque::with_capacity(MAX_SEEN));
    }

    /// The next frame that has closed by `now`, with its timestamp; call until it returns `None`.
    /// Always `None` except after [`Aggregation::with_frames`].
    pub fn next_frame(&mut self, now: Time) -> Option<(Time, FrameSeen)> {
        self.close_settled(now);
        self.seen.as_mut()?.pop_front()
    }

    fn close_settled(&mut self, now: Time) {
        let settle = self.params.settle;
        while self.open.front().is_some_and(|frame| now.since(frame.last_at) >= settle) {
            self.close();
        }
    }
}

impl LevelCounter for Aggregation {
    fn on_packet(&mut self, now: Time, packet: Arrival) {
        let next = self.next.unwrap_or(packet.seq);
        if packet.seq < next {
            self.fill(now, packet.seq);
            return;
        }
        let frame = self.frame_of(now, &packet);
        self.see_order(frame);
        if packet.seq > next {
            self.miss(Hole { frame, first: next, last: packet.seq - 1 });
        }
        self.next = Some(packet.seq.saturating_add(1));
    }

    fn on_others(&mut self, stamp: Time, packets: u64) {
        if let Some(frame) = self.open.iter_mut().rev().find(|frame| frame.time == stamp) {
            frame.others = frame.others.saturating_add(packets);
            return;
        }
        if let Some((_, others)) = self.others.iter_mut().rev().find(|(at, _)| *at == stamp) {
            *others = others.saturating_add(packets);
            return;
        }
        if self.others.len() == self.params.open {
            self.others.pop_front();
        }
        self.others.push_back((stamp, packets));
    }

    /// `None` if no frame has closed.
    fn report(&mut self, now: Time) -> Option<Report> {
        self.close_settled(now);
        let report = self.closed.report()?;
        self.closed = Closed::default();
        Some(report)
    }

    fn restart(&mut self) {
        self.next = None;
        self.open.clear();
        self.holes.clear();
        self.others.clear();
        self.closed = Closed::default();
        self.last = (self.begun, 0);
    }
}

impl Aggregation {
    /// The number of the frame with this packet's timestamp, with the packet in it.
    fn frame_of(&mut self, now: Time, packet: &Arrival) -> u64 {
        let mut newest_first = self.open.iter_mut().rev();
        if let Some(frame) = newest_first.find(|frame| frame.time == packet.stamp) {
            frame.packets = frame.packets.saturating_add(1);
            frame.last_at = now;
            return frame.number;
        }
        if self.open.len() == self.params.open {
            self.close();
        }
        let number = self.begun;
        self.begun += 1;
        let (time, rate) = (packet.stamp, packet.rate);
        let others = self.others.iter().position(|(at, _)| *at == time);
        let others = others.and_then(|at| self.others.remove(at)).map_or(0, |(_, count)| count);
        let frame = Frame { number, time, last_at: now, packets: 1, retried: 0, others, rate };
        self.open.push_back(frame);
        number
    }

    /// At a receiver that releases packets in order, a newer frame between packets of an older one
    /// reveals retried packets.
    fn see_order(&mut self, number: u64) {
        let (last, run) = self.last;
        if number < last
            && let Some(frame) = self.open.iter_mut().find(|it| it.number == number)
        {
            frame.retried = frame.retried.saturating_add(run);
        }
        self.last = (number, if number == last { run.saturating_add(1) } else { 1 });
    }

    fn miss(&mut self, hole: Hole) {
        if self.holes.len() == self.params.holes {
            self.lose();
        }
        self.holes.push_back(hole);
    }

    /// A late packet: it was first sent in the frame that revealed its hole.
    fn fill(&mut self, now: Time, seq: u64) {
        let inside = |hole: &Hole| (hole.first..=hole.last).contains(&seq);
        let Some(at) = self.holes.iter().position(inside) else { return };
        let Some(hole) = self.holes.remove(at) else { return };
        if let Some(frame) = self.open.iter_mut().find(|frame| frame.number == hole.frame) {
            frame.packets = frame.packets.saturating_add(1);
            frame.retried = frame.retried.saturating_add(1);
            frame.last_at = now;
        }
        if seq < hole.last {
            self.holes.insert(at, Hole { first: seq + 1, ..hole });
        }
        if hole.first < seq {
            if self.holes.len() == self.params.holes {
                // Give up the rest of this hole rather than another one.
                self.add_lost(seq - hole.first);
            } else {
                self.holes.insert(at, Hole { last: seq - 1, ..hole });
            }
        }
    }

    /// Gives up the oldest hole.
    fn lose(&mut self) {
        let size = self.holes.pop_front().map_or(0, |hole| hole.size());
        self.add_lost(size);
    }

    fn add_lost(&mut self, packets: u64) {
        self.closed.lost = self.closed.lost.saturating_add(packets);
        self.lost_since = self.lost_since.saturating_add(packets);
    }

    /// Closes the oldest frame, and gives up its holes.
    fn close(&mut self) {
        let Some(frame) = self.open.pop_front() else { return };
        self.closed.add(&frame);
        while self.holes.front().is_some_and(|hole| hole.frame <= frame.number) {
            self.lose();
        }
        let lost = core::mem::take(&mut self.lost_since);
        let Some(seen) = &mut self.seen else { return };
        if seen.len() == MAX_SEEN {
            seen.pop_front();
        }
        let count = |packets| u32::try_from(packets).unwrap_or(u32::MAX);
        let (level, others) = (count(frame.level()), count(frame.others));
        let (lost, retried) = (count(lost), count(frame.retried));
        seen.push_back((frame.time, FrameSeen { level, others, lost, retried }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const RATE: BitRate = BitRate::from_mbps(390);

    fn ms(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    /// Frames of these packets, 1 ms apart, and the report long after.
    fn counted(frames: &[&[u64]]) -> Option<Report> {
        let mut aggregation = Aggregation::new(AggregationParams::default());
        for (at, frame) in (0..).map(ms).zip(frames) {
            for seq in *frame {
                let packet = Arrival { seq: *seq, stamp: at, rate: RATE };
                aggregation.on_packet(at, packet);
            }
        }
        aggregation.report(ms(1_000))
    }

    #[test]
    fn packets_with_one_timestamp_are_a_frame() {
        let report = counted(&[&[5, 6, 7], &[8], &[9, 10]]).unwrap();
        assert_eq!((report.frames, report.level, report.loss), (3, 2.0, 0.0));
        assert!((report.deviation - libm::sqrt(2.0 / 3.0)).abs() < 1e-12);
        assert_eq!(report.rate, RATE);
        assert_eq!(counted(&[]), None);
    }

    #[test]
    fn what_is_sent_again_counts_in_the_frame_that_lost_it() {
        // Figure 4.2: a burst out of a frame comes in a frame of its own; so does a first packet.
        let report = counted(&[&[1, 2, 3, 9, 10], &[4, 5, 6, 7, 8], &[12, 13], &[11]]).unwrap();
        assert_eq!((report.frames, report.level, report.loss), (2, 6.5, 0.0));
        assert_eq!(report.deviation, 3.5);
        // With new packets in the same frame.
        let report = counted(&[&[1, 2, 4], &[3, 5, 6, 7, 8]]).unwrap();
        assert_eq!((report.frames, report.level, report.deviation), (2, 4.0, 0.0));
    }

    #[test]
    fn what_never_comes_is_loss_and_no_level() {
        let report = counted(&[&[1, 2], &[11, 12]]).unwrap();
        assert_eq!((report.frames, report.level), (2, 2.0));
        assert_eq!(report.loss, 8.0 / 12.0);
    }

    #[test]
    fn closed_frames_are_told_one_by_one_with_what_was_lost_before_them() {
        let mut aggregation = Aggregation::with_frames(AggregationParams::default());
        for (seq, at) in [(1, 0), (2, 0), (7, 1), (6, 2), (8, 2), (9, 3)] {
            aggregation.on_packet(ms(at), Arrival { seq, stamp: ms(at), rate: RATE });
        }
        assert_eq!(aggregation.next_frame(ms(19)), None, "a hole may still be filled");
        let mut seen = core::iter::from_fn(|| aggregation.next_frame(ms(100)));
        let seen_at = |at, level, lost, retried| {
            Some((ms(at), FrameSeen { level, others: 0, lost, retried }))
        };
        // 6 was first on the air with 7; 3, 4 and 5 never came.
        assert_eq!(seen.next(), seen_at(0, 2, 0, 0));
        assert_eq!(seen.next(), seen_at(1, 2, 3, 1));
        assert_eq!(seen.next(), seen_at(2, 1, 0, 0));
        assert_eq!(seen.next(), seen_at(3, 1, 0, 0));
        assert_eq!(seen.next(), None);
        assert_eq!(aggregation.report(ms(200)).map(|report| report.frames), Some(4));
    }

    #[test]
    fn packets_sent_again_show_in_the_order_of_the_air_and_of_release() {
        // 2 and 5 were lost in the first frame and came in the second one, with 6 and 7. As the air
        // shows it, and as a receiver releases them.
        let air = [(1, 1), (3, 1), (4, 1), (2, 2), (5, 2), (6, 2), (7, 2)];
        let released = [(1, 1), (2, 2), (3, 1), (4, 1), (5, 2), (6, 2), (7, 2)];
        for (packets, retried) in [(air, 1), (released, 1)] {
            let mut aggregation = Aggregation::with_frames(AggregationParams::default());
            for (seq, at) in packets {
                aggregation.on_packet(ms(5), Arrival { seq, stamp: ms(at), rate: RATE });
            }
            let seen: Vec<_> = core::iter::from_fn(|| aggregation.next_frame(ms(100))).collect();
            let sum: u32 = seen.iter().map(|(_, frame)| frame.retried).sum();
            // 5 is the last of its frame: it could also be the first of the second one.
            assert_eq!(sum, retried, "{seen:?}");
        }
    }

    #[test]
    fn other_packets_of_a_frame_count_in_its_level_and_not_in_the_loss() {
        let mut aggregation = Aggregation::with_frames(AggregationParams::default());
        let [first, second, third] = [1, 2, 3].map(ms);
        let own = |seq, stamp| Arrival { seq, stamp, rate: RATE };
        aggregation.on_others(first, 1);
        aggregation.on_packet(first, own(0, first));
        aggregation.on_others(first, 1);
        // One is missing in a frame of two others; the third frame has none of the flow.
        aggregation.on_packet(second, own(2, second));
        aggregation.on_others(second, 2);
        aggregation.on_others(third, 1);
        let seen = |level, others, lost| FrameSeen { level, others, lost, retried: 0 };
        let frames = [aggregation.next_frame(ms(100)), aggregation.next_frame(ms(100))];
        assert_eq!(frames, [Some((first, seen(3, 2, 0))), Some((second, seen(3, 2, 1)))]);
        assert_eq!(aggregation.next_frame(ms(100)), None);
        let report = aggregation.report(ms(100)).unwrap();
        assert_eq!((report.level, report.frames, report.deviation), (3.0, 2, 0.0));
        assert_eq!(report.loss, 1.0 / 3.0, "of the flow's own packets");
    }

    #[test]
    fn packets_that_wait_for_order_count_in_their_own_frames() {
        let mut aggregation = Aggregation::new(AggregationParams::default());
        // 3 was lost in the first frame; 4 and 5 are held back until it has come in the second.
        for (seq, frame) in [(1, 0), (2, 0), (3, 1), (4, 0), (5, 0), (6, 1), (7, 1)] {
            aggregation.on_packet(ms(1), Arrival { seq, stamp: ms(frame), rate: RATE });
        }
        let report = aggregation.report(ms(100)).unwrap();
        assert_eq!((report.frames, report.level), (2, 3.5));
    }

    #[test]
    fn a_frame_that_may_still_get_packets_waits_for_the_next_report() {
        let mut aggregation = Aggregation::new(AggregationParams::default());
        let arrival = |seq| Arrival { seq, stamp: ms(0), rate: RATE };
        aggregation.on_packet(ms(0), arrival(1));
        assert_eq!(aggregation.report(ms(19)), None);
        aggregation.on_packet(ms(19), arrival(2));
        assert_eq!(aggregation.report(ms(39)).unwrap().level, 2.0);
        assert_eq!(aggregation.report(ms(90)), None, "nothing is reported twice");
    }

    #[test]
    fn the_mean_of_rates_is_that_of_their_airtimes() {
        let mut aggregation = Aggregation::new(AggregationParams::default());
        for (seq, mbps) in [(0, 100), (1, 300)] {
            let rate = BitRate::from_mbps(mbps);
            aggregation.on_packet(ms(0), Arrival { seq, stamp: ms(seq), rate });
        }
        assert_eq!(aggregation.report(ms(100)).unwrap().rate, BitRate::from_mbps(150));
    }

    fn wild() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
        let seq = prop_oneof![0..200u64, Just(u64::MAX), any::<u64>()];
        let time = prop_oneof![0..20u64, any::<u64>()];
        prop::collection::vec((seq, time, any::<u64>()), 0..300)
    }

    proptest! {
        #[test]
        fn whatever_comes_memory_stays_bounded_and_reports_finite(packets in wild()) {
            let params = AggregationParams { open: 4, holes: 8, ..AggregationParams::default() };
            let mut aggregation = Aggregation::new(params);
            let mut counted = 0.0;
            for (at, (seq, time, bps)) in (0..).map(ms).zip(&packets) {
                let stamp = Time::from_nanos(*time);
                let rate = BitRate::from_bps(*bps);
                aggregation.on_packet(at, Arrival { seq: *seq, stamp, rate });
                prop_assert!(aggregation.open.len() <= 4 && aggregation.holes.len() <= 8);
                if *bps % 7 == 0 && let Some(report) = aggregation.report(at) {
                    counted += report.level * report.frames as f64;
                    prop_assert!(report.level >= 1.0 && report.deviation.is_finite());
                    prop_assert!((0.0..=1.0).contains(&report.loss));
                }
            }
            prop_assert!(counted <= packets.len() as f64 + 0.5, "no packet counts twice");
        }

        #[test]
        fn frames_are_counted_right_whatever_the_link_sends_again(
            levels in prop::collection::vec(1u64..40, 1..100),
            losses in prop::collection::vec(any::<prop::sample::Index>(), 0..100),
        ) {
            // Of some frames one packet, but not the last, comes in a frame of its own behind it.
            let mut sent: Vec<Vec<u64>> = Vec::new();
            let mut next = 0;
            for (frame, level) in levels.iter().enumerate() {
                let mut packets: Vec<u64> = (next..next + level).collect();
                next += level;
                let again = losses.get(frame).filter(|_| frame > 0 && *level > 1);
                let lost = again.map(|at| packets.remove(at.index(packets.len() - 1)));
                sent.push(packets);
                sent.extend(lost.map(|seq| alloc::vec![seq]));
            }
            let frames: Vec<&[u64]> = sent.iter().map(Vec::as_slice).collect();
            let report = counted(&frames).unwrap();
            let mean = next as f64 / levels.len() as f64;
            prop_assert_eq!((report.frames, report.loss), (levels.len() as u64, 0.0));
            prop_assert!((report.level - mean).abs() < 1e-9);
        }
    }
}
