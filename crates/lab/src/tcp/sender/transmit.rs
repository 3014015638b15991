//! What to send next.

use freshline_core::unit::{Bytes, Packets, Time};

use super::timers::Content;
use super::{Sender, State};
use crate::tcp::congestion::Idle;
use crate::tcp::scoreboard::Sent;
use crate::tcp::segment::{Flags, Segment};

/// Segments of the initial window (RFC 6928).
pub(super) const INITIAL_WINDOW: u64 = 10;

/// Whether the window is what limits the sender, observed for a window at a time (RFC 7661).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WindowUse {
    pub(super) limited: bool,
    /// The most segments outstanding.
    pub(super) peak: u64,
    /// The observation ends when this offset is acknowledged.
    until: u64,
    /// A segment could be sent now if it were not for pacing.
    pub(super) paced_until: Option<Time>,
}

impl Sender {
    /// The next segment to send; call it until there is none.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Segment> {
        self.window_use.paced_until = None;
        if self.handshake_due {
            self.handshake_due = false;
            return Some(self.handshake(now));
        }
        if self.state != State::Open {
            return None;
        }
        if self.timers.take_probe()
            && let Some(probe) = self.probe(now)
        {
            return Some(probe);
        }
        self.restart_after_idle(now);
        if self.board.in_flight() >= self.window().get() {
            self.observe_window(true);
            return None;
        }
        if self.board.lost() == 0 && self.next_new().is_none() {
            self.observe_window(false);
            if self.unsent() < self.params.segment.get() {
                self.rate.on_app_limited(self.board.in_flight());
            }
            return None;
        }
        let is_paced = self.law.pacing_rate().is_some() || self.law.spacing().is_some();
        if is_paced && self.pacer.next() > now {
            self.window_use.paced_until = Some(self.pacer.next());
            return None;
        }
        self.retransmit(now).or_else(|| self.send_new(now))
    }

    /// From when on a law that spaces segments lets the next one go.
    pub(super) fn may_leave_at(&self, now: Time) -> Time {
        if self.law.spacing().is_some() { self.pacer.next().max(now) } else { now }
    }

    fn handshake(&self, now: Time) -> Segment {
        let syn = self.state == State::Connecting;
        let flags = Flags { syn, ack: !syn, ..Flags::default() };
        let seq = self.board.sent_to();
        Segment { seq, flags, sent_at: now, echo: self.echo, ..Segment::default() }
    }

    /// A tail loss probe: new data, or else what was sent last (RFC 8985 section 7.3).
    fn probe(&mut self, now: Time) -> Option<Segment> {
        self.stats.tail_probes += 1;
        if let Some((end, _)) = self.next_new() {
            self.timers.on_probe(end, Content::New);
            return self.send_new(now);
        }
        let then = self.rate.on_sent(now, self.board.in_flight());
        let sent = self.board.retransmit_last(now, then)?;
        self.timers.on_probe(sent.end, Content::Repetition);
        Some(self.sent_again(now, &sent))
    }

    fn retransmit(&mut self, now: Time) -> Option<Segment> {
        let then = self.rate.on_sent(now, self.board.in_flight());
        let sent = self.board.retransmit_lost(now, then)?;
        if sent.seq == self.board.acked_to() {
            self.arm_timeout(now);
        }
        Some(self.sent_again(now, &sent))
    }

    fn sent_again(&mut self, now: Time, sent: &Sent) -> Segment {
        self.stats.retransmissions += Packets::new(1);
        self.segment(now, sent.seq, sent.end, sent.fin, true)
    }

    fn send_new(&mut self, now: Time) -> Option<Segment> {
        let (end, fin) = self.next_new()?;
        if self.source.unlimited {
            self.source.written = self.source.written.max(end);
        }
        let start = self.board.sent_to();
        let was_empty = self.board.is_empty();
        let then = self.rate.on_sent(now, self.board.in_flight());
        self.board.send(now, end, fin, then);
        self.fin_sent |= fin;
        if was_empty {
            self.arm_timeout(now);
        }
        self.arm_probe(now);
        let mut segment = self.segment(now, start, end, fin, false);
        segment.flags.ect = self.params.ecn;
        segment.flags.cwr = std::mem::take(&mut self.tell_reduced);
        Some(segment)
    }

    fn segment(&mut self, now: Time, seq: u64, end: u64, fin: bool, again: bool) -> Segment {
        let len = end - seq - u64::from(fin);
        self.last_sent_at = now;
        self.law.on_sent(now);
        match self.law.spacing() {
            Some(spacing) => self.pacer.space(now, spacing),
            None => self.pacer.on_sent(now, Bytes::new(len), self.law.pacing_rate()),
        }
        if let Some(episode) = &mut self.episode {
            episode.on_sent();
        }
        self.stats.segments += Packets::new(1);
        self.stats.payload += Bytes::new(len);
        Segment {
            seq,
            len: u32::try_from(len).unwrap_or(u32::MAX),
            flags: Flags { ack: true, fin, ..Flags::default() },
            sent_at: now,
            echo: self.echo,
            retransmission: again,
            ..Segment::default()
        }
    }

    /// The end of the next new segment and whether it ends the stream, if one may be sent as far
    /// as the application and the receiver are concerned.
    fn next_new(&self) -> Option<(u64, bool)> {
        if self.fin_sent {
            return None;
        }
        let start = self.board.sent_to();
        let full = self.params.segment.get();
        let end = self.written_by_now().min(start + full);
        if end > self.window_end {
            // A piece goes only where nothing in flight will open the window.
            let piece = self.board.is_empty() && start < self.window_end;
            return piece.then_some((self.window_end, false));
        }
        let last = self.source.closed && end == self.source.written;
        let held_back = self.params.nagle && end - start < full && !self.board.is_empty();
        if last {
            return Some((end + 1, true));
        }
        (end > start && !held_back).then_some((end, false))
    }

    /// What the application has written and the receiver's window may be holding back. A rate
    /// behind such a window is the path's for all that the sender knows, as in Linux.
    fn unsent(&self) -> u64 {
        self.written_by_now().saturating_sub(self.board.sent_to())
    }

    fn written_by_now(&self) -> u64 {
        let room = if self.source.unlimited { self.writable().get() } else { 0 };
        self.source.written + room
    }

    fn observe_window(&mut self, limited: bool) {
        let outstanding = self.board.outstanding();
        let WindowUse { until, peak, .. } = self.window_use;
        let over = self.board.acked_to() >= until;
        if over || limited || !self.window_use.limited && outstanding > peak {
            self.window_use.limited = limited;
            self.window_use.peak = outstanding;
            self.window_use.until = self.board.sent_to();
        }
    }

    fn restart_after_idle(&mut self, now: Time) {
        let span = now.since(self.last_sent_at);
        let rto = self.rtt.rto();
        if self.board.is_empty() && !span.is_zero() && self.next_new().is_some() {
            self.law.on_idle(now, Idle { span, rto });
            self.last_sent_at = now;
        }
    }
}
