//! States that take several updates, from a source to a monitor: delivered whole or not at all,
//! over loss, restarts and silence, within the bounds of memory.

#[path = "common/session.rs"]
mod driven;
#[path = "common/wire.rs"]
mod wire;

use freshline_core::path::PathId;
use freshline_core::session::{
    Admission, Monitor, MonitorEvent, MonitorParams, Need, Secret, Source, SourceEvent,
    SourceParams,
};
use freshline_core::source::Fixed;
use freshline_core::state::Layout;
use freshline_core::unit::{Span, Time, UpdateRate};
use freshline_core::wire::{Frame, Frames, Opening, Part, SessionId, StateId, Update};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};
use wire::{Wire, advance, arrived};

/// Each direction.
const DELAY: Span = Span::from_millis(20);
/// Between updates.
const SLOT: Span = Span::from_millis(1);

/// A source that samples a new state when one is wanted, a path with losses, a monitor.
struct World {
    now: Time,
    source: Source,
    monitor: Monitor<u8>,
    /// Each direction.
    delay: Span,
    forward: Wire,
    reverse: Wire,
    /// Of updates and of acks, in 2⁻³².
    loss: u32,
    random: Pcg32,
    /// Lengths of the states, in turn.
    lens: Vec<usize>,
    /// States put, and the most that are.
    put: u64,
    most: u64,
    /// When the last one was sampled, to put it again as a sampler does that has no newer one; without, the
    /// source is finished.
    last_at: Option<Time>,
    /// When each state was complete that the monitor has had, and how old it was then.
    delivered: Vec<(Time, Span)>,
}

/// The state with this number: its bytes follow from its number and length.
fn state(number: u64, len: usize) -> Vec<u8> {
    let bytes = number.to_be_bytes().into_iter();
    bytes.chain((8..len).map(|at| (at as u64 * 7 + number) as u8)).take(len).collect()
}

fn new_monitor(max_large: usize) -> Monitor<u8> {
    let params = MonitorParams { max_large, ..MonitorParams::default() };
    Monitor::new(params, Secret::new([1; 16]))
}

impl World {
    fn new(lens: &[usize], loss: f64) -> Self {
        let law = Box::new(Fixed::new(UpdateRate::from_period(SLOT)));
        let params = SourceParams { max_datagram: 1_200, ..SourceParams::default() };
        Self {
            now: Time::ZERO,
            source: Source::new(params, Secret::new([7; 16]), law, Time::ZERO).expect("no name"),
            monitor: new_monitor(1 << 30),
            delay: DELAY,
            forward: Wire::new(),
            reverse: Wire::new(),
            loss: (loss * f64::from(u32::MAX)) as u32,
            random: Pcg32::seed_from_u64(1),
            lens: lens.to_vec(),
            put: 0,
            most: u64::MAX,
            last_at: None,
            delivered: Vec::new(),
        }
    }

    fn run(&mut self, duration: Span) {
        let end = self.now + duration;
        while advance(&mut self.now, end, &self.source, [&self.forward, &self.reverse]) {
            self.arrive();
            self.send();
        }
    }

    fn send(&mut self) {
        self.source.handle_timeout(self.now);
        while let Some(event) = self.source.poll_event() {
            if let SourceEvent::StateWanted(need) = event {
                if self.put == self.most {
                    match self.last_at {
                        Some(at) if need == Need::Newest => {
                            let last = state(self.put, self.lens[0]);
                            self.source.put(self.now, at, &last).expect("it fits");
                        }
                        Some(_) => {}
                        None => self.source.finish(),
                    }
                    continue;
                }
                let len = self.lens[(self.put % self.lens.len() as u64) as usize];
                self.put += 1;
                self.last_at = self.last_at.map(|_| self.now);
                self.source.put(self.now, self.now, &state(self.put, len)).expect("it fits");
            }
        }
        let mut out = Vec::new();
        while let Some(transmit) = self.source.poll_transmit(self.now, &mut out) {
            assert!(transmit.len <= 1_200, "{transmit:?}");
            if self.random.next_u32() >= self.loss {
                let datagram = out[..transmit.len].to_vec();
                self.forward.push_back((self.now + self.delay, transmit.path, datagram));
            }
        }
    }

