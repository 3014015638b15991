//! The flags by which a law is chosen.

use clap::ValueEnum;
use freshline_core::source::{
    Acp, AcpParams, AcpPlus, AcpPlusParams, Fixed, Lazy, LazyParams, RateBounds, RateLaw, Tenth,
    TenthParams,
};
use freshline_core::unit::UpdateRate;
use miette::miette;

use crate::Failure;

/// The laws that can be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LawName {
    /// Seeks the rate at which the mean age is smallest.
    #[value(name = "acp+")]
    AcpPlus,
    /// The predecessor of acp+, with a step size.
    Acp,
    /// Holds the number of its own updates that wait at about a tenth.
    Tenth,
    /// One update a round trip.
    Lazy,
    /// A constant --rate.
    Fixed,
}

/// Which law, and its settings.
#[derive(Debug, clap::Args)]
pub(crate) struct LawArgs {
    /// The law that decides when to send.
    #[arg(long, value_enum, default_value = "acp+", help_heading = "Rate")]
    law: LawName,
    /// The rate of --law fixed, such as 50/s.
    #[arg(long, value_name = "RATE", help_heading = "Rate")]
    rate: Option<UpdateRate>,
    /// The step of --law acp, in updates.
    #[arg(long, value_name = "UPDATES", help_heading = "Rate")]
    kappa: Option<f64>,
    /// How many updates of --law tenth wait on average: more for more throughput, up to --max-rate.
    #[arg(long, value_name = "UPDATES", help_heading = "Rate")]
    waiting: Option<f64>,
    /// Never slower than this.
    #[arg(long, value_name = "RATE", default_value_t = RateBounds::default().floor, help_heading = "Rate")]
    min_rate: UpdateRate,
    /// Never faster than this.
    #[arg(long, value_name = "RATE", default_value_t = RateBounds::default().ceiling, help_heading = "Rate")]
    max_rate: UpdateRate,
}

impl LawArgs {
    /// The law with its settings.
    pub(crate) fn law(&self) -> Result<Box<dyn RateLaw>, Failure> {
        let usage = |message: &str| Failure::Usage(miette!("{message}"));
        if self.rate.is_some() != (self.law == LawName::Fixed) {
            return Err(usage("--rate and --law fixed belong together"));
        }
        if self.kappa.is_some() && self.law != LawName::Acp {
            return Err(usage("--kappa belongs to --law acp"));
        }
        if self.kappa.is_some_and(|kappa| !kappa.is_finite() || kappa <= 0.0) {
            return Err(usage("--kappa must be a number above 0, such as 0.25"));
        }
        if self.waiting.is_some() && self.law != LawName::Tenth {
            return Err(usage("--waiting belongs to --law tenth"));
        }
        if self.waiting.is_some_and(|waiting| !waiting.is_finite() || waiting <= 0.0) {
            return Err(usage("--waiting must be a number above 0, such as 0.1"));
        }
        if self.min_rate > self.max_rate {
            return Err(usage("--min-rate is above --max-rate"));
        }
        let bounds = RateBounds { floor: self.min_rate, ceiling: self.max_rate };
        Ok(match (self.law, self.rate) {
            (LawName::Fixed, Some(rate)) => Box::new(Fixed::new(rate)),
            (LawName::Acp, _) => {
                let params = AcpParams { bounds, ..AcpParams::default() };
                let step = self.kappa.unwrap_or(params.step);
                Box::new(Acp::new(AcpParams { step, ..params }))
            }
            (LawName::Tenth, _) => {
                let params = TenthParams { bounds, ..TenthParams::default() };
                let waiting = self.waiting.unwrap_or(params.waiting);
                Box::new(Tenth::new(TenthParams { waiting, ..params }))
            }
            (LawName::Lazy, _) => {
                Box::new(Lazy::new(LazyParams { bounds, ..LazyParams::default() }))
            }
            _ => Box::new(AcpPlus::new(AcpPlusParams { bounds, ..AcpPlusParams::default() })),
        })
    }
}
