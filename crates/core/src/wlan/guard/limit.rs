//! The limit of one client's rate: see [`super`].

use crate::unit::{BitRate, Span, Time};
use crate::wlan::delivery::Delivery;

/// The limit of a client that has reported nothing, over all clients: 10 Mbit/s.
const START: f64 = 10e6;
/// No congestion lowers limits below this, over all clients: 500 kbit/s.
const FLOOR: f64 = 500e3;
/// Silence does, but not below 16 kbit/s: a packet in 0.75 s.
const SILENT: f64 = 16e3;
/// Silence is counted in intervals, but not in shorter ones than this.
const SILENCE: Span = Span::from_millis(500);
/// So many packets at the limit must have been due before silence means anything.
const DUE: f64 = 2.5;
/// No limit is above.
const CEILING: f64 = 1e12;
/// An excess up to this is no queue.
const CLEAN: Span = Span::from_millis(10);
/// An excess above this is one. Between both the limit stays.
const QUEUED: Span = Span::from_millis(20);
/// The queueing delay at which a queue alone would take all of the rate.
const DRAIN: f64 = 0.5;
/// What a limit is of the rate that arrives, at least.
const LEAST: f64 = 0.5;
/// By what part confirmed rates are exceeded before the first congestion, in multiples.
const OPEN: f64 = 4.0;
/// The same afterwards, unless the sender was late: then it is as before.
const CAREFUL: f64 = 2.0;
/// By how many times a limit that was not reached may grow a report before the first congestion.
const UNTRIED: f64 = 1.5;
/// The first step after a probe that failed.
const STEP: f64 = 0.05;
/// The first step after other congestion.
const FIRST_STEP: f64 = 0.2;
/// How long the limit before a cut is the peak of those that follow.
const EPISODE: Span = Span::from_secs(10);
/// The part of the limit that must have been sent for it to count as tried. Not more: a sender on a
/// busy host is late, and sends less than it may.
const TRIED: f64 = 0.5;
/// A limit returns to this part of the rate that arrived while a queue stood.
const BACK: f64 = 0.98;
/// Losses up to this part are no congestion.
const STRAY: f64 = 0.002;
/// Larger losses are answered at once, smaller ones once an interval, or half a second.
const SMALL_LOSS: f64 = 0.08;
const ANSWER: Span = Span::from_millis(500);
/// Losses up to this part may be those of others.
const STRAY_MOST: f64 = 0.05;
/// How long losses must go on at lower rates until they are others'.
const LOSS_PATIENCE: Span = Span::from_millis(1500);
/// How long a queue may stay until it is others', in seconds.
const DRAIN_PATIENCE: f64 = 1.5;
/// How long a queue or losses are believed to be others'.
const SHARED: Span = Span::from_secs(30);
/// What arrives among others must be this part of what was sent, or the limit follows it.
const SLOW: f64 = 0.97;
/// For how long small losses are no congestion, if there was none.
const STARTING: Span = Span::from_secs(10);
/// A sender that gave up more of the time than this was the limit itself.
const LATE: f64 = 0.1;
/// What such a sender sent is taken to have taken this part of the time at least.
const BUSY: f64 = 0.05;
/// A shorter time without packets is no outage.
const GAP: Span = Span::from_millis(60);

/// The minimum to which congestion lowers each client's limit, with this number of clients, in bit/s.
fn floor(clients: usize) -> f64 {
    (FLOOR / clients.max(1) as f64).max(SILENT)
}

/// What one report showed.
#[derive(Debug, Clone, Copy)]
struct Period {
    /// The rate of the latest arrivals, that of all, and that of what was sent, in bit/s.
    rate: f64,
    mean: f64,
    sent: f64,
    /// How long those packets were sent, and took to arrive, in seconds.
    sending: f64,
    span: f64,
    /// How much of `sending` the sender gave up.
    given_up: f64,
    /// Packets that came, and that did not.
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

    /// Whether the sender was late or had little to send, so that arrivals are no measure of what the
    /// path carries.
    fn is_sender_limited(&self) -> bool {
        self.given_up > LATE * self.sending
    }

    /// The rate of arrivals, without the time that the sender gave up.
    fn busy_rate(&self) -> f64 {
        self.mean * self.span / (self.span - self.given_up).max(BUSY * self.span)
    }
}

/// A queue that should drain.
#[derive(Debug, Clone, Copy)]
struct Draining {
    /// Its delay at the beginning, and for how long less was sent than arrives, in seconds.
    excess: f64,
    seconds: f64,
}

/// Losses that should stop.
#[derive(Debug, Clone, Copy)]
struct Losing {
    since: Time,
    /// The limit then.
    rate: f64,
    /// Packets sent below it, and how many of them were lost.
    packets: f64,
    lost: f64,
}

