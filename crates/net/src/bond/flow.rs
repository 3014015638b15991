//! Carries one TCP connection on one QUIC stream: bytes in both directions, half-closes and resets.
//!
//! ```text
//!   TCP ─► up   (read, not yet accepted by the stream) ─► stream
//!   TCP ◄─ down (read, not yet accepted by the socket) ◄─ stream
//! ```
//!
//! Each side is read only while the other side accepts its bytes. So a slow reader fills only the
//! window of its own stream, which [credit](super::credit) keeps small. If too many connections do
//! not read at all, the ones stuck for the longest time are reset.

use std::cmp::Reverse;
use std::io::{self, Read};
use std::net::Shutdown;
use std::time::Duration;

use bytes::Bytes;
use freshline_core::unit::{Span, Time};
use mio::net::TcpStream;
use noq_proto::{Connection, StreamId, VarInt, WriteError};
use socket2::{SockRef, TcpKeepalive};

use super::credit::Window;
use super::incoming::{Incoming, Pieces};
use super::link::Link;

/// Maximum bytes per read, in either direction; also the maximum of TCP's bytes queued for a
/// stream.
pub(super) const PIECE: usize = 32 * 1024;

/// Maximum bytes that one flow moves in one direction per turn.
const SHARE: usize = 256 * 1024;

/// A TCP connection that accepts nothing for this long is stuck. The poll does not report every
/// chance to write: see [`Pipe::try_again`].
const STUCK: Span = Span::from_secs(5);

/// A half-closed connection ends after this long without data in the open direction: at
/// least 4 minutes (RFC 5382, REQ-5).
const HALF_CLOSED: Span = Span::from_secs(5 * 60);

/// TCP keep-alive: the silence before the first probe, the interval of probes, and the number of
/// unanswered probes after which the peer is given up.
const ALIVE: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(15), 4);

/// Maximum unsent bytes of a TCP connection: the kernel would accept several MB for a slow reader,
/// which looks fast until then.
const UNSENT: u32 = 256 * 1024;

/// The error code of streams whose TCP connection was reset.
const RESET: u32 = 1;

/// The state of a flow after [`Pipe::pump`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pumped {
    /// Blocked by one of its ends.
    Blocked,
    /// It can go on at once, after other flows.
    Again,
    /// It has ended, and so has the stream.
    Over,
}

/// Bytes moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Moved {
    /// From TCP to the stream.
    pub(super) up: u64,
    /// From the stream to TCP.
    pub(super) down: u64,
}

/// An open connection on an open stream.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) tcp: TcpStream,
    pub(super) stream: StreamId,
    /// Readiness as reported by the poll, until a call would block.
    pub(super) is_readable: bool,
    pub(super) is_writable: bool,
    up: Bytes,
    /// Bytes of TCP left for the stream; bytes beyond them are read and dropped.
    up_left: Option<u64>,
    is_tcp_over: bool,
    is_finished: bool,
    down: Pieces,
    is_stream_over: bool,
    is_shut: bool,
    moved_at: Time,
    /// Since when TCP has accepted none of the queued bytes.
    stuck_since: Option<Time>,
    /// The bytes accepted by the stream, and the bytes permitted by its receiver.
    sent: u64,
    limit: Option<u64>,
    /// The window granted to the peer.
    window: Option<Window>,
}

impl Pipe {
    /// Starts with bytes that were read already: from TCP, and from the stream.
    pub(super) fn new(tcp: TcpStream, stream: StreamId, [up, down]: [Bytes; 2], now: Time) -> Self {
        let _ = tcp.set_nodelay(true);
        let _ = SockRef::from(&tcp).set_tcp_notsent_lowat(UNSENT);
        keep_alive(&tcp);
        Self {
            tcp,
            stream,
            is_readable: true,
            is_writable: true,
            up,
            up_left: None,
            is_tcp_over: false,
            is_finished: false,
            down: down.into(),
            is_stream_over: false,
            is_shut: false,
            moved_at: now,
            stuck_since: None,
            sent: 0,
            limit: None,
            window: None,
        }
    }

    /// Limits the bytes still to be read from TCP for the stream; bytes beyond them are dropped.
    pub(super) fn limit_up(&mut self, most: Option<u64>) {
        self.up_left = most;
    }

