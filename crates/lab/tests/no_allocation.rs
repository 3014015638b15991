//! Once its queues have grown, a world allocates nothing but octaves of histograms, for times that
//! occur for the first time.

#[path = "../../core/tests/common/counting.rs"]
mod counting;

use counting::allocations;
use freshline_core::unit::{Span, Time};
use freshline_lab::scenario::{Change, Scenario};

/// Octaves of histograms that a minute of more than 100,000 events may add: only times beyond all of the
/// twenty minutes before have a new one.
const NEW_OCTAVES: u64 = 2;

/// Events and allocations of the minute after twenty. After ten minutes a queue may still reach a new
/// maximum, as in a cell whose channel is drawn for each frame.
fn events_and_allocations(scenario: &str, changes: &[&str]) -> (u64, u64) {
    let changes = changes.iter().copied().chain(["duration=1260s"]);
    let changes: Vec<_> = changes.map(|change| Change::parse(change).unwrap()).collect();
    let mut world = Scenario::parse_with(scenario, &changes).unwrap().build(0).unwrap().world;
    world.run_until(Time::ZERO + Span::from_secs(1200));
    let (events, before) = (world.events(), allocations());
    world.run_until(Time::ZERO + Span::from_secs(1260));
    (world.events() - events, allocations() - before)
}

#[test]
fn a_path_with_updates_allocates_nothing() {
    let path = r#"
        title = "three sources and other traffic on six hops"
        duration = "1s"
        [[link]]
        name = "hops"
        count = 6
        forward = { rate = "6mbit", delay = "1ms", jitter = "500us", loss = 0.01, queue = "100p" }
        [[flow]]
        name = "source"
        count = 3
        path = ["hops"]
        start_spread = "1s"
        updates = { law = "acp+d", payload = "1024B" }
        [[flow]]
        name = "other"
        path = ["hops"]
        reverse = true
        cross_traffic = { pattern = "poisson", rate = "1mbit", size = "1000B" }
    "#;
    let (events, allocations) = events_and_allocations(path, &[]);
    assert!(events > 100_000, "{events}");
    assert!(allocations <= NEW_OCTAVES, "{allocations}");
}

#[test]
fn a_wi_fi_cell_allocates_nothing() {
    let wifi = include_str!("../../../scenarios/wifi-sources.toml");
    // Short queues are soon as long as they get.
    let law = r#"flow.source.updates.law="acp+d""#;
    let changes = ["flow.source.count=12", "cell.wifi.radio.queue=4p", law];
    let (events, allocations) = events_and_allocations(wifi, &changes);
    assert!(events > 100_000, "{events}");
    assert!(allocations <= NEW_OCTAVES, "{allocations}");
}

#[test]
fn what_allocates_is_seen() {
    let before = allocations();
    drop(std::hint::black_box(vec![1]));
    assert!(allocations() > before);
}
