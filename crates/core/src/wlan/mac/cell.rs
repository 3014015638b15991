//! The cell: stations that share one medium.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::{mem, slice};

use rand::RngExt;
use rand_pcg::Pcg64;

use super::category::Category;
use super::contention::Contention;
use super::error_model::log_success_per_bit;
use super::flow::{Candidate, StationQueue};
use super::frame::{Delivery, MAX_ON_AIR, Received};
use super::front::{self, Front, FrontError};
use super::medium::{Contender, Medium, Sending, into};
use super::mode::Mode;
use super::parts::{CellParts, Delivered, Transmission};
use super::protection::Reservation;
use super::rate::{RateChoice, RateControl};
use super::stats::{CellStats, StationStats};
use crate::router::{Drop, DropReason, Drops, Packet, QdiscConfig};
use crate::unit::{Bytes, Packets, Span, Time};

const NO_FLOW: u32 = u32::MAX;

/// A contender's permission to transmit.
struct Turn {
    by: Contender,
    /// When the access is decided and the frame is built.
    now: Time,
    /// When the transmission starts.
    start: Time,
    /// The longest duration, response included, unless a single MPDU already takes longer.
    budget: Span,
    protection: Option<Reservation>,
}

/// A Wi-Fi cell for packets `P`.
///
/// Input is [`Cell::enqueue`], output [`Cell::poll`], and [`Cell::poll_timeout`] gives the time to
/// poll next; `now` must not go back. The [module](super) describes the steps in between.
#[derive(Debug)]
pub struct Cell<P> {
    parts: CellParts,
    medium: Medium,
    contention: Contention,
    /// Per contender, its flows with something to send, in the order of their turns.
    turns: Vec<VecDeque<u32>>,
    /// Per station, the mode of all frames to and from it, if it differs from the common choice.
    own_modes: Vec<Option<Mode>>,
    /// Per station, its queue.
    queues: Vec<QdiscConfig>,
    flows: Vec<StationQueue<P>>,
    /// The flow per contender and receiver, or `NO_FLOW`: one row per contender, up to the last
    /// station that it has sent to. So a large cell whose stations send to the access point takes
    /// little memory.
    flow_of: Vec<Vec<u32>>,
    /// Until when the station on the air may go on sending.
    txop_end: Time,
    /// The contenders that access the medium together, and when: empty between calls.
    due: Vec<(u32, Time)>,
    /// The powers of colliding frames: empty between calls.
    powers: Vec<f64>,
    outbox: VecDeque<Delivered<P>>,
    rng: Pcg64,
    stats: CellStats,
}

/// Preallocated room for the powers of eight colliding frames at their eight receivers; more frames
/// allocate memory.
const MAX_POWERS: usize = 64;

impl<P: Packet> Cell<P> {
    /// An idle cell with this random number generator.
    pub fn new(parts: CellParts, rng: Pcg64) -> Self {
        let stations = parts.stations as usize;
        let contenders = parts.stations * Category::COUNT as u32;
        let params = |id| parts.access.params(Contender::of(id).category);
        Self {
            medium: Medium::new(parts.stations, parts.timing, parts.rules, &parts.access),
            contention: Contention::new(
                parts.timing.slot,
                parts.rules,
                (0..contenders).map(|id| params(id).cw_min),
            ),
            turns: (0..contenders).map(|_| VecDeque::new()).collect(),
            own_modes: vec![None; stations],
            queues: (0..parts.stations).map(|station| parts.queues.of(station).clone()).collect(),
            flows: Vec::new(),
            flow_of: vec![Vec::new(); contenders as usize],
            txop_end: Time::ZERO,
            due: Vec::with_capacity(contenders as usize),
            powers: Vec::with_capacity(MAX_POWERS),
            outbox: VecDeque::new(),
            rng,
            stats: CellStats {
                stations: vec![StationStats::default(); stations],
                ..CellStats::default()
            },
            parts,
        }
    }

