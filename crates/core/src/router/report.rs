//! The counters of a router, as in its table, its JSON and its metrics: the same for every
//! implementation of the router.

use alloc::string::String;
use alloc::vec::Vec;

/// The counters and settings of a running router.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RouterReport {
    /// The device through which packets leave.
    pub device: String,
    /// For how long it has run, in s.
    pub duration_s: f64,
    /// The discipline, as it is written in a flag.
    pub queue: String,
    /// The rate to which it shapes, in bit/s; unset if packets leave at the device's own rate.
    pub rate_bps: Option<u64>,
    /// The configured share γ of the AoI class, from 0 to 1; unset if the discipline does not have
    /// classes.
    pub aoi_share: Option<f64>,
    /// The fraction of all sent bytes that were of the AoI class, from 0 to 1; unset if none was
    /// sent. It may be below γ while the class had no queued packets, and above it while the other
    /// had none.
    pub served_share: Option<f64>,
    /// How super-packets are handled: `segmented` before they are queued, `whole`, or
    /// `interleaved`: they leave whole, after a transmission between whose segments updates may go.
    pub super_packets: String,
    /// The current queue.
    pub backlog: BacklogReport,
    /// The classes: AoI, then drop-averse.
    pub classes: Vec<ClassReport>,
    /// The heaviest flows, heaviest first.
    pub flows: Vec<FlowReport>,
    /// How often the table of flows was full and a lighter or silent flow was removed.
    pub flows_evicted: u64,
    /// Packets lost in front of the discipline.
    pub kernel_drops: KernelDropsReport,
    /// How often packets could not be read or returned.
    pub failures: u64,
    /// When packets passed without the router, because it hung, was stopped or renewed its rule too
    /// late; zero if that is impossible.
    #[cfg_attr(feature = "serde", serde(default))]
    pub unshaped: UnshapedReport,
}

/// Times in which packets passed without the router.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct UnshapedReport {
    /// Their number.
    pub count: u64,
    /// Their sum, in s.
    pub duration_s: f64,
}

/// The queue of a router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BacklogReport {
    /// Packets.
    pub packets: u64,
    /// The sum of their bytes.
    pub bytes: u64,
    /// The maximum number of packets that the kernel holds for the router, read and unread; unset
    /// if the router holds them itself.
    pub limit: Option<u64>,
}

/// Packets that the kernel dropped, in front of the discipline except for those of `flushed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct KernelDropsReport {
    /// The kernel's queue was full.
    pub queue_full: u64,
    /// More arrived than could be read.
    pub unread: u64,
    /// The router held them when the kernel dropped all queued packets, because a device went down
    /// or a chain of its packet filter was removed. The discipline forgot them at once; one or two,
    /// by which the router noticed, count as sent.
    pub flushed: u64,
    /// How often the kernel reported unread packets.
    pub overruns: u64,
}

/// One of the two classes.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ClassReport {
    /// Its name: `aoi` or `drop_averse`.
    pub class: String,
    /// Counters of its packets.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub account: AccountReport,
}

/// One flow.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FlowReport {
    /// The class of its newest packet.
    pub class: String,
    /// The sender's address, with its port if it has one.
    pub source: String,
    /// The receiver's, likewise.
    pub destination: String,
    /// The protocol above IP, as IANA numbers it.
    pub protocol: u8,
    /// Counters of its packets, since it was added to the table.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub account: AccountReport,
}

/// Counters of packets.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AccountReport {
    /// Arrived packets.
    pub packets_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Sent packets.
    pub packets_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// The rate of sent bytes over the last two seconds, bit/s; unset if it is not measured.
    pub rate_bps: Option<u64>,
    /// Sent packets with a congestion mark by an AQM.
    pub marked: u64,
    /// Packets replaced by a newer one of their flow.
    pub replaced: u64,
    /// Packets that arrived at a full queue.
    pub queue_full: u64,
    /// Packets that an AQM dropped.
    pub congestion: u64,
    /// The median sojourn time of sent packets, without their transmission, in ms; unset if none
    /// was measured.
    pub sojourn_p50_ms: Option<f64>,
    /// Its 95th percentile, in ms.
    pub sojourn_p95_ms: Option<f64>,
}

impl AccountReport {
    /// Packets that arrived and did not leave, for whatever reason.
    pub fn dropped(&self) -> u64 {
        self.replaced + self.queue_full + self.congestion
    }
}
