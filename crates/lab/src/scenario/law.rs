//! The law of a source of updates: one of core's, or updates as a Poisson process.

use std::str::FromStr;

use freshline_core::source::{Ack, LawConfig, LawError, LawName, Phase, RateLaw};
use freshline_core::unit::{Span, Time, UpdateRate};
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64;
use serde::Deserialize;
use toml::{Table, Value};

use super::UpdatesConfig;

/// The laws that a scenario can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum ScenarioLaw {
    /// A law of [`freshline_core::source`].
    Source(LawName),
    /// Updates as a Poisson process: not a control law, but the case that theory covers best.
    Poisson,
}

impl FromStr for ScenarioLaw {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "poisson" {
            return Ok(Self::Poisson);
        }
        let named = text.parse().map(Self::Source);
        named.map_err(|error: LawError| format!("{error}, or `poisson`"))
    }
}

impl TryFrom<String> for ScenarioLaw {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl ScenarioLaw {
    /// Whether its rate is given, so that it works without acks.
    pub fn has_given_rate(self) -> bool {
        matches!(self, Self::Source(LawName::Fixed) | Self::Poisson)
    }
}

/// Invalid settings of a law.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BadLaw {
    /// A rate for a law without one, or none for a law that needs one.
    #[error("`rate` belongs to the laws `fixed` and `poisson`, and each of them needs one")]
    Rate,
    /// A setting that the law does not have.
    #[error("`params`: {0}")]
    Params(String),
}

impl UpdatesConfig {
    /// The law in its initial state.
    pub(super) fn build_law(&self, rng: Pcg64) -> Result<Box<dyn RateLaw>, BadLaw> {
        match (self.law, self.rate) {
            (ScenarioLaw::Poisson, Some(rate)) => {
                self.without_params()?;
                Ok(Box::new(Poisson::new(rate, rng)))
            }
            (ScenarioLaw::Source(LawName::Fixed), Some(rate)) => {
                self.without_params()?;
                Ok(LawConfig::Fixed { rate }.build())
            }
            (ScenarioLaw::Source(name), None) if name != LawName::Fixed => {
                Ok(config(name, &self.params)?.build())
            }
            _ => Err(BadLaw::Rate),
        }
    }

    fn without_params(&self) -> Result<(), BadLaw> {
        let first = self.params.keys().next();
        let refusal = |key| format!("unknown field `{key}`: this law has only its `rate`");
        first.map_or(Ok(()), |key| Err(BadLaw::Params(refusal(key))))
    }
}

/// The law of this name with the settings of `params`.
fn config(name: LawName, params: &Table) -> Result<LawConfig, BadLaw> {
    let law = Value::String(name.as_str().to_owned());
    let table = [("law".to_owned(), law), ("params".to_owned(), Value::Table(params.clone()))];
    let read = Table::from_iter(table).try_into();
    read.map_err(|error: toml::de::Error| BadLaw::Params(error.to_string()))
}

/// Updates as a Poisson process.
#[derive(Debug)]
struct Poisson {
    rate: UpdateRate,
    rng: Pcg64,
    next_at: Time,
}

impl Poisson {
    fn new(rate: UpdateRate, rng: Pcg64) -> Self {
        Self { rate, rng, next_at: Time::ZERO }
    }
}

impl RateLaw for Poisson {
    fn name(&self) -> &'static str {
        "poisson"
    }

    fn restart(&mut self, now: Time) {
        self.next_at = now;
    }

    fn on_sent(&mut self, now: Time, _seq: u64) {
        let gap: f64 = Exp1.sample(&mut self.rng);
        let mean = self.rate.period();
        self.next_at = now + mean.mul_f64(gap).max(Span::from_nanos(1));
    }

    fn on_ack(&mut self, _now: Time, _ack: &Ack) {}

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn next_update_at(&self) -> Option<Time> {
        Some(self.next_at)
    }

    fn rate(&self) -> UpdateRate {
        self.rate
    }

    fn phase(&self) -> Phase {
        Phase::Steering
    }
}
