//! Any of the disciplines, as a configuration chose it.

use super::{Backlog, Dequeued, Drops, Fifo, Packet, Qdisc};
use crate::unit::Time;

/// A queueing discipline that was chosen while the program runs; see
/// [`QdiscConfig::build`](super::QdiscConfig::build).
#[derive(Debug)]
pub enum Discipline<P> {
    /// Drop-tail.
    Fifo(Fifo<P>),
}

impl<P: Packet> Qdisc<P> for Discipline<P> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut Drops<'_, P>) {
        match self {
            Self::Fifo(qdisc) => qdisc.enqueue(now, packet, drops),
        }
    }

    fn dequeue(&mut self, now: Time, drops: &mut Drops<'_, P>) -> Option<Dequeued<P>> {
        match self {
            Self::Fifo(qdisc) => qdisc.dequeue(now, drops),
        }
    }

    fn next_event(&self) -> Option<Time> {
        match self {
            Self::Fifo(qdisc) => Qdisc::<P>::next_event(qdisc),
        }
    }

    fn backlog(&self) -> Backlog {
        match self {
            Self::Fifo(qdisc) => qdisc.backlog(),
        }
    }
}
