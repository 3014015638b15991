//! Limits on a source's rate, through whole sessions in virtual time: they hold from the first
//! packet, for every law; and a state that does not change is left out while the monitor has it.

#[path = "common/session.rs"]
mod driven;
#[path = "common/wire.rs"]
mod wire;

use driven::turn;
use freshline_core::path::SchedulerConfig;
use freshline_core::session::{
    Monitor, MonitorEvent, MonitorParams, Paths, Reach, Secret, Source, SourceParams,
};
use freshline_core::source::{
    Acp, AcpParams, AcpPlus, AcpPlusParams, BURST, Fixed, Lazy, LazyParams, Limit, Limits,
    MinAgeGain, RateLaw, Tenth, TenthParams,
};
use freshline_core::unit::{BitRate, Bytes, Span, Time, UpdateRate};
use wire::{Wire, arrived, next_at};

/// Headers of IPv4 and UDP.
const HEADERS: u64 = 28;

/// Every law, with a name.
fn laws() -> Vec<(&'static str, Box<dyn RateLaw>)> {
    let mut laws = adaptive();
    laws.push(("fixed", Box::new(Fixed::new(UpdateRate::saturating(2_000.0)))));
    laws
}

fn adaptive() -> Vec<(&'static str, Box<dyn RateLaw>)> {
    vec![
        ("acp+", Box::new(AcpPlus::new(AcpPlusParams::default()))),
        ("acp+d", Box::new(AcpPlus::new(AcpPlusParams::departure()))),
        ("acp", Box::new(Acp::new(AcpParams::default()))),
        ("tenth", Box::new(Tenth::new(TenthParams::default()))),
        ("lazy", Box::new(Lazy::new(LazyParams::default()))),
    ]
}

/// A source and a monitor with a path of a constant delay and without end to its capacity.
struct World {
    now: Time,
    /// In each direction.
    delay: Span,
    /// Maximum additional delay, forward.
    jitter: Span,
    source: Source,
    monitor: Monitor<u8>,
    forward: Wire,
    reverse: Wire,
    /// Its first byte changes at these times.
    changes: Vec<Time>,
    /// Updates that leave between these times are lost.
    outage: (Time, Time),
    /// When datagrams left, and their bytes on the wire.
    sent: Vec<(Time, u64)>,
    /// When the monitor got a state that it did not have.
    news: Vec<Time>,
}

impl World {
    fn new(law: Box<dyn RateLaw>, params: SourceParams, delay: Span) -> Self {
        let source = Source::new(params, Secret::new([7; 16]), law, Time::ZERO);
        Self {
            now: Time::ZERO,
            delay,
            jitter: Span::ZERO,
            source: source.expect("no name"),
            monitor: Monitor::new(MonitorParams::default(), Secret::new([1; 16])),
            forward: Wire::new(),
            reverse: Wire::new(),
            changes: Vec::new(),
            outage: (Time::MAX, Time::MAX),
            sent: Vec::new(),
            news: Vec::new(),
        }
    }

    fn within(law: Box<dyn RateLaw>, limits: Limits, delay: Span) -> Self {
        Self::new(law, SourceParams { limits, ..SourceParams::default() }, delay)
    }

    fn over(mut self, paths: usize, scheduler: &str) -> Self {
        let scheduler: SchedulerConfig = scheduler.parse().expect("there is one");
        self.source = self.source.over(Paths::new(paths, &scheduler).expect("a few paths"));
        self
    }

    fn run(mut self, length: Span) -> Self {
        let end = self.now + length;
        loop {
            let next = next_at(&self.source, [&self.forward, &self.reverse]);
            self.now = next.expect("a source always wants something").max(self.now);
            if self.now > end {
                return self;
            }
            self.arrive();
            self.send();
        }
    }

    fn send(&mut self) {
        let state = self.changes.iter().filter(|at| **at <= self.now).count() as u8;
        let is_lost = (self.outage.0..self.outage.1).contains(&self.now);
        for (transmit, datagram) in turn(&mut self.source, self.now, &[state; 60], |_| ()) {
            let bytes = HEADERS + datagram.len() as u64;
            self.source.handle_wire_bytes(self.now, Bytes::new(bytes));
            self.sent.push((self.now, bytes));
            if !is_lost {
                // Numbers that look random (Weyl's sequence).
                let part = (self.sent.len() as f64 * 0.618_033_988_75).fract();
                let delay = self.delay + self.jitter.mul_f64(part);
                self.forward.push_back((self.now + delay, transmit.path, datagram));
            }
        }
    }

