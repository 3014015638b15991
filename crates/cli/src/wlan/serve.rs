//! `freshline wlan serve`: sends packets to clients behind an access point.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, ValueEnum};
use freshline_core::session::downlink::ServerParams;
use freshline_core::unit::{BitRate, Bytes, Packets, Span};
use freshline_core::wlan::{DownlinkLawConfig, DownlinkParams, LinearParams, NonlinearParams};
use freshline_net::ask::Asker;
use freshline_net::clock::Clock;
use freshline_net::downlink::metrics::serve as serve_metrics;
use freshline_net::downlink::payload::{File, Live, Payloads, Synthetic};
use freshline_net::downlink::{ClientStatus, Server, ServerConfig, ServerError, ServerReport};
use freshline_net::quic::Limits;
use miette::{IntoDiagnostic, miette};

use crate::Failure;
use crate::listening::{ListenArgs, say_where};
use crate::output::{ms, print_json, printed, stop_on_signals};
use crate::url::MonitorUrl;

/// Send packets to clients behind an access point, as fast as keeps its queues short.
///
/// Clients are those of `freshline wlan receive`. They count how many packets come in a frame, and
/// report; from that the law knows how long packets wait in the access point. Packets leave evenly
/// spaced.
#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("what").required(true)), after_long_help = "\
EXAMPLES

A video that is being made, to whoever has the fingerprint; at most 5 ms in the access point:

    encoder | freshline wlan serve quic://0.0.0.0:3774 --stream - --delay 5ms

The same over an emulated access point, in three terminals:

    freshline wlan serve udp://127.0.0.1:3774 --size 1500
    freshline emulate udp --listen 127.0.0.1:4000 --to 127.0.0.1:3774 \\
        --wlan standard=802.11ac,rate=mcs5,width=40MHz
    freshline wlan receive udp://127.0.0.1:4000 --mcs-rate 108mbit

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
    /// Send this file to each client, from its beginning; whoever has it all is told so.
    #[arg(long, value_name = "FILE", group = "what", help_heading = "Payload")]
    file: Option<PathBuf>,
    /// Begin the file anew after its end.
    #[arg(long = "loop", help_heading = "Payload")]
    repeat: bool,
    /// Send this live stream: to each client what comes from when it joined; `-` is standard input.
    #[arg(long, value_name = "STREAM", group = "what", help_heading = "Payload")]
    stream: Option<PathBuf>,
    /// Leave out what has waited for longer than this, the oldest first.
    #[arg(long, value_name = "TIME", default_value = "100ms", help_heading = "Payload")]
    fresh: Span,
    /// Send made-up payloads of this size, for measurements; no more than --packet takes.
    #[arg(long, value_name = "BYTES", group = "what", help_heading = "Payload")]
    size: Option<Bytes>,
    /// The law that decides how fast to send.
    #[arg(long, value_enum, default_value = "nonlinear", help_heading = "Rate")]
    law: LawName,
    /// The longest round of the access point over its clients [--law nonlinear; 5ms]. A packet's
    /// mean delay is up to one and a half rounds.
    #[arg(long, value_name = "TIME", help_heading = "Rate")]
    delay: Option<Span>,
    /// The most packets in a frame [--law nonlinear and linear; 32].
    #[arg(long, value_name = "PACKETS", help_heading = "Rate")]
    level: Option<f64>,
    /// To each client [--law fixed], such as 50mbit.
    #[arg(long, value_name = "RATE", help_heading = "Rate")]
    rate: Option<BitRate>,
    /// How often clients report and rates change.
    #[arg(long, value_name = "TIME", default_value_t = DownlinkParams::default().interval, help_heading = "Rate")]
    interval: Span,
    /// The largest IP packet, with all headers. quic:// has no larger ones than 1207B.
    #[arg(long, value_name = "BYTES", default_value_t = DownlinkParams::default().packet, help_heading = "Rate")]
    packet: Bytes,
    /// How many packets a frame of the access point has at most.
    #[arg(long, value_name = "PACKETS", default_value_t = DownlinkParams::default().most, help_heading = "Rate")]
    most: Packets,
    /// Believe no client that claims a faster rate of its frames.
    #[arg(long, value_name = "RATE", default_value_t = DownlinkParams::default().fastest, help_heading = "Limits")]
    fastest: BitRate,
    /// Serve at most so many clients; others are refused.
    #[arg(long, value_name = "N", default_value_t = DownlinkParams::default().stations, help_heading = "Limits")]
    stations: u32,
    /// Forget a client that has been silent for this long.
    #[arg(long, value_name = "TIME", default_value_t = ServerParams::default().idle, help_heading = "Limits")]
    idle: Span,
    #[command(flatten)]
    listening: ListenArgs,
    /// Serve metrics for Prometheus at http://ADDR/metrics.
    #[arg(long, value_name = "ADDR", help_heading = "Output")]
    metrics: Option<SocketAddr>,
    /// Say how it goes this often, on standard error.
    #[arg(long, value_name = "TIME", default_value = "10s", help_heading = "Output")]
    every: Span,
    /// Print the summary as one JSON document on standard output.
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Stop after this time, such as 10s; else Ctrl-C stops it.
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
}

