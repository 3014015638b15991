//! Saturation throughput of the mesh's radio compared with a published model (`mesh::Saturation`).

use freshline_lab::mesh::{Csma, Saturation};
use freshline_lab::run;
use freshline_lab::scenario::{Change, Scenario};

const SCENARIO: &str = include_str!("../../../scenarios/dtpa/saturation.toml");
const OCTETS: u64 = 127;
/// The lab counts IPv4's packet; behind the MAC's header are two octets more.
const COMPRESSED: f64 = 116.0 / 114.0;

fn measured(nodes: u32) -> f64 {
    let places = (1..=nodes).map(|node| format!(", [{}.0, {}.0]", 1 + node % 4, node / 4));
    let at = format!("mesh.star.at=[[0.0, 0.0]{}]", places.collect::<String>());
    let changes = [at, "duration=200s".into()];
    let changes: Vec<_> = changes.iter().map(|text| Change::parse(text).unwrap()).collect();
    let metrics = run::run(&Scenario::parse_with(SCENARIO, &changes).unwrap(), || {}).unwrap();
    let each = metrics.iter().find(|metric| metric.name == "throughput").unwrap().value;
    each * f64::from(nodes) * COMPRESSED
}

fn model(nodes: u32) -> f64 {
    Saturation { nodes, octets: OCTETS, csma: Csma::default() }.throughput_bps()
}

#[test]
fn a_lone_sender_has_the_sum_of_the_standards_times() {
    // 3.5 backoff periods, CCA, turnaround, frame, turnaround, ack, LIFS: 6.88 ms for 116 octets.
    let exact = 8.0 * 116.0 / 6.88e-3;
    assert!((model(1) / exact - 1.0).abs() < 1e-6, "{} {exact}", model(1));
    assert!((measured(1) / exact - 1.0).abs() < 0.005, "{} {exact}", measured(1));
    // Latré et al. leave CCA and turnaround out: 6.56 ms.
    let published = 8.0 * 116.0 / 6.56e-3;
    assert!((measured(1) / published - 1.0).abs() < 0.05, "{} {published}", measured(1));
}

#[test]
fn contenders_share_what_the_model_promises() {
    for nodes in [2, 5, 10] {
        let (measured, model) = (measured(nodes), model(nodes));
        let off = measured / model - 1.0;
        println!("{nodes} nodes: {measured:.0} bit/s, the model {model:.0}: {:+.1} %", off * 100.0);
        assert!(off.abs() < 0.05, "{nodes} nodes: {measured:.0} and {model:.0} bit/s");
    }
}
