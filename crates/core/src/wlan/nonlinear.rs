//! The recommended downlink law: Algorithm 2 with robust loops. It sets the rates of all stations
//! of an access point so that aggregation levels reach targets that keep the mean delay below T̄.
//!
//! ```text
//! inner   zᵢ ← zᵢ + K1·(Nᵢ* − μNᵢ)           in [1, N̄]                           (5.45)
//!         x  = F⁻¹(z) = z/(ĉ + wᵀz)                                              (5.46)
//! ĉ ← (1 − β)·ĉ + β·č,   č = μN/x·(1 − wᵀx)                                      (5.40)
//! outer   ν  ← max(ν + K2·(G − ν), 1),   G = min(T̄·x₁, N̄)                        (5.43)
//!         Nᵢ* = ν·w₁/wᵢ                      in [1, N̄]                           (5.44)
//! ```
//!
//! Each slot, the inner loop corrects the levels z that the law requests, and sets the rates by the
//! inverse of the [model](Round); the estimate ĉ of the frame overhead follows; the outer loop
//! moves the target ν of the slowest station to the delay bound. [`Algorithm2`](super::Algorithm2)
//! is the algorithm as printed.
//!
//! Station 1 is the slowest, ν its target level, z the levels that the law requests; μN are the
//! reported levels, all in packets per frame; x are rates in packets/s, c and w are in seconds.
//! Hassani, MSc thesis: Achieving Low Delay & High Rate in 802.11ac Edge Networks, section 5.4;
//! model and optimum in [`Round`].
//!
//! # Stability
//!
//! F∘F⁻¹ is nearly linear, so z ← z + K1·(N* − γ·z), γ = c/ĉ: stable for K1·γ < 2 (5.4.1.3; there
//! for K1 = 1). With z at its target and K2 < 1, ν settles where the round takes T̄, or at a bound
//! (Lemma 2). The thesis conjectures that this also holds while z lags. Around that point, as ν
//! follows the z of the same slot (the order of Algorithm 2),
//!
//! ```text
//! z ← (1 − K1·γ)·z + K1·ν
//! ν ← (1 − K2)·ν + K2·g·z            with the new z;    g = γ·c/T̄ < γ
//!
//! ⎡z⎤   ⎡    1 − K1·γ              K1          ⎤ ⎡z⎤      det = (1 − K1·γ)·(1 − K2)
//! ⎣ν⎦ ← ⎣ K2·g·(1 − K1·γ)   1 − K2 + K1·K2·g   ⎦ ⎣ν⎦      tr  = 2 − K1·γ − K2 + K1·K2·g
//! ```
//!
//! With 0 < K1·γ < 2 and 0 < K2 < 2 Jury's conditions hold: |det| < 1, 1 − tr + det = K1·K2·(γ −
//! g) > 0, and 1 + tr + det = (2 − K1·γ)·(2 − K2) + K1·K2·g > 0. So [`NonlinearParams::build`]
//! requires 0 < K1 < 2 and 0 < K2 < 1, each independently, and c may be up to 2/K1 times ĉ: 4 times
//! with the defaults, the thesis's 12 dB (5.4.1.4). If the delay binds, g > 0 gives a slightly
//! larger margin.
//!
//! # Where the paper is silent
//!
//! - **The third bound.** Lemma 1 ignores that a longer round lowers the rates of stations at N̄
//!   (see [`allocate`](Round::allocate)). So G is the minimum of three numbers, the third being
//!   Ω/(n·w₁). It binds only if some stations are at N̄ and others are not, so that the law settles
//!   at the optimum.
//! - **Reports of one station.** T̄·x₁ is T̄·ν/Ω̃ with Ω̃ᵢ = Nᵢ*/xᵢ of station 1. Here Ω̃ and č are
//!   medians over all stations: equal to the paper's with one station, and no single station
//!   decides.
//! - **Known changes apply at once.** A new μR, and a station that joins or leaves, move the
//!   optimum of the model: ν moves by the same factor, and z with its target. ν starts at the
//!   optimum with the first ĉ, z at 1. In a slot in which the modelled round changed by more than
//!   `jump`, the levels belong to another round: neither z nor ĉ follows them, but never in two
//!   consecutive slots.
//! - **c** is n·ĉ, with ĉ per frame, so that it stays right as stations join and leave. The k-th č
//!   has the weight 1/k, as in a plain mean, until that is below β. ĉ stays between 0.5 and 100
//!   times its first value.
//! - **Levels that stay low** at any rate would raise z to N̄. With several stations z is at most
//!   twice its target: γ = c/ĉ is 1/2 then, and ĉ continues to adapt. So a station that reports too
//!   small frames gets at most twice its share.
//! - **Full frames** give a lower bound of the level, and č is then a lower bound of c; with frames
//!   of one packet some rounds are empty, and č is an upper bound. A bound counts only if ĉ
//!   violates it.
//! - **The outer loop pauses** while fewer than half of the levels are within `near` of their
//!   targets: Lemma 2 assumes z at its target, and T̄·x₁ of a transient z would move ν away from
//!   the optimum and back.
//! - **A slot without a report**, or with less to send than allowed: z holds. After
//!   `max_missed_reports` slots without a report, z halves with each further one.
//! - **Before its first report**, and when silence has lowered z to 1, a station has the rate
//!   `start` and is not part of the model.
//! - **Frames of 5.484 ms** bound levels at low rates: N̄ is then the capacity of such a frame.
//! - **Loss** has no effect, as in [`Linear`](super::Linear).

