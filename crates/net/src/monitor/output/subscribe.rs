//! Readers that get each fresh state as it comes.
//!
//! ```text
//!   fresh state ─► newest of each source ─► thread of a reader ─► its socket
//! ```
//!
//! A reader that is slower than the updates gets the newest state of each source, in turn; it delays
//! neither the monitor nor other readers. What it did not get is not counted. One that does not read a
//! line, or the snapshot, within [`PATIENCE`] is cut off.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use freshline_core::session::{Alarm, SessionLabel};
use freshline_core::unit::Time;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Map, Value};
use socket2::SockRef;

use super::handover::{Handover, Next, Pending};
use super::held::Held;
use super::lines::push_line;
use super::reader::write_within;
use super::{line, line_of_alarm, line_of_status, payload_len};
use crate::clock::Clock;
use crate::monitor::Asker;

/// Readers at the same time.
pub(super) const READERS: usize = 64;

/// The time that a reader has for the snapshot, and for each line.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often it is looked whether a reader is still there while it has nothing to read.
const LOOK: Duration = Duration::from_millis(100);

/// The send buffer of a reader, in bytes: what lies there has missed its chance to be replaced.
const SEND_BUFFER: usize = 4096;

/// Sources with a pending state; beyond them the state of the source whose turn is next is dropped. More
/// than there are sources, unless sources come and go while a reader reads nothing.
const PENDING: usize = 1 << 14;

/// The bytes of states that are pending for one reader, about; beyond them states are dropped as beyond
/// [`PENDING`].
const PENDING_BYTES: usize = 64 << 20;

/// Readers that get each fresh state.
#[derive(Clone, Default)]
pub struct Subscribers(Arc<Mutex<Vec<Arc<Handover<Newest>>>>>);

/// A line of JSON that several readers share, and until when it may be handed out.
#[derive(Clone)]
struct Line {
    content: Arc<Map<String, Value>>,
    fresh_until: Option<Time>,
}

/// A session, one of its topics, and whether it is a state: an alarm is not replaced by one.
type Key = (SessionLabel, u8, bool);

/// The newest state of each topic of each source.
#[derive(Default)]
struct Newest {
    turns: VecDeque<Key>,
    lines: HashMap<Key, Line>,
    /// The sum of the lengths of their payloads.
    bytes: usize,
}

impl Pending for Newest {
    type Item = Line;

    fn take(&mut self) -> Option<Line> {
        let key = self.turns.pop_front()?;
        let line = self.lines.remove(&key)?;
        self.bytes -= payload_len(&line.content);
        Some(line)
    }
}

impl Newest {
    fn put(&mut self, key: Key, line: Line) {
        self.bytes += payload_len(&line.content);
        match self.lines.insert(key, line) {
            Some(before) => self.bytes -= payload_len(&before.content),
            None => self.turns.push_back(key),
        }
        while self.turns.len() > PENDING || self.bytes > PENDING_BYTES {
            self.take();
        }
    }
}

impl Subscribers {
    fn list(&self) -> MutexGuard<'_, Vec<Arc<Handover<Newest>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn fresh(&self, now: Time, held: Held<'_>, fresh_until: Option<Time>) {
        let key = (held.record.label(), held.topic(), true);
        self.put(key, fresh_until, || line(now, held));
    }

    /// A topic has become stale, or fresh again. Of a slow reader, the newest alarm of a topic counts.
    pub(super) fn alarm(&self, alarm: &Alarm) {
        self.put((alarm.label, alarm.number, false), None, || line_of_alarm(alarm));
    }

    fn put(&self, key: Key, fresh_until: Option<Time>, line: impl Fn() -> Map<String, Value>) {
        let list = self.list();
        if list.is_empty() {
            return;
        }
        let line = Line { content: Arc::new(line()), fresh_until };
        for reader in list.iter() {
            reader.put(|newest| newest.put(key, line.clone()));
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
    SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER)?;
    // The sequence number of each session's state in the snapshot.
    let mut shown = HashMap::new();
    let mut text = Vec::new();
    for status in asker.sources(usize::MAX).map_err(io::Error::other)? {
        push_line(&Value::Object(line_of_status(&status)), &mut text);
        shown.insert(status.session, status.seq);
    }
    write_within(&mut stream, &text, PATIENCE)?;
    loop {
        text = Vec::new();
        match queue.next_within(LOOK) {
            Next::Item(line) => {
                let is_fresh = line.fresh_until.is_none_or(|until| Clock::new().now() <= until);
                let line = Arc::unwrap_or_clone(line.content);
                if is_fresh && !was_shown(&mut shown, &line) {
                    push_line(&Value::Object(line), &mut text);
                    write_within(&mut stream, &text, PATIENCE)?;
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

/// Whether the reader has closed its end, for reading too.
fn has_left(stream: &UnixStream) -> io::Result<bool> {
    let mut fds = [PollFd::new(stream.as_fd(), PollFlags::empty())];
    poll(&mut fds, PollTimeout::ZERO)?;
    let gone = PollFlags::POLLHUP | PollFlags::POLLERR;
    Ok(fds[0].revents().is_some_and(|events| events.intersects(gone)))
}

#[cfg(test)]
mod tests {
    use freshline_core::session::Secret;
    use freshline_core::wire::SessionId;

    use super::*;

    fn pending(seq: u64) -> Line {
        Line { content: Arc::new(a_line(seq)), fresh_until: None }
    }

    fn a_line(seq: u64) -> Map<String, Value> {
        let Value::Object(line) = serde_json::json!({"session": "s", "seq": seq}) else {
            unreachable!("it is an object")
        };
        line
    }

    fn label(id: u64) -> SessionLabel {
        Secret::new([7; 16]).label(SessionId(id))
    }

    #[test]
    fn pending_states_of_sources_that_come_and_go_take_bounded_memory() {
        let mut newest = Newest::default();
        for id in 0..2 * PENDING as u64 {
            newest.put((label(id), 0, true), pending(id));
        }
        assert_eq!((newest.turns.len(), newest.lines.len()), (PENDING, PENDING));
        let oldest = newest.take().unwrap();
        assert_eq!(oldest.content["seq"].as_u64(), Some(PENDING as u64), "the oldest were dropped");
    }

    #[test]
    fn a_slow_reader_gets_the_newest_of_each_source_in_turn() {
        let mut newest = Newest::default();
        for seq in 0..1000 {
            newest.put((label(7), 0, true), pending(seq));
            newest.put((label(3), 0, true), pending(seq + 1));
        }
        let seqs: Vec<_> =
            std::iter::from_fn(|| newest.take()).map(|line| line.content["seq"].as_u64()).collect();
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
