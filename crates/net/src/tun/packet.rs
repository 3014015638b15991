//! Packets and super-packets between two devices, and the pool of their buffers.

use freshline_core::router::{Ecn, FlowKey, Header, Packet, mark_congestion};
use freshline_core::unit::{Bytes, Packets};
use tun_rs::VIRTIO_NET_HDR_LEN;

/// An IP packet or a whole super-packet, behind the kernel's header of it (`struct
/// virtio_net_hdr`), or an empty buffer for one.
#[derive(Debug)]
pub(crate) struct IpPacket {
    buffer: Vec<u8>,
    /// The end of the packet in the buffer.
    end: usize,
    header: Header,
    /// The number of packets on the wire.
    packets: Packets,
    /// The sum of their sizes.
    size: Bytes,
}

impl IpPacket {
    /// A single packet, behind room for a header, that fills its buffer.
    pub(super) fn single(buffer: Vec<u8>) -> Self {
        let packet = &buffer[VIRTIO_NET_HDR_LEN..];
        let header = Header::of_ip(packet).unwrap_or_default();
        let (packets, size) = (Packets::new(1), Bytes::from(packet.len()));
        Self { end: buffer.len(), buffer, header, packets, size }
    }

    /// The first `end` bytes of `buffer` as read from the kernel; `None` if they contain no packet.
    pub(super) fn whole(buffer: Vec<u8>, end: usize) -> Option<Self> {
        let (kernel, packet) = buffer.get(..end)?.split_first_chunk()?;
        let header = Header::of_ip(packet).unwrap_or_default();
        let (packets, size) = on_wire(kernel, packet);
        (!packet.is_empty()).then_some(Self { buffer, end, header, packets, size })
    }

    /// The packet itself.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[VIRTIO_NET_HDR_LEN..self.end]
    }

    /// The packet behind the kernel's header.
    pub(super) fn with_kernel_header(&self) -> &[u8] {
        &self.buffer[..self.end]
    }

    /// Whether it is a UDP datagram.
    pub(crate) fn is_datagram(&self) -> bool {
        self.header.flow.protocol == FlowKey::UDP
    }
}

impl Packet for IpPacket {
    fn size(&self) -> Bytes {
        self.size
    }

    fn packets(&self) -> Packets {
        self.packets
    }

    fn header(&self) -> Header {
        self.header
    }

    fn mark(&mut self) -> bool {
        let is_marked = mark_congestion(&mut self.buffer[VIRTIO_NET_HDR_LEN..self.end]);
        if is_marked {
            self.header.ecn = Ecn::Marked;
        }
        is_marked
    }
}

/// The number and the total size of the packets on the wire for a buffer from the kernel: a
/// super-packet becomes segments with up to `gso_size` bytes of payload, each behind a copy of the
/// headers.
fn on_wire(kernel: &[u8; VIRTIO_NET_HDR_LEN], packet: &[u8]) -> (Packets, Bytes) {
    const TCPV4: u8 = 1;
    const TCPV6: u8 = 4;
    const UDP: u8 = 5;
    const WITH_ECN: u8 = 0x80;
    let [_, kind, _, _, size_a, size_b, start_a, start_b, _, _] = *kernel;
    let gso_size = usize::from(u16::from_ne_bytes([size_a, size_b]));
    let transport = usize::from(u16::from_ne_bytes([start_a, start_b]));
    let headers = match kind & !WITH_ECN {
        TCPV4 | TCPV6 => {
            packet.get(transport + 12).map(|offset| transport + 4 * usize::from(offset >> 4))
        }
        UDP => Some(transport + 8),
        _ => None,
    };
    let packets = headers.and_then(|headers| {
        let payload = packet.len().saturating_sub(headers);
        (gso_size > 0).then(|| (headers, payload.div_ceil(gso_size).max(1)))
    });
    let (headers, packets) = packets.unwrap_or((0, 1));
    (Packets::new(packets as u64), Bytes::from(packet.len() + (packets - 1) * headers))
}

/// Recycles packet buffers, to avoid repeated allocation.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The size of each buffer.
    size: usize,
    free: Vec<Vec<u8>>,
    /// Buffers for super-packets.
    free_super: Vec<Vec<u8>>,
}

impl Pool {
    /// The maximum number of free buffers: 16 MB with an MTU of 1500.
    const FREE: usize = 10_000;
    /// The same for super-packets: 16 MB.
    const FREE_SUPER: usize = 256;
    /// The largest packet, with the header.
    const SUPER_SIZE: usize = VIRTIO_NET_HDR_LEN + (1 << 16);

