//! The effect of `attach`, `set` and `detach` on the kernel's choice of congestion controls.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::sockopt::TcpCongestion;
use nix::sys::socket::{getsockopt, setsockopt};
use nix::unistd::Pid;
use serde_json::Value;

use super::common::{
    FRESHLINE, assert_fails, assert_needs_root, assert_succeeded, can_run_with, command_in, ip,
    text, within, words,
};
use super::{Alone, NAME, mesh, promtool, status};

/// Whether it can be chosen.
fn is_registered() -> bool {
    let all = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    all.split_whitespace().any(|name| name == NAME)
}

/// A connection over loopback, of which the first end has chosen it.
fn connection() -> [TcpStream; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let from = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    setsockopt(&from, TcpCongestion, &NAME.into()).unwrap();
    [from, listener.accept().unwrap().0]
}

/// Data passes from one end to the other.
fn carries(ends: &mut [TcpStream; 2]) {
    carries_many(ends, 100_000);
}

/// Transfers this number of bytes.
fn carries_many([from, to]: &mut [TcpStream; 2], bytes: usize) {
    let sent = vec![7; bytes];
    let mut received = vec![0; sent.len()];
    thread::scope(|scope| {
        scope.spawn(|| from.write_all(&sent).unwrap());
        to.read_exact(&mut received).unwrap();
    });
    assert_eq!(received, sent);
}

/// The `status` of this connection.
fn told_of([from, to]: &[TcpStream; 2]) -> Option<Value> {
    let remote = to.local_addr().unwrap().to_string();
    let local_port = from.local_addr().unwrap().port();
    let told = status(Command::new(FRESHLINE))?;
    let mut all = told["connections"].as_array().unwrap().iter();
    all.find(|one| one["remote"] == remote && one["local_port"] == local_port).cloned()
}

#[test]
fn it_can_be_chosen_until_detached_and_then_nothing_is_left() {
    if !can_run_with(&[]) {
        return;
    }
    let _alone = Alone::new();
    assert_succeeded(&mesh("attach --share 50 --memory 4000"));
    assert!(is_registered());
    assert_fails(&mesh("attach --share 50"), 1, "is under control already");

    let mut ends = connection();
    carries(&mut ends);
    let told = status(Command::new(FRESHLINE)).unwrap();
    let settings = ["pinned", "share", "max_window", "memory"].map(|key| told[key].clone());
    assert_eq!(settings, [Value::from(true), 50.0.into(), 8.into(), 4000.into()]);
    assert!(told["connections_opened"].as_u64() >= Some(1), "{told}");
    let one = told_of(&ends).unwrap();
    assert!(one["segments"].as_u64() > Some(0) && one["rtt_ms"].as_f64() > Some(0.0), "{one}");
    let metrics = text(&mesh("status --metrics").stdout);
    assert!(metrics.contains("freshline_mesh_connection_rtt_seconds{remote="), "{metrics}");
    promtool::check(&metrics);

    assert_eq!(told["peak_bound"], true);
    assert_succeeded(&mesh("set --share 2.5 --max-window 4 --no-peak-bound"));
    carries(&mut ends);
    let told = status(Command::new(FRESHLINE)).unwrap();
    assert_eq!([&told["share"], &told["max_window"]], [&Value::from(2.5), &4.into()]);
    assert_eq!(told["peak_bound"], false);
    assert!(told_of(&ends).unwrap()["window"].as_u64() <= Some(4));

    assert_succeeded(&mesh("detach"));
    assert!(!is_registered());
    assert!(!Path::new("/sys/fs/bpf/freshline/mesh").exists());
    assert_eq!(status(Command::new(FRESHLINE)), None);
    for (what, why) in [("detach", "nothing is attached"), ("set --share 1", "nothing is attached")]
    {
        assert_fails(&mesh(what), 1, why);
    }
}

#[test]
fn connections_keep_it_when_it_is_detached() {
    if !can_run_with(&[]) {
        return;
    }
    let _alone = Alone::new();
    assert_succeeded(&mesh("attach --share 50"));
    let mut old = connection();
    assert_succeeded(&mesh("detach"));
    let chosen = || setsockopt(&old[1], TcpCongestion, &NAME.into());
    assert!(chosen().is_err(), "it cannot be chosen any more");
    carries(&mut old);
    assert_eq!(getsockopt(&old[0], TcpCongestion).unwrap(), OsString::from(NAME));

    // The next one is another: settings are each one's own.
    assert_succeeded(&mesh("attach --share 60"));
    let mut new = connection();
    carries(&mut new);
    assert!(told_of(&old).is_some() && told_of(&new).is_some());
    let told = status(Command::new(FRESHLINE)).unwrap();
    assert_eq!([&told["share"], &told["connections_opened"]], [&Value::from(60.0), &1.into()]);
}