    fn arrive(&mut self) {
        let now = self.now;
        while let Some((_, path, datagram)) = arrived(&mut self.forward, now) {
            let heard = driven::tell(&mut self.monitor, now, path.0, &datagram);
            // Each keep-alive is a new sample of the same state.
            let state = *datagram.last().expect("60 bytes of the state");
            let is_fresh = matches!(heard.event(), Some(MonitorEvent::Fresh { .. }));
            if is_fresh && self.news.len() <= usize::from(state) {
                self.news.push(now);
            }
            if !heard.reply.is_empty() {
                self.reverse.push_back((now + self.delay, path, heard.reply));
            }
        }
        while let Some((_, path, datagram)) = arrived(&mut self.reverse, now) {
            let _ = self.source.handle_datagram(now, path, &datagram);
        }
    }

    /// Datagrams that left between two times.
    fn sent_between(&self, from: Time, until: Time) -> usize {
        self.sent.iter().filter(|(at, _)| (from..until).contains(at)).count()
    }
}

fn at(seconds: f64) -> Time {
    Time::ZERO + Span::from_secs_f64(seconds)
}

#[test]
fn no_law_exceeds_its_max_rate_from_the_first_packet_on() {
    for delay in [50, 60_000].map(Span::from_micros) {
        for per_second in [5.0, 20.0, 300.0] {
            for (name, law) in laws() {
                let rate = UpdateRate::saturating(per_second);
                let limits = Limits { max_rate: Some(rate), ..Limits::NONE };
                let world = World::within(law, limits, delay).run(Span::from_secs(4));
                assert_eq!(world.source.reach(), Reach::Open, "{name}");
                for (count, (at, _)) in (1u64..).zip(&world.sent) {
                    let earned = at.since(Time::ZERO).as_nanos() / rate.period().as_nanos();
                    assert!(count <= 1 + earned, "{name}, {rate}, {delay}: {count} at {at:?}");
                }
            }
        }
    }
}

#[test]
fn the_rate_of_adaptive_laws_ends_where_more_is_not_worth_it() {
    let limits = Limits { min_age_gain: MinAgeGain::default(), ..Limits::NONE };
    for (name, law) in adaptive() {
        let world = World::within(law, limits, Span::from_micros(50)).run(Span::from_secs(4));
        for (count, (at, _)) in (1u64..).zip(&world.sent) {
            assert!(count <= 1 + at.since(Time::ZERO).as_nanos() / 1_000_000, "{name} at {at:?}");
        }
        let last = world.sent_between(at(3.0), at(4.0));
        assert!((950..=1_001).contains(&last), "{name}: {last} updates/s");
        assert_eq!(world.source.limited_by(), Some(Limit::MinAgeGain), "{name}");
        assert_eq!(world.source.law().rate().per_second(), 1_000.0, "{name} knows of it");
    }
    for (name, law) in adaptive() {
        let world = World::within(law, Limits::NONE, Span::from_micros(50));
        let last = world.run(Span::from_secs(2)).sent_between(at(1.0), at(2.0));
        assert!(last > 4_000, "{name} without it: {last} updates/s");
    }
    // 1 % of 125 ms are 1.25 ms, worth 400 updates/s.
    for (name, law) in adaptive() {
        let world = World::within(law, limits, Span::from_millis(125)).run(Span::from_secs(30));
        let last = world.sent_between(at(29.0), at(30.0));
        assert!(last <= 402, "{name}: {last} updates/s");
        // The one law that gets there within 30 s, as nothing is queued here.
        assert!(name != "tenth" || last >= 390, "{name}: {last} updates/s");
    }
    let (_, fixed) = laws().pop().expect("the last one");
    let world = World::within(fixed, limits, Span::from_micros(50)).run(Span::from_secs(2));
    assert_eq!(world.sent_between(at(1.0), at(2.0)), 2_000, "a fixed law sends at its rate");
}

