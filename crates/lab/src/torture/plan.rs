//! What a seed stands for: hosts, paths, and every incident until the world is healed.

use std::fmt;

use freshline_core::source::{
    AcpParams, AcpPlusParams, EpochEnd, EstimatorParams, LawConfig, LazyParams, RateBounds, Reset,
    TenthParams,
};
use freshline_core::unit::{Span, Time, UpdateRate};
use rand::{Rng, RngExt};
use rand_pcg::Pcg64;
use serde::{Serialize, Serializer};

use super::path::{Damaged, Partition, Weather};
use super::timetable::Timetable;

/// The ceiling of every law's rate, in updates a second: fast enough for updates to overtake each
/// other, slow enough for thousands of seeds.
pub(super) const MAX_RATE: f64 = 50.0;

/// The rate of [`LawConfig::Fixed`], in updates a second.
const FIXED_RATE: f64 = 20.0;

/// How fast or slow the clocks of hosts may be, in parts per million: the worst of cheap crystals.
const MAX_PPM: i32 = 200;

/// How many of the sources have two paths.
const SEVERAL_PATHS: f64 = 0.4;

/// The schedulers that updates may have; others let packets wait.
const SCHEDULERS: [&str; 5] = ["freshest", "qaware", "min_srtt", "round_robin", "redundant"];

/// Until then incidents happen, then all is healed at once.
const HEALED_AT: Span = Span::from_secs(25);

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

/// The monitor's host.
#[derive(Debug, Clone, Serialize)]
pub struct MonitorPlan {
    /// How fast its clock is, in parts per million.
    pub ppm: i32,
    /// The most records that it holds, at least one a source.
    pub max_sources: usize,
    /// When it forgets who is silent; see `freshline_core::session::MonitorParams`.
    pub idle: Span,
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
    /// How fast its clock is, in parts per million.
    pub ppm: i32,
}

/// The laws of the sources: one of these each.
fn laws() -> [LawConfig; 5] {
    let ceiling = UpdateRate::saturating(MAX_RATE);
    let bounds = RateBounds { ceiling, ..RateBounds::default() };
    [
        LawConfig::AcpPlusD(AcpPlusParams { bounds, ..AcpPlusParams::departure() }),
        // Never below one update per round trip: a check bounds the age from that.
        LawConfig::Acp(AcpParams {
            bounds,
            reset: Reset::Below,
            epoch_end: EpochEnd::Moving,
            estimator: EstimatorParams::departure(),
            ..AcpParams::default()
        }),
        LawConfig::Tenth(TenthParams { bounds, ..TenthParams::default() }),
        LawConfig::Lazy(LazyParams { bounds, ..LazyParams::default() }),
        LawConfig::Fixed { rate: UpdateRate::saturating(FIXED_RATE) },
    ]
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
    /// The monitor's process ends without a word.
    MonitorDies,
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
    InterfaceComes {
        /// Whose.
        source: usize,
        /// Which of its paths.
        path: usize,
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
            Self::MonitorDies => f.write_str("the monitor dies"),
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
            Self::InterfaceComes { source, path } => {
                write!(f, "the interface of path {path} of source {source} is there")
            }
            Self::LabelsStep { source, by_ms: 0 } => {
                write!(f, "labels of source {source} are true")
            }
            Self::LabelsStep { source, by_ms } => {
                write!(f, "labels of source {source} are off by {by_ms:+} ms")
            }
        }
    }
}

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Leave {
    /// Without a word.
    Crash,
    /// With a close to the monitor.
    Close,
}

impl Plan {
    /// What `seed` stands for in this version.
    pub fn draw(seed: u64) -> Self {
        let rng = &mut Pcg64::new(seed.into(), 0);
        let sources: Vec<_> = (0..rng.random_range(1..=5)).map(|_| source(rng)).collect();
        let mut incidents = Vec::new();
        for (source, plan) in sources.iter().enumerate() {
            for path in 0..plan.delays.len() {
                incidents_of(source, path, rng, &mut incidents);
                if plan.delays.len() > 1 {
                    interface_of(source, path, rng, &mut incidents);
                }
            }
        }
        for _ in 0..rng.random_range(0..3) {
            let at = moment(rng);
            let back = (at + millis(rng, 0..8_000)).min(HEALED_AT);
            incidents.push(Incident { at, what: What::MonitorDies });
            incidents.push(Incident { at: back, what: What::MonitorStarts });
        }
        for (source, plan) in sources.iter().enumerate() {
            let weather = Weather::default();
            let paths = 0..plan.delays.len();
            let healed = paths.map(|path| What::Weather { source, path, weather });
            for what in healed.chain([What::LabelsStep { source, by_ms: 0 }]) {
                incidents.push(Incident { at: HEALED_AT, what });
            }
        }
        incidents.sort_by_key(|incident| incident.at);
        let max_sources = sources.len() + rng.random_range(0..4);
        let mut plan = Self {
            seed,
            damaged: if rng.random_bool(0.2) { Damaged::Delivered } else { Damaged::Dropped },
            monitor: MonitorPlan { ppm: ppm(rng), max_sources, idle: millis(rng, 5_000..10_000) },
            sources,
            incidents,
            healed_at: HEALED_AT,
            absence: millis(rng, 0..9_000),
        };
        let Timetable { away, back, .. } = Timetable::of(&plan);
        for (at, what) in [(away, What::MonitorDies), (back, What::MonitorStarts)] {
            plan.incidents.push(Incident { at: at.since(Time::ZERO), what });
        }
        plan
    }

