//! Packets that leave through a device, held by the kernel until the router gives a verdict.
//!
//! ```text
//! kernel:  forwarded or our own ─► postrouting: rule ─► queue ─ ─ ─ ─ ─ ─ ─► device
//!                                                        │ number, length,    ▲
//!                                                        ▼ front or copy      │ verdict
//! here:                                               discipline ─► shaper ───┘
//! ```
//!
//! Verdicts are sent in batches.
//!
//! - **Super-packets.** A super-packet of 64 kB that takes longer than [`NfqueueGate::MAX_TURN`] at
//!   the rate would delay every packet behind it by as much: at such rates the kernel segments them
//!   before it queues them. At higher rates they stay whole, and many packets cost one verdict.
//! - **Overflow.** The kernel drops packets that do not fit into its queue, or into the socket
//!   while the router is too slow to read (`ENOBUFS`), and counts them: they are reported as lost.
//!   Passing them instead would send them ahead of the queued packets, past the shaper, and
//!   uncounted.
//! - **The router's end.** The rule lets packets pass while no process listens, and the kernel
//!   removes it together with the router's socket. Packets queued when the router is killed are
//!   lost; when it ends regularly, it lets them pass. While it hangs or is stopped, packets pass as
//!   well, once the rule's lease has expired (`lease.rs`, `table.rs`).
//! - **Packets that the kernel drops by itself.** It drops all queued packets when the device goes
//!   down, or when any base chain of the packet filter is removed, for example because another
//!   router ends; when another device goes down, it drops the packets that came in through it. The
//!   next verdict on such a packet finds no packet (`ENOENT`). From then on the verdict on every
//!   packet that was queued at that time is sent at once and its answer awaited, and the
//!   transmitter makes up for the time in which it seemed to transmit a dropped packet. Each packet
//!   gets a verdict, so none stays in the kernel.
//! - **Congestion marks.** A verdict can change a packet only by giving it back as a whole. When
//!   super-packets are segmented, the kernel hands over whole copies, and the gate keeps the
//!   ECN-capable ones: they can be marked. At higher rates it sees 128 bytes of each packet:
//!   shorter packets can be marked, and longer ones are dropped instead. The kernel takes a packet
//!   that is given back for complete (`nfqnl_mangle` sets `CHECKSUM_NONE`), but when super-packets
//!   stay whole, packets of this host and its virtual machines arrive with a transport checksum
//!   that their network card is to complete. So the gate completes it when it marks such a packet;
//!   packets for which it cannot (`complete_checksum`), and super-packets, are not marked.
//! - **Sizes** are those of the queued packets: of a whole super-packet, one IP header and all of
//!   its payload, 3 % less than on the wire.

mod lease;
mod message;
mod queue;
mod table;

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use freshline_core::router::{Ecn, Header, KernelDropsReport, complete_checksum, mark_congestion};
use freshline_core::unit::{BitRate, Bytes, Packets, Span};
use nix::errno::Errno;

use super::bypass::sent_by;
use super::gate::{Arrived, Gate, Status, Ticket};
use super::{RouterError, system};
use lease::Lease;
pub(super) use lease::look_every;
use queue::{Arrival, PacketId, Queue, SuperPackets, Verdict};
use table::{Rule, Table};

/// The kernel's queue behind a rule for one device.
#[derive(Debug)]
pub(super) struct NfqueueGate {
    device: String,
    /// Dropped before the rule's chain, whose removal drops queued packets.
    queue: Queue,
    lease: Lease,
    super_packets: SuperPackets,
    overruns: u64,
}

/// A packet that the kernel holds.
#[derive(Debug)]
pub(super) struct InKernel {
    id: PacketId,
    /// Its content, if it may be marked.
    copy: Option<Box<[u8]>>,
    has_partial_checksum: bool,
    is_changed: bool,
}

impl InKernel {
    fn new(arrival: &Arrival<'_>, header: &Header) -> Self {
        let may_be_marked =
            header.ecn != Ecn::NotCapable && arrival.is_whole() && !arrival.is_super_packet;
        Self {
            id: arrival.id,
            copy: may_be_marked.then(|| arrival.front.into()),
            has_partial_checksum: arrival.has_partial_checksum,
            is_changed: false,
        }
    }
}

impl Ticket for InKernel {
    fn number(&self) -> u32 {
        self.id.number()
    }

    fn mark(&mut self) -> bool {
        let Some(copy) = self.copy.as_deref_mut() else { return false };
        if self.has_partial_checksum {
            if !complete_checksum(copy) {
                return false;
            }
            self.has_partial_checksum = false;
        }
        // The checksum of TCP and UDP does not cover the mark.
        let is_marked = mark_congestion(copy);
        self.is_changed |= is_marked;
        is_marked
    }
}

impl NfqueueGate {
    /// How many packets the kernel's queue holds.
    pub(super) const KERNEL_QUEUE: Packets = Packets::new(Queue::LENGTH as u64);
    /// How many of these a discipline may hold. The rest is for unread packets.
    pub(super) const MAX_QUEUED: Packets = Packets::new(Queue::LENGTH as u64 / 4 * 3);
    /// The largest super-packet.
    const SUPER_PACKET: Bytes = Bytes::new(1 << 16);
    /// The maximum time for which a super-packet may delay other packets.
    const MAX_TURN: Span = Span::from_millis(1);

