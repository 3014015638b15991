//! The plan of a seed: hosts, paths, and all incidents until the world is healed.

use std::fmt;

use freshline_core::source::LawConfig;
use freshline_core::unit::Span;
use serde::{Serialize, Serializer};

use super::weather::Weather;

/// A complete plan, drawn from its seed.
#[derive(Debug, Clone, Serialize)]
pub struct Plan {
    /// The seed of all random numbers, of this plan and of its execution.
    pub seed: u64,
    /// Whether the layer below drops damaged datagrams.
    pub damaged: Damaged,
    /// The monitor.
    pub monitor: MonitorPlan,
    /// The sources, each with its own paths.
    pub sources: Vec<SourcePlan>,
    /// The incidents, in order of time.
    pub incidents: Vec<Incident>,
    /// When all faults end.
    pub healed_at: Span,
    /// The duration of a second downtime of the monitor, on healthy paths, after everything has
    /// settled.
    pub absence: Span,
}

/// The treatment of a damaged datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Damaged {
    /// The checksum of the layer below detects the damage, and the datagram is lost: the usual
    /// case.
    Dropped,
    /// It arrives damaged, as over UDP without a checksum.
    Delivered,
}

/// The monitor's host.
#[derive(Debug, Clone, Serialize)]
pub struct MonitorPlan {
    /// The frequency error of its clock, in parts per million.
    pub ppm: i32,
    /// The maximum number of records, at least one per source.
    pub max_sources: usize,
    /// The maximum number of bytes of states in parts, enough for all records.
    pub max_large: usize,
    /// The maximum age of all states, if there is one.
    pub max_age: Option<Span>,
    /// The silence after which a source is forgotten; see `freshline_core::session::MonitorParams`.
    pub idle: Span,
    /// Whether it journals the application's position in records, so that the next process
    /// continues there.
    pub journal: bool,
    /// The delay from a source's request for its return session to the opening of that session.
    pub opens_returns_after: Span,
    /// The law of its return sessions, one per commanded source.
    #[serde(serialize_with = "name_of")]
    pub return_law: LawConfig,
}

/// One source's host.
#[derive(Debug, Clone, Serialize)]
pub struct SourcePlan {
    /// The law that controls it, with all its settings; in a report, the name of the law.
    #[serde(serialize_with = "name_of")]
    pub law: LawConfig,
    /// Its name; empty for none.
    pub name: String,
    /// The one-way delay to the monitor on each of its paths.
    pub delays: Vec<Span>,
    /// The scheduler that selects among its paths, if there are several.
    pub scheduler: &'static str,
    /// Whether its states have all sizes up to 60 kB, so that some take several updates.
    pub large: bool,
    /// Whether it accepts states from the monitor: commands.
    pub is_commanded: bool,
    /// Whether it has a topic of records in addition to its states.
    pub records: bool,
    /// Whether it has a topic with keys.
    pub keys: bool,
    /// Whether it has a topic of urgent states.
    pub urgent: bool,
    /// Whether the source knows that these states are urgent.
    #[serde(skip)]
    pub hurries: bool,
    /// The frequency error of its clock, in parts per million.
    pub ppm: i32,
}

/// An incident at a time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Incident {
    /// The time.
    pub at: Span,
    /// The incident.
    #[serde(flatten)]
    pub what: What,
}

/// Incidents of hosts and paths.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum What {
    /// A path of a source changes.
    Weather {
        /// The index of the source.
        source: usize,
        /// The index of its path.
        path: usize,
        /// The new weather.
        weather: Weather,
    },
    /// The monitor's process ends.
    MonitorDies {
        /// How it ends.
        leave: Leave,
    },
    /// A new monitor starts, with another secret and another start of its clock.
    MonitorStarts,
    /// A source is replaced by a new process with the same name.
    SourceRestarts {
        /// The index of the source.
        source: usize,
        /// How the old process ended.
        leave: Leave,
    },
    /// A source's packets on a path have another port from now on; the old one is closed.
    AddressChanges {
        /// The index of the source.
        source: usize,
        /// The index of its path.
        path: usize,
    },
    /// The interface of a path goes down, and the source knows.
    InterfaceGoes {
        /// The index of the source.
        source: usize,
        /// The index of its path.
        path: usize,
    },
    /// The interface is up again, with another address.
    InterfaceUp {
        /// The index of the source.
        source: usize,
        /// The index of its path.
        path: usize,
    },
    /// A source's process is stopped, as by SIGSTOP. Its clock continues, and arriving datagrams
    /// are queued.
    SourceStops {
        /// The index of the source.
        source: usize,
    },
    /// It continues.
    SourceGoesOn {
        /// The index of the source.
        source: usize,
        /// Whether its machine was suspended, and it knows.
        slept: bool,
    },
    /// The monitor's process is stopped.
    MonitorStops,
    /// It continues.
    MonitorGoesOn {
        /// Whether its machine was suspended, and it knows.
        slept: bool,
    },
    /// From now on the clock with which a source's application labels its states is off by an
    /// offset.
    LabelsStep {
        /// The index of the source.
        source: usize,
        /// The offset in ms; if negative, labels are in the past.
        by_ms: i64,
    },
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Weather { source, path, weather } => {
                write!(f, "path {path} of source {source}: {weather}")
            }
            Self::MonitorDies { leave: Leave::Crash } => f.write_str("the monitor dies"),
            Self::MonitorDies { leave: Leave::Close } => {
                f.write_str("the monitor closes all sessions and ends")
            }
            Self::MonitorStarts => f.write_str("a monitor starts"),
            Self::SourceRestarts { source, leave: Leave::Crash } => {
                write!(f, "source {source} crashes and restarts")
            }
            Self::SourceRestarts { source, leave: Leave::Close } => {
                write!(f, "source {source} closes its session and restarts")
            }
            Self::AddressChanges { source, path } => {
                write!(f, "source {source} has another address on path {path}")
            }
            Self::InterfaceGoes { source, path } => {
                write!(f, "the interface of path {path} of source {source} is gone")
            }
            Self::InterfaceUp { source, path } => {
                write!(f, "the interface of path {path} of source {source} is there")
            }
            Self::SourceStops { source } => write!(f, "source {source} is stopped"),
            Self::SourceGoesOn { source, slept } => {
                write!(f, "source {source} {}", goes_on(*slept))
            }
            Self::MonitorStops => f.write_str("the monitor is stopped"),
            Self::MonitorGoesOn { slept } => write!(f, "the monitor {}", goes_on(*slept)),
            Self::LabelsStep { source, by_ms: 0 } => {
                write!(f, "labels of source {source} are true")
            }
            Self::LabelsStep { source, by_ms } => {
                write!(f, "labels of source {source} are off by {by_ms:+} ms")
            }
        }
    }
}

