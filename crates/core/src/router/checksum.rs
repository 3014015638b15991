//! Completes the checksum of TCP and UDP where a host left it to its network card.
//!
//! Linux hands on packets of its own and of its virtual machines with only the sum of the pseudo
//! header in the checksum's field (`CHECKSUM_PARTIAL`), for the network card to add the rest. A
//! packet that is changed and given back to the kernel as finished needs the whole checksum.

use super::FlowKey;

/// Completes the checksum of an unfragmented TCP or UDP packet, given whole from its IP header on.
/// Returns whether it is complete now: not if the packet has another transport, IPv6 extension
/// headers, is a fragment or cut off, or if its field holds something else than the sum of its
/// pseudo header, as where the unfinished checksum is that of a packet inside.
#[must_use]
pub fn complete_checksum(packet: &mut [u8]) -> bool {
    let Some(Transport { at, end, protocol, pseudo }) = Transport::of(packet) else { return false };
    let field = match protocol {
        FlowKey::TCP => at + 16,
        _ => at + 6,
    };
    let Some([high, low]) = packet.get(field..field + 2).filter(|_| field + 2 <= end) else {
        return false;
    };
    if u16::from_be_bytes([*high, *low]) != folded(pseudo) {
        return false;
    }
    // The field is a part of the segment, and holds the pseudo header's sum: it is added with it.
    let checksum = match !folded(sum(&packet[at..end])) {
        // In UDP zero is no checksum (RFC 768).
        0 if protocol == FlowKey::UDP => u16::MAX,
        checksum => checksum,
    };
    packet[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    true
}

/// The position of the TCP or UDP of a packet.
struct Transport {
    at: usize,
    end: usize,
    protocol: u8,
    /// The sum of the pseudo header.
    pseudo: u32,
}

impl Transport {
    fn of(packet: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]));
        let (at, end, protocol, addresses) = match packet.first()? >> 4 {
            4 => {
                const MORE_OR_OFFSET: u16 = 0x3fff;
                let at = usize::from(packet[0] & 0xf) * 4;
                if at < 20 || number(6)? & MORE_OR_OFFSET != 0 {
                    return None;
                }
                (at, usize::from(number(2)?), *packet.get(9)?, packet.get(12..20)?)
            }
            6 => (40, 40 + usize::from(number(4)?), *packet.get(6)?, packet.get(8..40)?),
            _ => return None,
        };
        if ![FlowKey::TCP, FlowKey::UDP].contains(&protocol) || end > packet.len() || end < at {
            return None;
        }
        let pseudo = sum(addresses) + u32::from(protocol) + (end - at) as u32;
        Some(Self { at, end, protocol, pseudo })
    }
}

/// The sum of 16-bit words (RFC 1071); of at most 2¹⁶ bytes, which do not overflow it.
fn sum(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<2>();
    let last = rest.first().map_or(0, |byte| u32::from(*byte) << 8);
    words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum::<u32>() + last
}

/// The sum with its carries added.
fn folded(sum: u32) -> u16 {
    let folded = (sum & 0xffff) + (sum >> 16);
    ((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use etherparse::{Ipv4Header, Ipv6Header, TcpHeader, UdpHeader, ip_number};
    use proptest::prelude::*;

    /// Packets with the checksum that etherparse computes: the finished ones.
    fn finished(kind: u8, payload: &[u8], ends: [u8; 16]) -> Vec<u8> {
        let [a, b, c, d, ..] = ends;
        let numbers = [ip_number::UDP, ip_number::TCP, ip_number::UDP, ip_number::TCP];
        let number = numbers[usize::from(kind)];
        let header = if number == ip_number::UDP { 8 } else { 20 };
        let length = (header + payload.len()) as u16;
        let four = Ipv4Header::new(length, 64, number, [10, a, b, 1], [10, c, d, 2]).unwrap();
        let six = Ipv6Header {
            payload_length: length,
            next_header: number,
            source: ends,
            destination: [7; 16],
            ..Ipv6Header::default()
        };
        let udp = UdpHeader { source_port: 1000, destination_port: 2000, length, checksum: 0 };
        let tcp = TcpHeader::new(1000, 2000, 7, 100);
        let (ip, checksum) = match kind {
            0 => (four.to_bytes().to_vec(), udp.calc_checksum_ipv4(&four, payload).unwrap()),
            1 => (four.to_bytes().to_vec(), tcp.calc_checksum_ipv4(&four, payload).unwrap()),
            2 => (six.to_bytes().to_vec(), udp.calc_checksum_ipv6(&six, payload).unwrap()),
            _ => (six.to_bytes().to_vec(), tcp.calc_checksum_ipv6(&six, payload).unwrap()),
        };
        let transport = match number {
            ip_number::UDP => UdpHeader { checksum, ..udp }.to_bytes().to_vec(),
            _ => TcpHeader { checksum, ..tcp }.to_bytes().to_vec(),
        };
        [ip, transport, payload.to_vec()].concat()
    }

    fn field(kind: u8) -> usize {
        [20 + 6, 20 + 16, 40 + 6, 40 + 16][usize::from(kind)]
    }

    proptest! {
        #[test]
        fn an_unfinished_checksum_is_finished_as_the_card_would(
            kind in 0..4u8,
            payload in prop::collection::vec(any::<u8>(), 0..200),
            ends: [u8; 16],
        ) {
            let whole = finished(kind, &payload, ends);
            let field = field(kind);
            let mut packet = whole.clone();
            let pseudo = folded(Transport::of(&packet).unwrap().pseudo);
            packet[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
            // Bytes that a card ignores.
            packet.extend([0xaa; 3]);
            prop_assert!(complete_checksum(&mut packet));
            prop_assert_eq!(&packet[..whole.len()], &whole[..]);
        }

        #[test]
        fn whatever_the_bytes_are_it_ends(mut packet in prop::collection::vec(any::<u8>(), 0..100)) {
            let before = packet.clone();
            prop_assert!(complete_checksum(&mut packet) || packet == before);
        }
    }

    #[test]
    fn what_is_not_known_to_be_unfinished_stays_as_it_is() {
        for kind in 0..4 {
            let whole = finished(kind, b"state", [3; 16]);
            let mut packet = whole.clone();
            assert!(!complete_checksum(&mut packet), "a finished checksum");
            assert_eq!(packet, whole);
        }
        // UDP without a checksum, as around an inner packet (VXLAN).
        let mut tunnel = finished(0, b"inner", [3; 16]);
        tunnel[26..28].fill(0);
        assert!(!complete_checksum(&mut tunnel));
        let mut fragment = finished(0, b"state", [3; 16]);
        fragment[6] = 0x20;
        assert!(!complete_checksum(&mut fragment));
    }
}
