//! Bianchi's model of a saturated cell: the expected throughput.
//!
//! The model: n stations always have a frame to send, and a frame collides with probability p,
//! independently of its retries. With W = CWmin + 1 and m doublings up to CWmax,
//!
//! ```text
//! τ = 2(1 − 2p) / ((1 − 2p)(W + 1) + pW(1 − (2p)^m))    probability to transmit in a slot
//! p = 1 − (1 − τ)^(n − 1)
//! S = Ps·Ptr·payload / ((1 − Ptr)·σ + Ptr·Ps·Ts + Ptr·(1 − Ps)·Tc)
//! ```
//!
//! where Ptr = 1 − (1 − τ)^n, Ps = nτ(1 − τ)^(n−1)/Ptr, σ is an empty slot, and Ts and Tc are the
//! times that a success and a collision take with their interframe spaces.
//!
//! Bianchi: Performance analysis of the IEEE 802.11 distributed coordination function, IEEE JSAC
//! 18(3), 2000: equations 7, 9, 13 (basic access).
//!
//! The paper retries without limit. If a frame is given up after R attempts and the window starts
//! again (Wu, Peng, Long, Cheng, Ma: Performance of reliable transport protocol over IEEE 802.11
//! wireless LAN, INFOCOM 2002), a station makes attempt i with probability p^i, after a mean
//! backoff of (Wi − 1)/2 slots, so
//!
//! ```text
//! τ = Σ p^i / Σ p^i·(Wi + 1)/2        i from 0 to R − 1, Wi = min(2^i·W, CWmax + 1)
//! ```

use super::category::CategoryParams;
use super::frame::Framing;
use super::mode::Mode;
use super::timing::Timing;
use crate::unit::{BitRate, Bytes, Span};

/// A saturated cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bianchi {
    /// The number of sending stations, above zero.
    pub stations: u32,
    /// Their contention windows.
    pub contention: CategoryParams,
    /// The number of attempts after which a frame is given up; `None` for no limit.
    pub retry_limit: Option<u8>,
    /// An empty slot, σ.
    pub slot: Span,
    /// The duration of a success, Ts.
    pub success: Span,
    /// The duration of a collision, Tc.
    pub collision: Span,
}

impl Bianchi {
    /// The cell of `stations` saturated stations that send packets of size `packet` in `mode`.
    pub fn new(
        stations: u32,
        contention: CategoryParams,
        timing: &Timing,
        framing: &Framing,
        mode: &Mode,
        packet: Bytes,
    ) -> Self {
        let frame = mode.duration(framing.single(framing.mpdu(packet)));
        let collision = frame + timing.aifs(contention.aifsn);
        let success = collision + timing.sifs + framing.response(mode, 1);
        Self { stations, contention, retry_limit: None, slot: timing.slot, success, collision }
    }

    /// The probability p that a transmission collides.
    pub fn collision_probability(&self) -> f64 {
        let others = f64::from(self.stations.saturating_sub(1));
        // p falls with τ and τ with p, so the difference of both sides has one root in p.
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..60 {
            let p = (low + high) / 2.0;
            if 1.0 - libm::pow(1.0 - self.attempt_probability(p), others) > p {
                low = p;
            } else {
                high = p;
            }
        }
        (low + high) / 2.0
    }

    /// The probability τ that a station transmits in a slot, if its frames collide with
    /// probability `p`.
    ///
    /// The fraction of equation 7 is 0/0 at p = 1/2; its denominator divided by 1 − 2p is
    /// W + 1 + pW · Σ (2p)^i over i from 0 to m − 1.
    pub fn attempt_probability(&self, p: f64) -> f64 {
        let window = f64::from(self.contention.cw_min) + 1.0;
        if let Some(attempts) = self.retry_limit {
            let largest = f64::from(self.contention.cw_max) + 1.0;
            let (mut made, mut slots) = (0.0, 0.0);
            for attempt in 0..attempts {
                let chance = libm::pow(p, f64::from(attempt));
                made += chance;
                slots += chance * (window * libm::exp2(f64::from(attempt))).min(largest) + chance;
            }
            return 2.0 * made / slots;
        }
        let doublings = ((self.contention.cw_max + 1) / (self.contention.cw_min + 1)).ilog2();
        let sum: f64 = (0..doublings).map(|i| libm::pow(2.0 * p, f64::from(i))).sum();
        2.0 / (window + 1.0 + p * window * sum)
    }

    /// The throughput of all stations together, with `payload` bytes per frame.
    pub fn throughput(&self, payload: Bytes) -> BitRate {
        let stations = f64::from(self.stations);
        let attempt = self.attempt_probability(self.collision_probability());
        let silent = libm::pow(1.0 - attempt, stations);
        let success = stations * attempt * libm::pow(1.0 - attempt, stations - 1.0);
        let slot = silent * self.slot.as_secs_f64()
            + success * self.success.as_secs_f64()
            + (1.0 - silent - success) * self.collision.as_secs_f64();
        BitRate::from_bps((success * payload.get() as f64 * 8.0 / slot) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wlan::mac::{Access, Category, Standard};

    fn cell(stations: u32) -> Bianchi {
        let contention = *Access::DCF.params(Category::BestEffort);
        let timing = Timing::of(Standard::A);
        let framing = Framing::new(Standard::A, &Access::DCF, 1);
        let mode = Mode::legacy(Standard::A, BitRate::from_mbps(12)).unwrap();
        Bianchi::new(stations, contention, &timing, &framing, &mode, Bytes::new(1052))
    }

    #[test]
    fn a_lone_station_never_collides_and_waits_for_half_a_window() {
        let alone = cell(1);
        assert!(alone.collision_probability() < 1e-9);
        // Cycle: 34 + 7.5 · 9 + 748 + 16 + 32 µs.
        let expected = 1024.0 * 8.0 / 897.5e-6;
        let ratio = alone.throughput(Bytes::new(1024)).as_bps() as f64 / expected;
        assert!((ratio - 1.0).abs() < 1e-6, "{ratio}");
    }

    #[test]
    fn collisions_and_attempts_fit_each_other() {
        for stations in [2, 5, 10, 50, 1000] {
            let cell = cell(stations);
            let p = cell.collision_probability();
            let silent = 1.0 - cell.attempt_probability(p);
            let others = libm::pow(silent, f64::from(stations - 1));
            assert!((1.0 - others - p).abs() < 1e-9, "{stations} stations: {p}");
        }
    }

    #[test]
    fn a_limit_that_is_never_reached_changes_nothing() {
        let endless = cell(5);
        let patient = Bianchi { retry_limit: Some(255), ..endless };
        let throughput = |cell: Bianchi| cell.throughput(Bytes::new(1024)).as_bps();
        assert_eq!(throughput(endless), throughput(patient));
        let impatient = Bianchi { retry_limit: Some(7), ..cell(50) };
        assert!(throughput(impatient) < throughput(cell(50)));
    }

    #[test]
    fn the_attempt_probability_is_that_of_the_paper() {
        // Equation 7 as printed, away from p = 1/2 where it is 0/0.
        let cell = cell(2);
        for p in [0.0, 0.1, 0.3, 0.49, 0.7] {
            let denominator = (1.0 - 2.0 * p) * 17.0 + p * 16.0 * (1.0 - libm::pow(2.0 * p, 6.0));
            let printed = 2.0 * (1.0 - 2.0 * p) / denominator;
            assert!((cell.attempt_probability(p) - printed).abs() < 1e-12, "{p}");
        }
    }
}
