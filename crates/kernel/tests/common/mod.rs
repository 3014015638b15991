//! The C of a law, compiled for the host.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

/// The output of the program of this name for these lines: rows of numbers.
pub(crate) fn on_host(program: &str, lines: &str) -> Vec<Vec<u64>> {
    let folder = tempfile::tempdir().unwrap();
    let built = folder.path().join(program);
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let compiled = Command::new("cc")
        .args(["-O1", "-Wall", "-Werror", "-Wno-unknown-pragmas", "-fsanitize=undefined", "-o"])
        .arg(&built)
        .arg(tests.join(format!("{program}.c")))
        .arg("-I")
        .arg(tests.join("host"))
        .status()
        .unwrap();
    assert!(compiled.success());
    let input = folder.path().join("lines");
    fs::write(&input, lines).unwrap();
    let done = Command::new(built)
        .stdin(File::open(input).unwrap())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(done.status.success());
    let printed = String::from_utf8(done.stdout).unwrap();
    let row = |line: &str| line.split(' ').map(|number| number.parse().unwrap()).collect();
    printed.lines().map(row).collect()
}
