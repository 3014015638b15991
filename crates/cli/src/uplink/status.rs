//! `freshline uplink status`: the packets and connections per band.

use std::io::{self, Write};

use freshline_core::unit::Span;
use freshline_kernel::sorpc::{
    Attachment, BandReport, Below, Orphan, StreamReport, attachments, orphans,
};
use serde::Serialize;

use super::failure;
use super::metrics::Snapshot;
use crate::failure::Failure;
use crate::hold::held;
use crate::output::Form;

pub(super) fn run(form: &Form) -> Result<(), Failure> {
    let found = || Ok((attachments()?, orphans()?));
    let found: Found = found().map_err(failure)?;
    let report = |(attachments, orphans): &Found| Report {
        attachments: attachments.iter().map(AttachmentReport::from).collect(),
        orphans: orphans.iter().map(OrphanReport::from).collect(),
    };
    // Devices of other network namespaces may have the same names.
    let metrics = |(attachments, _): Found| {
        Snapshot(attachments.into_iter().filter(|attachment| !attachment.other_namespace).collect())
    };
    form.print(found, |(attachments, orphans)| print_table(attachments, orphans), report, metrics)
}

type Found = (Vec<Attachment>, Vec<Orphan>);

#[derive(Debug, Serialize)]
struct Report {
    attachments: Vec<AttachmentReport>,
    /// Shapers of processes that were killed.
    orphans: Vec<OrphanReport>,
}

#[derive(Debug, Serialize)]
struct OrphanReport {
    device: String,
    rate_bps: Option<u64>,
}

impl From<&Orphan> for OrphanReport {
    fn from(orphan: &Orphan) -> Self {
        Self { device: orphan.device.clone(), rate_bps: orphan.rate.map(|rate| rate.as_bps()) }
    }
}

#[derive(Debug, Serialize)]
struct AttachmentReport {
    device: String,
    other_namespace: bool,
    pinned: Option<bool>,
    threshold: f64,
    confined: bool,
    rate_bps: Option<u64>,
    lower_queue: Option<&'static str>,
    bql_limit_bytes: Option<u64>,
    hidden_queue: bool,
    unmanaged_delay_ms: Option<f64>,
    replaced: bool,
    runs: u64,
    run_time_ns: u64,
    bands: Vec<BandRow>,
    flows: Vec<FlowRow>,
}

#[derive(Debug, Serialize)]
struct BandRow {
    band: &'static str,
    packets: u64,
    bytes: u64,
    backlog_bytes: Option<u64>,
    drops: Option<u64>,
}

#[derive(Debug, Serialize)]
struct FlowRow {
    remote: String,
    local_port: u16,
    band: &'static str,
    queued_bytes: u64,
    size_bytes: u64,
    packets: u64,
    bytes: u64,
}

impl From<&Attachment> for AttachmentReport {
    fn from(attachment: &Attachment) -> Self {
        Self {
            device: attachment.device.clone(),
            other_namespace: attachment.other_namespace,
            pinned: attachment.pinned,
            threshold: attachment.threshold,
            confined: attachment.confined,
            rate_bps: attachment.rate.map(|rate| rate.as_bps()),
            lower_queue: attachment.lower_queue.map(Below::name),
            bql_limit_bytes: match attachment.lower_queue {
                Some(Below::Limited { limit_bytes }) => Some(limit_bytes.get()),
                _ => None,
            },
            hidden_queue: hides_a_queue(attachment),
            unmanaged_delay_ms: attachment.unmanaged_delay.map(Span::as_millis_f64),
            replaced: attachment.replaced,
            runs: attachment.runs,
            run_time_ns: attachment.run_time.as_nanos(),
            bands: attachment.bands.iter().map(BandRow::from).collect(),
            flows: attachment.flows.iter().map(FlowRow::from).collect(),
        }
    }
}

/// A delay beyond the bands that is longer than pauses of hosts or a shared medium cause alone.
const NOTABLE: Span = Span::from_millis(20);

