//! Tests that the ages that a monitor reports are true, for every sampler. Source and monitor run
//! in virtual time, over paths that lose packets. The monitor is killed and restarted, and states
//! come more often and more rarely than the monitor forgets silent sources. Each state is a stamp
//! of the time at which it was sampled.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender as Channel};

use freshline_core::path::PathId;
use freshline_core::session::{
    self, Clocked, MonitorParams, Origin, Secret, SourceEvent, SourceKey, SourceParams,
};
use freshline_core::source::Fixed;
use freshline_core::unit::{Span, Time, UpdateRate};
use freshline_core::wire::Ack;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::books::Books;
use super::sources::Sources;
use super::{MonitorConfig, Record, Sender, Watch};
use crate::clock::Clock;
use crate::credentials::{Right, Rules};
use crate::source::feed::Feed;
use crate::source::sampler::{self, Latest, Need, Run, Sampler, Take};
use crate::waker::Waker;

const SEEDS: Range<u64> = 0..64;

const LENGTH: Span = Span::from_secs(150);

/// The reading of a process's clock at its start.
const YEAR: Span = Span::from_secs(365 * 86_400);

/// How far the rates of the clocks may differ, and the maximum age of an estimate of their offset.
const PPM: f64 = 1e-4;
const OFFSET_LASTS: Span = Span::from_secs(40);

/// A command's output that was taken later than this is dropped.
const OLD: Span = Span::from_millis(100);

/// The maximum delay between openings, with its random part.
const MAX_WAIT: Span = Span::from_millis(2_500);

/// The parameters of a run, drawn from a seed.
#[derive(Debug)]
struct Plan {
    sampler: Kind,
    /// Updates per second.
    rate: f64,
    /// Base delays to the monitor and back, and the maximum jitter in either direction.
    delays: [Span; 2],
    jitter: Span,
    /// The fraction of packets that is lost in either direction.
    loss: f64,
    /// How much faster the monitor's clock is.
    ppm: f64,
    idle: Span,
    keep_alive: Span,
    /// When the monitor is killed and a new one starts, if that happens.
    outage: Option<[Time; 2]>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// A state is available whenever it is asked for.
    AtOnce,
    File,
    /// Lines arrive at about this interval, with pauses.
    Lines(Span),
    /// The command takes this long.
    Command(Span),
}

struct Dice(Pcg64);

impl Dice {
    /// From 0 to 1.
    fn share(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn is(&mut self, probability: f64) -> bool {
        self.share() < probability
    }

    /// Evenly spread over the logarithms.
    fn between(&mut self, least: f64, most: f64) -> f64 {
        least * (most / least).powf(self.share())
    }

    fn secs(&mut self, least: f64, most: f64) -> Span {
        span(self.between(least, most))
    }
}

fn span(secs: f64) -> Span {
    Span::from_nanos((secs * 1e9) as u64)
}

impl Plan {
    fn draw(dice: &mut Dice, seed: u64) -> Self {
        let killed_at = Time::ZERO + dice.secs(10.0, 100.0);
        let outage = [killed_at, killed_at + dice.secs(0.01, 30.0)];
        let delays = [dice.secs(0.001, 0.3), dice.secs(0.001, 0.3)];
        Self {
            sampler: match seed % 4 {
                0 => Kind::AtOnce,
                1 => Kind::File,
                2 => Kind::Lines(dice.secs(0.005, 5.0)),
                _ => Kind::Command(dice.secs(0.002, 0.5)),
            },
            rate: dice.between(0.1, 100.0),
            delays,
            jitter: (delays[0] + delays[1]).mul_f64(if dice.is(0.5) { 0.0 } else { 0.2 }),
            loss: if dice.is(0.3) { 0.0 } else { 0.3 * dice.share() },
            ppm: PPM * (2.0 * dice.share() - 1.0),
            idle: dice.secs(2.0, 60.0),
            keep_alive: dice.secs(1.0, 20.0),
            outage: dice.is(0.6).then_some(outage),
        }
    }

    fn rtt(&self) -> Span {
        self.delays[0] + self.delays[1] + self.jitter * 2
    }

    /// The maximum interval of updates while a session is open.
    fn period(&self) -> Span {
        span(1.0 / self.rate).min(self.keep_alive)
    }

    /// The time after which, without loss, the monitor is found and its session opened: an outage
    /// is noticed, and openings leave at their maximum interval.
    fn settles_in(&self) -> Span {
        let notices = self.period().max(self.rtt()) * 8;
        notices.max(Span::from_secs(1)) + self.period() + MAX_WAIT * 2 + self.rtt() * 4
    }

