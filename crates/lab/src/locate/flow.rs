//! One flow of a capture: its frames, and its intervals.

use freshline_core::unit::{BitRate, Time};
use freshline_core::wlan::{
    Aggregation, AggregationParams, Arrival, Bottleneck, FrameSeen, LevelCounter, Locator,
};
use serde::Serialize;

use super::numbers::{Guess, Numbers, Unwrapped};
use super::{LocateParams, ends_of};
use crate::capture::packet::{Content, Ends};

/// The number of consecutive frames that make an interval.
const FRAMES_OF_A_SPELL: u32 = 5;
/// The maximum number of intervals kept per flow; beyond it, the last one is extended.
const MAX_SPELLS: usize = 100_000;

/// The place of a bottleneck, in reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// The hop over Wi-Fi, or no bottleneck at all.
    Wireless,
    /// A link before it.
    Backhaul,
    /// Unknown: losses are not known, or too few frames were seen.
    Unknown,
}

impl From<Bottleneck> for Place {
    fn from(bottleneck: Bottleneck) -> Self {
        match bottleneck {
            Bottleneck::Wireless => Self::Wireless,
            Bottleneck::Backhaul => Self::Backhaul,
        }
    }
}

/// A period in which the bottleneck was at one place.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PlaceInterval {
    /// The start, since the first frame of the capture, in s.
    pub start_s: f64,
    /// The end, since the first frame of the capture, in s.
    pub end_s: f64,
    /// The place.
    pub place: Place,
    /// Frames in it.
    pub frames: u64,
    /// The mean number of packets per frame, with those of other flows to the same station.
    pub level: f64,
    /// The fraction of the flow's packets that were lost, 0 to 1; `None` if its packets have no
    /// numbers.
    pub loss: Option<f64>,
}

/// A direction of a flow.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlowReport {
    /// The source of its packets.
    pub from: String,
    /// Their destination.
    pub to: String,
    /// The number of packets captured.
    pub packets: u64,
    /// The numbers by which losses were detected.
    pub numbers: Numbers,
    /// Whether frames are those reported by the radio; otherwise they are estimated from the times
    /// of capture.
    pub by_radio: bool,
    /// Its intervals, in order; empty if it had no complete frame.
    pub intervals: Vec<PlaceInterval>,
}

/// A tracked flow.
pub(super) struct LocatedFlow {
    ends: Ends,
    packets: u64,
    numbers: Option<Numbers>,
    guess: Guess,
    unwrapped: Unwrapped,
    /// Packets held back until the kind of their numbers is known.
    held: Vec<(Time, u64, Arrival)>,
    first_looks: Vec<Vec<u8>>,
    /// For TCP, the number of the next segment and its first byte; see [`Segments`].
    segments: Segments,
    by_radio: bool,
    counter: Aggregation,
    locator: Locator,
    intervals: PlaceIntervals,
}

/// Numbers segments in the order of their bytes.
#[derive(Debug, Default)]
struct Segments {
    next_byte: Option<u32>,
    next: u64,
    /// Holes: the first byte, the byte after the last, and the number of the first missing segment.
    holes: Vec<(u32, u32, u64)>,
}

/// The maximum number of holes of a stream that are kept.
const MAX_HOLES: usize = 256;

impl Segments {
    /// The number of a segment; `None` if it was captured before.
    fn number(&mut self, seq: u32, len: u32) -> Option<u64> {
        let end = seq.wrapping_add(len);
        let next_byte = *self.next_byte.get_or_insert(seq);
        let ahead = seq.wrapping_sub(next_byte);
        if ahead < 1 << 31 {
            if ahead > 0 {
                // The number of missing segments, if they have the size of this one.
                if self.holes.len() == MAX_HOLES {
                    self.holes.remove(0);
                }
                self.holes.push((next_byte, seq, self.next));
                self.next += u64::from(ahead.div_ceil(len.max(1)));
            }
            self.next_byte = Some(end);
            self.next += 1;
            return Some(self.next - 1);
        }
        let place = self
            .holes
            .iter()
            .position(|(from, to, _)| seq.wrapping_sub(*from) < to.wrapping_sub(*from))?;
        let (from, to, first) = self.holes[place];
        let number = first + u64::from(seq.wrapping_sub(from) / len.max(1));
        if to.wrapping_sub(end) == 0 || to.wrapping_sub(end) >= 1 << 31 {
            self.holes.remove(place);
        } else if seq == from {
            self.holes[place] = (end, to, number + 1);
        }
        Some(number)
    }
}

