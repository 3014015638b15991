//! Datagrams on the emulated path, and the pool of their buffers.

use std::net::{IpAddr, SocketAddr};

use etherparse::{IpDscp, IpNumber, Ipv4Header, Ipv6Header, UdpHeader};
use freshline_core::dscp::Dscp;
use freshline_core::link::Airborne;
use freshline_core::router::{FlowKey, Header, Packet};
use freshline_core::unit::Bytes;
use freshline_core::wire;
use mio::Token;

/// The TTL or hop limit of the IP packets.
const HOPS: u8 = 64;

/// A UDP datagram and the flow that it belongs to.
#[derive(Debug)]
pub(super) struct Datagram {
    pub(super) flow: Token,
    /// The station of its client, if there is Wi-Fi.
    pub(super) station: u32,
    pub(super) payload: Vec<u8>,
    /// Between the client and the target, in its direction.
    pub(super) key: FlowKey,
    /// Its differentiated services code point.
    pub(super) dscp: Dscp,
    /// The size of the IP and UDP headers that it would have.
    pub(super) headers: Bytes,
}

impl Datagram {
    /// Writes it to `out` as an IP packet on the path.
    pub(super) fn write_ip(&self, from: SocketAddr, to: SocketAddr, out: &mut Vec<u8>) {
        // A dual-stack socket maps IPv4 addresses into IPv6 addresses.
        let [from, to] = [from, to].map(|end| SocketAddr::new(end.ip().to_canonical(), end.port()));
        let length = u16::try_from(8 + self.payload.len()).unwrap_or(u16::MAX);
        let udp = UdpHeader {
            source_port: from.port(),
            destination_port: to.port(),
            length,
            checksum: 0,
        };
        out.clear();
        // The checksum of a packet that arrived as a datagram can always be calculated.
        let checksum = match (from.ip(), to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let (from, to) = (from.octets(), to.octets());
                let ip = Ipv4Header::new(length, HOPS, IpNumber::UDP, from, to);
                let dscp = IpDscp::try_new(self.dscp.get()).unwrap_or_default();
                let ip = ip.map(|ip| Ipv4Header { dscp, ..ip }.to_bytes());
                out.extend_from_slice(&ip.unwrap_or_default());
                udp.calc_checksum_ipv4_raw(from, to, &self.payload)
            }
            (from, to) => {
                let octets = |address: IpAddr| match address {
                    IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                    IpAddr::V6(address) => address.octets(),
                };
                let ip = Ipv6Header {
                    traffic_class: self.dscp.traffic_class(),
                    payload_length: length,
                    next_header: IpNumber::UDP,
                    hop_limit: HOPS,
                    source: octets(from),
                    destination: octets(to),
                    ..Ipv6Header::default()
                };
                out.extend_from_slice(&ip.to_bytes());
                udp.calc_checksum_ipv6_raw(ip.source, ip.destination, &self.payload)
            }
        };
        let udp = UdpHeader { checksum: checksum.unwrap_or(0), ..udp };
        out.extend_from_slice(&udp.to_bytes());
        out.extend_from_slice(&self.payload);
    }
}

impl Packet for Datagram {
    fn size(&self) -> Bytes {
        Bytes::from(self.payload.len()) + self.headers
    }

    /// The header of a packet between the client and the target, without the relay.
    fn header(&self) -> Header {
        let is_update = wire::session_of_update(&self.payload).is_some();
        Header { flow: self.key, dscp: self.dscp.get(), is_update, ..Header::default() }
    }
}

/// The UDP flow from one end to the other.
pub(super) fn key(from: SocketAddr, to: SocketAddr) -> FlowKey {
    FlowKey {
        source_port: from.port(),
        destination_port: to.port(),
        ..FlowKey::between(from.ip(), to.ip(), FlowKey::UDP)
    }
}

impl Airborne for Datagram {
    fn station(&self) -> u32 {
        self.station
    }
}

/// Recycles the buffers of datagrams that have left.
#[derive(Debug, Default)]
pub(super) struct Pool {
    free: Vec<Vec<u8>>,
}

impl Pool {
    /// The size of a pooled buffer: any datagram on common links fits. Buffers for larger datagrams
    /// are allocated individually, so a small datagram never holds a large buffer.
    const BUFFER: usize = 2048;
    /// The maximum number of free buffers: 8 MiB.
    const FREE: usize = 4096;

    /// A buffer with the content of `payload`.
    pub(super) fn copy_of(&mut self, payload: &[u8]) -> Vec<u8> {
        if payload.len() > Self::BUFFER {
            return payload.to_vec();
        }
        let mut buffer = self.free.pop().unwrap_or_else(|| Vec::with_capacity(Self::BUFFER));
        buffer.extend_from_slice(payload);
        buffer
    }

    /// Takes a buffer back.
    pub(super) fn recycle(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() == Self::BUFFER && self.free.len() < Self::FREE {
            buffer.clear();
            self.free.push(buffer);
        }
    }
}
