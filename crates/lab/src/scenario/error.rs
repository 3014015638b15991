//! Why a scenario cannot be run.

use std::borrow::Cow;

use freshline_core::link::FieldError;
use freshline_core::unit::Span;
use freshline_core::wlan::mac::CellError;

use super::{BadLaw, BadTopology};
use crate::mesh::MeshError;

/// An invalid scenario.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScenarioError {
    /// Not TOML, or an unknown key or invalid value. Contains the line.
    #[error("{0}")]
    Malformed(String),
    /// An error in a file, with the line of the key or of the name that it is about.
    #[error("line {line}: {error}")]
    At {
        /// Counted from 1.
        line: usize,
        /// The error.
        error: Box<ScenarioError>,
    },
    /// A warm-up that leaves no time to measure.
    #[error("`warm_up` ({warm_up}) is not shorter than `duration` ({duration}); shorten it")]
    NothingMeasured {
        /// The warm-up given.
        warm_up: Span,
        /// The duration given.
        duration: Span,
    },
    /// No run.
    #[error("`runs` is 0; give at least 1")]
    NoRun,
    /// A link of no hops.
    #[error("`count` of `{0}` is 0; give at least 1, or leave the link out")]
    NoHop(String),
    /// A link of more hops than a world should hold.
    #[error("`count` of `{link}` is {count}; give at most {most}")]
    TooManyHops {
        /// The link.
        link: String,
        /// The number given.
        count: u32,
        /// The maximum.
        most: u32,
    },
    /// No flow.
    #[error("there is no flow, so nothing would happen; add a [[flow]]")]
    NoFlow,
    /// Two links or cells, or two flows, with one name.
    #[error("two {0} are called `{1}`; give each a name of its own")]
    SameName(&'static str, String),
    /// A path over an unknown link.
    #[error("flow `{flow}` crosses `{link}`, but there is no such link; there is: {known}")]
    UnknownLink {
        /// The flow.
        flow: String,
        /// The unknown name in its path.
        link: String,
        /// The known links.
        known: String,
    },
    /// A hop with an invalid field.
    #[error("link `{link}`, `{direction}`: {error}")]
    Link {
        /// The link.
        link: String,
        /// `forward` or `reverse`.
        direction: &'static str,
        /// The error.
        error: FieldError,
    },
    /// A trace that cannot be read.
    #[error("link `{link}`: {error}")]
    Trace {
        /// The link.
        link: String,
        /// The error.
        error: String,
    },
    /// A network that cannot be built.
    #[error("topology: {0}")]
    Topology(#[from] BadTopology),
    /// Laws to switch that do not make a table.
    #[error("[journey]: {0}")]
    Journey(String),
    /// A change of an unknown station.
    #[error("cell `{cell}`: no flow gives a `station` called `{station}`; give one in a [[flow]]")]
    UnknownStation {
        /// The cell.
        cell: String,
        /// The station.
        station: String,
    },
    /// An invalid cell.
    #[error("cell `{cell}`: {error}")]
    Cell {
        /// The cell.
        cell: String,
        /// The error.
        error: CellError,
    },
    /// An invalid mesh.
    #[error("mesh `{mesh}`: {error}")]
    Mesh {
        /// The mesh.
        mesh: String,
        /// The error.
        error: MeshError,
    },
    /// None of the kinds, or several.
    #[error(
        "flow `{0}` needs exactly one of [flow.updates], [flow.tcp], [flow.multipath], [flow.downlink], \
         [flow.cross_traffic] and [flow.external]"
    )]
    NotOneKind(String),
    /// A flow of external hosts, which this run does not have.
    #[error(
        "flow `{0}` carries the datagrams of an application ([flow.external]): run it by the simulation \
         of the crate `freshline` (feature `sim`), or give the flow [flow.updates]"
    )]
    External(String),
    /// An invalid law.
    #[error("flow `{flow}`: {error}")]
    Law {
        /// The flow.
        flow: String,
        /// The error.
        error: BadLaw,
    },
    /// A law of the caller for a flow that is missing or has no law.
    #[error(
        "flow `{flow}` cannot have a law of the caller: it is not a flow of updates of this scenario; \
         those are: {known}"
    )]
    TakesNoLaw {
        /// The name given.
        flow: String,
        /// The flows that can have one.
        known: String,
    },
    /// An invalid topic.
    #[error("flow `{flow}`, topic `{topic}`: {what}")]
    Topic {
        /// The flow.
        flow: String,
        /// The topic.
        topic: String,
        /// The error, and how to fix it.
        what: Cow<'static, str>,
    },
    /// Invalid sizes or patterns.
    #[error("flow `{flow}`: {what}")]
    Flow {
        /// The flow.
        flow: String,
        /// The error, and how to fix it.
        what: Cow<'static, str>,
    },
}
