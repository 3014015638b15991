//! What waits in front of a path on this host: its device's queueing discipline, and the ring behind
//! it where the driver tells.
//!
//! ```text
//!   socket ─► queueing discipline (netlink: length, packets that left) ─► ring (BQL, sysfs) ─► wire
//! ```
//!
//! One question and its answer take some microseconds; an answer is used for [`FRESH`]. The root
//! counts for all that is below it.
//!
//! # Where the paper is silent
//!
//! - **The dequeue rate** is that under load ([`DeviceMeter`]), of what has left discipline and ring.
//! - **BQL counts bytes**; a packet is taken to have [`PACKET`] of them.
//! - **A device without a queue** (`noqueue`) cannot be seen into; that is said once, and the
//!   scheduler goes by the round trip alone.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use freshline_core::path::{DeviceMeter, DeviceQueue};
use freshline_core::unit::{Span, Time};
use nix::net::if_::{if_indextoname, if_nametoindex};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};
use noq_proto::FourTuple;

/// How long an answer is used.
const FRESH: Duration = Duration::from_millis(1);

/// How long it is known which device a path leaves by.
const ROUTE: Duration = Duration::from_secs(1);

/// Where the kernel tells of its devices.
const SYSFS: &str = "/sys/class/net";

/// Bytes of a packet in the ring.
const PACKET: u64 = 1500;

/// Paths of which it is known where they leave, at most; then they are looked up anew.
const MOST_KNOWN: usize = 1024;

/// Message types of <linux/rtnetlink.h>.
const GET_QDISC: u16 = 38;
const NEW_QDISC: u16 = 36;
const GET_ROUTE: u16 = 26;
const NEW_ROUTE: u16 = 24;
/// A request, answered to who asks: a single discipline's answer is else for listeners only.
const ASK: u16 = 0x1 | 0x8;
/// `TC_H_ROOT`.
const ROOT: u32 = u32::MAX;
/// Attributes: `TCA_KIND`, `TCA_STATS2`; within that `TCA_STATS_BASIC`, `TCA_STATS_QUEUE`.
const KIND: u16 = 1;
const STATS2: u16 = 7;
const BASIC: u16 = 1;
const QUEUE: u16 = 3;
/// `RTA_DST`, `RTA_OIF`.
const DESTINATION: u16 = 1;
const DEVICE: u16 = 4;

/// The lengths of the headers: netlink's, a discipline's, a route's.
const HEADER: usize = 16;
const TC_HEADER: usize = 20;
const ROUTE_HEADER: usize = 12;

/// What a discipline says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// Packets that wait.
    pub waiting: u64,
    /// Packets that have left, ever; it wraps.
    pub left: u32,
    /// It is none.
    pub is_noqueue: bool,
}

/// What a device's queue was when it was looked at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) queue: DeviceQueue,
}

/// One device.
#[derive(Debug)]
struct Device {
    read_at: Instant,
    seen: Option<Seen>,
    meter: DeviceMeter,
    /// When it was looked at first.
    since: Instant,
    /// Packets that have left the discipline: the kernel's counter, without its wrapping.
    left: u64,
    /// Where the driver tells of its rings, as of a moment.
    rings: Vec<PathBuf>,
    looked_at: Instant,
}

/// The queues of this host's devices, in the network namespace of the thread that made this.
#[derive(Debug)]
pub(crate) struct DeviceQueues {
    socket: Option<OwnedFd>,
    devices: HashMap<u32, Device>,
    /// By which device packets leave for an address, and since when that is known.
    routes: HashMap<IpAddr, (Instant, Option<u32>)>,
    /// Local addresses that stand for an interface.
    labels: HashMap<IpAddr, String>,
    silent: HashSet<Option<u32>>,
}

