//! Who transmits next: backoff that freezes while the medium is busy.
//!
//! A contender transmits `count` slots after its interframe space has passed:
//!
//! ```text
//! busy ──► idle ── IFS ──► start ── count · slot ──► expiry
//! ```
//!
//! Nothing is counted slot by slot. While the medium is idle, the next transmission is at the
//! earliest expiry; when it starts, what each other contender has counted down by then follows
//! from its start. One busy period costs three passes over those who contend.
//!
//! IEEE 802.11-2016: 10.3.4.3 (backoff of the DCF), 10.22.2.2 and 10.22.2.4 (EDCA).

use alloc::vec::Vec;

use rand::{Rng, RngExt};

use super::category::CategoryParams;
use super::rules::{Countdown, Rules};
use crate::unit::{Span, Time};

/// One queue that contends.
#[derive(Debug)]
struct Contender {
    /// When counting began, or begins.
    start: Time,
    /// Slots to count from there.
    count: u32,
    /// When they are counted, if the medium stays idle.
    expiry: Time,
    /// Backoff is drawn from 0 to this many slots.
    window: u32,
    /// Failures in a row, since the window was last at its smallest.
    failures: u8,
    /// Whether there is something to send.
    waiting: bool,
    /// Whether it counts down, be it without anything to send (post-backoff).
    counting: bool,
}

/// All contenders of a cell.
#[derive(Debug)]
pub(super) struct Contention {
    slot: Span,
    countdown: Countdown,
    /// So many failures in a row make the window small again.
    retry_limit: Option<u8>,
    contenders: Vec<Contender>,
    /// Those that count down.
    counting: Vec<u32>,
    /// The earliest expiry among those who wait, while the medium is idle.
    next: Option<Time>,
}

impl Contention {
    /// Contenders with the smallest windows given, none of which has anything to send.
    pub(super) fn new(slot: Span, rules: Rules, windows: impl Iterator<Item = u32>) -> Self {
        let contender = |window| Contender {
            start: Time::ZERO,
            count: 0,
            expiry: Time::ZERO,
            window,
            failures: 0,
            waiting: false,
            counting: false,
        };
        let contenders: Vec<_> = windows.map(contender).collect();
        let counting = Vec::with_capacity(contenders.len());
        let Rules { countdown, retry_limit, .. } = rules;
        Self { slot, countdown, retry_limit, contenders, counting, next: None }
    }

    /// When the medium is next accessed, if it is idle until then.
    pub(super) fn next(&self) -> Option<Time> {
        self.next
    }

    /// Whether `id` waits for the medium.
    pub(super) fn is_waiting(&self, id: u32) -> bool {
        self.contenders[id as usize].waiting
    }

    /// `id` has something to send while the medium is idle; its interframe space ends at `start`.
    /// If it has nothing left to count, it transmits at once.
    pub(super) fn join_idle(&mut self, id: u32, now: Time, start: Time) {
        let contender = self.listed(id, start);
        contender.waiting = true;
        if contender.expiry <= now {
            contender.at_once(now);
        }
        let expiry = contender.expiry;
        self.next = Time::earliest([self.next, Some(expiry)]);
    }

    /// `id` has something to send while the medium is busy: it draws a backoff, unless it is
    /// still counting down from its last transmission.
    pub(super) fn join_busy(&mut self, id: u32, rng: &mut impl Rng) {
        let was_counting = self.contenders[id as usize].counting;
        let contender = self.listed(id, Time::MAX);
        contender.waiting = true;
        if !was_counting {
            contender.draw(rng);
        }
    }

    /// `id`, counting down; from `start` if it was not.
    fn listed(&mut self, id: u32, start: Time) -> &mut Contender {
        let contender = &mut self.contenders[id as usize];
        if !contender.counting {
            contender.counting = true;
            contender.at_once(start);
            self.counting.push(id);
        }
        contender
    }

    /// `id` has nothing to send any more.
    pub(super) fn leave(&mut self, id: u32) {
        self.contenders[id as usize].waiting = false;
        self.find_next();
    }

    /// Fills `ids` with those who access the medium at `at` or less than `blind` later, when they
    /// cannot yet know of each other, and with the moments at which they do.
    pub(super) fn due(&self, at: Time, blind: Span, ids: &mut Vec<(u32, Time)>) {
        ids.clear();
        let end = at + blind.max(Span::from_nanos(1));
        for id in &self.counting {
            let contender = &self.contenders[*id as usize];
            if contender.waiting && contender.expiry < end {
                ids.push((*id, contender.expiry));
            }
        }
    }

