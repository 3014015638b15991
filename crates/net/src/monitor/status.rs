//! A monitor's report of its sources.

use std::net::SocketAddr;

use freshline_core::age::AgeMeter;
use freshline_core::dscp::Dscp;
use freshline_core::session::{self, MonitorCounters, SourceKey, TopicRecord};
use freshline_core::unit::{Span, Time};
use serde::Serialize;

use super::freshness::FreshnessStatus;
use super::topic_status::{SHOWN, TopicStatus};
use super::{Record, Sender};
use crate::refusal::Refusals;

/// A source as seen by the monitor at one moment.
#[derive(Debug, Clone, Serialize)]
pub struct SourceStatus {
    /// The name that the source gave itself, or the label of its session if it gave none.
    pub source: String,
    /// The label of its session: a keyed hash of the id, which only this monitor can make.
    pub session: String,
    /// The address that its last update came from.
    pub address: SocketAddr,
    /// Time since its last update in s, fresh or not.
    pub silence_s: f64,
    /// Age of the freshest state in ms, once the source has sent the clocks' offset with it.
    pub age_ms: Option<f64>,
    /// By how much that age may differ from the true one in ms, in either direction; see
    /// [`StateAge`](freshline_core::session::StateAge).
    pub age_uncertainty_ms: Option<f64>,
    /// Time-average age in ms.
    pub age_mean_ms: Option<f64>,
    /// 95th percentile of age in ms.
    pub age_p95_ms: Option<f64>,
    /// Mean of the ages just before each reset, in ms.
    pub peak_age_mean_ms: Option<f64>,
    /// Maximum age in ms.
    pub age_max_ms: Option<f64>,
    /// Fresh updates per second, while the age was known.
    pub updates_per_s: f64,
    /// Updates that were the freshest on arrival.
    pub fresh: u64,
    /// Updates that arrived after a fresher one.
    pub stale: u64,
    /// Updates that did not arrive.
    pub missing: u64,
    /// States that a newer one replaced before an output took them.
    pub replaced: u64,
    /// Whether states are fresh enough, if there is a maximum age.
    #[serde(flatten)]
    pub freshness: FreshnessStatus,
    /// Topics that are stale, the first one included.
    pub stale_topics: u64,
    /// The code point (DSCP) of its last update on arrival, 0 to 63; unset if the kernel does not
    /// report it.
    pub dscp: Option<Dscp>,
    /// Sequence number of the freshest update.
    pub seq: u64,
    /// Length of the freshest state in bytes; unset before the first state is complete.
    pub payload_bytes: Option<u64>,
    /// The freshest state, if it is not longer than [`SHOWN`], and not older than its maximum age.
    #[serde(skip)]
    pub payload: Option<Vec<u8>>,
    /// When it was sampled, on the source's clock.
    #[serde(skip)]
    pub(crate) generated_at: Time,
    /// Its topics, if it has any; the state of the first one is that of the source.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub topics: Vec<TopicStatus>,
}

impl SourceStatus {
    /// The name of its first topic, if it is known.
    pub(super) fn first_topic(&self) -> Option<&str> {
        self.topics.first().filter(|topic| topic.number == 0).map(|topic| &*topic.topic)
    }

    /// States of all topics that were too old on arrival.
    pub fn too_old(&self) -> u64 {
        match &self.topics[..] {
            [] => self.freshness.too_old,
            topics => topics.iter().map(|topic| topic.freshness.too_old).sum(),
        }
    }
}

/// A report of a monitor's run.
#[derive(Debug, Clone, Serialize)]
pub struct MonitorReport {
    /// Length of the run in s.
    pub duration_s: f64,
    /// Open sources at its end.
    pub sources_open: usize,
    /// Topics that are stale, also of sources with a name that are gone.
    pub stale_topics: usize,
    /// Counters over all sources.
    #[serde(flatten)]
    pub counters: MonitorCounters,
    /// Refusals, including sessions ended to make room, by reason.
    #[serde(rename = "refused_by")]
    pub refusals: Refusals,
    /// The open sources that are watched in detail, then silent ones with a name, then the other
    /// open ones.
    pub sources: Vec<SourceStatus>,
    /// The last state of sources that closed their session or were forgotten, the latest last, up to
    /// the number of those watched in detail.
    pub ended: Vec<SourceStatus>,
}

/// The length of the held state, if any.
pub(super) fn payload_bytes(record: &Record) -> Option<u64> {
    record.payload().map(|payload| payload.len() as u64)
}

/// A source at one moment, without the freshness of its topics.
pub(super) fn status(
    meter: Option<&AgeMeter>,
    record: &Record,
    now: Time,
    replaced: u64,
) -> SourceStatus {
    let session = record.label().to_string();
    let ms = |span: Option<Span>| span.map(Span::as_millis_f64);
    let elapsed = record.age.duration(now).as_secs_f64();
    // Its statistics go back to before an absence.
    let age = meter.map_or(&record.age, AgeMeter::process);
    let shown = record.payload().filter(|payload| payload.len() <= SHOWN);
    let uncertainty = record.bounded_age(now).map(|age| age.uncertainty);
    SourceStatus {
        source: if record.name.is_empty() { session.clone() } else { record.name.to_string() },
        session,
        address: record.peer.address,
        silence_s: now.since(record.heard_at).as_secs_f64(),
        age_ms: ms(record.state_age(now)),
        age_uncertainty_ms: ms(record.state_age(now).and(uncertainty)),
        age_mean_ms: ms(age.mean(now)),
        age_p95_ms: ms(meter.and_then(|meter| meter.quantile(now, 0.95))),
        peak_age_mean_ms: ms(age.peaks().map(|peaks| peaks.mean)),
        age_max_ms: ms(age.max(now)),
        updates_per_s: if elapsed > 0.0 { record.fresh() as f64 / elapsed } else { 0.0 },
        fresh: record.fresh(),
        stale: record.stale(),
        missing: record.missing(),
        replaced,
        freshness: FreshnessStatus::default(),
        stale_topics: 0,
        dscp: record.dscp(),
        seq: record.newest_seq,
        payload_bytes: payload_bytes(record),
        payload: shown.map(<[u8]>::to_vec),
        generated_at: record.generated_at,
        topics: record.topics().map(|topic| TopicStatus::of(record, topic, now)).collect(),
    }
}

/// A status with the freshness of its topics, and without a state that is too old. `source` is
/// `None` for an absent source.
pub(super) fn with_freshness(
    mut status: SourceStatus,
    sessions: &session::Monitor<Sender>,
    source: Option<SourceKey>,
    record: &Record,
    now: Time,
) -> SourceStatus {
    let freshness = |number: u16, topic: Option<&TopicRecord>| match source {
        Some(source) => sessions.freshness(source, number),
        None => {
            let name = topic.map_or("", TopicRecord::name);
            let key = topic.and_then(TopicRecord::key).unwrap_or_default();
            sessions.freshness_after(&record.name, name, key)
        }
    };
    let first = FreshnessStatus::of(freshness(0, record.topic(0)));
    let (mut all, mut topics) = (vec![first], record.topics());
    status.freshness = all[0];
    for status in &mut status.topics {
        let topic = topics.next();
        let number = topic.map_or(0, TopicRecord::number);
        status.freshness = FreshnessStatus::of(freshness(number, topic));
        all.extend((number > 0).then_some(status.freshness));
    }
    status.stale_topics = all.iter().filter(|one| one.is_fresh == Some(false)).count() as u64;
    if sessions.max_age(record, 0).is_some() && sessions.latest_of(now, record, 0).is_none() {
        (status.payload, status.payload_bytes) = (None, None);
    }
    status
}
