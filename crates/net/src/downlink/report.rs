//! The reports of both ends of a downlink.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::num::NonZeroU16;

use freshline_core::dscp::Dscp;
use freshline_core::link::SpanHistogram;
use freshline_core::session::downlink::{
    Client, ClientCounters, ClientKey, ClientRecord, Server, ServerCounters,
};
use freshline_core::unit::{Span, Time};
use freshline_core::wlan::{self, Belief};
use serde::Serialize;

use super::air::CaptureReport;
use crate::carrier::Peer;
use crate::marks::MarkReport;
use crate::refusal::Refusals;

/// The maximum number of departed clients in a report.
const ENDED: usize = 100;

/// A client's status at its server.
#[derive(Debug, Clone, Serialize)]
pub struct ClientStatus {
    /// The name that the client gave itself, or its number if it gave none.
    pub client: String,
    /// The number of clients that had joined the server, including this one.
    pub number: u64,
    /// The address from which it joined.
    pub address: SocketAddr,
    /// How long it has been joined, in s.
    pub duration_s: f64,
    /// The rate of IP packets to it, in bit/s: the law's, or the limit if that is lower.
    pub rate_bps: u64,
    /// The limit of that rate that the client's reports confirm, in bit/s; `None` without a guard,
    /// and for a client that has left.
    pub limit_bps: Option<u64>,
    /// Whether the limit is below the law's rate: the bottleneck is not the Wi-Fi link.
    pub limited: bool,
    /// The law's target level for it, in packets per frame.
    pub target: Option<f64>,
    /// ĉ, in ms: the law's estimate of the overhead per frame besides its packets.
    pub overhead_ms: Option<f64>,
    /// ν: the law's target for the slowest client's level, in packets per frame.
    pub slowest_target: Option<f64>,
    /// z: the level from which the law calculates its rate, in packets per frame.
    pub control_level: Option<f64>,
    /// Packets per frame, the mean of its last report.
    pub level: Option<f64>,
    /// The standard deviation of packets per frame.
    pub level_deviation: Option<f64>,
    /// The rate of its frames' data symbols in bit/s, as the client reported it.
    pub mcs_rate_bps: Option<u64>,
    /// The maximum number of packets in a frame, as the client reported it; `None` if it did not.
    pub max_packets: Option<NonZeroU16>,
    /// The fraction of packets lost, from its last report.
    pub loss: Option<f64>,
    /// The one-way delay of the packet in its last report, in ms.
    pub delay_ms: Option<f64>,
    /// The round trip of its last report, in ms.
    pub rtt_ms: Option<f64>,
    /// Packets sent to it.
    pub packets: u64,
    /// Payload of these, in bytes.
    pub payload_bytes: u64,
    /// Payloads that it did not get because they had become too old.
    pub dropped: u64,
    /// Reports received.
    pub reports: u64,
    /// The code points of packets and reports.
    pub marks: MarkReport,
}

/// A server's run in numbers.
#[derive(Debug, Clone, Serialize)]
pub struct ServerReport {
    /// Length of the run in s.
    pub duration_s: f64,
    /// The law's name.
    pub law: &'static str,
    /// Counters over all clients.
    #[serde(flatten)]
    pub counters: ServerCounters,
    /// Refused datagrams, or entries displaced by newcomers, by reason.
    #[serde(rename = "refused_by")]
    pub refusals: Refusals,
    /// Packets that the socket refused.
    pub unsent: u64,
    /// The number of joined clients.
    pub clients_active: usize,
    /// The clients that are joined now.
    pub clients: Vec<ClientStatus>,
    /// The last status of clients that have left, the latest last, up to 100.
    pub ended: Vec<ClientStatus>,
}

/// Statistics kept in addition to the sessions.
#[derive(Debug, Default)]
pub(super) struct Details {
    ended: VecDeque<ClientStatus>,
}

impl Details {
    /// Records the last status of a client that has left.
    pub(super) fn end(&mut self, record: &ClientRecord<Peer>, dscp: Dscp, now: Time, dropped: u64) {
        self.ended.push_back(status(record, dscp, now, dropped));
        if self.ended.len() > ENDED {
            self.ended.pop_front();
        }
    }

    pub(super) fn report(
        &self,
        server: &Server<Peer>,
        [began_at, now]: [Time; 2],
        unsent: u64,
        most: usize,
        dropped: impl Fn(ClientKey) -> u64,
    ) -> ServerReport {
        let clients = server.clients().take(most).map(|(client, record)| {
            let Belief { overhead, slowest_target, control_level } =
                server.law().belief(client.station());
            let limit = server.limit(client);
            ClientStatus {
                rate_bps: server.rate(client).as_bps(),
                limit_bps: limit.map(|(limit, _)| limit.as_bps()),
                limited: limit.is_some_and(|(_, is_limited)| is_limited),
                target: server.law().target(client.station()),
                overhead_ms: overhead.map(Span::as_millis_f64),
                slowest_target,
                control_level,
                ..status(record, server.dscp(), now, dropped(client))
            }
        });
        ServerReport {
            duration_s: now.since(began_at).as_secs_f64(),
            law: server.law().name(),
            counters: *server.counters(),
            refusals: Refusals::default(),
            unsent,
            clients_active: server.clients().count(),
            clients: clients.collect(),
            ended: self.ended.iter().cloned().collect(),
        }
    }
}

