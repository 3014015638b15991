//! The report of a source at its end.

use freshline_core::age::AgeSummary;
use freshline_core::path::PathId;
use freshline_core::session::{self, KeyView, PathStatus, TopicId, TopicParams};
use freshline_core::source::Limit;
use freshline_core::unit::{Span, Time};
use freshline_core::wire::KeyText;
use serde::Serialize;

use super::feed::Feed;
use super::paths::Links;
use crate::marks::MarkReport;
use crate::via::{QueueReport, SeenBy, Via};

/// A source's run in numbers. The ages are the source's own estimate from round trips, an upper
/// bound: too high by the delay of the ack.
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
    /// Time average of the number of updates sent and not acknowledged.
    pub backlog_mean: Option<f64>,
    /// Mean round trip in ms.
    pub rtt_mean_ms: Option<f64>,
    /// Minimum round trip in ms.
    pub rtt_min_ms: Option<f64>,
    /// Updates sent.
    pub sent: u64,
    /// Updates that asked for an ack.
    pub ack_requests: u64,
    /// Fresh acks.
    pub acked: u64,
    /// Acks that arrived after a fresher one.
    pub late_acks: u64,
    /// Updates that a newer one replaced before they left the host.
    pub replaced: u64,
    /// Updates with a part of a state.
    pub parts: u64,
    /// Of these, updates with a symbol that was sent again or for repair.
    pub repair_parts: u64,
    /// States in parts that are complete at the monitor.
    pub large_states: u64,
    /// States in parts that newer ones replaced before they were complete.
    pub abandoned_states: u64,
    /// States that were left out because they were longer than the limit.
    pub too_large: u64,
    /// Generation times before the states of a stream that were not used: the states count as
    /// generated when they were read, or as old as the bound if the time is a date. `None` without
    /// such times, and for a source with topics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invalid_stamps: Option<u64>,
    /// Updates that the monitor misses, as of the freshest ack (modulo 2³²).
    pub missing: Option<u32>,
    /// Times the session was opened.
    pub opened: u64,
    /// Unchanged states that were left out.
    pub unchanged: u64,
    /// Bytes of IP packets sent, with all headers.
    pub wire_bytes: u64,
    /// The limit that was active at the end: `max_rate`, `min_age_gain` or `max_bandwidth`.
    pub limited_by: Option<&'static str>,
    /// The code points of updates and acks on the first path.
    pub marks: Option<MarkReport>,
    /// The named paths.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathReport>,
    /// The topics.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub topics: Vec<TopicReport>,
}

/// One topic of a source. The ages are the source's own estimate, like those of [`SourceReport`].
#[derive(Debug, Clone, Serialize)]
pub struct TopicReport {
    /// Its name.
    pub topic: String,
    /// Its weight.
    pub weight: f64,
    /// Time-average age in ms, from the first ack on.
    pub age_mean_ms: Option<f64>,
    /// Largest age in ms.
    pub age_max_ms: Option<f64>,
    /// States that left whole, repeats included, and states in parts that began.
    pub sent: u64,
    /// States that the monitor is known to have.
    pub delivered: u64,
    /// States that a newer one replaced before they left.
    pub replaced: u64,
    /// States that were older than the topic's deadline before they left.
    pub expired: u64,
    /// Unchanged states that were left out.
    pub unchanged: u64,
    /// Bytes of states that left.
    pub payload_bytes: u64,
    /// Generation times before the topic's states that were not used, as
    /// [`SourceReport::invalid_stamps`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invalid_stamps: Option<u64>,
    /// Keys that were removed.
    #[serde(skip_serializing_if = "is_zero")]
    pub removed: u64,
    /// Its keys, for a topic with keys. The topic's mean age is the mean over its keys, and its
    /// maximum age the maximum over them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeyReport>,
    /// Its records, for a topic of records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records: Option<RecordsReport>,
}

