//! The safety sweep: checks on many paths whether a law overloads the path or starves a source.
//!
//! ```text
//!   [reproduce.safety] ─► points ─► each law ─► overload, slowest, jain ─► violations
//!                               └─► in a cell: fixed rates that saturate it ─► its capacity
//! ```

mod points;

use rayon::prelude::*;
use serde::Serialize;

pub use self::points::{SafetyPoint, points};
use crate::reproduce::ReproduceError;
use crate::run::{Sampled, sample};
use crate::scenario::{Change, Half, SafetyConfig, Scenario, SetError, Source};
use crate::world::Sizes;
use freshline_core::unit::Bytes;

/// Selects the points of a sweep.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// One half; both if unset.
    pub half: Option<Half>,
    /// Only the points with these numbers; all of them if empty.
    pub only: Vec<u32>,
}

impl Options {
    /// The points of a sweep that run.
    pub fn points(&self, config: &SafetyConfig) -> Vec<SafetyPoint> {
        let mut all = points(config);
        all.retain(|point| {
            let is_named = self.only.is_empty() || self.only.contains(&point.number);
            is_named && self.half.is_none_or(|half| half == point.half)
        });
        all
    }
}

/// A sweep with its figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Safety {
    /// The seed of the draw.
    pub seed: u64,
    /// The points that ran.
    pub points: Vec<Judged>,
}

/// A point under all laws.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// The point.
    #[serde(flatten)]
    pub point: SafetyPoint,
    /// Each law, in the order of the scenario.
    pub laws: Vec<Figures>,
}

/// The results of a law at a point.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// The law.
    pub law: String,
    /// Offered load over capacity, the maximum of all 5 s windows after the warm-up.
    pub overload: f64,
    /// The same over the whole measured time: whether the path is kept overloaded; `null` in a cell.
    pub load: Option<f64>,
    /// Updates delivered from the slowest source, divided by the mean of all; `null` for a lone
    /// source.
    pub slowest: Option<f64>,
    /// Jain's index of the updates delivered; `null` for a lone source.
    pub jain: Option<f64>,
    /// True age at the monitor, mean, s.
    pub age_mean: f64,
    /// The figures that exceed their bounds.
    pub violations: Vec<Violation>,
}

/// A figure that exceeds its bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Violation {
    /// [`Figures::overload`] is above [`Violation::bound`].
    Overload,
    /// [`Figures::slowest`] is below it.
    Slowest,
    /// [`Figures::jain`] is below it.
    Jain,
}

impl Violation {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 3] = [Self::Overload, Self::Slowest, Self::Jain];

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Overload => "overload",
            Self::Slowest => "slowest",
            Self::Jain => "jain",
        }
    }

    /// The maximum of an overload, or the minimum of a share.
    pub const fn bound(self) -> f64 {
        match self {
            Self::Overload => 1.1,
            Self::Slowest => 0.5,
            Self::Jain => 0.95,
        }
    }

    /// The figure; `None` for a lone source if it needs several.
    pub fn figure(self, of: &Figures) -> Option<f64> {
        match self {
            Self::Overload => Some(of.overload),
            Self::Slowest => of.slowest,
            Self::Jain => of.jain,
        }
    }

    /// Whether a figure is worse than another one.
    pub fn is_worse(self, figure: f64, than: f64) -> bool {
        match self {
            Self::Overload => figure > than,
            Self::Slowest | Self::Jain => figure < than,
        }
    }
}

/// The number of runs of the scenario that [`sweep`] makes.
pub fn steps(config: &SafetyConfig, options: &Options) -> usize {
    let runs = |point: &SafetyPoint| config.laws.len() + 2 * usize::from(point.cell.is_some());
    options.points(config).iter().map(runs).sum()
}

/// Runs the points of a sweep under each law, after applying `changes`. Calls `done` after each
/// run, from any thread.
pub fn sweep<'a>(
    source: impl Into<Source<'a>>,
    changes: &[Change],
    options: &Options,
    done: impl Fn() + Sync,
) -> Result<Safety, ReproduceError> {
    let source = source.into();
    let whole = Scenario::parse_with(source, changes)
        .map_err(|error| ReproduceError::Row { what: "all".to_owned(), error: error.into() })?;
    let config = whole.reproduce.and_then(|reproduction| reproduction.safety);
    let config = config.ok_or(ReproduceError::NothingToReproduce)?;
    let points = options.points(&config);
    let jobs: Result<Vec<_>, _> =
        points.iter().map(|point| Jobs::of(source, changes, &config, point)).collect();
    let judge = |(point, jobs): (SafetyPoint, Jobs)| jobs.run(&config, point, &done);
    let judged: Result<Vec<_>, _> = points.into_par_iter().zip(jobs?).map(judge).collect();
    Ok(Safety { seed: config.seed, points: judged? })
}

/// The total updates/s of all stations of a saturated cell: more than 802.11a and g can transmit of
/// the smallest frames.
const SATURATING: f64 = 20_000.0;

/// The scenarios of a point.
struct Jobs {
    laws: Vec<Scenario>,
    saturated: Option<Saturated>,
}

/// Fixed rates at which a cell's stations always have a packet to send.
struct Saturated {
    /// Updates of the same size as those of the point, without acks.
    updates: Scenario,
    /// Updates of the same size as acks, without acks.
    acks: Scenario,
}

