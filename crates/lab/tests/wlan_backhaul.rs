//! A slow backhaul in front of the lab's Wi-Fi: with the guard no law overloads it, and where the
//! Wi-Fi is the bottleneck, the levels are those of the law alone.

use freshline_lab::run::{Metric, run};
use freshline_lab::scenario::{Change, Scenario};

const BACKHAUL: &str = include_str!("../../../scenarios/wlan/backhaul.toml");
const SHORT: [&str; 3] = ["sweep={}", "duration=30s", "warm_up=10s"];

fn measured(changes: &[&str]) -> Vec<Metric> {
    let changes: Vec<_> =
        SHORT.iter().chain(changes).map(|change| Change::parse(change).unwrap()).collect();
    run(&Scenario::parse_with(BACKHAUL, &changes).unwrap(), || {}).unwrap()
}

fn value(metrics: &[Metric], name: &str) -> f64 {
    let found = metrics.iter().find(|metric| metric.name == name && metric.of == "video");
    found.unwrap_or_else(|| panic!("no {name}: {metrics:?}")).value
}

/// Offered load over the worst 5 s, and goodput, headers included, as parts of the bottleneck.
fn load(bottleneck: f64, changes: &[&str]) -> [f64; 2] {
    let metrics = measured(changes);
    let carried = value(&metrics, "goodput_sum") * 1500.0 / 1472.0;
    [value(&metrics, "offered_max"), carried].map(|bps| bps / bottleneck)
}

fn assert_safe(bottleneck: f64, changes: &[&str]) {
    let [offered, carried] = load(bottleneck, changes);
    assert!(offered <= 1.1 && carried >= 0.9, "{changes:?}: {offered} offered, {carried} carried");
}

#[test]
fn no_law_overloads_a_slow_backhaul() {
    for law in ["nonlinear", "algorithm2", "linear"] {
        assert_safe(30e6, &[r#"link.backhaul.forward.rate=30mbit"#, &law_of(law)]);
    }
    let fixed = r#"flow.video.downlink.law={ law = "fixed", rate = "120mbit" }"#;
    assert_safe(30e6, &["link.backhaul.forward.rate=30mbit", fixed]);
    let off = "flow.video.downlink.guard=false";
    let [offered, _] = load(30e6, &["link.backhaul.forward.rate=30mbit", off]);
    assert!(offered > 5.0, "{offered}: it is the guard");
}

fn law_of(name: &str) -> String {
    format!("flow.video.downlink.law=\"{name}\"")
}

#[test]
fn whatever_queue_the_backhaul_has() {
    for queue in ["10p", "5000p", "codel", "fq_codel"] {
        let there = format!(
            r#"link.backhaul.forward={{ rate = "40mbit", delay = "5ms", queue = "{queue}" }}"#
        );
        assert_safe(40e6, &[&there]);
    }
}

#[test]
fn several_clients_share_a_backhaul_that_becomes_slower() {
    let clients = "flow.video.count=4";
    assert_safe(40e6, &["link.backhaul.forward.rate=40mbit", clients]);
    let there = r#"link.backhaul.forward={ rate = "60mbit", delay = "5ms", queue = "500p", change = [{ at = "18s", rate = "20mbit" }] }"#;
    let metrics = measured(&[there, clients]);
    let ratio = value(&metrics, "offered_ratio");
    assert!(ratio <= 1.1, "{ratio}");
    // 8 s at 60 and 12 s at 20.
    let carried = value(&metrics, "goodput_sum") * 1500.0 / 1472.0 / 36e6;
    assert!(carried >= 0.9, "{carried}");
}

#[test]
fn levels_are_those_of_the_law_alone_where_the_wi_fi_is_the_bottleneck() {
    let wide = [
        "link.backhaul.forward.rate=1gbit",
        "duration=25s",
        r#"cell.wifi.radio={ standard = "802.11ac", width = "40MHz", rate = "mcs7", streams = 1 }"#,
    ];
    for law in ["nonlinear", "algorithm2", "linear"] {
        let of = |guard: &str| {
            let set = law_of(law);
            let all: Vec<&str> = wide.iter().copied().chain([set.as_str(), guard]).collect();
            let metrics = measured(&all);
            [value(&metrics, "level_mean"), value(&metrics, "goodput")]
        };
        let [alone, guarded] =
            ["false", "true"].map(|on| of(&format!("flow.video.downlink.guard={on}")));
        for (alone, guarded) in alone.into_iter().zip(guarded) {
            assert!((guarded / alone - 1.0).abs() < 0.03, "{law}: {guarded} for {alone}");
        }
    }
}
