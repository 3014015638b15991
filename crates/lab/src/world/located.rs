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
//! else the Wi-Fi (4.5.2.2, and while other traffic is sent, 4.5.3). Both are the same once
//! queues have grown; answers are held against either, where the settings tell. A move by settings is
//! one of what is sent: until the backhaul's queue is full nothing is lost, and no level tells it from a
//! network with less to carry.

use std::collections::VecDeque;

use freshline_core::unit::{Span, Time};
use freshline_core::wlan::{
    Aggregation, AggregationParams, Arrival, Bottleneck, FrameSeen, LevelCounter, Locator,
};

/// So many frames wait for their locator's answer, at most: those that are open or may be.
const MAX_OPEN: usize = 1024;

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
    /// The fraction of slots of 500 ms that were right, 0 to 1: most of a slot's answers are those of
    /// most of its frames.
    pub slots: Option<f64>,
    /// The F1 score of the backhaul, 0 to 1; `None` if it never was, and nobody thought so.
    pub f1: Option<f64>,
    /// How long a move of the bottleneck went without being noticed, at most.
    pub slowest_move: Option<Span>,
    /// The same where the truth is that of the settings, if they tell it.
    pub by_settings: Option<SettledOutcome>,
}

/// How right a locator was by the settings. What nothing was known of is `None`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SettledOutcome {
    /// The part of all answers that were right, 0 to 1.
    pub right: Option<f64>,
    /// Of those that came [`SETTLED`] or more after the last move.
    pub right_when_still: Option<f64>,
    /// From a move of the settings to the first right answer, at most.
    pub slowest_move: Option<Span>,
}

/// So long after a move of the settings the bottleneck stands still: as long as its detection may
/// take.
pub const SETTLED: Span = Span::from_millis(100);

/// A slot of a law, at the end of which it asks where the bottleneck is.
const SLOT: Span = Span::from_millis(500);

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
    settled: Option<Settled>,
}

/// Answers held against the settings.
#[derive(Debug)]
struct Settled {
    /// Moves that have been, the last one at the front, and those to come.
    bottlenecks: VecDeque<(Time, Bottleneck)>,
    /// The last move, if nobody noticed it yet.
    moved_at: Option<Time>,
    /// Right ones, and all.
    answers: [u64; 2],
    still: [u64; 2],
    slowest_move: Option<Span>,
}

impl Settled {
    fn new(bottlenecks: Vec<(Time, Bottleneck)>) -> Self {
        let bottlenecks = bottlenecks.into();
        Self { bottlenecks, moved_at: None, answers: [0; 2], still: [0; 2], slowest_move: None }
    }

    fn begin_measuring(&mut self) {
        (self.answers, self.still, self.slowest_move) = ([0; 2], [0; 2], None);
        self.moved_at = None;
    }

    fn on_answer(&mut self, now: Time, answer: Bottleneck) {
        while let Some((at, _)) = self.bottlenecks.get(1).copied().filter(|(at, _)| *at <= now) {
            self.bottlenecks.pop_front();
            // It moved back before anybody noticed.
            self.noticed(at);
            self.moved_at = Some(at);
        }
        let Some((since, truth)) = self.bottlenecks.front().copied() else { return };
        let is_right = u64::from(answer == truth);
        let count = |[right, all]: &mut [u64; 2]| (*right, *all) = (*right + is_right, *all + 1);
        count(&mut self.answers);
        if now >= since + SETTLED {
            count(&mut self.still);
        }
        if answer == truth {
            self.noticed(now);
        }
    }

    fn noticed(&mut self, now: Time) {
        let Some(moved_at) = self.moved_at.take() else { return };
        self.slowest_move = self.slowest_move.max(Some(now.since(moved_at)));
    }

    fn outcome(&self) -> SettledOutcome {
        let part = |[right, all]: [u64; 2]| (all > 0).then(|| right as f64 / all as f64);
        SettledOutcome {
            right: part(self.answers),
            right_when_still: part(self.still),
            slowest_move: self.slowest_move,
        }
    }
}

/// Answers and truths of the slot that is not over.
#[derive(Debug, Default)]
struct Slots {
    ends_at: Option<Time>,
    /// Frames with the backhaul less those with the Wi-Fi: by the answers, and in truth.
    balance: [i64; 2],
    /// Right ones, and all.
    over: [u64; 2],
}

impl Slots {
    fn on_answer(&mut self, now: Time, both: [Bottleneck; 2]) {
        let ends_at = *self.ends_at.get_or_insert(now + SLOT);
        if now >= ends_at {
            let [answer, truth] = self.balance.map(|balance| balance > 0);
            self.over = [self.over[0] + u64::from(answer == truth), self.over[1] + 1];
            self.balance = [0; 2];
            let passed = now.since(ends_at).as_nanos() / SLOT.as_nanos();
            self.ends_at = Some(ends_at + SLOT * (passed + 1));
        }
        for (balance, place) in self.balance.iter_mut().zip(both) {
            *balance += if place == Bottleneck::Backhaul { 1 } else { -1 };
        }
    }
}

