//! Control of a cgroup, from `attach` to `detach`. Everything stays on loopback, in cgroups made
//! here.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::libc::{self, IPPROTO_TCP, TCP_WINDOW_CLAMP};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, connect, getsockopt, setsockopt, socket,
};
use nix::unistd::Pid;
use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};
use serde_json::Value;

use crate::common::{FRESHLINE, assert_fails, assert_needs_root, assert_succeeded, cgroups, text};
use crate::kit::{alone, attachment, can_run};

sockopt_impl!(
    /// The maximum window that a program lets TCP announce.
    WindowClamp,
    Both,
    IPPROTO_TCP,
    TCP_WINDOW_CLAMP,
    u32
);

/// A cgroup for a test, gone with all that is in it or attached to it however the test ends.
pub(crate) struct TestCgroup {
    pub(crate) path: PathBuf,
    id: u64,
}

impl TestCgroup {
    pub(crate) fn new() -> Self {
        let name = format!("freshline-test-{}", std::process::id());
        let path = cgroups().unwrap().join(name);
        fs::create_dir(&path).unwrap();
        let id = path.metadata().unwrap().ino();
        Self { path, id }
    }

    pub(crate) fn freshline(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(FRESHLINE);
        command.arg("receiver").args(arguments).arg("--cgroup").arg(&self.path);
        command
    }

    fn attach(&self, options: &[&str]) -> Output {
        self.freshline(&["attach"]).args(options).output().unwrap()
    }

    fn detach(&self) -> Output {
        self.freshline(&["detach"]).output().unwrap()
    }

    /// The `status` of this cgroup.
    pub(crate) fn status(&self) -> Option<Value> {
        attachment(Command::new(FRESHLINE), "cgroup", self.path.to_str().unwrap())
    }

    pub(crate) fn is_pinned(&self) -> bool {
        Path::new(&format!("/sys/fs/bpf/freshline/receiver-cgroup-{}", self.id)).exists()
    }

    /// A connection of the cgroup, held by this process.
    pub(crate) fn connect(&self, listener: &TcpListener) -> TcpStream {
        self.inside(|| TcpStream::connect(listener.local_addr().unwrap()).unwrap())
    }

    /// Has this process be in the cgroup for as long as `what` takes, and with it whatever other
    /// tests start meanwhile, which would end with the cgroup: hence each of them is `alone`.
    fn inside<T>(&self, what: impl FnOnce() -> T) -> T {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap();
        let enter = |path: &Path| fs::write(path.join("cgroup.procs"), "0").unwrap();
        enter(&self.path);
        let done = what();
        enter(&cgroups().unwrap().join(own));
        done
    }