impl DeviceQueues {
    pub(crate) fn new() -> Self {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            SockProtocol::NetlinkRoute,
        );
        Self {
            socket: socket.ok(),
            devices: HashMap::new(),
            routes: HashMap::new(),
            labels: HashMap::new(),
            silent: HashSet::new(),
        }
    }

    /// Paths with the local address `label` leave by this interface.
    pub(crate) fn label(&mut self, label: IpAddr, interface: &str) {
        self.labels.insert(label, interface.to_owned());
        self.routes.remove(&label);
    }

    /// The name of the device by which a path leaves.
    pub(crate) fn interface(&mut self, now: Instant, path: FourTuple) -> Option<String> {
        name_of(self.device_of(now, path)?)
    }

    fn device_of(&mut self, now: Instant, path: FourTuple) -> Option<u32> {
        let label = path.local_ip().filter(|label| self.labels.contains_key(label));
        let key = label.unwrap_or(path.remote().ip().to_canonical());
        if let Some((at, device)) = self.routes.get(&key)
            && now.saturating_duration_since(*at) < ROUTE
        {
            return *device;
        }
        let device = match label {
            Some(label) => if_nametoindex(self.labels[&label].as_str()).ok(),
            None => self.route(key),
        };
        if self.routes.len() >= MOST_KNOWN {
            self.routes.clear();
        }
        self.routes.insert(key, (now, device));
        device
    }

    /// The device by which packets leave for `to`.
    fn route(&self, to: IpAddr) -> Option<u32> {
        let (family, address) = match to {
            IpAddr::V4(v4) => (AddressFamily::Inet, v4.octets().to_vec()),
            IpAddr::V6(v6) => (AddressFamily::Inet6, v6.octets().to_vec()),
        };
        let mut body = vec![0; ROUTE_HEADER];
        (body[0], body[1]) = (family as u8, 8 * address.len() as u8);
        body.extend((4 + address.len() as u16).to_ne_bytes());
        body.extend(DESTINATION.to_ne_bytes());
        body.extend(address);
        let answer = self.ask(GET_ROUTE, NEW_ROUTE, &body).ok()?;
        let device = attribute(answer.get(ROUTE_HEADER..)?, DEVICE)?;
        Some(u32::from_ne_bytes(device.get(..4)?.try_into().ok()?))
    }

    fn discipline(&self, device: u32) -> Option<Told> {
        let mut body = vec![0; TC_HEADER];
        body[4..8].copy_from_slice(&device.to_ne_bytes());
        body[12..16].copy_from_slice(&ROOT.to_ne_bytes());
        parse(&self.ask(GET_QDISC, NEW_QDISC, &body).ok()?)
    }

    /// Asks the kernel, which answers at once; gives what follows the answer's header.
    fn ask(&self, kind: u16, answer: u16, body: &[u8]) -> io::Result<Vec<u8>> {
        let socket = self.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let mut message = Vec::with_capacity(HEADER + body.len());
        message.extend(((HEADER + body.len()) as u32).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(ASK.to_ne_bytes());
        message.extend([0; 8]);
        message.extend(body);
        send(socket.as_raw_fd(), &message, MsgFlags::empty())?;
        let mut told = None;
        let mut buffer = [0; 8192];
        // What else there is, such as an error's message, must not be taken for the next answer.
        while let Ok(len) = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            let bytes = &buffer[..len];
            let is_answer = bytes.get(4..6) == Some(&answer.to_ne_bytes()[..]);
            if is_answer && let Some(rest) = bytes.get(HEADER..) {
                told = Some(rest.to_vec());
            }
        }
        told.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The queue that packets of this path stand in; `None` where nobody can tell.
    pub(crate) fn queue(&mut self, now: Instant, path: FourTuple) -> Option<Seen> {
        let index = self.device_of(now, path);
        let known = index.and_then(|index| self.devices.get(&index));
        if let Some(device) = known
            && now.saturating_duration_since(device.read_at) < FRESH
        {
            return device.seen;
        }
        let told = index.and_then(|index| self.discipline(index));
        let device = index.map(|index| {
            self.devices.entry(index).or_insert_with(|| Device {
                read_at: now,
                seen: None,
                meter: DeviceMeter::default(),
                since: now,
                left: 0,
                rings: rings(Path::new(SYSFS), index),
                looked_at: now,
            })
        });
        let seen = device.and_then(|device| {
            device.read_at = now;
            // A driver sets its limit with its first packets.
            if let Some(index) = index
                && now.saturating_duration_since(device.looked_at) >= ROUTE
            {
                (device.rings, device.looked_at) = (rings(Path::new(SYSFS), index), now);
            }
            let queue = told.and_then(|told| device.update(now, told));
            device.seen = queue.map(|queue| Seen { at: now, queue });
            device.seen
        });
        if seen.is_none()
            && let Some(name) = index.and_then(name_of)
            && self.silent.insert(index)
        {
            tracing::warn!("{name} has no queue that can be seen; its round trip alone counts");
        }
        seen
    }
}

