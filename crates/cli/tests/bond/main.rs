//! `freshline bond` as a user meets it, on the running kernel, between two hosts in namespaces.

// Not all of it is for a command that needs no rights.
#[allow(dead_code)]
#[path = "../common/mod.rs"]
mod common;
mod net;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::assert_fails;
use net::{Net, Rate, can_run, download, download_while, ended, made_up};

/// What a whole machine to itself shows is in the book; this is what a busy one must.
const LEAST: f64 = 0.75;

/// A download over both paths, as part of the sum of their rates, in frames on the wire.
fn share_of_sum(rates: [Rate; 2], options: &str, megabytes: u64) -> f64 {
    let net = Net::new(rates);
    net.serve(made_up);
    let _server = net.server(&format!("--allow 10.79.0.0/16 {options}"));
    let _client = net.client(options);
    let sum: u32 = rates.iter().sum();
    let got = download(net.connect(), megabytes * 1_000_000);
    let share = got.mbps() / f64::from(sum);
    println!("{rates:?} {options}: {:.2} Mbit/s, {:.1} % of the sum", got.mbps(), 100.0 * share);
    share
}

#[test]
fn a_download_gets_the_sum_of_two_paths() {
    if !can_run() {
        return;
    }
    for scheduler in ["qaware", "min_srtt"] {
        let options = format!("--scheduler {scheduler}");
        let best = (0..3).map(|_| share_of_sum([10, 5], &options, 10)).find(|share| *share > LEAST);
        assert!(best.is_some(), "{scheduler}");
    }
}

#[test]
fn a_download_gets_the_sum_of_two_paths_of_unlike_delays() {
    if !can_run() {
        return;
    }
    let net = Net::new([100, 100]);
    net.serve(made_up);
    let _server = net.server("--allow 10.79.0.0/16");
    let hop = "rate=20mbit,queue=100p";
    let _near = net.emulated("10.79.1.2:3776", "delay=5ms", &format!("{hop},delay=5ms"));
    let _far = net.emulated("10.79.2.2:3776", "delay=20ms", &format!("{hop},delay=20ms"));
    let _client = net.client_via("--via v1@10.79.1.2:3776,v2@10.79.2.2:3776");
    let share = |_| {
        let share = download(net.connect(), 20_000_000).mbps() / 40.0;
        println!("20 Mbit/s with 10 ms and 20 with 40 ms: {:.1} % of the sum", 100.0 * share);
        share
    };
    assert!((0..3).map(share).any(|share| share > LEAST));
}

#[test]
fn a_file_arrives_whole_although_a_path_is_cut_and_comes_back() {
    if !can_run() {
        return;
    }
    let net = Net::new([10, 5]);
    net.serve(made_up);
    let _server = net.server("--allow 10.79.0.0/16");
    let _client = net.client("");
    // First the path goes without a word, and then the interface.
    let mut step = 0;
    let got = download_while(net.connect(), 25_000_000, |at| {
        let due = [2, 5, 8, 11].map(Duration::from_secs);
        if due.get(step).is_some_and(|due| at > *due) {
            step += 1;
            match step {
                1 => net.cut(true),
                2 => net.cut(false),
                3 => net.ip("c", "link set dev v1 down"),
                _ => {
                    net.ip("c", "link set dev v1 up");
                    net.ip("c", "route add default via 10.79.1.2 metric 1");
                }
            }
        }
    });
    assert_eq!(step, 4, "the file came too soon");
    for second in 0..got.elapsed.as_secs() {
        let [from, to] = [second, second + 1].map(Duration::from_secs);
        println!("second {second}: {:.1} Mbit/s", got.mbps_between(from, to));
    }
}

/// A stream's end is passed on while the other direction goes on.
#[test]
fn an_end_is_passed_on_and_the_answer_comes_after_it() {
    if !can_run() {
        return;
    }
    let net = Net::new([50, 50]);
    net.serve(|mut stream: TcpStream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        all.reverse();
        stream.write_all(&all).unwrap();
    });
    let _server = net.server("--allow 10.79.9.9:8000");
    let _client = net.client("");
    let mut stream = net.connect();
    stream.write_all(b"desrever").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "reversed");
}

#[test]
fn private_destinations_are_closed_unless_they_are_allowed() {
    if !can_run() {
        return;
    }
    let net = Net::new([50, 50]);
    net.serve(made_up);
    for (allow, is_open) in [
        ("", false),
        ("--allow 10.79.9.9:8001", false),
        ("--allow 10.80.0.0/16", false),
        ("--allow 10.79.9.9:8000", true),
    ] {
        let _server = net.server(allow);
        let _client = net.client("");
        let mut stream = net.connect();
        let mut byte = [0];
        let _ = stream.write_all(&1u64.to_be_bytes());
        let got = stream.read(&mut byte);
        // A reset, or the end.
        assert_eq!(matches!(got, Ok(1)), is_open, "`{allow}`: {got:?}");
    }
}

