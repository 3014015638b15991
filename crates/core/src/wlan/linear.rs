//! Algorithm 1: an integral controller of the aggregation level. It sets the rate of each station
//! so that the mean level μN (packets per frame) reaches the target Nε.
//!
//! ```text
//! [`Sharing::Airtime`], the default: equal airtime (4.3.2)
//! x* ← x* − K·(μN − Nε),   K = K0/n          the fastest station's rate           (4.1)
//! xᵢ ← x*·μRᵢ/μR*                            all others, in proportion to MCS     (4.2)
//!
//! [`Sharing::Level`]: Algorithm 1 per station, by its own level (4.3.1)
//! xᵢ ← xᵢ − K·(μNᵢ − Nε),  K = K0/n
//! ```
//!
//! Hassani, MSc thesis: Achieving Low Delay & High Rate in 802.11ac Edge Networks, section 4.3.
//!
//! # The gain and its unit
//!
//! The thesis gives K0 = 1 without a unit. In Figure 4.7 full frames, an error of 64 − 32, lower
//! the rate by about 200 Mbit/s in seven slots: so K0 is in Mbit/s per packet. Around Nε the level
//! rises by dN/dx = (c + w·Nε)²/c, and the loop is stable for K0·dN/dx < 2, which depends on the
//! path: at 390 Mbit/s, 1500 B and c = 200 µs the product is 0.61 for K0 = 1, and 6.1 for K0 = 10,
//! which oscillates in the thesis ([`gain_limit`] computes the limit of a path). K0/n keeps the
//! loop gain the same for n stations.
//!
//! # Where the paper is silent
//!
//! - **The station of the level.** With equal airtime, (4.1) uses the level of the fastest station.
//!   If (4.2) holds, all Nᵢ·μR*/μRᵢ equal it: here it is their median, which is less noisy and
//!   robust against one station with false reports.
//! - **Full frames** give only a lower bound of the level: the true error is then at least Nmax −
//!   Nε. The rate falls by the measured error only, as in the thesis.
//! - **A slot without any level** (no report, or less to send than allowed) changes nothing. A
//!   station without a report for more than `max_missed_reports` slots no longer counts as the
//!   fastest, and its rate halves with each slot.
//! - **The start.** A station has the rate `start` until its first report; then it gets its share.
//! - **Bounds.** No rate is below `start`, or above `max_mcs_rate`.
//! - **Loss** has no effect: drops at the access point show as full frames, and drops on another
//!   link do not concern the level ([`Locator`](super::Locator)).

use alloc::vec::Vec;

use super::link::Link;
use super::params::{DownlinkParams, ParamsError, check};
use super::slot::{SlotLaw, Slotted, Station, median};
use crate::unit::{BitRate, Bytes};

/// Settings of [`Linear`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct LinearParams {
    /// Packets, slots and stations.
    pub downlink: DownlinkParams,
    /// K0, above zero: the change of the sum of all rates per packet of error and slot. 1 Mbit/s;
    /// [`gain_limit`] is 3.3 Mbit/s in 802.11ac at 390 Mbit/s.
    pub gain: BitRate,
    /// Nε, at least 1 and below Nmax − 1: the target. 32 packets: half-full frames give 80 % of the
    /// rate, and leave room for fluctuations.
    pub target: f64,
    /// The resource of which stations get equal shares: airtime by default.
    pub sharing: Sharing,
}

/// The resource of which the stations of [`Linear`] get equal shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Sharing {
    /// Airtime: the fastest station's rate is controlled, the others follow from their MCS (4.1,
    /// 4.2).
    #[default]
    Airtime,
    /// Levels, that is packets per round: each station's rate is controlled by its own level, as
    /// Algorithm 1 is printed. Slow stations take more airtime than fast ones.
    Level,
}

impl Default for LinearParams {
    fn default() -> Self {
        Self {
            downlink: DownlinkParams::default(),
            gain: BitRate::from_mbps(1),
            target: 32.0,
            sharing: Sharing::Airtime,
        }
    }
}

impl LinearParams {
    /// The law, without stations.
    pub fn build(self) -> Result<Linear, ParamsError> {
        self.downlink.check()?;
        let gain = self.gain.as_bps();
        check("gain", gain as f64, gain > 0, ["above 0", "rates would never change", "1mbit"])?;
        let most = self.downlink.max_level() - 1.0;
        let is_target = self.target >= 1.0 && self.target < most;
        let why = "frames that are full or have one packet say no more of the rate";
        check(
            "target",
            self.target,
            is_target,
            ["from 1 to below `max_packets` less 1", why, "32"],
        )?;
        Ok(Slotted::new(self.downlink, LinearLaw { params: self }))
    }
}

