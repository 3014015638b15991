//! Several topics of one source: the path's capacity is shared by weight, nothing starves, and each
//! topic's newest state arrives over losses, restarts and silence.

#[path = "common/session.rs"]
mod driven;
#[path = "common/wire.rs"]
mod wire;

use freshline_core::session::{
    Monitor, MonitorEvent, MonitorParams, Secret, Source, SourceEvent, SourceParams, TopicError,
    TopicId, TopicParams,
};
use freshline_core::source::{Fixed, Limits};
use freshline_core::state::schedule::HEADERS;
use freshline_core::unit::{BitRate, Bytes, Span, Time, UpdateRate};
use freshline_core::wire::{Frame, Message};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};
use wire::{Wire, advance, arrived};

/// Each direction.
const DELAY: Span = Span::from_millis(20);
/// The maximum size of a datagram.
const DATAGRAM: usize = 1_200;

/// One topic, as the tests know it.
#[derive(Debug, Clone)]
struct Known {
    len: usize,
    /// States put so far, and when the last one was sampled.
    put: u64,
    sampled_at: Time,
    /// When the newest one was sampled that the monitor has, and how many it has had.
    newest: Option<Time>,
    delivered: u64,
    /// The area under the age, in s², since it is measured.
    area: f64,
    measured_at: Time,
}

/// A source whose topics are sampled as states are wanted, a path, and a monitor.
struct World {
    now: Time,
    source: Source,
    monitor: Monitor<u8>,
    known: Vec<Known>,
    /// The most states that are put of each topic.
    most: u64,
    /// Whether the last one is put again then, with the time at which it was sampled.
    puts_again: bool,
    forward: Wire,
    reverse: Wire,
    /// Of updates and of acks, in 2⁻³².
    loss: u32,
    random: Pcg32,
    /// Since when ages are measured.
    measured_from: Time,
    /// Updates, and frames with states in them.
    datagrams: u64,
    frames: u64,
    /// Names of topics that left.
    names: u64,
}

fn topic(name: &str, weight: f64) -> TopicParams {
    TopicParams { weight, ..TopicParams::new(name) }
}

/// The state with this number: its bytes follow from its number and length.
fn state(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; len];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn new_monitor(max_large: usize) -> Monitor<u8> {
    let params = MonitorParams { max_large, ..MonitorParams::default() };
    Monitor::new(params, Secret::new([1; 16]))
}

impl World {
    fn new(topics: Vec<TopicParams>, lens: &[usize], rate: f64, limits: Limits) -> Self {
        let law = Box::new(Fixed::new(UpdateRate::saturating(rate)));
        let params = SourceParams { max_datagram: DATAGRAM, limits, ..SourceParams::default() };
        let source = Source::new(params, Secret::new([7; 16]), law, Time::ZERO).expect("no name");
        let known = |len: &usize| Known {
            len: *len,
            put: 0,
            sampled_at: Time::ZERO,
            newest: None,
            delivered: 0,
            area: 0.0,
            measured_at: Time::MAX,
        };
        Self {
            now: Time::ZERO,
            source: source.with_topics(topics).expect("they are legal"),
            monitor: new_monitor(1 << 30),
            known: lens.iter().map(known).collect(),
            most: u64::MAX,
            puts_again: false,
            forward: Wire::new(),
            reverse: Wire::new(),
            loss: 0,
            random: Pcg32::seed_from_u64(1),
            measured_from: Time::ZERO,
            datagrams: 0,
            frames: 0,
            names: 0,
        }
    }

    fn run(&mut self, duration: Span) {
        let end = self.now + duration;
        while advance(&mut self.now, end, &self.source, [&self.forward, &self.reverse]) {
            self.arrive();
            self.send();
        }
    }

    /// New states of all topics, of which there are more.
    fn sample(&mut self) {
        let ids: Vec<TopicId> = self.source.topics().map(|(id, _)| id).collect();
        for (id, known) in ids.into_iter().zip(&mut self.known) {
            if known.put < self.most {
                known.put += 1;
                known.sampled_at = self.now;
            } else if !self.puts_again {
                continue;
            }
            let state = state(known.put, known.len);
            self.source.put_topic(self.now, id, known.sampled_at, &state).expect("it fits");
        }
    }

