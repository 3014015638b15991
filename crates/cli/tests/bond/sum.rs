//! What a download over two paths comes to, as part of the sum of their rates, in frames on the wire.

use std::time::Duration;

use super::net::{Net, Rate, can_run, download, made_up};

/// What a whole machine to itself shows is in the book; this is what a busy one must.
const LEAST: f64 = 0.75;

/// The share of the sum of `rates` that so many bytes have got.
fn told(rates: [Rate; 2], how: &str, mbps: f64) -> f64 {
    let share = mbps / f64::from(rates.iter().sum::<Rate>());
    println!("sum | {rates:?} Mbit/s | {how} | {mbps:.2} Mbit/s | {:.1} %", 100.0 * share);
    share
}

fn with_scheduler(scheduler: &str) -> f64 {
    let (rates, options) = ([10, 5], format!("--scheduler {scheduler}"));
    let net = Net::new(rates);
    net.serve(made_up);
    let _server = net.server(&format!("--allow 10.79.0.0/16 {options}"));
    let _client = net.client(&options);
    told(rates, scheduler, download(net.connect(), 10_000_000).mbps())
}

#[test]
fn a_download_gets_the_sum_of_two_paths() {
    if !can_run() {
        return;
    }
    for scheduler in ["qaware", "min_srtt"] {
        let mut shares = (0..3).map(|_| with_scheduler(scheduler));
        assert!(shares.any(|share| share > LEAST), "{scheduler}");
    }
}

/// Beside it, what the others come to, and the kernel's own.
#[test]
fn a_download_arrives_whole_with_every_scheduler_and_with_mptcp() {
    if !can_run() {
        return;
    }
    for scheduler in ["ecf", "blest", "daps", "linger", "round_robin", "freshest"] {
        with_scheduler(scheduler);
    }
    let net = Net::new([10, 5]);
    match net.mptcp(made_up) {
        None => println!("skipped: needs a kernel with MPTCP for the figure beside"),
        Some(stream) => {
            told([10, 5], "kernel MPTCP", download(stream, 10_000_000).mbps());
        }
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
    let _near = net.emulated("10.79.1.2:3776", ["delay=5ms", &format!("{hop},delay=5ms")]);
    let _far = net.emulated("10.79.2.2:3776", ["delay=20ms", &format!("{hop},delay=20ms")]);
    let _client = net.client_via("--via v1@10.79.1.2:3776,v2@10.79.2.2:3776");
    let share = |_| {
        let got = download(net.connect(), 20_000_000);
        told([20, 20], "qaware, round trips of 10 and 40 ms", got.mbps())
    };
    assert!((0..3).map(share).any(|share| share > LEAST));
}

/// Somebody who reads nothing fills the window of his own stream.
#[test]
fn a_download_beside_readers_that_read_nothing_gets_the_sum_all_the_same() {
    if !can_run() {
        return;
    }
    let net = Net::new([10, 5]);
    net.serve(made_up);
    let _server = net.server("--allow 10.79.0.0/16");
    let client = net.client("");
    let lazy: Vec<_> = (0..8).map(|_| net.ask(100_000_000)).collect();
    // What their windows and the sockets behind hold comes first.
    std::thread::sleep(Duration::from_secs(35));
    let mut shares = (0..3).map(|_| {
        told(
            [10, 5],
            "qaware, beside 8 that do not read",
            download(net.connect(), 10_000_000).mbps(),
        )
    });
    assert!(shares.any(|share| share > LEAST));
    println!("sum | client | {} | with 8 that do not read", client.cost());
    drop(lazy);
}
