//! The receiver of a stream.
//!
//! ```text
//! segment ─► handshake ─► ECN ─► reassembly ─► delivered, in order
//!                                   │
//!                                   └─► acks: at once, or delayed   (+ SACK, window, echo)
//! ```
//!
//! The application reads at once, so the window is the one that its law allows and never closes.
//! The right edge of the window never moves back: the window becomes smaller only as data arrives.
//! The reverse path carries acks only; data in that direction is a stream of its own.

use freshline_core::receiver::{Arrival, Autotune, WindowLaw};
use freshline_core::unit::{Bytes, Span, Time};

use super::buffer::BufferParams;
use super::ranges::Ranges;
use super::segment::{Block, Flags, SackBlocks, Segment};

/// Settings of a [`Receiver`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReceiverParams {
    /// The receive buffer, of which half counts as window (`tcp_rmem`).
    pub buffer: BufferParams,
    /// The maximum delay of the ack of a lone segment: 40 ms, as in Linux.
    pub ack_delay: Span,
    /// The maximum number (16) of segments that are acknowledged at once at the start and after a
    /// pause. This lets slow start run at its full speed.
    pub quick_acks: u32,
    /// How marks are echoed; with `None` the receiver does not support ECN.
    pub ecn: Option<Echo>,
}

/// How a receiver reports marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Echo {
    /// In every ack from a mark on until the sender has reported a reduced window (RFC 3168 section
    /// 6.1.3).
    UntilReduced,
    /// In exactly those acks that cover marked segments; a change is acknowledged at once (RFC 8257
    /// section 3.2).
    EachMark,
}

impl Default for ReceiverParams {
    fn default() -> Self {
        Self {
            buffer: BufferParams::RECEIVE,
            ack_delay: Span::from_millis(40),
            quick_acks: 16,
            ecn: None,
        }
    }
}

/// An interval between segments that counts as a pause of the stream.
const PAUSE: Span = Span::from_millis(200);
/// The timeout of an unanswered SYN-ACK before its first retransmission; doubled each time.
const HANDSHAKE_TIMEOUT: Span = Span::from_secs(1);
const MAX_HANDSHAKE_DOUBLINGS: u32 = 6;

/// The receiving end. Feed it with [`Receiver::on_segment`], then call [`Receiver::poll_transmit`]
/// until it returns `None`.
#[derive(Debug)]
pub struct Receiver {
    params: ReceiverParams,
    state: State,
    /// The next offset expected, a FIN included.
    expected: u64,
    fin: Option<u64>,
    beyond: Ranges,
    /// Ranges beyond a hole by the arrival of their last segments, the most recent first.
    recent: Recent,
    law: Box<dyn WindowLaw>,
    /// The right edge of the window announced last.
    edge: u64,
    last_echo: Option<Time>,
    /// A segment that had arrived before, to be reported in the next ack (RFC 2883).
    duplicate: Option<Block>,
    /// All data below this offset is acknowledged.
    acked_to: u64,
    ack: AckState,
    /// The timestamp to echo: that of the first segment that the next ack covers.
    echo: Option<Time>,
    quick_acks: u32,
    last_arrival: Option<Time>,
    /// The congestion echo of the next ack.
    echo_mark: bool,
    /// A change of the echo first sends an ack for the segments before it.
    ack_before_change: Option<Segment>,
    largest: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Listening,
    /// A SYN was answered, and nothing else has arrived; the answer is sent again at `again_at`.
    Answered {
        again_at: Time,
        doublings: u32,
    },
    Open,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AckState {
    None,
    Delayed(Time),
    Now,
}

impl Receiver {
    /// A listening receiver, with Linux's law for the window.
    pub fn new(params: ReceiverParams) -> Self {
        Self::with_law(params, Box::new(Autotune::new(params.buffer.windows())))
    }

