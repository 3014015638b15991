//! Applications that write into a stream: bulk, constant bit rate, request and response, updates,
//! web pages, video.
//!
//! An application is driven like everything else: call `handle_timeout` at `poll_timeout`, and
//! report the bytes that its receiver has delivered. It writes into the [`Sender`] that it is
//! handed. The bulk application is [`Sender::set_unlimited`].

use std::collections::VecDeque;

use freshline_core::unit::{BitRate, Bytes, Span, Time};

mod bola;
mod pages;
mod video;

pub use pages::{Page, Pages};
pub use video::{Video, VideoOutcome, VideoParams};

use super::Sender;

/// The destination of an application's writes.
pub trait Outlet {
    /// Writes up to `bytes`. Returns the number of bytes accepted.
    fn write(&mut self, bytes: Bytes) -> Bytes;

    /// Writes a whole block. Returns `false` if it does not fit.
    fn offer(&mut self, now: Time, block: Bytes) -> bool;
}

impl Outlet for Sender {
    fn write(&mut self, bytes: Bytes) -> Bytes {
        self.write(bytes)
    }

    fn offer(&mut self, _now: Time, block: Bytes) -> bool {
        let fits = self.writable() >= block;
        if fits {
            self.write(block);
        }
        fits
    }
}

/// Writes blocks of one size at a constant rate.
///
/// Data that does not fit into the send buffer is queued in the application, so that no byte is
/// lost and the offered load is the same over any path; with [`Cbr::dropping`], it is dropped
/// instead.
#[derive(Debug, Clone)]
pub struct Cbr {
    block: Bytes,
    period: Span,
    next: Time,
    waiting: Bytes,
    drops: bool,
}

impl Cbr {
    /// Writes `block` bytes at a time, beginning at `start`, at a payload rate of `rate`.
    pub fn new(start: Time, block: Bytes, rate: BitRate) -> Self {
        let period = rate.time_to_send(block);
        Self { block, period, next: start, waiting: Bytes::ZERO, drops: false }
    }

    /// Drops a block that does not fit into the send buffer as a whole, as with ns-3's sockets.
    #[must_use]
    pub fn dropping(self) -> Self {
        Self { drops: true, ..self }
    }

    /// When the next block is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        Some(self.next)
    }

    /// Writes the blocks that are due, and as much of the application's queue as fits.
    pub fn handle_timeout(&mut self, now: Time, sender: &mut impl Outlet) {
        while self.next <= now {
            if self.drops {
                sender.offer(now, self.block);
            } else {
                self.waiting += self.block;
            }
            // At very high rates, time still advances.
            self.next += self.period.max(Span::from_nanos(1));
        }
        self.waiting = self.waiting - sender.write(self.waiting);
    }
}

/// A client that sends a request, receives the whole response, thinks, and sends the next request.
///
/// Requests use one stream and responses a second one in the opposite direction. A real connection
/// would piggyback acks on its data segments; here acks are separate packets.
#[derive(Debug, Clone)]
pub struct RequestResponse {
    params: RequestResponseParams,
    turn: Turn,
    /// Responses complete.
    responses: u64,
    /// Requests answered by the server.
    answered: u64,
    /// Bytes that the client has written and its send buffer has not yet accepted.
    asking: Bytes,
    /// The same for the server.
    answering: Bytes,
}

/// Settings of a [`RequestResponse`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestResponseParams {
    /// The size of a request, above zero.
    pub request: Bytes,
    /// The size of a response, above zero.
    pub response: Bytes,
    /// From the end of a response to the next request.
    pub think: Span,
}

#[derive(Debug, Clone, Copy)]
enum Turn {
    Thinking { until: Time },
    Waiting { since: Time },
}

impl RequestResponse {
    /// A client whose first request is due at `start`.
    pub fn new(params: RequestResponseParams, start: Time) -> Self {
        Self {
            params,
            turn: Turn::Thinking { until: start },
            responses: 0,
            answered: 0,
            asking: Bytes::ZERO,
            answering: Bytes::ZERO,
        }
    }

