//! Limits on the rates of the lab's sources: a scenario asks for them, they hold from the first
//! packet, and without them the laws are as published.

#[path = "common/scenarios.rs"]
mod scenarios;

use freshline_core::unit::{Span, Time};
use freshline_core::wire::Update;
use freshline_lab::world::Flow;
use scenarios::refused;

/// A path on which no law finds a reason to stop below some thousand updates/s.
const FAST: &str = r#"
title = "A source and a fast link"
duration = "60s"

[[link]]
name = "link"
forward = { rate = "50mbit", delay = "50us" }

[[flow]]
name = "source"
path = ["link"]
updates = { law = "lazy", payload = "100B" }
"#;

const LAWS: [&str; 5] = ["acp+", "acp+d", "acp", "tenth", "lazy"];

/// Updates sent by each of these times, in s.
fn sent<const N: usize>(changes: &[&str], seconds: [f64; N]) -> [u64; N] {
    let mut world = scenarios::scenario(FAST, changes).unwrap().build(0).unwrap().world;
    seconds.map(|seconds| {
        world.run_until(Time::ZERO + Span::from_secs_f64(seconds));
        let Flow::Updates(flow) = &world.flows()[0].flow else { panic!("a flow of updates") };
        flow.sent()
    })
}

#[test]
fn no_law_exceeds_its_max_rate_from_the_first_update_on() {
    for law in LAWS {
        let law = format!("flow.source.updates.law={law}");
        for (rate, seconds) in [(5.0, [0.1, 1.0, 3.0]), (20.0, [0.1, 1.0, 3.0])] {
            let limit = format!("flow.source.updates.max_rate={rate}/s");
            for (sent, seconds) in sent(&[&law, &limit], seconds).into_iter().zip(seconds) {
                assert!(sent as f64 <= 1.0 + rate * seconds, "{law}, {limit}: {sent}");
            }
        }
    }
}

#[test]
fn what_is_worth_it_is_a_question_that_the_scenario_has_to_ask() {
    for law in LAWS {
        let law = format!("flow.source.updates.law={law}");
        let [before, free] = sent(&[&law], [2.0, 3.0]);
        assert!(free - before > 1_500, "{law}: {}", free - before);
        let worth = "flow.source.updates.min_age_gain=default";
        let [before, within] = sent(&[&law, worth], [2.0, 3.0]);
        assert!((900..=1_001).contains(&(within - before)), "{law}: {}", within - before);
        let [within] = sent(&[&law, "flow.source.updates.min_age_gain=5ms"], [3.0]);
        assert!((285..=301).contains(&within), "{law}: {within} in 3 s");
    }
    for law in ["fixed", "poisson"] {
        let law = format!("flow.source.updates.law={law}");
        let changes =
            [&law, "flow.source.updates.rate=9/s", "flow.source.updates.min_age_gain=1ms"];
        let why = refused(FAST, &changes);
        assert!(why.contains("`min_age_gain` belongs to laws that find the rate"), "{why}");
    }
}

#[test]
fn the_bandwidth_is_kept_from_the_first_update_on() {
    for law in LAWS {
        let law = format!("flow.source.updates.law={law}");
        let limit = "flow.source.updates.max_bandwidth=100kbit";
        let seconds = [0.01, 0.5, 10.0];
        // 100 bytes, with the headers of the protocol, UDP and IPv4.
        for (sent, seconds) in sent(&[&law, limit], seconds).into_iter().zip(seconds) {
            let bytes = sent as f64 * (100 + Update::HEADER_LEN + 28) as f64;
            assert!(bytes <= 12_500.0 * seconds + 3_000.0 + 400.0, "{law}: {bytes} in {seconds} s");
        }
    }
}
