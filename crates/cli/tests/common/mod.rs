//! Shared parts of tests that have programs in the kernel, and hosts in network namespaces.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

use nix::sched::{CloneFlags, setns};
use nix::unistd::Uid;

pub(crate) const FRESHLINE: &str = env!("CARGO_BIN_EXE_freshline");

/// Whether tests can run that need these files in addition to the common requirements; prints the
/// reason if not.
pub(crate) fn can_run_with(files: &[&str]) -> bool {
    let tools = ["ip", "ss", "tc", "nsenter", "unshare"];
    let missing = if !Uid::effective().is_root() {
        "root"
    } else if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        "a kernel with BTF"
    } else if cgroups().is_none() {
        "control groups of version 2"
    } else if let Some(file) = files.iter().find(|file| !Path::new(file).exists()) {
        file
    } else if let Some(tool) = tools.into_iter().find(|tool| lacks(tool)) {
        tool
    } else {
        return true;
    };
    println!("skipped: needs {missing}");
    false
}

fn lacks(tool: &str) -> bool {
    Command::new(tool).arg("-V").output().is_err()
}

/// Where the cgroups of version 2 are.
pub(crate) fn cgroups() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"))?;
    mount.split(' ').nth(1).map(PathBuf::from)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The text without its line breaks, which depend on the terminal.
pub(crate) fn words(said: &[u8]) -> String {
    let said = text(said);
    said.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ")
}

#[track_caller]
pub(crate) fn assert_succeeded(done: &Output) {
    assert!(done.status.success(), "{}", text(&done.stderr));
}

/// The command ends with this code, and prints this text.
#[track_caller]
pub(crate) fn assert_fails(done: &Output, code: i32, why: &str) {
    let said = words(&done.stderr);
    assert_eq!(done.status.code(), Some(code), "{said}");
    assert!(said.contains(why), "{said}");
}

/// These words after `freshline`, as a user without rights, are refused for that.
#[track_caller]
pub(crate) fn assert_needs_root(command_lines: &[&str]) {
    for words in command_lines {
        let done = Command::new(FRESHLINE).args(words.split(' ')).uid(65534).output();
        let Ok(done) = done else {
            println!("skipped: needs a build that every user may run");
            return;
        };
        assert_fails(&done, 1, "needs root");
    }
}

#[track_caller]
pub(crate) fn ip(arguments: &str) {
    assert_succeeded(&Command::new("ip").args(arguments.split(' ')).output().unwrap());
}

/// A command in a network namespace, with the files of this host: it sees the BPF file system,
/// unlike one of `ip netns exec`.
pub(crate) fn command_in(namespace: &str, program: &str) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/var/run/netns/{namespace}")).arg(program);
    command
}

/// Runs `what` on a thread that is in a network namespace.
pub(crate) fn within<T: Send>(namespace: &str, what: impl FnOnce() -> T + Send) -> T {
    let namespace = File::open(format!("/var/run/netns/{namespace}")).unwrap();
    thread::scope(|scope| {
        let inside = scope.spawn(move || {
            setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
            what()
        });
        inside.join().unwrap()
    })
}
