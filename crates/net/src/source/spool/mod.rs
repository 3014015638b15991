//! Records on disk, so that they survive the end of the source's process.
//!
//! A **spool** is the file of one topic. A record is appended before the session gets it, and the
//! file stores which records the application at the monitor is done with. After a restart the other
//! records are put again with their numbers.
//!
//! | bytes | content of the file; numbers are big-endian |
//! |---|---|
//! | 16 | `freshline-spool1` |
//! | 8 | the id of the stream |
//! | 8 | the number of the first chunk of the first record in the file |
//! | 8 | all chunks below this number are done |
//! | 1, and as many | the length of the topic's name, and the name |
//!
//! Each record follows as 4 bytes of its length, 8 of a checksum, 8 of its generation time by the
//! wall clock in ns since 1970, and its bytes. The length of chunks is fixed, so that the numbers
//! of records follow from their lengths. Writing is not forced to the disk (`fsync`): after a power
//! failure the last records can be missing.
//!
//! A process that is killed during a write leaves a torn record at the end, which is cut off. When
//! most of the file is done, the rest is written to a new file, which is then renamed over the old
//! one.

mod dir;
mod format;

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use freshline_core::session::TopicKind;
use freshline_core::wire::{RecordChunk, StreamId};
use nix::fcntl::Flock;

use crate::rewrite;
pub use dir::{SpoolDir, SpoolError, new_stream};
use format::{DONE_AT, ENTRY, HEADER, Header, entry, header, read_entry};

/// A file is not rewritten while less than this is done.
const MIN_DONE: u64 = 256 << 10;

/// A record of a spool that is not done.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The number behind its last chunk.
    end: u64,
    /// Its end offset in the file.
    offset: u64,
}

/// A record from the previous process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpooledRecord {
    /// The number of its first chunk.
    pub number: u64,
    /// When it was generated, by the wall clock, since 1970.
    pub generated_at: Duration,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The records of a topic on disk.
/// Records that are not done cost at least as much of the topic's buffer as of the file. So the
/// file is at most 256 KiB longer than twice the buffer of [`TopicKind::Every`]; there are two
/// files while it is rewritten.
#[derive(Debug)]
pub struct Spool {
    path: PathBuf,
    topic: String,
    file: File,
    stream: StreamId,
    /// All chunks below this number are done; the next record has the number `next`.
    first: u64,
    next: u64,
    /// Records that are not done, and their start in the file.
    undone: VecDeque<Entry>,
    undone_from: u64,
    /// The end of the file.
    len: u64,
    /// The next record of the previous process to hand out; these records end at `replay_end`.
    replay: u64,
    replay_end: u64,
    /// The number in the file below which all chunks are done.
    marked: u64,
    cut: u64,
    _lock: Arc<Flock<File>>,
}

impl Spool {
    fn create(
        path: &Path,
        topic: &str,
        stream: StreamId,
        lock: Arc<Flock<File>>,
    ) -> io::Result<Self> {
        let header = header(topic, stream, 0);
        let file = replace(path, |file| file.write_all_at(&header, 0))?;
        let len = header.len() as u64;
        Ok(Self {
            path: path.to_owned(),
            topic: topic.to_owned(),
            file,
            stream,
            first: 0,
            next: 0,
            undone: VecDeque::new(),
            undone_from: len,
            len,
            replay: 0,
            replay_end: 0,
            marked: 0,
            cut: 0,
            _lock: lock,
        })
    }

