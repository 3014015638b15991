//! A server's requests to its driver, and its output.

use alloc::vec::Vec;
use core::hash::Hash;

use super::Server;
use super::outbox::put;
use crate::dscp::Dscp;
use crate::session::downlink::feed::Pending;
use crate::session::downlink::record::{ClientKey, ClientRecord};
use crate::session::downlink::types::{PutError, ServerTransmit};
use crate::unit::{Bytes, Time};
use crate::wire::{Close, CloseReason, Packet};
use crate::wlan::DownlinkLaw;

impl<P: Copy + Eq + Hash> Server<P> {
    // ---- payloads ----

    /// The payload of a client's next packet: the answer to
    /// [`ServerEvent::PacketWanted`](super::ServerEvent::PacketWanted), or at any other time. The
    /// packet is sent when the law allows it.
    ///
    /// # Errors
    /// [`PutError`] if it was not taken.
    pub fn put(&mut self, now: Time, client: ClientKey, payload: &[u8]) -> Result<(), PutError> {
        let (given, max) = (payload.len(), self.params.max_payload);
        let Some(record) = self.records.get_mut(client.index()) else {
            return Err(PutError::Gone);
        };
        match record.feed.pending() {
            _ if given > max => return Err(PutError::TooLarge { given, max }),
            Pending::Payload => return Err(PutError::Occupied),
            Pending::Nothing => self.sending.push(client.0),
            Pending::KeepAlive | Pending::Done => {}
        }
        record.pace.on_something_to_send(now);
        record.feed.put(payload);
        Ok(())
    }

    /// There is nothing to send to a client at present. It gets an empty packet once per interval,
    /// and the driver is asked before each of them, and after [`Server::resume`].
    pub fn pause(&mut self, now: Time, client: ClientKey) {
        self.on_nothing_to_send(now, client, false);
    }

    /// There is nothing more to send to a client: it gets a close ([`CloseReason::Done`]) now, and
    /// once per interval until it leaves, as a close may be lost.
    pub fn finish(&mut self, now: Time, client: ClientKey) {
        self.on_nothing_to_send(now, client, true);
    }

    /// There may be something to send to a client again.
    pub fn resume(&mut self, now: Time, client: ClientKey) {
        if let Some(record) = self.records.get_mut(client.index()) {
            record.pace.on_something_to_send(now);
            record.feed.on_news();
        }
    }

    // ---- output ----

    /// Writes the next datagram that may be sent now to the front of `out`, which grows to its
    /// length; call until it returns `None`.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<ServerTransmit<P>> {
        if let Some(answer) = self.poll_answer(out) {
            return Some(answer);
        }
        if self.is_closing {
            return None;
        }
        self.write_packet(now, out)
    }

    /// Writes answers only, for a driver that sends them by other means than packets: as
    /// [`Server::poll_transmit`], which writes these first.
    pub fn poll_answer(&mut self, out: &mut Vec<u8>) -> Option<ServerTransmit<P>> {
        self.outbox.write(out)
    }

    /// Writes the ready packet that has been due for the longest time.
    fn write_packet(&mut self, now: Time, out: &mut Vec<u8>) -> Option<ServerTransmit<P>> {
        let ready = self.sending.iter().map(|key| self.records[*key as usize].leaves_at());
        let (place, at) = ready.enumerate().min_by_key(|(_, at)| *at)?;
        if at > now {
            return None;
        }
        let key = self.sending.remove(place);
        let client = ClientKey(key);
        let record = &mut self.records[key as usize];
        let peer = record.peer;
        let was_idle = record.is_idle();
        let payload = match record.feed.take() {
            Pending::Payload => record.feed.payload(),
            Pending::KeepAlive | Pending::Nothing => &[],
            Pending::Done => {
                record.closed_at = Some(now);
                let close = Close { session: record.session, reason: CloseReason::Done };
                let len = put(out, &close.bytes());
                return Some(ServerTransmit {
                    peer,
                    len,
                    dscp: Dscp::DEFAULT,
                    client: Some(client),
                });
            }
        };
        let packet = Packet {
            session: record.session,
            seq: record.packets,
            sent_at: now,
            clock_offset: record.clock_offset.nanos(),
            interval: self.params.interval,
            ack_mark: self.params.ack_mark,
            payload,
        };
        let payload_len = payload.len();
        let len = Packet::HEADER_LEN + payload_len;
        if out.len() < len {
            out.resize(len, 0);
        }
        let len = packet.write(out)?;
        let size = Bytes::new(len as u64) + self.params.headers;
        let takes = self.law.rate(client.station()).time_to_send(size);
        record.on_sent(now, payload_len, takes, self.params.catch_up);
        if was_idle {
            // A keep-alive is not something to send.
            record.pace.on_nothing_to_send();
        }
        self.counters.packets += 1;
        self.counters.payload_bytes += payload_len as u64;
        Some(ServerTransmit { peer, len, dscp: self.params.dscp, client: Some(client) })
    }

    // ---- requests ----

    /// Asks for the packet that has been due for the longest time. A client whose driver has not
    /// answered for an interval gets a keep-alive.
    pub(super) fn look_for_due(&mut self, now: Time) {
        while let Some((key, _)) = self.next_due().filter(|(_, at)| *at <= now) {
            let record = &mut self.records[key as usize];
            if !record.feed.is_asked() {
                self.wanted = Some(key);
                return;
            }
            record.feed.keep_alive();
            self.sending.push(key);
        }
        self.wanted = None;
    }

    /// The client for which the driver is to be asked now.
    pub(super) fn poll_wanted(&mut self) -> Option<ClientKey> {
        let key = self.wanted.take()?;
        let record = self.records.get_mut(key as usize)?;
        // A payload may have been put in the meantime.
        if record.feed.is_asked() || record.feed.pending() != Pending::Nothing {
            return None;
        }
        record.feed.on_asked();
        Some(ClientKey(key))
    }

    /// When the driver is to be asked next, or a ready packet is sent.
    pub(super) fn packet_at(&self) -> Option<Time> {
        let ready = self.sending.iter().map(|key| self.records[*key as usize].leaves_at());
        Time::earliest([ready.min(), self.next_due().map(|(_, at)| at)])
    }

    fn on_nothing_to_send(&mut self, now: Time, client: ClientKey, is_over: bool) {
        let interval = self.params.interval;
        let Some(record) = self.records.get_mut(client.index()) else { return };
        if record.feed.pending() != Pending::Nothing {
            // The pending packet is sent first.
            return;
        }
        let is_first = is_over && !record.is_idle();
        let is_due = record.keep_alive_at(interval) <= now;
        record.feed.on_nothing(is_over);
        record.pace.on_nothing_to_send();
        if is_first || is_due {
            record.feed.keep_alive();
            self.sending.push(client.0);
        }
        self.law.on_app_limited(now, client.station());
    }

    /// The client without a pending packet that is due first.
    fn next_due(&self) -> Option<(u32, Time)> {
        let interval = self.params.interval;
        let waiting =
            |(_, record): &(usize, &ClientRecord<P>)| record.feed.pending() == Pending::Nothing;
        let due = self.records.iter().filter(waiting);
        due.map(|(key, record)| (key as u32, record.due(interval))).min_by_key(|(_, at)| *at)
    }
}
