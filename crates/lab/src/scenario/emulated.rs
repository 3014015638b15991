//! A scenario as input of the path emulator: one flow of updates, whose sources share a path.

use freshline_core::link::{ConditionsConfig, HopChange, HopConfig, PathConfig};
use freshline_core::source::{Limits, RateLaw};
use freshline_core::unit::{Bytes, Span};
use rand::RngExt;

use super::{CellsConfig, FlowConfig, LinkChange, LinkConfig, Scenario, ScenarioError};
use crate::engine::Streams;
use crate::world::SizeDistribution;

/// The settings that a run over sockets takes from a run of the lab.
pub struct Emulated {
    /// The path of all sources. Its generated traces are those of the lab's run.
    pub conditions: ConditionsConfig,
    /// The seed of the emulator.
    pub seed: u64,
    /// The name of the flow.
    pub flow: String,
    /// The size of the state in each update.
    pub payload: Bytes,
    /// Limits of each source.
    pub limits: Limits,
    /// The sources, with the laws and starts of the lab's run.
    pub sources: Vec<EmulatedSource>,
}

/// A source of an [`Emulated`] flow.
pub struct EmulatedSource {
    /// When it starts, from the start of the run.
    pub starts_at: Span,
    /// Its rate law.
    pub law: Box<dyn RateLaw>,
}

impl Scenario {
    /// The `run`-th run of the scenario, for the emulator and sources on sockets.
    ///
    /// # Errors
    ///
    /// If the scenario has more than one flow, or something that the emulator or a source on a socket
    /// does not have.
    pub fn emulated(&self, run: u32) -> Result<Emulated, ScenarioError> {
        let flow = self.only_flow()?;
        let Some(updates) = &flow.updates else {
            return Err(flow.refused("runs over sockets need a flow with [flow.updates]"));
        };
        let Some(payload) = updates.payload else {
            return Err(flow.refused("runs over sockets have no topics; leave them out"));
        };
        if updates.overhead.or(updates.ack).is_some()
            || updates.sizes != SizeDistribution::Constant
            || !updates.paths.is_empty()
        {
            return Err(flow.refused(
                "a source on a socket has no `overhead`, `ack`, `sizes` and `paths`; leave them out",
            ));
        }
        let streams = Streams::new(self.seed, run);
        let limits = updates.limits().map_err(|what| flow.refused(what))?;
        let source = |number| {
            let law = updates.build_law(streams.stream("law", number));
            let law = law.map_err(|error| ScenarioError::Law { flow: flow.name.clone(), error })?;
            let mut rng = streams.stream("flow", number);
            Ok::<_, ScenarioError>(EmulatedSource {
                starts_at: flow.starts_at(number, &mut rng),
                law,
            })
        };
        Ok(Emulated {
            conditions: self.conditions(flow, streams)?,
            seed: streams.stream("emulator", 0).random(),
            flow: flow.name.clone(),
            payload: updates.state.unwrap_or(payload).max(payload),
            limits,
            sources: (0..flow.count as usize).map(source).collect::<Result<_, _>>()?,
        })
    }

    /// The flow in use, if it is the only one.
    fn only_flow(&self) -> Result<&FlowConfig, ScenarioError> {
        let mut used = self.flows.iter().filter(|flow| flow.count > 0);
        let first = used.next().ok_or(ScenarioError::NoFlow)?;
        let is_plain = !first.reverse
            && !first.each_hop
            && !first.each_pair
            && !first.each_node
            && !first.one_host
            && first.station.is_none()
            && first.stop.is_none()
            && (first.dscp, first.ack_dscp) == (0, None);
        match used.next() {
            Some(other) => Err(other.refused(format!(
                "runs over sockets have one flow; set the `count` of all but `{}` to 0",
                first.name
            ))),
            None if is_plain => Ok(first),
            None => Err(first.refused(
                "a flow over sockets takes `count`, `path`, `start`, `start_spread` and `start_interval` only; leave \
                 the other keys out",
            )),
        }
    }

    /// The path of a flow.
    fn conditions(
        &self,
        flow: &FlowConfig,
        streams: Streams,
    ) -> Result<ConditionsConfig, ScenarioError> {
        let mut conditions = ConditionsConfig::default();
        for (position, name) in flow.path.iter().enumerate() {
            let link = self.links.iter().enumerate().find(|(_, link)| link.name == *name);
            let cell = self.cells.iter().find(|cell| cell.name == *name);
            match (link, cell) {
                (Some((index, link)), _) => {
                    let [forward, reverse] = link.emulated(streams, index);
                    conditions.forward.hop.extend(forward);
                    conditions.reverse.hop.extend(reverse);
                }
                (None, Some(CellsConfig { radio, changes, .. }))
                    if position == 0 && changes.is_empty() =>
                {
                    conditions.wlan = Some(radio.clone());
                }
                _ => {
                    return Err(flow.refused(format!(
                        "`{name}` cannot be emulated; over sockets a `path` has links, and may begin with \
                         a cell without changes"
                    )));
                }
            }
        }
        let PathConfig { hop } = &mut conditions.reverse;
        hop.reverse();
        Ok(conditions)
    }
}

