//! The numbers of flows with topics, and of each topic.

use freshline_core::unit::Span;

use super::{Group, Number};
use crate::world::{DeadlineOutcome, TopicOutcome, TopicsOutcome};

impl Group<'_> {
    pub(super) fn topics(&mut self, flows: &[TopicsOutcome]) {
        self.mean("weighted_age", "s", flows.iter().map(|flow| flow.weighted_age));
        self.mean_time("rtt_mean", flows, |flow| flow.rtt_mean);
        self.mean("updates", "1/s", flows.iter().map(|flow| flow.updates_per_s));
        self.mean("packets", "1/s", flows.iter().map(|flow| flow.packets_per_s));
        self.goodputs(flows.iter().map(|flow| (flow.goodput_bps, flow.measured)));
        self.count("never_delivered", flows.iter().map(|flow| flow.never_delivered));
    }

    fn topic(&mut self, topics: &[&TopicOutcome]) {
        self.mean_time("age_mean", topics, |topic| topic.age_mean);
        self.mean_time("age_p95", topics, |topic| topic.age_p95);
        self.mean_time("age_max", topics, |topic| topic.age_max);
        let states = |of: fn(&TopicOutcome) -> Option<u64>| {
            topics.iter().map(move |topic| of(topic).map(|count| count as f64))
        };
        self.mean("generated", "states", states(|topic| topic.generated.map(|all| all[0])));
        self.mean("delivered", "states", states(|topic| Some(topic.delivered)));
        self.mean("replaced", "states", states(|topic| topic.generated.map(|all| all[1])));
        self.mean("refused", "states", states(|topic| topic.refused));
        self.mean("withheld", "states", states(|topic| topic.deadline.map(|it| it.withheld)));
        self.mean("stale_alarms", "1", states(|topic| topic.deadline.map(|it| it.alarms)));
        let time = |of: fn(&DeadlineOutcome) -> Span| {
            topics.iter().map(move |topic| Some(of(&topic.deadline?).as_secs_f64()))
        };
        self.mean("stale_time", "s", time(|deadline| deadline.stale_time));
        self.mean("over_max_age", "s", time(|deadline| deadline.over));
        self.mean_time("delivery_p50", topics, |topic| topic.delivery.map(|all| all[0]));
        self.mean_time("delivery_p99", topics, |topic| topic.delivery.map(|all| all[1]));
        self.mean_time("delivery_max", topics, |topic| topic.delivery.map(|all| all[2]));
    }
}

/// The numbers of each topic of equal flows, named by the flow and the topic.
pub(super) fn each(flow: &str, flows: &[TopicsOutcome], all: &mut Vec<Number>) {
    let topics = flows.first().map_or(0, |flow| flow.topics.len());
    for place in 0..topics {
        let alike: Vec<&TopicOutcome> = flows.iter().map(|flow| &flow.topics[place]).collect();
        let of = &format!("{flow}/{}", alike[0].name);
        Group { of, measured: all }.topic(&alike);
    }
}
