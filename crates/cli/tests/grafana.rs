//! The dashboard and the alert rules of docs/grafana: their metrics exist, and the rules fire in the cases that they name.

#[path = "common/lines.rs"]
mod lines;
#[path = "common/monitor.rs"]
mod monitor;
#[path = "common/process.rs"]
mod process;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::Receiver;
use std::thread::sleep;
use std::time::{Duration, Instant};

use lines::lines;
use monitor::{PATIENCE, freshline};
use process::Process;
use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/grafana")
}

fn read(name: &str) -> String {
    let path = folder().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of our metrics in a text.
fn metrics(text: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_name(c)).filter(|word| word.starts_with("freshline_"));
    words.map(str::to_owned).collect()
}

/// The queries of a dashboard, wherever they are.
fn queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value.as_str() {
                    Some(text) if ["expr", "query"].contains(&key.as_str()) => {
                        found.push(text.to_owned());
                    }
                    _ => queries(value, found),
                }
            }
        }
        Value::Array(all) => all.iter().for_each(|value| queries(value, found)),
        _ => (),
    }
}

/// Starts a command that serves metrics; returns its URL, and the address of its metrics.
fn serving(words: &[&str]) -> (Process, String, String) {
    let words = [words, &["--metrics", "127.0.0.1:0"]].concat();
    let mut child = freshline(&words).stdout(Stdio::null()).spawn().unwrap();
    let said: Receiver<String> = lines(child.stderr.take().unwrap());
    let process = Process(child);
    let (mut url, mut metrics) = (None, None);
    while url.is_none() || metrics.is_none() {
        let line = said.recv_timeout(PATIENCE).expect("it listens and serves metrics");
        if let Some(rest) = line.strip_prefix("listening at ") {
            url = rest.split(';').next().map(str::to_owned);
        } else if let Some(rest) = line.strip_prefix("metrics at http://") {
            metrics = rest.strip_suffix("/metrics").map(str::to_owned);
        }
    }
    std::thread::spawn(move || said.iter().count());
    (process, url.unwrap(), metrics.unwrap())
}

fn scraped(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn every_metric_of_the_dashboard_and_of_the_rules_is_exported() {
    let dashboard: Value = serde_json::from_str(&read("freshline.json")).unwrap();
    let mut expressions = Vec::new();
    queries(&dashboard["panels"], &mut expressions);
    queries(&dashboard["templating"], &mut expressions);
    let rules = read("alerts.yml");
    let wanted: BTreeSet<_> =
        expressions.iter().flat_map(|text| metrics(text)).chain(metrics(&rules)).collect();
    assert!(expressions.len() > 20 && wanted.len() > 20, "{wanted:?}");

    let (_monitor, monitor_url, of_monitor) =
        serving(&["monitor", "udp://127.0.0.1:0", "--max-age", "robot/*=10s"]);
    let relay = ["relay", "udp://127.0.0.1:0", &monitor_url, "--max-payload", "900B"];
    let fixed = ["--law", "fixed", "--rate", "50/s"];
    let (_relay, url, of_relay) = serving(&[&relay[..], &fixed].concat());
    let start = |words: &[&str]| {
        let words = [&["source", &url], words, &fixed].concat();
        Process(freshline(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    };
    let _robot = start(&["--name", "robot", "--topic", "pose,size=40"]);
    // Its payload is beyond --max-payload, and is refused.
    let _large = start(&["--name", "large", "--size", "1000"]);
    let began = Instant::now();
    loop {
        let found: BTreeSet<_> = metrics(&scraped(&of_monitor))
            .into_iter()
            .chain(metrics(&scraped(&of_relay)))
            .collect();
        let missing: Vec<_> = wanted.difference(&found).collect();
        if missing.is_empty() {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "not exported: {missing:?}");
        sleep(Duration::from_millis(200));
    }
}

#[test]
fn panels_do_not_overlap_and_take_their_data_source_from_the_variable() {
    let dashboard: Value = serde_json::from_str(&read("freshline.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut taken = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in panels {
        let number = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        for x in number("x")..number("x") + number("w") {
            for y in number("y")..number("y") + number("h") {
                assert!(x < 24 && taken.insert((x, y)), "{}", panel["title"]);
            }
        }
        assert!(ids.insert(panel["id"].as_u64().unwrap()));
        if panel["type"] != "row" {
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
            assert!(panel["description"].as_str().is_some_and(|text| !text.is_empty()));
            assert!(panel["fieldConfig"]["defaults"]["unit"].is_string());
        }
    }
    assert_eq!(dashboard["templating"]["list"][0]["type"], "datasource");
}

#[test]
fn rules_are_valid_and_fire_when_they_should() {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/promtool");
    let program = if fetched.exists() { fetched } else { PathBuf::from("promtool") };
    for arguments in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]] {
        let Ok(done) = Command::new(&program).args(arguments).current_dir(folder()).output() else {
            println!("skipped: needs promtool");
            return;
        };
        let said = [done.stdout, done.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
        assert!(done.status.success(), "{}", said.concat());
    }
    let (rules, tests) = (read("alerts.yml"), read("alerts_test.yml"));
    let names = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    for name in names {
        // Once where it must not fire, and once where it must.
        assert!(tests.matches(&format!("alertname: {name}")).count() >= 2, "{name} has no test");
    }
}
