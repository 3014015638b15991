//! How often a frame is lost to noise, given its signal-to-noise ratio: the NIST model.
//!
//! ```text
//! BER of the modulation   p  = 4/b · (1 − 1/√M) · Q(√(3·SNR/(M − 1)))       M = 2^b, b even
//!                         p  = Q(√(2·SNR))                                  BPSK
//! BER after the decoder   pd ≤ 1/(2k) · Σ c_d · D^d,  D = √(4p(1−p))        code of rate k/n
//! frame of L bits lost    1 − (1 − pd)^L
//! ```
//!
//! Pei and Henderson: Validation of OFDM error rate model in ns-3, Boeing Research & Technology,
//! 2010. The c_d are the information-weight spectra of the standard's code of constraint length 7
//! and of its puncturings: Haccoun and Bégin, High-rate punctured convolutional codes for Viterbi
//! and sequential decoding, IEEE Transactions on Communications, 1989.

use super::mode::{CodeRate, Mode, Modulation};

/// The spectrum of a code: its free distance, the step between distances, and the weights.
struct Spectrum {
    free_distance: i32,
    step: i32,
    weights: &'static [f64],
}

const fn spectrum(code: CodeRate) -> Spectrum {
    match code {
        // Only even distances occur.
        CodeRate::Half => Spectrum {
            free_distance: 10,
            step: 2,
            weights: &[36.0, 211.0, 1_404.0, 11_633.0, 77_433.0, 502_690.0],
        },
        CodeRate::TwoThirds => Spectrum {
            free_distance: 6,
            step: 1,
            weights: &[3.0, 70.0, 285.0, 1_276.0, 6_160.0, 27_128.0, 117_019.0, 498_860.0],
        },
        CodeRate::ThreeQuarters => Spectrum {
            free_distance: 5,
            step: 1,
            weights: &[42.0, 201.0, 1_492.0, 10_469.0, 62_935.0, 379_644.0, 2_253_373.0],
        },
        CodeRate::FiveSixths => Spectrum {
            free_distance: 4,
            step: 1,
            weights: &[92.0, 528.0, 8_694.0, 79_453.0, 792_114.0, 7_375_573.0],
        },
    }
}

/// The logarithm of the probability that one bit is received without error in `mode` at the
/// signal-to-noise ratio `snr` (linear): L bits are received with the probability exp(L · this).
///
/// The streams share the power evenly and do not interfere with each other.
pub fn log_success_per_bit(mode: &Mode, snr: f64) -> f64 {
    let raw = raw_bit_error_rate(mode.modulation, snr / f64::from(mode.streams));
    libm::log1p(-decoded_bit_error_rate(mode.code, raw))
}

fn raw_bit_error_rate(modulation: Modulation, snr: f64) -> f64 {
    // Q(x) = erfc(x/√2)/2.
    if modulation == Modulation::Bpsk {
        return 0.5 * libm::erfc(libm::sqrt(snr));
    }
    let bits = f64::from(modulation.bits());
    let points = libm::exp2(bits);
    let share = 4.0 / bits * (1.0 - 1.0 / libm::sqrt(points));
    share * 0.5 * libm::erfc(libm::sqrt(1.5 * snr / (points - 1.0)))
}

