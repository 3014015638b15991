//! `freshline monitor`: holds the freshest state of many sources.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use freshline_core::session::MonitorParams;
use freshline_core::unit::{Bytes, Span};
use freshline_net::clock::Clock;
use freshline_net::monitor::output::{Outputs, QuerySocket, serve_metrics};
use freshline_net::monitor::{
    Asker, Monitor, MonitorConfig, MonitorError, MonitorReport, SourceStatus,
};
use freshline_net::quic::{Authorities, Identity, Limits, ServerConfig};
use miette::{IntoDiagnostic, WrapErr, miette};

use crate::Failure;
use crate::output::{ms, print_json, printed, stop_on_signals};
use crate::url::{MonitorUrl, Scheme};

/// Receive the freshest state of many sources, and tell how old each is.
///
/// The age of a source is known as soon as the source has learnt the offset between both clocks
/// from its first round trips; it is exact but for the asymmetry of the path, at most half of the
/// smallest round trip.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES

Listen on all addresses, with a certificate of one's own making, and serve metrics:

    freshline monitor quic://0.0.0.0:3774 --metrics 127.0.0.1:9090

Only who has a token may send; each fresh state goes to a program as a line of JSON:

    head -c 24 /dev/urandom | base64 > token
    freshline monitor quic://0.0.0.0:3774 --token-file token --out - | jq -c .payload

EXIT CODES

0  ended by --duration or Ctrl-C, with the summary
1  an address, a file or the system's resources are not to be had
2  the flags or the files that they name cannot be understood
130  a second Ctrl-C, when the end hangs")]
pub(crate) struct Args {
    /// Where to listen: quic://ADDRESS:PORT, or udp://ADDRESS:PORT on trusted links. Port 0 takes
    /// a free one.
    #[arg(default_value = "quic://0.0.0.0:3774")]
    listen: MonitorUrl,
    /// Show this certificate (quic://); else one is made and kept in --state.
    #[arg(long, value_name = "PEM", requires = "key", help_heading = "Security")]
    cert: Option<PathBuf>,
    /// The private key of --cert.
    #[arg(long, value_name = "PEM", requires = "cert", help_heading = "Security")]
    key: Option<PathBuf>,
    /// Where the certificate of one's own making is kept; else the user's state directory.
    #[arg(long, value_name = "DIR", conflicts_with = "cert", help_heading = "Security")]
    state: Option<PathBuf>,
    /// Take only sources whose certificate one of these authorities has signed (quic://).
    #[arg(long, value_name = "PEM", help_heading = "Security")]
    client_ca: Option<PathBuf>,
    /// Take only sources that show one of the tokens in this file, one a line (quic://).
    #[arg(long, value_name = "FILE", help_heading = "Security")]
    token_file: Option<PathBuf>,
    /// Hold at most so many sources; others are refused.
    #[arg(long, value_name = "N", default_value_t = 10_000, help_heading = "Limits")]
    max_sources: usize,
    /// Take payloads of at most this size.
    #[arg(long, value_name = "BYTES", default_value = "1400B", help_heading = "Limits")]
    max_payload: Bytes,
    /// Forget a source that has been silent for this long.
    #[arg(long, value_name = "TIME", default_value = "60s", help_heading = "Limits")]
    idle: Span,
    /// Write every fresh state to this file as a line of JSON; `-` is standard output.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    out: Option<PathBuf>,
    /// Run this shell command for fresh states, with the state on its standard input and
    /// FRESHLINE_SOURCE, FRESHLINE_SEQ and FRESHLINE_AGE_MS in its environment. While it runs,
    /// only the newest state of each source waits.
    #[arg(long, value_name = "CMD", help_heading = "Output")]
    exec: Option<String>,
    /// Tell the freshest states to whoever connects to this UNIX socket, a line of JSON each.
    #[arg(long, value_name = "PATH", help_heading = "Output")]
    socket: Option<PathBuf>,
    /// Serve metrics for Prometheus at http://ADDR/metrics.
    #[arg(long, value_name = "ADDR", help_heading = "Output")]
    metrics: Option<SocketAddr>,
    /// Name so many sources in metrics and in the summary; the others count in the sums.
    #[arg(long, value_name = "N", default_value_t = 100, help_heading = "Output")]
    metrics_sources: usize,
    /// Stop after this time, such as 10s; else Ctrl-C stops it.
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    /// Print the summary as one JSON document on standard output.
    #[arg(long, conflicts_with = "out")]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    if args.idle < Span::from_secs(1) {
        return Err(Failure::Usage(miette!("--idle must be at least 1s; sources rest in between")));
    }
    let quic = match args.listen.scheme {
        Scheme::Udp => {
            refuse_security_flags(&args)?;
            None
        }
        Scheme::Quic => Some(quic(&args)?),
    };
    let mut monitor = Monitor::bind(MonitorConfig {
        listen: args.listen.resolve().map_err(Failure::Usage)?,
        quic: quic.as_ref().map(|(config, _)| config.clone()),
        params: MonitorParams {
            tokens: tokens(args.token_file.as_deref())?,
            max_sources: args.max_sources,
            max_payload: usize::try_from(args.max_payload.get()).unwrap_or(usize::MAX),
            idle: args.idle,
            ..MonitorParams::default()
        },
        detailed: args.metrics_sources,
    })
    .map_err(failure)?;
    let stop = stop_on_signals()?;

    let address = monitor.local_addr().map_err(failure)?;
    match &quic {
        None => eprintln!("listening at udp://{address}; neither encrypted nor authenticated"),
        Some((_, identity)) => {
            eprintln!("listening at quic://{address}\nfingerprint {}", identity.fingerprint());
        }
    }
    let mut outputs = outputs(&args)?;
    let runtime = |report: miette::Report| Failure::Runtime(report);
    let _socket = match &args.socket {
        None => None,
        Some(path) => {
            Some(QuerySocket::listen(path, monitor.asker()).into_diagnostic().map_err(runtime)?)
        }
    };
    if let Some(address) = args.metrics {
        let address = serve_metrics(address, monitor.asker(), args.metrics_sources)
            .into_diagnostic()
            .map_err(runtime)?;
        eprintln!("metrics at http://{address}/metrics");
    }
    let silent = args.json || args.out.is_some() || args.exec.is_some();
    if !silent {
        let asker = monitor.asker();
        std::thread::spawn(move || tell_each_second(&asker));
    }
    let until = args.duration.map(|duration| Clock::new().now() + duration);
    let result = monitor.run(&stop, until, &mut outputs).map_err(failure);
    let report = monitor.report(&outputs);
    outputs.finish();
    let told = if args.json { print_json(&report) } else { printed(print_summary(&report)) };
    result.and(told)
}

