//! `freshline router suggest`: the share of updates for a given age or throughput.

use std::io::{self, Write};

use freshline_core::router::analysis::{Bottleneck, Suggestion, Wish};
use freshline_core::router::{Classifier, SchedulerParams, SdmParams, TdmParams};
use freshline_core::unit::{BitRate, Bytes, Span};
use freshline_net::clock::Clock;
use freshline_net::router::{WatchedFlow, Watcher};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{print_json, printed, stop_on_signals};

/// Suggest the share of updates for a given age or throughput, or watch flows and their classes.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Sizes are those on the wire, with all headers. All flows are equal, their updates come evenly, and
other traffic fills the rest of the link. The book's page on the router lists the further
assumptions.

EXAMPLES

    A mean age of at most 20 ms, and as much as possible for other traffic:
        freshline router suggest --rate 10mbit --delay 10ms --interval 5ms --size 1052B \\
            --max-age 20ms

    9 Mbit/s for other traffic, shared by time:
        freshline router suggest --rate 10mbit --delay 10ms --interval 5ms --size 1052B \\
            --min-throughput 9mbit --scheduler tdm

    Which flows leave through eth1, how these rules would class them, and why; needs root:
        freshline router suggest --watch eth1 --classify 'update; dscp=EF' --duration 10s")]
pub(crate) struct Args {
    /// Watch the flows that leave through this device, and show their classes with reasons. Changes
    /// nothing.
    #[arg(long, value_name = "DEV", conflicts_with_all = ["rate", "interval", "size", "wish"])]
    watch: Option<String>,

    /// Classify by these rules with --watch, as in `router run`; default: `update`.
    #[arg(long, value_name = "RULES", requires = "watch")]
    classify: Option<Classifier>,

    /// Stop after this time with --watch, such as 10s; by default, Ctrl-C stops it.
    #[arg(long, value_name = "TIME", requires = "watch")]
    duration: Option<Span>,

    /// Assume this rate of the link, such as 10mbit.
    #[arg(long, required_unless_present = "watch")]
    rate: Option<BitRate>,

    /// Assume this fixed delay of updates, of the link and everything else except its queue.
    #[arg(long, default_value = "0ms")]
    delay: Span,

    /// Assume this number of flows of updates.
    #[arg(long, default_value_t = 1)]
    flows: u32,

    /// Assume this time between two updates of a flow.
    #[arg(long, required_unless_present = "watch")]
    interval: Option<Span>,

    /// Assume this size of an update, in bytes.
    #[arg(long, required_unless_present = "watch")]
    size: Option<Bytes>,

    /// Assume this size of other packets, in bytes.
    #[arg(long, default_value = "1500B")]
    packet_size: Bytes,

    #[command(flatten)]
    wish: WishArgs,

    /// Share these between the classes.
    #[arg(long, value_enum, default_value_t = Scheduler::Sdm)]
    scheduler: Scheduler,

    /// Give each class priority once in this time; 100ms if unset. For tdm only.
    #[arg(long)]
    frame: Option<Span>,

    /// Print one JSON document on standard output.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
#[group(id = "wish", multiple = false)]
struct WishArgs {
    /// Allow updates this mean age at most.
    #[arg(long, required_unless_present_any = ["min_throughput", "watch"])]
    max_age: Option<Span>,

