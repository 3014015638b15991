//! The fields of a packet's headers that a queue uses.

use core::net::{IpAddr, Ipv6Addr};

use super::StreamProtocol;
use crate::host::Band;

/// Who sends to whom: the five numbers that tell flows apart. IPv4 addresses are mapped into
/// IPv6 (RFC 4291 section 2.5.5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// The sender's address.
    pub source: Ipv6Addr,
    /// The receiver's address.
    pub destination: Ipv6Addr,
    /// The sender's port; 0 where the protocol has none, or the packet does not tell.
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
    /// The flow of whatever says nothing about itself.
    fn default() -> Self {
        Self::between(Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into(), 0)
    }
}

/// The field of a packet that tells about congestion (RFC 3168 section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ecn {
    /// Its sender takes no part.
    #[default]
    NotCapable,
    /// Its sender answers marks as it answers drops.
    Capable,
    /// It has met congestion.
    Marked,
}

/// What a packet's headers say, and its host beside them. A packet without headers says nothing:
/// the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// Its flow.
    pub flow: FlowKey,
    /// Its differentiated services code point, 0 to 63 (RFC 2474).
    pub dscp: u8,
    /// Whether it may be marked, or is.
    pub ecn: Ecn,
    /// Whether it is one piece of a fragmented packet, of use only with all the others.
    pub is_fragment: bool,
    /// Whether it is an update of our own protocol ([`crate::wire`]).
    pub is_update: bool,
    /// The protocol whose packets must all arrive that it looks like; never that of an update.
    pub stream: Option<StreamProtocol>,
    /// Whether it keeps the link itself working: neighbour discovery (RFC 4861, hop limit 255) or
    /// MLD (RFC 3810, hop limit 1, to a link-local group). Routers let it pass first, as ARP. A
    /// packet that was forwarded never is.
    pub is_link_control: bool,
    /// Its band, from the [law](crate::host::BandLaw) of the host that it leaves. No header has it: it
    /// stands beside them, as the priority of a packet in Linux, and goes no further than that host's
    /// own [queue](super::Dual).
    pub band: Band,
}
