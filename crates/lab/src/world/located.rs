//! Where a client thinks that its bottleneck is, beside where it is.
//!
//! ```text
//! waited before the cell   its time up to there, less the least of any packet so far
//! waited in the cell       its time there, until its frame ends
//! ```
//!
//! The truth is where packets wait longer. It moves once they wait twice as long at the other
//! place, so that nothing in between is called a move. A path with no queue waits in the cell alone,
//! for the end of its round: there is no bottleneck, and what stands before the cell is none. A
//! frame has the truth of its last packet.
//!
//! The thesis tells the truth from the settings: the backhaul, where it is slower than what is sent,
//! else the Wi-Fi (4.5.2.2). Both are the same once queues have grown.

use std::collections::VecDeque;

use freshline_core::unit::{Span, Time};
use freshline_core::wlan::{
    Aggregation, AggregationParams, Arrival, Bottleneck, FrameSeen, LevelCounter, Locator,
};

/// So many frames wait for their locator's answer, at most: those that are open or may be.
const MOST_OPEN: usize = 1024;

/// A frame with the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameRecord {
    /// When it came.
    pub at: Time,
    /// Packets in it, and what was lost before it.
    pub frame: FrameSeen,
    /// Where the bottleneck was.
    pub truth: Bottleneck,
}

/// How right a locator was. What nothing was known of is `None`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LocatedOutcome {
    /// The part of its answers that were right, one a frame, 0 to 1.
    pub right: Option<f64>,
    /// The F1 score of the backhaul, 0 to 1; `None` if it never was, and nobody thought so.
    pub f1: Option<f64>,
    /// How long a move of the bottleneck went without being noticed, at most.
    pub slowest_move: Option<Span>,
}

/// A client's locator, and what came of it.
#[derive(Debug)]
pub(super) struct Located {
    counter: Aggregation,
    locator: Locator,
    /// The least time that a packet took to the cell.
    least: Option<Span>,
    truth: Bottleneck,
    /// When the truth changed, if that was not noticed yet.
    moved_at: Option<Time>,
    /// Of frames without an answer, the truth.
    open: VecDeque<(Time, Bottleneck)>,
    records: Option<Vec<FrameRecord>>,
    tally: Tally,
}

#[derive(Debug, Default)]
struct Tally {
    /// By truth and answer, the backhaul first.
    answers: [[u64; 2]; 2],
    slowest_move: Option<Span>,
}

impl Located {
    pub(super) fn new(locator: Locator) -> Self {
        Self {
            counter: Aggregation::with_frames(AggregationParams::for_locator()),
            locator,
            least: None,
            truth: Bottleneck::Wireless,
            moved_at: None,
            open: VecDeque::with_capacity(MOST_OPEN),
            records: None,
            tally: Tally::default(),
        }
    }

    /// What was before counts no more, nor a move that was not noticed yet.
    pub(super) fn begin_measuring(&mut self) {
        self.tally = Tally::default();
        self.moved_at = None;
    }

    pub(super) fn keep_records(&mut self) {
        self.records.get_or_insert_default();
    }

    pub(super) fn records(&self) -> &[FrameRecord] {
        self.records.as_deref().unwrap_or_default()
    }

    /// A packet took so long to the cell, and so long in it.
    pub(super) fn on_packet(&mut self, now: Time, arrival: Arrival, before: Span, inside: Span) {
        self.see(now, arrival.stamp, before, inside);
        self.counter.on_packet(now, arrival);
        while let Some((stamp, frame)) = self.counter.next_frame(now) {
            self.on_frame(now, stamp, frame);
        }
    }

    /// Brings the truth up to date.
    fn see(&mut self, now: Time, stamp: Time, before: Span, inside: Span) {
        let least = self.least.map_or(before, |least| least.min(before));
        self.least = Some(least);
        let waited = before - least;
        let (here, there) = match self.truth {
            Bottleneck::Wireless => (inside, waited),
            Bottleneck::Backhaul => (waited, inside),
        };
        if there > here * 2 {
            self.truth = match self.truth {
                Bottleneck::Wireless => Bottleneck::Backhaul,
                Bottleneck::Backhaul => Bottleneck::Wireless,
            };
            // It moved back before anybody noticed: that was a move too.
            self.noticed(now);
            self.moved_at = Some(now);
        }
        match self.open.iter_mut().rev().find(|(frame, _)| *frame == stamp) {
            Some((_, truth)) => *truth = self.truth,
            None => {
                if self.open.len() == MOST_OPEN {
                    self.open.pop_front();
                }
                self.open.push_back((stamp, self.truth));
            }
        }
    }

    /// The client knows of a frame.
    fn on_frame(&mut self, now: Time, stamp: Time, frame: FrameSeen) {
        self.locator.on_frame(frame);
        let Some(place) = self.open.iter().position(|(open, _)| *open == stamp) else { return };
        let Some((at, truth)) = self.open.remove(place) else { return };
        if let Some(records) = &mut self.records {
            records.push(FrameRecord { at, frame, truth });
        }
        let Some(answer) = self.locator.bottleneck() else { return };
        let place = |bottleneck| usize::from(bottleneck == Bottleneck::Wireless);
        self.tally.answers[place(truth)][place(answer)] += 1;
        if answer == self.truth {
            self.noticed(now);
        }
    }

    fn noticed(&mut self, now: Time) {
        let Some(moved_at) = self.moved_at.take() else { return };
        let after = now.since(moved_at);
        self.tally.slowest_move = self.tally.slowest_move.max(Some(after));
    }

    pub(super) fn outcome(&self) -> LocatedOutcome {
        let [[hits, missed], [false_alarms, rest]] = self.tally.answers;
        let part = |some: u64, all: u64| (all > 0).then(|| some as f64 / all as f64);
        LocatedOutcome {
            right: part(hits + rest, hits + missed + false_alarms + rest),
            f1: part(2 * hits, 2 * hits + missed + false_alarms),
            slowest_move: self.tally.slowest_move,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freshline_core::wlan::{Training, Weights};

    fn located() -> Located {
        let training = Training { data: String::new(), seed: 0, samples: 0, f1: 0.0 };
        let (levels, packets) = (vec![-1.0], 1);
        let weights = Weights { version: 1, levels, loss: 0.0, intercept: 5.0, packets, training };
        Located::new(weights.build().unwrap())
    }

    fn ms(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn the_truth_is_where_packets_wait_and_answers_are_held_against_it() {
        let mut located = located();
        let mut now = 0;
        // To the cell and in it, in ms; the level, below 5 for the backhaul.
        for (before, inside, level) in
            [(3, 1, 9), (4, 1, 9), (9, 1, 9), (9, 1, 2), (3, 1, 2), (3, 1, 9)]
        {
            now += 10;
            let span = Span::from_millis;
            located.see(ms(now), ms(now), span(before), span(inside));
            located.on_frame(ms(now + 1), ms(now), FrameSeen { level, lost: 0 });
        }
        // The truth: W W B B W W, as 1 ms more is not twice as long; the answers: W W W B B W.
        let outcome = located.outcome();
        assert_eq!(outcome.right, Some(4.0 / 6.0));
        assert_eq!(outcome.f1, Some(0.5));
        assert_eq!(outcome.slowest_move, Some(Span::from_millis(11)));
        assert_eq!(located.records(), []);
    }
}
