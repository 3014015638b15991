//! Captures with known times yield the ages that follow from them.

mod endpoints;
mod kernel;
mod sessions;
mod world;

use freshline_core::unit::Bytes;
use freshline_lab::capture::{
    CaptureError, FlowReport, Limits, LinkType, PcapWriter, Report, measure,
};
use proptest::prelude::*;
use world::{CLIENT, Captured, SERVER, Tcp, cut, framed, pcap, pcapng, report};

/// A segment of 1000 bytes every 10 ms, from `seq` on, each acknowledged after 30 ms.
fn steady(seq: u32, count: u32) -> Vec<Captured> {
    let mut packets = Vec::new();
    for number in 0..count {
        let (seq, sent_at) = (seq.wrapping_add(1000 * number), 10_000 * u64::from(number));
        packets.push(Tcp::data(seq, 1000).at(sent_at));
        packets.push(Tcp::ack(seq.wrapping_add(1000)).at(sent_at + 30_000));
    }
    packets.sort_by_key(|packet| packet.at);
    packets
}

/// The one flow of a report.
fn only_flow(report: &Report) -> &FlowReport {
    assert_eq!(report.flows.len(), 1, "{report:?}");
    &report.flows[0]
}

fn assert_steady(report: &Report) {
    let flow = only_flow(report);
    let (rtt, age) = (flow.rtt.unwrap(), flow.age.unwrap());
    assert_eq!((rtt.samples, rtt.mean_ms, rtt.min_ms, rtt.max_ms), (100, 30.0, 30.0, 30.0));
    // Between two deliveries the age grows from 30 to 40 ms.
    assert_eq!((age.fresh, age.mean_ms, age.max_ms, age.peak_mean_ms), (100, 35.0, 40.0, 40.0));
    assert_eq!((age.inter_delivery_mean_ms, age.duration_s), (10.0, 0.99));
    assert!((age.p95_ms / 39.5 - 1.0).abs() < 0.01, "{age:?}");
    assert_eq!((flow.segments, flow.bytes, flow.acked_bytes), (100, 100_000, 100_000));
    // 100 kB in 0.99 s and the last 30 ms.
    assert_eq!((flow.duration_s, flow.goodput_bps), (1.02, Some(784_313)));
    assert_eq!((flow.retransmissions, flow.untracked, flow.unseen_acks), (0, 0, 0));
}

#[test]
fn regular_segments_age_by_their_round_trip_and_half_their_period() {
    let report = report(&pcap(LinkType::Raw, &steady(7, 100)));
    assert_steady(&report);
    assert_eq!((report.packets.read, report.packets.tcp), (200, 200));
    assert_eq!(only_flow(&report).from, CLIENT.parse().unwrap());
    assert_eq!(only_flow(&report).to, SERVER.parse().unwrap());
}

#[test]
fn links_and_formats_make_no_difference() {
    let ethernet = [[0; 12].as_slice(), &[8, 0]].concat();
    let tagged = [[0; 12].as_slice(), &[0x88, 0xA8, 0, 1, 0x81, 0, 0, 2, 8, 0]].concat();
    let cooked = [[0; 14].as_slice(), &[8, 0]].concat();
    let cooked_2 = [[8, 0].as_slice(), &[0; 18]].concat();
    let links = [
        (LinkType::Raw, vec![]),
        (LinkType::Ethernet, ethernet),
        (LinkType::Ethernet, tagged),
        (LinkType::LinuxSll, cooked),
        (LinkType::LinuxSll2, cooked_2),
        (LinkType::Loopback, vec![2, 0, 0, 0]),
    ];
    for (link, header) in links {
        let packets = framed(&steady(7, 100), &header);
        assert_steady(&report(&pcap(link, &packets)));
        assert_steady(&report(&pcapng(link, &packets)));
        // Up to the ports, the numbers and the flags.
        assert_steady(&report(&pcap(link, &cut(&packets, header.len() + 34))));
    }
}

#[test]
fn sequence_numbers_wrap() {
    assert_steady(&report(&pcap(LinkType::Raw, &steady(u32::MAX - 20_500, 100))));
}

