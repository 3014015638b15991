//! The newest state of a stream: a line of text, or a frame with its length in front.

use std::io::{self, BufRead, BufReader, Read};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use freshline_core::unit::Time;

use super::{MAX_SAMPLE, Need, Sampler, Take};
use crate::clock::Clock;
use crate::waker::Waker;

/// Where a state ends in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// At the end of a line, of UTF-8 text without control characters but tabs. Other input is
    /// refused: binary states contain line feeds, which would cut them into halves.
    #[default]
    Lines,
    /// After as many bytes as the four bytes in front of it say, the most significant first.
    U32,
}

/// Not the name of a framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown framing; use `lines` for text or `u32` for frames with their length in front")]
pub struct NoFraming;

impl FromStr for Framing {
    type Err = NoFraming;

    fn from_str(name: &str) -> Result<Self, NoFraming> {
        match name {
            "lines" => Ok(Self::Lines),
            "u32" => Ok(Self::U32),
            _ => Err(NoFraming),
        }
    }
}

/// Keeps only the newest state of a stream, such as standard input: states that come faster than
/// they may be sent are replaced, the newest is repeated while the monitor does not have it, and the
/// stream's end is the source's end once the last state has arrived.
pub struct Latest<R> {
    stream: Option<R>,
    framing: Framing,
    newest: Arc<Mutex<Newest>>,
}

#[derive(Default)]
struct Newest {
    line: Option<(Time, Vec<u8>)>,
    taken: bool,
    ended: Option<Result<(), String>>,
}

impl Newest {
    /// The stream has given this; whether the source must be woken: it knows already of a state that
    /// has not been taken.
    fn put(&mut self, generated_at: Time, read: io::Result<Option<Vec<u8>>>) -> bool {
        let is_known = self.line.is_some() && !self.taken;
        match read {
            Ok(Some(line)) => {
                self.line = Some((generated_at, line));
                self.taken = false;
                return !is_known;
            }
            Ok(None) => self.ended = Some(Ok(())),
            Err(error) => self.ended = Some(Err(format!("cannot read the next state: {error}"))),
        }
        true
    }
}

#[cfg(test)]
impl Latest<io::Empty> {
    /// A stream that the test writes: a function that puts its next state, and whether the source must
    /// be woken.
    pub(crate) fn by_hand() -> (Self, impl Fn(Time, Vec<u8>) -> bool) {
        let sampler = Self::new(io::empty(), Framing::Lines);
        let newest = Arc::clone(&sampler.newest);
        (sampler, move |at, state| newest.lock().unwrap().put(at, Ok(Some(state))))
    }
}

impl<R: Read + Send + 'static> Latest<R> {
    /// The newest state of `stream`, without the end of its line or its length.
    pub fn new(stream: R, framing: Framing) -> Self {
        Self { stream: Some(stream), framing, newest: Arc::default() }
    }
}

impl<R: Read + Send + 'static> Sampler for Latest<R> {
    fn start(&mut self, clock: Clock, waker: Arc<Waker>) {
        let Some(stream) = self.stream.take() else { return };
        let (newest, framing) = (Arc::clone(&self.newest), self.framing);
        // It ends with the stream, or with the process.
        std::thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            loop {
                let read = read_state(&mut stream, framing);
                let generated_at = clock.now();
                let mut newest = newest.lock().unwrap_or_else(PoisonError::into_inner);
                let is_news = newest.put(generated_at, read);
                let ended = newest.ended.is_some();
                drop(newest);
                // Waking fails only when the source has ended.
                if (is_news && waker.wake().is_err()) || ended {
                    return;
                }
            }
        });
    }

    fn take(&mut self, _now: Time, need: Need, into: &mut Vec<u8>) -> Take {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let Newest { line, taken, ended } = &mut *newest;
        match (line, ended) {
            (Some((generated_at, line)), _) if !*taken || need == Need::Newest => {
                *taken = true;
                into.extend_from_slice(line);
                Take::Sample { generated_at: *generated_at }
            }
            (_, Some(Ok(()))) => Take::End,
            (_, Some(Err(why))) => Take::Failed(why.clone()),
            _ => Take::NotYet,
        }
    }
}

