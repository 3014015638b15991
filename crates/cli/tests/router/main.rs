//! `freshline router` between two hosts in namespaces, with real packets.

// Not all of it is for what needs no control groups.
#[allow(dead_code)]
#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code)]
#[path = "../common/hosts.rs"]
mod hosts;
#[path = "../common/lateness.rs"]
mod lateness;
mod net;
#[path = "../common/orphans.rs"]
mod orphans;
mod router;
mod traffic;
#[path = "../common/verdict.rs"]
mod verdict;

use std::fs;
use std::thread;
use std::time::Duration;

use freshline_lab::run::{Metric, run};
use freshline_lab::scenario::Scenario;

use lateness::Sleeper;
use net::{Net, can_run};
use router::Router;
use traffic::{Bulk, Updates};
use verdict::Verdict;

/// What updates and the TCP stream came to.
#[derive(Debug)]
struct Outcome {
    age_ms: f64,
    goodput: f64,
}

const WARM_UP: Duration = Duration::from_secs(3);
const WINDOW: Duration = Duration::from_secs(4);
/// An update's way is that of a source, a router and a monitor, each of which sleeps until it is to
/// act: who wakes later makes ages other than those of the path.
pub(crate) const TIMELY_MS: f64 = 0.5;

fn measured(net: &Net, rate: &str, queue: &str) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("router.toml");
    fs::write(&config, format!("rate = \"{rate}\"\nqueue = {queue}\n")).unwrap();
    let router = Router::start(net, &["--config", config.to_str().unwrap()]);
    let updates = Updates::start(net);
    thread::sleep(Duration::from_millis(500));
    let bulk = Bulk::start(net);
    thread::sleep(WARM_UP);
    let goodput = bulk.goodput(WINDOW);
    let age_ms = updates.age_ms(WINDOW);
    drop(bulk);
    router.stop();
    assert_eq!(net.queues(), "");
    Outcome { age_ms, goodput }
}

fn lab(queue: &str) -> Outcome {
    let scenario = format!(
        "title = \"the same\"\nduration = \"60s\"\nwarm_up = \"10s\"\n\
         [[link]]\nname = \"r\"\nthere = {{ rate = \"20mbit\", queue = {queue} }}\nback = {{}}\n\
         [[flow]]\nname = \"updates\"\npath = [\"r\"]\n\
         updates = {{ law = \"fixed\", rate = \"{}\", payload = \"{}\" }}\n\
         [[flow]]\nname = \"tcp\"\npath = [\"r\"]\ntcp = {{ control = \"cubic\" }}\n",
        Updates::RATE,
        Updates::PAYLOAD
    );
    let metrics = run(&Scenario::parse(scenario.as_str()).unwrap(), || {}).unwrap();
    let value = |name: &str, of: &str| {
        let wanted = |metric: &&Metric| metric.name == name && metric.of == of;
        metrics.iter().find(wanted).unwrap().value
    };
    Outcome { age_ms: value("age_mean", "updates") * 1e3, goodput: value("goodput", "tcp") }
}

#[test]
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
        let late = sleeper.late_ms();
        println!("FIFO: {real_fifo:?}, lab {lab_fifo:?}");
        println!("IFC: {real_ifc:?}, lab {lab_ifc:?} (late by {late:.2} ms)");
        let off = (real_ifc.age_ms / lab_ifc.age_ms - 1.0).abs();
        let is_fresh = off < 0.15 && real_ifc.age_ms < 0.6 * real_fifo.age_ms;
        let loses_nothing = real_ifc.goodput > 0.97 * real_fifo.goodput;
        Verdict::of(is_fresh && loses_nothing, late, TIMELY_MS)
    };
    assert!(compared().or_again(compared));
}

/// Freshness control where updates are what comes to these ports.
fn ifc_for(ports: &[u16]) -> String {
    let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
    format!("{{ discipline = \"ifc\", classifier = \"port:{}\" }}", ports.join(","))
}

#[test]
fn nobody_gains_by_passing_for_what_he_is_not() {
    if !can_run() {
        return;
    }
    let compared = || {
        let sleeper = Sleeper::start();
        let [truthful, old, slow] = [&[Updates::PORT][..], &[9], &[Updates::PORT, Bulk::PORT]]
            .map(|ports| measured(&Net::with_delay("10ms"), "10mbit", &ifc_for(ports)));
        let late = sleeper.late_ms();
        // The paper's Table I: 13.57 ms and 7.52 Mbit/s; 131.4 ms; 0.41 Mbit/s.
        println!("truthful: {truthful:?}\nupdates as bulk: {old:?}\nbulk as updates: {slow:?}");
        println!("late by {late:.2} ms");
        let loses = truthful.age_ms < 0.5 * old.age_ms && slow.goodput < 0.5 * truthful.goodput;
        // Neither harms the other much.
        let bulk_is_as_before = old.goodput < 1.05 * truthful.goodput;
        let updates_are_as_before = slow.age_ms > 0.9 * truthful.age_ms;
        Verdict::of(loses && bulk_is_as_before && updates_are_as_before, late, TIMELY_MS)
    };
    assert!(compared().or_again(compared));
}