    pub(crate) fn new(mtu: u16) -> Self {
        Self {
            size: VIRTIO_NET_HDR_LEN + usize::from(mtu),
            free: Vec::new(),
            free_super: Vec::new(),
        }
    }

    pub(super) fn take(&mut self) -> Vec<u8> {
        let mut buffer = self.free.pop().unwrap_or_else(|| Vec::with_capacity(self.size));
        buffer.resize(self.size, 0);
        buffer
    }

    /// A buffer for any super-packet.
    pub(super) fn take_super(&mut self) -> Vec<u8> {
        self.free_super.pop().unwrap_or_else(Self::super_buffer)
    }

    /// A new buffer for any super-packet.
    pub(super) fn super_buffer() -> Vec<u8> {
        vec![0; Self::SUPER_SIZE]
    }

    /// Takes a buffer back; a buffer of another size, such as one that grew in a delivery, is not
    /// kept.
    pub(crate) fn recycle(&mut self, packet: IpPacket) {
        let buffer = packet.buffer;
        if buffer.len() == Self::SUPER_SIZE && self.free_super.len() < Self::FREE_SUPER {
            self.free_super.push(buffer);
        } else if buffer.capacity() == self.size && self.free.len() < Self::FREE {
            self.free.push(buffer);
        }
    }
}

impl AsRef<[u8]> for IpPacket {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl AsMut<[u8]> for IpPacket {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.buffer
    }
}

impl tun_rs::ExpandBuffer for IpPacket {
    fn buf_capacity(&self) -> usize {
        self.buffer.capacity()
    }

    fn buf_resize(&mut self, new_len: usize, value: u8) {
        self.buffer.resize(new_len, value);
    }

    fn buf_extend_from_slice(&mut self, extend: &[u8]) {
        self.buffer.extend_from_slice(extend);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A buffer as read from the kernel: its header with a kind, `gso_size` and `csum_start`, and a
    /// packet.
    fn given(kind: u8, gso_size: u16, csum_start: u16, packet: &[u8]) -> Vec<u8> {
        let [size, start] = [gso_size, csum_start].map(u16::to_ne_bytes);
        [&[1, kind, 0, 0], &size[..], &start, &[16, 0], packet].concat()
    }

    /// Packets and bytes on the wire.
    fn counted(given: &[u8]) -> (u64, u64) {
        let packet = IpPacket::whole(given.to_vec(), given.len()).unwrap();
        (packet.packets().get(), packet.size().get())
    }

    #[test]
    fn the_packets_of_a_super_packet_count_with_their_headers() {
        let mut tcp = vec![0; 20 + 32 + 3 * 1448 + 1];
        tcp[20 + 12] = 8 << 4;
        let len = tcp.len() as u64;
        assert_eq!(counted(&given(1, 1448, 20, &tcp)), (4, len + 3 * 52));
        assert_eq!(counted(&given(1 | 0x80, 1448, 20, &tcp)), (4, len + 3 * 52), "with ECN");
        assert_eq!(counted(&given(0, 0, 20, &tcp)), (1, len), "no super-packet");
        assert_eq!(counted(&given(5, 1000, 40, &[0; 48 + 2000])), (2, 2 * 1048), "UDP over IPv6");
        assert!(IpPacket::whole(given(0, 0, 0, &[]), 10).is_none());
        assert!(IpPacket::whole(vec![0; 4], 4).is_none());
    }

    #[test]
    fn a_buffer_of_a_super_packet_is_used_again() {
        let mut pool = Pool::new(1500);
        let buffer = pool.take_super();
        let address = buffer.as_ptr();
        pool.recycle(IpPacket::whole(buffer, 20_000).unwrap());
        let again = pool.take_super();
        assert_eq!(again.as_ptr(), address);
    }

    proptest! {
        #[test]
        fn any_bytes_are_at_least_one_packet_of_at_least_their_size(
            kind in prop_oneof![Just(1u8), Just(4), Just(5), any::<u8>()],
            gso_size: u16,
            csum_start in prop_oneof![0u16..100, any::<u16>()],
            packet in proptest::collection::vec(any::<u8>(), 1..3000),
        ) {
            let (packets, size) = counted(&given(kind, gso_size, csum_start, &packet));
            prop_assert!(packets >= 1 && size >= packet.len() as u64);
        }
    }
}
