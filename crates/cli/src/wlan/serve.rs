//! `freshline wlan serve`: sends packets to clients behind an access point.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, ValueEnum};
use freshline_core::dscp::Dscp;
use freshline_core::session::downlink::ServerParams;
use freshline_core::unit::{BitRate, Bytes, Packets, Span};
use freshline_core::wire::AckMark;
use freshline_core::wlan::{
    Algorithm2Params, DownlinkLawConfig, DownlinkParams, LinearParams, NonlinearParams, Sharing,
};
use freshline_net::ask::Asker;
use freshline_net::clock::Clock;
use freshline_net::credentials::Right;
use freshline_net::downlink::metrics::serve as serve_metrics;
use freshline_net::downlink::payload::{File, Live, Payloads, Synthetic};
use freshline_net::downlink::{ClientStatus, Server, ServerConfig, ServerError, ServerReport};
use freshline_net::quic::Limits;
use miette::{IntoDiagnostic, miette};

use crate::failure::Failure;
use crate::listening::{ListenArgs, reload_on_hangup, say_where};
use crate::mark;
use crate::output::{Troubles, ms, print_json, printed};
use freshline::{Quic, Url};

/// Send packets to clients behind an access point, at the highest rate that keeps its queues short.
///
/// Clients run `freshline wlan receive`. They count and report the packets per frame, from which
/// the law derives the queueing delay in the access point. Packets are sent evenly spaced.
#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("what").required(true)), after_long_help = "\
EXAMPLES

A live video, to any client with the fingerprint; at most 5 ms in the access point:

    encoder | freshline wlan serve quic://0.0.0.0:3774 --stream - --delay 5ms

The same over an emulated access point, in three terminals:

    freshline wlan serve udp://127.0.0.1:3774 --size 1500
    freshline emulate udp --listen 127.0.0.1:4000 --to 127.0.0.1:3774 \\
        --wlan standard=802.11ac,rate=mcs5,width=40MHz
    freshline wlan receive udp://127.0.0.1:4000 --mcs-rate 108mbit

EXIT CODES