    /// The medium becomes busy at `at`: everybody stops counting.
    pub(super) fn freeze(&mut self, at: Time) {
        self.next = None;
        let extra = match self.countdown {
            Countdown::AfterIdleSlot => 0,
            Countdown::AtSlotStart => 1,
        };
        let (contenders, slot) = (&mut self.contenders, self.slot.as_nanos());
        // Most contenders started together.
        let (mut start, mut counted) = (Time::MAX, 0);
        self.counting.retain(|id| {
            let contender = &mut contenders[*id as usize];
            if contender.start != start {
                start = contender.start;
                let idle = at.checked_since(start);
                counted = idle.map_or(0, |idle| idle.as_nanos() / slot + extra);
            }
            let left = u64::from(contender.count).saturating_sub(counted);
            contender.count = left as u32;
            contender.counting = contender.waiting || contender.count > 0;
            contender.counting
        });
    }

    /// The frame of `id` arrived, or was given up: the window is at its smallest again.
    pub(super) fn succeed(&mut self, id: u32, params: &CategoryParams, rng: &mut impl Rng) {
        let contender = &mut self.contenders[id as usize];
        (contender.window, contender.failures) = (params.cw_min, 0);
        contender.draw(rng);
    }

    /// The frame of `id` did not arrive: the window doubles.
    pub(super) fn fail(&mut self, id: u32, params: &CategoryParams, rng: &mut impl Rng) {
        let contender = &mut self.contenders[id as usize];
        contender.failures = contender.failures.saturating_add(1);
        if self.retry_limit.is_some_and(|limit| contender.failures >= limit) {
            return self.succeed(id, params, rng);
        }
        contender.window = (2 * contender.window + 1).min(params.cw_max);
        contender.draw(rng);
    }

    /// `id`, after a transmission, has more to send or not.
    pub(super) fn set_waiting(&mut self, id: u32, waiting: bool) {
        self.contenders[id as usize].waiting = waiting;
    }

    /// The medium is idle again: everybody counts on from the end of its interframe space.
    pub(super) fn resume(&mut self, start_of: impl Fn(u32) -> Time) {
        let mut next = Time::MAX;
        for id in &self.counting {
            let contender = &mut self.contenders[*id as usize];
            contender.start = start_of(*id);
            contender.expiry = contender.start + self.slot * u64::from(contender.count);
            if contender.waiting {
                next = next.min(contender.expiry);
            }
        }
        self.next = Some(next).filter(|next| *next < Time::MAX);
    }

    fn find_next(&mut self) {
        let waiting = self.counting.iter().map(|id| &self.contenders[*id as usize]);
        let expiries = waiting.filter(|contender| contender.waiting);
        self.next = expiries.map(|contender| contender.expiry).min();
    }
}

impl Contender {
    /// Nothing is to count from `start` on.
    fn at_once(&mut self, start: Time) {
        (self.start, self.count, self.expiry) = (start, 0, start);
    }

    fn draw(&mut self, rng: &mut impl Rng) {
        self.count = rng.random_range(0..=self.window);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wlan::mac::Category;
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
            contention.contenders[0].count = 5;
            contention.resume(|_| at(34));
            assert_eq!(contention.next(), Some(at(34 + 5 * 9)));
            contention.freeze(at(34 + 3 * 9));
            contention.resume(|_| at(1000));
            assert_eq!(contention.next(), Some(at(1000 + left * 9)), "{countdown:?}");
        }
    }

    #[test]
    fn nothing_is_counted_before_the_interframe_space_has_passed() {
        let mut contention = two(Countdown::AtSlotStart);
        contention.join_busy(0, &mut Pcg64::new(1, 1));
        contention.contenders[0].count = 5;
        contention.resume(|_| at(34));
        contention.freeze(at(33));
        contention.resume(|_| at(100));
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
        contention.contenders[0].count = 4;
        contention.set_waiting(0, false);
        contention.resume(|_| at(1000));
        assert_eq!(contention.next(), None);
        contention.join_idle(0, at(1010), at(0));
        assert_eq!(contention.next(), Some(at(1000 + 4 * 9)));
    }
}