    fn arrive(&mut self) {
        while let Some((_, path, datagram)) = arrived(&mut self.forward, self.now) {
            let heard = driven::tell(&mut self.monitor, self.now, path.0, &datagram);
            assert!(heard.reply.len() <= datagram.len(), "no amplification");
            for event in heard.events {
                if let MonitorEvent::Fresh { source, is_repeat: false, .. } = event {
                    let record = self.monitor.record(source).expect("it is open");
                    let number = u64::from_be_bytes(
                        *record.payload().unwrap_or_default().first_chunk().unwrap(),
                    );
                    let held = record.payload().unwrap_or_default();
                    assert_eq!(held, state(number, held.len()), "whole");
                    self.delivered.push((self.now, self.now.since(record.generated_at)));
                }
            }
            if !heard.reply.is_empty() && self.random.next_u32() >= self.loss {
                self.reverse.push_back((self.now + self.delay, path, heard.reply));
            }
        }
        while let Some((_, path, datagram)) = arrived(&mut self.reverse, self.now) {
            let _ = self.source.handle_datagram(self.now, path, &datagram);
        }
    }

    /// The mean age at the monitor from the second delivery on.
    fn mean_age(&self) -> Span {
        let mut area = 0.0;
        for pair in self.delivered.windows(2) {
            let gap = pair[1].0.since(pair[0].0).as_secs_f64();
            area += gap * (pair[0].1.as_secs_f64() + gap / 2.0);
        }
        let (first, last) = (self.delivered[0].0, self.delivered.last().expect("some").0);
        Span::from_secs_f64(area / last.since(first).as_secs_f64())
    }

    fn payload(&self) -> &[u8] {
        self.monitor.records().next().expect("it is open").1.payload().unwrap_or_default()
    }
}

/// The mean age of states that begin one after the other and are never lost: the delay, one state's time to
/// leave, and half of that again.
fn ideal(len: usize, symbol_len: usize) -> Span {
    let slots = len.div_ceil(symbol_len) as u64;
    DELAY + SLOT * (slots - 1) + SLOT * slots / 2
}

/// Minimum number of bytes of a state in a datagram of 1200 bytes.
const SYMBOL: usize = 1_096;

#[test]
fn without_losses_states_follow_each_other_without_a_gap() {
    for len in [1_200, 10_000, 100_000] {
        let mut world = World::new(&[len], 0.0);
        world.run(Span::from_secs(10));
        let (age, ideal) = (world.mean_age(), ideal(len, SYMBOL));
        assert!(age < ideal * 21 / 20, "{len} bytes: {age:?}, ideal {ideal:?}");
        // Before any is known to have arrived, some loss is expected.
        assert!(world.source.counters().repair_parts < 10, "{:?}", world.source.counters());
    }
}

#[test]
fn lost_parts_are_repaired_and_states_arrive_whole() {
    for (loss, most) in [(0.01, 1.25), (0.05, 1.4), (0.2, 2.2)] {
        for len in [3_000, 30_000, 100_000] {
            let mut world = World::new(&[len], loss);
            world.run(Span::from_secs(20));
            let (age, ideal) = (world.mean_age(), ideal(len, SYMBOL));
            let ratio = age.as_secs_f64() / ideal.as_secs_f64();
            assert!(ratio < most, "{len} bytes, {loss}: {ratio:.2} of {ideal:?}");
            let counters = world.source.counters();
            let left = counters.large_states + counters.abandoned_states;
            assert!(left + 30 >= world.put && left <= world.put, "{counters:?} {}", world.put);
        }
    }
}

