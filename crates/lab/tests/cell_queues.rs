//! A cell with a queue per user: a download delays only its own user, whether a rate or a trace of
//! delivery opportunities drives the cell.

use freshline_lab::run::{Metric, run};
use freshline_lab::scenario::{Scenario, Source};

const CELL: &str = r#"
title = "Two downloads and a ping in a cell"
duration = "10s"
warm_up = "2s"

[[link]]
name = "cell"
forward = { SERVICE, delay = "10ms", queue = QUEUE }
reverse = { delay = "10ms" }

[[flow]]
name = "ping"
path = ["cell"]
updates = { law = "fixed", rate = "20/s", payload = "56B" }

[[flow]]
name = "short"
path = ["cell"]
tcp = { control = "cubic", receiver = { law = "fixed", window = "60kB" } }

[[flow]]
name = "long"
path = ["cell"]
tcp = { control = "cubic", receiver = { law = "fixed", window = "120kB" } }
"#;

const PER_FLOW: &str = r#"{ discipline = "drr", limit = "500p" }"#;

fn measured(service: &str, queue: &str) -> Vec<Metric> {
    let text = CELL.replace("SERVICE", service).replace("QUEUE", queue);
    // 1500 bytes each ms: 12 Mbit/s.
    let source = Source { text: &text, read_file: &|_| Ok("1\n".to_owned()) };
    run(&Scenario::parse(source).unwrap(), || {}).unwrap()
}

fn value(metrics: &[Metric], name: &str, of: &str) -> f64 {
    let found = metrics.iter().find(|metric| metric.name == name && metric.of == of);
    found.unwrap_or_else(|| panic!("no {name} of {of}")).value
}

#[test]
fn each_user_waits_in_his_own_queue_and_has_his_share_of_the_cell() {
    for service in [r#"rate = "12mbit""#, r#"trace = "cell.trace""#] {
        let metrics = measured(service, PER_FLOW);
        let rtt = |of| value(&metrics, "rtt_mean", of);
        // A ping waits for a packet of either download, and the packet in transmission.
        assert!(rtt("ping") < 0.020 + 3.0 * 0.001, "{service}: {}", rtt("ping"));
        // A window at half of 12 Mbit/s, of which 1448 of 1500 bytes are payload.
        for (of, window) in [("short", 60e3), ("long", 120e3)] {
            let expected = window * 8.0 / (6e6 * 1448.0 / 1500.0);
            assert!((rtt(of) / expected - 1.0).abs() < 0.05, "{service}: {of} {}", rtt(of));
        }
        let goodput = |of| value(&metrics, "goodput", of);
        let ratio = goodput("short") / goodput("long");
        assert!((ratio - 1.0).abs() < 0.02, "{service}: {ratio}");
    }
}

#[test]
fn in_one_queue_for_all_everybody_waits_for_everybody() {
    let metrics = measured(r#"rate = "12mbit""#, r#""500p""#);
    let rtt = |of| value(&metrics, "rtt_mean", of);
    assert!(rtt("ping") > 0.1, "{}", rtt("ping"));
    assert!((rtt("short") / rtt("long") - 1.0).abs() < 0.05);
}
