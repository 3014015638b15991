//! Saved runs against each other: differences with their 95 % intervals.

use std::fmt::Write;

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::number::{NOISE, interval, short};
use crate::page::{Cell, Fact, Page, Section, Table};
use crate::panels::{PanelOptions, keys_in_words, metric_panels};
use crate::saved::{SavedMetric, SavedPoint, SavedRun};
use crate::words::{capitalised, metric_in_words};

/// Runs of one scenario, of which the first is the one that the others are compared with.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    runs: Vec<SavedRun>,
    differences: Vec<Difference>,
}

/// A metric of one run against that of the first.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// The place of the run that is compared with the first one.
    pub run: usize,
    /// The swept keys in words; empty if nothing was swept.
    pub point: String,
    /// The metric of the first run.
    pub first: SavedMetric,
    /// That of the other one.
    pub other: SavedMetric,
    /// The other minus the first.
    pub value: f64,
    /// Half the width of its 95 % interval by Welch's t-test; `None` if one of the two has a single
    /// run.
    pub half: Option<f64>,
    /// The verdict on it.
    pub verdict: Verdict,
}

/// The verdict on a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The other run has the higher value.
    Higher,
    /// The other run has the lower value.
    Lower,
    /// Both values are equal.
    Equal,
    /// The interval of the difference contains zero.
    Undecided,
    /// One of the two has no interval.
    Unknown,
}

impl Verdict {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
            Self::Equal => "equal",
            Self::Undecided => "undecided",
            Self::Unknown => "no interval",
        }
    }
}

impl Comparison {
    /// Compares each run with the first one, metric by metric. Metrics that one of both lacks are
    /// left out.
    pub fn new(runs: Vec<SavedRun>) -> Self {
        let mut differences = Vec::new();
        let (first, others) = match runs.split_first() {
            Some((first, others)) => (first, others),
            None => return Self { runs, differences },
        };
        for point in &first.points {
            for metric in &point.metrics {
                for (place, other) in others.iter().enumerate() {
                    let found = same_metric(other, point, metric);
                    let counts = (first.runs, other.runs);
                    differences.extend(found.and_then(|found| {
                        Difference::of(place + 1, point, (metric, found), counts)
                    }));
                }
            }
        }
        Self { runs, differences }
    }

    /// The differences, in the order of the first run's metrics.
    pub fn differences(&self) -> &[Difference] {
        &self.differences
    }

    /// The same comparison, of metrics called `name` alone.
    #[must_use]
    pub fn only(mut self, name: &str) -> Self {
        self.differences.retain(|difference| difference.first.name == name);
        self
    }

