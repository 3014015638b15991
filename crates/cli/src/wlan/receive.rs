//! `freshline wlan receive`: a client of `freshline wlan serve`.

use std::io::{self, Write};
use std::path::PathBuf;

use freshline_core::session::downlink::ClientParams;
use freshline_core::unit::{BitRate, Span, Time};
use freshline_core::wire::{AckMark, CloseReason};
use freshline_net::clock::Clock;
use freshline_net::downlink::{
    CaptureTrouble, Client, ClientConfig, ClientError, ClientReport, ClientWatch, Event, Received,
    SharedRate,
};
use freshline_net::source::LinkEvent;
use freshline_net::wlan::capture::{CaptureCounts, CaptureSource};
use freshline_net::wlan::station_info::RateWatch;
use miette::{IntoDiagnostic, miette};

use super::counting::CountingArgs;
use super::packet_log::{Joined, PacketLog};
use super::packets::Writer;
use crate::failure::Failure;
use crate::mark;
use crate::output::{Troubles, ms, print_json, printed, stop_on_signals};
use crate::transport::TransportArgs;
use freshline::Url;

/// Receive packets over Wi-Fi, and report the number of packets per frame to the server.
///
/// Delays count from the server's sending to the time at which the kernel received the packet. They
/// are derived from round trips, with an error of at most half of the minimum RTT.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES

A live video to a player; the server prints its fingerprint:

    freshline wlan receive quic://edge.example --pin sha256:… --interface wlan0 --out - | player -

Exact counting by a monitor interface:

    freshline wlan receive udp://192.0.2.7:3774 --capture mon0

Packets and their delays of ten seconds, after a warm-up of five, with a line for each packet:

    freshline wlan receive udp://127.0.0.1:4000 --mcs-rate 108mbit --duration 15s --warm-up 5s \\
        --packet-log packets.csv --json

EXIT CODES

0  ended by --duration, by Ctrl-C or with the end of what the server has
1  no packet ever came (a wrong --pin, no server, no route), or the system refuses something, or a
   file cannot be written on
2  the flags or the files that they name cannot be understood
130  a second Ctrl-C, when the end hangs")]
pub(crate) struct Args {
    /// Receive from this server: quic://HOST:PORT, or udp://HOST:PORT on trusted links.
    url: Url,
    /// Write payloads to this file in the order of arrival; `-` is standard output.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    out: Option<PathBuf>,
    /// Assume this rate of the data symbols of this station's frames, such as 390mbit. With
    /// --capture it applies to frames whose rate the capture does not show.
    #[arg(long, value_name = "RATE", help_heading = "Counting", conflicts_with = "interface")]
    mcs_rate: Option<BitRate>,
    /// Get the rate from the driver of this Wi-Fi interface (nl80211), once a second; needs no
    /// privilege.
    #[arg(long, value_name = "IFACE", help_heading = "Counting")]
    interface: Option<String>,
    /// Count by the frames on the air: an interface in monitor mode (needs CAP_NET_RAW), or a pipe
    /// or file with a radiotap capture. For udp:// only.
    #[arg(long, value_name = "IFACE|FILE", help_heading = "Counting")]
    capture: Option<CaptureSource>,
    #[command(flatten)]
    counting: CountingArgs,
    /// Use this name in the server's reports, at most 63 bytes.
    #[arg(long, default_value = "", hide_default_value = true)]
    name: String,
    /// Mark reports with this code point (DSCP), or with `echo` for the code point with which
    /// packets arrive; by default, as the server asks. Joins and the handshake of quic:// are never
    /// marked.
    #[arg(long, value_name = "CODE|echo", help_heading = "Marks")]
    ack_dscp: Option<AckMark>,
    #[command(flatten)]
    transport: TransportArgs,
    /// Write a line for each packet to this file: number, times in ns, bytes; with --capture also its
    /// frame, for `make train ARGS="--from FILE"`.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    packet_log: Option<PathBuf>,
    /// Stop after this time, such as 10s; by default, Ctrl-C stops it.
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    /// Leave packets of this initial period out of the summary.
    #[arg(long, value_name = "TIME", default_value = "0s")]
    warm_up: Span,
    /// Print the progress at this interval, on standard error.
    #[arg(long, value_name = "TIME", default_value = "10s", help_heading = "Output")]
    every: Span,
    /// Print the summary as one JSON document on standard output.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    if args.every.is_zero() {
        return Err(Failure::Usage(miette!("--every must be above zero, such as 10s")));
    }
    let to_stdout = args.out.as_ref().is_some_and(|path| path.as_os_str() == "-");
    if to_stdout && args.json {
        return Err(Failure::Usage(miette!("--out - and --json would mix on standard output")));
    }
    let counter = args.counting.counter(args.capture.is_some())?;
    let (rate, _watch) = rate(&args)?;
    let mut client = Client::new(ClientConfig {
        server: args.url.remote(),
        transport: args.transport.transport(&args.url)?,
        params: ClientParams {
            name: args.name.clone(),
            token: args.transport.token(&args.url)?,
            ack_mark: args.ack_dscp,
            ..ClientParams::default()
        },
        counter,
        rate,
        capture: args.capture.clone(),
        warm_up: args.warm_up,
    })
    .map_err(failure)?;
    let mut outputs = Outputs::of(&args)?;
    let stop = stop_on_signals()?;
    let until = args.duration.map(|duration| Clock::new().now() + duration);
    let result = client.run(&stop, until, &mut outputs).map_err(failure);
    let report = client.report();
    let joined = outputs.joined;
    let why = outputs.troubles.last().map_or_else(String::new, |why| format!(": {why}"));
    let written = outputs.finish();
    let summary = match (args.json, to_stdout) {
        (true, _) => print_json(&report),
        (false, true) => printed(print_summary(&mut crate::said::Stderr, &report)),
        (false, false) => printed(print_summary(&mut io::stdout().lock(), &report)),
    };
    result.and(written).and(summary)?;
    if !joined && !client.is_done() {
        return Err(Failure::Runtime(miette!("no packet came{why}")));
    }
    Ok(())
}

