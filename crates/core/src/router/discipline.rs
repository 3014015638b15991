//! Any of the disciplines, as a configuration chose it.

use alloc::boxed::Box;

use super::{AnyScheduler, Backlog, Dequeued, Drops, Fifo, Ifc, Ifil, Packet, Qdisc};
use crate::unit::Time;

/// A queueing discipline that was chosen while the program runs; see
/// [`QdiscConfig::build`](super::QdiscConfig::build).
#[derive(Debug)]
pub enum Discipline<P> {
    /// Drop-tail.
    Fifo(Fifo<P>),
    /// The newest packet of each flow.
    Ifil(Ifil<P>),
    /// Freshness control.
    Ifc(Box<Ifc<Self, Self, AnyScheduler>>),
}

impl<P: Packet> Qdisc<P> for Discipline<P> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut Drops<'_, P>) {
        match self {
            Self::Fifo(qdisc) => qdisc.enqueue(now, packet, drops),
            Self::Ifil(qdisc) => qdisc.enqueue(now, packet, drops),
            Self::Ifc(qdisc) => qdisc.enqueue(now, packet, drops),
        }
    }

    fn dequeue(&mut self, now: Time, drops: &mut Drops<'_, P>) -> Option<Dequeued<P>> {
        match self {
            Self::Fifo(qdisc) => qdisc.dequeue(now, drops),
            Self::Ifil(qdisc) => qdisc.dequeue(now, drops),
            Self::Ifc(qdisc) => qdisc.dequeue(now, drops),
        }
    }

    fn next_event(&self) -> Option<Time> {
        match self {
            Self::Fifo(qdisc) => Qdisc::<P>::next_event(qdisc),
            Self::Ifil(qdisc) => Qdisc::<P>::next_event(qdisc),
            Self::Ifc(qdisc) => Qdisc::<P>::next_event(qdisc.as_ref()),
        }
    }

    fn backlog(&self) -> Backlog {
        match self {
            Self::Fifo(qdisc) => qdisc.backlog(),
            Self::Ifil(qdisc) => qdisc.backlog(),
            Self::Ifc(qdisc) => qdisc.backlog(),
        }
    }
}
