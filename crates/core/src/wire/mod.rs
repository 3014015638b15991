//! The formats on the wire, version 2: updates and their answers; a downlink of packets.
//!
//! ```text
//!  source                         monitor
//!    │ update (with opening) ───────► │   no state yet: a cookie is sent back, nothing is kept
//!    │ ◄──────────────── challenge    │
//!    │ update (opening + cookie) ───► │   the cookie proves the address: state is made
//!    │ ◄────────────────────── ack    │
//!    │ update ──────────────────────► │
//!    │ ◄────────────────────── ack    │
//!    │ close ───────────────────────► │
//! ```
//!
//! The same for a downlink of packets, where the client speaks first:
//!
//! ```text
//!  client                         server
//!    │ join ────────────────────────► │   nothing is kept
//!    │ ◄──────────────── challenge    │
//!    │ join (with the cookie) ──────► │   state is made
//!    │ ◄─────── packet, packet, …     │   at the rate that its law sets
//!    │ report ──────────────────────► │   every Δ, which packets say
//!    │ close ───────────────────────► │
//! ```
//!
//! All numbers are big-endian. Every message begins with the same 12 bytes:
//!
//! | at | bytes | content |
//! |---:|---:|---|
//! | 0 | 2 | `FL` |
//! | 2 | 1 | version, 2 |
//! | 3 | 1 | type: 1 update, 2 ack, 3 challenge, 4 close, 5 join, 6 packet, 7 report |
//! | 4 | 8 | session, random, chosen by the source, or by the client of a downlink |
//!
//! [`Message::parse`] is total: any bytes give a message or a [`ParseError`], without a panic, an
//! allocation or a loop over more than the input. An answer is never longer than the message that
//! it answers ([`Update::MIN_LEN`]), so that a spoofed address gains nothing (RFC 9000 section 8
//! gives the reasoning). Byte by byte: `docs/protocol.md`.

mod ack;
mod control;
mod cursor;
#[cfg(feature = "wlan")]
mod downlink;
mod frame;
mod marks;
mod name;
mod offset;
mod record;
mod rider;
mod update;

pub use ack::{Ack, AckBytes, PartsAck};
pub use control::{Challenge, Close, CloseReason};
#[cfg(feature = "wlan")]
pub use downlink::{Join, Packet, Report};
pub use frame::{Frame, Frames, MAX_TOPIC, Part, StateId, TopicKey, TopicName};
pub use marks::{AckMark, Marks, ParseAckMarkError};
pub use name::{KeyText, escaped, is_control};
pub use offset::OffsetEstimate;
pub(crate) use offset::{error_code, error_of};
pub use record::{RecordChunk, TopicStream};
pub use rider::{put_rider, rider};
pub use update::{Opening, OpeningTooLong, Update};

use cursor::Reader;

/// The version of this code.
pub const VERSION: u8 = 2;

/// The first bytes of each message.
pub const MAGIC: [u8; 2] = *b"FL";
const HEADER_LEN: usize = 12;

/// The types of messages that this code reads: the byte behind the version.
pub const TYPES: &[u8] = &[
    update::TYPE,
    ack::TYPE,
    control::CHALLENGE,
    control::CLOSE,
    #[cfg(feature = "wlan")]
    downlink::JOIN,
    #[cfg(feature = "wlan")]
    downlink::PACKET,
    #[cfg(feature = "wlan")]
    downlink::REPORT,
];

// No answer is longer than the shortest update.
const _: () = assert!(
    Ack::LEN <= Update::MIN_LEN
        && Ack::LEN_OF_PARTS <= Update::MIN_LEN_OF_PARTS
        && Challenge::LEN <= Update::MIN_LEN
        && Close::LEN <= Update::MIN_LEN
);
#[cfg(feature = "wlan")]
const _: () = assert!(
    Challenge::LEN <= Join::MIN_LEN
        && Close::LEN <= Join::MIN_LEN
        && Close::LEN <= Report::LEN
        && Challenge::LEN <= Report::LEN
);

