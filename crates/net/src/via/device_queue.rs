//! The queue of a path on this host: its device's queueing discipline, and the queues behind it: a
//! ring if the driver reports it, or the queues of a Wi-Fi device.
//!
//! ```text
//!                                                                     ┌─► ring (BQL, sysfs) ─► wire
//!   socket ─► queueing discipline (netlink: length, packets that left)┤
//!                                                                     └─► queues per station (nl80211) ─► air
//! ```
//!
//! A request and its answer take some microseconds; an answer is used for [`FRESH`]. The root
//! discipline counts for all disciplines below it.
//!
//! # Where the paper is silent
//!
//! - **The dequeue rate** is the rate under load ([`DeviceMeter`]), of departures from discipline
//!   and ring.
//! - **Packets** are packets on the wire: a super-packet (TSO, GSO) of the discipline counts as its
//!   segments, as it does in the count of departures. The number of queued packets is the queued
//!   bytes over the mean size of recent departures, or over [`PACKET`] bytes before the first.
//! - **BQL counts bytes**, and is read in the same way.
//! - **Wi-Fi devices** of mac80211 have `noqueue` at the root and their own queues behind it
//!   ([`StationQueues`]); the lengths of both are added, and the departures from the latter count.
//! - **A counter that restarts** (a station joins again, another discipline) is not a departure,
//!   and neither is the difference between the counters of the discipline and of the stations.
//! - **A device without a queue** (`noqueue`, no BQL, not Wi-Fi) cannot be read; this is reported
//!   once, and the scheduler uses the round trip only.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use freshline_core::path::{DeviceMeter, DeviceQueue};
use freshline_core::unit::{Span, Time};
use freshline_system::netlink::Route;
use nix::net::if_::if_indextoname;

use super::discipline::QueueCounters;
use super::path_key::PathKey;
use super::queue_report::SeenBy;
use super::station_queue::{StationQueues, Stations};

/// How long an answer is used.
const FRESH: Duration = Duration::from_millis(1);

/// How long the device of a path is cached.
const ROUTE: Duration = Duration::from_secs(1);

/// A device whose queue was not requested in this time is removed, and its thread ends.
const FORGET: Duration = Duration::from_secs(60);

/// The kernel's folder of network devices.
const SYSFS: &str = "/sys/class/net";

/// The assumed size of a packet before the first departure, in bytes.
const PACKET: u64 = 1500;

/// The mean packet size is taken over this many recent departures.
const RECENT: f64 = 200.0;

/// No device sends more packets between two readings: a larger difference is a counter that went
/// back.
const MAX_DEPARTURES: u64 = 1 << 31;

/// The maximum number of paths with a cached device; beyond it, all are looked up again.
const MAX_KNOWN: usize = 1024;

/// A reading of a device's queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) queue: DeviceQueue,
    pub(crate) by: SeenBy,
}

/// The queue whose departures count as the device's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counter {
    Discipline,
    Stations,
}

/// One device.
#[derive(Debug)]
struct Device {
    read_at: Instant,
    seen: Option<Seen>,
    /// The counter that `left` follows; `None` before the first reading.
    counter: Option<Counter>,
    meter: DeviceMeter,
    /// The time of the first reading.
    since: Instant,
    /// Departed packets: the kernel's counter, unwrapped.
    left: u64,
    /// Bytes and packets of recent departures, and the byte counter at the last reading.
    recent: [f64; 2],
    left_bytes: u64,
    /// The files of the driver's rings, as last listed.
    rings: Vec<PathBuf>,
    /// The queues of a Wi-Fi device.
    stations: Option<StationQueues>,
    looked_at: Instant,
}

/// The queues of this host's devices, in the network namespace of the thread that created this.
#[derive(Debug)]
pub(crate) struct DeviceQueues {
    /// `None` if the kernel reports no queues.
    kernel: Option<Route>,
    devices: HashMap<u32, Device>,
    /// The device by which packets for an address leave, and when it was looked up.
    routes: HashMap<IpAddr, (Instant, Option<u32>)>,
    forgot_at: Option<Instant>,
    silent: HashSet<Option<u32>>,
}

impl DeviceQueues {
    pub(crate) fn new() -> Self {
        Self {
            kernel: Route::open_nonblocking().ok(),
            devices: HashMap::new(),
            routes: HashMap::new(),
            forgot_at: None,
            silent: HashSet::new(),
        }
    }