impl Device {
    fn update(&mut self, now: Instant, told: Told) -> Option<DeviceQueue> {
        if told.is_noqueue && self.rings.is_empty() {
            return None;
        }
        let bytes: u64 = self.rings.iter().filter_map(|ring| read_number(ring)).sum();
        let in_rings = bytes.div_ceil(PACKET);
        self.left += u64::from(told.left.wrapping_sub(self.left as u32));
        let at = Time::ZERO + Span::from(now.saturating_duration_since(self.since));
        // What is in the rings has not left the device.
        self.meter.look(at, told.waiting + in_rings, self.left.saturating_sub(in_rings));
        Some(self.meter.queue())
    }
}

/// The files in which a driver tells how many bytes its rings hold; `sysfs` has a folder for each
/// device.
fn rings(sysfs: &Path, device: u32) -> Vec<PathBuf> {
    name_of(device).map_or_else(Vec::new, |name| rings_of(&sysfs.join(name)))
}

fn name_of(device: u32) -> Option<String> {
    let name = if_indextoname(device).ok()?.into_string().ok()?;
    // What has just gone has an empty one.
    (!name.is_empty()).then_some(name)
}

fn rings_of(device: &Path) -> Vec<PathBuf> {
    let queues = fs::read_dir(device.join("queues")).into_iter().flatten();
    let rings = queues.flatten().map(|queue| queue.path().join("byte_queue_limits"));
    // Drivers without it have the folder all the same, with a limit that is never set.
    rings
        .filter(|ring| read_number(&ring.join("limit")).is_some_and(|limit| limit > 0))
        .map(|ring| ring.join("inflight"))
        .collect()
}

fn read_number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Reads a discipline's answer (`RTM_NEWQDISC`) behind the header of its message.
pub fn parse(answer: &[u8]) -> Option<Told> {
    let attributes = answer.get(TC_HEADER..)?;
    let stats = attribute(attributes, STATS2)?;
    let queue = attribute(stats, QUEUE)?;
    let basic = attribute(stats, BASIC)?;
    let number =
        |bytes: &[u8], at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    Some(Told {
        waiting: number(queue, 0)?.into(),
        left: number(basic, 8)?,
        is_noqueue: attribute(attributes, KIND).is_some_and(|kind| kind.starts_with(b"noqueue\0")),
    })
}

