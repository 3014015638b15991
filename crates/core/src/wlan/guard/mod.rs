//! A limit on the rate of every downlink law, so that a slow backhaul is not overloaded.
//!
//! The laws control packets per frame, which measure only the Wi-Fi. If another link on the path is
//! slower, levels are low and a law raises its rate without bound ("detect when this is violated":
//! Hassani, MSc thesis, section 4.5). The guard limits each client's rate to the rate that its
//! reports confirm.
//!
//! ```text
//! rate = min(law's rate, L)
//!
//!                          congestion                    L = C·u
//!   open ───────────────────────────────────────► limited ◄──┐
//!   L ≤ 4·(confirmed rate)                          │        │ congestion
//!                                  clean: L = 0.98·C▼        │
//!                                                 probing ───┘
//!                                                  L ← L·(1 + s),  s = 5, 10, 20 … 100 %
//!
//! congestion: excess above 20 ms, or a loss of more than 0.2 %
//! C = arrival rate at that time   u = 1 − excess/0.5 s − lost/(C·1 s), at least 1/2
//! clean:      excess up to 10 ms, and no congestion by loss
//! ```
//!
//! Delays, losses and rates are the client's ([`Delivered`](super::Delivered)), counted in bytes
//! with their headers.
//!
//! - **Open.** A client begins at 10 Mbit/s divided by the number of clients. Until the first
//!   congestion, its limit is four times the confirmed rate; if there was always something to send,
//!   it also grows by half per report, up to the law's rate.
//! - **Limited.** C is at most the former limit, so that packets that were held up do not raise it.
//!   Losses below 8 % lower the limit once per interval, or once per 0.5 s if that is shorter.
//!   Reports of packets sent before the limit was lowered lower it to C, not to C·u again.
//! - **Probing.** A step requires a report of packets sent at least half an interval after the
//!   previous step, and a sending rate of at least half of the limit. It leads to at most twice the
//!   confirmed rate. The first step is 5 % after a failed probe, 20 % after other congestion, and
//!   100 % after congestion that took more than three quarters of the limit. After failed probes
//!   the limit holds for one, then two intervals.
//! - **Queues of other traffic.** If the excess does not fall by 30 % in 1.5 s in which no more was
//!   sent than arrived, it is ignored for 30 s. In this time the limit follows the arrival rate,
//!   and steps do not double.
//! - **Losses by other traffic.** If up to 5 % are lost for 1.5 s although the limit has fallen,
//!   this fraction is ignored for 30 s.
//! - **Little to send.** If the application paused and less than half of the limit was sent,
//!   congestion lowers the limit to no less than half.
//! - **A late sender.** On a busy host packets are sent late, and arrivals measure the sender. If
//!   it gave up more than a tenth of the time ([`Delivery::given_up`](super::Delivery::given_up)),
//!   C is the arrival rate without that time, and a step leads to at most four times the confirmed
//!   rate and does not require that half of the limit was sent. The same holds for pauses of an
//!   application, with which C can be as large as the limit: then an excess without loss does not
//!   lower the limit, as the queue drained in the pause.
//! - **Outages.** Packets lost in a gap in which neither the application nor the sender paused are
//!   ignored if, before and after it, packets arrived as fast as they were sent.
//! - **Silence.** The limit halves after 3¼ intervals without a report, and after each further
//!   interval; intervals count as at least 0.5 s here, and 2.5 packets must have been due at the
//!   limit. A report of one packet among many does not end silence. Then the limit continues from
//!   its halved value, by steps of 100 %.
//!
//! # The law below the guard
//!
//! While its rate is above the limit, a station whose level is below its target is
//! application-limited for the law: its integrators (z, x, ν) hold. A level above the target
//! counts, so a law lowers its rate when the Wi-Fi becomes the bottleneck. ĉ is learnt from the
//! actual sending rate ([`DownlinkLaw::on_paced`]).
//!
//! # Untrusted clients
//!
//! Each client has its own limit, from its own reports: a client with false reports gets no more
//! than the law's rate, and does not affect the limits of others.

mod limit;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroU16;

use self::limit::Limit;
use super::delivery::Delivery;
use super::{Belief, DownlinkLaw, Report, StationId, TooManyStations};
use crate::unit::{BitRate, Bytes, Span, Time};

/// A law with its guard.
#[derive(Debug)]
pub struct Guarded {
    law: Box<dyn DownlinkLaw>,
    /// The interval of clients' reports; `None` without limits.
    interval: Option<Span>,
    /// Sorted by their numbers.
    stations: Vec<Guard>,
}

