//! Flow control per stream on top of QUIC's, so that slow readers do not exhaust a connection's
//! window.
//!
//! QUIC has one receive window per connection. In noq-proto, all streams have the same size of
//! receive window, which must be large for one fast transfer. If every slow reader may hold that
//! much, a few of them fill the connection's window and slow down all streams. So each receiver
//! grants each stream a window of its own:
//!
//! ```text
//!   base   = memory / 2 / streams
//!   limit  = consumed + window                    sent when it has grown by window / 8
//!   window = base, 2, 4 or 8 × base               at first, by the free memory
//!   window ← min(2 × window, base + consumed)     if 2 × rate × RTT > window at a grant,
//!                                                 by at most a quarter of the free memory
//!   window ← max(base, 4 × rate × (RTT + 50 ms))  while the TCP connection takes nothing
//! ```
//!
//! `consumed` counts the bytes that the TCP connection has taken, and `rate` is their rate. Windows
//! of `base` bytes for all streams take half of the memory, and larger windows together add at most
//! the other half: a sender that keeps to its limits does not fill the connection's window. The larger
//! windows follow the dynamic thresholds of Choudhury and Hahne (1998): a stream gets at most a share
//! of the free memory, so some remains for the next fast stream. A slow reader looks fast until
//! the buffers of its TCP connection are full; hence the bound by `consumed`. Idle streams do not
//! count: their readers have taken everything. If many of them become slow readers at once, QUIC's
//! window of the connection still bounds the memory.
//!
//! Each end opens one unidirectional stream for these messages: pairs of 64-bit numbers, a stream
//! and its limit. A pair with the stream number [`ALL`] sets the initial limit of later streams. A
//! peer that permits no unidirectional stream gets no limits; a peer that sends no messages sets
//! none.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use freshline_core::unit::{Span, Time};
use noq_proto::{Connection, Dir, StreamId, VarInt};

use super::Sending;
use super::incoming::{Incoming, read};

/// The number that means all streams opened later. No stream has it (RFC 9000, section 2.1).
const ALL: u64 = u64::MAX;

/// The length of a message in bytes.
const MESSAGE: usize = 16;

/// The smallest first window: that of TCP (RFC 6928), halved.
const MIN_BASE: u64 = 8 * 1024;

/// The largest first window: larger ones are granted to readers that have proved fast.
const MAX_BASE: u64 = 64 * 1024;

/// Added to the round-trip time when the window of a slow reader is reduced: scheduling, delayed
/// acks.
const MARGIN: Span = Span::from_millis(50);

/// The memory of one connection, shared by the windows of its streams.
#[derive(Debug)]
pub(super) struct Pool {
    /// The window with which each stream starts, in bytes.
    base: u64,
    /// The largest window of a stream, in bytes.
    max: u64,
    /// The maximum total by which windows may exceed `base`, in bytes.
    budget: u64,
    /// The current total by which they exceed it.
    extra: AtomicU64,
}

impl Pool {
    pub(super) fn new(sending: &Sending) -> Self {
        let half = u64::from(sending.memory / 2);
        let max = u64::from(sending.stream_window.min(Sending::WIDEST));
        let base = half / u64::from(sending.streams.max(1));
        let base = base.clamp(MIN_BASE, MAX_BASE).min(max);
        Self { base, max, budget: half, extra: AtomicU64::new(0) }
    }

    /// The initial window of a stream that opens now, in bytes. The sender may assume another one,
    /// as messages take time: a stream that falls idle gets its limit once more.
    fn first(&self) -> u64 {
        let share = (self.free() / 16).min(self.max);
        let sizes = [8, 4, 2].map(|factor| factor * self.base);
        sizes.into_iter().find(|size| *size <= share).unwrap_or(self.base)
    }

    fn free(&self) -> u64 {
        self.budget.saturating_sub(self.extra.load(Ordering::Relaxed))
    }
}

/// A stream's window at its receiver.
#[derive(Debug)]
pub(super) struct Window {
    pool: Arc<Pool>,
    size: u64,
    /// The bytes taken by TCP.
    consumed: u64,
    /// The limit that the sender has been granted.
    granted: u64,
    /// Bytes of the pool that it holds beyond the base.
    extra: u64,
    /// The last grant: its time, and the bytes consumed until then.
    grant: (Time, u64),
    /// The last [`Window::trim`], likewise.
    trim: (Time, u64),
    /// The bytes consumed when the limit was last repeated, and whether it must be repeated now.
    repeated_at: Option<u64>,
    must_repeat: bool,
    rtt: Span,
}

