//! The complete discipline of the kernel compared with the core's freshness control in front of a
//! link: the same packets leave at the same times in the same order, and the same packets are
//! dropped.

mod common;

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use common::on_host;
use freshline_core::link::{Hop, LinkParams};
use freshline_core::router::{
    AoiShare, CodelParams, Credit, Discipline, FlowKey, FqCodelParams, Header, IfcConfig,
    IfilParams, Isolation, Limit, Packet, QdiscConfig, SchedulerParams, SdmParams, TdmParams,
};
use freshline_core::unit::{BitRate, Bytes, Packets, Span, Time};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;

/// The maximum pause of the device that the shaper makes up for.
const MAX_ARREARS: Span = Span::from_millis(5);

#[derive(Debug, Clone, Copy)]
struct Sent {
    number: u64,
    bytes: u64,
    flow: FlowKey,
}

impl Packet for Sent {
    fn size(&self) -> Bytes {
        Bytes::new(self.bytes)
    }

    fn header(&self) -> Header {
        Header { flow: self.flow, ..Header::default() }
    }
}

/// A link with freshness control.
struct Device {
    hop: Hop<Discipline<Sent>, Sent, Pcg32>,
    packets: u64,
}

impl Device {
    fn any(rng: &mut Pcg32, lines: &mut String) -> Self {
        let rate = rng.random_range(500_000..50_000_000);
        let share = rng.random_range(0..=1_000_000_u32);
        let frame = Span::from_micros(rng.random_range(1000..50_000));
        let credit = rng.random_range(0..100_000);
        let (scheduler, which, credit) = match rng.random_range(0..3) {
            0 => (SchedulerParams::Tdm(TdmParams { frame }), 1, 0),
            1 => (SchedulerParams::Sdm(SdmParams { credit: Credit::Unlimited }), 0, u64::MAX),
            _ => {
                let limited = Credit::Limited(Bytes::new(credit));
                (SchedulerParams::Sdm(SdmParams { credit: limited }), 0, credit)
            }
        };
        let isolate = [Isolation::Flow, Isolation::Host][rng.random_range(0..2)];
        let most = rng.random_range(1..=64);
        let limit = Packets::new(rng.random_range(1..=128));
        let (target, interval) = (Span::from_millis(5), Span::from_millis(100));
        let drop_averse = match rng.random_range(0..3) {
            0 => QdiscConfig::Fifo { limit: Limit::Packets(limit) },
            1 => QdiscConfig::Codel(CodelParams {
                limit: Limit::Packets(limit),
                ..CodelParams::default()
            }),
            _ => {
                QdiscConfig::FqCodel(FqCodelParams { limit, queues: 1, ..FqCodelParams::default() })
            }
        };
        let is_fair = matches!(drop_averse, QdiscConfig::FqCodel(_));
        let is_codel = !matches!(drop_averse, QdiscConfig::Fifo { .. });
        write!(lines, "device {rate} {which} {share} {credit} {} {most} ", frame.as_nanos())
            .unwrap();
        write!(lines, "{} {} ", u8::from(isolate == Isolation::Host), limit.get()).unwrap();
        let (bytes, quantum): (u64, u64) =
            if is_fair { (32 << 20, 1514) } else { (u64::MAX, 1 << 32) };
        write!(lines, "{bytes} {quantum} {} ", u8::from(is_fair)).unwrap();
        let target = if is_codel { target.as_nanos() } else { 0 };
        writeln!(lines, "{target} {}", interval.as_nanos()).unwrap();
        let config = QdiscConfig::Ifc(Box::new(IfcConfig {
            scheduler,
            aoi_share: AoiShare::new(f64::from(share) / 1e6).unwrap(),
            classifier: "udp force".parse().unwrap(),
            aoi: QdiscConfig::Ifil(IfilParams {
                limit: Packets::new(most),
                isolate: Some(isolate),
                hold: None,
            }),
            drop_averse,
        }));
        let link = LinkParams { rate: Some(BitRate::from_bps(rate)), ..LinkParams::default() };
        let queue = config.build(rng).unwrap();
        Self { hop: Hop::new(link, queue, Pcg32::seed_from_u64(0)), packets: 0 }
    }

