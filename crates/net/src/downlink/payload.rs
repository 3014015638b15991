//! The payloads of a packet server: a file, a live stream, or synthetic bytes.
//!
//! ```text
//!  Synthetic   always something
//!  File        each client from its beginning, once or again and again
//!  Live        each client what comes from when it joined; what gets too old is dropped
//! ```
//!
//! The server never blocks here: a stream is read by its own thread, which holds a bounded amount
//! of data.

use std::collections::VecDeque;
use std::fs::File as OsFile;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freshline_core::session::downlink::ClientKey;
use freshline_core::unit::{Span, Time};

use crate::clock::Clock;
use crate::waker::Waker;

/// The result of asking for a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Take {
    /// The payload of the next packet has been written.
    Packet,
    /// No payload at the moment; the server is woken when there is one.
    NotYet,
    /// No payloads any more.
    End,
    /// The payload is permanently unavailable, for this reason.
    Failed(String),
}

/// Payloads for many clients.
pub trait Payloads: Send {
    /// The server starts; payloads have at most `longest` bytes. `waker` wakes it.
    fn start(&mut self, _clock: Clock, _waker: Arc<Waker>, _longest: usize) {}

    /// A client has joined.
    fn joined(&mut self, _client: ClientKey) {}

    /// Writes the next payload of `client`, at most `longest` bytes, to `out`, which is empty.
    fn take(&mut self, now: Time, client: ClientKey, longest: usize, out: &mut Vec<u8>) -> Take;

    /// Whether payloads have arrived since the last call, so that the waiting clients must be
    /// checked again.
    fn has_news(&mut self) -> bool {
        false
    }

    /// The number of payloads that `client` did not get because they had become too old.
    fn dropped(&self, _client: ClientKey) -> u64 {
        0
    }
}

/// One value per client.
#[derive(Debug, Default)]
struct ByClient<T>(Vec<T>);

impl<T: Default> ByClient<T> {
    fn of(&mut self, client: ClientKey) -> &mut T {
        let index = client.index();
        if self.0.len() <= index {
            self.0.resize_with(index + 1, T::default);
        }
        &mut self.0[index]
    }
}

/// Zeros, for measurements.
#[derive(Debug, Clone, Copy)]
pub struct Synthetic {
    size: usize,
}

impl Synthetic {
    /// Payloads of `size` bytes; shorter if packets take less.
    pub fn new(size: usize) -> Self {
        Self { size }
    }
}

impl Payloads for Synthetic {
    fn take(&mut self, _now: Time, _client: ClientKey, longest: usize, out: &mut Vec<u8>) -> Take {
        out.resize(self.size.min(longest), 0);
        Take::Packet
    }
}

/// A file, sent to each client from its beginning.
#[derive(Debug)]
pub struct File {
    file: OsFile,
    repeat: bool,
    read: ByClient<u64>,
}

impl File {
    /// Opens the file; with `repeat` it restarts after its end.
    ///
    /// # Errors
    /// The system's errors.
    pub fn open(path: &Path, repeat: bool) -> io::Result<Self> {
        let file = OsFile::open(path)?;
        // A directory can be opened, and fails only when it is read.
        file.read_at(&mut [0], 0)?;
        Ok(Self { file, repeat, read: ByClient::default() })
    }
}

impl Payloads for File {
    fn joined(&mut self, client: ClientKey) {
        *self.read.of(client) = 0;
    }

