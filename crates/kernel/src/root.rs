//! The root of a device's queueing disciplines: what stands there, and how it comes back.

use std::io;
use std::thread;

use netlink_packet_core::DefaultNla;
use netlink_packet_route::tc::TcHandle;
use nix::sched::{CloneFlags, unshare};

use crate::device::Device;
use crate::error::KernelError;
use crate::qdisc::{Told, TrafficControl, from_bytes, to_bytes};

/// Kinds that the kernel can take back as it tells them: without classes, and without tables that it
/// keeps to itself. Whether it does is tried.
const RESTORABLE: &[&str] =
    &["pfifo", "bfifo", "pfifo_fast", "codel", "fq_codel", "fq", "sfq", "pie", "fq_pie", "cake"];

/// The loopback device's number in every network namespace.
const LOOPBACK: u32 = 1;

/// The longest that programs' constants and maps have room for (`LONGEST_FOUND`).
pub(crate) const LONGEST: usize = 1024;

/// A root that was configured, or that was the kernel's own choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// 0 is the kernel's own choice.
    pub(crate) handle: u32,
    attributes: Vec<DefaultNla>,
}

impl Found {
    /// What is at a device's root, if it can be put back later.
    pub(crate) fn at(control: &TrafficControl, device: &Device) -> Result<Self, KernelError> {
        let own_choice = Self { handle: 0, attributes: Vec::new() };
        let mut all = control.qdiscs(device.index).map_err(cannot_read(device))?;
        let Some(at) = all.iter().position(|one| one.parent == TcHandle::ROOT) else {
            return Ok(own_choice);
        };
        let root = all.swap_remove(at);
        if root.handle == TcHandle::UNSPEC {
            return Ok(own_choice);
        }
        let kind = root.kind();
        let found = Self { handle: root.handle.into(), attributes: root.settings() };
        let is_short = found.to_bytes().len() <= LONGEST;
        if RESTORABLE.contains(&kind.as_str()) && is_short && found.returns() {
            return Ok(found);
        }
        Err(KernelError::Irreplaceable { device: device.name.clone(), kind })
    }

    /// Whether the kernel makes the same of what it told: on the loopback device of a network
    /// namespace that is there for this alone, and gone with its thread.
    fn returns(&self) -> bool {
        let tried = || {
            unshare(CloneFlags::CLONE_NEWNET)?;
            let control = TrafficControl::open()?;
            let attributes = self.attributes.clone();
            control.put_qdisc(LOOPBACK, TcHandle::ROOT, self.handle.into(), attributes)?;
            control.qdiscs(LOOPBACK)
        };
        let outcome = thread::scope(|scope| scope.spawn(tried).join().expect("it does not panic"));
        let is_same = |one: Told| {
            one.parent == TcHandle::ROOT
                && u32::from(one.handle) == self.handle
                && one.settings() == self.attributes
        };
        match outcome {
            Ok(all) => all.into_iter().any(is_same),
            Err(error) => {
                tracing::debug!("a queueing discipline does not come back: {error}");
                false
            }
        }
    }

    /// From a program's constants.
    pub(crate) fn from_bytes(handle: u32, bytes: &[u8]) -> Self {
        Self { handle, attributes: from_bytes(bytes) }
    }

    /// For a program's constants.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        to_bytes(&self.attributes)
    }

    /// Puts it back in place of a root of ours. What waits there is lost. A root that is not ours,
    /// since somebody else has put another there, stays.
    pub(crate) fn restore(
        &self,
        device: &Device,
        is_ours: impl Fn(&Told) -> bool,
    ) -> Result<(), KernelError> {
        let control = TrafficControl::open().map_err(cannot_read(device))?;
        if !control.qdiscs(device.index).map_err(cannot_read(device))?.iter().any(is_ours) {
            return Ok(());
        }
        let restored = if self.handle == 0 {
            control.remove_root(device.index)
        } else {
            control.put_qdisc(
                device.index,
                TcHandle::ROOT,
                self.handle.into(),
                self.attributes.clone(),
            )
        };
        restored.map_err(KernelError::device("restore the queueing discipline of", &device.name))
    }
}

pub(crate) fn cannot_read(device: &Device) -> impl FnOnce(io::Error) -> KernelError {
    KernelError::device("ask for the queueing disciplines of", &device.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qdisc::attributes;
    use nix::unistd::Uid;

    #[test]
    fn only_what_the_kernel_tells_as_it_was_told_comes_back() {
        if !Uid::effective().is_root() {
            println!("skipped: needs root");
            return;
        }
        let pfifo = |options: Vec<u8>| Found {
            handle: TcHandle { major: 5, minor: 0 }.into(),
            attributes: attributes("pfifo", options),
        };
        assert!(pfifo(77_u32.to_ne_bytes().to_vec()).returns());
        assert!(!pfifo(Vec::new()).returns(), "it has a limit, which was not told");
        let unknown = Found { attributes: attributes("nobodys", Vec::new()), ..pfifo(Vec::new()) };
        assert!(!unknown.returns());
    }
}
