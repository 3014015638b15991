//! The guard above the downlink's laws, over a queue whose rate changes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use freshline_core::unit::{BitRate, Bytes, Span, Time};
use freshline_core::wlan::{
    Account, Delivered, Delivery, DownlinkLaw, Fixed, Guarded, Linear, LinearParams, Report,
    StationId,
};
use proptest::prelude::*;

const DELTA: Span = Span::from_millis(500);
/// One-way delay.
const DELAY: Span = Span::from_millis(10);

fn at(seconds: f64) -> Time {
    Time::ZERO + Span::from_secs_f64(seconds)
}

fn guarded(mbps: u64) -> Guarded {
    Guarded::new(Box::new(Fixed::new(BitRate::from_mbps(mbps))), DELTA)
}

/// Flows of one server behind one drop-tail queue.
#[derive(Debug, Clone)]
struct Path {
    flows: usize,
    /// From when the queue leaves at which rate, in seconds and Mbit/s.
    rates: Vec<(f64, f64)>,
    /// In packets.
    queue: usize,
    size: u64,
    /// Client 0 claims that all came at once.
    has_liar: bool,
    seconds: f64,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Send(usize),
    Arrive(usize, u64, Time),
    Tell(usize, bool),
    Hear(usize, usize),
    Tick,
}

#[derive(Default)]
struct Flow {
    next: u64,
    account: Account,
    newest: Option<(u64, Time, Time)>,
    packets: u64,
    told: Vec<Delivery>,
}

impl Flow {
    fn missing(&self) -> u64 {
        self.newest.map_or(0, |(seq, ..)| seq + 1 - self.packets)
    }
}

/// Bits sent, the queue's capacity, and the bits that left it, in bins of 0.1 s from 10 s on.
struct Load {
    sent: Vec<f64>,
    could: Vec<f64>,
    came: f64,
}

impl Load {
    /// The maximum load over 5 s, as a fraction of the queue's capacity.
    fn worst(&self) -> f64 {
        let sum = |bins: &[f64]| bins.iter().sum::<f64>();
        let windows = self.sent.windows(50).zip(self.could.windows(50));
        windows.map(|(sent, could)| sum(sent) / sum(could)).fold(0.0, f64::max)
    }

    /// The part that was lost.
    fn lost(&self) -> f64 {
        1.0 - self.came / self.sent.iter().sum::<f64>()
    }

    fn carried(&self) -> f64 {
        self.came / self.could.iter().sum::<f64>()
    }
}

/// Flows behind a queue, and the guard that limits them.
struct World<'a> {
    path: &'a Path,
    guard: Guarded,
    flows: Vec<Flow>,
    agenda: BinaryHeap<Reverse<(Time, u64, Event)>>,
    number: u64,
    departures: VecDeque<Time>,
    load: Load,
}

fn run(path: &Path) -> Load {
    let mut world = World::new(path);
    while let Some(Reverse((now, _, event))) = world.agenda.pop() {
        if now >= at(path.seconds) {
            break;
        }
        match event {
            Event::Tick => {
                world.guard.handle_timeout(now);
                world.push(now + Span::from_millis(10), Event::Tick);
            }
            Event::Send(flow) => world.send(now, flow),
            Event::Arrive(flow, seq, sent_at) => world.arrive(now, flow, seq, sent_at),
            Event::Tell(flow, is_urgent) => world.report(now, flow, is_urgent),
            Event::Hear(flow, told) => {
                let delivery = world.flows[flow].told[told];
                let flow = StationId(flow as u32);
                world.guard.on_delivery(now, flow, &delivery, Bytes::default());
            }
        }
    }
    world.load
}

/// The bin of 0.1 s, from 10 s on.
fn bin(now: Time) -> usize {
    (now.since(at(10.0)).as_secs_f64() * 10.0) as usize
}

impl<'a> World<'a> {
    fn new(path: &'a Path) -> Self {
        let bins = ((path.seconds - 10.0) * 10.0) as usize;
        let mut world = Self {
            path,
            guard: guarded(300),
            flows: (0..path.flows).map(|_| Flow::default()).collect(),
            agenda: BinaryHeap::new(),
            number: 0,
            departures: VecDeque::new(),
            load: Load { sent: vec![0.0; bins], could: Vec::new(), came: 0.0 },
        };
        let could = (0..bins).map(|bin| world.rate(at(10.0 + bin as f64 / 10.0)) / 10.0);
        world.load.could = could.collect();
        for flow in 0..path.flows {
            world.guard.on_join(Time::ZERO, StationId(flow as u32)).unwrap();
            world.push(at(0.003 * flow as f64), Event::Send(flow));
            world.push(at(0.5 + 0.007 * flow as f64), Event::Tell(flow, false));
        }
        world.push(Time::ZERO, Event::Tick);
        world
    }

