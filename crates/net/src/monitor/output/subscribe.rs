//! Readers that get each fresh state as it comes.
//!
//! ```text
//!   fresh state ─► newest of each source ─► thread of a reader ─► its socket
//! ```
//!
//! A reader that is slower than the updates gets the newest state of each source, in the order in which
//! their turns came; it holds up neither the monitor nor others. One that takes in nothing for
//! [`PATIENCE`] is cut off.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use freshline_core::session::SourceKey;
use freshline_core::unit::Time;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Map, Value};

use super::handover::{Handover, Next, Pending};
use super::lines::printable;
use super::{Record, line, line_of_status};
use crate::monitor::Asker;

/// Readers at the same time.
pub(super) const READERS: usize = 64;

/// After so long without taking in a byte a reader is cut off.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often it is looked whether a reader is still there while it has nothing to read.
const LOOK: Duration = Duration::from_secs(1);

/// Whoever wants each fresh state.
#[derive(Clone, Default)]
pub struct Subscribers(Arc<Mutex<Vec<Arc<Handover<Newest>>>>>);

/// A line of JSON that several readers share.
type Line = Arc<Map<String, Value>>;

/// The newest state of each source, by the sources' indices.
#[derive(Default)]
struct Newest {
    turns: VecDeque<usize>,
    lines: HashMap<usize, Line>,
}

impl Pending for Newest {
    type Item = Line;

    fn take(&mut self) -> Option<Line> {
        let index = self.turns.pop_front()?;
        self.lines.remove(&index)
    }
}

impl Newest {
    fn put(&mut self, index: usize, line: Line) {
        if self.lines.insert(index, line).is_none() {
            self.turns.push_back(index);
        }
    }
}

impl Subscribers {
    fn list(&self) -> MutexGuard<'_, Vec<Arc<Handover<Newest>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn fresh(&self, now: Time, source: SourceKey, record: &Record) {
        let list = self.list();
        if list.is_empty() {
            return;
        }
        let line = Arc::new(line(now, record));
        for reader in list.iter() {
            reader.put(|newest| newest.put(source.index(), Arc::clone(&line)));
        }
    }

    /// No more states come.
    pub(super) fn finish(&self) {
        self.list().iter().for_each(|reader| reader.finish());
    }

    /// Whether no reader is left.
    pub(super) fn is_over(&self) -> bool {
        self.list().is_empty()
    }

    /// Serves a reader until it leaves, is cut off, or no more states come.
    pub(super) fn serve(&self, stream: UnixStream, asker: &Asker) -> io::Result<()> {
        let queue = Arc::<Handover<Newest>>::default();
        // First, so that no state is missing between the snapshot and what follows.
        self.list().push(Arc::clone(&queue));
        let served = follow(stream, asker, &queue);
        self.list().retain(|other| !Arc::ptr_eq(other, &queue));
        served
    }
}

fn follow(mut stream: UnixStream, asker: &Asker, queue: &Handover<Newest>) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    // What each session's state was in the snapshot: what is not newer came before it.
    let mut shown = HashMap::new();
    for status in asker.sources(usize::MAX).map_err(io::Error::other)? {
        write(&mut stream, line_of_status(&status))?;
        shown.insert(status.session, status.seq);
    }
    loop {
        match queue.next_within(LOOK) {
            Next::Item(line) => {
                let line = Arc::unwrap_or_clone(line);
                if !was_shown(&mut shown, &line) {
                    write(&mut stream, line)?;
                }
            }
            Next::Late if has_left(&stream)? => return Ok(()),
            Next::Late => {}
            Next::Finished => return Ok(()),
        }
    }
}

fn was_shown(shown: &mut HashMap<String, u64>, line: &Map<String, Value>) -> bool {
    let (Some(session), Some(seq)) = (line["session"].as_str(), line["seq"].as_u64()) else {
        return false;
    };
    match shown.get(session) {
        Some(before) if seq <= *before => true,
        Some(_) => {
            shown.remove(session);
            false
        }
        None => false,
    }
}

fn write(stream: &mut UnixStream, line: Map<String, Value>) -> io::Result<()> {
    let mut text = printable(&Value::Object(line).to_string()).into_bytes();
    text.push(b'\n');
    stream.write_all(&text)
}

/// Whether the reader has closed its end. One that only has nothing to say is still there.
fn has_left(stream: &UnixStream) -> io::Result<bool> {
    let mut fds = [PollFd::new(stream.as_fd(), PollFlags::empty())];
    poll(&mut fds, PollTimeout::ZERO)?;
    let gone = PollFlags::POLLHUP | PollFlags::POLLERR;
    Ok(fds[0].revents().is_some_and(|events| events.intersects(gone)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_line(seq: u64) -> Map<String, Value> {
        let Value::Object(line) = serde_json::json!({"session": "s", "seq": seq}) else {
            unreachable!("it is an object")
        };
        line
    }

    #[test]
    fn a_slow_reader_gets_the_newest_of_each_source_in_turn() {
        let mut newest = Newest::default();
        for seq in 0..1000 {
            newest.put(7, Arc::new(a_line(seq)));
            newest.put(3, Arc::new(a_line(seq + 1)));
        }
        let seqs: Vec<_> =
            std::iter::from_fn(|| newest.take()).map(|line| line["seq"].as_u64()).collect();
        assert_eq!(seqs, [Some(999), Some(1000)]);
    }

    #[test]
    fn what_the_snapshot_had_does_not_come_again() {
        let mut shown = HashMap::from([("s".to_owned(), 5)]);
        assert!(was_shown(&mut shown, &a_line(4)));
        assert!(was_shown(&mut shown, &a_line(5)));
        assert!(!was_shown(&mut shown, &a_line(6)));
        assert!(shown.is_empty(), "memory for those that have sent nothing since");
    }

    #[test]
    fn a_reader_that_left_is_told_from_one_with_nothing_to_say() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        assert!(!has_left(&ours).unwrap());
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(!has_left(&ours).unwrap());
        drop(theirs);
        assert!(has_left(&ours).unwrap());
    }
}
