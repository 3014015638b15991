//! Parsing of packets and frames by the kernel's freshness control compared with the core's: both
//! must find the same flow, marks and class in the same bytes.

mod common;

use std::fmt::Write as _;

use common::on_host;
use etherparse::{
    IpFragOffset, IpHeaders, IpNumber, Ipv4Header, Ipv6Header, PacketBuilder, ip_number,
};
use freshline_core::link::Framing;
use freshline_core::router::{Classifier, Header, IfcConfig, QdiscConfig, StreamProtocol};
use freshline_kernel::ifc_qdisc::Settings;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg32;

/// Rules as people write them.
const RULES: &[&str] = &[
    "update",
    "udp",
    "udp force",
    "port=53,5000-5010 as drop_averse; udp force",
    "update; dscp=46,0 as drop_averse; any",
    "udp and (dport=53 or not sport=5000-5010) and not src=128.0.0.0/1; not host=8000::/1,::/97; udp",
];

/// As `struct rule` of `packet.h`: how many rows, and the rows.
fn rows(classifier: &Classifier) -> String {
    let ifc = IfcConfig { classifier: classifier.clone(), ..IfcConfig::default() };
    let settings = Settings::new(None, Framing::default(), &QdiscConfig::Ifc(ifc.into())).unwrap();
    settings.rules().iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

/// Bytes that are, or might be, the front of an IP packet.
fn any_packet(rng: &mut Pcg32) -> Vec<u8> {
    let payload = any_payload(rng);
    let ports = [53, 443, 5005, rng.random()].map(|port| (port, rng.random::<u16>()));
    let (from, to) = ports[rng.random_range(0..4)];
    let mut packet = Vec::new();
    let dscp = rng.random_range(0..64_u8);
    let (four, six) = any_headers(rng, dscp);
    let is_four = rng.random::<bool>();
    let others = [1, 33, 47, 50, 58, 58, 132, 136, 255].map(IpNumber);
    let other = others[rng.random_range(0..others.len())];
    let builder = PacketBuilder::ip(if is_four {
        IpHeaders::Ipv4(four, <_>::default())
    } else {
        IpHeaders::Ipv6(six, <_>::default())
    });
    match rng.random_range(0..4) {
        0 => builder.tcp(from, to, 1, 1000).write(&mut packet, &payload).unwrap(),
        1 => builder.write(&mut packet, other, &payload).unwrap(),
        _ => builder.udp(from, to).write(&mut packet, &payload).unwrap(),
    }
    if !is_four && rng.random::<bool>() {
        extend(rng, &mut packet);
    }
    if rng.random_range(0..10) == 0 {
        let at = rng.random_range(0..packet.len());
        packet[at] = rng.random();
    }
    let kept =
        if rng.random_range(0..5) == 0 { rng.random_range(0..=packet.len()) } else { packet.len() };
    packet.truncate(kept.min(Header::SNAP_LEN));
    packet
}

/// The beginning of an update, a stream or another message of a known protocol, or random bytes.
fn any_payload(rng: &mut Pcg32) -> Vec<u8> {
    let mut payload = vec![0; rng.random_range(0..100)];
    rng.fill_bytes(&mut payload);
    let fronts: [&[u8]; 9] = [
        &[],
        b"FL\x01\x01",
        b"FL\x01\x02",
        &[0xc3, 0, 0, 0, 1],
        &[22, 0xfe, 0xfd, 0],
        &[0x80, 96],
        &[0x81, 200],
        &[4, 0, 0, 0],
        &[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42],
    ];
    let link_control = [135, 143][rng.random_range(0..2)];
    let fronts: Vec<&[u8]> =
        fronts.into_iter().chain([std::slice::from_ref(&link_control)]).collect();
    let front = fronts[rng.random_range(0..fronts.len())];
    if payload.len() >= front.len() {
        payload[..front.len()].copy_from_slice(front);
    }
    if front == [4, 0, 0, 0] {
        payload.truncate(payload.len() / 16 * 16);
    }
    payload
}

fn any_headers(rng: &mut Pcg32, dscp: u8) -> (Ipv4Header, Ipv6Header) {
    let four = Ipv4Header {
        dscp: dscp.try_into().unwrap(),
        source: rng.random(),
        destination: rng.random(),
        more_fragments: rng.random_range(0..6) == 0,
        fragment_offset: IpFragOffset::try_new(rng.random_range(0..9_u16) / 8).unwrap(),
        time_to_live: 64,
        ..Ipv4Header::default()
    };
    let six = Ipv6Header {
        traffic_class: dscp << 2,
        source: rng.random(),
        destination: {
            let any: [u8; 16] = rng.random();
            if rng.random::<bool>() {
                any
            } else {
                [&[0xff, 2][..], &any[2..]].concat().try_into().unwrap()
            }
        },
        hop_limit: [1, 64, 255][rng.random_range(0..3)],
        ..Ipv6Header::default()
    };
    (four, six)
}

/// Puts extension headers behind an IPv6 header.
fn extend(rng: &mut Pcg32, packet: &mut Vec<u8>) {
    const KINDS: [IpNumber; 5] = [
        ip_number::IPV6_HEADER_HOP_BY_HOP,
        ip_number::IPV6_ROUTE_HEADER,
        ip_number::IPV6_FRAGMENTATION_HEADER,
        ip_number::AUTHENTICATION_HEADER,
        ip_number::IPV6_DESTINATION_OPTIONS,
    ];
    for _ in 0..rng.random_range(1..4) {
        let kind = KINDS[rng.random_range(0..KINDS.len())];
        let mut header = vec![0; if kind == ip_number::AUTHENTICATION_HEADER { 12 } else { 8 }];
        header[0] = packet[6];
        match kind {
            ip_number::AUTHENTICATION_HEADER => header[1] = 1,
            ip_number::IPV6_FRAGMENTATION_HEADER => header[3] = rng.random_range(0..3) * 4,
            _ => {}
        }
        packet[6] = kind.0;
        packet.splice(40..40, header);
        let payload = (packet.len() - 40) as u16;
        packet[4..6].copy_from_slice(&payload.to_be_bytes());
    }
}

/// The expected output of the kernel for a packet.
fn told(header: Option<Header>, classifier: &Classifier) -> Option<Vec<u64>> {
    let header = header?;
    let flow = header.flow;
    let halves = [flow.source, flow.destination].map(|address| {
        let bits = address.to_bits();
        [(bits >> 64) as u64, bits as u64]
    });
    let class = classifier.class_of(&header) as u64;
    let row = [
        1,
        header.dscp.into(),
        header.is_fragment.into(),
        header.is_update.into(),
        header.is_link_control.into(),
        header.stream.map_or(0, |stream| {
            1 + StreamProtocol::ALL.iter().position(|one| *one == stream).unwrap() as u64
        }),
        class,
        flow.protocol.into(),
        flow.source_port.into(),
        flow.destination_port.into(),
    ];
    Some([&row[..], halves.as_flattened()].concat())
}

#[test]
fn packets_are_read_and_classified_as_by_the_core() {
    let mut rng = Pcg32::seed_from_u64(12);
    let (mut lines, mut expected) = (String::new(), Vec::new());
    for written in RULES {
        let classifier: Classifier = written.parse().unwrap();
        writeln!(lines, "rules {}", rows(&classifier)).unwrap();
        for _ in 0..4000 {
            let packet = any_packet(&mut rng);
            writeln!(lines, "packet {}", packet.len()).unwrap();
            packet.iter().for_each(|byte| writeln!(lines, "{byte}").unwrap());
            expected.push((packet.clone(), told(Header::of_ip(&packet), &classifier)));
        }
    }
    let rows = on_host("ifc_on_host", &lines);
    assert_eq!(rows.len(), expected.len());
    for (row, (packet, expected)) in rows.into_iter().zip(&expected) {
        let row = (row[0] == 1).then_some(row);
        assert_eq!(row, *expected, "{packet:?}");
    }
    let is_update = |row: &&Option<Vec<u64>>| row.as_ref().is_some_and(|row| row[3] == 1);
    let updates = expected.iter().map(|(_, row)| row).filter(is_update).count();
    assert!(updates > expected.len() / 50, "{updates}");
    let is_link_control = |row: &&Option<Vec<u64>>| row.as_ref().is_some_and(|row| row[4] == 1);
    let controls = expected.iter().map(|(_, row)| row).filter(is_link_control).count();
    assert!(controls > 10, "{controls}");
    for stream in 1..=StreamProtocol::ALL.len() as u64 {
        let is_it = |row: &&Option<Vec<u64>>| row.as_ref().is_some_and(|row| row[5] == stream);
        let found = expected.iter().map(|(_, row)| row).filter(is_it).count();
        assert!(found > expected.len() / 200, "{found} of stream {stream}");
    }
}

/// EtherTypes that are tags of virtual networks.
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// EtherTypes of frames that keep the link itself working; below 0x600 it is the length of an 802.2 frame.
const LINK_PROTOCOLS: [u16; 4] = [0x0806, 0x88cc, 0x8809, 38];
/// EtherTypes of other frames that carry no IP.
const OTHER_TYPES: [u16; 3] = [0x8864, 0x8847, 0x88e5];

/// Of a type that keeps the link working.
fn neighbour_discovery(rng: &mut Pcg32) -> Vec<u8> {
    let six = Ipv6Header { hop_limit: 255, destination: rng.random(), ..Ipv6Header::default() };
    let builder = PacketBuilder::ip(IpHeaders::Ipv6(six, <_>::default()));
    let mut packet = Vec::new();
    builder.write(&mut packet, IpNumber(58), &[rng.random_range(133..=137), 0, 0, 0, 0]).unwrap();
    packet
}

/// A frame with none to three tags, cut anywhere at times, and whether it keeps the link itself working by
/// its EtherType.
fn any_frame(rng: &mut Pcg32) -> (Vec<u8>, bool) {
    let tags = rng.random_range(0..=3);
    let packet = match rng.random_range(0..10) {
        0 => neighbour_discovery(rng),
        _ => any_packet(rng),
    };
    let kind = match (rng.random_range(0..4), packet.first().map(|first| first >> 4)) {
        (0, _) => LINK_PROTOCOLS[rng.random_range(0..LINK_PROTOCOLS.len())],
        (1, _) => OTHER_TYPES[rng.random_range(0..OTHER_TYPES.len())],
        (_, Some(6)) => 0x86dd,
        _ => 0x0800,
    };
    let mut frame = vec![2; 12];
    for _ in 0..tags {
        frame.extend(TAGS[rng.random_range(0..TAGS.len())].to_be_bytes());
        frame.extend(rng.random::<[u8; 2]>());
    }
    frame.extend(kind.to_be_bytes());
    let content = frame.len();
    frame.extend(packet);
    if rng.random_range(0..5) == 0 {
        frame.truncate(rng.random_range(0..=content));
    }
    frame.truncate(Header::SNAP_LEN);
    let is_whole = frame.len() >= content && tags <= 2;
    (frame, is_whole && LINK_PROTOCOLS.contains(&kind))
}

#[test]
fn frames_are_read_behind_their_tags_as_by_the_core() {
    let mut rng = Pcg32::seed_from_u64(16);
    let (mut lines, mut expected) = (String::new(), Vec::new());
    for written in RULES {
        let classifier: Classifier = written.parse().unwrap();
        writeln!(lines, "rules {}", rows(&classifier)).unwrap();
        for _ in 0..4000 {
            let (frame, is_link_protocol) = any_frame(&mut rng);
            writeln!(lines, "frame {}", frame.len()).unwrap();
            frame.iter().for_each(|byte| writeln!(lines, "{byte}").unwrap());
            let told = told(Header::of_ethernet(&frame), &classifier);
            expected.push((frame, is_link_protocol, told));
        }
    }
    let rows = on_host("ifc_on_host", &lines);
    assert_eq!(rows.len(), expected.len());
    for (row, (frame, is_link_protocol, told)) in rows.iter().zip(&expected) {
        assert_eq!(row[0], u64::from(*is_link_protocol), "{frame:x?}");
        let row = (row[1] == 1).then(|| row[1..].to_vec());
        assert_eq!(row, *told, "{frame:x?}");
    }
    // Tags and their contents: an update, neighbour discovery or MLD, an EtherType of the link.
    let is_tagged = |frame: &[u8], tags: usize| {
        let mut kinds = frame.get(12..).unwrap_or_default().chunks(4);
        let is_tag =
            |tag: &[u8]| tag.len() > 1 && TAGS.contains(&u16::from_be_bytes([tag[0], tag[1]]));
        (0..tags).all(|_| kinds.next().is_some_and(is_tag)) && !kinds.next().is_some_and(is_tag)
    };
    for tags in [1, 2] {
        let of_tags = || expected.iter().filter(|(frame, ..)| is_tagged(frame, tags));
        let with = |at: usize| {
            of_tags().filter(move |(.., told)| matches!(told, Some(row) if row[at] == 1))
        };
        let counts = [with(3).count(), with(4).count(), of_tags().filter(|row| row.1).count()];
        assert!(counts.iter().all(|count| *count > 20), "{tags} tags: {counts:?}");
    }
}
