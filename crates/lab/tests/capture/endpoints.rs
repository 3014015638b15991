//! Captures of whole endpoints in virtual time: the analysis finds the same values as the endpoints
//! report.

use std::collections::BTreeMap;

use freshline_core::age::AgeMeter;
use freshline_core::path::PathId;
use freshline_core::session::{
    Monitor, MonitorEvent, MonitorParams, Secret, Source, SourceEvent, SourceParams,
};
use freshline_core::source::Fixed;
use freshline_core::unit::{Span, Time, UpdateRate};
use freshline_core::wire::Message;
use freshline_lab::capture::{LinkType, SessionReport};
use rand::RngExt;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::SeedableRng;

use crate::world::{Captured, cut, pcap, pcapng, report, udp};

const SOURCE: &str = "192.0.2.1:5000";

/// The monitor's addresses, before and after it moves.
const MONITORS: [&str; 2] = ["192.0.2.2:3774", "192.0.2.3:3774"];

/// When the monitor is replaced, if it is.
const REPLACED_AT: Time = Time::from_nanos(25_000_000_000);

/// The course of a session.
#[derive(Debug)]
struct Plan {
    length: Span,
    rate: f64,
    /// To the monitor and back.
    delays: [Span; 2],
    /// The share of updates that is lost, and of acks.
    loss: [f64; 2],
    /// A new monitor, with another clock, takes over: at the same address or at another one.
    replaced: Option<&'static str>,
}

impl Plan {
    fn draw(rng: &mut Pcg64) -> Self {
        let mut delay = || Span::from_millis(rng.random_range(1..80));
        let delays = [delay(), delay()];
        let mut loss = || if rng.random_bool(0.5) { 0.0 } else { rng.random_range(0.0..0.2) };
        let loss = [loss(), loss()];
        let replaced = [None, Some(MONITORS[0]), Some(MONITORS[1])][rng.random_range(0..3)];
        let length = Span::from_secs(60);
        Self { length, rate: rng.random_range(5.0..100.0), delays, loss, replaced }
    }
}

/// A run, and the reports of its endpoints.
struct Run {
    packets: Vec<Captured>,
    sent: u64,
    /// Acks that came, and the mean ages in ms by the endpoints' own reports: at the source up to the
    /// last ack that was fresh, at the monitors up to the last update whose ack came.
    acks: u64,
    at_source_ms: f64,
    at_monitor_ms: f64,
}

enum Event {
    ToMonitor(&'static str, Vec<u8>),
    ToSource(Vec<u8>),
}

fn micros(time: Time) -> u64 {
    time.as_nanos() / 1_000
}

/// A session's two ends and the datagrams between them.
struct World<'a> {
    plan: &'a Plan,
    rng: &'a mut Pcg64,
    now: Time,
    source: Source,
    monitor: Monitor<u8>,
    address: &'static str,
    /// By how much the monitor's clock is ahead.
    ahead: Span,
    events: BTreeMap<(Time, u64), Event>,
    number: u64,
    packets: Vec<Captured>,
    acks: u64,
    /// The ages that the monitors know, over the world's time.
    at_monitor: AgeMeter,
    arrived: BTreeMap<u64, (Time, Time)>,
    fresh_ack_at: Time,
    fresh_arrival_at: Time,
}

fn new_monitor(key: u8) -> Monitor<u8> {
    Monitor::new(MonitorParams::default(), Secret::new([key; 16]))
}

