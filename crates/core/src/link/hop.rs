//! One hop: a queue, a transmitter and a line.

use alloc::collections::VecDeque;

use rand::Rng;

use super::line::Line;
use super::loss::LossProcess;
use super::transmitter::{Pace, Transmitter};
use super::{HopStats, LinkParams, Loss};
use crate::router::{Backlog, Drop, DropReason, Drops, Packet, Qdisc};
use crate::unit::{BitRate, Bytes, Packets, Span, Time};

/// A packet at the end of a hop or path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered<P> {
    /// When it arrived, which is before `now` if the driver is late.
    pub at: Time,
    /// The packet.
    pub packet: P,
}

/// A change of a hop's rate or delay at a given time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct HopChange {
    /// When, counted from [`Time::ZERO`]: the start of a simulation, or of an emulator.
    pub at: Span,
    /// The rate from then on, above zero; unchanged where it is missing. See [`Hop::set_rate`].
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub rate: Option<BitRate>,
    /// The delay from then on, at least the jitter; unchanged where it is missing. See
    /// [`Hop::set_delay`].
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub delay: Option<Span>,
}

/// A queue `Q` in front of a link for packets `P`, with the random stream `R`.
///
/// Input is [`Hop::enqueue`], output [`Hop::poll`], and [`Hop::poll_timeout`] returns when to poll
/// next; `now` must not go back. The [module](super) describes the steps in between.
#[derive(Debug)]
pub struct Hop<Q, P, R> {
    link: LinkParams,
    queue: Q,
    transmitter: Transmitter,
    in_transmission: Option<Transmission<P>>,
    /// The time by which the next transmissions are shortened; see [`Hop::make_up`].
    owed: Span,
    loss: LossProcess,
    line: Line<P>,
    rng: R,
    stats: HopStats,
    /// Future changes, in ascending order.
    changes: VecDeque<HopChange>,
}

#[derive(Debug)]
struct Transmission<P> {
    packet: P,
    start: Time,
    duration: Span,
}

impl<P> Transmission<P> {
    fn end(&self) -> Time {
        self.start + self.duration
    }
}

impl<Q: Qdisc<P>, P: Packet, R: Rng> Hop<Q, P, R> {
    /// The maximum number of packets on the line: 1 Gbit/s of full Ethernet frames for 790 ms.
    pub const LINE_PACKETS: usize = Line::<P>::PACKETS;
    /// The maximum number of bytes on the line: 1 Gbit/s for 540 ms.
    pub const LINE_BYTES: Bytes = Line::<P>::BYTES;

    /// An idle hop.
    pub fn new(link: LinkParams, queue: Q, rng: R) -> Self {
        Self {
            transmitter: Transmitter::new(&link),
            loss: LossProcess::new(link.loss),
            link,
            queue,
            in_transmission: None,
            owed: Span::ZERO,
            line: Line::new(),
            rng,
            stats: HopStats::default(),
            changes: VecDeque::new(),
        }
    }

    /// The same hop with these changes of rate or delay, in ascending order.
    pub fn with_changes(mut self, changes: &[HopChange]) -> Self {
        self.changes = changes.iter().copied().collect();
        self
    }

    /// Queues a packet.
    pub fn enqueue(&mut self, now: Time, packet: P, drops: &mut Drops<'_, P>) {
        self.advance(now, drops);
        self.stats.arrived.count_all(&packet);
        if self.link.mtu.is_some_and(|mtu| packet.size() > mtu) {
            counted(&mut self.stats, drops)(Drop { packet, reason: DropReason::TooBig });
            return;
        }
        self.queue.enqueue(now, packet, &mut counted(&mut self.stats, drops));
        if self.in_transmission.is_none() {
            self.transmit_next(now, drops);
        }
    }

    /// The next packet that has arrived by `now`; call until it returns `None`.
    pub fn poll(&mut self, now: Time, drops: &mut Drops<'_, P>) -> Option<Delivered<P>> {
        self.advance(now, drops);
        let (at, packet) = self.line.arrived(now)?;
        self.stats.delivered.count_all(&packet);
        Some(Delivered { at, packet })
    }

    /// The time of the next event: call [`Hop::poll`] then.
    pub fn poll_timeout(&self) -> Option<Time> {
        // A change affects the packet in transmission; otherwise it is applied when it is needed.
        let change = self.next_change().filter(|_| self.in_transmission.is_some());
        Time::earliest([self.line.next_arrival(), self.next_departure(), change])
    }

    /// When a packet can leave the hop at the earliest. A driver that needs only the delivered
    /// packets polls then: earlier events inside the hop are computed with their own times.
    pub fn next_delivery(&self) -> Option<Time> {
        let change = self.next_change().filter(|_| self.in_transmission.is_some());
        let departure = Time::earliest([self.next_departure(), change]);
        let delayed = departure.map(|at| at + self.min_delay());
        Time::earliest([self.line.next_arrival(), delayed])
    }