    fn push(&mut self, when: Time, event: Event) {
        self.number += 1;
        self.agenda.push(Reverse((when, self.number, event)));
    }

    /// In bit/s.
    fn rate(&self, now: Time) -> f64 {
        let seconds = now.since(Time::ZERO).as_secs_f64();
        self.path.rates.iter().rev().find(|(from, _)| *from <= seconds).unwrap().1 * 1e6
    }

    fn bits(&self) -> f64 {
        self.path.size as f64 * 8.0
    }

    fn send(&mut self, now: Time, flow: usize) {
        let bits = self.bits();
        if now >= at(10.0) {
            self.load.sent[bin(now)] += bits;
        }
        while self.departures.front().is_some_and(|leaves| *leaves <= now) {
            self.departures.pop_front();
        }
        if self.departures.len() <= self.path.queue {
            let begins = self.departures.back().map_or(now, |last| (*last).max(now));
            let leaves = begins + Span::from_secs_f64(bits / self.rate(begins));
            self.departures.push_back(leaves);
            let seq = self.flows[flow].next;
            self.push(leaves + DELAY, Event::Arrive(flow, seq, now));
        }
        self.flows[flow].next += 1;
        let size = Bytes::new(self.path.size);
        let takes = self.guard.rate(StationId(flow as u32)).time_to_send(size);
        self.push(now + takes, Event::Send(flow));
    }

    fn arrive(&mut self, now: Time, index: usize, seq: u64, sent_at: Time) {
        let flow = &mut self.flows[index];
        flow.account.on_packet(now, seq, sent_at, Bytes::new(self.path.size), DELTA);
        flow.packets += 1;
        flow.newest = Some((seq, sent_at, now));
        let urgent_at = flow.account.urgent_at(flow.missing(), DELTA);
        if now >= at(10.0) {
            self.load.came += self.bits();
        }
        if let Some(due) = urgent_at {
            self.push(due.max(now), Event::Tell(index, true));
        }
    }

    fn report(&mut self, now: Time, index: usize, is_urgent: bool) {
        let path = self.path;
        let flow = &mut self.flows[index];
        let due = flow.account.urgent_at(flow.missing(), DELTA);
        let has_newest = flow.newest.filter(|_| !is_urgent || due.is_some_and(|at| at <= now));
        if let Some((newest_seq, newest_sent_at, newest_received_at)) = has_newest {
            let mut delivered = flow.account.report(now, flow.missing());
            let mut packets = flow.packets as u32;
            if path.has_liar && index == 0 {
                packets = newest_seq as u32 + 1;
                delivered = Delivered {
                    bytes: u64::from(packets) * path.size,
                    rate: BitRate::from_mbps(1_000_000),
                    ..Delivered::default()
                };
            }
            flow.told.push(Delivery {
                newest_seq,
                newest_sent_at,
                newest_received_at,
                packets,
                delivered: Some(delivered),
                given_up: 0,
            });
            let told = flow.told.len() - 1;
            self.push(now + DELAY, Event::Hear(index, told));
        }
        if !is_urgent {
            self.push(now + DELTA, Event::Tell(index, false));
        }
    }
}

const PLAIN: fn() -> Path = || Path {
    flows: 1,
    rates: vec![(0.0, 40.0)],
    queue: 100,
    size: 1500,
    has_liar: false,
    seconds: 30.0,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_backhaul_is_neither_overloaded_nor_left_idle(
        flows in 1..5usize,
        rate in 10.0..60.0,
        factor in 0.25..2.0,
        changes_at in 15.0..20.0,
        queue in prop_oneof![10..50usize, 50..5000usize],
    ) {
        let rates = vec![(0.0, rate), (changes_at, f64::clamp(rate * factor, 10.0, 80.0))];
        let load = run(&Path { flows, rates, queue, ..PLAIN() });
        prop_assert!(load.worst() <= 1.1, "{}", load.worst());
        prop_assert!(load.carried() >= 0.9, "{}", load.carried());
    }
}

#[test]
fn small_packets_count_as_small_packets() {
    let load = run(&Path { size: 200, rates: vec![(0.0, 12.0)], ..PLAIN() });
    assert!(load.worst() <= 1.05 && load.carried() >= 0.9, "{} {}", load.worst(), load.carried());
}

