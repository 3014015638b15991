//! The server of downlinks: its law, with or without the guard, and the load that its flows offer.

use std::cell::RefCell;
use std::rc::Rc;

use freshline_core::unit::{BitRate, Bytes, Span, Time};
use freshline_core::wlan::{
    Account, Belief, Delivery, DownlinkLaw, Guarded, Report, StationId, TooManyStations,
};

use super::DownlinkSettings;
use super::offered::Offered;
use crate::world::parcel::Paced;

/// One law for all stations to which a server sends. Clones share the same state.
#[derive(Debug, Clone)]
pub struct Server(Rc<RefCell<Edge>>);

#[derive(Debug)]
struct Edge {
    law: Guarded,
    /// The bytes sent to all stations, and those delivered.
    offered: Offered,
}

impl Server {
    /// A server without stations, whose law alone decides.
    pub fn new(law: Box<dyn DownlinkLaw>) -> Self {
        Self::driven(Guarded::without_limits(law))
    }

    /// A server whose rate is limited by the deliveries that clients confirm, as in a live server.
    pub fn guarded(law: Box<dyn DownlinkLaw>, interval: Span) -> Self {
        Self::driven(Guarded::new(law, interval))
    }

    pub(super) fn on_join(&self, now: Time, station: StationId) -> Result<(), TooManyStations> {
        self.0.borrow_mut().law.on_join(now, station)
    }

    pub(super) fn on_leave(&self, now: Time, station: StationId) {
        self.0.borrow_mut().law.on_leave(now, station);
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.0.borrow().law.poll_timeout()
    }

    pub(super) fn begin_measuring(&self, now: Time) {
        self.0.borrow_mut().offered = Offered::since(now);
    }

    pub(super) fn on_sent(&self, now: Time, size: Bytes) {
        self.0.borrow_mut().offered.on_sent(now, size);
    }

    pub(super) fn on_arrived(&self, now: Time, size: Bytes) {
        self.0.borrow_mut().offered.on_arrived(now, size);
    }

    /// The maximum rate sent in any 5 s until `now`, in bit/s, and the maximum ratio of sent to
    /// delivered bytes.
    pub(super) fn offered(&self, now: Time) -> (Option<f64>, Option<f64>) {
        let edge = self.0.borrow();
        (edge.offered.worst(now), edge.offered.worst_ratio(now))
    }

    fn driven(law: Guarded) -> Self {
        Self(Rc::new(RefCell::new(Edge { law, offered: Offered::default() })))
    }

    pub(super) fn is_guarded(&self) -> bool {
        self.0.borrow().law.is_guarded()
    }

    pub(super) fn rate(&self, station: StationId) -> BitRate {
        self.0.borrow().law.rate(station)
    }

    pub(super) fn target(&self, station: StationId) -> Option<f64> {
        self.0.borrow().law.target(station)
    }

    pub(super) fn belief(&self, station: StationId) -> Belief {
        self.0.borrow().law.belief(station)
    }

    pub(super) fn limit(&self, station: StationId) -> Option<(BitRate, bool)> {
        let law = &self.0.borrow().law;
        Some((law.limit(station)?, law.is_limited(station)))
    }

    pub(super) fn handle_timeout(&self, now: Time) {
        let mut edge = self.0.borrow_mut();
        if edge.law.poll_timeout().is_some_and(|due| due <= now) {
            edge.law.handle_timeout(now);
        }
    }

    pub(super) fn on_client_report(&self, now: Time, station: StationId, content: &ReportContent) {
        let mut edge = self.0.borrow_mut();
        if let Some(delivery) = content.delivery {
            // In the lab, packets are counted with their headers.
            edge.law.on_delivery(now, station, &delivery, Bytes::default());
        }
        if let Some(report) = content.report {
            edge.law.on_report(now, station, report);
        }
    }
}

/// The content of a report.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReportContent {
    pub(super) report: Option<Report>,
    /// `None` where the server has no guard.
    pub(super) delivery: Option<Delivery>,
}

/// The counters of a guarded server's client.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    account: Account,
    /// The number of the newest packet, and when it was sent and received.
    newest: Option<(u64, Time, Time)>,
    packets: u64,
}

impl Arrivals {
    /// A packet has arrived at the client.
    pub(super) fn on_packet(&mut self, now: Time, packet: Paced, settings: DownlinkSettings) {
        let DownlinkSettings { packet: size, interval, .. } = settings;
        self.account.on_packet(now, packet.seq, packet.sent_at, size, interval);
        self.packets += 1;
        if self.newest.is_none_or(|(seq, ..)| packet.seq > seq) {
            self.newest = Some((packet.seq, packet.sent_at, now));
        }
    }

    fn missing(&self) -> u64 {
        self.newest.map_or(0, |(seq, ..)| (seq + 1).saturating_sub(self.packets))
    }

    pub(super) fn urgent_at(&self, interval: Span) -> Option<Time> {
        self.account.urgent_at(self.missing(), interval)
    }

    pub(super) fn report(&mut self, now: Time) -> Option<Delivery> {
        let (newest_seq, newest_sent_at, newest_received_at) = self.newest?;
        let delivered = Some(self.account.report(now, self.missing()));
        let packets = self.packets as u32;
        Some(Delivery {
            newest_seq,
            newest_sent_at,
            newest_received_at,
            packets,
            delivered,
            given_up: 0,
        })
    }
}
