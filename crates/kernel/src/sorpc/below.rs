//! Queues below a device's queueing disciplines: a ring, or a modem's memory, in which packets of
//! all bands share one queue.
//!
//! The law orders the packets queued above. If the driver accepts as many packets as its ring
//! holds, or the modem behind it does, the standing queue is there, and bands have no effect until
//! the link is shaped to less than its capacity ([`Settings::rate`](super::Settings::rate)). The
//! kernel does not show such a queue. It only shows whether the driver reports completed bytes
//! (byte queue limits, BQL): only then is its ring limited to the bytes that keep the link busy.
//!
//! | in `/sys/class/net/DEVICE` | meaning |
//! | --- | --- |
//! | `device` is missing | a virtual device: its bottleneck is elsewhere |
//! | `uevent` with `DEVTYPE=wwan`, or a driver of USB modems | [`Below::Modem`] |
//! | `phy80211` | [`Below::Wireless`] |
//! | `queues/tx-*/byte_queue_limits/limit` above 0 | [`Below::Limited`] |
//! | the same, always 0 although packets were sent, or missing | [`Below::Ring`] |

use std::fs;
use std::path::Path;

use freshline_core::unit::Bytes;

/// The kernel's directory of network devices.
pub(super) const SYSFS: &str = "/sys/class/net";

/// Drivers of modems and of phones as modems, which buffer packets themselves.
const MODEMS: &[&str] =
    &["qmi_wwan", "cdc_mbim", "cdc_ether", "cdc_ncm", "rndis_host", "huawei_cdc_ncm", "ipheth"];

/// The minimum number of sent packets after which a limit of 0 means that the driver sets none.
const TELLING: u64 = 100;

/// The queue below the bands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Below {
    /// A ring that BQL limits.
    Limited {
        /// The current limit, over all queues of the device.
        limit_bytes: Bytes,
    },
    /// An unlimited ring: packets may fill all of it.
    Ring,
    /// A modem with an unlimited buffer.
    Modem,
    /// Wi-Fi: its queues are below the discipline, per station and with fair service, if the driver
    /// uses mac80211's.
    Wireless,
    /// A virtual device without hardware.
    Virtual,
    /// Too few packets were sent for an answer.
    Unknown,
}

impl Below {
    /// The queue below the queueing disciplines of a device of this network namespace.
    #[must_use]
    pub fn of(device: &str) -> Self {
        Self::read(&Path::new(SYSFS).join(device))
    }

    fn read(device: &Path) -> Self {
        let hardware = device.join("device");
        if !hardware.exists() {
            return Self::Virtual;
        }
        let driver = fs::read_link(hardware.join("driver")).ok();
        let driver = driver.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
        let about = fs::read_to_string(device.join("uevent")).unwrap_or_default();
        let is_modem = about.lines().any(|line| line == "DEVTYPE=wwan")
            || driver.is_some_and(|driver| MODEMS.contains(&driver));
        if is_modem {
            return Self::Modem;
        }
        if device.join("phy80211").exists() {
            return Self::Wireless;
        }
        let queues = fs::read_dir(device.join("queues")).into_iter().flatten().flatten();
        let limits: Vec<u64> = queues
            .filter_map(|queue| number(&queue.path().join("byte_queue_limits/limit")))
            .collect();
        let limit: u64 = limits.iter().sum();
        let sent = number(&device.join("statistics/tx_packets")).unwrap_or(0);
        match (limit, sent) {
            (1.., _) => Self::Limited { limit_bytes: Bytes::new(limit) },
            // Since Linux 6.10 drivers without BQL have no such files.
            (0, _) if limits.is_empty() => Self::Ring,
            (0, TELLING..) => Self::Ring,
            (0, _) => Self::Unknown,
        }
    }

    /// Whether there may be a queue that no band controls.
    #[must_use]
    pub const fn may_hide_a_queue(self) -> bool {
        matches!(self, Self::Ring | Self::Modem)
    }

    /// The name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Limited { .. } => "bql",
            Self::Ring => "ring",
            Self::Modem => "modem",
            Self::Wireless => "wireless",
            Self::Virtual => "virtual",
            Self::Unknown => "unknown",
        }
    }

    /// In words.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Limited { .. } => "a ring that BQL limits",
            Self::Ring => "an unlimited ring (no BQL)",
            Self::Modem => "a modem's own buffer",
            Self::Wireless => "Wi-Fi's own queues",
            Self::Virtual => "no hardware (a virtual device)",
            Self::Unknown => "a ring with too little traffic to find out whether BQL limits it",
        }
    }
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A device as shown by sysfs, from files with their contents; a name with `@` is a link.
    fn device(files: &[(&str, &str)]) -> Below {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = folder.path().join(name.trim_end_matches('@'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            if name.ends_with('@') {
                symlink(content, path).unwrap();
            } else {
                fs::write(path, content).unwrap();
            }
        }
        Below::read(folder.path())
    }

    const SENT: (&str, &str) = ("statistics/tx_packets", "5000\n");
    const CARD: (&str, &str) = ("device/driver@", "../../drivers/e1000e");

    #[test]
    fn a_ring_is_limited_where_the_driver_reports_what_it_has_sent() {
        let limited = [CARD, SENT, ("queues/tx-0/byte_queue_limits/limit", "3028\n")];
        assert_eq!(device(&limited), Below::Limited { limit_bytes: Bytes::new(3028) });
        let unset = ("queues/tx-0/byte_queue_limits/limit", "0\n");
        assert_eq!(device(&[CARD, SENT, unset]), Below::Ring);
        assert_eq!(device(&[CARD, ("statistics/tx_packets", "3\n"), unset]), Below::Unknown);
        // Without the files no traffic is needed for an answer.
        assert_eq!(device(&[CARD, ("queues/tx-0/xps_cpus", "0\n")]), Below::Ring);
    }

    #[test]
    fn modems_and_radios_and_virtual_devices_are_known() {
        let limit = ("queues/tx-0/byte_queue_limits/limit", "3028\n");
        let wwan = ("uevent", "DEVTYPE=wwan\nINTERFACE=wwan0\n");
        assert_eq!(device(&[CARD, wwan, limit]), Below::Modem);
        let usb = ("device/driver@", "../../drivers/cdc_ether");
        assert_eq!(device(&[usb, SENT]), Below::Modem);
        assert_eq!(device(&[CARD, ("phy80211/index", "0\n")]), Below::Wireless);
        assert_eq!(device(&[SENT]), Below::Virtual);
        assert!(Below::Ring.may_hide_a_queue() && !Below::Virtual.may_hide_a_queue());
    }

    #[test]
    fn loopback_is_virtual() {
        assert_eq!(Below::of("lo"), Below::Virtual);
    }
}
