//! Traces of recorded or modelled links: delivery opportunities and delays at given times.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::unit::{Bytes, Span, Time};

/// Delivery opportunities and delays, repeated indefinitely, in the format of mahimahi's traces
/// (Netravali et al., "Mahimahi: Accurate Record-and-Replay for HTTP", USENIX ATC 2015) with one
/// addition.
///
/// A trace is text. Each line begins with a time in whole ms since the start of the trace, not
/// below the time of the line before it:
///
/// - `15000` is an opportunity to deliver 1500 bytes at 15,000 ms. Several lines with one time are
///   several opportunities.
/// - `15000 delay=31.5ms` sets the delay from 15,000 ms on. It is added to the link's own delay.
///   Before the first such line the trace adds no delay. mahimahi has no such lines.
///
/// With a trace that has only delays, the link keeps its rate.
///
/// After the time of its last line the trace repeats, shifted by that time; a delay lasts until the
/// next delay line, also across repetitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// In ascending order; empty in a trace with delays only.
    opportunities: Vec<Span>,
    /// Delays and their start times, in ascending order.
    delays: Vec<(Span, Span)>,
    /// The time of the last line, above zero.
    period: Span,
}

/// A trace that cannot be replayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// A line that is not a time.
    #[error("line {line}: `{text}` is not a time in whole ms; write one number a line")]
    NotATime {
        /// Which line, counted from 1.
        line: usize,
        /// The text of the line.
        text: String,
    },
    /// A line that goes back in time.
    #[error("line {line}: the time is less than the one before; sort the lines")]
    NotSorted {
        /// Which line, counted from 1.
        line: usize,
    },
    /// A line whose text after the time is not a delay.
    #[error("line {line}: `{text}` is not a delay: {reason}; write for example `15000 delay=31ms`")]
    NotADelay {
        /// Which line, counted from 1.
        line: usize,
        /// The text after the time.
        text: String,
        /// The reason.
        reason: String,
    },
    /// A trace without a duration, which cannot be repeated.
    #[error("the last time is not above 0 ms, so the trace cannot be repeated; add later times")]
    NoDuration,
    /// A trace without any line.
    #[error("there is neither a delivery opportunity nor a delay; add lines with a time")]
    NothingToReplay,
}

impl Trace {
    /// The number of bytes that one opportunity delivers.
    pub const OPPORTUNITY: Bytes = Bytes::new(1500);
    /// The latest time that a trace may give, in ms: a year.
    const MAX_MILLIS: u64 = 365 * 86_400_000;

