//! The worlds of a scenario's runs, for callers.

use super::{Built, Laws, NoLaws, Scenario, ScenarioError};

impl Scenario {
    /// The world of a run, at time zero.
    ///
    /// # Errors
    /// [`ScenarioError`], also for a flow of hosts outside of the world: see [`Scenario::build_with_hosts`].
    pub fn build(&self, run: u32) -> Result<Built, ScenarioError> {
        self.build_with_laws(run, &NoLaws)
    }

    /// The world of a run, at time zero, in which `laws` replaces the laws of flows of updates, with and
    /// without topics. The `law`, `rate` and `params` of such a flow then have no effect; its limits
    /// (`max_rate`, `max_bandwidth`, `min_age_gain`) still hold.
    ///
    /// The random numbers of everything else in the run are those of [`Scenario::build`].
    ///
    /// # Errors
    /// [`ScenarioError`], also for an adaptive law (one with [`RateLaw::bounds`]) of a flow without acks.
    ///
    /// [`RateLaw::bounds`]: freshline_core::source::RateLaw::bounds
    pub fn build_with_laws(&self, run: u32, laws: &dyn Laws) -> Result<Built, ScenarioError> {
        match self.flows.iter().find(|flow| flow.external.is_some()) {
            Some(flow) => Err(ScenarioError::External(flow.name.clone())),
            None => self.build_world(run, laws),
        }
    }

    /// The world of a run, at time zero, with external flows whose hosts the caller drives.
    ///
    /// # Errors
    /// [`ScenarioError`] names the part that cannot be built.
    pub fn build_with_hosts(&self, run: u32) -> Result<Built, ScenarioError> {
        self.build_world(run, &NoLaws)
    }
}