/// The guard of one station.
#[derive(Debug)]
struct Guard {
    id: StationId,
    limit: Limit,
    /// Whether the limit was below the law's rate since the last report of a level.
    has_bound: bool,
}

impl Guarded {
    /// A law without stations, whose clients report every `interval`.
    pub fn new(law: Box<dyn DownlinkLaw>, interval: Span) -> Self {
        Self { law, interval: Some(interval), stations: Vec::new() }
    }

    /// A law without limits.
    pub fn without_limits(law: Box<dyn DownlinkLaw>) -> Self {
        Self { law, interval: None, stations: Vec::new() }
    }

    /// Whether rates are limited.
    pub fn is_guarded(&self) -> bool {
        self.interval.is_some()
    }

    /// The law.
    pub fn law(&self) -> &dyn DownlinkLaw {
        &*self.law
    }

    /// `station` has reported its arrivals; `headers` is the size of the headers around each
    /// datagram. Call it before [`DownlinkLaw::on_report`] if a report has both.
    pub fn on_delivery(
        &mut self,
        now: Time,
        station: StationId,
        delivery: &Delivery,
        headers: Bytes,
    ) {
        self.note_bound(station);
        let wanted = self.law.rate(station);
        let clients = self.stations.len();
        if let Some(guard) = self.get_mut(station) {
            guard.limit.on_delivery(now, delivery, headers.get(), wanted, clients);
        }
        self.note_bound(station);
    }

    /// L: the maximum rate of IP packets to `station`; `None` for an unknown station, or without
    /// limits.
    pub fn limit(&self, station: StationId) -> Option<BitRate> {
        self.find(station).ok().map(|at| self.stations[at].limit.rate())
    }

    /// Whether the law would send more than the limit.
    pub fn is_limited(&self, station: StationId) -> bool {
        self.limit(station).is_some_and(|limit| limit < self.law.rate(station))
    }

    fn note_bound(&mut self, station: StationId) {
        if self.is_limited(station)
            && let Some(guard) = self.get_mut(station)
        {
            guard.has_bound = true;
        }
    }

    fn find(&self, station: StationId) -> Result<usize, usize> {
        self.stations.binary_search_by_key(&station, |known| known.id)
    }

    fn get_mut(&mut self, station: StationId) -> Option<&mut Guard> {
        let at = self.find(station).ok()?;
        self.stations.get_mut(at)
    }
}

impl DownlinkLaw for Guarded {
    fn name(&self) -> &'static str {
        self.law.name()
    }

    fn on_join(&mut self, now: Time, station: StationId) -> Result<(), TooManyStations> {
        self.law.on_join(now, station)?;
        if let (Some(interval), Err(at)) = (self.interval, self.find(station)) {
            let limit = Limit::new(now, interval, self.stations.len());
            self.stations.insert(at, Guard { id: station, limit, has_bound: false });
        }
        Ok(())
    }

    fn on_leave(&mut self, now: Time, station: StationId) {
        self.law.on_leave(now, station);
        if let Ok(at) = self.find(station) {
            self.stations.remove(at);
        }
    }

    fn on_report(&mut self, now: Time, station: StationId, report: Report) {
        self.note_bound(station);
        self.law.on_report(now, station, report);
        let limit = self.limit(station);
        let is_limited = self.is_limited(station);
        let Some(guard) = self.get_mut(station) else { return };
        if core::mem::replace(&mut guard.has_bound, is_limited) {
            self.law.on_paced(now, station, self.law.rate(station).min(limit.unwrap_or_default()));
            let is_above = self.law.target(station).is_some_and(|target| report.level > target);
            if !is_above {
                self.law.on_app_limited(now, station);
            }
        }
    }

    fn on_max_packets(&mut self, station: StationId, packets: Option<NonZeroU16>) {
        self.law.on_max_packets(station, packets);
    }

    fn on_app_limited(&mut self, now: Time, station: StationId) {
        self.law.on_app_limited(now, station);
        if let Some(guard) = self.get_mut(station) {
            guard.limit.on_app_limited();
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.law.poll_timeout().is_some_and(|due| due <= now) {
            self.law.handle_timeout(now);
        }
        for guard in &mut self.stations {
            guard.limit.handle_timeout(now);
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        let silences = self.stations.iter().filter_map(|guard| guard.limit.poll_timeout());
        self.law.poll_timeout().into_iter().chain(silences).min()
    }

    fn rate(&self, station: StationId) -> BitRate {
        let law = self.law.rate(station);
        self.limit(station).map_or(law, |limit| law.min(limit))
    }

    fn target(&self, station: StationId) -> Option<f64> {
        self.law.target(station)
    }

    fn belief(&self, station: StationId) -> Belief {
        self.law.belief(station)
    }
}
