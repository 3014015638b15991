//! `freshline source`: keeps a monitor fresh.

mod teller;

use std::io;
use std::path::PathBuf;

use clap::ArgGroup;
use freshline_core::session::SourceParams;
use freshline_core::unit::{Bytes, Span};
use freshline_net::clock::Clock;
use freshline_net::source::sampler::{Command, File, Latest, Sampler, Synthetic};
use freshline_net::source::{Source, SourceConfig, SourceError, Ways};
use miette::{IntoDiagnostic, miette};

use crate::Failure;
use crate::law::LawArgs;
use crate::output::{print_json, printed, stop_on_signals};
use crate::transport::TransportArgs;
use crate::url::MonitorUrl;
use crate::way::Way;
use teller::{Teller, print_summary};

/// Send fresh state to a monitor, as often as keeps it freshest.
///
/// The state is taken at the moment of sending. The age that is reported here counts from the
/// sampling to the arrival of the ack: an upper bound of the age at the monitor, by the way of the
/// ack.
#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("what").required(true)), after_long_help = "\
EXAMPLES

A monitor and a source on one machine, in two terminals; the monitor prints its fingerprint:

    freshline monitor quic://127.0.0.1:3774
    freshline source quic://127.0.0.1:3774 --pin sha256:… --read /proc/loadavg --name this-host

A robot's pose, of which only the newest counts:

    pose-publisher | freshline source quic://base.example --ca fleet.pem --latest - --name robot-7

The same by Wi-Fi and LTE, each update by the one that is expected to be faster:

    pose-publisher | freshline source quic://base.example --ca fleet.pem --latest - \\
        --name robot-7 --via wlan0,wwan0

EXIT CODES

0  ended by --duration, by Ctrl-C or with the last line of --latest
1  the system refuses something, or a sample does not fit into a datagram
2  the flags or the files that they name cannot be understood
130  a second Ctrl-C, when the end hangs")]
pub(crate) struct Args {
    /// The monitor: quic://HOST:PORT, or udp://HOST:PORT on trusted links.
    url: MonitorUrl,
    /// Run this shell command for every update; its output is the state.
    #[arg(long, value_name = "CMD", group = "what", help_heading = "State")]
    sample: Option<String>,
    /// Read this file for every update.
    #[arg(long, value_name = "FILE", group = "what", help_heading = "State")]
    read: Option<PathBuf>,
    /// Send the newest line of this stream; `-` is standard input.
    #[arg(long, value_name = "STREAM", group = "what", help_heading = "State")]
    latest: Option<PathBuf>,
    /// Send made-up state of this size, for measurements.
    #[arg(long, value_name = "BYTES", group = "what", help_heading = "State")]
    size: Option<Bytes>,
    /// Leave by these interfaces or local addresses; else as the routes are. On a way where the
    /// monitor is at another address, IF@ADDR:PORT.
    #[arg(long, value_name = "IF|ADDR", value_delimiter = ',', help_heading = "Paths")]
    via: Vec<Way>,
    /// Which of several paths an update takes: freshest, where it is expected first, with copies
    /// where they pay; qaware, by the queues of this host's devices; min_srtt; round_robin; or
    /// redundant, all of them.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "freshest",
        requires = "via",
        help_heading = "Paths"
    )]
    scheduler: String,
    /// A name for the monitor's reports, at most 63 bytes.
    #[arg(long, default_value = "", hide_default_value = true)]
    name: String,
    #[command(flatten)]
    law: LawArgs,
    #[command(flatten)]
    transport: TransportArgs,
    /// Stop after this time, such as 10s; else Ctrl-C stops it.
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    /// Say how it goes this often, on standard error.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    every: Span,
    /// Print the summary as one JSON document on standard output.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    if args.every.is_zero() {
        return Err(Failure::Usage(miette!("--every must be above zero, such as 10s")));
    }
    let mut source = Source::new(SourceConfig {
        monitor: args.url.resolve().map_err(Failure::Usage)?,
        transport: args.transport.transport(&args.url)?,
        ways: ways(&args)?,
        params: SourceParams {
            name: args.name.clone(),
            token: args.transport.token(&args.url)?,
            ..SourceParams::default()
        },
        law: args.law.law()?,
        sampler: sampler(&args)?,
    })
    .map_err(failure)?;
    let stop = stop_on_signals()?;
    let now = Clock::new().now();
    let until = args.duration.map(|duration| now + duration);
    let mut teller = Teller::new(&args.via, args.every, now);
    let result = source.run(&stop, until, &mut teller).map_err(failure);
    let report = source.report();
    let told = if args.json { print_json(&report) } else { printed(print_summary(&report)) };
    result.and(told)
}

fn ways(args: &Args) -> Result<Ways, Failure> {
    let scheduler = args.scheduler.parse().into_diagnostic().map_err(Failure::Usage)?;
    let vias = args.via.iter().map(|way| (way.via.clone(), way.peer)).collect();
    Ok(Ways { vias, scheduler })
}

fn sampler(args: &Args) -> Result<Box<dyn Sampler>, Failure> {
    let usage = |message: String| Failure::Usage(miette!("{message}"));
    Ok(match (&args.sample, &args.read, &args.latest, args.size) {
        (Some(command), ..) => Box::new(Command::new(command.clone())),
        (_, Some(path), ..) => {
            // Later it may come and go; at the start its absence is most likely a slip.
            let readable = std::fs::File::open(path);
            readable.map_err(|error| usage(format!("cannot read {}: {error}", path.display())))?;
            Box::new(File::new(path.clone()))
        }
        (_, _, Some(path), _) if path.as_os_str() == "-" => Box::new(Latest::new(io::stdin())),
        (_, _, Some(path), _) => {
            let stream = std::fs::File::open(path)
                .map_err(|error| usage(format!("cannot read {}: {error}", path.display())))?;
            Box::new(Latest::new(stream))
        }
        (_, _, _, size) => {
            let size = size.unwrap_or_default().get();
            let size = usize::try_from(size).ok().filter(|size| *size <= usize::from(u16::MAX));
            Box::new(Synthetic::new(size.ok_or_else(|| {
                usage("--size is beyond 65535 bytes, the most that one update can carry".into())
            })?))
        }
    })
}

fn failure(error: SourceError) -> Failure {
    match error {
        SourceError::Opening(_) | SourceError::Dial(_) | SourceError::Paths(_) => {
            Failure::Usage(miette::Report::msg(error))
        }
        _ => Failure::Runtime(miette::Report::msg(error)),
    }
}
