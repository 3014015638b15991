//! A monitor's report of the topics and keys of a source.

use std::collections::BTreeMap;

use freshline_core::session::TopicRecord;
use freshline_core::unit::{Span, Time};
use freshline_core::wire::KeyText;
use serde::Serialize;

use super::Record;
use super::freshness::FreshnessStatus;
use super::which::Which;

/// The maximum length of a state in reports, lines of JSON and records of silent sources, in bytes.
/// Of a longer state they contain only the length; commands and binary frames get it whole.
pub const SHOWN: usize = 1 << 16;

/// One topic of a source.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopicStatus {
    /// Its name; empty until it has arrived.
    pub topic: String,
    /// The key, as text, if the topic has keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Age of its freshest state in ms, once the source has sent the clocks' offset with it.
    pub age_ms: Option<f64>,
    /// Time-average age in ms.
    pub age_mean_ms: Option<f64>,
    /// Maximum age in ms.
    pub age_max_ms: Option<f64>,
    /// By how much that age may differ from the true one in ms, in either direction.
    pub age_uncertainty_ms: Option<f64>,
    /// Length of its freshest state in bytes; unset before the first state is complete.
    pub payload_bytes: Option<u64>,
    /// States for which there was no room.
    pub no_room: u64,
    /// Whether its states are fresh enough, if there is a maximum age.
    #[serde(flatten)]
    pub freshness: FreshnessStatus,
    /// Its number at the source.
    #[serde(skip)]
    pub(crate) number: u16,
    /// Its freshest state, if it is a key, or a topic other than the first.
    #[serde(skip)]
    pub(crate) state: Option<TopicState>,
}

/// The freshest state of a topic or a key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TopicState {
    pub(super) which: Which,
    /// When it was sampled, on the source's clock.
    pub(super) generated_at: Time,
    /// `None` if it is longer than [`SHOWN`], or there was no room.
    pub(super) payload: Option<Vec<u8>>,
}

/// A topic with all its keys, for metrics: with a series per key, a source could create any number
/// of series.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct TopicSum {
    /// The age of its freshest state in ms, once it is known; with keys, the maximum.
    pub(super) age_ms: Option<f64>,
    /// The time-average age in ms; with keys, the maximum.
    pub(super) age_mean_ms: Option<f64>,
    /// The number of its keys, if it has any.
    pub(super) keys: Option<u64>,
    /// The number of its states that are not fresh enough, if it has a maximum age.
    pub(super) stale: Option<u64>,
    /// States that were too old on arrival.
    pub(super) too_old: u64,
    /// States for which there was no room.
    pub(super) no_room: u64,
}

impl TopicSum {
    /// The topics of a source whose names have arrived, by name.
    pub(super) fn of(topics: &[TopicStatus]) -> BTreeMap<&str, Self> {
        let mut sums = BTreeMap::<&str, Self>::new();
        for topic in topics.iter().filter(|topic| !topic.topic.is_empty()) {
            let sum = sums.entry(&topic.topic).or_default();
            let (freshness, greater) = (&topic.freshness, |a: Option<f64>, b: Option<f64>| {
                a.into_iter().chain(b).reduce(f64::max)
            });
            sum.age_ms = greater(sum.age_ms, topic.age_ms);
            sum.age_mean_ms = greater(sum.age_mean_ms, topic.age_mean_ms);
            if topic.key.is_some() {
                *sum.keys.get_or_insert(0) += 1;
            }
            if freshness.max_age_ms.is_some() {
                *sum.stale.get_or_insert(0) += u64::from(freshness.is_fresh == Some(false));
            }
            sum.too_old += freshness.too_old;
            sum.no_room += topic.no_room;
        }
        sums
    }
}

impl TopicState {
    /// The state of a topic other than the first, with at most `room` bytes, by which it reduces
    /// `room`.
    pub(super) fn of(topic: &TopicRecord, room: &mut usize) -> Option<Self> {
        let payload = topic.payload()?;
        let is_shown = payload.len() <= SHOWN.min(*room);
        *room -= if is_shown { payload.len() } else { 0 };
        Some(Self {
            which: Which::of(topic),
            generated_at: topic.generated_at(),
            payload: is_shown.then(|| payload.to_vec()),
        })
    }
}

impl TopicStatus {
    pub(super) fn of(record: &Record, topic: &TopicRecord, now: Time) -> Self {
        // The state of the first one is in the record.
        let (age, state_age, bounded, payload) = match topic.number() {
            0 => (&record.age, record.state_age(now), record.bounded_age(now), record.payload()),
            _ => (topic.age(), topic.state_age(now), topic.bounded_age(now), topic.payload()),
        };
        let ms = |span: Option<Span>| span.map(Span::as_millis_f64);
        Self {
            topic: topic.name().to_owned(),
            key: topic.key().map(|key| KeyText(key).to_string()),
            age_ms: ms(state_age),
            age_uncertainty_ms: ms(state_age.and(bounded).map(|age| age.uncertainty)),
            age_mean_ms: ms(age.mean(now)),
            age_max_ms: ms(age.max(now)),
            payload_bytes: payload.map(|payload| payload.len() as u64),
            no_room: topic.no_room(),
            freshness: FreshnessStatus::default(),
            number: topic.number(),
            state: None,
        }
    }
}
