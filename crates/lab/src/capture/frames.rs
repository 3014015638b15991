//! The lab's packets in wire format: IPv4 with UDP or TCP.
//!
//! ```text
//! update, ack     IPv4 · UDP · Freshline's protocol, with synchronised clocks
//! segment         IPv4 · TCP with the options that Linux sends; numbers begin at 0
//! cross traffic   IPv4 · UDP to the discard port
//! ```
//!
//! Addresses and ports are those of the packet's header in the lab. The payload is zeroes, of which
//! only the first are written. A packet whose size leaves no room for its headers is truncated.

use std::net::Ipv6Addr;

use etherparse::{IpDscp, IpEcn, IpNumber, Ipv4Header, TcpHeader, TcpOptionElement, UdpHeader};
use freshline_core::link::Direction;
use freshline_core::router::{Ecn, FlowKey, Header, Packet};
use freshline_core::unit::{Bytes, Time};
use freshline_core::wire::{self, Message};

use crate::tcp::{Block, Segment};
use crate::world::{Body, Left, UpdateFlow};

/// The number of bytes written per packet: enough for all headers, and for all parts of Freshline's
/// messages that are read.
const CAPTURED: usize = 128;

/// The shift of a window in a header: 64 MiB fit, in steps of 1 KiB.
const WINDOW_SCALE: u8 = 10;
/// The MSS in a SYN; segments have their own sizes.
const MAXIMUM_SEGMENT: u16 = 1460;

/// Room for a message of maximum size.
const ROOM: usize = 1 << 16;
static ZEROES: [u8; ROOM] = [0; ROOM];

/// Creates frames, without a header in front of IP.
pub(super) struct Frames {
    message: Box<[u8; ROOM]>,
    frame: Vec<u8>,
}

impl Frames {
    pub(super) fn new() -> Self {
        Self { message: Box::new([0; ROOM]), frame: Vec::with_capacity(CAPTURED) }
    }

    /// The first bytes of a packet.
    pub(super) fn frame(&mut self, left: Left<'_>) -> &[u8] {
        let Left { parcel, flow, .. } = left;
        let size = parcel.load.size;
        self.frame.clear();
        match parcel.load.body {
            Body::Answer(number) if flow.topics().is_some() => self.topics(left, number),
            Body::Update(number) | Body::Answer(number) => {
                let length =
                    flow.updates().map_or(0, |updates| self.session(updates, number, size));
                self.datagram(left, length);
            }
            Body::Topics(number) => self.topics(left, number),
            Body::Segment(number) => self.tcp(left, number),
            // These packets do not carry Freshline's messages.
            Body::Paced(_) | Body::Report(_) | Body::Filler => self.datagram(left, 0),
        }
        let whole = usize::try_from(size.get()).unwrap_or(usize::MAX);
        self.frame.truncate(whole.min(CAPTURED));
        &self.frame
    }

    /// A datagram of a source with topics or of its monitor, as sent.
    fn topics(&mut self, left: Left<'_>, number: u32) {
        let datagram = left.flow.topics().and_then(|topics| topics.datagram(number));
        let front = datagram.map_or(&[][..], |bytes| &bytes[..bytes.len().min(ROOM)]);
        let length = self.message(front);
        self.datagram(left, length);
    }

    /// Writes the segment with this number, for any kind of stream.
    fn tcp(&mut self, left: Left<'_>, number: u32) {
        let direction = left.parcel.direction;
        if let Some(segment) = left.flow.stream().and_then(|stream| stream.segment(number)) {
            self.segment(left, direction, segment, 0);
        } else if let Some(carried) = left.flow.multipath().and_then(|flow| flow.carried(number)) {
            let padding = carried.wire_size() - carried.segment.wire_size();
            self.segment(left, direction, &carried.segment, padding.get());
        } else if let Some(exchange) = left.flow.exchange()
            && let Some((direction, segment)) = exchange.segment(direction, number)
        {
            self.segment(left, direction, segment, 0);
        }
    }

