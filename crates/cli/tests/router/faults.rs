//! Faults around a running `freshline router`.

use std::fs;
use std::io::Read;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::NamedTempFile;

use super::net::{DEVICE, Net, Running, can_run};
use super::router::passes;
use super::running::{Router, count, output_of};
use super::traffic::send;

#[test]
fn the_link_goes_on_when_another_router_ends_the_device_was_down_or_it_was_stopped() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    for queue in QUEUES {
        let config = config_of(queue);
        let router = Router::start(&net, &["--config", config.path().to_str().unwrap()]);
        let events: [&dyn Fn(); 3] = [
            &|| {
                // Its chain goes with it, as any that a reload of a firewall removes.
                let other =
                    ["router", "run", "--dev", "a", "--rate", "1mbit", "--queue-number", "5"];
                let other = [&other[..], &["--duration", "10ms"]].concat();
                assert_eq!(output_of(net.freshline("r", &other).spawn().unwrap()).0, Some(0));
            },
            &|| {
                for state in ["down", "up"] {
                    net.ip("r", &format!("link set dev {DEVICE} {state}"));
                }
                net.ip("r", "addr replace fd77:2::2/64 dev b nodad");
            },
            &|| {
                router.running.signal(Signal::SIGSTOP);
                thread::sleep(Duration::from_millis(200));
                router.running.signal(Signal::SIGCONT);
                // All that waits leaves, as the rate is another.
                assert_eq!(router.ask("set", &["--rate", "1gbit"]).0, Some(0));
            },
        ];
        for event in events {
            fill(&net, &router, queue);
            event();
            // Within 2 s each.
            assert!(passes(&net, 100), "{queue}");
        }
        let report = router.stop();
        assert!(count(&report["kernel_drops"]["flushed"]) > 400, "{queue}: {report}");
    }
}

/// Disciplines that hold the packets of [`fill`], as in a file. IFIL keeps one packet of each flow.
const QUEUES: [&str; 7] = [
    "\"1000p\"",
    "\"lifo\"",
    // With its defaults it drops probes after a fill, since its mean queue is long.
    "{ discipline = \"red\", limit = \"1MB\", min = \"400kB\", max = \"900kB\" }",
    "\"codel\"",
    "\"drr\"",
    "\"fq_codel\"",
    "\"ifc\"",
];

fn config_of(queue: &str) -> NamedTempFile {
    let config = NamedTempFile::with_suffix(".toml").unwrap();
    fs::write(config.path(), format!("rate = \"1mbit\"\nqueue = {queue}\n")).unwrap();
    config
}

/// Sends 260 packets, which take 3 s at 1 Mbit/s.
fn fill(net: &Net, router: &Router<'_>, queue: &str) {
    send(net, 1400, (10_000..).take(260));
    let waiting = count(&router.status()["backlog"]["packets"]);
    assert!(waiting > 200, "{queue}: {waiting}");
}

#[test]
fn behind_a_tun_device_the_link_goes_on_too_and_queued_packets_leave() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    for queue in QUEUES {
        let config = config_of(queue);
        let router = Router::behind_tun(&net, &["--config", config.path().to_str().unwrap()]);
        let events: [&dyn Fn(); 3] = [
            &|| {
                for state in ["down", "up"] {
                    net.ip("r", &format!("link set dev {DEVICE} {state}"));
                }
                net.ip("r", "addr replace fd77:2::2/64 dev b nodad");
            },
            &|| {
                for state in ["down", "up"] {
                    net.ip("r", &format!("link set dev shaped {state}"));
                }
                for family in ["-4", "-6"] {
                    net.ip("r", &format!("{family} route add default dev shaped table 100"));
                }
            },
            &|| {
                router.running.signal(Signal::SIGSTOP);
                thread::sleep(Duration::from_millis(200));
                router.running.signal(Signal::SIGCONT);
            },
        ];
        for event in events {
            fill(&net, &router, queue);
            event();
            // All that waits takes less than 0.1 s now; LIFO sends the probe first.
            assert_eq!(router.ask("set", &["--rate", "50mbit"]).0, Some(0));
            assert!(passes(&net, 100), "{queue}");
            let is_empty = || count(&router.status()["backlog"]["packets"]) < 20;
            assert!((0..20).any(|_| is_empty()), "{queue}: queued packets do not leave");
            assert_eq!(router.ask("set", &["--rate", "1mbit"]).0, Some(0));
        }
        router.stop();
        for family in ["-4", "-6"] {
            net.ip("r", &format!("{family} rule del iif a lookup 100"));
        }
    }
}

