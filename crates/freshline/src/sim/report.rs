//! The results of a simulation.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use freshline_core::age::AgeSummary;
use freshline_core::unit::{Span, Time};
use freshline_lab::scenario::Scenario;
use freshline_lab::world::{Flow, Wire, World};

use super::driver::{Attached, Driver};
use super::error::SimError;
use super::tally::{Measured, Which};

/// The results of a simulation, measured from its start, or from the end of the scenario's
/// `warm_up`. [`fmt::Display`] prints a summary, for the message of an assertion.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    duration: Duration,
    topics: BTreeMap<Which, Topic>,
    sources: BTreeMap<String, SourceTraffic>,
    links: BTreeMap<String, [LinkDirection; 2]>,
    goodputs: BTreeMap<String, f64>,
}

#[derive(Debug, Clone, PartialEq)]
struct Topic {
    age: Option<Age>,
    delay: Option<Delay>,
}

/// The true age of the newest state of a topic or key at its receiver, over time.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Age {
    /// Its time average.
    pub mean: Duration,
    /// Its median over time, within 1 %, as are the other quantiles.
    pub p50: Duration,
    /// The 95th percentile over time.
    pub p95: Duration,
    /// The 99th percentile over time.
    pub p99: Duration,
    /// The largest age.
    pub max: Duration,
    /// States per second that were fresher than all before them.
    pub states_per_s: f64,
}

/// The time from the generation of states or records to their arrival at the receiver.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Delay {
    /// How many arrived; for states, only those fresher than all before them.
    pub count: u64,
    /// The mean.
    pub mean: Duration,
    /// The 95th percentile.
    pub p95: Duration,
    /// The maximum.
    pub max: Duration,
}

/// The datagrams of a source, in both directions.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct SourceTraffic {
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams sent per second.
    pub sent_per_s: f64,
    /// The rate of these in bit/s, with all headers from IP on.
    pub sent_bps: f64,
    /// Datagrams received.
    pub received: u64,
    /// Datagrams of either direction that queues have dropped or links have lost.
    pub lost: u64,
}

/// One direction of a link, from the start of the simulation on.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct LinkDirection {
    /// The fraction of the time in which it transmits, 0 to 1. Of several hops: the maximum.
    pub utilisation: f64,
    /// Packets that arrived at its far end.
    pub delivered: u64,
    /// Packets that its queue has dropped or that it has lost.
    pub dropped: u64,
    /// Mean sojourn time in its queue. Of several hops: the sum.
    pub queue_mean: Duration,
    /// The 95th percentile of the sojourn time. Of several hops: the maximum.
    pub queue_p95: Duration,
    /// The maximum of the sojourn time, of all hops.
    pub queue_max: Duration,
}

impl Report {
    pub(super) fn of(scenario: &Scenario, driver: &Driver) -> Self {
        let now = driver.clock().now();
        let (measured, from) = driver.tally.snapshot();
        let duration = now.since(from);
        let topics = measured.into_iter().map(|(which, measured)| {
            let topic = Topic { age: age(&measured, now), delay: delay(&measured) };
            (which, topic)
        });
        let world = &driver.built.world;
        let mut sources: BTreeMap<String, SourceTraffic> = BTreeMap::new();
        for source in &driver.sources {
            let traffic = SourceTraffic::of(source, world, duration);
            let sum = sources.entry(source.name.clone()).or_insert(SourceTraffic::NONE);
            *sum = sum.and(&traffic);
        }
        let links = scenario.links.iter().zip(&driver.built.links).map(|(link, hops)| {
            let of = |numbers: &[usize]| {
                let hops = numbers.iter().map(|number| &world.hops()[*number]);
                LinkDirection::of(hops, world.now())
            };
            (link.name.clone(), [of(&hops.forward), of(&hops.reverse)])
        });
        let flows = scenario.flows.iter().zip(&driver.built.flows);
        let goodputs = flows.filter_map(|(flow, range)| {
            let flows = world.flows()[range.clone()].iter().map(|routed| &routed.flow);
            let each = flows.filter_map(|flow| goodput(flow, world.now()));
            each.reduce(|sum, next| sum + next).map(|sum| (flow.name.clone(), sum))
        });
        Self {
            duration: duration.into(),
            topics: topics.collect(),
            links: links.collect(),
            goodputs: goodputs.collect(),
            sources,
        }
    }

    /// The length of the measurement.
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// The age of a topic at the monitor, by its name: `source/topic`, or `source` for a source
    /// without topics. It is measured from the first state on that the application puts, even if
    /// that does not arrive. Of a topic with keys it is the age of the key that changed last.
    ///
    /// # Errors
    /// [`SimError::UnknownTopic`], and [`SimError::NotMeasured`] if no time has passed.
    pub fn age(&self, name: &str) -> Result<Age, SimError> {
        self.topic(&Which::topic(name))?.age.ok_or_else(|| SimError::NotMeasured(name.to_owned()))
    }