0  ended by --duration or Ctrl-C, with the summary
1  cannot bind the address or open a file, or out of system resources
2  the flags or the files that they name cannot be understood
130  a second Ctrl-C, when the end hangs")]
pub(crate) struct Args {
    /// Listen at this address: quic://ADDRESS:PORT, or udp://ADDRESS:PORT, which needs --insecure
    /// if ADDRESS is not loopback. Port 0 takes a free one. Default: quic://0.0.0.0:3774 with
    /// --credentials, --token-file or --client-ca, otherwise quic://127.0.0.1:3774.
    listen: Option<Url>,
    /// Send this file to each client, from its beginning; a client that has the whole file is
    /// informed.
    #[arg(long, value_name = "FILE", group = "what", help_heading = "Payload")]
    file: Option<PathBuf>,
    /// Start the file again from its beginning after its end.
    #[arg(long = "loop", help_heading = "Payload")]
    repeat: bool,
    /// Send this live stream: each client gets it from the time when it joined; `-` is standard
    /// input.
    #[arg(long, value_name = "STREAM", group = "what", help_heading = "Payload")]
    stream: Option<PathBuf>,
    /// Drop data that has been queued for longer than this, oldest first.
    #[arg(long, value_name = "TIME", default_value = "100ms", help_heading = "Payload")]
    max_age: Span,
    /// Send synthetic payloads of this size, for measurements; they must fit into --packet-size.
    #[arg(long, value_name = "BYTES", group = "what", help_heading = "Payload")]
    size: Option<Bytes>,
    /// Decide by this law how fast to send.
    #[arg(long, value_enum, default_value = "nonlinear", help_heading = "Rate")]
    law: LawName,
    /// Limit a round of the access point over its clients to this time [--law nonlinear and
    /// algorithm2; 5ms]. A packet's mean delay is up to one and a half rounds.
    #[arg(long, value_name = "TIME", help_heading = "Rate")]
    delay: Option<Span>,
    /// Limit frames to this many packets [--law nonlinear, algorithm2 and linear; 32].
    #[arg(long, value_name = "PACKETS", help_heading = "Rate")]
    level: Option<f64>,
    /// Set K0, the change of the sum of all rates per packet of error and interval [--law linear;
    /// 1mbit]. `freshline wlan plan` prints the largest stable one.
    #[arg(long, value_name = "RATE", help_heading = "Rate")]
    gain: Option<BitRate>,
    /// Give clients an equal share of this: airtime, or the level, each by its own [--law linear;
    /// airtime].
    #[arg(long, value_name = "WHAT", value_enum, help_heading = "Rate")]
    sharing: Option<SharingName>,
    /// Set K1, above 0 and below 2: the fraction of the level's error that the next interval
    /// corrects [--law nonlinear and algorithm2; 0.5].
    #[arg(long, value_name = "K1", help_heading = "Rate")]
    inner_gain: Option<f64>,
    /// Set K2, above 0 and below 1: how fast the target follows --delay [--law nonlinear and
    /// algorithm2; 0.2].
    #[arg(long, value_name = "K2", help_heading = "Rate")]
    outer_gain: Option<f64>,
    /// Set β, 0 to 1: the weight of an interval in the estimate of a frame's overhead, 0 to hold it
    /// [--law nonlinear and algorithm2; 0.05].
    #[arg(long, value_name = "BETA", help_heading = "Rate")]
    overhead_gain: Option<f64>,
    /// Start with this estimate of a frame's time without its packets; of a round's for algorithm2
    /// [--law nonlinear and algorithm2; 200us].
    #[arg(long, value_name = "TIME", help_heading = "Rate")]
    overhead: Option<Span>,
    /// Send at this rate to each client [--law fixed], such as 50mbit.
    #[arg(long, value_name = "RATE", help_heading = "Rate")]
    rate: Option<BitRate>,
    /// Send at the full rate of the law. By default, the rate to each client is limited to the rate
    /// that its reports confirm, so that a backhaul slower than the Wi-Fi is not overloaded.
    #[arg(long, help_heading = "Rate")]
    no_guard: bool,
    /// The default; kept for scripts of earlier versions.
    #[arg(long, hide = true, conflicts_with = "no_guard")]
    guard: bool,
    /// Let clients report, and change rates, at this interval.
    #[arg(long, value_name = "TIME", default_value_t = DownlinkParams::default().interval, help_heading = "Rate")]
    report_interval: Span,
    /// Limit IP packets to this size, with all headers; at most 1207B on quic://.
    #[arg(long, value_name = "BYTES", default_value_t = DownlinkParams::default().packet, help_heading = "Rate")]
    packet_size: Bytes,
    /// Assume at most this many packets per frame of the access point.
    #[arg(long, value_name = "PACKETS", default_value_t = DownlinkParams::default().max_packets, help_heading = "Rate")]
    max_packets: Packets,
    /// Limit the rate of frames that a client reports to this.
    #[arg(long, value_name = "RATE", default_value_t = DownlinkParams::default().max_mcs_rate, help_heading = "Limits")]
    max_mcs_rate: BitRate,
    /// Serve at most N clients, and refuse others.
    #[arg(long, value_name = "N", default_value_t = DownlinkParams::default().max_stations, help_heading = "Limits")]
    max_clients: u32,
    /// Forget a client that has been silent for this long.
    #[arg(long, value_name = "TIME", default_value_t = ServerParams::default().idle, help_heading = "Limits")]
    idle_timeout: Span,
    /// Mark packets with this code point (DSCP), by name or number: EF, AF41, CS5, 46. Challenges
    /// and the handshake of quic:// are never marked.
    #[arg(
        long,
        value_name = "CODE",
        default_value = "0",
        hide_default_value = true,
        help_heading = "Marks"
    )]
    dscp: Dscp,
    /// Ask clients to mark reports with this code point, or with `echo` for the code point with
    /// which the packets arrive.
    #[arg(long, value_name = "CODE|echo", help_heading = "Marks")]
    ack_dscp: Option<AckMark>,
    #[command(flatten)]
    listening: ListenArgs,
    /// Serve metrics for Prometheus at http://ADDR/metrics.
    #[arg(long, value_name = "ADDR", help_heading = "Output")]
    metrics: Option<SocketAddr>,
    /// Print the progress at this interval, on standard error.
    #[arg(long, value_name = "TIME", default_value = "10s", help_heading = "Output")]
    every: Span,
    /// Print the summary as one JSON document on standard output.
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Stop after this time, such as 10s; by default, Ctrl-C stops it.
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
}

/// The available laws.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LawName {
    /// Hold the round at --delay, and levels below --level.
    Nonlinear,
    /// Like nonlinear, as printed in the thesis, for comparison: settles later.
    Algorithm2,
    /// Integrate the level's error.
    Linear,
    /// Send at a constant --rate.
    Fixed,
}

/// The quantity that is equal for all clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SharingName {
    /// The airtime of their frames.
    Airtime,
    /// The packets per frame.
    Level,
}

