//! Generation times from the application: from before the source began, from the future, and
//! decreasing. The age at the monitor is always that of the state that it holds.

#[path = "common/session.rs"]
mod driven;
#[path = "common/wire.rs"]
mod wire;

use freshline_core::session::{
    Monitor, MonitorEvent, MonitorParams, Secret, Source, SourceParams, StreamId, TakenRecord,
    TopicId, TopicKind, TopicParams,
};
use freshline_core::source::Fixed;
use freshline_core::unit::{Span, Time, UpdateRate};
use wire::{Wire, advance, arrived};

/// Each direction.
const DELAY: Span = Span::from_millis(20);

/// By how much the monitor's clock is ahead of the source's.
const AHEAD: Span = Span::from_secs(77);

/// When the source began, on its clock.
const START: Time = Time::from_nanos(1_000_000_000_000);

const POSE: usize = 0;
const TF: usize = 1;
const LOG: usize = 2;

struct World {
    now: Time,
    source: Source,
    topics: Vec<TopicId>,
    monitor: Monitor<u8>,
    forward: Wire,
    reverse: Wire,
    records: Vec<TakenRecord>,
}

impl World {
    /// A source of a pose, of keys and of records; or of states without topics.
    fn new(has_topics: bool) -> Self {
        let law = Box::new(Fixed::new(UpdateRate::saturating(100.0)));
        let source = Source::new(SourceParams::default(), Secret::new([7; 16]), law, START);
        let mut source = source.expect("no name");
        if has_topics {
            let kinds = [
                ("pose", TopicKind::Latest),
                ("tf", TopicKind::KEYED),
                ("log", TopicKind::every(StreamId(7))),
            ];
            let topics = kinds.map(|(name, kind)| TopicParams { kind, ..TopicParams::new(name) });
            source = source.with_topics(topics.into()).expect("they are legal");
        }
        let mut world = Self {
            now: START,
            topics: source.topics().map(|(topic, _)| topic).collect(),
            source,
            monitor: Monitor::new(MonitorParams::default(), Secret::new([1; 16])),
            forward: Wire::new(),
            reverse: Wire::new(),
            records: Vec::new(),
        };
        // The session opens, so that the clocks' offset is known.
        world.put(START, b"first");
        world.run(Span::from_secs(1));
        world
    }

    /// The same bytes as the newest state of each topic, and as the next record.
    fn put(&mut self, generated_at: Time, bytes: &[u8]) {
        let (now, source) = (self.now, &mut self.source);
        let Some(log) = self.topics.get(LOG) else {
            source.put(now, generated_at, bytes).expect("it fits");
            return source.ask_again();
        };
        source.put_topic(now, self.topics[POSE], generated_at, bytes).expect("it fits");
        source.put_keyed(now, self.topics[TF], b"arm", generated_at, bytes).expect("it fits");
        source.put_record(now, *log, generated_at, bytes).expect("there is room");
    }

    fn run(&mut self, length: Span) {
        let end = self.now + length;
        while advance(&mut self.now, end, &self.source, [&self.forward, &self.reverse]) {
            self.arrive();
            self.source.handle_timeout(self.now);
            while self.source.poll_event().is_some() {}
            let mut out = Vec::new();
            while let Some(transmit) = self.source.poll_transmit(self.now, &mut out) {
                let datagram = out[..transmit.len].to_vec();
                self.forward.push_back((self.now + DELAY, transmit.path, datagram));
            }
        }
    }

    fn arrive(&mut self) {
        while let Some((_, path, datagram)) = arrived(&mut self.forward, self.now) {
            let now = self.now + AHEAD;
            let heard = driven::tell(&mut self.monitor, now, path.0, &datagram);
            for event in heard.events {
                let MonitorEvent::Record { source, topic } = event else { continue };
                let take = || self.monitor.take_record(now, source, topic);
                self.records.extend(std::iter::from_fn(take));
            }
            if !heard.reply.is_empty() {
                self.reverse.push_back((self.now + DELAY, path, heard.reply));
            }
        }
        while let Some((_, path, datagram)) = arrived(&mut self.reverse, self.now) {
            let _ = self.source.handle_datagram(self.now, path, &datagram);
        }
    }

