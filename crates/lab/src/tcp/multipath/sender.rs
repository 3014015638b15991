//! The sender: the send buffer, and the assignment of its data to subflows.

use std::collections::VecDeque;

use freshline_core::path::{Choice, PathId, PathSet, PathState, Scheduler, SendState};
use freshline_core::unit::{Bytes, Span, Time};

use super::subflow::Subflow;
use super::{Carried, DataAck};
use crate::tcp::apps::Outlet;
use crate::tcp::segment::Block;
use crate::tcp::{BufferParams, Sender};

/// Settings of a [`MultipathSender`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MultipathParams {
    /// The payload of a full segment.
    pub segment: Bytes,
    /// The send buffer over all subflows, for the sum of their windows.
    pub buffer: BufferParams,
    /// Opportunistic retransmission, penalisation and reinjection.
    pub handler: bool,
    /// Subflows are independent streams, each with its own byte sequence.
    pub independent: bool,
}

/// Counters of a sender since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MultipathStats {
    /// Segments given to a subflow for the first time.
    pub segments: u64,
    /// Copies that the scheduler asked for.
    pub copies: u64,
    /// Segments given to another subflow because they blocked all subflows.
    pub opportunistic: u64,
    /// Segments given to another subflow after a timeout.
    pub reinjections: u64,
    /// Windows halved because the segments in them blocked other subflows.
    pub penalties: u64,
    /// How often a subflow had room for a segment that the receive window did not permit.
    pub blocked: u64,
    /// Blocks of the application that did not fit into the send buffer.
    pub refused: u64,
}

impl MultipathStats {
    /// The counters since an earlier reading.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            segments: self.segments - before.segments,
            copies: self.copies - before.copies,
            opportunistic: self.opportunistic - before.opportunistic,
            reinjections: self.reinjections - before.reinjections,
            penalties: self.penalties - before.penalties,
            blocked: self.blocked - before.blocked,
            refused: self.refused - before.refused,
        }
    }
}

/// The sending end of a connection. As with [`Sender`]: after each input, call
/// [`MultipathSender::poll_transmit`] until it returns `None`, and again at
/// [`MultipathSender::poll_timeout`].
///
/// Before each call, report the queue lengths of devices with [`MultipathSender::look`].
#[derive(Debug)]
pub struct MultipathSender {
    pub(super) params: MultipathParams,
    pub(super) subflows: Vec<Subflow>,
    pub(super) scheduler: Box<dyn Scheduler>,
    pub(super) written: u64,
    is_unlimited: bool,
    is_closed: bool,
    /// Segments given to subflows and not acknowledged, in order, without gaps.
    pub(super) outstanding: VecDeque<Outstanding>,
    /// All data below this offset is acknowledged.
    acked_to: u64,
    /// The first byte that has not been given to a subflow.
    next: u64,
    window_end: u64,
    /// The number of segments in `outstanding` that are due on another subflow.
    pub(super) due_again: usize,
    pub(super) stats: MultipathStats,
}

/// A segment of the whole stream that is in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outstanding {
    pub(super) data: Block,
    /// The subflows that have carried it.
    pub(super) paths: PathSet,
    /// Presumably lost, and to be sent on another subflow.
    pub(super) is_due_again: bool,
}

impl MultipathSender {
    /// A sender with one subflow per element of `senders`, none of them connected.
    pub fn new(
        params: MultipathParams,
        senders: Vec<Sender>,
        scheduler: Box<dyn Scheduler>,
    ) -> Self {
        let ids = (0..).map(PathId);
        Self {
            params,
            subflows: senders.into_iter().zip(ids).map(|(s, id)| Subflow::new(s, id)).collect(),
            scheduler,
            written: 0,
            is_unlimited: false,
            is_closed: false,
            outstanding: VecDeque::new(),
            acked_to: 0,
            next: 0,
            window_end: 0,
            due_again: 0,
            stats: MultipathStats::default(),
        }
    }

    /// Opens the connection over the first subflow; the others join once it is open.
    pub fn connect(&mut self, now: Time) {
        self.subflows[0].sender_mut().connect(now);
    }

    /// The number of bytes that the send buffer would accept.
    pub fn writable(&self) -> Bytes {
        if self.is_closed { Bytes::ZERO } else { self.buffer_size() - self.held() }
    }

    /// From now on the buffer is always full.
    pub fn set_unlimited(&mut self) {
        self.is_unlimited = true;
    }

    /// Nothing more is written.
    pub fn close(&mut self) {
        self.is_unlimited = false;
        self.is_closed = true;
    }

    /// Whether the stream is closed and all of it is acknowledged.
    pub fn is_finished(&self) -> bool {
        self.is_closed && self.acked_to == self.written
    }

    /// Whether nothing more is written.
    pub const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether subflows are streams of their own.
    pub const fn is_independent(&self) -> bool {
        self.params.independent
    }

    /// Bytes written so far.
    pub const fn written(&self) -> Bytes {
        Bytes::new(self.written)
    }