#[test]
fn the_last_state_arrives_although_nothing_follows_it() {
    for seed in 0..20 {
        let mut world = World::new(&[20_000], 0.3);
        (world.most, world.random) = (1, Pcg32::seed_from_u64(seed));
        world.run(Span::from_secs(60));
        assert_eq!((world.delivered.len(), world.payload()), (1, &state(1, 20_000)[..]));
        assert!(world.source.has_finished(), "seed {seed}");
    }
}

#[test]
fn states_of_all_lengths_follow_each_other() {
    let max_whole = World::new(&[1], 0.0).source.max_whole();
    let lens = [8, max_whole, max_whole + 1, 5_000, 9, 50_000, 10];
    let mut world = World::new(&lens, 0.02);
    world.run(Span::from_secs(20));
    assert!(world.delivered.len() as u64 * 10 > world.put * 8, "{}", world.delivered.len());
    let counters = world.source.counters();
    assert!(counters.large_states > 100 && counters.sent > counters.parts, "{counters:?}");
}

#[test]
fn a_monitor_that_was_restarted_gets_the_state_again() {
    let mut world = World::new(&[30_000], 0.0);
    world.most = 1;
    world.run(Span::from_secs(1));
    assert_eq!(world.delivered.len(), 1);
    world.monitor = new_monitor(1 << 30);
    // A keep-alive shows that it is another one.
    world.run(Span::from_secs(25));
    assert_eq!((world.delivered.len(), world.payload()), (2, &state(1, 30_000)[..]));
}

#[test]
fn a_state_that_is_complete_is_kept_alive_by_its_number_alone() {
    let mut world = World::new(&[30_000], 0.0);
    world.most = 1;
    world.run(Span::from_secs(100));
    let (counters, (_, record)) =
        (world.source.counters(), world.monitor.records().next().unwrap());
    assert_eq!((world.delivered.len(), counters.parts - counters.repair_parts), (1, 28));
    assert!(record.state_age(world.now).is_some_and(|age| age > Span::from_secs(99)));
    assert!(counters.sent >= 28 + 4, "{counters:?}");
}

#[test]
fn a_state_that_the_sampler_gives_again_is_not_sent_again() {
    for loss in [0.0, 0.1] {
        let mut world = World::new(&[30_000], loss);
        (world.most, world.last_at) = (1, Some(Time::ZERO));
        world.run(Span::from_secs(60));
        let counters = world.source.counters();
        assert_eq!((world.delivered.len(), counters.large_states), (1, 1), "{counters:?}");
        assert!(counters.parts < 2 * 28, "{counters:?}");
    }
}

#[test]
fn a_host_that_stalls_for_some_milliseconds_costs_no_repair() {
    let mut world = World::new(&[300_000], 0.0);
    world.delay = Span::from_micros(100);
    world.run(Span::from_millis(20));
    for _ in 0..20 {
        while world.forward.is_empty() {
            world.run(Span::from_micros(10));
        }
        // Neither end runs, with a part in flight.
        world.now += Span::from_millis(5);
        world.run(Span::from_millis(10));
    }
    let counters = world.source.counters();
    assert!(counters.parts > 150 && counters.repair_parts == 0, "{counters:?}");
}

#[test]
fn a_monitor_without_room_keeps_the_session_and_small_states() {
    let mut world = World::new(&[30_000, 10], 0.0);
    world.monitor = new_monitor(20_000);
    world.run(Span::from_secs(5));
    assert_eq!(world.payload().len(), 10);
    assert_eq!((world.source.counters().opened, world.source.counters().large_states), (1, 0));
    assert!(world.delivered.len() > 10);
}

