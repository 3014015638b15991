//! Mean ages of states of n symbols: the repair law, fixed rules, and the best fixed rule for each path.
//!
//! ```text
//! cargo run --release -p freshline-core --example large_states training
//! cargo run --release -p freshline-core --example large_states held-out
//! cargo run --release -p freshline-core --example large_states put
//! ```
//!
//! `training` and `held-out` are the halves of a chequerboard of 700 paths, in pull mode. `put` is push mode:
//! the application sets the times of states. `--points` prints each path. `docs/large-states.md` has the results.

#[path = "../tests/common/state_run.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod state_run;

use std::process::ExitCode;

use state_run::{Channel, Course, Former, Outcome, Rule, mean_with_instant_feedback, run};

const SYMBOLS: [u32; 10] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];
/// In slots.
const ROUND_TRIPS: [u32; 7] = [1, 3, 10, 30, 100, 300, 1000];
const CHANNELS: [Channel; 10] = [
    Channel { loss: 0.0, burst: 0.0 },
    Channel { loss: 0.01, burst: 0.0 },
    Channel { loss: 0.01, burst: 5.0 },
    Channel { loss: 0.01, burst: 20.0 },
    Channel { loss: 0.05, burst: 0.0 },
    Channel { loss: 0.05, burst: 5.0 },
    Channel { loss: 0.05, burst: 20.0 },
    Channel { loss: 0.2, burst: 0.0 },
    Channel { loss: 0.2, burst: 5.0 },
    Channel { loss: 0.2, burst: 20.0 },
];
const REPAIR: [u32; 21] =
    [0, 1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 90, 128, 181, 256, 362, 512, 724, 1000];

/// The mean age of each rule relative to the best one.
struct Point {
    name: String,
    law: Outcome,
    best: Outcome,
    instant: f64,
    /// The ratio of both means without the forward delay.
    without_delay: f64,
    /// The best of the rules that wait for acks before they begin the next state.
    waiting: f64,
    /// The fixed rules of [`compared`].
    others: Vec<f64>,
}

fn fixed(repair: u32, former: Former) -> Rule {
    Rule::Fixed { repair, former, retransmits: true, is_waiting: false }
}

/// Always retransmit; never repair; 10 % and 25 % of repair symbols without retransmission for previous
/// states.
fn compared(n: u32) -> [Rule; 4] {
    let never =
        Rule::Fixed { repair: 0, former: Former::Never, retransmits: false, is_waiting: false };
    [
        fixed(0, Former::Always),
        never,
        fixed(n.div_ceil(10), Former::Never),
        fixed(n.div_ceil(4), Former::Never),
    ]
}

/// All fixed rules of the search.
fn candidates(n: u32) -> Vec<Rule> {
    let mut rules = compared(n).to_vec();
    for repair in REPAIR.into_iter().filter(|count| *count <= n) {
        rules.push(fixed(repair, Former::Never));
        rules.push(fixed(repair, Former::Always));
        for ratio in [0.0, 1.0, 2.5] {
            for extra in [0, 1, 3] {
                rules.push(fixed(repair, Former::Ratio { ratio, extra }));
            }
        }
    }
    rules
}

/// Rules that begin the next state when the current one is known to be complete.
fn waiting(n: u32) -> Vec<Rule> {
    let former = Former::Never;
    let counts = REPAIR.into_iter().filter(|count| *count <= n);
    let rule = |repair| Rule::Fixed { repair, former, retransmits: true, is_waiting: true };
    counts.map(rule).collect()
}

fn best_of(course: Course<'_>, rules: &[Rule]) -> Outcome {
    let outcomes = rules.iter().map(|rule| run(course, *rule));
    outcomes.min_by(|one, other| one.mean.total_cmp(&other.mean)).expect("rules")
}

