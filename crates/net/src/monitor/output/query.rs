//! A UNIX socket that tells the freshest states to whoever connects.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use freshline_core::unit::Span;
use serde_json::Value;

use super::line_of_status;
use super::lines::printable;
use crate::clock::Clock;
use crate::monitor::Asker;

/// How long a reader may take for its whole answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Readers that are answered at the same time; a further one waits for one of them.
const READERS: usize = 8;

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
        thread::spawn(move || {
            let mut readers = VecDeque::new();
            for stream in listener.incoming() {
                readers.retain(|reader: &JoinHandle<()>| !reader.is_finished());
                if readers.len() == READERS
                    && let Some(oldest) = readers.pop_front()
                {
                    let _ = oldest.join();
                }
                let asker = asker.clone();
                let reader = stream.and_then(|stream| {
                    thread::Builder::new().spawn(move || {
                        if let Err(error) = answer(stream, &asker) {
                            tracing::debug!("a reader of the states went away: {error}");
                        }
                    })
                });
                match reader {
                    Ok(reader) => readers.push_back(reader),
                    // Should the process be out of files or threads, it will not be better at once.
                    Err(_) => thread::sleep(REST),
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
    let mut text = Vec::new();
    for status in asker.sources(usize::MAX).map_err(io::Error::other)? {
        let line = Value::Object(line_of_status(&status)).to_string();
        text.extend_from_slice(printable(&line).as_bytes());
        text.push(b'\n');
    }
    let clock = Clock::new();
    let end = clock.now() + PATIENCE.into();
    let mut rest = &text[..];
    while !rest.is_empty() {
        // A time-out of zero would be none at all.
        let left = end.since(clock.now()).max(Span::from_millis(1));
        stream.set_write_timeout(Some(left.into()))?;
        match stream.write(rest)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            _ if clock.now() >= end => return Err(io::ErrorKind::TimedOut.into()),
            written => rest = &rest[written..],
        }
    }
    Ok(())
}
