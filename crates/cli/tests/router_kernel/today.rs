//! The uplink of the home in docs/journey-home.md, with the queues that Linux routers have today:
//! the modem's FIFO, FQ-CoDel and CAKE of the kernel, and `freshline router attach`; and the lab's
//! figures.

use std::thread;
use std::time::Duration;

use freshline_lab::run::run;
use freshline_lab::scenario::Scenario;

use super::attached::{Attached, tc};
use super::guest;
use super::net::{DEVICE, Net, can_run};
use super::traffic::{Bulk, Updates};

/// The time from the start of the streams that does not count, and the time that does.
const WARM_UP: Duration = Duration::from_secs(6);
const WINDOW: Duration = Duration::from_secs(12);
const RATE: &str = "50/s";
const SIZE: &str = "500B";

/// Results for the robot's updates, its log, the laptop's upload and the laptop's ping.
#[derive(Debug)]
struct Figures {
    age_ms: f64,
    /// Of both streams, in Mbit/s.
    goodputs: [f64; 2],
    ping_ms: f64,
}

impl Figures {
    fn measured(net: &Net) -> Self {
        let updates = Updates::with(net, RATE, SIZE);
        thread::sleep(Duration::from_millis(500));
        let [log, upload] = [Bulk::start(net), Bulk::start(net)];
        thread::sleep(WARM_UP);
        let (goodputs, ping_ms) = thread::scope(|scope| {
            let streams = [&log, &upload].map(|bulk| scope.spawn(|| bulk.goodput(WINDOW) / 1e6));
            let ping_ms = ping(net);
            (streams.map(|stream| stream.join().unwrap()), ping_ms)
        });
        Self { age_ms: updates.age_ms(WINDOW), goodputs, ping_ms }
    }

    fn of_the_lab(rate: &str, queue: &str) -> Self {
        let stream = "path = [\"r\"]\nstart = \"500ms\"\nstart_spread = \"200ms\"\n\
                      tcp = { control = \"cubic\" }\n";
        let (warm_up, duration) = (WARM_UP.as_secs(), (WARM_UP + WINDOW).as_secs());
        let scenario = format!(
            "title = \"the uplink\"\nduration = \"{duration}s\"\nwarm_up = \"{warm_up}s\"\nruns = 8\n\
             [[link]]\nname = \"r\"\nforward = {{ rate = \"{rate}\", delay = \"10ms\", queue = {queue} }}\n\
             reverse = {{ delay = \"10ms\" }}\n\
             [[flow]]\nname = \"robot\"\npath = [\"r\"]\ndscp = 46\n\
             updates = {{ law = \"fixed\", rate = \"{RATE}\", payload = \"{SIZE}\" }}\n\
             [[flow]]\nname = \"log\"\n{stream}[[flow]]\nname = \"upload\"\n{stream}\
             [[flow]]\nname = \"ping\"\npath = [\"r\"]\n\
             updates = {{ law = \"fixed\", rate = \"10/s\", payload = \"56B\", overhead = \"28B\", ack = \"84B\" }}\n"
        );
        let metrics = run(&Scenario::parse(scenario.as_str()).unwrap(), || {}).unwrap();
        let value = |of: &str, name: &str| {
            metrics.iter().find(|one| one.name == name && one.of == of).unwrap().value
        };
        Self {
            age_ms: value("robot", "age_mean") * 1e3,
            goodputs: ["log", "upload"].map(|flow| value(flow, "goodput") / 1e6),
            ping_ms: value("ping", "rtt_mean") * 1e3,
        }
    }

    fn print(&self, queue: &str, world: &str) {
        let Self { age_ms, goodputs: [log, upload], ping_ms } = self;
        println!("| {queue} | {world} | {age_ms:.1} | {log:.2} | {upload:.2} | {ping_ms:.1} |");
    }
}

/// The mean round trip from A to B while [`WINDOW`] passes, in ms.
fn ping(net: &Net) -> f64 {
    let count = (10 * WINDOW.as_secs()).to_string();
    let mut command = net.command("a", "ping");
    command.args(["-q", "-i", "0.1", "-c", &count, &net.far().to_string()]);
    let printed = String::from_utf8(command.output().unwrap().stdout).unwrap();
    // round-trip min/avg/max = 20.1/25.2/31.3 ms
    let times = printed.split(" = ").nth(1).unwrap_or_else(|| panic!("{printed}"));
    times.split('/').nth(1).unwrap().parse().unwrap()
}

/// The queue of the router's device towards the Internet: `tc` arguments for its root, and for the leaf
/// below that.
fn by_tc(root: &str, leaf: Option<&str>) -> Figures {
    let net = delayed();
    tc(&net, "r", &format!("replace dev {DEVICE} root handle 1: {root}"));
    if let Some(leaf) = leaf {
        tc(&net, "r", &format!("replace dev {DEVICE} parent 1:1 {leaf}"));
    }
    Figures::measured(&net)
}

/// 10 ms in each direction, in front of the router and behind it.
fn delayed() -> Net {
    let net = Net::new();
    for (host, device) in [("a", "r"), ("r", "a")] {
        tc(&net, host, &format!("add dev {device} root netem delay 10ms limit 10000"));
    }
    net
}

#[test]
#[ignore = "long: boots a kernel in a guest"]
fn the_uplink_of_a_home_with_the_queues_of_today() {
    if !guest::entered() || !can_run() {
        return;
    }
    const UP: &str = "4.75mbit";
    println!("| queue | world | age ms | log Mbit/s | upload Mbit/s | ping ms |");
    let fifo = by_tc("tbf rate 5mbit burst 3028 limit 375000", None);
    fifo.print("FIFO, 250 packets", "kernel");
    Figures::of_the_lab("5mbit", "\"250p\"").print("FIFO, 250 packets", "lab");
    let shaper = format!("tbf rate {UP} burst 3028 limit 10000000");
    let fq_codel = by_tc(&shaper, Some("fq_codel"));
    fq_codel.print("FQ-CoDel", "kernel");
    let forecast = Figures::of_the_lab(UP, "\"fq_codel\"");
    forecast.print("FQ-CoDel", "lab");
    by_tc(&format!("cake bandwidth {UP} raw"), None).print("CAKE", "kernel");
    let net = delayed();
    let attached = Attached::new(&net, &["--rate", UP]);
    let ifc = Figures::measured(&net);
    attached.detach();
    ifc.print("IFC", "kernel");
    let queue = "{ discipline = \"ifc\", classifier = [\"update and dscp=EF\"] }";
    Figures::of_the_lab(UP, queue).print("IFC", "lab");
    assert!(fq_codel.age_ms < fifo.age_ms / 2.0 && ifc.age_ms < 1.1 * fq_codel.age_ms);
    assert!((fq_codel.age_ms / forecast.age_ms - 1.0).abs() < 0.2);
}