    fn send(&mut self) {
        self.source.handle_timeout(self.now);
        while let Some(event) = self.source.poll_event() {
            if let SourceEvent::StateWanted(_) = event {
                self.sample();
            }
        }
        let mut out = Vec::new();
        while let Some(transmit) = self.source.poll_transmit(self.now, &mut out) {
            assert!(transmit.len <= DATAGRAM, "{transmit:?}");
            self.source.handle_wire_bytes(self.now, Bytes::new(transmit.len as u64 + 28));
            let datagram = out[..transmit.len].to_vec();
            if let Ok(Message::Update(update)) = Message::parse(&datagram) {
                let of_states = |frame: &Frame<'_>| frame.id().is_some();
                let names = update.frames.iter().filter(|frame| !of_states(frame));
                self.names += names.count() as u64;
                self.frames += update.frames.iter().filter(of_states).count() as u64;
                self.datagrams += 1;
            }
            if self.random.next_u32() >= self.loss {
                self.forward.push_back((self.now + DELAY, transmit.path, datagram));
            }
        }
    }

    fn arrive(&mut self) {
        while let Some((_, path, datagram)) = arrived(&mut self.forward, self.now) {
            let heard = driven::tell(&mut self.monitor, self.now, path.0, &datagram);
            assert!(heard.reply.len() <= datagram.len(), "no amplification");
            for event in heard.events {
                match event {
                    MonitorEvent::Fresh { source, is_repeat: false, .. } => {
                        let record = self.monitor.record(source).expect("it is open");
                        let (payload, at) =
                            (record.payload().unwrap_or_default().to_vec(), record.generated_at);
                        self.known[0].on_delivered(self.now, &payload, at);
                    }
                    MonitorEvent::Topic { source, topic } => {
                        let record = self.monitor.record(source).expect("it is open");
                        let record = record.topic(topic).expect("it has arrived");
                        let payload = record.payload().expect("it has a state");
                        let known = &mut self.known[usize::from(topic)];
                        known.on_delivered(self.now, payload, record.generated_at());
                    }
                    _ => {}
                }
            }
            if !heard.reply.is_empty() && self.random.next_u32() >= self.loss {
                self.reverse.push_back((self.now + DELAY, path, heard.reply));
            }
        }
        while let Some((_, path, datagram)) = arrived(&mut self.reverse, self.now) {
            let _ = self.source.handle_datagram(self.now, path, &datagram);
        }
    }

    fn measure(&mut self) {
        self.measured_from = self.now;
        for known in &mut self.known {
            (known.area, known.measured_at, known.delivered) = (0.0, self.now, 0);
        }
    }

    /// The mean true age of each topic at the monitor since [`World::measure`], in s.
    fn mean_ages(&mut self) -> Vec<f64> {
        let (now, duration) = (self.now, self.now.since(self.measured_from).as_secs_f64());
        let mean = |known: &mut Known| {
            known.add_up(now, known.newest.unwrap_or(now));
            known.area / duration
        };
        self.known.iter_mut().map(mean).collect()
    }
}

impl Known {
    fn on_delivered(&mut self, now: Time, payload: &[u8], generated_at: Time) {
        let number = u64::from_be_bytes(*payload.first_chunk().expect("a number"));
        assert_eq!(payload, state(number, self.len), "whole, and of its topic");
        assert!(self.newest < Some(generated_at), "states do not go back");
        self.delivered += 1;
        self.add_up(now, generated_at);
    }

    /// The age until now is added; from now on that of a state sampled then counts.
    fn add_up(&mut self, now: Time, generated_at: Time) {
        if let Some(newest) = self.newest.replace(generated_at)
            && self.measured_at < now
        {
            let (from, to) = (self.measured_at.since(newest), now.since(newest));
            self.area += (to.as_secs_f64().powi(2) - from.as_secs_f64().powi(2)) / 2.0;
            self.measured_at = now;
        }
    }
}

/// The path's load for one state, in bytes.
fn cost(len: usize) -> f64 {
    let symbol = (DATAGRAM - 200) as f64;
    let headers =
        if len as f64 > symbol { (len as f64 / symbol).ceil() * HEADERS as f64 } else { 30.0 };
    len as f64 + headers
}

