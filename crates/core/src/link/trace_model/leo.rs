//! A path over satellites in low earth orbit, which are reassigned at fixed times.
//!
//! ```text
//!   user terminal ─── d(t) ─── satellite ─── d(t) ─── gateway ─── ground ─── the other end
//!
//!   delay(t) = 2·d(t)/c + ground + wobble(t)
//!   d(t)²    = R² + r² − 2·R·r·cos ψ(t)           R: radius of the earth, r = R + altitude
//!   cos ψ(t) = cos ψ₀·cos ωt + sin ψ₀·sin ωt·cos χ       ω² = GM/r³
//!
//!   slot n     phase + n·slot ≤ t < phase + (n + 1)·slot
//! ```
//!
//! ψ is the angle between user and satellite at the centre of the earth, χ the direction in which
//! the satellite moves, 0 towards the user. At the start of each slot the model draws a satellite
//! (ψ₀ and χ), the delay on the ground, a capacity, and whether there is an outage. Within the slot
//! the delay follows the satellite, and delay and capacity vary from interval to interval.
//!
//! # From measurements
//!
//! - Satellites are assigned to terminals every 15 s, for all terminals at the 12th, 27th, 42nd and
//!   57th second of the minute, and the delay steps then (Tanveer, Puchol, Singh, Bianchi,
//!   Nithyanand, "Making Sense of Constellations: Methodologies for Understanding Starlink's
//!   Scheduling Algorithms", CoNEXT Companion 2023). Latency and throughput change with these
//!   globally synchronised intervals (Mohan, Ferguson, Cech, Bose, Renatin, Marina, Ott, "A
//!   Multifaceted Look at Starlink Performance", WWW 2024). Hence `slot` and `phase`; the trace
//!   begins with a minute.
//! - The delay has a spike of about 140 ms duration at the start of each such interval (Casparsen,
//!   Jakobsen, Nielsen, Popovski, Leyva-Mayorga, "Statistical Characterization and Prediction of
//!   E2E Latency over LEO Satellite Networks", 2026). Hence the mean length of an outage, in which
//!   packets are queued.
//!
//! # By geometry
//!
//! Slant range and its drift, from `altitude` (550 km: Starlink's first shell) and `elevation`
//! (25°: the minimum elevation of its terminals). The earth is a sphere and does not rotate.
//!
//! # Our assumptions
//!
//! - Satellites are equally dense at all places above the minimum elevation, and move in any
//!   direction; one that would set within the slot moves the opposite way.
//! - The gateway is near the user: both legs have the same length. There are no links between
//!   satellites.
//! - `ground_min` to `ground_max`, uniform per slot: frames of the radio, processing, and the path
//!   from the gateway on. With the defaults a round trip over two such directions takes 22 to 53
//!   ms.
//! - The capacity of a slot is uniform in `mean_rate`·(1 ± `spread`), that of an interval in the
//!   slot's capacity·(1 ± `variation`), and the wobble uniform in ±`wobble`.
//! - An outage begins with a slot, with `outage_probability`, and is uniform in length up to
//!   `outage_max`: half of the handovers, with a mean of 140 ms. During an outage nothing is
//!   transmitted; packets beyond the queue's limit are lost.
//! - The two directions of a path (streams of one seed) have the same satellites, ground delays and
//!   outages, and their own capacity and wobble.

use rand::{Rng, RngExt};

use super::{Draft, TraceModelError, checked, checked_duration, generator, per_second};
use crate::link::Trace;
use crate::unit::{BitRate, Span};

