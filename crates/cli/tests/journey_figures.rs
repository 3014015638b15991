//! `scripts/journey-figures`: it builds the home, measures a row in both worlds, and leaves nothing behind.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// The script's exit code and output.
struct Done {
    code: Option<i32>,
    out: String,
    errors: String,
    /// Its network namespaces that are still there; none where `ip` is missing.
    left: Vec<String>,
}

fn script(arguments: &[&str]) -> Done {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(root.join("scripts/journey-figures"));
    command.args(["--freshline", env!("CARGO_BIN_EXE_freshline")]).args(arguments);
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let prefix = format!("fl-journey-{}-", running.id());
    let done = running.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let listed = Command::new("ip").args(["netns", "list"]).output();
    let listed = listed.map_or_else(|_| String::new(), |listed| text(listed.stdout));
    let left = listed.lines().filter(|name| name.starts_with(&prefix)).map(str::to_owned).collect();
    Done { code: done.status.code(), out: text(done.stdout), errors: text(done.stderr), left }
}

#[test]
fn a_home_with_all_laws_is_measured_and_removed() {
    let done = script(&["--rows", "all", "--seconds", "2", "--warm-up", "1", "--json"]);
    assert_eq!(done.code, Some(0), "{}", done.errors);
    assert_eq!(done.left, [""; 0]);
    if done.out.starts_with("skipped: needs ") {
        print!("{}", done.out);
        return;
    }
    let report: Value = serde_json::from_str(&done.out).unwrap();
    let row = &report["rows"][0];
    for world in ["kernel", "lab"] {
        for figure in
            ["age mean", "age p99", "log", "upload", "download", "probe mean", "probe p99"]
        {
            assert!(
                row[world][figure].as_f64().is_some_and(|it| it > 0.0),
                "{world} {figure}: {row}"
            );
        }
    }
}

#[test]
fn a_row_that_does_not_exist_is_refused() {
    let done = script(&["--rows", "some"]);
    assert_eq!(done.code, Some(2));
    assert!(done.errors.contains("no row 'some'; rows: none, source, host"), "{}", done.errors);
}
