//! Estimates the offset of the monitor's clock against the source's, from acks only.
//!
//! ```text
//! offset = received_at − (sent_at + rtt / 2)        of the ack with the smallest rtt
//! ```
//!
//! The ack with the minimum round trip contains the least queueing delay, so the remaining error,
//! at most half of the round trip, is due to the asymmetry of the path (RFC 5905 section 10, the
//! clock filter of NTP). The error bound grows with time, as clocks drift:
//!
//! ```text
//! error = rtt / 2 + 500 ppm · (time since the ack)
//! ```
//!
//! and an ack replaces the one in use as soon as its bound is not greater. Two alternating windows
//! forget an ack after 10 to 20 s, so that the estimate follows changes of clocks and routes. A
//! clock jump is detected by the first ack after it: each ack bounds the offset on either side, and
//! bounds that exclude each other belong to two different clocks. All acks before the jump are
//! forgotten then.
//!
//! If the offset has grown by a jump, the source's clock may have stopped for some time: then its
//! count since a state from before the jump is too low, so the error for that state is unbounded
//! ([`ClockOffset::estimate`]). The same holds if the offset has changed when the session is
//! reopened, as the monitor may be another process or the same one.

use crate::unit::{Span, Time};
use crate::wire::OffsetEstimate;

const WINDOW: Span = Span::from_secs(10);

/// The maximum drift between two clocks during `span`: 500 ppm. That is the kernel's limit for the
/// frequency of a clock that NTP disciplines (adjtimex(2)); crystals are within 100 ppm.
pub(super) fn drift(span: Span) -> Span {
    const PARTS: u64 = 2_000;
    Span::from_nanos(span.as_nanos().div_ceil(PARTS))
}

/// The estimate of (monitor's clock − source's clock).
#[derive(Debug, Clone, Default)]
pub struct ClockOffset {
    window_began_at: Time,
    current: Option<Best>,
    previous: Option<Best>,
    /// The better one of both; cached, as it is read more often than it changes.
    best: Option<Best>,
    /// The best one before the session was reopened, until there is another.
    before: Option<Best>,
    /// When a jump was found that may have increased the offset.
    grown_at: Option<Time>,
}

#[derive(Debug, Clone, Copy)]
struct Best {
    at: Time,
    rtt: Span,
    offset_ns: i64,
}

impl Best {
    /// The bound of the offset's error at `now`, which may be a little before the ack.
    fn error(&self, now: Time) -> Span {
        let apart = now.since(self.at).max(self.at.since(now));
        self.rtt / 2 + Span::from_nanos(1) + drift(apart)
    }
}

impl ClockOffset {
    /// An ack arrived at `now` for an update sent at `sent_at` that arrived at `received_at` on the
    /// monitor's clock; `rtt` excludes the time for which the monitor held it.
    pub fn on_ack(&mut self, now: Time, sent_at: Time, received_at: Time, rtt: Span) {
        let middle = sent_at + rtt / 2;
        // Two clocks may have any origin; their difference is computed modulo 2⁶⁴ ns.
        let offset_ns = received_at.as_nanos().wrapping_sub(middle.as_nanos()) as i64;
        let new = Best { at: now, rtt, offset_ns };
        let jump_from = |best: Best| {
            let distance = offset_ns.wrapping_sub(best.offset_ns);
            let bound = new.error(now) + best.error(now);
            if distance.unsigned_abs() > bound.as_nanos() { distance } else { 0 }
        };
        let jump = self.best.map_or(0, jump_from);
        let is_another = self.before.take().is_some_and(|before| jump_from(before) != 0);
        if jump > 0 || is_another {
            self.grown_at = Some(now);
        }
        if jump != 0 {
            *self = Self { grown_at: self.grown_at, ..Self::default() };
        }
        if self.current.is_none() || now.since(self.window_began_at) >= WINDOW {
            self.previous = self.current.take();
            self.window_began_at = now;
        }
        let error = new.error(now);
        if self.current.is_some_and(|best| error > best.error(now)) {
            return;
        }
        self.current = Some(new);
        self.best = self.previous.filter(|best| best.error(now) < error).or(Some(new));
    }

