//! Feeds the programs packets one by one, as the kernel would, without attaching them.

use std::mem::MaybeUninit;
use std::thread;
use std::time::Duration;

use etherparse::TcpOptionElement::{MaximumSegmentSize, Noop, Timestamp, WindowScale};
use etherparse::{
    IpHeaders, IpNumber, PacketBuilder, SlicedPacket, TcpHeader, TcpOptionElement, TransportSlice,
};
use libbpf_rs::{MapCore, MapFlags, ProgramInput, ProgramMut};

use super::super::{Law, Settings};
use super::{load, skeleton::MainSkel};
use crate::error::{require_btf, require_root};

const SEGMENT: usize = 1448;
const SCALE: u8 = 7;
/// The window in the near end's headers, always.
const WINDOW: u16 = 60_000;

/// Runs a test with the programs, loaded.
fn with_programs(test: impl FnOnce(&MainSkel<'_>)) {
    if let Err(error) = require_root("load programs").and_then(|()| require_btf()) {
        println!("skipped: {error}");
        return;
    }
    let mut object = MaybeUninit::uninit();
    test(&load(&mut object, 0, &Law::Rtac(Settings::default())).unwrap());
}

/// The packet after the program; `None` if the kernel does not accept such a packet at all.
fn passed(program: &ProgramMut<'_>, packet: &[u8]) -> Option<Vec<u8>> {
    let mut out = vec![0; packet.len() + 256];
    let input =
        ProgramInput { data_in: Some(packet), data_out: Some(&mut out), ..Default::default() };
    let done = program.test_run(input).ok()?;
    assert_eq!(done.return_value.cast_signed(), -1, "the next program is to see it");
    Some(done.data?.to_vec())
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum From {
    Far,
    Near,
}

#[derive(Debug, Clone, Copy)]
enum Version {
    Four,
    Six,
}

/// A packet between the two ends.
fn packet(version: Version, from: From, mut tcp: TcpHeader, payload: usize) -> Vec<u8> {
    let (far, near) = (1, 2);
    let (source, destination) = if from == From::Far { (far, near) } else { (near, far) };
    (tcp.source_port, tcp.destination_port) = (source.into(), destination.into());
    let link = PacketBuilder::ethernet2([2; 6], [4; 6]);
    let address = |end| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end];
    let builder = match version {
        Version::Four => link.ipv4([192, 0, 2, source], [192, 0, 2, destination], 64),
        Version::Six => link.ipv6(address(source), address(destination), 64),
    };
    let mut bytes = Vec::new();
    builder.tcp_header(tcp).write(&mut bytes, &vec![7; payload]).unwrap();
    bytes
}

/// The TCP header of a packet; its checksum must be right.
fn tcp_of(packet: &[u8]) -> TcpHeader {
    let sliced = SlicedPacket::from_ethernet(packet).unwrap();
    let Some(TransportSlice::Tcp(tcp)) = &sliced.transport else { panic!("{sliced:?}") };
    let header = tcp.to_header();
    let (ip, _) = IpHeaders::from_slice(&packet[14..]).unwrap();
    let right = match ip {
        IpHeaders::Ipv4(ip, _) => header.calc_checksum_ipv4(&ip, tcp.payload()),
        IpHeaders::Ipv6(ip, _) => header.calc_checksum_ipv6(&ip, tcp.payload()),
    };
    assert_eq!(header.checksum, right.unwrap());
    header
}

fn header(sequence: u32, ack: u32, options: &[TcpOptionElement]) -> TcpHeader {
    let mut tcp = TcpHeader::new(0, 0, sequence, WINDOW);
    (tcp.ack, tcp.acknowledgment_number) = (true, ack);
    tcp.set_options(options).unwrap();
    tcp
}

/// A download to the near end, which opened the connection.
struct Download<'a, 'b> {
    programs: &'a MainSkel<'b>,
    version: Version,
    /// The number of received bytes.
    received: u32,
    clock: u32,
}

/// The far end's first sequence number: its bytes wrap around the end of the numbers.
const FIRST: u32 = u32::MAX - 9_999;

impl<'a, 'b> Download<'a, 'b> {
    fn begin(
        programs: &'a MainSkel<'b>,
        version: Version,
        near: &[TcpOptionElement],
        far: &[TcpOptionElement],
    ) -> Self {
        let stamped = |options: &[_], own, other| {
            let mut options = options.to_vec();
            options.extend([Timestamp(own, other), Noop, Noop]);
            options
        };
        let mut syn = header(99, 0, &stamped(near, 1, 0));
        (syn.syn, syn.ack) = (true, false);
        let mut answer = header(FIRST.wrapping_sub(1), 100, &stamped(far, 1, 1));
        answer.syn = true;
        let begun = Self { programs, version, received: 0, clock: 1 };
        let syn = packet(version, From::Near, syn, 0);
        assert_eq!(begun.out(&syn), syn, "a window that is not scaled is left alone");
        begun.arrives(&packet(version, From::Far, answer, 0));
        begun
    }

    fn arrives(&self, packet: &[u8]) {
        assert_eq!(passed(&self.programs.progs.freshline_in, packet).unwrap(), packet);
    }

    fn out(&self, packet: &[u8]) -> Vec<u8> {
        passed(&self.programs.progs.freshline_out, packet).unwrap()
    }

    /// The near end acknowledges everything: returns the window that leaves the device.
    fn ack(&mut self) -> u16 {
        self.clock += 1;
        let options = [Noop, Noop, Timestamp(self.clock, 1)];
        let tcp = header(100, FIRST.wrapping_add(self.received), &options);
        let left = self.out(&packet(self.version, From::Near, tcp.clone(), 0));
        let parsed = tcp_of(&left);
        let only_window =
            TcpHeader { window_size: WINDOW, checksum: tcp.checksum, ..parsed.clone() };
        assert_eq!(only_window.to_bytes()[4..], tcp.to_bytes()[4..], "nothing else is changed");
        parsed.window_size
    }

    /// A segment arrives that answers the previous ack.
    fn data(&mut self) {
        let options = [Noop, Noop, Timestamp(2, self.clock)];
        let tcp = header(FIRST.wrapping_add(self.received), 100, &options);
        self.arrives(&packet(self.version, From::Far, tcp, SEGMENT));
        self.received += SEGMENT as u32;
    }

    /// A counter of the device, in the order of `enum counter`.
    fn counted(&self, counter: u32) -> u64 {
        let key = counter.to_ne_bytes();
        let of_each = self.programs.maps.counters.lookup_percpu(&key, MapFlags::ANY);
        let numbers = of_each.unwrap().unwrap().into_iter();
        numbers.map(|number| u64::from_ne_bytes(number.try_into().unwrap())).sum()
    }
}

#[test]
fn windows_become_smaller_and_no_edge_is_taken_back() {
    with_programs(|programs| {
        for version in [Version::Four, Version::Six] {
            let options = [MaximumSegmentSize(1460), WindowScale(SCALE)];
            let mut download = Download::begin(programs, version, &options, &options);
            assert_eq!(download.ack(), WINDOW, "before the law knows, the near end's own");
            let mut edges = vec![u64::from(WINDOW) << SCALE];
            // Beyond the first edge, before which the window may not shrink.
            while edges.len() < 6000 {
                download.data();
                let window = u64::from(download.ack());
                edges.push(u64::from(download.received) + (window << SCALE));
            }
            assert!(edges.is_sorted(), "{version:?}");
            let last = edges[edges.len() - 1] - u64::from(download.received);
            assert!(last < 1 << 20, "{version:?}: {last} is as good as no window");
            assert!(last >= 4 * SEGMENT as u64, "{version:?}: {last} is less than four segments");
        }
    });
}

#[test]
fn segments_that_the_near_end_would_not_take_change_nothing() {
    with_programs(|programs| {
        let options = [MaximumSegmentSize(1460), WindowScale(SCALE)];
        let mut download = Download::begin(programs, Version::Four, &options, &options);
        for _ in 0..3000 {
            download.ack();
            download.data();
        }
        let before = download.ack();
        let next = FIRST.wrapping_add(download.received);
        // Data from beyond the window, and an echo of a timestamp that was never sent.
        for (sequence, echo) in [(next + (1 << 30), download.clock), (next, 1 << 30)] {
            let options = [Noop, Noop, Timestamp(2, echo)];
            let stray = header(sequence, 100, &options);
            download.arrives(&packet(Version::Four, From::Far, stray, 1));
        }
        assert!(download.ack() <= before, "the window begins where it did");
        let round_trips = download.counted(1);
        download.data();
        assert_eq!(download.counted(1), round_trips + 1);
    });
}

#[test]
fn a_scale_that_only_one_end_offers_is_none() {
    with_programs(|programs| {
        let near = [MaximumSegmentSize(1460), WindowScale(SCALE)];
        let mut download = Download::begin(programs, Version::Four, &near, &[]);
        download.ack();
        for _ in 0..200 {
            download.data();
            // At least four segments; a unit of 128 bytes is too coarse for that.
            assert!(download.ack() >= 4 * SEGMENT as u16);
        }
    });
}

#[test]
fn connections_that_keep_their_windows_and_those_that_began_before_are_left_alone() {
    with_programs(|programs| {
        let mut download = Download { programs, version: Version::Four, received: 0, clock: 1 };
        for _ in 0..50 {
            assert_eq!(download.ack(), WINDOW);
            download.data();
        }
        assert_eq!(download.counted(6), 50);

        // MD5 signatures, which cover the window (RFC 2385); and multiple paths, which share it
        // (RFC 8684).
        for (kind, length) in [(19, 18), (30, 12)] {
            let mut options = vec![kind, length];
            options.resize(length.into(), 0);
            options.extend([8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 3, 3, SCALE, 1, 1, 0]);
            let mut syn = header(99, 0, &[]);
            (syn.syn, syn.ack) = (true, false);
            syn.set_options_raw(&options).unwrap();
            let mut answer = header(FIRST.wrapping_sub(1), 100, &[Timestamp(1, 1)]);
            answer.syn = true;
            download.out(&packet(Version::Four, From::Near, syn, 0));
            download.arrives(&packet(Version::Four, From::Far, answer, 0));
            for _ in 0..50 {
                assert_eq!(download.ack(), WINDOW);
                download.data();
            }
        }
        assert_eq!(download.counted(4), 0);
    });
}

#[test]
fn super_packets_that_are_too_long_to_say_how_long_count_as_data() {
    with_programs(|programs| {
        for version in [Version::Four, Version::Six] {
            let options = [MaximumSegmentSize(1460), WindowScale(SCALE)];
            let mut download = Download::begin(programs, version, &options, &options);
            download.ack();
            let before = download.counted(1);
            let options = [Noop, Noop, Timestamp(2, download.clock)];
            let mut super_packet =
                packet(version, From::Far, header(FIRST, 100, &options), SEGMENT);
            match version {
                Version::Four => super_packet[16..18].fill(0),
                Version::Six => {
                    super_packet[18..20].fill(0);
                    super_packet[20] = IpNumber::IPV6_HEADER_HOP_BY_HOP.0;
                    // The next header, and an option with the length (RFC 2675).
                    let length = 8 + 32 + SEGMENT as u32;
                    let jumbo = [[IpNumber::TCP.0, 0, 0xc2, 4], length.to_be_bytes()].concat();
                    super_packet.splice(54..54, jumbo);
                }
            }
            download.arrives(&super_packet);
            assert_eq!(download.counted(1), before + 1, "{version:?}: its round trip");
        }
    });
}

#[test]
fn whatever_is_no_whole_segment_passes_as_it_is() {
    with_programs(|programs| {
        let options = [MaximumSegmentSize(1460), WindowScale(SCALE)];
        let mut download = Download::begin(programs, Version::Four, &options, &options);
        for _ in 0..50 {
            download.ack();
            download.data();
            thread::sleep(Duration::from_micros(100));
        }
        let options = [Noop, Noop, Timestamp(9_999, 1)];
        let tcp = header(100, FIRST.wrapping_add(download.received), &options);
        let four = packet(Version::Four, From::Near, tcp.clone(), 0);
        let six = packet(Version::Six, From::Near, tcp, 0);
        assert_eq!(tcp_of(&four).window_size, WINDOW);
        let mut odd: Vec<Vec<u8>> = Vec::new();
        for whole in [&four, &six] {
            odd.extend((14..whole.len()).map(|length| whole[..length].to_vec()));
        }
        let with = |changes: &[(usize, u8)], packet: &[u8]| {
            let mut packet = packet.to_vec();
            changes.iter().for_each(|(at, value)| packet[*at] = *value);
            packet
        };
        // Fragments: more of them, and a later one.
        odd.push(with(&[(20, 0x20)], &four));
        odd.push(with(&[(21, 1)], &four));
        // An IP header that is too short, one that extends beyond the packet, and a TCP header
        // likewise.
        odd.push(with(&[(14, 0x44)], &four));
        odd.push(with(&[(14, 0x4f)], &four));
        odd.push(with(&[(46, 0x40)], &four));
        odd.push(with(&[(46, 0xf0)], &four));
        // IPv6 headers in between, and another protocol.
        odd.push(with(&[(20, IpNumber::IPV6_FRAGMENTATION_HEADER.0)], &six));
        odd.push(with(&[(20, IpNumber::IPV6_HEADER_HOP_BY_HOP.0)], &six));
        odd.push(with(&[(23, IpNumber::UDP.0)], &four));
        // Options of length 0 and 1, and beyond the header's end.
        for length in [0, 1, 0x7f, 0xff] {
            odd.push(with(&[(54, 200), (55, length)], &six));
        }
        let before = download.counted(0);
        for packet in odd {
            let programs = &download.programs.progs;
            for program in [&programs.freshline_in, &programs.freshline_out] {
                // The kernel itself rejects some of them as too short.
                let left = passed(program, &packet).unwrap_or_else(|| packet.clone());
                assert_eq!(left, packet);
            }
        }
        assert_eq!(download.counted(0), before, "none was taken for one of the connection's");
        assert!(tcp_of(&download.out(&four)).window_size < WINDOW, "a whole one is");
    });
}

/// Prints the cost with warm caches, for the page of the book.
#[test]
fn what_a_packet_costs() {
    with_programs(|programs| {
        let options = [MaximumSegmentSize(1460), WindowScale(SCALE)];
        let mut download = Download::begin(programs, Version::Four, &options, &options);
        for _ in 0..50 {
            download.ack();
            download.data();
        }
        let next = FIRST.wrapping_add(download.received);
        let options = [Noop, Noop, Timestamp(download.clock, 1)];
        let ack = packet(Version::Four, From::Near, header(100, next, &options), 0);
        let data = packet(Version::Four, From::Far, header(next, 100, &options), SEGMENT);
        // EtherType 0x0900 is unassigned.
        let nothing: Vec<u8> =
            ack.iter().enumerate().map(|(at, byte)| byte + u8::from(at == 12)).collect();
        let programs = &download.programs.progs;
        for (name, packet, program) in [
            ("an incoming segment with data", &data, &programs.freshline_in),
            ("an outgoing ack", &ack, &programs.freshline_out),
            ("a packet that is neither", &nothing, &programs.freshline_out),
        ] {
            let cost = || {
                let input =
                    ProgramInput { data_in: Some(packet), repeat: 20_000, ..Default::default() };
                program.test_run(input).unwrap().duration
            };
            println!("{name}: {:?}", (0..5).map(|_| cost()).min().unwrap());
        }
    });
}
