//! Goodput of a download over two paths, as a fraction of the sum of their rates, in frames on the
//! wire.

use std::sync::PoisonError;
use std::thread;
use std::time::Duration;

use super::net::{Net, Rate, can_run, download, is_whole, made_up};
use super::number_if;
use super::two_paths::BESIDE;

/// Of both paths, in Mbit/s.
const RATES: [Rate; 2] = [10, 5];

/// The book has the figures of an otherwise idle machine; a busy machine must reach this fraction.
const LEAST: f64 = 0.75;

/// Prints and returns the fraction of the sum of `rates` that a download has reached.
fn told(rates: [Rate; 2], how: &str, mbps: f64) -> f64 {
    let share = mbps / f64::from(rates.iter().sum::<Rate>());
    println!("sum | {rates:?} Mbit/s | {how} | {mbps:.2} Mbit/s | {:.1} %", 100.0 * share);
    share
}

/// The share of the capacity that a download of `bytes` between these hosts gets.
fn with_scheduler(net: &Net, scheduler: &str, bytes: u64) -> f64 {
    let options = format!("--scheduler {scheduler}");
    net.serve(made_up);
    let _server = net.server(&format!("--allow 10.79.0.0/16 {options}"));
    let _client = net.client(&options);
    told(RATES, scheduler, download(net.connect(), bytes).mbps())
}

#[test]
#[ignore = "long: measures rates in real time"]
fn a_download_gets_the_sum_of_two_paths() {
    if !can_run() {
        return;
    }
    for scheduler in ["qaware", "min_srtt"] {
        let mut shares = (0..3).map(|_| with_scheduler(&Net::new(RATES), scheduler, 10_000_000));
        assert!(shares.any(|share| share > LEAST), "{scheduler}");
    }
}

/// The other schedulers, and the kernel's MPTCP. For the figures of the book ([`is_whole`]) each
/// runs alone; otherwise three run at the same time, with half of the bytes.
#[test]
#[ignore = "long: takes many seconds of real time"]
fn a_download_arrives_whole_with_every_scheduler_and_with_mptcp() {
    if !can_run() {
        return;
    }
    let (bytes, at_once) = if is_whole() { (10_000_000, 1) } else { (5_000_000, 3) };
    let _turn = BESIDE.write().unwrap_or_else(PoisonError::into_inner);
    let schedulers = ["ecf", "blest", "daps", "linger", "round_robin", "freshest"];
    for schedulers in schedulers.chunks(at_once) {
        thread::scope(|scope| {
            for scheduler in schedulers {
                scope.spawn(|| with_scheduler(&Net::at((), RATES), scheduler, bytes));
            }
        });
    }
    let net = Net::at((), RATES);
    match net.mptcp(made_up) {
        None => println!("skipped: needs a kernel with MPTCP for the figure beside"),
        Some(stream) => {
            told(RATES, "kernel MPTCP", download(stream, bytes).mbps());
        }
    }
}

#[test]
#[ignore = "long: measures rates in real time"]
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

/// A client that reads nothing fills the window of its own stream.
#[test]
#[ignore = "long: measures rates in real time"]
fn a_download_beside_readers_that_read_nothing_gets_the_sum_all_the_same() {
    if !can_run() {
        return;
    }
    let net = Net::new([10, 5]);
    net.serve(made_up);
    let _server = net.server("--allow 10.79.0.0/16");
    let client = net.client("--metrics 127.0.0.1:9099");
    let lazy: Vec<_> = (0..8).map(|_| net.ask(100_000_000)).collect();
    // First their windows and the sockets behind these fill, until hardly any bytes arrive.
    let received = || {
        let metrics = net.metrics();
        ["v1", "v2"].map(|path| number_if(&metrics, "bond_path_received_bytes_total", path))
    };
    let comes = || {
        let before = received();
        thread::sleep(Duration::from_secs(1));
        let came = received().into_iter().zip(before);
        came.map(|(after, before)| Some(after? - before?)).sum::<Option<f64>>().unwrap_or(f64::MAX)
    };
    let seconds = (0..60).take_while(|_| comes() > 50_000.0).count();
    println!("sum | the windows of 8 that do not read are full after {seconds} s");
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
