//! Large states compared with TCP and QUIC: ages of states of 100 B to 1 MB over a grid of paths, in virtual time
//! and over sockets.
//!
//! ```text
//! cargo run --release -p freshline-net --example large_states_beside training
//! cargo run --release -p freshline-net --example large_states_beside held-out
//! cargo run --release -p freshline-net --example large_states_beside training --sample 12
//! cargo run --release -p freshline-net --example large_states_beside sockets
//! ```
//!
//! `training` and `held-out` are the halves of a chequerboard of 315 paths; `--sample N` takes N paths of a
//! half. The output has one line per path: the ages of our source under two laws, of one TCP stream, of QUIC
//! with a stream per state, and of the best fixed rate. A table of the bounds on the law's age follows.
//! `sockets` measures 12 of the paths in real time too: our source and monitor, the kernel's CUBIC and QUIC, over
//! the path emulator (see [`sockets`]). It needs root and /dev/net/tun; without them it prints `skipped: needs …`.
//! `docs/large-states.md` has the results.

mod age;
mod ends;
mod grid;
mod lab;
mod quic;
mod report;
mod sockets;
mod streams;
mod watched;

use std::process::ExitCode;

use rayon::prelude::*;

use report::Point;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let (half, sample) = match arguments[..] {
        ["training"] => (0, None),
        ["held-out"] => (1, None),
        ["training", "--sample", count] => (0, Some(count)),
        ["held-out", "--sample", count] => (1, Some(count)),
        ["sockets", ref numbers @ ..] => return sockets::compare(numbers),
        // The process behind the path, which `sockets` starts.
        ["send", ref how @ ..] => return sockets::send(how),
        _ => {
            eprintln!(
                "usage: large_states_beside training|held-out [--sample N]\n       large_states_beside sockets [NUMBER …]"
            );
            return ExitCode::from(2);
        }
    };
    let mut paths = grid::half(half);
    if let Some(count) = sample {
        let Some(count) = count.parse().ok().filter(|count| (1..=paths.len()).contains(count))
        else {
            eprintln!("--sample {count}: give a number of paths from 1 to {}", paths.len());
            return ExitCode::from(2);
        };
        let total = paths.len();
        paths = (0..count).map(|index| paths[index * total / count]).collect();
    }
    report::print_head();
    let points: Vec<_> = paths
        .into_par_iter()
        .with_max_len(1)
        .map(|path| {
            let point = Point::measure(path);
            // Printed at once, because a half takes long.
            println!("{}", point.line());
            point
        })
        .collect();
    report::print_summary(&points);
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use crate::grid::{Loss, Path};
    use crate::quic::{Control, run};
    use crate::streams::Resets;
    use crate::{lab, report::Point};

    const CLEAN: Path =
        Path { loss: Loss { percent: 0, burst: 0 }, size: 10_000, rate: 10, round_trip: 50 };

    #[test]
    fn quic_over_a_clean_path_has_the_age_of_its_transmission_and_at_most_the_queue() {
        // Seven packets with at least 28 bytes of UDP over IPv4 each.
        let state = (10e3 + 7.0 * 28.0) * 8.0 / 10e6;
        // A state is sampled when its first packet leaves. It is complete after its transmission time and the
        // delay, and the next one after another transmission time.
        let lower = 0.025 + 1.5 * state;
        let queue = 100.0 * 1500.0 * 8.0 / 10e6;
        for control in [Control::Cubic, Control::Bbr] {
            for resets in [Resets::AtOnce, Resets::BehindTwo] {
                let age = run(&CLEAN, control, resets).mean;
                let at = format!("{control:?}, {resets:?}: {age} s, in theory from {lower} s");
                assert!((lower..lower + queue).contains(&age), "{at}");
            }
        }
    }

    #[test]
    fn a_line_has_the_better_rule_of_resets_and_the_ratios() {
        let loss = Loss { percent: 5, burst: 0 };
        let path = Path { loss, ..CLEAN };
        let line = Point::measure(path).line();
        let cells: Vec<_> = line.split(" | ").collect();
        let mean =
            |cell: &str| -> f64 { cell.split(',').next().unwrap().parse().expect("a number") };
        let rules =
            [Resets::AtOnce, Resets::BehindTwo].map(|it| run(&path, Control::Cubic, it).mean);
        let better = 1e3 * rules[0].min(rules[1]);
        assert!((mean(cells[8]) / better - 1.0).abs() < 0.01, "{better} ms: {line}");
        assert!((mean(cells[7]) / (1e3 * lab::tcp(&path).mean) - 1.0).abs() < 0.01, "{line}");
        assert!(mean(cells[5]) < mean(cells[7]).min(mean(cells[8])), "{line}");
    }
}
