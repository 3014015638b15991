//! The memory for states in parts, topics and records is shared between parties: a party that takes
//! as much as it can leaves the others enough to work.

#[path = "common/session.rs"]
mod driven;

use freshline_core::session::{
    Monitor, MonitorParams, Origin, Secret, Source, SourceParams, StreamId, TopicId, TopicKind,
    TopicParams,
};
use freshline_core::source::Fixed;
use freshline_core::unit::{Span, Time, UpdateRate};

const MIB: usize = 1 << 20;

/// Of the monitor; with its reserve it is a quarter more.
const MAX_LARGE: usize = 64 * MIB;

/// A source on a path without delay.
struct End {
    peer: u8,
    source: Source,
    topics: Vec<TopicId>,
}

impl End {
    fn new(peer: u8, topics: Vec<TopicParams>) -> Self {
        let law = Box::new(Fixed::new(UpdateRate::saturating(20_000.0)));
        let params = SourceParams { max_datagram: 1_452, ..SourceParams::default() };
        let source = Source::new(params, Secret::new([peer; 16]), law, Time::ZERO);
        let source = source.expect("no name").with_topics(topics).expect("they are legal");
        let topics = source.topics().map(|(topic, _)| topic).collect();
        Self { peer, source, topics }
    }

    fn turn(&mut self, now: Time, monitor: &mut Monitor<u8>) {
        self.source.handle_timeout(now);
        while self.source.poll_event().is_some() {}
        let mut out = Vec::new();
        while let Some(transmit) = self.source.poll_transmit(now, &mut out) {
            let reply = driven::tell(monitor, now, self.peer, &out[..transmit.len]).reply;
            if !reply.is_empty() {
                let _ = self.source.handle_datagram(now, transmit.path, &reply);
            }
        }
    }
}

struct World {
    now: Time,
    monitor: Monitor<u8>,
    ends: Vec<End>,
}

impl World {
    /// Each peer is in a network of its own.
    fn new(ends: Vec<End>) -> Self {
        let params = MonitorParams { max_large: MAX_LARGE, ..MonitorParams::default() };
        let monitor = Monitor::new(params, Secret::new([0; 16]));
        let origin = |peer: &u8| Origin { network: (*peer).into(), ..Origin::default() };
        Self { now: Time::ZERO, monitor: monitor.with_origin(origin), ends }
    }

    fn run(&mut self, length: Span) {
        let end = self.now + length;
        while let Some(at) = self.ends.iter().filter_map(|end| end.source.poll_timeout()).min() {
            self.now = self.now.max(at).min(end);
            if self.now == end {
                return;
            }
            for end in &mut self.ends {
                if end.source.poll_timeout().is_some_and(|at| at <= self.now) {
                    end.turn(self.now, &mut self.monitor);
                }
            }
        }
    }

    fn put(&mut self, end: usize, topic: usize, state: &[u8]) {
        let End { source, topics, .. } = &mut self.ends[end];
        source.put_topic(self.now, topics[topic], self.now, state).expect("it fits");
    }

    fn put_key(&mut self, end: usize, topic: usize, key: &[u8], state: &[u8]) {
        let End { source, topics, .. } = &mut self.ends[end];
        source.put_keyed(self.now, topics[topic], key, self.now, state).expect("it fits");
    }

    /// The states of topics and keys of this name of a peer, in their order.
    fn held(&self, peer: u8, name: &str) -> Vec<(Vec<u8>, &[u8])> {
        let records = self.monitor.records().filter(|(_, record)| record.peer == peer);
        let topics = records.flat_map(|(_, record)| record.topics());
        let topics = topics.filter(|topic| topic.name() == name);
        let held = topics
            .filter_map(|topic| Some((topic.key().unwrap_or_default().to_vec(), topic.payload()?)));
        held.collect()
    }
}

fn topics(kinds: &[(&str, TopicKind)]) -> Vec<TopicParams> {
    let topic =
        |(name, kind): &(&str, TopicKind)| TopicParams { kind: *kind, ..TopicParams::new(*name) };
    kinds.iter().map(topic).collect()
}