/// The largest K0 at which the loop is stable for frames on this `link`, with packets of this size
/// and the level `target`: 2·c/(c + w·Nε)², in bits per second and packet.
pub fn gain_limit(link: Link, packet: Bytes, target: f64) -> BitRate {
    let overhead = link.overhead.as_secs_f64();
    let frame = overhead + link.airtime * target;
    // `as` saturates, and turns NaN into zero.
    BitRate::from_bps((2.0 * overhead / (frame * frame) * 8.0 * packet.get() as f64) as u64)
}

/// The law with its stations.
pub type Linear = Slotted<LinearLaw>;

/// The decision of [`Linear`], once per slot.
#[derive(Debug, Clone)]
pub struct LinearLaw {
    params: LinearParams,
}

/// The law's state for one station.
#[derive(Debug, Clone, Copy, Default)]
pub struct LinearState {
    /// The newest μR, in bits per second.
    mcs_rate: Option<f64>,
    /// Its target level with equal airtime: Nε·μRᵢ/μR*.
    target: Option<f64>,
    /// Whether it missed more reports than allowed.
    is_gone: bool,
}

impl SlotLaw for LinearLaw {
    type State = LinearState;

    fn name(&self) -> &'static str {
        "linear"
    }

    fn join(&self) -> LinearState {
        LinearState::default()
    }

    fn step(&mut self, stations: &mut [Station<LinearState>]) {
        let DownlinkParams { start, max_missed_reports, .. } = self.params.downlink;
        for station in &mut *stations {
            if let Some(report) = station.report {
                station.state.mcs_rate = Some(report.rate.as_bps() as f64);
            }
            station.state.is_gone = station.silence > max_missed_reports;
            if station.state.is_gone {
                let half = BitRate::from_bps(station.rate.as_bps() / 2);
                station.rate = half.max(start);
            }
        }
        match self.params.sharing {
            Sharing::Airtime => self.share_airtime(stations),
            Sharing::Level => self.hold_each(stations),
        }
    }

    fn target(&self, state: &LinearState) -> Option<f64> {
        state.target
    }
}

impl LinearLaw {
    /// (4.1) and (4.2).
    fn share_airtime(&self, stations: &mut [Station<LinearState>]) {
        let DownlinkParams { start, max_mcs_rate: most, .. } = self.params.downlink;
        let here = stations.iter().filter(|station| !station.state.is_gone);
        let fastest = here
            .filter_map(|station| Some((station.state.mcs_rate?, station.rate)))
            .max_by(|(left, _), (right, _)| left.total_cmp(right));
        let Some((fastest, rate)) = fastest else { return };
        let mut levels: Vec<f64> = stations
            .iter()
            .filter_map(|station| Some(station.level()? * fastest / station.state.mcs_rate?))
            .collect();
        let Some(level) = median(&mut levels) else { return };
        let gain = self.gain(stations.len());
        let mut targets: Vec<f64> =
            stations.iter().map(|station| station.reachable(self.params.target)).collect();
        let target = median(&mut targets).unwrap_or(self.params.target);
        let leading = rate.as_bps() as f64 - gain * (level - target);
        for station in stations.iter_mut().filter(|station| !station.state.is_gone) {
            let Some(mcs_rate) = station.state.mcs_rate else { continue };
            station.state.target = Some(target * mcs_rate / fastest);
            let wanted = BitRate::from_bps((leading * mcs_rate / fastest) as u64);
            station.rate = wanted.min(most).max(start);
        }
    }

    /// Algorithm 1, for each station that reported a level.
    fn hold_each(&self, stations: &mut [Station<LinearState>]) {
        let DownlinkParams { start, max_mcs_rate: most, .. } = self.params.downlink;
        let gain = self.gain(stations.len());
        for station in stations {
            let Some(level) = station.level() else { continue };
            let target = station.reachable(self.params.target);
            station.state.target = Some(target);
            let wanted = station.rate.as_bps() as f64 - gain * (level - target);
            station.rate = BitRate::from_bps(wanted as u64).min(most).max(start);
        }
    }

