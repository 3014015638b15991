//! A source and a monitor in virtual time, with a pipe between them that does what pipes do.
//!
//! One seed draws everything. Time is the world's; each endpoint reads a clock of its own, which
//! starts anywhere and starts anew with the endpoint.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use freshline_core::session::{
    Clocked, Monitor, MonitorParams, Sample, Secret, Source, SourceEvent, SourceParams, Verdict,
};
use freshline_core::source::RateLaw;
use freshline_core::unit::{Span, Time};
use freshline_core::wire::{Ack, SessionId};
use rand::{Rng, RngExt};
use rand_pcg::Pcg64;

use crate::checks::Checks;

/// Where a datagram comes from or goes to.
pub(crate) type Address = u16;

/// The most sources that the monitor may hold.
pub(crate) const MAX_SOURCES: usize = 4;

/// What the pipe does to datagrams; probabilities from 0 to 1.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    pub(crate) delay: Span,
    /// Each datagram takes up to this much longer.
    pub(crate) jitter: Span,
    pub(crate) loss: f64,
    pub(crate) duplication: f64,
    pub(crate) corruption: f64,
    pub(crate) truncation: f64,
    /// Foreign datagrams to either side for each one of ours.
    pub(crate) foreign: f64,
    pub(crate) partition: bool,
}

/// What happens at a time.
#[derive(Debug)]
pub(crate) enum Event {
    ToMonitor { from: Address, datagram: Vec<u8> },
    ToSource { to: Address, datagram: Vec<u8> },
    Pipe(Faults),
    MonitorDies,
    MonitorStarts,
    SourceRestarts,
    SourceMoves,
}

/// Reads the world's time as one host does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Span);

impl Clock {
    fn random(rng: &mut Pcg64) -> Self {
        Self(Span::from_nanos(rng.random_range(0..1 << 60)))
    }

    pub(crate) fn read(self, now: Time) -> Time {
        now + self.0
    }

    /// The world's time at which this clock shows `local`.
    pub(crate) fn world(self, local: Time) -> Time {
        local - self.0
    }
}

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) source: Source,
    pub(crate) source_clock: Clock,
    /// None while it is down.
    pub(crate) monitor: Option<Monitor<Address>>,
    pub(crate) monitor_clock: Clock,
    pub(crate) checks: Checks,
    /// Whether the transport's checksum keeps damaged datagrams away from the endpoints.
    checksum: bool,
    new_law: Box<dyn Fn() -> Box<dyn RateLaw>>,
    address: Address,
    faults: Faults,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    scheduled: u64,
    rng: Pcg64,
}

// Events at the same time are told apart by their number; the heap never compares further.
impl PartialEq for Event {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

/// The state that a source sends as its update `seq`.
pub(crate) fn payload(session: SessionId, seq: u64) -> Vec<u8> {
    let text = format!("{session} {seq} ");
    text.bytes().cycle().take(8 + (seq % 97) as usize).collect()
}

impl World {
    pub(crate) fn new(
        seed: u64,
        faults: Faults,
        checksum: bool,
        new_law: impl Fn() -> Box<dyn RateLaw> + 'static,
    ) -> Self {
        let mut rng = Pcg64::new(seed.into(), 0);
        let source_clock = Clock::random(&mut rng);
        let source = source(&mut rng, new_law(), source_clock.read(Time::ZERO));
        let mut world = Self {
            now: Time::ZERO,
            checks: Checks::new(checksum, source.session()),
            source,
            source_clock,
            monitor: None,
            monitor_clock: Clock::random(&mut rng),
            checksum,
            new_law: Box::new(new_law),
            address: 1,
            faults,
            events: BinaryHeap::new(),
            scheduled: 0,
            rng,
        };
        world.schedule(Time::ZERO, Event::MonitorStarts);
        world
    }

    pub(crate) fn schedule(&mut self, at: Time, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse((at, self.scheduled, event)));
    }

    /// Lets everything happen until `end`.
    pub(crate) fn run_until(&mut self, end: Time) {
        loop {
            let next = self.next_event();
            self.checks.event(self.now, next);
            if next > end {
                self.now = end;
                return;
            }
            self.now = next;
            self.step();
        }
    }

    fn next_event(&self) -> Time {
        let timer = self.source.next_timer().map(|(at, _)| at);
        let wanted = [timer, self.source.next_update_at()].into_iter().flatten().min();
        let wanted = wanted.expect("an open source always wants something");
        let monitor = self.monitor.as_ref().and_then(Monitor::next_event);
        [
            Some(self.source_clock.world(wanted)),
            monitor.map(|at| self.monitor_clock.world(at)),
            self.events.peek().map(|Reverse((at, ..))| *at),
        ]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(Time::MAX)
        .max(self.now)
    }

