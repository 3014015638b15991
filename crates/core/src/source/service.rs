//! Estimates the service time of an update at the bottleneck, by the distance of arrivals.
//!
//! Two updates that leave at once arrive one transmission apart, the second behind the first (the
//! packet pairs of S. Keshav, SIGCOMM 1991). Cross traffic may come between them, and jitter may
//! change their distance; so the estimate is the minimum over pairs, and over other updates that
//! arrive at the distance of a pair. It may be too small if jitter moves updates together; the
//! capacity of the path is then overestimated.
//!
//! Updates have different lengths. Times are kept for the longest: the transmission of n bytes is
//! taken as n/longest of that, and the getters give the time of an update of the mean length. An
//! update of less than half of the mean length does not count, as many paths take some time for a
//! packet of any length.

use super::Ack;
use crate::unit::{Span, Time};

/// Pairs at the beginning, one per round.
const FIRST_PAIRS: u32 = 8;

/// The time between later pairs: a hop may change, and jitter hides that for a while.
const NEXT_PAIR: Span = Span::from_secs(2);

/// Two updates left at once if they left within this part of the time between their arrivals,
const AT_ONCE: u64 = 4;

/// and within this time, which a busy host may take between two, or within the minimum time between
/// two arrivals. Otherwise the second had no cause to queue behind the first: it left later because
/// the application had no state before, and an outage of the path may have kept the arrivals apart.
const TOGETHER: Span = Span::from_millis(1);

/// Consecutive updates are adjacent in the queue if their mean distance at arrival is at most this
/// multiple of the usual distance of a pair.
const ADJACENT: f64 = 2.0;

/// Weight of the newest update in the mean length.
const NEWEST: f64 = 1.0 / 16.0;

/// Weights of a new pair in the usual distance: a shorter one counts more than a longer one, which
/// may have had cross traffic between its updates.
const FALLING: f64 = 0.25;
const RISING: f64 = 0.06;

#[derive(Debug, Clone)]
pub(super) struct Service {
    last: Option<Ack>,
    /// The length of the longest update, and the mean length, in bytes.
    longest: f64,
    mean: f64,
    /// That of the longest update, as are `min_pair` and `usual_pair`.
    least: Option<f64>,
    min_pair: Option<f64>,
    pairs: u32,
    paired_at: Time,
    /// The usual distance of the two updates of a pair at arrival, s.
    usual_pair: Option<f64>,
    /// The current row of adjacent updates: the arrival of the first one, and their number.
    row: Option<(Time, u32)>,
}

impl Service {
    pub(super) fn new() -> Self {
        Self {
            last: None,
            longest: 0.0,
            mean: 0.0,
            least: None,
            min_pair: None,
            pairs: 0,
            paired_at: Time::ZERO,
            usual_pair: None,
            row: None,
        }
    }

    /// Takes in a fresh ack. Returns the distance of its update's arrival from the last one, in s,
    /// if they are a pair.
    pub(super) fn on_ack(&mut self, now: Time, ack: &Ack) -> Option<f64> {
        let len = f64::from(ack.len).max(1.0);
        self.see_length(len);
        let last = self.last.replace(*ack)?;
        self.see_row(&last, ack);
        let apart = ack.received_at.checked_since(last.received_at)?;
        let is_short = len < self.mean / 2.0;
        if is_short || ack.seq != last.seq.wrapping_add(1) || apart == Span::ZERO {
            return None;
        }
        // At most the time that the second update was in flight, whatever the monitor reports.
        let apart = apart.min(now.since(ack.sent_at));
        let seconds = apart.as_secs_f64() * (self.longest / len);
        let left_apart = ack.sent_at.since(last.sent_at);
        let is_pair = left_apart < apart / AT_ONCE && self.is_together(left_apart);
        lower(&mut self.least, seconds);
        if is_pair {
            lower(&mut self.min_pair, seconds);
            let usual = self.usual_pair.unwrap_or(seconds);
            let weight = if seconds < usual { FALLING } else { RISING };
            self.usual_pair = Some(usual + weight * (seconds - usual));
            self.pairs = self.pairs.saturating_add(1);
            self.paired_at = now;
        }
        is_pair.then_some(self.of_the_mean(seconds))
    }

