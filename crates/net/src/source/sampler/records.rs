//! A stream of records, all of which are delivered.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use freshline_core::session::{RecordError, RecordsView};
use freshline_core::unit::{Span, Time};
use freshline_core::wire::RecordChunk;

use super::stamp::{self, StampError, StampFormat, Stamps};
use super::{Need, RETRY, Sampler, Take};
use crate::clock::{Anchor, Clock};
use crate::framing::Framing;
use crate::source::spool::{Spool, SpooledRecord};
use crate::waker::Waker;

/// The number below which all chunks are done is written to the spool at most this often, and at
/// the end.
const MARK_EVERY: Span = Span::from_millis(100);

/// Returns each record of a stream, such as standard input, for a topic of kind
/// [`TopicKind::Every`](freshline_core::session::TopicKind::Every).
///
/// The stream is read only while the topic's buffer has room, so that the writing program is
/// blocked and no record is lost. A record that is longer than [`RecordChunk::MAX_RECORD`], or than
/// the buffer, is reported and left out. With a [`Spool`], records are on disk before the session
/// gets them, and the records that the previous process left there come first. While the disk is
/// full, the stream is not read.
pub struct Records<R> {
    stream: Option<R>,
    framing: Framing,
    max_read: usize,
    reader: Reader,
    /// The number behind the last record that was taken, as in the spool.
    taken: u64,
    /// The last view of the session's records.
    seen: Option<RecordsView>,
    marked_at: Time,
}

/// Reads the stream, on its own thread.
#[derive(Clone)]
struct Reader {
    shared: Arc<Shared>,
    /// The inner option is `None` once the source has ended.
    spool: Option<Arc<Mutex<Option<Spool>>>>,
    stamps: Stamps,
    max_record: usize,
    max_bytes: usize,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// Records from the stream that have not been taken yet.
#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    /// The bytes of the buffer that the records in here, and those in the session, take.
    queued: usize,
    in_session: usize,
    /// Why a record cannot be written to the spool; set at each attempt.
    trouble: Option<String>,
    ended: Option<Result<(), String>>,
    is_source_over: bool,
}

enum Item {
    Record {
        generated_at: Time,
        bytes: Vec<u8>,
    },
    /// Consecutive records, and the length of the last one.
    TooLong {
        count: u64,
        given: usize,
    },
}

/// The source has ended.
struct Over;

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Read + Send + 'static> Records<R> {
    /// The records of `stream`, for a topic with a buffer of `max_bytes`. A record of more than
    /// `max_read` bytes ends the stream with an error, or is left out ([`Framing::read`]).
    pub fn new(stream: R, framing: Framing, max_read: usize, max_bytes: u32) -> Self {
        let max_bytes = max_bytes as usize;
        let max_record = RecordChunk::max_record_within(max_bytes);
        let (shared, stamps) = (Arc::default(), Stamps::default());
        let reader = Reader { shared, spool: None, stamps, max_record, max_bytes };
        let (taken, seen, marked_at) = (0, None, Time::ZERO);
        Self { stream: Some(stream), framing, max_read, reader, taken, seen, marked_at }
    }

    /// Expects a generation time and a tab before each record, which do not count for its length;
    /// without a format, records have no times. A record without a plausible time counts as
    /// generated when it is read.
    #[must_use]
    pub fn stamped(mut self, format: impl Into<Option<StampFormat>>) -> Self {
        self.reader.stamps = Stamps::new(format.into(), stamp::MAX_AGE);
        self.max_read = self.max_read.saturating_add(self.reader.stamps.max_len());
        self
    }

    /// Keeps the records on disk. The topic must have the kind of this spool ([`Spool::kind`]).
    #[must_use]
    pub fn with_spool(mut self, spool: Spool) -> Self {
        self.taken = spool.first();
        self.reader.spool = Some(Arc::new(Mutex::new(Some(spool))));
        self
    }
}

/// A stream that the test writes.
#[cfg(test)]
pub(crate) struct ByHand(Reader);

#[cfg(test)]
impl ByHand {
    /// Offers a record, read when both clocks showed these times; returns whether there was room
    /// for it.
    pub(crate) fn offer(&self, read_at: &Anchor, record: &[u8]) -> bool {
        let mut record = record.to_vec();
        let unix = self.0.stamps.take_off(read_at.wall(), &mut record);
        if !self.0.has_room(&self.0.shared.lock(), record.len()) {
            return false;
        }
        assert!(self.0.write(unix, &record).is_ok_and(|is_written| is_written));
        self.0.put(read_at.time_of(unix), record);
        true
    }

