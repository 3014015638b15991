//! Packets arrive unchanged, and a flood does not cost other flows their packets.

use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};

use super::net::{Net, can_run};
use super::router::passes;
use super::running::{Router, count};
use super::traffic::Bulk;

/// Marked as of a sender that takes part in ECN, ECT(0).
const CAPABLE: i32 = 2;

/// How many UDP datagrams came to B, over IPv4 and IPv6, and of how many the checksum was wrong.
fn arrived(net: &Net) -> [u64; 2] {
    net.within("b", || {
        let read =
            |file: &str| fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
        let four = read("snmp");
        let mut rows = four.lines().filter_map(|line| line.strip_prefix("Udp: "));
        let [names, values] = [rows.next(), rows.next()].map(|row| row.unwrap().split(' '));
        let four: Vec<_> = names.zip(values).collect();
        let six = read("snmp6");
        let of = |name: &str| {
            let four = four.iter().find(|(known, _)| *known == name).unwrap().1;
            let six =
                six.lines().find_map(|line| line.strip_prefix(&format!("Udp6{name}"))).unwrap();
            four.parse::<u64>().unwrap() + six.trim().parse::<u64>().unwrap()
        };
        [of("InDatagrams") + of("NoPorts") + of("RcvbufErrors"), of("InCsumErrors")]
    })
}

/// Sends datagrams of all sizes from a host to B, as fast as it can, of both families.
fn send_all_sizes(net: &Net, host: &str, rounds: usize) -> u64 {
    net.within(host, || {
        let mut sent = 0;
        for (any, to) in [("0.0.0.0:0", "10.77.2.1"), ("[::]:0", "fd77:2::1")] {
            let to: IpAddr = to.parse().unwrap();
            let socket = UdpSocket::bind(any).unwrap();
            setsockopt(&socket, sockopt::Ipv4Tos, &CAPABLE).unwrap();
            if to.is_ipv6() {
                setsockopt(&socket, sockopt::Ipv6TClass, &CAPABLE).unwrap();
            }
            for round in 0..rounds {
                for size in [1, 12, 60, 333, 1000, 1452] {
                    // The kernel reports a closed port, once.
                    let port = 20_000 + (round % 8) as u16;
                    sent += u64::from(socket.send_to(&vec![7; size], (to, port)).is_ok());
                }
            }
        }
        sent
    })
}

#[test]
fn no_checksum_is_wrong_whoever_sends_and_whether_super_packets_are_cut() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    // Each knows its neighbours by now.
    assert!(passes(&net, 100));
    let config = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    // Every packet that waits is marked.
    let queue =
        "{ discipline = \"fq_codel\", target = \"1us\", interval = \"10us\", limit = \"4000p\" }";
    fs::write(config.path(), format!("queue = {queue}\n")).unwrap();
    // At the second one they are whole.
    let mut marked = 0;
    for rate in ["50mbit", "600mbit"] {
        let flags = ["--rate", rate, "--config", config.path().to_str().unwrap()];
        for host in ["a", "r"] {
            let router = Router::start(&net, &flags);
            let before = arrived(&net);
            let sent = send_all_sizes(&net, host, 60);
            // Queued packets leave at the end.
            let report = router.stop();
            let [came, wrong] = arrived(&net);
            let class = &report["classes"][1];
            println!("{rate} from {host}: {} of {sent} marked", class["marked"]);
            assert_eq!(wrong - before[1], 0, "{rate} from {host}: {report}");
            let dropped = count(&class["congestion"]);
            assert_eq!(came - before[0] + dropped, sent, "{rate} from {host}: {report}");
            marked += count(&class["marked"]);
        }
    }
    assert!(marked > 0);
}

/// Segments of TCP that came to B with a wrong checksum.
fn wrong_segments(net: &Net) -> u64 {
    let table = net.within("b", || fs::read_to_string("/proc/thread-self/net/snmp").unwrap());
    let mut rows = table.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let [names, values] = [rows.next(), rows.next()].map(|row| row.unwrap().split(' '));
    let (_, wrong) = names.zip(values).find(|(name, _)| *name == "InCsumErrors").unwrap();
    wrong.parse().unwrap()
}

