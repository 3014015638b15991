//! Counts losses by the monitor's counters, and tests whether a full queue causes them.
//!
//! ```text
//!   lost = sent − arrived       updates, between two acks; arrived = fresh + stale, as the monitor counts
//!
//!   full queue:  of a train of 4, the updates behind the first are lost more often than single updates
//!   random:      as often
//! ```
//!
//! Behind a full drop-tail queue the first update of a train may find the last place, and the
//! followers find no place. Delays cannot separate the two causes: all updates that pass a full
//! queue have the same delay. A train takes the place of as many single updates, so that the test
//! adds no load. Until a test has shown otherwise, a full queue is taken to be the cause. After
//! such a verdict there is no test for a while, as trains fill queues.
//!
//! Once losses are known to be random, this number of `n` updates may be lost without a price:
//!
//! ```text
//!   n·p + 2½ · (n·p·(1−p)·D)^½      D = Σ run² / Σ run, of updates lost in a row: 1 or more
//! ```
//!
//! p is the loss rate of the test plus its standard deviation. A higher loss rate starts another
//! test. `verdict` has the conditions of a test's outcome.

mod verdict;

use super::counts::{Counted, Runs};
use super::price::FREE;
use crate::source::Ack;
use crate::unit::{Span, Time};

/// Losses are counted over this number of updates at least.
const COUNTED: f64 = 32.0;

/// A loss rate is that of this number of updates at least.
const AT_LEAST: f64 = 8.0;

/// Updates of a train, including the first one.
pub(super) const TRAIN: u32 = 4;

/// Single updates between two trains during a test.
const BETWEEN: u32 = 1;

/// The same, once losses are known to be random.
const BETWEEN_RANDOM: u32 = 24;

/// The maximum number of trains in a test, with or without their first update.
const MAX_TRAINS: u32 = 36;

/// The time to the next test after a full queue was found; it doubles each time,
const REST: Span = Span::from_secs(8);

/// up to this.
const MAX_REST: Span = Span::from_secs(128);

/// Random losses vary by this number of standard deviations.
const DEVIATIONS: f64 = 2.5;

/// At most this above the mean of random losses counts as random in a few updates,
const MAX_ABOVE: f64 = 0.4;

/// and at most this in all: with more, losses of a crowd that joins would pass for random, too.
const MAX_PART: f64 = 0.7;

#[derive(Debug, Clone, Default)]
pub(super) struct Losses {
    last: Option<Ack>,
    /// The loss rate of about the last 32 updates.
    steady: f64,
    /// Counts since the rate was cut for losses.
    recent: Counted,
    runs: Runs,
    /// Single updates, and followers of trains.
    alone: Counted,
    behind: Counted,
    is_tested: bool,
    /// No verdict yet.
    is_open: bool,
    /// Trains of this test, and those of them that lost the first update but not all.
    trains: u32,
    headless: u32,
    /// When the next test may begin, and the length of this rest.
    rests_until: Time,
    rest: Span,
    /// The rate of random losses; 0 if a full queue is the cause.
    random: f64,
    /// The first update of the train without a verdict.
    train: Option<u64>,
    /// Its ack.
    first: Option<Ack>,
    /// Updates of a train that have yet to leave.
    left: u32,
    since_train: u32,
    /// The newest follower (an update that left together with its predecessor), and the length of
    /// its row.
    follower: u64,
    followers: u32,
    /// Followers whose predecessor is not accounted for.
    pairs: u32,
}

impl Losses {
    /// The recent loss rate beyond random losses, 0 to 1. A single loss does not count.
    pub(super) fn part(&self) -> f64 {
        let sent = self.recent.sent.max(AT_LEAST);
        self.not_random(Counted { sent, lost: self.recent.lost })
    }

    /// The loss rate of these updates beyond random losses, 0 to 1. A single loss does not count.
    pub(super) fn not_random(&self, of: Counted) -> f64 {
        ((of.lost - 1.0) / of.sent - self.allowance(of.sent)).clamp(0.0, 1.0)
    }

    /// The rate was cut: earlier losses do not show the losses at the new one.
    pub(super) fn forget(&mut self) {
        self.recent = Counted::default();
    }

