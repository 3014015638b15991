//! Service resumes after the healing, within the documented wait, and never pauses longer again.

use freshline_core::unit::{Span, Time};

use super::{Check, Timetable};
use crate::torture::observation::Observation;
use crate::torture::plan::Plan;
use crate::torture::source_host::SourceHost;
use crate::torture::world::World;

pub(super) struct Service {
    served: Time,
    longest_wait: Span,
    sources: Vec<Served>,
}

/// When a source was last served, the start of the world included.
#[derive(Clone, Copy, Default)]
struct Served {
    fresh: Time,
    acked: Time,
}

impl Service {
    pub(super) fn new(plan: &Plan, Timetable { healed, served, .. }: Timetable) -> Self {
        let sources = vec![Served::default(); plan.sources.len()];
        Self { served, longest_wait: served.since(healed), sources }
    }
}

impl Check for Service {
    fn property(&self) -> &'static str {
        "service resumes"
    }

    fn on_observation(&mut self, world: &World, seen: &Observation) -> Result<(), String> {
        match seen {
            Observation::Fresh { session, .. } => {
                let is_theirs = |host: &SourceHost| host.endpoint.session() == *session;
                if let Some(source) = world.sources.iter().position(is_theirs) {
                    self.sources[source].fresh = world.now;
                }
            }
            Observation::Learned { source, .. } if seen.is_ack() => {
                self.sources[*source].acked = world.now;
            }
            _ => {}
        }
        Ok(())
    }

    fn on_step(&mut self, world: &World) -> Result<(), String> {
        if world.now < self.served {
            return Ok(());
        }
        for (source, served) in self.sources.iter().enumerate() {
            for (what, last) in [("fresh", served.fresh), ("acknowledged", served.acked)] {
                let wait = world.now.since(last);
                if wait > self.longest_wait {
                    return Err(format!("source {source}: nothing was {what} for {wait}"));
                }
            }
        }
        Ok(())
    }
}
