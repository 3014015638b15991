//! `freshline relay`: a monitor that is also a source for further monitors.

mod reporter;

use std::path::PathBuf;

use freshline::driver::clock::Clock;
use freshline::driver::credentials::Right;
use freshline::driver::relay::{RelayError, Watch, serve_metrics};
use freshline_core::unit::Span;
use miette::{IntoDiagnostic, miette};

use crate::config::ConfigArgs;
use crate::failure::Failure;
use crate::held::{HeldArgs, MetricsArgs};
use crate::law::LawArgs;
use crate::listening::{ListenArgs, reload_on_hangup, say_where};
use crate::mark::MarkArgs;
use crate::output::{print_json, printed};
use crate::paths::PathArgs;
use crate::privileges::{Needs, raise_descriptor_limit};
use crate::transport::TrustArgs;
use freshline::{Listening, MonitorBuilder, Relay, RelayBuilder, Scheme, Url};
use reporter::{Reporter, print_each, print_summary};

/// Receive states as a monitor does, and send them on to further monitors.
///
/// Each source has its own session at each destination, under the same name, at the rate of that
/// path. The relay keeps only the newest state of each topic and key, and passes on removals of
/// keys. Ages count from the generation at the source, over any number of relays. The relay retries
/// an unreachable destination, without effect on the others; once it is reachable, it gets the
/// newest states at once. Weights and limits of topics apply only at their source. A record
/// (kind=every) is done once all destinations have it: an unreachable destination delays records,
/// but not states.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES

Receive the states of sources in a house, and relay them to two monitors elsewhere:

    freshline relay quic://0.0.0.0:3774 quic://hub.example quic://backup.example \\
        --credentials sources --ca fleet.pem --to-token-file house.token

A chain on one machine, in four terminals; the age at the end counts from the source:

    freshline monitor udp://127.0.0.1:4003
    freshline relay udp://127.0.0.1:4002 udp://127.0.0.1:4003
    freshline relay udp://127.0.0.1:4001 udp://127.0.0.1:4002
    freshline source udp://127.0.0.1:4001 --read /proc/loadavg --name this-host

EXIT CODES

0  ended by --duration or Ctrl-C, with the summary
1  cannot bind the address, or the system refuses something
2  the flags or the files that they name cannot be understood, or a destination is the relay itself
130  a second Ctrl-C, when the end hangs")]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// Listen for sources at this address: quic://ADDRESS:PORT, or udp://ADDRESS:PORT, which needs
    /// --insecure if ADDRESS is not loopback. Port 0 takes a free one.
    listen: Url,
    /// Send states to these monitors: quic://HOST:PORT, or udp://HOST:PORT on trusted links. Flags
    /// of paths, rates and marks apply to each of them.
    #[arg(required = true, value_name = "DESTINATION")]
    destinations: Vec<Url>,
    #[command(flatten)]
    listening: ListenArgs,
    #[command(flatten)]
    trust: TrustArgs,
    /// Show the token in this file to destinations (quic://). The certificate of --cert is shown to
    /// them as well as to sources.
    #[arg(long, value_name = "FILE", help_heading = "Security")]
    to_token_file: Option<PathBuf>,
    #[command(flatten)]
    held: HeldArgs,
    #[command(flatten)]
    paths: PathArgs,
    #[command(flatten)]
    law: LawArgs,
    #[command(flatten)]
    marks: MarkArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
    /// Send an update of each source at least this often, the last state again if there is no newer
    /// one. A destination that restarted unnoticed gets the newest states after this time.
    #[arg(long, value_name = "TIME", default_value = "1s")]
    keep_alive: Span,
    /// Stop after this time, such as 10s; by default, Ctrl-C stops it.
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    /// Print the progress at this interval, on standard error.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    every: Span,
    /// Print the summary as one JSON document on standard output.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    args.held.check()?;
    for (flag, time) in [("--every", args.every), ("--keep-alive", args.keep_alive)] {
        if time.is_zero() {
            return Err(Failure::Usage(miette!("{flag} must be above zero, such as 10s")));
        }
    }
    let listening = args.listening.listening(&args.listen)?;
    let builder = relay(&args, listening.clone())?;
    raise_descriptor_limit();
    let (mut relay, quic) = builder.build()?;
    reload_on_hangup(listening, Right::Publish, quic.clone(), relay.reloader())?;
    Needs::new(args.paths.privileges()).listens(args.metrics.address).confine();
    let stop = args.listening.stop_on_signals()?;
    let address = relay.local_addr().map_err(failure)?;
    let metrics = args.metrics;
    let metrics = metrics
        .address
        .map(|address| serve_metrics(address, relay.asker(), metrics.sources))
        .transpose()
        .into_diagnostic()
        .map_err(Failure::Runtime)?;
    // Nothing can fail any more before the relay listens.
    say_where(address, quic.as_ref());
    args.listening.warn_if_open(address, "send states");
    args.law.warning().into_iter().for_each(|warning| say!("{warning}"));
    if let Some(address) = metrics {
        say!("metrics at http://{address}/metrics");
    }
    let (asker, every) = (relay.asker(), args.every);
    std::thread::spawn(move || print_each(every, &asker));
    let until = args.duration.map(|duration| Clock::new().now() + duration);
    let reporter = |to: &Url| Box::new(Reporter::new(to)) as Box<dyn Watch>;
    let mut reporters: Vec<_> = args.destinations.iter().map(reporter).collect();
    let result = relay.run(&stop, until, &mut (), &mut reporters).map_err(failure);
    let report = relay.report(&());
    let summary = if args.json { print_json(&report) } else { printed(print_summary(&report)) };
    result.and(summary)
}

/// The relay with its destinations.
fn relay(args: &Args, listening: Listening) -> Result<RelayBuilder, Failure> {
    let is_quic = |url: &Url| url.scheme() == Scheme::Quic;
    if args.trust.are_given() && !args.destinations.iter().any(is_quic) {
        return Err(Failure::Usage(miette!("--pin and --ca need a destination at quic://")));
    }
    let monitor = MonitorBuilder::new(Ok(args.listen.clone()))
        .listening(listening)
        .params(args.held.params())
        .detailed(args.metrics.sources, args.held.forget);
    let mut builder = Relay::builder(monitor)
        .paths(args.paths.paths()?)
        .law(args.law.config()?)
        .limits(args.law.limits()?)
        .marks(args.marks.dscp, args.marks.ack_dscp)
        .keep_alive(args.keep_alive);
    let (shown, token) = (args.listening.cert_files(), args.to_token_file.as_deref());
    for url in &args.destinations {
        let dialling = args.trust.dialling(url, shown, token)?;
        builder = builder.dialling(dialling).to_url(Ok(url.clone()));
    }
    Ok(builder)
}

fn failure(error: RelayError) -> Failure {
    match error.is_of_settings() {
        true => Failure::Usage(miette::Report::msg(error)),
        false => Failure::Runtime(miette::Report::msg(error)),
    }
}
