//! Links that carry what a recorded one did: delivery opportunities at given times.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::unit::{Bytes, Span, Time};

/// Delivery opportunities, repeated without end, in the format of mahimahi's traces (Netravali
/// et al., "Mahimahi: Accurate Record-and-Replay for HTTP", USENIX ATC 2015).
///
/// A trace is text: each line is a time in whole ms since its start, never less than the line
/// before, at which the link can deliver 1500 bytes; several lines with the same time are several
/// opportunities. After the last one the trace begins anew, shifted by its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// In ascending order, the last one above zero.
    opportunities: Vec<Span>,
}

/// A trace that cannot be replayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// A line that is no time.
    #[error("line {line}: `{text}` is not a time in whole ms; write one number a line")]
    NotATime {
        /// Which line, counted from 1.
        line: usize,
        /// What stands there.
        text: String,
    },
    /// A line that goes back in time.
    #[error("line {line}: the time is less than the one before; sort the lines")]
    NotSorted {
        /// Which line, counted from 1.
        line: usize,
    },
    /// A trace that takes no time cannot be repeated.
    #[error("the last time is not above 0 ms, so the trace cannot be repeated; add later times")]
    NoDuration,
}

impl Trace {
    /// What one opportunity delivers.
    pub const OPPORTUNITY: Bytes = Bytes::new(1500);
    /// The latest time that a trace may give, in ms: a year.
    const MAX_MILLIS: u64 = 365 * 86_400_000;

    /// Reads a trace; empty lines are skipped.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut opportunities = Vec::new();
        for (index, content) in text.lines().map(str::trim).enumerate() {
            let line = index + 1;
            if content.is_empty() {
                continue;
            }
            let millis: u64 = content
                .parse()
                .ok()
                .filter(|millis| *millis <= Self::MAX_MILLIS)
                .ok_or_else(|| TraceError::NotATime { line, text: content.to_string() })?;
            let at = Span::from_millis(millis);
            if opportunities.last().is_some_and(|last| at < *last) {
                return Err(TraceError::NotSorted { line });
            }
            opportunities.push(at);
        }
        match opportunities.last() {
            Some(last) if !last.is_zero() => Ok(Self { opportunities }),
            _ => Err(TraceError::NoDuration),
        }
    }

    fn period(&self) -> u64 {
        self.opportunities.last().map_or(1, |last| last.as_nanos())
    }

    /// When opportunity `number`, counted from 0 over all repetitions, comes.
    fn time_of(&self, number: u64) -> Time {
        let count = self.opportunities.len() as u64;
        let before = Span::from_nanos((number / count).saturating_mul(self.period()));
        Time::ZERO + before + self.opportunities[(number % count) as usize]
    }

    /// How many opportunities come until `time`, those at `time` included.
    pub(super) fn count_until(&self, time: Time) -> u64 {
        let nanos = time.since(Time::ZERO).as_nanos();
        let (rounds, rest) = (nanos / self.period(), nanos % self.period());
        let rest = Span::from_nanos(rest);
        let in_round = self.opportunities.partition_point(|at| *at <= rest);
        rounds.saturating_mul(self.opportunities.len() as u64).saturating_add(in_round as u64)
    }
}

/// The transmitter of a link that follows a trace.
///
/// An opportunity delivers what waits when it comes, up to 1500 bytes; a packet may take several
/// opportunities, and several packets may share one. What nothing waits for is gone.
#[derive(Debug)]
pub(super) struct Replay<T> {
    trace: T,
    /// The opportunity that is waited for or was not used up, if anything is to be sent.
    next: Option<u64>,
    /// What is left of the present opportunity.
    left: Bytes,
    used: Bytes,
}

impl<T: core::ops::Deref<Target = Trace>> Replay<T> {
    pub(super) fn new(trace: T) -> Self {
        Self { trace, next: None, left: Bytes::ZERO, used: Bytes::ZERO }
    }

    /// Whether a packet may start at `now`; if not, [`Replay::next_start`] says when.
    pub(super) fn may_start(&mut self, now: Time) -> bool {
        if self.left > Bytes::ZERO {
            return true;
        }
        let next = *self.next.get_or_insert_with(|| self.trace.count_until(now));
        let has_come = self.trace.time_of(next) <= now;
        if has_come {
            self.take(next);
        }
        has_come
    }

    /// When the packet that had to wait may start.
    pub(super) fn next_start(&self) -> Option<Time> {
        self.next.map(|next| self.trace.time_of(next))
    }

    /// Sends `size` from `start`, where [`Replay::may_start`] held: how long it takes.
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

    /// Nothing waits any more: what is left of the opportunity is gone.
    pub(super) fn rest(&mut self) {
        self.next = None;
        self.left = Bytes::ZERO;
    }

    /// The part of what the trace offered between `since` and `now` that was used, from 0 to 1.
    pub(super) fn utilisation(&self, since: Time, now: Time) -> f64 {
        let count = self.trace.count_until(now).saturating_sub(self.trace.count_until(since));
        if count == 0 {
            return 0.0;
        }
        self.used.get() as f64 / (count as f64 * Trace::OPPORTUNITY.get() as f64)
    }

    /// What the trace offers after `since`, until `until`, in bits.
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
        ] {
            let message = Trace::parse(text).unwrap_err().to_string();
            assert!(message.contains(explanation), "{text:?}: {message}");
        }
    }

    proptest! {
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
        fn the_reader_is_total(text in "[0-9 \\n\\-x]{0,40}") {
            if let Ok(trace) = Trace::parse(&text) {
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
