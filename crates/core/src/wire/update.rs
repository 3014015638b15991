//! The update: a source's message with its states at one moment.

use super::cursor::{Reader, Writer};
use super::name::{MAX_NAME, is_control};
use super::{
    Ack, AckMark, Cookie, Frame, Frames, HEADER_LEN, OffsetEstimate, ParseError, SessionId,
};
use crate::unit::Time;

pub(super) const TYPE: u8 = 1;

const OPENING: u8 = 1;
const CLOCK_OFFSET: u8 = 2;
const NO_ACK: u8 = 4;
const FRESH_STATE: u8 = 8;
const RETURN: u8 = 16;
const RIDER: u8 = 32;

/// One update: the states of a source, or parts of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Update<'a> {
    /// The session.
    pub session: SessionId,
    /// Counts the updates of the session from 0; at one per nanosecond it lasts 584 years.
    pub seq: u64,
    /// When it left, on the source's clock; a copy by another path has the same time.
    pub sent_at: Time,
    /// The source's estimate of (monitor's clock − source's clock) and of its error, once it has
    /// one. With it a monitor can compute the age, and a bound of it, without synchronised clocks.
    pub clock_offset: Option<OffsetEstimate>,
    /// Whether it asks for an ack. A monitor that does not know the flag ignores it and always
    /// answers.
    pub wants_ack: bool,
    /// Whether the sender wants states of the return direction: a listener with some may open a
    /// session to it. A listener that does not know the flag ignores it.
    pub wants_return: bool,
    /// The requested code point of its ack; without it, the monitor decides. A monitor that does
    /// not know the field ignores it.
    pub ack_mark: Option<AckMark>,
    /// Asks for the session to be opened; carried until the first ack.
    pub opening: Option<Opening<'a>>,
    /// States, and parts of states.
    pub frames: Frames<'a>,
}

/// A source's credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening<'a> {
    /// The cookie of the last challenge, or zeroes.
    pub cookie: Cookie,
    /// A name for people and metrics, at most 63 bytes; may be empty.
    pub name: &'a str,
    /// The client token, at most 255 bytes; may be empty.
    pub token: &'a [u8],
}

/// An opening that does not fit its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpeningTooLong {
    /// The name is too long.
    #[error("the name has {0} bytes; at most {max} are allowed", max = Opening::MAX_NAME)]
    Name(usize),
    /// The name holds characters that would break a terminal or a log, or reorder the text around
    /// them.
    #[error("the name holds control characters, or characters that change the direction of text")]
    ControlCharacters,
    /// The token is too long.
    #[error("the token has {0} bytes; at most {max} are allowed", max = Opening::MAX_TOKEN)]
    Token(usize),
}

impl Opening<'_> {
    /// Whether a name can be used as a file name, a label and an argument without quoting: it is
    /// empty, or of ASCII letters, digits and `. _ : / @ + -`, begins with a letter or a digit, and
    /// has no part `..` between slashes.
    pub fn is_plain_name(name: &str) -> bool {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/@+-".contains(&byte);
        name.bytes().all(is_plain)
            && name.bytes().next().is_none_or(|first| first.is_ascii_alphanumeric())
            && name.split('/').all(|part| part != "..")
    }

    /// The maximum length of a name in bytes.
    pub const MAX_NAME: usize = MAX_NAME;
    /// The maximum length of a token in bytes.
    pub const MAX_TOKEN: usize = 255;

    /// Checks that name and token can be carried.
    ///
    /// # Errors
    /// [`OpeningTooLong`] names the field and the limit.
    pub fn check(&self) -> Result<(), OpeningTooLong> {
        match (self.name.len(), self.token.len()) {
            (name, _) if name > Self::MAX_NAME => Err(OpeningTooLong::Name(name)),
            _ if self.name.chars().any(is_control) => Err(OpeningTooLong::ControlCharacters),
            (_, token) if token > Self::MAX_TOKEN => Err(OpeningTooLong::Token(token)),
            _ => Ok(()),
        }
    }

    pub(super) fn len(&self) -> usize {
        16 + 1 + self.name.len() + 1 + self.token.len()
    }
}

impl<'a> Update<'a> {
    /// Bytes before the opening and the frames.
    pub const HEADER_LEN: usize = HEADER_LEN + 28;
    /// The shortest update: as long as an ack, so that no answer is longer than its question.
    pub const MIN_LEN: usize = Ack::LEN;
    /// The shortest update whose answer reports the arrivals of states in parts, and of topics.
    pub const MIN_LEN_OF_PARTS: usize = Ack::LEN_OF_PARTS;

    /// Whether it contains parts of states, or topics: its ack has [`Ack::parts`].
    #[inline]
    pub fn is_of_parts(&self) -> bool {
        are_of_parts(&self.frames)
    }

