//! The record of all verdicts, against which later runs are checked, and the page that shows it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use freshline_lab::library::{self, Text};
use freshline_lab::reproduce::{Compared, Kind, Options, Verdict};
use freshline_lab::scenario::{Omitted, Origin, Scenario};
use miette::{IntoDiagnostic, WrapErr, miette};

use super::papers::{self, Left};
use super::report::figure;
use super::table::{
    Summary, Table, cell, expected, holds_without_law, is_about_a_law, is_judged, origin, short,
};
use crate::failure::Failure;
use crate::lab::figure::{Scales, draw_into, name_of};

/// The record that is built into the program.
const RECORD: &str = include_str!("../../../coverage.json");

/// Scenarios that the page shows as figures.
const DRAWN: [&str; 6] = [
    "dtpa/ten-nodes",
    "ifc/aoi-load",
    "ifc/truth-telling",
    "rtac/lte",
    "sorpc/interactive",
    "wlan/several-clients",
];

/// The folder of figures, next to the page.
const FIGURES: &str = "figures";

/// Draws those figures into `folder`/[`FIGURES`].
fn draw(tables: &[Table], folder: &Path) -> Result<(), Failure> {
    let drawn = tables.iter().filter(|table| DRAWN.contains(&&*table.name));
    drawn.into_iter().try_for_each(|table| {
        let figure = figure(&library::find(&table.name)?, table, Scales::default());
        let name = format!("{}.svg", name_of(&table.name));
        draw_into(&figure, &folder.join(FIGURES).join(name))
    })
}

/// Whether a scenario has a line in the record; a contest has none.
fn has_verdicts(table: &&Table) -> bool {
    table.rows.iter().any(is_judged)
}

/// Whether a line is not as expected, so that the page shows a reason.
fn is_missed(row: &Compared) -> bool {
    matches!(row.verdict, Verdict::Broken | Verdict::Undecided)
}

/// Reads the built-in record.
pub(super) fn recorded() -> Result<Vec<Table>, Failure> {
    let read = serde_json::from_str(RECORD).into_diagnostic();
    read.wrap_err("docs/coverage.json is not a record of verdicts").map_err(Failure::Runtime)
}

/// A line by its scenario, kind and words.
type Key<'a> = (&'a str, Kind, &'a str);

/// The verdicts of the lines for which `verdict` returns one.
fn verdicts(
    tables: &[Table],
    verdict: impl Fn(&Compared) -> Option<Verdict>,
) -> BTreeMap<Key<'_>, Verdict> {
    let mut verdicts = BTreeMap::new();
    for table in tables {
        let rows = table.rows.iter().filter(|row| is_judged(row));
        let rows = rows.filter_map(|row| Some((row, verdict(row)?)));
        verdicts.extend(rows.map(|(row, it)| ((&*table.name, row.kind, &*row.what), it)));
    }
    verdicts
}

fn with_law(row: &Compared) -> Option<Verdict> {
    Some(row.verdict)
}

/// The verdict of a null test, for a line in which a law was replaced.
fn null(row: &Compared) -> Option<Verdict> {
    row.replaced.then_some(row.verdict)
}

fn recorded_null(row: &Compared) -> Option<Verdict> {
    row.without_law
}

/// Each verdict of a run with `options` that differs from the recorded one, in words.
pub(super) fn differences(tables: &[Table], record: &[Table], options: Options) -> Vec<String> {
    let (now, then) = if options.null {
        (verdicts(tables, null), verdicts(record, recorded_null))
    } else {
        (verdicts(tables, with_law), verdicts(record, with_law))
    };
    let all = options.sample.is_none();
    let mut differences: Vec<_> = now
        .iter()
        .filter_map(|(key @ (name, _, what), verdict)| match then.get(key) {
            Some(known) if known == verdict => None,
            Some(known) => {
                Some(format!("{name}: `{what}`: {}, recorded: {}", verdict.name(), known.name()))
            }
            None => Some(format!("{name}: `{what}`: {}, not in the record", verdict.name())),
        })
        .collect();
    let ran = |name: &str| tables.iter().any(|table| table.name == name);
    let lost = then.keys().filter(|key| all && ran(key.0) && !now.contains_key(*key));
    differences.extend(lost.map(|(name, _, what)| format!("{name}: `{what}`: no such line")));
    differences
}