/// Names one session; random, so that a host that cannot see the traffic cannot guess it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Names a stream of records; random, so that no two are the same. It stays with the records over
/// sessions and restarts of either end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StreamId(pub u64);

/// Proof that the sender can be reached at its claimed address; only the monitor that made it can
/// read anything from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cookie(pub [u8; 16]);

/// Any message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Message<'a> {
    /// An update of a source.
    Update(Update<'a>),
    /// A monitor's answer to one update.
    Ack(Ack),
    /// A monitor's request to prove the address.
    Challenge(Challenge),
    /// The end of a session, or its refusal.
    Close(Close),
    /// A client's request for a downlink.
    #[cfg(feature = "wlan")]
    Join(Join<'a>),
    /// One packet of a downlink.
    #[cfg(feature = "wlan")]
    Packet(Packet<'a>),
    /// A client's report on it.
    #[cfg(feature = "wlan")]
    Report(Report),
}

/// Why bytes are not a message of this protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Not a message of this protocol.
    #[error("it does not begin like a Freshline message")]
    Foreign,
    /// Another version of the protocol.
    #[error("it is of version {0}, this is version 2")]
    Version(u8),
    /// A type that version 2 does not have.
    #[error("its type {0} is unknown")]
    Type(u8),
    /// It ends before its last field.
    #[error("it is cut short")]
    Truncated,
    /// The value of a field is not allowed.
    #[error("its {0} is invalid")]
    Field(&'static str),
}

impl<'a> Message<'a> {
    /// Reads a datagram.
    ///
    /// # Errors
    /// [`ParseError`] where the bytes are not a whole message of version 2.
    #[inline]
    pub fn parse(datagram: &'a [u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(datagram);
        if reader.array() != Ok(MAGIC) {
            return Err(ParseError::Foreign);
        }
        let version = reader.u8()?;
        if version != VERSION {
            return Err(ParseError::Version(version));
        }
        let kind = reader.u8()?;
        let session = SessionId(reader.u64()?);
        match kind {
            update::TYPE => Update::read(session, reader, datagram.len()).map(Message::Update),
            ack::TYPE => Ack::read(session, reader).map(Message::Ack),
            control::CHALLENGE => Challenge::read(session, reader).map(Message::Challenge),
            control::CLOSE => Close::read(session, reader).map(Message::Close),
            #[cfg(feature = "wlan")]
            downlink::JOIN => Join::read(session, reader, datagram.len()).map(Message::Join),
            #[cfg(feature = "wlan")]
            downlink::PACKET => Packet::read(session, reader).map(Message::Packet),
            #[cfg(feature = "wlan")]
            downlink::REPORT => Report::read(session, reader).map(Message::Report),
            other => Err(ParseError::Type(other)),
        }
    }

    /// The session that the message belongs to.
    pub fn session(&self) -> SessionId {
        match self {
            Self::Update(update) => update.session,
            Self::Ack(ack) => ack.session,
            Self::Challenge(challenge) => challenge.session,
            Self::Close(close) => close.session,
            #[cfg(feature = "wlan")]
            Self::Join(join) => join.session,
            #[cfg(feature = "wlan")]
            Self::Packet(packet) => packet.session,
            #[cfg(feature = "wlan")]
            Self::Report(report) => report.session,
        }
    }
}

/// The content of a message's header, before or after the rest is parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heading {
    /// An update with its sequence number; whether it wants states of the return direction, and
    /// whether an ack follows it.
    Update { session: SessionId, seq: u64, wants_return: bool, has_rider: bool },
    /// An ack or a challenge: for a source.
    Answer(SessionId),
    /// A close, for either end.
    Close(SessionId),
}

/// The end of a session that a datagram is for, without a look at the rest; `None` if for none.
pub(crate) fn heading(datagram: &[u8]) -> Option<Heading> {
    let mut reader = Reader::new(datagram);
    let [magic @ .., version, kind]: [u8; 4] = reader.array().ok()?;
    if magic != MAGIC || version != VERSION {
        return None;
    }
    let session = SessionId(reader.u64().ok()?);
    match kind {
        update::TYPE => {
            let flags = reader.u8().ok()?;
            let (wants_return, has_rider) = (update::wants_return(flags), update::has_rider(flags));
            // The code point of the ack, and the length of the update's content.
            reader.array::<3>().ok()?;
            let seq = reader.u64().ok()?;
            Some(Heading::Update { session, seq, wants_return, has_rider })
        }
        ack::TYPE | control::CHALLENGE => Some(Heading::Answer(session)),
        control::CLOSE => Some(Heading::Close(session)),
        _ => None,
    }
}

/// The session of an update whose version may be foreign: the header is the same in all versions.
/// Only updates are answered; otherwise two monitors of different versions would answer each
/// other's answers forever, after a single message with a forged source address.
pub fn session_of_update(datagram: &[u8]) -> Option<SessionId> {
    let mut reader = Reader::new(datagram);
    let [magic @ .., _version, kind]: [u8; 4] = reader.array().ok()?;
    (magic == MAGIC && kind == update::TYPE).then(|| reader.u64().map(SessionId).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dscp::Dscp;
    use crate::state::Layout;
    use crate::unit::{Span, Time};
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn what_is_not_ours_is_told_apart() {
        assert_eq!(Message::parse(b""), Err(ParseError::Foreign));
        assert_eq!(Message::parse(b"GET / HTTP/1.1"), Err(ParseError::Foreign));
        assert_eq!(Message::parse(b"FL\x01"), Err(ParseError::Version(1)));
        assert_eq!(Message::parse(b"FL\x02\x09\0\0\0\0\0\0\0\0"), Err(ParseError::Type(9)));
        assert_eq!(Message::parse(b"FL\x02\x01\0\0"), Err(ParseError::Truncated));
    }

    #[test]
    fn every_type_that_is_listed_is_read_and_no_other() {
        for kind in 0..=u8::MAX {
            let header = [&MAGIC[..], &[VERSION, kind], &[0; 8]].concat();
            let is_unknown = Message::parse(&header) == Err(ParseError::Type(kind));
            assert_eq!(is_unknown, !TYPES.contains(&kind), "type {kind}");
        }
    }

    #[test]
    fn a_message_cut_anywhere_is_an_error_and_not_a_panic() {
        let mut buffer = [0; 200];
        let update = Update {
            session: SessionId(7),
            seq: 3,
            sent_at: Time::from_nanos(5),
            clock_offset: Some(OffsetEstimate::new(-9, Span::from_millis(1))),
            wants_ack: true,
            wants_return: false,
            ack_mark: None,
            opening: Some(Opening { cookie: Cookie([1; 16]), name: "robot-7", token: b"secret" }),
            frames: Frames::fresh(b"state"),
        };
        let written = update.write(&mut buffer).unwrap();
        let needed = 40 + 16 + 1 + 7 + 1 + 6 + 5;
        assert_eq!(written, needed);
        for cut in 0..needed {
            assert!(Message::parse(&buffer[..cut]).is_err(), "cut at {cut}");
        }
        assert_eq!(Message::parse(&buffer[..needed]), Ok(Message::Update(update)));
        // Bytes after the frames are padding and ignored.
        assert_eq!(Message::parse(&buffer), Ok(Message::Update(update)));
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_message_or_an_error(bytes: Vec<u8>, kind in 0u8..9) {
            let _ = Message::parse(&bytes);
            let mut ours = alloc::vec![b'F', b'L', VERSION, kind];
            ours.extend(bytes);
            let _ = Message::parse(&ours);
        }

        #[test]
        fn updates_survive_the_wire(
            session: u64, seq: u64, generated: u64, clock_offset: Option<u64>, wants_ack: bool,
            ack_mark in 0u8..66,
            opening in proptest::option::of(("[a-z0-9-]{0,63}", any::<[u8; 16]>(), proptest::collection::vec(any::<u8>(), 0..255))),
            payload in proptest::collection::vec(any::<u8>(), 0..1500),
            kind in 0u8..11, topic in 0..=MAX_TOPIC, behind in 0u64..1 << 62, age in 0u64..1 << 62,
            layout in (1u32..1 << 23, 1u16.., 0u16..4, any::<u32>()),
        ) {
            let id = StateId { topic, behind, age: Span::from_nanos(age) };
            let frames = match kind {
                0 => Frames::NONE,
                1 => Frames::one(Frame::State { id, bytes: &payload }),
                2 => {
                    let (len, symbol_len, repair, index) = layout;
                    let (bytes, layout) = (&payload[..], Layout::new(len, symbol_len, repair));
                    prop_assume!(layout.is_ok());
                    Frames::one(Frame::Part(Part { id, layout: layout.unwrap(), index, bytes }))
                }
                3 => Frames::one(Frame::Again(id)),
                4 => Frames::one(Frame::Removed(id)),
                5 | 6 => {
                    let bytes = &payload[..payload.len().min(TopicKey::MAX_LEN)];
                    let key = (kind == 6 && !bytes.is_empty()).then_some(TopicKey { behind, bytes });
                    Frames::one(Frame::Name(TopicName { topic, name: "pose", key, stream: None }))
                }
                7 => {
                    let stream = Some(TopicStream { id: StreamId(seq), first: behind });
                    Frames::one(Frame::Name(TopicName { topic, name: "log", key: None, stream }))
                }
                8 => Frames::one(Frame::Record(RecordChunk {
                    topic, number: behind, is_last: wants_ack, age: Span::from_nanos(age), bytes: &payload,
                })),
                9 => Frames::one(Frame::Cursor(topic)),
                _ => Frames::fresh(&payload),
            };
            let ack_mark = match ack_mark {
                64 => None,
                65 => Some(AckMark::Echo),
                number => Dscp::new(number).map(AckMark::Set),
            };
            let update = Update {
                session: SessionId(session), seq, sent_at: Time::from_nanos(generated),
                clock_offset: clock_offset.map(OffsetEstimate::from_bits),
                wants_ack,
                wants_return: !wants_ack,
                ack_mark,
                opening: opening.as_ref().map(|(name, cookie, token)| Opening { cookie: Cookie(*cookie), name, token }),
                frames,
            };
            let mut buffer = alloc::vec![0xAA; 2000];
            let written = update.write(&mut buffer).unwrap();
            prop_assert!(written >= Update::MIN_LEN);
            prop_assert_eq!(written, update.len());
            prop_assert_eq!(Message::parse(&buffer[..written]), Ok(Message::Update(update)));
        }

        #[test]
        fn answers_survive_the_wire(
            session: u64, seq: u64, generated: u64, received: u64, hold: u32, counts: [u32; 3],
            fresh: bool, cookie: [u8; 16], marks: [u8; 2], parts: Option<(u64, Option<u64>)>,
        ) {
            let parts = parts.map(|(recent, newest)| {
                PartsAck { recent, no_room: recent % 3 == 0, newest: newest.map(|number| number % (1 << 62)) }
            });
            let ack = Ack {
                session: SessionId(session), seq, sent_at: Time::from_nanos(generated),
                received_at: Time::from_nanos(received), hold: Span::from_micros(hold.into()),
                was_fresh: fresh, fresh: counts[0], stale: counts[1], missing: counts[2],
                marks: Marks { seen: Dscp::new(marks[0]), sent: Dscp::new(marks[1]) },
                parts,
            };
            let bytes = ack.bytes();
            prop_assert_eq!(Message::parse(&bytes), Ok(Message::Ack(ack)));
            let challenge = Challenge { session: SessionId(session), cookie: Cookie(cookie) };
            let bytes = challenge.bytes();
            prop_assert_eq!(Message::parse(&bytes), Ok(Message::Challenge(challenge)));
            for reason in CloseReason::ALL {
                let close = Close { session: SessionId(session), reason };
                let bytes = close.bytes();
            prop_assert_eq!(Message::parse(&bytes), Ok(Message::Close(close)));
            }
        }
    }
}
