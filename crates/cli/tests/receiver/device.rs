//! Control of a device, from `attach` to `detach`: the device of a gateway, behind which a host
//! downloads.
//!
//! ```text
//!   sender ──── link ──── gateway ──── host        10.78.1.0/24, 10.78.2.0/24, 10.78.3.0/24
//!        far   near far `wan`  `lan`  near         fd78:1::/64, fd78:2::/64, fd78:3::/64
//!              20 Mbit/s ─►
//! ```

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Deref;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt::TcpCongestion};
use serde_json::Value;

use crate::common::{FRESHLINE, assert_fails, assert_succeeded, ip, text};
use crate::hosts::Hosts;
use crate::kit::{alone, attachment, can_run};
use crate::promtool;

/// The namespaces; they are removed with everything attached in them, however a test ends.
struct Gateway {
    hosts: Hosts,
}

impl Gateway {
    fn new(name: &str) -> Self {
        let hosts = ["sender", "link", "gateway", "host"];
        let made = Self { hosts: Hosts::new(&format!("receiver-{name}"), &hosts) };
        made.join(1, ("sender", "far"), ("link", "near"));
        made.join(2, ("link", "far"), ("gateway", "wan"));
        made.join(3, ("gateway", "lan"), ("host", "near"));
        for (host, to, via) in [
            ("sender", "default", "1::2"),
            ("link", "fd78:3::/64", "2::2"),
            ("gateway", "default", "2::1"),
            ("host", "default", "3::1"),
        ] {
            made.ip(host, &format!("route add {to} via fd78:{via}"));
            let four = |address: &str| address.replace("fd78:", "10.78.").replace("::", ".0");
            let (to, via) = (four(to).replace("/64", "/24"), four(via).replace(".0", "."));
            made.ip(host, &format!("route add {to} via 10.78.{via}"));
        }
        for host in ["link", "gateway"] {
            made.within(host, || {
                for setting in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
                    fs::write(format!("/proc/sys/net/{setting}"), "1").unwrap();
                }
            });
        }
        // 400 ms of queue.
        let slow = "qdisc add dev far root tbf rate 20mbit burst 10kb limit 1mb";
        let done = made.command("link", "tc").args(slow.split(' ')).output().unwrap();
        assert_succeeded(&done);
        made
    }

    /// A wire between two hosts, with a name at each.
    fn join(&self, number: u8, one: (&str, &str), other: (&str, &str)) {
        let (host, device) = (self.name(one.0), one.1);
        let (peer, end) = (self.name(other.0), other.1);
        ip(&format!("link add {device} netns {host} type veth peer name {end} netns {peer}"));
        for (namespace, interface, address) in [(&host, device, 1), (&peer, end, 2)] {
            let on = format!("-n {namespace} addr add");
            ip(&format!("{on} 10.78.{number}.{address}/24 dev {interface}"));
            ip(&format!("{on} fd78:{number}::{address}/64 dev {interface} nodad"));
            ip(&format!("-n {namespace} link set dev {interface} up"));
        }
    }

    fn receiver(&self, arguments: &[&str]) -> Output {
        self.command("gateway", FRESHLINE).arg("receiver").args(arguments).output().unwrap()
    }

    /// The `status` of the device, on the gateway.
    fn status(&self) -> Option<Value> {
        attachment(self.command("gateway", FRESHLINE), "device", "wan")
    }

    /// Where the device's control is pinned.
    fn pin(&self) -> String {
        let (netns, index) = self.within("gateway", || {
            let number = fs::read_link("/proc/thread-self/ns/net").unwrap();
            let number = number.to_str().unwrap().replace(|c: char| !c.is_ascii_digit(), "");
            (number, nix::net::if_::if_nametoindex("wan").unwrap())
        });
        format!("/sys/fs/bpf/freshline/receiver-dev-{netns}-{index}")
    }

    /// The sender and the host behind the gateway, connected.
    fn connect(&self, address: &str) -> (TcpStream, TcpStream) {
        let listener = self.within("sender", || TcpListener::bind((address, 0)).unwrap());
        // Which fills a queue at once.
        setsockopt(&listener, TcpCongestion, &"reno".into()).unwrap();
        let port = listener.local_addr().unwrap().port();
        let host = self.within("host", || TcpStream::connect((address, port)).unwrap());
        (listener.accept().unwrap().0, host)
    }
}