    /// Bytes on the wire, padding included.
    #[expect(clippy::len_without_is_empty, reason = "an update is never empty on the wire")]
    #[inline]
    pub fn len(&self) -> usize {
        let opening = self.opening.map_or(0, |opening| opening.len());
        (Self::HEADER_LEN + opening + self.frames.len()).max(min_len(&self.frames))
    }

    /// Writes the update to the front of `out` and returns its length; `None` where it does not
    /// fit, or where the opening or the frames are too long for their fields.
    pub fn write(&self, out: &mut [u8]) -> Option<usize> {
        let len = self.len();
        if out.len() < len || self.opening.is_some_and(|opening| opening.check().is_err()) {
            return None;
        }
        let opening = if self.opening.is_some() { OPENING } else { 0 };
        let offset = if self.clock_offset.is_some() { CLOCK_OFFSET } else { 0 };
        let no_ack = if self.wants_ack { 0 } else { NO_ACK };
        let fresh = if self.frames.bare().is_some() { FRESH_STATE } else { 0 };
        let wanted = if self.wants_return { RETURN } else { 0 };
        let frames_len = u16::try_from(self.frames.len()).ok()?;
        let mut writer = Writer::message(out, TYPE, self.session);
        writer
            .put(&[opening | offset | no_ack | fresh | wanted, AckMark::write(self.ack_mark)])
            .put(&frames_len.to_be_bytes())
            .put(&self.seq.to_be_bytes())
            .put(&self.sent_at.as_nanos().to_be_bytes())
            .put(&self.clock_offset.map_or(0, OffsetEstimate::bits).to_be_bytes());
        if let Some(opening) = &self.opening {
            write_opening(&mut writer, opening);
        }
        self.frames.write(&mut writer);
        writer.pad_to(len);
        Some(len)
    }

    // Always: read where it is needed, an update is not moved.
    #[inline(always)]
    pub(super) fn read(
        session: SessionId,
        mut reader: Reader<'a>,
        datagram_len: usize,
    ) -> Result<Self, ParseError> {
        if datagram_len < Self::MIN_LEN {
            return Err(ParseError::Truncated);
        }
        let [flags, ack_mark] = reader.array()?;
        let frames_len = usize::from(reader.u16()?);
        let seq = reader.u64()?;
        let sent_at = Time::from_nanos(reader.u64()?);
        let offset = OffsetEstimate::from_bits(reader.u64()?);
        let opening = if flags & OPENING == 0 { None } else { Some(read_opening(&mut reader)?) };
        let frames = Frames::read(reader.take(frames_len)?, flags & FRESH_STATE != 0)?;
        if datagram_len < min_len(&frames) {
            return Err(ParseError::Truncated);
        }
        Ok(Self {
            session,
            seq,
            sent_at,
            clock_offset: (flags & CLOCK_OFFSET != 0).then_some(offset),
            wants_ack: flags & NO_ACK == 0,
            wants_return: wants_return(flags),
            ack_mark: AckMark::read(ack_mark),
            opening,
            frames,
        })
    }
}

/// Whether an update with these flags wants states of the return direction.
pub(super) fn wants_return(flags: u8) -> bool {
    flags & RETURN != 0
}

/// Whether an ack follows an update with these flags.
pub(super) fn has_rider(flags: u8) -> bool {
    flags & RIDER != 0
}

/// Sets the flag for an ack behind this update.
pub(super) fn note_rider(datagram: &mut [u8]) {
    if let Some(flags) = datagram.get_mut(HEADER_LEN) {
        *flags |= RIDER;
    }
}

#[inline]
fn are_of_parts(frames: &Frames<'_>) -> bool {
    frames.any(|frame| !matches!(frame, Frame::State { id, .. } if id.topic == 0))
}

/// The shortest update with these frames.
#[inline]
fn min_len(frames: &Frames<'_>) -> usize {
    if are_of_parts(frames) { Update::MIN_LEN_OF_PARTS } else { Update::MIN_LEN }
}

/// Writes an opening that was checked.
pub(super) fn write_opening(writer: &mut Writer<'_>, opening: &Opening<'_>) {
    writer
        .put(&opening.cookie.0)
        .put(&[opening.name.len() as u8])
        .put(opening.name.as_bytes())
        .put(&[opening.token.len() as u8])
        .put(opening.token);
}

pub(super) fn read_opening<'a>(reader: &mut Reader<'a>) -> Result<Opening<'a>, ParseError> {
    let cookie = Cookie(reader.array()?);
    let name_len = usize::from(reader.u8()?);
    let name =
        str::from_utf8(reader.take(name_len)?).map_err(|_| ParseError::Field("source name"))?;
    let token_len = usize::from(reader.u8()?);
    let opening = Opening { cookie, name, token: reader.take(token_len)? };
    opening.check().map_err(|_| ParseError::Field("source name"))?;
    Ok(opening)
}
