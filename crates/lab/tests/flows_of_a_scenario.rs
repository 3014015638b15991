//! The paths of a scenario's flows, and the resources that they share.

#[path = "common/scenarios.rs"]
mod scenarios;

use freshline_core::unit::Time;
use freshline_core::wlan::mac::Category;
use freshline_lab::run::Metric;
use freshline_lab::scenario::{Built, Scenario};
use freshline_lab::world::{Flow, Leg};
use scenarios::{measured, value};

const CELL_AND_HOPS: &str = r#"
title = "A cell, three hops behind it, and traffic on each of them"
duration = "2s"

[[cell]]
name = "wifi"
radio = { access = "edca" }

[[link]]
name = "hops"
count = 3
forward = { rate = "10mbit", delay = "1ms" }

[[flow]]
name = "robot"
count = 2
path = ["wifi", "hops"]
updates = { law = "fixed", rate = "10/s", payload = "500B" }

[[flow]]
name = "other"
path = ["hops"]
each_hop = true
cross_traffic = { pattern = "constant", rate = "1mbit", size = "1000B" }
"#;

fn scenario(changes: &[&str]) -> Result<Scenario, String> {
    scenarios::scenario(CELL_AND_HOPS, changes)
}

/// The first of this name.
fn value_of(metrics: &[Metric], name: &str) -> f64 {
    metrics.iter().find(|metric| metric.name == name).expect(name).value
}

fn built(changes: &[&str]) -> Built {
    scenario(changes).unwrap().build(0).unwrap()
}

fn stations(built: &Built) -> usize {
    built.world.cells()[0].stats().stations.len()
}

#[test]
fn each_flow_has_a_station_of_its_own_unless_it_names_one() {
    assert_eq!(stations(&built(&[])), 1 + 2);
    assert_eq!(stations(&built(&["flow.robot.station=gateway"])), 1 + 1);
}

#[test]
fn a_flow_on_each_hop_crosses_that_hop_alone() {
    let built = built(&[]);
    let ways: Vec<_> = built.world.flows()[built.flows[1].clone()].iter().collect();
    assert_eq!(ways.len(), 3);
    for (place, way) in ways.iter().enumerate() {
        let hops = &built.links[0];
        let there = Leg::Hop(hops.forward[place] as u32);
        // Back, the last hop is the first.
        let back = Leg::Hop(hops.reverse[2 - place] as u32);
        assert_eq!((&way.legs[..], way.forward_legs), (&[there, back][..], 1));
    }
}

#[test]
fn what_comes_back_contends_by_its_own_mark() {
    let categories = |changes: &[&str]| {
        let built = built(changes);
        let legs = built.world.flows()[0].legs.iter();
        let air = legs.filter_map(|leg| match leg {
            Leg::Air { from, category, .. } => Some((*from == 0, *category)),
            Leg::Hop(_) | Leg::Mesh { .. } | Leg::Fault(_) => None,
        });
        air.collect::<Vec<_>>()
    };
    use Category::{BestEffort, Voice};
    assert_eq!(categories(&["flow.robot.dscp=56"]), [(false, Voice), (true, Voice)]);
    let unmarked = ["flow.robot.dscp=56", "flow.robot.ack_dscp=0"];
    assert_eq!(categories(&unmarked), [(false, Voice), (true, BestEffort)]);
    let backwards = [&unmarked[..], &["flow.robot.reverse=true"]].concat();
    assert_eq!(categories(&backwards), [(true, Voice), (false, BestEffort)]);
}

#[test]
fn none_of_a_flow_is_as_if_it_were_not_there() {
    let without = measured(CELL_AND_HOPS, &["flow.robot.count=0"]);
    assert!(without.iter().all(|metric| metric.of != "robot"), "{without:?}");
    assert!(without.iter().any(|metric| metric.of == "other"));
}

#[test]
fn the_goodput_of_all_is_that_of_each_times_their_number() {
    let metrics = measured(CELL_AND_HOPS, &["flow.robot.count=5"]);
    let value = |name| value(&metrics, name, "robot");
    assert!((value("goodput_sum") / value("goodput") - 5.0).abs() < 1e-9);
    assert!((0.0..1.0).contains(&value("retries")));
}

/// An endless download, as the only flow.
const DOWNLOAD: &str = r#"
title = "A download"
duration = "3s"

[[link]]
name = "link"
forward = { rate = "10mbit", delay = "10ms", queue = "100p" }

[[flow]]
name = "download"
path = ["link"]
tcp = { control = "cubic" }
"#;

