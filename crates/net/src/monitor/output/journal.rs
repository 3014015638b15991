//! Which records of which source are done, in a file: so a monitor that is started again goes on there.
//!
//! A line of JSON for each record, `{"source":"robot","topic":"log","stream":"9f…","next":17}`; of each stream the
//! greatest number counts. The file survives the end of the process at any moment; it is not forced to the disk
//! after each line. It is written anew when the most of it says nothing any more.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use freshline_core::session::{Cursor, StreamId};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

/// A file is written anew when it is longer than this, and than four times what was needed the last time.
const MIN_LEN: u64 = 1 << 20;

/// The longest file that is read, in bytes: a million lines.
const MAX_LEN: u64 = 512 << 20;

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
    /// How long it was when it was written anew.
    needed: u64,
    /// The newest cursor of each topic of a source.
    newest: BTreeMap<(Box<str>, Box<str>), Cursor>,
    /// Whether the last line has no end.
    is_torn: bool,
}

#[derive(Serialize, Deserialize)]
struct Line<'a> {
    source: std::borrow::Cow<'a, str>,
    topic: std::borrow::Cow<'a, str>,
    stream: String,
    next: u64,
}

impl Line<'_> {
    fn of(cursor: &Cursor) -> String {
        let line = Line {
            source: (&*cursor.source).into(),
            topic: (&*cursor.topic).into(),
            stream: format!("{:016x}", cursor.stream.0),
            next: cursor.next,
        };
        // A struct of texts and numbers can be written.
        serde_json::to_string(&line).unwrap_or_default() + "\n"
    }

    fn cursor(&self) -> Option<Cursor> {
        let stream = StreamId(u64::from_str_radix(&self.stream, 16).ok()?);
        Some(Cursor {
            source: (&*self.source).into(),
            topic: (&*self.topic).into(),
            stream,
            next: self.next,
        })
    }
}

impl Journal {
    /// Opens a journal, which is made if there is none, and gives the cursors in it.
    ///
    /// # Errors
    /// [`JournalError`] if it cannot be read or written, if another process has it open, or if it is no journal.
    pub(super) fn open(path: &Path) -> Result<(Self, Vec<Cursor>), JournalError> {
        let failed = |error| JournalError { path: path.to_owned(), error };
        let file = File::options().create(true).read(true).append(true).open(path);
        let mut file = lock(file.map_err(failed)?).map_err(failed)?;
        let mut text = Vec::new();
        let len = file.metadata().map_err(failed)?.len();
        if len > MAX_LEN {
            return Err(failed(io::Error::other("it is too long for a journal")));
        }
        file.read_to_end(&mut text).map_err(failed)?;
        let newest = read(&text).map_err(failed)?;
        let is_torn = text.last().is_some_and(|last| *last != b'\n');
        let cursors = newest.values().cloned().collect();
        let open = Mutex::new(Open { file, len, needed: 0, newest, is_torn });
        Ok((Self { path: path.to_owned(), open }, cursors))
    }

    /// Writes a cursor down.
    ///
    /// # Errors
    /// [`JournalError`] if that fails; then it can be tried again.
    pub(super) fn append(&self, cursor: &Cursor) -> Result<(), JournalError> {
        let failed = |error| JournalError { path: self.path.clone(), error };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.append(cursor).map_err(failed)?;
        if open.len > MIN_LEN.max(4 * open.needed) {
            open.rewrite(&self.path).map_err(failed)?;
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
        keep(&mut self.newest, cursor.clone());
        Ok(())
    }

    /// Puts a file in its place that has the newest cursors alone.
    fn rewrite(&mut self, path: &Path) -> io::Result<()> {
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        let text: String = self.newest.values().map(Line::of).collect();
        let file =
            File::options().create(true).truncate(true).read(true).write(true).open(&name)?;
        let mut file = lock(file)?;
        file.write_all(text.as_bytes())?;
        file.seek(SeekFrom::End(0))?;
        std::fs::rename(&name, path)?;
        (self.file, self.len, self.is_torn) = (file, text.len() as u64, false);
        self.needed = self.len;
        Ok(())
    }
}

fn lock(file: File) -> io::Result<Flock<File>> {
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
        nix::errno::Errno::EWOULDBLOCK => io::Error::other("another process has it open"),
        error => error.into(),
    })
}

/// The newest cursors of a text. Its last line may be torn, and so may lines before which a monitor went on.
fn read(text: &[u8]) -> io::Result<BTreeMap<(Box<str>, Box<str>), Cursor>> {
    let mut newest = BTreeMap::new();
    for line in text.split(|byte| *byte == b'\n') {
        let line = serde_json::from_slice::<Line<'_>>(line).ok();
        if let Some(cursor) = line.and_then(|line| line.cursor()) {
            keep(&mut newest, cursor);
        }
    }
    match newest.is_empty() && text.contains(&b'\n') {
        true => Err(io::Error::other("it has no line of a journal; choose another file")),
        false => Ok(newest),
    }
}

/// Two outputs may be done with two records at once: the greater number of a stream counts.
fn keep(newest: &mut BTreeMap<(Box<str>, Box<str>), Cursor>, cursor: Cursor) {
    // Of a source without a name the stream alone says whose it is.
    let source = match cursor.source.is_empty() {
        true => format!("\0{:x}", cursor.stream.0).into(),
        false => cursor.source.clone(),
    };
    let kept = newest.entry((source, cursor.topic.clone())).or_insert_with(|| cursor.clone());
    if kept.stream != cursor.stream || kept.next < cursor.next {
        *kept = cursor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(source: &str, topic: &str, stream: u64, next: u64) -> Cursor {
        Cursor { source: source.into(), topic: topic.into(), stream: StreamId(stream), next }
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
        let expected = [("", 7, 1), ("", 8, 2), ("a", 2, 1), ("b", 3, 5)];
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
