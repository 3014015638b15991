//! Maximum ages at the monitor, update by update: which states are withheld, and until when;
//! sources that leave, come back or have no name; a driver that does not poll.

use freshline_core::session::{
    Admission, Alarm, End, Monitor, MonitorEvent, MonitorParams, Secret, SourceKey,
};
use freshline_core::unit::{Span, Time};
use freshline_core::wire::{
    Close, CloseReason, Frame, Frames, OffsetEstimate, Opening, SessionId, StateId, Update,
};

const LIMIT: Span = Span::from_secs(1);

/// The error of each offset.
const ERROR: Span = Span::from_millis(100);

fn at(millis: u64) -> Time {
    // The source's clock is that of the monitor.
    Time::ZERO + Span::from_secs(1_000) + Span::from_millis(millis)
}

struct World {
    monitor: Monitor<u8>,
}

/// An update, with names that are short.
struct Sent {
    session: u64,
    seq: u64,
    sent_ms: u64,
    /// How old the state is as it leaves, ms.
    age_ms: u64,
    /// How far the number of the state is behind.
    behind: u64,
    offset_ms: Option<i64>,
    opens: Option<&'static str>,
}

impl Sent {
    fn new(session: u64, seq: u64, sent_ms: u64) -> Self {
        Self { session, seq, sent_ms, age_ms: 0, behind: 0, offset_ms: Some(0), opens: None }
    }

    fn opening(session: u64, name: &'static str, sent_ms: u64) -> Self {
        Self { offset_ms: None, opens: Some(name), ..Self::new(session, 10, sent_ms) }
    }
}

/// The relevant part of an event.
#[derive(Debug, PartialEq)]
enum Seen {
    Opened,
    State,
    Repeat,
    Withheld,
    Stale(&'static str),
    Recovered(&'static str),
    Gone,
    Other,
}

fn name_of(alarm: &Alarm) -> &'static str {
    ["robot", "meter"].into_iter().find(|name| **name == *alarm.name).unwrap_or("")
}

fn seen(event: MonitorEvent<u8>) -> Seen {
    match event {
        MonitorEvent::Opened { .. } => Seen::Opened,
        MonitorEvent::Fresh { is_repeat: false, .. } => Seen::State,
        MonitorEvent::Fresh { .. } => Seen::Repeat,
        MonitorEvent::Withheld { .. } => Seen::Withheld,
        MonitorEvent::Freshness(alarm) if alarm.is_stale => Seen::Stale(name_of(&alarm)),
        MonitorEvent::Freshness(alarm) => Seen::Recovered(name_of(&alarm)),
        MonitorEvent::Gone { why: End::Closed, .. } => Seen::Gone,
        _ => Seen::Other,
    }
}

impl World {
    fn new(max_sources: usize) -> Self {
        let params = MonitorParams {
            admission: Admission::Proven,
            max_sources,
            max_age: vec![format!("*={LIMIT}").parse().expect("a rule")],
            ..MonitorParams::default()
        };
        Self { monitor: Monitor::new(params, Secret::new([1; 16])) }
    }

    fn hand_in(&mut self, now_ms: u64, sent: &Sent) {
        let Sent { session, seq, sent_ms, age_ms, behind, offset_ms, opens } = *sent;
        let id = StateId { topic: 0, behind, age: Span::from_millis(age_ms) };
        let update = Update {
            session: SessionId(session),
            seq,
            sent_at: at(sent_ms),
            clock_offset: offset_ms.map(|ms| OffsetEstimate::new(ms * 1_000_000, ERROR)),
            wants_ack: false,
            wants_return: false,
            ack_mark: None,
            opening: opens.map(|name| Opening { cookie: Default::default(), name, token: b"" }),
            frames: Frames::one(Frame::State { id, bytes: b"state" }),
        };
        let mut datagram = [0; 200];
        let len = update.write(&mut datagram).expect("it fits");
        self.monitor.handle_datagram(at(now_ms), 1, &datagram[..len]).expect("it is of use");
    }

    fn tell(&mut self, now_ms: u64, sent: &Sent) -> Vec<Seen> {
        self.hand_in(now_ms, sent);
        self.events()
    }