#[test]
fn no_law_exceeds_its_bandwidth_by_more_than_the_burst_from_the_first_packet_on() {
    let bandwidth = BitRate::from_bps(50_000);
    let limits = Limits { max_bandwidth: Some(bandwidth), ..Limits::NONE };
    for paths in [1, 3] {
        for (name, law) in laws() {
            let world = World::within(law, limits, Span::from_millis(1));
            let world = world.over(paths, "redundant").run(Span::from_secs(20));
            let update: u64 = world.sent.iter().rev().take(paths).map(|(_, bytes)| bytes).sum();
            let mut total = 0;
            for (at, bytes) in &world.sent {
                total += bytes;
                let earned = at.since(Time::ZERO).as_secs_f64() * 50_000.0 / 8.0;
                let most = earned + (BURST.get() + 2 * update) as f64;
                assert!(total as f64 <= most, "{name}, {paths}: {total} B at {at:?}");
            }
            let used = total as f64 * 8.0 / 20.0;
            assert!(used > 0.9 * 50_000.0, "{name}, {paths}: only {used} bit/s");
            assert_eq!(world.source.limited_by(), Some(Limit::MaxBandwidth), "{name}");
            let rate = world.source.law().rate().per_second() * (update * 8) as f64;
            assert!(name == "fixed" || rate <= 1.01 * 50_000.0, "{name} knows of it: {rate}");
            assert_eq!(world.source.counters().wire_bytes, total);
        }
    }
}

/// A source that leaves unchanged states out, but for one in a second.
fn on_change(law: Box<dyn RateLaw>) -> World {
    let keep_alive = Span::from_secs(1);
    let params = SourceParams { on_change: true, keep_alive, ..SourceParams::default() };
    World::new(law, params, Span::from_millis(10))
}

#[test]
fn a_state_that_does_not_change_is_sent_once_a_second_and_a_change_within_a_round_trip() {
    for (name, law) in laws() {
        let mut world = on_change(law);
        world.changes = vec![at(60.0), at(60.5)];
        let world = world.run(Span::from_secs(70));
        let still = world.sent_between(at(40.0), at(60.0));
        // Until its ack is back, a keep-alive is repeated at the law's rate: at most every 2 ms here.
        let most = if name == "fixed" { 20 * 42 } else { 20 * 25 };
        assert!((20..=most).contains(&still), "{name}: {still} updates in 20 s");
        assert!(world.source.counters().unchanged > 100, "{name}");
        assert_eq!(world.source.counters().opened, 1, "{name}: it has stayed open");
        let mut news = world.news.iter().skip(1);
        for change in [at(60.0), at(60.5)] {
            let took = news.next().expect("it arrived").since(change);
            assert!(took <= Span::from_millis(40), "{name}: {took} after the change");
        }
    }
}

#[test]
fn a_change_that_is_lost_is_repeated_until_it_is_acknowledged() {
    for (name, law) in laws() {
        let mut world = on_change(law);
        world.changes = vec![at(30.0)];
        world.outage = (at(29.99), at(30.3));
        let world = world.run(Span::from_secs(40));
        let tried = world.sent_between(at(30.0), at(30.3));
        assert!(tried >= 4, "{name}: {tried} updates while none arrives");
        // Until the first round trip is over as well.
        let first = world.sent_between(at(30.0), at(30.02));
        assert!(name != "fixed" || first >= 39, "{name}: {first} updates in a round trip");
        let took = world.news.get(1).expect("it arrived").since(at(30.3));
        // Tenth tries again after times that grow with the silence.
        let longest = if name == "tenth" { 300 } else { 100 };
        assert!(took <= Span::from_millis(longest), "{name}: {took} after the outage");
        assert_eq!(world.source.counters().opened, 1, "{name}: it has stayed open");
    }
}

#[test]
fn an_idle_source_keeps_a_rate_near_one_update_per_round_trip() {
    for (name, law) in adaptive() {
        let mut world = on_change(law);
        world.jitter = Span::from_millis(5);
        let world = world.run(Span::from_secs(10));
        let after_10_s = world.source.law().rate().per_second();
        let world = world.run(Span::from_secs(110));
        let rate = world.source.law().rate().per_second();
        assert!(rate <= after_10_s.max(50.0) * 1.01, "{name}: it grows to {rate}/s");
        assert!(rate >= 24.0, "{name}: it falls to {rate}/s, with a round trip of 20 ms");
    }
}
