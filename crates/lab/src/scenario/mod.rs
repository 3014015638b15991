//! Scenarios: experiments described in files.
//!
//! ```text
//!   text ─► Scenario ──(set key = value)──► checked ─► World, one per run
//! ```
//!
//! `docs/lab.md` describes every key.

mod build;
mod cells;
mod counting;
mod emulated;
mod error;
mod external;
mod flow;
mod journey;
mod law;
mod laws;
mod lines;
mod multipath;
mod reproduction;
mod safety;
mod set;
mod settled;
mod topics;
mod topology;
mod worlds;

use std::collections::BTreeMap;
use std::{fs, io};

use freshline_core::host::BandLawConfig;
use freshline_core::link::HopConfig;
use freshline_core::path::SchedulerConfig;
use freshline_core::receiver::WindowLawConfig;
use freshline_core::router::QdiscConfig;
use freshline_core::source::MinAgeGain;
use freshline_core::unit::{BitRate, Bytes, Packets, Span, UpdateRate};
use serde::Deserialize;

use crate::mesh::MeshConfig;
use crate::tcp::Repair;
use crate::tcp::congestion::{Algorithm, DtpaSettings};
use crate::world::SizeDistribution;
use freshline_core::wlan::DownlinkLawConfig;
use freshline_core::wlan::mac::{CellConfig, RateConfig};

pub use build::{Built, TOPOLOGY};
pub use counting::{Counting, StampsConfig};
pub use emulated::{Emulated, EmulatedSource};
pub use error::ScenarioError;
pub use external::ExternalConfig;
pub use flow::ACCESS_POINT;
pub use journey::{Alternative, Better, Column, JourneyConfig, Switch};
pub use law::{BadLaw, ScenarioLaw};
pub use laws::{Laws, NoLaws};
pub use multipath::{MultipathConfig, MultipathControl, PageConfig, VideoConfig};
pub use reproduction::{
    Baseline, Best, Case, ContestConfig, Omitted, Origin, Reproduction, Row, Trend,
};
pub use safety::{Half, SafetyCategory, SafetyConfig};
pub use set::{Change, SetError};
pub use topics::{
    GenerationPattern, MaxAgeConfig, PeriodsConfig, SizesConfig, TopicConfig, TopicKindName,
    TopicRules,
};
pub use topology::{BadTopology, LinkHops, TopologyConfig};

/// An experiment.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// A one-line description.
    pub title: String,
    /// The length of a run.
    pub duration: Span,
    /// The time at the beginning of a run that is not measured.
    #[serde(default)]
    pub warm_up: Span,
    /// The number of independent runs, for confidence intervals; at least 1.
    #[serde(default = "one")]
    pub runs: u32,
    /// The seed of all random numbers.
    #[serde(default = "one_wide")]
    pub seed: u64,
    /// Wired links.
    #[serde(default, rename = "link")]
    pub links: Vec<LinkConfig>,
    /// A network of links, for flows between pairs of its nodes.
    pub topology: Option<TopologyConfig>,
    /// Wi-Fi cells.
    #[serde(default, rename = "cell")]
    pub cells: Vec<CellsConfig>,
    /// Meshes of low-power nodes.
    #[serde(default, rename = "mesh")]
    pub meshes: Vec<MeshConfig>,
    /// Flows: senders, their traffic and their paths.
    #[serde(rename = "flow")]
    pub flows: Vec<FlowConfig>,
    /// Keys, as for [`Change`], each with a list of values; all combinations are run.
    #[serde(default)]
    pub sweep: BTreeMap<String, Vec<toml::Value>>,
    /// The figure of a paper that it reproduces.
    pub reproduce: Option<Reproduction>,
    /// Laws at several stages of the path that can be switched on.
    pub journey: Option<JourneyConfig>,
}

/// A wired link: a hop in each direction, or several of them in series.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkConfig {
    /// Its name, for paths and reports.
    pub name: String,
    /// The number of identical links in series.
    #[serde(default = "one")]
    pub count: u32,
    /// From the source towards the monitor.
    pub forward: HopConfig,
    /// From the monitor towards the source; default: equal to `forward`.
    pub reverse: Option<HopConfig>,
    /// Changes of the link.
    #[serde(default, rename = "change")]
    pub changes: Vec<LinkChange>,
}

