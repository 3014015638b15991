//! The lab as a page: it computes what this machine computes, and works in a browser.
//!
//! `make lab-page` builds what these tests need.
#![cfg(feature = "lab")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::json;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The page, and what runs its tests; `None`, and a line that names it, where something is missing.
fn page(needs: &[&str]) -> Option<PathBuf> {
    let root = Path::new(ROOT).canonicalize().unwrap();
    let page = root.join("target/lab-page");
    let missing = if !page.join("freshline_bg.wasm").exists() {
        "the lab as a page (make lab-page)"
    } else if Command::new("node").arg("--version").output().is_err() {
        "Node (scripts/setup web)"
    } else if needs.contains(&"browser") && !root.join("web/node_modules/playwright-core").exists()
    {
        "the packages of web/package-lock.json (scripts/setup web)"
    } else if needs.contains(&"browser") && !has_browser() {
        "Chromium (scripts/setup web)"
    } else {
        return Some(page);
    };
    println!("skipped: needs {missing}");
    None
}

/// As `web/tests/lab-page.js` looks for it.
fn has_browser() -> bool {
    let own = std::env::var("CHROMIUM").unwrap_or_default();
    let known = [&*own, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
    known.iter().any(|path| Path::new(path).is_file())
}

fn node(script: &str, arguments: &[&Path], input: &str) -> Output {
    let script = Path::new(ROOT).join("web/tests").join(script);
    let mut node = Command::new("node");
    node.arg(script).args(arguments).stdin(Stdio::piped());
    let mut node = node.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    node.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    node.wait_with_output().unwrap()
}

/// A bundled scenario, cut to a few seconds and without its sweep and its comparison with a paper.
fn short(name: &str) -> String {
    let file = Path::new(ROOT).join("crates/lab/scenarios").join(name).with_extension("toml");
    let text = fs::read_to_string(file).unwrap();
    let mut table: toml::Table = text.parse().unwrap();
    for key in ["sweep", "reproduce", "journey"] {
        table.remove(key);
    }
    table.insert("duration".to_owned(), "6s".into());
    table.insert("warm_up".to_owned(), "2s".into());
    table.insert("runs".to_owned(), 3.into());
    table.to_string()
}

/// The file of a scenario.
const FILE: &str = "scenario.toml";

/// Laws of sources, queues, TCP, Wi-Fi, jitter, losses, a generated trace, topics and a mesh: each with random numbers.
const SCENARIOS: [&str; 9] = [
    "one-mm1-queue",
    "ifc-or-fq-codel",
    "acp-between-continents",
    "fresher/wifi-06",
    "fresher/jitter-05",
    "fresher/loss-bursts",
    "fresher/leo",
    "topics/few-states",
    "dtpa/four-hops",
];

#[test]
fn the_page_computes_the_same_bytes_as_this_machine() {
    let Some(page) = page(&[]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let jobs: Vec<_> = (11..)
        .zip(SCENARIOS)
        .map(|(seed, name)| json!({ "name": FILE, "toml": short(name), "seed": seed }))
        .collect();
    let done = node("same-bytes.js", &[&page], &serde_json::to_string(&jobs).unwrap());
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let documents: Vec<String> = serde_json::from_slice(&done.stdout).unwrap();
    for ((job, name), in_page) in jobs.iter().zip(SCENARIOS).zip(documents) {
        fs::write(folder.path().join(FILE), job["toml"].as_str().unwrap()).unwrap();
        let here = Command::new(env!("CARGO_BIN_EXE_freshline"))
            .args(["lab", "run", "--json", "--seed", &job["seed"].to_string()])
            .arg(FILE)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(here.status.success(), "{name}: {}", String::from_utf8_lossy(&here.stderr));
        let here = String::from_utf8(here.stdout).unwrap();
        assert!(here.len() > 500, "{name}: {here}");
        assert_eq!(in_page, here, "{name}: differs; is the page older than its sources?");
        println!("{name}: {} equal bytes", here.len());
    }
}

#[test]
fn the_page_works_in_a_browser() {
    let Some(page) = page(&["browser"]) else { return };
    let pictures = page.with_file_name("lab-page-pictures");
    let done = node("lab-page.js", &[&page, &pictures], "");
    let [out, err] =
        [done.stdout, done.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(done.status.success() && out.contains("the page: ok"), "{out}{err}");
    print!("{out}");
}
