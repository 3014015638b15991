//! In-network freshness control (IFC): updates and other traffic have separate queues and share the
//! link.
//!
//! Tseng, Han, Wierman, "In-Network Freshness Control: Trading Throughput for Freshness".
//!
//! ```text
//!                 ┌─ Aoi ────────▶ a qdisc, such as Ifil ─┐
//! ─▶ Classifier ──┤                                       ├─▶ Scheduler (γ) ─▶
//!                 └─ DropAverse ─▶ a qdisc, FqCodel  ─────┘
//! ```
//!
//! The classifier reads headers, which a sender can fake. Alongside one honest flow it gains
//! nothing by that: a sender of bulk data that passes for updates loses all of them but the newest,
//! and one of updates that passes for bulk data queues up (section IV-B, "Truthful Revelation").
//! Alongside many honest streams bulk data can gain, because each of them has less than the two
//! segments per round trip that pass as updates. So TCP is never an update unless a rule forces it.
//!
//! The paper treats all UDP as updates. Here only packets marked as updates are: a wrong guess
//! would lose packets of streams, which a [`Guard`] prevents where a rule is wide.

mod any_scheduler;
mod classifier;
mod guard;
mod rules;
mod scheduler;
mod sdm;
mod share;
mod tdm;

pub use any_scheduler::{AnyScheduler, SchedulerParams};
pub use classifier::{Class, Classifier, Decision, Reason, Rule};
pub use guard::{Guard, Irregularity};
pub use rules::ParseClassifierError;
pub use scheduler::Scheduler;
pub use sdm::{Credit, Sdm, SdmParams};
pub use share::{AoiShare, AoiShareError};
pub use tdm::{Tdm, TdmParams};

use super::{Backlog, Dequeued, Drops, Header, Packet, Qdisc};
use crate::unit::{Bytes, Packets, Time};

/// Two queues, one of each class, behind a classifier and before a scheduler.
#[derive(Debug)]
pub struct Ifc<A, D, S> {
    classifier: Classifier,
    guard: Option<Guard>,
    aoi: A,
    drop_averse: D,
    scheduler: S,
}

impl<A, D, S: Scheduler> Ifc<A, D, S> {
    /// Puts the parts together, without a guard.
    pub fn new(classifier: Classifier, aoi: A, drop_averse: D, scheduler: S) -> Self {
        Self { classifier, guard: None, aoi, drop_averse, scheduler }
    }

    /// The same, with a guard against replacing streams.
    pub fn with_guard(mut self, guard: Guard) -> Self {
        self.guard = Some(guard);
        self
    }

    /// Classifies a packet on arrival, with the reason. Call it once per packet: the guard counts
    /// it.
    pub fn classify(&mut self, now: Time, header: &Header, size: Bytes) -> Decision {
        classify(&self.classifier, self.guard.as_mut(), now, header, size)
    }

    /// The share γ of the AoI class.
    pub fn aoi_share(&self) -> AoiShare {
        self.scheduler.aoi_share()
    }

    /// Changes γ from now on.
    pub fn set_aoi_share(&mut self, aoi_share: AoiShare) {
        self.scheduler.set_aoi_share(aoi_share);
    }

    /// The queue of one class.
    pub fn backlog_of<P: Packet>(&self, class: Class) -> Backlog
    where
        A: Qdisc<P>,
        D: Qdisc<P>,
    {
        match class {
            Class::Aoi => self.aoi.backlog(),
            Class::DropAverse => self.drop_averse.backlog(),
        }
    }
}

/// Classifies a packet on arrival by rules and, if there is one, by a guard.
pub fn classify(
    classifier: &Classifier,
    guard: Option<&mut Guard>,
    now: Time,
    header: &Header,
    size: Bytes,
) -> Decision {
    let decision = classifier.decide(header);
    let (Some(guard), Reason::Rule(index) | Reason::Protocol(index, _)) = (guard, decision.reason)
    else {
        return decision;
    };
    if !classifier.rules[index].is_guarded(header) {
        return decision;
    }
    match (guard.on_packet(now, header, size), decision.class) {
        (Some(irregularity), Class::Aoi) => {
            let reason = match irregularity {
                Irregularity::Protocol(protocol) => Reason::Protocol(index, protocol),
                other => Reason::Irregular(index, other),
            };
            Decision { class: Class::DropAverse, reason }
        }
        _ => decision,
    }
}

