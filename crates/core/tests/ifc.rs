//! Invariants of in-network freshness control, for any arrivals at any times.

use std::collections::HashMap;

use freshline_core::router::{
    AnyScheduler, AoiShare, Backlog, Class, Classifier, Credit, Discipline, Drop, DropReason, Fifo,
    FlowKey, Header, Ifc, IfcConfig, Ifil, IfilParams, Limit, Packet, Qdisc, QdiscConfig,
    SchedulerParams, SdmParams, TdmParams,
};
use freshline_core::unit::{BitRate, Bytes, Packets, Span, Time};
use proptest::prelude::*;
use rand::SeedableRng;
use rand_pcg::Pcg64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Datagram {
    class: Class,
    flow: u16,
    seq: u64,
    size: u64,
}

impl Packet for Datagram {
    fn size(&self) -> Bytes {
        Bytes::new(self.size)
    }

    fn header(&self) -> Header {
        let protocol = match self.class {
            Class::Aoi => FlowKey::UDP,
            Class::DropAverse => FlowKey::TCP,
        };
        let flow = FlowKey { protocol, source_port: self.flow, ..FlowKey::default() };
        Header { flow, ..Header::default() }
    }
}

fn rng() -> Pcg64 {
    Pcg64::seed_from_u64(7)
}

fn ifil(limit: u64) -> Ifil<Datagram> {
    let params = IfilParams { limit: Packets::new(limit), ..IfilParams::default() };
    Ifil::new(params, &mut rng()).unwrap()
}

fn no_drop(drop: Drop<Datagram>) {
    panic!("{drop:?}");
}

/// An event at a queue.
#[derive(Debug, Clone, Copy)]
enum Step {
    Arrive { class: Class, flow: u16, size: u64 },
    Depart,
    Pass(Span),
    Share(AoiShare),
}

fn step() -> impl Strategy<Value = Step> {
    let class = prop::sample::select(&Class::ALL[..]);
    prop_oneof![
        6 => (class, 0u16..12, 1u64..3000)
            .prop_map(|(class, flow, size)| Step::Arrive { class, flow, size }),
        3 => Just(Step::Depart),
        1 => (0u64..200_000).prop_map(|micros| Step::Pass(Span::from_micros(micros))),
        1 => share().prop_map(Step::Share),
    ]
}

fn share() -> impl Strategy<Value = AoiShare> {
    (0.0f64..=1.0).prop_map(|share| AoiShare::new(share).unwrap())
}

fn scheduler() -> impl Strategy<Value = SchedulerParams> {
    let credit = prop_oneof![
        (0u64..10_000).prop_map(|bytes| Credit::Limited(Bytes::new(bytes))),
        Just(Credit::Unlimited),
    ];
    prop_oneof![
        credit.prop_map(|credit| SchedulerParams::Sdm(SdmParams { credit })),
        (1_000u64..100_000).prop_map(|micros| {
            SchedulerParams::Tdm(TdmParams { frame: Span::from_micros(micros) })
        }),
    ]
}

type Configured = Ifc<Discipline<Datagram>, Discipline<Datagram>, AnyScheduler>;

fn ifc(config: IfcConfig) -> Box<Configured> {
    match QdiscConfig::Ifc(Box::new(config)).build(&mut rng()) {
        Ok(Discipline::Ifc(ifc)) => ifc,
        other => panic!("{other:?}"),
    }
}

/// Numbers the packets of each flow and follows them through a queue.
#[derive(Default)]
struct Ledger {
    sent: u64,
    received: u64,
    dropped: u64,
    next_seq: HashMap<(Class, u16), u64>,
    last_received: HashMap<(Class, u16), u64>,
}

impl Ledger {
    fn next(&mut self, class: Class, flow: u16, size: u64) -> Datagram {
        self.sent += 1;
        let seq = self.next_seq.entry((class, flow)).or_default();
        *seq += 1;
        Datagram { class, flow, seq: *seq, size }
    }

