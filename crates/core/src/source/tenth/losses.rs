//! What was lost, by the monitor's counters, and whether a full queue is the cause.
//!
//! ```text
//!   lost = sent − arrived       between two acks; arrived = fresh + stale, as the monitor counts
//!
//!   at a full queue: of a train of 4, those behind the first are lost more often than single updates
//!   at random:       as often
//! ```
//!
//! Behind a full drop-tail queue the first update of a train may find the last place, and those behind it
//! find none. Delays cannot tell the two causes apart: all that a full queue lets through have waited as
//! long. A train takes the place of as many single updates, so that the test adds no load. Until it has
//! shown otherwise, a full queue is the cause.

use crate::source::Ack;

/// Updates over which losses are counted.
const COUNTED: f64 = 32.0;

/// The part lost is taken of so many updates at least.
const AT_LEAST: f64 = 8.0;

/// Updates of a train, its first one included.
pub(super) const TRAIN: u32 = 4;

/// Updates that leave alone between two trains, while it is open whether losses are random.
const BETWEEN: u32 = 4;

/// The same, once they are.
const BETWEEN_RANDOM: u32 = 24;

/// So many updates behind the first ones of trains decide: their loss is then known within 8 %.
const ENOUGH: f64 = 36.0;

/// Losses are random if behind the first ones at least this part arrives of what arrives alone. At a
/// queue that is offered 1.5 times of what it carries it is about a half.
const AS_MANY: f64 = 0.8;

/// So little lost needs no explanation.
const FEW: f64 = 0.03;

/// The part that is lost at random varies by so much, and by a quarter of itself.
const MARGIN: f64 = 0.05;

#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    sent: f64,
    lost: f64,
}

impl Counted {
    fn add(&mut self, since: Since) {
        self.sent += since.sent;
        self.lost += since.lost;
    }

    fn halve(&mut self) {
        self.sent /= 2.0;
        self.lost /= 2.0;
    }

