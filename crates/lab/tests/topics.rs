//! Topics in scenarios: ages, counts, alarms and times of delivery have the computed values, by the
//! true clock.

use std::io;

use freshline_lab::run::{Metric, run};
use freshline_lab::scenario::{Change, Scenario, Source};

/// A path of 20 ms that carries 5 Mbit/s, but for a pause of 3 s in 13 s if it is called `pauses`.
const PATH: &str = r#"
title = "topics"
duration = "136s"
warm_up = "6s"
[[link]]
name = "path"
forward = { rate = "5mbit", delay = "20ms", queue = "400p" }
[[flow]]
name = "robot"
path = ["path"]
[flow.updates]
law = "fixed"
rate = "400/s"
"#;

/// A trace of 5 Mbit/s for 10 s and nothing for 3 s.
fn pauses(_name: &str) -> io::Result<String> {
    let ready = (0..4_170).map(|packet| format!("{}\n", 1 + packet * 1_000 / 417));
    Ok(ready.chain(["13000\n".to_owned()]).collect())
}

const PAUSES: &str =
    r#"link.path.forward={ trace = "pauses.trace", delay = "20ms", queue = "400p" }"#;

struct Results(Vec<Metric>);

impl Results {
    fn of(topics: &str, changes: &[&str]) -> Self {
        Self::of_scenario(&format!("{PATH}{topics}"), changes)
    }

    fn of_scenario(text: &str, changes: &[&str]) -> Self {
        let changes: Vec<_> = changes.iter().map(|text| Change::parse(text).unwrap()).collect();
        let source = Source { text, read_file: &pauses };
        let scenario = Scenario::parse_with(source, &changes).unwrap();
        Self(run(&scenario, || {}).unwrap())
    }

    fn find(&self, of: &str, name: &str) -> Option<f64> {
        let is_it = |metric: &&Metric| metric.of == of && metric.name == name;
        self.0.iter().find(is_it).map(|metric| metric.value)
    }

    fn get(&self, of: &str, name: &str) -> f64 {
        self.find(of, name).unwrap_or_else(|| panic!("{of} {name}: {:?}", self.0))
    }
}

fn assert_near(found: f64, expected: f64, tolerance: f64) {
    assert!((found / expected - 1.0).abs() <= tolerance, "{found}, not {expected}");
}

const COMMANDS: &str = r#"
max_age = ["robot/cmd=300ms"]
[[flow.updates.topic]]
name = "cmd"
size = "100B"
period = "50ms"
"#;

#[test]
fn ages_are_those_of_a_periodic_source_and_each_key_counts() {
    let topics = r#"
        [[flow.updates.topic]]
        name = "pose"
        size = "100B"
        period = "200ms"
        [[flow.updates.topic]]
        name = "tf"
        kind = "keyed"
        keys = 4
        size = "50B"
        period = ["100ms", "500ms"]
        weight = 3
    "#;
    let results = Results::of(topics, &[]);
    // Half a period and the path, to which 2.5 ms of the law and less than 0.5 ms of transmission come.
    let path = 0.0215;
    assert_near(results.get("robot/pose", "age_mean"), 0.100 + path, 0.02);
    assert_near(results.get("robot/pose", "age_p95"), 0.190 + path, 0.02);
    assert_near(results.get("robot/pose", "age_max"), 0.200 + path, 0.03);
    assert_near(results.get("robot/tf", "age_mean"), 0.150 + path, 0.02);
    assert_near(results.get("robot/tf", "age_max"), 0.500 + path, 0.03);
    let sum = 0.100 + 3.0 * (2.0 * 0.050 + 2.0 * 0.250) + 13.0 * path;
    assert_near(results.get("robot", "weighted_age"), sum, 0.02);
    assert_eq!(results.get("robot/tf", "generated"), 2.0 * (1_300.0 + 260.0));
    for topic in ["robot/pose", "robot/tf"] {
        let [generated, delivered] =
            ["generated", "delivered"].map(|name| results.get(topic, name));
        assert!((generated - delivered).abs() <= 4.0, "{topic}: {generated} and {delivered}");
        assert_eq!(results.get(topic, "replaced"), 0.0);
        assert_eq!(results.find(topic, "stale_alarms"), None, "no maximum age");
        assert_eq!(results.find(topic, "delivery_p99"), None, "not urgent");
    }
}

