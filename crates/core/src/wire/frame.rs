//! Frames: the content of an update.
//!
//! ```text
//!   update:  header │ opening │ frame │ frame │ … │ padding
//!   frame:   kind (1) │ length of the rest (varint) │ topic (varint) │ …
//! ```
//!
//! | kind | frame | after the topic |
//! |---:|---|---|
//! | 1 | a whole state | behind, age; its bytes |
//! | 2 | part of a state | behind, age, length of the state, of a symbol, repair symbols, index; the symbol |
//! | 3 | a state again, by its number alone | behind, age |
//! | 4 | the topic's name | length (1), name; of a key: 1 (1), behind, key; of a stream: 2 (1), stream (8), first |
//! | 5 | the state is removed | behind, age |
//! | 6 | a chunk of a [record](RecordChunk) | number, 1 (1) if the record ends with it, otherwise 0, age; its bytes |
//! | 7 | a question for the number of chunks of records | |
//!
//! All numbers except the name's length are varints. The **topic** is the number, 0 to 4095, of a
//! topic or of one key of a topic with keys: either has states of its own. Its name frame defines
//! which. The distance (`behind`) to the first update that named this key distinguishes it from a
//! former key of the same number.
//!
//! A state's **number** is the sequence number of the first update that carries it, or a part of
//! it. A frame has the distance of that to its own update, which is 0 for most. So a newer state of
//! a topic has a higher number, and a damaged field cannot raise it above the update's own number.
//!
//! A fresh state of topic 0 that is alone in its update travels bare: without kind, length, topic,
//! number and age, as marked by a flag of the update. Unknown kinds are skipped. Varints are those
//! of RFC 9000 section 16.

use alloc::vec::Vec;

use super::cursor::{Reader, Writer, varint_len};
use super::name::{MAX_KEY, MAX_NAME, is_control};
use super::record::{RecordChunk, TopicStream};
use super::{ParseError, StreamId};
use crate::state::Layout;
use crate::unit::{Span, Time};

const STATE: u8 = 1;
const PART: u8 = 2;
const AGAIN: u8 = 3;
const NAME: u8 = 4;
const REMOVED: u8 = 5;
const RECORD: u8 = 6;
const CURSOR: u8 = 7;

/// In a name: a key of a topic with keys follows, or the stream of a topic of records. Other kinds
/// of topics are skipped.
const KEYED: u8 = 1;
const STREAM: u8 = 2;

/// In a chunk: the record ends with it.
const LAST: u8 = 1;

/// The maximum number of a topic, or of a key.
pub const MAX_TOPIC: u16 = 4095;

/// One frame of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A state that one datagram carries.
    State {
        /// Its identity.
        id: StateId,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// One symbol of a state that takes several datagrams.
    Part(Part<'a>),
    /// The state of this number is still the newest; a receiver that lacks it needs it whole.
    Again(StateId),
    /// A topic's name.
    Name(TopicName<'a>),
    /// The key is removed: this number is newer than all its states.
    Removed(StateId),
    /// A chunk of a record of a topic of records.
    Record(RecordChunk<'a>),
    /// A request for the cursor of this topic's stream in the ack.
    Cursor(u16),
}

/// The name of a topic or of a key, for people and programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicName<'a> {
    /// The number of the topic or of the key, at most [`MAX_TOPIC`].
    pub topic: u16,
    /// The topic's name, as that of a source: at most 63 bytes, without characters that
    /// [control](super::is_control) how text is shown.
    pub name: &'a str,
    /// The key of the topic, if it has keys.
    pub key: Option<TopicKey<'a>>,
    /// The stream of the topic, if each of its records counts. Such a topic has no keys.
    pub stream: Option<TopicStream>,
}

/// A key of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicKey<'a> {
    /// The distance to the first update with this key under this number.
    pub behind: u64,
    /// The key: any 1 to [`TopicKey::MAX_LEN`] bytes.
    pub bytes: &'a [u8],
}

impl TopicKey<'_> {
    /// The maximum length of a key in bytes.
    pub const MAX_LEN: usize = MAX_KEY;
}

impl TopicName<'_> {
    /// The maximum bytes of the frame with the name of a topic without keys.
    pub const MAX_LEN: usize = 1 + 2 + 2 + 1 + MAX_NAME;
    /// The same with a key.
    pub const MAX_LEN_OF_KEY: usize = Self::MAX_LEN + 1 + 8 + MAX_KEY;
    /// The same with a stream.
    pub const MAX_LEN_OF_STREAM: usize = Self::MAX_LEN + 1 + 8 + 8;

    fn is_legal(&self) -> bool {
        let is_key = |key: TopicKey<'_>| (1..=MAX_KEY).contains(&key.bytes.len());
        self.name.len() <= MAX_NAME
            && !self.name.chars().any(is_control)
            && self.key.is_none_or(is_key)
            && !(self.key.is_some() && self.stream.is_some())
    }

    fn len(&self) -> usize {
        let key = |key: TopicKey<'_>| 1 + varint_len(key.behind) + key.bytes.len();
        let stream = |stream: TopicStream| 1 + 8 + varint_len(stream.first);
        varint_len(self.topic.into())
            + 1
            + self.name.len()
            + self.key.map_or(0, key)
            + self.stream.map_or(0, stream)
    }
}

