//! A UNIX socket that gives the freshest states to each client that connects: once, or as they come.

use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;

use super::format::push_line;
use super::line_of_status;
use super::reader::write_within;
use super::subscribe::{self, Subscribers};
use crate::monitor::Asker;

/// Time limit of a reader for a whole snapshot.
const PATIENCE: Duration = Duration::from_secs(2);

/// Maximum number of readers of snapshots that are answered at the same time.
const READERS: usize = 8;

/// The pause after a failure.
const REST: Duration = Duration::from_millis(10);

/// Why the socket cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// A file that is not a socket has the name.
    #[error("{0} exists and is not a socket; remove it or choose another path")]
    Occupied(PathBuf),
    /// Another process listens there.
    #[error("another process listens at {0}; stop it or choose another path")]
    Busy(PathBuf),
    /// The system refuses the socket.
    #[error("cannot listen at {path}: {error}")]
    System {
        /// The path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// The treatment of a reader beyond the maximum number at the same time.
#[derive(Clone, Copy)]
enum Full {
    /// It waits for the oldest of them.
    AwaitOldest(usize),
    /// Its connection is closed.
    Close(usize),
}

/// A UNIX socket for readers of states, as lines of JSON. Its file is removed with it.
pub struct StateSocket {
    path: PathBuf,
}

impl StateSocket {
    /// Answers each connection with the freshest state of each source, then closes it. Listens at
    /// `path`; the socket of a process that is gone is replaced.
    ///
    /// # Errors
    /// [`SocketError`] if `path` is taken, or the socket cannot be made.
    pub fn snapshots(path: &Path, asker: Asker) -> Result<Self, SocketError> {
        Self::listen(path, Full::AwaitOldest(READERS), move |stream| {
            if let Err(error) = answer(stream, &asker) {
                tracing::debug!("a reader of the states went away: {error}");
            }
        })
    }

    /// Gives each connection the freshest state of each source, and from then on each fresh state as it
    /// comes ([`Outputs::subscribers`](super::Outputs::subscribers)). Listens as
    /// [`StateSocket::snapshots`] does.
    ///
    /// # Errors
    /// [`SocketError`] if `path` is taken, or the socket cannot be made.
    pub fn subscriptions(
        path: &Path,
        asker: Asker,
        subscribers: Subscribers,
    ) -> Result<Self, SocketError> {
        Self::listen(path, Full::Close(subscribe::READERS), move |stream| {
            if let Err(error) = subscribers.serve(stream, &asker) {
                tracing::debug!("a subscriber went away: {error}");
            }
        })
    }

    /// Makes `serve` talk to each reader.
    fn listen(
        path: &Path,
        full: Full,
        serve: impl Fn(UnixStream) + Clone + Send + 'static,
    ) -> Result<Self, SocketError> {
        let path = path.to_owned();
        if let Ok(metadata) = path.symlink_metadata() {
            if !metadata.file_type().is_socket() {
                return Err(SocketError::Occupied(path));
            }
            if UnixStream::connect(&path).is_ok() {
                return Err(SocketError::Busy(path));
            }
            let _ = std::fs::remove_file(&path);
        }
        let listener = UnixListener::bind(&path)
            .map_err(|error| SocketError::System { path: path.clone(), error })?;
        thread::spawn(move || {
            let mut threads = VecDeque::new();
            let mut is_full = false;
            for stream in listener.incoming() {
                // If the process has no file descriptors left, an immediate retry would not help.
                let Ok(stream) = stream else {
                    thread::sleep(REST);
                    continue;
                };
                threads.retain(|reader: &JoinHandle<()>| !reader.is_finished());
                match full {
                    Full::AwaitOldest(readers) if threads.len() >= readers => {
                        let _ = threads.pop_front().map(JoinHandle::join);
                    }
                    Full::Close(readers) if threads.len() >= readers => {
                        if !std::mem::replace(&mut is_full, true) {
                            tracing::warn!(
                                "{readers} clients are subscribed; closing further ones"
                            );
                        }
                        continue;
                    }
                    _ => is_full = false,
                }
                let serve = serve.clone();
                match thread::Builder::new().spawn(move || serve(stream)) {
                    Ok(reader) => threads.push_back(reader),
                    Err(_) => thread::sleep(REST),
                }
            }
        });
        Ok(Self { path })
    }
}

impl Drop for StateSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn answer(mut stream: UnixStream, asker: &Asker) -> io::Result<()> {
    let mut text = Vec::new();
    for status in asker.sources(usize::MAX).map_err(io::Error::other)? {
        push_line(&Value::Object(line_of_status(&status)), &mut text);
    }
    write_within(&mut stream, &text, PATIENCE)
}