    /// Whether there is an estimate.
    pub fn is_known(&self) -> bool {
        self.best.is_some()
    }

    /// The session is reopened: the monitor may be another process, with another clock.
    pub fn on_reopening(&mut self) {
        let (before, grown_at) = (self.best.or(self.before), self.grown_at);
        *self = Self { before, grown_at, ..Self::default() };
    }

    /// The offset in ns to add to a time of the source's clock, once there was an ack.
    pub fn nanos(&self) -> Option<i64> {
        self.best.map(|best| best.offset_ns)
    }

    /// The bound of the offset's error at `now`, to either side.
    pub fn error(&self, now: Time) -> Option<Span> {
        self.best.map(|best| best.error(now))
    }

    /// States generated before this time have an unbounded error.
    pub fn bounded_from(&self) -> Option<Time> {
        self.grown_at
    }

    /// The offset estimate for an update sent at `now` with states, of which the oldest was
    /// generated at `generated_at`, and whose generation times can be too late by `label_error`.
    pub fn estimate(
        &self,
        now: Time,
        generated_at: Time,
        label_error: Span,
    ) -> Option<OffsetEstimate> {
        let best = self.best?;
        let is_bounded = self.grown_at.is_none_or(|grown_at| generated_at >= grown_at);
        let error = if is_bounded { best.error(now) + label_error } else { Span::MAX };
        Some(OffsetEstimate::new(best.offset_ns, error))
    }

    /// The round trip of the ack in use: about the minimum of the last 10 to 20 s.
    pub fn min_rtt(&self) -> Option<Span> {
        self.best.map(|best| best.rtt)
    }

    /// `time` of the source's clock on a clock that is `offset_ns` ahead, modulo 2⁶⁴ ns.
    pub fn translate(time: Time, offset_ns: i64) -> Time {
        Time::from_nanos(time.as_nanos().wrapping_add_signed(offset_ns))
    }