/// The records of a topic of records.
#[derive(Debug, Clone, Serialize)]
pub struct RecordsReport {
    /// Records that the source has accepted; after a restart with a spool, including the unfinished
    /// ones.
    pub put: u64,
    /// Records that the application at the monitor has received.
    pub done: u64,
    /// Accepted records that are not done, and records that were read but not accepted yet.
    pub waiting: u64,
    /// Bytes of the topic's buffer in use: those of records, and 64 for each chunk of up to 512
    /// bytes.
    pub buffer_bytes: usize,
    /// The size of the buffer in bytes.
    pub max_buffer_bytes: usize,
    /// Chunks that were sent again because they were lost or the session was re-opened.
    pub repeated_chunks: u64,
    /// Records that were left out because they are longer than 64 KiB or than the buffer.
    pub too_long: u64,
}

/// One key of a topic.
#[derive(Debug, Clone, Serialize)]
pub struct KeyReport {
    /// The key, as [`KeyText`](freshline_core::wire::KeyText).
    pub key: String,
    /// Time-average age in ms, from the first ack on.
    pub age_mean_ms: Option<f64>,
    /// Largest age in ms.
    pub age_max_ms: Option<f64>,
    /// States that left whole, repeats included, and states in parts that began.
    pub sent: u64,
    /// States that the monitor is known to have.
    pub delivered: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl KeyReport {
    fn of(view: &KeyView<'_>, now: Time) -> Self {
        Self {
            key: KeyText(view.key).to_string(),
            age_mean_ms: view.age.mean(now).map(Span::as_millis_f64),
            age_max_ms: view.age.max(now).map(Span::as_millis_f64),
            sent: view.counters.sent,
            delivered: view.counters.delivered,
        }
    }
}

impl RecordsReport {
    /// `None` if the topic is not of records.
    fn of(source: &session::Source, feed: &Feed, topic: TopicId, done: u64) -> Option<Self> {
        let (view, tally) = (source.records(topic)?, feed.records(topic)?);
        Some(Self {
            put: tally.put,
            done,
            waiting: tally.put.saturating_sub(done) + tally.queued as u64,
            buffer_bytes: view.bytes,
            max_buffer_bytes: view.max_bytes,
            repeated_chunks: view.repeated,
            too_long: tally.refused,
        })
    }
}

fn topics(source: &session::Source, feed: &Feed, now: Time) -> Vec<TopicReport> {
    let report = |(id, params): (TopicId, &TopicParams)| {
        let counters = source.topic_counters(id).unwrap_or_default();
        let age = source.topic_age(id);
        let keys: Vec<KeyReport> = source.keys(id).map(|key| KeyReport::of(&key, now)).collect();
        let means: Vec<f64> = keys.iter().filter_map(|key| key.age_mean_ms).collect();
        let mean = (!means.is_empty()).then(|| means.iter().sum::<f64>() / means.len() as f64);
        let max = keys.iter().filter_map(|key| key.age_max_ms).reduce(f64::max);
        TopicReport {
            topic: params.name.clone(),
            weight: params.weight,
            age_mean_ms: age.and_then(|age| age.mean(now)).map(Span::as_millis_f64).or(mean),
            age_max_ms: age.and_then(|age| age.max(now)).map(Span::as_millis_f64).or(max),
            sent: counters.sent,
            delivered: counters.delivered,
            replaced: counters.replaced,
            expired: counters.expired,
            unchanged: counters.unchanged,
            payload_bytes: counters.payload_bytes,
            invalid_stamps: feed.invalid_stamps(Some(id)),
            removed: counters.removed,
            keys,
            records: RecordsReport::of(source, feed, id, counters.delivered),
        }
    };
    source.topics().map(report).collect()
}

/// One of several paths.
#[derive(Debug, Clone, Serialize)]
pub struct PathReport {
    /// The interface or the address of this host by which it leaves.
    pub via: String,
    /// The monitor's address on this path.
    pub monitor: String,
    /// `live`, `silent`, `untried`, or `down`.
    pub state: &'static str,
    /// Updates sent by it, copies included.
    pub sent: u64,
    /// Of these, the number that had left by another path first.
    pub copies: u64,
    /// The path's share of all sent updates, 0 to 1.
    pub share: f64,
    /// Updates sent by it per second.
    pub updates_per_s: f64,
    /// Updates that were acknowledged by it.
    pub acked: u64,
    /// Updates sent by it that count as lost, because they or their acks were lost.
    pub lost: u64,
    /// Times it fell silent.
    pub silences: u64,
    /// Its smoothed round trip in ms.
    pub srtt_ms: Option<f64>,
    /// The one-way delay of the forward path in ms, as far as clocks allow: differences between
    /// paths are exact.
    pub one_way_delay_ms: Option<f64>,
    /// The queue of its device, and how it is read; a single path's queue is not read.
    #[serde(flatten)]
    pub queue: QueueReport,
    /// The code points of updates and acks on it.
    pub marks: Option<MarkReport>,
}

impl PathReport {
    fn of(
        [via, monitor]: [String; 2],
        status: &PathStatus,
        seen_by: Option<SeenBy>,
        marks: Option<MarkReport>,
        all: u64,
        duration_s: f64,
    ) -> Self {
        let PathStatus { phase, state, counters, service, stamped_wait } = status;
        Self {
            via,
            monitor,
            state: phase.name(),
            sent: counters.sent,
            copies: counters.copies,
            share: counters.sent as f64 / all.max(1) as f64,
            updates_per_s: counters.sent as f64 / duration_s,
            acked: counters.acked,
            lost: counters.lost,
            silences: counters.silences,
            srtt_ms: state.srtt.map(Span::as_millis_f64),
            one_way_delay_ms: state.one_way.map(Span::as_millis_f64),
            queue: QueueReport::of(seen_by, state.queue, *service).with_stamps(*stamped_wait),
            marks,
        }
    }
}

/// The named paths of a source.
pub(super) fn paths(
    source: &session::Source,
    links: &Links,
    duration_s: f64,
    now: Time,
) -> Vec<PathReport> {
    let statuses: Vec<_> = source.paths().statuses(now, source.clock_offset().nanos()).collect();
    let all = statuses.iter().map(|status| status.counters.sent).sum();
    let named = links.names().zip(links.seen_by()).zip(links.ids()).zip(&statuses);
    let named = named.filter(|((((via, _), _), _), _)| **via != Via::Any);
    named
        .map(|((((via, monitor), seen_by), id), status)| {
            let (ends, marks) = ([via.to_string(), monitor], marks(source, id));
            PathReport::of(ends, status, seen_by, marks, all, duration_s)
        })
        .collect()
}

fn marks(source: &session::Source, path: PathId) -> Option<MarkReport> {
    source.marks(path).map(|marks| MarkReport::of(source.dscp(), marks))
}

impl SourceReport {
    pub(super) fn of(
        source: &session::Source,
        feed: &Feed,
        links: Option<&Links>,
        began_at: Time,
        now: Time,
    ) -> Self {
        let counters = source.counters();
        let duration_s = now.since(began_at).as_secs_f64().max(1e-9);
        let age = source.age().summary(now);
        let age_ms = |pick: fn(&AgeSummary) -> Option<Span>| {
            age.as_ref().and_then(pick).map(Span::as_millis_f64)
        };
        Self {
            session: source.label().to_string(),
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
            ack_requests: counters.ack_requests,
            acked: counters.acked,
            late_acks: counters.late_acks,
            replaced: counters.replaced,
            parts: counters.parts,
            repair_parts: counters.repair_parts,
            large_states: counters.large_states,
            abandoned_states: counters.abandoned_states,
            too_large: counters.too_large,
            invalid_stamps: feed.invalid_stamps(None),
            missing: source.newest_ack().map(|ack| ack.missing),
            opened: counters.opened,
            unchanged: counters.unchanged,
            wire_bytes: counters.wire_bytes,
            limited_by: source.limited_by().map(Limit::name),
            marks: marks(source, PathId::FIRST),
            paths: links.map_or_else(Vec::new, |links| paths(source, links, duration_s, now)),
            topics: topics(source, feed, now),
        }
    }
}
