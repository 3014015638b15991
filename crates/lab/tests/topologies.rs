//! Networks of many links: the endpoints of flows, the links between them, and the queues of the
//! links.

use std::collections::HashSet;
use std::io;

use freshline_core::unit::{Span, Time};
use freshline_lab::run::run;
use freshline_lab::scenario::{Built, Change, Scenario, Source};
use freshline_lab::world::Leg;

const RING: &str = r#"
source = "a ring of four, and a chord"
nodes = ["a", "b", "c", "d"]
[[link]]
between = ["a", "b"]
delay = "1ms"
[[link]]
between = ["b", "c"]
delay = "1ms"
[[link]]
between = ["c", "d"]
delay = "1ms"
[[link]]
between = ["d", "a"]
delay = "1ms"
"#;

const SCENARIO: &str = r#"
title = "Updates between the nodes of a ring"
duration = "1s"

[topology]
file = "ring.toml"
pairs = 1.0
hop = { rate = "10mbit", delay = "1ms" }

[[flow]]
name = "updates"
each_pair = true
updates = { law = "fixed", rate = "10/s", payload = "400B", ack = "0B" }
"#;

fn scenario_of(text: &str, ring: &str, changes: &[&str]) -> Result<Scenario, String> {
    let beside = |name: &str| match name {
        "ring.toml" => Ok(ring.to_owned()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    let changes: Vec<_> = changes.iter().map(|change| Change::parse(change).unwrap()).collect();
    let source = Source { text, read_file: &beside };
    Scenario::parse_with(source, &changes).map_err(|error| error.to_string())
}

fn built(changes: &[&str], run: u32) -> Built {
    scenario_of(SCENARIO, RING, changes).unwrap().build(run).unwrap()
}

/// The legs there of each flow.
fn ways(built: &Built) -> Vec<Vec<Leg>> {
    let flows = built.world.flows().iter();
    flows.map(|flow| flow.legs[..flow.forward_legs as usize].to_vec()).collect()
}

#[test]
fn each_pair_has_a_flow_over_the_shortest_way() {
    let ways = ways(&built(&[], 0));
    assert_eq!(ways.len(), 4 * 3);
    // From a: to b, to c through b, to d. Link n is hops 2n forward and 2n + 1 in reverse.
    assert_eq!(ways[0], [Leg::Hop(0)]);
    assert_eq!(ways[1], [Leg::Hop(0), Leg::Hop(2)]);
    assert_eq!(ways[2], [Leg::Hop(7)]);
    let metrics = run(&scenario_of(SCENARIO, RING, &[]).unwrap(), || {}).unwrap();
    let age = metrics.iter().find(|metric| metric.name == "age_mean").unwrap().value;
    // 4/3 hops of 2 ms on average, the transmissions, and half of an interval.
    assert!((0.0527..0.0535).contains(&age), "{age}");
}

#[test]
fn acks_and_backward_flows_have_the_shortest_way_of_their_own() {
    let ends = |changes: &[&str]| {
        let built = built(changes, 0);
        let first = &built.world.flows()[1];
        let (there, back) = first.legs.split_at(first.forward_legs as usize);
        (there.to_vec(), back.to_vec())
    };
    let (there, back) = ends(&[]);
    assert_eq!(back, [Leg::Hop(3), Leg::Hop(1)], "from c to a by way of b, too");
    assert_eq!(ends(&["flow.updates.reverse=true"]), (back, there));
}

#[test]
fn a_run_draws_its_pairs_from_its_seed() {
    let drawn =
        |changes: &[&str], run| ways(&built(&[changes, &["topology.pairs=0.5"]].concat(), run));
    assert_eq!(drawn(&[], 0), drawn(&[], 0));
    let patterns: HashSet<_> = (0..8).map(|run| format!("{:?}", drawn(&[], run))).collect();
    assert!(patterns.len() > 4, "{patterns:?}");
    assert_ne!(drawn(&[], 0), drawn(&["seed=2"], 0));
    let count: usize = (0..64).map(|run| drawn(&[], run).len()).sum();
    // 384 of 768, and a standard deviation is 14.
    assert!((330..440).contains(&count), "{count}");
    // Other random values do not change the endpoints.
    let queue = r#"topology.hop.queue={ discipline = "red", limit = "100kB" }"#;
    assert_eq!(drawn(&[], 3), drawn(&[queue, "flow.updates.start_spread=10ms"], 3));
}

#[test]
fn links_adopt_a_queue_with_a_probability_and_those_that_did_stay() {
    // A queue into which no packet fits shows by its drops.
    let dropping = |adoption: f64| {
        let adoption = format!("topology.adoption={adoption}");
        let mut built = built(&["topology.hop.queue=1B", "topology.legacy=100p", &adoption], 3);
        built.world.run_until(Time::ZERO + Span::from_secs(1));
        let hops = built.world.hops().iter().enumerate();
        let dropping = hops.filter(|(_, hop)| hop.stats().drops.total().get() > 0);
        dropping.map(|(number, _)| number).collect::<HashSet<_>>()
    };
    assert_eq!(dropping(0.0), HashSet::new());
    assert_eq!(dropping(1.0).len(), 8, "neighbours talk over each link");
    let (some, more) = (dropping(0.3), dropping(0.7));
    assert!(some.is_subset(&more) && more.is_subset(&dropping(1.0)), "{some:?} {more:?}");
}

#[test]
fn what_makes_no_sense_is_refused_with_its_line_and_a_remedy() {
    let refused = |changes: &[&str], ring: &str| scenario_of(SCENARIO, ring, changes).unwrap_err();
    for (change, remedy) in [
        ("topology.file=square.toml", "cannot read `square.toml`"),
        ("topology.pairs=1.5", "`pairs` is 1.5; give a probability from 0 to 1"),
        ("topology.adoption=0.5", "`adoption` is below 1; say with `legacy`"),
        ("topology.hop.rate=0mbit", "`hop`: `rate` is zero"),
        ("flow.updates.path=[\"x\"]", "`each_pair` excludes `path`, `each_hop`"),
    ] {
        let message = refused(&[change], RING);
        assert!(message.contains(remedy), "{change}: {message}");
    }
    let message = refused(&[], &RING.replace("\"d\", \"a\"", "\"d\", \"x\""));
    assert!(
        message.starts_with("line 5: topology: `ring.toml`: line 14: there is no node `x`"),
        "{message}"
    );
    let without: String = SCENARIO.split("[topology]").next().unwrap().to_owned()
        + "[[flow]]"
        + SCENARIO.split("[[flow]]").nth(1).unwrap();
    let error = Scenario::parse(without.as_str()).unwrap_err().to_string();
    assert!(error.contains("`each_pair` needs a [topology]"), "{error}");
}
