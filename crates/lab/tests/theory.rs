//! The lab compared with queueing theory, on the scenario files themselves.

use freshline_core::age::theory::Queues;
use freshline_core::unit::UpdateRate;
use freshline_lab::run::{Metric, run};
use freshline_lab::scenario::{Change, Scenario};

const ONE_QUEUE: &str = include_str!("../../../scenarios/one-mm1-queue.toml");

fn metrics(changes: &[&str]) -> Vec<Metric> {
    let changes: Vec<_> = changes.iter().map(|change| Change::parse(change).unwrap()).collect();
    run(&Scenario::parse_with(ONE_QUEUE, &changes).unwrap(), || {}).unwrap()
}

fn value(metrics: &[Metric], name: &str, of: &str) -> f64 {
    let found = metrics.iter().find(|metric| metric.name == name && metric.of == of);
    found.unwrap_or_else(|| panic!("no {name} of {of} in {metrics:?}")).value
}

#[test]
fn one_queue_has_the_age_and_the_backlog_of_m_m_1() {
    let service = UpdateRate::saturating(1000.0);
    for load in [0.3, 0.53, 0.8] {
        let rate = service.scaled(load);
        let measured = metrics(&[&format!("flow.source.updates.rate={rate}"), "duration=420s"]);
        let age = Queues::Mm1 { service }.mean_age(rate).unwrap().as_secs_f64();
        let ours = value(&measured, "age_mean", "source");
        assert!((ours / age - 1.0).abs() < 0.02, "load {load}: age {ours} s, theory {age} s");
        let backlog = value(&measured, "backlog", "source");
        let in_system = load / (1.0 - load);
        assert!((backlog / in_system - 1.0).abs() < 0.03, "load {load}: {backlog}, {in_system}");
        let utilisation = value(&measured, "utilisation", "queue");
        assert!((utilisation - load).abs() < 0.01, "load {load}: {utilisation}");
    }
}

#[test]
fn the_numbers_of_a_seed_are_the_same_on_any_number_of_threads() {
    let changes = ["duration=30s"];
    let many = metrics(&changes);
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert_eq!(one.install(|| metrics(&changes)), many);
    assert_ne!(metrics(&["duration=30s", "seed=2"]), many);
}
