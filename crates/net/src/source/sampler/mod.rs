//! Samplers, which are asked for fresh state at the moment of sending.

mod command;
mod keyed;
mod latest;
pub(super) mod records;
mod shared;
mod stamp;

use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use freshline_core::session::{self, RecordError, RecordsView, TopicId};
use freshline_core::unit::{Span, Time};
use nix::fcntl::OFlag;

pub use command::Command;
#[cfg(test)]
pub(crate) use command::Run;
pub use keyed::Keys;
pub use latest::Latest;
pub use records::Records;
pub use shared::Shared;
pub use stamp::{StampError, StampFormat, UnknownStampFormat};

pub use freshline_core::session::Need;

use crate::clock::Clock;
use crate::framing::beyond;
use crate::waker::Waker;

/// Runs `work` on its own thread.
fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().spawn(work).map(drop)
}

/// How long a sampler is not asked after a failure.
const RETRY: Span = Span::from_secs(1);

/// The result of asking a sampler.
#[derive(Debug, PartialEq, Eq)]
pub enum Take {
    /// The state is in the buffer.
    Sample {
        /// When it was true.
        generated_at: Time,
    },
    /// The state of a key of a topic with keys is in the buffer. There may be more at once.
    Key {
        /// When it was true.
        generated_at: Time,
        /// Which key: 1 to 64 bytes.
        key: Vec<u8>,
        /// Whether the key was removed; then the buffer is ignored.
        is_removed: bool,
    },
    /// The next record of a topic of records is in the buffer. There may be more at once.
    Record {
        /// When it was generated.
        generated_at: Time,
    },
    /// Records of the topic were left out because they cannot be sent.
    Refused {
        /// How many.
        count: u64,
        /// Why the last of them.
        why: RecordError,
    },
    /// Nothing yet; the sampler will wake the source.
    NotYet,
    /// Nothing yet; the sampler will wake the source, which asks again at this time at the latest.
    NotBefore(Time),
    /// A temporary error; it may be resolved at this time.
    RetryAt(Time, String),
    /// There are no more states.
    End,
    /// A permanent error.
    Failed(String),
}

/// A source of state. It must not block: slow work belongs on a separate thread.
pub trait Sampler: Send {
    /// Called once before the first [`Sampler::take`].
    ///
    /// # Errors
    /// If the system cannot create a thread.
    fn start(&mut self, clock: Clock, waker: Arc<Waker>) -> io::Result<()>;
    /// Puts the state into the empty buffer.
    fn take(&mut self, now: Time, need: Need, into: &mut Vec<u8>) -> Take;
    /// The session has accepted more records of its topic, or more are done; these are the new
    /// counts.
    fn on_records(&mut self, _now: Time, _records: &RecordsView) {}
    /// The number of records that it holds and that were not taken yet.
    fn queued(&self) -> usize {
        0
    }
    /// By how much the generation time of the last state taken can be too late.
    fn label_error(&self) -> Span {
        Span::ZERO
    }
    /// The number of unused generation times of the application; `None` if it writes none.
    fn invalid_stamps(&self) -> Option<u64> {
        None
    }
    /// Why generation times were not used: the first of each kind, each reported once.
    fn take_stamp_errors(&mut self) -> Vec<StampError> {
        Vec::new()
    }
}

/// Puts the states of topics that are discovered at run time into a source's session. Must not
/// block.
pub trait Supply: Send {
    /// The session wants a state: puts new states into it, adding topics if needed
    /// ([`Source::add_topic`](session::Source::add_topic)).
    fn supply(&mut self, now: Time, need: Need, session: &mut session::Source) -> Supplied;
    /// It has woken the source: puts the new records, which are sent before the law's next time;
    /// returns whether there were any.
    fn supply_records(&mut self, now: Time, session: &mut session::Source) -> bool;
    /// More of the records of a topic are done; these are the new counts.
    fn on_records_done(&mut self, topic: TopicId, records: &RecordsView);
}

/// The result of a [`Supply`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Supplied {
    /// It has put states.
    Put,
    /// There is nothing new; it wakes the source when there is.
    NotYet,
    /// The session has no room for a state; it must ask again at this time.
    RetryAt(Time),
}

/// A payload of a given size, for measurements: a counter, then a pattern.
#[derive(Debug)]
pub struct Synthetic {
    size: usize,
    count: u64,
}

impl Synthetic {
    /// Payloads of `size` bytes.
    pub fn new(size: usize) -> Self {
        Self { size, count: 0 }
    }
}

impl Sampler for Synthetic {
    fn start(&mut self, _clock: Clock, _waker: Arc<Waker>) -> io::Result<()> {
        Ok(())
    }

    fn take(&mut self, now: Time, _need: Need, into: &mut Vec<u8>) -> Take {
        into.extend_from_slice(&self.count.to_be_bytes());
        into.resize(self.size, 0xA5);
        self.count += 1;
        Take::Sample { generated_at: now }
    }
}

/// A file that is read for every update, such as a sensor in sysfs or `/proc/loadavg`.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    max_state: usize,
}

impl File {
    /// Reads `path`. At most one byte more than `max_state` is read, so that the source leaves a
    /// longer state out.
    pub fn new(path: PathBuf, max_state: usize) -> Self {
        Self { path, max_state }
    }
}

impl Sampler for File {
    fn start(&mut self, _clock: Clock, _waker: Arc<Waker>) -> io::Result<()> {
        Ok(())
    }

    fn take(&mut self, now: Time, _need: Need, into: &mut Vec<u8>) -> Take {
        // A pipe without a writer must not block the source; for a regular file the flag has no
        // effect.
        let read = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .open(&self.path)
            .and_then(|file| file.take(beyond(self.max_state)).read_to_end(into));
        match read {
            Ok(_) => Take::Sample { generated_at: now },
            Err(error) => {
                let why = format!("cannot read {}: {error}", self.path.display());
                Take::RetryAt(now + RETRY, why)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_that_nobody_writes_to_does_not_hold_up_the_source() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let taken = File::new(path, 100).take(Time::ZERO, Need::Newer, &mut Vec::new());
        assert!(matches!(taken, Take::Sample { .. }), "{taken:?}");
    }

    #[test]
    fn no_more_of_a_file_is_read_than_shows_that_it_is_too_long() {
        let path = PathBuf::from("/dev/zero");
        let mut state = Vec::new();
        let taken = File::new(path, 100_000).take(Time::ZERO, Need::Newer, &mut state);
        assert!(matches!(taken, Take::Sample { .. }), "{taken:?}");
        assert_eq!(state.len(), 100_001);
    }
}
