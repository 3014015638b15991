//! The fields of a packet's headers that a queue uses.

use core::net::{IpAddr, Ipv6Addr};

use super::StreamProtocol;
use crate::host::Band;

/// The 5-tuple of a flow: addresses, ports and protocol. IPv4 addresses are mapped into IPv6 (RFC
/// 4291 section 2.5.5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// The sender's address.
    pub source: Ipv6Addr,
    /// The receiver's address.
    pub destination: Ipv6Addr,
    /// The sender's port; 0 if the protocol has none, or if it is unknown.
    pub source_port: u16,
    /// The receiver's port; 0 likewise.
    pub destination_port: u16,
    /// The protocol above IP, as IANA numbers it.
    pub protocol: u8,
}

impl FlowKey {
    /// The protocol number of TCP.
    pub const TCP: u8 = 6;
    /// The protocol number of UDP.
    pub const UDP: u8 = 17;

    /// The flow between two addresses, without ports.
    pub fn between(source: IpAddr, destination: IpAddr, protocol: u8) -> Self {
        Self {
            source: mapped(source),
            destination: mapped(destination),
            source_port: 0,
            destination_port: 0,
            protocol,
        }
    }
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

impl Default for FlowKey {
    /// The flow of packets without a header.
    fn default() -> Self {
        Self::between(Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into(), 0)
    }
}

/// The congestion field of a packet (RFC 3168 section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ecn {
    /// Its sender does not support ECN.
    #[default]
    NotCapable,
    /// Its sender responds to marks as to drops.
    Capable,
    /// It has met congestion.
    Marked,
}

/// The fields of a packet's headers, and its band on its host. The default is that of a packet
/// without headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// Its flow.
    pub flow: FlowKey,
    /// Its differentiated services code point, 0 to 63 (RFC 2474).
    pub dscp: u8,
    /// Whether it may be marked, or is.
    pub ecn: Ecn,
    /// Whether it is a fragment, of use only with all the others of its packet.
    pub is_fragment: bool,
    /// Whether it is an update of our own protocol ([`crate::wire`]).
    pub is_update: bool,
    /// The protocol that it looks like, if all packets of that must arrive; never that of an
    /// update.
    pub stream: Option<StreamProtocol>,
    /// Whether it keeps the link itself working: neighbour discovery (RFC 4861, hop limit 255) or
    /// MLD (RFC 3810, hop limit 1, to a link-local group). Routers let it pass first, as ARP. A
    /// forwarded packet never does.
    pub is_link_control: bool,
    /// Its band, by the [law](crate::host::BandLaw) of the host that it leaves. It is no field of a
    /// header, but metadata like the priority of a packet in Linux, and is used only by that host's
    /// own [queue](super::Dual).
    pub band: Band,
}
