//! Records one run: time series, deliveries and packets.
//!
//! A recorded run has the same events as one that is not recorded. Everything is measured from time
//! zero on, so the warm-up is included. The memory grows with the length of the run: 8 bytes per
//! value of a series, 16 bytes per delivery, 40 bytes per packet and hop.

mod packets;

use freshline_core::unit::{Span, Time};

pub use self::packets::{PacketKind, PacketLog, PacketRecord};
use crate::scenario::{Built, Laws, Scenario, ScenarioError};
use crate::series::{Columns, Named, Series};
use crate::world::{Delivery, Period};

/// Selects the recordings of a run. The default records nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecordOptions {
    /// The interval of the time series, above zero; `None` records none.
    pub every: Option<Span>,
    /// Whether to record the deliveries that reset an age.
    pub ages: bool,
    /// Whether to record the packets that leave wired hops or arrive over the air.
    pub packets: bool,
}

/// The recording of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recording {
    /// The time series, as [`Series`] names them: one table per flow, link and cell.
    pub series: Vec<Named<Columns>>,
    /// The deliveries of each age, in the order of flows, their numbers, and topics and keys.
    pub ages: Vec<Ages>,
    /// The packets.
    pub packets: PacketLog,
}

/// The deliveries that reset one age: of a flow of updates, of a topic or key, or of a TCP stream over one path.
///
/// The age is zero at `starts_at`, grows with time, and falls to `received_at − generated_at` with each
/// delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ages {
    /// The name of the flow.
    pub flow: String,
    /// Which of the flows of one `[[flow]]`, from 0.
    pub number: usize,
    /// The topic; empty for a flow without topics.
    pub topic: String,
    /// The number of the key, from 0, for a topic with keys.
    pub key: Option<u16>,
    /// When the flow starts, with which its age begins.
    pub starts_at: Time,
    /// When its age is no longer measured: at its `stop`, at the end of its file, or at the end of the run.
    pub ends_at: Time,
    /// The deliveries, in the order of their arrival. A delivery that was not fresher than all before it is left
    /// out.
    pub deliveries: Vec<Delivery>,
}

/// Runs the run `run` of a scenario with the caller's laws, and makes the recordings selected by
/// `what`.
///
/// # Errors
/// Errors of [`Scenario::build_with_laws`].
///
/// # Panics
/// If the interval of the time series is zero.
pub fn record(
    scenario: &Scenario,
    run: u32,
    laws: &dyn Laws,
    what: RecordOptions,
) -> Result<Recording, ScenarioError> {
    let mut built = scenario.build_with_laws(run, laws)?;
    Ok(record_built(scenario, &mut built, what))
}

