//! `freshline lab run`, `reproduce` and `list` as a user meets them.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

const SCENARIO: &str = r#"title = "A robot and a download on one link"
duration = "5s"
runs = 2

[[link]]
name = "nic"
forward = {}

[[link]]
name = "uplink"
forward = { rate = "5mbit", delay = "10ms", queue = "30p" }

[[flow]]
name = "robot"
path = ["nic", "uplink"]
updates = { law = "acp+d", payload = "500B" }

[[flow]]
name = "download"
path = ["nic", "uplink"]
tcp = { control = "cubic" }
"#;

/// A folder with a scenario in it, in which the program runs.
struct Bench(TempDir);

impl Bench {
    fn with(scenario: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("s.toml"), scenario).expect("a file");
        Self(folder)
    }

    fn lab(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_freshline"));
        command.current_dir(&self.0).arg("lab").args(args).output().expect("freshline starts")
    }

    /// The standard output of a run that succeeds.
    fn succeeds(&self, args: &[&str]) -> String {
        let done = self.lab(args);
        assert_eq!(done.status.code(), Some(0), "{args:?}: {}", text(&done.stderr));
        text(&done.stdout)
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.succeeds(args)).expect("one JSON document")
    }

    /// The error of a run with invalid input, on one line.
    fn is_refused(&self, args: &[&str]) -> String {
        let done = self.lab(args);
        assert_eq!(done.status.code(), Some(2), "{args:?}");
        assert!(done.stdout.is_empty(), "{}", text(&done.stdout));
        let said = text(&done.stderr);
        said.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ")
    }

    fn read(&self, name: impl AsRef<Path>) -> String {
        fs::read_to_string(self.0.path().join(name)).expect("a file")
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn assert_says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "no `{part}` in: {said}");
    }
}

/// The error for [`SCENARIO`] with `good` replaced by `bad`.
fn said_of(good: &str, bad: &str) -> String {
    assert!(SCENARIO.contains(good));
    Bench::with(&SCENARIO.replacen(good, bad, 1)).is_refused(&["run", "s.toml"])
}