use alloc::vec::Vec;

use super::Belief;
use super::allocation::Limits;
use super::link::{Link, airtime};
use super::mac::MAX_ON_AIR;
use super::model::Round;
use super::params::{DownlinkParams, LoopSettings, ParamsError, check};
use super::slot::{SlotLaw, Slotted, Station, median};
use crate::unit::{BitRate, Span};

/// Settings of [`Nonlinear`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct NonlinearParams {
    /// Packets, slots and stations.
    pub downlink: DownlinkParams,
    /// K1, above 0 and below 2: the inner gain. 0.5 (5.4.1.4).
    pub inner_gain: f64,
    /// K2, above 0 and below 1: the outer gain. 0.2 (5.4.2.2).
    pub outer_gain: f64,
    /// β, 0 to 1: the weight of a slot in ĉ; 0 holds ĉ. 0.05 (5.4.1.5).
    pub overhead_gain: f64,
    /// T̄, above zero: the bound of the mean delay in the access point. 5 ms (Figure 5.11).
    pub delay: Span,
    /// N̄, at least 1 and below Nmax − 1: the highest level. 32 (Figure 5.11).
    pub level: f64,
    /// ĉ of one frame at the start, above zero. 200 µs (Figure 5.11), the overhead of 802.11ac
    /// without other senders.
    pub overhead: Span,
    /// The maximum relative change of the modelled round in a slot whose levels still count, 0
    /// to 1. A tenth: fluctuations of μR are smaller (4 to 7 % in Table 5.1), a change of streams
    /// or MCS is larger.
    pub jump: f64,
    /// The maximum relative distance of levels from their targets at which the outer loop follows
    /// them, above 0. A quarter: times the outer gain, an error of a twentieth in ν.
    pub near: f64,
}

impl Default for NonlinearParams {
    fn default() -> Self {
        Self {
            downlink: DownlinkParams::default(),
            inner_gain: 0.5,
            outer_gain: 0.2,
            overhead_gain: 0.05,
            delay: Span::from_millis(5),
            level: 32.0,
            overhead: Span::from_micros(200),
            jump: 0.1,
            near: 0.25,
        }
    }
}

impl NonlinearParams {
    /// The law, without stations.
    pub fn build(self) -> Result<Nonlinear, ParamsError> {
        let Self { downlink, inner_gain, outer_gain, overhead_gain, delay, overhead, .. } = self;
        downlink.check()?;
        LoopSettings { inner_gain, outer_gain, overhead_gain, delay, overhead }.check()?;
        let holds = (0.0..=1.0).contains(&self.jump);
        check("jump", self.jump, holds, ["from 0 to 1", "it is a part of a round", "0.1"])?;
        let why = "the delay would never be looked at";
        check("near", self.near, self.near > 0.0, ["above 0", why, "0.25"])?;
        let holds = self.level >= 1.0 && self.level < downlink.max_level() - 1.0;
        let why = "full frames do not show the queue length";
        check("level", self.level, holds, ["from 1 to below `max_packets` less 1", why, "32"])?;
        Ok(Slotted::new(downlink, NonlinearLaw::new(self)))
    }

    /// The maximum ratio c/ĉ at which the loop is stable: 2/K1.
    pub fn margin(&self) -> f64 {
        2.0 / self.inner_gain
    }
}

/// The law with its stations.
pub type Nonlinear = Slotted<NonlinearLaw>;

