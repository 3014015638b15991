//! Selection of the next segment to send.

use freshline_core::unit::{Bytes, Packets, Time};

use super::offload::Limit;
use super::timers::Content;
use super::{Sender, State};
use crate::tcp::congestion::Idle;
use crate::tcp::segment::{Flags, Segment};

/// Segments of the initial window (RFC 6928).
pub(super) const INITIAL_WINDOW: u64 = 10;

/// Whether the sender is limited by its window, observed over one window at a time (RFC 7661).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WindowUse {
    pub(super) limited: bool,
    /// The maximum number of segments outstanding.
    pub(super) peak: u64,
    /// The observation ends when this offset is acknowledged.
    until: u64,
    /// A segment could be sent now if it were not for pacing.
    pub(super) paced_until: Option<Time>,
}

impl Sender {
    /// The next segment to send. Call it until it returns `None`.
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
        let room = self.window().get().saturating_sub(self.board.in_flight());
        if room == 0 {
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
        if self.board.lost() == 0
            && let Some(limit) = self.defers(now)
        {
            self.observe_window(limit == Limit::Congestion);
            return None;
        }
        if self.is_throttled() {
            self.observe_window(false);
            return None;
        }
        let most = self.burst(room);
        self.retransmit(now, most).or_else(|| self.send_new(now, most))
    }

    /// From when on a law with a spacing allows the next segment.
    pub(super) fn may_leave_at(&self, now: Time) -> Time {
        if self.law.spacing().is_some() { self.pacer.next().max(now) } else { now }
    }

    fn handshake(&self, now: Time) -> Segment {
        let syn = self.state == State::Connecting;
        let flags = Flags { syn, ack: !syn, ..Flags::default() };
        let seq = self.board.sent_to();
        Segment { seq, flags, sent_at: now, echo: self.echo, ..Segment::default() }
    }

    /// A tail loss probe: new data, or else the last segment sent (RFC 8985 section 7.3).
    fn probe(&mut self, now: Time) -> Option<Segment> {
        self.stats.tail_probes += 1;
        if let Some((end, _)) = self.next_new() {
            self.timers.on_probe(end, Content::New);
            return self.send_new(now, 1);
        }
        let then = self.rate.on_sent(now, self.board.in_flight());
        let sent = self.board.retransmit_last(now, then)?;
        self.timers.on_probe(sent.end, Content::Repetition);
        Some(self.packet(now, &[sent.seq, sent.end], sent.fin, 1, true))
    }

    /// Retransmits the first lost segment, with lost ones that follow it without a gap.
    fn retransmit(&mut self, now: Time, most: u64) -> Option<Segment> {
        let then = self.rate.on_sent(now, self.board.in_flight());
        let first = self.board.retransmit_lost(now, then)?;
        if first.seq == self.board.acked_to() {
            self.arm_timeout(now);
        }
        let (mut last, mut segments) = (first, 1);
        while segments < most && self.board.first_lost() == Some(last.end) {
            let then = self.rate.on_sent(now, self.board.in_flight());
            let Some(sent) = self.board.retransmit_lost(now, then) else { break };
            (last, segments) = (sent, segments + 1);
        }
        Some(self.packet(now, &[first.seq, last.end], last.fin, segments, true))
    }

    fn send_new(&mut self, now: Time, most: u64) -> Option<Segment> {
        let start = self.board.sent_to();
        let was_empty = self.board.is_empty();
        let (mut end, mut fin, mut segments) = (start, false, 0);
        while segments < most
            && let Some(next) = self.next_new()
        {
            (end, fin) = next;
            segments += 1;
            if self.source.unlimited {
                self.source.written = self.source.written.max(end);
            }
            let then = self.rate.on_sent(now, self.board.in_flight());
            self.board.send(now, end, fin, then);
            self.fin_sent |= fin;
        }
        if segments == 0 {
            return None;
        }
        if was_empty {
            self.arm_timeout(now);
        }
        self.arm_probe(now);
        let mut packet = self.packet(now, &[start, end], fin, segments, false);
        packet.flags.ect = self.params.ecn;
        packet.flags.cwr = std::mem::take(&mut self.announce_reduced);
        Some(packet)
    }

    /// The packet of one segment or several, which are on the scoreboard already.
    fn packet(
        &mut self,
        now: Time,
        &[seq, end]: &[u64; 2],
        fin: bool,
        segments: u64,
        again: bool,
    ) -> Segment {
        let len = end - seq - u64::from(fin);
        self.last_sent_at = now;
        for _ in 0..segments {
            self.law.on_sent(now);
            if let Some(episode) = &mut self.episode {
                episode.on_sent();
            }
        }
        match self.law.spacing() {
            Some(spacing) => self.pacer.space(now, spacing),
            None => self.pacer.on_sent(now, Bytes::new(len), segments, self.law.pacing_rate()),
        }
        self.stats.segments += Packets::new(segments);
        if again {
            self.stats.retransmissions += Packets::new(segments);
        }
        self.stats.payload += Bytes::new(len);
        let gso_size = if segments > 1 { self.params.segment.get() } else { 0 };
        Segment {
            seq,
            len: u32::try_from(len).unwrap_or(u32::MAX),
            gso_size: u32::try_from(gso_size).unwrap_or(u32::MAX),
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
            // A partial segment is sent only if no segment in flight will open the window.
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

    /// The bytes that the application has written, even if the receiver's window holds them back.
    /// The sender cannot tell a rate behind such a window from the path's rate, as in Linux.
    pub(super) fn unsent(&self) -> u64 {
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