/// Whether there may be a queue below the bands, in which no band has priority.
fn hides_a_queue(attachment: &Attachment) -> bool {
    attachment.rate.is_none() && attachment.lower_queue.is_some_and(Below::may_hide_a_queue)
}

impl From<&BandReport> for BandRow {
    fn from(report: &BandReport) -> Self {
        Self {
            band: report.band.name(),
            packets: report.sent.packets.get(),
            bytes: report.sent.bytes.get(),
            backlog_bytes: report.backlog.map(|bytes| bytes.get()),
            drops: report.drops.map(|packets| packets.get()),
        }
    }
}

impl From<&StreamReport> for FlowRow {
    fn from(flow: &StreamReport) -> Self {
        Self {
            remote: flow.remote.to_string(),
            local_port: flow.local_port,
            band: flow.band.name(),
            queued_bytes: flow.queued.get(),
            size_bytes: flow.size.get(),
            packets: flow.sent.packets.get(),
            bytes: flow.sent.bytes.get(),
        }
    }
}

fn print_table(attachments: &[Attachment], orphans: &[Orphan]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if attachments.is_empty() {
        writeln!(out, "nothing is attached")?;
    }
    for Orphan { device, rate } in orphans {
        write!(out, "{device}: left by a killed process")?;
        if let Some(rate) = rate {
            write!(out, ", still shaped to {rate}")?;
        }
        writeln!(out, "; `freshline uplink detach` removes it")?;
    }
    for attachment in attachments {
        write!(out, "{}", attachment.device)?;
        if let Some(rate) = attachment.rate {
            write!(out, ", shaped to {rate}")?;
        }
        if attachment.replaced {
            write!(out, ", shaper replaced")?;
        }
        let held = held(attachment.pinned);
        let elsewhere =
            if attachment.other_namespace { " (in another network namespace)" } else { "" };
        writeln!(out, "{held}{elsewhere}")?;
        if let Some(below) = attachment.lower_queue {
            let advice = if hides_a_queue(attachment) { super::HIDDEN } else { "" };
            writeln!(out, "  below: {}{advice}", below.describe())?;
        }
        if let Some(delay) = attachment.unmanaged_delay {
            let advice = match (delay >= NOTABLE, attachment.rate) {
                (false, _) => "",
                (true, None) => {
                    ": bands have no effect there; give --rate, a little less than the link's capacity"
                }
                (true, Some(_)) => ": bands have no effect there; lower --rate",
            };
            writeln!(out, "  delay beyond the bands: {:.0} ms{advice}", delay.as_millis_f64())?;
        }
        for row in attachment.bands.iter().map(BandRow::from) {
            write!(out, "  {:<7} {:>9} packets {:>12} bytes", row.band, row.packets, row.bytes)?;
            if let (Some(backlog), Some(drops)) = (row.backlog_bytes, row.drops) {
                write!(out, " {backlog:>8} queued {drops:>7} dropped")?;
            }
            writeln!(out)?;
        }
        if let Some(ns) = attachment.run_time.as_nanos().checked_div(attachment.runs) {
            writeln!(out, "  {} runs of {ns} ns", attachment.runs)?;
        }
        print_flows(&mut out, &attachment.flows)?;
    }
    Ok(())
}

fn print_flows(out: &mut impl Write, flows: &[StreamReport]) -> io::Result<()> {
    if flows.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "  {:<47} {:>5} {:>6} {:>9} {:>9} {:>9} {:>12}",
        "remote", "from", "band", "queued kB", "size kB", "packets", "bytes"
    )?;
    for flow in flows.iter().map(FlowRow::from) {
        writeln!(
            out,
            "  {:<47} {:>5} {:>6} {:>9.1} {:>9.1} {:>9} {:>12}",
            flow.remote,
            flow.local_port,
            flow.band,
            flow.queued_bytes as f64 / 1e3,
            flow.size_bytes as f64 / 1e3,
            flow.packets,
            flow.bytes,
        )?;
    }
    Ok(())
}