    /// The minimum delay of all packets from now on.
    fn min_delay(&self) -> Span {
        let later = self.changes.iter().filter_map(|change| change.delay);
        later.fold(self.link.delay, Span::min) - self.link.jitter
    }

    /// The counters so far.
    pub fn stats(&self) -> &HopStats {
        &self.stats
    }

    /// The total transmission time of the link until `now`.
    pub fn busy(&self, now: Time) -> Span {
        let in_flight = |sending: &Transmission<P>| now.since(sending.start).min(sending.duration);
        self.stats.busy + self.in_transmission.as_ref().map_or(Span::ZERO, in_flight)
    }

    /// The used fraction of the link's capacity between `since`, which is before the first packet,
    /// and `now`, from 0 to 1: of the time for a rate, of the opportunities for a trace.
    pub fn utilisation(&self, since: Time, now: Time) -> f64 {
        let elapsed = now.since(since).as_secs_f64();
        match &self.transmitter.pace {
            Pace::Trace(replay) => replay.utilisation(since, now),
            Pace::Rate(_) if elapsed > 0.0 => self.busy(now).as_secs_f64() / elapsed,
            Pace::Rate(_) => 0.0,
        }
    }

    /// The capacity of the link from `since` until `until` in bits, frames included, at its present
    /// rate or by its trace; `None` without a limit.
    pub fn capacity_bits(&self, since: Time, until: Time) -> Option<f64> {
        match &self.transmitter.pace {
            Pace::Trace(replay) => Some(replay.capacity_bits(since, until)),
            Pace::Rate(_) => {
                let seconds = until.since(since).as_secs_f64();
                self.link.rate.map(|rate| rate.as_bps() as f64 * seconds)
            }
        }
    }

    /// Transmits at `rate`, above zero, from now on, also after a trace. The rest of the present
    /// transmission takes no longer than its whole packet takes at `rate`: so a rate that was too
    /// low by mistake can be corrected.
    pub fn set_rate(&mut self, now: Time, rate: BitRate) {
        self.link.rate = Some(rate);
        self.transmitter.set_rate(rate);
        if let Some(sending) = &mut self.in_transmission {
            let whole = rate.time_to_send(self.link.framing.on_wire(sending.packet.size()));
            let left = sending.end().since(now).min(whole);
            sending.duration = now.since(sending.start).min(sending.duration) + left;
        }
    }

    /// Bounds the burst of a transmitter that was not driven for some time: a transmission that
    /// ended before `earliest` ends then, and the time in between is lost. Without this, a hop
    /// makes up for any pause, as an emulator must; but a shaper in front of a real link whose
    /// process was stopped for a second would send a second's worth of packets into that link at
    /// once. Call it before the other methods, with an `earliest` a few ms before their `now`.
    pub fn forgo_until(&mut self, earliest: Time) {
        if let Some(sending) = &mut self.in_transmission
            && sending.end() < earliest
        {
            sending.start += earliest.since(sending.end());
        }
    }

    /// Makes up for `idle`, the time for which the link was idle because a packet that this hop
    /// transmitted no longer existed: the present transmission ends earlier by this time, and so do
    /// the next ones until it is used up, or the queue is empty. For a link with a rate.
    pub fn make_up(&mut self, idle: Span) {
        if let Some(sending) = &mut self.in_transmission {
            let cut = idle.min(sending.duration);
            sending.duration = sending.duration - cut;
            self.owed += idle - cut;
        }
    }

    /// Sets the delay of packets transmitted from now on, at least the jitter; packets in flight
    /// are not affected.
    pub fn set_delay(&mut self, delay: Span) {
        self.link.delay = delay.max(self.link.jitter);
    }

    /// Sets the jitter of packets transmitted from now on, and raises the delay to at least
    /// `jitter`.
    pub fn set_jitter(&mut self, jitter: Span) {
        self.link.jitter = jitter;
        self.set_delay(self.link.delay);
    }

    /// Sets the loss of packets transmitted from now on; a channel with two states starts in the
    /// good one.
    pub fn set_loss(&mut self, loss: Loss) {
        self.loss = LossProcess::new(loss);
    }

    /// The queue.
    pub const fn queue(&self) -> &Q {
        &self.queue
    }

    /// The queue, to change the settings that its discipline allows to change at run time.
    pub fn queue_mut(&mut self) -> &mut Q {
        &mut self.queue
    }

    /// The queued packets, without the packet in transmission.
    pub fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    /// The number of packets that the queue marked instead of dropping them.
    pub fn marked(&self) -> Packets {
        self.queue.marked()
    }

