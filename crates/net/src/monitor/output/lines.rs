//! Fresh states as lines of JSON.
//!
//! A full disk ends nothing: lines that cannot be written are counted and left out, and writing goes on
//! with the next ones. A line of which only a part was written is ended first, so that each later line
//! is whole. If the reader of a pipe is gone, nothing more is written.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use freshline_core::session::SourceKey;
use freshline_core::unit::{Span, Time};
use freshline_core::wire::is_control;
use serde_json::{Map, Value};

use super::handover::{Handover, Pending};
use super::{Record, line};
use crate::clock::Clock;

/// Lines that may wait for a slow reader; a further one takes the place of the oldest.
const WAITING: usize = 1024;

/// About how many bytes of lines are written at once: few, so that a slow reader is told from one that does
/// not read.
const PIECE: usize = 4096;

/// Writes lines on a thread of its own.
pub(super) struct Lines {
    waiting: Arc<Handover<Waiting>>,
    progress: Arc<Progress>,
    writer: JoinHandle<Result<(), Unwritten>>,
    /// Lines that were not replaced.
    given: u64,
    /// What the progress was when it was looked at last, and when it became that.
    seen: Option<(u64, Time)>,
    /// The reader took in nothing for this long, and the writer is left alone.
    is_stuck: Option<Span>,
}

/// Lines that the writer is done with.
#[derive(Default)]
struct Progress {
    /// Written or failed.
    done: AtomicU64,
    written: AtomicU64,
}

/// Why a file for lines cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}: {error}")]
pub struct LinesError {
    path: PathBuf,
    error: io::Error,
}

/// Lines that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{lines} states could not be written as lines; the last error: {error}")]
pub struct Unwritten {
    /// How many.
    pub lines: u64,
    /// What the system said of the last ones.
    pub error: io::Error,
}

/// Opens a file to append lines to, and says whether its last line has no end, as after a crash. A file
/// that cannot be read may end so.
pub(super) fn append(path: &Path) -> Result<(File, bool), LinesError> {
    let failed = |error| LinesError { path: path.to_owned(), error };
    let file = File::options().create(true).append(true).open(path).map_err(failed)?;
    // A FIFO or a device has no end to look at.
    let has_lines = file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0);
    let is_torn = has_lines && last_byte(path).is_none_or(|last| last != b'\n');
    Ok((file, is_torn))
}

fn last_byte(path: &Path) -> Option<u8> {
    let mut last = [0];
    let mut reader = File::open(path).ok()?;
    reader.seek(SeekFrom::End(-1)).ok()?;
    reader.read_exact(&mut last).ok()?;
    Some(last[0])
}

/// Lines with the index of their source.
#[derive(Default)]
struct Waiting(VecDeque<(usize, Map<String, Value>)>);

impl Pending for Waiting {
    /// All that waits.
    type Item = VecDeque<(usize, Map<String, Value>)>;

    fn take(&mut self) -> Option<Self::Item> {
        (!self.0.is_empty()).then(|| std::mem::take(&mut self.0))
    }
}

impl Lines {
    /// `is_torn`: whether the last line that is there has no end.
    pub(super) fn new(out: Box<dyn Write + Send>, is_torn: bool) -> Self {
        let waiting = Arc::default();
        let theirs = Arc::clone(&waiting);
        let progress = Arc::<Progress>::default();
        let shared = Arc::clone(&progress);
        let writer = std::thread::spawn(move || write(&theirs, out, is_torn, &shared));
        Self { waiting, progress, writer, given: 0, seen: None, is_stuck: None }
    }

    /// Gives the index of the source whose line was replaced, if one had to be.
    pub(super) fn fresh(&mut self, now: Time, source: SourceKey, record: &Record) -> Option<usize> {
        let line = line(now, record);
        let replaced = self.waiting.put(|Waiting(lines)| {
            lines.push_back((source.index(), line));
            if lines.len() > WAITING { lines.pop_front().map(|(source, _)| source) } else { None }
        });
        self.given += u64::from(replaced.is_none());
        replaced
    }

    /// No more lines come.
    pub(super) fn finish(&self) {
        self.waiting.finish();
    }

    /// Whether all lines are written, or the reader has taken in nothing for longer than `patience`.
    pub(super) fn is_over(&mut self, clock: &Clock, patience: Option<Span>) -> bool {
        if self.writer.is_finished() {
            return true;
        }
        let Some(patience) = patience else { return false };
        let (now, done) = (clock.now(), self.progress.done.load(Ordering::Relaxed));
        match self.seen {
            Some((before, since)) if before == done => {
                self.is_stuck = (now.since(since) >= patience).then_some(patience);
            }
            _ => (self.seen, self.is_stuck) = (Some((done, now)), None),
        }
        self.is_stuck.is_some()
    }

    /// Waits until all lines are written, unless the reader is found not to read.
    pub(super) fn join(self) -> Result<(), Unwritten> {
        if let (Some(patience), false) = (self.is_stuck, self.writer.is_finished()) {
            let lines = self.given - self.progress.written.load(Ordering::Relaxed);
            let error = format!("the reader took in nothing for {patience} after the signal");
            return Err(Unwritten { lines, error: io::Error::new(io::ErrorKind::TimedOut, error) });
        }
        self.writer.join().unwrap_or(Ok(()))
    }
}

