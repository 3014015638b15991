//! What applications do with a stream: bulk, constant bit rate, request and response, updates, web
//! pages, video.
//!
//! An application is driven like everything else: `handle_timeout` at `poll_timeout`, and in between it is
//! told what its receiver has delivered. It writes into the [`Sender`] that it is handed. The bulk
//! application is [`Sender::set_unlimited`].

use std::collections::VecDeque;

use freshline_core::unit::{BitRate, Bytes, Span, Time};

mod bola;
mod pages;
mod video;

pub use pages::{Page, Pages};
pub use video::{Video, VideoOutcome, VideoParams};

use super::Sender;

/// What an application writes into.
pub trait Outlet {
    /// Writes up to `bytes`: how many of them it takes.
    fn write(&mut self, bytes: Bytes) -> Bytes;

    /// Writes a whole block, or refuses it where it does not fit.
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
/// What the send buffer does not take waits in the application, so that no byte is left out and
/// the load offered is the same over any path; or it is lost ([`Cbr::dropping`]).
#[derive(Debug, Clone)]
pub struct Cbr {
    block: Bytes,
    period: Span,
    next: Time,
    waiting: Bytes,
    drops: bool,
}

impl Cbr {
    /// Writes `block` bytes at a time, the first of them at `start`, at `rate` of payload.
    pub fn new(start: Time, block: Bytes, rate: BitRate) -> Self {
        let period = rate.time_to_send(block);
        Self { block, period, next: start, waiting: Bytes::ZERO, drops: false }
    }

    /// Loses a block that the send buffer does not take whole, as with ns-3's sockets.
    #[must_use]
    pub fn dropping(self) -> Self {
        Self { drops: true, ..self }
    }

    /// When the next block is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        Some(self.next)
    }

    /// Writes what is due, and what waits as far as it fits.
    pub fn handle_timeout(&mut self, now: Time, sender: &mut impl Outlet) {
        while self.next <= now {
            if self.drops {
                sender.offer(now, self.block);
            } else {
                self.waiting += self.block;
            }
            // A rate beyond measure still lets time pass.
            self.next += self.period.max(Span::from_nanos(1));
        }
        self.waiting = self.waiting - sender.write(self.waiting);
    }
}

/// A client that asks, waits for the whole answer, thinks, and asks again.
///
/// Requests take one stream, and responses another one the other way: segments of a real
/// connection would carry acks beside them, which here have packets of their own.
#[derive(Debug, Clone)]
pub struct RequestResponse {
    params: RequestResponseParams,
    turn: Turn,
    /// Responses complete.
    responses: u64,
    /// Requests answered by the server.
    answered: u64,
    /// What the client has written, but its send buffer not yet taken.
    asking: Bytes,
    /// The same of the server.
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

    /// When the client asks next, unless it waits.
    pub fn poll_timeout(&self) -> Option<Time> {
        match self.turn {
            Turn::Thinking { until } => Some(until),
            Turn::Waiting { .. } => None,
        }
    }

    /// Writes a request if one is due, and what waits of it as far as it fits.
    pub fn handle_timeout(&mut self, now: Time, client: &mut Sender) {
        if self.poll_timeout().is_some_and(|at| at <= now) {
            self.asking += self.params.request;
            self.turn = Turn::Waiting { since: now };
        }
        self.asking = self.asking - client.write(self.asking);
    }

    /// The server's end: `delivered` bytes of requests are there, and it answers those that are
    /// whole. To be called too when the server's send buffer may have room again.
    pub fn on_requests(&mut self, delivered: Bytes, server: &mut Sender) {
        let whole = delivered.get() / self.params.request.get().max(1);
        while self.answered < whole {
            self.answered += 1;
            self.answering += self.params.response;
        }
        self.answering = self.answering - server.write(self.answering);
    }

    /// The client's end: `delivered` bytes of responses are there. Gives the time from request to
    /// response when that completes one.
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

    /// When the client sent a request that is not answered yet.
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

/// Updates over a stream: knows where in it each of them ends and when it was generated.
///
/// The stream delivers every update, in order, however old it has become. When to generate one
/// is the caller's affair: a rate law, a schedule, or whenever the buffer has room.
#[derive(Debug, Clone, Default)]
pub struct UpdateSource {
    /// On their way, the oldest first.
    in_flight: VecDeque<Update>,
    refused: u64,
}

/// An update in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Update {
    /// When it was generated.
    pub generated_at: Time,
    /// The offset behind its last byte.
    end: Bytes,
}

impl UpdateSource {
    /// A source with nothing under way.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes what is left of the newest update, `left`; once all of it has been sent, generates another one
    /// of `size` bytes if the sender could send it at once, and writes what fits. So each update is as new
    /// as can be when it leaves, and none is left out or waits behind another one at the source.
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

    /// The next update that is whole at the far end, where `delivered` bytes are there; call it
    /// until there is none.
    pub fn poll_delivered(&mut self, delivered: Bytes) -> Option<Update> {
        self.in_flight.front().filter(|update| update.end <= delivered)?;
        self.in_flight.pop_front()
    }

    /// How many updates are written and not yet delivered.
    pub fn backlog(&self) -> usize {
        self.in_flight.len()
    }

    /// How many updates found no room.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}