/// A source that fills the memory of the monitor, and goes on sending.
fn greedy() -> End {
    let names: Vec<String> = (0..100).map(|number| format!("greedy-{number}")).collect();
    let kinds: Vec<_> = names.iter().map(|name| (&**name, TopicKind::Latest)).collect();
    End::new(1, topics(&kinds))
}

/// Ever smaller states, so that nothing is left of the limit.
fn fill(world: &mut World) {
    for (topics, len, secs) in [(1..9, 8 * MIB, 3), (9..25, MIB, 1), (25..100, MIB / 16, 1)] {
        topics.for_each(|topic| world.put(0, topic, &vec![topic as u8; len]));
        world.run(Span::from_secs(secs));
    }
    let used = world.monitor.large_memory();
    assert!((MAX_LARGE - MIB / 8..=MAX_LARGE).contains(&used), "{used}");
}

#[test]
fn a_source_that_fills_the_memory_leaves_the_states_keys_and_records_of_others_alone() {
    let kinds = [
        ("pose", TopicKind::Latest),
        ("map", TopicKind::Latest),
        ("tf", TopicKind::KEYED),
        ("log", TopicKind::every(StreamId(7))),
    ];
    let mut world = World::new(vec![greedy(), End::new(2, topics(&kinds))]);
    fill(&mut world);
    for number in 0..5_u8 {
        let map = vec![number; 1_000_000];
        world.put(1, 1, &map);
        for key in 0..200_u8 {
            world.put_key(1, 2, &[b'k', key], &[number; 100]);
        }
        let End { source, topics, .. } = &mut world.ends[1];
        for record in 0..50_u8 {
            source
                .put_record(world.now, topics[3], world.now, &[record; 500])
                .expect("it has room");
        }
        world.run(Span::from_secs(1));
        assert!(world.held(2, "map") == [(vec![], &*map)], "map {number}");
        let keys = world.held(2, "tf");
        assert!(keys.len() == 200 && keys.iter().all(|(_, state)| *state == [number; 100]));
        let (source, _) = world.monitor.records().find(|(_, record)| record.peer == 2).unwrap();
        let taken = std::iter::from_fn(|| world.monitor.take_record(world.now, source, 3));
        assert_eq!(
            taken.map(|record| record.bytes[0]).collect::<Vec<_>>(),
            (0..50).collect::<Vec<_>>()
        );
        world.run(Span::from_millis(100));
    }
    // Keys that are removed are gone, and make room.
    for key in 0..200_u8 {
        let End { source, topics, .. } = &mut world.ends[1];
        assert!(source.remove_key(world.now, topics[2], &[b'k', key]).expect("it has keys"));
    }
    world.run(Span::from_secs(1));
    assert_eq!(world.held(2, "tf").len(), 0);
    assert!(world.monitor.large_memory() <= MAX_LARGE + MAX_LARGE / 4);
}

#[test]
fn parties_that_take_all_they_can_stay_within_the_bound_and_give_back_what_they_held() {
    let crowd = (2..9)
        .map(|peer| End::new(peer, topics(&[("a", TopicKind::Latest), ("b", TopicKind::KEYED)])));
    let mut world = World::new([greedy()].into_iter().chain(crowd).collect());
    fill(&mut world);
    for end in 1..8 {
        world.put_key(end, 1, b"much", &vec![end as u8; 2 * MIB]);
        world.put_key(end, 1, b"little", &[end as u8; 2_000]);
    }
    world.run(Span::from_secs(3));
    let used = world.monitor.large_memory();
    assert!(used > MAX_LARGE && used <= MAX_LARGE + MAX_LARGE / 4, "{used}");
    let little =
        (2..9).filter(|peer| world.held(*peer, "b").iter().any(|(key, _)| key == b"little"));
    assert_eq!(little.count(), 7, "each has room for a little");
    for End { source, peer, .. } in &mut world.ends {
        source.close();
        let mut out = Vec::new();
        while let Some(transmit) = source.poll_transmit(world.now, &mut out) {
            driven::tell(&mut world.monitor, world.now, *peer, &out[..transmit.len]);
        }
    }
    assert_eq!((world.monitor.len(), world.monitor.large_memory()), (0, 0));
}
