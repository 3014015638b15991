//! A station's rate, shared by several threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use freshline_core::unit::BitRate;

/// The rate of a station's data symbols, set by whichever thread learns it.
#[derive(Debug, Clone, Default)]
pub struct SharedRate(Arc<AtomicU64>);

impl SharedRate {
    /// The rate is `rate` until it is set to another. By default it is unknown.
    pub fn new(rate: BitRate) -> Self {
        Self(Arc::new(AtomicU64::new(rate.as_bps())))
    }

    /// Sets the rate.
    pub fn set(&self, rate: BitRate) {
        self.0.store(rate.as_bps(), Ordering::Relaxed);
    }

    /// The rate, if it is known.
    pub fn get(&self) -> Option<BitRate> {
        let bps = self.0.load(Ordering::Relaxed);
        (bps > 0).then(|| BitRate::from_bps(bps))
    }
}
