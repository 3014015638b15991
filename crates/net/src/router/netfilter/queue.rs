//! The kernel's queue to user space (NFQUEUE): the kernel holds the packets, and passes their
//! numbers and first bytes to the router, which gives a verdict on each, in any order.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::{fs, mem};

use freshline_core::router::Header;
use freshline_core::unit::Bytes;
use freshline_system::netlink::flags::ACK;
use freshline_system::netlink::{
    Client, Content, Protocol, Requests, TIMEOUT, Writer, attributes, be_u32, find, replies,
};
use nix::errno::Errno;

use super::message::{Head, attributes_of};

/// The kernel's name for a packet in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PacketId(u32);

impl PacketId {
    /// The kernel numbers packets in the order of their arrival.
    pub(super) fn number(self) -> u32 {
        self.0
    }
}

/// The kernel's notice of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrival<'a> {
    pub(super) id: PacketId,
    /// Its length from the IP header on.
    pub(super) size: Bytes,
    /// Its first bytes, up to the requested length.
    pub(super) front: &'a [u8],
    /// Whether its transport checksum is left to the network card (`NFQA_SKB_CSUMNOTREADY`).
    pub(super) has_partial_checksum: bool,
    /// Whether the network card or the driver is to segment it (`NFQA_SKB_GSO`).
    pub(super) is_super_packet: bool,
}

impl Arrival<'_> {
    /// Whether `front` is the whole packet.
    pub(super) fn is_whole(&self) -> bool {
        self.size == Bytes::from(self.front.len())
    }
}

/// The decision on a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict<'a> {
    Drop,
    Accept,
    /// It continues with this content, of unchanged length.
    AcceptAs(&'a [u8]),
}

/// Whether a super-packet is queued as it is, or segmented first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SuperPackets {
    Segmented,
    Whole,
}

/// Packets that the kernel could not queue and dropped, since the queue was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct KernelDrops {
    /// The queue was at its limit.
    pub(super) queue_full: u64,
    /// The socket's receive buffer was full.
    pub(super) unread: u64,
}

/// A queue that this process has bound.
#[derive(Debug)]
pub(super) struct Queue {
    client: Client,
    number: u16,
    verdicts: Requests,
    /// Packets that the kernel had dropped before their verdict arrived.
    vanished: u64,
    /// Their numbers, until [`Queue::take_vanished`] hands them out.
    vanished_numbers: Vec<u32>,
    /// The error of verdicts that could not be sent, until [`Queue::send_verdicts`] returns it.
    unsent: io::Result<()>,
    buffer: Box<[u8]>,
}

/// `NFQNL_MSG_*`, with the subsystem.
mod kind {
    const SUBSYSTEM: u16 = 3 << 8;
    pub(super) const PACKET: u16 = SUBSYSTEM;
    pub(super) const VERDICT: u16 = SUBSYSTEM | 1;
    pub(super) const CONFIG: u16 = SUBSYSTEM | 2;
}

/// The attribute with the verdict and the packet's number (`NFQA_VERDICT_HDR`).
const VERDICT_HEADER: u16 = 2;

impl Queue {
    /// The limit of the kernel's queue: all packets of the discipline, and the unread ones. The
    /// kernel finds the packet of a verdict by walking the queue from its oldest packet on, so this
    /// bounds the cost of a verdict: some µs with a full queue.
    pub(super) const LENGTH: u32 = 4096;
    /// A packet with its metadata takes about 3 kB in the socket.
    const RECEIVE_BUFFER: usize = 16 << 20;
    /// A message with the longest packet; each read returns one message.
    const MAX_MESSAGE: usize = (1 << 16) + 4096;
    /// The maximum bytes of verdicts per send, plus at most one verdict with its packet: less than
    /// the default send buffer of a socket, 208 kB.
    const VERDICTS: usize = 64 << 10;

    /// Binds the queue of this number. Fails with [`io::ErrorKind::PermissionDenied`] if another
    /// process has it.
    pub(super) fn open(number: u16, super_packets: SuperPackets) -> io::Result<Self> {
        const BIND: u8 = 1;
        let mut queue = Self {
            client: Client::open(Protocol::Netfilter, TIMEOUT)?,
            number,
            verdicts: Requests::default(),
            vanished: 0,
            vanished_numbers: Vec::new(),
            unsent: Ok(()),
            buffer: vec![0; Self::MAX_MESSAGE].into_boxed_slice(),
        };
        // A smaller buffer suffices if the system limits it: packets that do not fit are counted.
        let _ = queue.client.set_receive_buffer(Self::RECEIVE_BUFFER);
        let mut request = Requests::default();
        queue.head(kind::CONFIG, ACK).push(&mut request, |put| {
            put.put(1, &[BIND, 0, 0, 0]).be_u32(3, Self::LENGTH);
            super_packets.put(put);
        });
        queue.client.change_all(&mut request)?;
        Ok(queue)
    }

