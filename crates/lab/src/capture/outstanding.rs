//! Data sent and not acknowledged: bytes of a TCP flow, or updates of a session.

use std::collections::VecDeque;

use freshline_core::unit::Time;

/// One segment, or one update, by its position in the sequence.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unacked {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) at: Time,
    /// Whether any of it was sent a second time. An ack may then be for either transmission, and
    /// does not give a round trip (Karn, Partridge, "Improving Round-Trip Time Estimates in
    /// Reliable Transport Protocols", SIGCOMM 1987).
    resent: bool,
}

/// A bounded list of such data, in the order of the sequence.
#[derive(Debug)]
pub(super) struct Outstanding {
    sent: VecDeque<Unacked>,
    limit: usize,
    /// The number of segments or updates for which there was no room.
    untracked: u64,
}

impl Outstanding {
    pub(super) fn new(limit: usize) -> Self {
        Self { sent: VecDeque::new(), limit, untracked: 0 }
    }

    pub(super) fn untracked(&self) -> u64 {
        self.untracked
    }

    /// `start..end` was sent for the first time, after everything sent before.
    pub(super) fn on_sent(&mut self, at: Time, start: u64, end: u64) {
        debug_assert!(self.sent.back().is_none_or(|last| last.end <= start));
        if self.sent.len() < self.limit {
            self.sent.push_back(Unacked { start, end, at, resent: false });
        } else {
            self.untracked += 1;
        }
    }

    /// Some of `start..end` was sent again.
    pub(super) fn on_resent(&mut self, start: u64, end: u64) {
        let first = self.sent.partition_point(|sent| sent.end <= start);
        for sent in self.sent.range_mut(first..).take_while(|sent| sent.start < end) {
            sent.resent = true;
        }
    }

    /// The segment or update that contains `place`, if it was sent only once.
    pub(super) fn holding(&self, place: u64) -> Option<Unacked> {
        let index = self.sent.partition_point(|sent| sent.end <= place);
        self.sent.get(index).copied().filter(|sent| sent.start <= place && !sent.resent)
    }

    /// Removes everything that lies completely before `end`. Returns the last element of it that
    /// was sent only once.
    pub(super) fn clear_before(&mut self, end: u64) -> Option<Unacked> {
        let mut freshest = None;
        while let Some(sent) = self.sent.front().copied().filter(|sent| sent.end <= end) {
            freshest = Some(sent).filter(|sent| !sent.resent).or(freshest);
            self.sent.pop_front();
        }
        freshest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three elements of 10 each, sent at 1, 2 and 3 ns.
    fn three() -> Outstanding {
        let mut outstanding = Outstanding::new(3);
        for number in 0..3 {
            let start = 10 * number;
            outstanding.on_sent(Time::from_nanos(number + 1), start, start + 10);
        }
        outstanding
    }

    fn nanos(sent: Option<Unacked>) -> Option<u64> {
        sent.map(|sent| sent.at.as_nanos())
    }

    #[test]
    fn only_what_is_covered_to_its_end_is_cleared() {
        let mut outstanding = three();
        assert_eq!(nanos(outstanding.clear_before(9)), None);
        assert_eq!(nanos(outstanding.clear_before(29)), Some(2));
        assert_eq!(nanos(outstanding.clear_before(29)), None);
        assert_eq!(nanos(outstanding.clear_before(u64::MAX)), Some(3));
    }

    #[test]
    fn what_was_sent_again_in_part_tells_no_time() {
        let mut outstanding = three();
        outstanding.on_resent(19, 21);
        let at = [9, 10, 29].map(|place| nanos(outstanding.holding(place)));
        assert_eq!(at, [Some(1), None, None]);
        assert_eq!(nanos(outstanding.clear_before(30)), Some(1));
    }

    #[test]
    fn what_there_is_no_room_for_is_counted() {
        let mut outstanding = three();
        outstanding.on_sent(Time::from_nanos(4), 30, 40);
        assert_eq!(outstanding.untracked(), 1);
        assert_eq!(nanos(outstanding.holding(29)), Some(3));
        assert_eq!(nanos(outstanding.holding(30)), None);
    }
}