/// A change of a link's rate or delay, in both directions.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkChange {
    /// The time of the change.
    pub at: Span,
    /// The rate, above zero; default: unchanged.
    pub rate: Option<BitRate>,
    /// The delay, at least the jitter; default: unchanged.
    pub delay: Option<Span>,
}

/// A Wi-Fi cell: its access point, and a station for each flow that begins in it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellsConfig {
    /// Its name, for paths and reports.
    pub name: String,
    /// PHY, MAC and channel. `stations` is set to the number that the flows need.
    pub radio: CellConfig,
    /// Stations that differ from the others.
    #[serde(default, rename = "station")]
    pub stations: Vec<StationConfig>,
    /// Changes of the frames' mode.
    #[serde(default, rename = "change")]
    pub changes: Vec<CellChange>,
}

/// A station of a cell that differs from the others.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StationConfig {
    /// Its name, as flows give it.
    pub name: String,
    /// Its queue in front of each access category; the default is that of `radio`.
    pub queue: Option<QdiscConfig>,
}

/// A change of the mode of a cell's frames.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellChange {
    /// The time of the change; default: the beginning.
    #[serde(default)]
    pub at: Span,
    /// The station whose frames change, in both directions, by its name in flows; default: all
    /// stations.
    pub station: Option<String>,
    /// A fixed rate; default: that of `radio`.
    pub rate: Option<RateConfig>,
    /// Spatial streams; default: those of `radio`.
    pub streams: Option<u8>,
}

/// A flow, or several equal ones.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowConfig {
    /// Its name, for reports.
    pub name: String,
    /// The number of equal flows; 0 removes the flow, so that the others can be run without it.
    #[serde(default = "one")]
    pub count: u32,
    /// The links that it crosses, by name, in order. The path may begin or end with a cell: each
    /// flow then has its own station there, and the other end is the access point.
    #[serde(default)]
    pub path: Vec<String>,
    /// Creates one flow per hop of the path, which crosses that hop alone.
    #[serde(default)]
    pub each_hop: bool,
    /// Creates one flow for each pair of nodes drawn by the topology's `pairs`, over the shortest
    /// path between the two, instead of a `path`.
    #[serde(default)]
    pub each_pair: bool,
    /// Creates one flow for each node of the mesh with which its path begins.
    #[serde(default)]
    pub each_node: bool,
    /// The node of the mesh with which its path begins.
    pub node: Option<u32>,
    /// The station of the cell at which it begins or ends. Flows with the same name share a
    /// station.
    pub station: Option<String>,
    /// Sends from the end of its path to the beginning.
    #[serde(default)]
    pub reverse: bool,
    /// When it begins.
    #[serde(default)]
    pub start: Span,
    /// The maximum of a random delay of its beginning, uniformly distributed, so that equal flows
    /// are not synchronised.
    #[serde(default)]
    pub start_spread: Span,
    /// The interval between the beginnings of equal flows.
    #[serde(default)]
    pub start_interval: Span,
    /// When it stops sending; default: the end of the run.
    pub stop: Option<Span>,
    /// Whether equal flows have one source address, as the connections of one host do. They differ
    /// in the destination.
    #[serde(default)]
    pub one_host: bool,
    /// The DSCP of its packets. It selects the access category in a cell, and queues may classify
    /// by it.
    #[serde(default)]
    pub dscp: u8,
    /// The DSCP of acks to its source; default: `dscp`.
    pub ack_dscp: Option<u8>,
    /// A source of updates and its monitor.
    pub updates: Option<UpdatesConfig>,
    /// A TCP stream.
    pub tcp: Option<TcpConfig>,
    /// A stream over several paths, which it names itself instead of `path`.
    pub multipath: Option<MultipathConfig>,
    /// A paced downlink to a station of a cell.
    pub downlink: Option<DownlinkConfig>,
    /// Cross traffic.
    pub cross_traffic: Option<CrossTrafficConfig>,
    /// Datagrams of hosts outside of the world.
    pub external: Option<ExternalConfig>,
}