/// The laws that can be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LawName {
    /// Holds the round at --delay, and levels below --level.
    Nonlinear,
    /// Integrates the level's error.
    Linear,
    /// A constant --rate.
    Fixed,
}

/// Connections of those that have not joined, or of whom it is not known yet that they are gone: so
/// many strangers, 40 kB each, keep no client out.
const OTHERS: usize = 1_000;

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    if args.every.is_zero() {
        return Err(Failure::Usage(miette!("--every must be above zero, such as 10s")));
    }
    if args.repeat && args.file.is_none() {
        return Err(Failure::Usage(miette!("--loop begins a file anew; it belongs to --file")));
    }
    let limits = Limits {
        max_connections: args.stations as usize + OTHERS,
        in_flight: Limits::DOWNLINK_IN_FLIGHT,
        ..Limits::default()
    };
    let quic = args.listening.quic(&args.listen, limits)?;
    let mut server = Server::bind(ServerConfig {
        listen: args.listen.resolve().map_err(Failure::Usage)?,
        quic: quic.as_ref().map(|(config, _)| config.clone()),
        law: law(&args)?,
        params: ServerParams {
            tokens: args.listening.tokens()?,
            idle: args.idle,
            ..ServerParams::default()
        },
        payloads: payloads(&args)?,
    })
    .map_err(failure)?;
    let stop = stop_on_signals()?;
    let address = server.local_addr().map_err(failure)?;
    say_where(address, quic.as_ref().map(|(_, identity)| identity));
    if let Some(address) = args.metrics {
        let address = serve_metrics(address, server.asker(), args.stations as usize)
            .into_diagnostic()
            .map_err(Failure::Runtime)?;
        eprintln!("metrics at http://{address}/metrics");
    }
    let (asker, every) = (server.asker(), args.every.into());
    std::thread::spawn(move || tell_now_and_then(&asker, every));
    let until = args.duration.map(|duration| Clock::new().now() + duration);
    let result = server.run(&stop, until).map_err(failure);
    let report = server.report();
    let told = if args.json { print_json(&report) } else { printed(print_summary(&report)) };
    result.and(told)
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
    let usage = |message: &str| Failure::Usage(miette!("{message}"));
    let downlink = DownlinkParams {
        interval: args.interval,
        packet: args.packet,
        most: args.most,
        stations: args.stations,
        fastest: args.fastest,
        ..DownlinkParams::default()
    };
    if args.rate.is_some() != (args.law == LawName::Fixed) {
        return Err(usage("--rate and --law fixed belong together"));
    }
    if args.delay.is_some() && args.law != LawName::Nonlinear {
        return Err(usage("--delay belongs to --law nonlinear"));
    }
    if args.level.is_some() && args.law == LawName::Fixed {
        return Err(usage("--level belongs to --law nonlinear and linear"));
    }
    Ok(match (args.law, args.rate) {
        (LawName::Fixed, Some(rate)) => DownlinkLawConfig::Fixed { rate, downlink },
        (LawName::Linear, _) => {
            let params = LinearParams::default();
            let target = args.level.unwrap_or(params.target);
            DownlinkLawConfig::Linear(LinearParams { downlink, target, ..params })
        }
        _ => {
            let params = NonlinearParams::default();
            let delay = args.delay.unwrap_or(params.delay);
            let level = args.level.unwrap_or(params.level);
            DownlinkLawConfig::Nonlinear(NonlinearParams { downlink, delay, level, ..params })
        }
    })
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
            Box::new(Live::new(io::stdin(), args.fresh))
        }
        (_, Some(path), _) => {
            let stream = std::fs::File::open(path).map_err(|error| unreadable(path, error))?;
            Box::new(Live::new(stream, args.fresh))
        }
        (_, _, size) => {
            let size = size.unwrap_or_default().get();
            Box::new(Synthetic::new(usize::try_from(size).unwrap_or(usize::MAX)))
        }
    })
}

/// Clients that are told of each time, at most.
const TOLD: usize = 20;

fn tell_now_and_then(asker: &Asker<ServerReport>, every: Duration) {
    loop {
        std::thread::sleep(every);
        let Ok(report) = asker.report(TOLD) else { return };
        let mut err = io::stderr().lock();
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
        "{}: {:.1} Mbit/s, level {} of {}, delay {}, {} lost, {} dropped, {} packets",
        status.client,
        status.rate_bps as f64 * 1e-6,
        number(status.level),
        number(status.target),
        ms(status.delay_ms),
        status.loss.map_or("-".into(), |loss| format!("{:.2} %", loss * 100.0)),
        status.dropped,
        status.packets,
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
        "{} for {:.1} s: {} clients came, {} left, {} fell silent; {} packets, {} not taken by the \
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
