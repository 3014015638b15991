//! Topics of records: all of them reach the application, in order and once, over losses, an outage
//! and restarts of both ends; memory is bounded, the sender knows when there is no room, and the
//! states of other topics stay as fresh.

#[path = "common/session.rs"]
mod driven;
#[path = "common/every_run.rs"]
mod run;
#[path = "common/wire.rs"]
mod wire;

use freshline_core::session::RecordChunk;
use freshline_core::source::{Fixed, Limits, RateBounds, RateLaw, Tenth, TenthParams};
use freshline_core::unit::{BitRate, Span, UpdateRate};
use run::{Pose, Setup, World, digest, record};

/// Commands, parameters, a page of a log, and a mission of several chunks.
const LENGTHS: &[usize] = &[40, 12, 0, 300, 512, 1_500];

fn tenth() -> Box<dyn RateLaw> {
    Box::new(Tenth::new(Default::default()))
}

fn fixed() -> Box<dyn RateLaw> {
    Box::new(Fixed::new(UpdateRate::saturating(100.0)))
}

fn setup() -> Setup {
    Setup {
        law: tenth,
        limits: Limits::NONE,
        pose: Pose::Timed(Span::from_millis(50), 100),
        records: 10_000,
        lengths: LENGTHS,
        period: None,
        max_bytes: 1 << 20,
        is_urgent: false,
        rate: BitRate::from_bps(10_000_000),
        delay: Span::from_millis(20),
        loss: 0.05,
    }
}

fn expected_digest(setup: &Setup) -> u64 {
    (0..setup.records).fold(0, |hash, number| digest(hash, &record(number, setup.lengths)))
}

/// 5 % loss in each direction, an outage of 10 s, and restarts of the monitor, of the source, and
/// of both.
fn story(records: u64) {
    let setup = Setup { records, ..setup() };
    let expected = expected_digest(&setup);
    let mut world = World::new(1, setup);
    let part = |world: &mut World, of: u64| {
        while world.taken < records * of / 10 {
            world.run(Span::from_millis(20));
        }
    };
    part(&mut world, 2);
    world.is_cut = true;
    world.run(Span::from_secs(10));
    world.is_cut = false;
    part(&mut world, 4);
    world.restart_monitor();
    part(&mut world, 6);
    world.restart_source();
    part(&mut world, 8);
    world.restart_monitor();
    world.restart_source();
    let start = world.now;
    world.finish(Span::from_secs(3_000));
    assert_eq!(world.digest, expected);
    let counters = world.monitor.counters();
    assert_eq!(counters.lost_records, 0);
    assert!(world.full > 0, "there were more records than room");
    assert!(world.max_held[0] <= 1 << 20, "the source held {} bytes", world.max_held[0]);
    let bound = 4 * RecordChunk::WINDOW;
    assert!(world.max_held[1] <= bound, "the monitor held {} bytes", world.max_held[1]);
    println!(
        "{records} records in {}, held {:?} bytes, repeated {}, again at the monitor {}, last part {}",
        world.now.since(freshline_core::unit::Time::ZERO + Span::from_secs(1_000)),
        world.max_held,
        world.view().repeated,
        counters.repeated_records,
        world.now.since(start),
    );
}

#[test]
fn each_of_a_hundred_thousand_records_arrives_once_and_in_order() {
    story(100_000);
}

/// The 95th percentile of the pose's age with as many records as are accepted, and without any; and
/// how many bytes of records arrive per second.
fn beside(length: Span, setup: impl Fn() -> Setup) -> (Span, Span, f64) {
    let ages = [0, u64::MAX].map(|records| {
        let mut world = World::new(5, Setup { records, ..setup() });
        world.run(Span::from_secs(10));
        world.age.measure_from(world.now);
        let taken = world.taken;
        world.run(length);
        let taken = (taken..world.taken).map(|number| record(number, LENGTHS).len()).sum::<usize>();
        (world.ages().p95, taken as f64 / length.as_secs_f64())
    });
    (ages[1].0, ages[0].0, ages[1].1)
}