    fn step(&mut self) {
        while self.events.peek().is_some_and(|Reverse((at, ..))| *at <= self.now) {
            let Some(Reverse((.., event))) = self.events.pop() else { return };
            self.happen(event);
        }
        if let Some(monitor) = &mut self.monitor {
            monitor.on_tick(self.monitor_clock.read(self.now), |_, _| {});
        }
        let local = self.source_clock.read(self.now);
        if self.source.next_timer().is_some_and(|(at, _)| at <= local) {
            self.source.on_tick(local);
        }
        if self.source.next_update_at().is_some_and(|at| at <= local) {
            self.send_update(local);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::ToMonitor { from, datagram } => self.reach_monitor(from, &datagram),
            Event::ToSource { to, datagram } => self.reach_source(to, &datagram),
            Event::Pipe(faults) => self.faults = faults,
            Event::MonitorDies => self.monitor = None,
            Event::MonitorStarts => {
                let params = MonitorParams { max_sources: MAX_SOURCES, ..MonitorParams::default() };
                self.monitor = Some(Monitor::new(params, Secret::new(self.rng.random())));
                self.monitor_clock = Clock::random(&mut self.rng);
            }
            Event::SourceRestarts => {
                self.source_clock = Clock::random(&mut self.rng);
                let local = self.source_clock.read(self.now);
                self.source = source(&mut self.rng, (self.new_law)(), local);
                self.checks.source_restarted(self.source.session());
            }
            Event::SourceMoves => self.address += 1,
        }
    }

    fn send_update(&mut self, local: Time) {
        let state = payload(self.source.session(), self.source.counters().sent);
        let mut out = [0; 512];
        let sample = Sample { generated_at: local, payload: &state };
        let len = self.source.write_update(local, sample, &mut out).expect("it fits");
        self.checks.sent(self.now, &self.source);
        let from = self.address;
        self.carry(&out[..len], move |datagram| Event::ToMonitor { from, datagram });
    }

    fn reach_monitor(&mut self, from: Address, datagram: &[u8]) {
        let Some(monitor) = &mut self.monitor else { return };
        let mut reply = [0; Ack::LEN];
        let local = self.monitor_clock.read(self.now);
        let at = Clocked { received_at: local, now: local };
        let receipt = monitor.on_datagram(at, from, datagram, &mut reply);
        assert!(receipt.reply <= datagram.len(), "{receipt:?} to {} bytes", datagram.len());
        assert!(monitor.len() <= MAX_SOURCES, "{} records", monitor.len());
        if let Verdict::Fresh { source, payload, opened } = receipt.verdict {
            let record = monitor.record(source).expect("it was just made or refreshed");
            self.checks.fresh(self.now, record, payload, opened);
        }
        let answer = &reply[..receipt.reply];
        if !answer.is_empty() {
            self.carry(answer, move |datagram| Event::ToSource { to: from, datagram });
        }
    }

    fn reach_source(&mut self, to: Address, datagram: &[u8]) {
        if to != self.address {
            return; // its old address is nobody's
        }
        let local = self.source_clock.read(self.now);
        if let Ok(SourceEvent::Opened | SourceEvent::Acked { .. }) =
            self.source.on_datagram(local, datagram)
        {
            self.checks.acked(self.now);
        }
    }

    /// Puts a datagram into the pipe.
    fn carry(&mut self, datagram: &[u8], event: impl Fn(Vec<u8>) -> Event) {
        let faults = self.faults;
        if self.rng.random_bool(faults.foreign) {
            self.send_foreign();
        }
        if faults.partition || self.rng.random_bool(faults.loss) {
            return;
        }
        let copies = 1 + usize::from(self.rng.random_bool(faults.duplication));
        for _ in 0..copies {
            let mut datagram = datagram.to_vec();
            if self.rng.random_bool(faults.truncation) {
                datagram.truncate(self.rng.random_range(0..datagram.len()));
            }
            if self.rng.random_bool(faults.corruption) {
                if self.checksum {
                    continue;
                }
                for _ in 0..self.rng.random_range(1..4) {
                    if let Some(bit) = (datagram.len() * 8).checked_sub(1) {
                        let bit = self.rng.random_range(0..=bit);
                        datagram[bit / 8] ^= 1 << (bit % 8);
                    }
                }
            }
            let jitter = self.rng.random_range(0..=faults.jitter.as_nanos());
            let at = self.now + faults.delay + Span::from_nanos(jitter);
            self.schedule(at, event(datagram));
        }
    }

    /// Something from a stranger, often made to look like ours.
    fn send_foreign(&mut self) {
        let mut datagram = vec![0; self.rng.random_range(0..150)];
        self.rng.fill_bytes(&mut datagram);
        for (byte, ours) in datagram.iter_mut().zip(b"FL\x01") {
            if self.rng.random_bool(0.9) {
                *byte = *ours;
            }
        }
        if let Some(kind) = datagram.get_mut(3) {
            *kind = self.rng.random_range(0..6);
        }
        let event = if self.rng.random() {
            Event::ToMonitor { from: self.rng.random_range(1000..1100), datagram }
        } else {
            Event::ToSource { to: self.address, datagram }
        };
        self.schedule(self.now, event);
    }
}

fn source(rng: &mut Pcg64, law: Box<dyn RateLaw>, now: Time) -> Source {
    let params = SourceParams { name: "robot".into(), ..SourceParams::default() };
    Source::new(params, SessionId(rng.random()), law, now).expect("name and token are short")
}