    /// A listening receiver, with any law for the window.
    pub fn with_law(params: ReceiverParams, law: Box<dyn WindowLaw>) -> Self {
        Self {
            state: State::Listening,
            expected: 0,
            fin: None,
            beyond: Ranges::default(),
            recent: Recent::default(),
            law,
            edge: 0,
            last_echo: None,
            duplicate: None,
            acked_to: 0,
            ack: AckState::None,
            echo: None,
            quick_acks: params.quick_acks,
            last_arrival: None,
            echo_mark: false,
            ack_before_change: None,
            largest: 0,
            params,
        }
    }

    /// The number of bytes of the stream delivered to the application, in order.
    pub fn delivered(&self) -> Bytes {
        Bytes::new(self.expected - u64::from(self.is_finished()))
    }

    /// Whether the whole stream has been delivered.
    pub fn is_finished(&self) -> bool {
        self.fin.is_some_and(|fin| self.expected > fin)
    }

    /// The present receive window: the one that the law wants, or the one allowed before.
    pub fn window(&self) -> Bytes {
        self.law.window().max(Bytes::new(self.edge.saturating_sub(self.expected)))
    }

    /// A segment has arrived. Data that it completes counts in [`Receiver::delivered`] at once.
    pub fn on_segment(&mut self, now: Time, segment: &Segment) {
        if segment.flags.syn {
            self.on_syn(now, segment);
            return;
        }
        if self.state == State::Listening {
            return;
        }
        self.state = State::Open;
        if segment.end() > segment.seq {
            self.on_data(now, segment);
        }
    }

    /// When an ack is due without further input.
    pub fn poll_timeout(&self) -> Option<Time> {
        match (self.state, self.ack) {
            (State::Answered { again_at, .. }, AckState::None) => Some(again_at),
            (_, AckState::Delayed(at)) => Some(at),
            _ => None,
        }
    }

    /// The time given by [`Receiver::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Time) {
        if let State::Answered { again_at, doublings } = &mut self.state
            && *again_at <= now
        {
            *doublings = (*doublings + 1).min(MAX_HANDSHAKE_DOUBLINGS);
            *again_at = now + HANDSHAKE_TIMEOUT * (1 << *doublings);
            self.ack = AckState::Now;
        }
        if matches!(self.ack, AckState::Delayed(at) if at <= now) {
            self.ack = AckState::Now;
        }
    }

