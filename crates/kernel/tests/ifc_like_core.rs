//! The kernel's freshness control beside the core's: both are told the same, and must choose the same
//! class, end transmissions at the same ns, and read the same in the same packets.

mod common;

use std::fmt::Write as _;

use common::on_host;
use etherparse::{
    IpFragOffset, IpHeaders, IpNumber, Ipv4Header, Ipv6Header, PacketBuilder, ip_number,
};
use freshline_core::link::{Hop, LinkParams};
use freshline_core::router::{
    AoiShare, Class, Classifier, Credit, Fifo, Header, Limit, Packet, Scheduler, SchedulerParams,
    SdmParams, TdmParams,
};
use freshline_core::unit::{BitRate, Bytes, Packets, Span, Time};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg32;

/// As many of the magnitudes up to 10^`digits`.
fn any_magnitude(rng: &mut Pcg32, digits: f64) -> u64 {
    10_f64.powf(digits * rng.random::<f64>()) as u64
}

fn any_share(rng: &mut Pcg32) -> (AoiShare, u64) {
    let parts = match rng.random_range(0..4) {
        0 => 0,
        1 => 1_000_000,
        _ => rng.random_range(0..=1_000_000_u32),
    };
    (AoiShare::new(f64::from(parts) / 1e6).unwrap(), parts.into())
}

fn any_scheduler(rng: &mut Pcg32) -> (SchedulerParams, [u64; 3]) {
    match rng.random_range(0..3) {
        0 => {
            let credit = any_magnitude(rng, 6.0);
            let params = SdmParams { credit: Credit::Limited(Bytes::new(credit)) };
            (SchedulerParams::Sdm(params), [0, credit, 0])
        }
        1 => {
            let params = SdmParams { credit: Credit::Unlimited };
            (SchedulerParams::Sdm(params), [0, u64::MAX, 0])
        }
        _ => {
            let frame = Span::from_micros(1000 + any_magnitude(rng, 6.0));
            (SchedulerParams::Tdm(TdmParams { frame }), [1, 0, frame.as_nanos()])
        }
    }
}

#[test]
fn schedulers_choose_the_class_that_the_cores_choose() {
    let mut rng = Pcg32::seed_from_u64(9);
    let (mut lines, mut expected) = (String::new(), Vec::new());
    for _ in 0..200 {
        let ((mut share, mut parts), (params, [which, credit, frame])) =
            (any_share(&mut rng), any_scheduler(&mut rng));
        writeln!(lines, "scheduler {which} {parts} {credit} {frame}").unwrap();
        let mut scheduler = params.build(share);
        let mut now = Time::ZERO;
        for _ in 0..100 {
            now += Span::from_nanos(any_magnitude(&mut rng, 8.5));
            if rng.random_range(0..50) == 0 {
                let before = parts;
                (share, parts) = any_share(&mut rng);
                writeln!(lines, "share {parts}").unwrap();
                // The kernel learns of a share only if it is another one.
                if parts != before {
                    scheduler.set_aoi_share(share);
                }
            }
            let preferred = scheduler.prefer(now);
            writeln!(lines, "prefer {}", now.as_nanos()).unwrap();
            expected.push(vec![preferred as u64]);
            // The other one has nothing to send.
            let class = if rng.random_range(0..4) == 0 { preferred.other() } else { preferred };
            let bytes = rng.random_range(40..66_000);
            scheduler.on_sent(class, Bytes::new(bytes));
            writeln!(lines, "sent {} {bytes}", class as u64).unwrap();
        }
    }
    let aoi = expected.iter().filter(|row| row[0] == Class::Aoi as u64).count();
    assert!(aoi > expected.len() / 5 && aoi < expected.len() * 4 / 5, "{aoi}");
    assert_eq!(on_host("ifc_on_host", &lines), expected);
}

#[derive(Debug, Clone, Copy)]
struct Sized(u64);

impl Packet for Sized {
    fn size(&self) -> Bytes {
        Bytes::new(self.0)
    }
}

