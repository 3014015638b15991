//! Queueing delay of packets in a device queue, by the kernel's timestamps of their departures.
//!
//! ```text
//!   upload ─► client ─► v1: tbf, 4 Mbit/s, at most 40 kB: 80 ms ─► server
//! ```
//!
//! The upload alone fills the queue: with Cubic it is between 70 and 100 % full.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::net::{Net, can_run, is_whole};
use super::{number, number_if};

/// The queueing delay of a full queue, in s.
const FULL: f64 = 40_000.0 * 8.0 / 4e6;
/// How often it is looked at most, and how often a look must find it near that.
const LOOKS: usize = 40;
const ENOUGH: usize = 5;

#[test]
#[ignore = "long: measures delays in real time"]
fn stamps_of_departures_show_the_wait_that_the_queue_is_set_to() {
    if !can_run() {
        return;
    }
    let net = Net::new([4, 4]);
    net.tc("c", "qdisc replace dev v1 root tbf rate 4mbit burst 8k limit 40k");
    net.serve(|mut stream: TcpStream| {
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let _server = net.server("--allow 10.79.9.9:8000");
    let _client = net.client_via("--via v1 --metrics 127.0.0.1:9099");
    let mut upload = net.connect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                upload.write_all(&[0; 16 * 1024]).unwrap();
            }
        });
        let (mut near, mut waits) = (0, Vec::new());
        while near < ENOUGH && waits.len() < LOOKS {
            thread::sleep(Duration::from_millis(250));
            let metrics = net.metrics();
            let stamped = number_if(&metrics, "bond_path_stamped_queueing_delay_seconds", "v1");
            let estimated = number_if(&metrics, "bond_path_queueing_delay_seconds", "v1");
            if let Some(wait) = stamped {
                assert_eq!(number(&metrics, "bond_path_queueing_delay_stamped", "v1"), 1.0);
                near += usize::from((0.6 * FULL..1.1 * FULL).contains(&wait));
            }
            waits.push((stamped, estimated));
        }
        stop.store(true, Ordering::Relaxed);
        println!("stamps | full {FULL:.3} s | stamped, estimated: {waits:.3?}");
        assert!(near >= ENOUGH, "{waits:?}");
    });
}

/// The client's CPU time per MB with stamps and without, in turn. Nothing is claimed but that both carry
/// all: the figures are for docs/bond.md.
#[test]
fn an_upload_with_stamps_and_one_without_cost_this_much() {
    if !can_run() {
        return;
    }
    let (rounds, megabytes) = if is_whole() { (6, 60) } else { (1, 2) };
    let net = Net::new([100, 100]);
    net.serve(|mut stream: TcpStream| {
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
        let _ = stream.write_all(b"!");
    });
    let _server = net.server("--allow 10.79.9.9:8000");
    let mut costs = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (estimator, costs) in ["per-packet", "algorithm-1"].iter().zip(&mut costs) {
            let flags = format!("--via v1,v2 --estimator {estimator} --metrics 127.0.0.1:9099");
            let client = net.client_via(&flags);
            let mut upload = net.connect();
            let before = client.ran();
            for _ in 0..megabytes {
                upload.write_all(&[0; 1_000_000]).unwrap();
            }
            upload.shutdown(std::net::Shutdown::Write).unwrap();
            upload.read_exact(&mut [0]).unwrap();
            costs.push((client.ran() - before).as_secs_f64() * 1e3 / f64::from(megabytes));
            // The client updates its report at intervals.
            let is_as_set = (0..50).any(|_| {
                let stamped = number(&net.metrics(), "bond_path_queueing_delay_stamped", "v1");
                thread::sleep(Duration::from_millis(100));
                stamped == f64::from(*estimator == "per-packet")
            });
            assert!(is_as_set, "{estimator}");
        }
    }
    let [with, without] = costs.map(|mut costs| {
        costs.sort_by(f64::total_cmp);
        costs[costs.len() / 2]
    });
    println!("stamps | CPU ms/MB, median of {rounds}: with {with:.2}, without {without:.2}");
    println!("stamps | ratio {:.3}", with / without);
}
