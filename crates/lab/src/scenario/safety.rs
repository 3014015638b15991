//! `[reproduce.safety]`: from which ranges the points of a safety sweep are drawn.

use std::collections::BTreeMap;

use freshline_core::unit::{BitRate, Bytes, Packets, Span, UpdateRate};
use serde::{Deserialize, Serialize};

/// A sweep of points at which no law may overload its path.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SafetyConfig {
    /// Seed of the draw: another seed draws other points.
    pub seed: u64,
    /// The laws, in the order of the table.
    pub laws: Vec<String>,
    /// The flow whose sources are judged.
    pub flow: String,
    /// The link that takes a point's delay, and, outside of Wi-Fi, its rate and its queue.
    pub link: String,
    /// The categories, in the order of the table.
    #[serde(rename = "category")]
    pub categories: Vec<SafetyCategory>,
}

/// Points of one kind.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SafetyCategory {
    /// Its name, for the table.
    pub name: String,
    /// Number of points.
    pub points: u32,
    /// Number of equal sources, minimum and maximum.
    pub sources: [u32; 2],
    /// Base round-trip time, without transmission times; minimum and maximum.
    pub rtt: [Span; 2],
    /// State in each update, minimum and maximum.
    pub payload: [Bytes; 2],
    /// Capacity of the link, minimum and maximum; the link keeps its own rate without it.
    pub rate: Option<[BitRate; 2]>,
    /// Updates/s that an equal share of the capacity carries, minimum and maximum. A rate outside
    /// of it is moved to its nearest end.
    #[serde(default = "share")]
    pub share: [UpdateRate; 2],
    /// The maximum capacity in updates/s of all sources together; limits the cost of a point.
    #[serde(default = "max_updates")]
    pub max_updates: UpdateRate,
    /// Length of the drop-tail queue, minimum and maximum; the queue stays as it is without it.
    pub queue: Option<[Packets; 2]>,
    /// The cell that is the bottleneck in place of the link.
    pub cell: Option<String>,
    /// Keys set for all points.
    #[serde(default)]
    pub set: BTreeMap<String, toml::Value>,
    /// Further keys: each point takes one of these tables, in turn.
    #[serde(default)]
    pub variants: Vec<BTreeMap<String, toml::Value>>,
}

/// One of two halves of a set of cases: a law is developed on one, and reported once on the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Half {
    /// The cases on which a law may be developed.
    Training,
    /// The other cases, whose results are not read before the report.
    HeldOut,
}

impl Half {
    /// The name in tables, flags and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Training => "training",
            Self::HeldOut => "held-out",
        }
    }
}

fn share() -> [UpdateRate; 2] {
    [UpdateRate::saturating(1.0), UpdateRate::saturating(f64::MAX)]
}

fn max_updates() -> UpdateRate {
    UpdateRate::saturating(100_000.0)
}