/// The rate of frames, and the watch that asks the driver for it.
fn rate(args: &Args) -> Result<(SharedRate, Option<RateWatch>), Failure> {
    let usage = |text: &str| Failure::Usage(miette!("{text}"));
    match (args.mcs_rate, &args.interface) {
        (Some(rate), _) if rate.as_bps() == 0 => {
            Err(usage("--mcs-rate must be above zero, such as 390mbit"))
        }
        (Some(rate), _) => Ok((SharedRate::new(rate), None)),
        (None, Some(interface)) => {
            let rate = SharedRate::default();
            let summary = rate.clone();
            let watch = RateWatch::start(interface, move |now| summary.set(now));
            Ok((rate, Some(watch.map_err(|error| Failure::Usage(miette::Report::msg(error)))?)))
        }
        (None, None) if args.capture.is_some() => Ok((SharedRate::default(), None)),
        (None, None) => Err(usage(
            "the rate of this station's frames is unknown: give --interface wlan0 to ask its driver, \
             --capture mon0 to read it from the air, or --mcs-rate 390mbit if you know it",
        )),
    }
}

fn failure(error: ClientError) -> Failure {
    match error {
        ClientError::Opening(_)
        | ClientError::Dial(_)
        | ClientError::Capture(_)
        | ClientError::Encrypted => Failure::Usage(miette::Report::msg(error)),
        _ => Failure::Runtime(miette::Report::msg(error)),
    }
}

/// Files and messages.
struct Outputs {
    payloads: Option<Writer>,
    packets: Option<PacketLog>,
    every: Span,
    next: Time,
    troubles: Troubles,
    /// Whether a packet has arrived.
    joined: bool,
}

impl Outputs {
    fn of(args: &Args) -> Result<Self, Failure> {
        let log = |path: &PathBuf| PacketLog::to(path, args.capture.is_some());
        let packets = args.packet_log.as_ref().map(log).transpose()?;
        let next = Clock::new().now() + args.every;
        let payloads = args.out.as_deref().map(Writer::to).transpose()?;
        let every = args.every;
        Ok(Self { payloads, packets, every, next, troubles: Troubles::default(), joined: false })
    }

    /// Waits for the files.
    fn finish(self) -> Result<(), Failure> {
        let (packets, joined) = self.packets.map(PacketLog::end).unzip();
        if let Some(Joined { packets, frameless: without @ 1.. }) = joined.flatten() {
            say!("--packet-log: of {packets} packets, the capture showed {without} in no frame");
        }
        for writer in [self.payloads, packets].into_iter().flatten() {
            if writer.left_out > 0 {
                say!("{} writes were left out: the file was too slow", writer.left_out);
            }
            match writer.finish() {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                written => written.into_diagnostic().map_err(Failure::Runtime)?,
            }
        }
        Ok(())
    }
}

