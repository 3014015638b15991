//! What a seed stands for: hosts, paths, and every incident until the world is healed.

use std::fmt;

use freshline_core::source::LawConfig;
use freshline_core::unit::Span;
use serde::{Serialize, Serializer};

use super::weather::Weather;

/// A whole torture, drawn from its seed.
#[derive(Debug, Clone, Serialize)]
pub struct Plan {
    /// All randomness, this plan's and that of what follows from it, comes from this number.
    pub seed: u64,
    /// Whether the layer below keeps damaged datagrams away.
    pub damaged: Damaged,
    /// The monitor.
    pub monitor: MonitorPlan,
    /// The sources, each with paths of its own.
    pub sources: Vec<SourcePlan>,
    /// In order of time.
    pub incidents: Vec<Incident>,
    /// When everything works again.
    pub healed_at: Span,
    /// How long the monitor is away once more when all has settled, on healthy paths.
    pub absence: Span,
}

/// What becomes of a damaged datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Damaged {
    /// The checksum of the layer below finds it and it is lost: the rule.
    Dropped,
    /// It arrives as it is, as over UDP without a checksum.
    Delivered,
}

/// The monitor's host.
#[derive(Debug, Clone, Serialize)]
pub struct MonitorPlan {
    /// How fast its clock is, in parts per million.
    pub ppm: i32,
    /// The most records that it holds, at least one a source.
    pub max_sources: usize,
    /// The most bytes of states in parts, enough for all records.
    pub max_large: usize,
    /// The maximum age of all states, if there is one.
    pub max_age: Option<Span>,
    /// When it forgets who is silent; see `freshline_core::session::MonitorParams`.
    pub idle: Span,
    /// Whether it writes down how far the application is with records, so that the next process goes on there.
    pub journal: bool,
    /// How long after a source has asked for its return session that is opened.
    pub opens_returns_after: Span,
    /// The law of its return sessions, each to a source that is commanded.
    #[serde(serialize_with = "name_of")]
    pub return_law: LawConfig,
}

/// One source's host.
#[derive(Debug, Clone, Serialize)]
pub struct SourcePlan {
    /// The law that it follows, with all its settings; its name in a report.
    #[serde(serialize_with = "name_of")]
    pub law: LawConfig,
    /// Its name; empty for none.
    pub name: String,
    /// One way to the monitor, of each of its paths.
    pub delays: Vec<Span>,
    /// What chooses among them where there are several.
    pub scheduler: &'static str,
    /// Whether its states have all lengths up to 60 kB, and some take several updates.
    pub large: bool,
    /// Whether it wants the states that the monitor sends: commands.
    pub is_commanded: bool,
    /// Whether it has a topic of records besides its states.
    pub records: bool,
    /// Whether it has a topic with keys.
    pub keys: bool,
    /// Whether it has a topic of urgent states.
    pub urgent: bool,
    /// Whether the source knows that these are urgent.
    #[serde(skip)]
    pub hurries: bool,
    /// How fast its clock is, in parts per million.
    pub ppm: i32,
}

/// Something that happens at a time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Incident {
    /// When.
    pub at: Span,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What may happen to hosts and paths.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum What {
    /// A path of a source changes.
    Weather {
        /// Whose.
        source: usize,
        /// Which of its paths.
        path: usize,
        /// From now on.
        weather: Weather,
    },
    /// The monitor's process ends.
    MonitorDies {
        /// How.
        leave: Leave,
    },
    /// A new one starts, with another secret and another start of its clock.
    MonitorStarts,
    /// A source is replaced by a new process of the same name.
    SourceRestarts {
        /// Which.
        source: usize,
        /// How the old one ended.
        leave: Leave,
    },
    /// A source's packets by a path come from another port from now on; its old one is nobody's.
    AddressChanges {
        /// Whose.
        source: usize,
        /// Which of its paths.
        path: usize,
    },
    /// The interface by which a path leaves is gone, and the source knows.
    InterfaceGoes {
        /// Whose.
        source: usize,
        /// Which of its paths.
        path: usize,
    },
    /// It is there again, with another address.
    InterfaceUp {
        /// Whose.
        source: usize,
        /// Which of its paths.
        path: usize,
    },
    /// A source's process is stopped, as by SIGSTOP; its clock goes on, and what comes is queued.
    SourceStops {
        /// Which.
        source: usize,
    },
    /// It goes on.
    SourceGoesOn {
        /// Which.
        source: usize,
        /// Whether its machine has slept, and it knows.
        slept: bool,
    },
    /// The monitor's process is stopped.
    MonitorStops,
    /// It goes on.
    MonitorGoesOn {
        /// Whether its machine has slept, and it knows.
        slept: bool,
    },
    /// The clock by which a source's application labels its states is off by so much from now on.
    LabelsStep {
        /// Whose.
        source: usize,
        /// In ms; negative: labels lie in the past.
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
                write!(f, "source {source} crashes and starts anew")
            }
            Self::SourceRestarts { source, leave: Leave::Close } => {
                write!(f, "source {source} closes its session and starts anew")
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
    /// Without a word.
    Crash,
    /// With a close of its sessions.
    Close,
}

impl Plan {
    /// How much longer than their delay datagrams may be under way when the world is healed.
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

    /// Whether records may be held for processes that are gone: those had no name by which their
    /// successors could replace them, or damage has changed the name on its way.
    pub(super) fn leaves_orphans(&self) -> bool {
        let nameless_restarts = self.incidents.iter().any(|incident| match incident.what {
            What::SourceRestarts { source, .. } => self.sources[source].name.is_empty(),
            _ => false,
        });
        nameless_restarts || self.damaged == Damaged::Delivered
    }

    /// Whether the labels of a source are off at some time.
    pub(super) fn labels_lie(&self, of: usize) -> bool {
        let lies = |incident: &Incident| match incident.what {
            What::LabelsStep { source, by_ms } => source == of && by_ms != 0,
            _ => false,
        };
        self.incidents.iter().any(lies)
    }
}

impl fmt::Display for Plan {
    /// A line a host and a line an incident.
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
