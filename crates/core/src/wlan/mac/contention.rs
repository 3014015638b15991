//! The choice of the next transmitter: backoff that freezes while the medium is busy.
//!
//! A contender transmits `count` slots after its interframe space has passed:
//!
//! ```text
//! busy ──► idle ── IFS ──► start ── count · slot ──► expiry
//! ```
//!
//! Slots are not simulated one by one, nor counted per contender. All contenders of a category
//! start to count together after each busy period, so they share a [`Lane`]: a clock of slots,
//! which stops while the medium is busy. A contender has a fixed turn: the slot of that clock in
//! which it transmits. Only a few contenders start at another time ([`Apart`]): stations whose
//! frame failed, and stations that found the medium idle. One busy period costs two passes over the
//! turns of the waiting contenders, each with one comparison per contender.
//!
//! ```text
//! next = min over lanes  start + slot · max(0, min turn − counted),   and over expiries of `Apart`
//! ```
//!
//! IEEE 802.11-2016: 10.3.4.3 (backoff of the DCF), 10.22.2.2 and 10.22.2.4 (EDCA).

use alloc::vec::Vec;

use rand::{Rng, RngExt};

use super::category::{Category, CategoryParams};
use super::rules::{Countdown, Rules};
use crate::unit::{Span, Time};

/// The contenders of a category that start to count together.
#[derive(Debug, Default)]
struct Lane {
    /// When counting began, or begins, after the last busy period.
    start: Time,
    /// Slots counted in all earlier idle periods.
    counted: u64,
    /// The waiting contenders, and the slot in which each transmits: separate vectors, so that a
    /// pass over the slots reads nothing else.
    ids: Vec<u32>,
    turns: Vec<u64>,
}

/// A contender that counts down from its own start, until the medium is next busy.
#[derive(Debug, Clone, Copy)]
struct Apart {
    start: Time,
    count: u64,
    expiry: Time,
}

/// The state of a contender.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// Not counting down.
    Out,
    /// Counting down with nothing to send (post-backoff).
    Resting,
    /// Counting down with something to send: its index in its lane.
    Lane(usize),
    Apart(Apart),
}

/// One contending queue.
#[derive(Debug)]
struct Contender {
    place: Place,
    /// The slot of its lane in which it transmits; unused in [`Place::Apart`].
    turn: u64,
    /// The rank in the order in which contenders began to count down.
    joined: u64,
    /// Backoff is drawn from 0 to this many slots.
    window: u32,
    /// Consecutive failures since the window was last at its minimum.
    failures: u8,
    /// Whether there is something to send.
    waiting: bool,
}

/// All contenders of a cell.
#[derive(Debug)]
pub(super) struct Contention {
    slot: Span,
    countdown: Countdown,
    /// After this many consecutive failures the window returns to its minimum.
    retry_limit: Option<u8>,
    contenders: Vec<Contender>,
    lanes: [Lane; Category::COUNT],
    /// The contenders in [`Place::Apart`].
    apart: Vec<u32>,
    /// The contenders in [`Place::Resting`].
    resting: Vec<u32>,
    /// How many have begun to count down.
    joined: u64,
    /// While the medium is idle, the earliest expiry of a waiting contender.
    next: Option<Time>,
}

/// The lane of a contender.
#[inline]
fn lane_of(id: u32) -> usize {
    id as usize % Category::COUNT
}

impl Lane {
    /// The number of slots counted from `start` until the medium becomes busy at `at`.
    fn until(start: Time, at: Time, slot: Span, countdown: Countdown) -> u64 {
        let extra = match countdown {
            Countdown::AfterIdleSlot => 0,
            Countdown::AtSlotStart => 1,
        };
        let idle = at.checked_since(start);
        idle.map_or(0, |idle| idle.as_nanos() / slot.as_nanos() + extra)
    }

    /// When the turn comes, if the medium stays idle.
    fn expiry(&self, turn: u64, slot: Span) -> Time {
        self.start + slot * turn.saturating_sub(self.counted)
    }

    /// The first expiry of a waiting contender.
    fn next(&self, slot: Span) -> Option<Time> {
        let first = self.turns.iter().fold(u64::MAX, |first, turn| first.min(*turn));
        (!self.turns.is_empty()).then(|| self.expiry(first, slot))
    }

    /// Appends the contenders whose turn comes before `end`, and the times of their turns.
    fn due(&self, end: Time, slot: Span, ids: &mut Vec<(u32, Time)>) {
        let Some(before) = end.checked_since(self.start).filter(|before| !before.is_zero()) else {
            return;
        };
        let last = self.counted + (before.as_nanos() - 1) / slot.as_nanos();
        for (id, turn) in self.ids.iter().zip(&self.turns) {
            if *turn <= last {
                ids.push((*id, self.expiry(*turn, slot)));
            }
        }
    }
}

