//! Fresh states as lines of JSON, or bare as binary frames.
//!
//! A full disk does not end the output: lines that cannot be written are counted and skipped, and
//! writing goes on with the next ones. A line of which only a part was written is ended first, so
//! that each later line is whole; a COBS frame is ended so that its reader skips it. After a part
//! of a frame with its length in front, a reader could not find the next frame, so nothing more is
//! written; nor if the reader of a pipe is gone. A record, unlike a state, is written again until
//! that succeeds, or the outputs end.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use freshline_core::session::{Alarm, SourceKey};
use freshline_core::unit::{Span, Time};

use super::format::{Content, OutFormat};
use super::handover::{Handover, Pending};
use super::held::Held;
use super::line_of_alarm;
use super::records::{Given, RETRY, Ticket};
use crate::clock::Clock;

/// Maximum number of states that are queued for a slow reader; a further one replaces the oldest.
const WAITING: usize = 1024;

/// Maximum number of their bytes, counting only payloads: four of the largest states by default.
const WAITING_BYTES: usize = 32 << 20;

/// Approximate bytes of lines per write: few, so that a slow reader can be distinguished from one
/// that does not read.
const PIECE: usize = 4096;

/// A state, or an alarm, to be written.
struct State {
    content: Content,
    /// Until when it may be handed out; `None` if there is no limit.
    fresh_until: Option<Time>,
    /// Set for a record, which is never replaced.
    ticket: Option<Ticket>,
}

impl State {
    /// The length of the payload in it.
    fn len(&self) -> usize {
        self.content.len()
    }
}

/// Writes lines on a thread of its own.
pub(super) struct Lines {
    format: OutFormat,
    waiting: Arc<Handover<Waiting>>,
    progress: Arc<Progress>,
    writer: JoinHandle<Result<(), Unwritten>>,
    /// Lines that were not replaced.
    given: u64,
    /// The progress at the last check, and when it reached that value.
    seen: Option<(u64, Time)>,
    /// The reader has read nothing for this long, and the writer is left alone.
    is_stuck: Option<Span>,
}

/// Lines that the writer is done with.
#[derive(Default)]
struct Progress {
    /// Written or failed.
    done: AtomicU64,
    written: AtomicU64,
    /// Bytes that the reader has taken, including those of unfinished lines.
    bytes: AtomicU64,
}

impl Progress {
    /// A number that grows with each line and each byte.
    fn sum(&self) -> u64 {
        self.done.load(Ordering::Relaxed) + self.bytes.load(Ordering::Relaxed)
    }
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
    /// The number of lines.
    pub lines: u64,
    /// The system's error for the last ones.
    pub error: io::Error,
}

/// Opens a file to append lines to; returns also whether its last line has no end, as after a
/// crash. A file that cannot be read may have such a last line.
pub(super) fn append(path: &Path, format: OutFormat) -> Result<(File, bool), LinesError> {
    let failed = |error| LinesError { path: path.to_owned(), error };
    let file = File::options().create(true).append(true).open(path).map_err(failed)?;
    // The end of a FIFO or a device cannot be read.
    let has_lines = file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0);
    let Some(end) = format.end() else {
        let error = "it has content, and its last frame may be torn: choose a new file, or COBS";
        return match has_lines {
            true => Err(failed(io::Error::new(io::ErrorKind::AlreadyExists, error))),
            false => Ok((file, false)),
        };
    };
    let is_torn = has_lines && last_byte(path).is_none_or(|last| last != end);
    Ok((file, is_torn))
}

fn last_byte(path: &Path) -> Option<u8> {
    let mut last = [0];
    let mut reader = File::open(path).ok()?;
    reader.seek(SeekFrom::End(-1)).ok()?;
    reader.read_exact(&mut last).ok()?;
    Some(last[0])
}

/// Queued states with the index of their source.
#[derive(Default)]
struct Waiting {
    states: VecDeque<(usize, State)>,
    /// How many of them are records, which have bounds of their own.
    records: usize,
    /// The sum of the lengths of the others.
    bytes: usize,
}