/// The decision of [`Nonlinear`], once per slot.
#[derive(Debug, Clone)]
pub struct NonlinearLaw {
    params: NonlinearParams,
    /// ĉ of one frame, in seconds.
    overhead: f64,
    /// The number of č in ĉ, while it determines their weight.
    samples: u32,
    /// ν.
    target: f64,
    /// ν at the model's optimum, with which ν was last moved.
    ideal: Option<f64>,
    /// The round that the rates were made for, in seconds.
    round: Option<f64>,
    /// Whether the last slot's levels did not count.
    has_jumped: bool,
}

/// The law's state for one station.
#[derive(Debug, Clone, Copy)]
pub struct NonlinearState {
    /// wᵢ, in seconds; zero before the first report.
    airtime: f64,
    /// zᵢ.
    control_level: f64,
    /// Nᵢ*; zero before the first.
    target: f64,
}

type Known<'a> = &'a mut Station<NonlinearState>;

impl NonlinearLaw {
    fn new(params: NonlinearParams) -> Self {
        Self {
            params,
            overhead: params.overhead.as_secs_f64(),
            samples: 0,
            target: params.level,
            ideal: None,
            round: None,
            has_jumped: false,
        }
    }

    /// ĉ of one frame: its overhead in addition to its packets, estimated from the levels.
    pub fn overhead(&self) -> Span {
        Span::from_secs_f64(self.overhead)
    }

    /// ν: the target of the slowest station's level.
    pub fn target(&self) -> f64 {
        self.target
    }