    /// The name of the device by which a path leaves.
    pub(crate) fn interface(&mut self, now: Instant, path: PathKey) -> Option<String> {
        name_of(self.device_of(now, path)?)
    }

    fn device_of(&mut self, now: Instant, path: PathKey) -> Option<u32> {
        let to = match path {
            PathKey::Device(device) => return Some(device),
            PathKey::Route(to) => to,
        };
        if let Some((at, device)) = self.routes.get(&to)
            && now.saturating_duration_since(*at) < ROUTE
        {
            return *device;
        }
        let device = self.kernel.as_mut().and_then(|kernel| kernel.output_device(to).ok());
        if self.routes.len() >= MAX_KNOWN {
            self.routes.clear();
        }
        self.routes.insert(to, (now, device));
        device
    }

    /// Requests the discipline's counters; the kernel answers at once.
    fn discipline(&mut self, device: u32) -> Option<QueueCounters> {
        QueueCounters::of(&self.kernel.as_mut()?.root_qdisc(device).ok()?)
    }

    /// Removes devices whose queues were not requested recently.
    fn forget(&mut self, now: Instant) {
        let since = |at| now.saturating_duration_since(at);
        if self.forgot_at.is_none_or(|at| since(at) >= ROUTE) {
            self.forgot_at = Some(now);
            self.devices.retain(|_, device| since(device.read_at) < FORGET);
        }
    }

    /// The device queue of this path's packets; `None` if it cannot be read.
    pub(crate) fn queue(&mut self, now: Instant, path: PathKey) -> Option<Seen> {
        let index = self.device_of(now, path);
        let known = index.and_then(|index| self.devices.get(&index));
        if let Some(device) = known
            && now.saturating_duration_since(device.read_at) < FRESH
        {
            return device.seen;
        }
        self.forget(now);
        let counters = index.and_then(|index| self.discipline(index));
        let device = index.map(|index| {
            self.devices.entry(index).or_insert_with(|| Device {
                read_at: now,
                seen: None,
                counter: None,
                meter: DeviceMeter::default(),
                since: now,
                left: 0,
                recent: [0.0; 2],
                left_bytes: counters.map_or(0, |counters| counters.left_bytes),
                rings: rings(Path::new(SYSFS), index),
                stations: StationQueues::open(index),
                looked_at: now,
            })
        });
        let mut is_known = true;
        let seen = device.and_then(|device| {
            device.read_at = now;
            // A driver sets its limit with its first packets.
            if let Some(index) = index
                && now.saturating_duration_since(device.looked_at) >= ROUTE
            {
                (device.rings, device.looked_at) = (rings(Path::new(SYSFS), index), now);
                if device.stations.is_none() {
                    device.stations = StationQueues::open(index);
                }
            }
            let stations = device.stations.as_ref();
            let stations = stations.map_or(Stations::Absent, |stations| stations.look(now));
            is_known = stations != Stations::Unknown;
            device.look(now, counters, stations)
        });
        if seen.is_none()
            && is_known
            && !self.silent.contains(&index)
            && let Some(name) = index.and_then(name_of)
            && self.silent.insert(index)
        {
            tracing::warn!(
                "the queue of {name} is not seen (noqueue, no byte queue limits, no queues by \
                 nl80211); its round trip alone counts"
            );
        }
        seen
    }
}

impl Device {
    /// The present state of its queue; for a Wi-Fi device, that of the newest answer.
    fn look(
        &mut self,
        now: Instant,
        counters: Option<QueueCounters>,
        stations: Stations,
    ) -> Option<Seen> {
        // An answer counts once.
        if let (Stations::Queues(at, _), Some(seen)) = (stations, self.seen)
            && seen.at == at
            && counters.is_some()
        {
            return self.seen;
        }
        self.seen = counters.and_then(|counters| self.measure(now, counters, stations));
        self.seen
    }

