//! `freshline router` on the host between the others, and its behaviour in failures.

use std::fs;
use std::net::UdpSocket;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt};
use serde_json::Value;

use super::TIMELY_MS;
use super::lateness::Sleeper;
use super::net::{DEVICE, Net, can_run};
use super::running::{Router, count, output_of};
use super::traffic::{Bulk, arrived_for_nobody, send};
use super::verdict::Verdict;

/// Whether a datagram of `len` bytes comes from A to B, over IPv4 and over IPv6.
pub(crate) fn passes(net: &Net, len: usize) -> bool {
    ["10.77.2.1", "fd77:2::1"].into_iter().all(|address| {
        let address: std::net::IpAddr = address.parse().unwrap();
        let receiver = net.within("b", || UdpSocket::bind((address, 0)).unwrap());
        receiver.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let to = receiver.local_addr().unwrap();
        net.within("a", || {
            let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            UdpSocket::bind(any).unwrap().send_to(&vec![7; len], to).unwrap();
        });
        receiver.recv(&mut vec![0; len + 1]).is_ok_and(|received| received == len)
    })
}

#[test]
fn a_router_that_is_killed_leaves_nothing_and_packets_pass() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    let mut router = Router::start(&net, &["--rate", "20mbit"]);
    assert_ne!(net.queues(), "");
    router.running.signal(Signal::SIGKILL);
    router.running.0.wait().unwrap();
    assert_eq!(net.queues(), "");
    assert!(passes(&net, 100));
    // The next router can start, and sees the packets.
    let router = Router::start(&net, &["--rate", "20mbit", "--classify", "udp force"]);
    assert!(passes(&net, 100));
    assert!(count(&router.stop()["classes"][0]["packets_out"]) >= 2);
    assert!(passes(&net, 100));
}

/// Any user can take an abstract name in a network namespace, and answer as it likes.
#[test]
fn another_user_can_neither_keep_a_router_from_starting_nor_answer_for_it() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    let name = SocketAddr::from_abstract_name(format!("freshline-router-{DEVICE}")).unwrap();
    let _squatter = net.within("r", || UnixListener::bind_addr(&name).unwrap());
    let status = ["router", "status", "--dev", DEVICE];
    let (code, _, message) = output_of(net.freshline("r", &status).spawn().unwrap());
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains("no `freshline router run` answers"), "{message}");
    let router = Router::start(&net, &["--rate", "20mbit"]);
    let folder = fs::metadata("/run/freshline").unwrap();
    assert_eq!((folder.uid(), folder.mode() & 0o777), (0, 0o700));
    assert!(passes(&net, 100));
    router.stop();
}

#[test]
fn a_second_router_for_a_device_or_a_queue_is_refused() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    let router = Router::start(&net, &["--rate", "20mbit"]);
    for (flags, reason) in [
        (&["--rate", "1mbit"][..], "another `freshline router` shapes b"),
        (&["--rate", "1mbit", "--dev", "a"], "queue 3774 is taken"),
    ] {
        let mut command = vec!["router", "run"];
        command.extend(if flags.len() == 2 { &["--dev", DEVICE][..] } else { &[] });
        command.extend(flags);
        let (code, _, message) = output_of(net.freshline("r", &command).spawn().unwrap());
        assert_eq!(code, Some(1), "{message}");
        assert!(message.replace("\n  │", "").contains(reason), "{message}");
    }
    let other = ["router", "run", "--dev", "a", "--rate", "1mbit", "--queue-number", "5"];
    let other = [&other[..], &["--duration", "10ms"]].concat();
    assert_eq!(output_of(net.freshline("r", &other).spawn().unwrap()).0, Some(0));
    assert_eq!(count(&router.stop()["failures"]), 0);
}

#[test]
fn rate_and_share_change_while_it_runs() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    let router = Router::start(&net, &["--rate", "20mbit", "--aoi-share", "0.25"]);
    let before = router.status();
    assert_eq!(
        (&before["aoi_share"], &before["super_packets"]),
        (&0.25.into(), &"segmented".into())
    );
    let (code, out, _) = router.ask("set", &["--rate", "2gbit", "--aoi-share", "0.75"]);
    let after: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &after["aoi_share"]), (Some(0), &0.75.into()));
    assert_eq!(
        (count(&after["rate_bps"]), &after["super_packets"]),
        (2_000_000_000, &"whole".into())
    );
    assert!(passes(&net, 100));
    let (code, _, message) = router.ask("set", &["--rate", "0mbit"]);
    assert_eq!(code, Some(2));
    assert!(message.contains("rate is zero"), "{message}");
    router.stop();

    let router = Router::start(&net, &["--rate", "20mbit", "--queue", "fifo"]);
    let (code, _, message) = router.ask("set", &["--aoi-share", "0.5", "--rate", "1mbit"]);
    assert_eq!(code, Some(2));
    assert!(message.contains("no share to set"), "{message}");
    assert_eq!(count(&router.stop()["rate_bps"]), 20_000_000, "all of an order or nothing");
}

