//! The mesh: nodes with one short queue each, in a tree below their border router.

use std::collections::VecDeque;

use freshline_core::router::Packet;
use freshline_core::unit::{Bytes, Packets, Time};

use super::adaptation::Frames;
use super::radio::{Event, Outcome, Radio, RadioStats};
use super::tree::{ROOT, Tree};

/// Why a packet was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// It is too large for 6LoWPAN.
    TooBig,
    /// It met a full queue.
    QueueFull,
    /// None of the attempts of one of its frames was acknowledged.
    NoAck,
    /// The channel was busy at each CCA.
    NoChannel,
}

impl DropReason {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::TooBig, Self::QueueFull, Self::NoAck, Self::NoChannel];
}

/// A dropped packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drop<P> {
    /// The packet.
    pub packet: P,
    /// The node that dropped it.
    pub node: u32,
    /// The reason.
    pub reason: DropReason,
}

/// An observer of a mesh.
pub trait Observer<P> {
    /// A packet was dropped.
    fn dropped(&mut self, drop: Drop<P>);

    /// A node that overhears `from`, its parent, has received a packet of it, with its number
    /// there: once per packet, even if the radio repeats it.
    fn heard(&mut self, node: u32, from: u32, number: u64, packet: &P);
}

/// A packet that has reached its end of the mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered<P> {
    /// When it arrived.
    pub at: Time,
    /// The packet.
    pub packet: P,
}

/// Counters of a node since time zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeStats {
    /// Packets that it accepted, its own and those of others.
    pub taken: u64,
    /// Packets that it forwarded, to the last frame.
    pub passed: u64,
    /// Packets that it dropped, by reason.
    drops: [u64; DropReason::ALL.len()],
}

impl NodeStats {
    /// The number of packets that it dropped for `reason`.
    pub const fn drops(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }
}

/// A packet in a queue.
#[derive(Debug)]
struct Waiting<P> {
    /// Present until the next node has all of it.
    packet: Option<P>,
    /// Its number at this node, which its frames carry.
    number: u64,
    /// The node at which it leaves the mesh.
    to: u32,
    frames: Frames,
    /// The current frame, and the number of frames that the next node has received.
    frame: u8,
    arrived: u8,
}

impl<P> Waiting<P> {
    /// The number of frames still to be sent.
    fn frames_left(&self) -> u32 {
        u32::from(self.frames.count - self.frame)
    }
}

/// The limit on a node's queue, including the packet being sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// The maximum number of packets.
    pub packets: Packets,
    /// The maximum number of their frames; `None` for no limit.
    pub frames: Option<u32>,
}

/// The border router, node 0, and the nodes 1, 2, ….
///
/// Input is [`Mesh::enqueue`], output [`Mesh::poll`], and [`Mesh::poll_timeout`] returns the time
/// of the next poll. `now` must not decrease.
#[derive(Debug)]
pub struct Mesh<P> {
    radio: Radio,
    tree: Tree,
    queues: Vec<VecDeque<Waiting<P>>>,
    limit: Limit,
    /// The size of an IPv6 header after compression.
    header: Bytes,
    outbox: VecDeque<Delivered<P>>,
    /// Per node, the number of the packet last overheard from its parent; 0 for none.
    heard: Vec<u64>,
    stats: Vec<NodeStats>,
}

impl<P: Packet> Mesh<P> {
    /// Empty queues over a radio.
    pub fn new(radio: Radio, tree: Tree, limit: Limit, header: Bytes) -> Self {
        let nodes = radio.stats().len();
        Self {
            radio,
            tree,
            queues: (0..nodes)
                .map(|_| VecDeque::with_capacity(limit.packets.get() as usize))
                .collect(),
            limit,
            header,
            outbox: VecDeque::new(),
            heard: vec![0; nodes],
            stats: vec![NodeStats::default(); nodes],
        }
    }

    /// From now on a node overhears the transmissions of its parent.
    pub fn listen(&mut self, node: u32) {
        self.radio.listen(node, self.tree.parent(node));
    }

    /// Enqueues a packet at the node `from`, for `to`.
    ///
    /// # Panics
    ///
    /// If the node does not exist.
    pub fn enqueue(
        &mut self,
        now: Time,
        [from, to]: [u32; 2],
        packet: P,
        observer: &mut impl Observer<P>,
    ) {
        self.advance(now, observer);
        self.take(now, from, to, packet, observer);
    }

    /// The next packet that has reached its end by `now`. Call it until it returns `None`.
    pub fn poll(&mut self, now: Time, observer: &mut impl Observer<P>) -> Option<Delivered<P>> {
        self.advance(now, observer);
        self.outbox.pop_front()
    }

