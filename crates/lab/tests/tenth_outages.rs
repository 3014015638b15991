//! After an outage with a queue Tenth sends again within a few round trips, however long the round
//! trips of the outage were; after a flood by competing flows it does within seconds, however much
//! it has lost.

#[path = "common/scenarios.rs"]
mod scenarios;

use scenarios::{measured, value};

const OUTAGES: &str = include_str!("../../../scenarios/fresher/outages.toml");

const FLOODED: &str = include_str!("../../../scenarios/fresher/flooded.toml");

/// Tenth's age in Lazy's: at most this. It was 1.77 before round trips could be out of date, and 3.1 with short
/// queues before a queue of its own was known to drain.
const NEAR: f64 = 1.15;

/// The mean ages of tenth and Lazy, s.
fn ages(scenario: &str, changes: &[&str]) -> [f64; 2] {
    let ages = ["flow.source.updates.law=tenth", "flow.source.updates.law=lazy"].map(|law| {
        let changes: Vec<_> = changes.iter().copied().chain([law]).collect();
        value(&measured(scenario, &changes), "age_mean", "source")
    });
    println!("{changes:?}: tenth {:.0} ms, lazy {:.0} ms", 1e3 * ages[0], 1e3 * ages[1]);
    ages
}

#[test]
fn a_round_trip_of_an_outage_does_not_slow_what_is_sent_after_it() {
    for changes in [
        &[][..],
        &["link.link.forward.delay=100ms"],
        &["link.link.forward.queue=400p"],
        &["link.link.forward.queue=20p"],
        &["link.link.forward.queue=10p"],
        &["link.link.forward.queue=20p", "link.link.forward.jitter=1ms"],
        &["link.link.forward.rate=2mbit", "flow.source.updates.payload=200B"],
    ] {
        let [tenth, lazy] = ages(OUTAGES, changes);
        assert!(tenth < NEAR * lazy, "{changes:?}: {tenth} {lazy}");
    }
}

/// Maximum ratio to Lazy's age. It was 8.5 and 7.0: rounds alone need 20 s and more from the rate
/// after a flood.
const SOON: f64 = 4.0;

#[test]
fn a_flood_that_has_passed_is_forgotten_within_seconds() {
    for changes in [&[][..], &["link.link.forward.queue=5p", "flow.other.cross_traffic.rate=2mbit"]]
    {
        let [tenth, lazy] = ages(FLOODED, changes);
        assert!(tenth < SOON * lazy, "{changes:?}: {tenth} {lazy}");
    }
}
