//! Any datagrams at any time over any path to a source with any law: no panic, no stall, a rate within
//! bounds, and no more work than the rate allows. A path that is silent or down never gets the first
//! copy of an update while another path works. States have any length, and acks report anything about
//! their parts.
#![no_main]

use arbitrary::Arbitrary;
use freshline_core::dscp::Dscp;
use freshline_core::path::{DeviceQueue, PathId};
use freshline_core::session::{
    Datagram, PathPhase, Paths, Reach, Secret, Source, SourceEvent, SourceParams, StreamId,
    TopicId, TopicKind, TopicParams, TransportState,
};
use freshline_core::source::{Acp, AcpParams, AcpPlus, AcpPlusParams, Fixed, Lazy, RateLaw, Tenth};
use freshline_core::unit::{Span, Time, UpdateRate};
use freshline_core::wire::{Ack, Challenge, Close, CloseReason, Cookie, Marks, PartsAck};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
enum Law {
    AcpPlus,
    Acp,
    Tenth,
    Lazy,
    Fixed,
}

#[derive(Debug, Arbitrary)]
enum Step<'a> {
    /// Time passes, ns; the source's timers are served meanwhile, for at most a second.
    Wait(u32),
    /// Time passes, ns, and the source's timers are not served.
    Oversleep(u64),
    Bytes(u8, &'a [u8]),
    /// An ack for the update `back` before the newest, with any other content.
    Ack {
        by: u8,
        back: u8,
        was_fresh: bool,
        hold_us: u32,
        received_at: u64,
        fresh: u32,
        marks: [u8; 3],
        parts: Option<(u64, Option<u64>)>,
    },
    Challenge(u8, [u8; 16]),
    /// From now on the monitor answers each update in this way.
    React(Reaction),
    Close(u8, u8),
    TransportLost(u8),
    TransportReady(u8),
    Queue(u8, Option<(u64, u32)>),
    /// States are this long from now on.
    Len(u16),
    /// A state is put without a request.
    Put,
    /// The state of a key is put, or the key is removed, if there are keys.
    PutKey(u8),
    RemoveKey(u8),
    /// A record of this length is put, if there is a topic of records.
    PutRecord(u16),
    Resume,
}

/// Maximum lengths of states and of updates, in bytes.
const MAX_STATE: usize = 20_000;
const MAX_DATAGRAM: usize = 300;

/// The maximum length of updates with records, and of all unfinished records together, in bytes.
const MAX_DATAGRAM_OF_RECORDS: usize = 900;
const MAX_RECORDS: u32 = 20_000;

/// The reaction of a monitor to each update, of which it knows the session and the number.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Reaction {
    Silence,
    /// A challenge with a new cookie.
    Challenge,
    /// An ack with any time, and any content about the update.
    Ack {
        hold_us: u32,
        received_at: u64,
        was_fresh: bool,
        fresh: u32,
        stale: u32,
        missing: u32,
        parts: Option<(u64, Option<u64>)>,
    },
    /// The end of the session.
    Close(u8),
    /// A challenge and the end of the session, in turn.
    ChallengeThenClose(u8),
    /// The end of the session, then a correct ack.
    CloseThenAck(u8),
}

/// The highest bit of `recent` is also the `no_room` flag.
fn parts_ack((recent, newest): (u64, Option<u64>)) -> PartsAck {
    PartsAck { recent, no_room: recent >> 63 != 0, newest }
}

fuzz_target!(|story: (Law, u8, u8, Vec<Step<'_>>)| {
    let (law, count, scheduler, steps) = story;
    let kinds = [Kinds::States, Kinds::Keys, Kinds::Records, Kinds::UrgentRecords];
    let kinds = kinds[usize::from(count / 4) % 4];
    let mut endpoint = Endpoint::new(law, 1 + usize::from(count % 4), scheduler, kinds);
    for step in steps {
        endpoint.step(step);
        let rate = endpoint.source.law().rate().per_second();
        // Tenth goes below the minimum rate if updates are lost or have a long delay.
        assert!(rate > 0.0 && rate <= 1e4, "a rate of {rate}");
    }
});

/// The topic that the source has in addition to a pose.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kinds {
    States,
    Keys,
    Records,
    UrgentRecords,
}

struct Endpoint {
    source: Source,
    max_datagram: usize,
    /// Chunks of records that are known to be done.
    done: u64,
    now: Time,
    sent: Vec<Time>,
    reaction: Reaction,
    /// How many challenges the monitor has sent.
    cookies: u128,
    /// Openings so far.
    openings: u64,
    /// The length of the states that are put, in bytes.
    len: usize,
}

