//! The boundaries of states in a stream of bytes that a source reads, or a monitor writes.
//!
//! | framing | a state is | in front | after it |
//! |---|---|---|---|
//! | `lines` | UTF-8 text without control characters | | line feed |
//! | `null` | any bytes but zero | | a zero byte |
//! | `u32` | any bytes | its length, four bytes, big-endian | |
//! | `cobs` | any bytes | | encoded by Consistent Overhead Byte Stuffing (Cheshire and Baker, 1999), then a zero byte |
//!
//! A reader of `cobs` that starts in the middle, or whose stream was damaged, finds the next state
//! at the next zero; a reader of `u32` finds no more states. Neither has a checksum: a damaged
//! frame of `cobs` that can still be decoded is a wrong state.

use std::io::{self, BufRead, Read};
use std::str::FromStr;
use std::sync::Once;

/// How states are delimited in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// At the end of a line, of UTF-8 text without control characters but tabs. Other input is
    /// refused: binary states contain line feeds, which would cut them into halves.
    #[default]
    Lines,
    /// At a zero byte, as `find -print0` writes. The last state needs one, too.
    Null,
    /// By the length in the four bytes in front of it, the most significant first.
    U32,
    /// At a zero byte, which Consistent Overhead Byte Stuffing has removed from the state. Frames
    /// that cannot be decoded, are empty or too long are skipped.
    Cobs,
}

/// Not the name of a framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown framing; use `lines` for text, `null` for states that end with a zero byte, `u32` for \
     frames with their length in front, or `cobs` for Consistent Overhead Byte Stuffing"
)]
pub struct UnknownFraming;

impl FromStr for Framing {
    type Err = UnknownFraming;

    fn from_str(name: &str) -> Result<Self, UnknownFraming> {
        match name {
            "lines" => Ok(Self::Lines),
            "null" => Ok(Self::Null),
            "u32" => Ok(Self::U32),
            "cobs" => Ok(Self::Cobs),
            _ => Err(UnknownFraming),
        }
    }
}

impl Framing {
    /// The next state of at most `max` bytes, or `None` at the end of the stream. Uses memory only
    /// for the received bytes of one such state, whatever length the stream announces.
    ///
    /// # Errors
    /// If the stream fails, ends within a state, or has another framing. A longer state is an
    /// error, too, except with [`Framing::Cobs`], which skips it.
    pub fn read(self, stream: &mut impl BufRead, max: usize) -> io::Result<Option<Vec<u8>>> {
        match self {
            Self::Lines => read_line(stream, max),
            Self::Null => read_to_zero(stream, max),
            Self::U32 => read_frame(stream, max),
            Self::Cobs => read_cobs(stream, max),
        }
    }
}

/// Appends a state as a frame of [`Framing::U32`], of at most 2³² − 1 bytes.
pub(crate) fn push_u32(state: &[u8], frames: &mut Vec<u8>) {
    let len = u32::try_from(state.len()).unwrap_or(u32::MAX);
    frames.extend_from_slice(&len.to_be_bytes());
    frames.extend_from_slice(&state[..len as usize]);
}

/// Appends a state as a frame of [`Framing::Cobs`].
pub(crate) fn push_cobs(state: &[u8], frames: &mut Vec<u8>) {
    frames.extend_from_slice(&cobs::encode_vec(state));
    frames.push(0);
}

/// The next line without its end, or `None` at the end of the stream.
fn read_line(lines: &mut impl BufRead, max: usize) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let read = lines.by_ref().take(beyond(max)).read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() > max {
        return Err(io::Error::other(format!("a line is longer than {max} bytes{LIMIT}")));
    }
    if !is_text(&line) {
        return Err(io::Error::other(
            "the stream is not text, and would be cut at each byte 0x0a: send states as frames, with \
             --framing u32 or cobs, or encode them, such as in base64",
        ));
    }
    Ok((read > 0).then_some(line))
}

/// Whether this is UTF-8 without control characters, except tabs, the carriage return of lines that
/// end in two characters, and the escapes of terminals' colours.
fn is_text(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let is_control = |byte: &u8| byte.is_ascii_control() && !matches!(byte, b'\t' | 0x1b);
    str::from_utf8(line).is_ok() && !line.iter().any(is_control)
}

/// The maximum number of bytes to read of a state of up to `max` bytes: enough to see that it is
/// longer.
pub(crate) fn beyond(max: usize) -> u64 {
    (max as u64).saturating_add(1)
}

/// The remedy if a state is too long.
const LIMIT: &str = " (--max-state)";

const CUT: &str = "the stream ends within a frame";

