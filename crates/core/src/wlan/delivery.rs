//! Measures arrivals at a client, so that the server can detect a slow backhaul.
//!
//! ```text
//! excess = min of (received − sent) − base    over the last two buckets and eight slots;
//!                                             queueing delay in s, for any clocks
//! base   = min of the same over 30 to 60 s; one packet far below it does not count, nor does one
//!          whose time of sending contradicts later packets
//! rate   = bytes of the last four whole buckets / their length
//! bucket = interval/10, from 5 to 50 ms, of arrivals
//! slot   = bucket/5, of the server's clock; only slots count in which a packet was sent
//! ```
//!
//! The minimum over a bucket excludes the time for which a packet waits for its Wi-Fi frame: in
//! each frame, some packet waits for almost no time. A queue before the Wi-Fi delays all packets.
//! If packets are rare, or are sent in bursts by a busy server, packets delayed by a busy host or
//! radio would look like a queue: so the minimum covers at least eight slots in which packets were
//! sent.
//!
//! An *urgent* report is sent early: after losses of 3 % and more, or when the excess is above
//! [`URGENT_EXCESS`] and has grown; at the earliest, an eighth of the interval after the last
//! report. [`Guarded`](super::Guarded) uses both.

use crate::unit::{BitRate, Bytes, Span, Time};

/// The excess from which on a report is urgent: 20 ms, more than the minimum can rise within a
/// round of frames.
pub const URGENT_EXCESS: Span = Span::from_millis(20);

/// The minimum growth of the excess between urgent reports.
const GROWTH: Span = Span::from_millis(10);
/// A longer excess is ignored.
const LONGEST: Span = Span::from_secs(10);
/// A delay below all others by more than this counts only if a second one is as low.
const SUDDEN: Span = Span::from_millis(5);
/// The maximum distance between the two in packets, and the number of low delays remembered: the
/// packets of one frame can all have different delays.
const SOON: usize = 64;
/// The minimum time for which a minimum of delays counts.
const BASE: Span = Span::from_secs(30);
/// The current bucket and those before it.
const BUCKETS: usize = 5;
/// The minimum number of slots over which all packets must be late to show a queue.
const SLOTS: usize = 8;
/// Slots of a bucket.
const SLOTS_A_BUCKET: u64 = 5;
/// The minimum number of packets in the last buckets that give a rate.
const ENOUGH: u64 = 32;

/// The measurements of arrivals in a report, in addition to its newest packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delivered {
    /// Bytes of the datagrams received in the session, without IP headers.
    pub bytes: u64,
    /// Their recent arrival rate, in whole kbit/s on the wire; zero if there were too few.
    pub rate: BitRate,
    /// One-way delay above its minimum, in whole µs on the wire.
    pub excess: Span,
    /// The longest time without a packet since the last report, in whole µs on the wire.
    pub gap: Span,
}

/// Arrivals until now, as reported by a client. The numbers are the client's claims and not
/// verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// The number of the newest packet, counted from 0.
    pub newest_seq: u64,
    /// When it was sent, by the server's clock.
    pub newest_sent_at: Time,
    /// When it arrived, by the client's clock.
    pub newest_received_at: Time,
    /// The number of received packets, modulo 2³².
    pub packets: u32,
    /// The other measurements; `None` if the client does not report them.
    pub delivered: Option<Delivered>,
    /// Not reported, but measured by the server: the total time up to that packet in which it could
    /// have sent more, but was late or had nothing to send. In µs modulo 2³² since the client
    /// joined.
    pub given_up: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    packets: u64,
    bytes: u64,
    /// The minimum of received − sent, in ns.
    least: Option<i64>,
}

/// A packet far below the base.
#[derive(Debug, Clone, Copy)]
struct Sudden {
    /// The number of packets received up to and including it.
    at: u64,
    seq: u64,
    sent_at: Time,
    /// In ns.
    delay: i64,
}

/// A client's measurement of arrivals.
#[derive(Debug, Clone)]
pub struct Account {
    bytes: u64,
    /// The current bucket first.
    buckets: [Bucket; BUCKETS],
    /// The number of buckets so far, up to all.
    known: usize,
    /// The latest slots: their number, and the minimum delay of their packets in ns.
    slots: [(u64, i64); SLOTS],
    /// When the current one began; `None` before the first packet.
    began: Option<Time>,
    length: Span,
    /// Minimum delays of this period and of the one before, in ns.
    base: [Option<i64>; 2],
    base_began: Time,
    /// Packets so far, and the latest that were far below the base.
    count: u64,
    sudden: [Option<Sudden>; SOON],
    newest_at: Option<Time>,
    gap: Span,
    /// Packets received since the last report, and when that was sent.
    packets: u64,
    reported_at: Option<Time>,
    reported_missing: u64,
    reported_excess: Span,
}

