//! Time for the address tokens of a Retry.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use noq_proto::TimeSource;

/// The clock of Retry tokens: it is the caller's, so that a step of the wall clock neither revives
/// an old token nor voids a new one. Tokens do not outlive the process, so their epoch need not
/// either.
#[derive(Debug)]
pub(super) struct TokenClock {
    start: Instant,
    elapsed_ms: AtomicU64,
}

impl TokenClock {
    pub(super) fn new(start: Instant) -> Self {
        Self { start, elapsed_ms: AtomicU64::new(0) }
    }

    pub(super) fn set(&self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.start).as_millis();
        self.elapsed_ms.store(u64::try_from(elapsed).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl TimeSource for TokenClock {
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.elapsed_ms.load(Ordering::Relaxed))
    }
}