    /// Whether the source is to be woken.
    pub(crate) fn has_news(&self) -> bool {
        !self.0.shared.lock().items.is_empty()
    }

    pub(crate) fn end(&self) {
        self.0.end(Ok(()));
    }
}

#[cfg(test)]
impl Records<std::io::Empty> {
    /// With records of up to one chunk, and a generation time before each. Both clocks show these
    /// times now.
    pub(crate) fn by_hand(max_bytes: u32, spool: Option<Spool>, now: Anchor) -> (Self, ByHand) {
        let records = Self::new(std::io::empty(), Framing::Lines, usize::MAX, max_bytes);
        let records = records.stamped(StampFormat::Unix);
        let mut records = match spool {
            Some(spool) => records.with_spool(spool),
            None => records,
        };
        records.stream = None;
        records.reader.replay(&now);
        let by_hand = ByHand(records.reader.clone());
        (records, by_hand)
    }
}

impl<R> Records<R> {
    /// Passes the session's progress to the spool, which writes it to the file now and then. While
    /// the spool is being written, this is left for the next time.
    fn follow(&mut self, now: Time, records: &RecordsView) {
        let Some(spool) = &self.reader.spool else { return };
        let mut spool = match spool.try_lock() {
            Ok(spool) => spool,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let Some(spool) = &mut *spool else { return };
        let may_mark = now >= self.marked_at + MARK_EVERY;
        if settle(spool, &mut self.taken, records, may_mark) {
            self.marked_at = now;
        }
    }
}

/// Applies the session's progress to a spool; returns whether the spool's file was written. A
/// failed write is repeated the next time.
fn settle(spool: &mut Spool, taken: &mut u64, records: &RecordsView, may_mark: bool) -> bool {
    // The monitor knows more of the stream than this spool: new records are numbered after those.
    if let Some(ahead) = records.next.checked_sub(*taken).filter(|ahead| *ahead > 0) {
        let end = spool.next().saturating_add(ahead);
        if spool.renumber(end).is_err() {
            return false;
        }
        *taken = records.next;
    }
    spool.handle_done(records.done);
    may_mark && spool.mark().is_ok()
}

impl<R> Drop for Records<R> {
    fn drop(&mut self) {
        self.reader.shared.lock().is_source_over = true;
        self.reader.shared.changed.notify_all();
        // The reader may wait for its stream forever: the spool is taken away from it.
        let Some(spool) = &self.reader.spool else { return };
        let spool = spool.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(mut spool), Some(records)) = (spool, &self.seen) {
            settle(&mut spool, &mut self.taken, records, true);
        }
    }
}

impl<R: Read + Send + 'static> Sampler for Records<R> {
    fn start(&mut self, clock: Clock, waker: Arc<Waker>) -> io::Result<()> {
        let Some(stream) = self.stream.take() else { return Ok(()) };
        let (reader, framing, max_read) = (self.reader.clone(), self.framing, self.max_read);
        reader.replay(&Anchor::of_now(clock));
        // This fails only if the source has ended.
        let _ = waker.wake();
        // The thread ends with the stream, or with the process.
        super::spawn(move || {
            let _ = reader.run(BufReader::new(stream), (framing, max_read), clock, &waker);
        })
    }

    fn take(&mut self, now: Time, _need: Need, into: &mut Vec<u8>) -> Take {
        let mut queue = self.reader.shared.lock();
        match queue.items.pop_front() {
            Some(Item::Record { generated_at, bytes }) => {
                queue.queued -= RecordChunk::cost_of_record(bytes.len());
                queue.in_session += RecordChunk::cost_of_record(bytes.len());
                self.taken += RecordChunk::count(bytes.len());
                into.extend_from_slice(&bytes);
                Take::Record { generated_at }
            }
            Some(Item::TooLong { count, given }) => {
                let why = RecordError::TooLong { given, max: self.reader.max_record };
                Take::Refused { why, count }
            }
            None => match (queue.trouble.take(), &queue.ended) {
                (Some(why), _) => Take::RetryAt(now + RETRY, why),
                (_, Some(Ok(()))) => Take::End,
                (_, Some(Err(why))) => Take::Failed(why.clone()),
                // The session itself repeats records.
                (_, None) => Take::NotYet,
            },
        }
    }

    fn on_records(&mut self, now: Time, records: &RecordsView) {
        self.reader.shared.lock().in_session = records.bytes;
        self.reader.shared.changed.notify_all();
        self.seen = Some(*records);
        self.follow(now, records);
    }

    fn queued(&self) -> usize {
        let queue = self.reader.shared.lock();
        queue.items.iter().filter(|item| matches!(item, Item::Record { .. })).count()
    }

    fn invalid_stamps(&self) -> Option<u64> {
        self.reader.stamps.invalid()
    }

    fn take_stamp_errors(&mut self) -> Vec<StampError> {
        self.reader.stamps.take_news()
    }
}