/// The parameters of a path over satellites in low earth orbit.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct LeoModel {
    /// The seed of all draws.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub seed: Option<u64>,
    /// Which of several traces over the same satellites, such as one per direction.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub stream: Option<u64>,
    /// The period after which the trace repeats: 1 ms to 24 h. Default: 300 s, 20 slots.
    pub duration: Span,
    /// The mean capacity outside of outages, above zero. Default: 10 Mbit/s, an uplink.
    pub mean_rate: BitRate,
    /// The maximum deviation of a slot's capacity from `mean_rate`, as a fraction of it, 0 to
    /// below 1. Default: 0.5.
    pub spread: f64,
    /// The maximum deviation of an interval's capacity from its slot's, as a fraction of that, 0 to
    /// below 1. Default: 0.1.
    pub variation: f64,
    /// The time between two assignments of satellites, at least `interval`. Default: 15 s.
    pub slot: Span,
    /// When the first slot begins, below `slot`. Default: 12 s.
    pub phase: Span,
    /// The altitude of the satellites in m, 160,000 to 2,000,000. Default: 550,000.
    pub altitude: f64,
    /// The minimum elevation of a satellite above the horizon in degrees, 0 to below 90.
    /// Default: 25.
    pub elevation: f64,
    /// The minimum one-way delay on the ground, at least `wobble`. Default: 8 ms.
    pub ground_min: Span,
    /// The maximum one-way delay on the ground, at least `ground_min`. Default: 18 ms.
    pub ground_max: Span,
    /// The maximum variation of the delay within a slot, in either direction. Default: 0.5 ms.
    pub wobble: Span,
    /// How long capacity and delay stay the same within a slot, at least 1 ms. Default: 100 ms.
    pub interval: Span,
    /// The probability that a slot begins with an outage, 0 to 1. Default: 0.5.
    pub outage_probability: f64,
    /// The maximum length of an outage, at most `slot`. Default: 280 ms.
    pub outage_max: Span,
}

impl Default for LeoModel {
    fn default() -> Self {
        Self {
            seed: None,
            stream: None,
            duration: Span::from_secs(300),
            mean_rate: BitRate::from_mbps(10),
            spread: 0.5,
            variation: 0.1,
            slot: Span::from_secs(15),
            phase: Span::from_secs(12),
            altitude: 550e3,
            elevation: 25.0,
            ground_min: Span::from_millis(8),
            ground_max: Span::from_millis(18),
            wobble: Span::from_micros(500),
            interval: Span::from_millis(100),
            outage_probability: 0.5,
            outage_max: Span::from_millis(280),
        }
    }
}

impl LeoModel {
    /// The trace.
    pub(super) fn generate(&self) -> Result<Trace, TraceModelError> {
        self.check()?;
        let seed = self.seed.unwrap_or(0);
        let mut sky = generator(seed, 0);
        let mut own = generator(seed, self.stream.unwrap_or(0).wrapping_add(1));
        let orbit = Orbit::new(self.altitude, self.elevation);
        let mut draft = Draft::new(self.duration);
        let slot = self.slot.as_secs_f64();
        // The slot that has begun before the trace counts as number 0; its intervals before the
        // trace are drawn and left out.
        let ahead = self.slot - self.phase;
        let count = (ahead + self.duration).as_nanos().div_ceil(self.slot.as_nanos());
        let mut due = 0.0;
        for number in 0..count {
            // Times in whole ns after the start of slot 0.
            let begin = self.slot * number;
            let pass = orbit.draw(slot, &mut sky);
            let ground = between(self.ground_min, self.ground_max, &mut sky);
            let has_outage = sky.random::<f64>() < self.outage_probability;
            let outage = self.outage_max.as_secs_f64() * sky.random::<f64>();
            let resumes = begin + Span::from_secs_f64(if has_outage { outage } else { 0.0 });
            let capacity = per_second(self.mean_rate) * around(self.spread, &mut own);
            for part in 0..self.slot.as_nanos().div_ceil(self.interval.as_nanos()) {
                let start = begin + self.interval * part;
                if start >= ahead + self.duration {
                    break;
                }
                let end = (start + self.interval).min(begin + self.slot);
                let rate = capacity * around(self.variation, &mut own);
                let wobble = self.wobble.as_secs_f64() * (2.0 * own.random::<f64>() - 1.0);
                if end <= ahead {
                    continue;
                }
                let middle = (start - begin + (end - start) / 2).as_secs_f64();
                let delay = orbit.delay(&pass, middle) + ground + wobble;
                draft.set_delay(start - ahead, Span::from_secs_f64(delay));
                let mut at = (start.max(resumes) - ahead).as_secs_f64();
                let end = (end - ahead).as_secs_f64();
                while at + (1.0 - due) / rate <= end {
                    at += (1.0 - due) / rate;
                    due = 0.0;
                    draft.deliver(at);
                }
                due += rate * (end - at).max(0.0);
            }
        }
        Ok(draft.finish())
    }

