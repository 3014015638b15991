//! Algorithm 2 as printed: it finds the target level for a delay bound, and sets the rates by the
//! inverse of the model.
//!
//! ```text
//! once per slot, station 1 being the slowest:
//! inner   zᵢ ← zᵢ + K1·(Nᵢ* − μNᵢ)           in [1, N̄]                           (5.45)
//!         ĉ  ← (1 − β)·ĉ + β·(μN₁/x₁)·(1 − wᵀx)                                   (5.40)
//!         xᵢ ← zᵢ/(ĉ + wᵀz)                                                      (5.46)
//! outer   ν  ← max(ν + K2·(min(T̄·x₁, N̄) − ν), 1)                                 (5.43)
//!         Nᵢ* ← ν·w₁/wᵢ                       in [1, N̄]                           (5.44)
//! ```
//!
//! Hassani, MSc thesis: Achieving Low Delay & High Rate in 802.11ac Edge Networks, section 5.4. ĉ
//! is the overhead of a round, for all stations. This law is for comparison:
//! [`Nonlinear`](super::Nonlinear) has the same loops, settles sooner, and is robust against false
//! or stale reports of station 1.
//!
//! # Where the paper is silent
//!
//! - **The `for` over stations** covers only the lines with an index i. ĉ and ν have no index, and
//!   are updated once per slot: n updates would make their gains depend on n.
//! - **The start.** z and ν are 1, and ĉ is `overhead`. A station has the rate `start` until its
//!   first report, from which its w is known.
//! - **č needs x = F⁻¹(z).** A slot in which station 1 had the rate `start`, or with infeasible
//!   rates (wᵀx ≥ 1), gives no č.
//! - **A slot without a report**, or with less to send than allowed, leaves z as it is. After
//!   `max_missed_reports` slots without a report z halves with each; at z = 1 the station returns
//!   to the rate `start`.

use alloc::vec::Vec;

use super::Belief;
use super::link::airtime;
use super::params::{DownlinkParams, LoopSettings, ParamsError, check};
use super::slot::{SlotLaw, Slotted, Station};
use crate::unit::{BitRate, Span};

/// Settings of [`Algorithm2`]; the thesis's values are the defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Algorithm2Params {
    /// Packets, slots and stations.
    pub downlink: DownlinkParams,
    /// K1, above 0 and below 2: the inner gain. 0.5 (5.4.1.4).
    pub inner_gain: f64,
    /// K2, above 0 and below 1: the outer gain. 0.2 (5.4.2.2).
    pub outer_gain: f64,
    /// β, 0 to 1: the weight of a slot in ĉ; 0 holds ĉ. 0.05 (5.4.1.5).
    pub overhead_gain: f64,
    /// T̄, above zero: the bound of a round. 5 ms (Figure 5.11).
    pub delay: Span,
    /// N̄, at least 1 and at most Nmax: the highest level. 32 (Figure 5.11).
    pub level: f64,
    /// ĉ of a round at the start, above zero. 200 µs (Figure 5.11).
    pub overhead: Span,
}

impl Default for Algorithm2Params {
    fn default() -> Self {
        Self {
            downlink: DownlinkParams::default(),
            inner_gain: 0.5,
            outer_gain: 0.2,
            overhead_gain: 0.05,
            delay: Span::from_millis(5),
            level: 32.0,
            overhead: Span::from_micros(200),
        }
    }
}

impl Algorithm2Params {
    /// The law, without stations.
    ///
    /// # Errors
    /// [`ParamsError`] names the setting that is out of its range.
    pub fn build(self) -> Result<Algorithm2, ParamsError> {
        let Self { downlink, inner_gain, outer_gain, overhead_gain, delay, overhead, .. } = self;
        downlink.check()?;
        LoopSettings { inner_gain, outer_gain, overhead_gain, delay, overhead }.check()?;
        let holds = self.level >= 1.0 && self.level <= downlink.max_level();
        let range = ["from 1 to `max_packets`", "frames have no more packets", "32"];
        check("level", self.level, holds, range)?;
        Ok(Slotted::new(downlink, Algorithm2Law::new(self)))
    }
}

/// The law with its stations.
pub type Algorithm2 = Slotted<Algorithm2Law>;

/// The decision of [`Algorithm2`], once per slot.
#[derive(Debug, Clone)]
pub struct Algorithm2Law {
    params: Algorithm2Params,
    /// ĉ, in seconds.
    overhead: f64,
    /// ν.
    target: f64,
}

