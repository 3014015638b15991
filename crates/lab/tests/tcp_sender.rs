//! What a sender sends, and when.

#[path = "common/tcp_net.rs"]
mod tcp_net;

use freshline_core::unit::{BitRate, Bytes, Packets, Span};
use freshline_lab::tcp::apps::Cbr;
use freshline_lab::tcp::congestion::Algorithm;
use freshline_lab::tcp::{BufferParams, ReceiverParams, SenderParams};
use tcp_net::{Net, Way, at, law};

const FORWARD: &str = "rate=20mbit,delay=10ms";
const BACK: &str = "delay=10ms";

#[test]
fn the_first_flight_has_ten_segments() {
    let mut net = Net::over(FORWARD, BACK, 1);
    let id = net.add_bulk(law(Algorithm::Reno));
    // The answer to the SYN comes after 20 ms, and the first ack 20 ms later.
    net.run(at(0.035));
    assert_eq!(net.streams[id].sender.stats().segments, Packets::new(10));
}

#[test]
fn nagle_holds_back_what_is_not_full_while_something_is_in_flight() {
    let segments_of_ten_writes = |nagle| {
        let mut net = Net::over(FORWARD, BACK, 1);
        let params = SenderParams { nagle, ..SenderParams::default() };
        let id = net.add(law(Algorithm::Reno), params, ReceiverParams::default());
        net.run(at(1.0));
        for step in 0..10 {
            net.run(at(1.0 + f64::from(step) * 0.001));
            net.with_sender(id, |sender| sender.write(Bytes::new(100)));
        }
        net.run(at(2.0));
        assert_eq!(net.streams[id].receiver.delivered(), Bytes::new(1000));
        net.streams[id].sender.stats().segments.get()
    };
    assert_eq!(segments_of_ten_writes(false), 10);
    assert_eq!(segments_of_ten_writes(true), 2);
}

#[test]
fn the_loss_of_a_tail_is_probed_before_the_timeout() {
    let mut net = Net::over(FORWARD, BACK, 1).with_fate(|way, segment| {
        let tail = way == Way::Forward && segment.end() > 20_000 && !segment.retransmission;
        usize::from(!tail)
    });
    let id = net.add(law(Algorithm::Reno), SenderParams::default(), ReceiverParams::default());
    net.with_sender(id, |sender| sender.write(Bytes::new(23_000)));
    net.run(at(0.5));
    let sender = &net.streams[id].sender;
    assert_eq!(sender.acknowledged(), Bytes::new(23_000));
    assert_eq!((sender.stats().tail_probes, sender.stats().timeouts), (1, 0));
}

#[test]
fn after_a_timeout_the_window_starts_from_one_segment() {
    let mut net = Net::over(FORWARD, BACK, 1);
    let id = net.add_bulk(law(Algorithm::Cubic));
    net.run(at(2.0));
    net = net.with_fate(|_, _| 0);
    net.run_while(at(10.0), |net| net.streams[id].sender.stats().timeouts == 0);
    assert_eq!(net.streams[id].sender.window(), Packets::new(1));
}

/// A quiet application must not make BBR believe that the path is slow.
#[test]
fn bbr_remembers_the_rate_through_a_quiet_time() {
    let mut net = Net::over(FORWARD, BACK, 1);
    let id = net.add(law(Algorithm::Bbr), SenderParams::default(), ReceiverParams::default());
    let mut quiet = Cbr::new(at(0.5), Bytes::new(1448), BitRate::from_mbps(1));
    while let Some(next) = quiet.next_event().filter(|next| *next < at(8.0)) {
        net.run(next);
        let now = net.now;
        net.with_sender(id, |sender| quiet.on_tick(now, sender));
    }
    net.with_sender(id, |sender| sender.set_unlimited());
    net.run(at(9.0));
    let goodput = net.goodput_until(id, at(9.0) + Span::from_millis(900));
    assert!(goodput > 0.9 * 20e6 * 1448.0 / 1500.0, "{goodput}");
}

/// A receiver's window is not a quiet application: BBR finds the rate behind it, leaves Startup,
/// and lets its own window fall from 2.9 to 2 times what is under way.
#[test]
fn bbr_leaves_startup_behind_a_small_receive_window() {
    let mut net = Net::over("rate=100mbit,delay=50ms", "delay=50ms", 1);
    let buffer = BufferParams { default: Bytes::new(1_000_000), max: Bytes::new(1_000_000) };
    let receiver = ReceiverParams { buffer, ..ReceiverParams::default() };
    let id = net.add(law(Algorithm::Bbr), SenderParams::default(), receiver);
    net.with_sender(id, |sender| sender.set_unlimited());
    net.run(at(5.0));
    let sender = &net.streams[id].sender;
    let window = sender.window().get() as f64;
    let under_way = sender.in_flight().get() as f64;
    assert!(window < 2.5 * under_way, "{window} for {under_way}");
}
