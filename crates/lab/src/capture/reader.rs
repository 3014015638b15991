//! Frames from a capture file, pcap or pcapng, as a stream.
//!
//! At most one block is held at a time, and a block of more than 16 MiB is treated as damaged, so
//! that memory is bounded for any input. Formats: the Internet-Drafts draft-ietf-opsawg-pcap and
//! draft-ietf-opsawg-pcapng; blocks are parsed by `pcap-parser`.

use std::io::Read;

use freshline_core::unit::Time;
use pcap_parser::nom;
use pcap_parser::pcapng::{
    Block, EnhancedPacketBlock, InterfaceDescriptionBlock, parse_block_be, parse_block_le,
};
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{
    LegacyPcapBlock, PcapError, PcapHeader, parse_pcap_frame, parse_pcap_frame_be,
    parse_pcap_frame_modified, parse_pcap_header,
};

use super::feed::{Feed, Stop};
use super::{CaptureError, Frame, LinkType, Timeless};

/// The first bytes of every pcapng file, in either byte order.
const PCAPNG: [u8; 4] = [0x0A, 0x0D, 0x0D, 0x0A];
/// The type of packet blocks before enhanced ones were introduced (draft-ietf-opsawg-pcapng,
/// appendix).
const PACKET_BLOCK: u32 = 2;
/// The maximum number of interfaces in one section of a pcapng file.
const MAX_INTERFACES: usize = 1 << 16;

/// Passes every frame of `input` to `on_frame`, in the order of the file. Frames without a
/// timestamp (pcapng's simple packet blocks) are left out and counted.
///
/// # Errors
/// [`CaptureError`] if the file is foreign, damaged, truncated or unreadable; the frames before
/// that position have been passed on. [`CaptureError::Timeless`] if frames were left out and no
/// frame was passed on.
pub fn read_frames(
    input: impl Read,
    mut on_frame: impl FnMut(Frame<'_>),
) -> Result<Timeless, CaptureError> {
    let mut feed = Feed::new(input);
    let mut first = [0; 4];
    let look = |bytes: &[u8]| {
        first = *bytes.first_chunk().ok_or(Stop::Incomplete)?;
        Ok(0)
    };
    match feed.step(look) {
        Ok(true) => {}
        Ok(false) | Err(CaptureError::Truncated { .. }) => return Err(CaptureError::Foreign),
        Err(error) => return Err(error),
    }
    if let Some((_, format, unpack)) =
        COMPRESSED.into_iter().find(|(magic, ..)| first.starts_with(magic))
    {
        return Err(CaptureError::Compressed { format, unpack });
    }
    let (mut handed, mut timeless) = (0, 0);
    let mut on_packet = |frame: Option<Frame<'_>>| match frame {
        Some(frame) => {
            handed += 1;
            on_frame(frame);
        }
        None => timeless += 1,
    };
    let end = if first == PCAPNG {
        read_pcapng(&mut feed, &mut on_packet)
    } else {
        read_pcap(&mut feed, &mut on_packet)
    };
    match end {
        Ok(()) if handed == 0 && timeless > 0 => Err(CaptureError::Timeless(timeless)),
        Ok(()) => Ok(Timeless(timeless)),
        Err(error) => Err(error.in_packet(handed + timeless + 1)),
    }
}

/// The first bytes of compressed files, with the name of the format and the command that
/// decompresses them.
const COMPRESSED: [(&[u8], &str, &str); 4] = [
    (&[0x1F, 0x8B], "gzip", "zcat"),
    (&[0x28, 0xB5, 0x2F, 0xFD], "zstd", "zstdcat"),
    (&[0xFD, b'7', b'z', b'X'], "xz", "xzcat"),
    (b"BZh", "bzip2", "bzcat"),
];

type Parsed<'a, T> = nom::IResult<&'a [u8], T, PcapError<&'a [u8]>>;

/// The result of `parse` at the front of `bytes`, with its length.
fn parse_with<'a, T>(
    parse: impl Fn(&'a [u8]) -> Parsed<'a, T>,
    bytes: &'a [u8],
) -> Result<(T, usize), Stop> {
    match parse(bytes) {
        Ok((rest, found)) => Ok((found, bytes.len() - rest.len())),
        Err(nom::Err::Incomplete(_)) => Err(Stop::Incomplete),
        Err(_) => Err(Stop::Damaged("its block has no valid form")),
    }
}

