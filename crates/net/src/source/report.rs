//! What a source tells at its end.

use freshline_core::age::AgeSummary;
use freshline_core::session;
use freshline_core::unit::{Span, Time};
use serde::Serialize;

/// A source's run in numbers. The ages are the source's own estimate from round trips, an upper
/// bound by the way of the ack.
#[derive(Debug, Clone, Serialize)]
pub struct SourceReport {
    /// The session's name on the wire.
    pub session: String,
    /// The law's name.
    pub law: &'static str,
    /// Length of the run in s.
    pub duration_s: f64,
    /// Time-average age in ms, from the first ack on.
    pub age_mean_ms: Option<f64>,
    /// Median age in ms.
    pub age_p50_ms: Option<f64>,
    /// 95th percentile of age in ms.
    pub age_p95_ms: Option<f64>,
    /// 99th percentile of age in ms.
    pub age_p99_ms: Option<f64>,
    /// Mean of the ages just before each reset, in ms.
    pub peak_age_mean_ms: Option<f64>,
    /// Largest age in ms.
    pub age_max_ms: Option<f64>,
    /// Updates sent per second.
    pub updates_per_s: f64,
    /// Payload known to have arrived fresh, in bit/s.
    pub goodput_bps: f64,
    /// Time average of updates sent and not acknowledged.
    pub backlog_mean: Option<f64>,
    /// Mean round trip in ms.
    pub rtt_mean_ms: Option<f64>,
    /// Shortest round trip in ms.
    pub rtt_min_ms: Option<f64>,
    /// Updates sent.
    pub sent: u64,
    /// Fresh acks.
    pub acked: u64,
    /// Acks that came after a fresher one.
    pub late_acks: u64,
    /// Updates that a newer one replaced before they left the host.
    pub replaced: u64,
    /// Updates that the monitor misses, as of the freshest ack (modulo 2³²).
    pub missing: Option<u32>,
    /// Times the session was opened.
    pub opened: u64,
}

impl SourceReport {
    pub(super) fn of(source: &session::Source, began_at: Time, now: Time) -> Self {
        let counters = source.counters();
        let duration_s = now.since(began_at).as_secs_f64().max(1e-9);
        let age = source.age().summary(now);
        let age_ms = |pick: fn(&AgeSummary) -> Option<Span>| {
            age.as_ref().and_then(pick).map(Span::as_millis_f64)
        };
        Self {
            session: source.session().to_string(),
            law: source.law().name(),
            duration_s,
            age_mean_ms: age_ms(|age| Some(age.mean)),
            age_p50_ms: age_ms(|age| Some(age.p50)),
            age_p95_ms: age_ms(|age| Some(age.p95)),
            age_p99_ms: age_ms(|age| Some(age.p99)),
            peak_age_mean_ms: age_ms(|age| age.peak_mean),
            age_max_ms: age_ms(|age| Some(age.max)),
            updates_per_s: counters.sent as f64 / duration_s,
            goodput_bps: counters.delivered_bytes as f64 * 8.0 / duration_s,
            backlog_mean: source.backlog().mean(now),
            rtt_mean_ms: counters.rtt_mean().map(Span::as_millis_f64),
            rtt_min_ms: counters.rtt_min.map(Span::as_millis_f64),
            sent: counters.sent,
            acked: counters.acked,
            late_acks: counters.late_acks,
            replaced: counters.replaced,
            missing: source.newest_ack().map(|ack| ack.missing),
            opened: counters.opened,
        }
    }
}
