//! Runs TCP streams over one path in virtual time.
//!
//! ```text
//! senders ─► fate ─► forward path ─► receivers
//!    ▲                                  │
//!    └──── reverse path ◄──── fate ◄────┘
//! ```

// Each test uses a part of it.
#![allow(dead_code)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use freshline_core::link::{Direction, Path, PathConfig};
use freshline_core::router::{Discipline, Packet, Qdisc};
use freshline_core::unit::{Bytes, Packets, Span, Time};
use freshline_lab::tcp::congestion::{Algorithm, CongestionControl};
use freshline_lab::tcp::{Receiver, ReceiverParams, Segment, Sender, SenderParams};
use rand_pcg::Pcg64;

/// A segment in flight, and its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Carried {
    pub(crate) stream: usize,
    pub(crate) segment: Segment,
}

impl Packet for Carried {
    fn size(&self) -> Bytes {
        self.segment.wire_size()
    }
}

/// How many copies of a segment enter the path: none, one or more.
pub(crate) type Fate = dyn FnMut(Direction, &Segment) -> usize;

/// One stream.
pub(crate) struct Stream {
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    wake: Option<Time>,
}

pub(crate) struct Net<Q> {
    forward: Path<Q, Carried, Pcg64>,
    back: Path<Discipline<Carried>, Carried, Pcg64>,
    pub(crate) streams: Vec<Stream>,
    wakes: BinaryHeap<Reverse<(Time, usize)>>,
    fate: Box<Fate>,
    pub(crate) now: Time,
    /// Inputs handled, for the speed.
    pub(crate) events: u64,
}

/// Hops as they are written in flags, separated by spaces.
pub(crate) fn path(hops: &str) -> PathConfig {
    PathConfig { hop: hops.split(' ').map(|hop| hop.parse().expect("a hop")).collect() }
}

pub(crate) fn at(seconds: f64) -> Time {
    Time::ZERO + Span::from_secs_f64(seconds)
}

/// `law` with the initial window of Linux.
pub(crate) fn law(law: Algorithm) -> Box<dyn CongestionControl> {
    law.build(Packets::new(10), Bytes::new(1448), rng(1, 200))
}

impl Net<Discipline<Carried>> {
    /// Streams over `forward` and `reverse`.
    pub(crate) fn over(forward: &str, back: &str, seed: u64) -> Self {
        let forward = path(forward).build(|hop| rng(seed, hop)).expect("a path");
        Self::new(forward, back, seed)
    }
}

fn rng(seed: u64, stream: usize) -> Pcg64 {
    Pcg64::new(seed.into(), stream as u128)
}

impl<Q: Qdisc<Carried>> Net<Q> {
    pub(crate) fn new(forward: Path<Q, Carried, Pcg64>, back: &str, seed: u64) -> Self {
        Self {
            forward,
            back: path(back).build(|hop| rng(seed, 100 + hop)).expect("a path"),
            streams: Vec::new(),
            wakes: BinaryHeap::new(),
            fate: Box::new(|_, _| 1),
            now: Time::ZERO,
            events: 0,
        }
    }

    pub(crate) fn with_fate(
        mut self,
        fate: impl FnMut(Direction, &Segment) -> usize + 'static,
    ) -> Self {
        self.fate = Box::new(fate);
        self
    }

    /// Adds a stream that connects now.
    pub(crate) fn add(
        &mut self,
        law: Box<dyn CongestionControl>,
        sender: SenderParams,
        receiver: ReceiverParams,
    ) -> usize {
        self.add_towards(Receiver::new(receiver), law, sender)
    }

    /// Adds a stream that connects now, towards any receiver.
    pub(crate) fn add_towards(
        &mut self,
        receiver: Receiver,
        law: Box<dyn CongestionControl>,
        sender: SenderParams,
    ) -> usize {
        let mut sender = Sender::new(sender, law);
        sender.connect(self.now);
        self.streams.push(Stream { sender, receiver, wake: None });
        let id = self.streams.len() - 1;
        self.settle(id);
        id
    }

    /// Adds a stream that always has something to send, with the default settings.
    pub(crate) fn add_bulk(&mut self, law: Box<dyn CongestionControl>) -> usize {
        let id = self.add(law, SenderParams::default(), ReceiverParams::default());
        self.streams[id].sender.set_unlimited();
        id
    }

