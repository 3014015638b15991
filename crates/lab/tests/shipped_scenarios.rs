//! All rows of shipped scenarios' reproductions can be run: checked without running them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use freshline_lab::contest::cases;
use freshline_lab::scenario::{Change, FlowConfig, Reproduction, Row, Scenario, Source};

/// Lists the metrics.
const LAB: &str = include_str!("../../../docs/lab.md");

fn scenarios(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            scenarios(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            found.push(path);
        }
    }
}

/// The settings of a row, with the first of the values among which it takes the best.
fn changes(row: &Row) -> Vec<Change> {
    let set = Change::each(&row.set);
    let best = row.best.iter().map(|best| {
        let value = toml::Value::String(format!("{}{}", best.values[0], best.unit));
        Change::new(best.key.clone(), value)
    });
    set.chain(best).collect()
}

/// Whether the scenario has a flow, link or cell of this name; of `flow@link`, both, of `cell/ap`
/// the cell, and of `flow/1` the flow with this number of paths, or in a mesh with nodes at this
/// distance in hops; of `mesh/1` the mesh with such a node; of `flow/topic` the flow with such a
/// topic.
fn has(scenario: &Scenario, of: &str) -> bool {
    if let Some((name, topic)) = of.split_once('/')
        && let Some(flow) = scenario.flows.iter().find(|flow| flow.name == name && flow.count > 0)
        && let Some(updates) = &flow.updates
    {
        return updates.topics.iter().any(|known| known.name == topic);
    }
    if let Some((name, path)) = of.split_once('/')
        && let Ok(path) = path.parse::<usize>()
    {
        if let Some(mesh) = scenario.meshes.iter().find(|mesh| mesh.name == name) {
            return path < mesh.at.len();
        }
        let of_flow = |flow: &&FlowConfig| flow.name == name && flow.count > 0;
        if scenario.flows.iter().find(of_flow).is_some_and(|flow| flow.each_node) {
            let built = scenario.build(0).unwrap();
            let mesh = &built.world.meshes()[0];
            return (1..=mesh.nodes()).any(|node| mesh.tree().depth(node) as usize == path);
        }
        let multipath = scenario.flows.iter().find(of_flow).and_then(|it| it.multipath.as_ref());
        let paths = multipath.map_or(0, |multipath| multipath.paths.len());
        return (1..=paths).contains(&path);
    }
    let flows = scenario.flows.iter().filter(|flow| flow.count > 0).map(|flow| &flow.name);
    let links = scenario.links.iter().map(|link| &link.name);
    let cells = scenario.cells.iter().map(|cell| &cell.name);
    let meshes = scenario.meshes.iter().map(|mesh| &mesh.name);
    let names: BTreeSet<_> =
        flows.chain(links).chain(cells).chain(meshes).map(String::as_str).collect();
    of.split('@').all(|part| names.contains(part.strip_suffix("/ap").unwrap_or(part)))
}

fn check(path: &Path, text: &str, reproduction: &Reproduction) {
    let folder = path.parent().unwrap();
    let beside = |name: &str| fs::read_to_string(folder.join(name));
    let mut ids = BTreeSet::new();
    let mut last: Option<(Vec<Change>, Scenario)> = None;
    let place = |what: &str| format!("{}: `{what}`", path.display());
    // The record of verdicts knows lines by their words.
    let judged = reproduction
        .rows
        .iter()
        .filter(|row| row.expected.is_some() || row.at_least.is_some() || row.at_most.is_some());
    let (mut numbers, mut orders) = (BTreeSet::new(), BTreeSet::new());
    for what in judged.map(|row| &row.what) {
        assert!(numbers.insert(what), "{}: two have these words", place(what));
    }
    for what in reproduction.trends.iter().map(|trend| &trend.what) {
        assert!(orders.insert(what), "{}: two have these words", place(what));
    }
    for row in &reproduction.rows {
        let place = place(&row.what);
        let changes = changes(row);
        // Rows in a row often are several numbers of one run.
        if last.as_ref().is_none_or(|(known, _)| *known != changes) {
            let scenario = Scenario::parse_with(Source { text, read_file: &beside }, &changes);
            last = Some((changes, scenario.unwrap_or_else(|error| panic!("{place}: {error}"))));
        }
        let Some((_, scenario)) = &last else { continue };
        assert!(has(scenario, &row.of), "{place}: there is no `{}`", row.of);
        assert!(LAB.contains(&format!("`{}`", row.metric)), "{place}: metric `{}`", row.metric);
        assert!(row.over.iter().all(|id| ids.contains(id)), "{place}: over {:?}", row.over);
        assert_eq!(row.expected.is_some(), row.tolerance.is_some(), "{place}: `tolerance`");
        assert!(row.id.clone().is_none_or(|id| ids.insert(id)), "{place}: two have its id");
    }
    for trend in &reproduction.trends {
        let place = place(&trend.what);
        assert!(trend.ids().count() > 1, "{place}: nothing to compare");
        for id in trend.ids() {
            assert!(ids.contains(id), "{place}: there is no row `{id}`");
        }
    }
}

/// How many contests it has, each of which can be run.
fn contests(path: &Path, source: Source<'_>, reproduction: &Reproduction) -> usize {
    let all = cases("families", reproduction);
    let mut names = BTreeSet::new();
    for (name, _, changes) in &all {
        let place = format!("{}: {name}", path.display());
        assert!(names.insert(name), "{place}: two have this name");
        let scenario = Scenario::parse_with(source, changes);
        let scenario = scenario.unwrap_or_else(|error| panic!("{place}: {error}"));
        let contest = scenario.reproduce.clone().unwrap().contest.unwrap();
        for flow in contest.flows.iter().chain(&contest.tcp) {
            assert!(has(&scenario, flow), "{place}: there is no `{flow}`");
        }
    }
    all.len()
}

#[test]
fn rows_and_trends_name_what_there_is() {
    let mut paths = Vec::new();
    scenarios(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios"), &mut paths);
    let (mut rows, mut families) = (0, 0);
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        // A topology is not a scenario.
        let table: toml::Table = text.parse().unwrap();
        if table.contains_key("reproduce") {
            let folder = path.parent().unwrap();
            let beside = |name: &str| fs::read_to_string(folder.join(name));
            let source = Source { text: &text, read_file: &beside };
            let reproduction = Scenario::parse(source).unwrap().reproduce.unwrap();
            rows += reproduction.rows.len();
            check(&path, &text, &reproduction);
            families += contests(&path, source, &reproduction);
        }
    }
    assert!(rows > 500, "only {rows} rows were found");
    assert!(families > 80, "only {families} contests were found");
}
