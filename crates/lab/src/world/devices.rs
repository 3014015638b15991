//! The devices through which the paths of a source leave.

use freshline_core::path::{DeviceMeter, PathId};
use freshline_core::session::{Paths, Source};
use freshline_core::unit::Time;

/// What devices let be seen through which several paths leave.
pub(super) struct Devices(Vec<DeviceMeter>);

impl Devices {
    /// One for each path.
    pub(super) fn of(paths: &Paths) -> Self {
        Self(vec![DeviceMeter::default(); paths.count()])
    }

    /// The device of a path holds this number of packets now, and `left` have left it since its start, which
    /// `source` is told.
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

    /// Whether there are several paths, so that it matters what their devices hold.
    pub(super) fn are_several(&self) -> bool {
        self.0.len() > 1
    }
}