impl From<SharingName> for Sharing {
    fn from(name: SharingName) -> Self {
        match name {
            SharingName::Airtime => Self::Airtime,
            SharingName::Level => Self::Level,
        }
    }
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    if args.every.is_zero() {
        return Err(Failure::Usage(miette!("--every must be above zero, such as 10s")));
    }
    if args.repeat && args.file.is_none() {
        return Err(Failure::Usage(miette!("--loop repeats a file; it belongs to --file")));
    }
    let limits = Limits {
        max_connections: Limits::connections_for(args.max_clients as usize),
        in_flight: Limits::DOWNLINK_IN_FLIGHT,
        ..Limits::default()
    };
    let url = args.listen.clone().unwrap_or_else(|| args.listening.default_url());
    let listening = args.listening.listening(&url)?;
    let quic = listening.quic(&url, limits)?;
    let mut server = Server::bind(ServerConfig {
        listen: listening.address(&url)?,
        quic: quic.as_ref().map(Quic::config).transpose()?,
        law: law(&args)?,
        params: ServerParams {
            idle: args.idle_timeout,
            dscp: args.dscp,
            ack_mark: args.ack_dscp,
            guard: args.guard || !args.no_guard,
            ..ServerParams::default()
        },
        rules: listening.rules(Right::Subscribe)?,
        payloads: payloads(&args)?,
    })
    .map_err(failure)?;
    let stop = args.listening.stop_on_signals()?;
    reload_on_hangup(listening, Right::Subscribe, quic.clone(), server.reloader())?;
    let address = server.local_addr().map_err(failure)?;
    let metrics = args
        .metrics
        .map(|address| serve_metrics(address, server.asker(), args.max_clients as usize))
        .transpose()
        .into_diagnostic()
        .map_err(Failure::Runtime)?;
    say_where(address, quic.as_ref());
    args.listening.warn_if_open(address, "join");
    if let Some(address) = metrics {
        say!("metrics at http://{address}/metrics");
    }
    let (asker, every) = (server.asker(), args.every.into());
    std::thread::spawn(move || print_periodically(&asker, every));
    let until = args.duration.map(|duration| Clock::new().now() + duration);
    let result = server.run(&stop, until).map_err(failure);
    let report = server.report();
    let summary = if args.json { print_json(&report) } else { printed(print_summary(&report)) };
    result.and(summary)
}

fn failure(error: ServerError) -> Failure {
    match error {
        ServerError::Law(_) | ServerError::Packet { .. } => {
            Failure::Usage(miette::Report::msg(error))
        }
        _ => Failure::Runtime(miette::Report::msg(error)),
    }
}

fn law(args: &Args) -> Result<DownlinkLawConfig, Failure> {
    let downlink = DownlinkParams {
        interval: args.report_interval,
        packet: args.packet_size,
        max_packets: args.max_packets,
        max_stations: args.max_clients,
        max_mcs_rate: args.max_mcs_rate,
        ..DownlinkParams::default()
    };
    check_flags(args)?;
    Ok(match (args.law, args.rate) {
        (LawName::Fixed, Some(rate)) => DownlinkLawConfig::Fixed { rate, downlink },
        (LawName::Linear, _) => {
            let usual = LinearParams::default();
            DownlinkLawConfig::Linear(LinearParams {
                downlink,
                gain: args.gain.unwrap_or(usual.gain),
                target: args.level.unwrap_or(usual.target),
                sharing: args.sharing.map_or(usual.sharing, Sharing::from),
            })
        }
        (LawName::Algorithm2, _) => {
            let usual = Algorithm2Params::default();
            DownlinkLawConfig::Algorithm2(Algorithm2Params {
                downlink,
                inner_gain: args.inner_gain.unwrap_or(usual.inner_gain),
                outer_gain: args.outer_gain.unwrap_or(usual.outer_gain),
                overhead_gain: args.overhead_gain.unwrap_or(usual.overhead_gain),
                delay: args.delay.unwrap_or(usual.delay),
                level: args.level.unwrap_or(usual.level),
                overhead: args.overhead.unwrap_or(usual.overhead),
            })
        }
        _ => {
            let usual = NonlinearParams::default();
            DownlinkLawConfig::Nonlinear(NonlinearParams {
                downlink,
                inner_gain: args.inner_gain.unwrap_or(usual.inner_gain),
                outer_gain: args.outer_gain.unwrap_or(usual.outer_gain),
                overhead_gain: args.overhead_gain.unwrap_or(usual.overhead_gain),
                delay: args.delay.unwrap_or(usual.delay),
                level: args.level.unwrap_or(usual.level),
                overhead: args.overhead.unwrap_or(usual.overhead),
                ..usual
            })
        }
    })
}

