//! The airtime of clients' reports, which the [model](super::Round) does not include.
//!
//! ```text
//! s  = (Σ T_report + κ·(c + wᵀN))/Δ        share of the air          x = (1 − s)·F⁻¹(N)
//! T_report = AIFS + frame + SIFS + Ack     of each station, once every Δ
//! κ  = Σᵢ p₀·p₁·…·pᵢ                       frames of the access point that one report destroys
//! ```
//!
//! A report contends with an access point that always has a frame to send. If both backoffs end in
//! the same slot, the frame is lost together with the report. A frame takes a round divided by n,
//! so the reports of n stations destroy κ·(c + wᵀN) of airtime.
//!
//! # The collision probability
//!
//! Backoffs are uniform over W = CWmin + 1 slots. A report with k slots to go collides with a frame
//! of the access point, whose last frame has just ended, with probability
//!
//! ```text
//! u(k) = (1/W)·(1 + Σ u(k − 1 − a), a < min(k, W))      it draws k, or draws a, sends, draws again
//! ```
//!
//! as each busy period reduces the counter of a waiting station by one slot (IEEE 802.11-2016,
//! 10.22.2.4). For k < W this is (1 + 1/W)^k/W, and the mean is p₀ = ((1 + 1/W)^W − 1)/W. After a
//! collision both draw from twice as many slots: pᵢ. With W = 16, p₀ = 0.102 and κ = 0.111.
//!
//! # Not modelled
//!
//! Collisions between reports of several stations, which may be lost with the same frame; the cost
//! of a collision beyond its frame, 50 µs; and the time for which a report waits for an idle medium
//! when the access point has nothing to send.

use alloc::vec::Vec;

use super::mac::{CategoryParams, Framing, Mode, Timing};
use super::model::Round;
use crate::unit::{Bytes, Span};

/// Reports of all stations of an access point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reports {
    /// Δ, above zero.
    pub interval: Span,
    /// Σ T_report: one report of each station.
    pub airtime: Span,
    /// κ: the mean number of the access point's frames that one report destroys.
    pub destroyed: f64,
}

impl Reports {
    /// No stations yet; each added station reports every `interval` and contends with these
    /// parameters.
    pub fn new(interval: Span, contention: &CategoryParams) -> Self {
        Self { interval, airtime: Span::ZERO, destroyed: destroyed_frames(contention) }
    }

    /// The same with one more station, whose reports of `size` with their headers leave in `mode`.
    pub fn with(
        self,
        size: Bytes,
        mode: &Mode,
        timing: &Timing,
        framing: &Framing,
        contention: &CategoryParams,
    ) -> Self {
        let frame = mode.duration(framing.single(framing.mpdu(size)));
        let response = timing.sifs + framing.response(mode, 1);
        let airtime = timing.aifs(contention.aifsn) + frame + response;
        Self { airtime: self.airtime + airtime, ..self }
    }

    /// s: the share of the time, 0 to 1, that reports take from frames of these levels.
    pub fn share(&self, round: &Round, levels: &[f64]) -> f64 {
        let lost = self.airtime.as_secs_f64() + self.destroyed * round.span(levels);
        (lost / self.interval.as_secs_f64()).clamp(0.0, 1.0)
    }

    /// The rates x, in packets/s, at which levels are N, with reports on the air.
    pub fn rates(&self, round: &Round, levels: &[f64]) -> Vec<f64> {
        let left = 1.0 - self.share(round, levels);
        round.rates(levels).into_iter().map(|rate| left * rate).collect()
    }
}

/// κ.
fn destroyed_frames(contention: &CategoryParams) -> f64 {
    /// The maximum number of attempts (dot11ShortRetryLimit).
    const TRIES: usize = 7;
    let first = contention.cw_min as usize + 1;
    let largest = contention.cw_max as usize + 1;
    let (mut window, mut chance, mut sum) = (first, 1.0, 0.0);
    for _ in 0..TRIES {
        chance *= meeting(window, first);
        sum += chance;
        window = (2 * window).min(largest);
    }
    sum
}

/// The probability that a report collides with the access point if both draw from `window` slots,
/// and the access point from `fresh` after each of its own frames.
fn meeting(window: usize, fresh: usize) -> f64 {
    let met = |known: &[f64], drawn: usize, slot: usize| {
        let earlier: f64 = (0..slot.min(drawn)).map(|a| known[slot - 1 - a]).sum();
        (f64::from(u8::from(slot < drawn)) + earlier) / drawn as f64
    };
    let mut after_success = Vec::with_capacity(window);
    for slot in 0..window {
        let next = met(&after_success, fresh, slot);
        after_success.push(next);
    }
    let sum: f64 = (0..window).map(|slot| met(&after_success, window, slot)).sum();
    sum / window as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wlan::link::tests::link;
    use crate::wlan::mac::{Access, Category, Guard, Standard, Width};
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    fn best_effort() -> CategoryParams {
        *Access::EDCA.params(Category::BestEffort)
    }

    #[test]
    fn a_report_destroys_a_frame_in_nine() {
        let first = meeting(16, 16);
        assert!((first - (libm::pow(17.0 / 16.0, 16.0) - 1.0) / 16.0).abs() < 1e-12, "{first}");
        let all = destroyed_frames(&best_effort());
        assert!((all - 0.1112).abs() < 0.0001, "{all}");
    }

    #[test]
    fn chances_to_meet_are_those_of_drawn_backoffs() {
        let mut rng = Pcg64::seed_from_u64(1);
        for window in [16, 32, 64] {
            let mut met = 0;
            for _ in 0..200_000 {
                let (mut report, mut frame) =
                    (rng.random_range(0..window), rng.random_range(0..window));
                // A frame that is sent first also reduces the report's counter by its slot.
                while frame < report {
                    report -= frame + 1;
                    frame = rng.random_range(0..16);
                }
                met += u32::from(frame == report);
            }
            let (drawn, derived) = (f64::from(met) / 2e5, meeting(window, 16));
            assert!((drawn / derived - 1.0).abs() < 0.02, "{window}: {drawn} {derived}");
        }
    }

    #[test]
    fn ten_reports_twice_a_second_take_a_hundredth_of_a_slow_channel() {
        let mode = Mode::vht(2, 1, Width::Mhz80, Guard::Long).unwrap();
        let (timing, framing) = (Timing::of(Standard::Ac), Framing::VHT);
        let mut reports = Reports::new(Span::from_millis(500), &best_effort());
        for _ in 0..10 {
            reports = reports.with(Bytes::new(84), &mode, &timing, &framing, &best_effort());
        }
        // 43 + 52 + 16 + 32 µs: 126 bytes are 3 symbols of 351 bits.
        assert_eq!(reports.airtime.as_micros(), 1_430);
        let round = Round::new(&[link(2, 1); 10]).unwrap();
        // 2.9 parts in a thousand, and κ of 36.0 ms.
        let share = reports.share(&round, &[24.0; 10]);
        let expected = (1.43e-3 + reports.destroyed * round.span(&[24.0; 10])) / 0.5;
        assert!((share - expected).abs() < 1e-12 && (share - 0.0110).abs() < 2e-4, "{share}");
        let rates = reports.rates(&round, &[24.0; 10]);
        assert!((rates[0] / round.rates(&[24.0; 10])[0] - (1.0 - share)).abs() < 1e-12);
    }
}
