//! A client and its server: requests over one TCP stream, responses over another one in the
//! opposite direction.
//!
//! ```text
//!   client ─► request ─► … ─► server
//!     ▲                          │
//!     └──── … ◄─── response ◄────┘
//! ```
//!
//! Both streams open when the exchange begins, so the first response also waits for a handshake.

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

/// A running exchange.
#[derive(Debug)]
pub struct Exchange {
    application: RequestResponse,
    requests: Stream,
    responses: Stream,
    ends_at: Time,
    /// The response times, from the end of the warm-up on.
    times: SpanHistogram,
    /// The sum of the response times.
    time: Span,
    /// Responses completed in the measured time.
    complete: u64,
    measured: Measured,
}

/// The result of an exchange.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExchangeOutcome {
    /// The mean time from a request to the last byte of its response. A request that is open at the
    /// end counts with its time so far, which is a lower bound, if this exceeds the mean of the
    /// complete ones; `None` without either.
    pub response_mean: Option<Span>,
    /// The 95th percentile of response times; an open request counts as in `response_mean`.
    pub response_p95: Option<Span>,
    /// Completed responses per second; `None` if the flow has no measured time.
    pub responses_per_s: Option<f64>,
    /// The result of the stream of responses; its age has no meaning here.
    pub stream: StreamOutcome,
    /// The host-queue measurements of requests.
    pub host: HostOutcome,
}

impl Exchange {
    /// A client that sends requests during a period, over streams without other writers.
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

    /// Handles an event that is due. Then call [`Exchange::poll_transmit`].
    pub fn on_wake(&mut self, now: Time) {
        self.requests.on_wake(now);
        self.responses.on_wake(now);
        self.talk(now);
    }

    /// The next segment to send, from either end. Call it until it returns `None`.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(Direction, Load)> {
        if let Some((direction, load)) = self.requests.poll_transmit(now) {
            return Some((direction, Half::Requests.numbered(load)));
        }
        let (direction, load) = self.responses.poll_transmit(now)?;
        Some((Half::Responses.seen(direction), Half::Responses.numbered(load)))
    }

    /// A segment has arrived at an end, in a packet with or without a congestion mark.
    pub fn on_segment(&mut self, now: Time, direction: Direction, number: u32, ecn: Ecn) {
        let (half, number) = Half::of(number);
        self.stream_mut(half).on_segment(now, half.seen(direction), number, ecn);
        self.talk(now);
    }

    /// A segment was dropped.
    pub fn on_dropped(&mut self, number: u32) {
        let (half, number) = Half::of(number);
        self.stream_mut(half).on_dropped(number);
    }

    /// The number of completed responses, and the sum of their response times.
    pub fn response_times(&self) -> (u64, Span) {
        (self.times.count(), self.time)
    }

    /// The stream of responses.
    pub const fn responses(&self) -> &Stream {
        &self.responses
    }

    /// A segment in flight in `direction`, by number, with the direction from its stream's point of
    /// view: data goes forward.
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

    /// The measurements until `now`.
    pub fn outcome(&self, now: Time) -> ExchangeOutcome {
        let waited = self.application.waiting_since().map(|since| now.since(since));
        let is_known = self.times.count() > 0;
        // A shorter time so far has no information: it would only lower the mean.
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

    /// Client and server read the data that has arrived, and write.
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
    /// The stream of the segment with this number, and its number in that stream.
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

    /// Translates a direction between the exchange and the stream.
    fn seen(self, direction: Direction) -> Direction {
        match (self, direction) {
            (Self::Requests, direction) => direction,
            (Self::Responses, Direction::Forward) => Direction::Reverse,
            (Self::Responses, Direction::Reverse) => Direction::Forward,
        }
    }
}
