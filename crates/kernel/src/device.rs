//! Network devices, and programs on the packets that leave through them.
//!
//! Unsafe: libbpf-rs does not support links of tcx, the kernel's hook for programs on a device's
//! packets, so libbpf's own function is called.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::ptr::{self, NonNull};
use std::thread;

use libbpf_rs::{AsRawLibbpf, Link, ProgramMut, libbpf_sys};
use nix::net::if_::{if_indextoname, if_nametoindex};
use nix::sched::{CloneFlags, setns};

use crate::KernelError;

/// A device that exists in the network namespace of the calling thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) name: String,
    /// Its index in its namespace.
    pub(crate) index: u32,
    /// The namespace, by its inode.
    pub(crate) netns: u64,
}

impl Device {
    pub(crate) fn named(name: &str) -> Result<Self, KernelError> {
        let index = if_nametoindex(name).map_err(|_| KernelError::NoDevice(name.to_owned()))?;
        Ok(Self { name: name.to_owned(), index, netns: own_netns()? })
    }

    /// Whether both are the same device, even if it was renamed.
    pub(crate) fn is(&self, other: &Self) -> bool {
        (self.netns, self.index) == (other.netns, other.index)
    }

    /// Whether it still exists, if it was in the network namespace of the calling thread.
    pub(crate) fn exists(&self) -> bool {
        name_of(self.index).is_some()
    }

    /// Whether it is gone, in any network namespace. A namespace without processes and without a
    /// name in [`NAMED`] counts as gone.
    pub(crate) fn is_gone(&self) -> bool {
        let Some(netns) = open_netns(self.netns) else { return true };
        let is_there = || {
            setns(&netns, CloneFlags::CLONE_NEWNET)?;
            Ok::<_, nix::Error>(self.exists())
        };
        let outcome =
            thread::scope(|scope| scope.spawn(is_there).join().expect("it does not panic"));
        outcome.is_ok_and(|is_there| !is_there)
    }
}

/// The directory in which `ip netns` keeps namespaces.
const NAMED: &str = "/run/netns";

/// The network namespace with this inode.
fn open_netns(inode: u64) -> Option<File> {
    let list = |folder: &str| fs::read_dir(folder).into_iter().flatten().flatten();
    let of_processes = list("/proc").map(|process| process.path().join("ns/net"));
    let named = list(NAMED).map(|entry| entry.path());
    named
        .chain(of_processes)
        .find(|path| fs::metadata(path).is_ok_and(|about| about.ino() == inode))
        .and_then(|path| File::open(path).ok())
}

/// The name of the device with this index, if there is one in the network namespace of the calling
/// thread.
pub(crate) fn name_of(index: u32) -> Option<String> {
    // Without such a device, nix returns an empty name.
    let name = if_indextoname(index).ok()?.into_string().ok()?;
    (!name.is_empty()).then_some(name)
}

/// The network namespace of the calling thread, by its inode.
pub(crate) fn own_netns() -> Result<u64, KernelError> {
    let path = "/proc/thread-self/ns/net";
    fs::metadata(path).map(|about| about.ino()).map_err(KernelError::file("ask", path))
}

/// Attaches a program to the device with this index, for as long as its link is held or pinned.
#[allow(unsafe_code)]
pub(crate) fn attach(program: &ProgramMut<'_>, device: u32) -> io::Result<Link> {
    // SAFETY: the program is loaded and outlives the call, and no options are allowed.
    let link = unsafe {
        libbpf_sys::bpf_program__attach_tcx(
            program.as_libbpf_object().as_ptr(),
            device.cast_signed(),
            ptr::null(),
        )
    };
    match NonNull::new(link) {
        // SAFETY: libbpf created it, and nothing else owns it.
        Some(link) => Ok(unsafe { Link::from_ptr(link) }),
        None => Err(io::Error::last_os_error()),
    }
}