    /// Reads a trace; empty lines are skipped.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let (mut opportunities, mut delays) = (Vec::new(), Vec::new());
        let mut period = Span::ZERO;
        for (index, content) in text.lines().map(str::trim).enumerate() {
            let line = index + 1;
            if content.is_empty() {
                continue;
            }
            let (time, delay) = match content.split_once(char::is_whitespace) {
                Some((time, delay)) if delay.contains('=') => (time, Some(delay.trim_start())),
                _ => (content, None),
            };
            let millis: u64 = time
                .parse()
                .ok()
                .filter(|millis| *millis <= Self::MAX_MILLIS)
                .ok_or_else(|| TraceError::NotATime { line, text: time.to_string() })?;
            let at = Span::from_millis(millis);
            if at < period {
                return Err(TraceError::NotSorted { line });
            }
            period = at;
            match delay {
                None => opportunities.push(at),
                Some(text) => delays.push((at, read_delay(line, text)?)),
            }
        }
        Self::new(opportunities, delays, period)
    }

    /// A trace of these opportunities and of delays with their start times, each in ascending order
    /// and in whole ms up to `period`, which is the time of one of them.
    pub(super) fn new(
        opportunities: Vec<Span>,
        delays: Vec<(Span, Span)>,
        period: Span,
    ) -> Result<Self, TraceError> {
        if period.is_zero() {
            return Err(TraceError::NoDuration);
        }
        if opportunities.is_empty() && delays.is_empty() {
            return Err(TraceError::NothingToReplay);
        }
        Ok(Self { opportunities, delays, period })
    }

    /// The period after which it repeats.
    pub fn period(&self) -> Span {
        self.period
    }

    /// The number of opportunities per period.
    pub fn opportunities(&self) -> usize {
        self.opportunities.len()
    }

    /// The delay that it adds for a packet whose transmission ends at `time`.
    pub fn delay_at(&self, time: Time) -> Span {
        let (rounds, rest) = self.round_of(time);
        let begun = self.delays.partition_point(|(at, _)| *at <= rest);
        let current = match begun.checked_sub(1) {
            Some(current) => self.delays.get(current),
            None if rounds > 0 => self.delays.last(),
            None => None,
        };
        current.map_or(Span::ZERO, |(_, delay)| *delay)
    }

    /// The number of complete periods by `time`, and the time since the start of the present one.
    fn round_of(&self, time: Time) -> (u64, Span) {
        let (nanos, period) = (time.since(Time::ZERO).as_nanos(), self.period.as_nanos());
        (nanos / period, Span::from_nanos(nanos % period))
    }

    /// The time of opportunity `number`, counted from 0 over all repetitions; never in a trace
    /// without opportunities.
    fn time_of(&self, number: u64) -> Time {
        let count = self.opportunities.len() as u64;
        if count == 0 {
            return Time::MAX;
        }
        let before = self.period * (number / count);
        Time::ZERO + before + self.opportunities[(number % count) as usize]
    }

    /// The number of opportunities until `time`, including those at `time`.
    pub(super) fn count_until(&self, time: Time) -> u64 {
        let (rounds, rest) = self.round_of(time);
        let in_round = self.opportunities.partition_point(|at| *at <= rest);
        rounds.saturating_mul(self.opportunities.len() as u64).saturating_add(in_round as u64)
    }
}

fn read_delay(line: usize, text: &str) -> Result<Span, TraceError> {
    let refused = |reason: String| TraceError::NotADelay { line, text: text.to_string(), reason };
    let value =
        text.strip_prefix("delay=").ok_or_else(|| refused("the key is not `delay`".into()))?;
    value.parse().map_err(|error: crate::unit::ParseUnitError| refused(error.to_string()))
}

impl fmt::Display for Trace {
    /// As [`Trace::parse`] reads it: delays before opportunities of the same time.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |at: Span| at.as_nanos() / 1_000_000;
        let mut delays = self.delays.iter().peekable();
        let ends = self.opportunities.iter().map(|at| (*at, true)).chain([(self.period, false)]);
        for (until, is_opportunity) in ends {
            while let Some((at, delay)) = delays.next_if(|(at, _)| *at <= until) {
                writeln!(f, "{} delay={delay}", millis(*at))?;
            }
            if is_opportunity {
                writeln!(f, "{}", millis(until))?;
            }
        }
        Ok(())
    }
}

/// The transmitter of a link that follows a trace.
///
/// An opportunity delivers queued packets, up to 1500 bytes; a packet may take several
/// opportunities, and several packets may share one. An opportunity without a queued packet is
/// lost.
#[derive(Debug)]
pub(super) struct Replay<T> {
    trace: T,
    /// The next opportunity, or one with bytes left, if there is something to send.
    next: Option<u64>,
    /// The unused bytes of the present opportunity.
    left: Bytes,
    used: Bytes,
}

impl<T: core::ops::Deref<Target = Trace>> Replay<T> {
    pub(super) fn new(trace: T) -> Self {
        Self { trace, next: None, left: Bytes::ZERO, used: Bytes::ZERO }
    }

