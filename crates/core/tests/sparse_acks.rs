//! A session in which not every update asks for an ack: monitors and sources of earlier versions, a
//! law that never asks, several paths.

#[path = "common/session.rs"]
mod driven;
#[path = "common/wire.rs"]
mod wire;

use driven::turn;
use freshline_core::path::SchedulerConfig;
use freshline_core::session::{Monitor, MonitorParams, Paths, Reach, Secret, Source, SourceParams};
use freshline_core::source::{Ack, AcpPlus, AcpPlusParams, Fixed, Phase, RateLaw};
use freshline_core::unit::{Span, Time, UpdateRate};
use wire::{Wire, arrived, next_at};

/// One-way delay.
const WAY: Span = Span::from_millis(10);

/// The transmission time of an ack on the narrow reverse path: 143 acks a second.
const SERVICE: Span = Span::from_millis(7);

/// The bit of an update's flags by which it asks for no ack.
const NO_ACK: u8 = 4;

/// A source and a monitor, with a narrow reverse path between them.
struct World {
    now: Time,
    source: Source,
    monitor: Monitor<u8>,
    /// One of before knows no such flag, and ignores it.
    is_old_monitor: bool,
    forward: Wire,
    reverse: Wire,
    free_at: Time,
}

impl World {
    fn new(law: impl RateLaw + 'static) -> Self {
        let source =
            Source::new(SourceParams::default(), Secret::new([7; 16]), Box::new(law), Time::ZERO);
        Self {
            now: Time::ZERO,
            source: source.expect("no name"),
            monitor: Monitor::new(MonitorParams::default(), Secret::new([1; 16])),
            is_old_monitor: false,
            forward: Wire::new(),
            reverse: Wire::new(),
            free_at: Time::ZERO,
        }
    }

    fn with_old_monitor(law: impl RateLaw + 'static) -> Self {
        Self { is_old_monitor: true, ..Self::new(law) }
    }

    fn over(mut self, paths: usize) -> Self {
        let scheduler: SchedulerConfig = "round_robin".parse().expect("there is one");
        self.source = self.source.over(Paths::new(paths, &scheduler).expect("a few paths"));
        self
    }

    fn run(mut self, seconds: u64) -> Self {
        let end = self.now + Span::from_secs(seconds);
        loop {
            let next = next_at(&self.source, [&self.forward, &self.reverse])
                .expect("a source always wants something");
            self.now = next.max(self.now);
            if self.now > end {
                return self;
            }
            self.arrive();
            self.send();
        }
    }

    fn send(&mut self) {
        for (transmit, mut datagram) in turn(&mut self.source, self.now, b"state", |_| ()) {
            if self.is_old_monitor {
                datagram[12] &= !NO_ACK;
            }
            self.forward.push_back((self.now + WAY, transmit.path, datagram));
        }
    }

    fn arrive(&mut self) {
        while let Some((_, path, datagram)) = arrived(&mut self.forward, self.now) {
            let reply = driven::tell(&mut self.monitor, self.now, path.0, &datagram).reply;
            if !reply.is_empty() {
                self.free_at = self.free_at.max(self.now) + SERVICE;
                self.reverse.push_back((self.free_at + WAY, path, reply));
            }
        }
        while let Some((_, path, datagram)) = arrived(&mut self.reverse, self.now) {
            let _ = self.source.handle_datagram(self.now, path, &datagram);
        }
    }

    /// The session was opened but once, and is open.
    fn has_been_open(&self) -> bool {
        let is_open = self.source.reach() == Reach::Open;
        is_open && self.source.counters().opened == 1 && self.monitor.counters().opened == 1
    }

    /// The mean age that the monitor knows, of its one source.
    fn age(&self) -> Span {
        let (_, record) = self.monitor.records().next().expect("a source");
        record.age.mean(self.now).expect("its age is known")
    }
}

/// A fixed rate; its first update asks for an ack, and every `each`-th after it.
struct Asking {
    law: Fixed,
    each: u64,
    sent: u64,
}

/// 500 updates a second; of the acks 143 come back at most.
fn asking(each: u64) -> Asking {
    Asking { law: Fixed::new(UpdateRate::saturating(500.0)), each, sent: 0 }
}

