//! Video: a client fetches segments one after the other, at a bitrate that suits the path, and
//! plays them.
//!
//! ```text
//!   BOLA ─► request ─► server writes the segment ─► … ─► whole ─► playback buffer ─► plays in real time
//!     ▲                                                               │ empty: stands still
//!     └─────────────────────────── how much is in there ◄─────────────┘
//! ```

use freshline_core::unit::{BitRate, Bytes, Span, Time};

use super::Outlet;
use super::bola::Bola;

/// A video and its player.
#[derive(Debug, Clone, PartialEq)]
pub struct VideoParams {
    /// The available bitrates in ascending order, above zero; at least one.
    pub rates: Vec<BitRate>,
    /// The length of a segment, above zero.
    pub segment: Span,
    /// How many segments the video has, at least one.
    pub segments: u64,
    /// The playback buffer, longer than a segment.
    pub buffer: Span,
    /// How long a request takes to the server.
    pub request: Span,
}

/// Fetches a video and plays it.
///
/// Playback starts when the first segment is complete. When the buffer runs empty, playback stalls
/// until the next segment is complete.
#[derive(Debug)]
pub struct Video {
    params: VideoParams,
    bola: Bola,
    /// The number of segments requested so far, and their bits in total.
    asked: u64,
    bitrates: f64,
    last_rate: Option<BitRate>,
    /// When the client may send its next request, or its request reaches the server.
    turn: Turn,
    /// Where in the stream the current segment ends, and the bytes of it that the send buffer has
    /// not accepted.
    end: Bytes,
    waiting: Bytes,
    /// The fill level of the playback buffer at a time.
    buffered: (Span, Time),
    outcome: VideoOutcome,
}

#[derive(Debug, Clone, Copy)]
enum Turn {
    /// The client sends its request at this time.
    Asks(Time),
    /// A request for this many bytes reaches the server then.
    Arriving(Time, Bytes),
    /// The segment is being transferred.
    Loads,
    Over,
}

/// The quality of playback.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct VideoOutcome {
    /// The mean bitrate of the requested segments, in bit/s.
    pub bitrate: f64,
    /// How often the bitrate changed between consecutive segments.
    pub switches: u64,
    /// How often playback stalled, without the initial buffering.
    pub stalls: u64,
    /// The total duration of stalls.
    pub stalled: Span,
}

impl Video {
    /// The client requests the first segment at `start`.
    pub fn new(start: Time, params: VideoParams) -> Self {
        Self {
            bola: Bola::new(&params.rates, params.segment, params.buffer),
            params,
            asked: 0,
            bitrates: 0.0,
            last_rate: None,
            turn: Turn::Asks(start),
            end: Bytes::ZERO,
            waiting: Bytes::ZERO,
            buffered: (Span::ZERO, start),
            outcome: VideoOutcome::default(),
        }
    }

    /// The time of the next event.
    pub fn poll_timeout(&self) -> Option<Time> {
        match self.turn {
            Turn::Asks(at) | Turn::Arriving(at, _) => Some(at),
            Turn::Loads | Turn::Over => None,
        }
    }

    /// Whether all segments have arrived.
    pub fn is_over(&self) -> bool {
        matches!(self.turn, Turn::Over)
    }

    /// The quality of playback so far.
    pub fn outcome(&self) -> VideoOutcome {
        let bitrate = if self.asked > 0 { self.bitrates / self.asked as f64 } else { 0.0 };
        VideoOutcome { bitrate, ..self.outcome }
    }

    /// Requests or writes a segment if that is due, and writes as much of the queued data as fits.
    pub fn handle_timeout(&mut self, now: Time, outlet: &mut impl Outlet) {
        if let Turn::Asks(at) = self.turn
            && at <= now
        {
            self.turn = Turn::Arriving(at + self.params.request, self.ask(at));
        }
        if let Turn::Arriving(at, size) = self.turn
            && at <= now
        {
            self.waiting += size;
            self.end += size;
            self.turn = Turn::Loads;
        }
        self.waiting = self.waiting - outlet.write(self.waiting);
    }