/// Names a state of a session, and gives its age when the update left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateId {
    /// The topic or key: at most [`MAX_TOPIC`].
    pub topic: u16,
    /// The distance of its number to that of the update: 0 if this update is the first that carries
    /// it.
    pub behind: u64,
    /// Time from its generation to the sending of the update; at most 2⁶² − 1 ns.
    pub age: Span,
}

impl StateId {
    /// A state of topic 0 that was generated when the update left, which is the first to carry it.
    pub const FRESH: Self = Self { topic: 0, behind: 0, age: Span::ZERO };

    /// The number of the state, in update number `seq`.
    pub fn number(&self, seq: u64) -> u64 {
        seq.saturating_sub(self.behind)
    }

    /// When the state was generated, on the source's clock, in an update that left at `sent_at`.
    pub fn generated_at(&self, sent_at: Time) -> Time {
        sent_at - self.age
    }

    fn len(&self) -> usize {
        varint_len(self.topic.into()) + varint_len(self.behind) + varint_len(self.age.as_nanos())
    }
}

/// One symbol of a state: `symbol_len` bytes of the state, or a repair symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part<'a> {
    /// The state.
    pub id: StateId,
    /// Its length, and how it is cut.
    pub layout: Layout,
    /// The index of the symbol: those of the state from 0, then those of repair.
    pub index: u32,
    /// The symbol.
    pub bytes: &'a [u8],
}

impl Part<'_> {
    fn head(&self) -> [u64; 4] {
        let Self { layout, index, .. } = self;
        let (len, symbol_len) = (layout.len() as u64, layout.symbol_len() as u64);
        [len, symbol_len, layout.repair().into(), (*index).into()]
    }

    fn head_len(&self) -> usize {
        self.head().into_iter().map(varint_len).sum()
    }
}

impl<'a> Frame<'a> {
    /// The maximum overhead in bytes of a whole state's frame, of a topic up to 63.
    pub const MAX_OVERHEAD: usize = 1 + 4 + 1 + 8 + 8;
    /// The maximum overhead in bytes of a part, without its symbol.
    pub const MAX_OVERHEAD_OF_PART: usize = Self::MAX_OVERHEAD + 4 + 4 + 4 + 4;
    /// The maximum overhead in bytes of a chunk of a record.
    pub const MAX_OVERHEAD_OF_RECORD: usize = 1 + 4 + 2 + 8 + 1 + 8;

    /// The state of the frame; `None` for a name, and for records.
    pub fn id(&self) -> Option<StateId> {
        match self {
            Self::State { id, .. }
            | Self::Part(Part { id, .. })
            | Self::Again(id)
            | Self::Removed(id) => Some(*id),
            Self::Name(_) | Self::Record(_) | Self::Cursor(_) => None,
        }
    }

    /// The age of the chunk's record when the update left.
    pub(crate) fn record_age(&self) -> Option<Span> {
        match self {
            Self::Record(chunk) => Some(chunk.age),
            _ => None,
        }
    }

    /// The topic or key of the frame.
    pub fn topic(&self) -> u16 {
        match self {
            Self::State { id, .. }
            | Self::Part(Part { id, .. })
            | Self::Again(id)
            | Self::Removed(id) => id.topic,
            Self::Name(name) => name.topic,
            Self::Record(chunk) => chunk.topic,
            Self::Cursor(topic) => *topic,
        }
    }

    /// The length in bytes of the state in it, whole or in part.
    #[inline]
    pub fn state_len(&self) -> usize {
        match self {
            Self::State { bytes, .. } => bytes.len(),
            Self::Part(part) => part.layout.len(),
            Self::Again(_)
            | Self::Removed(_)
            | Self::Name(_)
            | Self::Record(_)
            | Self::Cursor(_) => 0,
        }
    }

    fn content_len(&self) -> usize {
        match self {
            Self::State { id, bytes } => id.len() + bytes.len(),
            Self::Part(part) => part.id.len() + part.head_len() + part.bytes.len(),
            Self::Again(id) | Self::Removed(id) => id.len(),
            Self::Name(name) => name.len(),
            Self::Record(chunk) => chunk.len(),
            Self::Cursor(topic) => varint_len((*topic).into()),
        }
    }

