//! The expected gain of a remedy, computed by the lab: the measured bottleneck in virtual time, without and with
//! the remedy.

use std::fmt::Write;

use freshline_lab::run::{Metric, run};
use freshline_lab::scenario::Scenario;
use serde::Serialize;

use super::finding::Bottleneck;

/// A faster bottleneck is simulated at this rate in bit/s, with the same delays, because the lab
/// needs more time for its packets than the link does.
const MAX_BPS: f64 = 20e6;
const MIN_BPS: f64 = 50e3;
/// The maximum number of simulated connections.
const MAX_FLOWS: usize = 8;
/// The buffer of a bottleneck, relative to the measured queueing delay: a queue that a transfer
/// fills is not full all the time.
const BUFFER: f64 = 1.25;
/// A gain below this factor is not worth a change; a guarded number may become worse by up to this
/// factor.
const MIN_GAIN: f64 = 1.1;
const MIN_GUARD: f64 = 0.8;

/// Two scenarios, and the number by which they are compared.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Trial {
    pub(super) without: Setup,
    pub(super) with: Setup,
    pub(super) metric: Compared,
    /// The number that must not become much worse.
    pub(super) guard: Option<Compared>,
}

/// A number of the lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Compared {
    /// The number in words.
    pub(super) what: &'static str,
    /// The name of the metric, and of its flow.
    pub(super) name: &'static str,
    pub(super) of: &'static str,
    pub(super) is_lower_better: bool,
}

/// A scenario of the lab: links, one behind the other, and flows over all of them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Setup {
    pub(super) links: Vec<Link>,
    pub(super) flows: Vec<Flow>,
    /// The base RTT in seconds; it is that of the last link.
    pub(super) base_rtt: f64,
    /// The settling time of the law, in seconds.
    pub(super) settle: f64,
}

/// A link; each direction has a rate in bit/s and a queue, or no limits.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Link {
    pub(super) up: Option<Hop>,
    pub(super) down: Option<Hop>,
}

/// A direction of a link.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Hop {
    pub(super) bps: f64,
    /// In the syntax of a scenario: in quotation marks, or a table.
    pub(super) queue: String,
    pub(super) loss: f64,
}

/// A flow: its name, further keys, and its table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Flow {
    pub(super) name: &'static str,
    pub(super) count: usize,
    pub(super) is_download: bool,
    /// `tcp = { … }` or `updates = { … }`.
    pub(super) table: String,
}

/// A measurement of the lab, and its judgement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Gain {
    /// The number that was compared.
    pub(super) what: &'static str,
    /// Its unit: `s`, `bit/s` or `1/s`.
    pub(super) unit: String,
    pub(super) without: f64,
    pub(super) with: f64,
    /// The factor by which the remedy is better; below 1 it is worse.
    pub(super) ratio: f64,
    pub(super) guard: Option<Guard>,
}

/// The result for the number that must not become much worse.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Guard {
    pub(super) what: &'static str,
    pub(super) unit: String,
    pub(super) without: f64,
    pub(super) with: f64,
    /// The factor of the gain for this number.
    pub(super) ratio: f64,
}

impl Gain {
    /// Why the remedy is not recommended; `None` if it is.
    pub(super) fn objection(&self) -> Option<String> {
        if self.ratio < MIN_GAIN {
            let verb = if self.ratio < 1.0 { "makes it worse" } else { "hardly helps" };
            return Some(format!("in the lab it {verb}: {} × {:.2}", self.what, 1.0 / self.ratio));
        }
        let guard = self.guard.as_ref().filter(|guard| guard.ratio < MIN_GUARD)?;
        Some(format!("in the lab it costs too much: {} × {:.2}", guard.what, guard.ratio))
    }
}

impl Hop {
    /// A drop-tail queue.
    pub(super) fn drop_tail(bottleneck: &Bottleneck) -> Self {
        let bps = simulated(bottleneck.bps);
        let bytes = (bps / 8.0 * bottleneck.queue * BUFFER).max(15_000.0);
        Self { bps, queue: format!("\"{bytes:.0}B\""), loss: 0.0 }
    }

