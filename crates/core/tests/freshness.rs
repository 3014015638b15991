//! Maximum ages at the monitor, compared with the true ages of a world in virtual time: paths with
//! unequal delays, outages, queues, processes that are stopped, machines that sleep, clocks that
//! start anywhere, drift, stop or jump, and ends that restart. All of it is drawn from a seed.

use std::collections::BTreeMap;

use freshline_core::path::PathId;
use freshline_core::session::{
    Alarm, Clocked, Monitor, MonitorEvent, MonitorParams, Secret, Source, SourceEvent, SourceKey,
    SourceParams, TopicId, TopicParams,
};
use freshline_core::source::Fixed;
use freshline_core::unit::{Span, Time, UpdateRate};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const NAME: &str = "robot";

/// The maximum age of all topics.
const LIMIT: Span = Span::from_millis(900);

/// How much later than the true moment an alarm may come.
const LATE: Span = Span::from_millis(10);

/// By how much a clock is fast or slow at most.
const PPM: i64 = 240;

/// Maximum time for which an estimate of the offset is used; longer while no acks arrive.
const OFFSET_LASTS: Span = Span::from_secs(40);

/// Faults of a seed.
const FAULTS: usize = 100;

/// The clock of a host.
struct Clock {
    start: u64,
    ppm: i64,
    /// Deviation from the world's time, in ns; negative if the clock stood still.
    extra: i64,
}

impl Clock {
    fn draw(dice: &mut Pcg64) -> Self {
        Self { start: dice.random(), ppm: dice.random_range(-PPM..=PPM), extra: 0 }
    }

    fn read(&self, now: Time) -> Time {
        let drift = (i128::from(now.as_nanos()) * i128::from(self.ppm) / 1_000_000) as i64;
        // Keep away from the end of the clock's range.
        let start = self.start >> 2;
        Time::from_nanos(start.wrapping_add(now.as_nanos()).wrapping_add_signed(drift + self.extra))
    }

    /// About when it shows `local`, and not before `now`.
    fn world(&self, now: Time, local: Time) -> Time {
        now + local.since(self.read(now)) + local.since(self.read(now)) / 1_000
    }
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    /// Nothing passes, in these directions.
    Outage {
        forward: bool,
        reverse: bool,
    },
    /// A queue in the forward path.
    Queue(Span),
    /// Another route.
    Route {
        forward: Span,
        reverse: Span,
    },
    /// SIGSTOP.
    SourceStops,
    MonitorStops,
    /// The machine is suspended; its clock counts the time.
    SourceSleeps,
    /// A virtual machine is paused: its clock stands still.
    SourcePaused,
    /// The source's clock is ahead at once.
    SourceJumps(Span),
    SourceRestarts,
    MonitorRestarts,
}

impl Fault {
    fn draw(dice: &mut Pcg64) -> Self {
        let ms = |dice: &mut Pcg64, max| Span::from_millis(dice.random_range(1..max));
        match dice.random_range(0..12) {
            0 => Self::Outage { forward: true, reverse: true },
            1 => Self::Outage { forward: true, reverse: false },
            2 => Self::Outage { forward: false, reverse: true },
            3 => Self::Queue(ms(dice, 1_500)),
            4 => Self::Route { forward: ms(dice, 10), reverse: ms(dice, 200) },
            5 => Self::Route { forward: ms(dice, 200), reverse: ms(dice, 10) },
            6 => Self::SourceStops,
            7 => Self::MonitorStops,
            8 => Self::SourceSleeps,
            9 => Self::SourcePaused,
            // More than a round trip: a smaller jump looks like another route until an ack arrives.
            10 => Self::SourceJumps(Span::from_millis(dice.random_range(4_000..3_600_000))),
            _ if dice.random_bool(0.5) => Self::SourceRestarts,
            _ => Self::MonitorRestarts,
        }
    }
}

/// The result of a seed.
#[derive(Debug, Default)]
struct Seen {
    faults: usize,
    handed_out: u64,
    too_old: u64,
    stale: u64,
    fresh: u64,
    /// The greatest uncertainty that was stated, and the sum of all.
    uncertainty: (Span, Span),
}

/// Knowledge of the monitor's driver about a topic.
#[derive(Debug, Default, Clone, Copy)]
struct Known {
    /// When the newest state was generated that was handed out, in the world's time.
    newest: Option<Time>,
    is_stale: bool,
}

