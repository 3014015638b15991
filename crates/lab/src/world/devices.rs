//! The devices at the first hops of a source's paths.

use freshline_core::path::{DeviceMeter, PathId};
use freshline_core::session::{Paths, Source};
use freshline_core::unit::Time;

/// The measurements of the devices at the first hops of several paths.
pub(super) struct Devices(Vec<DeviceMeter>);

impl Devices {
    /// One per path.
    pub(super) fn of(paths: &Paths) -> Self {
        Self(vec![DeviceMeter::default(); paths.count()])
    }

    /// Passes on to `source` that the device of a path holds this number of packets now, and that
    /// `left` have left it since its start.
    pub(super) fn look(
        &mut self,
        (now, path): (Time, PathId),
        (packets, left): (u64, u64),
        source: &mut Source,
    ) {
        if let Some(device) = self.0.get_mut(usize::from(path.0)) {
            device.look(now, packets, left);
            source.handle_queue(path, Some(device.queue()));
        }
    }

    /// Whether there are several paths, so that the source needs the queue lengths of their
    /// devices.
    pub(super) fn are_several(&self) -> bool {
        self.0.len() > 1
    }
}