/// The bytes before the next zero byte, or `None` at the end of the stream.
fn read_to_zero(stream: &mut impl BufRead, max: usize) -> io::Result<Option<Vec<u8>>> {
    let mut state = Vec::new();
    if stream.take(beyond(max)).read_until(0, &mut state)? == 0 {
        return Ok(None);
    }
    match state.pop() {
        Some(0) => Ok(Some(state)),
        // One byte was removed.
        Some(_) if state.len() == max => Err(io::Error::other(format!(
            "a state is longer than {max} bytes{LIMIT}: is there a zero byte after each?"
        ))),
        _ => Err(io::Error::other("the stream ends without the zero byte after a state")),
    }
}

/// The next frame that can be decoded, or `None` at the end of the stream.
fn read_cobs(stream: &mut impl BufRead, max: usize) -> io::Result<Option<Vec<u8>>> {
    // Without its zero: one byte more for each 254 that are begun.
    let max_frame = max.saturating_add(max.div_ceil(254));
    let mut frame = Vec::new();
    loop {
        frame.clear();
        if stream.take(beyond(max_frame)).read_until(0, &mut frame)? == 0 {
            return Ok(None);
        }
        match frame.pop() {
            Some(0) => {}
            _ if frame.len() < max_frame => return Err(io::Error::other(CUT)),
            _ => {
                left_out("is longer than a state can be");
                skip_to_zero(stream)?;
                continue;
            }
        }
        // Two zeros in a row: a sender that also marks the start of frames.
        if frame.is_empty() {
            continue;
        }
        match cobs::decode_vec(&frame) {
            Ok(state) if state.len() <= max => return Ok(Some(state)),
            _ => left_out("is damaged"),
        }
    }
}

/// Skips all bytes up to the next zero byte.
fn skip_to_zero(stream: &mut impl BufRead) -> io::Result<()> {
    loop {
        let bytes = stream.fill_buf()?;
        if bytes.is_empty() {
            return Err(io::Error::other(CUT));
        }
        let (len, zero) = (bytes.len(), bytes.iter().position(|byte| *byte == 0));
        stream.consume(zero.map_or(len, |at| at + 1));
        if zero.is_some() {
            return Ok(());
        }
    }
}

/// Reports the first frame of this process that is skipped; a noisy line has many.
fn left_out(why: &str) {
    static REPORT: Once = Once::new();
    REPORT
        .call_once(|| tracing::warn!("left out a frame that {why}; further ones are not reported"));
}

