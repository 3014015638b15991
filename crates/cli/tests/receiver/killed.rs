//! What commands leave behind that are killed, and that the next command completes their work.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::thread;

use nix::sys::socket::getsockopt;

use crate::cgroup::{TestCgroup, WindowClamp};
use crate::common::{FRESHLINE, assert_fails, assert_succeeded};
use crate::kit::{alone, can_run};
use crate::steps::{can_trace, kill_before, steps_of};

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
                if killed == ATTACH && step % 2 != at {
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
        let mut holder =
            connection.cgroup.freshline(&["attach", "--adopt-existing", "--foreground"]);
        let mut holder = holder.stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(holder.stderr.take().unwrap()).read_line(&mut said).unwrap();
        assert!(said.starts_with("controlling"), "{said}");
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
