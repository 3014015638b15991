//! A window of received packets, robust against corrupted numbers and times.
//!
//! | packet | effect |
//! |---|---|
//! | up to 64 ahead of the newest | becomes the newest |
//! | among the 64 up to the newest | fills its gap; on repetition it is a copy |
//! | further ahead; further behind, but sent later than the newest | is *stray* |
//! | further behind, and sent before the newest | counts as a copy: it is outside the window |
//!
//! A single stray packet may have a corrupted number, or the newest one may. Two consecutive stray
//! packets within 64 of each other, which are not copies, show the server's present position: the
//! window moves there. A corrupted number less than 64 ahead is harmless: the following packets
//! fill the gap.

use crate::unit::{Span, Time};
use crate::wire::Packet;

/// The number of packets in the window.
const SPAN: u64 = 64;

/// The newest packet.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Newest {
    pub(super) seq: u64,
    pub(super) sent_at: Time,
    pub(super) received_at: Time,
    /// The shorter one of its interval and that of the previous newest packet: a corrupted interval
    /// must not prevent a client from detecting silence.
    pub(super) interval: Span,
    /// Its own interval.
    own_interval: Span,
    /// Bit i: whether packet `seq − i` has arrived.
    recent: u64,
}

impl Newest {
    fn new(packet: &Packet<'_>, received_at: Time) -> Self {
        let Packet { seq, sent_at, interval, .. } = *packet;
        Self { seq, sent_at, received_at, interval, own_interval: interval, recent: 1 }
    }

    fn is_near(&self, seq: u64) -> bool {
        self.seq.abs_diff(seq) <= SPAN
    }
}

/// The place of a packet that is not a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The newest, or the first; skipped numbers are missing.
    Newest { skipped: u64 },
    /// A missing packet.
    Filled,
    /// A stray packet: it counts once a second one confirms its number.
    Stray,
    /// It has confirmed the previous stray packet; together they have skipped or filled numbers.
    /// `is_back`: the newest packet had a corrupted number.
    Moved { skipped: u64, is_back: bool },
}

#[derive(Debug, Default)]
pub(super) struct Window {
    newest: Option<Newest>,
    /// The last packet, if it was stray.
    stray: Option<Newest>,
}

impl Window {
    pub(super) fn newest(&self) -> Option<Newest> {
        self.newest
    }

    /// A packet has arrived; `None` if it is a copy, or outside the window.
    pub(super) fn take(&mut self, packet: &Packet<'_>, received_at: Time) -> Option<Place> {
        let this = Newest::new(packet, received_at);
        let Some(newest) = &mut self.newest else {
            self.newest = Some(this);
            return Some(Place::Newest { skipped: 0 });
        };
        let ahead = this.seq.saturating_sub(newest.seq);
        let behind = newest.seq.saturating_sub(this.seq);
        if ahead <= SPAN && behind < SPAN {
            self.stray = None;
            return newest.take_near(&this);
        }
        if ahead == 0 && this.sent_at <= newest.sent_at {
            return None;
        }
        let Some(stray) = self.stray.filter(|stray| stray.is_near(this.seq)) else {
            self.stray = Some(this);
            return Some(Place::Stray);
        };
        if stray.seq == this.seq {
            return None;
        }
        let is_back = stray.seq < newest.seq;
        let [first, last] = if stray.seq < this.seq { [stray, this] } else { [this, stray] };
        let mut moved = first;
        moved.take_near(&last);
        // Two of the numbers up to the second one have arrived.
        let skipped = last.seq.saturating_sub(newest.seq).saturating_sub(2);
        (self.newest, self.stray) = (Some(moved), None);
        Some(Place::Moved { skipped, is_back })
    }
}