impl ClientWatch for Outputs {
    fn packet(&mut self, now: Time, packet: &Received<'_>) {
        if let Some(payloads) = self.payloads.as_mut().filter(|_| !packet.payload.is_empty()) {
            payloads.put(packet.payload);
        }
        if let Some(packets) = &mut self.packets {
            packets.packet(now, packet);
        }
    }

    fn captured(&mut self, now: Time, seq: u64, frame: Time) {
        if let Some(packets) = &mut self.packets {
            packets.captured(now, seq, frame);
        }
    }

    fn event(&mut self, _now: Time, event: &Event<'_>) {
        match event {
            Event::Joined => {
                self.troubles.are_over();
                self.joined = true;
                say!("packets come");
            }
            Event::Silent => self.troubles.report_once("no packets any more; joining again".into()),
            Event::Closed(CloseReason::Done) => self.troubles.report_once(CloseReason::Done.to_string()),
            Event::Closed(reason) => self.troubles.report_once(format!("{reason}; trying again")),
            Event::Link(LinkEvent::Lost(reason)) => {
                self.troubles.report_once(format!("{reason}; trying again"));
            }
            Event::Link(LinkEvent::Unreachable) => {
                self.troubles.report_once("nothing listens at the server's address; trying again".into());
            }
            Event::Link(LinkEvent::Waiting(why)) => {
                self.troubles.report_once(format!("{why}; trying again"));
            }
            Event::Link(LinkEvent::Ready) => {}
            Event::Capture(trouble) => say!("{}", of_capture(trouble)),
            Event::Unanswered(_) => self.troubles.report_once(
                "no answer: does `freshline wlan serve` listen there, by the same scheme, and does \
                 a firewall let UDP through? trying again"
                    .into(),
            ),
        }
    }

    fn turn(&mut self, now: Time, client: &Client) {
        if let Some(packets) = &mut self.packets {
            packets.turn(now);
        }
        if now < self.next {
            return;
        }
        self.next = now + self.every;
        let _ = print_summary(&mut crate::said::Stderr, &client.report());
    }
}

/// Why the capture cannot be used, and the remedy.
fn of_capture(trouble: &CaptureTrouble) -> String {
    let end = "levels are not counted any more, and the server will slow down";
    match trouble {
        CaptureTrouble::Unseen(report) => {
            let CaptureCounts { frames, packets, protected, unstamped, .. } = report.counts;
            let why = if frames == 0 {
                "no frames at all: is it on this station's channel, and written on?"
            } else if unstamped > 0 {
                "its radio reports neither times nor A-MPDUs: count by the kernel's times, without it"
            } else if protected > 0 {
                "most frames are encrypted: it must be this station's own interface, whose driver \
                 decrypts, or count by the kernel's times, without it"
            } else if packets > 0 {
                "only other packets: it is not of this run"
            } else {
                "only frames of other stations: is it near this station, on its channel and all of its width, \
                 and does the server have this address on the air?"
            };
            format!(
                "packets come, but the capture has shown none of them ({frames} frames, \
                 {protected} encrypted, {packets} of the server, {unstamped} of them without \
                 time): {why}; levels are not counted"
            )
        }
        CaptureTrouble::Unrated => "the capture does not show the rate of frames: add --interface \
                                    or --mcs-rate; such frames are not counted"
            .into(),
        CaptureTrouble::Ended(None) => format!("the capture has ended: {end}"),
        CaptureTrouble::Ended(Some(error)) => format!("{error}: {end}"),
    }
}

fn print_summary(out: &mut dyn Write, report: &ClientReport) -> io::Result<()> {
    writeln!(
        out,
        "{:.1} s: {:.2} Mbit/s, level {}, delay p50 {}, p99 {}, {} packets, {} missing{}",
        report.duration_s,
        report.goodput_bps * 1e-6,
        report.level.map_or("-".into(), |level| format!("{level:.1}")),
        delay(report.delay_p50_ms),
        delay(report.delay_p99_ms),
        report.counters.packets,
        report.counters.missing,
        mark::arrived_as(report.dscp),
    )
}

/// Delays are a few ms, so they have one more digit than other values.
fn delay(value: Option<f64>) -> String {
    value.map_or_else(|| ms(None), |value| format!("{value:.2} ms"))
}
