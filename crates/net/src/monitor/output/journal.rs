//! A file with the records of each source that are done, so that a restarted monitor continues from
//! there.
//!
//! One line of JSON per record, `{"source":"robot","topic":"log","stream":"9f…","next":17}`; per
//! stream the greatest number counts. For a source without a name, a line also has its party, as a
//! stranger may use the same stream; lines of former versions have none. The file survives the end
//! of the process at any moment; it is not forced to the disk after each line. It is rewritten when
//! most of its lines are obsolete.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use freshline_core::session::{Cursor, StreamId};
use freshline_core::state::Party;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::rewrite;

/// A file is rewritten when it is longer than this, and than four times its length after the last
/// rewrite.
const MIN_LEN: u64 = 1 << 20;

/// Maximum length of a file that is read, in bytes.
const MAX_LEN: u64 = 512 << 20;

/// Maximum number of topics of sources that are kept.
const MAX_CURSORS: usize = 1 << 16;

/// The beginning of each line.
const START: &[u8] = b"{\"source\":";

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the journal {path}: {error}")]
pub struct JournalError {
    path: PathBuf,
    error: io::Error,
}

/// A file with the cursors of records.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    open: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    file: Flock<File>,
    len: u64,
    /// The length beyond which it is rewritten.
    rewrite_beyond: u64,
    newest: Newest,
    /// Whether the last line has no end.
    is_torn: bool,
}

#[derive(Serialize, Deserialize)]
struct Line<'a> {
    source: Cow<'a, str>,
    topic: Cow<'a, str>,
    stream: String,
    next: u64,
    /// Set for a source without a name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    party: Option<(u64, u64)>,
}

impl Line<'_> {
    fn of(cursor: &Cursor) -> String {
        let line = Line {
            source: (&*cursor.source).into(),
            topic: (&*cursor.topic).into(),
            stream: format!("{:016x}", cursor.stream.0),
            next: cursor.next,
            party: cursor.party.map(|Party(owner, network)| (owner, network)),
        };
        // A struct of texts and numbers can be written.
        serde_json::to_string(&line).unwrap_or_default() + "\n"
    }

    fn cursor(&self) -> Option<Cursor> {
        let stream = StreamId(u64::from_str_radix(&self.stream, 16).ok()?);
        let party = self.party.filter(|_| self.source.is_empty());
        Some(Cursor {
            source: (&*self.source).into(),
            party: party.map(|(owner, network)| Party(owner, network)),
            topic: (&*self.topic).into(),
            stream,
            next: self.next,
        })
    }
}

impl Journal {
    /// Opens a journal, or creates it, and returns the cursors in it.
    ///
    /// # Errors
    /// [`JournalError`] if it cannot be read or written, if another process has it open, or if it
    /// is not a journal.
    pub(super) fn open(path: &Path) -> Result<(Self, Vec<Cursor>), JournalError> {
        let failed = |error| JournalError { path: path.to_owned(), error };
        let mut file = open_and_lock(path).map_err(failed)?;
        // A rewritten file takes the place of this one, not of a link to it.
        let path = path.canonicalize().map_err(failed)?;
        let mut text = Vec::new();
        let len = file.metadata().map_err(failed)?.len();
        if len > MAX_LEN {
            return Err(failed(io::Error::other("it is too long for a journal")));
        }
        file.read_to_end(&mut text).map_err(failed)?;
        let newest = Newest::read(&text).map_err(failed)?;
        let is_torn = text.last().is_some_and(|last| *last != b'\n');
        let cursors = newest.by_use();
        let open = Mutex::new(Open { file, len, rewrite_beyond: MIN_LEN, newest, is_torn });
        Ok((Self { path, open }, cursors))
    }

