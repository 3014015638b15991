//! The choice of the class if both have queued packets.

use super::{AoiShare, Class};
use crate::unit::{Bytes, Time};

/// Decides which of the two classes is served first.
///
/// It only prefers: if the preferred class has nothing to send, the other one may send. `now` never
/// goes back.
pub trait Scheduler {
    /// The class to serve now if it has queued packets.
    fn prefer(&mut self, now: Time) -> Class;

    /// Counts a sent packet, right after [`Scheduler::prefer`].
    fn on_sent(&mut self, class: Class, size: Bytes);

    /// The share γ of the AoI class.
    fn aoi_share(&self) -> AoiShare;

    /// Changes γ from now on.
    fn set_aoi_share(&mut self, aoi_share: AoiShare);
}
