//! Updates and a TCP stream that share a link: measured on hosts, and as the lab has them.

use std::fmt;
use std::thread;
use std::time::Duration;

use freshline_lab::run::{Metric, run};
use freshline_lab::scenario::Scenario;

use super::net::Net;
use super::traffic::{Bulk, Updates};

/// The results of both.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) age_ms: f64,
    /// Of the TCP stream, in bit/s.
    pub(crate) goodput: f64,
}

/// Updates and a stream from A to B, with any shaper between: measures for `window`, after a
/// warm-up of the same length.
pub(crate) fn measured(net: &Net, window: Duration) -> Outcome {
    let updates = Updates::start(net);
    thread::sleep(Duration::from_millis(500));
    let bulk = Bulk::start(net);
    thread::sleep(window);
    let goodput = bulk.goodput(window);
    Outcome { age_ms: updates.age_ms(window), goodput }
}

/// On a link of 20 Mbit/s with this queue.
pub(crate) fn lab(queue: &str) -> Outcome {
    let scenario = format!(
        "title = \"the same\"\nduration = \"15s\"\nwarm_up = \"5s\"\n\
         [[link]]\nname = \"r\"\nforward = {{ rate = \"20mbit\", queue = {queue} }}\nreverse = {{}}\n\
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

/// The effect of a false class, on a link of 10 Mbit/s with 10 ms of propagation.
pub(crate) struct TruthTelling {
    truthful: Outcome,
    /// Updates pass for bulk.
    old: Outcome,
    /// Bulk passes for updates.
    slow: Outcome,
}

impl TruthTelling {
    /// With queues that go by ports.
    pub(crate) fn measured(mut through: impl FnMut(&str) -> Outcome) -> Self {
        let updates = [&[Updates::PORT][..], &[9], &[Updates::PORT, Bulk::PORT]];
        let [truthful, old, slow] = updates.map(|ports| through(&ifc_for(ports)));
        Self { truthful, old, slow }
    }

    /// Whether the flow with the false class loses, and neither harms the other much.
    pub(crate) fn holds(&self) -> bool {
        let Self { truthful, old, slow } = self;
        let loses = truthful.age_ms < 0.5 * old.age_ms && slow.goodput < 0.5 * truthful.goodput;
        let bulk_is_as_before = old.goodput < 1.05 * truthful.goodput;
        let updates_are_as_before = slow.age_ms > 0.9 * truthful.age_ms;
        loses && bulk_is_as_before && updates_are_as_before
    }
}

impl fmt::Display for TruthTelling {
    /// The paper's Table I: 13.57 ms and 7.52 Mbit/s; 131.4 ms; 0.41 Mbit/s.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { truthful, old, slow } = self;
        write!(f, "truthful: {truthful:?}\nupdates as bulk: {old:?}\nbulk as updates: {slow:?}")
    }
}

/// Freshness control that takes packets to these ports for updates, with the paper's FIFO for all
/// other packets: in FQ-CoDel, the default, updates that pass for bulk are a flow of their own, and
/// stay fresh.
fn ifc_for(ports: &[u16]) -> String {
    let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
    format!(
        "{{ discipline = \"ifc\", classifier = \"port={} force\", drop_averse = \"fifo\" }}",
        ports.join(",")
    )
}