    fn take(&mut self, _now: Time, client: ClientKey, longest: usize, out: &mut Vec<u8>) -> Take {
        let read = self.read.of(client);
        out.resize(longest, 0);
        loop {
            match self.file.read_at(out, *read) {
                // An empty file must not repeat forever.
                Ok(0) if self.repeat && *read > 0 => *read = 0,
                Ok(0) => return Take::End,
                Ok(len) => {
                    *read += len as u64;
                    out.truncate(len);
                    return Take::Packet;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Take::Failed(format!("cannot read on in the file: {error}")),
            }
        }
    }
}

/// The maximum number of buffered bytes of a stream.
const HELD: usize = 4 << 20;

/// A stream that continues whether it is sent or not.
pub struct Live {
    stream: Option<Box<dyn Read + Send>>,
    /// How long a piece is worth sending.
    fresh: Span,
    held: Arc<Mutex<Held>>,
    /// The piece number that the last `has_news` reported.
    seen: u64,
    cursors: ByClient<Cursor>,
}

/// A client's position.
#[derive(Debug, Default)]
struct Cursor {
    next: u64,
    dropped: u64,
}

/// The newest pieces of the stream.
#[derive(Debug, Default)]
struct Held {
    pieces: VecDeque<Piece>,
    /// The total bytes of the pieces.
    bytes: usize,
    /// The number of the next piece.
    next: u64,
    is_over: bool,
}

#[derive(Debug)]
struct Piece {
    read_at: Time,
    bytes: Vec<u8>,
}

impl Held {
    fn push(&mut self, read_at: Time, bytes: &[u8], fresh: Span) {
        self.pieces.push_back(Piece { read_at, bytes: bytes.to_vec() });
        self.bytes += bytes.len();
        self.next += 1;
        self.forget(read_at, fresh);
    }

    fn forget(&mut self, now: Time, fresh: Span) {
        let too_old = |piece: &&Piece| now.since(piece.read_at) > fresh;
        while self.bytes > HELD || self.pieces.front().filter(too_old).is_some() {
            let Some(piece) = self.pieces.pop_front() else { return };
            self.bytes -= piece.bytes.len();
        }
    }

