//! One session over several paths: openings, each with the cookie of its address; answers that come
//! late; a path that is cut; a monitor that is restarted.

#[path = "common/session.rs"]
mod driven;
#[path = "common/wire.rs"]
mod wire;

use std::collections::BinaryHeap;

use freshline_core::path::{PathId, SchedulerConfig};
use freshline_core::session::{
    Monitor, MonitorParams, PathPhase, Paths, Reach, Secret, Source, SourceParams, TransportState,
};
use freshline_core::source::Fixed;
use freshline_core::unit::{Span, Time, UpdateRate};
use freshline_core::wire::{Ack, Message};

use driven::{next_update, turn};
use wire::advance_to_first;

/// The round trip of a path, in ms; `None`: the path is cut.
type Delays = [Option<u64>; 2];

/// A datagram in flight: its arrival, a number for its place, its path, and whether it goes
/// forward.
type OnTheWay = std::cmp::Reverse<(Time, u64, u8, bool, Vec<u8>)>;

struct World {
    now: Time,
    source: Source,
    monitor: Monitor<u8>,
    delays: Vec<Delays>,
    under_way: BinaryHeap<OnTheWay>,
    number: u64,
    fresh_at: Time,
    longest_gap: Span,
}

impl World {
    /// 50 updates a second over paths with these delays.
    fn new(scheduler: &str, delays: &[Delays]) -> Self {
        let scheduler: SchedulerConfig = scheduler.parse().expect("there is one");
        let paths = Paths::new(delays.len(), &scheduler).expect("a few paths");
        let law = Box::new(Fixed::new(UpdateRate::saturating(50.0)));
        let source = Source::new(SourceParams::default(), Secret::new([7; 16]), law, Time::ZERO);
        Self {
            now: Time::ZERO,
            source: source.expect("no name").over(paths),
            monitor: Monitor::new(MonitorParams::default(), Secret::new([1; 16])),
            delays: delays.to_vec(),
            under_way: BinaryHeap::new(),
            number: 0,
            fresh_at: Time::ZERO,
            longest_gap: Span::ZERO,
        }
    }

    fn run(&mut self, length: Span) {
        let end = self.now + length;
        loop {
            let first = self.under_way.peek().map(|next| next.0.0);
            if !advance_to_first(&mut self.now, end, &self.source, first) {
                return;
            }
            self.arrive();
            for (transmit, datagram) in turn(&mut self.source, self.now, b"state", |_| ()) {
                self.carry(transmit.path.0, true, &datagram);
            }
        }
    }

    fn carry(&mut self, path: u8, is_there: bool, datagram: &[u8]) {
        let delay = self.delays[usize::from(path)][usize::from(!is_there)];
        let Some(delay) = delay else { return };
        self.number += 1;
        let at = self.now + Span::from_millis(delay);
        let datagram = datagram.to_vec();
        self.under_way.push(std::cmp::Reverse((at, self.number, path, is_there, datagram)));
    }

    fn arrive(&mut self) {
        while self.under_way.peek().is_some_and(|next| next.0.0 <= self.now) {
            let Some(std::cmp::Reverse((_, _, path, is_there, datagram))) = self.under_way.pop()
            else {
                return;
            };
            if !is_there {
                let _ = self.source.handle_datagram(self.now, PathId(path), &datagram);
                continue;
            }
            let before = self.monitor.counters().fresh;
            let reply = driven::tell(&mut self.monitor, self.now, path, &datagram).reply;
            if self.monitor.counters().fresh > before {
                self.longest_gap = self.longest_gap.max(self.now.since(self.fresh_at));
                self.fresh_at = self.now;
            }
            self.carry(path, false, &reply);
        }
    }

    fn phase(&self, path: usize) -> PathPhase {
        let mut statuses = self.source.paths().statuses(self.now, None);
        statuses.nth(path).expect("there is one").phase
    }

    /// How many times the session was opened at either end, and whether it is.
    fn opened(&self) -> (u64, u64, bool) {
        let is_open = self.source.reach() == Reach::Open;
        (self.source.counters().opened, self.monitor.counters().opened, is_open)
    }
}

const ONCE: (u64, u64, bool) = (1, 1, true);

fn both(ms: u64) -> Delays {
    [Some(ms), Some(ms)]
}

#[test]
fn the_first_answer_opens_and_the_challenge_of_a_slower_path_changes_nothing() {
    for scheduler in ["freshest", "qaware", "min_srtt", "round_robin", "redundant"] {
        let mut world = World::new(scheduler, &[both(10), both(150)]);
        world.run(Span::from_millis(45));
        assert_eq!(world.opened(), ONCE, "{scheduler}: two round trips of the faster path");
        world.run(Span::from_secs(5));
        assert_eq!(world.opened(), ONCE, "{scheduler}");
        assert_eq!(world.phase(0), PathPhase::Live);
        assert_eq!(world.phase(1), PathPhase::Live, "{scheduler}: copies of openings came back");
    }
}

#[test]
fn a_path_that_is_dead_from_the_beginning_does_not_delay_the_opening() {
    let mut world = World::new("freshest", &[[None, None], both(30)]);
    world.run(Span::from_millis(125));
    assert_eq!(world.opened(), ONCE);
    world.run(Span::from_secs(3));
    assert_eq!((world.phase(0), world.phase(1)), (PathPhase::Untried, PathPhase::Live));
    // Then it lives, and is faster.
    world.delays[0] = both(5);
    world.run(Span::from_secs(3));
    assert_eq!((world.phase(0), world.opened()), (PathPhase::Live, ONCE));
}

