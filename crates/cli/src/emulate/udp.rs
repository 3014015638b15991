//! `freshline emulate udp`: relays UDP over an emulated path.

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::thread;

use clap::value_parser;
use freshline_core::dscp::Dscp;
use freshline_core::link::{ConditionsConfig, HopConfig, PathConfig};
use freshline_core::unit::Span;
use freshline_core::wlan::mac::CellConfig;
use freshline_net::clock::Clock;
use freshline_net::emulate::{EmulateError, Emulator, EmulatorConfig, FrameLogError, Report};
use freshline_report::Page;
use miette::{IntoDiagnostic, miette};

use super::page::Emulated;
use super::path_file::read_conditions;
use super::seed_or_drawn;
use super::table::{print_cell, print_conditions, print_hops};
use super::{hop_help, wlan, wlan_help};
use crate::failure::Failure;
use crate::html::HtmlArg;
use crate::output::{print_json, printed};

/// The first pause between look-ups of the target; it doubles each time.
const FIRST_WAIT: Span = Span::from_millis(250);

/// The maximum pause.
const MAX_WAIT: Span = Span::from_secs(2);

/// Relay UDP between clients and a target over an emulated path. Needs no root.
///
/// Point the clients at --listen instead of at the target. All of them share one path to the target
/// (the forward hops) and one from the target (the reverse hops). A hop is a queue, a transmitter
/// and a line, in this order; parts that are left out are ideal, and so is a direction without
/// hops. Packets count with their IP and UDP headers: 28 bytes over IPv4, 48 over IPv6.
#[derive(Debug, clap::Args)]
#[command(after_long_help = concat!("\
EXAMPLES

Ask a name server behind 2 Mbit/s and 40 ms, with a loss of 5 % in the reverse
direction, and print the counts of the hops after ten seconds:

    freshline emulate udp --listen 127.0.0.1:5300 --to 9.9.9.9:53 --duration 10s \\
        --hop rate=2mbit,delay=20ms,queue=100p --reverse-hop delay=20ms,loss=0.05 &
    dig @127.0.0.1 -p 5300 example.org

The same as a file, for --file:

    [[forward.hop]]
    rate = \"2mbit\"
    delay = \"20ms\"
    queue = \"100p\"

    [[reverse.hop]]
    delay = \"20ms\"
    loss = 0.05

", hop_help!(), "

", wlan_help!(), "

EXIT CODES

