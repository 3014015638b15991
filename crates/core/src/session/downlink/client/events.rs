//! The events of a client, queued until its driver polls them.

use alloc::vec::Vec;

use super::types::{ClientEvent, ReceivedPacket};
use crate::session::fifo::Fifo;
use crate::unit::{Span, Time};
use crate::wire::CloseReason;

/// The maximum number of queued events; beyond it, the oldest is dropped. With the payloads of
/// packets this is at most a few MB.
const MAX_EVENTS: usize = 64;

#[derive(Debug)]
pub(super) enum Queued {
    Joined,
    Packet { seq: u64, sent_at: Time, received_at: Time, delay: Option<Span>, payload: Vec<u8> },
    Challenged,
    Closed(CloseReason),
    Silent,
}

#[derive(Debug)]
pub(super) struct Events {
    queue: Fifo<Queued>,
    /// The payload of the last polled event.
    polled: Vec<u8>,
    /// A buffer for the next payload, so that a driver which polls after each datagram causes no
    /// allocation.
    spare: Vec<u8>,
}

impl Events {
    pub(super) fn new() -> Self {
        Self { queue: Fifo::new(), polled: Vec::new(), spare: Vec::new() }
    }

    pub(super) fn push(&mut self, event: Queued) {
        self.queue.push_within(MAX_EVENTS, event);
    }

    /// A copy of a payload, for [`Queued::Packet`].
    pub(super) fn copied(&mut self, payload: &[u8]) -> Vec<u8> {
        let mut copy = core::mem::take(&mut self.spare);
        copy.clear();
        copy.extend_from_slice(payload);
        copy
    }

    pub(super) fn is_empty(&mut self) -> bool {
        self.queue.first_mut().is_none()
    }

    pub(super) fn pop(&mut self) -> Option<ClientEvent<'_>> {
        Some(match self.queue.pop()? {
            Queued::Joined => ClientEvent::Joined,
            Queued::Packet { seq, sent_at, received_at, delay, payload } => {
                self.spare = core::mem::replace(&mut self.polled, payload);
                let payload = &self.polled;
                ClientEvent::Packet(ReceivedPacket { seq, sent_at, received_at, delay, payload })
            }
            Queued::Challenged => ClientEvent::Challenged,
            Queued::Closed(reason) => ClientEvent::Closed(reason),
            Queued::Silent => ClientEvent::Silent,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_packets_that_are_not_polled_the_newest_are_kept_and_their_buffers_are_used_again() {
        let mut events = Events::new();
        for seq in 0..1000 {
            let payload = events.copied(&[seq as u8; 100]);
            let (sent_at, received_at, delay) = (Time::ZERO, Time::ZERO, None);
            events.push(Queued::Packet { seq, sent_at, received_at, delay, payload });
        }
        for seq in 1000 - MAX_EVENTS as u64..1000 {
            let Some(ClientEvent::Packet(packet)) = events.pop() else { panic!("a packet") };
            assert_eq!((packet.seq, packet.payload), (seq, &[seq as u8; 100][..]));
        }
        assert!(events.is_empty() && events.pop().is_none());
        assert!(events.spare.capacity() >= 100);
    }
}
