//! The laws over a path of queues, in virtual time: which one keeps the monitor freshest?
//!
//! Each test prints its measurements: `cargo test -p freshline-core --test laws_on_a_path --
//! --nocapture`. The figures in `docs/source.md` come from there.

#[path = "common/path_run.rs"]
mod path_run;

use freshline_core::age::theory::Queues;
use freshline_core::source::{
    Acp, AcpParams, AcpPlus, AcpPlusParams, EstimatorParams, Fixed, Lazy, Losses, RateLaw,
};
use freshline_core::unit::Span;
use path_run::{Course, Outcome, Service, hops, two_slow_one_fast};

fn mean_age_ms(course: &Course, law: &mut dyn RateLaw) -> f64 {
    report(law.name(), &course.run(law))
}

fn report(name: &str, outcome: &Outcome) -> f64 {
    let age = outcome.age.mean.as_millis_f64();
    let p95 = outcome.age.p95.as_millis_f64();
    let (rate, backlog) = (outcome.sent_per_second, outcome.backlog);
    println!("{name:>6}: age {age:6.2} ms, p95 {p95:6.2} ms, {rate:5.1}/s, backlog {backlog:6.2}");
    age
}

/// The minimum mean age of all fixed rates, in steps of 5 % of the bottleneck.
fn best_fixed_ms(course: &Course) -> f64 {
    let age = |percent: u32| {
        let rate = course.bottleneck().scaled(f64::from(percent) / 100.0);
        course.run(&mut Fixed::new(rate)).age.mean.as_millis_f64()
    };
    let (age, percent) = (1..=20)
        .map(|step| (age(step * 5), step * 5))
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .expect("rates were tried");
    println!("  best: age {age:6.2} ms, fixed at {percent} % of the bottleneck");
    age
}

fn acp(step: f64) -> Acp {
    // With the papers' estimates ACP leaves a standing queue on a path without any noise.
    let estimator = EstimatorParams::departure();
    Acp::new(AcpParams { step, estimator, ..AcpParams::default() })
}

#[test]
fn the_path_agrees_with_queueing_theory() {
    // One hop, periodic updates, exponential service: D/M/1 (closed form in `age::theory`).
    let course = Course {
        forward: hops(["rate=2mbit,queue=1000p"]),
        back: hops(["delay=15ms"]),
        service: Service::Exponential,
        length: Span::from_secs(610),
        ..two_slow_one_fast()
    };
    for load in [0.3, 0.5, 0.7] {
        let rate = course.bottleneck().scaled(load);
        let expected = Queues::Dm1 { service: course.bottleneck() }.mean_age(rate).unwrap();
        let measured = mean_age_ms(&course, &mut Fixed::new(rate));
        let ratio = measured / expected.as_millis_f64();
        assert!((ratio - 1.0).abs() < 0.02, "load {load}: {measured} ms, expected {expected}");
    }
}

#[test]
fn acp_plus_settles_near_the_best_fixed_rate_below_lazy_and_below_flooding() {
    let course = two_slow_one_fast();
    let best = best_fixed_ms(&course);
    let acp_plus = mean_age_ms(&course, &mut AcpPlus::new(AcpPlusParams::departure()));
    let lazy = mean_age_ms(&course, &mut Lazy::new(Default::default()));
    let flood = mean_age_ms(&course, &mut Fixed::new(course.bottleneck().scaled(1.2)));
    assert!(acp_plus < 1.15 * best, "{acp_plus} ms, best {best} ms");
    assert!(acp_plus < lazy, "{acp_plus} ms, Lazy {lazy} ms");
    assert!(acp_plus < flood, "{acp_plus} ms, at 120 % of the bottleneck {flood} ms");
}

#[test]
fn acp_plus_settles_within_seconds_and_stays_settled() {
    let course = two_slow_one_fast();
    let lazy = mean_age_ms(&course, &mut Lazy::new(Default::default()));
    let outcome = course.run(&mut AcpPlus::new(AcpPlusParams::departure()));
    for (index, second) in outcome.seconds.iter().enumerate().skip(5) {
        let load = second.rate.per_second() / course.bottleneck().per_second();
        assert!(second.age.as_millis_f64() < 0.75 * lazy, "second {index}: {}", second.age);
        assert!((0.2..1.5).contains(&load), "second {index}: {load} of the bottleneck");
    }
}