#[test]
fn neighbour_discovery_passes_beside_the_queue() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    let router = Router::start(&net, &["--rate", "1mbit", "--queue", "fifo"]);
    net.ip("r", &format!("-6 neigh flush dev {DEVICE}"));
    // 50 packets of one flow take 0.6 s.
    net.within("a", || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        (0..50).for_each(|_| _ = socket.send_to(&[7; 1400], (net.far(), 9)).unwrap());
    });
    let receiver = net.within("b", || UdpSocket::bind("[fd77:2::1]:0").unwrap());
    receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let to = receiver.local_addr().unwrap();
    net.within("a", || UdpSocket::bind("[::]:0").unwrap().send_to(b"x", to).unwrap());
    assert_eq!(receiver.recv(&mut [0; 8]).ok(), Some(1));
    let report = router.stop();
    let flows = report["flows"].as_array().unwrap();
    assert!(flows.iter().all(|flow| flow["protocol"] != 58), "{report}");
}

#[test]
fn a_router_ends_when_its_tun_device_is_removed() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    let mut router = Router::behind_tun(&net, &["--rate", "20mbit"]);
    net.ip("r", "link del shaped");
    let status = router.running.0.wait().unwrap();
    let mut said = String::new();
    let mut errors = router.running.0.stderr.take().unwrap();
    std::io::Read::read_to_string(&mut errors, &mut said).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("the device `shaped` has been removed"), "{said}");
}

#[test]
fn a_device_is_shaped_by_an_alternative_name_and_a_port_of_a_bridge_is_refused() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    net.ip("r", &format!("link property add dev {DEVICE} altname uplink0"));
    let router = Router::by_name(&net, "uplink0", &["--rate", "20mbit"]);
    assert!(passes(&net, 100));
    let report = router.stop();
    assert!(count(&report["classes"][1]["packets_out"]) >= 2, "{report}");

    for command in ["link add bridge0 type bridge", "link add port0 type veth peer name port1"] {
        let made = net.command("r", "ip").args(command.split(' ')).status().unwrap();
        if !made.success() {
            println!("skipped: needs bridges in the kernel");
            return;
        }
    }
    net.ip("r", "link set dev port0 master bridge0");
    let command = ["router", "run", "--dev", "port0", "--rate", "1mbit", "--duration", "10ms"];
    let (code, _, said) = output_of(net.freshline("r", &command).spawn().unwrap());
    assert_eq!(code, Some(2), "{said}");
    assert!(said.replace("\n  │", "").contains("give --dev bridge0"), "{said}");
}

#[test]
fn packets_pass_a_router_that_is_stopped_and_are_shaped_again_once_it_runs() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    let flags = ["--rate", "20mbit", "--classify", "udp force", "--fail-open", "1s"];
    let mut router = Router::start(&net, &flags);
    let updates = |router: &Router<'_>| count(&router.status()["classes"][0]["packets_in"]);
    // For longer than a lease: it is renewed.
    thread::sleep(Duration::from_millis(2200));
    assert!(passes(&net, 100));
    assert_eq!(updates(&router), 2);

    router.running.signal(Signal::SIGSTOP);
    thread::sleep(Duration::from_millis(1500));
    assert!(passes(&net, 100), "the device is a black hole");
    router.running.signal(Signal::SIGCONT);
    assert_eq!(updates(&router), 2, "they passed without it");
    // Until its thread for the lease has seen a turn of the loop.
    thread::sleep(Duration::from_millis(500));
    assert!(passes(&net, 100));
    assert_eq!(updates(&router), 4);
    let unshaped = &router.status()["unshaped"];
    assert_eq!(count(&unshaped["count"]), 1, "{unshaped}");
    let seconds = unshaped["duration_s"].as_f64().unwrap();
    assert!((0.4..60.0).contains(&seconds), "1.5 s without a lease of 1 s, and the time before");
    let mut errors = router.running.0.stderr.take().unwrap();
    router.stop();
    let mut said = String::new();
    errors.read_to_string(&mut said).unwrap();
    assert!(said.contains("the router hung or was stopped: for about"), "{said}");
}

/// The datagrams that a service manager gets.
#[test]
fn a_service_manager_is_told_that_the_router_is_ready_and_runs_and_ends() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    let folder = tempfile::tempdir().unwrap();
    let manager = UnixDatagram::bind(folder.path().join("notify")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let message = || {
        let mut buffer = [0; 64];
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    };
    let run = ["router", "run", "--json", "--dev", DEVICE, "--rate", "20mbit"];
    let mut command = net.freshline("r", &run);
    command.env("NOTIFY_SOCKET", folder.path().join("notify")).env("WATCHDOG_USEC", "200000");
    let router = Running(command.spawn().unwrap());
    assert_eq!([message(), message(), message()], ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]);
    router.signal(Signal::SIGSTOP);
    thread::sleep(Duration::from_millis(300));
    manager.set_nonblocking(true).unwrap();
    while manager.recv(&mut [0; 64]).is_ok() {}
    thread::sleep(Duration::from_millis(300));
    assert!(manager.recv(&mut [0; 64]).is_err(), "a sign of life of a router that is stopped");
    manager.set_nonblocking(false).unwrap();
    router.signal(Signal::SIGCONT);
    assert_eq!(message(), "WATCHDOG=1");
    router.signal(Signal::SIGTERM);
    while message() != "STOPPING=1" {}
}