#[derive(Debug, Default)]
struct Tally {
    slots: Slots,
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
            open: VecDeque::with_capacity(MAX_OPEN),
            records: None,
            tally: Tally::default(),
            settled: None,
        }
    }

    /// Where the bottleneck is by the settings, from which time on, in order.
    pub(super) fn set_bottlenecks(&mut self, bottlenecks: Vec<(Time, Bottleneck)>) {
        self.settled = Some(Settled::new(bottlenecks));
    }

    /// What was before counts no more, nor a move that was not noticed yet.
    pub(super) fn begin_measuring(&mut self) {
        self.tally = Tally::default();
        self.moved_at = None;
        self.settled.iter_mut().for_each(Settled::begin_measuring);
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

    /// A packet of another flow came in the frame of this stamp.
    pub(super) fn on_other(&mut self, stamp: Time) {
        self.counter.on_others(stamp, 1);
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
                if self.open.len() == MAX_OPEN {
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
        if let Some(settled) = &mut self.settled {
            settled.on_answer(now, answer);
        }
        let place = |bottleneck| usize::from(bottleneck == Bottleneck::Wireless);
        self.tally.answers[place(truth)][place(answer)] += 1;
        self.tally.slots.on_answer(now, [answer, truth]);
        if answer == self.truth {
            self.noticed(now);
        }
    }

    fn noticed(&mut self, now: Time) {
        let Some(moved_at) = self.moved_at.take() else { return };
        let after = now.since(moved_at);
        self.tally.slowest_move = self.tally.slowest_move.max(Some(after));
    }

    /// Its newest answer.
    pub(super) fn bottleneck(&self) -> Option<Bottleneck> {
        self.locator.bottleneck()
    }

    pub(super) fn outcome(&self) -> LocatedOutcome {
        let [[hits, missed], [false_alarms, rest]] = self.tally.answers;
        let part = |some: u64, all: u64| (all > 0).then(|| some as f64 / all as f64);
        LocatedOutcome {
            right: part(hits + rest, hits + missed + false_alarms + rest),
            slots: part(self.tally.slots.over[0], self.tally.slots.over[1]),
            f1: part(2 * hits, 2 * hits + missed + false_alarms),
            slowest_move: self.tally.slowest_move,
            by_settings: self.settled.as_ref().map(Settled::outcome),
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
        let weights = Weights {
            version: 2,
            levels,
            loss: 0.0,
            intercept: 5.0,
            packets,
            burst: 1,
            drain: 0.5,
            retry: 0.0,
            cap: 1.0,
            full: 64,
            most: 64,
            training,
        };
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
            located.on_frame(
                ms(now + 1),
                ms(now),
                FrameSeen { level, others: 0, lost: 0, retried: 0 },
            );
        }
        // The truth: W W B B W W, as 1 ms more is not twice as long; the answers: W W W B B W.
        let outcome = located.outcome();
        assert_eq!(outcome.right, Some(4.0 / 6.0));
        assert_eq!(outcome.f1, Some(0.5));
        assert_eq!(outcome.slowest_move, Some(Span::from_millis(11)));
        assert_eq!(located.records(), []);
        assert_eq!(outcome.by_settings, None);
    }

    #[test]
    fn a_slot_is_right_if_most_of_its_answers_are() {
        use Bottleneck::{Backhaul, Wireless};
        let mut slots = Slots::default();
        // Three slots: late by a fifth, wrong, right.
        for at in 0..151 {
            let truth = if at < 100 { Backhaul } else { Wireless };
            let answer = if (10..50).contains(&at) { Backhaul } else { Wireless };
            slots.on_answer(ms(10 * at), [answer, truth]);
        }
        assert_eq!(slots.over, [2, 3]);
    }

    #[test]
    fn a_move_by_settings_counts_from_when_it_is_made() {
        use Bottleneck::{Backhaul, Wireless};
        let moves = [(0, Wireless), (1000, Backhaul), (2000, Wireless), (2010, Backhaul)];
        let mut settled = Settled::new(moves.map(|(at, place)| (ms(at), place)).to_vec());
        for (at, answer) in [
            (500, Wireless),
            (1050, Wireless),
            (1080, Backhaul),
            (1100, Backhaul),
            (2050, Backhaul),
        ] {
            settled.on_answer(ms(at), answer);
        }
        let outcome = settled.outcome();
        assert_eq!((outcome.right, outcome.right_when_still), (Some(0.8), Some(1.0)));
        assert_eq!(outcome.slowest_move, Some(Span::from_millis(80)));
        settled.begin_measuring();
        assert_eq!(settled.outcome().right, None);
    }
}