impl Window {
    pub(super) fn new(pool: Arc<Pool>, now: Time) -> Self {
        let first = pool.first();
        let mut window = Self {
            pool,
            size: first,
            consumed: 0,
            granted: first,
            extra: 0,
            grant: (now, 0),
            trim: (now, 0),
            repeated_at: None,
            must_repeat: false,
            rtt: Span::ZERO,
        };
        window.account();
        window
    }

    /// Counts bytes that TCP has accepted. Returns the new limit if the sender should get one.
    /// `rtt` is the round-trip time of the connection.
    pub(super) fn on_consumed(&mut self, bytes: u64, rtt: Span, now: Time) -> Option<u64> {
        self.consumed += bytes;
        self.rtt = rtt;
        if self.consumed + self.size < self.granted + self.size / 8 {
            self.account();
            return std::mem::take(&mut self.must_repeat).then_some(self.granted);
        }
        let (since, before) = std::mem::replace(&mut self.grant, (now, self.consumed));
        let needed = 2.0 * self.volume(before, now.since(since), rtt);
        if needed > self.size as f64 {
            self.grow();
        }
        self.granted = self.consumed + self.size;
        self.account();
        Some(self.granted)
    }

    /// Reduces the window of a slow reader, whose TCP connection accepts nothing now. Returns
    /// whether the stream has fallen idle: then [`Window::on_consumed`] repeats the limit, as the
    /// sender may have a lower one.
    pub(super) fn trim(&mut self, is_blocked: bool, now: Time) -> bool {
        let (since, before) = std::mem::replace(&mut self.trim, (now, self.consumed));
        if !is_blocked && self.consumed == before {
            // Idle: it holds nothing.
            self.hold(0);
            self.must_repeat = self.repeated_at.replace(self.consumed) != Some(self.consumed);
            return self.must_repeat;
        }
        if is_blocked {
            let needed = 4.0 * self.volume(before, now.since(since), self.rtt + MARGIN);
            self.size = self.size.min((needed as u64).max(self.pool.base));
        }
        self.account();
        false
    }

    /// The bytes consumed per round trip at the rate since `before`.
    fn volume(&self, before: u64, span: Span, rtt: Span) -> f64 {
        let span = span.as_secs_f64().max(1e-4);
        (self.consumed - before) as f64 / span * rtt.as_secs_f64().max(1e-4)
    }

    fn grow(&mut self) {
        let Pool { base, max, .. } = *self.pool;
        // A quarter of the free bytes, which include this stream's own; at least as many as it has.
        let share = base + self.extra.max((self.pool.free() + self.extra) / 4);
        let earned = base + self.consumed;
        let size = (2 * self.size).min(max).min(share).min(earned);
        self.size = self.size.max(size);
    }

    /// Reports to the pool how much this stream may hold.
    fn account(&mut self) {
        let held = self.size.max(self.granted.saturating_sub(self.consumed));
        self.hold(held.saturating_sub(self.pool.base));
    }

    fn hold(&mut self, extra: u64) {
        // Modulo 2^64: a sum of differences.
        self.pool.extra.fetch_add(extra.wrapping_sub(self.extra), Ordering::Relaxed);
        self.extra = extra;
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.pool.extra.fetch_sub(self.extra, Ordering::Relaxed);
    }
}

/// The messages of a connection, in both directions.
#[derive(Debug)]
pub(super) struct Credits {
    pub(super) pool: Arc<Pool>,
    outgoing: Option<StreamId>,
    /// Limits to send: the latest one per stream.
    limits: BTreeMap<StreamId, u64>,
    /// Messages that the stream has not accepted yet.
    unsent: VecDeque<u8>,
    incoming: Option<StreamId>,
    received: Vec<u8>,
    /// The initial limit of streams from the peer, as it was sent, and of streams to the peer.
    first_granted: Option<u64>,
    first_limit: Option<u64>,
}

impl Credits {
    pub(super) fn new(sending: &Sending) -> Self {
        Self {
            pool: Arc::new(Pool::new(sending)),
            outgoing: None,
            limits: BTreeMap::new(),
            unsent: VecDeque::new(),
            incoming: None,
            received: Vec::new(),
            first_granted: None,
            first_limit: None,
        }
    }

    /// The initial limit of a stream, in bytes.
    pub(super) fn first_limit(&self) -> u64 {
        self.first_limit.unwrap_or(u64::MAX)
    }

