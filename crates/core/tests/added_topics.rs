//! Topics that a source gets while it runs, as a relay finds them.

#[path = "common/session.rs"]
mod driven;
#[path = "common/keyed_run.rs"]
mod run;
#[path = "common/wire.rs"]
mod wire;

use freshline_core::session::{
    Secret, Source, SourceParams, StreamId, TopicError, TopicId, TopicKind, TopicParams,
};
use freshline_core::source::Fixed;
use freshline_core::unit::{Span, Time, UpdateRate};
use run::{World, keyed};

/// Topic, key and state of all that the monitor holds of the only source.
fn held(world: &World) -> Vec<(String, Option<Vec<u8>>, Vec<u8>)> {
    let (_, record) = world.monitor.records().next().expect("a session");
    let states = record.topics().filter_map(|topic| {
        let key = topic.key().map(<[u8]>::to_vec);
        Some((topic.name().to_owned(), key, topic.payload()?.to_vec()))
    });
    states.collect()
}

#[test]
fn topics_are_added_behind_keys_and_do_not_take_the_numbers_of_removed_ones() {
    let mut world = World::new(1, 100);
    world.loss = 1 << 30;
    for key in [b"a", b"b"] {
        world.put(key, 20).expect("there is room");
    }
    world.run(Span::from_secs(2));
    world.remove(b"a");
    world.run(Span::from_secs(2));
    let now = world.now;
    let pose = world.source.add_topic(TopicParams::new("pose")).expect("it is legal");
    let sensors = world.source.add_topic(keyed("sensors", u16::MAX)).expect("it is legal");
    assert_eq!([pose.index(), sensors.index()], [1, 2]);
    world.source.put_topic(now, pose, now, b"here").expect("it fits");
    world.source.put_keyed(now, sensors, b"heat", now, b"20").expect("it fits");
    world.put(b"c", 20).expect("a key of the first topic");
    world.run(Span::from_secs(3));
    let held = held(&world);
    let names: Vec<_> = held.iter().map(|(topic, key, _)| (&**topic, key.as_deref())).collect();
    assert_eq!(held.len(), 4, "{held:?}");
    for expected in
        [("tf", Some(&b"b"[..])), ("tf", Some(b"c")), ("pose", None), ("sensors", Some(b"heat"))]
    {
        assert!(names.contains(&expected), "{expected:?}: {names:?}");
    }
    let counters = world.source.topic_counters(sensors).expect("it is there");
    assert_eq!(counters.delivered, 1);
    // A monitor that is restarted gets all of them.
    world.restart_monitor();
    world.run(Span::from_secs(40));
    assert_eq!(self::held(&world).len(), 4);
}

#[test]
fn topics_of_records_behind_keys_keep_their_records_apart() {
    let mut world = World::new(1, 100);
    for key in [b"a", b"b"] {
        world.put(key, 20).expect("there is room");
    }
    world.run(Span::from_secs(2));
    let now = world.now;
    let mut add = |name: &str, stream: u64| {
        let kind = TopicKind::every(StreamId(stream));
        world.source.add_topic(TopicParams { kind, ..TopicParams::new(name) }).expect("it is legal")
    };
    let (log, audit) = (add("log", 7), add("audit", 8));
    for number in 0..3 {
        let first = world.source.put_record(now, log, now, b"of the log").expect("there is room");
        assert_eq!(first, number);
    }
    world.source.put_record(now, audit, now, b"of the audit").expect("there is room");
    world.run(Span::from_secs(3));
    let (key, record) = world.monitor.records().next().expect("a session");
    let topics = record.topics().map(|topic| (topic.name().to_owned(), topic.number()));
    let topics: Vec<_> = topics.collect();
    let mut take = |name: &str| {
        let number = topics.iter().find(|known| known.0 == name).expect("its name has come").1;
        let taken = world.monitor.take_record(world.now, key, number);
        taken.map(|taken| (taken.cursor.stream, taken.bytes))
    };
    assert_eq!(take("log"), Some((StreamId(7), b"of the log".to_vec())));
    assert_eq!(take("audit"), Some((StreamId(8), b"of the audit".to_vec())));
    assert_eq!(take("audit"), None);
    world.run(Span::from_secs(3));
    assert_eq!([log, audit].map(|topic| world.source.records_done(topic)), [1, 1]);
}

#[test]
fn the_first_topic_is_added_before_anything_is_put() {
    let new = || {
        let law = Box::new(Fixed::new(UpdateRate::saturating(100.0)));
        Source::new(SourceParams::default(), Secret::new([7; 16]), law, Time::ZERO).expect("legal")
    };
    let mut source = new();
    assert_eq!(source.add_topic(TopicParams::new("pose")), Ok(TopicId::FIRST));
    let again = source.add_topic(keyed("pose", 1));
    assert_eq!(again, Err(TopicError::Twice("pose".into())));
    for number in 1..256 {
        source.add_topic(TopicParams::new(format!("topic-{number}"))).expect("there is room");
    }
    let error = source.add_topic(TopicParams::new("another"));
    assert_eq!(error, Err(TopicError::TooMany(257)));
    let mut source = new();
    source.put(Time::ZERO, Time::ZERO, b"a state").expect("it fits");
    assert_eq!(source.add_topic(TopicParams::new("pose")), Err(TopicError::TooLate));
}