    /// The device asks for packets. Returns the number of packets that leave, these packets, and the dropped
    /// ones.
    fn ask(&mut self, now: Time, lines: &mut String) -> Vec<u64> {
        writeln!(lines, "ask {}", now.as_nanos()).unwrap();
        let (mut left, mut dropped) = (vec![0], Vec::new());
        self.hop.forgo_until(now - MAX_ARREARS);
        while let Some(next) = self.hop.poll(now, &mut |drop| dropped.push(drop.packet.number)) {
            left.push(next.packet.number);
        }
        left[0] = left.len() as u64 - 1;
        left.extend(dropped);
        left
    }

    /// The rate changes, to one that may be very low.
    fn set_rate(&mut self, now: Time, rng: &mut Pcg32, lines: &mut String) -> Vec<u64> {
        let most = if rng.random() { 10_000 } else { 50_000_000 };
        let rate = rng.random_range(1000..most);
        writeln!(lines, "rate {rate}").unwrap();
        self.hop.set_rate(now, BitRate::from_bps(rate));
        self.ask(now, lines)
    }

    /// A packet arrives. Returns the dropped packets.
    fn come(&mut self, now: Time, rng: &mut Pcg32, lines: &mut String) -> Vec<u64> {
        let is_update = rng.random_range(0..3_u8) > 0;
        let (host, port) = (rng.random_range(0..6_u8), rng.random_range(0..12_u8));
        let bytes = rng.random_range(64..=1500);
        self.packets += 1;
        writeln!(lines, "come {} {} {host} {port} {bytes} 1", now.as_nanos(), u8::from(is_update))
            .unwrap();
        let flow = FlowKey {
            source: Ipv4Addr::new(10, 0, 0, host).to_ipv6_mapped(),
            source_port: port.into(),
            protocol: if is_update { FlowKey::UDP } else { FlowKey::TCP },
            ..FlowKey::default()
        };
        let mut row = vec![0];
        let packet = Sent { number: self.packets, bytes, flow };
        self.hop.enqueue(now, packet, &mut |drop| row.push(drop.packet.number));
        row
    }
}

/// Compares both. The gap between packets is at most `gap_us`. With a probability of `stalls` in 1000 the device
/// asks for nothing for up to 100 ms, and with one of `changes` in 1000 the rate changes.
#[track_caller]
fn assert_alike(gap_us: u64, stalls: u32, changes: u32) {
    let mut rng = Pcg32::seed_from_u64(41);
    let (mut lines, mut expected) = (String::new(), Vec::new());
    for _ in 0..150 {
        let mut device = Device::any(&mut rng, &mut lines);
        let mut now = Time::ZERO + Span::from_secs(1);
        for _ in 0..400 {
            if rng.random_range(0..1000) < stalls {
                now += Span::from_micros(rng.random_range(0..100_000));
                expected.push(device.ask(now, &mut lines));
            }
            if rng.random_range(0..1000) < changes {
                expected.push(device.set_rate(now, &mut rng, &mut lines));
            }
            let comes = now + Span::from_micros(rng.random_range(0..=gap_us));
            while let Some(next) = device.hop.poll_timeout().filter(|next| *next <= comes) {
                expected.push(device.ask(next, &mut lines));
            }
            now = comes;
            expected.push(device.come(now, &mut rng, &mut lines));
            expected.push(device.ask(now, &mut lines));
        }
        writeln!(lines, "down").unwrap();
        expected.push(vec![device.hop.held().get()]);
    }
    let told = on_host("ifc_whole_on_host", &lines);
    for (number, (told, expected)) in told.iter().zip(&expected).enumerate() {
        assert_eq!(told, expected, "answer {number}");
    }
    assert_eq!(told.len(), expected.len());
}

#[test]
fn packets_leave_and_are_dropped_as_in_the_core() {
    // A link that is idle at times, and one that is not.
    assert_alike(2000, 0, 0);
    assert_alike(200, 0, 0);
}

#[test]
fn a_device_that_stalls_gets_no_burst_afterwards() {
    assert_alike(500, 20, 0);
}

#[test]
fn a_rate_that_was_too_low_is_corrected_at_once() {
    assert_alike(1000, 0, 30);
}