impl Default for Account {
    fn default() -> Self {
        Self {
            bytes: 0,
            buckets: [Bucket::default(); BUCKETS],
            known: 0,
            slots: [(0, i64::MIN); SLOTS],
            began: None,
            length: Span::from_millis(50),
            base: [None; 2],
            base_began: Time::ZERO,
            count: 0,
            sudden: [None; SOON],
            newest_at: None,
            gap: Span::ZERO,
            packets: 0,
            reported_at: None,
            reported_missing: 0,
            reported_excess: Span::ZERO,
        }
    }
}

impl Account {
    /// A datagram of this size and number, sent at `sent_at` by the server's clock, arrived at
    /// `received_at` by the client's. `interval` is the interval of reports.
    pub fn on_packet(
        &mut self,
        received_at: Time,
        seq: u64,
        sent_at: Time,
        size: Bytes,
        interval: Span,
    ) {
        self.length = (interval / 10).clamp(Span::from_millis(5), Span::from_millis(50));
        self.turn(received_at);
        let delay = (received_at.as_nanos() as i64).wrapping_sub(sent_at.as_nanos() as i64);
        let bucket = &mut self.buckets[0];
        bucket.packets += 1;
        bucket.bytes = bucket.bytes.saturating_add(size.get());
        if self.note_base(seq, sent_at, delay) {
            let bucket = &mut self.buckets[0];
            bucket.least = Some(bucket.least.map_or(delay, |least| least.min(delay)));
            self.note_slot(sent_at, delay);
        }
        self.bytes = self.bytes.wrapping_add(size.get());
        self.packets += 1;
        if let Some(before) = self.newest_at {
            self.gap = self.gap.max(received_at.since(before));
        }
        self.newest_at = Some(self.newest_at.map_or(received_at, |at| at.max(received_at)));
    }

    /// When an urgent report is due, with `missing` packets missing so far; `None` without a
    /// reason.
    pub fn urgent_at(&self, missing: u64, interval: Span) -> Option<Time> {
        let lost = missing.saturating_sub(self.reported_missing);
        let is_lossy = lost >= 3 && lost.saturating_mul(32) >= self.packets;
        let excess = self.excess();
        let is_queued = excess >= URGENT_EXCESS && excess >= self.reported_excess + GROWTH;
        (is_lossy || is_queued)
            .then(|| self.reported_at.unwrap_or(Time::ZERO) + urgent_gap(interval))
    }

    /// The content of a report sent at `now`, with `missing` packets missing so far.
    pub fn report(&mut self, now: Time, missing: u64) -> Delivered {
        let excess = self.excess();
        let content = Delivered { bytes: self.bytes, rate: self.rate(), excess, gap: self.gap };
        (self.reported_at, self.reported_missing, self.reported_excess) =
            (Some(now), missing, excess);
        (self.gap, self.packets) = (Span::ZERO, 0);
        content
    }

    /// The sender is another one, or restarts its sequence numbers.
    pub fn restart(&mut self) {
        // Keep the client's own measurements: the gap until the next packet is reported.
        *self = Self {
            bytes: self.bytes,
            newest_at: self.newest_at,
            gap: self.gap,
            reported_at: self.reported_at,
            reported_missing: self.reported_missing,
            ..Self::default()
        };
    }

    /// Updates the base; returns whether this time is believed. A corrupted time could otherwise
    /// look like a faster path, which would make all later delays look like a queue, or begin a
    /// slot that never ends.
    fn note_base(&mut self, seq: u64, sent_at: Time, delay: i64) -> bool {
        let sudden = SUDDEN.as_nanos().cast_signed();
        self.count += 1;
        self.contradict(seq, sent_at);
        let base = self.base.iter().flatten().min();
        let is_sudden = base.is_none_or(|base| delay < base.saturating_sub(sudden));
        let this = Sudden { at: self.count, seq, sent_at, delay };
        let known = if is_sudden { self.second(this, base.is_none()) } else { Some(delay) };
        let Some(known) = known else { return false };
        self.base[0] = Some(self.base[0].map_or(known, |least| least.min(known)));
        // Reject a time that makes the delay far too long too, as it could begin a slot in the far
        // future.
        let base = self.base.iter().flatten().min().copied().unwrap_or(known);
        let longest = LONGEST.as_nanos().cast_signed();
        (base.saturating_sub(sudden)..base.saturating_add(longest)).contains(&delay)
    }

