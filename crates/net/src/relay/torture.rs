//! States and records through one or two relays, over hops with faults, in virtual time: datagrams
//! are lost, duplicated, delayed and reordered, processes end, and each host has its own clock.
//! proptest draws everything, including a seed that decides the fate of each datagram.
//!
//! Invariants during each run, checked by [`world`](super::world):
//! - a destination hands out only states and records that were put, byte for byte;
//! - it never hands out a state older than an earlier one of the same topic or key and source
//!   process;
//! - an age counts from the generation at the source, and differs from the true age by at most its
//!   uncertainty.
//!
//! Then all faults end, the source puts new states, and each destination must hold the newest state
//! of each topic and key with a known age, no removed key, and each record once and in order.

use freshline_core::session::{Admission, TopicKind};
use freshline_core::unit::Span;
use proptest::prelude::*;

use super::world::hop::{Clock, Faults};
use super::world::{IDLE, STEP, World};

/// The destinations.
const COUNT: usize = 2;

/// The time within which destinations must hold the expected states: each of two relays drops keys
/// that a source does not bring again only after 60 s.
const HEALED: Span = Span::from_secs(150);

/// The maximum uncertainty of an age after all faults end: the sum of three hops in their worst
/// phase.
const UNCERTAINTY: Span = Span::from_secs(2);

const NAME: &str = "robot";
const LOGS: [(&str, u64); 2] = [("log", 7), ("events", 8)];

#[derive(Debug, Clone)]
enum Step {
    Run(u64),
    /// Sets the faults of a hop: to the first relay, to the next one, and so on.
    Faults(usize, Faults),
    PutRecords(bool, u32),
    /// Puts the pose, or the state of a key, of this length.
    Put(Option<u8>, usize),
    RemoveKey(u8),
    /// Cuts the source's path, for longer or shorter than its session lasts; or restores it.
    Cut(bool),
    IsBack,
    /// The source ends, with or without a close, and restarts.
    Restart {
        closes: bool,
    },
    /// A destination goes away, or comes back.
    Away(usize, bool),
    RestartDestination(usize),
    RestartRelay(usize),
}

fn any_span(millis: u64) -> impl Strategy<Value = Span> {
    (0..=millis * 1_000).prop_map(Span::from_micros)
}

fn any_faults() -> impl Strategy<Value = Faults> {
    let delays = [any_span(150), any_span(150)];
    let faults = (0..60_u64, 0..50_u64, delays, any_span(300));
    faults.prop_map(|(loss, copies, delays, jitter)| Faults { loss, copies, delays, jitter })
}

fn any_clock() -> impl Strategy<Value = Clock> {
    (0..1_u64 << 50, -200..=200_i64)
        .prop_map(|(ahead, ppm)| Clock { ahead: Span::from_nanos(ahead), ppm })
}

fn any_state() -> impl Strategy<Value = Step> {
    // Some states need several updates.
    let len = prop_oneof![4 => 0..50_usize, 1 => 0..5_000_usize];
    (prop::option::weighted(0.6, 0..4_u8), len).prop_map(|(key, len)| Step::Put(key, len))
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..300_u64).prop_map(Step::Run),
        3 => (0..2 + COUNT, any_faults()).prop_map(|(hop, faults)| Step::Faults(hop, faults)),
        3 => (any::<bool>(), 1..9_u32).prop_map(|(which, count)| Step::PutRecords(which, count)),
        8 => any_state(),
        2 => (0..4_u8).prop_map(Step::RemoveKey),
        1 => any::<bool>().prop_map(Step::Cut),
        2 => Just(Step::IsBack),
        1 => any::<bool>().prop_map(|closes| Step::Restart { closes }),
        2 => (0..COUNT, any::<bool>()).prop_map(|(place, is_away)| Step::Away(place, is_away)),
        1 => (0..COUNT).prop_map(Step::RestartDestination),
        1 => (0..2_usize).prop_map(Step::RestartRelay),
    ]
}

/// A source's story.
struct Story {
    world: World,
    /// The number of records put so far, per topic.
    put: [u32; 2],
}

