//! Topics with keys and a peer that may send anything: late updates restore no removed key, and a
//! monitor holds no more than its budget.

#[path = "common/session.rs"]
mod driven;

use freshline_core::session::{Admission, Monitor, MonitorParams, Secret};
use freshline_core::unit::{Span, Time};
use freshline_core::wire::{
    Close, CloseReason, Frame, Frames, MAX_TOPIC, Opening, SessionId, StateId, TopicKey, TopicName,
    Update,
};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// An update with these frames.
fn update(seq: u64, frames: &[Frame<'_>]) -> Vec<u8> {
    let of = |frames| Update {
        session: SessionId(5),
        seq,
        sent_at: Time::from_nanos(seq),
        clock_offset: None,
        wants_ack: true,
        wants_return: false,
        ack_mark: None,
        opening: None,
        frames,
    };
    let mut datagram = vec![0; 65_535];
    of(Frames::NONE).write(&mut datagram).expect("there is room");
    let mut at = Update::HEADER_LEN;
    for frame in frames {
        let mut one = vec![0; 2_000];
        of(Frames::one(*frame)).write(&mut one).expect("there is room");
        datagram[at..at + frame.len()].copy_from_slice(&one[Update::HEADER_LEN..][..frame.len()]);
        at += frame.len();
    }
    let len = (at - Update::HEADER_LEN) as u16;
    datagram[14..16].copy_from_slice(&len.to_be_bytes());
    datagram.truncate(at.max(Update::MIN_LEN_OF_PARTS));
    datagram
}

/// A monitor that knows the session of [`update`].
fn open_monitor(max_large: usize) -> Monitor<u8> {
    let params =
        MonitorParams { max_large, admission: Admission::Proven, ..MonitorParams::default() };
    let mut monitor = Monitor::new(params, Secret::new([1; 16]));
    let opening = Opening { cookie: Default::default(), name: "", token: b"" };
    let update = Update {
        session: SessionId(5),
        seq: 0,
        sent_at: Time::ZERO,
        clock_offset: None,
        wants_ack: true,
        wants_return: false,
        ack_mark: None,
        opening: Some(opening),
        frames: Frames::NONE,
    };
    let mut datagram = vec![0; 200];
    let len = update.write(&mut datagram).expect("there is room");
    assert!(driven::tell(&mut monitor, Time::ZERO, 1, &datagram[..len]).result.is_ok());
    monitor
}

fn id(topic: u16, behind: u64) -> StateId {
    StateId { topic, behind, age: Span::ZERO }
}

fn name(topic: u16, behind: u64, key: &[u8]) -> Frame<'_> {
    let key = Some(TopicKey { behind, bytes: key });
    Frame::Name(TopicName { topic, name: "tf", key, stream: None })
}

/// The keys that a monitor holds a state of, with their states.
fn keys(monitor: &Monitor<u8>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let records = monitor.records().flat_map(|(_, record)| record.topics());
    let keys = records.filter_map(|topic| Some((topic.key()?.to_vec(), topic.payload()?.to_vec())));
    keys.collect()
}

#[test]
fn a_number_that_is_another_key_now_is_not_confused_by_late_updates() {
    let a = [name(9, 0, b"a"), Frame::State { id: id(9, 0), bytes: b"1" }];
    let removal = [Frame::Removed(id(9, 0))];
    let b = [name(9, 0, b"b"), Frame::State { id: id(9, 0), bytes: b"2" }];
    let c = [name(9, 1, b"b"), Frame::State { id: id(9, 1), bytes: b"2" }];
    let story = [update(1, &a), update(2, &removal), update(3, &b), update(4, &c)];
    let expected = [(b"b".to_vec(), b"2".to_vec())];
    let mut orders = vec![Vec::new()];
    for place in 0..story.len() {
        let longer = |order: Vec<usize>| {
            (0..=place).map(move |at| {
                let mut order = order.clone();
                order.insert(at, place);
                order
            })
        };
        orders = orders.into_iter().flat_map(longer).collect();
    }
    assert_eq!(orders.len(), 24);
    for order in orders {
        let mut monitor = open_monitor(1 << 20);
        for place in &order {
            driven::tell(&mut monitor, Time::from_nanos(9), 1, &story[*place]);
        }
        // Copies change nothing.
        for place in &order {
            driven::tell(&mut monitor, Time::from_nanos(9), 1, &story[*place]);
        }
        assert_eq!(keys(&monitor), expected, "{order:?}");
    }
}

#[test]
fn a_hostile_peer_makes_a_monitor_hold_no_more_than_its_budget() {
    let limit = 60_000;
    let mut monitor = open_monitor(limit);
    let mut random = Pcg32::seed_from_u64(3);
    for seq in 1..3_000_u64 {
        let bytes: Vec<u8> = (0..64).map(|_| random.next_u32() as u8).collect();
        let mut frames = Vec::new();
        for _ in 0..random.next_u32() % 40 {
            let topic = (random.next_u32() % (u32::from(MAX_TOPIC) + 1)) as u16;
            let topic = if random.next_u32().is_multiple_of(2) { topic % 7 } else { topic };
            let behind = u64::from(random.next_u32() % 30);
            let key = &bytes[..1 + (random.next_u32() % 64) as usize];
            frames.push(match random.next_u32() % 5 {
                0 | 1 => name(topic, behind, key),
                2 => Frame::Removed(id(topic, behind)),
                3 => Frame::Name(TopicName { topic, name: "tf", key: None, stream: None }),
                _ => Frame::State { id: id(topic, behind), bytes: key },
            });
        }
        // Some are late.
        let seq = if random.next_u32().is_multiple_of(4) { seq.saturating_sub(20) } else { seq };
        let heard = driven::tell(&mut monitor, Time::from_nanos(9), 1, &update(seq, &frames));
        assert!(heard.events.len() <= 1 + 2 * frames.len());
        assert!(monitor.large_memory() <= limit);
        let mut held = keys(&monitor);
        held.sort();
        assert!(held.windows(2).all(|two| two[0].0 != two[1].0), "no key twice");
    }
    assert!(monitor.large_memory() > limit / 2);
    let end = Close { session: SessionId(5), reason: CloseReason::Done };
    driven::tell(&mut monitor, Time::from_nanos(9), 1, &end.bytes()[..]);
    assert_eq!((monitor.len(), monitor.large_memory()), (0, 0));
}

#[test]
fn names_that_cannot_be_are_no_updates_and_kinds_that_are_not_known_are_skipped() {
    let mut monitor = open_monitor(1 << 20);
    let good = update(1, &[name(9, 0, b"a"), Frame::State { id: id(9, 0), bytes: b"1" }]);
    let kind = good.iter().rposition(|byte| *byte == b'f').expect("a name") + 1;
    assert_eq!(good[kind], 1);
    let mut other = good.clone();
    other[kind] = 3;
    driven::tell(&mut monitor, Time::ZERO, 1, &other);
    let (_, record) = monitor.records().next().expect("it is open");
    assert_eq!(record.topics().map(|topic| topic.name()).collect::<Vec<_>>(), [""]);
    for key in [&b""[..], &[1; 65]] {
        let bad = update(2, &[name(9, 0, key)]);
        assert!(driven::tell(&mut monitor, Time::ZERO, 1, &bad).result.is_err(), "{key:?}");
    }
    let beyond = update(2, &[Frame::Again(id(MAX_TOPIC + 1, 0))]);
    assert!(driven::tell(&mut monitor, Time::ZERO, 1, &beyond).result.is_err());
}
