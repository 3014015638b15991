//! `freshline source`: sends fresh state to a monitor.

mod receive;
mod records;
mod reporter;
#[cfg(feature = "monitor")]
pub(crate) mod returns;
mod topic;

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::ArgGroup;
use freshline::driver::clock::Clock;
use freshline::driver::framing::Framing;
use freshline::driver::source::sampler::{
    Command, File, Keys, Latest, Sampler, StampFormat, Synthetic,
};
use freshline::driver::source::spool::SpoolDir;
use freshline::driver::source::{SourceError, States, Topic};
use freshline_core::session::{SourceParams, TopicKind};
use freshline_core::unit::{Bytes, Span};
use freshline_core::wire::TopicKey;
use miette::miette;

use crate::config::ConfigArgs;
use crate::epochs::EpochLog;
use crate::failure::Failure;
use crate::law::LawArgs;
use crate::mark::MarkArgs;
use crate::output::{print_json, printed, stop_on_signals};
use crate::paths::PathArgs;
use crate::privileges::Needs;
use crate::transport::TransportArgs;
use freshline::{SourceBuilder, Url};
use receive::ReceiveArgs;
use reporter::{Reporter, print_summary};
use topic::{Input, TopicArg};

/// Send fresh state to a monitor, at the rate that keeps it freshest.
///
/// The state is taken at the moment of sending. The reported age counts from the sampling to the
/// arrival of the ack; it is an upper bound of the age at the monitor, as it includes the delay of
/// the ack.
#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("what")))]
#[command(group(ArgGroup::new("streams").args(["latest", "topic"]).multiple(true)), after_long_help = "\
EXAMPLES

A monitor and a source on one machine, in two terminals; the monitor prints its fingerprint:

    freshline monitor quic://127.0.0.1:3774
    freshline source quic://127.0.0.1:3774 --pin sha256:… --read /proc/loadavg --name this-host

A robot's pose; only the newest one counts:

    pose-publisher | freshline source quic://base.example --ca fleet.pem --latest - --name robot-7

The same over Wi-Fi and LTE, each update by the path that is expected to be faster:

    pose-publisher | freshline source quic://base.example --ca fleet.pem --latest - \\
        --name robot-7 --via wlan0,wwan0

Several topics of a robot; the pose is the most important one:

    freshline source quic://base.example --ca fleet.pem --name robot-7 \\
        --topic pose,weight=100,latest=/run/pose --topic map,sample=print-map \\
        --topic battery,max-rate=1/s,read=/sys/class/power_supply/BAT0/capacity

A log whose lines must all arrive, across outages and restarts, alongside the pose:

    journalctl -f | freshline source quic://base.example --ca fleet.pem --name robot-7 \\
        --topic pose,latest=/run/pose --topic log,kind=every,records=- --spool /var/lib/robot/spool

A state that changes rarely, over a metered link:

    freshline source quic://base.example --ca fleet.pem --read /run/door --name door-3 \\
        --on-change --max-bandwidth 20kbit

Commands for a robot behind a NAT, from a monitor with `--topic cmd,latest=-`:

    freshline source quic://base.example --ca fleet.pem --name robot-7 --latest pose \\
        --receive --exec execute-command

Updates and acks marked for a network with differentiated services:

    freshline source udp://192.0.2.7:3774 --read pose --dscp EF --ack-dscp echo

EXIT CODES

0  ended by --duration, by Ctrl-C, with the last state of --latest, or with the last record arrived
1  no update was ever acknowledged, however the run ended (a wrong --pin, no monitor, no route, a
   --sample that fails, states beyond --max-state); or the stream of --latest cannot be read, or the
   system refuses something
