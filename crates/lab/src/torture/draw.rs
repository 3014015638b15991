//! Draws a plan from a seed.

use freshline_core::source::{
    AcpParams, AcpPlusParams, EpochEnd, EstimatorParams, LawConfig, LazyParams, RateBounds, Reset,
    TenthParams,
};
use freshline_core::unit::{Span, Time, UpdateRate};
use rand::{Rng, RngExt};
use rand_pcg::Pcg64;

use super::plan::{Damaged, Incident, Leave, MonitorPlan, Plan, SourcePlan, What};
use super::source_host::MAX_LARGE;
use super::timetable::Timetable;
use super::weather::{Partition, Weather};

/// The ceiling of every law's rate, in updates per second: high enough for updates to overtake each
/// other, and low enough for thousands of seeds.
pub(super) const MAX_RATE: f64 = 50.0;

/// The rate of [`LawConfig::Fixed`], in updates per second.
const FIXED_RATE: f64 = 20.0;

/// The maximum frequency error of hosts' clocks, in parts per million: the worst of cheap crystals.
const MAX_PPM: i32 = 200;

/// The fraction of sources with two paths.
const SEVERAL_PATHS: f64 = 0.4;

/// The random stream that selects the sources whose states take several updates.
const LARGE_STREAM: u128 = 3;

/// The random stream that selects a maximum age of states, and the processes that are stopped.
const DEADLINE_STREAM: u128 = 4;

/// The random stream that selects the commanded sources, and the law.
const COMMANDED_STREAM: u128 = 5;

/// The random stream that selects the sources with records.
const RECORDS_STREAM: u128 = 7;

/// The random stream that selects the sources with keys, and with urgent states.
const TOPICS_STREAM: u128 = 8;

/// The random stream that selects how processes end, and how they continue.
const ENDINGS_STREAM: u128 = 9;

/// The fractions of sources with keys, and with urgent states.
const KEYS: f64 = 0.4;
const URGENT: f64 = 0.4;

/// The fraction of named sources that have records.
const RECORDS: f64 = 0.4;

/// The fraction of commanded sources.
const COMMANDED: f64 = 0.4;

/// The fraction of monitors with a maximum age.
const DEADLINES: f64 = 0.5;

/// The fraction of sources whose states take several updates.
const LARGE_STATES: f64 = 0.3;

/// Bytes of states in parts per record: two incomplete ones, and one that is held; and as many for
/// keys.
const LARGE_PER_RECORD: usize = 8 * MAX_LARGE;

/// The schedulers that updates may have; others hold packets back.
const SCHEDULERS: [&str; 5] = ["freshest", "qaware", "min_srtt", "round_robin", "redundant"];

/// Incidents happen until this time, at which everything is healed at once.
const HEALED_AT: Span = Span::from_secs(25);

