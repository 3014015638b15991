//! 6LoWPAN: the sizes of the 802.15.4 frames that carry an IP packet.
//!
//! ```text
//! MAC 11 │ IPHC 22 │ TCP 32 │ payload                                    one frame, up to 127 octets
//! MAC 11 │ FRAG1 4 │ IPHC 22 │ TCP │ payload │   MAC 11 │ FRAGN 5 │ payload │   …      RFC 4944 5.3
//! ```
//!
//! A fragment's part of the packet, counted without compression, is a multiple of 8 octets, except
//! in the last fragment.

use freshline_core::unit::Bytes;

use super::phy::{MAC_OCTETS, MAX_OCTETS};

/// The size of a compressed IPv6 header between a node and a host outside (RFC 6282 section 3.1):
/// IPHC 2, next header 1 (TCP's own header is not compressed), hop limit 1, the node's address 2 by
/// context, the host's 16.
pub const HEADER: Bytes = Bytes::new(2 + 1 + 1 + 2 + 16);

/// The lab's packets have an IPv4 header.
const IPV4: u64 = 20;
const IPV6: u64 = 40;
const FIRST_FRAGMENT: u64 = 4;
const NEXT_FRAGMENT: u64 = 5;
/// The maximum datagram, by the 11 bits of its size field.
const MAX_DATAGRAM: u64 = 2047;

/// The frames of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frames {
    /// The number of frames, above 0.
    pub count: u8,
    /// Octets of the first frame, of those between, and of the last.
    octets: [u8; 3],
}

impl Frames {
    /// The frames of an IPv4 packet of this size that is sent as IPv6, with a header of `header`
    /// after compression; `None` if it is too large for 6LoWPAN.
    pub fn of(packet: Bytes, header: Bytes) -> Option<Self> {
        let payload = packet.get().saturating_sub(IPV4);
        let room = MAX_OCTETS - MAC_OCTETS;
        let header = header.get();
        if header + payload <= room {
            let octets = (MAC_OCTETS + header + payload) as u8;
            return Some(Self { count: 1, octets: [octets; 3] });
        }
        let datagram = IPV6 + payload;
        if datagram > MAX_DATAGRAM {
            return None;
        }
        // The first frame holds the datagram's header and as much of its payload as fits.
        let first = (IPV6 + room - FIRST_FRAGMENT - header) / 8 * 8;
        let next = (room - NEXT_FRAGMENT) / 8 * 8;
        let left = datagram - first;
        let between = left.div_ceil(next) - 1;
        let last = left - between * next;
        let octets =
            [FIRST_FRAGMENT + header + first - IPV6, NEXT_FRAGMENT + next, NEXT_FRAGMENT + last];
        let octets = octets.map(|octets| (MAC_OCTETS + octets) as u8);
        Some(Self { count: (between + 2) as u8, octets })
    }

    /// Octets of a frame, by its number, from 0.
    pub fn octets(&self, number: u8) -> u64 {
        let [first, between, last] = self.octets;
        u64::from(match number {
            0 => first,
            _ if number + 1 == self.count => last,
            _ => between,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames(packet: u64) -> Frames {
        Frames::of(Bytes::new(packet), HEADER).unwrap()
    }

    /// 62 octets after IPv4's 20 and TCP's 32 fill a frame; one more requires two frames.
    #[test]
    fn a_segment_of_62_octets_fills_a_frame() {
        let full = frames(20 + 32 + 62);
        assert_eq!((full.count, full.octets(0)), (1, 127));
        let more = frames(20 + 32 + 63);
        // 128 of 135 octets in the first frame: 22 + 88 after MAC and FRAG1; 7 in the second.
        assert_eq!((more.count, more.octets(0), more.octets(1)), (2, 11 + 4 + 22 + 88, 11 + 5 + 7));
    }

    #[test]
    fn what_has_no_name_is_refused() {
        assert_eq!(Frames::of(Bytes::new(2047 - 40 + 20 + 1), HEADER), None);
        assert_eq!(frames(1280).count, 13, "IPv6's least MTU");
    }

    proptest! {
        #[test]
        fn frames_hold_the_packet_and_no_more(payload in 0u64..2007, header in 2u64..42) {
            let frames = Frames::of(Bytes::new(IPV4 + payload), Bytes::new(header)).unwrap();
            let all = (0..frames.count).map(|number| frames.octets(number));
            prop_assert!(all.clone().all(|octets| octets <= MAX_OCTETS));
            let own = if frames.count == 1 {
                MAC_OCTETS
            } else {
                MAC_OCTETS * u64::from(frames.count)
                    + FIRST_FRAGMENT
                    + NEXT_FRAGMENT * u64::from(frames.count - 1)
            };
            prop_assert_eq!(all.sum::<u64>(), own + header + payload);
        }
    }
}