    /// Writes a datagram of a session, in a packet of this size, to the front of `message`. Returns
    /// its length.
    fn session(&mut self, updates: &UpdateFlow, number: u32, size: Bytes) -> usize {
        match updates.message(number) {
            Some(Message::Update(update)) => self.update(update, updates.sizes().payload, size),
            Some(Message::Ack(ack)) => self.message(&ack.bytes()),
            Some(Message::Challenge(challenge)) => self.message(&challenge.bytes()),
            _ => 0,
        }
    }

    /// Writes bytes to the front of `message`. Returns their number.
    fn message(&mut self, bytes: &[u8]) -> usize {
        self.message[..bytes.len()].copy_from_slice(bytes);
        bytes.len()
    }

    /// Writes an update with its payload, which the lab only counts, to the front of `message`.
    /// Returns its length.
    fn update(&mut self, update: wire::Update<'_>, payload: Bytes, size: Bytes) -> usize {
        let opening = update.opening.map_or(0, |_| OPENING);
        let headers = HEADERS_OF_UDP + wire::Update::HEADER_LEN as u64 + opening;
        let room = size.get().saturating_sub(headers);
        let payload = payload.get().min(room).min(ROOM as u64 - headers) as usize;
        // Its state is empty, as sent.
        let frames = update.frames.state().map_or(wire::Frames::NONE, |(id, _)| {
            wire::Frames::one(wire::Frame::State { id, bytes: &ZEROES[..payload] })
        });
        let update = wire::Update { frames, ..update };
        update.write(&mut self.message[..]).unwrap_or(0)
    }

    /// The headers of a UDP packet, and the first `length` bytes of `message`.
    fn datagram(&mut self, left: Left<'_>, length: usize) {
        let header = left.parcel.header();
        let FlowKey { source_port, destination_port, .. } = header.flow;
        let ip = ip(&header, left.parcel.load.size);
        let length_on_wire = ip.payload_len().unwrap_or(0);
        // No checksum, as IPv4 permits: the message is not written completely.
        let udp = UdpHeader { source_port, destination_port, length: length_on_wire, checksum: 0 };
        self.frame.extend_from_slice(&ip.to_bytes());
        self.frame.extend_from_slice(&udp.to_bytes());
        self.frame.extend_from_slice(&self.message[..length.min(CAPTURED)]);
        self.frame.resize(CAPTURED, 0);
    }

    /// A segment in `direction`, from its stream's point of view, with bytes of other options,
    /// which are left blank.
    fn segment(&mut self, left: Left<'_>, direction: Direction, segment: &Segment, padding: u64) {
        let header = left.parcel.header();
        // A packet of several segments has their headers once, as in a capture of Linux.
        let one = Segment { gso_size: 0, ..*segment };
        let repeated = segment.wire_size() - one.wire_size();
        let ip = ip(&header, left.parcel.load.size - repeated);
        let mut flow = header.flow;
        if direction != left.parcel.direction {
            // The stream was opened by the far end.
            (flow.source_port, flow.destination_port) = (flow.destination_port, flow.source_port);
        }
        let mut tcp = tcp_header(&flow, segment, padding);
        let payload = ZEROES.get(..segment.len as usize).unwrap_or(&ZEROES);
        tcp.checksum = tcp.calc_checksum_ipv4_raw(ip.source, ip.destination, payload).unwrap_or(0);
        self.frame.extend_from_slice(&ip.to_bytes());
        self.frame.extend_from_slice(&tcp.to_bytes());
        self.frame.resize(CAPTURED, 0);
    }
}

fn ip(header: &Header, size: Bytes) -> Ipv4Header {
    let octets = |address: Ipv6Addr| address.to_ipv4_mapped().map_or([0; 4], |it| it.octets());
    let mut ip = Ipv4Header {
        dscp: IpDscp::try_new(header.dscp).unwrap_or_default(),
        ecn: match header.ecn {
            Ecn::NotCapable => IpEcn::NotEct,
            Ecn::Capable => IpEcn::Ect0,
            Ecn::Marked => IpEcn::CongestionExperienced,
        },
        // 0 if it is too large for the field, as in packets that a network card will split.
        total_len: u16::try_from(size.get()).unwrap_or(0),
        dont_fragment: true,
        time_to_live: 64,
        protocol: IpNumber(header.flow.protocol),
        source: octets(header.flow.source),
        destination: octets(header.flow.destination),
        ..Ipv4Header::default()
    };
    ip.header_checksum = ip.calc_header_checksum();
    ip
}