#[test]
fn transmissions_end_when_the_cores_end() {
    let mut rng = Pcg32::seed_from_u64(10);
    let (mut lines, mut ends) = (String::new(), Vec::new());
    for _ in 0..100 {
        let rate = 1000 + any_magnitude(&mut rng, 10.5);
        let link = LinkParams { rate: Some(BitRate::from_bps(rate)), ..LinkParams::default() };
        let fifo = Fifo::new(Limit::Packets(Packets::new(1000)));
        let mut hop = Hop::new(link, fifo, Pcg32::seed_from_u64(0));
        writeln!(lines, "shaper").unwrap();
        let mut now = Time::ZERO;
        for _ in 0..50 {
            // Each time some packets come at once; at times after a rest.
            now += Span::from_nanos(any_magnitude(&mut rng, 7.0));
            let mut sent = Vec::new();
            while let Some(delivered) = hop.poll(now, &mut |drop| panic!("{drop:?}")) {
                sent.push(vec![delivered.at.as_nanos()]);
            }
            ends.extend(sent);
            for _ in 0..rng.random_range(1..4) {
                let bytes = rng.random_range(1..70_000);
                if hop.backlog().packets == Packets::ZERO {
                    writeln!(lines, "arrive {}", now.as_nanos()).unwrap();
                }
                hop.enqueue(now, Sized(bytes), &mut |drop| panic!("{drop:?}"));
                writeln!(lines, "send {bytes} {rate}").unwrap();
            }
        }
        while let Some(next) = hop.next_event() {
            let delivered = hop.poll(next, &mut |drop| panic!("{drop:?}")).unwrap();
            ends.push(vec![delivered.at.as_nanos()]);
        }
    }
    assert_eq!(on_host("ifc_on_host", &lines), ends);
}

#[test]
fn times_in_the_queue_have_narrow_buckets_in_order() {
    let mut times: Vec<u64> = (0..42).flat_map(|bit| [(1 << bit) - 1, 1 << bit]).collect();
    let mut rng = Pcg32::seed_from_u64(11);
    times.extend((0..1000).map(|_| any_magnitude(&mut rng, 12.0)));
    times.sort_unstable();
    let lines: String = times.iter().map(|ns| format!("sojourn {ns}\n")).collect();
    let told = on_host("ifc_on_host", &lines);
    // Of a class, and of a flow: how many there are, how narrow they are, and within which times.
    for (which, most, cuts, within) in [(0, 592, 16, 0..1 << 40), (1, 81, 4, 1 << 14..1 << 34)] {
        let buckets: Vec<u64> = told.iter().map(|told| told[which]).collect();
        assert!(buckets.is_sorted() && buckets.last() == Some(&(most - 1)));
        for (pair, time) in buckets.windows(2).zip(times.windows(2)) {
            let is_narrow = time[1] - time[0] <= time[0] / cuts;
            let counts = time.iter().all(|time| within.contains(time));
            assert!(!counts || pair[0] != pair[1] || is_narrow, "{time:?} {pair:?}");
        }
    }
}

/// Rules as people write them, and as the kernel has them (`struct rule`).
const RULES: &[(&str, &str)] = &[
    ("udp", "1 1 0 17 0"),
    ("port:53,5000-5010=drop_averse udp", "3 3 1 53 53 3 1 5000 5010 1 0 17 0"),
    ("update dscp:46,0=drop_averse any", "3 4 0 0 0 2 1 70368744177665 0 0 0 0 0"),
];

/// Bytes that are, or might be, the front of an IP packet.
fn any_packet(rng: &mut Pcg32) -> Vec<u8> {
    let mut payload = vec![0; rng.random_range(0..100)];
    rng.fill_bytes(&mut payload);
    if rng.random::<bool>() && payload.len() >= 4 {
        payload[..4].copy_from_slice(&[b'F', b'L', 1, rng.random_range(1..3)]);
    }
    let ports = [53, 5005, rng.random()].map(|port| (port, rng.random::<u16>()));
    let (from, to) = ports[rng.random_range(0..3)];
    let mut packet = Vec::new();
    let dscp = rng.random_range(0..64_u8);
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
        destination: rng.random(),
        hop_limit: 64,
        ..Ipv6Header::default()
    };
    let is_four = rng.random::<bool>();
    let others = [1, 33, 47, 50, 132, 136, 255].map(IpNumber);
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

/// What the kernel has to say of a packet.
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
    for (written, row) in RULES {
        let classifier: Classifier = written.parse().unwrap();
        writeln!(lines, "rules {row}").unwrap();
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
}
