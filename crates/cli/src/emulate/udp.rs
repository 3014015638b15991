//! `freshline emulate udp`: a relay.

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use freshline_core::link::{ConditionsConfig, HopConfig, PathConfig};
use freshline_core::unit::Span;
use freshline_core::wlan::mac::CellConfig;
use freshline_net::clock::Clock;
use freshline_net::emulate::{EmulateError, Emulator, EmulatorConfig, FrameLogError, Report};
use miette::{IntoDiagnostic, WrapErr};

use super::path_file::read_conditions;
use super::seed_or_drawn;
use super::table::{print_cell, print_conditions, print_hops};
use super::{wlan, wlan_help};
use crate::Failure;
use crate::output::{print_json, printed};

/// Relay UDP between clients and a target over an emulated path. Needs no root.
///
/// Point the clients at --listen instead of at the target. All of them share one path there (the
/// forward hops) and one back (the return hops). A hop is a queue, a transmitter and a line,
/// in this order; what is left out of it is ideal, and so is a direction without hops. Packets
/// count with their IP and UDP headers: 28 bytes over IPv4, 48 over IPv6.
#[derive(Debug, clap::Args)]
#[command(after_long_help = concat!("\
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

A hop has: rate (6mbit), mtu (1500B), delay (10ms), jitter (1ms: uniform in delay ± jitter), order
(kept or free: whether jitter may reorder; kept unless said), loss (0 to 1), queue (a drop-tail
queue's limit, 100p or 64kB, or a discipline: lifo, red, codel, drr, fq_codel, ifil, ifc, in a file
also a table with its parameters; 1000p unless said). For loss in bursts add to_bad and to_good, the probabilities with which a
packet turns the hop bad and good again, and bad_loss, the loss while it is bad (1 unless said). A
file may name a trace in mahimahi's format instead of a rate: trace = \"lte.trace\".

", wlan_help!(), "

EXIT CODES

0  stopped by --duration or Ctrl-C, with the summary
1  an address or the system's resources are not to be had
2  the flags or the file cannot be understood"))]
pub(super) struct Args {
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
    /// A Wi-Fi cell whose stations are the clients, such as
    /// standard=802.11ac,rate=mcs9,width=80MHz. What they send goes over the air before the hops,
    /// what is for them after the hops.
    #[arg(long, value_name = "CELL", value_parser = wlan::parse, conflicts_with = "file")]
    wlan: Option<CellConfig>,
    /// Write the frames that come over the air into a CSV file.
    #[arg(long, value_name = "FILE")]
    frames: Option<PathBuf>,
    /// Capture the air with radiotap headers, as a monitor beside the receiver would, into a pcap
    /// file.
    #[arg(long, value_name = "FILE")]
    air: Option<PathBuf>,
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

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let conditions = match &args.file {
        Some(file) => read_conditions(file).map_err(Failure::Usage)?,
        None => ConditionsConfig {
            forward: PathConfig { hop: args.hop },
            back: PathConfig { hop: args.return_hop },
            wlan: args.wlan,
        },
    };
    let target = resolve(&args.to).map_err(Failure::Usage)?;
    let seed = seed_or_drawn(args.seed);
    let config = EmulatorConfig {
        conditions: conditions.clone(),
        max_flows: args.max_flows,
        frames: args.frames,
        air: args.air,
        ..EmulatorConfig::default()
    };
    let mut emulator = Emulator::bind(args.listen, target, config, seed).map_err(failure)?;
    let handle = emulator.handle();
    ctrlc::set_handler(move || handle.stop()).into_diagnostic().map_err(Failure::Runtime)?;

    eprintln!("{} -> {target}, seed {seed}", emulator.local_addr());
    print_conditions(&conditions);

    let until = args.duration.map(|duration| Clock::new().now() + duration);
    let report = emulator.run(until).map_err(failure)?;
    if args.json { print_json(&report) } else { printed(print_summary(&report)) }
}

fn failure(error: EmulateError) -> Failure {
    let usage =
        matches!(error, EmulateError::Conditions(_) | EmulateError::Frames(FrameLogError::NoCell));
    let report = miette::Report::msg(error);
    if usage { Failure::Usage(report) } else { Failure::Runtime(report) }
}

fn resolve(target: &str) -> miette::Result<SocketAddr> {
    let found = target
        .to_socket_addrs()
        .into_diagnostic()
        .wrap_err_with(|| format!("--to {target} is not an address; write ADDRESS:PORT"))?
        .next();
    found.ok_or_else(|| miette::miette!("--to {target} has no address"))
}

fn print_summary(report: &Report) -> io::Result<()> {
    let mut out = io::stdout().lock();
    print_hops(&mut out, &report.forward, &report.back)?;
    print_cell(&mut out, report.wlan.as_ref())?;
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