    /// Gives `station` another queue; packets that it has queued already stay where they are.
    ///
    /// # Errors
    /// If a station cannot have this queue.
    pub fn set_queue(&mut self, station: u32, queue: QdiscConfig) -> Result<(), FrontError> {
        front::check(&queue)?;
        self.queues[station as usize] = queue;
        Ok(())
    }

    /// Queues a packet.
    ///
    /// # Panics
    ///
    /// If the cell has no station `from` or `to`, or if they are equal.
    pub fn enqueue(&mut self, now: Time, sent: Transmission<P>, drops: &mut Drops<'_, P>) {
        let Transmission { from, to, category, packet } = sent;
        assert!(from != to, "station {from} sends to itself");
        assert!(from.max(to) < self.parts.stations, "there is no station {}", from.max(to));
        // A packet queued at the exact time of an access still finds the medium idle.
        self.advance(now, Time::from_nanos(now.as_nanos().saturating_sub(1)), drops);
        self.stats.stations[from as usize].arrived.count(packet.size());
        let category = self.parts.access.category(category);
        let flow = self.flow(Contender { station: from, category }, to);
        if let Some(reason) = self.refusal(flow, packet.size(), now, drops) {
            counted(&mut self.stats, from, drops)(Drop { packet, reason });
            return;
        }
        let Self { parts, flows, stats, .. } = self;
        flows[flow].enqueue(now, packet, &parts.framing, &mut counted(stats, from, drops));
        if !self.flows[flow].is_empty() {
            self.contend(Contender { station: from, category }, flow, now);
        }
    }

    /// The next packet that has arrived by `now`; call until it returns `None`.
    pub fn poll(&mut self, now: Time, drops: &mut Drops<'_, P>) -> Option<Delivered<P>> {
        self.advance(now, now, drops);
        if self.outbox.front()?.at > now {
            return None;
        }
        let delivered = self.outbox.pop_front()?;
        let size = delivered.packet.size();
        self.stats.stations[delivered.from as usize].delivered.count(size);
        Some(delivered)
    }

    /// The time of the next event: call [`Cell::poll`] then.
    pub fn poll_timeout(&self) -> Option<Time> {
        let medium = self.medium.busy_until.or(self.contention.next());
        let arrival = self.outbox.front().map(|delivered| delivered.at);
        Time::earliest([medium, arrival])
    }

    /// Sends all frames in `mode` from now on, or all frames to and from `station` if one is given;
    /// frames on the air do not change.
    ///
    /// # Panics
    ///
    /// If the cell has no such station.
    pub fn set_mode(&mut self, station: Option<u32>, mode: Mode) {
        if let Some(station) = station {
            self.own_modes[station as usize] = Some(mode);
        } else {
            (self.parts.modes, self.parts.rate) = (vec![mode], RateChoice::Fixed);
            self.own_modes.fill(None);
        }
        let concerned = |from, to| station.is_none_or(|station| station == from || station == to);
        for index in 0..self.flows.len() {
            let (from, to) = (self.flows[index].from, self.flows[index].to);
            if concerned(from, to) {
                let (rate, candidates) = self.manner(from, to);
                (self.flows[index].rate, self.flows[index].candidates) = (rate, candidates);
            }
        }
    }

    /// The counters so far.
    pub fn stats(&self) -> &CellStats {
        &self.stats
    }

    /// The number of packets in the cell: queued, on the air, held back by the receiver, and not
    /// yet polled.
    pub fn inside(&self) -> Packets {
        let queued: usize = self.flows.iter().map(StationQueue::len).sum();
        Packets::new((queued + self.outbox.len()) as u64)
    }

    /// The total time that the medium was busy until `now`, the present busy period included.
    pub fn busy(&self, now: Time) -> Span {
        let Medium { busy_until, since, .. } = &self.medium;
        let goes_on = busy_until.map(|end| end.min(now).since(*since));
        self.stats.busy + goes_on.unwrap_or(Span::ZERO)
    }

    /// All queues: the sending station and the number of packets, including packets on the air and
    /// packets held back by the receiver.
    pub fn queues(&self) -> impl Iterator<Item = (u32, Packets)> {
        self.flows.iter().map(|flow| (flow.from, Packets::new(flow.len() as u64)))
    }

