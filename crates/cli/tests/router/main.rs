//! `freshline router` between two hosts in namespaces, with real packets.

mod net;
mod traffic;

use std::fs;
use std::thread;
use std::time::Duration;

use freshline_lab::run::{Metric, run};
use freshline_lab::scenario::Scenario;
use serde_json::Value;

use net::{DEVICE, Net, Running, can_run};
use traffic::{Bulk, Updates, output_of};

/// A router that is up.
struct Router<'a> {
    net: &'a Net,
    running: Option<Running>,
}

impl<'a> Router<'a> {
    /// With these flags, for the device towards B.
    fn start(net: &'a Net, flags: &[&str]) -> Self {
        let command = ["router", "run", "--json", "--dev", DEVICE];
        let child = net.freshline("r", &[&command[..], flags].concat()).spawn().unwrap();
        let router = Self { net, running: Some(Running(child)) };
        while router.ask(&["status"]).0 != Some(0) {
            let ended = router.running.as_ref().is_none();
            assert!(!ended);
            thread::sleep(Duration::from_millis(20));
        }
        router
    }

    /// `freshline router …` for the device.
    fn ask(&self, what: &[&str]) -> (Option<i32>, String, String) {
        let device = ["--dev", DEVICE];
        let command = [&["router"][..], &what[..1], &device, &what[1..]].concat();
        output_of(self.net.freshline("r", &command).spawn().unwrap())
    }

    /// Ends it as Ctrl-C does: its report.
    fn stop(mut self) -> Value {
        let mut running = self.running.take().unwrap();
        running.signal(nix::sys::signal::Signal::SIGTERM);
        let mut out = String::new();
        std::io::Read::read_to_string(&mut running.0.stdout.take().unwrap(), &mut out).unwrap();
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }
}

/// What updates and the TCP stream came to.
#[derive(Debug)]
struct Outcome {
    age_ms: f64,
    goodput: f64,
}

const WARM_UP: Duration = Duration::from_secs(3);
const WINDOW: Duration = Duration::from_secs(6);

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
    let report = router.stop();
    println!("{}", serde_json::to_string(&report).unwrap());
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
    let [real_fifo, real_ifc] = [fifo, ifc].map(|queue| measured(&Net::new(), "20mbit", queue));
    let [lab_fifo, lab_ifc] = [fifo, ifc].map(lab);
    println!("FIFO: {real_fifo:?}, lab {lab_fifo:?}\nIFC: {real_ifc:?}, lab {lab_ifc:?}");
    let off = (real_ifc.age_ms / lab_ifc.age_ms - 1.0).abs();
    assert!(off < 0.15, "age {} ms, in the lab {}", real_ifc.age_ms, lab_ifc.age_ms);
    assert!(real_ifc.age_ms < 0.6 * real_fifo.age_ms);
    assert!(real_ifc.goodput > 0.98 * real_fifo.goodput);
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
    let [truthful, old, slow] = [&[Updates::PORT][..], &[9], &[Updates::PORT, Bulk::PORT]]
        .map(|ports| measured(&Net::with_delay("10ms"), "10mbit", &ifc_for(ports)));
    println!("truthful: {truthful:?}\nupdates as bulk: {old:?}\nbulk as updates: {slow:?}");
}
