//! `freshline emulate`: a network path on this machine.

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use freshline_core::link::{ConditionsConfig, HopConfig, PathConfig};
use freshline_core::unit::Span;
use freshline_net::clock::Clock;
use freshline_net::emulate::{DirectionReport, EmulateError, Emulator, EmulatorConfig, Report};
use miette::{Diagnostic, IntoDiagnostic, NamedSource, SourceSpan, WrapErr};

use crate::Failure;
use crate::output::{print_json, printed};

/// Emulate a network path: rate, delay, jitter, loss and queues, hop by hop.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Udp(Udp),
}

/// Relay UDP between clients and a target over an emulated path. Needs no root.
///
/// Point the clients at --listen instead of at the target. All of them share one path there (the
/// forward hops) and one back (the return hops). A hop is a drop-tail queue, a transmitter and a
/// line, in this order; what is left out of it is ideal, and so is a direction without hops.
/// Packets count with their IP and UDP headers: 28 bytes over IPv4, 48 over IPv6.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES

Ask a name server behind 2 Mbit/s and 40 ms, of which every twentieth packet is lost on the way
back, and see for ten seconds what the hops did:

    freshline emulate udp --listen 127.0.0.1:5300 --to 9.9.9.9:53 --duration 10s \\
        --hop rate=2mbit,delay=20ms,queue=100p --return-hop delay=20ms,loss=0.05 &
    dig @127.0.0.1 -p 5300 example.org

The same as a file, for --file:

    [[forward.hop]]
    rate = \"2mbit\"
    delay = \"20ms\"
    queue = \"100p\"

    [[return.hop]]
    delay = \"20ms\"
    loss = 0.05

A hop has: rate (6mbit), delay (10ms), jitter (1ms: uniform in delay ± jitter), order (kept or
free: whether jitter may reorder; kept unless said), loss (0 to 1), queue (100p or 64kB; 1000p
unless said).

EXIT CODES

0  stopped by --duration or Ctrl-C, with the summary
1  an address or the system's resources are not to be had
2  the flags or the file cannot be understood")]
struct Udp {
    /// Where clients send to, as ADDRESS:PORT; port 0 takes a free one and prints it.
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// The target, as ADDRESS:PORT or NAME:PORT.
    #[arg(long, value_name = "ADDR")]
    to: String,
    /// A path file (TOML).
    #[arg(long, value_name = "PATH", conflicts_with_all = ["hop", "return_hop"])]
    file: Option<PathBuf>,
    /// A hop from the clients to the target; give it once a hop, from first to last.
    #[arg(long, value_name = "HOP")]
    hop: Vec<HopConfig>,
    /// A hop from the target back to the clients.
    #[arg(long, value_name = "HOP")]
    return_hop: Vec<HopConfig>,
    /// Serve so many clients at a time, and refuse others.
    #[arg(long, value_name = "N", default_value_t = EmulatorConfig::default().max_flows)]
    max_flows: usize,
    /// Repeat the random choices of an earlier run; drawn and printed if left out.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Stop after this time, such as 10s; else Ctrl-C stops it.
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    /// Print the summary as one JSON document on standard output.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.what {
        What::Udp(udp) => relay(udp),
    }
}

fn relay(args: Udp) -> Result<(), Failure> {
    let conditions = match &args.file {
        Some(file) => read_conditions(file).map_err(Failure::Usage)?,
        None => ConditionsConfig {
            forward: PathConfig { hop: args.hop },
            back: PathConfig { hop: args.return_hop },
        },
    };
    let target = resolve(&args.to).map_err(Failure::Usage)?;
    // 32 bits are enough, and every reader of JSON takes them for what they are.
    let seed = args.seed.unwrap_or_else(|| rand::random::<u32>().into());
    let config = EmulatorConfig {
        conditions: conditions.clone(),
        max_flows: args.max_flows,
        ..EmulatorConfig::default()
    };
    let mut emulator = Emulator::bind(args.listen, target, config, seed).map_err(failure)?;
    let handle = emulator.handle();
    ctrlc::set_handler(move || handle.stop()).into_diagnostic().map_err(Failure::Runtime)?;

    eprintln!("{} -> {target}, seed {seed}", emulator.local_addr());
    print_conditions("forward", &conditions.forward);
    print_conditions("return", &conditions.back);

    let until = args.duration.map(|duration| Clock::new().now() + duration);
    let report = emulator.run(until).map_err(failure)?;
    if args.json { print_json(&report) } else { printed(print_table(&report)) }
}

