//! The folder of spools.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use freshline_core::wire::{RecordChunk, StreamId};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::Spool;

/// Why records cannot be kept on disk.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// The system refused something.
    #[error("cannot {what} {}: {error}", path.display())]
    System {
        /// The failed action.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Another source has the folder.
    #[error("{} is in use by another source: give each source a folder of its own", .0.display())]
    InUse(PathBuf),
    /// The file has another format.
    #[error("{} is not a spool of records: move it away, or give another folder", .0.display())]
    NotASpool(PathBuf),
    /// The file has the records of another topic.
    #[error("{} has the records of topic {found:?}: move it away, or give another folder", path.display())]
    OtherTopic {
        /// The file.
        path: PathBuf,
        /// The topic of its records.
        found: String,
    },
    /// The system gave no random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(getrandom::Error),
}

/// The ID of a new stream of records, from the system's random numbers.
///
/// # Errors
/// [`SpoolError::Random`] if they are unavailable.
pub fn new_stream() -> Result<StreamId, SpoolError> {
    let mut id = [0; 8];
    getrandom::fill(&mut id).map_err(SpoolError::Random)?;
    Ok(StreamId(u64::from_be_bytes(id)))
}

/// A folder with one file per topic, owned by one source at a time.
#[derive(Debug)]
pub struct SpoolDir {
    path: PathBuf,
    lock: Arc<Flock<File>>,
}

impl SpoolDir {
    /// Locks a folder, which is created if it is missing, with access for its user only.
    ///
    /// # Errors
    /// [`SpoolError`] if it cannot be created or opened, or if another source has it.
    pub fn open(path: &Path) -> Result<Self, SpoolError> {
        let failed = |what| move |error| SpoolError::System { what, path: path.to_owned(), error };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("make"))?;
        let folder = File::open(path).map_err(failed("open"))?;
        match Flock::lock(folder, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Self { path: path.to_owned(), lock: Arc::new(lock) }),
            Err((_, Errno::EWOULDBLOCK)) => Err(SpoolError::InUse(path.to_owned())),
            Err((_, error)) => Err(failed("lock")(error.into())),
        }
    }

    /// The spool of a topic, which is created if it is missing. Must be opened only once at a time.
    ///
    /// # Errors
    /// [`SpoolError`] if its file cannot be created or read, or has another format.
    pub fn topic(&self, topic: &str) -> Result<Spool, SpoolError> {
        let path = self.path.join(file_name(topic));
        let lock = Arc::clone(&self.lock);
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        let file = match opened {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(SpoolError::System { what: "open", path, error }),
        };
        let failed = |what| {
            let path = path.clone();
            move |error| SpoolError::System { what, path, error }
        };
        let length = file.as_ref().map_or(Ok(0), |file| {
            let metadata = file.metadata().map_err(failed("read"))?;
            if metadata.is_file() {
                Ok(metadata.len())
            } else {
                Err(SpoolError::NotASpool(path.clone()))
            }
        })?;
        let mut spool = match file.filter(|_| length > 0) {
            Some(file) => Spool::read(file, &path, topic, length, lock)?,
            None => Spool::create(&path, topic, new_stream()?, lock).map_err(failed("write"))?,
        };
        if spool.next > RecordChunk::MAX_NUMBER {
            // A monitor can cause this; no source reaches this number by counting.
            spool.stream = new_stream()?;
            spool.renumber(0).map_err(failed("write"))?;
        }
        Ok(spool)
    }
}

/// The name of a topic's file: bytes that are not letters, digits, `_` or `-` are written `%XX`.
fn file_name(topic: &str) -> String {
    let mut name = String::new();
    for byte in topic.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => name.push(byte.into()),
            _ => name.push_str(&format!("%{byte:02X}")),
        }
    }
    name + ".spool"
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn open(dir: &Path) -> Spool {
        SpoolDir::open(dir).unwrap().topic("log").unwrap()
    }

    #[test]
    fn what_is_not_a_spool_of_the_topic_is_refused_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path()));
        let path = dir.path().join("log.spool");
        let other = dir.path().join("a%2Fb%3A1.spool");
        fs::copy(&path, &other).unwrap();
        let folder = SpoolDir::open(dir.path()).unwrap();
        let error = folder.topic("a/b:1").unwrap_err().to_string();
        assert!(error.contains("topic \"log\""), "{error}");
        let whole = fs::read(&path).unwrap();
        for text in
            [&b"some other file of the user, which is long enough"[..], b"short", &whole[..40]]
        {
            fs::write(&path, text).unwrap();
            let error = folder.topic("log").unwrap_err().to_string();
            assert!(error.contains("log.spool is not a spool"), "{error}");
            assert_eq!(fs::read(&path).unwrap(), text);
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(folder.topic("log").is_err());
    }

    #[test]
    fn one_source_at_a_time_has_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/folder");
        let spool = open(&path);
        let error = SpoolDir::open(&path).unwrap_err().to_string();
        assert!(error.contains("in use by another source"), "{error}");
        drop(spool);
        open(&path);
    }
}
