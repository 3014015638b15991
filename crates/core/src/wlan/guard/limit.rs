//! The limit of one client's rate. The [parent module](super) describes its states.

use crate::unit::{BitRate, Span, Time};
use crate::wlan::delivery::Delivery;

/// The initial limit, for all clients together: 10 Mbit/s.
const START: f64 = 10e6;
/// Congestion does not lower limits below this, for all clients together: 500 kbit/s.
const FLOOR: f64 = 500e3;
/// Silence does not lower a limit below this: 16 kbit/s, a packet in 0.75 s.
const SILENT: f64 = 16e3;
/// Silence is counted in intervals of at least this.
const SILENCE: Span = Span::from_millis(500);
/// The number of packets that must have been due at the limit before silence counts.
const DUE: f64 = 2.5;
/// The maximum limit, in bit/s.
const CEILING: f64 = 1e12;
/// An excess up to this is not a queue.
const CLEAN: Span = Span::from_millis(10);
/// An excess above this is a queue. In between, the limit does not change.
const QUEUED: Span = Span::from_millis(20);
/// The queueing delay in s at which draining the queue would take all of the rate.
const DRAIN: f64 = 0.5;
/// The minimum of u: a limit is at least this fraction of the arrival rate.
const LEAST: f64 = 0.5;
/// The limit in multiples of the confirmed rate, before the first congestion.
const OPEN: f64 = 4.0;
/// The same afterwards, unless the sender was late: then it is [`OPEN`].
const CAREFUL: f64 = 2.0;
/// The maximum growth factor per report of a limit that was not reached, before the first
/// congestion.
const UNTRIED: f64 = 1.5;
/// The first step after a failed probe.
const STEP: f64 = 0.05;
/// The first step after other congestion.
const FIRST_STEP: f64 = 0.2;
/// For how long the limit before a cut stays the peak for the cuts that follow.
const EPISODE: Span = Span::from_secs(10);
/// The fraction of the limit that must have been sent for the limit to count as tried. Not more: a
/// sender on a busy host is late, and sends less than allowed.
const TRIED: f64 = 0.5;
/// A limit returns to this fraction of the rate that arrived while there was a standing queue.
const BACK: f64 = 0.98;
/// A loss fraction up to this is not congestion.
const STRAY: f64 = 0.002;
/// Larger losses lower the limit at once, smaller ones once per interval, or per half a second.
const SMALL_LOSS: f64 = 0.08;
const ANSWER: Span = Span::from_millis(500);
/// A loss fraction up to this may be caused by other traffic.
const STRAY_MOST: f64 = 0.05;
/// How long losses must continue at lower rates until they count as caused by other traffic.
const LOSS_PATIENCE: Span = Span::from_millis(1500);
/// How long a queue may persist until it counts as that of other traffic, in seconds.
const DRAIN_PATIENCE: f64 = 1.5;
/// For how long a queue or losses are attributed to other traffic.
const SHARED: Span = Span::from_secs(30);
/// Behind a queue of other traffic: if less than this fraction of the sent rate arrives, the limit
/// follows the arrival rate.
const SLOW: f64 = 0.97;
/// For how long small losses are not congestion, before the first congestion.
const STARTING: Span = Span::from_secs(10);
/// If the sender gave up more than this fraction of the time, the sender was the bottleneck.
const LATE: f64 = 0.1;
/// The minimum fraction of the time that such a sender is assumed to have been sending.
const BUSY: f64 = 0.05;
/// A shorter time without packets is not an outage.
const GAP: Span = Span::from_millis(60);

/// The minimum to which congestion lowers each client's limit, with this number of clients, in
/// bit/s.
fn floor(clients: usize) -> f64 {
    (FLOOR / clients.max(1) as f64).max(SILENT)
}

/// The measurements between two reports.
#[derive(Debug, Clone, Copy)]
struct Period {
    /// The recent arrival rate, the mean arrival rate, and the sending rate, in bit/s.
    rate: f64,
    mean: f64,
    sent: f64,
    /// For how long these packets were sent, and for how long they arrived, in seconds.
    sending: f64,
    span: f64,
    /// The part of `sending` that the sender gave up, in seconds.
    given_up: f64,
    /// Packets received, and packets lost.
    packets: f64,
    lost: f64,
    /// Bits of the lost ones.
    lost_bits: f64,
    excess: Span,
}

impl Period {
    fn loss(&self) -> f64 {
        self.lost / (self.packets + self.lost).max(1.0)
    }

