//! The state that killed commands leave behind, and its completion by the next command.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::getsockopt;
use nix::unistd::Pid;

use crate::cgroup::{TestCgroup, WindowClamp};
use crate::common::{FRESHLINE, assert_fails, assert_succeeded};
use crate::hosts::Hosts;
use crate::kit::{alone, can_run};
use crate::steps::{can_trace, few, kill_before, steps_of, takes_all};

const ATTACH: &[&str] = &["attach", "--adopt-existing"];
const DETACH: &[&str] = &["detach"];

/// A connection of a cgroup that is there before it is controlled.
struct Connection {
    cgroup: TestCgroup,
    sender: TcpStream,
    receiver: TcpStream,
    /// Its window after control has ended.
    free: u32,
}

impl Connection {
    fn new() -> Self {
        let cgroup = TestCgroup::new();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let receiver = cgroup.connect(&listener);
        let (sender, _) = listener.accept().unwrap();
        let mut made = Self { cgroup, sender, receiver, free: 0 };
        assert_succeeded(&made.run(ATTACH));
        let controlled = made.transfer();
        assert_succeeded(&made.run(DETACH));
        made.free = made.window();
        assert!(controlled < made.free, "{controlled}, and {} without control", made.free);
        made
    }

    fn run(&self, what: &[&str]) -> Output {
        self.cgroup.freshline(what).output().unwrap()
    }

    fn window(&self) -> u32 {
        getsockopt(&self.receiver, WindowClamp).unwrap()
    }

    /// The window after some data.
    fn transfer(&self) -> u32 {
        thread::scope(|scope| {
            scope.spawn(|| (&self.sender).write_all(&vec![0; 1 << 20]).unwrap());
            (&self.receiver).read_exact(&mut vec![0; 1 << 20]).unwrap();
        });
        self.window()
    }
}

/// A process that holds the control of a cgroup.
pub(crate) fn holder(cgroup: &TestCgroup) -> Child {
    let mut holder = cgroup.freshline(&["attach", "--adopt-existing", "--foreground"]);
    let mut holder = holder.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(holder.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.starts_with("controlling"), "{said}");
    holder
}

/// A command is killed before any of its steps; then each of the next commands in turn.
#[test]
fn before_every_step_a_command_may_be_killed_and_windows_come_back() {
    if !can_run() || !can_trace() {
        return;
    }
    let _alone = alone();
    let connection = Connection::new();
    let cgroup = &connection.cgroup;
    let run = |what| connection.run(what);
    let status = || Command::new(FRESHLINE).args(["receiver", "status"]).output().unwrap();
    for (first, killed) in [(None, ATTACH), (Some(ATTACH), DETACH)] {
        let prepare = || {
            if let Some(first) = first {
                assert_succeeded(&run(first));
                assert!(connection.transfer() < connection.free);
            }
        };
        prepare();
        let steps = steps_of(&cgroup.freshline(killed));
        let _ = run(DETACH);
        println!("{killed:?} is killed before {} steps", steps.len());
        for step in steps {
            for (at, next) in [&["status"], &["attach"][..]].into_iter().enumerate() {
                if !takes_all() && step % 2 != at {
                    continue;
                }
                prepare();
                kill_before(&cgroup.freshline(killed), step);
                // It fails where all is as it was.
                let _ = match next {
                    ["status"] => status(),
                    next => run(next),
                };
                let _ = run(DETACH);
                let window = connection.window();
                assert_eq!(window, connection.free, "{killed:?} before step {step}");
                assert!(cgroup.status().is_none() && !cgroup.is_pinned());
                assert_fails(&run(DETACH), 1, "nothing is attached to");
            }
        }
    }
}

#[test]
fn windows_of_connections_whose_holder_was_killed_come_back() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let connection = Connection::new();
    for next in [None, Some(&["attach"][..])] {
        let mut holder = holder(&connection.cgroup);
        assert!(connection.transfer() < connection.free);
        assert_fails(&connection.run(DETACH), 1, "if a process holds it");
        holder.kill().unwrap();
        holder.wait().unwrap();
        if let Some(next) = next {
            assert_succeeded(&connection.run(next));
        }
        assert_succeeded(&connection.run(DETACH));
        assert_eq!(connection.window(), connection.free);
        assert!(!connection.cgroup.is_pinned());
    }
}

/// A device has two programs, and a command may be killed when only one of them is pinned.
#[test]
#[ignore = "long: takes many seconds of real time"]
fn before_every_step_a_command_may_be_killed_and_a_device_has_both_programs_or_none() {
    if !can_run() || !can_trace() {
        return;
    }
    let _alone = alone();
    let hosts = Hosts::new("receiver-half", &["host"]);
    let command = |what: &str| {
        let mut command = hosts.command("host", FRESHLINE);
        command.args(["receiver", what, "--dev", "lo"]);
        command
    };
    let run = |what: &str| command(what).output().unwrap();
    let netns = fs::metadata(Path::new("/run/netns").join(hosts.name("host"))).unwrap().ino();
    let pins = format!("/sys/fs/bpf/freshline/receiver-dev-{netns}-1");
    let pins = Path::new(&pins);
    for killed in ["attach", "detach"] {
        let prepare = || {
            if killed == "detach" {
                assert_succeeded(&run("attach"));
            }
        };
        prepare();
        let steps = steps_of(&command(killed));
        let _ = run("detach");
        println!("{killed} is killed before {} steps", steps.len());
        // The kernel takes long to check the programs.
        for step in few(&steps, 3) {
            prepare();
            kill_before(&command(killed), step);
            let next = run("attach");
            if !next.status.success() {
                assert_fails(&next, 1, "is under control already");
            }
            let are_pinned = ["control-in", "control-out"].map(|name| pins.join(name).exists());
            assert_eq!(are_pinned, [true; 2], "{killed} before step {step}");
            assert_succeeded(&run("detach"));
            assert!(!pins.exists(), "{killed} before step {step}");
        }
    }
}

/// If it detached first, another command could attach meanwhile, and the holder would end that control.
#[test]
fn a_holder_that_ends_waits_for_other_commands_before_it_detaches() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let cgroup = TestCgroup::new();
    let mut holder = holder(&cgroup);
    let pid = holder.id().to_string();
    let lock = File::open("/sys/fs/bpf").unwrap();
    let lock = Flock::lock(lock, FlockArg::LockExclusive).unwrap();
    kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGTERM).unwrap();
    let is_waiting = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        fields.contains(&"->") && fields.contains(&&*pid)
    };
    while !fs::read_to_string("/proc/locks").unwrap().lines().any(is_waiting) {
        assert!(holder.try_wait().unwrap().is_none(), "it ends without the lock");
        thread::sleep(Duration::from_millis(5));
    }
    let is_in_place = cgroup.status().is_some();
    drop(lock);
    assert!(holder.wait().unwrap().success());
    assert!(is_in_place, "it has detached without the lock");
    assert!(cgroup.status().is_none() && !cgroup.is_pinned());
}
