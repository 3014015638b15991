//! Pauses that all sources of a monitor make at the same time, so that their common queue drains
//! and each of them measures the delay of the path without the queue.
//!
//! ```text
//!   monitor's clock  ──┬────────────────┬────────────────┬────►     period: 2 s · 2^k ≥ 16 · srtt
//!                      └ srtt ┘         └ srtt ┘         └ srtt ┘
//! ```
//!
//! An update is in a pause if it would arrive in one by the monitor's clock, so that pauses meet at
//! a shared queue whatever the forward delays to it. A smoothed round trip contains the queueing
//! delay, and is long enough to drain the queue. A pause raises the mean age by at most srtt/32.

use crate::source::Ack;
use crate::unit::{Span, Time};

/// The minimum period, s.
const SHORTEST: f64 = 2.0;

/// The maximum period, s; from then on pauses are shorter than a round trip.
const LONGEST: f64 = 1024.0;

/// The maximum fraction of the time in pauses.
const PART: f64 = 1.0 / 16.0;

#[derive(Debug, Clone, Default)]
pub(super) struct Pauses {
    /// The monitor's clock at the arrival of an update minus the source's at its departure, ns
    /// modulo 2⁶⁴.
    offset: Option<u64>,
}

impl Pauses {
    pub(super) fn on_ack(&mut self, ack: &Ack) {
        self.offset = Some(ack.received_at.as_nanos().wrapping_sub(ack.sent_at.as_nanos()));
    }

    /// Whether an update that arrived at this time by the monitor's clock came in a pause or soon
    /// after.
    pub(super) fn is_after(received_at: Time, srtt: f64) -> bool {
        let position = received_at.as_nanos() % Span::from_secs_f64(period(srtt)).as_nanos();
        position < Span::from_secs_f64(3.0 * srtt).as_nanos()
    }

    /// The end of the pause that contains an update which leaves at `at`; `None` outside pauses.
    /// With `srtt` in s.
    pub(super) fn end(&self, at: Time, srtt: f64) -> Option<Time> {
        let period = period(srtt);
        let length = Span::from_secs_f64(srtt.min(PART * period)).as_nanos();
        let arrives_at = at.as_nanos().wrapping_add(self.offset?);
        let position = arrives_at % Span::from_secs_f64(period).as_nanos();
        (position < length).then(|| at + Span::from_nanos(length - position))
    }
}

/// The time between the beginnings of two pauses, s: equal for similar round trips.
pub(super) fn period(srtt: f64) -> f64 {
    let mut period = SHORTEST;
    while period * PART < srtt && period < LONGEST {
        period *= 2.0;
    }
    period
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ack(sent_at: u64, received_at: u64) -> Ack {
        Ack::of(0, Time::from_nanos(sent_at), Time::from_nanos(received_at))
    }

    #[test]
    fn updates_that_leave_at_different_times_pause_together_where_they_arrive() {
        let clock = |millis: u64| Time::ZERO + Span::from_millis(millis);
        let ends = |way: u64, leaves: u64| {
            let mut pauses = Pauses::default();
            pauses.on_ack(&ack(0, way * 1_000_000));
            pauses.end(clock(leaves), 0.1).map(|end| end + Span::from_millis(way))
        };
        for way in [5, 40, 300] {
            assert_eq!(ends(way, 4_050 - way), Some(clock(4_100)), "{way} ms");
            assert_eq!(ends(way, 4_101 - way), None, "{way} ms");
            assert_eq!(ends(way, 3_999 - way), None, "{way} ms");
        }
    }

    #[test]
    fn nothing_pauses_before_the_monitors_clock_is_known() {
        assert_eq!(Pauses::default().end(Time::ZERO, 1.0), None);
    }

    proptest! {
        #[test]
        fn a_pause_ends_within_a_round_trip_and_takes_a_sixteenth_at_most(
            sent in any::<u64>(), received in any::<u64>(), at in 0..u64::MAX / 2, srtt in 0.0..1e4f64,
        ) {
            let mut pauses = Pauses::default();
            pauses.on_ack(&ack(sent, received));
            let at = Time::from_nanos(at);
            if let Some(end) = pauses.end(at, srtt) {
                prop_assert!(end > at && end.since(at).as_secs_f64() <= srtt + 1e-9);
                prop_assert!(pauses.end(end, srtt).is_none());
            }
            prop_assert!(srtt <= PART * period(srtt) || period(srtt) >= LONGEST);
        }
    }
}