/// A limit that is many times too high when it is first lowered is raised by doubling for some seconds,
/// and then by small steps.
#[test]
fn a_path_far_below_the_first_limit_is_not_overrun_again_and_again() {
    for rates in [vec![(0.0, 2.0)], vec![(0.0, 40.0), (5.0, 0.01), (8.0, 2.0)]] {
        let load = run(&Path { rates, queue: 16, seconds: 120.0, ..PLAIN() });
        assert!(load.lost() < 0.01, "{} lost, worst {}", load.lost(), load.worst());
        assert!(load.carried() >= 0.85, "{}", load.carried());
    }
}

/// A queue of one's own that falls slowly, since the link carries little, is taken for others'; that ends
/// with the queue.
#[test]
fn a_link_that_was_slow_for_some_seconds_is_used_again_soon() {
    let rates = vec![(0.0, 40.0), (15.0, 1.0), (23.0, 40.0)];
    let load = run(&Path { rates, seconds: 43.0, ..PLAIN() });
    // Five of the last 20 s are for the ramp-up.
    let after: f64 = load.sent[130..].iter().sum();
    assert!(after >= 0.75 * 20.0 * 40e6, "{after}");
}

#[test]
fn many_clients_on_a_slow_link_have_less_than_it_carries_as_their_least() {
    let load = run(&Path { flows: 20, rates: vec![(0.0, 1.5)], seconds: 120.0, ..PLAIN() });
    let [sent, could] = [&load.sent, &load.could].map(|bits| bits[500..].iter().sum::<f64>());
    assert!(sent <= 1.1 * could, "{}", sent / could);
}

#[test]
fn many_clients_share_little() {
    let load = run(&Path { flows: 40, rates: vec![(0.0, 10.0)], ..PLAIN() });
    assert!(load.worst() <= 1.1 && load.carried() >= 0.9, "{} {}", load.worst(), load.carried());
}

#[test]
fn a_liar_frees_nobody_but_itself() {
    let honest = run(&Path { flows: 3, rates: vec![(0.0, 40.0)], ..PLAIN() });
    assert!(honest.worst() <= 1.1);
    let load =
        run(&Path { flows: 3, rates: vec![(0.0, 400.0), (8.0, 330.0)], has_liar: true, ..PLAIN() });
    // The liar has its law's 300 Mbit/s; the two others keep to the remaining capacity.
    assert!(load.worst() <= 1.1, "{}", load.worst());
}

/// Reports of a flow that is sent at `mbps`, `came` of each hundred packets, every Δ.
struct Reporter {
    guard: Guarded,
    packets: u64,
    came: u64,
    now: Time,
}

impl Reporter {
    fn new() -> Self {
        let mut guard = guarded(100);
        guard.on_join(Time::ZERO, StationId(0)).unwrap();
        Self { guard, packets: 0, came: 0, now: Time::ZERO }
    }

    /// Half a second of `sent` packets of which `came` arrived; the limit in Mbit/s.
    fn told(&mut self, sent: u64, came: u64) -> f64 {
        self.now += DELTA;
        self.guard.handle_timeout(self.now);
        (self.packets, self.came) = (self.packets + sent, self.came + came);
        let delivery = Delivery {
            newest_seq: self.packets,
            newest_sent_at: self.now,
            newest_received_at: self.now,
            packets: self.came as u32,
            delivered: Some(Delivered { bytes: self.came * 1500, ..Delivered::default() }),
            given_up: 0,
        };
        self.guard.on_delivery(self.now, StationId(0), &delivery, Bytes::default());
        self.limit()
    }

    fn silent(&mut self) -> f64 {
        self.now += DELTA;
        self.guard.handle_timeout(self.now);
        self.limit()
    }

    fn limit(&self) -> f64 {
        self.guard.limit(StationId(0)).unwrap().as_bps() as f64 / 1e6
    }

    /// As many as the rate allows, all of which arrive.
    fn fill(&mut self) -> f64 {
        let sent = (self.guard.rate(StationId(0)).as_bps() / 24_000).max(1);
        self.told(sent, sent)
    }
}

#[test]
fn silence_halves_the_limit_and_one_packet_a_report_is_silence_too() {
    let mut flow = Reporter::new();
    (0..8).for_each(|_| _ = flow.fill());
    let before = flow.limit();
    assert!(before >= 100.0);
    let limits: [f64; 8] = std::array::from_fn(|_| flow.silent());
    assert_eq!(limits[2], before);
    assert_eq!([3, 4, 7].map(|at| (before / limits[at]).round()), [2.0, 4.0, 32.0]);
    // A clock that has not been looked at for days.
    flow.now += Span::from_secs(1_000_000);
    assert!(flow.silent() < 0.02);

    let mut flow = Reporter::new();
    (0..8).for_each(|_| _ = flow.fill());
    let low = (0..12).map(|_| flow.told(4000, 1)).last().unwrap();
    assert!(low <= 1.0, "{low}");
}

