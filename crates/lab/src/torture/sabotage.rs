//! Where something can be made to go wrong that no fault of a path or a host brings about: the
//! endpoints themselves. In an ordinary build nothing is.

use freshline_core::link::Direction;
use freshline_core::unit::Time;

use super::observation::Observation;
use super::plan::{MonitorPlan, SourcePlan};

/// Gets between the endpoints and the world. By default it does nothing.
pub(super) trait Sabotage: Send {
    /// Whether a datagram that has arrived never reaches its endpoint: the monitor, or back a source.
    fn intercepts(&mut self, _direction: Direction, _datagram: &[u8]) -> bool {
        false
    }

    /// The datagram that the monitor reads instead of one that has arrived; `None` if it reads that.
    fn misread(&self, _datagram: &[u8]) -> Option<Vec<u8>> {
        None
    }

    /// The monitor that there is, instead of the one that is checked.
    fn monitor(&self, plan: MonitorPlan) -> MonitorPlan {
        plan
    }

    /// The same of a source.
    fn source(&self, plan: SourcePlan) -> SourcePlan {
        plan
    }

    /// When the world goes on, instead of at `next`.
    fn next_step_at(&self, _now: Time, next: Time) -> Time {
        next
    }

    /// Changes what is seen.
    fn rewrite(&mut self, _observation: &mut Observation) {}
}

/// Leaves everything as it is.
pub(super) struct NoSabotage;

impl Sabotage for NoSabotage {}
