//! `freshline emulate run`: runs any program behind an emulated path.

use std::io::{self, Write};
use std::path::PathBuf;

use freshline_core::unit::Span;
use freshline_net::emulate::FrameLogError;
use freshline_net::emulate::tun::{Capture, RealTimeUse, RunConfig, RunError, RunReport, Sandbox};
use freshline_report::Page;

use super::page::Emulated;
use super::path_file::read_conditions;
use super::seed_or_drawn;
use super::table::{print_cell, print_conditions, print_hops};
use super::{hop_help, wlan_help};
use crate::failure::Failure;
use crate::html::HtmlArg;
use crate::output::{print_json, printed};
use crate::privileges::Needs;
use crate::wrapped::Wrapped;

/// Run a command behind an emulated path, whatever protocols it speaks. Needs root.
///
/// The command gets its own network namespace, in which every route leads over the path. It reaches
/// this host at the address in its variable FRESHLINE_HOST, over IPv6 in FRESHLINE_HOST6. Its
/// outgoing packets take the forward hops, its incoming packets the reverse hops. A hop is a queue,
/// a transmitter and a line, in this order; parts that are left out are ideal, and so is a
/// direction without hops. When the command ends, all processes that it has started end, too. A run
/// within a run is behind both paths.
#[derive(Debug, clap::Args)]
#[command(after_long_help = concat!("\
EXAMPLES

Reach this host over 2 Mbit/s and 40 ms, with a loss of 1 % in the reverse direction:

    cat > path.toml <<END
    [[forward.hop]]
    rate = \"2mbit\"
    delay = \"20ms\"
    queue = \"100p\"

    [[reverse.hop]]
    rate = \"20mbit\"
    delay = \"20ms\"
    loss = 0.01
    END
    freshline emulate run path.toml -- sh -c 'ping -c 3 $FRESHLINE_HOST'

", hop_help!(), "

", wlan_help!(), "

EXIT CODES

That of the command, or 128 and the signal's number if a signal ended it. Before it starts:
1  not root, cannot use /dev/net/tun or run the command, or out of system resources
2  the flags or the file cannot be understood"))]
pub(super) struct Args {
    /// Emulate the path in this file (TOML).
    #[arg(value_name = "PATH")]
    file: PathBuf,
    #[command(flatten)]
    wrapped: Wrapped,
    /// Repeat the random choices of an earlier run. Default: a random seed, which is printed.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print the summary as one JSON document on standard output, after the output of the command;
    /// by default it is a table on standard error.
    #[arg(long)]
    json: bool,
    /// Capture packets, such as forward.1=sent.pcap for packets that leave the first forward hop;
    /// hop 0 is the entry of the path. May be given several times, also for the same file.
    #[arg(long, value_name = "HOP=FILE", value_parser = capture)]
    pcap: Vec<Capture>,
    /// Write the frames of the air into a CSV file.
    #[arg(long, value_name = "FILE")]
    frames: Option<PathBuf>,
    /// Capture the air with radiotap headers into a pcap file, as a monitor next to the receiver
    /// would.
    #[arg(long, value_name = "FILE")]
    radiotap: Option<PathBuf>,
    /// Run the emulator with real-time priority (SCHED_FIFO), so that other programs do not delay
    /// packets: auto (if the system permits it), on (or fail), or off. The command has the usual
    /// priority.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    realtime: RealTime,
    /// Wake up this long before a packet is due, such as 30us, and poll until then: this avoids the
    /// delay of waking a thread, but uses more processor time.
    #[arg(long, value_name = "SPAN", default_value = "0us")]
    busy_poll: Span,
    #[command(flatten)]
    html: HtmlArg,
}

/// The values of `--realtime`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum RealTime {
    #[default]
    Auto,
    On,
    Off,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let conditions = read_conditions(&args.file).map_err(Failure::Usage)?;
    let seed = seed_or_drawn(args.seed);
    let (captures, frames, air) = (args.pcap, args.frames, args.radiotap);
    let html = args.html;
    let mut needs = Needs::default().writes(html.path());
    let files = captures.iter().map(|capture| &capture.file).chain(&frames).chain(&air);
    for file in files {
        needs = needs.writes(Some(file));
    }
    let user = args.wrapped.user().cloned();
    let real_time = match args.realtime {
        RealTime::Auto => RealTimeUse::Auto,
        RealTime::On => RealTimeUse::On,
        RealTime::Off => RealTimeUse::Off,
    };
    let config = RunConfig {
        conditions: conditions.clone(),
        captures,
        frames,
        air,
        real_time,
        busy_poll: args.busy_poll,
        user,
        seed,
    };
    let sandbox = Sandbox::new(config).map_err(failure)?;
    say!("this host is {} to the command, seed {seed}", sandbox.host());
    if args.realtime == RealTime::Auto && !sandbox.is_real_time() {
        say!("without real-time priority, which needs CAP_SYS_NICE: other programs delay packets");
    }
    print_conditions(&conditions);

    // The sandbox switches the user, and has its own thread that starts the command.
    let command = args.wrapped.command(false);
    needs.give_up_others();
    let report = sandbox.run(command).map_err(failure)?;
    html.write(|| page(&report))?;
    if args.json {
        print_json(&report)?;
    } else {
        printed(print_summary(&report))?;
    }
    match report.exit_code {
        0 => Ok(()),
        code => Err(Failure::Command(code)),
    }
}

fn capture(text: &str) -> Result<Capture, String> {
    let (point, file) = text
        .split_once('=')
        .ok_or_else(|| format!("`{text}` names no file; write forward.1=FILE"))?;
    let point = point.parse().map_err(|error| format!("{error}"))?;
    Ok(Capture { point, file: file.into() })
}

fn failure(error: RunError) -> Failure {
    let usage = matches!(
        error,
        RunError::Conditions(_)
            | RunError::NoSuchHop { .. }
            | RunError::Frames(FrameLogError::NoCell)
    );
    let report = miette::Report::msg(error);
    if usage { Failure::Usage(report) } else { Failure::Runtime(report) }
}

fn page(report: &RunReport) -> Page {
    let emulated = Emulated {
        seed: report.seed,
        duration_s: report.duration_s,
        forward: &report.forward,
        reverse: &report.reverse,
        cell: report.wlan.as_ref(),
        outcome: format!("The command ended with the exit code {}.", report.exit_code),
    };
    emulated.page()
}

fn print_summary(report: &RunReport) -> io::Result<()> {
    let mut out = crate::said::Stderr;
    print_hops(&mut out, &report.forward, &report.reverse)?;
    print_cell(&mut out, report.wlan.as_ref())?;
    writeln!(
        out,
        "{:.1} s; exit code {}, {} interface errors",
        report.duration_s, report.exit_code, report.device_errors,
    )
}