    /// How many of `len` bytes, just read from TCP, are for the stream.
    fn of_stream(&mut self, len: usize) -> usize {
        let Some(left) = &mut self.up_left else { return len };
        let taken = len.min(usize::try_from(*left).unwrap_or(usize::MAX));
        *left -= taken as u64;
        taken
    }

    /// Moves bytes in both directions as far as possible. `scratch` has [`PIECE`] bytes.
    pub(super) fn pump(
        &mut self,
        link: &mut Link,
        scratch: &mut [u8],
        moved: &mut Moved,
        now: Time,
    ) -> Pumped {
        self.limit.get_or_insert(link.credits.first_limit());
        let connection = &mut link.connection;
        let mut again = false;
        let before = *moved;
        let ended = (self.is_finished, self.is_shut);
        let results = [self.pump_up(connection, scratch, moved), self.pump_down(connection, moved)];
        if *moved != before || (self.is_finished, self.is_shut) != ended {
            self.moved_at = now;
        }
        if self.down.is_empty() {
            self.stuck_since = None;
        } else if moved.down > before.down || self.stuck_since.is_none() {
            self.stuck_since = Some(now);
        }
        let rtt = link.rtt();
        let window = self.window.get_or_insert_with(|| Window::new(link.credits.pool.clone(), now));
        if let Some(limit) = window.on_consumed(moved.down - before.down, rtt, now)
            && !self.is_stream_over
        {
            link.credits.grant(self.stream, limit);
        }
        for result in results {
            match result {
                Ok(more) => again |= more,
                Err(error) => {
                    tracing::debug!("a connection broke: {error}");
                    self.give_up(&mut link.connection);
                    return Pumped::Over;
                }
            }
        }
        match (self.is_finished && self.is_shut, again) {
            (true, _) => Pumped::Over,
            (false, true) => Pumped::Again,
            (false, false) => Pumped::Blocked,
        }
    }

    /// Sets the total of bytes that the receiver permits; it never decreases.
    pub(super) fn on_limit(&mut self, limit: u64) {
        self.limit = Some(self.limit.map_or(limit, |before| before.max(limit)));
    }

    /// Writes to the stream as much as its receiver permits.
    fn write(&mut self, connection: &mut Connection, bytes: &[u8]) -> Result<usize, WriteError> {
        let room = self.limit.unwrap_or(u64::MAX).saturating_sub(self.sent);
        let mut stream = connection.send_stream(self.stream);
        if room == 0 {
            return Err(match stream.stopped() {
                Ok(Some(code)) => WriteError::Stopped(code),
                Ok(None) => WriteError::Blocked,
                Err(_) => WriteError::ClosedStream,
            });
        }
        let len = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        let taken = stream.write(&bytes[..len])?;
        self.sent += taken as u64;
        Ok(taken)
    }

    /// Ends both sides by a reset.
    pub(super) fn give_up(&self, connection: &mut Connection) {
        reset(connection, self.stream);
        abort(&self.tcp);
    }

    /// Whether the only open direction has been silent for too long.
    fn is_forsaken(&self, now: Time) -> bool {
        self.is_finished != self.is_shut && now.since(self.moved_at) > HALF_CLOSED
    }

    /// Whether bytes are queued for TCP, which may accept them now: Linux reports a socket as
    /// writable only when a third of its buffer is free, which takes long with a program that reads
    /// slowly.
    fn try_again(&mut self) -> bool {
        let delays = !self.down.is_empty() && !self.is_writable;
        self.is_writable |= delays;
        delays
    }

    /// Reduces the stream's window if TCP accepts less; returns whether its limit must be repeated.
    fn trim(&mut self, now: Time) -> bool {
        let is_blocked = !self.down.is_empty() && !self.is_writable;
        self.window.as_mut().is_some_and(|window| window.trim(is_blocked, now))
    }

    /// How long TCP has accepted nothing, if that is at least [`STUCK`].
    fn is_stuck_for(&self, now: Time) -> Option<Span> {
        self.stuck_since.map(|since| now.since(since)).filter(|span| *span >= STUCK)
    }