    /// Each state that the monitor holds, with its age now, and the last record with its age as it came.
    fn held(&self) -> Vec<(Vec<u8>, Span)> {
        let now = self.now + AHEAD;
        let (_, record) = self.monitor.records().next().expect("it is open");
        let first = record.payload().map(|state| (state.to_vec(), record.state_age(now)));
        let others = record.topics().filter_map(|topic| {
            topic.payload().map(|state| (state.to_vec(), topic.state_age(now)))
        });
        let last = self
            .records
            .last()
            .map(|record| (record.bytes.clone(), record.age.map(|age| age.estimate)));
        let all = first.into_iter().chain(others).chain(last);
        all.map(|(state, age)| (state, age.expect("it is known"))).collect()
    }

    /// Puts `bytes`, generated at `generated_at`, in all topics, and a second later the monitor
    /// holds them; returns their ages, without that second, and that of the record on arrival.
    fn ages_of(&mut self, generated_at: Time, bytes: &[u8]) -> Vec<Span> {
        let second = Span::from_secs(1);
        self.put(generated_at, bytes);
        self.run(second);
        let held = self.held();
        assert!(held.iter().all(|(state, _)| state == bytes), "{held:?}");
        let has_records = self.topics.len() > LOG;
        let states = held.len() - usize::from(has_records);
        let ages = held.iter().enumerate();
        ages.map(|(at, (_, age))| if at < states { *age - second } else { *age }).collect()
    }
}

fn assert_between(ages: &[Span], from: Span, to: Span) {
    assert!(ages.iter().all(|age| (from..=to).contains(age)), "{ages:?}: {from:?} to {to:?}");
}

#[test]
fn a_state_keeps_the_age_that_its_application_gives_it() {
    for has_topics in [false, true] {
        let mut world = World::new(has_topics);
        let old = Span::from_millis(700);
        let ages = world.ages_of(world.now - old, b"sampled earlier");
        assert_eq!(ages.len(), if has_topics { 3 } else { 1 });
        // A record's age is that of its arrival, an update's time and the delay later.
        assert_between(&ages, old, old + DELAY + Span::from_millis(20));
        let before_it_began = START - Span::from_secs(300);
        let ages = world.ages_of(before_it_began, b"sampled long ago");
        let old = (world.now - Span::from_secs(1)).since(before_it_began);
        assert_between(&ages, old, old + DELAY + Span::from_millis(20));
        // Nothing is older than the clock.
        let ages = world.ages_of(Time::ZERO, b"sampled at its start");
        let old = (world.now - Span::from_secs(1)).since(Time::ZERO);
        assert_between(&ages, old, old + DELAY + Span::from_millis(20));
    }
}

#[test]
fn a_time_in_the_future_counts_as_now() {
    for has_topics in [false, true] {
        let mut world = World::new(has_topics);
        for ahead in [Span::from_nanos(1), Span::from_secs(9), Span::MAX] {
            let bytes = format!("{ahead:?}").into_bytes();
            let ages = world.ages_of(world.now + ahead, &bytes);
            assert_between(&ages, Span::ZERO, DELAY + Span::from_millis(20));
        }
    }
}

#[test]
fn times_that_go_back_do_not_make_a_state_younger() {
    for has_topics in [false, true] {
        let mut world = World::new(has_topics);
        world.ages_of(world.now, b"by a wrong time");
        for (seconds, bytes) in [(5, &b"by the right one"[..]), (60, b"older"), (2, b"newer")] {
            let old = Span::from_secs(seconds);
            let ages = world.ages_of(world.now - old, bytes);
            assert_between(&ages, old, old + DELAY + Span::from_millis(20));
        }
    }
}