/// Parts of states that are never completed, of many sources, numbers and layouts.
#[test]
fn forged_parts_take_no_more_memory_than_the_bound() {
    let max_large = 100_000;
    let params = MonitorParams {
        admission: Admission::Proven,
        max_large,
        max_sources: 50,
        ..MonitorParams::default()
    };
    let mut monitor = Monitor::<u8>::new(params, Secret::new([1; 16]));
    let mut random = Pcg32::seed_from_u64(3);
    let (mut datagram, mut out) = ([0; 1_500], Vec::new());
    for seq in 0..100_000u64 {
        let draw = u64::from(random.next_u32());
        let symbol_len = [100, 1_000, 1_200][draw as usize % 3];
        let layout = Layout::new(1 + (draw >> 8) as u32 % (8 << 20), symbol_len, 0);
        let Ok(layout) = layout else { continue };
        let index = random.next_u32() % layout.symbols();
        let bytes = &[1; 1_200][..layout.symbol_size(index).expect("it is one")];
        let id = StateId { topic: 0, behind: draw % 5, age: Span::ZERO };
        let update = Update {
            session: SessionId(draw % 60),
            seq,
            sent_at: Time::from_nanos(seq),
            clock_offset: None,
            wants_ack: true,
            wants_return: false,
            ack_mark: None,
            opening: Some(Opening { cookie: Default::default(), name: "", token: b"" }),
            frames: Frames::one(Frame::Part(Part { id, layout, index, bytes })),
        };
        let len = update.write(&mut datagram).expect("it fits");
        let _ = monitor.handle_datagram(Time::ZERO, 0, &datagram[..len]);
        assert!(monitor.large_memory() <= max_large);
        while monitor.poll_event().is_some() {}
        while let Some(answer) = monitor.poll_transmit(Time::ZERO, &mut out) {
            assert!(answer.len <= len);
        }
    }
    assert!(monitor.large_memory() > max_large / 2, "{}", monitor.large_memory());
    // Records that end release their memory.
    for session in 0..60 {
        let close = freshline_core::wire::Close {
            session: SessionId(session),
            reason: freshline_core::wire::CloseReason::Done,
        };
        let _ = monitor.handle_datagram(Time::ZERO, 0, &close.bytes());
    }
    assert_eq!((monitor.len(), monitor.large_memory()), (0, 0));
}

#[test]
fn a_newer_whole_state_frees_what_has_come_of_an_older_one_in_parts() {
    let params = MonitorParams { admission: Admission::Proven, ..MonitorParams::default() };
    let mut monitor = Monitor::<u8>::new(params, Secret::new([1; 16]));
    let layout = Layout::new(2_000, 1_000, 0).expect("two symbols");
    let part = Part { id: StateId::FRESH, layout, index: 0, bytes: &[1; 1_000] };
    let mut memory = Vec::new();
    for (seq, frames) in [(0, Frames::one(Frame::Part(part))), (1, Frames::fresh(b"whole"))] {
        let update = Update {
            session: SessionId(1),
            seq,
            sent_at: Time::from_nanos(seq),
            clock_offset: None,
            wants_ack: true,
            wants_return: false,
            ack_mark: None,
            opening: Some(Opening { cookie: Default::default(), name: "", token: b"" }),
            frames,
        };
        let mut datagram = [0; 1_500];
        let len = update.write(&mut datagram).expect("it fits");
        monitor.handle_datagram(Time::ZERO, 0, &datagram[..len]).expect("an update");
        memory.push(monitor.large_memory());
    }
    assert!(memory[0] >= 1_000 && memory[1] == 0, "{memory:?}");
}

/// A source without acks keeps its sent parts within bounds.
#[test]
fn a_source_without_acks_goes_back_to_opening() {
    let mut world = World::new(&[100_000], 0.0);
    world.run(Span::from_secs(1));
    world.loss = u32::MAX;
    world.run(Span::from_secs(5));
    assert_ne!(world.source.reach(), freshline_core::session::Reach::Open);
    world.loss = 0;
    let before = world.delivered.len();
    world.run(Span::from_secs(5));
    assert!(world.delivered.len() > before + 10);
    assert!(world.source.handle_datagram(world.now, PathId::FIRST, b"FL").is_err());
}