    fn part(&self) -> f64 {
        if self.sent > 0.0 { (self.lost / self.sent).clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// Updates after one acknowledged update, up to another.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Since {
    pub(super) sent: f64,
    /// Less than 0 where some have come late that counted as lost.
    pub(super) lost: f64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Losses {
    last: Option<Ack>,
    /// Since the rate was cut for losses.
    recent: Counted,
    /// Of updates that left alone, and of those behind the first one of a train.
    alone: Counted,
    behind: Counted,
    is_tested: bool,
    /// Nothing has been found out yet.
    is_open: bool,
    /// The part that is lost at random; 0 if a full queue is the cause.
    random: f64,
    /// The first update of the train that is not judged yet.
    train: Option<u64>,
    /// Its ack.
    first: Option<Ack>,
    /// Updates of a train that are still to leave.
    left: u32,
    since_train: u32,
    /// The newest update that left together with the one before it, and how many in a row did.
    follower: u64,
    followers: u32,
    /// Followers whose predecessor is not accounted for.
    pairs: u32,
}

impl Losses {
    /// The part that was lost lately and not at random, 0 to 1. One lost update tells nothing.
    pub(super) fn part(&self) -> f64 {
        self.not_random((self.recent.lost - 1.0) / self.recent.sent.max(AT_LEAST))
    }

    /// What of a part is more than what is lost at random, 0 to 1.
    pub(super) fn not_random(&self, part: f64) -> f64 {
        let random = if self.random > 0.0 { 1.25 * self.random + MARGIN } else { 0.0 };
        (part - random).clamp(0.0, 1.0)
    }

    /// The rate was cut: what was lost before tells nothing of the new one.
    pub(super) fn forget(&mut self) {
        self.recent = Counted::default();
    }

    /// Finds out whether losses are random.
    pub(super) fn test(&mut self) {
        self.is_open |= !self.is_tested;
        self.is_tested = true;
    }

    /// Whether that has begun and nothing has been found out yet.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether the next update belongs to a train, and leaves at once.
    pub(super) fn is_in_train(&self) -> bool {
        self.left > 0
    }

    /// An update leaves; `follows` if together with the one before it. It may begin a train; says whether
    /// it ends one.
    pub(super) fn on_sent(&mut self, seq: u64, follows: bool, may_begin: bool) -> bool {
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
            // The source has no update at hand, or a limit: that was no train.
            (self.left, self.train) = (0, None);
        }
        let begins = may_begin && self.begins_train();
        self.since_train = self.since_train.saturating_add(1);
        if begins {
            (self.train, self.first) = (Some(seq), None);
            (self.left, self.since_train) = (TRAIN - 1, 0);
        }
        false
    }

    /// Whether the next update begins a train, if it may: not before the last one is judged.
    pub(super) fn begins_train(&self) -> bool {
        let between = if self.random > 0.0 { BETWEEN_RANDOM } else { BETWEEN };
        self.is_tested && self.train.is_none() && self.since_train.saturating_add(1) >= between
    }

    /// Whether an update left together with the one before it, and waited for that one.
    pub(super) fn has_followed(&self, seq: u64) -> bool {
        let ago = self.follower.checked_sub(seq);
        ago.is_some_and(|ago| ago < u64::from(self.followers))
    }

    /// A fresh ack: gives what was sent and lost since the last one.
    pub(super) fn on_ack(&mut self, ack: &Ack) -> Since {
        let Some(last) = self.last.replace(*ack) else { return Since::default() };
        let mut since = between(&last, ack);
        if ack.seq >= self.follower {
            // A queue that keeps the freshest update alone has lost the first one of a pair.
            let pairs = f64::from(core::mem::take(&mut self.pairs));
            since.lost = if since.lost > 0.0 { (since.lost - pairs).max(0.0) } else { since.lost };
        }
        if self.recent.sent > COUNTED {
            self.recent.halve();
        }
        self.recent.add(since);
        if self.is_tested && self.train.is_none_or(|first| ack.seq <= first) {
            self.alone.add(since);
        }
        self.see_train(ack);
        since
    }

    /// Judges the train that an ack follows.
    fn see_train(&mut self, ack: &Ack) {
        let Some(train) = self.train.filter(|train| ack.seq >= *train) else { return };
        match self.first {
            None if ack.seq == train => self.first = Some(*ack),
            // The first one is lost, or its ack.
            None => self.train = None,
            Some(first) if ack.seq - train >= u64::from(TRAIN) - 1 => {
                self.behind.add(between(&first, ack));
                self.train = None;
                self.judge();
            }
            Some(_) => {}
        }
    }

    fn judge(&mut self) {
        if self.behind.sent < ENOUGH {
            return;
        }
        self.is_open = false;
        let (alone, behind) = (self.alone.part(), self.behind.part());
        let is_random = 1.0 - behind >= AS_MANY * (1.0 - alone);
        self.random = if is_random { alone } else { 0.0 };
        // What trains lose by themselves is no reason to go on.
        if alone < FEW {
            (self.random, self.is_tested) = (0.0, false);
        }
        self.alone.halve();
        self.behind.halve();
    }
}

/// What was sent after one acknowledged update up to another, and lost of it.
fn between(first: &Ack, last: &Ack) -> Since {
    let sent = last.seq.saturating_sub(first.seq) as f64;
    let received = |ack: &Ack| ack.fresh.wrapping_add(ack.stale);
    let arrived = f64::from(received(last).wrapping_sub(received(first)).cast_signed());
    Since { sent, lost: (sent - arrived).clamp(-sent, sent) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::Time;

    fn ack(seq: u64, fresh: u32, stale: u32) -> Ack {
        Ack { fresh, stale, ..Ack::of(seq, Time::ZERO, Time::ZERO) }
    }

    /// Sends so many updates over a link; `arrives` says what becomes of one, by its number and its place
    /// in a train.
    fn after(count: u64, mut arrives: impl FnMut(u64, u32) -> bool) -> Losses {
        let mut losses = Losses::default();
        losses.test();
        let (mut fresh, mut place) = (0, 0);
        for seq in 0..count {
            let follows = losses.is_in_train();
            place = if follows { place + 1 } else { 0 };
            losses.on_sent(seq, follows, true);
            if arrives(seq, place) {
                fresh += 1;
                losses.on_ack(&ack(seq, fresh, 0));
            }
        }
        losses
    }

    #[test]
    fn what_is_missing_between_two_acks_is_lost_and_what_comes_late_is_not() {
        let mut losses = Losses::default();
        assert_eq!(losses.on_ack(&ack(0, 1, 0)), Since::default());
        assert_eq!(losses.on_ack(&ack(10, 8, 0)), Since { sent: 10.0, lost: 3.0 });
        assert_eq!(losses.on_ack(&ack(12, 10, 3)), Since { sent: 2.0, lost: -2.0 });
        assert!(losses.part() < 0.01, "all but one have come");
    }

    #[test]
    fn one_lost_update_tells_nothing_and_more_are_told_until_the_rate_is_cut() {
        let mut losses = Losses::default();
        losses.on_ack(&ack(0, 1, 0));
        losses.on_ack(&ack(8, 8, 0));
        assert_eq!(losses.part(), 0.0);
        losses.on_ack(&ack(16, 12, 0));
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
        assert!((0.15..0.25).contains(&losses.random), "{}", losses.random);
        assert_eq!(losses.not_random(0.2), 0.0);
        assert!(losses.not_random(0.9) > 0.5, "more than that is not");
    }

    #[test]
    fn a_train_is_judged_however_late_its_acks_are() {
        let mut losses = Losses::default();
        losses.test();
        for seq in 0..2_000u64 {
            losses.on_sent(seq, losses.is_in_train(), true);
            if let Some(acked) = seq.checked_sub(40) {
                losses.on_ack(&ack(acked, acked as u32 + 1, 0));
            }
        }
        assert!(!losses.is_open(), "it is over");
    }

    #[test]
    fn a_train_that_a_limit_has_spread_is_none() {
        let mut losses = Losses::default();
        losses.test();
        for seq in 0..400 {
            losses.on_sent(seq, false, true);
            losses.on_ack(&ack(seq, seq as u32 + 1, 0));
        }
        assert_eq!(losses.behind.sent, 0.0);
    }

    #[test]
    fn losses_at_the_end_of_trains_are_those_of_a_full_queue() {
        let losses = after(2_000, |seq, place| if place == 0 { seq % 4 > 0 } else { place < 2 });
        assert_eq!(losses.random, 0.0);
    }

    #[test]
    fn a_link_that_loses_nothing_any_more_is_not_tested_further() {
        let losses = after(400, |_, _| true);
        assert!(!losses.is_tested);
    }

    #[test]
    fn the_first_of_a_pair_that_a_fresher_one_replaced_is_not_lost() {
        let mut losses = Losses::default();
        losses.on_ack(&ack(0, 1, 0));
        losses.on_sent(1, false, true);
        losses.on_sent(2, true, true);
        assert!(losses.has_followed(2) && !losses.has_followed(1));
        assert_eq!(losses.on_ack(&ack(2, 2, 0)), Since { sent: 2.0, lost: 0.0 });
    }

    #[test]
    fn no_counters_break_it() {
        let mut losses = Losses::default();
        losses.test();
        for (seq, fresh) in [(0, 7), (1, u32::MAX), (u64::MAX - 1, 0), (u64::MAX, u32::MAX / 2)] {
            losses.on_sent(seq, true, true);
            losses.on_ack(&ack(seq, fresh, u32::MAX));
            assert!((0.0..=1.0).contains(&losses.part()));
        }
    }
}
