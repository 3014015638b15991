//! Scenarios: an experiment as a file.
//!
//! ```text
//!   text ─► Scenario ──(set key = value)──► checked ─► World, once a run
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
    /// What it shows, in a line.
    pub title: String,
    /// Length of a run.
    pub duration: Span,
    /// What happens before this does not count.
    #[serde(default)]
    pub warm_up: Span,
    /// Independent runs, for confidence intervals; at least 1.
    #[serde(default = "one")]
    pub runs: u32,
    /// Of all randomness.
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
    /// Who sends what over which way.
    #[serde(rename = "flow")]
    pub flows: Vec<FlowConfig>,
    /// Keys, as for [`Change`], each with the values that it takes one after the other;
    /// all combinations are run.
    #[serde(default)]
    pub sweep: BTreeMap<String, Vec<toml::Value>>,
    /// The figure of a paper that it reproduces.
    pub reproduce: Option<Reproduction>,
    /// Laws of several stops that can be switched on.
    pub journey: Option<JourneyConfig>,
}

/// A wired link: a hop in either direction, or several such in series.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkConfig {
    /// Its name, for ways and reports.
    pub name: String,
    /// So many alike, one behind the other.
    #[serde(default = "one")]
    pub count: u32,
    /// From the source towards the monitor.
    pub forward: HopConfig,
    /// From the monitor towards the source; like `forward` unless said.
    pub reverse: Option<HopConfig>,
    /// When it begins to be another one.
    #[serde(default, rename = "change")]
    pub changes: Vec<LinkChange>,
}

/// A moment from which on a link has another rate or delay, both ways.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkChange {
    /// When.
    pub at: Span,
    /// The rate, above zero; as it was unless said.
    pub rate: Option<BitRate>,
    /// The delay, at least the jitter; as it was unless said.
    pub delay: Option<Span>,
}

/// A Wi-Fi cell: its access point, and a station for each flow that begins in it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellsConfig {
    /// Its name, for ways and reports.
    pub name: String,
    /// PHY, MAC and channel. `stations` is made as large as the flows need.
    pub radio: CellConfig,
    /// Stations that differ from the others.
    #[serde(default, rename = "station")]
    pub stations: Vec<StationConfig>,
    /// When frames begin to have another mode.
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

/// A moment from which on frames of a cell have another mode.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellChange {
    /// When; from the beginning on unless said.
    #[serde(default)]
    pub at: Span,
    /// The station whose frames they are, both ways, by the name that a flow gives it; all unless
    /// said.
    pub station: Option<String>,
    /// A fixed rate; that of `radio` unless said.
    pub rate: Option<RateConfig>,
    /// Spatial streams; those of `radio` unless said.
    pub streams: Option<u8>,
}

/// A flow, or several alike.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowConfig {
    /// Its name, for reports.
    pub name: String,
    /// So many alike; none at all with 0, so that other flows can be tried without it.
    #[serde(default = "one")]
    pub count: u32,
    /// The links that it crosses, by name, in order. It may begin or end with a cell: there, each
    /// flow is a station of its own, and the access point the other end.
    #[serde(default)]
    pub path: Vec<String>,
    /// Whether there is one on each hop of the path, which crosses that hop alone.
    #[serde(default)]
    pub each_hop: bool,
    /// Whether there is one for each pair of nodes that the topology's `pairs` draws, over the
    /// shortest way between the two, in place of a path.
    #[serde(default)]
    pub each_pair: bool,
    /// Whether there is one for each node of the mesh with which its path begins.
    #[serde(default)]
    pub each_node: bool,
    /// The node of the mesh with which its path begins.
    pub node: Option<u32>,
    /// The station of the cell at which it begins or ends: flows that give the same name share one.
    pub station: Option<String>,
    /// Whether it goes from the end of its path to the beginning.
    #[serde(default)]
    pub reverse: bool,
    /// When it begins.
    #[serde(default)]
    pub start: Span,
    /// It begins up to so much later, uniformly drawn, so that flows alike do not march in step.
    #[serde(default)]
    pub start_spread: Span,
    /// Of flows alike, each begins so much later than the one before.
    #[serde(default)]
    pub start_interval: Span,
    /// When it sends no more; at the end of the run unless said.
    pub stop: Option<Span>,
    /// Whether flows alike have one source address, as the connections of one host do. They differ in
    /// the destination.
    #[serde(default)]
    pub one_host: bool,
    /// The DSCP of its packets, which decides how they contend in a cell, and by which queues may
    /// tell them apart.
    #[serde(default)]
    pub dscp: u8,
    /// The DSCP of what comes back to its source, acks; `dscp` unless said.
    pub ack_dscp: Option<u8>,
    /// It keeps a monitor fresh.
    pub updates: Option<UpdatesConfig>,
    /// It is a TCP stream.
    pub tcp: Option<TcpConfig>,
    /// It is a stream over several paths, which it names itself in place of `path`.
    pub multipath: Option<MultipathConfig>,
    /// It is a paced downlink to a station of a cell.
    pub downlink: Option<DownlinkConfig>,
    /// It is cross traffic.
    pub cross_traffic: Option<CrossTrafficConfig>,
    /// It carries the datagrams of hosts outside of the world.
    pub external: Option<ExternalConfig>,
}

