//! CPU time per run of the eBPF programs, compared with an empty program.
//!
//! `cargo bench -p freshline-kernel`, as root. A stream over loopback, whose receiver is in a cgroup of
//! its own: RTAC is attached to the cgroup, SORPC to the device. The kernel measures each run
//! (`kernel.bpf_stats_enabled`), which takes time itself. The empty program shows how much: it sees the
//! acks of the same stream. The result is the minimum of several rounds, because other programs share
//! the machine.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use freshline_kernel::cgroup::OwnCgroup;
use freshline_kernel::{receiver, sorpc};
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{Link, ObjectBuilder};

/// Measurements of each kind of traffic, and how long one takes.
const ROUNDS: usize = 60;
const ROUND: Duration = Duration::from_millis(80);

const STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";
/// Names of programs are cut after 15 characters.
const PROGRAMS: [&str; 3] = ["freshline_empty", "freshline_sock", "freshline_sorpc"];

/// The number of runs of a program, and their total time in ns.
#[derive(Debug, Clone, Copy)]
struct Runs {
    count: u64,
    ns: u64,
}

fn runs() -> [Runs; 3] {
    let mut found = [Runs { count: 0, ns: 0 }; 3];
    for program in ProgInfoIter::default() {
        if let Some(index) = PROGRAMS.iter().position(|name| program.name == *name) {
            found[index].count += program.run_cnt;
            found[index].ns += program.run_time_ns;
        }
    }
    found
}

/// Attaches the program that does nothing.
fn attach_empty(cgroup: &Path) -> Link {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/empty.bpf.c");
    let folder = tempfile::tempdir().expect("a folder");
    let compiled = folder.path().join("empty.bpf.o");
    let done = Command::new("clang")
        .args(["-O2", "-g", "-target", "bpf"])
        .args(["-c".as_ref(), source.as_os_str(), "-o".as_ref(), compiled.as_os_str()])
        .status();
    assert!(done.expect("clang starts").success());
    let opened = ObjectBuilder::default().open_file(&compiled).expect("an object");
    let loaded = opened.load().expect("a program");
    let program = loaded.progs_mut().next().expect("one program");
    let cgroup = File::open(cgroup).expect("the cgroup");
    program.attach_cgroup(cgroup.as_raw_fd()).expect("a place")
}

/// Sends to the first client: writes of `size` bytes, with a pause after each.
fn serve(listener: TcpListener, size: usize, pause: Duration) {
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let bytes = vec![7; size];
        while stream.write_all(&bytes).is_ok() {
            if !pause.is_zero() {
                thread::sleep(pause);
            }
        }
    });
}

/// Reads for one round.
fn read(stream: &mut TcpStream) {
    let (begin, mut bytes) = (Instant::now(), vec![0; 1 << 16]);
    while begin.elapsed() < ROUND {
        assert!(stream.read(&mut bytes).expect("a stream") > 0, "the server has gone");
    }
}

/// The time per run of each program in ns, the minimum of all rounds.
fn measure(mut stream: TcpStream) -> [f64; 3] {
    let mut costs = [f64::INFINITY; 3];
    for _ in 0..ROUNDS {
        let before = runs();
        read(&mut stream);
        for ((cost, before), after) in costs.iter_mut().zip(before).zip(runs()) {
            let count = after.count - before.count;
            assert!(count > 0, "a program did not run");
            *cost = cost.min((after.ns - before.ns) as f64 / count as f64);
        }
    }
    costs
}

fn main() {
    // A listener in the parent cgroup: the connections that it accepts are not controlled.
    let listen = || TcpListener::bind("127.0.0.1:0").expect("a port");
    let kinds =
        [("saturated", 1 << 16, Duration::ZERO), ("20 Mbit/s", 2500, Duration::from_millis(1))];
    let listeners = kinds.map(|(_, size, pause)| {
        let listener = listen();
        let address = listener.local_addr().expect("an address");
        serve(listener, size, pause);
        address
    });
    let cgroup = match OwnCgroup::enter() {
        Ok(cgroup) => cgroup,
        Err(error) => return println!("skipped: needs a control group: {error}"),
    };
    let law = receiver::Law::Rtac(receiver::Settings::default());
    let target = receiver::Target::Cgroup(cgroup.path().to_owned());
    let _rtac = receiver::attach(&target, &law).expect("RTAC");
    let _sorpc = sorpc::attach("lo", &sorpc::Settings::default(), None).expect("SORPC");
    let _empty = attach_empty(cgroup.path());
    let before = fs::read_to_string(STATISTICS).expect("statistics");
    fs::write(STATISTICS, "1").expect("statistics");
    println!(
        "{:<12} {:>8} {:>8} {:>8} {:>12} {:>12}",
        "ns a run", "empty", "RTAC", "SORPC", "RTAC − empty", "SORPC − empty"
    );
    for ((name, ..), address) in kinds.iter().zip(listeners) {
        let [empty, rtac, sorpc] = measure(TcpStream::connect(address).expect("a server"));
        println!(
            "{name:<12} {empty:>8.0} {rtac:>8.0} {sorpc:>8.0} {:>12.0} {:>12.0}",
            rtac - empty,
            sorpc - empty
        );
    }
    fs::write(STATISTICS, before.trim()).expect("statistics");
    let attached = receiver::attachments().expect("the programs");
    let counters = attached.first().expect("RTAC in its place").counters;
    println!("{counters:?}");
    assert!(counters.round_trips > 100 && counters.windows_set > 0, "{counters:?}");
}