    /// Hands the application's wishes to a sender.
    pub(crate) fn with_sender<T>(&mut self, id: usize, act: impl FnOnce(&mut Sender) -> T) -> T {
        let result = act(&mut self.streams[id].sender);
        self.settle(id);
        result
    }

    /// Runs up to `until`.
    pub(crate) fn run(&mut self, until: Time) {
        self.run_while(until, |_| true);
    }

    /// Runs up to `until`, or until `go_on`, called after each moment, returns false.
    pub(crate) fn run_while(&mut self, until: Time, mut go_on: impl FnMut(&Self) -> bool) {
        while go_on(self) {
            let wake = self.wakes.peek().map(|Reverse((time, _))| *time);
            let next = [wake, self.forward.poll_timeout(), self.back.poll_timeout()];
            match next.into_iter().flatten().min() {
                Some(next) if next <= until => self.now = next.max(self.now),
                _ => break,
            }
            self.step();
        }
        if go_on(self) {
            self.now = until;
        }
    }

    fn step(&mut self) {
        let now = self.now;
        while let Some(arrived) = self.forward.poll(now, &mut |_| {}) {
            let Carried { stream, segment } = arrived.packet;
            self.streams[stream].receiver.on_segment(now, &segment);
            self.settle(stream);
        }
        while let Some(arrived) = self.back.poll(now, &mut |_| {}) {
            let Carried { stream, segment } = arrived.packet;
            self.streams[stream].sender.on_segment(now, &segment);
            self.settle(stream);
        }
        while let Some(Reverse((time, id))) = self.wakes.peek().copied()
            && time <= now
        {
            self.wakes.pop();
            if self.streams[id].wake == Some(time) {
                let stream = &mut self.streams[id];
                stream.wake = None;
                if stream.sender.poll_timeout().is_some_and(|at| at <= now) {
                    stream.sender.handle_timeout(now);
                }
                if stream.receiver.poll_timeout().is_some_and(|at| at <= now) {
                    stream.receiver.handle_timeout(now);
                }
                self.settle(id);
            }
        }
    }

    /// Sends the segments that a stream has to send, and notes its next wake-up time.
    fn settle(&mut self, id: usize) {
        self.events += 1;
        let now = self.now;
        let stream = &mut self.streams[id];
        while let Some(segment) = stream.sender.poll_transmit(now) {
            for _ in 0..(self.fate)(Direction::Forward, &segment) {
                self.forward.enqueue(now, Carried { stream: id, segment }, &mut |_| {});
            }
        }
        while let Some(segment) = stream.receiver.poll_transmit(now) {
            for _ in 0..(self.fate)(Direction::Reverse, &segment) {
                self.back.enqueue(now, Carried { stream: id, segment }, &mut |_| {});
            }
        }
        let wishes = [stream.sender.poll_timeout(), stream.receiver.poll_timeout()];
        if let Some(wish) = wishes.into_iter().flatten().min()
            && stream.wake.is_none_or(|wake| wake > wish || wake <= now)
        {
            stream.wake = Some(wish);
            self.wakes.push(Reverse((wish, id)));
        }
    }

    /// Packets on the forward path.
    pub(crate) fn inside(&self) -> u64 {
        self.forward.inside().get()
    }

    /// The mean goodput of stream `id` from now until `until`, in bit/s.
    pub(crate) fn goodput_until(&mut self, id: usize, until: Time) -> f64 {
        let (before, since) = (self.streams[id].receiver.delivered(), self.now);
        self.run(until);
        let bytes = self.streams[id].receiver.delivered() - before;
        bytes.get() as f64 * 8.0 / until.since(since).as_secs_f64()
    }

    /// The mean round trip of stream `id` from now until `until`.
    pub(crate) fn mean_rtt_until(&mut self, id: usize, until: Time) -> Span {
        let before = *self.streams[id].sender.stats();
        self.run(until);
        let after = self.streams[id].sender.stats();
        (after.rtt_sum - before.rtt_sum) / (after.rtt_samples - before.rtt_samples)
    }
}
