//! The scoreboard of segments sent and not yet acknowledged (RFC 6675 section 3).
//!
//! ```text
//!            transmit                 ack or SACK
//!    (new) ───────────► in flight ───────────────────► delivered
//!                        ▲    │ late (RACK, timeout)       ▲
//!             retransmit │    ▼                            │
//!                        └── lost ─────────────────────────┘
//! ```
//!
//! Segments are kept in three orders, so that no operation visits all of them:
//!
//! - by offset: `segments`; acks remove from the front, SACK blocks find their place by bisection,
//!   and `sacked` holds the ranges already reported, so that a repeated block costs O(log holes);
//! - by time of transmission: `transmissions`, a log whose entries become stale when the segment
//!   is delivered, lost or sent again; stale ones are dropped when they come to the front;
//! - `lost`: a heap by offset of the segments to be retransmitted, which also drops stale entries.
//!
//! Each transmission enters and leaves each of them once: O(log n) per transmission, amortised.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use freshline_core::unit::{Span, Time};

use super::delivery_rate::Snapshot;
use super::ranges::Ranges;
use super::segment::{Block, SackBlocks};

/// A segment on the scoreboard.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentSegment {
    pub(super) seq: u64,
    /// The offset after the payload and FIN.
    pub(super) end: u64,
    pub(super) fin: bool,
    /// When it was sent last.
    pub(super) sent_at: Time,
    /// When it was first retransmitted.
    pub(super) again_at: Option<Time>,
    /// The state of delivery at that time.
    pub(super) then: Snapshot,
    /// The expected sojourn time in the device queue when it was first sent.
    pub(super) device_wait: Option<Span>,
    state: State,
    /// The number of its last transmission.
    transmission: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    InFlight,
    Sacked,
    Lost,
}

/// How a segment was found to be delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Acked,
    Sacked,
}

#[derive(Debug, Clone, Copy)]
struct Transmission {
    number: u64,
    /// The segment's number.
    id: u64,
}

#[derive(Debug, Default)]
pub(super) struct Scoreboard {
    /// In the order of offsets; their numbers count from `first` on.
    segments: VecDeque<SentSegment>,
    first: u64,
    acked_to: u64,
    sent_to: u64,
    sacked: Ranges,
    /// In the order of time.
    transmissions: VecDeque<Transmission>,
    next_transmission: u64,
    /// Numbers of segments to retransmit.
    lost: BinaryHeap<Reverse<u64>>,
    in_flight: u64,
    lost_count: u64,
    /// The expected sojourn time in the device queue of a segment that is sent now.
    pub(super) device_wait: Option<Span>,
}

impl Scoreboard {
    /// All data below this offset is acknowledged.
    pub(super) fn acked_to(&self) -> u64 {
        self.acked_to
    }

    /// The next offset to be sent for the first time.
    pub(super) fn sent_to(&self) -> u64 {
        self.sent_to
    }

    /// Segments sent, and neither delivered nor lost: the pipe of RFC 6675.
    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Segments lost and not yet retransmitted.
    pub(super) fn lost(&self) -> u64 {
        self.lost_count
    }

    /// Whether the first segment that the receiver misses is lost, and not yet retransmitted.
    pub(super) fn is_first_waiting(&self) -> bool {
        self.segments.front().is_some_and(|sent| sent.state == State::Lost)
    }

    /// Segments delivered beyond a hole.
    pub(super) fn sacked(&self) -> u64 {
        self.segments.len() as u64 - self.in_flight - self.lost_count
    }

    /// Segments on the scoreboard.
    pub(super) fn outstanding(&self) -> u64 {
        self.segments.len() as u64
    }

    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// New data up to `end` is sent.
    pub(super) fn send(&mut self, now: Time, end: u64, fin: bool, then: Snapshot) {
        let transmission = self.next_transmission;
        self.log(self.first + self.segments.len() as u64);
        self.segments.push_back(SentSegment {
            seq: self.sent_to,
            end,
            fin,
            sent_at: now,
            again_at: None,
            then,
            device_wait: self.device_wait,
            state: State::InFlight,
            transmission,
        });
        self.sent_to = end;
        self.in_flight += 1;
    }

    /// The lost segment with the lowest offset is retransmitted.
    pub(super) fn retransmit_lost(&mut self, now: Time, then: Snapshot) -> Option<SentSegment> {
        while let Some(Reverse(id)) = self.lost.pop() {
            if self.segment(id).is_some_and(|sent| sent.state == State::Lost) {
                self.lost_count -= 1;
                self.in_flight += 1;
                return self.transmit_again(id, now, then);
            }
        }
        None
    }

