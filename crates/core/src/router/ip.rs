//! Parses the front of an IP packet or an Ethernet frame into its [`Header`], and marks a packet
//! for congestion.
//!
//! Any bytes are accepted, cut off anywhere: fields that cannot be read keep their defaults, and
//! bytes other than IP have no header. The work is bounded by the bytes at hand, as each extension
//! header of IPv6 takes at least 8 of them. `etherparse` walks them.
//!
//! # What tells flows apart
//!
//! TCP, UDP, UDP-Lite, SCTP and DCCP have ports, at the same place; the flow of anything else
//! (ICMP, ESP, tunnels) is its addresses and its protocol. Only the first fragment of a packet
//! holds its ports, so no fragment's are read: all fragments of all packets between two hosts with
//! the same protocol are one flow.

use etherparse::{
    EtherType, Ethernet2HeaderSlice, IpNumber, LaxIpSlice, SingleVlanHeaderSlice, ip_number,
};

use super::{Ecn, FlowKey, Header, StreamProtocol};
use crate::wire;

/// Protocols whose headers begin with the ports of sender and receiver.
const WITH_PORTS: [IpNumber; 5] =
    [ip_number::TCP, ip_number::UDP, ip_number::DCCP, ip_number::SCTP, ip_number::UDP_LITE];

/// The maximum number of VLAN tags in a frame that are skipped: providers nest one within another
/// (IEEE 802.1ad).
const MAX_TAGS: usize = 2;

const UDP_HEADER_LEN: usize = 8;

impl Header {
    /// The number of bytes of a packet that suffice: IPv6 with 60 bytes of extension headers, UDP,
    /// and the front of an update.
    pub const SNAP_LEN: usize = 128;

    /// Reads the front of a packet from its IP header on; `None` if there is no whole IP header.
    pub fn of_ip(packet: &[u8]) -> Option<Self> {
        let (ip, cut) = LaxIpSlice::from_slice(packet).ok()?;
        let traffic_class = match &ip {
            LaxIpSlice::Ipv4(ip) => *ip.header().slice().get(1)?,
            LaxIpSlice::Ipv6(ip) => ip.header().traffic_class(),
        };
        let protocol = ip.payload_ip_number();
        let mut header = Self {
            flow: FlowKey::between(ip.source_addr(), ip.destination_addr(), protocol.0),
            dscp: traffic_class >> 2,
            ecn: match traffic_class & ecn::MASK {
                ecn::NOT_CAPABLE => Ecn::NotCapable,
                ecn::MARKED => Ecn::Marked,
                _ => Ecn::Capable,
            },
            is_fragment: ip.is_fragmenting_payload(),
            ..Self::default()
        };
        if !header.is_fragment {
            header.stream = StreamProtocol::of_protocol(protocol.0);
        }
        // If the walk over extension headers was cut off, the rest is unknown.
        if header.is_fragment || cut.is_some() {
            return Some(header);
        }
        let payload = ip.payload().payload;
        if let ([a, b, c, d, ..], true) = (payload, WITH_PORTS.contains(&protocol)) {
            header.flow.source_port = u16::from_be_bytes([*a, *b]);
            header.flow.destination_port = u16::from_be_bytes([*c, *d]);
        }
        if let (LaxIpSlice::Ipv6(ip), ip_number::IPV6_ICMP, [kind, ..]) = (&ip, protocol, payload) {
            let (fixed, to) = (ip.header(), ip.header().destination());
            header.is_link_control = match fixed.hop_limit() {
                255 => (133..=137).contains(kind),
                1 => to[..2] == [0xff, 0x02] && (130..=143).contains(kind),
                _ => false,
            };
        }
        if let ([_, _, _, _, a, b, _, _, datagram @ ..], ip_number::UDP) = (payload, protocol) {
            header.is_update = wire::session_of_update(datagram).is_some();
            if !header.is_update {
                let ports = [header.flow.source_port, header.flow.destination_port];
                let length =
                    usize::from(u16::from_be_bytes([*a, *b])).saturating_sub(UDP_HEADER_LEN);
                header.stream = StreamProtocol::of_datagram(ports, length, datagram);
            }
        }
        Some(header)
    }

