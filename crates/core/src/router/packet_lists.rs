//! Many queues in one slab: a list of packets each, so that their memory is shared.

use slab::Slab;

use super::{Dequeued, Packet};
use crate::unit::{Bytes, Packets, Time};

/// The packets of all lists. It grows to the most that ever waited together, and then no more.
#[derive(Debug)]
pub(super) struct PacketLists<P>(Slab<Node<P>>);

#[derive(Debug)]
struct Node<P> {
    packet: P,
    arrived: Time,
    next: Option<usize>,
}

/// The first and the last packet of one list. It belongs to the [`PacketLists`] that filled it.
#[derive(Debug, Clone, Default)]
pub(super) struct PacketList {
    ends: Option<(usize, usize)>,
    bytes: Bytes,
}

impl PacketList {
    pub(super) fn bytes(&self) -> Bytes {
        self.bytes
    }
}

impl<P: Packet> PacketLists<P> {
    pub(super) fn new() -> Self {
        Self(Slab::new())
    }

    /// How many packets are in all lists.
    pub(super) fn len(&self) -> Packets {
        Packets::new(self.0.len() as u64)
    }

    /// Puts a packet at the end of `list`.
    pub(super) fn push(&mut self, list: &mut PacketList, now: Time, packet: P) {
        list.bytes += packet.size();
        let node = self.0.insert(Node { packet, arrived: now, next: None });
        list.ends = Some(match list.ends {
            None => (node, node),
            Some((first, last)) => {
                self.0[last].next = Some(node);
                (first, node)
            }
        });
    }

    /// Takes the first packet from `list`.
    pub(super) fn pop(&mut self, list: &mut PacketList, now: Time) -> Option<Dequeued<P>> {
        let (first, last) = list.ends?;
        let Node { packet, arrived, next } = self.0.remove(first);
        list.ends = next.map(|next| (next, last));
        list.bytes = list.bytes - packet.size();
        Some(Dequeued { packet, sojourn: now.since(arrived) })
    }
}
