//! Laws by their names.

use freshline_core::source::{
    Ack, Acp, AcpParams, AcpPlus, AcpPlusParams, Fixed, Lazy, LazyParams, Phase, RateLaw, Tenth,
    TenthParams,
};
use freshline_core::unit::{Span, Time, UpdateRate};
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::UpdatesConfig;

/// The laws that a scenario can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LawName {
    /// [`AcpPlus`] as published.
    #[serde(rename = "acp+")]
    AcpPlus,
    /// [`AcpPlus`] with the backlog at departure.
    #[serde(rename = "acp+d")]
    AcpPlusD,
    /// [`Acp`].
    Acp,
    /// [`Tenth`].
    Tenth,
    /// [`Lazy`].
    Lazy,
    /// [`Fixed`].
    Fixed,
    /// Updates as a Poisson process: no law, but what theory knows best.
    Poisson,
}

/// A law that makes no sense.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BadLaw {
    /// A rate where there is none, or none where there must be.
    #[error("`rate` belongs to the laws `fixed` and `poisson`, and each of them needs one")]
    Rate,
    /// A setting that the law does not have.
    #[error("`params`: {0}")]
    Params(String),
}

impl UpdatesConfig {
    /// The law, at its beginning.
    pub(super) fn build_law(&self, rng: Pcg64) -> Result<Box<dyn RateLaw>, BadLaw> {
        match (self.law, self.rate) {
            (LawName::AcpPlus, None) => Ok(Box::new(AcpPlus::new(self.params::<AcpPlusParams>()?))),
            (LawName::AcpPlusD, None) => {
                let params = with_departure(self.params.clone());
                Ok(Box::new(AcpPlus::new(parse::<AcpPlusParams>(params)?)))
            }
            (LawName::Acp, None) => Ok(Box::new(Acp::new(self.params::<AcpParams>()?))),
            (LawName::Tenth, None) => Ok(Box::new(Tenth::new(self.params::<TenthParams>()?))),
            (LawName::Lazy, None) => Ok(Box::new(Lazy::new(self.params::<LazyParams>()?))),
            (LawName::Fixed, Some(rate)) => {
                self.params::<NoParams>()?;
                Ok(Box::new(Fixed::new(rate)))
            }
            (LawName::Poisson, Some(rate)) => {
                self.params::<NoParams>()?;
                Ok(Box::new(Poisson::new(rate, rng)))
            }
            _ => Err(BadLaw::Rate),
        }
    }

    fn params<P: DeserializeOwned>(&self) -> Result<P, BadLaw> {
        parse(self.params.clone())
    }
}

fn parse<P: DeserializeOwned>(params: Table) -> Result<P, BadLaw> {
    params.try_into().map_err(|error| BadLaw::Params(error.to_string()))
}

/// The parameters of `acp+d`: `estimator.estimates` is `departure` where the table does not say.
fn with_departure(mut params: Table) -> Table {
    let estimator = params.entry("estimator").or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(estimator) = estimator {
        let departure = || Value::String("departure".to_owned());
        estimator.entry("estimates").or_insert_with(departure);
    }
    params
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoParams {}

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
