//! A client and its server: requests over one TCP stream, responses over another one the other way.
//!
//! ```text
//!   client ─► request ─► … ─► server
//!     ▲                          │
//!     └──── … ◄─── response ◄────┘
//! ```
//!
//! Both streams open when the exchange begins, so that the first response has waited for a
//! handshake too.

use freshline_core::link::{Direction, SpanHistogram};
use freshline_core::router::Ecn;
use freshline_core::unit::{Span, Time};

use super::Period;
use super::host::HostOutcome;
use super::measured::Measured;
use super::parcel::{Body, Load};
use super::stream::{Stream, StreamOutcome};
use crate::tcp::Segment;
use crate::tcp::apps::{RequestResponse, RequestResponseParams};

/// An exchange under way.
#[derive(Debug)]
pub struct Exchange {
    application: RequestResponse,
    requests: Stream,
    responses: Stream,
    ends_at: Time,
    /// How long responses took, from the end of the warm-up on.
    times: SpanHistogram,
    /// The same, all together.
    time: Span,
    /// Responses complete in the measured time.
    complete: u64,
    measured: Measured,
}

/// What an exchange was like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExchangeOutcome {
    /// From a request to the last byte of its response, on average. A request that is open at the end
    /// counts with the time that it has waited, which is a lower bound, once this is longer than the
    /// mean of the complete ones; `None` without either.
    pub response_mean: Option<Span>,
    /// What 95 % of responses did not exceed; an open request counts as in `response_mean`.
    pub response_p95: Option<Span>,
    /// Responses complete, a second; `None` if the flow has no measured time.
    pub responses_per_s: Option<f64>,
    /// What the stream of responses was like; its age means nothing here.
    pub stream: StreamOutcome,
    /// What requests met as they left their host.
    pub host: HostOutcome,
}

impl Exchange {
    /// A client that asks between two moments, over streams that nobody else writes into.
    pub fn new(
        params: RequestResponseParams,
        requests: Stream,
        responses: Stream,
        Period { from: starts_at, until: ends_at }: Period,
    ) -> Self {
        Self {
            application: RequestResponse::new(params, starts_at),
            requests,
            responses,
            ends_at,
            times: SpanHistogram::new(),
            time: Span::ZERO,
            complete: 0,
            measured: Measured::between(Period { from: starts_at, until: ends_at }),
        }
    }

    /// The warm-up has ended.
    pub fn begin_measuring(&mut self, now: Time) {
        self.requests.begin_measuring(now);
        self.responses.begin_measuring(now);
        (self.times, self.time, self.complete) = (SpanHistogram::new(), Span::ZERO, 0);
        self.measured.begin(now);
    }

    /// Something to do has come due; then [`Exchange::poll_transmit`].
    pub fn on_wake(&mut self, now: Time) {
        self.requests.on_wake(now);
        self.responses.on_wake(now);
        self.talk(now);
    }

    /// The next segment to send, from either end; call it until there is none.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(Direction, Load)> {
        if let Some((direction, load)) = self.requests.poll_transmit(now) {
            return Some((direction, Half::Requests.numbered(load)));
        }
        let (direction, load) = self.responses.poll_transmit(now)?;
        Some((Half::Responses.seen(direction), Half::Responses.numbered(load)))
    }

    /// A segment has come to an end, in a packet that tells of congestion or not.
    pub fn on_segment(&mut self, now: Time, direction: Direction, number: u32, ecn: Ecn) {
        let (half, number) = Half::of(number);
        self.stream_mut(half).on_segment(now, half.seen(direction), number, ecn);
        self.talk(now);
    }

    /// A segment was dropped on its way.
    pub fn on_dropped(&mut self, number: u32) {
        let (half, number) = Half::of(number);
        self.stream_mut(half).on_dropped(number);
    }

    /// How many responses are complete, and the sum of the times that they took.
    pub fn response_times(&self) -> (u64, Span) {
        (self.times.count(), self.time)
    }

    /// The stream of responses.
    pub const fn responses(&self) -> &Stream {
        &self.responses
    }

    /// A segment that travels in `direction`, by its number, with its direction as its stream sees
    /// it: what carries data goes there.
    pub fn segment(&self, direction: Direction, number: u32) -> Option<(Direction, &Segment)> {
        let (half, number) = Half::of(number);
        let stream = match half {
            Half::Requests => &self.requests,
            Half::Responses => &self.responses,
        };
        Some((half.seen(direction), stream.segment(number)?))
    }

    /// When to call [`Exchange::on_wake`] next.
    pub fn poll_timeout(&self) -> Option<Time> {
        let request = self.application.poll_timeout().filter(|at| *at < self.ends_at);
        Time::earliest([request, self.requests.poll_timeout(), self.responses.poll_timeout()])
    }

    /// What was measured until `now`.
    pub fn outcome(&self, now: Time) -> ExchangeOutcome {
        let waited = self.application.waiting_since().map(|since| now.since(since));
        let is_known = self.times.count() > 0;
        // A shorter wait says nothing: it would only make the mean smaller.
        let longer = waited.filter(|waited| !is_known || *waited > self.times.mean());
        let with_open = longer.map(|waited| {
            let mut times = self.times.clone();
            times.record(waited);
            times
        });
        let times = with_open.as_ref().unwrap_or(&self.times);
        let has_any = times.count() > 0;
        ExchangeOutcome {
            response_mean: has_any.then(|| times.mean()),
            response_p95: has_any.then(|| times.quantile(0.95)),
            responses_per_s: self.measured.rate(now, self.complete as f64),
            stream: self.responses.outcome(now),
            host: self.requests.outcome(now).host,
        }
    }

    /// Client and server read what has come, and write.
    fn talk(&mut self, now: Time) {
        let Self { application, requests, responses, .. } = self;
        if let Some(taken) = application.on_responses(now, responses.delivered()) {
            self.times.record(taken);
            self.time += taken;
            self.complete += u64::from(self.measured.has(now));
        }
        if now < self.ends_at {
            application.handle_timeout(now, requests.sender_mut());
        }
        application.on_requests(requests.delivered(), responses.sender_mut());
    }

    fn stream_mut(&mut self, half: Half) -> &mut Stream {
        match half {
            Half::Requests => &mut self.requests,
            Half::Responses => &mut self.responses,
        }
    }
}

/// One of the two streams. Segments of the first have even numbers, those of the second odd ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Half {
    Requests,
    Responses,
}

impl Half {
    /// Whose segment has this number, and its number there.
    fn of(number: u32) -> (Self, u32) {
        let half = if number.is_multiple_of(2) { Self::Requests } else { Self::Responses };
        (half, number / 2)
    }

    fn numbered(self, load: Load) -> Load {
        match load.body {
            Body::Segment(number) => Load { body: Body::Segment(2 * number + self as u32), ..load },
            _ => load,
        }
    }

    /// The stream's direction for one of the exchange, and the other way round.
    fn seen(self, direction: Direction) -> Direction {
        match (self, direction) {
            (Self::Requests, direction) => direction,
            (Self::Responses, Direction::Forward) => Direction::Reverse,
            (Self::Responses, Direction::Reverse) => Direction::Forward,
        }
    }
}
