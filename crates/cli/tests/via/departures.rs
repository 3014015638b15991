//! Queueing delay of updates in a device queue, by the kernel's timestamps of their departures.
//!
//! ```text
//!   source ─┬─ v1: tbf, 1 Mbit/s, in which another program keeps 25 kB: 200 ms ─┬─ monitor
//!           └─ v2: tbf, 100 Mbit/s, empty ──────────────────────────────────────┘
//! ```

use std::net::UdpSocket;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::common::{FRESHLINE, assert_succeeded, text};
use super::process::Process;
use super::two_paths::{Net, SERVER, can_run};

/// The rate of v1 in bytes/s, and the bytes kept in its queue: 200 ms.
const RATE: f64 = 125_000.0;
const KEPT: f64 = 25_000.0;
/// The size of a datagram of 958 bytes in the queue.
const FRAME: f64 = 1_000.0;
const SPAN: Duration = Duration::from_secs(3);

/// Keeps the queue of v1 as long as it is, for [`SPAN`].
fn keep_filled(net: &Net) {
    net.within("c", || {
        let socket = UdpSocket::bind("10.79.1.1:0").unwrap();
        let (began_at, mut sent) = (Instant::now(), 0.0);
        while began_at.elapsed() < SPAN {
            while sent < KEPT + began_at.elapsed().as_secs_f64() * RATE {
                // The discard port: its refusals come back and count for nothing.
                let _ = socket.send_to(&[0; 958], "10.79.1.2:9");
                sent += FRAME;
            }
            thread::sleep(Duration::from_millis(5));
        }
    });
}

#[test]
#[ignore = "long: measures delays in real time"]
fn a_source_takes_the_wait_of_updates_from_stamps_over_udp_and_quic() {
    if !can_run() {
        return;
    }
    let net = Net::new([1, 100]);
    net.tc("c", "qdisc replace dev v1 root tbf rate 1mbit burst 4k limit 100k");
    let state = net.state("monitor");
    let mut identity = net.command("s", FRESHLINE);
    let done = identity.args(["bond", "identity", "--state-dir", &state]).output().unwrap();
    let pin = text(&done.stdout).trim().to_owned();
    let by = [("udp://", ":3775", vec![]), ("quic://", ":3776", vec!["--pin", &pin])];
    let monitors = by.each_ref().map(|(scheme, port, _)| {
        let mut monitor = net.command("s", FRESHLINE);
        monitor.args(["monitor", &format!("{scheme}0.0.0.0{port}")]);
        match *scheme {
            "quic://" => monitor.args(["--state-dir", &state]),
            _ => monitor.arg("--insecure"),
        };
        Process::start(&mut monitor, "listening").0
    });
    let sources = by.each_ref().map(|(scheme, port, pin)| {
        let mut source = net.command("c", FRESHLINE);
        source.args(["source", &format!("{scheme}{SERVER}{port}"), "--size", "200B", "--json"]);
        source.args(["--via", "v1,v2", "--scheduler", "qaware", "--law", "fixed"]);
        source.args(["--rate", "50/s", "--every", "500ms"]).args(pin);
        source.args(["--duration", &format!("{}s", SPAN.as_secs())]);
        source.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    keep_filled(&net);
    for (source, (scheme, ..)) in sources.into_iter().zip(by) {
        let done = source.wait_with_output().unwrap();
        assert_succeeded(&done);
        let (report, said) = (serde_json::from_slice::<Value>(&done.stdout), text(&done.stderr));
        let report = report.unwrap();
        let wait = |path: usize| report["paths"][path]["stamped_queueing_delay_ms"].as_f64();
        let shown = said.lines().filter(|line| line.contains(" stamped ")).count();
        println!("{scheme} stamped waits {:?} {:?} ms, in {shown} lines", wait(0), wait(1));
        for path in 0..2 {
            assert_eq!(report["paths"][path]["queue_source"], "qdisc", "{report}");
            assert_eq!(report["paths"][path]["queueing_delay_source"], "stamps", "{report}");
        }
        // Both directions of an error: a stamp at the call would give 0, and one at the ack the
        // round trip.
        assert!(wait(0).is_some_and(|wait| (100.0..300.0).contains(&wait)), "{report}");
        assert!(wait(1).is_some_and(|wait| wait < 50.0), "{report}");
        assert!(report["paths"][0]["service_time_ms"].as_f64().unwrap() < 100.0, "{report}");
        assert!(shown >= 2, "{said}");
    }
    drop(monitors);
}
