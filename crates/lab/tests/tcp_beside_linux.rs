//! The lab's streams compared with those of Linux 6.18, measured once on the same path.
//!
//! There, the path was a relay of Ethernet frames between two network namespaces: 20 Mbit/s,
//! 10 ms each way, drop-tail, with the default settings of the kernel but for segmentation
//! offload at the interface. The smoothed round trip and the bytes acknowledged were read from
//! `TCP_INFO` every 50 ms from the start of the connection.

#[path = "common/tcp_net.rs"]
mod tcp_net;

use freshline_lab::tcp::congestion::Algorithm;
use tcp_net::{Net, at, law};

/// Linux's results.
struct Measured {
    law: Algorithm,
    /// The queue's limit.
    packets: u32,
    seconds: u32,
    mean_rtt_ms: f64,
    mbps: f64,
    retransmissions: u64,
}

/// The mean of the smoothed round trip in ms, payload acknowledged in Mbit/s, and retransmissions.
fn in_the_lab(run: &Measured) -> (f64, f64, u64) {
    let forward = format!("rate=20mbit,delay=10ms,queue={}p", run.packets);
    let mut net = Net::over(&forward, "delay=10ms", 1);
    let id = net.add_bulk(law(run.law));
    let mut samples = Vec::new();
    for step in 1..=run.seconds * 20 {
        net.run(at(f64::from(step) / 20.0));
        samples.extend(net.streams[id].sender.srtt().map(|srtt| srtt.as_millis_f64()));
    }
    let sender = &net.streams[id].sender;
    let bits = sender.acknowledged().get() as f64 * 8.0;
    let mean = samples.iter().sum::<f64>() / samples.len() as f64;
    (mean, bits / f64::from(run.seconds) / 1e6, sender.stats().retransmissions.get())
}

fn compare(run: &Measured) {
    let (rtt, mbps, retransmissions) = in_the_lab(run);
    println!(
        "{} over {} packets: {rtt:.1} ms, {mbps:.2} Mbit/s, {retransmissions} again; \
         Linux: {} ms, {} Mbit/s, {} again",
        run.law, run.packets, run.mean_rtt_ms, run.mbps, run.retransmissions
    );
    assert!((rtt / run.mean_rtt_ms - 1.0).abs() < 0.1, "{rtt} ms");
    assert!((mbps / run.mbps - 1.0).abs() < 0.01, "{mbps} Mbit/s");
    let more = retransmissions.abs_diff(run.retransmissions);
    assert!(more * 10 <= run.retransmissions, "{retransmissions} retransmissions");
}

#[test]
fn cubic_where_the_queue_overflows() {
    compare(&Measured {
        law: Algorithm::Cubic,
        packets: 500,
        seconds: 60,
        mean_rtt_ms: 270.1,
        mbps: 19.29,
        retransmissions: 68,
    });
}

#[test]
fn reno_where_the_queue_overflows() {
    compare(&Measured {
        law: Algorithm::Reno,
        packets: 500,
        seconds: 60,
        mean_rtt_ms: 241.9,
        mbps: 19.29,
        retransmissions: 540,
    });
}

#[test]
fn cubic_where_the_send_buffer_limits() {
    compare(&Measured {
        law: Algorithm::Cubic,
        packets: 2000,
        seconds: 100,
        mean_rtt_ms: 827.2,
        mbps: 19.30,
        retransmissions: 0,
    });
}

#[test]
fn reno_where_the_send_buffer_limits() {
    compare(&Measured {
        law: Algorithm::Reno,
        packets: 2000,
        seconds: 100,
        mean_rtt_ms: 1052.3,
        mbps: 19.30,
        retransmissions: 0,
    });
}

#[test]
fn bbr_wherever_it_is() {
    compare(&Measured {
        law: Algorithm::Bbr,
        packets: 2000,
        seconds: 60,
        mean_rtt_ms: 27.6,
        mbps: 18.95,
        retransmissions: 0,
    });
}