/// Runs a session; the capture is made at the source.
fn run(plan: &Plan, rng: &mut Pcg64) -> Run {
    let mut world = World::new(plan, rng);
    let mut is_replaced = plan.replaced.is_none();
    while world.now < Time::ZERO + plan.length {
        let now = world.now;
        if !is_replaced && now >= REPLACED_AT {
            is_replaced = true;
            (world.monitor, world.ahead) = (new_monitor(2), Span::from_secs(70));
            world.address = plan.replaced.unwrap_or(world.address);
        }
        while let Some(entry) = world.events.first_entry().filter(|entry| entry.key().0 <= now) {
            match entry.remove() {
                Event::ToMonitor(to, datagram) if to == world.address => {
                    world.on_monitor(&datagram);
                }
                // A host that has been replaced does not answer.
                Event::ToMonitor(..) => {}
                Event::ToSource(datagram) => world.on_source(&datagram),
            }
        }
        world.source.handle_timeout(now);
        world.send();
        let first = world.events.first_key_value().map(|((at, _), _)| *at);
        let next = Time::earliest([first, world.source.poll_timeout()]);
        world.now = next.expect("a source always waits for something").max(now);
    }
    world.end()
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan, rng: &'a mut Pcg64) -> Self {
        let law = Box::new(Fixed::new(UpdateRate::saturating(plan.rate)));
        let params = SourceParams { name: "robot-7".into(), ..SourceParams::default() };
        let source = Source::new(params, Secret::new([0xAB; 16]), law, Time::ZERO);
        Self {
            plan,
            rng,
            now: Time::ZERO,
            source: source.expect("a short name"),
            monitor: new_monitor(1),
            address: MONITORS[0],
            ahead: Span::from_secs(900),
            events: BTreeMap::new(),
            number: 0,
            packets: Vec::new(),
            acks: 0,
            at_monitor: AgeMeter::new(),
            arrived: BTreeMap::new(),
            fresh_ack_at: Time::ZERO,
            fresh_arrival_at: Time::ZERO,
        }
    }

    fn on_monitor(&mut self, datagram: &[u8]) {
        let local = self.now + self.ahead;
        let _ = self.monitor.handle_datagram(local, 0, datagram);
        let mut reply = Vec::new();
        let len = self.monitor.poll_transmit(local, &mut reply).map_or(0, |sent| sent.len);
        if let Some(MonitorEvent::Fresh { source, .. }) = self.monitor.poll_event() {
            let record = self.monitor.record(source).expect("it is open");
            if let Some(age) = record.state_age(local) {
                self.arrived.insert(record.newest_seq, (self.now, self.now - age));
            }
        }
        if len > 0 && !self.rng.random_bool(self.plan.loss[1]) {
            self.number += 1;
            let reply = Event::ToSource(reply[..len].to_vec());
            self.events.insert((self.now + self.plan.delays[1], self.number), reply);
        }
    }

    fn on_source(&mut self, datagram: &[u8]) {
        let now = self.now;
        self.packets.push(udp(micros(now), self.address, SOURCE, datagram));
        if let Ok(Message::Ack(ack)) = Message::parse(datagram) {
            self.acks += 1;
            // A capture shows only updates whose acks arrived.
            if let Some((received_at, generated_at)) = self.arrived.get(&ack.seq) {
                self.at_monitor.on_update(*received_at, *generated_at);
                self.fresh_arrival_at = self.fresh_arrival_at.max(*received_at);
            }
        }
        let before = self.source.counters().acked;
        let _ = self.source.handle_datagram(now, PathId::FIRST, datagram);
        if self.source.counters().acked > before {
            self.fresh_ack_at = now;
        }
    }

    fn send(&mut self) {
        let now = self.now;
        while let Some(event) = self.source.poll_event() {
            if matches!(event, SourceEvent::StateWanted(_)) {
                self.source.put(now, now, &[7; 100]).expect("it fits");
            }
        }
        let mut out = Vec::new();
        while let Some(transmit) = self.source.poll_transmit(now, &mut out) {
            let update = &out[..transmit.len];
            self.packets.push(udp(micros(now), SOURCE, self.address, update));
            if !self.rng.random_bool(self.plan.loss[0]) {
                self.number += 1;
                let update = Event::ToMonitor(self.address, update.to_vec());
                self.events.insert((now + self.plan.delays[0], self.number), update);
            }
        }
    }

    fn end(self) -> Run {
        let ms = |meter: &AgeMeter, until| meter.summary(until).expect("ages").mean.as_millis_f64();
        Run {
            at_source_ms: ms(self.source.age(), self.fresh_ack_at),
            at_monitor_ms: ms(&self.at_monitor, self.fresh_arrival_at),
            packets: self.packets,
            sent: self.source.counters().sent,
            acks: self.acks,
        }
    }
}

/// Messages of one length that follow each other directly in one direction, as one packet, at the
/// time of the first: as GSO and GRO do.
fn trains(packets: &[Captured], at_once: usize) -> Vec<Captured> {
    let mut trains: Vec<(Captured, usize, usize)> = Vec::new();
    for packet in packets {
        let len = packet.payload().len();
        if let Some((train, each, count)) = trains.last_mut()
            && (*each, &train.bytes[12..24]) == (len, &packet.bytes[12..24])
            && *count < at_once
            && packet.at.since(train.at) < Span::from_micros(200)
        {
            let back = train.bytes[12..16] != [192, 0, 2, 1];
            let payload = [train.payload(), packet.payload()].concat();
            let host = |at: usize| format!("192.0.2.{}", train.bytes[at + 3]);
            let (client, server) = (
                format!("{}:5000", host(if back { 16 } else { 12 })),
                format!("{}:3774", host(if back { 12 } else { 16 })),
            );
            let (from, to) = if back { (server, client) } else { (client, server) };
            let at = train.at;
            *train = udp(0, &from, &to, &payload);
            train.at = at;
            *count += 1;
        } else {
            trains.push((packet.clone(), len, 1));
        }
    }
    trains.into_iter().map(|(train, ..)| train).collect()
}

