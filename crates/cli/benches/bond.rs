//! The speed of `freshline bond` over loopback: the goodput of one TCP connection through client and
//! server, compared with two plain TCP relays in a row, each in a process of its own as well, and with
//! two `socat` if it is installed.
//!
//! `cargo bench -p freshline-cli --bench bond`; options that `cargo bench` adds are ignored. Every
//! received byte is compared with the sent one. The bench fails only if a transfer fails or does not
//! use all paths: the figures depend on the machine.

mod goodput;
#[path = "../tests/common/process.rs"]
mod process;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, thread};

use goodput::{FRESHLINE, MEASURED, TURNS, WARM_UP, median, receive_for, send};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use process::Process;
use serde_json::Value;
use tempfile::TempDir;

const GOAL_GBPS: f64 = 2.5;

/// The length of the repeated sequence of bytes. It is no multiple of the size of a packet or a buffer,
/// so that a lost, repeated or moved piece is detected.
const PERIOD: usize = 1_000_003;

/// A name, and a function that starts the processes that relay to an address; `None`: not installed.
type Row = (&'static str, fn(SocketAddr) -> Option<Chain>);

fn main() {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["send", to] => return send(to, &period()),
        ["relay", to] => return relay(to),
        _ => {}
    }
    let rows: [Row; 4] = [
        ("two relays of TCP", Chain::relays),
        ("two socat", Chain::socats),
        ("bond, one path", |to| Some(Chain::bond(to, "127.0.0.1"))),
        // Each path needs a name of its own: an address, and its device.
        ("bond, two paths", |to| Some(Chain::bond(to, "127.0.0.1,lo"))),
    ];
    let mut figures = rows.map(|_| Vec::new());
    for _ in 0..TURNS {
        for ((name, start), figures) in rows.iter().zip(&mut figures) {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let Some(chain) = start(listener.local_addr().unwrap()) else { continue };
            let (gbps, cost) = chain.goodput(&listener);
            println!("loopback | {name} | {:.0} Mbit/s | {cost}", gbps * 1e3);
            figures.push(gbps);
        }
    }
    for ((name, _), mut figures) in rows.iter().zip(figures) {
        match median(&mut figures) {
            Some(gbps) => println!("median of {TURNS} | {name} | {:.0} Mbit/s", gbps * 1e3),
            None => println!("median of {TURNS} | {name} | skipped: not installed"),
        }
    }
    println!("goal for one path: at least {GOAL_GBPS} Gbit/s");
}

/// The bytes of a period, the result of a linear congruential generator.
fn period() -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..PERIOD).map(|_| next()).collect()
}

/// Listens, prints the address, and relays one connection to `to`.
fn relay(to: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    eprintln!("listening at {}", listener.local_addr().unwrap());
    let mut from = listener.accept().unwrap().0;
    let mut to = TcpStream::connect(to).unwrap();
    let mut piece = vec![0; 1 << 16];
    while let Ok(len @ 1..) = from.read(&mut piece) {
        if to.write_all(&piece[..len]).is_err() {
            return;
        }
    }
}

/// Processes that relay a TCP connection from one to the next, and the address of the first one.
struct Chain {
    processes: Vec<Process>,
    at: SocketAddr,
    /// The paths of the first process, a client of a bond; zero of other processes.
    paths: usize,
    _state: TempDir,
}

impl Chain {
    fn of(processes: Vec<Process>, at: SocketAddr, state: TempDir) -> Self {
        Self { processes, at, paths: 0, _state: state }
    }

    fn relays(to: SocketAddr) -> Option<Self> {
        let mut at = to;
        let mut processes = Vec::new();
        for _ in 0..2 {
            let mut command = Command::new(env::current_exe().unwrap());
            let (process, line) = Process::start(command.args(["relay", &at.to_string()]), "at ");
            at = line.rsplit(' ').next().unwrap().trim().parse().unwrap();
            processes.push(process);
        }
        Some(Self::of(processes, at, tempfile::tempdir().unwrap()))
    }

