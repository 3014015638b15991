//! Whole endpoints in virtual time over a pipe that loses, delays, reorders, copies, damages and
//! cuts datagrams, between hosts that die, start again and move. After the faults comes the
//! demand: service is back in time.
//!
//! A failure prints its seed; `SEED=n cargo test -p freshline-core --test session_under_faults`
//! replays it.

#[path = "common/checks.rs"]
mod checks;
#[path = "common/world.rs"]
mod world;

use freshline_core::source::{
    Acp, AcpParams, AcpPlus, AcpPlusParams, Fixed, Lazy, LazyParams, RateBounds, RateLaw,
};
use freshline_core::unit::{Span, Time, UpdateRate};
use rand::RngExt;
use rand_pcg::Pcg64;
use world::{Event, Faults, World};

/// The longest pause that a healthy source makes on its own: the longest timeout of a probe; the
/// longest wait between openings is 2.5 s, the longest period of the laws here 2 s.
const LONGEST_WAIT: Span = Span::from_secs(4);

fn ms(millis: u64) -> Span {
    Span::from_millis(millis)
}

fn law(kind: u64) -> Box<dyn RateLaw> {
    let bounds = RateBounds { ceiling: UpdateRate::saturating(200.0), ..RateBounds::default() };
    match kind % 4 {
        0 => Box::new(AcpPlus::new(AcpPlusParams { bounds, ..AcpPlusParams::default() })),
        1 => Box::new(Acp::new(AcpParams { bounds, ..AcpParams::default() })),
        2 => Box::new(Lazy::new(LazyParams { bounds, ..LazyParams::default() })),
        _ => Box::new(Fixed::new(UpdateRate::saturating(20.0))),
    }
}

/// Says how to come back here.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!(
                "replay: SEED={} cargo test -p freshline-core --test session_under_faults",
                self.0
            );
        }
    }
}

/// Runs `story` with each seed, or with the one in the environment.
fn for_seeds(seeds: std::ops::Range<u64>, story: impl Fn(u64)) {
    let chosen = std::env::var("SEED").ok().map(|seed| seed.parse().expect("SEED is a number"));
    for seed in chosen.map_or(seeds, |seed: u64| seed..seed + 1) {
        let _replay = Replay(seed);
        story(seed);
    }
}

/// A world with faults until the returned time, and the delay of its pipe.
fn troubled(seed: u64, checksum: bool) -> (World, Time, Span) {
    let mut rng = Pcg64::new(seed.into(), 1);
    let delay = ms(rng.random_range(1..80));
    let healthy = Faults { delay, ..Faults::default() };
    let mut world = World::new(seed, healthy, checksum, move || law(seed));
    let at = |rng: &mut Pcg64| Time::ZERO + ms(rng.random_range(0..20_000));
    let some = |rng: &mut Pcg64, most: f64| {
        if rng.random_bool(0.5) { rng.random_range(0.0..most) } else { 0.0 }
    };
    for _ in 0..rng.random_range(1..6) {
        let faults = Faults {
            delay,
            jitter: ms(rng.random_range(0..300)),
            loss: some(&mut rng, 0.6),
            duplication: some(&mut rng, 0.5),
            corruption: some(&mut rng, 0.3),
            truncation: some(&mut rng, 0.3),
            foreign: some(&mut rng, 0.5),
            partition: rng.random_bool(0.2),
        };
        world.schedule(at(&mut rng), Event::Pipe(faults));
        let moment = at(&mut rng);
        match rng.random_range(0..5) {
            0 => {
                world.schedule(moment, Event::MonitorDies);
                world.schedule(moment + ms(rng.random_range(0..5_000)), Event::MonitorStarts);
            }
            1 => world.schedule(moment, Event::SourceRestarts),
            2 => world.schedule(moment, Event::SourceMoves),
            _ => {}
        }
    }
    let healed = Time::ZERO + Span::from_secs(25);
    world.schedule(healed, Event::Pipe(healthy));
    (world, healed, delay)
}

#[test]
fn after_any_trouble_service_is_back_in_time() {
    for_seeds(0..240, |seed| {
        let (mut world, healed, delay) = troubled(seed, true);
        world.run_until(healed);
        let patience = LONGEST_WAIT + (delay * 2) * 3;
        world.run_until(healed + patience);
        for (what, when) in [("fresh", world.checks.last_fresh), ("acked", world.checks.last_acked)]
        {
            assert!(
                when.is_some_and(|when| when > healed),
                "{what} at {when:?}, healed {healed:?}"
            );
        }

        // Then all is well: what either side knows of the age is true.
        world.run_until(healed + patience + Span::from_secs(10));
        let (_, record) = world
            .monitor
            .as_ref()
            .and_then(|monitor| {
                monitor.records().find(|(_, r)| r.session == world.source.session())
            })
            .expect("the monitor holds the source");
        let left = world.checks.left(record.newest_seq).expect("it was sent");
        let age = world.now.since(left);
        assert!(age <= Span::from_secs(2) + delay * 4, "an age of {age}");
        let local = world.monitor_clock.read(world.now);
        if let Some(measured) = record.age.age(local) {
            let error = measured.as_nanos().abs_diff(age.as_nanos());
            assert!(error <= delay.as_nanos() + 1_000, "{measured} by the monitor, {age} in truth");
        }
        let local = world.source_clock.read(world.now);
        let known = world.source.age().process().age(local).expect("acks came");
        assert!(known >= age, "{known} by the source, {age} in truth");
    });
}

#[test]
fn without_a_checksum_below_damage_is_survived() {
    // Damaged datagrams reach the endpoints, as they would only where UDP's checksum is off: what
    // is held may then be wrong, but nothing breaks, spins, stalls or grows.
    for_seeds(0..80, |seed| {
        let (mut world, healed, _) = troubled(seed, false);
        world.run_until(healed + Span::from_secs(10));
    });
}

#[test]
fn a_monitor_that_comes_back_is_found_after_any_absence() {
    for_seeds(0..40, |seed| {
        let delay = ms(20);
        let healthy = Faults { delay, ..Faults::default() };
        let mut world = World::new(seed, healthy, true, move || law(seed));
        for round in 0..10 {
            let died = world.now + Span::from_secs(3);
            let back = died + ms(37 * (seed + 1) * (round + 1) % 9_000);
            world.schedule(died, Event::MonitorDies);
            world.schedule(back, Event::MonitorStarts);
            world.run_until(back + LONGEST_WAIT + (delay * 2) * 3);
            let fresh = world.checks.last_fresh;
            assert!(
                fresh.is_some_and(|at| at > back),
                "round {round}: {fresh:?}, back at {back:?}"
            );
        }
    });
}
