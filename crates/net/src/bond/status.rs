//! Reports of a bond, for readers on other threads.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde::Serialize;

use super::link::Link;
use super::queues::PathQueues;
use crate::refusal::Refusals;
use crate::via::QueueReport;

/// One path.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PathReport {
    /// The connection of the path: the client's number at the server; 0 at a client.
    pub link: usize,
    /// QUIC's number of the path.
    pub path: String,
    /// The device by which it leaves this host.
    pub interface: Option<String>,
    /// The far end.
    pub remote: String,
    /// It carries data.
    pub is_up: bool,
    /// The smoothed round-trip time in ms.
    pub srtt_ms: Option<f64>,
    /// The congestion window, in bytes.
    pub window_bytes: u64,
    /// Bytes in flight.
    pub inflight_bytes: u64,
    /// The queue of its device, and whether it is seen.
    #[serde(flatten)]
    pub queue: QueueReport,
    /// UDP payload that was sent on it.
    pub sent_bytes: u64,
    /// UDP payload that was received on it.
    pub received_bytes: u64,
    /// QUIC packets that were lost.
    pub lost_packets: u64,
}

/// The state of one `--via` of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ViaState {
    /// The host has no such interface or address, or it is down.
    Missing,
    /// The system refused a socket.
    NoSocket,
    /// The server was asked, or will be.
    Opening,
    /// The server did not answer by this path; the client keeps trying.
    Unanswered,
    /// The path carries data.
    Up,
}

/// A report of one `--via` of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ViaReport {
    /// The interface or address, as it was given.
    pub via: String,
    /// The server's address on it.
    pub remote: String,
    /// Whether there is a path, or why not.
    pub state: ViaState,
    /// Attempts to open a path that had no answer.
    pub failures: u64,
}

/// A report of one end of a bond.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct BondReport {
    /// How long it has run, in s.
    pub duration_s: f64,
    /// The scheduler for the data that this end sends.
    pub scheduler: &'static str,
    /// QUIC connections.
    pub links: usize,
    /// Open TCP connections.
    pub streams_open: usize,
    /// TCP connections so far.
    pub streams: u64,
    /// Streams that were not connected: forbidden, refused, unreachable.
    pub streams_refused: u64,
    /// Refusals of a server, including connections ended to make room, by reason.
    #[serde(rename = "refused_by")]
    pub refusals: Refusals,
    /// Bytes from programs or destinations that QUIC has taken.
    pub streams_sent_bytes: u64,
    /// Bytes that programs or destinations have taken from QUIC.
    pub streams_received_bytes: u64,
    /// Open flows of UDP datagrams.
    pub udp_flows_open: usize,
    /// UDP datagrams of programs or destinations that QUIC has taken.
    pub datagrams_sent: u64,
    /// UDP datagrams that programs or destinations were given.
    pub datagrams_received: u64,
    /// UDP datagrams that were not passed on: forbidden, malformed, fragments, without a connection.
    pub datagrams_dropped: u64,
    /// The `--via` of a client; empty at a server.
    pub vias: Vec<ViaReport>,
    /// The current paths.
    pub paths: Vec<PathReport>,
}

/// A handle to the report of an end, which is updated several times per second.
#[derive(Debug, Clone, Default)]
pub struct Watcher(Arc<Mutex<BondReport>>);

impl Watcher {
    /// The latest report.
    pub fn report(&self) -> BondReport {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn publish(&self, report: BondReport) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }
}

/// The paths of a link.
pub(super) fn paths_of(link: &mut Link, queues: &mut PathQueues, now: Instant) -> Vec<PathReport> {
    let mut reports = Vec::new();
    for path in link.paths.all() {
        let Some(stats) = link.connection.path_stats(path.id) else { continue };
        let reading = path.reading();
        reports.push(PathReport {
            link: link.handle.0,
            path: path.id.to_string(),
            interface: queues.interface(now, path.network),
            remote: path.network.remote().to_string(),
            is_up: path.is_established,
            srtt_ms: reading.srtt.map(|srtt| srtt.as_secs_f64() * 1e3),
            window_bytes: reading.window,
            inflight_bytes: reading.inflight,
            queue: link.paths.queue_of(path),
            sent_bytes: stats.udp_tx.bytes,
            received_bytes: stats.udp_rx.bytes,
            lost_packets: stats.lost_packets,
        });
    }
    reports
}
