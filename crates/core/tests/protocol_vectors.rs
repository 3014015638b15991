//! The test vectors of the protocol, `docs/protocol-vectors.jsonl`, produced by an encoder that was
//! written from `docs/protocol.md` alone: this implementation writes the same bytes, reads them,
//! and refuses the same ones. `scripts/protocol-vectors` names the keys.

use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::path::Path;
use std::process::Command;

use freshline_core::dscp::Dscp;
use freshline_core::session::{Monitor, MonitorParams, Secret};
use freshline_core::state::Layout;
use freshline_core::unit::{BitRate, Span, Time};
use freshline_core::wire::{
    self, Ack, AckMark, Challenge, Close, CloseReason, Cookie, Frame, Frames, Join, Marks, Message,
    OffsetEstimate, Opening, Packet, ParseError, Part, PartsAck, RecordChunk, Report, SessionId,
    StateId, StreamId, TopicKey, TopicName, TopicStream, Update,
};
use freshline_core::wlan;
use serde_json::Value;

const FILE: &str = include_str!("../../../docs/protocol-vectors.jsonl");

/// One line of the file. Tests are short: memory that messages borrow is never freed.
#[derive(Clone, Copy)]
struct Vector(&'static Value);

impl Vector {
    fn all() -> Vec<Self> {
        let parse = |line| serde_json::from_str(line).expect("a line of JSON");
        FILE.lines().map(|line| Self(Box::leak(Box::new(parse(line))))).collect()
    }

    fn fields(self) -> Fields {
        Fields(self.0)
    }

    fn name(self) -> &'static str {
        self.fields().text("name")
    }

    fn bytes(self) -> &'static [u8] {
        self.fields().bytes("hex")
    }

    /// The meaning of the bytes, if they are a message.
    fn meaning(self) -> Option<Fields> {
        self.fields().optional("meaning")
    }

    /// Whether a writer writes these bytes.
    fn is_written(self) -> bool {
        self.meaning().is_some() && self.0.get("read_only").is_none()
    }
}