impl LocatedFlow {
    /// A flow that begins with this packet, whose frame the radio reported or not; `None` if the
    /// weights are not those of a classifier.
    pub(super) fn new(
        ends: Ends,
        content: &Content<'_>,
        by_radio: bool,
        params: &LocateParams,
    ) -> Option<Self> {
        let numbers = matches!(content, Content::Tcp(_)).then_some(Numbers::Tcp);
        let weights = params.weights.clone().for_frames_of(params.max_packets);
        let weights = if by_radio { weights } else { weights.without_retries() };
        Some(Self {
            ends,
            packets: 0,
            numbers,
            guess: Guess::new(),
            unwrapped: Unwrapped::default(),
            held: Vec::new(),
            first_looks: Vec::new(),
            segments: Segments::default(),
            by_radio,
            counter: Aggregation::with_frames(AggregationParams::for_locator()),
            locator: weights.build().ok()?,
            intervals: PlaceIntervals::default(),
        })
    }

    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    /// A packet has arrived in the frame with this timestamp; `None` while frames are not known
    /// yet.
    pub(super) fn on_packet(&mut self, now: Time, content: &Content<'_>, stamp: Option<Time>) {
        self.packets += 1;
        let Some(stamp) = stamp else { return };
        // The rate of frames is not used here.
        let arrival = Arrival { seq: 0, stamp, rate: BitRate::from_bps(1) };
        match (self.numbers, content) {
            (None, Content::Udp(datagram)) => {
                const FRONT: usize = 64;
                let front = &datagram.payload[..datagram.payload.len().min(FRONT)];
                self.first_looks.push(front.to_vec());
                self.held.push((now, self.packets, arrival));
                if let Some(found) = self.guess.look(content) {
                    self.decide(found);
                }
            }
            (Some(numbers), Content::Udp(datagram)) => {
                let number = self.number(numbers, datagram.payload, self.packets);
                self.count(now, number, arrival);
            }
            (_, Content::Tcp(segment)) => {
                let number = self.segments.number(segment.seq, segment.len);
                self.count(now, number, arrival);
            }
        }
    }

    /// The kind of numbers is known: processes the packets that were held back.
    fn decide(&mut self, numbers: Numbers) {
        self.numbers = Some(numbers);
        let looks = std::mem::take(&mut self.first_looks);
        let held = std::mem::take(&mut self.held);
        for ((now, packet, arrival), front) in held.into_iter().zip(looks) {
            let number = self.number(numbers, &front, packet);
            self.count(now, number, arrival);
        }
    }

    fn number(&mut self, numbers: Numbers, payload: &[u8], packet: u64) -> Option<u64> {
        if numbers == Numbers::Unknown {
            return Some(packet);
        }
        let (number, bits) = numbers.of_datagram(payload)?;
        Some(self.unwrapped.next(number, bits))
    }

    fn count(&mut self, now: Time, number: Option<u64>, arrival: Arrival) {
        let Some(seq) = number else { return };
        self.counter.on_packet(now, Arrival { seq, ..arrival });
        self.drain(now);
    }

    /// This number of packets of other flows to the same station has arrived in the frame with this
    /// timestamp.
    pub(super) fn on_others(&mut self, stamp: Time, packets: u64) {
        self.counter.on_others(stamp, packets);
    }

    fn drain(&mut self, now: Time) {
        let is_numbered = self.numbers.is_some_and(|numbers| numbers != Numbers::Unknown);
        while let Some((_, frame)) = self.counter.next_frame(now) {
            if is_numbered {
                self.locator.on_frame(frame);
            }
            let answer = self.locator.bottleneck().map_or(Place::Unknown, Place::from);
            self.intervals.on_frame(now, answer, frame);
        }
    }

    /// The results between the first frame of the capture and the last; `end` is when all frames
    /// are closed.
    pub(super) fn report(mut self, first: Time, last: Time, end: Time) -> FlowReport {
        if self.numbers.is_none() {
            self.decide(self.guess.best());
        }
        self.drain(end);
        let numbers = self.numbers.unwrap_or(Numbers::Unknown);
        let (from, to) = ends_of(self.ends);
        FlowReport {
            from: from.to_string(),
            to: to.to_string(),
            packets: self.packets,
            numbers,
            by_radio: self.by_radio,
            intervals: self.intervals.report(first, last, numbers != Numbers::Unknown),
        }
    }
}

