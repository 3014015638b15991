//! `freshline uplink status`: what is in which band.

use std::io::{self, Write};

use freshline_kernel::sorpc::{Attachment, BandReport, Flow, attachments};
use serde::Serialize;

use super::failure;
use super::metrics::Snapshot;
use crate::Failure;
use crate::hold::held;
use crate::output::Form;

pub(super) fn run(form: &Form) -> Result<(), Failure> {
    let found = attachments().map_err(failure)?;
    let report = |found: &Vec<Attachment>| Report {
        attachments: found.iter().map(AttachmentReport::from).collect(),
    };
    // Devices elsewhere may have the same names.
    let metrics = |found: Vec<Attachment>| {
        Snapshot(found.into_iter().filter(|attachment| !attachment.elsewhere).collect())
    };
    form.print(found, |found| print_table(found), report, metrics)
}

#[derive(Debug, Serialize)]
struct Report {
    attachments: Vec<AttachmentReport>,
}

#[derive(Debug, Serialize)]
struct AttachmentReport {
    device: String,
    elsewhere: bool,
    pinned: Option<bool>,
    threshold: f64,
    confined: bool,
    rate_bps: Option<u64>,
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
            elsewhere: attachment.elsewhere,
            pinned: attachment.pinned,
            threshold: attachment.threshold,
            confined: attachment.confined,
            rate_bps: attachment.rate.map(|rate| rate.as_bps()),
            replaced: attachment.replaced,
            runs: attachment.runs,
            run_time_ns: attachment.run_time.as_nanos(),
            bands: attachment.bands.iter().map(BandRow::from).collect(),
            flows: attachment.flows.iter().map(FlowRow::from).collect(),
        }
    }
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

impl From<&Flow> for FlowRow {
    fn from(flow: &Flow) -> Self {
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

fn print_table(attachments: &[Attachment]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if attachments.is_empty() {
        return writeln!(out, "nothing is attached");
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
        let elsewhere = if attachment.elsewhere { " (in another network namespace)" } else { "" };
        writeln!(out, "{held}{elsewhere}")?;
        for row in attachment.bands.iter().map(BandRow::from) {
            write!(out, "  {:<6} {:>9} packets {:>12} bytes", row.band, row.packets, row.bytes)?;
            if let (Some(backlog), Some(drops)) = (row.backlog_bytes, row.drops) {
                write!(out, " {backlog:>8} waiting {drops:>6} dropped")?;
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

fn print_flows(out: &mut impl Write, flows: &[Flow]) -> io::Result<()> {
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
