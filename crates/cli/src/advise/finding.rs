//! The findings of a diagnosis: the place where time is lost, the evidence, and remedies that may
//! help.

use std::fmt;

use serde::Serialize;

/// A place on the path from source to receiver at which time is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stop {
    /// The program that makes the data, and its rate.
    Source,
    /// This host's own queue.
    Host,
    /// The route, and its base RTT.
    Path,
    /// A link that loses packets.
    Link,
    /// The queue in front of a bottleneck: of a router beyond this host, or of this host as a router.
    Router,
    /// Wi-Fi.
    Wlan,
    /// The receiver's window, or the program that reads.
    Receiver,
}

/// The direction in which time is lost, as this host sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Direction {
    /// Traffic from this host.
    Up,
    /// Traffic to this host.
    Down,
    /// Both, or unknown.
    Both,
}

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Fault {
    /// A source sends faster than the capacity, whatever happens.
    SourceOverload,
    /// The send buffer of a program is too small for the path.
    SendBuffer,
    /// This host's own queue delays its packets.
    HostQueue,
    /// The queue of this host as a router.
    ForwardingQueue,
    /// A standing queue beyond this host, of its outgoing packets.
    UpstreamQueue,
    /// A standing queue of its incoming packets.
    DownstreamQueue,
    /// Acks of downloads are delayed behind uploads.
    AckCongestion,
    /// Packets are lost without a queue.
    Loss,
    /// The base RTT is large.
    LongPath,
    /// The route of packets changed.
    RouteChange,
    /// The receive window is too small for the path.
    ReceiveWindow,
    /// A program does not read received data in time.
    SlowReader,
}

/// A measured value that supports a finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Evidence {
    /// The measured quantity, with its unit at the end.
    pub(super) name: &'static str,
    /// Its value.
    pub(super) value: f64,
}

/// A bottleneck as it was measured, for the lab.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Bottleneck {
    /// Its rate in bit/s.
    pub(super) bps: f64,
    /// The round trip without a queue in seconds.
    pub(super) base_rtt: f64,
    /// The queueing delay in seconds.
    pub(super) queue: f64,
    /// The number of connections that share it.
    pub(super) flows: usize,
    /// The fraction of packets that is lost without a queue.
    pub(super) loss: f64,
    /// The rate at which the cause sends into it in bit/s, if it does not adapt.
    pub(super) offered_bps: f64,
    /// The rate of the other direction in bit/s, if uploads slow down downloads.
    pub(super) other_bps: f64,
    /// A window in bytes that limits a sender.
    pub(super) window: f64,
}

/// A finding: where time is lost.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Finding {
    pub(super) stop: Stop,
    pub(super) direction: Direction,
    pub(super) fault: Fault,
    /// The interface of the finding.
    pub(super) interface: Option<String>,
    /// The factor by which this slows packets or transfers down, as far as can be estimated; it
    /// ranks findings.
    pub(super) slowdown: f64,
    pub(super) evidence: Vec<Evidence>,
    pub(super) bottleneck: Bottleneck,
}

impl Finding {
    /// The value of a piece of evidence.
    #[cfg(test)]
    pub(super) fn value(&self, name: &str) -> Option<f64> {
        self.evidence.iter().find(|one| one.name == name).map(|one| one.value)
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source => "source",
            Self::Host => "host",
            Self::Path => "path",
            Self::Link => "link",
            Self::Router => "router",
            Self::Wlan => "wlan",
            Self::Receiver => "receiver",
        })
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Both => "both directions",
        })
    }
}