    /// This queue, at a fraction of the rate.
    pub(super) fn with_queue(bottleneck: &Bottleneck, fraction: f64, queue: &str) -> Self {
        Self { bps: simulated(bottleneck.bps) * fraction, queue: queue.to_owned(), loss: 0.0 }
    }
}

/// The rate at which the lab simulates a bottleneck.
pub(super) fn simulated(bps: f64) -> f64 {
    bps.clamp(MIN_BPS, MAX_BPS)
}

/// The number of connections in the simulation.
pub(super) fn simulated_flows(flows: usize) -> usize {
    flows.clamp(1, MAX_FLOWS)
}

impl Setup {
    /// The text of the scenario file.
    fn text(&self) -> String {
        // Long enough for slow starts, and for windows to adapt to the path.
        let warm_up = 4.0 + 20.0 * self.base_rtt + self.settle;
        let mut text = format!(
            "title = \"advise\"\nduration = \"{:.0}ms\"\nwarm_up = \"{:.0}ms\"\n",
            (12.0 + 20.0 * self.base_rtt + warm_up) * 1e3,
            warm_up * 1e3,
        );
        for (number, link) in self.links.iter().enumerate() {
            let is_last = number + 1 == self.links.len();
            let delay = if is_last { self.base_rtt / 2.0 } else { 0.0 };
            let [up, down] = [&link.up, &link.down].map(|hop| hop_text(hop.as_ref(), delay));
            let _ =
                write!(text, "[[link]]\nname = \"l{number}\"\nforward = {up}\nreverse = {down}\n");
        }
        let path: Vec<_> = (0..self.links.len()).map(|number| format!("\"l{number}\"")).collect();
        for Flow { name, count, is_download, table } in &self.flows {
            let _ = write!(
                text,
                "[[flow]]\nname = \"{name}\"\ncount = {count}\npath = [{}]\nreverse = {is_download}\n\
                 start_spread = \"200ms\"\n{table}\n",
                path.join(", ")
            );
        }
        text
    }

    fn run(&self) -> Option<Vec<Metric>> {
        let text = self.text();
        let scenario = Scenario::parse(text.as_str());
        let result = scenario.and_then(|scenario| run(&scenario, || ()));
        // If the lab rejects a generated scenario, that is a bug here; the advice goes on without a
        // gain.
        let report = |error: &_| say!("the lab refuses a scenario of advise: {error}\n{text}");
        result.inspect_err(report).ok()
    }
}

fn hop_text(hop: Option<&Hop>, delay: f64) -> String {
    let delay = format!("delay = \"{:.0}us\"", delay * 1e6);
    hop.map_or_else(
        || format!("{{ {delay} }}"),
        |Hop { bps, queue, loss }| {
            format!("{{ rate = \"{bps:.0}bit\", {delay}, queue = {queue}, loss = {loss:.4} }}")
        },
    )
}

impl Trial {
    /// Runs both scenarios; `None` if the lab has no result.
    pub(super) fn gain(&self) -> Option<Gain> {
        let [without, with] = [self.without.run()?, self.with.run()?];
        let compare = |compared: &Compared| {
            let find = |all: &[Metric]| {
                let is_it = |one: &&Metric| one.name == compared.name && one.of == compared.of;
                all.iter().find(is_it).map(|one| (one.value, one.unit.to_owned()))
            };
            let ((before, unit), (after, _)) = (find(&without)?, find(&with)?);
            let rise = after.max(1e-9) / before.max(1e-9);
            let ratio = if compared.is_lower_better { 1.0 / rise } else { rise };
            Some((before, after, ratio, unit))
        };
        let guard = self.guard.and_then(|guard| {
            let (without, with, ratio, unit) = compare(&guard)?;
            Some(Guard { what: guard.what, unit, without, with, ratio })
        });
        let (without, with, ratio, unit) = compare(&self.metric)?;
        Some(Gain { what: self.metric.what, unit, without, with, ratio, guard })
    }
}