#[test]
fn ip_version_6_is_read_as_well() {
    let (client, server) = ("[2001:db8::1]:5000", "[2001:db8::2]:80");
    let data = Tcp { from: client, to: server, ..Tcp::data(1, 500) };
    let ack = Tcp { from: server, to: client, ..Tcp::ack(501) };
    let report = report(&pcap(LinkType::Raw, &[data.at(0), ack.at(20_000)]));
    let flow = only_flow(&report);
    assert_eq!((flow.bytes, flow.rtt.unwrap().mean_ms), (500, 20.0));
    assert_eq!(flow.age, None, "one delivery draws no sawtooth");
}

#[test]
fn an_ack_of_several_segments_delivers_the_newest() {
    let mut packets = steady(0, 100);
    // Every second ack stays away.
    let mut number = 0;
    packets.retain(|packet| {
        let is_ack = packet.bytes.len() == 40;
        number += u32::from(is_ack);
        !is_ack || number.is_multiple_of(2)
    });
    let report = report(&pcap(LinkType::Raw, &packets));
    let flow = only_flow(&report);
    let (rtt, age) = (flow.rtt.unwrap(), flow.age.unwrap());
    assert_eq!((rtt.samples, rtt.mean_ms), (50, 30.0));
    assert_eq!((age.mean_ms, age.max_ms, age.inter_delivery_mean_ms), (40.0, 50.0, 20.0));
    assert_eq!(flow.acked_bytes, 100_000);
}

#[test]
fn what_was_sent_twice_tells_no_time_and_what_waits_behind_it_ages() {
    let sack = |ack, from, to| Tcp { sacked: Some((from, to)), ..Tcp::ack(ack) };
    let packets = [
        Tcp::data(0, 100).at(0),
        Tcp::ack(100).at(20_000),
        // The second is lost, the third and fourth arrive.
        Tcp::data(100, 100).at(30_000),
        Tcp::data(200, 100).at(40_000),
        Tcp::data(300, 100).at(50_000),
        sack(100, 200, 300).at(60_000),
        sack(100, 200, 400).at(70_000),
        Tcp::data(100, 100).at(80_000),
        Tcp::ack(400).at(100_000),
        // A single retransmission.
        Tcp::data(400, 100).at(110_000),
        Tcp::data(400, 100).at(310_000),
        Tcp::ack(500).at(330_000),
        Tcp::data(500, 100).at(340_000),
        Tcp::ack(600).at(360_000),
    ];
    let report = report(&pcap(LinkType::Raw, &packets));
    let flow = only_flow(&report);
    let (rtt, age) = (flow.rtt.unwrap(), flow.age.unwrap());
    // The selective acks, and no cumulative one after them.
    assert_eq!((rtt.samples, rtt.min_ms, rtt.max_ms), (4, 20.0, 20.0));
    // Fresh: at 20 ms from 0, at 100 ms from 50, at 360 ms from 340.
    assert_eq!((age.fresh, age.max_ms), (3, 310.0));
    let area = (20.0 + 100.0) / 2.0 * 80.0 + (50.0 + 310.0) / 2.0 * 260.0;
    assert!((age.mean_ms - area / 340.0).abs() < 1e-6, "{age:?}");
    assert_eq!((flow.retransmissions, flow.segments, flow.acked_bytes), (2, 8, 600));
}

#[test]
fn a_super_segment_is_delivered_with_its_last_byte() {
    let packets = [
        Tcp::data(0, 100_000).at(0),
        Tcp::ack(50_000).at(20_000),
        Tcp::ack(100_000).at(25_000),
        Tcp::data(100_000, 1000).at(30_000),
        Tcp::ack(101_000).at(50_000),
    ];
    let report = report(&pcap(LinkType::Raw, &packets));
    let flow = only_flow(&report);
    let (rtt, age) = (flow.rtt.unwrap(), flow.age.unwrap());
    assert_eq!((flow.bytes, age.fresh, age.mean_ms), (101_000, 2, (25.0 + 50.0) / 2.0));
    // All of it left at once: the ack of its first half is a sample as well.
    assert_eq!((rtt.samples, rtt.min_ms, rtt.max_ms), (3, 20.0, 25.0));
}

