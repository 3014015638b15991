//! Where fresh state comes from: asked for at the moment of sending.

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

/// Runs `work` on a thread of its own.
fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().spawn(work).map(drop)
}

/// How long a sampler that failed rests.
const RETRY: Span = Span::from_secs(1);

/// What a sampler gives.
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
        /// Whether it has no state any more; the buffer does not count then.
        is_removed: bool,
    },
    /// The next record of a topic of records is in the buffer. There may be more at once.
    Record {
        /// When it was generated.
        generated_at: Time,
    },
    /// Records of such a topic were left out, as they cannot be sent.
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
    /// Something is wrong, and may be better then.
    RetryAt(Time, String),
    /// There will be no more.
    End,
    /// There never will be any.
    Failed(String),
}

/// A source of state. Must not block: what takes time belongs on a thread of its own.
pub trait Sampler: Send {
    /// Called once before the first [`Sampler::take`].
    ///
    /// # Errors
    /// The system has no thread for it.
    fn start(&mut self, clock: Clock, waker: Arc<Waker>) -> io::Result<()>;
    /// Puts the state into the empty buffer.
    fn take(&mut self, now: Time, need: Need, into: &mut Vec<u8>) -> Take;
    /// Some records of its topic were taken in by the session, or are done: they are so now.
    fn on_records(&mut self, _now: Time, _records: &RecordsView) {}
    /// Records that it has and that were not taken yet.
    fn queued(&self) -> usize {
        0
    }
    /// By how much the generation time of the state that was taken last can be too late.
    fn label_error(&self) -> Span {
        Span::ZERO
    }
    /// How many of the generation times that the application writes were not used; `None` if it writes none.
    fn invalid_stamps(&self) -> Option<u64> {
        None
    }
    /// Why generation times were not used: the first of each kind, once.
    fn take_stamp_errors(&mut self) -> Vec<StampError> {
        Vec::new()
    }
}

/// Puts the states of a source into its session, of topics that are found while it runs. Must not block.
pub trait Supply: Send {
    /// The session wants states: puts those that are new into it, adding topics as need be
    /// ([`Source::add_topic`](session::Source::add_topic)).
    fn supply(&mut self, now: Time, need: Need, session: &mut session::Source) -> Supplied;
    /// It has woken the source: puts the records that are new, which do not wait for the law's next time;
    /// whether there were some.
    fn supply_records(&mut self, now: Time, session: &mut session::Source) -> bool;
    /// More of the records of a topic are done: they are so now.
    fn on_records_done(&mut self, topic: TopicId, records: &RecordsView);
}

/// What a [`Supply`] has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Supplied {
    /// It has put something.
    Put,
    /// There is nothing new; it wakes the source when there is.
    NotYet,
    /// The session has no room for a state; it is to ask again at this time.
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

/// A file that is read anew for every update: a sensor in sysfs, `/proc/loadavg`.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    max_state: usize,
}

impl File {
    /// Reads `path`. At most a byte more than `max_state` is read, so that the source leaves a longer state
    /// out.
    pub fn new(path: PathBuf, max_state: usize) -> Self {
        Self { path, max_state }
    }
}

impl Sampler for File {
    fn start(&mut self, _clock: Clock, _waker: Arc<Waker>) -> io::Result<()> {
        Ok(())
    }

    fn take(&mut self, now: Time, _need: Need, into: &mut Vec<u8>) -> Take {
        // A pipe without a writer must not hold up the source; to a regular file it is the same.
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