0  stopped by --duration or Ctrl-C, with the summary
1  cannot bind the address, or out of system resources
2  the flags or the file cannot be understood"))]
pub(super) struct Args {
    /// Accept packets of clients at this ADDRESS:PORT; port 0 takes a free one and prints it.
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// Relay to this target: ADDRESS:PORT or NAME:PORT.
    #[arg(long, value_name = "ADDR")]
    to: String,
    /// Emulate the path in this file (TOML).
    #[arg(long, value_name = "PATH", conflicts_with_all = ["hop", "reverse_hop"])]
    file: Option<PathBuf>,
    /// Add a hop from the clients to the target; repeat the flag for each hop, from first to last.
    #[arg(long, value_name = "HOP")]
    hop: Vec<HopConfig>,
    /// Add a hop from the target to the clients; repeat the flag for each hop.
    #[arg(long, value_name = "HOP")]
    reverse_hop: Vec<HopConfig>,
    /// Make the clients stations of this Wi-Fi cell, such as
    /// standard=802.11ac,rate=mcs9,width=80MHz. Their packets go over the air before the hops,
    /// packets to them after the hops.
    #[arg(long, value_name = "CELL", value_parser = wlan::parse, conflicts_with = "file")]
    wlan: Option<CellConfig>,
    /// Write the frames of the air into a CSV file.
    #[arg(long, value_name = "FILE")]
    frames: Option<PathBuf>,
    /// Capture the air with radiotap headers into a pcap file, as a monitor next to the receiver
    /// would.
    #[arg(long, value_name = "FILE")]
    radiotap: Option<PathBuf>,
    /// Mark all packets with this code point (DSCP), like a network that changes marks at its
    /// border: 0 clears them. By default packets keep their own.
    #[arg(long, value_name = "CODE")]
    dscp: Option<Dscp>,
    /// Serve at most N clients at a time. A further one replaces the client that has been silent
    /// for the longest time, at least 250 ms, or is refused.
    #[arg(long, value_name = "N", default_value_t = EmulatorConfig::default().max_flows as u32, value_parser = value_parser!(u32).range(1..))]
    max_flows: u32,
    /// Repeat the random choices of an earlier run. Default: a random seed, which is printed.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Stop after this time, such as 10s; by default, Ctrl-C stops it.
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    /// Print the summary as one JSON document on standard output.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    html: HtmlArg,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let conditions = match &args.file {
        Some(file) => read_conditions(file).map_err(Failure::Usage)?,
        None => ConditionsConfig {
            forward: PathConfig { hop: args.hop },
            reverse: PathConfig { hop: args.reverse_hop },
            wlan: args.wlan,
        },
    };
    let target = resolve(&args.to, args.duration)?;
    let seed = seed_or_drawn(args.seed);
    let config = EmulatorConfig {
        conditions: conditions.clone(),
        max_flows: args.max_flows as usize,
        frames: args.frames,
        air: args.radiotap,
        dscp: args.dscp,
        ..EmulatorConfig::default()
    };
    let mut emulator = Emulator::bind(args.listen, target, config, seed).map_err(failure)?;
    let handle = emulator.handle();
    ctrlc::set_handler(move || handle.stop()).into_diagnostic().map_err(Failure::Runtime)?;

    say!("{} -> {target}, seed {seed}", emulator.local_addr());
    print_conditions(&conditions);

    let until = args.duration.map(|duration| Clock::new().now() + duration);
    let report = emulator.run(until).map_err(failure)?;
    args.html.write(|| page(&report))?;
    if args.json { print_json(&report) } else { printed(print_summary(&report)) }
}

fn failure(error: EmulateError) -> Failure {
    let usage =
        matches!(error, EmulateError::Conditions(_) | EmulateError::Frames(FrameLogError::NoCell));
    let report = miette::Report::msg(error);
    if usage { Failure::Usage(report) } else { Failure::Runtime(report) }
}

/// The target's first address. A name without an address, for example while the network is still
/// down, is looked up again for at most `patience`.
fn resolve(target: &str, patience: Option<Span>) -> Result<SocketAddr, Failure> {
    let is_complete = target.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if !is_complete {
        return Err(Failure::Usage(miette!("--to {target} is not an address; write HOST:PORT")));
    }
    let clock = Clock::new();
    let until = patience.map(|patience| clock.now() + patience);
    let mut wait = FIRST_WAIT;
    loop {
        let why = match target.to_socket_addrs().map(|mut found| found.next()) {
            Ok(Some(address)) => return Ok(address),
            Ok(None) => "it has no address".to_owned(),
            Err(error) => error.to_string(),
        };
        if until.is_some_and(|until| clock.now() + wait >= until) {
            return Err(Failure::Runtime(miette!("cannot resolve --to {target}: {why}")));
        }
        if wait == FIRST_WAIT {
            say!("cannot resolve --to {target}: {why}; trying again");
        }
        thread::sleep(wait.into());
        wait = (wait * 2).min(MAX_WAIT);
    }
}

fn page(report: &Report) -> Page {
    let emulated = Emulated {
        seed: report.seed,
        duration_s: report.duration_s,
        forward: &report.forward,
        reverse: &report.reverse,
        cell: report.wlan.as_ref(),
        outcome: format!(
            "Clients served: {}; packets of further clients refused: {}.",
            report.flows.opened, report.flows.refused_packets
        ),
    };
    emulated.page()
}

fn print_summary(report: &Report) -> io::Result<()> {
    let mut out = io::stdout().lock();
    print_hops(&mut out, &report.forward, &report.reverse)?;
    print_cell(&mut out, report.wlan.as_ref())?;
    let flows = &report.flows;
    writeln!(
        out,
        "{:.1} s; {} clients served, {} packets of further clients refused; target unreachable {} times, \
         {} other socket errors",
        report.duration_s,
        flows.opened,
        flows.refused_packets,
        report.target_unreachable,
        report.socket_errors,
    )
}
