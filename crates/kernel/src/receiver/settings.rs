//! Which law, and its settings.

use freshline_core::receiver::{Limits, Remote, RtacParams};
use freshline_core::unit::{Bytes, Span};

use crate::KernelError;

/// What chooses windows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Law {
    /// RTAC.
    Rtac(Settings),
    /// DRWA with λ = 3, the baseline of the thesis; it starves beside connections without control.
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

    /// Its name, by that number; of another version's it may be unknown.
    pub(super) fn name(number: u64) -> &'static str {
        match number {
            0 => "rtac",
            1 => "drwa",
            _ => "unknown",
        }
    }

    /// θ in thousandths, and Δ in ns: RTAC's, and of no meaning to others.
    pub(super) fn constants(&self) -> (u64, u64) {
        match self {
            Self::Rtac(Settings { theta, delta }) => {
                ((theta * 1e3).round() as u64, delta.as_nanos())
            }
            Self::Drwa => (0, 0),
        }
    }

    pub(super) fn check(&self) -> Result<(), KernelError> {
        match self {
            Self::Rtac(settings) => settings.check(),
            Self::Drwa => Ok(()),
        }
    }
}

/// Settings of RTAC.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// θ: where the round trip settles, in multiples of the shortest one; from 1.01 to 10.
    /// 1.38, as in the thesis.
    pub theta: f64,
    /// Δ: added to the shortest round trip seen, where the path is now and then longer without
    /// any queue, as of LTE (18 ms in the thesis) and Wi-Fi (8 ms); at most 10 s. None unless said:
    /// on a wired path it would be a queue.
    pub delta: Span,
}

impl Default for Settings {
    fn default() -> Self {
        let RtacParams { theta, delta, .. } = RtacParams::default();
        Self { theta, delta }
    }
}

impl Settings {
    /// The longest Δ: longer than any path, and short enough for the program's products.
    const LONGEST_DELTA: Span = Span::from_secs(10);

    fn check(&self) -> Result<(), KernelError> {
        let Self { theta, delta } = *self;
        if delta > Self::LONGEST_DELTA {
            return Err(KernelError::LongDelta { delta, longest: Self::LONGEST_DELTA });
        }
        let limits = Limits { initial: Bytes::ZERO, most: Bytes::ZERO };
        RtacParams { theta, delta, ..RtacParams::default() }.build(limits, Remote::default())?;
        Ok(())
    }
}
