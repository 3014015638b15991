//! The next turn of each of many sessions.

use std::collections::{BTreeMap, BTreeSet};

use freshline_core::unit::Time;

/// One time per session, by place.
#[derive(Debug, Default)]
pub(super) struct Timers {
    at: BTreeMap<usize, Time>,
    queue: BTreeSet<(Time, usize)>,
}

impl Timers {
    /// Sets the time of the next turn of a place's session, or clears it.
    pub(super) fn set(&mut self, place: usize, at: Option<Time>) {
        let before = match at {
            Some(at) => self.at.insert(place, at),
            None => self.at.remove(&place),
        };
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.queue.remove(&(before, place));
        }
        self.queue.extend(at.map(|at| (at, place)));
    }

    /// The earliest time.
    pub(super) fn next(&self) -> Option<Time> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// A session whose time has come; each is returned once.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<usize> {
        let (_, place) = *self.queue.first().filter(|(at, _)| *at <= now)?;
        self.set(place, None);
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use freshline_core::unit::Span;

    use super::*;

    #[test]
    fn each_session_has_one_time_and_the_earliest_comes_first() {
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        let mut timers = Timers::default();
        for (place, time) in [(1, 30), (2, 10), (3, 20), (2, 40), (3, 20)] {
            timers.set(place, Some(at(time)));
        }
        timers.set(1, None);
        assert_eq!(timers.next(), Some(at(20)));
        assert_eq!((timers.pop_due(at(19)), timers.pop_due(at(20))), (None, Some(3)));
        assert_eq!((timers.pop_due(at(20)), timers.pop_due(at(99))), (None, Some(2)));
        assert_eq!((timers.next(), timers.pop_due(at(99))), (None, None));
    }
}
