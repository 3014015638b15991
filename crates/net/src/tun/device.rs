//! A TUN device that carries super-packets: either unchanged, or segmented into real packets here
//! and joined for the kernel.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};

use super::{IpPacket, Pool};
use freshline_system::netlink::{LinkSettings, Route};
use tun_rs::{DeviceBuilder, GROTable, SyncDevice, VIRTIO_NET_HDR_LEN};

/// The smallest MTU that IPv6 works with (RFC 8200, section 5).
pub(crate) const IPV6_MIN_MTU: u16 = 1280;

/// A device, removed when this is dropped.
pub(crate) struct Device {
    tun: SyncDevice,
    /// The packet or super-packet read last, with its header.
    super_packet: Vec<u8>,
    /// Buffers for the segments of super-packets, empty and from the pool.
    segments: Vec<Vec<u8>>,
    sizes: [usize; Self::SEGMENTS],
    groups: GROTable,
}

impl Device {
    /// The maximum number of packets in a super-packet.
    const SEGMENTS: usize = 128;
    /// The kernel's limit of packets that have not been read.
    const QUEUE: u32 = 4096;

    /// Creates a device with this name in the calling thread's namespace; fails with
    /// [`io::ErrorKind::ResourceBusy`] if the name is taken.
    pub(crate) fn create(name: &str) -> io::Result<Self> {
        let tun = DeviceBuilder::new().name(name).offload(true).enable(false).build_sync()?;
        tun.set_nonblocking(true)?;
        Ok(Self {
            tun,
            super_packet: Pool::super_buffer(),
            segments: Vec::new(),
            sizes: [0; Self::SEGMENTS],
            groups: GROTable::new(),
        })
    }

    /// Assigns the addresses, with the lengths of their prefixes, and brings the device up; without
    /// IPv6 if that needs a larger MTU.
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
        // Without these two the kernel sends its own packets over the path.
        let ipv6 = format!("/proc/sys/net/ipv6/conf/{name}");
        for (setting, value) in [("addr_gen_mode", "1"), ("router_solicitations", "0")] {
            // If the kernel has no IPv6 or refuses the settings, the path has more traffic.
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

    /// Reads the kernel's next packet or super-packet, and hands out its packets with complete
    /// checksums. Packets for the link itself are left out: routers do not forward them, and the
    /// kernel's own announcements are of this kind. Fails with [`io::ErrorKind::WouldBlock`] if no
    /// packet is available.
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
            let packet = IpPacket::single(buffer);
            if is_for_the_link(packet.bytes()) {
                pool.recycle(packet);
            } else {
                take(pool, packet);
            }
        }
        Ok(())
    }

    /// Reads the kernel's next packet or super-packet and hands it out unchanged, with checksums
    /// left to the kernel. Otherwise like [`Device::read`].
    pub(crate) fn read_whole(
        &mut self,
        pool: &mut Pool,
        take: impl FnOnce(&mut Pool, IpPacket),
    ) -> io::Result<()> {
        let len = self.tun.recv(&mut self.super_packet)?;
        // A small packet must not occupy a large buffer: that would waste most of the memory of
        // many packets.
        let buffer = if len < self.super_packet.len() / 4 {
            self.super_packet[..len].to_vec()
        } else {
            std::mem::replace(&mut self.super_packet, pool.take_super())
        };
        match IpPacket::whole(buffer, len) {
            Some(packet) if is_for_the_link(packet.bytes()) => pool.recycle(packet),
            Some(packet) => take(pool, packet),
            None => {}
        }
        Ok(())
    }

    /// Writes a packet that [`Device::read_whole`] of another device handed out.
    pub(crate) fn write_whole(&self, packet: &IpPacket) -> io::Result<()> {
        self.tun.send(packet.with_kernel_header()).map(drop)
    }

    /// Writes packets to the kernel; consecutive packets of a flow form one super-packet. The
    /// packets are modified.
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