#[test]
fn a_capture_that_begins_within_a_flow_guesses_nothing() {
    let packets = [
        Tcp::ack(900).at(0),
        Tcp::data(1000, 100).at(1_000),
        Tcp::ack(1000).at(2_000),
        Tcp::ack(5000).at(3_000),
        Tcp::ack(1100).at(21_000),
    ];
    let report = report(&pcap(LinkType::Raw, &packets));
    let flow = only_flow(&report);
    let rtt = flow.rtt.unwrap();
    assert_eq!((flow.unseen_acks, rtt.samples, rtt.mean_ms, flow.acked_bytes), (1, 1, 20.0, 100));
}

#[test]
fn the_end_of_a_flow_is_acknowledged_too() {
    let packets = [Tcp::data(0, 100).at(0), Tcp::ack(101).at(20_000)];
    let report = report(&pcap(LinkType::Raw, &packets));
    let flow = only_flow(&report);
    assert_eq!((flow.unseen_acks, flow.acked_bytes, flow.rtt.unwrap().samples), (0, 100, 1));
}

#[test]
fn ports_that_are_used_again_begin_another_flow() {
    let again = Tcp { syn: true, ..Tcp::data(90_000, 0) };
    let packets = [
        Tcp::data(0, 100).at(0),
        Tcp::ack(100).at(20_000),
        again.at(30_000),
        Tcp::data(90_001, 100).at(40_000),
        Tcp::ack(90_101).at(70_000),
    ];
    let report = report(&pcap(LinkType::Raw, &packets));
    let rtts: Vec<_> = report.flows.iter().map(|flow| flow.rtt.unwrap().mean_ms).collect();
    assert_eq!(rtts, [20.0, 30.0]);
    assert_eq!(report.flows[1].start_s, 0.04);
}

#[test]
fn ports_that_are_used_again_are_seen_without_the_opening_too() {
    let answer = |ack| Tcp { syn: true, ack, ..Tcp::ack(0) };
    let first = [Tcp::data(0, 100).at(0), Tcp::ack(100).at(20_000)];
    // Far away: no window reaches so far.
    let far = [Tcp::data(2_000_000_001, 100).at(40_000), Tcp::ack(2_000_000_101).at(70_000)];
    // Near, but the server's answer to the opening shows it.
    let mut answered = answer(90_001).at(35_000);
    answered.bytes[20 + 13] |= 0x10;
    let near = [answered, Tcp::data(90_001, 100).at(40_000), Tcp::ack(90_101).at(70_000)];
    // Two segments in a row are believed without an ack.
    let two = [
        Tcp::data(2_000_000_001, 100).at(40_000),
        Tcp::data(2_000_000_101, 100).at(50_000),
        Tcp::ack(2_000_000_201).at(80_000),
    ];
    for second in [&far[..], &near[..], &two[..]] {
        let report = report(&pcap(LinkType::Raw, &[&first[..], second].concat()));
        let rtts: Vec<_> = report.flows.iter().map(|flow| flow.rtt.unwrap().mean_ms).collect();
        assert_eq!(rtts, [20.0, 30.0], "{report:?}");
    }
}

#[test]
fn a_damaged_sequence_number_does_not_split_a_flow() {
    let mut packets = steady(1_000, 100);
    // A copy of a segment, one bit of whose number was flipped.
    packets.push(Tcp::data(51_000 ^ (1 << 31), 1000).at(501_000));
    packets.sort_by_key(|packet| packet.at);
    let report = report(&pcap(LinkType::Raw, &packets));
    assert_steady(&report);
    assert_eq!(only_flow(&report).strays, 1);
}

#[test]
fn both_directions_of_a_flow_are_told_apart() {
    let reply = Tcp { len: 200, ..Tcp::ack(100) };
    let packets = [
        Tcp::data(0, 100).at(0),
        reply.at(20_000),
        Tcp { ack: 201, ..Tcp::data(100, 0) }.at(21_000),
    ];
    let report = report(&pcap(LinkType::Raw, &packets));
    let rtts: Vec<_> = report.flows.iter().map(|flow| flow.rtt.unwrap().mean_ms).collect();
    assert_eq!(rtts, [20.0, 1.0]);
}