    /// Tests whether losses are random, with `too_many` of them; returns whether a test begins.
    pub(super) fn test(&mut self, now: Time, too_many: f64) -> bool {
        let is_other = self.are_random() && !self.is_open && too_many > 2.0 * FREE;
        if !is_other && (self.is_tested || now < self.rests_until) {
            return false;
        }
        (self.is_tested, self.is_open) = (true, true);
        self.begin_test();
        true
    }

    /// Ends the test, as no trains can leave, and drops earlier verdicts, which are out of date.
    pub(super) fn give_up(&mut self) {
        (self.is_tested, self.is_open, self.random) = (false, false, 0.0);
        (self.train, self.left) = (None, 0);
        self.begin_test();
    }

    /// Prevents tests for a while, for twice as long each time.
    fn rest(&mut self, now: Time) {
        self.rest = (self.rest * 2).clamp(REST, MAX_REST);
        self.rests_until = now + self.rest;
    }

    fn begin_test(&mut self) {
        (self.alone, self.behind) = (Counted::default(), Counted::default());
        (self.trains, self.headless) = (0, 0);
    }

    /// The losses of these updates beyond the mean of random losses: below 0 if there were fewer,
    /// or if some arrived late.
    pub(super) fn excess(&self, since: Counted) -> f64 {
        since.lost - since.sent.max(0.0) * self.random
    }

    /// The fraction of this number of updates that may be lost at random, 0 to 1.
    fn allowance(&self, sent: f64) -> f64 {
        if !self.are_random() {
            return 0.0;
        }
        let variance = self.random * (1.0 - self.random) * self.runs.dispersion() / sent;
        let bound = (self.random + MAX_ABOVE).min(MAX_PART);
        (self.random + DEVIATIONS * libm::sqrt(variance)).min(bound)
    }

    /// Whether a test has shown random losses.
    pub(super) fn are_random(&self) -> bool {
        self.random > 0.0
    }

    /// Whether a test has begun and has no verdict yet.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// The loss rate of about the last 32 updates, whatever the cause.
    pub(super) fn steady(&self) -> f64 {
        self.steady
    }

    /// Whether the next update belongs to a train, and leaves at once.
    pub(super) fn is_in_train(&self) -> bool {
        self.left > 0
    }

    /// An update leaves; `follows`: together with its predecessor. It may begin a train. Returns
    /// whether it ends one.
    pub(super) fn on_sent(&mut self, now: Time, seq: u64, follows: bool, may_begin: bool) -> bool {
        if follows {
            let continues = self.followers > 0 && self.follower.wrapping_add(1) == seq;
            self.followers = if continues { self.followers.saturating_add(1) } else { 1 };
            self.follower = seq;
            self.pairs = self.pairs.saturating_add(1);
        }
        if self.left > 0 && follows {
            self.left -= 1;
            return self.left == 0;
        }
        if self.left > 0 {
            // The source has no update ready, or a limit delayed it: that was no train.
            (self.left, self.train) = (0, None);
        }
        let begins = may_begin && self.begins_train();
        self.since_train = self.since_train.saturating_add(1);
        if begins {
            (self.train, self.first) = (Some(seq), None);
            (self.left, self.since_train) = (TRAIN - 1, 0);
            self.trains = self.trains.saturating_add(1);
            if self.trains > 2 * MAX_TRAINS {
                // No train stays together.
                self.give_up();
                self.rest(now);
            }
        }
        false
    }

    /// Whether the next update begins a train, if it may: not before the last one has a verdict.
    pub(super) fn begins_train(&self) -> bool {
        let is_known = self.are_random() && !self.is_open;
        let between = if is_known { BETWEEN_RANDOM } else { BETWEEN };
        self.is_tested && self.train.is_none() && self.since_train.saturating_add(1) >= between
    }

    /// Whether an update left together with its predecessor, and queued behind it.
    pub(super) fn has_followed(&self, seq: u64) -> bool {
        let ago = self.follower.checked_sub(seq);
        ago.is_some_and(|ago| ago < u64::from(self.followers))
    }

