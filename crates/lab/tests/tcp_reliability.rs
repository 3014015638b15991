//! The stream arrives once, in order and complete, whatever the fate of its segments.

#[path = "common/tcp_net.rs"]
mod tcp_net;

use std::cell::Cell;
use std::rc::Rc;

use freshline_core::link::Direction;
use freshline_core::unit::{Bytes, Span, Time};
use freshline_lab::tcp::congestion::Algorithm;
use freshline_lab::tcp::{
    Block, Echo, Flags, Receiver, ReceiverParams, SackBlocks, Segment, Sender, SenderParams,
};
use proptest::prelude::*;
use tcp_net::{Net, at, law};

/// Sends `bytes` and closes; the time until the sender knows that all has arrived. Where three of ten
/// segments are lost in either direction, timers of up to 120 s make that longer than ten minutes.
fn transfer(
    net: &mut Net<impl freshline_core::router::Qdisc<tcp_net::Carried>>,
    bytes: u64,
) -> Span {
    let id = net.add(law(Algorithm::Reno), SenderParams::default(), ReceiverParams::default());
    let mut left = bytes;
    while !net.streams[id].sender.is_finished() && net.now < at(36_000.0) {
        if left > 0 {
            left -= net.with_sender(id, |sender| sender.write(Bytes::new(left))).get();
        }
        if left == 0 {
            net.with_sender(id, |sender| sender.close());
        }
        let next = net.now + Span::from_millis(10);
        net.run_while(next, |net| !net.streams[id].sender.is_finished());
    }
    assert!(net.streams[id].receiver.is_finished(), "{:?}", net.streams[id].sender);
    assert_eq!(net.streams[id].receiver.delivered(), Bytes::new(bytes));
    assert_eq!(net.streams[id].sender.acknowledged(), Bytes::new(bytes));
    net.now.since(at(0.0))
}

type Choice = fn(Direction, &Segment) -> bool;

/// Loses the first segment that `which` chooses; returns the duration of 100 kB.
fn without(which: Choice) -> Span {
    let lost = Rc::new(Cell::new(false));
    let seen = lost.clone();
    let mut net = Net::over("rate=10mbit,delay=20ms", "delay=20ms", 1).with_fate(
        move |direction, segment| {
            let strikes = !lost.get() && which(direction, segment);
            lost.set(lost.get() || strikes);
            usize::from(!strikes)
        },
    );
    let took = transfer(&mut net, 100_000);
    assert!(seen.get(), "the segment never was");
    took
}

#[test]
fn the_loss_of_any_kind_of_segment_is_recovered() {
    let whole = without_loss();
    // Only handshakes have to wait for the initial timeout of a second. Half the window costs
    // some round trips.
    let cases: [(&str, Choice, u64); 7] = [
        ("SYN", |direction, s| direction == Direction::Forward && s.flags.syn, 1_010),
        ("SYN-ACK", |direction, s| direction == Direction::Reverse && s.flags.syn, 1_010),
        (
            "ack of the SYN-ACK",
            |direction, s| direction == Direction::Forward && !s.flags.syn && s.end() == 0,
            10,
        ),
        ("first data", |direction, s| direction == Direction::Forward && s.len > 0, 300),
        ("data in between", |direction, s| direction == Direction::Forward && s.seq > 50_000, 300),
        ("an ack", |direction, s| direction == Direction::Reverse && s.ack > 50_000, 10),
        ("FIN", |direction, s| direction == Direction::Forward && s.flags.fin, 300),
    ];
    for (name, which, more) in cases {
        let took = without(which);
        println!("{name}: {took} instead of {whole}");
        assert!(took < whole + Span::from_millis(more), "{name}: {took}");
    }
}

fn without_loss() -> Span {
    transfer(&mut Net::over("rate=10mbit,delay=20ms", "delay=20ms", 1), 100_000)
}

#[test]
fn a_dead_path_comes_back_to_life() {
    let mut net = Net::over("rate=10mbit,delay=20ms", "delay=20ms", 1);
    let id = net.add_bulk(law(Algorithm::Cubic));
    net.run(at(3.0));
    net = net.with_fate(|_, _| 0);
    net.run(at(10.0));
    assert!(net.streams[id].sender.stats().timeouts > 2);
    net = net.with_fate(|_, _| 1);
    // Timeouts have doubled up to some 8 s.
    net.run(at(20.0));
    let goodput = net.goodput_until(id, at(25.0));
    assert!(goodput > 0.9 * 10e6 * 1448.0 / 1500.0, "{goodput}");
}

