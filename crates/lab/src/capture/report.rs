//! What a capture told. The keys are described in `docs/json.md`.

use std::net::SocketAddr;

use serde::Serialize;

use super::ages::Ages;
use super::round_trips::RoundTripTimes;

/// All that was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// From the earliest frame to the latest, in s.
    pub duration_s: f64,
    /// What became of the frames.
    pub packets: Packets,
    /// Every direction of a TCP flow in which payload was sent, in order of appearance.
    pub flows: Vec<FlowReport>,
    /// Every session of ours over UDP, in order of appearance.
    pub sessions: Vec<SessionReport>,
}

/// Frames, by what became of them: `read` is the sum of the others up to `over_limit`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Packets {
    /// In all.
    pub read: u64,
    /// TCP segments that were looked at.
    pub tcp: u64,
    /// Messages of our sessions that were looked at.
    pub session: u64,
    /// Of any other protocol.
    pub other: u64,
    /// Fragments of IP packets, which are not put together again.
    pub fragments: u64,
    /// Captured too short to be read.
    pub truncated: u64,
    /// Of a link type that is not read here.
    pub unknown_link: u64,
    /// Of flows and sessions that came when there were as many as the limit allows.
    pub over_limit: u64,
    /// Messages in datagrams of several (GSO, GRO) that were captured too short. Not among `read`.
    pub unread_messages: u64,
    /// Packets that the file gives no time. Not among `read`.
    pub no_timestamp: u64,
    /// Of `read`, those that stand too far behind later ones to be put in order.
    pub out_of_order: u64,
}

/// One direction of a TCP flow.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlowReport {
    /// Who sent the payload.
    pub from: SocketAddr,
    /// Who acknowledged it.
    pub to: SocketAddr,
    /// The first segment, after the capture's first frame, in s.
    pub start_s: f64,
    /// From the first segment to the last ack of new payload, in s.
    pub duration_s: f64,
    /// Segments with payload, as they were captured.
    pub segments: u64,
    /// Segments with a number far from all others, as if damaged; they count nowhere else.
    pub strays: u64,
    /// Payload sent, repetitions included.
    pub bytes: u64,
    /// Payload acknowledged.
    pub acked_bytes: u64,
    /// Segments that repeated payload, or came here after what follows it.
    pub retransmissions: u64,
    /// Segments that were not followed, as too many were under way.
    pub untracked: u64,
    /// Acks of payload that the capture does not hold.
    pub unseen_acks: u64,
    /// Payload acknowledged a second.
    pub goodput_bps: Option<u64>,
    /// The delay: round trips of segments that were sent but once.
    pub rtt: Option<RoundTripTimes>,
    /// The age at the receiver, from the sender's side.
    pub age: Option<Ages>,
}

/// One of our own sessions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SessionReport {
    /// Its id, 16 hexadecimal digits.
    pub session: String,
    /// The source's name, empty where it has none or where the opening was not captured.
    pub name: String,
    /// Where its updates came from last.
    pub source: SocketAddr,
    /// Where they went.
    pub monitor: SocketAddr,
    /// The first update, after the capture's first frame, in s.
    pub start_s: f64,
    /// From the first message to the last, in s.
    pub duration_s: f64,
    /// Updates captured.
    pub updates: u64,
    /// Updates that were captured again, or after a later one.
    pub copies: u64,
    /// Acks that came before any of a later update.
    pub acks: u64,
    /// All other acks.
    pub late_acks: u64,
    /// Updates whose number is far from those around it, as if it had been damaged.
    pub strays: u64,
    /// Acks that were captured before their updates, and so tell no round trip.
    pub early_acks: u64,
    /// Updates that were not followed, as too many were under way.
    pub untracked: u64,
    /// Updates a second.
    pub updates_per_s: Option<f64>,
    /// From the update to its ack, without the time that the monitor held it.
    pub rtt: Option<RoundTripTimes>,
    /// The source's upper bound of the age, if the capture was made at the source.
    pub age_at_source: Option<Ages>,
    /// The age at the monitor, from what both ends wrote into the messages.
    pub age_at_monitor: Option<Ages>,
}