2  the flags or the files that they name cannot be understood
130  a second Ctrl-C, when the end hangs")]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// Send to this monitor: quic://HOST:PORT, or udp://HOST:PORT on trusted links.
    url: Url,
    /// Run this shell command for every update; its output is the state.
    #[arg(long, value_name = "CMD", group = "what", help_heading = "State")]
    sample: Option<String>,
    /// Read this file for every update.
    #[arg(long, value_name = "FILE", group = "what", help_heading = "State")]
    read: Option<PathBuf>,
    /// Send the newest state of this stream; `-` is standard input.
    #[arg(long, value_name = "STREAM", group = "what", help_heading = "State")]
    latest: Option<PathBuf>,
    /// Split the stream of --latest into states in this way: `lines` for text; `null` at zero
    /// bytes, as find -print0 writes; `u32` for binary frames after their length as four bytes,
    /// most significant first; or `cobs` for binary frames by Consistent Overhead Byte Stuffing, as
    /// over serial lines.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "lines",
        requires = "streams",
        help_heading = "State"
    )]
    framing: Framing,
    /// Take generation times from the stream of --latest: each state follows a time and a tab. With
    /// `unix` the time is in seconds since 1970, such as 1732712345.25. A state without a time, or
    /// with one that is more than 100 ms in the future or before 2000, counts as generated when it
    /// is read; one that is more than 30 days old counts as 30 days old.
    #[arg(long, value_name = "FORMAT", help_heading = "State")]
    stamp: Option<StampFormat>,
    /// Send the states of this topic; may be given up to 256 times. All topics share one session
    /// and its rate: topics with the largest weighted age per byte go first. After the name,
    /// separated by commas, follow weight=NUMBER [default: 1], deadline=TIME (an older state is not
    /// sent), min-rate=RATE, max-rate=RATE and urgent (before all others, at once, over all paths,
    /// until it is acknowledged); at the end read=FILE, sample=CMD, latest=STREAM or size=BYTES.
    /// With kind=keyed the newest state of each key counts: a state of latest=STREAM begins with
    /// its key and a tab, and a key without a tab is removed; max-keys=NUMBER [default: 512] keys
    /// are kept. With kind=every each line of records=STREAM counts and arrives once and in order;
    /// up to buffer=SIZE [default: 1MiB] of them is held, then reading of the stream pauses. With
    /// stamp=unix a generation time and a tab precede each state or record of a stream, as with
    /// --stamp; with kind=keyed they follow the key and its tab.
    #[arg(long, value_name = "NAME,…", group = "what", help_heading = "State")]
    topic: Vec<TopicArg>,
    /// Send synthetic states of this size, for measurements.
    #[arg(long, value_name = "BYTES", group = "what", help_heading = "State")]
    size: Option<Bytes>,
    /// Send states up to this size. A state that does not fit into one datagram (about 1100 bytes
    /// over quic://, 1400 over udp://) is sent in several parts, and the monitor gets it whole or
    /// not at all. A longer state of --sample, --read or --framing cobs is left out; in other
    /// streams it is an error.
    #[arg(long, value_name = "SIZE", default_value = "8MiB", help_heading = "State")]
    max_state: Bytes,
    /// Keep records of topics with kind=every in this folder until they have arrived, so that they
    /// survive the end of this process; each source needs its own folder.
    #[arg(long, value_name = "DIR", help_heading = "State")]
    spool: Option<PathBuf>,
    /// Send the state of the law and of the paths at this interval, in the topic freshline.status;
    /// pages of `freshline monitor --web` show it. Needs --topic.
    #[arg(long, value_name = "TIME", help_heading = "State")]
    status: Option<Span>,
    #[command(flatten)]
    receive: ReceiveArgs,
    #[command(flatten)]
    paths: PathArgs,
    /// Use this name in the monitor's reports, at most 63 bytes.
    #[arg(long, default_value = "", hide_default_value = true)]
    name: String,
    /// Leave out a state that has not changed since the monitor acknowledged it; it is repeated
    /// each --keep-alive. The age at the monitor grows in between, though the state is still true.
    #[arg(long)]
    on_change: bool,
    /// Send an update at least this often, the last state again if there is no newer one, so that
    /// the monitor does not forget this source; keep it below the monitor's --idle-timeout [default: 20s, with
    /// --on-change 1s].
    #[arg(long, value_name = "TIME")]
    keep_alive: Option<Span>,
    #[command(flatten)]
    law: LawArgs,
    #[command(flatten)]
    marks: MarkArgs,
    #[command(flatten)]
    transport: TransportArgs,
    /// Stop after this time, such as 10s; by default, Ctrl-C stops it.
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    /// Print the progress at this interval, on standard error.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    every: Span,
    /// Write a record of each control epoch of --law acp+d, acp+ or acp to this file: mean age,
    /// mean backlog, Z, srtt, action and rate. Its name ends in .csv, .json (an array) or .jsonl
    /// (one object per line).
    #[arg(long, value_name = "FILE", help_heading = "Rate")]
    epochs: Option<PathBuf>,
    /// Print the summary as one JSON document on standard output.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let keep_alive = args.keep_alive.unwrap_or(match args.on_change {
        true => Span::from_secs(1),
        false => SourceParams::default().keep_alive,
    });
    for (flag, time) in [("--every", args.every), ("--keep-alive", keep_alive)] {
        if time.is_zero() {
            return Err(Failure::Usage(miette!("{flag} must be above zero, such as 10s")));
        }
    }
    let max_state = max_state(&args)?;
    let law = args.law.config()?;
    if args.epochs.is_some() && !args.law.has_epochs() {
        let message = "--epochs belongs to --law acp+d, acp+ and acp; other laws have no epochs";
        return Err(Failure::Usage(miette!("{message}")));
    }
    if let Some(warning) = args.law.warning() {
        say!("{warning}");
    }
    let log = args.epochs.as_deref().map(|path| EpochLog::create(path, false)).transpose()?;
    let mut builder = SourceBuilder::new(Ok(args.url.clone()))
        .dialling(args.transport.dialling(&args.url)?)
        .paths(args.paths.paths()?)
        .name(&args.name)
        .keep_alive(keep_alive)
        .on_change(args.on_change)
        .law(law)
        .limits(args.law.limits()?)
        .marks(args.marks.dscp, args.marks.ack_dscp)
        .max_state(max_state)
        .read_files()?;
    if let Some(interval) = args.status {
        if args.topic.is_empty() {
            return Err(Failure::Usage(miette!(
                "--status needs --topic: the status is a topic, so name the state, too, as in \
                 --topic state,latest=-"
            )));
        }
        builder = builder.status(interval);
    }
    let spools = records::open(args.spool.as_deref(), &args.topic)?;
    confine(&args);
    let mut source = builder.build(states(&args, max_state, spools.as_ref())?)?;
    if let Some(incoming) = args.receive.incoming(args.json)? {
        source = source.receiving(incoming);
    }
    let stop = stop_on_signals()?;
    let now = Clock::new().now();
    let until = args.duration.map(|duration| now + duration);
    let mut reporter = Reporter::new(args.paths.vias(), args.every, &args.marks, now, log);
    let result = source.run(&stop, until, &mut reporter).map_err(failure);
    let result = result.and(reporter.finish());
    let received =
        source.finish_incoming(&stop).map_err(|error| Failure::Runtime(miette!("{error}")));
    let report = source.report();
    let summary = if args.json { print_json(&report) } else { printed(print_summary(&report)) };
    records::print_waiting(&report, args.spool.as_deref());
    result.and(received).and(summary)?;
    match report.acked {
        0 => Err(Failure::Runtime(miette!("no update was acknowledged{}", reporter.why()))),
        _ => Ok(()),
    }
}

