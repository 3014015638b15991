//! `freshline age`: the report of a packet capture as a page.

mod page;

use std::cmp::Reverse;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::value_parser;
use freshline_core::unit::BitRate;
use freshline_lab::capture::{
    Ages, CaptureError, FlowReport, Limits, Report, RoundTripTimes, SessionReport, measure,
};
use miette::{IntoDiagnostic, WrapErr};
use serde::Serialize;

use crate::failure::Failure;
use crate::html::HtmlArg;
use crate::output::{print_json, printed};

/// Measure age in a packet capture: of TCP flows, and of Freshline's own sessions over UDP.
///
/// For each direction of a TCP flow: the age at the receiver if each segment held fresh information
/// when it was sent, with delay and goodput. The round trip of a segment counts as its age on
/// arrival, and the time between acks as the time between deliveries, so capture at the sender. For
/// a session over udp://: the age at the source, if captured there, and the age at the monitor,
/// wherever it was captured. Sessions over quic:// are encrypted and cannot be measured.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES

The age of information during a file transfer:

    tcpdump -i eth0 -s 128 -w transfer.pcap tcp port 5201 &
    iperf3 -c 192.0.2.7 -t 20
    kill %1
    freshline age transfer.pcap

The mean ages of all flows, in ms:

    freshline age --json transfer.pcap | jq '.flows[].age.mean_ms'

From a compressed capture:

    zcat transfer.pcap.gz | freshline age -

Reads pcap and pcapng in either order of bytes, with frames of Ethernet (VLAN tags included),
PPPoE, Linux cooked (1 and 2), loopback or raw IP. Packets a little out of order are sorted. The
start of each packet is enough: -s 128.

EXIT CODES

0  the whole file was read
1  the file is cut short or damaged: the part before that was measured and printed
2  there is no such file, it is not a capture, or none of its packets can be read")]
pub(crate) struct Args {
    /// Read this capture: a pcap or pcapng file of any length; `-` is standard input.
    file: PathBuf,
    /// Measure at most N flows and N sessions, and only count the packets of further ones. Each
    /// direction that carries data is a flow and may use 60 KiB of memory.
    #[arg(long, value_name = "N", default_value_t = Limits::default().max_flows as u32, value_parser = value_parser!(u32).range(1..))]
    max_flows: u32,
    /// Print one JSON document on standard output.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    html: HtmlArg,
}

/// The number of flows (those with the most payload) and of sessions that the table shows.
const ROWS: usize = 40;

/// The JSON document; `docs/json.md` describes each key.
#[derive(Debug, Serialize)]
struct Document {
    #[serde(flatten)]
    report: Report,
    error: Option<String>,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let name = args.file.display();
    let file: Box<dyn Read> = if args.file == Path::new("-") {
        Box::new(io::stdin())
    } else {
        let opened = File::open(&args.file)
            .into_diagnostic()
            .wrap_err_with(|| format!("cannot open the capture {name}"));
        Box::new(opened.map_err(Failure::Usage)?)
    };
    let limits = Limits { max_flows: args.max_flows as usize, ..Limits::default() };
    let measured = measure(file, limits);
    let foreign = measured.error.as_ref().is_some_and(CaptureError::is_foreign);
    if !foreign {
        let error = measured.error.as_ref().map(ToString::to_string);
        let document = Document { report: measured.report, error };
        let page = || page::page(&document.report, &name.to_string(), document.error.as_deref());
        args.html.write(page)?;
        if args.json { print_json(&document)? } else { printed(print_tables(&document.report))? }
    }
    let Some(error) = measured.error else { return Ok(()) };
    let report = Err::<(), _>(error).into_diagnostic().wrap_err_with(|| name.to_string());
    report.map_err(if foreign { Failure::Usage } else { Failure::Runtime })
}

fn print_tables(report: &Report) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let mut flows: Vec<_> = report.flows.iter().collect();
    flows.sort_by_key(|flow| Reverse(flow.bytes));
    let mut sessions: Vec<_> = report.sessions.iter().collect();
    sessions.sort_by_key(|session| Reverse(session.updates));
    let beyond = flows.len().saturating_sub(ROWS) + sessions.len().saturating_sub(ROWS);
    flows.truncate(ROWS);
    sessions.truncate(ROWS);

    if !flows.is_empty() {
        print_flows(&mut out, &flows)?;
    }
    for session in sessions {
        print_session(&mut out, session)?;
    }
    if beyond > 0 {
        writeln!(out, "and {beyond} smaller flows and sessions; --json lists them all")?;
    }
    print_counts(&mut out, report)
}

