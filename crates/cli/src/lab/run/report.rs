//! The figures and the report of `freshline lab run`.

use std::path::Path;

use freshline_lab::run::Point;
use freshline_lab::scenario::{Scenario, ScenarioError};
use freshline_report::{
    Cell, Figure, Page, PanelOptions, SavedMetric, SavedPoint, SavedRun, Section, Table,
    capitalised, interval, key_in_words, metric_in_words, metric_panels,
};

use super::PointResult;
use crate::failure::Failure;
use crate::html::{HtmlArg, facts};
use crate::lab::chosen::bad;
use crate::lab::figure::{FigureArgs, ages_panel, recorded, series_panels};

/// The meaning of the error bars.
pub(super) const INTERVALS: &str = "Bars are 95 % intervals over the runs.";

/// The measurements of a run, for figures and reports.
pub(super) struct Measured<'a> {
    name: &'a str,
    points: &'a [Point],
    pub(super) run: SavedRun,
}

impl<'a> Measured<'a> {
    pub(super) fn new(name: &'a str, points: &'a [Point], results: &[PointResult]) -> Self {
        let Scenario { title, seed, runs, .. } = &points[0].scenario;
        let stem = Path::new(name).file_stem().unwrap_or_default();
        let run = SavedRun {
            name: stem.to_string_lossy().into_owned(),
            scenario: name.to_owned(),
            title: title.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            seed: *seed,
            runs: *runs,
            points: results.iter().map(saved).collect(),
        };
        Self { name, points, run }
    }

    pub(super) fn title(&self) -> &str {
        &self.run.title
    }

