//! Any datagrams from any address at any time to a monitor: no panic, a bounded number of records, and
//! no answer longer than its request. Within a session, the monitor acknowledges exactly the updates
//! that request an ack. States in parts, of any layout and in any order, stay within their memory
//! bounds, and their memory is freed when sessions end. Challenges are answered, so that sessions do
//! open.
#![no_main]

use arbitrary::Arbitrary;
use freshline_core::dscp::Dscp;
use freshline_core::session::{
    Admission, Cursor, Datagram, Monitor, MonitorEvent, MonitorParams, Record, Secret, SourceKey,
};
use freshline_core::state::Layout;
use freshline_core::unit::{Span, Time};
use freshline_core::wire::{
    Ack, AckMark, Close, CloseReason, Cookie, Frame, Frames, Message, OffsetEstimate, Opening,
    Part, RecordChunk, SessionId, StateId, StreamId, TopicKey, TopicName, TopicStream, Update,
};
use libfuzzer_sys::fuzz_target;

const MAX_SOURCES: usize = 3;

/// The maximum length of a state in bytes, and of all states in parts together.
const MAX_PAYLOAD: usize = 100;
const MAX_LARGE: usize = 4_000;

#[derive(Debug, Arbitrary)]
struct Story<'a> {
    proven: bool,
    token: bool,
    max_age: bool,
    steps: Vec<Step<'a>>,
}

#[derive(Debug, Arbitrary)]
enum Step<'a> {
    /// Time passes, ns.
    Wait(u64),
    Tick,
    Bytes {
        peer: u8,
        datagram: &'a [u8],
    },
    Update {
        peer: u8,
        session: u8,
        seq: u64,
        clock_offset: Option<(i64, u64)>,
        wants_ack: bool,
        ack_mark: Option<Option<u8>>,
        dscp: Option<u8>,
        opening: bool,
        name: u8,
        content: Content<'a>,
    },
    Close {
        peer: u8,
        session: u8,
    },
    /// The application takes at most N records of a topic from each source (topic, N).
    Take(u8, u8),
    /// It takes one record from each source, and keeps it.
    Next(u8),
    /// It releases one of the kept records, or drops those of its stream, perhaps repeatedly.
    Settle {
        place: u8,
        is_done: bool,
    },
}

