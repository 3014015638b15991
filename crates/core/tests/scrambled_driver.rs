//! A driver that calls a source and a monitor in any order that the types allow, over a network
//! that loses, duplicates and reorders, with jumps of time and monitors that are restarted: nothing
//! panics, no memory grows without bound, and once the driver and the network are regular again,
//! the session is open and the newest state arrives, complete, as a short state or in parts,
//! without useless turns.
//!
//! Jumps of up to 100 s leave few sessions open for long. There are therefore also cases that begin
//! with an open session, and in which time passes in small steps only.

use freshline_core::path::{DeviceQueue, PathId, SchedulerConfig};
use freshline_core::session::{
    Datagram, Monitor, MonitorEvent, MonitorParams, Paths, Reach, Secret, Source, SourceEvent,
    SourceParams, Transmit, TransportState,
};
use freshline_core::source::{Fixed, Limits};
use freshline_core::unit::{Bytes, Span, Time, UpdateRate};
use proptest::prelude::*;

/// Within this time a regular driver has found the monitor again, whatever happened before: a few
/// times the maximum interval between openings, and the time after which a path of long round trips
/// is silent.
const HEALS_WITHIN: Span = Span::from_secs(30);

/// Of the source.
const MAX_DATAGRAM: usize = 400;

/// The maximum length of a state that it sends whole.
const MAX_WHOLE: usize = MAX_DATAGRAM - 80;

/// Turns at one time, of which each sends an update or finds one due.
const MOST_TURNS: usize = 20;

/// Datagrams in flight that the network keeps.
const IN_FLIGHT: usize = 64;

#[derive(Debug, Clone)]
enum Step {
    Wait(u64),
    Timeout,
    Event,
    Transmit,
    Put(u8, usize),
    /// The state that was put last, as of the same time.
    PutAgain,
    AskAgain,
    AskAgainAt(u64),
    Repeat,
    Transport(u8, u8),
    Resume,
    Queue(u8, Option<u64>),
    Departure(u8, u64),
    WireBytes(u64),
    Replaced,
    /// A datagram of those in flight to the monitor, or to the source: it arrives, or is lost; a copy
    /// stays or does not.
    Network {
        to_monitor: bool,
        place: usize,
        arrives: bool,
        stays: bool,
    },
    MonitorTimeout,
    MonitorEvent,
    MonitorTransmit,
    /// Another monitor is there, without any sessions.
    MonitorRestarts,
}

