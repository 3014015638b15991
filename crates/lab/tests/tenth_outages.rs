//! After an outage with a queue Tenth sends again within a few round trips, however long those of the outage were.

#[path = "common/scenarios.rs"]
mod scenarios;

use scenarios::{measured, value};

const OUTAGES: &str = include_str!("../../../scenarios/fresher/outages.toml");

/// Tenth's age in Lazy's: at most this, with 1.77 times before there was a rule for it.
const NEAR: f64 = 1.15;

#[test]
fn a_round_trip_of_an_outage_does_not_slow_what_is_sent_after_it() {
    for changes in [
        &[][..],
        &["link.link.forward.delay=100ms"],
        &["link.link.forward.queue=400p"],
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
