//! Tenth's age is near its final value within 40 round trips from the start, and within 5 s after a
//! step. Its rate may take longer: the age hardly depends on it there.

use std::ops::Range;

use freshline_core::age::Integral;
use freshline_core::unit::{Span, Time};
use freshline_lab::scenario::Scenario;
use freshline_lab::world::{Flow, UpdateFlow, World};

macro_rules! family {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../scenarios/fresher/", $name, ".toml")))
    };
}

type Family = (&'static str, &'static str);

/// With the round trips within which age and rate settle. Where waits are noise, single means of the rate
/// are not [`NEAR`] at any time; and where updates are lost, it takes a test to see that no queue does it.
const STARTS: [(Family, [f64; 2]); 9] = [
    (family!("hops-1"), [40.0, 40.0]),
    (family!("hops-3"), [20.0, 25.0]),
    (family!("hops-6"), [15.0, 20.0]),
    (family!("unequal-hops"), [20.0, 25.0]),
    (family!("loss-01"), [100.0, f64::INFINITY]),
    (family!("jitter-01"), [20.0, f64::INFINITY]),
    (family!("satellite"), [15.0, f64::INFINITY]),
    (family!("wifi-01"), [20.0, f64::INFINITY]),
    (family!("wifi-large-01"), [25.0, 45.0]),
];

/// With the time within which the rate settles after a step, in s: the lower rate of a link differs
/// from a queue only in that the delay does not drain.
const STEPS: [(Family, f64); 2] = [(family!("step-capacity"), 8.0), (family!("step-route"), 5.0)];

/// Settled: each mean from then on is within this part of the last one.
const NEAR: f64 = 0.25;

/// Number of observations per round trip from the start.
const LOOKS: u64 = 4;

/// Interval at which queues are sampled, as they come and go within an observation.
const GLANCE: Span = Span::from_millis(1);

/// The minimum buffer of a link in these families, in packets; cells hold more.
const BUFFER: u64 = 100;

/// A run that is observed repeatedly, from the first update on.
struct Watched {
    world: World,
    /// When the first update left.
    from: Time,
    /// Between two looks.
    every: Span,
    looks: Vec<Look>,
}

/// The mean of something over the time between two looks.
type Mean = fn(&Watched, Range<usize>) -> f64;

#[derive(Clone, Copy)]
struct Look {
    age: Integral,
    sent: u64,
    /// The most packets that any queue held from then until the next look.
    held: u64,
}

/// The first flow, the one that is measured.
fn source(world: &World) -> &UpdateFlow {
    match &world.flows()[0].flow {
        Flow::Updates(updates) => updates,
        _ => panic!("no flow of updates"),
    }
}

/// The most packets that any queue holds now.
fn deepest_queue(world: &World) -> u64 {
    let hops = world.hops().iter().map(|hop| hop.backlog().packets);
    let cells = world.cells().iter().flat_map(|cell| cell.queues()).map(|(_, held)| held);
    hops.chain(cells).map(|packets| packets.get()).max().unwrap_or(0)
}

impl Watched {
    fn new(scenario: &Scenario, run: u32, every: Span) -> Self {
        let mut world = scenario.build(run).unwrap().world;
        while source(&world).sent() == 0 {
            world.run_until(world.now() + Span::from_micros(100));
        }
        let mut watched = Self { from: world.now(), world, every, looks: Vec::new() };
        while watched.world.now() < Time::ZERO + scenario.duration {
            watched.look();
        }
        watched
    }

    fn look(&mut self) {
        let world = &mut self.world;
        let (age, sent) = (source(world).age().mark(world.now()), source(world).sent());
        let (until, mut held) = (world.now() + self.every, 0);
        while world.now() < until {
            world.run_until(until.min(world.now() + GLANCE));
            held = held.max(deepest_queue(world));
        }
        self.looks.push(Look { age, sent, held });
    }

    /// The look at a moment.
    fn at(&self, time: Time) -> usize {
        let looks = time.since(self.from).as_nanos() / self.every.as_nanos();
        (looks as usize).min(self.looks.len() - 1)
    }

    fn age(&self, looks: Range<usize>) -> f64 {
        let [from, to] = [looks.start, looks.end].map(|look| self.looks[look].age);
        source(&self.world).age().mean_between(from, to).map_or(f64::INFINITY, Span::as_secs_f64)
    }

    fn rate(&self, looks: Range<usize>) -> f64 {
        let sent = self.looks[looks.end].sent - self.looks[looks.start].sent;
        sent as f64 / (self.every.as_secs_f64() * looks.len() as f64)
    }