    /// Moves ν as the model's optimum moves, and each zᵢ with its target.
    fn feed_forward(&mut self, stations: &mut [Known<'_>], model: &Round) {
        let limits =
            Limits { delay: self.params.delay, level: self.params.level, airtime: MAX_ON_AIR };
        let slowest = slowest(model);
        // The slowest station has the lowest level. If the delay is too short for one packet per
        // station, one is sent in any case.
        let least = |levels: Vec<f64>| levels.into_iter().fold(f64::INFINITY, f64::min);
        let ideal = model.allocate(limits).map_or(1.0, |optimum| least(optimum.levels));
        let factor = ideal / self.ideal.replace(ideal).unwrap_or(self.target);
        self.target = (self.target * factor).clamp(1.0, self.cap(slowest));
        for station in stations {
            let before = station.state.target;
            let after = station.reachable(self.target_of(station.state.airtime, slowest));
            if before > 0.0 {
                station.state.control_level *= after / before;
            }
            station.state.target = after;
        }
    }

    /// (5.45), for stations whose levels count.
    fn hold_levels(&self, stations: &mut [Known<'_>], counts: bool) {
        let max_missed_reports = self.params.downlink.max_missed_reports;
        let is_shared = stations.len() > 1;
        for station in stations {
            let level = station.level().filter(|_| counts);
            let error = level.map_or(0.0, |level| station.state.target - level);
            let mut control_level = station.state.control_level + self.params.inner_gain * error;
            if station.silence > max_missed_reports {
                control_level /= 2.0;
            }
            let most = station.reachable(self.cap(station.state.airtime));
            let fair = OVERASK * station.state.target.max(1.0);
            station.state.control_level =
                control_level.clamp(1.0, if is_shared { most.min(fair) } else { most });
        }
    }

    /// (5.40), from the rates in force.
    fn learn_overhead(&mut self, stations: &[Known<'_>], model: &Round) {
        let rates: Vec<f64> =
            stations.iter().map(|station| self.packet_rate(station.sent())).collect();
        let idle = 1.0 - model.utilisation(&rates);
        if idle <= 0.0 || self.params.overhead_gain == 0.0 {
            return;
        }
        let frames = stations.len() as f64;
        let mut samples: Vec<f64> = stations
            .iter()
            .zip(&rates)
            .filter_map(|(station, rate)| {
                let level = station.level()?;
                let sample = level / rate * idle / frames;
                Some(match level {
                    level if station.is_full(level, &self.params.downlink) => {
                        sample.max(self.overhead)
                    }
                    level if level < ALONE => sample.min(self.overhead),
                    _ => sample,
                })
            })
            .collect();
        let Some(sample) = median(&mut samples) else { return };
        let weight = self.params.overhead_gain.max(1.0 / f64::from(self.samples + 2));
        self.samples = self.samples.saturating_add(1).min(1000);
        let first = self.params.overhead.as_secs_f64();
        let learnt = self.overhead + weight * (sample - self.overhead);
        self.overhead = learnt.clamp(first * MIN_OVERHEAD, first * MAX_OVERHEAD);
    }

    /// (5.43), from the rates that are now set.
    fn seek_delay(&mut self, stations: &[Known<'_>], model: &Round) {
        let heard = || stations.iter().filter_map(|station| Some((station, station.level()?)));
        let is_near = |(station, level): &(&Known<'_>, f64)| {
            libm::fabs(level / station.state.target - 1.0) <= self.params.near
        };
        if 2 * heard().filter(is_near).count() < heard().count() {
            return;
        }
        let mut rounds: Vec<f64> = heard()
            .map(|(station, _)| station.state.target / self.packet_rate(station.rate))
            .collect();
        let Some(round) = median(&mut rounds) else { return };
        let slowest = slowest(model);
        let for_delay = self.params.delay.as_secs_f64() * self.target / round;
        let for_share = round / (stations.len() as f64 * slowest);
        let wanted = for_delay.min(for_share).min(self.cap(slowest));
        self.target = f64::max(self.target + self.params.outer_gain * (wanted - self.target), 1.0);
    }

    /// N̄ for a station whose packets take `airtime`.
    fn cap(&self, airtime: f64) -> f64 {
        (MAX_ON_AIR.as_secs_f64() / airtime).min(self.params.level).max(1.0)
    }

    /// Nᵢ* (5.44).
    fn target_of(&self, airtime: f64, slowest: f64) -> f64 {
        (self.target * slowest / airtime).clamp(1.0, self.cap(airtime))
    }

    fn packet_rate(&self, rate: BitRate) -> f64 {
        rate.as_bps() as f64 / self.packet_bits()
    }

    fn packet_bits(&self) -> f64 {
        8.0 * self.params.downlink.packet.get() as f64
    }

    /// The model of all stations that have reported, with the present estimates.
    fn model(&self, stations: &[Known<'_>]) -> Option<Round> {
        let overhead = Span::from_secs_f64(self.overhead);
        let link = |station: &Known<'_>| Link { overhead, airtime: station.state.airtime };
        let links: Vec<Link> = stations.iter().map(link).collect();
        Round::new(&links).ok()
    }
}

/// Below this level, frames of one packet are so frequent that some rounds have no frame.
const ALONE: f64 = 1.5;

/// The maximum z in multiples of its target, with several stations: ĉ may be twice c, and a level
/// that stays even lower is false.
const OVERASK: f64 = 2.0;

/// The minimum of ĉ in multiples of its first value: AIFS, backoff and acknowledgement of a frame
/// are not much shorter.
const MIN_OVERHEAD: f64 = 0.5;

/// The maximum of ĉ in multiples of its first value: a channel shared by a hundred others.
const MAX_OVERHEAD: f64 = 100.0;

/// w₁.
fn slowest(model: &Round) -> f64 {
    model.airtimes().iter().copied().fold(0.0, f64::max)
}

impl SlotLaw for NonlinearLaw {
    type State = NonlinearState;

    fn name(&self) -> &'static str {
        "nonlinear"
    }

    fn join(&self) -> NonlinearState {
        NonlinearState { airtime: 0.0, control_level: 1.0, target: 0.0 }
    }

    fn step(&mut self, stations: &mut [Station<NonlinearState>]) {
        let DownlinkParams { packet, start, max_missed_reports, .. } = self.params.downlink;
        for station in &mut *stations {
            if let Some(report) = station.report {
                station.state.airtime = airtime(packet, report.rate);
            } else if station.silence > max_missed_reports && station.state.control_level <= 1.0 {
                (station.state, station.rate) = (self.join(), start);
            }
        }
        let is_known = |station: &&mut Station<NonlinearState>| station.state.airtime > 0.0;
        let mut known: Vec<Known<'_>> = stations.iter_mut().filter(is_known).collect();
        let Some(model) = self.model(&known) else { return };
        self.feed_forward(&mut known, &model);

        let control_level = |known: &[Known<'_>]| -> Vec<f64> {
            known.iter().map(|station| station.state.control_level).collect()
        };
        let round = model.span(&control_level(&known));
        let jumps = |before: f64| libm::fabs(round - before) > self.params.jump * before;
        let changed = self.round.is_some_and(jumps);
        let counts = self.has_jumped || !changed;
        self.has_jumped = !counts;
        self.hold_levels(&mut known, counts);
        if counts {
            self.learn_overhead(&known, &model);
        }

        let Some(model) = self.model(&known) else { return };
        let round = model.span(&control_level(&known));
        for station in &mut known {
            let rate = station.state.control_level / round * self.packet_bits();
            station.rate = BitRate::from_bps(rate as u64);
        }
        self.round = Some(round);
        self.seek_delay(&known, &model);
        let slowest = slowest(&model);
        for station in &mut known {
            let target = self.target_of(station.state.airtime, slowest);
            station.state.target = station.reachable(target);
        }
    }

    fn target(&self, state: &NonlinearState) -> Option<f64> {
        (state.target > 0.0).then_some(state.target)
    }

    fn belief(&self, state: &NonlinearState) -> Belief {
        let is_known = state.airtime > 0.0;
        Belief {
            overhead: Some(self.overhead()),
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

    #[test]
    fn gains_that_make_no_stable_loop_are_refused_with_the_reason() {
        let params = NonlinearParams::default;
        assert!(params().build().is_ok());
        for (wrong, expected) in [
            (NonlinearParams { inner_gain: 2.0, ..params() }, "ever wider (5.4.1.3)"),
            (NonlinearParams { outer_gain: 1.0, ..params() }, "(Lemma 2)"),
            (NonlinearParams { overhead_gain: -0.1, ..params() }, "part of a mean"),
            (NonlinearParams { delay: Span::ZERO, ..params() }, "`delay` is 0"),
            (NonlinearParams { level: 63.0, ..params() }, "the queue length"),
            (NonlinearParams { near: f64::NAN, ..params() }, "`near` is NaN"),
        ] {
            let message = wrong.build().unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        assert_eq!(params().margin(), 4.0);
        let fast = NonlinearParams { inner_gain: 1.5, outer_gain: 0.9, ..params() };
        assert!(fast.build().is_ok(), "each gain is bounded alone");
    }

    /// Levels of slots 600 to 619 at the model's station with c = γ·ĉ, ĉ held, where the delay
    /// binds.
    fn levels_at(gamma: f64, params: NonlinearParams) -> Vec<f64> {
        let params = NonlinearParams {
            overhead_gain: 0.0,
            delay: Span::from_micros(1_500),
            level: 60.0,
            jump: 1.0,
            near: 1e9,
            ..params
        };
        let mut law = params.build().unwrap();
        let (station, rate) = (StationId(0), BitRate::from_mbps(390));
        let overhead = gamma * params.overhead.as_secs_f64();
        let airtime = airtime(params.downlink.packet, rate);
        law.on_join(Time::ZERO, station).unwrap();
        let slots = (1..620u64).map(|slot| {
            let packets = law.rate(station).as_bps() as f64 / 12_000.0;
            let idle = 1.0 - airtime * packets;
            let level = if idle > 0.0 { overhead * packets / idle } else { f64::INFINITY };
            let level = level.clamp(1.0, 64.0);
            let now = Time::ZERO + Span::from_millis(500) * slot;
            law.on_report(
                now,
                station,
                Report { level, deviation: 1.0, frames: 400, rate, loss: 0.0 },
            );
            law.handle_timeout(now);
            level
        });
        slots.collect::<Vec<_>>().split_off(599)
    }

    #[test]
    fn with_both_loops_at_work_c_may_be_as_large_as_the_margin_says() {
        // Beyond the margin a slow outer loop does not make up for it; one with K2 = 0.9 does for a
        // while.
        for (inner, outer, beyond) in [(0.5, 0.2, 1.25), (1.0, 0.2, 1.25), (0.5, 0.9, 0.5)] {
            let params = NonlinearParams {
                inner_gain: inner,
                outer_gain: outer,
                ..NonlinearParams::default()
            };
            for (part, holds) in [(0.5, true), (0.9, true), (0.97, true), (beyond, beyond < 1.0)] {
                let gamma = part * params.margin();
                let overhead = gamma * params.overhead.as_secs_f64();
                let packet = airtime(params.downlink.packet, BitRate::from_mbps(390));
                // Where the round takes T̄.
                let target = ((1.5e-3 - overhead) / packet).min(60.0);
                let levels = levels_at(gamma, params);
                let off = levels.iter().map(|level| libm::fabs(level / target - 1.0));
                let off = off.fold(0.0, f64::max);
                assert_eq!(off < 0.05, holds, "K1 {inner}, K2 {outer}, γ {gamma}: {levels:?}");
            }
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn settings_in_a_file_need_only_say_what_is_not_usual() {
        let text = "delay = \"2.5ms\"\nlevel = 48.0\n[downlink]\nmax_packets = \"128p\"";
        let params: NonlinearParams = toml::from_str(text).unwrap();
        assert_eq!((params.delay, params.level), (Span::from_micros(2_500), 48.0));
        assert_eq!(params.downlink.max_packets.get(), 128);
        assert_eq!(params.inner_gain, 0.5);
        assert!(toml::from_str::<NonlinearParams>("gain = 0.5").is_err());
    }
}
