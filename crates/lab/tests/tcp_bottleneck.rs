//! One stream, or many, that fill a bottleneck.

#[path = "common/tcp_net.rs"]
mod tcp_net;

use freshline_core::unit::Span;
use freshline_lab::tcp::congestion::{Cubic, CubicParams, Reno};
use tcp_net::{INITIAL, Net, at};

/// 20 Mbit/s, 20 ms there and back, 2000 packets.
const FORWARD: &str = "rate=20mbit,delay=10ms,queue=2000p";
const BACK: &str = "delay=10ms";
/// What payload is of a full packet.
const PAYLOAD_SHARE: f64 = 1448.0 / 1500.0;

#[test]
fn reno_and_cubic_fill_the_bottleneck() {
    let share = 20e6 * PAYLOAD_SHARE;
    for law in ["reno", "cubic"] {
        let mut net = Net::over(FORWARD, BACK, 1);
        match law {
            "reno" => net.add_bulk(Reno::new(INITIAL)),
            _ => net.add_bulk(Cubic::new(CubicParams::default(), INITIAL)),
        };
        net.run(at(5.0));
        let before = *net.streams[0].sender.stats();
        let goodput = net.goodput_until(0, at(120.0));
        let after = *net.streams[0].sender.stats();
        let rtt = (after.rtt_sum - before.rtt_sum) / (after.rtt_samples - before.rtt_samples);
        println!("{law}: {goodput} bit/s, {rtt}, {after:?}");
        assert!((goodput / share - 1.0).abs() < 0.01, "{law}: {goodput} bit/s");
        assert!(rtt > Span::from_millis(100), "{law}: {rtt}");
    }
}
