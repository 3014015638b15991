//! Complete endpoints under faults: sources and a monitor of `freshline_core::session` in virtual
//! time, over paths that lose, delay, reorder, copy, damage and truncate datagrams, between hosts
//! that crash, restart and move, with clocks that disagree.
//!
//! ```text
//!  seed ──► plan ──► world ──► observations ──► checkers, one per property
//!                     ▲                             │ first violation
//!   faults first, then healing,                     ▼
//!   then progress is required              seed, plan, trace: reproducible by the seed
//! ```
//!
//! One seed is one world and one thread; the same seed is the same world on any machine and any
//! number of threads, as long as the version is the same. The approach is that of simulation
//! testing of distributed databases: Zhou et al., "FoundationDB: A Distributed Unbundled
//! Transactional Key Value Store", SIGMOD 2021, section 4.

mod checks;
mod clock;
mod draw;
mod hosts;
mod keys;
mod ledger;
mod log;
mod monitor_host;
mod network;
mod observation;
mod plan;
#[cfg(feature = "planted-faults")]
mod planted;
mod sabotage;
mod source_host;
mod stops;
mod timetable;
mod topics;
mod trace;
mod traffic;
mod trial;
mod weather;

pub use plan::{Damaged, Incident, Leave, MonitorPlan, Plan, SourcePlan, What};
#[cfg(feature = "planted-faults")]
pub use planted::Planted;
pub use trial::{Breach, Counts};
pub use weather::{Partition, Weather};

use std::ops::Range;

use rayon::prelude::*;

use sabotage::{NoSabotage, Sabotage};
use trace::Trace;
use trial::Trial;

/// The result of a range of seeds.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The number of seeds that ran.
    pub seeds: u64,
    /// Sums over all seeds.
    pub counts: Counts,
    /// The seeds that failed, in order.
    pub failures: Vec<Failure>,
}

/// A seed under which a property did not hold.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The plan drawn from the seed.
    pub plan: Plan,
    /// The violated property.
    pub breach: Breach,
}

/// One seed, run again, with the last observations of its world.
#[derive(Debug, Clone)]
pub struct Replay {
    /// The plan drawn from the seed.
    pub plan: Plan,
    /// The violated property, if any.
    pub breach: Option<Breach>,
    /// Counters of events.
    pub counts: Counts,
    /// The last events before the violation or the end, one line each.
    pub trace: Vec<String>,
}

/// Runs every seed, on as many threads as there are cores. Calls `on_done` after each.
pub fn torture(seeds: Range<u64>, on_done: impl Fn() + Sync) -> Report {
    torture_until(seeds, on_done, || false)
}

/// As [`torture`], but does not begin further seeds once `is_over` returns `true`: the report then
/// covers the seeds that ran.
pub fn torture_until(
    seeds: Range<u64>,
    on_done: impl Fn() + Sync,
    is_over: impl Fn() -> bool + Sync,
) -> Report {
    run(seeds, on_done, is_over, || Box::new(NoSabotage))
}

/// As [`torture`], in worlds with a planted fault that must be found.
#[cfg(feature = "planted-faults")]
pub fn torture_planted(seeds: Range<u64>, fault: Planted) -> Report {
    run(seeds, || {}, || false, || Box::new(planted::Saboteur::new(fault)))
}

/// Runs one seed and keeps its last events.
pub fn replay(seed: u64) -> Replay {
    let plan = Plan::draw(seed);
    let mut trial = Trial::new(&plan, Box::new(NoSabotage), Some(Trace::default()));
    let breach = trial.run();
    let trace = trial.trace.as_ref().map(Trace::lines).unwrap_or_default();
    Replay { plan, breach, counts: trial.counts, trace }
}

fn run(
    seeds: Range<u64>,
    on_done: impl Fn() + Sync,
    is_over: impl Fn() -> bool + Sync,
    sabotage: impl Fn() -> Box<dyn Sabotage> + Sync,
) -> Report {
    let outcomes: Vec<_> = seeds
        .into_par_iter()
        .filter(|_| !is_over())
        .map(|seed| {
            let plan = Plan::draw(seed);
            let mut trial = Trial::new(&plan, sabotage(), None);
            let breach = trial.run();
            on_done();
            (trial.counts, breach.map(|breach| Failure { plan, breach }))
        })
        .collect();
    let mut report = Report::default();
    for (counts, failure) in outcomes {
        report.seeds += 1;
        report.counts += counts;
        report.failures.extend(failure);
    }
    report
}
