//! The place of the bottleneck, from a capture that only has the kernel's times.

use freshline_core::unit::Time;
use freshline_core::wlan::Weights;
use freshline_core::wlan::air::DataFrame;
use freshline_core::wlan::estimator::{FRAMES, FrameWeights};
use freshline_lab::locate::{FlowReport, LocateParams, Numbers, Place, locate};
use freshline_lab::packets::packets;
use freshline_lab::scenario::{Change, Scenario};

const RATE: &str = include_str!("../../../scenarios/wlan/bottleneck-rate.toml");

/// The header of a pcap with times in nanoseconds.
fn pcap(link_type: u8) -> Vec<u8> {
    let mut file = 0xa1b2_3c4du32.to_le_bytes().to_vec();
    file.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, link_type, 0, 0, 0]);
    file
}

fn record(file: &mut Vec<u8>, nanos: u64, bytes: &[u8]) {
    let len = bytes.len() as u32;
    for word in [(nanos / 1_000_000_000) as u32, (nanos % 1_000_000_000) as u32, len, len] {
        file.extend(word.to_le_bytes());
    }
    file.extend(bytes);
}

/// A packet of IP and UDP to a port, numbered as iperf2 does.
fn datagram(port: u8, number: u32) -> Vec<u8> {
    let ip = [0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 7, 192, 0, 2, 8];
    let udp = [0x13, 0x89, 0x13, port, 0, 20, 0, 0];
    [&ip[..], &udp, &number.to_be_bytes(), &[0; 8]].concat()
}

/// Frames of 32 packets of each of these flows to one station, one every 2.5 ms for 2 s, as a monitor
/// interface shows them: of each flow, packets get lost before them. `is_numbered` or of one payload.
fn on_the_air(ports: &[u8], lost_every: u32, is_numbered: bool) -> Vec<u8> {
    let mut file = pcap(127);
    let mut sent = vec![0; ports.len()];
    for frame in 0..800u64 {
        let micros = 2_500 * frame;
        for packet in 0..32u64 {
            for (port, sent) in ports.iter().zip(&mut sent) {
                *sent += 1;
                if *sent % lost_every == 0 {
                    *sent += 1;
                }
                // Radiotap with the time only.
                let mut bytes = vec![0, 0, 16, 0, 1, 0, 0, 0];
                bytes.extend((1_000_000 + micros).to_le_bytes());
                let header = DataFrame {
                    from_ap: true,
                    station: [2, 0, 0, 0, 0, 1],
                    priority: Some(0),
                    ..DataFrame::default()
                };
                header.write(&datagram(*port, if is_numbered { *sent } else { 7 }), &mut bytes);
                record(&mut file, 1_000 * micros + 10 * packet, &bytes);
            }
        }
    }
    file
}

#[test]
fn flows_to_one_station_share_its_frames() {
    let weights: Weights = toml::from_str(Weights::SHIPPED).unwrap();
    let frames: FrameWeights = toml::from_str(FRAMES).unwrap();
    // An access point whose queue is full drops a packet in twenty, and fills its frames.
    let both = flows(&on_the_air(&[1, 2], 20, true), weights.clone(), frames.clone());
    assert_eq!(both.len(), 2);
    for flow in &both {
        assert!(flow.by_radio && part(flow, Place::Wireless) >= 0.95, "{flow:?}");
        let interval = flow.intervals.last().unwrap();
        assert!((interval.level - 64.0).abs() < 0.1, "{interval:?}");
        assert!((interval.loss.unwrap() - 0.05).abs() < 0.01, "of its own packets: {interval:?}");
    }
    // Without numbers losses are unknown.
    for flow in flows(&on_the_air(&[1, 2], 20, false), weights, frames) {
        assert_eq!((flow.numbers, flow.intervals.len()), (Numbers::Unknown, 1));
        let interval = flow.intervals[0];
        assert_eq!((interval.place, interval.loss), (Place::Unknown, None));
        assert!((interval.level - 64.0).abs() < 2.0, "{interval:?}");
    }
}

/// A pcap of IP packets, numbered as iperf2 does, with the kernel's times of the packets that a
/// client received.
fn capture(link: &str, mbps: u32) -> Vec<u8> {
    let law = format!(r#"flow.video.downlink.law={{ law = "fixed", rate = "{mbps}mbit" }}"#);
    let link = format!("link.backhaul.forward={link}");
    let changes = [&law, &link, "duration=\"3s\"", r#"flow.video.downlink.counting="logistic""#];
    let changes = changes.map(|text| Change::parse(text).unwrap());
    let scenario = Scenario::parse_with(RATE, &changes).unwrap();
    let all = packets(&scenario, 0).unwrap();

    // Packets that begin with their IP header.
    let mut file = pcap(101);
    for packet in &all[0].seen {
        let nanos = packet.kernel.since(Time::ZERO).as_nanos();
        record(&mut file, nanos, &datagram(0x8a, packet.seq as u32));
    }
    file
}

fn located(capture: &[u8]) -> FlowReport {
    let weights = toml::from_str(Weights::SHIPPED).unwrap();
    let frames = toml::from_str(FRAMES).unwrap();
    let [flow] = <[_; 1]>::try_from(flows(capture, weights, frames)).unwrap();
    assert_eq!((flow.by_radio, flow.numbers), (false, Numbers::Iperf2));
    flow
}

fn flows(capture: &[u8], weights: Weights, frames: FrameWeights) -> Vec<FlowReport> {
    let (max_packets, max_flows, min_packets) = (64, 4, 100);
    let params = LocateParams { weights, frames, max_packets, max_flows, min_packets };
    let found = locate(capture, &params);
    assert!(found.error.is_none(), "{:?}", found.error);
    found.report.flows
}

fn part(flow: &FlowReport, place: Place) -> f64 {
    let frames = |intervals: &mut dyn Iterator<Item = u64>| intervals.sum::<u64>() as f64;
    let all = frames(&mut flow.intervals.iter().map(|interval| interval.frames));
    let there = flow.intervals.iter().filter(|interval| interval.place == place);
    frames(&mut there.map(|interval| interval.frames)) / all
}

#[test]
fn frames_of_a_kernel_s_times_tell_the_bottleneck_too() {
    const SLOW: &str = r#"{ rate = "97500kbit", queue = "100p" }"#;
    const FAST: &str = r#"{ rate = "975mbit", queue = "1000p" }"#;
    for (link, mbps, place) in [
        (SLOW, 75, Place::Wireless),
        (SLOW, 130, Place::Backhaul),
        (SLOW, 260, Place::Backhaul),
        (FAST, 260, Place::Wireless),
        (FAST, 500, Place::Wireless),
    ] {
        let flow = located(&capture(link, mbps));
        let right = part(&flow, place);
        assert!(right >= 0.95, "{link}, {mbps}: {right}, {:?}", flow.intervals);
    }
    // Frames have some 20 packets at 500 Mbit/s, not one.
    let flow = located(&capture(FAST, 500));
    assert!(flow.intervals.iter().all(|interval| interval.level > 5.0), "{:?}", flow.intervals);
}