    /// Processes all events on the medium until `now`, but new accesses only until `accesses`.
    fn advance(&mut self, now: Time, accesses: Time, drops: &mut Drops<'_, P>) {
        loop {
            match (self.medium.busy_until, self.contention.next()) {
                (Some(end), _) if end <= now => self.conclude(end, drops),
                (None, Some(at)) if at <= accesses => self.access(at, drops),
                _ => return,
            }
        }
    }

    /// The flow of `by` to the station `to`, created with its first packet.
    fn flow(&mut self, by: Contender, to: u32) -> usize {
        let (row, to_index) = (by.id() as usize, to as usize);
        match self.flow_of[row].get(to_index) {
            Some(flow) if *flow != NO_FLOW => return *flow as usize,
            Some(_) => {}
            None => self.flow_of[row].resize(to_index + 1, NO_FLOW),
        }
        let flow = self.flows.len();
        self.flow_of[row][to_index] = flow as u32;
        let manner = self.manner(by.station, to);
        let front = Front::new(&self.queues[by.station as usize], &mut self.rng);
        self.flows.push(StationQueue::new(by.station, to, manner, front));
        flow
    }

    /// The modes in which `from` sends to `to`, and how it chooses among them.
    fn manner(&self, from: u32, to: u32) -> (RateControl, Box<[Candidate]>) {
        let Self { parts, own_modes, .. } = self;
        let own = own_modes[to as usize].as_ref().or(own_modes[from as usize].as_ref());
        let (modes, choice) = match own {
            Some(mode) => (slice::from_ref(mode), RateChoice::Fixed),
            None => (&parts.modes[..], parts.rate),
        };
        let ratio = parts.channel.signal_to_noise(from, to);
        let candidate = |mode: &Mode| Candidate {
            mode: *mode,
            responses: [1, 2].map(|mpdus| parts.framing.response(mode, mpdus)),
            log_success: log_success_per_bit(mode, ratio),
        };
        (RateControl::new(choice, modes), modes.iter().map(candidate).collect())
    }

    /// The reason why a packet cannot be queued in `flow`; `None` if it can.
    fn refusal(
        &mut self,
        flow: usize,
        size: Bytes,
        now: Time,
        drops: &mut Drops<'_, P>,
    ) -> Option<DropReason> {
        if size > self.parts.framing.max_packet() {
            return Some(DropReason::TooBig);
        }
        if self.flows[flow].is_full() {
            self.expire(flow, now, drops);
        }
        self.flows[flow].is_full().then_some(DropReason::QueueFull)
    }

    /// `flow` of `by` has something to send.
    fn contend(&mut self, by: Contender, flow: usize, now: Time) {
        let id = by.id();
        if !mem::replace(&mut self.flows[flow].has_turn, true) {
            self.turns[id as usize].push_back(flow as u32);
        }
        if self.contention.is_waiting(id) {
            return;
        }
        if self.medium.busy_until.is_some() {
            self.contention.join_busy(id, &mut self.rng);
        } else {
            self.contention.join_idle(id, now, self.medium.start(by));
        }
    }

    /// A backoff ends at `at`: the contender accesses the medium.
    fn access(&mut self, at: Time, drops: &mut Drops<'_, P>) {
        let mut due = mem::take(&mut self.due);
        self.contention.due(at, self.parts.timing.cca, &mut due);
        due.retain(|(id, _)| self.next_flow(*id, at, drops).is_some());
        if !due.is_empty() {
            self.contention.freeze(at);
            self.medium.since = at;
            self.medium.sendings.clear();
            // The earliest category of a station sends; among simultaneous ones, the highest.
            due.sort_unstable_by_key(|(id, start)| {
                (Contender::of(*id).station, *start, Reverse(*id))
            });
            let mut first: Option<(u32, Time)> = None;
            for (id, start) in due.drain(..) {
                let by = Contender::of(id);
                match first {
                    Some((station, earlier)) if station == by.station => {
                        if start == earlier {
                            self.collide_internally(by, at, drops);
                        }
                    }
                    _ => {
                        first = Some((by.station, start));
                        self.begin_txop(by, [at, start], drops);
                    }
                }
            }
            self.resolve();
        }
        self.due = due;
    }