    /// Takes a packet that left; returns whether it is newer than all earlier ones of its flow.
    fn receive(&mut self, packet: Datagram) -> bool {
        self.received += 1;
        let before = self.last_received.insert((packet.class, packet.flow), packet.seq);
        before.is_none_or(|before| before < packet.seq)
    }
}

proptest! {
    #[test]
    fn nothing_vanishes_and_flows_keep_their_order(
        steps in prop::collection::vec(step(), 0..300),
        scheduler in scheduler(),
        limit in 1u64..20,
    ) {
        let mut queue = ifc(IfcConfig {
            scheduler,
            aoi: QdiscConfig::Ifil(IfilParams { limit: Packets::new(limit), ..<_>::default() }),
            drop_averse: QdiscConfig::Fifo { limit: Limit::Packets(Packets::new(limit)) },
            ..IfcConfig::default()
        });
        let mut ledger = Ledger::default();
        let mut now = Time::ZERO;
        for step in steps {
            match step {
                Step::Arrive { class, flow, size } => {
                    let packet = ledger.next(class, flow, size);
                    queue.enqueue(now, packet, &mut |_| ledger.dropped += 1);
                }
                Step::Depart => {
                    let waited = queue.backlog() != Backlog::default();
                    let next = queue.dequeue(now, &mut no_drop);
                    prop_assert_eq!(next.is_some(), waited, "it is work-conserving");
                    if let Some(next) = next {
                        prop_assert!(ledger.receive(next.packet), "{:?} is late", next.packet);
                    }
                }
                Step::Pass(span) => now += span,
                Step::Share(share) => queue.set_aoi_share(share),
            }
            let waiting = queue.backlog().packets.get();
            prop_assert_eq!(ledger.sent, ledger.received + ledger.dropped + waiting);
            prop_assert!(waiting <= 2 * limit);
        }
        while let Some(next) = queue.dequeue(now, &mut no_drop) {
            prop_assert!(ledger.receive(next.packet));
        }
        prop_assert_eq!(queue.backlog(), Backlog::default());
    }

    /// IFIL compared with a simple reference model: a list that is searched.
    #[test]
    fn ifil_is_a_list_in_which_the_newest_takes_the_place_of_the_older(
        steps in prop::collection::vec(step(), 0..400),
        limit in 1u64..16,
    ) {
        let mut queue = ifil(limit);
        let mut list: Vec<(Time, Datagram)> = Vec::new();
        let mut ledger = Ledger::default();
        let mut now = Time::ZERO;
        for step in steps {
            match step {
                Step::Arrive { class, flow, size } => {
                    let packet = ledger.next(class, flow, size);
                    let same_flow = |(_, waiting): &&mut (Time, Datagram)| {
                        (waiting.class, waiting.flow) == (class, flow)
                    };
                    let expected = if let Some(place) = list.iter_mut().find(same_flow) {
                        let (_, old) = std::mem::replace(place, (now, packet));
                        Some(Drop { packet: old, reason: DropReason::Replaced })
                    } else if (list.len() as u64) < limit {
                        list.push((now, packet));
                        None
                    } else {
                        Some(Drop { packet, reason: DropReason::QueueFull })
                    };
                    let mut dropped = None;
                    queue.enqueue(now, packet, &mut |drop| dropped = Some(drop));
                    prop_assert_eq!(dropped, expected);
                }
                Step::Depart => {
                    let expected = (!list.is_empty()).then(|| list.remove(0));
                    let next = queue.dequeue(now, &mut no_drop);
                    let next = next.map(|next| (next.sojourn, next.packet));
                    prop_assert_eq!(next, expected.map(|(at, packet)| (now.since(at), packet)));
                }
                Step::Pass(span) => now += span,
                Step::Share(_) => {}
            }
            let bytes = list.iter().map(|(_, packet)| packet.size).sum();
            let backlog = Backlog { packets: Packets::new(list.len() as u64), bytes: Bytes::new(bytes) };
            prop_assert_eq!(queue.backlog(), backlog);
        }
    }

    #[test]
    fn under_a_flood_of_invented_flows_whoever_waits_is_served_in_turn_with_his_newest(
        flood in prop::collection::vec(100u16.., 100..300),
        limit in 10u64..100,
    ) {
        let mut queue = ifil(limit);
        let mut ledger = Ledger::default();
        for flow in 0..5 {
            queue.enqueue(Time::ZERO, ledger.next(Class::Aoi, flow, 100), &mut no_drop);
        }
        for flow in flood {
            queue.enqueue(Time::ZERO, ledger.next(Class::Aoi, flow, 100), &mut |_| ());
            prop_assert!(queue.backlog().packets <= Packets::new(limit));
            for flow in 0..5 {
                let mut dropped = None;
                let newer = ledger.next(Class::Aoi, flow, 100);
                queue.enqueue(Time::ZERO, newer, &mut |drop| dropped = Some(drop.reason));
                prop_assert_eq!(dropped, Some(DropReason::Replaced));
            }
        }
        for flow in 0..5 {
            let next = queue.dequeue(Time::ZERO, &mut no_drop).unwrap().packet;
            prop_assert_eq!((next.flow, next.seq), (flow, ledger.next_seq[&(Class::Aoi, flow)]));
        }
    }

    #[test]
    fn while_both_wait_sdm_keeps_the_bytes_within_a_packet_of_the_share(
        share in share(),
        sizes in prop::collection::vec((1u64..65_536, 1u64..65_536), 100..500),
        credit in prop_oneof![Just(Credit::default()), Just(Credit::Unlimited)],
    ) {
        let sdm = SchedulerParams::Sdm(SdmParams { credit });
        let mut link = Saturated::new(sdm, share);
        for (aoi, drop_averse) in sizes {
            link.send(aoi, drop_averse);
            let [aoi, drop_averse] = link.bytes.map(|bytes| bytes as f64);
            let off = share.get() * drop_averse - (1.0 - share.get()) * aoi;
            prop_assert!(off.abs() <= 65_536.0, "{} is off by {off} bytes", share);
        }
    }

    #[test]
    fn while_both_wait_tdm_keeps_the_time_within_a_packet_of_the_share_in_each_frame(
        share in share(),
        sizes in prop::collection::vec((1u64..3000, 1u64..3000), 100..1000),
        frame_ms in 1u64..50,
    ) {
        let frame = Span::from_millis(frame_ms);
        let mut link = Saturated::new(SchedulerParams::Tdm(TdmParams { frame }), share);
        for (aoi, drop_averse) in sizes {
            link.send(aoi, drop_averse);
        }
        let [aoi, drop_averse] = link.busy.map(Span::as_secs_f64);
        let longest = Saturated::RATE.time_to_send(Bytes::new(3000)).as_secs_f64();
        // The frames that have begun, the last of which may have just done so.
        let frames = (aoi + drop_averse) / frame.as_secs_f64() + 1.0;
        let frame = frame.as_secs_f64();
        for (time, share) in [(aoi, share.get()), (drop_averse, 1.0 - share.get())] {
            let off = time - share * (aoi + drop_averse);
            prop_assert!(off.abs() <= frames * longest + frame, "off by {off} s in {frames} frames");
        }
    }

    #[test]
    fn no_flow_starves_as_long_as_its_class_has_a_share(
        scheduler in scheduler(),
        share in 0.05f64..=0.95,
        flows in 1u16..10,
    ) {
        let share = AoiShare::new(share).unwrap();
        // CoDel would drop packets on the path.
        let drop_averse = QdiscConfig::default();
        let mut queue =
            ifc(IfcConfig { scheduler, aoi_share: share, drop_averse, ..IfcConfig::default() });
        let mut ledger = Ledger::default();
        let mut served = HashMap::new();
        let mut now = Time::ZERO;
        let mut bulk = (0..flows).cycle();
        for _ in 0..2000 {
            for flow in 0..flows {
                let update = ledger.next(Class::Aoi, flow, 1000);
                queue.enqueue(now, update, &mut |_| ());
            }
            while queue.backlog_of::<Datagram>(Class::DropAverse).packets < Packets::new(100) {
                let packet = ledger.next(Class::DropAverse, bulk.next().unwrap(), 1000);
                queue.enqueue(now, packet, &mut no_drop);
            }
            let next = queue.dequeue(now, &mut no_drop).unwrap().packet;
            *served.entry((next.class, next.flow)).or_insert(0) += 1;
            now += Saturated::RATE.time_to_send(Bytes::new(1000));
        }
        prop_assert_eq!(served.len(), 2 * usize::from(flows), "{:?}", served);
    }
}

