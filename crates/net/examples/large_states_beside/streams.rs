//! States over QUIC, one stream each: the applications at both ends, in virtual time and over sockets.
//!
//! The application begins a state as soon as all of the previous one has been sent for the first time and
//! the window has room. It samples the state when its first packet leaves.

use std::collections::VecDeque;
use std::time::Instant;

use freshline_core::unit::Time;
use noq_proto::{Dir, PathId, StreamEvent, StreamId, VarInt};

use crate::ends::{End, MTU};
use crate::watched::Seen;

/// Which streams of older states are reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resets {
    /// All older streams, when a newer state begins: lost packets of a state are not retransmitted after its
    /// end.
    AtOnce,
    /// Streams older than a completely acknowledged one, and, when a newer state begins, streams older than
    /// the previous one.
    BehindTwo,
}

/// The application that sends.
pub(crate) struct Writer {
    resets: Resets,
    state: Vec<u8>,
    /// Streams that are neither reset nor completely acknowledged, the oldest first.
    open: VecDeque<StreamId>,
    /// When each state was sampled, by the number of its stream.
    sampled_at: Vec<Time>,
    /// Whether no packet of the newest state has left.
    is_unsampled: bool,
}

impl Writer {
    pub(crate) fn new(resets: Resets, state: Vec<u8>) -> Self {
        let (open, sampled_at) = (VecDeque::new(), Vec::new());
        Self { resets, state, open, sampled_at, is_unsampled: false }
    }

    /// When each state was sampled, by the number of its stream.
    pub(crate) fn sampled_at(&self) -> &[Time] {
        &self.sampled_at
    }

    /// Sends all datagrams that may leave now, including those of further states. `send` transmits the
    /// datagram of the end, and `clock` gives the sampling times of states.
    pub(crate) fn fill(
        &mut self,
        end: &mut End,
        seen: &Seen,
        now: Instant,
        clock: impl Fn() -> Time,
        mut send: impl FnMut(&End),
    ) {
        self.on_events(end);
        loop {
            seen.begin_attempt();
            if end.poll_transmit(now) {
                self.on_sent(clock());
                send(end);
            } else if !self.begin_if_idle(end, seen) {
                break;
            }
        }
    }

    /// Begins a state if all previous ones have left and the next packet may leave; whether it did.
    fn begin_if_idle(&mut self, end: &mut End, seen: &Seen) -> bool {
        let Some(connection) = end.connection() else { return false };
        let window =
            connection.congestion_state(PathId::ZERO).map_or(0, |control| control.window());
        let has_room = seen.in_flight() + u64::from(MTU) <= window;
        if self.is_unsampled || !has_room || seen.was_held_back() {
            return false;
        }
        let Some(id) = connection.streams().open(Dir::Uni) else { return false };
        let kept = match self.resets {
            Resets::AtOnce => 0,
            Resets::BehindTwo => 1,
        };
        let surplus = self.open.len().saturating_sub(kept);
        self.reset(end, surplus);
        let Some(connection) = end.connection() else { return false };
        let mut stream = connection.send_stream(id);
        // Lost parts of older states go first: the priority decreases with the number.
        let priority = i32::try_from(id.index()).map_or(i32::MIN, |index| -index);
        stream.set_priority(priority).expect("the stream is open");
        let written = stream.write(&self.state).expect("flow control limits nothing");
        assert_eq!(written, self.state.len(), "flow control limits nothing");
        stream.finish().expect("the stream is open");
        self.open.push_back(id);
        self.sampled_at.push(Time::ZERO);
        self.is_unsampled = true;
        true
    }

    /// A packet has left.
    fn on_sent(&mut self, now: Time) {
        if let Some(sampled_at) = self.sampled_at.last_mut().filter(|_| self.is_unsampled) {
            *sampled_at = now;
            self.is_unsampled = false;
        }
    }

    fn on_events(&mut self, end: &mut End) {
        while let Some(event) = end.events.pop_front() {
            let StreamEvent::Finished { id } = event else { continue };
            let older = self.open.partition_point(|open| open.index() < id.index());
            self.reset(end, older);
            self.open.retain(|open| *open != id);
        }
    }

    /// Resets the oldest `count` streams.
    fn reset(&mut self, end: &mut End, count: usize) {
        let Some(connection) = end.connection() else { return };
        for id in self.open.drain(..count) {
            // A stream that has been acknowledged in the meantime is closed.
            let _ = connection.send_stream(id).reset(VarInt::from_u32(0));
        }
    }
}

/// The application that receives: `complete` gets the number of each state whose stream is complete.
pub(crate) fn read(end: &mut End, mut complete: impl FnMut(u64)) {
    while let Some(event) = end.events.pop_front() {
        match event {
            StreamEvent::Opened { dir: Dir::Uni } => {
                while let Some(id) = end.connection().and_then(|it| it.streams().accept(Dir::Uni)) {
                    read_stream(end, id, &mut complete);
                }
            }
            StreamEvent::Readable { id } => read_stream(end, id, &mut complete),
            _ => {}
        }
    }
}

fn read_stream(end: &mut End, id: StreamId, complete: &mut impl FnMut(u64)) {
    let Some(connection) = end.connection() else { return };
    let mut stream = connection.recv_stream(id);
    // It may have been read to its end, or reset.
    let Ok(mut chunks) = stream.read(false) else { return };
    loop {
        match chunks.next(usize::MAX) {
            Ok(Some(_)) => {}
            Ok(None) => {
                complete(id.index());
                break;
            }
            Err(_) => break,
        }
    }
    let _ = chunks.finalize();
}