    /// The flow whose turn it is at contender `id`, after dropping expired packets. If there is no
    /// such flow, the contender leaves the contention.
    fn next_flow(&mut self, id: u32, now: Time, drops: &mut Drops<'_, P>) -> Option<usize> {
        while let Some(flow) = self.turns[id as usize].front().map(|flow| *flow as usize) {
            self.expire(flow, now, drops);
            self.manage(flow, now, drops);
            // Take a first packet from the discipline; the frame's size depends on it.
            self.fill(flow, now, Bytes::ZERO, drops);
            if !self.flows[flow].is_empty() {
                return Some(flow);
            }
            self.flows[flow].has_turn = false;
            self.turns[id as usize].pop_front();
        }
        self.contention.leave(id);
        None
    }

    fn expire(&mut self, flow: usize, now: Time, drops: &mut Drops<'_, P>) {
        let horizon = now - self.parts.lifetime;
        let Self { flows, stats, outbox, .. } = self;
        let flow = &mut flows[flow];
        let (from, to) = (flow.from, flow.to);
        flow.expire(horizon, &mut counted(stats, from, drops), &mut into(outbox, now, from, to));
    }

    /// Takes packets out of the discipline of `flow` for a frame of at most `room`.
    fn fill(&mut self, flow: usize, now: Time, room: Bytes, drops: &mut Drops<'_, P>) {
        let Self { parts, flows, stats, .. } = self;
        let from = flows[flow].from;
        flows[flow].fill(now, &parts.framing, room, &mut counted(stats, from, drops));
    }

    /// Lets CoDel drop packets that `flow` is about to send.
    fn manage(&mut self, flow: usize, now: Time, drops: &mut Drops<'_, P>) {
        let Self { parts, flows, stats, outbox, .. } = self;
        if parts.codel {
            let flow = &mut flows[flow];
            let (from, to) = (flow.from, flow.to);
            let sink = &mut into(outbox, now, from, to);
            flow.manage(now, &mut counted(stats, from, drops), sink);
        }
    }

    /// `by` lost the medium to a higher category of its own station.
    fn collide_internally(&mut self, by: Contender, now: Time, drops: &mut Drops<'_, P>) {
        let Self { parts, turns, flows, stats, outbox, .. } = self;
        stats.stations[by.station as usize].internal_collisions += 1;
        if let Some(flow) = turns[by.id() as usize].front() {
            let flow = &mut flows[*flow as usize];
            let (from, to) = (flow.from, flow.to);
            let deliver = &mut into(outbox, now, from, to);
            flow.fail_first(parts.rules.retry_limit, &mut counted(stats, from, drops), deliver);
        }
        self.contention.fail(by.id(), parts.access.params(by.category), &mut self.rng);
        self.next_turn(by);
    }

    fn begin_txop(&mut self, by: Contender, [now, start]: [Time; 2], drops: &mut Drops<'_, P>) {
        let limit = self.parts.access.params(by.category).txop_limit;
        self.txop_end = start + limit;
        let budget = if limit.is_zero() { Span::MAX } else { limit };
        self.send(Turn { by, now, start, budget, protection: self.parts.protection }, drops);
    }