    /// The next segment to send. Call it until it returns `None`.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Segment> {
        if let Some(before) = self.ack_before_change.take() {
            return Some(before);
        }
        if self.ack != AckState::Now {
            return None;
        }
        self.quick_acks = self.quick_acks.saturating_sub(1);
        let ack = self.acknowledgement(now);
        self.edge = ack.ack + ack.window;
        self.ack = AckState::None;
        self.acked_to = self.expected;
        self.duplicate = None;
        Some(ack)
    }

    fn acknowledgement(&self, now: Time) -> Segment {
        let flags = Flags {
            ack: true,
            syn: matches!(self.state, State::Answered { .. }),
            ece: self.echo_mark,
            ..Flags::default()
        };
        Segment {
            ack: self.expected,
            window: self.window().get(),
            flags,
            sack: self.recent.behind(self.duplicate),
            sent_at: now,
            echo: self.echo,
            ..Segment::default()
        }
    }

    fn on_syn(&mut self, now: Time, syn: &Segment) {
        if self.state == State::Listening {
            self.state = State::Answered { again_at: now + HANDSHAKE_TIMEOUT, doublings: 0 };
        }
        self.echo = Some(syn.sent_at);
        self.ack = AckState::Now;
    }

    fn on_data(&mut self, now: Time, segment: &Segment) {
        self.on_ecn(now, segment);
        // RFC 7323 section 4.3: the echo is of the segment at the left edge of the range that the
        // ack covers.
        if segment.seq <= self.acked_to {
            self.echo = self.echo.max(Some(segment.sent_at));
        }
        let block = Block {
            start: segment.seq.max(self.expected),
            end: segment.end().min(self.expected + self.window().get()),
        };
        if self.beyond.first_gap(block).is_none() {
            if segment.seq < self.expected || block.start < block.end {
                self.duplicate = Some(Block { start: segment.seq, end: segment.end() });
            }
            self.ack = AckState::Now;
            return;
        }
        if segment.flags.fin {
            self.fin.get_or_insert(segment.seq + u64::from(segment.len));
        }
        self.largest = self.largest.max(u64::from(segment.full_size()));
        self.update_law(now, segment, block);
        if self.last_arrival.is_some_and(|last| now.since(last) > PAUSE) {
            self.quick_acks = self.params.quick_acks;
        }
        self.last_arrival = Some(now);
        self.take(now, block);
    }

    fn update_law(&mut self, now: Time, segment: &Segment, block: Block) {
        if let Some(echo) = segment.echo
            && self.last_echo.replace(echo) != Some(echo)
        {
            self.law.on_round_trip(now, now.since(echo));
        }
        let bytes = Bytes::new(block.end - block.start);
        self.law.on_arrival(now, Arrival { bytes, segment: Bytes::new(self.largest.max(1)) });
    }

    fn take(&mut self, now: Time, block: Block) {
        let before = self.expected;
        let in_order = block.start == self.expected;
        let was_whole = self.beyond.is_empty();
        if in_order {
            self.expected = block.end;
            if !was_whole {
                self.beyond.insert(block);
                self.expected =
                    self.beyond.around(block.start).map_or(block.end, |whole| whole.end);
                self.beyond.remove_below(self.expected);
                self.recent.remove_below(self.expected);
            }
            self.law.on_read(now, Bytes::new(self.expected - before));
        } else {
            let whole = self.beyond.insert(block);
            self.recent.push(whole);
        }
        self.schedule_ack(now, in_order && was_whole);
    }

    /// At once for a segment that fills or makes a hole, for the second full segment, at the start
    /// and at the end; otherwise after a delay (RFC 5681 section 4.2).
    fn schedule_ack(&mut self, now: Time, plain: bool) {
        let second = self.expected - self.acked_to > self.largest;
        if !plain || second || self.quick_acks > 0 || self.is_finished() {
            self.ack = AckState::Now;
        } else if self.ack == AckState::None {
            self.ack = AckState::Delayed(now + self.params.ack_delay);
        }
    }

    fn on_ecn(&mut self, now: Time, segment: &Segment) {
        match self.params.ecn {
            None => {}
            Some(Echo::UntilReduced) => {
                if segment.flags.cwr {
                    self.echo_mark = false;
                }
                self.echo_mark |= segment.flags.ce;
            }
            Some(Echo::EachMark) => self.echo_each(now, segment.flags.ce),
        }
    }

    fn echo_each(&mut self, now: Time, mark: bool) {
        let changes = mark != self.echo_mark;
        if changes && self.acked_to < self.expected {
            self.ack_before_change = Some(self.acknowledgement(now));
            self.acked_to = self.expected;
        }
        self.echo_mark = mark;
    }
}

/// The ranges beyond a hole in the order in which they last grew (RFC 2018 section 4).
#[derive(Debug, Default)]
struct Recent {
    blocks: [Option<Block>; SackBlocks::MOST],
}

impl Recent {
    /// `whole` has grown; ranges that it contains are removed.
    fn push(&mut self, whole: Block) {
        let mut older = self
            .blocks
            .into_iter()
            .flatten()
            .filter(|old| old.end <= whole.start || whole.end <= old.start);
        self.blocks = std::array::from_fn(|at| if at == 0 { Some(whole) } else { older.next() });
    }

    fn remove_below(&mut self, offset: u64) {
        let mut left = self.blocks.into_iter().flatten().filter(|block| block.end > offset);
        self.blocks = std::array::from_fn(|_| left.next());
    }

    fn behind(&self, duplicate: Option<Block>) -> SackBlocks {
        let mut sack = SackBlocks::default();
        duplicate
            .into_iter()
            .chain(self.blocks.into_iter().flatten())
            .for_each(|block| sack.push(block));
        sack
    }
}