/// The minimum weighted sum of ages over static schedules that send topic i every Tᵢ, by random
/// search from the optimum without delays, Tᵢ ∝ √(sᵢ/wᵢ), with sᵢ the transmission time of a state.
/// A state whose transmission takes longer than the period of another topic is delayed by that
/// topic's states.
fn best_static(weights: &[f64], lens: &[usize], bytes_per_sec: f64) -> f64 {
    let times: Vec<f64> = lens.iter().map(|len| cost(*len) / bytes_per_sec).collect();
    let start: Vec<f64> = times.iter().zip(weights).map(|(s, w)| (s / w).sqrt()).collect();
    let mut random = Pcg32::seed_from_u64(1);
    let mut best = (weighted_age(&start, weights, &times), start);
    for _ in 0..5_000 {
        let factor = |random: &mut Pcg32| match random.next_u32() % 3 {
            0 => 0.8 + 0.4 * f64::from(random.next_u32()) / f64::from(u32::MAX),
            _ => 1.0,
        };
        let periods: Vec<f64> = best.1.iter().map(|period| period * factor(&mut random)).collect();
        let age = weighted_age(&periods, weights, &times);
        if age < best.0 {
            best = (age, periods);
        }
    }
    best.0
}

/// Of a schedule with periods in these proportions that fills the path.
fn weighted_age(periods: &[f64], weights: &[f64], times: &[f64]) -> f64 {
    let load: f64 = times.iter().zip(periods).map(|(s, period)| s / period).sum();
    let each = || times.iter().zip(periods).map(|(s, period)| (*s, period * load));
    let mut sum = 0.0;
    for (i, (s, period)) in each().enumerate() {
        let mut takes = s;
        for _ in 0..20 {
            let others = each().enumerate().filter(|(j, (_, other))| *j != i && *other < takes);
            let share: f64 = others.map(|(_, (s, other))| s / other).sum();
            takes = s / (1.0 - share).max(0.01);
        }
        sum += weights[i] * (period / 2.0 + takes + DELAY.as_secs_f64());
    }
    sum
}

#[test]
fn ten_topics_share_two_megabits_by_weight_and_size() {
    let weights = [100.0, 50.0, 20.0, 10.0, 10.0, 5.0, 2.0, 1.0, 1.0, 1.0];
    let lens = [50, 100, 100, 500, 1_000, 2_000, 5_000, 20_000, 100_000, 200_000];
    let topics = weights.iter().enumerate().map(|(i, weight)| topic(&format!("t{i}"), *weight));
    let rate = BitRate::from_mbps(2);
    let limits = Limits { max_bandwidth: Some(rate), ..Limits::NONE };
    let mut world = World::new(topics.collect(), &lens, 5_000.0, limits);
    world.run(Span::from_secs(20));
    world.measure();
    world.run(Span::from_secs(60));
    let ages = world.mean_ages();
    let weighted: f64 = ages.iter().zip(weights).map(|(age, weight)| age * weight).sum();
    let best = best_static(&weights, &lens, 2e6 / 8.0);
    println!("weighted sum of ages {weighted:.2} s, best static schedule {best:.2} s, {ages:.3?}");
    assert!(weighted < 1.1 * best, "{weighted} of {best}");
    assert!(world.known.iter().all(|known| known.delivered > 10), "one starves: {ages:?}");
}

#[test]
fn small_states_share_a_datagram_where_the_rate_is_limited() {
    let names: Vec<TopicParams> = (0..10).map(|i| topic(&format!("sensor/{i}"), 1.0)).collect();
    let limits = Limits { max_rate: Some(UpdateRate::saturating(20.0)), ..Limits::NONE };
    let mut world = World::new(names, &[60; 10], 1_000.0, limits);
    world.run(Span::from_secs(10));
    assert!(world.datagrams < 220, "{}", world.datagrams);
    let delivered: Vec<u64> = world.known.iter().map(|known| known.delivered).collect();
    assert!(delivered.iter().all(|states| *states > 190), "{delivered:?}");
}

