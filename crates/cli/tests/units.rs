//! The unit files for systemd: systemd accepts them, and `freshline` accepts their commands.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const FRESHLINE: &str = env!("CARGO_BIN_EXE_freshline");
/// Where packages put it.
const INSTALLED: &str = "/usr/bin/freshline";

fn units() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn systemd_takes_the_units() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("skipped: needs systemd-analyze");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut verify = Command::new("systemd-analyze");
    verify.arg("verify");
    for unit in units() {
        let text = fs::read_to_string(&unit).unwrap().replace(INSTALLED, FRESHLINE);
        let here = folder.path().join(unit.file_name().unwrap());
        fs::write(&here, text).unwrap();
        verify.arg(here);
    }
    let done = verify.output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    let ours: Vec<_> = said.lines().filter(|line| line.contains("freshline")).collect();
    assert!(done.status.success() && ours.is_empty(), "{said}");
}

/// The units' hints on drop-ins: systemd adds commands of a list to the existing ones, which would
/// run first, unless an empty line comes before.
#[test]
fn examples_of_drop_ins_say_all_that_is_to_run_at_the_end() {
    let mut count = 0;
    for unit in units() {
        let text = fs::read_to_string(&unit).unwrap();
        let with = |prefix: &str| -> Vec<String> {
            text.lines().filter_map(|line| line.strip_prefix(prefix)).map(str::to_owned).collect()
        };
        let example = with("#   ExecStop=");
        if let [first, .., last] = &example[..] {
            assert_eq!(first, "", "{}", unit.display());
            assert_eq!(Some(last), with("ExecStop=").first(), "{}", unit.display());
            count += 1;
        }
    }
    assert!(count > 0, "no unit has one");
}

#[test]
fn freshline_takes_what_the_units_run() {
    for unit in units() {
        let text = fs::read_to_string(&unit).unwrap();
        let commands = text.lines().filter_map(|line| {
            let (key, command) = line.split_once('=')?;
            ["ExecStart", "ExecStop"].contains(&key).then_some(command)
        });
        let mut count = 0;
        for command in commands {
            let mut words = command.split(' ');
            assert_eq!(words.next(), Some(INSTALLED), "{command}");
            // Settings of the user's come last.
            let arguments: Vec<_> = words.filter(|word| !word.starts_with('$')).collect();
            let help = Command::new(FRESHLINE).args(&arguments).arg("--help").output().unwrap();
            assert!(help.status.success(), "{}: {arguments:?}", unit.display());
            count += 1;
        }
        assert!(count > 0, "{}", unit.display());
    }
}
