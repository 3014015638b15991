//! The final report of the demonstration.

use std::io::{self, Write};

use freshline_core::link::ConditionsConfig;
use freshline_core::unit::Span;
use serde::Serialize;

use super::contest::Run;
use super::{PAYLOAD, Updates};

/// The JSON document; `docs/demo.md` describes each key.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    lower_bound_ms: f64,
    bottleneck_updates_per_s: f64,
    path: ConditionsConfig,
    payload_bytes: usize,
    seed: u64,
    runs: Vec<RunReport>,
}

#[derive(Debug, Serialize)]
struct RunReport {
    law: &'static str,
    age_mean_ms: Option<f64>,
    age_p95_ms: Option<f64>,
    peak_age_mean_ms: Option<f64>,
    age_duration_s: f64,
    updates_per_s: f64,
    goodput_bps: f64,
    backlog_mean: Option<f64>,
    rtt_mean_ms: Option<f64>,
    source_age_mean_ms: Option<f64>,
}

impl Report {
    pub(super) fn new(path: ConditionsConfig, updates: Updates, seed: u64, runs: Vec<Run>) -> Self {
        Self {
            lower_bound_ms: updates.lower_bound.as_millis_f64(),
            bottleneck_updates_per_s: updates.bottleneck.per_second(),
            path,
            payload_bytes: PAYLOAD,
            seed,
            runs: runs.into_iter().map(RunReport::new).collect(),
        }
    }

    pub(super) fn print_table(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        // At most 80 columns.
        writeln!(
            out,
            "{:<11} {:>8} {:>8} {:>8} {:>10} {:>8} {:>8} {:>8}",
            "law", "age ms", "p95 ms", "peak ms", "updates/s", "kbit/s", "backlog", "rtt ms"
        )?;
        for run in &self.runs {
            writeln!(
                out,
                "{:<11} {:>8} {:>8} {:>8} {:>10.1} {:>8.0} {:>8} {:>8}",
                run.law,
                number(run.age_mean_ms),
                number(run.age_p95_ms),
                number(run.peak_age_mean_ms),
                run.updates_per_s,
                run.goodput_bps / 1e3,
                number(run.backlog_mean),
                number(run.rtt_mean_ms),
            )?;
        }
        writeln!(
            out,
            "{:<11} {:>8.1}\n\n{}-byte payloads; the bottleneck carries {:.1} per second. Ages are\n\
             true ages at the monitor from the first update on, the search for the rate\n\
             included. Seed {}.",
            "lower bound",
            self.lower_bound_ms,
            self.payload_bytes,
            self.bottleneck_updates_per_s,
            self.seed
        )
    }
}

impl RunReport {
    fn new(Run { law, age, source }: Run) -> Self {
        let age = age.as_ref();
        let (arrived, duration_s) =
            age.map_or((0, 0.0), |age| (age.fresh, age.duration.as_secs_f64()));
        let delivered_bits = arrived as f64 * PAYLOAD as f64 * 8.0;
        Self {
            law,
            age_mean_ms: age.map(|age| age.mean.as_millis_f64()),
            age_p95_ms: age.map(|age| age.p95.as_millis_f64()),
            peak_age_mean_ms: age.and_then(|age| age.peak_mean).map(Span::as_millis_f64),
            age_duration_s: duration_s,
            updates_per_s: source.updates_per_s,
            goodput_bps: if arrived > 0 { delivered_bits / duration_s } else { 0.0 },
            backlog_mean: source.backlog_mean,
            rtt_mean_ms: source.rtt_mean_ms,
            source_age_mean_ms: source.age_mean_ms,
        }
    }
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
}