struct World {
    dice: Pcg64,
    now: Time,
    source: Source,
    source_clock: Clock,
    monitor: Monitor<u8>,
    monitor_clock: Clock,
    /// Until when their processes do not run.
    source_rests: Time,
    monitor_rests: Time,
    /// When a jump, a sleep or a pause of the source ends.
    waking: Option<Fault>,
    /// When pauses of the source ended, and how long they were.
    pauses: Vec<(Time, Span)>,
    path: [Span; 2],
    jitter: Span,
    queue: Span,
    is_down: [bool; 2],
    /// By arrival; whether to the monitor.
    in_flight: BTreeMap<(Time, u64), (bool, Vec<u8>)>,
    sent: u64,
    topics: usize,
    known: [Known; 2],
    seen: Seen,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Pcg64::seed_from_u64(seed);
        let (source_clock, monitor_clock) = (Clock::draw(&mut dice), Clock::draw(&mut dice));
        let now = Time::ZERO + Span::from_secs(1);
        let topics = dice.random_range(1..=2);
        Self {
            source: new_source(&mut dice, topics, source_clock.read(now)),
            monitor: new_monitor(&mut dice),
            now,
            source_clock,
            monitor_clock,
            source_rests: now,
            monitor_rests: now,
            waking: None,
            pauses: Vec::new(),
            path: [Span::from_millis(20), Span::from_millis(30)],
            jitter: Span::from_millis(dice.random_range(1..20)),
            queue: Span::ZERO,
            is_down: [false; 2],
            in_flight: BTreeMap::new(),
            sent: 0,
            topics,
            known: [Known::default(); 2],
            seen: Seen::default(),
            dice,
        }
    }

    fn begin(&mut self, fault: Fault) {
        let is_at_rest = self.now < self.source_rests;
        // A source that has not compared the clocks yet cannot find that its own stood still.
        let fault = match fault {
            Fault::SourceStops | Fault::SourceSleeps | Fault::SourcePaused if is_at_rest => return,
            Fault::SourcePaused if self.source.clock_offset().nanos().is_none() => return,
            fault => fault,
        };
        let rest = self.now + Span::from_millis(self.dice.random_range(10..4_000));
        match fault {
            Fault::Outage { forward, reverse } => self.is_down = [forward, reverse],
            Fault::Queue(queue) => self.queue = queue,
            Fault::Route { forward, reverse } => self.path = [forward, reverse],
            Fault::SourceStops => self.source_rests = rest,
            Fault::MonitorStops => self.monitor_rests = rest,
            Fault::SourceSleeps | Fault::SourcePaused => {
                (self.source_rests, self.waking) = (rest, Some(fault));
                if matches!(fault, Fault::SourcePaused) {
                    let pause = rest.since(self.now);
                    self.source_clock.extra -= pause.as_nanos().cast_signed();
                    self.pauses.push((rest, pause));
                }
            }
            Fault::SourceJumps(by) => self.source_clock.extra += by.as_nanos().cast_signed(),
            Fault::SourceRestarts => {
                self.source_clock = Clock::draw(&mut self.dice);
                let local = self.source_clock.read(self.now);
                self.source = new_source(&mut self.dice, self.topics, local);
            }
            Fault::MonitorRestarts => {
                self.monitor_clock = Clock::draw(&mut self.dice);
                self.monitor = new_monitor(&mut self.dice);
                // Its readers start again, too.
                self.known = [Known::default(); 2];
            }
        }
    }

    fn end_fault(&mut self) {
        (self.is_down, self.queue) = ([false; 2], Span::ZERO);
    }

    fn run(&mut self, duration: Span) {
        let end = self.now + duration;
        while self.now < end {
            self.turn();
            let source = self.source.poll_timeout().map(|at| self.source_clock.world(self.now, at));
            let monitor = self.monitor.poll_timeout();
            let monitor = monitor.map(|at| self.monitor_clock.world(self.now, at));
            let next = Time::earliest([
                source.map(|at| at.max(self.source_rests)),
                monitor.map(|at| at.max(self.monitor_rests)),
                self.in_flight.first_key_value().map(|((at, _), (to_monitor, _))| {
                    (*at).max(if *to_monitor { self.monitor_rests } else { self.source_rests })
                }),
                Some(end),
            ]);
            self.now = next.expect("the end comes").max(self.now + Span::from_micros(50)).min(end);
        }
    }

    fn turn(&mut self) {
        if self.now >= self.monitor_rests {
            for datagram in self.arrived(true) {
                self.tell(&datagram);
            }
            self.monitor.handle_timeout(self.monitor_clock.read(self.now));
            self.attend();
            self.check_topics();
        }
        if self.now >= self.source_rests {
            let local = self.source_clock.read(self.now);
            if let Some(Fault::SourceSleeps) = self.waking.take() {
                self.source.handle_resume(local);
            }
            for datagram in self.arrived(false) {
                let _ = self.source.handle_datagram(local, PathId::FIRST, &datagram);
            }
            self.send(local);
        }
    }

    fn arrived(&mut self, to_monitor: bool) -> Vec<Vec<u8>> {
        let is_here = |((at, _), (to, _)): (&(Time, u64), &(bool, Vec<u8>))| {
            *at <= self.now && *to == to_monitor
        };
        let keys: Vec<_> = self
            .in_flight
            .iter()
            .take_while(|((at, _), _)| *at <= self.now)
            .filter(|(key, value)| is_here((key, value)))
            .map(|(key, _)| *key)
            .collect();
        keys.into_iter().filter_map(|key| self.in_flight.remove(&key)).map(|it| it.1).collect()
    }

    fn launch(&mut self, to_monitor: bool, datagram: Vec<u8>) {
        let direction = usize::from(!to_monitor);
        if self.is_down[direction] || self.dice.random_bool(0.02) {
            return;
        }
        let jitter = self.jitter.mul_f64(self.dice.random());
        let queue = if to_monitor { self.queue } else { Span::ZERO };
        self.sent += 1;
        let at = self.now + self.path[direction] + jitter + queue;
        self.in_flight.insert((at, self.sent), (to_monitor, datagram));
    }

    /// Runs the source; its states contain their generation times, in the world's time.
    fn send(&mut self, local: Time) {
        self.source.handle_timeout(local);
        while let Some(event) = self.source.poll_event() {
            if !matches!(event, SourceEvent::StateWanted(_)) {
                continue;
            }
            let ids: Vec<TopicId> = self.source.topics().map(|(id, _)| id).collect();
            let state = self.now.as_nanos().to_be_bytes();
            if ids.is_empty() {
                self.source.put(local, local, &state).expect("it fits");
            }
            for (number, id) in ids.into_iter().enumerate() {
                // The second one takes several updates, and changes rarely.
                let len = if number == 0 { 8 } else { 4_000 };
                if number == 0 || self.dice.random_bool(0.1) {
                    let mut bytes = state.to_vec();
                    bytes.resize(len, 0);
                    self.source.put_topic(local, id, local, &bytes).expect("it fits");
                }
            }
        }
        let mut out = Vec::new();
        while let Some(transmit) = self.source.poll_transmit(local, &mut out) {
            self.launch(true, out[..transmit.len].to_vec());
        }
    }

    fn tell(&mut self, datagram: &[u8]) {
        let now = self.monitor_clock.read(self.now);
        // It was read from its socket before the process was stopped, perhaps.
        let received_at = now - Span::from_micros(self.dice.random_range(0..50));
        let _ = self.monitor.handle_datagram(Clocked { received_at, now }, 1, datagram);
        self.attend();
        let mut out = Vec::new();
        while let Some(transmit) = self.monitor.poll_transmit(now, &mut out) {
            self.launch(false, out[..transmit.len].to_vec());
        }
    }

    fn attend(&mut self) {
        while let Some(event) = self.monitor.poll_event() {
            match event {
                MonitorEvent::Fresh { source, is_repeat: false, .. } => self.take(source, 0),
                MonitorEvent::Topic { source, topic } => self.take(source, topic),
                MonitorEvent::Freshness(alarm) => self.on_alarm(&alarm),
                _ => {}
            }
        }
    }

    /// A state is handed out: none that is too old, whatever has happened.
    fn take(&mut self, source: SourceKey, topic: u16) {
        let now = self.monitor_clock.read(self.now);
        let latest = self.monitor.latest(now, source, topic).expect("it is handed out");
        let generated_at = generated_at(latest.payload);
        let age = self.now.since(generated_at);
        let stated = latest.age.expect("with a limit, it is known");
        assert!(age <= LIMIT, "at {:?}: a state with an age of {age}: {stated:?}", self.now);
        let slack = Span::from_micros(1_000);
        assert!(stated.max() + slack >= age, "{stated:?}, in truth {age}");
        self.seen.handed_out += 1;
        self.seen.uncertainty.0 = self.seen.uncertainty.0.max(stated.uncertainty);
        self.seen.uncertainty.1 += stated.uncertainty;
        let known = &mut self.known[usize::from(topic)];
        known.newest = Some(generated_at);
        assert!(!known.is_stale, "a topic is first reported fresh again");
    }

    fn on_alarm(&mut self, alarm: &Alarm) {
        assert_eq!((&*alarm.name, alarm.max_age), (NAME, LIMIT));
        let topic = match &*alarm.topic {
            // Its name has not come.
            "" if self.topics > 1 => return,
            topic => usize::from(topic == "second"),
        };
        let known = &mut self.known[topic];
        assert_ne!(known.is_stale, alarm.is_stale, "they alternate");
        known.is_stale = alarm.is_stale;
        match alarm.is_stale {
            true => self.seen.stale += 1,
            false => self.seen.fresh += 1,
        }
        if let (true, Some(newest), Some(age)) = (alarm.is_stale, known.newest, alarm.age) {
            // The estimate may be too high by the uncertainty, and so may be its upper end by twice that.
            // Until the source finds that its clock stood still, it makes states too old.
            let paused = self.pauses.iter().filter(|(at, _)| self.now.since(*at) < OFFSET_LASTS);
            let paused = paused.fold(Span::ZERO, |sum, (_, pause)| sum + *pause);
            let truth = self.now.since(newest) + age.uncertainty * 2 + Span::from_millis(2);
            assert!(
                truth + paused >= LIMIT,
                "at {:?}: {alarm:?}, in truth {}",
                self.now,
                self.now.since(newest)
            );
        }
    }

    /// A state that was handed out, and is too old now, is known to be stale.
    fn check_topics(&self) {
        for known in &self.known {
            let age = known.newest.map(|newest| self.now.since(newest));
            let is_late = age.is_some_and(|age| age > LIMIT + LATE);
            assert!(!is_late || known.is_stale, "at {:?}: no alarm at {age:?}", self.now);
        }
    }

    /// Whether all topics are fresh at some time of the next 15 s.
    fn recovers(&mut self) -> bool {
        (0..150).any(|_| {
            self.run(Span::from_millis(100));
            self.known[..self.topics].iter().all(|known| known.newest.is_some() && !known.is_stale)
        })
    }
}