impl Waiting {
    /// Returns the indices of the sources whose states were replaced.
    fn put(&mut self, source: usize, state: State) -> Vec<usize> {
        let is_record = state.ticket.is_some();
        self.records += usize::from(is_record);
        self.bytes += if is_record { 0 } else { state.len() };
        self.states.push_back((source, state));
        let mut replaced = Vec::new();
        while self.states.len() - self.records > WAITING || self.bytes > WAITING_BYTES {
            let before_last = self.states.len() - 1;
            let mut before = self.states.range(..before_last);
            // There are few records, and they are taken soon.
            let Some(oldest) = before.position(|(_, state)| state.ticket.is_none()) else { break };
            let Some((source, state)) = self.states.remove(oldest) else { break };
            self.bytes -= state.len();
            replaced.push(source);
        }
        replaced
    }
}

impl Pending for Waiting {
    /// All queued states.
    type Item = VecDeque<(usize, State)>;

    fn take(&mut self) -> Option<Self::Item> {
        (self.records, self.bytes) = (0, 0);
        (!self.states.is_empty()).then(|| std::mem::take(&mut self.states))
    }
}

impl Lines {
    /// `is_torn`: whether the last existing line has no end.
    pub(super) fn new(out: Box<dyn Write + Send>, format: OutFormat, is_torn: bool) -> Self {
        let waiting = Arc::default();
        let theirs = Arc::clone(&waiting);
        let progress = Arc::<Progress>::default();
        let shared = Arc::clone(&progress);
        let writer = LineWriter {
            out,
            format,
            is_torn,
            unwritten: None,
            has_warned: false,
            progress: Arc::clone(&progress),
        };
        let writer = std::thread::spawn(move || write(&theirs, writer, &shared));
        Self { format, waiting, progress, writer, given: 0, seen: None, is_stuck: None }
    }

    /// Returns the indices of the sources whose lines were replaced.
    pub(super) fn fresh(
        &mut self,
        now: Time,
        source: SourceKey,
        held: Held<'_>,
        fresh_until: Option<Time>,
    ) -> Vec<usize> {
        let content = self.format.content(now, held);
        self.put(source.index(), State { content, fresh_until, ticket: None })
    }

    /// A record, which is written until that succeeds.
    pub(super) fn record(&mut self, given: &Given<'_>, ticket: Ticket) -> Vec<usize> {
        let content = self.format.content_of_record(given);
        self.put(given.source.index(), State { content, fresh_until: None, ticket: Some(ticket) })
    }

    /// A topic has become stale, or fresh again: a line of JSON. Binary frames cannot contain it.
    pub(super) fn alarm(&mut self, alarm: &Alarm) -> Vec<usize> {
        if self.format != OutFormat::Json {
            return Vec::new();
        }
        let source = alarm.source.map_or(usize::MAX, SourceKey::index);
        let content = Content::Line(line_of_alarm(alarm));
        self.put(source, State { content, fresh_until: None, ticket: None })
    }

    fn put(&mut self, source: usize, state: State) -> Vec<usize> {
        let replaced = self.waiting.put(|waiting| waiting.put(source, state));
        self.given = (self.given + 1).saturating_sub(replaced.len() as u64);
        replaced
    }

    /// Whether lines contain names: then a state is written again when its age becomes known, and
    /// the removal of a key is written, too.
    pub(super) fn have_names(&self) -> bool {
        self.format == OutFormat::Json
    }

    /// No more lines come.
    pub(super) fn finish(&self) {
        self.waiting.finish();
    }

    /// Whether all lines are written, or the reader has read nothing for longer than `patience`.
    pub(super) fn is_over(&mut self, clock: &Clock, patience: Option<Span>) -> bool {
        if self.writer.is_finished() {
            return true;
        }
        let Some(patience) = patience else { return false };
        let (now, done) = (clock.now(), self.progress.sum());
        match self.seen {
            Some((before, since)) if before == done => {
                self.is_stuck = (now.since(since) >= patience).then_some(patience);
            }
            _ => (self.seen, self.is_stuck) = (Some((done, now)), None),
        }
        self.is_stuck.is_some()
    }