impl Story {
    fn new(seed: u64, has_two_relays: bool, clocks: &[Clock]) -> Self {
        let mut world = World::of(1 + usize::from(has_two_relays), COUNT, Admission::Cookie, seed);
        let mut clocks = clocks.iter().copied();
        let relays = world.relays.iter_mut().map(|relay| &mut relay.clock);
        let all = relays.chain(world.downstream.iter_mut().map(|to| &mut to.clock));
        for (clock, drawn) in all.chain([&mut world.clock]).zip(&mut clocks) {
            *clock = drawn;
        }
        world.start(NAME, TopicKind::Latest, &LOGS);
        Self { world, put: [0; 2] }
    }

    fn step(&mut self, step: &Step) {
        let Self { world, put } = self;
        match *step {
            Step::Run(millis) => world.run(Span::from_millis(millis)),
            Step::Faults(hop, faults) => {
                if let Some(hop) = world.hops().nth(hop) {
                    hop.faults = faults;
                }
            }
            Step::PutRecords(which, count) => {
                let which = usize::from(which);
                let from = put[which];
                put[which] += count;
                world.put(NAME, LOGS[which].0, from..put[which]);
            }
            Step::Put(None, len) => world.put_state(NAME, None, len),
            Step::Put(Some(key), len) => world.put_state(NAME, Some(&[key]), len),
            Step::RemoveKey(key) => world.remove_key(NAME, &[key]),
            Step::Cut(is_long) => {
                world.source(NAME).is_cut = true;
                world.run(if is_long { IDLE * 2 } else { STEP * 9 });
            }
            Step::IsBack => world.source(NAME).is_cut = false,
            Step::Restart { closes } => {
                if closes {
                    world.close(NAME);
                }
                world.restart_source(NAME);
            }
            Step::Away(place, is_away) => world.downstream[place].hop.is_cut = is_away,
            Step::RestartDestination(place) => world.restart_destination(place),
            Step::RestartRelay(place) => world.restart_relay(place % world.relays.len()),
        }
        world.check_ages(NAME);
    }

    /// Ends all faults. Once sessions are open again, the source puts new states, unless
    /// `is_silent`.
    fn heal(mut self, is_silent: bool) {
        let world = &mut self.world;
        world.source(NAME).is_cut = false;
        for hop in world.hops() {
            (hop.faults, hop.is_cut) = (Faults::default(), false);
        }
        if !is_silent {
            world.run(IDLE * 3);
            world.put_again(NAME);
        }
        world.expect_states(NAME, HEALED, UNCERTAINTY);
        for ((log, _), put) in LOGS.into_iter().zip(self.put) {
            world.expect(NAME, log, 0..put);
        }
    }
}

/// A restarted relay has one state of its second topic, with the record of the first.
#[test]
fn a_last_state_reaches_the_destinations_though_a_relay_began_anew_before_it() {
    let micros = Span::from_micros;
    let delays = [micros(40_470), micros(46_232)];
    let faults = Faults { loss: 4, copies: 22, delays, jitter: micros(170_587) };
    let mut story = Story::new(7_243_196_741_032_276_312, true, &[]);
    let steps = [
        Step::RestartDestination(0),
        Step::Faults(1, faults),
        Step::RestartDestination(0),
        Step::PutRecords(false, 1),
        Step::Run(251),
        Step::RestartRelay(0),
        Step::Run(196),
        Step::Run(66),
        Step::Run(276),
        Step::Run(131),
        Step::Put(None, 0),
        Step::Run(131),
        Step::Run(101),
    ];
    steps.iter().for_each(|step| story.step(step));
    story.heal(true);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn after_any_faults_each_destination_has_the_newest_states_and_all_records_and_ages_are_right(
        seed in any::<u64>(),
        has_two_relays in prop::bool::weighted(0.3),
        clocks in prop::collection::vec(any_clock(), 3 + COUNT),
        steps in prop::collection::vec(any_step(), 1..60),
    ) {
        let mut story = Story::new(seed, has_two_relays, &clocks);
        steps.iter().for_each(|step| story.step(step));
        story.heal(false);
    }
}
