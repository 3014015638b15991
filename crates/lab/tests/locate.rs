//! Where the bottleneck of a capture lies that has but the times of a kernel.

use freshline_core::unit::Time;
use freshline_core::wlan::Weights;
use freshline_core::wlan::estimator::FRAMES;
use freshline_lab::locate::{FlowReport, LocateParams, Numbers, Place, locate};
use freshline_lab::packets::packets;
use freshline_lab::scenario::{Change, Scenario};

const RATE: &str = include_str!("../../../scenarios/wlan/bottleneck-rate.toml");

/// A pcap of IP packets, numbered as iperf2 does, with the kernel's times of what a client got.
fn capture(link: &str, mbps: u32) -> Vec<u8> {
    let law = format!(r#"flow.video.downlink.law={{ law = "fixed", rate = "{mbps}mbit" }}"#);
    let link = format!("link.backhaul.there={link}");
    let changes = [&law, &link, "duration=\"3s\"", r#"flow.video.downlink.counting="logistic""#];
    let changes = changes.map(|text| Change::parse(text).unwrap());
    let scenario = Scenario::parse_with(RATE, &changes).unwrap();
    let all = packets(&scenario, 0).unwrap();

    // Times in nanoseconds, and packets that begin with their IP header.
    let mut file = 0xa1b2_3c4du32.to_le_bytes().to_vec();
    file.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 101, 0, 0, 0]);
    for packet in &all[0].seen {
        let nanos = packet.kernel.since(Time::ZERO).as_nanos();
        let ip = [0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 7, 192, 0, 2, 8];
        let udp = [0x13, 0x89, 0x13, 0x8a, 0, 20, 0, 0];
        let number = (packet.seq as u32).to_be_bytes();
        let bytes = [&ip[..], &udp, &number, &[0; 8]].concat();
        let len = bytes.len() as u32;
        for word in [(nanos / 1_000_000_000) as u32, (nanos % 1_000_000_000) as u32, len, len] {
            file.extend(word.to_le_bytes());
        }
        file.extend(bytes);
    }
    file
}

fn located(capture: &[u8]) -> FlowReport {
    let weights = toml::from_str(Weights::SHIPPED).unwrap();
    let frames = toml::from_str(FRAMES).unwrap();
    let found = locate(capture, &LocateParams { weights, frames, max_flows: 4, min_packets: 100 });
    assert!(found.error.is_none(), "{:?}", found.error);
    let [flow] = <[_; 1]>::try_from(found.report.flows).unwrap();
    assert_eq!((flow.by_radio, flow.numbers), (false, Numbers::Iperf2));
    flow
}

fn part(flow: &FlowReport, place: Place) -> f64 {
    let frames = |spells: &mut dyn Iterator<Item = u64>| spells.sum::<u64>() as f64;
    let all = frames(&mut flow.spells.iter().map(|spell| spell.frames));
    let there = flow.spells.iter().filter(|spell| spell.place == place);
    frames(&mut there.map(|spell| spell.frames)) / all
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
        assert!(right >= 0.95, "{link}, {mbps}: {right}, {:?}", flow.spells);
    }
    // Frames have some 20 packets at 500 Mbit/s, not one.
    let flow = located(&capture(FAST, 500));
    assert!(flow.spells.iter().all(|spell| spell.level > 5.0), "{:?}", flow.spells);
}