    /// The time after which it then has each state. A forgotten session is re-opened.
    fn arrives_in(&self) -> Span {
        span(1.0 / self.rate) + self.rtt() * 3 + self.taking() * 2 + Span::from_millis(1)
    }

    /// How long the sampler may take for a state, and how old that may be when it is sent.
    fn taking(&self) -> Span {
        if let Kind::Command(takes) = self.sampler { takes + OLD } else { Span::ZERO }
    }
}

enum Event {
    ToMonitor(Vec<u8>),
    ToSource(Vec<u8>),
    Line,
    CommandEnds { began_at: Time },
    MonitorDies,
    MonitorStarts,
    Look,
}

/// The test's part of a sampler's work.
enum Hand {
    AtOnce,
    File(tempfile::NamedTempFile),
    Lines(Box<dyn Fn(Time, Vec<u8>) -> bool>),
    Command(Receiver<()>, Channel<Run>),
}

/// The stamp is the state.
struct Stamps;

impl Sampler for Stamps {
    fn start(&mut self, _clock: Clock, _waker: Arc<Waker>) -> std::io::Result<()> {
        Ok(())
    }

    fn take(&mut self, now: Time, _need: Need, into: &mut Vec<u8>) -> Take {
        into.extend_from_slice(&stamp(now - SOURCE_AHEAD));
        Take::Sample { generated_at: now }
    }
}

/// How far the source's clock is ahead of the world's.
const SOURCE_AHEAD: Span = Span::from_secs(400 * 86_400);

fn stamp(at: Time) -> Vec<u8> {
    at.as_nanos().to_be_bytes().to_vec()
}

fn sampled_at(state: &[u8]) -> Time {
    Time::from_nanos(u64::from_be_bytes(state.try_into().expect("a stamp")))
}

struct World {
    plan: Plan,
    dice: Dice,
    now: Time,
    source: session::Source,
    feed: Feed,
    hand: Hand,
    monitor: Option<Sources>,
    /// When the monitor's process started.
    monitor_since: Time,
    events: BTreeMap<(Time, u64), Event>,
    number: u64,
    /// Since when the monitor knows the source and not the age of its state, and how many packets have
    /// been lost since then.
    unknown: Option<(Time, u32)>,
    /// When lines arrived.
    lines: Vec<Time>,
    /// States that were passed on as new ones.
    fresh: u64,
    /// Times at which an age was known.
    known: u64,
}

/// Keeps the states that a monitor passes on as new ones.
#[derive(Default)]
struct PassedOn(Vec<Vec<u8>>);

impl Watch for PassedOn {
    fn fresh(&mut self, _now: Time, _source: SourceKey, record: &Record) {
        self.0.push(record.payload().unwrap_or_default().to_vec());
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(Pcg64::seed_from_u64(seed));
        let plan = Plan::draw(&mut dice, seed);
        let (hand, sampler): (_, Box<dyn Sampler>) = match plan.sampler {
            Kind::AtOnce => (Hand::AtOnce, Box::new(Stamps)),
            Kind::File => {
                let file = tempfile::NamedTempFile::new().expect("a file");
                let sampler = sampler::File::new(file.path().to_owned(), 1000);
                (Hand::File(file), Box::new(sampler))
            }
            Kind::Lines(_) => {
                let (sampler, put) = Latest::by_hand();
                (Hand::Lines(Box::new(put)), Box::new(sampler))
            }
            Kind::Command(_) => {
                let (sampler, asked, answer) = sampler::Command::by_hand();
                (Hand::Command(asked, answer), Box::new(sampler))
            }
        };
        let params = SourceParams {
            name: "robot".into(),
            keep_alive: plan.keep_alive,
            ..SourceParams::default()
        };
        let law = Box::new(Fixed::new(UpdateRate::saturating(plan.rate)));
        let mut key = [0; 16];
        dice.0.fill_bytes(&mut key);
        let source = session::Source::new(params, Secret::new(key), law, Time::ZERO + SOURCE_AHEAD);
        let source = source.expect("a short name");
        let mut world = Self {
            feed: Feed::new(vec![sampler], &source),
            source,
            hand,
            monitor: None,
            monitor_since: Time::ZERO,
            events: BTreeMap::new(),
            number: 0,
            now: Time::ZERO,
            unknown: None,
            lines: Vec::new(),
            fresh: 0,
            known: 0,
            dice,
            plan,
        };
        world.start_monitor();
        world.schedule(Time::ZERO, Event::Look);
        if matches!(world.plan.sampler, Kind::Lines(_)) {
            world.schedule(Time::ZERO, Event::Line);
        }
        if let Some([dies, starts]) = world.plan.outage {
            world.schedule(dies, Event::MonitorDies);
            world.schedule(starts, Event::MonitorStarts);
        }
        world
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.number += 1;
        self.events.insert((at, self.number), event);
    }