#[test]
fn a_wrong_file_is_refused_with_what_where_and_what_to_do() {
    let unknown_key = said_of("law =", "low =");
    assert_says(&unknown_key, &["s.toml", "line 16", "unknown field `low`", "one of `law`"]);
    let wrong_unit = said_of("5mbit", "5 apples");
    assert_says(&wrong_unit, &["line 11, column 20", "`5 apples`", "for example `6mbit`"]);
    let no_toml = said_of("[[flow]]", "[[flow]");
    assert_says(&no_toml, &["s.toml", "line 13"]);
    let unknown_link = said_of(r#"["nic", "uplink"]"#, r#"["nic", "upnilk"]"#);
    assert_says(&unknown_link, &["line 14", "`robot` crosses `upnilk`", "there is: nic, uplink"]);
    let no_rate = said_of("acp+d", "fixed");
    assert_says(&no_rate, &["line 14", "`robot`", "`rate`", "needs one"]);
    let twice = said_of(r#"name = "download""#, r#"name = "robot""#);
    assert_says(&twice, &["line 19", "called `robot`", "a name of its own"]);
    let two_links = said_of(r#"name = "uplink""#, r#"name = "nic""#);
    assert_says(&two_links, &["line 10", "two links, cells or meshes are called `nic`"]);
    let no_hop = said_of("forward = {}", "forward = {}\ncount = 0");
    assert_says(&no_hop, &["line 6", "`count` of `nic` is 0"]);
    let no_run = said_of("runs = 2", "runs = 0");
    assert_says(&no_run, &["line 3", "`runs` is 0", "at least 1"]);
    let no_time = said_of(r#"duration = "5s""#, r#"duration = "0s""#);
    assert_says(&no_time, &["line 2", "not shorter than `duration`"]);
    let all_warm_up = said_of("runs = 2", r#"warm_up = "5s""#);
    assert_says(&all_warm_up, &["line 3", "`warm_up` (5s)", "shorten it"]);
}

#[test]
fn wrong_sweeps_and_changes_are_refused() {
    let swept = |key: &str| {
        let sweep = format!("[sweep]\n\"{key}\" = [1, 2]\n");
        Bench::with(&(SCENARIO.to_owned() + &sweep)).is_refused(&["run", "s.toml"])
    };
    let name = swept("flow.robto.count");
    assert_says(
        &name,
        &["flow.robto.count", "no flow called `robto`", "there is: robot, download"],
    );
    let key = swept("flow.robot.cuont");
    assert_says(&key, &["flow.robot.cuont", "unknown field `cuont`", "`count`"]);
    let bench = Bench::with(SCENARIO);
    let set = bench.is_refused(&["run", "s.toml", "--set", "runs"]);
    assert_says(&set, &["--set", "`runs`", "key=value"]);
    let missing = bench.is_refused(&["run", "absent.toml"]);
    assert_says(&missing, &["absent.toml", "freshline lab list"]);
}

#[test]
fn json_names_the_seed_and_each_metric_with_its_unit() {
    let bench = Bench::with(SCENARIO);
    let document = bench.json(&["run", "s.toml", "--json", "--seed", "7"]);
    assert_eq!((&document["seed"], &document["runs"]), (&7.into(), &2.into()));
    assert_eq!(document.get("points"), None);
    let metrics = document["metrics"].as_array().expect("metrics");
    let age = metrics.iter().find(|one| one["name"] == "age_mean" && one["of"] == "robot");
    let age = age.expect("an age");
    assert_eq!(age["unit"], "s");
    assert!(age["value"].as_f64() > Some(0.010) && age["ci95"].is_number(), "{age}");
    let once = bench.json(&["run", "s.toml", "--json", "--runs", "1"]);
    assert_eq!(once["metrics"][0]["ci95"], Value::Null);
}

#[test]
fn a_sweep_is_an_array_a_table_and_a_figure() {
    let bench = Bench::with(&format!("{SCENARIO}[sweep]\n\"flow.robot.count\" = [1, 3]\n"));
    let args = ["run", "s.toml", "--json", "--csv", "out"];
    let figure = ["--figure", "out/s.svg", "--plot", "age_mean"];
    let document = bench.json(&[&args[..], &figure].concat());
    assert_eq!(document["points"][1]["set"]["flow.robot.count"], 3);
    assert!(document["points"][1]["metrics"].is_array());
    let table = bench.read("out/s.csv");
    assert!(table.starts_with("flow.robot.count,of,name,value,unit,ci95\n1,robot,"), "{table}");
    assert!(table.contains("\n3,download,goodput,"), "{table}");
    let svg = bench.read("out/s.svg");
    assert_says(
        &svg,
        &["<svg", "Mean age\n", "Age (ms", "Number of flows “robot”", "robot\n", "download\n"],
    );
}

#[test]
fn a_run_is_captured_and_written_down_over_time() {
    let bench = Bench::with(SCENARIO);
    let captures = ["--pcap", "nic=a.pcap", "--pcap", "nic/reverse=a.pcap"];
    let args = ["run", "s.toml", "--series", "out", "--every", "500ms"];
    bench.succeeds(&[&args[..], &captures].concat());
    let flow = bench.read("out/flow-download.csv");
    let columns = "age_s,goodput_bps,cwnd_packets,srtt_s,rtt_s,queued_bytes,buffer_bytes";
    assert!(flow.starts_with(&format!("time_s,number,{columns}\n0.5,0,")), "{flow}");
    assert_eq!(flow.lines().count(), 11, "{flow}");
    assert!(bench.read("out/flow-robot.csv").starts_with("time_s,number,age_s,updates_per_s,"));
    let link = bench.read("out/link-uplink.csv");
    assert!(link.starts_with("time_s,queue_packets,reverse_queue_packets\n0.5,"), "{link}");
    assert!(fs::read(bench.0.path().join("a.pcap")).expect("a capture").len() > 100_000);
}

#[test]
fn flags_that_do_not_fit_the_scenario_say_what_would() {
    let bench = Bench::with(SCENARIO);
    let hop = bench.is_refused(&["run", "s.toml", "--pcap", "downlink=x.pcap"]);
    assert_says(&hop, &["no wired hop or cell `downlink`", "LINK/reverse", "nic, uplink"]);
    let mesh = ["run", "dtpa/two-hundred-nodes", "--set", "duration=101s", "--pcap"];
    let of_mesh = bench.is_refused(&[&mesh[..], &["grid=x.pcap"]].concat());
    assert_says(&of_mesh, &["`grid` is a mesh, of which there are no captures", "one of: wire"]);
    let unknown = bench.is_refused(&[&mesh[..], &["gird=x.pcap"]].concat());
    assert_says(&unknown, &["no wired hop or cell `gird`", "one of: wire"]);
    let figure = ["run", "s.toml", "--figure", "x.svg", "--plot", "age_mean"];
    assert_says(&bench.is_refused(&figure), &["no [sweep]"]);
    let every = bench.is_refused(&["run", "s.toml", "--series", "out", "--every", "0ms"]);
    assert_says(&every, &["--every is zero"]);
    let swept = ["run", "s.toml", "--set", "sweep={ runs = [1, 2] }", "--series", "out"];
    assert_says(&bench.is_refused(&swept), &["[sweep]", "--set sweep={}"]);
    let metric = ["run", "s.toml", "--set", "sweep={ runs = [1, 2] }", "--figure", "x.svg"];
    let metric = bench.lab(&[&metric[..], &["--plot", "age"]].concat());
    assert_eq!(metric.status.code(), Some(2));
    assert_says(&text(&metric.stderr), &["no metric `age`", "age_mean"]);
}

const REPRODUCTION: &str = r#"
[reproduce]
of = "a paper, Figure 1"
[[reproduce.row]]
id = "near"
what = "age"
metric = "age_mean"
of = "robot"
expected = 0.03
tolerance = 10.0
[[reproduce.row]]
id = "far"
what = "age of long ago"
metric = "age_mean"
of = "robot"
source = "model"
expected = 3000.0
tolerance = 0.1
[[reproduce.row]]
what = "age without a number"
set = { runs = 1 }
metric = "age_mean"
of = "robot"
[[reproduce.row]]
what = "age below a bound"
metric = "age_mean"
of = "robot"
at_least = 0.001
at_most = 3.0
[[reproduce.row]]
what = "age beyond a bound"
metric = "age_mean"
of = "robot"
at_least = 3.0
source = "ours"
[[reproduce.row]]
what = "age that an input gives"
metric = "age_mean"
of = "robot"
at_least = 0.0
calibrated = true
[[reproduce.trend]]
what = "nothing rises above itself"
rising = ["near", "far"]
[[reproduce.trend]]
what = "one is in order"
rising = ["near"]
"#;

#[test]
fn a_reproduction_has_rows_verdicts_and_a_figure() {
    let bench = Bench::with(&(SCENARIO.to_owned() + REPRODUCTION));
    let document = bench.json(&["reproduce", "s.toml", "--json", "--figures", "out"]);
    assert_eq!(
        (&document["name"], &document["of"]),
        (&"s.toml".into(), &"a paper, Figure 1".into())
    );
    let rows = document["rows"].as_array().expect("rows");
    let verdicts: Vec<_> = rows.iter().map(|row| row["verdict"].as_str().unwrap_or("")).collect();
    let expected =
        ["holds", "broken", "not judged", "holds", "broken", "holds", "broken", "not judged"];
    assert_eq!(verdicts, expected);
    let sources: Vec<_> = rows.iter().map(|row| row["source"].as_str().unwrap_or("")).collect();
    assert_eq!(sources, ["paper", "model", "paper", "paper", "ours", "paper", "paper", "paper"]);
    for key in ["what", "unit", "expected", "ours", "ci95", "tolerance", "at_least", "at_most"] {
        assert!(rows.iter().all(|row| row.get(key).is_some()), "{key}");
    }
    assert_eq!((&rows[0]["unit"], &rows[2]["expected"]), (&"s".into(), &Value::Null));
    assert!(rows[0]["ci95"].is_number() && rows[2]["ci95"].is_null());
    let svg = bench.read("out/s.svg");
    assert_says(
        &svg,
        &["a paper, Figure 1", "age of long ago (broken)", "Age (s", "Orders among numbers: "],
    );
}

#[test]
fn a_null_test_replaces_the_law_and_counts_only_lines_that_have_it() {
    let reproduction = r#"
[reproduce]
of = "a paper, Figure 1"
null = [{ from = "acp+d", to = { law = "fixed", rate = "1/s", payload = "500B" } }]
[[reproduce.row]]
what = "updates a second under the law"
metric = "updates"
of = "robot"
at_least = 5.0
[[reproduce.row]]
what = "updates a second at a fixed rate"
set = { "flow.robot.updates" = { law = "fixed", rate = "2/s", payload = "500B" } }
metric = "updates"
of = "robot"
at_most = 3.0
[[reproduce.row]]
what = "updates a second under any law"
unaffected = true
metric = "updates"
of = "robot"
at_least = 0.1
"#;
    let bench = Bench::with(&(SCENARIO.to_owned() + reproduction));
    let verdicts = |args: &[&str]| -> Vec<(Value, Value)> {
        let document = bench.json(&[&["reproduce", "s.toml", "--json"][..], args].concat());
        let rows = document["rows"].as_array().unwrap();
        rows.iter().map(|row| (row["verdict"].clone(), row["replaced"].clone())).collect()
    };
    let holds = |replaced: bool| ("holds".into(), replaced.into());
    assert_eq!(verdicts(&[]), [holds(false), holds(false), holds(false)]);
    let broken = ("broken".into(), true.into());
    assert_eq!(verdicts(&["--null"]), [broken, holds(false), holds(true)]);
    let said = bench.succeeds(&["reproduce", "s.toml", "--null"]);
    let counted = ["1 lines show only baselines", "1 lines are marked as unaffected"];
    assert_says(&said, &["numbers, paper", counted[0], counted[1]]);
}

#[test]
fn a_full_run_has_the_papers_number_of_runs() {
    let reproduction = r#"
[reproduce]
of = "a paper, Figure 1"
full = { runs = 3 }
[[reproduce.row]]
what = "updates a second"
set = { runs = 1 }
metric = "updates"
of = "robot"
[[reproduce.row]]
what = "age"
metric = "age_mean"
of = "robot"
"#;
    let bench = Bench::with(&(SCENARIO.to_owned() + reproduction));
    let intervals = |args: &[&str]| -> Vec<bool> {
        let document = bench.json(&[&["reproduce", "s.toml", "--json"][..], args].concat());
        let rows = document["rows"].as_array().unwrap();
        rows.iter().map(|row| row["ci95"].is_number()).collect()
    };
    assert_eq!(intervals(&["--runs", "1"]), [false, false]);
    assert_eq!(intervals(&["--full"]), [false, true], "a row's own keys win");
    assert!(bench.is_refused(&["reproduce", "s.toml", "--full", "--check"]).contains("--full"));
}

#[test]
fn a_check_fails_where_a_verdict_is_not_recorded() {
    let bench = Bench::with(&(SCENARIO.to_owned() + REPRODUCTION));
    let done = bench.lab(&["reproduce", "s.toml", "--check"]);
    assert_eq!(done.status.code(), Some(1));
    assert_says(&text(&done.stderr), &["6 of 6 verdicts differ", "`age`", "not in the record"]);
    // All that is drawn of a scenario that comes along is as recorded.
    let sample = ["reproduce", "sorpc/uploads", "--check", "--one-in", "2", "--draw", "3"];
    assert_says(&text(&bench.lab(&sample).stderr), &["verdicts are as recorded"]);
    let said = bench.is_refused(&["reproduce", "s.toml", "--record", "."]);
    assert_says(&said, &["--record", "s.toml is not bundled with the program"]);
}

#[test]
fn a_seed_is_any_number_that_a_file_can_hold_and_others_are_refused_at_once() {
    let bench = Bench::with(SCENARIO);
    let most = i64::MAX.to_string();
    let short = ["--set", "duration=100ms", "--runs", "1", "--json", "--seed", &most];
    let document = bench.json(&[&["run", "s.toml"][..], &short].concat());
    assert_eq!(document["seed"].as_i64(), Some(i64::MAX));
    for command in ["run", "reproduce"] {
        let said = bench.is_refused(&[command, "s.toml", "--seed", &u64::MAX.to_string()]);
        assert_says(&said, &["--seed", &format!("is not in 0..={most}")]);
    }
}

#[test]
fn a_scenario_without_a_figure_is_not_reproduced() {
    let said = Bench::with(SCENARIO).is_refused(&["reproduce", "s.toml"]);
    assert_says(&said, &["s.toml", "no [reproduce]", "freshline lab run"]);
}

#[test]
fn all_scenarios_that_come_along_are_listed() {
    let bench = Bench::with("");
    let listed = bench.json(&["list", "--json"]);
    let all = listed.as_array().expect("an array");
    let queue = all.iter().find(|one| one["name"] == "one-mm1-queue").expect("the queue");
    assert!(queue["title"].is_string());
    assert_says(queue["reproduces"].as_str().expect("a figure"), &["Shreedhar-thesis", "3.2"]);
    assert_eq!(bench.succeeds(&["list"]).lines().count(), all.len());
}

#[test]
fn a_scenario_of_a_folder_goes_by_both_names_and_finds_its_network() {
    let bench = Bench::with("");
    let short = ["--set", "duration=100ms", "--set", "warm_up=0s", "--runs", "1", "--json"];
    let document = bench.json(&[&["run", "ifc/networks"][..], &short].concat());
    let metrics = document["metrics"].as_array().expect("metrics");
    assert!(metrics.iter().any(|metric| metric["of"] == "topology"), "{document}");
    let said = bench.is_refused(&["run", "networks"]);
    assert_says(&said, &["cannot read the scenario networks"]);
}

#[test]
fn a_folder_is_reproduced_as_a_whole() {
    let bench = Bench::with("");
    // No time is left to measure, so that the first scenario fails at once.
    let said = bench.is_refused(&["reproduce", "ifc", "--set", "warm_up=1h"]);
    assert_says(&said, &["ifc/aoi-load", "`warm_up`"]);
}

#[test]
fn the_control_epochs_of_a_run_are_logged_as_csv_and_as_json() {
    let bench = Bench::with(SCENARIO);
    bench.succeeds(&["run", "s.toml", "--epochs", "epochs.csv"]);
    let csv = fs::read_to_string(bench.0.path().join("epochs.csv")).unwrap();
    let (names, rows) = csv.split_once('\n').unwrap();
    let names: Vec<_> = names.split(',').collect();
    assert_eq!(names[..3], ["flow", "source", "number"]);
    let rows: Vec<Vec<_>> = rows.lines().map(|row| row.split(',').collect()).collect();
    assert!(rows.len() >= 4, "{csv}");
    assert!(rows.iter().all(|row| row.len() == names.len() && row[0] == "robot"), "{csv}");
    // One epoch begins when the one before has ended.
    let column = |name| names.iter().position(|other| *other == name).unwrap();
    for pair in rows.windows(2) {
        assert_eq!(pair[1][column("began_s")], pair[0][column("ended_s")]);
    }
    bench.succeeds(&["run", "s.toml", "--epochs", "epochs.json"]);
    let json = fs::read_to_string(bench.0.path().join("epochs.json")).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json.as_array().map(Vec::len), Some(rows.len()));
    assert!(json[0]["rate_per_s"].as_f64().unwrap() > 0.0, "{}", json[0]);

    let refused = bench.is_refused(&["run", "s.toml", "--epochs", "epochs.txt"]);
    assert!(refused.contains("must end in .csv, .json or .jsonl"), "{refused}");
}