#[test]
fn what_is_beyond_the_bounds_is_counted() {
    let other = Tcp { from: "192.0.2.9:1", ..Tcp::data(0, 100) };
    let mut packets = steady(0, 10);
    packets.push(other.at(200_000));
    let limits = Limits { max_flows: 1, max_outstanding: 2 };
    let measured = measure(&pcap(LinkType::Raw, &packets)[..], limits);
    let report = measured.report;
    let flow = only_flow(&report);
    assert_eq!(report.packets.over_limit, 1);
    assert!(flow.untracked > 0, "{flow:?}");
    assert_eq!(flow.rtt.unwrap().mean_ms, 30.0, "the tracked packets are measured exactly");
    assert_eq!(flow.acked_bytes, 10_000);
}

#[test]
fn a_cut_file_tells_what_stands_before_the_cut() {
    let whole = pcap(LinkType::Raw, &steady(7, 100));
    let more = [&whole[..], &whole[24..70]].concat();
    let measured = measure(&more[..], Limits::default());
    assert_steady(&measured.report);
    let at = whole.len() as u64 + 46;
    let Some(CaptureError::Truncated { packet, at: place }) = measured.error else {
        panic!("{:?}", measured.error)
    };
    assert_eq!((packet, place), (201, at));
}

#[test]
fn a_file_of_frames_that_cannot_be_read_is_an_error_and_other_frames_are_counts() {
    let measured = measure(&pcap(LinkType::Other(127), &steady(7, 1))[..], Limits::default());
    assert!(matches!(measured.error, Some(CaptureError::LinkType(127))));

    let mut fragment = Tcp::data(0, 100).at(0);
    fragment.bytes[6] = 0x20;
    let cut = cut(&[Tcp::data(0, 100).at(0)], 30).remove(0);
    let mut icmp = Tcp::data(0, 100).at(0);
    icmp.bytes[9] = 1;
    let report = report(&pcap(LinkType::Raw, &[fragment, cut, icmp]));
    let packets = report.packets;
    assert_eq!((packets.read, packets.fragments, packets.truncated, packets.other), (3, 1, 1, 1));
    assert!(report.flows.is_empty());
}

proptest! {
    #[test]
    fn any_frames_give_a_report(
        frames in prop::collection::vec((any::<u64>(), prop::collection::vec(any::<u8>(), 0..90)), 0..20),
        link in prop::sample::select(vec![0, 1, 101, 113, 276]),
        ip in any::<bool>(),
    ) {
        let link = LinkType::from_number(link);
        let mut writer = PcapWriter::new(Vec::new(), link).unwrap();
        for (number, mut frame) in frames {
            if ip && frame.len() > 40 {
                // Nearly TCP over IPv4.
                (frame[0], frame[6], frame[7], frame[9]) = (0x45, 0, 0, 6);
            }
            let at = world::at(number % 1_000_000);
            writer.write(at, &frame, Bytes::new(number % 70_000)).unwrap();
        }
        let measured = measure(&writer.into_inner().unwrap()[..], Limits::default());
        prop_assert!(measured.error.is_none());
        let packets = measured.report.packets;
        let sum = packets.tcp + packets.session + packets.other + packets.fragments + packets.truncated;
        prop_assert_eq!(sum, packets.read);
    }

    #[test]
    fn any_segments_in_any_order_give_a_report(
        segments in prop::collection::vec(any::<(u16, u16, u16, bool, u16, u32)>(), 0..60),
        start: u32,
    ) {
        let packets: Vec<_> = segments.iter().map(|(number, acked, sacked, data, len, at)| {
            let place = |offset: u16| start.wrapping_add(offset.into());
            let sacked = Some((place(*sacked), place(*sacked)));
            let segment = if *data {
                Tcp::data(place(*number), usize::from(len % 2000))
            } else {
                Tcp { sacked, ..Tcp::ack(place(*acked)) }
            };
            segment.at(u64::from(at % 1_000_000))
        }).collect();
        for flow in report(&pcap(LinkType::Raw, &packets)).flows {
            prop_assert!(flow.acked_bytes <= 1 << 17, "{:?}", flow);
            if let Some(age) = flow.age {
                prop_assert!(age.mean_ms <= age.max_ms && age.p50_ms <= age.max_ms, "{:?}", age);
            }
        }
    }
}
