//! The age that an application with always fresh information would have at the far end of one
//! direction of a TCP flow.
//!
//! ```text
//! segment sent at s, not acknowledged before, acknowledged at t:
//!     rtt = t − s                      age at its arrival ≈ rtt
//!     time between two deliveries      ≈ time between the acks
//!     age(t) = t − s of the newest segment delivered in order, growing until the next
//! ```
//!
//! Shreedhar, Kaul, Yates, "An Empirical Study of Ageing in the Cloud", section I. A segment counts
//! as fresh information when it is sent. The place of the capture counts as the sender, so a
//! capture made elsewhere omits the path from the sender to there.
//!
//! Where the paper is silent:
//!
//! - A segment of which any byte was sent twice gives neither an age nor an RTT, whichever
//!   transmission the ack is for.
//! - An ack that covers several segments is one delivery, that of the newest among them, whose RTT
//!   is the sample. A delayed ack therefore counts as a later delivery, as it does for the sender.
//! - A super-segment, which the network card splits, is one segment, delivered with its last byte;
//!   an ack within it is a sample nevertheless, since all of it was sent at once.
//! - Bytes after a gap are held back in the receiver: they age until the cumulative ack. Their RTT
//!   is that of the selective ack that reports their arrival.
//! - Data missing from the capture (because it began within the flow, or lost packets) is not
//!   inferred: an ack of bytes that were not captured is counted and has no other effect.

use freshline_core::unit::{BitRate, Bytes, Time};

use super::ages::Sawtooth;
use super::outstanding::Outstanding;
use super::packet::Ends;
use super::report::FlowReport;
use super::round_trips::RoundTrips;

/// A segment further than this many bytes from the last one sent is far: no window is larger (RFC
/// 7323 section 2.3).
const FAR: u64 = 1 << 30;

/// A segment far from all before it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Far {
    pub(super) at: Time,
    pub(super) seq: u32,
    pub(super) len: u32,
}

/// The connection of a segment.
pub(super) enum Belongs {
    /// This flow.
    Here,
    /// None: it is damaged, or the first one of another connection.
    Nowhere,
    /// Another connection with the same ports, whose opening was not captured and whose first
    /// segment is this one.
    Another(Far),
}

/// One direction of a TCP flow, from its first captured segment with payload on.
#[derive(Debug)]
pub(super) struct TcpFlow {
    ends: Ends,
    began_at: Time,
    /// When new bytes were last acknowledged.
    acked_at: Time,
    /// Sequence numbers, extended beyond 32 bits: of the first byte, after the last byte sent,
    /// after the last byte acknowledged, and after the last byte that any kind of ack has reported.
    began: u64,
    sent: u64,
    acked: u64,
    mentioned: u64,
    outstanding: Outstanding,
    segments: u64,
    /// The number of segments far from all others, and the last one of them until another segment
    /// is captured.
    strays: u64,
    far: Option<Far>,
    resent: u64,
    bytes: u64,
    acked_bytes: u64,
    unseen_acks: u64,
    round_trips: RoundTrips,
    age: Sawtooth,
}

impl TcpFlow {
    /// A flow whose next segment begins at `seq`.
    pub(super) fn new(now: Time, ends: Ends, seq: u32, max_outstanding: usize) -> Self {
        // Leave room for numbers before the first.
        let start = (1 << 32) + u64::from(seq);
        Self {
            ends,
            began_at: now,
            acked_at: now,
            began: start,
            sent: start,
            acked: start,
            mentioned: start,
            outstanding: Outstanding::new(max_outstanding),
            segments: 0,
            strays: 0,
            far: None,
            resent: 0,
            bytes: 0,
            acked_bytes: 0,
            unseen_acks: 0,
            round_trips: RoundTrips::default(),
            age: Sawtooth::default(),
        }
    }