impl Contention {
    /// Contenders with these minimum windows, all with nothing to send.
    pub(super) fn new(slot: Span, rules: Rules, windows: impl Iterator<Item = u32>) -> Self {
        let contender = |window| Contender {
            place: Place::Out,
            turn: 0,
            joined: 0,
            window,
            failures: 0,
            waiting: false,
        };
        let contenders: Vec<_> = windows.map(contender).collect();
        let room = contenders.len();
        let of_category = room.div_ceil(Category::COUNT);
        let lane = |_| Lane {
            ids: Vec::with_capacity(of_category),
            turns: Vec::with_capacity(of_category),
            ..Lane::default()
        };
        let Rules { countdown, retry_limit, .. } = rules;
        Self {
            slot,
            countdown,
            retry_limit,
            contenders,
            lanes: core::array::from_fn(lane),
            apart: Vec::with_capacity(room),
            resting: Vec::with_capacity(room),
            joined: 0,
            next: None,
        }
    }

    /// When the medium is next accessed, if it is idle until then.
    #[inline]
    pub(super) fn next(&self) -> Option<Time> {
        self.next
    }

    /// Whether `id` is waiting for the medium.
    #[inline]
    pub(super) fn is_waiting(&self, id: u32) -> bool {
        self.contenders[id as usize].waiting
    }

    /// `id` has something to send while the medium is idle; its interframe space ends at `start`.
    /// If it has nothing left to count, it transmits at once.
    pub(super) fn join_idle(&mut self, id: u32, now: Time, start: Time) {
        let Contender { place, turn, .. } = self.contenders[id as usize];
        let expiry = match place {
            Place::Out => {
                self.number(id);
                start
            }
            Place::Apart(apart) => apart.expiry,
            Place::Resting | Place::Lane(_) => self.lanes[lane_of(id)].expiry(turn, self.slot),
        };
        let at = expiry.max(now);
        self.set_waiting(id, true);
        if expiry <= now || matches!(place, Place::Out) {
            self.set_apart(id, Apart { start: at, count: 0, expiry: at });
        }
        self.next = Time::earliest([self.next, Some(at)]);
    }

    /// `id` has something to send while the medium is busy: it draws a backoff, unless it is
    /// still counting down from its last transmission.
    pub(super) fn join_busy(&mut self, id: u32, rng: &mut impl Rng) {
        if let Place::Out = self.contenders[id as usize].place {
            self.number(id);
            self.contenders[id as usize].place = Place::Resting;
            self.resting.push(id);
            self.draw(id, rng);
        }
        self.set_waiting(id, true);
    }

    /// `id` begins to count down.
    fn number(&mut self, id: u32) {
        self.joined += 1;
        self.contenders[id as usize].joined = self.joined;
    }

    /// `id` has nothing left to send.
    pub(super) fn leave(&mut self, id: u32) {
        self.set_waiting(id, false);
        self.find_next();
    }

    /// Fills `ids` with the contenders that access the medium at `at` or less than `blind` later,
    /// before they can detect each other, and with the times of their accesses.
    pub(super) fn due(&self, at: Time, blind: Span, ids: &mut Vec<(u32, Time)>) {
        ids.clear();
        let end = at + blind.max(Span::from_nanos(1));
        self.lanes.iter().for_each(|lane| lane.due(end, self.slot, ids));
        let apart = self.waiting_apart().filter(|(_, expiry)| *expiry < end);
        ids.extend(apart);
        ids.sort_unstable_by_key(|(id, _)| self.contenders[*id as usize].joined);
    }

    /// The medium becomes busy at `at`: all contenders stop counting.
    pub(super) fn freeze(&mut self, at: Time) {
        self.next = None;
        for lane in &mut self.lanes {
            if !lane.ids.is_empty() || !self.resting.is_empty() {
                lane.counted += Lane::until(lane.start, at, self.slot, self.countdown);
            }
        }
        let Self { contenders, lanes, .. } = self;
        self.resting.retain(|id| {
            let contender = &mut contenders[*id as usize];
            let is_left = contender.turn > lanes[lane_of(*id)].counted;
            if !is_left {
                contender.place = Place::Out;
            }
            is_left
        });
        while let Some(id) = self.apart.pop() {
            let contender = &mut self.contenders[id as usize];
            let Place::Apart(Apart { start, count, .. }) = contender.place else { continue };
            let counted = Lane::until(start, at, self.slot, self.countdown);
            let left = count.saturating_sub(counted);
            contender.turn = self.lanes[lane_of(id)].counted + left;
            contender.place = Place::Out;
            if contender.waiting || left > 0 {
                self.put(id);
            }
        }
    }