    fn read(
        file: File,
        path: &Path,
        topic: &str,
        length: u64,
        lock: Arc<Flock<File>>,
    ) -> Result<Self, SpoolError> {
        let failed = |error| SpoolError::System { what: "read", path: path.to_owned(), error };
        let mut reader = BufReader::new(&file);
        let header = Header::read(&mut reader).map_err(failed)?;
        let header = header.ok_or_else(|| SpoolError::NotASpool(path.to_owned()))?;
        if header.topic != topic {
            return Err(SpoolError::OtherTopic { path: path.to_owned(), found: header.topic });
        }
        let Header { stream, first, done, .. } = header;
        let mut offset = (HEADER + topic.len()) as u64;
        let (mut next, mut undone) = (first, VecDeque::new());
        let (mut undone_first, mut undone_from) = (first, offset);
        while let Some((_, bytes)) = read_entry(&mut reader).map_err(failed)? {
            next = next.saturating_add(RecordChunk::count(bytes.len()));
            offset += (ENTRY + bytes.len()) as u64;
            if next > done {
                undone.push_back(Entry { end: next, offset });
            } else {
                (undone_first, undone_from) = (next, offset);
            }
        }
        let first = if undone.is_empty() { done.max(next) } else { undone_first };
        drop(reader);
        let mut spool = Self {
            path: path.to_owned(),
            topic: topic.to_owned(),
            file,
            stream,
            first,
            next,
            undone,
            undone_from,
            len: offset,
            replay: 0,
            replay_end: next,
            marked: done,
            cut: length.saturating_sub(offset),
            _lock: lock,
        };
        let written = match spool.cut {
            0 => Ok(()),
            _ => spool.file.set_len(offset),
        };
        // More chunks are done than the file contains, if its end is missing: numbers continue
        // there.
        let written = match spool.first > spool.next {
            true => written.and_then(|()| spool.renumber(spool.first)),
            false => written,
        };
        written.map_err(|error| SpoolError::System {
            what: "write",
            path: path.to_owned(),
            error,
        })?;
        Ok(spool)
    }

    // ---- getters ----

    /// The kind of a topic that continues from the spool, with a buffer of `max_bytes`, or more if
    /// the unfinished records need it. They must be put before the session opens.
    pub fn kind(&self, max_bytes: u32) -> TopicKind {
        let starts = [self.undone_from].into_iter().chain(self.undone.iter().map(|it| it.offset));
        let lengths = starts.zip(&self.undone).map(|(start, it)| (it.offset - start) as usize);
        let held: usize = lengths.map(|length| RecordChunk::cost_of_record(length - ENTRY)).sum();
        let max_bytes = max_bytes.max(u32::try_from(held).unwrap_or(u32::MAX));
        TopicKind::Every { stream: self.stream, first: self.first, max_bytes }
    }

    /// The number of the first chunk that is not done.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The number of the next record.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Records that are not done.
    pub fn undone(&self) -> usize {
        self.undone.len()
    }

    /// The length of the file in bytes.
    pub fn file_len(&self) -> u64 {
        self.len
    }

    /// Bytes that were cut off at the end when it was opened: of a record that was being written
    /// when the process ended, or, after a power failure, of all records from the first damaged one
    /// on.
    pub fn cut_bytes(&self) -> u64 {
        self.cut
    }

    // ---- commands ----

