//! Whole endpoints under faults, from a hundred seeds; `freshline lab torture` runs more.

use freshline_lab::torture::{Report, replay, torture};

const SEEDS: u64 = 100;

#[test]
fn after_any_trouble_every_property_holds() {
    let Report { counts, failures, .. } = torture(0..SEEDS, || {});
    let told: Vec<_> = failures
        .iter()
        .map(|failed| format!("seed {}: {:?}", failed.plan.seed, failed.breach))
        .collect();
    assert!(told.is_empty(), "{}", told.join("\n"));
    // There was trouble, and life in spite of it.
    assert!(counts.incidents > 10 * SEEDS && counts.opened > 4 * SEEDS, "{counts:?}");
    assert!(counts.large > 50 * SEEDS, "{counts:?}");
    assert!(counts.fresh > 1_000 * SEEDS && counts.sent - counts.fresh > 100 * SEEDS, "{counts:?}");
    assert!(counts.commands > 1_000 * SEEDS, "{counts:?}");
    assert!(counts.records.min(counts.keys).min(counts.urgent) > 50 * SEEDS, "{counts:?}");
}

#[test]
fn the_same_seed_is_the_same_world_on_any_thread() {
    let together = torture(0..8, || {}).counts;
    let mut one_by_one = torture(0..0, || {}).counts;
    for seed in 0..8 {
        let again = replay(seed);
        assert_eq!(replay(seed).trace, again.trace, "seed {seed}");
        one_by_one += again.counts;
    }
    assert_eq!(together, one_by_one);
}
