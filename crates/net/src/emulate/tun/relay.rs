//! The turns of the emulator: moves packets from device to device.

use std::io::ErrorKind;

use freshline_core::link::{
    Airborne, Conditions, ConditionsConfig, Delivered, Direction, Passage, SpanHistogram,
};
use freshline_core::router::{Drop, Packet};
use freshline_core::unit::Time;

use super::super::air::AirCapture;
use super::super::frames::FrameLog;
use super::capture::{CapturePoint, Captures};
use super::{CellReport, DirectionReport, RunError};
use crate::clock::Clock;
use crate::tun::{Device, IpPacket, Pool};

/// The maximum number of packets per delivery; a super-packet may exceed it.
const BATCH: u64 = 128;
/// How many packets and super-packets to read from a device before polling again.
const READS: usize = 16;

/// The command is the only client.
impl Airborne for IpPacket {
    fn station(&self) -> u32 {
        1
    }
}

/// A delivery in progress at one end.
#[derive(Default)]
struct Delivery {
    batch: Vec<IpPacket>,
    /// The number of packets of the batch, as counted on the wire.
    packets: u64,
    /// When each packet of the batch was due.
    due: Vec<Time>,
    /// How long after its due time each packet was delivered.
    lateness: SpanHistogram,
}

/// The devices, the conditions between them, and the packets.
pub(super) struct Relay {
    clock: Clock,
    start: Time,
    /// The inner and the outer device: direction n leads from device n to the other one.
    devices: [Device; 2],
    config: ConditionsConfig,
    conditions: Conditions<IpPacket>,
    /// By direction: whether super-packets pass whole, because no hop treats packets one by one.
    is_whole: [bool; 2],
    /// By direction.
    deliveries: [Delivery; 2],
    /// Whether a device may have more to read. The poll reports it once.
    is_readable: [bool; 2],
    pool: Pool,
    records: Records,
    device_errors: u64,
}

/// The logs and captures of the packets.
pub(super) struct Records {
    pub(super) captures: Captures,
    pub(super) frames: Option<FrameLog>,
    pub(super) air: Option<AirCapture>,
}

impl Relay {
    /// `conditions` must match `config`; their time begins at `start`.
    pub(super) fn new(
        devices: [Device; 2],
        config: ConditionsConfig,
        conditions: Conditions<IpPacket>,
        pool: Pool,
        records: Records,
        start: Time,
    ) -> Self {
        let is_whole = Direction::ALL.map(|direction| {
            config.keeps_together(direction) && !records.captures.watches(direction)
        });
        Self {
            clock: Clock::new(),
            start,
            devices,
            config,
            conditions,
            is_whole,
            deliveries: Default::default(),
            is_readable: [true; 2],
            pool,
            records,
            device_errors: 0,
        }
    }

    /// Notes that a device may be readable.
    pub(super) fn wake(&mut self, device: usize) {
        self.is_readable[device] = true;
    }