    /// `delivered` bytes of the stream have reached the client.
    pub fn on_delivered(&mut self, now: Time, delivered: Bytes) {
        if !matches!(self.turn, Turn::Loads) || delivered < self.end {
            return;
        }
        let left = self.play(now, self.asked > 1);
        let held = left + self.params.segment;
        self.buffered = (held, now);
        self.turn = if self.asked < self.params.segments {
            Turn::Asks(now + (held - self.bola.max_held()))
        } else {
            Turn::Over
        };
    }

    /// Chooses the bitrate of the next segment. Returns the segment's size.
    fn ask(&mut self, now: Time) -> Bytes {
        let (held, since) = self.buffered;
        let rate = self.bola.choose(held - now.since(since));
        self.asked += 1;
        self.bitrates += rate.as_bps() as f64;
        let last = self.last_rate.replace(rate);
        self.outcome.switches += u64::from(last.is_some_and(|last| last != rate));
        let bits = rate.as_bps() as f64 * self.params.segment.as_secs_f64();
        Bytes::new((bits / 8.0).max(1.0) as u64)
    }

    /// Advances playback to `now`. Returns the fill level of the buffer. An empty buffer is counted
    /// as a stall if `counts` is set.
    fn play(&mut self, now: Time, counts: bool) -> Span {
        let (held, since) = self.buffered;
        let played = now.since(since);
        if counts && played > held {
            self.outcome.stalls += 1;
            self.outcome.stalled += played - held;
        }
        held - played
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path with a capacity in bytes per second.
    struct Pipe(u64, Bytes);

    impl Outlet for Pipe {
        fn write(&mut self, bytes: Bytes) -> Bytes {
            self.1 += bytes;
            bytes
        }

        fn offer(&mut self, _now: Time, _block: Bytes) -> bool {
            unreachable!("only a constant bit rate offers whole blocks")
        }
    }

    /// Plays the video over a path of a given rate.
    fn watch(bps: u64) -> (VideoOutcome, Span) {
        let params = VideoParams {
            rates: [1, 2, 4].map(BitRate::from_mbps).to_vec(),
            segment: Span::from_secs(4),
            segments: 100,
            buffer: Span::from_secs(24),
            request: Span::from_millis(10),
        };
        let mut video = Video::new(Time::ZERO, params);
        let mut pipe = Pipe(bps / 8, Bytes::ZERO);
        let (mut now, mut delivered) = (Time::ZERO, Bytes::ZERO);
        while !video.is_over() {
            now = video.poll_timeout().unwrap_or(now);
            video.handle_timeout(now, &mut pipe);
            let left = pipe.1 - delivered;
            now += Span::from_secs_f64(left.get() as f64 / pipe.0 as f64);
            delivered = pipe.1;
            video.on_delivered(now, delivered);
        }
        (video.outcome(), now.since(Time::ZERO))
    }

    #[test]
    fn the_bitrate_comes_near_that_of_the_way_without_a_stall() {
        let (outcome, took) = watch(3_000_000);
        assert!((2.6e6..3.05e6).contains(&outcome.bitrate), "{outcome:?}");
        assert_eq!((outcome.stalls, outcome.stalled), (0, Span::ZERO));
        // Everything arrives before it is played, at most one buffer ahead.
        assert!((376.0..400.0).contains(&took.as_secs_f64()), "{took}");
    }

    #[test]
    fn a_way_below_the_least_bitrate_makes_it_stand_still() {
        // Segments of 1 Mbit/s take 5 s each, and a request 10 ms, where they last for 4.
        let (outcome, _) = watch(800_000);
        assert_eq!((outcome.bitrate, outcome.switches, outcome.stalls), (1e6, 0, 99));
        let stalled = outcome.stalled.as_secs_f64();
        assert!((stalled - 99.0 * 1.01).abs() < 1e-6, "{stalled}");
    }

    #[test]
    fn a_way_above_the_highest_bitrate_waits_for_the_buffer() {
        let (outcome, took) = watch(50_000_000);
        assert!(outcome.bitrate > 3.7e6, "{outcome:?}");
        assert!((376.0..400.0).contains(&took.as_secs_f64()), "{took}");
    }
}