/// A link on which both classes always have a backlog.
struct Saturated {
    queue: Ifc<Fifo<Datagram>, Fifo<Datagram>, AnyScheduler>,
    now: Time,
    /// Bytes sent per class.
    bytes: [u64; 2],
    /// For how long each class was being sent.
    busy: [Span; 2],
}

impl Saturated {
    const RATE: BitRate = BitRate::from_mbps(100);

    fn new(scheduler: SchedulerParams, share: AoiShare) -> Self {
        let fifo = || Fifo::new(Limit::Packets(Packets::MAX));
        let queue = Ifc::new(
            "udp force".parse::<Classifier>().unwrap(),
            fifo(),
            fifo(),
            scheduler.build(share),
        );
        Self { queue, now: Time::ZERO, bytes: [0; 2], busy: [Span::ZERO; 2] }
    }

    /// A packet of each class arrives, and one is sent.
    fn send(&mut self, aoi: u64, drop_averse: u64) -> Class {
        for (class, size) in Class::ALL.into_iter().zip([aoi, drop_averse]) {
            let packet = Datagram { class, flow: 0, seq: 0, size };
            self.queue.enqueue(self.now, packet, &mut no_drop);
        }
        let packet = self.queue.dequeue(self.now, &mut no_drop).unwrap().packet;
        let time = Self::RATE.time_to_send(packet.size());
        self.now += time;
        self.bytes[packet.class as usize] += packet.size;
        self.busy[packet.class as usize] += time;
        packet.class
    }
}