impl RateLaw for Asking {
    fn name(&self) -> &'static str {
        "asking"
    }
    fn restart(&mut self, now: Time) {
        self.law.restart(now);
    }
    fn on_sent(&mut self, now: Time, seq: u64) {
        self.sent += 1;
        self.law.on_sent(now, seq);
    }
    fn on_ack(&mut self, _now: Time, _ack: &Ack) {}
    fn handle_timeout(&mut self, _now: Time) {}
    fn poll_timeout(&self) -> Option<Time> {
        None
    }
    fn next_update_at(&self) -> Option<Time> {
        self.law.next_update_at()
    }
    fn wants_ack(&self, _now: Time) -> bool {
        self.sent.is_multiple_of(self.each)
    }
    fn rate(&self) -> UpdateRate {
        self.law.rate()
    }
    fn phase(&self) -> Phase {
        Phase::Steering
    }
}

#[test]
fn with_fewer_acks_the_source_knows_more_and_the_monitor_is_as_fresh() {
    let [every, sparse] = [1, 5].map(|each| World::new(asking(each)).run(10));
    for world in [&every, &sparse] {
        assert!(world.has_been_open());
        let counters = world.source.counters();
        assert!(counters.sent > 3_000, "{counters:?}");
        // All that can come back has come back.
        assert!(counters.acked > 900, "{counters:?}");
    }
    // The one-way delay, half of a period, and half of the service by which the clocks seem apart.
    assert!(sparse.age() < every.age() + Span::from_millis(1), "{}", sparse.age());
    assert!(sparse.age() < Span::from_millis(15), "{}", sparse.age());
    assert!(every.age() < sparse.age() + Span::from_millis(1), "{}", every.age());
    assert_eq!(every.source.counters().ack_requests, every.source.counters().sent);
    assert!(sparse.source.counters().ack_requests * 3 < sparse.source.counters().sent);
    let known = |world: &World| world.source.age().summary(world.now).expect("acks arrived").mean;
    assert!(known(&sparse) < Span::from_millis(60), "{}", known(&sparse));
    assert!(known(&every) > Span::from_secs(1), "{}", known(&every));
}

#[test]
fn what_had_no_ack_counts_as_delivered_and_not_as_lost() {
    let world = World::new(asking(5)).run(10);
    let counters = world.source.counters();
    assert!(counters.delivered_bytes * 100 > counters.payload_bytes * 99, "{counters:?}");
    let path = world.source.paths().statuses(world.now, None).next().expect("one").counters;
    // But for the opening that was challenged.
    assert_eq!((path.sent, path.lost, path.silences), (counters.sent, 1, 0));
}

#[test]
fn a_monitor_of_before_answers_all_and_nothing_breaks() {
    let world = World::with_old_monitor(asking(5)).run(10);
    assert!(world.has_been_open());
    let counters = world.source.counters();
    assert!(counters.ack_requests * 3 < counters.sent && counters.sent > 3_000, "{counters:?}");
    assert_eq!((counters.ignored, counters.late_acks), (0, 0));
    assert!(world.age() < Span::from_millis(20), "{}", world.age());
}

#[test]
fn a_source_of_before_is_answered_each_time() {
    let world = World::new(AcpPlus::new(AcpPlusParams::departure())).run(10);
    assert!(world.has_been_open());
    let (counters, seen) = (world.source.counters(), world.monitor.counters());
    assert_eq!(counters.ack_requests, counters.sent);
    let waiting = world.reverse.len() as u64;
    assert_eq!(counters.acked + waiting, seen.fresh);
}

#[test]
fn a_law_that_never_asks_is_not_left_in_the_dark() {
    let world = World::new(asking(u64::MAX)).run(10);
    assert!(world.has_been_open());
    let counters = world.source.counters();
    // A word is overdue two round trips of 27 ms after the last one.
    assert!(counters.ack_requests * 3 < counters.sent && counters.acked > 100, "{counters:?}");
}

#[test]
fn over_several_paths_each_update_asks() {
    let world = World::new(asking(u64::MAX)).over(2).run(2);
    assert!(world.has_been_open());
    let counters = world.source.counters();
    assert!(counters.sent > 100 && counters.ack_requests == counters.sent, "{counters:?}");
}