/// A source and its monitor.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpdatesConfig {
    /// When to send.
    pub law: ScenarioLaw,
    /// The rate of the laws `fixed` and `poisson`.
    pub rate: Option<UpdateRate>,
    /// Fields of the law's `Params` that differ from their defaults.
    #[serde(default)]
    pub params: toml::Table,
    /// No more updates than this, from the first one on.
    pub max_rate: Option<UpdateRate>,
    /// The improvement of the mean age that is worth a higher rate: a time, or `default`. Unset: every
    /// improvement, as in the papers.
    pub min_age_gain: Option<MinAgeGain>,
    /// No more data than this on average, with headers.
    pub max_bandwidth: Option<BitRate>,
    /// State in each update. A flow has either this or topics.
    pub payload: Option<Bytes>,
    /// The length of a state. One that is longer than `payload` takes several updates, each of which has
    /// that much of it, or of what repairs it; `payload` unless said.
    pub state: Option<Bytes>,
    /// Headers around it; those of our own protocol over UDP and IPv4 unless said.
    pub overhead: Option<Bytes>,
    /// An ack with its headers; our own protocol's unless said. With zero the monitor sends none,
    /// which the laws `fixed` and `poisson` can do without.
    pub ack: Option<Bytes>,
    /// How the size of an update on the wire is drawn.
    #[serde(default)]
    pub sizes: SizeDistribution,
    /// The links of each of several paths, in place of the flow's `path`; at most
    /// [`MultipathConfig::MAX_PATHS`].
    #[serde(default)]
    pub paths: Vec<Vec<String>>,
    /// With `paths`: which of them an update takes; `freshest` unless said.
    pub scheduler: Option<SchedulerConfig>,
    /// Its topics, with states of their own; packets then have the sizes of the session's datagrams.
    #[serde(default, rename = "topic")]
    pub topics: Vec<TopicConfig>,
    /// With topics: their maximum ages at the monitor. Of several rules that match, the first counts.
    #[serde(default)]
    pub max_age: Vec<MaxAgeConfig>,
    /// With topics: whether the endpoints know of weights, deadlines, rates, urgency and maximum ages.
    pub rules: Option<TopicRules>,
    /// With topics: the longest datagram; QUIC's unless said.
    pub max_datagram: Option<Bytes>,
}

