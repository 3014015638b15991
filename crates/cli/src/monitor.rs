//! `freshline monitor`: holds the freshest state of many sources.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use freshline::driver::clock::Clock;
use freshline::driver::credentials::Right;
use freshline::driver::monitor::output::{
    OutFormat, Outputs, SocketError, StateSocket, serve_metrics,
};
use freshline::driver::monitor::{Asker, Monitor, MonitorError, MonitorReport, SourceStatus};
use freshline_core::session::{MaxAge, MonitorParams};
use freshline_core::unit::Span;
use freshline_core::wire::AckMark;
use miette::{IntoDiagnostic, miette};

use crate::config::ConfigArgs;
use crate::failure::Failure;
use crate::held::{HeldArgs, MetricsArgs};
use crate::listening::{ListenArgs, reload_on_hangup, say_where};
use crate::mark;
use crate::output::{ms, print_json, printed};
use crate::privileges::Needs;
use crate::web::{Web, WebArgs};
use freshline::{MonitorBuilder, Url};

/// Receive the freshest state of many sources, and report the age of each.
///
/// The age of a source is known as soon as the source has learnt the offset between both clocks
/// from its first round trips. The error of the age is the asymmetry of the path: at most half of
/// the minimum RTT.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("commands").multiple(true))]
#[command(after_long_help = "\
EXAMPLES

Listen on all addresses, with a generated certificate, and serve metrics:

    freshline monitor quic://0.0.0.0:3774 --metrics 127.0.0.1:9090

Accept sources with one token, under names that begin with `robot-`; each fresh state goes to a
program as a line of JSON:

    freshline token new robots.token --name 'robot-*' >> credentials
    freshline monitor quic://0.0.0.0:3774 --credentials credentials --out - | jq -c .payload

Accept the changed file, and end the sessions that it does not permit any more:

    kill -HUP $(pgrep -f 'freshline monitor')

Hand out no command that is older than 200 ms, and stop the machine when there is no younger one:

    freshline monitor quic://0.0.0.0:3774 --credentials credentials --exec execute-command \\
        --max-age 'cmd/*=200ms' --on-stale 'test $FRESHLINE_STATE = fresh || stop-machine'

Show all sources in a browser, on this host or through `ssh -L 8080:localhost:8080`:

    freshline monitor quic://0.0.0.0:3774 --credentials credentials --web 127.0.0.1:8080

Send the newest line of standard input to each source that runs with --receive:

    command-publisher | freshline monitor quic://0.0.0.0:3774 --credentials credentials \\
        --out states --topic cmd,latest=-

EXIT CODES

0  ended by --duration or Ctrl-C, with the summary
1  cannot bind the address or open the file, out of system resources, or some states could not be
   written to --out