    /// Whether a packet may start at `now`; if not, [`Replay::next_start`] returns when it may.
    pub(super) fn may_start(&mut self, now: Time) -> bool {
        if self.left > Bytes::ZERO {
            return true;
        }
        let next = *self.next.get_or_insert_with(|| self.trace.count_until(now));
        let is_due = self.trace.time_of(next) <= now;
        if is_due {
            self.take(next);
        }
        is_due
    }

    /// When the packet that had to wait may start.
    pub(super) fn next_start(&self) -> Option<Time> {
        self.next.map(|next| self.trace.time_of(next))
    }

    /// Sends `size` from `start`, after [`Replay::may_start`] returned true; returns the duration.
    pub(super) fn send(&mut self, start: Time, size: Bytes) -> Span {
        self.used += size;
        let missing = size.get().saturating_sub(self.left.get());
        let more = missing.div_ceil(Trace::OPPORTUNITY.get());
        let Some(next) = self.next.filter(|_| more > 0) else {
            self.left = self.left - size;
            return Span::ZERO;
        };
        let last = next.saturating_add(more - 1);
        self.take(last);
        self.left = Bytes::new(more.saturating_mul(Trace::OPPORTUNITY.get()) - missing);
        self.trace.time_of(last).since(start)
    }

    /// The queue is empty: the rest of the opportunity is lost.
    pub(super) fn rest(&mut self) {
        self.next = None;
        self.left = Bytes::ZERO;
    }

    /// The used fraction of the trace's opportunities between `since` and `now`, from 0 to 1.
    pub(super) fn utilisation(&self, since: Time, now: Time) -> f64 {
        let count = self.trace.count_until(now).saturating_sub(self.trace.count_until(since));
        if count == 0 {
            return 0.0;
        }
        self.used.get() as f64 / (count as f64 * Trace::OPPORTUNITY.get() as f64)
    }

    /// The capacity of the trace after `since`, until `until`, in bits.
    pub(super) fn capacity_bits(&self, since: Time, until: Time) -> f64 {
        let count = self.trace.count_until(until).saturating_sub(self.trace.count_until(since));
        8.0 * count as f64 * Trace::OPPORTUNITY.get() as f64
    }