/// The status without the law's values.
fn status(record: &ClientRecord<Peer>, dscp: Dscp, now: Time, dropped: u64) -> ClientStatus {
    let seen = record.seen;
    ClientStatus {
        client: match &*record.name {
            "" => record.number.to_string(),
            name => name.to_string(),
        },
        number: record.number,
        address: record.peer.remote(),
        duration_s: now.since(record.joined_at).as_secs_f64(),
        rate_bps: 0,
        limit_bps: None,
        limited: false,
        target: None,
        overhead_ms: None,
        slowest_target: None,
        control_level: None,
        level: seen.map(|seen| seen.level),
        level_deviation: seen.map(|seen| seen.deviation),
        mcs_rate_bps: seen.map(|seen| seen.rate.as_bps()),
        max_packets: record.max_packets,
        loss: seen.map(|seen| seen.loss),
        delay_ms: record.delay.map(Span::as_millis_f64),
        rtt_ms: record.rtt.map(Span::as_millis_f64),
        packets: record.packets,
        payload_bytes: record.payload_bytes,
        dropped,
        reports: record.reports,
        marks: MarkReport::of(dscp, &record.marks),
    }
}

/// A client's run in numbers, from the end of its warm-up on.
#[derive(Debug, Clone, Serialize)]
pub struct ClientReport {
    /// Length of the run in s, without the warm-up.
    pub duration_s: f64,
    /// Payload received, in bit/s.
    pub goodput_bps: f64,
    /// The mean number of packets per frame.
    pub level: Option<f64>,
    /// The mean of the standard deviations in its reports.
    pub level_deviation: Option<f64>,
    /// Frames counted.
    pub frames: u64,
    /// The fraction of packets lost, 0 to 1.
    pub loss: Option<f64>,
    /// Mean one-way delay in ms, from the server's sending to the kernel's receive time here. It is
    /// derived from round trips, with an error of at most half of the minimum round trip.
    pub delay_mean_ms: Option<f64>,
    /// Median of the same.
    pub delay_p50_ms: Option<f64>,
    /// 99th percentile of the same.
    pub delay_p99_ms: Option<f64>,
    /// Maximum of the same.
    pub delay_max_ms: Option<f64>,
    /// Counters, including the warm-up.
    #[serde(flatten)]
    pub counters: ClientCounters,
    /// The code point (DSCP) of the last packet as it came, 0 to 63.
    pub dscp: Option<Dscp>,
    /// The capture's results; `None` without a capture.
    pub capture: Option<CaptureReport>,
}

/// The data gathered for a [`ClientReport`].
#[derive(Debug)]
pub(super) struct Gathered {
    since: Time,
    /// The counters at the start.
    before: ClientCounters,
    delays: SpanHistogram,
    frames: u64,
    /// Sums over frames.
    packets: f64,
    deviations: f64,
}

impl Gathered {
    pub(super) fn new(since: Time) -> Self {
        Self {
            since,
            before: ClientCounters::default(),
            delays: SpanHistogram::new(),
            frames: 0,
            packets: 0.0,
            deviations: 0.0,
        }
    }

    /// Restarts the statistics: everything until now was warm-up.
    pub(super) fn restart(&mut self, now: Time, counters: &ClientCounters) {
        *self = Self { before: *counters, ..Self::new(now) };
    }

    pub(super) fn on_delay(&mut self, delay: Span) {
        self.delays.record(delay);
    }

    pub(super) fn on_report(&mut self, seen: wlan::Report) {
        let frames = seen.frames as f64;
        self.frames += seen.frames;
        self.packets += seen.level * frames;
        self.deviations += seen.deviation * frames;
    }

    pub(super) fn report(
        &self,
        client: &Client,
        capture: Option<CaptureReport>,
        now: Time,
    ) -> ClientReport {
        let counters = *client.counters();
        let duration_s = now.since(self.since).as_secs_f64();
        let payload = counters.payload_bytes - self.before.payload_bytes;
        let came = counters.packets - self.before.packets;
        let missing = counters.missing.saturating_sub(self.before.missing);
        let sent = came + missing;
        let ms = |span: Span| (self.delays.count() > 0).then(|| span.as_millis_f64());
        let mean = |sum: f64| (self.frames > 0).then(|| sum / self.frames as f64);
        ClientReport {
            duration_s,
            goodput_bps: payload as f64 * 8.0 / duration_s.max(1e-9),
            level: mean(self.packets),
            level_deviation: mean(self.deviations),
            frames: self.frames,
            loss: (sent > 0).then(|| missing as f64 / sent as f64),
            delay_mean_ms: ms(self.delays.mean()),
            delay_p50_ms: ms(self.delays.quantile(0.5)),
            delay_p99_ms: ms(self.delays.quantile(0.99)),
            delay_max_ms: ms(self.delays.max()),
            counters,
            dscp: client.dscp(),
            capture,
        }
    }
}