    /// Whether the sender was late or had little to send, so that arrivals do not measure the
    /// path's capacity.
    fn is_sender_limited(&self) -> bool {
        self.given_up > LATE * self.sending
    }

    /// The rate of arrivals, without the time that the sender gave up.
    fn busy_rate(&self) -> f64 {
        self.mean * self.span / (self.span - self.given_up).max(BUSY * self.span)
    }
}

/// A queue that is expected to drain.
#[derive(Debug, Clone, Copy)]
struct Draining {
    /// Its delay at the start, and for how long the sending rate was at most the arrival rate, in
    /// seconds.
    excess: f64,
    seconds: f64,
}

/// Losses that are expected to stop.
#[derive(Debug, Clone, Copy)]
struct Losing {
    since: Time,
    /// The limit at the start.
    rate: f64,
    /// Packets received since then at a lower limit, and packets lost.
    packets: f64,
    lost: f64,
}

/// The limit of one client.
#[derive(Debug, Clone)]
pub(super) struct Limit {
    interval: Span,
    /// L without silence, in bit/s.
    rate: f64,
    /// The number of halvings by silence.
    halvings: u32,
    /// C, once there was congestion.
    saturated: Option<f64>,
    step: f64,
    /// The limit before it was lowered, possibly several times.
    peak: f64,
    /// When that was noted.
    peak_at: Time,
    /// Whether a step has raised it since it was last lowered.
    is_probing: bool,
    /// Probes in a row that ended in congestion.
    failures: u32,
    hold_until: Time,
    changed_at: Time,
    cut_at: Time,
    /// When it was last lowered by more than 5 %.
    big_cut_at: Time,
    heard_at: Time,
    joined_at: Time,
    last: Option<Delivery>,
    /// The mean size of packets with their headers, in bits.
    packet: f64,
    draining: Option<Draining>,
    losing: Option<Losing>,
    /// A gap that is still to be classified: since when, and its length.
    gap: Option<(Time, Span)>,
    /// Until when a queue is attributed to other traffic.
    shared_until: Option<Time>,
    /// The loss fraction that does not depend on the rate, and until when it applies.
    stray: Option<(f64, Time)>,
    /// Whether the application had nothing to send at some time since the last report.
    is_app_limited: bool,
}

impl Limit {
    /// A client that joins `others`.
    pub(super) fn new(now: Time, interval: Span, others: usize) -> Self {
        Self {
            interval: interval.max(Span::from_millis(1)),
            rate: (START / (others + 1) as f64).max(SILENT),
            halvings: 0,
            saturated: None,
            step: STEP,
            peak: 0.0,
            peak_at: now,
            is_probing: false,
            failures: 0,
            hold_until: now,
            changed_at: now,
            cut_at: now,
            big_cut_at: now,
            heard_at: now,
            joined_at: now,
            last: None,
            packet: 12_000.0,
            draining: None,
            losing: None,
            gap: None,
            shared_until: None,
            stray: None,
            is_app_limited: false,
        }
    }

    /// There was nothing to send.
    pub(super) fn on_app_limited(&mut self) {
        self.is_app_limited = true;
    }

    /// L.
    pub(super) fn rate(&self) -> BitRate {
        // 64 halvings of any rate are below the minimum.
        let halved = self.rate * libm::exp2(-f64::from(self.halvings.min(64)));
        BitRate::from_bps(halved.clamp(SILENT, CEILING) as u64)
    }

