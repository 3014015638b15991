//! The counters of a router, as in its table, its JSON and its metrics: the same for every implementation
//! of the router.

use alloc::string::String;
use alloc::vec::Vec;

/// What a running router did so far, and how it is set.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RouterReport {
    /// The device through which the packets leave.
    pub device: String,
    /// For how long it has run, in s.
    pub duration_s: f64,
    /// The discipline, as it is written in a flag.
    pub queue: String,
    /// The rate to which it shapes, in bit/s; none where packets leave at the device's own rate.
    pub rate_bps: Option<u64>,
    /// The share γ that the AoI class is to have, from 0 to 1; none where the discipline does not
    /// know classes.
    pub aoi_share: Option<f64>,
    /// The part of all bytes sent that were of the AoI class, from 0 to 1; none if none was sent.
    /// It may be below γ where the class had nothing to send, and above it where the other had not.
    pub served_share: Option<f64>,
    /// What becomes of super-packets: `segmented` before they are queued, `whole`, or `interleaved`:
    /// they leave whole, after a transmission between whose segments updates may go.
    pub super_packets: String,
    /// What waits now.
    pub backlog: BacklogReport,
    /// Each class: the AoI class, then the drop-averse.
    pub classes: Vec<ClassReport>,
    /// The heaviest flows, heaviest first.
    pub flows: Vec<FlowReport>,
    /// How often the table of flows had no room: a lighter or silent flow had to make it.
    pub flows_evicted: u64,
    /// What was lost in front of the discipline.
    pub kernel_drops: KernelDropsReport,
    /// How often packets could not be read or given back.
    pub failures: u64,
    /// When packets passed without the router, because it hung, was stopped or came too late to renew its
    /// rule; nothing where that cannot be.
    #[cfg_attr(feature = "serde", serde(default))]
    pub unshaped: UnshapedReport,
}

/// Times in which packets passed without the router.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct UnshapedReport {
    /// How many.
    pub count: u64,
    /// All together, in s.
    pub duration_s: f64,
}

/// What waits in a router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BacklogReport {
    /// Packets.
    pub packets: u64,
    /// Their bytes together.
    pub bytes: u64,
    /// How many packets the kernel holds for the router at most, read and unread; none where the
    /// router holds them itself.
    pub limit: Option<u64>,
}

/// Packets that the kernel dropped, in front of the discipline but for those that vanished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct KernelDropsReport {
    /// As many waited as may wait.
    pub queue_full: u64,
    /// More came than could be read.
    pub unread: u64,
    /// They waited here when the kernel dropped all that wait, because a device went down or a
    /// chain of its packet filter went. The discipline forgot them at once; one or two count as
    /// sent, by which the router noticed.
    pub flushed: u64,
    /// How often the kernel told of unread packets.
    pub overruns: u64,
}

/// One of the two classes.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ClassReport {
    /// Its name: `aoi` or `drop_averse`.
    pub class: String,
    /// What became of its packets.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub account: AccountReport,
}

/// One flow.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FlowReport {
    /// The class of its newest packet.
    pub class: String,
    /// The sender's address, with its port where there is one.
    pub source: String,
    /// The receiver's, likewise.
    pub destination: String,
    /// The protocol above IP, as IANA numbers it.
    pub protocol: u8,
    /// What became of its packets, since the table took note of it.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub account: AccountReport,
}

/// What became of packets.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AccountReport {
    /// Packets that came.
    pub packets_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Packets that left.
    pub packets_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// The rate at which bytes left over the last two seconds, bit/s; none where it is not
    /// measured.
    pub rate_bps: Option<u64>,
    /// Packets that left with a mark of congestion that an AQM gave them.
    pub marked: u64,
    /// Packets of which a newer one of their flow took the place.
    pub replaced: u64,
    /// Packets that met a queue at its limit.
    pub queue_full: u64,
    /// Packets that an AQM dropped.
    pub congestion: u64,
    /// The median time in the queue of those that left, without their transmission, in ms; none
    /// if none was measured.
    pub sojourn_p50_ms: Option<f64>,
    /// Its 95th percentile, in ms.
    pub sojourn_p95_ms: Option<f64>,
}

impl AccountReport {
    /// Packets that came and did not leave, for whatever reason.
    pub fn dropped(&self) -> u64 {
        self.replaced + self.queue_full + self.congestion
    }
}
