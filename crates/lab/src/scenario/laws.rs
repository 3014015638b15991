//! Laws of the caller that replace those of a scenario.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use freshline_core::source::RateLaw;

use super::{FlowConfig, Scenario, ScenarioError};

/// The caller's laws. Runs on several threads ask for laws at the same time.
pub trait Laws: Sync {
    /// The law of the flow called `flow`, at its start; `number` counts the flows of one `[[flow]]`
    /// from 0. With `None`, the flow has the law that the scenario names.
    ///
    /// It is called once per flow of updates and run.
    fn law(&self, flow: &str, number: usize) -> Option<Box<dyn RateLaw>>;

    /// A flag that any thread can set to end a run early. The results of such a run are
    /// meaningless.
    fn stop(&self) -> Option<Arc<AtomicBool>> {
        None
    }
}

/// No laws of the caller: all flows have the laws that the scenario names.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoLaws;

impl Laws for NoLaws {
    fn law(&self, _flow: &str, _number: usize) -> Option<Box<dyn RateLaw>> {
        None
    }
}

impl Scenario {
    /// Checks that the caller's law can control the flow called `name`: a flow of updates, with or
    /// without topics.
    ///
    /// # Errors
    /// [`ScenarioError::TakesNoLaw`] names the flows that a law can control.
    pub fn check_law_flow(&self, name: &str) -> Result<(), ScenarioError> {
        let flows = || self.flows.iter().filter(|flow| flow.updates.is_some());
        if flows().any(|flow| flow.name == name) {
            return Ok(());
        }
        let known: Vec<_> = flows().map(|flow| flow.name.as_str()).collect();
        Err(ScenarioError::TakesNoLaw {
            flow: name.to_owned(),
            known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
        })
    }
}

impl FlowConfig {
    /// The caller's law of the flow with this number, of a flow of updates.
    pub(super) fn law_of(&self, laws: &dyn Laws, number: usize) -> Option<Box<dyn RateLaw>> {
        self.updates.as_ref().and_then(|_| laws.law(&self.name, number))
    }
}

#[cfg(test)]
mod tests {
    use freshline_core::source::{Ack, LawConfig, Phase, RateBounds};
    use freshline_core::unit::{Span, Time, UpdateRate};

    use super::*;
    use crate::run::{Number, run_one};
    use crate::scenario::Change;

    /// Two robots with Tenth, a flow with a topic and a download.
    const SHARED: &str = r#"
title = "Two robots, a camera and a download"
duration = "20s"

[[link]]
name = "uplink"
forward = { rate = "20mbit", delay = "10ms", queue = "50p" }

[[flow]]
name = "robot"
count = 2
path = ["uplink"]
updates = { law = "tenth", payload = "500B" }

[[flow]]
name = "camera"
path = ["uplink"]
[flow.updates]
law = "tenth"
[[flow.updates.topic]]
name = "image"
size = "1kB"

[[flow]]
name = "download"
path = ["uplink"]
tcp = { control = "cubic", rate = "1mbit" }
"#;

    fn scenario(changes: &[&str]) -> Scenario {
        let changes: Vec<_> = changes.iter().map(|text| Change::parse(text).unwrap()).collect();
        Scenario::parse_with(SHARED, &changes).unwrap()
    }

    /// The caller's law: one update per period, from the first one on.
    struct Metronome {
        rate: UpdateRate,
        next_at: Time,
        bounds: Option<RateBounds>,
    }

    impl Metronome {
        fn of(per_second: f64) -> Box<dyn RateLaw> {
            let rate = UpdateRate::saturating(per_second);
            Box::new(Self { rate, next_at: Time::ZERO, bounds: None })
        }
    }

    impl RateLaw for Metronome {
        fn name(&self) -> &'static str {
            "metronome"
        }

        fn restart(&mut self, now: Time) {
            self.next_at = now;
        }

        fn on_sent(&mut self, now: Time, _seq: u64) {
            self.next_at = now + self.rate.period();
        }

        fn on_ack(&mut self, _now: Time, _ack: &Ack) {}

        fn handle_timeout(&mut self, _now: Time) {}

        fn poll_timeout(&self) -> Option<Time> {
            None
        }

        fn next_update_at(&self) -> Option<Time> {
            Some(self.next_at)
        }

        fn rate(&self) -> UpdateRate {
            self.rate
        }

        fn phase(&self) -> Phase {
            Phase::Steering
        }

