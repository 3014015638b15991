//! The current time, real or simulated.

#[cfg(feature = "sim")]
use std::sync::Arc;
#[cfg(feature = "sim")]
use std::sync::atomic::{AtomicU64, Ordering};

use freshline_core::unit::Time;

/// The clock of handles: that of the process, or virtual time.
#[derive(Debug, Clone)]
pub(crate) enum Clock {
    /// The process's.
    Real(freshline_net::clock::Clock),
    /// Nanoseconds, which a simulation advances.
    #[cfg(feature = "sim")]
    Virtual(Arc<AtomicU64>),
}

impl Clock {
    /// The process's clock.
    pub(crate) fn real() -> Self {
        Self::Real(freshline_net::clock::Clock::new())
    }

    pub(crate) fn now(&self) -> Time {
        match self {
            Self::Real(clock) => clock.now(),
            #[cfg(feature = "sim")]
            Self::Virtual(nanos) => Time::from_nanos(nanos.load(Ordering::Relaxed)),
        }
    }

    /// Whether waiting makes time pass.
    pub(crate) fn is_real(&self) -> bool {
        matches!(self, Self::Real(_))
    }
}