    /// Bytes on the wire.
    #[expect(clippy::len_without_is_empty, reason = "a frame is never empty on the wire")]
    pub fn len(&self) -> usize {
        let content = self.content_len();
        1 + varint_len(content as u64) + content
    }

    fn write(&self, writer: &mut Writer<'_>) {
        let kind = match self {
            Self::State { .. } => STATE,
            Self::Part(_) => PART,
            Self::Again(_) => AGAIN,
            Self::Name(_) => NAME,
            Self::Removed(_) => REMOVED,
            Self::Record(_) => RECORD,
            Self::Cursor(_) => CURSOR,
        };
        writer.put(&[kind]).varint(self.content_len() as u64).varint(self.topic().into());
        if let Some(StateId { behind, age, .. }) = self.id() {
            writer.varint(behind).varint(age.as_nanos());
        }
        match self {
            Self::State { bytes, .. } => {
                writer.put(bytes);
            }
            Self::Part(part) => {
                for number in part.head() {
                    writer.varint(number);
                }
                writer.put(part.bytes);
            }
            Self::Again(_) | Self::Removed(_) | Self::Cursor(_) => {}
            Self::Record(RecordChunk { number, is_last, age, bytes, .. }) => {
                let last = if *is_last { LAST } else { 0 };
                writer.varint(*number).put(&[last]).varint(age.as_nanos()).put(bytes);
            }
            Self::Name(TopicName { name, key, stream, .. }) => {
                writer.put(&[name.len() as u8]).put(name.as_bytes());
                if let Some(TopicKey { behind, bytes }) = key {
                    writer.put(&[KEYED]).varint(*behind).put(bytes);
                }
                if let Some(TopicStream { id, first }) = stream {
                    writer.put(&[STREAM]).put(&id.0.to_be_bytes()).varint(*first);
                }
            }
        }
    }

    /// Appends the frame as it is on the wire.
    pub(crate) fn append_to(&self, encoded: &mut Vec<u8>) {
        let start = encoded.len();
        encoded.resize(start + self.len(), 0);
        self.write(&mut Writer::new(&mut encoded[start..]));
    }

    /// Reads the next frame of a known kind; `None` at the end.
    fn read(reader: &mut Reader<'a>) -> Result<Option<Self>, ParseError> {
        while !reader.is_empty() {
            let kind = reader.u8()?;
            let len = usize::try_from(reader.varint()?).unwrap_or(usize::MAX);
            let mut content = Reader::new(reader.take(len)?);
            let id = |content: &mut Reader<'a>| {
                let (topic, behind) = (read_topic(content)?, content.varint()?);
                Ok(StateId { topic, behind, age: Span::from_nanos(content.varint()?) })
            };
            return Ok(Some(match kind {
                STATE => Self::State { id: id(&mut content)?, bytes: content.rest() },
                PART => Self::Part(Part {
                    id: id(&mut content)?,
                    layout: read_layout(&mut content)?,
                    index: narrow(content.varint()?, "index of a symbol")?,
                    bytes: content.rest(),
                }),
                AGAIN => Self::Again(id(&mut content)?),
                NAME => match read_name(content)? {
                    Some(name) => Self::Name(name),
                    None => continue,
                },
                REMOVED => Self::Removed(id(&mut content)?),
                RECORD => Self::Record(read_record(content)?),
                CURSOR => Self::Cursor(read_topic(&mut content)?),
                _ => continue,
            }));
        }
        Ok(None)
    }
}

fn read_layout(content: &mut Reader<'_>) -> Result<Layout, ParseError> {
    let len = narrow(content.varint()?, "length of a state")?;
    let symbol_len = narrow(content.varint()?, "length of a symbol")?;
    let repair = narrow(content.varint()?, "number of repair symbols")?;
    Layout::new(len, symbol_len, repair).map_err(|_| ParseError::Field("way to cut a state"))
}

fn read_topic(content: &mut Reader<'_>) -> Result<u16, ParseError> {
    let topic = narrow(content.varint()?, TOPIC)?;
    if topic <= MAX_TOPIC { Ok(topic) } else { Err(ParseError::Field(TOPIC)) }
}

/// The field of [`read_topic`].
const TOPIC: &str = "number of a topic";