/// The next frame without its length, or `None` at the end of the stream.
fn read_frame(stream: &mut impl BufRead, max: usize) -> io::Result<Option<Vec<u8>>> {
    if stream.fill_buf()?.is_empty() {
        return Ok(None);
    }
    let cut = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::other(CUT),
        _ => error,
    };
    let mut len = [0; 4];
    stream.read_exact(&mut len).map_err(cut)?;
    let len = u32::from_be_bytes(len) as usize;
    if len > max {
        return Err(io::Error::other(format!(
            "a frame of {len} bytes is longer than {max}{LIMIT}: are there four bytes of length, the \
             most significant first, in front of each state?"
        )));
    }
    let mut frame = Vec::new();
    match stream.take(len as u64).read_to_end(&mut frame)? {
        read if read == len => Ok(Some(frame)),
        _ => Err(io::Error::other(CUT)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;
    use proptest::prelude::*;

    const MAX_STATE: usize = 1 << 16;

    #[test]
    fn lines_end_with_or_without_a_newline_but_not_never() {
        let mut lines = io::Cursor::new(b"one\ntwo\r\n\tthr\xc3\xa9e".to_vec());
        assert_eq!(read_line(&mut lines, MAX_STATE).unwrap(), Some(b"one".to_vec()));
        assert_eq!(read_line(&mut lines, MAX_STATE).unwrap(), Some(b"two\r".to_vec()));
        assert_eq!(read_line(&mut lines, MAX_STATE).unwrap(), Some(b"\tthr\xc3\xa9e".to_vec()));
        assert_eq!(read_line(&mut lines, MAX_STATE).unwrap(), None);
        assert!(read_line(&mut BufReader::new(io::repeat(b'x')), MAX_STATE).is_err());
    }

    #[test]
    fn binary_input_is_refused_as_lines() {
        // A frame of a float and a counter, cut at the 0x0a in its middle.
        for binary in [&b"\x40\x49\x0a\xdb\x00"[..], b"a\0b\n", b"\xff\xfe\n", b"\x01\n"] {
            let mut lines = io::Cursor::new(binary.to_vec());
            let mut read = read_line(&mut lines, MAX_STATE);
            while matches!(&read, Ok(Some(_))) {
                read = read_line(&mut lines, MAX_STATE);
            }
            let error = read.expect_err("it is not text").to_string();
            assert!(error.contains("--framing u32 or cobs"), "{binary:?}: {error}");
        }
    }

    #[test]
    fn frames_come_whole_however_they_are_cut_and_what_is_none_is_an_error() {
        let frames = [&b"\x0a\0\xff"[..], b"", b"second"];
        let mut stream = Vec::new();
        for frame in frames {
            stream.extend_from_slice(&(frame.len() as u32).to_be_bytes());
            stream.extend_from_slice(frame);
        }
        // A reader that gives one byte at a time.
        let mut pieces = BufReader::with_capacity(1, &stream[..]);
        for frame in frames {
            assert_eq!(read_frame(&mut pieces, MAX_STATE).unwrap().as_deref(), Some(frame));
        }
        assert_eq!(read_frame(&mut pieces, MAX_STATE).unwrap(), None);
        let error = |stream: &[u8]| {
            read_frame(&mut io::Cursor::new(stream), MAX_STATE).unwrap_err().to_string()
        };
        assert!(error(&[0, 0]).contains("within a frame"));
        assert!(error(&[0, 0, 0, 2, b'x']).contains("within a frame"));
        assert!(error(b"text, not frames").contains("most significant first"));
    }

    #[test]
    fn states_that_end_with_zero_are_whole() {
        let mut stream = io::Cursor::new(b"one\0two\n\0\0".to_vec());
        let mut next = || Framing::Null.read(&mut stream, MAX_STATE).unwrap();
        assert_eq!(next().as_deref(), Some(&b"one"[..]));
        assert_eq!(next().as_deref(), Some(&b"two\n"[..]));
        assert_eq!(next().as_deref(), Some(&b""[..]));
        assert_eq!(next(), None);
        let half = Framing::Null.read(&mut io::Cursor::new(b"half"), MAX_STATE).unwrap_err();
        assert!(half.to_string().contains("without the zero byte"), "{half}");
        let mut endless = BufReader::new(io::repeat(b'x'));
        let error = Framing::Null.read(&mut endless, MAX_STATE).unwrap_err();
        assert!(error.to_string().contains("is there a zero byte"), "{error}");
        let longest = [&vec![b'x'; MAX_STATE][..], &[0]].concat();
        let read = Framing::Null.read(&mut io::Cursor::new(longest), MAX_STATE).unwrap();
        assert_eq!(read.map(|state| state.len()), Some(MAX_STATE));
    }

    #[test]
    fn a_damaged_frame_of_cobs_costs_itself_and_no_other() {
        let mut stream = Vec::new();
        // A start in the middle; a frame with a byte missing; and one without an end.
        stream.extend_from_slice(b"\x7fiddle\0\0");
        push_cobs(b"\x0a\0\xff", &mut stream);
        stream.extend_from_slice(b"\x05abc\0");
        stream.extend_from_slice(&vec![1; 3 * MAX_STATE]);
        stream.push(0);
        push_cobs(&[7; 1000], &mut stream);
        let mut stream = io::Cursor::new(stream);
        let mut next = || Framing::Cobs.read(&mut stream, MAX_STATE).unwrap();
        assert_eq!(next().as_deref(), Some(&b"\x0a\0\xff"[..]));
        assert_eq!(next().as_deref(), Some(&[7; 1000][..]));
        assert_eq!(next(), None);
        let cut = Framing::Cobs.read(&mut io::Cursor::new(b"\x05abc"), MAX_STATE).unwrap_err();
        assert!(cut.to_string().contains("within a frame"), "{cut}");
        let cut = Framing::Cobs
            .read(&mut io::Cursor::new(vec![1; 3 * MAX_STATE]), MAX_STATE)
            .unwrap_err();
        assert!(cut.to_string().contains("within a frame"), "{cut}");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(states in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 0..700), 0..5))
        {
            type Push = fn(&[u8], &mut Vec<u8>);
            for (framing, push) in
                [(Framing::U32, push_u32 as Push), (Framing::Cobs, push_cobs)]
            {
                let mut stream = Vec::new();
                for state in &states {
                    push(state, &mut stream);
                }
                let mut stream = BufReader::with_capacity(3, &stream[..]);
                for state in &states {
                    let read = framing.read(&mut stream, MAX_STATE).unwrap();
                    prop_assert_eq!(read.as_ref(), Some(state));
                }
                prop_assert_eq!(framing.read(&mut stream, MAX_STATE).unwrap(), None);
            }
        }


        #[test]
        fn any_stream_ends_in_bounded_memory(stream in proptest::collection::vec(any::<u8>(), 0..300)) {
            for framing in [Framing::Lines, Framing::Null, Framing::U32, Framing::Cobs] {
                let mut rest = io::Cursor::new(&stream[..]);
                let mut states = 0;
                while let Ok(Some(state)) = framing.read(&mut rest, MAX_STATE) {
                    prop_assert!(state.len() <= stream.len());
                    states += 1;
                }
                prop_assert!(states <= stream.len());
            }
        }
    }
}
