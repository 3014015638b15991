//! The results of measuring a capture. The keys are described in `docs/json.md`.

use std::net::SocketAddr;

use serde::Serialize;

use super::ages::Ages;
use super::round_trips::RoundTripTimes;

/// All results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The time from the earliest frame to the latest, in s.
    pub duration_s: f64,
    /// Frames by their processing.
    pub packets: Packets,
    /// Every direction of a TCP flow in which payload was sent, in order of appearance.
    pub flows: Vec<FlowReport>,
    /// Every Freshline session over UDP, in order of appearance.
    pub sessions: Vec<SessionReport>,
}

/// Frames by their processing: `read` is the sum of the others up to `over_limit`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Packets {
    /// All frames.
    pub read: u64,
    /// TCP segments that were evaluated.
    pub tcp: u64,
    /// Messages of Freshline sessions that were evaluated.
    pub session: u64,
    /// Frames of any other protocol.
    pub other: u64,
    /// Fragments of IP packets, which are not reassembled.
    pub fragments: u64,
    /// Frames that were captured too short to be read.
    pub truncated: u64,
    /// Frames of an unsupported link type.
    pub unknown_link: u64,
    /// Frames of flows and sessions beyond the limit on their number.
    pub over_limit: u64,
    /// Messages in datagrams of several (GSO, GRO) that were captured too short. Not among `read`.
    pub unread_messages: u64,
    /// Packets without a timestamp in the file. Not among `read`.
    pub no_timestamp: u64,
    /// Frames among `read` that are too far behind later ones to be sorted.
    pub out_of_order: u64,
}

/// One direction of a TCP flow.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlowReport {
    /// The sender of the payload.
    pub from: SocketAddr,
    /// The receiver, which acknowledged it.
    pub to: SocketAddr,
    /// The time of the first segment, after the capture's first frame, in s.
    pub start_s: f64,
    /// The time from the first segment to the last ack of new payload, in s.
    pub duration_s: f64,
    /// Segments with payload, as captured.
    pub segments: u64,
    /// Segments with a sequence number far from all others, as if damaged; they are not counted
    /// elsewhere.
    pub strays: u64,
    /// Payload sent, retransmissions included.
    pub bytes: u64,
    /// Payload acknowledged.
    pub acked_bytes: u64,
    /// Segments that repeated payload, or were captured after later payload.
    pub retransmissions: u64,
    /// Segments that were not tracked because too many were in flight.
    pub untracked: u64,
    /// Acks of payload that is not in the capture.
    pub unseen_acks: u64,
    /// Payload acknowledged per second.
    pub goodput_bps: Option<u64>,
    /// The delay: round trips of segments that were sent only once.
    pub rtt: Option<RoundTripTimes>,
    /// The age at the receiver, from the sender's side.
    pub age: Option<Ages>,
}

/// A Freshline session.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SessionReport {
    /// Its id, 16 hexadecimal digits.
    pub session: String,
    /// The source's name; empty if it has none or if the opening was not captured.
    pub name: String,
    /// The latest source address of its updates.
    pub source: SocketAddr,
    /// The latest destination address of its updates.
    pub monitor: SocketAddr,
    /// The time of the first update, after the capture's first frame, in s.
    pub start_s: f64,
    /// The time from the first message to the last, in s.
    pub duration_s: f64,
    /// Updates captured.
    pub updates: u64,
    /// Updates that were captured again, or after a later one.
    pub copies: u64,
    /// Acks that were captured before any ack of a later update.
    pub acks: u64,
    /// All other acks.
    pub late_acks: u64,
    /// Updates whose number is far from those around it, as if damaged.
    pub strays: u64,
    /// Acks that were captured before their updates, and therefore give no round trip.
    pub early_acks: u64,
    /// Updates that were not tracked because too many were in flight.
    pub untracked: u64,
    /// Updates per second.
    pub updates_per_s: Option<f64>,
    /// The time from an update to its ack, without the time that the monitor held it.
    pub rtt: Option<RoundTripTimes>,
    /// The source's upper bound of the age, if the capture was made at the source.
    pub age_at_source: Option<Ages>,
    /// The age at the monitor, computed from the content of both ends' messages.
    pub age_at_monitor: Option<Ages>,
}