/// Writes until there are no more lines, or nobody to read them.
fn write(
    waiting: &Handover<Waiting>,
    out: Box<dyn Write + Send>,
    is_torn: bool,
    progress: &Progress,
) -> Result<(), Unwritten> {
    let mut writer = LineWriter { out, is_torn, unwritten: None };
    let mut goes_on = true;
    while goes_on && let Some(mut lines) = waiting.next() {
        while goes_on && !lines.is_empty() {
            let (mut text, mut count) = (Vec::new(), 0);
            while text.len() < PIECE
                && let Some((_, line)) = lines.pop_front()
            {
                text.extend_from_slice(printable(&Value::Object(line).to_string()).as_bytes());
                text.push(b'\n');
                count += 1;
            }
            let before = writer.lost();
            goes_on = writer.write(&text, count);
            let lost = writer.lost() - before;
            progress.written.fetch_add(count - lost, Ordering::Relaxed);
            progress.done.fetch_add(count, Ordering::Relaxed);
        }
        if let Some(unwritten) = &mut writer.unwritten {
            // Those that nothing reads any more.
            unwritten.lines += lines.len() as u64;
        }
    }
    writer.unwritten.map_or(Ok(()), Err)
}

struct LineWriter {
    out: Box<dyn Write + Send>,
    /// Whether the last line written has no end.
    is_torn: bool,
    unwritten: Option<Unwritten>,
}

impl LineWriter {
    fn lost(&self) -> u64 {
        self.unwritten.as_ref().map_or(0, |unwritten| unwritten.lines)
    }

    /// Writes `count` lines; whether it makes sense to go on.
    fn write(&mut self, text: &[u8], count: u64) -> bool {
        let end: &[u8] = if self.is_torn { b"\n" } else { b"" };
        let mut done = 0;
        let result = self.write_all(end, &mut 0).and_then(|()| self.write_all(text, &mut done));
        let Err(error) = result.and_then(|()| self.out.flush()) else {
            return true;
        };
        let missing = match text[done..].iter().filter(|byte| **byte == b'\n').count() as u64 {
            0 => count,
            lines => lines,
        };
        let before = self.lost();
        if before == 0 {
            tracing::warn!("cannot write states: {error}; trying on with the next ones");
        }
        let goes_on = error.kind() != io::ErrorKind::BrokenPipe;
        self.unwritten = Some(Unwritten { lines: before + missing, error });
        goes_on
    }

    /// As [`Write::write_all`], and knows how much was written if it fails.
    fn write_all(&mut self, bytes: &[u8], done: &mut usize) -> io::Result<()> {
        while *done < bytes.len() {
            match self.out.write(&bytes[*done..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    *done += written;
                    self.is_torn = bytes[*done - 1] != b'\n';
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A document of JSON in which characters that are none to see, which JSON allows, are escaped: DEL, C1,
/// and those that change the direction of text.
pub(super) fn printable(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        match is_control(character) {
            // All of these have one UTF-16 unit.
            true => text.push_str(&format!("\\u{:04x}", u32::from(character))),
            false => text.push(character),
        }
    }
    text
}

#[cfg(test)]
impl Lines {
    /// Has lines written, one by one.
    pub(super) fn put_test_lines(&mut self, count: u64) {
        for _ in 0..count {
            self.waiting.put(|Waiting(lines)| lines.push_back((0, Map::new())));
        }
        self.given += count;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A disk with room for so many bytes.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<(Vec<u8>, usize)>>);

    impl Disk {
        fn grow(&self, by: usize) {
            self.0.lock().unwrap().1 += by;
        }

        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().0.clone()).unwrap()
        }
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut disk = self.0.lock().unwrap();
            let fits = bytes.len().min(disk.1);
            if fits == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            disk.0.extend_from_slice(&bytes[..fits]);
            disk.1 -= fits;
            Ok(fits)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_costs_the_lines_of_that_time_and_no_later_one() {
        let disk = Disk::default();
        let mut writer =
            LineWriter { out: Box::new(disk.clone()), is_torn: false, unwritten: None };
        disk.grow(11);
        assert!(writer.write(b"{\"a\":1}\n{\"b\":2}\n{\"c\":3}\n", 3));
        assert!(writer.write(b"{\"d\":4}\n", 1));
        disk.grow(100);
        assert!(writer.write(b"{\"e\":5}\n", 1));
        assert_eq!(disk.text(), "{\"a\":1}\n{\"b\n{\"e\":5}\n");
        assert_eq!(writer.unwritten.map(|unwritten| unwritten.lines), Some(3));
    }

    #[test]
    fn a_line_that_a_crash_has_torn_is_ended_before_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("states");
        for (before, after) in [("", "{}\n"), ("{}\n", "{}\n{}\n"), ("{}\n{\"a", "{}\n{\"a\n{}\n")]
        {
            std::fs::write(&path, before).unwrap();
            let (file, is_torn) = append(&path).unwrap();
            let mut writer = LineWriter { out: Box::new(file), is_torn, unwritten: None };
            assert!(writer.write(b"{}\n", 1));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), after);
        }
        assert!(append(dir.path()).unwrap_err().to_string().starts_with("cannot write /"));
    }

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