        fn bounds(&self) -> Option<RateBounds> {
            self.bounds
        }
    }

    /// Makes the laws of one flow.
    struct Of<'a>(&'a str, fn(usize) -> Option<Box<dyn RateLaw>>);

    impl Laws for Of<'_> {
        fn law(&self, flow: &str, number: usize) -> Option<Box<dyn RateLaw>> {
            if flow == self.0 { self.1(number) } else { None }
        }
    }

    fn updates(numbers: &[Number], of: &str) -> f64 {
        let found = numbers.iter().find(|number| number.name == "updates" && number.of == of);
        found.unwrap_or_else(|| panic!("no updates of {of}")).value
    }

    #[test]
    fn a_law_of_the_caller_sets_the_rate_of_its_flow_alone() {
        let scenario = scenario(&["flow.robot.count=1"]);
        let own = run_one(&scenario, 0, &NoLaws).unwrap();
        let replaced = run_one(&scenario, 0, &Of("robot", |_| Some(Metronome::of(25.0)))).unwrap();
        assert!((updates(&replaced, "robot") - 25.0).abs() < 0.5, "{replaced:?}");
        assert!(updates(&own, "robot") > 100.0 && updates(&replaced, "camera") > 100.0, "{own:?}");
    }

    #[test]
    fn each_flow_of_several_can_have_a_law_of_its_own() {
        let laws = Of("robot", |number| Some(Metronome::of([10.0, 30.0][number])));
        let mut built = scenario(&[]).build_with_laws(0, &laws).unwrap();
        built.world.run_until(Time::ZERO + Span::from_secs(20));
        let sent: Vec<_> = built.world.flows()[built.flows[0].clone()]
            .iter()
            .map(|routed| routed.flow.updates().unwrap().sent())
            .collect();
        assert!(sent[0].abs_diff(200) < 10 && sent[1].abs_diff(600) < 10, "{sent:?}");
    }

    #[test]
    fn a_flow_with_topics_has_the_law_of_the_caller() {
        let laws = Of("camera", |_| Some(Metronome::of(40.0)));
        let numbers = run_one(&scenario(&[]), 0, &laws).unwrap();
        assert!((updates(&numbers, "camera") - 40.0).abs() < 0.5, "{numbers:?}");
    }

    #[test]
    fn the_law_of_the_scenario_given_by_the_caller_changes_no_number() {
        let scenario = scenario(&[]);
        let own = run_one(&scenario, 3, &NoLaws).unwrap();
        let given = |_| Some("tenth".parse::<LawConfig>().unwrap().build());
        assert_eq!(run_one(&scenario, 3, &Of("robot", given)).unwrap(), own);
    }

    #[test]
    fn the_limits_of_the_scenario_hold_for_a_law_of_the_caller() {
        let scenario = scenario(&["flow.robot.updates.max_rate=20/s"]);
        let laws = Of("robot", |_| Some(Metronome::of(500.0)));
        let numbers = run_one(&scenario, 0, &laws).unwrap();
        // At the start, a burst exceeds the limit.
        assert!(updates(&numbers, "robot") < 25.0, "{numbers:?}");
    }

    #[test]
    fn an_adaptive_law_of_a_flow_without_acks_is_refused() {
        let no_acks =
            r#"flow.robot.updates={ law = "fixed", rate = "9/s", payload = "9B", ack = "0B" }"#;
        let scenario = scenario(&[no_acks]);
        let plain = run_one(&scenario, 0, &Of("robot", |_| Some(Metronome::of(25.0)))).unwrap();
        assert!((updates(&plain, "robot") - 25.0).abs() < 0.5, "{plain:?}");
        let adaptive = |_| -> Option<Box<dyn RateLaw>> {
            let (rate, bounds) = (UpdateRate::saturating(1.0), Some(RateBounds::default()));
            Some(Box::new(Metronome { rate, next_at: Time::ZERO, bounds }))
        };
        let error = run_one(&scenario, 0, &Of("robot", adaptive)).unwrap_err().to_string();
        assert!(error.contains("`robot`") && error.contains("needs acks"), "{error}");
    }

    #[test]
    fn a_name_that_takes_no_law_is_refused_with_those_that_do() {
        let scenario = scenario(&[]);
        assert_eq!(scenario.check_law_flow("camera"), Ok(()));
        for name in ["robto", "download"] {
            let error = scenario.check_law_flow(name).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("are: robot, camera"), "{error}");
        }
    }
}
