//! The maximum or minimum over a sliding window, in constant memory.
//!
//! Three candidates are kept: the best value of the window, the best one since, and the best one
//! since that (Kathleen Nichols' windowed filter). When the first expires, the second takes its
//! place. As in Linux, a filter that sees only worse values renews its candidates after a quarter
//! and after half of the window, so that the successor is not as old as the expired value.

use freshline_core::unit::{Span, Time};

/// Keeps the maximum of the values of the last `window`; `at` may count anything, such as rounds.
#[derive(Debug, Clone)]
pub(super) struct WindowedMax {
    window: u64,
    /// From best to newest; `None` before the first value.
    candidates: Option<[Candidate; 3]>,
}

#[derive(Debug, Clone, Copy)]
struct Candidate {
    at: u64,
    value: u64,
}

impl WindowedMax {
    pub(super) const fn new(window: u64) -> Self {
        Self { window, candidates: None }
    }

    pub(super) fn get(&self) -> Option<u64> {
        self.candidates.map(|[best, ..]| best.value)
    }

    /// Replaces all candidates with `value`.
    pub(super) fn reset(&mut self, at: u64, value: u64) {
        self.candidates = Some([Candidate { at, value }; 3]);
    }

    pub(super) fn insert(&mut self, at: u64, value: u64) {
        let Some(kept) = &mut self.candidates else {
            return self.reset(at, value);
        };
        let new = Candidate { at, value };
        if value >= kept[0].value || at.saturating_sub(kept[2].at) > self.window {
            return self.reset(at, value);
        }
        if value >= kept[1].value {
            (kept[1], kept[2]) = (new, new);
        } else if value >= kept[2].value {
            kept[2] = new;
        }
        let age = at.saturating_sub(kept[0].at);
        if age > self.window {
            *kept = [kept[1], kept[2], new];
            if at.saturating_sub(kept[0].at) > self.window {
                *kept = [kept[1], kept[2], new];
            }
        } else if kept[1].at == kept[0].at && age > self.window / 4 {
            (kept[1], kept[2]) = (new, new);
        } else if kept[2].at == kept[1].at && age > self.window / 2 {
            kept[2] = new;
        }
    }
}

/// Keeps the minimum of the spans of the last `window`.
#[derive(Debug, Clone)]
pub(super) struct WindowedMin(WindowedMax);

impl WindowedMin {
    pub(super) const fn new(window: Span) -> Self {
        Self(WindowedMax::new(window.as_nanos()))
    }

    pub(super) fn get(&self) -> Option<Span> {
        self.0.get().map(|negated| Span::from_nanos(!negated))
    }

    pub(super) fn insert(&mut self, now: Time, span: Span) {
        // Complements reverse the order.
        self.0.insert(now.as_nanos(), !span.as_nanos());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_at_least_the_newest_and_no_more_than_the_window_holds(
            values in prop::collection::vec((0u64..4, 0u64..1000), 1..200),
        ) {
            let mut filter = WindowedMax::new(10);
            let mut at = 0;
            let mut seen = Vec::new();
            for (step, value) in values {
                at += step;
                filter.insert(at, value);
                seen.push((at, value));
                let best = filter.get().unwrap();
                let window = seen.iter().filter(|(then, _)| at - then <= 10);
                prop_assert!(best >= value);
                prop_assert!(best <= window.map(|(_, value)| *value).max().unwrap());
            }
        }
    }

    #[test]
    fn a_minimum_lasts_for_the_window_and_no_longer() {
        let mut filter = WindowedMin::new(Span::from_secs(10));
        filter.insert(Time::ZERO, Span::from_millis(20));
        for second in 1..=10 {
            filter.insert(Time::ZERO + Span::from_secs(second), Span::from_millis(50));
            assert_eq!(filter.get(), Some(Span::from_millis(20)));
        }
        filter.insert(Time::ZERO + Span::from_secs(11), Span::from_millis(60));
        assert_eq!(filter.get(), Some(Span::from_millis(50)));
    }
}