    /// The packet count from which on `sudden` packets are remembered.
    fn soon(&self) -> u64 {
        self.count.saturating_sub(SOON as u64)
    }

    /// A server's time does not go back: if a packet with a higher number was sent earlier than one
    /// far below the base, the latter's time was corrupted.
    fn contradict(&mut self, seq: u64, sent_at: Time) {
        let soon = self.soon();
        if self.sudden[0].is_none_or(|newest| newest.at < soon) {
            return;
        }
        for sudden in &mut self.sudden {
            *sudden = sudden.filter(|other| other.seq > seq || other.sent_at <= sent_at);
        }
        // The newest comes first.
        let first = self.sudden.iter().position(Option::is_some).unwrap_or(0);
        self.sudden.rotate_left(first);
    }

    /// The delay confirmed by this packet and an earlier one; any two if no base is known.
    fn second(&mut self, this: Sudden, is_first: bool) -> Option<i64> {
        let soon = self.soon();
        let agrees = |other: &&Sudden| {
            let apart = other.delay.abs_diff(this.delay);
            other.at >= soon && (is_first || apart <= SUDDEN.as_nanos())
        };
        let before = self.sudden.iter().flatten().find(agrees).copied();
        self.sudden.rotate_right(1);
        self.sudden[0] = Some(this);
        before.map(|other| other.delay.max(this.delay))
    }

    fn note_slot(&mut self, sent_at: Time, delay: i64) {
        let slot = sent_at.as_nanos() / (self.length.as_nanos() / SLOTS_A_BUCKET).max(1);
        let (newest, least) = &mut self.slots[0];
        if slot > *newest {
            self.slots.rotate_right(1);
            self.slots[0] = (slot, delay);
        } else {
            // Late packets are rare: they count in the newest slot.
            *least = delay.min(*least);
        }
    }

    fn turn(&mut self, now: Time) {
        let Some(began) = self.began else {
            (self.began, self.base_began) = (Some(now), now);
            return;
        };
        let over = (now.since(began).as_nanos() / self.length.as_nanos().max(1)) as usize;
        if over > 0 {
            self.began = Some(began + self.length * over as u64);
            let over = over.min(BUCKETS);
            self.buckets.rotate_right(over % BUCKETS);
            self.buckets[..over].fill(Bucket::default());
            self.known = (self.known + over).min(BUCKETS - 1);
        }
        if now.since(self.base_began) >= BASE {
            self.base = [None, self.base[0]];
            self.base_began = now;
        }
    }

    fn excess(&self) -> Span {
        let [this, before, ..] = &self.buckets;
        let base = self.base.iter().flatten().min();
        let slots = self.slots.iter().map(|(_, least)| *least);
        let least = [this.least, before.least].into_iter().flatten().chain(slots).min();
        let above = base.zip(least).map_or(0, |(base, least)| least.saturating_sub(*base));
        // A step of a clock, or a corrupted time, is not a queue.
        let above = Span::from_nanos(above.max(0).unsigned_abs());
        if above <= LONGEST { above } else { Span::ZERO }
    }

    fn rate(&self) -> BitRate {
        let whole = &self.buckets[1..][..self.known];
        let packets: u64 = whole.iter().map(|bucket| bucket.packets).sum();
        let bytes: u64 = whole.iter().map(|bucket| bucket.bytes).sum();
        if packets < ENOUGH {
            return BitRate::default();
        }
        let span = self.length.as_secs_f64() * whole.len() as f64;
        BitRate::from_bps((bytes as f64 * 8.0 / span) as u64)
    }
}