    /// Where the lost segment with the lowest offset begins.
    pub(super) fn first_lost(&mut self) -> Option<u64> {
        while let Some(&Reverse(id)) = self.lost.peek() {
            if let Some(sent) = self.segment(id).filter(|sent| sent.state == State::Lost) {
                return Some(sent.seq);
            }
            self.lost.pop();
        }
        None
    }

    /// The last segment is sent again while it is in flight, as a probe.
    pub(super) fn retransmit_last(&mut self, now: Time, then: Snapshot) -> Option<SentSegment> {
        let id = self.first + (self.segments.len() as u64).checked_sub(1)?;
        let in_flight = self.segment(id).is_some_and(|sent| sent.state == State::InFlight);
        in_flight.then(|| self.transmit_again(id, now, then)).flatten()
    }

    /// An ack has arrived: all data below `ack` and in `sack` has arrived. Reports each segment
    /// that this delivers, and returns whether `ack` advances.
    pub(super) fn on_ack(
        &mut self,
        ack: u64,
        sack: SackBlocks,
        mut delivered: impl FnMut(&SentSegment, How),
    ) -> bool {
        let advances = ack > self.acked_to && ack <= self.sent_to;
        if advances {
            self.acked_to = ack;
            self.sacked.remove_below(ack);
            while let Some(sent) = self.segments.front().filter(|sent| sent.end <= ack).copied() {
                self.segments.pop_front();
                self.first += 1;
                if sent.state != State::Sacked {
                    self.uncount(sent.state);
                    delivered(&sent, How::Acked);
                }
            }
        }
        for block in sack.ascending().as_slice() {
            self.sack(*block, &mut delivered);
        }
        advances
    }

    /// The segment in flight that was sent first.
    pub(super) fn oldest_in_flight(&mut self) -> Option<SentSegment> {
        while let Some(oldest) = self.transmissions.front() {
            match self.segment(oldest.id) {
                Some(sent)
                    if sent.state == State::InFlight && sent.transmission == oldest.number =>
                {
                    return Some(*sent);
                }
                _ => self.transmissions.pop_front(),
            };
        }
        None
    }

    /// The segment in flight that was sent first is lost.
    pub(super) fn oldest_is_lost(&mut self) {
        if self.oldest_in_flight().is_some()
            && let Some(oldest) = self.transmissions.pop_front()
        {
            self.is_lost(oldest.id);
        }
    }

    /// The first segment that the receiver misses is lost, if it is not already.
    pub(super) fn first_is_lost(&mut self) {
        if self.segments.front().is_some_and(|sent| sent.state == State::InFlight) {
            self.is_lost(self.first);
        }
    }

    fn is_lost(&mut self, id: u64) {
        if let Some(sent) = self.segment_mut(id) {
            sent.state = State::Lost;
            self.in_flight -= 1;
            self.lost_count += 1;
            self.lost.push(Reverse(id));
        }
    }

    fn transmit_again(&mut self, id: u64, now: Time, then: Snapshot) -> Option<SentSegment> {
        let transmission = self.next_transmission;
        self.log(id);
        let sent = self.segment_mut(id)?;
        sent.state = State::InFlight;
        sent.again_at.get_or_insert(now);
        (sent.sent_at, sent.then, sent.transmission) = (now, then, transmission);
        Some(*sent)
    }

    fn log(&mut self, id: u64) {
        self.transmissions.push_back(Transmission { number: self.next_transmission, id });
        self.next_transmission += 1;
    }

    /// Marks the segments that lie in `block` as a whole and are not marked yet.
    fn sack(&mut self, block: Block, delivered: &mut impl FnMut(&SentSegment, How)) {
        let end = block.end.min(self.sent_to);
        let mut start = block.start.max(self.acked_to);
        while let Some(gap) = self.sacked.first_gap(Block { start, end }) {
            start = gap.end;
            let from = self.segments.partition_point(|sent| sent.seq < gap.start);
            let mut whole = None;
            for index in from..self.segments.len() {
                let sent = &mut self.segments[index];
                if sent.end > gap.end {
                    break;
                }
                let state = std::mem::replace(&mut sent.state, State::Sacked);
                whole =
                    Some(Block { start: self.segments[from].seq, end: self.segments[index].end });
                if state != State::Sacked {
                    delivered(&self.segments[index], How::Sacked);
                    self.uncount(state);
                }
            }
            if let Some(whole) = whole {
                self.sacked.insert(whole);
            }
        }
    }