/// A TCP stream with its application; a bulk transfer without end unless said.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcpConfig {
    /// The congestion control.
    pub control: Algorithm,
    /// Takes part in ECN (RFC 3168). DCTCP does in any case, in its own way (RFC 8257).
    #[serde(default)]
    pub ecn: bool,
    /// The payload of a full segment; 1448 bytes unless said.
    pub segment: Option<Bytes>,
    /// Sends packets of several segments, of up to this size (`gso_max_size` of Linux, 64 KiB):
    /// windows and acks count segments, queues see packets. Default: a packet per segment.
    pub gso_max_size: Option<Bytes>,
    /// TCP small queues in the host's own queue, a station's or that of the first link: at most two
    /// packets, or the pacing rate over two to the power of this, are in it: 7 as Linux's Wi-Fi has
    /// it, 10 as other devices. Default: no limit.
    pub pacing_shift: Option<u8>,
    /// A retransmission timeout is at least so much above the round trip; 200 ms unless said.
    pub min_rto_margin: Option<Span>,
    /// And at least so long in all; nothing unless said, where RFC 6298 has 1 s.
    pub min_rto: Option<Span>,
    /// How losses are found and repaired: `linux` or `blip`.
    #[serde(default)]
    pub repair: Repair,
    /// Segments of the initial window; 10 unless said.
    pub initial_window: Option<Packets>,
    /// With `control = "dtpa"`: settings that differ from its defaults.
    pub dtpa: Option<DtpaSettings>,
    /// The law of the receive window; Linux's unless said.
    #[serde(default = "autotune")]
    pub receiver: WindowLawConfig,
    /// The law of the bands in the host at which the flow begins; one band for all unless said.
    #[serde(default)]
    pub host: BandLawConfig,
    /// The receive buffer as it is at first, and at most (`tcp_rmem`); Linux's unless said.
    pub receive_buffer: Option<[Bytes; 2]>,
    /// The send buffer as it is at first, and at most (`tcp_wmem`); Linux's unless said.
    pub send_buffer: Option<[Bytes; 2]>,
    /// Writes blocks of `block` bytes at this rate instead.
    pub rate: Option<BitRate>,
    /// With `rate`: each block is an update, and its age counts from its writing.
    #[serde(default)]
    pub updates: bool,
    /// Writes an update of `block` bytes whenever all of the one before has been sent; its age counts from
    /// its writing.
    #[serde(default)]
    pub newest: bool,
    /// With `rate` or `newest`: the size of a block; a full segment unless said.
    pub block: Option<Bytes>,
    /// Sends this much and closes instead.
    pub file: Option<Bytes>,
    /// Asks with this much instead, and waits for the response.
    pub request: Option<Bytes>,
    /// With `request`: what comes back.
    pub response: Option<Bytes>,
    /// With `request`: from the end of a response to the next request; no time unless said.
    pub think: Option<Span>,
}

/// Paced packets to a station, which counts packets a frame and reports them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DownlinkConfig {
    /// The law, with the size of packets and how often clients report.
    pub law: DownlinkLawConfig,
    /// Flows of one server share its law; one for flows alike unless said.
    pub server: Option<String>,
    /// A report with its headers.
    #[serde(default = "report")]
    pub report: Bytes,
    /// Each packet leaves up to so much later than its turn, uniformly drawn.
    #[serde(default)]
    pub jitter: Span,
    /// By what the client counts packets a frame.
    #[serde(default)]
    pub counting: Counting,
    /// How the kernel stamps packets, where those stamps count.
    #[serde(default)]
    pub stamps: StampsConfig,
    /// Clients look for the bottleneck.
    #[serde(default)]
    pub locate: bool,
    /// The server limits rates to what clients confirm. Without, the law alone decides, as in the
    /// thesis.
    #[serde(default)]
    pub guard: bool,
}

/// Cross traffic.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrossTrafficConfig {
    /// `constant`, `poisson` or `on-off`.
    pub pattern: PatternName,
    /// While it sends, with headers.
    pub rate: BitRate,
    /// Of each packet, with headers.
    pub size: Bytes,
    /// Mean length of the on state.
    pub on: Option<Span>,
    /// Mean length of the off state.
    pub off: Option<Span>,
}

/// When packets of cross traffic come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PatternName {
    /// At constant distances.
    Constant,
    /// As a Poisson process.
    Poisson,
    /// Constant distances while on.
    OnOff,
}

/// Where a scenario comes from.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// What it says.
    pub text: &'a str,
    /// Reads a file that stands beside it, such as a trace, by the name that it is given there.
    pub read_file: &'a dyn Fn(&str) -> io::Result<String>,
}

impl<'a> From<&'a str> for Source<'a> {
    /// A scenario that stands in the working directory.
    fn from(text: &'a str) -> Self {
        Self { text, read_file: &|name| fs::read_to_string(name) }
    }
}

impl LinkConfig {
    /// So many hops a link has at most: a hop takes some 30 kB in either direction.
    pub const MAX_HOPS: u32 = 1_000;
}

impl FlowConfig {
    /// So many flows there are at most of one `[[flow]]`: a flow takes up to 100 kB.
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

/// As long as an ack of our own protocol, over UDP and IPv4.
fn report() -> Bytes {
    Bytes::new(84)
}

fn one() -> u32 {
    1
}

fn one_wide() -> u64 {
    1
}