    /// The number of packets in the device before the line: queued and in transmission.
    pub fn held(&self) -> Packets {
        self.queue.backlog().packets + Packets::new(u64::from(self.in_transmission.is_some()))
    }

    /// The packet in transmission, and the fraction of it that has been sent by `now`, from 0 to 1.
    pub fn in_transmission(&self, now: Time) -> Option<(&P, f64)> {
        let sending = self.in_transmission.as_ref()?;
        let sent = now.since(sending.start).as_secs_f64() / sending.duration.as_secs_f64();
        // A transmission without duration is complete.
        Some((&sending.packet, if sent.is_nan() { 1.0 } else { sent.min(1.0) }))
    }

    /// The packets in flight with their arrival times, in the order of arrival.
    pub fn propagating(&self) -> impl Iterator<Item = (Time, &P)> {
        self.line.packets()
    }

    /// The largest delay of a packet whose transmission ends now, delays of a trace excluded.
    pub fn max_delay(&self) -> Span {
        self.link.delay + self.link.jitter
    }

    /// The number of packets in the hop: queued, in transmission and in flight.
    pub fn inside(&self) -> Packets {
        let sending = self.in_transmission.as_ref();
        let sending = sending.map_or(Packets::ZERO, |sending| sending.packet.packets());
        self.queue.backlog().packets + sending + self.line.traffic().packets
    }

    /// The transmitter's next event: the end of a transmission, or a start delayed by the trace or
    /// the queue.
    #[inline]
    fn next_departure(&self) -> Option<Time> {
        match &self.in_transmission {
            Some(sending) => Some(sending.end()),
            None => self.transmitter.next_start().or_else(|| self.queue.poll_timeout()),
        }
    }

    fn next_change(&self) -> Option<Time> {
        self.changes.front().map(|change| Time::ZERO + change.at)
    }

    /// Processes all transmissions and changes until `now`, in order.
    #[inline]
    pub(super) fn advance(&mut self, now: Time, drops: &mut Drops<'_, P>) {
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        // The fast path: usually no event is due.
        if is_due(self.next_departure()) || is_due(self.next_change()) {
            self.catch_up(now, drops);
        }
    }

    fn catch_up(&mut self, now: Time, drops: &mut Drops<'_, P>) {
        while let Some(at) = self.next_change().filter(|at| *at <= now) {
            self.transmit_until(at, drops);
            let Some(HopChange { rate, delay, .. }) = self.changes.pop_front() else { break };
            if let Some(rate) = rate {
                self.set_rate(at, rate);
            }
            if let Some(delay) = delay {
                self.set_delay(delay);
            }
        }
        self.transmit_until(now, drops);
    }

    fn transmit_until(&mut self, now: Time, drops: &mut Drops<'_, P>) {
        while let Some(at) = self.next_departure().filter(|at| *at <= now) {
            if let Some(sent) = self.in_transmission.take() {
                self.stats.busy += sent.duration;
                self.put_on_line(at, sent.packet, drops);
            }
            let started = self.transmit_next(at, drops);
            // A queue that returned nothing is not polled again at the same time.
            if !started && self.next_departure().is_none_or(|next| next <= at) {
                break;
            }
        }
    }

    /// Starts the next transmission, if a packet is queued and may be sent now; returns whether it
    /// did.
    fn transmit_next(&mut self, now: Time, drops: &mut Drops<'_, P>) -> bool {
        if self.queue.backlog().packets == Packets::ZERO {
            self.transmitter.rest();
            self.owed = Span::ZERO;
            return false;
        }
        if !self.transmitter.may_start(now) {
            return false;
        }
        let Some(next) = self.queue.dequeue(now, &mut counted(&mut self.stats, drops)) else {
            self.transmitter.rest();
            return false;
        };
        self.stats.sojourn.record(next.sojourn);
        let duration = self.transmitter.send(now, next.packet.size());
        let cut = self.owed.min(duration);
        self.owed = self.owed - cut;
        let duration = duration - cut;
        self.in_transmission = Some(Transmission { packet: next.packet, start: now, duration });
        true
    }

    fn put_on_line(&mut self, at: Time, packet: P, drops: &mut Drops<'_, P>) {
        let drops = &mut counted(&mut self.stats, drops);
        if self.loss.strikes(&mut self.rng) {
            drops(Drop { packet, reason: DropReason::Loss });
        } else if let Err(packet) = self.line.send(at, packet, &self.link, &mut self.rng) {
            drops(Drop { packet, reason: DropReason::LineFull });
        }
    }
}

/// A sink that counts drops before it passes them on.
fn counted<P: Packet>(stats: &mut HopStats, drops: &mut Drops<'_, P>) -> impl FnMut(Drop<P>) {
    move |drop: Drop<P>| {
        stats.drops.count_all(drop.reason, drop.packet.packets());
        drops(drop);
    }
}
