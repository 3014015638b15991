//! The queueing delay of a packet in its device, from a timestamp of its departure.
//!
//! ```text
//!   W = departure − sending                           (2.2): X = RTT − W = ack − departure
//! ```
//!
//! The stamp is of another clock than the sending (on Linux, the wall clock, which can be set), so
//! an impossible stamp gives no delay.

use crate::unit::{Span, Time};

/// The error of a stamp that was converted from one clock to another: two readings of both clocks.
const CLOCK_ERROR: Span = Span::from_micros(200);

/// The maximum queueing delay that a stamp can show.
pub const MAX_STAMPED_WAIT: Span = Span::from_secs(2);

/// The queueing delay of a packet that was sent at `sent` and left the device at `left`, by a stamp
/// that was read at `now`; `None` for a stamp before the sending, after the reading, or more than
/// [`MAX_STAMPED_WAIT`] after the sending, with 200 µs for the error of clocks.
pub fn stamped_wait(sent: Time, left: Time, now: Time) -> Option<Span> {
    let is_possible = left + CLOCK_ERROR >= sent && left <= now + CLOCK_ERROR;
    let wait = left.min(now).since(sent);
    (is_possible && wait <= MAX_STAMPED_WAIT).then_some(wait)
}

/// Queueing delays are known by stamps as long as one of this many acknowledged packets had one.
const STAMPED_OF: u32 = 32;

/// The last queueing delay of a path's packets by a stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LastStamp(Option<(Span, u32)>);

impl LastStamp {
    /// Takes in an acknowledged packet, with its queueing delay if it had a stamp.
    pub fn on_acked(&mut self, wait: Option<Span>) {
        match (&mut self.0, wait) {
            (last, Some(wait)) => *last = Some((wait, 0)),
            (Some((_, without)), None) => *without = without.saturating_add(1),
            (None, None) => {}
        }
    }

    /// The queueing delay of the last packet with a stamp; `None` if the last 32 packets had none.
    pub fn wait(&self) -> Option<Span> {
        self.0.filter(|(_, without)| *without < STAMPED_OF).map(|(wait, _)| wait)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Acked;
    use super::*;

    fn at(micros: u64) -> Time {
        Time::ZERO + Span::from_micros(micros)
    }

    #[test]
    fn a_stamp_beyond_the_sending_and_the_reading_gives_no_wait() {
        let wait = |left| stamped_wait(at(10_000), at(left), at(90_000)).map(Span::as_millis_f64);
        assert_eq!(wait(50_000), Some(40.0));
        assert_eq!((wait(9_900), wait(90_100)), (Some(0.0), Some(80.0)));
        assert_eq!((wait(9_700), wait(90_300)), (None, None));
        let late = at(10_001) + MAX_STAMPED_WAIT;
        assert_eq!(stamped_wait(at(10_000), late, late), None);
    }

    #[test]
    fn the_last_stamp_counts_until_32_packets_had_none() {
        let mut last = LastStamp::default();
        last.on_acked(None);
        assert_eq!(last.wait(), None);
        let wait = Some(Span::from_millis(9));
        last.on_acked(wait);
        for _ in 0..31 {
            last.on_acked(None);
            assert_eq!(last.wait(), wait);
        }
        last.on_acked(None);
        assert_eq!(last.wait(), None);
    }

    proptest! {
        /// With stamps in the right order the service time is that from the departure to the ack.
        #[test]
        fn a_wait_is_never_longer_than_the_time_since_the_sending(
            sent in 0..5_000_000u64, left in 0..5_000_000u64, now in 0..5_000_000u64,
            after in 0..1_000_000u64,
        ) {
            let wait = stamped_wait(at(sent), at(left), at(now));
            if let Some(wait) = wait {
                prop_assert!(wait <= MAX_STAMPED_WAIT && wait <= at(now).since(at(sent)));
            }
            if sent <= left && left <= now && left - sent <= 2_000_000 {
                let wait = wait.expect("stamps in order");
                let round_trip = wait + Span::from_micros(after);
                let service = Acked { round_trip, wait }.service();
                prop_assert_eq!(service, Span::from_micros(after).max(round_trip / 16));
            }
        }
    }
}
