//! Any of the disciplines, by configuration.

use alloc::boxed::Box;

use rand_pcg::Pcg32;

use super::{
    AnyScheduler, Backlog, Codel, Dequeued, Drops, Drr, Dual, Fifo, FqCodel, Hold, Ifc, Ifil,
    IfilHosts, Lifo, Packet, Qdisc, Red, Ring,
};
use crate::unit::{Packets, Time};

/// A queueing discipline that was chosen while the program runs; see
/// [`QdiscConfig::build`](super::QdiscConfig::build).
#[derive(Debug)]
pub enum Discipline<P> {
    /// Drop-tail.
    Fifo(Fifo<P>),
    /// Last in, first out.
    Lifo(Lifo<P>),
    /// RED.
    Red(Red<P, Pcg32>),
    /// CoDel.
    Codel(Codel<P>),
    /// One drop-tail queue per flow.
    Drr(Drr<P>),
    /// FQ-CoDel.
    FqCodel(FqCodel<P>),
    /// The newest packet of each flow.
    Ifil(Ifil<P>),
    /// The same, with turns of hosts.
    IfilHosts(IfilHosts<P>),
    /// One of these two, which holds updates.
    Hold(Box<Hold<Self>>),
    /// Freshness control.
    Ifc(Box<Ifc<Self, Self, AnyScheduler>>),
    /// The dual transmit queue.
    Dual(Box<Ring<P, Dual<Self, Self>>>),
}

impl<P: Packet> Qdisc<P> for Discipline<P> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut Drops<'_, P>) {
        match self {
            Self::Fifo(qdisc) => qdisc.enqueue(now, packet, drops),
            Self::Lifo(qdisc) => qdisc.enqueue(now, packet, drops),
            Self::Red(qdisc) => qdisc.enqueue(now, packet, drops),
            Self::Codel(qdisc) => qdisc.enqueue(now, packet, drops),
            Self::Drr(qdisc) => qdisc.enqueue(now, packet, drops),
            Self::FqCodel(qdisc) => qdisc.enqueue(now, packet, drops),
            Self::Ifil(qdisc) => qdisc.enqueue(now, packet, drops),
            Self::IfilHosts(qdisc) => qdisc.enqueue(now, packet, drops),
            Self::Hold(qdisc) => qdisc.enqueue(now, packet, drops),
            Self::Ifc(qdisc) => qdisc.enqueue(now, packet, drops),
            Self::Dual(qdisc) => qdisc.enqueue(now, packet, drops),
        }
    }

    fn dequeue(&mut self, now: Time, drops: &mut Drops<'_, P>) -> Option<Dequeued<P>> {
        match self {
            Self::Fifo(qdisc) => qdisc.dequeue(now, drops),
            Self::Lifo(qdisc) => qdisc.dequeue(now, drops),
            Self::Red(qdisc) => qdisc.dequeue(now, drops),
            Self::Codel(qdisc) => qdisc.dequeue(now, drops),
            Self::Drr(qdisc) => qdisc.dequeue(now, drops),
            Self::FqCodel(qdisc) => qdisc.dequeue(now, drops),
            Self::Ifil(qdisc) => qdisc.dequeue(now, drops),
            Self::IfilHosts(qdisc) => qdisc.dequeue(now, drops),
            Self::Hold(qdisc) => qdisc.dequeue(now, drops),
            Self::Ifc(qdisc) => qdisc.dequeue(now, drops),
            Self::Dual(qdisc) => qdisc.dequeue(now, drops),
        }
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Time> {
        match self {
            Self::Fifo(qdisc) => Qdisc::<P>::poll_timeout(qdisc),
            Self::Lifo(qdisc) => Qdisc::<P>::poll_timeout(qdisc),
            Self::Red(qdisc) => Qdisc::<P>::poll_timeout(qdisc),
            Self::Codel(qdisc) => Qdisc::<P>::poll_timeout(qdisc),
            Self::Drr(qdisc) => Qdisc::<P>::poll_timeout(qdisc),
            Self::FqCodel(qdisc) => Qdisc::<P>::poll_timeout(qdisc),
            Self::Ifil(qdisc) => Qdisc::<P>::poll_timeout(qdisc),
            Self::IfilHosts(qdisc) => Qdisc::<P>::poll_timeout(qdisc),
            Self::Hold(qdisc) => Qdisc::<P>::poll_timeout(qdisc.as_ref()),
            Self::Ifc(qdisc) => Qdisc::<P>::poll_timeout(qdisc.as_ref()),
            Self::Dual(qdisc) => Qdisc::<P>::poll_timeout(qdisc.as_ref()),
        }
    }

    fn backlog(&self) -> Backlog {
        match self {
            Self::Fifo(qdisc) => qdisc.backlog(),
            Self::Lifo(qdisc) => qdisc.backlog(),
            Self::Red(qdisc) => qdisc.backlog(),
            Self::Codel(qdisc) => qdisc.backlog(),
            Self::Drr(qdisc) => qdisc.backlog(),
            Self::FqCodel(qdisc) => qdisc.backlog(),
            Self::Ifil(qdisc) => qdisc.backlog(),
            Self::IfilHosts(qdisc) => qdisc.backlog(),
            Self::Hold(qdisc) => qdisc.backlog(),
            Self::Ifc(qdisc) => qdisc.backlog(),
            Self::Dual(qdisc) => qdisc.backlog(),
        }
    }

    fn each_queued(&self, see: &mut dyn FnMut(&P)) {
        match self {
            Self::Fifo(qdisc) => qdisc.each_queued(see),
            Self::Lifo(qdisc) => qdisc.each_queued(see),
            Self::Red(qdisc) => qdisc.each_queued(see),
            Self::Codel(qdisc) => qdisc.each_queued(see),
            Self::Drr(qdisc) => qdisc.each_queued(see),
            Self::FqCodel(qdisc) => qdisc.each_queued(see),
            Self::Ifil(qdisc) => qdisc.each_queued(see),
            Self::IfilHosts(qdisc) => qdisc.each_queued(see),
            Self::Hold(qdisc) => qdisc.each_queued(see),
            Self::Ifc(qdisc) => qdisc.each_queued(see),
            Self::Dual(qdisc) => qdisc.each_queued(see),
        }
    }

    fn marked(&self) -> Packets {
        match self {
            Self::Fifo(qdisc) => Qdisc::<P>::marked(qdisc),
            Self::Lifo(qdisc) => Qdisc::<P>::marked(qdisc),
            Self::Red(qdisc) => qdisc.marked(),
            Self::Codel(qdisc) => qdisc.marked(),
            Self::Drr(qdisc) => Qdisc::<P>::marked(qdisc),
            Self::FqCodel(qdisc) => qdisc.marked(),
            Self::Ifil(qdisc) => Qdisc::<P>::marked(qdisc),
            Self::IfilHosts(qdisc) => Qdisc::<P>::marked(qdisc),
            Self::Hold(qdisc) => Qdisc::<P>::marked(qdisc.as_ref()),
            Self::Ifc(qdisc) => Qdisc::<P>::marked(qdisc.as_ref()),
            Self::Dual(qdisc) => Qdisc::<P>::marked(qdisc.as_ref()),
        }
    }
}