    /// Sets how super-packets are queued from now on.
    pub(super) fn set_super_packets(&mut self, super_packets: SuperPackets) -> io::Result<()> {
        let mut request = Requests::default();
        self.head(kind::CONFIG, 0).push(&mut request, |put| super_packets.put(put));
        self.client.send(&mut request)
    }

    /// Hands out the next packets. Fails with [`io::ErrorKind::WouldBlock`] if none is queued, and
    /// with `ENOBUFS` if some did not fit into the socket: the kernel dropped and counted them.
    pub(super) fn receive(&mut self, mut take: impl FnMut(Arrival<'_>)) -> io::Result<()> {
        let datagram = self.client.receive(&mut self.buffer)?;
        for reply in replies(datagram).map_while(Result::ok) {
            match reply.content {
                Content::Message { kind: kind::PACKET, body } => {
                    _ = arrival(attributes_of(body)).map(&mut take);
                }
                Content::Refused { errno, request, .. } if errno == Errno::ENOENT as i32 => {
                    self.vanished += 1;
                    self.vanished_numbers.extend(number_of(attributes_of(request)));
                }
                Content::Refused { errno, .. } => {
                    let error = io::Error::from_raw_os_error(errno);
                    tracing::warn!("the kernel refused a verdict or a setting: {error}");
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Records the verdict on a packet, which takes effect when verdicts are sent.
    pub(super) fn judge(&mut self, id: PacketId, verdict: Verdict<'_>) {
        const PAYLOAD: u16 = 10;
        let PacketId(id) = id;
        let (number, content) = match verdict {
            Verdict::Drop => (0u32, None),
            Verdict::Accept => (1, None),
            Verdict::AcceptAs(content) => (1, Some(content)),
        };
        let mut verdict = [0; 8];
        verdict[..4].copy_from_slice(&number.to_be_bytes());
        verdict[4..].copy_from_slice(&id.to_be_bytes());
        let head = self.head(kind::VERDICT, 0);
        head.push(&mut self.verdicts, |put| {
            put.put(VERDICT_HEADER, &verdict);
            if let Some(content) = content {
                put.put(PAYLOAD, content);
            }
        });
        if self.verdicts.bytes().len() >= Self::VERDICTS {
            self.send_batch();
        }
    }

    /// Sends all verdicts at once. When this returns, an accepted packet is in the device's queue,
    /// or has left it.
    pub(super) fn send_verdicts(&mut self) -> io::Result<()> {
        if !self.verdicts.is_empty() {
            self.send_batch();
        }
        mem::replace(&mut self.unsent, Ok(()))
    }

    fn send_batch(&mut self) {
        if let Err(error) = self.client.send(&mut self.verdicts) {
            self.unsent = Err(error);
        }
        self.verdicts.clear();
    }

    /// The number of packets that the kernel had dropped before their verdict arrived: it drops the
    /// packets of a device that goes down, and all packets when any chain of the packet filter is
    /// removed.
    pub(super) fn vanished(&self) -> u64 {
        self.vanished
    }

    /// The numbers of these packets, each once.
    pub(super) fn take_vanished(&mut self) -> Vec<u32> {
        mem::take(&mut self.vanished_numbers)
    }

    fn table(&self) -> Option<String> {
        fs::read_to_string("/proc/thread-self/net/netfilter/nfnetlink_queue").ok()
    }

    /// How many packets the kernel dropped before they could be read; `None` if it does not report
    /// it.
    pub(super) fn kernel_drops(&self) -> Option<KernelDrops> {
        drops_of(&self.table()?, self.number)
    }

    fn head(&self, kind: u16, flags: u16) -> Head {
        Head { kind, flags, family: 0, resource: self.number }
    }
}

impl AsRawFd for Queue {
    fn as_raw_fd(&self) -> RawFd {
        self.client.as_raw_fd()
    }
}

impl SuperPackets {
    /// Requests this handling. When super-packets are segmented, the rate is low, and packets are
    /// copied as a whole, so that they can be given back with a mark; when they stay whole, their
    /// first bytes are enough.
    fn put(self, put: &mut Writer<'_>) {
        const COPY_PACKET: u8 = 2;
        const GSO: u32 = 4;
        let (range, flags) = match self {
            // Zero requests the maximum length.
            Self::Segmented => (0, 0),
            Self::Whole => (Header::SNAP_LEN as u32, GSO),
        };
        let [a, b, c, d] = range.to_be_bytes();
        put.put(2, &[a, b, c, d, COPY_PACKET]).be_u32(4, GSO).be_u32(5, flags);
    }
}

/// The packet number in the attributes of a verdict.
fn number_of(verdict: &[u8]) -> Option<u32> {
    be_u32(find(verdict, VERDICT_HEADER)?.get(4..)?)
}

fn arrival(content: &[u8]) -> Option<Arrival<'_>> {
    const PACKET_HEADER: u16 = 1;
    const PAYLOAD: u16 = 10;
    const LENGTH_OF_CUT: u16 = 13;
    const INFO: u16 = 14;
    const CHECKSUM_NOT_READY: u32 = 1;
    const GSO: u32 = 2;
    let (mut id, mut front, mut len, mut info) = (None, &[][..], None, 0);
    for (kind, content) in attributes(content) {
        let number = be_u32(content);
        match kind {
            PACKET_HEADER => id = number,
            PAYLOAD => front = content,
            LENGTH_OF_CUT => len = number,
            INFO => info = number.unwrap_or_default(),
            _ => {}
        }
    }
    let size = len.map_or(Bytes::from(front.len()), |len| Bytes::new(len.into()));
    Some(Arrival {
        id: PacketId(id?),
        size,
        front,
        has_partial_checksum: info & CHECKSUM_NOT_READY != 0,
        is_super_packet: info & GSO != 0,
    })
}

/// The row of a queue in the kernel's table: number, port, queue length, copy mode, copy range,
/// dropped because the queue was full, dropped because they were not read, last packet's number, 1.
fn row(table: &str, number: u16) -> Option<Vec<u64>> {
    table.lines().find_map(|line| {
        let row: Vec<u64> = line.split_ascii_whitespace().map_while(|n| n.parse().ok()).collect();
        (row.first() == Some(&u64::from(number))).then_some(row)
    })
}

fn drops_of(table: &str, number: u16) -> Option<KernelDrops> {
    match row(table, number)?[..] {
        [_, _, _, _, _, queue_full, unread, ..] => Some(KernelDrops { queue_full, unread }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use freshline_system::netlink::{Reply, encode};

    use super::*;

    #[test]
    fn a_packet_tells_its_number_its_length_and_its_front() {
        let packets = [
            encode(|put| {
                put.put(1, &[0, 0, 0, 9, 8, 0, 4]).put(10, b"front").be_u32(13, 1500);
            }),
            encode(|put| {
                put.put(1, &[0, 0, 0, 10, 8, 0, 4]).be_u32(14, 0b101).put(10, b"all");
            }),
            encode(|put| {
                put.put(1, &[0, 0, 0, 11, 8, 0, 4]).be_u32(14, 0b11);
                put.put(10, b"super").be_u32(13, 9000);
            }),
            encode(|put| _ = put.put(10, b"without a number")),
        ];
        let found: Vec<_> = packets.iter().filter_map(|packet| arrival(packet)).collect();
        let expected = [
            (9, 1500, &b"front"[..], false, false),
            (10, 3, b"all", true, false),
            (11, 9000, b"super", true, true),
        ]
        .map(|(id, size, front, has_partial_checksum, is_super_packet)| Arrival {
            id: PacketId(id),
            size: Bytes::new(size),
            front,
            has_partial_checksum,
            is_super_packet,
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn the_kernel_s_own_drops_are_read_from_its_table() {
        let table = "   76  12345     3 2   128    40    50     1200  1\n\
                        77  12345     0 2   128     4     5      120  1\n";
        let expected = KernelDrops { queue_full: 4, unread: 5 };
        assert_eq!(drops_of(table, 77), Some(expected));
        assert_eq!((drops_of(table, 7), drops_of("77 x", 77)), (None, None));
    }

    #[test]
    fn the_kernel_s_answer_names_the_packet_of_the_verdict() {
        let mut verdicts = Requests::default();
        Head { kind: kind::VERDICT, flags: 0, family: 0, resource: 5 }.push(&mut verdicts, |put| {
            put.put(VERDICT_HEADER, &[0, 0, 0, 1, 0, 1, 2, 3]).put(10, b"as marked");
        });
        // NLMSG_ERROR: the error number, and the message that caused it.
        let mut answer = Requests::default();
        answer.push(2, 0, |put| _ = put.raw(&(-2i32).to_ne_bytes()).raw(verdicts.bytes()));
        let found: Vec<_> = replies(answer.bytes()).collect();
        let [Ok(Reply { content: Content::Refused { errno: 2, request, .. }, .. })] = found[..]
        else {
            panic!("{found:?}")
        };
        let verdict = attributes_of(request);
        assert_eq!(number_of(verdict), Some(0x0001_0203));
        assert_eq!((number_of(&[]), number_of(&verdict[..8])), (None, None));
    }
}
