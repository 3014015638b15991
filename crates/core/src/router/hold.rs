//! Hold: delays an update while the link is free, if waiting for the next one lowers the mean age.
//!
//! Tseng, Han, Wierman, "In-Network Freshness Control: Trading Throughput for Freshness", section
//! V-A. The example there: an update each T = 1, which takes d = 1.9 to send. IFIL sends the update
//! that arrived during a transmission at its end, 0.1 before the next one; waiting for that one
//! makes the mean age 2.9 in place of 3.3 to 3.4 (the paper prints 3.74).
//!
//! # Law
//!
//! [`PulseTrain::services_before_a_wait`] returns r, the best number of services without a pause
//! before one waits, from T and P, the time from the start of one service to the start of the next:
//!
//! ```text
//!                  r updates sent that had been queued
//! ┌─────────────┐ ────────────────────────────────────► ┌──────┐
//! │ serve (IFIL)│                                       │ hold │
//! └─────────────┘ ◄──────────────────────────────────── └──────┘
//!                  an update arrives, and the newest is sent as soon as the link is free; or PATIENCE · T
//!                  since the one that is held arrived
//! ```
//!
//! Where P is at most T, each update is served on arrival, and none is held.
//!
//! # Where the paper is silent
//!
//! - It has one flow. With several queued flows the link need not idle, and all are served as by
//!   IFIL; only an update that is alone in the queue is held.
//! - It has exact periods. A late or lost update must not delay the held one, which is sent 1¼
//!   update periods after its arrival at the latest ([`PATIENCE`]).
//! - In [`Ifc`](super::Ifc) the other class has the link while an update is held. The held update
//!   may then find the link busy when its successor arrives, by up to a packet of that class.

use super::analysis::PulseTrain;
use super::{Backlog, Dequeued, Drops, Packet, Qdisc, QdiscError};
use crate::unit::{Packets, Span, Time};

/// An update is held until this many quarters of an update period after its arrival: jitter of a
/// quarter of the period costs nothing, and a source that ends delays its last update by as much.
const PATIENCE: u64 = 5;

/// When an update is held: the flow's periods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Params {
    /// T: from one update to the next, above zero.
    pub update_period: Span,
    /// P: the minimum time from the start of one service to the start of the next: an update's size
    /// with headers over the rate, if it has the link alone. Above zero.
    pub output_period: Span,
}

impl Params {
    /// How many queued updates are sent before one is held; `None` to hold none.
    pub(super) fn checked(self) -> Result<Option<u64>, QdiscError> {
        for (field, value) in
            [("update_period", self.update_period), ("output_period", self.output_period)]
        {
            if value == Span::ZERO {
                return Err(QdiscError::Zero { field, example: "10ms" });
            }
        }
        let train = PulseTrain {
            update_period: self.update_period,
            output_period: self.output_period,
            transmission: Span::ZERO,
            propagation: Span::ZERO,
        };
        Ok(train.services_before_a_wait())
    }
}

/// A queue with one packet for each flow, which holds a packet that is alone.
#[derive(Debug)]
pub struct Hold<Q> {
    queue: Q,
    services: Option<u64>,
    patience: Span,
    /// How many queued packets were sent since one was sent on arrival.
    queued_sent: u64,
    /// When the newest packet arrived.
    arrived: Time,
    /// The latest end of the hold: set when holding begins, so that later packets do not move it,
    /// until one is sent.
    until: Option<Time>,
    /// Whether another packet has arrived since holding began.
    has_successor: bool,
}

impl<Q> Hold<Q> {
    /// Holds packets of `queue`.
    ///
    /// # Errors
    /// [`QdiscError::Zero`].
    pub fn new(queue: Q, params: Params) -> Result<Self, QdiscError> {
        Ok(Self {
            queue,
            services: params.checked()?,
            patience: params.update_period * PATIENCE / 4,
            queued_sent: 0,
            arrived: Time::ZERO,
            until: None,
            has_successor: false,
        })
    }