#[test]
fn a_flow_with_less_to_send_keeps_its_limit_and_resumes() {
    let mut flow = Reporter::new();
    (0..8).for_each(|_| _ = flow.fill());
    let before = flow.limit();
    for _ in 0..120 {
        assert_eq!(flow.told(1, 1), before);
    }
}

#[test]
fn a_lost_packet_of_a_flow_with_less_to_send_costs_half_of_its_limit_at_most() {
    let mut flow = Reporter::new();
    (0..8).for_each(|_| _ = flow.fill());
    let before = flow.limit();
    flow.guard.on_app_limited(flow.now, StationId(0));
    let after = flow.told(2, 1);
    assert!((before / 2.0..=before).contains(&after), "{after} of {before}");
}

/// Bursts with a loss of a third do not count as an outage, however long the application pauses
/// between them.
#[test]
fn losses_of_an_application_that_pauses_lower_the_limit_to_what_it_sends() {
    let mut flow = Reporter::new();
    (0..8).for_each(|_| _ = flow.fill());
    for _ in 0..20 {
        flow.guard.on_app_limited(flow.now, StationId(0));
        flow.told(120, 80);
    }
    // 120 packets of 1500 bytes in half a second are 2.9 Mbit/s.
    assert!(flow.limit() < 2.0 * 2.9, "{}", flow.limit());
}

/// With one packet in 0.75 s, no interval may be so short that each packet ends a silence.
#[test]
fn after_an_outage_the_rate_comes_back_whatever_the_interval() {
    for interval in [10, 100, 500].map(Span::from_millis) {
        let law = Box::new(Fixed::new(BitRate::from_mbps(20)));
        let mut guard = Guarded::new(law, interval);
        guard.on_join(Time::ZERO, StationId(0)).unwrap();
        let (mut sent, mut came, mut due, mut told_at) = (0, 0, Time::ZERO, Time::ZERO);
        for ms in 0..60_000 {
            let now = Time::ZERO + Span::from_millis(ms);
            guard.handle_timeout(now);
            while due <= now {
                let packet = 12_000.0 / guard.rate(StationId(0)).as_bps() as f64;
                (sent, due) = (sent + 1, due.max(now) + Span::from_secs_f64(packet));
                // Nothing comes in three seconds.
                came += u64::from(!(5000..8000).contains(&ms));
            }
            if now.since(told_at) < interval || (5000..8000).contains(&ms) {
                continue;
            }
            told_at = now;
            let delivery = Delivery {
                newest_seq: sent,
                newest_sent_at: now,
                newest_received_at: now,
                packets: came as u32,
                delivered: Some(Delivered { bytes: came * 1500, ..Delivered::default() }),
                given_up: 0,
            };
            guard.on_delivery(now, StationId(0), &delivery, Bytes::default());
        }
        let limit = guard.limit(StationId(0)).unwrap();
        assert!(limit >= BitRate::from_mbps(15), "{limit} with reports every {interval}");
    }
}

#[test]
fn an_integrator_below_its_target_holds_while_the_limit_binds() {
    let law = LinearParams { gain: BitRate::from_mbps(10), ..LinearParams::default() };
    let law: Linear = law.build().unwrap();
    let mut guard = Guarded::new(Box::new(law), DELTA);
    let station = StationId(0);
    guard.on_join(Time::ZERO, station).unwrap();
    let report = |level| Report {
        level,
        deviation: 1.0,
        frames: 100,
        rate: BitRate::from_mbps(390),
        loss: 0.0,
    };
    let mut now = Time::ZERO;
    let mut slot = |guard: &mut Guarded, level| {
        now += DELTA * 3 / 2;
        guard.on_report(now, station, report(level));
        guard.handle_timeout(now);
        guard.law().rate(station)
    };
    // Without a report of arrivals the limit is 10 Mbit/s, and soon less.
    let first = slot(&mut guard, 1.0);
    assert!(guard.is_limited(station) && first > BitRate::from_mbps(100));
    let held: Vec<BitRate> = (0..10).map(|_| slot(&mut guard, 1.0)).collect();
    assert!(held.iter().all(|rate| *rate == held[0]), "{held:?}");
    let after = slot(&mut guard, 60.0);
    assert!(after < held[0], "a level above the target counts");
}
