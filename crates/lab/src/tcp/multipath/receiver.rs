//! The receiver: reassembles the stream from the data of its subflows.

use std::collections::VecDeque;

use freshline_core::link::SpanHistogram;
use freshline_core::receiver::{Arrival, WindowLaw};
use freshline_core::unit::{Bytes, Span, Time};

use super::{Carried, DataAck, Mapping};
use crate::tcp::ranges::Ranges;
use crate::tcp::segment::Block;
use crate::tcp::{Receiver, ReceiverParams};

/// The window of each subflow alone, which is unlimited: the connection's window applies.
const UNBOUNDED: Bytes = Bytes::new(1 << 40);

/// The reordering delay: how long data was held back for data of other subflows.
#[derive(Debug, Clone)]
pub struct Reordering {
    /// The time that each segment was held back before in-order delivery, zero included.
    pub delays: SpanHistogram,
}

/// The receiving end of a connection. The application reads at once.
#[derive(Debug)]
pub struct MultipathReceiver {
    subflows: Vec<Inlet>,
    /// All data below this offset has been delivered.
    expected: u64,
    beyond: Ranges,
    /// The data in `beyond`, and when it arrived.
    waiting: VecDeque<(Block, Time)>,
    law: Box<dyn WindowLaw>,
    /// The right edge of the window announced last.
    edge: u64,
    largest: u64,
    reordering: Reordering,
    /// Each subflow is a stream of its own, with a window of its own.
    is_independent: bool,
}

/// A subflow's receiver.
#[derive(Debug)]
struct Inlet {
    receiver: Receiver,
    /// Mappings of data that it has not delivered yet, in its order; a segment may arrive twice.
    mappings: VecDeque<Mapping>,
    last_echo: Option<Time>,
    round_trip: Option<Span>,
}

/// A window that never limits the sender.
#[derive(Debug)]
struct Unbounded;

impl WindowLaw for Unbounded {
    fn name(&self) -> &'static str {
        "unbounded"
    }

    fn on_round_trip(&mut self, _now: Time, _sample: Span) {}

    fn on_arrival(&mut self, _now: Time, _arrival: Arrival) {}

    fn on_read(&mut self, _now: Time, _bytes: Bytes) {}

    fn window(&self) -> Bytes {
        UNBOUNDED
    }
}

impl MultipathReceiver {
    /// A receiver with `subflows` subflows and one window over all, controlled by `law`.
    pub fn new(subflows: usize, params: ReceiverParams, law: Box<dyn WindowLaw>) -> Self {
        Self {
            subflows: (0..subflows).map(|_| Inlet::new(params, Box::new(Unbounded))).collect(),
            expected: 0,
            beyond: Ranges::default(),
            waiting: VecDeque::new(),
            law,
            edge: 0,
            largest: 0,
            reordering: Reordering { delays: SpanHistogram::new() },
            is_independent: false,
        }
    }

    /// The receivers of independent streams, with one window law each.
    pub fn independent(params: ReceiverParams, laws: Vec<Box<dyn WindowLaw>>) -> Self {
        let subflows = laws.into_iter().map(|law| Inlet::new(params, law)).collect();
        Self { subflows, is_independent: true, ..Self::new(0, params, Box::new(Unbounded)) }
    }

    /// The number of bytes delivered in order; for independent streams, each in its own order.
    pub fn delivered(&self) -> Bytes {
        if self.is_independent {
            let delivered = self.subflows.iter().map(|inlet| inlet.receiver.delivered().get());
            return Bytes::new(delivered.sum());
        }
        Bytes::new(self.expected)
    }

    /// The number of bytes that a subflow has delivered, copies included.
    pub fn delivered_by(&self, subflow: usize) -> Bytes {
        self.subflows[subflow].receiver.delivered()
    }

    /// The reordering delay of data.
    pub const fn reordering(&self) -> &Reordering {
        &self.reordering
    }

    /// Discards the statistics so far.
    pub fn begin_measuring(&mut self) {
        self.reordering.delays = SpanHistogram::new();
    }

