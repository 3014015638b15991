//! Buffers that grow with the path, as Linux tunes them (`tcp_rmem`, `tcp_wmem`).
//!
//! The receive window follows dynamic right-sizing (Fisk, Feng 2001): once a round trip, as the
//! receiver sees it, what the application has read in that time is compared with the most it
//! ever read in one. Where it is more, the window becomes twice that, and more still if reading
//! accelerates, so that slow start, which doubles, is never held back by it:
//!
//! ```text
//! read > most:   window ← max(window, w + 2·w·(read − most)/most),   w = 2·read + 16 segments
//! ```
//!
//! A receiver knows the round trip from the timestamps that data segments return. The window is
//! half of the buffer (`tcp_adv_win_scale` = 1), the rest being the kernel's overhead.

use freshline_core::unit::{Bytes, Span, Time};

/// A buffer's limits in bytes of memory: the last two numbers of `tcp_rmem` or `tcp_wmem`. The first one, which
/// counts when memory is short, has no meaning here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferParams {
    /// At the start.
    pub default: Bytes,
    /// At most.
    pub max: Bytes,
}

impl BufferParams {
    /// Linux's `tcp_rmem` since 6.16: 131072 and 33554432. Earlier kernels have 6291456 at most.
    pub const RECEIVE: Self = Self { default: Bytes::new(131_072), max: Bytes::new(33_554_432) };
    /// Linux's `tcp_wmem`: 16384 and 4194304.
    pub const SEND: Self = Self { default: Bytes::new(16_384), max: Bytes::new(4_194_304) };

    /// How many bytes of payload a send buffer holds with a window of `segments`: it has room for
    /// two windows, so that there is always one to be sent next.
    pub(super) fn payload(&self, segments: u64) -> u64 {
        let memory = (2 * segments).saturating_mul(RESERVED);
        let memory = self.default.get().max(memory).min(self.max.get());
        memory / 16 * PAYLOAD_SIXTEENTHS
    }
}

/// The memory that Linux reserves for a segment of Ethernet in a send buffer, in bytes.
const RESERVED: u64 = 4352;
/// The share of a send buffer's memory that is payload. On Linux 6.18, 4 MiB hold 1510 to 1770
/// full segments in flight, as they lie in memory alone or in pairs: 0.52 to 0.61 of it.
const PAYLOAD_SIXTEENTHS: u64 = 9;

/// What the window grows by beyond twice what is read, in bytes: 16 segments of Ethernet.
const HEADROOM: u64 = 16 * 1448;
/// What is taken as read in a round trip before the first: an initial window.
const FIRST_READ: u64 = 10 * 1448;

#[derive(Debug)]
pub(super) struct ReceiveWindow {
    size: u64,
    most: u64,
    rtt: Option<Span>,
    last_echo: Option<Time>,
    /// When and at which offset the round trip began in which reading is measured.
    since: Option<(Time, u64)>,
    /// The most read in a round trip.
    most_read: u64,
}

impl ReceiveWindow {
    pub(super) fn new(buffer: BufferParams) -> Self {
        let size = buffer.default.get() / 2;
        Self {
            size,
            most: (buffer.max.get() / 2).max(size),
            rtt: None,
            last_echo: None,
            since: None,
            most_read: FIRST_READ,
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// A segment with data returned the timestamp of an ack sent at `echo`.
    pub(super) fn on_echo(&mut self, now: Time, echo: Time) {
        if self.last_echo == Some(echo) {
            return;
        }
        self.last_echo = Some(echo);
        let sample = now.since(echo);
        self.rtt = Some(self.rtt.map_or(sample, |rtt| (rtt * 7 + sample) / 8));
    }

    /// The application has read everything before `offset`.
    pub(super) fn on_read(&mut self, now: Time, offset: u64) {
        let (since, from) = *self.since.get_or_insert((now, offset));
        if self.rtt.is_none_or(|rtt| now.since(since) < rtt) {
            return;
        }
        self.since = Some((now, offset));
        let read = offset - from;
        if read > self.most_read {
            let growth = (read - self.most_read) as f64 / self.most_read as f64;
            let wanted = (2 * read + HEADROOM) as f64 * (1.0 + 2.0 * growth);
            self.size = self.size.max(wanted as u64).min(self.most);
            self.most_read = read;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_stays_ahead_of_a_sender_that_doubles() {
        let mut window = ReceiveWindow::new(BufferParams::RECEIVE);
        let mut offset = 0;
        for round in 0..12 {
            let now = Time::ZERO + Span::from_millis(40 * round);
            window.on_echo(now, now - Span::from_millis(40));
            offset += 14_480 << round;
            window.on_read(now, offset);
            let next = (14_480 << (round + 1)).min(16 << 20);
            assert!(window.size() >= next, "{} in round {round}", window.size());
        }
        assert_eq!(window.size(), 16 << 20, "half of the largest buffer");
    }

    #[test]
    fn a_slow_stream_leaves_the_window_alone() {
        let mut window = ReceiveWindow::new(BufferParams::RECEIVE);
        for round in 0..100 {
            let now = Time::ZERO + Span::from_millis(40 * round);
            window.on_echo(now, now - Span::from_millis(40));
            window.on_read(now, 10_000 * round);
        }
        assert_eq!(window.size(), 65_536);
    }

    #[test]
    fn a_send_buffer_follows_the_window_up_to_its_limit() {
        assert_eq!(BufferParams::SEND.payload(10), 87_040 / 16 * 9);
        assert_eq!(BufferParams::SEND.payload(10_000) / 1448, 1629);
    }
}
