//! Packets that leave through a device, held by the kernel until we let them go.
//!
//! ```text
//! kernel:  forwarded or our own ─► postrouting: rule ─► queue ─ ─ ─ ─ ─ ─ ─► device
//!                                                        │ number, length,    ▲
//!                                                        ▼ front or copy      │ verdict
//! here:                                               discipline ─► shaper ───┘
//! ```
//!
//! Verdicts go back many at once.
//!
//! - **Super-packets.** Where one of 64 kB takes more than [`NfqueueGate::LONGEST_TURN`] at the
//!   rate, everything behind it would wait as long: there the kernel cuts them into packets before
//!   it queues them. At higher rates they stay whole, and many packets cost one verdict.
//! - **Overflow.** The kernel drops what does not fit into its queue, or into our socket while we
//!   are too slow to read (`ENOBUFS`), and counts it: that is told as lost. To let it pass instead
//!   would send it ahead of what waits, past the shaper, and uncounted.
//! - **Our end.** The rule lets packets pass while nobody listens, and the kernel removes it with
//!   us. What waits when we are killed is lost; when we end, it is let go.
//! - **Marks of congestion.** A verdict can change a packet only by giving it back as a whole. Where
//!   super-packets are segmented we are handed whole copies, and keep those whose senders take part
//!   in ECN: they can be marked. At higher rates we see 128 bytes of each, nothing can be marked,
//!   and an AQM drops.
//! - **Sizes** are those of the packets that are queued: of a whole super-packet, one IP header
//!   and all of its payload, 3 % less than what is on the wire.

mod message;
mod queue;
mod socket;
mod table;

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use freshline_core::router::{Ecn, Header, LostReport, mark_congestion};
use freshline_core::unit::{BitRate, Bytes, Span};
use nix::errno::Errno;

use super::RouterError;
use super::gate::{Arrived, Gate, Status, Ticket};
use queue::{PacketId, Queue, SuperPackets, Verdict};
use table::{Rule, Table};

/// The kernel's queue behind a rule for one device.
#[derive(Debug)]
pub(super) struct NfqueueGate {
    queue: Queue,
    table: Table,
    super_packets: SuperPackets,
    overruns: u64,
}

/// A packet that the kernel holds.
#[derive(Debug)]
pub(super) struct InKernel {
    id: PacketId,
    /// What is in it, if it may be marked.
    copy: Option<Box<[u8]>>,
    is_changed: bool,
}

impl Ticket for InKernel {
    fn mark(&mut self) -> bool {
        let is_marked = self.copy.as_deref_mut().is_some_and(mark_congestion);
        self.is_changed |= is_marked;
        is_marked
    }
}

impl NfqueueGate {
    /// The largest super-packet.
    const SUPER_PACKET: Bytes = Bytes::new(1 << 16);
    /// How long one may hold up the others.
    const LONGEST_TURN: Span = Span::from_millis(1);

    /// Takes queue number `queue`, and has everything that leaves through `device` go there.
    pub(super) fn open(device: &str, queue: u16, rate: BitRate) -> Result<Self, RouterError> {
        let super_packets = super_packets_at(rate);
        let opened = Queue::open(queue, super_packets).map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => RouterError::QueueTaken(queue),
            _ => RouterError::Netfilter { what: "queues to user space", source },
        })?;
        let table =
            Table::install(Rule { device, queue }).map_err(|source| match source.kind() {
                io::ErrorKind::AlreadyExists | io::ErrorKind::PermissionDenied => {
                    RouterError::DeviceTaken(device.to_owned())
                }
                _ => RouterError::Netfilter { what: "a rule in nf_tables", source },
            })?;
        Ok(Self { queue: opened, table, super_packets, overruns: 0 })
    }
}

fn super_packets_at(rate: BitRate) -> SuperPackets {
    if rate.time_to_send(NfqueueGate::SUPER_PACKET) > NfqueueGate::LONGEST_TURN {
        SuperPackets::Segmented
    } else {
        SuperPackets::Whole
    }
}

impl Gate for NfqueueGate {
    type Ticket = InKernel;

    fn receive(&mut self, into: &mut Vec<Arrived<InKernel>>) -> io::Result<()> {
        let received = self.queue.receive(|arrival| {
            let header = Header::of_ip(arrival.front).unwrap_or_default();
            let may_be_marked = header.ecn != Ecn::NotCapable && arrival.is_whole();
            let copy = may_be_marked.then(|| arrival.front.into());
            let ticket = InKernel { id: arrival.id, copy, is_changed: false };
            into.push(Arrived { ticket, size: arrival.size, header });
        });
        if let Err(error) = &received
            && error.raw_os_error() == Some(Errno::ENOBUFS as i32)
        {
            self.overruns += 1;
        }
        received
    }

    fn pass(&mut self, ticket: InKernel) -> io::Result<()> {
        let verdict = match &ticket.copy {
            Some(content) if ticket.is_changed => Verdict::AcceptAs(content),
            _ => Verdict::Accept,
        };
        self.queue.judge(ticket.id, verdict);
        Ok(())
    }

    fn discard(&mut self, ticket: InKernel) {
        self.queue.judge(ticket.id, Verdict::Drop);
    }

    fn flush(&mut self) -> io::Result<()> {
        self.queue.send_verdicts()
    }

    fn set_rate(&mut self, rate: BitRate) -> io::Result<()> {
        let wanted = super_packets_at(rate);
        if wanted != self.super_packets {
            self.queue.set_super_packets(wanted)?;
            self.super_packets = wanted;
        }
        Ok(())
    }

    fn close(&mut self) {
        if let Err(error) = self.table.remove_rule() {
            tracing::warn!("the kernel did not remove the rule before what waits: {error}");
        }
    }

    fn readable(&self) -> RawFd {
        self.queue.as_raw_fd()
    }

    fn status(&self) -> Status {
        let drops = self.queue.kernel_drops().unwrap_or_default();
        Status {
            super_packets: match self.super_packets {
                SuperPackets::Segmented => "segmented",
                SuperPackets::Whole => "whole",
            },
            limit: Some(Queue::LENGTH.into()),
            lost: LostReport {
                queue_full: drops.queue_full,
                unread: drops.unread,
                vanished: self.queue.vanished(),
                overruns: self.overruns,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn super_packets_stay_whole_where_one_takes_a_millisecond_at_most() {
        for (mbps, expected) in [
            (20, SuperPackets::Segmented),
            (524, SuperPackets::Segmented),
            (525, SuperPackets::Whole),
            (10_000, SuperPackets::Whole),
        ] {
            assert_eq!(super_packets_at(BitRate::from_mbps(mbps)), expected, "{mbps} Mbit/s");
        }
    }
}
