//! The choice of the class when both have queued packets.

use super::{AoiShare, Class};
use crate::unit::{Bytes, Time};

/// Decides which of the two classes goes first.
///
/// It only prefers: when the preferred class has nothing to send, the other one may. `now` never
/// goes back.
pub trait Scheduler {
    /// The class to serve now if it has anything.
    fn prefer(&mut self, now: Time) -> Class;

    /// Learns that a packet was sent, right after [`Scheduler::prefer`].
    fn on_sent(&mut self, class: Class, size: Bytes);

    /// The share γ of the AoI class.
    fn aoi_share(&self) -> AoiShare;

    /// Changes γ from now on.
    fn set_aoi_share(&mut self, aoi_share: AoiShare);
}
