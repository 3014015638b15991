//! Hooks for faults that neither a path nor a host can cause, but only the endpoints themselves. In
//! an ordinary build they do nothing.

use freshline_core::link::Direction;
use freshline_core::unit::Time;

use super::observation::Observation;
use super::plan::{MonitorPlan, SourcePlan};

/// Intercepts between the endpoints and the world. By default it does nothing.
pub(super) trait Sabotage: Send {
    /// Whether to drop a datagram that has arrived at its endpoint: at the monitor, or in reverse
    /// at a source.
    fn intercepts(&mut self, _direction: Direction, _datagram: &[u8]) -> bool {
        false
    }

    /// The datagram that the monitor reads instead of one that has arrived; `None` to read that
    /// one.
    fn misread(&self, _datagram: &[u8]) -> Option<Vec<u8>> {
        None
    }

    /// The monitor to run, instead of the one to check.
    fn monitor(&self, plan: MonitorPlan) -> MonitorPlan {
        plan
    }

    /// The source to run, instead of the one to check.
    fn source(&self, plan: SourcePlan) -> SourcePlan {
        plan
    }

    /// The time of the next step, instead of `next`.
    fn next_step_at(&self, _now: Time, next: Time) -> Time {
        next
    }

    /// Changes an observation.
    fn rewrite(&mut self, _observation: &mut Observation) {}
}

/// Changes nothing.
pub(super) struct NoSabotage;

impl Sabotage for NoSabotage {}
