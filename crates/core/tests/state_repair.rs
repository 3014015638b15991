//! States that are longer than a datagram, slot by slot: the ages under the law of repair agree
//! with its formulas, and are near those of the best fixed rule; and states arrive however many are
//! put.

#[path = "common/state_run.rs"]
#[allow(dead_code, reason = "an example uses the rest")]
mod state_run;

use freshline_core::state::repair::{Params, Repair};
use freshline_core::unit::Span;
use state_run::{Channel, Course, Former, Outcome, Rule, mean_with_instant_feedback, run};

/// Independent losses.
fn independent(loss: f64) -> Channel {
    Channel { loss, burst: 0.0 }
}

fn fixed(repair: u32, former: Former) -> Rule {
    Rule::Fixed { repair, former, retransmits: true, is_waiting: false }
}

fn law_on(symbols: u32, round_trip: u32, channel: Channel, slots: usize) -> Outcome {
    let lost = channel.losses(slots, 11);
    run(Course { symbols, round_trip, puts: None, lost: &lost }, Rule::Law)
}

/// `d + n − 1 + E[J | J ≤ k] + (n + k)·(1/P − 1/2)`, from the exact sum.
fn renewal_age(n: u32, k: u32, p: f64, round_trip: u32) -> f64 {
    let (mut mass, mut success, mut losses) = ((1.0 - p).powf(f64::from(n)), 0.0, 0.0);
    for j in 0..=k {
        success += mass;
        losses += f64::from(j) * mass;
        mass *= p * f64::from(n + j) / f64::from(j + 1);
    }
    let delivery = f64::from(round_trip) / 2.0 + f64::from(n) - 1.0 + losses / success;
    delivery + f64::from(n + k) * (1.0 / success - 0.5)
}

#[test]
fn fixed_redundancy_has_the_age_of_the_renewal_argument() {
    for (n, k, loss) in [(1, 0, 0.2), (1, 1, 0.2), (10, 2, 0.05), (10, 4, 0.2), (50, 4, 0.05)] {
        let round_trip = 300;
        let lost = independent(loss).losses(400_000, 3);
        let course = Course { symbols: n, round_trip, puts: None, lost: &lost };
        let (mean, expected) =
            (run(course, fixed(k, Former::Never)).mean, renewal_age(n, k, loss, round_trip));
        let delay = f64::from(round_trip) / 2.0;
        let ratio = (mean - delay) / (expected - delay);
        assert!((0.97..1.03).contains(&ratio), "{n} {k} {loss}: {mean} {expected}");
    }
}

#[test]
fn the_law_foretells_its_mean_age() {
    for (n, round_trip, loss) in
        [(20, 300, 0.05), (100, 10, 0.05), (300, 100, 0.01), (300, 40, 0.2)]
    {
        let mean = law_on(n, round_trip, independent(loss), 200_000).mean;
        let mut law = Repair::new(Params::default());
        let slot = Span::from_millis(1);
        law.on_slot(slot);
        law.on_round_trip(slot * u64::from(round_trip));
        for is_lost in independent(loss).losses(20_000, 5) {
            if is_lost { law.on_lost() } else { law.on_arrived() }
        }
        // Without the forward delay, which is the same in both.
        let ratio = (mean - f64::from(round_trip) / 2.0) / law.age_slots(n);
        assert!((0.98..1.02).contains(&ratio), "{n} {round_trip} {loss}: {ratio}");
    }
}

#[test]
fn without_losses_a_state_is_one_and_a_half_of_its_length_old() {
    for (n, round_trip) in [(1, 30), (10, 100), (100, 10), (100, 300)] {
        let age = law_on(n, round_trip, independent(0.0), 40_000).mean;
        let expected = 1.5 * f64::from(n) - 1.0 + f64::from(round_trip) / 2.0;
        assert!((age / expected - 1.0).abs() < 0.01, "{n} {round_trip}: {age} {expected}");
    }
}

#[test]
fn the_law_is_near_the_best_rule_with_and_without_bursts() {
    for (n, round_trip, loss, burst) in [
        (10, 30, 0.05, 5.0),
        (100, 10, 0.05, 0.0),
        (100, 100, 0.05, 20.0),
        (100, 300, 0.05, 0.0),
        (200, 60, 0.2, 5.0),
    ] {
        let lost = Channel { loss, burst }.losses(60_000, 21);
        let course = Course { symbols: n, round_trip, puts: None, lost: &lost };
        let law = run(course, Rule::Law).mean;
        let formers = [Former::Never, Former::Always, Former::Ratio { ratio: 1.0, extra: 1 }];
        let counts = [0, 1, 2, 4, 8, 16, 32, 64].into_iter().filter(|count| *count <= n);
        let rules = counts.flat_map(|count| formers.map(|former| fixed(count, former)));
        let best = rules.map(|rule| run(course, rule).mean).fold(f64::INFINITY, f64::min);
        let delay = f64::from(round_trip) / 2.0;
        assert!(
            law - delay < 1.02 * (best - delay),
            "{n} {round_trip} {loss} {burst}: {law} over {best}"
        );
        assert!(law < 1.25 * mean_with_instant_feedback(course), "{n} {round_trip}: {law}");
    }
}

#[test]
fn long_bursts_do_not_keep_states_from_arriving() {
    for n in [10, 100, 1_000] {
        let outcome = law_on(n, 100, Channel { loss: 0.2, burst: 20.0 }, 100_000);
        assert!(f64::from(outcome.max_gap) < 12.0 * f64::from(n) + 500.0, "{n}: {outcome:?}");
    }
}

#[test]
fn states_arrive_at_least_every_two_lengths_however_many_are_put() {
    let n = 100;
    let lost = vec![false; 40_000];
    for period in [1, 2, 7, 30, 55, 80] {
        let puts: Vec<_> = (0..40_000).step_by(period).collect();
        let course = Course { symbols: n, round_trip: 60, puts: Some(&puts), lost: &lost };
        let law = run(course, Rule::Law);
        // And the repair symbol of a path that is not yet known to be free of losses.
        assert!(law.max_gap <= 2 * n + 20, "{period}: {law:?}");
        let always = run(course, Rule::LawReplacing(1.1));
        assert!(
            always.delivered == 0.0,
            "a rule that always replaces delivers nothing: {always:?}"
        );
        let never = run(course, Rule::LawReplacing(0.0));
        assert!(law.mean < 1.01 * never.mean, "{period}: {law:?} {never:?}");
    }
}
