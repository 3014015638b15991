//! States in parts at the limits: lost ends, late labels, full budgets, short datagrams, limits of
//! the rate, and drivers that put states again, early, or too often.

#[path = "common/session.rs"]
mod driven;
#[path = "common/wire.rs"]
mod wire;

use driven::turn;
use freshline_core::path::{PathId, SchedulerConfig};
use freshline_core::session::{
    Monitor, MonitorEvent, MonitorParams, Paths, Reach, Secret, Source, SourceParams,
};
use freshline_core::source::{Fixed, Lazy, LazyParams, Limit, Limits, MinAgeGain, RateLaw};
use freshline_core::unit::{Span, Time, UpdateRate};
use freshline_core::wire::{Close, CloseReason, Message};
use wire::{Wire, advance, arrived};

/// Each direction.
const DELAY: Span = Span::from_millis(20);
const SLOT: Span = Span::from_millis(1);
const MAX_DATAGRAM: usize = 1_200;

struct World {
    now: Time,
    source: Source,
    monitor: Monitor<u8>,
    forward: Wire,
    reverse: Wire,
    /// The state that the source puts when one is wanted, and its sampling time; `None`: it does
    /// not answer.
    state: Option<(Time, Vec<u8>)>,
    /// Whether the newest state is sampled when it is wanted.
    samples: bool,
    /// Whether an update with this number, or its ack, is lost: (number, ack).
    loses: fn(u64, bool) -> bool,
    /// When states came that are new, their lengths and their ages.
    news: Vec<(Time, usize, Span)>,
    /// When updates left, and their lengths.
    sent: Vec<(Time, usize)>,
}

impl World {
    fn new(params: SourceParams) -> Self {
        Self::with_law(params, Box::new(Fixed::new(UpdateRate::from_period(SLOT))))
    }

    fn with_law(params: SourceParams, law: Box<dyn RateLaw>) -> Self {
        let source = Source::new(params, Secret::new([7; 16]), law, Time::ZERO);
        Self {
            now: Time::ZERO,
            source: source.expect("name and token fit"),
            monitor: monitor(1 << 30),
            forward: Wire::new(),
            reverse: Wire::new(),
            state: None,
            samples: false,
            loses: |_, _| false,
            news: Vec::new(),
            sent: Vec::new(),
        }
    }

    /// One state, sampled now, and no other one.
    fn has(mut self, len: usize) -> Self {
        self.state = Some((self.now, bytes(1, len)));
        self
    }

    /// States of this length, sampled when they are wanted.
    fn samples(mut self, len: usize) -> Self {
        self.samples = true;
        self.has(len)
    }

    fn put(&mut self, state: &[u8]) {
        self.source.put(self.now, self.now, state).expect("it fits");
    }

    fn run(&mut self, length: Span) {
        let end = self.now + length;
        let (mut turns, mut before) = (0, self.now);
        while advance(&mut self.now, end, &self.source, [&self.forward, &self.reverse]) {
            turns = if self.now > before { 0 } else { turns + 1 };
            assert!(turns < 100, "it spins at {:?}", self.now);
            before = self.now;
            self.arrive();
            self.send();
        }
    }

    fn send(&mut self) {
        self.source.handle_timeout(self.now);
        while let Some(event) = self.source.poll_event() {
            use freshline_core::session::SourceEvent::StateWanted;
            if let (StateWanted(_), Some((at, state))) = (event, &self.state) {
                let at = if self.samples { self.now } else { *at };
                self.source.put(self.now, at, state).expect("it fits");
            }
        }
        let mut out = Vec::new();
        while let Some(transmit) = self.source.poll_transmit(self.now, &mut out) {
            self.sent.push((self.now, transmit.len));
            if transmit.seq.is_none_or(|seq| !(self.loses)(seq, false)) {
                self.forward.push_back((
                    self.now + DELAY,
                    transmit.path,
                    out[..transmit.len].to_vec(),
                ));
            }
        }
    }

    fn arrive(&mut self) {
        while let Some((_, path, datagram)) = arrived(&mut self.forward, self.now) {
            let heard = driven::tell(&mut self.monitor, self.now, path.0, &datagram);
            assert!(heard.reply.len() <= datagram.len().min(Monitor::<u8>::MAX_REPLY));
            for event in heard.events {
                if let MonitorEvent::Fresh { source, is_repeat: false, .. } = event {
                    let record = self.monitor.record(source).expect("it is open");
                    let age = self.now.since(record.generated_at);
                    self.news.push((self.now, record.payload().unwrap_or_default().len(), age));
                }
            }
            let Ok(Message::Update(update)) = Message::parse(&datagram) else { continue };
            if !heard.reply.is_empty() && !(self.loses)(update.seq, true) {
                self.reverse.push_back((self.now + DELAY, path, heard.reply));
            }
        }
        while let Some((_, path, datagram)) = arrived(&mut self.reverse, self.now) {
            let _ = self.source.handle_datagram(self.now, path, &datagram);
        }
    }

