//! The report of a capture: ages of flows and sessions.

use std::path::Path;

use freshline_lab::capture::{Ages, FlowReport, Report, SessionReport};
use freshline_report::{
    Axis, Cell, Mark, Page, Panel, Row, RowSeries, Rows, Section, Table, interval, short,
};

use crate::html::facts;

/// The maximum number of drawn flows (those with the most payload), and of drawn sessions.
const MAX_ROWS: usize = 20;

/// The page of a capture; `error` is why reading ended early.
pub(super) fn page(report: &Report, name: &str, error: Option<&str>) -> Page {
    let mut flows: Vec<_> = report.flows.iter().collect();
    flows.sort_by_key(|flow| std::cmp::Reverse(flow.bytes));
    let mut sessions: Vec<_> = report.sessions.iter().collect();
    sessions.sort_by_key(|session| std::cmp::Reverse(session.updates));
    let mut sections = Vec::new();
    if !flows.is_empty() {
        sections.push(of_flows(&flows));
    }
    if !sessions.is_empty() {
        sections.push(of_sessions(&sessions));
    }
    let packets = &report.packets;
    let counts = format!(
        "{} packets in {} s: {} of TCP, {} of sessions, {} of other protocols.",
        packets.read,
        short(report.duration_s),
        packets.tcp,
        packets.session,
        packets.other
    );
    let cut = error.map(|error| {
        format!("The file is damaged or cut short, and was read up to there: {error}.")
    });
    Page {
        title: format!(
            "Age in the capture {}",
            Path::new(name).file_name().map_or(name.into(), |it| it.to_string_lossy())
        ),
        summary: [Some(counts), cut].into_iter().flatten().collect(),
        facts: facts(&[("Capture", name.to_owned())]),
        sections,
    }
}

fn seconds(ms: f64) -> f64 {
    ms / 1e3
}

/// A panel with mean, 95th percentile and maximum of each age.
fn ages(title: &str, rows: impl Iterator<Item = (String, Option<Ages>)>) -> Vec<Panel> {
    let row = |(label, ages): (String, Option<Ages>)| {
        let ages = ages?;
        let values = [ages.mean_ms, ages.p95_ms, ages.max_ms].into_iter().enumerate();
        let mark = |(series, ms)| Mark { series, value: Some(seconds(ms)), half: None, band: None };
        Some(Row { label, is_broken: false, marks: values.map(mark).collect() })
    };
    let rows: Vec<_> = rows.filter_map(row).take(MAX_ROWS).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let series = ["mean", "95th percentile", "maximum"].map(RowSeries::measured);
    vec![Panel::Rows(Rows {
        title: title.to_owned(),
        x: Axis::new("Age", "s"),
        series: series.to_vec(),
        rows,
    })]
}

fn ms(value: Option<f64>) -> Cell {
    value.map_or("–".to_owned(), short).into()
}

fn of_flows(flows: &[&FlowReport]) -> Section {
    let name = |flow: &FlowReport| format!("{} → {}", flow.from, flow.to);
    let mut table = Table::new(
        "TCP flows",
        &[
            "Flow",
            ">Segments",
            ">Sent again",
            ">Goodput",
            ">Round trip (ms)",
            ">Mean age (ms)",
            ">95th percentile (ms)",
            ">Maximum (ms)",
        ],
    );
    table.rows = flows
        .iter()
        .map(|flow| {
            let goodput = flow.goodput_bps.map(|bps| interval(bps as f64, None, "bit/s"));
            vec![
                name(flow).into(),
                flow.segments.to_string().into(),
                flow.retransmissions.to_string().into(),
                goodput.unwrap_or("–".to_owned()).into(),
                ms(flow.rtt.map(|rtt| rtt.mean_ms)),
                ms(flow.age.map(|age| age.mean_ms)),
                ms(flow.age.map(|age| age.p95_ms)),
                ms(flow.age.map(|age| age.max_ms)),
            ]
        })
        .collect();
    Section {
        heading: "TCP flows".to_owned(),
        text: vec![
            "The age at the receiver if each segment held fresh information when it was sent."
                .to_owned(),
        ],
        panels: ages("Age of TCP flows", flows.iter().map(|flow| (name(flow), flow.age))),
        tables: vec![table],
        ..Section::default()
    }
}

fn of_sessions(sessions: &[&SessionReport]) -> Section {
    let name = |session: &SessionReport| match &*session.name {
        "" => format!("session {}", session.session),
        name => format!("{name} (session {})", session.session),
    };
    let at = |session: &SessionReport| {
        let name = name(session);
        [
            (format!("{name}, at the source"), session.age_at_source),
            (format!("{name}, at the monitor"), session.age_at_monitor),
        ]
    };
    let mut table = Table::new(
        "Sessions over UDP",
        &[
            "Session",
            "From",
            "To",
            ">Updates",
            ">Rate (1/s)",
            ">Acks",
            ">Round trip (ms)",
            ">Mean age at the source (ms)",
            ">At the monitor (ms)",
        ],
    );
    table.rows = sessions
        .iter()
        .map(|session| {
            vec![
                name(session).into(),
                session.source.to_string().into(),
                session.monitor.to_string().into(),
                session.updates.to_string().into(),
                ms(session.updates_per_s),
                session.acks.to_string().into(),
                ms(session.rtt.map(|rtt| rtt.mean_ms)),
                ms(session.age_at_source.map(|age| age.mean_ms)),
                ms(session.age_at_monitor.map(|age| age.mean_ms)),
            ]
        })
        .collect();
    Section {
        heading: "Sessions".to_owned(),
        panels: ages("Age of sessions", sessions.iter().flat_map(|session| at(session))),
        tables: vec![table],
        ..Section::default()
    }
}