    /// The time of the next event.
    pub fn poll_timeout(&self) -> Option<Time> {
        let waiting = self.outbox.front().map(|delivered| delivered.at);
        Time::earliest([waiting, self.radio.poll_timeout()])
    }

    /// The tree of parents.
    pub const fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The number of packets at a node.
    pub fn held(&self, node: u32) -> usize {
        let queue = &self.queues[node as usize];
        queue.iter().filter(|waiting| waiting.packet.is_some()).count()
    }

    /// The counters of each node and of its radio.
    pub fn stats(&self) -> impl Iterator<Item = (&NodeStats, &RadioStats)> + Clone {
        self.stats.iter().zip(self.radio.stats())
    }

    fn advance(&mut self, now: Time, observer: &mut impl Observer<P>) {
        while let Some((at, event)) = self.radio.poll(now) {
            match event {
                Event::Ended { from, arrived } => self.on_frame(at, from, arrived, observer),
                Event::Done { from, outcome } => self.on_done(at, from, outcome, observer),
            }
        }
    }

    /// A node receives a packet, from its own upper layer or from another node.
    fn take(&mut self, at: Time, node: u32, to: u32, packet: P, observer: &mut impl Observer<P>) {
        let frames = Frames::of(packet.size(), self.header);
        let needed = frames.map_or(1, |frames| u32::from(frames.count));
        let is_full = self.is_full(node, needed);
        self.stats[node as usize].taken += 1;
        let reason = if is_full { DropReason::QueueFull } else { DropReason::TooBig };
        let Some(frames) = frames.filter(|_| !is_full) else {
            return self.lose(node, packet, reason, observer);
        };
        let number = self.stats[node as usize].taken;
        let waiting = Waiting { packet: Some(packet), number, to, frames, frame: 0, arrived: 0 };
        self.queues[node as usize].push_back(waiting);
        self.send_next(at, node);
    }

    /// Whether a packet of `needed` frames does not fit.
    fn is_full(&self, node: u32, needed: u32) -> bool {
        let queue = &self.queues[node as usize];
        let held = || queue.iter().map(Waiting::frames_left).sum::<u32>();
        queue.len() as u64 >= self.limit.packets.get()
            || self.limit.frames.is_some_and(|most| held() + needed > most)
    }

    /// A node sends its next frame, if it has one and its radio is idle.
    fn send_next(&mut self, at: Time, node: u32) {
        if let Some(first) = self.queues[node as usize].front()
            && self.radio.is_idle(node)
        {
            let next = self.tree.next(node, first.to);
            self.radio.send(at, node, next, first.frames.octets(first.frame));
        }
    }

    fn on_frame(&mut self, at: Time, from: u32, arrived: bool, observer: &mut impl Observer<P>) {
        let Some(first) = self.queues[from as usize].front_mut() else { return };
        // The packet is identified with the last of its frames.
        if let Some(packet) =
            first.packet.as_ref().filter(|_| first.frame + 1 == first.frames.count)
        {
            for node in self.radio.overheard() {
                let last = &mut self.heard[*node as usize];
                if std::mem::replace(last, first.number) != first.number {
                    observer.heard(*node, from, first.number, packet);
                }
            }
        }
        if !arrived {
            return;
        }
        first.arrived += 1;
        if first.arrived < first.frames.count {
            return;
        }
        let to = first.to;
        let Some(packet) = first.packet.take() else { return };
        self.stats[from as usize].passed += 1;
        let next = self.tree.next(from, to);
        if next == to {
            self.outbox.push_back(Delivered { at, packet });
        } else {
            self.take(at, next, to, packet, observer);
        }
    }

    fn on_done(&mut self, at: Time, from: u32, outcome: Outcome, observer: &mut impl Observer<P>) {
        let Some(first) = self.queues[from as usize].front_mut() else { return };
        let reason = match outcome {
            Outcome::Acknowledged => None,
            Outcome::NoAck => Some(DropReason::NoAck),
            Outcome::NoChannel => Some(DropReason::NoChannel),
        };
        first.frame += 1;
        if reason.is_some() || first.frame == first.frames.count {
            let packet = self.queues[from as usize].pop_front().and_then(|first| first.packet);
            // A packet that the next node has received anyway is not lost.
            if let Some((packet, reason)) = packet.zip(reason) {
                self.lose(from, packet, reason, observer);
            }
        }
        self.send_next(at, from);
    }

    fn lose(&mut self, node: u32, packet: P, reason: DropReason, observer: &mut impl Observer<P>) {
        self.stats[node as usize].drops[reason as usize] += 1;
        observer.dropped(Drop { packet, node, reason });
    }
}

impl<P> Mesh<P> {
    /// The number of nodes, without the border router.
    pub fn nodes(&self) -> u32 {
        self.queues.len() as u32 - ROOT - 1
    }
}
