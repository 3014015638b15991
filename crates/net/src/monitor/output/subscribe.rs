//! Readers that get each fresh state as it comes.
//!
//! ```text
//!   fresh state ─► newest of each source ─► thread of a reader ─► its socket
//! ```
//!
//! A reader may send a line at any time that selects states: patterns of the names of source, topic
//! and key, separated by tabs. It gets the matching states as of then, and from then on only
//! matching states.
//!
//! A reader that is slower than the updates gets the newest state of each topic and key, in turn;
//! it delays neither the monitor nor other readers. States that it did not get are not counted. A
//! reader that does not read a line, or the snapshot, within [`PATIENCE`] is disconnected.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use freshline_core::session::{Alarm, SessionLabel};
use freshline_core::unit::Time;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Map, Value};
use socket2::SockRef;

use super::format::push_line;
use super::handover::{Handover, Next, Pending};
use super::held::Held;
use super::pattern::Wanted;
use super::reader::write_within;
use super::records::Given;
use super::{line, line_of_alarm, line_of_status, lines_of_topics, payload_len};
use crate::clock::Clock;
use crate::monitor::which::Which;
use crate::monitor::{Asker, SourceStatus};

/// Maximum number of readers at the same time.
pub(super) const READERS: usize = 64;

/// Time limit of a reader for the snapshot, and for each line.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often an idle reader is checked for being still there.
const LOOK: Duration = Duration::from_millis(100);

/// The send buffer of a reader, in bytes. A state in it can no longer be replaced.
const SEND_BUFFER: usize = 4096;

/// Maximum number of sources with a pending state; beyond it the state of the source whose turn is
/// next is dropped. This is more than there are sources, unless sources come and go while a reader
/// reads nothing.
const PENDING: usize = 1 << 14;

/// Approximate maximum bytes of the states that are pending for one reader; beyond it states are
/// dropped as beyond [`PENDING`].
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

impl Line {
    /// Whether it is too late to hand it out.
    fn is_over(&self, now: Time) -> bool {
        self.fresh_until.is_some_and(|until| now > until)
    }
}

/// A session, one of its topics or keys, and whether it is a state: a state does not replace an
/// alarm.
type Key = (SessionLabel, Which, bool);

/// A state for a reader.
struct Item {
    line: Line,
    which: Which,
    generated_at: Time,
}

/// The newest state of each topic and key of each source.
#[derive(Default)]
struct Newest {
    turns: VecDeque<Key>,
    /// With the time at which each was sampled, on the source's clock.
    lines: HashMap<Key, (Line, Time)>,
    /// The sum of the lengths of their payloads.
    bytes: usize,
}

impl Pending for Newest {
    type Item = Item;

    fn take(&mut self) -> Option<Item> {
        let key = self.turns.pop_front()?;
        let (line, generated_at) = self.lines.remove(&key)?;
        self.bytes -= payload_len(&line.content);
        Some(Item { line, which: key.1, generated_at })
    }
}

impl Newest {
    fn put(&mut self, key: Key, line: Line, generated_at: Time) {
        self.bytes += payload_len(&line.content);
        match self.lines.insert(key.clone(), (line, generated_at)) {
            Some((before, _)) => self.bytes -= payload_len(&before.content),
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
        let key = (held.record.label(), held.which(), true);
        self.put(key, held.generated_at(), fresh_until, || line(now, held));
    }

    /// Adds a record, which no other one replaces.
    pub(super) fn record(&self, given: &Given<'_>) {
        // Snapshots contain no records.
        let key = (given.record.label(), given.which(), true);
        self.put(key, Time::MAX, None, || given.line());
    }

    /// A topic has become stale, or fresh again. A slow reader gets the newest alarm of a topic.
    pub(super) fn alarm(&self, alarm: &Alarm) {
        let which = match alarm.key.is_empty() {
            true => Which::Topic(alarm.number),
            false => Which::key(&alarm.topic, &alarm.key),
        };
        // Snapshots contain no alarms.
        self.put((alarm.label, which, false), Time::MAX, None, || line_of_alarm(alarm));
    }

    fn put(
        &self,
        key: Key,
        generated_at: Time,
        fresh_until: Option<Time>,
        line: impl Fn() -> Map<String, Value>,
    ) {
        let list = self.list();
        if list.is_empty() {
            return;
        }
        let line = Line { content: Arc::new(line()), fresh_until };
        for reader in list.iter() {
            reader.put(|newest| newest.put(key.clone(), line.clone(), generated_at));
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
        // Subscribe first, so that no state is missing between the snapshot and the states after
        // it.
        self.list().push(Arc::clone(&queue));
        let served = follow(stream, asker, &queue);
        self.list().retain(|other| !Arc::ptr_eq(other, &queue));
        served
    }
}

fn follow(mut stream: UnixStream, asker: &Asker, queue: &Handover<Newest>) -> io::Result<()> {
    SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER)?;
    let (mut wanted, mut requests) = (Wanted::all(), Requests::default());
    let mut shown = show(&mut stream, asker, &wanted, Vec::new())?;
    loop {
        if let Some(request) = requests.next(&mut stream)? {
            wanted = Wanted::parse(&request);
            let mut text = Vec::new();
            push_line(&wanted.line(), &mut text);
            shown = show(&mut stream, asker, &wanted, text)?;
        }
        match queue.next_within(LOOK) {
            Next::Item(item) if shown.has(&item) || !wanted.takes(&item.line.content) => {}
            Next::Item(item) if item.line.is_over(Clock::new().now()) => {}
            Next::Item(item) => {
                let mut text = Vec::new();
                push_line(&Value::Object(Arc::unwrap_or_clone(item.line.content)), &mut text);
                write_within(&mut stream, &text, PATIENCE)?;
            }
            Next::Late if has_left(&stream)? => return Ok(()),
            // The states after it are newer than the snapshot.
            Next::Late => shown = Shown::default(),
            Next::Finished => return Ok(()),
        }
    }
}

/// Writes `text` and the states as they are now; returns which these are.
fn show(
    stream: &mut UnixStream,
    asker: &Asker,
    wanted: &Wanted,
    mut text: Vec<u8>,
) -> io::Result<Shown> {
    let mut shown = Shown::default();
    for status in asker.sources(usize::MAX).map_err(io::Error::other)? {
        let lines = std::iter::once(line_of_status(&status)).chain(lines_of_topics(&status));
        for line in lines.filter(|line| wanted.takes(line)) {
            push_line(&Value::Object(line), &mut text);
        }
        shown.insert(status);
    }
    write_within(stream, &text, PATIENCE)?;
    Ok(shown)
}

/// The contents of a snapshot, per session: the newest update, and when each state was sampled.
#[derive(Default)]
struct Shown(HashMap<String, (u64, HashMap<Which, Time>)>);

impl Shown {
    fn insert(&mut self, status: SourceStatus) {
        let topics = status.topics.into_iter().filter_map(|topic| topic.state);
        let mut states: HashMap<_, _> =
            topics.map(|state| (state.which, state.generated_at)).collect();
        if status.payload_bytes.is_some() {
            states.insert(Which::Topic(0), status.generated_at);
        }
        self.0.insert(status.session, (status.seq, states));
    }