#[test]
fn late_timers_do_not_make_a_queue_stand() {
    // Timing noise hides the directions of age and backlog; a law that compares the wrong ones then
    // wanders up and down with a standing queue.
    for micros in [10, 100, 300] {
        for seed in 1..=8 {
            let lateness = Span::from_micros(micros);
            let course = Course { lateness, seed, ..two_slow_one_fast() };
            let best = course.run(&mut Fixed::new(course.bottleneck())).age.mean.as_millis_f64();
            let acp_plus = mean_age_ms(&course, &mut AcpPlus::new(AcpPlusParams::departure()));
            assert!(acp_plus < 1.15 * best, "{lateness}, seed {seed}: {acp_plus} ms, best {best}");
        }
    }
}

#[test]
fn acp_plus_stays_below_lazy_when_service_times_are_random() {
    for seed in 1..=4 {
        let course = Course { service: Service::Exponential, seed, ..two_slow_one_fast() };
        let best = best_fixed_ms(&course);
        let acp_plus = mean_age_ms(&course, &mut AcpPlus::new(AcpPlusParams::departure()));
        let lazy = mean_age_ms(&course, &mut Lazy::new(Default::default()));
        assert!(acp_plus < lazy, "seed {seed}: {acp_plus} ms, Lazy {lazy} ms");
        assert!(acp_plus < 1.3 * best, "seed {seed}: {acp_plus} ms, best {best} ms");
    }
}

#[test]
fn losses_do_not_drive_acp_plus_to_the_floor() {
    for seed in 1..=4 {
        let mut course = Course { length: Span::from_secs(310), seed, ..two_slow_one_fast() };
        course.forward.hop[0].loss = 0.05;
        course.back.hop[0].loss = 0.1;
        let acp_plus = mean_age_ms(&course, &mut AcpPlus::new(AcpPlusParams::departure()));
        let lazy = mean_age_ms(&course, &mut Lazy::new(Default::default()));
        assert!(acp_plus < lazy, "seed {seed}: {acp_plus} ms, Lazy {lazy} ms");
    }
}

#[test]
fn acp_needs_a_small_step_on_a_short_path() {
    // Shreedhar et al., section II, agree: κ = 1 suited long real paths, and on simulated short
    // ones only κ = 0.25 did.
    let course = two_slow_one_fast();
    let lazy = mean_age_ms(&course, &mut Lazy::new(Default::default()));
    let small = mean_age_ms(&course, &mut acp(0.25));
    let large = mean_age_ms(&course, &mut acp(1.0));
    assert!(small < lazy, "κ = 0.25: {small} ms, Lazy {lazy} ms");
    assert!(small < large, "κ = 0.25: {small} ms, κ = 1: {large} ms");
}

#[test]
fn lazy_keeps_a_backlog_of_one() {
    for service in [Service::Constant, Service::Exponential] {
        let course = Course { service, ..two_slow_one_fast() };
        let outcome = course.run(&mut Lazy::new(Default::default()));
        report("lazy", &outcome);
        assert!((outcome.backlog - 1.0).abs() < 0.1, "{}", outcome.backlog);
    }
}

fn acp_plus(losses: Losses) -> AcpPlus {
    let estimator = EstimatorParams { losses, ..EstimatorParams::departure() };
    AcpPlus::new(AcpPlusParams { estimator, ..AcpPlusParams::default() })
}

#[test]
fn random_loss_does_not_look_like_a_queue() {
    // The first path has no queue; the second is the demonstration's. Each loses 5 % in both
    // directions.
    let wide = Course {
        forward: hops(["rate=6mbit,delay=15ms,jitter=1ms,loss=0.05,queue=100p"]),
        back: hops(["delay=15ms,loss=0.05"]),
        ..two_slow_one_fast()
    };
    let narrow = Course {
        forward: hops([
            "rate=2mbit,delay=5ms,queue=100p,loss=0.05",
            "rate=20mbit,delay=5ms,queue=100p",
            "rate=2mbit,delay=5ms,queue=100p",
        ]),
        back: hops(["rate=20mbit,delay=15ms,queue=100p,loss=0.05"]),
        ..two_slow_one_fast()
    };
    for (name, course) in [("wide", wide), ("narrow", narrow)] {
        for seed in 1..=4 {
            println!("{name}, seed {seed}");
            let course = Course { seed, ..course.clone() };
            best_fixed_ms(&course);
            let lazy = mean_age_ms(&course, &mut Lazy::new(Default::default()));
            let bridged = mean_age_ms(&course, &mut acp_plus(Losses::Bridged));
            mean_age_ms(&course, &mut acp_plus(Losses::AsSeen));
            assert!(bridged < lazy, "{name}, seed {seed}: {bridged} ms, Lazy {lazy} ms");
        }
    }
}