#[test]
fn the_faster_path_may_swallow_all_answers() {
    // Its copies come first, so that those of the other path are never fresh.
    let mut world = World::new("redundant", &[[Some(5), None], both(30)]);
    world.run(Span::from_secs(1));
    assert!(world.opened().2, "by the ack of a copy");
    world.run(Span::from_secs(20));
    let (source, monitor, is_open) = world.opened();
    assert!(is_open && source == 1 && monitor <= 2, "{source} {monitor}");
}

#[test]
fn a_cut_path_costs_a_few_round_trips_and_no_new_session() {
    for scheduler in ["freshest", "qaware", "min_srtt", "redundant"] {
        let mut world = World::new(scheduler, &[both(10), both(40)]);
        world.run(Span::from_secs(5));
        world.longest_gap = Span::ZERO;
        world.delays[0] = [None, None];
        world.run(Span::from_secs(10));
        assert_eq!(world.phase(0), PathPhase::Silent, "{scheduler}");
        // Overdue after 30 ms, of which the first is up to 20 ms late; the next update; the one-way
        // delay.
        assert!(world.longest_gap <= Span::from_millis(120), "{scheduler}: {}", world.longest_gap);
        world.delays[0] = both(10);
        world.run(Span::from_secs(4));
        assert_eq!((world.phase(0), world.opened()), (PathPhase::Live, ONCE), "{scheduler}");
    }
}

#[test]
fn all_cut_is_a_silence_and_either_path_ends_it() {
    let mut world = World::new("freshest", &[both(10), both(40)]);
    world.run(Span::from_secs(5));
    world.delays = vec![[None, None]; 2];
    world.run(Span::from_secs(10));
    assert!(matches!(world.source.reach(), Reach::Opening { .. }));
    world.delays[1] = both(40);
    world.run(Span::from_secs(3));
    assert_eq!(world.opened(), (2, 1, true), "the monitor still knows it");
}

#[test]
fn after_a_long_opening_the_other_paths_are_tried_at_once() {
    let mut world = World::new("freshest", &[[None, None], [None, None]]);
    // Openings leave every 2 s by now.
    world.run(Span::from_secs(10));
    world.delays = vec![both(10), both(40)];
    while !world.opened().2 {
        world.run(Span::from_millis(10));
    }
    world.run(Span::from_millis(150));
    assert_eq!(world.phase(0), PathPhase::Live);
    assert_eq!(world.phase(1), PathPhase::Live, "the next update took it too");
}

#[test]
fn a_newest_state_that_is_called_stale_is_to_be_repeated() {
    let mut world = World::new("freshest", &[both(10), both(10)]);
    world.run(Span::from_secs(2));
    // Only the answer to the newest state is in flight, and it says that the state was stale.
    world.under_way.clear();
    let (now, left) = next_update(&mut world.source, world.now, b"state");
    world.now = now;
    left.iter().for_each(|(transmit, update)| world.carry(transmit.path.0, true, update));
    world.now += Span::from_millis(10);
    world.arrive();
    let answer = world.under_way.pop().expect("an answer").0;
    let Ok(Message::Ack(ack)) = Message::parse(&answer.4) else { panic!("{answer:?}") };
    let stale = Ack { was_fresh: false, ..ack }.bytes();
    let now = answer.0;
    let result = world.source.handle_datagram(now, PathId(answer.2), &stale);
    assert!(result.is_err(), "{result:?}");
    let repeat_at = world.source.repeat_at().expect("the monitor may not have it");
    assert!(repeat_at > now && repeat_at <= now + Span::from_millis(60), "{repeat_at:?} {now:?}");
}

#[test]
fn a_monitor_that_was_restarted_is_opened_again_by_all_paths() {
    let mut world = World::new("freshest", &[both(10), both(40)]);
    world.run(Span::from_secs(5));
    world.monitor = Monitor::new(MonitorParams::default(), Secret::new([2; 16]));
    world.run(Span::from_secs(1));
    assert_eq!(world.opened(), (2, 1, true));
    world.run(Span::from_secs(2));
    assert!((0..2).all(|path| world.phase(path) == PathPhase::Live));
}

/// The challenge comes over a path that has yet to be proven, as from a monitor that knows the
/// session. The source must find out that the monitor does not know the session: otherwise names of
/// topics, keys at rest and records would be missing for ever.
#[test]
fn a_monitor_that_was_restarted_is_noticed_by_a_path_that_is_new() {
    let mut world = World::new("freshest", &[both(10), both(40)]);
    world.run(Span::from_secs(5));
    world.source.handle_transport(world.now, PathId(1), TransportState::Down);
    world.run(Span::from_secs(1));
    world.monitor = Monitor::new(MonitorParams::default(), Secret::new([2; 16]));
    world.delays[0] = [None, None];
    world.source.handle_transport(world.now, PathId(1), TransportState::Ready);
    world.run(Span::from_secs(3));
    assert_eq!(world.opened(), (2, 1, true));
}

#[test]
fn a_path_without_its_interface_is_left_at_once() {
    let mut world = World::new("freshest", &[both(10), both(40)]);
    world.run(Span::from_secs(5));
    world.source.handle_transport(world.now, PathId(0), TransportState::Down);
    world.longest_gap = Span::ZERO;
    world.run(Span::from_secs(2));
    assert!(world.longest_gap <= Span::from_millis(60), "{}", world.longest_gap);
    world.source.handle_transport(world.now, PathId(1), TransportState::Down);
    world.run(Span::from_secs(5));
    assert!(matches!(world.source.reach(), Reach::Opening { .. }), "none is left");
    world.source.handle_transport(world.now, PathId(0), TransportState::Ready);
    world.run(Span::from_millis(50));
    assert_eq!(world.opened(), (2, 1, true), "it tries at once");
}