/// Rejects flags that do not apply to the law.
fn check_flags(args: &Args) -> Result<(), Failure> {
    let usage = |message: &str| Failure::Usage(miette!("{message}"));
    if args.rate.is_some() != (args.law == LawName::Fixed) {
        return Err(usage("--rate and --law fixed belong together"));
    }
    let seeks_delay = matches!(args.law, LawName::Nonlinear | LawName::Algorithm2);
    for (is_given, belongs, flag, laws) in [
        (args.delay.is_some(), seeks_delay, "--delay", "nonlinear and algorithm2"),
        (args.inner_gain.is_some(), seeks_delay, "--inner-gain", "nonlinear and algorithm2"),
        (args.outer_gain.is_some(), seeks_delay, "--outer-gain", "nonlinear and algorithm2"),
        (args.overhead_gain.is_some(), seeks_delay, "--overhead-gain", "nonlinear and algorithm2"),
        (args.overhead.is_some(), seeks_delay, "--overhead", "nonlinear and algorithm2"),
        (args.gain.is_some(), args.law == LawName::Linear, "--gain", "linear"),
        (args.sharing.is_some(), args.law == LawName::Linear, "--sharing", "linear"),
        (
            args.level.is_some(),
            args.law != LawName::Fixed,
            "--level",
            "nonlinear, algorithm2 and linear",
        ),
    ] {
        if is_given && !belongs {
            return Err(usage(&format!("{flag} belongs to --law {laws}")));
        }
    }
    Ok(())
}

fn payloads(args: &Args) -> Result<Box<dyn Payloads>, Failure> {
    let unreadable = |path: &PathBuf, error: io::Error| {
        Failure::Usage(miette!("cannot read {}: {error}", path.display()))
    };
    Ok(match (&args.file, &args.stream, args.size) {
        (Some(path), ..) => {
            Box::new(File::open(path, args.repeat).map_err(|error| unreadable(path, error))?)
        }
        (_, Some(path), _) if path.as_os_str() == "-" => {
            Box::new(Live::new(io::stdin(), args.max_age))
        }
        (_, Some(path), _) => {
            let stream = std::fs::File::open(path).map_err(|error| unreadable(path, error))?;
            Box::new(Live::new(stream, args.max_age))
        }
        (_, _, size) => {
            let size = size.unwrap_or_default().get();
            Box::new(Synthetic::new(usize::try_from(size).unwrap_or(usize::MAX)))
        }
    })
}

/// The maximum number of clients that are printed each time.
const MAX_PRINTED: usize = 20;

fn print_periodically(asker: &Asker<ServerReport>, every: Duration) {
    let mut marks = Troubles::default();
    loop {
        std::thread::sleep(every);
        let Ok(report) = asker.report(MAX_PRINTED) else { return };
        for client in &report.clients {
            for change in mark::changed(&client.marks, ["packets", "reports"]) {
                marks.report_once(format!("{}: {change}", client.client));
            }
        }
        let mut err = crate::said::Stderr;
        for status in &report.clients {
            if writeln!(err, "{}", line(status)).is_err() {
                return;
            }
        }
    }
}

fn line(status: &ClientStatus) -> String {
    let number = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.1}"));
    format!(
        "{}: {:.1} Mbit/s{}, level {} of {}, control level {}, slowest {}, overhead {}, delay {}, {} lost, \
         {} dropped, {} packets{}",
        status.client,
        status.rate_bps as f64 * 1e-6,
        status.limit_bps.map_or(String::new(), |bps| {
            let what = if status.limited { "limited to" } else { "limit" };
            format!(", {what} {:.1}", bps as f64 * 1e-6)
        }),
        number(status.level),
        number(status.target),
        number(status.control_level),
        number(status.slowest_target),
        status.overhead_ms.map_or("-".into(), |ms| format!("{:.0} µs", ms * 1e3)),
        ms(status.delay_ms),
        status.loss.map_or("-".into(), |loss| format!("{:.2} %", loss * 100.0)),
        status.dropped,
        status.packets,
        mark::shown(&status.marks),
    )
}

fn print_summary(report: &ServerReport) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for status in report.ended.iter().chain(&report.clients) {
        writeln!(out, "{}", line(status))?;
    }
    let counters = &report.counters;
    writeln!(
        out,
        "{} for {:.1} s: {} clients joined, {} left, {} silent; {} packets, {} not accepted by the \
         socket; {} reports; {} challenged, {} refused, {} datagrams ignored",
        report.law,
        report.duration_s,
        counters.joined,
        counters.left,
        counters.expired,
        counters.packets,
        report.unsent,
        counters.reports,
        counters.challenged,
        counters.refused,
        counters.ignored,
    )
}