/// The minimum time from the last report to an urgent one.
pub fn urgent_gap(interval: Span) -> Span {
    (interval / 8).min(Span::from_micros(62_500))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELTA: Span = Span::from_millis(500);

    fn us(micros: u64) -> Time {
        Time::ZERO + Span::from_micros(micros)
    }

    /// Packets of 1000 bytes, a millisecond apart, each as late as `delay` says; the client's clock
    /// is 7 s behind the server's.
    fn account(packets: u64, delay: impl Fn(u64) -> u64) -> Account {
        let mut account = Account::default();
        for at in 0..packets {
            let sent_at = us(7_000_000 + 1000 * at);
            account.on_packet(us(1000 * at + delay(at)), at, sent_at, Bytes::new(1000), DELTA);
        }
        account
    }

    #[test]
    fn rate_and_excess_need_no_common_clock() {
        let mut account = account(1000, |at| 300 + at.saturating_sub(500) * 100);
        let content = account.report(us(1_050_000), 0);
        assert_eq!(content.bytes, 1_000_000);
        // One packet in 1.1 ms.
        assert!((content.rate.as_bps() as f64 / (8e6 / 1.1) - 1.0).abs() < 0.02, "{content:?}");
        let excess = content.excess.as_micros();
        assert!((41_000..50_000).contains(&excess), "the minimum of 50 to 100 ms: {content:?}");
        assert_eq!(content.gap, Span::from_micros(1100));
        assert_eq!(account.report(us(1_050_000), 0).gap, Span::ZERO);
    }

    #[test]
    fn the_wait_for_a_frame_is_no_queue() {
        // Frames end each 10 ms.
        let account = account(1000, |at| 300 + (9 - at % 10) * 1000);
        assert_eq!(account.excess(), Span::ZERO);
    }

    #[test]
    fn a_damaged_time_does_not_make_a_queue_of_all_packets_that_follow() {
        for early_by in [6, 67, 8_590].map(Span::from_millis) {
            let mut account = account(1000, |_| 300);
            let sent_at = us(8_000_000) + early_by;
            account.on_packet(us(1_000_300), 1_000, sent_at, Bytes::new(1000), DELTA);
            for at in 1001..1200 {
                let sent_at = us(7_000_000 + 1000 * at);
                account.on_packet(us(1000 * at + 300), at, sent_at, Bytes::new(1000), DELTA);
            }
            assert_eq!(account.excess(), Span::ZERO, "{early_by}");
        }
        // A path that is faster from now on: later delays are measured against it.
        let faster = account(1000, |at| 10_300 - if at < 500 { 0 } else { 10_000 });
        assert_eq!(faster.base[0], faster.slots.iter().map(|(_, least)| *least).min());
        // Frames of four packets, 10 ms apart: the lower delays come one at a time.
        let mut frames = Account::default();
        for at in 0..200 {
            let sent_at = us(7_000_000 + 10_000 * at);
            let ends = 10_000 * (at - at % 4 + 3) + 300;
            frames.on_packet(us(ends), at, sent_at, Bytes::new(1000), DELTA);
        }
        let least = frames.slots.iter().map(|(_, least)| *least).min().unwrap();
        let above = frames.base[0].unwrap() - least;
        assert!((0..5_000_000).contains(&above), "{above} ns");
    }

    #[test]
    fn two_times_damaged_alike_make_no_queue_either_and_hide_none() {
        // From the 300th on, a queue that grows.
        let excess_after = |packets, bit: Option<u32>| {
            let mut account = Account::default();
            for at in 0..packets {
                let sent_at = us(7_000_000 + 1000 * at);
                let damage = bit.filter(|_| at == 100 || at == 103).map_or(0, |bit| 1 << bit);
                let late = us(300 + 1000 * at + at.saturating_sub(300) * 1000);
                let sent_at = Time::from_nanos(sent_at.as_nanos() ^ damage);
                account.on_packet(late, at, sent_at, Bytes::new(1000), DELTA);
            }
            account.excess()
        };
        for bit in 23..64 {
            for packets in [150, 300, 400] {
                let [excess, true_one] = [Some(bit), None].map(|bit| excess_after(packets, bit));
                assert_eq!(excess, true_one, "bit {bit}, {packets} packets");
            }
        }
        assert!(excess_after(400, None) >= URGENT_EXCESS);
    }

    #[test]
    fn what_is_urgent_waits_an_eighth_of_an_interval() {
        let mut calm = account(400, |_| 300);
        assert_eq!(calm.urgent_at(2, DELTA), None);
        assert_eq!(calm.urgent_at(12, DELTA), None, "3 % and less");
        assert!(calm.urgent_at(13, DELTA).is_some());
        calm.report(us(400_000), 13);
        assert_eq!(calm.urgent_at(13, DELTA), None);
        let late = account(600, |at| 300 + at.saturating_sub(200) * 100);
        assert_eq!(late.urgent_at(0, DELTA), Some(us(62_500)));
    }

    #[test]
    fn a_pause_is_told_as_a_gap_and_not_as_a_rate() {
        let mut account = account(400, |_| 300);
        account.on_packet(us(2_000_000), 400, us(8_999_700), Bytes::new(1000), DELTA);
        let content = account.report(us(2_000_000), 0);
        assert_eq!((content.rate, content.gap.as_millis_f64() as u64), (BitRate::default(), 1600));
    }
}
