//! The root of a device's queueing disciplines: saving and restoring it.

use std::io;
use std::thread;

use freshline_core::unit::Bytes;
use freshline_system::netlink::{Handle, NetlinkError, Qdisc, Route};
use nix::sched::{CloneFlags, unshare};

use crate::device::Device;
use crate::error::KernelError;

/// Kinds that the kernel can restore from the settings that it reports: without classes, and
/// without tables that it does not report. [`Found::at`] tries it for each.
const RESTORABLE: &[&str] =
    &["pfifo", "bfifo", "pfifo_fast", "codel", "fq_codel", "fq", "sfq", "pie", "fq_pie", "cake"];

/// The index of the loopback device in every network namespace.
const LOOPBACK: u32 = 1;

/// The maximum length for which programs' constants and maps have room (`LONGEST_FOUND`).
pub(crate) const LONGEST: usize = 1024;

/// A root that was configured, or that the kernel chose itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// 0 if the kernel chose the root itself.
    pub(crate) handle: u32,
    /// The encoded kind and options.
    settings: Vec<u8>,
}

impl Found {
    /// The root of a device, if it can be restored later.
    pub(crate) fn at(route: &mut Route, device: &Device) -> Result<Self, KernelError> {
        let own_choice = Self { handle: 0, settings: Vec::new() };
        let mut all = route.qdiscs(device.index).map_err(cannot_read(device))?;
        let Some(at) = all.iter().position(|one| one.parent == Handle::ROOT) else {
            return Ok(own_choice);
        };
        let Qdisc { handle, kind, settings, .. } = all.swap_remove(at);
        if handle == Handle::UNSPEC {
            return Ok(own_choice);
        }
        let found = Self { handle: handle.into(), settings };
        let is_short = found.settings.len() <= LONGEST;
        if RESTORABLE.contains(&kind.as_str()) && is_short && found.returns() {
            return Ok(found);
        }
        Err(KernelError::Irreplaceable { device: device.name.clone(), kind })
    }

    /// Whether the kernel restores an identical discipline from the settings that it reported:
    /// tried on the loopback device of a temporary network namespace, which ends with its thread.
    fn returns(&self) -> bool {
        let tried = || {
            unshare(CloneFlags::CLONE_NEWNET).map_err(io::Error::from)?;
            let mut route = Route::open()?;
            route.put_qdisc(LOOPBACK, Handle::ROOT, self.handle.into(), &self.settings)?;
            route.qdiscs(LOOPBACK)
        };
        let listed: Result<_, NetlinkError> =
            thread::scope(|scope| scope.spawn(tried).join().expect("it does not panic"));
        let is_same = |one: Qdisc| {
            one.parent == Handle::ROOT
                && u32::from(one.handle) == self.handle
                && one.settings == self.settings
        };
        match listed {
            Ok(all) => all.into_iter().any(is_same),
            Err(error) => {
                tracing::debug!("a queueing discipline does not come back: {error}");
                false
            }
        }
    }

    /// Reads it from a program's constants.
    pub(crate) fn from_bytes(handle: u32, settings: &[u8]) -> Self {
        Self { handle, settings: settings.to_vec() }
    }

    /// The settings, for a program's constants.
    pub(crate) fn settings(&self) -> &[u8] {
        &self.settings
    }

    /// Restores the root in place of this project's. Packets queued there are lost. A root that
    /// another program has put there stays.
    pub(crate) fn restore(
        &self,
        device: &Device,
        is_ours: impl Fn(&Qdisc) -> bool,
    ) -> Result<(), KernelError> {
        let mut route = Route::open().map_err(cannot_read(device))?;
        if !route.qdiscs(device.index).map_err(cannot_read(device))?.iter().any(is_ours) {
            return Ok(());
        }
        let restored = if self.handle == 0 {
            route.remove_root(device.index)
        } else {
            route.put_qdisc(device.index, Handle::ROOT, self.handle.into(), &self.settings)
        };
        restored.map_err(KernelError::device("restore the queueing discipline of", &device.name))
    }
}

/// The queued bytes of a device's root queueing discipline, and of those below it.
pub(crate) fn backlog(route: &mut Route, device: u32) -> Result<Bytes, NetlinkError> {
    let all = route.qdiscs(device)?;
    let root = all.iter().find(|one| one.parent == Handle::ROOT);
    let stats = root.and_then(|root| root.stats).unwrap_or_default();
    Ok(Bytes::new(stats.queued_bytes.into()))
}

pub(crate) fn cannot_read(device: &Device) -> impl FnOnce(NetlinkError) -> KernelError {
    KernelError::device("ask for the queueing disciplines of", &device.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::Uid;

    #[test]
    fn only_what_the_kernel_tells_as_it_was_told_returns() {
        if !Uid::effective().is_root() {
            println!("skipped: needs root");
            return;
        }
        let found = |kind, options: &[u8]| Found {
            handle: Handle { major: 5, minor: 0 }.into(),
            settings: Qdisc::settings(kind, options),
        };
        assert!(found("pfifo", &77_u32.to_ne_bytes()).returns());
        assert!(!found("pfifo", &[]).returns(), "it has a limit, which was not given");
        let unknown = found("unknown", &[]);
        assert!(!unknown.returns());
    }
}