fn decoded_bit_error_rate(code: CodeRate, raw: f64) -> f64 {
    let Spectrum { free_distance, step, weights } = spectrum(code);
    let distance = libm::sqrt(4.0 * raw * (1.0 - raw));
    let ratio = libm::pow(distance, f64::from(step));
    let sum = weights.iter().rev().fold(0.0, |sum, weight| sum * ratio + weight);
    let bound = sum * libm::pow(distance, f64::from(free_distance));
    // The union bound exceeds 1 at low signal-to-noise ratios.
    (bound / (2.0 * f64::from(code.ratio().0))).min(0.5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::BitRate;
    use crate::wlan::mac::Standard;
    use alloc::vec;
    use alloc::vec::Vec;

    fn loss(mbit: u64, snr_db: f64, bytes: u64) -> f64 {
        let mode = Mode::legacy(Standard::A, BitRate::from_mbps(mbit)).unwrap();
        let per_bit = log_success_per_bit(&mode, libm::pow(10.0, snr_db / 10.0));
        -libm::expm1(per_bit * 8.0 * bytes as f64)
    }

    #[test]
    fn modulations_err_as_textbooks_say() {
        // BPSK at 9.6 dB and QPSK at 12.6 dB (the same energy per bit) err once in 10^5 bits.
        let close = |value: f64| (0.9e-5..1.1e-5).contains(&value);
        assert!(close(raw_bit_error_rate(Modulation::Bpsk, libm::pow(10.0, 0.959))));
        assert!(close(raw_bit_error_rate(Modulation::Qpsk, libm::pow(10.0, 1.26))));
    }

    /// Follows every path of the code's trellis that leaves the state 0 and comes back, from each
    /// phase of the puncturing: the data bits that are wrong on paths of each distance.
    fn enumerated(punctured: &[(bool, bool)], distances: usize) -> Vec<f64> {
        const GENERATORS: (u32, u32) = (0o133, 0o171);
        let parity =
            |register: u32, kept: bool| usize::from(kept) * (register.count_ones() as usize % 2);
        let mut wrong = vec![0.0; distances];
        for phase in 0..punctured.len() {
            // Paths and wrong bits by state and distance; the first leaves the state 0 at once.
            let mut paths = vec![[(0.0, 0.0); 64]; distances];
            for step in 0..100 {
                let kept = punctured[(phase + step) % punctured.len()];
                let mut next = vec![[(0.0, 0.0); 64]; distances];
                for (distance, state, bit) in
                    (0..distances * 128).map(|n| (n / 128, n / 2 % 64, n % 2))
                {
                    let (count, bits) = match (step, distance, state, bit) {
                        (0, 0, 0, 1) => (1.0, 0.0),
                        (0, ..) => continue,
                        _ => paths[distance][state],
                    };
                    let register = (bit << 6 | state) as u32;
                    let distance = distance
                        + parity(register & GENERATORS.0, kept.0)
                        + parity(register & GENERATORS.1, kept.1);
                    if count > 0.0 && distance < distances {
                        let to = &mut next[distance][(register >> 1) as usize];
                        *to = (to.0 + count, to.1 + bits + count * bit as f64);
                    }
                }
                for (distance, states) in next.iter_mut().enumerate() {
                    wrong[distance] += core::mem::take(&mut states[0]).1;
                }
                paths = next;
            }
        }
        wrong
    }

    #[test]
    fn spectra_follow_from_the_generators_and_the_puncturing() {
        let (both, first, second) = ((true, true), (true, false), (false, true));
        // Figures 17-9 and 19-11 of the standard.
        for (code, punctured) in [
            (CodeRate::Half, &[both] as &[_]),
            (CodeRate::TwoThirds, &[both, first]),
            (CodeRate::ThreeQuarters, &[both, first, second]),
            (CodeRate::FiveSixths, &[both, first, second, first, second]),
        ] {
            let Spectrum { free_distance, step, weights } = spectrum(code);
            let places = (free_distance as usize..).step_by(step as usize).zip(weights).take(3);
            let found = enumerated(punctured, free_distance as usize + 3 * step as usize);
            assert!(found[..free_distance as usize].iter().all(|weight| *weight == 0.0));
            for (distance, weight) in places {
                assert_eq!(found[distance], *weight, "{code:?} at {distance}");
            }
        }
    }

    #[test]
    fn each_rate_has_its_cliff() {
        // The ratio at which half of the 1000-byte frames are lost rises with the rate; 1.5 dB
        // above or below it, almost none or almost all are lost.
        let mut last = -10.0;
        for mbit in [6, 12, 24, 48, 54] {
            let cliff = (-20..400).map(|tenth| f64::from(tenth) / 10.0);
            let cliff = cliff.clone().find(|db| loss(mbit, *db, 1000) < 0.5).unwrap();
            assert!(cliff > last, "{mbit} Mbit/s: {cliff} dB");
            assert!(loss(mbit, cliff - 1.5, 1000) > 0.98 && loss(mbit, cliff + 1.5, 1000) < 0.02);
            last = cliff;
        }
    }

    #[test]
    fn silence_and_noise_are_the_ends() {
        assert_eq!(loss(54, f64::INFINITY, 1000), 0.0);
        assert!(loss(6, -20.0, 1000) > 0.999);
    }
}