    fn see_length(&mut self, len: f64) {
        if self.longest == 0.0 {
            (self.longest, self.mean) = (len, len);
        }
        self.mean += NEWEST * (len - self.mean);
        if len > self.longest {
            let longer = len / self.longest;
            for time in [&mut self.least, &mut self.min_pair, &mut self.usual_pair] {
                *time = time.map(|time| time * longer);
            }
            self.longest = len;
        }
    }

    /// The time of an update of the mean length, from that of the longest.
    fn of_the_mean(&self, longest: f64) -> f64 {
        longest * (self.mean / self.longest)
    }

    /// Whether updates that left this far apart may have queued one behind the other, and did not
    /// leave apart for want of a state.
    fn is_together(&self, left_apart: Span) -> bool {
        left_apart <= TOGETHER || self.least().is_some_and(|least| left_apart.as_secs_f64() < least)
    }

    /// Whether another pair is due.
    pub(super) fn wants_pair(&self, now: Time) -> bool {
        self.pairs < FIRST_PAIRS || now.since(self.paired_at) > NEXT_PAIR
    }

    fn see_row(&mut self, last: &Ack, ack: &Ack) {
        let before = self.row.filter(|_| ack.seq == last.seq.wrapping_add(1));
        let row = before.zip(self.usual_pair()).and_then(|((first, count), usual)| {
            let length = ack.received_at.checked_since(first)?.as_secs_f64();
            (length < ADJACENT * usual * f64::from(count))
                .then_some((first, count.saturating_add(1)))
        });
        self.row = Some(row.unwrap_or((ack.received_at, 1)));
    }

    /// The number of adjacent updates up to the newest one, without cross traffic between them.
    pub(super) fn in_a_row(&self) -> u32 {
        self.row.map_or(0, |(_, count)| count)
    }

    /// The usual distance of the two updates of a pair at arrival, s: robust against jitter and
    /// cross traffic.
    pub(super) fn usual_pair(&self) -> Option<f64> {
        self.usual_pair.map(|time| self.of_the_mean(time))
    }

    /// The time of a byte at the bottleneck by the usual pair, s.
    pub(super) fn byte_time(&self) -> Option<f64> {
        self.usual_pair.map(|time| time / self.longest)
    }

    /// The service time of an update at the bottleneck, s; `None` before two have arrived in a row.
    pub(super) fn least(&self) -> Option<f64> {
        self.least.map(|time| self.of_the_mean(time))
    }

    /// The same by pairs alone, s: for other updates it may be only the distance at departure.
    pub(super) fn min_pair(&self) -> Option<f64> {
        self.min_pair.map(|time| self.of_the_mean(time))
    }
}

