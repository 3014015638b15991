//! Code points in a session: which messages are marked, and each end's knowledge of the path.

#[path = "common/session.rs"]
mod driven;

use freshline_core::dscp::Dscp;
use freshline_core::path::PathId;
use freshline_core::session::{
    Admission, Datagram, MarkVerdict, Monitor, MonitorParams, Secret, Source, SourceParams,
};
use freshline_core::source::Fixed;
use freshline_core::unit::{Span, Time, UpdateRate};
use freshline_core::wire::{Ack, AckMark};

const FIRST: PathId = PathId::FIRST;

fn dscp(name: &str) -> Dscp {
    name.parse().unwrap()
}

/// A source and a monitor, 1 ms from each other.
struct World {
    now: Time,
    source: Source,
    monitor: Monitor<u8>,
    state: Vec<u8>,
    /// The path's changes of code points, forward and reverse.
    path: [fn(Dscp) -> Dscp; 2],
    /// With which code points updates and answers left.
    left: Vec<[Dscp; 2]>,
}

impl World {
    fn new(asked: Option<&str>, decided: Option<&str>, path: [fn(Dscp) -> Dscp; 2]) -> Self {
        let mark = |text: Option<&str>| text.map(|text| text.parse::<AckMark>().unwrap());
        let params =
            SourceParams { dscp: dscp("EF"), ack_mark: mark(asked), ..SourceParams::default() };
        let now = Time::ZERO + Span::from_secs(1);
        let law = Box::new(Fixed::new(UpdateRate::saturating(10.0)));
        let monitor = MonitorParams {
            admission: Admission::Cookie,
            ack_mark: mark(decided),
            ..MonitorParams::default()
        };
        Self {
            now,
            source: Source::new(params, Secret::new([7; 16]), law, now).unwrap(),
            monitor: Monitor::new(monitor, Secret::new([1; 16])),
            state: b"state".to_vec(),
            path,
            left: Vec::new(),
        }
    }

    /// One update and its answer.
    fn step(&mut self) {
        let (now, left) = driven::next_update(&mut self.source, self.now, &self.state);
        let [(transmit, datagram)] = &left[..] else { panic!("{} datagrams", left.len()) };
        let sent = transmit.dscp;
        self.now = now + Span::from_millis(1);
        let update = Datagram::marked(datagram, Some(self.path[0](sent)));
        let heard = driven::tell(&mut self.monitor, self.now, 1, update);
        let mark = heard.dscp;
        self.left.push([sent, mark]);
        self.now += Span::from_millis(1);
        let seen = Some(self.path[1](mark));
        let answer = Datagram::marked(&heard.reply, seen);
        self.source.handle_datagram(self.now, FIRST, answer).unwrap();
    }

    fn run(mut self) -> Self {
        (0..10).for_each(|_| self.step());
        self
    }

    fn verdicts(&self) -> [MarkVerdict; 2] {
        let marks = self.source.marks(FIRST).unwrap();
        [marks.forward.verdict(), marks.reverse.verdict()]
    }
}

#[test]
fn updates_of_an_open_session_are_marked_and_neither_openings_nor_challenges() {
    let world = World::new(Some("CS5"), None, [|dscp| dscp; 2]).run();
    let [opening, opened, updates @ ..] = &world.left[..] else { panic!("{:?}", world.left) };
    // The first answer is a challenge, the second the ack that opens the session.
    assert_eq!(*opening, [Dscp::DEFAULT; 2]);
    assert_eq!(*opened, [Dscp::DEFAULT, dscp("CS5")]);
    assert!(updates.iter().all(|marks| *marks == [dscp("EF"), dscp("CS5")]), "{updates:?}");
    assert_eq!(world.verdicts(), [MarkVerdict::Kept; 2]);
    let marks = world.source.marks(FIRST).unwrap();
    assert_eq!((marks.forward.kept(), marks.forward.changed()), (8, 0), "openings do not count");
    let record = world.monitor.records().next().unwrap().1;
    assert_eq!(record.dscp(), Some(dscp("EF")));
}

#[test]
fn parts_of_a_state_are_not_marked_and_do_not_count_as_marks_that_were_changed() {
    let mut world = World::new(Some("echo"), None, [|dscp| dscp; 2]);
    world.state = vec![7; 1_000_000];
    let mut world = world.run();
    assert!(world.source.counters().parts > 5, "{:?}", world.source.counters());
    assert!(world.left.iter().all(|marks| *marks == [Dscp::DEFAULT; 2]), "{:?}", world.left);
    assert_eq!(world.verdicts()[0], MarkVerdict::Unknown);
    // A state that one update carries is marked again.
    world.left.clear();
    world.state = b"state".to_vec();
    let world = world.run().run();
    assert_eq!(world.left.last(), Some(&[dscp("EF"); 2]), "{:?}", world.left);
    assert_eq!(world.verdicts()[0], MarkVerdict::Kept);
}

#[test]
fn acks_are_marked_as_asked_unless_the_monitor_decides() {
    for (asked, decided, expected) in [
        (None, None, "CS0"),
        (Some("echo"), None, "EF"),
        (Some("AF41"), None, "AF41"),
        (None, Some("echo"), "EF"),
        (Some("CS7"), None, "CS0"),
        (Some("CS7"), Some("0"), "CS0"),
        (Some("CS7"), Some("CS1"), "CS1"),
    ] {
        let world = World::new(asked, decided, [|dscp| dscp; 2]).run();
        let last = world.left.last().unwrap();
        assert_eq!(*last, [dscp("EF"), dscp(expected)], "{asked:?}, {decided:?}");
    }
}

#[test]
fn the_source_learns_in_which_direction_a_path_changes_marks() {
    let cleared = MarkVerdict::Changed(Dscp::DEFAULT);
    let [keep, clear]: [fn(Dscp) -> Dscp; 2] = [|dscp| dscp, |_| Dscp::DEFAULT];
    // An echo repeats the code point that arrived.
    let world = World::new(Some("CS5"), None, [clear, keep]).run();
    assert_eq!(world.verdicts(), [cleared, MarkVerdict::Kept]);
    let world = World::new(Some("CS5"), None, [keep, clear]).run();
    assert_eq!(world.verdicts(), [MarkVerdict::Kept, cleared]);
    let world = World::new(Some("echo"), None, [|_| dscp("CS1"), keep]).run();
    assert_eq!(world.verdicts(), [MarkVerdict::Changed(dscp("CS1")), MarkVerdict::Kept]);
    assert_eq!(world.left.last().unwrap()[1], dscp("CS1"));
}

#[test]
fn a_monitor_that_says_nothing_of_code_points_leaves_the_source_in_doubt() {
    let mut world = World::new(None, None, [|dscp| dscp; 2]);
    let mut acks = 0;
    for _ in 0..10 {
        let (now, left) = driven::next_update(&mut world.source, world.now, b"state");
        world.now = now;
        let mut reply = driven::tell(&mut world.monitor, world.now, 1, &left[0].1).reply;
        if reply.len() == Ack::LEN {
            // As older versions write it.
            reply[13..16].fill(0);
            acks += 1;
        }
        world.now += Span::from_millis(1);
        let seen = Some(Dscp::DEFAULT);
        let answer = Datagram::marked(&reply, seen);
        world.source.handle_datagram(world.now, FIRST, answer).unwrap();
    }
    assert!(acks > 5, "{acks} acks");
    assert_eq!(world.verdicts(), [MarkVerdict::Unknown; 2]);
}
