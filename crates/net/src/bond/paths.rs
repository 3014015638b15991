//! Chooses the path of a connection's next datagram: drives noq-proto by its [gates](super::gate).
//!
//! ```text
//!   all gates closed ─► poll: acks and probes that need no gate
//!   data queued? ─► scheduler ─► open one gate ─► poll for one datagram ─► close it
//!                            └─► wait
//! ```
//!
//! # Where the paper is silent
//!
//! - **Frames that a closed gate holds back besides data.** While data is queued, noq-proto 1.4.0
//!   sends no ack, no ping and no path challenge over a path whose window is full, so not through a
//!   closed gate either. If the scheduler chooses no path and acks are overdue by [`ACK_LATE`], the
//!   fastest path's gate is opened for one datagram, which carries the acks. A path that has sent
//!   no data for [`LOOK`] is given one datagram, so that its round-trip time stays known and the
//!   far end keeps hearing it.
//! - **Paths that do not answer.** A path that has not answered for two probe timeouts is in doubt:
//!   it is not used while another path answers. After [`DEAD_AFTER`] probe timeouts it is closed,
//!   so that its packets in flight are sent again over the other paths. The client may re-open it.
//! - **Acks leave by the first path** that noq-proto has, even if that path is dead, and then no
//!   path seems to answer at the far end. So a path that was heard and falls silent for [`QUIET`]
//!   while another is heard is asked for an answer; from then on it is in doubt, and given up,
//!   sooner. A path in doubt is made a backup, which carries no acks while there is another.
//! - **Unsent data** is estimated as bytes written minus bytes sent, because noq-proto does not
//!   report it. The estimate is corrected whenever no data is queued.

mod health;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use freshline_core::path::{
    self, Choice, DeviceQueue, MAX_PATHS, PathState, Scheduler, SchedulerConfig, SendState,
};
use freshline_core::unit::{Bytes, Span, Time};
use noq_proto::{Connection, FourTuple, PathId, Transmit};

use super::Sending;
use super::gate::{Handle, Pending, Reading};
use super::queueing_delays::Expected;
use crate::via::{QueueReport, Seen, SeenBy};

/// How long acks may be held back by full windows: the delay that a receiver declares (RFC 9000,
/// `max_ack_delay`).
const ACK_LATE: Duration = Duration::from_millis(25);

/// Maximum time without a datagram on a path while data is queued.
const LOOK: Duration = Duration::from_millis(250);

/// Probe timeouts without an answer after which a path is given up; half as many if it was heard
/// and has fallen silent while another is heard. Never sooner than [`DEAD_AT_LEAST`].
const DEAD_AFTER: u32 = 4;
const DEAD_AT_LEAST: Duration = Duration::from_millis(500);

/// Reads the queues on this host in front of a path.
pub(super) trait Queues {
    /// The queue that packets of this path enter; `None` if unknown.
    fn queue(&mut self, now: Instant, path: FourTuple) -> Option<Seen>;
}

/// All queues are unknown.
#[cfg(test)]
impl Queues for () {
    fn queue(&mut self, _now: Instant, _path: FourTuple) -> Option<Seen> {
        None
    }
}

/// A datagram to send.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) transmit: Transmit,
    /// The path whose gate was opened for its data, if one was.
    #[cfg_attr(not(test), expect(dead_code))]
    pub(super) gated: Option<PathId>,
    /// How many datagrams of this path may leave as one train: as many as it sends in 0.5 ms.
    pub(super) train: usize,
    /// Its packet, if its departure from the device is to be recorded.
    pub(super) packet: Option<Pending>,
}

/// A path of the connection.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) id: PathId,
    /// Its number for the scheduler.
    slot: path::PathId,
    gate: Handle,
    pub(super) network: FourTuple,
    pub(super) is_established: bool,
    opened_at: Instant,
    last_gated_at: Instant,
    /// Datagrams received on it, and the last turn in which some were.
    received: u64,
    heard_at: Option<Instant>,
    /// It has been asked for an answer since then.
    was_asked: bool,
    /// It is a backup, while it is in doubt.
    is_backup: bool,
    /// The pacer, or a full socket, holds it back in this turn.
    is_paced: bool,
    /// It must send one datagram, regardless of its window.
    must_probe: bool,
    /// The interval of its keep-alives.
    keep_alive: Option<Duration>,
    pub(super) seen: Option<Seen>,
    /// Packets of this path that have entered the queue since it was last read.
    added: u64,
}

impl Path {
    pub(super) fn reading(&self) -> Reading {
        self.gate.read()
    }

