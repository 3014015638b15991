//! A topic with keys: the newest state of each key arrives, over losses, copies, reordering,
//! removals and restarts, within a bound.

#[path = "common/session.rs"]
mod driven;
#[path = "common/keyed_run.rs"]
mod run;
#[path = "common/wire.rs"]
mod wire;

use freshline_core::session::{KeyError, TopicError, TopicId, TopicParams};
use freshline_core::source::{Fixed, Limits};
use freshline_core::unit::{Span, Time, UpdateRate};
use run::{Mirror, World, keyed};

// ---- removal ----

#[test]
fn keys_come_and_go_in_any_order_of_losses() {
    let mut removed = 0;
    for seed in 0..60 {
        let mut world = World::new(seed, 5);
        (world.loss, world.copies) = (u32::MAX / 4, u32::MAX / 4);
        world.jitter = Span::from_millis(if seed % 2 == 0 { 0 } else { 60 });
        let mut expected = Mirror::new();
        for _ in 0..400 {
            let key = [b'a' + (world.draw() % 8) as u8];
            let is_put = world.draw() % 5 < 3;
            let len = if world.draw().is_multiple_of(16) { 3_000 } else { 20 };
            if is_put && (expected.len() < 5 || expected.contains_key(&key[..])) {
                let number = world.put(&key, len).expect("there is room");
                expected.insert(key.to_vec(), number);
            } else if !is_put {
                let was_there = world.remove(&key);
                assert_eq!(was_there, expected.remove(&key[..]).is_some(), "seed {seed}");
            }
            world.send();
            let millis = u64::from(world.draw() % 30);
            world.run(Span::from_millis(millis));
        }
        world.run(Span::from_secs(20));
        assert_eq!(world.held(), expected, "seed {seed}");
        assert_eq!(world.mirror, expected, "its events say the same, seed {seed}");
        removed += world.removed.len();
    }
    assert!(removed > 1_000, "{removed}");
}

#[test]
fn a_key_that_never_left_is_removed_without_a_word() {
    let mut world = World::new(1, 4);
    world.put(b"a", 20).expect("there is room");
    assert!(world.remove(b"a") && !world.remove(b"a"));
    world.run(Span::from_secs(2));
    assert!(world.held().is_empty() && world.removed.is_empty());
    assert_eq!(world.source.keys(TopicId::FIRST).count(), 0);
}

#[test]
fn what_a_removed_key_took_is_free_again() {
    let mut world = World::new(1, 4);
    let mut used = Vec::new();
    for round in 0..200 {
        let key = format!("key {round}").into_bytes();
        world.put(&key, 900).expect("there is room");
        world.run(Span::from_millis(200));
        assert_eq!(world.held().len(), 1);
        world.remove(&key);
        world.run(Span::from_millis(200));
        assert_eq!((world.held().len(), world.removed.len()), (0, round + 1));
        used.push(world.monitor.large_memory());
    }
    assert!(used.iter().all(|bytes| *bytes == used[0] && *bytes < 100), "{used:?}");
    let counters = world.source.topic_counters(TopicId::FIRST).expect("it is there");
    assert_eq!((counters.removed, counters.delivered, counters.sent), (200, 200, 200));
}

// ---- restarts ----

#[test]
fn a_monitor_that_was_restarted_gets_the_newest_state_of_each_key() {
    for seed in 0..20 {
        let mut world = World::new(seed, 100);
        (world.loss, world.jitter) = (u32::MAX / 10, Span::from_millis(30));
        let mut expected = Mirror::new();
        for number in 0..60_u8 {
            let key = vec![number; 1 + usize::from(number)];
            let put = world.put(&key, 50).expect("there is room");
            expected.insert(key, put);
        }
        world.run(Span::from_secs(3));
        assert_eq!(world.held(), expected, "seed {seed}");
        // One is removed just before, and one just after; another has its number.
        assert!(world.remove(&[3; 4]) && expected.remove(&[3; 4][..]).is_some());
        world.send();
        world.restart_monitor();
        world.run(Span::from_millis(100));
        assert!(world.remove(&[7; 8]) && expected.remove(&[7; 8][..]).is_some());
        let put = world.put(b"new", 50).expect("there is room");
        expected.insert(b"new".to_vec(), put);
        world.run(Span::from_secs(40));
        assert_eq!(world.held(), expected, "seed {seed}");
        assert_eq!(world.mirror, expected, "seed {seed}");
    }
}

// ---- bounds ----

#[test]
fn the_number_of_keys_is_bounded_and_errors_say_so() {
    let mut world = World::new(1, 2);
    world.put(b"a", 20).expect("there is room");
    world.put(b"b", 20).expect("there is room");
    let full = KeyError::TooMany { topic: "tf".into(), keys: 2 };
    assert_eq!(world.put(b"c", 20), Err(full.clone()));
    assert!(full.to_string().contains("has 2 keys"));
    world.put(b"a", 20).expect("it is there");
    world.run(Span::from_millis(200));
    world.remove(b"a");
    world.put(b"c", 20).expect("there is room at once");
    assert_eq!(world.put(b"a", 20), Err(full));
    assert_eq!(world.put(b"", 20), Err(KeyError::Length(0)));
    assert_eq!(world.put(&[1; 65], 20), Err(KeyError::Length(65)));
    world.run(Span::from_millis(500));
    assert_eq!(world.held().into_keys().collect::<Vec<_>>(), [b"b", b"c"]);
    let keys: Vec<Vec<u8>> = world.source.keys(TopicId::FIRST).map(|it| it.key.to_vec()).collect();
    assert_eq!(keys, [b"b", b"c"]);

    let new_source = |topics| {
        let law = Box::new(Fixed::new(UpdateRate::saturating(1.0)));
        run::new_source(law, Limits::NONE, topics)
    };
    let topics = vec![TopicParams::new("pose"), keyed("tf", 9)];
    let mut source = new_source(topics).expect("it is legal");
    let pose = TopicId::FIRST;
    let error = source.put_keyed(Time::ZERO, pose, b"a", Time::ZERO, b"x");
    assert_eq!(error, Err(KeyError::NotKeyed("pose".into())));
    assert!(source.remove_key(Time::ZERO, pose, b"a").is_err());
    let refused = |topics| new_source(topics).err().expect("it is refused");
    assert_eq!(refused(vec![keyed("a", 0)]), TopicError::NoKeys("a".into()));
    assert_eq!(refused(vec![keyed("a", 4_000), keyed("b", 95)]), TopicError::TooManyKeys(4_097));
}

#[test]
fn thousands_of_keys_arrive_and_none_is_looked_at_any_more() {
    let mut world = World::new(1, 4_000);
    for number in 0..4_000_u32 {
        world.put(&number.to_be_bytes(), 30).expect("there is room");
    }
    world.run(Span::from_secs(4));
    assert_eq!(world.held().len(), 4_000);
    let sent = world.source.topic_counters(TopicId::FIRST).expect("it is there").sent;
    world.run(Span::from_secs(60));
    let after = world.source.topic_counters(TopicId::FIRST).expect("it is there").sent;
    assert_eq!((sent, after), (4_000, 4_000), "each leaves once");
    world.source.finish();
    world.run(Span::from_secs(5));
    assert!(world.source.has_finished());
}
