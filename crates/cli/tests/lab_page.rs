//! The lab as a page: its results equal those of this machine, and it works in a browser.
//!
//! `make lab-page` builds the files that these tests need.
#![cfg(feature = "lab")]

#[path = "common/pages.rs"]
mod pages;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::json;

/// The page; `None`, and a line that names it, where it or another thing is missing.
fn page(wanted: &[(&str, bool)]) -> Option<PathBuf> {
    let page = pages::web().join("../target/lab-page");
    let is_built = page.join("freshline_bg.wasm").exists();
    let built = ("the lab as a page (make lab-page)", is_built);
    pages::has(&[&[built], wanted].concat()).then(|| page.canonicalize().unwrap())
}

fn node(script: &str, arguments: &[&Path], input: &str) -> Output {
    let mut node = pages::program(&[script]);
    node.args(arguments).stdin(Stdio::piped());
    let mut node = node.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    node.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    node.wait_with_output().unwrap()
}

/// A bundled scenario, cut to a few seconds and without its sweep and its comparison with a paper.
fn short(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../lab/scenarios")
        .join(name)
        .with_extension("toml");
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
    let done = node("test/same-bytes.mjs", &[&page], &serde_json::to_string(&jobs).unwrap());
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
    let Some(page) = page(&[pages::chromium()]) else { return };
    let pictures = page.with_file_name("lab-page-pictures");
    let done = node("test/lab-page.mjs", &[&page, &pictures], "");
    let [out, err] =
        [done.stdout, done.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(done.status.success() && out.contains("the page: ok"), "{out}{err}");
    print!("{out}");
}
