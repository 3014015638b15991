//! What waits in front of a path on this host: its device's queueing discipline, and what is behind it:
//! a ring where the driver tells, or the queues of a Wi-Fi device.
//!
//! ```text
//!                                                                     ┌─► ring (BQL, sysfs) ─► wire
//!   socket ─► queueing discipline (netlink: length, packets that left)┤
//!                                                                     └─► queues per station (nl80211) ─► air
//! ```
//!
//! One question and its answer take some microseconds; an answer is used for [`FRESH`]. The root
//! counts for all that is below it.
//!
//! # Where the paper is silent
//!
//! - **The dequeue rate** is that under load ([`DeviceMeter`]), of what has left discipline and ring.
//! - **Packets** are those on the wire: a super-packet (TSO, GSO) of the discipline counts as its
//!   segments, as it does among those that left. There are as many as the queued bytes are packets
//!   of the mean size of those that left of late, or of [`PACKET`] bytes before any has.
//! - **BQL counts bytes**, and is read in the same way.
//! - **Wi-Fi devices** of mac80211 have `noqueue` at the root and queues of their own behind it
//!   ([`StationQueues`]); both are added, and what left is what left the latter.
//! - **A counter that starts anew** (a station that joins again, another discipline) is no departure,
//!   and neither is the difference between the counters of the discipline and of the stations.
//! - **A device without a queue** (`noqueue`, no BQL, not Wi-Fi) cannot be seen into; that is said
//!   once, and the scheduler goes by the round trip alone.

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

/// How long it is known which device a path leaves by.
const ROUTE: Duration = Duration::from_secs(1);

/// A device whose queue was not asked for in this time is forgotten, and its thread ends.
const FORGET: Duration = Duration::from_secs(60);

/// Where the kernel tells of its devices.
const SYSFS: &str = "/sys/class/net";

/// Bytes of a packet while none has been seen.
const PACKET: u64 = 1500;

/// The mean size of packets is that of so many that left.
const RECENT: f64 = 200.0;

/// No device sends more packets between two looks: more is a counter that went back.
const MAX_DEPARTURES: u64 = 1 << 31;

/// Paths of which it is known where they leave, at most; then they are looked up anew.
const MAX_KNOWN: usize = 1024;

/// What a device's queue was when it was looked at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) queue: DeviceQueue,
    pub(crate) by: SeenBy,
}

/// Which queue's departures count as the device's.
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
    /// Which counter `left` is of; `None` before the first look.
    counter: Option<Counter>,
    meter: DeviceMeter,
    /// When it was looked at first.
    since: Instant,
    /// Packets that have left: the kernel's counter, without its wrapping.
    left: u64,
    /// Bytes and packets that left of late, and the counter of bytes as of the last look.
    recent: [f64; 2],
    left_bytes: u64,
    /// Where the driver tells of its rings, as of a moment.
    rings: Vec<PathBuf>,
    /// The queues of a Wi-Fi device.
    stations: Option<StationQueues>,
    looked_at: Instant,
}

/// The queues of this host's devices, in the network namespace of the thread that made this.
#[derive(Debug)]
pub(crate) struct DeviceQueues {
    /// `None` where the kernel does not report any queues.
    kernel: Option<Route>,
    devices: HashMap<u32, Device>,
    /// By which device packets leave for an address, and since when that is known.
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

    /// The kernel answers at once.
    fn discipline(&mut self, device: u32) -> Option<QueueCounters> {
        QueueCounters::of(&self.kernel.as_mut()?.root_qdisc(device).ok()?)
    }

    /// Forgets devices that were not asked for lately.
    fn forget(&mut self, now: Instant) {
        let since = |at| now.saturating_duration_since(at);
        if self.forgot_at.is_none_or(|at| since(at) >= ROUTE) {
            self.forgot_at = Some(now);
            self.devices.retain(|_, device| since(device.read_at) < FORGET);
        }
    }

    /// The device queue that packets of this path are in; `None` where it is not visible.
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
    /// Its queue as of now; that of a Wi-Fi device as of the newest answer.
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

    /// By which means a device with this discipline is seen.
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
        // What is in the rings has not left the device.
        self.meter.look(at, queued + in_rings, self.left.saturating_sub(in_rings));
        self.meter.queue()
    }

    /// The counters have started anew: what left until now is not known.
    fn restart(&mut self, counters: QueueCounters) -> DeviceQueue {
        (self.left, self.left_bytes) = (counters.left.into(), counters.left_bytes);
        self.meter.forget_departures();
        DeviceQueue { packets: counters.queued, ..self.meter.queue() }
    }
}

impl Device {
    /// The mean size of the packets that left of late, in bytes; `packets` have since the last look.
    fn mean_size(&mut self, counters: QueueCounters, packets: u64) -> f64 {
        let bytes = counters
            .left_bytes
            .wrapping_sub(std::mem::replace(&mut self.left_bytes, counters.left_bytes));
        // The first look counts from the start of the device, and one at another discipline nothing.
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
        // Too soon for another rate.
        let soon = device.update(at + Duration::from_millis(101), counters(0, 99));
        assert_eq!(soon, DeviceQueue { packets: 0, rate: 1000.0 });
        // It has next to nothing to do for a second, and is as fast as before.
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
        // The kernel does not answer, or not for the stations: what was seen no longer holds.
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
        // The discipline has let far more packets pass than the queues of a station that came late.
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
        // Nothing has left yet: packets of 1500 bytes.
        assert_eq!(look(0, 7, 26, 10), 27);
        // Seven with 26 segments; and then segments alone.
        assert_eq!(look(10, 7, 26, 40), 26);
        assert_eq!(look(20, 5, 5, 60), 5);
    }

    #[test]
    fn what_is_in_a_ring_has_not_left() {
        let ring = tempfile::NamedTempFile::new().unwrap();
        let at = now();
        let mut device = device_with(vec![ring.path().to_owned()], at);
        // The discipline gives the ring all that it has; two of three leave the device in 10 ms.
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
        let files = rings_of(&device);
        assert_eq!(files.len(), 2);
        let at = now();
        let mut device = device_with(files, at);
        // Two packets wait, and 4501 bytes are some four more; also without a discipline.
        for (is_noqueue, by) in [(false, SeenBy::DisciplineAndRings), (true, SeenBy::Rings)] {
            let counters = QueueCounters { is_noqueue, ..counters_of(2, 0) };
            let seen = device.look(at, Some(counters), Stations::Absent).unwrap();
            assert_eq!((seen.queue.packets, seen.by), (6, by));
        }
        assert!(rings_of(&sysfs.path().join("eth1")).is_empty());
        assert!(rings(sysfs.path(), u32::MAX).is_empty());
    }
}
