//! The kernel's freshness control compared with the core's: both get the same inputs, and must
//! choose the same class, and end transmissions at the same ns.

mod common;

use std::fmt::Write as _;

use common::on_host;
use freshline_core::link::{Cells, Framing, Hop, LinkParams};
use freshline_core::router::{
    AoiShare, Class, Codel, CodelParams, Credit, Fifo, Limit, Packet, Qdisc, RecentRate, Scheduler,
    SchedulerParams, SdmParams, TdmParams,
};
use freshline_core::unit::{BitRate, Bytes, Packets, Span, Time};
use rand::{RngExt, SeedableRng};
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
        while let Some(next) = hop.poll_timeout() {
            let delivered = hop.poll(next, &mut |drop| panic!("{drop:?}")).unwrap();
            ends.push(vec![delivered.at.as_nanos()]);
        }
    }
    assert_eq!(on_host("ifc_on_host", &lines), ends);
}

#[test]
fn packets_take_the_bytes_on_the_link_that_the_cores_take() {
    let mut rng = Pcg32::seed_from_u64(13);
    let (mut lines, mut expected) = (String::new(), Vec::new());
    for (number, cells) in [Cells::None, Cells::Atm, Cells::Ptm].into_iter().enumerate() {
        for _ in 0..100 {
            let [overhead, mpu] = [0; 2].map(|_: u8| rng.random_range(0..=256_u64));
            let framing = Framing { overhead: Bytes::new(overhead), mpu: Bytes::new(mpu), cells };
            let bytes = any_magnitude(&mut rng, 5.0);
            writeln!(lines, "framing {overhead} {mpu} {number}\non_link {bytes}").unwrap();
            expected.push(vec![framing.on_wire(Bytes::new(bytes)).get()]);
        }
    }
    assert_eq!(on_host("ifc_on_host", &lines), expected);
}

#[test]
fn segments_that_a_virtual_machine_does_not_count_are_counted() {
    let mut rng = Pcg32::seed_from_u64(14);
    let (mut lines, mut expected) = (String::new(), Vec::new());
    let mut ask_behind =
        |before: u64, [gso_segs, gso_size, length, on_wire]: [u64; 4], segments| {
            writeln!(lines, "segments {gso_segs} {gso_size} {length} {on_wire} {before}").unwrap();
            expected.push(vec![segments]);
        };
    // Devices without link headers, of TCP and UDP over IPv4.
    ask_behind(0, [0, 1000, 2030, 2070], 2);
    for (headers, most) in [(28, 60), (40, 4)] {
        for _ in 0..500 {
            let size = rng.random_range(536..=1448_u64);
            let payload = rng.random_range(1..=most * size);
            let segments = payload.div_ceil(size);
            let length = headers + payload;
            ask_behind(0, [0, size, length, length + (segments - 1) * headers], segments);
        }
    }
    let mut ask = |gso_segs: u64, gso_size: u64, length: u64, on_wire: u64, segments: u64| {
        ask_behind(14, [gso_segs, gso_size, length, on_wire], segments);
    };
    // A super-packet that the kernel has counted itself, and a packet that is not a super-packet.
    ask(45, 1448, 65_226, 68_130, 45);
    ask(0, 0, 1500, 1500, 1);
    // As `qdisc_pkt_len_init` has it: every payload up to 64 kB, in segments of any size.
    for _ in 0..2000 {
        let headers = 14 + 4 * rng.random_range(7..=25_u64);
        let size = rng.random_range(536..=1448_u64);
        let payload = rng.random_range(1..=65_000_u64);
        let segments = payload.div_ceil(size);
        let length = headers + payload;
        ask(0, size, length, length + (segments - 1) * headers, segments);
    }
    assert_eq!(on_host("ifc_on_host", &lines), expected);
}