    /// Opens the stream for messages, if the peer permits one.
    pub(super) fn open(&mut self, connection: &mut Connection) {
        self.outgoing = connection.streams().open(Dir::Uni);
        if let Some(stream) = self.outgoing {
            // Before the data of other streams. It fails only for a stream that is closed.
            let _ = connection.send_stream(stream).set_priority(1);
        }
    }

    /// Permits the peer to send up to this limit on a stream.
    pub(super) fn grant(&mut self, stream: StreamId, limit: u64) {
        if self.outgoing.is_some() {
            self.limits.insert(stream, limit);
        }
    }

    /// Writes as many messages as the stream accepts; returns the bytes written.
    pub(super) fn flush(&mut self, connection: &mut Connection) -> u64 {
        let mut written = 0;
        let Some(stream) = self.outgoing else { return written };
        loop {
            if self.unsent.is_empty() {
                let first = self.pool.first();
                if self.first_granted.replace(first) != Some(first) {
                    self.unsent.extend(message(ALL, first));
                }
                let limits = std::mem::take(&mut self.limits);
                let messages = limits.into_iter().flat_map(|(id, at)| message(id.into(), at));
                self.unsent.extend(messages);
            }
            let piece = self.unsent.as_slices().0;
            if piece.is_empty() {
                return written;
            }
            match connection.send_stream(stream).write(piece) {
                Ok(taken) => {
                    written += taken as u64;
                    self.unsent.drain(..taken);
                }
                // Full: the next turn tries again.
                Err(_) => return written,
            }
        }
    }

    /// The peer has opened a stream for its messages.
    pub(super) fn accept(&mut self, connection: &mut Connection) {
        while let Some(stream) = connection.streams().accept(Dir::Uni) {
            self.incoming = Some(stream);
        }
    }

    /// Whether this stream carries the messages of either end.
    pub(super) fn is_own(&self, stream: StreamId) -> bool {
        [self.outgoing, self.incoming].contains(&Some(stream))
    }

    /// The next limit that the peer has set.
    pub(super) fn poll(&mut self, connection: &mut Connection) -> Option<(StreamId, u64)> {
        loop {
            while self.received.len() >= MESSAGE {
                let (id, limit) = numbers(&self.received)?;
                self.received.drain(..MESSAGE);
                match VarInt::from_u64(id) {
                    Ok(id) => return Some((id.into(), limit)),
                    Err(_) if id == ALL => self.first_limit = Some(limit),
                    Err(_) => {}
                }
            }
            match read(connection, self.incoming?, MESSAGE * 256) {
                Incoming::Bytes(bytes) => self.received.extend_from_slice(&bytes),
                Incoming::Nothing => return None,
                Incoming::End | Incoming::Reset => self.incoming = None,
            }
        }
    }
}

fn message(id: u64, limit: u64) -> impl Iterator<Item = u8> {
    id.to_be_bytes().into_iter().chain(limit.to_be_bytes())
}