impl Endpoint {
    fn new(law: Law, count: usize, scheduler: u8, kinds: Kinds) -> Self {
        let law: Box<dyn RateLaw> = match law {
            Law::AcpPlus => Box::new(AcpPlus::new(AcpPlusParams::departure())),
            Law::Acp => Box::new(Acp::new(AcpParams::default())),
            Law::Tenth => Box::new(Tenth::new(Default::default())),
            Law::Lazy => Box::new(Lazy::new(Default::default())),
            Law::Fixed => Box::new(Fixed::new(UpdateRate::saturating(50.0))),
        };
        let max_datagram = match kinds {
            Kinds::States | Kinds::Keys => MAX_DATAGRAM,
            Kinds::Records | Kinds::UrgentRecords => MAX_DATAGRAM_OF_RECORDS,
        };
        let params = SourceParams { max_datagram, ..SourceParams::default() };
        let secret = Secret::new([7; 16]);
        let source = Source::new(params, secret, law, Time::ZERO).expect("an empty name fits");
        let tf = TopicParams { kind: TopicKind::Keyed { max_keys: 4 }, ..TopicParams::new("tf") };
        let kind = TopicKind::Every { stream: StreamId(9), first: 3, max_bytes: MAX_RECORDS };
        let is_urgent = kinds == Kinds::UrgentRecords;
        let log = TopicParams { kind, is_urgent, ..TopicParams::new("log") };
        let topics = match kinds {
            Kinds::States => Vec::new(),
            Kinds::Keys => vec![TopicParams::new("pose"), tf],
            Kinds::Records | Kinds::UrgentRecords => vec![TopicParams::new("pose"), log],
        };
        let source = source.with_topics(topics).expect("they are legal");
        let names = ["freshest", "qaware", "min_srtt", "round_robin", "redundant"];
        let scheduler = names[usize::from(scheduler) % names.len()].parse();
        let paths = Paths::new(count, &scheduler.expect("there is one")).expect("a few paths");
        Self {
            source: source.over(paths),
            max_datagram,
            done: 0,
            now: Time::ZERO,
            sent: Vec::new(),
            reaction: Reaction::Silence,
            cookies: 0,
            openings: 0,
            len: 5,
        }
    }

    fn step(&mut self, step: Step<'_>) {
        match step {
            Step::Wait(nanos) => self.live(Span::from_nanos(u64::from(nanos) % 1_000_000_000)),
            Step::Oversleep(nanos) => self.now += Span::from_nanos(nanos % (1 << 50)),
            Step::Bytes(by, datagram) => self.receive(by, datagram),
            Step::Ack { by, back, was_fresh, hold_us, received_at, fresh, marks, parts } => {
                let Some(seq) = self.sent.len().checked_sub(1 + usize::from(back)) else { return };
                let ack = Ack {
                    session: self.source.session(),
                    seq: seq as u64,
                    sent_at: self.sent[seq],
                    received_at: Time::from_nanos(received_at),
                    hold: Span::from_micros(hold_us.into()),
                    was_fresh,
                    fresh,
                    stale: 0,
                    missing: 0,
                    marks: Marks { seen: Dscp::new(marks[0]), sent: Dscp::new(marks[1]) },
                    parts: parts.map(parts_ack),
                };
                self.receive_marked(by, Dscp::new(marks[2]), &ack.bytes());
            }
            Step::Challenge(by, cookie) => {
                let session = self.source.session();
                self.receive(by, &Challenge { session, cookie: Cookie(cookie) }.bytes());
            }
            Step::Close(by, reason) => {
                let reason = CloseReason::ALL[usize::from(reason) % CloseReason::ALL.len()];
                let session = self.source.session();
                self.receive(by, &Close { session, reason }.bytes());
            }
            Step::TransportLost(by) => {
                self.source.handle_transport(self.now, path(by), TransportState::Down);
            }
            Step::TransportReady(by) => {
                self.source.handle_transport(self.now, path(by), TransportState::Ready);
            }
            Step::Len(len) => self.len = usize::from(len) % MAX_STATE,
            Step::Put => self.put(),
            Step::PutKey(key) => self.on_key(key, |source, now, topic, key| {
                // The table of keys may be full.
                let _ = source.put_keyed(now, topic, key, now, &[key[0]; 40]);
            }),
            Step::PutRecord(len) => self.put_record(len),
            Step::RemoveKey(key) => self.on_key(key, |source, now, topic, key| {
                let _ = source.remove_key(now, topic, key);
            }),
            Step::Resume => self.source.handle_resume(self.now),
            Step::React(reaction) => self.reaction = reaction,
            Step::Queue(by, queue) => {
                let queue = queue.map(|(packets, rate)| DeviceQueue { packets, rate: rate.into() });
                self.source.handle_queue(path(by), queue);
            }
        }
    }

    fn receive(&mut self, by: u8, datagram: &[u8]) {
        self.receive_marked(by, None, datagram);
    }

    fn receive_marked(&mut self, by: u8, dscp: Option<Dscp>, datagram: &[u8]) {
        // The source may accept or reject the datagram.
        let _ = self.source.handle_datagram(self.now, path(by), Datagram::marked(datagram, dscp));
    }

    fn put(&mut self) {
        self.source.put(self.now, self.now, &[7; MAX_STATE][..self.len]).expect("it fits");
    }