    /// How many datagrams it sends in 0.5 ms. A train of them counts as one packet in the device
    /// queue, and delays packets of other programs.
    fn train(&self) -> usize {
        let reading = self.gate.read();
        let Some(srtt) = reading.srtt else { return 1 };
        let rate = reading.window as f64 / srtt.as_secs_f64().max(1e-4);
        (rate * 0.5e-3 / reading.mtu.max(1) as f64) as usize
    }

    /// How long it has not answered; `None` if no answer is outstanding.
    fn unanswered(&self, now: Instant) -> Option<Duration> {
        self.gate.read().waiting_since.map(|since| now.saturating_duration_since(since))
    }

    /// How long it may leave packets unanswered before it is in doubt; less if the far end has
    /// fallen silent on it, too.
    fn doubt_after(&self) -> Duration {
        let reading = self.gate.read();
        match self.was_asked {
            true => reading.srtt.unwrap_or_default() + 2 * reading.rttvar + ACK_LATE,
            false => 2 * reading.probe_timeout() + ACK_LATE,
        }
    }

    /// How long it may leave packets unanswered before it is given up.
    fn dead_after(&self) -> Duration {
        let timeouts = if self.was_asked { DEAD_AFTER / 2 } else { DEAD_AFTER };
        (timeouts * self.gate.read().probe_timeout()).max(DEAD_AT_LEAST)
    }

    fn is_doubtful(&self, now: Instant) -> bool {
        self.unanswered(now).is_some_and(|silence| silence > self.doubt_after())
    }

    /// It carries data, and is not in doubt.
    fn is_well(&self, now: Instant) -> bool {
        self.is_established && !self.is_doubtful(now)
    }

    fn is_dead(&self, now: Instant) -> bool {
        self.unanswered(now).is_some_and(|silence| silence > self.dead_after())
    }

    /// Its device queue now, including the packets that this path has added since the queue was
    /// last read.
    fn queue(&self) -> Option<DeviceQueue> {
        self.seen.map(|Seen { queue, .. }| DeviceQueue {
            packets: queue.packets + self.added,
            rate: queue.rate,
        })
    }

    /// Sets the expected queueing delay of this path's next packet: that of the packets now in the
    /// queue.
    fn expect_wait(&self) {
        let wait = self.queue().map_or(Some(Span::ZERO), |queue| queue.wait());
        // The queues per station are behind the driver's entry, where departures are stamped.
        let is_final = self.seen.is_some_and(|seen| seen.by == SeenBy::Stations);
        self.gate.expect_wait(Expected { wait, is_final });
    }

    fn state(&self, now: Instant) -> PathState {
        let reading = self.gate.read();
        let span = Span::from;
        let queue = self.queue();
        let total = reading.acked_bytes + reading.lost_bytes;
        PathState {
            srtt: reading.srtt.map(span),
            rttvar: span(reading.rttvar),
            min_rtt: reading.min_rtt.map(span),
            unanswered: self.unanswered(now).map(span),
            cwnd: Bytes::new(reading.window),
            inflight: Bytes::new(reading.inflight),
            ssthresh: reading.ssthresh.map(Bytes::new),
            pacing_rate: reading.pacing_rate.map(Bytes::new),
            queue,
            loss: if total == 0 { 0.0 } else { reading.lost_bytes as f64 / total as f64 },
            ..PathState::new(self.slot, Bytes::new(reading.mtu.max(1)))
        }
    }
}

/// The paths of a connection, with the scheduler that chooses among them.
#[derive(Debug)]
pub(super) struct Paths {
    scheduler: Box<dyn Scheduler>,
    /// For UDP datagrams of programs: each takes the path with the earliest arrival, so that the
    /// datagrams of a flow arrive nearly in order.
    for_datagrams: Option<Box<dyn Scheduler>>,
    /// The free space for DATAGRAM frames when none is queued, in bytes.
    datagram_room: usize,
    paths: Vec<Path>,
    /// The paths that noq-proto has reported as established.
    established: BTreeSet<PathId>,
    origin: Instant,
    /// The receive windows of one stream and of all streams, in bytes.
    windows: [u64; 2],
    /// Streams that may have data in flight.
    streams: u64,
    /// The interval of keep-alives of an idle connection.
    keep_alive: Duration,
    /// Frames with data, in both directions, as of the last turn, and when there was a new one.
    data_frames: u64,
    active_at: Instant,
    /// When the last turn began.
    began_at: Instant,
    /// When the far end was last heard, and since when without a pause.
    heard_at: Instant,
    alive_since: Option<Instant>,
    /// When other paths were last asked for an answer because one was in doubt.
    questioned_at: Instant,
    /// When all paths were last asked for an answer.
    probed_at: Instant,
    unsent: u64,
    /// Data is queued, as far as is known.
    is_data_waiting: bool,
    /// When the first packet arrived since the last datagram was sent.
    received_at: Option<Instant>,
    /// Frames that ask for an ack, as of the last time that acks were late.
    asked_for_acks: u64,
    lost_before: u64,
}