    /// The same of a time that the other clock showed before `now`: a time from before that clock's
    /// start is its start, [`Time::ZERO`], and does not wrap around into the future.
    pub fn translate_past(time: Time, offset_ns: i64, now: Time) -> Time {
        let translated = Self::translate(time, offset_ns);
        let since = now.as_nanos().wrapping_sub(translated.as_nanos()).cast_signed();
        if translated > now && since >= 0 { Time::ZERO } else { translated }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn the_shortest_round_trip_wins_and_is_forgotten_in_time() {
        let mut clock = ClockOffset::default();
        assert_eq!(clock.nanos(), None);
        // The monitor's clock is 1000 ms ahead; 30 ms of queueing on the forward path, then none.
        clock.on_ack(ms(60), ms(0), ms(1_045), Span::from_millis(60));
        assert_eq!(clock.nanos(), Some(1_015_000_000));
        clock.on_ack(ms(130), ms(100), ms(1_115), Span::from_millis(30));
        assert_eq!(clock.nanos(), Some(1_000_000_000));
        assert_eq!(ClockOffset::translate(ms(7), clock.nanos().unwrap()), ms(1_007));
        // The route grows by 10 ms each way.
        for at in [12_000, 23_000, 34_000] {
            clock.on_ack(ms(at + 50), ms(at), ms(at + 1_025), Span::from_millis(50));
        }
        assert_eq!(clock.min_rtt(), Some(Span::from_millis(50)));
    }

    #[test]
    fn a_clock_that_jumps_is_noticed_at_the_first_ack() {
        // The monitor's clock stands still for 20 s, as in a virtual machine that is paused.
        let mut clock = ClockOffset::default();
        clock.on_ack(ms(10), ms(0), ms(1_005), Span::from_millis(10));
        assert_eq!(clock.nanos(), Some(1_000_000_000));
        clock.on_ack(ms(20_140), ms(20_100), ms(1_120), Span::from_millis(40));
        assert_eq!(clock.nanos(), Some(-19_000_000_000), "a longer round trip, but of this clock");
        // Queueing in one direction is no jump: the bounds of both acks contain the offset.
        clock.on_ack(ms(21_000), ms(20_500), ms(1_995), Span::from_millis(500));
        assert_eq!(clock.nanos(), Some(-19_000_000_000));
    }

    #[test]
    fn the_bound_of_the_error_grows_until_an_ack_has_a_lower_one() {
        let mut clock = ClockOffset::default();
        let rtt = Span::from_millis(10);
        clock.on_ack(ms(10), ms(0), ms(5), rtt);
        let error = |clock: &ClockOffset, at| clock.error(ms(at)).unwrap().as_micros();
        assert_eq!(
            [error(&clock, 10), error(&clock, 1_010), error(&clock, 3_610_010)],
            [5_000, 5_500, 1_810_000]
        );
        // 0.8 ms more of error than the first one had, and 1 ms less than it has by now.
        clock.on_ack(ms(4_010), ms(3_999), ms(4_004), rtt + Span::from_micros(1_600));
        assert_eq!(error(&clock, 4_010), 5_800);
        clock.on_ack(ms(4_100), ms(4_000), ms(4_090), rtt * 10);
        assert_eq!(error(&clock, 4_010), 5_800, "queueing makes no estimate better");
    }

    #[test]
    fn the_ages_of_states_from_before_a_stop_of_the_sources_clock_are_not_bounded() {
        let mut clock = ClockOffset::default();
        clock.on_ack(ms(10), ms(0), ms(5), Span::from_millis(10));
        let error = |clock: &ClockOffset, at, generated_at| {
            clock.estimate(ms(at), ms(generated_at), Span::ZERO).unwrap().error()
        };
        assert!(error(&clock, 20, 3) < ms(6).since(ms(0)));
        // It stands still for 20 s.
        clock.on_ack(ms(110), ms(100), ms(20_105), Span::from_millis(10));
        assert_eq!(error(&clock, 120, 109), Span::MAX);
        let nanos = clock.estimate(ms(120), ms(110), Span::ZERO).unwrap().nanos();
        assert!((19_999_999_744..=20_000_000_000).contains(&nanos), "{nanos}");
        // Now the monitor's clock stops: the source's count is right.
        clock.on_ack(ms(210), ms(200), ms(10_205), Span::from_millis(10));
        assert!(error(&clock, 220, 110) < ms(6).since(ms(0)));
    }

    #[test]
    fn after_a_reopening_the_same_offset_bounds_the_ages_of_older_states_and_another_does_not() {
        let mut clock = ClockOffset::default();
        let mut ack = |at, received_at, reopens: bool| {
            if reopens {
                clock.on_reopening();
                assert_eq!(clock.nanos(), None);
            }
            clock.on_ack(ms(at + 10), ms(at), ms(received_at), Span::from_millis(10));
            clock.estimate(ms(at + 10), ms(3), Span::ZERO).unwrap().error() != Span::MAX
        };
        assert!(ack(0, 5, false));
        assert!(ack(1_000, 1_006, true));
        assert!(!ack(2_000, 42, true), "another monitor, or a stop of this clock");
    }

    #[test]
    fn a_time_before_the_clocks_start_does_not_become_the_future() {
        // The monitor started 3 s ago; its clock is 100 s behind.
        let (offset, now) = (-100_000_000_000, ms(3_000));
        assert_eq!(ClockOffset::translate_past(ms(101_000), offset, now), ms(1_000));
        assert_eq!(ClockOffset::translate_past(ms(50_000), offset, now), Time::ZERO);
        // A slightly wrong estimate may lie in the future.
        assert_eq!(ClockOffset::translate_past(ms(103_001), offset, now), ms(3_001));
    }

    #[test]
    fn clocks_may_start_anywhere() {
        let mut clock = ClockOffset::default();
        clock.on_ack(Time::MAX, Time::MAX, Time::ZERO, Span::from_millis(1));
        let offset = clock.nanos().unwrap();
        assert_eq!(ClockOffset::translate(Time::MAX, offset), Time::ZERO);
    }
}
