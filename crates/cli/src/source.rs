//! `freshline source`: keeps a monitor fresh.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::ArgGroup;
use freshline_core::session::{self, Reach, SourceEvent, SourceParams};
use freshline_core::unit::{Bytes, Span, Time};
use freshline_net::clock::Clock;
use freshline_net::source::sampler::{Command, File, Latest, Sampler, Synthetic};
use freshline_net::source::{
    Event, LinkEvent, Source, SourceConfig, SourceError, SourceReport, Watch,
};
use miette::miette;

use crate::Failure;
use crate::law::LawArgs;
use crate::output::{ms, print_json, printed, stop_on_signals};
use crate::transport::TransportArgs;
use crate::url::MonitorUrl;

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
    let mut teller = Teller { every: args.every, next: now + args.every, told: Vec::new() };
    let result = source.run(&stop, until, &mut teller).map_err(failure);
    let report = source.report();
    let told = if args.json { print_json(&report) } else { printed(print_summary(&report)) };
    result.and(told)
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
        SourceError::Opening(_) | SourceError::Dial(_) => {
            Failure::Usage(miette::Report::msg(error))
        }
        _ => Failure::Runtime(miette::Report::msg(error)),
    }
}

/// Tells a person what happens, each trouble once until the session is open again.
struct Teller {
    every: Span,
    next: Time,
    told: Vec<String>,
}

/// Troubles that are remembered, of which the monitor may have worded some.
const TOLD: usize = 8;

/// Openings without an answer after which a person should know.
const ATTEMPTS: u32 = 3;

impl Teller {
    fn trouble(&mut self, text: String) {
        if self.told.contains(&text) {
            return;
        }
        eprintln!("{text}");
        if self.told.len() == TOLD {
            self.told.clear();
        }
        self.told.push(text);
    }
}

impl Watch for Teller {
    fn event(&mut self, _now: Time, source: &session::Source, event: &Event<'_>) {
        match event {
            Event::Session(SourceEvent::Opened) => {
                self.told.clear();
                eprintln!("session {} is open", source.session());
            }
            Event::Session(SourceEvent::Closed(reason)) => {
                self.trouble(format!("{reason}; trying again"));
            }
            Event::Session(SourceEvent::Silent) => {
                self.trouble("the monitor is silent; trying again, ever more rarely".into());
            }
            Event::Session(SourceEvent::Acked { .. } | SourceEvent::Challenged) => {}
            Event::Link(LinkEvent::Lost(reason)) => self.trouble(format!("{reason}; trying again")),
            Event::Link(LinkEvent::Unreachable) => {
                self.trouble("nobody listens at the monitor's address; trying again".into());
            }
            Event::Link(LinkEvent::Ready) => {}
            Event::NoSample(why) => self.trouble(format!("{why}; trying again")),
        }
    }

    fn turn(&mut self, now: Time, source: &session::Source) {
        if matches!(source.reach(), Reach::Opening { attempts } if attempts >= ATTEMPTS)
            && self.told.is_empty()
        {
            self.trouble(
                "no answer: does a monitor listen there, by the same scheme, and does a firewall \
                 let UDP through? trying again"
                    .into(),
            );
        }
        if now < self.next {
            return;
        }
        self.next = now + self.every;
        if source.reach() == Reach::Open {
            let mean = source.age().process().mean(now).map(Span::as_millis_f64);
            eprintln!(
                "age {} on average, {:.1} updates/s, {} on the way, round trip {}",
                ms(mean),
                source.law().rate().per_second(),
                source.backlog().backlog(),
                ms(source.counters().rtt_mean().map(Span::as_millis_f64)),
            );
        }
    }
}

fn print_summary(report: &SourceReport) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{} for {:.1} s: {:.1} updates/s, {} sent, {} acknowledged, {} replaced, {} missing",
        report.law,
        report.duration_s,
        report.updates_per_s,
        report.sent,
        report.acked,
        report.replaced,
        report.missing.unwrap_or(0),
    )?;
    writeln!(
        out,
        "age (at most): mean {}, p50 {}, p95 {}, p99 {}, peaks {} on average, {} at most",
        ms(report.age_mean_ms),
        ms(report.age_p50_ms),
        ms(report.age_p95_ms),
        ms(report.age_p99_ms),
        ms(report.peak_age_mean_ms),
        ms(report.age_max_ms),
    )?;
    writeln!(
        out,
        "round trip: mean {}, min {}; backlog {:.2}; goodput {:.0} bit/s",
        ms(report.rtt_mean_ms),
        ms(report.rtt_min_ms),
        report.backlog_mean.unwrap_or(0.0),
        report.goodput_bps,
    )
}