/// Writes the record and its page into a folder. Scenarios that did not run keep their entries in
/// the folder's record. A null test only writes the verdicts without the law of recorded lines.
pub(super) fn write(folder: &Path, ran: &[Table], is_null: bool) -> Result<(), Failure> {
    let texts = library::all();
    let path = folder.join("coverage.json");
    let known: Vec<Table> = match fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text)
            .into_diagnostic()
            .wrap_err_with(|| format!("{} is not a record of verdicts", path.display()))
            .map_err(Failure::Runtime)?,
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            let report = Err::<(), _>(error).into_diagnostic();
            let report = report.wrap_err_with(|| format!("cannot read {}", path.display()));
            return report.map_err(Failure::Runtime);
        }
    };
    let tables = if is_null { with_null(known, ran) } else { merged(known, ran, &texts) };
    let json = json(&tables).into_diagnostic().map_err(Failure::Runtime)?;
    let files = [("coverage.json", json), ("coverage.md", page(&tables, &omitted(&texts)))];
    for (name, text) in files {
        let path = folder.join(name);
        fs::write(&path, text)
            .into_diagnostic()
            .wrap_err_with(|| format!("cannot write {}", path.display()))
            .map_err(Failure::Runtime)?;
    }
    draw(&tables, folder)
}

/// Known results updated by new ones, in the order of the bundled scenarios.
fn merged(known: Vec<Table>, ran: &[Table], texts: &[Text]) -> Vec<Table> {
    let mut tables: Vec<_> = ran.to_vec();
    let null = verdicts(&known, recorded_null);
    for table in &mut tables {
        for row in &mut table.rows {
            row.without_law = null.get(&(&*table.name, row.kind, &*row.what)).copied();
        }
    }
    tables.extend(known.into_iter().filter(|known| ran.iter().all(|ran| ran.name != known.name)));
    tables.retain(|table| texts.iter().any(|text| text.name == table.name));
    // The record has only judged lines, and the page is that of the record.
    tables.iter_mut().for_each(|table| table.rows.retain(is_judged));
    tables.sort_by(|a, b| a.name.cmp(&b.name));
    tables
}

/// The record with the verdicts of its lines in a null test.
fn with_null(mut known: Vec<Table>, ran: &[Table]) -> Vec<Table> {
    let null = verdicts(ran, null);
    for table in known.iter_mut().filter(|table| ran.iter().any(|ran| ran.name == table.name)) {
        for row in &mut table.rows {
            row.without_law = null.get(&(&*table.name, row.kind, &*row.what)).copied();
        }
    }
    known
}

/// The record as JSON, with each line of the tables on a separate line.
fn json(tables: &[Table]) -> serde_json::Result<String> {
    let mut written = Vec::new();
    for Table { name, of, rows, .. } in tables.iter().filter(has_verdicts) {
        let rows = rows.iter().filter(|row| is_judged(row)).map(serde_json::to_string);
        let rows: Vec<_> = rows.collect::<Result<_, _>>()?;
        let [name, of] = [name, of].map(serde_json::to_string);
        let rows = rows.join(",\n");
        written.push(format!("{{\"name\":{},\"of\":{},\"rows\":[\n{rows}\n]}}", name?, of?));
    }
    Ok(format!("[\n{}\n]\n", written.join(",\n")))
}

/// The omitted entries of scenarios, with their names.
pub(super) fn omitted(texts: &[Text]) -> Vec<Left> {
    let of_text = |text: &Text| {
        let reproduce = Scenario::parse(text.source()).ok()?.reproduce?;
        let (name, of) = (&text.name, &reproduce.of);
        let left = |omitted| Left { name: name.clone(), of: of.clone(), omitted };
        Some(reproduce.omitted.into_iter().map(left).collect::<Vec<_>>())
    };
    texts.iter().filter_map(of_text).flatten().collect()
}

const HEAD: &str = "\
# What the papers show, and what the lab has