    /// The next record of the previous process that is not done and was not handed out, to be put
    /// again.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn next_pending(&mut self) -> io::Result<Option<SpooledRecord>> {
        let number = self.replay.max(self.first);
        if number >= self.replay_end {
            return Ok(None);
        }
        let place = self.undone.partition_point(|entry| entry.end <= number);
        let before = place.checked_sub(1).map(|before| self.undone[before].offset);
        let Some(entry) = self.undone.get(place).copied() else { return Ok(None) };
        let from = before.unwrap_or(self.undone_from);
        let mut bytes = vec![0; (entry.offset - from) as usize];
        self.file.read_exact_at(&mut bytes, from)?;
        let read = read_entry(&mut &bytes[..])?;
        let (generated_at, bytes) = read.ok_or_else(|| io::Error::other("it has been changed"))?;
        self.replay = entry.end;
        Ok(Some(SpooledRecord { number, generated_at, bytes }))
    }

    /// Appends a record of at most [`RecordChunk::MAX_RECORD`] bytes, generated at this time of the
    /// wall clock since 1970, and returns its number. The caller must then put it.
    ///
    /// # Errors
    /// If it is too long, or cannot be written; then it is not in the file.
    pub fn push(&mut self, generated_at: Duration, record: &[u8]) -> io::Result<u64> {
        if record.len() > RecordChunk::MAX_RECORD {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        self.compact()?;
        let entry = entry(generated_at, record);
        if let Err(error) = self.file.write_all_at(&entry, self.len) {
            // A part of it may have been written.
            let _ = self.file.set_len(self.len);
            return Err(error);
        }
        let number = self.next;
        self.next += RecordChunk::count(record.len());
        self.len += entry.len() as u64;
        self.undone.push_back(Entry { end: self.next, offset: self.len });
        Ok(number)
    }

    /// Records are done if all of their chunks are below this number. [`Spool::mark`] writes it to
    /// the file.
    pub fn handle_done(&mut self, number: u64) {
        while let Some(entry) = self.undone.front().filter(|entry| entry.end <= number) {
            (self.first, self.undone_from) = (entry.end, entry.offset);
            self.undone.pop_front();
        }
    }

    /// Writes the number of finished chunks to the file.
    ///
    /// # Errors
    /// If that fails; then finished records are put again after a restart.
    pub fn mark(&mut self) -> io::Result<()> {
        if self.marked != self.first {
            self.file.write_all_at(&self.first.to_be_bytes(), DONE_AT)?;
            self.marked = self.first;
        }
        Ok(())
    }

    /// Sets the number of the next record to `next`; the unfinished records get the numbers before
    /// it.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn renumber(&mut self, next: u64) -> io::Result<()> {
        let held = self.undone.back().map_or(0, |last| last.end.saturating_sub(self.first));
        let (first, old) = (next.saturating_sub(held), self.first);
        self.rewrite(first)?;
        let moved = |number: u64| number.saturating_sub(old).saturating_add(first);
        self.undone.iter_mut().for_each(|entry| entry.end = moved(entry.end));
        (self.replay, self.replay_end) = (moved(self.replay), moved(self.replay_end));
        (self.first, self.next) = (first, first.saturating_add(held));
        Ok(())
    }

    // ---- steps ----

    /// Rewrites the file if most of it is done.
    fn compact(&mut self) -> io::Result<()> {
        let start = (HEADER + self.topic.len()) as u64;
        let (done, undone) = (self.undone_from - start, self.len - self.undone_from);
        if done < undone.max(MIN_DONE) {
            return Ok(());
        }
        if self.undone.is_empty() {
            // This needs no space on a full disk. In between, more chunks are done than the file
            // contains.
            self.mark()?;
            self.file.set_len(start)?;
            let numbers = [self.first.to_be_bytes(), self.first.to_be_bytes()].concat();
            self.file.write_all_at(&numbers, DONE_AT - 8)?;
            (self.undone_from, self.len) = (start, start);
            return Ok(());
        }
        self.rewrite(self.first)
    }

    /// Replaces the file by one that has only the unfinished records, numbered from `first`.
    fn rewrite(&mut self, first: u64) -> io::Result<()> {
        let header = header(&self.topic, self.stream, first);
        let start = header.len() as u64;
        let (old, from, len) = (&self.file, self.undone_from, self.len);
        let file = replace(&self.path, |file| {
            file.write_all_at(&header, 0)?;
            let mut piece = vec![0; 1 << 16];
            let mut at = from;
            while at < len {
                let count = (len - at).min(piece.len() as u64) as usize;
                old.read_exact_at(&mut piece[..count], at)?;
                file.write_all_at(&piece[..count], at - from + start)?;
                at += count as u64;
            }
            Ok(())
        })?;
        self.file = file;
        self.undone.iter_mut().for_each(|entry| entry.offset = entry.offset - from + start);
        (self.undone_from, self.len, self.marked) = (start, len - from + start, first);
        Ok(())
    }
}

