//! Another program floods the device queue of one of two paths, in virtual time: Figure 2.13 of
//! Shreedhar's thesis (section 2.7.4).
//!
//! ```text
//!   writer, 5 Mbit/s ─► client ─► device 0, 9 Mbit/s ─► 10 ms each way
//!                             │   ▲ flood, 20 Mbit/s, for 2 s
//!                             └─► device 1, 6 Mbit/s ─► 40 ms
//! ```
//!
//! The delays differ more than in the thesis, so that each scheduler uses the first path before the
//! flood.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use freshline_core::path::{DeviceMeter, SchedulerConfig};
use freshline_core::unit::{Span, Time};
use noq_proto::{Dir, FourTuple, StreamId};

use super::Sending;
use super::paths::Queues;
use super::tests::{CLIENT, World, path_of};
use crate::via::{Seen, SeenBy};

/// Bytes that a queue holds: `tbf limit 150k`.
const LIMIT: usize = 150_000;

/// How long a reading of a queue is reused, as on a running kernel.
const FRESH: Duration = Duration::from_millis(1);

/// Ethernet, IPv4 and UDP headers of a datagram, in bytes.
const HEADERS: usize = 42;

/// Bytes that are written before the measurement.
const BULK: usize = 1_000_000;

const MS: Duration = Duration::from_millis(1);

/// A device of the client with a queue that is first in, first out.
#[derive(Debug)]
struct Device {
    /// In bytes per second.
    rate: f64,
    /// When each queued packet leaves, and its size.
    queued: VecDeque<(Instant, usize)>,
    queued_bytes: usize,
    left: u64,
    meter: DeviceMeter,
    seen: Option<Seen>,
    /// Bytes that the connection has given to the queue.
    given: usize,
}

impl Device {
    fn new(mbps: f64) -> Self {
        Self {
            rate: mbps * 1e6 / 8.0,
            queued: VecDeque::new(),
            queued_bytes: 0,
            left: 0,
            meter: DeviceMeter::default(),
            seen: None,
            given: 0,
        }
    }

    fn serve(&mut self, now: Instant) {
        while let Some((_, size)) = self.queued.pop_front_if(|(at, _)| *at <= now) {
            self.queued_bytes -= size;
            self.left += 1;
        }
    }

    /// When a packet leaves; `None` where the queue is full.
    fn push(&mut self, now: Instant, size: usize) -> Option<Instant> {
        self.serve(now);
        if self.queued_bytes + size > LIMIT {
            return None;
        }
        let free_at = self.queued.back().map_or(now, |(at, _)| *at);
        let leaves_at = free_at + Duration::from_secs_f64(size as f64 / self.rate);
        self.queued.push_back((leaves_at, size));
        self.queued_bytes += size;
        Some(leaves_at)
    }

    fn look(&mut self, now: Instant, origin: Instant) -> Seen {
        if let Some(seen) = self.seen.filter(|seen| now.saturating_duration_since(seen.at) < FRESH)
        {
            return seen;
        }
        self.serve(now);
        let at = Time::ZERO + Span::from(now.saturating_duration_since(origin));
        self.meter.look(at, self.queued.len() as u64, self.left);
        *self.seen.insert(Seen { at: now, queue: self.meter.queue(), by: SeenBy::Discipline })
    }
}

/// The devices of the client's two paths.
#[derive(Debug)]
pub(super) struct Devices {
    all: [Device; 2],
    /// Whether the client can see into the queues.
    are_visible: bool,
    /// The fraction of datagrams that the paths lose at random behind the devices.
    pub(super) loss: f64,
    random: u64,
    origin: Instant,
}

impl Devices {
    pub(super) fn new(mbps: [f64; 2], are_visible: bool, origin: Instant) -> Self {
        Self { all: mbps.map(Device::new), are_visible, loss: 0.0, random: 7, origin }
    }

    /// When a datagram of the connection leaves by a path; `None` where it is dropped.
    pub(super) fn pass(&mut self, now: Instant, path: usize, size: usize) -> Option<Instant> {
        self.all[path].given += size + HEADERS;
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let draw = (self.random >> 33) as f64 / (1u64 << 31) as f64;
        self.all[path].push(now, size + HEADERS).filter(|_| draw >= self.loss)
    }
}

