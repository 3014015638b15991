//! The topic in which a source reports its law and its paths to observers at the monitor.

use freshline_core::session::{self, Reach, TopicId, TopicParams};
use freshline_core::source::{Limit, Phase};
use freshline_core::unit::{Span, Time};
use serde::Serialize;

use super::report::PathReport;

/// The name of the topic. Its states are JSON, as `docs/json.md` lists them.
pub const STATUS_TOPIC: &str = "freshline.status";

/// The minimum interval of a status: more frequent reports would take a noticeable share of a slow
/// path.
pub const MIN_STATUS_INTERVAL: Span = Span::from_millis(100);

/// A low weight, so that its age counts less than that of the application's topics.
const WEIGHT: f64 = 0.1;

/// Puts the status at intervals. A source without topics has none: its states have no names.
pub(super) struct Status {
    interval: Span,
    next_at: Time,
    topic: Option<TopicId>,
}

/// The law and the paths at one time.
#[derive(Debug, Serialize)]
struct StatusReport {
    law: &'static str,
    phase: &'static str,
    rate: f64,
    limited_by: Option<&'static str>,
    srtt_ms: Option<f64>,
    rtt_min_ms: Option<f64>,
    backlog_mean: Option<f64>,
    sent: u64,
    acked: u64,
    late_acks: u64,
    missing: Option<u32>,
    wire_bytes: u64,
    opened: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    paths: Vec<PathReport>,
}

impl Status {
    pub(super) fn new(interval: Span) -> Self {
        Self { interval: interval.max(MIN_STATUS_INTERVAL), next_at: Time::ZERO, topic: None }
    }

    /// When the next status is due; never once the session ends, or the end would wait for the
    /// newest status again and again.
    pub(super) fn poll_timeout(&self, session: &session::Source) -> Option<Time> {
        Some(self.next_at).filter(|_| !session.is_finishing())
    }

    /// Puts the status if it is due.
    pub(super) fn turn(
        &mut self,
        now: Time,
        session: &mut session::Source,
        paths: impl FnOnce(&session::Source) -> Vec<PathReport>,
    ) {
        if self.poll_timeout(session).is_none_or(|at| now < at) {
            return;
        }
        self.next_at = now + self.interval;
        // Before a monitor has answered, a source without states must be able to end at once.
        if session.reach() != Reach::Open {
            return;
        }
        let Some(topic) = self.topic.or_else(|| self.add_topic(session)) else { return };
        self.topic = Some(topic);
        let report = StatusReport::of(now, session, paths(session));
        if let Ok(text) = serde_json::to_vec(&report) {
            // It is left out if the state limit is too small for it.
            let _ = session.put_topic(now, topic, now, &text);
        }
    }

    /// Only if there are other topics: otherwise it would replace the state without a name.
    fn add_topic(&self, session: &mut session::Source) -> Option<TopicId> {
        session.topics().next()?;
        let params = TopicParams { weight: WEIGHT, ..TopicParams::new(STATUS_TOPIC) };
        session.add_topic(params).ok()
    }
}

impl StatusReport {
    fn of(now: Time, session: &session::Source, paths: Vec<PathReport>) -> Self {
        let counters = session.counters();
        Self {
            law: session.law().name(),
            phase: match session.law().phase() {
                Phase::Probing => "probing",
                Phase::Steering => "steering",
            },
            rate: session.law().rate().per_second(),
            limited_by: session.limited_by().map(Limit::name),
            srtt_ms: session.srtt().map(Span::as_millis_f64),
            rtt_min_ms: counters.rtt_min.map(Span::as_millis_f64),
            backlog_mean: session.backlog().mean(now),
            sent: counters.sent,
            acked: counters.acked,
            late_acks: counters.late_acks,
            missing: session.newest_ack().map(|ack| ack.missing),
            wire_bytes: counters.wire_bytes,
            opened: counters.opened,
            paths,
        }
    }
}
