//! Algorithm 1 of the thesis as printed, without the extensions of [`super::Rtac`].
//!
//! ```text
//! with a sample:   R̂TT ← (1 − β)·R̂TT + β·sample,   RTTm ← min(RTTm, sample)
//! with a copy:     pkts ← pkts + copied
//!                  once each R̂TT:  ŵ ← α·ŵ + (1 − α)·pkts
//!                                  Q ← (R̂TT − RTTm)·ŵ/R̂TT
//!                                  rwnd ← √a · R̂TT/RTTm · 1/√(K·(Q + 1))
//!                                  pkts ← 0
//! ```
//!
//! Im, PhD thesis, Seoul National University, 2015, Algorithm 1; Δ is added to RTTm where it is
//! given (section 2.4.1). K is set by hand. Each connection keeps its own RTTm, nothing is tested,
//! there is no start-up phase, and the window shrinks and grows with each round trip.
//!
//! # Where the paper is silent
//!
//! - The window before the first round trip is the initial one of the host.
//! - The first sample is R̂TT, and the first round trip's packets are ŵ.
//! - With Δ, R̂TT may be below RTTm + Δ; Q is then 0, not negative.
//! - The window is at least one segment, as nothing would be sent with less (RFC 9293 section
//!   3.8.6.2.2), and at most the maximum that TCP can advertise.

use super::round::RoundMeter;
use super::rtac::{Flight, RtacParams};
use super::{Arrival, Limits, WindowLaw};
use crate::unit::{Bytes, Packets, Span, Time};

/// Algorithm 1 with a K set by hand.
#[derive(Debug, Clone)]
pub struct Algorithm1 {
    /// K, per packet.
    slope: f64,
    /// Δ.
    delta: Span,
    limits: Limits,
    round: RoundMeter,
    /// RTTm, without Δ.
    base: Option<Span>,
    /// The size of a packet.
    segment: Bytes,
    window: Bytes,
}

impl Algorithm1 {
    /// A law with the given K; of `params`, it uses α, β and Δ.
    pub(super) fn new(slope: f64, params: RtacParams, limits: Limits) -> Self {
        let RtacParams { delta, keep, gain, .. } = params;
        let delta = delta.fixed();
        let round = RoundMeter::new(keep, gain);
        let (base, segment, window) = (None, Bytes::new(1), limits.initial);
        Self { slope, delta, limits, round, base, segment, window }
    }
}

impl WindowLaw for Algorithm1 {
    fn name(&self) -> &'static str {
        "rtac-pure"
    }

    fn on_round_trip(&mut self, _now: Time, sample: Span) {
        self.round.smooth(sample);
        self.base = Some(self.base.map_or(sample, |base| base.min(sample)));
    }

    fn on_arrival(&mut self, _now: Time, arrival: Arrival) {
        self.segment = arrival.segment.max(Bytes::new(1));
    }

    fn on_read(&mut self, now: Time, bytes: Bytes) {
        let Some((rtt, bytes)) = self.round.on_bytes(now, bytes) else { return };
        let Some(base) = self.base else { return };
        let base = (base + self.delta).max(Span::from_nanos(1));
        let flight = Flight { rtt, base, bytes, segment: self.segment };
        let window = flight.printed_window(self.slope);
        self.window = self.limits.bound(window, Packets::new(1), self.segment);
    }

    fn window(&self) -> Bytes {
        self.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receiver::Delta;
    use crate::receiver::{Remote, Slope, slope};
    use alloc::boxed::Box;

    const LIMITS: Limits = Limits { initial: Bytes::new(65_536), most: Bytes::new(1 << 30) };
    const SEGMENT: Bytes = Bytes::new(1448);
    const BASE: Span = Span::from_millis(20);

    fn params() -> RtacParams {
        let slope = Slope::Fixed(slope(100.0, 1.38));
        RtacParams { slope, pure: true, ..RtacParams::default() }
    }

    fn pure() -> Algorithm1 {
        params().build_pure(LIMITS).unwrap()
    }

    /// A round trip of this length in which `packets` arrive and are read.
    fn round(law: &mut dyn WindowLaw, now: &mut Time, rtt: Span, packets: u64) {
        for _ in 0..packets {
            *now += rtt / packets;
            law.on_round_trip(*now, rtt);
            law.on_arrival(*now, Arrival { bytes: SEGMENT, segment: SEGMENT });
            law.on_read(*now, SEGMENT);
        }
    }

    #[test]
    fn each_round_trip_sets_the_window_of_the_equations() {
        let (mut law, mut now) = (pure(), Time::ZERO);
        round(&mut law, &mut now, BASE, 100);
        // Without a queue: rwnd = √(a/K).
        round(&mut law, &mut now, BASE, 100);
        let a_over_k = 0.38 * 1e6;
        let expected = f64::sqrt(a_over_k) * 1448.0;
        let window = law.window().get() as f64;
        assert!((window / expected - 1.0).abs() < 1e-5, "{window} for {expected}");
        for _ in 0..60 {
            round(&mut law, &mut now, Span::from_millis(30), 150);
        }
        // R̂TT = 1.5·RTTm and ŵ = 150 packets: Q = 50.
        let expected = 1.5 * f64::sqrt(a_over_k / 51.0) * 1448.0;
        let window = law.window().get() as f64;
        assert!((window / expected - 1.0).abs() < 0.01, "{window} for {expected}");
    }

    #[test]
    fn the_extensions_of_rtac_are_off() {
        // No floor of four segments: behind a long queue the window is smaller.
        let (mut law, mut now) = (pure(), Time::ZERO);
        law.slope = 1.0;
        round(&mut law, &mut now, BASE, 10);
        for _ in 0..10 {
            round(&mut law, &mut now, Span::from_millis(22), 11);
        }
        assert!(law.window() < SEGMENT * 2, "{}", law.window());

        // Neither the four times of start-up, nor the memory of a larger window.
        let params = RtacParams { slope: Slope::Fixed(0.01), ..params() };
        let mut laws: [Box<dyn WindowLaw>; 2] = [
            Box::new(params.build_pure(LIMITS).unwrap()),
            Box::new(params.build(LIMITS, Remote::default()).unwrap()),
        ];
        for law in &mut laws {
            let mut now = Time::ZERO;
            round(law.as_mut(), &mut now, BASE, 20);
            round(law.as_mut(), &mut now, BASE, 20);
        }
        let [pure_window, extended] = laws.map(|law| law.window());
        assert!(pure_window < SEGMENT * 13, "{pure_window}");
        assert!(extended > SEGMENT * 40, "{extended}");

        // A sample after a pause counts.
        let mut law = pure();
        law.on_round_trip(Time::ZERO, BASE);
        law.on_round_trip(Time::ZERO + Span::from_secs(5), BASE * 9);
        assert_eq!(law.round.rtt(), Some(BASE * 2));
    }

    #[test]
    fn a_round_trip_shorter_than_the_compensated_one_has_no_queue() {
        let delta = Span::from_millis(20);
        let mut law =
            RtacParams { delta: Delta::Fixed(delta), ..params() }.build_pure(LIMITS).unwrap();
        let mut now = Time::ZERO;
        for _ in 0..3 {
            round(&mut law, &mut now, BASE, 100);
        }
        let expected = 0.5 * f64::sqrt(0.38 * 1e6) * 1448.0;
        let window = law.window().get() as f64;
        assert!((window / expected - 1.0).abs() < 1e-5, "{window} for {expected}");
    }
}
