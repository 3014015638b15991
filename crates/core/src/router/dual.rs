//! The dual transmit queue of a host: two bands, of which the urgent one goes first (Im, PhD
//! thesis, Figure 3.5).
//!
//! ```text
//!           ┌─ urgent ─► a qdisc, such as Fifo ────┐
//! ─► band ──┤                                      ├─► urgent unless empty, else bulk ─►
//!           └─ bulk ───► a qdisc, such as FqCodel ─┘
//! ```
//!
//! [`DualConfig::ring`](super::DualConfig::ring) is a device's ring below the bands
//! ([`Ring`](super::Ring)), as in the phone of the thesis.
//!
//! A [`BandLaw`](crate::host::BandLaw) has written the band into the packet's header. The law makes
//! few packets urgent, so their share of the link has no limit.
//!
//! # Where the paper is silent
//!
//! **Competing uploads** share the thesis's FIFO1 in the order of arrival, and a later one waits
//! behind all packets of the other (section 3.4.4). Here the bulk band may be any discipline, by
//! default FQ-CoDel with a target looser than RFC 8290's: no urgent packet waits behind this queue,
//! so that it can be as long as its streams need. CUBIC, which reduces its window by 3/10, keeps a
//! link busy behind 3/7 of the round trip; 100 ms are that for 233 ms, the round trip that a
//! download on LTE makes of 50 ms (Figure 2.7). Numbers: `docs/host.md`.

use super::{Backlog, Dequeued, Drops, Packet, Qdisc};
use crate::host::Band;
use crate::unit::{Packets, Time};

/// Two queues, of which the second sends only when the first has nothing to send.
#[derive(Debug)]
pub struct Dual<U, B> {
    urgent: U,
    bulk: B,
}

impl<U, B> Dual<U, B> {
    /// Combines the parts.
    pub fn new(urgent: U, bulk: B) -> Self {
        Self { urgent, bulk }
    }
}

impl<P: Packet, U: Qdisc<P>, B: Qdisc<P>> Qdisc<P> for Dual<U, B> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut Drops<'_, P>) {
        match packet.header().band {
            Band::Urgent => self.urgent.enqueue(now, packet, drops),
            Band::Bulk => self.bulk.enqueue(now, packet, drops),
        }
    }

    fn dequeue(&mut self, now: Time, drops: &mut Drops<'_, P>) -> Option<Dequeued<P>> {
        self.urgent.dequeue(now, drops).or_else(|| self.bulk.dequeue(now, drops))
    }

    fn poll_timeout(&self) -> Option<Time> {
        Time::earliest([self.urgent.poll_timeout(), self.bulk.poll_timeout()])
    }

    fn backlog(&self) -> Backlog {
        let (urgent, bulk) = (self.urgent.backlog(), self.bulk.backlog());
        Backlog { packets: urgent.packets + bulk.packets, bytes: urgent.bytes + bulk.bytes }
    }

    fn each_queued(&self, see: &mut dyn FnMut(&P)) {
        self.urgent.each_queued(see);
        self.bulk.each_queued(see);
    }

    fn marked(&self) -> Packets {
        self.urgent.marked() + self.bulk.marked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::{Drop, DropReason, DualConfig, FlowKey, Header, QdiscConfig};
    use crate::unit::Bytes;
    use alloc::string::ToString;
    use alloc::vec::Vec;
    use rand_pcg::Pcg64;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Datagram {
        band: Band,
        port: u16,
    }

    impl Packet for Datagram {
        fn size(&self) -> Bytes {
            Bytes::new(1000)
        }

        fn header(&self) -> Header {
            let flow = FlowKey { source_port: self.port, ..FlowKey::default() };
            Header { flow, band: self.band, ..Header::default() }
        }
    }

    const fn urgent(port: u16) -> Datagram {
        Datagram { band: Band::Urgent, port }
    }

    const fn bulk(port: u16) -> Datagram {
        Datagram { band: Band::Bulk, port }
    }

    fn dual(bulk: QdiscConfig) -> impl Qdisc<Datagram> {
        DualConfig { bulk, ..DualConfig::default() }.build(&mut Pcg64::new(7, 7)).unwrap()
    }

    fn never(drop: Drop<Datagram>) {
        panic!("{drop:?}");
    }

    fn sent(dual: &mut impl Qdisc<Datagram>) -> Vec<Datagram> {
        let next = || Some(dual.dequeue(Time::ZERO, &mut never)?.packet);
        core::iter::from_fn(next).collect()
    }

    #[test]
    fn bulk_waits_until_nothing_urgent_is_left() {
        let mut dual = dual("10p".parse().unwrap());
        for packet in [bulk(1), bulk(2), urgent(3), urgent(4)] {
            dual.enqueue(Time::ZERO, packet, &mut never);
        }
        let four = Backlog { packets: Packets::new(4), bytes: Bytes::new(4000) };
        assert_eq!(Qdisc::<Datagram>::backlog(&dual), four);
        assert_eq!(dual.dequeue(Time::ZERO, &mut never).unwrap().packet, urgent(3));
        dual.enqueue(Time::ZERO, urgent(5), &mut never);
        assert_eq!(sent(&mut dual), [urgent(4), urgent(5), bulk(1), bulk(2)]);
    }

    #[test]
    fn a_full_band_takes_nothing_from_the_other() {
        let mut dual = dual("1p".parse().unwrap());
        let mut dropped = Vec::new();
        for packet in [bulk(1), bulk(2), urgent(3)] {
            dual.enqueue(Time::ZERO, packet, &mut |drop| dropped.push(drop));
        }
        assert_eq!(dropped, [Drop { packet: bulk(2), reason: DropReason::QueueFull }]);
        assert_eq!(sent(&mut dual), [urgent(3), bulk(1)]);
    }

    #[test]
    fn fair_service_within_the_bulk_band_lets_a_late_stream_in() {
        let mut dual = dual(DualConfig::default().bulk);
        for port in [1, 1, 1, 1, 1, 1, 2, 2] {
            dual.enqueue(Time::ZERO, bulk(port), &mut never);
        }
        let ports: Vec<_> = sent(&mut dual).iter().map(|packet| packet.port).collect();
        let late = ports.iter().rposition(|port| *port == 2).unwrap();
        assert!(late < 5, "in turns, and not behind all that waited: {ports:?}");
    }

    #[test]
    fn a_band_that_cannot_be_built_is_named() {
        let config = DualConfig { bulk: "0p".parse().unwrap(), ..DualConfig::default() };
        let error = config.build::<Datagram, _>(&mut Pcg64::new(7, 7)).unwrap_err();
        assert!(error.to_string().starts_with("`bulk`: `limit` is zero"), "{error}");
    }

    #[test]
    fn bands_within_a_band_are_refused() {
        let nested = QdiscConfig::Dual(Default::default());
        let config = DualConfig { urgent: nested, ..DualConfig::default() };
        let error = config.build::<Datagram, _>(&mut Pcg64::new(7, 7)).unwrap_err();
        assert!(error.to_string().starts_with("`urgent`: `dual` is all of a host's"), "{error}");
    }
}
