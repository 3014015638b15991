//! More queued updates buy throughput: the knob goes from the freshest setting to the path's
//! capacity, or to a stated rate, and never back.

#[path = "common/scenarios.rs"]
mod scenarios;

use scenarios::{measured, value};

const WAITING: [f64; 7] = [0.05, 0.14, 0.5, 1.0, 2.0, 4.0, 8.0];

/// Of which the freshest is asked for.
const FRESHEST: usize = 1;

/// The maximum difference of two runs of one setting.
const NOISE: f64 = 0.03;

struct Family {
    name: &'static str,
    text: &'static str,
    /// Updates/s that a source can get through without crowding others out: by the sizes on the wire
    /// and the rates of the links; in the cell by sources that send too much.
    carries: f64,
    /// The fraction of `carries` that the knob reaches, and a rate below that.
    reaches: f64,
    stated: f64,
    /// How far from the stated rate it ends: jitter that parts updates looks like a queue.
    off: f64,
}

const FAMILIES: [Family; 4] = [
    Family {
        name: "hops-3",
        text: include_str!("../../../scenarios/fresher/hops-3.toml"),
        carries: 686.0,
        reaches: 0.95,
        stated: 500.0,
        off: NOISE,
    },
    Family {
        name: "wifi-06",
        text: include_str!("../../../scenarios/fresher/wifi-06.toml"),
        carries: 220.0,
        reaches: 0.85,
        stated: 150.0,
        off: NOISE,
    },
    Family {
        name: "cross-poisson",
        text: include_str!("../../../scenarios/fresher/cross-poisson.toml"),
        carries: 343.0,
        reaches: 0.83,
        stated: 220.0,
        off: NOISE,
    },
    Family {
        name: "jitter-05",
        text: include_str!("../../../scenarios/fresher/jitter-05.toml"),
        carries: 1143.0,
        reaches: 0.62,
        stated: 500.0,
        off: 0.12,
    },
];

impl Family {
    /// Updates/s, and their mean age in ms, with `waiting` queued updates.
    fn run(&self, waiting: f64, ceiling: Option<f64>) -> [f64; 2] {
        let set = |key: &str, value: String| format!("flow.source.updates.params.{key}={value}");
        let ceiling = ceiling.map(|rate| set("bounds.ceiling", format!("{rate}/s")));
        let length = ["runs=3", "duration=30s"].map(str::to_owned);
        let changes = length.into_iter().chain([set("target_queue", waiting.to_string())]);
        let changes: Vec<_> = changes.chain(ceiling).collect();
        let changes: Vec<_> = changes.iter().map(String::as_str).collect();
        let metrics = measured(self.text, &changes);
        [value(&metrics, "updates", "source"), 1e3 * value(&metrics, "age_mean", "source")]
    }

    /// All settings in turn; the throughput must not fall.
    fn turned(&self, ceiling: Option<f64>) -> [[f64; 2]; WAITING.len()] {
        let all = WAITING.map(|waiting| self.run(waiting, ceiling));
        let cells = all.map(|[updates, age]| format!("{updates:.1}, {age:.2}"));
        println!("| {} | {} |", self.name, cells.join(" | "));
        let mut most: f64 = 0.0;
        for [updates, _] in all {
            assert!(updates > (1.0 - NOISE) * most, "{}: {all:?}", self.name);
            most = most.max(updates);
        }
        all
    }
}

#[test]
fn more_that_wait_are_more_updates_up_to_what_the_path_carries() {
    println!("| updates/s, ms | {} |", WAITING.map(|waiting| waiting.to_string()).join(" | "));
    for family in FAMILIES {
        let all = family.turned(None);
        let part = all[WAITING.len() - 1][0] / family.carries;
        println!("  the last is {part:.2} of the {} that the path carries", family.carries);
        assert!(part > family.reaches, "{}: {part}", family.name);
        let least = all.iter().map(|[_, age]| *age).fold(f64::INFINITY, f64::min);
        let freshest = all[FRESHEST][1] / least;
        assert!(freshest < 1.05, "{}: {freshest}", family.name);
    }
}

#[test]
fn more_that_wait_are_more_updates_up_to_a_stated_rate() {
    for family in FAMILIES {
        let stated = family.stated;
        let all = family.turned(Some(stated));
        let reached = all[WAITING.len() - 1][0];
        let is_stated = (reached / stated - 1.0).abs() < family.off;
        assert!(is_stated, "{}: {reached} of {stated}", family.name);
    }
}
