//! Hops in series.

use alloc::vec;
use alloc::vec::Vec;

use rand::Rng;

use super::{Delivered, Hop};
use crate::router::{Drops, Packet, Qdisc};
use crate::unit::{Packets, Time};

/// Hops in series, driven like one [`Hop`].
#[derive(Debug)]
pub struct Path<Q, P, R> {
    /// From first to last; never empty.
    hops: Vec<Hop<Q, P, R>>,
}

impl<Q: Qdisc<P>, P: Packet, R: Rng> Path<Q, P, R> {
    /// The path over one hop.
    pub fn new(hop: Hop<Q, P, R>) -> Self {
        Self { hops: vec![hop] }
    }

    /// Adds `hop` after the last one, before any packet has arrived.
    pub fn push(&mut self, hop: Hop<Q, P, R>) {
        self.hops.push(hop);
    }

    /// Queues a packet at the first hop.
    pub fn enqueue(&mut self, now: Time, packet: P, drops: &mut Drops<'_, P>) {
        self.hand_on(now, drops, &mut |_, _| ());
        self.hops[0].enqueue(now, packet, drops);
    }

    /// The next packet that has arrived at the end by `now`; call until it returns `None`.
    pub fn poll(&mut self, now: Time, drops: &mut Drops<'_, P>) -> Option<Delivered<P>> {
        self.hand_on(now, drops, &mut |_, _| ());
        self.hops.last_mut()?.poll(now, drops)
    }

    /// The time of the next event: call [`Path::poll`] then.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.hops.iter().filter_map(Hop::poll_timeout).min()
    }

    /// When a packet can leave a hop at the earliest ([`Hop::next_delivery`]).
    pub fn next_delivery(&self) -> Option<Time> {
        self.hops.iter().filter_map(Hop::next_delivery).min()
    }

    /// The hops from first to last.
    pub fn hops(&self) -> &[Hop<Q, P, R>] {
        &self.hops
    }

    /// The number of packets on the path.
    pub fn inside(&self) -> Packets {
        self.hops.iter().fold(Packets::ZERO, |sum, hop| sum + hop.inside())
    }

    /// Forwards packets that left a hop until `now` to the next hop, and passes each to `watch`
    /// with the index of the hop that it left, counted from 0.
    ///
    /// [`Path::enqueue`] and [`Path::poll`] do this without a watch; a driver that records every
    /// packet calls it before them, with the same `now`. Packets that leave the last hop appear in
    /// [`Path::poll`]; its transmissions until `now` are in the statistics.
    pub fn advance(
        &mut self,
        now: Time,
        drops: &mut Drops<'_, P>,
        watch: &mut dyn FnMut(usize, &Delivered<P>),
    ) {
        self.hand_on(now, drops, watch);
        if let Some(last) = self.hops.last_mut() {
            last.advance(now, drops);
        }
    }

    fn hand_on(
        &mut self,
        now: Time,
        drops: &mut Drops<'_, P>,
        watch: &mut dyn FnMut(usize, &Delivered<P>),
    ) {
        // Packets only go downstream and each hop has its own random stream, so hop after hop
        // gives the same as event after event.
        for next in 1..self.hops.len() {
            let (upstream, downstream) = self.hops.split_at_mut(next);
            let (from, to) = (&mut upstream[next - 1], &mut downstream[0]);
            while let Some(delivered) = from.poll(now, drops) {
                watch(next - 1, &delivered);
                to.enqueue(delivered.at, delivered.packet, drops);
            }
        }
    }
}