fn lower(least: &mut Option<f64>, sample: f64) {
    *least = Some(least.map_or(sample, |least| least.min(sample)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn ack(seq: u64, sent: u64, received: u64) -> Ack {
        Ack::of(seq, ms(sent), ms(received))
    }

    #[test]
    fn two_that_left_at_once_arrive_a_transmission_apart() {
        let mut service = Service::new();
        assert_eq!(service.on_ack(ms(40), &ack(0, 0, 20)), None);
        assert_eq!(service.on_ack(ms(48), &ack(1, 1, 28)), Some(0.008));
        assert_eq!(service.on_ack(ms(126), &ack(2, 100, 113)), None, "these did not");
        assert_eq!(service.on_ack(ms(130), &ack(3, 105, 117)), None);
        assert_eq!((service.min_pair(), service.least()), (Some(0.008), Some(0.004)));
    }

    #[test]
    fn two_states_of_an_application_with_an_outage_between_them_make_no_pair() {
        let mut service = Service::new();
        service.on_ack(ms(40), &ack(0, 0, 20));
        assert_eq!(service.on_ack(ms(500), &ack(1, 50, 480)), None, "nothing is known yet");
        assert_eq!(service.on_ack(ms(540), &ack(2, 500, 520)), None);
        assert_eq!(
            service.on_ack(ms(990), &ack(3, 550, 970)),
            None,
            "40 ms are enough for the path"
        );
        assert_eq!(
            service.on_ack(ms(1_090), &ack(4, 552, 1_050)),
            Some(0.08),
            "these may have queued"
        );
    }

    #[test]
    fn updates_of_a_queue_of_ours_arrive_in_a_row_until_another_comes_between() {
        let mut service = Service::new();
        for seq in 0..10 {
            service.on_ack(ms(5_000), &ack(seq, seq, 4_000 + 2 * seq));
        }
        assert_eq!(service.in_a_row(), 1, "there is no pair yet");
        service.on_ack(ms(5_100), &ack(10, 5_000, 5_050));
        service.on_ack(ms(5_101), &ack(11, 5_000, 5_052));
        for seq in 12..20 {
            service.on_ack(ms(9_000), &ack(seq, 5_000 + seq, 8_000 + 2 * seq));
        }
        assert_eq!(service.in_a_row(), 8);
        service.on_ack(ms(9_001), &ack(20, 5_020, 8_041));
        assert_eq!(service.in_a_row(), 9, "jitter of one of them");
        service.on_ack(ms(9_002), &ack(21, 5_021, 8_081));
        assert_eq!(service.in_a_row(), 1, "40 ms apart");
        service.on_ack(ms(9_003), &ack(22, 5_022, 8_082));
        service.on_ack(ms(9_004), &ack(24, 5_024, 8_083));
        assert_eq!(service.in_a_row(), 1, "one was lost between them");
    }

    #[test]
    fn one_that_is_missing_between_them_makes_no_pair() {
        let mut service = Service::new();
        service.on_ack(ms(40), &ack(0, 0, 20));
        assert_eq!(service.on_ack(ms(60), &ack(2, 1, 40)), None);
        assert_eq!(service.least(), None);
    }

    #[test]
    fn no_times_of_receipt_make_it_longer_than_an_update_was_under_way() {
        let mut service = Service::new();
        for (seq, received) in [(0, 1_000), (1, u64::MAX / 1_000_000), (2, 0), (3, 0), (4, 7)] {
            service.on_ack(ms(50 + seq), &ack(seq, 40, received));
            assert!(service.least().is_none_or(|least| least > 0.0 && least <= 0.02));
        }
    }

    #[test]
    fn a_short_update_among_long_ones_does_not_count_and_others_count_by_length() {
        let mut service = Service::new();
        let of = |len, seq, received| Ack { len, ..ack(seq, 0, received) };
        service.on_ack(ms(100), &of(1_000, 0, 20));
        assert_eq!(service.on_ack(ms(100), &of(1_000, 1, 30)), Some(0.01));
        assert_eq!(service.on_ack(ms(100), &of(60, 2, 31)), None);
        assert_eq!(service.byte_time(), Some(1e-5));
        assert!(service.on_ack(ms(100), &of(800, 3, 37)).is_some_and(|time| time < 0.0075));
        assert!(service.byte_time().is_some_and(|time| time < 1e-5));
    }

    #[test]
    fn pairs_are_wanted_in_the_beginning_and_now_and_then() {
        let mut service = Service::new();
        for pair in 0..u64::from(FIRST_PAIRS) {
            assert!(service.wants_pair(ms(100 * pair)));
            service.on_ack(ms(100 * pair + 20), &ack(2 * pair, 100 * pair, 100 * pair + 10));
            service.on_ack(ms(100 * pair + 21), &ack(2 * pair + 1, 100 * pair, 100 * pair + 12));
        }
        assert!(!service.wants_pair(ms(1_000)));
        assert!(service.wants_pair(ms(4_000)));
    }
}
