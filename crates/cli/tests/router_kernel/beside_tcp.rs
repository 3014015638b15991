//! Updates and a TCP stream that share a link, through the discipline in the kernel, the one in
//! user space, and the lab's.

use std::fs;
use std::thread;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use super::attached::{Attached, tc};
use super::beside::{Outcome, TruthTelling, lab, measured};
use super::guest;
use super::net::{Net, can_run};
use super::running::Router;
use super::traffic::{Bulk, Updates};

/// Nothing is late in a guest, so little time will do.
const WINDOW: Duration = Duration::from_secs(2);

/// A file for `--config`, with this rate and queue.
struct Config {
    _folder: TempDir,
    path: String,
}

impl Config {
    fn new(rate: &str, queue: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("router.toml");
        fs::write(&path, format!("rate = \"{rate}\"\nqueue = {queue}\n")).unwrap();
        Self { path: path.to_str().unwrap().to_owned(), _folder: folder }
    }

    fn flags(&self) -> [&str; 2] {
        ["--config", &self.path]
    }
}

fn by_nfqueue(rate: &str, queue: &str) -> Outcome {
    let (net, config) = (Net::new(), Config::new(rate, queue));
    let router = Router::start(&net, &config.flags());
    let outcome = measured(&net, WINDOW);
    router.stop();
    outcome
}

fn in_kernel(net: &Net, rate: &str, queue: &str) -> Outcome {
    let config = Config::new(rate, queue);
    let attached = Attached::new(net, &config.flags());
    let outcome = measured(net, WINDOW);
    attached.detach();
    outcome
}

fn ifc(share: f64) -> String {
    format!(
        "{{ discipline = \"ifc\", classifier = \"udp force\", aoi_share = {share}, drop_averse = \"100p\" }}"
    )
}

/// Within 15 %.
fn are_alike(one: f64, other: f64) -> bool {
    (one / other - 1.0).abs() < 0.15
}

#[test]
#[ignore = "long: boots a kernel in a guest"]
fn updates_beside_tcp_are_as_fresh_as_by_nfqueue_and_in_the_lab() {
    if !guest::entered() || !can_run() {
        return;
    }
    let queue = ifc(0.5);
    let forecast = lab(&queue);
    let in_user_space = by_nfqueue("20mbit", &queue);
    let in_kernel = in_kernel(&Net::new(), "20mbit", &queue);
    println!("in the kernel {in_kernel:?}, by NFQUEUE {in_user_space:?}, in the lab {forecast:?}");
    for other in [in_user_space, forecast] {
        assert!(are_alike(in_kernel.age_ms, other.age_ms));
        assert!(are_alike(in_kernel.goodput, other.goodput));
    }
}

#[test]
#[ignore = "long: boots a kernel in a guest"]
fn nobody_gains_by_passing_for_what_he_is_not_in_the_kernel() {
    if !guest::entered() || !can_run() {
        return;
    }
    let told = TruthTelling::measured(|queue| {
        let net = Net::new();
        // The kernel's own delay, in both directions.
        for (host, device) in [("a", "r"), ("r", "a")] {
            tc(&net, host, &format!("add dev {device} root netem delay 10ms limit 10000"));
        }
        in_kernel(&net, "10mbit", queue)
    });
    println!("{told}");
    assert!(told.holds());
}

#[test]
#[ignore = "long: boots a kernel in a guest"]
fn a_stream_has_the_queueing_delay_of_fq_codel_by_default() {
    if !guest::entered() || !can_run() {
        return;
    }
    let net = Net::new();
    // A round trip, without which CoDel's interval is many of them.
    tc(&net, "a", "add dev r root netem delay 10ms limit 10000");
    let sojourn_p95_ms = |queue: &str, before: &str| {
        let attached = Attached::new(&net, &Config::new(before, queue).flags());
        let outcome = {
            let (updates, bulk) = (Updates::start(&net), Bulk::start(&net));
            thread::sleep(WINDOW);
            // A lower rate leaves as many packets in the queue, which take longer.
            attached.set(&["--rate", "10mbit"]);
            let goodput = bulk.goodput(2 * WINDOW);
            (updates.age_ms(WINDOW), goodput)
        };
        let status = attached.status();
        attached.detach();
        println!("{queue}: {outcome:.2?}, {}", status["classes"][1]);
        status["classes"][1]["sojourn_p95_ms"].as_f64().unwrap()
    };
    let default = sojourn_p95_ms("\"ifc\"", "20mbit");
    let papers = sojourn_p95_ms("{ discipline = \"ifc\", drop_averse = \"fifo\" }", "20mbit");
    assert!(default < 60.0 && papers > 200.0, "{default} ms, {papers} ms");
}

#[test]
#[ignore = "long: boots a kernel in a guest"]
fn a_share_that_changes_under_load_shows() {
    if !guest::entered() || !can_run() {
        return;
    }
    const TIME: Duration = Duration::from_secs(3);
    let forecast = [0.5, 0.02].map(|share| lab(&ifc(share)).age_ms);
    let net = Net::new();
    let attached = Attached::new(&net, &Config::new("20mbit", &ifc(0.5)).flags());
    let (updates, bulk) = (Updates::start(&net), Bulk::start(&net));
    thread::sleep(TIME);
    let changed = unix_ms();
    attached.set(&["--aoi-share", "0.02"]);
    let status = attached.status();
    assert_eq!(status["aoi_share"], 0.02);
    // The link was full for the last seconds.
    let rates = [0, 1].map(|class| status["classes"][class]["rate_bps"].as_f64().unwrap());
    assert!(are_alike(rates.iter().sum(), 20e6), "{status}");
    // All updates are of one flow.
    let flow = status["flows"].as_array().unwrap().iter().find(|flow| flow["class"] == "aoi");
    let waits = [flow.unwrap(), &status["classes"][0]];
    let [of_flow, of_class] = waits.map(|one| one["sojourn_p95_ms"].as_f64().unwrap());
    assert!(are_alike(of_flow, of_class), "{status}");
    thread::sleep(TIME);
    let resets = updates.resets();
    let ages = [changed, f64::INFINITY].map(|until| resets.age_ms(until, TIME / 2));
    drop(bulk);
    attached.detach();
    println!("age {ages:.2?} ms, in the lab {forecast:.2?} ms");
    assert!(ages.iter().zip(forecast).all(|(age, lab)| are_alike(*age, lab)));
}

fn unix_ms() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64() * 1e3
}