type Law = (&'static str, fn() -> Box<dyn RateLaw>, Limits);

fn laws() -> [Law; 3] {
    let limited = Limits { max_bandwidth: Some(BitRate::from_bps(400_000)), ..Limits::NONE };
    [
        ("100/s", fixed, Limits::NONE),
        ("tenth", tenth, Limits::NONE),
        ("tenth, 400 kbit/s", tenth, limited),
    ]
}

/// Poses of which the last ones are sampled as they leave, and so use all that the law allows.
fn poses() -> [(&'static str, Pose); 5] {
    [
        ("100 B each 50 ms", Pose::Timed(Span::from_millis(50), 100)),
        ("100 B each 15 ms", Pose::Timed(Span::from_millis(15), 100)),
        ("100 B as it leaves", Pose::Sampled(100)),
        ("900 B as it leaves", Pose::Sampled(900)),
        ("20 kB as it leaves", Pose::Sampled(20_000)),
    ]
}

/// Prints a line of the table; returns the ratio of the ages.
fn line(length: Span, rate: u64, loss: f64, law: Law, (name, pose): (&str, Pose)) -> f64 {
    let (law_name, law, limits) = law;
    let rate = BitRate::from_bps(rate);
    let course = || Setup { law, limits, pose, rate, loss, ..setup() };
    let (with, without, bytes) = beside(length, course);
    let ratio = with.as_secs_f64() / without.as_secs_f64();
    let kilobytes = bytes / 1e3;
    println!(
        "{rate}, loss {loss}, {law_name}, {name}: {with} beside {kilobytes:.1} kB/s, {without} without: {ratio:.2}"
    );
    ratio
}

#[test]
fn a_pose_is_nearly_as_fresh_beside_records_as_without_them() {
    let [fixed, tenth, limited] = laws();
    let [slow, fast, small, whole, large] = poses();
    let cases = [
        (fixed, slow),
        (fixed, fast),
        (fixed, small),
        (fixed, whole),
        (fixed, large),
        (tenth, slow),
        (tenth, small),
        (tenth, large),
        (limited, slow),
        (limited, fast),
        (limited, small),
    ];
    for (law, pose) in cases {
        let ratio = line(Span::from_secs(30), 2_000_000, 0.05, law, pose);
        // A datagram of records takes 5 ms, and a small state that comes in between waits for it.
        let bound = if pose.0 == fast.0 { 1.3 } else { 1.2 };
        assert!(ratio <= bound, "{}, {}: {ratio}", law.0, pose.0);
    }
}

/// `cargo test -p freshline-core --release --test every -- --ignored --nocapture table` prints the table of
/// `docs/topics.md`.
#[test]
#[ignore = "prints a table"]
fn table_of_ages_beside_records() {
    for (rate, loss) in [(2_000_000, 0.0), (2_000_000, 0.05), (10_000_000, 0.05)] {
        for law in laws() {
            for pose in poses() {
                line(Span::from_secs(60), rate, loss, law, pose);
            }
        }
    }
}

#[test]
fn with_a_full_buffer_the_sender_knows_and_nothing_is_lost() {
    let setup = Setup { records: 3_000, max_bytes: 64 << 10, ..setup() };
    let expected = expected_digest(&setup);
    let mut world = World::new(2, setup);
    world.is_taking = false;
    world.run(Span::from_secs(20));
    let (put, updates) = (world.put, world.updates);
    assert!(put < 3_000 && world.full > 0 && world.taken == 0);
    world.run(Span::from_secs(60));
    assert_eq!((world.put, world.taken), (put, 0), "nothing is taken, so nothing is freed");
    // A pose each 50 ms, a question each second, and trains by which the law tests losses.
    assert!(world.updates - updates < 1_900, "{} updates", world.updates - updates);
    world.resume_taking();
    world.finish(Span::from_secs(60));
    assert_eq!(world.digest, expected);
    assert!(world.max_held[0] <= 64 << 10);
}

#[test]
fn an_urgent_record_does_not_wait_for_its_turn_and_is_repeated_until_it_has_come() {
    let course = |is_urgent| Setup {
        law: || Box::new(Fixed::new(UpdateRate::saturating(5.0))),
        pose: Pose::Sampled(900),
        records: 200,
        lengths: &[8],
        period: Some(Span::from_millis(1_700)),
        loss: 0.2,
        is_urgent,
        ..setup()
    };
    let [urgent, plain] = [true, false].map(|is_urgent| {
        let mut world = World::new(3, course(is_urgent));
        world.finish(Span::from_secs(600));
        world.delays.sort_unstable();
        world.delays[180]
    });
    println!("nine of ten urgent records within {urgent}, others within {plain}");
    assert!(urgent < Span::from_millis(150), "{urgent}");
    assert!(urgent * 2 < plain, "{urgent}, {plain}");
}

/// It adapts its rate to the path, and finds 2 updates per second.
fn slow() -> Box<dyn RateLaw> {
    let bounds = RateBounds { ceiling: UpdateRate::saturating(2.0), ..RateBounds::default() };
    Box::new(Tenth::new(TenthParams { bounds, ..TenthParams::default() }))
}

#[test]
fn a_slow_source_with_a_free_path_does_not_hold_its_records_back() {
    let pose = Pose::Sampled(50);
    let course = || Setup { law: slow, pose, records: 20, lengths: &[1_500], loss: 0.0, ..setup() };
    let mut world = World::new(4, course());
    let took = world.finish(Span::from_secs(6_000));
    let updates = world.updates;
    println!("20 records of three chunks within {took}, {updates} updates");
    assert!(took < Span::from_secs(60), "{took}: three seconds per record");
}

#[test]
fn on_a_thin_path_a_slow_source_does_not_hold_its_states_up_for_records() {
    // A pose takes 45 ms of the first path, a datagram full of records half a second.
    for rate in [20_000, 50_000, 200_000] {
        let law = ("2/s", slow as fn() -> Box<dyn RateLaw>, Limits::NONE);
        let ratio = line(Span::from_secs(300), rate, 0.0, law, ("50 B", Pose::Sampled(50)));
        assert!(ratio <= 1.2, "{rate} bit/s: {ratio}");
    }
}