/// Gives up privileges that are no longer needed, unless commands are run.
fn confine(args: &Args) {
    let runs_commands = args.topic.iter().any(|topic| matches!(topic.input, Input::Sample(_)));
    if args.sample.is_none() && !runs_commands && !args.receive.runs_commands() {
        let needs = Needs::new(args.paths.privileges()).reads(args.read.as_deref());
        let needs = needs.reads(args.latest.as_deref());
        // The source creates files in this folder.
        let spool_file = args.spool.as_ref().map(|dir| dir.join("topic.spool"));
        let needs = needs.writes(spool_file.as_deref()).writes(args.receive.file());
        let files = args.topic.iter().map(|topic| topic.input.file());
        files.fold(needs, Needs::reads).confine();
    }
}

/// The maximum size of a state in bytes.
fn max_state(args: &Args) -> Result<usize, Failure> {
    // The length of a state in parts has 32 bits.
    let max = u32::try_from(args.max_state.get()).ok().filter(|max| *max > 0);
    let max = max.ok_or_else(|| {
        Failure::Usage(miette!("--max-state must be between 1B and 4294967295B, such as 8MiB"))
    })?;
    Ok(max as usize)
}

fn states(args: &Args, max_state: usize, spools: Option<&SpoolDir>) -> Result<States, Failure> {
    if args.stamp.is_some() && args.latest.is_none() {
        let message =
            "--stamp belongs to --latest; of a topic write --topic pose,stamp=unix,latest=-";
        return Err(Failure::Usage(miette!("{message}")));
    }
    if args.topic.is_empty() {
        let input = match (&args.sample, &args.read, &args.latest, args.size) {
            (Some(command), ..) => Input::Sample(command.clone()),
            (_, Some(path), ..) => Input::Read(path.clone()),
            (_, _, Some(path), _) => Input::Latest(path.clone()),
            (.., Some(size)) => Input::Size(size),
            (.., None) => return args.receive.alone(),
        };
        return Ok(States::Of(sampler(&input, args.framing, max_state, args.stamp)?));
    }
    let is_stdin = |topic: &&TopicArg| {
        let (Input::Latest(path) | Input::Records(path)) = &topic.input else { return false };
        path.as_os_str() == "-"
    };
    if args.topic.iter().filter(is_stdin).count() > 1 {
        let message =
            "standard input can have the states of one topic only: give others a file or a pipe";
        return Err(Failure::Usage(miette!("{message}")));
    }
    let topics = args.topic.iter().map(|topic| {
        let sampler = match &topic.input {
            Input::Records(path) => {
                let stream = stream(path)?;
                return records::topic(topic, stream, args.framing, max_state, spools);
            }
            Input::Latest(path) if topic.params.kind != TopicKind::Latest => {
                keys(path, args.framing, max_state, topic.stamp)?
            }
            input => sampler(input, args.framing, max_state, topic.stamp)?,
        };
        Ok(Topic { params: topic.params.clone(), sampler })
    });
    Ok(States::Topics(topics.collect::<Result<_, Failure>>()?))
}