    /// Takes queue number `queue`, and directs all packets that leave through `device` there, for
    /// `lease` at a time.
    pub(super) fn open(
        device: &str,
        queue: u16,
        rate: BitRate,
        lease: Span,
    ) -> Result<Self, RouterError> {
        let super_packets = super_packets_at(rate);
        let opened = Queue::open(queue, super_packets).map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => RouterError::QueueTaken(queue),
            _ => RouterError::Netfilter { what: "queues to user space", source },
        })?;
        let table = Table::install(Rule { device, queue, lease }).map_err(|source| match source
            .kind()
        {
            io::ErrorKind::AlreadyExists | io::ErrorKind::PermissionDenied => {
                RouterError::DeviceTaken(device.to_owned())
            }
            _ => RouterError::Netfilter { what: "a rule in nf_tables", source },
        })?;
        let lease = Lease::start(table, lease).map_err(system("start a thread"))?;
        let device = device.to_owned();
        Ok(Self { device, queue: opened, lease, super_packets, overruns: 0 })
    }
}

fn super_packets_at(rate: BitRate) -> SuperPackets {
    if rate.time_to_send(NfqueueGate::SUPER_PACKET) > NfqueueGate::MAX_TURN {
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
            let ticket = InKernel::new(&arrival, &header);
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

    fn vanished(&mut self) -> Vec<u32> {
        self.queue.take_vanished()
    }

    fn sent_by_device(&self) -> Option<Bytes> {
        sent_by(&self.device)
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

    fn lease(&self) -> Option<Span> {
        Some(self.lease.span())
    }

    fn alive(&mut self) {
        self.lease.alive();
    }

    fn close(&mut self) {
        self.lease.close();
    }

    fn is_closed(&self) -> bool {
        self.lease.is_closed()
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
            kernel_drops: KernelDropsReport {
                queue_full: drops.queue_full,
                unread: drops.unread,
                flushed: self.queue.vanished(),
                overruns: self.overruns,
            },
            unshaped: self.lease.unshaped(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{Ipv4Header, Ipv6Header, TcpHeader, UdpHeader, ip_number};

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

    /// An ECN-capable UDP packet of this host, whose network card is to complete the checksum: its
    /// field holds the sum of the pseudo header.
    fn left_to_the_card() -> Vec<u8> {
        const ECT_0: u8 = 2;
        let (from, to) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let mut ip = Ipv4Header::new(8 + 5, 64, ip_number::UDP, from, to).unwrap();
        ip.ecn = ECT_0.try_into().unwrap();
        ip.header_checksum = ip.calc_header_checksum();
        let checksum = 0x0a00 + 1 + 0x0a00 + 2 + 17 + 8 + 5;
        let udp = UdpHeader { source_port: 1000, destination_port: 2000, length: 13, checksum };
        [&ip.to_bytes()[..], &udp.to_bytes(), b"state"].concat()
    }

    fn ticket(packet: &[u8], has_partial_checksum: bool, is_super_packet: bool) -> InKernel {
        let arrival = Arrival {
            id: PacketId::default(),
            size: Bytes::from(packet.len()),
            front: packet,
            has_partial_checksum,
            is_super_packet,
        };
        InKernel::new(&arrival, &Header::of_ip(packet).unwrap())
    }

    #[test]
    fn a_marked_packet_goes_back_with_a_whole_checksum() {
        let mut ticket = ticket(&left_to_the_card(), true, false);
        assert!(ticket.mark() && ticket.is_changed);
        let copy = ticket.copy.unwrap();
        let (ip, rest) = Ipv4Header::from_slice(&copy).unwrap();
        let (udp, payload) = UdpHeader::from_slice(rest).unwrap();
        assert_eq!(ip.ecn.value(), 3);
        assert_eq!(ip.header_checksum, ip.calc_header_checksum());
        assert_eq!(udp.checksum, udp.calc_checksum_ipv4(&ip, payload).unwrap());
    }

    /// ECN-capable TCP over IPv6, as a virtual machine forwards it.
    fn tcp_of_a_machine(payload: &[u8]) -> (Ipv6Header, Vec<u8>) {
        let ip = Ipv6Header {
            payload_length: (20 + payload.len()) as u16,
            next_header: ip_number::TCP,
            source: [0xfd; 16],
            destination: [7; 16],
            ..Ipv6Header::default()
        };
        let mut bytes = ip.to_bytes().to_vec();
        bytes[1] |= 0x20;
        let tcp = TcpHeader::new(1000, 2000, 7, 100).to_bytes();
        (ip, [&bytes[..], &tcp, payload].concat())
    }

    #[test]
    fn tcp_is_marked_with_a_whole_checksum_and_super_packets_stay_as_they_are() {
        let (ip, mut packet) = tcp_of_a_machine(b"state");
        // The sum of the pseudo header, in which each byte of an address occurs eight times.
        let words = 8 * 0xfdfd + 8 * 0x0707 + 25 + u32::from(ip_number::TCP.0);
        let pseudo = ((words & 0xffff) + (words >> 16)) as u16;
        packet[56..58].copy_from_slice(&pseudo.to_be_bytes());
        let mut whole = ticket(&packet, true, false);
        assert!(whole.mark() && whole.is_changed);
        let copy = whole.copy.unwrap();
        assert_eq!(copy[1] >> 4 & 3, 3);
        let (tcp, payload) = TcpHeader::from_slice(&copy[40..]).unwrap();
        assert_eq!(tcp.checksum, tcp.calc_checksum_ipv6(&ip, payload).unwrap());
        // A super-packet, of which each segment needs its own checksum.
        for has_partial_checksum in [false, true] {
            let mut many = ticket(&packet, has_partial_checksum, true);
            assert!(!many.mark() && !many.is_changed && many.copy.is_none());
        }
    }

    #[test]
    fn what_cannot_be_finished_is_not_marked() {
        let mut inner = left_to_the_card();
        // UDP without a checksum: the unfinished checksum is that of an inner packet.
        inner[26..28].fill(0);
        assert!(!ticket(&inner, true, false).mark());
        assert!(!ticket(&left_to_the_card(), true, true).mark(), "a super-packet");
    }
}
