//! Reads sysfs and procfs about network devices.
//!
//! A mount of sysfs shows the devices of the network namespace in which it was mounted, which may
//! be another one than the process's own. A device is read only if its index is the expected one.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the kernel reports devices, unless a test says otherwise.
const SYSFS: &str = "/sys/class/net";

/// A network device in sysfs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetDevice {
    folder: PathBuf,
}

impl NetDevice {
    /// The device of this name and index; `None` where sysfs does not show it.
    #[must_use]
    pub fn find(name: &str, index: u32) -> Option<Self> {
        Self::find_in(Path::new(SYSFS), name, index)
    }

    fn find_in(root: &Path, name: &str, index: u32) -> Option<Self> {
        let folder = root.join(name);
        let is_it = read_number(&folder.join("ifindex")) == Some(index.into());
        is_it.then_some(Self { folder })
    }

    /// The rate of the link in bit/s; `None` where the driver does not report it, as for virtual
    /// devices.
    #[must_use]
    pub fn link_bps(&self) -> Option<u64> {
        // -1 for an unknown rate; Linux's tun and veth report 10 Gbit/s, which is no rate of a
        // link.
        let is_virtual = !self.folder.join("device").exists();
        let mbit = read_number(&self.folder.join("speed")).filter(|mbit| *mbit > 0)?;
        (!is_virtual).then_some(mbit * 1_000_000)
    }

    /// The name of the driver; `None` for virtual devices.
    #[must_use]
    pub fn driver(&self) -> Option<String> {
        let link = fs::read_link(self.folder.join("device/driver")).ok()?;
        Some(link.file_name()?.to_string_lossy().into_owned())
    }

    /// Whether it is Wi-Fi.
    #[must_use]
    pub fn is_wireless(&self) -> bool {
        ["wireless", "phy80211"].iter().any(|entry| self.folder.join(entry).exists())
    }

    /// Bytes in the device's rings, as byte queue limits count them; 0 where the driver does not.
    #[must_use]
    pub fn ring_bytes(&self) -> u64 {
        let queues = fs::read_dir(self.folder.join("queues")).into_iter().flatten().flatten();
        let inflight = |queue: fs::DirEntry| {
            read_number(&queue.path().join("byte_queue_limits/inflight")).unwrap_or_default()
        };
        queues.map(inflight).sum()
    }
}

fn read_number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The value of a setting of the network (`/proc/sys/net/…`), of the process's network namespace.
#[must_use]
pub fn setting(name: &str) -> Option<String> {
    let text = fs::read_to_string(Path::new("/proc/sys/net").join(name)).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_read_if_it_has_the_expected_index() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("eth0");
        for (file, text) in [
            ("ifindex", "3\n"),
            ("speed", "1000\n"),
            ("device/vendor", ""),
            ("wireless/status", ""),
            ("queues/tx-0/byte_queue_limits/inflight", "1514\n"),
            ("queues/tx-1/byte_queue_limits/inflight", "3028\n"),
            ("queues/rx-0/rps_cpus", "0\n"),
        ] {
            let path = folder.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        assert_eq!(NetDevice::find_in(root.path(), "eth0", 4), None);
        assert_eq!(NetDevice::find_in(root.path(), "eth1", 3), None);
        let device = NetDevice::find_in(root.path(), "eth0", 3).unwrap();
        assert_eq!((device.link_bps(), device.ring_bytes()), (Some(1_000_000_000), 4542));
        assert!(device.is_wireless() && device.driver().is_none());
    }

    #[test]
    fn settings_are_read() {
        assert!(setting("ipv4/ip_forward").is_some_and(|text| text == "0" || text == "1"));
        assert_eq!(setting("no/such/setting"), None);
    }
}
