//! The points of a safety sweep: a Latin hypercube per category, on logarithmic axes.
//!
//! Each axis of a category with n points has n equal strata, and each point takes a different one.
//! The first and the last stratum are the ends of the range, so that both occur.
//! Half of each category's points, drawn by the same seed, is the training half.

use std::collections::BTreeMap;

use freshline_core::unit::{BitRate, Bytes, Packets, Span};
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use serde::Serialize;
use toml::Value;

use crate::engine::Streams;
use crate::scenario::{Change, Half, SafetyCategory, SafetyConfig};
use crate::world::Sizes;

/// A point.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SafetyPoint {
    /// Its number in the sweep, from 1.
    pub number: u32,
    /// The category's name.
    pub category: String,
    /// Which half it belongs to.
    pub half: Half,
    /// Equal sources.
    pub sources: u32,
    /// Base round-trip time, s.
    pub rtt: f64,
    /// Capacity of the link, bit/s; `null` in a cell.
    pub rate: Option<f64>,
    /// Length of the drop-tail queue, packets; `null` for other disciplines and cells.
    pub queue: Option<u64>,
    /// State in each update, bytes.
    pub payload: u64,
    /// The keys that are set, as in `--set`.
    pub set: BTreeMap<String, Value>,
    /// The cell that is the bottleneck instead of the link.
    #[serde(skip)]
    pub cell: Option<String>,
}

/// The warm-up of a point, after which the windows begin.
const WARM_UP_S: f64 = 10.0;
/// Measured time of a point, with exceptions below.
const MEASURED_S: f64 = 30.0;
/// Points with a capacity above this, in updates/s, are measured for [`SHORT_S`] only.
const FAST: f64 = 30_000.0;
const SHORT_S: f64 = 10.0;
/// Minimum number of updates of an equal share in the measured time, as Jain's index of a few
/// updates is mostly rounding; the measured time is at most [`MAX_S`].
const SHARE: f64 = 60.0;
const MAX_S: f64 = 600.0;

impl SafetyPoint {
    /// The changes that make the scenario this point.
    pub fn changes(&self) -> impl Iterator<Item = Change> {
        Change::each(&self.set)
    }

    /// A description of the point.
    pub fn describe(&self) -> String {
        let rate = self.rate.map(|bps| format!("{}, ", BitRate::from_bps(bps as u64)));
        let queue = self.queue.map(|packets| format!("{packets}p, "));
        format!(
            "{} sources, {}{:.1} ms, {}{} B",
            self.sources,
            rate.unwrap_or_default(),
            self.rtt * 1e3,
            queue.unwrap_or_default(),
            self.payload
        )
    }
}

/// All points of a sweep, in the order of the categories.
pub fn points(config: &SafetyConfig) -> Vec<SafetyPoint> {
    let mut all = Vec::new();
    for (index, category) in config.categories.iter().enumerate() {
        let rng = Streams::new(config.seed, 0).stream("safety", index);
        let first = all.len() as u32 + 1;
        all.extend(of_category(config, category, first, rng));
    }
    all
}

fn of_category(
    config: &SafetyConfig,
    category: &SafetyCategory,
    first: u32,
    mut rng: Pcg64,
) -> Vec<SafetyPoint> {
    let count = category.points as usize;
    let axes: [Vec<f64>; 5] = core::array::from_fn(|_| axis(count, &mut rng));
    let mut order: Vec<usize> = (0..count).collect();
    order.shuffle(&mut rng);
    let is_training = |index| order[..count.div_ceil(2)].contains(&index);
    let point = |index: usize| {
        let half = if is_training(index) { Half::Training } else { Half::HeldOut };
        let drawn = axes.each_ref().map(|axis| axis[index]);
        let variant = category.variants.get(index % category.variants.len().max(1));
        draw(config, category, variant, drawn, (first + index as u32, half))
    };
    (0..count).map(point).collect()
}

/// A value from 0 to 1 for each point: one per stratum, in random order, both ends included.
fn axis(count: usize, rng: &mut Pcg64) -> Vec<f64> {
    let mut strata: Vec<f64> = (0..count)
        .map(|stratum| match stratum {
            0 => 0.0,
            last if last + 1 == count => 1.0,
            stratum => (stratum as f64 + rng.random::<f64>()) / count as f64,
        })
        .collect();
    strata.shuffle(rng);
    strata
}

/// The value at a fraction of the distance from one end to the other, on a logarithmic axis.
fn between([from, to]: [f64; 2], at: f64) -> f64 {
    from * (to / from).powf(at)
}