#[test]
fn a_sampled_topic_is_as_old_as_its_path_and_gap() {
    let topics = "[[flow.updates.topic]]\nname = \"pose\"\nsize = \"100B\"";
    let results = Results::of(topics, &["flow.robot.updates.rate=50/s"]);
    assert_near(results.get("robot/pose", "age_mean"), 0.020 + 0.010, 0.02);
    assert_eq!(results.get("robot/pose", "delivered"), 130.0 * 50.0);
    assert_eq!(results.find("robot/pose", "generated"), None);
}

#[test]
fn a_pause_of_the_path_makes_commands_stale_and_none_is_obeyed_too_late() {
    let with = Results::of(COMMANDS, &[PAUSES]);
    let get = |name| with.get("robot/cmd", name);
    assert_eq!((get("stale_alarms"), get("over_max_age")), (10.0, 0.0));
    // From 0.28 s after the last command, as the age is known within half a round trip, to the end of the pause
    // and of two round trips: the session has ended, and the age of its first state is unknown.
    let stale = get("stale_time") / 10.0;
    assert!((2.75..=2.95).contains(&stale), "{stale}");
    // States that left before the source took the silence for an end of the session, 1.2 s into the
    // pause.
    assert!((200.0..=240.0).contains(&get("withheld")), "{}", get("withheld"));
    let known = get("delivered") + get("withheld") + get("replaced");
    assert!((known - get("generated")).abs() <= 4.0, "{known} of {}", get("generated"));
    // The same without the rule: as long on commands that are too old.
    let without = Results::of(COMMANDS, &[PAUSES, "flow.robot.updates.rules=none"]);
    let get = |name| without.get("robot/cmd", name);
    assert_eq!((get("stale_alarms"), get("withheld"), get("stale_time")), (0.0, 0.0, 0.0));
    let over = get("over_max_age") / 10.0;
    assert!((2.65..=2.85).contains(&over), "{over}");
}

#[test]
fn an_urgent_state_does_not_queue_behind_large_ones() {
    let topics = r#"
        rules = "declared"
        [[flow.updates.topic]]
        name = "camera"
        size = { min = "20kB", max = "50kB" }
        [[flow.updates.topic]]
        name = "stop"
        size = "20B"
        period = "1s"
        pattern = "poisson"
        urgent = true
    "#;
    let times = |rules: &str| {
        let set = [rules, "flow.robot.updates.rate=20/s", "duration=1000s"];
        let results = Results::of(topics, &set);
        let names = ["delivery_p50", "delivery_p99", "delivery_max"];
        names.map(|name| results.get("robot/stop", name))
    };
    let urgent = times("flow.robot.updates.rules=declared");
    // The path, and at most one datagram of 1178 bytes before it.
    assert!(urgent[0] >= 0.020 && urgent[2] <= 0.0230, "{urgent:?}");
    let equal = times("flow.robot.updates.rules=none");
    assert_near(equal[0], 0.020 + 0.025, 0.1);
    assert!(
        equal[1] > 2.0 * urgent[1] && equal[0] <= equal[1] && equal[1] <= equal[2],
        "{equal:?}"
    );
}

const RECORDS: &str = r#"
[[flow.updates.topic]]
name = "pose"
size = "100B"
period = "50ms"
[[flow.updates.topic]]
name = "log"
kind = "every"
size = ["60B", "2kB"]
period = "20ms"
"#;