/// A source and its monitor.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpdatesConfig {
    /// The rate law.
    pub law: ScenarioLaw,
    /// The rate of the laws `fixed` and `poisson`.
    pub rate: Option<UpdateRate>,
    /// Fields of the law's `Params` that differ from their defaults.
    #[serde(default)]
    pub params: toml::Table,
    /// The maximum update rate, from the first update on.
    pub max_rate: Option<UpdateRate>,
    /// The improvement of the mean age that is worth a higher rate: a time, or `default`. Unset: every
    /// improvement, as in the papers.
    pub min_age_gain: Option<MinAgeGain>,
    /// The maximum mean data rate, with headers.
    pub max_bandwidth: Option<BitRate>,
    /// The size of the state in each update. A flow has either this or topics.
    pub payload: Option<Bytes>,
    /// The size of a state. A state that is larger than `payload` takes several updates, each with
    /// `payload` bytes of the state or of its repair symbols; default: `payload`.
    pub state: Option<Bytes>,
    /// The headers around it; default: those of Freshline's own protocol over UDP and IPv4.
    pub overhead: Option<Bytes>,
    /// The size of an ack with its headers; default: that of Freshline's own protocol. With zero
    /// the monitor does not send acks, which only the laws `fixed` and `poisson` support.
    pub ack: Option<Bytes>,
    /// The distribution of an update's size on the wire.
    #[serde(default)]
    pub sizes: SizeDistribution,
    /// The links of each of several paths, in place of the flow's `path`; at most
    /// [`MultipathConfig::MAX_PATHS`].
    #[serde(default)]
    pub paths: Vec<Vec<String>>,
    /// With `paths`: the scheduler that selects the path of an update; default: `freshest`.
    pub scheduler: Option<SchedulerConfig>,
    /// Its topics, with their own states; packets then have the sizes of the session's datagrams.
    #[serde(default, rename = "topic")]
    pub topics: Vec<TopicConfig>,
    /// With topics: their maximum ages at the monitor. The first matching rule applies.
    #[serde(default)]
    pub max_age: Vec<MaxAgeConfig>,
    /// With topics: whether the endpoints know of weights, deadlines, rates, urgency and maximum ages.
    pub rules: Option<TopicRules>,
    /// With topics: the maximum size of a datagram; default: that of QUIC.
    pub max_datagram: Option<Bytes>,
}

/// A TCP stream with its application; default: an endless bulk transfer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcpConfig {
    /// The congestion control.
    pub control: Algorithm,
    /// Supports ECN (RFC 3168). DCTCP always does, in its own way (RFC 8257).
    #[serde(default)]
    pub ecn: bool,
    /// The payload of a full segment; default: 1448 bytes.
    pub segment: Option<Bytes>,
    /// Sends packets of several segments, of up to this size (`gso_max_size` of Linux, 64 KiB):
    /// windows and acks count segments, queues see packets. Default: one packet per segment.
    pub gso_max_size: Option<Bytes>,
    /// TCP small queues: limits the stream's packets in the host's own queue (a station's, or that
    /// of the first link) to the maximum of two packets and the pacing rate over two to the power
    /// of this: 7 for Wi-Fi in Linux, 10 for other devices. Default: no limit.
    pub pacing_shift: Option<u8>,
    /// The minimum of a retransmission timeout above the round trip; default: 200 ms.
    pub min_rto_margin: Option<Span>,
    /// The minimum of the whole timeout; default: no minimum (RFC 6298: 1 s).
    pub min_rto: Option<Span>,
    /// How losses are found and repaired: `linux` or `blip`.
    #[serde(default)]
    pub repair: Repair,
    /// Segments of the initial window; default: 10.
    pub initial_window: Option<Packets>,
    /// With `control = "dtpa"`: settings that differ from its defaults.
    pub dtpa: Option<DtpaSettings>,
    /// The law of the receive window; default: that of Linux.
    #[serde(default = "autotune")]
    pub receiver: WindowLawConfig,
    /// The law of the priority bands in the flow's sending host; default: one band for all.
    #[serde(default)]
    pub host: BandLawConfig,
    /// The initial and the maximum receive buffer (`tcp_rmem`); default: those of Linux.
    pub receive_buffer: Option<[Bytes; 2]>,
    /// The initial and the maximum send buffer (`tcp_wmem`); default: those of Linux.
    pub send_buffer: Option<[Bytes; 2]>,
    /// Writes blocks of `block` bytes at this rate, instead of a bulk transfer.
    pub rate: Option<BitRate>,
    /// With `rate`: each block is an update, whose age counts from the time of writing.
    #[serde(default)]
    pub updates: bool,
    /// Writes an update of `block` bytes whenever all of the previous one has been sent; its age
    /// counts from the time of writing.
    #[serde(default)]
    pub newest: bool,
    /// With `rate` or `newest`: the size of a block; default: a full segment.
    pub block: Option<Bytes>,
    /// Sends a file of this size and closes, instead of a bulk transfer.
    pub file: Option<Bytes>,
    /// Sends requests of this size, and waits for each response, instead of a bulk transfer.
    pub request: Option<Bytes>,
    /// With `request`: the size of the response.
    pub response: Option<Bytes>,
    /// With `request`: the time from the end of a response to the next request; default: zero.
    pub think: Option<Span>,
}