#[test]
fn fragments_arrive_whole_and_are_no_updates() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    let router = Router::start(&net, &["--rate", "20mbit", "--classify", "udp force"]);
    assert!(passes(&net, 5_000));
    let report = router.stop();
    assert_eq!(count(&report["classes"][0]["packets_in"]), 0);
    // Four fragments of each; the hosts' own packets of IPv6 are in the same class.
    let of_udp = |flow: &&Value| flow["protocol"] == 17;
    let flows: Vec<_> = report["flows"].as_array().unwrap().iter().filter(of_udp).collect();
    assert_eq!(flows.len(), 2, "fragments of a packet are one flow: {flows:?}");
    assert!(flows.iter().all(|flow| count(&flow["packets_out"]) == 4), "{flows:?}");
}

#[test]
#[ignore = "long: measures rates in real time"]
fn a_classifier_reads_the_marks_of_senders() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    let router = Router::start(
        &net,
        &["--rate", "20mbit", "--classify", "port=9 as drop_averse; dscp=EF force"],
    );
    net.within("a", || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.send_to(b"unmarked", (net.far(), 5_000)).unwrap();
        let expedited: i32 = 46 << 2;
        setsockopt(&socket, sockopt::Ipv4Tos, &expedited).unwrap();
        socket.send_to(b"marked", (net.far(), 5_001)).unwrap();
        socket.send_to(b"marked, but for port 9", (net.far(), 9)).unwrap();
    });
    let report = router.stop();
    let of_udp = |flow: &&Value| flow["protocol"] == 17;
    let flows = report["flows"].as_array().unwrap().iter().filter(of_udp);
    let mut found: Vec<_> = flows
        .map(|flow| {
            let port = flow["destination"].as_str().unwrap().rsplit(':').next().unwrap();
            format!("{port} {}", flow["class"].as_str().unwrap())
        })
        .collect();
    found.sort();
    assert_eq!(found, ["5000 drop_averse", "5001 aoi", "9 drop_averse"]);
}

#[test]
#[ignore = "long: takes many seconds of real time"]
fn a_flood_of_flows_is_bounded_and_others_go_on() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    let router = Router::start(&net, &["--rate", "5mbit", "--classify", "udp force"]);
    let bulk = Bulk::start(&net);
    thread::sleep(Duration::from_millis(500));
    let goodput = thread::scope(|scope| {
        scope.spawn(|| send(&net, 500, (10_000..).take(20_000)));
        bulk.goodput(Duration::from_secs(1))
    });
    drop(bulk);
    // Updates without a reader have half of the link, and the stream has the rest.
    assert!(goodput > 1e6, "{goodput}");
    let report = router.stop();
    assert!(count(&report["classes"][0]["queue_full"]) > 0, "{report}");
    assert_eq!(count(&report["failures"]), 0, "{report}");
    assert!(count(&report["flows_evicted"]) > 0 && report["flows"].as_array().unwrap().len() <= 20);
    assert_eq!(report["flows"][0]["protocol"], 6, "the heaviest is the real one");
}

#[test]
fn what_the_kernel_s_queue_does_not_hold_is_counted() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    // Limits in packets are lowered to the limit of the kernel's queue; a limit in bytes is not.
    let router = Router::start(&net, &["--rate", "1mbit", "--queue", "10000kB"]);
    send(&net, 100, (10_000..).take(6_000));
    let status = router.status();
    let lost = &status["kernel_drops"];
    assert!(count(&lost["queue_full"]) + count(&lost["unread"]) > 1_000, "{status}");
    assert!(count(&status["backlog"]["packets"]) <= count(&status["backlog"]["limit"]), "{status}");
    // Queued packets are released at its end, and arrive.
    let arrived = arrived_for_nobody(&net);
    let report = router.stop();
    let more = arrived_for_nobody(&net) - arrived;
    assert!(more > 1_000, "{more} of {status}");
    let of_all = |what: &str| -> u64 {
        report["classes"].as_array().unwrap().iter().map(|class| count(&class[what])).sum()
    };
    assert_eq!(of_all("packets_in"), of_all("packets_out"));
    assert!(passes(&net, 100));
}