/// A network namespace without anything in it, removed when dropped.
struct Namespace(String);

impl Namespace {
    fn new(what: &str) -> Self {
        let namespace = Self(format!("fl-mesh-{}-{what}", std::process::id()));
        ip(&format!("netns add {}", namespace.0));
        ip(&format!("-n {} link set dev lo up", namespace.0));
        namespace
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

#[test]
fn what_listens_gives_it_to_nobody_after_the_end() {
    if !can_run_with(&[]) {
        return;
    }
    let _alone = Alone::new();
    let namespace = Namespace::new("listens");
    within(&namespace.0, || {
        assert_succeeded(&mesh("attach --share 50"));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        setsockopt(&listener, TcpCongestion, &NAME.into()).unwrap();
        let accepted = || {
            let from = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (listener.accept().unwrap().0, from)
        };
        let name_of = |stream: &TcpStream| getsockopt(stream, TcpCongestion).unwrap();
        let (before, _other) = accepted();
        let detached = mesh("detach");
        assert_succeeded(&detached);
        let said = words(&detached.stderr);
        assert!(
            said.contains("1 listening sockets of this network namespace now give Reno"),
            "{said}"
        );
        assert_eq!(name_of(&accepted().0), "reno");
        assert_eq!(name_of(&before), NAME, "an existing connection keeps its control");
    });
}

/// The limit in bytes a second (SO_MAX_PACING_RATE) of the one connection that there is in a namespace.
fn pacing_limit(namespace: &Namespace) -> Option<u64> {
    let output = command_in(&namespace.0, "ss").args(["-tniH"]).output().unwrap();
    let told = text(&output.stdout);
    let rates = told.split("pacing_rate ").nth(1).and_then(|rates| rates.split(' ').next());
    let (_, limit) = rates.unwrap_or_else(|| panic!("no rate: {told}")).split_once('/')?;
    let bits: String = limit.chars().take_while(char::is_ascii_digit).collect();
    Some(bits.parse::<u64>().unwrap() / 8)
}

#[test]
fn a_connection_that_leaves_it_is_not_paced_for_it_any_more() {
    if !can_run_with(&[]) {
        return;
    }
    let _alone = Alone::new();
    assert_succeeded(&mesh("attach --share 20"));
    let (near, far) = (Namespace::new("leaves"), Namespace::new("leaves-for"));
    ip(&format!("link add v netns {} type veth peer name v netns {}", near.0, far.0));
    for (host, end) in [(&near, 1), (&far, 2)] {
        ip(&format!("-n {} addr add 192.0.2.{end}/24 dev v", host.0));
        ip(&format!("-n {} link set dev v up", host.0));
    }
    let listener = within(&far.0, || TcpListener::bind("192.0.2.2:0").unwrap());
    let to = listener.local_addr().unwrap();
    let from = within(&near.0, || TcpStream::connect(to).unwrap());
    setsockopt(&from, TcpCongestion, &NAME.into()).unwrap();
    let mut ends = [from, listener.accept().unwrap().0];
    carries(&mut ends);

    // Without a loss there is no period, and no limit. This period follows from a timeout.
    ip(&format!(
        "-n {} neigh replace 192.0.2.2 lladdr 02:00:00:00:00:01 dev v nud permanent",
        near.0
    ));
    ends[0].write_all(&[7; 1000]).unwrap();
    let timeouts = || status(Command::new(FRESHLINE)).unwrap()["timeouts"].as_u64();
    let mut is_lost = (0..500).map(|_| {
        thread::sleep(Duration::from_millis(20));
        timeouts() > Some(0)
    });
    assert!(is_lost.any(|lost| lost), "no timeout");
    ip(&format!("-n {} neigh del 192.0.2.2 dev v", near.0));
    ends[1].read_exact(&mut [0; 1000]).unwrap();
    carries_many(&mut ends, 5000);
    let limit = pacing_limit(&near).expect("a limit");

    setsockopt(&ends[0], TcpCongestion, &"reno".into()).unwrap();
    // In 8 s, as long as it is paced.
    let mut is_fast = || {
        let start = Instant::now();
        carries_many(&mut ends, 8 * limit as usize);
        start.elapsed() < Duration::from_secs(4)
    };
    assert!((0..3).any(|_| is_fast()), "it is held to {limit} B/s");

    // Back again it begins without a limit, and does not take the old one for the program's.
    setsockopt(&ends[0], TcpCongestion, &NAME.into()).unwrap();
    carries_many(&mut ends, 100_000);
    assert_eq!(pacing_limit(&near), None);
}

/// How many SYNs this thread's network namespace has sent again.
fn syns_again() -> u64 {
    let told = fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
    let mut lines = told.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
    let [names, values] = [lines.next(), lines.next()].map(|line| line.unwrap().split(' '));
    let (_, value) = names.zip(values).find(|(name, _)| *name == "TCPSynRetrans").unwrap();
    value.parse().unwrap()
}

#[test]
fn a_syn_that_nobody_answers_is_no_loss() {
    if !can_run_with(&[]) {
        return;
    }
    let _alone = Alone::new();
    assert_succeeded(&mesh("attach --share 50"));
    let namespace = Namespace::new("syn");
    ip(&format!("-n {} link add v type veth peer name w", namespace.0));
    ip(&format!("-n {} addr add 192.0.2.1/24 dev v", namespace.0));
    ip(&format!("-n {} link set dev w up", namespace.0));
    ip(&format!("-n {} link set dev v up", namespace.0));
    let nowhere = "lladdr 02:00:00:00:00:01 dev v nud permanent";
    ip(&format!("-n {} neigh add 192.0.2.2 {nowhere}", namespace.0));
    within(&namespace.0, || {
        fs::write("/proc/sys/net/ipv4/tcp_congestion_control", NAME).unwrap();
        let nobody = "192.0.2.2:9".parse().unwrap();
        for _ in 0..20 {
            assert!(TcpStream::connect_timeout(&nobody, Duration::from_millis(1500)).is_err());
            if syns_again() > 0 {
                break;
            }
        }
        assert!(syns_again() > 0, "no SYN was sent again");
    });
    assert_eq!(status(Command::new(FRESHLINE)).unwrap()["timeouts"], 0);
}

#[test]
fn a_namespace_that_has_it_by_default_has_it_until_that_is_changed() {
    if !can_run_with(&[]) {
        return;
    }
    let _alone = Alone::new();
    let namespace = Namespace::new("default");
    let (kept, said) = within(&namespace.0, || {
        let default = "/proc/sys/net/ipv4/tcp_congestion_control";
        assert_succeeded(&mesh("attach --share 50"));
        fs::write(default, NAME).unwrap();
        let detached = mesh("detach");
        assert_succeeded(&detached);
        (fs::read_to_string(default).unwrap(), words(&detached.stderr))
    });
    drop(namespace);
    assert_eq!(kept.trim(), NAME);
    assert!(said.contains("new connections of this network namespace still use it"), "{said}");
    assert!(!is_registered());
}

#[test]
fn a_route_gives_it_to_its_connections() {
    if !can_run_with(&[]) {
        return;
    }
    let _alone = Alone::new();
    assert_succeeded(&mesh("attach --share 50"));
    let namespace = Namespace::new("route");
    let route = format!("local 127.0.0.2 dev lo table local congctl {NAME}");
    ip(&format!("-n {} route replace {route}", namespace.0));
    let chosen = within(&namespace.0, || {
        let listener = TcpListener::bind("127.0.0.2:0").unwrap();
        let from = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        getsockopt(&from, TcpCongestion).unwrap()
    });
    assert_eq!(chosen, OsString::from(NAME));
}

#[test]
fn it_ends_with_the_process_that_holds_it() {
    if !can_run_with(&[]) {
        return;
    }
    let _alone = Alone::new();
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut holder = Command::new(FRESHLINE)
            .args(["mesh", "attach", "--share", "50", "--foreground"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(holder.stderr.take().unwrap()).read_line(&mut said).unwrap();
        assert!(said.contains(NAME), "{said}");
        assert_eq!(status(Command::new(FRESHLINE)).unwrap()["pinned"], false);
        assert_fails(&mesh("detach"), 1, "if a process holds it");
        kill(Pid::from_raw(holder.id().cast_signed()), signal).unwrap();
        holder.wait().unwrap();
        // The kernel clears up after the process has gone.
        let mut is_gone = (0..100).map(|_| {
            thread::sleep(Duration::from_millis(20));
            !is_registered()
        });
        assert!(is_gone.any(|gone| gone), "{signal}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    if !can_run_with(&[]) {
        return;
    }
    for (arguments, why) in [
        ("attach", "--share"),
        ("attach --share 0", "from 0.001 to 4 million"),
        ("attach --share nan", "from 0.001 to 4 million"),
        ("attach --share 5 --max-window 1", "max_window is below 2"),
        ("attach --share 5 --memory 1", "memory is below 2"),
    ] {
        assert_fails(&mesh(arguments), 2, why);
    }
    assert_needs_root(&[
        "mesh attach --share 5",
        "mesh status",
        "mesh detach",
        "mesh set --share 1",
    ]);
}