/// Paced packets to a station, which counts packets per frame and reports them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DownlinkConfig {
    /// The law, with the size of packets and the reporting interval of clients.
    pub law: DownlinkLawConfig,
    /// The server. Flows of one server share its law; default: one server for equal flows.
    pub server: Option<String>,
    /// The size of a report with its headers.
    #[serde(default = "report")]
    pub report: Bytes,
    /// The maximum of the random delay of each packet after its turn, uniformly distributed.
    #[serde(default)]
    pub jitter: Span,
    /// The method by which the client counts packets per frame.
    #[serde(default)]
    pub counting: Counting,
    /// The kernel's timestamping of packets, for methods that use its timestamps.
    #[serde(default)]
    pub stamps: StampsConfig,
    /// Clients locate the bottleneck.
    #[serde(default)]
    pub locate: bool,
    /// The server limits rates to the deliveries that clients confirm. Without this, the law alone
    /// decides, as in the thesis (Hassani).
    #[serde(default)]
    pub guard: bool,
}

/// Cross traffic.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrossTrafficConfig {
    /// `constant`, `poisson` or `on-off`.
    pub pattern: PatternName,
    /// The rate while it sends, with headers.
    pub rate: BitRate,
    /// The size of each packet, with headers.
    pub size: Bytes,
    /// Mean length of the on state.
    pub on: Option<Span>,
    /// Mean length of the off state.
    pub off: Option<Span>,
}

/// The arrival process of cross traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PatternName {
    /// At constant intervals.
    Constant,
    /// As a Poisson process.
    Poisson,
    /// At constant intervals during on states.
    OnOff,
}

/// The source of a scenario.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// The text of the file.
    pub text: &'a str,
    /// Reads a file in the scenario's directory, such as a trace, by its name in the scenario.
    pub read_file: &'a dyn Fn(&str) -> io::Result<String>,
}

impl<'a> From<&'a str> for Source<'a> {
    /// A scenario in the working directory.
    fn from(text: &'a str) -> Self {
        Self { text, read_file: &|name| fs::read_to_string(name) }
    }
}

impl LinkConfig {
    /// The maximum number of hops of a link: a hop takes up to some 30 kB in each direction.
    pub const MAX_HOPS: u32 = 1_000;
}

impl FlowConfig {
    /// The maximum number of flows of one `[[flow]]`: a flow takes up to 100 kB.
    pub const MAX_FLOWS: usize = 10_000;
}

impl Scenario {
    /// Reads a scenario, and the files that it names, and checks it.
    pub fn parse<'a>(source: impl Into<Source<'a>>) -> Result<Self, ScenarioError> {
        let Source { text, read_file } = source.into();
        let mut scenario: Self =
            toml::from_str(text).map_err(|error| ScenarioError::Malformed(error.to_string()))?;
        scenario.complete(read_file).map_err(|error| error.with_line(text))?;
        Ok(scenario)
    }

    fn complete(
        &mut self,
        read_file: &dyn Fn(&str) -> io::Result<String>,
    ) -> Result<(), ScenarioError> {
        for link in &mut self.links {
            for hop in [Some(&mut link.forward), link.reverse.as_mut()].into_iter().flatten() {
                hop.read_trace(read_file).map_err(|error| ScenarioError::Trace {
                    link: link.name.clone(),
                    error: error.to_string(),
                })?;
            }
        }
        if let Some(topology) = &mut self.topology {
            topology.read(read_file)?;
        }
        self.check()
    }
}

fn autotune() -> WindowLawConfig {
    WindowLawConfig::Autotune
}

/// The size of an ack of Freshline's own protocol, over UDP and IPv4.
fn report() -> Bytes {
    Bytes::new(84)
}

fn one() -> u32 {
    1
}

fn one_wide() -> u64 {
    1
}