#[test]
fn what_is_routed_into_a_tun_device_comes_out_of_it_shaped() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    let router = Router::behind_tun(&net, &["--rate", "20mbit"]);
    assert!(passes(&net, 100) && passes(&net, 5_000));
    let bulk = Bulk::start(&net);
    thread::sleep(Duration::from_millis(500));
    let goodput = bulk.goodput(Duration::from_secs(2));
    drop(bulk);
    assert!((16e6..20e6).contains(&goodput), "{goodput}");
    let report = router.stop();
    let of_tcp = report["flows"].as_array().unwrap().iter().find(|flow| flow["protocol"] == 6);
    let of_tcp = of_tcp.unwrap();
    let mean = count(&of_tcp["bytes_in"]) / count(&of_tcp["packets_in"]);
    assert!(mean <= 1_500, "super-packets are cut: {mean} B");
}

#[test]
fn an_aqm_marks_in_place_of_drops_where_senders_take_part() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    for host in ["a", "b"] {
        net.set(host, "ipv4/tcp_ecn", "1");
    }
    let flags = ["--rate", "10mbit", "--queue", "fq_codel"];
    for start in [Router::start, Router::behind_tun] {
        let carried = || {
            let (sleeper, router) = (Sleeper::start(), start(&net, &flags));
            let bulk = Bulk::start(&net);
            let goodput = bulk.goodput(Duration::from_secs(2));
            drop(bulk);
            let class = router.stop()["classes"][1].clone();
            // Marked packets arrive, so their checksums are right.
            let (marked, dropped) = (count(&class["marked"]), count(&class["congestion"]));
            assert!(marked > 0 && dropped == 0, "{marked} marked, {dropped} dropped");
            println!("{goodput} bit/s");
            Verdict::of(goodput > 8e6, sleeper.end().p99_ms, TIMELY_MS)
        };
        assert!(carried().or_again(carried));
    }
}

#[test]
fn super_packets_pass_whole_at_high_rates() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    let measure = || {
        let bulk = Bulk::start(&net);
        thread::sleep(Duration::from_millis(500));
        bulk.goodput(Duration::from_secs(2))
    };
    println!("kernel TCP without the router: {:.2} Gbit/s", measure() / 1e9);
    let tbf = |arguments: &str| {
        let mut tc = std::process::Command::new("tc");
        tc.arg("qdisc").args(arguments.split(' '));
        net.within("r", || tc.status().unwrap().success())
    };
    // The limit for a router that shapes to the same rate.
    if tbf(&format!("add dev {DEVICE} root tbf rate 10gbit burst 2mb limit 20mb")) {
        println!("kernel TCP through tbf: {:.2} Gbit/s", measure() / 1e9);
        assert!(tbf(&format!("del dev {DEVICE} root")));
    }
    let router = Router::start(&net, &["--rate", "10gbit"]);
    let goodput = measure();
    let report = router.stop();
    println!("kernel TCP through the router: {:.2} Gbit/s", goodput / 1e9);
    let class = &report["classes"][1];
    let mean = count(&class["bytes_out"]) / count(&class["packets_out"]);
    assert!(goodput > 1e7 && mean > 3_000, "{goodput} bit/s in packets of {mean} B");
}

#[test]
fn what_makes_no_sense_is_refused_with_a_reason() {
    let refused = |flags: &str, reason: &str| {
        let mut command = std::process::Command::new(super::common::FRESHLINE);
        let done = command.args(["router", "run"]).args(flags.split(' ')).output().unwrap();
        let message = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(2), "{flags}: {message}");
        assert!(message.replace("\n  │", "").contains(reason), "{flags}: {message}");
    };
    refused("--rate 1mbit", "no device: give --dev");
    refused("--dev lo", "no rate: give --rate");
    refused("--dev lo --rate 0mbit", "rate is zero");
    refused("--dev nowhere0 --rate 1mbit", "no device `nowhere0`");
    refused("--dev lo --rate fast", "fast");
    refused("--dev lo --rate 1mbit --fail-open 500ms", "give from 1s to 1h");
    refused("--dev lo --rate 1mbit --aoi-share 2", "from 0 to 1");
    refused("--dev lo --rate 1mbit --queue 100p --aoi-share 0.5", "does not distinguish classes");
    refused("--dev lo --rate 1mbit --queue 0p", "`limit` is zero");
    refused("--dev lo --rate 1mbit --frame 10ms", "sdm has no frame");
    refused("--dev lo --rate 1mbit --scheduler tdm --credit 5kB", "tdm has no credit");
    refused("--dev lo --rate 1mbit --scheduler tdm --frame 0ms", "`frame` is 0ns");
    refused("--dev lo --rate 1mbit --classify sctp", "is not a test");
    refused("--dev lo --tun shaped --rate 1mbit", "cannot be used with");
    refused("--config /nonexistent/router.toml", "cannot read");
}
