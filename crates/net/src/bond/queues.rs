//! Device queues of the paths of a bond.
//!
//! noq-proto identifies a path by its addresses. Each path of a client has a made-up local address
//! (`client::ClientPath::label`), which identifies the device that the path's socket is bound to.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

use noq_proto::FourTuple;

use super::paths::Queues;
use crate::via::{DeviceQueues, PathKey, Seen};

/// The queues of this host's devices, by the paths of a bond.
#[derive(Debug)]
pub(super) struct PathQueues {
    devices: DeviceQueues,
    /// The device of each made-up local address.
    bound: HashMap<IpAddr, u32>,
}

impl PathQueues {
    pub(super) fn new() -> Self {
        Self { devices: DeviceQueues::new(), bound: HashMap::new() }
    }

    /// Paths with the local address `label` leave by this device, or by the routing table if it is
    /// `None`.
    pub(super) fn bind(&mut self, label: IpAddr, device: Option<u32>) {
        match device {
            Some(device) => self.bound.insert(label, device),
            None => self.bound.remove(&label),
        };
    }

    /// The name of the device by which a path leaves.
    pub(super) fn interface(&mut self, now: Instant, path: FourTuple) -> Option<String> {
        self.devices.interface(now, self.key(path))
    }

    fn key(&self, path: FourTuple) -> PathKey {
        let device = path.local_ip().and_then(|ip| self.bound.get(&ip));
        PathKey::new(device.copied(), path.remote())
    }
}

impl Queues for PathQueues {
    fn queue(&mut self, now: Instant, path: FourTuple) -> Option<Seen> {
        self.devices.queue(now, self.key(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_up_address_stands_for_its_device_and_others_for_the_route() {
        let mut queues = PathQueues::new();
        let label: IpAddr = "240.0.0.1".parse().unwrap();
        let to: std::net::SocketAddr = "192.0.2.1:9".parse().unwrap();
        let path = FourTuple::new(to, Some(label));
        assert_eq!(queues.key(path), PathKey::Route(to.ip()));
        queues.bind(label, Some(7));
        assert_eq!(queues.key(path), PathKey::Device(7));
        for local in [None, "192.0.2.9".parse().ok()] {
            assert_eq!(queues.key(FourTuple::new(to, local)), PathKey::Route(to.ip()));
        }
        queues.bind(label, None);
        assert_eq!(queues.key(path), PathKey::Route(to.ip()));
    }
}
