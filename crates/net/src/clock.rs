//! The one place where the project asks what time it is.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

use freshline_core::unit::{Span, Time};

/// What the clocks of this process show at their start, one year: a state that is older than the
/// process has a time too.
const START: Span = Span::from_secs(365 * 86_400);

/// When the clocks of this process start: at the first one's making.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The monotonic clock (`CLOCK_MONOTONIC`) as [`Time`]. All clocks of a process tell the same.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// The clock of this process.
    pub fn new() -> Self {
        Self { origin: *ORIGIN }
    }

    /// The time now. It never goes back.
    pub fn now(&self) -> Time {
        Time::ZERO + START + self.origin.elapsed().into()
    }

    /// The moment of `time` for interfaces of the standard library; what is beyond their range
    /// becomes a moment a hundred years ahead.
    pub fn instant_of(&self, time: Time) -> Instant {
        const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);
        let start = Time::ZERO + START;
        if time < start {
            let earlier = self.origin.checked_sub(Duration::from(start.since(time)));
            return earlier.unwrap_or(self.origin);
        }
        let since_origin = Duration::from(time.since(start));
        self.origin.checked_add(since_origin).unwrap_or_else(|| self.origin + CENTURY)
    }
}

/// The wall clock since 1970, as a label for people; it may jump, so nothing is measured with it.
pub fn wall_clock() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// [`wall_clock`] in ms.
pub fn wall_clock_ms() -> u64 {
    u64::try_from(wall_clock().as_millis()).unwrap_or(u64::MAX)
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_clocks_share_one_origin() {
        let earlier = Clock::new().now();
        let later = Clock::new().now();
        assert!(earlier <= later);
        let moment = earlier + Span::from_nanos(1_500);
        assert_eq!(Clock::new().instant_of(moment), Clock::new().instant_of(moment));
        let behind = Clock::new().instant_of(earlier - Span::from_nanos(1));
        assert!(behind < Clock::new().instant_of(earlier));
        assert!(Clock::new().instant_of(Time::MAX) > Instant::now());
    }
}
