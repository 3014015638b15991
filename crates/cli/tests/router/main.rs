//! `freshline router` between two hosts in namespaces, with real packets.

mod beside;
mod classes;
// Tests without control groups do not use all of it.
#[allow(dead_code)]
#[path = "../common/mod.rs"]
mod common;
mod faults;
#[allow(dead_code)]
#[path = "../common/hosts.rs"]
mod hosts;
mod integrity;
#[path = "../common/lateness.rs"]
mod lateness;
mod marks;
mod net;
#[path = "../common/orphans.rs"]
mod orphans;
mod router;
mod running;
mod traffic;
#[path = "../common/verdict.rs"]
mod verdict;

use std::fs;
use std::time::Duration;

use beside::{Outcome, TruthTelling, lab};
use lateness::Sleeper;
use net::{Net, can_run};
use running::Router;
use verdict::Verdict;

/// An update passes a source, a router and a monitor, each of which sleeps until it is to act: if
/// one wakes late, the measured age is not that of the path.
const TIMELY_MS: f64 = 0.5;

fn measured(net: &Net, rate: &str, queue: &str) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("router.toml");
    fs::write(&config, format!("rate = \"{rate}\"\nqueue = {queue}\n")).unwrap();
    let router = Router::start(net, &["--config", config.to_str().unwrap()]);
    let outcome = beside::measured(net, Duration::from_secs(4));
    router.stop();
    assert_eq!(net.queues(), "");
    outcome
}

#[test]
#[ignore = "long: measures delays in real time"]
fn updates_beside_tcp_are_as_fresh_as_in_the_lab_and_tcp_loses_nothing() {
    if !can_run() {
        return;
    }
    let fifo = "\"100p\"";
    let ifc =
        "{ discipline = \"ifc\", scheduler = \"sdm\", aoi_share = 0.5, drop_averse = \"100p\" }";
    let [lab_fifo, lab_ifc] = [fifo, ifc].map(lab);
    let compared = || {
        let sleeper = Sleeper::start();
        let [real_fifo, real_ifc] = [fifo, ifc].map(|queue| measured(&Net::new(), "20mbit", queue));
        let late = sleeper.end().p99_ms;
        println!("FIFO: {real_fifo:?}, lab {lab_fifo:?}");
        println!("IFC: {real_ifc:?}, lab {lab_ifc:?} (late by {late:.2} ms)");
        let off = (real_ifc.age_ms / lab_ifc.age_ms - 1.0).abs();
        let is_fresh = off < 0.15 && real_ifc.age_ms < 0.6 * real_fifo.age_ms;
        let loses_nothing = real_ifc.goodput > 0.97 * real_fifo.goodput;
        Verdict::of(is_fresh && loses_nothing, late, TIMELY_MS)
    };
    assert!(compared().or_again(compared));
}

#[test]
#[ignore = "long: measures rates in real time"]
fn nobody_gains_by_passing_for_what_he_is_not() {
    if !can_run() {
        return;
    }
    let compared = || {
        let sleeper = Sleeper::start();
        let told =
            TruthTelling::measured(|queue| measured(&Net::with_delay("10ms"), "10mbit", queue));
        let late = sleeper.end().p99_ms;
        println!("{told}\nlate by {late:.2} ms");
        Verdict::of(told.holds(), late, TIMELY_MS)
    };
    assert!(compared().or_again(compared));
}