    fn socats(to: SocketAddr) -> Option<Self> {
        Command::new("socat").arg("-V").stdout(Stdio::null()).status().ok()?;
        let mut at = to;
        let mut processes = Vec::new();
        for _ in 0..2 {
            let next = free_tcp();
            let mut command = Command::new("socat");
            command.args(["-d", "-d", "-b", "65536"]);
            command.arg(format!("TCP4-LISTEN:{},bind={}", next.port(), next.ip()));
            processes.push(Process::start(command.arg(format!("TCP4:{at}")), "listening").0);
            at = next;
        }
        Some(Self::of(processes, at, tempfile::tempdir().unwrap()))
    }

    fn bond(to: SocketAddr, via: &str) -> Self {
        let state = tempfile::tempdir().unwrap();
        let (server, at) = (free_udp(), free_tcp());
        let pin = |end: &str| {
            let mut command = bond("identity", &state, end);
            let done = command.output().unwrap();
            assert!(done.status.success(), "{command:?}");
            String::from_utf8(done.stdout).unwrap().trim().to_owned()
        };
        let (server_pin, client_pin) = (pin("server"), pin("client"));
        let mut command = bond("server", &state, "server");
        command.args([&server.to_string(), "--client-pin", &client_pin, "--max-window", "2MB"]);
        let (far, _) = Process::start(command.args(["--allow", &to.to_string()]), "fingerprint");
        let mut command = bond("client", &state, "client");
        command.args([&server.to_string(), "--pin", &server_pin, "--max-window", "2MB"]);
        command.args(["--json", "--via", via, "--forward", &format!("{at}={to}")]);
        let (near, _) = Process::start(command.stdout(Stdio::piped()), "listening");
        // All paths are up before the transfer begins.
        thread::sleep(Duration::from_secs(1));
        Self { paths: via.split(',').count(), ..Self::of(vec![near, far], at, state) }
    }

    /// Ends a client of a bond, and asserts that each path has carried data.
    fn assert_paths_used(&mut self) {
        let client = &mut self.processes[0].0;
        let id = Pid::from_raw(client.id().try_into().unwrap());
        kill(id, Signal::SIGTERM).unwrap();
        let report: Value = serde_json::from_reader(client.stdout.take().unwrap()).unwrap();
        let paths = report["paths"].as_array().unwrap().iter();
        let used = paths.filter(|path| path["sent_bytes"].as_u64() > Some(10_000_000));
        assert_eq!(used.count(), self.paths, "used paths in {report:#}");
    }

    /// The goodput of one connection in Gbit/s, whose bytes are compared with the sent ones, and the
    /// CPU time that each process took.
    fn goodput(mut self, listener: &TcpListener) -> (f64, String) {
        let mut sender = Command::new(env::current_exe().unwrap())
            .args(["send", &self.at.to_string()])
            .spawn()
            .unwrap();
        let mut stream = listener.accept().expect("the chain connects").0;
        let (period, mut at) = (period(), 0);
        let mut check = |mut left: &[u8]| {
            while !left.is_empty() {
                let (piece, rest) = left.split_at(left.len().min(PERIOD - at));
                assert!(piece == &period[at..][..piece.len()], "wrong bytes");
                at = (at + piece.len()) % PERIOD;
                left = rest;
            }
        };
        let mut buffer = vec![0; 1 << 18];
        receive_for(WARM_UP, &mut stream, &mut buffer, &mut check);
        let before: Vec<_> = self.processes.iter().map(Process::ran).collect();
        let gbps = receive_for(MEASURED, &mut stream, &mut buffer, &mut check);
        let cores = self.processes.iter().zip(before).map(|(process, before)| {
            format!("{:.2}", (process.ran() - before).as_secs_f64() / MEASURED.as_secs_f64())
        });
        let cost = format!("cores in use: {}", Vec::from_iter(cores).join(" and "));
        if self.paths > 0 {
            self.assert_paths_used();
        }
        drop(stream);
        let _ = sender.kill();
        sender.wait().unwrap();
        (gbps, cost)
    }
}

/// `freshline bond …` with a state directory per end.
fn bond(command: &str, state: &TempDir, end: &str) -> Command {
    let mut bond = Command::new(FRESHLINE);
    bond.args(["bond", command, "--state-dir"]).arg(state.path().join(end));
    bond
}

/// A free TCP port of the loopback.
fn free_tcp() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A free UDP port of the loopback.
fn free_udp() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
