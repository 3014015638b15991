//! Parses a frame into the data that the measurements need: a TCP segment or a UDP datagram.
//!
//! A capture may hold only the beginning of each packet. Therefore lengths come from the headers,
//! and only the first 14 bytes of TCP are required. `etherparse` reads IP and its extensions.

use std::net::SocketAddr;

use etherparse::{IpNumber, LaxIpSlice};

use super::Frame;
use super::bytes::{u16_at, u32_at};

/// A direction of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ends {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
}

impl Ends {
    pub(crate) fn reversed(self) -> Self {
        Self { from: self.to, to: self.from }
    }
}

#[derive(Debug, PartialEq)]
pub(crate) struct Packet<'a> {
    pub(crate) ends: Ends,
    pub(crate) content: Content<'a>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Content<'a> {
    Tcp(Segment),
    Udp(Datagram<'a>),
}

/// A TCP segment, or several that the host passed to its network card in one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) seq: u32,
    /// The acknowledgement number, if present.
    pub(crate) ack: Option<u32>,
    /// The end of the first SACK block, which contains the most recent data (RFC 2018 section 4).
    pub(crate) sacked: Option<u32>,
    pub(crate) syn: bool,
    /// Bytes of payload.
    pub(crate) len: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Datagram<'a> {
    /// The captured part of the payload.
    pub(crate) payload: &'a [u8],
    /// Its length on the wire.
    pub(crate) len: usize,
}

/// Why a frame is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unused {
    /// Neither TCP nor UDP over IP.
    Other,
    /// A fragment of an IP packet.
    Fragment,
    /// Too little of it was captured.
    Cut,
}

pub(crate) fn dissect<'a>(frame: &Frame<'a>) -> Result<Packet<'a>, Unused> {
    let ip_bytes = frame.link.ip(frame.bytes).ok_or(Unused::Other)?;
    let on_wire = frame.wire_len.saturating_sub(frame.bytes.len() - ip_bytes.len());
    dissect_ip(ip_bytes, on_wire)
}

/// The same from the IP header on; the packet has a total of `on_wire` bytes.
pub(crate) fn dissect_ip(ip_bytes: &[u8], on_wire: usize) -> Result<Packet<'_>, Unused> {
    let (ip, _) = LaxIpSlice::from_slice(ip_bytes).map_err(|_| Unused::Other)?;
    if ip.is_fragmenting_payload() {
        return Err(Unused::Fragment);
    }
    // Both in bytes: the headers before the transport's, and the length of the packet according to
    // its header.
    let (header_len, said) = match &ip {
        LaxIpSlice::Ipv4(ip) => {
            let auth = ip.extensions().auth.map_or(0, |auth| auth.slice().len());
            let header_len = ip.header().slice().len() + auth;
            (header_len, usize::from(ip.header().total_len()))
        }
        LaxIpSlice::Ipv6(ip) => {
            let header_len = ip.header().slice().len();
            let said = match ip.header().payload_length() {
                0 => 0,
                len => header_len + usize::from(len),
            };
            (header_len + ip.extensions().slice().len(), said)
        }
    };
    // Hosts leave the field at 0 in packets that the network card will split.
    let ip_len = if said < header_len { on_wire } else { said };
    let len = ip_len.saturating_sub(header_len);
    let bytes = ip_bytes.get(header_len..).ok_or(Unused::Cut)?;
    let bytes = &bytes[..bytes.len().min(len)];

    let ports = |bytes: &[u8]| Some((u16_at(bytes, 0)?, u16_at(bytes, 2)?));
    let content = match ip.payload_ip_number() {
        IpNumber::TCP => segment(bytes, len).map(Content::Tcp),
        IpNumber::UDP => datagram(bytes, len).map(Content::Udp),
        _ => return Err(Unused::Other),
    };
    let (content, (from, to)) = content.zip(ports(bytes)).ok_or(Unused::Cut)?;
    let ends = Ends {
        from: SocketAddr::new(ip.source_addr(), from),
        to: SocketAddr::new(ip.destination_addr(), to),
    };
    Ok(Packet { ends, content })
}

/// RFC 9293 section 3.1; `len` is that of the segment on the wire, header included.
fn segment(bytes: &[u8], len: usize) -> Option<Segment> {
    const SYN: u8 = 0x02;
    const ACK: u8 = 0x10;
    let header_len = 4 * usize::from(bytes.get(12)? >> 4);
    let flags = *bytes.get(13)?;
    let options = bytes.get(20..header_len.min(bytes.len())).unwrap_or_default();
    Some(Segment {
        seq: u32_at(bytes, 4)?,
        ack: if flags & ACK != 0 { Some(u32_at(bytes, 8)?) } else { None },
        sacked: first_sack(options),
        syn: flags & SYN != 0,
        len: u32::try_from(len.checked_sub(header_len.max(20))?).ok()?,
    })
}

