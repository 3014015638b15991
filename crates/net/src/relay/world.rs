//! Sources, a relay and its destinations in virtual time, without sockets.

use std::collections::BTreeMap;
use std::sync::Arc;

use freshline_core::path::PathId;
use freshline_core::session::{
    self, Admission, MonitorEvent, MonitorParams, Secret, SourceEvent, SourceParams, StateAge,
    TopicId, TopicKind, TopicParams,
};
use freshline_core::source::Fixed;
use freshline_core::unit::{Span, Time, UpdateRate};
use freshline_core::wire::{Frame, Frames, OffsetEstimate, Opening, SessionId, StreamId, Update};

use super::board::{Board, Inbox};
use super::newest::Newest;
use super::parting::Parting;
use super::states::Relayed;
use crate::monitor::{Books, Sender};
use crate::source::feed::Feed;
use crate::waker::Waker;

/// Time passes in steps of this length.
pub(super) const STEP: Span = Span::from_millis(5);

/// States of topics and records at the relay, in bytes.
pub(super) const MAX_BYTES: usize = 1 << 20;

/// The monitor ends a session after this time without an update.
pub(super) const IDLE: Span = Span::from_secs(2);

/// Seeds of sessions, so that no two are the same.
#[derive(Default)]
struct Seeds(u64);

impl Seeds {
    fn session(&mut self, now: Time, name: &str, topics: Vec<TopicParams>) -> session::Source {
        self.0 += 1;
        let name = name.to_owned();
        let params = SourceParams { name, keep_alive: STEP * 20, ..SourceParams::default() };
        let law = Box::new(Fixed::new(UpdateRate::saturating(100.0)));
        let secret = Secret::new((u128::from(self.0) << 8 | 1).to_be_bytes());
        let session = session::Source::new(params, secret, law, now).expect("it is legal");
        session.with_topics(topics).expect("they are legal")
    }
}

/// A topic of records of a source, with those that are not known to be done: each with its first number.
struct Log {
    id: TopicId,
    stream: u64,
    held: Vec<(u64, Vec<u8>)>,
    /// The first number of the next one.
    next: u64,
}

/// A source, with topics of records, and one of states.
pub(super) struct Upstream {
    session: session::Source,
    name: &'static str,
    pub(super) is_cut: bool,
    logs: BTreeMap<&'static str, Log>,
}

/// What a destination has got of a topic, by the names of source and topic.
pub(super) type Got = BTreeMap<(String, String), Vec<Vec<u8>>>;

pub(super) struct Downstream {
    number: usize,
    inbox: Arc<Inbox>,
    sessions: BTreeMap<usize, (Arc<Relayed>, session::Source, Feed, u64)>,
    pub(super) monitor: session::Monitor<u64>,
    pub(super) is_away: bool,
    pub(super) got: Got,
    /// The ages of all as they came.
    pub(super) ages: Vec<Option<StateAge>>,
}

pub(super) struct World {
    pub(super) now: Time,
    seeds: Seeds,
    peers: u64,
    sources: Vec<Upstream>,
    pub(super) monitor: session::Monitor<Sender>,
    books: Books,
    board: Board,
    pub(super) downstream: Vec<Downstream>,
}

fn params() -> MonitorParams {
    MonitorParams { admission: Admission::Proven, idle: IDLE, ..MonitorParams::default() }
}

impl World {
    pub(super) fn new(destinations: usize) -> Self {
        let waker = || Arc::new(Waker::new(|| Ok(())));
        let downstream = (0..destinations).map(|number| Downstream {
            number,
            inbox: Arc::new(Inbox::new(waker())),
            sessions: BTreeMap::new(),
            monitor: session::Monitor::new(params(), Secret::new([201; 16])),
            is_away: false,
            got: Got::new(),
            ages: Vec::new(),
        });
        let downstream: Vec<_> = downstream.collect();
        let inboxes = downstream.iter().map(|to| Arc::clone(&to.inbox)).collect();
        Self {
            now: Time::ZERO + Span::from_secs(1_000),
            seeds: Seeds::default(),
            peers: 0,
            sources: Vec::new(),
            monitor: session::Monitor::new(params(), Secret::new([200; 16])),
            books: Books::new(9, IDLE),
            board: Board::new(inboxes, MAX_BYTES, waker()),
            downstream,
        }
    }

    // ---- what happens ----

