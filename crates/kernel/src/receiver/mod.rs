//! How much may be in flight to this host's programs, or to hosts behind it: laws that choose the
//! receive windows of TCP connections, on every socket of a cgroup or on all that passes a device.
//!
//! ```text
//!  attach ──► Held ──► pin ──► stays until detach
//!               └─ dropped: the programs are gone, and windows are as without them
//! ```
//!
//! If the process that holds programs is killed, they are gone as well. Connections that are open
//! at that moment have their own window with the next segment (on a device), or keep their last one at
//! least until the kernel grows their buffer (on a cgroup). What gives them their windows back is pinned
//! before the programs are attached, so that the next `attach` or `detach` of the cgroup does.

mod cgroup;
mod device;
mod live;
mod pins;
mod place;
mod settings;
mod status;

use std::mem;

use libbpf_rs::Link;

use crate::KernelError;
use crate::error::{require_btf, require_root};
use crate::pin::{self, Lock};
use pins::{PREFIX, read_to_end};
pub use pins::{detach, detach_all};
pub use place::{Place, Target};
pub use settings::{Law, Settings};
pub use status::{Attachment, Counters, Peer, attachments};

/// The programs in their places, for as long as this is held.
#[derive(Debug)]
pub struct Held {
    place: Place,
    /// What has windows changed.
    control: Vec<(&'static str, Link)>,
    connections: Option<Connections>,
    /// Whether it stays without this process, or has ended.
    is_over: bool,
}

/// What goes through the connections of this network namespace, when it is read.
#[derive(Debug)]
struct Connections {
    /// Takes them over.
    adopt: Link,
    /// Gives them their windows back.
    release: Link,
}

/// What its errors call the command.
const COMMAND: &str = "receiver";

/// Has a law control the connections of a cgroup or of a device that are made from now on.
///
/// # Errors
///
/// Where the settings make no sense, where the kernel or the rights do not suffice, and where
/// these connections are under control already.
pub fn attach(target: &Target, law: &Law) -> Result<Held, KernelError> {
    law.check()?;
    require_root("attach programs")?;
    require_btf()?;
    let _alone = pin::lock()?;
    match pins::remove_deserted(PREFIX) {
        // What a process holds needs no pins.
        Ok(_) | Err(KernelError::HiddenPins) => {}
        Err(error) => return Err(error),
    }
    match target {
        Target::Cgroup(path) => cgroup::attach(path, law),
        Target::Device(name) => device::attach(name, law),
    }
}

impl Held {
    /// Takes over the connections of this network namespace, as far as they belong to the cgroup.
    /// Those that pass a device cannot be: how their windows are to be read, only their beginning
    /// tells.
    ///
    /// # Errors
    ///
    /// If the kernel's list of connections cannot be read.
    pub fn adopt(&self) -> Result<(), KernelError> {
        self.connections.as_ref().map_or(Ok(()), |connections| read_to_end(&connections.adopt))
    }

    /// Lets the programs stay when this process ends, until [`detach`].
    ///
    /// # Errors
    ///
    /// If the BPF file system is not to be had, or hidden ([`KernelError::HiddenPins`]). The programs are gone then.
    pub fn pin(mut self) -> Result<(), KernelError> {
        let alone = pin::lock()?;
        let pinned = pins::fill(self.place, &mut self.control);
        if pinned.is_err() {
            // Under the same lock, as another command would end some pins without the others.
            let _ = self.end(&alone).inspect_err(|error| tracing::warn!("{error}"));
        }
        self.is_over = true;
        pinned
    }

    /// Ends the control: the connections of this network namespace get the windows that they
    /// would have without it.
    ///
    /// # Errors
    ///
    /// If the kernel's list of connections cannot be read. The programs are gone all the same.
    pub fn release(mut self) -> Result<(), KernelError> {
        // Without the lock the programs go with their links, and no second attempt waits for it.
        let alone = pin::lock().inspect_err(|_| self.is_over = true)?;
        self.end(&alone)
    }

    /// The lock comes first: once a program is detached, another command may attach its own here, and
    /// the record that this removes would be that command's.
    fn end(&mut self, _alone: &Lock) -> Result<(), KernelError> {
        if mem::replace(&mut self.is_over, true) {
            return Ok(());
        }
        for (_, link) in &self.control {
            link.detach().map_err(KernelError::bpf("detach the program"))?;
        }
        let connections = self.connections.as_ref();
        let released = connections.map_or(Ok(()), |connections| read_to_end(&connections.release));
        // The record last.
        released.and(pins::complete(self.place))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        if let Err(error) = pin::lock().and_then(|alone| self.end(&alone)) {
            tracing::warn!("{error}");
        }
    }
}
