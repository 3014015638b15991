//! How late this machine wakes programs that sleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Sleeps repeatedly during a measurement, and records how much later it wakes.
pub(crate) struct Sleeper {
    stop: Arc<AtomicBool>,
    sleeping: JoinHandle<Vec<f64>>,
}

/// How much longer naps were than they should have been.
#[derive(Debug, Clone, Copy)]
#[allow(dead_code, reason = "some tests ask for the percentile, others for the maximum")]
pub(crate) struct Lateness {
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
}

impl Sleeper {
    pub(crate) fn start() -> Self {
        const NAP: Duration = Duration::from_millis(1);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let sleeping = thread::spawn(move || {
            let mut late_ms = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let began = Instant::now();
                thread::sleep(NAP);
                late_ms.push((began.elapsed() - NAP).as_secs_f64() * 1e3);
            }
            late_ms
        });
        Self { stop, sleeping }
    }

    /// Ends it.
    pub(crate) fn end(self) -> Lateness {
        self.stop.store(true, Ordering::Relaxed);
        let mut late_ms = self.sleeping.join().unwrap();
        late_ms.sort_by(f64::total_cmp);
        Lateness { p99_ms: late_ms[late_ms.len() * 99 / 100], max_ms: late_ms[late_ms.len() - 1] }
    }
}