    /// Begins to transmit if there is something to send.
    fn send(&mut self, turn: Turn, drops: &mut Drops<'_, P>) {
        let Turn { by, now, start, budget, protection } = turn;
        let Some(index) = self.turns[by.id() as usize].front().copied() else { return };
        let flow = &mut self.flows[index as usize];
        let mode_index = flow.rate.choose(start, flow.tries(), &mut self.rng);
        let Candidate { mode, responses: [ack, block_ack], .. } = flow.candidates[mode_index];
        let lead = protection.map_or(Span::ZERO, |reservation| reservation.lead);
        let overhead = lead + self.parts.timing.sifs + ack.max(block_ack);
        let on_air = (budget - overhead).min(MAX_ON_AIR);
        self.fill(index as usize, now, self.parts.framing.room(&mode, on_air), drops);
        let (flow, framing) = (&mut self.flows[index as usize], &self.parts.framing);
        let burst = flow.transmit(framing, &mode, on_air);
        let protection = protection.filter(|reservation| burst.psdu > reservation.above);
        let lead = protection.map_or(Span::ZERO, |reservation| reservation.lead);
        let on_air = lead + mode.duration(burst.psdu);
        let stats = &mut self.stats.stations[by.station as usize];
        stats.transmissions += 1;
        stats.attempts += burst.mpdus as u64;
        stats.packets += burst.packets as u64;
        stats.retries += burst.retries;
        stats.airtime += on_air;
        self.medium.sendings.push(Sending {
            by,
            flow: index as usize,
            mode: mode_index,
            begin: start + lead,
            end: start + on_air,
            silent_from: protection.and_then(|made| Some(start + made.silent_after?)),
            response: if burst.mpdus > 1 { block_ack } else { ack },
            mpdus: burst.mpdus,
            received: 0,
        });
    }

    /// Determines the result of the present transmissions, and when they end.
    fn resolve(&mut self) {
        self.stats.exchanges += 1;
        self.draw_powers();
        let is_collision = self.medium.is_collision();
        for index in 0..self.medium.sendings.len() {
            let sending = self.medium.sendings[index];
            let received = self.receive(index, &sending);
            self.medium.sendings[index].received = received;
            if let Some(end) = sending.silent_from.filter(|_| received == 0 && is_collision) {
                self.medium.sendings[index].end = end;
                let stats = &mut self.stats.stations[sending.by.station as usize];
                stats.airtime = stats.airtime - sending.end.since(end);
            }
        }
        self.medium.occupy();
    }

    /// In a collision, draws the power with which each receiver gets each frame, one row per
    /// frame's receiver. Frames to the same receiver have the same row, as they meet at one
    /// antenna.
    fn draw_powers(&mut self) {
        self.powers.clear();
        if !self.medium.is_collision() || !self.parts.channel.has_capture() {
            return;
        }
        let sendings = &self.medium.sendings;
        let receiver = |sending: &Sending| self.flows[sending.flow].to;
        for (index, sending) in sendings.iter().enumerate() {
            let to = receiver(sending);
            match sendings[..index].iter().position(|before| receiver(before) == to) {
                Some(same) => {
                    let row = same * sendings.len();
                    self.powers.extend_from_within(row..row + sendings.len());
                }
                None => {
                    for by in sendings {
                        let from = by.by.station;
                        self.powers.push(self.parts.channel.received(from, to, &mut self.rng));
                    }
                }
            }
        }
    }

    /// Delivers the readable MPDUs of the `index`-th frame to its receiver; returns their number.
    fn receive(&mut self, index: usize, sending: &Sending) -> usize {
        let Self { parts, medium, flows, outbox, rng, stats, powers, .. } = self;
        let flow = &mut flows[sending.flow];
        let (from, to) = (flow.from, flow.to);
        let Candidate { mode, mut log_success, .. } = flow.candidates[sending.mode];
        if medium.is_collision() {
            stats.stations[from as usize].collisions += 1;
            // Without capture there are no powers, and all is lost.
            let row = powers.chunks(medium.sendings.len()).nth(index);
            let captured = row.and_then(|powers| parts.channel.captured(index, powers));
            let Some(ratio) = captured else { return 0 };
            log_success = log_success_per_bit(&mode, ratio);
        } else if let Some(ratio) = parts.channel.faded(from, to, rng) {
            log_success = log_success_per_bit(&mode, ratio);
        }
        let mut psdu = Bytes::ZERO;
        let arrives = |size: Bytes| {
            psdu = parts.framing.appended(psdu, size);
            let arrived = log_success == 0.0
                || rng.random::<f64>() < libm::exp(log_success * 8.0 * size.get() as f64);
            arrived.then(|| match parts.delivery {
                Delivery::Frame => sending.end,
                Delivery::Mpdu => (sending.begin + mode.duration(psdu)).min(sending.end),
            })
        };
        let frame = Received { at: sending.end, rate: mode.rate() };
        let deliver = &mut |packet, frame, at| into(outbox, at, from, to)(packet, frame);
        let taken = flow.receive(frame, arrives, deliver);
        stats.stations[from as usize].noise_losses += (sending.mpdus - taken.mpdus) as u64;
        if taken.mpdus > 0 {
            let receiver = &mut stats.stations[to as usize];
            receiver.received_frames += 1;
            receiver.received_packets += taken.packets as u64;
            receiver.airtime += sending.response;
        }
        taken.mpdus
    }