    /// Whether a state arrived before the snapshot, which has it or a newer one.
    fn has(&self, item: &Item) -> bool {
        let (session, seq) = (item.line.content.get("session"), item.line.content.get("seq"));
        let Some((shown, states)) = session.and_then(Value::as_str).and_then(|it| self.0.get(it))
        else {
            return false;
        };
        seq.and_then(Value::as_u64).is_some_and(|seq| seq <= *shown)
            && states.get(&item.which).is_some_and(|shown| item.generated_at <= *shown)
    }
}

/// Maximum length of a reader's request, in bytes.
const MAX_REQUEST: usize = 1024;

/// The requests of a reader: a line selects the states that it wants.
#[derive(Default)]
struct Requests {
    bytes: Vec<u8>,
    /// Nothing more is read.
    is_over: bool,
}

impl Requests {
    /// The next line, if it has arrived.
    ///
    /// # Errors
    /// If it is too long or not text, or if the stream fails.
    fn next(&mut self, stream: &mut UnixStream) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let line = self.bytes.drain(..=end).collect();
                return String::from_utf8(line).map(Some).map_err(io::Error::other);
            }
            if self.bytes.len() > MAX_REQUEST {
                return Err(io::Error::other("a request is too long"));
            }
            if self.is_over || !can_be_read(stream)? {
                return Ok(None);
            }
            let mut some = [0; MAX_REQUEST];
            let len = stream.read(&mut some)?;
            self.is_over = len == 0;
            self.bytes.extend_from_slice(&some[..len]);
        }
    }
}

fn can_be_read(stream: &UnixStream) -> io::Result<bool> {
    let mut fds = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO)?;
    Ok(fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLIN)))
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
    use std::io::Write;

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
            newest.put((label(id), Which::Topic(0), true), pending(id), Time::ZERO);
        }
        assert_eq!((newest.turns.len(), newest.lines.len()), (PENDING, PENDING));
        let oldest = newest.take().unwrap().line.content;
        assert_eq!(oldest["seq"].as_u64(), Some(PENDING as u64), "the oldest were dropped");
    }

    #[test]
    fn a_slow_reader_gets_the_newest_of_each_source_in_turn() {
        let mut newest = Newest::default();
        for seq in 0..1000 {
            newest.put((label(7), Which::Topic(0), true), pending(seq), Time::ZERO);
            newest.put((label(3), Which::Topic(0), true), pending(seq + 1), Time::ZERO);
        }
        let seqs: Vec<_> = std::iter::from_fn(|| newest.take())
            .map(|item| item.line.content["seq"].as_u64())
            .collect();
        assert_eq!(seqs, [Some(999), Some(1000)]);
    }

    #[test]
    fn what_the_snapshot_had_does_not_come_again() {
        let states = HashMap::from([(Which::Topic(0), Time::from_nanos(7))]);
        let shown = Shown(HashMap::from([("s".to_owned(), (5, states))]));
        let has = |seq, topic, at| {
            let (line, which) = (pending(seq), Which::Topic(topic));
            shown.has(&Item { line, which, generated_at: Time::from_nanos(at) })
        };
        assert!(has(4, 0, 6) && has(5, 0, 7));
        assert!(!has(6, 0, 7), "its age has come");
        assert!(!has(5, 0, 8), "an older update has completed it since");
        assert!(!has(5, 1, 7), "it has no such topic");
    }

    #[test]
    fn a_reader_says_in_lines_which_states_it_wants() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let mut requests = Requests::default();
        assert_eq!(requests.next(&mut ours).unwrap(), None);
        theirs.write_all(b"robot-*\ttf\n\t\tarm").unwrap();
        assert_eq!(requests.next(&mut ours).unwrap().as_deref(), Some("robot-*\ttf\n"));
        assert_eq!(requests.next(&mut ours).unwrap(), None);
        theirs.write_all(b"_*\n").unwrap();
        assert_eq!(requests.next(&mut ours).unwrap().as_deref(), Some("\t\tarm_*\n"));
        theirs.write_all(&[b'x'; 2 * MAX_REQUEST]).unwrap();
        assert!(requests.next(&mut ours).is_err());
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(Requests::default().next(&mut ours).unwrap(), None, "it may read on");
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