    /// K = K0/n, in bits per second and packet.
    fn gain(&self, stations: usize) -> f64 {
        self.params.gain.as_bps() as f64 / stations.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::{Span, Time};
    use crate::wlan::{DownlinkLaw, Report, StationId};

    const STATIONS: [StationId; 3] = [StationId(0), StationId(1), StationId(2)];

    fn report(level: f64, mbps: u64) -> Report {
        Report { level, deviation: 1.0, frames: 100, rate: BitRate::from_mbps(mbps), loss: 0.0 }
    }

    fn slot(law: &mut Linear, k: u64, reports: &[(StationId, Report)]) -> [u64; 3] {
        let now = Time::ZERO + Span::from_millis(750) * k;
        for (station, report) in reports {
            law.on_report(now, *station, *report);
        }
        law.handle_timeout(now);
        STATIONS.map(|station| law.rate(station).as_bps())
    }

    fn law(stations: usize) -> Linear {
        let mut law = LinearParams::default().build().unwrap();
        for station in &STATIONS[..stations] {
            law.on_join(Time::ZERO, *station).unwrap();
        }
        law
    }

    #[test]
    fn one_packet_of_error_is_one_megabit_in_a_slot() {
        let mut law = law(1);
        assert_eq!(slot(&mut law, 1, &[(STATIONS[0], report(1.0, 390))])[0], 32_000_000);
        assert_eq!(slot(&mut law, 2, &[(STATIONS[0], report(30.0, 390))])[0], 34_000_000);
        assert_eq!(slot(&mut law, 3, &[])[0], 34_000_000, "without a level nothing changes");
    }

    #[test]
    fn rates_are_in_proportion_to_mcs_and_one_liar_does_not_set_them() {
        let mut law = law(3);
        let [a, b, c] = STATIONS;
        let reports = [(a, report(16.0, 200)), (b, report(30.0, 400)), (c, report(8.0, 100))];
        // N·R*/R is 32, 30 and 32: nothing changes but the shares.
        assert_eq!(slot(&mut law, 1, &reports), [1_000_000; 3]);
        let reports = [(a, report(1.0, 200)), (b, report(1.0, 400)), (c, report(63.0, 100))];
        // 2, 1 and 252: K0/3 · 30.
        assert_eq!(slot(&mut law, 2, &reports), [5_500_000, 11_000_000, 2_750_000]);
    }

    #[test]
    fn by_levels_each_station_is_controlled_by_its_own() {
        let params = LinearParams { sharing: Sharing::Level, ..LinearParams::default() };
        let mut law = params.build().unwrap();
        for station in STATIONS {
            law.on_join(Time::ZERO, station).unwrap();
        }
        let [a, b, c] = STATIONS;
        // K0/3 · (32 − N): 10, 1 and −5 thirds of Mbit/s, from 1 Mbit/s each, and never below that.
        let reports = [(a, report(2.0, 200)), (b, report(29.0, 400)), (c, report(47.0, 100))];
        assert_eq!(slot(&mut law, 1, &reports), [11_000_000, 2_000_000, 1_000_000]);
        // A station without a report keeps its rate.
        assert_eq!(slot(&mut law, 2, &reports[..1]), [21_000_000, 2_000_000, 1_000_000]);
        assert_eq!(STATIONS.map(|station| law.target(station)), [Some(32.0); 3]);
    }

    #[test]
    fn a_silent_stations_rate_holds_and_then_halves() {
        let mut law = law(2);
        let [a, b, _] = STATIONS;
        let both = [(a, report(1.0, 390)), (b, report(1.0, 390))];
        for k in 1..10 {
            slot(&mut law, k, &both);
        }
        let held = law.rate(a).as_bps();
        let mut rates = Vec::new();
        for k in 10..30 {
            rates.push(slot(&mut law, k, &[(b, report(32.0, 390))])[0]);
        }
        assert_eq!(rates[..5], [held, held, held, held / 2, held / 4]);
        assert_eq!(rates.last(), Some(&1_000_000));
        assert_eq!(law.rate(b).as_bps(), held);
    }

    #[test]
    fn gains_have_a_limit_that_the_thesis_has_seen() {
        // K0 = 1 is stable at 390 Mbit/s, K0 = 10 is not.
        let link = Link { overhead: Span::from_micros(200), airtime: 31.67e-6 };
        let limit = gain_limit(link, Bytes::new(1500), 32.0).as_bps() as f64 / 1e6;
        assert!((limit - 3.26).abs() < 0.01, "{limit}");
    }

    #[test]
    fn targets_that_no_level_shows_are_refused() {
        for target in [0.5, 63.0, f64::NAN] {
            assert!(LinearParams { target, ..LinearParams::default() }.build().is_err());
        }
        let gain = BitRate::default();
        assert!(LinearParams { gain, ..LinearParams::default() }.build().is_err());
    }
}
