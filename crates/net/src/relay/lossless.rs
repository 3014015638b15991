//! In virtual time: each record reaches each destination of a relay once and in order, despite
//! ends, restarts and outages; with its age, and within the relay's memory bound.

use freshline_core::session::TopicKind;
use freshline_core::unit::Span;
use freshline_core::wire::{
    Frame, OffsetEstimate, RecordChunk, StateId, StreamId, TopicName, TopicStream,
};
use proptest::prelude::*;

use super::world::{IDLE, MAX_BYTES, STEP, World};

const LATEST: TopicKind = TopicKind::Latest;

#[test]
fn a_source_that_falls_silent_while_a_destination_is_away_loses_none_of_its_records() {
    for name in ["robot", ""] {
        let mut world = World::new(2);
        world.downstream[1].hop.is_cut = true;
        world.start(name, LATEST, &[("log", 7)]);
        world.put(name, "log", 0..20);
        world.run(Span::from_secs(1));
        assert_eq!(world.downstream[0].got[&(name.into(), "log".into())].len(), 20);
        for numbers in [20..30, 30..40] {
            world.source(name).is_cut = true;
            world.run(IDLE * 2);
            assert!(world.relays[0].monitor.is_empty(), "it is idle");
            world.source(name).is_cut = false;
            world.put(name, "log", numbers);
            world.run(Span::from_secs(1));
        }
        world.downstream[1].hop.is_cut = false;
        world.expect(name, "log", 0..40);
    }
}

#[test]
fn a_source_that_closes_its_session_and_returns_loses_none_of_its_records() {
    let mut world = World::new(2);
    world.downstream[0].hop.is_cut = true;
    world.start("robot", LATEST, &[("log", 7)]);
    world.put("robot", "log", 0..20);
    world.run(Span::from_secs(1));
    world.close("robot");
    assert!(world.relays[0].monitor.is_empty(), "it has gone");
    world.run(Span::from_secs(1));
    world.start("robot", LATEST, &[("log", 7)]);
    world.put("robot", "log", 20..40);
    world.run(Span::from_secs(1));
    world.downstream[0].hop.is_cut = false;
    world.expect("robot", "log", 0..40);
}

#[test]
fn a_source_that_returns_with_a_topic_of_another_kind_or_stream_loses_none_of_its_other_records() {
    let mut world = World::new(2);
    world.downstream[1].hop.is_cut = true;
    world.start("robot", LATEST, &[("log", 7), ("events", 8)]);
    world.put_pose("robot", None);
    world.put("robot", "log", 0..20);
    world.put("robot", "events", 0..20);
    world.run(Span::from_secs(1));
    world.start("robot", TopicKind::KEYED, &[("log", 7), ("events", 8)]);
    world.put("robot", "log", 20..30);
    world.put_pose("robot", Some(b"arm"));
    world.put("robot", "events", 20..30);
    world.run(Span::from_secs(1));
    // Another stream: unfinished records of the former stream are lost with its spool.
    world.start("robot", TopicKind::KEYED, &[("log", 7), ("events", 9)]);
    world.put_pose("robot", Some(b"arm"));
    world.put("robot", "events", 100..110);
    world.run(Span::from_secs(1));
    world.put("robot", "log", 30..40);
    world.downstream[1].hop.is_cut = false;
    world.expect("robot", "log", 0..40);
    world.run(Span::from_secs(1));
    let got = &world.downstream[1].got[&("robot".into(), "events".into())];
    assert!(
        got.ends_with(&(100..110).map(|it: u32| it.to_string().into_bytes()).collect::<Vec<_>>())
    );
}

fn name(topic: u16, name: &str, stream: Option<(u64, u64)>) -> Frame<'_> {
    let stream = stream.map(|(id, first)| TopicStream { id: StreamId(id), first });
    Frame::Name(TopicName { topic, name, key: None, stream })
}

fn chunk(topic: u16, number: u64, age: Span, bytes: &[u8]) -> Frame<'_> {
    Frame::Record(RecordChunk { topic, number, is_last: true, age, bytes })
}

#[test]
fn a_record_is_held_until_its_age_is_known_and_leaves_no_state_without_a_bound() {
    let mut world = World::new(1);
    let second = Span::from_secs(1);
    let is_near = |age: Span, truth: Span| age + STEP * 9 > truth && truth + STEP * 9 > age;
    world.deliver(0, None, None);
    world.deliver(1, None, Some(name(3, "log", Some((7, 0)))));
    world.deliver(2, None, Some(chunk(3, 0, second * 9, b"early")));
    world.run(second);
    assert!(world.downstream[0].ages.is_empty(), "its age is not known");
    let known = Some(OffsetEstimate::new(0, Span::from_millis(1)));
    world.deliver(3, known, Some(name(4, "pose", None)));
    world.run(second / 2);
    let age = world.downstream[0].ages[0].expect("it is known");
    assert!(is_near(age.estimate, second * 10), "{age:?}");
    assert!(age.uncertainty < Span::from_millis(50), "{age:?}");
    // One record from before its source slept, whose age has no known bound, and a state.
    world.deliver(
        4,
        Some(OffsetEstimate::new(0, Span::MAX)),
        Some(chunk(3, 1, second * 60, b"old")),
    );
    let state = StateId { topic: 4, behind: 0, age: Span::ZERO };
    world.deliver(5, known, Some(Frame::State { id: state, bytes: b"pose" }));
    world.run(second / 2);
    let to = &world.downstream[0];
    let age = to.ages[1].expect("the estimate is known");
    assert!(is_near(age.estimate, second * 60), "{age:?}");
    let (_, source) = to.monitor.records().next().expect("it is open");
    let pose = source.topics().find(|topic| topic.name() == "pose").expect("it has come");
    let age = pose.bounded_age(world.now).expect("it is bounded");
    assert!(age.uncertainty < Span::from_millis(50), "{age:?}");
}

