//! Packets of the lab as they would stand on a wire: IPv4 with UDP or TCP.
//!
//! ```text
//! update, ack     IPv4 · UDP · our protocol, with clocks that agree
//! segment         IPv4 · TCP with the options that Linux sends; numbers begin at 0
//! cross traffic   IPv4 · UDP to the discard port
//! ```
//!
//! Flow n goes from 10.0.0.0 + n + 1 to 10.128.0.0 + n + 1. Payload is zeroes, of which only the
//! first are written out. A packet whose size leaves no room for its headers is cut.

use etherparse::{IpDscp, IpEcn, IpNumber, Ipv4Header, TcpHeader, TcpOptionElement, UdpHeader};
use freshline_core::unit::{Bytes, Span, Time};
use freshline_core::wire::{self, SessionId};

use crate::tcp::{Block, Segment};
use crate::world::{self, Body, Direction, Flow, Left};

/// So much of a packet is written out: all headers, and of our own messages all that is read.
const CAPTURED: usize = 128;

const SOURCE_PORT: u16 = 40_000;
const MONITOR_PORT: u16 = 3774;
const TCP_PORT: u16 = 5001;
const DISCARD_PORT: u16 = 9;

/// The shift of a window in a header: 64 MiB fit, in steps of 1 KiB.
const WINDOW_SCALE: u8 = 10;
/// What a SYN says; the segments are as long as they are.
const MAXIMUM_SEGMENT: u16 = 1460;

/// Room for the longest message.
const ROOM: usize = 1 << 16;
static ZEROES: [u8; ROOM] = [0; ROOM];

/// Makes frames, without a header in front of IP.
pub(super) struct Frames {
    /// Of each flow of the world.
    dscp: Vec<u8>,
    message: Box<[u8; ROOM]>,
    frame: Vec<u8>,
}

impl Frames {
    /// For flows with these DSCPs.
    pub(super) fn new(dscp: Vec<u8>) -> Self {
        Self { dscp, message: Box::new([0; ROOM]), frame: Vec::with_capacity(CAPTURED) }
    }

    /// The front of a packet.
    pub(super) fn frame(&mut self, left: Left<'_>) -> &[u8] {
        let Left { parcel, flow, .. } = left;
        let size = parcel.load.size;
        let session = SessionId(u64::from(parcel.flow));
        self.frame.clear();
        match (parcel.load.body, flow) {
            (Body::Update(update), Flow::Updates(updates)) => {
                let payload = updates.sizes().payload;
                let length = self.update(session, update, payload, size);
                self.datagram(left, MONITOR_PORT, length);
            }
            (Body::Ack(ack), _) => {
                let bytes = message_of(session, ack).bytes();
                self.message[..bytes.len()].copy_from_slice(&bytes);
                self.datagram(left, MONITOR_PORT, bytes.len());
            }
            (Body::Segment(number), Flow::Stream(stream)) => {
                if let Some(segment) = stream.segment(number) {
                    self.segment(left, parcel.direction, segment);
                }
            }
            (Body::Segment(number), Flow::Exchange(exchange)) => {
                if let Some((direction, segment)) = exchange.segment(parcel.direction, number) {
                    self.segment(left, direction, segment);
                }
            }
            // A flow carries its own bodies only.
            (Body::Update(_) | Body::Segment(_) | Body::Filler, _) => {
                self.datagram(left, DISCARD_PORT, 0);
            }
        }
        let whole = usize::try_from(size.get()).unwrap_or(usize::MAX);
        self.frame.truncate(whole.min(CAPTURED));
        &self.frame
    }

    /// Writes an update to the front of `message` and returns its length.
    fn update(
        &mut self,
        session: SessionId,
        world::Update { seq, generated_at }: world::Update,
        payload: Bytes,
        size: Bytes,
    ) -> usize {
        let headers = HEADERS_OF_UDP + wire::Update::HEADER_LEN as u64;
        let room = size.get().saturating_sub(headers);
        let payload = payload.get().min(room).min(ROOM as u64 - headers) as usize;
        let update = wire::Update {
            session,
            seq,
            generated_at,
            clock_offset: Some(0),
            opening: None,
            payload: &ZEROES[..payload],
        };
        update.write(&mut self.message[..]).unwrap_or(0)
    }

    /// The headers of a UDP packet, and the first `length` bytes of `message`.
    fn datagram(&mut self, left: Left<'_>, port: u16, length: usize) {
        let (source_port, destination_port) = match left.parcel.direction {
            Direction::There => (SOURCE_PORT, port),
            Direction::Back => (port, SOURCE_PORT),
        };
        let ip = self.ip(left, IpNumber::UDP, IpEcn::default());
        let length_on_wire = ip.payload_len().unwrap_or(0);
        // No checksum, as IPv4 allows: the message is not written out to its end.
        let udp = UdpHeader { source_port, destination_port, length: length_on_wire, checksum: 0 };
        self.frame.extend_from_slice(&ip.to_bytes());
        self.frame.extend_from_slice(&udp.to_bytes());
        self.frame.extend_from_slice(&self.message[..length.min(CAPTURED)]);
        self.frame.resize(CAPTURED, 0);
    }

