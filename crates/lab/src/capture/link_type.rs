//! The link-layer headers before the IP header of a captured frame.
//!
//! Numbers and layouts: the LINKTYPE registry of tcpdump.org. IEEE 802.1Q tags are skipped,
//! and so are headers of PPPoE.

use super::bytes::u16_at;

/// A PPPoE session (RFC 2516): six bytes, then the PPP protocol.
const PPPOE: u16 = 0x8864;
/// IPv4 and IPv6 in PPP.
const PPP_IP: [u16; 2] = [0x0021, 0x0057];

/// The kind of a frame's first header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkType {
    /// BSD loopback: four bytes of address family, in either byte order (0), or big-endian (108).
    Loopback,
    /// Ethernet (1).
    Ethernet,
    /// No header: IPv4 or IPv6 at once (101, and the older or narrower 12, 14, 228, 229).
    Raw,
    /// Linux "cooked", 16 bytes (113), written by `tcpdump -i any`.
    LinuxSll,
    /// Linux "cooked" version 2, 20 bytes (276).
    LinuxSll2,
    /// An unsupported type, by its number.
    Other(u32),
}

/// Ethernet types of IPv4 and IPv6.
const IP: [u16; 2] = [0x0800, 0x86DD];
/// Ethernet types of a tag of four bytes, after which the next type follows.
const VLAN: [u16; 3] = [0x8100, 0x88A8, 0x9100];

impl LinkType {
    /// The link type of a LINKTYPE number.
    pub const fn from_number(number: u32) -> Self {
        match number {
            0 | 108 => Self::Loopback,
            1 => Self::Ethernet,
            12 | 14 | 101 | 228 | 229 => Self::Raw,
            113 => Self::LinuxSll,
            276 => Self::LinuxSll2,
            other => Self::Other(other),
        }
    }

    /// The number to write to a file.
    pub const fn number(self) -> u32 {
        match self {
            Self::Loopback => 0,
            Self::Ethernet => 1,
            Self::Raw => 101,
            Self::LinuxSll => 113,
            Self::LinuxSll2 => 276,
            Self::Other(other) => other,
        }
    }

    /// The bytes after the link's headers in `frame`, if these indicate IP.
    pub(super) fn ip(self, frame: &[u8]) -> Option<&[u8]> {
        let (type_at, header_len) = match self {
            Self::Raw => return Some(frame),
            Self::Loopback => return frame.get(4..),
            Self::Ethernet => (12, 14),
            Self::LinuxSll => (14, 16),
            Self::LinuxSll2 => (0, 20),
            Self::Other(_) => return None,
        };
        let mut ether_type = u16_at(frame, type_at)?;
        let mut rest = frame.get(header_len..)?;
        while VLAN.contains(&ether_type) {
            ether_type = u16_at(rest, 2)?;
            rest = &rest[4..];
        }
        if ether_type == PPPOE {
            let protocol = u16_at(rest, 6)?;
            return PPP_IP.contains(&protocol).then(|| &rest[8..]);
        }
        IP.contains(&ether_type).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `before` zeroes, the type, `after` zeroes, and the payload.
    fn frame(before: usize, ether_type: u16, after: usize, rest: &[u8]) -> Vec<u8> {
        [&vec![0; before], &ether_type.to_be_bytes()[..], &vec![0; after], rest].concat()
    }

    #[test]
    fn ip_is_found_behind_every_link_header() {
        let cases = [
            (LinkType::Ethernet, frame(12, 0x0800, 0, b"ip")),
            (LinkType::Ethernet, frame(12, 0x8100, 2, &frame(0, 0x86DD, 0, b"ip"))),
            (LinkType::Ethernet, frame(12, 0x8864, 6, b"\0\x21ip")),
            (LinkType::Ethernet, frame(12, 0x8100, 2, &frame(0, 0x8864, 6, b"\0\x57ip"))),
            (LinkType::LinuxSll, frame(14, 0x0800, 0, b"ip")),
            (LinkType::LinuxSll2, frame(0, 0x86DD, 18, b"ip")),
            (LinkType::Loopback, b"\x02\0\0\0ip".to_vec()),
            (LinkType::Raw, b"ip".to_vec()),
        ];
        for (link, frame) in cases {
            assert_eq!(link.ip(&frame), Some(&b"ip"[..]), "{link:?}");
        }
    }

    #[test]
    fn other_protocols_and_short_frames_hold_no_ip() {
        assert_eq!(LinkType::Ethernet.ip(&frame(12, 0x0806, 0, b"arp")), None);
        assert_eq!(LinkType::Ethernet.ip(&frame(12, 0x8100, 1, b"")), None);
        assert_eq!(LinkType::LinuxSll2.ip(&[8, 0, 0]), None);
        // A PPPoE session whose protocol is LCP, and one that is truncated.
        assert_eq!(LinkType::Ethernet.ip(&frame(12, 0x8864, 6, b"\xc0\x21lcp")), None);
        assert_eq!(LinkType::Ethernet.ip(&frame(12, 0x8864, 6, b"\0")), None);
        assert_eq!(LinkType::Other(127).ip(&[0; 100]), None);
    }

    #[test]
    fn numbers_survive() {
        for number in [0, 1, 101, 113, 276, 127] {
            assert_eq!(LinkType::from_number(number).number(), number);
        }
    }
}
