//! Flows of a scenario whose hosts are outside of the world, such as those of an application under test.

use freshline_core::unit::Span;
use serde::Deserialize;

use super::{FlowConfig, MultipathConfig, Scenario, ScenarioError};
use crate::world::{External, Flow};

/// Datagrams of hosts outside of the world ([`External`]).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExternalConfig {
    /// The links of each of several paths, in place of the flow's `path`; at most
    /// [`MultipathConfig::MAX_PATHS`].
    #[serde(default)]
    pub paths: Vec<Vec<String>>,
}

impl FlowConfig {
    pub(super) fn build_external(&self, external: &ExternalConfig) -> Result<Flow, ScenarioError> {
        let Self { updates, tcp, multipath, downlink, cross_traffic, .. } = self;
        let is_other = updates.is_some()
            || tcp.is_some()
            || multipath.is_some()
            || downlink.is_some()
            || cross_traffic.is_some();
        if is_other {
            return Err(ScenarioError::NotOneKind(self.name.clone()));
        }
        let (count, max) = (external.paths.len(), MultipathConfig::MAX_PATHS);
        if count > max {
            return Err(self.refused(format!("`paths` has {count}; give from 1 to {max}")));
        }
        let is_delayed = [self.start, self.start_spread, self.start_interval] != [Span::ZERO; 3];
        if is_delayed || self.stop.is_some() {
            return Err(self.refused(
                "its hosts begin and end by themselves; leave out `start`, `start_spread`, \
                 `start_interval` and `stop`",
            ));
        }
        Ok(Flow::External(External::new()))
    }
}

impl Scenario {
    /// Replaces the source and the monitor of a flow of updates by hosts outside of the world: the
    /// flow keeps its path, or its paths. Has no effect on a flow that is already external.
    ///
    /// # Errors
    /// [`ScenarioError::Flow`] if there is no flow of this name, or it is of another kind.
    pub fn make_external(&mut self, name: &str) -> Result<(), ScenarioError> {
        let refused =
            |what: &'static str| ScenarioError::Flow { flow: name.to_owned(), what: what.into() };
        let flow = self.flows.iter_mut().find(|flow| flow.name == name);
        let flow = flow.ok_or_else(|| refused("the scenario has no flow of this name"))?;
        if flow.external.is_some() {
            return Ok(());
        }
        let updates = flow.updates.take().ok_or_else(|| {
            refused(
                "an application can take the place of [flow.updates], and of no other kind of flow",
            )
        })?;
        flow.external = Some(ExternalConfig { paths: updates.paths });
        (flow.start, flow.start_spread, flow.start_interval) = Default::default();
        flow.stop = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROBOT: &str = r#"
title = "A robot outside of the world"
duration = "1s"

[[link]]
name = "uplink"
forward = { rate = "1mbit", delay = "10ms" }

[[flow]]
name = "robot"
path = ["uplink"]
external = {}
"#;

    fn error(text: &str) -> String {
        Scenario::parse(text).expect_err("it is refused").to_string()
    }

    #[test]
    fn a_flow_of_external_hosts_is_built_for_those_who_drive_them_alone() {
        let scenario = Scenario::parse(ROBOT).unwrap();
        assert!(scenario.build_with_hosts(0).is_ok());
        let error = scenario.build(0).err().expect("a scenario without hosts").to_string();
        assert!(error.contains("`robot`") && error.contains("`sim`"), "{error}");
    }

    #[test]
    fn what_an_external_flow_cannot_have_is_refused() {
        let tcp = ROBOT.to_owned() + "tcp = { control = \"cubic\" }\n";
        assert!(error(&tcp).contains("exactly one of"), "{}", error(&tcp));
        let start = ROBOT.to_owned() + "start = \"1s\"\n";
        assert!(error(&start).contains("leave out `start`"), "{}", error(&start));
        let unknown = ROBOT.replace("{}", "{ law = \"tenth\" }");
        assert!(error(&unknown).contains("law"), "{}", error(&unknown));
        let paths = ["[\"uplink\"]"; 9].join(", ");
        let many = ROBOT.replace("{}", &format!("{{ paths = [{paths}] }}"));
        let many = many.replace("path = [\"uplink\"]\n", "");
        assert!(error(&many).contains("from 1 to 8"), "{}", error(&many));
    }

    #[test]
    fn hosts_take_the_place_of_a_flow_of_updates() {
        let updates = "start = \"100ms\"\nupdates = { law = \"tenth\", payload = \"1kB\" }";
        let mut scenario = Scenario::parse(&*ROBOT.replace("external = {}", updates)).unwrap();
        assert!(scenario.build(0).is_ok());
        let error = scenario.make_external("roboter").expect_err("there is none").to_string();
        assert!(error.contains("roboter"), "{error}");
        scenario.make_external("robot").unwrap();
        let mut built = scenario.build_with_hosts(0).unwrap();
        assert!(built.world.poll_arrival(0, &mut Vec::new()).is_none());
        let tcp = "tcp = { control = \"cubic\" }";
        let mut scenario = Scenario::parse(&*ROBOT.replace("external = {}", tcp)).unwrap();
        assert!(scenario.make_external("robot").is_err());
    }
}
