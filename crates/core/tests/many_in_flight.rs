//! Many updates in flight: a cut path is noticed as soon as with few, and the goodput is correct.

#[path = "common/session.rs"]
mod driven;

use std::collections::VecDeque;

use freshline_core::path::{PathId, SchedulerConfig};
use freshline_core::session::{
    Monitor, MonitorParams, PathAck, Paths, Secret, Source, SourceParams,
};
use freshline_core::source::Fixed;
use freshline_core::unit::{Span, Time, UpdateRate};

use driven::turn;

/// Base RTTs of both paths: the first is better until it is cut.
const RTTS: [Span; 2] = [Span::from_millis(300), Span::from_millis(400)];

/// Two paths, and updates at a constant interval.
struct World {
    paths: Paths,
    interval: Span,
    now: Time,
    seq: u64,
    /// Of each path: when the ack of which update arrives.
    acks: [VecDeque<(Time, u64)>; 2],
    is_cut: bool,
}

impl World {
    /// A world with `in_flight` updates in flight over the first path.
    fn new(scheduler: &str, in_flight: u64) -> Self {
        let scheduler: SchedulerConfig = scheduler.parse().expect("there is such a scheduler");
        Self {
            paths: Paths::new(2, &scheduler).expect("two paths"),
            interval: RTTS[0] / in_flight,
            now: Time::ZERO,
            seq: 0,
            acks: Default::default(),
            is_cut: false,
        }
    }

    /// Sends for this long, and returns when the first path was the first choice for the last time.
    fn run(&mut self, span: Span) -> Option<Time> {
        let end = self.now + span;
        let mut used_at = None;
        while self.now < end {
            self.answer();
            let route = self.paths.route(self.now, self.interval, Some(0)).expect("both are up");
            if route.first == PathId(0) {
                used_at = Some(self.now);
            }
            for (place, path) in route.all().enumerate() {
                self.paths.on_sent(self.now, path, self.seq, place > 0);
                let index = usize::from(path.0);
                if !(self.is_cut && index == 0) {
                    self.acks[index].push_back((self.now + RTTS[index], self.seq));
                }
            }
            self.seq += 1;
            self.now += self.interval;
        }
        used_at
    }

    /// Hands over the acks that have arrived.
    fn answer(&mut self) {
        for (index, acks) in (0..).zip(&mut self.acks) {
            while let Some((at, seq)) = acks.front().copied().filter(|ack| ack.0 <= self.now) {
                acks.pop_front();
                let received_at = at - RTTS[usize::from(index)] / 2;
                let ack = PathAck { seq, hold: Span::ZERO, received_at };
                self.paths.on_ack(at, PathId(index), &ack);
            }
        }
    }
}

#[test]
fn every_scheduler_leaves_a_cut_path_within_three_round_trips() {
    for scheduler in ["freshest", "qaware", "min_srtt", "round_robin", "redundant"] {
        // The last is more than a path remembers.
        for in_flight in [100, 1_000, 1_350, 5_000, 20_000, 50_000] {
            let mut world = World::new(scheduler, in_flight);
            world.run(RTTS[1] * 5);
            world.is_cut = true;
            let cut_at = world.now;
            let used_at = world.run(RTTS[0] * 6);
            // Probes of a silent path are copies; redundant takes the first live path first.
            let left_after = used_at.map_or(Span::ZERO, |at| at.since(cut_at));
            assert!(
                left_after <= RTTS[0] * 3,
                "{scheduler}, {in_flight} in flight: left after {left_after}"
            );
            assert!(world.run(RTTS[0] * 10).is_none(), "{scheduler}, {in_flight}: taken again");
        }
    }
}

#[test]
fn a_path_is_live_and_is_measured_however_many_are_in_flight() {
    for in_flight in [1_000, 1_350, 20_000, 50_000] {
        let mut world = World::new("min_srtt", in_flight);
        world.run(RTTS[1] * 20);
        let status = world.paths.statuses(world.now, Some(0)).next().expect("the first path");
        let counters = status.counters;
        assert_eq!(status.phase.name(), "live", "{in_flight} in flight");
        assert_eq!(status.state.srtt, Some(RTTS[0]), "{in_flight} in flight");
        assert_eq!((counters.lost, counters.silences), (0, 0), "{in_flight} in flight");
        let unanswered = counters.sent - counters.acked;
        // Answers to updates that a path does not remember are not counted.
        assert!(in_flight > 30_000 || unanswered.abs_diff(in_flight) <= 2, "{counters:?}");
    }
}