impl Deref for Gateway {
    type Target = Hosts;

    fn deref(&self) -> &Hosts {
        &self.hosts
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.receiver(&["detach", "--dev", "wan"]);
    }
}

/// Sends `bytes` bytes and returns the sender's round trip halfway, in ms. The received bytes must
/// equal the sent ones.
fn transfer(gateway: &Gateway, address: &str, bytes: usize) -> f64 {
    let (mut sender, mut host) = gateway.connect(address);
    let port = sender.local_addr().unwrap().port();
    let sent: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            sender.write_all(&sent).unwrap();
            drop(sender);
        });
        let arrived = scope.spawn(move || {
            let mut arrived = Vec::new();
            host.read_to_end(&mut arrived).unwrap();
            arrived
        });
        thread::sleep(Duration::from_secs_f64(bytes as f64 * 8.0 / 20e6 * 0.7));
        let filter = format!("sport = :{port}");
        let seen = gateway.command("sender", "ss").args(["-tinHO", &filter]).output().unwrap();
        let seen = text(&seen.stdout);
        let rtt = seen.split_whitespace().find_map(|word| word.strip_prefix("rtt:"));
        assert_eq!(arrived.join().unwrap(), sent);
        rtt.and_then(|rtt| rtt.split('/').next()?.parse().ok()).expect("a connection")
    })
}

#[test]
#[ignore = "long: measures delays in real time"]
fn a_gateway_keeps_the_queue_of_hosts_behind_it_short() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let gateway = Gateway::new("short");
    let without = transfer(&gateway, "10.78.1.1", 5_000_000);
    // Of DRWA four segments are left, 2.3 ms. On a path without delay any pause of this machine is a
    // long round trip, which RTAC may take for a queue of others, and follow; how short it keeps
    // queues of paths with a delay is for `paths`.
    for (law, part) in [("drwa", 0.25), ("rtac", 0.5)] {
        assert_succeeded(&gateway.receiver(&["attach", "--dev", "wan", "--law", law]));
        for address in ["10.78.1.1", "fd78:1::1"] {
            let with = transfer(&gateway, address, 5_000_000);
            println!("{law}, {address}: {with} ms, {without} ms without");
            assert!(with < without * part, "{law}: {with} ms, {without} ms without");
        }
        let status = gateway.status().unwrap();
        assert_eq!((&status["law"], &status["connections"]), (&law.into(), &2.into()), "{status}");
        assert_eq!(status["windows_refused"], 0, "{status}");
        assert!(status["windows_set"].as_u64().unwrap() > 0, "{status}");
        let known: Vec<_> =
            status["peers"].as_array().unwrap().iter().map(|peer| &peer["address"]).collect();
        assert_eq!(known, ["fd78:1::1", "10.78.1.1"]);
        assert_succeeded(&gateway.receiver(&["detach", "--dev", "wan"]));
    }
}

#[test]
fn control_of_a_device_stays_until_detached_and_then_nothing_is_left() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let gateway = Gateway::new("stays");
    assert_succeeded(&gateway.receiver(&["attach", "--dev", "wan", "--law", "drwa"]));
    let status = gateway.status().unwrap();
    assert_eq!((&status["pinned"], &status["law"]), (&true.into(), &"drwa".into()));
    assert!(Path::new(&gateway.pin()).exists());
    assert_fails(&gateway.receiver(&["attach", "--dev", "wan"]), 1, "wan is under control already");
    // Another device is another's.
    assert_succeeded(&gateway.receiver(&["attach", "--dev", "lan"]));
    assert_succeeded(&gateway.receiver(&["detach", "--dev", "lan"]));

    let metrics = text(&gateway.receiver(&["status", "--metrics"]).stdout);
    let segments = "freshline_receiver_segments_total{device=\"wan\",law=\"drwa\"} 0";
    assert!(metrics.lines().any(|line| line == segments), "{metrics}");
    promtool::check(&metrics);

    assert_succeeded(&gateway.receiver(&["detach", "--dev", "wan"]));
    assert!(gateway.status().is_none() && !Path::new(&gateway.pin()).exists());
    assert_fails(&gateway.receiver(&["detach", "--dev", "wan"]), 1, "nothing is attached to wan");
}