impl Reader {
    /// Reads the stream to its end.
    fn run(
        &self,
        mut stream: impl BufRead,
        (framing, max_read): (Framing, usize),
        clock: Clock,
        waker: &Waker,
    ) -> Result<(), Over> {
        let wake = || waker.wake().map_err(|_| Over);
        while self.shared.lock().ended.is_none() {
            match framing.read(&mut stream, max_read) {
                Ok(Some(mut record)) => {
                    let read_at = Anchor::of_now(clock);
                    let unix = self.stamps.take_off(read_at.wall(), &mut record);
                    if record.len() > self.max_record {
                        self.leave_out(record.len());
                    } else {
                        self.wait_for_room(record.len())?;
                        while !self.write(unix, &record)? {
                            wake()?;
                            self.rest();
                        }
                        self.put(read_at.time_of(unix), record);
                    }
                }
                Ok(None) => self.end(Ok(())),
                Err(error) => self.end(Err(format!("cannot read the next record: {error}"))),
            }
            wake()?;
        }
        Ok(())
    }

    /// Puts the records that the previous process left: all of them before the session opens,
    /// because the monitor may report then that the application has received them.
    fn replay(&self, anchor: &Anchor) {
        while let Ok(Some(record)) = self.next_pending() {
            let at = match stamp::is_age_known(record.generated_at, anchor.wall()) {
                true => anchor.time_of(record.generated_at),
                // An age at which no reader takes it for a new record.
                false => anchor.time_of(anchor.wall()) - stamp::MAX_AGE,
            };
            self.put(at, record.bytes);
        }
    }

    /// The next record that the previous process left.
    fn next_pending(&self) -> Result<Option<SpooledRecord>, Over> {
        let Some(spool) = &self.spool else { return Ok(None) };
        let mut spool = spool.lock().unwrap_or_else(PoisonError::into_inner);
        match spool.as_mut().ok_or(Over)?.next_pending() {
            Ok(record) => Ok(record),
            Err(error) => {
                self.end(Err(format!("cannot read the spool: {error}")));
                Ok(None)
            }
        }
    }

    /// Waits until the buffer has room for a record of this length.
    fn wait_for_room(&self, len: usize) -> Result<(), Over> {
        let queue = self.shared.lock();
        let is_full = |queue: &mut Queue| !queue.is_source_over && !self.has_room(queue, len);
        let queue = self.shared.changed.wait_while(queue, is_full);
        let queue = queue.unwrap_or_else(PoisonError::into_inner);
        if queue.is_source_over { Err(Over) } else { Ok(()) }
    }

    fn has_room(&self, queue: &Queue, len: usize) -> bool {
        queue.queued + queue.in_session + RecordChunk::cost_of_record(len) <= self.max_bytes
    }

    /// Writes a record to the spool, if there is one; returns whether that succeeded. A failure is
    /// reported.
    fn write(&self, unix: Duration, record: &[u8]) -> Result<bool, Over> {
        let Some(spool) = &self.spool else { return Ok(true) };
        let mut spool = spool.lock().unwrap_or_else(PoisonError::into_inner);
        let written = spool.as_mut().ok_or(Over)?.push(unix, record);
        if let Err(error) = &written {
            self.shared.lock().trouble = Some(format!("cannot write to the spool: {error}"));
        }
        Ok(written.is_ok())
    }

    /// Pauses before another attempt to write, or until the source ends.
    fn rest(&self) {
        let is_on = |queue: &mut Queue| !queue.is_source_over;
        let queue = self.shared.lock();
        drop(self.shared.changed.wait_timeout_while(queue, RETRY.into(), is_on));
    }

    /// Makes a record available to the source.
    fn put(&self, generated_at: Time, bytes: Vec<u8>) {
        let mut queue = self.shared.lock();
        queue.queued += RecordChunk::cost_of_record(bytes.len());
        queue.items.push_back(Item::Record { generated_at, bytes });
    }

    fn leave_out(&self, given: usize) {
        let mut queue = self.shared.lock();
        match queue.items.back_mut() {
            Some(Item::TooLong { count, given: last }) => (*count, *last) = (*count + 1, given),
            _ => queue.items.push_back(Item::TooLong { count: 1, given }),
        }
    }