/// IPv4 and UDP.
const HEADERS_OF_UDP: u64 = 28;

/// An opening without name and token: its cookie and two lengths.
const OPENING: u64 = 18;

fn tcp_header(flow: &FlowKey, segment: &Segment, padding: u64) -> TcpHeader {
    let FlowKey { source_port, destination_port, .. } = *flow;
    let flags = segment.flags;
    // Offset 0 has the sequence number after that of the SYN, which is 0; both wrap at 32 bits.
    let number = |offset: u64| offset.wrapping_add(1) as u32;
    let sequence_number = if flags.syn { 0 } else { number(segment.seq) };
    // The lab's sender does not receive data, and has no window: write one that is never full.
    let window = if segment.window == 0 { 1 << 16 } else { segment.window };
    let scaled = if flags.syn { window } else { window >> WINDOW_SCALE };
    let window_size = u16::try_from(scaled).unwrap_or(u16::MAX);
    let mut header = TcpHeader::new(source_port, destination_port, sequence_number, window_size);
    header.acknowledgment_number = if flags.ack { number(segment.ack) } else { 0 };
    (header.syn, header.fin, header.ack) = (flags.syn, flags.fin, flags.ack);
    (header.ece, header.cwr) = (flags.ece, flags.cwr);
    // The options fit.
    let mut options = options(segment);
    options.extend((0..padding).map(|_| TcpOptionElement::Noop));
    let _ = header.set_options(&options);
    header
}

/// In the order and with the padding of Linux, so that their length is the same as in the lab.
fn options(segment: &Segment) -> Vec<TcpOptionElement> {
    use TcpOptionElement::{
        MaximumSegmentSize, Noop, SelectiveAcknowledgement, SelectiveAcknowledgementPermitted,
        Timestamp, WindowScale,
    };
    let millis = |at: Time| (at.as_nanos() / 1_000_000) as u32;
    let timestamps = Timestamp(millis(segment.sent_at), segment.echo.map_or(0, millis));
    if segment.flags.syn {
        let size = MaximumSegmentSize(MAXIMUM_SEGMENT);
        let permitted = SelectiveAcknowledgementPermitted;
        return vec![size, permitted, timestamps, Noop, WindowScale(WINDOW_SCALE)];
    }
    let mut options = vec![Noop, Noop, timestamps];
    let edges =
        |block: &Block| (block.start.wrapping_add(1) as u32, block.end.wrapping_add(1) as u32);
    if let [first, more @ ..] = segment.sack.as_slice() {
        let more = [more.first().map(edges), more.get(1).map(edges), None];
        options.extend([Noop, Noop, SelectiveAcknowledgement(edges(first), more)]);
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::{Flags, SackBlocks};

    #[test]
    fn a_header_is_as_long_as_the_lab_says() {
        let plain =
            Segment { flags: Flags { ack: true, ..Flags::default() }, ..Segment::default() };
        let syn = Segment { flags: Flags { syn: true, ..Flags::default() }, ..plain };
        let mut sack = SackBlocks::default();
        let mut segments = vec![plain, syn];
        for start in [10, 20, 30] {
            sack.push(Block { start, end: start + 5 });
            segments.push(Segment { sack, ..plain });
        }
        for segment in segments {
            let header = tcp_header(&FlowKey::default(), &segment, 0);
            assert_eq!(20 + header.header_len() as u64, segment.wire_size().get(), "{segment:?}");
        }
    }

    #[test]
    fn numbers_wrap_at_32_bits() {
        let flags = Flags { ack: true, ..Flags::default() };
        let segment =
            Segment { seq: (1 << 32) - 1, ack: (1 << 32) + 6, flags, ..Segment::default() };
        let header = tcp_header(&FlowKey::default(), &segment, 0);
        assert_eq!((header.sequence_number, header.acknowledgment_number), (0, 7));
    }
}