    fn measure(
        &mut self,
        now: Instant,
        counters: QueueCounters,
        stations: Stations,
    ) -> Option<Seen> {
        let (at, counters, counter, by) = match stations {
            Stations::Queues(at, behind) => {
                (at, counters.followed_by(&behind), Counter::Stations, Some(SeenBy::Stations))
            }
            Stations::Unknown => return None,
            Stations::Absent => (now, counters, Counter::Discipline, self.seen_by(counters)),
        };
        let before = self.counter.replace(counter);
        let by = by?;
        let queue = if before.is_some_and(|before| before != counter) {
            self.restart(counters)
        } else {
            self.update(at, counters)
        };
        Some(Seen { at, queue, by })
    }

    /// The means by which a device with this discipline is read.
    fn seen_by(&self, counters: QueueCounters) -> Option<SeenBy> {
        match (counters.is_noqueue, self.rings.is_empty()) {
            (true, true) => None,
            (true, false) => Some(SeenBy::Rings),
            (false, true) => Some(SeenBy::Discipline),
            (false, false) => Some(SeenBy::DisciplineAndRings),
        }
    }

    fn update(&mut self, now: Instant, counters: QueueCounters) -> DeviceQueue {
        let bytes: u64 = self.rings.iter().filter_map(|ring| read_number(ring)).sum();
        let packets = u64::from(counters.left.wrapping_sub(self.left as u32));
        if packets > MAX_DEPARTURES && self.left > 0 {
            return self.restart(counters);
        }
        let mean = self.mean_size(counters, packets);
        let in_rings = (bytes as f64 / mean).ceil() as u64;
        let queued = counters.queued.max((counters.queued_bytes as f64 / mean).ceil() as u64);
        self.left += packets;
        let at = Time::ZERO + Span::from(now.saturating_duration_since(self.since));
        // Packets in the rings have not left the device.
        self.meter.look(at, queued + in_rings, self.left.saturating_sub(in_rings));
        self.meter.queue()
    }

    /// The counters have restarted: the departures until now are unknown.
    fn restart(&mut self, counters: QueueCounters) -> DeviceQueue {
        (self.left, self.left_bytes) = (counters.left.into(), counters.left_bytes);
        self.meter.forget_departures();
        DeviceQueue { packets: counters.queued, ..self.meter.queue() }
    }
}

impl Device {
    /// The mean size of recently departed packets, in bytes; `packets` have left since the last
    /// reading.
    fn mean_size(&mut self, counters: QueueCounters, packets: u64) -> f64 {
        let bytes = counters
            .left_bytes
            .wrapping_sub(std::mem::replace(&mut self.left_bytes, counters.left_bytes));
        // The first reading counts from the start of the device, and one at another discipline
        // counts nothing.
        if self.left > 0 && bytes < packets.saturating_mul(1 << 17) {
            let [all_bytes, all_packets] = &mut self.recent;
            *all_bytes += bytes as f64;
            *all_packets += packets as f64;
            if *all_packets > RECENT {
                *all_bytes *= RECENT / *all_packets;
                *all_packets = RECENT;
            }
        }
        let [bytes, packets] = self.recent;
        if packets > 0.0 { (bytes / packets).max(1.0) } else { PACKET as f64 }
    }
}

/// The files in which a driver reports the number of bytes in its rings; `sysfs` has a folder for
/// each device.
fn rings(sysfs: &Path, device: u32) -> Vec<PathBuf> {
    name_of(device).map_or_else(Vec::new, |name| rings_of(&sysfs.join(name)))
}

fn name_of(device: u32) -> Option<String> {
    let name = if_indextoname(device).ok()?.into_string().ok()?;
    // A device that has just been removed has an empty name.
    (!name.is_empty()).then_some(name)
}

fn rings_of(device: &Path) -> Vec<PathBuf> {
    let queues = fs::read_dir(device.join("queues")).into_iter().flatten();
    let rings = queues.flatten().map(|queue| queue.path().join("byte_queue_limits"));
    // Drivers without BQL have the folder nevertheless, with a limit that is never set.
    rings
        .filter(|ring| read_number(&ring.join("limit")).is_some_and(|limit| limit > 0))
        .map(|ring| ring.join("inflight"))
        .collect()
}