impl Paths {
    /// Starts without paths; `sending` sets the windows and keep-alives.
    pub(super) fn new(scheduler: Box<dyn Scheduler>, sending: &Sending, now: Instant) -> Self {
        let memory = u64::from(sending.memory / 2);
        Self {
            scheduler,
            for_datagrams: SchedulerConfig::Earliest(Default::default()).build().ok(),
            datagram_room: 0,
            paths: Vec::new(),
            // The first path exists as soon as the connection does.
            established: BTreeSet::from([PathId::ZERO]),
            origin: now,
            windows: [sending.stream_window.into(), memory],
            streams: 0,
            keep_alive: sending.keep_alive.into(),
            data_frames: 0,
            active_at: now,
            began_at: now,
            heard_at: now,
            alive_since: None,
            questioned_at: now,
            probed_at: now,
            unsent: 0,
            is_data_waiting: false,
            received_at: None,
            asked_for_acks: 0,
            lost_before: 0,
        }
    }

    pub(super) fn all(&self) -> &[Path] {
        &self.paths
    }

    /// The device queue of a path, as the scheduler sees it.
    pub(super) fn queue_of(&self, path: &Path) -> QueueReport {
        let seen_by = path.seen.map(|seen| seen.by);
        QueueReport::of(seen_by, path.queue(), self.scheduler.service(path.slot))
            .with_stamps(path.gate.stamped_wait())
    }

    /// Counts bytes written to streams.
    pub(super) fn on_written(&mut self, bytes: u64) {
        self.unsent += bytes;
    }

    /// A packet of the connection has arrived.
    pub(super) fn on_received(&mut self, now: Instant) {
        self.received_at.get_or_insert(now);
    }

    /// noq-proto can use this path for data from now on.
    pub(super) fn on_established(&mut self, id: PathId) {
        self.established.insert(id);
    }

    /// Adds and updates the paths that noq-proto has, except those in `gone`.
    fn learn(&mut self, connection: &Connection, gone: &[PathId], now: Instant) {
        for id in connection.paths().into_iter().filter(|id| !gone.contains(id)) {
            let (Some(gate), Ok(network)) =
                (Handle::of(connection, id), connection.network_path(id))
            else {
                continue;
            };
            if let Some(path) = self.paths.iter_mut().find(|path| path.id == id) {
                // A path that has moved to another address has a new controller.
                path.gate = gate;
                if path.network != network {
                    (path.network, path.seen, path.added) = (network, None, 0);
                    self.scheduler.forget(path.slot);
                    self.for_datagrams.iter_mut().for_each(|it| it.forget(path.slot));
                }
                path.is_established |= self.established.contains(&id);
                continue;
            }
            let is_free = |slot: &u8| !self.paths.iter().any(|path| path.slot.0 == *slot);
            let Some(slot) = (0..MAX_PATHS as u8).find(is_free) else { continue };
            let slot = path::PathId(slot);
            self.scheduler.forget(slot);
            self.for_datagrams.iter_mut().for_each(|it| it.forget(slot));
            self.paths.push(Path {
                id,
                slot,
                gate,
                network,
                is_established: self.established.contains(&id),
                opened_at: now,
                last_gated_at: now,
                received: 0,
                heard_at: None,
                was_asked: false,
                is_backup: false,
                is_paced: false,
                must_probe: false,
                keep_alive: None,
                seen: None,
                added: 0,
            });
        }
    }

    /// Sends no data in this turn by paths whose sockets are full.
    pub(super) fn hold(&mut self, is_full: impl Fn(FourTuple) -> bool) {
        for path in &mut self.paths {
            path.is_paced |= is_full(path.network);
        }
    }