#[test]
fn connections_go_on_before_control_with_it_and_after_its_holder_is_killed() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let gateway = Gateway::new("killed");
    let (mut early, mut early_host) = gateway.connect("10.78.1.1");
    let mut command = gateway.command("gateway", FRESHLINE);
    command.args(["receiver", "attach", "--dev", "wan", "--foreground"]);
    let mut holder = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(holder.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.starts_with("controlling"), "{said}");
    let (mut late, mut late_host) = gateway.connect("10.78.1.1");
    let mut both = |bytes: usize| {
        for (sender, host) in [(&mut early, &mut early_host), (&mut late, &mut late_host)] {
            thread::scope(|scope| {
                scope.spawn(|| sender.write_all(&vec![1; bytes]).unwrap());
                host.read_exact(&mut vec![0; bytes]).unwrap();
            });
        }
    };
    both(1 << 20);
    let status = gateway.status().unwrap();
    assert_eq!(status["pinned"], false);
    assert_eq!(status["connections"], 1, "{status}");
    assert!(status["uncontrolled_segments"].as_u64().unwrap() > 0, "{status}");
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(gateway.status().is_none());
    both(1 << 20);
}

#[test]
fn a_device_that_vanishes_leaves_nothing_that_is_in_the_way() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let vanished = Gateway::new("vanished");
    assert_succeeded(&vanished.receiver(&["attach", "--dev", "wan"]));
    let pin = vanished.pin();
    vanished.ip("gateway", "link del wan");
    assert!(vanished.status().is_none());
    let next = Gateway::new("next");
    assert_succeeded(&next.receiver(&["attach", "--dev", "wan"]));
    assert!(!Path::new(&pin).exists() && next.status().is_some());

    let pin = next.pin();
    next.ip("gateway", "link del wan");
    assert_succeeded(&next.receiver(&["detach", "--dev", "wan"]));
    assert!(!Path::new(&pin).exists());
}

#[test]
fn what_cannot_be_controlled_is_told_apart() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let gateway = Gateway::new("wrong");
    for (arguments, why) in [
        (&["--dev", "none0"][..], "no network device none0"),
        (&["--dev", "wan", "--cgroup", "/sys"], "cannot be used with"),
        (&["--dev", "wan", "--adopt-existing"], "cannot be used with"),
        (&["--dev", "wan", "--law", "reno"], "invalid value 'reno'"),
        (&["--dev", "wan", "--law", "drwa", "--theta", "2"], "belong to RTAC; `--law drwa` has no"),
        (&["--dev", "wan", "--law", "drwa", "--slope", "1e-4"], "belong to RTAC"),
        (&["--dev", "wan", "--pure"], "--slope"),
        (&["--dev", "wan", "--pure", "--slope", "1e-4", "--theta", "2"], "cannot be used with"),
    ] {
        let done = gateway.receiver(&[&["attach"], arguments].concat());
        assert_fails(&done, 2, why);
    }
    // `ip netns exec` has mounts of its own, and pins in them would end with it.
    let done = Command::new("ip")
        .args(["netns", "exec", &gateway.name("gateway"), FRESHLINE])
        .args(["receiver", "attach", "--dev", "wan"])
        .output()
        .unwrap();
    assert_fails(&done, 1, "the BPF file system, where control is pinned, is hidden here");
    assert!(!text(&done.stderr).contains("controlling"), "it does not");
    assert!(gateway.status().is_none());

    assert_succeeded(&gateway.receiver(&["attach", "--dev", "wan"]));
    for (what, said) in
        [("status", "wan: rtac (pins are hidden here)"), ("detach", "is hidden here")]
    {
        let done = Command::new("ip")
            .args(["netns", "exec", &gateway.name("gateway"), FRESHLINE, "receiver", what])
            .output()
            .unwrap();
        assert!(text(&[done.stdout, done.stderr].concat()).contains(said), "{what}");
    }
    assert!(gateway.status().is_some());
}
