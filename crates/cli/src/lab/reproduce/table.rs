//! The lines of a reproduction as text, and the number of lines that hold.

use std::collections::BTreeMap;
use std::io::{self, Write};

use freshline_lab::contest::Contested;
use freshline_lab::reproduce::{Compared, Kind, Verdict};
use freshline_lab::safety::Safety;
use freshline_lab::scenario::Origin;
use serde::{Deserialize, Serialize};

/// `docs/lab.md` describes each key.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Table {
    pub(super) name: String,
    pub(super) of: String,
    pub(super) rows: Vec<Compared>,
    #[serde(skip_serializing_if = "Option::is_none", skip_deserializing)]
    pub(super) contest: Option<Contested>,
    #[serde(skip_serializing_if = "Option::is_none", skip_deserializing)]
    pub(super) safety: Option<Safety>,
}

impl Table {
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}: {}", self.name, self.of)?;
        for row in &self.rows {
            let ratio = row.ours.zip(row.expected).map(|(ours, expected)| ours / expected);
            let ratio = ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}"));
            let ci95 = row.ci95.map_or(String::new(), |half| format!("± {}", short(half)));
            let deviation = row.deviation.map_or(String::new(), |sd| format!("  sd {}", short(sd)));
            writeln!(
                out,
                "  {:<52} {:>5} {:>8}  lab {:>8} {ci95:<11} {:<8} ratio {ratio:>6}  {}{deviation}",
                row.what,
                origin(row.source),
                expected(row),
                row.ours.map_or("-".to_owned(), short),
                row.unit,
                row.verdict.name(),
            )?;
        }
        writeln!(out)
    }
}

/// The source of an expected value.
pub(super) const fn origin(source: Origin) -> &'static str {
    match source {
        Origin::Paper => "paper",
        Origin::Model => "model",
        Origin::Ours => "ours",
    }
}

/// The expected value: a number, or bounds.
pub(super) fn expected(row: &Compared) -> String {
    let least = row.at_least.map(|least| format!("≥ {}", short(least)));
    let most = row.at_most.map(|most| format!("≤ {}", short(most)));
    let parts: Vec<_> = [row.expected.map(short), least, most].into_iter().flatten().collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}

/// Four significant digits.
pub(super) fn short(value: f64) -> String {
    let before_the_point = if value == 0.0 { 1 } else { value.abs().log10().floor() as i32 + 1 };
    format!("{value:.*}", usize::try_from(4 - before_the_point).unwrap_or(0))
}

/// The numbers of lines that hold, are broken and are undecided, by the source of the expected
/// value. Inputs are counted separately.
#[derive(Default)]
pub(super) struct Summary {
    judged: BTreeMap<(Kind, Origin), BTreeMap<&'static str, usize>>,
    calibrated: usize,
    not_judged: usize,
    /// Lines that show only baselines, in a null test.
    untouched: Option<usize>,
    /// Lines that no new law changes according to the scenario, in a null test.
    unaffected: usize,
}

impl Summary {
    pub(super) fn of<'a>(rows: impl Iterator<Item = &'a Compared>, is_null: bool) -> Self {
        let mut summary = Self { untouched: is_null.then_some(0), ..Self::default() };
        for row in rows {
            match &mut summary.untouched {
                _ if row.verdict == Verdict::NotJudged => summary.not_judged += 1,
                _ if row.calibrated => summary.calibrated += 1,
                Some(untouched) if !row.replaced => *untouched += 1,
                Some(_) if row.unaffected => summary.unaffected += 1,
                _ => {
                    let counts = summary.judged.entry((row.kind, row.source)).or_default();
                    *counts.entry(row.verdict.name()).or_default() += 1;
                }
            }
        }
        summary
    }

    /// The lines of a table: the source of the numbers or trends, their count, and the count of
    /// each verdict.
    pub(super) fn lines(&self) -> impl Iterator<Item = (String, usize, [usize; 3])> {
        self.judged.iter().map(|((kind, source), counts)| {
            let kind = match kind {
                Kind::Number => "numbers",
                Kind::Trend => "trends",
            };
            let verdicts = [Verdict::Holds, Verdict::Broken, Verdict::Undecided];
            let counts = verdicts.map(|verdict| *counts.get(verdict.name()).unwrap_or(&0));
            (format!("{kind}, {}", origin(*source)), counts.iter().sum(), counts)
        })
    }

    /// The lines that are not counted, as a sentence.
    pub(super) fn rest(&self) -> String {
        let mut rest =
            format!("Not counted: {} inputs that a scenario was chosen to meet.", self.calibrated);
        if self.not_judged > 0 {
            rest += &format!(" {} lines have no expected value.", self.not_judged);
        }
        if let Some(untouched) = self.untouched {
            rest += &format!(" {untouched} lines show only baselines, and nothing was replaced.");
            rest += &format!(" {} lines are marked as unaffected by a new law.", self.unaffected);
        }
        rest
    }

    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{:<16}{:>8}{:>8}{:>8}{:>11}", "", "judged", "holds", "broken", "undecided")?;
        for (what, all, [holds, broken, undecided]) in self.lines() {
            writeln!(out, "{what:<16}{all:>8}{holds:>8}{broken:>8}{undecided:>11}")?;
        }
        writeln!(out, "{}", self.rest())
    }
}

/// Whether a line holds with the law and also with its baseline: then it shows nothing about the
/// law.
pub(super) fn holds_without_law(row: &Compared) -> bool {
    let both = (row.verdict, row.without_law);
    is_about_a_law(row) && both == (Verdict::Holds, Some(Verdict::Holds))
}

/// Whether a line is about a new law, so that the null test applies to it.
pub(super) fn is_about_a_law(row: &Compared) -> bool {
    row.without_law.is_some() && !row.unaffected && !row.calibrated
}

/// Whether a line has an expected value; the record has only such lines.
pub(super) fn is_judged(row: &Compared) -> bool {
    row.verdict != Verdict::NotJudged
}

/// Text in a cell of a table.
pub(super) fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