    /// Begins a turn: adds new paths, removes closed ones, and closes dead ones.
    pub(super) fn begin(
        &mut self,
        connection: &mut Connection,
        queues: &mut dyn Queues,
        gone: &[PathId],
        now: Instant,
    ) {
        self.paths.retain(|path| !gone.contains(&path.id));
        self.established.retain(|id| !gone.contains(id));
        self.learn(connection, gone, now);
        let mut lost = 0;
        for path in &mut self.paths {
            path.is_paced = false;
            let seen = queues.queue(now, path.network);
            if seen != path.seen {
                (path.seen, path.added) = (seen, 0);
            }
            path.expect_wait();
            for acked in path.gate.take_acked(connection.rtt(path.id)) {
                self.scheduler.on_ack(path.slot, &acked);
                self.for_datagrams.iter_mut().for_each(|it| it.on_ack(path.slot, &acked));
            }
            lost += path.gate.read().lost_bytes;
        }
        self.unsent += lost.saturating_sub(self.lost_before);
        self.lost_before = lost;
        // One stream carries the limits of the others.
        self.streams = (connection.streams().send_streams() as u64).saturating_sub(1);
        self.keep_alive(connection, now);
        self.listen(connection, now);
        self.probe(connection, now);
        self.watch_health(connection, now);
        self.doubt(connection, now);
        self.close_dead(connection, now);
    }