fn read_number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use nix::net::if_::if_nametoindex;

    use super::*;
    use crate::clock::Clock;

    fn now() -> Instant {
        let clock = Clock::new();
        clock.instant_of(clock.now())
    }

    #[test]
    fn packets_to_this_host_leave_by_loopback_which_has_no_queue() {
        let mut queues = DeviceQueues::new();
        let lo = if_nametoindex("lo").unwrap();
        let to = |address: &str| address.parse().unwrap();
        for path in [
            PathKey::new(None, to("127.0.0.1:9")),
            PathKey::new(None, to("[::ffff:127.0.0.1]:9")),
            PathKey::new(Some(lo), to("192.0.2.1:9")),
        ] {
            assert_eq!(queues.interface(now(), path).as_deref(), Some("lo"));
            assert_eq!(queues.queue(now(), path), None);
        }
        let gone = PathKey::Device(i32::MAX as u32);
        assert_eq!((queues.interface(now(), gone), queues.queue(now(), gone)), (None, None));
    }

    /// Packets of 1500 bytes, none of them a super-packet.
    fn counters_of(queued: u64, left: u32) -> QueueCounters {
        let (queued_bytes, left_bytes) = (queued * PACKET, u64::from(left) * PACKET);
        QueueCounters { queued, queued_bytes, left, left_bytes, is_noqueue: false }
    }

    fn device_with(rings: Vec<PathBuf>, at: Instant) -> Device {
        let meter = DeviceMeter::default();
        Device {
            read_at: at,
            seen: None,
            counter: None,
            meter,
            since: at,
            left: 0,
            recent: [0.0; 2],
            left_bytes: 0,
            rings,
            stations: None,
            looked_at: at,
        }
    }

    #[test]
    fn packets_that_left_make_the_rate() {
        let at = now();
        let mut device = device_with(Vec::new(), at);
        let counters = |queued, left| counters_of(queued, left);
        let first = device.update(at, counters(3, u32::MAX));
        assert_eq!(first, DeviceQueue { packets: 3, rate: 0.0 });
        // The counter wraps.
        let later = device.update(at + Duration::from_millis(100), counters(1, 99));
        assert_eq!(later, DeviceQueue { packets: 1, rate: 1000.0 });
        // Too early for another rate.
        let soon = device.update(at + Duration::from_millis(101), counters(0, 99));
        assert_eq!(soon, DeviceQueue { packets: 0, rate: 1000.0 });
        // It has hardly any load for a second, and keeps its rate.
        let idle = device.update(at + Duration::from_millis(1_101), counters(2, 104));
        assert_eq!(idle, DeviceQueue { packets: 2, rate: 1000.0 });
    }

    #[test]
    fn a_device_without_a_queue_is_not_seen() {
        let at = now();
        let mut device = device_with(Vec::new(), at);
        let noqueue = QueueCounters { is_noqueue: true, ..counters_of(0, 9) };
        assert_eq!(device.look(at, Some(noqueue), Stations::Absent), None);
        let seen = device.look(at, Some(counters_of(3, 9)), Stations::Absent).unwrap();
        assert_eq!((seen.by, seen.queue.packets), (SeenBy::Discipline, 3));
        // The kernel does not answer, or not for the stations: the last reading is invalid.
        for (counters, stations) in
            [(None, Stations::Absent), (Some(counters_of(3, 9)), Stations::Unknown)]
        {
            device.seen = Some(seen);
            assert_eq!(device.look(at, counters, stations), None);
            assert_eq!(device.seen, None);
        }
    }

    #[test]
    fn counters_of_stations_and_discipline_are_not_mixed() {
        let start = now();
        let mut device = device_with(Vec::new(), start);
        // The discipline has passed far more packets than the queues of a station that joined late.
        let mut look = |ms, of_discipline, of_stations: Option<QueueCounters>| {
            let at = start + Duration::from_millis(ms);
            let stations =
                of_stations.map_or(Stations::Absent, |counters| Stations::Queues(at, counters));
            device.look(at, Some(counters_of(0, of_discipline)), stations).unwrap()
        };
        look(0, 1_000_000, Some(counters_of(5, 100)));
        let seen = look(100, 1_000_100, Some(counters_of(5, 200)));
        assert_eq!((seen.by, seen.queue.rate), (SeenBy::Stations, 1000.0));
        let gone = look(200, 1_000_100, None);
        assert_eq!((gone.by, gone.queue.rate), (SeenBy::Discipline, 1000.0));
        look(300, 1_000_200, None);
        let again = look(400, 1_000_300, Some(counters_of(5, 2_000_000)));
        assert_eq!((again.by, again.queue.rate), (SeenBy::Stations, 1000.0));
        look(500, 1_000_300, Some(counters_of(5, 2_000_050)));
        let later = look(600, 1_000_300, Some(counters_of(5, 2_000_100)));
        assert_eq!((later.queue.packets, later.queue.rate), (5, 500.0));
    }

    #[test]
    fn a_device_that_is_not_asked_for_is_forgotten() {
        let mut queues = DeviceQueues::new();
        let at = now();
        let path = PathKey::new(None, "127.0.0.1:9".parse().unwrap());
        let lo = if_nametoindex("lo").unwrap();
        queues.devices.insert(u32::MAX, device_with(Vec::new(), at));
        queues.queue(at, path);
        for (after, are_there) in [(FORGET - ROUTE, [true, true]), (FORGET, [false, true])] {
            queues.queue(at + after, path);
            assert_eq!([u32::MAX, lo].map(|index| queues.devices.contains_key(&index)), are_there);
        }
    }

    #[test]
    fn a_counter_that_starts_anew_is_no_departure() {
        let at = now();
        let mut device = device_with(Vec::new(), at);
        device.update(at, counters_of(3, 5_000));
        let rate = device.update(at + Duration::from_millis(100), counters_of(3, 5_100)).rate;
        assert_eq!(rate, 1000.0);
        let anew = device.update(at + Duration::from_millis(200), counters_of(4, 50));
        assert_eq!(anew, DeviceQueue { packets: 4, rate: 1000.0 });
        device.update(at + Duration::from_millis(210), counters_of(4, 55));
        let later = device.update(at + Duration::from_millis(220), counters_of(4, 60));
        assert_eq!(later, DeviceQueue { packets: 4, rate: 500.0 });
    }

    #[test]
    fn super_packets_are_as_many_as_their_segments() {
        let at = now();
        let mut device = device_with(Vec::new(), at);
        let mut look = |ms, queued, segments: u64, left: u32| {
            let (queued_bytes, left_bytes) = (segments * 1514, u64::from(left) * 1514);
            let counters =
                QueueCounters { queued, queued_bytes, left, left_bytes, is_noqueue: false };
            device.update(at + Duration::from_millis(ms), counters).packets
        };
        // No packet has left yet: packets of 1500 bytes are assumed.
        assert_eq!(look(0, 7, 26, 10), 27);
        // Seven with 26 segments; and then segments only.
        assert_eq!(look(10, 7, 26, 40), 26);
        assert_eq!(look(20, 5, 5, 60), 5);
    }

    #[test]
    fn what_is_in_a_ring_has_not_left() {
        let ring = tempfile::NamedTempFile::new().unwrap();
        let at = now();
        let mut device = device_with(vec![ring.path().to_owned()], at);
        // The discipline passes all its packets to the ring; two of three leave the device in 10
        // ms.
        let mut look = |ms, in_ring: u64, queued, left| {
            fs::write(ring.path(), format!("{}\n", in_ring * PACKET)).unwrap();
            let counters = counters_of(queued, left);
            device.update(at + Duration::from_millis(ms), counters)
        };
        look(0, 0, 3, 10);
        let gone = look(10, 1, 0, 13);
        assert_eq!(gone, DeviceQueue { packets: 1, rate: 200.0 });
    }

    #[test]
    fn rings_are_read_where_a_driver_tells_of_them() {
        let sysfs = tempfile::tempdir().unwrap();
        let device = sysfs.path().join("eth0");
        // A receive queue; a driver that never sets its limit; two that report; and an invalid
        // entry.
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
        let files = rings_of(&device);
        assert_eq!(files.len(), 2);
        let at = now();
        let mut device = device_with(files, at);
        // Two packets are queued, and 4501 bytes are some four more; also without a discipline.
        for (is_noqueue, by) in [(false, SeenBy::DisciplineAndRings), (true, SeenBy::Rings)] {
            let counters = QueueCounters { is_noqueue, ..counters_of(2, 0) };
            let seen = device.look(at, Some(counters), Stations::Absent).unwrap();
            assert_eq!((seen.queue.packets, seen.by), (6, by));
        }
        assert!(rings_of(&sysfs.path().join("eth1")).is_empty());
        assert!(rings(sysfs.path(), u32::MAX).is_empty());
    }
}