fn draw(
    config: &SafetyConfig,
    category: &SafetyCategory,
    variant: Option<&BTreeMap<String, Value>>,
    [sources, rtt, payload, rate, queue]: [f64; 5],
    (number, half): (u32, Half),
) -> SafetyPoint {
    let sources = between(category.sources.map(f64::from), sources).round();
    // Tenths of a ms, so that half of it is exact in µs.
    let rtt = between(category.rtt.map(Span::as_secs_f64), rtt);
    let rtt = (rtt * 1e4).round() / 1e4;
    let payload = between(category.payload.map(|bytes| bytes.get() as f64), payload).round();
    let Sizes { payload: state, overhead, .. } = Sizes::of_our_protocol(Bytes::new(payload as u64));
    let bits = 8.0 * (state + overhead).get() as f64;
    let rate = category.rate.map(|range| {
        let [low, high] = range.map(|rate| rate.as_bps() as f64);
        let [least, most] = category.share.map(|share| share.per_second() * sources * bits);
        let most = most.min(category.max_updates.per_second() * bits);
        let low = low.max(least).min(high);
        let kbps = between([low, high.min(most).max(low)], rate) / 1e3;
        1e3 * kbps.round()
    });
    let queue = category.queue.map(|range| {
        let packets = between(range.map(|packets: Packets| packets.get() as f64), queue);
        packets.round() as u64
    });
    let updates = rate.map(|rate| rate / bits);
    let measured = match updates {
        Some(updates) if updates > FAST => SHORT_S,
        Some(updates) => (SHARE * sources / updates).clamp(MEASURED_S, MAX_S).ceil(),
        None => MEASURED_S,
    };
    let mut set = category.set.clone();
    set.extend(variant.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())));
    let SafetyConfig { flow, link, .. } = config;
    let text = |text: String| Value::String(text);
    let delay = text(format!("{:.0}us", rtt * 1e6 / 2.0));
    set.insert("duration".to_owned(), text(format!("{:.0}s", WARM_UP_S + measured)));
    set.insert("warm_up".to_owned(), text(format!("{WARM_UP_S:.0}s")));
    set.insert(format!("flow.{flow}.count"), Value::Integer(sources as i64));
    set.insert(format!("flow.{flow}.updates.payload"), text(format!("{payload:.0}B")));
    set.insert(format!("link.{link}.forward.delay"), delay.clone());
    set.insert(format!("link.{link}.reverse.delay"), delay);
    if let Some(rate) = rate {
        let rate = text(format!("{:.0}kbit", rate / 1e3));
        set.insert(format!("link.{link}.forward.rate"), rate.clone());
        set.insert(format!("link.{link}.reverse.rate"), rate);
    }
    if let Some(queue) = queue {
        set.insert(format!("link.{link}.forward.queue"), text(format!("{queue}p")));
    }
    SafetyPoint {
        number,
        category: category.name.clone(),
        half,
        sources: sources as u32,
        rtt,
        rate,
        queue,
        payload: payload as u64,
        set,
        cell: category.cell.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(seed: u64) -> SafetyConfig {
        let text = r#"
            laws = ["lazy"]
            flow = "source"
            link = "path"
            [[category]]
            name = "wired"
            points = 40
            sources = [1, 200]
            rtt = ["5ms", "600ms"]
            rate = ["64kbit", "1gbit"]
            queue = ["5p", "5000p"]
            payload = ["64B", "1400B"]
            [[category]]
            name = "crowded"
            points = 5
            sources = [50, 50]
            rtt = ["50ms", "50ms"]
            rate = ["64kbit", "1gbit"]
            share = ["0.1/s", "1/s"]
            payload = ["500B", "500B"]
            variants = [{ "link.path.forward.queue" = "codel" }, { "link.path.forward.queue" = "fq_codel" }]
        "#;
        toml::from_str(&format!("seed = {seed}\n{text}")).unwrap()
    }

    #[test]
    fn every_axis_reaches_both_ends_and_half_of_each_category_is_held_out() {
        let all = points(&config(1));
        let wired: Vec<_> = all.iter().filter(|point| point.category == "wired").collect();
        let ends = |of: fn(&SafetyPoint) -> f64| {
            let values = || wired.iter().map(|point| of(point));
            [values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max)]
        };
        assert_eq!(ends(|point| f64::from(point.sources)), [1.0, 200.0]);
        assert_eq!(ends(|point| point.rtt), [0.005, 0.6]);
        assert_eq!(ends(|point| point.queue.unwrap() as f64), [5.0, 5000.0]);
        assert_eq!(ends(|point| point.payload as f64), [64.0, 1400.0]);
        let held_out = |point: &&SafetyPoint| point.half == Half::HeldOut;
        assert_eq!(wired.into_iter().filter(held_out).count(), 20);
        assert_eq!(all.iter().filter(held_out).count(), 22, "of five, two");
    }

    #[test]
    fn a_rate_keeps_an_equal_share_within_its_range() {
        for point in points(&config(3)) {
            let bits = 8.0 * (point.payload + 68) as f64;
            let share = point.rate.unwrap() / bits / f64::from(point.sources);
            let range = if point.category == "wired" { 0.99..=1e6 } else { 0.09..=1.01 };
            assert!(range.contains(&share), "{}: {share}", point.describe());
        }
    }

    #[test]
    fn a_seed_draws_the_same_points_and_another_one_others() {
        assert_eq!(points(&config(1)), points(&config(1)));
        assert_ne!(points(&config(1)), points(&config(2)));
        let crowded = &points(&config(1))[40..];
        let queues: Vec<_> =
            crowded.iter().map(|point| point.set["link.path.forward.queue"].as_str()).collect();
        assert_eq!(queues[..3], [Some("codel"), Some("fq_codel"), Some("codel")]);
    }
}
