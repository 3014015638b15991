//! The sender of a subflow: a TCP sender, and the ranges of the whole stream that it carries.

use std::collections::VecDeque;

use freshline_core::path::{DeviceMeter, PathId, PathState};
use freshline_core::unit::{Bytes, Packets, Span, Time};

use super::{Carried, Mapping};
use crate::tcp::segment::{Block, Segment};
use crate::tcp::{Sender, SenderStats, SmallQueue};

/// The interval at which a throttled subflow polls a device of unknown rate.
const NEXT_LOOK: Span = Span::from_micros(100);

/// The packets of a subflow in the queue of its device, which serves packets in order.
#[derive(Debug, Default)]
struct OwnPackets {
    /// For each packet, the device's count of departed packets once it has left, and its memory.
    held: VecDeque<(u64, Bytes)>,
    looked_at: Time,
    /// The number of packets that have left the device.
    left: u64,
}

/// A subflow of a connection.
#[derive(Debug)]
pub struct Subflow {
    sender: Sender,
    id: PathId,
    /// Mappings of data not acknowledged on this subflow, in its order.
    mappings: VecDeque<Mapping>,
    device: DeviceMeter,
    /// With TCP small queues: its packets in its device's queue.
    own: OwnPackets,
    /// A timeout has expired, and nothing was acknowledged since.
    has_failed: bool,
    /// When it last had the windows of other subflows halved.
    pub(super) penalised_at: Option<Time>,
}

impl Subflow {
    /// A subflow that is not connected.
    pub(super) fn new(sender: Sender, id: PathId) -> Self {
        Self {
            sender,
            id,
            mappings: VecDeque::new(),
            device: DeviceMeter::default(),
            own: OwnPackets::default(),
            has_failed: false,
            penalised_at: None,
        }
    }

    /// Its TCP sender.
    pub const fn sender(&self) -> &Sender {
        &self.sender
    }

    pub(super) const fn sender_mut(&mut self) -> &mut Sender {
        &mut self.sender
    }

    /// The path that it takes.
    pub const fn id(&self) -> PathId {
        self.id
    }

    /// The measurements of its device.
    pub const fn device(&self) -> &DeviceMeter {
        &self.device
    }

    /// Its device holds this number of packets now, and `left` have left it since its start.
    pub(super) fn look(&mut self, now: Time, packets: u64, left: u64) {
        self.device.look(now, packets, left);
        let Self { sender, own, .. } = self;
        (own.looked_at, own.left) = (now, left);
        // A packet that the full queue dropped has left no later than the last of the others.
        while let Some((leaves_at, memory)) = own.held.front().copied()
            && (leaves_at <= left || packets == 0)
        {
            own.held.pop_front();
            sender.on_left_host(memory);
        }
    }

    /// Whether it may be given data: open, alive, and without unsent data of its own, so that a
    /// segment never spans two mappings.
    pub(super) fn is_usable(&self) -> bool {
        self.is_alive() && !self.is_throttled()
    }

    /// Open, and no timeout has expired since the last ack.
    pub(super) fn is_alive(&self) -> bool {
        self.sender.is_open() && !self.has_failed
    }

    /// Whether TCP small queues hold back a segment that it was given.
    pub(super) fn is_throttled(&self) -> bool {
        self.sender.not_sent() > Bytes::ZERO
    }

    /// The time of its next event. While throttled, it polls its device after the transmission time
    /// of a packet.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let queue = self.device.queue();
        let packet = queue.wait().map_or(NEXT_LOOK, |wait| wait / queue.packets.max(1));
        let is_waiting = !self.own.held.is_empty() && self.is_throttled();
        let looks_at = is_waiting.then(|| self.own.looked_at + packet.max(Span::from_micros(1)));
        Time::earliest([self.sender.poll_timeout(), looks_at])
    }

    /// Its state as seen by a scheduler. While throttled, it has no room.
    pub(super) fn state(&mut self, now: Time) -> PathState {
        let is_throttled = self.is_throttled();
        let unanswered = self.sender.oldest_sent_at().map(|at| now.since(at));
        let Self { sender, id, device, .. } = self;
        let segment = sender.segment_size();
        let in_bytes = |packets: f64| Bytes::new((packets * segment.get() as f64) as u64);
        let SenderStats { segments, retransmissions, .. } = *sender.stats();
        let cwnd = segment * sender.window().get();
        let inflight = segment * sender.outstanding().get();
        PathState {
            srtt: sender.srtt(),
            rttvar: sender.rtt_variation().unwrap_or_default(),
            min_rtt: sender.min_rtt(),
            one_way: None,
            unanswered,
            cwnd,
            inflight: if is_throttled { inflight.max(cwnd) } else { inflight },
            ssthresh: sender.law().ssthresh().filter(|packets| packets.is_finite()).map(in_bytes),
            pacing_rate: sender.law().pacing_rate().map(|rate| Bytes::new(rate.as_bps() / 8)),
            queue: Some(device.queue()),
            loss: retransmissions.get() as f64 / segments.get().max(1) as f64,
            is_backup: false,
            ..PathState::new(*id, segment)
        }
    }

    /// Gives it a segment of the whole stream.
    pub(super) fn carry(&mut self, data: Block) {
        let start = self.sender.written().get();
        let taken = self.sender.write(Bytes::new(data.end - data.start)).get();
        debug_assert_eq!(taken, data.end - data.start, "the buffer of a subflow has room");
        self.mappings.push_back(Mapping { start, data });
    }

    /// The next segment to send.
    pub(super) fn poll_transmit(&mut self, now: Time) -> Option<Carried> {
        self.sender.set_device_wait(self.device.queue().wait());
        let segment = self.sender.poll_transmit(now)?;
        if self.sender.small_queue().is_some() {
            let memory = SmallQueue::memory(Bytes::new(segment.len.into()));
            let leaves_at = self.own.left + self.device.queue().packets + 1;
            self.own.held.push_back((leaves_at, memory));
            self.sender.on_entered_host(memory);
        }
        let mapping = (segment.len > 0).then(|| self.mapping(segment.seq)).flatten();
        Some(Carried { segment, mapping, data_ack: None })
    }

    /// A segment of the receiver has arrived.
    pub(super) fn on_segment(&mut self, now: Time, segment: &Segment) {
        let before = self.sender.acknowledged();
        self.sender.on_segment(now, segment);
        let acked_to = self.sender.acknowledged();
        if acked_to > before {
            self.has_failed = false;
        }
        while self.mappings.front().is_some_and(|first| first.end() <= acked_to.get()) {
            self.mappings.pop_front();
        }
    }

    /// Whether its timer expired just now.
    pub(super) fn handle_timeout(&mut self, now: Time) -> bool {
        if self.sender.poll_timeout().is_none_or(|at| at > now) {
            return false;
        }
        let before = self.sender.stats().timeouts;
        self.sender.handle_timeout(now);
        let has_struck = self.sender.stats().timeouts > before;
        self.has_failed |= has_struck;
        has_struck
    }

    /// The ranges of the whole stream that it carries and that are not acknowledged.
    pub(super) fn carried(&self) -> impl Iterator<Item = Block> {
        self.mappings.iter().map(|mapping| mapping.data)
    }

    /// Its congestion window.
    pub(super) fn window(&self) -> Packets {
        self.sender.window()
    }

    fn mapping(&self, seq: u64) -> Option<Mapping> {
        let at = self.mappings.partition_point(|mapping| mapping.end() <= seq);
        self.mappings.get(at).copied()
    }
}