    /// When silence halves the limit next; `None` if that has no effect.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let [first, further] = self.silence();
        (self.halvings < 64).then(|| self.heard_at + first + further * u64::from(self.halvings))
    }

    /// The duration of silence until the first halving, and until each further one.
    fn silence(&self) -> [Span; 2] {
        let interval = self.interval.max(SILENCE);
        let due = Span::from_secs_f64(DUE * self.packet / self.rate.max(SILENT));
        [(interval * 13 / 4).max(due), interval]
    }

    /// Time has passed.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        let [first, further] = self.silence();
        let silent = now.since(self.heard_at);
        if silent >= first {
            let over = (silent - first).as_nanos() / further.as_nanos();
            self.halvings = u32::try_from(over + 1).unwrap_or(64).min(64);
        }
    }

    /// A report has arrived. `headers` is the size of the IP and UDP headers of a datagram, in
    /// bytes; `wanted` is the law's rate; `clients` is the number of clients now.
    pub(super) fn on_delivery(
        &mut self,
        now: Time,
        delivery: &Delivery,
        headers: u64,
        wanted: BitRate,
        clients: usize,
    ) {
        self.handle_timeout(now);
        let Some(before) = self.last.replace(*delivery) else {
            // The first report has nothing to compare with; the second one has.
            self.confirm(now);
            return;
        };
        let Some(mut period) = self.period(&before, delivery, headers) else { return };
        if self.awaits_rest(now, &period, delivery) {
            self.last = Some(before);
            return;
        }
        let gap = self.gap.take().map_or(Span::ZERO, |(_, gap)| gap);
        self.leave_out_outage(&mut period, gap);
        let numbered = delivery.newest_seq.saturating_sub(before.newest_seq);
        if period.packets >= 2.0 || numbered <= 2 {
            self.confirm(now);
        }
        // Where the queue is empty, competing flows have no queue either.
        let is_over = |until| period.excess <= CLEAN || until <= now;
        if self.shared_until.is_some_and(is_over) {
            self.shared_until = None;
        }
        if self.stray.is_some_and(|(_, until)| until <= now) {
            self.stray = None;
        }
        // Packets sent before the limit was lowered say little about the new limit.
        let straddles = before.newest_sent_at < self.cut_at;
        let is_queued = self.shared_until.is_none() && period.excess > QUEUED;
        let all = period.packets + period.lost;
        let stray = self.stray.map_or(STRAY * all, |(part, _)| {
            // The expected number, and two standard deviations.
            part * all + 2.0 * libm::sqrt(part * all)
        });
        let is_lossy = period.lost > stray && (period.lost > 1.0 || period.packets < 50.0);
        // Behind a queue of other traffic, compare the flow's arrival rate with its sending rate.
        let is_slow = self.shared_until.is_some()
            && period.sending >= self.interval.as_secs_f64() / 2.0
            && period.mean < SLOW * period.sent;
        if is_queued {
            self.watch_drain(now, &period);
        }
        let is_of_before = before.newest_sent_at < self.big_cut_at;
        self.watch_losses(now, &period, is_lossy && !is_queued, is_of_before);
        // At the start, a step of 300 % loses more on a slow link than stray losses do.
        let is_starting = self.saturated.is_none() && now.since(self.joined_at) < STARTING;
        let is_forgiven = is_starting && !is_queued && period.loss() < SMALL_LOSS;
        if (is_queued || is_lossy || is_slow) && !is_forgiven {
            self.on_congestion(now, &period, is_queued, straddles);
        } else if self.shared_until.is_some() || period.excess <= CLEAN {
            self.draining = None;
            self.on_clean(now, &period, delivery, wanted.as_bps() as f64);
        }
        self.is_app_limited = false;
        self.rate = self.rate.clamp(floor(clients), CEILING);
    }

    /// The client has reported: silence ends, at the rate to which it has lowered the limit.
    fn confirm(&mut self, now: Time) {
        if self.halvings > 0 {
            // The halvings have already answered the losses of the silence.
            self.note_peak(now);
            self.cut_at = now;
            self.rate = self.rate().as_bps() as f64;
            self.halvings = 0;
            // A rate that was reached before does not need small steps.
            (self.step, self.failures, self.hold_until) = (1.0, 0, now);
            (self.is_probing, self.changed_at) = (true, now);
        }
        self.heard_at = now;
    }

    /// The measurements between two reports; `None` if they do not allow any.
    fn period(&mut self, before: &Delivery, after: &Delivery, headers: u64) -> Option<Period> {
        let numbered = after.newest_seq.checked_sub(before.newest_seq)?;
        let span = after.newest_received_at.since(before.newest_received_at).as_secs_f64();
        let sending = after.newest_sent_at.since(before.newest_sent_at).as_secs_f64();
        // Counts wrap; late packets may arrive in addition to those of the period.
        let packets = u64::from(after.packets.wrapping_sub(before.packets));
        let packets = packets.min(numbered.saturating_add(64));
        if numbered == 0 || span <= 0.0 || sending <= 0.0 {
            return None;
        }
        let reported = before.delivered.zip(after.delivered);
        let bytes = reported.map(|(before, after)| after.bytes.wrapping_sub(before.bytes));
        if let Some(bytes) = bytes.filter(|_| packets > 0) {
            let mean = bytes as f64 / packets as f64 + headers as f64;
            self.packet = (8.0 * mean).clamp(8.0 * 28.0, 8.0 * 65_536.0);
        }
        let lost = numbered.saturating_sub(packets) as f64;
        let recent = after.delivered.map_or(0.0, |reported| reported.rate.as_bps() as f64);
        let mean = packets as f64 * self.packet / span;
        let with_headers = self.packet / (self.packet - 8.0 * headers as f64).max(8.0);
        let rate = if recent > 0.0 { recent * with_headers } else { mean };
        Some(Period {
            rate: rate.min(CEILING),
            mean: mean.min(CEILING),
            sent: numbered as f64 * self.packet / sending,
            sending,
            span,
            given_up: (f64::from(after.given_up.wrapping_sub(before.given_up)) / 1e6).min(sending),
            packets: packets as f64,
            lost,
            lost_bits: lost * self.packet,
            excess: after.delivered.map_or(Span::ZERO, |reported| reported.excess),
        })
    }

    /// Whether a gap has just ended: the packets after it will show whether it was an outage.
    fn awaits_rest(&mut self, now: Time, period: &Period, delivery: &Delivery) -> bool {
        let reported = delivery.delivered.map_or(Span::ZERO, |reported| reported.gap);
        let (since, before) = self.gap.unwrap_or((now, Span::ZERO));
        let gap = reported.max(before);
        self.gap = Some((since, gap));
        let rest = period.span - gap.as_secs_f64();
        let is_own = period.given_up > gap.as_secs_f64() / 2.0;
        let is_gap = gap > GAP && !is_own && gap.as_secs_f64() > 8.0 * self.packet / period.sent;
        is_gap
            && rest < (self.interval.as_secs_f64() / 4.0).min(0.1)
            && now.since(since) < self.interval
    }

    /// Leaves out the losses of an outage: packets lost in a gap without arrivals, after which
    /// packets arrived as fast as before. No queue caused these losses.
    fn leave_out_outage(&self, period: &mut Period, gap: Span) {
        let rest = period.span - gap.as_secs_f64();
        let gap = gap.as_secs_f64();
        // The gap may be a pause of the application, or of the sender.
        if self.is_app_limited
            || period.given_up > gap / 2.0
            || period.packets < 8.0
            || gap < GAP.as_secs_f64()
            || gap < 8.0 * self.packet / period.sent
            || rest <= 0.0
        {
            return;
        }
        let flowing = period.packets * self.packet / rest;
        let is_as_before = flowing >= 0.9 * period.sent.min(self.rate);
        if is_as_before && period.lost_bits <= 1.2 * gap * period.sent {
            (period.lost, period.lost_bits) = (0.0, 0.0);
            period.rate = period.rate.max(flowing);
        }
    }

    /// Finds out whether a queue is that of other traffic: it persists although no more is sent
    /// than arrives.
    ///
    /// The flow's own queue would have shrunk to a twentieth: at the rate C·(1 − q/0.5 s) it falls
    /// with a time constant of 0.5 s.
    fn watch_drain(&mut self, now: Time, period: &Period) {
        let excess = period.excess.as_secs_f64();
        let delivered_of = period.sent * (1.0 - period.loss());
        let Some(draining) = self.draining.as_mut().filter(|_| delivered_of <= 1.05 * period.rate)
        else {
            self.draining = Some(Draining { excess, seconds: 0.0 });
            return;
        };
        draining.seconds += period.sending;
        let drained = draining.excess - excess;
        if draining.seconds >= DRAIN_PATIENCE {
            if drained < 0.3 * draining.excess.min(1.0) {
                self.shared_until = Some(now + SHARED);
                self.draining = None;
            } else {
                *draining = Draining { excess, seconds: 0.0 };
            }
        }
    }

    /// Finds out whether losses are caused by other traffic: they continue although less is sent.
    fn watch_losses(&mut self, now: Time, period: &Period, is_lossy: bool, is_of_before: bool) {
        let Some(losing) = &mut self.losing else {
            let rate = self.rate;
            self.losing = is_lossy.then_some(Losing { since: now, rate, packets: 0.0, lost: 0.0 });
            return;
        };
        if !is_of_before {
            losing.packets += period.packets;
            losing.lost += period.lost;
        }
        if now.since(losing.since) < LOSS_PATIENCE {
            return;
        }
        let loss = losing.lost / (losing.packets + losing.lost).max(1.0);
        if loss > STRAY && loss <= STRAY_MOST && losing.lost > 2.0 {
            if self.rate > losing.rate {
                let rate = self.rate;
                *losing = Losing { since: now, rate, packets: 0.0, lost: 0.0 };
                return;
            }
            if self.rate > 0.97 * losing.rate {
                return;
            }
            self.stray = Some(((1.1 * loss).min(STRAY_MOST), now + SHARED));
        }
        self.losing = None;
    }

    /// Lowers the limit: L = C·u.
    fn on_congestion(&mut self, now: Time, period: &Period, is_queued: bool, straddles: bool) {
        let is_small = !is_queued && period.loss() < SMALL_LOSS;
        if is_small && now.since(self.cut_at) < self.interval.min(ANSWER) {
            return;
        }
        // The mean since the last urgent report is more recent than the client's recent rate.
        let is_short = (0.05..0.2).contains(&period.span) && period.packets >= 32.0;
        let rate = if is_short && !is_small { period.rate.min(period.mean) } else { period.rate };
        // A late sender would lower its limit to its sending rate and then send even less,
        // repeatedly.
        let rate = if period.is_sender_limited() { rate.max(period.busy_rate()) } else { rate };
        let known = self.saturated.map_or(self.rate, |saturated| saturated.max(self.rate));
        // An arrival rate above every sending rate so far is due to packets that were held up.
        let saturated = rate.min(known).max(SILENT);
        // If little was sent, a late or lost packet says little about the path's capacity.
        let is_idle = self.is_app_limited && !self.is_tried(period);
        let saturated = if is_idle { saturated.max(LEAST * self.rate) } else { saturated };
        let stray = self.stray.map_or(0.0, |(part, _)| part);
        let excess = if is_queued { period.excess.as_secs_f64() } else { 0.0 };
        let lost = period.lost_bits - stray * (period.packets + period.lost) * self.packet;
        let used = 1.0 - excess / DRAIN - lost.max(0.0) / saturated;
        let wanted = saturated * if is_idle { 1.0 } else { used.clamp(LEAST, 1.0) };
        let rate =
            if straddles && !is_queued { wanted.max(self.rate.min(saturated)) } else { wanted };
        self.note_peak(now);
        self.step = if self.is_probing || now.since(self.cut_at) < self.interval * 2 {
            self.step.min(STEP)
        } else {
            FIRST_STEP
        };
        if self.is_probing {
            self.failures = (self.failures + 1).min(2);
            self.is_probing = false;
        }
        if rate < self.peak / 4.0 {
            // Less than a quarter of the peak: the cause may soon be over.
            self.step = 1.0;
        }
        self.hold_until = now + self.interval * u64::from(self.failures);
        self.saturated = Some(saturated);
        if rate < self.rate {
            self.cut_at = now;
            if rate < 0.95 * self.rate {
                self.big_cut_at = now;
            }
        }
        self.rate = rate;
        self.changed_at = now;
    }

    /// Notes the peak before the limit is lowered. A peak expires, regardless of the number of cuts
    /// after it: otherwise a path that has become slower would be probed by doubling forever.
    fn note_peak(&mut self, now: Time) {
        if self.peak == 0.0 || now.since(self.peak_at) > EPISODE {
            (self.peak, self.peak_at) = (self.rate, now);
        }
    }

    /// Returns the limit to the rate that arrived, then raises it by steps.
    fn on_clean(&mut self, now: Time, period: &Period, delivery: &Delivery, wanted: f64) {
        let since = delivery.newest_sent_at.since(self.changed_at);
        if delivery.newest_sent_at < self.changed_at {
            return;
        }
        let Some(saturated) = self.saturated else {
            let confirmed = OPEN * period.rate.min(period.sent);
            // A sender on a busy host is late, and the lower its rate, the later: a limit that it
            // does not reach must still be able to rise.
            let untried = if self.is_app_limited { 0.0 } else { wanted.min(UNTRIED * self.rate) };
            self.rate = self.rate.max(confirmed).max(untried);
            self.changed_at = now;
            return;
        };
        let back = BACK * saturated;
        if self.rate < back && !self.is_probing {
            (self.rate, self.changed_at) = (back, now);
            return;
        }
        // A late sender's bursts try the path at the limit.
        let is_late = period.is_sender_limited() && !self.is_app_limited;
        let is_tried = is_late || self.is_tried(period);
        if now < self.hold_until || since < self.interval / 2 || !is_tried {
            return;
        }
        if self.step > 2.0 * STEP {
            self.failures = 0;
        }
        let most = if is_late { OPEN } else { CAREFUL } * period.rate.min(period.sent);
        let raised = (self.rate * (1.0 + self.step)).min(most);
        self.rate = self.rate.max(raised);
        self.step = if self.shared_until.is_some() { STEP } else { (2.0 * self.step).min(1.0) };
        (self.is_probing, self.changed_at, self.losing) = (true, now, None);
    }

    /// Whether at least half of the limit was sent, with a tolerance of two packets.
    fn is_tried(&self, period: &Period) -> bool {
        let slack = 1.0 + 2.0 / period.packets.max(1.0);
        period.sent * slack >= TRIED * self.rate
    }
}