    /// A segment has arrived on a subflow. Returns whether more data has been delivered.
    pub fn on_segment(&mut self, now: Time, subflow: usize, carried: &Carried) -> bool {
        let before = self.delivered();
        let inlet = &mut self.subflows[subflow];
        if self.is_independent {
            inlet.receiver.on_segment(now, &carried.segment);
            return self.delivered() > before;
        }
        if let Some(mapping) = carried.mapping {
            inlet.insert(mapping);
        }
        inlet.receiver.on_segment(now, &carried.segment);
        if let (true, Some(echo)) = (carried.segment.len > 0, carried.segment.echo)
            && inlet.last_echo.replace(echo) != Some(echo)
        {
            inlet.round_trip = Some(now.since(echo));
            // The window must hold for the slowest (RFC 8684 section 3.3.1).
            let slowest = self.subflows.iter().filter_map(|inlet| inlet.round_trip).max();
            slowest.into_iter().for_each(|sample| self.law.on_round_trip(now, sample));
        }
        let before = self.expected;
        while let Some(data) = self.subflows[subflow].next_whole() {
            self.take(now, data);
        }
        let after = self.expected;
        if after > before {
            self.law.on_read(now, Bytes::new(after - before));
        }
        after > before
    }

    /// The next ack to send, with its subflow. Call it until it returns `None`.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(usize, Carried)> {
        let mut subflows = self.subflows.iter_mut().enumerate();
        let (subflow, segment) =
            subflows.find_map(|(at, inlet)| Some((at, inlet.receiver.poll_transmit(now)?)))?;
        self.edge = self.edge.max(self.expected + self.law.window().get());
        let data_ack = DataAck { acked_to: self.expected, window_end: self.edge };
        let data_ack = (!self.is_independent).then_some(data_ack);
        Some((subflow, Carried { segment, mapping: None, data_ack }))
    }

    /// When to call [`MultipathReceiver::handle_timeout`] next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.subflows.iter().filter_map(|inlet| inlet.receiver.poll_timeout()).min()
    }

    /// The time given by [`MultipathReceiver::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Time) {
        for Inlet { receiver, .. } in &mut self.subflows {
            if receiver.poll_timeout().is_some_and(|at| at <= now) {
                receiver.handle_timeout(now);
            }
        }
    }

    /// Data has arrived in its subflow's order.
    fn take(&mut self, now: Time, data: Block) {
        let fresh = Block { start: data.start.max(self.expected), ..data };
        if self.beyond.first_gap(fresh).is_none() {
            return;
        }
        self.largest = self.largest.max(data.end - data.start);
        let bytes = Bytes::new(fresh.end - fresh.start);
        self.law.on_arrival(now, Arrival { bytes, segment: Bytes::new(self.largest) });
        let whole = self.beyond.insert(fresh);
        if whole.start > self.expected {
            self.waiting.push_back((fresh, now));
            return;
        }
        self.expected = whole.end;
        self.beyond.remove_below(whole.end);
        self.reordering.delays.record(Span::ZERO);
        let Self { waiting, reordering, .. } = self;
        waiting.retain(|(block, since)| {
            let is_delivered = block.end <= whole.end;
            if is_delivered {
                reordering.delays.record(now.since(*since));
            }
            !is_delivered
        });
    }
}

impl Inlet {
    fn new(params: ReceiverParams, law: Box<dyn WindowLaw>) -> Self {
        let receiver = Receiver::with_law(params, law);
        Self { receiver, mappings: VecDeque::new(), last_echo: None, round_trip: None }
    }

    /// Inserts in order, each mapping once, and none of delivered data.
    fn insert(&mut self, mapping: Mapping) {
        if mapping.end() <= self.receiver.delivered().get() {
            return;
        }
        let at = self.mappings.partition_point(|known| known.start < mapping.start);
        if self.mappings.get(at).is_none_or(|known| known.start != mapping.start) {
            self.mappings.insert(at, mapping);
        }
    }

    /// The data of the next mapping that the subflow has delivered.
    fn next_whole(&mut self) -> Option<Block> {
        let delivered = self.receiver.delivered().get();
        self.mappings.front().filter(|first| first.end() <= delivered)?;
        self.mappings.pop_front().map(|mapping| mapping.data)
    }
}
