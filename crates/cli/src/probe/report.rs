//! The report of a probe as a page.

mod page;

use std::io::{self, Write};

use freshline_core::unit::Span;
use freshline_lab::run::confidence;
use freshline_net::marks::MarkReport;
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
    laws: Vec<LawReport>,
    /// The marks of all sessions; `None` without any.
    marks: Option<MarkReport>,
}

#[derive(Debug, Clone, Serialize)]
struct RateReport {
    rate_per_s: f64,
    #[serde(flatten)]
    means: Means,
}

/// Means over the rounds of a law.
#[derive(Debug, Serialize)]
struct LawReport {
    law: &'static str,
    rounds: usize,
    #[serde(flatten)]
    means: Means,
    /// Half the width of the 95 % interval; `null` with a single round.
    age_mean_ci95_ms: Option<f64>,
    age_mean_from_start_ms: f64,
    above_best_percent: Option<f64>,
}

impl LawReport {
    /// `None` without any round.
    fn of(law: &'static str, trials: &[Trial], best: Option<&RateReport>) -> Option<Self> {
        let rounds: Vec<_> = trials.iter().map(Means::of).collect();
        let means = Means::over(&rounds)?;
        let ages: Vec<_> = rounds.iter().map(|means| means.age_mean_ms).collect();
        let from_start = trials.iter().map(|trial| trial.age_mean_from_start.as_millis_f64());
        Some(Self {
            law,
            rounds: rounds.len(),
            age_mean_ci95_ms: confidence(&ages),
            age_mean_from_start_ms: from_start.sum::<f64>() / trials.len() as f64,
            above_best_percent: best
                .map(|best| (means.age_mean_ms / best.means.age_mean_ms - 1.0) * 100.0),
            means,
        })
    }
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

    /// The mean of each number; `None` without rounds.
    fn over(rounds: &[Self]) -> Option<Self> {
        let count = rounds.len() as f64;
        let mean = |number: fn(&Self) -> f64| rounds.iter().map(number).sum::<f64>() / count;
        let rtts: Option<Vec<_>> = rounds.iter().map(|round| round.rtt_mean_ms).collect();
        (!rounds.is_empty()).then(|| Self {
            updates_per_s: mean(|round| round.updates_per_s),
            age_mean_ms: mean(|round| round.age_mean_ms),
            rtt_mean_ms: rtts.map(|rtts| rtts.iter().sum::<f64>() / count),
            backlog_mean: mean(|round| round.backlog_mean),
        })
    }
}

impl Report {
    /// `laws` are the trials of each law, one per round.
    pub(super) fn new(
        payload: usize,
        points: Vec<Point>,
        laws: Vec<(&'static str, Vec<Trial>)>,
        marks: Option<MarkReport>,
    ) -> Self {
        let rate = |point: &Point| RateReport {
            rate_per_s: point.rate.per_second(),
            means: Means::of(&point.trial),
        };
        let best = sweep::best(&points).map(rate);
        let report =
            |(law, trials): &(&'static str, Vec<Trial>)| LawReport::of(law, trials, best.as_ref());
        Self {
            payload_bytes: payload,
            laws: laws.iter().filter_map(report).collect(),
            rates: points.iter().map(rate).collect(),
            best,
            marks,
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
        for LawReport { means, .. } in &self.laws {
            marks.push((means.updates_per_s, means.age_mean_ms, Mark::Law));
        }
        if let Some(chart) = Chart::of(&marks) {
            writeln!(out, "{chart}")?;
        }
        writeln!(out, "{:>12} {:>9} {:>9} {:>9}", "rate", "age ms", "rtt ms", "backlog")?;
        for rate in &self.rates {
            let note = if Some(rate.rate_per_s) == best_rate { "  best" } else { "" };
            rate.means.print_row(&mut out, &format!("{:.1}/s", rate.rate_per_s), note)?;
        }
        for law in &self.laws {
            let interval =
                law.age_mean_ci95_ms.map_or(String::new(), |half| format!("  ± {half:.2}"));
            law.means.print_row(&mut out, law.law, &interval)?;
        }
        writeln!(out)?;
        for law in &self.laws {
            let Some(above) = law.above_best_percent else { continue };
            writeln!(
                out,
                "{} sends {:.1}/s; its age settles {} that of the best fixed rate; with its \
                 search, {:.2} ms.",
                law.law,
                law.means.updates_per_s,
                compared(above),
                law.age_mean_from_start_ms
            )?;
        }
        writeln!(out, "Ages are the source's, from round trips: too high by the delay of the ack.")
    }
}

impl Means {
    fn print_row(&self, out: &mut impl Write, name: &str, note: &str) -> io::Result<()> {
        let rtt = self.rtt_mean_ms.map_or_else(|| "-".to_owned(), |rtt| format!("{rtt:.2}"));
        let (age, backlog) = (self.age_mean_ms, self.backlog_mean);
        writeln!(out, "{name:>12} {age:>9.2} {rtt:>9} {backlog:>9.2}{note}")
    }
}

/// A difference in percent with its direction: "4.2 % below".
fn compared(above_percent: f64) -> String {
    let side = if above_percent < 0.0 { "below" } else { "above" };
    format!("{:.1} % {side}", above_percent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_intervals_are_over_the_rounds_of_a_law() {
        let means = [30.0, 34.0].map(|age_mean_ms| Means {
            updates_per_s: 100.0,
            age_mean_ms,
            rtt_mean_ms: Some(20.0),
            backlog_mean: age_mean_ms / 10.0,
        });
        let mean = Means::over(&means).unwrap();
        assert_eq!((mean.age_mean_ms, mean.backlog_mean), (32.0, 3.2));
        assert_eq!(mean.rtt_mean_ms, Some(20.0));
        assert!(Means::over(&[]).is_none());
    }

    #[test]
    fn what_is_less_is_below() {
        assert_eq!(compared(-51.04), "51.0 % below");
        assert_eq!(compared(3.0), "3.0 % above");
    }
}