    fn close(&mut self, now_ms: u64, session: u64) -> Vec<Seen> {
        let close = Close { session: SessionId(session), reason: CloseReason::Done };
        self.monitor.handle_datagram(at(now_ms), 1, &close.bytes()).expect("it is known");
        self.events()
    }

    fn wait(&mut self, until_ms: u64) -> Vec<Seen> {
        while let Some(due) = self.monitor.poll_timeout().filter(|due| *due <= at(until_ms)) {
            self.monitor.handle_timeout(due);
        }
        self.events()
    }

    fn events(&mut self) -> Vec<Seen> {
        std::iter::from_fn(|| self.monitor.poll_event()).map(seen).collect()
    }

    fn has_latest(&self, now_ms: u64) -> bool {
        let source: Option<SourceKey> = self.monitor.records().next().map(|(source, _)| source);
        self.monitor.latest(at(now_ms), source.expect("it is open"), 0).is_some()
    }
}

#[test]
fn a_state_is_withheld_until_its_age_is_known_and_a_topic_is_stale_at_the_upper_end() {
    let mut world = World::new(9);
    assert_eq!(world.tell(10, &Sent::opening(1, "robot", 0)), [Seen::Opened]);
    assert!(!world.has_latest(10));
    // The same state with its age, of 20 ms and 100 ms of uncertainty.
    let repeat = Sent { behind: 1, age_ms: 10, ..Sent::new(1, 11, 10) };
    assert_eq!(world.tell(20, &repeat), [Seen::State]);
    assert!(world.has_latest(20) && world.has_latest(895) && !world.has_latest(905));
    assert_eq!(world.wait(895), []);
    assert_eq!(world.wait(905), [Seen::Stale("robot")]);
    assert_eq!(world.monitor.stale_topics(), 1);
    assert_eq!(world.tell(910, &Sent::new(1, 12, 905)), [Seen::Recovered("robot"), Seen::State]);
    // One that is younger than its maximum age, and may be older.
    let old = Sent { age_ms: 950, ..Sent::new(1, 13, 3_000) };
    assert_eq!(world.tell(3_010, &old), [Seen::Stale("robot"), Seen::Withheld]);
    assert_eq!(world.monitor.counters().too_old, 1);
}

#[test]
fn the_first_state_is_stale_at_once_if_it_is_too_old_and_in_time_if_its_age_stays_unknown() {
    let mut world = World::new(9);
    world.tell(10, &Sent::opening(1, "robot", 0));
    let old = Sent { age_ms: 2_000, ..Sent::new(1, 11, 20) };
    assert_eq!(world.tell(30, &old), [Seen::Stale("robot"), Seen::Withheld]);
    world.tell(40, &Sent::opening(2, "meter", 35));
    let unknown = Sent { offset_ms: None, ..Sent::new(2, 11, 500) };
    assert_eq!(world.tell(505, &unknown), [Seen::Withheld]);
    assert_eq!(world.wait(1_039), []);
    assert_eq!(world.wait(1_041), [Seen::Stale("meter")]);
}

#[test]
fn offsets_that_cannot_be_right_bound_nothing() {
    let mut world = World::new(9);
    world.tell(10, &Sent::opening(1, "robot", 0));
    // From before the opening: of a monitor that was here before. The number of its state is higher.
    let before = Sent { ..Sent::new(1, 9, 0) };
    assert_eq!(world.tell(20, &before), [Seen::Other]);
    // By it the update would leave 250 ms after it came, or 150 ms with the error.
    let ahead = Sent { offset_ms: Some(260), ..Sent::new(1, 11, 20) };
    assert_eq!(world.tell(30, &ahead), [Seen::Withheld]);
    assert_eq!(world.tell(50, &Sent::new(1, 12, 40)), [Seen::State]);
    // A state that was sampled after that one is not older, whatever is known of its own age.
    let unknown = Sent { offset_ms: None, ..Sent::new(1, 13, 50) };
    assert_eq!(world.tell(60, &unknown), [Seen::State]);
    assert_eq!((world.wait(935), world.wait(945)), (vec![], vec![Seen::Stale("robot")]));
}

#[test]
fn a_late_repeat_can_bring_the_age_of_a_state() {
    let mut world = World::new(9);
    world.tell(10, &Sent::opening(1, "robot", 0));
    // Overtaken by an update without an offset, which repeats the state, too.
    let repeat = |seq, offset_ms| Sent {
        behind: seq - 10,
        age_ms: seq,
        offset_ms,
        ..Sent::new(1, seq, seq)
    };
    assert_eq!(world.tell(30, &repeat(12, None)), [Seen::Withheld]);
    assert_eq!(world.tell(40, &repeat(11, Some(0))), [Seen::Other, Seen::State]);
}

#[test]
fn what_was_fresh_becomes_stale_after_its_session_and_recovers_in_the_next_one() {
    let mut world = World::new(9);
    world.tell(10, &Sent::opening(1, "robot", 0));
    assert_eq!(world.tell(30, &Sent::new(1, 11, 20)), [Seen::State]);
    assert_eq!(world.close(40, 1), [Seen::Gone]);
    assert!(world.monitor.is_empty());
    assert_eq!((world.wait(915), world.wait(925)), (vec![], vec![Seen::Stale("robot")]));
    let freshness = world.monitor.freshness_after("robot", "", b"").expect("it is kept");
    assert_eq!((freshness.max_age, freshness.is_fresh), (LIMIT, Some(false)));
    // Another session of that name.
    assert_eq!(world.tell(2_000, &Sent::opening(2, "robot", 1_990)), [Seen::Opened]);
    assert_eq!(
        world.tell(2_020, &Sent::new(2, 11, 2_010)),
        [Seen::Recovered("robot"), Seen::State]
    );
    // One that replaces it while it is fresh changes nothing, and may be silent.
    assert_eq!(world.tell(2_100, &Sent::opening(3, "robot", 2_090)), [Seen::Opened]);
    assert_eq!((world.wait(2_905), world.wait(2_915)), (vec![], vec![Seen::Stale("robot")]));
    assert_eq!((world.monitor.len(), world.monitor.stale_topics()), (1, 1));
}

#[test]
fn a_source_without_a_name_becomes_stale_and_is_forgotten() {
    let mut world = World::new(9);
    world.tell(10, &Sent::opening(1, "", 0));
    world.tell(30, &Sent::new(1, 11, 20));
    world.close(40, 1);
    assert_eq!(world.wait(925), [Seen::Stale("")]);
    assert_eq!((world.monitor.stale_topics(), world.monitor.poll_timeout()), (0, None));
}

#[test]
fn a_driver_that_does_not_poll_gets_the_last_two_alarms_of_a_topic() {
    let mut world = World::new(9);
    world.tell(10, &Sent::opening(1, "robot", 0));
    for (seq, sent_ms) in (11..).zip((20..40_000).step_by(2_000)) {
        world.hand_in(sent_ms + 10, &Sent::new(1, seq, sent_ms));
        world.monitor.handle_timeout(at(sent_ms + 1_500));
    }
    let alarms = world
        .events()
        .into_iter()
        .filter(|seen| matches!(seen, Seen::Stale(_) | Seen::Recovered(_)));
    assert_eq!(alarms.collect::<Vec<_>>(), [Seen::Stale("robot")]);
    // An even number of changes.
    world.hand_in(50_010, &Sent::new(1, 100, 50_000));
    world.monitor.handle_timeout(at(51_500));
    assert_eq!(world.events()[..2], [Seen::Recovered("robot"), Seen::Stale("robot")]);
}

#[test]
fn of_too_many_ended_sessions_the_oldest_becomes_stale_early() {
    let mut world = World::new(1);
    let mut stale = 0;
    for session in 0..16_390 {
        world.tell(10, &Sent::opening(session, "", 0));
        world.tell(30, &Sent::new(session, 11, 20));
        let events = world.close(40, session);
        stale += events.iter().filter(|seen| **seen == Seen::Stale("")).count();
    }
    assert_eq!(stale, 6);
    assert_eq!(world.wait(925).len(), 16_384, "none is lost");
}

#[test]
fn at_the_end_of_time_nothing_loops() {
    let mut world = World::new(9);
    world.tell(u64::MAX, &Sent::opening(1, "robot", u64::MAX));
    let seen = world.tell(u64::MAX, &Sent::new(1, 11, u64::MAX));
    assert_eq!(seen.last(), Some(&Seen::State));
    world.monitor.handle_timeout(Time::MAX);
    assert!(world.has_latest(u64::MAX));
}