    /// A process in the cgroup that reads the data of the listener's connection, and prints how
    /// many bytes it read.
    fn reader(&self, listener: &TcpListener) -> Child {
        let script = format!(
            "echo 0 >{}/cgroup.procs; exec 3<>/dev/tcp/127.0.0.1/{}; cat <&3 | wc -c",
            self.path.display(),
            listener.local_addr().unwrap().port()
        );
        Command::new("bash").args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap()
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        let _ = fs::write(self.path.join("cgroup.kill"), "1");
        if self.is_pinned() {
            let _ = self.detach();
        }
        for _ in 0..100 {
            if fs::remove_dir(&self.path).is_ok() || !self.path.exists() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Sends `bytes` over a new connection of the listener.
fn send(listener: &TcpListener, bytes: usize) {
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(&vec![0; bytes]).unwrap();
}

#[test]
fn control_stays_until_detached_and_then_nothing_is_left() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let cgroup = TestCgroup::new();
    assert_succeeded(&cgroup.attach(&["--theta", "1.4", "--delta", "8ms"]));
    assert!(cgroup.is_pinned());
    assert_eq!(cgroup.status().unwrap()["pinned"], true);
    assert_fails(&cgroup.attach(&[]), 1, "is under control already: `freshline receiver detach`");

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let reader = cgroup.reader(&listener);
    send(&listener, 1 << 24);
    assert_eq!(text(&reader.wait_with_output().unwrap().stdout).trim(), (1 << 24).to_string());
    let status = cgroup.status().unwrap();
    assert_eq!(status["connections"], 1, "{status}");
    let peer = &status["peers"][0];
    assert_eq!(peer["address"], "127.0.0.1", "{status}");
    assert_eq!((&peer["theta"], &peer["delta_ms"]), (&1.4.into(), &8.0.into()), "{status}");
    let owner = peer["queue_owner"].as_str().unwrap();
    assert!(["none", "own", "competing", "testing"].contains(&owner), "{status}");
    assert!(status["windows_set"].as_u64().unwrap() > 0, "{status}");
    assert_eq!(status["windows_refused"], 0, "{status}");

    assert_succeeded(&cgroup.detach());
    assert!(!cgroup.is_pinned() && cgroup.status().is_none());
    assert_fails(&cgroup.detach(), 1, "nothing is attached to");
}

#[test]
fn a_k_set_by_hand_is_used_and_shown() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    for (options, is_pure) in [(&[][..], false), (&["--pure"], true)] {
        let cgroup = TestCgroup::new();
        assert_succeeded(&cgroup.attach(&[options, &["--slope", "15e-5"]].concat()));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let reader = cgroup.reader(&listener);
        send(&listener, 1 << 24);
        assert_eq!(text(&reader.wait_with_output().unwrap().stdout).trim(), (1 << 24).to_string());
        let status = cgroup.status().unwrap();
        assert_eq!(status["pure"], is_pure, "{status}");
        assert!(status["windows_set"].as_u64().unwrap() > 0, "{status}");
        let peer = &status["peers"][0];
        assert_eq!((&peer["slope"], &peer["theta"]), (&15e-5.into(), &1.38.into()), "{status}");
        let owner = peer["queue_owner"].as_str().unwrap();
        assert!(["none", "unknown"].contains(&owner), "nothing is tested: {status}");
        assert_succeeded(&cgroup.detach());
    }
}

#[test]
fn of_many_that_attach_at_once_one_does() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let cgroup = TestCgroup::new();
    let all: Vec<_> = (0..4)
        .map(|_| cgroup.freshline(&["attach"]).stderr(Stdio::piped()).spawn().unwrap())
        .collect();
    let ended: Vec<_> = all.into_iter().map(|one| one.wait_with_output().unwrap()).collect();
    let (attached, refused): (Vec<_>, Vec<_>) =
        ended.into_iter().partition(|one| one.status.success());
    assert_eq!(attached.len(), 1);
    refused.iter().for_each(|one| assert_fails(one, 1, "is under control already"));
    assert!(cgroup.is_pinned() && cgroup.status().is_some());
    assert_succeeded(&cgroup.detach());
    assert!(!cgroup.is_pinned() && cgroup.status().is_none());
}

#[test]
fn one_pin_that_resists_does_not_keep_the_others() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let cgroup = TestCgroup::new();
    // Separate pins, since `detach` ends all attachments.
    let script = format!(
        "mount -t bpf none /sys/fs/bpf && {FRESHLINE} receiver attach --cgroup {} && \
         mkdir -p /sys/fs/bpf/freshline/receiver-1/control && {FRESHLINE} receiver detach",
        cgroup.path.display()
    );
    let done = Command::new("unshare").args(["--mount", "sh", "-c", &script]).output().unwrap();
    assert_fails(&done, 1, "some attachments could not be ended");
    assert!(cgroup.status().is_none());
}