2  the flags or the files that they name cannot be understood
130  a second Ctrl-C, when the end hangs")]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// Listen at this address: quic://ADDRESS:PORT, or udp://ADDRESS:PORT, which needs --insecure
    /// if ADDRESS is not loopback. Port 0 takes a free one. Default: quic://0.0.0.0:3774 with
    /// --credentials, --token-file or --client-ca, otherwise quic://127.0.0.1:3774.
    listen: Option<Url>,
    #[command(flatten)]
    listening: ListenArgs,
    #[command(flatten)]
    held: HeldArgs,
    /// Mark acks with this code point (DSCP), or with `echo` for the code point with which the
    /// update arrived; by default, as each source asks. Challenges and the handshake of quic:// are
    /// never marked.
    #[arg(long, value_name = "CODE|echo", help_heading = "Marks")]
    ack_dscp: Option<AckMark>,
    /// Write every fresh state to this file as a line of JSON; `-` is standard output. For a state
    /// of more than 64 KiB the line has only its length: use --exec or --out-format for large
    /// states.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    out: Option<PathBuf>,
    /// Write states to --out in this format: `json`, lines with source, age and payload; or only
    /// the payload, without the source's name, in binary frames: `u32`, after the length as four
    /// bytes, most significant first, or `cobs`, Consistent Overhead Byte Stuffing.
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "json",
        requires = "out",
        help_heading = "Output"
    )]
    out_format: OutFormat,
    /// Run this shell command for fresh states, with the state on its standard input and
    /// FRESHLINE_SOURCE, FRESHLINE_TOPIC, FRESHLINE_KEY, FRESHLINE_SEQ and FRESHLINE_AGE_MS in its
    /// environment, the age as the command starts. For a removed key FRESHLINE_REMOVED is 1. It
    /// runs for several sources at a time. While it runs for a source, the monitor keeps only the
    /// newest state of each of its topics and keys, but all records of topics of kind `every`,
    /// which have FRESHLINE_RECORD. Its output goes to standard output; with --json or --out - to
    /// standard error.
    #[arg(long, value_name = "CMD", group = "commands", help_heading = "Output")]
    exec: Option<String>,
    /// Hand out states of matching topics only while they are younger than this. PATTERN is
    /// compared with SOURCE/TOPIC, or with SOURCE if there is no topic; `*` matches any characters,
    /// and the first matching rule counts. The age of a state counts plus its uncertainty, which is
    /// half of a round trip or less. A state of unknown age is held back until its age is known.
    #[arg(long, value_name = "PATTERN=TIME", help_heading = "Output")]
    max_age: Vec<MaxAge>,
    /// Run this shell command when a topic of --max-age no longer has a young enough state, and
    /// when it has one again, with FRESHLINE_STATE (`stale` or `fresh`), FRESHLINE_SOURCE,
    /// FRESHLINE_TOPIC, FRESHLINE_KEY, FRESHLINE_AGE_MS, FRESHLINE_UNCERTAINTY_MS and
    /// FRESHLINE_MAX_AGE_MS in its environment. It runs for several topics at a time, and for one
    /// topic in the order of events.
    #[arg(
        long,
        value_name = "CMD",
        group = "commands",
        requires = "max_age",
        help_heading = "Output"
    )]
    on_stale: Option<String>,
    /// End a command of --exec or --on-stale that runs for longer than this.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "10s",
        requires = "commands",
        help_heading = "Output"
    )]
    exec_timeout: Span,
    /// Listen at this UNIX socket. Each client that connects gets one snapshot of the freshest
    /// states, one line of JSON per source; then the stream ends.
    #[arg(long, value_name = "PATH", help_heading = "Output")]
    socket: Option<PathBuf>,
    /// Listen at this UNIX socket. Each client that connects gets the snapshot of --socket, and
    /// then every fresh state as a line of JSON, as it arrives; a slow client gets the newest state
    /// of each source.
    #[arg(long, value_name = "PATH", help_heading = "Output")]
    subscribe: Option<PathBuf>,
    /// Write into this file which records of topics of kind `every` --out and --exec have
    /// completed, and continue from there after a restart. If the process is killed, the last
    /// completed records may be delivered again. Without this file, sources resend all records
    /// whose completion was not acknowledged.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    journal: Option<PathBuf>,
    #[cfg(feature = "source")]
    #[command(flatten)]
    returns: crate::source::returns::ReturnArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
    #[command(flatten)]
    web: WebArgs,
    /// Stop after this time, such as 10s; by default, Ctrl-C stops it.
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    /// Print the summary as one JSON document on standard output.
    #[arg(long, conflicts_with = "out")]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    args.held.check()?;
    if args.exec_timeout == Span::ZERO {
        return Err(Failure::Usage(miette!("--exec-timeout must be above 0s")));
    }
    if args.socket.is_some() && args.socket == args.subscribe {
        return Err(Failure::Usage(miette!("--socket and --subscribe need a path each")));
    }
    let url = args.listen.clone().unwrap_or_else(|| args.listening.default_url());
    let listening = args.listening.listening(&url)?;
    let mut builder = MonitorBuilder::new(Ok(url))
        .listening(listening.clone())
        .params(MonitorParams { ack_mark: args.ack_dscp, ..args.held.params() })
        .detailed(args.metrics.sources, args.held.forget);
    builder = args.max_age.iter().cloned().fold(builder, MonitorBuilder::max_age_of);
    let (monitor, quic) = builder.build()?;
    reload_on_hangup(listening, Right::Publish, quic.clone(), monitor.reloader())?;
    let mut web = args.web.prepare()?;
    let monitor = with_returns(&args, &mut web, monitor)?;
    confine(&args);
    let stop = args.listening.stop_on_signals()?;

    let address = monitor.local_addr().map_err(failure)?;
    let mut outputs = outputs(&args)?;
    let cursors = outputs.take_records(monitor.waker(), args.journal.as_deref());
    let mut monitor = monitor.with_cursors(cursors.into_diagnostic().map_err(Failure::Usage)?);
    let runtime = |report: miette::Report| Failure::Runtime(report);
    let _sockets = sockets(&args, &monitor, &outputs)?;
    let metrics = args.metrics;
    let metrics = metrics
        .address
        .map(|address| serve_metrics(address, monitor.asker(), metrics.sources))
        .transpose()
        .into_diagnostic()
        .map_err(runtime)?;
    let gateway = web.serve(&monitor)?;
    // Nothing can fail any more before the monitor listens.
    say_where(address, quic.as_ref());
    args.listening.warn_if_open(address, "send states");
    if let Some(address) = metrics {
        say!("metrics at http://{address}/metrics");
    }
    if let Some(gateway) = &gateway {
        say!("page at {}", gateway.url());
    }
    let silent = args.json || args.out.is_some() || args.exec.is_some();
    if !silent {
        let asker = monitor.asker();
        std::thread::spawn(move || print_each_second(&asker));
    }
    let until = args.duration.map(|duration| Clock::new().now() + duration);
    let result = web.run(&mut monitor, &stop, until, &args.max_age, &mut outputs).map_err(failure);
    drop(gateway);
    let report = monitor.report(&outputs);
    // Ends the answers of the monitor to askers.
    drop(monitor);
    let written = outputs.finish(&stop);
    let written = written.into_diagnostic().map_err(Failure::Runtime);
    let summary = if args.json { print_json(&report) } else { printed(print_summary(&report)) };
    result.and(summary).and(written)
}