/// Frames with equal answers.
#[derive(Debug, Clone, Copy)]
struct Run {
    from: Time,
    place: Place,
    frames: u64,
    /// The sum of the frames' packets, with those of other flows.
    levels: u64,
    /// The number of the flow's own packets.
    packets: u64,
    lost: u64,
}

impl Run {
    fn new(from: Time, place: Place) -> Self {
        Self { from, place, frames: 0, levels: 0, packets: 0, lost: 0 }
    }

    fn add(&mut self, frame: FrameSeen) {
        self.frames += 1;
        self.levels += u64::from(frame.level);
        self.packets += u64::from(frame.level.saturating_sub(frame.others));
        self.lost += u64::from(frame.lost);
    }

    fn join(&mut self, other: &Self) {
        self.frames += other.frames;
        self.levels += other.levels;
        self.packets += other.packets;
        self.lost += other.lost;
    }
}

/// Builds intervals from answers.
#[derive(Debug, Default)]
struct PlaceIntervals {
    all: Vec<Run>,
    /// Frames whose answer differs from that of the last interval, and which may begin a new one.
    other: Option<Run>,
}

impl PlaceIntervals {
    fn on_frame(&mut self, now: Time, place: Place, frame: FrameSeen) {
        let Some(last) = self.all.last_mut() else {
            let mut first = Run::new(now, place);
            first.add(frame);
            self.all.push(first);
            return;
        };
        if place == last.place {
            if let Some(other) = self.other.take() {
                last.join(&other);
            }
            last.add(frame);
            return;
        }
        let other = self.other.get_or_insert(Run::new(now, place));
        other.add(frame);
        if other.frames >= u64::from(FRAMES_OF_A_SPELL) && self.all.len() < MAX_SPELLS {
            self.all.extend(self.other.take());
        }
    }

    fn report(mut self, first: Time, last: Time, is_numbered: bool) -> Vec<PlaceInterval> {
        if let (Some(run), Some(other)) = (self.all.last_mut(), self.other.take()) {
            run.join(&other);
        }
        let ends = self.all.iter().skip(1).map(|run| run.from).chain([last]);
        let since = |at: Time| at.since(first).as_secs_f64();
        let interval = |(run, end): (&Run, Time)| PlaceInterval {
            start_s: since(run.from),
            end_s: since(end.max(run.from)),
            place: run.place,
            frames: run.frames,
            level: run.levels as f64 / run.frames.max(1) as f64,
            loss: is_numbered.then(|| run.lost as f64 / (run.packets + run.lost).max(1) as f64),
        };
        self.all.iter().zip(ends).map(interval).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freshline_core::unit::Span;

    #[test]
    fn single_frames_make_no_spell() {
        let mut intervals = PlaceIntervals::default();
        let frame = FrameSeen { level: 2, others: 0, lost: 0, retried: 0 };
        let answers = "wwwwwbwwbbwwbbbbbbbwbb";
        for (at, answer) in (0..).zip(answers.chars()) {
            let place = if answer == 'w' { Place::Wireless } else { Place::Backhaul };
            intervals.on_frame(Time::ZERO + Span::from_secs(at), place, frame);
        }
        let end = Time::ZERO + Span::from_secs(30);
        let found = intervals.report(Time::ZERO, end, false);
        let spans = found
            .iter()
            .map(|interval| (interval.start_s, interval.end_s, interval.place, interval.frames));
        let expected = [(0.0, 12.0, Place::Wireless, 12), (12.0, 30.0, Place::Backhaul, 10)];
        assert_eq!(spans.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn segments_count_in_the_order_of_their_bytes() {
        let mut segments = Segments::default();
        let mut number = |seq: u32| segments.number(seq.wrapping_add(u32::MAX - 250), 100);
        assert_eq!([0, 100, 400].map(&mut number), [Some(0), Some(1), Some(4)]);
        // The first segment of the hole, the second, and the second once more.
        assert_eq!([200, 300, 300].map(&mut number), [Some(2), Some(3), None]);
        assert_eq!(number(500), Some(5));
    }
}