/// The content of an update.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Content<'a> {
    /// A state of 8 bytes, without frames.
    Fresh,
    State(Id, u8),
    Part {
        id: Id,
        len: u8,
        symbol_len: u8,
        repair: u8,
        index: u8,
        cut: bool,
    },
    Again(Id),
    /// The name of a key, or of a topic.
    Key(Id, &'a [u8]),
    Removed(Id),
    /// The name of a topic of records, with the lowest number of chunks.
    Stream(u8, u64),
    /// A chunk of a record of this length.
    Record {
        topic: u8,
        number: u64,
        is_last: bool,
        len: u8,
    },
    Cursor(u8),
    /// Frames of any kind and number.
    Raw(&'a [u8]),
}

#[derive(Debug, Clone, Copy, Arbitrary)]
struct Id {
    topic: u8,
    behind: u8,
    age: u8,
}

/// One of a few topics, so that steps use the same ones; some take two bytes.
fn topic_of(topic: u8) -> u16 {
    [0, 1, 2, 64, 4095][usize::from(topic % 5)]
}

/// Mostly small numbers, so that steps use the same ones.
fn number_of(number: u64) -> u64 {
    if number % 16 == 0 { number >> 2 } else { number % 8 }
}

impl Id {
    fn state(self) -> StateId {
        let topic = topic_of(self.topic);
        StateId { topic, behind: self.behind.into(), age: Span::from_nanos(self.age.into()) }
    }
}

impl<'a> Content<'a> {
    fn frames(self, bytes: &'a [u8]) -> Frames<'a> {
        match self {
            Self::Fresh => Frames::fresh(&bytes[..8]),
            Self::State(id, len) => {
                Frames::one(Frame::State { id: id.state(), bytes: &bytes[..len.into()] })
            }
            Self::Part { id, len, symbol_len, repair, index, cut } => {
                let layout = Layout::new(len.into(), u16::from(symbol_len) & !1, repair.into());
                let Ok(layout) = layout else { return Frames::NONE };
                let (id, index) = (id.state(), u32::from(index) % (layout.symbols() + 1));
                let size = layout.symbol_size(index).unwrap_or(1) - usize::from(cut);
                Frames::one(Frame::Part(Part { id, layout, index, bytes: &bytes[..size] }))
            }
            Self::Again(id) => Frames::one(Frame::Again(id.state())),
            Self::Key(id, key) => {
                let StateId { topic, behind, .. } = id.state();
                let key = &key[..key.len().min(TopicKey::MAX_LEN)];
                let key = (!key.is_empty()).then_some(TopicKey { behind, bytes: key });
                Frames::one(Frame::Name(TopicName { topic, name: "tf", key, stream: None }))
            }
            Self::Removed(id) => Frames::one(Frame::Removed(id.state())),
            Self::Stream(topic, first) => {
                let stream = Some(TopicStream { id: StreamId(first % 2), first: number_of(first) });
                let topic = topic_of(topic);
                Frames::one(Frame::Name(TopicName { topic, name: "log", key: None, stream }))
            }
            Self::Record { topic, number, is_last, len } => {
                let (topic, number) = (topic_of(topic), number_of(number));
                let bytes = &bytes[..len.into()];
                let age = Span::from_nanos(9);
                Frames::one(Frame::Record(RecordChunk { topic, number, is_last, age, bytes }))
            }
            Self::Cursor(topic) => Frames::one(Frame::Cursor(topic_of(topic))),
            Self::Raw(_) => Frames::NONE,
        }
    }
}

/// Puts frames into an update that was written without any.
fn add_frames(datagram: &mut [u8; 1500], update: &Update<'_>, len: usize, raw: &[u8]) -> usize {
    let opening = update.opening.map_or(0, |it| 18 + it.name.len() + it.token.len());
    let start = Update::HEADER_LEN + opening;
    let raw = &raw[..raw.len().min(datagram.len() - start)];
    datagram[start..start + raw.len()].copy_from_slice(raw);
    // After the common header, the flags and the mark.
    let field = Update::HEADER_LEN - 26;
    datagram[field..field + 2].copy_from_slice(&(raw.len() as u16).to_be_bytes());
    len.max(start + raw.len()).max(Update::MIN_LEN_OF_PARTS)
}

fuzz_target!(|story: Story<'_>| {
    let admission = if story.proven { Admission::Proven } else { Admission::Cookie };
    let tokens = if story.token { vec![b"token".to_vec()] } else { Vec::new() };
    let params = MonitorParams {
        admission,
        tokens,
        max_sources: MAX_SOURCES,
        max_payload: MAX_PAYLOAD,
        max_large: MAX_LARGE,
        max_age: story.max_age.then(|| "r*=1ms".parse().expect("a rule")).into_iter().collect(),
        ..MonitorParams::default()
    };
    let mut monitor = Monitor::new(params, Secret::new([1; 16]));
    let mut cookie = Cookie::default();
    let (mut now, mut out) = (Time::ZERO, Vec::new());
    let mut cursors: Vec<(SourceKey, Cursor)> = Vec::new();
    for step in story.steps {
        let mut buffer = [0; 1500];
        let (peer, dscp, datagram) = match step {
            Step::Wait(nanos) => {
                now += Span::from_nanos(nanos);
                continue;
            }
            Step::Tick => {
                monitor.handle_timeout(now);
                while let Some(event) = monitor.poll_event() {
                    let record = match event {
                        MonitorEvent::Gone { record, .. } => record,
                        MonitorEvent::Freshness(_) => continue,
                        event => panic!("{event:?}"),
                    };
                    assert!(record.payload().unwrap_or_default().len() <= MAX_PAYLOAD);
                }
                continue;
            }
            Step::Take(topic, count) => {
                let sources: Vec<_> = monitor.records().map(|(source, _)| source).collect();
                for source in sources {
                    let records =
                        (0..count).map_while(|_| monitor.take_record(now, source, topic_of(topic)));
                    let numbers: Vec<u64> = records.map(|record| record.number).collect();
                    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
                }
                continue;
            }
            Step::Next(topic) => {
                let topic = topic_of(topic);
                let sources: Vec<_> = monitor.records().map(|(source, _)| source).collect();
                for source in sources {
                    let next = monitor.peek_record(source, topic);
                    let taken = monitor.next_record(now, source, topic);
                    let len = taken.as_ref().map(|taken| taken.bytes.len());
                    assert_eq!(next.map(|next| next.len), len);
                    let is_known = taken.as_ref().is_some_and(|taken| taken.age.is_some());
                    assert_eq!(next.is_some_and(|next| next.is_age_known), is_known);
                    cursors.extend(taken.map(|taken| (source, taken.cursor)));
                }
                continue;
            }
            Step::Settle { place, is_done } => {
                let place = usize::from(place).checked_rem(cursors.len());
                if let Some((source, cursor)) = place.map(|place| &cursors[place]) {
                    match is_done {
                        true => monitor.handle_record_done(*source, cursor),
                        false => monitor.hand_out_again(cursor),
                    }
                }
                while let Some(event) = monitor.poll_event() {
                    assert!(matches!(event, MonitorEvent::Record { .. }), "{event:?}");
                }
                continue;
            }
            Step::Bytes { peer, datagram } => (peer, None, datagram),
            Step::Update {
                peer,
                session,
                seq,
                clock_offset,
                wants_ack,
                ack_mark,
                dscp,
                opening,
                name,
                content,
            } => {
                let names = ["", "robot", "meter", "game"];
                let opening = opening.then(|| Opening {
                    cookie,
                    name: names[usize::from(name) % names.len()],
                    token: b"token",
                });
                let mut bytes = [0; 300];
                bytes[..8].copy_from_slice(&seq.to_be_bytes());
                let update = Update {
                    session: SessionId(session.into()),
                    seq,
                    sent_at: now,
                    clock_offset: clock_offset
                        .map(|(nanos, error)| OffsetEstimate::new(nanos, Span::from_nanos(error))),
                    wants_ack,
                    wants_return: false,
                    ack_mark: ack_mark
                        .map(|set| set.and_then(Dscp::new).map_or(AckMark::Echo, AckMark::Set)),
                    opening,
                    frames: content.frames(&bytes),
                };
                let mut len = update.write(&mut buffer).expect("it is short");
                if let Content::Raw(raw) = content {
                    len = add_frames(&mut buffer, &update, len, raw);
                }
                (peer, dscp.and_then(Dscp::new), &buffer[..len])
            }
            Step::Close { peer, session } => {
                let session = SessionId(session.into());
                let close = Close { session, reason: CloseReason::Done }.bytes();
                buffer[..Close::LEN].copy_from_slice(&close);
                (peer, None, &buffer[..Close::LEN])
            }
        };
        let _ = monitor.handle_datagram(now, peer, Datagram::marked(datagram, dscp));
        let event = std::iter::from_fn(|| monitor.poll_event()).last();
        let reply = monitor.poll_transmit(now, &mut out).map_or(0, |transmit| {
            assert_eq!(transmit.peer, peer, "an answer to another peer");
            transmit.len
        });
        assert!(monitor.poll_transmit(now, &mut Vec::new()).is_none(), "two answers");
        assert!(reply <= datagram.len(), "an answer longer than its question");
        let is_known = matches!(
            event,
            Some(
                MonitorEvent::Fresh { opened: false, .. }
                    | MonitorEvent::Withheld { .. }
                    | MonitorEvent::Part { .. }
                    | MonitorEvent::Stale { .. }
            )
        );
        if is_known && let Ok(Message::Update(update)) = Message::parse(datagram) {
            let ack = if update.is_of_parts() { Ack::LEN_OF_PARTS } else { Ack::LEN };
            assert_eq!(reply, if update.wants_ack { ack } else { 0 });
        }
        assert!(monitor.large_memory() <= MAX_LARGE);
        let len = |record: &Record<u8>| record.payload().unwrap_or_default().len();
        assert!(monitor.records().all(|(_, record)| len(record) <= MAX_PAYLOAD));
        assert!(monitor.len() <= MAX_SOURCES, "more records than allowed");
        assert_eq!(monitor.len(), monitor.records().count());
        if reply > 0 {
            let answer = Message::parse(&out[..reply]);
            if let Message::Challenge(challenge) = answer.expect("a monitor answers in messages") {
                cookie = challenge.cookie;
            }
        }
    }
    let sessions: Vec<_> = monitor.records().map(|(_, record)| record.session).collect();
    for session in sessions {
        let close = Close { session, reason: CloseReason::Done }.bytes();
        let _ = monitor.handle_datagram(now, 0, &close[..]);
    }
    assert_eq!((monitor.len(), monitor.large_memory()), (0, 0));
});