/// The monitor, which also sends topics, if there are any.
fn with_returns(args: &Args, web: &mut Web, monitor: Monitor) -> Result<Monitor, Failure> {
    use freshline::driver::monitor::ReturnConfigError;
    #[cfg(feature = "source")]
    let config = args.returns.config()?;
    #[cfg(not(feature = "source"))]
    let (config, _) = (None, args);
    match web.add_returned(config) {
        None => Ok(monitor),
        Some(config) => monitor.returning(config).map_err(|error| match error {
            ReturnConfigError::Monitor(error) => failure(error),
            _ => Failure::Usage(miette::Report::msg(error)),
        }),
    }
}

/// Gives up privileges that are no longer needed, unless commands are run.
fn confine(args: &Args) {
    let needs = Needs::default().listens(args.metrics.address).listens(args.web.address());
    let needs = needs.writes(args.out.as_deref()).writes(args.socket.as_deref());
    let needs = needs.writes(args.subscribe.as_deref()).writes(args.journal.as_deref());
    #[cfg(feature = "source")]
    let (needs, samples) =
        (args.returns.files().fold(needs, Needs::reads), args.returns.runs_commands());
    #[cfg(not(feature = "source"))]
    let samples = false;
    if args.exec.is_none() && args.on_stale.is_none() && !samples {
        needs.confine();
    }
}

fn failure(error: MonitorError) -> Failure {
    Failure::Runtime(miette::Report::msg(error))
}