    /// Waits until all lines are written, unless the reader has stopped reading.
    pub(super) fn join(self) -> Result<(), Unwritten> {
        if let (Some(patience), false) = (self.is_stuck, self.writer.is_finished()) {
            let lines = self.given - self.progress.written.load(Ordering::Relaxed);
            let error = format!("the reader read nothing for {patience} after the signal");
            return Err(Unwritten { lines, error: io::Error::new(io::ErrorKind::TimedOut, error) });
        }
        self.writer.join().unwrap_or(Ok(()))
    }
}

/// Writes until there are no more lines, or the reader is gone.
fn write(
    waiting: &Handover<Waiting>,
    mut writer: LineWriter,
    progress: &Progress,
) -> Result<(), Unwritten> {
    let (mut goes_on, clock) = (true, Clock::new());
    while goes_on && let Some(mut lines) = waiting.next() {
        while goes_on && let Some((_, first)) = lines.front_mut() {
            if let Some(ticket) = first.ticket.take() {
                let record = lines.pop_front();
                goes_on = record.is_none_or(|(_, record)| writer.write_record(record, ticket));
                progress.done.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let (mut text, mut ends) = (Vec::new(), Vec::new());
            while text.len() < PIECE
                && lines.front().is_some_and(|(_, state)| state.ticket.is_none())
                && let Some((_, state)) = lines.pop_front()
            {
                // A state that became too old while the reader was busy is done.
                if state.fresh_until.is_some_and(|until| clock.now() > until) {
                    progress.written.fetch_add(1, Ordering::Relaxed);
                    progress.done.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                writer.format.push(state.content, &mut text);
                ends.push(text.len());
            }
            let (before, count) = (writer.lost(), ends.len() as u64);
            goes_on = writer.write(&text, &ends);
            let lost = writer.lost() - before;
            progress.written.fetch_add(count - lost, Ordering::Relaxed);
            progress.done.fetch_add(count, Ordering::Relaxed);
        }
        if let Some(unwritten) = &mut writer.unwritten {
            // Lines that are no longer read.
            unwritten.lines += lines.len() as u64;
        }
    }
    writer.unwritten.filter(|unwritten| unwritten.lines > 0).map_or(Ok(()), Err)
}

struct LineWriter {
    out: Box<dyn Write + Send>,
    format: OutFormat,
    /// Whether the last line written has no end.
    is_torn: bool,
    unwritten: Option<Unwritten>,
    /// Whether it was reported that the last lines could not be written.
    has_warned: bool,
    progress: Arc<Progress>,
}

impl LineWriter {
    fn lost(&self) -> u64 {
        self.unwritten.as_ref().map_or(0, |unwritten| unwritten.lines)
    }

    /// Writes a record, again and again until that succeeds or the outputs end; returns whether to
    /// go on.
    fn write_record(&mut self, record: State, ticket: Ticket) -> bool {
        let mut text = Vec::new();
        self.format.push(record.content, &mut text);
        let ends = [text.len()];
        loop {
            let before = self.lost();
            let goes_on = self.write(&text, &ends);
            if self.lost() == before {
                self.progress.written.fetch_add(1, Ordering::Relaxed);
                ticket.done();
                return true;
            }
            // Its source still has it.
            self.unwritten.iter_mut().for_each(|unwritten| unwritten.lines = before);
            if !goes_on || ticket.is_over() {
                return goes_on;
            }
            std::thread::sleep(RETRY);
        }
    }

    /// Writes lines that end at `ends` of `text`; returns whether to go on.
    fn write(&mut self, text: &[u8], ends: &[usize]) -> bool {
        let end = if self.is_torn { self.format.end_of_torn() } else { b"" };
        let mut done = 0;
        let result = self
            .write_all(end, &mut 0)
            .inspect(|()| self.is_torn = false)
            .and_then(|()| self.write_all(text, &mut done));
        self.is_torn |= done > 0 && !ends.contains(&done);
        let Err(error) = result.and_then(|()| self.out.flush()) else {
            self.has_warned = false;
            return true;
        };
        let missing = match ends.iter().filter(|end| **end > done).count() {
            0 => ends.len(),
            lines => lines,
        } as u64;
        let before = self.lost();
        let is_lost = self.is_torn && self.format.end().is_none();
        let goes_on = error.kind() != io::ErrorKind::BrokenPipe && !is_lost;
        if !std::mem::replace(&mut self.has_warned, true) {
            let next = if goes_on { "going on with the next ones" } else { "giving up" };
            tracing::warn!("cannot write states: {error}; {next}");
        }
        self.unwritten = Some(Unwritten { lines: before + missing, error });
        goes_on
    }

    /// As [`Write::write_all`], but reports how much was written if it fails.
    fn write_all(&mut self, bytes: &[u8], done: &mut usize) -> io::Result<()> {
        while *done < bytes.len() {
            // A pipe takes all or blocks; its progress is seen in pieces.
            let piece = bytes.len().min(done.saturating_add(PIECE));
            match self.out.write(&bytes[*done..piece]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    *done += written;
                    self.progress.bytes.fetch_add(written as u64, Ordering::Relaxed);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
impl Lines {
    /// Queues lines, one by one.
    pub(super) fn put_test_lines(&mut self, count: u64) {
        for _ in 0..count {
            let content = Content::Line(serde_json::Map::new());
            let state = State { content, fresh_until: None, ticket: None };
            self.waiting.put(|waiting| waiting.put(0, state));
        }
        self.given += count;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::records::Records;
    use super::super::records::tests::{cursor, done, source};
    use super::*;
    use crate::framing::Framing;

    /// A disk with limited room.
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

    fn writer(out: Box<dyn Write + Send>, format: OutFormat, is_torn: bool) -> LineWriter {
        let progress = Arc::default();
        LineWriter { out, format, is_torn, unwritten: None, has_warned: false, progress }
    }

    #[test]
    fn queued_states_take_bounded_memory_and_the_newest_is_kept_however_long() {
        let mut waiting = Waiting::default();
        let put = |waiting: &mut Waiting, source, len| {
            let content = Content::Payload(vec![0; len]);
            waiting.put(source, State { content, fresh_until: None, ticket: None })
        };
        assert!((0..4).all(|source| put(&mut waiting, source, 8 << 20).is_empty()));
        assert_eq!(put(&mut waiting, 4, 9 << 20), [0, 1], "as many as make room");
        assert_eq!(put(&mut waiting, 5, WAITING_BYTES + 1), [2, 3, 4]);
        assert_eq!(waiting.take().map(|states| states.len()), Some(1));
        assert!((0..WAITING).all(|source| put(&mut waiting, source, 1).is_empty()));
        assert_eq!((put(&mut waiting, 7, 1), waiting.bytes), (vec![0], WAITING));
    }

    #[test]
    fn a_full_disk_costs_the_lines_of_that_time_and_no_later_one() {
        let disk = Disk::default();
        let mut writer = writer(Box::new(disk.clone()), OutFormat::Json, false);
        disk.grow(11);
        assert!(writer.write(b"{\"a\":1}\n{\"b\":2}\n{\"c\":3}\n", &[8, 16, 24]));
        assert!(writer.write(b"{\"d\":4}\n", &[8]));
        disk.grow(100);
        assert!(writer.write(b"{\"e\":5}\n", &[8]));
        assert_eq!(disk.text(), "{\"a\":1}\n{\"b\n{\"e\":5}\n");
        assert_eq!(writer.unwritten.map(|unwritten| unwritten.lines), Some(3));
    }

    #[test]
    fn a_record_is_written_until_that_succeeds_and_is_not_done_before() {
        let (disk, mut records) = (Disk::default(), Records::new(None, None));
        let mut lines = Lines::new(Box::new(disk.clone()), OutFormat::U32, false);
        // More than are queued of states.
        let put = |lines: &mut Lines, ticket| {
            let (content, fresh_until) = (Content::Payload(b"state".to_vec()), None);
            lines.put(0, State { content, fresh_until, ticket })
        };
        disk.grow(9);
        let first = Some(records.ticket(source(), &cursor(1), 9, 1));
        put(&mut lines, first);
        put(&mut lines, Some(records.ticket(source(), &cursor(2), 9, 1)));
        let clock = Clock::new();
        let began_at = clock.now();
        let mut seen = Vec::new();
        while seen.len() < 2 {
            assert!(clock.now().since(began_at) < Span::from_secs(25));
            seen.extend(done(&mut records));
            if seen.len() == 1 {
                disk.grow(9);
            }
        }
        assert_eq!(seen, [1, 2]);
        lines.finish();
        assert!(lines.join().is_ok(), "nothing is lost");
        assert_eq!(read(Framing::U32, &disk.0.lock().unwrap().0), [b"state", b"state"]);
    }

    #[test]
    fn states_give_way_to_records_in_a_full_queue() {
        let (mut waiting, mut records) = (Waiting::default(), Records::new(None, None));
        let mut put = |source, ticket| {
            let content = Content::Payload(vec![0]);
            waiting.put(source, State { content, fresh_until: None, ticket })
        };
        for next in 0..100 {
            put(1, Some(records.ticket(source(), &cursor(next), 9, 1)));
        }
        let replaced: usize = (0..2_000).map(|_| put(2, None).len()).sum();
        assert_eq!(replaced, 2_000 - WAITING);
        let states = waiting.take().unwrap();
        assert_eq!(states.iter().filter(|(source, _)| *source == 1).count(), 100);
    }

    #[test]
    fn a_line_that_a_crash_has_torn_is_ended_before_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("states");
        for (before, after) in [("", "{}\n"), ("{}\n", "{}\n{}\n"), ("{}\n{\"a", "{}\n{\"a\n{}\n")]
        {
            std::fs::write(&path, before).unwrap();
            let (file, is_torn) = append(&path, OutFormat::Json).unwrap();
            let mut writer = writer(Box::new(file), OutFormat::Json, is_torn);
            assert!(writer.write(b"{}\n", &[3]));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), after);
        }
        let error = append(dir.path(), OutFormat::Json).unwrap_err().to_string();
        assert!(error.starts_with("cannot write /"), "{error}");
        // Frames whose reader cannot find the next one after a torn one.
        let error = append(&path, OutFormat::U32).unwrap_err().to_string();
        assert!(error.contains("choose a new file, or COBS"), "{error}");
        assert!(append(&dir.path().join("new"), OutFormat::U32).is_ok());
    }

    /// All states that a reader finds in the bytes written.
    fn read(framing: Framing, mut written: &[u8]) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| framing.read(&mut written, 1 << 16).ok().flatten()).collect()
    }

    #[test]
    fn a_torn_frame_of_cobs_is_left_out_wherever_it_was_cut() {
        for state in [&b"a\0b\0\0c"[..], &[0; 20], &[7; 600]] {
            let mut frame = Vec::new();
            OutFormat::Cobs.push(Content::Payload(state.to_vec()), &mut frame);
            for cut in 1..frame.len() {
                let disk = Disk::default();
                let mut writer = writer(Box::new(disk.clone()), OutFormat::Cobs, false);
                disk.grow(cut);
                assert!(writer.write(&frame, &[frame.len()]));
                // Its end is torn, too.
                disk.grow(cut % 256);
                assert!(writer.write(&frame, &[frame.len()]));
                disk.grow(10_000);
                assert!(writer.write(&frame, &[frame.len()]));
                assert_eq!(writer.lost(), 2);
                let written = disk.0.lock().unwrap().0.clone();
                assert_eq!(read(Framing::Cobs, &written), [state], "cut after {cut} bytes");
            }
        }
    }

    #[test]
    fn nothing_follows_a_torn_frame_with_its_length_in_front() {
        let (mut text, mut ends) = (Vec::new(), Vec::new());
        for state in [b"first", b"later"] {
            OutFormat::U32.push(Content::Payload(state.to_vec()), &mut text);
            ends.push(text.len());
        }
        let disk = Disk::default();
        let mut writer = writer(Box::new(disk.clone()), OutFormat::U32, false);
        disk.grow(ends[0] + 3);
        assert!(!writer.write(&text, &ends));
        assert_eq!(writer.lost(), 1);
        let written = disk.0.lock().unwrap().0.clone();
        assert_eq!(read(Framing::U32, &written), [b"first"]);
    }
}
