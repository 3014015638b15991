//! The law and its settings.

use freshline_core::receiver::{A, Delta, Limits, Remote, RtacParams, Slope};
use freshline_core::unit::{Bytes, Span};

use crate::KernelError;

/// The law that chooses windows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Law {
    /// RTAC.
    Rtac(Settings),
    /// DRWA with λ = 3, the baseline of the thesis; it starves alongside connections without
    /// control.
    Drwa,
}

impl Law {
    /// Its number in the programs, an `enum window_law` of `intf.h`.
    pub(super) fn number(&self) -> u64 {
        match self {
            Self::Rtac(_) => 0,
            Self::Drwa => 1,
        }
    }

    /// Its name by that number; the number of another version may be unknown.
    pub(super) fn name(number: u64) -> &'static str {
        match number {
            0 => "rtac",
            1 => "drwa",
            _ => "unknown",
        }
    }

    /// The numbers of `struct rtac_settings` in `state.h` and the next one in `intf.h`; only RTAC
    /// uses them.
    pub(super) fn constants(&self) -> [u64; 6] {
        let Self::Rtac(Settings { theta, delta, slope, pure }) = *self else { return [0; 6] };
        let theta_milli = (theta * 1e3).round() as u64;
        let (slope, shift, bits) = match slope {
            Slope::Auto => (0, 0, 0),
            Slope::Fixed(slope) => {
                let (inverse, shift) = inverse_of(slope);
                (inverse, shift, slope.to_bits())
            }
        };
        let delta_ns = match delta {
            Delta::Fixed(delta) => delta.as_nanos(),
            Delta::Learn => DELTA_LEARNT,
        };
        [theta_milli, delta_ns, slope, shift, pure.into(), bits]
    }

    /// The inverse of [`Law::constants`]; `None` for another law, or constants of another version.
    pub(super) fn settings(number: u64, constants: &[u64]) -> Option<Settings> {
        let [theta_milli, delta_ns, slope, _, is_pure, bits] = *constants else { return None };
        (number == 0).then(|| Settings {
            theta: theta_milli as f64 / 1e3,
            delta: match delta_ns {
                DELTA_LEARNT => Delta::Learn,
                delta_ns => Delta::Fixed(Span::from_nanos(delta_ns)),
            },
            slope: if slope == 0 { Slope::Auto } else { Slope::Fixed(f64::from_bits(bits)) },
            pure: is_pure != 0,
        })
    }

    pub(super) fn check(&self) -> Result<(), KernelError> {
        match self {
            Self::Rtac(settings) => settings.check(),
            Self::Drwa => Ok(()),
        }
    }
}

/// `DELTA_LEARNT` of `state.h`.
const DELTA_LEARNT: u64 = u64::MAX;

/// a/K times 4 to the power of the second number, as large as possible below 2⁴⁷: half of its bits
/// are left after the square root.
fn inverse_of(slope: f64) -> (u64, u64) {
    let mut inverse = A / slope;
    let mut shift = 0;
    while inverse < (1_u64 << 45) as f64 {
        inverse *= 4.0;
        shift += 1;
    }
    (inverse as u64, shift)
}

/// Settings of RTAC.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// θ: the round trip settles at this multiple of the minimum RTT; from 1.01 to 10. Default:
    /// 1.38, as in the thesis.
    pub theta: f64,
    /// Δ: added to the minimum RTT, for paths whose delay varies without any queue, such as LTE (18
    /// ms in the thesis) and Wi-Fi (8 ms); at most 10 s. Default: zero, because on a wired path it
    /// would be a queue.
    pub delta: Delta,
    /// K: from the path, or set manually; per packet, from 10⁻¹³ to 1.
    pub slope: Slope,
    /// Whether the law is Algorithm 1 of the thesis exactly as printed, without any extension;
    /// needs a K set manually. On a device, data counts as copied when it arrives.
    pub pure: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let RtacParams { theta, delta, slope, pure, .. } = RtacParams::default();
        Self { theta, delta, slope, pure }
    }
}

impl Settings {
    /// The maximum Δ: longer than any path, and short enough that the program's products do not
    /// overflow.
    const MAX_DELTA: Span = Span::from_secs(10);

    fn check(&self) -> Result<(), KernelError> {
        let Self { theta, delta, slope, pure } = *self;
        if delta.fixed() > Self::MAX_DELTA {
            let delta = delta.fixed();
            return Err(KernelError::LongDelta { delta, longest: Self::MAX_DELTA });
        }
        let limits = Limits { initial: Bytes::ZERO, most: Bytes::ZERO };
        let params = RtacParams { theta, delta, slope, pure, ..RtacParams::default() };
        if pure {
            params.build_pure(limits)?;
        } else {
            params.build(limits, Remote::default())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_k_set_by_hand_fits_and_is_told_again() {
        for slope in [1e-13, 3e-7, 15e-5, 1.0] {
            let law = Law::Rtac(Settings { slope: Slope::Fixed(slope), ..Settings::default() });
            law.check().unwrap();
            let constants = law.constants();
            let [_, _, inverse, shift, ..] = constants;
            assert!((1 << 45..1 << 47).contains(&inverse), "{inverse}");
            let told = inverse as f64 / 4_f64.powi(shift as i32) * slope / A;
            assert!((told - 1.0).abs() < 1e-9, "{told}");
            let Law::Rtac(settings) = law else { panic!("{law:?}") };
            assert_eq!(Law::settings(0, &constants), Some(settings));
            assert_eq!(Law::settings(1, &constants), None);
        }
        let learnt = Settings { delta: Delta::Learn, ..Settings::default() };
        assert_eq!(Law::settings(0, &Law::Rtac(learnt).constants()), Some(learnt));
        let pure = Settings { pure: true, ..Settings::default() };
        assert!(Law::Rtac(pure).check().is_err(), "no K");
    }
}