    /// When [`Paths::begin`] is due without an event.
    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let open_timeout = self.open_timeout();
        let delays = self.paths.iter().flat_map(|path| {
            let reading = path.gate.read();
            let after = |span| reading.waiting_since.map(|since| since + span);
            match path.is_established {
                true => [after(path.doubt_after()), after(path.dead_after())],
                false => [Some(path.opened_at + open_timeout), None],
            }
        });
        let late = self.received_at.filter(|_| self.is_data_waiting).map(|at| at + ACK_LATE);
        // Times in the past were handled in the last turn, as far as possible.
        delays
            .flatten()
            .chain(late)
            .chain(self.probe_at())
            .chain(self.question_at(now))
            .filter(|at| *at > now)
            .min()
    }

    /// Writes the next datagram into the empty `buf`; `None` if nothing more may leave now.
    pub(super) fn poll_transmit(
        &mut self,
        connection: &mut Connection,
        now: Instant,
        buf: &mut Vec<u8>,
    ) -> Option<Leaving> {
        if connection.is_handshaking() || connection.is_closed() {
            self.set_all(true);
            return self.poll(connection, now, buf, None);
        }
        self.close_all();
        while let Some(index) = self.paths.iter().position(|path| path.must_probe) {
            self.paths[index].must_probe = false;
            self.paths[index].gate.set_probing();
            let leaving = self.poll(connection, now, buf, None);
            self.paths[index].gate.set(false);
            if leaving.is_some() {
                return leaving;
            }
        }
        if !self.is_data_waiting {
            if let Some(leaving) = self.poll(connection, now, buf, None) {
                return Some(leaving);
            }
            if !self.paths.iter().any(|path| path.gate.was_asked()) {
                self.unsent = 0;
                return None;
            }
            self.is_data_waiting = true;
        }
        loop {
            match self.choose(connection, now) {
                Some(index) => {
                    let (leaving, was_asked) = self.poll_gate(connection, now, buf, index);
                    if leaving.is_some() {
                        return leaving;
                    }
                    let room = connection.datagrams().send_buffer_space();
                    // A queued datagram may be too large for this path, and not for another one.
                    if !was_asked && room >= self.datagram_room {
                        (self.is_data_waiting, self.unsent) = (false, 0);
                        return None;
                    }
                    // The gate was open, and there was room: the pacer has refused.
                    self.paths[index].is_paced = true;
                }
                None => return self.poll_waiting(connection, now, buf),
            }
        }
    }

    /// No path may send data now. Sends frames that need no window, and acks that are overdue.
    fn poll_waiting(
        &mut self,
        connection: &mut Connection,
        now: Instant,
        buf: &mut Vec<u8>,
    ) -> Option<Leaving> {
        self.close_all();
        if let Some(leaving) = self.poll(connection, now, buf, None) {
            return Some(leaving);
        }
        let is_late = |at: Instant| now.saturating_duration_since(at) >= ACK_LATE;
        self.received_at.take_if(|at| is_late(*at))?;
        // Acks need no acks in turn.
        let frames = connection.stats().frame_rx;
        let asked = frames.stream + frames.ping + frames.max_data + frames.max_stream_data;
        if std::mem::replace(&mut self.asked_for_acks, asked) == asked {
            return None;
        }
        let usable = (0..self.paths.len()).filter(|index| self.paths[*index].is_established);
        let index = usable.min_by_key(|index| self.paths[*index].gate.read().srtt)?;
        self.poll_gate(connection, now, buf, index).0
    }

    /// The path for the next datagram with data.
    fn choose(&mut self, connection: &mut Connection, now: Instant) -> Option<usize> {
        let any_well = self.paths.iter().any(|path| path.is_established && !path.is_doubtful(now));
        let usable = |path: &&Path| {
            path.is_established && !path.is_paced && !(any_well && path.is_doubtful(now))
        };
        let states: Vec<_> = self.paths.iter().filter(usable).map(|path| path.state(now)).collect();
        if states.is_empty() {
            return None;
        }
        let neglected = |path: &Path| now.saturating_duration_since(path.last_gated_at) > LOOK;
        let slot_of = |slot| self.paths.iter().position(|path| path.slot == slot);
        let looked_at = states
            .iter()
            .filter(|state| state.has_room())
            .find_map(|state| slot_of(state.id).filter(|index| neglected(&self.paths[*index])));
        if looked_at.is_some() {
            return looked_at;
        }
        let [of_one, of_all] = self.windows;
        let window = of_all.min(of_one.saturating_mul(self.streams.max(1)));
        let inflight: u64 = states.iter().map(|state| state.inflight.get()).sum();
        let room = connection.datagrams().send_buffer_space();
        self.datagram_room = self.datagram_room.max(room);
        let datagrams = (self.datagram_room - room) as u64;
        let unsent = if datagrams > 0 { datagrams } else { self.unsent };
        let flow = SendState {
            unsent: Bytes::new(unsent),
            // Each stream has a window of its own, and the connection one for all.
            window_left: Bytes::new(window.saturating_sub(inflight)),
            window: Bytes::new(window),
            interval: Span::ZERO,
        };
        let at = Time::ZERO + Span::from(now.saturating_duration_since(self.origin));
        // The remaining data may be less than a segment.
        let room_of = |state: &&PathState| {
            state.has_room() && flow.window_left < state.segment.min(flow.unsent)
        };
        if let Some(blocked) = states.iter().find(room_of).filter(|_| datagrams == 0 && unsent > 0)
        {
            self.scheduler.on_blocked(at, blocked.id);
        }
        // noq-proto sends DATAGRAM frames before those of streams.
        let scheduler = self.for_datagrams.as_mut().filter(|_| datagrams > 0);
        match scheduler.unwrap_or(&mut self.scheduler).choose(at, &flow, &states) {
            Choice::Send(slot) | Choice::Copies(slot, _) => slot_of(slot),
            Choice::Wait => None,
        }
    }

    /// Opens one gate for one datagram; returns also whether noq-proto has asked for its window.
    fn poll_gate(
        &mut self,
        connection: &mut Connection,
        now: Instant,
        buf: &mut Vec<u8>,
        index: usize,
    ) -> (Option<Leaving>, bool) {
        let (gate, id) = (self.paths[index].gate.clone(), self.paths[index].id);
        gate.set(true);
        let leaving = self.poll(connection, now, buf, Some(id));
        let was_asked = gate.was_asked();
        gate.set(false);
        if let Some(leaving) = &leaving
            && was_asked
        {
            let path = &mut self.paths[index];
            path.last_gated_at = now;
            path.added += 1;
            path.expect_wait();
            self.unsent = self.unsent.saturating_sub(leaving.transmit.size as u64);
        }
        (leaving, was_asked)
    }

    fn poll(
        &mut self,
        connection: &mut Connection,
        now: Instant,
        buf: &mut Vec<u8>,
        gated: Option<PathId>,
    ) -> Option<Leaving> {
        // A connection that closes sends a close per encryption level, and must write all of them
        // at once.
        const LEVELS: NonZeroUsize = NonZeroUsize::new(3).unwrap();
        let most = if connection.is_closed() { LEVELS } else { NonZeroUsize::MIN };
        let transmit = connection.poll_transmit(now, most, buf)?;
        self.received_at = None;
        let network = FourTuple::new(transmit.destination, transmit.src_ip);
        // A path MTU probe, which the device may refuse, leaves alone, by whichever gate it came.
        let is_probe = |path: &Path| transmit.size as u64 > path.reading().mtu;
        let own = |path: &&Path| Some(path.id) == gated && path.network == network;
        let path = self.paths.iter().find(own).filter(|path| !is_probe(path));
        let train = path.map_or(1, |path| path.train().max(1));
        let packet = self.paths.iter().find_map(|path| path.gate.take_pending());
        Some(Leaving { transmit, gated, train, packet })
    }

    /// Closes the gates of all established paths. The others stay open, as a closed gate would also
    /// hold back the frames that establish them.
    fn close_all(&self) {
        for path in &self.paths {
            path.gate.set(!path.is_established);
        }
    }

    fn set_all(&self, is_open: bool) {
        for path in &self.paths {
            path.gate.set(is_open);
        }
    }
}