impl Newest {
    /// The same for a packet that is at most [`SPAN`] away.
    fn take_near(&mut self, packet: &Newest) -> Option<Place> {
        if let Some(ahead) = packet.seq.checked_sub(self.seq).filter(|ahead| *ahead > 0) {
            let recent = u32::try_from(ahead).ok().and_then(|ahead| self.recent.checked_shl(ahead));
            let interval = packet.own_interval.min(self.own_interval);
            *self = Self { recent: recent.unwrap_or(0) | 1, interval, ..*packet };
            return Some(Place::Newest { skipped: ahead - 1 });
        }
        let bit = 1 << (self.seq - packet.seq);
        let is_first = self.recent & bit == 0;
        self.recent |= bit;
        is_first.then_some(Place::Filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::SessionId;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// Takes packets with these numbers, each sent a millisecond after the one of the number
    /// before.
    fn taken(window: &mut Window, seqs: impl IntoIterator<Item = u64>) -> Vec<Option<Place>> {
        seqs.into_iter().map(|seq| take(window, seq, seq)).collect()
    }

    fn take(window: &mut Window, seq: u64, millis: u64) -> Option<Place> {
        let packet = Packet {
            session: SessionId(1),
            seq,
            sent_at: Time::ZERO + Span::from_millis(millis),
            clock_offset: None,
            interval: Span::from_millis(500),
            ack_mark: None,
            payload: b"",
        };
        window.take(&packet, Time::ZERO)
    }

    #[test]
    fn packets_are_new_or_late_or_copies() {
        let mut window = Window::default();
        let [next, filled] = [Some(Place::Newest { skipped: 0 }), Some(Place::Filled)];
        let skipped = Some(Place::Newest { skipped: 2 });
        let places = taken(&mut window, [100, 101, 104, 103, 101, 103, 41, 40, 39]);
        assert_eq!(places, [next, next, skipped, filled, None, None, filled, None, None]);
    }

    #[test]
    fn one_damaged_number_changes_nothing_and_its_copies_neither() {
        for bit in 7..64 {
            let mut window = Window::default();
            taken(&mut window, [100, 101]);
            let damaged = 102 ^ (1 << bit);
            assert_eq!(take(&mut window, damaged, 102), Some(Place::Stray), "bit {bit}");
            assert_eq!(take(&mut window, damaged, 102), None, "bit {bit}");
            let skipped = Some(Place::Newest { skipped: 1 });
            assert_eq!(take(&mut window, 103, 103), skipped, "bit {bit}");
        }
    }

    #[test]
    fn the_window_follows_after_an_outage() {
        let mut window = Window::default();
        taken(&mut window, [100, 101]);
        let moved = Some(Place::Moved { skipped: 897, is_back: false });
        assert_eq!(taken(&mut window, [1_000, 999]), [Some(Place::Stray), moved]);
        assert_eq!(taken(&mut window, [1_000, 999, 998]), [None, None, Some(Place::Filled)]);
    }

    #[test]
    fn a_damaged_first_number_is_given_up_after_two_packets() {
        for bit in 7..64 {
            let mut window = Window::default();
            take(&mut window, 1 << bit, 0);
            let moved = Some(Place::Moved { skipped: 0, is_back: true });
            assert_eq!(taken(&mut window, [1, 2]), [Some(Place::Stray), moved], "bit {bit}");
            assert_eq!(taken(&mut window, [1, 2]), [None, None], "bit {bit}");
        }
    }

    #[test]
    fn packets_that_are_late_do_not_move_the_window_back() {
        let mut window = Window::default();
        taken(&mut window, 1_000..1_100);
        assert_eq!(taken(&mut window, 900..1_000), [None; 100]);
    }

    #[test]
    fn a_damaged_interval_does_not_lengthen_the_one_that_counts() {
        let mut window = Window::default();
        taken(&mut window, [0, 1]);
        let interval = window.newest().map(|newest| newest.interval);
        let packet = Packet {
            session: SessionId(1),
            seq: 2,
            sent_at: Time::ZERO + Span::from_millis(2),
            clock_offset: None,
            interval: Span::from_secs(33),
            ack_mark: None,
            payload: b"",
        };
        window.take(&packet, Time::ZERO);
        assert_eq!(window.newest().map(|newest| newest.interval), interval);
    }

    proptest! {
        /// Independent of earlier packets: two consecutive packets, sent later than all of them,
        /// are the newest ones.
        #[test]
        fn two_packets_in_a_row_always_count(
            before in prop::collection::vec((any::<u64>(), 0..1_000u64), 0..50),
            seq in 0..u64::MAX,
        ) {
            let mut window = Window::default();
            for (seq, millis) in before {
                take(&mut window, seq, millis);
            }
            for ahead in 0..2 {
                take(&mut window, seq.saturating_add(ahead), 1_000 + ahead);
            }
            let newest = window.newest().map(|newest| newest.seq);
            prop_assert!(newest.is_some_and(|newest| newest.abs_diff(seq) <= SPAN), "{newest:?}");
        }
    }
}