#[test]
fn no_checksum_of_tcp_is_wrong_where_super_packets_are_cut_whole_or_come_out_of_a_tun_device() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    for host in ["a", "b"] {
        net.set(host, "ipv4/tcp_ecn", "1");
    }
    let config = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    let queue = "{ discipline = \"fq_codel\", target = \"1ms\", interval = \"20ms\" }";
    fs::write(config.path(), format!("queue = {queue}\n")).unwrap();
    let file = config.path().to_str().unwrap();
    for (kind, rate) in [("cut", "50mbit"), ("whole", "600mbit"), ("TUN", "50mbit")] {
        let start = if kind == "TUN" { Router::behind_tun } else { Router::start };
        let before = wrong_segments(&net);
        let router = start(&net, &["--rate", rate, "--config", file]);
        let bulk = Bulk::start(&net);
        let goodput = bulk.goodput(Duration::from_millis(1_500));
        drop(bulk);
        let report = router.stop();
        let class = &report["classes"][1];
        println!("{kind}: {:.1} Mbit/s, {} marked", goodput / 1e6, class["marked"]);
        assert_eq!(wrong_segments(&net) - before, 0, "{kind}: {report}");
        assert!(goodput > 1e6, "{kind}: {goodput} bit/s");
        if kind == "whole" {
            let mean = count(&class["bytes_out"]) / count(&class["packets_out"]);
            assert!(mean > 3_000, "{mean} B");
        } else {
            assert!(count(&class["marked"]) > 0, "{kind}: {report}");
        }
    }
}

/// Probes over IPv4 and IPv6 during a flood from the same host: how many of a hundred arrive over
/// each.
fn beside_a_flood(net: &Net) -> [usize; 2] {
    let router = Router::start(net, &["--rate", "4mbit", "--queue", "fq_codel"]);
    let receivers = ["10.77.2.1", "fd77:2::1"].map(|address| {
        let address: IpAddr = address.parse().unwrap();
        net.within("b", || UdpSocket::bind((address, 0)).unwrap())
    });
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // Up to ten times the link's capacity.
        scope.spawn(|| {
            net.within("a", || {
                let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    (0..4).for_each(|_| _ = socket.send_to(&[7; 1400], (net.far(), 9)));
                    thread::sleep(Duration::from_millis(1));
                }
            });
        });
        net.within("a", || {
            let senders = ["0.0.0.0:0", "[::]:0"].map(|any| UdpSocket::bind(any).unwrap());
            for _ in 0..100 {
                for (sender, receiver) in senders.iter().zip(&receivers) {
                    sender.send_to(&[1; 40], receiver.local_addr().unwrap()).unwrap();
                }
                thread::sleep(Duration::from_millis(10));
            }
        });
        is_over.store(true, Ordering::Relaxed);
    });
    let neighbours = net.command("r", "ip").args(["neigh", "show", "dev", "b"]).output().unwrap();
    let neighbours = String::from_utf8(neighbours.stdout).unwrap();
    assert!(!neighbours.contains("INCOMPLETE") && !neighbours.contains("FAILED"), "{neighbours}");
    let class = router.stop()["classes"][1].clone();
    assert!(count(&class["queue_full"]) + count(&class["congestion"]) > 0, "no flood: {class}");
    receivers.map(|receiver| {
        receiver.set_nonblocking(true).unwrap();
        std::iter::from_fn(|| receiver.recv(&mut [0; 64]).ok()).count()
    })
}

#[test]
fn an_innocent_flow_loses_nothing_beside_a_flood_and_its_neighbour_stays_known() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    // By chance a probe and the flood may have the same queue, or the router no processor for long.
    let mut lose_nothing = (0..3).map(|_| {
        let came = beside_a_flood(&net);
        println!("{came:?} of 100 probes");
        came.into_iter().all(|came| came >= 99)
    });
    assert!(lose_nothing.any(|nothing| nothing));
}