/// The law's state for one station.
#[derive(Debug, Clone, Copy)]
pub struct Algorithm2State {
    /// wᵢ, in seconds; zero before the first report.
    airtime: f64,
    /// zᵢ.
    control_level: f64,
    /// Nᵢ*.
    target: f64,
    /// Whether the rate in force is F⁻¹(z).
    is_modelled: bool,
}

impl Algorithm2Law {
    fn new(params: Algorithm2Params) -> Self {
        Self { params, overhead: params.overhead.as_secs_f64(), target: 1.0 }
    }

    fn packet_bits(&self) -> f64 {
        8.0 * self.params.downlink.packet.get() as f64
    }

    /// (5.45).
    fn hold_level(&self, station: &mut Station<Algorithm2State>) {
        let target = station.reachable(station.state.target);
        let error = station.level().map_or(0.0, |level| target - level);
        let mut control_level = station.state.control_level + self.params.inner_gain * error;
        if station.silence > self.params.downlink.max_missed_reports {
            control_level /= 2.0;
        }
        station.state.control_level =
            control_level.clamp(1.0, station.reachable(self.params.level));
    }

    /// (5.40), from the rates in force; `slowest` is station 1.
    fn learn_overhead(&mut self, known: &[&mut Station<Algorithm2State>], slowest: usize) {
        let packets = |rate: BitRate| rate.as_bps() as f64 / self.packet_bits();
        let used = |station: &&mut Station<Algorithm2State>| {
            station.state.airtime * packets(station.sent())
        };
        let idle = 1.0 - known.iter().map(used).sum::<f64>();
        let first = known.get(slowest).filter(|station| station.state.is_modelled);
        let Some((first, level)) = first.and_then(|first| Some((first, first.level()?))) else {
            return;
        };
        let sample = level / packets(first.sent()) * idle;
        if sample > 0.0 && sample.is_finite() {
            let weight = self.params.overhead_gain;
            self.overhead = (1.0 - weight) * self.overhead + weight * sample;
        }
    }
}

impl SlotLaw for Algorithm2Law {
    type State = Algorithm2State;

