//! DTPA paces a stream of a mesh: Reno's window is spread over a transmission period and a round
//! trip, so that nodes get equal shares (Im, TCP Performance Enhancement in Wireless Networks;
//! `freshline_core::mesh`).
//!
//! ```text
//! spacing = (TXP + RTT) / cwnd      the node's own segments; forwarded ones are not spaced
//! ```
//!
//! Each segment sent counts, and each timeout or fast recovery counts as a loss. A retransmission
//! is one of the node's own segments, and is spaced as well.

use freshline_core::mesh::{self, Census, CensusParams, DtpaParams, DtpaParamsError, Heard, Share};
use freshline_core::unit::{Packets, Span, Time};

use super::{Ack, CongestionControl, Idle, Reno, Signal};

/// Settings of [`Dtpa`], as scenario files have them.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DtpaSettings {
    /// c in segments per second. By default the node measures it by listening.
    pub share: Option<f64>,
    /// Settings of the law.
    pub law: DtpaParams,
    /// Settings of the census that measures the share.
    pub census: CensusParams,
}

/// Settings with which DTPA cannot be built.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum DtpaSettingsError {
    /// The share is out of its range.
    #[error("`share` is {0}; give segments a second, from 0.001 to 4 million")]
    Share(f64),
    /// A setting of the law.
    #[error("`law`: {0}")]
    Law(#[from] DtpaParamsError),
    /// Settings of the census.
    #[error(
        "`census`: `window` must be above 0, `gain` and `max_effort` from 1 to below 100, `weight` above 0 and up to 1"
    )]
    Census,
}

/// DTPA.
#[derive(Debug, Clone)]
pub struct Dtpa {
    reno: Reno,
    law: mesh::Dtpa,
    /// The census, unless the share is fixed.
    listening: Option<(CensusParams, Census)>,
    /// A loss was answered, and has not turned out to be a timeout.
    lost: bool,
}

impl Dtpa {
    /// Measures the share by listening, with the law's defaults.
    pub fn by_listening(initial: Packets) -> Self {
        let census = CensusParams::default();
        let settings = DtpaSettings { census, ..DtpaSettings::default() };
        Self::new(settings, initial).expect("defaults are in range")
    }

    /// # Errors
    /// The error names the setting that is out of its range.
    pub fn new(settings: DtpaSettings, initial: Packets) -> Result<Self, DtpaSettingsError> {
        let DtpaSettings { share, law: params, census } = settings;
        let read = |share| Share::per_second(share).ok_or(DtpaSettingsError::Share(share));
        let fixed = share.map(read).transpose()?;
        let CensusParams { window, gain, max_effort, weight } = census;
        let are_gains = [gain, max_effort].iter().all(|gain| (1.0..100.0).contains(gain));
        if window.is_zero() || !are_gains || !(weight > 0.0 && weight <= 1.0) {
            return Err(DtpaSettingsError::Census);
        }
        Ok(Self {
            reno: Reno::new(initial),
            law: mesh::Dtpa::new(params, fixed)?,
            listening: fixed.is_none().then(|| (census, Census::new())),
            lost: false,
        })
    }
}

impl CongestionControl for Dtpa {
    fn name(&self) -> &'static str {
        "dtpa"
    }

    fn window(&self) -> Packets {
        self.reno.window()
    }

    fn spacing(&self) -> Option<Span> {
        self.law.spacing(self.window().get().min(u32::MAX.into()) as u32)
    }

    fn period(&self) -> Option<Span> {
        Some(self.law.period())
    }

    fn listens(&self) -> bool {
        self.listening.is_some()
    }

    fn target(&self) -> Option<Share> {
        self.listening.as_ref().and_then(|(_, census)| census.target())
    }

    fn on_heard(&mut self, now: Time, heard: Heard) {
        if let Some((params, census)) = &mut self.listening
            && let Some(share) = census.on_heard(params, now, heard)
        {
            self.law.set_share(Some(share));
        }
    }

    fn on_sent(&mut self, now: Time) {
        self.law.on_sent(now);
        if std::mem::take(&mut self.lost) {
            self.law.on_fast_retransmit(now);
        }
    }

    fn ssthresh(&self) -> Option<f64> {
        self.reno.ssthresh()
    }

    fn on_penalty(&mut self) {
        self.reno.on_penalty();
    }

    fn on_ack(&mut self, now: Time, ack: &Ack) {
        // While it is paced, less than the window is in flight, and yet the window is in use: with
        // (4.2) it grows with every ack.
        let is_paced = !self.law.period().is_zero();
        self.reno.on_ack(now, &Ack { window_limited: ack.window_limited || is_paced, ..*ack });
        if let Some(round_trip) = ack.rtt {
            self.law.on_round_trip(now, round_trip);
        }
        self.reno.hold_to(Packets::new(self.law.max_window().into()));
    }

    fn on_congestion(&mut self, now: Time, signal: Signal) {
        self.reno.on_congestion(now, signal);
        // Neither a mark (ECN) nor a probe's repair is a fast retransmit or a timeout (Algorithm 2),
        // and the kernel's program counts neither.
        self.lost |= signal == Signal::Loss;
    }

    fn on_rto(&mut self, now: Time) {
        self.reno.on_rto(now);
        self.lost = false;
        self.law.on_rto(now);
    }

    fn on_needless(&mut self, now: Time) {
        self.reno.on_needless(now);
    }

    fn on_idle(&mut self, now: Time, idle: Idle) {
        self.reno.on_idle(now, idle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(share: Option<f64>) -> DtpaSettings {
        DtpaSettings { share, ..DtpaSettings::default() }
    }

    #[test]
    fn a_timeout_is_one_loss_and_a_fast_recovery_another() {
        let mut law = Dtpa::new(settings(Some(1.0)), Packets::new(4)).unwrap();
        let now = Time::ZERO;
        (0..10).for_each(|_| law.on_sent(now));
        law.on_congestion(now, Signal::Loss);
        law.on_rto(now);
        law.on_sent(now);
        assert_eq!(law.law.loss(), 1.0 / 11.0);
        law.on_congestion(now, Signal::Loss);
        law.on_sent(now);
        assert_eq!(law.law.loss(), 2.0 / 12.0);
        law.on_congestion(now, Signal::Mark);
        law.on_sent(now);
        law.on_congestion(now, Signal::Probed);
        law.on_sent(now);
        assert_eq!(law.law.loss(), 2.0 / 14.0);
    }

    #[test]
    fn settings_that_cannot_be_are_named() {
        let refused = |settings| Dtpa::new(settings, Packets::new(4)).unwrap_err().to_string();
        assert!(refused(settings(Some(0.0))).contains("`share` is 0"));
        let census = CensusParams { gain: 0.5, ..CensusParams::default() };
        assert!(
            refused(DtpaSettings { census, ..settings(None) })
                .contains("`gain` and `max_effort` from 1")
        );
        let law = DtpaParams { memory: Some(1), ..DtpaParams::default() };
        assert!(refused(DtpaSettings { law, ..settings(None) }).contains("memory"));
    }
}