<!-- Written by `freshline lab reproduce all --record docs`. -->

Each line of the tables is a number or an order that a paper prints (*paper*), that a closed form \
gives (*model*), or that we expect (*ours*), alongside the lab's value, with its 95 % interval. A line \
*holds* or is *broken* where the whole interval says so, and is *undecided* where the interval \
covers both. Inputs, chosen so that a number comes out, are marked and not counted. \
`freshline lab reproduce NAME` runs the scenario of a heading; `freshline lab reproduce all --check` \
runs all of them and fails where a verdict is no longer the one below. [How scenarios say \
this](lab.md#figures-of-papers).
";

/// The page of a record.
pub(super) fn page(tables: &[Table], omitted: &[Left]) -> String {
    let mut page = HEAD.to_owned();
    let summary = Summary::of(tables.iter().flat_map(|table| &table.rows), false);
    page += "\n| | judged | hold | broken | undecided |\n|---|---:|---:|---:|---:|\n";
    for (what, all, [holds, broken, undecided]) in summary.lines() {
        let _ = writeln!(page, "| {what} | {all} | {holds} | {broken} | {undecided} |");
    }
    let _ = writeln!(page, "\n{}", summary.rest());
    page += &null_test(tables);
    for paper in papers::all() {
        page += &paper.page(tables, omitted);
    }
    for table in tables.iter().filter(has_verdicts) {
        let _ = writeln!(page, "\n## {}\n\n{}\n", table.name, papers::cited(&table.of));
        if DRAWN.contains(&&*table.name) {
            let file = table.name.rsplit('/').next().unwrap_or_default();
            let _ = writeln!(page, "![Expected values, and the lab's]({FIGURES}/{file}.svg)\n");
        }
        page +=
            "| quantity | source | expected | lab | verdict | why |\n|---|---|---:|---:|---|---|\n";
        for row in table.rows.iter().filter(|row| is_judged(row)) {
            let ci95 = row.ci95.map_or(String::new(), |half| format!(" ± {}", short(half)));
            let ours = row.ours.map_or(String::new(), |ours| {
                let unit = if row.unit == "1" { String::new() } else { format!(" {}", row.unit) };
                format!("{}{ci95}{unit}", short(ours))
            });
            let quote = row
                .quote
                .as_ref()
                .map_or(String::new(), |quote| format!(": {}", papers::quoted(quote, &table.of)));
            let verdict = match row.verdict.name() {
                _ if row.calibrated => "input".to_owned(),
                name if row.unaffected => format!("{name}, unaffected"),
                name if holds_without_law(row) => format!("{name}, also without the law"),
                name => name.to_owned(),
            };
            let _ = writeln!(
                page,
                "| {} | {}{} | {} | {ours} | {verdict} | {} |",
                cell(&row.what),
                origin(row.source),
                cell(&quote),
                expected(row),
                cell(row.why.as_deref().filter(|_| is_missed(row)).unwrap_or("")),
            );
        }
    }
    if !omitted.is_empty() {
        page += "\n## Not shown in any row\n\n| quantity | why | scenario |\n|---|---|---|\n";
    }
    for Left { name, of, omitted: Omitted { what, why } } in omitted {
        let what = papers::quoted(what, of);
        let _ = writeln!(page, "| {} | {} | {name} |", cell(&what), cell(why));
    }
    page
}

