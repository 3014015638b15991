//! Segmentation offload: packets of several segments, each of which windows and acks count.

#[path = "common/tcp_net.rs"]
mod tcp_net;

use std::sync::{Arc, Mutex};

use freshline_core::link::Direction;
use freshline_core::router::Discipline;
use freshline_core::unit::{Bytes, Packets, Span};
use freshline_lab::tcp::congestion::Algorithm;
use freshline_lab::tcp::{BufferParams, ReceiverParams, Segment, SenderParams};
use tcp_net::{Carried, Net, at, law};

/// Buffers that limit nothing.
const BUFFER: BufferParams =
    BufferParams { default: Bytes::new(1 << 24), max: Bytes::new(1 << 24) };

/// Linux: 64 KiB less the room for headers, or a packet per segment.
fn params(offload: bool) -> SenderParams {
    let offload = offload.then_some(Bytes::new(65_215));
    SenderParams { offload, buffer: BUFFER, ..SenderParams::default() }
}

/// The sizes, in segments, of all packets with data that left.
type Sizes = Arc<Mutex<Vec<u64>>>;

/// A stream that always has data; `lost` selects the packet that does not arrive.
fn stream(
    forward: &str,
    params: SenderParams,
    control: Algorithm,
    mut lost: impl FnMut(&Segment) -> bool + 'static,
) -> (Net<Discipline<Carried>>, Sizes) {
    let sizes = Sizes::default();
    let into = Arc::clone(&sizes);
    let mut net = Net::over(forward, "delay=10ms", 1).with_fate(move |direction, segment| {
        if direction == Direction::Forward && segment.len > 0 {
            into.lock().unwrap().push(segment.segments());
            return usize::from(!lost(segment));
        }
        1
    });
    let receiver = ReceiverParams { buffer: BUFFER, ..ReceiverParams::default() };
    let id = net.add(law(control), params, receiver);
    net.with_sender(id, |sender| sender.set_unlimited());
    (net, sizes)
}

/// Ten segments per 20 ms are less than two in 1/1024 s: Linux sends at least two.
#[test]
fn the_first_flight_has_ten_segments_in_packets_of_two() {
    let (mut net, sizes) =
        stream("rate=100mbit,delay=10ms", params(true), Algorithm::Cubic, |_| false);
    net.run(at(0.035));
    assert_eq!(net.streams[0].sender.stats().segments, Packets::new(10));
    assert_eq!(*sizes.lock().unwrap(), [2; 5]);
}

/// 1.2 · 96.5 Mbit/s of payload are 14,138 bytes in 1/1024 s, 9.8 segments of 1448; a window that
/// grows is above rate · srtt by a few percent.
#[test]
fn at_100_mbit_a_packet_has_nine_or_ten_segments() {
    // Short enough for a loss: a window without one grows to twice the data in flight.
    let link = "rate=100mbit,delay=10ms,queue=100p";
    for control in [Algorithm::Cubic, Algorithm::Reno] {
        let (mut net, sizes) = stream(link, params(true), control, |_| false);
        net.run(at(10.0));
        let sent = sizes.lock().unwrap().len();
        net.run(at(20.0));
        let mut later = sizes.lock().unwrap().split_off(sent);
        later.sort_unstable();
        let median = later[later.len() / 2];
        assert!((9..=10).contains(&median), "{control}: {median}");
        let (mut net, sizes) = stream(link, params(false), control, |_| false);
        net.run(at(5.0));
        assert!(sizes.lock().unwrap().iter().all(|size| *size == 1), "{control}");
    }
}

/// Reno adds a segment per round trip, not a packet.
#[test]
fn windows_grow_by_segments() {
    let growth_in_fifty_round_trips = |offload| {
        let mut left = 300;
        let (mut net, _) =
            stream("rate=1gbit,delay=90ms", params(offload), Algorithm::Reno, move |segment| {
                left -= segment.segments() as i64;
                !segment.retransmission && left <= 0 && std::mem::replace(&mut left, i64::MAX) <= 0
            });
        net.run(at(4.0));
        assert_eq!(net.streams[0].sender.stats().fast_recoveries, 1);
        let window = |net: &Net<_>| net.streams[0].sender.window().get();
        let before = window(&net);
        net.run(at(4.0) + Span::from_millis(100) * 50);
        window(&net) - before
    };
    for offload in [false, true] {
        let growth = growth_in_fifty_round_trips(offload);
        assert!((47..=51).contains(&growth), "offload {offload}: {growth}");
    }
}

/// The segments of a lost packet are lost together, and sent again as far as the window allows.
#[test]
fn all_of_a_lost_packet_is_sent_again_and_nothing_else() {
    let mut number = 0;
    let lost = Arc::new(Mutex::new(0));
    let into = Arc::clone(&lost);
    let link = "rate=100mbit,delay=10ms,queue=100000p";
    let (mut net, _) = stream(link, params(true), Algorithm::Cubic, move |segment| {
        number += 1;
        let is_lost = number % 500 == 0;
        *into.lock().unwrap() += if is_lost { segment.segments() } else { 0 };
        is_lost
    });
    net.run(at(10.0));
    net.with_sender(0, |sender| sender.close());
    net.run(at(20.0));
    let sender = &net.streams[0].sender;
    assert!(sender.is_finished());
    assert_eq!(net.streams[0].receiver.delivered(), sender.written());
    let (again, lost) = (sender.stats().retransmissions.get(), *lost.lock().unwrap());
    assert!(lost > 20, "{lost}");
    assert_eq!(again, lost);
}
