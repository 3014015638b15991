//! One line per path, and how many paths meet each bound.

use crate::age::Age;
use crate::grid::Path;
use crate::lab::{self, Ours};
use crate::quic::{self, Control};
use crate::streams::Resets;

/// The maximum number of paths listed per bound, the worst first.
const LISTED: usize = 12;

/// A path with all ages.
pub(crate) struct Point {
    path: Path,
    pub(crate) ours: Ours,
    pub(crate) tcp: Age,
    /// With CUBIC and with BBR, each under the reset rule with the lower mean age.
    pub(crate) quic: [Age; 2],
    /// Whether that rule is [`Resets::AtOnce`].
    pub(crate) at_once: [bool; 2],
}

impl Point {
    pub(crate) fn measure(path: Path) -> Self {
        let best = |control| {
            let at_once = quic::run(&path, control, Resets::AtOnce);
            let best = at_once.min(quic::run(&path, control, Resets::BehindTwo));
            (best, best == at_once)
        };
        let both = [Control::Cubic, Control::Bbr].map(best);
        let (quic, at_once) = (both.map(|(age, _)| age), both.map(|(_, at_once)| at_once));
        Self { path, ours: lab::ours(&path), tcp: lab::tcp(&path), quic, at_once }
    }

    fn name(&self) -> String {
        let Path { loss, size, rate, round_trip } = self.path;
        let burst =
            if loss.burst > 0 { format!(" in bursts of {}", loss.burst) } else { String::new() };
        format!("{} over {rate} Mbit/s and {round_trip} ms, {} %{burst}", bytes(size), loss.percent)
    }

    pub(crate) fn line(&self) -> String {
        let Path { loss, size, rate, round_trip } = self.path;
        let Ours { tenth, acp_d, fixed } = self.ours;
        let [cubic, bbr] = self.quic;
        let [by_cubic, by_bbr] = self.at_once.map(|it| if it { "at once" } else { "behind two" });
        let burst = if loss.burst > 0 { format!("{}", loss.burst) } else { "–".to_owned() };
        format!(
            "| {} | {rate} | {round_trip} | {} | {burst} | {} | {} | {} | {} | {by_cubic} | {} | {by_bbr} | {} \
             | {:.2} | {:.2} | {:.2} | {:.2} |",
            bytes(size),
            loss.percent,
            ms(tenth),
            ms(acp_d),
            ms(self.tcp),
            ms(cubic),
            ms(bbr),
            ms(fixed),
            tenth.mean / fixed.mean,
            tenth.mean / self.tcp.mean,
            tenth.mean / cubic.mean,
            tenth.mean / bbr.mean,
        )
    }
}

pub(crate) fn bytes(size: u64) -> String {
    match size {
        1_000_000.. => format!("{} MB", size / 1_000_000),
        1_000.. => format!("{} kB", size / 1_000),
        _ => format!("{size} B"),
    }
}

/// Mean and 99 % quantile, in ms.
pub(crate) fn ms(age: Age) -> String {
    let number = |seconds: f64| match seconds * 1e3 {
        ms if ms < 100.0 => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    };
    format!("{}, {}", number(age.mean), number(age.p99))
}

pub(crate) fn print_head() {
    println!(
        "| state | Mbit/s | RTT, ms | loss, % | burst | tenth | acp+d | TCP | QUIC CUBIC | resets | QUIC BBR \
         | resets | best fixed rate | tenth / best | / TCP | / QUIC CUBIC | / QUIC BBR |"
    );
    println!("|---:|---:|---:|---:|---|---|---|---|---|---|---|---|---|---:|---:|---:|---:|");
}

/// A bound on the mean age of our source relative to another age.
struct Bound {
    name: &'static str,
    /// The ratio; `None` where the bound does not apply.
    ratio: fn(&Point, Age) -> Option<f64>,
    /// Whether the ratio may be equal to the limit.
    limit: Limit,
}

enum Limit {
    AtMost(f64),
    Below(f64),
}

impl Limit {
    fn holds(&self, ratio: f64) -> bool {
        match *self {
            Self::AtMost(limit) => ratio <= limit,
            Self::Below(limit) => ratio < limit,
        }
    }
}

const BOUNDS: [Bound; 7] = [
    Bound {
        name: "at most 1.15 of the best fixed rate without losses",
        ratio: |point, age| {
            (point.path.loss.percent == 0).then(|| age.mean / point.ours.fixed.mean)
        },
        limit: Limit::AtMost(1.15),
    },
    Bound {
        name: "at most 1.4 of the best fixed rate with 5 % lost",
        ratio: |point, age| {
            (point.path.loss.percent == 5).then(|| age.mean / point.ours.fixed.mean)
        },
        limit: Limit::AtMost(1.4),
    },
    Bound {
        name: "below TCP",
        ratio: |point, age| Some(age.mean / point.tcp.mean),
        limit: Limit::Below(1.0),
    },
    Bound {
        name: "below QUIC with CUBIC",
        ratio: |point, age| Some(age.mean / point.quic[0].mean),
        limit: Limit::Below(1.0),
    },
    Bound {
        name: "below QUIC with BBR",
        ratio: |point, age| Some(age.mean / point.quic[1].mean),
        limit: Limit::Below(1.0),
    },
    Bound {
        name: "p99 below TCP and QUIC with CUBIC",
        ratio: |point, age| Some(age.p99 / point.tcp.p99.min(point.quic[0].p99)),
        limit: Limit::Below(1.0),
    },
    Bound {
        name: "below half of TCP with 5 % lost",
        ratio: |point, age| (point.path.loss.percent == 5).then(|| age.mean / point.tcp.mean),
        limit: Limit::Below(0.5),
    },
];

/// Prints the number of paths that meet each bound with either law, and the worst paths with `tenth`.
pub(crate) fn print_summary(points: &[Point]) {
    println!("\n{} paths\n", points.len());
    println!("| bound on the age | tenth | acp+d | of paths | worst ratio of tenth |");
    println!("|---|---:|---:|---:|---:|");
    for bound in &BOUNDS {
        let ratios = |age: fn(&Point) -> Age| -> Vec<f64> {
            points.iter().filter_map(|point| (bound.ratio)(point, age(point))).collect()
        };
        let (tenth, acp_d) = (ratios(|point| point.ours.tenth), ratios(|point| point.ours.acp_d));
        let met = |ratios: &[f64]| ratios.iter().filter(|ratio| bound.limit.holds(**ratio)).count();
        let worst = tenth.iter().copied().fold(0.0, f64::max);
        let (name, of) = (bound.name, tenth.len());
        println!("| {name} | {} | {} | {of} | {worst:.2} |", met(&tenth), met(&acp_d));
    }
    for bound in &BOUNDS {
        let ratio = |point: &Point| (bound.ratio)(point, point.ours.tenth);
        let missed = points.iter().filter_map(|point| Some((ratio(point)?, point)));
        let mut missed: Vec<_> = missed.filter(|(ratio, _)| !bound.limit.holds(*ratio)).collect();
        missed.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        if missed.is_empty() {
            continue;
        }
        println!("\nNot {} (tenth), the worst first:", bound.name);
        for (ratio, point) in missed.iter().take(LISTED) {
            println!("- {ratio:.2}: {}", point.name());
        }
    }
}