/// The value of the first attribute of this kind.
fn attribute(mut bytes: &[u8], kind: u16) -> Option<&[u8]> {
    /// Flags above the number.
    const NUMBER: u16 = 0x3fff;
    loop {
        let len = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let found = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?) & NUMBER;
        let value = bytes.get(4..len)?;
        if found == kind {
            return Some(value);
        }
        bytes = bytes.get(len.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::clock::Clock;

    fn now() -> Instant {
        let clock = Clock::new();
        clock.instant_of(clock.now())
    }

    #[test]
    fn the_way_to_oneself_is_by_loopback_which_has_no_queue() {
        let mut queues = DeviceQueues::new();
        let path = FourTuple::from_remote("127.0.0.1:9".parse().unwrap());
        assert_eq!(queues.interface(now(), path).as_deref(), Some("lo"));
        assert_eq!(queues.queue(now(), path), None);
        let label = "240.0.0.1".parse().unwrap();
        queues.label(label, "lo");
        let path = FourTuple::new("192.0.2.1:9".parse().unwrap(), Some(label));
        assert_eq!(queues.interface(now(), path).as_deref(), Some("lo"));
    }

    fn device_with(rings: Vec<PathBuf>, at: Instant) -> Device {
        let meter = DeviceMeter::default();
        Device { read_at: at, seen: None, meter, since: at, left: 0, rings, looked_at: at }
    }

    #[test]
    fn packets_that_left_make_the_rate() {
        let at = now();
        let mut device = device_with(Vec::new(), at);
        let told = |waiting, left| Told { waiting, left, is_noqueue: false };
        let first = device.update(at, told(3, u32::MAX));
        assert_eq!(first, Some(DeviceQueue { packets: 3, rate: 0.0 }));
        // The counter wraps.
        let later = device.update(at + Duration::from_millis(100), told(1, 99));
        assert_eq!(later, Some(DeviceQueue { packets: 1, rate: 1000.0 }));
        // Too soon for another rate.
        let soon = device.update(at + Duration::from_millis(101), told(0, 99));
        assert_eq!(soon, Some(DeviceQueue { packets: 0, rate: 1000.0 }));
        // It has next to nothing to do for a second, and is as fast as before.
        let idle = device.update(at + Duration::from_millis(1_101), told(2, 104));
        assert_eq!(idle, Some(DeviceQueue { packets: 2, rate: 1000.0 }));
    }

    #[test]
    fn what_is_in_a_ring_has_not_left() {
        let ring = tempfile::NamedTempFile::new().unwrap();
        let at = now();
        let mut device = device_with(vec![ring.path().to_owned()], at);
        // The discipline gives the ring all that it has; two of three leave the device in 10 ms.
        let mut look = |ms, in_ring: u64, waiting, left| {
            fs::write(ring.path(), format!("{}\n", in_ring * PACKET)).unwrap();
            let told = Told { waiting, left, is_noqueue: false };
            device.update(at + Duration::from_millis(ms), told)
        };
        look(0, 0, 3, 10);
        let gone = look(10, 1, 0, 13);
        assert_eq!(gone, Some(DeviceQueue { packets: 1, rate: 200.0 }));
    }

    #[test]
    fn rings_are_read_where_a_driver_tells_of_them() {
        let sysfs = tempfile::tempdir().unwrap();
        let device = sysfs.path().join("eth0");
        // A receive queue; a driver that never sets its limit; two that tell; and nonsense.
        fs::create_dir_all(device.join("queues/rx-0")).unwrap();
        for (queue, limit, inflight) in [
            ("tx-0", "0", "77"),
            ("tx-1", "3028", "3000"),
            ("tx-2", "9000", "1501"),
            ("tx-3", "?", ""),
        ] {
            let limits = device.join("queues").join(queue).join("byte_queue_limits");
            fs::create_dir_all(&limits).unwrap();
            fs::write(limits.join("limit"), format!("{limit}\n")).unwrap();
            fs::write(limits.join("inflight"), format!("{inflight}\n")).unwrap();
        }
        let told_of = rings_of(&device);
        assert_eq!(told_of.len(), 2);
        let at = now();
        let mut device = device_with(told_of, at);
        // Two packets wait, and 4501 bytes are some four more; also without a discipline.
        for is_noqueue in [false, true] {
            let told = Told { waiting: 2, left: 0, is_noqueue };
            assert_eq!(device.update(at, told).map(|queue| queue.packets), Some(6));
        }
        assert!(rings_of(&sysfs.path().join("eth1")).is_empty());
        assert!(rings(sysfs.path(), u32::MAX).is_empty());
    }

    proptest! {
        #[test]
        fn any_answer_is_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
            let _ = attribute(&bytes, STATS2);
        }
    }
}