    /// Moves a contender that counts down to the waiting or the resting ones.
    fn put(&mut self, id: u32) {
        let contender = &mut self.contenders[id as usize];
        if contender.waiting {
            let lane = &mut self.lanes[lane_of(id)];
            contender.place = Place::Lane(lane.ids.len());
            lane.ids.push(id);
            lane.turns.push(contender.turn);
        } else {
            contender.place = Place::Resting;
            self.resting.push(id);
        }
    }

    /// Undoes [`Contention::put`].
    fn take(&mut self, id: u32) {
        match self.contenders[id as usize].place {
            Place::Lane(place) => {
                let lane = &mut self.lanes[lane_of(id)];
                lane.ids.swap_remove(place);
                lane.turns.swap_remove(place);
                if let Some(moved) = lane.ids.get(place) {
                    self.contenders[*moved as usize].place = Place::Lane(place);
                }
            }
            Place::Resting => self.resting.retain(|other| *other != id),
            Place::Apart(_) => self.apart.retain(|other| *other != id),
            Place::Out => {}
        }
        self.contenders[id as usize].place = Place::Out;
    }

    fn set_apart(&mut self, id: u32, apart: Apart) {
        self.take(id);
        self.contenders[id as usize].place = Place::Apart(apart);
        self.apart.push(id);
    }

    /// The frame of `id` arrived, or was given up: the window is at its smallest again.
    pub(super) fn succeed(&mut self, id: u32, params: &CategoryParams, rng: &mut impl Rng) {
        let contender = &mut self.contenders[id as usize];
        (contender.window, contender.failures) = (params.cw_min, 0);
        self.draw(id, rng);
    }

    /// The frame of `id` did not arrive: the window doubles.
    pub(super) fn fail(&mut self, id: u32, params: &CategoryParams, rng: &mut impl Rng) {
        let contender = &mut self.contenders[id as usize];
        contender.failures = contender.failures.saturating_add(1);
        if self.retry_limit.is_some_and(|limit| contender.failures >= limit) {
            return self.succeed(id, params, rng);
        }
        contender.window = (2 * contender.window + 1).min(params.cw_max);
        self.draw(id, rng);
    }

    /// Draws the backoff of `id`, while the medium is busy.
    fn draw(&mut self, id: u32, rng: &mut impl Rng) {
        let count = rng.random_range(0..=self.contenders[id as usize].window);
        self.set_count(id, count);
    }

    fn set_count(&mut self, id: u32, count: u32) {
        let contender = &mut self.contenders[id as usize];
        let lane = &mut self.lanes[lane_of(id)];
        contender.turn = lane.counted + u64::from(count);
        if let Place::Lane(place) = contender.place {
            lane.turns[place] = contender.turn;
        }
    }

    /// Notes whether `id` has something to send.
    pub(super) fn set_waiting(&mut self, id: u32, waiting: bool) {
        let contender = &mut self.contenders[id as usize];
        if contender.waiting == waiting {
            return;
        }
        contender.waiting = waiting;
        if let Place::Lane(_) | Place::Resting = contender.place {
            self.take(id);
            self.put(id);
        }
    }

    /// The medium is idle again: each contender continues to count at the end of its interframe
    /// space. `starts` gives these times per category; `start_of` gives the times of contenders
    /// that transmitted.
    pub(super) fn resume(
        &mut self,
        starts: [Time; Category::COUNT],
        transmitted: impl Iterator<Item = u32>,
        start_of: impl Fn(u32) -> Time,
    ) {
        for (lane, start) in self.lanes.iter_mut().zip(starts) {
            lane.start = start;
        }
        for id in transmitted {
            let Contender { place: Place::Lane(_) | Place::Resting, turn, .. } =
                self.contenders[id as usize]
            else {
                continue;
            };
            let (lane, start) = (&self.lanes[lane_of(id)], start_of(id));
            if start != lane.start {
                let count = turn.saturating_sub(lane.counted);
                let expiry = start + self.slot * count;
                self.set_apart(id, Apart { start, count, expiry });
            }
        }
        self.find_next();
    }

    fn waiting_apart(&self) -> impl Iterator<Item = (u32, Time)> {
        self.apart.iter().filter_map(|id| match &self.contenders[*id as usize] {
            Contender { waiting: true, place: Place::Apart(apart), .. } => {
                Some((*id, apart.expiry))
            }
            _ => None,
        })
    }

    fn find_next(&mut self) {
        let of_lanes = self.lanes.iter().filter_map(|lane| lane.next(self.slot)).min();
        let apart = self.waiting_apart().map(|(_, expiry)| expiry).min();
        self.next = Time::earliest([of_lanes, apart]);
    }
}

#[cfg(test)]
mod tests {
    use core::iter;