    /// A fresh ack: returns the updates sent and lost since the last one, with the longest runs
    /// shortened. Losses are counted over `counted` updates or more.
    pub(super) fn on_ack(&mut self, now: Time, ack: &Ack, counted: f64) -> Counted {
        let Some(last) = self.last.replace(*ack) else { return Counted::default() };
        let mut since = between(&last, ack);
        let lost = since.lost;
        if self.is_tested {
            self.alone.add(self.of_those_alone(&last, ack, since));
        }
        if since.sent > 0.0 {
            let weight = (since.sent / COUNTED).min(1.0);
            self.steady += weight * (since.lost / since.sent - self.steady);
        }
        if ack.seq >= self.follower {
            let followers = f64::from(core::mem::take(&mut self.pairs));
            if since.lost > 0.0 && (ack.seq == self.follower || self.is_open) {
                // A queue that keeps only the freshest update drops the earlier ones of a train,
                // and losses that a test's own trains cause must not slow the source down compared
                // with sources that test nothing.
                since.lost = (since.lost - followers).max(0.0);
            }
        }
        since = since.shortened();
        if since.is_run() {
            self.runs.add(since.lost);
        }
        if self.recent.sent > COUNTED.max(counted) {
            self.recent.halve();
        }
        self.recent.add(since);
        self.see_train(now, ack, lost);
        since
    }

    /// The part of `since` that belongs to single updates, including the first ones of trains. If
    /// updates up to a train's first one were lost together with followers, each is equally likely
    /// to be among them.
    fn of_those_alone(&self, last: &Ack, ack: &Ack, since: Counted) -> Counted {
        match self.train {
            Some(first) if ack.seq > first && last.seq < first => {
                let alone = (first - last.seq) as f64;
                Counted { sent: alone, lost: since.lost * alone / (since.sent - 1.0) }
            }
            Some(first) if ack.seq > first => Counted::default(),
            _ => since,
        }
    }

    /// Evaluates the train that an ack completes.
    fn see_train(&mut self, now: Time, ack: &Ack, lost: f64) {
        let Some(train) = self.train.filter(|train| ack.seq >= *train) else { return };
        match self.first {
            None if ack.seq == train => self.first = Some(*ack),
            // The first update is lost, or only its ack.
            None => {
                self.train = None;
                self.headless += u32::from(lost >= 2.0);
                self.judge(now);
            }
            Some(first) if ack.seq - train >= u64::from(TRAIN) - 1 => {
                self.behind.add(of_train(train, between(&first, ack), ack));
                self.train = None;
                self.judge(now);
            }
            Some(_) => {}
        }
    }
}

/// The part of `since` that belongs to a train's followers: later updates may have been lost as
/// well, but not the last one.
fn of_train(train: u64, since: Counted, ack: &Ack) -> Counted {
    let followers = f64::from(TRAIN) - 1.0;
    if ack.seq - train < u64::from(TRAIN) {
        return since;
    }
    Counted { sent: followers, lost: since.lost.max(0.0) * followers / (since.sent - 1.0) }
}