    fn end(&self, how: Result<(), String>) {
        self.shared.lock().ended = Some(how);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use freshline_core::session::TopicKind;
    use mio::{Events, Poll, Token};

    use super::*;
    use crate::source::spool::SpoolDir;

    /// The sampler's next result, with the bytes of a record.
    fn next(poll: &mut Poll, records: &mut impl Sampler) -> (Take, Vec<u8>) {
        loop {
            let mut record = Vec::new();
            match records.take(Time::ZERO, Need::Newer, &mut record) {
                Take::NotYet => poll.poll(&mut Events::with_capacity(1), None).unwrap(),
                taken => return (taken, record),
            }
        }
    }

    #[test]
    fn a_record_from_before_the_wall_clock_went_back_does_not_count_as_new() {
        let dir = tempfile::tempdir().unwrap();
        let wall = Duration::from_secs(1_700_000_000);
        let mut spool = SpoolDir::open(dir.path()).unwrap().topic("log").unwrap();
        let ahead = [0, 50, 101, 86_400_000].map(Duration::from_millis);
        ahead.iter().for_each(|ahead| _ = spool.push(wall + *ahead, b"record").unwrap());
        drop(spool);
        let spool = SpoolDir::open(dir.path()).unwrap().topic("log").unwrap();
        let now = Time::ZERO + Span::from_secs(365 * 86_400);
        let (mut records, _) = Records::by_hand(1 << 20, Some(spool), Anchor::at(now, wall));
        let ages = std::iter::from_fn(|| match records.take(now, Need::Newer, &mut Vec::new()) {
            Take::Record { generated_at } => Some(now.since(generated_at)),
            _ => None,
        });
        // A clock adjustment of some ms does not make a record an old one.
        let unknown = stamp::MAX_AGE;
        assert_eq!(ages.collect::<Vec<_>>(), [Span::ZERO, Span::ZERO, unknown, unknown]);
    }

    #[test]
    fn a_stream_is_read_while_there_is_room_and_left_alone_when_the_source_ends() {
        let dir = tempfile::tempdir().unwrap();
        let spool = SpoolDir::open(dir.path()).unwrap().topic("log").unwrap();
        let TopicKind::Every { stream, first, .. } = spool.kind(1_024) else { panic!() };
        let (read, mut write) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut records = Records::new(read, Framing::Lines, 4_096, 1_024).with_spool(spool);
        let mut poll = Poll::new().unwrap();
        let waker = Arc::new(Waker::of_poll(poll.registry(), Token(0)).unwrap());
        records.start(Clock::new(), waker).unwrap();
        // Each costs 500 bytes, so there is room for two.
        let lines = [[b'a'; 436], [b'b'; 436], [b'c'; 436]];
        for line in &lines {
            write.write_all(&[&line[..], b"\n"].concat()).unwrap();
        }
        write.write_all(&[&[b'x'; 2_000][..], b"\nlast\n"].concat()).unwrap();
        let view = |next, done| RecordsView {
            stream,
            next,
            done,
            bytes: (next - done) as usize * 500,
            max_bytes: 1_024,
            repeated: 0,
        };
        for (next_number, line) in (first + 1..).zip(&lines[..2]) {
            let (taken, record) = next(&mut poll, &mut records);
            assert!(matches!(taken, Take::Record { .. }), "{taken:?}");
            assert_eq!(record, line);
            records.on_records(Time::ZERO, &view(next_number, 0));
        }
        assert_eq!(records.take(Time::ZERO, Need::Newer, &mut Vec::new()), Take::NotYet);
        assert_eq!(records.queued(), 0, "the third has no room");
        records.on_records(Time::ZERO, &view(2, 1));
        assert_eq!(next(&mut poll, &mut records).1, lines[2]);
        records.on_records(Time::ZERO, &view(3, 2));
        let why = RecordError::TooLong { given: 2_000, max: 896 };
        assert_eq!(next(&mut poll, &mut records).0, Take::Refused { count: 1, why });
        assert_eq!(next(&mut poll, &mut records).1, b"last");

        // Its reader still waits for the stream.
        drop(records);
        let mut spool = SpoolDir::open(dir.path()).unwrap().topic("log").unwrap();
        let left = std::iter::from_fn(|| spool.next_pending().unwrap());
        let left: Vec<_> = left.map(|record| (record.number, record.bytes)).collect();
        assert_eq!(left, [(2, lines[2].to_vec()), (3, b"last".to_vec())]);
    }
}