    /// Whether there is more to do.
    fn pump_up(
        &mut self,
        connection: &mut Connection,
        scratch: &mut [u8],
        moved: &mut Moved,
    ) -> io::Result<bool> {
        let (before, mut dropped) = (moved.up, 0);
        while !self.is_finished {
            if moved.up - before + dropped >= SHARE as u64 {
                return Ok(true);
            }
            if !self.up.is_empty() {
                let up = self.up.clone();
                match self.write(connection, &up) {
                    Ok(taken) => {
                        moved.up += taken as u64;
                        drop(self.up.split_to(taken));
                    }
                    Err(WriteError::Blocked) => {
                        // TCP is not read now, so a reset would go unnoticed.
                        return self.tcp.take_error()?.map_or(Ok(false), Err);
                    }
                    // The far end's reader is gone, so the bytes are dropped.
                    Err(WriteError::Stopped(_) | WriteError::ClosedStream) => {
                        let _ = connection.send_stream(self.stream).reset(VarInt::from_u32(RESET));
                        let _ = self.tcp.shutdown(Shutdown::Read);
                        (self.up, self.is_finished) = (Bytes::new(), true);
                    }
                }
            } else if self.is_tcp_over {
                // It fails only if the far end has stopped the stream, which ends it as well.
                let _ = connection.send_stream(self.stream).finish();
                self.is_finished = true;
            } else if !self.is_readable {
                return Ok(false);
            } else {
                match self.tcp.read(scratch) {
                    Ok(0) => self.is_tcp_over = true,
                    Ok(read) => {
                        let len = self.of_stream(read);
                        dropped += (read - len) as u64;
                        if len == 0 {
                            continue;
                        }
                        // Usually the stream accepts all bytes at once, and none need be kept.
                        let taken = self.write(connection, &scratch[..len]).unwrap_or(0);
                        moved.up += taken as u64;
                        self.up = Bytes::copy_from_slice(&scratch[taken..len]);
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.is_readable = false;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(false)
    }

    fn pump_down(&mut self, connection: &mut Connection, moved: &mut Moved) -> io::Result<bool> {
        let before = moved.down;
        while !self.is_shut {
            if moved.down - before >= SHARE as u64 {
                return Ok(true);
            }
            if !self.down.is_empty() {
                if !self.is_writable {
                    // After a reset the queued bytes are useless, and the program may never read
                    // them.
                    let reset = connection.recv_stream(self.stream).received_reset();
                    return match reset {
                        Ok(Some(_)) => Err(io::ErrorKind::ConnectionReset.into()),
                        _ => Ok(false),
                    };
                }
                match self.down.write_to(&mut self.tcp) {
                    Ok(taken) => moved.down += taken as u64,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.is_writable = false;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            } else if self.is_stream_over {
                // It fails only if the program is gone already.
                let _ = self.tcp.shutdown(Shutdown::Write);
                self.is_shut = true;
            } else {
                match self.down.read(connection, self.stream, PIECE) {
                    None | Some(Incoming::Bytes(_)) => {}
                    Some(Incoming::Nothing) => return Ok(false),
                    Some(Incoming::End) => self.is_stream_over = true,
                    Some(Incoming::Reset) => return Err(io::ErrorKind::ConnectionReset.into()),
                }
            }
        }
        Ok(false)
    }
}

/// The result of [`sweep`]: flows, by their keys.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Swept {
    /// Flows that must end.
    pub(super) over: Vec<usize>,
    /// Flows that may be able to make progress.
    pub(super) again: Vec<usize>,
}

/// Checks each open flow once; each comes with the number of its connection and a key. A flow must
/// end if it is half-closed and has been silent for too long. If more than `most` flows of one
/// connection are stuck, the surplus must end, too: the ones that have been stuck for the longest
/// time.
pub(super) fn sweep<'a>(
    flows: impl Iterator<Item = (usize, usize, &'a mut Pipe)>,
    most: usize,
    now: Time,
) -> Swept {
    let (mut swept, mut stuck) = (Swept::default(), Vec::new());
    for (connection, key, pipe) in flows {
        if pipe.is_forsaken(now) {
            swept.over.push(key);
            continue;
        }
        stuck.extend(pipe.is_stuck_for(now).map(|span| (connection, Reverse(span), key)));
        if pipe.trim(now) | pipe.try_again() {
            swept.again.push(key);
        }
    }
    stuck.sort_unstable();
    for of_one in stuck.chunk_by(|one, other| one.0 == other.0) {
        let too_many = of_one.len().saturating_sub(most);
        if too_many > 0 {
            let all = of_one.len();
            tracing::warn!("resetting {too_many} of {all} connections that accept no data");
        }
        swept.over.extend(of_one[..too_many].iter().map(|(.., key)| key));
    }
    swept
}

/// Ends both directions of a stream at once, by a reset.
pub(super) fn reset(connection: &mut Connection, stream: StreamId) {
    // It fails only for a direction that has ended already.
    let _ = connection.send_stream(stream).reset(VarInt::from_u32(RESET));
    let _ = connection.recv_stream(stream).stop(VarInt::from_u32(RESET));
}

/// Enables TCP keep-alive, which finds out whether a silent peer is still there.
pub(super) fn keep_alive(tcp: &TcpStream) {
    let (silence, interval, retries) = ALIVE;
    let alive = TcpKeepalive::new().with_time(silence);
    let alive = alive.with_interval(interval).with_retries(retries);
    let _ = SockRef::from(tcp).set_tcp_keepalive(&alive);
}

/// Makes the TCP connection end with a reset.
pub(super) fn abort(tcp: &TcpStream) {
    let _ = SockRef::from(tcp).set_linger(Some(Duration::ZERO));
}

#[cfg(test)]
mod tests {
    use noq_proto::{Dir, Side};

    use super::*;

    fn pipe(number: u64) -> Pipe {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = StreamId::new(Side::Client, Dir::Bi, number);
        Pipe::new(tcp, stream, [Bytes::new(), Bytes::new()], Time::ZERO)
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    /// The flows of one connection that must end.
    fn over(pipes: &mut [Pipe], most: usize, now: u64) -> Vec<usize> {
        let flows = pipes.iter_mut().enumerate().map(|(key, pipe)| (0, key, pipe));
        sweep(flows, most, at(now)).over
    }

    #[test]
    fn of_too_many_that_are_stuck_the_longest_so_are_given_up() {
        let mut pipes: Vec<_> = (0..4).map(pipe).collect();
        for (pipe, since) in pipes.iter_mut().zip([3, 1, 2]) {
            pipe.stuck_since = Some(at(since));
        }
        let mut over = |most, now| over(&mut pipes, most, now);
        assert!(over(3, 10).is_empty());
        assert_eq!(over(2, 10), [1]);
        assert_eq!(over(1, 10), [1, 2]);
        // Not stuck for long enough yet.
        assert_eq!(over(0, 7), [1, 2]);
        assert!(over(0, 5).is_empty());
    }

    #[test]
    fn each_connection_has_its_own_that_are_stuck_and_one_look_at_each_flow_is_enough() {
        let mut pipes: Vec<_> = (0..6).map(pipe).collect();
        for (pipe, since) in pipes.iter_mut().zip([3, 1, 2, 5, 4]) {
            pipe.stuck_since = Some(at(since));
        }
        let mut looks = 0;
        // Two connections with two and three stuck flows, and one with none.
        let connections = [7, 7, 4, 4, 4, 9].into_iter();
        let flows = connections.zip(pipes.iter_mut().enumerate());
        let flows = flows.map(|(connection, (key, pipe))| (connection, key, pipe));
        let swept = sweep(flows.inspect(|_| looks += 1), 1, at(20));
        assert_eq!(swept.over, [2, 4, 1]);
        assert_eq!(looks, 6);
    }

    #[test]
    fn what_waits_for_a_slow_reader_is_offered_again_at_each_sweep() {
        let mut pipes: Vec<_> = (0..3).map(pipe).collect();
        for pipe in &mut pipes[1..] {
            pipe.is_writable = false;
        }
        // The others are blocked by their streams.
        pipes[1].down = Bytes::from_static(b"x").into();
        let flows = pipes.iter_mut().enumerate().map(|(key, pipe)| (0, key, pipe));
        assert_eq!(sweep(flows, 9, at(1)), Swept { over: Vec::new(), again: vec![1] });
        assert!(pipes[1].is_writable);
    }

    #[test]
    fn half_a_connection_ends_when_nothing_comes_by_the_other_half() {
        let mut pipes: Vec<_> = (0..3).map(pipe).collect();
        pipes[1].is_finished = true;
        pipes[2].is_shut = true;
        let mut over = |now| over(&mut pipes, 9, now);
        assert!(over(5 * 60).is_empty());
        assert_eq!(over(5 * 60 + 1), [1, 2]);
        // A connection that is open in both directions may be idle for ever.
        assert_eq!(over(1_000_000), [1, 2]);
    }
}
