//! How far the monitor's clock is ahead of the source's, from acks alone.
//!
//! ```text
//! offset = received_at − (sent_at + rtt / 2)        of the ack with the smallest rtt
//! ```
//!
//! The smallest round trip has the least queueing in it, so that its error, at most half of it,
//! is the path's own asymmetry (RFC 5905 section 10, the clock filter of NTP). Two windows in turn
//! forget the minimum after 10 to 20 s, so that the estimate follows clocks that drift (50 ppm
//! is 1 ms in 20 s) and routes that change. A clock that jumps is noticed by the first ack: each bounds
//! the offset by half its round trip to either side, and bounds that exclude each other are of two
//! different clocks. All before the jump is forgotten then.

use crate::unit::{Span, Time};

const WINDOW: Span = Span::from_secs(10);

/// Bounds that are this far apart are not those of one clock that drifts: 250 ppm over both windows.
const JUMP: Span = Span::from_millis(5);

/// The estimate of (monitor's clock − source's clock).
#[derive(Debug, Clone, Default)]
pub struct ClockOffset {
    window_began_at: Time,
    current: Option<Best>,
    previous: Option<Best>,
    /// The better one of both, which is asked for more often than it changes.
    best: Option<Best>,
}

#[derive(Debug, Clone, Copy)]
struct Best {
    rtt: Span,
    offset_ns: i64,
}

impl ClockOffset {
    /// An ack came at `now` for an update sent at `sent_at` that arrived at `received_at` on the
    /// monitor's clock; `rtt` is without the time that the monitor held it.
    pub fn on_ack(&mut self, now: Time, sent_at: Time, received_at: Time, rtt: Span) {
        let middle = sent_at + rtt / 2;
        // Two clocks may start anywhere; their distance is taken modulo 2⁶⁴ ns.
        let offset_ns = received_at.as_nanos().wrapping_sub(middle.as_nanos()) as i64;
        let has_jumped = |best: Best| {
            let distance = offset_ns.wrapping_sub(best.offset_ns).unsigned_abs();
            distance > (rtt / 2 + best.rtt / 2 + JUMP).as_nanos()
        };
        if self.best.is_some_and(has_jumped) {
            *self = Self::default();
        }
        if self.current.is_none() || now.since(self.window_began_at) >= WINDOW {
            self.previous = self.current.take();
            self.window_began_at = now;
        }
        if self.current.is_some_and(|best| rtt >= best.rtt) {
            return;
        }
        self.current = Some(Best { rtt, offset_ns });
        self.best = [self.current, self.previous].into_iter().flatten().min_by_key(|best| best.rtt);
    }

    /// The offset in ns to add to a time of the source's clock, once there was an ack.
    pub fn nanos(&self) -> Option<i64> {
        self.best.map(|best| best.offset_ns)
    }

    /// The smallest round trip of the last 10 to 20 s; the offset's error is at most its half.
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
        // The monitor's clock is 1000 ms ahead; 30 ms of queueing on the way out, then none.
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
    fn a_time_before_the_clocks_start_does_not_become_the_future() {
        // The monitor started 3 s ago; its clock is 100 s behind.
        let (offset, now) = (-100_000_000_000, ms(3_000));
        assert_eq!(ClockOffset::translate_past(ms(101_000), offset, now), ms(1_000));
        assert_eq!(ClockOffset::translate_past(ms(50_000), offset, now), Time::ZERO);
        // An estimate that is wrong by a little may lie in the future.
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