    fn put_record(&mut self, len: u16) {
        let topic = self.source.topics().nth(1).map(|(topic, _)| topic);
        let Some(topic) = topic.filter(|topic| self.source.records(*topic).is_some()) else {
            return;
        };
        let len = usize::from(len) % 3_000;
        let fits = len > 0 && self.source.record_room(topic) >= len;
        let given = self.source.put_record(self.now, topic, self.now, &[9; 3_000][..len]);
        assert!(given.is_ok() || !fits, "{given:?}");
        let view = self.source.records(topic).expect("it is of records");
        assert!(view.bytes <= MAX_RECORDS as usize && view.done >= self.done);
        self.done = view.done;
    }

    /// Does something with a key of the topic that has keys, if there is one.
    fn on_key(&mut self, key: u8, what: impl Fn(&mut Source, Time, TopicId, &[u8])) {
        let topic = self.source.topics().nth(1).map(|(topic, _)| topic);
        if let Some(topic) = topic {
            what(&mut self.source, self.now, topic, &[key % 6]);
            assert!(self.source.keys(topic).count() <= 4);
        }
    }

    fn send(&mut self) {
        while let Some(event) = self.source.poll_event() {
            if matches!(event, SourceEvent::StateWanted(_)) {
                self.put();
            }
        }
        let phases: Vec<_> =
            self.source.paths().statuses(self.now, None).map(|status| status.phase).collect();
        let phase = |path: PathId| phases[usize::from(path.0)];
        let is_open = self.source.reach() == Reach::Open;
        let (mut left, mut out) = (Vec::new(), Vec::new());
        while let Some(transmit) = self.source.poll_transmit(self.now, &mut out) {
            assert_ne!(phase(transmit.path), PathPhase::Down);
            let phases = self.source.paths().statuses(self.now, None).map(|status| status.phase);
            let phases: Vec<_> = phases.collect();
            if !transmit.is_copy && is_open && phases.contains(&PathPhase::Live) {
                assert_eq!(phases[usize::from(transmit.path.0)], PathPhase::Live);
            }
            assert!(transmit.len <= self.max_datagram);
            if !transmit.is_copy {
                self.sent.push(self.now);
                self.openings += u64::from(!is_open);
            }
            left.push((transmit.path, self.sent.len() as u64 - 1));
        }
        for (by, seq) in left {
            self.react(by.0, seq);
        }
    }

    /// The monitor's answer to an update.
    fn react(&mut self, by: u8, seq: u64) {
        let session = self.source.session();
        let challenge = |cookies: &mut u128| {
            *cookies += 1;
            Challenge { session, cookie: Cookie(cookies.to_be_bytes()) }.bytes()
        };
        let close = |reason: u8| {
            let reason = CloseReason::ALL[usize::from(reason) % CloseReason::ALL.len()];
            Close { session, reason }.bytes()
        };
        match self.reaction {
            Reaction::Silence => {}
            Reaction::Challenge => {
                let answer = challenge(&mut self.cookies);
                self.receive(by, &answer);
            }
            Reaction::Close(reason) => self.receive(by, &close(reason)),
            Reaction::ChallengeThenClose(reason) if seq.is_multiple_of(2) => {
                self.receive(by, &close(reason));
            }
            Reaction::ChallengeThenClose(_) => {
                let answer = challenge(&mut self.cookies);
                self.receive(by, &answer);
            }
            Reaction::CloseThenAck(reason) => {
                self.receive(by, &close(reason));
                let ack = Ack {
                    session,
                    seq,
                    sent_at: self.now,
                    received_at: self.now,
                    hold: Span::ZERO,
                    was_fresh: true,
                    fresh: seq as u32 + 1,
                    stale: 0,
                    missing: 0,
                    marks: Marks::default(),
                    parts: None,
                };
                self.receive(by, &ack.bytes());
            }
            Reaction::Ack { hold_us, received_at, was_fresh, fresh, stale, missing, parts } => {
                let ack = Ack {
                    session,
                    seq,
                    sent_at: self.now,
                    received_at: Time::from_nanos(received_at),
                    hold: Span::from_micros(hold_us.into()),
                    was_fresh,
                    fresh,
                    stale,
                    missing,
                    marks: Marks::default(),
                    parts: parts.map(parts_ack),
                };
                self.receive(by, &ack.bytes());
            }
        }
    }

    /// Serves the source's timers for `length`.
    fn live(&mut self, length: Span) {
        let end = self.now + length;
        // One opening per retry interval, and one more for a challenge over each path.
        let openings = self.openings + 5 * (length.as_micros() / 200_000 + 2);
        // At most one update, one end of an epoch and one loss of a part per 100 µs, and one more of each
        // if the source is late.
        let mut steps = 3 * (length.as_micros() / 100) + 16;
        loop {
            let next =
                self.source.poll_timeout().expect("a source always wants something").max(self.now);
            if next > end {
                assert!(self.openings <= openings, "the monitor sets the pace");
                self.now = end;
                return;
            }
            self.now = next;
            self.source.handle_timeout(self.now);
            self.send();
            steps = steps.checked_sub(1).expect("it spins");
        }
    }
}

/// A path number; some are higher than any path of the source.
fn path(by: u8) -> PathId {
    PathId(by % 5)
}