#[test]
fn at_the_extremes_one_class_always_goes_first() {
    for scheduler in [SchedulerParams::default(), SchedulerParams::Tdm(TdmParams::default())] {
        for (share, first) in [(AoiShare::ZERO, Class::DropAverse), (AoiShare::ONE, Class::Aoi)] {
            let mut link = Saturated::new(scheduler, share);
            assert!((0..1000).all(|_| link.send(1000, 1500) == first), "{scheduler:?}");
        }
    }
}

#[test]
fn a_class_that_comes_back_after_a_long_time_does_not_shut_out_the_other() {
    for scheduler in [SchedulerParams::default(), SchedulerParams::Tdm(TdmParams::default())] {
        for absent in Class::ALL {
            let mut link = Saturated::new(scheduler, AoiShare::HALF);
            for seq in 0..100_000 {
                let packet = Datagram { class: absent.other(), flow: 0, seq, size: 1500 };
                link.queue.enqueue(link.now, packet, &mut no_drop);
                assert_eq!(link.queue.dequeue(link.now, &mut no_drop).unwrap().packet, packet);
                link.now += Saturated::RATE.time_to_send(packet.size());
            }
            // 64 KiB ahead with SDM, half a frame of 100 ms with TDM, and their usual half.
            let returned = (0..2000).filter(|_| link.send(1500, 1500) == absent).count();
            assert!((560..1500).contains(&returned), "{scheduler:?}, {absent:?}: {returned}");
        }
    }
}