fn numbers(bytes: &[u8]) -> Option<(u64, u64)> {
    let (id, rest) = bytes.split_first_chunk()?;
    Some((u64::from_be_bytes(*id), u64::from_be_bytes(*rest.first_chunk()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that takes `rate` bytes per second once the kernel's buffers for it are full, and
    /// the bytes that a sender, which always has data, has sent to it.
    struct Reader {
        window: Window,
        rate: u64,
        buffered: u64,
        is_blocked: bool,
        sent: u64,
        /// Limits in flight to the sender, with the time when they arrive.
        limits: VecDeque<(Time, u64)>,
        limit: u64,
    }

    const STEP: Span = Span::from_millis(1);
    const RTT: Span = Span::from_millis(50);
    const SLOW: u64 = 80_000;
    /// The bytes buffered by the sockets of a slow reader.
    const BUFFERS: u64 = 400_000;

    struct Run {
        /// The bytes that the last reader took in the second half of the run.
        taken: u64,
        /// The maximum of the bytes that all streams had received and their readers had not taken.
        max_held: u64,
    }

    /// Runs all readers for 20 s, the last one from 5 s on. The link carries 12.5 MB/s and serves
    /// the last reader first.
    fn run(rates: &[u64], sending: &Sending) -> Run {
        let pool = Arc::new(Pool::new(sending));
        let new = |rate| Reader {
            window: Window::new(Arc::clone(&pool), Time::ZERO),
            rate,
            buffered: if rate > SLOW { 0 } else { BUFFERS },
            is_blocked: false,
            sent: 0,
            limits: VecDeque::new(),
            limit: 0,
        };
        let mut readers: Vec<_> = rates.iter().map(|rate| new(*rate)).collect();
        let last = readers.len() - 1;
        let (mut before, mut max_held) = (0, 0);
        for step in 0..20_000 {
            let now = Time::ZERO + STEP * step;
            let mut room = 12_500;
            for (index, reader) in readers.iter_mut().enumerate().rev() {
                while reader.limits.front().is_some_and(|(at, _)| *at <= now) {
                    reader.limit = reader.limits.pop_front().unwrap().1;
                }
                if index == last && step < 5_000 {
                    continue;
                }
                reader.limit =
                    reader.limit.max(reader.window.granted * u64::from(reader.sent == 0));
                let piece = (reader.limit - reader.sent).min(room);
                reader.sent += piece;
                room -= piece;
                let delays = reader.sent - reader.window.consumed;
                let fast = delays.min(reader.buffered);
                reader.buffered -= fast;
                let taken = fast + (delays - fast).min(reader.rate / 1000);
                reader.is_blocked = taken < delays;
                if let Some(limit) = reader.window.on_consumed(taken, RTT, now) {
                    reader.limits.push_back((now + RTT, limit));
                }
                if step % 1000 == 0 {
                    reader.window.trim(reader.is_blocked, now);
                }
            }
            let held: u64 = readers.iter().map(|reader| reader.sent - reader.window.consumed).sum();
            max_held = held.max(max_held);
            if step == 12_500 {
                before = readers[last].window.consumed;
            }
        }
        let taken = readers[last].window.consumed - before;
        drop(readers);
        assert_eq!(pool.extra.load(Ordering::Relaxed), 0);
        Run { taken, max_held }
    }

    #[test]
    fn a_fast_reader_keeps_its_goodput_beside_slow_ones() {
        let sending = Sending::default();
        let fast = 12_500_000;
        let alone = run(&[fast], &sending).taken;
        assert!(alone > 90_000_000, "{alone}");
        for slow in [20, 60, 200] {
            // Half of the slow readers read nothing at all.
            let rates = (0..slow).map(|index| SLOW * (index % 2));
            let rates: Vec<_> = rates.chain([fast]).collect();
            let Run { taken, max_held } = run(&rates, &sending);
            println!("{slow} slow: {taken} of {alone} bytes, {max_held} held");
            assert!(taken * 10 >= alone * 8, "{slow} slow: {taken} of {alone}");
            assert!(max_held <= u64::from(sending.memory), "{max_held}");
        }
    }

    #[test]
    fn a_window_grows_and_shrinks_and_the_sender_always_has_room() {
        let sending = Sending::default();
        let pool = Arc::new(Pool::new(&sending));
        let mut window = Window::new(Arc::clone(&pool), Time::ZERO);
        // Less than the receiver assumes.
        let mut limit = pool.base;
        assert_eq!(window.granted, 8 * pool.base);
        for step in 0..2_000 {
            let now = Time::ZERO + STEP * step;
            // All permitted bytes arrive at once; the reader takes all of them, or a few.
            let room = limit - window.consumed;
            assert!(room > 0, "{step}");
            let taken = if step < 1_000 { room } else { room.min(10) };
            limit = window.on_consumed(taken, RTT, now).unwrap_or(limit);
            if step % 250 == 0 {
                window.trim(step > 1_000, now);
            }
            if step == 999 {
                assert_eq!(window.size, 1_000_000);
            }
        }
        assert_eq!(window.size, pool.base);
    }

    #[test]
    fn a_sender_with_a_lower_limit_gets_the_limit_when_the_stream_falls_idle() {
        let pool = Arc::new(Pool::new(&Sending::default()));
        let mut window = Window::new(Arc::clone(&pool), Time::ZERO);
        let at = |seconds| Time::ZERO + Span::from_secs(seconds);
        // A slow reader, whose sender assumes a limit of `base`.
        assert_eq!(window.on_consumed(pool.base / 2, RTT, at(1)), None);
        assert!(!window.trim(true, at(2)));
        assert_eq!(window.on_consumed(pool.base - pool.base / 2, RTT, at(3)), None);
        assert!(!window.trim(false, at(4)));
        assert!(window.trim(false, at(5)));
        assert_eq!(window.on_consumed(0, RTT, at(5)), Some(8 * pool.base));
        // Once is enough.
        assert!(!window.trim(false, at(6)));
        assert_eq!(window.on_consumed(0, RTT, at(6)), None);
    }

    #[test]
    fn limits_that_are_no_whole_message_wait_for_the_rest() {
        let bytes: Vec<_> = message(4, 70_000).collect();
        assert_eq!(numbers(&bytes), Some((4, 70_000)));
        assert_eq!(numbers(&bytes[..15]), None);
    }
}
