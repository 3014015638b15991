//! Settings of a scheduler that are given one by one, as flags of a command are.

use super::{Estimator, SchedulerConfig, SchedulerError};

/// Settings that differ from a scheduler's defaults. All are numbers without a unit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Tuning {
    /// α of QAware and Freshest: the weight of the old mean in each update, 0 to below 1.
    pub alpha: Option<f64>,
    /// How QAware estimates service times.
    pub estimator: Option<Estimator>,
    /// β of ECF and Earliest: how much longer than the second path the fast one must take to end a
    /// wait, 0 to 10.
    pub beta: Option<f64>,
    /// λ of BLEST at the start, within its bounds, 1 to 1.3.
    pub lambda: Option<f64>,
}

/// Why a scheduler does not take these settings.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum TuningError {
    /// The scheduler has no such setting.
    #[error("`{scheduler}` has no `{setting}`, which belongs to {owners}")]
    Foreign {
        /// The scheduler's name.
        scheduler: &'static str,
        /// The setting's name.
        setting: &'static str,
        /// The schedulers that have it.
        owners: &'static str,
    },
    /// A setting is out of its range.
    #[error(transparent)]
    Range(#[from] SchedulerError),
}

impl Tuning {
    /// `config` with these settings.
    ///
    /// # Errors
    /// [`TuningError`]: the scheduler has no such setting, or the setting is out of its range.
    pub fn apply(&self, mut config: SchedulerConfig) -> Result<SchedulerConfig, TuningError> {
        use SchedulerConfig::{Blest, Earliest, Ecf, Freshest, QAware};
        let scheduler = config.name();
        let foreign = |setting, owners| TuningError::Foreign { scheduler, setting, owners };
        if let Some(alpha) = self.alpha {
            match &mut config {
                QAware(params) => params.alpha = alpha,
                Freshest(params) => params.alpha = alpha,
                _ => return Err(foreign("alpha", "qaware and freshest")),
            }
        }
        if let Some(estimator) = self.estimator {
            match &mut config {
                QAware(params) => params.estimator = estimator,
                _ => return Err(foreign("estimator", "qaware")),
            }
        }
        if let Some(beta) = self.beta {
            match &mut config {
                Ecf(params) => params.beta = beta,
                Earliest(params) => params.beta = beta,
                _ => return Err(foreign("beta", "ecf and earliest")),
            }
        }
        if let Some(lambda) = self.lambda {
            match &mut config {
                Blest(params) => params.lambda = lambda,
                _ => return Err(foreign("lambda", "blest")),
            }
        }
        config.check()?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{BlestParams, EcfParams, QAwareParams};
    use alloc::string::ToString;

    #[test]
    fn each_scheduler_takes_its_own_settings() {
        let tuned = |name: &str, tuning: Tuning| tuning.apply(name.parse().unwrap());
        let tuning = Tuning {
            alpha: Some(0.5),
            estimator: Some(Estimator::Algorithm1),
            ..Tuning::default()
        };
        let params = QAwareParams { alpha: 0.5, estimator: Estimator::Algorithm1 };
        assert_eq!(tuned("qaware", tuning), Ok(SchedulerConfig::QAware(params)));
        let beta = Tuning { beta: Some(0.5), ..Tuning::default() };
        assert_eq!(
            tuned("ecf", beta),
            Ok(SchedulerConfig::Ecf(EcfParams { beta: 0.5, ..EcfParams::default() }))
        );
        let lambda = Tuning { lambda: Some(1.1), ..Tuning::default() };
        let params = BlestParams { lambda: 1.1, ..BlestParams::default() };
        assert_eq!(tuned("blest", lambda), Ok(SchedulerConfig::Blest(params)));
        for config in SchedulerConfig::ALL {
            assert_eq!(Tuning::default().apply(config), Ok(config));
        }
    }

    #[test]
    fn foreign_settings_and_ranges_are_refused_with_their_names() {
        let refused = |name: &str, tuning: Tuning| {
            tuning.apply(name.parse().unwrap()).unwrap_err().to_string()
        };
        let alpha = Tuning { alpha: Some(0.9), ..Tuning::default() };
        let text = "`min_srtt` has no `alpha`, which belongs to qaware and freshest";
        assert_eq!(refused("min_srtt", alpha), text);
        let estimator = Tuning { estimator: Some(Estimator::PerPacket), ..Tuning::default() };
        assert!(refused("freshest", estimator).contains("belongs to qaware"));
        let beta = Tuning { beta: Some(11.0), ..Tuning::default() };
        assert!(refused("qaware", beta).contains("belongs to ecf and earliest"));
        assert!(refused("ecf", beta).contains("from 0 to 10"));
        let lambda = Tuning { lambda: Some(1.4), ..Tuning::default() };
        assert!(refused("daps", lambda).contains("belongs to blest"));
        assert!(refused("blest", lambda).contains("within `bounds`"));
    }
}
