//! `freshline uplink` as a user meets it, on the running kernel, between two hosts in namespaces.

mod attach;
mod beyond;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/hosts.rs"]
mod hosts;
mod killed;
mod net;
#[path = "../common/orphans.rs"]
mod orphans;
#[path = "../common/promtool.rs"]
mod promtool;
#[path = "../common/steps.rs"]
mod steps;
#[path = "../common/streams.rs"]
mod streams;
mod super_packets;
mod traffic;

use std::thread;
use std::time::Duration;

use common::assert_succeeded;
use net::{Net, can_run};
use streams::Streams;
use traffic::{Questions, downloaded, uploads};

const WARM_UP: Duration = Duration::from_millis(1000);
const WINDOW: Duration = Duration::from_millis(2000);

/// The results of uploads and questions.
#[derive(Debug)]
struct Outcome {
    question_ms: f64,
    goodputs: Vec<f64>,
}

impl Outcome {
    fn measured(uploads: &Streams, questions: &mut Questions) -> Self {
        thread::sleep(WARM_UP);
        let mut question_ms = 0.0;
        let goodputs = uploads.goodputs(|| question_ms = questions.median_ms(WINDOW));
        Self { question_ms, goodputs }
    }

    fn goodput(&self) -> f64 {
        self.goodputs.iter().sum()
    }
}

/// Puts a user's shaper at A's root, with a queue that has bands in it.
fn tbf_with_bands(net: &Net, shape: &str) {
    net.tc("a", "qdisc add", &format!("root handle 1: tbf {shape} limit 1m"));
    net.tc("a", "qdisc add", "parent 1:1 handle 2: pfifo_fast");
}

/// Compares uploads and questions under control with those without it.
fn compare(name: &str, without: &Outcome, uploads: &Streams, questions: &mut Questions) {
    let is_good = |with: &Outcome| {
        with.question_ms < without.question_ms / 2.0 && with.goodput() >= 0.97 * without.goodput()
    };
    let mut with = Outcome::measured(uploads, questions);
    // A busy machine makes both slower, never faster.
    for _ in 0..2 {
        if !is_good(&with) {
            with = Outcome::measured(uploads, questions);
        }
    }
    println!("{name}\n  without {without:?}\n  with {with:?}");
    assert!(is_good(&with), "{name}");
}

#[test]
#[ignore = "long: measures delays in real time"]
fn questions_do_not_wait_behind_uploads_in_the_bands_of_a_users_tbf() {
    if !can_run() {
        return;
    }
    for how_many in [1, 8] {
        let net = Net::new();
        tbf_with_bands(&net, "rate 10mbit burst 10k");
        let uploads = uploads(&net, how_many);
        let mut questions = Questions::start(&net);
        let without = Outcome::measured(&uploads, &mut questions);
        assert_succeeded(&net.on_device("attach", ""));
        compare(&format!("TBF, {how_many} uploads"), &without, &uploads, &mut questions);
    }
}

#[test]
#[ignore = "long: measures delays in real time"]
fn questions_do_not_wait_behind_uploads_in_bands_of_our_own() {
    if !can_run() {
        return;
    }
    for how_many in [1, 8] {
        let net = Net::new();
        net.tc("a", "qdisc add", "root handle 1: htb default 1");
        net.tc("a", "class add", "parent 1: classid 1:1 htb rate 10mbit");
        let uploads = uploads(&net, how_many);
        let mut questions = Questions::start(&net);
        let without = Outcome::measured(&uploads, &mut questions);
        net.tc("a", "qdisc del", "root");
        assert_succeeded(&net.on_device("attach", "--rate 10mbit"));
        compare(&format!("HTB, {how_many} uploads"), &without, &uploads, &mut questions);
    }
}

#[test]
#[ignore = "long: measures delays in real time"]
fn a_download_beside_an_upload_has_most_of_its_rate_again() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    net.tc("b", "qdisc add", "root tbf rate 20mbit burst 20k limit 1m");
    tbf_with_bands(&net, "rate 1mbit burst 5k");
    // A busy machine makes downloads slower, never faster.
    let best = || (0..3).map(|_| downloaded(&net)).fold(0.0, f64::max);
    let alone = best();
    let _uploads = uploads(&net, 4);
    thread::sleep(WARM_UP);
    let beside = downloaded(&net);
    assert_succeeded(&net.on_device("attach", ""));
    thread::sleep(WARM_UP);
    let regained = best();
    println!("alone {alone:.1}, beside uploads {beside:.1}, then controlled {regained:.1} Mbit/s");
    assert!(beside < 0.8 * alone);
    assert!(regained >= 0.8 * alone);
}