fn generated_at(state: &[u8]) -> Time {
    Time::from_nanos(u64::from_be_bytes(*state.first_chunk().expect("a time")))
}

fn new_source(dice: &mut Pcg64, topics: usize, local: Time) -> Source {
    let law = Box::new(Fixed::new(UpdateRate::saturating(20.0)));
    let params = SourceParams { name: NAME.into(), ..SourceParams::default() };
    let source = Source::new(params, Secret::new(dice.random()), law, local).expect("a short name");
    let names = ["first", "second"].map(TopicParams::new);
    match topics {
        1 => source,
        _ => source.with_topics(names.to_vec()).expect("they are legal"),
    }
}

fn new_monitor(dice: &mut Pcg64) -> Monitor<u8> {
    let max_age = vec![format!("{NAME}*={LIMIT}").parse().expect("a rule")];
    // Some are forgotten before their deadline.
    let idle = Span::from_millis(dice.random_range(200..20_000));
    let params = MonitorParams { max_age, idle, ..MonitorParams::default() };
    Monitor::new(params, Secret::new(dice.random()))
}

/// Runs one seed; all checks are in the world.
fn run(seed: u64) -> Seen {
    let mut world = World::new(seed);
    assert!(world.recovers(), "it never begins: {:?}", world.known);
    for _ in 0..FAULTS {
        let fault = Fault::draw(&mut world.dice);
        world.begin(fault);
        world.seen.faults += 1;
        let lasts = Span::from_millis(world.dice.random_range(50..3_000));
        world.run(lasts);
        world.end_fault();
        let rest = Span::from_millis(world.dice.random_range(10..3_000));
        world.run(rest);
    }
    assert!(world.recovers(), "it does not recover: {:?}", world.known);
    world.seen.too_old += world.monitor.counters().too_old;
    world.seen
}

#[test]
fn no_state_is_too_old_no_alarm_is_late_and_none_is_false() {
    let mut all = Seen::default();
    for seed in 0..100 {
        let seen = std::panic::catch_unwind(|| run(seed)).unwrap_or_else(|_| panic!("seed {seed}"));
        all.faults += seen.faults;
        all.handed_out += seen.handed_out;
        all.too_old += seen.too_old;
        all.stale += seen.stale;
        all.fresh += seen.fresh;
        all.uncertainty.0 = all.uncertainty.0.max(seen.uncertainty.0);
        all.uncertainty.1 += seen.uncertainty.1;
    }
    let mean = all.uncertainty.1 / all.handed_out;
    println!("{all:?}, mean uncertainty {mean}");
    assert_eq!(all.faults, 10_000);
    assert!(all.stale > 1_000 && all.fresh > 1_000 && all.too_old > 100, "{all:?}");
    assert!(mean < Span::from_millis(120), "the bound is of use: {mean}");
}