#[test]
fn an_endless_stream_ends_at_its_stop() {
    let delivered = |changes: &[&str]| {
        let scenario = scenarios::scenario(DOWNLOAD, changes).unwrap();
        let mut built = scenario.build(0).unwrap();
        built.world.run_until(Time::ZERO + scenario.duration);
        let Flow::Stream(stream) = &built.world.flows()[0].flow else { panic!("no stream") };
        stream.delivered().get()
    };
    let (whole, part) = (delivered(&[]), delivered(&["flow.download.stop=500ms"]));
    assert!(part > 0 && part < whole / 4, "{part} of {whole}");
    // A goodput is of the time until the stop.
    let goodput = |changes: &[&str]| value_of(&measured(DOWNLOAD, changes), "goodput");
    let (whole, part) = (goodput(&[]), goodput(&["flow.download.stop=500ms"]));
    assert!((part / whole - 1.0).abs() < 0.15, "{part} of {whole}");
}

#[test]
fn flows_that_would_begin_when_they_stop_are_refused() {
    for late in
        ["stop = \"1s\"\nstart = \"1s\"", "stop = \"2s\"\ncount = 3\nstart_interval = \"1s\""]
    {
        let text = DOWNLOAD.replace("path =", &format!("{late}\npath ="));
        let said = Scenario::parse(text.as_str()).unwrap_err().to_string();
        assert!(said.contains("lower `start` or `start_interval`"), "{said}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_a_remedy() {
    for (change, remedy) in [
        ("flow.other.station=gateway", "`station` needs a `path` that begins or ends with a cell"),
        ("flow.other.path=[]", "`each_hop` needs a `path`"),
        ("link.hops.count=0", "`count` of `hops` is 0; give at least 1"),
        ("link.hops.count=4000000000", "`count` of `hops` is 4000000000; give at most 1000"),
        (
            "flow.robot.count=4000000000",
            "`robot`: there are more than 10000 of it; lower its `count`",
        ),
        (
            "flow.other.count=3334",
            "there are more than 10000 of it; lower its `count`, or the number",
        ),
    ] {
        let refused = scenario(&[change]).err().unwrap_or_default();
        assert!(refused.contains(remedy), "{change}: {refused}");
    }
}

#[test]
fn a_stream_names_the_law_of_its_receive_window() {
    let rtt = |receiver: &str| {
        let receiver = format!("flow.download.tcp.receiver={receiver}");
        let deep = ["duration=5s", "warm_up=2s", "link.link.forward.queue=1000p", &receiver];
        value_of(&measured(DOWNLOAD, &deep), "rtt_mean")
    };
    let (short, long) = (rtt("rtac"), rtt("autotune"));
    assert!(short < 0.035 && long > 0.1, "{short} {long}");
    assert!(rtt(r#"{ law = "fixed", window = "25kB" }"#) < 0.025);
    let bad = r#"flow.download.tcp.receiver={ law = "rtac", theta = 1.0 }"#;
    let refused = scenarios::refused(DOWNLOAD, &[bad]);
    assert!(refused.contains("`theta` is 1, which is not from 1.01 to 10"), "{refused}");
}

#[test]
fn the_longest_round_trip_of_a_stream_is_that_of_a_full_buffer() {
    let changes = ["duration=20s", "warm_up=5s", "flow.download.tcp.control=reno"];
    let metrics = measured(DOWNLOAD, &changes);
    let [mean, p50, p95, max] =
        ["rtt_mean", "rtt_p50", "rtt_p95", "rtt_max"].map(|name| value_of(&metrics, name));
    // 100 packets of 1.2 ms each, the path, and up to two segments to an ack.
    assert!((0.140..0.145).contains(&max), "{max}");
    // Reno's window goes from a half to a whole of buffer and path, at a rate that slows down.
    assert!((0.9..1.1).contains(&(p50 / mean)), "{p50} {mean}");
    assert!(p50 < p95 && p95 < max && p95 > 0.9 * max, "{p50} {p95} {max}");
}

#[test]
fn a_stream_that_could_never_run_is_refused_with_the_reason() {
    let refused = |link: &str, tcp: &str| {
        let text = format!(
            "title = \"Refused\"\nduration = \"1s\"\n[[link]]\nname = \"wire\"\nforward = {{ {link} }}\n\
             [[flow]]\nname = \"tcp\"\npath = [\"wire\"]\ntcp = {{ control = \"cubic\"{tcp} }}\n"
        );
        Scenario::parse(&text[..]).unwrap_err().to_string()
    };
    for (link, tcp, expected) in [
        ("", "", "nothing on its `path` takes time"),
        ("delay = \"1ms\"", ", segment = \"65496B\"", "give from 1B to 65495B"),
        ("delay = \"1ms\"", ", receive_buffer = [\"1B\", \"1B\"]", "begins below 2896B"),
        (
            "delay = \"1ms\"",
            ", receiver = { law = \"fixed\", window = \"2000000000B\" }",
            "at most 1073741824 bytes",
        ),
    ] {
        let message = refused(link, tcp);
        assert!(message.contains(expected) && message.contains("line 7"), "{message}");
    }
}
