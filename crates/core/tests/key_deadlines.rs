//! Maximum ages of keys: keys that are removed, many keys, and keys that are older than a monitor's process.

#[path = "common/session.rs"]
mod driven;
#[path = "common/keyed_run.rs"]
mod run;
#[path = "common/wire.rs"]
mod wire;

use freshline_core::session::{Monitor, MonitorEvent, MonitorParams, Reach, Secret, TopicId};
use freshline_core::source::{Fixed, Limits};
use freshline_core::unit::{Span, UpdateRate};
use run::World;
use wire::next_at;

const LIMIT: Span = Span::from_secs(2);

fn monitor() -> Monitor<u8> {
    let max_age = vec![format!("*={LIMIT}").parse().expect("a rule")];
    let params = MonitorParams { max_large: 1 << 30, max_age, ..MonitorParams::default() };
    Monitor::new(params, Secret::new([1; 16]))
}

fn world(rate: f64, max_keys: u16) -> World {
    let law = Box::new(Fixed::new(UpdateRate::saturating(rate)));
    let mut world = World::with_law(3, law, Limits::NONE, max_keys);
    world.monitor = monitor();
    world
}

/// The keys of the alarms that have come since the last call, and whether each is stale.
fn alarms(world: &mut World) -> Vec<(Vec<u8>, bool)> {
    world.monitor.handle_timeout(world.now + world.ahead);
    std::iter::from_fn(|| world.monitor.poll_event()).filter_map(|event| alarm(&event)).collect()
}

fn alarm(event: &MonitorEvent<u8>) -> Option<(Vec<u8>, bool)> {
    match event {
        MonitorEvent::Freshness(alarm) => Some((alarm.key.to_vec(), alarm.is_stale)),
        _ => None,
    }
}

#[test]
fn a_stale_key_that_is_removed_is_not_stale_any_more() {
    let mut world = world(1_000.0, 4);
    world.put(b"arm", 20).expect("there is room");
    world.run(Span::from_secs(1));
    assert_eq!((alarms(&mut world), world.held().len()), (vec![], 1));
    world.run(LIMIT);
    assert_eq!(alarms(&mut world), [(b"arm".to_vec(), true)]);
    world.remove(b"arm");
    world.now += Span::from_millis(1);
    world.send();
    let (_, path, update) = world.forward.pop_front().expect("it has left");
    let heard = driven::tell(&mut world.monitor, world.now, path.0, &update);
    let mut alarms_of_it = heard.events.iter().filter_map(alarm);
    assert_eq!(alarms_of_it.next(), Some((b"arm".to_vec(), false)));
    assert_eq!(world.monitor.stale_topics(), 0);
    // The key begins again.
    world.put(b"arm", 20).expect("there is room");
    world.run(Span::from_secs(1));
    assert_eq!((alarms(&mut world), world.held().len()), (vec![], 1));
    world.run(LIMIT);
    assert_eq!(alarms(&mut world), [(b"arm".to_vec(), true)]);
}

#[test]
fn all_keys_of_a_session_that_has_ended_become_stale_in_time() {
    let mut world = world(1_000.0, 2_000);
    for key in 0..2_000u16 {
        world.put(&key.to_be_bytes(), 20).expect("there is room");
    }
    world.run(Span::from_secs(1));
    assert_eq!(world.held().len(), 2_000);
    world.source.close();
    world.send();
    world.run(Span::from_millis(100));
    assert!(world.monitor.is_empty());
    assert_eq!(alarms(&mut world), [], "none is early");
    world.run(LIMIT);
    let alarms = alarms(&mut world);
    assert!(alarms.len() == 2_000 && alarms.iter().all(|(_, is_stale)| *is_stale));
}

#[test]
fn an_old_key_does_not_make_the_age_of_a_new_state_uncertain() {
    let mut world = world(2.0, 4);
    world.put(b"old", 20).expect("there is room");
    world.run(Span::from_secs(5));
    // Another process, with another clock.
    (world.monitor, world.ahead) = (monitor(), Span::from_secs(500));
    world.mirror.clear();
    world.greatest.clear();
    world.source.handle_resume(world.now);
    // The first ack shows that; a new state is there before the old one leaves again.
    while world.source.reach() != Reach::Open || world.monitor.is_empty() {
        let next = next_at(&world.source, [&world.forward, &world.reverse]);
        world.now = next.expect("it opens again").max(world.now);
        world.arrive();
        if world.source.reach() == Reach::Open {
            world.put(b"new", 20).expect("there is room");
        }
        world.send();
    }
    world.run(Span::from_millis(1_200));
    assert_eq!(world.source.topic_counters(TopicId::FIRST).map(|it| it.delivered), Some(3));
    let held: Vec<_> = world.held().into_keys().collect();
    assert_eq!(held, [b"new"], "the other one is withheld");
}
