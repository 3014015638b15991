//! Root's privileges that long-running commands keep after their setup; commands detach and clean
//! up without the other privileges.

#[path = "common/mod.rs"]
#[allow(dead_code)]
mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{FRESHLINE, assert_succeeded, command_in, ip, text};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The thread for signals has none.
const NONE: u64 = 0;
const NET_ADMIN: u64 = 1 << 12;
const PERFMON: u64 = 1 << 38;
const BPF: u64 = 1 << 39;

/// A network namespace with a device `v`, which goes with this.
struct Net(&'static str);

impl Net {
    fn new(name: &'static str) -> Self {
        let net = Self(name);
        ip(&format!("netns add {name}"));
        for what in ["link set lo up", "link add v type veth peer name w", "link set v up"] {
            ip(&format!("-n {name} {what}"));
        }
        net
    }

    fn freshline(&self, words: &str) -> Command {
        let mut command = command_in(self.0, FRESHLINE);
        command.args(words.split(' '));
        command
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", self.0]).status();
    }
}

/// A field of each thread's status, without doubles.
fn of_threads(process: u32, field: &str) -> Vec<u64> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let statuses =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
    let mut found: Vec<_> = statuses
        .filter_map(|status| {
            let value = status.lines().find_map(|line| line.strip_prefix(field))?.trim();
            u64::from_str_radix(value, 16).ok()
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < give_up, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A command that runs, and is killed with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a command, waits until it has printed `ready`, and checks the privileges of its threads:
/// those of the signals' thread and of all others. Its standard error is read to the end in the
/// background.
#[track_caller]
fn started(mut command: Command, ready: &str, kept: &[u64]) -> Running {
    let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut child = Running(child);
    let mut said = BufReader::new(child.0.stderr.take().unwrap());
    let mut all = String::new();
    while !all.contains(ready) {
        assert!(said.read_line(&mut all).unwrap() > 0, "{command:?} ended: {all}");
    }
    thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    let process = child.0.id();
    until(&format!("{command:?} {:x?}", of_threads(process, "CapEff:")), || {
        of_threads(process, "CapEff:") == kept
    });
    assert_eq!(of_threads(process, "CapPrm:"), kept, "{command:?}");
    // A thread that has no more than this cannot lower its bound any further.
    let all = |masks: &[u64]| masks.iter().fold(NET_ADMIN, |all, mask| all | mask);
    assert_eq!(all(&of_threads(process, "CapBnd:")), all(kept), "{command:?}");
    assert_eq!(of_threads(process, "NoNewPrivs:"), [1], "{command:?}");
    child
}

#[track_caller]
fn ends_well(mut child: Running, code: i32) {
    kill(Pid::from_raw(child.0.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(child.0.wait().unwrap().code(), Some(code));
}

#[test]
fn a_router_keeps_the_right_to_change_networks_alone() {
    if !common::can_run_with(&["/dev/net/tun"]) {
        return;
    }
    let net = Net::new("fl-priv-router");
    let mut run = net.freshline("router run --dev v --rate 10mbit --metrics 127.0.0.1:0");
    run.args(["--duration", "60s"]);
    let router = started(run, "metrics at", &[NONE, NET_ADMIN]);
    let status = net.freshline("router status --dev v --json").output().unwrap();
    assert_succeeded(&status);
    ends_well(router, 0);
    let rules = net.freshline("router status --dev v").output().unwrap();
    assert!(!rules.status.success(), "it has gone");
}

#[test]
fn control_that_a_process_holds_is_detached_without_root_s_other_privileges() {
    if !common::can_run_with(&[]) {
        return;
    }
    let net = Net::new("fl-priv-held");
    for (hold, detached, kept) in [
        (
            "uplink attach --foreground --dev v --rate 10mbit",
            "uplink detach --dev v",
            BPF | NET_ADMIN,
        ),
        ("receiver attach --foreground --dev v", "receiver detach --dev v", BPF | NET_ADMIN),
        ("mesh attach --share 2 --foreground", "mesh detach", BPF | NET_ADMIN | PERFMON),
    ] {
        let child = started(
            net.freshline(hold),
            if hold.starts_with("mesh") { "TCP has" } else { "controlling" },
            &[NONE, kept],
        );
        ends_well(child, 0);
        let again = net.freshline(detached).output().unwrap();
        assert!(text(&again.stderr).contains("nothing is attached"), "{}", text(&again.stderr));
    }
}

/// A command that shows its user and privileges, and then lasts.
const SHOWS: &str = "id -un; grep CapEff /proc/self/status; grep NoNewPrivs /proc/self/status; \
                     echo ready >&2; exec sleep 60";

#[test]
fn wrapped_commands_run_as_the_user_that_is_named_and_end_with_their_wrapper() {
    if !common::can_run_with(&["/dev/net/tun"]) {
        return;
    }
    let net = Net::new("fl-priv-user");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("path.toml");
    fs::write(&path, "[[forward.hop]]\ndelay = \"1ms\"\n").unwrap();
    let emulate = format!("emulate run {}", path.display());
    // Signals reach a command of another user only with CAP_KILL; init does that for `emulate`.
    let kills = 1 << 5;
    // The last removes the command's cgroup, whatever the command did in it.
    let detaches = BPF | NET_ADMIN | 1 << 1;
    for (run, kept) in [
        ("uplink run --dev v --rate 10mbit", &[kills, detaches][..]),
        ("receiver run", &[kills, detaches]),
        (&emulate, &[NONE]),
    ] {
        let mut command = net.freshline(run);
        command.args(["--user", "nobody", "--", "sh", "-c", SHOWS]).stdout(Stdio::piped());
        let mut child = started(command, "ready", kept);
        let stdout = child.0.stdout.take().unwrap();
        ends_well(child, 128 + Signal::SIGTERM as i32);
        let shown = std::io::read_to_string(stdout).unwrap();
        // It may get others by programs such as sudo.
        let expected = "nobody\nCapEff:\t0000000000000000\nNoNewPrivs:\t0\n";
        assert_eq!(shown, expected, "{run}");
    }
    let nothing = net.freshline("uplink detach").output().unwrap();
    assert!(text(&nothing.stderr).contains("nothing is attached"), "{}", text(&nothing.stderr));

    let mut unknown = net.freshline("receiver run --user no-such-user -- true");
    let refused = unknown.output().unwrap();
    common::assert_fails(&refused, 2, "this host has no user `no-such-user`");
}

#[test]
fn endpoints_keep_no_privilege_and_write_named_files_only() {
    if !common::can_run_with(&[]) {
        return;
    }
    let net = Net::new("fl-priv-ends");
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let [out, socket, state] = ["out.jsonl", "socket", "state"].map(at);
    let words = format!(
        "monitor udp://127.0.0.1:3774 --out {out} --socket {socket} --metrics 127.0.0.1:81"
    );
    let monitor = started(net.freshline(&words), "metrics at", &[NONE, 1 << 10]);
    let source = net.freshline("source udp://127.0.0.1:3774 --size 100 --via 127.0.0.1 --every 1s");
    let source = started(source, "age", &[NONE, NET_ADMIN | 1 << 13]);
    until("no state was written", || fs::read_to_string(&out).is_ok_and(|out| !out.is_empty()));
    ends_well(source, 0);
    ends_well(monitor, 0);
    assert!(!fs::exists(&socket).unwrap(), "the socket is removed");

    let pin = net.freshline(&format!("bond identity --state-dir {state}")).output().unwrap();
    let pin = text(&pin.stdout);
    let pin = pin.split_whitespace().find(|word| word.starts_with("sha256:")).unwrap();
    let words = format!("bond server 127.0.0.1:3775 --client-pin {pin} --state-dir {state}");
    let server = started(net.freshline(&words), "fingerprint", &[NONE]);
    let words =
        format!("bond client 127.0.0.1:3775 --pin {pin} --state-dir {state} --listen 127.0.0.1:0");
    let mut client = net.freshline(&words);
    client.args(["--via", "127.0.0.1"]);
    let client = started(client, "listening at", &[NONE, NET_ADMIN | 1 << 13]);
    ends_well(client, 0);
    ends_well(server, 0);

    // A folder that root enters by privilege only.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    nix::unistd::chown(folder.path(), Some(65534.into()), None).unwrap();
    let words = format!("monitor udp://127.0.0.1:3774 --out {out}");
    ends_well(started(net.freshline(&words), "listening at", &[NONE, 1 << 1]), 0);
    // Its credentials can be read again, by a thread for that.
    let tokens = at("tokens");
    fs::write(&tokens, "one\n").unwrap();
    nix::unistd::chown(&*tokens, Some(65534.into()), None).unwrap();
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600)).unwrap();
    let words = format!("monitor quic://127.0.0.1:3774 --state-dir {state} --token-file {tokens}");
    let said = folder.path().join("said");
    let mut monitor = net.freshline(&words);
    monitor.stdin(Stdio::null()).stderr(fs::File::create(&said).unwrap());
    let monitor = Running(monitor.spawn().unwrap());
    let has_said = |what: &str| fs::read_to_string(&said).is_ok_and(|said| said.contains(what));
    until("it does not listen", || has_said("listening at"));
    let process = monitor.0.id();
    until("not these privileges", || of_threads(process, "CapEff:") == [NONE, 1 << 2]);
    kill(Pid::from_raw(process.cast_signed()), Signal::SIGHUP).unwrap();
    until("the tokens were not read again", || has_said("was read again"));
    ends_well(monitor, 0);
}