/// The right edge of the first block of a SACK option (RFC 2018 section 3), if it was captured.
fn first_sack(mut options: &[u8]) -> Option<u32> {
    const END: u8 = 0;
    const NOTHING: u8 = 1;
    const SACK: u8 = 5;
    loop {
        match *options {
            [] | [END, ..] => return None,
            [NOTHING, ref rest @ ..] => options = rest,
            [SACK, len, ..] if len >= 10 => return u32_at(options, 6),
            [_, len, ..] if len >= 2 => options = options.get(usize::from(len)..)?,
            _ => return None,
        }
    }
}

/// RFC 768; `len` is that of the IP payload on the wire.
fn datagram(bytes: &[u8], len: usize) -> Option<Datagram<'_>> {
    let payload = bytes.get(8..)?;
    let len = usize::from(u16_at(bytes, 4)?).min(len).checked_sub(8)?;
    Some(Datagram { payload: &payload[..payload.len().min(len)], len })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::LinkType;
    use freshline_core::unit::Time;

    fn raw(bytes: &[u8], wire_len: usize) -> Result<Packet<'_>, Unused> {
        dissect(&Frame { at: Time::ZERO, link: LinkType::Raw, wire_len, bytes })
    }

    /// A TCP header with an ack of 7 and these options, from port 1 to port 2.
    fn tcp(options: &[u8]) -> Vec<u8> {
        let header_len = ((20 + options.len()) / 4 * 16) as u8;
        let header = [0, 1, 0, 2, 0, 0, 0, 9, 0, 0, 0, 7, header_len, 0x10, 0, 0, 0, 0, 0, 0];
        [&header, options].concat()
    }

    /// A packet with a total length of `said` bytes in its header.
    fn ipv4(said: u16, payload: &[u8]) -> Vec<u8> {
        let [high, low] = said.to_be_bytes();
        let header = [0x45, 0, high, low, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        [&header, payload].concat()
    }

    /// A packet with a payload length of `said` bytes in its header.
    fn ipv6(next: u8, said: u16, payload: &[u8]) -> Vec<u8> {
        let [high, low] = said.to_be_bytes();
        [&[0x60, 0, 0, 0, high, low, next, 64][..], &[1; 32], payload].concat()
    }

    fn segment_in(bytes: &[u8], wire_len: usize) -> Segment {
        match raw(bytes, wire_len).unwrap().content {
            Content::Tcp(segment) => segment,
            Content::Udp(_) => panic!("a datagram"),
        }
    }

    #[test]
    fn lengths_are_those_that_the_headers_say() {
        let expected = Segment { seq: 9, ack: Some(7), sacked: None, syn: false, len: 100 };
        // Everything but the headers was cut off.
        assert_eq!(segment_in(&ipv4(140, &tcp(&[])), 140), expected);
        // Ethernet pads short frames.
        let padded = ipv4(40, &[&tcp(&[])[..], &[0; 6]].concat());
        assert_eq!(segment_in(&padded, 46), Segment { len: 0, ..expected });
        // A packet that the network card will split has no length in its header.
        assert_eq!(segment_in(&ipv4(0, &tcp(&[])), 70_040), Segment { len: 70_000, ..expected });
        assert_eq!(segment_in(&ipv6(6, 120, &tcp(&[])), 160), expected);
        assert_eq!(
            segment_in(&ipv6(6, 0, &tcp(&[])), 100_060),
            Segment { len: 100_000, ..expected }
        );
        // Destination options of eight bytes.
        let behind_options = [&[6, 0, 1, 4, 0, 0, 0, 0][..], &tcp(&[])].concat();
        assert_eq!(segment_in(&ipv6(60, 128, &behind_options), 168), expected);
    }

    #[test]
    fn the_first_selective_ack_is_found_behind_other_options() {
        let sack = [5, 10, 0, 0, 0, 20, 0, 0, 0, 30];
        let options = [&[1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0][..], &sack, &[0, 0]].concat();
        let bytes = ipv4(64, &tcp(&options));
        assert_eq!(segment_in(&bytes, 64).sacked, Some(30));
        assert_eq!(segment_in(&bytes[..60], 64).sacked, None, "cut off");
        assert_eq!(first_sack(&[8, 0, 5, 10]), None, "an option of no length");
    }

    #[test]
    fn what_cannot_be_used_says_why() {
        assert_eq!(raw(b"", 0), Err(Unused::Other));
        assert_eq!(raw(&ipv4(40, &tcp(&[])[..13]), 40), Err(Unused::Cut));
        let mut fragment = ipv4(40, &tcp(&[]));
        fragment[7] = 1;
        assert_eq!(raw(&fragment, 40), Err(Unused::Fragment));
        // A header that claims to be longer than the packet.
        let mut long = ipv4(40, &tcp(&[]));
        long[32] = 0xF0;
        assert_eq!(raw(&long, 40), Err(Unused::Cut));
    }
}