/// The fields of a message, or of one of its parts.
#[derive(Clone, Copy)]
struct Fields(&'static Value);

impl Fields {
    /// A field that may be null or missing.
    fn optional(self, key: &str) -> Option<Self> {
        self.0.get(key).filter(|value| !value.is_null()).map(Self)
    }

    fn value(self, key: &str) -> &'static Value {
        self.0.get(key).unwrap_or_else(|| panic!("no {key} in {}", self.0))
    }

    fn text(self, key: &str) -> &'static str {
        self.value(key).as_str().expect(key)
    }

    fn is(self, key: &str) -> bool {
        self.value(key).as_bool().expect(key)
    }

    fn number(self, key: &str) -> u64 {
        self.value(key).as_u64().expect(key)
    }

    fn narrow<T: TryFrom<u64>>(self, key: &str) -> T {
        T::try_from(self.number(key)).unwrap_or_else(|_| panic!("{key} is too great"))
    }

    fn signed(self, key: &str) -> i64 {
        self.value(key).as_i64().expect(key)
    }

    /// A number that 32 bits hold.
    fn float(self, key: &str) -> f64 {
        f64::from(self.value(key).as_f64().expect(key) as f32)
    }

    fn list(self, key: &str) -> impl Iterator<Item = Self> {
        self.value(key).as_array().expect(key).iter().map(Self)
    }

    fn bytes(self, key: &str) -> &'static [u8] {
        let digits = self.text(key);
        let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal digits");
        (0..digits.len()).step_by(2).map(byte).collect::<Vec<_>>().leak()
    }

    fn session(self) -> SessionId {
        SessionId(u64::from_str_radix(self.text("session"), 16).expect("a session"))
    }

    fn cookie(self) -> Cookie {
        Cookie(self.bytes("cookie").try_into().expect("16 bytes"))
    }

    fn time(self, key: &str) -> Time {
        Time::from_nanos(self.number(key))
    }

    fn micros(self, key: &str) -> Span {
        Span::from_micros(self.number(key))
    }

    fn code_point(self, key: &str) -> Option<Dscp> {
        self.optional(key).map(|_| Dscp::new(self.narrow(key)).expect("a code point"))
    }

    fn ack_mark(self, key: &str) -> Option<AckMark> {
        match self.value(key).as_str() {
            Some("echo") => Some(AckMark::Echo),
            _ => self.code_point(key).map(AckMark::Set),
        }
    }

    fn opening(self) -> Opening<'static> {
        Opening { cookie: self.cookie(), name: self.text("name"), token: self.bytes("token") }
    }

    fn error(self, key: &str) -> Span {
        self.optional(key).map_or(Span::MAX, |_| Span::from_nanos(self.number(key)))
    }

    fn clock_offset(self) -> OffsetEstimate {
        let estimate = OffsetEstimate::new(self.signed("offset_ns"), self.error("error_ns"));
        assert_eq!(estimate.nanos(), self.signed("read_offset_ns"));
        assert_eq!(estimate.error(), self.error("read_error_ns"));
        estimate
    }

    fn state_id(self) -> StateId {
        let age = Span::from_nanos(self.number("age_ns"));
        StateId { topic: self.narrow("topic"), behind: self.number("behind"), age }
    }

    fn part(self) -> Part<'static> {
        let (len, symbol_len) = (self.narrow("state_length"), self.narrow("symbol_length"));
        let layout = Layout::new(len, symbol_len, self.narrow("repair_symbols")).expect("a layout");
        let (id, index) = (self.state_id(), self.narrow("index"));
        Part { id, layout, index, bytes: self.bytes("symbol") }
    }

    fn topic_name(self) -> TopicName<'static> {
        let key = self
            .optional("key")
            .map(|_| TopicKey { behind: self.number("behind"), bytes: self.bytes("key") });
        let stream = self.optional("stream").map(|_| TopicStream {
            id: StreamId(u64::from_be_bytes(self.bytes("stream").try_into().expect("8 bytes"))),
            first: self.number("first"),
        });
        TopicName { topic: self.narrow("topic"), name: self.text("name"), key, stream }
    }

    fn record(self) -> RecordChunk<'static> {
        RecordChunk {
            topic: self.narrow("topic"),
            number: self.number("chunk"),
            is_last: self.is("ends_record"),
            age: Span::from_nanos(self.number("age_ns")),
            bytes: self.bytes("bytes"),
        }
    }

    fn frame(self) -> Frame<'static> {
        match self.text("kind") {
            "state" => Frame::State { id: self.state_id(), bytes: self.bytes("state") },
            "part" => Frame::Part(self.part()),
            "again" => Frame::Again(self.state_id()),
            "name" => Frame::Name(self.topic_name()),
            "removed" => Frame::Removed(self.state_id()),
            "record" => Frame::Record(self.record()),
            "cursor" => Frame::Cursor(self.narrow("topic")),
            other => panic!("no frames are of kind {other}"),
        }
    }

    fn frames(self) -> Frames<'static> {
        if self.optional("bare_state").is_some() {
            return Frames::fresh(self.bytes("bare_state"));
        }
        let frames: Vec<_> = self.list("frames").map(Self::frame).collect();
        match frames[..] {
            [] => Frames::NONE,
            [frame] => Frames::one(frame),
            _ => several(&frames),
        }
    }

    fn update(self) -> Update<'static> {
        Update {
            session: self.session(),
            seq: self.number("sequence"),
            sent_at: self.time("sent_at_ns"),
            clock_offset: self.optional("clock_offset").map(Self::clock_offset),
            wants_ack: self.is("ack_asked"),
            wants_return: self.optional("return_wanted").is_some(),
            ack_mark: self.ack_mark("ack_code_point"),
            opening: self.optional("opening").map(Self::opening),
            frames: self.frames(),
        }
    }

    fn marks(self) -> Marks {
        Marks { seen: self.code_point("arrived_with"), sent: self.code_point("left_with") }
    }

    fn parts_ack(self) -> PartsAck {
        let before = |it: Self| it.0.as_u64().expect("how many updates before");
        let recent = self.list("received_before").map(|it| 1 << (before(it) - 1)).sum();
        let newest = self.optional("newest_whole").map(|_| self.number("newest_whole"));
        PartsAck { recent, no_room: self.is("no_room"), newest }
    }

    fn ack(self) -> Ack {
        Ack {
            session: self.session(),
            seq: self.number("sequence"),
            sent_at: self.time("sent_at_ns"),
            received_at: self.time("received_at_ns"),
            hold: self.micros("hold_us"),
            was_fresh: self.is("is_newest"),
            fresh: self.narrow("fresh"),
            stale: self.narrow("stale"),
            missing: self.narrow("missing"),
            marks: self.marks(),
            parts: self.optional("parts").map(Self::parts_ack),
        }
    }

    fn close(self) -> Close {
        let reason = match self.text("reason") {
            "done" => CloseReason::Done,
            "shutting_down" => CloseReason::ShuttingDown,
            "full" => CloseReason::Full,
            "bad_token" => CloseReason::BadToken,
            "version" => CloseReason::Version,
            "payload_too_large" => CloseReason::TooLarge,
            "name_taken" => CloseReason::NameTaken,
            "bad_name" => CloseReason::BadName,
            "not_permitted" => CloseReason::NotPermitted,
            other => panic!("no reason {other}"),
        };
        Close { session: self.session(), reason }
    }

    fn packet(self) -> Packet<'static> {
        Packet {
            session: self.session(),
            seq: self.number("sequence"),
            sent_at: self.time("sent_at_ns"),
            clock_offset: self.optional("clock_offset_ns").map(|_| self.signed("clock_offset_ns")),
            interval: Span::from_millis(self.number("interval_ms")),
            ack_mark: self.ack_mark("report_code_point"),
            payload: self.bytes("payload"),
        }
    }

    fn seen(self) -> wlan::Report {
        wlan::Report {
            level: self.float("level"),
            deviation: self.float("deviation"),
            frames: self.number("count"),
            rate: BitRate::from_bps(self.number("rate_bit_s")),
            loss: self.float("loss"),
        }
    }

    fn delivered(self) -> wlan::Delivered {
        wlan::Delivered {
            bytes: self.number("bytes"),
            rate: BitRate::from_bps(1_000 * self.number("rate_kbit_s")),
            excess: self.micros("above_min_us"),
            gap: self.micros("gap_us"),
        }
    }

    fn report(self) -> Report {
        let max_packets = self.optional("max_frame").map(|_| self.narrow("max_frame"));
        Report {
            session: self.session(),
            number: self.narrow("number"),
            newest_seq: self.number("newest"),
            newest_sent_at: self.time("sent_at_ns"),
            newest_received_at: self.time("received_at_ns"),
            hold: self.micros("hold_us"),
            received: self.narrow("packets"),
            seen: self.optional("frames").map(Self::seen),
            marks: self.marks(),
            delivered: self.optional("arrivals").map(Self::delivered),
            max_packets: max_packets.map(|packets| NonZeroU16::new(packets).expect("above 0")),
        }
    }

    fn message(self) -> Message<'static> {
        let session = self.session();
        match self.text("type") {
            "update" => Message::Update(self.update()),
            "ack" => Message::Ack(self.ack()),
            "challenge" => Message::Challenge(Challenge { session, cookie: self.cookie() }),
            "close" => Message::Close(self.close()),
            "join" => {
                let opening = self.optional("opening").expect("an opening").opening();
                Message::Join(Join { session, opening })
            }
            "packet" => Message::Packet(self.packet()),
            "report" => Message::Report(self.report()),
            other => panic!("no messages are of type {other}"),
        }
    }
}

