//! The clock of one host: it starts at an arbitrary time, and its rate differs from the world's.
//!
//! ```text
//! reading = start + ⌊elapsed · (1 + ppm / 10⁶)⌋
//! ```

use freshline_core::unit::{Span, Time};
use rand::RngExt;
use rand_pcg::Pcg64;

const MILLION: u128 = 1_000_000;

/// Converts the world's time to the time of one host. It never steps, as monotonic clocks do not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    start: Span,
    /// The count of this clock per million true ns.
    pace: u128,
}

impl Clock {
    /// A clock that is `ppm` fast (or slow, if negative) and starts at a random time within 36
    /// years.
    pub(super) fn random(rng: &mut Pcg64, ppm: i32) -> Self {
        let start = Span::from_nanos(rng.random_range(0..1 << 60));
        Self { start, pace: MILLION.saturating_add_signed(ppm.into()) }
    }

    pub(super) fn read(self, now: Time) -> Time {
        let counted = u128::from(now.as_nanos()) * self.pace / MILLION;
        Time::from_nanos(counted as u64) + self.start
    }

    /// The earliest time of the world at which this clock reads `local` or more.
    pub(super) fn world(self, local: Time) -> Time {
        let counted = u128::from((local - self.start).as_nanos());
        let elapsed = (counted * MILLION).div_ceil(self.pace);
        Time::from_nanos(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sleeps_until_a_reading_does_not_wake_before_it() {
        let mut rng = Pcg64::new(1, 0);
        for ppm in [-200, -1, 0, 3, 200] {
            let clock = Clock::random(&mut rng, ppm);
            for _ in 0..1_000 {
                let local = clock.read(Time::ZERO) + Span::from_nanos(rng.random_range(0..1 << 40));
                let woken = clock.world(local);
                assert!(clock.read(woken) >= local);
                assert!(woken == Time::ZERO || clock.read(woken - Span::from_nanos(1)) < local);
            }
        }
    }

    #[test]
    fn a_fast_clock_gains_its_parts_per_million() {
        let clock = Clock::random(&mut Pcg64::new(1, 0), 200);
        let gained = clock.read(Time::ZERO + Span::from_secs(10)).since(clock.read(Time::ZERO));
        assert_eq!(gained, Span::from_secs(10) + Span::from_millis(2));
    }
}
