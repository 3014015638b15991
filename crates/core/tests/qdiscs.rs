//! Invariants of every queueing discipline that a configuration can name, for any arrivals.

use freshline_core::host::Band;
use freshline_core::router::{
    Backlog, CodelParams, Discipline, Drop, DropReason, DrrParams, DualConfig, Ecn, FlowKey,
    FqCodelParams, Header, IfcConfig, IfilParams, Limit, Packet, Qdisc, QdiscConfig, RedParams,
    SchedulerParams, TdmParams,
};
use freshline_core::unit::{Bytes, Packets, Span, Time};
use proptest::prelude::*;
use rand_pcg::Pcg64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Numbered {
    number: usize,
    flow: u16,
    size: u64,
    ecn: Ecn,
}

impl Packet for Numbered {
    fn size(&self) -> Bytes {
        Bytes::new(self.size)
    }

    fn header(&self) -> Header {
        let flow = FlowKey { source_port: self.flow, ..FlowKey::default() };
        let band = if self.flow.is_multiple_of(2) { Band::Urgent } else { Band::Bulk };
        Header { flow, ecn: self.ecn, band, ..Header::default() }
    }

    fn mark(&mut self) -> bool {
        if self.ecn == Ecn::Capable {
            self.ecn = Ecn::Marked;
        }
        self.ecn == Ecn::Marked
    }
}

/// The same discipline, so small that its limits are met.
fn tight(config: QdiscConfig) -> QdiscConfig {
    let limit = Limit::Packets(Packets::new(8));
    let bytes = Bytes::new(12_000);
    match config {
        QdiscConfig::Fifo { .. } => QdiscConfig::Fifo { limit },
        QdiscConfig::Lifo { .. } => QdiscConfig::Lifo { limit: Limit::Bytes(bytes) },
        QdiscConfig::Red(_) => {
            QdiscConfig::Red(RedParams { ecn: true, ..RedParams::with_limit(bytes) })
        }
        QdiscConfig::Codel(_) => {
            QdiscConfig::Codel(CodelParams { limit, ecn: true, ..CodelParams::default() })
        }
        QdiscConfig::Drr(_) => {
            QdiscConfig::Drr(DrrParams { limit, memory: bytes, queues: 4, ..DrrParams::default() })
        }
        QdiscConfig::FqCodel(_) => QdiscConfig::FqCodel(FqCodelParams {
            limit: Packets::new(8),
            memory: bytes,
            queues: 4,
            ..FqCodelParams::default()
        }),
        QdiscConfig::Ifil(_) => {
            QdiscConfig::Ifil(IfilParams { limit: Packets::new(4), ..<_>::default() })
        }
        QdiscConfig::Ifc(_) => QdiscConfig::Ifc(Box::new(IfcConfig {
            scheduler: SchedulerParams::Tdm(TdmParams::default()),
            classifier: "port=1-3 force".parse().unwrap(),
            aoi: tight(QdiscConfig::Ifil(IfilParams::default())),
            drop_averse: tight(QdiscConfig::default()),
            ..IfcConfig::default()
        })),
        QdiscConfig::Dual(_) => QdiscConfig::Dual(Box::new(DualConfig {
            urgent: tight(QdiscConfig::default()),
            bulk: tight(QdiscConfig::FqCodel(FqCodelParams::default())),
            ..DualConfig::default()
        })),
    }
}

/// Every limit that a discipline was given.
fn limits(config: &QdiscConfig) -> Vec<Limit> {
    match *config {
        QdiscConfig::Fifo { limit } | QdiscConfig::Lifo { limit } => vec![limit],
        QdiscConfig::Red(RedParams { limit, .. }) => vec![Limit::Bytes(limit)],
        QdiscConfig::Codel(CodelParams { limit, .. }) => vec![limit],
        QdiscConfig::Ifil(IfilParams { limit, .. }) => vec![Limit::Packets(limit)],
        // Each queue of a flow has the limit of its own.
        QdiscConfig::Drr(DrrParams { limit, memory, queues, .. }) => {
            vec![times(limit, queues), Limit::Bytes(memory)]
        }
        // The limits are its children's.
        QdiscConfig::Ifc(_) | QdiscConfig::Dual(_) => vec![],
        QdiscConfig::FqCodel(FqCodelParams { limit, memory, .. }) => {
            vec![Limit::Packets(limit), Limit::Bytes(memory)]
        }
    }
}

fn times(limit: Limit, count: u32) -> Limit {
    let count = u64::from(count);
    match limit {
        Limit::Packets(packets) => Limit::Packets(Packets::new(packets.get() * count)),
        Limit::Bytes(bytes) => Limit::Bytes(Bytes::new(bytes.get() * count)),
    }
}

fn keeps_order(config: &QdiscConfig) -> bool {
    !matches!(config, QdiscConfig::Lifo { .. })
}

fn every_discipline() -> impl Iterator<Item = QdiscConfig> {
    QdiscConfig::all().into_iter().flat_map(|config| [config.clone(), tight(config)])
}

#[derive(Debug, Clone)]
enum Step {
    Arrival { flow: u16, size: u64, is_capable: bool },
    Departure,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0u16..6, 1u64..4_000, any::<bool>())
            .prop_map(|(flow, size, is_capable)| Step::Arrival { flow, size, is_capable }),
        2 => Just(Step::Departure),
    ]
}