#[test]
fn a_path_with_full_memory_is_taken_again_after_a_cut() {
    let mut world = World::new("min_srtt", 50_000);
    world.run(RTTS[1] * 5);
    world.is_cut = true;
    world.run(Span::from_secs(5));
    world.is_cut = false;
    world.run(Span::from_secs(4));
    let used_at = world.run(RTTS[0]);
    assert!(used_at.is_some_and(|at| world.now.since(at) <= world.interval * 2), "{used_at:?}");
}

/// A source at a fixed rate and its monitor, over the first path only or over both, of which the
/// first is cut halfway: the delivered bytes that the source counts, per byte that the monitor
/// accepted as fresh.
fn delivered_share(rate: f64, scheduler: Option<&str>, length: Span) -> f64 {
    let law = Box::new(Fixed::new(UpdateRate::saturating(rate)));
    let source = Source::new(SourceParams::default(), Secret::new([7; 16]), law, Time::ZERO);
    let mut source = source.expect("no name");
    if let Some(scheduler) = scheduler {
        let scheduler = scheduler.parse().expect("there is such a scheduler");
        source = source.over(Paths::new(2, &scheduler).expect("two paths"));
    }
    let mut monitor: Monitor<u8> = Monitor::new(MonitorParams::default(), Secret::new([1; 16]));
    // Of each path.
    let [mut updates, mut acks]: [[VecDeque<_>; 2]; 2] = Default::default();
    let mut now = Time::ZERO;
    while now < Time::ZERO + length {
        let is_cut =
            |path: u8| path == 0 && scheduler.is_some() && now.since(Time::ZERO) > length / 2;
        for (path, rtt) in (0..).zip(RTTS) {
            while let Some(datagram) = take_due(&mut updates[usize::from(path)], now) {
                let ack = driven::tell(&mut monitor, now, path, &datagram).reply;
                if !is_cut(path) {
                    acks[usize::from(path)].push_back((now + rtt / 2, ack));
                }
            }
            while let Some(datagram) = take_due(&mut acks[usize::from(path)], now) {
                let _ = source.handle_datagram(now, PathId(path), &datagram);
            }
        }
        for (transmit, datagram) in turn(&mut source, now, &[0; 100], |_| ()) {
            let index = usize::from(transmit.path.0);
            if !is_cut(transmit.path.0) {
                updates[index].push_back((now + RTTS[index] / 2, datagram));
            }
        }
        let datagrams =
            updates.iter().chain(&acks).filter_map(|queue| Some(queue.front()?.0)).min();
        let wakes = [datagrams, source.poll_timeout()];
        now = Time::earliest(wakes).expect("a source always waits for something").max(now);
    }
    source.counters().delivered_bytes as f64 / (100.0 * monitor.counters().fresh as f64)
}

fn take_due(datagrams: &mut VecDeque<(Time, Vec<u8>)>, now: Time) -> Option<Vec<u8>> {
    datagrams.front().filter(|datagram| datagram.0 <= now)?;
    datagrams.pop_front().map(|(_, datagram)| datagram)
}

#[test]
fn goodput_is_what_was_delivered_however_many_are_in_flight() {
    for rate in [100.0, 3_000.0, 5_000.0, 20_000.0] {
        let share = delivered_share(rate, None, Span::from_secs(5));
        // The acks of the last half round trip are still to come.
        assert!((0.93..=1.0).contains(&share), "{rate} updates/s: {share}");
    }
}

#[test]
fn goodput_is_what_was_delivered_over_a_path_that_is_cut() {
    for scheduler in ["freshest", "qaware", "min_srtt", "round_robin", "redundant"] {
        // 100, 1,350 and 20,000 in flight.
        for rate in [333.0, 4_500.0, 67_000.0] {
            let share = delivered_share(rate, Some(scheduler), Span::from_secs(4));
            // The acks of the last half round trip are still to come, and those of the cut never do.
            assert!((0.9..=1.0).contains(&share), "{scheduler}, {rate} updates/s: {share}");
        }
    }
}
