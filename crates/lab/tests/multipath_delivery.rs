//! Both ends of a connection over pipes that lose, delay and reorder: every byte is delivered once,
//! in order.

use std::collections::BTreeMap;

use freshline_core::path::SchedulerConfig;
use freshline_core::receiver::{Fixed, WindowLaw};
use freshline_core::unit::{Bytes, Packets, Span, Time};
use freshline_lab::tcp::apps::Outlet;
use freshline_lab::tcp::congestion::Reno;
use freshline_lab::tcp::multipath::{Carried, MultipathParams, MultipathReceiver, MultipathSender};
use freshline_lab::tcp::{BufferParams, ReceiverParams, Sender, SenderParams};
use proptest::prelude::*;
use rand::RngExt;
use rand_pcg::Pcg64;

/// A pipe with random losses and delays, so that packets overtake each other.
#[derive(Debug, Clone, Copy)]
struct Pipe {
    loss: f64,
    least: u64,
    spread: u64,
}

/// Segments in flight, by arrival time and a number: whether each is on a forward path, and its
/// subflow.
type Air = BTreeMap<(Time, u64), (bool, usize, Carried)>;

const SEGMENT: Bytes = Bytes::new(1_000);

fn window(bytes: u64) -> Box<dyn WindowLaw> {
    Box::new(Fixed::new(Bytes::new(bytes)))
}

fn sender(scheduler: usize, handler: bool, subflows: usize) -> MultipathSender {
    let large = Bytes::new(1 << 40);
    let buffer = BufferParams { default: large, max: large };
    let params = SenderParams { segment: SEGMENT, buffer, ..SenderParams::default() };
    let law = || Box::new(Reno::new(Packets::new(10)));
    let senders = (0..subflows).map(|_| Sender::new(params, law())).collect();
    let buffer = BufferParams::SEND;
    let params = MultipathParams { segment: SEGMENT, buffer, handler, independent: false };
    MultipathSender::new(params, senders, SchedulerConfig::ALL[scheduler].build().unwrap())
}

/// The end of the data that has arrived without a gap, according to the segments.
fn whole(arrived: &BTreeMap<u64, u64>) -> u64 {
    arrived.iter().fold(0, |end, (start, to)| if *start <= end { end.max(*to) } else { end })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_byte_is_delivered_once_and_in_order(
        pipes in prop::collection::vec((0.0..0.15, 1..200u64, 0..60u64), 1..4),
        scheduler in 0..SchedulerConfig::ALL.len(),
        handler: bool,
        file in 1..300_000u64,
        receive in 2_000..200_000u64,
        seed: u64,
    ) {
        let pipes: Vec<_> =
            pipes.into_iter().map(|(loss, least, spread)| Pipe { loss, least, spread }).collect();
        let mut rng = Pcg64::new(u128::from(seed), 7);
        let mut sender = sender(scheduler, handler, pipes.len());
        let mut receiver =
            MultipathReceiver::new(pipes.len(), ReceiverParams::default(), window(receive));
        let mut air = Air::new();
        let mut arrived = BTreeMap::new();
        let (mut now, mut number, mut left) = (Time::ZERO, 0, Bytes::new(file));
        sender.connect(now);
        while !sender.is_finished() {
            left = left - sender.write(left);
            if left == Bytes::ZERO {
                sender.close();
            }
            let mut sent = Vec::new();
            while let Some((subflow, carried)) = sender.poll_transmit(now) {
                sent.push((true, subflow, carried));
            }
            while let Some((subflow, carried)) = receiver.poll_transmit(now) {
                sent.push((false, subflow, carried));
            }
            for (there, subflow, carried) in sent {
                let Pipe { loss, least, spread } = pipes[subflow];
                let takes = Span::from_millis(least) + Span::from_millis(spread).mul_f64(rng.random());
                if !rng.random_bool(loss) {
                    number += 1;
                    air.insert((now + takes, number), (there, subflow, carried));
                }
            }
            let first = air.first_key_value().map(|((at, _), _)| *at);
            let next = Time::earliest([first, sender.poll_timeout(), receiver.poll_timeout()]);
            now = next.expect("an event is pending").max(now);
            prop_assert!(now < Time::ZERO + Span::from_secs(3_600), "an hour, and no end");
            sender.handle_timeout(now);
            receiver.handle_timeout(now);
            while let Some(entry) = air.first_entry().filter(|entry| entry.key().0 <= now) {
                let (there, subflow, carried) = entry.remove();
                if !there {
                    sender.on_segment(now, subflow, &carried);
                    continue;
                }
                if let Some(mapping) = carried.mapping {
                    let block = mapping.data;
                    prop_assert_eq!(block.end - block.start, u64::from(carried.segment.len));
                    let end = arrived.entry(block.start).or_insert(block.end);
                    *end = block.end.max(*end);
                }
                let before = receiver.delivered().get();
                let has_more = receiver.on_segment(now, subflow, &carried);
                let after = receiver.delivered().get();
                prop_assert!(after >= before && has_more == (after > before));
                prop_assert!(after <= whole(&arrived), "delivered data that has not arrived");
            }
        }
        prop_assert_eq!(receiver.delivered(), Bytes::new(file));
    }
}