/// A discipline, and a count of its packets for comparison.
struct Audit {
    config: QdiscConfig,
    qdisc: Discipline<Numbered>,
    /// When each packet arrived.
    arrivals: Vec<(Time, Numbered)>,
    /// Whether each packet has been sent or dropped.
    settled: Vec<bool>,
    /// The last packet that each flow sent.
    last_sent: [Option<usize>; 6],
    seen_marked: u64,
}

impl Audit {
    fn new(config: QdiscConfig) -> Self {
        let qdisc = config.build(&mut Pcg64::new(7, 7)).unwrap();
        Self {
            config,
            qdisc,
            arrivals: Vec::new(),
            settled: Vec::new(),
            last_sent: [None; 6],
            seen_marked: 0,
        }
    }

    fn take(&mut self, now: Time, step: &Step) {
        let mut dropped = Vec::new();
        match *step {
            Step::Arrival { flow, size, is_capable } => {
                let ecn = if is_capable { Ecn::Capable } else { Ecn::NotCapable };
                let packet = Numbered { number: self.arrivals.len(), flow, size, ecn };
                self.arrivals.push((now, packet));
                self.settled.push(false);
                self.qdisc.enqueue(now, packet, &mut |drop| dropped.push(drop));
            }
            Step::Departure => {
                let waiting = self.qdisc.backlog().packets;
                let sent = self.qdisc.dequeue(now, &mut |drop| dropped.push(drop));
                match sent {
                    Some(sent) => self.sent(now, sent.packet, sent.sojourn),
                    None => assert!(
                        waiting == Packets::ZERO || self.qdisc.poll_timeout().is_some(),
                        "{}: {waiting} wait, nothing is sent, and no timeout is set",
                        self.config,
                    ),
                }
            }
        }
        for Drop { packet, reason } in dropped {
            assert!(
                [DropReason::QueueFull, DropReason::Replaced, DropReason::Congestion]
                    .contains(&reason)
            );
            self.settle(packet);
        }
        self.balance();
    }

    fn sent(&mut self, now: Time, packet: Numbered, sojourn: Span) {
        let (arrived, _) = self.arrivals[packet.number];
        assert_eq!(sojourn, now.since(arrived), "{}", self.config);
        self.seen_marked += u64::from(packet.ecn == Ecn::Marked);
        let last = self.last_sent[usize::from(packet.flow)].replace(packet.number);
        if keeps_order(&self.config) {
            assert!(last < Some(packet.number), "{}: out of order in its flow", self.config);
        }
        self.settle(packet);
    }

    fn settle(&mut self, packet: Numbered) {
        let (_, offered) = self.arrivals[packet.number];
        assert_eq!(Numbered { ecn: offered.ecn, ..packet }, offered);
        let was_settled = core::mem::replace(&mut self.settled[packet.number], true);
        assert!(!was_settled, "{}: {packet:?} left twice", self.config);
    }

    /// In = out + dropped + waiting, in packets and bytes, and within the limits.
    fn balance(&self) {
        let inside = self.arrivals.iter().zip(&self.settled).filter(|(_, settled)| !**settled);
        let expected = inside.fold(Backlog::default(), |sum, ((_, packet), _)| Backlog {
            packets: sum.packets + Packets::new(1),
            bytes: sum.bytes + packet.size(),
        });
        let backlog = self.qdisc.backlog();
        assert_eq!(backlog, expected, "{}", self.config);
        for limit in limits(&self.config) {
            let holds = match limit {
                Limit::Packets(most) => backlog.packets <= most,
                Limit::Bytes(most) => backlog.bytes <= most,
            };
            assert!(holds, "{}: {backlog:?} is above {limit}", self.config);
        }
    }

    /// Takes out the remaining packets, and checks that their number agrees with the count.
    fn drain(mut self, mut now: Time) {
        while self.qdisc.backlog().packets > Packets::ZERO {
            self.take(now, &Step::Departure);
            now = self.qdisc.poll_timeout().unwrap_or(now).max(now);
        }
        assert!(self.settled.iter().all(|settled| *settled), "{}: a packet vanished", self.config);
        assert!(self.seen_marked <= self.qdisc.marked().get());
    }
}

proptest! {
    #[test]
    fn nothing_vanishes_limits_hold_and_flows_keep_their_order(
        steps in prop::collection::vec((0u64..20_000_000, step()), 0..300),
    ) {
        for config in every_discipline() {
            let mut audit = Audit::new(config);
            let mut now = Time::ZERO;
            for (pause, step) in &steps {
                now += Span::from_nanos(*pause);
                audit.take(now, step);
            }
            audit.drain(now);
        }
    }

    #[test]
    fn a_clock_that_jumps_even_backwards_loses_nothing(
        steps in prop::collection::vec((any::<u64>(), step()), 0..100),
    ) {
        for config in every_discipline() {
            let mut audit = Audit::new(config);
            for (now, step) in &steps {
                audit.take(Time::from_nanos(*now), step);
            }
            audit.drain(Time::MAX);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_packets(
        steps in prop::collection::vec((0u64..5_000_000, step()), 0..200),
    ) {
        for config in every_discipline() {
            let run = || {
                let mut audit = Audit::new(config.clone());
                let mut now = Time::ZERO;
                for (pause, step) in &steps {
                    now += Span::from_nanos(*pause);
                    audit.take(now, step);
                }
                audit.settled
            };
            prop_assert_eq!(run(), run());
        }
    }
}