#[test]
fn a_killed_loader_takes_its_control_along_and_connections_go_on() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let cgroup = TestCgroup::new();
    let begin = || {
        let mut loader =
            cgroup.freshline(&["attach", "--foreground"]).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(loader.stderr.take().unwrap()).read_line(&mut said).unwrap();
        assert!(said.starts_with("controlling"), "{said}");
        loader
    };
    let mut loader = begin();
    assert_eq!(cgroup.status().unwrap()["pinned"], false);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let reader = cgroup.reader(&listener);
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(&[0; 1 << 20]).unwrap();
    loader.kill().unwrap();
    loader.wait().unwrap();
    // The record is there, from which the next command restores windows.
    assert!(cgroup.status().is_none() && cgroup.is_pinned());
    stream.write_all(&[0; 1 << 20]).unwrap();

    // The next control leaves earlier connections unchanged.
    let mut loader = begin();
    stream.write_all(&[0; 1 << 20]).unwrap();
    drop(stream);
    assert_eq!(text(&reader.wait_with_output().unwrap().stdout).trim(), (3 << 20).to_string());
    assert_eq!(cgroup.status().unwrap()["segments"], 0);
    kill(Pid::from_raw(loader.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert!(loader.wait().unwrap().success());
    assert!(cgroup.status().is_none());
}

#[test]
fn connections_that_exist_are_adopted_and_released() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let cgroup = TestCgroup::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let reader = cgroup.reader(&listener);
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(&[0; 1 << 20]).unwrap();
    assert_succeeded(&cgroup.attach(&["--adopt-existing"]));
    // This end of the connection is in another cgroup.
    assert_eq!(cgroup.status().unwrap()["connections_adopted"], 1);
    stream.write_all(&vec![0; 1 << 24]).unwrap();
    let status = cgroup.status().unwrap();
    assert!(status["windows_set"].as_u64().unwrap() > 0, "{status}");

    assert_succeeded(&cgroup.detach());
    stream.write_all(&vec![0; 1 << 24]).unwrap();
    drop(stream);
    let read = text(&reader.wait_with_output().unwrap().stdout);
    assert_eq!(read.trim(), ((1 << 20) + (2 << 24)).to_string());
}

#[test]
fn a_window_that_a_program_has_chosen_is_never_larger_and_comes_back() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let cgroup = TestCgroup::new();
    assert_succeeded(&cgroup.attach(&[]));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let SocketAddr::V4(address) = listener.local_addr().unwrap() else { panic!("IPv6") };
    // A few segments of loopback, or each would wait for a timer.
    let own = 200_000;
    let mut receiver: TcpStream = cgroup.inside(|| {
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Inet, SockType::Stream, flags, None).unwrap();
        setsockopt(&socket, WindowClamp, &own).unwrap();
        connect(socket.as_raw_fd(), &SockaddrIn::from(address)).unwrap();
        socket.into()
    });
    let (mut sender, _) = listener.accept().unwrap();
    let mut transfer = || {
        thread::scope(|scope| {
            scope.spawn(|| sender.write_all(&vec![0; 1 << 22]).unwrap());
            receiver.read_exact(&mut vec![0; 1 << 22]).unwrap();
        });
        getsockopt(&receiver, WindowClamp).unwrap()
    };
    assert!(transfer() <= own);
    assert!(cgroup.status().unwrap()["round_trips"].as_u64().unwrap() > 0);
    assert_succeeded(&cgroup.detach());
    assert_eq!(getsockopt(&receiver, WindowClamp).unwrap(), own);
}

#[test]
fn a_connection_that_only_receives_any_more_is_adopted() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let cgroup = TestCgroup::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut receiver = cgroup.connect(&listener);
    let (mut sender, _) = listener.accept().unwrap();
    receiver.shutdown(Shutdown::Write).unwrap();
    // Once it is read, it is acknowledged.
    assert_eq!(sender.read(&mut [0]).unwrap(), 0);
    assert_succeeded(&cgroup.attach(&["--adopt-existing"]));
    assert_eq!(cgroup.status().unwrap()["connections_adopted"], 1);
    thread::scope(|scope| {
        scope.spawn(|| sender.write_all(&vec![0; 1 << 24]).unwrap());
        receiver.read_exact(&mut vec![0; 1 << 24]).unwrap();
    });
    let status = cgroup.status().unwrap();
    assert!(status["windows_set"].as_u64().unwrap() > 0, "{status}");
}