fn is_within(found: f64, expected: f64, share: f64) -> bool {
    (found - expected).abs() <= share * expected
}

/// The capture's report equals the endpoints' reports.
fn assert_agrees(session: &SessionReport, run: &Run, what: &str) {
    assert_eq!((session.updates, session.copies), (run.sent, 0), "{what}: {session:?}");
    assert_eq!(session.acks + session.late_acks, run.acks, "{what}: {session:?}");
    let at_source = session.age_at_source.expect("an age").mean_ms;
    let expected = run.at_source_ms;
    assert!(is_within(at_source, expected, 0.01), "{what}: at source {at_source}, {expected}");
    let at_monitor = session.age_at_monitor.expect("an age").mean_ms;
    let expected = run.at_monitor_ms;
    assert!(is_within(at_monitor, expected, 0.01), "{what}: at monitor {at_monitor}, {expected}");
}

#[test]
fn a_capture_tells_what_the_endpoints_report() {
    for seed in 0..12 {
        let rng = &mut Pcg64::seed_from_u64(seed);
        let plan = Plan::draw(rng);
        println!("seed {seed}: {plan:?}");
        let run = run(&plan, rng);
        let only = |file: &[u8]| {
            let mut report = report(file);
            assert_eq!(report.sessions.len(), 1, "{report:?}");
            (report.packets, report.sessions.remove(0))
        };
        let (packets, session) = only(&pcap(LinkType::Raw, &run.packets));
        assert_eq!((packets.session, packets.out_of_order), (run.packets.len() as u64, 0));
        assert_agrees(&session, &run, "as it is");

        // Blocks of a pcapng file, each backwards.
        let mut mixed = run.packets.clone();
        mixed.chunks_mut(50).for_each(<[_]>::reverse);
        let (packets, session) = only(&pcapng(LinkType::Raw, &mixed));
        assert_eq!(packets.out_of_order, 0);
        assert_agrees(&session, &run, "mixed");

        // Without the packets of the opening, nothing else is missing.
        let (opening, rest) = run.packets.split_at(6);
        let updates = opening.iter().filter(|packet| packet.payload()[3] == 1).count() as u64;
        let (_, session) = only(&pcap(LinkType::Raw, rest));
        assert_eq!(session.updates, run.sent - updates, "{session:?}");
        let at_source = session.age_at_source.expect("an age").mean_ms;
        assert!(is_within(at_source, run.at_source_ms, 0.02), "{at_source} {}", run.at_source_ms);

        // Packets that were captured too short are counted.
        let (packets, _) = only(&pcap(LinkType::Raw, &cut(&run.packets, 28 + 80)));
        assert_eq!(packets.session + packets.truncated, run.packets.len() as u64);

        // Damaged numbers are strays, and change no age by more than they leave out.
        let mut damaged = run.packets.clone();
        let mut count = 0;
        for packet in damaged.iter_mut().skip(20).step_by(101) {
            if packet.payload()[3] == 1 {
                packet.bytes[28 + 16] ^= 0x40;
                count += 1;
            }
        }
        let (_, session) = only(&pcap(LinkType::Raw, &damaged));
        assert_eq!((session.strays, session.updates), (count, run.sent - count), "{session:?}");
        let at_source = session.age_at_source.expect("an age").mean_ms;
        assert!(is_within(at_source, run.at_source_ms, 0.02), "{at_source} {}", run.at_source_ms);
    }
}

#[test]
fn trains_of_several_messages_tell_what_single_ones_do() {
    let rng = &mut Pcg64::seed_from_u64(1);
    let delays = [Span::from_millis(20), Span::from_millis(30)];
    let plan = Plan {
        length: Span::from_secs(28),
        rate: 6_000.0,
        delays,
        loss: [0.05, 0.05],
        replaced: Some(MONITORS[0]),
    };
    let run = run(&plan, rng);
    let single = report(&pcap(LinkType::Raw, &run.packets));
    let trains = trains(&run.packets, 40);
    let trained = report(&pcap(LinkType::Raw, &trains));
    assert!(trained.packets.read < single.packets.read, "{:?}", trained.packets);
    assert_eq!(trained.packets.unread_messages, 0);
    let [single, trained] = [&single, &trained].map(|report| &report.sessions[0]);
    let counts = |session: &SessionReport| (session.updates, session.acks + session.late_acks);
    assert_eq!(counts(trained), counts(single));
    let [one, other] = [single, trained].map(|session| session.age_at_source.unwrap().mean_ms);
    assert!(is_within(other, one, 0.01), "{other} {one}");
}
