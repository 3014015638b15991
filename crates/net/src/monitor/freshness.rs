//! A monitor's report of maximum ages.

use freshline_core::session::Freshness;
use serde::Serialize;

/// The freshness of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct FreshnessStatus {
    /// Its maximum age in ms, if it has one.
    pub max_age_ms: Option<f64>,
    /// Whether the newest state that was handed out is not older than that; unset without a maximum
    /// age, and until a state has been in time.
    pub is_fresh: Option<bool>,
    /// States that were older on arrival, and were not handed out.
    pub too_old: u64,
}

impl FreshnessStatus {
    pub(super) fn of(freshness: Option<Freshness>) -> Self {
        freshness.map_or(Self::default(), |Freshness { max_age, is_fresh, too_old }| Self {
            max_age_ms: Some(max_age.as_millis_f64()),
            is_fresh,
            too_old,
        })
    }
}