    /// The most that waited in any queue.
    fn max_held(&self, looks: Range<usize>) -> u64 {
        self.looks[looks].iter().map(|look| look.held).max().unwrap()
    }

    /// How long it takes until a mean over `window` is near `last`, as are all that follow: the end of
    /// the first such window, s.
    fn settled(&self, looks: Range<usize>, window: u64, mean: Mean, last: f64) -> f64 {
        let is_far = |from: &usize| {
            let mean = mean(self, *from..*from + window as usize);
            (mean / last - 1.0).abs() > NEAR
        };
        let begins = looks.start..=looks.end - window as usize;
        let far = begins.rev().find(is_far);
        let first = far.map_or(0, |far| far + 1 - looks.start);
        (first + window as usize) as f64 * self.every.as_secs_f64()
    }
}

/// The round trip of a lone update.
fn round_trip(scenario: &Scenario) -> Span {
    let mut world = scenario.build(0).unwrap().world;
    while source(&world).round_trips().0 == 0 {
        world.run_until(world.now() + Span::from_micros(100));
    }
    source(&world).round_trips().1
}

const MEANS: [Mean; 2] = [Watched::age, Watched::rate];

/// In round trips, over the first 100: until the age has settled, and the rate; and the most that
/// waited in a queue.
fn start(text: &str) -> ([f64; 2], u64) {
    let scenario = Scenario::parse(text).unwrap();
    let rtt = round_trip(&scenario);
    let runs = (0..scenario.runs).map(|run| {
        let watched = Watched::new(&scenario, run, rtt / LOOKS);
        let end = watched.looks.len() - 1;
        let first = 0..end.min((100 * LOOKS) as usize);
        let settled = MEANS.map(|mean| {
            let last = mean(&watched, end / 2..end);
            watched.settled(first.clone(), 5 * LOOKS, mean, last) / rtt.as_secs_f64()
        });
        let last = watched.age(end / 2..end);
        let all = watched.settled(0..end, 10 * LOOKS, Watched::age, last) / rtt.as_secs_f64();
        let longest = if text.contains("loss") { f64::INFINITY } else { 40.0 };
        assert!(all < longest, "the age leaves its settled value: {all}");
        (settled, watched.max_held(first))
    });
    runs.reduce(worse).unwrap()
}

fn worse((a, held): ([f64; 2], u64), (b, more): ([f64; 2], u64)) -> ([f64; 2], u64) {
    ([a[0].max(b[0]), a[1].max(b[1])], held.max(more))
}

#[test]
fn a_source_is_fresh_soon_and_its_buffers_stay_nearly_empty() {
    println!("| family | age, round trips | rate, round trips | most that waited |");
    for ((name, text), within) in STARTS {
        let ([age, rate], held) = start(text);
        println!("| {name} | {age:.1} | {rate:.1} | {held} |");
        assert!(age < within[0] && rate < within[1], "{name}: {age} {rate}");
        assert!(2 * held < BUFFER, "{name}: {held}");
    }
}

/// In s after a step: until the age has settled, and the rate; and the most that waited in a queue.
fn step(text: &str, seconds: Range<u64>) -> ([f64; 2], u64) {
    let scenario = Scenario::parse(text).unwrap();
    let runs = (0..scenario.runs).map(|run| {
        let watched = Watched::new(&scenario, run, Span::from_millis(50));
        let at = |second| watched.at(Time::ZERO + Span::from_secs(second));
        let looks = at(seconds.start)..at(seconds.end);
        let settled = MEANS.map(|mean| {
            let last = mean(&watched, looks.start + looks.len() / 2..looks.end);
            watched.settled(looks.clone(), 10, mean, last)
        });
        (settled, watched.max_held(looks))
    });
    runs.reduce(worse).unwrap()
}

#[test]
fn a_source_is_fresh_again_within_five_seconds_after_a_step() {
    println!("| step | age, s | rate, s | most that waited |");
    for ((name, text), within) in STEPS {
        for seconds in [20..40, 40..60] {
            let at = seconds.start;
            let ([age, rate], held) = step(text, seconds);
            println!("| {name} at {at} s | {age:.2} | {rate:.2} | {held} |");
            assert!(age < 5.0 && rate < within, "{name} at {at} s: {age} {rate}");
            assert!(2 * held < BUFFER, "{name} at {at} s: {held}");
        }
    }
}