    /// The age of a key at the monitor, from the arrival of its first state on.
    ///
    /// # Errors
    /// As [`Report::age`].
    pub fn age_of_key(&self, name: &str, key: impl AsRef<[u8]>) -> Result<Age, SimError> {
        let which = Which { key: Some(key.as_ref().into()), ..Which::topic(name) };
        self.topic(&which)?.age.ok_or_else(|| SimError::NotMeasured(name.to_owned()))
    }

    /// The age of a topic of the return direction, such as `monitor/cmd`, at the source `source`,
    /// from the arrival of its first state on.
    ///
    /// # Errors
    /// As [`Report::age`].
    pub fn age_at(&self, source: &str, name: &str) -> Result<Age, SimError> {
        let which = Which { at: source.into(), ..Which::topic(name) };
        self.topic(&which)?.age.ok_or_else(|| SimError::NotMeasured(name.to_owned()))
    }

    /// The delays of the states or records of a topic to the monitor.
    ///
    /// # Errors
    /// [`SimError::UnknownTopic`], and [`SimError::NotMeasured`] if none has arrived.
    pub fn delay(&self, name: &str) -> Result<Delay, SimError> {
        self.topic(&Which::topic(name))?.delay.ok_or_else(|| SimError::NotMeasured(name.to_owned()))
    }

    /// The datagrams of a source, by its name; of several sources with one name, the sum.
    ///
    /// # Errors
    /// [`SimError::Unknown`].
    pub fn source(&self, name: &str) -> Result<SourceTraffic, SimError> {
        find(&self.sources, "source", name).copied()
    }

    /// A link in the direction from sources to the monitor.
    ///
    /// # Errors
    /// [`SimError::Unknown`].
    pub fn forward(&self, link: &str) -> Result<LinkDirection, SimError> {
        find(&self.links, "link", link).map(|[forward, _]| *forward)
    }

    /// A link in the direction from the monitor to sources.
    ///
    /// # Errors
    /// [`SimError::Unknown`].
    pub fn reverse(&self, link: &str) -> Result<LinkDirection, SimError> {
        find(&self.links, "link", link).map(|[_, reverse]| *reverse)
    }

    /// The goodput of a TCP stream or of cross traffic of the scenario in bit/s; of flows with a
    /// `count`, the sum.
    ///
    /// # Errors
    /// [`SimError::Unknown`], also for other kinds of flows.
    pub fn goodput(&self, flow: &str) -> Result<f64, SimError> {
        find(&self.goodputs, "flow", flow).copied()
    }

    fn topic(&self, which: &Which) -> Result<&Topic, SimError> {
        self.topics.get(which).ok_or_else(|| SimError::UnknownTopic {
            name: label(which),
            known: self.topics.keys().map(label).collect(),
        })
    }
}

fn find<'a, T>(
    all: &'a BTreeMap<String, T>,
    kind: &'static str,
    name: &str,
) -> Result<&'a T, SimError> {
    all.get(name).ok_or_else(|| SimError::Unknown {
        kind,
        name: name.to_owned(),
        known: all.keys().cloned().collect(),
    })
}

/// As reports and errors call it.
fn label(which: &Which) -> String {
    let mut label = which.name.to_string();
    if let Some(key) = &which.key {
        label += &format!("[{}]", String::from_utf8_lossy(key));
    }
    if !which.at.is_empty() {
        label += &format!(" at {}", which.at);
    }
    label
}

fn age(measured: &Measured, now: Time) -> Option<Age> {
    let AgeSummary { mean, p50, p95, p99, max, fresh, duration, .. } = measured.age(now)?;
    Some(Age {
        mean: mean.into(),
        p50: p50.into(),
        p95: p95.into(),
        p99: p99.into(),
        max: max.into(),
        states_per_s: fresh as f64 / duration.as_secs_f64(),
    })
}

fn delay(measured: &Measured) -> Option<Delay> {
    let mut delays = measured.delays().to_vec();
    delays.sort_unstable();
    let (max, count) = (*delays.last()?, delays.len() as u64);
    let sum = delays.iter().fold(Span::ZERO, |sum, delay| sum + *delay);
    let p95 = delays[(delays.len() - 1) * 95 / 100];
    Some(Delay { count, mean: (sum / count).into(), p95: p95.into(), max: max.into() })
}

