//! The effect of each choice of `freshline_core::source` where the papers are silent or the prototype
//! differs from them: `cargo run -p freshline-core --example mdec [SEED]`.
//!
//! Runs `acp+d` over the path of the demonstration (two slow hops, one fast hop, 30 ms base RTT) with
//! one choice changed at a time. In the "drop" runs, cross traffic takes two thirds of the bottleneck
//! from 30 s to 60 s. "down" and "back" are the seconds until the age is within 15 % of its mean over
//! the last ten of the thirty seconds that follow the change.

#[path = "../tests/common/path_run.rs"]
mod path_run;

use std::process::ExitCode;

use freshline_core::source::{
    AcpPlus, AcpPlusParams, Backlog, EstimatorParams, GapSource, Losses, MultiplicativeDecrease,
    Tie,
};
use freshline_core::unit::{Span, Time};
use path_run::{Course, Cross, Outcome, Second, Service, hops, two_slow_one_fast};

/// When the capacity drops and comes back, and when the run ends, in s.
const DROP: (usize, usize, usize) = (30, 60, 90);

fn main() -> ExitCode {
    let seed = match std::env::args().nth(1).map(|seed| seed.parse()).unwrap_or(Ok(1)) {
        Ok(seed) => seed,
        Err(error) => {
            eprintln!("the seed is no whole number ({error}); give one such as 1, or none");
            return ExitCode::from(2);
        }
    };
    println!("seed {seed}");
    let paths = Paths::new(seed);
    println!(
        "\n{:<22}{:<14}{:>9}{:>9}{:>9}{:>9}",
        "choice", "path", "age ms", "p95 ms", "rate /s", "backlog"
    );
    choices_of_steps(&paths);
    choices_of_estimates(&paths);
    choices_of_epochs(&paths);
    drops(&paths);
    ExitCode::SUCCESS
}

/// The paths on which each choice is tried.
struct Paths {
    steady: Course,
    random: Course,
    lossy: Course,
    losses: Course,
    jittery: Course,
}

impl Paths {
    fn new(seed: u64) -> Self {
        let steady = Course { seed, ..two_slow_one_fast() };
        let random = Course {
            service: Service::Exponential,
            length: Span::from_secs(610),
            ..steady.clone()
        };
        let lossy =
            Course { back: hops(["rate=20mbit,delay=15ms,loss=0.1,queue=100p"]), ..steady.clone() };
        let mut losses = Course { length: Span::from_secs(610), ..lossy.clone() };
        losses.forward.hop[0].loss = 0.05;
        let jittery =
            Course { back: hops(["delay=15ms,jitter=10ms,order=free"]), ..steady.clone() };
        Self { steady, random, lossy, losses, jittery }
    }

    /// With timers that are late.
    fn late(&self, micros: u64) -> Course {
        Course {
            lateness: Span::from_micros(micros),
            length: Span::from_secs(610),
            ..self.steady.clone()
        }
    }
}

fn choices_of_steps(paths: &Paths) {
    for (name, multiplicative_decrease) in [
        ("mdec targeted", MultiplicativeDecrease::Targeted),
        ("mdec largest step", MultiplicativeDecrease::LargestStep),
    ] {
        let params = AcpPlusParams { multiplicative_decrease, ..AcpPlusParams::departure() };
        compare(name, params, &[("steady", &paths.steady), ("random", &paths.random)]);
    }
    for (name, gap_source) in
        [("gaps of the monitor", GapSource::Monitor), ("gaps of acks", GapSource::Acks)]
    {
        let params = estimating(EstimatorParams { gap_source, ..EstimatorParams::departure() });
        compare(name, params, &[("10% ack loss", &paths.lossy), ("ack jitter", &paths.jittery)]);
    }
}