fn read_pcap<R: Read>(
    feed: &mut Feed<R>,
    on_packet: &mut impl FnMut(Option<Frame<'_>>),
) -> Result<(), CaptureError> {
    let mut header = PcapHeader::default();
    let head = feed.step(|bytes| {
        let (found, len) = parse_with(parse_pcap_header, bytes)?;
        header = found;
        Ok(len)
    });
    match head {
        // The magic number is the only part of a header that can be wrong.
        Err(CaptureError::Damaged { .. }) => return Err(CaptureError::Foreign),
        result => result?,
    };
    // The upper half holds the length of a check sequence after each frame.
    let link = LinkType::from_number(header.network.0 as u32 & 0xFFFF);
    let tick = if header.is_nanosecond_precision() { 1 } else { 1_000 };
    let parse: for<'a> fn(&'a [u8]) -> Parsed<'a, LegacyPcapBlock<'a>> = if header.is_bigendian() {
        parse_pcap_frame_be
    } else if header.is_modified_format() {
        parse_pcap_frame_modified
    } else {
        parse_pcap_frame
    };
    let mut next = |bytes: &[u8]| {
        let (block, len) = parse_with(parse, bytes)?;
        let nanos = u64::from(block.ts_sec) * 1_000_000_000 + u64::from(block.ts_usec) * tick;
        on_packet(Some(Frame {
            at: Time::from_nanos(nanos),
            link,
            wire_len: block.origlen as usize,
            bytes: block.data,
        }));
        Ok(len)
    };
    while feed.step(&mut next)? {}
    Ok(())
}

fn read_pcapng<R: Read>(
    feed: &mut Feed<R>,
    on_packet: &mut impl FnMut(Option<Frame<'_>>),
) -> Result<(), CaptureError> {
    let mut section = Section::default();
    let mut next = |bytes: &[u8]| {
        let parse = if section.big_endian { parse_block_be } else { parse_block_le };
        let (block, len) = parse_with(parse, bytes)?;
        match block {
            Block::SectionHeader(header) => {
                section = Section { big_endian: header.big_endian(), interfaces: Vec::new() };
            }
            Block::InterfaceDescription(interface) => section.describe(&interface)?,
            Block::EnhancedPacket(packet) => on_packet(Some(section.frame(&packet)?)),
            Block::SimplePacket(_) => on_packet(None),
            // The parser assumes a little-endian type in every section.
            Block::Unknown(block)
                if [block.block_type, block.block_type.swap_bytes()].contains(&PACKET_BLOCK) =>
            {
                on_packet(Some(section.old_frame(block.data)?));
            }
            // Statistics, names and comments.
            _ => {}
        }
        Ok(len)
    };
    while feed.step(&mut next)? {}
    Ok(())
}

/// The state that applies to the blocks of a pcapng file until its next section header.
#[derive(Default)]
struct Section {
    big_endian: bool,
    interfaces: Vec<Interface>,
}

struct Interface {
    link: LinkType,
    /// The option `if_tsresol`: ticks per second as a power of 10, or of 2 with the top bit set.
    resolution: u8,
    /// The offset to add to every time, in s.
    offset: i64,
}

impl Section {
    fn describe(&mut self, block: &InterfaceDescriptionBlock<'_>) -> Result<(), Stop> {
        if self.interfaces.len() == MAX_INTERFACES {
            return Err(Stop::Damaged("more than 65536 interfaces"));
        }
        // The parser assumes a little-endian option in every section.
        let offset = block.if_tsoffset;
        self.interfaces.push(Interface {
            link: LinkType::from_number(block.linktype.0 as u32),
            resolution: block.if_tsresol,
            offset: if self.big_endian { offset.swap_bytes() } else { offset },
        });
        Ok(())
    }

    fn frame<'a>(&self, block: &'a EnhancedPacketBlock<'a>) -> Result<Frame<'a>, Stop> {
        self.frame_of(block.if_id, block.ts_high, block.ts_low, block.origlen, block.packet_data())
    }

    /// The frame in the body of an obsolete packet block.
    fn old_frame<'a>(&self, body: &'a [u8]) -> Result<Frame<'a>, Stop> {
        const DAMAGED: Stop = Stop::Damaged("a packet block that is too short");
        let (head, data) = body.split_at_checked(20).ok_or(DAMAGED)?;
        let field = |at: usize| {
            let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
            if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
        };
        // The first field holds two values: the interface, and the number of packets lost.
        let interface = if self.big_endian { field(0) >> 16 } else { field(0) & 0xFFFF };
        let captured = data.get(..field(12) as usize).ok_or(DAMAGED)?;
        self.frame_of(interface, field(4), field(8), field(16), captured)
    }

    fn frame_of<'a>(
        &self,
        interface: u32,
        ts_high: u32,
        ts_low: u32,
        wire_len: u32,
        bytes: &'a [u8],
    ) -> Result<Frame<'a>, Stop> {
        let interface = usize::try_from(interface).ok().and_then(|id| self.interfaces.get(id));
        let interface = interface.ok_or(Stop::Damaged("a packet of an unknown interface"))?;
        let ticks = u64::from(ts_high) << 32 | u64::from(ts_low);
        let (at, wire_len) = (interface.time(ticks), wire_len as usize);
        Ok(Frame { at, link: interface.link, wire_len, bytes })
    }
}