/// The paths of one half, by channel.
fn half(wanted: usize) -> Vec<(Channel, Vec<Point>)> {
    let rows = CHANNELS.into_iter().enumerate().map(|(l, channel)| {
        let mut points = Vec::new();
        for (i, n) in SYMBOLS.into_iter().enumerate() {
            for (j, round_trip) in ROUND_TRIPS.into_iter().enumerate() {
                if (i + j + l) % 2 != wanted {
                    continue;
                }
                let slots = 40_000.max(200 * n).max(60 * round_trip) as usize;
                let lost = channel.losses(slots, (i * 100 + j * 10 + l) as u64 + 1);
                let course = Course { symbols: n, round_trip, puts: None, lost: &lost };
                let waiting = best_of(course, &waiting(n));
                let zero_wait = best_of(course, &candidates(n));
                let law = run(course, Rule::Law);
                let best = if waiting.mean < zero_wait.mean { waiting } else { zero_wait };
                let delay = f64::from(round_trip) / 2.0;
                points.push(Point {
                    name: format!("n {n}, R {round_trip}"),
                    law,
                    best,
                    without_delay: (law.mean - delay) / (best.mean - delay),
                    waiting: waiting.mean / zero_wait.mean,
                    instant: mean_with_instant_feedback(course),
                    others: compared(n).map(|rule| run(course, rule).mean).to_vec(),
                });
            }
        }
        (channel, points)
    });
    rows.collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn max(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

fn print_half(rows: &[(Channel, Vec<Point>)], prints_points: bool) {
    println!(
        "| loss, % | burst | law: median | worst | at | p99, worst | law / instant, worst | ARQ, worst | none, worst | FEC 10 %, worst | FEC 25 %, worst |"
    );
    println!("|---:|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|");
    for (channel, points) in rows {
        let ratio = |point: &Point| point.law.mean / point.best.mean;
        let worst = points.iter().max_by(|one, other| ratio(one).total_cmp(&ratio(other)));
        let worst = worst.expect("points");
        let p99: Vec<_> = points.iter().map(|point| point.law.p99 / point.best.p99).collect();
        let instant: Vec<_> = points.iter().map(|point| point.law.mean / point.instant).collect();
        let other = |index: usize| {
            let all: Vec<_> =
                points.iter().map(|point| point.others[index] / point.best.mean).collect();
            max(&all)
        };
        println!(
            "| {:.0} | {} | {:.3} | {:.3} | {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} |",
            100.0 * channel.loss,
            if channel.burst > 0.0 { format!("{}", channel.burst) } else { "–".to_owned() },
            median(points.iter().map(ratio).collect()),
            ratio(worst),
            worst.name,
            max(&p99),
            max(&instant),
            other(0),
            other(1),
            other(2),
            other(3),
        );
        for point in points.iter().filter(|_| prints_points) {
            let (law, best) = (point.law, point.best);
            eprintln!(
                "{} {} {}: law {:.1} p99 {:.0}, best {:.1} p99 {:.0}, instant {:.1}, {:.1?}",
                channel.loss,
                channel.burst,
                point.name,
                law.mean,
                law.p99,
                best.mean,
                best.p99,
                point.instant,
                point.others
            );
        }
    }
}

/// Where it pays to wait for acks.
fn print_waiting(rows: &[(Channel, Vec<Point>)]) {
    let points = || rows.iter().flat_map(|(_, points)| points);
    let better: Vec<_> = points().map(|point| point.waiting).filter(|it| *it < 0.995).collect();
    let lowest = better.iter().copied().fold(1.0, f64::min);
    println!(
        "\nOn {} of {} paths the best rule waits for acks; its age is at least {lowest:.3} of the other \
         rules'.",
        better.len(),
        points().count(),
    );
    let over = points().filter(|point| point.law.mean > 1.05 * point.best.mean).count();
    let without_delay = points().map(|point| point.without_delay).fold(0.0, f64::max);
    println!(
        "Without the forward delay in both ages the largest ratio of law and best is {without_delay:.3}."
    );
    println!("On {over} paths the law's mean age is more than 1.05 of the best one.");
}

/// States that are put every `period` slots, or at random times.
fn puts(slots: usize, period: f64, is_random: bool) -> Vec<u32> {
    // A symbol that is lost with probability 1/period: a put.
    let at_random = Channel { loss: 1.0 / period, burst: 0.0 }.losses(slots, 77);
    let mut next = 0.0;
    let is_put = |slot: &usize| match is_random {
        true => *slot == 0 || at_random[*slot],
        false => {
            let is_due = *slot as f64 >= next;
            next += if is_due { period } else { 0.0 };
            is_due
        }
    };
    (0..slots).filter(is_put).map(|slot| slot as u32).collect()
}

/// States that are put: finish or replace.
fn print_put() {
    println!(
        "| period / n | times | loss, % | law / best | never replacing / best | always / best | longest gap, n |"
    );
    println!("|---:|---|---:|---:|---:|---:|---:|");
    for ratio in [0.1, 0.3, 0.55, 0.8, 1.05, 1.5, 3.0] {
        for (is_random, loss) in [(false, 0.0), (false, 0.05), (true, 0.0), (true, 0.05)] {
            let (n, round_trip) = (100, 60);
            let channel = Channel { loss, burst: 0.0 };
            let lost = channel.losses(100_000, 5);
            let puts = puts(lost.len(), ratio * f64::from(n), is_random);
            let course = Course { symbols: n, round_trip, puts: Some(&puts), lost: &lost };
            let law = run(course, Rule::Law);
            let shares = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];
            let mut rules = shares.map(Rule::LawReplacing).to_vec();
            rules.extend(candidates(n));
            let best = best_of(course, &rules).mean;
            let [never, always] = [0.0, 1.0].map(|share| run(course, Rule::LawReplacing(share)));
            let always_ratio = match always.delivered > 0.0 {
                true => format!("{:.3}", always.mean / best),
                false => "delivers nothing".to_owned(),
            };
            println!(
                "| {ratio} | {} | {:.0} | {:.3} | {:.3} | {always_ratio} | {:.2} |",
                if is_random { "random" } else { "periodic" },
                100.0 * loss,
                law.mean / best,
                never.mean / best,
                f64::from(law.max_gap) / f64::from(n),
            );
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let prints_points = arguments.iter().any(|it| it == "--points");
    match arguments.first().map(String::as_str) {
        Some(set @ ("training" | "held-out")) => {
            let rows = half(usize::from(set == "held-out"));
            print_half(&rows, prints_points);
            print_waiting(&rows);
        }
        Some("put") => print_put(),
        other => {
            eprintln!("{other:?} is not a set of paths; give training, held-out or put");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
