//! How queueing delays vary from one update to the next.
//!
//! ```text
//!   roughness = mean (w − previous w)² / 2 · variance      J. von Neumann, Annals of Math. Stat. 1941
//!
//!   1: independent delays, as of jitter
//!   0: lasting delays, as in a queue
//! ```

/// Means are taken over about this number of updates.
const OVER: u32 = 32;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Variation {
    last: Option<f64>,
    count: u32,
    mean: f64,
    variance: f64,
    half_square_step: f64,
}

impl Variation {
    /// Takes in the queueing delay of an update, s.
    pub(super) fn on_wait(&mut self, wait: f64) {
        let Some(last) = self.last.replace(wait) else {
            self.mean = wait;
            return;
        };
        self.count = (self.count + 1).min(OVER);
        let weight = 1.0 / f64::from(self.count);
        let (off, step) = (wait - self.mean, wait - last);
        self.mean += weight * off;
        self.variance += weight * (off * off - self.variance);
        self.half_square_step += weight * (step * step / 2.0 - self.half_square_step);
    }

    /// 0 to 1; see above.
    pub(super) fn roughness(&self) -> f64 {
        if self.variance > 0.0 { (self.half_square_step / self.variance).min(1.0) } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(waits: impl Iterator<Item = f64>) -> Variation {
        let mut variation = Variation::default();
        waits.for_each(|wait| variation.on_wait(wait));
        variation
    }

    #[test]
    fn jitter_is_rough_and_a_queue_is_not() {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as f64 / (1u64 << 24) as f64
        };
        let jitter = of((0..2_000).map(|_| random()));
        assert!(jitter.roughness() > 0.7, "{}", jitter.roughness());
        let queue = of((0..2_000).map(|n| (f64::from(n) / 10.0).sin() + 1.0));
        assert!(queue.roughness() < 0.1, "{}", queue.roughness());
    }
}