/// The updates sent after one acknowledged update up to another, and the losses among them.
fn between(first: &Ack, last: &Ack) -> Counted {
    let sent = last.seq.saturating_sub(first.seq) as f64;
    let received = |ack: &Ack| ack.fresh.wrapping_add(ack.stale);
    let arrived = f64::from(received(last).wrapping_sub(received(first)).cast_signed());
    // Late updates were sent earlier, but not many more than are remembered.
    Counted { sent, lost: (sent - arrived).clamp(-COUNTED, sent) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(seq: u64, fresh: u32, stale: u32) -> Ack {
        Ack { fresh, stale, ..Ack::of(seq, Time::ZERO, Time::ZERO) }
    }

    /// Sends this number of updates over a link; `arrives` returns whether one arrives, by its
    /// number and its place in a train.
    fn after(count: u64, mut arrives: impl FnMut(u64, u32) -> bool) -> Losses {
        let mut losses = Losses::default();
        losses.test(Time::ZERO, 0.0);
        let (mut fresh, mut place) = (0, 0);
        for seq in 0..count {
            let follows = losses.is_in_train();
            place = if follows { place + 1 } else { 0 };
            losses.on_sent(Time::ZERO, seq, follows, true);
            if losses.part() > 0.0 {
                losses.test(Time::ZERO, losses.part());
            }
            if arrives(seq, place) {
                fresh += 1;
                losses.on_ack(Time::ZERO, &ack(seq, fresh, 0), 0.0);
            }
        }
        losses
    }

    #[test]
    fn what_is_missing_between_two_acks_is_lost_and_what_comes_late_is_not() {
        let mut losses = Losses::default();
        assert_eq!(losses.on_ack(Time::ZERO, &ack(0, 1, 0), 0.0), Counted::default());
        assert_eq!(
            losses.on_ack(Time::ZERO, &ack(10, 8, 0), 0.0),
            Counted { sent: 10.0, lost: 3.0 }
        );
        assert_eq!(
            losses.on_ack(Time::ZERO, &ack(12, 10, 3), 0.0),
            Counted { sent: 2.0, lost: -3.0 }
        );
        assert!(losses.part() < 0.01, "all but one have come");
    }

    #[test]
    fn one_lost_update_tells_nothing_and_more_are_told_until_the_rate_is_cut() {
        let mut losses = Losses::default();
        losses.on_ack(Time::ZERO, &ack(0, 1, 0), 0.0);
        losses.on_ack(Time::ZERO, &ack(8, 8, 0), 0.0);
        assert_eq!(losses.part(), 0.0);
        losses.on_ack(Time::ZERO, &ack(16, 12, 0), 0.0);
        assert_eq!(losses.part(), 4.0 / 16.0);
        losses.forget();
        assert_eq!(losses.part(), 0.0);
    }

    #[test]
    fn losses_that_spare_no_place_of_a_train_are_random() {
        let mut state = 1u64;
        let losses = after(2_000, |_, _| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % 10 >= 2
        });
        assert!((0.15..0.3).contains(&losses.random), "{}", losses.random);
        assert_eq!(losses.not_random(Counted { sent: 32.0, lost: 8.0 }), 0.0);
        assert!(
            losses.not_random(Counted { sent: 32.0, lost: 29.0 }) > 0.3,
            "more than that is not"
        );
        assert!(
            losses.not_random(Counted { sent: 3200.0, lost: 1300.0 }) > 0.0,
            "nor less of more"
        );
    }

    #[test]
    fn so_are_bursts_of_them_which_vary_more() {
        let mut state = 1u64;
        let mut draw = |part: f64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((state >> 33) as f64) < part * f64::from(1u32 << 31)
        };
        let mut is_bad = false;
        let losses = after(8_000, |_, _| {
            is_bad = if is_bad { !draw(0.2) } else { draw(0.05) };
            !is_bad
        });
        assert!((0.1..0.35).contains(&losses.random), "{}", losses.random);
        assert!(losses.runs.dispersion() > 2.0);
        assert_eq!(losses.not_random(Counted { sent: 32.0, lost: 14.0 }), 0.0);
    }

    #[test]
    fn more_than_the_test_has_found_begin_another_at_once() {
        let mut losses = Losses { random: 0.1, is_tested: true, ..Losses::default() };
        assert!(!losses.test(Time::ZERO, FREE));
        assert!(losses.test(Time::ZERO, 0.1) && losses.is_open());
        assert!(!losses.test(Time::ZERO, 0.1), "it has begun");
    }

    #[test]
    fn what_is_lost_at_random_is_no_more_than_a_part_of_few_updates() {
        let mut losses = Losses { random: 0.4, ..Losses::default() };
        (0..32).for_each(|_| losses.runs.add(4.0));
        assert!(losses.not_random(Counted { sent: 20.0, lost: 17.0 }) > 0.1);
    }

    #[test]
    fn a_test_in_which_nothing_is_lost_takes_five_trains() {
        let mut trains = 0;
        let losses = after(60, |_, place| {
            trains += u32::from(place == 1);
            true
        });
        assert!(!losses.is_open() && trains <= 6, "{trains}");
    }

    #[test]
    fn a_train_is_judged_however_late_its_acks_are() {
        let mut losses = Losses::default();
        losses.test(Time::ZERO, 0.0);
        for seq in 0..2_000u64 {
            losses.on_sent(Time::ZERO, seq, losses.is_in_train(), true);
            if let Some(acked) = seq.checked_sub(40) {
                losses.on_ack(Time::ZERO, &ack(acked, acked as u32 + 1, 0), 0.0);
            }
        }
        assert!(!losses.is_open(), "it is over");
    }

    #[test]
    fn a_train_that_a_limit_has_spread_is_none() {
        let mut losses = Losses::default();
        losses.test(Time::ZERO, 0.0);
        for seq in 0..400 {
            losses.on_sent(Time::ZERO, seq, false, true);
            losses.on_ack(Time::ZERO, &ack(seq, seq as u32 + 1, 0), 0.0);
        }
        assert_eq!(losses.behind.sent, 0.0);
    }

    #[test]
    fn losses_at_the_end_of_trains_are_those_of_a_full_queue() {
        let losses = after(2_000, |seq, place| if place == 0 { seq % 4 > 0 } else { place < 2 });
        assert_eq!(losses.random, 0.0);
    }

    #[test]
    fn what_was_random_is_not_for_ever_when_no_more_trains_leave() {
        let mut losses = Losses { random: 0.2, is_tested: true, ..Losses::default() };
        let fifth = Counted { sent: 50.0, lost: 11.0 };
        assert_eq!(losses.not_random(fifth), 0.0);
        losses.give_up();
        assert_eq!(losses.not_random(fifth), 0.2);
        assert!(losses.test(Time::ZERO, 0.2), "it may be found out again");
    }

    #[test]
    fn later_updates_that_are_lost_with_the_end_of_a_train_are_not_its_own() {
        let since = Counted { sent: 5.0, lost: 2.0 };
        assert_eq!(of_train(10, since, &ack(13, 0, 0)), since);
        assert_eq!(of_train(10, since, &ack(15, 0, 0)), Counted { sent: 3.0, lost: 1.5 });
    }

    #[test]
    fn a_queue_that_keeps_the_freshest_update_alone_loses_nothing_at_random() {
        let mut losses = Losses::default();
        losses.test(Time::ZERO, 0.0);
        let (mut fresh, mut trains) = (0, 0);
        for seq in 0..400 {
            losses.on_sent(Time::ZERO, seq, losses.is_in_train(), true);
            if losses.is_in_train() {
                continue; // The next one replaces it.
            }
            fresh += 1;
            losses.on_ack(Time::ZERO, &ack(seq, fresh, 0), 0.0);
            trains = trains.max(losses.headless);
        }
        assert!(trains < verdict::HEADLESS && !losses.is_open() && losses.random == 0.0);
    }

    #[test]
    fn after_a_full_queue_the_next_test_is_a_while_later_and_ever_more() {
        let mut losses = after(2_000, |_, place| place < 2);
        assert!(!losses.test(Time::ZERO + REST / 2, 0.0));
        assert!(losses.test(Time::ZERO + REST, 0.0));
        losses.trains = MAX_TRAINS;
        losses.judge(Time::ZERO + REST);
        assert!(!losses.test(Time::ZERO + REST * 2, 0.0));
        assert!(losses.test(Time::ZERO + REST * 3, 0.0));
    }

    #[test]
    fn a_link_that_loses_nothing_any_more_is_not_tested_further() {
        let losses = after(400, |_, _| true);
        assert!(!losses.is_tested);
    }

    #[test]
    fn the_first_of_a_pair_that_a_fresher_one_replaced_is_not_lost() {
        let mut losses = Losses::default();
        losses.on_ack(Time::ZERO, &ack(0, 1, 0), 0.0);
        losses.on_sent(Time::ZERO, 1, false, true);
        losses.on_sent(Time::ZERO, 2, true, true);
        assert!(losses.has_followed(2) && !losses.has_followed(1));
        assert_eq!(losses.on_ack(Time::ZERO, &ack(2, 2, 0), 0.0), Counted { sent: 2.0, lost: 0.0 });
    }

    #[test]
    fn no_counters_break_it() {
        let mut losses = Losses::default();
        losses.test(Time::ZERO, 0.0);
        for (seq, fresh) in [(0, 7), (1, u32::MAX), (u64::MAX - 1, 0), (u64::MAX, u32::MAX / 2)] {
            losses.on_sent(Time::ZERO, seq, true, true);
            losses.on_ack(Time::ZERO, &ack(seq, fresh, u32::MAX), 0.0);
            assert!((0.0..=1.0).contains(&losses.part()));
        }
    }
}
