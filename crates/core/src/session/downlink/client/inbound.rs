//! Processing of received datagrams at a client: packets, challenges and closes.

use super::events::Queued;
use super::types::{ClientIgnored, Stamp};
use super::window::Place;
use super::{Client, boundary};
use crate::session::backoff::mix;
use crate::session::clock_offset::ClockOffset;
use crate::session::downlink::datagram::ReceivedDatagram;
use crate::unit::{Bytes, Span, Time};
use crate::wire::{CloseReason, Cookie, Message, Packet};
use crate::wlan::Arrival;

impl Client {
    pub(super) fn take_in(
        &mut self,
        now: Time,
        stamp: Option<Stamp>,
        datagram: ReceivedDatagram<'_>,
    ) -> Result<(), ClientIgnored> {
        let message = Message::parse(datagram.bytes)?;
        // A late datagram of a former transport must not complete a join: no report could be sent.
        if message.session() != self.session || !self.joiner.is_ready() {
            return Err(ClientIgnored::Misplaced);
        }
        match message {
            Message::Packet(packet) => self.on_packet(now, stamp, &datagram, &packet)?,
            Message::Challenge(challenge) => self.on_challenge(now, challenge.cookie),
            Message::Close(close) => self.on_close(now, close.reason),
            _ => return Err(ClientIgnored::Misplaced),
        }
        self.joiner.on_heard();
        Ok(())
    }

    fn on_packet(
        &mut self,
        now: Time,
        stamp: Option<Stamp>,
        datagram: &ReceivedDatagram<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), ClientIgnored> {
        let Packet { seq, sent_at, interval, payload, .. } = *packet;
        let received_at = datagram.received_at.unwrap_or(now);
        self.remember(now, stamp, packet, received_at)?;
        if self.window.newest().is_some_and(|newest| newest.seq == seq) {
            (self.dscp, self.asked) = (datagram.dscp, packet.ack_mark);
        }
        self.heard_at = now;
        self.counters.packets += 1;
        self.counters.payload_bytes += payload.len() as u64;
        let size = Bytes::new((Packet::HEADER_LEN + payload.len()) as u64);
        self.account.on_packet(received_at, seq, sent_at, size, interval);
        if self.reported.is_some_and(|reported| boundary(sent_at, interval) > reported) {
            let due = now + self.spread(interval);
            self.report_at = Some(self.report_at.map_or(due, |at| at.min(due)));
        }
        if self.joiner.on_packet() {
            self.reported = Some(boundary(sent_at, interval));
            self.report_at = Some(now + interval);
            self.events.push(Queued::Joined);
        }
        let delay = packet.clock_offset.map(|offset| {
            // By an inexact estimate it may arrive before it was sent: then the delay is zero.
            received_at.since(ClockOffset::translate(sent_at, offset))
        });
        let payload = self.events.copied(payload);
        self.events.push(Queued::Packet { seq, sent_at, received_at, delay, payload });
        Ok(())
    }

    /// Notes that a packet has arrived, in the frame with this stamp.
    fn remember(
        &mut self,
        now: Time,
        stamp: Option<Stamp>,
        packet: &Packet<'_>,
        received_at: Time,
    ) -> Result<(), ClientIgnored> {
        let place = self.window.take(packet, received_at).ok_or(ClientIgnored::Copy)?;
        let seq = packet.seq;
        let arrival = stamp.map(|Stamp { at: stamp, rate }| (now, Arrival { seq, stamp, rate }));
        let held = core::mem::take(&mut self.held);
        match place {
            Place::Stray => {
                self.held = arrival;
                return Ok(());
            }
            Place::Moved { skipped, is_back } => {
                if is_back {
                    self.counter.restart();
                }
                if let Some((at, held)) = held {
                    self.counter.on_packet(at, held);
                }
                self.counters.missing = self.counters.missing.saturating_add(skipped);
            }
            Place::Newest { skipped } => {
                self.counters.missing = self.counters.missing.saturating_add(skipped);
            }
            Place::Filled => self.counters.missing = self.counters.missing.saturating_sub(1),
        }
        if let Some((at, arrival)) = arrival {
            self.counter.on_packet(at, arrival);
        }
        Ok(())
    }

    fn on_challenge(&mut self, now: Time, cookie: Cookie) {
        let is_new = self.cookie != cookie;
        self.cookie = cookie;
        if self.joiner.is_joined() {
            self.join_again(now);
        } else if is_new {
            // The same cookie twice means that it was not accepted: then the backoff applies.
            self.joiner.prompt(now);
        }
        self.events.push(Queued::Challenged);
    }

    fn on_close(&mut self, now: Time, reason: CloseReason) {
        self.join_again(now);
        self.joiner.on_close(now, reason);
        self.events.push(Queued::Closed(reason));
    }

    /// Up to a sixteenth of the interval, so that clients do not all report at the same time.
    fn spread(&self, interval: Span) -> Span {
        (interval / 16).mul_f64((mix(self.session.0) >> 11) as f64 / (1u64 << 53) as f64)
    }
}