fn goes_on(slept: bool) -> &'static str {
    if slept { "goes on after a sleep" } else { "goes on" }
}

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Leave {
    /// Without closing its sessions.
    Crash,
    /// With a close of its sessions.
    Close,
}

impl Plan {
    /// The maximum delay of datagrams, beyond that of their path, that are in flight when the world
    /// is healed.
    pub(super) fn max_jitter(&self) -> Span {
        let jitters = self.incidents.iter().map(|incident| match incident.what {
            What::Weather { weather, .. } => weather.jitter,
            _ => Span::ZERO,
        });
        jitters.max().unwrap_or(Span::ZERO)
    }

    /// Whether there is a return direction.
    pub(super) fn has_commands(&self) -> bool {
        self.sources.iter().any(|source| source.is_commanded)
    }

    /// Whether records may be held for processes that no longer exist, because they had no name by
    /// which a successor could replace them, or because damage has changed the name.
    pub(super) fn leaves_orphans(&self) -> bool {
        let nameless_restarts = self.incidents.iter().any(|incident| match incident.what {
            What::SourceRestarts { source, .. } => self.sources[source].name.is_empty(),
            _ => false,
        });
        nameless_restarts || self.damaged == Damaged::Delivered
    }

    /// Whether the labels of a source are off at any time.
    pub(super) fn labels_lie(&self, of: usize) -> bool {
        let lies = |incident: &Incident| match incident.what {
            What::LabelsStep { source, by_ms } => source == of && by_ms != 0,
            _ => false,
        };
        self.incidents.iter().any(lies)
    }
}

impl fmt::Display for Plan {
    /// One line per host and per incident.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MonitorPlan { ppm, max_sources, idle, max_age, .. } = &self.monitor;
        let MonitorPlan { return_law, opens_returns_after, .. } = &self.monitor;
        match self.damaged {
            Damaged::Dropped => writeln!(f, "damaged datagrams are dropped")?,
            Damaged::Delivered => writeln!(f, "damaged datagrams are delivered")?,
        }
        write!(f, "monitor: at most {max_sources} sources, idle {idle}, clock {ppm:+} ppm")?;
        if let Some(max_age) = max_age {
            write!(f, ", maximum age {max_age}")?;
        }
        if self.has_commands() {
            write!(f, ", commands by {}", return_law.name())?;
            if *opens_returns_after > Span::ZERO {
                write!(f, " {opens_returns_after} after they are asked for")?;
            }
        }
        writeln!(f)?;
        for (index, source) in self.sources.iter().enumerate() {
            let SourcePlan { law, name, delays, scheduler, ppm, .. } = source;
            write!(f, "source {index}: {}, name {name:?}, clock {ppm:+} ppm, delay ", law.name())?;
            let paths: Vec<_> = delays.iter().map(Span::to_string).collect();
            write!(f, "{}", paths.join(" and "))?;
            if paths.len() > 1 {
                write!(f, " by {scheduler}")?;
            }
            for (has_it, what) in [
                (source.large, "large states"),
                (source.is_commanded, "commanded"),
                (source.records, "records"),
                (source.keys, "keys"),
                (source.urgent, "urgent states"),
            ] {
                if has_it {
                    write!(f, ", {what}")?;
                }
            }
            writeln!(f)?;
        }
        for Incident { at, what } in &self.incidents {
            writeln!(f, "{:>9.3} s  {what}", at.as_secs_f64())?;
        }
        Ok(())
    }
}

fn name_of<S: Serializer>(law: &LawConfig, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(law.name().as_str())
}