#[test]
fn a_cgroup_that_is_removed_leaves_nothing_that_is_in_the_way() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let removed = TestCgroup::new();
    assert_succeeded(&removed.attach(&[]));
    fs::remove_dir(&removed.path).unwrap();
    let next = TestCgroup::new();
    // The kernel ends the program of a removed cgroup a moment later.
    for _ in 0..100 {
        assert_succeeded(&next.attach(&[]));
        if !removed.is_pinned() {
            break;
        }
        assert_succeeded(&next.detach());
        thread::sleep(Duration::from_millis(20));
    }
    assert!(!removed.is_pinned() && next.is_pinned());

    fs::remove_dir(&next.path).unwrap();
    let detached = || {
        (0..100).any(|_| {
            thread::sleep(Duration::from_millis(20));
            next.detach().status.success()
        })
    };
    assert!(detached() && !next.is_pinned());
}

#[test]
fn a_command_runs_in_a_cgroup_of_its_own_and_takes_along_what_it_started() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    // It may make cgroups of its own, with processes in them.
    let script = format!(
        "cat /proc/self/cgroup; own={}/$(cut -d: -f3 /proc/self/cgroup | tail -1); \
         mkdir $own/below; bash -c \"echo 0 >$own/below/cgroup.procs; exec sleep 1000\" & exit 7",
        cgroups().unwrap().display()
    );
    let run = Command::new(FRESHLINE)
        .args(["receiver", "run", "--", "bash", "-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let done = run.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(7), "{}", text(&done.stderr));
    let said = text(&done.stdout);
    let own = said.lines().find_map(|line| line.strip_prefix("0::/")).unwrap();
    assert!(own.contains("freshline-run-"), "{own}");
    assert!(!cgroups().unwrap().join(own).exists(), "{own} is left");

    let no_command = Command::new(FRESHLINE)
        .args(["receiver", "run", "--", "/no/such/command"])
        .output()
        .unwrap();
    assert_fails(&no_command, 1, "cannot run `/no/such/command`");
}

#[test]
fn a_signal_leaves_nothing_of_a_run_however_early_it_comes() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let cgroup = TestCgroup::new();
    for after_ms in [0, 3, 6, 10, 15, 20, 30, 50, 100] {
        let mut run = Command::new(FRESHLINE);
        run.args(["receiver", "run", "--", "sleep", "1000"]).stderr(Stdio::null());
        let mut run = cgroup.inside(|| run.spawn().unwrap());
        thread::sleep(Duration::from_millis(after_ms));
        kill(Pid::from_raw(run.id().cast_signed()), Signal::SIGTERM).unwrap();
        assert_ne!(run.wait().unwrap().code(), Some(0));
        let path = fs::read_dir(&cgroup.path).unwrap().flatten().map(|entry| entry.path());
        let mut left = path.filter(|path| path.to_str().unwrap().contains("freshline-run-"));
        assert_eq!(left.next(), None, "after {after_ms} ms");
    }
}

#[test]
fn the_cgroup_of_a_killed_run_goes_with_the_next_run_wherever_that_is() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let cgroup = TestCgroup::new();
    let left = || {
        let entries = fs::read_dir(&cgroup.path).unwrap().flatten().map(|entry| entry.path());
        entries.filter(|path| path.to_str().unwrap().contains("freshline-run-")).collect::<Vec<_>>()
    };
    let mut run = Command::new(FRESHLINE);
    run.args(["receiver", "run", "--", "bash", "-c", "echo begun; exec sleep 1000"]);
    let mut run = cgroup.inside(|| run.stdout(Stdio::piped()).spawn().unwrap());
    BufReader::new(run.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let [own] = &left()[..] else { panic!("{:?}", left()) };
    // One more cgroup in it, as a nested run has.
    fs::create_dir(own.join("below")).unwrap();
    run.kill().unwrap();
    run.wait().unwrap();
    fs::write(own.join("cgroup.kill"), "1").unwrap();
    let begin = Instant::now();
    while !fs::read_to_string(own.join("cgroup.events")).unwrap().contains("populated 0") {
        assert!(begin.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(5));
    }
    let next = Command::new(FRESHLINE).args(["receiver", "run", "--", "true"]).output().unwrap();
    assert_succeeded(&next);
    assert_eq!(left(), Vec::<PathBuf>::new());
}

