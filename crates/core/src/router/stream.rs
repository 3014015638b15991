//! Detects protocols whose packets must all arrive, by their number or by the front of a UDP
//! datagram.
//!
//! The checks look at one datagram each, so they cannot be certain: a payload may happen to begin
//! like one of these protocols. Such a mistake is harmless, because the packet is then queued and
//! not replaced by a newer one.

/// A protocol whose packets a queue must not replace by newer ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamProtocol {
    /// DNS, multicast DNS and LLMNR, by their ports 53, 5353 and 5355.
    Dns,
    /// QUIC: a long header (RFC 8999 section 5.1) of a known version, or the fixed bit of a short
    /// header (RFC 9000 section 17.3) from or to port 443.
    Quic,
    /// DTLS: a record of version 1.0 or 1.2 (RFC 6347 section 4.1); DTLS 1.3 begins with them.
    Dtls,
    /// WireGuard: a message type with three zero bytes and the length of that type.
    WireGuard,
    /// RTP or RTCP, version 2 (RFC 3550 section 5.1, RFC 5761 section 4).
    Rtp,
    /// STUN, by its magic cookie (RFC 8489 section 5).
    Stun,
    /// A transport that delivers all its packets or slows down without them: TCP, SCTP, DCCP.
    Transport,
    /// A tunnel, with packets of many flows in one: IP in IP, IPv6 in IP, GRE, ESP, EtherIP, L2TP.
    Tunnel,
}

impl StreamProtocol {
    /// Every protocol; the number of each in the kernel program is its position here plus one.
    pub const ALL: [Self; 8] = [
        Self::Dns,
        Self::Quic,
        Self::Dtls,
        Self::WireGuard,
        Self::Rtp,
        Self::Stun,
        Self::Transport,
        Self::Tunnel,
    ];

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dns => "DNS",
            Self::Quic => "QUIC",
            Self::Dtls => "DTLS",
            Self::WireGuard => "WireGuard",
            Self::Rtp => "RTP",
            Self::Stun => "STUN",
            Self::Transport => "a reliable transport",
            Self::Tunnel => "a tunnel",
        }
    }

    /// The protocol that a protocol number above IP shows.
    pub const fn of_protocol(number: u8) -> Option<Self> {
        match number {
            6 | 33 | 132 => Some(Self::Transport),
            4 | 41 | 47 | 50 | 97 | 115 => Some(Self::Tunnel),
            _ => None,
        }
    }

    /// The protocol of a datagram between these two ports, or `None` if it looks like none of them.
    /// `length` is that of the whole payload, of which `payload` may hold only the front.
    pub fn of_datagram(ports: [u16; 2], length: usize, payload: &[u8]) -> Option<Self> {
        const DNS_PORTS: [u16; 3] = [53, 5353, 5355];
        if ports.iter().any(|port| DNS_PORTS.contains(port)) {
            return Some(Self::Dns);
        }
        let [first, second, third, fourth, fifth, ..] = *payload else { return None };
        let version = u32::from_be_bytes([second, third, fourth, fifth]);
        match first {
            1..=4 if [second, third, fourth] == [0; 3] => {
                let fits = match first {
                    1 => length == 148,
                    2 => length == 92,
                    3 => length == 64,
                    _ => length >= 32 && length.is_multiple_of(16),
                };
                fits.then_some(Self::WireGuard)
            }
            // Version 0xfeff or 0xfefd.
            20..=25 if second == 0xfe && matches!(third, 0xff | 0xfd) => Some(Self::Dtls),
            0..=3 => {
                let cookie = payload.get(4..8)?;
                (cookie == [0x21, 0x12, 0xa4, 0x42]).then_some(Self::Stun)
            }
            _ if first & 0xc0 == 0xc0 && is_quic_version(version) => Some(Self::Quic),
            _ if first & 0xc0 == 0x40 && ports.contains(&443) => Some(Self::Quic),
            _ if first >> 6 == 2 => {
                let least = 12 + 4 * usize::from(first & 0xf);
                // Static and dynamic payload types, each with or without the marker bit.
                let is_rtp = length >= least && matches!(second & 0x7f, 0..=34 | 96..=127);
                let is_rtcp = length >= 8 && matches!(second, 192..=223);
                (is_rtp || is_rtcp).then_some(Self::Rtp)
            }
            _ => None,
        }
    }
}

/// Version negotiation, versions 1 and 2, and the drafts before them.
fn is_quic_version(version: u32) -> bool {
    const VERSION_2: u32 = 0x6b33_43cf;
    matches!(version, 0 | 1 | VERSION_2) || version >> 8 == 0xff_0000
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn of(ports: [u16; 2], front: &[u8], length: usize) -> Option<StreamProtocol> {
        let mut payload = Vec::from(front);
        payload.resize(length.max(front.len()).min(80), 7);
        StreamProtocol::of_datagram(ports, length, &payload)
    }

    #[test]
    fn known_headers_are_recognised() {
        use StreamProtocol as Known;
        let any = [40_000, 5_000];
        assert_eq!(of([40_000, 53], b"", 40), Some(Known::Dns));
        assert_eq!(of([5353, 5353], b"", 3), Some(Known::Dns));
        assert_eq!(of(any, &[0xc3, 0, 0, 0, 1, 8], 1200), Some(Known::Quic));
        assert_eq!(of(any, &[0xd3, 0x6b, 0x33, 0x43, 0xcf], 1200), Some(Known::Quic));
        assert_eq!(of([443, 40_000], &[0x5a, 1, 2, 3, 4], 1200), Some(Known::Quic));
        assert_eq!(of(any, &[22, 0xfe, 0xfd, 0, 0], 200), Some(Known::Dtls));
        assert_eq!(of(any, &[23, 0xfe, 0xff, 0, 0], 200), Some(Known::Dtls));
        for (kind, length) in [(1, 148), (2, 92), (3, 64), (4, 32), (4, 1452 / 16 * 16)] {
            assert_eq!(of(any, &[kind, 0, 0, 0, 9], length), Some(Known::WireGuard), "{kind}");
        }
        assert_eq!(of(any, &[0x80, 96, 0, 1, 2], 1212), Some(Known::Rtp));
        assert_eq!(of(any, &[0x80, 0, 0, 1, 2], 172), Some(Known::Rtp));
        assert_eq!(of(any, &[0x81, 200, 0, 6, 2], 28), Some(Known::Rtp));
        assert_eq!(of(any, &[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42], 20), Some(Known::Stun));
    }

    #[test]
    fn other_payloads_are_not() {
        let any = [40_000, 5_000];
        for (front, length) in [
            (&b""[..], 0),
            (b"{\"x\":1}", 60),
            (b"state", 5),
            (&[4, 0, 0, 0, 9], 33),
            (&[1, 0, 0, 0, 9], 147),
            (&[0x5a, 1, 2, 3, 4], 1200),
            (&[0xc3, 9, 9, 9, 9], 1200),
            (&[0x80, 50, 0, 1, 2], 1200),
            (&[0x8f, 96, 0, 1, 2], 40),
        ] {
            assert_eq!(of(any, front, length), None, "{front:?}");
        }
    }
}