/// The limit of one client.
#[derive(Debug, Clone)]
pub(super) struct Limit {
    interval: Span,
    /// L without silence, in bit/s.
    rate: f64,
    /// How many times it is halved by silence.
    halvings: u32,
    /// C, once there was congestion.
    saturated: Option<f64>,
    step: f64,
    /// The limit before it was lowered, perhaps several times.
    peak: f64,
    /// When that was noted.
    peak_at: Time,
    /// Whether it was raised by a step since it was last lowered.
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
    /// Since when a gap is not judged, and how long it was.
    gap: Option<(Time, Span)>,
    /// Until when a queue is taken for others'.
    shared_until: Option<Time>,
    /// The part of packets that is lost whatever the rate, and until when that is believed.
    stray: Option<(f64, Time)>,
    /// Whether there was nothing to send at times since the last report.
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
        // 64 halvings of anything are the floor.
        let halved = self.rate * libm::exp2(-f64::from(self.halvings.min(64)));
        BitRate::from_bps(halved.clamp(SILENT, CEILING) as u64)
    }

    /// When silence halves it next; `None` where that changes nothing.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let [first, further] = self.silence();
        (self.halvings < 64).then(|| self.heard_at + first + further * u64::from(self.halvings))
    }

    /// How long it must be silent for the first halving, and for each further one.
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

    /// A report has come. `headers` is what IP adds to a datagram, in bytes; `wanted` is the law's
    /// rate; `clients` is the number of clients now.
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
            // What came before nothing is compared with; the second report is.
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
        // Packets of the time before the limit was lowered say less of it.
        let straddles = before.newest_sent_at < self.cut_at;
        let is_queued = self.shared_until.is_none() && period.excess > QUEUED;
        let all = period.packets + period.lost;
        let stray = self.stray.map_or(STRAY * all, |(part, _)| {
            // As many as by chance.
            part * all + 2.0 * libm::sqrt(part * all)
        });
        let is_lossy = period.lost > stray && (period.lost > 1.0 || period.packets < 50.0);
        // In a queue of others, one's own part of the arrivals is what counts.
        let is_slow = self.shared_until.is_some()
            && period.sending >= self.interval.as_secs_f64() / 2.0
            && period.mean < SLOW * period.sent;
        if is_queued {
            self.watch_drain(now, &period);
        }
        let is_of_before = before.newest_sent_at < self.big_cut_at;
        self.watch_losses(now, &period, is_lossy && !is_queued, is_of_before);
        // At the start, what a step of 300 % loses in a slow link is more than stray losses.
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

    /// The client is there: silence ends, at the rate that it left.
    fn confirm(&mut self, now: Time) {
        if self.halvings > 0 {
            // The halvings have already answered the losses of the silence.
            self.note_peak(now);
            self.cut_at = now;
            self.rate = self.rate().as_bps() as f64;
            self.halvings = 0;
            // What it once had needs no small steps.
            (self.step, self.failures, self.hold_until) = (1.0, 0, now);
            (self.is_probing, self.changed_at) = (true, now);
        }
        self.heard_at = now;
    }

    /// `None` where two reports tell nothing.
    fn period(&mut self, before: &Delivery, after: &Delivery, headers: u64) -> Option<Period> {
        let numbered = after.newest_seq.checked_sub(before.newest_seq)?;
        let span = after.newest_received_at.since(before.newest_received_at).as_secs_f64();
        let sending = after.newest_sent_at.since(before.newest_sent_at).as_secs_f64();
        // Numbers wrap; late packets may come beside those of the period.
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

    /// Whether a gap has just ended: what comes after it tells whether that was an outage.
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

    /// Packets that were lost while nothing at all came, and the flow went on as before afterwards:
    /// that was no queue.
    fn leave_out_outage(&self, period: &mut Period, gap: Span) {
        let rest = period.span - gap.as_secs_f64();
        let gap = gap.as_secs_f64();
        // A gap may be a pause of the application, or of the sender.
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

    /// A queue that stays although no more is sent than arrives is others'.
    ///
    /// One's own would have shrunk to a twentieth: at the rate C·(1 − q/0.5 s) it falls with a time
    /// constant of 0.5 s.
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

    /// Losses that stay although less is sent are others'.
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

    /// L = C·u.
    fn on_congestion(&mut self, now: Time, period: &Period, is_queued: bool, straddles: bool) {
        let is_small = !is_queued && period.loss() < SMALL_LOSS;
        if is_small && now.since(self.cut_at) < self.interval.min(ANSWER) {
            return;
        }
        // The time since the last urgent report is newer than what the client calls its latest.
        let is_short = (0.05..0.2).contains(&period.span) && period.packets >= 32.0;
        let rate = if is_short && !is_small { period.rate.min(period.mean) } else { period.rate };
        // A late sender would lower its limit to what it sends, and send less below it: again and again.
        let rate = if period.is_sender_limited() { rate.max(period.busy_rate()) } else { rate };
        let known = self.saturated.map_or(self.rate, |saturated| saturated.max(self.rate));
        // More than was ever sent comes only where something had held it up.
        let saturated = rate.min(known).max(SILENT);
        // Where little was sent, a late or a lost packet says little of what the path carries.
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
            // Many times less than before: what went wrong may soon be over.
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

    /// The limit is about to be lowered. A peak grows old however many cuts follow it: where it stayed, a
    /// path that has become slower would be probed by doubling for good.
    fn note_peak(&mut self, now: Time) {
        if self.peak == 0.0 || now.since(self.peak_at) > EPISODE {
            (self.peak, self.peak_at) = (self.rate, now);
        }
    }

    /// Back to what arrived, then upwards by steps.
    fn on_clean(&mut self, now: Time, period: &Period, delivery: &Delivery, wanted: f64) {
        let since = delivery.newest_sent_at.since(self.changed_at);
        if delivery.newest_sent_at < self.changed_at {
            return;
        }
        let Some(saturated) = self.saturated else {
            let confirmed = OPEN * period.rate.min(period.sent);
            // A sender on a busy host is late, and the later the lower its rate: what it does not
            // reach must not hold it there.
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
        // At such a sender's bursts the path is tried at the limit.
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

    /// Whether about as much was sent as the limit allows; two packets are as good as a part.
    fn is_tried(&self, period: &Period) -> bool {
        let slack = 1.0 + 2.0 / period.packets.max(1.0);
        period.sent * slack >= TRIED * self.rate
    }
}
