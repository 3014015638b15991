//! Sparse acks: chooses the updates that ask for an ack if the reverse path has little capacity.
//!
//! Acks that queue on the reverse path carry old information, and the next ack would carry the
//! same. So the source asks for acks at half of the rate at which they arrived, and from then on a
//! little faster each round:
//!
//! ```text
//! back   = (rtt − min rtt) − forward queueing delay      s; queueing delay of an ack
//! queued : back > spacing, for each ack of a round of 8
//!
//! gap ← 2 · spacing    if queued            s; spacing: mean time between the acks of the round
//!       0.95 · gap     otherwise            gap ≤ srtt/4, 100 ms
//! ```
//!
//! An update asks for an ack if the last one that asked left a gap ago. Jitter seldom passes for a
//! queue: one of 8 acks is fast (CoDel's minimum of an interval, RFC 8289 section 3.1). If a
//! competing flow causes the queue, the gap grows to its bounds, which leave enough acks to control
//! the rate.

use crate::unit::{Span, Time};

/// Which updates ask for an ack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Acks {
    /// All updates.
    Every,
    /// A part of the updates, while acks queue on the reverse path.
    #[default]
    Sparse,
}

/// Acks per round.
const ROUND: u32 = 8;

/// While a queue drains, the gap is this multiple of the time between acks.
const DRAIN: u64 = 2;

/// The factor on the gap after a round without a queue: 14 of them halve it.
const SHRINK: f64 = 0.95;

/// The minimum number of acks per round trip: a law that counts 8 then decides every other round
/// trip.
const ROUND_TRIP: f64 = 4.0;

/// The maximum gap: ten of them are the second without an ack after which a session is in doubt.
const LONGEST: Span = Span::from_millis(100);

#[derive(Debug, Clone)]
pub(super) struct Sparse {
    acks: Acks,
    /// Zero: every update asks.
    gap: Span,
    asked_at: Option<Time>,
    /// When the last round ended.
    began_at: Option<Time>,
    count: u32,
    /// The minimum queueing delay of the round's acks on the reverse path, s.
    least: f64,
}

impl Sparse {
    pub(super) fn new(acks: Acks) -> Self {
        Self {
            acks,
            gap: Span::ZERO,
            asked_at: None,
            began_at: None,
            count: 0,
            least: f64::INFINITY,
        }
    }

    /// Whether the update that leaves now asks for an ack.
    pub(super) fn wants_ack(&self, now: Time) -> bool {
        self.asked_at.is_none_or(|at| now.since(at) >= self.gap)
    }

    pub(super) fn on_sent(&mut self, now: Time) {
        if self.wants_ack(now) {
            self.asked_at = Some(now);
        }
    }

