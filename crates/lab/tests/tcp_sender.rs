//! The segments that a sender sends, and their times.

#[path = "common/tcp_net.rs"]
mod tcp_net;

use std::sync::{Arc, Mutex};

use freshline_core::link::Direction;
use freshline_core::unit::{BitRate, Bytes, Packets, Span, Time};
use freshline_lab::tcp::apps::Cbr;
use freshline_lab::tcp::congestion::{Ack, Algorithm, CongestionControl, Signal};
use freshline_lab::tcp::{BufferParams, ReceiverParams, Repair, Segment, SenderParams};
use tcp_net::{Net, at, law};

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
    let mut net = Net::over(FORWARD, BACK, 1).with_fate(|direction, segment| {
        let tail =
            direction == Direction::Forward && segment.end() > 20_000 && !segment.retransmission;
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
    while let Some(next) = quiet.poll_timeout().filter(|next| *next < at(8.0)) {
        net.run(next);
        let now = net.now;
        net.with_sender(id, |sender| quiet.handle_timeout(now, sender));
    }
    net.with_sender(id, |sender| sender.set_unlimited());
    net.run(at(9.0));
    let goodput = net.goodput_until(id, at(9.0) + Span::from_millis(900));
    assert!(goodput > 0.9 * 20e6 * 1448.0 / 1500.0, "{goodput}");
}

/// A receiver's window is not a quiet application: BBR finds the rate behind it, leaves Startup,
/// and lets its own window fall from 2.9 to 2 times the data in flight.
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

/// A law with segments so far apart.
#[derive(Debug)]
struct Spaced(Span);

impl CongestionControl for Spaced {
    fn name(&self) -> &'static str {
        "spaced"
    }

    fn window(&self) -> Packets {
        Packets::new(4)
    }

    fn spacing(&self) -> Option<Span> {
        Some(self.0)
    }

    fn on_ack(&mut self, _now: Time, _ack: &Ack) {}

    fn on_congestion(&mut self, _now: Time, _signal: Signal) {}

    fn on_rto(&mut self, _now: Time) {}
}

/// With BLIP's repair all in flight is sent again, with the second duplicate ack or after 3 s, however
/// short round trips are; a second timeout comes as soon.
#[test]
fn blip_goes_back_and_its_timeout_is_constant() {
    let sent_at = |lost: u64| {
        let left = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&left);
        let mut tries = 0;
        let mut net = Net::over(FORWARD, BACK, 1).with_fate(move |direction, segment| {
            if direction == Direction::Reverse || segment.len == 0 {
                return 1;
            }
            let at = segment.sent_at.since(Time::ZERO).as_micros() / 1000;
            log.lock().unwrap().push((at, segment.seq / 1448));
            let is_lost = segment.seq == 0 && tries < lost;
            tries += u64::from(is_lost);
            usize::from(!is_lost)
        });
        let params = SenderParams { repair: Repair::Blip, ..SenderParams::default() };
        let id = net.add(law(Algorithm::Reno), params, ReceiverParams::default());
        net.with_sender(id, |sender| sender.write(Bytes::new(4 * 1448)));
        net.run(at(60.0));
        let sender = &net.streams[id].sender;
        assert_eq!(sender.acknowledged(), Bytes::new(4 * 1448));
        assert_eq!(sender.stats().tail_probes, 0);
        (sender.stats().timeouts, left.lock().unwrap().clone())
    };
    // Four leave at 20 ms; two of the three acks that report a hole arrive a round trip later.
    let (timeouts, left) = sent_at(1);
    assert_eq!(timeouts, 0, "{left:?}");
    assert!(left[4..].iter().any(|(at, seq)| *seq == 0 && *at < 100), "{left:?}");
    // The first is lost in the repair, too, and in that of the timeout.
    let (timeouts, left) = sent_at(3);
    assert_eq!(timeouts, 2, "{left:?}");
    let again: Vec<_> = left.iter().filter(|(_, seq)| *seq == 0).map(|(at, _)| *at).collect();
    assert_eq!(again.len(), 4, "{left:?}");
    assert_eq!(again[3] - again[2], 3000, "no doubling: {left:?}");
}

/// A segment that `is_lost` when it is sent first, under a law with a spacing: the stream's
/// timeouts and probes, and when data left, in ms.
fn repaired(
    spacing: Span,
    bytes: u64,
    min_rto: Span,
    is_lost: fn(&Segment) -> bool,
) -> ([u64; 2], Vec<u64>) {
    let left = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&left);
    let mut net = Net::over(FORWARD, BACK, 1).with_fate(move |direction, segment| {
        if direction == Direction::Forward && segment.len > 0 {
            log.lock().unwrap().push(segment.sent_at.since(Time::ZERO).as_micros() / 1000);
        }
        usize::from(direction == Direction::Reverse || segment.retransmission || !is_lost(segment))
    });
    let params = SenderParams { min_rto, ..SenderParams::default() };
    let id = net.add(Box::new(Spaced(spacing)), params, ReceiverParams::default());
    net.with_sender(id, |sender| sender.write(Bytes::new(bytes)));
    net.run(at(60.0));
    let sender = &net.streams[id].sender;
    assert_eq!(sender.acknowledged(), Bytes::new(bytes));
    let stats = sender.stats();
    let left = left.lock().unwrap().clone();
    ([stats.timeouts, stats.tail_probes], left)
}

/// The handshake takes 20 ms. The timeout strikes after 220 ms more, and the retransmission may
/// leave only when 5 s have passed: until then there is nothing to time.
#[test]
fn a_loss_is_one_timeout_however_long_its_repair_waits() {
    let is_lost = |segment: &Segment| segment.len > 0;
    let lone = repaired(Span::from_secs(5), 1448, Span::ZERO, is_lost);
    assert_eq!(lone, ([1, 0], vec![20, 5020]));
}

/// The acks of the second, third and fourth segment report the loss of the first, and its
/// retransmission leaves 2 s after the fourth: no timeout strikes meanwhile.
#[test]
fn no_timeout_strikes_while_a_fast_retransmit_waits() {
    let is_lost = |segment: &Segment| segment.len > 0 && segment.seq == 0;
    let four = repaired(Span::from_secs(2), 4 * 1448, Span::from_secs(10), is_lost);
    assert_eq!(four.0[0], 0, "{four:?}");
    assert!(four.1.windows(2).all(|pair| pair[1] - pair[0] >= 2000), "{four:?}");
}

/// A probe is due 240 ms after the loss of a lone segment, and its turn comes after 500.
#[test]
fn a_tail_loss_probe_waits_its_turn() {
    let is_lost = |segment: &Segment| segment.len > 0;
    let lone = repaired(Span::from_millis(500), 1448, Span::from_secs(1), is_lost);
    assert_eq!(lone, ([0, 1], vec![20, 520]));
}
