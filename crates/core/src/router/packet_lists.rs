//! Many queues in one slab: a list of packets each, so that their memory is shared.

use slab::Slab;

use super::{Backlog, Dequeued, Drop, DropReason, Drops, Packet};
use crate::unit::{Bytes, Packets, Time};

/// The packets of all lists. It grows to their maximum number, and then no more.
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
    backlog: Backlog,
}

impl PacketList {
    pub(super) fn backlog(&self) -> Backlog {
        self.backlog
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
        list.backlog.packets += Packets::new(1);
        list.backlog.bytes += packet.size();
        let node = self.0.insert(Node { packet, arrived: now, next: None });
        list.ends = Some(match list.ends {
            None => (node, node),
            Some((first, last)) => {
                self.0[last].next = Some(node);
                (first, node)
            }
        });
    }

    /// The first packet of `list`, which stays.
    pub(super) fn first(&self, list: &PacketList) -> Option<&P> {
        list.ends.map(|(first, _)| &self.0[first].packet)
    }

    /// Calls `see` with each packet of `list`, the first one first.
    pub(super) fn each(&self, list: &PacketList, see: &mut dyn FnMut(&P)) {
        let mut next = list.ends.map(|(first, _)| first);
        while let Some(node) = next {
            see(&self.0[node].packet);
            next = self.0[node].next;
        }
    }

    /// Takes the first packet from `list`.
    pub(super) fn pop(&mut self, list: &mut PacketList, now: Time) -> Option<Dequeued<P>> {
        let (first, last) = list.ends?;
        let Node { packet, arrived, next } = self.0.remove(first);
        list.ends = next.map(|next| (next, last));
        list.backlog.packets = list.backlog.packets - Packets::new(1);
        list.backlog.bytes = list.backlog.bytes - packet.size();
        Some(Dequeued { packet, sojourn: now.since(arrived) })
    }

    /// Drops the first packets of the longest of `lists` by bytes, up to half of its bytes and 64
    /// packets, as Linux does: the search for it visits all lists. Returns its index among them,
    /// and the bytes dropped; `None` if there are no lists.
    pub(super) fn halve_longest<'a>(
        &mut self,
        lists: impl Iterator<Item = &'a mut PacketList>,
        now: Time,
        drops: &mut Drops<'_, P>,
    ) -> Option<(usize, Bytes)> {
        const BATCH: usize = 64;
        let (place, list) = lists.enumerate().max_by_key(|(_, list)| list.backlog.bytes)?;
        let before = list.backlog.bytes;
        for _ in 0..BATCH {
            let Some(first) = self.pop(list, now) else { break };
            drops(Drop { packet: first.packet, reason: DropReason::QueueFull });
            if list.backlog.bytes.get() <= before.get() / 2 {
                break;
            }
        }
        Some((place, before - list.backlog.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Numbered(u64);

    impl Packet for Numbered {
        fn size(&self) -> Bytes {
            Bytes::new(self.0)
        }
    }

    #[test]
    fn lists_keep_their_own_order_and_share_their_memory() {
        let mut packets = PacketLists::new();
        let mut lists = [PacketList::default(), PacketList::default()];
        let mut high_water = 0;
        for round in 0..10 {
            for number in 1..=100 {
                packets.push(&mut lists[number as usize % 2], Time::ZERO, Numbered(number));
            }
            let backlog = |bytes| Backlog { packets: Packets::new(50), bytes: Bytes::new(bytes) };
            assert_eq!(lists.each_ref().map(PacketList::backlog), [2550, 2500].map(backlog));
            for (list, first) in lists.iter_mut().zip([2, 1]) {
                for number in (first..=100).step_by(2) {
                    assert_eq!(packets.first(list).unwrap().0, number);
                    assert_eq!(packets.pop(list, Time::ZERO).unwrap().packet.0, number);
                }
                assert!(packets.pop(list, Time::ZERO).is_none());
            }
            assert_eq!(packets.len(), Packets::ZERO);
            if round == 0 {
                high_water = packets.0.capacity();
            }
        }
        assert_eq!(packets.0.capacity(), high_water, "no growth after the first round");
    }
}