    fn payload(&self) -> &[u8] {
        self.monitor
            .records()
            .next()
            .map_or(&[], |(_, record)| record.payload().unwrap_or_default())
    }
}

fn monitor(max_large: usize) -> Monitor<u8> {
    let params = MonitorParams { max_large, ..MonitorParams::default() };
    Monitor::new(params, Secret::new([1; 16]))
}

fn params() -> SourceParams {
    SourceParams { max_datagram: MAX_DATAGRAM, ..SourceParams::default() }
}

/// A state: its bytes follow from its number and its length.
fn bytes(number: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + len) as u8 ^ number).collect()
}

#[test]
fn the_end_of_a_state_is_repaired_although_nothing_follows_it() {
    // Update 2 is the first part of ten, and repair follows. The acks of all arriving parts come.
    let lost: [fn(u64, bool) -> bool; 3] = [
        |seq, ack| !ack && seq == 10,
        |seq, ack| !ack && (9..=10).contains(&seq),
        |seq, ack| !ack && (9..=11).contains(&seq),
    ];
    for lost in lost {
        let mut world = World::new(params());
        world.put(&bytes(1, 10_000));
        world.loses = lost;
        world.run(Span::from_millis(500));
        assert_eq!(world.payload(), bytes(1, 10_000), "within a few round trips");
    }
}

#[test]
fn states_with_labels_from_the_future_arrive_and_are_repeated() {
    for len in [10, 10_000] {
        let mut world = World::new(params()).has(len);
        world.state.as_mut().unwrap().0 = Time::ZERO + Span::from_secs(100_000);
        world.run(Span::from_secs(30));
        assert_eq!((world.payload(), world.source.counters().opened), (&bytes(1, len)[..], 1));
    }
}

#[test]
fn a_state_without_room_arrives_once_there_is_room() {
    let (mut first, mut world) =
        (World::new(params()).has(10_000), World::new(params()).has(10_000));
    first.source = Source::new(
        params(),
        Secret::new([8; 16]),
        Box::new(Fixed::new(UpdateRate::from_period(SLOT))),
        Time::ZERO,
    )
    .unwrap();
    // Room for one state while it is received, but not for another one besides it.
    first.monitor = monitor(28_000);
    first.run(Span::from_secs(1));
    let session = first.source.session();
    world.monitor = first.monitor;
    world.now = first.now;
    world.run(Span::from_secs(3));
    assert_eq!(world.news.len(), 0, "{}", world.monitor.large_memory());
    let close = Close { session, reason: CloseReason::Done }.bytes();
    world.monitor.handle_datagram(world.now, 0, &close).expect("it is known");
    while world.monitor.poll_event().is_some() {}
    world.run(Span::from_secs(30));
    assert_eq!(world.payload(), bytes(1, 10_000));
}

/// All parts are acknowledged, repeatedly, and yet the monitor does not have the state.
#[test]
fn a_source_has_not_finished_while_the_monitor_has_no_room() {
    let mut world = World::new(params()).has(10_000);
    world.monitor = monitor(15_000);
    world.source.finish();
    world.run(Span::from_secs(5));
    assert!(!world.source.has_finished() && world.news.is_empty());
    // It is sent again about once a second, and no more often.
    let parts = world.source.counters().parts;
    assert!((40..=70).contains(&parts), "{parts}");
}

#[test]
fn the_newest_state_begins_when_the_session_opens_again() {
    let mut world = World::new(params()).has(200_000);
    world.run(Span::from_millis(150));
    world.loses = |_, _| true;
    world.run(Span::from_secs(5));
    assert_ne!(world.source.reach(), Reach::Open);
    world.state = None;
    world.put(&bytes(2, 10_000));
    world.run(Span::from_secs(3));
    world.loses = |_, _| false;
    world.source.finish();
    world.run(Span::from_secs(5));
    assert_eq!((world.payload(), world.source.has_finished()), (&bytes(2, 10_000)[..], true));
    assert_eq!(world.news.len(), 1, "the older state never arrives");
}

#[test]
fn a_short_state_does_not_keep_the_memory_of_a_long_one() {
    let mut world = World::new(params());
    for len in [300_000, 3_000, 2_000, 200_000] {
        world.state = Some((world.now, bytes(1, len)));
        world.source.ask_again();
        world.run(Span::from_secs(2));
        assert_eq!(world.payload(), bytes(1, len));
        let (_, record) = world.monitor.records().next().expect("one");
        assert!(record.payload_memory() <= 2 * len, "{}", record.payload_memory());
        assert!(world.monitor.large_memory() >= record.payload_memory());
    }
}