fn choices_of_estimates(paths: &Paths) {
    for (name, losses_as) in
        [("losses bridged", Losses::Bridged), ("losses as seen", Losses::AsSeen)]
    {
        let params =
            estimating(EstimatorParams { losses: losses_as, ..EstimatorParams::departure() });
        compare(
            name,
            params,
            &[("steady", &paths.steady), ("random", &paths.random), ("5%+10% loss", &paths.losses)],
        );
    }
    for (name, backlog) in
        [("backlog at departure", Backlog::AtDeparture), ("backlog over time", Backlog::OverTime)]
    {
        let params = estimating(EstimatorParams { backlog, ..EstimatorParams::departure() });
        compare(
            name,
            params,
            &[
                ("steady", &paths.steady),
                ("late 50 us", &paths.late(50)),
                ("late 300 us", &paths.late(300)),
                ("random", &paths.random),
                ("5%+10% loss", &paths.losses),
            ],
        );
    }
}

fn choices_of_epochs(paths: &Paths) {
    for (name, epoch_updates) in [("epoch of 10", 10), ("epoch of 40", 40)] {
        let params = AcpPlusParams { epoch_updates, ..AcpPlusParams::departure() };
        compare(
            name,
            params,
            &[("steady", &paths.steady), ("random", &paths.random), ("5%+10% loss", &paths.losses)],
        );
    }
    for (name, tie) in
        [("tie: increase", Tie::Increase), ("tie: hold", Tie::Hold), ("tie: repeat", Tie::Repeat)]
    {
        compare(
            name,
            AcpPlusParams { tie, ..AcpPlusParams::departure() },
            &[("steady", &paths.steady), ("random", &paths.random)],
        );
    }
}

fn drops(paths: &Paths) {
    println!(
        "\n{:<22}{:>14}{:>9}{:>9}{:>16}",
        "drop to a third", "worst s, ms", "down s", "back s", "updates/s then"
    );
    for (name, multiplicative_decrease) in [
        ("mdec targeted", MultiplicativeDecrease::Targeted),
        ("mdec largest step", MultiplicativeDecrease::LargestStep),
    ] {
        drop_and_recover(
            name,
            AcpPlusParams { multiplicative_decrease, ..AcpPlusParams::departure() },
            &paths.steady,
        );
    }
    for (name, losses) in [("losses bridged", Losses::Bridged), ("losses as seen", Losses::AsSeen)]
    {
        let params = estimating(EstimatorParams { losses, ..EstimatorParams::departure() });
        drop_and_recover(name, params, &paths.steady);
    }
}

fn estimating(estimator: EstimatorParams) -> AcpPlusParams {
    AcpPlusParams { estimator, ..AcpPlusParams::departure() }
}

fn compare(name: &str, params: AcpPlusParams, courses: &[(&str, &Course)]) {
    for (path, course) in courses {
        let Outcome { age, sent_per_second, backlog, .. } = course.run(&mut AcpPlus::new(params));
        println!(
            "{name:<22}{path:<14}{:>9.2}{:>9.2}{sent_per_second:>9.1}{backlog:>9.2}",
            age.mean.as_millis_f64(),
            age.p95.as_millis_f64(),
        );
    }
}

fn drop_and_recover(name: &str, params: AcpPlusParams, steady: &Course) {
    let (from, until, end) = DROP;
    let at = |second: usize| Time::ZERO + Span::from_secs(second as u64);
    let course = Course {
        cross: Some(Cross {
            rate: steady.bottleneck().scaled(2.0 / 3.0),
            from: at(from),
            until: at(until),
        }),
        length: Span::from_secs(end as u64),
        ..steady.clone()
    };
    let seconds = course.run(&mut AcpPlus::new(params)).seconds;
    let worst = seconds[from..until].iter().map(|second| second.age).max().unwrap_or_default();
    println!(
        "{name:<22}{:>14.0}{:>9}{:>9}{:>16.1}",
        worst.as_millis_f64(),
        settled_after(&seconds[from..until]),
        settled_after(&seconds[until..end]),
        mean(&seconds[until - 10..until], |second| second.rate.per_second()),
    );
}

/// Seconds until the age is within 15 % of its mean over the last ten seconds.
fn settled_after(seconds: &[Second]) -> usize {
    let last = mean(&seconds[seconds.len() - 10..], |second| second.age.as_secs_f64());
    seconds.iter().take_while(|second| second.age.as_secs_f64() > 1.15 * last).count()
}

fn mean(seconds: &[Second], of: impl Fn(&Second) -> f64) -> f64 {
    seconds.iter().map(of).sum::<f64>() / seconds.len() as f64
}