#[test]
fn names_and_the_last_state_of_each_topic_arrive_over_losses() {
    for seed in 0..40 {
        let topics: Vec<TopicParams> =
            ["pose", "map", "battery"].map(|name| topic(name, 1.0)).into();
        let mut world = World::new(topics, &[40, 20_000, 10], 200.0, Limits::NONE);
        (world.loss, world.random) = (u32::MAX / 3, Pcg32::seed_from_u64(seed));
        world.most = 3;
        world.run(Span::from_secs(60));
        let (_, record) = world.monitor.records().next().expect("it is open");
        let names: Vec<&str> = record.topics().map(|topic| topic.name()).collect();
        assert_eq!(names, ["pose", "map", "battery"], "seed {seed}");
        assert_eq!(record.payload().unwrap_or_default(), state(3, 40), "seed {seed}");
        let held = |topic| record.topic(topic).and_then(|topic| topic.payload());
        assert_eq!(held(1), Some(&state(3, 20_000)[..]), "seed {seed}");
        assert_eq!(held(2), Some(&state(3, 10)[..]), "seed {seed}");
        assert!(record.topic(2).is_some_and(|topic| topic.state_age(world.now).is_some()));
        world.source.finish();
        // A keep-alive may be in flight.
        let mut seconds = 0..10;
        while !world.source.has_finished() {
            assert!(seconds.next().is_some(), "seed {seed}");
            world.run(Span::from_secs(1));
        }
    }
}

#[test]
fn a_monitor_that_was_restarted_gets_the_newest_state_of_each_topic_again() {
    for puts_again in [false, true] {
        let topics = vec![topic("pose", 1.0), topic("map", 1.0)];
        let mut world = World::new(topics, &[40, 20_000], 200.0, Limits::NONE);
        (world.most, world.puts_again) = (1, puts_again);
        world.run(Span::from_secs(2));
        let delivered =
            |world: &World| world.known.iter().map(|known| known.delivered).collect::<Vec<_>>();
        assert_eq!(delivered(&world), [1, 1]);
        world.monitor = new_monitor(1 << 30);
        world.known.iter_mut().for_each(|known| known.newest = None);
        // A keep-alive shows that it is another one.
        world.run(Span::from_secs(30));
        assert_eq!(delivered(&world), [2, 2], "puts again: {puts_again}");
        let (_, record) = world.monitor.records().next().expect("it is open");
        assert_eq!(record.topics().map(|topic| topic.name()).collect::<Vec<_>>(), ["pose", "map"]);
    }
}

#[test]
fn what_the_source_knows_to_have_arrived_has_arrived() {
    let topics = vec![topic("a", 1.0), topic("b", 1.0)];
    for (rate, loss) in [(20.0, 0.0), (200.0, 0.0), (2_000.0, 0.0), (200.0, 0.2)] {
        let mut world = World::new(topics.clone(), &[40, 60], rate, Limits::NONE);
        world.loss = (f64::from(u32::MAX) * loss) as u32;
        world.run(Span::from_secs(10));
        let ids: Vec<TopicId> = world.source.topics().map(|(id, _)| id).collect();
        for (id, known) in ids.into_iter().zip(&world.known) {
            let counters = world.source.topic_counters(id).expect("it is there");
            let (ours, theirs) = (counters.delivered, known.delivered);
            assert!(ours <= theirs && ours > 5, "{rate}/s, {loss}: {ours} of {theirs}");
            let age = world.source.topic_age(id).and_then(|age| age.mean(world.now));
            assert!(age.is_some_and(|age| age < Span::from_millis(500)), "{age:?}");
        }
        // Names are sent until they have arrived, and no longer.
        assert!(world.names < 600, "{rate}/s, {loss}: {}", world.names);
    }
}

#[test]
fn a_state_for_which_there_is_no_room_is_not_taken_for_delivered_and_arrives_later() {
    let topics = vec![topic("a", 1.0), topic("b", 1.0), topic("c", 1.0)];
    let mut world = World::new(topics, &[40, 800, 800], 200.0, Limits::NONE);
    (world.most, world.puts_again) = (1, true);
    world.monitor = new_monitor(3_400);
    world.run(Span::from_secs(10));
    let delivered: Vec<u64> = world.known.iter().map(|known| known.delivered).collect();
    assert_eq!(delivered.iter().sum::<u64>(), 2, "{delivered:?}");
    let ids: Vec<TopicId> = world.source.topics().map(|(id, _)| id).collect();
    for (id, delivered) in ids.into_iter().zip(delivered) {
        assert_eq!(world.source.topic_counters(id).expect("it is there").delivered, delivered);
    }
    world.source.finish();
    assert!(!world.source.has_finished());
    assert!(world.datagrams < 60, "it is tried once in a second: {}", world.datagrams);
}