    fn take(&mut self, number: u64) {
        self.next = Some(number.saturating_add(1));
        self.left = Trace::OPPORTUNITY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn times(trace: &Trace, count: u64) -> Vec<u64> {
        let millis = |number| trace.time_of(number).since(Time::ZERO).as_nanos() / 1_000_000;
        (0..count).map(millis).collect()
    }

    #[test]
    fn a_trace_begins_anew_after_its_last_time() {
        let trace = Trace::parse("0\n2\n2\n5\n").unwrap();
        assert_eq!(times(&trace, 9), [0, 2, 2, 5, 5, 7, 7, 10, 10]);
    }

    #[test]
    fn a_trace_that_cannot_be_replayed_is_refused_with_its_line() {
        for (text, explanation) in [
            ("1\nx\n", "line 2: `x` is not a time in whole ms; write one number a line"),
            ("1\n\n-3", "line 3: `-3` is not a time"),
            ("1.5", "line 1: `1.5` is not a time"),
            ("99999999999999", "is not a time"),
            ("5\n4", "line 2: the time is less than the one before; sort the lines"),
            ("", "the last time is not above 0 ms"),
            ("0\n0", "the last time is not above 0 ms"),
            ("0\n1 2\n", "line 2: `1 2` is not a time"),
            ("0 delay=5\n1", "line 1: `delay=5` is not a delay: `5` is not a length of time"),
            ("0 loss=1\n1", "line 1: `loss=1` is not a delay: the key is not `delay`; write for"),
            ("9\n8 delay=1ms", "line 2: the time is less"),
            ("0 delay=1ms", "the last time is not above 0 ms"),
        ] {
            let message = Trace::parse(text).unwrap_err().to_string();
            assert!(message.contains(explanation), "{text:?}: {message}");
        }
    }

    fn delays(trace: &Trace, millis: &[u64]) -> Vec<u64> {
        let delay = |at: &u64| trace.delay_at(Time::ZERO + Span::from_millis(*at)).as_micros();
        millis.iter().map(delay).collect()
    }

    #[test]
    fn a_delay_lasts_until_the_next_one_also_across_repetitions() {
        let trace = Trace::parse("1\n2 delay=4ms\n3\n5 delay=1.5ms\n").unwrap();
        assert_eq!((trace.period(), trace.opportunities()), (Span::from_millis(5), 2));
        assert_eq!(
            delays(&trace, &[0, 1, 2, 4, 5, 6, 7, 9, 10]),
            [0, 0, 4_000, 4_000, 1_500, 1_500, 4_000, 4_000, 1_500]
        );
        assert_eq!(times(&trace, 4), [1, 3, 6, 8]);
        let from_start = Trace::parse("0 delay=2ms\n0 delay=3ms\n4\n4 delay=9ms").unwrap();
        assert_eq!(delays(&from_start, &[0, 3, 4, 7]), [3_000; 4]);
    }

    #[test]
    fn a_trace_of_delays_alone_has_no_opportunity() {
        let trace = Trace::parse("0 delay=1ms\n5 delay=2ms").unwrap();
        assert_eq!(delays(&trace, &[0, 4, 5, 9]), [1_000, 1_000, 1_000, 1_000]);
        assert_eq!((trace.opportunities(), trace.count_until(Time::MAX)), (0, 0));
        assert_eq!(trace.time_of(3), Time::MAX);
        assert_eq!(trace.to_string(), "0 delay=1ms\n5 delay=2ms\n");
    }

    #[test]
    fn a_trace_without_delays_adds_none() {
        assert_eq!(delays(&Trace::parse("1\n7").unwrap(), &[0, 5, 7, 100]), [0; 4]);
    }

    proptest! {
        #[test]
        fn what_is_printed_parses_back(
            mut lines in prop::collection::vec((0u64..50, prop::option::of(any::<u64>())), 0..30),
        ) {
            lines.extend([(3, None), (50, Some(7))]);
            lines.sort_by_key(|(at, _)| *at);
            let text = lines.iter().fold(String::new(), |text, (at, delay)| match delay {
                None => alloc::format!("{text}{at}\n"),
                Some(delay) => alloc::format!("{text}{at} delay={}\n", Span::from_nanos(*delay)),
            });
            let trace = Trace::parse(&text).unwrap();
            prop_assert_eq!(Trace::parse(&trace.to_string()), Ok(trace));
        }

        #[test]
        fn counting_agrees_with_the_times(
            mut millis in prop::collection::vec(0u64..20, 1..20),
            at in 0u64..100,
        ) {
            millis.push(20);
            millis.sort_unstable();
            let text = millis.iter().fold(String::new(), |text, at| text + &at.to_string() + "\n");
            let trace = Trace::parse(&text).unwrap();
            let at = Time::ZERO + Span::from_millis(at);
            let counted = (0..).take_while(|number| trace.time_of(*number) <= at).count();
            prop_assert_eq!(trace.count_until(at), counted as u64);
        }

        #[test]
        fn the_reader_is_total(text in "([0-9 \\n\\-x]|[0-9] delay=[0-9]m?s|=){0,40}") {
            if let Ok(trace) = Trace::parse(&text) {
                trace.delay_at(Time::MAX);
                trace.time_of(u64::MAX);
                trace.count_until(Time::MAX);
            }
        }

        #[test]
        fn no_size_makes_it_fail(sizes: [u64; 4]) {
            let trace = Trace::parse("3").unwrap();
            let mut replay = Replay::new(&trace);
            let mut now = Time::ZERO;
            for size in sizes {
                if !replay.may_start(now) {
                    now = replay.next_start().unwrap();
                    prop_assert!(replay.may_start(now));
                }
                now += replay.send(now, Bytes::new(size));
            }
        }
    }
}