    fn uncount(&mut self, state: State) {
        match state {
            State::InFlight => self.in_flight -= 1,
            State::Lost => self.lost_count -= 1,
            State::Sacked => {}
        }
    }

    fn segment(&self, id: u64) -> Option<&SentSegment> {
        self.segments.get(usize::try_from(id.checked_sub(self.first)?).ok()?)
    }

    fn segment_mut(&mut self, id: u64) -> Option<&mut SentSegment> {
        self.segments.get_mut(usize::try_from(id.checked_sub(self.first)?).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::delivery_rate::DeliveryRate;
    use super::*;
    use proptest::prelude::*;

    fn with_ten_segments() -> Scoreboard {
        let mut board = Scoreboard::default();
        for end in (100..=1000).step_by(100) {
            let then = DeliveryRate::new().on_sent(Time::from_nanos(end), 0);
            board.send(Time::from_nanos(end), end, false, then);
        }
        board
    }

    fn blocks<const N: usize>(ranges: [(u64, u64); N]) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        ranges.into_iter().for_each(|(start, end)| blocks.push(Block { start, end }));
        blocks
    }

    fn retransmit(board: &mut Scoreboard, now: u64) -> Option<u64> {
        let now = Time::from_nanos(now);
        let then = DeliveryRate::new().on_sent(now, 0);
        board.retransmit_lost(now, then).map(|sent| sent.seq)
    }

    #[test]
    fn what_is_lost_is_sent_again_from_the_lowest_offset_on() {
        let mut board = with_ten_segments();
        for _ in 0..3 {
            board.oldest_is_lost();
        }
        assert_eq!((board.in_flight(), board.lost()), (7, 3));
        // The ack of the second while it waits for its retransmission.
        board.on_ack(0, blocks([(100, 200)]), |_, _| {});
        assert_eq!(retransmit(&mut board, 2000), Some(0));
        assert_eq!(retransmit(&mut board, 2000), Some(200));
        assert_eq!(retransmit(&mut board, 2000), None);
        assert_eq!((board.in_flight(), board.lost(), board.sacked()), (9, 0, 1));
        assert_eq!(board.oldest_in_flight().map(|sent| sent.seq), Some(300));
    }

    #[test]
    fn half_a_segment_is_not_delivered() {
        let mut board = with_ten_segments();
        let mut delivered = Vec::new();
        let sack = blocks([(500, 600), (250, 550)]);
        assert!(board.on_ack(150, sack, |sent, how| delivered.push((sent.seq, how))));
        let sacked = [300, 400, 500].map(|seq| (seq, How::Sacked));
        assert_eq!(delivered, [&[(0, How::Acked)], &sacked[..]].concat());
    }

    #[test]
    fn an_ack_of_what_was_never_sent_means_nothing() {
        let mut board = with_ten_segments();
        let sack = blocks([(5000, u64::MAX), (9, 3)]);
        assert!(!board.on_ack(1001, sack, |sent, _| panic!("{sent:?}")));
        assert_eq!(board.in_flight(), 10);
    }

    proptest! {
        #[test]
        fn every_segment_is_delivered_once_whatever_happens(
            steps in prop::collection::vec((0u8..5, 0u64..1100, 0u64..400), 0..80),
        ) {
            let mut board = with_ten_segments();
            let mut count = [0; 10];
            let mut now = 1000;
            for (kind, start, len) in steps {
                now += 1;
                let mut deliver = |sent: &SentSegment, _| count[(sent.seq / 100) as usize] += 1;
                let block = (start, start + len);
                match kind {
                    0 => { board.on_ack(start, blocks([]), &mut deliver); }
                    1 => { board.on_ack(0, blocks([block, block]), &mut deliver); }
                    2 => board.oldest_is_lost(),
                    3 => board.first_is_lost(),
                    _ => { retransmit(&mut board, now); }
                }
                let states = |state| board.segments.iter().filter(|s| s.state == state).count() as u64;
                prop_assert_eq!(board.in_flight(), states(State::InFlight));
                prop_assert_eq!(board.lost(), states(State::Lost));
                prop_assert_eq!(board.sacked(), states(State::Sacked));
                let oldest = board.segments.iter().filter(|s| s.state == State::InFlight);
                let oldest = oldest.min_by_key(|s| s.transmission).map(|s| s.seq);
                prop_assert_eq!(board.oldest_in_flight().map(|s| s.seq), oldest);
            }
            board.on_ack(1000, blocks([]), |sent, _| count[(sent.seq / 100) as usize] += 1);
            prop_assert_eq!(count, [1; 10]);
            prop_assert!(board.is_empty());
        }
    }
}