    /// A source begins, with the topic `pose` of this kind and topics of records with their streams. Under a
    /// name that was here before it puts again what was not done.
    pub(super) fn start(
        &mut self,
        name: &'static str,
        pose: TopicKind,
        logs: &[(&'static str, u64)],
    ) {
        let former = self.sources.iter().position(|it| it.name == name);
        let mut former = former.map(|place| self.sources.remove(place).logs).unwrap_or_default();
        let logs = logs.iter().map(|(log, stream)| {
            let held = former.remove(log).filter(|it| it.stream == *stream);
            let (held, next) = held.map(|log| (log.held, log.next)).unwrap_or_default();
            (*log, *stream, next, held)
        });
        let logs: Vec<_> = logs.collect();
        let topics = logs.iter().map(|(log, stream, next, held)| {
            let first = held.first().map_or(*next, |(first, _)| *first);
            let (stream, max_bytes) = (StreamId(*stream), TopicKind::DEFAULT_BYTES);
            TopicParams {
                kind: TopicKind::Every { stream, first, max_bytes },
                ..TopicParams::new(*log)
            }
        });
        let pose = TopicParams { kind: pose, ..TopicParams::new("pose") };
        let session =
            self.seeds.session(self.now, name, [pose].into_iter().chain(topics).collect());
        let ids: Vec<_> = session.topics().map(|(id, _)| id).collect();
        let mut source = Upstream { session, name, is_cut: false, logs: BTreeMap::new() };
        for ((log, stream, next, held), id) in logs.into_iter().zip(ids.into_iter().skip(1)) {
            source.logs.insert(log, Log { id, stream, held: Vec::new(), next });
            for (_, bytes) in held {
                source.put(self.now, log, bytes);
            }
        }
        self.sources.push(source);
    }

    pub(super) fn source(&mut self, name: &str) -> &mut Upstream {
        self.sources.iter_mut().find(|source| source.name == name).expect("it has begun")
    }

    /// Puts records that are their numbers.
    pub(super) fn put(&mut self, name: &str, log: &str, numbers: std::ops::Range<u32>) {
        let now = self.now;
        let source = self.source(name);
        for number in numbers {
            source.put(now, log, number.to_string().into_bytes());
        }
    }

    pub(super) fn put_pose(&mut self, name: &str, key: Option<&[u8]>) {
        let now = self.now;
        let (session, pose) = (&mut self.source(name).session, TopicId::FIRST);
        match key {
            Some(key) => session.put_keyed(now, pose, key, now, b"pose").expect("it fits"),
            None => session.put_topic(now, pose, now, b"pose").expect("it fits"),
        }
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
        let opening = Opening { cookie: Default::default(), name: "other", token: b"" };
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
        let peer = Sender::by(PathId(99));
        self.monitor.handle_datagram(self.now, peer, &datagram[..len]).expect("it is legal");
        self.turn_of_relay();
    }

    /// Bytes of records that the relay holds for the first destination, and of the longest queue.
    pub(super) fn held(&self) -> (usize, usize) {
        let sessions = self.downstream[0].sessions.values();
        let queues = sessions.flat_map(|(relayed, ..)| relayed.records.after(0, |_| Some(0)));
        let bytes = queues.map(|queue| queue.records.iter().map(|it| it.bytes.len()).sum());
        bytes.fold((0, 0), |(all, max), bytes: usize| (all + bytes, max.max(bytes)))
    }

    /// The relay ends and begins anew, with nothing in its memory.
    pub(super) fn restart_relay(&mut self) {
        let waker = || Arc::new(Waker::new(|| Ok(())));
        for to in &mut self.downstream {
            to.sessions.clear();
            to.inbox = Arc::new(Inbox::new(waker()));
        }
        let inboxes = self.downstream.iter().map(|to| Arc::clone(&to.inbox)).collect();
        self.board = Board::new(inboxes, MAX_BYTES, waker());
        self.monitor = session::Monitor::new(params(), Secret::new([200; 16]));
        self.books = Books::new(9, IDLE);
    }

    /// A destination does; its application has written down how far it is.
    pub(super) fn restart_destination(&mut self, place: usize) {
        let monitor = &mut self.downstream[place].monitor;
        let cursors: Vec<_> = monitor.cursors().collect();
        *monitor = session::Monitor::new(params(), Secret::new([201; 16])).with_cursors(cursors);
    }

    // ---- the course ----

    pub(super) fn run(&mut self, length: Span) {
        let end = self.now + length;
        while self.now < end {
            self.now += STEP;
            self.turn_of_sources();
            self.turn_of_relay();
            for place in 0..self.downstream.len() {
                self.turn_of_destination(place);
            }
        }
    }

    fn turn_of_sources(&mut self) {
        let (now, mut out) = (self.now, Vec::new());
        for (place, source) in self.sources.iter_mut().enumerate() {
            source.session.handle_timeout(now);
            while let Some(event) = source.session.poll_event() {
                if let SourceEvent::RecordsDone { topic } = event {
                    let done = source.session.records_done(topic);
                    let mut logs = source.logs.values_mut();
                    let log = logs.find(|log| log.id == topic).expect("it is one of them");
                    log.held.retain(|(first, _)| *first >= done);
                }
            }
            while let Some(transmit) = source.session.poll_transmit(now, &mut out) {
                if source.is_cut {
                    continue;
                }
                let peer = Sender::by(PathId(place as u8));
                let _ = self.monitor.handle_datagram(now, peer, &out[..transmit.len]);
                let mut reply = Vec::new();
                while let Some(answer) = self.monitor.poll_transmit(now, &mut reply) {
                    let reply = &reply[..answer.len];
                    let _ = source.session.handle_datagram(now, transmit.path, reply);
                }
            }
        }
    }

    fn turn_of_relay(&mut self) {
        let Self { now, monitor, books, board, .. } = self;
        monitor.handle_timeout(*now);
        while let Some(event) = monitor.poll_event() {
            books.on_event(*now, monitor, event, board);
        }
        books.hand_out_records(*now, monitor, board);
        crate::monitor::Watch::turn(board, *now);
    }

    fn turn_of_destination(&mut self, place: usize) {
        let Self { now, seeds, peers, downstream, .. } = self;
        let to = &mut downstream[place];
        for (place, source) in to.inbox.take() {
            to.on_change(*now, place, source, || {
                *peers += 1;
                (*peers, seeds)
            });
        }
        let places: Vec<_> = to.sessions.keys().copied().collect();
        for place in places {
            to.turn_of(*now, place);
        }
        to.monitor.handle_timeout(*now);
        to.take(*now);
    }

    // ---- what is expected ----

    /// Waits until all records are done, and are at each destination: these, once and in order.
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
            "the source has some that are not done"
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
}

impl Upstream {
    fn put(&mut self, now: Time, log: &str, bytes: Vec<u8>) {
        let log = self.logs.get_mut(log).expect("it has it");
        let first = self.session.put_record(now, log.id, now, &bytes).expect("there is room");
        log.held.push((first, bytes));
        log.next = self.session.records(log.id).expect("it is of records").next;
    }
}

impl Downstream {
    fn on_change<'a>(
        &mut self,
        now: Time,
        place: usize,
        source: Option<Arc<Relayed>>,
        next: impl FnOnce() -> (u64, &'a mut Seeds),
    ) {
        if let Some((relayed, session, feed, _)) = self.sessions.get_mut(&place)
            && source.as_ref().is_some_and(|source| Arc::ptr_eq(source, relayed))
        {
            feed.on_woken(now, session);
            return;
        }
        if let Some((relayed, mut session, _, peer)) = self.sessions.remove(&place)
            && relayed.parting() == Some(Parting::Close)
        {
            session.close();
            self.send(now, &mut session, peer);
        }
        if let Some(relayed) = source {
            let (peer, seeds) = next();
            let session = seeds.session(now, &relayed.name, Vec::new());
            let feed = Feed::supplied_by(Box::new(Newest::new(Arc::clone(&relayed), self.number)));
            self.sessions.insert(place, (relayed, session, feed, peer));
        }
    }

    fn turn_of(&mut self, now: Time, place: usize) {
        let Some((relayed, mut session, mut feed, peer)) = self.sessions.remove(&place) else {
            return;
        };
        for _ in 0..9 {
            session.handle_timeout(now);
            while let Some(event) = session.poll_event() {
                match event {
                    SourceEvent::StateWanted(need) => {
                        assert!(
                            feed.answer(now, need, &mut session).expect("it goes on").is_empty()
                        );
                    }
                    SourceEvent::RecordsDone { topic } => {
                        feed.on_records_done(now, topic, &mut session);
                    }
                    _ => {}
                }
            }
            self.send(now, &mut session, peer);
        }
        self.sessions.insert(place, (relayed, session, feed, peer));
    }

    fn send(&mut self, now: Time, session: &mut session::Source, peer: u64) {
        let mut out = Vec::new();
        while let Some(transmit) = session.poll_transmit(now, &mut out) {
            if self.is_away {
                continue;
            }
            let _ = self.monitor.handle_datagram(now, peer, &out[..transmit.len]);
            let mut reply = Vec::new();
            while let Some(answer) = self.monitor.poll_transmit(now, &mut reply) {
                let _ = session.handle_datagram(now, transmit.path, &reply[..answer.len]);
            }
            self.take(now);
        }
    }

    /// The application takes all records.
    fn take(&mut self, now: Time) {
        while let Some(event) = self.monitor.poll_event() {
            let MonitorEvent::Record { source, topic } = event else { continue };
            while let Some(taken) = self.monitor.take_record(now, source, topic) {
                let cursor = taken.cursor;
                let names = (cursor.source.into(), cursor.topic.into());
                self.got.entry(names).or_default().push(taken.bytes);
                self.ages.push(taken.age);
            }
        }
    }
}