/// How many of the papers' lines about a new law hold, and how many of these its baseline fails.
fn null_test(tables: &[Table]) -> String {
    let rows = || {
        let rows = tables.iter().flat_map(|table| &table.rows);
        rows.filter(|row| row.source == Origin::Paper && is_judged(row) && !row.calibrated)
    };
    let mut text = "\nLines of the papers that are about a new law, with the law and with its \
                    baseline in its place (the null test, `freshline lab reproduce all --null`). A \
                    line that holds with the baseline too shows nothing of the law.\n\n\
                    | | about a law | hold with it and not without | hold with both | hold without \
                    alone | hold with neither |\n|---|---:|---:|---:|---:|---:|\n"
        .to_owned();
    for (name, kind) in [("numbers", Kind::Number), ("trends", Kind::Trend)] {
        let about = rows().filter(|row| row.kind == kind && is_about_a_law(row));
        let mut counts = [[0; 2]; 2];
        for row in about {
            let without = row.without_law == Some(Verdict::Holds);
            counts[usize::from(row.verdict == Verdict::Holds)][usize::from(without)] += 1;
        }
        let [[neither, without], [with, both]] = counts;
        let all = neither + without + with + both;
        let _ = writeln!(text, "| {name} | {all} | {with} | {both} | {without} | {neither} |");
    }
    let unaffected = rows().filter(|row| row.unaffected).count();
    let baselines = rows().filter(|row| row.without_law.is_none() && !row.unaffected).count();
    let _ = writeln!(
        text,
        "\n{unaffected} further lines are *unaffected*: the scenario says that they are about \
         baselines, or about something else that no new law changes. In {baselines} more no law is \
         replaced, as they show baselines alone."
    );
    text
}

/// Rejects a run that differs from the record.
pub(super) fn refuse(
    differences: &[String],
    tables: &[Table],
    is_null: bool,
) -> Result<(), Failure> {
    let ran = verdicts(tables, if is_null { null } else { with_law }).len();
    if differences.is_empty() {
        say!("{ran} verdicts are as recorded");
        return Ok(());
    }
    Err(Failure::Runtime(miette!(
        "{} of {ran} verdicts differ from the record:\n{}\nIf that is right, `freshline lab reproduce \
         all{} --record docs` updates the record.",
        differences.len(),
        differences.join("\n"),
        if is_null { " --null" } else { "" },
    )))
}

#[cfg(test)]
mod tests {
    use freshline_lab::reproduce::Draw;

    use super::*;