fn outputs(args: &Args) -> Result<Outputs, Failure> {
    let mut outputs = Outputs::new();
    match &args.out {
        None => {}
        Some(path) if path.as_os_str() == "-" => {
            outputs.write_states(Box::new(io::stdout()), args.out_format);
        }
        Some(path) => {
            let appended = outputs.append_states(path, args.out_format);
            appended.into_diagnostic().map_err(Failure::Usage)?;
        }
    }
    outputs.limit_ages(args.max_age.clone());
    // Standard output holds one document, or lines of JSON.
    let is_taken = args.json || args.out.as_deref().is_some_and(|path| path.as_os_str() == "-");
    if let Some(command) = &args.on_stale {
        outputs.run_on_stale(command.clone(), args.exec_timeout, is_taken);
    }
    if let Some(command) = &args.exec {
        if is_taken {
            outputs.run_command_to_stderr(command.clone(), args.exec_timeout);
        } else {
            outputs.run_command(command.clone(), args.exec_timeout);
        }
    }
    Ok(outputs)
}

/// The sockets for readers of states; they exist until they are dropped.
fn sockets(
    args: &Args,
    monitor: &Monitor,
    outputs: &Outputs,
) -> Result<[Option<StateSocket>; 2], Failure> {
    let snapshots = args.socket.as_deref();
    let snapshots = snapshots.map(|path| StateSocket::snapshots(path, monitor.asker()));
    let subscriptions = args
        .subscribe
        .as_deref()
        .map(|path| StateSocket::subscriptions(path, monitor.asker(), outputs.subscribers()));
    let made = |socket: Option<Result<_, SocketError>>| {
        socket.transpose().into_diagnostic().map_err(Failure::Runtime)
    };
    Ok([made(snapshots)?, made(subscriptions)?])
}

/// The maximum number of sources that are printed each second.
const MAX_PRINTED: usize = 20;

fn print_each_second(asker: &Asker) {
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let Ok(sources) = asker.sources(MAX_PRINTED) else { return };
        let mut err = crate::said::Stderr;
        for status in &sources {
            if writeln!(err, "{}", line(status)).is_err() {
                return;
            }
        }
    }
}

fn line(status: &SourceStatus) -> String {
    let SourceStatus { source, age_ms, age_mean_ms, updates_per_s, missing, stale, dscp, .. } =
        status;
    let deadline = match (status.too_old(), status.stale_topics) {
        (0, 0) => String::new(),
        (too_old, 0) => format!(", {too_old} too old"),
        (too_old, 1) if status.topics.is_empty() => format!(", {too_old} too old, TOO OLD NOW"),
        (too_old, topics) => format!(", {too_old} too old, {topics} topics TOO OLD NOW"),
    };
    format!(
        "{source}: age {} (mean {}), {updates_per_s:.1} updates/s, {missing} missing, {stale} \
         stale{}{deadline}",
        ms(*age_ms),
        ms(*age_mean_ms),
        mark::arrived_as(*dscp),
    )
}

fn print_summary(report: &MonitorReport) -> io::Result<()> {
    // Standard output may carry the lines of --out.
    let mut err = crate::said::Stderr;
    for status in report.ended.iter().chain(&report.sources) {
        writeln!(err, "{}", line(status))?;
    }
    let counters = &report.counters;
    writeln!(
        err,
        "{:.1} s: {} sources opened, {} open; {} fresh updates, {} stale, {} duplicates; {} challenged, \
         {} refused, {} displaced, {} datagrams ignored",
        report.duration_s,
        counters.opened,
        report.sources_open,
        counters.fresh,
        counters.stale,
        counters.duplicates,
        counters.challenged,
        counters.refused,
        counters.displaced,
        counters.ignored,
    )?;
    let (records, lost) = (counters.records, counters.lost_records);
    if counters.bad_chunks > 0 {
        writeln!(err, "{} invalid parts of records were refused", counters.bad_chunks)?;
    }
    match (records, lost) {
        (0, 0) => Ok(()),
        (records, 0) => writeln!(err, "{records} records"),
        (records, lost) => writeln!(
            err,
            "{records} records; {lost} parts of records are missing: their sources no longer had them"
        ),
    }
}
