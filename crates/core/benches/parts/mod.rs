//! Packets, queues and schedulers that benches share.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use freshline_core::router::{
    AoiShare, Backlog, Class, Dequeued, Drop, DropReason, Drops, FlowKey, Header, Packet, Qdisc,
    Scheduler,
};
use freshline_core::unit::{Bytes, Packets, Span, Time};

/// A packet of a router. The header comes first, so that its words are aligned with the words in which the
/// packet is copied.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Held {
    pub(crate) header: Header,
    size: u32,
}

impl Held {
    pub(crate) const SIZE: u32 = 1024;

    pub(crate) fn of_flow(flow: u32) -> Self {
        let flow = FlowKey {
            source: Ipv4Addr::from_bits(0x0a00_0000 + flow).to_ipv6_mapped(),
            destination: Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped(),
            source_port: 40_000,
            destination_port: 5_000,
            protocol: FlowKey::UDP,
        };
        Self { header: Header { flow, ..Header::default() }, size: Self::SIZE }
    }
}

impl Packet for Held {
    fn size(&self) -> Bytes {
        Bytes::new(self.size.into())
    }

    fn header(&self) -> Header {
        self.header
    }
}

/// The smallest queue: a ring with the room of its buffer.
pub(crate) struct Ring<P>(pub(crate) VecDeque<P>);

impl<P: Packet> Qdisc<P> for Ring<P> {
    fn enqueue(&mut self, _: Time, packet: P, drops: &mut Drops<'_, P>) {
        if self.0.len() < self.0.capacity() {
            self.0.push_back(packet);
        } else {
            drops(Drop { packet, reason: DropReason::QueueFull });
        }
    }

    fn dequeue(&mut self, _: Time, _: &mut Drops<'_, P>) -> Option<Dequeued<P>> {
        let packet = self.0.pop_front()?;
        Some(Dequeued { packet, sojourn: Span::ZERO })
    }

    fn backlog(&self) -> Backlog {
        Backlog { packets: Packets::new(self.0.len() as u64), bytes: Bytes::ZERO }
    }
}

/// No scheduler: serves one class until it is empty.
pub(crate) struct NoScheduler;

impl Scheduler for NoScheduler {
    fn prefer(&mut self, _: Time) -> Class {
        Class::Aoi
    }

    fn on_sent(&mut self, _: Class, _: Bytes) {}

    fn aoi_share(&self) -> AoiShare {
        AoiShare::ONE
    }

    fn set_aoi_share(&mut self, _: AoiShare) {}
}