/// Replaces a file by one that only its user can read.
fn replace(path: &Path, write: impl FnOnce(&File) -> io::Result<()>) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(true).mode(0o600);
    rewrite::replace(path, options, |file| write(&file).map(|()| file))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    const AT: Duration = Duration::from_secs(1_700_000_000);

    fn open(dir: &Path) -> Spool {
        SpoolDir::open(dir).unwrap().topic("log").unwrap()
    }

    /// The numbers and bytes of the records that are put again.
    fn pending(spool: &mut Spool) -> Vec<(u64, Vec<u8>)> {
        std::iter::from_fn(|| spool.next_pending().unwrap())
            .map(|record| (record.number, record.bytes))
            .collect()
    }

    #[test]
    fn records_that_are_not_done_are_there_after_a_restart_with_stream_numbers_and_times() {
        let dir = tempfile::tempdir().unwrap();
        let long = vec![7; 2 * RecordChunk::MAX_LEN + 1];
        let mut spool = open(dir.path());
        let kind = spool.kind(9_000);
        assert_eq!(spool.push(AT, b"first").unwrap(), 0);
        assert_eq!(spool.push(AT, &long).unwrap(), 1);
        assert_eq!(spool.push(AT, b"").unwrap(), 4);
        assert_eq!(spool.next_pending().unwrap(), None, "its own records stay there");
        // In the middle of a record.
        spool.handle_done(3);
        spool.mark().unwrap();
        drop(spool);

        let mut spool = open(dir.path());
        let TopicKind::Every { stream, .. } = kind else { panic!("{kind:?}") };
        assert_eq!(spool.kind(9_000), TopicKind::Every { stream, first: 1, max_bytes: 9_000 });
        assert_eq!(spool.next(), 5);
        let record = spool.next_pending().unwrap().unwrap();
        assert_eq!((record.number, record.generated_at, record.bytes), (1, AT, long));
        // Its end is done before it is handed out.
        assert_eq!(spool.push(AT, b"next").unwrap(), 5);
        spool.handle_done(5);
        assert_eq!(pending(&mut spool), []);
        assert_eq!((spool.undone(), spool.first()), (1, 5));
    }

    #[test]
    fn a_file_that_is_torn_at_any_byte_keeps_all_whole_records_and_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = open(dir.path());
        let empty = spool.file_len();
        for record in [&b"one"[..], b"", b"three"] {
            spool.push(AT, record).unwrap();
        }
        drop(spool);
        let path = dir.path().join("log.spool");
        let whole = fs::read(&path).unwrap();
        let ends = [23, 43, 68].map(|end| empty as usize + end);
        for length in (empty as usize..=whole.len()).rev() {
            fs::write(&path, &whole[..length]).unwrap();
            let mut spool = open(dir.path());
            let count = ends.iter().filter(|end| **end <= length).count();
            assert_eq!(pending(&mut spool).len(), count, "{length} bytes");
            let kept = count.checked_sub(1).map_or(empty as usize, |last| ends[last]);
            assert_eq!(spool.cut_bytes(), (length - kept) as u64);
            assert_eq!(spool.push(AT, b"next").unwrap(), count as u64);
            drop(spool);
            assert_eq!(pending(&mut open(dir.path())).len(), count + 1);
        }
    }

    #[test]
    fn a_record_that_was_changed_and_all_behind_it_are_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = open(dir.path());
        spool.push(AT, b"one").unwrap();
        let (path, at) = (dir.path().join("log.spool"), spool.file_len() as usize);
        spool.push(AT, b"two").unwrap();
        drop(spool);
        let whole = fs::read(&path).unwrap();
        for place in at..whole.len() {
            let mut changed = whole.clone();
            changed[place] ^= 0x40;
            fs::write(&path, changed).unwrap();
            let mut spool = open(dir.path());
            assert_eq!(pending(&mut spool), [(0, b"one".to_vec())], "{place}");
            assert_eq!(spool.cut_bytes(), 23);
        }
    }

    #[test]
    fn the_file_is_bounded_and_keeps_what_is_not_done() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = open(dir.path());
        let mut longest = 0;
        for number in 0..20_000 {
            assert_eq!(spool.push(AT, &[number as u8; 100]).unwrap(), number);
            // 1000 records are held, each of which costs 164 bytes of the buffer.
            spool.handle_done(number.saturating_sub(1_000));
            longest = longest.max(spool.file_len());
        }
        assert!((256 << 10..(256 << 10) + 2 * 164_000).contains(&longest), "{longest}");
        spool.mark().unwrap();
        drop(spool);
        let mut spool = open(dir.path());
        let numbers: Vec<u64> = pending(&mut spool).into_iter().map(|(number, _)| number).collect();
        assert_eq!(numbers, (18_999..20_000).collect::<Vec<_>>());
        spool.handle_done(20_000);
        spool.push(AT, b"last").unwrap();
        assert_eq!(spool.file_len(), (HEADER + 3 + ENTRY + 4) as u64, "all before is gone");
        drop(spool);
        assert_eq!(pending(&mut open(dir.path())), [(20_000, b"last".to_vec())]);
    }

    #[test]
    fn records_that_are_not_done_take_new_numbers_if_the_monitor_is_ahead() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = open(dir.path());
        spool.push(AT, b"done").unwrap();
        spool.push(AT, b"next").unwrap();
        spool.handle_done(1);
        spool.renumber(1_001).unwrap();
        assert_eq!(spool.push(AT, b"last").unwrap(), 1_001);
        drop(spool);
        let expected = [(1_000, b"next".to_vec()), (1_001, b"last".to_vec())];
        let mut spool = open(dir.path());
        assert_eq!(pending(&mut spool), expected);
        let stream = spool.stream;
        // Beyond the maximum number of a source, a new stream begins.
        spool.renumber(RecordChunk::MAX_NUMBER + 1).unwrap();
        drop(spool);
        let mut spool = open(dir.path());
        let expected = [(0, b"next".to_vec()), (1, b"last".to_vec())];
        assert_eq!(pending(&mut spool), expected);
        assert!(spool.stream != stream);
    }

    #[test]
    fn after_a_power_failure_numbers_go_on_behind_what_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = open(dir.path());
        let empty = spool.file_len();
        spool.push(AT, b"one").unwrap();
        spool.push(AT, b"two").unwrap();
        spool.handle_done(2);
        spool.mark().unwrap();
        drop(spool);
        let path = dir.path().join("log.spool");
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(empty).unwrap();
        let mut spool = open(dir.path());
        assert_eq!((spool.first(), spool.push(AT, b"three").unwrap()), (2, 2));
        drop(spool);
        assert_eq!(pending(&mut open(dir.path())), [(2, b"three".to_vec())]);
    }

    #[test]
    fn a_record_is_not_in_the_file_that_could_not_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = open(dir.path());
        spool.push(AT, b"one").unwrap();
        let path = dir.path().join("log.spool");
        let writable = std::mem::replace(&mut spool.file, File::open(&path).unwrap());
        assert!(spool.push(AT, b"two").is_err());
        assert!(spool.push(AT, &[0; RecordChunk::MAX_RECORD + 1]).is_err());
        spool.file = writable;
        assert_eq!(spool.push(AT, b"three").unwrap(), 1);
        drop(spool);
        let expected = [(0, b"one".to_vec()), (1, b"three".to_vec())];
        assert_eq!(pending(&mut open(dir.path())), expected);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_file_is_a_panic(tail in prop::collection::vec(any::<u8>(), 0..200), from in 0usize..50) {
            let dir = tempfile::tempdir().unwrap();
            let mut spool = open(dir.path());
            spool.push(AT, b"one").unwrap();
            drop(spool);
            let path = dir.path().join("log.spool");
            let mut bytes = fs::read(&path).unwrap();
            bytes.truncate(from);
            bytes.extend(tail);
            fs::write(&path, bytes).unwrap();
            if let Ok(mut spool) = SpoolDir::open(dir.path()).unwrap().topic("log") {
                pending(&mut spool);
                let next = spool.next();
                prop_assert_eq!(spool.push(AT, b"next").unwrap(), next);
            }
        }
    }
}
