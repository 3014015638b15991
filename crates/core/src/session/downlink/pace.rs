//! Pacing: when a client's next packet is due.

use crate::unit::{Span, Time};

/// A late driver may make up this many packets at any rate: at a low rate the driver wakes for each
/// single packet, and would lose the time of several packets each time. Fewer than a frame has.
const BURST: u64 = 6;

/// Spaces packets evenly.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    due: Time,
    /// Whether there is nothing to send.
    is_idle: bool,
    /// The total time so far in which more could have been sent.
    given_up: Span,
}

impl Pace {
    /// The first packet may be sent at once.
    pub(super) fn new(now: Time) -> Self {
        Self { due: now, is_idle: false, given_up: Span::ZERO }
    }

    /// A packet with the transmission time `takes` was sent. The driver's delay is made up, up to
    /// `catch_up` or [`BURST`] packets, whichever is longer.
    pub(super) fn on_sent(&mut self, now: Time, takes: Span, catch_up: Span) {
        let oldest = Time::ZERO + (now.since(Time::ZERO) - catch_up.max(takes * BURST));
        self.give_up_until(oldest);
        self.due += takes;
        self.is_idle = false;
    }

    pub(super) fn on_nothing_to_send(&mut self) {
        self.is_idle = true;
    }

    pub(super) fn on_something_to_send(&mut self, now: Time) {
        if self.is_idle {
            // Idle time gives no credit.
            self.give_up_until(now);
            self.is_idle = false;
        }
    }

    /// The total time in which more could have been sent, but the driver was late or had nothing to
    /// send.
    pub(super) fn given_up(&self) -> Span {
        self.given_up
    }

    /// `None` while there is nothing to send.
    pub(super) fn due(&self) -> Option<Time> {
        (!self.is_idle).then_some(self.due)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.is_idle
    }

    fn give_up_until(&mut self, time: Time) {
        self.given_up += time.since(self.due);
        self.due = self.due.max(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(micros: u64) -> Time {
        Time::ZERO + Span::from_micros(micros)
    }

    #[test]
    fn packets_are_spaced_evenly_and_a_little_lateness_is_made_up() {
        let [takes, catch_up] = [100, 250].map(Span::from_micros);
        let mut pace = Pace::new(us(1_000));
        for (now, next) in [(1_000, 1_100), (1_100, 1_200), (1_390, 1_300), (1_390, 1_400)] {
            pace.on_sent(us(now), takes, catch_up);
            assert_eq!(pace.due(), Some(us(next)));
        }
        assert_eq!(pace.given_up(), Span::ZERO);
        // A millisecond late: six packets are made up, the rest is lost.
        pace.on_sent(us(2_400), takes, catch_up);
        assert_eq!((pace.due(), pace.given_up()), (Some(us(1_900)), Span::from_micros(400)));
        // With shorter packets, 250 µs are made up.
        pace.on_sent(us(3_000), Span::from_micros(10), catch_up);
        assert_eq!((pace.due(), pace.given_up()), (Some(us(2_760)), Span::from_micros(1_250)));
    }

    #[test]
    fn idle_time_is_no_credit() {
        let mut pace = Pace::new(us(0));
        pace.on_nothing_to_send();
        assert_eq!(pace.due(), None);
        pace.on_something_to_send(us(5_000));
        assert_eq!((pace.due(), pace.given_up()), (Some(us(5_000)), Span::from_millis(5)));
        pace.on_sent(us(5_000), Span::from_micros(100), Span::from_millis(10));
        pace.on_nothing_to_send();
        pace.on_something_to_send(us(5_050));
        assert_eq!(pace.due(), Some(us(5_100)), "nor does it shorten the gap");
    }
}