fn record_built(scenario: &Scenario, built: &mut Built, what: RecordOptions) -> Recording {
    let end = Time::ZERO + scenario.duration;
    let mut packets =
        if what.packets { PacketLog::new(scenario, built) } else { PacketLog::default() };
    let mut series = what.every.map(|every| {
        assert!(!every.is_zero(), "the interval of a time series is above zero");
        let open = |_: &str, columns: &[&'static str]| Ok(Columns::new(columns));
        Series::new(scenario, built, every, open).expect(IN_MEMORY)
    });
    if what.ages {
        built.world.record_ages();
    }
    while built.world.now() < end {
        let next = series.as_ref().map_or(end, Series::next_at).min(end);
        if what.packets {
            built.world.run_watched(next, |left| packets.add(left));
        } else {
            built.world.run_until(next);
        }
        if let Some(series) = &mut series {
            series.on_interval(&built.world).expect(IN_MEMORY);
        }
    }
    Recording {
        series: series.map_or(Vec::new(), |series| series.finish().expect(IN_MEMORY)),
        ages: if what.ages { ages(scenario, built) } else { Vec::new() },
        packets,
    }
}

const IN_MEMORY: &str = "columns in memory have no errors";

fn ages(scenario: &Scenario, built: &Built) -> Vec<Ages> {
    let mut all = Vec::new();
    for (config, range) in scenario.flows.iter().zip(&built.flows) {
        for (number, routed) in built.world.flows()[range.clone()].iter().enumerate() {
            let Some(Period { from: starts_at, until: ends_at }) =
                routed.flow.age_period(built.world.now())
            else {
                continue;
            };
            all.extend(routed.flow.ages().into_iter().map(|age| Ages {
                flow: config.name.clone(),
                number,
                topic: age.topic.to_owned(),
                key: age.key,
                starts_at,
                ends_at,
                deliveries: age.deliveries.to_vec(),
            }));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use freshline_core::age::AgeProcess;

    use super::*;
    use crate::run::{Number, run_one};
    use crate::scenario::NoLaws;
    use crate::series::Column;

    /// Flows of each kind with an age, over two links in series and a cell.
    const MIXED: &str = r#"
title = "A robot, a sensor and a download"
duration = "5s"

[[cell]]
name = "home"
radio = { access = "edca" }

[[link]]
name = "uplink"
count = 2
forward = { rate = "4mbit", delay = "5ms", queue = "20p" }

[[flow]]
name = "robot"
count = 2
start = "500ms"
stop = "4s"
path = ["home", "uplink"]
updates = { law = "tenth", payload = "500B" }

[[flow]]
name = "sensor"
path = ["uplink"]
[flow.updates]
law = "acp+"
[[flow.updates.topic]]
name = "pose"
size = "100B"
[[flow.updates.topic]]
name = "tf"
kind = "keyed"
keys = 2
size = "50B"
period = "100ms"

[[flow]]
name = "download"
path = ["uplink"]
tcp = { control = "cubic" }
"#;

    const ALL: RecordOptions =
        RecordOptions { every: Some(Span::from_millis(100)), ages: true, packets: true };

    fn recorded(what: RecordOptions) -> Recording {
        record(&Scenario::parse(MIXED).unwrap(), 0, &NoLaws, what).unwrap()
    }

    /// The ages of the flow, topic and key.
    fn ages_of<'a>(recording: &'a Recording, flow: &str, topic: &str) -> Vec<&'a Ages> {
        recording.ages.iter().filter(|age| age.flow == flow && age.topic == topic).collect()
    }

    /// The mean that the deliveries give, in s.
    fn mean(ages: &Ages) -> f64 {
        let mut process = AgeProcess::starting_at(ages.starts_at);
        for delivery in &ages.deliveries {
            process.on_update(delivery.received_at, delivery.generated_at);
        }
        process.mean(ages.ends_at).unwrap().as_secs_f64()
    }

    fn value(numbers: &[Number], name: &str, of: &str) -> f64 {
        let found = numbers.iter().find(|number| number.name == name && number.of == of);
        found.unwrap_or_else(|| panic!("no {name} of {of}")).value
    }

    #[test]
    fn a_recorded_run_has_the_events_and_outcomes_of_one_that_is_not() {
        let scenario = Scenario::parse(MIXED).unwrap();
        let [mut plain, mut watched] = [(); 2].map(|()| scenario.build(0).unwrap());
        plain.world.run_until(Time::ZERO + scenario.duration);
        record_built(&scenario, &mut watched, ALL);
        assert_eq!(watched.world.events(), plain.world.events());
        let outcomes = |built: &Built| {
            let now = built.world.now();
            let one = |flow: &crate::world::Flow| {
                let updates = flow.updates().map(|updates| updates.outcome(now));
                let topics = flow.topics().map(|topics| topics.outcome(now));
                (updates, topics, flow.stream().map(|stream| stream.outcome(now)))
            };
            built.world.flows().iter().map(|routed| one(&routed.flow)).collect::<Vec<_>>()
        };
        assert_eq!(outcomes(&watched), outcomes(&plain));
    }

    #[test]
    fn nothing_is_recorded_unless_it_is_asked_for() {
        assert_eq!(recorded(RecordOptions::default()), Recording::default());
        let ages = recorded(RecordOptions { ages: true, ..RecordOptions::default() });
        assert!(ages.series.is_empty() && ages.packets.packets.is_empty());
        assert_eq!(ages.ages, recorded(ALL).ages);
    }

    #[test]
    fn the_deliveries_give_the_mean_age_that_the_run_measures() {
        let recording = recorded(ALL);
        let numbers = run_one(&Scenario::parse(MIXED).unwrap(), 0, &NoLaws).unwrap();
        for (flow, topic, of) in [
            ("robot", "", "robot"),
            ("sensor", "pose", "sensor/pose"),
            ("sensor", "tf", "sensor/tf"),
            ("download", "", "download"),
        ] {
            let all = ages_of(&recording, flow, topic);
            let ours = all.iter().map(|age| mean(age)).sum::<f64>() / all.len() as f64;
            let theirs = value(&numbers, "age_mean", of);
            assert!((ours / theirs - 1.0).abs() < 1e-6, "{of}: {ours} and {theirs}");
        }
    }

    #[test]
    fn each_flow_and_each_key_has_its_deliveries_from_start_to_stop() {
        let recording = recorded(ALL);
        let robots = ages_of(&recording, "robot", "");
        assert_eq!(robots.iter().map(|age| age.number).collect::<Vec<_>>(), [0, 1]);
        let period = [500, 4_000].map(|ms| Time::ZERO + Span::from_millis(ms));
        assert!(robots.iter().all(|age| [age.starts_at, age.ends_at] == period), "{robots:?}");
        let keys: Vec<_> = ages_of(&recording, "sensor", "tf").iter().map(|age| age.key).collect();
        assert_eq!(keys, [Some(0), Some(1)]);
        for age in &recording.ages {
            assert!(age.deliveries.is_sorted_by_key(|delivery| delivery.received_at));
            let fresher = |pair: &[Delivery]| pair[0].generated_at < pair[1].generated_at;
            assert!(age.deliveries.windows(2).all(fresher), "{}", age.flow);
        }
    }

    #[test]
    fn a_series_has_a_line_per_interval_and_flow() {
        let recording = recorded(ALL);
        let names: Vec<_> = recording.series.iter().map(|series| series.name.as_str()).collect();
        let flows = ["flow-robot", "flow-sensor", "flow-download"];
        assert_eq!(names, [&flows[..], &["link-uplink", "cell-home"]].concat());
        let robots = &recording.series[0].table;
        assert_eq!(robots.lines(), 100);
        let Some(Column::Numbers(time)) = robots.column("time_s") else { panic!("{robots:?}") };
        assert_eq!(time[..3], [0.1, 0.1, 0.2]);
        // The age is unknown before the flow starts.
        let Some(Column::Numbers(ages)) = robots.column("age_s") else { panic!("{robots:?}") };
        assert!(ages[0].is_nan() && ages[20] > 0.0, "{ages:?}");
    }

    #[test]
    fn the_packets_of_each_hop_have_its_delay_and_the_names_of_hop_and_flow() {
        let PacketLog { carriers, flows, packets, .. } = recorded(ALL).packets;
        let names = ["uplink", "uplink#2", "uplink/reverse", "uplink/reverse#2", "home"];
        assert_eq!(carriers, names);
        assert_eq!(flows, ["robot", "sensor", "download"]);
        let of = |carrier: usize, flow: u32, kind: PacketKind| {
            let is_it = move |packet: &&PacketRecord| {
                (packet.carrier, packet.flow, packet.kind) == (carrier as u32, flow, kind)
            };
            packets.iter().filter(is_it).count()
        };
        use PacketKind::{Ack, Segment, Update};
        assert!(of(4, 0, Update) > 10 && of(4, 0, Ack) > 10, "updates go up, acks come down");
        assert!(of(0, 1, Update) > 10 && of(2, 1, Ack) > 10 && of(2, 1, Update) == 0);
        assert!(of(1, 2, Segment) > 100 && of(2, 2, Ack) > 100 && of(0, 2, Ack) < 10);
        // A packet of 1500 bytes takes 3 ms at 4 Mbit/s, and 5 ms on the line.
        for packet in packets.iter().filter(|packet| packet.carrier < 4) {
            let sending = packet.size.get() as f64 * 8.0 / 4e6;
            let delay = packet.at.since(packet.entered_at).as_secs_f64();
            assert!(delay > 0.005 + sending - 1e-6, "{packet:?}");
        }
        assert!(packets.is_sorted_by_key(|packet| packet.at));
    }

    #[test]
    fn the_hops_of_a_topology_have_the_names_of_their_nodes() {
        let text = crate::library::find("ifc/aoi-load-networks").unwrap();
        let short = ["duration=20ms", "warm_up=0s", "sweep={}"];
        let short = short.map(|change| crate::scenario::Change::parse(change).unwrap());
        let scenario = Scenario::parse_with(text.source(), &short).unwrap();
        let what = RecordOptions { packets: true, ..RecordOptions::default() };
        let log = record(&scenario, 0, &NoLaws, what).unwrap().packets;
        assert!(log.carriers.contains(&"topology/n1/n0".to_owned()), "{:?}", log.carriers);
        assert!(!log.packets.is_empty());
    }
}
