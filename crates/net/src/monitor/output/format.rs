//! How states are written: as lines of JSON, or their payloads alone as binary frames.

use std::str::FromStr;

use freshline_core::unit::Time;
use freshline_core::wire::is_control;
use serde_json::{Map, Value};

use super::held::Held;
use super::records::Given;
use super::{line, payload_len};
use crate::framing::{push_cobs, push_u32};

/// How fresh states are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutFormat {
    /// A line of JSON each, with the source, age and payload.
    #[default]
    Json,
    /// The payload alone, as [`Framing::U32`](crate::framing::Framing::U32).
    U32,
    /// The payload alone, as [`Framing::Cobs`](crate::framing::Framing::Cobs).
    Cobs,
}

/// A text that is not the name of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown format; use `json` for lines of JSON, or `u32` or `cobs` for payloads as binary frames"
)]
pub struct UnknownFormat;

impl FromStr for OutFormat {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        match name {
            "json" => Ok(Self::Json),
            "u32" => Ok(Self::U32),
            "cobs" => Ok(Self::Cobs),
            _ => Err(UnknownFormat),
        }
    }
}

impl OutFormat {
    /// The last byte of each line or frame; `None` for frames with their length in front.
    pub(super) fn end(self) -> Option<u8> {
        match self {
            Self::Json => Some(b'\n'),
            Self::U32 => None,
            Self::Cobs => Some(0),
        }
    }

    /// The end of a torn line or frame, after which it is no line of JSON and no frame.
    pub(super) fn end_of_torn(self) -> &'static [u8] {
        match self {
            Self::Json => b"\n",
            Self::U32 => b"",
            Self::Cobs => &NO_FRAME,
        }
    }

    pub(super) fn content(self, now: Time, held: Held<'_>) -> Content {
        match self {
            Self::Json => Content::Line(line(now, held)),
            Self::U32 | Self::Cobs => Content::Payload(held.payload().unwrap_or_default().to_vec()),
        }
    }

    pub(super) fn content_of_record(self, given: &Given<'_>) -> Content {
        match self {
            Self::Json => Content::Line(given.line()),
            Self::U32 | Self::Cobs => Content::Payload(given.taken.bytes.clone()),
        }
    }

    pub(super) fn push(self, content: Content, text: &mut Vec<u8>) {
        match content {
            Content::Line(line) => {
                push_line(&Value::Object(line), text);
            }
            Content::Payload(payload) if self == Self::U32 => push_u32(&payload, text),
            Content::Payload(payload) => push_cobs(&payload, text),
        }
    }
}

/// A state, a record or an alarm in one of the formats.
pub(super) enum Content {
    Line(Map<String, Value>),
    Payload(Vec<u8>),
}

impl Content {
    /// The length of the payload in it.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Line(line) => payload_len(line),
            Self::Payload(payload) => payload.len(),
        }
    }
}

/// Ends any part of a COBS frame such that it cannot be decoded: of a block that has up to 254
/// bytes left to come, and of the next block, whose first byte 0xff asks for 254 more, too few
/// follow.
const NO_FRAME: [u8; 256] = {
    let mut end = [0xff; 256];
    (end[0], end[255]) = (2, 0);
    end
};

/// Appends a document of JSON as a line.
pub(super) fn push_line(document: &Value, text: &mut Vec<u8>) {
    text.extend_from_slice(printable(&document.to_string()).as_bytes());
    text.push(b'\n');
}

/// A document of JSON with escapes for the invisible characters that JSON allows: DEL, C1, and the
/// characters that change the direction of text.
fn printable(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        match is_control(character) {
            // Each of these has one UTF-16 unit.
            true => text.push_str(&format!("\\u{:04x}", u32::from(character))),
            false => text.push(character),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_escaped() {
        let json = Value::from("a\u{7f}\u{85}\u{202e}\u{2066}b\n\u{1b}[m ö").to_string();
        let shown = printable(&json);
        assert_eq!(shown, r#""a\u007f\u0085\u202e\u2066b\n\u001b[m ö""#);
        assert_eq!(
            serde_json::from_str::<String>(&shown).unwrap(),
            "a\u{7f}\u{85}\u{202e}\u{2066}b\n\u{1b}[m ö"
        );
    }
}
