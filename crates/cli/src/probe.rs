//! `freshline probe`: measures the age over the rate on a real path, and how close laws come to the
//! minimum.

mod chart;
mod interrupt;
mod report;
mod sweep;
mod trial;

use std::cell::RefCell;

use clap::value_parser;
use freshline_core::session::SourceParams;
use freshline_core::source::LawName;
use freshline_core::unit::{Span, UpdateRate};
use miette::{IntoDiagnostic, miette};

use crate::failure::Failure;
use crate::html::HtmlArg;
use crate::law::{Settings, law_name};
use crate::mark::MarkArgs;
use crate::output::{print_json, printed};
use crate::run_length::run_length;
use crate::transport::TransportArgs;
use freshline::Url;
use interrupt::Interrupt;
use report::Report;
use sweep::{Range, Sweep};
use trial::{Probe, Timing};

/// Find the fixed rate with the lowest age on a path, and compare laws with it.
///
/// Sends to a running monitor at one fixed rate after the other, each for a few seconds and after
/// the path has drained; then at more rates around the best one; then by each law of --law. With
/// --rounds the laws take turns, in another order in each round, so that a change of the path does
/// not favour one of them; the means then have 95 % intervals. Ages are the source's own, from
/// round trips: higher than the true ones by the delay of the ack. Ctrl-C ends the measurement
/// early, with the results so far.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES

Ages over a path of 2 Mbit/s and 20 ms, with a monitor at 127.0.0.1:4400:

    freshline emulate udp --listen 127.0.0.1:4401 --to 127.0.0.1:4400 \\
        --hop rate=2mbit,delay=20ms,queue=100p &
    freshline probe udp://127.0.0.1:4401

The same in a given range:

    freshline probe udp://127.0.0.1:4401 --from 20/s --to 300/s --steps 8

Four laws in rotation, five rounds of 30 s each:

    freshline probe udp://127.0.0.1:4401 --law acp+d,acp+,tenth,lazy --rounds 5 --duration 30s

EXIT CODES

0  done, or stopped by Ctrl-C, with the results so far
1  the monitor does not answer, or out of system resources
2  the URL or the flags cannot be understood")]
pub(crate) struct Args {
    /// Send to this monitor: quic://HOST:PORT, or udp://HOST:PORT on trusted links.
    url: Url,
    /// Measure these rates, such as 10/s,50/s,100/s, instead of a range that is found
    /// automatically.
    #[arg(long, value_name = "RATES", value_delimiter = ',', conflicts_with_all = ["from", "to", "steps"])]
    rates: Vec<UpdateRate>,
    /// Start the range at this rate, such as 5/s.
    #[arg(long, value_name = "RATE", requires = "to")]
    from: Option<UpdateRate>,
    /// End the range at this rate.
    #[arg(long, value_name = "RATE", requires = "from")]
    to: Option<UpdateRate>,
    /// Measure this number of rates from --from to --to, evenly on a logarithmic scale.
    #[arg(long, value_name = "N", requires = "from", default_value_t = 10, value_parser = value_parser!(u32).range(2..=1000))]
    steps: u32,
    /// Measure this number of additional rates on either side of the best one; 0 leaves out this
    /// second pass.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u32).range(..=1000))]
    refine: u32,
    /// Measure each rate for this long, after a settling time of a quarter of it.
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = run_length)]
    duration_per_rate: Span,
    /// Compare these laws with the best fixed rate.
    #[arg(
        long = "law",
        value_parser = law_name(),
        value_name = "LAWS",
        value_delimiter = ',',
        default_value = "acp+d",
        help_heading = "Rate"
    )]
    laws: Vec<LawName>,
    #[command(flatten)]
    settings: Settings,
    /// Run each law this number of times; the laws take turns.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Run each law for this long in a round; its first third is settling time.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = run_length)]
    duration: Span,
    #[command(flatten)]
    marks: MarkArgs,
    #[command(flatten)]
    transport: TransportArgs,
    /// Send updates with a payload of this many bytes. An update that does not fit into one
    /// datagram (about 1100 bytes over quic://, 1400 over udp://) is sent in several datagrams, and
    /// the rate counts these.
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    size: u16,
    /// Print one JSON document on standard output.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    html: HtmlArg,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    if args.laws.contains(&LawName::Fixed) {
        let message = "--law takes no fixed rate here: --rates gives them";
        return Err(Failure::Usage(miette!("{message}")));
    }
    args.settings.check("--law", &args.laws)?;
    let interrupt = Interrupt::default();
    let on_signal = interrupt.clone();
    ctrlc::set_handler(move || on_signal.interrupt())
        .into_diagnostic()
        .map_err(Failure::Runtime)?;

    let probe = Probe {
        monitor: args.url.remote(),
        transport: args.transport.transport(&args.url)?,
        params: SourceParams {
            name: "probe".to_owned(),
            token: args.transport.token(&args.url)?,
            dscp: args.marks.dscp,
            ack_mark: args.marks.ack_dscp,
            ..SourceParams::default()
        },
        payload: args.size.into(),
        interrupt,
        marks: args.marks.are_given().then(Default::default),
        arrived: RefCell::default(),
    };
    let each = args.duration_per_rate;
    let sweep = Sweep {
        probe: &probe,
        timing: Timing { settle: each / 4, measure: each },
        range: range(&args),
        refine: args.refine,
        after: args.duration * (args.laws.len() as u64 * u64::from(args.rounds)),
    };
    let rates = sweep.run().map_err(|error| Failure::Runtime(error.into()))?;

    let whole = args.duration;
    let timing = Timing { settle: whole / 3, measure: whole - whole / 3 };
    let mut trials: Vec<_> = args.laws.iter().map(|law| (law.as_str(), Vec::new())).collect();
    for (round, index) in turns(args.laws.len(), args.rounds as usize) {
        let law = args.settings.config(args.laws[index]).into_diagnostic();
        let law = law.map_err(Failure::Usage)?.build();
        if args.rounds > 1 {
            say!("round {} of {}: {}", round + 1, args.rounds, trials[index].0);
        }
        let trial = probe.run(law, timing).map_err(|error| Failure::Runtime(error.into()))?;
        let Some(trial) = trial else { break };
        trials[index].1.push(trial);
    }
    let report = Report::new(probe.payload, rates, trials, probe.arrived.into_inner());
    args.html.write(|| report.page(&args.url.to_string()))?;
    if args.json { print_json(&report) } else { printed(report.print_table()) }
}

/// Round and law of each turn: each round begins one law further than the one before.
fn turns(laws: usize, rounds: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..rounds).flat_map(move |round| (0..laws).map(move |turn| (round, (round + turn) % laws)))
}

fn range(args: &Args) -> Range {
    match (args.from, args.to) {
        _ if !args.rates.is_empty() => Range::Given(args.rates.clone()),
        (Some(from), Some(to)) => Range::Given(sweep::spread(from, to, args.steps)),
        _ => Range::Found,
    }
}

#[cfg(test)]
mod tests {
    use super::turns;

    #[test]
    fn each_round_starts_with_another_law() {
        let order: Vec<_> = turns(3, 4).collect();
        let laws: Vec<_> = order.iter().map(|(_, law)| *law).collect();
        assert_eq!(laws, [0, 1, 2, 1, 2, 0, 2, 0, 1, 0, 1, 2]);
        assert_eq!(order[5], (1, 0));
    }
}