    /// Leave at least this throughput for other traffic.
    #[arg(long)]
    min_throughput: Option<BitRate>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum Scheduler {
    /// Bytes.
    Sdm,
    /// Time.
    Tdm,
}

/// `docs/json.md` describes each key.
#[derive(Debug, Serialize)]
struct Report {
    scheduler: Scheduler,
    aoi_share: f64,
    age_mean_ms: f64,
    drop_averse_bps: u64,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    if let Some(device) = &args.watch {
        return watch(device, &args);
    }
    let (Some(rate), Some(interval), Some(size)) = (args.rate, args.interval, args.size) else {
        // clap requires these flags.
        return Err(Failure::Usage(miette::miette!("give --rate, --interval and --size")));
    };
    let link = Bottleneck {
        rate,
        propagation: args.delay,
        flows: args.flows,
        update_period: interval,
        update_size: size,
        drop_averse_size: args.packet_size,
    };
    let scheduler = match (args.scheduler, args.frame) {
        (Scheduler::Sdm, None) => SchedulerParams::Sdm(SdmParams::default()),
        (Scheduler::Sdm, Some(_)) => {
            let report = miette::miette!("--frame does not apply to sdm; add --scheduler tdm");
            return Err(Failure::Usage(report));
        }
        (Scheduler::Tdm, None) => SchedulerParams::Tdm(TdmParams::default()),
        (Scheduler::Tdm, Some(frame)) => SchedulerParams::Tdm(TdmParams { frame }),
    };
    let WishArgs { max_age, min_throughput } = args.wish;
    let wishes = [max_age.map(Wish::AgeAtMost), min_throughput.map(Wish::ThroughputAtLeast)];
    // clap requires at least one of them.
    wishes.into_iter().flatten().try_for_each(|wish| {
        let suggestion = link.suggest(scheduler, wish);
        let suggestion = suggestion.map_err(|error| Failure::Usage(miette::Report::msg(error)))?;
        print(args.scheduler, suggestion, args.json)
    })
}

/// The interval at which the table is printed.
const EVERY: Span = Span::from_secs(1);
/// The number of flows that it shows.
const FLOWS: usize = 20;

fn watch(device: &str, args: &Args) -> Result<(), Failure> {
    let classifier = args.classify.clone().unwrap_or_default();
    say!("watching packets that leave through {device}; updates are `{classifier}`");
    let stop = stop_on_signals()?;
    let mut watcher = Watcher::open(device, classifier).map_err(super::run::failure)?;
    let clock = Clock::new();
    let until = args.duration.map(|duration| clock.now() + duration);
    loop {
        let next = clock.now() + EVERY;
        let next = until.map_or(next, |until| until.min(next));
        watcher.run(&stop, next).map_err(super::run::failure)?;
        if stop.is_stopped() || until.is_some_and(|until| clock.now() >= until) {
            break;
        }
        if !args.json {
            printed(flows_table(&mut crate::said::Stderr, &watcher))?;
        }
    }
    if args.json {
        return print_json(&watcher.flows(usize::MAX));
    }
    printed(flows_table(&mut io::stdout().lock(), &watcher))
}

fn flows_table(out: &mut impl Write, watcher: &Watcher) -> io::Result<()> {
    writeln!(out, "{:<48} {:>8} {:>10}  {:<11}  why", "flow", "packets", "bytes", "class")?;
    for flow in watcher.flows(FLOWS) {
        let name = format!("{} > {} ({})", flow.source, flow.destination, flow.protocol);
        let WatchedFlow { packets, bytes, class, reason, .. } = flow;
        writeln!(out, "{name:<48} {packets:>8} {bytes:>10}  {class:<11}  {reason}")?;
    }
    if watcher.packets_unknown > 0 {
        writeln!(out, "{} packets of further flows", watcher.packets_unknown)?;
    }
    Ok(())
}

fn print(scheduler: Scheduler, suggestion: Suggestion, json: bool) -> Result<(), Failure> {
    let Suggestion { share, prediction } = suggestion;
    let age_mean_ms = prediction.age.as_millis_f64();
    let drop_averse_bps = prediction.drop_averse.as_bps();
    if json {
        let aoi_share = share.get();
        return print_json(&Report { scheduler, aoi_share, age_mean_ms, drop_averse_bps });
    }
    let mbit = drop_averse_bps as f64 / 1e6;
    let mut out = io::stdout().lock();
    printed(writeln!(
        out,
        "{:<10} {:>10} {:>18}\n{:<10} {:>10} {:>18}",
        "share",
        "mean age",
        "left for others",
        share.to_string(),
        format!("{age_mean_ms:.2} ms"),
        format!("{mbit:.2} Mbit/s"),
    ))
}
