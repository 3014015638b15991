//! The runs of the lab's own models: our source, the best fixed rate, and one TCP stream.

use freshline_core::unit::Time;
use freshline_lab::contest::{Entry, contest};
use freshline_lab::scenario::{Change, Scenario};
use toml::Value;

use crate::age::Age;
use crate::grid::Path;

pub(crate) const SCENARIO: &str = include_str!("../../../../scenarios/large/path.toml");

/// Our source by law, and at the best fixed rate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ours {
    pub(crate) tenth: Age,
    pub(crate) acp_d: Age,
    pub(crate) fixed: Age,
}

/// Runs both laws, and the sweep of fixed rates.
pub(crate) fn ours(path: &Path) -> Ours {
    let contested = contest(SCENARIO, &path.changes(), || {}).expect("the scenario has a contest");
    let [tenth, acp_d] = &contested.laws[..] else { panic!("the contest has two laws") };
    Ours { tenth: age(tenth), acp_d: age(acp_d), fixed: age(&contested.best) }
}

fn age(entry: &Entry) -> Age {
    Age { mean: entry.age_mean, p99: entry.age_p99 }
}

/// Runs one TCP stream whose application writes the newest state as soon as the previous one has left.
pub(crate) fn tcp(path: &Path) -> Age {
    let mut changes = path.changes();
    let count =
        |flow: &str, count| Change::new(format!("flow.{flow}.count"), Value::Integer(count));
    changes.extend([count("source", 0), count("tcp", 1)]);
    let scenario = Scenario::parse_with(SCENARIO, &changes).expect("the scenario is legal");
    let mut world = scenario.build(0).expect("the scenario can be built").world;
    world.run_until(Time::ZERO + scenario.warm_up);
    world.begin_measuring();
    world.run_until(Time::ZERO + scenario.duration);
    let stream = world.flows().iter().find_map(|routed| routed.flow.stream());
    Age::of(stream.expect("there is a stream").outcome(world.now()).age)
}
