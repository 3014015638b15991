//! `freshline mesh status`: the connections and the waiting time of each.

use std::io::{self, Write};

use freshline_core::unit::Span;
use freshline_kernel::dtpa::{Attachment, Connection, Counters, NAME, Settings, attachment};
use serde::Serialize;

use super::failure;
use super::metrics::Snapshot;
use crate::failure::Failure;
use crate::hold::held;
use crate::output::{Form, ms};

pub(super) fn run(form: &Form) -> Result<(), Failure> {
    let found = attachment().map_err(failure)?;
    let report = |found: &Option<Attachment>| Report {
        attachment: found.as_ref().map(AttachmentReport::from),
    };
    form.print(found, |found| print_table(found.as_ref()), report, Snapshot)
}

#[derive(Debug, Serialize)]
struct Report {
    attachment: Option<AttachmentReport>,
}

#[derive(Debug, Serialize)]
struct AttachmentReport {
    pinned: Option<bool>,
    share: f64,
    max_window: Option<u32>,
    memory: Option<u32>,
    peak_bound: bool,
    #[serde(flatten)]
    counters: Counters,
    connections: Vec<ConnectionReport>,
}

#[derive(Debug, Serialize)]
struct ConnectionReport {
    remote: String,
    local_port: u16,
    window: u64,
    segment_bytes: u64,
    segments: u64,
    timeouts: u64,
    fast_retransmits: u64,
    loss: f64,
    rtt_ms: Option<f64>,
    period_ms: f64,
}

impl From<&Attachment> for AttachmentReport {
    fn from(attachment: &Attachment) -> Self {
        let Settings { share, params } = attachment.settings;
        Self {
            pinned: attachment.pinned,
            share: f64::from(share.per_1000_s()) / 1e3,
            max_window: params.max_window,
            memory: params.memory,
            peak_bound: params.peak_bound,
            counters: attachment.counters,
            connections: attachment.connections.iter().map(ConnectionReport::from).collect(),
        }
    }
}

impl From<&Connection> for ConnectionReport {
    fn from(connection: &Connection) -> Self {
        Self {
            remote: connection.remote.to_string(),
            local_port: connection.local_port,
            window: connection.window,
            segment_bytes: connection.segment.get(),
            segments: connection.segments,
            timeouts: connection.timeouts,
            fast_retransmits: connection.fast_retransmits,
            loss: connection.loss(),
            rtt_ms: connection.round_trip.map(Span::as_millis_f64),
            period_ms: connection.period.as_millis_f64(),
        }
    }
}

fn print_table(attachment: Option<&Attachment>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let Some(attachment) = attachment else { return writeln!(out, "nothing is attached") };
    let report = attachment.into();
    let AttachmentReport { pinned, share, max_window, memory, peak_bound, .. } = report;
    let AttachmentReport { counters, connections, .. } = report;
    write!(out, "{NAME}{}: {share} segments/s", held(pinned))?;
    if let Some(most) = max_window {
        write!(out, ", windows of at most {most}")?;
    }
    if let Some(memory) = memory {
        write!(out, ", a memory of {memory} segments")?;
    }
    if !peak_bound {
        write!(out, ", not limited to Reno's peak")?;
    }
    let Counters { connections_opened, segments, timeouts, fast_retransmits } = counters;
    writeln!(
        out,
        "\n  {connections_opened} connections opened; {segments} segments, {timeouts} timeouts, {fast_retransmits} \
         fast retransmits"
    )?;
    if connections.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "  {:<45} {:>5} {:>8} {:>8} {:>7} {:>11} {:>11}",
        "remote", "from", "segments", "loss", "window", "round trip", "period"
    )?;
    for connection in connections {
        writeln!(
            out,
            "  {:<45} {:>5} {:>8} {:>6.2} % {:>7} {:>11} {:>11}",
            connection.remote,
            connection.local_port,
            connection.segments,
            connection.loss * 100.0,
            connection.window,
            ms(connection.rtt_ms),
            ms(Some(connection.period_ms)),
        )?;
    }
    Ok(())
}