    /// A table for a terminal, a line per difference.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (place, run) in self.runs.iter().enumerate() {
            let role = if place == 0 { "compared with" } else { "run" };
            let _ = writeln!(out, "{role:<13} {}", described(run));
        }
        let head = ["metric", "of", "first", "other", "difference", "", ""];
        let mut lines = vec![head.map(str::to_owned)];
        let mut last = String::new();
        for difference in &self.differences {
            let heading = self.heading(difference);
            if heading != last {
                lines.push([(); 7].map(|()| String::new()));
                lines.push([
                    heading.clone(),
                    "".into(),
                    "".into(),
                    "".into(),
                    "".into(),
                    "".into(),
                    "".into(),
                ]);
                last = heading;
            }
            lines.push(difference.cells());
        }
        let is_heading = |line: &[String; 7]| line[1..].iter().all(String::is_empty);
        let widths: Vec<_> = (0..7)
            .map(|column| {
                let own = lines.iter().filter(|line| !is_heading(line));
                own.map(|line| line[column].chars().count()).max().unwrap_or(0)
            })
            .collect();
        for line in &lines {
            let mut text = String::new();
            for (place, (cell, width)) in line.iter().zip(&widths).enumerate() {
                let room = width.saturating_sub(cell.chars().count());
                let (before, behind) = if (2..6).contains(&place) { (room, 0) } else { (0, room) };
                let _ = write!(text, "{:before$}{cell}{:behind$}  ", "", "");
            }
            let _ = writeln!(out, "{}", text.trim_end());
        }
        let _ = writeln!(out, "\n{}", self.summary());
        out
    }

    /// Which run at which point a difference is of; empty where there is but one.
    fn heading(&self, difference: &Difference) -> String {
        let run = &self.runs[difference.run].name;
        let of_run = if self.runs.len() > 2 { run.as_str() } else { "" };
        let parts = [difference.point.as_str(), of_run];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
    }

    /// How many differences there are of each kind, as a sentence.
    pub fn summary(&self) -> String {
        let count = |verdict| self.differences.iter().filter(|it| it.verdict == verdict).count();
        let [higher, lower, equal, undecided, unknown] =
            [Verdict::Higher, Verdict::Lower, Verdict::Equal, Verdict::Undecided, Verdict::Unknown]
                .map(count);
        let mut text = format!(
            "{} metrics: {higher} higher and {lower} lower with 95 % confidence, {equal} equal, {undecided} undecided",
            self.differences.len()
        );
        if unknown > 0 {
            let _ = write!(text, ", {unknown} without an interval, as a run was not repeated");
        }
        text + "."
    }

    /// A page with the table and a picture per metric; `facts` say how it was made.
    pub fn page(&self, facts: Vec<Fact>, options: &PanelOptions) -> Page {
        let names: Vec<_> = self.runs.iter().map(|run| run.name.as_str()).collect();
        let columns = ["Metric", "Of", ">First", ">Other", ">Difference", ">Percent", "Verdict"];
        let mut tables: Vec<Table> = Vec::new();
        for difference in &self.differences {
            let other = &self.runs[difference.run].name;
            let point = &difference.point;
            let caption = format!("{other} against {}", self.runs[0].name);
            let caption = if point.is_empty() { caption } else { format!("{caption}, {point}") };
            if tables.last().is_none_or(|table| table.caption != caption) {
                let at = tables.iter().position(|table| table.caption == caption);
                let table = at.map(|at| tables.remove(at));
                tables.push(table.unwrap_or_else(|| Table::new(caption, &columns)));
            }
            let row = difference.cells().map(Cell::from).to_vec();
            tables.last_mut().expect("one was pushed").rows.push(row);
        }
        let mut runs = Table::new("Runs", &["Run", "Scenario", "Version", ">Seed", ">Runs"]);
        for run in &self.runs {
            let scenario = or_dash(&run.scenario);
            let cells = [&run.name, &scenario, &or_dash(&run.version)].map(|it| it.as_str().into());
            let numbers = [run.seed.to_string().into(), run.runs.to_string().into()];
            runs.rows.push(cells.into_iter().chain(numbers).collect());
        }
        let note =
            "Bars are 95 % intervals over the runs. That of a difference is by Welch's t-test.";
        let section = |heading: &str| Section { heading: heading.to_owned(), ..Section::default() };
        Page {
            title: format!("Comparison of {}", names.join(", ")),
            summary: vec![self.summary()],
            facts,
            sections: vec![
                Section { tables: vec![runs], ..section("Runs") },
                Section { tables, note: note.to_owned(), ..section("Differences") },
                Section { panels: metric_panels(&self.runs, options), ..section("Figures") },
            ],
        }
    }

    /// The runs, the one that others are compared with first.
    pub fn runs(&self) -> &[SavedRun] {
        &self.runs
    }
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "–".to_owned() } else { text.to_owned() }
}

fn described(run: &SavedRun) -> String {
    let SavedRun { name, scenario, version, seed, runs, .. } = run;
    let of = if scenario.is_empty() { String::new() } else { format!(" of {scenario}") };
    let by = if version.is_empty() { String::new() } else { format!(", version {version}") };
    format!("{name}: {runs} runs{of}, seed {seed}{by}")
}

fn same_metric<'a>(
    run: &'a SavedRun,
    point: &SavedPoint,
    metric: &SavedMetric,
) -> Option<&'a SavedMetric> {
    let point = run.points.iter().find(|other| other.set == point.set)?;
    point.metrics.iter().find(|other| {
        (&other.name, &other.of, &other.unit) == (&metric.name, &metric.of, &metric.unit)
    })
}

impl Difference {
    fn of(
        run: usize,
        point: &SavedPoint,
        (first, other): (&SavedMetric, &SavedMetric),
        (runs_of_first, runs_of_other): (u32, u32),
    ) -> Option<Self> {
        let size = first.value?.abs().max(other.value?.abs());
        let value = other.value? - first.value?;
        let value = if value.abs() < NOISE * size { 0.0 } else { value };
        let halves = first.ci95.zip(other.ci95);
        let half = halves.and_then(|(a, b)| welch((a, runs_of_first), (b, runs_of_other)));
        let verdict = match half {
            _ if value == 0.0 => Verdict::Equal,
            None => Verdict::Unknown,
            Some(half) if value.abs() <= half => Verdict::Undecided,
            Some(_) if value > 0.0 => Verdict::Higher,
            Some(_) => Verdict::Lower,
        };
        let point = keys_in_words(point, None);
        let (first, other) = (first.clone(), other.clone());
        Some(Self { run, point, first, other, value, half, verdict })
    }

    /// In percent of the first run's value; `None` where that is zero.
    pub fn percent(&self) -> Option<f64> {
        let first = self.first.value.filter(|first| *first != 0.0)?;
        Some(100.0 * self.value / first.abs())
    }