fn failure(error: MonitorError) -> Failure {
    Failure::Runtime(miette::Report::msg(error))
}

fn refuse_security_flags(args: &Args) -> Result<(), Failure> {
    let given = args.cert.is_some() || args.client_ca.is_some() || args.token_file.is_some();
    if given || args.state.is_some() {
        return Err(Failure::Usage(miette!(
            "--cert, --state, --client-ca and --token-file mean nothing on udp://, which is neither \
             encrypted nor authenticated; use quic://"
        )));
    }
    Ok(())
}

fn quic(args: &Args) -> Result<(ServerConfig, Identity), Failure> {
    let identity = match (&args.cert, &args.key) {
        (Some(cert), Some(key)) => Identity::from_pem_files(cert, key),
        _ => Identity::from_state_dir(&state_dir(args.state.as_deref())?),
    };
    let identity = identity.into_diagnostic().map_err(Failure::Usage)?;
    let clients = match &args.client_ca {
        None => None,
        Some(file) => {
            Some(Authorities::from_pem_file(file).into_diagnostic().map_err(Failure::Usage)?)
        }
    };
    let limits = Limits {
        max_connections: args.max_sources,
        idle_timeout: args.idle.into(),
        ..Limits::default()
    };
    let config = ServerConfig::new(&identity, clients.as_ref(), limits)
        .into_diagnostic()
        .map_err(Failure::Usage)?;
    Ok((config, identity))
}

/// As the XDG base directory specification has it.
pub(crate) fn state_dir(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let from = |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty());
    let home = || from("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    given
        .map(Path::to_owned)
        .or_else(|| {
            from("XDG_STATE_HOME").map(PathBuf::from).or_else(home).map(|dir| dir.join("freshline"))
        })
        .ok_or_else(|| {
            Failure::Usage(miette!("neither HOME nor --state says where to keep the certificate"))
        })
}

fn tokens(file: Option<&Path>) -> Result<Vec<Vec<u8>>, Failure> {
    let Some(file) = file else { return Ok(Vec::new()) };
    let text = std::fs::read_to_string(file)
        .into_diagnostic()
        .wrap_err_with(|| format!("cannot read the token file {}", file.display()))
        .map_err(Failure::Usage)?;
    let tokens = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let tokens: Vec<_> = tokens.map(|token| token.as_bytes().to_vec()).collect();
    // An empty list would let everybody in.
    if tokens.is_empty() {
        return Err(Failure::Usage(miette!("the token file {} is empty", file.display())));
    }
    Ok(tokens)
}

fn outputs(args: &Args) -> Result<Outputs, Failure> {
    let mut outputs = Outputs::new();
    match &args.out {
        None => {}
        Some(path) if path.as_os_str() == "-" => outputs.write_lines(Box::new(io::stdout())),
        Some(path) => {
            let file = std::fs::File::options()
                .create(true)
                .append(true)
                .open(path)
                .into_diagnostic()
                .wrap_err_with(|| format!("cannot write {}", path.display()))
                .map_err(Failure::Usage)?;
            outputs.write_lines(Box::new(file));
        }
    }
    if let Some(command) = &args.exec {
        outputs.run_command(command.clone());
    }
    Ok(outputs)
}

/// Sources that are told each second, at most.
const TOLD: usize = 20;

fn tell_each_second(asker: &Asker) {
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let Ok(sources) = asker.sources(TOLD) else { return };
        let mut err = io::stderr().lock();
        for status in &sources {
            if writeln!(err, "{}", line(status)).is_err() {
                return;
            }
        }
    }
}

fn line(status: &SourceStatus) -> String {
    let SourceStatus { source, age_ms, age_mean_ms, updates_per_s, missing, stale, .. } = status;
    format!(
        "{source}: age {} (mean {}), {updates_per_s:.1} updates/s, {missing} missing, {stale} stale",
        ms(*age_ms),
        ms(*age_mean_ms),
    )
}

fn print_summary(report: &MonitorReport) -> io::Result<()> {
    // Standard output may carry --out's lines.
    let mut err = io::stderr().lock();
    for status in report.ended.iter().chain(&report.sources) {
        writeln!(err, "{}", line(status))?;
    }
    let counters = &report.counters;
    writeln!(
        err,
        "{:.1} s: {} sources opened, {} open; {} fresh updates, {} late, {} copies; {} challenged, \
         {} refused, {} datagrams ignored",
        report.duration_s,
        counters.opened,
        report.sources_open,
        counters.fresh,
        counters.late,
        counters.copies,
        counters.challenged,
        counters.refused,
        counters.ignored,
    )
}