    /// How much longer than their delay datagrams may be under way when the world is healed.
    pub(super) fn longest_jitter(&self) -> Span {
        let jitters = self.incidents.iter().map(|incident| match incident.what {
            What::Weather { weather, .. } => weather.jitter,
            _ => Span::ZERO,
        });
        jitters.max().unwrap_or(Span::ZERO)
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
        let MonitorPlan { ppm, max_sources, idle } = &self.monitor;
        match self.damaged {
            Damaged::Dropped => writeln!(f, "damaged datagrams are dropped")?,
            Damaged::Delivered => writeln!(f, "damaged datagrams are delivered")?,
        }
        writeln!(f, "monitor: at most {max_sources} sources, idle {idle}, clock {ppm:+} ppm")?;
        for (index, source) in self.sources.iter().enumerate() {
            let SourcePlan { law, name, delays, scheduler, ppm } = source;
            write!(f, "source {index}: {}, name {name:?}, clock {ppm:+} ppm, delay ", law.name())?;
            let ways: Vec<_> = delays.iter().map(Span::to_string).collect();
            write!(f, "{}", ways.join(" and "))?;
            if ways.len() > 1 {
                write!(f, " by {scheduler}")?;
            }
            writeln!(f)?;
        }
        for Incident { at, what } in &self.incidents {
            writeln!(f, "{:>9.3} s  {what}", at.as_secs_f64())?;
        }
        Ok(())
    }
}

fn source(rng: &mut Pcg64) -> SourcePlan {
    let laws = laws();
    let law = laws[rng.random_range(0..laws.len())];
    let named = rng.random_bool(0.8);
    let name = if named { format!("robot-{:08x}", rng.next_u32()) } else { String::new() };
    let paths = if rng.random_bool(SEVERAL_PATHS) { 2 } else { 1 };
    let delays = (0..paths).map(|_| millis(rng, 1..80)).collect();
    let scheduler = SCHEDULERS[rng.random_range(0..SCHEDULERS.len())];
    SourcePlan { law, name, delays, scheduler, ppm: ppm(rng) }
}

fn name_of<S: Serializer>(law: &LawConfig, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(law.name().as_str())
}

fn incidents_of(source: usize, path: usize, rng: &mut Pcg64, incidents: &mut Vec<Incident>) {
    for _ in 0..rng.random_range(1..6) {
        let weather = weather(rng);
        incidents.push(Incident { at: moment(rng), what: What::Weather { source, path, weather } });
        let what = match rng.random_range(0..10) {
            0 => What::SourceRestarts { source, leave: Leave::Crash },
            1 => What::SourceRestarts { source, leave: Leave::Close },
            2..4 => What::AddressChanges { source, path },
            4 => What::LabelsStep { source, by_ms: rng.random_range(-3_600_000..3_600_000) },
            _ => continue,
        };
        incidents.push(Incident { at: moment(rng), what });
    }
}

/// It may go, once or twice, for up to 8 s each.
fn interface_of(source: usize, path: usize, rng: &mut Pcg64, incidents: &mut Vec<Incident>) {
    for _ in 0..rng.random_range(0..3) {
        let at = moment(rng);
        let back = (at + millis(rng, 0..8_000)).min(HEALED_AT);
        incidents.push(Incident { at, what: What::InterfaceGoes { source, path } });
        incidents.push(Incident { at: back, what: What::InterfaceComes { source, path } });
    }
}

fn weather(rng: &mut Pcg64) -> Weather {
    let mut some = |most: f64| match rng.random_bool(0.5) {
        true => rng.random_range(0.0..most),
        false => 0.0,
    };
    Weather {
        loss: some(0.6),
        bursts: some(0.1),
        duplication: some(0.5),
        corruption: some(0.3),
        truncation: some(0.3),
        foreign: some(0.5),
        jitter: millis(rng, 0..300),
        partition: match rng.random_range(0..12) {
            0 => Partition::Both,
            1 => Partition::ToMonitor,
            2 => Partition::ToSource,
            _ => Partition::Neither,
        },
    }
}

fn moment(rng: &mut Pcg64) -> Span {
    millis(rng, 0..20_000)
}

fn millis(rng: &mut Pcg64, range: std::ops::Range<u64>) -> Span {
    Span::from_millis(rng.random_range(range))
}

fn ppm(rng: &mut Pcg64) -> i32 {
    rng.random_range(-MAX_PPM..=MAX_PPM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_hundred_seeds_draw_everything_that_can_be_drawn() {
        let plans: Vec<_> = (0..300).map(Plan::draw).collect();
        let text = plans.iter().map(Plan::to_string).collect::<String>();
        for word in [
            ": acp+d,",
            ": acp,",
            ": tenth,",
            ": lazy,",
            ": fixed,",
            "name \"\"",
            "are dropped",
            "are delivered",
            "monitor dies",
            "monitor starts",
            "crashes",
            "closes",
            "another address on path 0",
            "another address on path 1",
            "is gone",
            "is there",
            "by freshest",
            "by qaware",
            "by min_srtt",
            "by round_robin",
            "by redundant",
            "off by +",
            "off by -",
            "bursts",
            "foreign",
            "passes",
            "reaches the monitor",
            "reaches the source",
        ] {
            assert!(text.contains(word), "{word} was never drawn");
        }
    }

    #[test]
    fn after_the_healing_only_the_monitor_goes_and_comes_back() {
        for seed in 0..300 {
            let plan = Plan::draw(seed);
            let later = plan.incidents.iter().filter(|incident| incident.at > plan.healed_at);
            let later: Vec<_> = later.map(|incident| incident.what).collect();
            assert_eq!(later, [What::MonitorDies, What::MonitorStarts]);
            assert!(plan.monitor.max_sources >= plan.sources.len());
        }
    }
}