/// The next state of a stream, or `None` at its end.
///
/// # Errors
/// If the stream fails, or has no such states.
#[doc(hidden)]
pub fn read_state(stream: &mut impl BufRead, framing: Framing) -> io::Result<Option<Vec<u8>>> {
    match framing {
        Framing::Lines => read_line(stream),
        Framing::U32 => read_frame(stream),
    }
}

/// The next line without its end, or `None` at the end of the stream.
fn read_line(lines: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let read = lines.by_ref().take(MAX_SAMPLE as u64).read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() == MAX_SAMPLE {
        return Err(io::Error::other(format!("a line is longer than {MAX_SAMPLE} bytes")));
    }
    if !is_text(&line) {
        return Err(io::Error::other(
            "the stream is not text, and would be cut at each byte 0x0a: send states as frames with \
             their length in front, with --framing u32, or encode them, such as in base64",
        ));
    }
    Ok((read > 0).then_some(line))
}

/// Whether this is UTF-8 without control characters, but tabs, the carriage return of lines that end
/// in two characters, and the escapes of terminals' colours.
fn is_text(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let is_control = |byte: &u8| byte.is_ascii_control() && !matches!(byte, b'\t' | 0x1b);
    str::from_utf8(line).is_ok() && !line.iter().any(is_control)
}

/// The next frame without its length, or `None` at the end of the stream.
fn read_frame(stream: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    if stream.fill_buf()?.is_empty() {
        return Ok(None);
    }
    let cut = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::other("the stream ends within a frame"),
        _ => error,
    };
    let mut len = [0; 4];
    stream.read_exact(&mut len).map_err(cut)?;
    let len = u32::from_be_bytes(len) as usize;
    if len > MAX_SAMPLE {
        return Err(io::Error::other(format!(
            "a frame of {len} bytes is longer than {MAX_SAMPLE}: are there four bytes of length, the \
             most significant first, in front of each state?"
        )));
    }
    let mut frame = vec![0; len];
    stream.read_exact(&mut frame).map_err(cut)?;
    Ok(Some(frame))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_end_with_or_without_a_newline_but_not_never() {
        let mut lines = io::Cursor::new(b"one\ntwo\r\n\tthr\xc3\xa9e".to_vec());
        assert_eq!(read_line(&mut lines).unwrap(), Some(b"one".to_vec()));
        assert_eq!(read_line(&mut lines).unwrap(), Some(b"two\r".to_vec()));
        assert_eq!(read_line(&mut lines).unwrap(), Some(b"\tthr\xc3\xa9e".to_vec()));
        assert_eq!(read_line(&mut lines).unwrap(), None);
        assert!(read_line(&mut BufReader::new(io::repeat(b'x'))).is_err());
    }

    #[test]
    fn binary_input_is_refused_as_lines() {
        // A frame of a float and a counter, cut at the 0x0a in its middle.
        for binary in [&b"\x40\x49\x0a\xdb\x00"[..], b"a\0b\n", b"\xff\xfe\n", b"\x01\n"] {
            let mut lines = io::Cursor::new(binary.to_vec());
            let mut read = read_line(&mut lines);
            while matches!(&read, Ok(Some(_))) {
                read = read_line(&mut lines);
            }
            let error = read.expect_err("it is not text").to_string();
            assert!(error.contains("--framing u32"), "{binary:?}: {error}");
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
            assert_eq!(read_frame(&mut pieces).unwrap().as_deref(), Some(frame));
        }
        assert_eq!(read_frame(&mut pieces).unwrap(), None);
        let error =
            |stream: &[u8]| read_frame(&mut io::Cursor::new(stream)).unwrap_err().to_string();
        assert!(error(&[0, 0]).contains("within a frame"));
        assert!(error(&[0, 0, 0, 2, b'x']).contains("within a frame"));
        assert!(error(b"text, not frames").contains("most significant first"));
    }

    proptest! {
        #[test]
        fn any_stream_ends_in_bounded_memory(stream in proptest::collection::vec(any::<u8>(), 0..300)) {
            for is_text in [true, false] {
                let mut rest = io::Cursor::new(&stream[..]);
                let mut states = 0;
                let mut read = || if is_text { read_line(&mut rest) } else { read_frame(&mut rest) };
                while let Ok(Some(state)) = read() {
                    prop_assert!(state.len() <= stream.len());
                    states += 1;
                }
                prop_assert!(states <= stream.len());
            }
        }
    }
}
