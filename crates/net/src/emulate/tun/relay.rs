//! What the emulator does when it is awake: packets from device to path, from path to device.

use std::io::ErrorKind;

use freshline_core::link::{Delivered, Path, PathConfig, SpanHistogram};
use freshline_core::router::{Discipline, Drop};
use freshline_core::unit::Time;
use rand_pcg::Pcg64;

use super::super::seeded_path;
use super::capture::{CapturePoint, Captures, Way};
use super::{DirectionReport, RunError};
use crate::clock::Clock;
use crate::tun::{Device, IpPacket, Pool};

/// How many packets are delivered at once.
const BATCH: usize = 128;
/// How many packets and super-packets are read from a device before the poll has a turn.
const READS: usize = 16;

/// A path in one direction, and what is being delivered from it.
pub(super) struct Lane {
    way: Way,
    config: PathConfig,
    path: Path<Discipline<IpPacket>, IpPacket, Pcg64>,
    batch: Vec<IpPacket>,
    /// When each packet of the batch was due.
    due: Vec<Time>,
    /// How long after it was due a packet was delivered.
    lateness: SpanHistogram,
}

impl Lane {
    pub(super) fn new(
        way: Way,
        config: PathConfig,
        seed: u64,
        first_stream: u128,
    ) -> Result<Self, RunError> {
        let path = seeded_path(&config, seed, first_stream)
            .map_err(|source| RunError::Path { way, source })?;
        Ok(Self {
            way,
            config,
            path,
            batch: Vec::with_capacity(BATCH),
            due: Vec::with_capacity(BATCH),
            lateness: SpanHistogram::new(),
        })
    }
}

/// The devices, the paths between them, and the packets.
pub(super) struct Relay {
    clock: Clock,
    start: Time,
    /// The inner and the outer device: lane n leads from device n to the other one.
    devices: [Device; 2],
    lanes: [Lane; 2],
    /// Whether a device may have more to read. The poll tells of it once.
    is_readable: [bool; 2],
    pool: Pool,
    captures: Captures,
    device_errors: u64,
}

impl Relay {
    /// The lanes are the forward and the return path; the time of the paths begins at `start`.
    pub(super) fn new(
        devices: [Device; 2],
        lanes: [Lane; 2],
        pool: Pool,
        captures: Captures,
        start: Time,
    ) -> Self {
        Self {
            clock: Clock::new(),
            start,
            devices,
            lanes,
            is_readable: [true; 2],
            pool,
            captures,
            device_errors: 0,
        }
    }

    /// Notes that a device may have something to read.
    pub(super) fn wake(&mut self, device: usize) {
        self.is_readable[device] = true;
    }

    /// Delivers what is due and reads what has come, a bounded amount of each.
    pub(super) fn turn(&mut self) {
        for _ in 0..READS {
            for side in 0..self.lanes.len() {
                if self.is_readable[side] {
                    self.read(side);
                }
                self.deliver(side);
            }
            if !self.is_busy() {
                break;
            }
        }
    }

    /// Whether there is more to read at once.
    pub(super) fn is_busy(&self) -> bool {
        self.is_readable.contains(&true)
    }

    /// When to take the next turn at the latest.
    pub(super) fn next_event(&self) -> Option<Time> {
        self.lanes.iter().filter_map(|lane| lane.path.next_event()).min()
    }

    /// The time on the paths.
    pub(super) fn now(&self) -> Time {
        Time::ZERO + self.clock.now().since(self.start)
    }

    /// What the forward and the return path did.
    pub(super) fn report(&self) -> [DirectionReport; 2] {
        let now = self.now();
        self.lanes.each_ref().map(|lane| {
            DirectionReport::new(&lane.config, &lane.path, &lane.lateness, Time::ZERO, now)
        })
    }

    /// How many packets a device did not give or take.
    pub(super) fn device_errors(&self) -> u64 {
        self.device_errors
    }

    /// Completes the captures.
    pub(super) fn finish(self) -> Result<(), RunError> {
        self.captures.finish()
    }

    /// Puts the next (super-)packet of a device on its path.
    fn read(&mut self, side: usize) {
        let (clock, start) = (self.clock, self.start);
        let (lane, captures) = (&mut self.lanes[side], &mut self.captures);
        let mut now = None;
        let read = self.devices[side].read(&mut self.pool, |pool, packet| {
            // All packets of a super-packet come at the same time, after it was read: no packet
            // is delivered before it has taken its delay.
            let now = *now.get_or_insert_with(|| Time::ZERO + clock.now().since(start));
            lane.watch(now, pool, captures);
            captures.record(CapturePoint { way: lane.way, behind: 0 }, now, packet.bytes());
            lane.path.enqueue(now, packet, &mut |drop| pool.recycle(drop.packet));
        });
        match read {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_readable[side] = false,
            Err(error) => {
                self.device_errors += 1;
                // One that is no error of the system is of this packet; others may follow it.
                self.is_readable[side] = error.raw_os_error().is_none();
            }
        }
    }

    /// Gives the other device what has come out of a lane.
    fn deliver(&mut self, side: usize) {
        let to = 1 - side;
        loop {
            let now = self.now();
            let lane = &mut self.lanes[side];
            lane.collect(now, &mut self.pool, &mut self.captures);
            if lane.batch.is_empty() {
                return;
            }
            if self.devices[to].write(&mut lane.batch).is_err() {
                self.device_errors += 1;
            }
            let is_last = lane.batch.len() < BATCH;
            lane.batch.drain(..).for_each(|packet| self.pool.recycle(packet));
            let now = Time::ZERO + self.clock.now().since(self.start);
            for due in lane.due.drain(..) {
                lane.lateness.record(now.since(due));
            }
            if is_last {
                return;
            }
        }
    }
}

impl Lane {
    /// Fills the batch with what is due.
    fn collect(&mut self, now: Time, pool: &mut Pool, captures: &mut Captures) {
        self.watch(now, pool, captures);
        let last = CapturePoint { way: self.way, behind: self.path.hops().len() };
        while self.batch.len() < BATCH {
            let drops = &mut |drop: Drop<IpPacket>| pool.recycle(drop.packet);
            let Some(delivered) = self.path.poll(now, drops) else { break };
            captures.record(last, delivered.at, delivered.packet.bytes());
            self.due.push(delivered.at);
            self.batch.push(delivered.packet);
        }
    }

    /// Captures what passes from hop to hop until `now`.
    fn watch(&mut self, now: Time, pool: &mut Pool, captures: &mut Captures) {
        if captures.is_empty() {
            return;
        }
        let mut see = |hop: usize, delivered: &Delivered<IpPacket>| {
            let point = CapturePoint { way: self.way, behind: hop + 1 };
            captures.record(point, delivered.at, delivered.packet.bytes());
        };
        self.path.advance(now, &mut |drop| pool.recycle(drop.packet), &mut see);
    }
}
