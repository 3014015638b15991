//! Rates are finite, positive and within the law's bounds.

use super::{Check, MAX_RATE};
use crate::torture::hosts::Hosts;
use crate::torture::observation::Observation;

pub(super) struct Rate;

impl Check for Rate {
    fn property(&self) -> &'static str {
        "rates stay within their bounds"
    }

    fn on_observation(&mut self, _: &Hosts, seen: &Observation) -> Result<(), String> {
        let rate = match seen {
            Observation::Sent { rate, .. } | Observation::CommandAnswered { rate, .. } => rate,
            _ => return Ok(()),
        };
        let per_second = rate.per_second();
        if per_second.is_finite() && per_second > 0.0 && per_second <= MAX_RATE {
            return Ok(());
        }
        Err(format!("{rate} after {seen}"))
    }
}
