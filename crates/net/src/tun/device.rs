//! A TUN device that carries super-packets: large ones to and from the kernel, real ones here.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};

use freshline_core::router::{Ecn, FlowKey, Header, Packet, mark_congestion};
use freshline_core::unit::Bytes;
use freshline_system::netlink::{LinkSettings, Route};
use tun_rs::{DeviceBuilder, GROTable, SyncDevice, VIRTIO_NET_HDR_LEN};

/// The smallest MTU that IPv6 works with (RFC 8200, section 5).
pub(crate) const IPV6_MIN_MTU: u16 = 1280;

/// An IP packet, behind the room for the header that goes with it to the kernel.
#[derive(Debug)]
pub(crate) struct IpPacket {
    buffer: Vec<u8>,
    header: Header,
}

impl IpPacket {
    fn new(buffer: Vec<u8>) -> Self {
        let header = Header::of_ip(&buffer[VIRTIO_NET_HDR_LEN..]).unwrap_or_default();
        Self { buffer, header }
    }

    /// The packet itself.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[VIRTIO_NET_HDR_LEN..]
    }

    /// Whether it is a datagram of UDP.
    pub(crate) fn is_datagram(&self) -> bool {
        self.header.flow.protocol == FlowKey::UDP
    }
}

impl Packet for IpPacket {
    fn size(&self) -> Bytes {
        Bytes::from(self.buffer.len() - VIRTIO_NET_HDR_LEN)
    }

    fn header(&self) -> Header {
        self.header
    }

    fn mark(&mut self) -> bool {
        let is_marked = mark_congestion(&mut self.buffer[VIRTIO_NET_HDR_LEN..]);
        if is_marked {
            self.header.ecn = Ecn::Marked;
        }
        is_marked
    }
}

/// Buffers for packets, so that they need not be allocated again and again.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The size of each buffer.
    size: usize,
    free: Vec<Vec<u8>>,
}

impl Pool {
    /// How many free buffers are kept: 16 MB with an MTU of 1500.
    const FREE: usize = 10_000;

    pub(crate) fn new(mtu: u16) -> Self {
        Self { size: VIRTIO_NET_HDR_LEN + usize::from(mtu), free: Vec::new() }
    }

    fn take(&mut self) -> Vec<u8> {
        let mut buffer = self.free.pop().unwrap_or_else(|| Vec::with_capacity(self.size));
        buffer.resize(self.size, 0);
        buffer
    }

    /// Takes a buffer back; one that grew in a delivery is not kept.
    pub(crate) fn recycle(&mut self, packet: IpPacket) {
        if packet.buffer.capacity() == self.size && self.free.len() < Self::FREE {
            self.free.push(packet.buffer);
        }
    }
}

/// A device. It is there as long as this is.
pub(crate) struct Device {
    tun: SyncDevice,
    /// A super-packet with its header.
    super_packet: Box<[u8]>,
    /// What super-packets are segmented into: empty buffers of the pool.
    segments: Vec<Vec<u8>>,
    sizes: [usize; Self::SEGMENTS],
    groups: GROTable,
}

impl Device {
    /// Of how many packets a super-packet may consist.
    const SEGMENTS: usize = 128;
    /// How many packets wait in the kernel until they are read.
    const QUEUE: u32 = 4096;

    /// A device with this name in the calling thread's namespace; it fails with
    /// [`io::ErrorKind::ResourceBusy`] if there is one with this name already.
    pub(crate) fn create(name: &str) -> io::Result<Self> {
        let tun = DeviceBuilder::new().name(name).offload(true).enable(false).build_sync()?;
        tun.set_nonblocking(true)?;
        Ok(Self {
            tun,
            super_packet: vec![0; VIRTIO_NET_HDR_LEN + (1 << 16)].into_boxed_slice(),
            segments: Vec::new(),
            sizes: [0; Self::SEGMENTS],
            groups: GROTable::new(),
        })
    }

    /// Gives it its addresses, with the lengths of their prefixes, and brings it up; without IPv6
    /// if that needs a larger MTU.
    pub(crate) fn set_up(
        &self,
        route: &mut Route,
        addresses: &[(IpAddr, u8)],
        mtu: u16,
    ) -> io::Result<()> {
        let name = self.tun.name()?;
        let settings = LinkSettings {
            mtu: mtu.into(),
            queue_len: Self::QUEUE,
            gso_max_segs: Self::SEGMENTS as u32,
        };
        // Without these two the kernel sends packets of its own over the path.
        let ipv6 = format!("/proc/sys/net/ipv6/conf/{name}");
        for (setting, value) in [("addr_gen_mode", "1"), ("router_solicitations", "0")] {
            // Where the kernel has no IPv6 or does not let us, the path has more traffic.
            let _ = std::fs::write(format!("{ipv6}/{setting}"), value);
        }
        route.set_up(&name, settings)?;
        for (address, len) in addresses {
            if address.is_ipv4() || mtu >= IPV6_MIN_MTU {
                route.add_address(&name, *address, *len)?;
            }
        }
        Ok(())
    }

    /// Reads what the kernel sends next, a packet or a super-packet, and hands out the packets in
    /// it with their checksums done. What is for the link itself is left out: routers do not
    /// forward it, and the kernel's own announcements are of this kind. Fails with
    /// [`io::ErrorKind::WouldBlock`] if there is nothing.
    pub(crate) fn read(
        &mut self,
        pool: &mut Pool,
        mut take: impl FnMut(&mut Pool, IpPacket),
    ) -> io::Result<()> {
        self.segments.resize_with(Self::SEGMENTS, || pool.take());
        let count = self.tun.recv_multiple(
            &mut self.super_packet,
            &mut self.segments,
            &mut self.sizes,
            VIRTIO_NET_HDR_LEN,
        )?;
        for (segment, size) in self.segments.iter_mut().zip(self.sizes).take(count) {
            let mut buffer = std::mem::replace(segment, pool.take());
            buffer.truncate(VIRTIO_NET_HDR_LEN + size);
            let packet = IpPacket::new(buffer);
            if is_for_the_link(packet.bytes()) {
                pool.recycle(packet);
            } else {
                take(pool, packet);
            }
        }
        Ok(())
    }

    /// Gives packets to the kernel, those that follow each other in a flow as one super-packet.
    /// The packets come out changed.
    pub(crate) fn write(&mut self, packets: &mut [IpPacket]) -> io::Result<()> {
        self.tun.send_multiple(&mut self.groups, packets, VIRTIO_NET_HDR_LEN).map(|_| ())
    }
}

/// Whether a packet is for a multicast group of the link: 224.0.0.0/24 (RFC 5771, section 4) or
/// ff02::/16 (RFC 4291, section 2.7).
fn is_for_the_link(packet: &[u8]) -> bool {
    match packet.first().map(|first| first >> 4) {
        Some(4) => packet.get(16..19) == Some(&[224, 0, 0]),
        Some(6) => packet.get(24..26) == Some(&[0xff, 0x02]),
        _ => false,
    }
}

impl AsRawFd for Device {
    fn as_raw_fd(&self) -> RawFd {
        self.tun.as_raw_fd()
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