impl Queues for Devices {
    fn queue(&mut self, now: Instant, path: FourTuple) -> Option<Seen> {
        self.are_visible.then(|| self.all[path_of(path)].look(now, self.origin))
    }
}

/// A client that uploads pictures through its devices.
struct Upload {
    world: World,
    stream: StreamId,
    /// Since the connection was made.
    elapsed: Duration,
}

impl Upload {
    /// Both windows have grown by a bulk of 1 MB, and the round-trip times have settled since.
    fn new(scheduler: SchedulerConfig, are_visible: bool) -> Self {
        let sending = Sending { scheduler, coupling: None, ..Sending::default() };
        let build = || sending.scheduler.build().unwrap();
        let mut world = World::paths(2, build(), build(), sending);
        world.delays = [10, 40].map(Duration::from_millis);
        world.devices = Some(Devices::new([9.0, 6.0], are_visible, world.now));
        let stream = world.link(CLIENT).connection.streams().open(Dir::Bi).unwrap();
        let mut upload = Self { world, stream, elapsed: Duration::ZERO };
        let mut left = BULK;
        while left > 0 {
            left -= upload.write(left.min(20_000));
            upload.run(MS);
        }
        upload.pictures(Duration::from_secs(3), 0.0);
        upload
    }

    fn write(&mut self, bytes: usize) -> usize {
        let link = self.world.link(CLIENT);
        let taken = link.connection.send_stream(self.stream).write(&vec![7; bytes]).unwrap_or(0);
        link.paths.on_written(taken as u64);
        taken
    }

    fn run(&mut self, span: Duration) {
        self.world.run(span);
        self.world.drain(self.stream);
        self.elapsed += span;
    }

    /// Writes 5 kB every 8 ms for `span`, while other packets enter the first device at `flood`
    /// Mbit/s. Returns the rate given to each device, in Mbit/s.
    fn pictures(&mut self, span: Duration, flood: f64) -> [f64; 2] {
        let given = |upload: &mut Self| {
            upload.world.devices.as_ref().unwrap().all.each_ref().map(|device| device.given)
        };
        let (before, began_at, mut flooded) = (given(self), self.elapsed, 0.0);
        while self.elapsed - began_at < span {
            if self.elapsed.as_millis().is_multiple_of(8) {
                self.write(5_000);
            }
            flooded += flood * 1e6 / 8.0 * MS.as_secs_f64();
            while flooded >= 1442.0 {
                let now = self.world.now;
                let _ = self.world.devices.as_mut().unwrap().all[0].push(now, 1442);
                flooded -= 1442.0;
            }
            self.run(MS);
        }
        let after = given(self);
        [0, 1].map(|at| (after[at] - before[at]) as f64 * 8e-6 / span.as_secs_f64())
    }
}

/// The rate that a scheduler gives to the flooded path in the first 100 ms of the flood and in all
/// 2 s of it, as fractions of the rate before the flood.
fn parts(scheduler: SchedulerConfig, are_visible: bool) -> [f64; 2] {
    let mut upload = Upload::new(scheduler, are_visible);
    let [before, _] = upload.pictures(Duration::from_secs(1), 0.0);
    let [first, _] = upload.pictures(100 * MS, 20.0);
    let [rest, _] = upload.pictures(1_900 * MS, 20.0);
    let name = scheduler.name();
    println!("{name}, seen: {are_visible} | {before:.2} Mbit/s, then {first:.2}, then {rest:.2}");
    assert!(before > 2.0, "{name}: the first path is hardly used: {before} Mbit/s");
    [first, 0.05 * first + 0.95 * rest].map(|rate| rate / before)
}

#[test]
fn qaware_leaves_a_flooded_device_at_once_where_round_trips_tell_too_late() {
    let of = |name: &str, are_visible| parts(name.parse().unwrap(), are_visible);
    let [first, all] = of("qaware", true);
    assert!(first < 0.1 && all < 0.04, "{first:.3} of the rate before, in all {all:.3}");
    // The queue length makes the difference: by round trips, the first acks come too late, as for
    // `min_srtt`.
    for [first, all] in [of("qaware", false), of("min_srtt", true)] {
        assert!(first > 0.5 && all > 0.04, "{first:.3} of the rate before, in all {all:.3}");
    }
}
