//! A UNIX socket that tells the freshest states to whoever connects.

use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::line_of_status;
use crate::monitor::Asker;

/// How long a reader may keep its answer waiting.
const PATIENCE: Duration = Duration::from_secs(2);

/// The rest after a failure.
const REST: Duration = Duration::from_millis(10);

/// Why the socket cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// Something other than a socket has the name.
    #[error("{0} exists and is not a socket; remove it or choose another path")]
    Occupied(PathBuf),
    /// Somebody else answers there.
    #[error("another process listens at {0}; stop it or choose another path")]
    Busy(PathBuf),
    /// The system refuses.
    #[error("cannot listen at {path}: {error}")]
    System {
        /// Where.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

/// Answers each connection with a line of JSON a source, then closes it. The file goes with it.
pub struct QuerySocket {
    path: PathBuf,
}

impl QuerySocket {
    /// Listens at `path`; the socket of a process that is gone is replaced.
    ///
    /// # Errors
    /// [`QueryError`] where `path` is taken or cannot be made.
    pub fn listen(path: &Path, asker: Asker) -> Result<Self, QueryError> {
        let path = path.to_owned();
        if let Ok(metadata) = path.symlink_metadata() {
            if !metadata.file_type().is_socket() {
                return Err(QueryError::Occupied(path));
            }
            if UnixStream::connect(&path).is_ok() {
                return Err(QueryError::Busy(path));
            }
            let _ = std::fs::remove_file(&path);
        }
        let listener = UnixListener::bind(&path)
            .map_err(|error| QueryError::System { path: path.clone(), error })?;
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // One reader after the other: a slow one costs the others its patience at most.
                if let Err(error) = stream.and_then(|stream| answer(stream, &asker)) {
                    tracing::debug!("a reader of the states went away: {error}");
                    // Should the process be out of files, it will not be better at once.
                    std::thread::sleep(REST);
                }
            }
        });
        Ok(Self { path })
    }
}

impl Drop for QuerySocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn answer(mut stream: UnixStream, asker: &Asker) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut text = Vec::new();
    for status in asker.sources(usize::MAX).map_err(io::Error::other)? {
        serde_json::to_writer(&mut text, &line_of_status(&status))?;
        text.push(b'\n');
    }
    stream.write_all(&text)
}
