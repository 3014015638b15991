//! The linter of Prometheus, for the output of exporters.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// The place in which `scripts/setup test` installs it, so that no server has to be installed with
/// it.
const FETCHED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/promtool");

/// Fails if `promtool check metrics` finds an error in this text. Without promtool it prints that
/// the check is skipped.
#[track_caller]
pub(crate) fn check(text: &str) {
    let program = if Path::new(FETCHED).exists() { FETCHED } else { "promtool" };
    let mut command = Command::new(program);
    command.args(["check", "metrics"]).stdin(Stdio::piped());
    let Ok(mut lint) = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() else {
        println!("skipped: needs promtool");
        return;
    };
    // It reads everything before it answers.
    lint.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let done = lint.wait_with_output().unwrap();
    let said = [done.stdout, done.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(done.status.success() && said.concat().is_empty(), "{said:?} of\n{text}");
}
