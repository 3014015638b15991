//! The newest line of a stream.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, PoisonError};

use freshline_core::unit::Time;
use mio::Waker;

use super::{MAX_SAMPLE, Need, Sampler, Take};
use crate::clock::Clock;

/// Keeps only the newest line of a stream, such as standard input: lines that come faster than
/// they may be sent are replaced, the newest is repeated while the monitor does not have it, and
/// the stream's end is the source's end once the last line has arrived.
pub struct Latest<R> {
    stream: Option<R>,
    newest: Arc<Mutex<Newest>>,
}

#[derive(Default)]
struct Newest {
    line: Option<(Time, Vec<u8>)>,
    taken: bool,
    ended: Option<Result<(), String>>,
}

impl<R: Read + Send + 'static> Latest<R> {
    /// The newest line of `stream`, without its end of line.
    pub fn new(stream: R) -> Self {
        Self { stream: Some(stream), newest: Arc::default() }
    }
}

impl<R: Read + Send + 'static> Sampler for Latest<R> {
    fn start(&mut self, clock: Clock, waker: Arc<Waker>) {
        let Some(stream) = self.stream.take() else { return };
        let newest = Arc::clone(&self.newest);
        // It ends with the stream, or with the process.
        std::thread::spawn(move || {
            let mut lines = BufReader::new(stream);
            loop {
                let read = read_line(&mut lines);
                let generated_at = clock.now();
                let mut newest = newest.lock().unwrap_or_else(PoisonError::into_inner);
                // A line that waits has been announced; the source need not hear of each.
                let announced = newest.line.is_some() && !newest.taken;
                match read {
                    Ok(Some(line)) => {
                        newest.line = Some((generated_at, line));
                        newest.taken = false;
                    }
                    Ok(None) => newest.ended = Some(Ok(())),
                    Err(error) => newest.ended = Some(Err(format!("cannot read a line: {error}"))),
                }
                let ended = newest.ended.is_some();
                drop(newest);
                if ended {
                    // It fails only when the source has ended.
                    let _ = waker.wake();
                    return;
                }
                if !announced && waker.wake().is_err() {
                    return;
                }
            }
        });
    }

    fn take(&mut self, need: Need, into: &mut Vec<u8>) -> Take {
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

/// The next line without its end, or `None` at the end of the stream.
fn read_line(lines: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let read = lines.by_ref().take(MAX_SAMPLE as u64).read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() == MAX_SAMPLE {
        return Err(io::Error::other(format!("it is longer than {MAX_SAMPLE} bytes")));
    }
    Ok((read > 0).then_some(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_with_or_without_a_newline_but_not_never() {
        let mut lines = io::Cursor::new(b"one\ntwo".to_vec());
        assert_eq!(read_line(&mut lines).unwrap(), Some(b"one".to_vec()));
        assert_eq!(read_line(&mut lines).unwrap(), Some(b"two".to_vec()));
        assert_eq!(read_line(&mut lines).unwrap(), None);
        assert!(read_line(&mut BufReader::new(io::repeat(b'x'))).is_err());
    }
}
