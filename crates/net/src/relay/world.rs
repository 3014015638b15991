//! Sources, one or two relays in a row, and destinations in virtual time, without sockets.
//!
//! ```text
//!   sources ─► hop ─► relay ─┬─► hop ─► destination
//!                            └─► hop ─► destination        or     relay ─► hop ─► relay ─► destinations
//! ```
//!
//! Each host has its own clock, and each hop its own faults; without faults a datagram arrives in
//! the step in which it is sent.

mod destination;
pub(super) mod hop;
mod sessions;

use std::collections::BTreeMap;
use std::sync::Arc;

use freshline_core::session::{
    self, Admission, MonitorParams, Secret, SourceEvent, SourceParams, TopicId, TopicKind,
    TopicParams,
};
use freshline_core::source::Fixed;
use freshline_core::unit::{Span, Time, UpdateRate};
use freshline_core::wire::{Frame, Frames, OffsetEstimate, Opening, SessionId, StreamId, Update};

use self::destination::{Destination, OTHER, Truth, Which};
use self::hop::{Clock, Direction, Hop};
use self::sessions::{PATH, Sessions};
use super::board::Board;
use crate::monitor::{Books, Sender};
use crate::waker::Waker;

/// Time passes in steps of this length.
pub(super) const STEP: Span = Span::from_millis(5);

/// States of topics and records at the relay, in bytes.
pub(super) const MAX_BYTES: usize = 1 << 20;

/// The monitor ends a session after this time without an update.
pub(super) const IDLE: Span = Span::from_secs(2);

/// The topic of the source's states, and the topic of its keys.
const POSE: &str = "pose";
const KEYS: &str = "keys";

/// Seeds of sessions and monitors; all differ.
#[derive(Default)]
struct Seeds(u64);

impl Seeds {
    fn secret(&mut self) -> Secret {
        self.0 += 1;
        Secret::new((u128::from(self.0) << 8 | 1).to_be_bytes())
    }

    /// A session, and its sender number.
    fn session(
        &mut self,
        now: Time,
        name: &str,
        topics: Vec<TopicParams>,
    ) -> (session::Source, u16) {
        let params = SourceParams {
            name: name.to_owned(),
            keep_alive: STEP * 20,
            max_datagram: 1_200,
            ..SourceParams::default()
        };
        let law = Box::new(Fixed::new(UpdateRate::saturating(100.0)));
        let session = session::Source::new(params, self.secret(), law, now).expect("it is legal");
        (session.with_topics(topics).expect("they are legal"), self.0 as u16)
    }
}

/// A record that is not known to be done.
struct Record {
    /// The number of its first chunk.
    first: u64,
    /// When it was generated, on the source's clock.
    at: Time,
    bytes: Vec<u8>,
}

/// A topic of records of a source.
struct Log {
    id: TopicId,
    stream: u64,
    held: Vec<Record>,
    /// The number of the next record.
    next: u64,
}

/// A source with topics of records, one topic of states and one of keys.
pub(super) struct Upstream {
    session: session::Source,
    sender: u16,
    name: &'static str,
    clock: Clock,
    pub(super) is_cut: bool,
    logs: BTreeMap<&'static str, Log>,
    keys: TopicId,
    /// The newest state of each topic and key.
    states: BTreeMap<Which, Vec<u8>>,
}

/// A relay, with its sessions at each destination.
pub(super) struct Relay {
    pub(super) clock: Clock,
    pub(super) hop: Hop,
    pub(super) monitor: session::Monitor<Sender>,
    books: Books,
    board: Board,
    sessions: Vec<Sessions>,
}

pub(super) struct World {
    pub(super) now: Time,
    seeds: Seeds,
    admission: Admission,
    /// The clock of all sources.
    pub(super) clock: Clock,
    sources: Vec<Upstream>,
    pub(super) relays: Vec<Relay>,
    pub(super) downstream: Vec<Destination>,
    truth: Truth,
}

fn params(admission: Admission) -> MonitorParams {
    MonitorParams { admission, idle: IDLE, ..MonitorParams::default() }
}