impl<P: Packet, A: Qdisc<P>, D: Qdisc<P>, S: Scheduler> Qdisc<P> for Ifc<A, D, S> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut Drops<'_, P>) {
        let class = packet
            .class()
            .unwrap_or_else(|| self.classify(now, &packet.header(), packet.size()).class);
        match class {
            Class::Aoi => self.aoi.enqueue(now, packet, drops),
            Class::DropAverse => self.drop_averse.enqueue(now, packet, drops),
        }
    }

    fn dequeue(&mut self, now: Time, drops: &mut Drops<'_, P>) -> Option<Dequeued<P>> {
        let preferred = self.scheduler.prefer(now);
        for class in [preferred, preferred.other()] {
            let next = match class {
                Class::Aoi => self.aoi.dequeue(now, drops),
                Class::DropAverse => self.drop_averse.dequeue(now, drops),
            };
            if let Some(next) = next {
                self.scheduler.on_sent(class, next.packet.size());
                return Some(next);
            }
        }
        None
    }

    fn poll_timeout(&self) -> Option<Time> {
        Time::earliest([self.aoi.poll_timeout(), self.drop_averse.poll_timeout()])
    }

    fn backlog(&self) -> Backlog {
        let (aoi, drop_averse) = (self.aoi.backlog(), self.drop_averse.backlog());
        Backlog { packets: aoi.packets + drop_averse.packets, bytes: aoi.bytes + drop_averse.bytes }
    }

    fn each_queued(&self, see: &mut dyn FnMut(&P)) {
        self.aoi.each_queued(see);
        self.drop_averse.each_queued(see);
    }

    fn marked(&self) -> Packets {
        self.aoi.marked() + self.drop_averse.marked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::{Drop, Fifo, FlowKey, Limit};
    use crate::unit::Span;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Datagram(u8);

    impl Packet for Datagram {
        fn size(&self) -> Bytes {
            Bytes::new(1000)
        }

        fn header(&self) -> Header {
            let flow = FlowKey { protocol: self.0, ..FlowKey::default() };
            Header { flow, ..Header::default() }
        }
    }

    const UPDATE: Datagram = Datagram(FlowKey::UDP);
    const BULK: Datagram = Datagram(FlowKey::TCP);

    fn udp() -> Classifier {
        "udp force".parse().unwrap()
    }

    fn never(drop: Drop<Datagram>) {
        panic!("{drop:?}");
    }

    /// A queue that sends nothing before its time.
    struct Shaped(Fifo<Datagram>, Time);

    impl Qdisc<Datagram> for Shaped {
        fn enqueue(&mut self, now: Time, packet: Datagram, drops: &mut Drops<'_, Datagram>) {
            self.0.enqueue(now, packet, drops);
        }

        fn dequeue(
            &mut self,
            now: Time,
            drops: &mut Drops<'_, Datagram>,
        ) -> Option<Dequeued<Datagram>> {
            if now < self.1 { None } else { self.0.dequeue(now, drops) }
        }

        fn poll_timeout(&self) -> Option<Time> {
            Some(self.1).filter(|_| self.0.backlog() != Backlog::default())
        }

        fn backlog(&self) -> Backlog {
            self.0.backlog()
        }
    }

    #[test]
    fn the_classes_wait_apart_and_the_preferred_one_goes_first() {
        let fifo = || Fifo::new(Limit::default());
        let sdm = Sdm::new(SdmParams::default(), AoiShare::HALF);
        let mut ifc = Ifc::new(udp(), fifo(), fifo(), sdm);
        for packet in [BULK, BULK, UPDATE, UPDATE, UPDATE] {
            ifc.enqueue(Time::ZERO, packet, &mut never);
        }
        let packets = |n| Backlog { packets: Packets::new(n), bytes: Bytes::new(1000 * n) };
        assert_eq!(ifc.backlog_of::<Datagram>(Class::Aoi), packets(3));
        assert_eq!(ifc.backlog_of::<Datagram>(Class::DropAverse), packets(2));
        assert_eq!(Qdisc::<Datagram>::backlog(&ifc), packets(5));
        for expected in [UPDATE, BULK, UPDATE, BULK, UPDATE] {
            let next = ifc.dequeue(Time::ZERO, &mut never).unwrap();
            assert_eq!(next.packet, expected);
        }
        assert_eq!(ifc.dequeue(Time::ZERO, &mut never), None);
    }

    #[test]
    fn a_child_that_makes_others_wait_says_when_it_goes_on() {
        let at = Time::ZERO + Span::from_secs(1);
        let shaped = Shaped(Fifo::new(Limit::default()), at);
        let sdm = Sdm::new(SdmParams::default(), AoiShare::ONE);
        let mut ifc = Ifc::new(udp(), shaped, Fifo::new(Limit::default()), sdm);
        ifc.enqueue(Time::ZERO, UPDATE, &mut never);
        ifc.enqueue(Time::ZERO, BULK, &mut never);
        assert_eq!(ifc.dequeue(Time::ZERO, &mut never).unwrap().packet, BULK);
        assert_eq!(ifc.dequeue(Time::ZERO, &mut never), None);
        assert_eq!(Qdisc::<Datagram>::poll_timeout(&ifc), Some(at));
        assert_eq!(ifc.dequeue(at, &mut never).unwrap().packet, UPDATE);
        assert_eq!(Qdisc::<Datagram>::poll_timeout(&ifc), None);
    }
}