impl LinkConfig {
    /// The forward and reverse hops, each in the order from the source, with the seeds of the run
    /// for models of traces: both directions have the same satellites.
    pub(super) fn hops(&self, streams: Streams, index: usize) -> [Vec<HopConfig>; 2] {
        let seed: u64 = streams.stream("trace", index).random();
        let [forward, reverse] = self.directions();
        [(0, forward), (1, reverse)].map(|(direction, config)| {
            let stream_of = |number| direction + 2 * u64::from(number);
            (0..self.count).map(|number| config.or_trace_seed(seed, stream_of(number))).collect()
        })
    }

    /// The same with the link's changes.
    fn emulated(&self, streams: Streams, index: usize) -> [Vec<HopConfig>; 2] {
        let change = |&LinkChange { at, rate, delay }: &LinkChange| HopChange { at, rate, delay };
        self.hops(streams, index).map(|mut hops| {
            for hop in &mut hops {
                hop.changes.extend(self.changes.iter().map(change));
                hop.changes.sort_by_key(|change| change.at);
            }
            hops
        })
    }
}

#[cfg(test)]
mod tests {
    use freshline_core::unit::Time;

    use super::*;

    const CROWD: &str = r#"
        title = "three sources, three hops and a trace"
        duration = "10s"

        [[link]]
        name = "access"
        count = 2
        forward = { rate = "2mbit", delay = "5ms" }
        change = [{ at = "3s", rate = "1mbit" }]

        [[link]]
        name = "space"
        forward = { trace = { model = "leo", duration = "10s" } }
        reverse = { trace = { model = "leo", duration = "10s" }, delay = "1ms" }

        [[flow]]
        name = "source"
        count = 3
        path = ["access", "space"]
        start = "1s"
        start_spread = "400ms"
        updates = { law = "tenth", payload = "500B" }

        [[flow]]
        name = "stream"
        count = 0
        path = ["space"]
        tcp = { control = "cubic" }
    "#;

    fn crowd() -> Scenario {
        Scenario::parse(CROWD).unwrap()
    }

    #[test]
    fn acks_take_the_hops_back_in_the_reverse_order() {
        let Emulated { conditions: ConditionsConfig { forward, reverse, wlan }, .. } =
            crowd().emulated(0).unwrap();
        let is_traced = |path: &PathConfig| -> Vec<bool> {
            path.hop.iter().map(|hop| hop.trace.is_some()).collect()
        };
        assert_eq!((is_traced(&forward), wlan), (vec![false, false, true], None));
        assert_eq!(is_traced(&reverse), [true, false, false]);
        assert_eq!(reverse.hop[0].delay, Span::from_millis(1));
        let changes: Vec<_> = reverse.hop.iter().map(|hop| hop.changes.len()).collect();
        assert_eq!(changes, [0, 1, 1], "as the lab changes links, both ways");
    }

    #[test]
    fn traces_and_starts_are_those_of_the_run_in_the_lab() {
        let scenario = crowd();
        let traces = |run| {
            let conditions = scenario.emulated(run).unwrap().conditions;
            [&conditions.forward.hop[2], &conditions.reverse.hop[0]].map(|hop| hop.trace.clone())
        };
        assert_eq!(traces(1), traces(1));
        assert_ne!(traces(0), traces(1), "drawn again for each run");
        let [forward, reverse] = traces(0);
        assert_ne!(forward, reverse, "each direction has its own capacity");
        let [of_world, _] = scenario.links[1].hops(Streams::new(scenario.seed, 1), 1);
        assert_eq!(of_world[0].trace, traces(1)[0]);

        let built = scenario.build(1).unwrap();
        let flows = built.world.flows().iter();
        let in_the_lab = flows.map(|routed| routed.flow.updates().unwrap().poll_timeout());
        let sources = scenario.emulated(1).unwrap().sources;
        let over_sockets = sources.iter().map(|source| Some(Time::ZERO + source.starts_at));
        assert_eq!(in_the_lab.collect::<Vec<_>>(), over_sockets.collect::<Vec<_>>());
    }

    #[test]
    fn what_a_relay_cannot_do_is_refused() {
        let refused = |from: &str, to: &str| {
            let scenario = Scenario::parse(&*CROWD.replace(from, to)).unwrap();
            scenario.emulated(0).err().unwrap().to_string()
        };
        let two = refused("count = 0", "count = 1");
        assert!(two.contains("set the `count` of all but `source` to 0"), "{two}");
        let sizes = refused(r#""500B""#, r#""500B", ack = "90B""#);
        assert!(sizes.contains("`ack`"), "{sizes}");
        let marked = refused("start = ", "dscp = 46\n        start = ");
        assert!(marked.contains("leave the other keys out"), "{marked}");
    }
}