/// `None` if the topic is of an unknown kind.
fn read_name<'a>(mut content: Reader<'a>) -> Result<Option<TopicName<'a>>, ParseError> {
    let (topic, len) = (read_topic(&mut content)?, content.u8()?);
    let name = str::from_utf8(content.take(len.into())?).ok();
    let (mut key, mut stream) = (None, None);
    if !content.is_empty() {
        match content.u8()? {
            KEYED => key = Some(TopicKey { behind: content.varint()?, bytes: content.rest() }),
            STREAM => {
                let id = StreamId(content.u64()?);
                stream = Some(TopicStream { id, first: content.varint()? });
            }
            _ => return Ok(None),
        }
    }
    let name = name.map(|name| TopicName { topic, name, key, stream }).filter(TopicName::is_legal);
    name.map(Some).ok_or(ParseError::Field("name of a topic"))
}

fn read_record(mut content: Reader<'_>) -> Result<RecordChunk<'_>, ParseError> {
    let (topic, number) = (read_topic(&mut content)?, content.varint()?);
    let is_last = content.u8()? & LAST != 0;
    let age = Span::from_nanos(content.varint()?);
    Ok(RecordChunk { topic, number, is_last, age, bytes: content.rest() })
}

fn narrow<T: TryFrom<u64>>(number: u64, field: &'static str) -> Result<T, ParseError> {
    number.try_into().map_err(|_| ParseError::Field(field))
}

/// The frames of an update.
#[derive(Clone, Copy)]
pub struct Frames<'a> {
    one: Option<Frame<'a>>,
    /// Other frames, as they arrived; they have been checked.
    encoded: &'a [u8],
}

impl<'a> Frames<'a> {
    /// No frame.
    pub const NONE: Self = Self { one: None, encoded: &[] };

    /// A single frame.
    pub const fn one(frame: Frame<'a>) -> Self {
        Self { one: Some(frame), encoded: &[] }
    }

    /// A whole state of topic 0 that was generated when the update left, which is the first to
    /// carry it.
    pub const fn fresh(bytes: &'a [u8]) -> Self {
        Self::one(Frame::State { id: StateId::FRESH, bytes })
    }

    /// The frames that [`Frame::append_to`] wrote.
    pub(crate) const fn appended(encoded: &'a [u8]) -> Self {
        Self { one: None, encoded }
    }

    /// The first frame that is not a name: the ack has the number of the newest state, or the
    /// cursor, of its topic. `None` without one.
    pub fn lead(&self) -> Option<Frame<'a>> {
        self.iter().find(|frame| !matches!(frame, Frame::Name(_)))
    }

    /// The frames in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Frame<'a>> + use<'a> {
        let (mut one, mut reader) = (self.one, Reader::new(self.encoded));
        core::iter::from_fn(move || {
            // Nearly always there is one frame, which is not encoded.
            one.take().or_else(|| match reader.is_empty() {
                true => None,
                false => Frame::read(&mut reader).ok().flatten(),
            })
        })
    }

    /// Whether this holds for one of the frames.
    #[inline]
    pub(crate) fn any(&self, holds: impl Fn(&Frame<'a>) -> bool) -> bool {
        match &self.one {
            Some(one) if self.encoded.is_empty() => holds(one),
            _ => self.iter().any(|frame| holds(&frame)),
        }
    }

    /// The first whole state among them.
    pub fn state(&self) -> Option<(StateId, &'a [u8])> {
        self.iter().find_map(|frame| match frame {
            Frame::State { id, bytes } => Some((id, bytes)),
            _ => None,
        })
    }

    /// The state that travels bare.
    #[inline]
    pub(super) fn bare(&self) -> Option<&'a [u8]> {
        match self.one {
            Some(Frame::State { id: StateId::FRESH, bytes }) => Some(bytes),
            _ => None,
        }
    }

    /// Bytes on the wire.
    #[expect(clippy::len_without_is_empty, reason = "it is no collection")]
    #[inline]
    pub fn len(&self) -> usize {
        let one = match (self.bare(), &self.one) {
            (Some(bytes), _) => bytes.len(),
            (None, Some(frame)) => frame.len(),
            (None, None) => 0,
        };
        one + self.encoded.len()
    }

    #[inline]
    pub(super) fn write(&self, writer: &mut Writer<'_>) {
        match (self.bare(), &self.one) {
            (Some(bytes), _) => {
                writer.put(bytes);
            }
            (None, Some(frame)) => frame.write(writer),
            (None, None) => {}
        }
        if !self.encoded.is_empty() {
            writer.put(self.encoded);
        }
    }

    #[inline]
    pub(super) fn read(bytes: &'a [u8], is_bare: bool) -> Result<Self, ParseError> {
        if is_bare {
            return Ok(Self::fresh(bytes));
        }
        let mut reader = Reader::new(bytes);
        while Frame::read(&mut reader)?.is_some() {}
        Ok(Self { one: None, encoded: bytes })
    }
}

impl PartialEq for Frames<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Frames<'_> {}

impl core::fmt::Debug for Frames<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