    use super::*;
    use crate::wlan::mac::category::Access;
    use rand_pcg::Pcg64;

    const SLOT: Span = Span::from_micros(9);

    fn at(micros: u64) -> Time {
        Time::ZERO + Span::from_micros(micros)
    }

    fn two(countdown: Countdown) -> Contention {
        Contention::new(SLOT, Rules { countdown, ..Rules::DCF }, [15, 15].into_iter())
    }

    fn due(contention: &Contention, at: Time) -> Vec<(u32, Time)> {
        let mut ids = Vec::new();
        contention.due(at, Span::from_micros(4), &mut ids);
        ids
    }

    #[test]
    fn who_finds_the_medium_idle_transmits_at_once_or_after_its_interframe_space() {
        let mut contention = two(Countdown::AfterIdleSlot);
        contention.join_idle(0, at(10), at(34));
        assert_eq!(contention.next(), Some(at(34)));
        contention.join_idle(1, at(50), at(34));
        assert_eq!(due(&contention, at(34)), [(0, at(34))]);
        contention.leave(0);
        assert_eq!(contention.next(), Some(at(50)));
    }

    #[test]
    fn those_who_cannot_hear_each_other_yet_transmit_together() {
        let mut contention = two(Countdown::AfterIdleSlot);
        contention.join_idle(0, at(100), at(34));
        contention.join_idle(1, at(103), at(34));
        assert_eq!(due(&contention, at(100)), [(0, at(100)), (1, at(103))]);
    }

    #[test]
    fn a_slot_in_which_somebody_starts_counts_by_the_rule() {
        for (countdown, left) in [(Countdown::AfterIdleSlot, 2), (Countdown::AtSlotStart, 1)] {
            let mut contention = two(countdown);
            contention.join_busy(0, &mut Pcg64::new(1, 1));
            contention.set_count(0, 5);
            contention.resume([at(34); Category::COUNT], iter::empty(), |_| at(0));
            assert_eq!(contention.next(), Some(at(34 + 5 * 9)));
            contention.freeze(at(34 + 3 * 9));
            contention.resume([at(1000); Category::COUNT], iter::empty(), |_| at(0));
            assert_eq!(contention.next(), Some(at(1000 + left * 9)), "{countdown:?}");
        }
    }

    #[test]
    fn those_apart_count_from_their_own_start_and_go_on_with_their_lane() {
        let mut contention = two(Countdown::AfterIdleSlot);
        contention.join_busy(0, &mut Pcg64::new(1, 1));
        contention.set_count(0, 7);
        contention.resume([at(34); Category::COUNT], iter::once(0), |_| at(60));
        assert_eq!(contention.next(), Some(at(60 + 7 * 9)));
        contention.freeze(at(60 + 2 * 9 + 1));
        contention.resume([at(500); Category::COUNT], iter::empty(), |_| at(0));
        assert_eq!(contention.next(), Some(at(500 + 5 * 9)));
    }

    #[test]
    fn nothing_is_counted_before_the_interframe_space_has_passed() {
        let mut contention = two(Countdown::AtSlotStart);
        contention.join_busy(0, &mut Pcg64::new(1, 1));
        contention.set_count(0, 5);
        contention.resume([at(34); Category::COUNT], iter::empty(), |_| at(0));
        contention.freeze(at(33));
        contention.resume([at(100); Category::COUNT], iter::empty(), |_| at(0));
        assert_eq!(contention.next(), Some(at(100 + 5 * 9)));
    }

    #[test]
    fn the_window_doubles_to_its_limit_and_starts_again_at_the_retry_limit() {
        let mut contention = two(Countdown::AfterIdleSlot);
        let (access, rng) = (Access::DCF, &mut Pcg64::new(1, 1));
        let params = access.params(Category::BestEffort);
        let mut windows = Vec::new();
        for _ in 0..7 {
            contention.fail(0, params, rng);
            windows.push(contention.contenders[0].window);
        }
        assert_eq!(windows, [31, 63, 127, 255, 511, 1023, 15]);
    }

    #[test]
    fn backoff_after_the_last_packet_delays_the_next_one() {
        let mut contention = two(Countdown::AfterIdleSlot);
        contention.join_idle(0, at(34), at(34));
        contention.freeze(at(34));
        contention.succeed(0, Access::DCF.params(Category::BestEffort), &mut Pcg64::new(1, 1));
        contention.set_count(0, 4);
        contention.set_waiting(0, false);
        contention.resume([at(1000); Category::COUNT], iter::empty(), |_| at(0));
        assert_eq!(contention.next(), None);
        contention.join_idle(0, at(1010), at(0));
        assert_eq!(contention.next(), Some(at(1000 + 4 * 9)));
    }
}