fn open(path: &Path) -> Result<std::fs::File, Failure> {
    std::fs::File::open(path)
        .map_err(|error| Failure::Usage(miette!("cannot read {}: {error}", path.display())))
}

fn stream(path: &Path) -> Result<Box<dyn Read + Send>, Failure> {
    Ok(match path.as_os_str() == "-" {
        true => Box::new(io::stdin()),
        false => Box::new(open(path)?),
    })
}

/// The states of the keys of a stream.
fn keys(
    path: &Path,
    framing: Framing,
    max_state: usize,
    stamp: Option<StampFormat>,
) -> Result<Box<dyn Sampler>, Failure> {
    let max = max_state.saturating_add(TopicKey::MAX_LEN + 1);
    Ok(Box::new(Keys::new(stream(path)?, framing, max).stamped(stamp)))
}

fn sampler(
    input: &Input,
    framing: Framing,
    max_state: usize,
    stamp: Option<StampFormat>,
) -> Result<Box<dyn Sampler>, Failure> {
    let usage = |message: String| Failure::Usage(miette!("{message}"));
    Ok(match input {
        Input::Sample(command) => Box::new(Command::new(command.clone(), max_state)),
        Input::Read(path) => {
            // Later the file may come and go; if it is missing at the start, that is most likely a
            // mistake.
            open(path)?;
            Box::new(File::new(path.clone(), max_state))
        }
        Input::Latest(path) => {
            Box::new(Latest::new(stream(path)?, framing, max_state).stamped(stamp))
        }
        Input::Records(_) => {
            return Err(usage("records=STREAM is for topics of kind every".into()));
        }
        Input::Size(size) => {
            let size = usize::try_from(size.get()).ok().filter(|size| *size <= max_state);
            Box::new(Synthetic::new(size.ok_or_else(|| {
                usage(format!("--size is above --max-state, {max_state} bytes: raise that, too"))
            })?))
        }
    })
}

fn failure(error: SourceError) -> Failure {
    match error {
        SourceError::Opening(_)
        | SourceError::Topics(_)
        | SourceError::Dial(_)
        | SourceError::Paths(_) => Failure::Usage(miette::Report::msg(error)),
        _ => Failure::Runtime(miette::Report::msg(error)),
    }
}