    /// When the client sends its next request; `None` while it expects a response.
    pub fn poll_timeout(&self) -> Option<Time> {
        match self.turn {
            Turn::Thinking { until } => Some(until),
            Turn::Waiting { .. } => None,
        }
    }

    /// Writes a request if one is due, and as much of a queued request as fits.
    pub fn handle_timeout(&mut self, now: Time, client: &mut Sender) {
        if self.poll_timeout().is_some_and(|at| at <= now) {
            self.asking += self.params.request;
            self.turn = Turn::Waiting { since: now };
        }
        self.asking = self.asking - client.write(self.asking);
    }

    /// At the server: `delivered` bytes of requests have arrived. The server answers the complete
    /// ones. Call this also when the server's send buffer may have room again.
    pub fn on_requests(&mut self, delivered: Bytes, server: &mut Sender) {
        let whole = delivered.get() / self.params.request.get().max(1);
        while self.answered < whole {
            self.answered += 1;
            self.answering += self.params.response;
        }
        self.answering = self.answering - server.write(self.answering);
    }

    /// At the client: `delivered` bytes of responses have arrived. Returns the time from request to
    /// response when this completes a response.
    pub fn on_responses(&mut self, now: Time, delivered: Bytes) -> Option<Span> {
        let whole = delivered.get() / self.params.response.get().max(1);
        let Turn::Waiting { since } = self.turn else { return None };
        if whole <= self.responses {
            return None;
        }
        self.responses = whole;
        self.turn = Turn::Thinking { until: now + self.params.think };
        Some(now.since(since))
    }

    /// When the client sent the request that is not answered yet.
    pub fn waiting_since(&self) -> Option<Time> {
        match self.turn {
            Turn::Thinking { .. } => None,
            Turn::Waiting { since } => Some(since),
        }
    }

    /// Responses complete so far.
    pub fn responses(&self) -> u64 {
        self.responses
    }
}

/// Updates over a stream: keeps each update's end offset in the stream and its generation time.
///
/// The stream delivers every update, in order, however old it is. The caller decides when to
/// generate one: a rate law, a schedule, or whenever the buffer has room.
#[derive(Debug, Clone, Default)]
pub struct UpdateSource {
    /// In flight, the oldest first.
    in_flight: VecDeque<Update>,
    refused: u64,
}

/// An update in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Update {
    /// When it was generated.
    pub generated_at: Time,
    /// The offset after its last byte.
    end: Bytes,
}

impl UpdateSource {
    /// A source with nothing in flight.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes the remaining `left` bytes of the newest update. Once all of it has been sent,
    /// generates another one of `size` bytes if the sender could send it at once, and writes as
    /// much of it as fits. So each update is as new as possible when it leaves, and none is skipped
    /// or queued behind another one at the source.
    pub fn keep_newest(&mut self, now: Time, size: Bytes, left: &mut Bytes, sender: &mut Sender) {
        if *left == Bytes::ZERO && sender.is_starved() {
            self.in_flight.push_back(Update { generated_at: now, end: sender.written() + size });
            *left = size;
        }
        *left = *left - sender.write(*left);
    }

    /// Generates an update of `size` bytes and writes it; `false` when the send buffer has no
    /// room for all of it, in which case the update is dropped and counted.
    pub fn generate(&mut self, now: Time, size: Bytes, sender: &mut Sender) -> bool {
        let fits = sender.writable() >= size;
        if fits {
            sender.write(size);
            self.in_flight.push_back(Update { generated_at: now, end: sender.written() });
        } else {
            self.refused += 1;
        }
        fits
    }

    /// The next complete update at the receiver, where `delivered` bytes have arrived. Call it
    /// until it returns `None`.
    pub fn poll_delivered(&mut self, delivered: Bytes) -> Option<Update> {
        self.in_flight.front().filter(|update| update.end <= delivered)?;
        self.in_flight.pop_front()
    }

    /// The number of updates written and not yet delivered.
    pub fn backlog(&self) -> usize {
        self.in_flight.len()
    }

    /// The number of updates dropped because the send buffer had no room.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}
