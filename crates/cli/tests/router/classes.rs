//! The packets that `freshline router` replaces by newer ones, and its report on them.

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::net::{DEVICE, Net, can_run};
use super::running::{Router, count, output_of};

/// The fronts of datagrams that no rule without `force` may replace.
const STREAMS: [(&str, &[u8]); 5] = [
    ("QUIC", &[0xc3, 0, 0, 0, 1]),
    ("DTLS", &[22, 0xfe, 0xfd, 0, 0]),
    ("WireGuard", &[4, 0, 0, 0, 7]),
    ("RTP", &[0x80, 96, 0, 1, 2]),
    ("STUN", &[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42]),
];

fn sum(report: &Value, key: &str) -> u64 {
    report["classes"].as_array().unwrap().iter().map(|class| count(&class[key])).sum()
}

/// Sends `frames` frames at 30 a second, ten datagrams of 1200 bytes each: more than the link
/// carries while a frame arrives.
fn send_video(net: &Net, frames: u32) {
    net.within("a", || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let start = Instant::now();
        for frame in 0..frames {
            let due = start + Duration::from_millis(33) * frame;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            for _ in 0..10 {
                socket.send_to(&[7; 1200], (net.far(), 5_000)).unwrap();
            }
        }
    });
}

#[test]
fn a_video_stream_loses_nothing_to_replacement() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    for flags in [&["--rate", "4mbit"][..], &["--rate", "4mbit", "--classify", "udp"]] {
        let router = Router::start(&net, flags);
        send_video(&net, 12);
        let report = router.stop();
        assert_eq!(sum(&report, "replaced"), 0, "{report}");
        assert!(count(&report["classes"][1]["packets_out"]) >= 120, "{report}");
        assert_eq!(count(&report["classes"][0]["packets_in"]), 0, "{report}");
    }
    // With `force` it does.
    let router = Router::start(&net, &["--rate", "4mbit", "--classify", "udp force"]);
    send_video(&net, 2);
    assert!(sum(&router.stop(), "replaced") > 0);
}

#[test]
fn what_flows_would_be_is_shown_with_the_reason() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    let watch = |rules: &str| {
        let command =
            ["router", "suggest", "--watch", DEVICE, "--duration", "1s", "--json", "--classify"];
        let watching = net.freshline("r", &[&command[..], &[rules]].concat()).spawn().unwrap();
        // The command may take a moment to start: the packets that it should see are repeated.
        net.within("a", || {
            for _ in 0..20 {
                for (at, (_, front)) in STREAMS.iter().enumerate() {
                    let socket = UdpSocket::bind(("0.0.0.0", 7_000 + at as u16)).unwrap();
                    let mut payload = vec![0; 64];
                    payload[..front.len()].copy_from_slice(front);
                    socket.send_to(&payload, (net.far(), 5_000)).unwrap();
                }
                thread::sleep(Duration::from_millis(50));
            }
        });
        let (code, out, errors) = output_of(watching);
        assert_eq!(code, Some(0), "{errors}");
        serde_json::from_str::<Value>(&out).unwrap()
    };
    let flows = watch("update; udp");
    for (at, (name, _)) in STREAMS.iter().enumerate() {
        let port = format!(":{}", 7_000 + at);
        let is_it = |flow: &&Value| flow["source"].as_str().unwrap().ends_with(&port);
        let flow = flows.as_array().unwrap().iter().find(is_it).unwrap_or_else(|| panic!("{name}"));
        assert_eq!((&flow["class"], count(&flow["packets_aoi"])), (&"drop_averse".into(), 0));
        assert!(flow["reason"].as_str().unwrap().contains(name), "{flow}");
    }
}

#[test]
fn a_router_says_what_it_takes_for_updates() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    let said = |flags: &[&str]| {
        let command = ["router", "run", "--dev", DEVICE, "--rate", "1mbit", "--duration", "10ms"];
        output_of(net.freshline("r", &[&command[..], flags].concat()).spawn().unwrap()).2
    };
    let default = said(&[]);
    assert!(default.contains("`update`, except in flows that look like streams"), "{default}");
    let forced = said(&["--classify", "dscp=EF force"]);
    assert!(forced.contains("`dscp=46 force`, even in streams"), "{forced}");
    assert!(!said(&["--queue", "fq_codel"]).contains("updates, of which"));
}