/// Steps with which an open session mostly stays so: short waits, transports that are ready, one monitor.
fn small_step() -> impl Strategy<Value = Step> {
    any_step().prop_map(|step| match step {
        Step::Wait(nanos) => Step::Wait(nanos % 100_000_000),
        Step::AskAgainAt(nanos) => Step::AskAgainAt(nanos % 100_000_000),
        Step::Transport(path, _) => Step::Transport(path, 2),
        Step::MonitorRestarts => Step::Timeout,
        step => step,
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    let network = (any::<(bool, bool, bool)>(), 0..IN_FLIGHT);
    prop_oneof![
        3 => (0..50_000_000u64).prop_map(Step::Wait),
        1 => (0..100_000_000_000u64).prop_map(Step::Wait),
        6 => Just(Step::Timeout),
        6 => Just(Step::Event),
        6 => Just(Step::Transmit),
        4 => (any::<u8>(), any_len()).prop_map(|(byte, len)| Step::Put(byte, len)),
        1 => Just(Step::PutAgain),
        1 => Just(Step::AskAgain),
        1 => (0..5_000_000_000u64).prop_map(Step::AskAgainAt),
        1 => Just(Step::Repeat),
        2 => (0..3u8, 0..3u8).prop_map(|(path, state)| Step::Transport(path, state)),
        1 => Just(Step::Resume),
        1 => (0..3u8, any::<Option<u64>>()).prop_map(|(path, queue)| Step::Queue(path, queue)),
        1 => (0..3u8, 0..99u64).prop_map(|(path, seq)| Step::Departure(path, seq)),
        1 => (0..9_999u64).prop_map(Step::WireBytes),
        1 => Just(Step::Replaced),
        12 => network.prop_map(|((to_monitor, arrives, stays), place)| {
            Step::Network { to_monitor, place, arrives, stays }
        }),
        2 => Just(Step::MonitorTimeout),
        4 => Just(Step::MonitorEvent),
        6 => Just(Step::MonitorTransmit),
        1 => Just(Step::MonitorRestarts),
    ]
}

/// Of states: short, as long as fits into an update and a byte more, or in several parts.
fn any_len() -> impl Strategy<Value = usize> {
    prop_oneof![Just(20), Just(MAX_WHOLE), Just(MAX_WHOLE + 1), 1..3_000usize]
}

/// How the source and its states are.
#[derive(Debug, Clone)]
struct Setup {
    paths: usize,
    scheduler: &'static str,
    on_change: bool,
    limits: Limits,
    /// Of the state after everything behaves again.
    len: usize,
}

fn any_setup() -> impl Strategy<Value = Setup> {
    let scheduler = prop_oneof![Just("freshest"), Just("redundant"), Just("round_robin")];
    let max_rate = prop_oneof![Just(None), Just(UpdateRate::new(5.0))];
    let all = (1..3usize, scheduler, any::<bool>(), max_rate, any_len());
    all.prop_map(|(paths, scheduler, on_change, max_rate, len)| {
        let limits = Limits { max_rate, ..Limits::NONE };
        Setup { paths, scheduler, on_change, limits, len }
    })
}

struct World {
    now: Time,
    source: Source,
    monitor: Monitor<u8>,
    /// In flight to the source and to the monitor, with their paths.
    in_flight: [Vec<(u8, Vec<u8>)>; 2],
    out: Vec<u8>,
    last: Option<Transmit>,
    /// The state that was put last.
    put: (Time, Vec<u8>),
}

impl World {
    fn new(setup: &Setup) -> Self {
        let law = Box::new(Fixed::new(UpdateRate::saturating(20.0)));
        let params = SourceParams {
            max_datagram: MAX_DATAGRAM,
            on_change: setup.on_change,
            limits: setup.limits,
            ..SourceParams::default()
        };
        let source = Source::new(params, Secret::new([7; 16]), law, Time::ZERO).expect("no name");
        assert_eq!(source.max_whole(), MAX_WHOLE);
        let scheduler: SchedulerConfig = setup.scheduler.parse().expect("there is one");
        Self {
            now: Time::ZERO,
            source: source.over(Paths::new(setup.paths, &scheduler).expect("paths")),
            monitor: Monitor::new(MonitorParams::default(), Secret::new([1; 16])),
            in_flight: Default::default(),
            out: Vec::new(),
            last: None,
            put: (Time::ZERO, Vec::new()),
        }
    }

    fn put(&mut self, state: Vec<u8>) {
        self.put = (self.now, state);
        self.source.put(self.now, self.now, &self.put.1).expect("it fits");
    }

    fn step(&mut self, step: &Step) {
        let now = self.now;
        match *step {
            Step::Wait(nanos) => self.now += Span::from_nanos(nanos),
            Step::Timeout => self.source.handle_timeout(now),
            Step::Event => drop(self.source.poll_event()),
            Step::Transmit => self.transmit(),
            Step::Put(byte, len) => self.put(vec![byte; len]),
            Step::PutAgain => self.source.put(now, self.put.0, &self.put.1).expect("it fits"),
            Step::AskAgain => self.source.ask_again(),
            Step::AskAgainAt(nanos) => self.source.ask_again_at(now + Span::from_nanos(nanos)),
            Step::Repeat => self.source.repeat(),
            Step::Transport(path, state) => {
                let states =
                    [TransportState::Down, TransportState::Connecting, TransportState::Ready];
                self.source.handle_transport(now, PathId(path), states[usize::from(state)]);
            }
            Step::Resume => self.source.handle_resume(now),
            Step::Queue(path, packets) => {
                let queue = packets.map(|packets| DeviceQueue { packets, rate: 1_000.0 });
                self.source.handle_queue(PathId(path), queue);
            }
            Step::Departure(path, seq) => {
                self.source.handle_departure(PathId(path), seq, Span::from_millis(1));
            }
            Step::WireBytes(bytes) => self.source.handle_wire_bytes(now, Bytes::new(bytes)),
            Step::Replaced => self.last.iter().for_each(|last| self.source.handle_replaced(last)),
            Step::Network { to_monitor, place, arrives, stays } => {
                self.network(to_monitor, place, arrives, stays);
            }
            Step::MonitorTimeout => self.monitor.handle_timeout(now),
            Step::MonitorEvent => drop(self.monitor.poll_event()),
            Step::MonitorTransmit => self.answer(),
            Step::MonitorRestarts => {
                self.monitor = Monitor::new(MonitorParams::default(), Secret::new([2; 16]));
            }
        }
        assert!(self.monitor.large_memory() < 30_000, "{}", self.monitor.large_memory());
    }

    fn transmit(&mut self) {
        let Some(transmit) = self.source.poll_transmit(self.now, &mut self.out) else { return };
        self.last = Some(transmit);
        self.carry(1, transmit.path.0, transmit.len);
    }

    fn answer(&mut self) {
        if let Some(transmit) = self.monitor.poll_transmit(self.now, &mut self.out) {
            self.carry(0, transmit.peer, transmit.len);
        }
    }

    fn carry(&mut self, direction: usize, path: u8, len: usize) {
        if self.in_flight[direction].len() < IN_FLIGHT {
            self.in_flight[direction].push((path, self.out[..len].to_vec()));
        }
    }

    fn network(&mut self, to_monitor: bool, place: usize, arrives: bool, stays: bool) {
        let in_flight = &mut self.in_flight[usize::from(to_monitor)];
        let Some((path, bytes)) = in_flight.get(place).cloned() else { return };
        if !stays {
            in_flight.swap_remove(place);
        }
        let datagram = Datagram::from(&bytes);
        match (arrives, to_monitor) {
            (false, _) => {}
            // Useless datagrams are counted.
            (true, true) => {
                let _ = self.monitor.handle_datagram(self.now, path, datagram);
            }
            (true, false) => {
                let _ = self.source.handle_datagram(self.now, PathId(path), datagram);
            }
        }
    }

    /// From now on drivers and network are regular; returns whether the state that is put then has
    /// arrived, and the source knows it.
    fn heals(&mut self, setup: &Setup, byte: u8) -> bool {
        let (end, healed) = (self.now + HEALS_WITHIN, vec![byte; setup.len]);
        for path in 0..setup.paths {
            self.source.handle_transport(self.now, PathId(path as u8), TransportState::Ready);
        }
        self.source.ask_again();
        while self.now < end {
            for to_monitor in [true, false] {
                while !self.in_flight[usize::from(to_monitor)].is_empty() {
                    self.network(to_monitor, 0, true, false);
                }
                self.monitor.handle_timeout(self.now);
                while let Some(event) = self.monitor.poll_event() {
                    if let MonitorEvent::Fresh { source, .. } = event {
                        let _: Option<_> = self.monitor.record(source);
                    }
                }
                (0..IN_FLIGHT).for_each(|_| self.answer());
            }
            let mut turns = 0;
            while self.source.poll_timeout().is_some_and(|at| at <= self.now) {
                self.source.handle_timeout(self.now);
                while let Some(event) = self.source.poll_event() {
                    if matches!(event, SourceEvent::StateWanted(_)) {
                        self.put(healed.clone());
                    }
                }
                (0..IN_FLIGHT).for_each(|_| self.transmit());
                turns += 1;
                assert!(turns < MOST_TURNS, "it spins at {:?}", self.now);
            }
            let wakes = [self.source.poll_timeout(), self.monitor.poll_timeout()];
            let next = Time::earliest(wakes).expect("a source always wants something");
            // A network's delay, where something is in flight.
            self.now = next.max(self.now + Span::from_micros(500));
        }
        let arrived =
            self.monitor.records().any(|(_, record)| record.payload() == Some(&healed[..]));
        arrived && self.source.reach() == Reach::Open
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_order_of_calls_neither_panics_nor_leaves_a_session_stuck(
        setup in any_setup(),
        steps in prop::collection::vec(any_step(), 1..400),
    ) {
        let mut world = World::new(&setup);
        for step in &steps {
            world.step(step);
        }
        let heals = world.heals(&setup, b'h');
        prop_assert!(heals, "{:?} {:?}", world.source.reach(), world.source.counters());
    }
    #[test]
    fn an_open_session_bears_any_order_of_calls_too(
        setup in any_setup(),
        steps in prop::collection::vec(small_step(), 1..400),
    ) {
        let mut world = World::new(&setup);
        prop_assert!(world.heals(&setup, b'o'), "it does not open");
        for step in &steps {
            world.step(step);
        }
        let heals = world.heals(&setup, b'h');
        prop_assert!(heals, "{:?} {:?}", world.source.reach(), world.source.counters());
    }
}