impl Jobs {
    fn of(
        source: Source<'_>,
        changes: &[Change],
        config: &SafetyConfig,
        point: &SafetyPoint,
    ) -> Result<Self, ReproduceError> {
        let key = |key: &str| format!("flow.{}.updates.{key}", config.flow);
        let text = |key: String, value: String| Change::new(key, toml::Value::String(value));
        let scenario = |own: Vec<Change>| {
            let all: Vec<_> = changes.iter().cloned().chain(point.changes()).chain(own).collect();
            let bad = |error| refused(point, error);
            Scenario::parse_with(source, &all).map_err(bad)
        };
        let law = |law: &String| scenario(vec![text(key("law"), law.clone())]);
        let saturated = |payload: u64| {
            let rate = format!("{:.3}/s", SATURATING / f64::from(point.sources));
            let sizes = [("payload", format!("{payload}B")), ("ack", "0B".to_owned())];
            let law = [("law", "fixed".to_owned()), ("rate", rate)];
            scenario(law.into_iter().chain(sizes).map(|(it, value)| text(key(it), value)).collect())
        };
        let saturated = |_: &String| {
            Ok(Saturated { updates: saturated(point.payload)?, acks: saturated(ACK_PAYLOAD)? })
        };
        Ok(Self {
            laws: config.laws.iter().map(law).collect::<Result<_, _>>()?,
            saturated: point.cell.as_ref().map(saturated).transpose()?,
        })
    }

    fn run(
        self,
        config: &SafetyConfig,
        point: SafetyPoint,
        done: &(impl Fn() + Sync),
    ) -> Result<Judged, ReproduceError> {
        let run = |scenario: &Scenario| {
            let samples = sample(scenario, done).map_err(|error| refused(&point, error.into()))?;
            Ok(Samples { samples, flow: &config.flow })
        };
        let capacity = match &self.saturated {
            None => Capacity::Link(&config.link),
            Some(Saturated { updates, acks }) => Capacity::Cell {
                cell: point.cell.as_deref().unwrap_or_default(),
                updates: run(updates)?.carried(&point, point.payload)?,
                acks: run(acks)?.carried(&point, ACK_PAYLOAD)?,
            },
        };
        let laws = config.laws.iter().zip(&self.laws).map(|(law, scenario)| {
            let samples = run(scenario)?;
            samples.judge(law, &point, &capacity)
        });
        let laws = laws.collect::<Result<_, ReproduceError>>()?;
        Ok(Judged { laws, point })
    }
}

/// The size of the state, in bytes, in an update of the same size as an ack.
const ACK_PAYLOAD: u64 = 1;

/// The capacity of the bottleneck.
enum Capacity<'a> {
    /// That of the link, which the metric `overload` already takes into account.
    Link(&'a str),
    /// That of a cell, in bit/s of updates and of acks, with saturated stations.
    Cell { cell: &'a str, updates: f64, acks: f64 },
}

fn refused(point: &SafetyPoint, error: SetError) -> ReproduceError {
    ReproduceError::Row { what: format!("point {}", point.number), error: Box::new(error) }
}

/// The numbers of a run.
struct Samples<'a> {
    samples: Vec<Sampled>,
    flow: &'a str,
}

impl Samples<'_> {
    fn find(&self, name: &str, of: &str) -> Option<f64> {
        let mut all = self.samples.iter();
        let found = all.find(|sampled| sampled.name == name && sampled.of == of);
        found.map(|sampled| sampled.metric().value)
    }

    fn get(&self, point: &SafetyPoint, name: &str, of: &str) -> Result<f64, ReproduceError> {
        self.find(name, of).ok_or_else(|| {
            let known = self.samples.iter().map(|it| format!("{} of {}", it.name, it.of));
            ReproduceError::UnknownMetric {
                what: format!("point {}", point.number),
                metric: name.to_owned(),
                of: of.to_owned(),
                known: known.collect::<Vec<_>>().join(", "),
            }
        })
    }

    /// Throughput of all sources together, with headers, in bit/s.
    fn carried(&self, point: &SafetyPoint, payload: u64) -> Result<f64, ReproduceError> {
        let goodput = self.get(point, "goodput_sum", self.flow)?;
        let sizes = Sizes::of_our_protocol(Bytes::new(payload));
        Ok(goodput * (sizes.payload + sizes.overhead).get() as f64 / payload as f64)
    }

    fn judge(
        &self,
        law: &str,
        point: &SafetyPoint,
        capacity: &Capacity<'_>,
    ) -> Result<Figures, ReproduceError> {
        let overload = match *capacity {
            Capacity::Link(link) => self.get(point, "overload", link)?,
            Capacity::Cell { cell, updates, acks } => {
                let access_point = format!("{cell}/ap");
                let load = |name| {
                    let there = self.get(point, name, cell)? / updates;
                    Ok(there + self.get(point, name, &access_point)? / acks)
                };
                // Saturated stations collide more often, so a cell's capacity can exceed their
                // throughput; it is at least the throughput that was measured.
                load("offered_max")? / load("carried_max")?.max(1.0)
            }
        };
        // In a run without deliveries there are no shares.
        let several = |name| (point.sources > 1).then(|| self.find(name, self.flow).unwrap_or(0.0));
        let mut figures = Figures {
            law: law.to_owned(),
            overload,
            load: match *capacity {
                Capacity::Link(link) => Some(self.get(point, "load", link)?),
                Capacity::Cell { .. } => None,
            },
            slowest: several("slowest"),
            jain: several("updates_jain"),
            age_mean: self.get(point, "age_mean", self.flow)?,
            violations: Vec::new(),
        };
        let is_violated = |it: &Violation| {
            it.figure(&figures).is_some_and(|figure| it.is_worse(figure, it.bound()))
        };
        figures.violations = Violation::ALL.into_iter().filter(is_violated).collect();
        Ok(figures)
    }
}