    /// The number of the oldest piece.
    fn oldest(&self) -> u64 {
        self.next - self.pieces.len() as u64
    }
}

impl Live {
    /// Sends the pieces of `stream`, each for as long as it is `fresh`.
    pub fn new(stream: impl Read + Send + 'static, fresh: Span) -> Self {
        Self {
            stream: Some(Box::new(stream)),
            fresh,
            held: Arc::default(),
            seen: 0,
            cursors: ByClient::default(),
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Payloads for Live {
    fn start(&mut self, clock: Clock, waker: Arc<Waker>, longest: usize) {
        let Some(mut stream) = self.stream.take() else { return };
        let (held, fresh) = (Arc::clone(&self.held), self.fresh);
        std::thread::spawn(move || {
            let mut piece = vec![0; longest.max(1)];
            loop {
                let read = match stream.read(&mut piece) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    // A read error ends the stream.
                    read => read.unwrap_or(0),
                };
                let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
                match read {
                    0 => held.is_over = true,
                    len => held.push(clock.now(), &piece[..len], fresh),
                }
                drop(held);
                // A waker fails only when its poll is gone, and then no thread waits.
                if waker.wake().is_err() || read == 0 {
                    return;
                }
            }
        });
    }

    fn joined(&mut self, client: ClientKey) {
        let next = self.held().next;
        *self.cursors.of(client) = Cursor { next, dropped: 0 };
    }

    fn take(&mut self, now: Time, client: ClientKey, longest: usize, out: &mut Vec<u8>) -> Take {
        let Self { held, cursors, fresh, .. } = self;
        let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
        let cursor = cursors.of(client);
        held.forget(now, *fresh);
        let oldest = held.oldest();
        cursor.dropped += oldest.saturating_sub(cursor.next);
        cursor.next = cursor.next.max(oldest);
        let Some(piece) = held.pieces.get((cursor.next - oldest) as usize) else {
            return if held.is_over { Take::End } else { Take::NotYet };
        };
        out.extend_from_slice(&piece.bytes[..piece.bytes.len().min(longest)]);
        cursor.next += 1;
        Take::Packet
    }

    fn has_news(&mut self) -> bool {
        let (next, is_over) = {
            let held = self.held();
            (held.next, held.is_over)
        };
        let now = next + u64::from(is_over);
        let has_news = now != self.seen;
        self.seen = now;
        has_news
    }

    fn dropped(&self, client: ClientKey) -> u64 {
        self.cursors.0.get(client.index()).map_or(0, |cursor| cursor.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    use freshline_core::session::Admission;
    use freshline_core::session::downlink::{Server, ServerEvent, ServerParams};
    use freshline_core::unit::BitRate;
    use freshline_core::wire::{Join, Opening, SessionId};
    use freshline_core::wlan::Fixed;

    /// Only a server can create keys.
    fn clients(count: u64) -> Vec<ClientKey> {
        let law = Box::new(Fixed::new(BitRate::from_mbps(1)));
        let params = ServerParams { admission: Admission::Proven, ..ServerParams::default() };
        let secret = freshline_core::session::Secret::new([0; 16]);
        let mut server = Server::new(params, law, secret);
        let join = |number| {
            let (session, mut bytes) = (SessionId(number), [0; 400]);
            let opening = Opening { cookie: Default::default(), name: "", token: b"" };
            let len = Join { session, opening }.write(&mut bytes).unwrap();
            server.handle_datagram(Time::ZERO, number, &bytes[..len]).unwrap();
            match server.poll_event() {
                Some(ServerEvent::Joined { client, .. }) => client,
                other => panic!("{other:?}"),
            }
        };
        (0..count).map(join).collect()
    }

    fn taken(payloads: &mut dyn Payloads, now: Time, client: ClientKey) -> Result<Vec<u8>, Take> {
        let mut out = Vec::new();
        match payloads.take(now, client, 4, &mut out) {
            Take::Packet => Ok(out),
            other => Err(other),
        }
    }

    #[test]
    fn each_client_gets_a_file_from_its_beginning() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"abcdef").unwrap();
        let [one, other] = clients(2)[..] else { unreachable!() };
        let mut once = File::open(file.path(), false).unwrap();
        once.joined(one);
        assert_eq!(taken(&mut once, Time::ZERO, one).unwrap(), b"abcd");
        once.joined(other);
        assert_eq!(taken(&mut once, Time::ZERO, other).unwrap(), b"abcd");
        assert_eq!(taken(&mut once, Time::ZERO, one).unwrap(), b"ef");
        assert_eq!(taken(&mut once, Time::ZERO, one), Err(Take::End));
        once.joined(one);
        assert_eq!(taken(&mut once, Time::ZERO, one).unwrap(), b"abcd", "a new client");
        let mut again = File::open(file.path(), true).unwrap();
        let pieces = [b"abcd".as_slice(), b"ef", b"abcd"];
        for piece in pieces {
            assert_eq!(taken(&mut again, Time::ZERO, one).unwrap(), piece);
        }
        let empty = tempfile::NamedTempFile::new().unwrap();
        let mut empty = File::open(empty.path(), true).unwrap();
        assert_eq!(taken(&mut empty, Time::ZERO, one), Err(Take::End));
        assert!(File::open(Path::new("/"), false).is_err());
    }

    #[test]
    fn of_a_stream_clients_get_what_is_fresh_and_came_after_them() {
        let [one, other] = clients(2)[..] else { unreachable!() };
        let fresh = Span::from_millis(100);
        let mut live = Live::new(io::empty(), fresh);
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        live.joined(one);
        assert_eq!(taken(&mut live, at(0), one), Err(Take::NotYet));
        assert!(!live.has_news());
        live.held().push(at(1), b"a", fresh);
        assert!(live.has_news() && !live.has_news());
        live.joined(other);
        for (ms, piece) in [(50, b"b"), (80, b"c")] {
            live.held().push(at(ms), piece, fresh);
        }
        assert_eq!(taken(&mut live, at(80), one).unwrap(), b"a");
        assert_eq!(taken(&mut live, at(80), other).unwrap(), b"b");
        // The next piece of client `one` is `b`, which is too old by then.
        assert_eq!(taken(&mut live, at(160), one).unwrap(), b"c");
        assert_eq!(taken(&mut live, at(160), other).unwrap(), b"c");
        assert_eq!((live.dropped(one), live.dropped(other)), (1, 0));
        live.held().is_over = true;
        assert!(live.has_news());
        assert_eq!(taken(&mut live, at(160), one), Err(Take::End));
    }

    #[test]
    fn what_is_held_of_a_stream_is_bounded() {
        let [one] = clients(1)[..] else { unreachable!() };
        let mut live = Live::new(io::empty(), Span::MAX);
        live.joined(one);
        for _ in 0..5 {
            live.held().push(Time::ZERO, &vec![0; HELD / 4], Span::MAX);
        }
        assert_eq!(live.held().bytes, HELD);
        taken(&mut live, Time::ZERO, one).unwrap();
        assert_eq!(live.dropped(one), 1);
    }
}