    fn start_monitor(&mut self) {
        let params = MonitorParams { idle: self.plan.idle, ..MonitorParams::default() };
        let secret = Secret::new(u128::from(self.dice.0.next_u64()).to_be_bytes());
        self.monitor = Some(Sources {
            out: Vec::new(),
            sessions: session::Listener::new(session::Monitor::new(params, secret)),
            rules: Rules::none(Right::Publish),
            books: Books::new(1, MonitorConfig::FORGET),
            returning: None,
        });
        self.monitor_since = self.now;
    }

    fn source_clock(&self) -> Time {
        self.now + SOURCE_AHEAD
    }

    fn monitor_clock(&self) -> Time {
        let runs_for = self.now.since(self.monitor_since);
        Time::ZERO + YEAR + runs_for.mul_f64(1.0 + self.plan.ppm)
    }

    /// When the monitor's timer is due; a little later than that, as rates are rounded.
    fn monitor_timer(&self) -> Option<Time> {
        let local = self.monitor.as_ref()?.poll_timeout()?;
        let runs_for = local.since(Time::ZERO + YEAR).mul_f64(1.0 / (1.0 + self.plan.ppm));
        Some(self.monitor_since + runs_for + Span::from_micros(1))
    }

    fn run(&mut self) {
        let end = Time::ZERO + LENGTH;
        loop {
            let source = self.source.poll_timeout();
            let source = source.map(|at| at.max(self.source_clock()) - SOURCE_AHEAD);
            let first = self.events.first_key_value().map(|((at, _), _)| *at);
            let next = Time::earliest([source, first, self.monitor_timer()]);
            self.now = next.expect("it goes on").max(self.now);
            if self.now >= end {
                return;
            }
            while let Some(entry) = self.events.first_entry().filter(|e| e.key().0 <= self.now) {
                let event = entry.remove();
                self.happen(event);
            }
            let local = self.monitor_clock();
            if let Some(monitor) = &mut self.monitor {
                monitor.handle_timeout(local, &mut ());
            }
            self.send();
            self.hear_of_the_command();
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::ToMonitor(datagram) => self.reach_monitor(&datagram),
            Event::ToSource(datagram) => {
                let _ = self.source.handle_datagram(self.source_clock(), PathId::FIRST, &datagram);
            }
            Event::Line => self.write_line(),
            Event::CommandEnds { began_at } => {
                let Hand::Command(_, answer) = &self.hand else { return };
                let output = Ok(stamp(began_at));
                let (generated_at, ended_at) = (began_at + SOURCE_AHEAD, self.source_clock());
                answer.send(Run { generated_at, ended_at, output }).expect("it is running");
                self.feed.on_woken(self.source_clock(), &mut self.source);
            }
            Event::MonitorDies => (self.monitor, self.unknown) = (None, None),
            Event::MonitorStarts => self.start_monitor(),
            Event::Look => {
                self.look();
                self.schedule(self.now + Span::from_millis(50), Event::Look);
            }
        }
    }

    /// A line, and when the next one comes: now and then after a pause that may be longer than the
    /// monitor remembers silent sources.
    fn write_line(&mut self) {
        let (Hand::Lines(put), Kind::Lines(interval)) = (&self.hand, self.plan.sampler) else {
            return;
        };
        if put(self.source_clock(), stamp(self.now)) {
            self.feed.on_woken(self.source_clock(), &mut self.source);
        }
        self.lines.push(self.now);
        let is_pause = self.dice.is(interval.as_secs_f64() / 20.0);
        let next = if is_pause { self.plan.idle * 2 } else { interval * 2 };
        let next = next.mul_f64(self.dice.share());
        self.schedule(self.now + next, Event::Line);
    }

    fn hear_of_the_command(&mut self) {
        let (Hand::Command(asked, _), Kind::Command(takes)) = (&self.hand, self.plan.sampler)
        else {
            return;
        };
        if asked.try_recv().is_ok() {
            let began_at = self.now;
            let takes = takes.mul_f64(self.dice.share());
            self.schedule(began_at + takes, Event::CommandEnds { began_at });
        }
    }