    /// Appends a cursor.
    ///
    /// # Errors
    /// [`JournalError`] if that fails; then it can be tried again.
    pub(super) fn append(&self, cursor: &Cursor) -> Result<(), JournalError> {
        let failed = |error| JournalError { path: self.path.clone(), error };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.append(cursor).map_err(failed)?;
        if open.len > open.rewrite_beyond
            && let Err(error) = open.rewrite(&self.path)
        {
            let error = failed(error);
            tracing::warn!("{error}; it is rewritten later");
            open.rewrite_beyond = open.len + MIN_LEN;
        }
        Ok(())
    }
}

impl Open {
    fn append(&mut self, cursor: &Cursor) -> io::Result<()> {
        let mut line = if self.is_torn { "\n".to_owned() } else { String::new() };
        line += &Line::of(cursor);
        // One write, so that only the last line can be torn.
        let written = self.file.write(line.as_bytes());
        let written =
            written.inspect(|written| self.is_torn |= (1..line.len()).contains(written))?;
        self.len += written as u64;
        if written < line.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.is_torn = false;
        self.newest.keep(cursor.clone());
        Ok(())
    }

    /// Replaces it by a file that has only the newest cursors.
    fn rewrite(&mut self, path: &Path) -> io::Result<()> {
        self.newest.forget_oldest();
        let text: String = self.newest.by_use().iter().map(Line::of).collect();
        let mut options = File::options();
        let options = options.create(true).truncate(true).read(true).write(true);
        self.file = rewrite::replace(path, options, |file| {
            let mut file = lock(file)?;
            file.write_all(text.as_bytes())?;
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        })?;
        (self.len, self.is_torn) = (text.len() as u64, false);
        self.rewrite_beyond = MIN_LEN.max(4 * self.len);
        Ok(())
    }
}

/// The file at a path, which another process may rewrite meanwhile.
fn open_and_lock(path: &Path) -> io::Result<Flock<File>> {
    loop {
        let file = lock(File::options().create(true).read(true).append(true).open(path)?)?;
        if file.metadata()?.ino() == std::fs::metadata(path)?.ino() {
            return Ok(file);
        }
    }
}

fn lock(file: File) -> io::Result<Flock<File>> {
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
        nix::errno::Errno::EWOULDBLOCK => io::Error::other("another process has it open"),
        error => error.into(),
    })
}

/// The owner and topic of a stream: the names of source and topic, and for a source without a name
/// the stream and its party.
type Whose = (Box<str>, Box<str>, Option<(StreamId, Option<Party>)>);

/// The newest cursor per topic of a source, and per stream of a source without a name.
#[derive(Debug, Default)]
struct Newest {
    /// Each with the number of its last use.
    cursors: BTreeMap<Whose, (Cursor, u64)>,
    uses: u64,
}

