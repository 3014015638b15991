//! `freshline demo`: six sources on the same emulated path.

mod contest;
mod lane;
mod report;
mod view;

use freshline_core::age::theory::{Hop, path_lower_bound};
use freshline_core::link::{ConditionsConfig, HopConfig};
use freshline_core::source::{Fixed, LawName, RateLaw};
use freshline_core::unit::{Bytes, Span, UpdateRate};
use freshline_core::wire::Update;
use miette::{IntoDiagnostic, WrapErr};

use crate::failure::Failure;
use crate::law::Settings;
use crate::output::{print_json, printed, stop_on_signals};
use crate::run_length::run_length;
use contest::Contest;
use report::Report;
use view::View;

/// Compare ACP+, Tenth, Lazy and two fixed rates over real sockets and the same emulated path.
///
/// Six sources run at the same time, each over its own path with the same conditions, to one
/// monitor. The ages are the true ones at the monitor, as both ends use one clock. On a terminal
/// the run is drawn live; q or Ctrl-C ends it early, with the table of the measurements until then.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLE

    freshline demo --duration 20s

EXIT CODES

0  done, or stopped by q or Ctrl-C, with the table
1  cannot open a socket, or out of system resources
2  the flags cannot be understood")]
pub(crate) struct Args {
    #[command(flatten)]
    settings: Settings,
    /// Run the sources for this long.
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = run_length)]
    duration: Span,
    /// Print one JSON document on standard output, and nothing else.
    #[arg(long)]
    json: bool,
    /// Repeat the emulators' random choices of an earlier run. Default: a random seed, which is
    /// printed.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

const PATH_FILE: &str = include_str!("../scenarios/paths/two-slow-one-fast.toml");

/// Payload of each update: the size that the papers use.
const PAYLOAD: usize = 1024;

/// IP and UDP headers of a datagram over IPv4, as the emulator counts them.
const IPV4_UDP: usize = 28;

/// 10/s: less than half of the rate of Lazy on this path, as a user would choose to spare the
/// network.
const SLOW: f64 = 10.0;

/// The fast fixed rate, as a multiple of the bottleneck rate.
const OVERLOAD: f64 = 1.2;

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    args.settings.check("the law", &LAWS)?;
    let stop = stop_on_signals()?;
    let conditions = conditions();
    let updates = Updates::over(&conditions.forward.hop);
    // 32 bits are enough, and every JSON parser represents them exactly.
    let seed = args.seed.unwrap_or_else(|| rand::random::<u32>().into());
    let contest = Contest {
        conditions: conditions.clone(),
        laws: laws(&args.settings, updates.bottleneck),
        seed,
        duration: args.duration,
    };
    let mut view = View::new(args.json).into_diagnostic().map_err(Failure::Runtime)?;
    let runs = contest.run(&stop, &mut view);
    drop(view); // restores the terminal before anything is printed
    let runs = runs.wrap_err("the demonstration broke off").map_err(Failure::Runtime)?;
    let report = Report::new(conditions, updates, seed, runs);
    if args.json { print_json(&report) } else { printed(report.print_table()) }
}

/// The path of the demonstration.
fn conditions() -> ConditionsConfig {
    toml::from_str(PATH_FILE).expect("the path file that was built in is valid")
}

/// The laws that find a rate; two fixed rates follow them.
const LAWS: [LawName; 4] = [LawName::AcpPlusD, LawName::AcpPlus, LawName::Tenth, LawName::Lazy];

fn laws(settings: &Settings, bottleneck: UpdateRate) -> Vec<(&'static str, Box<dyn RateLaw>)> {
    let seeking = LAWS.map(|law| {
        let config = settings.config(law).expect("each finds its rate");
        (law.as_str(), config.build())
    });
    let slow: Box<dyn RateLaw> = Box::new(Fixed::new(UpdateRate::saturating(SLOW)));
    let fast: Box<dyn RateLaw> = Box::new(Fixed::new(bottleneck.scaled(OVERLOAD)));
    seeking.into_iter().chain([("fixed-slow", slow), ("fixed-fast", fast)]).collect()
}

/// Bounds of a path for updates of the demonstration's size.
#[derive(Debug, Clone, Copy)]
struct Updates {
    /// No source can keep the mean age below this.
    lower_bound: Span,
    /// The rate of the slowest hop, in updates per second.
    bottleneck: UpdateRate,
}

impl Updates {
    fn over(hops: &[HopConfig]) -> Self {
        let size = Bytes::from(PAYLOAD + Update::HEADER_LEN + IPV4_UDP);
        let serialisation =
            |hop: &HopConfig| hop.rate.map_or(Span::ZERO, |rate| rate.time_to_send(size));
        let slowest = hops.iter().map(serialisation).max().unwrap_or_default();
        let hops = hops
            .iter()
            .map(|hop| Hop { serialisation: serialisation(hop), propagation: hop.delay });
        Self { lower_bound: path_lower_bound(hops), bottleneck: UpdateRate::from_period(slowest) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_bounds_age_from_below_and_rate_from_above() {
        let updates = Updates::over(&conditions().forward.hop);
        // 1092 bytes: 4.368 ms on each slow hop, 0.4368 ms on the fast one, 15 ms of delays.
        assert_eq!(updates.lower_bound, Span::from_nanos(26_356_800));
        assert!((updates.bottleneck.per_second() - 228.94).abs() < 0.01);
    }
}