    /// A fresh ack, with its queueing delay on the reverse path; both times in s.
    pub(super) fn on_ack(&mut self, now: Time, back: f64, srtt: f64) {
        if self.acks == Acks::Every {
            return;
        }
        self.count += 1;
        self.least = self.least.min(back);
        let began_at = *self.began_at.get_or_insert(now);
        if self.count < ROUND {
            return;
        }
        let spacing = now.since(began_at) / u64::from(self.count);
        let is_standing = self.least > spacing.as_secs_f64();
        let next_gap =
            if is_standing { self.gap.max(spacing * DRAIN) } else { self.gap.mul_f64(SHRINK) };
        self.gap = next_gap.min(Span::from_secs_f64(srtt / ROUND_TRIP)).min(LONGEST);
        (self.began_at, self.count, self.least) = (Some(now), 0, f64::INFINITY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;

    const WAY: Span = Span::from_millis(10);

    /// 500 updates per second, 10 ms per direction; on the reverse path acks take `service` each,
    /// and the n-th takes `other(n)` more.
    struct World<F: Fn(u64) -> Span> {
        sparse: Sparse,
        service: Span,
        other: F,
        now: Time,
        /// The acks: time of arrival, number, and queueing delay.
        acks: VecDeque<(Time, u64, Span)>,
        free_at: Time,
        srtt: f64,
        asked: u64,
        newest: u64,
    }

    impl<F: Fn(u64) -> Span> World<F> {
        fn new(acks: Acks, service: Span, other: F) -> Self {
            Self {
                sparse: Sparse::new(acks),
                service,
                other,
                now: Time::ZERO,
                acks: VecDeque::new(),
                free_at: Time::ZERO,
                srtt: 0.02,
                asked: 0,
                newest: 0,
            }
        }

        /// Returns how many updates asked in a second, and the maximum queueing delay of their
        /// acks.
        fn second(&mut self) -> (u64, Span) {
            let (before, mut longest) = (self.asked, Span::ZERO);
            for _ in 0..500 {
                self.now += Span::from_millis(2);
                while let Some((at, number, back)) = self.acks.pop_front_if(|ack| ack.0 <= self.now)
                {
                    longest = longest.max(back);
                    if number > self.newest {
                        self.newest = number;
                        let rtt = (WAY * 2 + self.service + back).as_secs_f64();
                        self.srtt += 0.2 * (rtt - self.srtt);
                        self.sparse.on_ack(at, back.as_secs_f64(), self.srtt);
                    }
                }
                if self.sparse.wants_ack(self.now) {
                    self.answer();
                }
                self.sparse.on_sent(self.now);
            }
            (self.asked - before, longest)
        }

        fn answer(&mut self) {
            self.asked += 1;
            let received_at = self.now + WAY;
            let begins_at = self.free_at.max(received_at);
            self.free_at = begins_at + self.service;
            let wait = begins_at.since(received_at) + (self.other)(self.asked);
            let at = received_at + wait + self.service + WAY;
            let place = self.acks.partition_point(|ack| ack.0 <= at);
            self.acks.insert(place, (at, self.asked, wait));
        }
    }

    #[test]
    fn acks_do_not_queue_for_long_where_the_way_back_is_narrow() {
        let service = Span::from_millis(7);
        let mut world = World::new(Acks::Sparse, service, |_| Span::ZERO);
        let mut every = World::new(Acks::Every, service, |_| Span::ZERO);
        // 70 of them are in flight when the first round with a queue ends.
        let (_, longest) = world.second();
        assert!(longest < service * 55, "{longest}");
        every.second();
        for _ in 0..20 {
            let (asked, longest) = world.second();
            // 143 acks per second pass the reverse path.
            assert!((90..=143).contains(&asked), "{asked} acks a second");
            assert!(longest < service * 5, "{longest}");
            assert_eq!(every.second().0, 500);
        }
        assert!(every.second().1 > Span::from_secs(1), "and it grows");
    }

    #[test]
    fn jitter_is_no_queue() {
        let jitter = |n: u64| Span::from_millis(n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58);
        let mut world = World::new(Acks::Sparse, Span::ZERO, jitter);
        assert!((0..20).all(|_| world.second().0 == 500));
    }

    #[test]
    fn a_queue_of_others_leaves_four_acks_a_round_trip_until_it_is_gone() {
        let others = |n: u64| Span::from_millis(if n < 1_500 { 60 } else { 0 });
        let mut world = World::new(Acks::Sparse, Span::ZERO, others);
        world.second();
        let (asked, _) = world.second();
        // The round trip is 80 ms; an update leaves each 2.
        assert!((45..=50).contains(&asked), "{asked} acks a second");
        while world.asked < 1_500 {
            world.second();
        }
        world.second();
        world.second();
        assert_eq!(world.second().0, 500);
    }

    #[test]
    fn there_are_ten_acks_a_second_on_the_longest_way() {
        let mut sparse = Sparse::new(Acks::Sparse);
        for second in 0..100 {
            sparse.on_ack(Time::ZERO + Span::from_secs(second), 1e9, 1e9);
        }
        assert_eq!(sparse.gap, LONGEST);
    }
}