    /// Delivers due packets and reads arrived ones, a bounded number of each.
    pub(super) fn turn(&mut self) {
        for _ in 0..READS {
            for direction in Direction::ALL {
                if self.is_readable[direction as usize] {
                    self.read(direction);
                }
                self.deliver(direction);
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
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.conditions.poll_timeout()
    }

    /// The time on the paths.
    pub(super) fn now(&self) -> Time {
        Time::ZERO + self.clock.now().since(self.start)
    }

    /// The reports of the forward and the reverse path.
    pub(super) fn report(&self) -> [DirectionReport; 2] {
        let now = self.now();
        Direction::ALL.map(|direction| {
            let lateness = &self.deliveries[direction as usize].lateness;
            let (config, conditions) = (&self.config, &self.conditions);
            DirectionReport::new(config, conditions, direction, lateness, Time::ZERO, now)
        })
    }

    /// The report of the cell, if there is one.
    pub(super) fn cell_report(&self) -> Option<CellReport> {
        CellReport::of(&self.config, &self.conditions, Time::ZERO, self.now())
    }

    /// The number of failed reads and writes of the devices.
    pub(super) fn device_errors(&self) -> u64 {
        self.device_errors
    }

    /// Completes the logs and captures.
    pub(super) fn finish(mut self) -> Result<(), RunError> {
        if let Some(frames) = &mut self.records.frames {
            frames.flush()?;
        }
        if let Some(air) = &mut self.records.air {
            air.flush()?;
        }
        self.records.captures.finish()
    }

    /// Puts the next (super-)packet of a device onto its path.
    fn read(&mut self, direction: Direction) {
        let (clock, start) = (self.clock, self.start);
        let Self { devices, conditions, records, pool, .. } = self;
        let mut now = None;
        let take = |pool: &mut Pool, packet: IpPacket| {
            // All packets of a super-packet arrive at the same time, after it was read: no packet
            // is delivered before its full delay.
            let now = *now.get_or_insert_with(|| Time::ZERO + clock.now().since(start));
            records.advance(now, conditions, pool);
            records.captures.record(CapturePoint { direction, behind: 0 }, now, packet.bytes());
            conditions.enqueue(now, direction, packet, &mut |drop| pool.recycle(drop.packet));
        };
        let device = &mut devices[direction as usize];
        let read = match self.is_whole[direction as usize] {
            true => device.read_whole(pool, take),
            false => device.read(pool, take),
        };
        let is_readable = &mut self.is_readable[direction as usize];
        match read {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => *is_readable = false,
            Err(error) => {
                self.device_errors += 1;
                // An error that does not come from the system concerns this packet; others may
                // follow it.
                *is_readable = error.raw_os_error().is_none();
            }
        }
    }

    /// Writes the packets that have reached the end of their path to the other device.
    fn deliver(&mut self, direction: Direction) {
        loop {
            self.collect(direction);
            let Delivery { batch, packets, due, lateness } =
                &mut self.deliveries[direction as usize];
            if batch.is_empty() {
                return;
            }
            // Behind Wi-Fi, the kernel gets datagrams one by one, as from the driver of a network
            // card, so that each has its own time. Packets that left a hop together are joined.
            let is_received = direction == Direction::Reverse && self.conditions.cell().is_some();
            let joins = |one: &IpPacket, other: &IpPacket| {
                !is_received || !one.is_datagram() && !other.is_datagram()
            };
            let device = &mut self.devices[1 - direction as usize];
            let failed = match self.is_whole[direction as usize] {
                true => batch.iter().filter(|packet| device.write_whole(packet).is_err()).count(),
                false => {
                    batch.chunk_by_mut(joins).filter_map(|run| device.write(run).err()).count()
                }
            };
            self.device_errors += failed as u64;
            let is_last = std::mem::take(packets) < BATCH;
            let now = Time::ZERO + self.clock.now().since(self.start);
            for (packet, due) in batch.drain(..).zip(due.drain(..)) {
                lateness.record_times(packet.packets().get(), now.since(due));
                self.pool.recycle(packet);
            }
            if is_last {
                return;
            }
        }
    }

    /// Fills the batch of `direction` with due packets.
    fn collect(&mut self, direction: Direction) {
        let now = self.now();
        let Self { conditions, records, pool, deliveries, .. } = self;
        records.advance(now, conditions, pool);
        let Delivery { batch, packets, due, .. } = &mut deliveries[direction as usize];
        // A packet that reaches the command over the air has left the last hop earlier.
        let behind = match (direction, conditions.cell()) {
            (Direction::Reverse, Some(_)) => None,
            _ => Some(conditions.path(direction).hops().len()),
        };
        while *packets < BATCH {
            let drops = &mut |drop: Drop<IpPacket>| pool.recycle(drop.packet);
            let Some(Delivered { at, packet }) = conditions.poll(now, direction, drops) else {
                break;
            };
            if let Some(behind) = behind {
                records.captures.record(CapturePoint { direction, behind }, at, packet.bytes());
            }
            due.push(at);
            *packets += packet.packets().get();
            batch.push(packet);
        }
    }
}

impl Records {
    /// Records the packets that pass from hop to hop and over the air until `now`.
    fn advance(&mut self, now: Time, conditions: &mut Conditions<IpPacket>, pool: &mut Pool) {
        if self.captures.is_empty() && self.frames.is_none() && self.air.is_none() {
            return;
        }
        let mut see = |passage: Passage<'_, IpPacket>| match passage {
            Passage::Hop(direction, hop, left) => {
                let point = CapturePoint { direction, behind: hop + 1 };
                self.captures.record(point, left.at, left.packet.bytes());
            }
            Passage::Air(arrival) => {
                if let Some(frames) = &mut self.frames {
                    frames.record(arrival);
                }
                if let Some(air) = &mut self.air {
                    air.record(arrival, arrival.packet.bytes());
                }
            }
        };
        conditions.advance(now, &mut |drop| pool.recycle(drop.packet), &mut see);
    }
}