fn failure(error: EmulateError) -> Failure {
    let usage = matches!(error, EmulateError::Path { .. });
    let report = miette::Report::msg(error);
    if usage { Failure::Usage(report) } else { Failure::Runtime(report) }
}

/// A path file that is not one, with the place that shows it.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{} is not a path file", file.name())]
#[diagnostic(help("`freshline emulate udp --help` shows a path file"))]
struct BadFile {
    #[source_code]
    file: NamedSource<String>,
    #[label("{reason}")]
    place: SourceSpan,
    reason: String,
}

fn read_conditions(file: &Path) -> miette::Result<ConditionsConfig> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file)
        .into_diagnostic()
        .wrap_err_with(|| format!("cannot read the path file {name}"))?;
    toml::from_str(&text).map_err(|error| {
        let place = error.span().unwrap_or(0..0).into();
        let reason = error.message().to_string();
        BadFile { file: NamedSource::new(name, text), place, reason }.into()
    })
}

fn resolve(target: &str) -> miette::Result<SocketAddr> {
    let found = target
        .to_socket_addrs()
        .into_diagnostic()
        .wrap_err_with(|| format!("--to {target} is not an address; write ADDRESS:PORT"))?
        .next();
    found.ok_or_else(|| miette::miette!("--to {target} has no address"))
}

fn print_conditions(direction: &str, path: &PathConfig) {
    if path.hop.is_empty() {
        eprintln!("  {direction}: ideal");
    }
    for (index, hop) in path.hop.iter().enumerate() {
        eprintln!("  {direction} hop {}: {hop}", index + 1);
    }
}

fn print_table(report: &Report) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{:<10} {:>9} {:>9} {:>7} {:>7} {:>9} {:>9} {:>9} {:>9} {:>5}",
        "hop", "in", "out", "full", "lost", "mean ms", "p50 ms", "p99 ms", "max ms", "util"
    )?;
    for (direction, path) in [("forward", &report.forward), ("return", &report.back)] {
        print_direction(&mut out, direction, path)?;
    }
    let flows = &report.flows;
    writeln!(
        out,
        "{:.1} s; {} clients served, {} packets of others refused; target unreachable {} times, \
         {} other socket errors",
        report.duration_s,
        flows.opened,
        flows.refused_packets,
        report.target_unreachable,
        report.socket_errors,
    )
}

fn print_direction(out: &mut impl Write, name: &str, path: &DirectionReport) -> io::Result<()> {
    for (index, hop) in path.hops.iter().enumerate() {
        writeln!(
            out,
            "{:<10} {:>9} {:>9} {:>7} {:>7} {:>9.3} {:>9.3} {:>9.3} {:>9.3} {:>4.0}%",
            format!("{name} {}", index + 1),
            hop.packets_in,
            hop.packets_out,
            hop.drops["queue_full"] + hop.drops["line_full"],
            hop.drops["loss"],
            hop.sojourn_mean_ms,
            hop.sojourn_p50_ms,
            hop.sojourn_p99_ms,
            hop.sojourn_max_ms,
            hop.utilisation * 100.0,
        )?;
    }
    let error = &path.timing_error;
    writeln!(
        out,
        "{:<10} sent on late by {:.3} ms (p50), {:.3} ms (p99), {:.3} ms (max)",
        "", error.p50_ms, error.p99_ms, error.max_ms
    )
}