#[test]
fn strangers_cannot_use_the_relay() {
    if !can_run() {
        return;
    }
    let net = Net::new([50, 50]);
    let _server = net.server("");
    let forward = "--forward 127.0.0.1:8001=10.79.9.9:8000 --duration 20s";
    let stranger = ended(net.client_of("x", &format!("--via v1,v2 {forward}")));
    assert_fails(&stranger, 1, "does not trust our certificate");
    // And the other way round: a server with another certificate than the one that is pinned.
    let whom = net.pin("x");
    let options = format!("client --pin {whom} {forward} 10.79.9.9:3775");
    let state = tempfile::tempdir().unwrap();
    let mut command = net.bond("c", &options);
    command.arg("--state").arg(state.path().join("c"));
    assert_fails(&ended(command), 1, "is pinned");
}

#[test]
fn programs_say_by_socks_where_they_want_to_go() {
    if !can_run() {
        return;
    }
    let net = Net::new([50, 50]);
    net.serve(made_up);
    let _server = net.server("--allow localhost:8000,10.79.9.9:8000");
    let _client = net.client("--listen 127.0.0.1:1080");
    let ask = |target: &[u8]| {
        let mut stream = net.connect_to("127.0.0.1:1080");
        stream.write_all(&[5, 1, 0]).unwrap();
        let mut greeted = [0; 2];
        stream.read_exact(&mut greeted).unwrap();
        assert_eq!(greeted, [5, 0]);
        stream.write_all(&[&[5, 1, 0], target].concat()).unwrap();
        let mut answer = [0; 10];
        stream.read_exact(&mut answer).unwrap();
        (stream, answer[1])
    };
    let (stream, reply) = ask(&[1, 10, 79, 9, 9, 31, 64]);
    assert_eq!(reply, 0);
    download(stream, 100_000);
    // A name is looked up by the server; nobody listens at its own address.
    let (_, reply) = ask(&[&[3, 9], &b"localhost"[..], &[31, 64]].concat());
    assert_eq!(reply, 5, "refused by the destination");
    let (_, reply) = ask(&[1, 10, 79, 9, 9, 31, 65]);
    assert_eq!(reply, 2, "forbidden");
}

#[test]
fn a_thousand_connections_are_carried_at_once_and_one_that_does_not_read_stops_none() {
    if !can_run() {
        return;
    }
    let net = Net::new([100, 100]);
    net.serve(made_up);
    let _server = net.server("--allow 10.79.9.9:8000");
    let _client = net.client("");
    // They want much and read nothing.
    let lazy: Vec<_> = (0..8)
        .map(|_| {
            let mut stream = net.connect();
            stream.write_all(&100_000_000u64.to_be_bytes()).unwrap();
            stream
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    let mut streams: Vec<_> = (0..1000).map(|_| net.connect()).collect();
    for stream in &mut streams {
        stream.write_all(&10_000u64.to_be_bytes()).unwrap();
    }
    for (index, mut stream) in streams.into_iter().enumerate() {
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        assert_eq!(got.len(), 10_000, "connection {index}");
    }
    drop(lazy);
}

#[test]
fn the_summary_and_the_metrics_tell_of_both_paths() {
    if !can_run() {
        return;
    }
    let net = Net::new([50, 50]);
    net.serve(made_up);
    let _server = net.server("--allow 10.79.9.9:8000");
    let forward = "--via v1,v2 --forward 127.0.0.1:8001=10.79.9.9:8000 --metrics 127.0.0.1:9099";
    let client = net.client_of("c", &format!("{forward} --duration 4s --json"));
    let asked = std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(1500));
            download(net.connect(), 3_000_000);
            std::thread::sleep(Duration::from_millis(400));
            let mut stream = net.connect_to("127.0.0.1:9099");
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        });
        let done = ended(client);
        common::assert_succeeded(&done);
        let report: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!(report["streams"], 1);
        assert_eq!(report["paths"].as_array().unwrap().len(), 2, "{report}");
        let of = |index: usize| report["paths"][index]["received_bytes"].as_u64().unwrap();
        assert!(of(0) + of(1) > 3_000_000 && of(0).min(of(1)) > 100_000, "{report}");
        assert_eq!(report["paths"][0]["queue_packets"], 0, "{report}");
        asked.join().unwrap()
    });
    for interface in ["v1", "v2"] {
        let labels = format!("interface=\"{interface}\"");
        let line = |name: &str| asked.lines().any(|l| l.starts_with(name) && l.contains(&labels));
        assert!(line("freshline_bond_path_queue_packets"), "{asked}");
        assert!(line("freshline_bond_path_received_bytes_total"), "{asked}");
    }
}

#[test]
fn a_server_that_would_take_everybody_does_not_start() {
    let mut command = std::process::Command::new(common::FRESHLINE);
    command.args(["bond", "server", "127.0.0.1:0"]);
    assert_fails(&ended(command), 2, "say who may use it");
}
