//! After an outage with a queue Tenth sends again within a few round trips, however long those of the outage were,
//! and after a flood by others within seconds, however much it has lost.

#[path = "common/scenarios.rs"]
mod scenarios;

use scenarios::{measured, value};

const OUTAGES: &str = include_str!("../../../scenarios/fresher/outages.toml");

const FLOODED: &str = include_str!("../../../scenarios/fresher/flooded.toml");

/// Tenth's age in Lazy's: at most this. It was 1.77 before round trips could be out of date, and 3.1 with short
/// queues before a queue of its own was known to drain.
const NEAR: f64 = 1.15;

#[test]
fn a_round_trip_of_an_outage_does_not_slow_what_is_sent_after_it() {
    for changes in [
        &[][..],
        &["link.link.forward.delay=100ms"],
        &["link.link.forward.queue=400p"],
        &["link.link.forward.queue=20p"],
        &["link.link.forward.queue=10p"],
        &["link.link.forward.rate=2mbit", "flow.source.updates.payload=200B"],
    ] {
        let age = |law: &str| {
            let changes: Vec<_> = changes.iter().copied().chain([law]).collect();
            value(&measured(OUTAGES, &changes), "age_mean", "source")
        };
        let (tenth, lazy) =
            (age("flow.source.updates.law=tenth"), age("flow.source.updates.law=lazy"));
        println!("{changes:?}: tenth {:.0} ms, lazy {:.0} ms", 1e3 * tenth, 1e3 * lazy);
        assert!(tenth < NEAR * lazy, "{changes:?}: {tenth} {lazy}");
    }
}

/// Rounds alone need 20 s and more from where a flood leaves the rate, which is an age of half a second in the
/// measured time.
#[test]
fn a_flood_that_has_passed_is_forgotten_within_seconds() {
    for changes in [
        &[][..],
        &["link.link.forward.delay=5ms"],
        &["link.link.forward.queue=5p", "flow.other.cross_traffic.rate=2mbit"],
        &["flow.source.updates.payload=200B"],
    ] {
        let age = value(&measured(FLOODED, changes), "age_mean", "source");
        println!("{changes:?}: {:.0} ms", 1e3 * age);
        assert!(age < 0.3, "{changes:?}: {age}");
    }
}