impl Interface {
    fn time(&self, ticks: u64) -> Time {
        let nanos = u128::from(ticks) * 1_000_000_000;
        let power = u32::from(self.resolution & 0x7F);
        let since_offset = if self.resolution & 0x80 != 0 {
            nanos >> power
        } else {
            10_u128.checked_pow(power).map_or(0, |second| nanos / second)
        };
        // Below 2^94, and the offset's product below 2^94 too.
        let nanos = since_offset as i128 + i128::from(self.offset) * 1_000_000_000;
        Time::from_nanos(nanos.clamp(0, u64::MAX.into()) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// When a frame was captured, in ns, and its bytes.
    type Found = (u64, Vec<u8>);

    /// The frames of a file, and the result.
    fn frames(file: &[u8]) -> (Vec<Found>, Result<Timeless, CaptureError>) {
        let mut found = Vec::new();
        let end = read_frames(file, |frame| {
            assert_eq!((frame.link, frame.wire_len), (LinkType::Ethernet, 9));
            found.push((frame.at.as_nanos(), frame.bytes.to_vec()));
        });
        (found, end)
    }

    #[derive(Clone, Copy)]
    enum Order {
        Little,
        Big,
    }

    impl Order {
        fn put<const N: usize>(self, little: [u8; N]) -> Vec<u8> {
            match self {
                Self::Little => little.to_vec(),
                Self::Big => little.into_iter().rev().collect(),
            }
        }

        fn u16(self, number: u16) -> Vec<u8> {
            self.put(number.to_le_bytes())
        }

        fn u32(self, number: u32) -> Vec<u8> {
            self.put(number.to_le_bytes())
        }

        /// A file with one frame of three bytes, of nine on the wire, at 2 s and 7 ticks.
        fn pcap(self, magic: u32) -> Vec<u8> {
            let head = [self.u32(magic), self.u16(2), self.u16(4), vec![0; 12], self.u32(1)];
            let frame = [2, 7, 3, 9].map(|number| self.u32(number));
            [head.concat(), frame.concat(), b"abc".to_vec()].concat()
        }

        fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
            let len = self.u32(12 + body.len() as u32);
            [&self.u32(kind), &len, body, &len].concat()
        }

        /// The same with `ticks`, on an interface with a time resolution and an offset in s.
        fn pcapng(self, resolution: u8, offset: u64, ticks: u64) -> Vec<u8> {
            let head = [self.u32(0x1A2B_3C4D), self.u16(1), self.u16(0), vec![0xFF; 8]];
            let link = [self.u16(1), self.u16(0), self.u32(0)];
            let options = [
                [self.u16(9), self.u16(1), vec![resolution, 0, 0, 0]].concat(),
                [self.u16(14), self.u16(8), self.put(offset.to_le_bytes())].concat(),
                vec![0; 4],
            ];
            let packet = [0, (ticks >> 32) as u32, ticks as u32, 3, 9].map(|n| self.u32(n));
            [
                self.block(0x0A0D_0D0A, &head.concat()),
                self.block(1, &[link.concat(), options.concat()].concat()),
                self.block(6, &[packet.concat(), b"abc\0".to_vec()].concat()),
            ]
            .concat()
        }
    }

    #[test]
    fn pcap_is_read_in_both_byte_orders_and_resolutions() {
        for order in [Order::Little, Order::Big] {
            for (magic, tick) in [(0xA1B2_C3D4, 1_000), (0xA1B2_3C4D, 1)] {
                let (found, end) = frames(&order.pcap(magic));
                assert_eq!(found, [(2_000_000_000 + 7 * tick, b"abc".to_vec())]);
                end.unwrap();
            }
        }
    }

    #[test]
    fn pcapng_is_read_in_both_byte_orders_and_any_resolution() {
        for order in [Order::Little, Order::Big] {
            let cases = [(6, 5_000_007, 5_000_007_000), (9, 7, 7), (0x80 | 10, 512, 500_000_000)];
            for (resolution, ticks, nanos) in cases {
                let (found, end) = frames(&order.pcapng(resolution, 3, ticks));
                assert_eq!(found, [(3_000_000_000 + nanos, b"abc".to_vec())]);
                end.unwrap();
            }
        }
    }

    #[test]
    fn sections_follow_each_other_in_any_order_of_bytes() {
        let file = [Order::Big.pcapng(9, 0, 1), Order::Little.pcapng(9, 0, 2)].concat();
        let (found, end) = frames(&file);
        assert_eq!(found.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [1, 2]);
        end.unwrap();
    }

    #[test]
    fn what_is_no_capture_is_said_to_be_none() {
        for foreign in [&b""[..], b"abc", b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"] {
            assert!(matches!(frames(foreign).1, Err(CaptureError::Foreign)));
        }
    }

    #[test]
    fn a_compressed_file_says_what_unpacks_it() {
        for (start, unpack) in [(&b"\x1f\x8b\x08\0"[..], "`zcat FILE"), (b"BZh9", "`bzcat FILE")] {
            let error = frames(&[start, &[0; 40]].concat()).1.unwrap_err().to_string();
            assert!(error.contains(unpack), "{error}");
        }
    }

    #[test]
    fn packets_without_a_time_are_counted_and_old_blocks_are_read() {
        for order in [Order::Little, Order::Big] {
            let file = order.pcapng(9, 0, 1);
            let start = &file[..file.len() - 36];
            let simple = order.block(3, &[order.u32(9), b"abc\0".to_vec()].concat());
            let end = frames(&[start, &simple, &simple].concat()).1;
            assert!(matches!(end, Err(CaptureError::Timeless(2))), "{end:?}");
            let (found, end) = frames(&[&file[..], &simple].concat());
            assert_eq!((found.len(), end.unwrap()), (1, Timeless(1)));

            let fields = [0, 7, 3, 9].map(|n| order.u32(n));
            let head = [order.u16(0), order.u16(5), fields.concat()].concat();
            let old = order.block(2, &[head, b"abc\0".to_vec()].concat());
            let (found, end) = frames(&[start, &old].concat());
            assert_eq!(found, [(7, b"abc".to_vec())]);
            end.unwrap();
        }
    }

    #[test]
    fn a_cut_file_keeps_the_frames_before_the_cut() {
        let files = [(Order::Little.pcap(0xA1B2_C3D4), 19), (Order::Big.pcapng(9, 0, 1), 36)];
        for (file, last_block) in files {
            let again = &file[file.len() - last_block..];
            for cut in 1..last_block {
                let (found, end) = frames(&[&file, &again[..cut]].concat());
                assert_eq!(found.len(), 1);
                let at = (file.len() + cut) as u64;
                let packet = 2;
                assert_eq!(
                    end.unwrap_err().to_string(),
                    CaptureError::Truncated { packet, at }.to_string()
                );
            }
        }
    }

    #[test]
    fn a_packet_of_an_interface_that_was_not_described_is_damage() {
        let mut file = Order::Little.pcapng(9, 0, 1);
        let at = file.len() - 36 + 8;
        file[at] = 1;
        let (_, end) = frames(&file);
        assert_eq!(
            end.unwrap_err().to_string(),
            format!(
                "the file is damaged in packet 1 or before it, at byte {}: a packet of an unknown \
                 interface; all packets before that were read",
                file.len() - 36
            )
        );
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_a_result(bytes: Vec<u8>, order: bool, ng: bool, cut in 0usize..200) {
            let order = if order { Order::Big } else { Order::Little };
            let mut file = if ng { order.pcapng(6, 0, 0) } else { order.pcap(0xA1B2_C3D4) };
            file.truncate(cut);
            file.extend(bytes);
            let _ = read_frames(&file[..], |_| {});
        }
    }
}