#[test]
fn a_state_in_parts_for_which_there_is_no_room_does_not_starve_others() {
    let mut sent = [0, 0];
    for (sent, max_large) in sent.iter_mut().zip([12_000, 1 << 30]) {
        let topics = vec![topic("pose", 1.0), topic("map", 1.0)];
        let mut world = World::new(topics, &[40, 20_000], 200.0, Limits::NONE);
        world.monitor = new_monitor(max_large);
        world.run(Span::from_secs(20));
        *sent = world.known[0].delivered;
        world.most = 0;
        let before = world.datagrams;
        world.run(Span::from_secs(10));
        assert!(world.datagrams - before < 400, "{}", world.datagrams - before);
    }
    assert!(sent[0] * 2 > sent[1], "{sent:?}");
}

#[test]
fn states_of_the_same_time_are_told_apart() {
    for seed in 0..20 {
        let mut world = World::new(vec![topic("a", 1.0)], &[40], 200.0, Limits::NONE);
        (world.most, world.loss) = (0, u32::MAX / 5);
        world.random = Pcg32::seed_from_u64(seed);
        world.run(Span::from_secs(1));
        for number in 1..4 {
            let state = state(number, 40);
            let at = Time::ZERO + Span::from_millis(500);
            world.source.put_topic(world.now, TopicId::FIRST, at, &state).expect("it fits");
            world.known[0].newest = None;
            world.run(Span::from_millis(200));
        }
        world.known[0].newest = None;
        world.run(Span::from_secs(30));
        let (_, record) = world.monitor.records().next().expect("it is open");
        assert_eq!(record.payload().unwrap_or_default(), state(3, 40), "seed {seed}");
    }
}

#[test]
fn a_large_state_past_its_deadline_does_not_keep_a_source_from_ending() {
    let late = TopicParams { deadline: Some(Span::from_millis(300)), ..topic("map", 1.0) };
    let mut world = World::new(vec![late], &[200_000], 100.0, Limits::NONE);
    world.most = 1;
    world.run(Span::from_secs(2));
    world.source.finish();
    world.run(Span::from_secs(2));
    assert!(world.source.has_finished());
}

#[test]
fn an_idle_source_keeps_its_session_alive_without_repeating_states() {
    let mut world = World::new(vec![topic("pose", 1.0)], &[40], 200.0, Limits::NONE);
    world.most = 1;
    world.run(Span::from_secs(2));
    let (datagrams, frames) = (world.datagrams, world.frames);
    world.run(Span::from_secs(200));
    assert!((9..=12).contains(&(world.datagrams - datagrams)), "{}", world.datagrams - datagrams);
    assert_eq!(world.frames, frames);
    assert_eq!(world.source.counters().opened, 1);
}

#[test]
fn a_state_past_its_deadline_does_not_leave_and_a_lowest_rate_goes_first() {
    let late = TopicParams { deadline: Some(Span::from_millis(100)), ..topic("cmd", 1.0) };
    let rare = TopicParams { min_rate: Some(UpdateRate::saturating(2.0)), ..topic("rare", 1e-6) };
    let mut world =
        World::new(vec![late, rare, topic("bulk", 100.0)], &[20, 900, 900], 20.0, Limits::NONE);
    let old = world.now + Span::from_millis(1);
    world.run(Span::from_secs(20));
    assert!(world.known[1].delivered >= 38, "{}", world.known[1].delivered);
    let before = world.source.topic_counters(TopicId::FIRST).expect("it is there");
    let late = state(world.known[0].put + 1, 20);
    world.source.put_topic(world.now, TopicId::FIRST, old, &late).expect("it fits");
    world.source.handle_timeout(world.now);
    let after = world.source.topic_counters(TopicId::FIRST).expect("it is there");
    assert_eq!((after.expired, after.sent), (before.expired + 1, before.sent));
}