#[test]
fn a_source_that_wants_a_relay_to_hold_ever_more_records_finds_no_room_and_others_lose_none() {
    let mut world = World::new(2);
    world.downstream[0].hop.is_cut = true;
    world.start("robot", LATEST, &[("log", 7)]);
    world.put("robot", "log", 0..20);
    world.run(Span::from_secs(1));
    let known = Some(OffsetEstimate::new(0, Span::from_millis(1)));
    world.deliver(0, None, None);
    let (mut seq, bytes) = (0, [1; 500]);
    let names: Vec<_> = (0..8_u16).map(|topic| format!("flood-{topic}")).collect();
    for number in 0..1_000 {
        // Each time the source reports that it no longer has the former records, so the window
        // moves on.
        for (topic, text) in (8..).zip(&names) {
            for frame in [
                name(topic, text, Some((topic.into(), number))),
                chunk(topic, number, Span::ZERO, &bytes),
            ] {
                seq += 1;
                world.deliver(seq, known, Some(frame));
            }
        }
        if number % 100 == 0 {
            world.run(STEP);
        }
    }
    world.run(STEP * 9);
    let (all, max) = world.held();
    assert!(all > MAX_BYTES / 2 && all <= MAX_BYTES, "{all} bytes are held");
    assert!(max <= RecordChunk::WINDOW, "{max} bytes of a topic are held");
    world.put("robot", "log", 20..40);
    world.run(Span::from_secs(1));
    world.downstream[0].hop.is_cut = false;
    world.expect("robot", "log", 0..40);
    world.run(IDLE * 2);
    assert_eq!(world.held(), (0, 0), "the other one is gone");
}

#[derive(Debug, Clone)]
enum Step {
    Run(u64),
    Put(bool, u32),
    /// Cuts the source's path, for longer or shorter than its session lasts; or restores it.
    Cut(bool),
    IsBack,
    /// The source ends, with or without a close, and restarts, with a pose of this kind.
    Restart {
        closes: bool,
        is_keyed: bool,
    },
    Pose,
    /// A destination goes away, or comes back.
    Away(usize, bool),
    RestartDestination(usize),
    RestartRelay,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..300_u64).prop_map(Step::Run),
        8 => (any::<bool>(), 1..9_u32).prop_map(|(which, count)| Step::Put(which, count)),
        1 => any::<bool>().prop_map(Step::Cut),
        2 => Just(Step::IsBack),
        2 => any::<(bool, bool)>().prop_map(|(closes, is_keyed)| Step::Restart { closes, is_keyed }),
        2 => Just(Step::Pose),
        4 => (0..2_usize, any::<bool>()).prop_map(|(place, is_away)| Step::Away(place, is_away)),
        1 => (0..2_usize).prop_map(Step::RestartDestination),
        1 => Just(Step::RestartRelay),
    ]
}

/// A source's story, with the topics `log` and `events` of records.
struct Story {
    world: World,
    name: &'static str,
    is_keyed: bool,
    /// The number of records put so far, per topic.
    put: [u32; 2],
}

const LOGS: [(&str, u64); 2] = [("log", 7), ("events", 8)];

impl Story {
    fn step(&mut self, step: &Step) {
        let Self { world, name, is_keyed, put } = self;
        match *step {
            Step::Run(millis) => world.run(Span::from_millis(millis)),
            Step::Put(which, count) => {
                let which = usize::from(which);
                let from = put[which];
                put[which] += count;
                world.put(name, LOGS[which].0, from..put[which]);
            }
            Step::Cut(is_long) => {
                world.source(name).is_cut = true;
                world.run(if is_long { IDLE * 2 } else { STEP * 9 });
            }
            Step::IsBack => world.source(name).is_cut = false,
            Step::Restart { closes, is_keyed: next } => {
                if closes {
                    world.close(name);
                }
                *is_keyed = next;
                world.start(name, if next { TopicKind::KEYED } else { LATEST }, &LOGS);
            }
            Step::Pose => world.put_pose(name, is_keyed.then_some(b"arm")),
            Step::Away(place, is_away) => world.downstream[place].hop.is_cut = is_away,
            Step::RestartDestination(place) => world.restart_destination(place),
            Step::RestartRelay => world.restart_relay(0),
        }
    }

    fn heal(mut self) {
        self.world.source(self.name).is_cut = false;
        self.world.downstream.iter_mut().for_each(|to| to.hop.is_cut = false);
        for ((log, _), put) in LOGS.into_iter().zip(self.put) {
            self.world.expect(self.name, log, 0..put);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_ends_restarts_or_is_away_each_record_is_at_each_destination_once_and_in_order(
        has_name in any::<bool>(),
        steps in prop::collection::vec(any_step(), 1..60),
    ) {
        let name = if has_name { "robot" } else { "" };
        let mut world = World::new(2);
        world.start(name, LATEST, &LOGS);
        let mut story = Story { world, name, is_keyed: false, put: [0; 2] };
        steps.iter().for_each(|step| story.step(step));
        story.heal();
    }
}
