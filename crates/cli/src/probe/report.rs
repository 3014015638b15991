//! What a probe tells at its end.

use std::io::{self, Write};

use freshline_core::unit::Span;
use serde::Serialize;

use super::chart::{Chart, Mark};
use super::sweep::{self, Point};
use super::trial::Trial;

/// The JSON document; `docs/demo.md` describes each key.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    payload_bytes: usize,
    rates: Vec<RateReport>,
    best: Option<RateReport>,
    #[serde(rename = "acp+")]
    acp_plus: Option<AcpPlusReport>,
}

#[derive(Debug, Clone, Serialize)]
struct RateReport {
    rate_per_s: f64,
    #[serde(flatten)]
    means: Means,
}

#[derive(Debug, Serialize)]
struct AcpPlusReport {
    #[serde(flatten)]
    means: Means,
    age_mean_from_start_ms: f64,
    above_best_percent: Option<f64>,
}

#[derive(Debug, Clone, Serialize)]
struct Means {
    updates_per_s: f64,
    age_mean_ms: f64,
    rtt_mean_ms: Option<f64>,
    backlog_mean: f64,
}

impl Means {
    fn of(trial: &Trial) -> Self {
        Self {
            updates_per_s: trial.updates_per_s,
            age_mean_ms: trial.age_mean.as_millis_f64(),
            rtt_mean_ms: trial.rtt_mean.map(Span::as_millis_f64),
            backlog_mean: trial.backlog_mean,
        }
    }
}

impl Report {
    pub(super) fn new(payload: usize, points: Vec<Point>, acp_plus: Option<Trial>) -> Self {
        let rate = |point: &Point| RateReport {
            rate_per_s: point.rate.per_second(),
            means: Means::of(&point.trial),
        };
        let best = sweep::best(&points).map(rate);
        let above_best =
            |age: f64| best.as_ref().map(|best| (age / best.means.age_mean_ms - 1.0) * 100.0);
        Self {
            payload_bytes: payload,
            acp_plus: acp_plus.map(|trial| AcpPlusReport {
                means: Means::of(&trial),
                age_mean_from_start_ms: trial.age_mean_from_start.as_millis_f64(),
                above_best_percent: above_best(trial.age_mean.as_millis_f64()),
            }),
            rates: points.iter().map(rate).collect(),
            best,
        }
    }

    pub(super) fn print_table(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let best_rate = self.best.as_ref().map(|best| best.rate_per_s);
        let kind = |rate: f64| if Some(rate) == best_rate { Mark::Best } else { Mark::Rate };
        let mut marks: Vec<_> = self
            .rates
            .iter()
            .map(|rate| (rate.rate_per_s, rate.means.age_mean_ms, kind(rate.rate_per_s)))
            .collect();
        if let Some(AcpPlusReport { means, .. }) = &self.acp_plus {
            marks.push((means.updates_per_s, means.age_mean_ms, Mark::AcpPlus));
        }
        if let Some(chart) = Chart::of(&marks) {
            writeln!(out, "{chart}")?;
        }
        writeln!(out, "{:>12} {:>9} {:>9} {:>9}", "rate", "age ms", "rtt ms", "backlog")?;
        for rate in &self.rates {
            let note = if Some(rate.rate_per_s) == best_rate { "  best" } else { "" };
            rate.means.print_row(&mut out, &format!("{:.1}/s", rate.rate_per_s), note)?;
        }
        let Some(acp_plus) = &self.acp_plus else { return Ok(()) };
        acp_plus.means.print_row(&mut out, "acp+", "")?;
        if let Some(above) = acp_plus.above_best_percent {
            writeln!(
                out,
                "\nacp+ sends {:.1}/s and settles {above:.1} % above the best fixed rate's age; \
                 with its search, {:.2} ms.",
                acp_plus.means.updates_per_s, acp_plus.age_mean_from_start_ms
            )?;
        }
        writeln!(out, "Ages are the source's, from round trips: too high by the way of the ack.")
    }
}

impl Means {
    fn print_row(&self, out: &mut impl Write, name: &str, note: &str) -> io::Result<()> {
        let rtt = self.rtt_mean_ms.map_or_else(|| "-".to_owned(), |rtt| format!("{rtt:.2}"));
        let (age, backlog) = (self.age_mean_ms, self.backlog_mean);
        writeln!(out, "{name:>12} {age:>9.2} {rtt:>9} {backlog:>9.2}{note}")
    }
}
