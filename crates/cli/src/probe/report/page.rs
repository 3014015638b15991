//! The report of a probe: the age over the rate, with the laws.

use freshline_report::{
    Axis, Cell, Curves, Page, Panel, Point, Scale, Section, Series, Stroke, Table, interval, short,
};

use super::{LawReport, Means, Report, compared};
use crate::html::facts;

impl Report {
    /// The page; `url` is the monitor.
    pub(in crate::probe) fn page(&self, url: &str) -> Page {
        let mut table = Table::new(
            "Means of each fixed rate and each law",
            &["Rate or law", ">Updates (1/s)", ">Age (ms)", ">Round trip (ms)", ">Backlog", "Note"],
        );
        let best = self.best.as_ref().map(|best| best.rate_per_s);
        for rate in &self.rates {
            let note = if Some(rate.rate_per_s) == best { "lowest age" } else { "" };
            table.rows.push(row(format!("{}/s", short(rate.rate_per_s)), &rate.means, None, note));
        }
        for law in &self.laws {
            let rounds = if law.rounds == 1 {
                "1 round".to_owned()
            } else {
                format!("{} rounds", law.rounds)
            };
            table.rows.push(row(law.law.to_owned(), &law.means, law.age_mean_ci95_ms, &rounds));
        }
        let mut sections = vec![Section {
            heading: "Age over the rate".to_owned(),
            text: vec![
                "Ages are the source's, from round trips: too high by the delay of the ack."
                    .to_owned(),
            ],
            panels: vec![Panel::Curves(self.bowl())],
            note: "Bars are 95 % intervals over the rounds.".to_owned(),
            tables: vec![table],
        }];
        sections.extend(self.marks.as_ref().map(marks));
        Page {
            title: format!("Age over the rate to {url}"),
            summary: self.summary(),
            facts: facts(&[
                ("Monitor", url.to_owned()),
                ("Payload", format!("{} B", self.payload_bytes)),
            ]),
            sections,
        }
    }

    fn summary(&self) -> Vec<String> {
        let best = self.best.as_ref().map(|best| {
            format!(
                "Of {} fixed rates {}/s has the lowest mean age, {} ms.",
                self.rates.len(),
                short(best.rate_per_s),
                short(best.means.age_mean_ms)
            )
        });
        let law = |law: &LawReport| {
            let above = law.above_best_percent?;
            Some(format!(
                "{} sends {}/s; its age settles {} that of the best fixed rate.",
                law.law,
                short(law.means.updates_per_s),
                compared(above)
            ))
        };
        best.into_iter().chain(self.laws.iter().filter_map(law)).collect()
    }

    fn bowl(&self) -> Curves {
        let point = |x: f64, means: &Means, half: Option<f64>| Point {
            x,
            y: means.age_mean_ms / 1e3,
            half: half.map(|half| half / 1e3),
        };
        let mut rates: Vec<_> =
            self.rates.iter().map(|rate| point(rate.rate_per_s, &rate.means, None)).collect();
        rates.sort_by(|a, b| a.x.total_cmp(&b.x));
        let rates = Series {
            name: "fixed rates".to_owned(),
            stroke: Stroke::Joined,
            is_expected: false,
            color: 0,
            points: rates,
        };
        let laws = self.laws.iter().enumerate().map(|(place, law)| Series {
            name: law.law.to_owned(),
            stroke: Stroke::Marks,
            is_expected: false,
            color: place + 1,
            points: vec![point(law.means.updates_per_s, &law.means, law.age_mean_ci95_ms)],
        });
        Curves {
            title: "Mean age over the update rate".to_owned(),
            x: Axis { scale: Scale::Log, ..Axis::new("Update rate", "1/s") },
            y: Axis::new("Mean age", "s"),
            series: [rates].into_iter().chain(laws).collect(),
        }
    }
}

fn row(name: String, means: &Means, half: Option<f64>, note: &str) -> Vec<Cell> {
    let rtt = means.rtt_mean_ms.map_or("–".to_owned(), short);
    vec![
        name.into(),
        short(means.updates_per_s).into(),
        interval(means.age_mean_ms, half, "1").into(),
        rtt.into(),
        short(means.backlog_mean).into(),
        note.into(),
    ]
}

fn marks(report: &freshline_net::marks::MarkReport) -> Section {
    let value = serde_json::to_value(report).unwrap_or_default();
    let mut table = Table::new("Code points (DSCP) on the path", &["What", ">Value"]);
    let mut add = |name: String, value: &serde_json::Value| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        table.rows.push(vec![name.replace('_', " ").into(), value.into()]);
    };
    for (name, value) in value.as_object().into_iter().flatten() {
        match value.as_object() {
            Some(inner) => {
                inner.iter().for_each(|(key, value)| add(format!("{name}: {key}"), value));
            }
            None => add(name.clone(), value),
        }
    }
    Section { heading: "Marks".to_owned(), tables: vec![table], ..Section::default() }
}