    /// The medium becomes idle at `at`.
    fn conclude(&mut self, at: Time, drops: &mut Drops<'_, P>) {
        self.stats.busy += self.medium.free(at);
        for index in 0..self.medium.sendings.len() {
            let sending = self.medium.sendings[index];
            self.settle(&sending, at, drops);
            self.next_turn(sending.by);
        }
        if !self.goes_on(at, drops) {
            let medium = &self.medium;
            let start_of = |id| medium.start(Contender::of(id));
            self.contention.resume(medium.starts(), medium.senders(), start_of);
        }
    }

    /// The sender of `sending` learns the result.
    fn settle(&mut self, sending: &Sending, at: Time, drops: &mut Drops<'_, P>) {
        let Self { parts, flows, stats, outbox, contention, rng, .. } = self;
        let Sending { by, mpdus, received, .. } = *sending;
        let flow = &mut flows[sending.flow];
        let (from, to) = (flow.from, flow.to);
        let (drops, mut deliver) = (&mut counted(stats, from, drops), into(outbox, at, from, to));
        flow.settle(parts.rules.retry_limit, drops, &mut deliver);
        flow.rate.report(sending.mode, mpdus, received);
        let params = parts.access.params(by.category);
        if received > 0 {
            contention.succeed(by.id(), params, rng);
        } else {
            contention.fail(by.id(), params, rng);
        }
    }

    /// After a transmission of `by`: the turn passes to the next flow, unless this one must retry.
    fn next_turn(&mut self, by: Contender) {
        let turns = &mut self.turns[by.id() as usize];
        if let Some(index) = turns.pop_front() {
            let flow = &mut self.flows[index as usize];
            if flow.tries() > 0 {
                turns.push_front(index);
            } else if !flow.is_empty() {
                turns.push_back(index);
            } else {
                flow.has_turn = false;
            }
        }
        self.contention.set_waiting(by.id(), !turns.is_empty());
    }

    /// Whether the station whose frame was just acknowledged continues its TXOP.
    fn goes_on(&mut self, at: Time, drops: &mut Drops<'_, P>) -> bool {
        let [Sending { by, received: 1.., .. }] = self.medium.sendings[..] else { return false };
        let start = at + self.parts.timing.sifs;
        if start >= self.txop_end {
            return false;
        }
        let Some(flow) = self.next_flow(by.id(), at, drops) else { return false };
        let (framing, flow) = (&self.parts.framing, &self.flows[flow]);
        let Candidate { mode: slowest, responses: [ack, _], .. } = flow.candidates[0];
        let frame = slowest.duration(framing.single(flow.first_size()));
        let end = start + frame + self.parts.timing.sifs + ack;
        if end > self.txop_end {
            return false;
        }
        self.medium.sendings.clear();
        let budget = self.txop_end.since(start);
        self.send(Turn { by, now: at, start, budget, protection: None }, drops);
        self.resolve();
        true
    }
}

/// A sink that counts drops for the station `from` before it passes them on.
fn counted<P>(stats: &mut CellStats, from: u32, drops: &mut Drops<'_, P>) -> impl FnMut(Drop<P>) {
    move |drop: Drop<P>| {
        stats.stations[from as usize].drops.count(drop.reason);
        drops(drop);
    }
}