impl Newest {
    /// Reads the cursors of a text. Its last line may be torn, and so may the last lines of earlier
    /// runs.
    fn read(text: &[u8]) -> io::Result<Self> {
        let mut newest = Self::default();
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let is_whole = line.ends_with(b"\n");
            let line = line.trim_ascii_end();
            let parsed = serde_json::from_slice::<Line<'_>>(line).ok();
            match parsed.and_then(|line| line.cursor()) {
                Some(cursor) => newest.keep(cursor),
                None if is_whole && !START.starts_with(&line[..line.len().min(START.len())]) => {
                    let error = "it has lines that are not of a journal; choose another file";
                    return Err(io::Error::other(error));
                }
                None => {}
            }
        }
        newest.forget_oldest();
        Ok(newest)
    }

    /// Per stream, the greatest number counts.
    fn keep(&mut self, cursor: Cursor) {
        self.uses += 1;
        let nameless = cursor.source.is_empty().then_some((cursor.stream, cursor.party));
        let whose = (cursor.source.clone(), cursor.topic.clone(), nameless);
        let kept = self.cursors.entry(whose).or_insert_with(|| (cursor.clone(), 0));
        let known = &mut kept.0;
        if known.stream != cursor.stream || known.next < cursor.next {
            *known = cursor;
        }
        kept.1 = self.uses;
    }

    /// Beyond [`MAX_CURSORS`], drops the least recently used cursors.
    fn forget_oldest(&mut self) {
        let mut uses: Vec<u64> = self.cursors.values().map(|(_, used)| *used).collect();
        let beyond = uses.len().saturating_sub(MAX_CURSORS);
        if beyond > 0 {
            let (_, oldest, _) = uses.select_nth_unstable(beyond);
            let oldest = *oldest;
            self.cursors.retain(|_, (_, used)| *used >= oldest);
        }
    }

    /// All cursors, the most recently used last.
    fn by_use(&self) -> Vec<Cursor> {
        let mut all: Vec<_> = self.cursors.values().collect();
        all.sort_unstable_by_key(|(_, used)| *used);
        all.into_iter().map(|(cursor, _)| cursor.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(source: &str, topic: &str, stream: u64, next: u64) -> Cursor {
        let (source, topic, stream) = (source.into(), topic.into(), StreamId(stream));
        Cursor { source, party: None, topic, stream, next }
    }

    fn reopened(path: &Path) -> Vec<Cursor> {
        Journal::open(path).unwrap().1
    }

    #[test]
    fn the_newest_cursor_of_each_topic_is_there_after_a_restart_wherever_the_file_ends() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (journal, cursors) = Journal::open(&path).unwrap();
        assert!(cursors.is_empty());
        for one in [("b", 3, 5), ("b", 3, 4), ("a", 1, 9), ("a", 2, 1), ("", 7, 1), ("", 8, 2)] {
            journal.append(&cursor(one.0, "log", one.1, one.2)).unwrap();
        }
        drop(journal);
        let expected = [("b", 3, 5), ("a", 2, 1), ("", 7, 1), ("", 8, 2)];
        let expected = expected.map(|(source, stream, next)| cursor(source, "log", stream, next));
        assert_eq!(reopened(&path), expected);
        let whole = std::fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let (journal, before) = Journal::open(&path).unwrap();
            journal.append(&cursor("c", "log", 1, 1)).unwrap();
            drop(journal);
            assert_eq!(reopened(&path).len(), before.len() + 1, "cut at {cut}");
        }
    }

    #[test]
    fn parties_with_the_same_stream_have_their_own_cursors_after_each_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let of =
            |party, next| Cursor { party: Some(Party(party, 0)), ..cursor("", "log", 7, next) };
        let write = |cursors: &[Cursor]| {
            let (journal, before) = Journal::open(&path).unwrap();
            cursors.iter().for_each(|cursor| journal.append(cursor).unwrap());
            before
        };
        // As written by a version without parties.
        let former = [cursor("", "log", 7, 2), cursor("robot", "log", 7, 1)];
        write(&former);
        assert_eq!(write(&[of(1, 3), of(2, 900), of(1, 5)]), former);
        // A stranger's cursor alone does not remove the others.
        write(&[of(9, 8)]);
        assert_eq!(write(&[])[2..], [of(2, 900), of(1, 5), of(9, 8)]);
    }

    #[test]
    fn the_file_stays_short() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (journal, _) = Journal::open(&path).unwrap();
        for next in 0..40_000 {
            journal.append(&cursor("robot", "log", 1, next)).unwrap();
        }
        assert!(std::fs::metadata(&path).unwrap().len() <= MIN_LEN + 100);
        let error = Journal::open(&path).unwrap_err().to_string();
        assert!(error.contains("another process has it open"), "{error}");
        drop(journal);
        assert_eq!(reopened(&path), [cursor("robot", "log", 1, 39_999)]);
    }

    #[test]
    fn another_file_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notes");
        std::fs::write(&path, "dear diary\ntoday\n").unwrap();
        let error = Journal::open(&path).unwrap_err().to_string();
        assert!(error.contains("choose another file"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"dear diary\ntoday\n");
    }
}
