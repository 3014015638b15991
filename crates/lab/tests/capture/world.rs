//! Captures with known times, made by hand.

use std::net::{IpAddr, SocketAddr};

use etherparse::{IpNumber, Ipv4Header, Ipv6Header, TcpHeader, TcpOptionElement, UdpHeader};
use freshline_core::unit::{Bytes, Span, Time};
use freshline_lab::capture::{Limits, LinkType, PcapWriter, Report, measure};

pub(crate) const CLIENT: &str = "192.0.2.1:5000";
pub(crate) const SERVER: &str = "192.0.2.2:80";

/// A moment of a capture: captures do not begin in 1970.
pub(crate) fn at(micros: u64) -> Time {
    Time::ZERO + Span::from_secs(1_700_000_000) + Span::from_micros(micros)
}

/// A captured packet: the IP packet and its length on the wire.
#[derive(Debug, Clone)]
pub(crate) struct Captured {
    pub(crate) at: Time,
    pub(crate) bytes: Vec<u8>,
    pub(crate) wire_len: usize,
}

impl Captured {
    /// The payload of a UDP datagram over IPv4.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.bytes[28..]
    }
}

/// A TCP segment; by default it is a plain ack from [`CLIENT`] to [`SERVER`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tcp {
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) sacked: Option<(u32, u32)>,
    pub(crate) syn: bool,
    pub(crate) len: usize,
}

impl Tcp {
    /// Payload from the client.
    pub(crate) fn data(seq: u32, len: usize) -> Self {
        Self { from: CLIENT, to: SERVER, seq, ack: 1, sacked: None, syn: false, len }
    }

    /// An ack from the server.
    pub(crate) fn ack(ack: u32) -> Self {
        Self { from: SERVER, to: CLIENT, ack, ..Self::data(1, 0) }
    }

    pub(crate) fn at(self, micros: u64) -> Captured {
        let (from, to): (SocketAddr, SocketAddr) =
            (self.from.parse().unwrap(), self.to.parse().unwrap());
        let mut header = TcpHeader::new(from.port(), to.port(), self.seq, 65_535);
        header.acknowledgment_number = self.ack;
        header.ack = !self.syn;
        header.syn = self.syn;
        if let Some(block) = self.sacked {
            let sack = TcpOptionElement::SelectiveAcknowledgement(block, [None; 3]);
            let options = [TcpOptionElement::Noop, TcpOptionElement::Noop, sack];
            header.set_options(&options).unwrap();
        }
        let body = [&header.to_bytes()[..], &vec![0; self.len]].concat();
        packet(at(micros), from.ip(), to.ip(), IpNumber::TCP, &body)
    }
}

/// A UDP datagram.
pub(crate) fn udp(micros: u64, from: &str, to: &str, payload: &[u8]) -> Captured {
    let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
    let header = UdpHeader {
        source_port: from.port(),
        destination_port: to.port(),
        length: (8 + payload.len()).try_into().unwrap(),
        checksum: 0,
    };
    let body = [&header.to_bytes()[..], payload].concat();
    packet(at(micros), from.ip(), to.ip(), IpNumber::UDP, &body)
}

fn packet(at: Time, from: IpAddr, to: IpAddr, protocol: IpNumber, body: &[u8]) -> Captured {
    let header = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            // Beyond 64 KiB, as from a host whose network card segments, the header has no length.
            let len = u16::try_from(20 + body.len()).map_or(0, |total| total - 20);
            let mut header =
                Ipv4Header::new(len, 64, protocol, from.octets(), to.octets()).unwrap();
            header.total_len = if len == 0 { 0 } else { header.total_len };
            header.to_bytes().to_vec()
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => Ipv6Header {
            payload_length: body.len().try_into().unwrap_or(0),
            next_header: protocol,
            hop_limit: 64,
            source: from.octets(),
            destination: to.octets(),
            ..Ipv6Header::default()
        }
        .to_bytes()
        .to_vec(),
        _ => panic!("two families of addresses in one packet"),
    };
    let bytes = [&header[..], body].concat();
    Captured { at, wire_len: bytes.len(), bytes }
}

/// The packets behind `header` on a link.
pub(crate) fn framed(packets: &[Captured], header: &[u8]) -> Vec<Captured> {
    let framed = packets.iter().map(|packet| Captured {
        at: packet.at,
        bytes: [header, &packet.bytes].concat(),
        wire_len: header.len() + packet.wire_len,
    });
    framed.collect()
}

/// Each packet cut to its first `snaplen` bytes.
pub(crate) fn cut(packets: &[Captured], snaplen: usize) -> Vec<Captured> {
    let cut = packets.iter().cloned().map(|mut packet| {
        packet.bytes.truncate(snaplen);
        packet
    });
    cut.collect()
}

pub(crate) fn pcap(link: LinkType, packets: &[Captured]) -> Vec<u8> {
    let mut writer = PcapWriter::new(Vec::new(), link).unwrap();
    for packet in packets {
        writer.write(packet.at, &packet.bytes, Bytes::from(packet.wire_len)).unwrap();
    }
    writer.into_inner().unwrap()
}

/// The same as pcapng: little-endian, times in ns.
pub(crate) fn pcapng(link: LinkType, packets: &[Captured]) -> Vec<u8> {
    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let padding = vec![0; body.len().next_multiple_of(4) - body.len()];
        let len = (12 + body.len() + padding.len()) as u32;
        let (kind, len) = (kind.to_le_bytes(), len.to_le_bytes());
        [&kind, &len[..], body, &padding, &len].concat()
    }
    let section = [&0x1A2B_3C4D_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xFF; 8]].concat();
    let nanoseconds = [9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0];
    let interface = [&link.number().to_le_bytes()[..], &[0; 4], &nanoseconds].concat();
    let mut file = [block(0x0A0D_0D0A, &section), block(1, &interface)].concat();
    for Captured { at, bytes, wire_len } in packets {
        let nanos = at.as_nanos();
        let (high, low) = ((nanos >> 32) as u32, nanos as u32);
        let fields = [0, high, low, bytes.len() as u32, *wire_len as u32];
        let head = fields.map(u32::to_le_bytes).concat();
        file.extend(block(6, &[&head[..], bytes].concat()));
    }
    file
}

/// The report on a valid file.
pub(crate) fn report(file: &[u8]) -> Report {
    let measured = measure(file, Limits::default());
    assert!(measured.error.is_none(), "{:?}", measured.error);
    measured.report
}
