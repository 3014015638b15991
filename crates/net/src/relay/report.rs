//! The report of a relay.

use freshline_core::session::{self, Reach};
use freshline_core::unit::{Span, Time};
use serde::Serialize;

use super::board::Tally;
use crate::monitor::MonitorReport;
use crate::source::SourceReport;

/// A relay's run in numbers.
#[derive(Debug, Clone, Serialize)]
pub struct RelayReport {
    /// Its monitor: the received updates, and the age here.
    pub monitor: MonitorReport,
    /// States that were not forwarded because another session had brought newer ones under their
    /// name: the source exists twice, or relays form a loop.
    pub old_states: u64,
    /// States of topics and keys that were left out for lack of room or of a name, and unfinished
    /// records of a stream that its source has given up.
    pub left_out: u64,
    /// Its destinations, in the configured order.
    pub destinations: Vec<DestinationReport>,
}

impl RelayReport {
    pub(super) fn of(
        monitor: MonitorReport,
        tally: &Tally,
        destinations: Vec<DestinationReport>,
    ) -> Self {
        Self { monitor, old_states: tally.old_states(), left_out: tally.left_out(), destinations }
    }
}

/// The sessions of a destination.
#[derive(Debug, Clone, Serialize)]
pub struct DestinationReport {
    /// The monitor to which states are relayed.
    pub destination: String,
    /// Sources that are relayed to it now.
    pub sessions: usize,
    /// Of these, the number with an open session.
    pub open: usize,
    /// Sessions begun since the start.
    pub begun: u64,
    /// Failures to begin or continue a session, for example because the system is out of
    /// descriptors.
    pub failed: u64,
    /// Sources that are relayed to it, up to a limit.
    pub sources: Vec<RelayedReport>,
}

/// The session of a source at a destination.
#[derive(Debug, Clone, Serialize)]
pub struct RelayedReport {
    /// The name of the source, or the label of its session at the relay.
    pub source: String,
    /// Whether the session is open.
    pub is_open: bool,
    /// The age of the destination's state, in ms, from its generation at the source: an upper
    /// bound, as an ack takes time. For a source with topics, the maximum over all topics and keys.
    pub age_ms: Option<f64>,
    /// The present rate of its law, in updates per second.
    pub rate_per_s: f64,
    /// The session's report, as for any source; ages count from the generation.
    #[serde(flatten)]
    pub session: SourceReport,
}

impl RelayedReport {
    pub(super) fn of(
        source: &str,
        session: &session::Source,
        report: SourceReport,
        now: Time,
    ) -> Self {
        Self {
            source: source.to_owned(),
            is_open: session.reach() == Reach::Open,
            age_ms: age_of(session, now).map(Span::as_millis_f64),
            rate_per_s: session.law().rate().per_second(),
            session: report,
        }
    }
}

fn age_of(session: &session::Source, now: Time) -> Option<Span> {
    if session.topics().next().is_none() {
        let acked = session.newest_acked().filter(|_| session.counters().opened > 0);
        return acked.map(|acked| now.since(acked.generated_at));
    }
    let of_topics = session.topics().filter_map(|(topic, _)| session.topic_age(topic)?.age(now));
    let keys = session.topics().flat_map(|(topic, _)| session.keys(topic));
    of_topics.chain(keys.filter_map(|key| key.age.age(now))).max()
}
