//! The key of a path's device queue.

use std::net::{IpAddr, SocketAddr};

/// The key of a path's device queue: identifies the device by which its packets leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PathKey {
    /// The sockets of the path are bound to the device with this index.
    Device(u32),
    /// The route to this address.
    Route(IpAddr),
}

impl PathKey {
    /// A path to `remote` through sockets that are bound to a device, or not bound.
    pub(crate) fn new(device: Option<u32>, remote: SocketAddr) -> Self {
        device.map_or(Self::Route(remote.ip().to_canonical()), Self::Device)
    }
}