    #[test]
    fn the_page_is_that_of_the_record() {
        let tables = recorded().unwrap_or_else(|_| panic!("docs/coverage.json is not a record"));
        let page = page(&tables, &omitted(&library::all()));
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        if fs::read_to_string(root.join("docs/coverage.md")).unwrap_or_default() != page {
            let made = root.join("target/coverage.md");
            fs::write(&made, page).unwrap();
            panic!("docs/coverage.md differs from its record; {} is up to date", made.display());
        }
        let [made, shown] = [root.join("target"), root.join("docs")];
        draw(&tables, &made).unwrap_or_else(|_| panic!("cannot write to {}", made.display()));
        for name in DRAWN.map(|name| name.rsplit('/').next().unwrap()) {
            let read = |folder: &Path| {
                fs::read_to_string(folder.join(FIGURES).join(format!("{name}.svg")))
            };
            let is_same = read(&made).unwrap() == read(&shown).unwrap_or_default();
            assert!(
                is_same,
                "docs/figures/{name}.svg differs from the record; {made:?} is up to date"
            );
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let tables = recorded().unwrap_or_else(|_| panic!("docs/coverage.json is not a record"));
        let read: Vec<Table> = serde_json::from_str(&json(&tables).unwrap()).unwrap();
        assert_eq!(verdicts(&read, with_law), verdicts(&tables, with_law));
        assert_eq!(verdicts(&read, recorded_null), verdicts(&tables, recorded_null));
    }

    #[test]
    fn a_verdict_that_changed_is_a_difference_and_so_is_a_line_that_is_gone() {
        let record = recorded().unwrap_or_else(|_| panic!("docs/coverage.json is not a record"));
        let table = record.iter().find(|table| table.rows.len() > 1).unwrap().clone();
        let one = || vec![table.clone()];
        assert!(differences(&one(), &record, Options::default()).is_empty());
        let mut changed = one();
        changed[0].rows[0].verdict = match table.rows[0].verdict {
            Verdict::Holds => Verdict::Broken,
            _ => Verdict::Holds,
        };
        let said = differences(&changed, &record, Options::default());
        assert!(matches!(&said[..], [line] if line.contains("recorded: ")), "{said:?}");
        let mut gone = one();
        gone[0].rows.remove(0);
        assert_eq!(differences(&gone, &record, Options::default()).len(), 1);
        let sample = Some(Draw { one_in: 100, seed: 1 });
        let options = Options { sample, ..Options::default() };
        assert!(differences(&gone, &record, options).is_empty(), "a sample leaves lines out");
    }

    /// The first scenario of the record with a line about a new law that holds, and that line.
    fn about_a_law(record: &[Table]) -> (Table, usize) {
        let found = record.iter().find_map(|table| {
            let shows = |row: &Compared| is_about_a_law(row) && row.verdict == Verdict::Holds;
            Some((table.clone(), table.rows.iter().position(shows)?))
        });
        found.expect("a line about a new law holds")
    }

    /// The table of a null test, in which each law's line has the verdict.
    fn null_test_of(table: &Table, verdict: Verdict) -> Table {
        let mut ran = table.clone();
        for row in &mut ran.rows {
            row.replaced = row.without_law.take().is_some();
            row.verdict = verdict;
        }
        ran
    }

    #[test]
    fn a_null_test_is_recorded_beside_the_verdicts_and_stays_when_they_are_recorded_anew() {
        let record = recorded().unwrap_or_else(|_| panic!("docs/coverage.json is not a record"));
        let (table, line) = about_a_law(&record);
        let known = with_null(record.clone(), &[null_test_of(&table, Verdict::Undecided)]);
        assert_eq!(verdicts(&known, with_law), verdicts(&record, with_law));
        let mut ran = table.clone();
        ran.rows.iter_mut().for_each(|row| row.without_law = None);
        let merged = merged(known, &[ran], &library::all());
        let merged = merged.iter().find(|merged| merged.name == table.name).unwrap();
        assert_eq!(merged.rows[line].without_law, Some(Verdict::Undecided));
    }

    #[test]
    fn a_null_test_is_checked_against_what_was_recorded_of_it() {
        let record = recorded().unwrap_or_else(|_| panic!("docs/coverage.json is not a record"));
        let (table, line) = about_a_law(&record);
        let options = Options { null: true, ..Options::default() };
        let mut ran = null_test_of(&table, Verdict::Holds);
        for (row, recorded) in ran.rows.iter_mut().zip(&table.rows) {
            row.verdict = recorded.without_law.unwrap_or(Verdict::Holds);
        }
        assert_eq!(differences(&[ran.clone()], &record, options), Vec::<String>::new());
        ran.rows[line].verdict = Verdict::NotJudged;
        assert_eq!(differences(&[ran], &record, options).len(), 1);
    }

    #[test]
    fn what_holds_without_the_law_is_counted_apart() {
        let record = recorded().unwrap_or_else(|_| panic!("docs/coverage.json is not a record"));
        let (mut table, line) = about_a_law(&record);
        let mut row =
            Compared { source: Origin::Paper, kind: Kind::Trend, ..table.rows[line].clone() };
        let as_trend = |verdict, without_law| Compared { verdict, without_law, ..row.clone() };
        table.rows = vec![
            as_trend(Verdict::Holds, Some(Verdict::Holds)),
            as_trend(Verdict::Holds, Some(Verdict::Broken)),
            as_trend(Verdict::Holds, Some(Verdict::Undecided)),
            as_trend(Verdict::Broken, Some(Verdict::Holds)),
            as_trend(Verdict::Holds, None),
        ];
        row.unaffected = true;
        table.rows.push(row);
        let text = null_test(&[table]);
        assert!(text.contains("| trends | 4 | 2 | 1 | 1 | 0 |"), "{text}");
        assert!(text.contains("1 further lines are *unaffected*"), "{text}");
        assert!(text.contains("In 1 more"), "{text}");
    }

    #[test]
    fn scenarios_that_did_not_run_keep_their_lines() {
        let record = recorded().unwrap_or_else(|_| panic!("docs/coverage.json is not a record"));
        let mut ran = record[1].clone();
        ran.rows.truncate(1);
        let gone = Table { name: "no such scenario".to_owned(), ..ran.clone() };
        let known = [record.clone(), vec![gone]].concat();
        let merged = merged(known, &[ran], &library::all());
        let names = |tables: &[Table]| tables.iter().map(|t| t.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&merged), names(&record));
        assert_eq!((merged[1].rows.len(), &merged[0].rows), (1, &record[0].rows));
    }
}