    /// Parses the front of an Ethernet frame, behind at most two VLAN tags; `None` if it carries no
    /// IP.
    pub fn of_ethernet(frame: &[u8]) -> Option<Self> {
        let ethernet = Ethernet2HeaderSlice::from_slice(frame).ok()?;
        let (mut kind, mut rest) = (ethernet.ether_type(), &frame[ethernet.slice().len()..]);
        for _ in 0..MAX_TAGS {
            if !matches!(
                kind,
                EtherType::VLAN_TAGGED_FRAME
                    | EtherType::PROVIDER_BRIDGING
                    | EtherType::VLAN_DOUBLE_TAGGED_FRAME
            ) {
                break;
            }
            let tag = SingleVlanHeaderSlice::from_slice(rest).ok()?;
            (kind, rest) = (tag.ether_type(), &rest[tag.slice().len()..]);
        }
        matches!(kind, EtherType::IPV4 | EtherType::IPV6).then(|| Self::of_ip(rest))?
    }
}

/// The field of two bits (RFC 3168 section 5).
mod ecn {
    pub(super) const MASK: u8 = 0b11;
    pub(super) const NOT_CAPABLE: u8 = 0b00;
    pub(super) const MARKED: u8 = 0b11;
}

/// Marks an IP packet as having met congestion (CE, RFC 3168 section 5), if its sender supports
/// ECN; IPv4's checksum stays right. Returns whether it is marked now.
pub fn mark_congestion(packet: &mut [u8]) -> bool {
    match *packet {
        [first, ref mut traffic_class, _, _, _, _, _, _, _, _, ref mut high, ref mut low, ..]
            if first >> 4 == 4 =>
        {
            if *traffic_class & ecn::MASK == ecn::NOT_CAPABLE {
                return false;
            }
            // RFC 1624, equation 3; the version and length in the same word do not change.
            let marked = *traffic_class | ecn::MARKED;
            let sum = u32::from(!u16::from_be_bytes([*high, *low]))
                + u32::from(!u16::from(*traffic_class))
                + u32::from(marked);
            let folded = (sum & 0xffff) + (sum >> 16);
            let folded = (folded & 0xffff) + (folded >> 16);
            [*high, *low] = (!(folded as u16)).to_be_bytes();
            *traffic_class = marked;
            true
        }
        // The traffic class lies across the first two bytes.
        [first, ref mut second, ..] if first >> 4 == 6 => {
            if *second >> 4 & ecn::MASK == ecn::NOT_CAPABLE {
                return false;
            }
            *second |= ecn::MARKED << 4;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::Time;
    use crate::wire::{Frames, SessionId, Update};
    use alloc::vec;
    use alloc::vec::Vec;
    use core::net::IpAddr;
    use etherparse::{Ipv4Header, Ipv4HeaderSlice};
    use proptest::prelude::*;

    const FROM: [u8; 4] = [10, 0, 0, 1];
    const TO: [u8; 4] = [10, 0, 0, 2];

    fn v4(protocol: u8, options: &[u8], fragment: u16, payload: &[u8]) -> Vec<u8> {
        let header_len = 20 + options.len();
        let mut packet = vec![0x40 | (header_len / 4) as u8, 0xba];
        packet.extend(((header_len + payload.len()) as u16).to_be_bytes());
        packet.extend([0, 7]);
        packet.extend(fragment.to_be_bytes());
        packet.extend([64, protocol, 0, 0]);
        packet.extend(FROM.iter().chain(&TO).chain(options));
        let sum = Ipv4HeaderSlice::from_slice(&packet).unwrap().to_header().calc_header_checksum();
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend(payload);
        packet
    }

    fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x6b, 0xa0, 0, 0];
        packet.extend((payload.len() as u16).to_be_bytes());
        packet.extend([next, 64]);
        packet.extend([[0xfd; 16], [0xfe; 16]].concat());
        packet.extend(payload);
        packet
    }

    fn update() -> Vec<u8> {
        let update = Update {
            session: SessionId(7),
            seq: 1,
            sent_at: Time::from_nanos(5),
            clock_offset: None,
            wants_ack: true,
            wants_return: false,
            ack_mark: None,
            opening: None,
            frames: Frames::fresh(b"state"),
        };
        let mut bytes = vec![0; update.len()];
        update.write(&mut bytes).unwrap();
        bytes
    }

    /// From port 1000 to port 2000.
    fn with_ports(rest: &[u8]) -> Vec<u8> {
        [&[0x03, 0xe8, 0x07, 0xd0, 0, 0, 0, 0][..], rest].concat()
    }

    fn ports(packet: &[u8]) -> (u16, u16) {
        let flow = Header::of_ip(packet).unwrap().flow;
        (flow.source_port, flow.destination_port)
    }

    #[test]
    fn an_update_over_ipv4_tells_all_there_is_to_tell() {
        let header = Header::of_ip(&v4(17, &[], 0, &with_ports(&update()))).unwrap();
        let mut flow = FlowKey::between(IpAddr::from(FROM), IpAddr::from(TO), FlowKey::UDP);
        (flow.source_port, flow.destination_port) = (1000, 2000);
        let (ecn, is_update) = (Ecn::Capable, true);
        let expected = Header { flow, dscp: 46, ecn, is_update, ..Header::default() };
        assert_eq!(header, expected);
        // The front suffices, and it is UDP that carries updates.
        let long = v4(17, &[1; 40], 0, &with_ports(&[update(), vec![0; 900]].concat()));
        assert!(Header::of_ip(&long[..Header::SNAP_LEN]).unwrap().is_update);
        assert!(!Header::of_ip(&v4(6, &[], 0, &with_ports(&update()))).unwrap().is_update);
    }

    #[test]
    fn ports_are_read_where_a_protocol_has_them() {
        for protocol in [6, 17, 33, 132, 136] {
            assert_eq!(ports(&v4(protocol, &[1; 8], 0, &with_ports(b""))), (1000, 2000));
            assert_eq!(ports(&v6(protocol, &with_ports(b""))), (1000, 2000));
        }
        for protocol in [1, 47, 50, 58] {
            assert_eq!(ports(&v4(protocol, &[], 0, &with_ports(b""))), (0, 0));
        }
        assert_eq!(ports(&v4(17, &[], 0, &[3, 0xe8, 7])), (0, 0), "cut within the ports");
    }

    #[test]
    fn all_fragments_are_of_one_flow_without_ports() {
        let (first, last) = (0x2000, 0x00b9);
        for fragment in [first, last] {
            let header = Header::of_ip(&v4(17, &[], fragment, &with_ports(&update()))).unwrap();
            assert!(header.is_fragment && !header.is_update);
            assert_eq!((header.flow.source_port, header.flow.protocol), (0, 17));
        }
        // IPv6: behind a fragment header.
        let fragment =
            |offset: u8| [&[17, 0, 0, offset, 0, 0, 0, 7][..], &with_ports(b"")].concat();
        for (offset, is_fragment) in [(1, true), (8, true), (0, false)] {
            let header = Header::of_ip(&v6(44, &fragment(offset))).unwrap();
            assert_eq!(header.is_fragment, is_fragment);
            assert_eq!(header.flow.source_port, if is_fragment { 0 } else { 1000 });
        }
    }

    #[test]
    fn a_tunnel_is_one_flow_and_its_content_is_no_update() {
        let inside = v4(17, &[], 0, &with_ports(&update()));
        let gre = [&[0, 0, 8, 0][..], &inside].concat();
        for (protocol, content) in [(47, &gre), (4, &inside), (50, &inside)] {
            for packet in [v4(protocol, &[], 0, content), v6(protocol, content)] {
                let header = Header::of_ip(&packet).unwrap();
                assert_eq!(header.stream, Some(StreamProtocol::Tunnel), "{protocol}");
                assert!(!header.is_update && header.flow.destination_port == 0);
            }
        }
    }

    #[test]
    fn neighbour_discovery_and_mld_are_link_control_unless_forwarded() {
        let packet = |hop_limit: u8, group: [u8; 2], kind: u8| {
            let mut packet = v6(58, &[kind, 0, 0, 0]);
            packet[7] = hop_limit;
            packet[24..26].copy_from_slice(&group);
            Header::of_ip(&packet).unwrap().is_link_control
        };
        for kind in 133..=137 {
            assert!(packet(255, [0xfd, 1], kind) && packet(255, [0xff, 2], kind));
            assert!(!packet(254, [0xfd, 1], kind));
        }
        for kind in [130, 131, 132, 143] {
            assert!(packet(1, [0xff, 2], kind));
            assert!(!packet(1, [0xff, 5], kind) && !packet(64, [0xff, 2], kind));
        }
        assert!(!packet(255, [0xff, 2], 128), "an echo request");
    }

    #[test]
    fn extension_headers_are_walked_to_the_ports_or_to_where_they_are_cut() {
        // Hop-by-hop, routing and destination options, then UDP.
        let mut payload = [[43, 0, 0, 0, 0, 0, 0, 0], [60, 0, 0, 0, 0, 0, 0, 0]].concat();
        payload.extend([17, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        payload.extend(with_ports(&update()));
        let packet = v6(0, &payload);
        let header = Header::of_ip(&packet).unwrap();
        assert_eq!((header.flow.destination_port, header.is_update), (2000, true));
        assert_eq!((header.dscp, header.ecn), (46, Ecn::Capable));
        let cut = Header::of_ip(&packet[..60]).unwrap();
        assert_eq!((cut.flow.source_port, cut.is_update), (0, false));
    }

    #[test]
    fn frames_are_looked_into_behind_two_tags() {
        let packet = v4(17, &[], 0, &with_ports(&update()));
        let frame = |tags: &[[u8; 4]], kind: [u8; 2], content: &[u8]| {
            [&[2; 12][..], tags.concat().as_slice(), &kind, content].concat()
        };
        let (inner, outer) = ([0x81, 0, 0, 5], [0x88, 0xa8, 0, 6]);
        let (ipv4, arp) = ([8, 0], [8, 6]);
        for tags in [&[][..], &[inner], &[outer, inner]] {
            assert_eq!(Header::of_ethernet(&frame(tags, ipv4, &packet)), Header::of_ip(&packet));
            assert_eq!(Header::of_ethernet(&frame(tags, arp, &packet)), None);
        }
        let three = [outer, inner, inner];
        assert_eq!(Header::of_ethernet(&frame(&three, ipv4, &packet)), None);
    }

    #[test]
    fn what_is_no_ip_has_no_header_and_no_mark() {
        for bytes in [&[][..], &[0x45; 19], &[0x60; 39], &[0x15; 60]] {
            assert_eq!(Header::of_ip(bytes), None);
        }
        assert!(!mark_congestion(&mut [0x45, 3]) && !mark_congestion(&mut [0x15; 60]));
    }

    #[test]
    fn senders_that_take_no_part_are_not_marked() {
        let (mut four, mut six) = (v4(6, &[], 0, &[]), v6(6, &[]));
        (four[1], six[1]) = (0xb8, 0x80);
        let before = (four.clone(), six.clone());
        assert!(!mark_congestion(&mut four) && !mark_congestion(&mut six));
        assert_eq!((four, six), before);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
            version in prop_oneof![Just(0x45), Just(0x46), Just(0x60), any::<u8>()],
        ) {
            let _ = Header::of_ethernet(&bytes);
            if let Some(first) = bytes.first_mut() {
                *first = version;
            }
            let before = Header::of_ip(&bytes);
            let marked = mark_congestion(&mut bytes);
            if let Some(before) = before {
                prop_assert_eq!(marked, before.ecn != Ecn::NotCapable);
                let ecn = if marked { Ecn::Marked } else { before.ecn };
                prop_assert_eq!(Header::of_ip(&bytes), Some(Header { ecn, ..before }));
            }
        }

        /// Fragments and tunnels are not updates, whatever their content.
        #[test]
        fn fragments_and_tunnels_are_never_updates(
            payload in prop::collection::vec(any::<u8>(), 0..80),
            fragment in 1u16..0x4000,
            tunnel in prop::sample::select(&[4u8, 41, 47, 50, 97, 115][..]),
            tags in 0usize..3,
        ) {
            let content = [update(), payload].concat();
            let framed = |packet: &[u8]| {
                [&[2; 12][..], &[0x81, 0, 0, 5].repeat(tags), &[8, 0], packet].concat()
            };
            for packet in [
                v4(17, &[], fragment, &with_ports(&content)),
                v4(tunnel, &[], 0, &v4(17, &[], 0, &with_ports(&content))),
            ] {
                let header = Header::of_ethernet(&framed(&packet)).unwrap();
                prop_assert!(!header.is_update);
                prop_assert!(header.is_fragment || header.stream == Some(StreamProtocol::Tunnel));
                prop_assert_eq!(header.flow.destination_port, 0);
                let any: crate::router::Classifier = "any".parse().unwrap();
                prop_assert_eq!(any.class_of(&header), crate::router::Class::DropAverse);
            }
        }

        #[test]
        fn a_mark_leaves_the_checksum_right(
            traffic_class: u8, identification: u16, destination: [u8; 4],
        ) {
            let mut header = Ipv4Header {
                identification, destination, ..Ipv4Header::default()
            };
            header.dscp = (traffic_class >> 2).try_into().unwrap();
            header.ecn = (traffic_class & 3).try_into().unwrap();
            header.header_checksum = header.calc_header_checksum();
            let mut bytes = header.to_bytes().to_vec();
            mark_congestion(&mut bytes);
            let marked = Ipv4HeaderSlice::from_slice(&bytes).unwrap().to_header();
            prop_assert_eq!(marked.header_checksum, marked.calc_header_checksum());
        }
    }
}
