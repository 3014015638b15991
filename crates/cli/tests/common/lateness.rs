//! How late this machine lets programs run that have slept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Sleeps again and again beside what is measured, and sees how much later it wakes.
pub(crate) struct Sleeper {
    stop: Arc<AtomicBool>,
    sleeping: JoinHandle<Vec<f64>>,
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

    /// Ends it: one nap in a hundred was longer by more than this, in ms.
    pub(crate) fn late_ms(self) -> f64 {
        self.stop.store(true, Ordering::Relaxed);
        let mut late_ms = self.sleeping.join().unwrap();
        late_ms.sort_by(f64::total_cmp);
        late_ms[late_ms.len() * 99 / 100]
    }
}
