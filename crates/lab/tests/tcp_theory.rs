//! TCP compared with the formulas that describe it.

#[path = "common/tcp_net.rs"]
mod tcp_net;

use freshline_core::link::Direction;
use freshline_core::unit::{Bytes, Packets, Span};
use freshline_lab::tcp::congestion::{Algorithm, Cubic, CubicParams, FixedWindow};
use freshline_lab::tcp::{BufferParams, ReceiverParams, SenderParams};
use tcp_net::{Net, at, law};

const SEGMENT_BITS: f64 = 1448.0 * 8.0;

/// A path that only loss limits, with a base RTT of 100 ms.
fn lossy(loss: f64) -> (String, &'static str) {
    (format!("rate=1gbit,delay=50ms,loss={loss},queue=10000p"), "delay=50ms")
}

/// Mathis et al. 1997: segments per round trip ≈ √(3/(2p)). Acks are counted by the data that they
/// deliver, so that delaying them changes nothing.
#[test]
fn reno_under_random_loss_follows_the_square_root_of_p() {
    for loss in [0.0003, 0.001, 0.003, 0.01] {
        let (forward, back) = lossy(loss);
        let mut net = Net::over(&forward, back, 7);
        let id = net.add_bulk(law(Algorithm::Reno));
        net.run(at(100.0));
        let goodput = net.goodput_until(id, at(1500.0));
        let theory = (1.5 / loss).sqrt() * SEGMENT_BITS / 0.1;
        println!("p = {loss}: {:.3} of theory", goodput / theory);
        assert!((goodput / theory - 1.0).abs() < 0.15, "p = {loss}: {}", goodput / theory);
        let needless = net.streams[id].sender.stats().needless_recoveries;
        assert_eq!(needless, 0, "nothing was late, all of it lost");
    }
}

/// W(t) = C·(t − K)³ + W_max from the loss on, with K = ∛(0.3·W_max/C).
#[test]
fn cubic_grows_along_its_curve() {
    let params = CubicParams { hystart: None, ..CubicParams::default() };
    let mut sent = 0;
    // One loss, once the window is large.
    let mut net = Net::over("rate=1gbit,delay=50ms,queue=10000p", "delay=50ms", 1).with_fate(
        move |direction, segment| {
            let lost = direction == Direction::Forward && sent == 1500 && !segment.retransmission;
            sent += usize::from(direction == Direction::Forward);
            usize::from(!lost)
        },
    );
    let id = net.add_bulk(Box::new(Cubic::new(params, Packets::new(10))));
    net.run_while(at(10.0), |net| net.streams[id].sender.stats().fast_recoveries == 0);
    let reduced = net.streams[id].sender.law().window().get() as f64;
    let w_max = reduced / 0.7;
    net.run_while(at(10.0), |net| {
        net.streams[id].sender.window() != net.streams[id].sender.law().window()
            || net.streams[id].sender.law().window().get() as f64 <= reduced
    });
    // The curve begins with the first ack that may grow the window; it is a round trip ahead.
    let start = net.now;
    let k = (0.3 * w_max / 0.4).cbrt();
    for second in 1..12 {
        net.run(start + Span::from_secs(second));
        let window = net.streams[id].sender.law().window().get() as f64;
        let theory = 0.4 * (second as f64 - k).powi(3) + w_max;
        println!("{second} s: {window} against {theory:.0}");
        assert!((window / theory - 1.0).abs() < 0.03, "{second} s: {window}, {theory}");
    }
}

#[test]
fn a_receive_window_allows_itself_once_a_round_trip() {
    let size = Bytes::new(64 << 10);
    let buffer = BufferParams { default: size, max: size };
    let receiver = ReceiverParams { buffer, ..ReceiverParams::default() };
    let mut net = Net::over("rate=1gbit,delay=50ms", "delay=50ms", 1);
    let id = net.add(law(Algorithm::Reno), SenderParams::default(), receiver);
    net.with_sender(id, |sender| sender.set_unlimited());
    net.run(at(5.0));
    let goodput = net.goodput_until(id, at(65.0));
    // Half of the buffer is window, and 22 full segments fit into it.
    let theory = 22.0 * SEGMENT_BITS / 0.1;
    assert!((goodput / theory - 1.0).abs() < 0.02, "{goodput} against {theory}");
}

#[test]
fn a_fixed_window_is_what_is_in_flight() {
    let mut net = Net::over("rate=1gbit,delay=50ms", "delay=50ms", 1);
    let id = net.add_bulk(Box::new(FixedWindow::new(Packets::new(30))));
    net.run(at(5.0));
    let goodput = net.goodput_until(id, at(25.0));
    let theory = 30.0 * SEGMENT_BITS / 0.1;
    assert!((goodput / theory - 1.0).abs() < 0.02, "{goodput} against {theory}");
}
