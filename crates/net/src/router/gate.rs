//! The source and sink of a router's packets: the kernel's queue, or a TUN device.

use std::io;
use std::os::fd::RawFd;

use freshline_core::router::{Class, Header, KernelDropsReport, Packet, UnshapedReport};
use freshline_core::unit::{BitRate, Bytes, Span, Time};

use super::ledger::Subject;

/// A gate hands out packets and takes each one back, to pass it or to drop it, in any order.
pub(super) trait Gate {
    /// Identifies a packet that was handed out.
    type Ticket: Ticket;

    /// Adds the packets that arrived. Fails with [`io::ErrorKind::WouldBlock`] if none has arrived,
    /// and with `ENOBUFS` if packets were lost before they could be read.
    fn receive(&mut self, into: &mut Vec<Arrived<Self::Ticket>>) -> io::Result<()>;

    /// Passes a packet, by the next [`Gate::flush`] at the latest.
    fn pass(&mut self, ticket: Self::Ticket) -> io::Result<()>;

    /// Drops a packet.
    fn discard(&mut self, ticket: Self::Ticket);

    /// The numbers of packets that were passed or discarded after the kernel had dropped them by
    /// itself, each once: [`Gate::receive`] learns of them, at the next call after the flush.
    fn vanished(&mut self) -> Vec<u32> {
        Vec::new()
    }

    /// The total bytes that the device has sent, whether they passed the gate or not; `None` if no
    /// packet can bypass the gate, or if the kernel does not report it.
    fn sent_by_device(&self) -> Option<Bytes> {
        None
    }

    /// Completes all pending operations.
    fn flush(&mut self) -> io::Result<()>;

    /// The router shapes to this rate from now on.
    fn set_rate(&mut self, rate: BitRate) -> io::Result<()>;

    /// How long packets are queued after [`Gate::alive`] until they bypass the router; `None` if
    /// they are always queued.
    fn lease(&self) -> Option<Span> {
        None
    }

    /// Reports that the loop runs: packets are queued for another lease. Never blocks.
    fn alive(&mut self) {}

    /// Accepts no more packets, once [`Gate::is_closed`]; packets accepted until then are still
    /// handed out.
    fn close(&mut self);

    /// Whether a close is complete. It may take a while; this call does not block.
    fn is_closed(&self) -> bool {
        true
    }

    /// The descriptor that becomes readable when packets arrive.
    fn readable(&self) -> RawFd;

    /// The gate's status.
    fn status(&self) -> Status;
}

/// The status of a gate.
#[derive(Debug, Clone)]
pub(super) struct Status {
    /// `segmented` or `whole`.
    pub(super) super_packets: &'static str,
    /// How many packets it can hold; `None` if only the discipline's limit applies.
    pub(super) limit: Option<u64>,
    /// Packets lost before they could be read.
    pub(super) kernel_drops: KernelDropsReport,
    /// When packets passed without it.
    pub(super) unshaped: UnshapedReport,
}

/// Identifies a packet that a gate has handed out.
pub(super) trait Ticket {
    /// Numbers packets in the order of their arrival, modulo 2³².
    fn number(&self) -> u32 {
        0
    }

    /// Marks the packet as having met congestion; returns whether it is marked now.
    fn mark(&mut self) -> bool {
        false
    }
}

/// A packet from a gate.
#[derive(Debug)]
pub(super) struct Arrived<T> {
    pub(super) ticket: T,
    /// The whole length, from the IP header on.
    pub(super) size: Bytes,
    pub(super) header: Header,
}

/// A queued packet.
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