impl World {
    /// One relay, with hops on which datagrams cannot be forged.
    pub(super) fn new(destinations: usize) -> Self {
        Self::of(1, destinations, Admission::Proven, 0)
    }

    /// Relays in a row, with hops whose faults are drawn from a seed.
    pub(super) fn of(relays: usize, destinations: usize, admission: Admission, seed: u64) -> Self {
        let mut seeds = Seeds::default();
        let hop = |place| Hop::new(seed.wrapping_mul(9).wrapping_add(place as u64));
        let relays = (0..relays).map(|place| {
            let next = if place + 1 < relays { 1 } else { destinations };
            Relay::new(hop(place), next, admission, seeds.secret())
        });
        let relays: Vec<_> = relays.collect();
        let downstream = (0..destinations).map(|number| {
            let monitor = session::Monitor::new(params(admission), seeds.secret());
            Destination::new(number, hop(relays.len() + number), monitor)
        });
        Self {
            now: Time::ZERO + Span::from_secs(1_000),
            downstream: downstream.collect(),
            relays,
            seeds,
            admission,
            clock: Clock::default(),
            sources: Vec::new(),
            truth: Truth::default(),
        }
    }

    // ---- events ----

    /// Starts a source with the topic `pose` of this kind, and topics of records with their
    /// streams. If the name existed before, the source puts its unfinished records again.
    pub(super) fn start(
        &mut self,
        name: &'static str,
        pose: TopicKind,
        logs: &[(&'static str, u64)],
    ) {
        let former = self.sources.iter().position(|it| it.name == name);
        let former = former.map(|place| self.sources.remove(place));
        let clock = self.clock;
        let mut former = former.map(|former| former.logs).unwrap_or_default();
        let logs = logs.iter().map(|(log, stream)| {
            let held = former.remove(log).filter(|it| it.stream == *stream);
            let (held, next) = held.map(|log| (log.held, log.next)).unwrap_or_default();
            (*log, *stream, next, held)
        });
        let logs: Vec<_> = logs.collect();
        let topics = logs.iter().map(|(log, stream, next, held)| {
            let first = held.first().map_or(*next, |record| record.first);
            let (stream, max_bytes) = (StreamId(*stream), TopicKind::DEFAULT_BYTES);
            TopicParams {
                kind: TopicKind::Every { stream, first, max_bytes },
                ..TopicParams::new(*log)
            }
        });
        let pose = TopicParams { kind: pose, ..TopicParams::new(POSE) };
        let keys = TopicParams { kind: TopicKind::KEYED, ..TopicParams::new(KEYS) };
        let topics = [pose].into_iter().chain(topics).chain([keys]).collect();
        let local = clock.read(self.now);
        let (session, sender) = self.seeds.session(local, name, topics);
        let ids: Vec<_> = session.topics().map(|(id, _)| id).collect();
        let keys = ids[ids.len() - 1];
        let (is_cut, states) = (false, BTreeMap::new());
        let mut source =
            Upstream { session, sender, name, clock, is_cut, logs: BTreeMap::new(), keys, states };
        for ((log, stream, next, held), id) in logs.into_iter().zip(ids.into_iter().skip(1)) {
            source.logs.insert(log, Log { id, stream, held: Vec::new(), next });
            for Record { at, bytes, .. } in held {
                source.put(local, log, at, bytes);
            }
        }
        self.sources.push(source);
    }

    /// The source's process ends and another one starts, which puts a new state of each topic and
    /// key.
    pub(super) fn restart_source(&mut self, name: &'static str) {
        let source = self.source(name);
        let states = std::mem::take(&mut source.states);
        let logs: Vec<_> = source.logs.iter().map(|(log, it)| (*log, it.stream)).collect();
        self.start(name, TopicKind::Latest, &logs);
        self.put_like(name, states);
    }

    /// The source puts a new state of each topic and key that has one.
    pub(super) fn put_again(&mut self, name: &str) {
        let states = self.source(name).states.clone();
        self.put_like(name, states);
    }

    /// The source puts a new state for each of these states, with the same length.
    fn put_like(&mut self, name: &str, states: BTreeMap<Which, Vec<u8>>) {
        for ((_, key), former) in states {
            self.put_state(name, key.as_deref(), former.len());
        }
    }

    /// All hops: to the first relay, to the next one, and so on.
    pub(super) fn hops(&mut self) -> impl Iterator<Item = &mut Hop> {
        let relays = self.relays.iter_mut().map(|relay| &mut relay.hop);
        relays.chain(self.downstream.iter_mut().map(|to| &mut to.hop))
    }

    pub(super) fn source(&mut self, name: &str) -> &mut Upstream {
        self.sources.iter_mut().find(|source| source.name == name).expect("it has begun")
    }

    /// Puts records whose content is their number.
    pub(super) fn put(&mut self, name: &str, log: &str, numbers: std::ops::Range<u32>) {
        let now = self.now;
        for number in numbers {
            let bytes = number.to_string().into_bytes();
            self.truth.put_record(name, log, &bytes, now);
            let source = self.source(name);
            let local = source.clock.read(now);
            source.put(local, log, local, bytes);
        }
    }

    pub(super) fn put_pose(&mut self, name: &str, key: Option<&[u8]>) {
        let now = self.now;
        let which = (POSE.to_owned(), key.map(<[u8]>::to_vec));
        let sender = self.source(name).sender;
        let bytes = self.truth.put(sender.into(), which, now, 0);
        self.source(name).put_newest(now, TopicId::FIRST, key, &bytes);
    }

    /// Puts a state of this length: of a key, or of the pose.
    pub(super) fn put_state(&mut self, name: &str, key: Option<&[u8]>, len: usize) {
        let now = self.now;
        let topic = if key.is_some() { KEYS } else { POSE };
        let which = (topic.to_owned(), key.map(<[u8]>::to_vec));
        let sender = self.source(name).sender;
        let bytes = self.truth.put(sender.into(), which.clone(), now, len);
        let source = self.source(name);
        let id = if key.is_some() { source.keys } else { TopicId::FIRST };
        source.put_newest(now, id, key, &bytes);
        source.states.insert(which, bytes);
    }

    pub(super) fn remove_key(&mut self, name: &str, key: &[u8]) {
        let now = self.now;
        let source = self.source(name);
        let (local, keys) = (source.clock.read(now), source.keys);
        let was_there = source.session.remove_key(local, keys, key).expect("it has keys");
        let known = source.states.remove(&(KEYS.to_owned(), Some(key.to_vec())));
        assert_eq!(was_there, known.is_some());
    }

    /// The source closes its session.
    pub(super) fn close(&mut self, name: &str) {
        self.source(name).session.close();
        self.run(STEP);
    }

    /// An update of a source with its own rules arrives at the relay.
    pub(super) fn deliver(
        &mut self,
        seq: u64,
        clock_offset: Option<OffsetEstimate>,
        frame: Option<Frame<'_>>,
    ) {
        let opening = Opening { cookie: Default::default(), name: OTHER, token: b"" };
        let update = Update {
            session: SessionId(5),
            seq,
            sent_at: self.now,
            clock_offset,
            wants_ack: false,
            wants_return: false,
            ack_mark: None,
            opening: (seq == 0).then_some(opening),
            frames: frame.map_or(Frames::NONE, Frames::one),
        };
        let mut datagram = [0; 1_200];
        let len = update.write(&mut datagram).expect("it fits");
        let (peer, relay) = (Sender::of_number(u16::MAX), &mut self.relays[0]);
        relay.monitor.handle_datagram(self.now, peer, &datagram[..len]).expect("it is legal");
        relay.look(self.now);
    }

    /// Bytes of records that the relay holds for the first destination, and bytes of the longest
    /// queue.
    pub(super) fn held(&self) -> (usize, usize) {
        let relayed = self.relays[0].sessions[0].relayed();
        let queues = relayed.flat_map(|relayed| relayed.records.after(0, |_| Some(0)));
        let bytes = queues.map(|queue| queue.records.iter().map(|it| it.bytes.len()).sum());
        bytes.fold((0, 0), |(all, max), bytes: usize| (all + bytes, max.max(bytes)))
    }

    /// Restarts a relay with empty memory.
    pub(super) fn restart_relay(&mut self, place: usize) {
        let (relay, secret) = (&mut self.relays[place], self.seeds.secret());
        let (clock, destinations) = (relay.clock, relay.sessions.len());
        let hop = std::mem::replace(&mut relay.hop, Hop::new(0));
        *relay = Relay { clock, ..Relay::new(hop, destinations, self.admission, secret) };
    }

    /// Restarts a destination; its application has saved its position.
    pub(super) fn restart_destination(&mut self, place: usize) {
        self.downstream[place].restart(params(self.admission), self.seeds.secret());
    }

    // ---- the course ----

    pub(super) fn run(&mut self, length: Span) {
        let end = self.now + length;
        while self.now < end {
            self.now += STEP;
            self.step();
        }
    }

    fn step(&mut self) {
        let Self { now, seeds, sources, relays, downstream, truth, .. } = self;
        let now = *now;
        let hop = &mut relays[0].hop;
        while let Some((sender, answer)) = hop.receive(now, Direction::Back) {
            if let Some(source) = sources.iter_mut().find(|source| source.sender == sender) {
                let local = source.clock.read(now);
                let _ = source.session.handle_datagram(local, PATH, &answer);
            }
        }
        sources.iter_mut().for_each(|source| source.turn(now, hop));
        let mut rest = relays.as_mut_slice();
        while let Some((relay, next)) = rest.split_first_mut() {
            relay.turn(now);
            let time = (now, relay.clock.read(now));
            match next.first_mut() {
                Some(next) => relay.sessions[0].turn(time, &mut next.hop, seeds),
                None => relay.sessions.iter_mut().zip(&mut *downstream).for_each(|(it, to)| {
                    it.turn(time, &mut to.hop, seeds);
                }),
            }
            rest = next;
        }
        downstream.iter_mut().for_each(|to| to.turn(now, truth));
    }

    // ---- expectations ----

    /// Waits until all records are done, and each destination has received exactly these records,
    /// once and in order.
    pub(super) fn expect(&mut self, name: &str, log: &str, numbers: std::ops::Range<u32>) {
        let expected: Vec<_> = numbers.map(|number| number.to_string().into_bytes()).collect();
        for _ in 0..4_000 {
            self.run(STEP);
            if self.source(name).logs[log].held.is_empty() {
                break;
            }
        }
        assert!(
            self.source(name).logs[log].held.is_empty(),
            "the source has records that are not done"
        );
        for to in &self.downstream {
            let got = to.got.get(&(name.to_owned(), log.to_owned())).cloned().unwrap_or_default();
            let text = |records: &[Vec<u8>]| {
                let all = records.iter().map(|it| String::from_utf8_lossy(it).into_owned());
                all.collect::<Vec<_>>().join(" ")
            };
            assert_eq!(text(&got), text(&expected), "at destination {}", to.number);
        }
    }

    /// Waits at most `within` until each destination holds the newest state of each topic and key,
    /// and knows its age with an uncertainty of at most `uncertainty`.
    pub(super) fn expect_states(&mut self, name: &str, within: Span, uncertainty: Span) {
        let end = self.now + within;
        loop {
            self.run(STEP * 10);
            let (now, expected) = (self.now, self.source(name).states.clone());
            let wrong = self.downstream.iter().find_map(|to| {
                let (there, mut of_age) = (to.states(now, name), BTreeMap::new());
                for (which, (bytes, age)) in there {
                    if age.is_some_and(|age| age.uncertainty <= uncertainty) {
                        of_age.insert(which, bytes);
                    } else {
                        of_age.insert(which, format!("of unknown age: {age:?}").into_bytes());
                    }
                }
                (of_age != expected).then_some((to.number, of_age))
            });
            self.check_ages(name);
            let Some((number, there)) = wrong else { return };
            let text = |states: &BTreeMap<Which, Vec<u8>>| {
                let all = states.iter().map(|((topic, key), bytes)| {
                    let bytes = String::from_utf8_lossy(&bytes[..bytes.len().min(90)]).into_owned();
                    format!("{topic} {key:?}: {bytes}\n")
                });
                all.collect::<String>()
            };
            assert!(
                now < end,
                "destination {number} has\n{}instead of\n{}",
                text(&there),
                text(&expected)
            );
        }
    }

    /// Checks the ages of all states of a source that the destinations hold.
    pub(super) fn check_ages(&self, name: &str) {
        self.downstream.iter().for_each(|to| to.check_ages(self.now, name, &self.truth));
    }
}

impl Upstream {
    /// Puts a state of a topic of newest states, or of one of its keys.
    fn put_newest(&mut self, now: Time, id: TopicId, key: Option<&[u8]>, bytes: &[u8]) {
        let (local, session) = (self.clock.read(now), &mut self.session);
        match key {
            Some(key) => session.put_keyed(local, id, key, local, bytes).expect("it fits"),
            None => session.put_topic(local, id, local, bytes).expect("it fits"),
        }
    }

    /// Puts a record that was generated at this time.
    fn put(&mut self, local: Time, log: &str, at: Time, bytes: Vec<u8>) {
        let log = self.logs.get_mut(log).expect("it has it");
        let first = self.session.put_record(local, log.id, at, &bytes).expect("there is room");
        log.held.push(Record { first, at, bytes });
        log.next = self.session.records(log.id).expect("it is of records").next;
    }

    fn turn(&mut self, now: Time, hop: &mut Hop) {
        let (local, mut out) = (self.clock.read(now), Vec::new());
        self.session.handle_timeout(local);
        while let Some(event) = self.session.poll_event() {
            if let SourceEvent::RecordsDone { topic } = event {
                let done = self.session.records_done(topic);
                let mut logs = self.logs.values_mut();
                let log = logs.find(|log| log.id == topic).expect("it is one of them");
                log.held.retain(|record| record.first >= done);
            }
        }
        while let Some(transmit) = self.session.poll_transmit(local, &mut out) {
            if !self.is_cut {
                hop.send(now, Direction::There, self.sender, &out[..transmit.len]);
            }
        }
    }
}

impl Relay {
    fn new(hop: Hop, destinations: usize, admission: Admission, secret: Secret) -> Self {
        let sessions: Vec<_> = (0..destinations).map(Sessions::new).collect();
        let inboxes = sessions.iter().map(|to| Arc::clone(&to.inbox)).collect();
        Self {
            clock: Clock::default(),
            hop,
            monitor: session::Monitor::new(params(admission), secret),
            books: Books::new(9, IDLE),
            board: Board::new(inboxes, MAX_BYTES, Arc::new(Waker::new(|| Ok(())))),
            sessions,
        }
    }

    fn turn(&mut self, now: Time) {
        let local = self.clock.read(now);
        while let Some((sender, datagram)) = self.hop.receive(now, Direction::There) {
            let sender = Sender::of_number(sender);
            let _ = self.monitor.handle_datagram(local, sender, &datagram);
        }
        self.look(local);
        let mut answer = Vec::new();
        while let Some(transmit) = self.monitor.poll_transmit(local, &mut answer) {
            let (sender, answer) = (transmit.peer.number(), &answer[..transmit.len]);
            self.hop.send(now, Direction::Back, sender, answer);
        }
    }

    /// Forwards received states and records.
    fn look(&mut self, local: Time) {
        let Self { monitor, books, board, .. } = self;
        monitor.handle_timeout(local);
        while let Some(event) = monitor.poll_event() {
            books.on_event(local, monitor, event, board);
        }
        books.hand_out_records(local, monitor, board);
        crate::monitor::Watch::turn(board, local);
    }
}