fn goodput(flow: &Flow, now: Time) -> Option<f64> {
    match flow {
        Flow::Stream(stream) => stream.outcome(now).goodput_bps,
        Flow::Cross(cross) => cross.throughput_bps(now),
        _ => None,
    }
}

impl SourceTraffic {
    const NONE: Self = Self { sent: 0, sent_per_s: 0.0, sent_bps: 0.0, received: 0, lost: 0 };

    fn of(source: &Attached, world: &World, duration: Span) -> Self {
        let seconds = duration.as_secs_f64().max(1e-9);
        Self {
            sent: source.sent.datagrams,
            sent_per_s: source.sent.datagrams as f64 / seconds,
            sent_bps: source.sent.bytes as f64 * 8.0 / seconds,
            received: source.received.datagrams,
            lost: world.flows()[source.flow].dropped,
        }
    }

    fn and(&self, other: &Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            sent_per_s: self.sent_per_s + other.sent_per_s,
            sent_bps: self.sent_bps + other.sent_bps,
            received: self.received + other.received,
            lost: self.lost + other.lost,
        }
    }
}

impl LinkDirection {
    fn of<'a>(hops: impl Iterator<Item = &'a Wire>, now: Time) -> Self {
        let (mut utilisation, mut delivered, mut dropped) = (0.0_f64, 0, 0);
        let [mut mean, mut p95, mut max] = [Span::ZERO; 3];
        for hop in hops {
            let stats = hop.stats();
            utilisation = utilisation.max(hop.utilisation(Time::ZERO, now));
            // The packets that leave the last hop.
            delivered = stats.delivered.packets.get();
            dropped += stats.drops.total().get();
            mean += stats.sojourn.mean();
            p95 = p95.max(stats.sojourn.quantile(0.95));
            max = max.max(stats.sojourn.max());
        }
        let (queue_mean, queue_p95, queue_max) = (mean.into(), p95.into(), max.into());
        Self { utilisation, delivered, dropped, queue_mean, queue_p95, queue_max }
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "in {:.3} s of virtual time:", self.duration.as_secs_f64())?;
        for (which, topic) in &self.topics {
            write!(f, "  {}:", label(which))?;
            if let Some(age) = &topic.age {
                let Age { mean, p95, max, states_per_s, .. } = *age;
                let [mean, p95, max] = [mean, p95, max].map(millis);
                write!(f, " age mean {mean:.1} ms, p95 {p95:.1} ms, max {max:.1} ms;")?;
                write!(f, " {states_per_s:.1} states/s;")?;
            }
            match &topic.delay {
                Some(delay) => writeln!(f, " delay mean {:.1} ms", millis(delay.mean))?,
                None => writeln!(f, " none has arrived")?,
            }
        }
        for (name, source) in &self.sources {
            let SourceTraffic { sent_per_s, sent_bps, lost, .. } = *source;
            let mbit = sent_bps / 1e6;
            writeln!(f, "  {name} sends {sent_per_s:.1}/s, {mbit:.3} Mbit/s; {lost} lost")?;
        }
        for (name, directions) in &self.links {
            for (link, direction) in directions.iter().zip(["forward", "reverse"]) {
                let (busy, queue) = (link.utilisation * 100.0, millis(link.queue_mean));
                let dropped = link.dropped;
                write!(f, "  {name} {direction}: {busy:.1} % busy, ")?;
                writeln!(f, "queue mean {queue:.1} ms, {dropped} dropped")?;
            }
        }
        for (name, bps) in &self.goodputs {
            writeln!(f, "  {name} delivers {:.3} Mbit/s", bps / 1e6)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_topics_keys_and_receivers_differ() {
        let which = Which::topic("robot/doors");
        let key = Which { key: Some((*b"door-1").into()), ..which.clone() };
        let at = Which { at: "robot".into(), ..Which::topic("monitor/cmd") };
        let labels = [which, key, at].map(|which| label(&which));
        assert_eq!(labels, ["robot/doors", "robot/doors[door-1]", "monitor/cmd at robot"]);
    }

    #[test]
    fn traffic_of_sources_with_one_name_adds_up() {
        let one = SourceTraffic { sent: 2, sent_per_s: 1.0, sent_bps: 8.0, received: 1, lost: 1 };
        let sum = SourceTraffic::NONE.and(&one).and(&one);
        assert_eq!((sum.sent, sum.received, sum.lost), (4, 2, 2));
        assert_eq!((sum.sent_per_s, sum.sent_bps), (2.0, 16.0));
    }

    #[test]
    fn links_without_packets_have_no_queue() {
        let link = LinkDirection::of(std::iter::empty(), Time::ZERO);
        assert_eq!((link.delivered, link.dropped, link.queue_max), (0, 0, Duration::ZERO));
    }
}
