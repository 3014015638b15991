//! What a monitor reports of maximum ages.

use freshline_core::session::{self, Freshness, SourceKey, TopicRecord};
use freshline_core::unit::Time;
use serde::Serialize;

use super::status::SourceStatus;
use super::{Record, Sender};

/// The freshness of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct FreshnessStatus {
    /// Its maximum age in ms, if it has one.
    pub max_age_ms: Option<f64>,
    /// Whether the newest state that was handed out is not older; none without a maximum age, and while no
    /// state has been in time.
    pub is_fresh: Option<bool>,
    /// States that were older as they came, and were not handed out.
    pub too_old: u64,
}

impl SourceStatus {
    /// States of all topics that were too old as they came.
    pub fn too_old(&self) -> u64 {
        match &self.topics[..] {
            [] => self.freshness.too_old,
            topics => topics.iter().map(|topic| topic.freshness.too_old).sum(),
        }
    }
}

impl FreshnessStatus {
    fn of(freshness: Option<Freshness>) -> Self {
        freshness.map_or(Self::default(), |Freshness { max_age, is_fresh, too_old }| Self {
            max_age_ms: Some(max_age.as_millis_f64()),
            is_fresh,
            too_old,
        })
    }
}

/// A status with what the monitor knows of maximum ages, and without a state that is too old. Of an absent
/// source, `source` is `None`.
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
