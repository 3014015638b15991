//! `freshline wlan locate`: finds the bottleneck of captured flows.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::value_parser;
use freshline_core::wlan::Weights;
use freshline_core::wlan::estimator::FRAMES;
use freshline_lab::capture::CaptureError;
use freshline_lab::locate::{FlowReport, LocateParams, LocateReport, Numbers, Place, locate};
use miette::{IntoDiagnostic, WrapErr, miette};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{print_json, printed};

/// Find the bottleneck of captured flows over time: the Wi-Fi, or a link before it.
///
/// For each direction of a UDP or TCP flow, prints intervals with the same answer, the mean number
/// of packets per frame, and the flow's loss. Frames count with all packets to their receiver. High
/// levels of aggregation without loss mean Wi-Fi; low levels with loss mean a link before it; the
/// answer is unknown if losses are not known, or there are too few frames. Capture at the client,
/// or near it, in monitor mode (link type 127, radiotap): then the radio reports the frames. In
/// other captures frames are estimated from the kernel's timestamps: capture these at the client.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES

    iw dev wlan0 interface add mon0 type monitor && ip link set mon0 up
    tcpdump -i mon0 -w air.pcap &
    iperf3 -c 192.0.2.7 -u -b 200M -R -t 20
    kill %1
    freshline wlan locate air.pcap

Losses follow from sequence numbers in the packets: of Freshline's downlinks, iperf3 and iperf2 over
UDP, RTP, and TCP, where a hole that is filled later is a loss. Without them the bottleneck is
unknown. Encrypted frames cannot be used: capture where the driver decrypts, or on a network without
a key.

EXIT CODES

0  the whole file was read, and there are flows
1  the file is cut short or damaged: the part before that was measured and printed
2  there is no such file, it is not a capture, none of its link types can be read, or it has no
   flow")]
pub(super) struct Args {
    /// Read this capture: a pcap or pcapng file of any length.
    file: PathBuf,
    /// Follow at most N flows, and only count the packets of further ones.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = value_parser!(u32).range(1..=100_000))]
    max_flows: u32,
    /// Assume at most N packets per frame: 64, or 128 if the access point puts two into an MPDU.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = value_parser!(u32).range(2..=1024))]
    max_packets: u32,
    /// Leave out flows with fewer packets.
    #[arg(long, value_name = "N", default_value_t = 200)]
    min_packets: u64,
    /// Use these weights (TOML) instead of the built-in ones.
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Print one JSON document on standard output.
    #[arg(long)]
    json: bool,
}

/// The JSON document; `docs/json.md` describes each key.
#[derive(Debug, Serialize)]
struct Document {
    #[serde(flatten)]
    report: LocateReport,
    error: Option<String>,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let weights = weights(args.weights.as_deref()).map_err(Failure::Usage)?;
    let name = args.file.display();
    let file = File::open(&args.file)
        .into_diagnostic()
        .wrap_err_with(|| format!("cannot open the capture {name}"))
        .map_err(Failure::Usage)?;
    let frames = toml::from_str(FRAMES).into_diagnostic().map_err(Failure::Runtime)?;
    let (max_flows, min_packets) = (args.max_flows as usize, args.min_packets);
    let max_packets = args.max_packets;
    let params = LocateParams { weights, frames, max_packets, max_flows, min_packets };
    let located = locate(file, &params);
    if located.error.as_ref().is_some_and(CaptureError::is_foreign) {
        let report = located.error.map_or(Ok(()), Err).into_diagnostic();
        return report.wrap_err_with(|| name.to_string()).map_err(Failure::Usage);
    }
    let LocateReport { frames, protected, flows, .. } = &located.report;
    if flows.is_empty() && located.error.is_none() {
        return Err(Failure::Usage(miette!(
            "{name}: no flow has {min_packets} packets or more among {frames} frames, of which \
             {protected} are encrypted; capture longer, or where frames are decrypted, or lower \
             --min-packets"
        )));
    }
    let error = located.error.as_ref().map(ToString::to_string);
    let document = Document { report: located.report, error };
    if args.json {
        print_json(&document)?;
    } else {
        printed(print_tables(&document.report))?;
    }
    let Some(error) = located.error else { return Ok(()) };
    let report = Err::<(), _>(error).into_diagnostic().wrap_err_with(|| name.to_string());
    report.map_err(Failure::Runtime)
}

/// Weights for a locator.
fn weights(file: Option<&Path>) -> miette::Result<Weights> {
    let Some(file) = file else {
        return toml::from_str(Weights::SHIPPED).into_diagnostic();
    };
    let name = file.display();
    let text = fs::read_to_string(file)
        .into_diagnostic()
        .wrap_err_with(|| format!("cannot read the weights {name}"))?;
    let weights: Weights = toml::from_str(&text)
        .into_diagnostic()
        .wrap_err_with(|| format!("{name} has no weights of a locator"))?;
    weights.clone().build().into_diagnostic().wrap_err_with(|| name.to_string())?;
    Ok(weights)
}

fn print_tables(report: &LocateReport) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for flow in &report.flows {
        print_flow(&mut out, flow)?;
    }
    let LocateReport { duration_s, frames, protected, over_limit, .. } = report;
    writeln!(out, "{frames} records in {duration_s:.3} s")?;
    if *protected > 0 {
        writeln!(out, "{protected} frames are encrypted and were not used")?;
    }
    if *over_limit > 0 {
        writeln!(out, "{over_limit} packets belong to flows beyond --max-flows")?;
    }
    Ok(())
}

fn print_flow(out: &mut impl Write, flow: &FlowReport) -> io::Result<()> {
    let FlowReport { from, to, packets, numbers, by_radio, intervals } = flow;
    let numbers = match numbers {
        Numbers::Freshline => "losses by Freshline's numbers",
        Numbers::Iperf3 => "losses by iperf3's numbers",
        Numbers::Iperf2 => "losses by iperf2's numbers",
        Numbers::Rtp => "losses by RTP's numbers",
        Numbers::Tcp => "losses by TCP's holes",
        Numbers::Unknown => "losses unknown",
    };
    let frames = if *by_radio { "frames by the radio" } else { "frames by the kernel's times" };
    writeln!(out, "{from} > {to}: {packets} packets, {numbers}, {frames}")?;
    if intervals.is_empty() {
        return writeln!(out, "  too few frames for an answer");
    }
    writeln!(
        out,
        "  {:>10} {:>10}  {:<9} {:>8} {:>7} {:>8}",
        "from s", "to s", "where", "frames", "level", "loss"
    )?;
    for interval in intervals {
        let place = match interval.place {
            Place::Wireless => "wireless",
            Place::Backhaul => "backhaul",
            Place::Unknown => "unknown",
        };
        let loss = interval.loss.map_or("-".to_owned(), |loss| format!("{:.2} %", 100.0 * loss));
        writeln!(
            out,
            "  {:>10.3} {:>10.3}  {place:<9} {:>8} {:>7.1} {loss:>8}",
            interval.start_s, interval.end_s, interval.frames, interval.level
        )?;
    }
    Ok(())
}