    fn check(&self) -> Result<(), TraceModelError> {
        let part = |field, value: f64| {
            let is_part = |value: &f64| (0.0..1.0).contains(value);
            checked(field, value, is_part, "give from 0 to below 1, such as 0.5")
        };
        let remedy = "give a rate above zero, such as `10mbit`";
        checked("mean_rate", self.mean_rate, |rate| rate.as_bps() > 0, remedy)?;
        part("spread", self.spread)?;
        part("variation", self.variation)?;
        let remedy = "give at least 1ms, such as `100ms`";
        checked("interval", self.interval, |it| *it >= Span::from_millis(1), remedy)?;
        let remedy = "give at least `interval`, such as `15s`";
        checked(
            "slot",
            self.slot,
            |it| (self.interval..=Span::from_secs(86_400)).contains(it),
            remedy,
        )?;
        checked("phase", self.phase, |it| *it < self.slot, "give less than `slot`")?;
        let remedy = "give metres from 160000 to 2000000";
        checked("altitude", self.altitude, |it| (160e3..=2e6).contains(it), remedy)?;
        let remedy = "give degrees from 0 to below 90";
        checked("elevation", self.elevation, |it| (0.0..90.0).contains(it), remedy)?;
        let remedy = "give at least `ground_min`, and at most 10s";
        let range = self.ground_min..=Span::from_secs(10);
        checked("ground_max", self.ground_max, |it| range.contains(it), remedy)?;
        let remedy = "give at most `ground_min`, or the delay could be below zero";
        checked("wobble", self.wobble, |it| *it <= self.ground_min, remedy)?;
        let remedy = "give a probability from 0 to 1";
        checked(
            "outage_probability",
            self.outage_probability,
            |it| (0.0..=1.0).contains(it),
            remedy,
        )?;
        checked("outage_max", self.outage_max, |it| *it <= self.slot, "give at most `slot`")?;
        let most = per_second(self.mean_rate) * (1.0 + self.spread) * (1.0 + self.variation);
        let intervals = 1.0 / self.interval.as_secs_f64();
        checked_duration(self.duration, most, intervals).map(drop)
    }
}

/// Uniform in 1 ± `part`.
fn around(part: f64, rng: &mut impl Rng) -> f64 {
    1.0 + part * (2.0 * rng.random::<f64>() - 1.0)
}

/// Uniform between both, in s.
fn between(min: Span, max: Span, rng: &mut impl Rng) -> f64 {
    min.as_secs_f64() + (max - min).as_secs_f64() * rng.random::<f64>()
}

/// The orbit of all satellites, seen from a user.
#[derive(Debug, Clone, Copy)]
struct Orbit {
    /// From the centre of the earth, in m.
    radius: f64,
    /// In rad/s.
    speed: f64,
    /// The largest ψ at which a satellite is high enough, in rad.
    horizon: f64,
}

/// The pass of a satellite during a slot.
#[derive(Debug, Clone, Copy)]
struct Pass {
    /// ψ₀, in rad.
    start: f64,
    /// cos χ.
    approach: f64,
}

impl Orbit {
    /// The mean radius of the earth, in m (IUGG).
    const EARTH: f64 = 6_371_008.8;
    /// GM of the earth, in m³/s² (WGS 84).
    const GM: f64 = 3.986_004_418e14;
    /// The speed of light, in m/s.
    const LIGHT: f64 = 299_792_458.0;

    /// `altitude` in m, `elevation` in degrees.
    fn new(altitude: f64, elevation: f64) -> Self {
        let radius = Self::EARTH + altitude;
        let elevation = elevation.to_radians();
        // The law of sines in the triangle of the earth's centre, user and satellite.
        let horizon = libm::acos(Self::EARTH / radius * libm::cos(elevation)) - elevation;
        Self { radius, speed: libm::sqrt(Self::GM / (radius * radius * radius)), horizon }
    }

    /// A satellite that is high enough for the next `secs`.
    fn draw(&self, secs: f64, rng: &mut impl Rng) -> Pass {
        // Equal areas of a cap have equal shares of 1 − cos ψ.
        let part: f64 = rng.random();
        let start = libm::acos(1.0 - part * (1.0 - libm::cos(self.horizon)));
        let approach = libm::cos(core::f64::consts::TAU * rng.random::<f64>());
        let pass = Pass { start, approach };
        match self.angle(&pass, secs) > self.horizon {
            true => Pass { approach: -approach, ..pass },
            false => pass,
        }
    }