#[test]
fn the_highest_rate_of_a_topic_holds_for_it_alone() {
    let slow = TopicParams { max_rate: Some(UpdateRate::saturating(5.0)), ..topic("slow", 10.0) };
    let mut world = World::new(vec![slow, topic("fast", 1.0)], &[40, 40], 100.0, Limits::NONE);
    world.run(Span::from_secs(20));
    assert!((95..=101).contains(&world.known[0].delivered), "{}", world.known[0].delivered);
    assert!(world.known[1].delivered > 1_900, "{}", world.known[1].delivered);
}

#[test]
fn a_topic_that_may_not_leave_yet_is_asked_for_again_when_it_may() {
    let slow = TopicParams { max_rate: Some(UpdateRate::saturating(2.0)), ..topic("slow", 1.0) };
    let mut world = World::new(vec![slow], &[40], 100.0, Limits::NONE);
    world.run(Span::from_secs(10));
    let known = &world.known[0];
    assert!((19..=21).contains(&known.delivered), "{}", known.delivered);
    // It is sampled as it leaves.
    assert!(known.put < 100, "{}", known.put);
    assert_eq!(
        known.newest.map(|newest| world.now.since(newest) < Span::from_millis(540)),
        Some(true)
    );
}

#[test]
fn a_topic_that_may_not_leave_yet_does_not_hold_up_the_others() {
    let rare = TopicParams { max_rate: UpdateRate::new(0.1), ..topic("rare", 1.0) };
    let mut world = World::new(vec![topic("door", 1.0), rare], &[40, 40], 100.0, Limits::NONE);
    (world.most, world.puts_again) = (1, true);
    world.run(Span::from_secs(2));
    // The rare one changes, and then the other one.
    world.known[1].put = 0;
    world.source.ask_again();
    world.run(Span::from_millis(100));
    let before = world.known[0].delivered;
    (world.known[0].put, world.known[0].sampled_at) = (2, world.now);
    world.run(Span::from_secs(2));
    assert_eq!(world.known[0].delivered, before + 1);
}

#[test]
fn an_opening_does_not_wait_for_the_highest_rate_of_a_topic() {
    let rare = TopicParams { max_rate: UpdateRate::new(1.0 / 600.0), ..topic("rare", 1.0) };
    let mut world = World::new(vec![rare], &[40], 100.0, Limits::NONE);
    world.run(Span::from_secs(2));
    assert_eq!(world.known[0].delivered, 1);
    world.monitor = new_monitor(1 << 30);
    world.run(Span::from_secs(30));
    assert_eq!(world.monitor.len(), 1, "a keep-alive has shown that it is another one");
}

#[test]
fn memory_of_topics_is_bounded_and_freed() {
    let topics: Vec<TopicParams> = (0..256).map(|i| topic(&format!("t{i}"), 1.0)).collect();
    let mut world = World::new(topics, &[500; 256], 1_000.0, Limits::NONE);
    world.monitor = new_monitor(40_000);
    world.run(Span::from_secs(20));
    assert!(world.monitor.large_memory() <= 40_000);
    let (_, record) = world.monitor.records().next().expect("it is open");
    let held = record.topics().filter(|topic| topic.payload().is_some()).count();
    assert!((20..150).contains(&held), "{held}");
    world.source.close();
    world.send();
    world.run(Span::from_secs(1));
    assert_eq!((world.monitor.len(), world.monitor.large_memory()), (0, 0));
}

#[test]
fn lists_of_topics_that_cannot_be_are_refused() {
    let source = || {
        let law = Box::new(Fixed::new(UpdateRate::saturating(1.0)));
        Source::new(SourceParams::default(), Secret::new([7; 16]), law, Time::ZERO)
            .expect("no name")
    };
    let refused = |topics| source().with_topics(topics).err().expect("it is refused");
    assert_eq!(refused(vec![topic("a", 1.0), topic("a", 2.0)]), TopicError::Twice("a".into()));
    assert_eq!(refused(vec![topic("a b", 1.0)]), TopicError::NotPlain("a b".into()));
    assert_eq!(refused(vec![topic("", 1.0)]), TopicError::NotPlain(String::new()));
    for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(refused(vec![topic("a", weight)]), TopicError::Weight { .. }));
    }
    let many = (0..257).map(|i| topic(&format!("t{i}"), 1.0)).collect();
    assert_eq!(refused(many), TopicError::TooMany(257));
}
