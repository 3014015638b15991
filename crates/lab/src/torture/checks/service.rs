//! Service resumes after the healing, within the documented time, and never pauses longer while the
//! monitor is up; and once more after a downtime of the monitor.

use freshline_core::source::LawConfig;
use freshline_core::unit::{Span, Time};

use super::Check;
use crate::torture::hosts::Hosts;
use crate::torture::observation::Observation;
use crate::torture::plan::{Plan, SourcePlan};
use crate::torture::source_host::SourceHost;
use crate::torture::timetable::Timetable;

/// A source under Tenth skips an update that falls into a common pause, at its lowest rate for this
/// long.
const LEFT_OUT: Span = Span::from_secs(2);

pub(super) struct Service {
    timetable: Timetable,
    sources: Vec<Served>,
}

/// When a source was last served; initially the start of the world.
#[derive(Clone, Copy, Default)]
struct Served {
    fresh: Time,
    acked: Time,
    /// `None` if the source is not commanded.
    commanded: Option<Time>,
    /// How much longer than others it may be without an update.
    pauses: Span,
}

impl Service {
    pub(super) fn new(plan: &Plan, timetable: Timetable) -> Self {
        let served = |source: &SourcePlan| Served {
            commanded: source.is_commanded.then_some(Time::ZERO),
            pauses: if matches!(source.law, LawConfig::Tenth(_)) { LEFT_OUT } else { Span::ZERO },
            ..Served::default()
        };
        Self { timetable, sources: plan.sources.iter().map(served).collect() }
    }

    /// The maximum time that a source may be without service; `None` while no service is required.
    fn max_wait(&self, now: Time) -> Option<Span> {
        let Timetable { healed, served, away, back, found, .. } = self.timetable;
        if now >= found {
            Some(found.since(back))
        } else {
            (served..away).contains(&now).then(|| served.since(healed))
        }
    }

    /// The same for commands.
    fn max_wait_for_commands(&self, now: Time) -> Option<Span> {
        let Timetable { served, away, found, returns, .. } = self.timetable;
        let is_demanded = (served + returns..away).contains(&now) || now >= found + returns;
        is_demanded.then_some(returns)
    }
}

impl Check for Service {
    fn property(&self) -> &'static str {
        "service resumes"
    }

    fn on_observation(&mut self, hosts: &Hosts, seen: &Observation) -> Result<(), String> {
        match seen {
            Observation::Fresh { session, .. }
            | Observation::Withheld { session, .. }
            | Observation::Part { session, .. } => {
                let is_theirs = |host: &SourceHost| host.endpoint().session() == *session;
                if let Some(source) = hosts.sources.iter().position(is_theirs) {
                    self.sources[source].fresh = hosts.now;
                }
            }
            Observation::Learned { source, .. } if seen.is_ack() => {
                self.sources[*source].acked = hosts.now;
            }
            Observation::Commanded { source, .. } | Observation::CommandWithheld { source } => {
                self.sources[*source].commanded = Some(hosts.now);
            }
            _ => {}
        }
        Ok(())
    }

    fn on_step(&mut self, hosts: &Hosts) -> Result<(), String> {
        let max_wait = self.max_wait(hosts.now);
        let max_wait_for_commands = self.max_wait_for_commands(hosts.now);
        for (source, served) in self.sources.iter().enumerate() {
            for (what, last, max_wait) in [
                ("fresh", Some(served.fresh), max_wait.map(|it| it + served.pauses)),
                ("acknowledged", Some(served.acked), max_wait.map(|it| it + served.pauses)),
                ("commanded", served.commanded, max_wait_for_commands),
            ] {
                let Some((last, max_wait)) = last.zip(max_wait) else { continue };
                let wait = hosts.now.since(last);
                if wait > max_wait {
                    return Err(format!("source {source}: nothing was {what} for {wait}"));
                }
            }
        }
        Ok(())
    }
}
