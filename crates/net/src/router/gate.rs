//! Where a router gets packets from and gives them back to: the kernel's queue, or a TUN device.

use std::io;
use std::os::fd::RawFd;

use freshline_core::router::{Class, Header, KernelDropsReport, Packet, UnshapedReport};
use freshline_core::unit::{BitRate, Bytes, Span, Time};

use super::ledger::Subject;

/// A gate hands out packets and takes each one back, to let it pass or to drop it, in any order.
pub(super) trait Gate {
    /// What it needs to know a packet again.
    type Ticket: Ticket;

    /// Adds what came next. Fails with [`io::ErrorKind::WouldBlock`] if nothing did, and with
    /// `ENOBUFS` if something was lost before it could be read.
    fn receive(&mut self, into: &mut Vec<Arrived<Self::Ticket>>) -> io::Result<()>;

    /// Lets a packet pass, by the next [`Gate::flush`] at the latest.
    fn pass(&mut self, ticket: Self::Ticket) -> io::Result<()>;

    /// Drops a packet.
    fn discard(&mut self, ticket: Self::Ticket);

    /// The numbers of packets that were passed or discarded after the kernel had dropped them by
    /// itself, each once: [`Gate::receive`] learns of them, at the next call after the flush.
    fn vanished(&mut self) -> Vec<u32> {
        Vec::new()
    }

    /// How many bytes the device has sent in all, whether they passed the gate or not; `None` where
    /// nothing can bypass the gate, or where the kernel does not say.
    fn sent_by_device(&self) -> Option<Bytes> {
        None
    }

    /// Does what was not done yet.
    fn flush(&mut self) -> io::Result<()>;

    /// The router shapes to this rate from now on.
    fn set_rate(&mut self, rate: BitRate) -> io::Result<()>;

    /// How long packets come after [`Gate::alive`], and pass by then; nothing if they always come.
    fn lease(&self) -> Option<Span> {
        None
    }

    /// The loop runs: packets come for another lease. Never waits.
    fn alive(&mut self) {}

    /// Takes in no more packets, once [`Gate::is_closed`]; those that it took until then still come.
    fn close(&mut self);

    /// Whether a close is complete. It may take a while, and waits for nothing here.
    fn is_closed(&self) -> bool {
        true
    }

    /// What becomes readable when something came.
    fn readable(&self) -> RawFd;

    /// What it tells of itself.
    fn status(&self) -> Status;
}

/// What a gate tells of itself.
#[derive(Debug, Clone)]
pub(super) struct Status {
    /// `segmented` or `whole`.
    pub(super) super_packets: &'static str,
    /// How many packets it can hold; none where the discipline's limit is the only one.
    pub(super) limit: Option<u64>,
    /// What was lost before it could be read.
    pub(super) kernel_drops: KernelDropsReport,
    /// When packets passed without it.
    pub(super) unshaped: UnshapedReport,
}

/// By which a gate knows a packet again.
pub(super) trait Ticket {
    /// Counts packets in the order in which they came, modulo 2³².
    fn number(&self) -> u32 {
        0
    }

    /// Marks the packet as having met congestion. Whether it is marked now.
    fn mark(&mut self) -> bool {
        false
    }
}

/// A packet as it comes out of a gate.
#[derive(Debug)]
pub(super) struct Arrived<T> {
    pub(super) ticket: T,
    /// All of it, from the IP header on.
    pub(super) size: Bytes,
    pub(super) header: Header,
}

/// A packet as it waits.
#[derive(Debug)]
pub(super) struct Held<T> {
    pub(super) packet: Arrived<T>,
    pub(super) class: Class,
    pub(super) since: Time,
    /// Whether it was marked here.
    pub(super) is_marked: bool,
}

impl<T> Held<T> {
    pub(super) fn subject(&self) -> Subject {
        let Arrived { size, header, .. } = &self.packet;
        Subject { flow: header.flow, class: self.class, size: *size }
    }
}

impl<T: Ticket> Packet for Held<T> {
    fn size(&self) -> Bytes {
        self.packet.size
    }

    fn header(&self) -> Header {
        self.packet.header
    }

    fn class(&self) -> Option<Class> {
        Some(self.class)
    }

    fn mark(&mut self) -> bool {
        self.is_marked = self.packet.ticket.mark();
        self.is_marked
    }
}