    /// A segment that goes in `direction`, as its stream sees it.
    fn segment(&mut self, left: Left<'_>, direction: Direction, segment: &Segment) {
        let ecn = match (segment.flags.ce, segment.flags.ect) {
            (true, _) => IpEcn::CongestionExperienced,
            (false, true) => IpEcn::Ect0,
            (false, false) => IpEcn::NotEct,
        };
        let ip = self.ip(left, IpNumber::TCP, ecn);
        let mut tcp = tcp_header(direction, segment);
        let payload = ZEROES.get(..segment.len as usize).unwrap_or(&ZEROES);
        tcp.checksum = tcp.calc_checksum_ipv4_raw(ip.source, ip.destination, payload).unwrap_or(0);
        self.frame.extend_from_slice(&ip.to_bytes());
        self.frame.extend_from_slice(&tcp.to_bytes());
        self.frame.resize(CAPTURED, 0);
    }

    fn ip(&self, left: Left<'_>, protocol: IpNumber, ecn: IpEcn) -> Ipv4Header {
        const FAR_END: u32 = 1 << 23;
        let number = (left.parcel.flow + 1) % FAR_END;
        let near = (0x0A00_0000 + number).to_be_bytes();
        let far = (0x0A00_0000 + FAR_END + number).to_be_bytes();
        let (source, destination) = match left.parcel.direction {
            Direction::There => (near, far),
            Direction::Back => (far, near),
        };
        let dscp = self.dscp.get(left.parcel.flow as usize).copied().unwrap_or(0);
        let mut header = Ipv4Header {
            dscp: IpDscp::try_new(dscp).unwrap_or_default(),
            ecn,
            // 0 where it is too large for the field, as of packets that a network card will cut.
            total_len: u16::try_from(left.parcel.load.size.get()).unwrap_or(0),
            dont_fragment: true,
            time_to_live: 64,
            protocol,
            source,
            destination,
            ..Ipv4Header::default()
        };
        header.header_checksum = header.calc_header_checksum();
        header
    }
}

/// IPv4 and UDP.
const HEADERS_OF_UDP: u64 = 28;

/// The ack as a monitor sends it. The lab's monitors do not count stale and missing updates.
fn message_of(session: SessionId, ack: world::Ack) -> wire::Ack {
    wire::Ack {
        session,
        seq: ack.update.seq,
        generated_at: ack.update.generated_at,
        received_at: ack.received_at,
        hold: Span::ZERO,
        was_fresh: ack.was_fresh,
        fresh: ack.fresh,
        stale: 0,
        missing: 0,
    }
}

fn tcp_header(direction: Direction, segment: &Segment) -> TcpHeader {
    let flags = segment.flags;
    let (source_port, destination_port) = match direction {
        Direction::There => (SOURCE_PORT, TCP_PORT),
        Direction::Back => (TCP_PORT, SOURCE_PORT),
    };
    // Offset 0 has the number behind that of the SYN, which is 0; both wrap at 32 bits.
    let number = |offset: u64| offset.wrapping_add(1) as u32;
    let sequence_number = if flags.syn { 0 } else { number(segment.seq) };
    // The sending end of the lab receives nothing, and says no window: one that is never full.
    let window = if segment.window == 0 { 1 << 16 } else { segment.window };
    let scaled = if flags.syn { window } else { window >> WINDOW_SCALE };
    let window_size = u16::try_from(scaled).unwrap_or(u16::MAX);
    let mut header = TcpHeader::new(source_port, destination_port, sequence_number, window_size);
    header.acknowledgment_number = if flags.ack { number(segment.ack) } else { 0 };
    (header.syn, header.fin, header.ack) = (flags.syn, flags.fin, flags.ack);
    (header.ece, header.cwr) = (flags.ece, flags.cwr);
    // They are made to fit.
    let _ = header.set_options(&options(segment));
    header
}

/// In the order and with the padding of Linux, so that they are as long as in the lab.
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
            let header = tcp_header(Direction::There, &segment);
            assert_eq!(20 + header.header_len() as u64, segment.wire_size().get(), "{segment:?}");
        }
    }

    #[test]
    fn numbers_wrap_at_32_bits() {
        let flags = Flags { ack: true, ..Flags::default() };
        let segment =
            Segment { seq: (1 << 32) - 1, ack: (1 << 32) + 6, flags, ..Segment::default() };
        let header = tcp_header(Direction::There, &segment);
        assert_eq!((header.sequence_number, header.acknowledgment_number), (0, 7));
    }
}