    /// Metric, its subject, first, other, difference, percent, verdict.
    fn cells(&self) -> [String; 7] {
        let number = |metric: &SavedMetric| {
            interval(metric.value.unwrap_or(f64::NAN), metric.ci95, &metric.unit)
        };
        let percent = self.percent().map_or("–".to_owned(), |percent| {
            let sign = if percent > 0.0 { "+" } else { "" };
            format!("{sign}{} %", short((percent * 10.0).round() / 10.0))
        });
        let sign = if self.value > 0.0 { "+" } else { "" };
        [
            capitalised(&metric_in_words(&self.first.name)),
            self.first.of.clone(),
            number(&self.first),
            number(&self.other),
            format!("{sign}{}", interval(self.value, self.half, &self.first.unit)),
            percent,
            self.verdict.name().to_owned(),
        ]
    }
}

/// Half the width of the 95 % interval of a difference of two means, each with half the width of
/// its own interval and its number of runs. `None` if one has fewer than two.
fn welch((a, runs_a): (f64, u32), (b, runs_b): (f64, u32)) -> Option<f64> {
    let variance = |half: f64, runs: u32| -> Option<(f64, f64)> {
        let freedom = f64::from(runs.checked_sub(1).filter(|it| *it > 0)?);
        let error = half / quantile(freedom)?;
        Some((error * error, freedom))
    };
    let ((var_a, free_a), (var_b, free_b)) = (variance(a, runs_a)?, variance(b, runs_b)?);
    let sum = var_a + var_b;
    if sum == 0.0 {
        return Some(0.0);
    }
    let freedom = sum * sum / (var_a * var_a / free_a + var_b * var_b / free_b);
    Some(quantile(freedom)? * sum.sqrt())
}

/// Half-width of the 95 % interval of a mean, in standard errors.
fn quantile(freedom: f64) -> Option<f64> {
    Some(StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf(0.975))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn run(name: &str, value: f64, ci95: Option<f64>) -> SavedRun {
        let metric = SavedMetric {
            name: "age_mean".to_owned(),
            of: "robot".to_owned(),
            value: Some(value),
            unit: "s".to_owned(),
            ci95,
        };
        let points = vec![SavedPoint { set: BTreeMap::new(), metrics: vec![metric] }];
        SavedRun { name: name.to_owned(), seed: 1, runs: 10, points, ..SavedRun::default() }
    }

    fn verdict(value: f64, ci95: Option<f64>) -> Verdict {
        let runs = vec![run("a", 0.030, Some(0.001)), run("b", value, ci95)];
        Comparison::new(runs).differences()[0].verdict
    }

    #[test]
    fn welch_has_the_known_interval() {
        // Ten runs each, standard errors of 1: 18 degrees of freedom, 2.100922 * sqrt(2).
        let half = quantile(9.0).unwrap();
        assert!((welch((half, 10), (half, 10)).unwrap() - 2.971_153).abs() < 1e-4);
        // Standard errors of 3 and 1 with 5 and 10 runs: 100 / (81/4 + 1/9) = 4.911 degrees.
        let (a, b) = (3.0 * quantile(4.0).unwrap(), quantile(9.0).unwrap());
        let expected = quantile(100.0 / (81.0 / 4.0 + 1.0 / 9.0)).unwrap() * 10f64.sqrt();
        assert!((welch((a, 5), (b, 10)).unwrap() - expected).abs() < 1e-9);
        assert_eq!(welch((1.0, 1), (1.0, 10)), None);
    }

    #[test]
    fn a_difference_counts_where_its_interval_leaves_out_zero() {
        assert_eq!(verdict(0.040, Some(0.001)), Verdict::Higher);
        assert_eq!(verdict(0.020, Some(0.001)), Verdict::Lower);
        assert_eq!(verdict(0.031, Some(0.001)), Verdict::Undecided);
        assert_eq!(verdict(0.030, Some(0.001)), Verdict::Equal);
        assert_eq!(verdict(0.040, None), Verdict::Unknown);
    }

    #[test]
    fn the_table_and_the_page_have_both_values_and_the_difference() {
        let runs = vec![run("old", 0.030, Some(0.001)), run("<new>", 0.040, Some(0.002))];
        let comparison = Comparison::new(runs);
        let text = comparison.text();
        for part in ["Mean age", "30 ± 1 ms", "40 ± 2 ms", "+10 ± 2.1 ms", "+33.3 %", "higher"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        let html = comparison.page(Vec::new(), &PanelOptions::default()).html().unwrap();
        assert!(html.contains("&lt;new&gt; against old") && !html.contains("<new>"), "{html}");
        assert!(html.contains("1 higher and 0 lower") && html.contains("<svg"), "{html}");
    }
}
