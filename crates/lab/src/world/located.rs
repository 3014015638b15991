//! Compares a client's verdicts on the location of its bottleneck with the truth.
//!
//! ```text
//! delay before the cell     its time up to there, less the minimum of all packets so far
//! delay in the cell         its time there, until its frame ends
//! ```
//!
//! The truth is the place with the higher queueing delay. It moves once the delay at the other
//! place is twice as high, so that values in between do not count as moves. On a path without a
//! queue, packets wait only in the cell, for the end of its round: there is no bottleneck, and a
//! delay before the cell is not counted. A frame has the truth of its last packet.
//!
//! The thesis (Hassani) derives the truth from the settings: the backhaul if its rate is below the
//! sending rate, otherwise the Wi-Fi (sections 4.5.2.2, and 4.5.3 while other traffic is sent).
//! Both definitions agree once queues have grown; verdicts are compared with either one, if the
//! settings determine a bottleneck. A move by settings is a move of the sending rate: until the
//! backhaul's queue is full nothing is lost, and the level looks like that of a network with less
//! traffic.

use std::collections::VecDeque;

use freshline_core::unit::{Span, Time};
use freshline_core::wlan::{
    Aggregation, AggregationParams, Arrival, Bottleneck, FrameSeen, LevelCounter, Locator,
};

/// The maximum number of frames for which the locator's verdict is pending.
const MAX_OPEN: usize = 1024;

/// A frame with the true bottleneck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameRecord {
    /// When it arrived.
    pub at: Time,
    /// The packets in it, and the packets lost before it.
    pub frame: FrameSeen,
    /// Where the bottleneck was.
    pub truth: Bottleneck,
}

/// The accuracy of a locator. Unknown values are `None`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LocatedOutcome {
    /// The fraction of correct verdicts, one per frame, 0 to 1.
    pub right: Option<f64>,
    /// The fraction of correct slots of 500 ms, 0 to 1: the majority of a slot's verdicts is equal
    /// to the majority of its frames' truths.
    pub slots: Option<f64>,
    /// The F1 score of the backhaul, 0 to 1; `None` if it never was the bottleneck, and no verdict
    /// was the backhaul.
    pub f1: Option<f64>,
    /// The maximum time until a move of the bottleneck was detected.
    pub slowest_move: Option<Span>,
    /// The accuracy with the truth by the settings, if they determine a bottleneck.
    pub by_settings: Option<SettledOutcome>,
}

/// The accuracy of a locator with the truth by the settings. Unknown values are `None`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SettledOutcome {
    /// The fraction of correct verdicts, 0 to 1.
    pub right: Option<f64>,
    /// The same for verdicts at least [`SETTLED`] after the last move.
    pub right_when_still: Option<f64>,
    /// The maximum time from a move of the settings to the first correct verdict.
    pub slowest_move: Option<Span>,
}

/// After this time without a move of the settings, the bottleneck counts as settled. It is the time
/// that detection may take.
pub const SETTLED: Span = Span::from_millis(100);

/// A slot of a law, at the end of which it reads the location of the bottleneck.
const SLOT: Span = Span::from_millis(500);

/// A client's locator, and its record.
#[derive(Debug)]
pub(super) struct Located {
    counter: Aggregation,
    locator: Locator,
    /// The minimum delay of a packet up to the cell.
    least: Option<Span>,
    truth: Bottleneck,
    /// When the truth changed, until the change is detected.
    moved_at: Option<Time>,
    /// The truth of frames without a verdict.
    open: VecDeque<(Time, Bottleneck)>,
    records: Option<Vec<FrameRecord>>,
    tally: Tally,
    settled: Option<Settled>,
}

/// Verdicts compared with the settings.
#[derive(Debug)]
struct Settled {
    /// Past moves, of which only the last one is kept, at the front, and future ones.
    bottlenecks: VecDeque<(Time, Bottleneck)>,
    /// When the last move happened, until it is detected.
    moved_at: Option<Time>,
    /// Correct verdicts, and all.
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
            // It moved back before the move was detected.
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

/// Verdicts and truths of the current slot.
#[derive(Debug, Default)]
struct Slots {
    ends_at: Option<Time>,
    /// The number of frames with the backhaul minus those with the Wi-Fi: by verdicts, and in
    /// truth.
    balance: [i64; 2],
    /// Correct slots, and all.
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
    /// Counts by truth and verdict, the backhaul first.
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

    /// Sets the bottlenecks by the settings, with the times from which they hold, in order.
    pub(super) fn set_bottlenecks(&mut self, bottlenecks: Vec<(Time, Bottleneck)>) {
        self.settled = Some(Settled::new(bottlenecks));
    }

    /// Discards the measurements so far, and a move that was not yet detected.
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

    /// A packet has taken `before` to reach the cell, and `inside` in it.
    pub(super) fn on_packet(&mut self, now: Time, arrival: Arrival, before: Span, inside: Span) {
        self.see(now, arrival.stamp, before, inside);
        self.counter.on_packet(now, arrival);
        while let Some((stamp, frame)) = self.counter.next_frame(now) {
            self.on_frame(now, stamp, frame);
        }
    }

    /// A packet of another flow has arrived in the frame with this timestamp.
    pub(super) fn on_other(&mut self, stamp: Time) {
        self.counter.on_others(stamp, 1);
    }

    /// Updates the truth.
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
            // It moved back before the move was detected: that counts as a move, too.
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

    /// The client has counted a frame.
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

    /// Its newest verdict.
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
        // The delays before the cell and in it, in ms; the level is below 5 for the backhaul.
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
        // The truth: W W B B W W, as 1 ms more is not twice as long; the verdicts: W W W B B W.
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
        // Three slots: a fifth late, wrong, right.
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