#[test]
fn the_same_state_put_again_is_not_sent_again() {
    let mut world = World::new(params()).has(10_000);
    world.run(Span::from_secs(5));
    let counters = *world.source.counters();
    assert_eq!((world.news.len(), counters.large_states), (1, 1));
    assert_eq!(counters.parts - counters.repair_parts, 10, "{counters:?}");
}

#[test]
fn the_first_state_after_an_outage_is_not_as_old_as_the_outage() {
    let mut world = World::new(params()).samples(10_000);
    world.loses = |_, _| true;
    world.run(Span::from_secs(20));
    world.loses = |_, _| false;
    world.run(Span::from_secs(5));
    let (_, _, age) = world.news[0];
    assert!(age < Span::from_millis(200), "{age}");
}

#[test]
fn a_state_put_while_the_session_opens_arrives_although_no_other_one_is_put() {
    let mut world = World::new(params());
    world.put(&bytes(1, 10_000));
    world.source.finish();
    world.loses = |seq, _| seq < 3;
    world.run(Span::from_secs(5));
    assert_eq!((world.payload(), world.source.has_finished()), (&bytes(1, 10_000)[..], true));
}

#[test]
fn a_copy_is_of_the_state_that_left_though_a_newer_one_is_put() {
    let scheduler: SchedulerConfig = "redundant".parse().expect("there is one");
    let mut world = World::new(params()).has(10);
    world.source = world.source.over(Paths::new(2, &scheduler).expect("two"));
    world.run(Span::from_secs(1));
    assert_eq!(world.source.reach(), Reach::Open);
    world.put(&[1; 20]);
    let (now, mut out) = (world.source.poll_timeout().unwrap().max(world.now), Vec::new());
    world.source.handle_timeout(now);
    let first = world.source.poll_transmit(now, &mut out).expect("it is due");
    let first = out[..first.len].to_vec();
    world.source.put(now, now, &[2; 30_000]).expect("it fits");
    let copy = world.source.poll_transmit(now, &mut out).expect("a copy");
    assert!(copy.is_copy);
    let states = [&first, &out[..copy.len]].map(|datagram| match Message::parse(datagram) {
        Ok(Message::Update(update)) => update.frames.state().map(|(_, state)| state.to_vec()),
        other => panic!("{other:?}"),
    });
    assert_eq!(states, [Some(vec![1; 20]), Some(vec![1; 20])]);
}

#[test]
fn a_state_that_changes_back_before_it_has_left_is_not_sent() {
    for len in [10, 10_000] {
        let mut world = World::new(SourceParams { on_change: true, ..params() }).has(len);
        world.run(Span::from_secs(1));
        world.put(&bytes(2, len));
        world.put(&bytes(1, len));
        world.state = None;
        world.run(Span::from_secs(1));
        assert_eq!(world.payload(), bytes(1, len));
    }
}

#[test]
fn whatever_the_datagrams_length_states_of_all_lengths_arrive() {
    for max_datagram in [0, 60, 430, 433, 440, 445, 447, 448, 449, 450, 500, 70_000, 200_000] {
        let params = SourceParams {
            name: "n".repeat(63),
            token: vec![7; 255],
            max_datagram,
            ..SourceParams::default()
        };
        let source = World::new(params.clone()).source;
        let (max_whole, max_state) = (source.max_whole(), source.max_state());
        let mut world = World::new(params);
        for len in [1, max_whole, max_whole + 1, max_whole + 2, 3 * max_whole, 80_000, max_state] {
            let state = bytes(1, len);
            if len > max_state {
                assert!(world.source.put(world.now, world.now, &state).is_err());
                continue;
            }
            if len > if max_datagram < 460 { 1_000 } else { 100_000 } {
                continue;
            }
            world.state = Some((world.now, state.clone()));
            world.source.ask_again();
            world.run(Span::from_secs(2));
            assert_eq!(world.payload(), state, "{len} of {max_state}, {max_datagram}");
        }
        let longest = world.sent.iter().map(|(_, len)| *len).max().expect("some");
        // An update of parts is never shorter than its ack.
        assert!(longest <= max_datagram.max(395), "{longest} of {max_datagram}");
    }
}

#[test]
fn states_that_come_faster_than_they_leave_do_not_starve() {
    // 300 ms each, a new one every 10 ms.
    let len = 300 * 1_090;
    let mut world = World::new(params());
    for number in 0..1_000u32 {
        world.put(&bytes(number as u8, len));
        world.run(Span::from_millis(10));
    }
    // At least one state in twice its transmission time, and its age is about this time.
    for pair in world.news.windows(2) {
        assert!(pair[1].0.since(pair[0].0) < Span::from_millis(660), "{pair:?}");
        assert!(pair[1].2 < Span::from_millis(400), "{pair:?}");
    }
    assert!(world.news.len() > 15, "{}", world.news.len());
    world.source.finish();
    world.run(Span::from_secs(2));
    assert_eq!(world.payload(), bytes(999u32 as u8, len));
}

