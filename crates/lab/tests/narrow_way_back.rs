//! Acks of a law that asks for few do not queue on a narrow reverse path, and the law is nearly as
//! fresh as a rate that knows the path.

#[path = "common/scenarios.rs"]
mod scenarios;

use scenarios::{measured, value};

const NARROW_BACK: &str = include_str!("../../../scenarios/fresher/narrow-back.toml");

/// The true age and the round trip with these acks or that rate, in ms, and the backlog of the
/// reverse path.
fn run(updates: &[&str]) -> [f64; 3] {
    let keys = updates.iter().map(|update| format!("flow.source.updates.{update}"));
    let changes: Vec<_> =
        ["runs=1", "duration=20s"].map(str::to_owned).into_iter().chain(keys).collect();
    let changes: Vec<_> = changes.iter().map(String::as_str).collect();
    let metrics = measured(NARROW_BACK, &changes);
    let ms = |name| 1e3 * value(&metrics, name, "source");
    [ms("age_mean"), ms("rtt_mean"), value(&metrics, "reverse_queue_mean", "link")]
}

#[test]
fn acks_that_are_not_asked_for_do_not_queue_and_the_state_is_fresher() {
    let [every, sparse] = ["every", "sparse"].map(|acks| run(&[&format!("params.acks={acks}")]));
    let best = run(&["law=fixed", "rate=1370/s"]);
    assert!(every[1] > 1.1 * sparse[1], "{every:?} {sparse:?}");
    assert!(sparse[1] < 40.0 && sparse[2] < 2.0, "{sparse:?}");
    assert!(
        sparse[0] < 0.9 * every[0] && sparse[0] < 1.15 * best[0],
        "{sparse:?} {every:?} {best:?}"
    );
}