#[test]
fn only_packets_that_keep_the_link_working_go_first_and_never_twice_in_a_row() {
    let (mut lines, mut expected) = (String::new(), Vec::new());
    let link = [0x0004, 0x0806, 0x8809, 0x8863, 0x888e, 0x88cc];
    // IP, VLANs and QinQ, PPPoE sessions, MPLS, MACsec, and a type without a number.
    let others = [0x0800, 0x86dd, 0x8100, 0x88a8, 0x8864, 0x8847, 0x88e5, 0];
    for (types, goes_first) in [(&link[..], 1), (&others[..], 0)] {
        for ether_type in types {
            writeln!(lines, "ether_type {ether_type}").unwrap();
            expected.push(vec![goes_first]);
        }
    }
    for ([waiting, others, was_last], goes_first) in
        [([0, 1, 0], 0), ([1, 0, 1], 1), ([64, 1, 0], 1), ([64, 1, 1], 0), ([0, 0, 0], 0)]
    {
        writeln!(lines, "beside {waiting} {others} {was_last}").unwrap();
        expected.push(vec![goes_first]);
    }
    assert_eq!(on_host("ifc_on_host", &lines), expected);
}

/// A link of `rate` that a random load fills at times, behind CoDel: each packet that leaves, or is
/// dropped, is asked of the kernel's law, too.
#[test]
fn codel_drops_the_packets_that_the_cores_drops() {
    let mut rng = Pcg32::seed_from_u64(15);
    let (mut lines, mut expected) = (String::new(), Vec::new());
    for _ in 0..20 {
        let target = Span::from_micros(500 + any_magnitude(&mut rng, 4.0));
        let interval = target + Span::from_micros(any_magnitude(&mut rng, 5.3));
        let params = CodelParams { target, interval, ..CodelParams::default() };
        let mut codel = Codel::new(params).unwrap();
        writeln!(lines, "codel {} {} 1514", target.as_nanos(), interval.as_nanos()).unwrap();
        let (mut now, mut came) = (Time::ZERO, std::collections::VecDeque::new());
        for _ in 0..1500 {
            now += Span::from_nanos(rng.random_range(100_000..2_000_000));
            for _ in 0..rng.random_range(0..4) {
                let bytes = rng.random_range(40..1500);
                codel.enqueue(now, Sized(bytes), &mut |drop| panic!("{drop:?}"));
                came.push_back((now, bytes));
            }
            let mut dropped = 0;
            let left = codel.dequeue(now, &mut |_| dropped += 1).is_some();
            for fate in (0..dropped).map(|_| 1).chain(left.then_some(0)) {
                let (since, _) = came.pop_front().unwrap();
                let behind: u64 = came.iter().map(|(_, bytes)| bytes).sum();
                let (at, sojourn) = (now.as_nanos(), now.since(since).as_nanos());
                writeln!(lines, "leave {at} {sojourn} {behind}").unwrap();
                expected.push(vec![fate]);
            }
        }
    }
    let drops = expected.iter().filter(|row| row[0] == 1).count();
    assert!(drops > 500, "{drops}");
    assert_eq!(on_host("ifc_on_host", &lines), expected);
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

#[test]
fn recent_rates_are_counted_as_by_the_core() {
    let mut rng = Pcg32::seed_from_u64(17);
    let (mut lines, mut expected) = (String::new(), Vec::new());
    for _ in 0..50 {
        let (mut recent, mut now) = (RecentRate::default(), Time::ZERO);
        writeln!(lines, "recent").unwrap();
        for _ in 0..100 {
            now += Span::from_nanos(any_magnitude(&mut rng, 10.0));
            let bytes = rng.random_range(40..66_000);
            writeln!(lines, "left {} {bytes}", now.as_nanos()).unwrap();
            recent.count(now, Bytes::new(bytes));
            let (began, now, before) = recent.counts();
            expected.push(vec![began.as_nanos(), now.get(), before.get()]);
        }
    }
    assert_eq!(on_host("ifc_on_host", &lines), expected);
}