    fn name(&self) -> &'static str {
        "algorithm2"
    }

    fn join(&self) -> Algorithm2State {
        Algorithm2State { airtime: 0.0, control_level: 1.0, target: 1.0, is_modelled: false }
    }

    fn step(&mut self, stations: &mut [Station<Algorithm2State>]) {
        let DownlinkParams { packet, start, max_missed_reports, .. } = self.params.downlink;
        for station in &mut *stations {
            if let Some(report) = station.report {
                station.state.airtime = airtime(packet, report.rate);
            } else if station.silence > max_missed_reports && station.state.control_level <= 1.0 {
                (station.state, station.rate) = (self.join(), start);
            }
        }
        let is_known = |station: &&mut Station<Algorithm2State>| station.state.airtime > 0.0;
        let mut known: Vec<_> = stations.iter_mut().filter(is_known).collect();
        let airtimes = known.iter().map(|station| station.state.airtime).enumerate();
        let Some((slowest, longest)) = airtimes.max_by(|(_, a), (_, b)| a.total_cmp(b)) else {
            return;
        };
        known.iter_mut().for_each(|station| self.hold_level(station));
        self.learn_overhead(&known, slowest);
        let packets =
            known.iter().map(|station| station.state.airtime * station.state.control_level);
        let round = self.overhead + packets.sum::<f64>();
        let bits = self.packet_bits();
        for station in &mut known {
            station.rate = BitRate::from_bps((station.state.control_level / round * bits) as u64);
            station.state.is_modelled = true;
        }
        let Self { params, target, .. } = self;
        if let Some(first) = known.get(slowest) {
            let delay = params.delay.as_secs_f64() * first.state.control_level / round;
            let wanted = delay.min(params.level);
            *target = f64::max(*target + params.outer_gain * (wanted - *target), 1.0);
        }
        for station in &mut known {
            let share = *target * longest / station.state.airtime;
            station.state.target = share.clamp(1.0, params.level);
        }
    }

    fn target(&self, state: &Algorithm2State) -> Option<f64> {
        (state.airtime > 0.0).then_some(state.target)
    }

    fn belief(&self, state: &Algorithm2State) -> Belief {
        let is_known = state.airtime > 0.0;
        Belief {
            overhead: Some(Span::from_secs_f64(self.overhead)),
            slowest_target: is_known.then_some(self.target),
            control_level: is_known.then_some(state.control_level),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::Time;
    use crate::wlan::{DownlinkLaw, Report, StationId};
    use alloc::string::ToString;

    const FAST: StationId = StationId(0);
    const SLOW: StationId = StationId(1);

    fn report(level: f64, mbps: u64) -> Report {
        let rate = BitRate::from_mbps(mbps);
        Report { level, deviation: 1.0, frames: 100, rate, loss: 0.0 }
    }

    fn slot(law: &mut Algorithm2, number: u64, reports: &[(StationId, Report)]) {
        let now = Time::ZERO + Span::from_millis(750) * number;
        for (station, report) in reports {
            law.on_report(now, *station, *report);
        }
        law.handle_timeout(now);
    }

    /// Whether it is `expected` to the last digit given.
    fn is_about(value: f64, expected: f64) -> bool {
        libm::fabs(value - expected) < 5e-4 * expected
    }

    #[test]
    fn slots_are_those_that_the_listing_gives_by_hand() {
        let mut law = Algorithm2Params::default().build().unwrap();
        law.on_join(Time::ZERO, FAST).unwrap();
        law.on_join(Time::ZERO, SLOW).unwrap();
        // w is 8 · 1544 bits at 386 and 193 Mbit/s: 32 and 64 µs.
        slot(&mut law, 1, &[(FAST, report(1.0, 386)), (SLOW, report(1.0, 193))]);
        // z = 1, 1; the round 200 + 32 + 64 µs; x = 3378.4/s; T̄·x = 16.892; ν = 1 + 0.2·15.892.
        let mbps = |law: &Algorithm2, station| law.rate(station).as_bps() as f64 / 1e6;
        assert!(is_about(mbps(&law, FAST), 40.5405) && is_about(mbps(&law, SLOW), 40.5405));
        assert!(is_about(law.target(SLOW).unwrap(), 4.17838));
        assert!(is_about(law.target(FAST).unwrap(), 8.35676));
        assert_eq!(law.belief(SLOW).overhead, Some(Span::from_micros(200)), "no č of `start`");

        slot(&mut law, 2, &[(FAST, report(2.0, 386)), (SLOW, report(1.5, 193))]);
        // z = 1 + 0.5·(8.35676 − 2), 1 + 0.5·(4.17838 − 1.5).
        assert!(is_about(law.belief(FAST).control_level.unwrap(), 4.17838));
        assert!(is_about(law.belief(SLOW).control_level.unwrap(), 2.33919));
        // č = 1.5/3378.4 · (1 − 96e-6·3378.4) = 300 µs; ĉ = 0.95·200 + 0.05·300.
        let overhead = law.belief(SLOW).overhead.unwrap().as_secs_f64();
        assert!(is_about(overhead, 205e-6), "{overhead}");
        // The round 205 + 32·4.17838 + 64·2.33919 = 488.416 µs.
        assert!(is_about(mbps(&law, FAST), 102.6598) && is_about(mbps(&law, SLOW), 57.4721));
        // T̄·x₁ = 23.9467; ν = 4.17838 + 0.2·19.7683.
        assert!(is_about(law.belief(SLOW).slowest_target.unwrap(), 8.13205));
        assert!(is_about(law.target(FAST).unwrap(), 16.2641));
    }

    #[test]
    fn without_reports_a_rate_holds_and_then_the_station_begins_again() {
        let mut law = Algorithm2Params::default().build().unwrap();
        law.on_join(Time::ZERO, FAST).unwrap();
        for number in 1..20 {
            slot(&mut law, number, &[(FAST, report(10.0, 386))]);
        }
        let held = law.rate(FAST);
        for number in 20..23 {
            slot(&mut law, number, &[]);
        }
        assert_eq!(law.rate(FAST), held);
        for number in 23..40 {
            slot(&mut law, number, &[]);
        }
        assert_eq!((law.rate(FAST), law.target(FAST)), (BitRate::from_mbps(1), None));
    }

    #[test]
    fn settings_out_of_range_are_refused_with_the_reason() {
        let params = Algorithm2Params::default;
        for (wrong, expected) in [
            (Algorithm2Params { inner_gain: 2.0, ..params() }, "ever wider (5.4.1.3)"),
            (Algorithm2Params { outer_gain: 0.0, ..params() }, "(Lemma 2)"),
            (Algorithm2Params { overhead_gain: 1.5, ..params() }, "part of a mean"),
            (Algorithm2Params { delay: Span::ZERO, ..params() }, "`delay` is 0"),
            (Algorithm2Params { overhead: Span::ZERO, ..params() }, "`overhead` is 0"),
            (Algorithm2Params { level: 65.0, ..params() }, "no more packets"),
        ] {
            let message = wrong.build().unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