fn print_flows(out: &mut impl Write, flows: &[&FlowReport]) -> io::Result<()> {
    let ends = |flow: &FlowReport| format!("{} > {}", flow.from, flow.to);
    let width = flows.iter().map(|flow| ends(flow).len()).max().unwrap_or(0);
    writeln!(
        out,
        "{:<width$} {:>9} {:>7} {:>12} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "TCP flow",
        "segments",
        "resent",
        "goodput",
        "rtt ms",
        "min ms",
        "age ms",
        "p95 ms",
        "max ms",
        "acks ms"
    )?;
    for flow in flows {
        let rtt = |field: fn(RoundTripTimes) -> f64| number(flow.rtt.map(field));
        let age = |field: fn(Ages) -> f64| number(flow.age.map(field));
        writeln!(
            out,
            "{:<width$} {:>9} {:>7} {:>12} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
            ends(flow),
            flow.segments,
            flow.retransmissions,
            flow.goodput_bps.map_or_else(|| "-".to_owned(), goodput),
            rtt(|rtt| rtt.mean_ms),
            rtt(|rtt| rtt.min_ms),
            age(|age| age.mean_ms),
            age(|age| age.p95_ms),
            age(|age| age.max_ms),
            age(|age| age.inter_delivery_mean_ms),
        )?;
    }
    Ok(())
}

fn print_session(out: &mut impl Write, session: &SessionReport) -> io::Result<()> {
    let SessionReport { session: id, name, source, monitor, .. } = session;
    let name = if name.is_empty() { String::new() } else { format!(" ({name})") };
    let rate = number(session.updates_per_s);
    let rtt = |field: fn(RoundTripTimes) -> f64| number(session.rtt.map(field));
    writeln!(out, "session {id}{name}, {source} > {monitor}")?;
    writeln!(
        out,
        "  {} updates, {rate}/s, {} acks; rtt {} ms, at least {} ms",
        session.updates,
        session.acks,
        rtt(|rtt| rtt.mean_ms),
        rtt(|rtt| rtt.min_ms),
    )?;
    let places = [("source", session.age_at_source), ("monitor", session.age_at_monitor)];
    for (place, ages) in places {
        let age = |field: fn(Ages) -> f64| number(ages.map(field));
        writeln!(
            out,
            "  age at the {place:<8} {:>9} ms, p95 {:>9} ms, max {:>9} ms",
            age(|age| age.mean_ms),
            age(|age| age.p95_ms),
            age(|age| age.max_ms),
        )?;
    }
    Ok(())
}

/// The number of packets read, and everything that limits the tables.
fn print_counts(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let packets = &report.packets;
    let sum = |count: fn(&FlowReport) -> u64| report.flows.iter().map(count).sum::<u64>();
    let untracked_updates: u64 = report.sessions.iter().map(|session| session.untracked).sum();
    let of_sessions =
        |count: fn(&SessionReport) -> u64| report.sessions.iter().map(count).sum::<u64>();
    let (strays, early) = (of_sessions(|one| one.strays), of_sessions(|one| one.early_acks));
    writeln!(
        out,
        "{} packets in {:.3} s: {} of TCP, {} of sessions, {} of other protocols",
        packets.read, report.duration_s, packets.tcp, packets.session, packets.other
    )?;
    let reservations = [
        (packets.fragments, "fragments of IP packets were left out"),
        (
            packets.truncated,
            "packets were captured too short to be read; capture with -s 128 or more",
        ),
        (packets.unknown_link, "frames are of link types that cannot be read"),
        (packets.unread_messages, "messages of GSO trains were captured too short to be read"),
        (packets.no_timestamp, "packets have no time in the file and were left out"),
        (packets.out_of_order, "packets are too far out of order to be sorted"),
        (strays, "updates have a number far from all others, as if damaged, and were left out"),
        (
            sum(|flow| flow.strays),
            "segments have a number far from all others, as if damaged, and were left out",
        ),
        (early, "acks were captured before their updates and give no round trip"),
        (packets.over_limit, "packets belong to flows beyond --max-flows and were left out"),
        (
            sum(|flow| flow.untracked) + untracked_updates,
            "segments or updates were left out: too many in flight",
        ),
        (sum(|flow| flow.unseen_acks), "acks are of payload that the capture does not hold"),
    ];
    for (count, what) in reservations.into_iter().filter(|(count, _)| *count > 0) {
        writeln!(out, "{count} {what}")?;
    }
    Ok(())
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}

/// A rate with about three significant figures; the exact one would widen the table.
fn goodput(bps: u64) -> String {
    let rounded = match bps {
        10_000_000.. => bps / 100_000 * 100_000,
        10_000.. => bps / 100 * 100,
        _ => bps,
    };
    BitRate::from_bps(rounded).to_string()
}