impl Plan {
    /// The plan of `seed` in this version.
    pub fn draw(seed: u64) -> Self {
        let rng = &mut Pcg64::new(seed.into(), 0);
        // From a separate generator, so that the rest of a seed's world stays the same.
        let large = &mut Pcg64::new(seed.into(), LARGE_STREAM);
        let returns = &mut Pcg64::new(seed.into(), COMMANDED_STREAM);
        let records = &mut Pcg64::new(seed.into(), RECORDS_STREAM);
        let topics = &mut Pcg64::new(seed.into(), TOPICS_STREAM);
        let count = rng.random_range(1..=5);
        let mut sources: Vec<_> = (0..count).map(|_| source(rng, large, returns)).collect();
        let mut incidents = Vec::new();
        for (source, plan) in sources.iter().enumerate() {
            for path in 0..plan.delays.len() {
                incidents_of(source, path, rng, &mut incidents);
                if plan.delays.len() > 1 {
                    interface_of(source, path, rng, &mut incidents);
                }
            }
        }
        absences(rng, &mut incidents);
        let deadline = &mut Pcg64::new(seed.into(), DEADLINE_STREAM);
        let has_max_age = deadline.random_bool(DEADLINES);
        let max_age = has_max_age.then(|| millis(deadline, 150..3_000));
        if has_max_age {
            stops(sources.len(), deadline, &mut incidents);
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
        let is_delivered = rng.random_bool(0.2);
        for source in &mut sources {
            // A damaged topic number can block the topic's states until the session is opened
            // again.
            let may_have = !source.name.is_empty() && !is_delivered;
            source.records = records.random_bool(RECORDS) && may_have;
            source.keys = topics.random_bool(KEYS) && !is_delivered;
            source.urgent = topics.random_bool(URGENT) && !is_delivered;
        }
        let mut plan = Self {
            seed,
            damaged: if is_delivered { Damaged::Delivered } else { Damaged::Dropped },
            monitor: MonitorPlan {
                ppm: ppm(rng),
                max_sources,
                max_large: max_sources * LARGE_PER_RECORD,
                max_age,
                idle: millis(rng, 5_000..10_000),
                journal: true,
                opens_returns_after: Span::ZERO,
                return_law: a_law(returns),
            },
            sources,
            incidents,
            healed_at: HEALED_AT,
            absence: millis(rng, 0..9_000),
        };
        let Timetable { away, back, .. } = Timetable::of(&plan);
        let leave = Leave::Crash;
        for (at, what) in [(away, What::MonitorDies { leave }), (back, What::MonitorStarts)] {
            plan.incidents.push(Incident { at: at.since(Time::ZERO), what });
        }
        endings(&mut Pcg64::new(seed.into(), ENDINGS_STREAM), &mut plan);
        plan
    }
}

/// The laws of sources, one of which is selected per source.
fn laws() -> [LawConfig; 5] {
    let ceiling = UpdateRate::saturating(MAX_RATE);
    let bounds = RateBounds { ceiling, ..RateBounds::default() };
    [
        LawConfig::AcpPlusD(AcpPlusParams { bounds, ..AcpPlusParams::departure() }),
        // Never below one update per round trip, from which a check derives a bound on the age.
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

fn a_law(rng: &mut Pcg64) -> LawConfig {
    let laws = laws();
    laws[rng.random_range(0..laws.len())]
}

fn source(rng: &mut Pcg64, large: &mut Pcg64, returns: &mut Pcg64) -> SourcePlan {
    let law = a_law(rng);
    let named = rng.random_bool(0.8);
    let name = if named { format!("robot-{:08x}", rng.next_u32()) } else { String::new() };
    let paths = if rng.random_bool(SEVERAL_PATHS) { 2 } else { 1 };
    let delays = (0..paths).map(|_| millis(rng, 1..80)).collect();
    let scheduler = SCHEDULERS[rng.random_range(0..SCHEDULERS.len())];
    let large = large.random_bool(LARGE_STATES);
    let is_commanded = returns.random_bool(COMMANDED);
    SourcePlan {
        law,
        name,
        delays,
        scheduler,
        large,
        is_commanded,
        records: false,
        keys: false,
        urgent: false,
        hurries: true,
        ppm: ppm(rng),
    }
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

/// The interface of a path may go down, once or twice, for up to 8 s each.
fn interface_of(source: usize, path: usize, rng: &mut Pcg64, incidents: &mut Vec<Incident>) {
    for _ in 0..rng.random_range(0..3) {
        let at = moment(rng);
        let back = (at + millis(rng, 0..8_000)).min(HEALED_AT);
        incidents.push(Incident { at, what: What::InterfaceGoes { source, path } });
        incidents.push(Incident { at: back, what: What::InterfaceUp { source, path } });
    }
}

/// The monitor may be down, once or twice, for up to 8 s each.
fn absences(rng: &mut Pcg64, incidents: &mut Vec<Incident>) {
    for _ in 0..rng.random_range(0..3) {
        let at = moment(rng);
        let back = (at + millis(rng, 0..8_000)).min(HEALED_AT);
        let leave = Leave::Crash;
        incidents.push(Incident { at, what: What::MonitorDies { leave } });
        incidents.push(Incident { at: back, what: What::MonitorStarts });
    }
}

/// Processes may be stopped, for up to 4 s each.
fn stops(sources: usize, rng: &mut Pcg64, incidents: &mut Vec<Incident>) {
    for _ in 0..rng.random_range(0..5) {
        let source = rng.random_range(0..sources);
        let (stops, goes_on) = match rng.random_bool(0.3) {
            true => (What::MonitorStops, What::MonitorGoesOn { slept: false }),
            false => (What::SourceStops { source }, What::SourceGoesOn { source, slept: false }),
        };
        let at = moment(rng);
        let back = (at + millis(rng, 0..4_000)).min(HEALED_AT);
        incidents.push(Incident { at, what: stops });
        incidents.push(Incident { at: back, what: goes_on });
    }
}

/// Some monitors close their sessions before they end, some processes learn that their machine was
/// suspended, and some return sessions are opened late.
fn endings(rng: &mut Pcg64, plan: &mut Plan) {
    for incident in &mut plan.incidents {
        match &mut incident.what {
            What::MonitorDies { leave } if rng.random() => *leave = Leave::Close,
            What::SourceGoesOn { slept, .. } | What::MonitorGoesOn { slept } => {
                *slept = rng.random();
            }
            _ => {}
        }
    }
    if rng.random() {
        plan.monitor.opens_returns_after = millis(rng, 1..1_000);
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
            ", large states",
            ", commanded",
            ", records",
            ", keys",
            ", urgent states",
            ", commands by tenth",
            "maximum age",
            "source 0 is stopped",
            "the monitor is stopped",
            "goes on",
            "goes on after a sleep",
            "closes all sessions",
            " after they are asked for",
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
            assert!(matches!(later[..], [What::MonitorDies { .. }, What::MonitorStarts]));
            assert!(plan.monitor.max_sources >= plan.sources.len());
        }
    }
}