#[test]
fn a_state_that_the_monitor_has_is_not_repaired_for_acks_that_were_lost() {
    // Acks of nearly all data, updates 2 to 76, are lost. That of the first repair symbol names 64 of them, and says
    // that the state is complete.
    let mut world = World::new(params());
    world.put(&bytes(1, 75 * 1_104));
    world.loses = |seq, ack| ack && (3..=76).contains(&seq);
    world.run(Span::from_millis(900));
    let counters = world.source.counters();
    assert_eq!((world.news.len(), counters.parts - counters.repair_parts), (1, 75));
    assert!(counters.repair_parts < 8, "{counters:?}");
}

#[test]
fn max_rate_limits_states_and_not_their_parts() {
    let limits = Limits { max_rate: UpdateRate::new(10.0), ..Limits::NONE };
    let mut world = World::new(SourceParams { limits, ..params() }).samples(50_000);
    world.run(Span::from_secs(10));
    assert!((95..=102).contains(&world.news.len()), "{}", world.news.len());
    // Each leaves at the law's rate, of 46 parts per 46 ms, and not spread over 100 ms.
    assert!(world.news[1..].iter().all(|(_, _, age)| *age < Span::from_millis(80)));
    assert_eq!(world.source.limited_by(), Some(Limit::MaxRate));
    // The ceiling of a law is one of updates: this one sends one per round trip, 25 per second.
    let law = Box::new(Lazy::new(LazyParams::default()));
    let mut world = World::with_law(SourceParams { limits, ..params() }, law).samples(50_000);
    world.run(Span::from_secs(10));
    let rate = world.source.law().rate().per_second();
    assert!((24.0..26.0).contains(&rate), "{rate}");
    assert_eq!(world.source.limited_by(), None);
}

#[test]
fn max_rate_holds_for_whole_states_between_those_in_parts() {
    let limits = Limits { max_rate: UpdateRate::new(10.0), ..Limits::NONE };
    let mut world = World::new(SourceParams { limits, ..params() }).samples(50_000);
    for _ in 0..500 {
        let len = if world.source.counters().sent.is_multiple_of(3) { 20 } else { 50_000 };
        world.put(&bytes(1, len));
        world.run(Span::from_millis(20));
    }
    assert!((50..=102).contains(&world.news.len()), "{}", world.news.len());
}

#[test]
fn the_rate_that_is_worth_it_is_that_of_the_states() {
    let gain = MinAgeGain { least: Span::from_millis(40), share: 0.0 };
    let limits = Limits { min_age_gain: gain, ..Limits::NONE };
    let rate = |len| {
        let law = Box::new(Lazy::new(LazyParams::default()));
        let mut world = World::with_law(SourceParams { limits, ..params() }, law).samples(len);
        world.run(Span::from_secs(20));
        assert_eq!(world.source.limited_by(), (len < 5_000).then_some(Limit::MinAgeGain));
        world.source.law().rate().per_second()
    };
    // 1/(2w) for whole states; (1.5·n − 1)/w for those in n parts, more than one per round trip.
    assert!((rate(100) - 12.5).abs() < 0.1);
    assert!((rate(20 * 1_104) - 25.0).abs() < 1.0);
}

#[test]
fn parts_over_several_paths_arrive_and_the_last_state_is_known_to_have() {
    for scheduler in ["redundant", "round_robin", "freshest"] {
        let config: SchedulerConfig = scheduler.parse().expect("there is one");
        let mut world = World::new(params()).samples(30_000);
        world.source = world.source.over(Paths::new(2, &config).expect("two"));
        world.loses = |seq, ack| !ack && seq % 7 == 3;
        world.run(Span::from_secs(3));
        assert!(world.news.len() > 30, "{scheduler}: {}", world.news.len());
        world.samples = false;
        world.state = None;
        world.source.finish();
        world.run(Span::from_secs(2));
        assert!(world.source.has_finished(), "{scheduler}");
    }
}

#[test]
fn a_machine_that_slept_and_a_path_that_was_down_do_not_spoil_a_state() {
    for step in 0..60u64 {
        let mut world = World::new(params()).has(30_000);
        world.run(Span::from_millis(60 + step));
        if step % 2 == 0 {
            world.source.handle_resume(world.now);
        } else {
            use freshline_core::session::TransportState::{Down, Ready};
            world.source.handle_transport(world.now, PathId::FIRST, Down);
            world.run(Span::from_millis(step));
            world.source.handle_transport(world.now, PathId::FIRST, Ready);
        }
        world.run(Span::from_secs(3));
        assert_eq!(world.payload(), bytes(1, 30_000), "step {step}");
        let left = turn(&mut world.source, world.now, b"", |_| ());
        assert!(left.len() <= 1);
    }
}