    /// ψ in rad, `secs` after the start of the slot.
    fn angle(&self, pass: &Pass, secs: f64) -> f64 {
        let moved = self.speed * secs;
        let cosine = libm::cos(pass.start) * libm::cos(moved)
            + libm::sin(pass.start) * libm::sin(moved) * pass.approach;
        libm::acos(cosine.clamp(-1.0, 1.0))
    }

    /// d in m; never more than at the minimum elevation.
    fn range(&self, angle: f64) -> f64 {
        let cosine = libm::cos(angle.min(self.horizon));
        let (earth, radius) = (Self::EARTH, self.radius);
        libm::sqrt(earth * earth + radius * radius - 2.0 * earth * radius * cosine)
    }

    /// The delay up and down in s, `secs` after the start of the slot.
    fn delay(&self, pass: &Pass, secs: f64) -> f64 {
        2.0 * self.range(self.angle(pass, secs)) / Self::LIGHT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::Time;
    use alloc::string::ToString;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn model(change: impl FnOnce(&mut LeoModel)) -> LeoModel {
        let mut model = LeoModel { seed: Some(1), ..LeoModel::default() };
        change(&mut model);
        model
    }

    fn delay_ms(trace: &Trace, secs: f64) -> f64 {
        trace.delay_at(Time::ZERO + Span::from_secs_f64(secs)).as_millis_f64()
    }

    #[test]
    fn slant_ranges_are_those_of_the_geometry() {
        let orbit = Orbit::new(550e3, 25.0);
        // −R·sin 25° + √(R²·sin² 25° + 2·R·h + h²) = 1,123.3 km.
        assert!((orbit.range(orbit.horizon) - 1_123.3e3).abs() < 0.1e3);
        assert!((orbit.range(0.0) - 550e3).abs() < 1.0);
        // Kepler's third law: a period of 95.5 minutes, 7.59 km/s.
        assert!((core::f64::consts::TAU / orbit.speed / 60.0 - 95.5).abs() < 0.05);
        assert!((orbit.speed * orbit.radius - 7_585.0).abs() < 5.0);
    }

    #[test]
    fn delays_step_with_slots_and_stay_within_the_bounds_of_geometry() {
        let model = model(|_| ());
        let trace = model.generate().unwrap();
        // 2·550 km/c + 8 ms − 0.5 ms, and 2·1123.3 km/c + 18 ms + 0.5 ms.
        let bounds = 11.169..=25.994;
        let mut steps = 0;
        for tenth in 0..3_000 {
            let secs = f64::from(tenth) / 10.0;
            let (before, now) = (delay_ms(&trace, secs - 0.05), delay_ms(&trace, secs + 0.05));
            assert!(bounds.contains(&now), "{now} ms at {secs} s");
            // Twice the wobble, and two legs that change by at most 7.6 km/s for 0.1 s.
            let is_step = tenth > 0 && (now - before).abs() > 1.0 + 0.0051;
            assert!(!is_step || tenth % 150 == 120, "{before} to {now} ms at {secs} s");
            steps += u32::from(is_step);
        }
        assert!(steps >= 15, "{steps} steps in 20 slots");
    }

    #[test]
    fn capacities_keep_their_bounds_and_their_mean() {
        let model = model(|model| {
            model.duration = Span::from_secs(3_000);
            model.outage_probability = 0.0;
        });
        let trace = model.generate().unwrap();
        let mut slots = alloc::vec![0.0; 201];
        for line in trace.to_string().lines() {
            if let Ok(millis) = line.parse::<usize>() {
                slots[(millis.saturating_sub(1) + 3_000) / 15_000] += 12_000.0 / 15.0;
            }
        }
        let whole = &slots[1..200];
        let mean = whole.iter().sum::<f64>() / whole.len() as f64;
        // Uniform in 5 to 15 Mbit/s: a standard error of 2 %.
        assert!((mean / 10e6 - 1.0).abs() < 0.08, "{mean} bit/s");
        assert!(whole.iter().all(|rate| (4.9e6..15.1e6).contains(rate)), "{whole:?}");
        let spread = whole.iter().map(|rate| (rate - mean) * (rate - mean)).sum::<f64>();
        let deviation = libm::sqrt(spread / whole.len() as f64);
        assert!((deviation / (10e6 / libm::sqrt(12.0)) - 1.0).abs() < 0.15, "{deviation} bit/s");
    }

    #[test]
    fn outages_begin_with_slots_and_last_no_longer_than_they_may() {
        let model = model(|model| {
            model.duration = Span::from_secs(3_000);
            model.outage_max = Span::from_secs(2);
        });
        let text = model.generate().unwrap().to_string();
        let times: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
        let gaps = times.windows(2).filter(|pair| pair[1] - pair[0] > 10);
        let outages: Vec<_> = gaps.map(|pair| (pair[0], pair[1] - pair[0])).collect();
        // Of 200 slots one in two, with a standard error of 7.
        assert!((70..=130).contains(&outages.len()), "{}", outages.len());
        for (at, length) in &outages {
            // The opportunity before it is up to 3 ms earlier, at 4.5 Mbit/s.
            let late = (at + 3_000 + 4) % 15_000;
            assert!(late <= 4 && *length <= 2_006, "{length} ms at {at} ms");
        }
        let mean = outages.iter().map(|(_, length)| *length as f64).sum::<f64>();
        let mean = mean / outages.len() as f64;
        assert!((mean - 1_000.0).abs() < 250.0, "{mean} ms");
    }

    #[test]
    fn both_directions_have_the_same_satellites_and_their_own_capacity() {
        let direction = |stream| model(|it| it.stream = Some(stream)).generate().unwrap();
        let (up, down) = (direction(0), direction(1));
        for slot in 0..20 {
            let secs = 7.05 + 15.0 * f64::from(slot);
            let apart = delay_ms(&up, secs) - delay_ms(&down, secs);
            assert!(apart != 0.0 && apart.abs() <= 1.0, "{apart} ms: no more than both wobbles");
        }
        assert_ne!(up.opportunities(), down.opportunities());
    }

    #[test]
    fn a_parameter_outside_its_range_is_refused_with_the_remedy() {
        let ms = Span::from_millis;
        for (model, message) in [
            (model(|it| it.mean_rate = BitRate::from_bps(0)), "`mean_rate` is 0bit; give a rate"),
            (model(|it| it.spread = 1.0), "`spread` is 1; give from 0 to below 1"),
            (model(|it| it.variation = f64::NAN), "`variation` is NaN; give"),
            (model(|it| it.slot = ms(99)), "`slot` is 99ms; give at least `interval`"),
            (model(|it| it.interval = Span::ZERO), "`interval` is 0ns; give at least 1ms"),
            (model(|it| it.phase = it.slot), "`phase` is 15s; give less than `slot`"),
            (model(|it| it.altitude = 550.0), "`altitude` is 550; give metres from 160000"),
            (model(|it| it.elevation = 90.0), "`elevation` is 90; give degrees"),
            (model(|it| it.ground_max = ms(7)), "`ground_max` is 7ms; give at least `ground_min`"),
            (model(|it| it.wobble = ms(9)), "`wobble` is 9ms; give at most `ground_min`"),
            (model(|it| it.outage_probability = -0.1), "`outage_probability` is -0.1; give"),
            (model(|it| it.outage_max = ms(15_001)), "`outage_max` is 15.001s; give at most"),
        ] {
            let error = model.generate().unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }

    proptest! {
        #[test]
        fn whatever_the_parameters_delays_keep_their_bounds(
            altitude in 160e3f64..2e6,
            elevation in 0.0f64..89.0,
            slot in 100u64..40_000,
            interval in 1u64..100,
            seed: u64,
        ) {
            let model = model(|model| {
                model.seed = Some(seed);
                model.altitude = altitude;
                model.elevation = elevation;
                model.slot = Span::from_millis(slot);
                model.interval = Span::from_millis(interval);
                model.phase = Span::from_millis(slot / 3);
                model.outage_max = Span::from_millis(slot);
                model.duration = Span::from_secs(3);
            });
            let trace = model.generate().unwrap();
            let orbit = Orbit::new(altitude, elevation);
            let leg = |angle| 2e3 * orbit.range(angle) / Orbit::LIGHT;
            let (min, max) = (leg(0.0) + 7.5, leg(orbit.horizon) + 18.5);
            for tenth in 0..60 {
                let delay = delay_ms(&trace, f64::from(tenth) / 10.0);
                prop_assert!((min - 1e-5..=max + 1e-5).contains(&delay), "{delay} ms, {min} to {max}");
            }
            prop_assert_eq!(Trace::parse(&trace.to_string()), Ok(trace));
        }
    }
}