/// An update with nothing but these frames, and where they are in it.
fn update_of(frames: Frames<'_>) -> (Vec<u8>, std::ops::Range<usize>) {
    let update = Update {
        session: SessionId(0),
        seq: 0,
        sent_at: Time::ZERO,
        clock_offset: None,
        wants_ack: true,
        wants_return: false,
        ack_mark: None,
        opening: None,
        frames,
    };
    (written(&Message::Update(update)), Update::HEADER_LEN..Update::HEADER_LEN + frames.len())
}

/// Frames behind each other. Only an update that was read has several.
fn several(frames: &[Frame<'_>]) -> Frames<'static> {
    let mut encoded = Vec::new();
    for frame in frames {
        let (update, at) = update_of(Frames::one(*frame));
        encoded.extend_from_slice(&update[at]);
    }
    carried(&encoded).expect("frames")
}

/// The frames in these bytes, as an update carries them.
fn carried(encoded: &[u8]) -> Result<Frames<'static>, ParseError> {
    let (mut update, _) = update_of(Frames::NONE);
    let len = u16::try_from(encoded.len()).expect("frames that fit");
    update[14..16].copy_from_slice(&len.to_be_bytes());
    update.truncate(Update::HEADER_LEN);
    update.extend_from_slice(encoded);
    update.resize(update.len().max(Update::MIN_LEN_OF_PARTS), 0);
    match Message::parse(update.leak())? {
        Message::Update(update) => Ok(update.frames),
        other => panic!("an update is read as {other:?}"),
    }
}

fn written(message: &Message<'_>) -> Vec<u8> {
    // Bytes that a writer leaves out are visible.
    let mut out = vec![0xEE; 2_000];
    let len = match message {
        Message::Update(update) => update.write(&mut out),
        Message::Join(join) => join.write(&mut out),
        Message::Packet(packet) => packet.write(&mut out),
        Message::Ack(ack) => return ack.bytes().to_vec(),
        Message::Challenge(challenge) => return challenge.bytes().to_vec(),
        Message::Close(close) => return close.bytes().to_vec(),
        Message::Report(report) => return report.bytes().to_vec(),
    };
    out.truncate(len.expect("it fits"));
    out
}

#[test]
fn every_message_is_written_and_read_as_the_document_says() {
    for vector in Vector::all() {
        let Some(meaning) = vector.meaning() else { continue };
        let message = meaning.message();
        let rider = meaning.optional("rider").map(Fields::ack);
        if vector.is_written() {
            let mut out = written(&message);
            if let Some(ack) = rider {
                let len = out.len();
                wire::put_rider(&ack, &mut out, len);
            }
            assert_eq!(out, vector.bytes(), "{}", vector.name());
        }
        let behind = wire::rider(vector.bytes()).map(Message::parse);
        assert_eq!(behind, rider.map(|ack| Ok(Message::Ack(ack))), "{}", vector.name());
        assert_eq!(Message::parse(vector.bytes()), Ok(message), "{}", vector.name());
    }
}

#[test]
fn number_and_time_of_a_state_follow_from_its_update() {
    for vector in Vector::all() {
        let Ok(Message::Update(update)) = Message::parse(vector.bytes()) else { continue };
        let meaning = vector.meaning().expect("a meaning");
        if meaning.optional("bare_state").is_some() {
            assert_eq!(update.frames.lead().and_then(|frame| frame.id()), Some(StateId::FRESH));
            continue;
        }
        let read: Vec<_> = update.frames.iter().filter_map(|frame| frame.id()).collect();
        let aged = meaning.list("frames").filter(|frame| {
            frame.optional("behind").is_some() && frame.optional("age_ns").is_some()
        });
        let expected: Vec<_> =
            aged.map(|frame| (frame.number("number"), frame.time("generated_at_ns"))).collect();
        let of = |id: &StateId| (id.number(update.seq), id.generated_at(update.sent_at));
        assert_eq!(read.iter().map(of).collect::<Vec<_>>(), expected, "{}", vector.name());
    }
}

#[test]
fn a_refused_datagram_gets_no_answer_but_that_of_another_version() {
    for vector in Vector::all() {
        let fields = vector.fields();
        if vector.meaning().is_some() {
            continue;
        }
        let why = fields.text("refused");
        assert!(Message::parse(vector.bytes()).is_err(), "{}: {why}", vector.name());
        let mut monitor = Monitor::new(MonitorParams::default(), Secret::new([7; 16]));
        // The expected outcome is the datagram that the monitor sends.
        let _ = monitor.handle_datagram(Time::ZERO, 0_u8, vector.bytes());
        let mut answer = Vec::new();
        let is_answered = monitor.poll_transmit(Time::ZERO, &mut answer).is_some();
        let expected = fields.optional("answer").map(|_| fields.bytes("answer"));
        assert_eq!(is_answered.then_some(&answer[..]), expected, "{}: {why}", vector.name());
    }
}

/// The numbers for which these frames are not skipped, as they end where something has to follow.
fn known(frames: impl Fn(u8) -> Vec<u8>) -> BTreeSet<u8> {
    (0..=u8::MAX).filter(|number| carried(&frames(*number)).is_err()).collect()
}

#[test]
fn every_type_of_message_and_kind_of_frame_has_a_vector() {
    let written: Vec<_> = Vector::all().into_iter().filter(|vector| vector.is_written()).collect();
    let types: BTreeSet<u8> = written.iter().map(|vector| vector.bytes()[3]).collect();
    assert_eq!(types, wire::TYPES.iter().copied().collect());

    let (mut kinds, mut names, mut reasons) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for meaning in written.iter().filter_map(|vector| vector.meaning()) {
        match meaning.message() {
            Message::Close(close) => drop(reasons.insert(close.reason as u8)),
            Message::Update(_) if meaning.optional("frames").is_some() => {
                for frame in meaning.list("frames") {
                    let (update, at) = update_of(Frames::one(frame.frame()));
                    kinds.insert(update[at.start]);
                    if frame.optional("key").is_some() && frame.number("behind") == 0 {
                        // Before the one byte of "behind", and the key.
                        names.insert(update[at.end - frame.bytes("key").len() - 2]);
                    }
                    if frame.optional("stream").is_some() && frame.number("first") == 0 {
                        names.insert(update[at.end - 1 - 8 - 1]);
                    }
                }
            }
            _ => {}
        }
    }
    assert_eq!(kinds, known(|kind| vec![kind, 0]), "kinds of frames");
    assert_eq!(names, known(|number| vec![4, 4, 1, 1, b'x', number]), "items after a name");
    assert_eq!(reasons, CloseReason::ALL.map(|reason| reason as u8).into());
}

#[test]
fn the_file_is_what_the_encoder_writes() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/protocol-vectors");
    let run = |args: &[&str]| Command::new("python3").args(args).output();
    if !run(&["--version"]).is_ok_and(|output| output.status.success()) {
        println!("skipped: needs python3");
        return;
    }
    let script = script.to_str().expect("a path in UTF-8");
    let output = run(&[script, "--check"]).expect("python3 starts");
    let printed = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success(),
        "docs/protocol-vectors.jsonl differs from the output of scripts/protocol-vectors; run it:\n{}",
        String::from_utf8_lossy(&printed)
    );
}