    fn send(&mut self) {
        let (now, mut out) = (self.source_clock(), Vec::new());
        self.source.handle_timeout(now);
        while let Some(event) = self.source.poll_event() {
            let SourceEvent::StateWanted(need) = event else { continue };
            if let Hand::File(file) = &self.hand {
                file.as_file().write_all_at(&stamp(self.now), 0).expect("written");
            }
            self.feed.answer(now, need, &mut self.source).expect("it never fails");
        }
        while let Some(transmit) = self.source.poll_transmit(now, &mut out) {
            self.carry(0, out[..transmit.len].to_vec());
        }
    }

    fn carry(&mut self, direction: usize, datagram: Vec<u8>) {
        if self.dice.is(self.plan.loss) {
            self.unknown = self.unknown.map(|(since, lost)| (since, lost + 1));
            return;
        }
        let delay = self.plan.delays[direction] + self.plan.jitter.mul_f64(self.dice.share());
        let event = if direction == 0 { Event::ToMonitor } else { Event::ToSource };
        self.schedule(self.now + delay, event(datagram));
    }

    fn reach_monitor(&mut self, datagram: &[u8]) {
        let now = self.monitor_clock();
        let Some(monitor) = &mut self.monitor else { return };
        let sender = Sender {
            address: "127.0.0.1:1".parse().expect("valid"),
            local: None,
            connection: None,
            origin: Origin::default(),
        };
        let (mut reply, mut passed_on) = ([0; Ack::LEN_OF_PARTS], PassedOn::default());
        let at = Clocked { received_at: now, now };
        let received = (None, datagram);
        let len =
            monitor.handle_datagram(at, (sender, &[]), received, &mut reply, &mut passed_on).len;
        for state in passed_on.0 {
            self.fresh += 1;
            let age = self.now.since(sampled_at(&state));
            let most = self.plan.delays[0] + self.plan.jitter + self.plan.taking();
            let repeats = matches!(self.plan.sampler, Kind::Lines(_));
            assert!(repeats || age <= most, "{:?}: a state of {age} is passed on as new", self.now);
        }
        self.look();
        if len > 0 {
            self.carry(1, reply[..len].to_vec());
        }
    }

    /// Compares the monitor's report with the truth.
    fn look(&mut self) {
        let now = self.monitor_clock();
        let Some(monitor) = &self.monitor else { return };
        let statuses = monitor.statuses(now, 9, |_| 0);
        assert!(statuses.len() <= 1, "{:?}: one source, {statuses:?}", self.now);
        let held =
            statuses.first().map(|status| sampled_at(status.payload.as_deref().expect("a state")));
        let is_settled = self.now.since(self.monitor_since) >= self.plan.settles_in();
        if self.plan.loss == 0.0 && is_settled {
            let expected = self.expected();
            assert!(held >= expected, "{:?}: holds {held:?}, not {expected:?}", self.now);
        }
        let (Some(status), Some(held)) = (statuses.first(), held) else { return };
        let age = self.now.since(held);
        let Some(reported) = status.age_ms else {
            let (since, lost) = *self.unknown.get_or_insert((self.now, 0));
            // Each lost packet costs a delay that doubles.
            let waiting = MAX_WAIT * u64::from(lost) + Span::from_millis(200 << lost.min(20));
            let waiting =
                if lost == 0 { Span::ZERO } else { waiting + self.plan.rtt() * (2 << lost) };
            let most = self.plan.rtt() * 2 + self.plan.taking() * (u64::from(lost) + 1) + waiting;
            let unknown_for = self.now.since(since);
            assert!(unknown_for <= most, "{:?}: no age for {unknown_for}, {lost} lost", self.now);
            return;
        };
        self.unknown = None;
        self.known += 1;
        let error = (reported / 1e3 - age.as_secs_f64()).abs();
        let drift = (age + OFFSET_LASTS).mul_f64(PPM);
        let most = (self.plan.rtt() / 2 + drift).as_secs_f64() + 1e-6;
        assert!(error <= most, "{:?}: {reported} ms reported, {age} in truth", self.now);
    }

    /// When the newest state was sampled that must have arrived by now if none was lost.
    fn expected(&self) -> Option<Time> {
        let by = Time::ZERO + self.now.since(Time::ZERO + self.plan.arrives_in());
        if !matches!(self.plan.sampler, Kind::Lines(_)) {
            return Some(by);
        }
        let earlier = self.lines.partition_point(|line| *line <= by);
        earlier.checked_sub(1).map(|newest| self.lines[newest])
    }
}

#[test]
fn the_reported_age_is_true_for_every_sampler() {
    for seed in SEEDS {
        let mut world = World::new(seed);
        println!("seed {seed}: {:?}", world.plan);
        world.run();
        let is_heard = world.fresh > 0 && world.known > 100;
        assert!(is_heard, "{} states, known {} times", world.fresh, world.known);
    }
}