    /// Whether to hold the only packet of the queue.
    fn holds(&mut self, now: Time) -> bool {
        let is_due = self.services.is_some_and(|services| self.queued_sent >= services);
        if !is_due || self.has_successor || self.arrived == now {
            return false;
        }
        now < *self.until.get_or_insert(self.arrived + self.patience)
    }
}

impl<P: Packet, Q: Qdisc<P>> Qdisc<P> for Hold<Q> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut Drops<'_, P>) {
        self.arrived = now;
        self.has_successor |= self.until.is_some();
        self.queue.enqueue(now, packet, drops);
    }

    fn dequeue(&mut self, now: Time, drops: &mut Drops<'_, P>) -> Option<Dequeued<P>> {
        let is_alone = self.queue.backlog().packets == Packets::new(1);
        if is_alone && self.holds(now) {
            return None;
        }
        (self.until, self.has_successor) = (None, false);
        let next = self.queue.dequeue(now, drops)?;
        let was_queued = next.sojourn > Span::ZERO;
        self.queued_sent = if was_queued { self.queued_sent.saturating_add(1) } else { 0 };
        Some(next)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.until.filter(|_| !self.has_successor)
    }

    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    fn each_queued(&self, see: &mut dyn FnMut(&P)) {
        self.queue.each_queued(see);
    }

    fn marked(&self) -> Packets {
        self.queue.marked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::age::AgeProcess;
    use crate::link::{Hop, LinkParams};
    use crate::router::{DropReason, FlowKey, Header, Ifil, IfilParams};
    use crate::unit::{BitRate, Bytes};
    use alloc::string::ToString;
    use alloc::vec::Vec;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Update {
        flow: u16,
        /// At 1 ns per byte, ns.
        size: u64,
        generated: Time,
    }

    impl Packet for Update {
        fn size(&self) -> Bytes {
            Bytes::new(self.size)
        }

        fn header(&self) -> Header {
            let flow = FlowKey { source_port: self.flow, ..FlowKey::default() };
            Header { flow, ..Header::default() }
        }
    }

    fn holding(update_period: u64, output_period: u64) -> Hold<Ifil<Update>> {
        let [update_period, output_period] = [update_period, output_period].map(Span::from_nanos);
        let ifil = Ifil::new(IfilParams::default(), &mut Pcg64::seed_from_u64(7)).unwrap();
        Hold::new(ifil, Params { update_period, output_period }).unwrap()
    }

    /// The mean age of a flow through a link that sends an update in `transmission`, both in ns,
    /// after the first few updates; `late` returns the delay of each update.
    fn age(period: u64, transmission: u64, mut late: impl FnMut(u64) -> u64) -> f64 {
        let link = LinkParams { rate: Some(BitRate::from_bps(8_000_000_000)), ..<_>::default() };
        let mut hop = Hop::new(link, holding(period, transmission), Pcg64::seed_from_u64(1));
        let (mut age, mut mark, mut last) = (AgeProcess::new(), None, Time::ZERO);
        for number in 0..4000 {
            let now = Time::from_nanos(number * period + late(number));
            while let Some(wake) = hop.poll_timeout().filter(|wake| *wake <= now) {
                while let Some(sent) = hop.poll(wake, &mut |_| {}) {
                    age.on_update(sent.at, sent.packet.generated);
                    last = sent.at;
                }
            }
            if number == 200 {
                mark = Some(age.mark(last));
            }
            let update = Update { flow: 1, size: transmission, generated: now };
            hop.enqueue(now, update, &mut |drop| assert_eq!(drop.reason, DropReason::Replaced));
        }
        age.mean_since(mark.unwrap(), last).unwrap().as_nanos() as f64
    }

    #[test]
    fn the_papers_example_has_2_9() {
        let ns = age(1000, 1900, |_| 0);
        assert!((2898.0..2902.0).contains(&ns), "{ns}");
    }

    #[test]
    fn jitter_of_a_tenth_of_the_period_costs_little() {
        let mut rng = Pcg64::seed_from_u64(3);
        let ns = age(1000, 1900, |_| rand::RngExt::random_range(&mut rng, 0..100));
        assert!((2850.0..3050.0).contains(&ns), "{ns}");
    }

    #[test]
    fn a_link_that_is_busy_whenever_an_update_comes_sends_updates_all_the_same() {
        let mut queue = holding(1000, 1900);
        let mut sent = 0;
        for number in 0..1000 {
            let came = Time::from_nanos(number * 1000);
            queue.enqueue(came, Update { flow: 1, size: 1900, generated: came }, &mut |_| {});
            for after in [300, 800] {
                sent +=
                    u64::from(queue.dequeue(came + Span::from_nanos(after), &mut |_| {}).is_some());
            }
        }
        // One is held until its successor has come, and that one is sent.
        assert!((490..=510).contains(&sent), "{sent}");
    }

    #[test]
    fn an_update_without_a_successor_is_sent_after_a_quarter_of_a_period_more() {
        let mut queue = holding(1000, 1900);
        let at = |ns| Time::from_nanos(ns);
        let offer = |queue: &mut Hold<_>, ns, flow| {
            let update = Update { flow, size: 1900, generated: at(ns) };
            queue.enqueue(at(ns), update, &mut |drop| panic!("{drop:?}"));
        };
        let serve = |queue: &mut Hold<Ifil<Update>>, ns| {
            queue.dequeue(at(ns), &mut |_| {}).map(|sent| sent.packet.flow)
        };
        offer(&mut queue, 0, 1);
        assert_eq!(serve(&mut queue, 0), Some(1), "it has just come");
        offer(&mut queue, 1000, 1);
        assert_eq!((serve(&mut queue, 1900), queue.poll_timeout()), (None, Some(at(2250))));
        assert_eq!(serve(&mut queue, 2249), None);
        assert_eq!((serve(&mut queue, 2250), queue.poll_timeout()), (Some(1), None));
        assert_eq!(
            (serve(&mut queue, 2250), queue.poll_timeout()),
            (None, None),
            "nothing is queued"
        );
    }

    #[test]
    fn several_flows_are_served_as_by_ifil() {
        let mut queue = holding(1000, 1900);
        let mut sent = Vec::new();
        for flow in [1, 2] {
            let update = Update { flow, size: 1900, generated: Time::ZERO };
            queue.enqueue(Time::ZERO, update, &mut |drop| panic!("{drop:?}"));
        }
        while let Some(next) = queue.dequeue(Time::from_nanos(100), &mut |_| {}) {
            sent.push(next.packet.flow);
        }
        assert_eq!(sent, [1], "the second one is alone now, and held");
        assert_eq!(queue.poll_timeout(), Some(Time::from_nanos(1250)));
    }

    #[test]
    fn a_link_that_is_fast_enough_holds_none() {
        let ns = age(1000, 400, |_| 0);
        assert!((899.0..901.0).contains(&ns), "{ns}");
    }

    #[test]
    fn periods_of_zero_are_refused() {
        let params = Params { update_period: Span::ZERO, output_period: Span::from_millis(1) };
        let refused = params.checked().unwrap_err().to_string();
        assert!(refused.contains("`update_period` is zero"), "{refused}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn the_age_is_that_of_the_best_policy(
            update_period in 10u64..1000, transmission in 10u64..4000,
        ) {
            let train = PulseTrain {
                update_period: Span::from_nanos(1000 * update_period),
                output_period: Span::ZERO,
                transmission: Span::from_nanos(1000 * transmission),
                propagation: Span::ZERO,
            };
            let optimum = train.optimal_age().as_nanos() as f64;
            let ns = age(1000 * update_period, 1000 * transmission, |_| 0);
            // Updates that come as a service starts are too late in a link.
            prop_assume!(transmission % update_period != 0);
            prop_assert!((ns / optimum - 1.0).abs() < 0.005, "{} for {}", ns, optimum);
        }
    }
}