    /// A segment with `len` bytes of payload, above zero, was sent.
    pub(super) fn on_segment(&mut self, now: Time, seq: u32, len: u32) {
        let start = self.place(seq);
        let end = start + u64::from(len);
        self.segments += 1;
        self.bytes += u64::from(len);
        if start < self.sent {
            self.resent += 1;
            self.outstanding.on_resent(start, end);
        }
        if end > self.sent {
            self.outstanding.on_sent(now, start.max(self.sent), end);
            self.sent = end;
        }
    }

    /// The far end has acknowledged everything before `ack`, and has possibly received data before
    /// `sacked`.
    pub(super) fn on_ack(&mut self, now: Time, ack: u32, sacked: Option<u32>) {
        let ack = self.place(ack);
        // The end of the flow takes a sequence number, too.
        if ack > self.sent + 1 {
            self.unseen_acks += 1;
            return;
        }
        let ack = ack.min(self.sent);
        let sacked = sacked.map(|seq| self.place(seq)).filter(|sacked| *sacked <= self.sent);
        let mentioned = ack.max(sacked.unwrap_or(0));
        if mentioned > self.mentioned {
            let newest = self.outstanding.holding(mentioned - 1);
            if let Some(rtt) = newest.and_then(|newest| now.checked_since(newest.at)) {
                self.round_trips.record(rtt);
            }
            self.mentioned = mentioned;
        }
        if ack > self.acked {
            self.acked_bytes += ack - self.acked;
            self.acked = ack;
            self.acked_at = now.max(self.acked_at);
            // An ack that was captured before its segment does not give a round trip.
            let delivered = self.outstanding.clear_before(ack);
            if let Some(delivered) = delivered.filter(|delivered| delivered.at <= now) {
                self.age.on_update(now, delivered.at);
            }
        }
    }

    /// Whether `ack` acknowledges data that was sent.
    pub(super) fn has_sent(&self, ack: u32) -> bool {
        (self.began..=self.sent + 1).contains(&self.place(ack))
    }

    /// The connection of a segment with `len` bytes, before [`TcpFlow::on_segment`]. A single far
    /// segment may be damaged; two consecutive ones that are near each other are both accepted.
    pub(super) fn belongs(&mut self, now: Time, seq: u32, len: u32) -> Belongs {
        if self.place(seq).abs_diff(self.sent) <= FAR {
            self.far = None;
            return Belongs::Here;
        }
        let is_near =
            |far: &Far| u64::from((seq.wrapping_sub(far.seq) as i32).unsigned_abs()) <= FAR;
        if let Some(first) = self.far.filter(is_near) {
            self.far = None;
            self.strays -= 1;
            return Belongs::Another(first);
        }
        self.far = Some(Far { at: now, seq, len });
        self.strays += 1;
        Belongs::Nowhere
    }

    /// The last far segment, if `ack` acknowledges it.
    pub(super) fn take_answered(&mut self, ack: u32) -> Option<Far> {
        let far = self.far.take_if(|far| ack == far.seq.wrapping_add(far.len))?;
        self.strays -= 1;
        Some(far)
    }

    /// The full sequence number of 32 bits, nearest to the last byte sent.
    fn place(&self, seq: u32) -> u64 {
        let distance = seq.wrapping_sub(self.sent as u32) as i32;
        self.sent.wrapping_add_signed(distance.into())
    }

    pub(super) fn report(&self, capture_began_at: Time) -> FlowReport {
        let duration = self.acked_at.since(self.began_at);
        let goodput = BitRate::of(Bytes::new(self.acked_bytes), duration);
        FlowReport {
            from: self.ends.from,
            to: self.ends.to,
            start_s: self.began_at.since(capture_began_at).as_secs_f64(),
            duration_s: duration.as_secs_f64(),
            segments: self.segments,
            strays: self.strays,
            bytes: self.bytes,
            acked_bytes: self.acked_bytes,
            retransmissions: self.resent,
            untracked: self.outstanding.untracked(),
            unseen_acks: self.unseen_acks,
            goodput_bps: goodput.map(BitRate::as_bps),
            rtt: self.round_trips.times(),
            age: self.age.ages(),
        }
    }
}
