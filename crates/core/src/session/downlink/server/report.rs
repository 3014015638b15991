//! Processing of clients' reports.

use core::hash::Hash;

use super::{Server, ServerEvent};
use crate::session::clock_offset::ClockOffset;
use crate::session::downlink::datagram::ReceivedDatagram;
use crate::session::downlink::record::ClientKey;
use crate::session::downlink::types::ServerIgnored;
use crate::unit::Time;
use crate::wire::Report;
use crate::wlan::{Delivery, DownlinkLaw, StationId, urgent_gap};

impl<P: Copy + Eq + Hash> Server<P> {
    pub(super) fn on_report(
        &mut self,
        now: Time,
        peer: P,
        datagram: &ReceivedDatagram<'_>,
        report: &Report,
    ) -> Result<(), ServerIgnored> {
        let Some(key) = self.find(report.session) else {
            // With this challenge, a restarted server finds its clients again.
            return self.challenge(now, peer, report.session);
        };
        let record = &mut self.records[key as usize];
        if record.peer != peer {
            return self.challenge(now, peer, report.session);
        }
        if !record.has_sent(report) {
            return Err(ServerIgnored::NeverSent);
        }
        let now = datagram.received_at.unwrap_or(now);
        // Urgent reports have no level: they must not block the next report that has one.
        let interval = self.params.interval;
        let (last, too_soon) = match report.seen {
            Some(_) => (record.levelled_at, interval / 4),
            None => (record.reported.map(|(last, ..)| last), urgent_gap(interval) / 2),
        };
        let is_too_soon = last.is_some_and(|last| now.since(last) < too_soon);
        if is_too_soon || !record.is_news(report) {
            return Err(ServerIgnored::Untimely);
        }
        // Several reports may have the same newest packet.
        let is_newer = record.reported.is_none_or(|(_, seq, _)| report.newest_seq > seq);
        record.reported = Some((now, report.newest_seq, report.number));
        record.heard_at = now;
        record.reports += 1;
        record.received = report.received;
        record.max_packets = report.max_packets;
        if let Some(seen) = report.marks.seen.filter(|_| is_newer) {
            record.marks.forward.record(self.params.dscp, seen);
        }
        if let (Some(sent), Some(seen)) = (report.marks.sent, datagram.dscp) {
            record.marks.reverse.record(sent, seen);
        }
        let given_up = record.given_up_before(report.newest_seq);
        let rtt = now.since(report.newest_sent_at) - report.hold;
        record.rtt = Some(rtt);
        let [sent_at, received_at] = [report.newest_sent_at, report.newest_received_at];
        record.clock_offset.on_ack(now, sent_at, received_at, rtt);
        record.delay = record
            .clock_offset
            .nanos()
            .map(|offset| received_at.since(ClockOffset::translate(sent_at, offset)));
        let delivery = Delivery {
            newest_seq: report.newest_seq,
            newest_sent_at: sent_at,
            newest_received_at: received_at,
            packets: report.received,
            delivered: report.delivered,
            given_up,
        };
        self.law.on_delivery(now, StationId(key), &delivery, self.params.headers);
        self.law.on_max_packets(StationId(key), report.max_packets);
        if let Some(seen) = report.seen {
            record.seen = Some(seen);
            record.levelled_at = Some(now);
            self.law.on_report(now, StationId(key), seen);
        }
        self.counters.reports += 1;
        self.report(ServerEvent::Reported(ClientKey(key)));
        Ok(())
    }
}