    /// The names of the metrics.
    pub(super) fn names(&self) -> Vec<&str> {
        let all = self.run.points.iter().flat_map(|point| &point.metrics);
        let mut names: Vec<_> = all.map(|metric| metric.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    fn panels(&self, args: &FigureArgs) -> Vec<freshline_report::Panel> {
        let options = PanelOptions { metric: None, x: args.scales.x(), y: args.scales.y() };
        metric_panels(std::slice::from_ref(&self.run), &options)
    }

    /// The scenario, if it has no sweep; its runs are drawn over time.
    fn alone(&self) -> Option<&Scenario> {
        let [point] = self.points else { return None };
        point.set.is_empty().then_some(&point.scenario)
    }

    /// Draws the metrics; for a scenario without a sweep also the time series and distributions of
    /// run 0.
    pub(super) fn draw(&self, args: &FigureArgs) -> Result<(), Failure> {
        if !args.is_wanted() {
            return Ok(());
        }
        let figure = |ending: &str, panels, note: &str| {
            let (title, note) = (self.title().to_owned(), note.to_owned());
            args.write(self.name, ending, &Figure { title, panels, note })
        };
        figure("", self.panels(args), INTERVALS)?;
        let Some(scenario) = self.alone() else { return Ok(()) };
        let recording = recorded(scenario).map_err(|error| self.bad(error))?;
        figure("-time", series_panels(&recording), "Run 0, with its warm-up.")?;
        let ages = ages_panel(&recording, scenario, args.scales.x());
        figure("-cdf", ages.into_iter().collect(), "Run 0, after its warm-up.")
    }

    /// Writes the report, if --html was given.
    pub(super) fn write(&self, html: &HtmlArg, args: &FigureArgs) -> Result<(), Failure> {
        if !html.is_wanted() {
            return Ok(());
        }
        let section = |heading: &str| Section { heading: heading.to_owned(), ..Section::default() };
        let mut sections = vec![Section {
            panels: self.panels(args),
            note: INTERVALS.to_owned(),
            ..section("Metrics")
        }];
        if let Some(scenario) = self.alone() {
            let recording = recorded(scenario).map_err(|error| self.bad(error))?;
            sections.push(Section {
                text: vec!["Run 0, after its warm-up.".to_owned()],
                panels: ages_panel(&recording, scenario, args.scales.x()).into_iter().collect(),
                ..section("Distribution of the age")
            });
            sections.push(Section {
                text: vec!["Run 0, with its warm-up; a value is that of an interval.".to_owned()],
                panels: series_panels(&recording),
                ..section("Over time")
            });
            sections.retain(|section| !section.panels.is_empty());
        }
        let tables = self.run.points.iter().map(table).collect();
        sections.push(Section { tables, note: INTERVALS.to_owned(), ..section("All numbers") });
        html.write(|| Page {
            title: self.title().to_owned(),
            summary: self.summary(),
            facts: facts(&[
                ("Scenario", self.name.to_owned()),
                ("Seed", self.run.seed.to_string()),
                ("Runs", self.run.runs.to_string()),
            ]),
            sections,
        })
    }

    fn bad(&self, error: ScenarioError) -> Failure {
        bad(self.name, &error.into())
    }

    /// A summary in words: the runs, and the age of each flow.
    fn summary(&self) -> Vec<String> {
        let Scenario { duration, warm_up, .. } = &self.points[0].scenario;
        let warm_up = if warm_up.is_zero() {
            String::new()
        } else {
            format!(" after a warm-up of {warm_up}")
        };
        let points = match self.run.points.len() {
            1 => String::new(),
            count => format!(" at each of {count} points of the sweep"),
        };
        let first = format!(
            "{} of {duration} in virtual time{warm_up}{points}. The same scenario, seed and changes give \
             the same numbers.",
            counted(self.run.runs, "run"),
        );
        let ages = self.run.points.iter().flat_map(|point| {
            let of_age = point.metrics.iter().filter(|metric| metric.name == "age_mean");
            of_age.map(|metric| (metric, keys(point)))
        });
        let known = ages.filter_map(|(metric, keys)| Some((metric.value?, metric, keys)));
        let (mut best, mut count) = (None::<(f64, String)>, 0);
        let mut worst = None::<(f64, String)>;
        for (value, metric, keys) in known {
            let words = interval(value, metric.ci95, &metric.unit);
            let at = if keys.is_empty() { String::new() } else { format!(" at {keys}") };
            let text = format!("{words} ({}{at})", metric.of);
            if best.as_ref().is_none_or(|(known, _)| value < *known) {
                best = Some((value, text.clone()));
            }
            if worst.as_ref().is_none_or(|(known, _)| value > *known) {
                worst = Some((value, text));
            }
            count += 1;
        }
        let ages = match (best, worst) {
            (Some((_, best)), Some((_, worst))) if count > 1 => {
                Some(format!("The lowest mean age is {best}, the highest {worst}."))
            }
            (Some((_, best)), _) => Some(format!("The mean age is {best}.")),
            _ => None,
        };
        [Some(first), ages].into_iter().flatten().collect()
    }
}

fn counted(count: u32, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn saved(result: &PointResult) -> SavedPoint {
    let metric = |metric: &freshline_lab::run::Metric| SavedMetric {
        name: metric.name.to_owned(),
        of: metric.of.clone(),
        value: Some(metric.value).filter(|value| value.is_finite()),
        unit: metric.unit.to_owned(),
        ci95: metric.ci95.filter(|half| half.is_finite()),
    };
    let set = result
        .set
        .iter()
        .map(|(key, value)| (key.clone(), serde_json::to_value(value).unwrap_or_default()));
    SavedPoint { set: set.collect(), metrics: result.metrics.iter().map(metric).collect() }
}

fn keys(point: &SavedPoint) -> String {
    let words = point.set.iter().map(|(key, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{} {value}", key_in_words(key))
    });
    words.collect::<Vec<_>>().join(", ")
}

fn table(point: &SavedPoint) -> Table {
    let keys = keys(point);
    let caption = if keys.is_empty() { "Metrics".to_owned() } else { format!("Metrics, {keys}") };
    let mut table = Table::new(caption, &["Metric", "Of", ">Mean, 95 % interval", "Name"]);
    table.rows = point
        .metrics
        .iter()
        .map(|metric| {
            let number = interval(metric.value.unwrap_or(f64::NAN), metric.ci95, &metric.unit);
            let words = capitalised(&metric_in_words(&metric.name));
            [words, metric.of.clone(), number, metric.name.clone()].map(Cell::from).to_vec()
        })
        .collect();
    table
}