/// Runs a command at a terminal of its own, where a key is pressed once the command has printed
/// `ready`: the output and the exit code.
fn at_terminal(command: &str, key: u8) -> (String, Option<i32>) {
    let mut terminal = Command::new("script")
        .args(["-qec", command, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keys = terminal.stdin.take().unwrap();
    let mut output = String::new();
    for line in BufReader::new(terminal.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if line.contains("ready") {
            keys.write_all(&[key]).unwrap();
        }
        output += &line;
        output += "\n";
    }
    (output, terminal.wait().unwrap().code())
}

#[test]
fn a_key_at_a_terminal_interrupts_the_command_once_and_does_not_end_the_run() {
    if !can_run() {
        return;
    }
    if Command::new("script").arg("--version").output().is_err() {
        println!("skipped: needs script");
        return;
    }
    let _alone = alone();
    // It ends by itself soon after the interrupt, unless it is terminated.
    let script = r#"count=0; trap "count=\$((count + 1))" INT QUIT; trap "echo terminated; exit 3" TERM;
        echo ready; for i in $(seq 1000); do [ $count = 0 ] || break; sleep 0.01; done; sleep 0.2;
        echo interrupts: $count.; exit 5"#;
    // Without a shell between, which might handle the key itself: `script` runs `$SHELL`.
    let command = format!("exec {FRESHLINE} receiver run -- bash -c '{script}'");
    for key in [/* Ctrl-C */ 0x03, /* Ctrl-\ */ 0x1c] {
        let (output, code) = at_terminal(&command, key);
        assert!(output.contains("interrupts: 1."), "{output}");
        assert_eq!(code, Some(5), "{output}");
    }
}

#[test]
fn a_signal_sent_to_a_run_reaches_its_command_as_it_is() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
        let mut run = Command::new(FRESHLINE)
            .args(["receiver", "run", "--", "bash", "-c", "echo ready; exec sleep 1000"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        BufReader::new(run.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        kill(Pid::from_raw(run.id().cast_signed()), signal).unwrap();
        assert_eq!(run.wait().unwrap().code(), Some(code), "{signal}");
    }
}

#[test]
fn root_without_its_rights_is_told_so() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    for what in [&["attach"][..], &["status"], &["detach"], &["run", "--", "true"]] {
        let done = Command::new("setpriv")
            .args(["--bounding-set=-sys_admin", FRESHLINE, "receiver"])
            .args(what)
            .output();
        let Ok(done) = done else {
            println!("skipped: needs setpriv");
            return;
        };
        assert_fails(&done, 1, "needs root, with CAP_SYS_ADMIN");
    }
}

#[test]
fn without_root_it_says_what_it_needs() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    assert_needs_root(&[
        "receiver attach",
        "receiver status",
        "receiver detach",
        "receiver run -- true",
    ]);
}

#[test]
fn what_the_kernel_lacks_is_named() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    // Hidden from one process.
    let without = |hide: &str| {
        let script = format!("{hide} && exec {FRESHLINE} receiver attach");
        Command::new("unshare").args(["--mount", "sh", "-c", &script]).output().unwrap()
    };
    let cgroups = cgroups().unwrap();
    let no_cgroups = without(&format!("umount {}", cgroups.display()));
    assert_fails(&no_cgroups, 1, "needs control groups of version 2");
    let no_btf = without("mount -t tmpfs none /sys/kernel/btf");
    assert_fails(&no_btf, 1, "needs BTF");
}

#[test]
fn wrong_usage_is_told_from_failure() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    for (flag, value, why) in [
        ("--cgroup", "/tmp", "is not a cgroup"),
        ("--theta", "1", "`theta` is 1, which is not from 1.01 to 10"),
        ("--delta", "1h", "at most 10s"),
        ("--slope", "2", "`slope` is 2, which is not from 1e-13 to 1"),
    ] {
        let done = Command::new(FRESHLINE).args(["receiver", "attach", flag, value]).output();
        assert_fails(&done.unwrap(), 2, why);
    }
}