    /// Bytes written and not acknowledged.
    pub fn held(&self) -> Bytes {
        Bytes::new(self.written - self.acked_to)
    }

    /// The send buffer, in bytes of payload.
    pub fn buffer_size(&self) -> Bytes {
        let windows = self.subflows.iter().map(|subflow| subflow.window().get());
        Bytes::new(self.params.buffer.payload(windows.sum()))
    }

    /// The subflows.
    pub fn subflows(&self) -> &[Subflow] {
        &self.subflows
    }

    /// The counters so far.
    pub const fn stats(&self) -> &MultipathStats {
        &self.stats
    }

    /// The device of a subflow holds `packets` packets now, and `left` have left it since its
    /// start.
    pub fn look(&mut self, now: Time, subflow: usize, packets: u64, left: u64) {
        self.subflows[subflow].look(now, packets, left);
    }

    /// A segment of the receiver has arrived on a subflow.
    pub fn on_segment(&mut self, now: Time, subflow: usize, carried: &Carried) {
        let of = &mut self.subflows[subflow];
        of.on_segment(now, &carried.segment);
        let path = of.id();
        for acked in of.sender_mut().take_acked() {
            self.scheduler.on_ack(path, &acked);
        }
        if subflow == 0 && self.subflows[0].sender().is_open() {
            // A sender that is already connected ignores this.
            self.subflows[1..].iter_mut().for_each(|other| other.sender_mut().connect(now));
        }
        if let Some(DataAck { acked_to, window_end }) = carried.data_ack {
            self.window_end = self.window_end.max(window_end);
            self.acked_to = self.acked_to.max(acked_to.min(self.next));
            while let Some(first) = self.outstanding.front()
                && first.data.end <= self.acked_to
            {
                self.due_again -= usize::from(first.is_due_again);
                self.outstanding.pop_front();
            }
        }
    }

    /// When to call [`MultipathSender::handle_timeout`] next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.subflows.iter().filter_map(Subflow::poll_timeout).min()
    }

    /// The time given by [`MultipathSender::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Time) {
        for subflow in 0..self.subflows.len() {
            if self.subflows[subflow].handle_timeout(now) && self.params.handler {
                self.reinject(subflow);
            }
        }
    }

    /// The next segment to send, with its subflow. Call it until it returns `None`, and report
    /// before each call the queue lengths of devices.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(usize, Carried)> {
        loop {
            let mut subflows = self.subflows.iter_mut().enumerate();
            let next = subflows.find_map(|(at, subflow)| Some((at, subflow.poll_transmit(now)?)));
            if next.is_some() {
                return next;
            }
            if self.params.independent || !self.give(now) {
                return None;
            }
        }
    }

    /// Gives the next segment to a subflow, if one is to have it.
    fn give(&mut self, now: Time) -> bool {
        if self.due_again > 0 && self.give_again(now) {
            return true;
        }
        let mut paths: Vec<PathState> = Vec::with_capacity(self.subflows.len());
        paths.extend(
            self.subflows
                .iter_mut()
                .filter(|subflow| subflow.is_alive())
                .map(|subflow| subflow.state(now)),
        );
        if !self.subflows.iter().any(Subflow::is_usable) {
            return false;
        }
        let flow = self.flow();
        if flow.unsent == Bytes::ZERO {
            // Unacknowledged data keeps the application from writing.
            let is_full = !self.is_closed && self.writable() < self.params.segment;
            if let Some(blocked) = paths.iter().find(|path| is_full && path.has_room()) {
                self.scheduler.on_blocked(now, blocked.id);
            }
            return self.params.handler && is_full && self.give_what_blocks(now, &flow, &paths);
        }
        let len = flow.unsent.min(self.params.segment);
        if flow.window_left < len {
            return self.on_window_full(now, &flow, &paths);
        }
        let data = Block { start: self.next, end: self.next + len.get() };
        let (first, copies) = match self.scheduler.choose(now, &flow, &paths) {
            Choice::Wait => return false,
            Choice::Send(path) => (path, PathSet::EMPTY),
            Choice::Copies(path, copies) => (path, copies),
        };
        self.subflow_mut(first).carry(data);
        for path in copies.iter() {
            self.subflow_mut(path).carry(data);
            self.stats.copies += 1;
        }
        self.next = data.end;
        self.written = self.written.max(data.end);
        let paths = copies.with(first);
        self.outstanding.push_back(Outstanding { data, paths, is_due_again: false });
        self.stats.segments += 1;
        true
    }

    fn on_window_full(&mut self, now: Time, flow: &SendState, paths: &[PathState]) -> bool {
        let Some(blocked) = paths.iter().find(|path| path.has_room()) else { return false };
        self.stats.blocked += 1;
        self.scheduler.on_blocked(now, blocked.id);
        self.params.handler && self.give_what_blocks(now, flow, paths)
    }

    /// The data that is to be sent, for the scheduler.
    pub(super) fn flow(&self) -> SendState {
        let room = if self.is_unlimited { self.writable() } else { Bytes::ZERO };
        SendState {
            unsent: Bytes::new(self.written - self.next) + room,
            window_left: Bytes::new(self.window_end.saturating_sub(self.next)),
            window: Bytes::new(self.window_end.saturating_sub(self.acked_to)),
            interval: Span::ZERO,
        }
    }

    pub(super) fn subflow_mut(&mut self, path: PathId) -> &mut Subflow {
        &mut self.subflows[usize::from(path.0)]
    }
}

