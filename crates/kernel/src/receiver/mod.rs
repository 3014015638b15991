//! Limits the data in flight to programs of this host, or to hosts behind it: laws that choose the
//! receive windows of TCP connections, on every socket of a cgroup or for all packets through a
//! device.
//!
//! ```text
//!  attach ──► Held ──► pin ──► stays until detach
//!               └─ dropped: the programs are detached, and windows are as without them
//! ```
//!
//! If the process that holds the programs is killed, they are detached as well. Connections that
//! are open at that time get their own window with the next segment (on a device), or keep their
//! last one at least until the kernel grows their buffer (on a cgroup). The iterator that restores
//! their windows is pinned before the programs are attached, so that the next `attach` or `detach`
//! of the cgroup can run it.

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

/// The programs, attached for as long as this is held.
#[derive(Debug)]
pub struct Held {
    place: Place,
    /// The links of the programs that change windows.
    control: Vec<(&'static str, Link)>,
    connections: Option<Connections>,
    /// Whether the programs stay without this process, or are detached.
    is_over: bool,
}

/// Iterators over the connections of this network namespace; reading one runs it.
#[derive(Debug)]
struct Connections {
    /// Adopts them.
    adopt: Link,
    /// Restores their windows.
    release: Link,
}

/// The command in error messages.
const COMMAND: &str = "receiver";

/// Lets a law control new connections of a cgroup or of a device.
///
/// # Errors
///
/// If the settings are invalid, if the kernel or the permissions do not suffice, or if these
/// connections are under control already.
pub fn attach(target: &Target, law: &Law) -> Result<Held, KernelError> {
    law.check()?;
    require_root("attach programs")?;
    require_btf()?;
    let _alone = pin::lock()?;
    match pins::remove_deserted(PREFIX) {
        // A process that holds the programs needs no pins.
        Ok(_) | Err(KernelError::HiddenPins) => {}
        Err(error) => return Err(error),
    }
    match target {
        Target::Cgroup(path) => cgroup::attach(path, law),
        Target::Device(name) => device::attach(name, law),
    }
}

impl Held {
    /// Adopts existing connections of this network namespace that belong to the cgroup. Connections
    /// through a device cannot be adopted: the scale of their windows is known only from their
    /// handshake.
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
    /// If the BPF file system is unavailable, or hidden ([`KernelError::HiddenPins`]). The programs
    /// are then detached.
    pub fn pin(mut self) -> Result<(), KernelError> {
        let alone = pin::lock()?;
        let pinned = pins::fill(self.place, &mut self.control);
        if pinned.is_err() {
            // Under the same lock, as another command would otherwise remove some pins without the
            // others.
            let _ = self.end(&alone).inspect_err(|error| tracing::warn!("{error}"));
        }
        self.is_over = true;
        pinned
    }

    /// Ends the control: the connections of this network namespace get the windows that they would
    /// have without it.
    ///
    /// # Errors
    ///
    /// If the kernel's list of connections cannot be read. The programs are detached regardless.
    pub fn release(mut self) -> Result<(), KernelError> {
        // Without the lock the programs end with their links, and no second attempt waits for it.
        let alone = pin::lock().inspect_err(|_| self.is_over = true)?;
        self.end(&alone)
    }

    /// Takes the lock first: once a program is detached, another command may attach its own here,
    /// and this function would remove that command's record.
    fn end(&mut self, _alone: &Lock) -> Result<(), KernelError> {
        if mem::replace(&mut self.is_over, true) {
            return Ok(());
        }
        for (_, link) in &self.control {
            link.detach().map_err(KernelError::bpf("detach the program"))?;
        }
        let connections = self.connections.as_ref();
        let released = connections.map_or(Ok(()), |connections| read_to_end(&connections.release));
        // The record goes last.
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