fn faults() -> impl Strategy<Value = (f64, u64, u64, u64)> {
    (0.0..0.3f64, 0u64..20, 0u64..8, any::<u64>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn loss_reordering_and_duplication_change_nothing_of_the_stream(
        (loss, jitter, duplicates, seed) in faults(),
        bytes in 0u64..300_000,
    ) {
        let hop = format!("delay=20ms,jitter={jitter}ms,order=free,loss={loss}");
        let mut count = 0u64;
        let mut net = Net::over(&hop, &hop, seed).with_fate(move |_, _| {
            count += 1;
            1 + usize::from(duplicates > 0 && count.is_multiple_of(duplicates))
        });
        transfer(&mut net, bytes);
    }

    #[test]
    fn the_same_seed_gives_the_same_run((loss, jitter, _, seed) in faults()) {
        let run = || {
            let hop = format!("rate=8mbit,delay=20ms,jitter={jitter}ms,order=free,loss={loss}");
            let mut net = Net::over(&hop, &hop, seed);
            let id = net.add_bulk(law(Algorithm::Cubic));
            net.run(at(5.0));
            (*net.streams[id].sender.stats(), net.streams[id].receiver.delivered(), net.events)
        };
        prop_assert_eq!(run(), run());
    }
}

fn wild_segment() -> impl Strategy<Value = Segment> {
    let offset = || prop_oneof![0u64..200_000, any::<u64>()];
    let block = (offset(), offset()).prop_map(|(start, end)| Block { start, end });
    let flags = any::<[bool; 7]>().prop_map(|[syn, fin, ack, ece, cwr, ect, ce]| Flags {
        syn,
        fin,
        ack,
        ece,
        cwr,
        ect,
        ce,
    });
    let sack = prop::collection::vec(block, 0..4).prop_map(|blocks| {
        let mut sack = SackBlocks::default();
        blocks.into_iter().for_each(|block| sack.push(block));
        sack
    });
    let gso_size = prop_oneof![Just(0), 1..3000u32, any::<u32>()];
    let numbers = (offset(), any::<u32>(), offset(), offset(), gso_size);
    (numbers, flags, sack, offset(), prop::option::of(offset())).prop_map(
        |((seq, len, ack, window, gso_size), flags, sack, sent_at, echo)| Segment {
            seq,
            len,
            gso_size,
            ack,
            window,
            flags,
            sack,
            sent_at: Time::from_nanos(sent_at),
            echo: echo.map(Time::from_nanos),
            retransmission: false,
        },
    )
}

proptest! {
    #[test]
    fn no_segment_makes_an_end_fail(
        name in prop::sample::select(&Algorithm::ALL[..]),
        segments in prop::collection::vec(wild_segment(), 0..60),
    ) {
        let params = SenderParams { ecn: true, ..SenderParams::default() };
        let mut sender = Sender::new(params, law(name));
        let echo = Some(Echo::EachMark);
        let mut receiver = Receiver::new(ReceiverParams { ecn: echo, ..Default::default() });
        sender.set_unlimited();
        sender.connect(at(0.0));
        for (step, segment) in segments.iter().enumerate() {
            let now = at(step as f64 * 0.1);
            sender.on_segment(now, segment);
            sender.handle_timeout(now);
            receiver.on_segment(now, segment);
            receiver.handle_timeout(now);
            for _ in 0..200 {
                let sent = sender.poll_transmit(now);
                let acked = receiver.poll_transmit(now);
                if sent.is_none() && acked.is_none() {
                    break;
                }
            }
        }
    }
}

/// Jitter makes segments late by up to 30 ms, and a quarter of the round trip is waited.
#[test]
fn segments_that_are_late_cost_no_window() {
    let hop = "rate=50mbit,delay=20ms,queue=1000p";
    let jittery = "rate=50mbit,delay=20ms,jitter=15ms,order=free,queue=1000p";
    for (forward, needless) in [(hop, false), (jittery, true)] {
        let mut net = Net::over(forward, "delay=20ms", 5);
        let id = net.add_bulk(law(Algorithm::Reno));
        net.run(at(20.0));
        let goodput = net.goodput_until(id, at(40.0));
        let stats = net.streams[id].sender.stats();
        assert_eq!(stats.needless_recoveries > 0, needless, "{stats:?}");
        assert!(goodput > 0.9 * 50e6 * 1448.0 / 1500.0, "{goodput}");
    }
}