impl Outlet for MultipathSender {
    fn write(&mut self, bytes: Bytes) -> Bytes {
        let taken = bytes.min(self.writable());
        self.written += taken.get();
        taken
    }

    fn offer(&mut self, now: Time, block: Bytes) -> bool {
        let fits = match self.params.independent {
            true => self.assign(now, block),
            false => self.writable() >= block && self.write(block) == block,
        };
        self.stats.refused += u64::from(!fits);
        fits
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use freshline_core::path::MinSrtt;
    use freshline_core::receiver::Fixed;
    use freshline_core::unit::Packets;

    use super::*;
    use crate::tcp::congestion::FixedWindow;
    use crate::tcp::multipath::MultipathReceiver;
    use crate::tcp::{ReceiverParams, SenderParams};

    const SEGMENT: Bytes = Bytes::new(1_428);

    /// Counts the calls that report the connection as blocked.
    #[derive(Debug)]
    struct Counts(Arc<AtomicU64>, MinSrtt);

    impl Scheduler for Counts {
        fn name(&self) -> &'static str {
            "counts"
        }

        fn choose(&mut self, now: Time, flow: &SendState, paths: &[PathState]) -> Choice {
            assert!(flow.window >= flow.window_left, "{flow:?}");
            self.1.choose(now, flow, paths)
        }

        fn on_blocked(&mut self, _now: Time, _path: PathId) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often the scheduler of an unlimited source saw a blocked connection in one second over
    /// two paths of 10 and 40 ms, each with a window of 50 segments, with buffers of this many
    /// segments.
    fn blocked(send_buffer: u64, receive_window: u64) -> u64 {
        let count = Arc::new(AtomicU64::new(0));
        let memory = Bytes::new(send_buffer * SEGMENT.get() * 16 / 9 + 16);
        let buffer = BufferParams { default: memory, max: memory };
        let large = Bytes::new(1 << 30);
        let unbounded = BufferParams { default: large, max: large };
        let params = SenderParams { segment: SEGMENT, buffer: unbounded, ..Default::default() };
        let law = || Box::new(FixedWindow::new(Packets::new(50)));
        let senders = vec![Sender::new(params, law()), Sender::new(params, law())];
        let params =
            MultipathParams { segment: SEGMENT, buffer, handler: false, independent: false };
        let scheduler = Box::new(Counts(Arc::clone(&count), MinSrtt::new()));
        let mut sender = MultipathSender::new(params, senders, scheduler);
        let window = Box::new(Fixed::new(SEGMENT * receive_window));
        let mut receiver = MultipathReceiver::new(2, ReceiverParams::default(), window);
        sender.set_unlimited();
        sender.connect(Time::ZERO);
        let mut on_the_way = BTreeMap::new();
        let mut now = Time::ZERO;
        let mut serial = 0u64;
        while now < Time::ZERO + Span::from_secs(1) {
            let mut sent: Vec<(bool, usize, Carried)> = Vec::new();
            while let Some((path, carried)) = sender.poll_transmit(now) {
                sent.push((true, path, carried));
            }
            while let Some((path, carried)) = receiver.poll_transmit(now) {
                sent.push((false, path, carried));
            }
            for item in sent {
                serial += 1;
                let delay = Span::from_millis([5, 20][item.1]);
                on_the_way.insert((now + delay, serial), item);
            }
            let arrival = on_the_way.keys().next().map(|(at, _)| *at);
            let Some(next) =
                Time::earliest([arrival, sender.poll_timeout(), receiver.poll_timeout()])
            else {
                break;
            };
            now = now.max(next);
            if arrival.is_some_and(|at| at <= now) {
                let (_, (forth, path, carried)) = on_the_way.pop_first().unwrap();
                if forth {
                    receiver.on_segment(now, path, &carried);
                } else {
                    sender.on_segment(now, path, &carried);
                }
            } else {
                sender.handle_timeout(now);
                receiver.handle_timeout(now);
            }
        }
        assert!(receiver.delivered() > SEGMENT * 50, "{:?}", receiver.delivered());
        count.load(Ordering::Relaxed)
    }

    #[test]
    fn schedulers_are_told_when_window_or_send_buffer_stop_a_path_with_room() {
        assert_eq!(blocked(1_000, 1_000), 0, "both windows of 50 fit");
        assert!(blocked(1_000, 60) > 10, "the receive window is full");
        assert!(blocked(60, 1_000) > 10, "the send buffer is full");
    }
}
