//! `freshline receiver status`: shows the controlled connections and their windows.

use std::io::{self, Write};
use std::net::IpAddr;

use freshline_core::receiver::{Delta, QueueOwner, Slope};
use freshline_core::unit::Span;
use freshline_kernel::receiver::{
    Attachment, Counters, Peer, Place, Settings, Target, attachments,
};
use serde::Serialize;

use super::failure;
use super::metrics::Snapshot;
use crate::failure::Failure;
use crate::hold::held;
use crate::output::Form;

pub(super) fn run(form: &Form) -> Result<(), Failure> {
    let found = attachments().map_err(failure)?;
    let report = |found: &Vec<Attachment>| Report {
        attachments: found.iter().map(AttachmentReport::from).collect(),
    };
    form.print(found, |found| print_table(found), report, Snapshot)
}

#[derive(Debug, Serialize)]
struct Report {
    attachments: Vec<AttachmentReport>,
}

#[derive(Debug, Serialize)]
struct AttachmentReport {
    cgroup: Option<String>,
    device: Option<String>,
    other_namespace: bool,
    law: &'static str,
    pure: Option<bool>,
    pinned: Option<bool>,
    #[serde(flatten)]
    counters: Counters,
    runs: u64,
    run_time_ns: u64,
    peers: Vec<PeerReport>,
}

#[derive(Debug, Serialize)]
struct PeerReport {
    address: IpAddr,
    rtt_ms: f64,
    rtt_min_ms: f64,
    rate_bps: u64,
    queue_bytes: u64,
    window_bytes: u64,
    rounds: u64,
    theta: Option<f64>,
    delta_ms: Option<f64>,
    slope: Option<f64>,
    queue_owner: Option<&'static str>,
}

impl From<&Attachment> for AttachmentReport {
    fn from(attachment: &Attachment) -> Self {
        let (cgroup, device) = match attachment.place.target() {
            Some(Target::Cgroup(path)) => (Some(path.display().to_string()), None),
            Some(Target::Device(name)) => (None, Some(name)),
            None => (None, None),
        };
        let other_namespace = cgroup.is_none() && device.is_none();
        Self {
            cgroup,
            device,
            other_namespace,
            law: attachment.law,
            pure: attachment.settings.map(|settings| settings.pure),
            pinned: attachment.pinned,
            counters: attachment.counters,
            runs: attachment.runs,
            run_time_ns: attachment.run_time.as_nanos(),
            peers: attachment
                .peers
                .iter()
                .map(|peer| PeerReport::of(peer, attachment.settings))
                .collect(),
        }
    }
}

impl PeerReport {
    fn of(peer: &Peer, settings: Option<Settings>) -> Self {
        Self {
            address: peer.address,
            rtt_ms: peer.rtt.as_millis_f64(),
            rtt_min_ms: peer.min_rtt.as_millis_f64(),
            rate_bps: peer.rate.as_bps(),
            queue_bytes: peer.queue.get(),
            window_bytes: peer.window.get(),
            rounds: peer.rounds,
            theta: settings.map(|settings| settings.theta),
            delta_ms: peer.delta.map(Span::as_millis_f64),
            slope: peer.slope,
            queue_owner: peer.queue_owner.map(QueueOwner::name),
        }
    }
}

fn print_table(attachments: &[Attachment]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if attachments.is_empty() {
        return writeln!(out, "nothing is attached");
    }
    for attachment in attachments {
        let Attachment { place, law, settings, pinned, counters, peers, runs, run_time } =
            attachment;
        match (place.target(), place) {
            (Some(target), _) => write!(out, "{target}")?,
            (None, Place::Cgroup { .. }) => write!(out, "a cgroup that is not visible from here")?,
            (None, Place::Device { .. }) => {
                write!(out, "a device of another network namespace")?;
            }
        }
        writeln!(out, ": {law}{}", held(*pinned))?;
        if let Some(settings) = settings {
            print_settings(&mut out, settings)?;
        }
        writeln!(
            out,
            "  {} connections, {} adopted; {} segments, {} round trips, {} windows set, {} refused",
            counters.connections,
            counters.connections_adopted,
            counters.segments,
            counters.round_trips,
            counters.windows_set,
            counters.windows_refused,
        )?;
        if counters.uncontrolled_segments > 0 {
            writeln!(
                out,
                "  {} segments of connections without control: older than it, or without timestamps",
                counters.uncontrolled_segments
            )?;
        }
        if let Some(ns) = run_time.as_nanos().checked_div(*runs) {
            writeln!(out, "  {runs} runs of {ns} ns")?;
        }
        print_peers(&mut out, peers, *settings)?;
    }
    Ok(())
}

fn print_settings(out: &mut impl Write, settings: &Settings) -> io::Result<()> {
    let Settings { theta, delta, slope, pure } = settings;
    match delta {
        Delta::Fixed(delta) => {
            write!(out, "  theta {theta}, delta {} ms, ", delta.as_millis_f64())?;
        }
        Delta::Learn => write!(out, "  theta {theta}, delta learnt, ")?,
    }
    match slope {
        Slope::Auto => write!(out, "K from the path")?,
        Slope::Fixed(slope) => write!(out, "K {slope:e}")?,
    }
    writeln!(out, "{}", if *pure { ", exactly Algorithm 1" } else { "" })
}

fn print_peers(out: &mut impl Write, peers: &[Peer], settings: Option<Settings>) -> io::Result<()> {
    if peers.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "  {:<39} {:>9} {:>9} {:>9} {:>11} {:>9} {:>9} {:>9} {:>9}",
        "remote address",
        "rtt ms",
        "min ms",
        "delta ms",
        "Mbit/s",
        "queue kB",
        "window kB",
        "K",
        "queue of"
    )?;
    for peer in peers {
        let report = PeerReport::of(peer, settings);
        let delta = report.delta_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"));
        let slope = report.slope.map_or_else(|| "-".to_owned(), |slope| format!("{slope:.1e}"));
        writeln!(
            out,
            "  {:<39} {:>9.1} {:>9.1} {:>9} {:>11.2} {:>9.1} {:>9.1} {:>9} {:>9}",
            report.address.to_string(),
            report.rtt_ms,
            report.rtt_min_ms,
            delta,
            report.rate_bps as f64 / 1e6,
            report.queue_bytes as f64 / 1e3,
            report.window_bytes as f64 / 1e3,
            slope,
            report.queue_owner.unwrap_or("-"),
        )?;
    }
    Ok(())
}