#[test]
fn each_record_arrives_over_losses_and_pauses_or_is_refused() {
    let lossy = r#"link.path.forward={ trace = "pauses.trace", delay = "20ms", queue = "400p", loss = 0.05 }"#;
    let all = Results::of(RECORDS, &[lossy]);
    let get = |name| all.get("robot/log", name);
    assert_eq!((get("generated"), get("refused"), get("replaced")), (6_500.0, 0.0, 0.0));
    // The last ones are on their journey, and at most a pause of 3 s earlier ones came from the warm-up.
    assert!((get("delivered") - get("generated")).abs() <= 151.0, "{}", get("delivered"));
    // The pause, and the time in which the session opens again.
    assert!((3.0..=6.5).contains(&get("delivery_max")), "{}", get("delivery_max"));
    assert!(get("delivery_p50") >= 0.020 && get("delivery_p50") < 0.1, "{}", get("delivery_p50"));
    // 1030 B in 20 ms fill 20 kB in 0.4 s of a pause.
    let few = Results::of(RECORDS, &[lossy, "flow.robot.updates.topic.log.buffer=20kB"]);
    let get = |name| few.get("robot/log", name);
    assert!(get("refused") >= 10.0 * 2.0 / 0.02, "{}", get("refused"));
    let known = get("delivered") + get("refused");
    assert!((known - get("generated")).abs() <= 20.0, "{known} of {}", get("generated"));
}

#[test]
fn states_hardly_notice_records() {
    let alone = Results::of(RECORDS, &["flow.robot.updates.topic.log.period=1000s"]);
    let beside = Results::of(RECORDS, &[]);
    let ages = [&alone, &beside].map(|results| results.get("robot/pose", "age_p95"));
    assert!(ages[1] <= 1.2 * ages[0], "{ages:?}");
}

#[test]
fn weights_lower_the_weighted_sum_of_ages_and_runs_repeat() {
    let topics = r#"
        max_bandwidth = "500kbit"
        [[flow.updates.topic]]
        name = "pose"
        size = "100B"
        weight = 100
        [[flow.updates.topic]]
        name = "map"
        size = "50kB"
    "#;
    let run = |rules: &str| Results::of(topics, &["flow.robot.updates.rate=1000/s", rules]);
    let by_weight = run("flow.robot.updates.rules=declared");
    let equal = run("flow.robot.updates.rules=none");
    let sums = [&by_weight, &equal].map(|results| results.get("robot", "weighted_age"));
    assert!(sums[0] < 0.9 * sums[1], "{sums:?}");
    assert!(by_weight.get("robot/map", "age_mean") > equal.get("robot/map", "age_mean"));
    assert_eq!(run("flow.robot.updates.rules=declared").0, by_weight.0, "the same seed");
}

/// A map in 90 parts and a pose over 8 Mbit/s and 40 ms, under a law that finds its rate.
const TWO_LENGTHS: &str = r#"
title = "two lengths"
duration = "40s"
warm_up = "20s"
[[link]]
name = "path"
forward = { rate = "8mbit", delay = "20ms", queue = "100p" }
reverse = { rate = "8mbit", delay = "20ms", queue = "100p" }
[[flow]]
name = "robot"
path = ["path"]
[flow.updates]
law = "tenth"
max_datagram = "1200B"
[[flow.updates.topic]]
name = "map"
size = "100kB"
[[flow.updates.topic]]
name = "pose"
size = "100B"
max_rate = "20/s"
"#;

#[test]
fn states_of_two_lengths_use_the_path() {
    // A part of the map takes 1 ms longer at the bottleneck than a pose. That is not a queue.
    let results = Results::of_scenario(TWO_LENGTHS, &[]);
    let used = results.get("path", "utilisation");
    assert!((0.85..0.96).contains(&used), "{used}");
    // 100 ms of transmission and the delay, and on average half of the time between two maps.
    assert_near(results.get("robot/map", "age_mean"), 0.1 / 0.9 * 1.5 + 0.02, 0.1);
}

#[test]
fn flows_alike_are_means_and_several_paths_work() {
    let one = Results::of(COMMANDS, &["duration=60s"]);
    let three = Results::of(COMMANDS, &["duration=60s", "flow.robot.count=3"]);
    assert_near(three.get("robot/cmd", "age_mean"), one.get("robot/cmd", "age_mean"), 0.05);
    assert_near(three.get("robot", "goodput_sum"), 3.0 * one.get("robot", "goodput"), 0.01);
    let path = ["flow.robot.path=[]", r#"flow.robot.updates.paths=[["path"], ["path"]]"#];
    let paths = Results::of(COMMANDS, &[&["duration=60s"][..], &path[..]].concat());
    assert_near(paths.get("robot/cmd", "age_mean"), one.get("robot/cmd", "age_mean"), 0.1);
}
