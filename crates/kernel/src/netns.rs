//! The network namespace of this thread, and its devices.

use std::fs;
use std::os::unix::fs::MetadataExt;

use nix::net::if_::{if_indextoname, if_nametoindex};

use crate::KernelError;

/// The number by which the kernel knows it.
pub(crate) fn number() -> Result<u64, KernelError> {
    let file = "/proc/thread-self/ns/net";
    Ok(fs::metadata(file).map_err(KernelError::file("ask", file))?.ino())
}

/// The index of a device.
pub(crate) fn device_index(name: &str) -> Result<u32, KernelError> {
    if_nametoindex(name).map_err(|_| KernelError::NoDevice(name.to_owned()))
}

/// The name of a device, if it exists.
pub(crate) fn device_name(index: u32) -> Option<String> {
    if_indextoname(index).ok()?.into_string().ok()
}
